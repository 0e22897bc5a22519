//! Values of any type that serde reads, made up: each member of each struct is there, each list has members, and texts are what
//! the caller chooses, one at a time or all. A type that gets a new text is tested without a change here.

#![allow(unreachable_pub, dead_code, reason = "each test takes what it needs")]

use serde::de::value::{Error, StrDeserializer, U32Deserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};

/// Which texts of a value are hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All.
    All,
    /// One, by its number.
    Only(usize),
}

/// How a value is made.
#[derive(Debug)]
pub struct Maker<'a> {
    which: Which,
    hostile: &'a str,
    /// Which variant an enum has, modulo their number.
    variant: usize,
    /// Texts so far.
    texts: usize,
    depth: usize,
}

/// A value with `hostile` in its texts, and how many texts it has. The others are `7`, which is a number where one is wanted.
/// `None` where the type takes no such value.
pub fn make<T: DeserializeOwned>(
    which: Which,
    hostile: &str,
    variant: usize,
) -> (Option<T>, usize) {
    let mut maker = Maker {
        which,
        hostile,
        variant,
        texts: 0,
        depth: 0,
    };
    let made = T::deserialize(&mut maker).ok();
    (made, maker.texts)
}

/// Each value that has one hostile text, then the one whose texts all are.
pub fn each<T: DeserializeOwned>(hostile: &str, variant: usize, mut with: impl FnMut(T, Which)) {
    let (_, texts) = make::<T>(Which::Only(usize::MAX), hostile, variant);
    let mut made_any = false;
    for which in (0..texts).map(Which::Only).chain([Which::All]) {
        if let (Some(value), _) = make(which, hostile, variant) {
            made_any = true;
            with(value, which);
        }
    }
    assert!(made_any, "no value of this type can be made");
}

impl Maker<'_> {
    fn text(&mut self) -> &str {
        let number = self.texts;
        self.texts += 1;
        match self.which {
            Which::All => self.hostile,
            Which::Only(only) if only == number => self.hostile,
            Which::Only(_) => "7",
        }
    }
}

macro_rules! numbers {
    ($($read:ident $visit:ident $value:expr;)*) => {
        $(fn $read<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit($value)
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Maker<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.text())
    }
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }
    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }
    numbers! {
        deserialize_bool visit_bool true;
        deserialize_i8 visit_i8 7;
        deserialize_i16 visit_i16 7;
        deserialize_i32 visit_i32 7;
        deserialize_i64 visit_i64 7;
        deserialize_u8 visit_u8 7;
        deserialize_u16 visit_u16 7;
        deserialize_u32 visit_u32 7;
        deserialize_u64 visit_u64 7;
        deserialize_f32 visit_f32 0.7;
        deserialize_f64 visit_f64 0.7;
        deserialize_char visit_char '7';
    }
    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let text = self.text().as_bytes().to_vec();
        visitor.visit_byte_buf(text)
    }
    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_bytes(visitor)
    }
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.depth > DEPTH_MAX {
            true => visitor.visit_none(),
            false => visitor.visit_some(self),
        }
    }
    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = if self.depth > DEPTH_MAX { 0 } else { LENGTH };
        visitor.visit_seq(Parts {
            maker: self,
            left,
            names: &[],
        })
    }
    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        left: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_seq(Parts {
            maker: self,
            left,
            names: &[],
        })
    }
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        left: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(left, visitor)
    }
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Parts {
            maker: self,
            left: 1,
            names: &[],
        })
    }
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(Parts {
            maker: self,
            left: names.len(),
            names,
        })
    }
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let number = u32::try_from(self.variant % variants.len().max(1)).unwrap_or(0);
        visitor.visit_enum(Variant {
            maker: self,
            number,
        })
    }
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
}

/// Members of a list, a map or a struct.
struct Parts<'a, 'b> {
    maker: &'a mut Maker<'b>,
    left: usize,
    /// Of a struct.
    names: &'static [&'static str],
}

impl Parts<'_, '_> {
    fn part<'de, S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let depth = self.maker.depth;
        self.maker.depth += 1;
        let value = seed.deserialize(&mut *self.maker);
        self.maker.depth = depth;
        value
    }
}

impl<'de> SeqAccess<'de> for Parts<'_, '_> {
    type Error = Error;
    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.part(seed).map(Some)
    }
}

impl<'de> MapAccess<'de> for Parts<'_, '_> {
    type Error = Error;
    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        match self.names.len().checked_sub(self.left + 1) {
            Some(at) if !self.names.is_empty() => {
                let name: StrDeserializer<'_, Error> = self.names[at].into_deserializer();
                seed.deserialize(name).map(Some)
            }
            _ => self.part(seed).map(Some),
        }
    }
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        self.part(seed)
    }
}

/// One variant of an enum.
struct Variant<'a, 'b> {
    maker: &'a mut Maker<'b>,
    number: u32,
}

impl<'de, 'a, 'b> EnumAccess<'de> for Variant<'a, 'b> {
    type Error = Error;
    type Variant = &'a mut Maker<'b>;
    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), Error> {
        let number: U32Deserializer<Error> = self.number.into_deserializer();
        Ok((seed.deserialize(number)?, self.maker))
    }
}

impl<'de> VariantAccess<'de> for &mut Maker<'_> {
    type Error = Error;
    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(self)
    }
    fn tuple_variant<V: Visitor<'de>>(self, left: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_tuple(left, visitor)
    }
    fn struct_variant<V: Visitor<'de>>(
        self,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_struct("", names, visitor)
    }
}

/// Members of a list: two, so that what compares neighbours has some.
const LENGTH: usize = 2;
/// Nested deeper, lists are empty and options are none.
const DEPTH_MAX: usize = 12;
