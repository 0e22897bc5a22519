//! A parsed document: each key and value with its place, numbers read.
//!
//! A date is a table of one entry, as `toml` gives it to serde: a private key and the date as text, both
//! without a place.

use std::borrow::Cow;
use std::ops::Range;

use serde::de::{Expected, Unexpected};
use toml::Spanned;
use toml::de::{DeFloat, DeInteger, DeTable, DeValue};

use crate::Error;

/// A key or value.
pub(crate) struct Node<'i> {
    pub(crate) value: Value<'i>,
    /// `None` for the parts of a date.
    pub(crate) span: Option<Range<usize>>,
}

/// A value of TOML.
pub(crate) enum Value<'i> {
    Text(Cow<'i, str>),
    Signed(i64),
    /// Above the largest `i64`.
    Unsigned(u64),
    /// Beyond both, as messages call it.
    Wide(String),
    Float(f64),
    /// A number that is too large for any type, as messages call it.
    Overflow(&'static str),
    Bool(bool),
    List(Vec<Node<'i>>),
    Table(Vec<(Node<'i>, Node<'i>)>),
}

impl<'i> Node<'i> {
    pub(crate) fn parse(text: &'i str) -> Result<Self, Error> {
        let root = document(text)?;
        let span = Some(root.span());
        let value = Value::Table(entries(root.into_inner()));
        Ok(Self { value, span })
    }

    fn new(value: Value<'i>, span: Range<usize>) -> Self {
        let span = Some(span);
        Self { value, span }
    }

    /// Not what a type expects.
    #[cold]
    #[inline(never)]
    pub(crate) fn unfit(&self, expected: &dyn Expected) -> Error {
        let found = match &self.value {
            Value::Text(text) => Unexpected::Str(text),
            Value::Signed(number) => Unexpected::Signed(*number),
            Value::Unsigned(number) => Unexpected::Unsigned(*number),
            Value::Wide(number) => Unexpected::Other(number),
            Value::Float(number) => Unexpected::Float(*number),
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::List(_) => Unexpected::Seq,
            Value::Table(_) => Unexpected::Map,
            Value::Overflow(problem) => return self.wrong(problem),
        };
        let mut error: Error = serde::de::Error::invalid_type(found, expected);
        error.place(self.span.as_ref());
        error
    }

    fn text(&self) -> &str {
        match &self.value {
            Value::Text(text) => text,
            _ => "",
        }
    }

    pub(crate) fn is_date(&self) -> bool {
        matches!(&self.value, Value::Table(entries) if entries.iter().any(|(key, _)| key.span.is_none()))
    }

    /// What TOML calls it.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Text(_) => "string",
            Value::Signed(_) | Value::Unsigned(_) | Value::Wide(_) => "integer",
            Value::Float(_) => "float",
            Value::Overflow(OVERFLOW_INTEGER) => "integer",
            Value::Overflow(_) => "float",
            Value::Bool(_) => "boolean",
            Value::List(_) => "array",
            Value::Table(_) if self.is_date() => "datetime",
            Value::Table(_) => "table",
        }
    }

    #[cold]
    pub(crate) fn wrong(&self, problem: &str) -> Error {
        Error::new(problem.to_owned(), self.span.clone())
    }

    /// That the numbers in it are some, where nobody reads them.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &self.value {
            Value::Overflow(problem) => Err(self.wrong(problem)),
            Value::List(items) => items.iter().try_for_each(Node::check),
            Value::Table(entries) => entries.iter().try_for_each(|(_, value)| value.check()),
            _ => Ok(()),
        }
    }
}

/// A parsed document that code which calls itself for each level may read.
pub(crate) fn document(text: &str) -> Result<Spanned<DeTable<'_>>, Error> {
    let root = DeTable::parse(text)?;
    levels(root.get_ref(), LEVELS_MAX)?;
    Ok(root)
}

/// Refuses what has more levels than are `left`.
fn levels(table: &DeTable<'_>, left: usize) -> Result<(), Error> {
    table
        .values()
        .try_for_each(|value| value_levels(value, left))
}

fn value_levels(value: &Spanned<DeValue<'_>>, left: usize) -> Result<(), Error> {
    let Some(left) = left.checked_sub(1) else {
        return Err(Error::new(TOO_DEEP.to_owned(), Some(value.span())));
    };
    match value.get_ref() {
        DeValue::Table(table) => levels(table, left),
        DeValue::Array(values) => values
            .iter()
            .try_for_each(|value| value_levels(value, left)),
        _ => Ok(()),
    }
}

fn entries<'i>(table: DeTable<'i>) -> Vec<(Node<'i>, Node<'i>)> {
    let entries = table.into_iter().map(|(key, value)| {
        let (key_span, span) = (key.span(), value.span());
        let key = Node::new(Value::Text(key.into_inner()), key_span);
        (key, Node::new(read(value.into_inner()), span))
    });
    let mut entries: Vec<(Node<'i>, Node<'i>)> = entries.collect();
    // As they are, unless another crate has toml keep the order of the file.
    entries.sort_by(|(a, _), (b, _)| a.text().cmp(b.text()));
    entries
}

fn read(value: DeValue<'_>) -> Value<'_> {
    match value {
        DeValue::String(text) => Value::Text(text),
        DeValue::Integer(number) => integer(&number),
        DeValue::Float(number) => float(&number),
        DeValue::Boolean(value) => Value::Bool(value),
        DeValue::Datetime(time) => {
            let part = |text| Node {
                value: Value::Text(text),
                span: None,
            };
            Value::Table(vec![(
                part(Cow::Borrowed(DATE_KEY)),
                part(Cow::Owned(time.to_string())),
            )])
        }
        DeValue::Array(values) => {
            let items = values.into_iter().map(|value| {
                let span = value.span();
                Node::new(read(value.into_inner()), span)
            });
            Value::List(items.collect())
        }
        DeValue::Table(table) => Value::Table(entries(table)),
    }
}

fn integer<'i>(number: &DeInteger<'_>) -> Value<'i> {
    let (digits, radix) = (number.as_str(), number.radix());
    if let Ok(number) = i64::from_str_radix(digits, radix) {
        Value::Signed(number)
    } else if let Ok(number) = u64::from_str_radix(digits, radix) {
        Value::Unsigned(number)
    } else if let Ok(number) = i128::from_str_radix(digits, radix) {
        Value::Wide(format!("integer `{number}` as i128"))
    } else if let Ok(number) = u128::from_str_radix(digits, radix) {
        Value::Wide(format!("integer `{number}` as u128"))
    } else {
        Value::Overflow(OVERFLOW_INTEGER)
    }
}

fn float<'i>(number: &DeFloat<'_>) -> Value<'i> {
    let read = number.as_str().parse().ok();
    // What is too large is read as infinite.
    let read = read.filter(|x: &f64| !x.is_infinite() || number.as_str().contains("inf"));
    read.map_or(
        Value::Overflow("floating-point number overflowed"),
        Value::Float,
    )
}

/// The parser lets 80 inline tables stand in each other, each by a key of 80 parts, which no stack of a thread holds. No layout
/// of ours has ten levels.
const LEVELS_MAX: usize = 256;
const TOO_DEEP: &str = "nested too deep";
const OVERFLOW_INTEGER: &str = "integer number overflowed";
/// toml_datetime, src/datetime.rs: FIELD.
const DATE_KEY: &str = "$__toml_private_datetime";
