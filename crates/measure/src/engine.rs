//! The data path of one end: a thread a stream that writes or reads blocks, and one sampler thread
//! that reads `tcp_info` of all streams and ends the sending when the time is over.
//!
//! A data thread allocates nothing and reads no clock, unless it stands for a slower host: it looks at one flag and publishes one
//! counter per block. Sockets block, with a kernel timeout of one tick, so that a stalled path does
//! not keep a thread from seeing the flag; a write cut short by the timeout counts what it took.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use sys::threads;
use sys::{clock, sched, tcp};
use units::{Duration, Instant, Rate, Rng};

use crate::ceiling::{self, Ceiling, time_of};
use crate::cost::Meter;
use crate::crew::{Board, Crew, Ended, Role, Rounds, Sampled, Used};
use crate::even;
use crate::gaps;
use crate::outcome::{EndResult, MptcpCounts, Sample, SampleKind};
use crate::outlet::{Outlet, Supply, ZeroCopyCounts};
use crate::spend::{Spender, WriteCosts};
use crate::tls::{Sealed, Side, shake_hands};
use crate::transport::{Sending, Transport};
use crate::wait::{TICK, is_timeout};
use crate::{Config, Reading, Stop};

/// All streams of one end. Dropping it aborts them and waits for their threads.
#[derive(Debug)]
pub(crate) struct Engine {
    role: Role,
    /// Sends without copying.
    lends: bool,
    shared: Arc<Shared>,
    start: Vec<Sample>,
    crew: Crew<ZeroCopyCounts, Sampled>,
}

/// What the threads of an engine share.
#[derive(Debug)]
struct Shared {
    sockets: Vec<TcpStream>,
    /// Own and peer's address of each, as they began.
    addresses: Vec<(SocketAddr, SocketAddr)>,
    counters: Vec<Counter>,
    /// Data threads leave when it is raised: time is up, or aborted.
    done: AtomicBool,
    board: Board<ByPeer>,
    shape: Shape,
    /// Streams are encrypted.
    is_sealed: bool,
    /// Of each stream, where multipath was asked for.
    multipath: Option<Mutex<Vec<Option<u8>>>>,
}

/// What a sender may send.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shape {
    /// Bytes left to all its streams; `None` for no limit but the time.
    pub(crate) budget: Option<Arc<AtomicU64>>,
    /// Rate of each stream as the application keeps it.
    pub(crate) rate: Option<Rate>,
    /// What it shares with other transfers.
    pub(crate) ceiling: Option<Arc<Ceiling>>,
}

impl Shape {
    /// What `config` asks for.
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            rate: config.rate,
            ..Self::default()
        }
    }

    /// Waits until so many bytes may leave; false when it is `over` before that.
    pub(crate) fn await_turn(&self, bytes: u64, over: &AtomicBool) -> bool {
        let ceiling = self.ceiling.as_ref();
        ceiling.is_none_or(|ceiling| ceiling.await_turn(bytes, over))
    }

    /// What was granted and not sent is another sender's.
    pub(crate) fn give_back(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        if let Some(budget) = &self.budget {
            budget.fetch_add(bytes, Ordering::Relaxed);
        }
        if let Some(ceiling) = &self.ceiling {
            ceiling.give_back(bytes);
        }
    }
}

/// Payload bytes of one stream; alone on its cache line (two, for the adjacent-line prefetcher).
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// The peer ended it and reads no more: nothing to wait for.
#[derive(Debug, Default)]
struct ByPeer(bool);

impl Engine {
    /// Takes over connected sockets, takes the first samples and starts the threads. Receivers read
    /// from now on, senders wait for [`Engine::go`] and keep to `shape`.
    pub(crate) fn prepare(
        role: Role,
        config: &Config,
        sockets: Vec<TcpStream>,
        shape: Shape,
    ) -> io::Result<Self> {
        Self::prepare_sealed(role, config, sockets, shape, Vec::new())
    }

    /// The same over TLS: `sealed` has each stream's encryption, or nothing.
    ///
    /// # Errors
    /// As [`Engine::prepare`].
    pub(crate) fn prepare_sealed(
        role: Role,
        config: &Config,
        sockets: Vec<TcpStream>,
        shape: Shape,
        sealed: Vec<Sealed>,
    ) -> io::Result<Self> {
        for socket in &sockets {
            socket.set_nonblocking(false)?;
            // No timeout for writers: shutting the socket down wakes them at the end, so a write is
            // an ordinary program's. (Linux 6.18 lets a blocked writer past a 64 KiB send buffer
            // now and then, with and without a timeout; see docs/guide/limits.md, send buffer.)
            // An encrypted stream has to send its end, so nobody shuts it down: it looks up.
            let write_timeout = (!sealed.is_empty()).then(|| TICK.to_std());
            socket.set_write_timeout(write_timeout)?;
            socket.set_read_timeout(Some(TICK.to_std()))?;
        }
        // A connection that both ends have closed has no peer any more.
        let address = |s: &TcpStream| Some((s.local_addr().ok()?, s.peer_addr().ok()?));
        let shared = Arc::new(Shared {
            addresses: sockets.iter().filter_map(address).collect(),
            counters: sockets.iter().map(|_| Counter::default()).collect(),
            board: Board::new(sockets.len(), ByPeer::default()),
            sockets,
            done: AtomicBool::new(false),
            shape,
            is_sealed: !sealed.is_empty(),
            multipath: (config.transport == Transport::Mptcp).then(Mutex::default),
        });
        let start = shared.round(SampleKind::Start, Instant::ZERO, &[]);
        let mut engine = Self {
            role,
            lends: role == Role::Sender && config.sending == Sending::ZeroCopy,
            shared,
            start,
            crew: Crew::new(),
        };
        engine.launch(config, sealed)?;
        Ok(engine)
    }

    /// The start mark: senders begin, the clock of samples runs. A receiver whose first byte was
    /// faster than the mark has started already.
    pub(crate) fn go(&self) {
        self.shared.board.start();
    }

    /// Ends all streams at once; what is queued is thrown away when the engine is finished.
    pub(crate) fn abort(&self) {
        self.shared.done.store(true, Ordering::Relaxed);
        self.shared.board.end();
        self.shared.wake_writers();
    }

    /// Ends all streams since the peer said so. Senders hand over what is queued and then an end of
    /// file; receivers leave within a tick.
    pub(crate) fn end(&self) {
        self.shared.board.state().more = ByPeer(true);
        self.shared.done.store(true, Ordering::Relaxed);
        if self.role == Role::Sender {
            self.shared.wake_writers();
        }
    }

    /// Ends all streams by resetting their connections now, so that the peer learns it; their
    /// `tcp_info` is void afterwards.
    pub(crate) fn reset(&self) {
        self.abort();
        for socket in &self.shared.sockets {
            // Refused while a data thread is inside a call on it; closing resets it then.
            let _ = rustix::net::connect_unspec(socket);
        }
    }

    /// Payload bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared
            .counters
            .iter()
            .map(|c| c.0.load(Ordering::Relaxed))
            .sum()
    }

    /// Time since the start mark.
    pub(crate) fn elapsed(&self) -> Duration {
        self.shared.board.elapsed()
    }

    /// The latest round of samples, once there is one.
    pub(crate) fn reading(&self) -> Option<Reading> {
        self.shared.board.state().latest
    }

    /// True when no data thread is left.
    pub(crate) fn is_finished(&self) -> bool {
        self.shared.board.is_finished()
    }

    /// True while a stream's socket holds bytes that its thread has not read.
    pub(crate) fn has_unread(&self) -> bool {
        let unread = |s: &TcpStream| rustix::io::ioctl_fionread(s).is_ok_and(|n| n > 0);
        self.shared.sockets.iter().any(unread)
    }

    /// True when no stream ever waits for the peer any more: everything was sent and acknowledged.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.is_finished() && self.shared.is_acknowledged()
    }

    /// Which end this is.
    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Collects what the threads found. Waits for them: call it when finished or aborted.
    pub(crate) fn finish(mut self) -> EndResult {
        let (started, cut) = {
            let state = self.shared.board.state();
            (
                state.started.unwrap_or_else(clock::monotonic),
                state.over || state.more.0,
            )
        };
        let mut result = EndResult {
            start: started,
            ..EndResult::default()
        };
        let mut zero_copy = ZeroCopyCounts::default();
        let (busiest, sampled) = self
            .crew
            .collect(&mut result, |_, lent| zero_copy.add(lent));
        result.zero_copy = Some(zero_copy).filter(|_| self.lends);
        result.samples = std::mem::take(&mut self.start);
        sampled.unwrap_or_default().join(busiest, &mut result);
        if self.role == Role::Sender && !cut {
            self.shared.await_acks();
            let last = self
                .shared
                .round(SampleKind::Drained, started, &result.samples);
            result.samples.extend(last);
        }
        if let Some(cost) = &mut result.cost {
            cost.weigh_memory(result.duration);
        }
        result.bytes = self.bytes();
        let counters = self.shared.counters.iter();
        result.stream_bytes = counters.map(|c| c.0.load(Ordering::Relaxed)).collect();
        self.shared.describe(&mut result);
        result
    }

    fn launch(&mut self, config: &Config, sealed: Vec<Sealed>) -> io::Result<()> {
        let bytes = match self.role {
            Role::Sender => config.block_bytes,
            Role::Receiver => config.read_bytes.unwrap_or(config.block_bytes),
        };
        let block_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let block: Arc<[u8]> = match self.role {
            Role::Sender => payload(block_bytes).into(),
            Role::Receiver => Arc::default(),
        };
        let supply = match self.role {
            Role::Sender => Supply::new(config, &block)?,
            Role::Receiver => Supply::Write,
        };
        let own_cpu = config.own_cpu(self.role == Role::Sender, &sched::cpus());
        let mut sealed = sealed.into_iter();
        for (stream, socket) in self.shared.sockets.iter().enumerate() {
            let outlet = match sealed.next() {
                Some(sealed) => Outlet::Sealed(Box::new(sealed)),
                None => supply.outlet(socket, &block)?,
            };
            let (shared, block) = (Arc::clone(&self.shared), Arc::clone(&block));
            let (role, costs) = (self.role, config.costs);
            self.crew.carry(move || {
                let _leave = shared.board.leave();
                if let Some(cpu) = own_cpu {
                    // Where it may not, it runs anywhere, as other transfers do.
                    drop(sched::pin_this_thread(cpu));
                }
                match role {
                    Role::Sender => shared.send(stream, &block, outlet, costs),
                    Role::Receiver => shared.receive(stream, block_bytes, outlet),
                }
            })?;
        }
        if self.role == Role::Sender && config.finds_gap {
            let shared = Arc::clone(&self.shared);
            let may_change = config.congestion.is_none();
            self.crew
                .assist("gp-gaps", move || shared.control_gaps(may_change))?;
        }
        if self.role == Role::Sender && config.evens {
            let shared = Arc::clone(&self.shared);
            self.crew.assist("gp-even", move || shared.even_streams())?;
        }
        let (shared, role) = (Arc::clone(&self.shared), self.role);
        let config = config.clone();
        let first = self.start.clone();
        self.crew
            .sample(move || shared.sample_until_end(role, &config, first))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.crew.is_there() {
            self.abort();
        }
        self.crew.dismiss();
        if self.shared.board.state().over {
            for socket in &self.shared.sockets {
                // Without it the kernel would go on sending what is queued: untidy, not wrong.
                drop(tcp::set_reset_on_close(socket.as_fd()));
            }
        }
    }
}

impl Shared {
    /// The sender's data thread: writes the block until the flag is raised, then ends the stream.
    fn send(
        &self,
        stream: usize,
        block: &[u8],
        mut outlet: Outlet,
        costs: WriteCosts,
    ) -> Ended<ZeroCopyCounts> {
        let (socket, counter) = (&self.sockets[stream], &self.counters[stream].0);
        let mut error = None;
        let mut total = 0_u64;
        let started = self.board.await_start().unwrap_or_else(clock::monotonic);
        let before = Used::now();
        let Shape {
            budget,
            rate,
            ceiling,
        } = &self.shape;
        let plain = budget.is_none() && rate.is_none() && ceiling.is_none();
        let block = match ceiling {
            Some(_) => &block[..block.len().min(ceiling::BLOCK_BYTES)],
            None => block,
        };
        let segment = || tcp::segment_size(socket.as_fd()).unwrap_or(SEGMENT_USUAL);
        let mut spender = (!costs.is_none()).then(|| Spender::new(costs, segment()));
        while !self.done.load(Ordering::Relaxed) {
            let block = match plain {
                true => block,
                false => match self.grant(started, total, block.len()) {
                    Some(0) => continue,
                    Some(n) => &block[..n],
                    None => break,
                },
            };
            if !self.shape.await_turn(block.len() as u64, &self.done) {
                break;
            }
            let handed = match &mut spender {
                None => outlet.hand_over(socket, block),
                Some(spender) => match spender.before(block.len(), &self.done) {
                    true => spender.after(outlet.hand_over(socket, block)),
                    false => {
                        self.give_back(block.len());
                        break;
                    }
                },
            };
            match handed {
                Ok(n) => {
                    total += n as u64;
                    counter.store(total, Ordering::Relaxed);
                    self.give_back(block.len() - n);
                }
                Err(e) if is_timeout(&e) => self.give_back(block.len()),
                // Woken by our own shutdown at the end of the time.
                Err(_) if self.done.load(Ordering::Relaxed) => break,
                Err(e) => {
                    error = Some(e);
                    break;
                }
            }
        }
        outlet.close(socket, || self.board.state().over);
        let at = clock::monotonic();
        // Fails only when the peer is gone already, which the receiving end tells.
        drop(socket.shutdown(Shutdown::Write));
        let used = Used::since(before);
        let zero_copy = outlet.settle(socket, || self.board.state().over);
        Ended {
            used,
            at,
            error: error.map(|e: io::Error| e.to_string()),
            more: zero_copy,
        }
    }

    /// Bytes of the next write, up to `block`: none while the rate has to be waited for, which this
    /// does for a tick at most; `None` when the budget is spent.
    fn grant(&self, started: Instant, sent: u64, block: usize) -> Option<usize> {
        if let Some(rate) = self.shape.rate {
            let due = started + time_of(sent, rate);
            let wait = due.saturating_since(clock::monotonic());
            if wait > Duration::ZERO {
                thread::sleep(wait.min(TICK).to_std());
                return Some(0);
            }
        }
        let Some(budget) = &self.shape.budget else {
            return Some(block);
        };
        let want = block as u64;
        let take = |left: u64| (left > 0).then(|| left - left.min(want));
        let left = budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        left.ok()
            .map(|left| usize::try_from(left.min(want)).unwrap_or(block))
    }

    /// What was granted and not written is another write's.
    fn give_back(&self, bytes: usize) {
        self.shape.give_back(bytes as u64);
    }

    /// The receiver's data thread: reads until the end of file.
    fn receive(
        &self,
        stream: usize,
        block_bytes: usize,
        mut inlet: Outlet,
    ) -> Ended<ZeroCopyCounts> {
        let (mut socket, counter) = (&self.sockets[stream], &self.counters[stream].0);
        let mut block = vec![0_u8; block_bytes];
        let mut error = None;
        let mut total = 0_u64;
        let before = Used::now();
        while !self.done.load(Ordering::Relaxed) {
            let read = match &mut inlet {
                Outlet::Sealed(sealed) => sealed.read(socket, &mut block),
                _ => socket.read(&mut block),
            };
            match read {
                Ok(0) => break,
                Ok(n) => {
                    if total == 0 {
                        // On a busy host the thread that handles the start mark may get its turn
                        // long after the payload has begun: the first byte starts the clock too.
                        self.board.start();
                    }
                    total += n as u64;
                    counter.store(total, Ordering::Relaxed);
                }
                Err(e) if is_timeout(&e) => {}
                Err(e) => {
                    error = Some(e);
                    break;
                }
            }
        }
        Ended {
            used: Used::since(before),
            at: clock::monotonic(),
            error: error.map(|e| e.to_string()),
            more: ZeroCopyCounts::default(),
        }
    }

    /// The sampler thread: a round of samples each interval, at the end of the ramp and at the
    /// nominal end, where a sender is told to stop.
    fn sample_until_end(&self, role: Role, config: &Config, first: Vec<Sample>) -> Sampled {
        let Some(started) = self.board.await_start() else {
            return Sampled::default();
        };
        let meter = Meter::start();
        let mut last = first;
        let read = |rounds: &mut Rounds<Sample>| {
            last = self.round(SampleKind::Periodic, started, &last);
            self.board.state().latest = Reading::of(role == Role::Sender, &last);
            rounds.push(&last);
        };
        let streams = self.sockets.len();
        let mut samples = self.board.sample(role, config, streams, started, read);
        if role == Role::Sender {
            self.done.store(true, Ordering::Relaxed);
        }
        samples.extend(self.round(SampleKind::End, started, &last));
        if role == Role::Sender && !self.is_sealed {
            self.wake_writers();
        }
        Sampled {
            samples,
            cost: Some(meter.stop()),
        }
    }

    /// The thread that finds each stream's gap, until the sending ends.
    fn control_gaps(&self, may_change: bool) {
        if self.board.await_start().is_some() {
            gaps::control(&self.sockets, may_change, || {
                self.done.load(Ordering::Relaxed)
            });
        }
    }

    /// The thread that holds all streams to one ceiling, until the sending ends.
    fn even_streams(&self) {
        if self.board.await_start().is_some() {
            even::control(&self.sockets, || self.done.load(Ordering::Relaxed));
        }
    }

    /// Ends the sending side of every stream: a thread blocked in a write returns with what it had
    /// handed over, and the end of file follows the data already queued (tcp(7), shutdown(2)).
    fn wake_writers(&self) {
        for socket in &self.sockets {
            // Fails only when the peer is gone already.
            drop(socket.shutdown(Shutdown::Write));
        }
    }

    /// Waits until the kernel knows that everything was acknowledged: the peer's word that it has
    /// everything may overtake the last ACK.
    fn await_acks(&self) {
        let give_up = clock::monotonic() + ACK_PATIENCE;
        while !self.is_acknowledged() && clock::monotonic() < give_up {
            thread::sleep(ACK_STEP);
        }
    }

    fn is_acknowledged(&self) -> bool {
        let is_open = |socket: &TcpStream| {
            let info = tcp::tcp_info(socket.as_fd()).unwrap_or_default();
            info.unacked_segments > 0 || info.notsent_bytes > 0
        };
        !self.sockets.iter().any(is_open)
    }

    /// One sample of every stream. Where the kernel refuses a reading, the stream's last one in
    /// `before` stands in, so that differences stay meaningful.
    fn round(&self, kind: SampleKind, started: Instant, before: &[Sample]) -> Vec<Sample> {
        self.look_for_subflows();
        let streams = self.sockets.iter().zip(&self.counters).zip(0_u16..);
        let read = |((socket, counter), stream): ((&TcpStream, &Counter), u16)| {
            let info = tcp::tcp_info(socket.as_fd()).ok();
            let t = match kind {
                SampleKind::Start => Duration::ZERO,
                _ => clock::monotonic().saturating_since(started),
            };
            let app_bytes = counter.0.load(Ordering::Relaxed);
            let stale = || {
                before
                    .iter()
                    .rev()
                    .find(|s| s.stream == stream)
                    .map(|s| s.info)
            };
            let info = info.or_else(stale).unwrap_or_default();
            Sample {
                stream,
                kind,
                t,
                app_bytes,
                info,
                quic: None,
            }
        };
        streams.map(read).collect()
    }

    /// Keeps the most subflows that each stream had: they go one by one when it ends. A connection
    /// that fell back to plain TCP does not become multipath again.
    fn look_for_subflows(&self) {
        let Some(multipath) = &self.multipath else {
            return;
        };
        let mut seen = multipath.lock().unwrap_or_else(PoisonError::into_inner);
        seen.resize(self.sockets.len(), Some(0));
        for (most, socket) in seen.iter_mut().zip(&self.sockets) {
            let info = sys::mptcp::info(socket.as_fd()).unwrap_or_default();
            *most = match (*most, info) {
                (Some(most), Some(info)) => Some(most.max(info.subflows)),
                _ => None,
            };
        }
    }

    fn multipath(&self) -> Option<MptcpCounts> {
        let seen = self.multipath.as_ref()?.lock();
        let seen = seen.unwrap_or_else(PoisonError::into_inner);
        let stayed = || seen.iter().flatten();
        Some(MptcpCounts {
            streams: u16::try_from(stayed().count()).unwrap_or(u16::MAX),
            subflows: stayed().map(|&n| u32::from(n)).sum(),
        })
    }

    /// What the sockets were, of the first stream, since all are set alike.
    fn describe(&self, result: &mut EndResult) {
        let Some(socket) = self.sockets.first() else {
            return;
        };
        result.addresses.clone_from(&self.addresses);
        result.mptcp = self.multipath();
        result.congestion = tcp::congestion(socket.as_fd()).unwrap_or_default();
        result.send_buffer = tcp::send_buffer(socket.as_fd()).unwrap_or_default();
        result.receive_buffer = tcp::receive_buffer(socket.as_fd()).unwrap_or_default();
    }
}

/// ACKs and messages take the same way back; a delayed or lost ACK comes within some RTOs (200 ms).
const ACK_PATIENCE: Duration = Duration::from_s(1);
const ACK_STEP: std::time::Duration = std::time::Duration::from_millis(1);

/// Payload of a full packet of Ethernet's 1500 bytes, with timestamps.
const SEGMENT_USUAL: u32 = 1_448;

/// The engine of a transfer over connected sockets, after the handshakes where it is over TLS.
///
/// # Errors
/// As [`Engine::prepare`]; `TimedOut` and `Interrupted` when handshakes take longer than `patience` or
/// are stopped; `InvalidData` when they fail.
pub(crate) fn prepare(
    role: Role,
    config: &Config,
    sockets: Vec<TcpStream>,
    side: Side,
    patience: Duration,
    stop: &Stop,
    shape: Shape,
) -> io::Result<Engine> {
    if config.transport != Transport::Tls {
        return Engine::prepare(role, config, sockets, shape);
    }
    let until = clock::monotonic() + patience;
    // All at once, so that many streams cost no more round trips than one.
    let sealed = thread::scope(|scope| {
        let begun: Vec<_> = sockets
            .iter()
            .map(|socket| {
                threads::scoped(scope, "gp-seal", move || {
                    shake_hands(socket, side, config.cipher, until, stop)
                })
            })
            .collect();
        let joined = begun.into_iter().map(|thread| {
            let panicked = |_| Err(io::Error::other("a handshake panicked"));
            thread.and_then(|thread| thread.join().unwrap_or_else(panicked))
        });
        joined.collect::<io::Result<Vec<_>>>()
    })?;
    Engine::prepare_sealed(role, config, sockets, shape, sealed)
}

/// Bytes that no link can compress.
pub(crate) fn payload(len: usize) -> Vec<u8> {
    let mut rng = Rng::new(0x676f_6f64_7075_7421);
    let mut bytes = vec![0; len];
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&rng.next_u64().to_ne_bytes()[..chunk.len()]);
    }
    bytes
}
