//! What `goodput lab log` prints.

use std::fmt::Write as _;

use lab::log::{Converted, Legend, Summary};
use link::record::{Block, Reader};
use units::Bytes;

use super::grouped;
use crate::print;

/// That a log was converted, and what the result lacks.
pub(crate) fn written(converted: &Converted) -> String {
    format!(
        "{} written{}",
        grouped(converted.written),
        reservations(converted)
    )
}

/// A log summed up.
pub(crate) fn summary(legend: &Legend, reader: Reader<'_>, width: usize) -> String {
    let frames = reader
        .clone()
        .flatten()
        .filter(|b| matches!(b, Block::Frame(_)))
        .count();
    text(legend, frames as u64, &Summary::read(reader), width)
}

fn text(legend: &Legend, frames: u64, summary: &Summary, width: usize) -> String {
    let read = format!(
        "{} frames, {} decisions on segments{}",
        grouped(frames),
        grouped(summary.read.written),
        reservations(&summary.read)
    );
    let mut out = print::wrapped(&legend.title, 2, width) + &print::wrapped(&read, 2, width);
    let name = |number: usize| match legend.links.get(number) {
        Some(own) => format!("{}: {} -> {}", own.name, own.from, own.to),
        None => "other".to_owned(),
    };
    let names: Vec<String> = (0..summary.links.len()).map(name).collect();
    let longest = names.iter().map(|name| name.chars().count()).max();
    let longest = longest.unwrap_or(0);
    for (name, link) in names.iter().zip(&summary.links) {
        let mut words = String::new();
        let deepest = link.queues.iter().flat_map(|q| q.depths.iter().flatten());
        if let Some(most) = deepest.map(|depth| depth.max_bytes).max() {
            let _ = write!(words, "queue at most {}, ", Bytes::new(most));
        }
        let drops = link.drops.iter().filter(|d| d.total > 0);
        let drops: Vec<String> = drops
            .map(|d| format!("{} {}", grouped(d.total), legend.decision(d.cause)))
            .collect();
        words += &match drops.as_slice() {
            [] => "no drops".to_owned(),
            drops => format!("drops: {}", drops.join(", ")),
        };
        out += &print::labelled(&format!("  {name:<longest$}  "), &words, width);
    }
    out
}

/// What the log lacks, if anything.
fn reservations(read: &Converted) -> String {
    let mut text = String::new();
    if read.interrupted {
        text += "; the log has no end block: its lab was killed or still runs";
    }
    if let Some(at) = read.truncated_at {
        let _ = write!(text, "; truncated at byte {at}");
    }
    if read.malformed_blocks > 0 {
        let _ = write!(
            text,
            "; {} malformed blocks",
            grouped(read.malformed_blocks)
        );
    }
    if read.lost_rows + read.lost_frames > 0 {
        let _ = write!(
            text,
            "; {} decisions and {} frames are missing: the disk was too slow",
            grouped(read.lost_rows),
            grouped(read.lost_frames)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use lab::log::{Depth, DropSeries, LinkLegend, LinkSummary, QueueSummary};

    use link::record::Code;

    use super::*;

    #[test]
    fn a_log_as_text() {
        let link = |name: &str, from: &str, to: &str| LinkLegend {
            name: name.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            ..LinkLegend::default()
        };
        let mut legend = Legend::new("Two senders into one port: 1 Gb/s, 256 KiB of queue", 0);
        legend.links = vec![
            link("one", "one", "switch"),
            link("into", "switch", "receiver"),
        ];
        let depth = Some(Depth {
            min_bytes: 0,
            max_bytes: 262_144,
        });
        let full = LinkSummary {
            queues: vec![QueueSummary {
                depths: vec![None, depth],
                ..QueueSummary::default()
            }],
            drops: vec![DropSeries {
                cause: Code::QUEUE_FULL,
                total: 11_532,
                ..DropSeries::default()
            }],
            ..LinkSummary::default()
        };
        let summary = Summary {
            links: vec![LinkSummary::default(), full],
            read: Converted {
                written: 104_552,
                interrupted: true,
                truncated_at: Some(1_048_576),
                malformed_blocks: 2,
                lost_rows: 31,
                lost_frames: 17,
            },
            ..Summary::default()
        };
        print::golden!("lab_log", |width| text(&legend, 52_282, &summary, width));
    }
}
