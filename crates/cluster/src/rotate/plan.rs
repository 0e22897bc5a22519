//! What is to be done round by round.

use std::fs;
use std::path::PathBuf;

use fault::Failure;

use crate::pairs::{self, Flow, PlanError, Round};
use measure::RankTest;

/// Who sends to whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pattern {
    /// CBench's: the low half to the high half, shifted from rotation to rotation.
    #[default]
    Rotate,
    /// Presta's: rank r and r + N/2, by active ranks and sizes of messages.
    Com,
    /// LLNL's: each rank sends to rank + d and hears from rank - d, for every d.
    MpiGraph,
}

impl Pattern {
    /// As it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rotate => "rotate",
            Self::Com => "com",
            Self::MpiGraph => "mpigraph",
        }
    }
}

/// What is wanted, before it is known how many ranks there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// Who sends to whom.
    pub pattern: Pattern,
    /// Half round trips instead of bandwidth.
    pub latency: bool,
    /// Both of a pair of `com` send at once.
    pub bidirectional: bool,
    /// Ranks are processes of MPI.
    pub over_mpi: bool,
    /// Also with the first so many ranks.
    pub nodes: Vec<usize>,
    /// Bytes of a message; of `com` several.
    pub sizes: Option<Vec<u32>>,
    /// Messages of a test, or round trips.
    pub messages: Option<u32>,
    /// Messages from one confirmation to the next.
    pub window: Option<u32>,
    /// Tests of each round, of which each pair's fastest counts.
    pub tests: Option<u32>,
    /// With `com`: ranks of a node.
    pub per_node: Option<usize>,
    /// With `com`: file with two ranks a line.
    pub list: Option<PathBuf>,
    /// Ranks are put into an order that this chooses.
    pub seed: Option<u64>,
}

/// All rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Who sends to whom.
    pub pattern: Pattern,
    /// Half round trips instead of bandwidth.
    pub latency: bool,
    /// Both of a pair send at once.
    pub bidirectional: bool,
    /// Of each round.
    pub tests: u32,
    /// One after the other.
    pub rounds: Vec<Planned>,
}

/// Flows that run at once, and what they do.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Ranks that take part in this and the rounds beside it.
    pub ranks: usize,
    /// Among those.
    pub number: usize,
    /// What each flow does.
    pub test: RankTest,
    /// Who sends to whom.
    pub flows: Round,
}

/// The rounds with these ranks.
///
/// # Errors
/// So many ranks cannot do that, or a list cannot be read.
///
/// ```
/// use cluster::rotate::{Setup, plan};
/// let names = ["a", "b", "c", "d"].map(str::to_owned);
/// assert_eq!(plan(&Setup::default(), &names)?.rounds.len(), 2);
/// # Ok::<(), fault::Failure>(())
/// ```
pub fn of(setup: &Setup, names: &[String]) -> Result<Plan, Failure> {
    let wrong = |error: PlanError| Failure::usage(error);
    let all = names.len();
    let mut counts = setup.nodes.clone();
    if let Some(&n) = counts.iter().find(|&&n| n > all) {
        let text = format!("--nodes: {n} of {all} ranks cannot take part");
        return Err(Failure::usage(text));
    }
    counts.push(all);
    counts.sort_unstable();
    counts.dedup();
    let mut rounds = Vec::new();
    for test in tests(setup)? {
        match setup.pattern {
            Pattern::Rotate | Pattern::MpiGraph => {
                for &ranks in &counts {
                    let each = match setup.pattern {
                        Pattern::Rotate => pairs::rotate(ranks),
                        _ => pairs::shifts(ranks),
                    };
                    let each = each.map_err(wrong)?.into_iter().enumerate();
                    rounds.extend(each.map(|(number, flows)| Planned {
                        ranks,
                        number,
                        test,
                        flows,
                    }));
                }
            }
            Pattern::Com => {
                let whole = com_pairs(setup, names)?;
                rounds.extend(pairs::com(&whole).into_iter().map(|flows| Planned {
                    ranks: 2 * flows.len(),
                    number: 0,
                    test,
                    flows: match setup.bidirectional {
                        true => both_ways(&flows),
                        false => flows,
                    },
                }));
            }
        }
    }
    let default = match setup.pattern {
        Pattern::Rotate if !setup.latency => pairs::ROTATE_TESTS,
        _ => 1,
    };
    Ok(Plan {
        pattern: setup.pattern,
        latency: setup.latency,
        bidirectional: setup.bidirectional,
        tests: setup.tests.unwrap_or(default),
        rounds,
    })
}

fn both_ways(flows: &[Flow]) -> Round {
    let back = |f: &Flow| Flow {
        from: f.to,
        to: f.from,
    };
    flows.iter().flat_map(|f| [*f, back(f)]).collect()
}

fn com_pairs(setup: &Setup, names: &[String]) -> Result<Round, Failure> {
    let wrong = |error: PlanError| Failure::usage(error);
    if let Some(file) = &setup.list {
        let shown = file.display();
        let text = fs::read_to_string(file)
            .map_err(|e| Failure::usage(format!("--list: cannot read {shown}: {e}")))?;
        return pairs::listed(&text, names)
            .map_err(|e| Failure::usage(format!("--list {shown}: {e}")));
    }
    match setup.per_node {
        Some(per_node) => pairs::neighbours(names.len(), per_node).map_err(wrong),
        None => pairs::bisection(names.len()).map_err(wrong),
    }
}

/// A test for each size.
fn tests(setup: &Setup) -> Result<Vec<RankTest>, Failure> {
    let messages = match (setup.pattern, setup.latency) {
        (Pattern::Com, _) => pairs::COM_OPERATIONS,
        (_, true) => pairs::LATENCY_ROUND_TRIPS,
        (Pattern::Rotate, false) => pairs::ROTATE_MESSAGES,
        (Pattern::MpiGraph, false) => pairs::GRAPH_ITERATIONS * pairs::GRAPH_WINDOW,
    };
    let count = setup.messages.unwrap_or(messages);
    let window = match setup.pattern {
        Pattern::Rotate => 1,
        Pattern::MpiGraph => pairs::GRAPH_WINDOW,
        Pattern::Com => count,
    };
    let test = |bytes| RankTest {
        bytes,
        count,
        window: setup.window.unwrap_or(window),
        ping: setup.latency,
    };
    let tests: Vec<RankTest> = sizes(setup).into_iter().map(test).collect();
    let problem = |test: &RankTest| {
        let bytes = test.bytes.max(u32::from(setup.over_mpi));
        RankTest { bytes, ..*test }.problem()
    };
    match tests.iter().find_map(problem) {
        Some(problem) => Err(Failure::usage(problem)),
        None => Ok(tests),
    }
}

fn sizes(setup: &Setup) -> Vec<u32> {
    if let Some(sizes) = &setup.sizes {
        return sizes.clone();
    }
    match (setup.pattern, setup.latency) {
        (Pattern::Com, true) => vec![u32::from(!setup.over_mpi), 8],
        (Pattern::Com, false) => powers(pairs::COM_BYTES_MIN, pairs::COM_BYTES_MAX),
        // MPI has empty messages, as rotate_latency sends them; TCP has not.
        (_, true) => vec![u32::from(!setup.over_mpi)],
        (Pattern::Rotate, false) => vec![pairs::ROTATE_BYTES],
        (Pattern::MpiGraph, false) => vec![pairs::GRAPH_BYTES],
    }
}

fn powers(from: u32, to: u32) -> Vec<u32> {
    let all = (0..=23).map(|n| 1_u32 << n);
    all.filter(|n| (from..=to).contains(n)).collect()
}

/// Whether a round is the last of its number of ranks (of `com`: of all).
pub(super) fn closes(plan: &Plan, this: &Planned, next: &Planned) -> bool {
    plan.pattern != Pattern::Com && (this.ranks, this.test) != (next.ranks, next.test)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("h{n}")).collect()
    }

    #[test]
    fn rotate_is_cbenchs_unless_told() {
        let plan = of(&Setup::default(), &names(8)).unwrap();
        assert_eq!((plan.tests, plan.rounds.len()), (3, 4));
        let test = plan.rounds[0].test;
        assert_eq!((test.bytes, test.count, test.window), (8_388_608, 10, 1));
        let latency = Setup {
            latency: true,
            ..Setup::default()
        };
        let plan = of(&latency, &names(8)).unwrap();
        let test = plan.rounds[0].test;
        assert_eq!((plan.tests, test.count, test.ping), (1, 10_000, true));
    }

    #[test]
    fn fewer_ranks_come_first_and_all_of_them_last() {
        let setup = Setup {
            nodes: vec![4, 2],
            ..Setup::default()
        };
        let plan = of(&setup, &names(8)).unwrap();
        let ranks: Vec<usize> = plan.rounds.iter().map(|r| r.ranks).collect();
        assert_eq!(ranks, [2, 4, 4, 8, 8, 8, 8]);
        assert!(closes(&plan, &plan.rounds[0], &plan.rounds[1]));
        assert!(!closes(&plan, &plan.rounds[1], &plan.rounds[2]));
    }

    #[test]
    fn com_goes_through_active_ranks_and_sizes_both_ways_if_asked() {
        let setup = Setup {
            pattern: Pattern::Com,
            bidirectional: true,
            sizes: Some(vec![32, 1024]),
            ..Setup::default()
        };
        let plan = of(&setup, &names(4)).unwrap();
        let each = plan.rounds.iter();
        let seen: Vec<_> = each
            .map(|r| (r.ranks, r.test.bytes, r.flows.len()))
            .collect();
        assert_eq!(seen, [(2, 32, 2), (4, 32, 4), (2, 1024, 2), (4, 1024, 4)]);
        assert_eq!(plan.rounds[0].test.window, 100);
        let all = of(
            &Setup {
                sizes: None,
                ..setup
            },
            &names(2),
        )
        .unwrap();
        assert_eq!(all.rounds.len(), 19);
    }

    #[test]
    fn mpigraph_has_ten_windows_of_ten() {
        let setup = Setup {
            pattern: Pattern::MpiGraph,
            ..Setup::default()
        };
        let plan = of(&setup, &names(5)).unwrap();
        let test = plan.rounds[0].test;
        assert_eq!((test.bytes, test.count, test.window), (1 << 20, 100, 10));
        assert_eq!((plan.rounds.len(), plan.rounds[0].flows.len()), (4, 5));
    }
}
