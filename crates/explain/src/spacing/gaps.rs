//! Gaps between packets, and how exact the stamps are that tell them.
//!
//! The histogram is of packets of one size, the one that most have: a gap is from one such packet's stamp
//! to the next one's, so it holds the packet's own time on the wire.

use std::fmt;

use units::{Duration, FineHistogram, Instant, Rate};

/// Counts the gaps of one direction at one point.
#[derive(Clone, Debug)]
pub struct Gaps {
    last: Option<(Instant, u32)>,
    /// All stamps are multiples of this from the first one on.
    step_ns: u64,
    /// The size that most packets have, found by voting (Boyer and Moore's majority vote).
    size: u32,
    votes: u64,
    packets: u64,
    backwards: u64,
    gaps: FineHistogram,
    /// Stamps of the last packets of that size, one behind the other.
    train: [Instant; TRAIN],
    train_len: usize,
    /// Time of a packet in such trains, worked out over all of each.
    train_gaps: FineHistogram,
}

/// What the stamps can tell apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// All stamps are multiples of this.
    pub step: Duration,
    /// What two of them may be wrong by against each other.
    pub error: Duration,
    /// The shortest time of a packet on the wire against which the error was held: as the line's rate has
    /// it where the stamps obey that, else as the densest trains have it; zero when too few packets came to
    /// know.
    pub packet_time: Duration,
}

/// Gaps in bins of one width.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bins {
    /// Where the first one begins, a multiple of the width.
    pub from: Duration,
    /// Of each.
    pub width: Duration,
    /// Gaps in each.
    pub counts: Vec<u64>,
    /// Gaps beyond the last.
    pub beyond: u64,
}

/// Bins were asked for that are finer than the stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFine {
    /// The finest width that the stamps bear.
    pub finest: Duration,
}

/// A gap around which many lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mode {
    /// Its middle.
    pub gap: Duration,
    /// Share of all gaps within the stamps' error of it, 0..=1.
    pub share: f64,
}

impl Default for Gaps {
    fn default() -> Self {
        Self::new()
    }
}

impl Gaps {
    /// Nothing counted yet. Takes 2 MiB.
    pub fn new() -> Self {
        Self {
            last: None,
            step_ns: 0,
            size: 0,
            votes: 0,
            packets: 0,
            backwards: 0,
            gaps: FineHistogram::new(),
            train: [Instant::ZERO; TRAIN],
            train_len: 0,
            train_gaps: FineHistogram::new(),
        }
    }

    /// A packet of `wire_bytes` (any length as long as all are counted alike) was seen.
    pub fn take(&mut self, at: Instant, wire_bytes: u32) {
        self.packets += 1;
        self.vote(wire_bytes);
        let before = self.last.replace((at, wire_bytes));
        let Some((last_at, last_bytes)) = before else {
            return self.begin_train(at, wire_bytes);
        };
        if at < last_at {
            self.backwards += 1;
            return self.begin_train(at, wire_bytes);
        }
        let gap = at.saturating_since(last_at);
        if gap > IDLE {
            self.train_len = 0;
        }
        self.step_ns = greatest_common_divisor(self.step_ns, gap.as_ns());
        if wire_bytes != self.size || last_bytes != self.size {
            return self.begin_train(at, wire_bytes);
        }
        self.gaps.record(gap);
        if self.train_len == 0 {
            self.train[0] = last_at;
            self.train_len = 1;
        }
        self.train[self.train_len] = at;
        self.train_len += 1;
        if self.train_len == TRAIN {
            let whole = at.saturating_since(self.train[0]).as_ns();
            self.train_gaps
                .record(Duration::from_ns(whole / (TRAIN as u64 - 1)));
            // Trains overlap by half, so that one which an idle time cuts is seen from its next half on.
            self.train.copy_within(TRAIN / 2.., 0);
            self.train_len = TRAIN / 2;
        }
    }

    fn begin_train(&mut self, at: Instant, wire_bytes: u32) {
        self.train_len = 0;
        if wire_bytes == self.size {
            self.train[0] = at;
            self.train_len = 1;
        }
    }

    fn vote(&mut self, wire_bytes: u32) {
        if wire_bytes == self.size {
            self.votes += 1;
        } else if self.votes == 0 {
            // What was counted was of a size that most do not have.
            self.gaps.clear();
            self.train_gaps.clear();
            (self.size, self.votes) = (wire_bytes, 1);
        } else {
            self.votes -= 1;
        }
    }

    /// Packets seen, whatever their size.
    pub const fn packets(&self) -> u64 {
        self.packets
    }

    /// Packets with a stamp before that of the packet before.
    pub const fn backwards(&self) -> u64 {
        self.backwards
    }

    /// The size whose gaps are counted; zero before the first packet.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// The gaps of that size.
    pub const fn histogram(&self) -> &FineHistogram {
        &self.gaps
    }

    /// How exact the stamps are. `rate` is the line's, if known, in the bits that [`Gaps::take`] was told.
    ///
    /// Two packets of n bits are at least n / `rate` apart. Stamps that break this law are wrong by as much,
    /// and their packets may even come from a slower line: they are taken to be no closer than those of the
    /// densest trains of 32 are on average. Where the stamps obey it, their error is no more than what the
    /// shortest gaps leave above it, and no more than the gaps scatter: were they wrong by e, a fifth of
    /// them would not lie within e / 5. Without a rate nothing below 1 us is claimed, as a kernel's loop
    /// makes regular stamps that the wire never saw.
    pub fn stamps(&self, rate: Option<Rate>) -> Stamps {
        let densest = self.train_gaps.quantile(DENSE_PERMILLE).unwrap_or_default();
        let own = rate.map_or(Duration::ZERO, |rate| time_on_wire(self.size, rate));
        let allowed = self.gaps.count() * TOO_SOON_PERMILLE / 1000;
        let mut seen = 0;
        let least = self.gaps.buckets().find_map(|(from, _, n)| {
            seen += n;
            (seen > allowed).then_some(from)
        });
        let least = least.unwrap_or_default();
        let obeys = own > Duration::ZERO && least >= own;
        let packet_time = if obeys { own } else { densest.max(own) };
        let too_soon = packet_time - least;
        let error = if packet_time == Duration::ZERO || self.gaps.count() < ENOUGH {
            ASSUMED
        } else if obeys {
            self.scatter().min(least - own).min(ASSUMED)
        } else if own > Duration::ZERO {
            too_soon
        } else {
            let scatter = self.scatter().min(ASSUMED);
            too_soon.max(scatter).max(UNCHECKED)
        };
        Stamps {
            step: Duration::from_ns(self.step_ns),
            error,
            packet_time,
        }
    }

    /// Five times the narrowest span that holds a fifth of the gaps.
    fn scatter(&self) -> Duration {
        let buckets: Vec<(u64, u64, u64)> = self
            .gaps
            .buckets()
            .map(|(from, to, n)| (from.as_ns(), to.as_ns(), n))
            .collect();
        let fifth = self.gaps.count().div_ceil(5);
        let (mut last, mut within, mut narrowest) = (0, 0, u64::MAX);
        for (from, _, n) in &buckets {
            while within < fifth
                && let Some(&(_, _, more)) = buckets.get(last)
            {
                within += more;
                last += 1;
            }
            if within < fifth {
                break;
            }
            narrowest = narrowest.min(buckets[last - 1].1 - from);
            within -= n;
        }
        Duration::from_ns(narrowest.saturating_mul(5))
    }

    /// The gaps from the least to the 99.9th percentile in bins of `width`, at most 10,000 of them.
    ///
    /// # Errors
    /// [`TooFine`] when the stamps are not that exact.
    pub fn bins(&self, width: Duration, rate: Option<Rate>) -> Result<Bins, TooFine> {
        let finest = self.stamps(rate).finest();
        if width < finest || width == Duration::ZERO {
            return Err(TooFine { finest });
        }
        let (Some(least), Some(most)) = (self.gaps.min(), self.gaps.quantile(999)) else {
            return Ok(Bins {
                width,
                ..Bins::default()
            });
        };
        let first = least.as_ns() / width.as_ns();
        let last = (most.as_ns() / width.as_ns()).min(first + BINS_MAX - 1);
        let bins = usize::try_from(last - first + 1).unwrap_or(usize::MAX);
        let (mut counts, mut beyond) = (vec![0; bins], 0);
        for (from, to, n) in self.gaps.buckets() {
            let middle = u64::midpoint(from.as_ns(), to.as_ns() - 1).max(least.as_ns());
            let bin = usize::try_from(middle / width.as_ns() - first).unwrap_or(usize::MAX);
            *counts.get_mut(bin).unwrap_or(&mut beyond) += n;
        }
        Ok(Bins {
            from: Duration::from_ns(first * width.as_ns()),
            width,
            counts,
            beyond,
        })
    }

    /// Gaps around which at least a twentieth of all lie, each further from the next than the stamps' error
    /// tells apart; the shortest first.
    pub fn modes(&self, rate: Option<Rate>) -> Vec<Mode> {
        let stamps = self.stamps(rate);
        // One and the same gap comes out a step longer or shorter, as its two stamps are rounded.
        let reach = (stamps.finest() + stamps.step).as_ns();
        let buckets: Vec<(u64, u64)> = self
            .gaps
            .buckets()
            .map(|(from, to, n)| (u64::midpoint(from.as_ns(), to.as_ns() - 1), n))
            .collect();
        // What lies within half the reach of each bucket, by two pointers over the sorted buckets.
        let (mut low, mut high, mut within) = (0, 0, 0_u64);
        let mut density = Vec::with_capacity(buckets.len());
        for &(gap, _) in &buckets {
            while let Some(&(ahead, n)) = buckets.get(high)
                && ahead <= gap + reach / 2
            {
                within += n;
                high += 1;
            }
            while buckets[low].0 + reach / 2 < gap {
                within -= buckets[low].1;
                low += 1;
            }
            density.push(within);
        }
        let mut order: Vec<usize> = (0..buckets.len()).collect();
        order.sort_by_key(|&i| (std::cmp::Reverse(density[i]), i));
        let mut modes: Vec<Mode> = Vec::new();
        let total = self.gaps.count().max(1) as f64;
        for i in order {
            let share = density[i] as f64 / total;
            if share < MODE_SHARE || modes.len() == MODES_MAX {
                break;
            }
            let gap = Duration::from_ns(buckets[i].0);
            let apart = |m: &Mode| gap.as_ns().abs_diff(m.gap.as_ns()) > reach;
            if modes.iter().all(apart) {
                modes.push(Mode { gap, share });
            }
        }
        modes.sort_by_key(|m| m.gap);
        modes
    }
}

impl Stamps {
    /// The least difference between two gaps that is more than the stamps' doing: at least 1 ns.
    pub fn finest(&self) -> Duration {
        self.step.max(self.error).max(Duration::from_ns(1))
    }

    /// Whether they tell two gaps apart.
    pub fn tell_apart(&self, one: Duration, other: Duration) -> bool {
        one.as_ns().abs_diff(other.as_ns()) >= self.finest().as_ns()
    }
}

impl fmt::Display for TooFine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the stamps tell no gaps apart that differ by less than {}",
            self.finest
        )
    }
}

impl std::error::Error for TooFine {}

/// How long a packet lasts, rounded down.
fn time_on_wire(bytes: u32, rate: Rate) -> Duration {
    let bits_ns = u64::from(bytes) * 8 * 1_000_000_000;
    Duration::from_ns(bits_ns.checked_div(rate.as_bits_per_second()).unwrap_or(0))
}

const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// What is longer is no error of stamps but an idle line: interrupts are held off for less.
const IDLE: Duration = Duration::from_ms(1);
/// Of stamps of which nothing is known: as long as drivers hold interrupts off by default.
const ASSUMED: Duration = Duration::from_us(50);
/// The least that is claimed where no line's rate can be held against the stamps.
const UNCHECKED: Duration = Duration::from_us(1);
/// Gaps of which a fifth says something.
const ENOUGH: u64 = 32;
/// Packets over which the time of one is worked out: an error of 50 us at both ends changes that at
/// 1 Gb/s by a quarter.
const TRAIN: usize = 32;
/// The densest trains: one of twenty.
const DENSE_PERMILLE: u64 = 50;
/// Of a thousand gaps, those that may be shorter than the error admits.
const TOO_SOON_PERMILLE: u64 = 50;
const MODE_SHARE: f64 = 0.05;
const MODES_MAX: usize = 16;
const BINS_MAX: u64 = 10_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use units::Rng;

    use super::*;

    /// Packets of 9026 octets (a jumbo frame with its preamble) whose gaps to the next are one of `octets`
    /// in turns, at 10 Gb/s.
    fn paced(octets: &[u64], packets: usize) -> Gaps {
        let (mut gaps, mut at_tenths) = (Gaps::new(), 0_u64);
        for gap in octets.iter().cycle().take(packets) {
            gaps.take(Instant::from_ns(at_tenths / 10), 9026);
            at_tenths += (9026 + gap) * 8;
        }
        gaps
    }

    const TEN_G: Rate = Rate::from_bits_per_second(10_000_000_000);

    #[test]
    fn gaps_of_700_and_720_octets_at_10_gbps_are_told_apart() {
        // 560 and 576 ns behind packets of 7220.8 ns.
        let gaps = paced(&[700, 720], 10_000);
        let stamps = gaps.stamps(Some(TEN_G));
        assert!(stamps.finest() <= Duration::from_ns(16), "{stamps:?}");
        assert!(stamps.tell_apart(Duration::from_ns(560), Duration::from_ns(576)));
        let modes = gaps.modes(Some(TEN_G));
        let found: Vec<u64> = modes.iter().map(|m| m.gap.as_ns()).collect();
        assert_eq!(found.len(), 2, "{modes:?}");
        assert!(
            found[0].abs_diff(7_780) <= 1 && found[1].abs_diff(7_796) <= 1,
            "{found:?}"
        );
        assert!((modes[0].share - 0.5).abs() < 0.01);
        let bins = gaps.bins(Duration::from_ns(16), Some(TEN_G)).unwrap();
        assert_eq!(bins.counts.iter().sum::<u64>() + bins.beyond, 9_999);
    }

    #[test]
    fn gaps_of_one_length_have_one_mode() {
        let gaps = paced(&[700], 1_000);
        assert_eq!(gaps.modes(Some(TEN_G)).len(), 1);
    }

    #[test]
    fn stamps_by_the_microsecond_refuse_finer_bins() {
        let mut gaps = Gaps::new();
        for i in 0..1_000_u64 {
            gaps.take(Instant::from_ns(i * 12_304 / 1_000 * 1_000), 1538);
        }
        assert_eq!(gaps.stamps(None).step, Duration::from_us(1));
        let refused = gaps.bins(Duration::from_ns(999), None).unwrap_err();
        assert_eq!(refused.finest, Duration::from_us(1));
        assert!(gaps.bins(Duration::from_us(1), None).is_ok());
    }

    #[test]
    fn stamps_that_come_in_batches_know_their_error() {
        // A kernel that looks each 50 us stamps four packets of 12.304 us as one behind the other.
        let (mut gaps, mut looked_ns, mut behind) = (Gaps::new(), 0, 0);
        for i in 0..4_000_u64 {
            let look_ns = i * 12_304 / 50_000 * 50_000;
            behind = if look_ns == looked_ns { behind + 1 } else { 0 };
            looked_ns = look_ns;
            gaps.take(Instant::from_ns(look_ns + behind * 300), 1538);
        }
        let stamps = gaps.stamps(Some(Rate::from_bits_per_second(1_000_000_000)));
        assert!(stamps.packet_time >= Duration::from_ns(12_304));
        assert!(stamps.error >= Duration::from_us(11), "{stamps:?}");
        assert!(gaps.bins(Duration::from_us(1), None).is_err());
        assert!(gaps.bins(Duration::from_us(13), None).is_ok());
    }

    #[test]
    fn stamps_that_obey_the_lines_rate_are_believed() {
        // Pairs of packets back to back, a packet's time between pairs: no train of 32 is that dense.
        let exact = paced(&[12, 9_738], 4_000);
        let stamps = exact.stamps(Some(TEN_G));
        assert!(stamps.finest() <= Duration::from_ns(10), "{stamps:?}");
        assert_eq!(stamps.packet_time, Duration::from_ns(7_220));
        let modes = exact.modes(Some(TEN_G));
        assert_eq!(modes.len(), 2, "{modes:?}");
        assert!((modes[0].share - 0.5).abs() < 0.01, "{modes:?}");
        // The same stamps at a line on which packets last longer than pairs are apart: they are wrong.
        let slower = Rate::from_bits_per_second(9_900_000_000);
        assert!(exact.stamps(Some(slower)).finest() > Duration::from_us(3));
        assert!(exact.stamps(None).finest() > Duration::from_us(3));
    }

    #[test]
    fn stamps_that_nothing_is_held_against_are_not_claimed_to_be_exact() {
        // Far from the line's rate, scattered by 20 us, and by nothing.
        let paced = |scatter_ns: u64| {
            let (mut gaps, mut rng) = (Gaps::new(), Rng::new(5));
            for i in 0..4_000_u64 {
                let off_ns = rng.next_u64() % (scatter_ns + 1);
                gaps.take(Instant::from_ns(i * 500_000 + off_ns), 1_526);
            }
            gaps
        };
        let finest = |gaps: &Gaps, rate| gaps.stamps(rate).finest();
        let scattered = paced(20_000);
        for rate in [None, Some(TEN_G)] {
            let finest = finest(&scattered, rate);
            assert!(finest >= Duration::from_us(15), "{finest}");
        }
        let exact = paced(0);
        assert_eq!(
            finest(&exact, Some(TEN_G)),
            Duration::from_us(500),
            "its step"
        );
        let mut regular = Gaps::new();
        for i in 0..4_000_u64 {
            regular.take(Instant::from_ns(i * 500_001 + i % 2), 1_526);
        }
        assert_eq!(finest(&regular, None), Duration::from_us(1));
        assert!(finest(&regular, Some(TEN_G)) <= Duration::from_us(1));
    }

    #[test]
    fn flights_with_idle_times_between_are_no_train() {
        // Four packets 12 us apart, each `idle_ns`.
        let flights = |idle_ns: u64| {
            let mut gaps = Gaps::new();
            for i in 0..4_000_u64 {
                let at_ns = i / 4 * (36_000 + idle_ns) + i % 4 * 12_000;
                gaps.take(Instant::from_ns(at_ns), 1_514);
            }
            gaps
        };
        let far = flights(1_000_001);
        assert_eq!(far.stamps(None).packet_time, Duration::ZERO);
        assert_eq!(far.stamps(None).finest(), Duration::from_us(50));
        assert!(far.bins(Duration::from_ns(49_999), None).is_err());
        assert!(far.bins(Duration::from_us(50), None).is_ok());
        // 12,112 ns on the wire at 1 Gb/s: the stamps come 112 ns too soon.
        let gigabit = Rate::from_bits_per_second(1_000_000_000);
        assert_eq!(far.stamps(Some(gigabit)).error, Duration::from_ns(112));
        assert!(flights(1_000_000).stamps(None).packet_time > Duration::from_us(200));
    }

    #[test]
    fn trains_tell_the_rate_where_the_interface_does_not() {
        let exact = paced(&[20], 1_000);
        let of_train = exact.stamps(None).packet_time.as_ns();
        assert!(of_train.abs_diff(7_236) <= 2, "{of_train}");
        // 31 packets are no train yet.
        assert_eq!(paced(&[20], 31).stamps(None).packet_time, Duration::ZERO);
        assert_ne!(paced(&[20], 32).stamps(None).packet_time, Duration::ZERO);
    }

    #[test]
    fn other_sizes_neither_count_nor_stop_the_size_that_most_have() {
        let mut gaps = Gaps::new();
        gaps.take(Instant::from_ns(0), 64);
        gaps.take(Instant::from_ns(100), 64);
        for i in 0..1_000_u64 {
            gaps.take(
                Instant::from_ns(1_000 + i * 1_000),
                if i % 10 == 9 { 64 } else { 1538 },
            );
        }
        assert_eq!(gaps.size(), 1538);
        assert_eq!(gaps.histogram().max(), Some(Duration::from_us(1)));
    }

    #[test]
    fn stamps_that_go_back_are_counted() {
        let mut gaps = Gaps::new();
        for ns in [10, 20, 15, 25] {
            gaps.take(Instant::from_ns(ns), 100);
        }
        assert_eq!((gaps.backwards(), gaps.packets()), (1, 4));
        assert_eq!(gaps.histogram().count(), 2);
    }

    proptest! {
        #[test]
        fn bins_hold_every_gap(seed in any::<u64>(), width_ns in 1_u64..1_000_000, n in 2_usize..300) {
            let mut rng = Rng::new(seed);
            let (mut gaps, mut at) = (Gaps::new(), 0);
            for _ in 0..n {
                gaps.take(Instant::from_ns(at), 1538);
                at += rng.next_u64() >> (24 + rng.next_u64() % 40);
            }
            // A packet of 1 ns: few stamps are too soon for that.
            let rate = Some(Rate::from_bits_per_second(12_000_000_000_000));
            if let Ok(bins) = gaps.bins(Duration::from_ns(width_ns), rate) {
                prop_assert_eq!(bins.counts.iter().sum::<u64>() + bins.beyond, n as u64 - 1);
            }
            let modes = gaps.modes(rate);
            prop_assert!(modes.iter().all(|m| m.share <= 1.0));
        }
    }
}
