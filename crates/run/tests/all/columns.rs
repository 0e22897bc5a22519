//! No key of any file lacks a line of `docs/run-folder.md`.
//!
//! The keys are asked of the types themselves: a deserialiser that has no data follows every field of
//! every struct once and notes its name, so that a key that is added is missed at once.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use run::columns::columns;
use run::model::{CopyInterval, CopyNote, FindingRecord, IntervalRecord, ResultRecord, Run};
use serde::de::value::{Error, StrDeserializer};
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};

/// Keys that were met.
#[derive(Debug, Default)]
struct Keys(RefCell<BTreeSet<String>>);

/// A place in a file that has every key.
#[derive(Clone, Copy)]
struct Place<'a> {
    path: &'a str,
    keys: &'a Keys,
}

impl fmt::Debug for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path)
    }
}

macro_rules! answers {
    ($($method:ident: $visit:ident $value:expr),+ $(,)?) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit($value)
        })+
    };
}

impl<'de> Deserializer<'de> for Place<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(de::Error::custom(format!(
            "{self:?} has no type of its own"
        )))
    }

    answers! {
        deserialize_bool: visit_bool true,
        deserialize_u8: visit_u8 0,
        deserialize_u16: visit_u16 0,
        deserialize_u32: visit_u32 0,
        deserialize_u64: visit_u64 0,
        deserialize_i64: visit_i64 0,
        deserialize_f64: visit_f64 0.0,
        deserialize_str: visit_str "",
        deserialize_string: visit_str "",
        deserialize_identifier: visit_str "",
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Entries(self, 1))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, n: usize, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Entries(self, n))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(Fields {
            of: self,
            left: fields,
            key: "",
        })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(First(variants[0]))
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i128 u128 f32 char bytes byte_buf unit unit_struct newtype_struct tuple_struct
        map ignored_any
    }
}

/// Entries of an array; its keys are those of `path[]`.
struct Entries<'a>(Place<'a>, usize);

impl<'de> SeqAccess<'de> for Entries<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        if self.1 == 0 {
            return Ok(None);
        }
        self.1 -= 1;
        let path = format!("{}[]", self.0.path);
        let place = Place {
            path: &path,
            keys: self.0.keys,
        };
        seed.deserialize(place).map(Some)
    }
}

/// Fields of a struct.
struct Fields<'a> {
    of: Place<'a>,
    left: &'static [&'static str],
    key: &'static str,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((key, left)) = self.left.split_first() else {
            return Ok(None);
        };
        (self.key, self.left) = (key, left);
        let key: StrDeserializer<'_, Error> = (*key).into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let path = match self.of.path {
            "" => self.key.to_owned(),
            of => format!("{of}.{}", self.key),
        };
        self.of.keys.0.borrow_mut().insert(path.clone());
        let place = Place {
            path: &path,
            keys: self.of.keys,
        };
        seed.deserialize(place)
    }
}

/// The first variant, which holds nothing.
struct First(&'static str);

impl<'de> EnumAccess<'de> for First {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Error> {
        let name: StrDeserializer<'_, Error> = self.0.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for First {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Error> {
        Err(de::Error::custom(self.0))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Error> {
        Err(de::Error::custom(self.0))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        Err(de::Error::custom(self.0))
    }
}

/// Every key of a type, nested ones with their path.
fn keys_of<T: for<'de> Deserialize<'de>>() -> BTreeSet<String> {
    let keys = Keys::default();
    let place = Place {
        path: "",
        keys: &keys,
    };
    drop(T::deserialize(place).unwrap());
    keys.0.into_inner()
}

/// Keys of a section, without what stands before them all.
fn documented(section: &str, prefix: &str) -> BTreeSet<String> {
    let all = columns().into_iter().filter(|c| c.section == section);
    all.filter_map(|c| Some(c.key.strip_prefix(prefix)?.to_owned()))
        .collect()
}

#[track_caller]
fn assert_same(keys: &BTreeSet<String>, documented: &BTreeSet<String>) {
    let missing: Vec<_> = keys.difference(documented).collect();
    assert!(missing.is_empty(), "docs/run-folder.md lacks {missing:?}");
    let stale: Vec<_> = documented.difference(keys).collect();
    assert!(
        stale.is_empty(),
        "docs/run-folder.md explains {stale:?}, which are not"
    );
}

#[test]
fn every_key_of_run_json_has_its_line() {
    let mut keys = keys_of::<Run>();
    assert!(keys.contains("phases[].host_cost.machines[].cpus[].steal_share"));
    // Said once, of a phase, of a run or of its counts.
    let of_phase = [
        "fabric.settings[].studies[].",
        "sweep.certificate.",
        "sweep.points[].observers[].",
        "messages.certificate.",
        "rotate.certificate.",
        "rotate.observed.count.",
        "copy.certificate.",
        "gateways[].certificate.",
    ];
    keys.retain(|k| !of_phase.iter().any(|said| k.starts_with(said)));
    assert_same(&keys, &documented("run.json", ""));
}

#[test]
fn every_key_of_findings_json_has_its_line() {
    assert_same(
        &keys_of::<FindingRecord>(),
        &documented("findings.json", ""),
    );
}

#[test]
fn every_key_of_the_live_view_has_its_line() {
    const LIVE: &str = "Live view: --format jsonl";
    assert_same(&keys_of::<IntervalRecord>(), &documented(LIVE, "interval."));
    let mut result = keys_of::<ResultRecord>();
    result.retain(|k| !k.starts_with("run."));
    assert_same(&result, &documented(LIVE, "result."));
}

#[test]
fn every_key_of_a_copys_events_has_its_line() {
    const EVENTS: &str = "Events of a copy: --format jsonl";
    let mut interval = keys_of::<CopyInterval>();
    // Said once, of the whole copy.
    interval.retain(|key| !key.starts_with("connections[].") && !key.starts_with("quic[]."));
    assert_same(&interval, &documented(EVENTS, "interval."));
    assert_same(&keys_of::<CopyNote>(), &documented(EVENTS, "note."));
}

#[test]
fn a_sample_has_the_keys_that_its_table_names() {
    let named = documented("samples.jsonl", "");
    for key in ["phase", "end", "stream", "t_ns", "app_bytes"] {
        assert!(named.contains(key), "{key}");
    }
}
