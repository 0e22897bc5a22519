//! The forwarding thread: real frames through the link machines, in real time.
//!
//! One thread carries all of a lab. A frame's time is the kernel's receive stamp, not the moment
//! at which this thread got round to it, so a late wake-up does not lengthen a delay that is longer
//! than the wake-up's latency. It waits by sleeping until shortly before the next departure and then
//! spinning; while frames leave densely it spins throughout, and looks for arrivals every so often. Where many
//! threads want few CPUs it sleeps for a fixed time instead ([`crate::patience`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use link::{Change, Counters, Release};
use std::os::fd::AsFd;
use sys::clock::{self, RealtimeOffset};
use sys::packet::PacketSocket;
use sys::sched::{self, Readable};
use units::{Duration, Instant};

use crate::engine::{Engine, Lost, Poll};
use crate::lateness::Lateness;
use crate::node::Rule;
use crate::patience::Patience;
use crate::rate::RateError;
use crate::urgency::{NAP, Urgency};

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
    /// Segments that a router at its end sent on as fragments.
    pub fragmented: u64,
    /// What these became.
    pub fragments: u64,
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
    /// Each direction of each link, forward at even places, backward behind it.
    pub(crate) directions: Vec<DirectionCounts>,
    /// How exactly each kept its rate.
    pub(crate) rate_errors: Vec<Vec<RateError>>,
    pub(crate) probes: Vec<ProbeSeen>,
    /// What each direction was late.
    pub(crate) lateness: Vec<Lateness>,
    /// Since when it was counted.
    pub(crate) began: Instant,
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
    /// Says what was counted since, and goes on.
    Counts(Sender<Vec<DirectionCounts>>),
    /// Changes a direction from now on.
    Change(usize, Change),
    /// Gives a node other rules; says whether it takes any.
    SetRules(usize, Vec<Rule>, Sender<bool>),
    /// Says a node's rules with what they met.
    Rules(usize, Sender<Vec<Rule>>),
}

/// The forwarding thread's state.
#[derive(Debug)]
pub(crate) struct Forwarder {
    sockets: Vec<PacketSocket>,
    readable: Readable,
    ready: Vec<usize>,
    engine: Engine,
    offset: RealtimeOffset,
    offset_read_at: Instant,
    cpu_at_reset: Duration,
    began: Instant,
    receive_interval: Duration,
    received_at: Instant,
    /// When a frame was last taken in.
    taken_at: Instant,
    /// Where the thread is to stay, if anywhere.
    cpu: Option<usize>,
    urgency: Urgency,
    patience: Patience,
    /// That what is due has now.
    waits: Duration,
    /// CPUs of the machine: with more threads than these that could run, somebody waits.
    cpus: u32,
    /// Since when it spins.
    spun_from: Option<Instant>,
    failure: Option<String>,
}

/// A frame that leaves later than this is late.
pub const LATE: Duration = Duration::from_ms(1);

impl Forwarder {
    /// Joins `sockets`, the ports in the engine's order. `shortest` is the shortest delay of a
    /// direction: arrivals are looked for several times within it. The thread stays on `cpu`, if one is
    /// given.
    pub(crate) fn new(
        sockets: Vec<PacketSocket>,
        engine: Engine,
        shortest: Duration,
        cpu: Option<usize>,
    ) -> std::io::Result<Self> {
        let receive_interval = Duration::from_ns(shortest.as_ns() / 8).min(RECEIVE_INTERVAL_MAX);
        let cpus = sys::host::cpus_online();
        let patience = Patience::new(engine.least_delay(), cpus);
        let readable = Readable::new(sockets.iter().map(AsFd::as_fd))?;
        Ok(Self {
            ready: Vec::with_capacity(sockets.len()),
            sockets,
            readable,
            engine,
            offset: RealtimeOffset::read(),
            offset_read_at: clock::monotonic(),
            cpu_at_reset: Duration::ZERO,
            began: Instant::ZERO,
            receive_interval,
            received_at: Instant::ZERO,
            taken_at: Instant::ZERO,
            cpu,
            urgency: Urgency::new(clock::monotonic()),
            patience,
            waits: Duration::ZERO,
            cpus,
            spun_from: None,
            failure: None,
        })
    }

    /// Forwards until `stop`.
    pub(crate) fn run(mut self, stop: &Arc<AtomicBool>, commands: &Receiver<Command>) {
        sched::prefer_this_thread();
        sched::set_urgent(true);
        self.urgency = Urgency::new(clock::monotonic());
        if let Some(cpu) = self.cpu {
            // The others do the hosts' receiving; a kernel that refuses costs speed and no more.
            let _ = sched::pin_this_thread(cpu);
        }
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
        let begun = clock::monotonic();
        if let Some(from) = self.spun_from.take() {
            self.urgency.spin(from, begun);
        }
        if let Some(urgent) = self.urgency.judge(begun, clock::thread_cpu) {
            sched::set_urgent(urgent);
        }
        let next = self.send_due(begun)?;
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
                self.taken_at = now;
                // What came may be due before what was waiting.
                return Ok(());
            }
        }
        let idle = clock::monotonic();
        let wait = next.saturating_since(idle);
        let cpus = self.cpus;
        let crowded = || sys::host::runnable().is_some_and(|n| n > cpus);
        let waits = self.patience.at(idle, sys::host::runnable);
        if waits != self.waits {
            self.waits = waits;
            self.engine.catch_up_when(waits > Duration::ZERO);
        }
        let taken = now.saturating_since(self.taken_at) < waits;
        if waits > Duration::ZERO && (taken || wait < waits + spin) {
            // By time, not by arrivals: each would wake it up, and take the CPU from whoever has work.
            std::thread::sleep(waits.to_std());
            self.urgency.sleep(idle, clock::monotonic());
            self.received_at = Instant::ZERO;
        } else if self.urgency.owes_nap(idle, crowded) {
            std::thread::sleep(NAP.to_std());
            self.urgency.sleep(idle, clock::monotonic());
            self.received_at = Instant::ZERO;
        } else if now.saturating_since(self.taken_at) < LINGER.min(spin) {
            // The next is likely close behind, and a wake-up takes longer than to wait for it.
            self.received_at = Instant::ZERO;
            self.spun_from = Some(idle);
            std::hint::spin_loop();
        } else if wait > spin {
            let sleep = (wait - spin).min(SLEEP_MAX);
            if sleep == SLEEP_MAX {
                self.engine.flush_log();
            }
            self.readable.sleep(sleep)?;
            self.urgency.sleep(idle, clock::monotonic());
            self.received_at = Instant::ZERO;
        } else {
            self.spun_from = Some(idle);
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Sends all that is due at `now`; when the next is.
    fn send_due(&mut self, now: Instant) -> std::io::Result<Instant> {
        loop {
            match self.engine.poll(now) {
                Poll::Wait(at) => return Ok(at),
                Poll::Flush(port) => {
                    let (batch, stores) = self.engine.batch(port);
                    let memory =
                        |m: u16| stores.get(usize::from(m)).map_or(&[][..], |s| s.memory());
                    let refused = self.sockets[port].send(batch, memory);
                    let sent_at = clock::monotonic();
                    let lost = *refused.as_ref().unwrap_or(&0);
                    self.engine.sent(port, lost as u64, sent_at);
                    refused?;
                }
            }
        }
    }

    /// Takes in waiting frames, a bounded number of them; how many, and whether more may wait.
    fn receive_all(&mut self, now: Instant) -> std::io::Result<(usize, bool)> {
        if now.saturating_since(self.offset_read_at) > OFFSET_AGE_MAX {
            self.offset = RealtimeOffset::read();
            self.offset_read_at = now;
            self.count_drops(now);
        }
        let (mut taken, mut more) = (0, false);
        if self.sockets.len() <= ASK_EACH_MAX {
            for port in 0..self.sockets.len() {
                let (n, rest) = self.receive(port, now)?;
                taken += n;
                more |= rest;
            }
            return Ok((taken, more));
        }
        self.readable.which(&mut self.ready)?;
        for i in 0..self.ready.len() {
            let (n, rest) = self.receive(self.ready[i], now)?;
            taken += n;
            more |= rest;
        }
        Ok((taken, more))
    }

    fn receive(&mut self, port: usize, now: Instant) -> std::io::Result<(usize, bool)> {
        let mut bytes_taken = 0;
        let from = &self.sockets[port];
        for taken in 0..RECEIVE_FRAMES_MAX {
            if bytes_taken > RECEIVE_BYTES_MAX {
                return Ok((taken, true));
            }
            let mut scratch = [0_u8; 64];
            let Some(buffer) = self.engine.reserve(port) else {
                // Take it off the socket all the same, or the kernel's buffer fills up behind it.
                match from.receive(&mut scratch)? {
                    Some(_) => {
                        self.engine.lost_at(port, Lost::Memory, now);
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
                    self.engine.lost_at(port, Lost::Kernel(1), now);
                    continue;
                }
                Err(e) => return Err(e),
            };
            bytes_taken += received.len;
            if received.full_len > received.len {
                self.engine.lost_at(port, Lost::Memory, now);
                continue;
            }
            let stamp = received
                .stamp_realtime_ns
                .map_or(now, |ns| self.offset.to_monotonic(ns));
            // A stamp from the future or the far past is a stepped clock, not an arrival.
            // A frame that came since `now` was read: look at the clock again rather than disbelieve
            // the stamp, or the frame would be early.
            let now = if stamp > now { clock::monotonic() } else { now };
            let plausible = stamp <= now && now.saturating_since(stamp) < STAMP_AGE_MAX;
            let arrived = if plausible { stamp } else { now };
            self.engine.ingress(port, received.len, arrived);
        }
        Ok((RECEIVE_FRAMES_MAX, true))
    }

    fn answer(&mut self, commands: &Receiver<Command>) {
        while let Ok(command) = commands.try_recv() {
            // The asker may have given up; that is its business.
            match command {
                Command::Reset(reply) => {
                    self.reset();
                    let _ = reply.send(());
                }
                Command::Report(reply) => {
                    let counts = self.report();
                    let _ = reply.send(counts);
                }
                Command::Counts(reply) => {
                    self.count_drops(clock::monotonic());
                    let _ = reply.send(self.engine.counts().copied().collect());
                }
                Command::Change(way, change) => {
                    self.engine.change(way, clock::monotonic(), change);
                    self.patience = Patience::new(self.engine.least_delay(), self.cpus);
                }
                Command::SetRules(node, rules, reply) => {
                    let _ = reply.send(self.engine.set_rules(node, rules));
                }
                Command::Rules(node, reply) => {
                    let _ = reply.send(self.engine.rules(node).to_vec());
                }
            }
        }
    }

    fn reset(&mut self) {
        // Reading the kernel's counters clears them.
        for socket in &self.sockets {
            let _ = socket.statistics();
        }
        self.engine.reset_counts();
        self.cpu_at_reset = clock::thread_cpu();
        self.began = clock::monotonic();
    }

    /// Books what the kernel dropped since it was last asked.
    fn count_drops(&mut self, now: Instant) {
        for (port, socket) in self.sockets.iter().enumerate() {
            let drops = socket.statistics().map_or(0, |s| s.drops);
            self.engine.lost_at(port, Lost::Kernel(drops), now);
        }
    }

    fn report(&mut self) -> PhaseCounts {
        let now = clock::monotonic();
        self.count_drops(now);
        PhaseCounts {
            directions: self.engine.counts().copied().collect(),
            rate_errors: self.engine.rate_errors(now),
            probes: self.engine.take_probes(),
            lateness: self.engine.lateness(),
            began: self.began,
            reported_at: now,
            segments_waiting: self.engine.segments_waiting(),
            receive_buffer_bytes: self
                .sockets
                .iter()
                .map(PacketSocket::receive_buffer_bytes)
                .min()
                .unwrap_or(0),
            cpu: clock::thread_cpu() - self.cpu_at_reset,
            memory_bytes: self.engine.memory_bytes() as u64,
            failure: self.failure.clone(),
        }
    }
}

impl DirectionCounts {
    /// Both together.
    #[must_use]
    pub(crate) fn plus(mut self, other: &Self) -> Self {
        self.frames_in += other.frames_in;
        self.segments_out += other.segments_out;
        self.segments_late += other.segments_late;
        self.segments_together += other.segments_together;
        self.late_max = self.late_max.max(other.late_max);
        self.lost_memory += other.lost_memory;
        self.lost_receive += other.lost_receive;
        self.lost_send += other.lost_send;
        self.fragmented += other.fragmented;
        self.fragments += other.fragments;
        self.link = self.link.plus(&other.link);
        self
    }

    /// Books segments that left at `now`.
    pub(crate) fn account(&mut self, release: &Release, now: Instant) {
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

/// Frames, and their bytes, taken in a row before departures are looked at again: some 20 us.
const RECEIVE_FRAMES_MAX: usize = 32;
const RECEIVE_BYTES_MAX: usize = 128 * 1024;
/// Up to so many sockets are asked one by one; of more, the kernel is asked which are worth it.
const ASK_EACH_MAX: usize = 3;
/// Sleep ends this long before a departure, and spinning takes over: above the usual wake-up
/// latency of 50..60 us.
const SPIN: Duration = Duration::from_us(100);
/// After a frame the next is looked for so long before the thread sleeps: a fifth more of a stream
/// of super-frames on two CPUs.
const LINGER: Duration = Duration::from_us(20);
/// Commands and the stop flag are looked at this often at least.
const SLEEP_MAX: Duration = Duration::from_ms(20);
/// Arrivals are looked for this often at least while departures are dense.
const RECEIVE_INTERVAL_MAX: Duration = Duration::from_us(100);
/// Real time moves against monotonic time only when somebody steps the clock.
const OFFSET_AGE_MAX: Duration = Duration::from_ms(50);
/// Receive stamps older than this are not believed.
const STAMP_AGE_MAX: Duration = Duration::from_s(5);
