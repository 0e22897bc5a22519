//! The forwarding thread: real frames through the link machines, in real time.
//!
//! One thread carries both directions. A frame's time is the kernel's receive stamp, not the moment
//! at which this thread got round to it, so a late wake-up does not lengthen a delay that is longer
//! than the wake-up's latency. It waits by sleeping until shortly before the next departure and then
//! spinning; while frames leave densely it spins throughout, and looks for arrivals every so often.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use link::{
    Bottleneck, Counters, Decision, DelayLine, Event, Log, Output, Pipeline, QueueLimits,
    RandomLoss, Release, Spacing, Stage, Train,
};
use std::os::fd::AsFd;
use sys::clock::{self, RealtimeOffset};
use sys::packet::{PacketSocket, SendBatch, VNET_HDR_BYTES};
use sys::sched;
use units::{Duration, Instant};
use wire::train::{CutBuf, SuperFrame};
use wire::virtio::VirtioNetHdr;

use crate::path::DirectionSpec;
use crate::probe;
use crate::store::FrameStore;

/// What the forwarder counted in one direction since the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionCounts {
    /// Frames (super-frames count once) that came in.
    pub frames_in: u64,
    /// Segments that went out, as the wire would carry them.
    pub segments_out: u64,
    /// Of these, later than [`LATE`] by the forwarder's own clock.
    pub segments_late: u64,
    /// Of these, sent in one piece with neighbours since the forwarder was behind.
    pub segments_together: u64,
    /// The latest of them.
    pub late_max: Duration,
    /// Frames lost for want of memory.
    pub lost_memory: u64,
    /// Frames that the kernel dropped before we saw them.
    pub lost_receive: u64,
    /// Frames that the kernel refused to send.
    pub lost_send: u64,
    /// What the link's stages decided.
    pub link: Counters,
}

/// What happened to a probe frame on its way through the forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeSeen {
    pub(crate) forward: bool,
    pub(crate) sequence: u64,
    /// Kernel stamp at arrival, on the monotonic clock.
    pub(crate) arrived: Instant,
    /// When it was due to leave; `None` when the path dropped it.
    pub(crate) due: Option<Instant>,
}

/// Everything the forwarder knows of a phase.
#[derive(Clone, Debug, Default)]
pub(crate) struct PhaseCounts {
    pub(crate) forward: DirectionCounts,
    pub(crate) backward: DirectionCounts,
    pub(crate) probes: Vec<ProbeSeen>,
    /// When this was reported: what was due later has had no chance to arrive.
    pub(crate) reported_at: Instant,
    /// Segments still on their way.
    pub(crate) segments_waiting: u64,
    /// What the kernel granted each packet socket.
    pub(crate) receive_buffer_bytes: u64,
    pub(crate) cpu: Duration,
    pub(crate) memory_bytes: u64,
    /// Why the thread stopped forwarding, if it did.
    pub(crate) failure: Option<String>,
}

/// A request to the forwarder.
#[derive(Debug)]
pub(crate) enum Command {
    /// Starts counting anew and says when it did.
    Reset(Sender<()>),
    /// Sends what was counted since.
    Report(Sender<PhaseCounts>),
}

/// The forwarding thread's state.
#[derive(Debug)]
pub(crate) struct Forwarder {
    near: PacketSocket,
    far: PacketSocket,
    forward: Direction,
    backward: Direction,
    batch: SendBatch,
    offset: RealtimeOffset,
    offset_read_at: Instant,
    probes: Vec<ProbeSeen>,
    cpu_at_reset: Duration,
    receive_interval: Duration,
    received_at: Instant,
    failure: Option<String>,
}

#[derive(Debug)]
struct Direction {
    is_forward: bool,
    store: FrameStore,
    pipeline: Pipeline,
    cut: CutBuf,
    counts: DirectionCounts,
    last_arrival: Instant,
    in_batch: Vec<Release>,
}

/// A frame that leaves later than this is late.
pub const LATE: Duration = Duration::from_ms(1);

impl Forwarder {
    pub(crate) fn new(
        near: PacketSocket,
        far: PacketSocket,
        forward: &DirectionSpec,
        backward: &DirectionSpec,
    ) -> Self {
        let shortest = forward.delay.min(backward.delay);
        let receive_interval = Duration::from_ns(shortest.as_ns() / 8).min(RECEIVE_INTERVAL_MAX);
        Self {
            near,
            far,
            forward: Direction::new(true, forward),
            backward: Direction::new(false, backward),
            batch: SendBatch::new(BATCH_FRAMES),
            offset: RealtimeOffset::read(),
            offset_read_at: clock::monotonic(),
            probes: Vec::new(),
            cpu_at_reset: Duration::ZERO,
            receive_interval,
            received_at: Instant::ZERO,
            failure: None,
        }
    }

    /// Forwards until `stop`.
    pub(crate) fn run(mut self, stop: &Arc<AtomicBool>, commands: &Receiver<Command>) {
        sched::prefer_this_thread();
        let _awake = sched::AwakeCpus::hold();
        let may_spin = std::thread::available_parallelism().is_ok_and(|n| n.get() > 1);
        let spin = if may_spin { SPIN } else { Duration::ZERO };
        self.reset();
        while !stop.load(Ordering::Relaxed) {
            if let Err(e) = self.step(spin, commands) {
                self.failure = Some(format!("the forwarder stopped: {e}"));
                break;
            }
        }
        // Whoever waits for a report still gets it.
        while !stop.load(Ordering::Relaxed) {
            self.answer(commands);
            std::thread::sleep(SLEEP_MAX.to_std());
        }
    }

    /// Sends what is due, takes in what has come, waits for either.
    fn step(&mut self, spin: Duration, commands: &Receiver<Command>) -> std::io::Result<()> {
        let next = self.send_due(clock::monotonic())?;
        let now = clock::monotonic();
        if now.saturating_since(self.received_at) >= self.receive_interval {
            self.received_at = now;
            self.answer(commands);
            let (taken, more) = self.receive_all(now)?;
            if more {
                // Send what is due, then go on taking in without waiting for the interval.
                self.received_at = Instant::ZERO;
            }
            if taken > 0 {
                // What came may be due before what was waiting.
                return Ok(());
            }
        }
        let wait = next.saturating_since(clock::monotonic());
        if wait > spin {
            let sleep = (wait - spin).min(SLEEP_MAX);
            sched::wait_readable([self.near.as_fd(), self.far.as_fd()], sleep)?;
            self.received_at = Instant::ZERO;
        } else {
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Sends all that is due at `now`; when the next is.
    fn send_due(&mut self, now: Instant) -> std::io::Result<Instant> {
        let forward = self.forward.send_due(now, &self.far, &mut self.batch)?;
        let backward = self.backward.send_due(now, &self.near, &mut self.batch)?;
        Ok(forward.min(backward))
    }

    /// Takes in waiting frames, a bounded number of them; how many, and whether more may wait.
    fn receive_all(&mut self, now: Instant) -> std::io::Result<(usize, bool)> {
        if now.saturating_since(self.offset_read_at) > OFFSET_AGE_MAX {
            self.offset = RealtimeOffset::read();
            self.offset_read_at = now;
        }
        let (offset, probes) = (self.offset, &mut self.probes);
        let forward = self.forward.receive(&self.near, now, offset, probes)?;
        let backward = self.backward.receive(&self.far, now, offset, probes)?;
        Ok((forward.0 + backward.0, forward.1 || backward.1))
    }

    fn answer(&mut self, commands: &Receiver<Command>) {
        while let Ok(command) = commands.try_recv() {
            match command {
                Command::Reset(reply) => {
                    self.reset();
                    let _ = reply.send(());
                }
                Command::Report(reply) => {
                    let counts = self.report();
                    // The asker may have given up; that is its business.
                    let _ = reply.send(counts);
                }
            }
        }
    }

    fn reset(&mut self) {
        // Reading the kernel's counters clears them.
        let _ = (self.near.statistics(), self.far.statistics());
        self.forward.counts = DirectionCounts::default();
        self.backward.counts = DirectionCounts::default();
        // A report took the last phase's; the data path is not to allocate in the next.
        self.probes = Vec::with_capacity(PROBES_PREALLOCATED);
        self.cpu_at_reset = clock::thread_cpu();
    }

    fn report(&mut self) -> PhaseCounts {
        let drops = |socket: &PacketSocket| socket.statistics().map_or(0, |s| s.drops);
        self.forward.counts.lost_receive += drops(&self.near);
        self.backward.counts.lost_receive += drops(&self.far);
        let memory = self.forward.store.capacity_bytes() + self.backward.store.capacity_bytes();
        PhaseCounts {
            forward: self.forward.counts,
            backward: self.backward.counts,
            probes: std::mem::take(&mut self.probes),
            reported_at: clock::monotonic(),
            segments_waiting: self.forward.pipeline.segments_waiting()
                + self.backward.pipeline.segments_waiting(),
            receive_buffer_bytes: self.near.receive_buffer_bytes(),
            cpu: clock::thread_cpu() - self.cpu_at_reset,
            memory_bytes: memory as u64,
            failure: self.failure.clone(),
        }
    }
}

impl Direction {
    fn new(is_forward: bool, spec: &DirectionSpec) -> Self {
        let ring = usize::try_from(spec.ring_bytes().as_u64()).unwrap_or(usize::MAX);
        Self {
            is_forward,
            store: FrameStore::new(ring, FRAME_BYTES_MAX),
            pipeline: pipeline(spec),
            cut: CutBuf::new(),
            counts: DirectionCounts::default(),
            last_arrival: Instant::ZERO,
            in_batch: Vec::with_capacity(BATCH_FRAMES),
        }
    }

    fn send_due(
        &mut self,
        now: Instant,
        to: &PacketSocket,
        batch: &mut SendBatch,
    ) -> std::io::Result<Instant> {
        loop {
            match self.pipeline.poll_output(now) {
                Output::Release(release) => {
                    self.add(release, batch);
                    if batch.is_full() {
                        self.flush(to, batch)?;
                    }
                }
                Output::Timeout(at) => {
                    self.flush(to, batch)?;
                    return Ok(at);
                }
                Output::Idle => {
                    self.flush(to, batch)?;
                    return Ok(Instant::MAX);
                }
            }
        }
    }

    fn add(&mut self, release: Release, batch: &mut SendBatch) {
        let (frame, range) = self.store.frame(release.handle);
        let start = range.start + VNET_HDR_BYTES;
        let bytes = &self.store.memory()[start..range.end];
        if frame
            .cut(bytes, release.first, release.count, &mut self.cut)
            .is_ok()
        {
            let payload = self.cut.payload();
            let payload = start + payload.start..start + payload.end;
            batch.push(self.cut.vnet().to_bytes(), self.cut.headers(), payload);
        } else {
            self.counts.lost_send += 1;
        }
        self.in_batch.push(release);
    }

    fn flush(&mut self, to: &PacketSocket, batch: &mut SendBatch) -> std::io::Result<()> {
        if self.in_batch.is_empty() {
            return Ok(());
        }
        let sent = to.send(batch, self.store.memory());
        let now = clock::monotonic();
        for release in self.in_batch.drain(..) {
            self.counts.account(&release, now);
            self.store.release(release.handle, release.count);
        }
        self.counts.lost_send += sent? as u64;
        Ok(())
    }

    fn receive(
        &mut self,
        from: &PacketSocket,
        now: Instant,
        offset: RealtimeOffset,
        probes: &mut Vec<ProbeSeen>,
    ) -> std::io::Result<(usize, bool)> {
        let mut bytes_taken = 0;
        for taken in 0..RECEIVE_FRAMES_MAX {
            if bytes_taken > RECEIVE_BYTES_MAX {
                return Ok((taken, true));
            }
            let mut scratch = [0_u8; 64];
            let Some(buffer) = self.store.reserve() else {
                // Take it off the socket all the same, or the kernel's buffer fills up behind it.
                match from.receive(&mut scratch)? {
                    Some(_) => {
                        self.counts.frames_in += 1;
                        self.counts.lost_memory += 1;
                        continue;
                    }
                    None => return Ok((taken, false)),
                }
            };
            let received = match from.receive(buffer) {
                Ok(Some(received)) => received,
                Ok(None) => return Ok((taken, false)),
                // A GSO kind that virtio_net_hdr cannot tell: the kernel dropped that frame alone.
                Err(e) if e.kind() == std::io::ErrorKind::InvalidInput => {
                    self.counts.lost_receive += 1;
                    continue;
                }
                Err(e) => return Err(e),
            };
            self.counts.frames_in += 1;
            bytes_taken += received.len;
            let cut_short = received.full_len > received.len;
            let Some(vnet) = VirtioNetHdr::parse(buffer).filter(|_| !cut_short) else {
                self.counts.lost_memory += 1;
                continue;
            };
            let bytes = &buffer[VNET_HDR_BYTES..received.len];
            let frame = SuperFrame::parse(vnet, bytes);
            let probe = probe::sequence_of(bytes);
            let stamp = received
                .stamp_realtime_ns
                .map_or(now, |ns| offset.to_monotonic(ns));
            // A stamp from the future or the far past is a stepped clock, not an arrival.
            // A frame that came since `now` was read: look at the clock again rather than disbelieve
            // the stamp, or the frame would be early.
            let now = if stamp > now { clock::monotonic() } else { now };
            let plausible = stamp <= now && now.saturating_since(stamp) < STAMP_AGE_MAX;
            let arrived = if plausible { stamp } else { now }.max(self.last_arrival);
            self.last_arrival = arrived;
            let handle = self.store.commit(received.len, frame);
            let due = self.enter(handle, frame, arrived);
            if let Some(sequence) = probe
                && probes.len() < PROBES_MAX
            {
                let forward = self.is_forward;
                probes.push(ProbeSeen {
                    forward,
                    sequence,
                    arrived,
                    due,
                });
            }
        }
        Ok((RECEIVE_FRAMES_MAX, true))
    }

    /// Sends a frame's segments down the link. Of a frame of one segment, as a probe is: when it is
    /// due, `None` when it was lost.
    fn enter(&mut self, handle: u64, frame: SuperFrame, at: Instant) -> Option<Instant> {
        let whole = Train {
            handle,
            first: 0,
            count: frame.segments() - 1,
            wire_bytes: wire::train::wire_bytes(frame.segment_bytes_full()),
            flow: frame.flow(),
            at,
            spacing: Spacing::TOGETHER,
        };
        let last_wire_bytes = wire::train::wire_bytes(frame.segment_bytes_last());
        let last = Train {
            first: whole.count,
            count: 1,
            wire_bytes: last_wire_bytes,
            ..whole
        };
        let mut fate = Fate {
            counters: &mut self.counts.link,
            lost: 0,
            due: None,
        };
        if last.wire_bytes == whole.wire_bytes {
            // All alike: one train, which a path without a rate passes on uncut.
            let all = Train {
                count: frame.segments(),
                ..whole
            };
            self.pipeline.handle_train(all, &mut fate);
        } else {
            if whole.count > 0 {
                self.pipeline.handle_train(whole, &mut fate);
            }
            self.pipeline.handle_train(last, &mut fate);
        }
        let (lost, due) = (fate.lost, fate.due);
        if lost > 0 {
            self.store.release(handle, lost);
        }
        due
    }
}

impl DirectionCounts {
    /// Books segments that left at `now`.
    fn account(&mut self, release: &Release, now: Instant) {
        let count = u64::from(release.count);
        self.segments_out += count;
        self.late_max = self.late_max.max(now.saturating_since(release.at));
        let apart = release.last_at.saturating_since(release.at).as_ns();
        self.segments_together += if apart > 0 { count } else { 0 };
        let late = now.saturating_since(release.at + LATE).as_ns();
        // Of segments spaced evenly, those due before now - LATE.
        self.segments_late += match (late, apart) {
            (0, _) => 0,
            (_, 0) => count,
            _ => (late * (count - 1) / apart + 1).min(count),
        };
    }
}

/// Counts a frame's decisions and remembers what the store must know.
struct Fate<'a> {
    counters: &'a mut Counters,
    lost: u16,
    due: Option<Instant>,
}

impl Log for Fate<'_> {
    fn on_event(&mut self, event: &Event) {
        self.counters.on_event(event);
        match event.decision {
            Decision::Lost | Decision::QueueFull { .. } => self.lost += event.train.count,
            Decision::Scheduled { departs, .. } => self.due = Some(departs),
            _ => {}
        }
    }
}

/// The stages of one direction in the order in which a frame meets them: queue and rate, then the
/// medium's losses (a frame lost there has used up its time on the wire), then the way.
fn pipeline(spec: &DirectionSpec) -> Pipeline {
    let mut stages: Vec<Box<dyn Stage>> = Vec::new();
    if let Some(rate) = spec.rate {
        let bytes = Some(spec.queue.as_u64());
        let limits = QueueLimits {
            bytes,
            packets: spec.queue_packets,
        };
        stages.push(Box::new(Bottleneck::new(rate, limits)));
    }
    if spec.loss > 0.0 {
        stages.push(Box::new(RandomLoss::new(spec.loss, spec.seed)));
    }
    stages.push(Box::new(DelayLine::new(spec.delay)));
    Pipeline::new(stages, PORT_TRAINS).catching_up_when(BEHIND)
}

/// A vnet header, two VLAN tags beyond the Ethernet header, and the largest GSO packet.
const FRAME_BYTES_MAX: usize = VNET_HDR_BYTES + 14 + 8 + 65_536;
/// Frames in one system call: few enough that the last is not late for the sake of the first.
const BATCH_FRAMES: usize = 32;
/// Frames, and their bytes, taken in a row before departures are looked at again: some 20 us.
const RECEIVE_FRAMES_MAX: usize = 32;
const RECEIVE_BYTES_MAX: usize = 128 * 1024;
/// So far behind, overdue neighbours leave as one piece: they would leave in one burst anyhow, and
/// this costs a tenth. Above what a wake-up or one batch takes, below what counts as late.
const BEHIND: Duration = Duration::from_us(250);
/// Trains set aside for at each end of the line; it grows when first filled further.
const PORT_TRAINS: usize = 1 << 14;
/// Sleep ends this long before a departure, and spinning takes over: above the usual wake-up
/// latency of 50..60 us.
const SPIN: Duration = Duration::from_us(100);
/// Commands and the stop flag are looked at this often at least.
const SLEEP_MAX: Duration = Duration::from_ms(20);
/// Arrivals are looked for this often at least while departures are dense.
const RECEIVE_INTERVAL_MAX: Duration = Duration::from_us(100);
/// Real time moves against monotonic time only when somebody steps the clock.
const OFFSET_AGE_MAX: Duration = Duration::from_ms(50);
/// Receive stamps older than this are not believed.
const STAMP_AGE_MAX: Duration = Duration::from_s(5);
/// Probes of three minutes; a longer phase grows the list once in a while.
const PROBES_PREALLOCATED: usize = 1 << 16;
/// Probes remembered in a phase: over an hour at 200/s both ways would be 1.4 M.
const PROBES_MAX: usize = 1 << 20;
