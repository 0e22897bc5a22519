//! What belongs to a name whose bytes are there already: held against what the source has, and set where it differs.
//!
//! A name that has it costs no call beside the one that looked at it, but where the source has extended attributes: then
//! those here are read; and where others are to go that it has not.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::fs::{CWD, FileType, Mode, fstat, openat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};

use crate::attributes::{self, Reader};
use crate::beneath::{READ_FILE, kind_of};
use crate::entry::{Meta, RelPath};
use crate::reason::is_not_kept;

use super::{Destination, Existing, Standing, Trust, count, set_time, shown};

/// What of a name is not as the source has it, and could be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differs {
    /// Permission bits.
    pub mode: bool,
    /// Owner or group.
    pub owner: bool,
    /// Extended attributes, access control lists among them.
    pub attributes: bool,
    /// Time of last modification, of a symbolic link.
    pub time: bool,
}

impl Differs {
    /// Whether anything does.
    pub const fn any(self) -> bool {
        self.mode || self.owner || self.attributes || self.time
    }
}

/// As it stands in a sentence: `mode, owner`.
impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (self.mode, "mode"),
            (self.owner, "owner"),
            (self.attributes, "attributes"),
            (self.time, "time"),
        ];
        let mut separator = "";
        for (_, name) in all.iter().filter(|(differs, _)| *differs) {
            write!(f, "{separator}{name}")?;
            separator = ", ";
        }
        Ok(())
    }
}

/// What it takes to hold names against what the source has, made when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// This user's groups.
    groups: OnceLock<Vec<u32>>,
    /// Reads attributes of what stands here.
    reader: OnceLock<Mutex<Reader>>,
}

impl Destination {
    /// What of `stands`, which is at `path` and of the kind that the source has, is not as `meta` says, as far as this user
    /// may set it and the source is trusted.
    ///
    /// # Errors
    /// As llistxattr(2) and lgetxattr(2).
    pub fn differs(&self, path: &RelPath, stands: &Existing, meta: &Meta) -> io::Result<Differs> {
        // Nothing of this can be set there, and each name would be tried at each copy.
        if self.is_fat() {
            return Ok(Differs::default());
        }
        let (is_owner_other, user, group) = self.owner_differs(stands, meta);
        let is_link = matches!(stands.kind, Standing::Symlink { .. });
        let mode = meta.mode.filter(|_| !is_link).is_some_and(|mode| {
            let is_folder = stands.kind == Standing::Folder;
            let (kept, _) = self.lent(mode, is_folder, user, group);
            kept != stands.mode
        });
        let time = meta.modified.filter(|_| is_link);
        let attributes = match meta.attributes.is_empty() && !meta.has_all_attributes {
            true => false,
            false => self.attributes_differ(path, is_link, meta, user && group)?,
        };
        Ok(Differs {
            mode,
            owner: is_owner_other,
            attributes,
            time: time.is_some_and(|time| !self.is_time(stands.modified, time)),
        })
    }

    /// Gives a file its time of modification again, where it has another; whether it had.
    ///
    /// # Errors
    /// As openat2(2) and utimensat(2).
    pub(crate) fn mend_time(&self, path: &RelPath, meta: &Meta) -> io::Result<bool> {
        let Some(time) = meta.modified else {
            return Ok(false);
        };
        let stands = self
            .look(path)?
            .filter(|stands| matches!(stands.kind, Standing::File) && stands.modified != time);
        let Some(stands) = stands else {
            return Ok(false);
        };
        let place = self.place_as(path, &stands)?;
        let access = self.access(&fstat(&place)?);
        match set_time(&place, time, access) {
            Ok(()) => Ok(true),
            // Counted when the file was placed.
            Err(error) if is_not_kept(error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a file or symbolic link what of `meta` it has not, and no other time than it has, but to a link; whether that
    /// changed anything.
    ///
    /// # Errors
    /// As fchmod(2), fchown(2) and fsetxattr(2), but for what [`super::Shortfalls`] counts.
    pub fn amend(&self, path: &RelPath, stands: &Existing, meta: &Meta) -> io::Result<bool> {
        let differs = self.differs(path, stands, meta)?;
        if !differs.any() {
            return Ok(false);
        }
        self.written()?;
        match stands.kind {
            Standing::Symlink { .. } => {
                self.dress_symlink(&self.place_as(path, stands)?, meta)?;
            }
            _ => match self.open_to_amend(path, stands)? {
                Some((file, mode)) => {
                    let meta = Meta {
                        mode: meta.mode.or(mode),
                        modified: None,
                        ..meta.clone()
                    };
                    self.dress(file.as_fd(), &meta)?;
                }
                None => {
                    count(&self.counts.others, 1);
                    return Ok(false);
                }
            },
        }
        let Some(now) = self.look(path)? else {
            return Ok(false);
        };
        let left = self.differs(path, &now, meta)?;
        Ok(now.mode != stands.mode
            || now.owner != stands.owner
            || (differs.attributes && !left.attributes)
            || (differs.time && !left.time))
    }

    /// Opens a file to be given what belongs to it; with its mode, where that was against it and was changed. `None` where
    /// nothing can be done about that.
    fn open_to_amend(
        &self,
        path: &RelPath,
        stands: &Existing,
    ) -> io::Result<Option<(File, Option<u32>)>> {
        match self.open_as(path, stands) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            other => return Ok(Some((other?, None))),
        }
        let place = self.place_as(path, stands)?;
        let stat = fstat(&place)?;
        if kind_of(&stat) != FileType::RegularFile || stat.st_uid != geteuid().as_raw() {
            return Ok(None);
        }
        // What may not be read is open as a place only; its mode is changed, and it is opened, through what /proc shows.
        let mode = stat.st_mode & 0o7777;
        rustix::fs::chmod(shown(&place), Mode::from_raw_mode(mode | 0o400))?;
        let file = openat(CWD, shown(&place), READ_FILE, Mode::empty())?;
        Ok(Some((file.into(), Some(mode))))
    }

    /// Whether owner or group are not the source's and can be set; and whether each is what the source has, or will be.
    fn owner_differs(&self, stands: &Existing, meta: &Meta) -> (bool, bool, bool) {
        let Some(owner) = meta.owner.filter(|_| self.trust != Trust::Guest) else {
            return (false, false, false);
        };
        let (user, group) = self.accounts.numbers(owner, meta.owner_names.as_ref());
        let (same_user, same_group) = (stands.owner.0 == user, stands.owner.1 == group);
        // Others than the superuser hand their own files to their own groups (chown(2)).
        let sets_user = !same_user && self.superuser && user != u32::MAX;
        let sets_group = !same_group
            && group != u32::MAX
            && (self.superuser
                || (stands.owner.0 == geteuid().as_raw() && self.is_own_group(group)));
        (
            sets_user || sets_group,
            same_user || sets_user,
            same_group || sets_group,
        )
    }

    fn is_own_group(&self, group: u32) -> bool {
        let groups = self.looks.groups.get_or_init(|| {
            let others = getgroups().unwrap_or_default();
            let all = others.into_iter().chain([getegid()]);
            all.map(|group| group.as_raw()).collect()
        });
        groups.contains(&group)
    }

    /// Whether an attribute that may be set is missing, or has another value, or there is one that is to go.
    fn attributes_differ(
        &self,
        path: &RelPath,
        is_link: bool,
        meta: &Meta,
        is_own: bool,
    ) -> io::Result<bool> {
        let trusted = is_own && self.trust == Trust::Whole;
        let superuser = self.superuser && self.trust != Trust::Guest;
        let is_allowed = |name: &[u8]| match is_link {
            true => self.superuser && trusted && attributes::is_of_link(name),
            false => attributes::is_set(name, superuser, trusted),
        };
        let mut wanted = meta
            .attributes
            .iter()
            .filter(|(name, _)| is_allowed(name))
            .peekable();
        let removes = meta.has_all_attributes && !is_link;
        if wanted.peek().is_none() && !removes {
            return Ok(false);
        }
        let there = self.attributes_at(path, is_link)?.attributes;
        let is_other = |name: &[u8]| {
            attributes::is_of_users(name) && meta.attributes.iter().all(|(kept, _)| **kept != *name)
        };
        Ok(wanted.any(|attribute| !there.contains(attribute))
            || removes && there.iter().any(|(name, _)| is_other(name)))
    }

    fn attributes_at(&self, path: &RelPath, is_link: bool) -> io::Result<attributes::Read> {
        let reader = self
            .looks
            .reader
            .get_or_init(|| Reader::new(self.superuser).into());
        let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
        if !path.is_top() && (reader.by_name() || is_link) {
            let top = self.top.as_ref().ok_or(Errno::NOENT)?;
            let (folder, name) = self.folder_of(top, path)?;
            return reader.of_name(folder.open.as_fd(), name);
        }
        match path.is_top() {
            true => {
                let top = self.top.as_ref().ok_or(Errno::NOENT)?;
                reader.of(top.folder())
            }
            false => reader.of(self.open_existing(path)?.as_fd()),
        }
    }
}
