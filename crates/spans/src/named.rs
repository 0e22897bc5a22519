//! Entries by name.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Index;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::Spanned;

/// A table whose names are the file's own, in their order; that of the file is that of the names' spans.
///
/// A list, since nothing is added to it once it is read: a map would be more code for each type.
#[derive(Clone)]
pub struct Named<T>(Vec<(Spanned<String>, T)>);

impl<T> Named<T> {
    /// No entries.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The same names with what `change` makes of their entries.
    pub fn map<U>(&self, change: impl Fn(&T) -> U) -> Named<U> {
        let changed = self
            .iter()
            .map(|(name, entry)| (name.clone(), change(entry)));
        Named(changed.collect())
    }

    /// How many.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// None at all.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entry of that name.
    pub fn get(&self, name: &str) -> Option<&T> {
        let found = self
            .0
            .binary_search_by(|(own, _)| own.get_ref().as_str().cmp(name));
        found.ok().map(|n| &self.0[n].1)
    }

    /// True where one has that name.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Names with their entries.
    pub fn iter(&self) -> impl Iterator<Item = (&Spanned<String>, &T)> {
        self.0.iter().map(|(name, entry)| (name, entry))
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &Spanned<String>> {
        self.0.iter().map(|(name, _)| name)
    }

    /// The entries.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, entry)| entry)
    }
}

impl<T: fmt::Debug> fmt::Debug for Named<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Index<&str> for Named<T> {
    type Output = T;

    fn index(&self, name: &str) -> &T {
        self.get(name).expect("an entry of that name")
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(NamedVisitor(PhantomData))
    }
}

struct NamedVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for NamedVisitor<T> {
    type Value = Named<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Named<T>, A::Error> {
        let mut entries = Vec::new();
        // They come in the order of their names.
        while let Some(entry) = table.next_entry()? {
            entries.push(entry);
        }
        Ok(Named(entries))
    }
}
