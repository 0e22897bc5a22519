//! The packets of one capture for several trackers, so that they can work side by side.
//!
//! A connection always goes to the same of [`SHARDS`] trackers, both directions of it. How many
//! threads there are changes nothing in what is found: there are always as many trackers, each has
//! its part of what may be held ([`Limits::of_shard`]), and each looks for connections that are over
//! at the same packets as a single one would. As long as time does not go backwards and there is room for
//! all, they find what a single one finds.
//!
//! The choice is by a hash without a secret, so that a capture gives the same facts each time, even
//! where there are more connections than may be held. Who makes up addresses for it can have all connections
//! in one tracker: that one then has a sixteenth of the room, and counts what it gives up.

use std::slice;

use units::Instant;
use wire::segment::{FlowKey, SynOptions};
use wire::tcp::{Flags, SackBlocks};

use crate::trace::facts::Connection;
use crate::trace::number::saturated;
use crate::trace::table::fold;
use crate::trace::tracker::{Captured, LOOK_NS, Limits, Tracker};

/// Puts packets into batches for the trackers that they belong to.
#[derive(Debug)]
pub struct Split {
    /// When connections were last looked through.
    looked: u64,
    batches: Vec<Batch>,
}

/// Packets of one tracker in their order, with the times to look for connections that are over.
///
/// From one thread to the other they go in a line of a cache each: what few packets have lies apart.
#[derive(Debug, Default)]
pub struct Batch {
    packets: Vec<Packed>,
    /// Endpoints that are not of IPv4.
    flows: Vec<FlowKey>,
    /// Of packets that have SACK blocks or a SYN's options, in their order.
    more: Vec<(SackBlocks, SynOptions)>,
    /// Before which packet of the batch, and when.
    looks: Vec<(usize, Instant)>,
}

/// A packet in a batch. Hops left and the IP packet's length are left out, as in connections' logs.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Packed {
    time: u64,
    frame: u64,
    /// Addresses of IPv4; else the first is the place of both in the batch's `flows`.
    addresses: [u32; 2],
    ports: [u16; 2],
    interface: u32,
    sequence: u32,
    acknowledgment: u32,
    payload_bytes: u32,
    timestamps: [u32; 2],
    window: u16,
    ip_id: u16,
    flags: u16,
    bits: u8,
}

impl Split {
    /// Without packets.
    pub fn new() -> Self {
        Self {
            looked: 0,
            batches: (0..SHARDS).map(|_| Batch::new()).collect(),
        }
    }

    /// Takes the next packet of the capture. A batch that is full goes to `give` with the number of
    /// its tracker, and what `give` returns is used again.
    #[inline]
    pub fn put(&mut self, packet: &Captured, give: &mut impl FnMut(usize, Batch) -> Batch) {
        let now = packet.time.as_ns();
        if now.abs_diff(self.looked) >= LOOK_NS {
            self.look(packet.time, give);
        }
        let shard = shard(&packet.segment.flow);
        let batch = &mut self.batches[shard];
        batch.push(packet);
        if batch.is_full() {
            renew(shard, batch, give);
        }
    }

    /// Gives all that is left.
    pub fn flush(&mut self, mut give: impl FnMut(usize, Batch) -> Batch) {
        for (shard, batch) in self.batches.iter_mut().enumerate() {
            if !batch.is_empty() {
                renew(shard, batch, &mut give);
            }
        }
    }

    #[cold]
    fn look(&mut self, time: Instant, give: &mut impl FnMut(usize, Batch) -> Batch) {
        self.looked = time.as_ns();
        for (shard, batch) in self.batches.iter_mut().enumerate() {
            batch.looks.push((batch.packets.len(), time));
            if batch.is_full() {
                renew(shard, batch, give);
            }
        }
    }
}

impl Default for Split {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// An empty one with room for as much as it takes.
    pub fn new() -> Self {
        Self {
            packets: Vec::with_capacity(BATCH),
            flows: Vec::new(),
            more: Vec::new(),
            looks: Vec::new(),
        }
    }

    /// Takes out all.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.flows.clear();
        self.more.clear();
        self.looks.clear();
    }

    /// Neither packets nor anything else.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.looks.is_empty()
    }

    fn is_full(&self) -> bool {
        self.packets.len() + self.looks.len() >= BATCH
    }

    #[inline]
    fn push(&mut self, packet: &Captured) {
        let segment = &packet.segment;
        let mut bits = segment.from & bit::FROM | (segment.ecn & 3) << bit::ECN_SHIFT;
        bits |= u8::from(segment.options_cut) * bit::OPTIONS_CUT;
        let mut timestamps = [0; 2];
        if let Some((value, echo)) = segment.timestamps {
            bits |= bit::TIMESTAMPS;
            timestamps = [value, echo];
        }
        if !segment.sack.as_slice().is_empty() || segment.syn != SynOptions::default() {
            bits |= bit::MORE;
            self.more.push((segment.sack, segment.syn));
        }
        let [low, high] = &segment.flow.addresses;
        let addresses = match (v4(low), v4(high)) {
            (Some(low), Some(high)) => [low, high],
            _ => {
                bits |= bit::APART;
                self.flows.push(segment.flow);
                [saturated(self.flows.len() as u64 - 1), 0]
            }
        };
        self.packets.push(Packed {
            time: packet.time.as_ns(),
            frame: packet.frame,
            addresses,
            ports: segment.flow.ports,
            interface: packet.interface,
            sequence: segment.sequence,
            acknowledgment: segment.acknowledgment,
            payload_bytes: segment.payload_bytes,
            timestamps,
            window: segment.window,
            ip_id: segment.ip_id,
            flags: segment.flags.bits(),
            bits,
        });
    }
}

impl Packed {
    #[inline]
    fn unpack(
        &self,
        flows: &[FlowKey],
        more: &mut slice::Iter<'_, (SackBlocks, SynOptions)>,
        packet: &mut Captured,
    ) {
        let has = |bit: u8| self.bits & bit != 0;
        packet.time = Instant::from_ns(self.time);
        packet.frame = self.frame;
        packet.interface = self.interface;
        let segment = &mut packet.segment;
        segment.flow = match has(bit::APART) {
            false => FlowKey {
                addresses: self.addresses.map(mapped),
                ports: self.ports,
            },
            true => flows
                .get(self.addresses[0] as usize)
                .copied()
                .unwrap_or_default(),
        };
        segment.from = self.bits & bit::FROM;
        segment.sequence = self.sequence;
        segment.acknowledgment = self.acknowledgment;
        segment.flags = Flags::from_bits(self.flags);
        segment.window = self.window;
        segment.payload_bytes = self.payload_bytes;
        segment.ecn = self.bits >> bit::ECN_SHIFT & 3;
        segment.ip_id = self.ip_id;
        let [value, echo] = self.timestamps;
        segment.timestamps = has(bit::TIMESTAMPS).then_some((value, echo));
        segment.options_cut = has(bit::OPTIONS_CUT);
        // What few packets have is left from the one before only after such a packet.
        let more = has(bit::MORE).then(|| more.next()).flatten();
        if let Some(&(sack, syn)) = more {
            (segment.sack, segment.syn) = (sack, syn);
        } else if !segment.sack.as_slice().is_empty() || segment.syn != SynOptions::default() {
            (segment.sack, segment.syn) = (SackBlocks::default(), SynOptions::default());
        }
    }
}

/// An IPv4 address that was mapped (RFC 4291 section 2.5.5.2).
#[inline]
fn v4(address: &[u8; 16]) -> Option<u32> {
    let number = u128::from_be_bytes(*address);
    (number >> 32 == 0xffff)
        .then(|| u32::from_be_bytes([address[12], address[13], address[14], address[15]]))
}

#[inline]
fn mapped(address: u32) -> [u8; 16] {
    (0xffff_0000_0000 | u128::from(address)).to_be_bytes()
}

/// Bits of a packet in a batch.
mod bit {
    pub(super) const FROM: u8 = 1;
    pub(super) const TIMESTAMPS: u8 = 2;
    /// It has SACK blocks or a SYN's options.
    pub(super) const MORE: u8 = 4;
    /// Its endpoints are not of IPv4.
    pub(super) const APART: u8 = 8;
    pub(super) const OPTIONS_CUT: u8 = 16;
    pub(super) const ECN_SHIFT: u8 = 5;
}

impl<S: FnMut(Connection)> Tracker<S> {
    /// Takes a batch of its packets.
    pub fn take_batch(&mut self, batch: &Batch) {
        let mut unpacked = [Captured::default(); UNPACKED];
        let mut more = batch.more.iter();
        let mut take = |tracker: &mut Self, from: usize, until: usize| {
            let packets = batch.packets.get(from..until).unwrap_or_default();
            for some in packets.chunks(UNPACKED) {
                for (packet, packed) in unpacked.iter_mut().zip(some) {
                    packed.unpack(&batch.flows, &mut more, packet);
                }
                tracker.take_all(unpacked.get(..some.len()).unwrap_or_default());
            }
        };
        let mut from = 0;
        for &(until, time) in &batch.looks {
            take(self, from, until);
            self.expire(time);
            from = until;
        }
        take(self, from, batch.packets.len());
    }
}

impl Limits {
    /// What one of the [`SHARDS`] trackers may hold of this.
    pub fn of_shard(self) -> Self {
        let part = |all: usize| all.div_ceil(SHARDS);
        Self {
            connections_max: part(self.connections_max),
            half_open_max: part(self.half_open_max),
            large_max: part(self.large_max),
            bytes_max: part(self.bytes_max),
            cached: part(self.cached),
            ..self
        }
    }
}

fn renew(shard: usize, batch: &mut Batch, give: &mut impl FnMut(usize, Batch) -> Batch) {
    let full = std::mem::take(batch);
    *batch = give(shard, full);
    batch.clear();
}

/// Which tracker a connection belongs to, at whatever interface it is seen.
#[inline]
fn shard(flow: &FlowKey) -> usize {
    let [low, high] = flow.addresses.map(u128::from_le_bytes);
    let [a, b] = flow.ports;
    let ports = u128::from(a) << 16 | u128::from(b);
    let word = |n: u128| {
        #[allow(clippy::cast_possible_truncation, reason = "the halves are folded")]
        let (low, high) = (n as u64, (n >> 64) as u64);
        low.rotate_left(17) ^ high
    };
    let one = fold(word(low) ^ MIX[0], word(high) ^ MIX[1]);
    let all = fold(one ^ word(ports), MIX[2]);
    usize::try_from(all >> 32).unwrap_or_default() % SHARDS
}

/// Trackers beside each other: some more than threads, so that those with work to do can be shared
/// among them evenly.
pub const SHARDS: usize = 16;
/// Packets that are unpacked at a time, as many as a tracker takes at once.
const UNPACKED: usize = 32;
/// Packets of a batch: all that are being filled stay in a core's second cache.
const BATCH: usize = 128;
/// The first digits of pi behind the point.
const MIX: [u64; 3] = [
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7344,
    0xa409_3822_299f_31d0,
];

#[cfg(test)]
mod tests {
    use units::Duration;
    use wire::segment::Segment;

    use super::*;

    /// Packets of many connections with gaps in which some of them end.
    fn packets() -> Vec<Captured> {
        let mut rng = units::Rng::new(7);
        let mut now = Instant::ZERO + Duration::from_s(5);
        (1..30_000)
            .map(|frame| {
                let draw = rng.next_u64();
                now += Duration::from_ms(draw % 4_000);
                let mut segment = Segment {
                    from: u8::from(draw >> 32 & 1 == 1),
                    sequence: 1,
                    payload_bytes: 10,
                    flags: match draw >> 40 & 31 {
                        0 => Flags::SYN,
                        1 => Flags::RST,
                        2 => Flags::FIN,
                        _ => Flags::ACK,
                    },
                    ..Segment::default()
                };
                segment.flow.ports[0] = u16::try_from(draw >> 48 & 0x3ff).unwrap();
                Captured {
                    time: now,
                    frame,
                    interface: u32::from(draw >> 60 == 0),
                    segment,
                }
            })
            .collect()
    }

    /// What trackers make of their batches, in the order of first frames.
    fn split(packets: &[Captured], limits: Limits) -> Vec<Connection> {
        let mut ended = Vec::new();
        let mut batches: Vec<Vec<Batch>> = (0..SHARDS).map(|_| Vec::new()).collect();
        let mut split = Split::new();
        let mut give = |shard: usize, batch: Batch| {
            assert!(batch.packets.len() + batch.looks.len() <= BATCH);
            batches[shard].push(batch);
            Batch::new()
        };
        packets.iter().for_each(|p| split.put(p, &mut give));
        split.flush(give);
        for batches in batches {
            let mut tracker = Tracker::new(limits.of_shard(), |c| ended.push(c));
            batches.iter().for_each(|batch| tracker.take_batch(batch));
            tracker.finish();
        }
        ended.sort_by_key(|c| c.first.frame);
        ended
    }

    #[test]
    fn trackers_side_by_side_find_what_one_finds() {
        let packets = packets();
        let mut ended = Vec::new();
        let mut tracker = Tracker::new(Limits::default(), |c: Connection| ended.push(c));
        packets.chunks(100).for_each(|some| tracker.take_all(some));
        tracker.finish();
        drop(tracker);
        ended.sort_by_key(|c| c.first.frame);
        assert!(ended.len() > 5_000, "{}", ended.len());
        let idle = ended.iter().filter(|c| c.end == crate::trace::End::Idle);
        assert!(idle.count() > 1_000);
        assert!(split(&packets, Limits::default()) == ended);
    }

    #[test]
    fn what_is_unpacked_is_what_was_packed() {
        let mut batch = Batch::new();
        let mut packets = packets();
        packets.truncate(100);
        for (n, packet) in (0_u32..).zip(&mut packets) {
            let segment = &mut packet.segment;
            if n % 3 == 0 {
                segment.flow.addresses = [mapped(7), mapped(9)];
                segment.timestamps = Some((n, 5));
            }
            if n % 7 == 0 {
                segment.sack = SackBlocks::new(&[(1, 2), (n, 4)]);
                segment.ecn = 3;
            }
            if n % 5 == 0 {
                segment.syn.mss = Some(1_460);
                segment.options_cut = true;
            }
            batch.push(packet);
        }
        assert_eq!(size_of::<Packed>(), 64);
        let mut more = batch.more.iter();
        let mut packet = Captured::default();
        for (packed, truth) in batch.packets.iter().zip(&packets) {
            packed.unpack(&batch.flows, &mut more, &mut packet);
            assert_eq!(packet, *truth);
        }
    }

    #[test]
    fn all_directions_and_interfaces_of_a_connection_go_to_one_tracker_and_all_trackers_have_work()
    {
        let mut used = [0; SHARDS];
        for n in 0..1_600_u32 {
            let mut flow = FlowKey::default();
            flow.addresses[0][12..].copy_from_slice(&n.to_be_bytes());
            used[shard(&flow)] += 1;
        }
        assert!(used.iter().all(|n| (50..150).contains(n)), "{used:?}");
    }

    #[test]
    fn without_packets_looks_alone_fill_a_batch() {
        let far = |n: u64| Captured {
            time: Instant::from_ns(n * 2_000_000_000),
            ..Captured::default()
        };
        let mut given = [0; SHARDS];
        let mut split = Split::new();
        for n in 0..1_000 {
            split.put(&far(n), &mut |shard, mut batch| {
                given[shard] += 1;
                batch.clear();
                batch
            });
        }
        assert!(given.iter().all(|&n| n >= 7), "{given:?}");
    }

    #[test]
    fn the_parts_of_what_may_be_held_are_no_less_than_all() {
        let all = Limits::default();
        let part = all.of_shard();
        assert!(part.connections_max * SHARDS >= all.connections_max);
        assert!(part.half_open_max * SHARDS < all.half_open_max + SHARDS);
        assert_eq!((part.idle, part.seed), (all.idle, all.seed));
    }
}
