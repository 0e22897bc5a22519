//! What a sweep says: how sure each point is, where the curve's knee lies, which points fall out of
//! their neighbours, and what is to be measured next.
//!
//! A curve is a list of settings in rising order, each with what was measured there, again and again
//! in rounds of random order, so that a machine that drifts does so for all settings alike. Nothing
//! is smoothed: a point that falls out stays in and is marked. What the rounds' drift and noise leave
//! of a knee is in `knee.rs`.
//!
//! Left out: fitting models to curves. The knee is read off the measured line.

mod knee;

use units::Rng;

pub use knee::{Known, Repeats};

/// What repeated measurements of one thing give.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Median.
    pub median: f64,
    /// Half of the 95 % confidence interval of the mean, as a share of the mean: Student's t. Infinite
    /// below two measurements.
    pub error: f64,
    /// Measurements.
    pub count: usize,
}

impl Estimate {
    /// Of these measurements; `None` of none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let median = median(values)?;
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        let error = if count < 2 {
            f64::INFINITY
        } else if mean == 0.0 {
            0.0
        } else {
            let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
            let deviation = (squares / (count - 1) as f64).sqrt();
            student_t(count - 1) * deviation / (count as f64).sqrt() / mean.abs()
        };
        Some(Self {
            median,
            error,
            count,
        })
    }
}

/// The shape of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// It rises to a plateau.
    Knee {
        /// Where the measured line, drawn over the setting's logarithm, comes within 5 % of the plateau.
        at: f64,
        /// First measured setting that is.
        first: f64,
        /// Height of the plateau: the highest mean of three neighbours, of which none counts as more
        /// than 5 % off their median.
        plateau: f64,
    },
    /// All settings are within 5 % of the plateau.
    Flat {
        /// Its height.
        plateau: f64,
    },
    /// Still rising at the largest settings: the plateau, if there is one, lies beyond.
    Rising {
        /// The largest setting.
        up_to: f64,
        /// What it gave.
        reached: f64,
    },
    /// Fewer than four settings, or nothing passed at all.
    Unknown,
}

/// How far below the plateau still counts as on it.
pub const KNEE_SHARE: f64 = 0.95;

/// The shape of the line through `points`, settings above 0 in rising order with their medians.
pub fn shape(points: &[(f64, f64)]) -> Shape {
    if points.len() < 4 || points.iter().any(|p| p.0 <= 0.0 || !p.1.is_finite()) {
        return Shape::Unknown;
    }
    let Some((_, plateau)) = plateau_window(points).filter(|w| w.1 > 0.0) else {
        return Shape::Unknown;
    };
    let level = KNEE_SHARE * plateau;
    let is_on = |n: usize| points.get(n).is_some_and(|p| p.1 >= level);
    // A single point above the level is luck; of the next two one must be there as well.
    let first = (0..points.len()).find(|&n| is_on(n) && (is_on(n + 1) || is_on(n + 2)));
    let last = points[points.len() - 1];
    match first {
        // Three points make a plateau. The largest setting may still be above them.
        Some(n) if n + 3 > points.len() || last.1 > plateau / KNEE_SHARE => Shape::Rising {
            up_to: last.0,
            reached: last.1,
        },
        Some(0) => Shape::Flat { plateau },
        Some(n) => Shape::Knee {
            at: crossing(points[n - 1], points[n], level),
            first: points[n].0,
            plateau,
        },
        None => Shape::Rising {
            up_to: last.0,
            reached: last.1,
        },
    }
}

/// The first of the three neighbours that make the plateau, and its height. A mean is surer than a
/// median; the clip keeps a lucky point from making a plateau.
fn plateau_window(points: &[(f64, f64)]) -> Option<(usize, f64)> {
    let height = |w: &[(f64, f64)]| {
        let middle = median(&[w[0].1, w[1].1, w[2].1])?;
        let clip = |p: &(f64, f64)| p.1.max(KNEE_SHARE * middle).min(middle / KNEE_SHARE);
        Some(w.iter().map(clip).sum::<f64>() / 3.0)
    };
    let heights = points.windows(3).enumerate();
    heights
        .filter_map(|(n, w)| Some((n, height(w)?)))
        .reduce(|best, next| if next.1 > best.1 { next } else { best })
}

/// Where the line from `a` to `b`, straight over the setting's logarithm, is at `level`.
fn crossing(a: (f64, f64), b: (f64, f64), level: f64) -> f64 {
    let share = if b.1 > a.1 {
        ((level - a.1) / (b.1 - a.1)).clamp(0.0, 1.0)
    } else {
        1.0
    };
    (a.0.ln() + share * (b.0.ln() - a.0.ln())).exp()
}

/// The largest setting at which the line through `points`, settings in rising order, is at most
/// [`GROWTH`] above its first point; `None` without one, or where that is not above 0.
pub fn hardly_grows_to(points: &[(f64, f64)]) -> Option<f64> {
    let first = points.first().filter(|p| p.1 > 0.0)?;
    let level = first.1 * (1.0 + GROWTH);
    let last = points.iter().rev().find(|p| p.1 <= level);
    last.map(|p| p.0)
}

/// A quarter: more than the wake-ups of an idle host differ by, less than anybody would call growth.
pub const GROWTH: f64 = 0.25;

/// The points that fall out of their neighbours: below or above both by more than a tenth, and by
/// more than the confidence intervals explain. Next to a dip the point before it looks like a peak:
/// of such, the one is marked without which the curve is smoothest. The ends have one neighbour and
/// are not judged.
pub fn anomalies(points: &[Estimate]) -> Vec<usize> {
    let mut left: Vec<usize> = (0..points.len()).collect();
    let mut found = Vec::new();
    loop {
        let suspects: Vec<usize> = (1..left.len().saturating_sub(1))
            .filter(|&n| falls_out([n - 1, n, n + 1].map(|n| &points[left[n]])))
            .collect();
        let without = |n: usize| {
            let mut rest = left.clone();
            rest.remove(n);
            rest
        };
        let roughness = |n: &usize| {
            let logs: Vec<f64> = without(*n).iter().map(|&p| log(points[p].median)).collect();
            let bends = logs.windows(3).map(|w| (w[2] - 2.0 * w[1] + w[0]).abs());
            bends.sum::<f64>()
        };
        let worst = suspects
            .into_iter()
            .min_by(|a, b| roughness(a).total_cmp(&roughness(b)));
        let Some(n) = worst else { break };
        found.push(left.remove(n));
    }
    found.sort_unstable();
    found
}

/// The points at which a sawtooth falls: below the point before by more than a tenth and by more than
/// the confidence intervals explain, though the curve is back at that height, or within 5 % of it,
/// further on. A curve that falls and stays down declines; it is not marked.
pub fn drops(points: &[Estimate]) -> Vec<usize> {
    let is_drop = |&n: &usize| {
        let (before, here) = (&points[n - 1], &points[n]);
        let off = before.median - here.median;
        let noise = here.error.min(1.0) * here.median + before.error.min(1.0) * before.median;
        let regained = |later: &Estimate| later.median >= KNEE_SHARE * before.median;
        off > 0.1 * before.median
            && off > noise
            && points.get(n + 1..).unwrap_or(&[]).iter().any(regained)
    };
    (1..points.len()).filter(is_drop).collect()
}

/// The size at whose multiples a curve falls, as where each further page costs something: every fall
/// lies just behind a multiple of it, and at least half of its multiples up to the last fall have one.
/// `settings` are all that were measured, rising; `falls` the numbers of those at which it has fallen.
/// A fall at `n` lies behind some size from `settings[n - 1]`, where all was well, to below
/// `settings[n]`.
///
/// `None` of fewer than two falls, where no size fits, and where falls at any places would fit one as
/// well: the narrowest gap gives the size, and the others' shares of it, multiplied, may be a hundredth
/// at most. Of the sizes that fit, the largest, and the roundest in binary that the gaps leave open.
pub fn period(settings: &[u64], falls: &[usize]) -> Option<u64> {
    let gap = |&n: &usize| Some((*settings.get(n.checked_sub(1)?)?, *settings.get(n)?));
    let gaps: Vec<(u64, u64)> = falls.iter().map(gap).collect::<Option<_>>()?;
    let (&first, rest) = gaps.split_first().filter(|(_, rest)| !rest.is_empty())?;
    if gaps.iter().any(|&(low, high)| low == 0 || low >= high) {
        return None;
    }
    let mut best = None;
    for times in 1..=MULTIPLES_MAX {
        // Sizes of which this multiple lies in the first gap; each further fall narrows them down.
        let mut open = vec![sizes(times, first)];
        for &gap in rest {
            open = merged(open.iter().flat_map(|&o| narrowed(o, gap)).collect());
        }
        let open = open.into_iter().filter(|&(low, high)| low < high);
        let fits = open.filter(|&o| is_told(roundest(o), &gaps));
        best = best.max(fits.map(roundest).max());
    }
    best
}

/// Sizes from..to of which the multiple `times` lies in the gap.
const fn sizes(times: u64, gap: (u64, u64)) -> (u64, u64) {
    (gap.0.div_ceil(times), gap.1.div_ceil(times))
}

/// What is left of a range of sizes when one of their multiples must lie in the gap.
fn narrowed(open: (u64, u64), gap: (u64, u64)) -> Vec<(u64, u64)> {
    let (least, most) = (gap.0 / open.1.max(1), gap.1 / open.0.max(1));
    (least.max(1)..=most.min(MULTIPLES_MAX))
        .map(|times| {
            let of_gap = sizes(times, gap);
            (open.0.max(of_gap.0), open.1.min(of_gap.1))
        })
        .filter(|(low, high)| low < high)
        .collect()
}

/// The same ranges without overlaps, the largest [`RANGES_MAX`] of them.
fn merged(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable_by(|a, b| b.cmp(a));
    let mut whole: Vec<(u64, u64)> = Vec::new();
    for (low, high) in ranges {
        match whole.last_mut() {
            Some(last) if high >= last.0 => *last = (low, high.max(last.1)),
            _ => whole.push((low, high)),
        }
    }
    whole.truncate(RANGES_MAX);
    whole
}

/// The number with the most binary zeros at its end, of `low` to below `high`.
fn roundest((low, high): (u64, u64)) -> u64 {
    let zeros = (0..u64::BITS).rev();
    let up = |bits: u32| low.max(1).checked_next_multiple_of(1 << bits);
    zeros.filter_map(up).find(|&n| n < high).unwrap_or(low)
}

/// Whether falls at these gaps say that they lie at multiples of `size`: the narrowest gap gives the size,
/// the others bear it out.
fn is_told(size: u64, gaps: &[(u64, u64)]) -> bool {
    let share = |&(low, high): &(u64, u64)| ((high - low) as f64 / size as f64).min(1.0);
    let narrowest = gaps.iter().map(share).fold(1.0, f64::min);
    let chance = gaps.iter().map(share).product::<f64>() / narrowest;
    let last = gaps.iter().map(|g| g.1 - 1).max().unwrap_or(0);
    chance <= CHANCE_MAX && 2 * gaps.len() as u64 >= last / size
}

/// Where the second line overtakes the first, both over the same settings above 0 in rising order:
/// the place, drawn over the setting's logarithm, at which it comes above and stays there for the next
/// two settings, of which one must be. `None` where it never does, or begins above.
pub fn overtakes(slow: &[(f64, f64)], fast: &[(f64, f64)]) -> Option<f64> {
    let lead: Vec<f64> = slow
        .iter()
        .zip(fast)
        .map(|(s, f)| log(f.1) - log(s.1))
        .collect();
    let is_above = |n: usize| lead.get(n).is_some_and(|&l| l > 0.0);
    let n = (0..lead.len()).find(|&n| is_above(n) && (is_above(n + 1) || is_above(n + 2)))?;
    let before = n.checked_sub(1)?;
    let share = -lead[before] / (lead[n] - lead[before]);
    let (from, to) = (log(slow[before].0), log(slow[n].0));
    Some((from + share.clamp(0.0, 1.0) * (to - from)).exp())
}

/// The first setting from which a line is at `level`; of the next two one must be as well. At the end of
/// the line the last may stand alone.
pub fn reaches(points: &[(f64, f64)], level: f64) -> Option<f64> {
    let is_there = |n: usize| points.get(n).is_some_and(|p| p.1 >= level);
    let is_last = |n: usize| n + 1 == points.len();
    (0..points.len())
        .find(|&n| is_there(n) && (is_last(n) || is_there(n + 1) || is_there(n + 2)))
        .map(|n| points[n].0)
}

/// The line through `points`, settings in rising order, at a setting within them; straight between two
/// points in the logarithm of the setting, as [`shape`] takes it. `None` outside.
pub fn at(points: &[(f64, f64)], setting: f64) -> Option<f64> {
    let after = points.iter().position(|p| p.0 >= setting)?;
    let b = points[after];
    if b.0 <= setting {
        return Some(b.1);
    }
    let a = points[after.checked_sub(1)?];
    let share = (log(setting) - log(a.0)) / (log(b.0) - log(a.0));
    Some(a.1 + share * (b.1 - a.1))
}

/// Where the line through `points`, settings in rising order, falls to `level` and stays there; `None` where
/// it never is above, or still is at its end.
pub fn falls_to(points: &[(f64, f64)], level: f64) -> Option<f64> {
    let last = points.iter().rposition(|p| p.1 > level)?;
    let (a, b) = (points[last], *points.get(last + 1)?);
    let share = (a.1 - level) / (a.1 - b.1);
    Some((log(a.0) + share * (log(b.0) - log(a.0))).exp())
}

/// Rounds of a schedule in all; far more than a sweep's time allows.
pub const ROUNDS_MAX: usize = 1_000;
/// Of the rounds that a knee still needs, so many a round of all points: the knee is what was asked for.
const WHOLE_EVERY: usize = 4;
/// Multiples of a size that are looked at.
const MULTIPLES_MAX: u64 = 64;
/// Ranges of sizes that are looked at side by side.
const RANGES_MAX: usize = 1_024;
/// How likely falls at any places may fit a size by chance.
const CHANCE_MAX: f64 = 0.01;

fn falls_out([before, here, after]: [&Estimate; 3]) -> bool {
    let low = before.median.min(after.median);
    let high = before.median.max(after.median);
    let off = (low - here.median).max(here.median - high);
    let noise = here.error.min(1.0) * here.median + before.error.max(after.error).min(1.0) * high;
    off > 0.1 * low.max(f64::MIN_POSITIVE) && off > noise
}

fn log(value: f64) -> f64 {
    value.max(f64::MIN_POSITIVE).ln()
}

/// How far the rounds differ as a whole: the highest round's level over the lowest's, less 1. A
/// round's level is the geometric mean of its values over their points' medians. Rounds that
/// measured fewer than half of the points do not count.
pub fn drift(rounds: &[Vec<(usize, f64)>], medians: &[f64]) -> f64 {
    let level = |round: &Vec<(usize, f64)>| {
        let logs: Vec<f64> = round
            .iter()
            .filter_map(|&(point, value)| {
                let ratio = value / medians.get(point)?;
                (ratio.is_finite() && ratio > 0.0).then(|| ratio.ln())
            })
            .collect();
        (2 * logs.len() >= medians.len() && !logs.is_empty())
            .then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
    };
    let levels: Vec<f64> = rounds.iter().filter_map(level).collect();
    let high = levels.iter().copied().fold(f64::MIN, f64::max);
    let low = levels.iter().copied().fold(f64::MAX, f64::min);
    if levels.len() < 2 {
        0.0
    } else {
        high / low - 1.0
    }
}

/// The order of measuring: rounds, each in a random order of its own.
#[derive(Clone, Debug)]
pub struct Schedule {
    rng: Rng,
    points: usize,
    rounds_min: usize,
    rounds_max: usize,
    precision: f64,
    round: usize,
    left: Vec<usize>,
}

impl Schedule {
    /// For so many points, until each is known to within `precision`, a share of its mean; every
    /// point at least `rounds_min` times and at most `rounds_max` times.
    pub fn new(points: usize, rounds: (usize, usize), precision: f64, seed: u64) -> Self {
        Self {
            rng: Rng::new(seed),
            points,
            rounds_min: rounds.0,
            rounds_max: rounds.1.max(rounds.0),
            precision,
            round: 0,
            left: Vec::new(),
        }
    }

    /// The next point; `None` when all are known. `known` is what has been measured so far; `again` are
    /// points that are wanted once more for another reason, asked for at the beginning of each round
    /// after the first ones, of which there may be [`ROUNDS_MAX`]. While there are such, only every
    /// fourth round has the others that are not known.
    pub fn next(
        &mut self,
        known: impl Fn(usize) -> Option<Estimate>,
        again: impl FnOnce() -> Vec<usize>,
    ) -> Option<usize> {
        if self.left.is_empty() {
            let first_rounds = self.round < self.rounds_min;
            let again = match first_rounds || self.round >= ROUNDS_MAX {
                true => Vec::new(),
                false => again(),
            };
            let past = self.round.saturating_sub(self.rounds_min);
            let whole = again.is_empty() || past % WHOLE_EVERY == WHOLE_EVERY - 1;
            let unsure = |n: usize| {
                whole
                    && self.round < self.rounds_max
                    && known(n).is_none_or(|e| e.error > self.precision)
            };
            self.left = (0..self.points)
                .filter(|&n| first_rounds || again.contains(&n) || unsure(n))
                .collect();
            if self.left.is_empty() {
                return None;
            }
            for i in (1..self.left.len()).rev() {
                #[allow(clippy::cast_possible_truncation, reason = "below the list's length")]
                let j = (self.rng.next_u64() % (i as u64 + 1)) as usize;
                self.left.swap(i, j);
            }
            self.round += 1;
        }
        self.left.pop()
    }

    /// Rounds begun.
    pub const fn round(&self) -> usize {
        self.round
    }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let n = sorted.len();
    match n {
        0 => None,
        _ if n % 2 == 1 => Some(sorted[n / 2]),
        _ => Some(f64::midpoint(sorted[n / 2 - 1], sorted[n / 2])),
    }
}

/// The 97.5 % quantile of Student's t (Abramowitz and Stegun 26.7.5, table 26.10).
fn student_t(degrees: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    TABLE
        .get(degrees.saturating_sub(1))
        .copied()
        .unwrap_or(1.96)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A window-limited path: rate rises with the setting up to a plateau.
    fn ramp(plateau_from: f64) -> Vec<(f64, f64)> {
        let settings = (0..16).map(|n| 1024.0 * 2_f64.powi(n));
        settings
            .map(|s| (s, 1e9 * (s / plateau_from).min(1.0)))
            .collect()
    }

    #[test]
    fn the_knee_is_where_the_line_comes_within_five_percent_of_the_plateau() {
        let Shape::Knee { at, first, plateau } = shape(&ramp(131_072.0)) else {
            panic!()
        };
        assert_eq!((first, plateau), (131_072.0, 1e9));
        // Between 65,536 (half) and 131,072 (all), nine tenths of an octave on.
        assert!((at - 65_536.0 * 2_f64.powf(0.9)).abs() < 1.0, "{at}");
    }

    #[test]
    fn a_knee_between_two_settings_moves_with_the_curve() {
        let at = |from| match shape(&ramp(from)) {
            Shape::Knee { at, .. } => at,
            other => panic!("{other:?}"),
        };
        assert!(at(200_000.0) > 1.3 * at(140_000.0));
        // Not better than the settings: between the last one below and the first one on the plateau.
        assert!(
            (131_072.0..262_144.0).contains(&at(200_000.0)),
            "{}",
            at(200_000.0)
        );
    }

    #[test]
    fn flat_rising_and_short_curves_have_no_knee() {
        assert_eq!(shape(&ramp(512.0)), Shape::Flat { plateau: 1e9 });
        let Shape::Rising { up_to, .. } = shape(&ramp(1e9)) else {
            panic!()
        };
        assert_eq!(up_to, 1024.0 * 32_768.0);
        // The last two on a level are no plateau; the last three are.
        assert!(matches!(shape(&ramp(16.8e6)), Shape::Rising { .. }));
        assert!(matches!(shape(&ramp(8.3e6)), Shape::Knee { .. }));
        assert_eq!(shape(&ramp(131_072.0)[..3]), Shape::Unknown);
        assert_eq!(
            shape(&[(1.0, 0.0), (2.0, 0.0), (3.0, 0.0), (4.0, 0.0)]),
            Shape::Unknown
        );
    }

    #[test]
    fn a_lucky_point_is_no_knee() {
        let mut points = ramp(131_072.0);
        points[2].1 = 1e9;
        let Shape::Knee { first, .. } = shape(&points) else {
            panic!()
        };
        assert_eq!(first, 131_072.0);
    }

    #[test]
    fn latency_hardly_grows_up_to_a_quarter_more_than_the_smallest() {
        let line = [(2.0, 8.0), (4.0, 7.5), (8.0, 10.0), (16.0, 10.01)];
        assert_eq!(hardly_grows_to(&line), Some(8.0));
        assert_eq!(hardly_grows_to(&line[..1]), Some(2.0));
        assert_eq!(hardly_grows_to(&[]), None);
        assert_eq!(hardly_grows_to(&[(2.0, 0.0), (4.0, 1.0)]), None);
        assert_eq!(hardly_grows_to(&[(2.0, f64::NAN)]), None);
    }

    #[test]
    fn a_point_out_of_its_neighbours_is_marked_and_noise_is_not() {
        let sure = |median| Estimate {
            median,
            error: 0.01,
            count: 3,
        };
        let curve = [10.0, 20.0, 15.0, 40.0, 41.0, 40.5].map(sure);
        assert_eq!(anomalies(&curve), [2]);
        let mut unsure = curve;
        unsure[2].error = 0.4;
        assert!(anomalies(&unsure).is_empty());
        let spike = [10.0, 30.0, 11.0].map(sure);
        assert_eq!(anomalies(&spike), [1]);
    }

    #[test]
    fn a_sawtooth_is_marked_where_it_falls_and_a_decline_is_not() {
        let marked = |medians: &[f64], error: f64| {
            let of = |&median: &f64| Estimate {
                median,
                error,
                count: 3,
            };
            drops(&medians.iter().map(of).collect::<Vec<_>>())
        };
        let teeth = [50.0, 80.0, 60.0, 70.0, 90.0, 75.0, 86.0, 95.0];
        assert_eq!(marked(&teeth, 0.01), [2, 5]);
        assert!(marked(&teeth, 0.2).is_empty(), "noise");
        assert!(marked(&[50.0, 80.0, 60.0, 70.0, 75.0], 0.01).is_empty());
        assert_eq!(marked(&[50.0, 80.0, 60.0, 70.0, 76.0], 0.01), [2]);
        // A tenth is no drop, a little more is.
        assert!(marked(&[100.0, 90.0, 100.0], 0.0).is_empty());
        assert_eq!(marked(&[100.0, 89.9, 100.0], 0.0), [1]);
        assert!(marked(&[], 0.0).is_empty() && marked(&[1.0], 0.0).is_empty());
    }

    /// Each multiple, just behind it, and three quarters on; the numbers just behind.
    fn teeth(size: u64, multiples: &[u64]) -> (Vec<u64>, Vec<usize>) {
        let around = |&k: &u64| [size * k, size * k + 64, size * k + 3 * size / 4];
        let settings: Vec<u64> = multiples.iter().flat_map(around).collect();
        let falls = (0..multiples.len()).map(|n| 3 * n + 1).collect();
        (settings, falls)
    }

    #[test]
    fn falls_behind_multiples_of_one_size_have_it_as_their_period() {
        for size in [4096, 8192, 16_384] {
            let (settings, falls) = teeth(size, &[1, 2, 3, 4]);
            assert_eq!(period(&settings, &falls), Some(size));
            // Of two, one gives the size and the other's gap of 64 B is below 1 % of it, or not.
            let two = (size > 6400).then_some(size);
            assert_eq!(period(&settings, &falls[..2]), two);
            // The first page's fall went unseen, or a later one's.
            assert_eq!(period(&settings, &falls[1..]), Some(size));
            assert_eq!(period(&settings, &[1, 7, 10]), Some(size));
            assert_eq!(period(&settings, &falls[..1]), None, "one is none");
        }
        // Of pages of 3,000 bytes the roundest number that the gaps leave open.
        let (settings, falls) = teeth(3000, &[1, 2, 3]);
        let found = period(&settings, &falls).unwrap();
        assert!((3000..3021).contains(&found), "{found}");
    }

    #[test]
    fn falls_anywhere_have_no_period() {
        let settings = [4000, 4064, 9500, 9564, 11_000, 11_064];
        assert_eq!(period(&settings, &[1, 3, 5]), None);
        // Gaps as wide as the steps of an octave: they would hold a multiple of much.
        let octaves = [4096, 5793, 8192, 11_585, 16_384, 23_170];
        assert_eq!(period(&octaves, &[1, 3, 5]), None);
        for (settings, falls) in [
            (&[][..], &[1, 2][..]),
            (&[1, 2], &[0, 1]),
            (&[0, 1, 2], &[1, 2]),
            (&[5, 5, 5], &[1, 2]),
            (&[1, 2, 3], &[2, 9]),
            (&[1, u64::MAX - 1, u64::MAX], &[1, 2]),
        ] {
            assert_eq!(period(settings, falls), None, "{settings:?}");
        }
    }

    #[test]
    fn one_line_overtakes_another_where_it_comes_above_and_stays() {
        let line = |values: [f64; 5]| -> Vec<(f64, f64)> {
            let settings = (0..5).map(|n| 1000.0 * 2_f64.powi(n));
            settings.zip(values).collect()
        };
        let slow = line([30.0, 40.0, 50.0, 50.0, 50.0]);
        let fast = line([10.0, 20.0, 40.0, 60.0, 90.0]);
        let at = overtakes(&slow, &fast).unwrap();
        // ln(50/40) below at 4,000, ln(60/50) above at 8,000.
        let share = 1.25_f64.ln() / (1.25_f64.ln() + 1.2_f64.ln());
        assert!((at - 4000.0 * 2_f64.powf(share)).abs() < 1e-6, "{at}");
        assert_eq!(overtakes(&fast, &slow), None, "begins above");
        assert_eq!(overtakes(&slow, &slow), None);
        let lucky = line([10.0, 41.0, 40.0, 40.0, 45.0]);
        assert_eq!(overtakes(&slow, &lucky), None);
        assert_eq!(overtakes(&[], &[]), None);
    }

    #[test]
    fn a_line_is_straight_between_its_points_and_nothing_outside() {
        let line = [(1.0, 10.0), (4.0, 30.0), (16.0, 30.0)];
        for (setting, value) in [(1.0, 10.0), (2.0, 20.0), (4.0, 30.0), (16.0, 30.0)] {
            let found = at(&line, setting).unwrap();
            assert!((found - value).abs() < 1e-9, "{setting}: {found}");
        }
        assert_eq!(
            (at(&line, 0.9), at(&line, 16.1), at(&[], 1.0)),
            (None, None, None)
        );
    }

    #[test]
    fn a_line_falls_to_a_level_where_it_stays_below() {
        let line = [(1.0, 0.9), (4.0, 0.4), (16.0, 0.6), (64.0, 0.2)];
        let found = falls_to(&line, 0.4).unwrap();
        assert!((found - 32.0).abs() < 1e-9, "{found}");
        assert_eq!(falls_to(&line, 0.95), None);
        assert_eq!(falls_to(&line, 0.1), None);
        assert_eq!(falls_to(&[], 0.5), None);
    }

    #[test]
    fn a_level_is_reached_where_the_line_stays_there() {
        let line = [
            (1.0, 5.0),
            (2.0, 9.0),
            (4.0, 5.0),
            (8.0, 7.9),
            (16.0, 9.0),
            (32.0, 8.0),
        ];
        assert_eq!(reaches(&line, 8.0), Some(16.0));
        assert_eq!(reaches(&line, 7.9), Some(2.0), "one of the next two");
        assert_eq!(reaches(&line, 5.0), Some(1.0));
        assert_eq!(reaches(&line[..5], 8.5), Some(16.0), "the last of all");
        assert_eq!(reaches(&line, 9.1), None);
    }

    #[test]
    fn an_estimate_is_median_and_students_interval() {
        let e = Estimate::of(&[9.0, 10.0, 11.0]).unwrap();
        // Deviation 1, t of two degrees 4.303, over the root of three, of 10.
        assert!((e.error - 0.248_43).abs() < 1e-4, "{e:?}");
        assert_eq!((e.median, e.count), (10.0, 3));
        assert_eq!(Estimate::of(&[5.0]).unwrap().error, f64::INFINITY);
        assert_eq!(Estimate::of(&[5.0, 5.0]).unwrap().error, 0.0);
        assert!(Estimate::of(&[]).is_none());
    }

    #[test]
    fn every_round_has_each_point_once_until_it_is_known() {
        let mut schedule = Schedule::new(5, (2, 4), 0.03, 1);
        let sure = |n: usize| {
            Some(Estimate {
                median: 1.0,
                error: if n == 3 { 0.2 } else { 0.01 },
                count: 2,
            })
        };
        let mut drawn = Vec::new();
        while let Some(n) = schedule.next(sure, Vec::new) {
            drawn.push(n);
        }
        let mut first: Vec<usize> = drawn[..5].to_vec();
        let second: Vec<usize> = drawn[5..10].to_vec();
        assert_ne!(first, second, "another order");
        first.sort_unstable();
        assert_eq!(first, [0, 1, 2, 3, 4]);
        assert_eq!(
            drawn[10..],
            [3, 3],
            "only the unsure one, up to the most rounds"
        );
    }

    #[test]
    fn points_that_are_wanted_again_come_after_the_first_rounds() {
        let mut schedule = Schedule::new(4, (2, 3), 0.03, 1);
        let sure = |_| Estimate::of(&[1.0, 1.0]);
        let mut drawn = Vec::new();
        while let Some(n) = schedule.next(sure, || vec![1, 2, 9]) {
            drawn.push(n);
            if schedule.round() == 7 {
                break;
            }
        }
        // Two whole rounds, four of those two, and the seventh's first; 9 is no point.
        assert_eq!(drawn.len(), 8 + 4 * 2 + 1);
        assert!(drawn[8..].iter().all(|n| [1, 2].contains(n)), "{drawn:?}");
        while schedule.next(sure, || vec![1]).is_some() {}
        assert_eq!(schedule.round(), ROUNDS_MAX);
    }

    #[test]
    fn while_a_knee_needs_points_the_others_come_in_every_fourth_round() {
        let mut schedule = Schedule::new(6, (2, 20), 0.03, 1);
        let unsure = |_| Estimate::of(&[1.0, 2.0]);
        let mut rounds: Vec<usize> = vec![0; 11];
        while let Some(_point) = schedule.next(unsure, || vec![1, 2]) {
            match rounds.get_mut(schedule.round()) {
                Some(points) => *points += 1,
                None => break,
            }
        }
        assert_eq!(rounds[1..], [6, 6, 2, 2, 2, 6, 2, 2, 2, 6]);
    }

    #[test]
    fn a_plateau_is_the_mean_of_three_without_luck() {
        let line = |values: [f64; 5]| (1..).map(f64::from).zip(values).collect::<Vec<_>>();
        let height = |values| plateau_window(&line(values)).unwrap();
        let (n, mean) = height([1.0, 50.0, 98.0, 100.0, 102.0]);
        assert_eq!(n, 2);
        assert!((mean - 100.0).abs() < 1e-9);
        // A spike adds at most a third of 5 %.
        let (_, spiked) = height([1.0, 50.0, 100.0, 300.0, 100.0]);
        assert!((spiked - (200.0 + 100.0 / 0.95) / 3.0).abs() < 1e-9);
        assert_eq!(plateau_window(&[(1.0, 1.0), (2.0, 1.0)]), None);
    }

    #[test]
    fn drift_is_what_all_points_share() {
        let rounds = |second: f64| {
            vec![
                vec![(0, 10.0), (1, 100.0)],
                vec![(1, 100.0 * second), (0, 10.0 * second)],
            ]
        };
        assert!((drift(&rounds(1.1), &[10.0, 100.0]) - 0.1).abs() < 1e-9);
        assert!(drift(&rounds(1.0), &[10.0, 100.0]).abs() < 1e-9);
        assert_eq!(drift(&[vec![(0, 1.0)]], &[1.0, 1.0]), 0.0);
    }
}
