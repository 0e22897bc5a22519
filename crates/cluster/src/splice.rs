//! Another value for a key of a file: what cases of a pattern and the axes of a sweep are.
//!
//! The text is changed where the value stands, so that whatever is refused then has a line of the file.

use toml::de::{DeTable, DeValue};

/// The text with `value` in place of what the dotted `key` has: `topology.seed`, `traffic.jobs.0.nodes`.
///
/// # Errors
/// Why that cannot be.
pub(crate) fn with(text: &str, key: &str, value: &str) -> Result<String, String> {
    let table = DeTable::parse(text).map_err(|e| e.message().to_owned())?;
    let mut parts = key.split('.');
    let missing = || format!("the file has no key '{key}': write it there to vary it");
    let first = parts.next().unwrap_or_default();
    let mut found = table.get_ref().get(first).ok_or_else(missing)?;
    for part in parts {
        let next = match found.get_ref() {
            DeValue::Table(table) => table.get(part),
            DeValue::Array(all) => part.parse().ok().and_then(|n: usize| all.get(n)),
            _ => None,
        };
        found = next.ok_or_else(missing)?;
    }
    if matches!(found.get_ref(), DeValue::Table(_)) {
        return Err(format!("'{key}' is a table; vary one of its keys"));
    }
    let span = found.span();
    let (before, after) = (text.get(..span.start), text.get(span.end..));
    match (before, after) {
        (Some(before), Some(after)) => Ok(format!("{before}{value}{after}")),
        _ => Err(missing()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_changed_where_it_stands() {
        let text = "a = 1\n[b]\nc = \"x\" # why\n[[d]]\ne = [1, 2]\n";
        let changed = with(text, "b.c", "\"y\"").unwrap();
        assert!(changed.contains("c = \"y\" # why"), "{changed}");
        assert!(with(text, "d.0.e", "3").unwrap().ends_with("e = 3\n"));
        assert!(with(text, "b", "1").unwrap_err().contains("is a table"));
        assert!(with(text, "b.x", "1").unwrap_err().contains("no key 'b.x'"));
    }
}
