//! How sure a finding is: a product of a few terms, each in 0..=1.
//!
//! `confidence = data x (one term for each thing that the rule needs)`, where
//!
//! * [`data`] grows with the number of readings: 0.25 with none, 0.56 with one interval, 1 from
//!   eight on;
//! * [`ramp`] turns a share, a ratio or a delay into a term: 0 at or below its lower mark, 1 at or
//!   above its upper, straight between;
//! * [`agreement`] says how close a model comes to the measurement: 1 when equal, 0 at a factor of
//!   four. Since a model may fail for reasons of its own, disagreement costs at most 40 %, and a
//!   rule that has no model to ask loses the same ([`with_model`]).
//!
//! Every term is monotone in its evidence, hence so is the product: more readings, a larger share
//! or a better fit never lower it. It is no probability; it orders findings, and a verdict is
//! called conclusive from [`CONCLUSIVE`] on. The marks are chosen, not fitted.

use units::Rate;

/// From which confidence a verdict counts as conclusive.
pub const CONCLUSIVE: f64 = 0.5;

/// What `intervals` readings after the ramp are worth.
pub fn data(intervals: usize) -> f64 {
    if intervals == 0 {
        return 0.25;
    }
    0.5 + 0.5 * ramp(intervals as f64, 0.0, ENOUGH_INTERVALS)
}

/// 0 up to `low` (and for NaN), 1 from `high` on, straight between.
pub fn ramp(value: f64, low: f64, high: f64) -> f64 {
    if value > low {
        ((value - low) / (high - low)).min(1.0)
    } else {
        0.0
    }
}

/// How close two rates are: 1 when equal, 0.5 at a factor of two, 0 from a factor of four on.
pub fn agreement(measured: Rate, model: Rate) -> f64 {
    agreement_of(
        measured.as_bits_per_second() as f64,
        model.as_bits_per_second() as f64,
    )
}

/// The same of any two quantities.
pub fn agreement_of(a: f64, b: f64) -> f64 {
    if a <= 0.0 || b <= 0.0 {
        return 0.0;
    }
    (1.0 - (a / b).log2().abs() / 2.0).clamp(0.0, 1.0)
}

/// The term of a model's [`agreement`], or of its absence.
pub fn with_model(agreement: Option<f64>) -> f64 {
    0.6 + 0.4 * agreement.unwrap_or(0.0)
}

/// Eight intervals: with fewer, one that is disturbed decides.
const ENOUGH_INTERVALS: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(bits: u64) -> Rate {
        Rate::from_bits_per_second(bits)
    }

    #[test]
    fn every_term_stays_in_range_and_grows_with_its_evidence() {
        let readings: Vec<f64> = (0..20).map(data).collect();
        assert!(readings.is_sorted());
        assert_eq!((readings[0], readings[1], readings[8]), (0.25, 0.5625, 1.0));
        assert_eq!(
            [0.0, 0.25, 0.5, 0.75, 1.0].map(|x| ramp(x, 0.25, 0.75)),
            [0.0, 0.0, 0.5, 1.0, 1.0]
        );
    }

    #[test]
    fn a_factor_of_two_is_half_agreement_either_way() {
        assert_eq!(agreement(rate(1_000), rate(1_000)), 1.0);
        assert_eq!(agreement(rate(2_000), rate(1_000)), 0.5);
        assert_eq!(agreement(rate(1_000), rate(2_000)), 0.5);
        assert_eq!(agreement(rate(8_000), rate(1_000)), 0.0);
        assert_eq!(agreement(rate(0), rate(1_000)), 0.0);
        assert_eq!((with_model(None), with_model(Some(1.0))), (0.6, 1.0));
    }
}
