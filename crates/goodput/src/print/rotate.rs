//! What `goodput rotate` prints: the benchmarks' own lines while it runs, and the run.

use std::path::Path;

use cluster::pairs;
use cluster::rotate::{Event, Pattern, Plan, Planned, counts};
use fault::Failure;
use measure::RankTest;
use report::model::{FindingRecord, Rotate, RotateCount, RotateFlow, RotateRound, Run};

use crate::print;

/// A run and where its report is; `over_mpi` in a process of MPI.
pub(crate) fn run(
    run: &Run,
    findings: &[FindingRecord],
    folder: &Path,
    over_mpi: bool,
) -> Result<(), Failure> {
    // mpirun gives a process a terminal wherever its own output goes.
    let (color, width) = (print::color() && !over_mpi, print::width());
    let text = report::terminal::summary(run, findings, color, width);
    print::print_colored(&format!("\n{text}"))?;
    print::print_place("Report", &folder.join("report.html"))
}

/// Prints rounds as the benchmark itself does, unless JSON was requested; other events on stderr.
pub(crate) fn observer(json: bool) -> impl Fn(Event<'_>) -> Result<(), Failure> + Sync {
    move |event| {
        match event {
            Event::Round { .. } | Event::Closed { .. } if json => {}
            Event::Round {
                plan,
                planned,
                round,
            } => print::print(&line(plan, planned, round))?,
            Event::Closed { plan, last, rounds } => print::print(&closing(plan, last, rounds))?,
            Event::Turn {
                turn,
                turns,
                rotate,
            } => print::note(note(turn, turns, rotate)),
            Event::HostFailed(error) => {
                print::note(format_args!("a host of the lab failed: {error}"));
            }
        }
        Ok(())
    }
}

/// Results of the flows: bytes a second, or half round trips in seconds.
fn values(plan: &Plan, round: &RotateRound) -> Vec<f64> {
    let value = |flow: &RotateFlow| match plan.latency {
        true => flow.latency_ns.map(|ns| ns / 1e9),
        false => flow.bits_per_second.map(|bits| bits as f64 / 8.0),
    };
    round.flows.iter().filter_map(value).collect()
}

/// A round in the benchmark's own line; mpiGraph prints none for a step.
fn line(plan: &Plan, planned: &Planned, round: &RotateRound) -> String {
    let values = values(plan, round);
    match (plan.pattern, plan.latency) {
        (Pattern::Rotate, false) => pairs::bandwidth_line(planned.number, &values),
        (Pattern::Rotate, true) => pairs::latency_line(planned.number, &values),
        (Pattern::Com, _) => {
            let values: Vec<f64> = values.into_iter().map(|v| com_unit(plan, v)).collect();
            let test = &planned.test;
            pairs::com_line(planned.ranks, test.bytes, test.count, &values)
        }
        (Pattern::MpiGraph, _) => String::new(),
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

/// What the benchmark prints at the end of so many ranks.
fn closing(plan: &Plan, last: &Planned, rounds: &[RotateRound]) -> String {
    let values: Vec<Vec<f64>> = rounds.iter().map(|round| values(plan, round)).collect();
    let RankTest { bytes, count, .. } = last.test;
    match (plan.pattern, plan.latency) {
        (Pattern::Rotate, false) => pairs::bandwidth_closing(&values, bytes, plan.tests, count),
        (Pattern::Rotate, true) => pairs::latency_closing(&values, bytes, plan.tests, count),
        (Pattern::Com, _) => {
            let all = values.into_iter().flatten();
            pairs::com_summary(&all.map(|v| com_unit(plan, v)).collect::<Vec<f64>>())
        }
        (Pattern::MpiGraph, _) => String::new(),
    }
}

/// The best pairs after a turn.
fn note(turn: u32, turns: u32, rotate: &Rotate) -> String {
    let of_times = rotate.measure == "latency";
    let said = |count: &RotateCount| match of_times {
        true => format!("{:.2} us", count.best_latency_ns.unwrap_or(0.0) / 1e3),
        false => {
            let bits = count.best_bits_per_second.unwrap_or(0) as f64;
            format!("{:.0} MB/s", bits / 8e6)
        }
    };
    let ours = counts(rotate).last().map(said).unwrap_or_default();
    let observed = rotate.observed.as_ref();
    let theirs = observed.map_or(String::new(), |o| {
        format!(", {} {}", o.tool, said(&o.count))
    });
    format!("turn {turn} of {turns}: best pair so far {ours}{theirs}")
}

#[cfg(test)]
mod tests {
    use cluster::rotate::Setup;
    use report::model::RotateObserved;

    use super::*;

    /// The benchmark's lines and the note after a turn, for two ranks.
    fn shown(pattern: Pattern, latency: bool) -> String {
        let setup = Setup {
            pattern,
            latency,
            ..Setup::default()
        };
        let names = ["n1", "n2"].map(str::to_owned);
        let plan = cluster::rotate::plan(&setup, &names).unwrap();
        let planned = &plan.rounds[0];
        let flow = |from, to, bits| RotateFlow {
            from,
            to,
            bits_per_second: (!latency).then_some(bits),
            latency_ns: latency.then_some(2_150.0),
            ..RotateFlow::default()
        };
        let round = RotateRound {
            ranks: 2,
            message_bytes: planned.test.bytes,
            flows: vec![flow(0, 1, 7_520_000_000), flow(1, 0, 6_800_000_000)],
            ..RotateRound::default()
        };
        let count = RotateCount {
            best_bits_per_second: (!latency).then_some(7_400_000_000),
            best_latency_ns: latency.then_some(2_300.0),
            ..RotateCount::default()
        };
        let rotate = Rotate {
            measure: if latency { "latency" } else { "bandwidth" }.to_owned(),
            observed: Some(RotateObserved {
                tool: "CBench rotate".to_owned(),
                count,
                ..RotateObserved::default()
            }),
            rounds: vec![round.clone()],
            ..Rotate::default()
        };
        line(&plan, planned, &round)
            + &closing(&plan, planned, &[round])
            + &note(1, 5, &rotate)
            + "\n"
    }

    #[test]
    fn rounds_as_the_benchmarks_print_them() {
        // The benchmarks' formats have one width.
        let text = [
            (Pattern::Rotate, false),
            (Pattern::Rotate, true),
            (Pattern::Com, false),
        ]
        .map(|(pattern, latency)| shown(pattern, latency))
        .join("\n");
        insta::assert_snapshot!("rotate", text);
    }
}
