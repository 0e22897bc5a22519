//! The layout of a path file as TOML has it. What a value may be is checked later, by its span.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use spans::Spanned;
use units::{Bytes, Duration, Percentage, Rate};

/// Tables by name.
pub(super) type Named<T> = spans::Named<Spanned<T>>;
/// A quantity with its place.
pub(super) type Of<T> = Spanned<Quantity<T>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFile {
    pub(super) title: String,
    pub(super) run: Option<Spanned<RawRun>>,
    pub(super) hosts: Named<RawHost>,
    #[serde(default)]
    pub(super) switches: Named<RawSwitch>,
    #[serde(default)]
    pub(super) routers: Named<RawRouter>,
    pub(super) links: Named<RawLink>,
    #[serde(default)]
    pub(super) transfer: RawTransfer,
    #[serde(default)]
    pub(super) schedule: Vec<Spanned<RawSchedule>>,
}

/// What carries the frames of all links.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawRun {
    Engine,
    Kernel,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHost {
    pub(super) mtu: Option<Spanned<u32>>,
    pub(super) congestion_control: Option<Spanned<String>>,
    pub(super) tcp_rmem: Option<Spanned<[Quantity<Bytes>; 3]>>,
    pub(super) tcp_wmem: Option<Spanned<[Quantity<Bytes>; 3]>>,
    #[serde(default)]
    pub(super) sysctl: BTreeMap<String, Spanned<TextOrNumber>>,
    #[serde(default)]
    pub(super) addresses: Vec<Spanned<String>>,
    pub(super) interface: Option<Spanned<String>>,
    pub(super) offloads: Option<bool>,
    pub(super) write_cost: Option<Of<Duration>>,
    pub(super) packet_cost: Option<Of<Duration>>,
    pub(super) copy_rate: Option<Of<Rate>>,
    pub(super) page_cost: Option<Of<Duration>>,
    pub(super) page: Option<Of<Bytes>>,
    pub(super) bus: Option<Of<Rate>>,
    pub(super) bus_cost: Option<Of<Duration>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSwitch {
    pub(super) buffer: Option<Of<Bytes>>,
    pub(super) buffer_alpha: Option<Spanned<f64>>,
    #[serde(default)]
    pub(super) rules: Vec<Spanned<RawRule>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRouter {
    pub(super) answers: Option<bool>,
    pub(super) symmetric: Option<Spanned<bool>>,
    /// By link.
    #[serde(default)]
    pub(super) addresses: spans::Named<Vec<Spanned<String>>>,
    #[serde(default)]
    pub(super) routes: Vec<Spanned<RawRoute>>,
    #[serde(default)]
    pub(super) rules: Vec<Spanned<RawRule>>,
    pub(super) gateway: Option<Spanned<RawGateway>>,
}

/// What makes a router a gateway.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGateway {
    pub(super) inside: RawSide,
    pub(super) outside: RawSide,
    pub(super) offloads: Option<bool>,
    pub(super) tcp_rmem: Option<Spanned<[Quantity<Bytes>; 3]>>,
    pub(super) tcp_wmem: Option<Spanned<[Quantity<Bytes>; 3]>>,
    pub(super) buffer_memory: Option<Of<Bytes>>,
}

/// One side of a gateway: its links, and what its sockets are made like.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSide {
    pub(super) links: Spanned<Vec<Spanned<String>>>,
    pub(super) spread: Option<Spanned<String>>,
    pub(super) congestion: Option<Spanned<String>>,
    pub(super) buffer: Option<Of<Bytes>>,
    pub(super) max_segment: Option<Spanned<u16>>,
    pub(super) pacing: Option<Of<Rate>>,
    pub(super) notsent_lowat: Option<Of<Bytes>>,
    pub(super) hold_last_ack: Option<Spanned<bool>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRoute {
    pub(super) to: Spanned<String>,
    pub(super) via: Spanned<String>,
    pub(super) next: Option<Spanned<String>>,
}

/// The keys of a direction, alone and beside those of a link.
macro_rules! direction_keys {
    ($($name:ident: $type:ty),+ $(,)?) => {
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct RawDirection {
            $(pub(super) $name: Option<$type>,)+
        }

        #[derive(Clone, Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct RawLink {
            pub(super) between: Spanned<[String; 2]>,
            pub(super) mtu: Option<Spanned<u32>>,
            pub(super) cable: Option<Of<Duration>>,
            #[serde(default)]
            pub(super) forward: RawDirection,
            #[serde(default)]
            pub(super) backward: RawDirection,
            $(pub(super) $name: Option<$type>,)+
        }

        impl RawLink {
            /// The direction's own keys, and the link's where it has none.
            pub(super) fn direction(&self, forward: bool) -> RawDirection {
                let own = if forward { &self.forward } else { &self.backward };
                RawDirection {
                    $($name: own.$name.clone().or_else(|| self.$name.clone()),)+
                }
            }
        }
    };
}

direction_keys!(
    medium: Spanned<RawMedium>,
    gap: Spanned<u32>,
    rate: Of<Rate>,
    duplex: Spanned<RawDuplex>,
    trace: Spanned<String>,
    queue: Of<Bytes>,
    queue_packets: Spanned<u32>,
    discipline: Spanned<RawDiscipline>,
    mark_above: Of<Bytes>,
    loss: Spanned<RawLosses>,
    duplicate: Spanned<RawShare>,
    corrupt: Spanned<RawShare>,
    delay: Of<Duration>,
    jitter: Spanned<RawJitter>,
    coalesce: Spanned<RawCoalesce>,
    policer: Spanned<RawBucket>,
    flow_cap: Spanned<RawBucket>,
    harmonizer: Spanned<RawHarmonizer>,
    packets_per_second: Spanned<u64>,
    packets_queue: Spanned<u32>,
    outages: Spanned<Vec<[Quantity<Duration>; 2]>>,
    outage_every: Spanned<[Quantity<Duration>; 2]>,
    black_hole_above: Spanned<u32>,
    middlebox: Spanned<Vec<RawMiddlebox>>,
    seed: u64,
);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawMedium {
    Ethernet,
    WanPhy,
    None,
}

/// Of the end that sends in the direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawDuplex {
    Half,
    Full,
}

#[derive(Clone, Debug)]
pub(super) enum RawDiscipline {
    DropTail,
    Red(RawRed),
    Codel(RawCodel),
    FqCodel(RawFqCodel),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRed {
    pub(super) min: Quantity<Bytes>,
    pub(super) max: Quantity<Bytes>,
    pub(super) probability: Option<f64>,
    pub(super) weight: Option<f64>,
    pub(super) ecn: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCodel {
    pub(super) target: Option<Quantity<Duration>>,
    pub(super) interval: Option<Quantity<Duration>>,
    pub(super) ecn: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFqCodel {
    pub(super) target: Option<Quantity<Duration>>,
    pub(super) interval: Option<Quantity<Duration>>,
    pub(super) ecn: Option<bool>,
    pub(super) flows: Option<u32>,
    pub(super) quantum: Option<u32>,
}

#[derive(Clone, Debug)]
pub(super) enum RawHarmonizer {
    Shuffle(RawShuffle),
    Lengthen(RawLengthen),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawShuffle {
    pub(super) hold: Option<Quantity<Duration>>,
    pub(super) memory: Option<Quantity<Bytes>>,
    pub(super) groups: Option<Vec<Spanned<RawGroup>>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLengthen {
    pub(super) round_trip: Option<Quantity<Duration>>,
    pub(super) delay_max: Option<Quantity<Duration>>,
    pub(super) rate: Option<Of<Rate>>,
    pub(super) memory: Option<Quantity<Bytes>>,
    pub(super) groups: Option<Vec<Spanned<RawGroup>>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGroup {
    pub(super) src: Option<Spanned<String>>,
    pub(super) dst: Option<Spanned<String>>,
}

/// A share of the frames: a number, or a percentage with its sign.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RawShare(pub(super) f64);

/// One loss, or a list of them.
#[derive(Clone, Debug)]
pub(super) enum RawLosses {
    One(RawLoss),
    Many(Vec<Spanned<RawLoss>>),
}

#[derive(Clone, Debug)]
pub(super) enum RawLoss {
    Share(RawShare),
    Table(RawLossTable),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLossTable {
    pub(super) burst: Option<RawBurst>,
    pub(super) every: Option<u64>,
    pub(super) offset: Option<u64>,
    pub(super) frames: Option<Vec<u64>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBurst {
    pub(super) enter: RawShare,
    pub(super) leave: RawShare,
    pub(super) good: Option<RawShare>,
    pub(super) bad: Option<RawShare>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawJitter {
    pub(super) amount: Quantity<Duration>,
    pub(super) shape: Option<RawShape>,
    pub(super) correlation: Option<f64>,
    pub(super) reorder: Option<bool>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawShape {
    Uniform,
    Normal,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCoalesce {
    pub(super) hold: Quantity<Duration>,
    pub(super) packets: Option<u32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBucket {
    pub(super) rate: Of<Rate>,
    pub(super) burst: Of<Bytes>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum RawMiddlebox {
    Named(RawMiddleboxName),
    MssClamp(u16),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawMiddleboxName {
    StripWindowScale,
    StripOptions,
    StripSack,
    StripTimestamps,
    SeqCheck,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRule {
    #[serde(rename = "in")]
    pub(super) in_link: Option<Spanned<String>>,
    pub(super) src_mac: Option<Spanned<String>>,
    pub(super) dst_mac: Option<Spanned<String>>,
    pub(super) vlan: Option<Spanned<u16>>,
    pub(super) src: Option<Spanned<String>>,
    pub(super) dst: Option<Spanned<String>>,
    pub(super) protocol: Option<Spanned<TextOrNumber>>,
    pub(super) src_port: Option<Spanned<TextOrNumber>>,
    pub(super) dst_port: Option<Spanned<TextOrNumber>>,
    pub(super) flags: Option<Spanned<String>>,
    pub(super) dscp: Option<Spanned<u8>>,
    pub(super) every: Option<Spanned<u64>>,
    pub(super) nth: Option<Spanned<u64>>,
    pub(super) drop: Option<Spanned<bool>>,
    pub(super) to: Option<Spanned<Vec<Spanned<String>>>>,
    pub(super) mirror: Option<Spanned<String>>,
    pub(super) rewrite: Option<Spanned<RawRewrite>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRewrite {
    pub(super) src_mac: Option<Spanned<String>>,
    pub(super) dst_mac: Option<Spanned<String>>,
    pub(super) src: Option<Spanned<String>>,
    pub(super) dst: Option<Spanned<String>>,
    pub(super) src_port: Option<u16>,
    pub(super) dst_port: Option<u16>,
    pub(super) dscp: Option<Spanned<u8>>,
    pub(super) vlan: Option<Spanned<u16>>,
    pub(super) ttl: Option<Spanned<u8>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTransfer {
    pub(super) streams: Option<Spanned<u16>>,
    pub(super) duration: Option<Of<Duration>>,
    pub(super) ramp: Option<Of<Duration>>,
    pub(super) from: Option<Spanned<String>>,
    pub(super) to: Option<Spanned<String>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSchedule {
    pub(super) at: Of<Duration>,
    pub(super) link: Spanned<String>,
    pub(super) direction: Option<RawWay>,
    pub(super) rate: Option<Of<Rate>>,
    pub(super) delay: Option<Of<Duration>>,
    pub(super) loss: Option<Spanned<RawShare>>,
    pub(super) queue: Option<Of<Bytes>>,
    pub(super) up: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawWay {
    Forward,
    Backward,
}

/// A value written as text with its unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantity<T>(pub(super) T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Quantity<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// A value that may be text or a plain number.
#[derive(Clone, Debug)]
pub(super) enum TextOrNumber {
    Number(i64),
    Text(String),
}

impl fmt::Display for TextOrNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(n) => n.fmt(f),
            Self::Text(t) => f.write_str(t),
        }
    }
}

/// A value that TOML may have in several types. What is not overridden is refused as serde refuses
/// it, with `EXPECTED`.
trait Forms<'de>: Sized {
    const EXPECTED: &'static str;

    fn text(_: &str) -> Option<Result<Self, String>> {
        None
    }

    fn integer(_: i64) -> Option<Self> {
        None
    }

    fn float(_: f64) -> Option<Self> {
        None
    }

    fn map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        let _ = map;
        Err(unexpected("a table", Self::EXPECTED))
    }

    fn list<A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        let _ = list;
        Err(unexpected("a list", Self::EXPECTED))
    }
}

fn unexpected<E: serde::de::Error>(found: &str, expected: &str) -> E {
    E::custom(format_args!("found {found}; expected {expected}"))
}

struct FormsVisitor<T>(PhantomData<T>);

impl<'de, T: Forms<'de>> Visitor<'de> for FormsVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        match T::text(text) {
            Some(value) => value.map_err(E::custom),
            None => Err(unexpected("text", T::EXPECTED)),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        T::integer(number).ok_or_else(|| unexpected("a number", T::EXPECTED))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<T, E> {
        T::float(number).ok_or_else(|| unexpected("a number with a point", T::EXPECTED))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::map(map)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        T::list(list)
    }
}

macro_rules! in_several_forms {
    ($($type:ty),+) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(FormsVisitor(PhantomData))
            }
        }
    )+};
}

in_several_forms!(
    TextOrNumber,
    RawDiscipline,
    RawHarmonizer,
    RawShare,
    RawLoss,
    RawLosses,
    RawMiddlebox
);

impl Forms<'_> for TextOrNumber {
    const EXPECTED: &'static str = "text or a whole number";

    fn text(text: &str) -> Option<Result<Self, String>> {
        Some(Ok(Self::Text(text.to_owned())))
    }

    fn integer(number: i64) -> Option<Self> {
        Some(Self::Number(number))
    }
}

/// 2^53: whole numbers up to here are exact in a float.
const EXACT_MAX: u64 = 1 << 53;

#[allow(
    clippy::cast_precision_loss,
    reason = "shares are checked later; larger ones are none"
)]
fn share_of(number: i64) -> f64 {
    if number.unsigned_abs() > EXACT_MAX {
        f64::INFINITY
    } else {
        number as f64
    }
}

impl Forms<'_> for RawShare {
    const EXPECTED: &'static str = "a share from 0 to 1, or a percentage such as \"0.1%\"";

    fn text(text: &str) -> Option<Result<Self, String>> {
        let share = text.parse().map(|typed: Percentage| Self(typed.as_share()));
        Some(share.map_err(|e| e.to_string()))
    }

    fn integer(number: i64) -> Option<Self> {
        Some(Self(share_of(number)))
    }

    fn float(number: f64) -> Option<Self> {
        Some(Self(number))
    }
}

impl<'de> Forms<'de> for RawLoss {
    const EXPECTED: &'static str =
        "a share from 0 to 1, a percentage, or a table with burst, every or frames";

    fn text(text: &str) -> Option<Result<Self, String>> {
        Some(RawShare::text(text)?.map(Self::Share))
    }

    fn integer(number: i64) -> Option<Self> {
        RawShare::integer(number).map(Self::Share)
    }

    fn float(number: f64) -> Option<Self> {
        RawShare::float(number).map(Self::Share)
    }

    fn map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        RawLossTable::deserialize(MapAccessDeserializer::new(map)).map(Self::Table)
    }
}

impl<'de> Forms<'de> for RawLosses {
    const EXPECTED: &'static str = "a share from 0 to 1, a percentage, a table, or a list of them";

    fn text(text: &str) -> Option<Result<Self, String>> {
        Some(RawLoss::text(text)?.map(Self::One))
    }

    fn integer(number: i64) -> Option<Self> {
        RawLoss::integer(number).map(Self::One)
    }

    fn float(number: f64) -> Option<Self> {
        RawLoss::float(number).map(Self::One)
    }

    fn map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        RawLoss::map(map).map(Self::One)
    }

    fn list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut losses = Vec::new();
        while let Some(loss) = list.next_element()? {
            losses.push(loss);
        }
        Ok(Self::Many(losses))
    }
}

impl<'de> Forms<'de> for RawDiscipline {
    const EXPECTED: &'static str =
        "\"drop-tail\", \"codel\", \"fq-codel\", or a table with red, codel or fq-codel";

    fn text(text: &str) -> Option<Result<Self, String>> {
        Some(match text {
            "drop-tail" => Ok(Self::DropTail),
            "codel" => Ok(Self::Codel(RawCodel::default())),
            "fq-codel" => Ok(Self::FqCodel(RawFqCodel::default())),
            "red" => {
                Err("red needs thresholds: { red = { min = \"30kB\", max = \"90kB\" } }".into())
            }
            other => Err(format!("'{other}': expected {}", Self::EXPECTED)),
        })
    }

    fn map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        struct Table {
            red: Option<RawRed>,
            codel: Option<RawCodel>,
            fq_codel: Option<RawFqCodel>,
        }
        let table = Table::deserialize(MapAccessDeserializer::new(map))?;
        match (table.red, table.codel, table.fq_codel) {
            (Some(red), None, None) => Ok(Self::Red(red)),
            (None, Some(codel), None) => Ok(Self::Codel(codel)),
            (None, None, Some(fq_codel)) => Ok(Self::FqCodel(fq_codel)),
            _ => Err(serde::de::Error::custom("expected one discipline")),
        }
    }
}

impl<'de> Forms<'de> for RawHarmonizer {
    const EXPECTED: &'static str = "\"shuffle\", \"lengthen\", or a table with shuffle or lengthen";

    fn text(text: &str) -> Option<Result<Self, String>> {
        Some(match text {
            "shuffle" => Ok(Self::Shuffle(RawShuffle::default())),
            "lengthen" => Ok(Self::Lengthen(RawLengthen::default())),
            other => Err(format!("'{other}': expected {}", Self::EXPECTED)),
        })
    }

    fn map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            shuffle: Option<RawShuffle>,
            lengthen: Option<RawLengthen>,
        }
        let table = Table::deserialize(MapAccessDeserializer::new(map))?;
        match (table.shuffle, table.lengthen) {
            (Some(shuffle), None) => Ok(Self::Shuffle(shuffle)),
            (None, Some(lengthen)) => Ok(Self::Lengthen(lengthen)),
            _ => Err(serde::de::Error::custom("expected shuffle or lengthen")),
        }
    }
}

impl<'de> Forms<'de> for RawMiddlebox {
    const EXPECTED: &'static str = "a name such as \"strip-sack\", or { mss-clamp = 1360 }";

    fn text(text: &str) -> Option<Result<Self, String>> {
        let deserializer: serde::de::value::StrDeserializer<'_, serde::de::value::Error> =
            serde::de::IntoDeserializer::into_deserializer(text);
        Some(
            RawMiddleboxName::deserialize(deserializer)
                .map(Self::Named)
                .map_err(|e| e.to_string()),
        )
    }

    fn map<A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        struct Table {
            mss_clamp: u16,
        }
        Table::deserialize(MapAccessDeserializer::new(map)).map(|t| Self::MssClamp(t.mss_clamp))
    }
}
