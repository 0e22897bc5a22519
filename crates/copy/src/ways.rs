//! Ways to the far side: over which of its addresses, or to which of its hosts, a new connection goes.
//!
//! The way that carries fewest is taken. One that failed is left alone for a while, twice as long each time, and its
//! connections go over the others.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::link::{Socket, Which};
use crate::meeting::Dial;

/// One way to the far side.
pub struct Way {
    name: String,
    dial: Dial,
    is_for_blocks_only: bool,
    near: Near,
    datagrams: Datagrams,
}

/// How datagrams go by a way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Datagrams {
    /// None do.
    pub(crate) is_closed: bool,
    /// The address that they leave from; the kernel's choice where none is said.
    pub(crate) from: Option<IpAddr>,
    /// Where to; where connections of TCP led last, if it is not said.
    pub(crate) to: Option<SocketAddr>,
}

/// What this host knows of a way before anybody answers there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Near {
    /// Bytes of payload in a full segment with time stamps, by the MTU of the route out; `None` where nobody looked, and to
    /// this host itself.
    pub segment: Option<u64>,
    /// Bytes that a send buffer grows to at most (net.ipv4.tcp_wmem); `None` where nobody looked.
    pub send_buffer: Option<u64>,
}

/// What IP, TCP and its time stamps take of a packet.
const HEADERS_V4: u32 = 52;
const HEADERS_V6: u32 = 72;

impl Near {
    /// As the namespace of the calling thread has it. Nothing is sent.
    pub fn towards(to: SocketAddr) -> Self {
        let (any, headers): (SocketAddr, _) = match to {
            SocketAddr::V4(_) => ((Ipv4Addr::UNSPECIFIED, 0).into(), HEADERS_V4),
            SocketAddr::V6(_) => ((Ipv6Addr::UNSPECIFIED, 0).into(), HEADERS_V6),
        };
        let mtu = || {
            let socket = UdpSocket::bind(any)?;
            socket.connect(to)?;
            sys::tcp::path_mtu(socket.as_fd())
        };
        let mtu = match to.ip().is_loopback() {
            true => None,
            false => mtu().ok(),
        };
        Self {
            segment: mtu.map(|mtu| mtu.saturating_sub(headers).into()),
            send_buffer: send_buffer(),
        }
    }
}

/// What a send buffer of the calling thread's namespace grows to at most, in bytes.
pub(crate) fn send_buffer() -> Option<u64> {
    sys::host::tcp_mem_triplet("tcp_wmem").map(|[_, _, most]| most)
}

impl Way {
    /// A way that `dial` connects by; its name is for the user.
    pub fn new(name: impl Into<String>, dial: Dial) -> Self {
        Self {
            name: name.into(),
            dial,
            is_for_blocks_only: false,
            near: Near::default(),
            datagrams: Datagrams::default(),
        }
    }

    /// Datagrams go there, and leave from this address; otherwise they follow its connections of TCP.
    #[must_use]
    pub fn with_datagrams(mut self, from: Option<IpAddr>, to: Option<SocketAddr>) -> Self {
        (self.datagrams.from, self.datagrams.to) = (from, to);
        self
    }

    /// Whoever is there has no port for datagrams.
    #[must_use]
    pub fn without_datagrams(mut self) -> Self {
        self.datagrams.is_closed = true;
        self
    }

    /// With what is known of it beforehand.
    #[must_use]
    pub fn with_near(mut self, near: Near) -> Self {
        self.near = near;
        self
    }

    /// Messages do not go this way: who is there takes blocks only.
    #[must_use]
    pub fn for_blocks_only(mut self) -> Self {
        self.is_for_blocks_only = true;
        self
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Way")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What a way carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The way's name.
    pub name: String,
    /// Bytes of blocks that were sent, those sent again included; of a destination, that arrived.
    pub bytes: u64,
    /// How often it could not be taken.
    pub failures: u64,
}

/// How long a way that failed is left alone at first, and at most.
const HOLD_LEAST: Duration = Duration::from_secs(2);
const HOLD_MOST: Duration = Duration::from_secs(60);
/// Words for the user that nobody fetched, at most.
const NEWS_MOST: usize = 64;

/// All ways, and what is known of each.
#[derive(Debug)]
pub(crate) struct Ways {
    all: Vec<Way>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    known: Vec<Known>,
    /// Which way each link takes, or took last.
    taken: BTreeMap<Which, usize>,
    news: Vec<String>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    /// Not taken before, unless all are held.
    held: Option<Instant>,
    /// In a row.
    failures: u32,
    all_failures: u64,
    bytes: u64,
    /// Where its connections of TCP led last.
    peer: Option<SocketAddr>,
}

impl Ways {
    /// With no way at all, nothing is ever reached.
    pub(crate) fn of(all: Vec<Way>) -> Self {
        let known = vec![Known::default(); all.len()];
        let state = Mutex::new(State {
            known,
            ..State::default()
        });
        Self { all, state }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Whether some lead to who takes blocks only.
    pub(crate) fn has_hosts(&self) -> bool {
        self.all.iter().any(|way| way.is_for_blocks_only)
    }

    /// What is known beforehand of the way that is taken first.
    pub(crate) fn near(&self) -> Near {
        self.all.first().map(|way| way.near).unwrap_or_default()
    }

    /// The way that is best for a link now, by its number; the link takes it.
    pub(crate) fn choose(&self, which: Which) -> io::Result<usize> {
        let taken = self.take(which, Instant::now());
        taken.ok_or_else(|| io::Error::other("no way to the far side"))
    }

    /// Connects by a way.
    pub(crate) fn dial(&self, number: usize) -> io::Result<Socket> {
        let socket = (self.all[number].dial)()?;
        if let Socket::Tcp(tcp) = &socket
            && let Ok(peer) = tcp.peer_addr()
        {
            self.lock().known[number].peer = Some(peer);
        }
        Ok(socket)
    }

    /// How datagrams go by a way, as far as known now.
    pub(crate) fn datagrams(&self, number: usize) -> Datagrams {
        let stated = self.all[number].datagrams;
        Datagrams {
            to: self.lock().known[number].peer.or(stated.to),
            ..stated
        }
    }

    /// The way by which the other side was reached last, of those that datagrams go by; `None` before any was.
    pub(crate) fn reached(&self) -> Option<usize> {
        let state = self.lock();
        (0..self.all.len()).find(|number| {
            state.known[*number].peer.is_some() && !self.all[*number].datagrams.is_closed
        })
    }

    /// Has the user know something of a way, where there are several.
    pub(crate) fn tell(&self, number: usize, what: &str) {
        let mut state = self.lock();
        if self.all.len() > 1 && state.news.len() < NEWS_MOST {
            let word = format!("{}: {what}", self.all[number].name);
            state.news.push(word);
        }
    }

    /// Which way a link takes from now on.
    fn take(&self, which: Which, now: Instant) -> Option<usize> {
        let mut state = self.lock();
        state.taken.remove(&which);
        let fits = |number: &usize| self.may_take(which, *number);
        let best = (0..self.all.len()).filter(fits).min_by_key(|number| {
            let held = state.known[*number].held.filter(|until| *until > now);
            (held, state.load(*number), *number)
        })?;
        state.taken.insert(which, best);
        Some(best)
    }

    /// A link's connection came to stand, or did not.
    pub(crate) fn came(&self, which: Which, failure: Option<&io::Error>) {
        self.came_at(which, failure, Instant::now());
    }

    fn came_at(&self, which: Which, failure: Option<&io::Error>, now: Instant) {
        let mut state = self.lock();
        let Some(number) = state.taken.get(&which).copied() else {
            return;
        };
        let way = &mut state.known[number];
        let name = &self.all[number].name;
        let word = match failure {
            None => {
                let is_back = way.failures > 0;
                (way.failures, way.held) = (0, None);
                is_back.then(|| format!("{name} answers again"))
            }
            // Others that were on their way when it was found out say nothing new.
            Some(_) if way.held.is_some_and(|until| until > now) => {
                way.all_failures += 1;
                None
            }
            Some(error) => {
                let hold = HOLD_LEAST.saturating_mul(1 << way.failures.min(8));
                way.held = Some(now + hold.min(HOLD_MOST));
                way.failures = way.failures.saturating_add(1);
                way.all_failures += 1;
                (way.failures == 1).then(|| format!("{name}: {error}: the others carry its share"))
            }
        };
        if let Some(word) = word
            && self.all.len() > 1
            && state.news.len() < NEWS_MOST
        {
            state.news.push(word);
        }
    }

    /// Whether no way works that a link may take.
    pub(crate) fn all_failed(&self, which: Which) -> bool {
        let state = self.lock();
        (0..self.all.len())
            .filter(|number| self.may_take(which, *number))
            .all(|number| state.known[number].failures > 0)
    }

    fn may_take(&self, which: Which, number: usize) -> bool {
        matches!(which, Which::Blocks(_)) || !self.all[number].is_for_blocks_only
    }

    /// A link that another way should carry: one that failed may be taken again and has two fewer than this link's.
    pub(crate) fn to_move(&self) -> Option<Which> {
        self.to_move_at(Instant::now())
    }

    fn to_move_at(&self, now: Instant) -> Option<Which> {
        let state = self.lock();
        let is_due = |way: &Known| way.failures > 0 && way.held.is_none_or(|until| until <= now);
        let empty = (0..self.all.len())
            .filter(|number| is_due(&state.known[*number]))
            .map(|number| state.load(number))
            .min()?;
        let full = (0..self.all.len()).max_by_key(|number| state.load(*number))?;
        if state.load(full) < empty + 2 {
            return None;
        }
        let of_full = state.taken.iter().filter(|(_, number)| **number == full);
        let mut blocks = of_full.filter(|(which, _)| matches!(which, Which::Blocks(_)));
        blocks.next_back().map(|(which, _)| *which)
    }

    /// So many bytes of blocks went over a link.
    pub(crate) fn carried(&self, which: Which, bytes: u64) {
        let mut state = self.lock();
        if let Some(number) = state.taken.get(&which).copied() {
            state.known[number].bytes += bytes;
        }
    }

    /// What each way carried.
    pub(crate) fn all_carried(&self) -> Vec<Carried> {
        let state = self.lock();
        let known = self.all.iter().zip(&state.known);
        known
            .map(|(way, known)| Carried {
                name: way.name.clone(),
                bytes: known.bytes,
                failures: known.all_failures,
            })
            .collect()
    }

    /// What the user is to know and was not told yet.
    pub(crate) fn news(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().news)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Links of blocks that go a way.
    fn load(&self, way: usize) -> usize {
        let taken = self.taken.iter().filter(|(_, number)| **number == way);
        taken
            .filter(|(which, _)| matches!(which, Which::Blocks(_)))
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(names: &[&str]) -> Ways {
        let way = |name: &&str| {
            let refuse = || Err(io::Error::from(io::ErrorKind::ConnectionRefused));
            Way::new(*name, Box::new(refuse))
        };
        Ways::of(names.iter().map(way).collect())
    }

    fn refused() -> io::Error {
        io::ErrorKind::ConnectionRefused.into()
    }

    #[test]
    fn links_go_over_all_ways_in_turn() {
        let ways = ways(&["a", "b", "c"]);
        let now = Instant::now();
        assert_eq!(ways.take(Which::FromSource, now), Some(0));
        let taken: Vec<_> = (0..7)
            .map(|n| ways.take(Which::Blocks(n), now).unwrap())
            .collect();
        assert_eq!(taken, [0, 1, 2, 0, 1, 2, 0]);
        // One that comes again takes the place that it left.
        assert_eq!(ways.take(Which::Blocks(4), now), Some(1));
        ways.carried(Which::Blocks(4), 7);
        ways.carried(Which::Blocks(1), 3);
        let bytes: Vec<_> = ways.all_carried().iter().map(|way| way.bytes).collect();
        assert_eq!(bytes, [0, 10, 0]);
    }

    #[test]
    fn a_way_that_failed_is_left_alone_for_a_while_and_told_of_once() {
        let ways = ways(&["a", "b"]);
        let now = Instant::now();
        let which = Which::Blocks(0);
        assert_eq!(ways.take(which, now), Some(0));
        ways.came_at(which, Some(&refused()), now);
        assert_eq!(ways.take(which, now), Some(1));
        ways.came_at(which, None, now);
        assert_eq!(ways.take(Which::Blocks(1), now), Some(1));
        assert!(!ways.all_failed(which));
        // Nothing is moved before the time is over.
        assert_eq!(ways.to_move_at(now), None);
        let later = now + HOLD_LEAST;
        assert_eq!(ways.to_move_at(later), Some(Which::Blocks(1)));
        assert_eq!(ways.take(Which::Blocks(1), later), Some(0));
        ways.came_at(Which::Blocks(1), Some(&refused()), later);
        assert_eq!(ways.take(Which::Blocks(1), later), Some(1));
        // Twice as long.
        assert_eq!(ways.to_move_at(later + HOLD_LEAST), None);
        let last = later + HOLD_LEAST * 2;
        assert_eq!(ways.to_move_at(last), Some(Which::Blocks(1)));
        assert_eq!(ways.take(Which::Blocks(1), last), Some(0));
        ways.came_at(Which::Blocks(1), None, last);
        assert_eq!(ways.to_move_at(last), None);
        let news = ways.news();
        assert_eq!(news.len(), 2, "{news:?}");
        assert!(news[0].starts_with("a: ") && news[1] == "a answers again");
        assert!(ways.news().is_empty());
    }

    #[test]
    fn links_that_fail_together_are_one_failure() {
        let ways = ways(&["a", "b"]);
        let now = Instant::now();
        for n in 0..16 {
            ways.take(Which::Blocks(n), now);
        }
        for n in 0..16 {
            if n % 2 == 0 {
                ways.came_at(Which::Blocks(n), Some(&refused()), now);
                assert_eq!(ways.take(Which::Blocks(n), now), Some(1));
            }
        }
        assert_eq!(ways.all_carried()[0].failures, 8);
        let later = now + HOLD_LEAST;
        assert!(ways.to_move_at(later).is_some());
        assert_eq!(ways.take(Which::Blocks(0), later), Some(0));
    }

    #[test]
    fn messages_go_to_those_who_take_them_only() {
        let way = |name| {
            let refuse = || Err(io::Error::from(io::ErrorKind::ConnectionRefused));
            Way::new(name, Box::new(refuse))
        };
        let ways = Ways::of(vec![way("helper").for_blocks_only(), way("leader")]);
        let now = Instant::now();
        assert_eq!(ways.take(Which::FromSource, now), Some(1));
        ways.came_at(Which::FromSource, Some(&refused()), now);
        assert_eq!(ways.take(Which::FromSource, now), Some(1));
        assert_eq!(ways.take(Which::Blocks(0), now), Some(0));
    }

    #[test]
    fn datagrams_go_where_connections_led_or_where_it_was_said() {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 7));
        let way = |name| Way::new(name, Box::new(|| Err(refused())));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        let dial = move || std::net::TcpStream::connect(there).map(Socket::Tcp);
        let ways = Ways::of(vec![
            way("said").with_datagrams(Some(at.ip()), Some(at)),
            way("closed").without_datagrams(),
            Way::new("found", Box::new(dial)),
        ]);
        let said = Datagrams {
            is_closed: false,
            from: Some(at.ip()),
            to: Some(at),
        };
        assert_eq!(ways.datagrams(0), said);
        assert!(ways.datagrams(1).is_closed);
        assert_eq!((ways.datagrams(2).to, ways.reached()), (None, None));
        ways.dial(2).unwrap();
        assert_eq!(ways.datagrams(2).to, Some(there));
        assert_eq!(ways.reached(), Some(2));
    }

    #[test]
    fn of_oneself_no_segment_is_known_and_a_send_buffer_is() {
        let near = Near::towards((Ipv4Addr::LOCALHOST, 9).into());
        assert_eq!(near.segment, None);
        assert!(near.send_buffer.is_some_and(|bytes| bytes >= 4_096));
        let way = Way::new("a", Box::new(|| Err(refused()))).with_near(near);
        assert_eq!(Ways::of(vec![way]).near(), near);
        assert_eq!(Ways::of(Vec::new()).near(), Near::default());
    }

    #[test]
    fn a_single_way_is_tried_for_ever_and_makes_no_news() {
        let ways = ways(&["a"]);
        let now = Instant::now();
        for _ in 0..100 {
            assert_eq!(ways.take(Which::FromSource, now), Some(0));
            ways.came_at(Which::FromSource, Some(&refused()), now);
        }
        assert!(ways.news().is_empty() && ways.all_failed(Which::FromSource));
        assert_eq!(Ways::of(Vec::new()).take(Which::FromSource, now), None);
    }
}
