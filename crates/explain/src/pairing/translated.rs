//! Connections whose addresses or ports were translated between two captures (NAT, RFC 3022), found again
//! by what a translator leaves alone: the initial numbers of both sides and, where the handshake is in none
//! of the captures, numbers and time stamps of packets.
//!
//! A pair of initial numbers is drawn at random by both ends (RFC 9293 section 3.4.1), so 2^17 connections of
//! one capture and as many of another share one by chance once in 10^9. Packets without a handshake count
//! from three of them on. Where one capture has a connection under two names, as on a router with both of its
//! sides, the name that the other one has counts, and nothing is translated.
//!
//! Left out: ports that one translator gives to two connections in turn (the first one counts), proxies and
//! firewalls that draw numbers of their own (these are other connections), and TCP within tunnels.

use std::collections::{BTreeMap, HashMap};

use units::Instant;
use wire::segment::{FlowKey, Segment};
use wire::tcp::Flags;

/// What of a capture names its connections without addresses.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// By the initial numbers of who called and who answered.
    handshakes: HashMap<(u32, u32), Named>,
    /// Packets with the smallest numbers, as of [`super::Anchors`].
    packets: BTreeMap<u64, Named>,
}

/// Under which name something was seen.
#[derive(Clone, Copy, Debug)]
struct Named {
    time_ns: u64,
    flow: FlowKey,
    from: u8,
    /// Another connection of the same capture has it, too.
    other: Option<FlowKey>,
}

/// One connection under two names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Translated {
    /// In the near capture.
    pub near: FlowKey,
    /// In the far one.
    pub far: FlowKey,
    /// The near one's lower end is the far one's higher end.
    pub is_turned: bool,
}

/// Connections that two captures have under different names.
#[derive(Clone, Debug, Default)]
pub struct Translations {
    list: Vec<Translated>,
    by_far: HashMap<FlowKey, (FlowKey, u8)>,
    ahead_ns: i64,
}

/// What speaks for a pair of names.
#[derive(Clone, Copy, Debug, Default)]
struct Evidence {
    handshake: bool,
    packets: u32,
}

impl Names {
    /// Looks at a packet.
    #[inline]
    pub fn take(&mut self, time: Instant, segment: &Segment) {
        if segment.flags.contains(Flags::SYN) {
            return self.on_syn(time, segment);
        }
        let number = number(segment);
        let largest = self.packets.last_key_value().map(|(k, _)| *k);
        if self.packets.len() >= PACKETS_MAX && largest.is_some_and(|largest| number > largest) {
            return;
        }
        let named = Named::of(time, segment);
        let before = self.packets.entry(number).or_insert(named);
        before.is_also(segment.flow);
        if self.packets.len() > PACKETS_MAX {
            self.packets.pop_last();
        }
    }

    /// A SYN-ACK has both numbers.
    fn on_syn(&mut self, time: Instant, segment: &Segment) {
        if !segment.flags.contains(Flags::ACK) {
            return;
        }
        let key = (segment.acknowledgment.wrapping_sub(1), segment.sequence);
        if let Some(before) = self.handshakes.get_mut(&key) {
            before.is_also(segment.flow);
        } else if self.handshakes.len() < HANDSHAKES_MAX {
            self.handshakes.insert(key, Named::of(time, segment));
        }
    }

    /// Which connections of this capture, the near one, `far` has under other names.
    pub fn translations(&self, far: &Self) -> Translations {
        let mut pairs: HashMap<Translated, Evidence> = HashMap::new();
        for (key, near) in &self.handshakes {
            if let Some(pair) = far.handshakes.get(key).and_then(|far| near.pair(far)) {
                pairs.entry(pair).or_default().handshake = true;
            }
        }
        for (number, near) in &self.packets {
            if let Some(pair) = far.packets.get(number).and_then(|far| near.pair(far)) {
                pairs.entry(pair).or_default().packets += 1;
            }
        }
        pairs.retain(|_, e| e.handshake || e.packets >= PACKETS_MIN);
        let mut best: Vec<(Translated, Evidence)> = pairs.into_iter().collect();
        best.sort_by_key(|(pair, e)| (std::cmp::Reverse((e.handshake, e.packets)), *pair));
        let mut found = Translations::default();
        let mut taken = HashMap::new();
        for (pair, _) in best {
            if taken.contains_key(&pair.near) || found.by_far.contains_key(&pair.far) {
                continue;
            }
            taken.insert(pair.near, pair.far);
            let turned = u8::from(pair.is_turned);
            found.by_far.insert(pair.far, (pair.near, turned));
            found.list.push(pair);
        }
        found.list.sort_unstable();
        found.ahead_ns = self.ahead_ns(far, &taken);
        found
    }

    /// How much later `far` has what it has under these names, in the middle.
    fn ahead_ns(&self, far: &Self, names: &HashMap<FlowKey, FlowKey>) -> i64 {
        let apart = |near: &Named, far: Option<&Named>| {
            let far = far.filter(|far| names.get(&near.flow) == Some(&far.flow))?;
            Some(super::apart_ns(near.time_ns, far.time_ns))
        };
        let handshakes = self.handshakes.iter();
        let handshakes = handshakes.filter_map(|(k, near)| apart(near, far.handshakes.get(k)));
        let packets = self.packets.iter();
        let packets = packets.filter_map(|(k, near)| apart(near, far.packets.get(k)));
        let mut all: Vec<i64> = handshakes.chain(packets).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or(0)
    }
}

impl Named {
    fn of(time: Instant, segment: &Segment) -> Self {
        Self {
            time_ns: time.as_ns(),
            flow: segment.flow,
            from: segment.from & 1,
            other: None,
        }
    }

    fn is_also(&mut self, flow: FlowKey) {
        if flow != self.flow {
            self.other = Some(flow);
        }
    }

    /// The two names, where each capture has one and they differ.
    fn pair(&self, far: &Self) -> Option<Translated> {
        let differ = self.flow != far.flow && self.other.is_none() && far.other.is_none();
        differ.then_some(Translated {
            near: self.flow,
            far: far.flow,
            is_turned: self.from != far.from,
        })
    }
}

impl Translations {
    /// Them, in the order of the near names.
    pub fn list(&self) -> &[Translated] {
        &self.list
    }

    /// How much later the far capture has their packets, in the middle: clocks and delay together.
    pub const fn ahead_ns(&self) -> i64 {
        self.ahead_ns
    }

    /// Gives a packet of the far capture the name that the near one has.
    #[inline]
    pub fn apply(&self, segment: &mut Segment) {
        if self.by_far.is_empty() {
            return;
        }
        if let Some((near, turned)) = self.by_far.get(&segment.flow) {
            segment.flow = *near;
            segment.from ^= turned;
        }
    }

    /// The far name of a connection, by its near one.
    pub fn far_of(&self, near: &FlowKey) -> Option<&Translated> {
        let place = self.list.binary_search_by_key(near, |t| t.near).ok()?;
        self.list.get(place)
    }
}

impl Translated {
    /// An end of the near name and what it became: its address and port.
    pub fn end(&self, near_end: usize) -> ([u8; 16], u16) {
        let far_end = (near_end & 1) ^ usize::from(self.is_turned);
        (self.far.addresses[far_end], self.far.ports[far_end])
    }
}

/// Of what a translator leaves alone, mixed (the finaliser of SplitMix64, G. Steele et al., OOPSLA 2014). Whoever
/// makes packets with one number makes one packet of them.
#[inline]
fn number(segment: &Segment) -> u64 {
    let (value, echo) = segment.timestamps.unwrap_or_default();
    let numbers = u64::from(segment.sequence) << 32 | u64::from(segment.acknowledgment);
    let stamps = u64::from(value) << 32 | u64::from(echo);
    let has_payload = u64::from(segment.payload_bytes > 0);
    mixed(numbers ^ mixed(stamps.wrapping_add(has_payload)))
}

const fn mixed(value: u64) -> u64 {
    let mut v = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    v = (v ^ (v >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    v = (v ^ (v >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    v ^ (v >> 31)
}

/// 13 MB.
const HANDSHAKES_MAX: usize = 1 << 17;
const PACKETS_MAX: usize = 8_192;
/// One or two may be by chance.
const PACKETS_MIN: u32 = 3;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLIENT: ([u8; 16], u16) = ([10; 16], 40_000);
    const SERVER: ([u8; 16], u16) = ([30; 16], 443);
    /// Above the server's, so that the ends change places.
    const OUTSIDE: ([u8; 16], u16) = ([40; 16], 61_000);

    fn packet(client: ([u8; 16], u16), up: bool, sequence: u32, flags: Flags) -> Segment {
        let (source, destination) = if up {
            (client, SERVER)
        } else {
            (SERVER, client)
        };
        let (flow, from) = FlowKey::of(source, destination);
        Segment {
            flow,
            from,
            sequence,
            acknowledgment: 7_001,
            flags,
            ..Segment::default()
        }
    }

    fn names(client: ([u8; 16], u16), ahead_ns: u64, packets: u32) -> Names {
        let mut names = Names::default();
        let answer = packet(client, false, 99, Flags::SYN.with(Flags::ACK));
        names.take(Instant::from_ns(1_000 + ahead_ns), &answer);
        for n in 0..packets {
            let one = packet(client, true, 7_001 + n, Flags::ACK);
            names.take(Instant::from_ns(2_000 + u64::from(n) + ahead_ns), &one);
        }
        names
    }

    #[test]
    fn a_handshake_tells_what_an_address_became() {
        let found = names(CLIENT, 0, 0).translations(&names(OUTSIDE, 500, 0));
        assert_eq!(found.list().len(), 1);
        assert_eq!(found.ahead_ns(), 500);
        let one = found.list()[0];
        assert!(one.is_turned);
        assert_eq!(one.end(0), OUTSIDE);
        assert_eq!(one.end(1), SERVER);
        let mut far = packet(OUTSIDE, true, 7_001, Flags::ACK);
        let near = packet(CLIENT, true, 7_001, Flags::ACK);
        found.apply(&mut far);
        assert_eq!((far.flow, far.from), (near.flow, near.from));
        assert_eq!(found.far_of(&near.flow), Some(&one));
        assert_eq!(found.far_of(&one.far), None);
    }

    #[test]
    fn three_packets_do_without_a_handshake_and_two_do_not() {
        let bare = |client, packets| {
            let mut all = names(client, 0, packets);
            all.handshakes.clear();
            all
        };
        let found = |packets| {
            let both = [bare(CLIENT, packets), bare(OUTSIDE, packets)];
            both[0].translations(&both[1]).list().len()
        };
        assert_eq!((found(2), found(3)), (0, 1));
    }

    #[test]
    fn one_name_in_both_is_no_translation() {
        let found = names(CLIENT, 0, 10).translations(&names(CLIENT, 5, 10));
        assert!(found.list().is_empty());
        // A router's capture has both names.
        let mut both = names(CLIENT, 0, 10);
        let answer = packet(OUTSIDE, false, 99, Flags::SYN.with(Flags::ACK));
        both.take(Instant::from_ns(3_000), &answer);
        for n in 0..10 {
            let one = packet(OUTSIDE, true, 7_001 + n, Flags::ACK);
            both.take(Instant::from_ns(4_000), &one);
        }
        assert!(both.translations(&names(OUTSIDE, 0, 10)).list().is_empty());
    }

    #[test]
    fn of_two_that_claim_one_name_the_one_with_more_evidence_has_it() {
        // The handshake's ports, and packets of another connection at them.
        let near = names(CLIENT, 0, 0);
        let mut far = names(OUTSIDE, 0, 0);
        let mut other = names(([11; 16], 1), 0, 20);
        other.handshakes.clear();
        let mut near_both = near;
        near_both.packets.extend(other.packets);
        for n in 0..20 {
            far.take(
                Instant::from_ns(1),
                &packet(OUTSIDE, true, 7_001 + n, Flags::ACK),
            );
        }
        let found = near_both.translations(&far);
        assert_eq!(found.list().len(), 1);
        assert_eq!(found.list()[0].near.ports, [40_000, 443]);
    }

    proptest! {
        #[test]
        fn any_packets_give_each_name_once(
            near in prop::collection::vec((0_u8..4, 0_u32..6, 0_u32..4, any::<u8>()), 0..200),
            far in prop::collection::vec((0_u8..4, 0_u32..6, 0_u32..4, any::<u8>()), 0..200),
        ) {
            let take = |packets: &[(u8, u32, u32, u8)]| {
                let mut names = Names::default();
                for (address, sequence, acknowledgment, flags) in packets {
                    let (flow, from) = FlowKey::of(([*address; 16], 1), ([2; 16], 2));
                    let segment = Segment {
                        flow,
                        from,
                        sequence: *sequence,
                        acknowledgment: *acknowledgment,
                        flags: match flags % 3 {
                            0 => Flags::SYN.with(Flags::ACK),
                            1 => Flags::SYN,
                            _ => Flags::ACK,
                        },
                        ..Segment::default()
                    };
                    names.take(Instant::from_ns(u64::from(*flags)), &segment);
                }
                names
            };
            let found = take(&near).translations(&take(&far));
            let mut names: Vec<_> = found.list().iter().map(|t| t.near).collect();
            names.dedup();
            prop_assert_eq!(names.len(), found.list().len());
            let far: std::collections::HashSet<_> = found.list().iter().map(|t| t.far).collect();
            prop_assert_eq!(far.len(), found.list().len());
            prop_assert!(found.list().iter().all(|t| t.near != t.far));
        }
    }
}
