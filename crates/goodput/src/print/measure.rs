//! What a run of `doctor` or `measure` found, as it was asked for.

use doctor::Finished;
use report::model::ResultRecord;

use crate::print::{self, balance};
use fault::Failure;

/// How a run is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// A summary.
    Text,
    /// The run.
    Json,
    /// The run as the last of several objects, a line each.
    JsonLines,
    /// What iperf3 prints, if the run has that.
    Iperf3,
}

/// Prints a run as it was asked for.
pub(crate) fn finished(finished: &Finished, layout: Layout) -> Result<(), Failure> {
    if let Some(document) = &finished.document {
        return print::print_json(document);
    }
    match layout {
        Layout::JsonLines => print::print_json_line(&ResultRecord {
            event: "result".to_owned(),
            folder: finished.folder.display().to_string(),
            run: finished.run.clone(),
        }),
        Layout::Json => print::print_json(&finished.run),
        // A test that broke off has no document, and a program that wants one no use for text.
        Layout::Iperf3 if finished.failure.is_some() => Ok(()),
        Layout::Text | Layout::Iperf3 => summary(finished),
    }
}

fn summary(finished: &Finished) -> Result<(), Failure> {
    print::print_colored(&text(finished, print::color(), print::width()))?;
    print::print_place("Report", &finished.folder.join("report.html"))
}

/// The summary, and how parallel streams shared the bottleneck where that was recorded.
fn text(finished: &Finished, color: bool, width: usize) -> String {
    let run = &finished.run;
    let summary = report::terminal::summary(run, &finished.findings, color, width);
    let streams = run.balance.as_ref().map(|b| balance::text(b, width));
    let streams = streams.map_or_else(String::new, |text| format!("\n{text}"));
    format!("{summary}{streams}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    use report::model::{CpuShares, EndCost, HostCost, MachineCost, Phase, Run, RunState, Shares};
    use report::model::{LoadLatency, Verdict};

    fn finished() -> Finished {
        let end = |end: &str, busiest_thread_share| EndCost {
            end: end.to_owned(),
            cpu_ns_per_gigabyte: 310_000_000,
            busiest_thread_share,
            ..EndCost::default()
        };
        let phase = Phase {
            name: "measured".to_owned(),
            goodput_bits_per_second: 930_200_000,
            rtt_idle_ns: 85_020_000,
            segments_sent: 802_345,
            segments_retransmitted: 1_204,
            shares: Shares {
                application: 0.02,
                receive_window: 0.31,
                network: 0.67,
                ..Shares::default()
            },
            latency: Some(LoadLatency {
                idle_median_ns: 85_020_000,
                load_median_ns: 112_400_000,
                load_p99_ns: 131_700_000,
                extra_ns: 27_380_000,
                queue_bytes: 3_183_000,
                ..LoadLatency::default()
            }),
            host_cost: Some(HostCost {
                ends: vec![end("sender", 0.98), end("receiver", 0.2)],
                machines: vec![MachineCost {
                    ends: vec!["sender".to_owned(), "receiver".to_owned()],
                    cpus: vec![CpuShares {
                        softirq_share: 0.25,
                        idle_share: 0.26,
                        ..CpuShares::default()
                    }],
                    ..MachineCost::default()
                }],
            }),
            ..Phase::default()
        };
        Finished {
            run: Run {
                name: "dtn.example.org".to_owned(),
                state: RunState::Done,
                phases: vec![phase],
                verdict: Some(Verdict {
                    sentence: "930.2 Mb/s received over 3 streams for 30 s, ± 1.2 %.".to_owned(),
                    conclusive: true,
                    ..Verdict::default()
                }),
                balance: Some(balance::tests::record()),
                ..Run::default()
            },
            findings: Vec::new(),
            folder: PathBuf::from("runs/1"),
            document: None,
            failure: None,
        }
    }

    #[test]
    fn a_measurement_of_three_streams_as_text() {
        crate::print::golden!("measure", |width| text(&finished(), false, width));
    }
}
