//! Text from outside, as a terminal, a log or a page may show it.
//!
//! A terminal executes some characters instead of showing them: ECMA-48 control functions (C0, DEL, C1; a terminal also
//! accepts U+009B for `ESC [`) move the cursor, set the title or forge lines. Others change how a reader sees the characters
//! around them: direction overrides (UAX 9) show `fdp.exe` for `exe.pdf`, zero-width characters make two names look the same.
//! [`is_plain`] is the one definition of what passes; names of files, messages of peers, keys in error texts and log fields
//! all go by it.
//!
//! A character that does not pass becomes U+FFFD, so that a reader sees that there was one. Lengths in characters stay the same.
//! Limits on length are the caller's.
//!
//! Left out: characters that look alike (UTS 39), and zero-width joiners that some scripts and emoji need, which become U+FFFD.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether `c` is shown as itself and has no other effect. False for control characters (C0, DEL, C1), line and paragraph
/// separators, and what Unicode calls default ignorable (UAX 44: direction marks and overrides, zero-width characters, the
/// byte-order mark, tags) or annotates with. Variation selectors 1 to 16 pass: they choose between shapes of one character.
pub const fn is_plain(c: char) -> bool {
    match c {
        ' '..='~' => true,
        '\0'..='\u{9f}' => false,
        '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => false,
        _ => true,
    }
}

/// `text` on one line: line ends and tabs become blanks, what else is not [plain](is_plain) becomes U+FFFD.
pub fn plain(text: &str) -> Cow<'_, str> {
    replaced(text, |_| false)
}

/// The line of `text` that byte `at` stands in, from 1; the last for what is behind its end.
pub fn line_at(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|&b| b == b'\n').count()
}

/// Digits with a comma before each three but the first: `1,234,567`.
pub fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// [`plain`] that keeps line feeds and tabs: for text of ours that was put together from parts, each of them plain.
pub fn plain_lines(text: &str) -> Cow<'_, str> {
    replaced(text, |c| matches!(c, '\n' | '\t'))
}

/// [`plain_lines`] that also keeps the colours that a report has: `ESC [` numbers `m` (ECMA-48 SGR) of bold, dim, underlined and
/// foreground colours.
pub fn plain_colored(text: &str) -> Cow<'_, str> {
    if !text.contains('\x1b') {
        return plain_lines(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\x1b') {
        out.push_str(&plain_lines(&rest[..at]));
        let length = color_bytes(&rest[at..]);
        match length {
            0 => out.push(char::REPLACEMENT_CHARACTER),
            _ => out.push_str(&rest[at..at + length]),
        }
        rest = &rest[at + length.max(1)..];
    }
    out.push_str(&plain_lines(rest));
    Cow::Owned(out)
}

/// JSON `text` with the same data, in which characters that are not [plain](is_plain) are escaped (RFC 8259 section 7). Such
/// characters are legal inside strings only, but for the blanks between values, which stay.
pub fn plain_json(text: &str) -> Cow<'_, str> {
    let fine = |c: char| is_plain(c) || matches!(c, '\n' | '\r' | '\t');
    if text.chars().all(fine) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 64);
    for c in text.chars() {
        if fine(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string does not fail.
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
    Cow::Owned(out)
}

fn replaced(text: &str, keeps: impl Fn(char) -> bool) -> Cow<'_, str> {
    let fine = |c: char| is_plain(c) || keeps(c);
    if text.chars().all(fine) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| match c {
        c if fine(c) => c,
        '\n' | '\r' | '\t' => ' ',
        _ => char::REPLACEMENT_CHARACTER,
    };
    Cow::Owned(text.chars().map(shown).collect())
}

/// Bytes of the colour that `text` begins with; 0 where it begins with none.
fn color_bytes(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\x1b[") else {
        return 0;
    };
    let Some(end) = rest.find(|c: char| !c.is_ascii_digit() && c != ';') else {
        return 0;
    };
    let is_color =
        rest[end..].starts_with('m') && rest[..end].split(';').all(|n| COLORS.contains(&n));
    if is_color {
        "\x1b[".len() + end + "m".len()
    } else {
        0
    }
}

/// SGR parameters that pass: reset, bold, dim, italic, underlined, normal, default and foreground colours. Not concealed (8).
const COLORS: [&str; 25] = [
    "", "0", "1", "2", "3", "4", "22", "39", "30", "31", "32", "33", "34", "35", "36", "37", "90",
    "91", "92", "93", "94", "95", "96", "97", "24",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_in_groups_and_bytes_in_lines() {
        let found = ["", "1", "123", "1234", "1234567"].map(grouped);
        assert_eq!(found, ["", "1", "123", "1,234", "1,234,567"]);
        let lines = [0, 1, 2, 3, 4, 99].map(|at| line_at("a\nb\n", at));
        assert_eq!(lines, [1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn controls_overrides_and_invisible_characters_do_not_pass() {
        let bad = "\0\u{7}\u{8}\u{b}\x1b\u{7f}\u{80}\u{9b}\u{9d}\u{9f}\u{61c}\u{200b}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\
            \u{202e}\u{2060}\u{2066}\u{2069}\u{feff}\u{e0001}\u{e007f}";
        for c in bad.chars() {
            assert!(!is_plain(c), "{c:?}");
            assert_eq!(plain(&format!("a{c}b")), "a\u{fffd}b", "{c:?}");
            assert_eq!(plain_lines(&format!("a{c}b")), "a\u{fffd}b", "{c:?}");
        }
        assert_eq!(plain("a\r\nb\tc"), "a  b c");
        assert_eq!(plain_lines("a\r\nb\tc"), "a \nb\tc");
    }

    #[test]
    fn text_of_any_script_passes_unchanged() {
        for fine in [
            "",
            "a~ !",
            "Zürich",
            "東京",
            "שלום",
            "مرحبا",
            "❤\u{fe0f}",
            "10 µs → 5 %",
            "\u{a0}",
        ] {
            assert!(matches!(plain(fine), Cow::Borrowed(_)), "{fine:?}");
        }
    }

    #[test]
    fn only_colours_pass_where_text_is_coloured() {
        let fine = "\x1b[1;32mok\x1b[0m\n\x1b[2mdim\x1b[0m";
        assert_eq!(plain_colored(fine), fine);
        for bad in [
            "\x1b[2J",
            "\x1b]0;x\u{7}",
            "\x1b[8m",
            "\x1b[1;8m",
            "\x1b[",
            "\x1b",
            "\x1b[1",
            "\x1bc",
            "\x1b[38;5;1m",
        ] {
            let shown = plain_colored(bad);
            assert!(shown.chars().all(is_plain), "{shown:?}");
            assert!(shown.starts_with(char::REPLACEMENT_CHARACTER), "{shown:?}");
        }
        assert_eq!(plain_lines(fine).matches('\x1b').count(), 0);
    }

    #[test]
    fn json_keeps_its_data() {
        assert_eq!(
            plain_json("{\n \"a\u{202e}\": \"\u{9b}\u{e0001}é\"}"),
            "{\n \"a\\u202e\": \"\\u009b\\udb40\\udc01é\"}"
        );
        assert!(matches!(plain_json("{\"a\": 1}\n"), Cow::Borrowed(_)));
    }
}
