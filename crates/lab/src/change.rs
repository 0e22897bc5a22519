//! Changes to a running lab in the words of a path file.
//!
//! What may be set, and to which values, is decided by the check of path files alone: a change is
//! written into a small path file as an entry of its schedule, new rules into the lab's own path
//! file, and what comes out is handed to the lab.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use fault::Failure;
use link::Change;
use link::spec::ServerSpec;
use spans::{Table, Value};
use units::text::plain;
use units::{Bytes, Duration, Percentage, Rate};

use crate::path::{LinkSpec, Network, PathError, PathFile, RuleSpec};

/// What one direction of a link is like at present, as far as it can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Present {
    /// `None` where nothing waits, or where a trace decides.
    rate: Option<Rate>,
    delay: Duration,
    queue: Option<Bytes>,
    mtu_bytes: u32,
    /// Memory that this would need at the start.
    memory: Bytes,
}

/// Changes of one direction, and what it is like then.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Planned {
    pub(crate) changes: Vec<Change>,
    pub(crate) after: Present,
}

impl Present {
    /// As the path file has it.
    pub(crate) fn of(link: &LinkSpec, forward: bool) -> Self {
        let spec = link.direction(forward);
        let rate = spec.rate.as_ref();
        let mut present = Self {
            rate: rate.and_then(|r| match r.server {
                ServerSpec::Rate(rate) => Some(rate),
                ServerSpec::Trace(_) => None,
            }),
            delay: spec.delay,
            queue: rate.and_then(|r| r.limits.bytes).map(Bytes::new),
            mtu_bytes: link.mtu_bytes,
            memory: Bytes::new(0),
        };
        present.memory = present.memory_needed();
        present
    }

    /// What `settings` mean here.
    pub(crate) fn plan(&self, settings: &BTreeMap<String, String>) -> Result<Planned, Failure> {
        let mut entry =
            "[[schedule]]\nat = \"0s\"\nlink = \"link\"\ndirection = \"forward\"\n".to_owned();
        for (key, typed) in settings {
            let _ = writeln!(entry, "{key} = {}", setting(key, typed)?);
        }
        let path = self.parsed(&entry)?;
        let mut after = *self;
        let changes: Vec<Change> = path.network.schedule.iter().map(|e| e.change).collect();
        for change in &changes {
            match *change {
                Change::Rate(rate) => after.rate = Some(rate),
                Change::Delay(delay) => after.delay = delay,
                Change::Limits(limits) => after.queue = limits.bytes.map(Bytes::new),
                _ => {}
            }
        }
        after.memory = after.memory_needed();
        Ok(Planned { changes, after })
    }

    /// Why frames may be lost for want of memory, if so: the lab set it aside when it came up. Said of
    /// a change that wants more than was wanted `before`.
    pub(crate) fn too_much_for(&self, start: &Self, before: &Self) -> Option<String> {
        (self.memory > start.memory.max(before.memory)).then(|| {
            format!(
                "this needs {} for frames in flight and the lab came up with {}: when the link is \
                 full, frames may be lost by the lab; start one with these values instead",
                self.memory, start.memory
            )
        })
    }

    fn memory_needed(&self) -> Bytes {
        self.parsed("")
            .map_or(Bytes::new(0), |path| path.network.links[0].forward_memory)
    }

    /// A path of this direction alone, with something behind it.
    fn parsed(&self, more: &str) -> Result<PathFile, Failure> {
        let mtu = self.mtu_bytes;
        let mut text = format!(
            "title = \"a change\"\n[hosts.near]\nmtu = {mtu}\n[hosts.far]\nmtu = {mtu}\n\
             [links.link]\nbetween = [\"near\", \"far\"]\ndelay = \"{}ns\"\n",
            self.delay.as_ns()
        );
        if let Some(rate) = self.rate {
            let _ = writeln!(text, "rate = \"{}b/s\"", rate.as_bits_per_second());
            if let Some(queue) = self.queue {
                let _ = writeln!(text, "queue = \"{}B\"", queue.as_u64());
            }
        }
        text.push_str(more);
        PathFile::parse(Path::new("change"), &text).map_err(without_place)
    }
}

/// A value as TOML has it.
fn setting(key: &str, typed: &str) -> Result<String, Failure> {
    let wrong = |expected: &str| Failure::usage(format!("{key}={typed}: expected {expected}"));
    match key {
        "rate" | "delay" | "queue" => Ok(text_toml(typed)),
        "loss" => {
            let number = typed.parse().ok();
            let share = number.or_else(|| typed.parse().ok().map(Percentage::as_share));
            let share = share.filter(|share: &f64| share.is_finite());
            let share = share.ok_or_else(|| wrong("a share from 0 to 1, or such as 0.1%"))?;
            Ok(format!("{share:?}"))
        }
        "up" => match typed {
            "true" | "false" => Ok(typed.to_owned()),
            _ => Err(wrong("true or false")),
        },
        _ => Err(Failure::usage(format!(
            "'{key}' cannot be set; expected rate, delay, loss, queue or up{}",
            crate::path::hint::did_you_mean(key, KEYS.into_iter())
        ))),
    }
}

/// A refusal of text that the user did not write: the line in it says nothing.
fn without_place(error: PathError) -> Failure {
    match error {
        PathError::Refused { problem, .. } => Failure::usage(problem),
        other => other.into(),
    }
}

/// The rules of a node as its path file has them, each in one line of TOML.
pub(crate) fn rules_of(path: &PathFile, node: &str) -> Vec<String> {
    let Ok(file) = spans::table(&path.text) else {
        return Vec::new();
    };
    let tables = ["switches", "routers"].into_iter();
    let rules = tables
        .filter_map(|kind| file.get(kind)?.get(node)?.get("rules")?.as_array())
        .next();
    rules.map_or_else(Vec::new, |rules| rules.iter().map(inline).collect())
}

/// Rules for a node of a network, as text and checked. `text` is TOML with `rules` alone.
pub fn rules(
    path: &PathFile,
    node: &str,
    text: &str,
) -> Result<(Vec<String>, Vec<RuleSpec>), Failure> {
    let usage = |problem: String| Failure::usage(plain(&problem).into_owned());
    let given = spans::table(text).map_err(|e| usage(e.message().to_owned()))?;
    let rules = match given.get("rules") {
        Some(Value::Array(rules)) if given.len() == 1 => rules,
        _ => {
            return Err(usage(
                "expected rules = [ ... ] and nothing else".to_owned(),
            ));
        }
    };
    let mut file = spans::table(&path.text).map_err(|e| usage(e.message().to_owned()))?;
    let kind = kind_of(&path.network, node);
    let Some(Value::Table(own)) = file.get_mut(kind).and_then(|nodes| nodes.get_mut(node)) else {
        return Err(usage(format!("there is no switch or router '{node}'")));
    };
    own.insert("rules".to_owned(), Value::Array(rules.clone()));
    let links: Vec<&str> = path.network.links.iter().map(|l| l.name.as_str()).collect();
    let checked = PathFile::parse(&path.file, &document(&file, &links)).map_err(without_place)?;
    let network = &checked.network;
    let specs = if kind == "switches" {
        let found = network.switches.iter().find(|s| s.name == node);
        found.map(|s| s.rules.clone())
    } else {
        let found = network.routers.iter().find(|r| r.name == node);
        found.map(|r| r.rules.clone())
    };
    Ok((
        rules.iter().map(inline).collect(),
        specs.unwrap_or_default(),
    ))
}

fn kind_of(network: &Network, node: &str) -> &'static str {
    if network.switches.iter().any(|s| s.name == node) {
        "switches"
    } else {
        "routers"
    }
}

/// A document of inline tables. `links` is the order in which these are to stand: their numbers come
/// from it.
fn document(file: &Table, links: &[&str]) -> String {
    let mut text = String::new();
    for (key, value) in file {
        match value {
            Value::Table(table) if key == "links" => {
                let named = links
                    .iter()
                    .filter_map(|&name| Some((name, table.get(name)?)));
                let members: Vec<String> = named
                    .map(|(name, link)| format!("{} = {}", text_toml(name), inline(link)))
                    .collect();
                let _ = writeln!(text, "links = {{ {} }}", members.join(", "));
            }
            _ => {
                let _ = writeln!(text, "{} = {}", text_toml(key), inline(value));
            }
        }
    }
    text
}

/// A value in one line. Keys that need no quotes have none.
fn inline(value: &Value) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match value {
        Value::String(text) => text_toml(text),
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(inline).collect();
            format!("[{}]", values.join(", "))
        }
        Value::Table(table) if table.is_empty() => "{}".to_owned(),
        Value::Table(table) => {
            let members = table.iter().map(|(key, value)| {
                let is_bare = !key.is_empty() && key.chars().all(bare);
                let key = if is_bare { key.clone() } else { text_toml(key) };
                format!("{key} = {}", inline(value))
            });
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => format!("{number:?}").replace("NaN", "nan"),
        Value::Boolean(value) => value.to_string(),
        Value::Datetime(time) => time.to_string(),
    }
}

/// A basic string of TOML: JSON's escapes are among its own, and DEL must not stand in it.
fn text_toml(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.replace('\u{7f}', "\\u007F")
}

const KEYS: [&str; 5] = ["rate", "delay", "loss", "queue", "up"];

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> PathFile {
        let text = "title = \"\\\"x\\\"\\u007f\"\n[hosts.a]\n[hosts.b]\n\
            [switches.s]\nrules = [{ dst_port = 80, drop = true, in = \"zwei\" }]\n\
            [links.zwei]\nbetween = [\"a\", \"s\"]\nrate = \"100Mb/s\"\ndelay = \"10ms\"\nqueue = \"1MB\"\n\
            [links.eins]\nbetween = [\"s\", \"b\"]\nloss = 0.5\n";
        PathFile::parse(Path::new("x.toml"), text).unwrap()
    }

    fn settings(words: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        words.iter().map(owned).collect()
    }

    #[test]
    fn a_change_is_what_a_path_file_would_have() {
        let path = network();
        let start = Present::of(&path.network.links[0], true);
        let wanted = settings(&[
            ("rate", "50Mb/s"),
            ("delay", "20ms"),
            ("loss", "0"),
            ("up", "false"),
        ]);
        let planned = start.plan(&wanted).unwrap();
        for change in [
            Change::Rate("50Mb/s".parse().unwrap()),
            Change::Delay(Duration::from_ms(20)),
            Change::Loss(0.0),
            Change::Up(false),
        ] {
            assert!(planned.changes.contains(&change), "{change:?}");
        }
        assert_eq!(planned.changes.len(), 4);
        assert_eq!(planned.after.delay, Duration::from_ms(20));
        assert!(planned.after.too_much_for(&start, &start).is_none());
        let faster = planned
            .after
            .plan(&settings(&[("rate", "10Gb/s")]))
            .unwrap();
        assert!(faster.after.too_much_for(&start, &start).is_some());
        assert!(faster.after.too_much_for(&start, &faster.after).is_none());
    }

    #[test]
    fn what_a_path_file_must_not_have_cannot_be_set() {
        let path = network();
        let [with_rate, without] = [0, 1].map(|n| Present::of(&path.network.links[n], true));
        for (key, value, says) in [
            ("rate", "0b/s", "rate"),
            ("rate", "fast", "fast"),
            ("rate", "1Gb/s\"\nloss = 1 #", "1Gb/s"),
            ("delay", "11s", "at most 10 s"),
            ("delay", "10", "no unit"),
            ("loss", "1.5", "share"),
            ("loss", "nan", "share"),
            ("loss", "101%", "share"),
            ("loss", "%", "share"),
            ("queue", "1B", "queue"),
            ("up", "1", "true or false"),
            ("dealy", "1ms", "did you mean 'delay'"),
            ("a\nb", "1", "cannot be set"),
        ] {
            let said = with_rate.plan(&settings(&[(key, value)])).unwrap_err();
            assert_eq!(said.code, 2);
            assert!(said.to_string().contains(says), "{key}={value}: {said}");
        }
        let said = without.plan(&settings(&[("rate", "1Gb/s")])).unwrap_err();
        assert!(
            said.to_string().contains("none that could change"),
            "{said}"
        );
    }

    #[test]
    fn rules_are_checked_against_the_node_they_are_for() {
        let path = network();
        assert_eq!(
            rules_of(&path, "s"),
            ["{ drop = true, dst_port = 80, in = \"zwei\" }"]
        );
        assert!(rules_of(&path, "a").is_empty());
        let text = "rules = [{ in = \"eins\", to = [\"zwei\"] }, { drop = true }]";
        let (shown, specs) = rules(&path, "s", text).unwrap();
        assert_eq!(shown.len(), 2);
        // Numbers are those of the running network, whose links stand as in its file.
        assert_eq!(specs[0].in_link, Some(1));
        for (text, says) in [
            ("rules = 3", "rules = ["),
            ("", "rules = ["),
            ("rules = []\ntitle = \"x\"", "nothing else"),
            ("rules = [{ drop = 1 }]", "invalid type"),
            ("rules = [{ in = \"drei\", drop = true }]", "drei"),
            ("rules = [", "unclosed array"),
        ] {
            let said = rules(&path, "s", text).unwrap_err().to_string();
            assert!(said.contains(says), "{text}: {said}");
        }
        assert!(rules(&path, "x", "rules = []").is_err());
    }
}
