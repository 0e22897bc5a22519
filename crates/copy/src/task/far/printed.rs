//! What a far host's shell prints before goodput answers there: banners, and the output of start-up files. Any bytes.

use std::io::Read;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use units::text::plain;

use crate::task::job::Reply;

/// The first bytes of it, and when the last came.
#[derive(Debug, Default)]
pub(super) struct Printed {
    first: Vec<u8>,
    last: Option<Instant>,
    is_over: bool,
}

impl Printed {
    /// More came.
    pub(super) fn take(&mut self, bytes: &[u8], now: Instant) {
        if self.is_over || bytes.is_empty() {
            return;
        }
        let room = SHOWN_MAX - self.first.len();
        self.first
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.last = Some(now);
    }

    /// Goodput answers: what comes from now on is its own.
    pub(super) fn is_over(&mut self) {
        self.is_over = true;
    }

    /// What it printed, where nothing followed for so long.
    pub(super) fn silent_since(&self, time: Duration) -> Option<String> {
        let last = self.last.filter(|_| !self.is_over)?;
        (last.elapsed() >= time).then(|| self.text())
    }

    /// The end of a sentence about it; empty where it printed nothing.
    pub(super) fn told(&self) -> String {
        match self.text() {
            text if text.is_empty() || self.is_over => String::new(),
            text => format!("; its shell printed \"{text}\""),
        }
    }

    fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.first);
        plain(text.trim()).into_owned()
    }
}

/// Reads all of an output and tells how it began.
pub(super) fn all_of(mut output: impl Read, tell: &Sender<Printed>) {
    let mut printed = Printed::default();
    let mut bytes = [0; 4_096];
    while let Ok(length @ 1..) = output.read(&mut bytes) {
        printed.take(&bytes[..length], Instant::now());
    }
    let _ = tell.send(printed);
}

/// What goodput says in a line; text before it in the same line is a shell's, which may end without a newline.
pub(super) fn reply_in(line: &[u8]) -> Option<Reply> {
    let begins = line.iter().enumerate().filter(|(_, byte)| **byte == b'{');
    begins
        .take(BEGINS_MAX)
        .find_map(|(at, _)| serde_json::from_slice(&line[at..]).ok())
}

/// Of what was printed, so many bytes are shown.
const SHOWN_MAX: usize = 200;
/// So many brackets of a line may begin goodput's word.
const BEGINS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_found_behind_text_without_a_newline() {
        let reply = serde_json::to_vec(&Reply::Note("x".into())).unwrap();
        for before in ["", "x", "hello {there} ", "{{{{{{{{{{{{{{{"] {
            let line = [before.as_bytes(), &reply, b"\n"].concat();
            assert!(
                matches!(reply_in(&line), Some(Reply::Note(text)) if text == "x"),
                "{before}"
            );
        }
        // Not for ever.
        let line = ["{".repeat(BEGINS_MAX).as_bytes(), &reply].concat();
        assert!(reply_in(&line).is_none());
        assert!(reply_in(b"hi\n").is_none());
    }

    #[test]
    fn what_a_shell_printed_is_bounded_and_plain() {
        let now = Instant::now();
        let mut printed = Printed::default();
        assert_eq!(printed.told(), "");
        assert!(printed.silent_since(Duration::ZERO).is_none());
        printed.take(b"hi\x1b[31m\n", now);
        printed.take(&[b'y'; 1_000], now);
        let told = printed.told();
        assert!(told.starts_with("; its shell printed \"hi"), "{told}");
        assert!(!told.contains('\u{1b}') && !told.contains('\n'), "{told}");
        assert!(told.len() < 2 * SHOWN_MAX, "{told}");
        assert!(printed.silent_since(Duration::ZERO).is_some());
        assert!(printed.silent_since(Duration::from_secs(3_600)).is_none());
        printed.is_over();
        assert!(printed.silent_since(Duration::ZERO).is_none());
    }
}
