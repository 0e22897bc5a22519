//! What a destination makes before it meets the source: what it may not write in is reported at once.

use std::collections::{HashMap, HashSet};
use std::io;

use crate::destination::{Destination, Staging};
use crate::entry::RelPath;
use crate::journal::{Journal, Unfinished};
use crate::reason::reason;

use super::super::CopyError;
use super::ReceiveOptions;

/// A destination that can be written in: its folder for unfinished files, and what an earlier attempt left there. Dropped
/// before anything arrived, it leaves nothing new.
#[derive(Debug, Default)]
pub struct Prepared {
    /// None where nothing is written.
    pub(super) staging: Option<Staging>,
    pub(super) journal: Option<Journal>,
    pub(super) unfinished: HashMap<RelPath, Unfinished>,
    /// The first number that no growing file has.
    pub(super) next: u64,
    /// All is done, and the folder is gone.
    pub(super) is_done: bool,
}

/// Opens what `receive` needs at the destination. An earlier attempt that still runs is not waited for once `is_stopped`.
///
/// # Errors
/// [`CopyError::Refused`] where the destination cannot be written in; [`CopyError::Stopped`].
pub fn prepare(
    destination: &Destination,
    options: &ReceiveOptions,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Prepared, CopyError> {
    if options.null {
        return Ok(Prepared::default());
    }
    let refused = |error: &io::Error| {
        let (place, why) = (destination.shown(), reason(error));
        CopyError::Refused(format!(
            "cannot write in {place} ({why}); nothing was copied"
        ))
    };
    if options.dry {
        let may_write = destination.may_write();
        return may_write
            .map(|()| Prepared::default())
            .map_err(|error| refused(&error));
    }
    let staging = match destination.staging_unless(&options.identity, is_stopped) {
        Ok(staging) => staging,
        Err(_) if is_stopped() => return Err(CopyError::Stopped),
        Err(error) => return Err(refused(&error)),
    };
    let is_resumed = staging.resumed();
    let mut prepared = Prepared {
        staging: Some(staging),
        journal: None,
        unfinished: HashMap::new(),
        next: 0,
        is_done: false,
    };
    prepared.open_journal().map_err(|error| match is_resumed {
        true => CopyError::Here(format!("the journal: {}", reason(&error))),
        false => refused(&error),
    })?;
    Ok(prepared)
}

impl Prepared {
    fn open_journal(&mut self) -> io::Result<()> {
        let Some(staging) = &self.staging else {
            return Ok(());
        };
        let (journal, files, next) = staging.journal().and_then(Journal::open)?;
        // Partial files that no journal knows are worth nothing.
        let known: HashSet<u64> = files.values().map(|file| file.number).collect();
        for number in staging.partials().unwrap_or_default() {
            if !known.contains(&number) {
                let _ = staging.remove(number);
            }
        }
        self.journal = Some(journal);
        (self.unfinished, self.next) = (files, next);
        Ok(())
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // A file that is open is not gone when it is removed, on FUSE and NFS: it gets another name.
        self.journal = None;
        if let Some(staging) = &self.staging
            && !self.is_done
            && staging.partials().is_ok_and(|partials| partials.is_empty())
        {
            // Nothing in it is of use to another attempt; what cannot go stays.
            let _ = staging.discard();
        }
    }
}
