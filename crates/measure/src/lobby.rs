//! Connections that have not said yet what they are: one loop for all of them, no thread for any.
//!
//! There is room for [`NEWCOMERS_MAX`], or for a quarter of the descriptors where those are few. When it is full, whoever has the most connections in it loses
//! the oldest of them: a flood from one address drops its own, and an honest client elsewhere stays.
//! Only connections that said something are looked at again, so that many silent ones cost nothing.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use sys::clock;
use tracing::{debug, info, warn};
use units::{Duration, Instant};

use crate::control::farewell;
use crate::iperf3::message::{COOKIE_BYTES, Cookie, HeardCookie, hear_cookie};
use crate::message::{self, DATA_OPENING_BYTES, GREETING_BYTES, Heard, Kind};
use crate::protocol::{PROTOCOL, TOKEN_BYTES};
use crate::tally::{Reason, Tally};
use crate::wait::{TICK, timespec};

/// A session token, as data connections name it.
pub(crate) type Token = [u8; TOKEN_BYTES];

/// A connection that has not said yet what it is, or waits for a session.
#[derive(Debug)]
pub(crate) struct Newcomer {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    /// Its place in the order of arrival.
    pub(crate) number: u64,
    pub(crate) since: Instant,
    bytes: [u8; DATA_OPENING_BYTES],
    len: usize,
    /// It is known what it is, and it waits for its turn.
    known: bool,
    /// There may be something to read.
    ready: bool,
}

/// What a newcomer turned out to be.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Not all of its opening has come.
    Wait,
    Control,
    Data(Token, u16),
    OtherVersion(u16),
    /// A connection of iperf3's.
    Iperf3(Cookie),
    Foreign,
    /// Closed or broken.
    Gone,
}

/// All newcomers, in the order of arrival.
#[derive(Debug)]
pub(crate) struct Lobby {
    waiting: Vec<Newcomer>,
    /// Those that said all at once.
    told: Vec<(Newcomer, Verdict)>,
    arrived: u64,
    room: usize,
    silence: Duration,
    dropped: Dropped,
    tally: Arc<Tally>,
}

/// Newcomers dropped since the log last told, which it does once a second at most.
#[derive(Debug, Default)]
struct Dropped {
    count: u64,
    next: Instant,
}

impl Lobby {
    /// An empty one, which drops who has not said its opening within `silence`.
    pub(crate) fn new(silence: Duration, tally: Arc<Tally>) -> Self {
        let quarter = usize::try_from(sys::host::descriptor_limit() / 4).unwrap_or(usize::MAX);
        Self {
            waiting: Vec::new(),
            told: Vec::new(),
            arrived: 0,
            room: quarter.clamp(1, NEWCOMERS_MAX),
            silence,
            dropped: Dropped::default(),
            tally,
        }
    }

    /// Waits up to a tick for a new connection or for more of a newcomer's bytes.
    pub(crate) fn wait(&mut self, listeners: &[TcpListener]) -> io::Result<()> {
        let doors = listeners.iter().map(|l| PollFd::new(l, PollFlags::IN));
        let guests = self.waiting.iter().map(|n| {
            // What follows the opening is not ours to read; it must not wake us either.
            let what = if n.known {
                PollFlags::empty()
            } else {
                PollFlags::IN
            };
            PollFd::new(&n.stream, what)
        });
        let mut fds: Vec<PollFd<'_>> = doors.chain(guests).collect();
        match poll(&mut fds, Some(&timespec(TICK))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let told = fds[listeners.len()..].iter();
        let ready: Vec<bool> = told.map(|fd| !fd.revents().is_empty()).collect();
        for (newcomer, ready) in self.waiting.iter_mut().zip(ready) {
            newcomer.ready = ready;
        }
        Ok(())
    }

    /// Lets in who stands at the door, as many as there is room for in one go.
    pub(crate) fn accept(&mut self, listener: &TcpListener) {
        for _ in 0..self.room {
            let (stream, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    // EMFILE, or a connection that was reset in the queue: a newcomer less makes
                    // room in the former case, a moment's wait keeps us from spinning.
                    debug!(%error, "accept failed");
                    if out_of_descriptors(&error) {
                        self.make_room();
                    }
                    std::thread::sleep(ACCEPT_PAUSE);
                    return;
                }
            };
            if stream.set_nonblocking(true).is_ok() {
                self.welcome(stream, peer);
            }
        }
    }

    fn welcome(&mut self, stream: TcpStream, peer: SocketAddr) {
        self.arrived += 1;
        let mut newcomer = Newcomer {
            stream,
            peer,
            number: self.arrived,
            since: clock::monotonic(),
            bytes: [0; DATA_OPENING_BYTES],
            len: 0,
            known: false,
            ready: false,
        };
        match newcomer.judge() {
            Verdict::Wait => {
                if self.waiting.len() >= self.room {
                    self.make_room();
                }
                self.waiting.push(newcomer);
            }
            verdict => self.told.push((newcomer, verdict)),
        }
    }

    /// Drops the oldest newcomer of whoever has the most. An honest client's opening is here within
    /// a round trip: the oldest is the least likely to be one.
    fn make_room(&mut self) {
        let sources: Vec<IpAddr> = self.waiting.iter().map(|n| source_of(n.peer)).collect();
        if let Some(place) = heaviest(&sources) {
            let peer = self.waiting.remove(place).peer;
            self.tally.refused(Reason::Crowd);
            self.dropped.count += 1;
            let now = clock::monotonic();
            if now >= self.dropped.next {
                let count = std::mem::take(&mut self.dropped.count);
                self.dropped.next = now + LOG_INTERVAL;
                warn!(%peer, "dropped {count} of too many connections that say nothing");
            }
        }
    }

    /// Those of whom it is known what they are; the others go on waiting, up to the silence limit.
    pub(crate) fn judge(&mut self) -> Vec<(Newcomer, Verdict)> {
        let now = clock::monotonic();
        let mut judged = std::mem::take(&mut self.told);
        for mut newcomer in std::mem::take(&mut self.waiting) {
            let verdict = match newcomer.ready || newcomer.known {
                true => newcomer.judge(),
                false => Verdict::Wait,
            };
            match verdict {
                Verdict::Wait if now < newcomer.since + self.silence => self.waiting.push(newcomer),
                verdict => judged.push((newcomer, verdict)),
            }
        }
        // Data connections are numbered, and iperf3's streams have no other number.
        judged.sort_by_key(|(newcomer, _)| newcomer.number);
        judged
    }

    /// Lets one that is known wait for its turn.
    pub(crate) fn keep(&mut self, newcomer: Newcomer) {
        if self.waiting.len() >= self.room {
            self.make_room();
        }
        self.waiting.push(Newcomer {
            known: true,
            ..newcomer
        });
    }

    /// Ends one that is none of ours.
    pub(crate) fn dismiss(&self, newcomer: &Newcomer, verdict: &Verdict) {
        let peer = newcomer.peer;
        match verdict {
            Verdict::OtherVersion(theirs) => {
                self.tally.refused(Reason::Version);
                info!(%peer, "speaks protocol {theirs}, we speak {PROTOCOL}: turned away");
                farewell(&newcomer.stream, &message::greeting(Kind::Server));
            }
            Verdict::Foreign => {
                self.tally.refused(Reason::Foreign);
                let seen = &newcomer.bytes[..newcomer.len];
                let what = message::describe_foreign(seen);
                info!(%peer, "is not goodput, it {what}: turned away");
                let http = what.starts_with("speaks HTTP");
                let line = message::greeting(Kind::Server);
                farewell(&newcomer.stream, if http { HTTP_ANSWER } else { &line });
            }
            _ => {
                self.tally.refused(Reason::Silent);
                debug!(%peer, "dropped: silent, slow or gone");
            }
        }
    }
}

impl Newcomer {
    /// Reads what has come, never beyond the opening: what follows belongs to others.
    fn judge(&mut self) -> Verdict {
        loop {
            let seen = &self.bytes[..self.len];
            let want = match message::hear(seen) {
                Heard::More => GREETING_BYTES,
                Heard::Greeting(Kind::Control) => return Verdict::Control,
                Heard::Greeting(Kind::Data) if self.len == DATA_OPENING_BYTES => {
                    let (token, stream) = message::parse_data_opening(&self.bytes);
                    return Verdict::Data(token, stream);
                }
                Heard::Greeting(Kind::Data) => DATA_OPENING_BYTES,
                Heard::Greeting(Kind::Server) => return Verdict::Foreign,
                Heard::Foreign => match hear_cookie(seen) {
                    HeardCookie::More => COOKIE_BYTES,
                    HeardCookie::Whole(cookie) => return Verdict::Iperf3(cookie),
                    HeardCookie::Foreign => return Verdict::Foreign,
                },
                Heard::OtherVersion(number) => return Verdict::OtherVersion(number),
            };
            match self.stream.read(&mut self.bytes[self.len..want]) {
                Ok(0) => return Verdict::Gone,
                Ok(n) => self.len += n,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Verdict::Wait,
                    ErrorKind::Interrupted => {}
                    _ => return Verdict::Gone,
                },
            }
        }
    }
}

/// Whom a connection counts for: its address, of IPv6 the network of 64 bits, which one host may
/// take all addresses of (RFC 4291, section 2.5.1).
pub(crate) fn source_of(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        ip @ IpAddr::V4(_) => ip,
    }
}

/// Where the first of the most frequent stands; among equally frequent ones the earliest.
fn heaviest(sources: &[IpAddr]) -> Option<usize> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for &source in sources {
        *counts.entry(source).or_default() += 1;
    }
    let most = counts.values().max()?;
    sources.iter().position(|source| counts[source] == *most)
}

fn out_of_descriptors(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE]
        .iter()
        .any(|errno| number == Some(errno.raw_os_error()))
}

/// Connections at once that have not said what they are: two clients' worth of streams.
const NEWCOMERS_MAX: usize = 256;
/// Short enough not to delay a stop, long enough not to spin when file descriptors run out.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);
/// A flood is told in one line a second, not in one for each connection.
const LOG_INTERVAL: Duration = Duration::from_s(1);
const HTTP_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Connection: close\r\n\r\nThis port speaks the goodput measurement protocol, not HTTP.\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn who_has_the_most_newcomers_loses_the_oldest() {
        let (honest, flood) = (ip("192.0.2.1"), ip("192.0.2.2"));
        assert_eq!(heaviest(&[]), None);
        assert_eq!(heaviest(&[honest]), Some(0));
        assert_eq!(heaviest(&[honest, flood]), Some(0));
        assert_eq!(heaviest(&[honest, flood, flood]), Some(1));
        assert_eq!(heaviest(&[flood, honest, honest, flood, flood]), Some(0));
    }

    #[test]
    fn an_ipv6_network_counts_as_one_and_a_mapped_address_as_what_it_maps() {
        let of = |text: &str| source_of(SocketAddr::new(ip(text), 1));
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
