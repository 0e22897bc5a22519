//! What the rates alone say of a network whose ways are not known.
//!
//! A host that is slow with all of its partners is slow itself. Pairs that share a link as fast as the
//! hosts' own get a half, a third, a quarter of the best: that they are slow only in company, and by whole
//! numbers, is the mark of static routes. Links that are faster than what a host can send (670 MB/s of a
//! host on links of 968 MB/s, in the notes that come with CBench) divide into other parts: then the cause
//! stays unknown here.

use super::spread::Matrix;

/// What may be read from a matrix of rates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Fastest pair.
    pub best: f64,
    /// Pairs below [`SLOW`] of it.
    pub slow: usize,
    /// All pairs.
    pub pairs: usize,
    /// What is most likely.
    pub cause: Cause,
    /// Pairs by how many times the best is what they got: those that share a link by so many.
    pub multiples: Vec<Multiple>,
}

/// Why pairs are slow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// None is.
    #[default]
    None,
    /// These ranks are slow with all of their partners.
    Ranks(Vec<usize>),
    /// Slow pairs get a whole part of the best: links are shared.
    Shared,
    /// Something else.
    Unknown,
}

/// Pairs that got the best divided by a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiple {
    /// The number.
    pub by: usize,
    /// Pairs.
    pub pairs: usize,
}

/// Reads a matrix of rates; of nothing nothing is read.
#[allow(clippy::cast_precision_loss, reason = "a number of pairs")]
pub fn read(matrix: &Matrix) -> Reading {
    let known: Vec<_> = matrix.known().collect();
    let best = known.iter().map(|k| k.1).fold(0.0, f64::max);
    let is_slow = |rate: f64| rate < SLOW * best;
    let slow = known.iter().filter(|k| is_slow(k.1)).count();
    let multiples = multiples(known.iter().map(|k| k.1), best);
    let ranks = slow_ranks(matrix, best);
    let by_ranks = known
        .iter()
        .filter(|(flow, rate)| {
            is_slow(*rate) && (ranks.contains(&flow.from) || ranks.contains(&flow.to))
        })
        .count();
    let whole: usize = multiples.iter().filter(|m| m.by > 1).map(|m| m.pairs).sum();
    let most = |part: usize| part as f64 >= MOST * slow as f64;
    let cause = if slow == 0 {
        Cause::None
    } else if most(by_ranks) {
        Cause::Ranks(ranks)
    } else if most(whole) {
        Cause::Shared
    } else {
        Cause::Unknown
    };
    Reading {
        best,
        slow,
        pairs: known.len(),
        cause,
        multiples,
    }
}

/// Ranks whose every partner is slow with them, where they are a few among many.
fn slow_ranks(matrix: &Matrix, best: f64) -> Vec<usize> {
    let all_slow = |rank: &usize| {
        let of = |(flow, _): &(super::Flow, f64)| flow.from == *rank || flow.to == *rank;
        let mut rates = matrix.known().filter(of).map(|k| k.1).peekable();
        rates.peek().is_some() && rates.all(|rate| rate < SLOW * best)
    };
    let slow: Vec<usize> = (0..matrix.ranks()).filter(all_slow).collect();
    match 4 * slow.len() <= matrix.ranks() {
        true => slow,
        false => Vec::new(),
    }
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a small whole number that is near a ratio of rates"
)]
fn multiples(rates: impl Iterator<Item = f64>, best: f64) -> Vec<Multiple> {
    let mut counts = [0_usize; MULTIPLE_MAX + 1];
    for rate in rates {
        let ratio = best / rate.max(f64::MIN_POSITIVE);
        let by = ratio.round();
        if by >= 1.0 && by <= MULTIPLE_MAX as f64 && (ratio / by - 1.0).abs() <= NEAR {
            counts[by as usize] += 1;
        }
    }
    let each = counts.into_iter().enumerate();
    let some = each.filter(|&(_, pairs)| pairs > 0);
    some.map(|(by, pairs)| Multiple { by, pairs }).collect()
}

/// Below this part of the best a pair is slow: between alone and two on a link, nearer to alone, since the
/// slowest pair's share is what two get at most.
const SLOW: f64 = 0.75;
/// How near a ratio is to a whole number: shares of TCP flows vary by some per cent, and neighbouring
/// multiples must not overlap up to 5.
const NEAR: f64 = 0.12;
/// The part of slow pairs that a cause must account for.
const MOST: f64 = 0.75;
/// Beyond this every rate is near to a whole part.
const MULTIPLE_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::super::{Flow, rotate};
    use super::*;

    fn matrix(ranks: usize, rate: impl Fn(Flow) -> f64) -> Matrix {
        let mut matrix = Matrix::new(ranks);
        for flow in rotate(ranks).unwrap().into_iter().flatten() {
            matrix.set(flow, rate(flow));
        }
        matrix
    }

    #[test]
    fn an_even_matrix_has_nothing_to_explain() {
        let reading = read(&matrix(8, |_| 100.0));
        assert_eq!((reading.slow, reading.pairs), (0, 16));
        assert_eq!(reading.cause, Cause::None);
        assert_eq!(reading.multiples, [Multiple { by: 1, pairs: 16 }]);
        assert_eq!(read(&Matrix::new(4)).cause, Cause::None);
    }

    #[test]
    fn a_slow_host_is_told_from_a_shared_link() {
        let host = read(&matrix(8, |f| if f.to == 6 { 40.0 } else { 100.0 }));
        assert_eq!(host.cause, Cause::Ranks(vec![6]));
        // Of four flows that cross at once two share, in every rotation others.
        let shared = read(&matrix(8, |f| {
            if (f.from + f.to) % 4 < 2 { 49.0 } else { 98.0 }
        }));
        assert_eq!(shared.cause, Cause::Shared);
        let by: Vec<usize> = shared.multiples.iter().map(|m| m.by).collect();
        assert_eq!(by, [1, 2]);
        let odd = read(&matrix(8, |f| {
            if f.from.is_multiple_of(2) && f.to < 6 {
                66.0
            } else {
                100.0
            }
        }));
        assert_eq!(odd.cause, Cause::Unknown);
    }
}
