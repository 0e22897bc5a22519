//! What is said of a copy.

use crate::model::{Copy, CopyEnd, CopyQuic};
use crate::text;

/// What there is to say, a line each.
pub(crate) fn lines(copy: &Copy) -> Vec<String> {
    let mut lines = Vec::new();
    let mut parts = vec![format!("{} copied", text::plural(copy.placed, "file"))];
    if copy.null_sink {
        parts = vec![format!(
            "{} checked, nothing written",
            text::plural(copy.placed, "file")
        )];
    }
    if copy.dry_run {
        parts = vec![format!(
            "{} would be copied",
            text::plural(copy.placed, "file")
        )];
    }
    if copy.same > 0 {
        parts.push(format!("{} there already", text::count(copy.same)));
    }
    if copy.deleted > 0 {
        let word = if copy.dry_run {
            "would be deleted"
        } else {
            "deleted"
        };
        parts.push(format!("{} {word}", text::count(copy.deleted)));
    }
    if copy.failed > 0 {
        parts.push(format!("{} FAILED", text::count(copy.failed)));
    }
    lines.push(parts.join(", "));
    if copy.resumed_bytes > 0 {
        let there = text::bytes(copy.resumed_bytes);
        lines.push(format!(
            "{there} were there already, from an earlier attempt or an older copy"
        ));
    }
    if copy.received_bytes > 0 {
        let mut line = format!(
            "{} over {}, {}",
            text::bytes(copy.received_bytes),
            text::plural(copy.streams, "connection"),
            copy.cipher
        );
        if copy.transport == "quic" {
            line += " over QUIC";
        }
        if copy.reconnects > 0 {
            line += &format!(
                ", {} made again",
                text::plural(copy.reconnects, "connection")
            );
        }
        lines.push(line);
    }
    let sum = |of: fn(&CopyQuic) -> u64| copy.quic.iter().map(of).fold(0, u64::saturating_add);
    let (sent, lost) = (sum(|one| one.packets_sent), sum(|one| one.packets_lost));
    if sent > 0 {
        lines.push(format!(
            "over QUIC {} of {} packets lost, {}",
            text::count(lost),
            text::count(sent),
            text::percent(lost as f64 / sent as f64)
        ));
    }
    if let Some(repair) = &copy.repair {
        let mut line = format!(
            "{} in the manifest: {} otherwise, {} missing",
            text::plural(repair.files, "file"),
            text::count(repair.different),
            text::count(repair.missing)
        );
        if repair.left > 0 {
            line += &format!("; {} STILL not as it says", text::count(repair.left));
        }
        lines.push(line);
    }
    if let Some(beside) = &copy.beside {
        lines.push(format!(
            "beside it one stream of {} had {}; with equal parts it would have had {}",
            beside.tool,
            text::rate(beside.goodput_bits_per_second),
            text::rate(beside.fair_bits_per_second)
        ));
    }
    lines
}

/// Parts of a side's time: their mark in the page's style, their names, their shares. A destination's threads are in their
/// connections while no data come.
pub(crate) fn parts(end: &CopyEnd) -> [(&'static str, &'static str, f64); 4] {
    let (link, idle) = match end.end == "destination" {
        true => ("waiting for data", "idle"),
        false => ("connections", "waiting"),
    };
    let time = &end.time;
    [
        ("disk", "files", time.disk),
        ("sums", "sums", time.sums),
        ("link", link, time.link),
        ("waiting", idle, time.idle),
    ]
}
