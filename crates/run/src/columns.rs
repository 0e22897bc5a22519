//! What every key means: the tables of `docs/run-folder.md`, which is compiled in.
//!
//! The page is the one place where keys are explained. `goodput measure --explain-columns` prints its
//! tables, and a test holds them against the types of [`crate::model`], so that no key goes without.

use std::fmt::Write;

/// One key, or a line of the terminal, with what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Section of the page, such as `run.json`.
    pub section: String,
    /// Where in it: `phases[].rtt_idle_ns`.
    pub key: String,
    /// Its type and whether it may be absent.
    pub kind: String,
    /// What it means.
    pub meaning: String,
}

/// All of them, in the page's order. A row of several keys is several columns with one meaning.
pub fn columns() -> Vec<Column> {
    let mut columns = Vec::new();
    let (mut section, mut prefix) = (String::new(), String::new());
    for line in PAGE.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title.replace('`', "");
            prefix.clear();
        } else if let Some(name) = object_of(line) {
            prefix = format!("{name}.");
        } else if let (Some(row), false) = (line.strip_prefix("| `"), section.is_empty()) {
            columns.extend(row_of(&section, &prefix, row));
        }
    }
    columns
}

/// The tables as text, `width` columns wide at most where words allow.
pub fn text(width: usize) -> String {
    let mut out = String::new();
    let mut section = String::new();
    for column in columns() {
        if column.section != section {
            let line = if out.is_empty() { "" } else { "\n" };
            section.clone_from(&column.section);
            let _ = writeln!(out, "{line}{section}");
        }
        let _ = writeln!(out, "  {}  [{}]", column.key, column.kind);
        let mut line = String::new();
        for word in column.meaning.split(' ') {
            if line.chars().count() + 1 + word.chars().count() + INDENT > width {
                let _ = writeln!(out, "{:INDENT$}{}", "", line.trim_end());
                line.clear();
            }
            line.push_str(word);
            line.push(' ');
        }
        let _ = writeln!(out, "{:INDENT$}{}", "", line.trim_end());
    }
    out
}

/// A line such as "`hosts[].nics[]`:" says whose keys follow. Events of a stream are no part of a key.
fn object_of(line: &str) -> Option<&str> {
    let name = line.strip_prefix('`')?.strip_suffix("`:")?;
    (!name.contains('`')).then_some(name)
}

/// ``a`, `b` | type | meaning |``; a bar within a cell is written `\|`.
fn row_of(section: &str, prefix: &str, row: &str) -> Vec<Column> {
    let row = row.replace("\\|", "\u{1}");
    let cells: Vec<String> = row
        .split('|')
        .map(|cell| cell.trim().replace('\u{1}', "|"))
        .collect();
    let [keys, kind, meaning, ..] = cells.as_slice() else {
        return Vec::new();
    };
    let keys = keys.split(',').map(|key| key.trim().replace('`', ""));
    keys.map(|key| Column {
        section: section.to_owned(),
        key: format!("{prefix}{key}"),
        kind: kind.replace('`', ""),
        meaning: meaning.replace('`', ""),
    })
    .collect()
}

const PAGE: &str = include_str!("../../../docs/run-folder.md");
const INDENT: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_several_keys_is_several_columns() {
        let found = row_of(
            "run.json",
            "x[].",
            "a`, `b` | integer | \\|sent\\| of `c` |",
        );
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[1].key.as_str(), found[1].kind.as_str()),
            ("x[].b", "integer")
        );
        assert_eq!(found[1].meaning, "|sent| of c");
        assert!(row_of("", "", "a` | b").is_empty());
    }

    #[test]
    fn keys_stand_once_in_their_section() {
        let all = columns();
        assert!(all.len() > 150, "{}", all.len());
        for (n, column) in all.iter().enumerate() {
            assert!(
                !column.meaning.is_empty() && !column.kind.is_empty(),
                "{column:?}"
            );
            let same = |c: &&Column| c.section == column.section && c.key == column.key;
            let again = all[..n].iter().find(same);
            // The terminal says "sent again" while it runs and in the end.
            assert!(
                again.is_none() || column.section == "On the terminal",
                "{column:?}"
            );
        }
    }

    #[test]
    fn the_text_wraps_its_meanings() {
        let text = text(80);
        assert!(
            text.contains("\nrun.json\n") || text.starts_with("run.json\n"),
            "{text}"
        );
        assert!(
            text.contains("  phases[].host_cost.ends[].cpu_user_ns  [integer]\n"),
            "{text}"
        );
        let meanings = text.lines().filter(|l| l.starts_with("      "));
        assert!(meanings.clone().all(|l| l.chars().count() <= 80));
        assert!(meanings.count() > 150);
    }
}
