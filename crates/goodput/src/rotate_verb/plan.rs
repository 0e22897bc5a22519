//! What is to be done round by round, and the lines that stand for it.

use std::fs;

use measure::RankTest;
use pairs::{Flow, PlanError, Round};
use report::model::{RotateFlow, RotateRound};

use super::{PatternArg, RotateArgs, hosts, mpirun};
use crate::failure::Failure;
use crate::messages;

/// All rounds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) pattern: PatternArg,
    pub(super) latency: bool,
    pub(super) bidirectional: bool,
    /// Of each round.
    pub(super) tests: u32,
    pub(super) rounds: Vec<Planned>,
}

/// Flows that run at once, and what they do.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Planned {
    /// Ranks that take part in this and the rounds beside it.
    pub(super) ranks: usize,
    /// Among those.
    pub(super) number: usize,
    pub(super) test: RankTest,
    pub(super) flows: Round,
}

/// Refuses what makes no sense however many ranks there are.
pub(super) fn check(args: &RotateArgs) -> Result<(), Failure> {
    let refuse = |text: String| Err(Failure::usage(anyhow::anyhow!("{text}")));
    let com = args.pattern == PatternArg::Com;
    if !com && (args.bidirectional || args.per_node.is_some() || args.list.is_some()) {
        return refuse("--bidirectional, --per-node and --list are of --pattern com".to_owned());
    }
    if com && !args.nodes.is_empty() {
        return refuse("--pattern com goes through all numbers of ranks by itself".to_owned());
    }
    if args.pattern == PatternArg::MpiGraph && args.latency {
        return refuse(
            "mpigraph measures bandwidth: --latency goes with rotate and com".to_owned(),
        );
    }
    if args.latency && args.window.is_some() {
        return refuse(
            "--window: in a ping-pong each message comes back before the next".to_owned(),
        );
    }
    if args.tests == Some(0) || args.tests.is_some_and(|n| n > TESTS_MAX) {
        let tests = args.tests.unwrap_or(0);
        return refuse(format!("--tests {tests}: 1 to {TESTS_MAX} work"));
    }
    if args.over_mpi() && (args.congestion.is_some() || hosts::is_set(&args.approach)) {
        return refuse(
            "--congestion, --bind, --device, --dscp and --token-file are TCP's: with --mpi the MPI \
             library makes the connections"
                .to_owned(),
        );
    }
    for (n, host) in args.hosts.iter().enumerate() {
        if host.is_empty() || args.hosts[..n].contains(host) {
            return refuse(match host.as_str() {
                "" => "--hosts with an empty name: expected hosts with commas between".to_owned(),
                host => format!("--hosts names {host} twice: a rank is a host of its own"),
            });
        }
    }
    if args.hosts.len() == 1 {
        return refuse("--hosts: a pair takes two hosts at least".to_owned());
    }
    mpirun::check(args)?;
    sizes(args).map(drop)
}

/// The rounds with these ranks.
pub(super) fn of(args: &RotateArgs, names: &[String]) -> Result<Plan, Failure> {
    let wrong = |error: PlanError| Failure::usage(anyhow::Error::new(error));
    let all = names.len();
    let mut counts = args.nodes.clone();
    if let Some(&n) = counts.iter().find(|&&n| n > all) {
        let text = format!("--nodes: {n} of {all} ranks cannot take part");
        return Err(Failure::usage(anyhow::anyhow!("{text}")));
    }
    counts.push(all);
    counts.sort_unstable();
    counts.dedup();
    let mut rounds = Vec::new();
    for test in tests(args)? {
        match args.pattern {
            PatternArg::Rotate | PatternArg::MpiGraph => {
                for &ranks in &counts {
                    let each = match args.pattern {
                        PatternArg::Rotate => pairs::rotate(ranks),
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
            PatternArg::Com => {
                let whole = com_pairs(args, names)?;
                rounds.extend(pairs::com(&whole).into_iter().map(|flows| Planned {
                    ranks: 2 * flows.len(),
                    number: 0,
                    test,
                    flows: match args.bidirectional {
                        true => both_ways(&flows),
                        false => flows,
                    },
                }));
            }
        }
    }
    let default = match args.pattern {
        PatternArg::Rotate if !args.latency => pairs::ROTATE_TESTS,
        _ => 1,
    };
    Ok(Plan {
        pattern: args.pattern,
        latency: args.latency,
        bidirectional: args.bidirectional,
        tests: args.tests.unwrap_or(default),
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

fn com_pairs(args: &RotateArgs, names: &[String]) -> Result<Round, Failure> {
    let wrong = |error: PlanError| Failure::usage(anyhow::Error::new(error));
    if let Some(file) = &args.list {
        let shown = file.display();
        let text = fs::read_to_string(file)
            .map_err(|e| Failure::usage(anyhow::anyhow!("--list: cannot read {shown}: {e}")))?;
        return pairs::listed(&text, names)
            .map_err(|e| Failure::usage(anyhow::anyhow!("--list {shown}: {e}")));
    }
    match args.per_node {
        Some(per_node) => pairs::neighbours(names.len(), per_node).map_err(wrong),
        None => pairs::bisection(names.len()).map_err(wrong),
    }
}

/// A test for each size.
fn tests(args: &RotateArgs) -> Result<Vec<RankTest>, Failure> {
    let messages = match (args.pattern, args.latency) {
        (PatternArg::Com, _) => pairs::COM_OPERATIONS,
        (_, true) => pairs::LATENCY_ROUND_TRIPS,
        (PatternArg::Rotate, false) => pairs::ROTATE_MESSAGES,
        (PatternArg::MpiGraph, false) => pairs::GRAPH_ITERATIONS * pairs::GRAPH_WINDOW,
    };
    let count = args.messages.unwrap_or(messages);
    let window = match args.pattern {
        PatternArg::Rotate => 1,
        PatternArg::MpiGraph => pairs::GRAPH_WINDOW,
        PatternArg::Com => count,
    };
    let test = |bytes| RankTest {
        bytes,
        count,
        window: args.window.unwrap_or(window),
        ping: args.latency,
    };
    let tests: Vec<RankTest> = sizes(args)?.into_iter().map(test).collect();
    let problem = |test: &RankTest| {
        let bytes = test.bytes.max(u32::from(args.over_mpi()));
        RankTest { bytes, ..*test }.problem()
    };
    match tests.iter().find_map(problem) {
        Some(problem) => Err(Failure::usage(anyhow::anyhow!("{problem}"))),
        None => Ok(tests),
    }
}

fn sizes(args: &RotateArgs) -> Result<Vec<u32>, Failure> {
    let Some(typed) = &args.length else {
        return Ok(match (args.pattern, args.latency) {
            (PatternArg::Com, true) => vec![u32::from(!args.over_mpi()), 8],
            (PatternArg::Com, false) => powers(pairs::COM_BYTES_MIN, pairs::COM_BYTES_MAX),
            // MPI has empty messages, as rotate_latency sends them; TCP has not.
            (_, true) => vec![u32::from(!args.over_mpi())],
            (PatternArg::Rotate, false) => vec![pairs::ROTATE_BYTES],
            (PatternArg::MpiGraph, false) => vec![pairs::GRAPH_BYTES],
        });
    };
    let sizes = messages::sizes_of("--length", typed)?;
    if sizes.len() > 1 && args.pattern != PatternArg::Com {
        return Err(Failure::usage(anyhow::anyhow!(
            "--length {typed}: several sizes go with --pattern com"
        )));
    }
    Ok(sizes)
}

fn powers(from: u32, to: u32) -> Vec<u32> {
    let all = (0..=23).map(|n| 1_u32 << n);
    all.filter(|n| (from..=to).contains(n)).collect()
}

/// Whether a round is the last of its number of ranks (of `com`: of all).
pub(super) fn closes(plan: &Plan, this: &Planned, next: &Planned) -> bool {
    plan.pattern != PatternArg::Com && (this.ranks, this.test) != (next.ranks, next.test)
}

/// What the flows came to: bytes a second, or half round trips in seconds.
fn values(plan: &Plan, round: &RotateRound) -> Vec<f64> {
    let value = |flow: &RotateFlow| match plan.latency {
        true => flow.latency_ns.map(|ns| ns / 1e9),
        false => flow.bits_per_second.map(|bits| bits as f64 / 8.0),
    };
    round.flows.iter().filter_map(value).collect()
}

/// A round in the benchmark's own line; mpiGraph says nothing of a step.
pub(super) fn line(plan: &Plan, planned: &Planned, round: &RotateRound) -> String {
    let values = values(plan, round);
    match (plan.pattern, plan.latency) {
        (PatternArg::Rotate, false) => pairs::bandwidth_line(planned.number, &values),
        (PatternArg::Rotate, true) => pairs::latency_line(planned.number, &values),
        (PatternArg::Com, _) => {
            let values: Vec<f64> = values.into_iter().map(|v| com_unit(plan, v)).collect();
            let test = &planned.test;
            pairs::com_line(planned.ranks, test.bytes, test.count, &values)
        }
        (PatternArg::MpiGraph, _) => String::new(),
    }
}

/// MB/s, or microseconds.
fn com_unit(plan: &Plan, value: f64) -> f64 {
    if plan.latency {
        value * 1e6
    } else {
        value / 1e6
    }
}

/// What the benchmark says at the end of so many ranks.
pub(super) fn closing(plan: &Plan, last: &Planned, rounds: &[RotateRound]) -> String {
    let values: Vec<Vec<f64>> = rounds.iter().map(|round| values(plan, round)).collect();
    let RankTest { bytes, count, .. } = last.test;
    match (plan.pattern, plan.latency) {
        (PatternArg::Rotate, false) => pairs::bandwidth_closing(&values, bytes, plan.tests, count),
        (PatternArg::Rotate, true) => pairs::latency_closing(&values, bytes, plan.tests, count),
        (PatternArg::Com, _) => {
            let all = values.into_iter().flatten();
            pairs::com_summary(&all.map(|v| com_unit(plan, v)).collect::<Vec<f64>>())
        }
        (PatternArg::MpiGraph, _) => String::new(),
    }
}

/// More would not make the best one better.
const TESTS_MAX: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("h{n}")).collect()
    }

    #[test]
    fn rotate_is_cbenchs_unless_told() {
        let plan = of(&RotateArgs::default(), &names(8)).unwrap();
        assert_eq!((plan.tests, plan.rounds.len()), (3, 4));
        let test = plan.rounds[0].test;
        assert_eq!((test.bytes, test.count, test.window), (8_388_608, 10, 1));
        let latency = RotateArgs {
            latency: true,
            ..RotateArgs::default()
        };
        let plan = of(&latency, &names(8)).unwrap();
        let test = plan.rounds[0].test;
        assert_eq!((plan.tests, test.count, test.ping), (1, 10_000, true));
    }

    #[test]
    fn fewer_ranks_come_first_and_all_of_them_last() {
        let args = RotateArgs {
            nodes: vec![4, 2],
            ..RotateArgs::default()
        };
        let plan = of(&args, &names(8)).unwrap();
        let ranks: Vec<usize> = plan.rounds.iter().map(|r| r.ranks).collect();
        assert_eq!(ranks, [2, 4, 4, 8, 8, 8, 8]);
        assert!(closes(&plan, &plan.rounds[0], &plan.rounds[1]));
        assert!(!closes(&plan, &plan.rounds[1], &plan.rounds[2]));
    }

    #[test]
    fn com_goes_through_active_ranks_and_sizes_both_ways_if_asked() {
        let args = RotateArgs {
            pattern: PatternArg::Com,
            bidirectional: true,
            length: Some("32,1KiB".to_owned()),
            ..RotateArgs::default()
        };
        let plan = of(&args, &names(4)).unwrap();
        let each = plan.rounds.iter();
        let seen: Vec<_> = each
            .map(|r| (r.ranks, r.test.bytes, r.flows.len()))
            .collect();
        assert_eq!(seen, [(2, 32, 2), (4, 32, 4), (2, 1024, 2), (4, 1024, 4)]);
        assert_eq!(plan.rounds[0].test.window, 100);
        let all = of(
            &RotateArgs {
                length: None,
                ..args
            },
            &names(2),
        )
        .unwrap();
        assert_eq!(all.rounds.len(), 19);
    }

    #[test]
    fn mpigraph_has_ten_windows_of_ten() {
        let args = RotateArgs {
            pattern: PatternArg::MpiGraph,
            ..RotateArgs::default()
        };
        let plan = of(&args, &names(5)).unwrap();
        let test = plan.rounds[0].test;
        assert_eq!((test.bytes, test.count, test.window), (1 << 20, 100, 10));
        assert_eq!((plan.rounds.len(), plan.rounds[0].flows.len()), (4, 5));
    }
}
