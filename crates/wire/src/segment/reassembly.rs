//! Fragments of IP put together again, as far as a segment's headers and lengths need it.
//!
//! Of each packet the ranges are kept that were there, and the first [`HEAD_BYTES_MAX`] of them with
//! content: enough for headers within tunnels, little enough for captures that keep headers alone. A
//! packet is whole when its ranges are without a hole up to where its last fragment ends. Where
//! fragments overlap, the content that came first counts, and each byte once.
//!
//! Reading: RFC 791 section 3.2, RFC 8200 section 4.5; the waiting time is that of Linux
//! (net/ipv4/ip_fragment.c, `ipfrag_time`), RFC 1122 section 3.3.2 allows up to 120 s.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::bytes::{array_at, put, put_u16, u8_at, u16_at, u32_at};
use crate::capture::LinkType;
use crate::ipv6;
use crate::protocol;
use crate::segment::decode::{Snapped, extensions, mapped};
use crate::segment::{Decoded, Segment, decode};

/// Packets of which fragments were seen and others are awaited. Takes some 2 MB at most.
#[derive(Clone, Debug, Default)]
pub struct Reassembly {
    pending: HashMap<Key, Pending>,
    /// As they began, with the serial number of each.
    order: VecDeque<(Key, u64)>,
    begun: u64,
    counts: FragmentCounts,
}

/// Fragments until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentCounts {
    /// Fragments.
    pub fragments: u64,
    /// Packets that were put together.
    pub whole: u64,
    /// Packets of which fragments are missing, those that are still awaited included.
    pub incomplete: u64,
}

/// What the fragments of one packet have in common. The interface is among it: at each one all of
/// them come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    source: [u8; 16],
    destination: [u8; 16],
    id: u32,
    protocol: u8,
    interface: u32,
}

#[derive(Clone, Debug, Default)]
struct Pending {
    serial: u64,
    since_ns: u64,
    /// The first fragment's header, without options of fragmenting.
    header: Vec<u8>,
    /// Content, with its place.
    pieces: Vec<(usize, Vec<u8>)>,
    /// What was there: sorted, apart from each other.
    ranges: Vec<(u32, u32)>,
    /// Where the last fragment ends.
    total: Option<u32>,
    /// When it was whole.
    whole_ns: Option<u64>,
}

/// One fragment.
#[derive(Debug)]
struct Fragment<'a> {
    key: Key,
    header: Vec<u8>,
    content: &'a [u8],
    from: u32,
    to: u32,
    last: bool,
}

impl Reassembly {
    /// Takes a fragment that was captured at `interface`; `packet` begins at its IP header. Where it
    /// makes a packet whole, says what that is, with its segment in `out`.
    pub fn take(
        &mut self,
        packet: &[u8],
        interface: u32,
        time_ns: u64,
        out: &mut Segment,
    ) -> Option<Decoded> {
        self.counts.fragments += 1;
        let fragment = Fragment::of(packet, interface)?;
        let expired = |pending: &Pending| {
            let waited_ns = time_ns.abs_diff(pending.whole_ns.unwrap_or(pending.since_ns));
            let limit = if pending.whole_ns.is_some() {
                REPEATED
            } else {
                WAITED
            };
            u128::from(waited_ns) > limit.as_nanos()
        };
        if self.pending.get(&fragment.key).is_some_and(expired) {
            self.forget(fragment.key);
        }
        if !self.pending.contains_key(&fragment.key) {
            self.begin(fragment.key, time_ns);
        }
        let pending = self.pending.get_mut(&fragment.key)?;
        if pending.whole_ns.is_some() {
            // A mirror port's second copy.
            return None;
        }
        pending.add(fragment);
        let total = pending.total?;
        if pending.ranges != [(0, total)] {
            return None;
        }
        let found = pending.decode(total, out);
        pending.whole_ns = Some(time_ns);
        pending.pieces = Vec::new();
        self.counts.whole += 1;
        Some(found)
    }

    /// Counts until now.
    pub fn counts(&self) -> FragmentCounts {
        let awaited = self.pending.values().filter(|p| p.whole_ns.is_none());
        FragmentCounts {
            incomplete: self.counts.incomplete + awaited.count() as u64,
            ..self.counts
        }
    }

    fn begin(&mut self, key: Key, time_ns: u64) {
        while self.order.len() >= PACKETS_MAX {
            let Some((oldest, serial)) = self.order.pop_front() else {
                break;
            };
            if self
                .pending
                .get(&oldest)
                .is_some_and(|p| p.serial == serial)
            {
                self.forget(oldest);
            }
        }
        self.begun += 1;
        let pending = Pending {
            serial: self.begun,
            since_ns: time_ns,
            ..Pending::default()
        };
        self.order.push_back((key, self.begun));
        self.pending.insert(key, pending);
    }

    fn forget(&mut self, key: Key) {
        let gone = self.pending.remove(&key);
        self.counts.incomplete += u64::from(gone.is_some_and(|p| p.whole_ns.is_none()));
    }
}

impl Pending {
    fn add(&mut self, fragment: Fragment<'_>) {
        let Fragment { from, to, .. } = fragment;
        if fragment.last && self.total.is_none() {
            self.total = Some(to);
        }
        if from == 0 && self.header.is_empty() {
            self.header = fragment.header;
        }
        let at = from as usize;
        if at < HEAD_BYTES_MAX && self.pieces.len() < RANGES_MAX {
            let kept = fragment.content.len().min(HEAD_BYTES_MAX - at);
            let content = fragment.content.get(..kept).unwrap_or_default();
            self.pieces.push((at, content.to_vec()));
        }
        if self.ranges.len() < RANGES_MAX {
            self.ranges.push((from, to));
            self.ranges.sort_unstable();
            self.ranges.dedup_by(|next, before| {
                let joined = next.0 <= before.1;
                if joined {
                    before.1 = before.1.max(next.1);
                }
                joined
            });
        }
    }

    /// The packet as it was before it was cut.
    fn decode(&self, total: u32, out: &mut Segment) -> Decoded {
        let mut packet = self.header.clone();
        let begin = packet.len();
        let length = begin + total as usize;
        match u8_at(&packet, 0) >> 4 {
            4 if length <= usize::from(u16::MAX) => {
                put_u16(&mut packet, 2, u16::try_from(length).unwrap_or(0));
            }
            6 if total <= u32::from(u16::MAX) => {
                put_u16(&mut packet, 4, u16::try_from(total).unwrap_or(0));
            }
            // Longer than a packet can be.
            _ => return Decoded::Malformed,
        }
        let mut known = 0;
        let mut content = vec![0; HEAD_BYTES_MAX.min(total as usize)];
        // Later pieces first, so that those which came before lie over them.
        for (at, piece) in self.pieces.iter().rev() {
            let kept = content.len().saturating_sub(*at).min(piece.len());
            put(&mut content, *at, piece.get(..kept).unwrap_or_default());
        }
        let mut order: Vec<_> = self
            .pieces
            .iter()
            .map(|(at, piece)| (*at, at + piece.len()))
            .collect();
        order.sort_unstable();
        for (from, to) in order {
            if from <= known {
                known = known.max(to);
            }
        }
        content.truncate(known);
        packet.extend(content);
        decode(
            LinkType::RAW,
            &packet,
            u32::try_from(length).unwrap_or(u32::MAX),
            out,
        )
    }
}

impl<'a> Fragment<'a> {
    fn of(packet: &'a [u8], interface: u32) -> Option<Self> {
        match u8_at(packet, 0) >> 4 {
            4 => Self::of_4(packet, interface),
            6 => Self::of_6(packet, interface),
            _ => None,
        }
    }

    fn of_4(packet: &'a [u8], interface: u32) -> Option<Self> {
        let header_bytes = usize::from(u8_at(packet, 0) & 15) * 4;
        let mut header = packet.get(..header_bytes)?.to_vec();
        let key = Key {
            source: mapped(array_at(packet, 12)?),
            destination: mapped(array_at(packet, 16)?),
            id: u32::from(u16_at(packet, 4)),
            protocol: u8_at(packet, 9),
            interface,
        };
        let field = u16_at(packet, 6);
        let bytes = usize::from(u16_at(packet, 2)).checked_sub(header_bytes)?;
        put_u16(&mut header, 6, 0);
        let content = packet.get(header_bytes..)?;
        let more = field & 0x2000 != 0;
        Self::checked(
            key,
            header,
            content,
            bytes,
            u32::from(field & 0x1fff) * 8,
            more,
        )
    }

    fn of_6(packet: &'a [u8], interface: u32) -> Option<Self> {
        let all = Snapped {
            bytes: packet,
            missing: 0,
        };
        let (number, at) = extensions(all, u8_at(packet, 6)).ok()?;
        if number != ipv6::FRAGMENT {
            return None;
        }
        let next = u8_at(packet, at);
        let key = Key {
            source: array_at(packet, 8)?,
            destination: array_at(packet, 24)?,
            id: u32_at(packet, at + 4),
            // Only the first fragment's counts (RFC 8200 section 4.5).
            protocol: protocol::IPV6,
            interface,
        };
        // Headers before the fragment's own are of the way, not of the packet.
        let mut header = packet.get(..ipv6::HEADER_BYTES)?.to_vec();
        put(&mut header, 6, &[next]);
        let field = u16_at(packet, at + 2);
        let bytes = usize::from(u16_at(packet, 4)) + ipv6::HEADER_BYTES;
        let bytes = bytes.checked_sub(at + 8)?;
        let content = packet.get(at + 8..)?;
        Self::checked(
            key,
            header,
            content,
            bytes,
            u32::from(field & 0xfff8),
            field & 1 != 0,
        )
    }

    /// Of a length that the packet states; padding behind it is no content.
    fn checked(
        key: Key,
        header: Vec<u8>,
        content: &'a [u8],
        bytes: usize,
        from: u32,
        more: bool,
    ) -> Option<Self> {
        let to = from.checked_add(u32::try_from(bytes).ok()?)?;
        // All but the last are of whole units, and none is empty.
        (bytes > 0 && (!more || bytes.is_multiple_of(8))).then(|| Self {
            key,
            header,
            content: content.get(..bytes).unwrap_or(content),
            from,
            to,
            last: !more,
        })
    }
}

/// Content that is kept of a packet: four tunnels with their headers, IPv6 and TCP with options.
const HEAD_BYTES_MAX: usize = 384;
/// Packets that are awaited at once.
const PACKETS_MAX: usize = 2048;
/// Holes of a packet, and pieces of its head; a packet of more is given up.
const RANGES_MAX: usize = 64;
/// Linux waits so long.
const WAITED: Duration = Duration::from_secs(30);
/// A fragment of a packet that was whole is a copy for so long; then its number is another's.
const REPEATED: Duration = Duration::from_millis(1);
