//! What is asked: of which packets, and how they are looked at.

use std::path::PathBuf;

use capture::Options;
use fault::Failure;
use job::Context;
use lab::PathFile;
use report::RunFolder;
use report::model::{self, Run, RunState};
use units::Duration;

use crate::spacing::Question;

/// What is to be explained, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where packets come from.
    pub source: Source,
    /// What is asked of the packets' spacing, if anything. Standard input has no second look for it.
    pub question: Option<Question>,
    /// Has tshark work out the spacing as well.
    pub tshark: bool,
    /// Whether two captures are matched packet by packet.
    pub matching: Match,
    /// Writes all connections as tables into the run folder.
    pub parquet: bool,
    /// Threads; as many as there are CPUs, up to a bound, unless said.
    pub threads: Option<usize>,
    /// Folder that the run folder is made in.
    pub runs: PathBuf,
}

impl Plan {
    /// Of these captures, with nothing asked beyond what limited their connections.
    pub const fn of_files(files: Vec<PathBuf>, runs: PathBuf) -> Self {
        Self {
            source: Source::Files(files),
            question: None,
            tshark: false,
            matching: Match::Auto,
            parquet: false,
            threads: None,
            runs,
        }
    }

    /// Begins a run folder.
    pub(crate) fn begin(&self, context: &Context, name: &str) -> Result<RunFolder, Failure> {
        let run = Run {
            schema_version: model::SCHEMA_VERSION,
            verb: "explain".to_owned(),
            name: name.to_owned(),
            state: RunState::Running,
            command_line: context.command_line.clone(),
            goodput_version: env!("CARGO_PKG_VERSION").to_owned(),
            started_utc: context.started_utc.clone(),
            ..Run::default()
        };
        RunFolder::create(&self.runs, "explain", name, run).map_err(Failure::here)
    }
}

/// Where packets come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// Captures or a lab's packet logs, `-` being standard input.
    Files(Vec<PathBuf>),
    /// An interface of this machine.
    Interface(Box<Options>),
    /// A path of the lab.
    Path(Box<Filled>),
}

/// Whether two captures are matched packet by packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Match {
    /// Where they have packets in common.
    #[default]
    Auto,
    /// Always; it fails where they have none.
    Always,
    /// Each by itself.
    Never,
}

/// A path that is filled, and captured, first.
#[derive(Clone, Debug)]
pub struct Filled {
    /// The path.
    pub path: PathFile,
    /// In virtual time: octets behind each frame, several in turn. In real time without one.
    pub gaps: Vec<u32>,
    /// Time that it is filled.
    pub time: Option<Duration>,
}

impl Filled {
    /// A name for the run folder.
    pub(crate) fn title(&self) -> String {
        let stem = self.path.file.file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    }
}
