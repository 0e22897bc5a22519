//! What the rates of flows that ran at once come to.

use super::plan::Flow;

/// The slowest, the fastest and all of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// All together.
    pub sum: f64,
    /// What all get together where each waits for the slowest: the smallest times their number.
    pub floor: f64,
    /// How many.
    pub count: usize,
}

impl Spread {
    /// `None` of no values. What is no number counts for nothing but is counted: a rate is never NaN.
    #[allow(clippy::cast_precision_loss, reason = "a number of flows")]
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (sum, count) = (values.iter().sum::<f64>(), values.len());
        Some(Self {
            min,
            max,
            mean: sum / count as f64,
            sum,
            floor: min * count as f64,
            count,
        })
    }

    /// Of rounds, as CBench closes: the extremes of all, the means of the rounds' means and sums. `floor`
    /// is the mean of the rounds' floors.
    #[allow(clippy::cast_precision_loss, reason = "a number of rounds")]
    pub fn of_rounds(rounds: &[Vec<f64>]) -> Option<Self> {
        let spreads: Vec<Self> = rounds.iter().filter_map(|r| Self::of(r)).collect();
        let first = *spreads.first()?;
        let mean =
            |of: fn(&Self) -> f64| spreads.iter().map(of).sum::<f64>() / spreads.len() as f64;
        Some(Self {
            min: spreads.iter().map(|s| s.min).fold(first.min, f64::min),
            max: spreads.iter().map(|s| s.max).fold(first.max, f64::max),
            mean: mean(|s| s.mean),
            sum: mean(|s| s.sum),
            floor: mean(|s| s.floor),
            count: spreads.iter().map(|s| s.count).sum(),
        })
    }
}

/// What each ordered pair of ranks came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matrix {
    ranks: usize,
    values: Vec<Option<f64>>,
}

impl Matrix {
    /// Of so many ranks, nothing known yet.
    pub fn new(ranks: usize) -> Self {
        Self {
            ranks,
            values: vec![None; ranks * ranks],
        }
    }

    /// Ranks.
    pub const fn ranks(&self) -> usize {
        self.ranks
    }

    /// Keeps a flow's value; of a pair that came before the last counts. Ranks beyond are left out.
    pub fn set(&mut self, flow: Flow, value: f64) {
        if flow.from < self.ranks && flow.to < self.ranks {
            self.values[flow.from * self.ranks + flow.to] = Some(value);
        }
    }

    /// What a pair came to.
    pub fn get(&self, from: usize, to: usize) -> Option<f64> {
        let inside = from < self.ranks && to < self.ranks;
        inside.then(|| self.values[from * self.ranks + to])?
    }

    /// All that is known, row by row.
    pub fn known(&self) -> impl Iterator<Item = (Flow, f64)> {
        let ranks = self.ranks.max(1);
        let each = self.values.iter().enumerate();
        each.filter_map(move |(at, value)| {
            let (from, to) = (at / ranks, at % ranks);
            value.map(|value| (Flow { from, to }, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_is_what_all_get_who_wait_for_the_slowest() {
        let spread = Spread::of(&[4.0, 1.0, 4.0]).unwrap();
        assert_eq!((spread.min, spread.max, spread.mean), (1.0, 4.0, 3.0));
        assert_eq!((spread.sum, spread.floor, spread.count), (9.0, 3.0, 3));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn rounds_close_with_the_extremes_of_all_and_the_means_of_each() {
        let spread = Spread::of_rounds(&[vec![1.0, 3.0], vec![5.0, 7.0]]).unwrap();
        assert_eq!((spread.min, spread.max, spread.mean), (1.0, 7.0, 4.0));
        assert_eq!((spread.sum, spread.floor, spread.count), (8.0, 6.0, 4));
        assert_eq!(Spread::of_rounds(&[Vec::new()]), None);
    }

    #[test]
    fn a_matrix_knows_what_it_was_told() {
        let mut matrix = Matrix::new(3);
        matrix.set(Flow { from: 0, to: 2 }, 5.0);
        matrix.set(Flow { from: 3, to: 0 }, 9.0);
        assert_eq!(matrix.get(0, 2), Some(5.0));
        assert_eq!((matrix.get(2, 0), matrix.get(3, 0)), (None, None));
        assert_eq!(matrix.known().count(), 1);
        assert_eq!(Matrix::new(0).known().count(), 0);
    }
}
