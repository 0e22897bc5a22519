//! Values, messages and places beside those of `toml`'s own deserializers.

use std::fmt::Debug;

use serde::de::DeserializeOwned;

/// The same types with either crate's spans.
macro_rules! layout {
    ($name:ident, $spanned:path, $named:ty) => {
        mod $name {
            use std::collections::BTreeMap;
            use std::fmt;

            use serde::de::value::MapAccessDeserializer;
            use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
            use serde::{Deserialize, Deserializer};
            use $spanned;

            #[derive(Debug, Deserialize)]
            #[serde(deny_unknown_fields)]
            #[allow(dead_code, reason = "they are printed")]
            pub(super) struct File {
                title: Spanned<String>,
                #[serde(default)]
                named: $named,
                #[serde(default)]
                plain: BTreeMap<String, Part>,
                #[serde(default)]
                kinds: BTreeMap<Kind, Spanned<bool>>,
                #[serde(default)]
                quotes: BTreeMap<String, String>,
                #[serde(default)]
                words: BTreeMap<String, Spanned<Word>>,
                #[serde(default)]
                ignored: BTreeMap<Spanned<String>, Spanned<IgnoredAny>>,
                part: Option<Spanned<Part>>,
                #[serde(default)]
                parts: Vec<Spanned<Part>>,
                #[serde(default)]
                loose: Loose,
                #[serde(default, deserialize_with = "few")]
                few: Vec<Part>,
            }

            #[derive(Clone, Debug, Default, Deserialize)]
            #[serde(deny_unknown_fields, rename_all = "kebab-case")]
            #[allow(dead_code, reason = "they are printed")]
            struct Part {
                text: Option<Spanned<String>>,
                letter: Option<char>,
                small: Option<u8>,
                port: Option<Spanned<u16>>,
                count: Option<Spanned<u64>>,
                signed: Option<Spanned<i32>>,
                long: Option<i64>,
                share: Option<Spanned<f64>>,
                single: Option<f32>,
                yes: Option<bool>,
                quantity: Option<Spanned<Quantity>>,
                bare: Option<Quantity>,
                pair: Option<Spanned<[Quantity; 2]>>,
                pairs: Option<Spanned<Vec<[Quantity; 2]>>>,
                tuple: Option<(f64, Spanned<Untagged>)>,
                list: Option<Spanned<Vec<Spanned<String>>>>,
                numbers: Option<Vec<u32>>,
                kind: Option<Spanned<Kind>>,
                kind_list: Option<Vec<Kind>>,
                whole: Option<Spanned<Whole>>,
                untagged: Option<Spanned<Untagged>>,
                untagged_list: Option<Vec<Untagged>>,
                wrapped: Option<Wrapped>,
                wrapped_list: Option<Vec<Wrapped>>,
                converted: Option<Converted>,
                forms: Option<Spanned<Forms>>,
                path: Option<std::path::PathBuf>,
                unit: Option<()>,
                nested: Option<Box<Spanned<Part>>>,
            }

            /// Lets in what it does not know.
            #[derive(Debug, Default, Deserialize)]
            #[serde(expecting = "a loose table")]
            #[allow(dead_code, reason = "they are printed")]
            struct Loose {
                needed: u32,
                #[serde(default)]
                other: bool,
            }

            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
            #[serde(rename_all = "kebab-case")]
            enum Kind {
                OneThing,
                Another,
            }

            #[derive(Clone, Debug, Deserialize)]
            #[allow(dead_code, reason = "they are printed")]
            enum Whole {
                Unit,
                New(Spanned<u8>),
            }

            #[derive(Clone, Debug, Deserialize)]
            #[serde(untagged)]
            #[allow(dead_code, reason = "they are printed")]
            enum Untagged {
                Truth(bool),
                Number(f64),
                Range([f64; 2]),
                Text(String),
            }

            #[derive(Clone, Debug, Deserialize)]
            #[allow(dead_code, reason = "they are printed")]
            struct Wrapped(Quantity);

            #[derive(Clone, Debug, Deserialize)]
            #[serde(try_from = "Loose")]
            #[allow(dead_code, reason = "they are printed")]
            struct Converted(u32);

            impl TryFrom<Loose> for Converted {
                type Error = String;
                fn try_from(raw: Loose) -> Result<Self, String> {
                    match raw.needed {
                        0 => Err("needs more than 0".to_owned()),
                        more => Ok(Self(more)),
                    }
                }
            }

            #[derive(Clone, Debug)]
            #[allow(dead_code, reason = "they are printed")]
            struct Quantity(u64);

            impl<'de> Deserialize<'de> for Quantity {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let text = String::deserialize(deserializer)?;
                    let number = text.strip_suffix("ms").unwrap_or("none");
                    number.parse().map(Self).map_err(Error::custom)
                }
            }

            #[derive(Clone, Debug)]
            #[allow(dead_code, reason = "they are printed")]
            enum Forms {
                Number(i64),
                Table(Box<Part>),
                List(Vec<Spanned<Forms>>),
            }

            #[derive(Clone, Debug, Deserialize)]
            #[serde(untagged)]
            #[allow(dead_code, reason = "they are printed")]
            enum Word {
                Number(i64),
                Text(String),
            }

            impl<'de> Deserialize<'de> for Forms {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    struct Any;
                    impl<'de> Visitor<'de> for Any {
                        type Value = Forms;
                        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                            f.write_str("a number, a table or a list")
                        }
                        fn visit_i64<E: Error>(self, number: i64) -> Result<Forms, E> {
                            Ok(Forms::Number(number))
                        }
                        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Forms, A::Error> {
                            let table = Part::deserialize(MapAccessDeserializer::new(map))?;
                            Ok(Forms::Table(Box::new(table)))
                        }
                        fn visit_seq<A: SeqAccess<'de>>(
                            self,
                            mut list: A,
                        ) -> Result<Forms, A::Error> {
                            let mut all = Vec::new();
                            while let Some(one) = list.next_element()? {
                                all.push(one);
                            }
                            Ok(Forms::List(all))
                        }
                    }
                    deserializer.deserialize_any(Any)
                }
            }

            fn few<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Part>, D::Error> {
                let parts = Vec::<Part>::deserialize(deserializer)?;
                match parts.len() {
                    0..3 => Ok(parts),
                    _ => Err(Error::custom("expected few")),
                }
            }
        }
    };
}

layout!(ours, crate::Spanned, crate::Named<Spanned<Part>>);
layout!(
    theirs,
    toml::Spanned,
    BTreeMap<Spanned<String>, Spanned<Part>>
);

/// What a text is read as, or why it is not, and where.
type Read = Result<String, (String, Option<std::ops::Range<usize>>)>;

fn by_us<T: DeserializeOwned + Debug>(text: &str) -> Read {
    let read = crate::from_str::<T>(text).map(|file| format!("{file:?}"));
    read.map_err(|e| (e.message().to_owned(), e.span()))
}

fn by_toml<T: DeserializeOwned + Debug>(text: &str) -> Read {
    let read = toml::from_str::<T>(text).map(|file| format!("{file:?}"));
    read.map_err(|e| (e.message().to_owned(), e.span()))
}

/// Holds both against each other; true where the text was read.
fn same(text: &str) -> bool {
    let (ours, theirs) = (by_us::<ours::File>(text), by_toml::<theirs::File>(text));
    assert_eq!(ours, theirs, "{text}");
    ours.is_ok()
}

const KEYS: &[&str] = &[
    "text",
    "letter",
    "small",
    "port",
    "count",
    "signed",
    "long",
    "share",
    "single",
    "yes",
    "quantity",
    "bare",
    "pair",
    "pairs",
    "tuple",
    "list",
    "numbers",
    "kind",
    "kind-list",
    "whole",
    "untagged",
    "untagged-list",
    "wrapped",
    "wrapped-list",
    "converted",
    "forms",
    "path",
    "unit",
    "nested",
    "nested.port",
    "nested.nested.pair",
    "nosuch",
    "'a b'",
    "\"\\u0007\"",
    "title",
];

const VALUES: &[&str] = &[
    "''",
    "'x'",
    "\"a\\nb\\u001b[31m\"",
    "'5ms'",
    "'ms'",
    "'one-thing'",
    "'One'",
    "'Unit'",
    "'New'",
    "0",
    "-1",
    "-129",
    "255",
    "256",
    "65_535",
    "0xffff_ffff_ffff",
    "0b11",
    "-2147483649",
    "9223372036854775807",
    "9223372036854775808",
    "0xffff_ffff_ffff_ffff",
    "18446744073709551616",
    "-9223372036854775809",
    "170141183460469231731687303715884105728",
    "340282366920938463463374607431768211456",
    "0.5",
    "-0.0",
    "1e400",
    "1e39",
    "inf",
    "-inf",
    "nan",
    "true",
    "2026-11-28",
    "2026-11-28T10:00:00.25Z",
    "10:00:00",
    "[]",
    "[1, 2]",
    "[1, 2, 3]",
    "[1.5, 'x']",
    "[1.5, true]",
    "['5ms', '6ms']",
    "['5ms', 'x']",
    "['5ms', 6]",
    "[['5ms', '6ms'], ['7ms', 'x']]",
    "[['5ms', '6ms'], ['7ms']]",
    "['one-thing', 'another']",
    "['one-thing', 'none']",
    "[-1]",
    "[1e400]",
    "[2026-11-28]",
    "[[[]]]",
    "[{ port = 1 }, 5, { port = 70_000 }]",
    "{}",
    "{ one-thing = {} }",
    "{ one-thing = [] }",
    "{ one-thing = [1] }",
    "{ one-thing = { a = 1 } }",
    "{ one-thing = 2026-11-28 }",
    "{ one-thing = 1e400 }",
    "{ another = 1, one-thing = 1 }",
    "{ none = 1 }",
    "{ New = 5 }",
    "{ New = 500 }",
    "{ New = '5' }",
    "{ port = 5 }",
    "{ port = -5 }",
    "{ port = '5' }",
    "{ needed = 5, more = [1, { a = 2026-11-28 }] }",
    "{ needed = 5, more = [1, { a = 1e400 }] }",
    "{ needed = 0 }",
    "{ other = false }",
    "{ nosuch = 1, port = 5 }",
    "{ nested = { nested = { share = 'x' } } }",
];

const PLACES: &[&str] = &[
    "[part]\n",
    "[named.'x y']\n",
    "[plain.x]\n",
    "[[parts]]\nport = 1\n[[parts]]\n",
    "[[few]]\n",
    "[part.nested.nested]\n",
    "[part.forms]\n",
    "[loose]\nneeded = 1\n",
    "[quotes]\n",
    "[words]\n",
    "[kinds]\n",
    "[ignored]\n",
    "",
];

#[test]
fn any_value_under_any_key_is_read_or_refused_as_toml_does() {
    let (mut read, mut refused) = (0, 0);
    for place in PLACES {
        for key in KEYS {
            for value in VALUES {
                let text = format!("title = 'x' # why\n{place}{key} = {value}\n");
                *(if same(&text) { &mut read } else { &mut refused }) += 1;
            }
        }
    }
    assert!(read > 3_000 && refused > 10_000, "{read} {refused}");
}

#[test]
fn a_value_in_a_table_s_place_is_refused_as_toml_does() {
    let tables = [
        "named",
        "plain",
        "kinds",
        "quotes",
        "words",
        "ignored",
        "part",
        "parts",
        "loose",
        "few",
        "named.x",
        "plain.x",
        "kinds.another",
        "ignored.x",
        "parts.x",
    ];
    for table in tables {
        for value in VALUES {
            same(&format!("title = 'x'\n{table} = {value}\n"));
            same(&format!("title = 'x'\n{table} = [{value}]\n"));
            same(&format!("title = 'x'\n{table} = {{ x = {value} }}\n"));
            same(&format!(
                "title = 'x'\n{table} = {{ port = 1 }}\n[{table}]\nport = {value}\n"
            ));
        }
    }
    for title in VALUES {
        same(&format!("title = {title}"));
    }
}

#[test]
fn what_is_no_document_is_refused_as_toml_does() {
    let deep = |open: &str, close: &str, n: usize| {
        format!(
            "title = 'x'\n[ignored]\nx = {}1{}",
            open.repeat(n),
            close.repeat(n)
        )
    };
    for text in [
        "",
        "\u{feff}title = 'x'",
        "title",
        "title =",
        "title = 'x",
        "title = 'x'\ntitle = 'y'",
        "title = 'x'\n[part]\n[part]",
        "title = 'x'\n[part\nport = 1",
        "title = 'x'\n[[named]]\n",
        "title = 'x'\n[part.nested]\nport = 1\n[part]\nnested.port = 2",
        "title = \"\\q\"",
        "title = 'ä\u{0}'",
        "title = 1__0",
        "\r\n= 5",
        "few = [{}, {}, {}]\ntitle = 'x'",
        &deep("[", "]", 78),
        &deep("[", "]", 100),
        &deep("{ a = ", " }", 78),
        &deep("{ a = ", " }", 100),
    ] {
        same(text);
    }
}

#[test]
fn more_levels_than_a_stack_holds_are_refused_where_they_begin() {
    use serde::de::IgnoredAny;
    let key = vec!["a"; 79].join(".");
    for (tables, fine) in [(2, true), (4, false), (16, false)] {
        let open = format!("{{ {key} = ").repeat(tables);
        let text = format!("x = {open}1{}", " }".repeat(tables));
        let read = crate::from_str::<IgnoredAny>(&text).map(|_| ());
        assert_eq!(read, crate::table(&text).map(|_| ()));
        assert_eq!(read.is_ok(), fine, "{tables}");
        if let Err(error) = read {
            assert_eq!(error.message(), "nested too deep");
            assert!(error.at() > 2 * key.len());
        }
    }
}

#[test]
fn a_table_of_any_layout_is_what_toml_reads() {
    for value in VALUES {
        let text = format!("x = {value}");
        let ours = crate::table(&text).map_err(|e| (e.message().to_owned(), e.span()));
        let theirs =
            toml::from_str::<crate::Table>(&text).map_err(|e| (e.message().to_owned(), e.span()));
        assert_eq!(format!("{ours:?}"), format!("{theirs:?}"));
    }
}

#[test]
fn a_place_is_the_value_s_own_and_none_is_left_for_another_reader() {
    use crate::Spanned;
    type Nested =
        std::collections::BTreeMap<Spanned<String>, Spanned<Vec<Spanned<Option<Spanned<u8>>>>>>;
    let text = "abc = [1, 23]";
    let read: Nested = crate::from_str(text).unwrap();
    let (key, list) = read.first_key_value().unwrap();
    let inner = list.get_ref()[1].get_ref().as_ref().unwrap();
    let spans = [
        key.span(),
        list.span(),
        list.get_ref()[1].span(),
        inner.span(),
    ];
    assert_eq!(spans.map(|s| &text[s]), ["abc", "[1, 23]", "23", "23"]);

    let number = serde::de::value::U8Deserializer::<crate::Error>::new(5);
    let read: Result<Spanned<u8>, _> = serde::Deserialize::deserialize(number);
    assert!(
        read.unwrap_err()
            .message()
            .contains("expected a spanned value")
    );
}

#[test]
fn entries_stand_by_name_and_are_found_by_it() {
    use crate::{Named, Spanned};
    let read: Named<Spanned<u8>> = crate::from_str("b = 1\na = 2\n'a b' = 3\n").unwrap();
    let names: Vec<_> = read.names().map(|name| name.get_ref().as_str()).collect();
    assert_eq!(names, ["a", "a b", "b"]);
    let (name, entry) = read.iter().last().unwrap();
    assert_eq!((name.span(), entry.span()), (0..1, 4..5));
    let doubled = read.map(|entry| entry.get_ref() * 2);
    assert_eq!(doubled.values().collect::<Vec<_>>(), [&4, &6, &2]);
    assert_eq!((doubled.get("a b"), doubled.get("c")), (Some(&6), None));
    assert!(doubled["b"] == 2 && !doubled.contains("ab"));
    assert!((doubled.len(), doubled.is_empty()) == (3, false) && Named::<u8>::new().is_empty());
}
