//! What a mistyped name on the command line was likely meant to be.

/// `; did you mean 'x'?` for the known name nearest to `typed`, if it is near enough to be a slip.
pub(super) fn hint<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(typed, known).map_or_else(String::new, |name| format!("; did you mean '{name}'?"))
}

/// One edit for short names, one in three letters for longer ones.
fn nearest<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if typed.len() > NAME_BYTES_MAX {
        return None;
    }
    let allowed = (typed.chars().count() / 3).max(1);
    known
        .filter(|name| name.len() <= NAME_BYTES_MAX)
        .map(|name| (distance(typed, name), name))
        .filter(|(edits, _)| *edits <= allowed)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, name)| name)
}

/// Insertions, deletions, replacements and swaps of neighbours between the two (Damerau 1964, in
/// the form that edits no part twice).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut best = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(rows[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    rows[a.len()][b.len()]
}

/// A longer name is not compared: the work grows with the square.
const NAME_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_names_are_offered() {
        let known = || ["near", "far", "receiver"].into_iter();
        for (typed, meant) in [
            ("neer", Some("near")),
            ("fa", Some("far")),
            ("reciever", Some("receiver")),
            ("enar", Some("near")),
            ("middle", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, known()), meant, "{typed}");
        }
        assert_eq!(nearest(&"n".repeat(65), known()), None);
    }
}
