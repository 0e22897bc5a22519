//! Documents of TOML with one text or name replaced, one after the other.

#![allow(unreachable_pub, reason = "a test's module")]

use toml::{Table, Value};

/// Each document that `text` becomes when one of its texts, or the name of one of its members, is `hostile`; then some that are no
/// TOML. With where that was.
pub fn variants(text: &str, hostile: &str) -> Vec<(String, String)> {
    let table: Table = toml::from_str(text).expect("an example is TOML");
    let mut all = Vec::new();
    for at in 0.. {
        let mut left = at;
        let mut place = String::new();
        let mut changed = table.clone();
        if !change(&mut changed, &mut left, hostile, &mut place) {
            break;
        }
        all.push((place, written(&changed)));
    }
    for bad in [
        format!("{hostile} = 1"),
        format!("x = \"{hostile}\""),
        format!("x = {hostile}"),
        format!("[{hostile}]"),
    ] {
        all.push((format!("{bad:?}"), format!("{bad}\n{text}")));
    }
    all
}

/// Replaces what is the `left`th text or name; false when there are not so many.
fn change(table: &mut Table, left: &mut usize, hostile: &str, place: &mut String) -> bool {
    let names: Vec<String> = table.keys().cloned().collect();
    for name in names {
        if *left == 0 {
            *place = format!("the name {name}");
            let value = table.remove(&name).expect("it is there");
            table.insert(hostile.to_owned(), value);
            return true;
        }
        *left -= 1;
        if table
            .get_mut(&name)
            .is_some_and(|value| replace(value, left, hostile, place))
        {
            *place = format!("{name}: {place}");
            return true;
        }
    }
    false
}

fn replace(value: &mut Value, left: &mut usize, hostile: &str, place: &mut String) -> bool {
    match value {
        Value::String(text) if *left == 0 => {
            *place = "the text".to_owned();
            *text = hostile.to_owned();
            true
        }
        Value::String(_) => {
            *left -= 1;
            false
        }
        Value::Array(items) => items
            .iter_mut()
            .any(|item| replace(item, left, hostile, place)),
        Value::Table(members) => change(members, left, hostile, place),
        _ => false,
    }
}

/// A document, each member of its top in one line.
fn written(table: &Table) -> String {
    let lines = table.iter();
    lines
        .map(|(name, value)| format!("{} = {}\n", quoted(name), inline(value)))
        .collect()
}

fn inline(value: &Value) -> String {
    let joined = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::String(text) => quoted(text),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => format!("{number:?}"),
        Value::Boolean(is) => is.to_string(),
        Value::Datetime(_) => unreachable!("no file has a time"),
        Value::Array(items) => format!("[{}]", joined(items.iter().map(inline).collect())),
        Value::Table(members) => {
            let members = members.iter();
            let member =
                |(name, value): (&String, &Value)| format!("{} = {}", quoted(name), inline(value));
            format!("{{{}}}", joined(members.map(member).collect()))
        }
    }
}

/// A basic string; what is not ASCII stands as it is.
fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_ascii_control() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}
