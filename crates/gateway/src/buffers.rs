//! How large the buffers of new connections are, from what earlier ones of their way have measured.
//!
//! The kernel grows a socket's buffers by itself, up to `net.ipv4.tcp_wmem` and `tcp_rmem`. Where a path needs
//! no more, nothing is set: a buffer that is set no longer grows. Where it does, the next connection that way
//! gets twice the product of the rate that was had and the smallest round trip: once for what is under way, once
//! for what is sent again and for more rate. If the buffer was what held the rate, the next has room for twice as
//! much, and so on until something else holds it.
//!
//! Pure: what was measured comes in, sizes go out. Ways are blocks of addresses, a /24 of IPv4 and a /48 of IPv6.

use std::collections::HashMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use units::{Bytes, Duration, Rate};

use crate::config::Zone;

/// What the kernel and the machine allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// What its own tuning grows a send buffer and a receive buffer to, as if it were set: half of `tcp_wmem` and
    /// `tcp_rmem`.
    pub tuned: [Bytes; 2],
    /// What they may be set to: `net.core.wmem_max` and `rmem_max` without CAP_NET_ADMIN over the machine.
    pub most: [Bytes; 2],
    /// What the buffers of all connections may take together.
    pub memory: Bytes,
}

/// What was measured of ways, and what follows from it.
#[derive(Debug)]
pub struct Buffers {
    bounds: Bounds,
    ways: HashMap<(usize, IpAddr), Way>,
    /// Counts what was measured, to know what is old.
    turn: u64,
}

/// One way.
#[derive(Clone, Copy, Debug)]
struct Way {
    rtt: Duration,
    /// Most that was sent and received.
    rates: [Rate; 2],
    turn: u64,
}

/// Sizes to set; what is `None` is the kernel's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Of the send buffer.
    pub send: Option<Bytes>,
    /// Of the receive buffer.
    pub receive: Option<Bytes>,
}

/// What is decided for one way, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// `inside` or `outside`.
    pub side: String,
    /// Hosts of these addresses.
    pub hosts: String,
    /// Smallest round trip that was seen.
    pub rtt_us: u64,
    /// Most that was sent there in a second, bits a second.
    pub sent_bps: u64,
    /// Most that came from there.
    pub received_bps: u64,
    /// What new connections get; absent where the kernel's tuning is left alone.
    pub send_bytes: Option<u64>,
    /// The same of the receive buffer.
    pub receive_bytes: Option<u64>,
    /// In words.
    pub why: String,
}

impl Buffers {
    /// Nothing is known yet.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            ways: HashMap::new(),
            turn: 0,
        }
    }

    /// A connection's half with `peer` had this in the last second: sent, received, its smallest round trip.
    pub fn observe(&mut self, zone: Zone, peer: IpAddr, rates: [Rate; 2], rtt: Duration) {
        if rtt == Duration::ZERO {
            return;
        }
        self.turn += 1;
        let turn = self.turn;
        let known = self.ways.entry((zone.index(), block(peer))).or_insert(Way {
            rtt,
            rates: [Rate::from_bits_per_second(0); 2],
            turn,
        });
        known.rtt = known.rtt.min(rtt);
        known.turn = turn;
        for (most, new) in known.rates.iter_mut().zip(rates) {
            *most = (*most).max(new);
        }
        if self.ways.len() > WAYS {
            let oldest = self.ways.iter().min_by_key(|(_, way)| way.turn);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                self.ways.remove(&oldest);
            }
        }
    }

    /// What a new connection with `peer` gets, beside so many that stand.
    pub fn sizes(&self, zone: Zone, peer: IpAddr, live: u64) -> Sizes {
        let known = self.ways.get(&(zone.index(), block(peer)));
        known.map_or_else(Sizes::default, |way| self.of(way, live))
    }

    /// What whoever connects from a side gets: the most of all its ways, since nobody knows yet who it will be.
    pub fn sizes_of_side(&self, zone: Zone, live: u64) -> Sizes {
        let side = self.ways.iter().filter(|((z, _), _)| *z == zone.index());
        side.fold(Sizes::default(), |most, (_, way)| {
            let sizes = self.of(way, live);
            Sizes {
                send: most.send.max(sizes.send),
                receive: most.receive.max(sizes.receive),
            }
        })
    }

    /// The smallest round trip that any connection of a host's way has had, as far as it was looked at.
    pub fn least_rtt(&self, zone: Zone, peer: IpAddr) -> Option<Duration> {
        let known = self.ways.get(&(zone.index(), block(peer)));
        known.map(|way| way.rtt)
    }

    fn of(&self, way: &Way, live: u64) -> Sizes {
        let Bounds { tuned, most, .. } = self.bounds;
        let [send, receive] = [0, 1].map(|n| {
            let wanted = need(way.rates[n], way.rtt).min(self.each(live));
            let wanted = wanted.min(most[n]);
            (wanted > tuned[n]).then_some(wanted)
        });
        Sizes { send, receive }
    }

    /// The most that each buffer may be set to: two a half, two halves a connection, and the kernel accounts
    /// for twice what is set.
    fn each(&self, live: u64) -> Bytes {
        Bytes::new(self.bounds.memory.as_u64() / (8 * live.max(1))).min(MOST)
    }

    /// All that is known, those of the largest need first.
    pub fn decisions(&self, live: u64) -> Vec<Decision> {
        // Without a rate its buffers are set otherwise.
        let measured = |(_, way): &(_, &Way)| way.rates.iter().any(|r| r.as_bits_per_second() > 0);
        let mut all: Vec<_> = self.ways.iter().filter(measured).collect();
        let most = |way: &Way| need(way.rates[0].max(way.rates[1]), way.rtt);
        all.sort_by_key(|((zone, block), way)| (std::cmp::Reverse(most(way)), *zone, *block));
        all.truncate(SHOWN);
        let decision = |(&(zone, block), way): (&(usize, IpAddr), &Way)| {
            let sizes = self.of(way, live);
            Decision {
                side: Zone::BOTH[zone].name().to_owned(),
                hosts: format!("{block}/{}", if block.is_ipv4() { 24 } else { 48 }),
                rtt_us: way.rtt.as_ns() / 1_000,
                sent_bps: way.rates[0].as_bits_per_second(),
                received_bps: way.rates[1].as_bits_per_second(),
                send_bytes: sizes.send.map(Bytes::as_u64),
                receive_bytes: sizes.receive.map(Bytes::as_u64),
                why: self.why(way, sizes, live),
            }
        };
        all.into_iter().map(decision).collect()
    }

    fn why(&self, way: &Way, sizes: Sizes, live: u64) -> String {
        let [send, receive] = self.bounds.tuned;
        let [there, back] = way.rates.map(|rate| need(rate, way.rtt));
        let wanted = there.max(back);
        let each = self.each(live);
        match (sizes.send, sizes.receive) {
            (None, None) if there <= send && back <= receive => {
                format!(
                    "needs {wanted}; the kernel's tuning gives {send} to send, {receive} to receive"
                )
            }
            _ if wanted > each => format!("needs {wanted}; memory for all allows {each} each"),
            (None, None) => format!(
                "needs {wanted}, which takes CAP_NET_ADMIN over the machine, or larger net.core.wmem_max and rmem_max"
            ),
            _ => format!(
                "needs {wanted}; the kernel's tuning ends at {send} to send, {receive} to receive"
            ),
        }
    }
}

/// Twice the product of rate and round trip.
fn need(rate: Rate, rtt: Duration) -> Bytes {
    Bytes::new(rate.bytes_in(rtt).as_u64().saturating_mul(2))
}

fn block(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(a) => IpAddr::V4((u32::from(a) & (u32::MAX << 8)).into()),
        IpAddr::V6(a) => IpAddr::V6((u128::from(a) & (u128::MAX << 80)).into()),
    }
}

/// Ways that are remembered: some 100 B each.
const WAYS: usize = 1024;
/// Ways that are shown.
const SHOWN: usize = 20;
/// As large as a window can be (RFC 7323 section 2.3).
pub const MOST: Bytes = Bytes::new(1 << 30);
/// A rate that is worth a look: below it no way of up to half a second needs more than the 2 MiB that the kernel's
/// tuning amounts to as it comes.
pub const WORTH: Rate = Rate::from_bits_per_second(16_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        tuned: [Bytes::new(4 << 20), Bytes::new(6 << 20)],
        most: [MOST; 2],
        memory: Bytes::new(1 << 30),
    };
    const MS: Duration = Duration::from_ms(1);

    fn peer(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn mbps(n: u64) -> Rate {
        Rate::from_bits_per_second(n * 1_000_000)
    }

    #[test]
    fn a_path_that_the_kernel_fills_is_left_to_it_and_a_longer_one_gets_what_it_needs() {
        let mut buffers = Buffers::new(BOUNDS);
        let (near, far) = (peer("10.0.0.1"), peer("10.0.1.1"));
        // 2 x 1 Gb/s x 10 ms is 2.5 MB; x 50 ms 12.5 MB.
        buffers.observe(
            Zone::Outside,
            near,
            [mbps(1000), mbps(0)],
            MS.saturating_mul(10),
        );
        buffers.observe(
            Zone::Outside,
            far,
            [mbps(1000), mbps(100)],
            MS.saturating_mul(50),
        );
        assert_eq!(buffers.sizes(Zone::Outside, near, 1), Sizes::default());
        let of_far = buffers.sizes(Zone::Outside, far, 1);
        assert_eq!(of_far.send, Some(Bytes::new(12_500_000)));
        assert_eq!(of_far.receive, None);
        // Its neighbours are as far; nobody is on the other side.
        assert_eq!(buffers.sizes(Zone::Outside, peer("10.0.1.99"), 1), of_far);
        assert_eq!(buffers.sizes(Zone::Inside, far, 1), Sizes::default());
        assert_eq!(buffers.sizes_of_side(Zone::Outside, 1), of_far);
        let decisions = buffers.decisions(1);
        assert_eq!(decisions[0].hosts, "10.0.1.0/24");
        assert_eq!(decisions[0].send_bytes, Some(12_500_000));
        assert!(
            decisions[0].why.contains("tuning ends at 4 MiB"),
            "{decisions:?}"
        );
        assert!(
            decisions[1].why.contains("tuning gives 4 MiB"),
            "{decisions:?}"
        );
    }

    #[test]
    fn what_a_buffer_held_back_has_room_for_twice_as_much_the_next_time_until_something_else_holds_it()
     {
        let mut buffers = Buffers::new(BOUNDS);
        let (far, rtt) = (peer("2001:db8::1"), MS.saturating_mul(100));
        let path = mbps(2000);
        let mut buffer = BOUNDS.tuned[0];
        let mut rounds = 0;
        while rounds < 20 {
            let rate = Rate::average(buffer, rtt).min(path);
            buffers.observe(Zone::Outside, far, [rate, mbps(0)], rtt);
            let next = buffers.sizes(Zone::Outside, far, 1).send.unwrap();
            if next == buffer {
                break;
            }
            buffer = next;
            rounds += 1;
        }
        // 4, 8, 16, 32 MiB, and twice 25 MB.
        assert_eq!((rounds, buffer), (4, Bytes::new(50_000_000)));
    }

    #[test]
    fn all_together_take_no_more_than_is_allowed() {
        let mut buffers = Buffers::new(BOUNDS);
        let far = peer("10.0.1.1");
        buffers.observe(
            Zone::Outside,
            far,
            [mbps(10_000); 2],
            MS.saturating_mul(100),
        );
        for live in [1, 10, 100] {
            let sizes = buffers.sizes(Zone::Outside, far, live);
            let set: u64 = [sizes.send, sizes.receive]
                .into_iter()
                .flatten()
                .map(Bytes::as_u64)
                .sum();
            // Both halves, as the kernel accounts for them.
            assert!(
                4 * set * live <= BOUNDS.memory.as_u64(),
                "{live}: {sizes:?}"
            );
        }
        assert_eq!(buffers.sizes(Zone::Outside, far, 100), Sizes::default());
        assert!(
            buffers.decisions(100)[0]
                .why
                .contains("memory for all allows")
        );
    }

    #[test]
    fn the_smallest_round_trip_of_a_way_is_kept_for_all_its_hosts_whoever_sets_their_buffers() {
        let mut buffers = Buffers::new(BOUNDS);
        for ms in [50, 10, 90] {
            let rates = [mbps(0); 2];
            let rtt = MS.saturating_mul(ms);
            buffers.observe(Zone::Outside, peer("10.0.1.1"), rates, rtt);
        }
        let least = |zone, host| buffers.least_rtt(zone, peer(host));
        assert_eq!(
            least(Zone::Outside, "10.0.1.99"),
            Some(MS.saturating_mul(10))
        );
        assert_eq!(least(Zone::Inside, "10.0.1.1"), None);
        assert_eq!(least(Zone::Outside, "10.0.2.1"), None);
        assert_eq!(buffers.decisions(1), []);
    }

    #[test]
    fn without_privilege_a_small_limit_of_the_machine_leaves_the_kernels_tuning_alone() {
        let mut buffers = Buffers::new(Bounds {
            most: [Bytes::new(212_992), Bytes::new(16 << 20)],
            ..BOUNDS
        });
        let far = peer("10.0.1.1");
        buffers.observe(Zone::Outside, far, [mbps(1000); 2], MS.saturating_mul(50));
        let sizes = buffers.sizes(Zone::Outside, far, 1);
        assert_eq!(
            sizes.send, None,
            "as large as it may be is less than the kernel's tuning"
        );
        assert_eq!(sizes.receive, Some(Bytes::new(12_500_000)));
    }

    #[test]
    fn ways_are_remembered_in_bounded_number_and_the_oldest_goes() {
        let mut buffers = Buffers::new(BOUNDS);
        let at = |n: usize| {
            let [_, _, a, b] = u32::try_from(n).unwrap().to_be_bytes();
            IpAddr::from([10, a, b, 1])
        };
        for n in 0..2 * WAYS {
            buffers.observe(Zone::Outside, at(n), [mbps(1000); 2], MS.saturating_mul(50));
        }
        assert_eq!(buffers.ways.len(), WAYS);
        assert_eq!(buffers.sizes(Zone::Outside, at(0), 1), Sizes::default());
        assert!(
            buffers
                .sizes(Zone::Outside, at(2 * WAYS - 1), 1)
                .send
                .is_some()
        );
        // Without a round trip nothing is known.
        buffers.observe(Zone::Inside, at(1), [mbps(1000); 2], Duration::ZERO);
        assert_eq!(buffers.sizes_of_side(Zone::Inside, 1), Sizes::default());
    }
}
