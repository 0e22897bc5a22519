//! `goodput lab log`: what a log says, or the log as CSV, Parquet or pcapng.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use lab::log::{Converted, Filter, Legend, Summary, convert};
use link::record::{Block, Reader};
use sys::map;
use units::Bytes;

use super::args::LogArgs;
use super::build::grouped;
use super::protocol::Direction;
use super::remote::with_direction;
use crate::balance;
use crate::context;
use crate::failure::{self, Failure, Verdict};

pub(super) fn command(args: &LogArgs) -> Verdict {
    let name = args.file.display();
    let bytes = map::File::open(&args.file);
    let bytes = bytes.map_err(|e| {
        let hint = match e.kind() {
            io::ErrorKind::InvalidInput => "; write it to a file first",
            _ => "",
        };
        Failure::usage(anyhow::anyhow!("cannot read the log {name}: {e}{hint}"))
    })?;
    let reader = Reader::new(&bytes).map_err(|e| Failure::usage(anyhow::anyhow!("{name}: {e}")))?;
    if args.streams {
        let balance = balance::of(reader, args.striped).ok_or_else(|| {
            Failure::usage(anyhow::anyhow!("{name}: no queue served anything in it"))
        })?;
        match args.json {
            true => context::print_json_line(&balance)?,
            false => context::print(&balance::text(&balance))?,
        }
        return Ok(failure::DONE);
    }
    let legend = legend(reader.clone());
    let filter = Filter {
        link: args
            .link
            .as_deref()
            .map(|typed| link_number(&legend, typed))
            .transpose()?,
        frame: args.frame,
        drops_only: args.drops,
        ..Filter::default()
    };
    let converted = if let Some(out) = &args.csv {
        if out.as_os_str() == "-" {
            let stdout = io::stdout().lock();
            match convert::csv(reader, stdout, &filter) {
                // A reader that has seen enough is no failure.
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(failure::DONE),
                done => done.map_err(|e| Failure::here(anyhow::anyhow!("stdout: {e}")))?,
            }
        } else {
            written(out, &args.file, |file| convert::csv(reader, file, &filter))?
        }
    } else if let Some(out) = &args.parquet {
        written(out, &args.file, |file| {
            convert::parquet(reader, file, &filter)
        })?
    } else if let Some(out) = &args.pcapng {
        written(out, &args.file, |file| {
            convert::pcapng(reader, file, &filter)
        })?
    } else {
        context::print(&summary(&legend, reader))?;
        return Ok(failure::DONE);
    };
    context::note(format_args!(
        "{} written{}",
        grouped(converted.written),
        reservations(&converted)
    ));
    Ok(failure::DONE)
}

/// Makes `out`, which must not be the log itself, and lets `convert` write it.
fn written(
    out: &Path,
    log: &Path,
    convert: impl FnOnce(File) -> io::Result<Converted>,
) -> Result<Converted, Failure> {
    let place = |path: &Path| fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    if place(out).is_some_and(|out| Some(out) == place(log)) {
        return Err(Failure::usage(anyhow::anyhow!(
            "{} is the log itself; name another file to write",
            out.display()
        )));
    }
    File::create(out)
        .and_then(convert)
        .map_err(|e| Failure::here(anyhow::anyhow!("cannot write {}: {e}", out.display())))
}

/// The log's own legend; an empty one where it has none.
fn legend(reader: Reader<'_>) -> Legend {
    let mut blocks = reader.flatten();
    let text = blocks.find_map(|block| match block {
        Block::Legend(text) => Some(text),
        _ => None,
    });
    text.and_then(Legend::read).unwrap_or_default()
}

/// The number of a link's direction. A lab's legend has the way forward before the way back.
fn link_number(legend: &Legend, typed: &str) -> Result<u16, Failure> {
    let (name, direction) = with_direction(typed)?;
    let numbers: Vec<u16> = (0_u16..)
        .zip(&legend.links)
        .filter(|(_, link)| link.name == name)
        .map(|(number, _)| number)
        .collect();
    let chosen = match (numbers.as_slice(), direction) {
        ([only], None) => Some(*only),
        ([first, ..], Some(Direction::Forward)) => Some(*first),
        ([_, second, ..], Some(Direction::Backward)) => Some(*second),
        ([_, _, ..], None) => {
            return Err(Failure::usage(anyhow::anyhow!(
                "{name} has two directions; say {name}:forward or {name}:backward"
            )));
        }
        _ => None,
    };
    chosen.ok_or_else(|| {
        let mut known: Vec<&str> = legend.links.iter().map(|l| l.name.as_str()).collect();
        known.dedup();
        Failure::usage(anyhow::anyhow!(
            "this log has no link '{typed}'; it has {}{}",
            known.join(", "),
            lab::path::hint::did_you_mean(name, known.iter().copied())
        ))
    })
}

fn summary(legend: &Legend, reader: Reader<'_>) -> String {
    let frames = reader
        .clone()
        .flatten()
        .filter(|b| matches!(b, Block::Frame(_)))
        .count();
    let summary = Summary::read(reader);
    let mut text = format!(
        "{}\n{} frames, {} decisions on segments{}\n",
        legend.title,
        grouped(frames as u64),
        grouped(summary.read.written),
        reservations(&summary.read)
    );
    for (number, link) in summary.links.iter().enumerate() {
        let name = match legend.links.get(number) {
            Some(own) => format!("{}: {} -> {}", own.name, own.from, own.to),
            None => "other".to_owned(),
        };
        let _ = write!(text, "  {name:<36}");
        let deepest = link.queues.iter().flat_map(|q| q.depths.iter().flatten());
        if let Some(most) = deepest.map(|depth| depth.max_bytes).max() {
            let _ = write!(text, " queue at most {},", Bytes::new(most));
        }
        let drops = link.drops.iter().filter(|d| d.total > 0);
        let drops: Vec<String> = drops
            .map(|d| format!("{} {}", grouped(d.total), legend.decision(d.cause)))
            .collect();
        let _ = match drops.as_slice() {
            [] => writeln!(text, " no drops"),
            drops => writeln!(text, " drops: {}", drops.join(", ")),
        };
    }
    text
}

/// How far the log can be trusted, where there is something to say.
fn reservations(read: &Converted) -> String {
    let mut text = String::new();
    if read.interrupted {
        text += "; the log has no end: its lab was killed, or still runs";
    }
    if let Some(at) = read.truncated_at {
        let _ = write!(text, "; it is cut at byte {at}");
    }
    if read.malformed_blocks > 0 {
        let _ = write!(
            text,
            "; {} blocks make no sense",
            grouped(read.malformed_blocks)
        );
    }
    if read.lost_rows + read.lost_frames > 0 {
        let _ = write!(
            text,
            "; {} decisions and {} frames are missing: the disk was behind",
            grouped(read.lost_rows),
            grouped(read.lost_frames)
        );
    }
    text
}
