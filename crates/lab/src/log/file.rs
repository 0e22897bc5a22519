//! A log as a file: what is known of its links, and files made of it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fault::Failure;
use link::record::{Block, Reader};

use super::{Converted, Legend};
use crate::direction::Direction;

/// Makes `out`, which must not be the log itself, and lets `convert` write it.
pub fn written(
    out: &Path,
    log: &Path,
    convert: impl FnOnce(File) -> io::Result<Converted>,
) -> Result<Converted, Failure> {
    let place = |path: &Path| fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    if place(out).is_some_and(|out| Some(out) == place(log)) {
        return Err(Failure::usage(format!(
            "{} is the log itself; name another file to write",
            out.display()
        )));
    }
    File::create(out)
        .and_then(convert)
        .map_err(|e| Failure::here(format!("cannot write {}: {e}", out.display())))
}

/// The log's own legend; an empty one where it has none.
pub fn legend_of(reader: Reader<'_>) -> Legend {
    let mut blocks = reader.flatten();
    let text = blocks.find_map(|block| match block {
        Block::Legend(text) => Some(text),
        _ => None,
    });
    text.and_then(Legend::read).unwrap_or_default()
}

/// The number of a link's direction. A lab's legend has the way forward before the way back.
pub fn direction_number(
    legend: &Legend,
    name: &str,
    direction: Option<Direction>,
) -> Result<u16, Failure> {
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
            return Err(Failure::usage(format!(
                "{name} has two directions; say {name}:forward or {name}:backward"
            )));
        }
        _ => None,
    };
    chosen.ok_or_else(|| {
        let mut known: Vec<&str> = legend.links.iter().map(|l| l.name.as_str()).collect();
        known.dedup();
        let typed = match direction {
            None => name.to_owned(),
            Some(direction) => format!("{name}:{}", direction.name()),
        };
        Failure::usage(format!(
            "this log has no link '{typed}'; it has {}{}",
            known.join(", "),
            crate::path::hint::did_you_mean(name, known.iter().copied())
        ))
    })
}
