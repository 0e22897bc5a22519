//! Text that attacks a terminal, a log, a page or a spreadsheet, and what must not be left of it. The tests of other crates include
//! this file. It has its own list of what is dangerous: the one in `units::text` is what is tested.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test takes what it needs of what several share"
)]

/// Begins what would be a line of its own after a line feed.
pub const FORGED: &str = "FORGED";

/// A title, a screen cleared, a C1 control, overrides and isolates, marks, line ends with a forged line, NUL, separators,
/// invisible characters, a tag, DEL, and a tag of HTML.
pub const HOSTILE: &str = "=h\x1b]0;owned\x07\x1b[2J\u{9b}31m\u{85}\u{202e}\u{2066}\u{200e}\u{200f}\u{61c}\0\u{2028}\u{2029}\u{200b}\
    \u{2060}\u{feff}\u{e0041}\u{7f}<x7>\r\nFORGED";

/// Whether a reader may see `c` in output.
fn is_harmless(c: char) -> bool {
    let is_hidden = matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !is_hidden && (matches!(c, '\n' | '\t') || !c.is_control())
}

/// Nothing in `text` has an effect on a terminal or hides from its reader.
#[track_caller]
pub fn assert_clean(text: &str, what: &str) {
    if let Some((at, c)) = text.char_indices().find(|(_, c)| !is_harmless(*c)) {
        let from = text.floor_char_boundary(at.saturating_sub(120));
        let to = text.ceil_char_boundary((at + 60).min(text.len()));
        panic!("{what}: {c:?} in {:?}", &text[from..to]);
    }
}

/// [`assert_clean`], and nothing from outside begins a line.
#[track_caller]
pub fn assert_clean_lines(text: &str, what: &str) {
    assert_clean(text, what);
    assert!(
        !text.lines().any(|line| line.starts_with(FORGED)),
        "{what}: a forged line in {text:?}"
    );
}

/// [`assert_clean`], and no tag of HTML from outside.
#[track_caller]
pub fn assert_clean_page(page: &str, what: &str) {
    assert_clean(page, what);
    assert!(!page.contains("<x7>"), "{what}: a tag in the page");
}
