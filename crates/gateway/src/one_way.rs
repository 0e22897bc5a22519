//! Ends between which a split does harm, since answers do not pass here: a memory without sockets.
//!
//! A split needs both directions. Where the server's answer takes another way, the client gets a SYN-ACK for a
//! SYN that it never sent, namely ours, and says so with a reset, whose number nobody knows who has not seen that
//! answer. Where such a reset is lost too, as behind a firewall that drops what it takes for invalid, all that can be
//! seen from here is silence; so while one SYN is waited for in vain, others to the same port of the same server pass.
//!
//! Both are forgotten after a while, since routes change, and both are bounded.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};

use units::{Duration, Instant};

use crate::config::Zone;
use crate::syn::Ends;

/// Who has been found: the side that SYNs come from, client and server. By side, since who forges a client's address
/// elsewhere is no reason to leave that client's own connections unsplit.
pub type Pair = (Zone, IpAddr, IpAddr);

/// Why a connection passes unsplit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Answers between these hosts take another way.
    OneWay,
    /// Another SYN of this client waits for this server in vain.
    Silent,
}

/// What is remembered.
#[derive(Debug, Default)]
pub struct OneWay {
    /// Until when.
    found: HashMap<Pair, Instant>,
    silent: HashMap<(IpAddr, SocketAddr), Instant>,
}

impl OneWay {
    /// Answers between these ends do not pass here. True where that is new.
    pub fn on_found(&mut self, now: Instant, zone: Zone, ends: Ends) -> bool {
        put(&mut self.found, pair(zone, ends), now + FOUND)
    }

    /// All that has been found, and until when it holds, for another gateway on this machine.
    pub fn found(&self) -> impl Iterator<Item = (Pair, Instant)> + '_ {
        self.found.iter().map(|(pair, until)| (*pair, *until))
    }

    /// Goes on from what another one has found.
    pub fn go_on_from(&mut self, found: impl IntoIterator<Item = (Pair, Instant)>) {
        self.found.extend(found.into_iter().take(MOST));
    }

    /// A SYN between these ends has had no answer for [`SILENCE`].
    pub fn on_silence(&mut self, now: Instant, ends: Ends) {
        put(
            &mut self.silent,
            (ends.client.ip(), ends.server),
            now + SILENT,
        );
    }

    /// The server answers us: its silence is over.
    pub fn on_answered(&mut self, ends: Ends) {
        if !self.silent.is_empty() {
            self.silent.remove(&(ends.client.ip(), ends.server));
        }
    }

    /// Whether a new connection between these ends is to pass unsplit. `now` is asked for where anything is
    /// remembered at all.
    pub fn covers(&self, now: impl FnOnce() -> Instant, zone: Zone, ends: Ends) -> Option<Why> {
        if self.found.is_empty() && self.silent.is_empty() {
            return None;
        }
        let now = now();
        let lasts = |until: Option<&Instant>| until.is_some_and(|until| now < *until);
        if lasts(self.found.get(&pair(zone, ends))) {
            Some(Why::OneWay)
        } else if lasts(self.silent.get(&(ends.client.ip(), ends.server))) {
            Some(Why::Silent)
        } else {
            None
        }
    }

    /// Forgets what is over.
    pub fn expire(&mut self, now: Instant) {
        self.found.retain(|_, until| now < *until);
        self.silent.retain(|_, until| now < *until);
    }

    /// Pairs of hosts whose answers take another way.
    pub fn pairs(&self) -> usize {
        self.found.len()
    }
}

const fn pair(zone: Zone, ends: Ends) -> Pair {
    (zone, ends.client.ip(), ends.server.ip())
}

fn put<K: Copy + Eq + Hash>(map: &mut HashMap<K, Instant>, key: K, until: Instant) -> bool {
    if map.len() >= MOST && !map.contains_key(&key) {
        // The one that would be forgotten first.
        let first = map.iter().min_by_key(|(_, until)| **until);
        if let Some(first) = first.map(|(key, _)| *key) {
            map.remove(&first);
        }
    }
    map.insert(key, until).is_none()
}

/// How long a SYN is waited for before others pass: its client has sent it three times (1 s + 2 s, RFC 6298).
pub const SILENCE: Duration = Duration::from_s(3);
/// How long is remembered that answers take another way.
const FOUND: Duration = Duration::from_s(600);
/// The same of silence, which proves nothing.
const SILENT: Duration = Duration::from_s(60);
/// Of each kind.
const MOST: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const INSIDE: Zone = Zone::Inside;

    fn ends(client: u8, server: &str) -> Ends {
        Ends {
            client: ([10, 0, 0, client], 4000).into(),
            server: server.parse().unwrap(),
        }
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_ns(seconds * 1_000_000_000)
    }

    #[test]
    fn what_was_found_is_for_two_hosts_and_for_ten_minutes() {
        let mut memory = OneWay::default();
        let known = ends(1, "10.1.0.1:80");
        let asked = memory.covers(|| panic!("asks for nothing"), INSIDE, known);
        assert_eq!(asked, None);
        assert!(memory.on_found(at(0), INSIDE, known));
        assert!(!memory.on_found(at(0), INSIDE, known));
        let covers = |ends, second| memory.covers(|| at(second), INSIDE, ends);
        assert_eq!(covers(ends(1, "10.1.0.1:22"), 599), Some(Why::OneWay));
        assert_eq!(covers(ends(2, "10.1.0.1:80"), 1), None);
        assert_eq!(covers(ends(1, "10.1.0.2:80"), 1), None);
        assert_eq!(covers(known, 600), None);
        let forged = memory.covers(|| at(1), Zone::Outside, known);
        assert_eq!(forged, None, "of the side that it was found on");
        let mut next = OneWay::default();
        next.go_on_from(memory.found());
        let goes_on = |second| next.covers(|| at(second), INSIDE, known);
        assert_eq!((goes_on(599), goes_on(600)), (Some(Why::OneWay), None));
        memory.expire(at(600));
        assert_eq!(memory.pairs(), 0);
    }

    #[test]
    fn silence_is_of_one_port_and_over_with_an_answer() {
        let mut memory = OneWay::default();
        let known = ends(1, "10.1.0.1:80");
        memory.on_silence(at(0), known);
        let covers = |memory: &OneWay, ends| memory.covers(|| at(59), INSIDE, ends);
        assert_eq!(covers(&memory, known), Some(Why::Silent));
        assert_eq!(covers(&memory, ends(1, "10.1.0.1:81")), None);
        memory.on_answered(known);
        assert_eq!(covers(&memory, known), None);
    }

    #[test]
    fn it_is_bounded_and_forgets_the_oldest_first() {
        let mut memory = OneWay::default();
        let of = |n: usize| Ends {
            client: (
                [
                    10,
                    2,
                    u8::try_from(n >> 8).unwrap(),
                    u8::try_from(n & 255).unwrap(),
                ],
                1,
            )
                .into(),
            server: ([10, 1, 0, 1], 80).into(),
        };
        for n in 0..=MOST {
            memory.on_found(at(n as u64 / 100), INSIDE, of(n));
        }
        assert_eq!(memory.pairs(), MOST);
        let last = memory.covers(|| at(41), INSIDE, of(MOST));
        assert_eq!(last, Some(Why::OneWay));
    }
}
