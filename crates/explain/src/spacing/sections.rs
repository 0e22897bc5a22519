//! What each of several streams sent in sections of time of one length, and what follows from it: rates,
//! balance, where in a round trip the packets lie, and in which order the streams send.

use units::{Bytes, Duration, Instant, Rate};

/// Packets and bytes by section and stream.
#[derive(Clone, Debug)]
pub struct Sections {
    length: Duration,
    begun: Instant,
    streams: usize,
    /// Section after section, a cell for each stream.
    cells: Vec<Cell>,
    /// Packets before the beginning or beyond the last section that fits.
    outside: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    bytes: u32,
    data: u32,
    acks: u32,
    /// From the section's beginning to the first data packet, in ns, where there is one.
    first_ns: u32,
}

/// More sections would be needed than are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany {
    /// The shortest sections that would do.
    pub shortest: Duration,
}

/// Packets by their place within a round trip, all round trips together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Phase {
    /// Sections of a round trip.
    pub data: Vec<u64>,
    /// Likewise, of those without payload that the other side sent.
    pub acks: Vec<u64>,
}

/// One round trip of parallel streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Its beginning, from the first packet on.
    pub begins: Duration,
    /// Streams that sent, by the time of their first packet.
    pub order: Vec<u16>,
    /// That time, from the round's beginning, in the same order.
    pub first: Vec<Duration>,
}

impl Sections {
    /// Sections of `length` from `begun` on, over `span`, for `streams` streams.
    ///
    /// # Errors
    /// [`TooMany`] when that makes more than 4 million cells (64 MiB) or a section is longer than 4.2 s.
    pub fn new(
        begun: Instant,
        span: Duration,
        length: Duration,
        streams: usize,
    ) -> Result<Self, TooMany> {
        let streams = streams.clamp(1, usize::from(u16::MAX));
        let most = (CELLS_MAX / streams).max(1) as u64;
        let shortest = Duration::from_ns(span.as_ns().div_ceil(most).max(1));
        if length < shortest || length > LONGEST {
            return Err(TooMany { shortest });
        }
        let sections = usize::try_from(span.as_ns() / length.as_ns() + 1).unwrap_or(usize::MAX);
        Ok(Self {
            length,
            begun,
            streams,
            cells: vec![Cell::default(); sections.min(CELLS_MAX / streams + 1) * streams],
            outside: 0,
        })
    }

    /// A packet of `stream` with `payload_bytes`, sent by the stream's sender.
    pub fn data(&mut self, at: Instant, stream: u16, payload_bytes: u32) {
        let Some((cell, into)) = self.cell(at, stream) else {
            return;
        };
        if cell.data == 0 || into < cell.first_ns {
            cell.first_ns = into;
        }
        cell.bytes = cell.bytes.saturating_add(payload_bytes);
        cell.data = cell.data.saturating_add(1);
    }

    /// A packet of `stream` from its receiver.
    pub fn ack(&mut self, at: Instant, stream: u16) {
        if let Some((cell, _)) = self.cell(at, stream) {
            cell.acks = cell.acks.saturating_add(1);
        }
    }

    fn cell(&mut self, at: Instant, stream: u16) -> Option<(&mut Cell, u32)> {
        let since = at.saturating_since(self.begun).as_ns();
        let section = usize::try_from(since / self.length.as_ns()).unwrap_or(usize::MAX);
        let inside = at >= self.begun && usize::from(stream) < self.streams;
        let index = section
            .saturating_mul(self.streams)
            .saturating_add(usize::from(stream));
        if !inside || index >= self.cells.len() {
            self.outside += 1;
            return None;
        }
        let into = u32::try_from(since % self.length.as_ns()).unwrap_or(u32::MAX);
        Some((&mut self.cells[index], into))
    }

    /// Packets that fell into no section.
    pub const fn outside(&self) -> u64 {
        self.outside
    }

    /// How long a section is.
    pub const fn length(&self) -> Duration {
        self.length
    }

    /// Sections.
    pub const fn len(&self) -> usize {
        self.cells.len() / self.streams
    }

    /// Never: there is one section at least.
    pub const fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Streams.
    pub const fn streams(&self) -> usize {
        self.streams
    }

    /// Payload of one stream in one section; zero outside.
    pub fn bytes(&self, section: usize, stream: usize) -> Bytes {
        let cell = self.row(section).get(stream);
        Bytes::new(cell.map_or(0, |c| u64::from(c.bytes)))
    }

    /// Its rate.
    pub fn rate(&self, section: usize, stream: usize) -> Rate {
        Rate::average(self.bytes(section, stream), self.length)
    }

    /// How evenly the streams shared one section: 1 when all sent alike, 1 / streams when one sent all
    /// (R. Jain, D. Chiu, W. Hawe, DEC-TR-301, 1984); `None` where nobody sent.
    pub fn fairness(&self, section: usize) -> Option<f64> {
        let sent = self.row(section).iter().map(|c| f64::from(c.bytes));
        let (sum, squares) = sent.fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
        (squares > 0.0).then(|| sum * sum / (self.streams as f64 * squares))
    }

    /// Where the packets lie within a round trip of `rtt`, to a section. Empty when a round trip is less
    /// than two sections.
    pub fn phase(&self, rtt: Duration) -> Phase {
        let steps = self.steps(rtt);
        let mut phase = Phase {
            data: vec![0; steps],
            acks: vec![0; steps],
        };
        if steps < 2 {
            return Phase::default();
        }
        for section in 0..self.len() {
            let place = self.place(section, rtt, steps);
            for cell in self.row(section) {
                phase.data[place] += u64::from(cell.data);
                phase.acks[place] += u64::from(cell.acks);
            }
        }
        phase
    }

    /// Round trips of `rtt`, each from the place on at which the least is sent: the order of the streams
    /// and the time of each one's first packet. Empty when a round trip is less than eight sections: order
    /// would then be chance.
    pub fn rounds(&self, rtt: Duration) -> Vec<Round> {
        let steps = self.steps(rtt);
        if steps < 8 {
            return Vec::new();
        }
        let quiet = self.quiet(rtt, steps);
        let rtt_ns = rtt.as_ns();
        let mut rounds: Vec<Round> = Vec::new();
        let mut number = None;
        let mut seen = vec![false; self.streams];
        for section in 0..self.len() {
            let begins_ns = section as u64 * self.length.as_ns();
            // The round that begins at or before this section; what is before the first is round 0.
            let this = (begins_ns + rtt_ns - quiet * self.length.as_ns() % rtt_ns) / rtt_ns;
            if number != Some(this) {
                number = Some(this);
                seen.fill(false);
                rounds.push(Round {
                    begins: Duration::from_ns(begins_ns),
                    ..Round::default()
                });
            }
            let Some(round) = rounds.last_mut() else {
                continue;
            };
            let row = self.cells[section * self.streams..]
                .iter()
                .take(self.streams);
            let mut came: Vec<(u32, u16)> = row
                .zip(0_u16..)
                .filter(|(cell, stream)| cell.data > 0 && !seen[usize::from(*stream)])
                .map(|(cell, stream)| (cell.first_ns, stream))
                .collect();
            came.sort_unstable();
            for (into, stream) in came {
                seen[usize::from(stream)] = true;
                let at = begins_ns - round.begins.as_ns() + u64::from(into);
                round.order.push(stream);
                round.first.push(Duration::from_ns(at));
            }
        }
        rounds.retain(|r| !r.order.is_empty());
        rounds
    }

    fn row(&self, section: usize) -> &[Cell] {
        let from = section.saturating_mul(self.streams);
        self.cells
            .get(from..)
            .map_or(&[], |rest| &rest[..self.streams])
    }

    /// Whole sections in a round trip.
    fn steps(&self, rtt: Duration) -> usize {
        let steps = usize::try_from(rtt.as_ns() / self.length.as_ns()).unwrap_or(usize::MAX);
        steps.min(self.len())
    }

    /// The step of a round trip in which a section begins.
    fn place(&self, section: usize, rtt: Duration, steps: usize) -> usize {
        let into = section as u64 * self.length.as_ns() % rtt.as_ns();
        usize::try_from(into / self.length.as_ns()).map_or(0, |step| step.min(steps - 1))
    }

    /// The step of a round trip at which the least is sent, over a quarter of a round trip around it.
    fn quiet(&self, rtt: Duration, steps: usize) -> u64 {
        let sent = self.phase(rtt).data;
        let reach = steps / 8;
        let around = |step: usize| -> u64 {
            let near = 0..=2 * reach;
            near.map(|k| sent[(step + steps + k - reach) % steps]).sum()
        };
        (0..steps).min_by_key(|&step| around(step)).unwrap_or(0) as u64
    }
}

/// Share of rounds, from the second on, in which the streams of the round before came in the same order;
/// only streams that sent in both count. `None` where no two rounds have two streams in common.
pub fn order_kept(rounds: &[Round]) -> Option<f64> {
    let (mut compared, mut kept) = (0_u32, 0_u32);
    for pair in rounds.windows(2) {
        let [before, after] = pair else { continue };
        let common = |order: &[u16], other: &[u16]| -> Vec<u16> {
            order
                .iter()
                .copied()
                .filter(|s| other.contains(s))
                .collect()
        };
        let (one, two) = (
            common(&before.order, &after.order),
            common(&after.order, &before.order),
        );
        if one.len() >= 2 {
            compared += 1;
            kept += u32::from(one == two);
        }
    }
    (compared > 0).then(|| f64::from(kept) / f64::from(compared))
}

const CELLS_MAX: usize = 4 << 20;
/// A cell's first packet is known by 32 bits of nanoseconds.
const LONGEST: Duration = Duration::from_ms(4_200);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RTT: Duration = Duration::from_ms(300);

    fn at_us(us: u64) -> Instant {
        Instant::from_ns(us * 1_000)
    }

    /// Four streams over a round trip of 300 ms that send 100 packets each, one stream behind the other in
    /// `order`, from 5 ms into each round trip on; ACKs come 150 ms later.
    fn four_streams(order: [u16; 4], rounds: u64) -> Sections {
        let span = Duration::from_ms(300 * rounds);
        let mut sections = Sections::new(Instant::ZERO, span, Duration::from_ms(5), 4).unwrap();
        for round in 0..rounds {
            for (turn, stream) in (0_u64..).zip(order) {
                for packet in 0..100 {
                    let at = round * 300_000 + 5_000 + turn * 2_000 + packet * 10;
                    sections.data(at_us(at), stream, 1448);
                    sections.ack(at_us(at + 150_000), stream);
                }
            }
        }
        sections
    }

    #[test]
    fn streams_come_in_the_order_in_which_they_send() {
        let rounds = four_streams([0, 2, 1, 3], 10).rounds(RTT);
        assert_eq!(rounds.len(), 10);
        assert!(rounds.iter().all(|r| r.order == [0, 2, 1, 3]), "{rounds:?}");
        let spread = |r: &Round| r.first[3] - r.first[0];
        assert!(rounds.iter().all(|r| spread(r) == Duration::from_ms(6)));
        assert_eq!(order_kept(&rounds), Some(1.0));
    }

    #[test]
    fn another_order_is_no_kept_one() {
        let mut rounds = four_streams([0, 2, 1, 3], 3).rounds(RTT);
        rounds[1].order = vec![0, 1, 2, 3];
        assert_eq!(order_kept(&rounds), Some(0.0));
        // Two streams in common, in the same order.
        rounds[1].order = vec![2, 3];
        assert_eq!(order_kept(&rounds), Some(1.0));
        rounds[1].order = vec![2];
        assert_eq!(order_kept(&rounds), None);
    }

    #[test]
    fn a_burst_across_the_edge_of_a_round_trip_is_one_round() {
        // From 296 ms into each round trip on, over its edge.
        let mut sections = Sections::new(
            Instant::ZERO,
            Duration::from_ms(3_000),
            Duration::from_ms(5),
            2,
        )
        .unwrap();
        for round in 0..9_u64 {
            for packet in 0..80 {
                let at = round * 300_000 + 296_000 + packet * 100;
                sections.data(at_us(at), u16::from(packet >= 40), 1000);
            }
        }
        let rounds = sections.rounds(RTT);
        assert_eq!(rounds.len(), 9);
        assert!(rounds.iter().all(|r| r.order == [0, 1]));
    }

    #[test]
    fn data_and_acks_lie_where_they_were_sent() {
        let phase = four_streams([0, 1, 2, 3], 4).phase(RTT);
        assert_eq!(phase.data.len(), 60);
        assert_eq!(
            (
                phase.data.iter().sum::<u64>(),
                phase.acks.iter().sum::<u64>()
            ),
            (1_600, 1_600)
        );
        assert!(phase.data[0] == 0 && phase.data[1] > 0 && phase.data[3] == 0);
        assert!(phase.acks[30] == 0 && phase.acks[31] == phase.data[1]);
    }

    #[test]
    fn rates_and_fairness_are_by_section() {
        let mut sections = Sections::new(
            Instant::ZERO,
            Duration::from_ms(20),
            Duration::from_ms(5),
            2,
        )
        .unwrap();
        sections.data(at_us(0), 0, 1_000);
        sections.data(at_us(4_999), 1, 1_000);
        sections.data(at_us(5_000), 1, 625_000);
        assert_eq!(sections.fairness(0), Some(1.0));
        assert_eq!(sections.fairness(1), Some(0.5));
        assert_eq!(sections.fairness(2), None);
        assert_eq!(
            sections.rate(1, 1),
            Rate::from_bits_per_second(1_000_000_000)
        );
        assert_eq!(sections.rate(1, 0), Rate::default());
        assert_eq!(sections.bytes(99, 0), Bytes::new(0));
    }

    #[test]
    fn more_sections_than_are_kept_are_refused() {
        let hour = Duration::from_s(3_600);
        let refused = Sections::new(Instant::ZERO, hour, Duration::from_ns(100), 4).unwrap_err();
        assert!(Sections::new(Instant::ZERO, hour, refused.shortest, 4).is_ok());
        let shorter = Duration::from_ns(refused.shortest.as_ns() - 1);
        assert!(Sections::new(Instant::ZERO, hour, shorter, 4).is_err());
        assert!(Sections::new(Instant::ZERO, hour, Duration::from_s(5), 4).is_err());
        assert!(Sections::new(Instant::ZERO, Duration::ZERO, Duration::ZERO, 4).is_err());
    }

    proptest! {
        #[test]
        fn every_packet_is_counted_once(
            times in prop::collection::vec((any::<u32>(), any::<u16>(), any::<bool>()), 0..200),
            rtt_us in 0_u64..10_000_000,
        ) {
            let begun = Instant::from_ns(1_000_000);
            let mut sections =
                Sections::new(begun, Duration::from_s(2), Duration::from_ms(1), 3).unwrap();
            for &(ns, stream, data) in &times {
                let at = Instant::from_ns(u64::from(ns));
                if data { sections.data(at, stream % 4, 1) } else { sections.ack(at, stream % 4) }
            }
            let counted: u64 = sections.cells.iter().map(|c| u64::from(c.data + c.acks)).sum();
            prop_assert_eq!(counted + sections.outside(), times.len() as u64);
            let rtt = Duration::from_us(rtt_us);
            for round in sections.rounds(rtt) {
                prop_assert_eq!(round.order.len(), round.first.len());
            }
            let phase = sections.phase(rtt);
            prop_assert_eq!(phase.data.len(), phase.acks.len());
        }
    }
}
