//! A copy as text.

use super::{Ink, Page};
use crate::model::{Copy, CopyEnd, CopyQuic, CopyTime, Run};
use crate::text;

/// Notes that are shown; all are in run.json.
const NOTES_MOST: usize = 10;

impl Page {
    /// What was copied, where the time went, what is to be known.
    pub(super) fn copy(&mut self, run: &Run) {
        let Some(copy) = &run.copy else { return };
        for line in lines(copy) {
            self.out.push_str(&text::plain(&line));
            self.out.push('\n');
        }
        for end in &copy.ends {
            self.out.push_str(&text::plain(&time_line(end)));
            self.out.push('\n');
        }
        for note in copy.chosen.iter().chain(copy.notes.iter().take(NOTES_MOST)) {
            let told = self.ink(Ink::Dim, &text::plain(note));
            self.out.push_str(&told);
            self.out.push('\n');
        }
        let left = copy.notes.len().saturating_sub(NOTES_MOST) as u64 + copy.notes_more;
        if left > 0 {
            self.out
                .push_str(&format!("and {left} more like these, in run.json\n"));
        }
        if let Some(certificate) = &copy.certificate {
            self.out.push('\n');
            self.certificate(certificate);
        }
    }
}

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

/// Where a side's time went, in words.
fn time_line(end: &CopyEnd) -> String {
    let parts =
        parts(&end.time).map(|(_, word, share)| format!("{word} {}", text::percent_of_time(share)));
    format!("time of the {}'s threads: {}", end.end, parts.join(", "))
}

/// Parts of a side's time: their mark in the page's style, their names, their shares.
pub(crate) fn parts(time: &CopyTime) -> [(&'static str, &'static str, f64); 4] {
    [
        ("disk", "files", time.disk),
        ("sums", "sums", time.sums),
        ("link", "connections", time.link),
        ("waiting", "waiting", time.idle),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Certificate;

    #[test]
    fn what_nobody_wrote_is_not_called_copied() {
        let told = |null_sink, dry_run| {
            let copy = Copy {
                placed: 2,
                null_sink,
                dry_run,
                ..Copy::default()
            };
            lines(&copy).remove(0)
        };
        assert_eq!(told(false, false), "2 files copied");
        assert_eq!(told(true, false), "2 files checked, nothing written");
        assert_eq!(told(true, true), "2 files would be copied");
    }

    #[test]
    fn a_lab_that_is_not_trusted_says_why() {
        let late = "1587 of 26232 frames left more than 1 ms late";
        let run = Run {
            copy: Some(Copy {
                certificate: Some(Certificate {
                    problems: vec![late.to_owned()],
                    ..Certificate::default()
                }),
                ..Copy::default()
            }),
            ..Run::default()
        };
        let text = crate::terminal::summary(&run, &[], false, 100);
        assert!(text.contains("lab NOT TRUSTED: "), "{text}");
        assert!(text.contains(&format!("  - {late}\n")), "{text}");
    }
}
