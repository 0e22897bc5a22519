//! Parallel streams: connections from one host to another at the same time. In which order they send
//! within each round trip, and how evenly over time.

use std::collections::{BTreeMap, HashMap};

use explain::spacing::{Sections, order_kept};
use report::model::{TraceRaster, TraceStreams};
use units::{Duration, Instant};
use wire::segment::{FlowKey, Segment};

use crate::names::address;
use crate::ranking::Judged;

/// Streams that are counted together.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) file: u32,
    ends: [[u8; 16]; 2],
    members: Vec<Member>,
    by_key: HashMap<(u32, FlowKey), Vec<u16>>,
    rtt: Duration,
    /// While all of them were there, from the first one's begin on.
    together: [Duration; 2],
    sections: Option<Sections>,
}

#[derive(Debug)]
struct Member {
    /// Place among the connections that are kept.
    of: usize,
    sender: u8,
    first_frame: u64,
    last_frame: u64,
}

/// File, interface, and the addresses of sender and receiver.
type Between = (u32, u32, [[u8; 16]; 2]);

/// Hosts between which two or more of the connections ran at the same time.
pub(crate) fn groups(kept: &[Judged]) -> Vec<Group> {
    let mut between: BTreeMap<Between, Vec<usize>> = BTreeMap::new();
    for (of, judged) in kept.iter().enumerate() {
        let c = &judged.connection;
        let [low, high] = c.flow.addresses;
        let ends = match judged.passive.sender {
            0 => [low, high],
            _ => [high, low],
        };
        let key = (judged.file, c.interface, ends);
        between.entry(key).or_default().push(of);
    }
    let groups = between.into_iter().filter_map(|((file, _, ends), mut of)| {
        let carried = |n: &usize| kept.get(*n).map_or(0, Judged::carried);
        let most = of.iter().map(carried).max().unwrap_or(0);
        // A control connection beside a transfer is no stream of it.
        of.retain(|n| carried(n) >= most / STREAM_SHARE);
        of.truncate(STREAMS_MAX);
        Group::new(file, ends, &of, kept)
    });
    groups.take(GROUPS_MAX).collect()
}

impl Group {
    fn new(file: u32, ends: [[u8; 16]; 2], of: &[usize], kept: &[Judged]) -> Option<Self> {
        let all = || of.iter().filter_map(|&n| kept.get(n));
        let begins = |j: &Judged| j.connection.first.time;
        let ends_at = |j: &Judged| j.connection.last.time;
        // What began after the others had ended is no parallel stream.
        let shared_from = all().map(begins).max()?;
        let shared_to = all().map(ends_at).min()?;
        if of.len() < 2 || shared_from >= shared_to {
            return None;
        }
        let (begun, ended) = (all().map(begins).min()?, all().map(ends_at).max()?);
        let rtt = all().map(|j| {
            let side = &j.connection.sides[usize::from(j.passive.sender)];
            side.rtt_ahead.unwrap_or_default() + side.rtt_behind.unwrap_or_default()
        });
        let rtt = rtt.min().unwrap_or_default();
        let span = ended.saturating_since(begun);
        let cells = CELLS_ALL / GROUPS_MAX / of.len();
        let shortest = span.as_ns().div_ceil(cells as u64);
        let length = (rtt.as_ns() / STEPS)
            .max(span.as_ns() / FINEST)
            .max(shortest);
        let length = Duration::from_ns(length.max(1));
        let mut by_key: HashMap<(u32, FlowKey), Vec<u16>> = HashMap::new();
        let mut members = Vec::new();
        for (&n, number) in of.iter().zip(0_u16..) {
            let judged = kept.get(n)?;
            let c = &judged.connection;
            let numbers = by_key.entry((c.interface, c.flow)).or_default();
            numbers.push(number);
            members.push(Member {
                of: n,
                sender: judged.passive.sender,
                first_frame: c.first.frame,
                last_frame: c.last.frame,
            });
        }
        Some(Self {
            file,
            ends,
            rtt,
            together: [shared_from, shared_to].map(|at| at.saturating_since(begun)),
            sections: Sections::new(begun, span, length, members.len()).ok(),
            members,
            by_key,
        })
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = (u32, FlowKey)> + '_ {
        self.by_key.keys().copied()
    }

    pub(crate) fn take(
        &mut self,
        at: Instant,
        frame: u64,
        key: &(u32, FlowKey),
        segment: &Segment,
    ) {
        let (Some(numbers), Some(sections)) = (self.by_key.get(key), &mut self.sections) else {
            return;
        };
        for &number in numbers {
            let Some(member) = self.members.get(usize::from(number)) else {
                continue;
            };
            let own = (member.first_frame..=member.last_frame).contains(&frame);
            if own && segment.from == member.sender && segment.payload_bytes > 0 {
                sections.data(at, number, segment.payload_bytes);
            }
        }
    }

    /// For the report; `finest` is what the stamps of a connection tell apart, where that is known.
    pub(crate) fn found(&self, finest: &dyn Fn(usize) -> Option<Duration>) -> TraceStreams {
        let mut told = TraceStreams {
            sender: address(self.ends[0]),
            receiver: address(self.ends[1]),
            connections: self
                .members
                .iter()
                .map(|m| u32::try_from(m.of + 1).unwrap_or(u32::MAX))
                .collect(),
            rtt_ns: self.rtt.as_ns(),
            ..TraceStreams::default()
        };
        let Some(sections) = &self.sections else {
            told.refused = Some("they lasted too long to be looked at together".to_owned());
            return told;
        };
        told.section_ns = sections.length().as_ns();
        let finest = self.members.iter().filter_map(|m| finest(m.of)).max();
        let sixteenth = Duration::from_ns(self.rtt.as_ns() / 16);
        if let Some(finest) = finest.filter(|f| *f > sixteenth) {
            told.refused = Some(format!(
                "the stamps tell {finest} apart, which is more than a sixteenth of the round trip of {}: \
                 an order would be theirs",
                self.rtt
            ));
        } else if self.rtt.as_ns() / sections.length().as_ns().max(1) < 8 {
            told.refused = Some(format!(
                "sections of {} are too long for the order within round trips of {}",
                sections.length(),
                self.rtt
            ));
        } else {
            let rounds = sections.rounds(self.rtt);
            told.rounds = rounds.len() as u64;
            told.order_kept = order_kept(&rounds);
            let first = rounds.iter().take(ORDERS_MAX);
            told.orders = first.map(|r| (r.begins.as_ns(), r.order.clone())).collect();
        }
        self.balance(sections, &mut told);
        told.rasters = self.rasters(sections);
        told
    }

    /// Least against mean while all of them were there.
    fn balance(&self, sections: &Sections, told: &mut TraceStreams) {
        let length = sections.length().as_ns();
        let place = |d: Duration| usize::try_from(d.as_ns() / length).unwrap_or(usize::MAX);
        let (from, to) = (place(self.together[0]), place(self.together[1]));
        let to = to.saturating_add(1).min(sections.len());
        // A round trip at least: within one, streams take turns.
        let round = usize::try_from(self.rtt.as_ns().div_ceil(length)).unwrap_or(1);
        let width = to.saturating_sub(from).div_ceil(COLUMNS).max(round).max(1);
        told.balance_ns = length.saturating_mul(width as u64);
        let sums = |from: usize, to: usize| -> Vec<u64> {
            let of = |stream| (from..to).map(|n| sections.bytes(n, stream).as_u64()).sum();
            (0..self.members.len()).map(of).collect()
        };
        let columns = (from..to).step_by(width);
        told.balance = columns
            .map(|begin| least_of_mean(&sums(begin, (begin + width).min(to))))
            .collect();
        told.balance_all = least_of_mean(&sums(from, to));
    }

    /// The whole time, and four round trips from its middle on.
    fn rasters(&self, sections: &Sections) -> Vec<TraceRaster> {
        let raster = |from: usize, to: usize| {
            let width = to.saturating_sub(from).div_ceil(COLUMNS).max(1);
            let row = |stream| {
                let column = |begin: usize| {
                    let of = begin..(begin + width).min(to);
                    of.map(|n| sections.bytes(n, stream).as_u64()).sum()
                };
                (from..to).step_by(width).map(column).collect()
            };
            TraceRaster {
                begins_ns: from as u64 * sections.length().as_ns(),
                column_ns: sections.length().as_ns().saturating_mul(width as u64),
                rows: (0..self.members.len()).map(row).collect(),
            }
        };
        let all = sections.len();
        let four = self.rtt.as_ns().saturating_mul(4) / sections.length().as_ns().max(1);
        let four = usize::try_from(four).unwrap_or(usize::MAX);
        let mut rasters = vec![raster(0, all)];
        if four >= 32 && four.saturating_mul(2) < all {
            rasters.push(raster(all / 2, (all / 2 + four).min(all)));
        }
        rasters
    }
}

/// 1 where all sent alike; `None` where nobody sent.
fn least_of_mean(sums: &[u64]) -> Option<f64> {
    let (least, all) = (*sums.iter().min()?, sums.iter().sum::<u64>());
    (all > 0).then(|| least as f64 * sums.len() as f64 / all as f64)
}

/// Columns of pictures and of balance.
const COLUMNS: usize = 256;
/// Sections of a round trip.
const STEPS: u64 = 64;
/// Sections of the whole time are no more than this.
const FINEST: u64 = 1 << 20;
const STREAMS_MAX: usize = 128;
/// A stream carries this part at least of what the largest carries.
const STREAM_SHARE: u64 = 100;
const GROUPS_MAX: usize = 4;
/// Sections of all groups, 16 B each.
const CELLS_ALL: usize = 8 << 20;
const ORDERS_MAX: usize = 100;

#[cfg(test)]
pub(crate) mod tests {
    use explain::passive;
    use explain::trace::{Connection, Limits, Tracker};
    use wire::tcp::Flags;

    use super::*;

    const BEGUN: Instant = Instant::from_ns(1_000_000_000);

    /// A connection from port `port` of one host to another that lasted so long.
    pub(crate) fn judged(file: u32, port: u16, lasts: Duration, rtt: Duration) -> Judged {
        let mut ended: Vec<Connection> = Vec::new();
        let mut tracker = Tracker::new(Limits::default(), |c| ended.push(c));
        let flow = FlowKey {
            addresses: [[1; 16], [2; 16]],
            ports: [port, 5201],
        };
        let mut take = |after: Duration, from, flags, payload_bytes, sequence, acknowledgment| {
            let segment = Segment {
                flow,
                from,
                flags,
                payload_bytes,
                sequence,
                acknowledgment,
                window: 60_000,
                ..Segment::default()
            };
            tracker.take(BEGUN + after, 1, 0, &segment);
        };
        let (syn, ack) = (Flags::SYN, Flags::ACK);
        take(Duration::ZERO, 0, syn, 0, 0, 0);
        take(rtt, 1, syn.with(ack), 0, 0, 1);
        take(rtt, 0, ack, 1_448, 1, 1);
        take(rtt + rtt, 1, ack, 0, 1, 1_449);
        take(lasts, 0, ack, 1_448, 1_449, 1);
        tracker.finish();
        drop(tracker);
        let connection = ended.remove(0);
        Judged {
            file,
            begins: BEGUN,
            passive: passive::judge(&connection).unwrap(),
            connection,
        }
    }

    fn three(lasts: u64) -> Vec<Judged> {
        let (lasts, rtt) = (Duration::from_ms(lasts), Duration::from_ms(64));
        (1..=3).map(|port| judged(0, port, lasts, rtt)).collect()
    }

    #[test]
    fn streams_of_two_hosts_are_a_group_and_one_alone_is_none() {
        let kept = three(1_000);
        let found = groups(&kept);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].found(&|_| None).connections, [1, 2, 3]);
        assert!(groups(&kept[..1]).is_empty());
        // One that carries next to nothing is none of them.
        let mut uneven = three(1_000);
        let bytes = uneven[0].connection.sides[0].unique_bytes;
        uneven[0].connection.sides[0].unique_bytes = bytes * 100;
        assert_eq!(groups(&uneven)[0].members.len(), 3);
        uneven[0].connection.sides[0].unique_bytes = (bytes + 1) * 100;
        assert!(groups(&uneven).is_empty());
        // In two files they are not side by side.
        let mut apart = three(1_000);
        apart[1].file = 1;
        apart[2].file = 2;
        assert!(groups(&apart).is_empty());
    }

    #[test]
    fn order_and_balance_are_told_while_all_are_there() {
        let kept = three(6_400);
        let mut group = groups(&kept).remove(0);
        for round in 0..100_u64 {
            for (turn, stream) in (0_u64..).zip([1_usize, 0, 2]) {
                let after = Duration::from_ms(round * 64 + 10 * turn + 5);
                let c = &kept[stream].connection;
                let key = (c.interface, c.flow);
                let segment = Segment {
                    payload_bytes: if stream == 2 { 1_000 } else { 2_000 },
                    ..Segment::default()
                };
                group.take(BEGUN + after, 1, &key, &segment);
            }
        }
        let told = group.found(&|_| Some(Duration::from_us(3)));
        assert_eq!(told.refused, None);
        assert!(told.orders.iter().all(|(_, order)| order == &[1, 0, 2]));
        assert_eq!((told.order_kept, told.rounds), (Some(1.0), 100));
        let all = told.balance_all.unwrap();
        assert!((all - 0.6).abs() < 1e-9, "{all}");
        assert_eq!(told.rasters.len(), 2);
        assert_eq!(told.rasters[0].rows.len(), 3);
        assert_eq!(told.rasters[0].rows[0].iter().sum::<u64>(), 200_000);
    }

    #[test]
    fn stamps_coarser_than_a_sixteenth_of_a_round_trip_tell_no_order() {
        let kept = three(6_400);
        let group = groups(&kept).remove(0);
        assert_eq!(group.found(&|_| Some(Duration::from_ms(4))).refused, None);
        let coarse = group.found(&|_| Some(Duration::from_us(4_001)));
        assert!(coarse.refused.unwrap().contains("4.001 ms"));
        assert!(coarse.orders.is_empty());
    }

    #[test]
    fn the_least_is_held_against_the_mean() {
        assert_eq!(least_of_mean(&[5, 5, 5]), Some(1.0));
        assert_eq!(least_of_mean(&[0, 5]), Some(0.0));
        assert_eq!(least_of_mean(&[0, 0]), None);
        assert_eq!(least_of_mean(&[]), None);
    }
}
