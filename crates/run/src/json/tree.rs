//! A record as a tree, which keeps the order of its members.
//!
//! Deriving writes a type anew for every format that it is written in, and [`Run`](crate::model::Run)
//! has 120 types in it. So each becomes a tree in one way, here; formats only write the tree.

use serde::ser::{Impossible, SerializeSeq, SerializeStruct, SerializeTuple};
use serde::{Serialize, Serializer, ser};

/// Any record.
#[derive(Debug)]
pub(crate) enum Tree {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Name(&'static str),
    Text(String),
    List(Vec<Self>),
    Members(Vec<(&'static str, Self)>),
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => to.serialize_none(),
            Self::Bool(v) => to.serialize_bool(*v),
            Self::Unsigned(v) => to.serialize_u64(*v),
            Self::Signed(v) => to.serialize_i64(*v),
            Self::Float(v) => to.serialize_f64(*v),
            Self::Name(v) => to.serialize_str(v),
            Self::Text(v) => to.serialize_str(v),
            Self::List(items) => to.collect_seq(items),
            Self::Members(members) => to.collect_map(members.iter().map(|(name, v)| (name, v))),
        }
    }
}

/// Makes a [`Tree`] of a type of the schema: texts, numbers, lists, and structs of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grow;

/// What the schema does not have.
type No = Impossible<Tree, serde_json::Error>;
type Grown = Result<Tree, serde_json::Error>;

fn foreign<T>(what: &str) -> Result<T, serde_json::Error> {
    Err(ser::Error::custom(format!("the schema has no {what}")))
}

impl Serializer for Grow {
    type Ok = Tree;
    type Error = serde_json::Error;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeTupleStruct = No;
    type SerializeTupleVariant = No;
    type SerializeMap = No;
    type SerializeStruct = Members;
    type SerializeStructVariant = No;

    fn serialize_bool(self, v: bool) -> Grown {
        Ok(Tree::Bool(v))
    }

    fn serialize_i8(self, v: i8) -> Grown {
        Ok(Tree::Signed(v.into()))
    }

    fn serialize_i16(self, v: i16) -> Grown {
        Ok(Tree::Signed(v.into()))
    }

    fn serialize_i32(self, v: i32) -> Grown {
        Ok(Tree::Signed(v.into()))
    }

    fn serialize_i64(self, v: i64) -> Grown {
        Ok(Tree::Signed(v))
    }

    fn serialize_u8(self, v: u8) -> Grown {
        Ok(Tree::Unsigned(v.into()))
    }

    fn serialize_u16(self, v: u16) -> Grown {
        Ok(Tree::Unsigned(v.into()))
    }

    fn serialize_u32(self, v: u32) -> Grown {
        Ok(Tree::Unsigned(v.into()))
    }

    fn serialize_u64(self, v: u64) -> Grown {
        Ok(Tree::Unsigned(v))
    }

    fn serialize_f32(self, _: f32) -> Grown {
        foreign("f32")
    }

    fn serialize_f64(self, v: f64) -> Grown {
        Ok(Tree::Float(v))
    }

    fn serialize_char(self, v: char) -> Grown {
        Ok(Tree::Text(v.to_string()))
    }

    fn serialize_str(self, v: &str) -> Grown {
        Ok(Tree::Text(v.to_owned()))
    }

    fn serialize_bytes(self, _: &[u8]) -> Grown {
        foreign("bytes")
    }

    fn serialize_none(self) -> Grown {
        Ok(Tree::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, v: &T) -> Grown {
        v.serialize(self)
    }

    fn serialize_unit(self) -> Grown {
        Ok(Tree::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Grown {
        Ok(Tree::Null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Grown {
        Ok(Tree::Name(variant))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, v: &T) -> Grown {
        v.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Grown {
        foreign(name)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<List, serde_json::Error> {
        Ok(List(Vec::with_capacity(length.unwrap_or(0))))
    }

    fn serialize_tuple(self, length: usize) -> Result<List, serde_json::Error> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_struct(self, name: &'static str, _: usize) -> Result<No, serde_json::Error> {
        foreign(name)
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<No, serde_json::Error> {
        foreign(name)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<No, serde_json::Error> {
        foreign("maps")
    }

    fn serialize_struct(
        self,
        _: &'static str,
        length: usize,
    ) -> Result<Members, serde_json::Error> {
        Ok(Members(Vec::with_capacity(length)))
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<No, serde_json::Error> {
        foreign(name)
    }

    // The default goes through an iterator's adapters, for every type of list anew.
    fn collect_seq<I>(self, items: I) -> Grown
    where
        I: IntoIterator<Item: Serialize>,
    {
        let mut list = Vec::new();
        for item in items {
            list.push(item.serialize(self)?);
        }
        Ok(Tree::List(list))
    }
}

#[derive(Debug)]
pub(crate) struct List(Vec<Tree>);

impl SerializeSeq for List {
    type Ok = Tree;
    type Error = serde_json::Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, v: &T) -> Result<(), Self::Error> {
        self.0.push(v.serialize(Grow)?);
        Ok(())
    }

    fn end(self) -> Grown {
        Ok(Tree::List(self.0))
    }
}

impl SerializeTuple for List {
    type Ok = Tree;
    type Error = serde_json::Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, v: &T) -> Result<(), Self::Error> {
        SerializeSeq::serialize_element(self, v)
    }

    fn end(self) -> Grown {
        SerializeSeq::end(self)
    }
}

#[derive(Debug)]
pub(crate) struct Members(Vec<(&'static str, Tree)>);

impl Members {
    fn push(&mut self, name: &'static str, grown: Grown) -> Result<(), serde_json::Error> {
        self.0.push((name, grown?));
        Ok(())
    }
}

impl SerializeStruct for Members {
    type Ok = Tree;
    type Error = serde_json::Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        v: &T,
    ) -> Result<(), Self::Error> {
        self.push(name, v.serialize(Grow))
    }

    fn end(self) -> Grown {
        Ok(Tree::Members(self.0))
    }
}
