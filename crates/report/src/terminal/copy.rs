//! A copy as text.

use super::{Ink, Page};
use crate::model::{CopyEnd, Run};
use crate::text;
use crate::text::copy::{lines, parts};

/// Notes that are shown; all are in run.json.
const NOTES_MAX: usize = 10;

impl Page {
    /// What was copied, where the time went, notes.
    pub(super) fn copy(&mut self, run: &Run) {
        let Some(copy) = &run.copy else { return };
        for line in lines(copy)
            .into_iter()
            .chain(copy.ends.iter().map(time_line))
        {
            self.wrapped("", &text::plain(&line), Ink::Plain);
        }
        for choice in &copy.chosen {
            self.wrapped("", &text::plain(choice), Ink::Dim);
        }
        // They name files: not to be wrapped.
        for note in copy.notes.iter().take(NOTES_MAX) {
            let line = self.ink(Ink::Dim, &text::plain(note));
            self.out.push_str(&line);
            self.out.push('\n');
        }
        let left = copy.notes.len().saturating_sub(NOTES_MAX) as u64 + copy.notes_more;
        if left > 0 {
            self.out.push_str(&format!(
                "{} in run.json\n",
                text::plural(left, "more note")
            ));
        }
        if let Some(certificate) = &copy.certificate {
            self.out.push('\n');
            self.certificate(certificate);
        }
    }
}

/// Where a side's time went, in words.
fn time_line(end: &CopyEnd) -> String {
    let parts =
        parts(end).map(|(_, word, share)| format!("{word} {}", text::percent_of_time(share)));
    format!("time of the {}'s threads: {}", end.end, parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Certificate, Copy};

    #[test]
    fn a_dry_run_and_a_null_sink_do_not_say_copied() {
        let first_line = |null_sink, dry_run| {
            let copy = Copy {
                placed: 2,
                null_sink,
                dry_run,
                ..Copy::default()
            };
            lines(&copy).remove(0)
        };
        assert_eq!(first_line(false, false), "2 files copied");
        assert_eq!(first_line(true, false), "2 files checked, nothing written");
        assert_eq!(first_line(true, true), "2 files would be copied");
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
