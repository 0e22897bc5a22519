//! What a mistyped name was likely meant to be.

/// The known name nearest to `typed`, if it is near enough to be a slip: one edit for short names,
/// one in three letters for longer ones.
fn nearest<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = typed.chars().count();
    if length > NAME_CHARS_MAX {
        return None;
    }
    let allowed = (length / 3).max(1);
    known
        .filter(|name| name.len() <= NAME_CHARS_MAX)
        .map(|name| (distance(typed, name), name))
        .filter(|(edits, _)| *edits <= allowed)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, name)| name)
}

/// `there is no host 'x' in this file`, with a guess where there is one.
pub(super) fn no_such<'a>(
    what: &str,
    typed: &str,
    place: &str,
    known: impl Iterator<Item = &'a str>,
) -> String {
    let guess = did_you_mean(typed, known);
    format!("there is no {what} '{typed}' {place}{guess}")
}

/// serde's words for a key that is not known, or missing, in ours.
pub(super) fn reword(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    if message.starts_with("missing field") {
        return quoted.next().map_or_else(
            || message.to_owned(),
            |key| format!("the key '{key}' is missing"),
        );
    }
    let what = if message.starts_with("unknown field") {
        "key"
    } else if message.starts_with("unknown variant") {
        "value"
    } else {
        return message.to_owned();
    };
    let Some(typed) = quoted.next() else {
        return message.to_owned();
    };
    let known: Vec<&str> = quoted.collect();
    let mut rest = did_you_mean(typed, known.iter().copied());
    if rest.is_empty() {
        rest = one_of(typed, &known);
    }
    format!("unknown {what} '{typed}'{rest}")
}

/// Names that are listed whole; of more, those that are nearest.
const LISTED_MAX: usize = 16;
const NEAREST: usize = 3;

/// `; expected one of: a, b` for few known names, and for many the three that are nearest to `typed`.
pub fn one_of(typed: &str, known: &[&str]) -> String {
    if known.len() <= LISTED_MAX {
        return format!("; expected one of: {}", known.join(", "));
    }
    let mut near: Vec<&str> = known.to_vec();
    // Stable: of names that are as near, the first listed.
    near.sort_by_cached_key(|name| far_from(typed, name));
    near.truncate(NEAREST);
    let (count, near) = (known.len(), near.join(", "));
    format!("; the nearest of {count} names: {near}")
}

/// How far a name is from what was typed. One that begins with it is nearer than any that does not.
fn far_from(typed: &str, name: &str) -> (bool, usize) {
    let typed: String = typed.chars().take(NAME_CHARS_MAX).collect();
    let is_begun = !typed.is_empty() && name.starts_with(&typed);
    (!is_begun, distance(&typed, name))
}

/// `; did you mean 'x'?` for the known name nearest to `typed`, if it is near enough to be a slip; else
/// nothing.
pub fn did_you_mean<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(typed, known).map_or_else(String::new, |name| format!("; did you mean '{name}'?"))
}

/// Insertions, deletions, replacements and swaps of neighbours between the two (Damerau 1964, in
/// the form that edits no part twice).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// A longer name is not compared: the work grows with the square.
const NAME_CHARS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_one_edit_and_a_swap_of_neighbours_counts_as_one() {
        for (a, b, edits) in [
            ("delay", "delay", 0),
            ("dealy", "delay", 1),
            ("delays", "delay", 1),
            ("rat", "rate", 1),
            ("", "mtu", 3),
            ("queue", "loss", 5),
        ] {
            assert_eq!(distance(a, b), edits, "{a} {b}");
        }
    }

    #[test]
    fn only_near_names_are_offered() {
        let known = || ["rate", "delay", "queue"].into_iter();
        assert_eq!(nearest("rtae", known()), Some("rate"));
        assert_eq!(nearest("speed", known()), None);
        assert_eq!(nearest(&"r".repeat(65), known()), None);
    }

    #[test]
    fn unknown_keys_are_told_in_our_words() {
        assert_eq!(
            reword("unknown field `dealy`, expected one of `rate`, `delay`"),
            "unknown key 'dealy'; did you mean 'delay'?"
        );
        assert_eq!(
            reword("unknown field `x`, expected `rate` or `delay`"),
            "unknown key 'x'; expected one of: rate, delay"
        );
        let many: Vec<String> = (0..20).map(|n| format!("`key-{n:02}`")).collect();
        let many = many.join(", ");
        assert_eq!(
            reword(&format!(
                "unknown field `key-of-15`, expected one of {many}, `other`"
            )),
            "unknown key 'key-of-15'; did you mean 'key-15'?"
        );
        assert_eq!(
            reword(&format!(
                "unknown field `kry-115-x`, expected one of `other`, {many}"
            )),
            "unknown key 'kry-115-x'; the nearest of 21 names: key-11, key-15, key-01"
        );
        assert_eq!(
            reword("missing field `title`"),
            "the key 'title' is missing"
        );
        assert_eq!(reword("invalid type: `x`"), "invalid type: `x`");
    }
}
