//! Failures for programs that asked for machine-readable output: an object on stdout, since nothing else says why there is none.

use std::ffi::OsStr;

use serde_json::json;

/// The layout that the command line asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// One JSON document.
    Json,
    /// An object a line.
    Lines,
    /// The document of `iperf3 -J`.
    Iperf3,
}

impl Machine {
    /// What the words of a command line ask for, also where the rest of them makes no sense. Words behind `--` are not the
    /// command's.
    pub fn asked<'a>(words: impl Iterator<Item = &'a OsStr>) -> Option<Self> {
        let mut found = None;
        let mut format_follows = false;
        for word in words
            .filter_map(OsStr::to_str)
            .take_while(|word| *word != "--")
        {
            let format = match (format_follows, word) {
                (true, format) => Some(format),
                (false, "--json") => Some("json"),
                (false, word) => word.strip_prefix("--format="),
            };
            found = match format {
                Some("json") => Some(Self::Json),
                Some("jsonl") => Some(Self::Lines),
                Some("iperf3-json") => Some(Self::Iperf3),
                _ => found,
            };
            format_follows = word == "--format";
        }
        found
    }

    /// A failure in this layout.
    pub fn text(self, error: &str, exit_code: u8) -> String {
        match self {
            Self::Json => json!({"error": error, "exit_code": exit_code}).to_string(),
            Self::Lines => {
                json!({"event": "error", "error": error, "exit_code": exit_code}).to_string()
            }
            // As iperf3 does: the document's parts are there and empty.
            Self::Iperf3 => {
                json!({"start": {}, "intervals": [], "end": {}, "error": error}).to_string()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_layout_that_was_typed_counts_and_words_of_others_do_not() {
        for (typed, asked) in [
            ("measure far", None),
            ("measure far --json", Some(Machine::Json)),
            ("measure far --format json", Some(Machine::Json)),
            ("measure far --format jsonl", Some(Machine::Lines)),
            ("measure --format=iperf3-json far", Some(Machine::Iperf3)),
            ("measure --format text far", None),
            ("copy --format pcap a b", None),
            ("lab shell x -- tool --json", None),
            ("measure --format", None),
        ] {
            let words = typed.split(' ').map(OsStr::new);
            assert_eq!(Machine::asked(words), asked, "{typed}");
        }
    }
}
