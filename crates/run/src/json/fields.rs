//! Reads the schema out of a [`Value`].
//!
//! As `serde_json::from_value`, with two differences: what depends on the type that is read is as
//! small as can be, because the schema has 120 of them, and a struct is never read from a list.

use std::vec;

use serde::de::{self, DeserializeSeed, Deserializer, Expected, MapAccess, SeqAccess, Visitor};
use serde_json::{Error, Value, map};

/// A value that a type is read from.
#[derive(Debug)]
pub(crate) struct Given(pub(crate) Value);

macro_rules! as_value {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.0.$method(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for Given {
    type Error = Error;

    as_value! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32
        deserialize_i64 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string
        deserialize_bytes deserialize_byte_buf deserialize_unit deserialize_identifier
        deserialize_ignored_any
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut items = self.items(&visitor)?;
        let value = visitor.visit_seq(&mut items)?;
        items.end().map(|()| value)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let members = self.members(&visitor)?;
        visitor.visit_map(members)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }
}

impl Given {
    fn items(self, expected: &dyn Expected) -> Result<Items, Error> {
        match self.0 {
            Value::Array(items) => Ok(Items {
                all: items.len(),
                left: items.into_iter(),
            }),
            other => Err(unfit(other, expected)),
        }
    }

    fn members(self, expected: &dyn Expected) -> Result<Members, Error> {
        match self.0 {
            Value::Object(members) => Ok(Members {
                left: members.into_iter(),
                value: Value::Null,
            }),
            other => Err(unfit(other, expected)),
        }
    }
}

/// The error of `serde_json` for a value of another type.
#[cold]
fn unfit(value: Value, expected: &dyn Expected) -> Error {
    struct Never<'a>(&'a dyn Expected);

    impl Visitor<'_> for Never<'_> {
        type Value = Error;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.fmt(f)
        }
    }

    let (Ok(error) | Err(error)) = value.deserialize_bool(Never(expected));
    error
}

#[derive(Debug)]
struct Items {
    all: usize,
    left: vec::IntoIter<Value>,
}

impl Items {
    fn end(&self) -> Result<(), Error> {
        match self.left.len() {
            0 => Ok(()),
            _ => Err(de::Error::invalid_length(
                self.all,
                &"fewer elements in array",
            )),
        }
    }
}

impl<'de> SeqAccess<'de> for &mut Items {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        match self.left.next() {
            Some(value) => seed.deserialize(Given(value)).map(Some),
            None => Ok(None),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

#[derive(Debug)]
struct Members {
    left: map::IntoIter,
    value: Value,
}

impl Members {
    /// The next member's name; its value is kept.
    fn advance(&mut self) -> Option<String> {
        let (name, value) = self.left.next()?;
        self.value = value;
        Some(name)
    }
}

impl<'de> MapAccess<'de> for Members {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        match self.advance() {
            Some(name) => seed.deserialize(Name(&name)).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(Given(self.value.take()))
    }
}

/// A member's name.
#[derive(Clone, Copy, Debug)]
struct Name<'a>(&'a str);

impl<'de> Deserializer<'de> for Name<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.0)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}
