//! A value with its place.
//!
//! serde has no word for places, so one is handed over beside it: a value asks to be read as a newtype
//! of a private name, and the deserializer leaves the place for the visitor, which takes it before
//! anything else is read.

use std::borrow::Borrow;
use std::cell::Cell;
use std::cmp::Ordering;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer};

/// A value and where it stands. Two are equal, or in order, as their values are.
#[derive(Clone, Debug)]
pub struct Spanned<T> {
    span: Range<usize>,
    value: T,
}

impl<T> Spanned<T> {
    /// The value, without its place.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// The value.
    pub const fn get_ref(&self) -> &T {
        &self.value
    }

    /// Its bytes in the text.
    pub const fn span(&self) -> Range<usize> {
        self.span.start..self.span.end
    }
}

impl<T: PartialEq> PartialEq for Spanned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for Spanned<T> {}

impl<T: PartialOrd> PartialOrd for Spanned<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.value.partial_cmp(&other.value)
    }
}

impl<T: Ord> Ord for Spanned<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.value.cmp(&other.value)
    }
}

impl Borrow<str> for Spanned<String> {
    fn borrow(&self) -> &str {
        &self.value
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Spanned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(NAME, SpannedVisitor(PhantomData))
    }
}

struct SpannedVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for SpannedVisitor<T> {
    type Value = Spanned<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a spanned value")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<Spanned<T>, D::Error> {
        let Some(span) = taken() else {
            return Err(D::Error::custom("a value without a place"));
        };
        match T::deserialize(deserializer) {
            Ok(value) => Ok(Spanned { span, value }),
            Err(error) => Err(error),
        }
    }
}

/// The private name.
pub(crate) const NAME: &str = "$__goodput_spanned";

thread_local! {
    static LEFT: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
}

/// Leaves a place for the next visitor.
pub(crate) fn leave(span: &Range<usize>) {
    LEFT.set(Some((span.start, span.end)));
}

#[inline(never)]
fn taken() -> Option<Range<usize>> {
    LEFT.take().map(|(start, end)| start..end)
}
