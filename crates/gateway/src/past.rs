//! How much connections to a server's port have carried: a memory without sockets.
//!
//! Nobody can tell from a SYN how much will be sent. What went before can be known: where one connection after
//! another carried little, the next one is likely to. Such are let pass, but for one in so many, by a hash of
//! its ends, that is split to look again: what passes is not measured.

use std::collections::HashMap;
use std::net::SocketAddr;

use units::{Bytes, Duration, Instant};

/// What is remembered.
#[derive(Debug, Default)]
pub struct Past {
    services: HashMap<SocketAddr, Service>,
}

#[derive(Clone, Copy, Debug)]
struct Service {
    /// Of the last connections, in a ring.
    carried: [Bytes; LAST],
    seen: usize,
    until: Instant,
}

impl Past {
    /// A split connection to this port of a server has ended, with so many bytes both ways together.
    pub fn on_ended(&mut self, now: Instant, server: SocketAddr, carried: Bytes) {
        if self.services.len() >= MOST && !self.services.contains_key(&server) {
            // The one that would be forgotten first.
            let first = self.services.iter().min_by_key(|(_, s)| s.until);
            if let Some(first) = first.map(|(server, _)| *server) {
                self.services.remove(&first);
            }
        }
        let service = self.services.entry(server).or_insert(Service {
            carried: [Bytes::new(0); LAST],
            seen: 0,
            until: now,
        });
        service.carried[service.seen % LAST] = carried;
        service.seen += 1;
        service.until = now + REMEMBERED;
    }

    /// True where each of the last connections to this port of a server carried less than `least`, and this one is not
    /// split to look again; `hash` is that of its ends.
    pub fn passes(&self, now: Instant, server: SocketAddr, least: Bytes, hash: u64) -> bool {
        let Some(service) = self.services.get(&server) else {
            return false;
        };
        now < service.until
            && service.seen >= LAST
            && service.carried.iter().all(|carried| *carried < least)
            // Other bits than those by which samples are chosen.
            && !crate::sampled::is_one(hash.rotate_left(32), LOOKS)
    }

    /// Servers' ports that anything is remembered of.
    pub fn services(&self) -> usize {
        self.services.len()
    }

    /// Forgets what is over.
    pub fn expire(&mut self, now: Instant) {
        self.services.retain(|_, s| now < s.until);
    }
}

/// So many in a row have to be small.
pub const LAST: usize = 8;
/// One in so many is split all the same.
const LOOKS: u32 = 16;
/// Since the last one that was looked at.
const REMEMBERED: Duration = Duration::from_s(600);
/// Of each worker.
const MOST: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Bytes = Bytes::new(10_000);
    /// Of ends that are not split to look again.
    const HASH: u64 = 1 << 52;

    fn at(seconds: u64) -> Instant {
        Instant::from_ns(seconds * 1_000_000_000)
    }

    fn server(n: usize) -> SocketAddr {
        let [.., high, low] = n.to_be_bytes();
        ([10, 0, high, low], 80).into()
    }

    fn after(sizes: &[u64]) -> Past {
        let mut past = Past::default();
        for size in sizes {
            past.on_ended(at(0), server(1), Bytes::new(*size));
        }
        past
    }

    fn passes(past: &Past, second: u64) -> bool {
        past.passes(at(second), server(1), LEAST, HASH)
    }

    #[test]
    fn eight_small_ones_in_a_row_let_the_next_pass() {
        assert!(!passes(&after(&[]), 1));
        assert!(!passes(&after(&[100; 7]), 1));
        let past = after(&[100; 8]);
        assert!(passes(&past, 1));
        assert!(passes(&past, 599) && !passes(&past, 600));
        // Another port knows nothing of it.
        assert!(!past.passes(at(1), ([10, 0, 0, 1], 22).into(), LEAST, HASH));
    }

    #[test]
    fn one_that_is_large_is_remembered_for_eight() {
        let mut sizes = vec![100; 20];
        sizes.push(10_000);
        assert!(!passes(&after(&sizes), 1));
        sizes.extend([100; 7]);
        assert!(!passes(&after(&sizes), 1));
        sizes.push(100);
        assert!(passes(&after(&sizes), 1));
    }

    #[test]
    fn one_in_sixteen_is_looked_at_again_by_its_ends() {
        let past = after(&[100; 8]);
        let of = |hash: u64| past.passes(at(1), server(1), LEAST, hash);
        let split = (0..16_000_u64)
            .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .filter(|hash| !of(*hash))
            .count();
        assert!((800..1_200).contains(&split), "{split}");
    }

    #[test]
    fn it_is_bounded_and_forgets_the_oldest_first() {
        let mut past = Past::default();
        for n in 0..=MOST {
            past.on_ended(at(n as u64 / 100), server(n), Bytes::new(1));
        }
        assert_eq!(past.services(), MOST);
        past.expire(at(600));
        assert!(past.services() < MOST);
        past.expire(at(700));
        assert_eq!(past.services(), 0);
    }
}
