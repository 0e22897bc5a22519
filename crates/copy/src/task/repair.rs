//! `--repair`: what a manifest says of the destination, and only what differs is copied.
//!
//! The destination is read once and the source not at all, but for files that are hurt: of these the blocks that differ travel.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use crate::RelPath;
use crate::destination::Destination;
use crate::digest::Sum;
use crate::manifest;
use run::model::{CopyRepair, Run};

use super::operand::Operand;
use super::rules::Rules;
use super::{Caller, Plan, Request};
use fault::Failure;

/// The longest line of a manifest, in bytes: no path is as long.
const LINE_MOST: u64 = 64 << 10;
/// Files that are mended by name; where more are hurt, whole folders are compared at less cost.
const HURT_MOST: usize = 10_000;
/// Files of which it is said one by one that they are hurt.
const SAID_MOST: usize = 20;

/// What a destination lacks of what its manifest says.
#[derive(Debug)]
pub struct Hurt {
    /// Names and hashes that they should have.
    names: Vec<(RelPath, Sum)>,
    files: u64,
    missing: u64,
}

/// Reads the destination, and says what differs.
pub fn look(file: &Path, plan: &Plan, caller: &Caller) -> Result<Hurt, Failure> {
    let to = plan.to.path();
    if !matches!(plan.to, Operand::Here(_) | Operand::Lab { .. }) {
        return Err(Failure::usage(
            "--repair reads the destination, which has to be on this host: copy from there to here, or run it there",
        ));
    }
    if !to.is_dir() {
        let to = to.display();
        return Err(Failure::usage(format!("--repair: {to} is no folder")));
    }
    let usage = |error: String| Failure::usage(format!("--repair {}: {error}", file.display()));
    let mut lines = BufReader::new(File::open(file).map_err(|error| usage(error.to_string()))?);
    let (destination, _) = Destination::resolve(to, false, true)
        .map_err(|error| Failure::here(format!("{}: {error}", to.display())))?;
    let mut hurt = Hurt {
        names: Vec::new(),
        files: 0,
        missing: 0,
    };
    let (mut line, mut number) = (Vec::new(), 0_u64);
    loop {
        line.clear();
        let mut limited = (&mut lines).take(LINE_MOST);
        let read = limited.read_until(b'\n', &mut line);
        if read.map_err(|error| usage(error.to_string()))? == 0 {
            break;
        }
        number += 1;
        let said = manifest::read_line(&line).and_then(|(name, sum)| {
            let name = RelPath::new(&name).ok().filter(|name| !name.is_top())?;
            Some((name, sum))
        });
        let Some((name, sum)) = said else {
            return Err(usage(format!("line {number} is none that b3sum writes")));
        };
        hurt.files += 1;
        match is_as_said(&destination, &name, &sum, caller)? {
            Found::Same => continue,
            Found::Other => {}
            Found::Nothing => hurt.missing += 1,
        }
        if hurt.names.len() == HURT_MOST {
            return Err(Failure::check(format!(
                "more than {HURT_MOST} files are not as the manifest says: --checksum compares all"
            )));
        }
        if hurt.names.len() < SAID_MOST && !plan.request.is_for_programs {
            caller.note(format_args!("not as the manifest says: {name}"));
        }
        hurt.names.push((name, sum));
    }
    Ok(hurt)
}

enum Found {
    Same,
    Other,
    Nothing,
}

fn is_as_said(
    destination: &Destination,
    name: &RelPath,
    sum: &Sum,
    caller: &Caller,
) -> Result<Found, Failure> {
    let found = manifest::hash_at(destination, name, &|| caller.interrupted().is_some());
    if let Some(code) = caller.interrupted() {
        return Err(Failure::interrupted(code));
    }
    Ok(match found {
        Ok(Some(there)) if there == *sum => Found::Same,
        // What cannot be read is hurt as well.
        Ok(Some(_)) | Err(_) => Found::Other,
        Ok(None) => Found::Nothing,
    })
}

impl Hurt {
    /// What was typed, for these files only.
    pub fn request(&self, request: &Request) -> Request {
        let mut wanted = BTreeSet::new();
        for (name, _) in &self.names {
            let path = name.as_bytes();
            for (at, byte) in path.iter().enumerate() {
                if *byte == b'/' {
                    wanted.insert(pattern(&path[..=at]));
                }
            }
            wanted.insert(pattern(path));
        }
        // Names of a manifest are UTF-8, and so are these.
        let wanted = wanted.into_iter().map(|pattern| format!("+ {pattern}"));
        Request {
            checksum: true,
            rules: Rules::of(wanted.chain(["*".to_owned()]).collect()),
            ..request.clone()
        }
    }

    /// Looks at them again, once they were copied, and puts what came of it into the run.
    pub fn end(&self, plan: &Plan, run: &mut Run, caller: &Caller) -> Result<(), Failure> {
        let Some(copy) = &mut run.copy else {
            return Ok(());
        };
        let mut repair = CopyRepair {
            files: self.files,
            different: self.names.len() as u64 - self.missing,
            missing: self.missing,
            left: 0,
        };
        if !copy.dry_run {
            let to = plan.to.path();
            let (destination, _) = Destination::resolve(to, false, true)
                .map_err(|error| Failure::here(format!("{}: {error}", to.display())))?;
            for (name, sum) in &self.names {
                if !matches!(is_as_said(&destination, name, sum, caller)?, Found::Same) {
                    repair.left += 1;
                    copy.notes.push(format!(
                        "{name}: still not as the manifest says: the source is another"
                    ));
                }
            }
        }
        let left = repair.left;
        copy.repair = Some(repair);
        if left > 0
            && let Some(verdict) = &mut run.verdict
        {
            verdict.sentence = format!(
                "Not as the manifest says: {left} of {} files. {}",
                self.files, verdict.sentence
            );
            verdict.conclusive = false;
        }
        Ok(())
    }
}

/// A pattern for this one path.
fn pattern(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    let mut pattern = String::with_capacity(text.len() + 1);
    pattern.push('/');
    // A backslash means itself where there are no wildcards.
    let is_wild = text.contains(['*', '?', '[']);
    for letter in text.chars() {
        if is_wild && matches!(letter, '*' | '?' | '[' | '\\') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_of_a_name_is_for_that_name_only() {
        for name in ["a", "a*", "a\\b", "[x]\\?", "- a", "#", "a/b*/c"] {
            let mut filter = crate::filter::Filter::new();
            filter.include(pattern(name.as_bytes()).as_bytes()).unwrap();
            filter.exclude(b"*").unwrap();
            let admits = |name: &str| filter.admits(&RelPath::new(name.as_bytes()).unwrap(), false);
            assert!(admits(name), "{name}");
            assert!(
                !admits(&format!("x/{name}")) && !admits(&format!("{name}y")),
                "{name}"
            );
        }
    }
}
