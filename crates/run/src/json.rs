//! JSON from outside: read as a value first, made harmless, and only then taken apart.

mod fields;
mod tree;

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};
use serde_json::Value;
use units::text::is_plain;

use crate::model::{FindingRecord, Run};
use fields::Given;
use tree::Grow;
pub(crate) use tree::Tree;

/// All texts of a value from outside, and the names of its members, as
/// [`plain_block`](crate::text::plain_block) has them, whatever their length.
pub fn plain_value(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(plain) = units::text::plain_lines(text) {
                *text = plain;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(plain_value),
        Value::Object(members) => {
            members.values_mut().for_each(plain_value);
            if !members.keys().all(|name| name.chars().all(is_plain)) {
                let named = std::mem::take(members).into_iter();
                *members = named
                    .map(|(name, value)| (units::text::plain(&name).into_owned(), value))
                    .collect();
            }
        }
        _ => {}
    }
}

/// A value that another process sent or somebody else's file has: its texts are plain from the start.
pub fn from_json<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    let mut value = serde_json::from_slice(json)?;
    plain_value(&mut value);
    serde_json::from_value(value)
}

/// Depth is bounded by the parser's own limit of 128.
pub(crate) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => {
            items.retain(|v| !v.is_null());
            items.iter_mut().for_each(drop_nulls);
        }
        _ => {}
    }
}

/// A type of the schema.
pub(crate) fn schema<T: DeserializeOwned>(value: Value) -> serde_json::Result<T> {
    T::deserialize(Given(value))
}

/// [`Run`] is written through a tree, so that a format that is added somewhere writes that and not
/// each of the schema's types anew.
impl Serialize for Run {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let tree = of_run(self).map_err(ser::Error::custom)?;
        tree.serialize(to)
    }
}

/// `run.json` as a tree.
pub(crate) fn of_run(run: &Run) -> serde_json::Result<Tree> {
    Run::serialize(run, Grow)
}

/// `findings.json` as a tree.
pub(crate) fn of_findings(findings: &[FindingRecord]) -> serde_json::Result<Tree> {
    findings.serialize(Grow)
}

impl<'de> Deserialize<'de> for Run {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::deserialize(from)
    }
}
