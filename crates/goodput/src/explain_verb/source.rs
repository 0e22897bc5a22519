//! What was typed: captures, an interface with a filter, or a path to be filled.

use std::path::{Path, PathBuf};

use capture::live::{HEADERS_BYTES, RING};
use capture::{Limits, Options, Stamps};
use lab::PathFile;
use units::{Bytes, Rate};
use wire::filter::{Filter, Way};

use super::spacing::Question;
use crate::capture_verb;
use crate::cli::ExplainArgs;
use crate::failure::Failure;
use crate::target::Target;

/// Where packets come from.
#[derive(Debug)]
pub(super) enum Source {
    /// Captures, `-` being standard input.
    Files(Vec<PathBuf>),
    /// An interface of this machine.
    Interface(Box<Options>),
    /// A path of the lab.
    Path(Box<PathFile>),
}

impl Source {
    /// A file of that name comes before an interface.
    pub(super) fn of(args: &ExplainArgs) -> Result<Self, Failure> {
        let [first, rest @ ..] = &args.files[..] else {
            return refused("name a capture, an interface or lab:PATH".to_owned());
        };
        let name = first.to_string_lossy();
        let not_an_interface = || {
            let text = "--buffer goes with an interface only".to_owned();
            args.buffer.map_or(Ok(()), |_| refused(text))
        };
        if let Some(path) = name.strip_prefix("lab:").filter(|_| !first.exists()) {
            if !rest.is_empty() {
                return refused(format!("lab:{path} is explained by itself"));
            }
            not_an_interface()?;
            return match Target::parse(Some(&name))? {
                Target::Lab(path) => Ok(Self::Path(path)),
                Target::Host(_) | Target::Iperf3(_) => refused(format!("'{name}' is not a path")),
            };
        }
        if !args.gaps.is_empty() {
            return refused("--gaps goes with lab:PATH only".to_owned());
        }
        let is_interface = || name != "-" && sys::host::interfaces().iter().any(|i| i.name == name);
        if !first.exists() && is_interface() {
            return Self::interface(args, &name, rest);
        }
        if args.time.is_some() {
            return refused("--time goes with an interface or lab:PATH only".to_owned());
        }
        not_an_interface()?;
        Ok(Self::Files(args.files.clone()))
    }

    fn interface(args: &ExplainArgs, name: &str, rest: &[PathBuf]) -> Result<Self, Failure> {
        let words: Vec<_> = rest.iter().map(|word| word.to_string_lossy()).collect();
        let filter = Filter::parse(&words.join(" ")).map_err(Failure::usage)?;
        let ring = args.buffer.unwrap_or(RING);
        capture_verb::check_buffer(ring)?;
        Ok(Self::Interface(Box::new(Options {
            interface: name.to_owned(),
            filter,
            kept_bytes: HEADERS_BYTES,
            way: Way::Both,
            promiscuous: false,
            ring,
            stamps: Stamps::Auto,
            limits: Limits {
                time: args.time,
                packets: None,
                bytes: Some(LIVE_BYTES),
            },
        })))
    }
}

fn refused<T>(text: String) -> Result<T, Failure> {
    Err(Failure::usage(anyhow::anyhow!("{text}")))
}

/// A name for the run folder.
pub(super) fn title(path: &PathFile) -> String {
    let stem = path.file.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

/// What is asked of the packets' spacing, if anything.
pub(super) fn question(args: &ExplainArgs, source: &Source) -> Result<Option<Question>, Failure> {
    let asked = args.spacing
        || !args.section.is_empty()
        || args.bin.is_some()
        || args.line_rate.is_some()
        || args.observer.is_some()
        || !args.gaps.is_empty();
    if !asked {
        return Ok(None);
    }
    if let Source::Files(files) = source
        && files.iter().any(|f| f == Path::new("-"))
    {
        return Err(Failure::usage(anyhow::anyhow!(
            "--spacing takes a second look at the packets, which standard input does not allow: write them \
             to a file"
        )));
    }
    let question = Question::new(args.section.clone(), args.bin, args.line_rate);
    question
        .map(Some)
        .map_err(|why| Failure::usage(anyhow::anyhow!("{why}")))
}

impl Question {
    /// The line's rate from elsewhere, where it was not typed.
    pub(super) fn with_line(self, line: Option<Rate>) -> Self {
        Self {
            line: self.line.or(line),
            ..self
        }
    }
}

/// What is kept of an interface's packets: some five million headers.
pub(super) const LIVE_BYTES: Bytes = Bytes::new(1 << 30);
