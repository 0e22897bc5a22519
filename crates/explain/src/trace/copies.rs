//! Packets that were captured twice: at two places of one host, or by a mirror port that copies what
//! comes in and what goes out.
//!
//! A copy has all fields of a packet that was seen before, the IP identification among them, which
//! a sender does not give to two packets so soon. Where there is none (IPv6, or zero), a data segment
//! or an ACK sent once more can look the same. Then it is a copy if its SYN came twice at a distance
//! at which nobody sends another, and it comes at that distance.
//!
//! Packets are looked up by a hash in a table of the last ones, so that a copy is found up to some
//! hundred packets later.

use wire::segment::Segment;
use wire::tcp::Flags;

use crate::trace::number::low32;

/// The last packets of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Copies {
    few: [Bucket; BUCKETS],
    /// In their place once there was a copy: copies may come long after.
    many: Vec<Bucket>,
    /// Packets that are still looked at.
    watched: u32,
    /// Of each side the last packet's number, identification and time.
    last: [(u32, u16, u64); 2],
    /// Distance of copies, once it is known; nanoseconds.
    distance: u64,
    pub(crate) distance_max: u64,
}

impl Copies {
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self {
            few: [[(0, 0); ROOM]; BUCKETS],
            many: Vec::new(),
            watched: WATCHED,
            last: [(0, 0, 0); 2],
            distance: 0,
            distance_max: 0,
        }
    }

    /// Notes a packet that passes; true where it is a copy. `old` says that it tells nothing new by its
    /// numbers: only such are looked up.
    ///
    /// Who copies packets does so from the first on: where none of the first ones came twice, only
    /// neighbours are compared.
    #[inline]
    pub(crate) fn is_copy(&mut self, segment: &Segment, now: u64, old: bool) -> bool {
        if self.watched > 0 {
            return self.is_among(segment, now, old);
        }
        let side = usize::from(segment.from & 1);
        let (sequence, id, then) =
            std::mem::replace(&mut self.last[side], (segment.sequence, segment.ip_id, now));
        let same = old && id != 0 && id == segment.ip_id && sequence == segment.sequence;
        same && now.saturating_sub(then) < NEIGHBOUR_NS_MAX
    }

    fn is_among(&mut self, segment: &Segment, now: u64, old: bool) -> bool {
        if self.many.is_empty() {
            self.watched -= 1;
        }
        if segment.flags.contains(Flags::SYN) {
            // Its own copy comes before much else.
            self.watched = self.watched.min(WATCHED_FROM_SYN);
        }
        let hash = hash(segment);
        // The highest bits are mixed best.
        let (mark, us) = (low32(hash) | 1, low32(now / 1_000));
        let place = (hash >> 48) as usize;
        let [few, many] = [place % BUCKETS, place % MANY];
        let before = old.then(|| {
            let both = self.many.get(many).into_iter().chain([&self.few[few]]);
            both.flatten().find(|held| held.0 == mark).copied()
        });
        let bucket = match self.many.get_mut(many) {
            Some(bucket) => bucket,
            None => &mut self.few[few],
        };
        bucket.copy_within(..ROOM - 1, 1);
        bucket[0] = (mark, us);
        match before.flatten() {
            Some((_, then)) => self.judge(segment, u64::from(us.wrapping_sub(then)) * 1_000),
            None => false,
        }
    }

    /// Memory that it takes beside itself.
    pub(crate) const fn more_bytes(&self) -> usize {
        self.many.capacity() * size_of::<Bucket>()
    }

    #[cold]
    fn judge(&mut self, segment: &Segment, apart: u64) -> bool {
        let syn = segment.flags.contains(Flags::SYN);
        let near = |of: u64| apart <= of.saturating_mul(4).max(of + NEAR_NS);
        let is_copy = match segment.ip_id {
            // The number comes again after 65,536 packets, at 10 Gb/s after 80 ms.
            1.. => apart <= IDENTIFIED_NS_MAX,
            0 if syn => apart <= SYN_NS_MAX,
            0 => self.distance > 0 && near(self.distance),
        };
        if is_copy {
            if self.many.is_empty() {
                self.many = vec![[(0, 0); ROOM]; MANY];
            }
            self.distance = match self.distance {
                0 => apart.max(1_000),
                known => known - known / 8 + apart / 8,
            };
            self.distance_max = self.distance_max.max(apart);
        }
        is_copy
    }
}

/// Some packets of one hash: its lower half, and microseconds.
type Bucket = [(u32, u32); ROOM];

/// Of all that a packet says of TCP, and its identification.
#[inline]
fn hash(segment: &Segment) -> u64 {
    let (value, echo) = segment.timestamps.unwrap_or_default();
    let (left, right) = segment.sack.as_slice().first().copied().unwrap_or_default();
    let pair = |a: u32, b: u32| u64::from(a) << 32 | u64::from(b);
    let small = u64::from(segment.window) << 16 | u64::from(segment.ip_id);
    let flags = u64::from(segment.flags.bits()) << 1 | u64::from(segment.from & 1);
    // Each by its own odd number, so that none waits for another.
    let all = pair(segment.sequence, segment.acknowledgment).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ pair(value, echo).wrapping_mul(0xbf58_476d_1ce4_e5b9)
        ^ pair(left, right).wrapping_mul(0xd6e8_feb8_6659_fd93)
        ^ (u64::from(segment.payload_bytes) << 32 | small).wrapping_mul(0x94d0_49bb_1331_11eb)
        ^ flags.wrapping_mul(0xa076_1d64_78bd_642f);
    (all ^ all >> 32).wrapping_mul(0xe703_7ed1_a0b4_28db)
}

/// The last packets whose hash falls into each.
const BUCKETS: usize = 8;
/// Once there are copies: 16 KiB.
const MANY: usize = 512;
const ROOM: usize = 4;
/// Packets after which nobody begins to copy: in mid-connection, and behind a SYN.
const WATCHED: u32 = 128;
const WATCHED_FROM_SYN: u32 = 16;
/// Two copies of one packet, captured at two places of one host, are no further apart.
const NEIGHBOUR_NS_MAX: u64 = 1_000_000;
const IDENTIFIED_NS_MAX: u64 = 50_000_000;
/// No host sends a SYN again sooner (RFC 6298 section 2.1; some wait 250 ms).
const SYN_NS_MAX: u64 = 100_000_000;
/// Distances differ by as much.
const NEAR_NS: u64 = 200_000;
