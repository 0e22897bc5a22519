//! `--repair`: what a manifest says of the destination, and only what differs is copied.
//!
//! The destination is read once and the source not at all, but for files that are hurt: of these the blocks that differ travel.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use ::copy::RelPath;
use ::copy::destination::Destination;
use ::copy::digest::Sum;
use ::copy::manifest;
use report::model::{CopyRepair, Run};

use super::operand::Operand;
use super::rules::Rules;
use super::{CopyArgs, Plan};
use crate::context::{self, Context};
use crate::failure::Failure;

/// The longest line of a manifest, in bytes: no path is as long.
const LINE_MOST: u64 = 64 << 10;
/// Files that are mended by name; where more are hurt, whole folders are compared at less cost.
const HURT_MOST: usize = 10_000;
/// Files of which it is said one by one that they are hurt.
const SAID_MOST: usize = 20;

/// What a destination lacks of what its manifest says.
pub(super) struct Hurt {
    /// Names and hashes that they should have.
    names: Vec<(RelPath, Sum)>,
    files: u64,
    missing: u64,
}

/// Reads the destination, and says what differs.
pub(super) fn look(file: &Path, plan: &Plan<'_>, context: &Context) -> Result<Hurt, Failure> {
    let to = plan.to.path();
    if !matches!(plan.to, Operand::Here(_) | Operand::Lab { .. }) {
        return Err(Failure::usage(anyhow::anyhow!(
            "--repair reads the destination, which has to be on this host: copy from there to here, or run it there"
        )));
    }
    if !to.is_dir() {
        let to = to.display();
        return Err(Failure::usage(anyhow::anyhow!(
            "--repair: {to} is no folder"
        )));
    }
    let usage =
        |error: String| Failure::usage(anyhow::anyhow!("--repair {}: {error}", file.display()));
    let mut lines = BufReader::new(File::open(file).map_err(|error| usage(error.to_string()))?);
    let (destination, _) = Destination::resolve(to, false, true)
        .map_err(|error| Failure::here(anyhow::anyhow!("{}: {error}", to.display())))?;
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
        match is_as_said(&destination, &name, &sum, context)? {
            Found::Same => continue,
            Found::Other => {}
            Found::Nothing => hurt.missing += 1,
        }
        if hurt.names.len() == HURT_MOST {
            return Err(Failure::check(format!(
                "more than {HURT_MOST} files are not as the manifest says: --checksum compares all"
            )));
        }
        if hurt.names.len() < SAID_MOST && !plan.args.is_for_programs() {
            context::note(format_args!("not as the manifest says: {name}"));
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
    context: &Context,
) -> Result<Found, Failure> {
    let found = manifest::hash_at(destination, name, &|| context.interrupted().is_some());
    if let Some(code) = context.interrupted() {
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
    pub(super) fn args(&self, args: &CopyArgs) -> CopyArgs {
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
        CopyArgs {
            checksum: true,
            rules: Rules::of(wanted.chain(["*".to_owned()]).collect()),
            ..args.clone()
        }
    }

    /// Looks at them again, once they were copied, and puts what came of it into the run.
    pub(super) fn end(
        &self,
        plan: &Plan<'_>,
        run: &mut Run,
        context: &Context,
    ) -> Result<(), Failure> {
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
                .map_err(|error| Failure::here(anyhow::anyhow!("{}: {error}", to.display())))?;
            for (name, sum) in &self.names {
                if !matches!(is_as_said(&destination, name, sum, context)?, Found::Same) {
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
            let mut filter = ::copy::filter::Filter::new();
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
