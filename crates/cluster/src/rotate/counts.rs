//! Worst, average and best by number of ranks and size.

use run::model::{Rotate, RotateCount, RotateFlow};

use crate::pairs;

/// Worst, average and best by number of ranks and size.
pub fn counts(rotate: &Rotate) -> Vec<RotateCount> {
    let of_times = rotate.measure == "latency";
    let mut counts: Vec<(RotateCount, Vec<Vec<f64>>)> = Vec::new();
    for round in &rotate.rounds {
        let key = (round.ranks, round.message_bytes);
        let known = counts
            .iter()
            .position(|(c, _)| (c.ranks, c.message_bytes) == key);
        let at = known.unwrap_or_else(|| {
            let count = RotateCount {
                ranks: round.ranks,
                message_bytes: round.message_bytes,
                ..RotateCount::default()
            };
            counts.push((count, Vec::new()));
            counts.len() - 1
        });
        let value = |f: &RotateFlow| match of_times {
            true => f.latency_ns,
            false => f.bits_per_second.map(|bits| bits as f64),
        };
        counts[at]
            .1
            .push(round.flows.iter().filter_map(value).collect());
    }
    let best_of = |bytes: u32| {
        let same = counts.iter().filter(|(c, _)| c.message_bytes == bytes);
        same.flat_map(|(_, rounds)| rounds.iter().flatten().copied())
            .fold(0.0, f64::max)
    };
    let bests: Vec<f64> = counts
        .iter()
        .map(|(c, _)| best_of(c.message_bytes))
        .collect();
    let each = counts.into_iter().zip(bests);
    each.map(|((count, rounds), best)| count_of(count, &rounds, of_times, best))
        .collect()
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, and a rate is not negative"
)]
pub(super) fn count_of(
    count: RotateCount,
    rounds: &[Vec<f64>],
    of_times: bool,
    best: f64,
) -> RotateCount {
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let Some(spread) = pairs::Spread::of_rounds(rounds) else {
        return count;
    };
    let count = RotateCount {
        rounds: small(rounds.len()),
        pairs: small(spread.count),
        ..count
    };
    if of_times {
        return RotateCount {
            worst_latency_ns: Some(spread.max),
            average_latency_ns: Some(spread.mean),
            best_latency_ns: Some(spread.min),
            ..count
        };
    }
    let rate = |bits: f64| Some(bits.round() as u64);
    RotateCount {
        worst_bits_per_second: rate(spread.min),
        average_bits_per_second: rate(spread.mean),
        best_bits_per_second: rate(spread.max),
        aggregate_bits_per_second: rate(spread.sum),
        floor_bits_per_second: rate(spread.floor),
        average_share: Some(spread.mean / best.max(1.0)),
        ..count
    }
}

#[cfg(test)]
mod tests {
    use run::model::RotateRound;

    use super::*;

    fn flow(from: u32, to: u32, bits: u64) -> RotateFlow {
        RotateFlow {
            from,
            to,
            bits_per_second: Some(bits),
            ..RotateFlow::default()
        }
    }

    #[test]
    fn counts_are_of_a_number_of_ranks_and_a_size() {
        let round = |ranks, number, flows: &[RotateFlow]| RotateRound {
            ranks,
            number,
            message_bytes: 1 << 20,
            flows: flows.to_vec(),
            ..RotateRound::default()
        };
        let rotate = Rotate {
            measure: "bandwidth".to_owned(),
            rounds: vec![
                round(2, 0, &[flow(0, 1, 100)]),
                round(4, 0, &[flow(0, 2, 100), flow(1, 3, 50)]),
                round(4, 1, &[flow(0, 3, 80), flow(1, 2, 50)]),
            ],
            ..Rotate::default()
        };
        let counts = counts(&rotate);
        assert_eq!(
            (counts[0].ranks, counts[0].pairs, counts[0].rounds),
            (2, 1, 1)
        );
        assert_eq!(counts[0].average_share, Some(1.0));
        let four = &counts[1];
        assert_eq!((four.rounds, four.pairs), (2, 4));
        assert_eq!(four.worst_bits_per_second, Some(50));
        assert_eq!(four.average_bits_per_second, Some(70));
        assert_eq!(four.best_bits_per_second, Some(100));
        // 150 and 130 together; 2 x 50 of each waits for the slowest.
        assert_eq!(four.aggregate_bits_per_second, Some(140));
        assert_eq!(four.floor_bits_per_second, Some(100));
    }
}
