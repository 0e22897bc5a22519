//! How sure a knee is, and what to measure again for it.
//!
//! A curve's plateau and the points around its knee are measured in the same rounds, so what a round
//! as a whole was slower by, since the machine was, is taken out first (Tukey's median polish, over
//! logarithms: rounds and points are factors). A point's level is then the mean of the middle half of
//! its measurements, which single disturbed ones do not move and which is closer than a median.
//!
//! The knee's interval is the bootstrap's (Efron 1979): rounds are drawn again from those that were
//! made, whole, since what disturbs a round disturbs all of its points.
//!
//! Left out: a curve's anomalies, which stay in the line, and models of curves; an interval holds for
//! the run, not for what differs from run to run, such as the CPUs that the ends were put on.

use std::collections::BTreeMap;

use units::Rng;

use super::{Shape, median, plateau_window, shape, student_t};

/// What was measured at one setting: round and value, each round once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Repeats {
    /// The setting, above 0.
    pub setting: f64,
    /// Rounds in any numbering, with what they gave.
    pub made: Vec<(u32, f64)>,
}

/// A curve's shape, and how sure it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// The shape of the line through the points' levels.
    pub shape: Shape,
    /// That line.
    pub line: Vec<(f64, f64)>,
    /// Of a knee: 95 % of its draws lie in between. None below two rounds.
    pub between: Option<(f64, f64)>,
}

impl Known {
    /// Of points in rising order of their settings; `seed` is the bootstrap's.
    pub fn of(points: &[Repeats], seed: u64) -> Self {
        let rounds = rounds_of(points);
        let line = line(points, rounds.as_deref());
        let shape = shape(&line);
        let between = match (&shape, rounds) {
            (&Shape::Knee { at, .. }, Some(rounds)) => {
                between(points, &rounds, at, &focus_of(&line, &shape), seed)
            }
            _ => None,
        };
        Self {
            shape,
            line,
            between,
        }
    }

    /// The points that say where the knee is, those beside it and those of the plateau: none where there
    /// is no knee, or where its interval is already within [`KNOWN`].
    pub fn focus(&self) -> Vec<usize> {
        let is_known = |(low, high): (f64, f64)| high <= low * KNOWN;
        match self.between {
            Some(between) if is_known(between) => Vec::new(),
            _ => focus_of(&self.line, &self.shape),
        }
    }
}

/// The points of a round, with their values' logarithms.
type Round = Vec<(usize, f64)>;

/// The rounds; `None` where a value is not above 0.
fn rounds_of(points: &[Repeats]) -> Option<Vec<Round>> {
    let mut rounds: BTreeMap<u32, Round> = BTreeMap::new();
    for (n, point) in points.iter().enumerate() {
        for &(round, value) in &point.made {
            let good = value > 0.0 && value.is_finite();
            let round = rounds.entry(round).or_default();
            round.push((n, good.then(|| value.ln())?));
        }
    }
    Some(rounds.into_values().collect())
}

fn line(points: &[Repeats], rounds: Option<&[Round]>) -> Vec<(f64, f64)> {
    let settings = points.iter().map(|p| p.setting);
    match rounds {
        Some(rounds) => {
            let all: Vec<&Round> = rounds.iter().collect();
            settings.zip(heights(&all, points.len())).collect()
        }
        // Nothing passed at some point: no factor is common to that.
        None => {
            let of = |p: &Repeats| p.made.iter().map(|m| m.1).collect::<Vec<_>>();
            let medians = points.iter().map(|p| median(&of(p)).unwrap_or(0.0));
            settings.zip(medians).collect()
        }
    }
}

/// Each point's level, its rounds' common factors taken out; 0 of a point without measurements.
fn heights(rounds: &[&Round], points: usize) -> impl Iterator<Item = f64> {
    let mut factors = vec![0.0; rounds.len()];
    let mut levels = levels(rounds, &factors, points);
    for _ in 0..POLISHES {
        for (round, factor) in rounds.iter().zip(&mut factors) {
            let off: Vec<f64> = round.iter().map(|&(n, v)| v - levels[n]).collect();
            // A round of few points tells its points' noise from its own less well.
            let trust = off.len() as f64 / (off.len() as f64 + 1.0);
            *factor = median(&off).unwrap_or(0.0) * trust;
        }
        levels = self::levels(rounds, &factors, points);
    }
    levels.into_iter().map(f64::exp)
}

fn levels(rounds: &[&Round], factors: &[f64], points: usize) -> Vec<f64> {
    let mut clean = vec![Vec::with_capacity(rounds.len()); points];
    for (round, factor) in rounds.iter().zip(factors) {
        for &(n, value) in *round {
            clean[n].push(value - factor);
        }
    }
    let level = |values| middle(values).unwrap_or(f64::NEG_INFINITY);
    clean.into_iter().map(level).collect()
}

/// The mean of the middle half.
fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let cut = values.len() / 4;
    let kept = values.get(cut..values.len() - cut)?;
    match kept.len() {
        0 => None,
        3 => Some(kept[0] / 4.0 + kept[1] / 2.0 + kept[2] / 4.0),
        n => Some(kept.iter().sum::<f64>() / n as f64),
    }
}

/// The last point below the knee, the first on it and the plateau's three.
fn focus_of(line: &[(f64, f64)], shape: &Shape) -> Vec<usize> {
    let Shape::Knee { first, .. } = *shape else {
        return Vec::new();
    };
    let Some(n) = line.iter().position(|p| p.0 >= first) else {
        return Vec::new();
    };
    let plateau = plateau_window(line).map_or(0, |w| w.0);
    let mut focus = vec![n.saturating_sub(1), n, plateau, plateau + 1, plateau + 2];
    focus.sort_unstable();
    focus.dedup();
    focus
}

/// Where 95 % of the knees lie that other rounds might have given.
fn between(
    points: &[Repeats],
    rounds: &[Round],
    at: f64,
    focus: &[usize],
    seed: u64,
) -> Option<(f64, f64)> {
    let fewest = focus.iter().map(|&n| points[n].made.len()).min()?;
    let (first, last) = (points.first()?.setting, points.last()?.setting);
    let mut rng = Rng::new(seed);
    let mut knees: Vec<f64> = (0..DRAWS)
        .filter_map(|_| {
            let drawn = redrawn(rounds, points.len(), &mut rng);
            let settings = points.iter().map(|p| p.setting);
            let line: Vec<(f64, f64)> = settings.zip(heights(&drawn, points.len())).collect();
            match shape(&line) {
                Shape::Knee { at, .. } => Some(at),
                Shape::Flat { .. } => Some(first),
                Shape::Rising { .. } => Some(last),
                Shape::Unknown => None,
            }
        })
        .collect();
    if fewest < 2 || knees.len() < DRAWS / 2 {
        return None;
    }
    knees.sort_unstable_by(f64::total_cmp);
    let quantile = |share: usize| knees[(knees.len() - 1) * share / 1000];
    // Few rounds spread less than those that they stand for: Student's factor.
    let n = fewest as f64;
    let wider = student_t(fewest - 1) / 1.96 * (n / (n - 1.0)).sqrt();
    let widened = |edge: f64| (at * (edge / at).powf(wider)).clamp(first, last);
    Some((
        widened(quantile(25)).min(at),
        widened(quantile(975)).max(at),
    ))
}

/// As many rounds as there were, drawn from them: those that had all points and the others apart, so
/// that no point is without.
fn redrawn<'a>(rounds: &'a [Round], points: usize, rng: &mut Rng) -> Vec<&'a Round> {
    let (whole, part): (Vec<&Round>, Vec<&Round>) = rounds.iter().partition(|r| r.len() == points);
    let mut drawn = Vec::with_capacity(rounds.len());
    for rounds in [whole, part] {
        for _ in 0..rounds.len() {
            #[allow(clippy::cast_possible_truncation, reason = "below the list's length")]
            drawn.push(rounds[(rng.next_u64() % rounds.len() as u64) as usize]);
        }
    }
    // Where no round was whole a point may have been missed.
    for n in 0..points {
        let has = |round: &&Round| round.iter().any(|&(point, _)| point == n);
        if !drawn.iter().any(&has) {
            drawn.extend(rounds.iter().find(has));
        }
    }
    drawn
}

/// An interval whose end is at most so many times its beginning is known: 5 % to either side; chosen.
const KNOWN: f64 = 1.1;
/// Further ones change levels by less than a thousandth of their noise.
const POLISHES: usize = 3;
/// The interval's edges then vary by some hundredths of its width.
const DRAWS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    /// As loopback on two cores: a plateau of three and a decline behind it.
    const RISE: [f64; 11] = [
        0.57, 1.21, 2.24, 4.07, 7.0, 11.2, 17.0, 22.2, 23.1, 24.1, 17.7,
    ];

    /// Something like a normal deviate: the sum of twelve even ones (central limit).
    fn deviate(rng: &mut Rng) -> f64 {
        (0..12).map(|_| rng.next_f64()).sum::<f64>() - 6.0
    }

    struct Machine {
        rng: Rng,
        /// How far a round as a whole may be slower, and a measurement.
        drift: f64,
        noise: f64,
        /// Share of the measurements that lose up to half.
        disturbed: f64,
    }

    impl Machine {
        fn new(seed: u64) -> Self {
            Self {
                rng: Rng::new(seed),
                drift: 0.0,
                noise: 0.0,
                disturbed: 0.0,
            }
        }

        /// Three rounds of all points, then of those that the knee needs.
        fn measure(&mut self, curve: &[f64], rounds: u32) -> Vec<Repeats> {
            let setting = |n: usize| 64.0 * 2_f64.powi(i32::try_from(n).unwrap());
            let mut points: Vec<Repeats> = (0..curve.len())
                .map(|n| Repeats {
                    setting: setting(n),
                    made: Vec::new(),
                })
                .collect();
            for round in 1..=rounds {
                let slower = (self.drift * deviate(&mut self.rng)).exp();
                let wanted = match round {
                    1..=3 => (0..curve.len()).collect(),
                    _ => {
                        let line = line(&points, rounds_of(&points).as_deref());
                        focus_of(&line, &shape(&line))
                    }
                };
                for n in wanted {
                    let mut value = curve[n] * slower * (self.noise * deviate(&mut self.rng)).exp();
                    if self.rng.next_f64() < self.disturbed {
                        value *= 0.5 + self.rng.next_f64() / 2.0;
                    }
                    points[n].made.push((round, value));
                }
            }
            points
        }
    }

    fn at(known: &Known) -> f64 {
        match known.shape {
            Shape::Knee { at, .. } => at,
            ref other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_noise_the_knee_is_the_lines_and_known() {
        let known = Known::of(&Machine::new(1).measure(&RISE, 3), 1);
        let truth: Vec<(f64, f64)> = known.line.iter().map(|p| p.0).zip(RISE).collect();
        let Shape::Knee { at: of_line, .. } = shape(&truth) else {
            panic!()
        };
        assert!((at(&known) / of_line - 1.0).abs() < 1e-9);
        let (low, high) = known.between.unwrap();
        assert!(high / low - 1.0 < 1e-9, "{low} {high}");
        assert!(known.focus().is_empty());
    }

    #[test]
    fn a_machine_that_drifts_moves_no_knee() {
        let truth = at(&Known::of(&Machine::new(1).measure(&RISE, 3), 1));
        for seed in 1..=20 {
            let mut machine = Machine {
                drift: 0.3,
                ..Machine::new(seed)
            };
            let points = machine.measure(&RISE, 8);
            let found = at(&Known::of(&points, 1));
            assert!((found / truth - 1.0).abs() < 0.02, "{seed}: {found}");
        }
    }

    #[test]
    fn knees_of_a_noisy_machine_repeat_and_lie_in_their_intervals() {
        let truth = at(&Known::of(&Machine::new(1).measure(&RISE, 3), 1));
        let (mut held, mut near) = (0, 0);
        for seed in 1..=20 {
            let mut machine = Machine {
                drift: 0.05,
                noise: 0.04,
                disturbed: 0.05,
                ..Machine::new(seed)
            };
            let known = Known::of(&machine.measure(&RISE, 30), 7);
            let (low, high) = known.between.unwrap();
            assert!(low <= at(&known) && at(&known) <= high);
            held += usize::from((low..=high).contains(&truth));
            near += usize::from((at(&known) / truth - 1.0).abs() < 0.05);
        }
        // 95 % of 20 are 19; a knee beside a bend is not quite as sure.
        assert!(held >= 17, "{held} of 20 intervals hold the truth");
        assert!(near >= 16, "{near} of 20 knees within 5 %");
    }

    #[test]
    fn what_the_knee_needs_is_measured_until_it_is_known() {
        let mut machine = Machine {
            noise: 0.05,
            ..Machine::new(3)
        };
        let known = Known::of(&machine.measure(&RISE, 3), 1);
        assert_eq!(known.focus(), [6, 7, 8, 9]);
        let more = Known::of(&machine.measure(&RISE, 200), 1);
        assert!(more.focus().is_empty(), "{:?}", more.between);
        let width = |k: &Known| k.between.map(|(low, high)| high / low).unwrap();
        assert!(width(&more) < width(&known));
    }

    #[test]
    fn few_rounds_nothing_passed_and_no_knee_have_no_interval() {
        let mut machine = Machine::new(1);
        assert_eq!(Known::of(&machine.measure(&RISE, 1), 1).between, None);
        assert!(Known::of(&machine.measure(&RISE, 2), 1).between.is_some());
        let flat = Known::of(&machine.measure(&[5.0; 6], 3), 1);
        assert!(matches!(flat.shape, Shape::Flat { .. }));
        assert_eq!((flat.between, flat.focus()), (None, vec![]));
        let none = Known::of(&machine.measure(&[0.0; 6], 3), 1);
        assert_eq!((none.shape, none.between), (Shape::Unknown, None));
        let mut some = machine.measure(&RISE, 3);
        some[0].made[1].1 = 0.0;
        let known = Known::of(&some, 1);
        assert!(matches!(known.shape, Shape::Knee { .. }));
        assert_eq!(known.between, None);
        assert_eq!(Known::of(&[], 1).shape, Shape::Unknown);
    }

    #[test]
    fn the_same_measurements_and_seed_give_the_same_interval() {
        let mut machine = Machine {
            noise: 0.05,
            ..Machine::new(5)
        };
        let points = machine.measure(&RISE, 6);
        assert_eq!(Known::of(&points, 9), Known::of(&points, 9));
    }

    #[test]
    fn the_middle_half_counts() {
        assert_eq!(middle(vec![]), None);
        assert_eq!(middle(vec![2.0]), Some(2.0));
        assert_eq!(middle(vec![1.0, 2.0]), Some(1.5));
        assert_eq!(middle(vec![4.0, 1.0, 1.0]), Some(1.75));
        assert_eq!(middle(vec![0.0, 2.0, 3.0, 90.0]), Some(2.5));
    }
}
