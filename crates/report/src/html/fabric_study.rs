//! Patterns of many hosts on a modelled fabric.

use crate::model::{FabricNodes, FabricStudy, Run};
use crate::text;

/// Nothing where no pattern was run.
pub(super) fn section(_out: &mut String, _run: &Run) {}

/// Columns of a study's table.
pub(crate) fn heads(study: &FabricStudy) -> Vec<&'static str> {
    match study.counts.as_str() {
        "latency" => vec!["nodes", "least", "average", "most", "by formula", "chips"],
        "time" => vec![
            "nodes",
            "steps",
            "takes",
            "one switch",
            "lost",
            "worst seed",
        ],
        _ => vec![
            "nodes",
            "steps",
            "best",
            "average",
            "worst",
            "of peak",
            "fair shares",
            "on a cable",
        ],
    }
}

/// A line for each number of nodes.
pub(crate) fn rows(study: &FabricStudy) -> Vec<Vec<String>> {
    study.points.iter().map(|p| row(study, p)).collect()
}

fn row(study: &FabricStudy, point: &FabricNodes) -> Vec<String> {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let us = |ns: f64| format!("{:.2} us", ns / 1e3);
    let mut cells = vec![point.nodes.to_string()];
    match study.counts.as_str() {
        "latency" => {
            let [least, average, most] = point.latency_ns.unwrap_or_default();
            let formula = point.latency_formula.clone().unwrap_or_default();
            let [few, many] = formula.chips;
            let chips = if few == many {
                few.to_string()
            } else {
                format!("{few}–{many}")
            };
            cells.extend([us(least), us(average), us(most), us(formula.sum_ns), chips]);
        }
        "time" => {
            let [took, _] = point.finish_ns.unwrap_or_default();
            let [lost, worst] = point.lost_shares.unwrap_or_default();
            cells.extend([
                steps(point),
                us(took),
                us(point.ideal_ns.unwrap_or_default()),
                percent(lost),
                percent(worst),
            ]);
        }
        _ => cells.extend([
            steps(point),
            megabytes(point.best_bits_per_second),
            megabytes(point.average_bits_per_second),
            megabytes(point.worst_bits_per_second),
            match point.share_interval {
                Some(half) => format!(
                    "{:.0} ± {:.0} %",
                    point.average_share_of_peak * 100.0,
                    half * 100.0
                ),
                None => percent(point.average_share_of_peak),
            },
            percent(point.fair_share_of_peak),
            text::plural(point.flows_on_a_cable_max.into(), "flow"),
        ]),
    }
    cells
}

fn steps(point: &FabricNodes) -> String {
    match point.steps_all {
        Some(all) if all > point.steps => format!("{} of {all}", point.steps),
        _ => point.steps.to_string(),
    }
}

fn megabytes(bits_per_second: u64) -> String {
    format!("{:.0} MB/s", bits_per_second as f64 / 8e6)
}
