//! A delay that varies at random, in order or with overtaking.
//!
//! Each segment draws its own part beyond the constant one. Draws may hang together: a Gaussian
//! series x' = r x + sqrt(1 - r^2) e stays standard normal at every step, and what is made of it
//! (its distribution function for the uniform shape, its absolute value for the normal one) has the
//! shape asked for whatever the correlation. netem mixes the last draw into the next one instead
//! (`get_crandom` in net/sched/sch_netem.c), which narrows the shape as the correlation grows. The
//! series' r is chosen so that the delays, not the series, have the correlation asked for.
//!
//! Logarithm and distribution function are written out with operations that IEEE 754 rounds
//! exactly, as a library's last digit differs between hosts and a seed is to mean the same delays
//! everywhere.
//!
//! Reading: G. Marsaglia, T. A. Bray, "A convenient method for generating normal variables", SIAM
//! Review 6(3), 1964; R. B. Nelsen, "An Introduction to Copulas", 2006.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::f64::consts::{FRAC_1_SQRT_2, LN_2, PI};

use units::{Duration, Instant, Rng};

use crate::event::Log;
use crate::pipeline::{Change, Stage, Trains};
use crate::spec::{JitterShape, JitterSpec};
use crate::train::Train;

/// A constant delay and a random one beyond it.
///
/// In order, a segment that would overtake leaves together with the one before it. With overtaking,
/// segments wait inside until no later one can come before them.
#[derive(Debug)]
pub struct Jitter {
    delay: Duration,
    draws: Draws,
    reorder: bool,
    /// The latest departure passed on: none comes before it any more.
    last: Instant,
    waiting: BinaryHeap<Reverse<Waiting>>,
    arrivals: u64,
}

/// A segment that may still be overtaken; the earliest departure first, then the first to arrive.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    departs: Instant,
    number: u64,
    segment: Train,
}

/// A series of random delays.
#[derive(Clone, Debug)]
struct Draws {
    rng: Rng,
    amount: Duration,
    shape: JitterShape,
    /// Of the Gaussian series, and the share of what is new in it.
    correlation: f64,
    innovation: f64,
    latent: Option<f64>,
}

impl Jitter {
    /// Delays each segment by `delay` and a draw.
    ///
    /// # Panics
    /// When the correlation is not within 0..1.
    pub fn new(delay: Duration, spec: JitterSpec, seed: u64) -> Self {
        Self {
            delay,
            draws: Draws::new(spec, seed),
            reorder: spec.reorder,
            last: Instant::ZERO,
            waiting: BinaryHeap::new(),
            arrivals: 0,
        }
    }
}

impl Stage for Jitter {
    fn name(&self) -> &'static str {
        "jitter"
    }

    fn handle(&mut self, train: Train, out: &mut Trains, _: &mut dyn Log) {
        let mut run = None;
        for k in 0..train.count {
            let own = train.time_of(k) + self.delay + self.draws.next();
            // With overtaking this binds only after a change to a shorter delay.
            let departs = own.max(self.last);
            let segment = train.part(k, 1).gathered(departs);
            if self.reorder {
                self.waiting.push(Reverse(Waiting {
                    departs,
                    number: self.arrivals,
                    segment,
                }));
                self.arrivals += 1;
            } else {
                self.last = departs;
                join(&mut run, segment, out);
            }
        }
        if let Some(run) = run {
            out.push(run);
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let earliest = self.waiting.peek().map(|w| w.0.departs);
        earliest.map(|departs| departs - self.delay)
    }

    fn advance(&mut self, to: Instant, out: &mut Trains, _: &mut dyn Log) {
        let horizon = to + self.delay;
        let mut run = None;
        while let Some(next) = self.waiting.peek().filter(|w| w.0.departs <= horizon) {
            self.last = next.0.departs;
            join(&mut run, next.0.segment, out);
            self.waiting.pop();
        }
        if let Some(run) = run {
            out.push(run);
        }
    }

    fn delay_min(&self) -> Duration {
        self.delay
    }

    fn change(&mut self, change: &Change) {
        if let Change::Delay(delay) = *change {
            self.delay = delay;
        }
    }

    fn segments_held(&self) -> u64 {
        self.waiting.len() as u64
    }
}

/// Adds a segment to the run if it leaves together with it, or begins the next run.
fn join(run: &mut Option<Train>, segment: Train, out: &mut Trains) {
    match run {
        Some(run) if run.at == segment.at && run.is_followed_by(&segment) => run.count += 1,
        Some(run) => out.push(std::mem::replace(run, segment)),
        None => *run = Some(segment),
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.departs, self.number).cmp(&(other.departs, other.number))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

impl Draws {
    fn new(spec: JitterSpec, seed: u64) -> Self {
        assert!(
            (0.0..1.0).contains(&spec.correlation),
            "a correlation lies within 0..1"
        );
        let correlation = latent_correlation(spec.shape, spec.correlation);
        Self {
            rng: Rng::new(seed),
            amount: spec.amount,
            shape: spec.shape,
            correlation,
            innovation: (1.0 - correlation * correlation).sqrt(),
            latent: None,
        }
    }

    /// The next delay.
    fn next(&mut self) -> Duration {
        match self.shape {
            JitterShape::Uniform => {
                let u = if self.correlation == 0.0 {
                    self.rng.next_f64()
                } else {
                    normal_distribution(self.next_latent())
                };
                // Each whole nanosecond from 0 to the amount is as likely as the others.
                let ns = whole_ns(u, self.amount.as_ns().saturating_add(1));
                Duration::from_ns(ns.min(self.amount.as_ns()))
            }
            JitterShape::Normal => {
                let deviations = self.next_latent().abs().min(DEVIATIONS_MAX);
                Duration::from_ns(whole_ns(deviations, self.amount.as_ns()))
            }
        }
    }

    /// The next of the Gaussian series: standard normal, from the first one on.
    fn next_latent(&mut self) -> f64 {
        let fresh = standard_normal(&mut self.rng);
        let next = match self.latent {
            Some(last) => self.correlation * last + self.innovation * fresh,
            None => fresh,
        };
        self.latent = Some(next);
        next
    }
}

/// `factor * ns`, rounded down.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the factor is not negative, the cast saturates, and 53 bits of ns are 104 days"
)]
fn whole_ns(factor: f64, ns: u64) -> u64 {
    (factor * ns as f64) as u64
}

/// The Gaussian series' correlation that gives its image the correlation `wanted`.
fn latent_correlation(shape: JitterShape, wanted: f64) -> f64 {
    let exact = match shape {
        // Spearman's rho of the normal copula is 6/pi asin(r/2) (Nelsen, exercise 5.4).
        JitterShape::Uniform => 2.0 * (PI * wanted / 6.0).sin(),
        JitterShape::Normal => {
            let (mut low, mut high) = (0.0, 1.0);
            for _ in 0..60 {
                let middle = f64::midpoint(low, high);
                if folded_correlation(middle) < wanted {
                    low = middle;
                } else {
                    high = middle;
                }
            }
            low
        }
    };
    // The library's last digits differ between hosts; nine are more than enough.
    (exact * 1e9).round() / 1e9
}

/// Correlation of |X| and |Y| where that of the standard normal X and Y is `r`, from
/// E|XY| = 2/pi (sqrt(1 - r^2) + r asin r).
fn folded_correlation(r: f64) -> f64 {
    ((1.0 - r * r).sqrt() + r * r.asin() - 1.0) * 2.0 / (PI - 2.0)
}

/// Marsaglia's polar method; the second of each pair is not used, so that no state hides here.
fn standard_normal(rng: &mut Rng) -> f64 {
    loop {
        let u = 2.0 * rng.next_f64() - 1.0;
        let v = 2.0 * rng.next_f64() - 1.0;
        let s = u * u + v * v;
        if s > 0.0 && s < 1.0 {
            return u * (-2.0 * ln(s) / s).sqrt();
        }
    }
}

/// Natural logarithm of a normal, positive number: exponent, and mantissa by the series of artanh.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = i32::try_from(bits >> 52).unwrap_or(0) - 1023;
    let mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    // Around 1 the series converges fast: |z| <= 0.172, and 10 terms leave 1e-17.
    let m = mantissa * FRAC_1_SQRT_2;
    let z = (m - 1.0) / (m + 1.0);
    let series = (0..10)
        .rev()
        .fold(0.0, |sum, n| sum * z * z + 1.0 / f64::from(2 * n + 1));
    (f64::from(exponent) + 0.5) * LN_2 + 2.0 * z * series
}

/// Distribution function of the standard normal, by its power series; right to 1e-8 and better.
fn normal_distribution(x: f64) -> f64 {
    // Beyond six deviations one draw in 5e8 lies; there the terms reach 2e6 and cancel well.
    let x = x.clamp(-6.0, 6.0);
    let (mut power, mut sum) = (x, x);
    for n in 1..100 {
        let n = f64::from(n);
        power *= -x * x / (2.0 * n);
        let term = power / (2.0 * n + 1.0);
        sum += term;
        if term.abs() < 1e-17 {
            break;
        }
    }
    (0.5 + sum / (2.0 * PI).sqrt()).clamp(0.0, 1.0)
}

/// Longer draws are cut to this many deviations (one in 16,000), so that the delay has a bound.
const DEVIATIONS_MAX: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::testing::{pass, spaced, train};

    const BASE: Duration = Duration::from_us(100);

    fn spec(shape: JitterShape, correlation: f64, reorder: bool) -> JitterSpec {
        JitterSpec {
            amount: Duration::from_us(50),
            shape,
            correlation,
            reorder,
        }
    }

    fn uniform(reorder: bool) -> JitterSpec {
        spec(JitterShape::Uniform, 0.0, reorder)
    }

    /// Mean, deviation and lag-1 correlation of a million draws, in units of the amount.
    fn moments(shape: JitterShape, correlation: f64) -> (f64, f64, f64) {
        let amount = Duration::from_ms(1);
        let spec = JitterSpec {
            amount,
            ..spec(shape, correlation, false)
        };
        let mut draws = Draws::new(spec, 42);
        let n = 1_000_000;
        let all: Vec<f64> = (0..n)
            .map(|_| draws.next().as_s_f64() / amount.as_s_f64())
            .collect();
        let mean = all.iter().sum::<f64>() / f64::from(n);
        let square = |x: &f64| (x - mean) * (x - mean);
        let variance = all.iter().map(square).sum::<f64>() / f64::from(n);
        let product = |p: &[f64]| (p[0] - mean) * (p[1] - mean);
        let lagged = all.windows(2).map(product).sum::<f64>() / f64::from(n);
        (mean, variance.sqrt(), lagged / variance)
    }

    #[test]
    fn the_shape_is_kept_and_the_correlation_realised() {
        // Uniform: 1/2 and 1/sqrt(12). |normal|: sqrt(2/pi) and sqrt(1 - 2/pi).
        for (shape, mean, deviation) in [
            (JitterShape::Uniform, 0.5, 0.288_675),
            (JitterShape::Normal, 0.797_885, 0.602_810),
        ] {
            for correlation in [0.0, 0.9] {
                let (m, d, c) = moments(shape, correlation);
                let what = format!("{shape:?} {correlation}: {m} {d} {c}");
                // Four standard errors at most: at 0.9 the million counts like 53,000 draws.
                let spread = if correlation < 0.5 { 0.004 } else { 0.018 };
                assert!((m - mean).abs() < spread * deviation, "{what}");
                assert!((d - deviation).abs() < spread * deviation, "{what}");
                assert!((c - correlation).abs() < 0.005, "{what}");
            }
        }
    }

    #[test]
    fn each_tenth_of_the_uniform_range_gets_its_share_whatever_the_correlation() {
        for correlation in [0.0, 0.5] {
            let amount = Duration::from_ns(9);
            let spec = JitterSpec {
                amount,
                ..spec(JitterShape::Uniform, correlation, false)
            };
            let mut draws = Draws::new(spec, 1);
            let mut counts = [0_u32; 10];
            for _ in 0..1_000_000 {
                counts[usize::try_from(draws.next().as_ns()).unwrap()] += 1;
            }
            // Deviation of a count without correlation: 300.
            let bound = if correlation == 0.0 { 1_200 } else { 2_400 };
            assert!(
                counts.iter().all(|c| c.abs_diff(100_000) < bound),
                "{counts:?}"
            );
        }
    }

    #[test]
    fn normal_jitter_is_cut_at_four_deviations() {
        let mut draws = Draws::new(spec(JitterShape::Normal, 0.0, false), 2);
        let longest = (0..300_000).map(|_| draws.next()).max();
        assert_eq!(longest, Some(Duration::from_us(200)));
    }

    #[test]
    fn logarithm_and_distribution_agree_with_known_values() {
        let mut rng = Rng::new(1);
        for x in (0..1_000)
            .map(|_| rng.next_f64())
            .chain([1e-300, 0.5, 1.0, 1.5])
        {
            assert!(
                (ln(x) - x.ln()).abs() <= 1e-15 * x.ln().abs().max(1.0),
                "{x}"
            );
        }
        // Abramowitz and Stegun, table 26.1.
        for (x, p) in [
            (0.0, 0.5),
            (1.0, 0.841_344_746_068_543),
            (1.96, 0.975_002_104_851_780),
            (-3.0, 0.001_349_898_031_630),
            (-6.0, 9.865_9e-10),
        ] {
            assert!((normal_distribution(x) - p).abs() < 1e-8, "{x}");
        }
        for r in [0.0, 0.3, 0.99] {
            let latent = latent_correlation(JitterShape::Normal, r);
            assert!((folded_correlation(latent) - r).abs() < 1e-8, "{r}");
        }
    }

    #[test]
    fn in_order_a_segment_waits_for_its_elder_and_leaves_with_it() {
        let mut stage = Jitter::new(BASE, uniform(false), 7);
        let (out, _) = pass(
            &mut stage,
            &[spaced(1, 500, 0, 1_000), spaced(2, 500, 500_000, 1_000)],
        );
        // The same draws with nobody to wait for.
        let mut draws = Draws::new(uniform(false), 7);
        let mut last = Instant::ZERO;
        let mut waited = 0;
        let mut leaving = out.iter().flat_map(|t| (0..t.count).map(|k| t.time_of(k)));
        for k in 0..1_000 {
            let own = Instant::from_ns(k * 1_000) + BASE + draws.next();
            waited += u32::from(own < last);
            last = own.max(last);
            assert_eq!(leaving.next(), Some(last), "segment {k}");
        }
        assert_eq!(leaving.next(), None);
        assert!(waited > 500, "the draws overtake often: {waited}");
        assert!(out.len() < 500, "those that leave together are one train");
        assert!(stage.next_wakeup().is_none());
    }

    #[test]
    fn fates_do_not_hang_on_the_grouping() {
        let whole = train(1, 200, 0);
        let singles: Vec<Train> = (0..200).map(|k| whole.part(k, 1)).collect();
        let times = |trains: &[Train]| {
            let mut stage = Jitter::new(BASE, spec(JitterShape::Normal, 0.7, false), 5);
            let (out, _) = pass(&mut stage, trains);
            let each = |t: &Train| vec![t.at; usize::from(t.count)];
            out.iter().flat_map(each).collect::<Vec<_>>()
        };
        assert_eq!(times(&[whole]), times(&singles));
    }

    fn advance(stage: &mut Jitter, to_ns: u64) -> Vec<Train> {
        let mut out = Trains::default();
        stage.advance(Instant::from_ns(to_ns), &mut out, &mut Vec::new());
        out.drain().collect()
    }

    #[test]
    fn with_overtaking_each_segment_leaves_at_its_own_time_in_order_of_time() {
        let mut stage = Jitter::new(BASE, uniform(true), 7);
        let (early, _) = pass(&mut stage, &[spaced(1, 500, 0, 1_000)]);
        assert!(early.is_empty() && stage.segments_held() == 500);
        let mut draws = Draws::new(uniform(true), 7);
        let mut expected: Vec<(Instant, u16)> = (0..500)
            .map(|k| {
                (
                    Instant::from_ns(u64::from(k) * 1_000) + BASE + draws.next(),
                    k,
                )
            })
            .collect();
        expected.sort_unstable();
        let mut got = Vec::new();
        while let Some(at) = stage.next_wakeup() {
            let early = at.as_ns().checked_sub(1).map(|to| advance(&mut stage, to));
            assert!(
                early.is_none_or(|out| out.is_empty()),
                "nothing before its time"
            );
            got.extend(advance(&mut stage, at.as_ns()));
        }
        let each = |t: &Train| {
            let t = *t;
            (0..t.count).map(move |k| (t.at, t.first + k))
        };
        let got: Vec<(Instant, u16)> = got.iter().flat_map(each).collect();
        assert_eq!(got, expected);
        assert!(got.windows(2).any(|p| p[0].1 > p[1].1), "some overtake");
    }

    #[test]
    fn without_an_amount_reordering_keeps_the_order_of_arrival_and_trains_whole() {
        let still = JitterSpec {
            amount: Duration::ZERO,
            ..uniform(true)
        };
        let mut stage = Jitter::new(BASE, still, 1);
        pass(&mut stage, &[train(2, 44, 0), train(1, 44, 0)]);
        let out = advance(&mut stage, 0);
        assert_eq!(out, [train(2, 44, 100_000), train(1, 44, 100_000)]);
        assert_eq!(stage.segments_held(), 0);
    }

    #[test]
    fn after_a_change_to_a_shorter_delay_nothing_leaves_before_what_has_left() {
        for reorder in [false, true] {
            let still = JitterSpec {
                amount: Duration::ZERO,
                ..uniform(reorder)
            };
            let mut stage = Jitter::new(BASE, still, 1);
            let (mut out, _) = pass(&mut stage, &[train(1, 1, 0), train(2, 1, 50_000)]);
            out.extend(advance(&mut stage, 50_000));
            stage.change(&Change::Delay(Duration::from_us(10)));
            out.extend(pass(&mut stage, &[train(3, 1, 60_000), train(4, 1, 150_000)]).0);
            out.extend(advance(&mut stage, 200_000));
            let at: Vec<u64> = out.iter().map(|t| t.at.as_ns()).collect();
            assert_eq!(
                at,
                [100_000, 150_000, 150_000, 160_000],
                "reorder: {reorder}"
            );
        }
    }
}
