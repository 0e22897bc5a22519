//! STAMP over UDP (RFC 8762, unauthenticated): a session-sender and a stateful session-reflector.
//!
//! Kernel stamps are used where a stamp can still be written when it is known: departure and arrival
//! at the sender, arrival at the reflector. The answer's departure must stand in the answer, so it is
//! read by the program just before sending; what comes after is in the reflector's error estimate.
//!
//! The reflector answers a packet with one of the same length to where it came from, if it has the 44
//! bytes of a STAMP packet and is not the reflector's own answer come back (two reflectors that a
//! forged packet set upon each other would never end). It keeps a count for each session, at most
//! 1024. Left out: the authenticated mode, control by YANG, and answering from the address asked where
//! a host of several was bound to all of them.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};

use rustix::event::PollFlags;
use sys::clock;
use sys::stamp::{Stamped, StampedSocket};
use tracing::{debug, info};
use units::{Duration, Instant, LogLimit};
use wire::stamp::{
    ErrorEstimate, Format, PACKET_BYTES, ReflectorPacket, SenderPacket, Timestamp, mark_extensions,
};

use crate::target::resolve;
use crate::transfer::in_time;
use crate::wait::{TICK, wait_for};
use crate::{Approach, MeasureError, Stop};

/// The port that IANA keeps for STAMP; binding it takes a privilege.
pub const STAMP_PORT: u16 = 862;

/// What a session-sender does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probing {
    /// Probes to send, 1 to 1,000,000.
    pub count: u32,
    /// Time between two, 100 us to 1 h.
    pub interval: Duration,
    /// How long answers are waited for after the last probe.
    pub wait: Duration,
    /// Bytes of a probe's payload, 44 to 8192: padding after the 44 of STAMP.
    pub bytes: u16,
    /// How times are written.
    pub format: Format,
}

/// What a session-sender saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// Where to.
    pub addr: Option<SocketAddr>,
    /// Probes sent.
    pub sent: u64,
    /// Probes whose departure and arrival the kernel stamped.
    pub kernel_stamped: u64,
    /// Answers in the order of their arrival, repeated ones too.
    pub replies: Vec<Answer>,
    /// Datagrams that answer nothing that was asked.
    pub strangers: u64,
    /// Whether this end's clock follows an outer source, by the kernel's word.
    pub near_synchronised: bool,
    /// Whether the reflector says so of its own.
    pub far_synchronised: bool,
    /// Stopped by the user.
    pub interrupted: bool,
}

/// One answer; times are nanoseconds since 1970 by the clock of whoever took them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The probe's number.
    pub sender_sequence: u32,
    /// The reflector's number.
    pub reflector_sequence: u32,
    /// Probe left.
    pub t1_ns: u64,
    /// Probe reached the reflector.
    pub t2_ns: u64,
    /// Answer left there.
    pub t3_ns: u64,
    /// Answer came.
    pub t4_ns: u64,
    /// What either clock's stamps may be off, by their own word, added up.
    pub error_ns: u64,
    /// Hops that the probe had left at the reflector.
    pub hops_left: u8,
}

impl Default for Probing {
    /// Ten seconds of a hundred probes a second.
    fn default() -> Self {
        Self {
            count: 1_000,
            interval: Duration::from_ms(10),
            wait: Duration::from_s(1),
            bytes: PROBE_BYTES_MIN,
            format: Format::Ntp,
        }
    }
}

impl Probing {
    /// Says what is impossible about it, if anything.
    pub fn problem(&self) -> Option<String> {
        if self.count == 0 || self.count > COUNT_MAX {
            return Some(format!("{} probes; 1 to {COUNT_MAX} work", self.count));
        }
        if self.interval < INTERVAL_MIN || self.interval > INTERVAL_MAX {
            let asked = self.interval;
            return Some(format!("a probe every {asked}; 100 us to 1 h work"));
        }
        if self.bytes < PROBE_BYTES_MIN || self.bytes > PROBE_BYTES_MAX {
            return Some(format!("probes of {} bytes; 44 to 8192 work", self.bytes));
        }
        None
    }
}

/// Sends probes to a reflector, as [`sys::endpoint::Endpoint`] reads it; port 862 by default. When `stop` is raised, what came so far comes back.
///
/// # Errors
///
/// [`MeasureError::Config`], [`MeasureError::Target`], [`MeasureError::Resolve`], and
/// [`MeasureError::Local`] or [`MeasureError::Unreachable`] when this host cannot send. That nobody
/// answers is no error.
pub fn probe(target: &str, probing: &Probing, stop: &Stop) -> Result<Probed, MeasureError> {
    probe_by(&Approach::default(), target, probing, stop)
}

/// As [`probe`], from an address, by a device, with a mark. How the reflector marks its answers is its
/// own affair (RFC 8972, 4.4, is not asked for). Probes carry no proof: there is no token.
///
/// # Errors
///
/// As [`probe`]; [`MeasureError::Config`] of a token too.
pub fn probe_by(
    approach: &Approach,
    target: &str,
    probing: &Probing,
    stop: &Stop,
) -> Result<Probed, MeasureError> {
    approach.check()?;
    if let Some(problem) = probing.problem() {
        return Err(MeasureError::Config(problem));
    }
    if approach.secret.is_some() {
        let text = "STAMP probes prove nothing: leave the token out";
        return Err(MeasureError::Config(text.to_owned()));
    }
    let addrs = approach.reachable(resolve(target, STAMP_PORT)?)?;
    let addr = *addrs.first().ok_or_else(|| MeasureError::Target {
        target: target.to_owned(),
        problem: "its name has no address".to_owned(),
    })?;
    let fail = |(what, source): (&'static str, io::Error)| match source.kind() {
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            MeasureError::Unreachable { addr, source }
        }
        _ => MeasureError::Local { what, source },
    };
    let socket = approach.prepared_datagrams(addr).map_err(fail)?;
    let fail = |source| fail(("send probes", source));
    let mut sender = Sender::open(socket, addr, probing).map_err(fail)?;
    sender.run(probing, stop).map_err(fail)?;
    Ok(sender.probed)
}

/// A session-sender under way.
struct Sender {
    socket: StampedSocket,
    session: u16,
    /// What stands in each probe, which its answer must repeat.
    written: Vec<Timestamp>,
    /// The kernel's word on each departure.
    departed: Vec<Option<u64>>,
    /// As read just before sending.
    read_ns: Vec<u64>,
    /// Whether an answer's arrival was stamped by the kernel, one for each of `replies`.
    stamped: Vec<bool>,
    format: Format,
    error: ErrorEstimate,
    probed: Probed,
}

impl Sender {
    fn open(socket: UdpSocket, addr: SocketAddr, probing: &Probing) -> io::Result<Self> {
        let synchronised = clock::is_synchronised();
        Ok(Self {
            // A new port is a new session anyway; the number tells answers of an earlier one apart.
            session: u16::try_from((clock::realtime_ns() >> 10) & 0xffff).unwrap_or(1) | 1,
            socket: StampedSocket::new(socket)?,
            written: Vec::new(),
            departed: Vec::new(),
            read_ns: Vec::new(),
            stamped: Vec::new(),
            format: probing.format,
            error: ErrorEstimate::new(SENDER_ERROR_NS, synchronised, probing.format),
            probed: Probed {
                addr: Some(addr),
                near_synchronised: synchronised,
                ..Probed::default()
            },
        })
    }

    fn run(&mut self, probing: &Probing, stop: &Stop) -> io::Result<()> {
        let mut datagram = vec![0; usize::from(probing.bytes)];
        let start = clock::monotonic();
        for sequence in 0..probing.count {
            let due = start + probing.interval.saturating_mul(u64::from(sequence));
            self.receive_until(due, stop)?;
            if stop.is_stopped() {
                self.probed.interrupted = true;
                break;
            }
            self.send(sequence, &mut datagram)?;
        }
        let end = in_time(probing.wait);
        while self.is_waiting() && clock::monotonic() < end && !stop.is_stopped() {
            self.receive_until(end.min(in_time(TICK)), stop)?;
        }
        self.settle();
        Ok(())
    }

    fn is_waiting(&self) -> bool {
        (self.probed.replies.len() as u64) < self.probed.sent
    }

    fn send(&mut self, sequence: u32, datagram: &mut [u8]) -> io::Result<()> {
        let read_ns = clock::realtime_ns();
        let timestamp = Timestamp::from_unix_ns(read_ns, self.format);
        let packet = SenderPacket {
            sequence,
            timestamp,
            error: self.error,
            session: self.session,
        };
        packet.emit(datagram).map_err(io::Error::other)?;
        extend(&mut datagram[PACKET_BYTES..]);
        let mut sent = self.socket.socket().send(datagram);
        if is_refused(&sent) {
            // The word on an earlier probe: nobody listens there, or nobody did. This one has not left.
            sent = self.socket.socket().send(datagram);
        }
        match sent {
            Ok(_) => {}
            // Nobody listens, or the queue is full: a probe that is lost.
            Err(error) if is_lost(&error) => {}
            Err(error) => return Err(error),
        }
        self.written.push(timestamp);
        self.read_ns.push(read_ns);
        self.departed.push(None);
        self.probed.sent += 1;
        Ok(())
    }

    /// Takes in what comes until `until`.
    fn receive_until(&mut self, until: Instant, stop: &Stop) -> io::Result<()> {
        loop {
            self.drain()?;
            let left = until.saturating_since(clock::monotonic());
            if left == Duration::ZERO || stop.is_stopped() {
                return Ok(());
            }
            wait_for(self.socket.socket(), PollFlags::IN, left.min(TICK))?;
        }
    }

    fn drain(&mut self) -> io::Result<()> {
        while let Some(departure) = self.socket.departure()? {
            let slot = usize::try_from(departure.id)
                .ok()
                .and_then(|id| self.departed.get_mut(id));
            if let Some(slot) = slot {
                *slot = Some(departure.stamp_realtime_ns);
            }
        }
        let mut buffer = vec![0; usize::from(PROBE_BYTES_MAX)];
        loop {
            match self.socket.receive(&mut buffer) {
                Ok(stamped) => self.take(&buffer[..stamped.len.min(buffer.len())], &stamped),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => return Ok(()),
                    // Nobody listens there now; somebody may later.
                    ErrorKind::ConnectionRefused => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// Keeps an answer to something that was asked.
    fn take(&mut self, datagram: &[u8], stamped: &Stamped) {
        let now_ns = clock::realtime_ns();
        let answer = self.answer_of(
            datagram,
            stamped.stamp_realtime_ns.unwrap_or(now_ns),
            now_ns,
        );
        // Twice as many as asked: beyond that somebody floods.
        let room = self.probed.replies.len() < 2 * self.written.len();
        match answer {
            Some((answer, error)) if room => {
                self.probed.far_synchronised = error.is_synchronised();
                self.probed.replies.push(answer);
                self.stamped.push(stamped.stamp_realtime_ns.is_some());
            }
            _ => self.probed.strangers += 1,
        }
    }

    fn answer_of(
        &self,
        datagram: &[u8],
        t4_ns: u64,
        now_ns: u64,
    ) -> Option<(Answer, ErrorEstimate)> {
        let packet = ReflectorPacket::parse(datagram).ok()?;
        let number = usize::try_from(packet.sender_sequence).ok()?;
        // A reflector of before RFC 8972 leaves zero where the session's number stands.
        let ours = packet.session == self.session || packet.session == 0;
        if !ours || self.written.get(number) != Some(&packet.sender_timestamp) {
            return None;
        }
        let time = |stamp: Timestamp| stamp.to_unix_ns(packet.error.format(), now_ns);
        let far = packet.error.error_ns().unwrap_or(FAR_ERROR_NS);
        let answer = Answer {
            sender_sequence: packet.sender_sequence,
            reflector_sequence: packet.sequence,
            t1_ns: *self.read_ns.get(number)?,
            t2_ns: time(packet.received)?,
            t3_ns: time(packet.timestamp)?,
            t4_ns,
            error_ns: far.saturating_add(SENDER_ERROR_NS),
            hops_left: packet.sender_ttl,
        };
        Some((answer, packet.error))
    }

    /// Puts the kernel's departures in place of the program's.
    fn settle(&mut self) {
        for (answer, &arrival) in self.probed.replies.iter_mut().zip(&self.stamped) {
            let number = usize::try_from(answer.sender_sequence).unwrap_or(usize::MAX);
            let departed = self.departed.get(number).copied().flatten();
            // A number that a failed call took would shift them: a departure is after its reading.
            let plausible = departed
                .filter(|&ns| (answer.t1_ns..answer.t1_ns + DEPARTURE_NS_MAX).contains(&ns));
            if let Some(ns) = plausible {
                answer.t1_ns = ns;
                self.probed.kernel_stamped += u64::from(arrival);
            }
        }
    }
}

/// A bound reflector, not yet serving.
#[derive(Debug)]
pub struct Reflector {
    socket: StampedSocket,
    addr: SocketAddr,
}

/// What a reflector remembers of its sessions.
#[derive(Debug)]
struct Sessions {
    counts: HashMap<(SocketAddr, u16), Count>,
    limit: LogLimit,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            counts: HashMap::new(),
            limit: LogLimit::new(LINES_PER_SECOND),
        }
    }
}

/// A session of a reflector.
#[derive(Clone, Copy, Debug)]
struct Count {
    next: u32,
    last: Instant,
}

impl Reflector {
    /// Binds an address; port 0 lets the kernel choose.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Bind`] when the address cannot be had.
    pub fn bind(addr: SocketAddr) -> Result<Self, MeasureError> {
        let bound = || -> io::Result<Self> {
            let socket = UdpSocket::bind(addr)?;
            socket.set_nonblocking(true)?;
            let addr = socket.local_addr()?;
            let socket = StampedSocket::arrivals_only(socket)?;
            socket.tell_hops()?;
            Ok(Self { socket, addr })
        };
        bound().map_err(|source| MeasureError::Bind { addr, source })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Reflects until `stop`.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Local`] when the socket breaks.
    pub fn serve(&self, stop: &Stop) -> Result<(), MeasureError> {
        let synchronised = clock::is_synchronised();
        let mut sessions = Sessions::default();
        let mut buffer = vec![0; usize::from(u16::MAX)];
        let local = |source| MeasureError::Local {
            what: "reflect probes",
            source,
        };
        while !stop.is_stopped() {
            wait_for(self.socket.socket(), PollFlags::IN, TICK).map_err(local)?;
            // So many at once, then the stop flag again.
            for _ in 0..BURST {
                match self.socket.receive(&mut buffer) {
                    Ok(stamped) => {
                        let len = stamped.len.min(buffer.len());
                        self.reflect(&mut buffer[..len], &stamped, synchronised, &mut sessions);
                    }
                    Err(error) => match error.kind() {
                        ErrorKind::WouldBlock | ErrorKind::Interrupted => break,
                        ErrorKind::ConnectionRefused => {}
                        _ => return Err(local(error)),
                    },
                }
            }
        }
        Ok(())
    }

    fn reflect(
        &self,
        datagram: &mut [u8],
        stamped: &Stamped,
        synchronised: bool,
        sessions: &mut Sessions,
    ) {
        let (now, now_ns) = (clock::monotonic(), clock::realtime_ns());
        let (Some(from), Ok(packet)) = (stamped.from, SenderPacket::parse(datagram)) else {
            return;
        };
        if from.port() == 0 || is_own_answer(datagram, now_ns) {
            sessions.log(
                now,
                |more| debug!(%from, "not reflected: an answer of our own{more}"),
            );
            return;
        }
        let format = packet.error.format();
        let sequence = sessions.count((from, packet.session), now);
        mark_extensions(&mut datagram[PACKET_BYTES..]);
        let received = stamped.stamp_realtime_ns.unwrap_or(now_ns);
        let mut answer = ReflectorPacket {
            sequence,
            timestamp: Timestamp::default(),
            error: ErrorEstimate::new(REFLECTOR_ERROR_NS, synchronised, format),
            session: packet.session,
            received: Timestamp::from_unix_ns(received, format),
            sender_sequence: packet.sequence,
            sender_timestamp: packet.timestamp,
            sender_error: packet.error,
            sender_ttl: stamped.hops_left.unwrap_or(u8::MAX),
        };
        answer.timestamp = Timestamp::from_unix_ns(clock::realtime_ns(), format);
        if answer.emit(datagram).is_ok()
            && let Err(error) = self.socket.socket().send_to(datagram, from)
        {
            sessions.log(
                now,
                |more| debug!(%from, %error, "an answer could not be sent{more}"),
            );
        }
    }
}

impl Sessions {
    /// The next number of a session. Where there is no room for a new one, the longest silent one goes.
    fn count(&mut self, key: (SocketAddr, u16), now: Instant) -> u32 {
        if !self.counts.contains_key(&key) {
            if self.counts.len() >= SESSIONS_MAX {
                let oldest = self.counts.iter().min_by_key(|(_, count)| count.last);
                if let Some(oldest) = oldest.map(|(key, _)| *key) {
                    self.counts.remove(&oldest);
                }
            }
            let (from, session) = key;
            self.log(now, |more| info!(%from, session, "STAMP session{more}"));
        }
        let new = Count { next: 0, last: now };
        let count = self.counts.entry(key).or_insert(new);
        // RFC 8762, 4.3: a session that was silent for long is another one.
        if now.saturating_since(count.last) > SESSION_SILENCE {
            count.next = 0;
        }
        let number = count.next;
        (count.next, count.last) = (number.wrapping_add(1), now);
        number
    }

    /// Writes a line of what anybody can cause who sends datagrams, from forged addresses too.
    fn log(&mut self, now: Instant, write: impl FnOnce(String)) {
        if let Some(more) = self.limit.ending(now, "lines") {
            write(more);
        }
    }
}

/// Whether where an answer repeats its question's stamp there is a time that we wrote a moment ago. A
/// sender has zeros or padding there.
fn is_own_answer(datagram: &[u8], now_ns: u64) -> bool {
    let Ok(packet) = ReflectorPacket::parse(datagram) else {
        return false;
    };
    let written = packet
        .sender_timestamp
        .to_unix_ns(packet.sender_error.format(), now_ns);
    written.is_some_and(|ns| ns.abs_diff(now_ns) < OWN_NS)
}

/// Fills what follows a probe with one extension of padding (RFC 8972, 4.1); below four bytes nothing
/// fits.
fn extend(rest: &mut [u8]) {
    let Some(len) = rest
        .len()
        .checked_sub(4)
        .and_then(|n| u16::try_from(n).ok())
    else {
        return;
    };
    // U: not known, until the reflector says otherwise.
    rest[..2].copy_from_slice(&[0x80, 1]);
    rest[2..4].copy_from_slice(&len.to_be_bytes());
}

fn is_refused(sent: &io::Result<usize>) -> bool {
    matches!(sent, Err(error) if error.kind() == ErrorKind::ConnectionRefused)
}

fn is_lost(error: &io::Error) -> bool {
    let kind = error.kind();
    kind == ErrorKind::ConnectionRefused
        || kind == ErrorKind::WouldBlock
        || error.raw_os_error() == Some(ENOBUFS)
}

const COUNT_MAX: u32 = 1_000_000;
const INTERVAL_MIN: Duration = Duration::from_us(100);
const INTERVAL_MAX: Duration = Duration::from_s(3600);
const PROBE_BYTES_MIN: u16 = 44;
const _: () = assert!(PROBE_BYTES_MIN as usize == PACKET_BYTES);
const PROBE_BYTES_MAX: u16 = 8192;
/// A kernel stamp of either direction, against the moment on the wire: well below this on the idle
/// paths whose probes count.
const SENDER_ERROR_NS: u64 = 2_000;
/// Reading the clock, the system call and the way to the driver take 5 to 15 us; a longer stop in
/// between makes a long round trip, which the estimate leaves out.
const REFLECTOR_ERROR_NS: u64 = 20_000;
/// Of a reflector that does not say: a millisecond, as coarse as software stamps of routers are.
const FAR_ERROR_NS: u64 = 1_000_000;
/// A departure later than this after its reading is another one's.
const DEPARTURE_NS_MAX: u64 = 1_000_000_000;
/// Longer than a loop between two reflectors takes.
const OWN_NS: u64 = 60_000_000_000;
const SESSIONS_MAX: usize = 1024;
/// Of the log: enough to see who probes.
const LINES_PER_SECOND: u32 = 10;
/// RFC 5357, 4.2: REFWAIT.
const SESSION_SILENCE: Duration = Duration::from_s(900);
const BURST: u32 = 64;
/// errno(3) on Linux.
const ENOBUFS: i32 = 105;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_probing_hold_on_both_sides() {
        let ok = |probing: Probing| probing.problem().is_none();
        let base = Probing::default;
        for (count, good) in [
            (0, false),
            (1, true),
            (COUNT_MAX, true),
            (COUNT_MAX + 1, false),
        ] {
            assert_eq!(ok(Probing { count, ..base() }), good, "{count}");
        }
        for (bytes, good) in [(43, false), (44, true), (8192, true), (8193, false)] {
            assert_eq!(ok(Probing { bytes, ..base() }), good, "{bytes}");
        }
        for (us, good) in [
            (99, false),
            (100, true),
            (3_600_000_000, true),
            (3_600_000_001, false),
        ] {
            let interval = Duration::from_us(us);
            assert_eq!(ok(Probing { interval, ..base() }), good, "{us}");
        }
    }

    #[test]
    fn sessions_have_counts_of_their_own_and_a_limit() {
        let mut sessions = Sessions::default();
        let mut count = |port: u16, session| {
            let addr = SocketAddr::from(([192, 0, 2, 1], port));
            let number = sessions.count((addr, session), clock::monotonic());
            (number, sessions.counts.len())
        };
        assert_eq!(count(1, 0), (0, 1));
        assert_eq!(count(1, 0), (1, 1));
        assert_eq!(count(1, 7), (0, 2));
        for port in 2..5_000 {
            assert_eq!(count(port, 0).0, 0);
        }
        assert_eq!(count(4_999, 0), (1, SESSIONS_MAX));
    }

    /// Counts what a log would hold.
    struct Lines(std::sync::Arc<std::sync::atomic::AtomicU32>);

    impl tracing::Subscriber for Lines {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, _: &tracing::Event<'_>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn forged_sessions_leave_a_few_lines_a_second() {
        let lines = std::sync::Arc::default();
        let log = Lines(std::sync::Arc::clone(&lines));
        let written = tracing::subscriber::with_default(log, || {
            let mut sessions = Sessions::default();
            for n in 0..6_000_u32 {
                let addr = SocketAddr::from((n.to_be_bytes(), 862));
                // Three seconds of them.
                let now = Instant::ZERO + Duration::from_us(u64::from(n) * 500);
                sessions.count((addr, 0), now);
            }
            lines.load(std::sync::atomic::Ordering::Relaxed)
        });
        assert_eq!(written, 3 * LINES_PER_SECOND);
    }

    #[test]
    fn our_own_answer_is_known_and_a_senders_padding_is_not() {
        let now_ns = 1_795_000_000_000_000_000;
        let mut bytes = [0; PACKET_BYTES];
        assert!(!is_own_answer(&bytes, now_ns));
        for (age_ns, own) in [(0, true), (OWN_NS - 1_000, true), (OWN_NS + 1_000, false)] {
            let answer = ReflectorPacket {
                sender_timestamp: Timestamp::from_unix_ns(now_ns - age_ns, Format::Ntp),
                ..ReflectorPacket::default()
            };
            answer.emit(&mut bytes).unwrap();
            assert_eq!(is_own_answer(&bytes, now_ns), own, "{age_ns}");
        }
    }
}
