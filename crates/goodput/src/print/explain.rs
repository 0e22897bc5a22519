//! What `goodput explain` prints: the progress of a live capture, and the findings.

use std::path::Path;

use analyse::{CONNECTIONS_FILE, Explained, INTERVALS_FILE, Observer, SoFar};
use fault::Failure;
use indicatif::ProgressBar;
use units::text::plain;

/// What was found, for people.
pub(crate) fn summary(explained: &Explained) -> Result<(), Failure> {
    super::print_colored(&text(explained, super::color(), super::width()))?;
    super::print_place("Report", &explained.folder.join("report.html"))?;
    match tables(explained) {
        Some(line) => super::print(&line),
        None => Ok(()),
    }
}

/// The summary.
fn text(explained: &Explained, color: bool, width: usize) -> String {
    let (run, findings) = (&explained.run, &explained.findings);
    report::terminal::summary(run, findings, color, width) + "\n"
}

/// Where the tables are, if they were written.
fn tables(explained: &Explained) -> Option<String> {
    let rows = explained.run.trace.as_ref()?.table_rows?;
    Some(format!(
        "Tables: {} ({} rows), {} ({} rows)\n",
        explained.folder.join(CONNECTIONS_FILE).display(),
        rows.connections,
        INTERVALS_FILE,
        rows.intervals
    ))
}

/// That the capture of an interface begins, and where its packets go.
fn beginning(interface: &str, file: &Path) -> String {
    format!(
        "capturing {interface} until Ctrl-C; packet headers go to {}",
        file.display()
    )
}

/// The progress of the capture, in a line.
fn progress(so_far: &SoFar) -> String {
    format!(
        "{} s: {} connections, {} packets/s, {} dropped",
        so_far.seconds, so_far.connections, so_far.packets_per_second, so_far.dropped
    )
}

/// The progress of the capture of an interface: one line of a terminal, or line by line.
#[derive(Debug, Default)]
pub(crate) struct View {
    bar: Option<ProgressBar>,
}

impl Observer for View {
    fn begins(&mut self, interface: &str, file: &Path) {
        super::note(beginning(interface, file));
        // Hidden by indicatif itself when stderr is not a terminal.
        self.bar = Some(ProgressBar::new_spinner());
    }

    fn goes_on(&mut self, so_far: &SoFar) {
        let line = progress(so_far);
        match self.bar.as_ref().filter(|bar| !bar.is_hidden()) {
            None => super::note(line),
            Some(bar) => {
                bar.set_message(plain(&line).into_owned());
                bar.tick();
            }
        }
    }

    fn ended(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    use report::model::{
        FindingRecord, Run, RunState, Trace, TraceConnection, TraceFile, TraceRetransmissions,
        TraceShare, TraceTables, Verdict,
    };

    fn explained() -> Explained {
        let share = |limit: &str, share| TraceShare {
            limit: limit.to_owned(),
            share,
        };
        let connection = |number, sender: &str, goodput_bits_per_second, shares| TraceConnection {
            number,
            sender: sender.to_owned(),
            receiver: "198.18.0.2:5201".to_owned(),
            goodput_bits_per_second,
            payload_bytes: 2_220_000 * u64::from(number),
            active_ns: 5_245_000_000,
            best_bits_per_second: (number == 1).then_some(3_907_000),
            rtt_min_ns: Some(85_100_000),
            retransmissions: TraceRetransmissions {
                fast: 12,
                timeout: u64::from(number),
                ..TraceRetransmissions::default()
            },
            shares,
            ..TraceConnection::default()
        };
        let trace = Trace {
            files: vec![TraceFile {
                name: "slow.pcapng".to_owned(),
                packets: 19_262,
                dropped: Some(40),
                ..TraceFile::default()
            }],
            packets: 19_262,
            tcp_packets: 19_240,
            connections_seen: 5,
            connections_with_data: 2,
            connections: vec![
                connection(
                    1,
                    "198.18.0.1:42034",
                    3_386_000,
                    vec![share("receive_window", 0.72), share("sender_window", 0.21)],
                ),
                connection(
                    2,
                    "198.18.0.1:42036",
                    81_000,
                    vec![share("bottleneck", 0.98)],
                ),
            ],
            table_rows: Some(TraceTables {
                connections: 2,
                intervals: 118,
            }),
            ..Trace::default()
        };
        let sentence = "The receive window of 65.54 kB was full for 72 % of the time \
                        (65.54 kB / 85.1 ms = 6.161 Mb/s)";
        Explained {
            run: Run {
                name: "slow.pcapng".to_owned(),
                state: RunState::Done,
                trace: Some(trace),
                verdict: Some(Verdict {
                    sentence: sentence.to_owned(),
                    conclusive: true,
                    cause: Some("receive_window".to_owned()),
                    ..Verdict::default()
                }),
                ..Run::default()
            },
            findings: vec![FindingRecord {
                phase: "1".to_owned(),
                title: sentence.to_owned(),
                confidence: 0.9,
                evidence: vec!["frames 40 to 310: 65,536 bytes in flight".to_owned()],
                ..FindingRecord::default()
            }],
            folder: PathBuf::from("runs/1"),
        }
    }

    #[test]
    fn a_capture_of_two_connections_as_text() {
        let explained = explained();
        crate::print::golden!("explain", |width| text(&explained, false, width));
    }

    #[test]
    fn a_live_capture_and_its_tables_as_text() {
        let file = Path::new("runs/1/capture.pcapng");
        let so_far = SoFar {
            seconds: 2,
            connections: 5,
            packets_per_second: 5_364,
            dropped: 0,
        };
        insta::assert_snapshot!(
            [
                beginning("eth0", file),
                progress(&so_far),
                tables(&explained()).unwrap(),
            ]
            .join("\n")
        );
    }
}
