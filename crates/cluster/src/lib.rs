//! Fabric files: parts, how they are joined, and what is sent, as TOML; checked before anything runs.
//!
//! A file has kinds of hosts and switches and kinds of cables, names of parts with their kind, links between them,
//! traffic between two hosts, and cases: the same fabric with other cables, kinds or virtual lanes, as the curves of
//! a figure. The layout is described in `fabrics/README.md`. Whatever the text, it is refused with a line, or all
//! of its cases can run in bounded memory and time.
//!
//! [`simulate`] and [`vary`] run such files, [`cable`] says what a cable needs, and [`rotate`] has real hosts, a lab's or
//! processes of MPI send to each other. Left out: run folders and what is shown, which are the caller's.

mod bound;
pub mod built_in;
pub mod cable;
mod check;
mod curves;
mod failing;
mod numbers;
pub mod pairs;
pub mod parallel;
pub mod pattern;
mod raw;
pub mod rotate;
mod shared;
pub mod simulate;
mod splice;
mod study;
pub mod topology;
pub mod trace;
pub mod vary;
mod way;

use std::path::{Path, PathBuf};

use fabric::{FabricSpec, FlowSpec, Transport};

pub use numbers::length;
pub use pattern::{Pattern, Sends};
pub use topology::{Built, Topology};
use units::text::{line_at, plain};

/// A checked fabric file.
#[derive(Clone, Debug)]
pub struct FabricFile {
    /// Where it was read from.
    pub file: PathBuf,
    /// Its text.
    pub text: String,
    /// One line on what it is.
    pub title: String,
    /// Of traffic between two hosts: at least one.
    pub cases: Vec<Case>,
    /// Of a pattern of many hosts: at least one.
    pub studies: Vec<Study>,
    /// What stands for the file's own tier.
    tier: Option<Tier>,
}

/// How a pattern is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tier {
    /// Packet by packet.
    #[default]
    Packets,
    /// Flows as fluids over the same routes.
    Flows,
}

impl Tier {
    /// As it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Flows => "flows",
        }
    }
}

/// A pattern of traffic on a fabric.
#[derive(Clone, Debug)]
pub struct Study {
    /// Name of its case; that of the pattern where the file names no cases.
    pub name: String,
    /// The fabric.
    pub layout: Layout,
    /// What is sent.
    pub traffic: Pattern,
    /// How it is run.
    pub tier: Tier,
}

/// Where a study's fabric comes from.
#[derive(Clone, Debug)]
pub enum Layout {
    /// Named part by part.
    Named(FabricSpec, Names),
    /// Made from a few words.
    Made(Topology),
}

/// A step of a study as flows of its fabric.
#[derive(Clone, Debug)]
pub struct Step {
    /// What the engine runs.
    pub flows: Vec<FlowSpec>,
    /// The same by rank.
    pub sends: Vec<Sends>,
}

impl Study {
    /// The fabric that the `n`-th seed draws.
    pub fn build(&self, n: u64) -> Built {
        match &self.layout {
            Layout::Made(topology) => topology.build(n),
            Layout::Named(spec, names) => Built {
                spec: spec.clone(),
                names: names.clone(),
                tiers: topology::tiers(spec),
            },
        }
    }

    /// Flows of a step with so many ranks on the fabric of the `n`-th seed.
    pub fn sends(&self, built: &Built, nodes: u32, step: u32, n: u64) -> Step {
        let hosts = u32::try_from(built.spec.hosts.len()).unwrap_or(u32::MAX);
        let order = self.traffic.order(hosts, n);
        let host = |rank: u32| order[rank as usize];
        let ping_pong = self.traffic.kind.counts() == pattern::Counts::Latency;
        let sends = self.traffic.sends(nodes, step, n);
        let mpi = self.traffic.mpi;
        let replayed = self.traffic.trace.iter().map(Some);
        let replayed = replayed.chain(std::iter::repeat(None));
        let flows = sends.iter().zip(replayed).map(|(s, record)| FlowSpec {
            start_ps: record.map_or(0, |r| r.at_ps),
            passing: record.is_some(),
            after: record.and_then(|r| r.after),
            from: host(s.from),
            to: host(s.to),
            transport: self.traffic.transport,
            mtu_bytes: self.traffic.mtu_bytes,
            message_bytes: s.message_bytes,
            messages: u64::from(self.traffic.messages),
            depth: self.traffic.depth,
            ping_pong,
            ordering: self.traffic.ordering,
            window_bytes: self.traffic.window_bytes,
            // In rotation n each rank meets its n-th peer.
            take_ps: match ping_pong && step >= self.traffic.polled_peers {
                true => self.traffic.unpolled_ps,
                false => 0,
            } + mpi.map_or(0, |mpi| mpi.copy_ps(s.message_bytes)),
            rendezvous: mpi.is_some_and(|mpi| s.message_bytes > mpi.eager_bytes),
            ..FlowSpec::default()
        });
        Step {
            flows: flows.collect(),
            sends,
        }
    }
}

/// One fabric with its traffic.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name; `fabric` where the file names no cases.
    pub name: String,
    /// What is built.
    pub spec: FabricSpec,
    /// Names of the parts.
    pub names: Names,
    /// What is sent.
    pub traffic: Traffic,
}

/// Names by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Of hosts.
    pub hosts: Vec<String>,
    /// Of switches.
    pub switches: Vec<String>,
    /// Of links.
    pub links: Vec<String>,
    /// Of each link's cable.
    pub cables: Vec<String>,
}

/// As `ib_send_bw -a` and `ib_send_lat -a` do: messages of rising sizes from one host to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Host that sends.
    pub from: u32,
    /// Host that receives.
    pub to: u32,
    /// Services, one curve each.
    pub transports: Vec<Transport>,
    /// Sizes of messages whose rate is taken; each twice the one before.
    pub sizes: Vec<u32>,
    /// Latency is taken up to this size.
    pub latency_to_bytes: u32,
    /// Payload of a packet.
    pub mtu_bytes: u32,
    /// Messages of each size at most.
    pub messages: u32,
    /// Messages posted and not completed.
    pub depth: u32,
    /// Cores that send at once, a flow each.
    pub cores: u32,
}

impl Traffic {
    /// Sizes that a service can carry.
    pub fn sizes_of(&self, transport: Transport) -> impl Iterator<Item = u32> {
        let all = match transport {
            Transport::Ud => self.mtu_bytes,
            Transport::Rc | Transport::Uc | Transport::Iwarp => u32::MAX,
        };
        self.sizes
            .iter()
            .copied()
            .take_while(move |size| *size <= all)
    }

    /// The flow of one core for messages of one size.
    pub fn flow(&self, transport: Transport, message_bytes: u32) -> FlowSpec {
        // Long messages are as steady after fewer of them.
        let few = (VOLUME_BYTES / message_bytes).max(MESSAGES_MIN);
        FlowSpec {
            from: self.from,
            to: self.to,
            transport,
            mtu_bytes: self.mtu_bytes,
            message_bytes,
            messages: u64::from(self.messages.min(few).max(2)),
            depth: self.depth,
            ..FlowSpec::default()
        }
    }
}

/// Why a fabric file was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file cannot be read.
    #[error("cannot read the fabric file {file}: {problem}")]
    Unreadable {
        /// The file.
        file: String,
        /// What the system said.
        problem: String,
    },
    /// The text is not a fabric file.
    #[error("{file}, line {line}: {problem}")]
    Refused {
        /// The file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong and what was expected.
        problem: String,
    },
}

impl FabricFile {
    /// Reads and checks a file of at most [`FILE_BYTES_MAX`].
    ///
    /// # Errors
    /// [`FileError`] with file, line and what was expected.
    pub fn read(file: &Path) -> Result<Self, FileError> {
        Self::read_as(file, None)
    }

    /// The same, run in another tier than the file says.
    ///
    /// # Errors
    /// As [`FabricFile::read`].
    pub fn read_as(file: &Path, tier: Option<Tier>) -> Result<Self, FileError> {
        let unreadable = |problem: String| FileError::Unreadable {
            file: file.display().to_string(),
            problem,
        };
        let text = read_text(file).map_err(|e| unreadable(e.to_string()))?;
        Self::parse_as(file, &text, tier)
    }

    /// Checks `text` as if read from `file`.
    ///
    /// # Errors
    /// [`FileError::Refused`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, FileError> {
        Self::parse_as(file, text, None)
    }

    /// The same, run in another tier than the text says.
    ///
    /// # Errors
    /// [`FileError::Refused`].
    pub fn parse_as(file: &Path, text: &str, tier: Option<Tier>) -> Result<Self, FileError> {
        let folder = file.parent().unwrap_or_else(|| Path::new(""));
        Self::parse_with(file, text, tier, &|name| beside(folder, name))
    }

    /// The same, with the text of the files that it names from `read`, which says why it has none.
    ///
    /// # Errors
    /// [`FileError::Refused`].
    pub fn parse_with(
        file: &Path,
        text: &str,
        tier: Option<Tier>,
        read: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Self, FileError> {
        let how = check::How { tier, read };
        let refused = |at: usize, problem: String| FileError::Refused {
            file: plain(&file.to_string_lossy()).into_owned(),
            line: line_at(text, at),
            problem: plain(&problem).into_owned(),
        };
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(refused(0, format!("longer than {FILE_BYTES_MAX} bytes")));
        }
        let raw: raw::RawFile =
            spans::from_str(text).map_err(|e| refused(e.at(), e.message().to_owned()))?;
        let mut found = Self {
            file: file.to_owned(),
            text: text.to_owned(),
            title: plain(raw.title.get_ref()).into_owned(),
            cases: Vec::new(),
            studies: Vec::new(),
            tier,
        };
        if raw.traffic.get_ref().pattern.is_none() {
            if tier == Some(Tier::Flows) {
                return Err(refused(
                    raw.traffic.span().start,
                    check::TWO_HOSTS.to_owned(),
                ));
            }
            found.cases = check::cases(&raw, &how).map_err(|r| refused(r.at, r.problem))?;
            return Ok(found);
        }
        let changes = check::changes(&raw).map_err(|r| refused(r.at, r.problem))?;
        // The file as it stands first, so that what is wrong in it has its own line.
        let pattern = raw.traffic.get_ref().pattern.as_ref();
        let name = pattern.map_or("pattern", |p| p.get_ref().as_str());
        let study = check::study(&raw, name, &how).map_err(|r| refused(r.at, r.problem))?;
        if changes.is_empty() {
            found.studies.push(study);
        }
        for change in &changes {
            let mut changed = text.to_owned();
            for (key, at, value) in &change.sets {
                let value = text.get(value.clone()).unwrap_or_default();
                changed = splice::with(&changed, key, value).map_err(|p| refused(*at, p))?;
            }
            let name = &change.name;
            let in_case = |problem: String| refused(change.at, format!("case {name}: {problem}"));
            let raw: raw::RawFile =
                spans::from_str(&changed).map_err(|e| in_case(e.message().to_owned()))?;
            let study = check::study(&raw, name, &how).map_err(|r| in_case(r.problem))?;
            found.studies.push(study);
        }
        Ok(found)
    }

    /// The same file with other values: dotted keys, as TOML.
    ///
    /// # Errors
    /// [`FileError::Refused`], naming the values.
    pub fn with(&self, values: &[(String, String)]) -> Result<Self, FileError> {
        let mut text = self.text.clone();
        for (key, value) in values {
            text = splice::with(&text, key, value).map_err(|problem| FileError::Refused {
                file: plain(&self.file.to_string_lossy()).into_owned(),
                line: 1,
                // It names the key.
                problem: plain(&problem).into_owned(),
            })?;
        }
        Self::parse_as(&self.file, &text, self.tier)
    }
}

/// Text of a file in the folder of the fabric file or below it.
fn beside(folder: &Path, name: &str) -> Result<String, String> {
    use std::io::Read as _;
    let path = Path::new(name);
    let inside = |c: std::path::Component<'_>| matches!(c, std::path::Component::Normal(_));
    if name.is_empty() || !path.components().all(inside) {
        return Err("expected a file in the folder of this one, or below it".to_owned());
    }
    let path = folder.join(path);
    let failed = |e: std::io::Error| e.to_string();
    // A pipe or a device might never end.
    if !std::fs::metadata(&path).map_err(failed)?.is_file() {
        return Err("expected a regular file".to_owned());
    }
    let mut text = Vec::new();
    let most = fabric::import::TEXT_BYTES_MAX as u64;
    let file = std::fs::File::open(&path).map_err(failed)?;
    file.take(most + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > most {
        return Err(format!("longer than {most} bytes"));
    }
    // Descriptions of nodes are in any code.
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn read_text(file: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    let mut limited = std::fs::File::open(file)?.take(FILE_BYTES_MAX + 1);
    limited.read_to_string(&mut text)?;
    Ok(text)
}

/// Longest fabric file.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
/// Payload of a curve's point, where that is enough messages: 16 k full packets.
const VOLUME_BYTES: u32 = 32 << 20;
/// Of the longest messages.
const MESSAGES_MIN: u32 = 20;

/// Millimetres of a length such as `100m`, `0.5m`, `30cm` or `2km`, up to 2000 km.
pub fn length_mm(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(end);
    let scale = match unit.trim_start() {
        "mm" => 1,
        "cm" => 10,
        "m" => 1_000,
        "km" => 1_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if number.len() > 12 || fraction.contains('.') || whole.is_empty() {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let digits: u64 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().ok()?
    };
    let ten_to = 10_u64.pow(u32::try_from(fraction.len()).ok()?);
    let mm = whole.checked_mul(scale)? + digits * scale / ten_to;
    (mm <= LENGTH_MAX_MM).then_some(mm)
}

/// 2000 km.
const LENGTH_MAX_MM: u64 = 2_000_000_000;

#[cfg(test)]
mod monte_carlo;
#[cfg(test)]
mod tests;
