//! `--manifest`: the hashes of what was copied, as `b3sum --check` reads them.

use std::io::{BufWriter, Write as _};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;

use crate::manifest;
use crate::source::{Source, Walked};
use crate::{Kind, RelPath};
use sys::folder::{Draft, Folder};

use super::operand::Operand;
use super::{Caller, Plan};
use fault::Failure;

/// Writes it, if it was asked for. Of files that come from another host it reads what arrived here; of others, the source.
pub(super) fn write(plan: &Plan, caller: &Caller) -> Result<(), Failure> {
    let Some(file) = &plan.request.manifest else {
        return Ok(());
    };
    if plan.request.dry_run {
        return Ok(());
    }
    let here =
        |error: std::io::Error| Failure::here(format!("--manifest {}: {error}", file.display()));
    let (source, filter) = match plan.from[0] {
        Operand::Far { .. } | Operand::Served { .. } => arrived(plan)?,
        _ => (plan.source()?, plan.request.filter()?),
    };
    // Whole before it has its name.
    let (folder, name) = Folder::of(file).map_err(here)?;
    let new = folder.draft(name).map_err(here)?;
    // Neither it nor what stands under its name now.
    let own = [Some(new.metadata().map_err(here)?), file.metadata().ok()];
    let own = own.map(|stat| stat.map(|stat| (stat.dev(), stat.ino())));
    let mut out = BufWriter::new(new);
    let mut failure = None;
    let (mut unsaid, mut unread) = (0_u64, 0_u64);
    let keep = plan.request.keep;
    let is_stopped = || caller.interrupted().is_some();
    let _ = source.walk_unless(&filter, &keep, &is_stopped, &mut |walked| {
        if is_stopped() {
            return ControlFlow::Break(());
        }
        let found = match walked {
            Walked::Found(found) => found,
            Walked::Skipped(skipped) => {
                if skipped.why.is_missing() {
                    caller.note(format_args!(
                        "--manifest: {}: {}",
                        skipped.path, skipped.why
                    ));
                    unread += 1;
                }
                return ControlFlow::Continue(());
            }
        };
        let path: &RelPath = &found.entry.path;
        if !matches!(found.entry.kind, Kind::File { .. } | Kind::Hardlink { .. }) {
            return ControlFlow::Continue(());
        }
        // The list itself, where it is written into what it lists.
        let identity = found.fingerprint.map(|file| (file.device, file.inode));
        if identity.is_some() && own.contains(&identity) {
            return ControlFlow::Continue(());
        }
        let Ok(hash) = manifest::hash_of_source(&source, path, &is_stopped) else {
            unread += 1;
            return ControlFlow::Continue(());
        };
        match manifest::line(path.as_bytes(), &hash) {
            None => unsaid += 1,
            Some(line) => {
                if let Err(error) = out.write_all(line.as_bytes()) {
                    failure = Some(error);
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    });
    if is_stopped() {
        // A list that ends somewhere would pass for one of all.
        return Ok(());
    }
    match failure {
        Some(error) => Err(error),
        None => out
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error),
    }
    .and_then(Draft::place)
    .map_err(here)?;
    for (count, what) in [
        (unsaid, "names are not UTF-8: the manifest cannot have them"),
        (
            unread,
            "files or folders could not be read, or changed: the manifest lacks them",
        ),
    ] {
        if count > 0 {
            caller.note(format_args!("{count} {what}"));
        }
    }
    Ok(())
}

/// What came from another host, as a source of this one.
fn arrived(plan: &Plan) -> Result<(Source, crate::filter::Filter), Failure> {
    let to = plan.to.path();
    let usage = |error: crate::source::SourceError| Failure::here(error);
    if !to.is_dir() {
        return Ok((Source::open(&[to]).map_err(usage)?, plan.request.filter()?));
    }
    if let Some(names) = plan.names()? {
        let source = Source::from_list(to, names).map_err(usage)?;
        return Ok((source, plan.request.filter()?));
    }
    let source = match plan.only()? {
        // What was copied, not all that is in the folder.
        Some(names) => {
            use std::os::unix::ffi::OsStrExt as _;
            let paths = names
                .iter()
                .map(|name| to.join(std::ffi::OsStr::from_bytes(name)));
            Source::open(&paths.collect::<Vec<_>>())
        }
        None => Source::open(&[to.join(".")]),
    };
    Ok((source.map_err(usage)?, plan.request.filter()?))
}
