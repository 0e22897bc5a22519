//! The legend: what the numbers of a log stand for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;

use link::record::{self, BLOCK_HEADER_BYTES, Code, NO_LINK};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use units::text;

/// First block of a log, as JSON. Unknown keys are ignored on reading and missing ones are empty,
/// so that a log whose legend is damaged can still be read, with numbers for names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Legend {
    /// Version of the format: 1.
    pub format: u32,
    /// The realtime clock at time 0 of the log, nanoseconds; text, since JSON's numbers are exact
    /// to 53 bits only.
    #[serde(serialize_with = "to_text", deserialize_with = "from_text")]
    pub t0_realtime_ns: u64,
    /// Version of the program.
    pub goodput_version: String,
    /// Names of the ports, by their number.
    pub ports: Vec<String>,
    /// The links, by their number.
    pub links: Vec<LinkLegend>,
    /// Names of the decisions by their codes.
    pub decisions: BTreeMap<u8, String>,
    /// What was run.
    pub title: String,
    /// Seeds of the random stages, in words.
    pub seed_notes: Vec<String>,
}

/// A link, which carries frames one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkLegend {
    /// Its name.
    pub name: String,
    /// The port or node where frames enter.
    pub from: String,
    /// Where they leave.
    pub to: String,
    /// Names of the stages, by their number.
    pub stages: Vec<String>,
}

impl Legend {
    /// The legend of a log of this version; `t0_realtime_ns` is the realtime clock at the time 0
    /// of the logger's clock.
    pub fn new(title: &str, t0_realtime_ns: u64) -> Self {
        let named = |(code, name): (Code, &str)| (code.0, name.to_owned());
        Self {
            format: FORMAT,
            t0_realtime_ns,
            goodput_version: env!("CARGO_PKG_VERSION").to_owned(),
            decisions: Code::NAMES.map(named).into(),
            title: title.to_owned(),
            ..Self::default()
        }
    }

    /// A legend's block read; `None` when it is no such JSON, or larger than the legend of any lab:
    /// each byte may take some thirty of memory.
    pub fn read(json: &str) -> Option<Self> {
        if json.len() > JSON_BYTES_MAX {
            return None;
        }
        serde_json::from_str(json).ok().map(Self::plain)
    }

    /// The same with names that a terminal, a page or a table may show: a log may be somebody else's.
    fn plain(mut self) -> Self {
        let links = self.links.iter_mut().flat_map(|link| {
            [&mut link.name, &mut link.from, &mut link.to]
                .into_iter()
                .chain(&mut link.stages)
        });
        let names = [&mut self.title, &mut self.goodput_version].into_iter();
        let names = names.chain(&mut self.ports).chain(&mut self.seed_notes);
        for name in names.chain(self.decisions.values_mut()).chain(links) {
            if let Cow::Owned(plain) = text::plain(name) {
                *name = plain;
            }
        }
        self
    }

    /// The file's head: magic and legend.
    pub(crate) fn head(&self) -> io::Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        let payload_bytes = u32::try_from(json.len()).map_err(io::Error::other)?;
        let mut head = record::MAGIC.to_vec();
        head.extend(record::block_header(record::LEGEND, payload_bytes));
        head.extend(&json);
        let end = record::MAGIC.len() + record::padded(BLOCK_HEADER_BYTES + json.len());
        head.resize(end, 0);
        Ok(head)
    }

    /// A decision's name; the number where the legend has none.
    pub fn decision(&self, code: Code) -> Cow<'_, str> {
        named_or_number(self.decisions.get(&code.0), code.0)
    }

    /// A port's name likewise.
    pub fn port(&self, port: u16) -> Cow<'_, str> {
        named_or_number(self.ports.get(usize::from(port)), port)
    }

    /// A link's name likewise; `None` for [`NO_LINK`].
    pub fn link(&self, link: u16) -> Option<Cow<'_, str>> {
        let name = self.links.get(usize::from(link)).map(|link| &link.name);
        (link != NO_LINK).then(|| named_or_number(name, link))
    }

    /// A stage's name likewise; `end` for the line's end, which counts as one more stage; `node` for
    /// [`NODE_STAGE`]; `None` for [`NO_LINK`].
    pub fn stage(&self, link: u16, stage: u8) -> Option<Cow<'_, str>> {
        if stage == NODE_STAGE && link != NO_LINK {
            return Some(Cow::Borrowed("node"));
        }
        let link_legend = self.links.get(usize::from(link));
        let stages = link_legend.map_or(&[][..], |link| &link.stages);
        if link_legend.is_some() && usize::from(stage) == stages.len() {
            return Some(Cow::Borrowed("end"));
        }
        let name = stages.get(usize::from(stage));
        (link != NO_LINK).then(|| named_or_number(name, stage))
    }
}

fn named_or_number<N: ToString>(name: Option<&String>, number: N) -> Cow<'_, str> {
    match name {
        Some(name) if !name.is_empty() => Cow::Borrowed(name),
        _ => Cow::Owned(number.to_string()),
    }
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands fields over so"
)]
fn to_text<S: Serializer>(value: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn from_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

/// Stage of what no stage of a link decided, but something at one of its ends: the switch or router
/// or port that it leads to, a middlebox or the MTU at its entrance.
pub const NODE_STAGE: u8 = u8::MAX;
/// Largest legend that is read: a lab of 64 hosts has some 20 kB.
const JSON_BYTES_MAX: usize = 4 << 20;
/// Version of the format.
const FORMAT: u32 = 1;
