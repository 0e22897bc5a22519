//! Messages of one size between two programs: latency by ping-pong, rate by a window of messages.
//!
//! In a ping-pong one end sends a message, the other sends it back once all of it is there: half the
//! round trip is the latency, as `ib_send_lat` and its kin count it. For the rate the sender writes
//! messages, one call each, and never has more than a window of them that the receiver has not
//! confirmed with a byte each. Both directions at once are two connections.
//!
//! The measuring thread does what a bare program would: write, read, read the clock once, count. It
//! is woken by the socket alone; a second thread watches for the end and shuts the socket down.
//! Nagle's algorithm is off. Where [`MessageSpec::verbs`] says so, queue pairs take the place of the
//! connections ([`Verbs`]). Left out: threads are not pinned, and messages are not checked.

mod client;
mod server;
mod stamped;
mod verbs;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};
use sys::clock;
use sys::threads;
use units::{Duration, Histogram, Instant, Rate};

use crate::End;
pub use stamped::Stamped;
pub(crate) use verbs::{NoQueues, Queues};
pub use verbs::{Verbs, VerbsEnds, VerbsPort, VerbsQueue};

/// What is done with the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Each message comes back before the next one goes.
    #[default]
    PingPong,
    /// The client sends.
    Up,
    /// The client receives.
    Down,
    /// Both send at once, on a connection each.
    Both,
}

/// What to measure with messages; it travels as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageSpec {
    /// What is done with them.
    pub pattern: Pattern,
    /// Size of each, 1 B to 8 MiB.
    pub bytes: u32,
    /// Messages that may be unconfirmed, 1 to 4096; a ping-pong has one.
    pub window: u32,
    /// How long messages are sent, 10 ms to 24 h; the far end may allow less.
    pub duration_ns: u64,
    /// Start of that time that rates leave out, shorter than it; 0: they begin with the first byte and
    /// end with the last. Ends before it was there leave out nothing.
    #[serde(skip_serializing_if = "is_zero")]
    pub ramp_ns: u64,
    /// Most round trips that count; 0: as many as the time allows.
    pub count: u64,
    /// Ask the socket again and again instead of sleeping until something is there, at both ends: a
    /// CPU each, and no wake-up in the latency. Over verbs they always do.
    pub spin: bool,
    /// Mark of what both ends send, 0 to 63 (RFC 2474); the near end's is its client's. Ends before it
    /// was there mark nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<u8>,
    /// Round trips to take by the kernel's stamps as well, after the others, 0 for none; see [`Stamped`].
    /// The far end need not know.
    #[serde(skip)]
    pub stamped: u32,
    /// Queue pairs of this kind instead of TCP connections. A far end that does not tell of it would
    /// not see it here, and is not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verbs: Option<Verbs>,
    /// Which RDMA port of this host; the far end chooses its own.
    #[serde(skip)]
    pub rdma: sys::verbs::Choice,
}

/// What one end counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageCount {
    /// Whole messages that came in, those of the ramp included.
    pub messages: u64,
    /// Over verbs, messages handed over to be sent.
    #[serde(skip_serializing_if = "is_zero")]
    pub sent: u64,
    /// Payload that came in within `duration_ns`; ends before it was there do not tell.
    pub bytes: u64,
    /// The time that counts: without a ramp from the first byte in to the last, else from the ramp to
    /// the end of sending.
    pub duration_ns: u64,
    /// CPU time of this end's threads.
    pub cpu_ns: u64,
    /// What broke a connection, if anything did.
    pub error: Option<String>,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageOutcome {
    /// What was asked for.
    pub spec: MessageSpec,
    /// Round trips of a ping-pong, warm-up left out.
    pub round_trips: Histogram,
    /// From the first of these round trips to the end of the last: one begins where another ends.
    pub elapsed: Duration,
    /// Round trips that the kernel stamped, where they were asked for and can be had.
    pub stamped: Option<Stamped>,
    /// What the client received.
    pub near: MessageCount,
    /// What the server received.
    pub far: MessageCount,
    /// The RDMA port of this host, where messages went by verbs.
    pub verbs: Option<VerbsPort>,
    /// Stopped by the user.
    pub interrupted: bool,
}

/// What the tool itself adds to every round trip, measured just now on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overhead {
    /// One reading of the clock.
    pub clock_ns: f64,
    /// All that a round trip has beside its two system calls: clock, histogram, loop.
    pub round_ns: f64,
}

impl Default for MessageSpec {
    /// One byte to and fro for a second; a window that fills 10 Gb/s at 1 ms with 64 KiB messages.
    fn default() -> Self {
        Self {
            pattern: Pattern::PingPong,
            bytes: 1,
            window: 64,
            duration_ns: 1_000_000_000,
            ramp_ns: 0,
            count: 0,
            spin: false,
            dscp: None,
            stamped: 0,
            verbs: None,
            rdma: sys::verbs::Choice::default(),
        }
    }
}

impl MessageSpec {
    /// Says what is impossible about it, if anything.
    pub fn problem(&self) -> Option<String> {
        if self.bytes == 0 || self.bytes > MESSAGE_BYTES_MAX {
            return Some(format!(
                "messages of {} bytes; 1 B to 8 MiB work",
                self.bytes
            ));
        }
        if self.window == 0 || self.window > WINDOW_MAX {
            return Some(format!(
                "a window of {} messages; 1 to {WINDOW_MAX} work",
                self.window
            ));
        }
        let duration = Duration::from_ns(self.duration_ns);
        if duration < DURATION_MIN || duration > DURATION_MAX {
            return Some(format!("{duration} of messages; 10 ms to 24 h work"));
        }
        if self.ramp_ns >= self.duration_ns {
            let ramp = Duration::from_ns(self.ramp_ns);
            return Some(format!("a ramp of {ramp} leaves nothing of {duration}"));
        }
        None
    }

    /// Data connections that it takes.
    pub(crate) const fn connections(&self) -> u16 {
        match self.pattern {
            Pattern::Both => 2,
            _ => 1,
        }
    }

    /// Whether the client sends, on the connection of that number, and may so end it.
    const fn client_sends(&self, connection: u16) -> bool {
        match self.pattern {
            Pattern::PingPong | Pattern::Up => true,
            Pattern::Down => false,
            Pattern::Both => connection == 0,
        }
    }
}

impl MessageOutcome {
    /// Messages that the client and the server handed over and that did not come, where that is known: UC
    /// and UD lose what they cannot deliver.
    pub fn lost(&self) -> [u64; 2] {
        let lost =
            |sent: &MessageCount, came: &MessageCount| sent.sent.saturating_sub(came.messages);
        [lost(&self.near, &self.far), lost(&self.far, &self.near)]
    }
}

impl MessageCount {
    /// Payload a second, for messages of that size.
    pub fn rate(&self, bytes: u32) -> Rate {
        let total = match self.bytes {
            0 => self.messages.saturating_mul(u64::from(bytes)),
            counted => counted,
        };
        Rate::average(
            units::Bytes::new(total),
            Duration::from_ns(self.duration_ns),
        )
    }
}

impl Overhead {
    /// Measures it: the least of some rounds, so that an interruption does not count.
    pub fn measure() -> Self {
        let mut least = Self {
            clock_ns: f64::INFINITY,
            round_ns: f64::INFINITY,
        };
        let mut histogram = Histogram::new();
        for _ in 0..OVERHEAD_ROUNDS {
            let start = clock::monotonic();
            for _ in 0..OVERHEAD_CALLS {
                std::hint::black_box(clock::monotonic());
            }
            let clock_ns = clock::monotonic().saturating_since(start).as_ns();
            let begun = clock::monotonic();
            let mut last = begun;
            for _ in 0..OVERHEAD_CALLS {
                let now = clock::monotonic();
                histogram.record(now.saturating_since(last));
                last = now;
            }
            let round_ns = clock::monotonic().saturating_since(begun).as_ns();
            let each = |ns: u64| ns as f64 / f64::from(OVERHEAD_CALLS);
            least.clock_ns = least.clock_ns.min(each(clock_ns));
            least.round_ns = least.round_ns.min(each(round_ns));
        }
        std::hint::black_box(&histogram);
        least
    }
}

/// One connection's work in a thread of its own.
#[derive(Debug)]
struct Worker {
    task: Task,
    handle: Handle,
    /// Raised when the time of sending is over.
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<Worked>>,
}

/// What messages travel by.
#[derive(Debug)]
enum Means {
    Socket(TcpStream),
    Queue(Box<sys::verbs::Queue>),
}

/// What others have of a worker's means.
#[derive(Debug)]
enum Handle {
    Socket(Arc<TcpStream>),
    Queue(Arc<verbs::Word>),
}

/// What a worker brings back.
#[derive(Debug, Default)]
struct Worked {
    /// What came in; of a sender, nothing.
    count: MessageCount,
    round_trips: Option<Histogram>,
    elapsed: Duration,
    stamped: Option<Stamped>,
    /// Kept until the other end is done: it may still want an acknowledgement.
    queues: Vec<sys::verbs::Queue>,
}

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Ping,
    Echo,
    Send,
    Receive,
}

impl Worker {
    fn start(task: Task, means: Means, spec: &MessageSpec) -> io::Result<Self> {
        const NAME: &str = "gp-messages";
        let done = Arc::new(AtomicBool::new(false));
        let (spec, flag) = (spec.clone(), Arc::clone(&done));
        let (handle, thread) = match means {
            Means::Socket(socket) => {
                socket.set_nodelay(true)?;
                socket.set_nonblocking(spec.spin)?;
                socket.set_read_timeout(None)?;
                let socket = Arc::new(socket);
                let line = Line {
                    socket: Arc::clone(&socket),
                    spin: spec.spin,
                };
                let thread = threads::spawn(NAME, move || line.work(task, &spec, &flag))?;
                (Handle::Socket(socket), thread)
            }
            Means::Queue(mut queue) => {
                let word = Arc::new(verbs::Word::default());
                let heard = Arc::clone(&word);
                let thread = threads::spawn(NAME, move || {
                    let mut lane = verbs::Lane {
                        queue: &mut queue,
                        word: &heard,
                        done: &flag,
                        spec: &spec,
                    };
                    let worked = lane.work(task);
                    let queues = vec![*queue];
                    Worked { queues, ..worked }
                })?;
                (Handle::Queue(word), thread)
            }
        };
        Ok(Self {
            task,
            handle,
            done,
            thread: Some(thread),
        })
    }

    /// Ends the sending; what is on its way is waited for. A ping-pong ends by itself.
    fn finish_sending(&self) {
        if self.task == Task::Send {
            self.done.store(true, Ordering::Relaxed);
        }
    }

    /// Ends everything at once.
    fn abort(&self) {
        self.done.store(true, Ordering::Relaxed);
        match &self.handle {
            // Fails when the peer has closed already, which is as well.
            Handle::Socket(socket) => drop(socket.shutdown(Shutdown::Both)),
            Handle::Queue(word) => word.abort.store(true, Ordering::Relaxed),
        }
    }

    /// Over verbs, how many messages it handed over, once all of them have left.
    fn sent(&self) -> Option<u64> {
        let sends = matches!(self.task, Task::Ping | Task::Send);
        let Handle::Queue(word) = &self.handle else {
            return None;
        };
        let sent = word.sent.load(Ordering::Relaxed);
        (sends && sent != verbs::UNKNOWN).then_some(sent)
    }

    /// Over verbs, tells it how many messages the other end handed over.
    fn expect(&self, sent: u64) {
        if let (Task::Echo | Task::Receive, Handle::Queue(word)) = (self.task, &self.handle) {
            word.due.store(sent, Ordering::Relaxed);
        }
    }

    fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its end.
    fn join(mut self) -> Worked {
        let ended = self.thread.take().map(JoinHandle::join);
        ended.and_then(Result::ok).unwrap_or_else(|| Worked {
            count: MessageCount {
                error: Some("a measuring thread panicked".to_owned()),
                ..MessageCount::default()
            },
            ..Worked::default()
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.abort();
        }
    }
}

/// Starts what one end does on its connections, in the order of their numbers.
fn start(spec: &MessageSpec, means: Vec<Means>, end: End) -> io::Result<Vec<Worker>> {
    let numbered = means.into_iter().zip(0..);
    let started = numbered.map(|(means, number)| {
        let sends = spec.client_sends(number) == (end == End::Near);
        let task = match (spec.pattern, sends) {
            (Pattern::PingPong, true) => Task::Ping,
            (Pattern::PingPong, false) => Task::Echo,
            (_, true) => Task::Send,
            (_, false) => Task::Receive,
        };
        Worker::start(task, means, spec)
    });
    started.collect()
}

/// What an end says and hears of messages over verbs, which have no end of file.
#[derive(Debug, Default)]
struct Tidings {
    told: bool,
}

impl Tidings {
    /// How many messages this end handed over, once, as soon as that is known: one worker sends at most.
    fn news(&mut self, workers: &[Worker]) -> Option<u64> {
        let sent = workers.iter().find_map(Worker::sent);
        let sent = sent.filter(|_| !self.told)?;
        self.told = true;
        Some(sent)
    }

    /// What the other end says of its own.
    fn heard(packets: &[u64], workers: &[Worker]) {
        let sent = packets.first().copied().unwrap_or(0);
        workers.iter().for_each(|worker| worker.expect(sent));
    }
}

/// Ends workers and adds up what they did: what came in is one worker's.
fn sum(workers: Vec<Worker>) -> Worked {
    workers
        .iter()
        .filter(|w| !w.is_finished())
        .for_each(Worker::abort);
    let mut all = Worked::default();
    for worked in workers.into_iter().map(Worker::join) {
        let (count, more) = (&mut all.count, worked.count);
        count.messages += more.messages;
        count.sent += more.sent;
        count.bytes += more.bytes;
        count.duration_ns = count.duration_ns.max(more.duration_ns);
        count.cpu_ns += more.cpu_ns;
        count.error = count.error.take().or(more.error);
        all.elapsed = all.elapsed.max(worked.elapsed);
        all.round_trips = all.round_trips.or(worked.round_trips);
        all.stamped = all.stamped.or(worked.stamped);
        all.queues.extend(worked.queues);
    }
    all
}

/// A connection as the measuring thread sees it.
#[derive(Debug)]
struct Line {
    socket: Arc<TcpStream>,
    spin: bool,
}

impl Line {
    fn work(&self, task: Task, spec: &MessageSpec, done: &AtomicBool) -> Worked {
        let cpu = clock::thread_cpu();
        let mut worked = Worked::default();
        let ended = match task {
            Task::Ping => self.ping(spec, done, &mut worked),
            Task::Echo => self.echo(spec, &mut worked),
            Task::Send => self.send(spec, done),
            Task::Receive => self.receive(spec, &mut worked),
        };
        // Whoever waits for bytes at the other end is to learn that there are none.
        drop(self.socket.shutdown(Shutdown::Both));
        worked.count.cpu_ns = (clock::thread_cpu() - cpu).as_ns();
        worked.count.error = ended.err().map(|error| error.to_string());
        worked
    }

    /// Sends messages and waits for each to come back. The first tenth of the time does not count:
    /// windows open, caches fill.
    fn ping(&self, spec: &MessageSpec, done: &AtomicBool, worked: &mut Worked) -> io::Result<()> {
        let mut times = Histogram::new();
        let mut span = None;
        let ended = self.ping_until(spec, done, &mut times, &mut span);
        worked.elapsed = span.map_or(Duration::ZERO, |(begun, last)| last.saturating_since(begun));
        worked.round_trips = Some(times);
        if ended.is_ok() {
            worked.stamped = self.stamped(spec, done);
        }
        ended.and_then(|()| self.socket.shutdown(Shutdown::Write))
    }

    /// The loop that is measured: `span` is from the first round trip that counts to the last.
    fn ping_until(
        &self,
        spec: &MessageSpec,
        done: &AtomicBool,
        times: &mut Histogram,
        span: &mut Option<(Instant, Instant)>,
    ) -> io::Result<()> {
        let mut message = vec![FILL; size(spec.bytes)];
        let enough = match spec.count {
            0 => u64::MAX,
            n => n,
        };
        let mut last = clock::monotonic();
        let end = last + Duration::from_ns(spec.duration_ns);
        let counted = last + Duration::from_ns(spec.duration_ns / 10);
        while !done.load(Ordering::Relaxed) {
            self.write_all(&message)?;
            if !self.read_exact(&mut message)? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let now = clock::monotonic();
            if let Some((_, until)) = span {
                times.record(now.saturating_since(last));
                *until = now;
            } else if now >= counted {
                *span = Some((now, now));
            }
            last = now;
            // A path whose round trip is longer than the whole time still gets its one answer.
            if times.count() >= enough || now >= end && times.count() > 0 {
                break;
            }
        }
        Ok(())
    }

    /// Sends every message back, until there are no more.
    fn echo(&self, spec: &MessageSpec, worked: &mut Worked) -> io::Result<()> {
        let mut message = vec![0; size(spec.bytes)];
        while self.read_exact(&mut message)? {
            self.write_all(&message)?;
            worked.count.messages += 1;
        }
        Ok(())
    }

    /// Sends messages while the window allows, until the time is over and all are confirmed.
    fn send(&self, spec: &MessageSpec, done: &AtomicBool) -> io::Result<()> {
        let message = vec![FILL; size(spec.bytes)];
        let mut confirmations = [0; ACKS_BYTES];
        let mut open = 0_usize;
        while !done.load(Ordering::Relaxed) {
            self.write_all(&message)?;
            open += 1;
            while open >= size(spec.window) {
                match self.read_some(&mut confirmations)? {
                    0 => return Err(ErrorKind::UnexpectedEof.into()),
                    n => open = open.saturating_sub(n),
                }
            }
        }
        self.socket.shutdown(Shutdown::Write)?;
        while self.read_some(&mut confirmations)? > 0 {}
        Ok(())
    }

    /// Counts messages and confirms each with a byte, several at once where several came at once.
    /// With a ramp a stretch of fixed length counts, whatever falls into it: a window that is sent in
    /// bursts, one a round trip, would otherwise count with one burst more than it has pauses.
    fn receive(&self, spec: &MessageSpec, worked: &mut Worked) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        let confirmations = [FILL; ACKS_BYTES];
        let (mut bytes, mut confirmed) = (0_u64, 0_u64);
        let mut first = None;
        loop {
            let n = self.read_some(&mut buffer)?;
            if n == 0 {
                break;
            }
            let now = clock::monotonic();
            let start = *first.get_or_insert(now);
            bytes += n as u64;
            let count = &mut worked.count;
            count.messages = bytes / u64::from(spec.bytes);
            let since_ns = now.saturating_since(start).as_ns();
            match spec.ramp_ns {
                0 => (count.bytes, count.duration_ns) = (bytes, since_ns),
                ramp_ns if (ramp_ns..spec.duration_ns).contains(&since_ns) => {
                    count.bytes += n as u64;
                    count.duration_ns = spec.duration_ns - ramp_ns;
                }
                _ => {}
            }
            // At most a window of them is open, so that they always fit into the socket's buffer.
            while confirmed < count.messages {
                let due = usize::try_from(count.messages - confirmed).unwrap_or(ACKS_BYTES);
                let due = due.min(ACKS_BYTES);
                self.write_all(&confirmations[..due])?;
                confirmed += due as u64;
            }
        }
        Ok(())
    }

    /// Fills the buffer; false when the stream ends before its first byte.
    fn read_exact(&self, buffer: &mut [u8]) -> io::Result<bool> {
        let mut have = 0;
        while have < buffer.len() {
            match self.read_some(&mut buffer[have..])? {
                0 if have == 0 => return Ok(false),
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => have += n,
            }
        }
        Ok(true)
    }

    /// Reads what is there, at least a byte; 0 at the end of the stream.
    fn read_some(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match (&*self.socket).read(buffer) {
                Err(error) if self.again(&error) => std::hint::spin_loop(),
                read => return read,
            }
        }
    }

    fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match (&*self.socket).write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(error) if self.again(&error) => std::hint::spin_loop(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Spinning needs no end of its own: whoever ends a worker shuts its socket down, and a socket
    /// that is shut down does not say "would block".
    fn again(&self, error: &io::Error) -> bool {
        match error.kind() {
            ErrorKind::Interrupted => true,
            ErrorKind::WouldBlock => self.spin,
            _ => false,
        }
    }
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

fn size(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// Largest message, 2^23 bytes.
pub(crate) const MESSAGE_BYTES_MAX: u32 = 1 << 23;
/// Confirmations of a full window fit into any socket's buffer.
pub(crate) const WINDOW_MAX: u32 = 4096;
const DURATION_MIN: Duration = Duration::from_ms(10);
const DURATION_MAX: Duration = Duration::from_s(86_400);
const ACKS_BYTES: usize = 4096;
/// Several small messages in a call, and few calls for a large one.
const READ_BYTES: usize = 256 * 1024;
const FILL: u8 = 0x67;
const OVERHEAD_ROUNDS: u32 = 50;
const OVERHEAD_CALLS: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_on_both_sides() {
        let ok = |spec: MessageSpec| spec.problem().is_none();
        let base = MessageSpec::default;
        for (bytes, good) in [
            (0, false),
            (1, true),
            (1 << 23, true),
            ((1 << 23) + 1, false),
        ] {
            assert_eq!(ok(MessageSpec { bytes, ..base() }), good, "{bytes}");
        }
        for (window, good) in [(0, false), (1, true), (4096, true), (4097, false)] {
            assert_eq!(ok(MessageSpec { window, ..base() }), good, "{window}");
        }
        for (duration_ns, good) in [
            (9_999_999, false),
            (10_000_000, true),
            (86_400_000_000_000, true),
            (86_400_000_000_001, false),
        ] {
            let spec = MessageSpec {
                duration_ns,
                ..base()
            };
            assert_eq!(ok(spec), good, "{duration_ns}");
        }
        for (ramp_ns, good) in [(0, true), (999_999_999, true), (1_000_000_000, false)] {
            assert_eq!(ok(MessageSpec { ramp_ns, ..base() }), good, "{ramp_ns}");
        }
    }

    #[test]
    fn a_rate_is_of_the_bytes_that_count_and_of_whole_messages_where_an_old_end_tells_no_bytes() {
        let told = MessageCount {
            messages: 7,
            bytes: 1_500,
            duration_ns: 1_000_000_000,
            ..MessageCount::default()
        };
        assert_eq!(told.rate(1_000).as_bits_per_second(), 12_000);
        let old: MessageCount =
            serde_json::from_str(r#"{"messages":7,"duration_ns":1000000000}"#).unwrap();
        assert_eq!(old.rate(1_000).as_bits_per_second(), 56_000);
        let text = serde_json::to_string(&MessageSpec::default()).unwrap();
        assert!(!text.contains("ramp"), "{text}");
    }

    #[test]
    fn the_tools_own_part_is_finite_and_has_the_clock_in_it() {
        let overhead = Overhead::measure();
        assert!(overhead.clock_ns > 0.0 && overhead.clock_ns.is_finite());
        assert!(overhead.round_ns > 0.0 && overhead.round_ns.is_finite());
    }
}
