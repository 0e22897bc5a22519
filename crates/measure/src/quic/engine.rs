//! All QUIC connections of one end: a thread each, which does everything that its connection does, and
//! one sampler thread. Built like [`crate::engine`].
//!
//! A thread writes into QUIC or reads from it, encrypts or decrypts, acknowledges, keeps the timers and
//! talks to the socket; so its CPU time is what a stream costs. Payload is one shared block: QUIC takes
//! references to it, and copies when it makes packets.
//!
//! A sender closes the connection when it knows that everything arrived. Until it hears so a receiver that
//! has read the end goes on acknowledging; it does not close itself, since QUIC holds a close back where
//! the congestion window has no room. For the same reason a sender that gives up resets its stream.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes as Block;
use quinn_proto::{ConnectionError, Dir, Event, ReadError, StreamEvent, StreamId, WriteError};
use sys::clock;
use units::{Bytes, Duration, Instant};

use super::line::Arrived;
use super::{Line, Opening, QuicInfo, congestion, receive_window};
use crate::cost::Meter;
use crate::crew::Role;
use crate::crew::{self, Board, Crew, Ended, Rounds, Sampled, Used};
use crate::engine::payload;
use crate::outcome::{EndResult, Sample, SampleKind};
use crate::protocol::TOKEN_BYTES;
use crate::tls::Side;
use crate::transfer::Flow;
use crate::wait::TICK;
use crate::{Config, Reading, Stop};

/// All connections of one end. Dropping it aborts them and waits for their threads.
#[derive(Debug)]
pub(crate) struct QuicEngine {
    role: Role,
    shared: Arc<Shared>,
    config: Config,
    start: Vec<Sample>,
    crew: Crew<Shut, Sampled>,
}

#[derive(Debug)]
struct Shared {
    role: Role,
    streams: Vec<Stream>,
    /// Senders end their streams when it is raised: time is up.
    done: AtomicBool,
    /// The start mark has been set.
    going: AtomicBool,
    /// Senders give up what they hold.
    cut: AtomicBool,
    /// Everything ends at once.
    aborted: AtomicBool,
    board: Board<Handshakes>,
}

/// What a connection's thread shows to the others; alone on its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stream {
    bytes: AtomicU64,
    info: Mutex<QuicInfo>,
}

#[derive(Debug, Default)]
struct Handshakes {
    /// Those that were not finished.
    open: usize,
    /// Why the first that failed did.
    failed: Option<String>,
}

/// What a connection was in the end.
#[derive(Debug)]
struct Shut {
    send_window: Bytes,
    dropped: Option<u32>,
    addresses: Option<(SocketAddr, SocketAddr)>,
}

impl QuicEngine {
    /// Takes over connected sockets and starts the threads, which shake hands at once. Senders wait for
    /// [`QuicEngine::go`].
    ///
    /// # Errors
    /// What the kernel says of the sockets, and of threads.
    pub(crate) fn prepare(
        role: Role,
        config: &Config,
        sockets: Vec<UdpSocket>,
        side: Side,
        token: [u8; TOKEN_BYTES],
        silence: Duration,
    ) -> io::Result<Self> {
        let line = |(socket, stream)| {
            let opening = Opening {
                side,
                token,
                stream,
                silence,
            };
            Line::new(socket, config, &opening)
        };
        let lines = sockets.into_iter().zip(0..).map(line);
        let lines = lines.collect::<io::Result<Vec<_>>>()?;
        let handshakes = Handshakes {
            open: lines.len(),
            failed: None,
        };
        let shared = Arc::new(Shared {
            role,
            streams: lines.iter().map(|_| Stream::default()).collect(),
            done: AtomicBool::new(false),
            going: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            aborted: AtomicBool::new(false),
            board: Board::new(lines.len(), handshakes),
        });
        let mut engine = Self {
            role,
            start: shared.round(SampleKind::Start, Instant::ZERO),
            shared,
            config: config.clone(),
            crew: Crew::new(),
        };
        engine.launch(lines)?;
        Ok(engine)
    }

    /// Waits until all connections are there.
    ///
    /// # Errors
    /// `TimedOut` and `Interrupted` where that takes longer than `until` or is stopped, `InvalidData` with
    /// the reason where one failed.
    pub(crate) fn await_connected(&self, until: Instant, stop: &Stop) -> io::Result<()> {
        let mut state = self.shared.board.state();
        while state.more.open > 0 {
            if let Some(text) = &state.more.failed {
                return Err(io::Error::new(ErrorKind::InvalidData, text.clone()));
            }
            if stop.is_stopped() {
                return Err(ErrorKind::Interrupted.into());
            }
            if clock::monotonic() >= until {
                return Err(ErrorKind::TimedOut.into());
            }
            state = self.shared.board.wait(state, TICK);
        }
        Ok(())
    }

    fn launch(&mut self, lines: Vec<Line>) -> io::Result<()> {
        let block_bytes = usize::try_from(self.config.block_bytes).unwrap_or(usize::MAX);
        let block = match self.role {
            Role::Sender => Block::from(payload(block_bytes)),
            Role::Receiver => Block::new(),
        };
        for (stream, line) in lines.into_iter().enumerate() {
            let (shared, block) = (Arc::clone(&self.shared), block.clone());
            self.crew
                .carry(move || Pump::new(&shared, stream, line, block).run())?;
        }
        let (shared, config) = (Arc::clone(&self.shared), self.config.clone());
        self.crew.sample(move || shared.sample_until_end(&config))
    }
}

impl Flow for QuicEngine {
    fn bytes(&self) -> u64 {
        self.shared.streams.iter().map(Stream::count).sum()
    }

    fn elapsed(&self) -> Duration {
        self.shared.board.elapsed()
    }

    fn is_finished(&self) -> bool {
        self.shared.board.is_finished()
    }

    fn abort(&self) {
        self.shared.aborted.store(true, Ordering::Relaxed);
        self.shared.done.store(true, Ordering::Relaxed);
        self.shared.board.end();
    }

    fn reset(&self) {
        self.shared.cut.store(true, Ordering::Relaxed);
        self.shared.done.store(true, Ordering::Relaxed);
    }

    /// The start mark: senders begin, the clock of samples runs.
    fn go(&self) {
        self.shared.start();
    }

    /// The latest round of samples, once there is one.
    fn reading(&self) -> Option<Reading> {
        self.shared.board.state().latest
    }

    /// Collects what the threads found. Waits for them: call it when finished or aborted.
    fn finish(mut self) -> EndResult {
        let started = self.shared.board.state().started;
        let started = started.unwrap_or_else(clock::monotonic);
        let cut = self.shared.aborted.load(Ordering::Relaxed);
        let mut result = EndResult {
            start: started,
            congestion: congestion(&self.config).to_owned(),
            receive_buffer: receive_window(&self.config),
            ..EndResult::default()
        };
        let mut dropped = Some(0);
        let (busiest, sampled) = self.crew.collect(&mut result, |result, shut| {
            dropped = dropped.zip(shut.dropped).map(|(sum, n)| sum + u64::from(n));
            result.send_buffer = result.send_buffer.max(shut.send_window);
            result.addresses.extend(shut.addresses);
        });
        result.socket_dropped = dropped;
        result.samples = std::mem::take(&mut self.start);
        sampled.unwrap_or_default().join(busiest, &mut result);
        if self.role == Role::Sender && !cut {
            let last = self.shared.round(SampleKind::Drained, started);
            result.samples.extend(last);
        }
        if let Some(cost) = &mut result.cost {
            cost.weigh_memory(result.duration);
        }
        result.stream_bytes = self.shared.streams.iter().map(Stream::count).collect();
        result.bytes = result.stream_bytes.iter().sum();
        result
    }
}

impl Drop for QuicEngine {
    fn drop(&mut self) {
        if self.crew.is_there() {
            self.abort();
        }
        self.crew.dismiss();
    }
}

/// Moves one connection.
struct Pump<'a> {
    shared: &'a Shared,
    stream: &'a Stream,
    line: Line,
    /// The whole block, and what of the one in hand QUIC has not taken.
    block: Block,
    rest: Block,
    /// QUIC's stream, once it is there.
    id: Option<StreamId>,
    /// The end was written, or read.
    ended_at: Option<Instant>,
    /// The peer has everything.
    confirmed: bool,
    /// What was left was given up.
    cut: bool,
    /// Counts it out; nothing once its stream has ended.
    leave: Option<Leave<'a>>,
    total: u64,
    error: Option<String>,
    shown: Option<std::time::Instant>,
}

impl<'a> Pump<'a> {
    fn new(shared: &'a Shared, stream: usize, line: Line, block: Block) -> Self {
        Self {
            shared,
            stream: &shared.streams[stream],
            line,
            rest: block.clone(),
            block,
            id: None,
            ended_at: None,
            confirmed: false,
            cut: false,
            leave: Some(Leave {
                shared,
                connected: false,
                error: None,
                _counted: shared.board.leave(),
            }),
            total: 0,
            error: None,
            shown: None,
        }
    }

    fn run(mut self) -> Ended<Shut> {
        let mut before = None;
        loop {
            let turn = self.turn();
            if before.is_none() && self.shared.going.load(Ordering::Relaxed) {
                before = Some(Used::now());
            }
            let waited = match turn {
                Ok(Turn::Moved) => continue,
                Ok(Turn::Over) => break,
                Ok(Turn::Idle) => self.line.wait(self.patience()).map_err(|e| e.to_string()),
                Ok(Turn::Nap(time)) => {
                    std::thread::sleep(time.to_std());
                    continue;
                }
                Err(text) => Err(text),
            };
            if let Err(text) = waited {
                self.error = Some(text);
                break;
            }
        }
        let now = std::time::Instant::now();
        let aborted = self.shared.aborted.load(Ordering::Relaxed);
        self.line
            .close(now, if aborted { CUT_SHORT } else { ALL_WELL });
        self.show(now, true);
        if let Some(leave) = &mut self.leave {
            leave.error.clone_from(&self.error);
        }
        let used = before.map(Used::since).unwrap_or_default();
        let socket = self.line.socket();
        Ended {
            used,
            at: self.ended_at.unwrap_or_else(clock::monotonic),
            error: self.error,
            more: Shut {
                send_window: self.line.send_window(),
                dropped: self.line.drops(),
                addresses: socket.local_addr().ok().zip(socket.peer_addr().ok()),
            },
        }
    }

    /// Everything that is to be done now.
    fn turn(&mut self) -> Result<Turn, String> {
        if self.shared.aborted.load(Ordering::Relaxed) {
            return Ok(Turn::Over);
        }
        let arrived = self.line.receive().map_err(|e| e.to_string())?;
        let now = std::time::Instant::now();
        self.line.tend(now);
        while let Some(event) = self.line.poll() {
            match event {
                Event::Connected => {
                    if let Some(leave) = &mut self.leave {
                        leave.on_connected();
                    }
                }
                Event::ConnectionLost { reason } => return self.lost(&reason),
                Event::Stream(StreamEvent::Finished { .. }) => self.confirmed = true,
                _ => {}
            }
        }
        match self.shared.role {
            Role::Sender if self.shared.going.load(Ordering::Relaxed) => self.feed()?,
            Role::Receiver if arrived.bytes > 0 && self.ended_at.is_none() => self.take()?,
            _ => {}
        }
        self.stream.bytes.store(self.total, Ordering::Relaxed);
        let more = self.line.transmit(now);
        self.show(now, false);
        let over = match self.shared.role {
            Role::Sender => self.confirmed,
            Role::Receiver => self.has_lingered(now),
        };
        Ok(match over {
            true => Turn::Over,
            false if arrived.more || more => Turn::Moved,
            false => self.nap(&arrived),
        })
    }

    /// True when a receiver that has read the end has waited long enough for its sender to hear of it.
    /// It counts as finished from the end on.
    fn has_lingered(&mut self, now: std::time::Instant) -> bool {
        let Some(ended_at) = self.ended_at else {
            return false;
        };
        if self.leave.is_some() {
            self.show(now, true);
            self.leave = None;
        }
        let rtt = Duration::from_us(self.stream.info().rtt_us);
        let most = LINGER + rtt.saturating_mul(3);
        clock::monotonic().saturating_since(ended_at) >= most
    }

    /// A peer that has nothing more to say closes; all else breaks the stream.
    fn lost(&self, reason: &ConnectionError) -> Result<Turn, String> {
        match reason {
            ConnectionError::ApplicationClosed(closed)
                if self.ended_at.is_some() && closed.error_code == ALL_WELL.into() =>
            {
                Ok(Turn::Over)
            }
            _ if self.cut => Ok(Turn::Over),
            other => Err(other.to_string()),
        }
    }

    /// Writes until QUIC takes no more, or ends the stream.
    fn feed(&mut self) -> Result<(), String> {
        if self.ended_at.is_some() && !self.shared.cut.load(Ordering::Relaxed) || self.cut {
            return Ok(());
        }
        self.line.fit_send_window();
        let Some(connection) = self.line.connection() else {
            return Ok(());
        };
        if self.id.is_none() {
            self.id = connection.streams().open(Dir::Uni);
        }
        let Some(id) = self.id else { return Ok(()) };
        let mut stream = connection.send_stream(id);
        while !self.shared.done.load(Ordering::Relaxed) {
            if self.rest.is_empty() {
                self.rest = self.block.clone();
            }
            match stream.write_chunks(std::slice::from_mut(&mut self.rest)) {
                Ok(written) => self.total += written.bytes as u64,
                Err(WriteError::Blocked) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
        if self.shared.cut.load(Ordering::Relaxed) {
            self.cut = true;
            // Gone already where the peer has it all.
            let _ = stream.reset(CUT_SHORT.into());
            return Ok(());
        }
        self.ended_at = Some(clock::monotonic());
        stream.finish().map_err(|error| error.to_string())
    }

    /// Reads what is there in order.
    fn take(&mut self) -> Result<(), String> {
        let Some(connection) = self.line.connection() else {
            return Ok(());
        };
        if self.id.is_none() {
            self.id = connection.streams().accept(Dir::Uni);
        }
        let Some(id) = self.id else { return Ok(()) };
        let mut stream = connection.recv_stream(id);
        let mut chunks = stream.read(true).map_err(|error| error.to_string())?;
        let before = self.total;
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => self.total += chunk.bytes.len() as u64,
                Ok(None) => {
                    self.ended_at = Some(clock::monotonic());
                    break;
                }
                Err(ReadError::Blocked) => break,
                Err(error) => return Err(error.to_string()),
            }
        }
        // Whether the window has to be told is for the next packets to find out.
        let _ = chunks.finalize();
        if before == 0 && self.total > 0 {
            // As over TCP, the first byte starts the clock too.
            self.shared.start();
        }
        Ok(())
    }

    /// Lets others see the connection as it is, now and then.
    fn show(&mut self, now: std::time::Instant, always: bool) {
        let fresh = |at: std::time::Instant| now.saturating_duration_since(at) < SHOW_EVERY;
        if !always && self.shown.is_some_and(fresh) {
            return;
        }
        self.shown = Some(now);
        let stats = self.line.connection().map(|connection| connection.stats());
        if let Some(stats) = stats {
            *self.stream.info() = QuicInfo::from(&stats);
        }
    }

    /// A receiver of packets one by one is better off with some at once: they cost it a wake-up and an
    /// acknowledgement, and the sender another wake-up. So it sleeps a small part of the round trip, as
    /// interfaces hold interrupts off, unless much came already.
    fn nap(&self, arrived: &Arrived) -> Turn {
        let rtt = self.stream.info().min_rtt_us;
        let time = Duration::from_us(rtt / NAPS_PER_RTT).min(NAP_MAX);
        let few = (1..MUCH_BYTES).contains(&arrived.bytes);
        match self.shared.role {
            Role::Receiver if few && self.ended_at.is_none() && time >= NAP_MIN => Turn::Nap(time),
            _ => Turn::Idle,
        }
    }

    /// How long it may sleep: whoever waits for the start mark is to see it.
    fn patience(&self) -> Duration {
        match self.shared.role {
            Role::Sender if !self.shared.going.load(Ordering::Relaxed) => START_STEP,
            _ => TICK,
        }
    }
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// There may be more to do.
    Moved,
    /// Nothing to do now.
    Idle,
    /// Nothing to do for so long.
    Nap(Duration),
    Over,
}

impl Stream {
    fn count(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn info(&self) -> MutexGuard<'_, QuicInfo> {
        self.info.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn start(&self) {
        self.board.start();
        self.going.store(true, Ordering::Relaxed);
    }

    /// The sampler thread: a round of samples each interval, at the end of the ramp and at the
    /// nominal end, where a sender is told to stop.
    fn sample_until_end(&self, config: &Config) -> Sampled {
        let Some(started) = self.board.await_start() else {
            return Sampled::default();
        };
        let meter = Meter::start();
        let read = |rounds: &mut Rounds<Sample>| {
            let round = self.round(SampleKind::Periodic, started);
            self.board.state().latest = Reading::of(self.role == Role::Sender, &round);
            rounds.push(&round);
        };
        let streams = self.streams.len();
        let mut samples = self.board.sample(self.role, config, streams, started, read);
        if self.role == Role::Sender {
            self.done.store(true, Ordering::Relaxed);
        }
        samples.extend(self.round(SampleKind::End, started));
        Sampled {
            samples,
            cost: Some(meter.stop()),
        }
    }

    fn round(&self, kind: SampleKind, started: Instant) -> Vec<Sample> {
        let read = |(stream, number): (&Stream, u16)| Sample {
            stream: number,
            kind,
            t: match kind {
                SampleKind::Start => Duration::ZERO,
                _ => clock::monotonic().saturating_since(started),
            },
            app_bytes: stream.count(),
            quic: Some(*stream.info()),
            ..Sample::default()
        };
        self.streams.iter().zip(0..).map(read).collect()
    }
}

/// Counts a connection in and out, even when its thread panics.
struct Leave<'a> {
    shared: &'a Shared,
    connected: bool,
    error: Option<String>,
    _counted: crew::Leave<'a, Handshakes>,
}

impl Leave<'_> {
    fn on_connected(&mut self) {
        if !self.connected {
            self.connected = true;
            self.shared.board.tell(|handshakes| handshakes.open -= 1);
        }
    }
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if !self.connected {
            let text = self.error.take();
            let text = text.unwrap_or_else(|| "it ended before it began".to_owned());
            self.shared.board.tell(|handshakes| {
                handshakes.failed.get_or_insert(text);
            });
        }
    }
}

/// Codes that a connection is closed with.
const ALL_WELL: u32 = 0;
const CUT_SHORT: u32 = 1;
/// How long a receiver answers a sender that did not hear its last acknowledgement, beside some round
/// trips: several times what QUIC puts acknowledgements off (RFC 9000, section 18.2).
const LINGER: Duration = Duration::from_ms(250);
/// What a nap adds to a round trip: less than one per cent.
const NAPS_PER_RTT: u64 = 128;
/// Below it a sleep takes longer than it says (prctl(2), PR_SET_TIMERSLACK).
const NAP_MIN: Duration = Duration::from_us(50);
/// A sixth of what a socket of the kernel's default size holds at 1 Gb/s.
const NAP_MAX: Duration = Duration::from_us(200);
/// Of the size that the kernel joins at most.
const MUCH_BYTES: usize = 64 << 10;
/// Readings are at most this old.
const SHOW_EVERY: std::time::Duration = std::time::Duration::from_millis(1);
/// A millisecond of a start is a ten thousandth of the usual ten seconds.
const START_STEP: Duration = Duration::from_ms(1);
