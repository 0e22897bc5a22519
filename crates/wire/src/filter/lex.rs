//! Cuts a filter's text into words and symbols.
//!
//! A word is a name, a number, an address or a range of ports; colons belong to it but for those inside
//! brackets, where they part offset and size. A hyphen belongs to the word around it, so that `80-90`
//! and `tcp-syn` are one; inside brackets only to one that begins with a letter.

use std::ops::Range;

/// A word or symbol with its place in the text.
#[derive(Clone, Debug)]
pub(super) struct Token<'t> {
    pub(super) kind: Kind<'t>,
    pub(super) at: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'t> {
    Word(&'t str),
    Symbol(&'static str),
    End,
}

/// Where something is wrong, and what.
pub(super) type Fault = (Range<usize>, String);

/// The tokens, the last of which is [`Kind::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, Fault> {
    let mut tokens = Vec::new();
    let mut at = 0;
    let mut brackets = 0_u32;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let first = rest.chars().next().unwrap_or(' ');
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let word = word(rest, brackets > 0);
        let (kind, length) = if word > 0 {
            (Kind::Word(&rest[..word]), word)
        } else {
            let found = SYMBOLS.iter().find(|s| rest.starts_with(**s));
            let Some(symbol) = found else {
                let why = "is nothing that a filter is made of".to_owned();
                return Err((at..at + first.len_utf8(), why));
            };
            match *symbol {
                "[" => brackets += 1,
                "]" => brackets = brackets.saturating_sub(1),
                _ => {}
            }
            (Kind::Symbol(symbol), symbol.len())
        };
        tokens.push(Token {
            kind,
            at: at..at + length,
        });
        at += length;
    }
    tokens.push(Token {
        kind: Kind::End,
        at: text.len()..text.len(),
    });
    Ok(tokens)
}

/// Bytes of the word that `rest` begins with; 0 where it begins with none.
fn word(rest: &str, in_brackets: bool) -> usize {
    let bytes = rest.as_bytes();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'.';
    let colon = |b: u8| b == b':' && !in_brackets;
    // `::1` is an address; a name may be escaped, as in `ip proto \tcp`.
    let begins = match bytes {
        [b':', b':', ..] => !in_brackets,
        [b'\\', next, ..] => plain(*next),
        [first, ..] => plain(*first),
        [] => false,
    };
    if !begins {
        return 0;
    }
    let is_name = bytes.first().is_some_and(u8::is_ascii_alphabetic);
    let mut length = 1;
    while let Some(&byte) = bytes.get(length) {
        let joins = byte == b'-'
            && (is_name || !in_brackets)
            && bytes.get(length + 1).is_some_and(|&next| plain(next));
        if !(plain(byte) || colon(byte) || joins) {
            break;
        }
        length += 1;
    }
    length
}

/// The longer before those that they begin with.
const SYMBOLS: [&str; 25] = [
    "&&", "||", "!=", "==", "<=", ">=", "<<", ">>", "!", "=", "<", ">", "(", ")", "[", "]", ":",
    "+", "-", "*", "/", "%", "&", "|", "^",
];
