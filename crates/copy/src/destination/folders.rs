//! Folders that are kept open, so that a file costs no way down from the top.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Stat, fstat};

use crate::beneath::{STEP, Top};

/// The most folders that are kept open: a quarter of the 1,024 descriptors a process has by default.
const OPEN_MOST: usize = 256;

/// An open folder.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) open: OwnedFd,
    device: u64,
}

/// What is said of a path that leads to unfinished files.
pub(super) fn not_written() -> io::Error {
    let text = "not a name that can be written: none, or one of a folder for unfinished files";
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

impl Folder {
    pub(super) fn device(&self) -> u64 {
        self.device
    }

    pub(super) fn is_on(&self, device: u64) -> bool {
        self.device == device
    }
}

#[derive(Debug, Default)]
struct Kept {
    /// By path below the top, with the moment of last use.
    folders: HashMap<Box<[u8]>, (Arc<Folder>, u64)>,
    moment: u64,
    /// Device and number of the staging folder: some file systems have names for it that nobody would take for one.
    barred: Option<(u64, u64)>,
}

/// The folders used last.
#[derive(Debug, Default)]
pub(super) struct Folders(Mutex<Kept>);

impl Folders {
    /// The folder `path` below `top`, for what is in it to be reached by name.
    pub(super) fn open(&self, top: &Top, path: &[u8]) -> io::Result<Arc<Folder>> {
        if let Some(folder) = self.kept(path) {
            return Ok(folder);
        }
        let open = top.open(path, STEP)?;
        let stat = fstat(&open)?;
        self.keep(path, open, &stat)
    }

    /// Opens none of this device and number.
    pub(super) fn bar(&self, place: (u64, u64)) {
        self.lock().barred = Some(place);
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the folder `path` that is open, for the next that is written into it.
    pub(super) fn keep(&self, path: &[u8], open: OwnedFd, stat: &Stat) -> io::Result<Arc<Folder>> {
        let device = stat.st_dev;
        let folder = Arc::new(Folder { open, device });
        let mut kept = self.lock();
        if kept.barred == Some((stat.st_dev, stat.st_ino)) {
            return Err(not_written());
        }
        if kept.folders.len() >= OPEN_MOST {
            let oldest = kept.folders.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(oldest) = oldest.map(|(path, _)| path.clone()) {
                kept.folders.remove(&oldest);
            }
        }
        let moment = kept.moment;
        kept.folders.insert(path.into(), (folder.clone(), moment));
        Ok(folder)
    }

    fn kept(&self, path: &[u8]) -> Option<Arc<Folder>> {
        let mut kept = self.lock();
        kept.moment += 1;
        let moment = kept.moment;
        let (folder, used) = kept.folders.get_mut(path)?;
        *used = moment;
        Some(folder.clone())
    }

    /// Closes the folder `path` and those below it: something else may stand there.
    pub(super) fn forget(&self, path: &[u8]) {
        let is_below = |kept: &[u8]| {
            let rest = kept.strip_prefix(path);
            rest.is_some_and(|rest| rest.is_empty() || path.is_empty() || rest[0] == b'/')
        };
        let mut kept = self.lock();
        kept.folders.retain(|path, _| !is_below(path));
    }

    /// Whether somebody deleted the folder.
    pub(super) fn is_stale(folder: &Folder) -> bool {
        fstat(&folder.open).is_ok_and(|stat| stat.st_nlink == 0)
    }
}
