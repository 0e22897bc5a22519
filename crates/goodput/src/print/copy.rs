//! What is printed of a copy: its progress, and its result.

pub(crate) mod live;

use std::path::Path;

use fault::Failure;
use report::model::{ResultRecord, Run};

use crate::args::copy::CopyFormat;
use crate::print;
use report::shown::Shown;

/// Prints the result, and where its report is.
pub(crate) fn result(
    format: CopyFormat,
    run: &Run,
    folder: &Path,
    shown: &Shown,
) -> Result<(), Failure> {
    match format {
        CopyFormat::Text => {
            let run = shown.without(run);
            print::print_colored(&text(&run, print::color(), print::width()))?;
            print::print_place("Report", &folder.join("report.html"))
        }
        CopyFormat::Json => print::print_json(run),
        CopyFormat::Jsonl => print::print_json_line(&ResultRecord {
            event: "result".to_owned(),
            folder: folder.display().to_string(),
            run: run.clone(),
        }),
    }
}

/// The summary.
fn text(run: &Run, color: bool, width: usize) -> String {
    format!("\n{}", report::terminal::summary(run, &[], color, width))
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::model::{Copy, CopyEnd, CopyTime, RunState, Verdict};

    #[test]
    fn a_copy_as_text() {
        let end = |end: &str, disk, link| CopyEnd {
            end: end.to_owned(),
            time: CopyTime {
                disk,
                sums: 0.08,
                link,
                idle: 0.92 - disk - link,
            },
            ..CopyEnd::default()
        };
        let run = Run {
            name: "dtn.example.org:/data".to_owned(),
            state: RunState::Done,
            copy: Some(Copy {
                placed: 1_204,
                same: 31,
                failed: 1,
                streams: 4,
                cipher: "AES-128-GCM".to_owned(),
                transport: "tcp".to_owned(),
                received_bytes: 12_040_000_000,
                ends: vec![end("source", 0.71, 0.11), end("destination", 0.07, 0.3)],
                chosen: vec!["4 connections: one more did not raise the rate".to_owned()],
                notes: vec!["a/socket: not a file, folder or link; skipped".to_owned()],
                notes_more: 2,
                ..Copy::default()
            }),
            verdict: Some(Verdict {
                sentence:
                    "1.204 Gb/s: reading files at the source took 71 % of its threads' time, \
                           so its disk is the limit."
                        .to_owned(),
                conclusive: true,
                ..Verdict::default()
            }),
            ..Run::default()
        };
        crate::print::golden!("copy", |width| text(&run, false, width));
    }
}
