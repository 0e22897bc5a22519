//! Fabric files: parts, how they are joined, and what is sent, as TOML; checked before anything runs.
//!
//! A file has kinds of hosts and switches and kinds of cables, names of parts with their kind, links between them,
//! traffic between two hosts, and cases: the same fabric with other cables, kinds or virtual lanes, as the curves of
//! a figure. The layout is described in `fabrics/README.md`. Whatever the text, it is refused with a line, or all
//! of its cases can run in bounded memory and time.

mod check;
mod raw;

use std::path::{Path, PathBuf};

use fabric::{FabricSpec, FlowSpec, Transport};

/// A checked fabric file.
#[derive(Clone, Debug)]
pub struct FabricFile {
    /// Where it was read from.
    pub file: PathBuf,
    /// Its text.
    pub text: String,
    /// One line on what it is.
    pub title: String,
    /// At least one.
    pub cases: Vec<Case>,
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
        let unreadable = |problem: String| FileError::Unreadable {
            file: file.display().to_string(),
            problem,
        };
        let text = read_text(file).map_err(|e| unreadable(e.to_string()))?;
        Self::parse(file, &text)
    }

    /// Checks `text` as if read from `file`.
    ///
    /// # Errors
    /// [`FileError::Refused`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, FileError> {
        let refused = |at: usize, problem: String| FileError::Refused {
            file: file.display().to_string(),
            line: text[..floor(text, at)].matches('\n').count() + 1,
            problem,
        };
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(refused(0, format!("longer than {FILE_BYTES_MAX} bytes")));
        }
        let raw: raw::RawFile = toml::from_str(text)
            .map_err(|e| refused(e.span().map_or(0, |s| s.start), e.message().to_owned()))?;
        let cases = check::cases(&raw).map_err(|r| refused(r.at, r.problem))?;
        Ok(Self {
            file: file.to_owned(),
            text: text.to_owned(),
            title: raw.title.get_ref().clone(),
            cases,
        })
    }
}

/// The last place at or before `at` where a character begins.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
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
mod tests;
