//! Text from outside (names, path files, evidence) as it may be shown: control characters and direction
//! overrides neither move a terminal's cursor nor reorder a page.

use std::borrow::Cow;

/// `text` on one line as [`units::text::plain`] has it, of bounded length.
pub fn plain(text: &str) -> String {
    bounded(text, units::text::plain)
}

/// [`plain`] that keeps line ends and tabs, for text shown as a block.
pub fn plain_block(text: &str) -> String {
    bounded(text, units::text::plain_lines)
}

fn bounded(text: &str, shown: fn(&str) -> Cow<'_, str>) -> String {
    let end = text.floor_char_boundary(TEXT_BYTES_MAX);
    let more = if end < text.len() { "…" } else { "" };
    shown(&text[..end]).trim().to_owned() + more
}

/// Bytes of one text that are shown: above any path file, below what would drown a page.
const TEXT_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_and_direction_overrides_are_not_shown() {
        assert_eq!(
            plain("a\u{1b}[2Jb\u{202e}c\nd\u{7}"),
            "a\u{fffd}[2Jb\u{fffd}c d\u{fffd}"
        );
        assert_eq!(plain_block("a\n\tb\r\u{0}"), "a\n\tb \u{fffd}");
        assert!(plain(&"x".repeat(1 << 20)).len() < 70_000);
    }
}
