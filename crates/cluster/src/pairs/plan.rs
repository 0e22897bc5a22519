//! Who sends to whom at the same time.

use units::Rng;

/// One rank that sends to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// Rank that sends.
    pub from: usize,
    /// Rank that receives.
    pub to: usize,
}

/// Flows that run at once.
pub type Round = Vec<Flow>;

/// Why there is no such plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanError {
    /// Fewer than two ranks.
    TooFew {
        /// How many there are.
        ranks: usize,
    },
    /// Blocks of twice `per_node` ranks do not fill the ranks.
    Blocks {
        /// Ranks of a node.
        per_node: usize,
        /// All ranks.
        ranks: usize,
    },
    /// A line of a list of pairs is none.
    Line {
        /// Which, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
}

impl std::fmt::Display for PlanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooFew { ranks } => write!(
                f,
                "of {ranks} there are no pairs: ranks must be two at least"
            ),
            Self::Blocks { per_node, ranks } => write!(
                f,
                "{per_node} ranks a node: blocks of {} do not fill {ranks} ranks",
                per_node.saturating_mul(2)
            ),
            Self::Line { line, problem } => write!(f, "line {line}: {problem}"),
        }
    }
}

impl std::error::Error for PlanError {}

/// CBench's rotations: of N ranks (an odd last one is left out) the low half sends to the high half,
/// shifted by one from rotation to rotation, so that each of the (N/2)² pairs of low and high comes once.
///
/// # Errors
/// [`PlanError::TooFew`].
pub fn rotate(ranks: usize) -> Result<Vec<Round>, PlanError> {
    let half = half(ranks)?;
    let rotation = |r| {
        let flow = |i| Flow {
            from: i,
            to: half + (i + r) % half,
        };
        (0..half).map(flow).collect()
    };
    Ok((0..half).map(rotation).collect())
}

/// The pairs of `com`: rank r and r + N/2, an odd last rank left out.
///
/// # Errors
/// [`PlanError::TooFew`].
pub fn bisection(ranks: usize) -> Result<Round, PlanError> {
    let half = half(ranks)?;
    Ok((0..half)
        .map(|i| Flow {
            from: i,
            to: half + i,
        })
        .collect())
}

/// The pairs of `com -r -t per_node`: in blocks of two nodes the k-th rank of one and of the other.
///
/// # Errors
/// [`PlanError::TooFew`], [`PlanError::Blocks`].
pub fn neighbours(ranks: usize, per_node: usize) -> Result<Round, PlanError> {
    half(ranks)?;
    let block = per_node.checked_mul(2).filter(|&block| block > 0);
    if !block.is_some_and(|block| ranks.is_multiple_of(block)) {
        return Err(PlanError::Blocks { per_node, ranks });
    }
    let low = (0..ranks).filter(|r| (r / per_node).is_multiple_of(2));
    let flow = |from| Flow {
        from,
        to: from + per_node,
    };
    Ok(low.map(flow).collect())
}

/// Pairs from a list: a line each with two of the names, or their numbers from 0; empty lines and what
/// follows a `#` are left out. A rank is in one pair at most.
///
/// # Errors
/// [`PlanError::Line`]; [`PlanError::TooFew`] where there is no pair.
pub fn listed(text: &str, names: &[String]) -> Result<Round, PlanError> {
    let mut taken = vec![false; names.len()];
    let mut round = Round::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let problem = |problem: String| PlanError::Line {
            line: number + 1,
            problem,
        };
        let [from, to] = match words.as_slice() {
            [] => continue,
            [from, to] => [*from, *to],
            _ => return Err(problem("expected two ranks".to_owned())),
        };
        let mut rank = |typed: &str| {
            let by_name = names.iter().position(|name| name == typed);
            let rank = by_name.or_else(|| typed.parse().ok().filter(|&n: &usize| n < names.len()));
            let rank = rank.ok_or_else(|| problem(format!("'{typed}' is no rank")))?;
            match std::mem::replace(&mut taken[rank], true) {
                true => Err(problem(format!("{typed} has a partner already"))),
                false => Ok(rank),
            }
        };
        let (from, to) = (rank(from)?, rank(to)?);
        round.push(Flow { from, to });
    }
    match round.is_empty() {
        true => Err(PlanError::TooFew { ranks: 0 }),
        false => Ok(round),
    }
}

/// The sweep of `com` over its active ranks: 2, 4, ... all; the first pairs of the round each time.
pub fn com(round: &[Flow]) -> Vec<Round> {
    (1..=round.len()).map(|n| round[..n].to_vec()).collect()
}

/// mpiGraph's steps: in step d = 1 ... N-1 every rank sends to rank + d and receives from rank - d at once,
/// so that each ordered pair comes once.
///
/// # Errors
/// [`PlanError::TooFew`].
pub fn shifts(ranks: usize) -> Result<Vec<Round>, PlanError> {
    half(ranks)?;
    let step = |d| {
        let flow = |from| Flow {
            from,
            to: (from + d) % ranks,
        };
        (0..ranks).map(flow).collect()
    };
    Ok((1..ranks).map(step).collect())
}

/// Ranks in an order that the seed chooses (Fisher and Yates).
pub fn shuffled(ranks: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..ranks).collect();
    let mut rng = Rng::new(seed);
    for last in (1..ranks).rev() {
        let bound = u64::try_from(last + 1).unwrap_or(u64::MAX);
        // The high half of the product is uniform to one part in 2^64 over the bound.
        let drawn = (u128::from(rng.next_u64()) * u128::from(bound)) >> 64;
        order.swap(last, usize::try_from(drawn).unwrap_or(0));
    }
    order
}

fn half(ranks: usize) -> Result<usize, PlanError> {
    match ranks / 2 {
        0 => Err(PlanError::TooFew { ranks }),
        half => Ok(half),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_rotation_has_every_pair_of_low_and_high_exactly_once(ranks in 2_usize..260) {
            let half = ranks / 2;
            let rotations = rotate(ranks).unwrap();
            prop_assert_eq!(rotations.len(), half);
            let mut seen = BTreeSet::new();
            for round in &rotations {
                prop_assert_eq!(round.len(), half);
                let busy: BTreeSet<usize> = round.iter().flat_map(|f| [f.from, f.to]).collect();
                prop_assert_eq!(busy.len(), 2 * half);
                for flow in round {
                    prop_assert!(flow.from < half && (half..2 * half).contains(&flow.to));
                    prop_assert!(seen.insert(*flow));
                }
            }
            prop_assert_eq!(seen.len(), half * half);
        }

        #[test]
        fn a_list_is_refused_with_one_of_its_lines_or_has_each_rank_once(
            text in "(([n#0-9a-c ]|n0[0-7]){0,12}\n){0,6}",
        ) {
            let names: Vec<String> = (0..8).map(|n| format!("n{n:02}")).collect();
            match listed(&text, &names) {
                Ok(round) => {
                    let busy: BTreeSet<usize> = round.iter().flat_map(|f| [f.from, f.to]).collect();
                    prop_assert_eq!(busy.len(), 2 * round.len());
                    prop_assert!(busy.iter().all(|rank| *rank < names.len()));
                }
                Err(PlanError::Line { line, .. }) => {
                    prop_assert!((1..=text.lines().count()).contains(&line));
                }
                Err(_) => {}
            }
        }

        #[test]
        fn shifts_have_every_ordered_pair_once_and_each_rank_sends_and_receives(ranks in 2_usize..80) {
            let mut seen = BTreeSet::new();
            for round in shifts(ranks).unwrap() {
                let from: BTreeSet<usize> = round.iter().map(|f| f.from).collect();
                let to: BTreeSet<usize> = round.iter().map(|f| f.to).collect();
                prop_assert_eq!((from.len(), to.len()), (ranks, ranks));
                for flow in round {
                    prop_assert!(flow.from != flow.to && seen.insert(flow));
                }
            }
            prop_assert_eq!(seen.len(), ranks * (ranks - 1));
        }

        #[test]
        fn a_shuffle_is_a_permutation_that_the_seed_names(ranks in 0_usize..200, seed: u64) {
            let order = shuffled(ranks, seed);
            prop_assert_eq!(&order, &shuffled(ranks, seed));
            let mut sorted = order;
            sorted.sort_unstable();
            prop_assert!(sorted.into_iter().eq(0..ranks));
        }

        #[test]
        fn any_list_is_pairs_or_refused(text in "[a-c0-9# \n]{0,60}") {
            let names = ["a", "b", "c", "d"].map(str::to_owned);
            if let Ok(round) = listed(&text, &names) {
                let busy: BTreeSet<usize> = round.iter().flat_map(|f| [f.from, f.to]).collect();
                prop_assert_eq!(busy.len(), 2 * round.len());
            }
        }
    }

    fn round(pairs: &[(usize, usize)]) -> Round {
        pairs.iter().map(|&(from, to)| Flow { from, to }).collect()
    }

    #[test]
    fn four_ranks_rotate_twice_and_a_fifth_is_left_out() {
        let wanted = vec![round(&[(0, 2), (1, 3)]), round(&[(0, 3), (1, 2)])];
        assert_eq!(rotate(4), Ok(wanted.clone()));
        assert_eq!(rotate(5), Ok(wanted));
        for none in [0, 1] {
            assert_eq!(rotate(none), Err(PlanError::TooFew { ranks: none }));
            assert!(shifts(none).is_err() && bisection(none).is_err());
        }
    }

    #[test]
    fn com_pairs_across_the_middle_or_within_blocks() {
        assert_eq!(bisection(6), Ok(round(&[(0, 3), (1, 4), (2, 5)])));
        assert_eq!(
            neighbours(8, 2),
            Ok(round(&[(0, 2), (1, 3), (4, 6), (5, 7)]))
        );
        for (ranks, per_node) in [(6, 2), (8, 0), (8, 8), (8, usize::MAX), (8, 1 << 63)] {
            let refused = neighbours(ranks, per_node);
            assert!(refused.as_ref().is_err_and(|e| !e.to_string().is_empty()));
            assert_eq!(refused, Err(PlanError::Blocks { per_node, ranks }));
        }
        let sweep = com(&bisection(6).unwrap());
        let active: Vec<usize> = sweep.iter().map(|round| 2 * round.len()).collect();
        assert_eq!(active, [2, 4, 6]);
        assert_eq!(sweep[1], round(&[(0, 3), (1, 4)]));
    }

    #[test]
    fn a_list_takes_names_and_numbers_and_no_rank_twice() {
        let names = ["a", "b", "c", "7"].map(str::to_owned);
        let read = |text| listed(text, &names);
        assert_eq!(read("a c # far\n\n1 7\n"), Ok(round(&[(0, 2), (1, 3)])));
        let said = |text| read(text).unwrap_err().to_string();
        assert_eq!(said("a b\nc"), "line 2: expected two ranks");
        assert_eq!(said("a 9"), "line 1: '9' is no rank");
        assert_eq!(said("a b\n0 c"), "line 2: 0 has a partner already");
        assert_eq!(said("a a"), "line 1: a has a partner already");
        assert!(said("# none").contains("two at least"));
    }
}
