//! serde's view of a [`Node`].
//!
//! Whatever is generic here is compiled for each type that is read, so all of it is a few lines around
//! calls to what is not. Errors are placed where `toml`'s deserializers place them: at the innermost
//! value that a visitor was shown, or whose key or value an entry is; a list's items have no place of
//! their own, since their visitors know better.

use std::slice;

use serde::Deserializer;
use serde::de::{
    DeserializeSeed, EnumAccess, Error as _, MapAccess, SeqAccess, Unexpected, VariantAccess,
    Visitor,
};

use crate::Error;
use crate::node::{Node, Value};
use crate::spanned::{NAME, leave};

/// What a visitor made of a node; its errors are the node's unless they have a place.
macro_rules! placed {
    ($node:expr, $read:expr) => {{
        let mut read = $read;
        if let Err(error) = &mut read {
            error.place($node.span.as_ref());
        }
        read
    }};
}

impl Node<'_> {
    /// Leaves the place for [`crate::Spanned`]; false where there is none.
    fn leave_place(&self) -> bool {
        self.span.as_ref().map(leave).is_some()
    }

    /// The variant's name, and what stands beside it.
    fn variant(&self) -> Result<Variant<'_, '_>, Error> {
        match &self.value {
            Value::Text(_) => Ok(Variant(self, None)),
            Value::Table(entries) if !self.is_date() => match entries.as_slice() {
                [] => Err(self.wrong("wanted exactly 1 element, found 0 elements")),
                [(name, value)] => Ok(Variant(name, Some(value))),
                _ => Err(self.wrong("wanted exactly 1 element, more than 1 element")),
            },
            _ => Err(self.wrong("wanted string or table")),
        }
    }
}

/// Numbers of a width each: their visitors check the range.
macro_rules! integers {
    ($($method:ident)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            placed!(self, match self.value {
                Value::Signed(number) => visitor.visit_i64(number),
                Value::Unsigned(number) => visitor.visit_u64(number),
                _ => Err(self.unfit(&visitor)),
            })
        }
    )+};
}

macro_rules! floats {
    ($($method:ident)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            placed!(self, match self.value {
                Value::Float(number) => visitor.visit_f64(number),
                Value::Signed(number) => visitor.visit_i64(number),
                Value::Unsigned(number) => visitor.visit_u64(number),
                _ => Err(self.unfit(&visitor)),
            })
        }
    )+};
}

macro_rules! texts {
    ($($method:ident)+) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            placed!(self, match &self.value {
                Value::Text(text) => visitor.visit_str(text),
                _ => Err(self.unfit(&visitor)),
            })
        }
    )+};
}

macro_rules! lists {
    ($($method:ident($($argument:ty),*))+) => {$(
        fn $method<V: Visitor<'de>>(self, $(_: $argument,)* visitor: V) -> Result<V::Value, Error> {
            placed!(self, match &self.value {
                Value::List(items) => visitor.visit_seq(Items(items.iter())),
                _ => Err(self.unfit(&visitor)),
            })
        }
    )+};
}

impl<'de> Deserializer<'de> for &Node<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        placed!(
            self,
            match &self.value {
                Value::Text(text) => visitor.visit_str(text),
                Value::Signed(number) => visitor.visit_i64(*number),
                Value::Unsigned(number) => visitor.visit_u64(*number),
                Value::Float(number) => visitor.visit_f64(*number),
                Value::Bool(value) => visitor.visit_bool(*value),
                Value::List(items) => visitor.visit_seq(Items(items.iter())),
                Value::Table(entries) => visitor.visit_map(Entries::new(entries)),
                Value::Wide(_) | Value::Overflow(_) => Err(self.unfit(&visitor)),
            }
        )
    }

    integers!(
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
    );

    floats!(deserialize_f32 deserialize_f64);

    texts!(deserialize_str deserialize_string deserialize_char deserialize_identifier);

    lists!(
        deserialize_seq()
        deserialize_tuple(usize)
        deserialize_tuple_struct(&'static str, usize)
    );

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        placed!(
            self,
            match self.value {
                Value::Bool(value) => visitor.visit_bool(value),
                _ => Err(self.unfit(&visitor)),
            }
        )
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        placed!(
            self,
            match &self.value {
                Value::Table(entries) => visitor.visit_map(Entries::new(entries)),
                _ => Err(self.unfit(&visitor)),
            }
        )
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        placed!(
            self,
            match &self.value {
                Value::Table(entries) => visitor.visit_map(Entries::new(entries)),
                Value::List(items) => visitor.visit_seq(Items(items.iter())),
                _ => Err(self.unfit(&visitor)),
            }
        )
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        placed!(self, visitor.visit_some(self))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name != NAME {
            placed!(self, visitor.visit_newtype_struct(self))
        } else if self.leave_place() {
            visitor.visit_newtype_struct(self)
        } else {
            Err(self.unfit(&visitor))
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        placed!(self, visitor.visit_enum(self.variant()?))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.check()?;
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bytes byte_buf unit unit_struct
    }
}

/// Items of a list that are still to be read.
struct Items<'n, 'i>(slice::Iter<'n, Node<'i>>);

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        match self.0.next() {
            Some(item) => seed.deserialize(item).map(Some),
            None => Ok(None),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// Entries of a table that are still to be read.
struct Entries<'n, 'i> {
    rest: slice::Iter<'n, (Node<'i>, Node<'i>)>,
    /// Of the entry whose key was read last.
    value: Option<&'n Node<'i>>,
}

impl<'n, 'i> Entries<'n, 'i> {
    fn new(entries: &'n [(Node<'i>, Node<'i>)]) -> Self {
        let rest = entries.iter();
        Self { rest, value: None }
    }

    fn next_key(&mut self) -> Option<&'n Node<'i>> {
        let (key, value) = self.rest.next()?;
        self.value = Some(value);
        Some(key)
    }

    fn value(&mut self) -> &'n Node<'i> {
        self.value.take().expect("a value is read after its key")
    }
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        match self.next_key() {
            Some(key) => placed!(key, seed.deserialize(key).map(Some)),
            None => Ok(None),
        }
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let value = self.value();
        placed!(value, seed.deserialize(value))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// A variant's name, and its content where it is written as a table of one entry.
struct Variant<'n, 'i>(&'n Node<'i>, Option<&'n Node<'i>>);

impl<'n, 'i> Variant<'n, 'i> {
    /// The content, where `what` is to have some.
    fn content(&self, what: &str) -> Result<&'n Node<'i>, Error> {
        let lacking = || Error::invalid_type(Unexpected::UnitVariant, &what);
        self.1.ok_or_else(lacking)
    }
}

impl<'de> EnumAccess<'de> for Variant<'_, '_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Error> {
        match placed!(self.0, seed.deserialize(self.0)) {
            Ok(name) => Ok((name, self)),
            Err(error) => Err(error),
        }
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, '_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        let Some(content) = self.1 else {
            return Ok(());
        };
        match &content.value {
            Value::List(items) if items.is_empty() => Ok(()),
            Value::List(_) => Err(content.wrong("expected empty array")),
            Value::Table(entries) if entries.is_empty() => Ok(()),
            Value::Table(_) if !content.is_date() => Err(content.wrong("expected empty table")),
            _ => {
                let found = content.kind();
                Err(content.wrong(&format!("expected table, found {found}")))
            }
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.content("newtype variant")?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.content("tuple variant")?.deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.content("struct variant")?.deserialize_map(visitor)
    }
}
