//! `--manifest`: the hashes of what was copied, as `b3sum --check` reads them.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::ops::ControlFlow;

use ::copy::manifest;
use ::copy::source::{Source, Walked};
use ::copy::{Kind, RelPath};

use super::Plan;
use super::operand::Operand;
use crate::context::{self, Context};
use crate::failure::Failure;

/// Writes it, if it was asked for. Of files that come from another host it reads what arrived here; of others, the source.
pub(super) fn write(plan: &Plan<'_>, context: &Context) -> Result<(), Failure> {
    let Some(file) = &plan.args.manifest else {
        return Ok(());
    };
    if plan.args.dry_run {
        return Ok(());
    }
    let here = |error: std::io::Error| {
        Failure::here(anyhow::anyhow!("--manifest {}: {error}", file.display()))
    };
    let (source, filter) = match plan.from[0] {
        Operand::Far { .. } | Operand::Served { .. } => arrived(plan)?,
        _ => (plan.source()?, plan.args.filter()?),
    };
    // Whole before it has its name.
    let mut new = file.clone().into_os_string();
    new.push(".new");
    let mut out = BufWriter::new(File::create(&new).map_err(here)?);
    let mut failure = None;
    let (mut unsaid, mut unread) = (0_u64, 0_u64);
    let keep = plan.args.keep();
    let _ = source.walk(&filter, &keep, &mut |walked| {
        if context.interrupted().is_some() {
            return ControlFlow::Break(());
        }
        let Walked::Found(found) = walked else {
            return ControlFlow::Continue(());
        };
        let path: &RelPath = &found.entry.path;
        if !matches!(found.entry.kind, Kind::File { .. } | Kind::Hardlink { .. }) {
            return ControlFlow::Continue(());
        }
        let Ok(hash) = manifest::hash_of_source(&source, path) else {
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
    let written = match failure {
        Some(error) => Err(error),
        None => out.flush(),
    };
    written
        .and_then(|()| std::fs::rename(&new, file))
        .map_err(here)?;
    for (count, what) in [
        (unsaid, "names are not UTF-8: the manifest cannot have them"),
        (
            unread,
            "files could not be read, or changed: the manifest lacks them",
        ),
    ] {
        if count > 0 {
            context::note(format_args!("{count} {what}"));
        }
    }
    Ok(())
}

/// What came from another host, as a source of this one.
fn arrived(plan: &Plan<'_>) -> Result<(Source, ::copy::filter::Filter), Failure> {
    let to = plan.to.path();
    let usage = |error: ::copy::source::SourceError| Failure::here(anyhow::Error::from(error));
    if !to.is_dir() {
        return Ok((Source::open(&[to]).map_err(usage)?, plan.args.filter()?));
    }
    let source = match plan.only() {
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
    Ok((source.map_err(usage)?, plan.args.filter()?))
}
