//! The side that is written: one folder, and nothing outside it, whatever the other side says.
//!
//! Every path is opened beneath the top folder by a call that follows no symbolic link on the way, so neither a path from
//! outside nor a link that somebody swaps in meanwhile leads elsewhere. New files grow in a staging folder that nobody
//! else may enter, get all that belongs to them there, and move to their place by one rename(2): a reader sees the old
//! file or the whole new one.
//!
//! All functions may be called from several threads.
//!
//! Attributes that the source has not, an inherited access control list among them, go only where [`Meta`] says that it has no
//! others. Space is not reserved: the other side could claim what it never sends.

mod belongings;
mod extras;
mod folders;
mod own;
mod placing;
mod small;
mod staging;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT, Uid,
    accessat, chownat, fchmod, fchown, fstat, fstatvfs, futimens, linkat, mkdirat, openat,
    readlinkat, statat, symlinkat, syncfs, unlinkat, utimensat,
};
use rustix::io::Errno;

use crate::accounts::Accounts;
use crate::attributes;
use crate::beneath::{
    READ_FILE, READ_FOLDER, STEP, Top, kind_of, leads_to_staging, modified, size_of,
};
use crate::confined::{Asked, Confined};
use crate::entry::{Meta, RelPath, Stamp};
use crate::reason::is_not_kept;
use crate::room::{self, PAGE};

pub use self::belongings::Differs;
use self::belongings::Looks;
pub use self::extras::{Deleted, Deletion};
use self::folders::{Folder, Folders};
use self::placing::replace;
pub(crate) use self::staging::clear;
pub use self::staging::{Partial, Staging};

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Existing {
    /// What it is.
    pub kind: Standing,
    /// Length in bytes, of a file.
    pub size: u64,
    /// Time of last modification.
    pub modified: Stamp,
    /// Permission bits, 0..=0o7777.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// How many names it has.
    pub links: u64,
    /// Device and number there: two paths with the same are one file.
    pub identity: (u64, u64),
}

/// Kinds of what stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A folder.
    Folder,
    /// A file.
    File,
    /// A symbolic link and the bytes it holds.
    Symlink {
        /// Where to.
        target: Box<[u8]>,
    },
    /// A device, a socket or a pipe.
    Special,
}

/// What could not be kept although it was asked for; the files themselves are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shortfalls {
    /// Names whose owner or group could not be set: that takes the superuser, or membership of the group.
    pub owners: u64,
    /// Files whose set-user-ID or set-group-ID bit was dropped because the owner could not be set.
    pub bits: u64,
    /// Extended attributes not set for want of a right.
    pub attributes_refused: u64,
    /// Extended attributes the file system does not support or has no room for.
    pub attributes_unsupported: u64,
    /// Names whose mode or time could not be set because they belong to somebody else.
    pub others: u64,
    /// Names of files with several that became files of their own: no hard link could be made.
    pub links: u64,
}

/// What of a source's word about its files is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// All of it, as far as this user may: the source is read by the user who writes here.
    #[default]
    Whole,
    /// All but what has a program run with other rights than its caller's: set-user-ID and set-group-ID bits of files, and
    /// capabilities. The source is another host's, and whoever has that host need not have this one.
    NoSetId,
    /// Neither that, nor owners, nor what only the superuser may set.
    Guest,
}

/// Room of the file system a destination is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes this user may still write.
    pub bytes: u64,
    /// Files this user may still make; `u64::MAX` where the file system does not count them.
    pub files: u64,
}

#[derive(Debug, Default)]
struct Counts {
    owners: AtomicU64,
    bits: AtomicU64,
    attributes_refused: AtomicU64,
    attributes_unsupported: AtomicU64,
    others: AtomicU64,
    links: AtomicU64,
}

/// One folder that is written.
#[derive(Debug)]
pub struct Destination {
    /// None for a dry run into what does not exist.
    top: Option<Arc<Top>>,
    /// The folder in which `top` would be made, where that does not exist.
    above: Option<OwnedFd>,
    /// What was typed, for messages.
    shown: String,
    dry: bool,
    folders: Folders,
    accounts: Accounts,
    counts: Counts,
    superuser: bool,
    trust: Trust,
    reads_back: bool,
    is_stopped: AtomicBool,
    /// A folder on each other file system that was written to, by its device.
    mounts: Mutex<HashMap<u64, Arc<Folder>>>,
    is_fat: OnceLock<bool>,
    /// FUSE, or a server's.
    is_foreign: OnceLock<bool>,
    /// New files cannot be written here before they have a name.
    has_no_nameless: AtomicBool,
    /// Modes of folders that were opened up to be written into.
    opened_up: Mutex<HashMap<RelPath, u32>>,
    /// Device and number of each folder that was made or found, until it is finished.
    meant: Mutex<HashMap<RelPath, (u64, u64)>>,
    looks: Box<Looks>,
}

impl Destination {
    /// Opens what the user typed, as rsync(1) reads it: a folder is written into; what does not exist is made as a
    /// folder, in one that exists, unless the source is one file and no slash ends the path: then, as for a file that
    /// exists, the last name is the file's new name and comes back.
    ///
    /// With `dry`, nothing is made, and every call that would write is refused with `EROFS`.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotADirectory`] for a file where a folder is needed; [`io::ErrorKind::InvalidInput`] for one file
    /// that is to have the name of a device, pipe or socket; as open(2) and mkdir(2).
    pub fn resolve(
        typed: &Path,
        source_is_one_file: bool,
        dry: bool,
    ) -> io::Result<(Self, Option<RelPath>)> {
        let bytes = typed.as_os_str().as_bytes();
        let typed = if bytes.is_empty() {
            Path::new(".")
        } else {
            typed
        };
        let of = |folder| Self::of(folder, dry).shown_as(typed);
        match openat(CWD, typed, READ_FOLDER, Mode::empty()) {
            Ok(folder) => return Ok((of(Some(folder)), None)),
            Err(Errno::NOTDIR | Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let name_starts = bytes
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(0, |slash| slash + 1);
        let name = RelPath::new(&bytes[name_starts..])
            .ok()
            .filter(|name| !name.is_top());
        if let Some(name) = name.filter(|_| source_is_one_file) {
            let above = OsStr::from_bytes(&bytes[..name_starts]);
            let above = if above.is_empty() {
                OsStr::new(".")
            } else {
                above
            };
            let folder = openat(CWD, above, READ_FOLDER, Mode::empty()).map_err(no_folder_above)?;
            // A rename would put a file in the place of /dev/null, or of a link to it.
            if let Ok(there) = rustix::fs::stat(typed)
                && !matches!(
                    FileType::from_raw_mode(there.st_mode),
                    FileType::RegularFile | FileType::Directory
                )
            {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "a device, pipe or socket stands there, which no file takes the place of",
                ));
            }
            let destination = Self::of(Some(folder), dry).shown_as(above.as_ref());
            return Ok((destination, Some(name)));
        }
        if dry && matches!(rustix::fs::lstat(typed), Err(Errno::NOENT)) {
            let above = folder_above(typed);
            let folder = openat(CWD, above, STEP, Mode::empty()).map_err(no_folder_above)?;
            let destination = Self {
                above: Some(folder),
                ..Self::of(None, dry).shown_as(above)
            };
            return Ok((destination, None));
        }
        match rustix::fs::mkdir(typed, Mode::from_raw_mode(0o777)) {
            // Another copy may have made it meanwhile; what is no folder is told by the opening.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(no_folder_above(error)),
        }
        let folder = openat(CWD, typed, READ_FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
        Ok((of(Some(folder)), None))
    }

    /// As [`Destination::resolve`], of what is asked for in a folder that nobody gets out of: no link is followed on the
    /// way, and who asks is a guest ([`Trust::Guest`]).
    ///
    /// # Errors
    /// As [`Destination::resolve`]; [`io::ErrorKind::PermissionDenied`] for a way out.
    pub fn resolve_in(
        served: &Confined,
        asked: &[u8],
        source_is_one_file: bool,
        dry: bool,
    ) -> io::Result<(Self, Option<RelPath>)> {
        let Asked { path, is_contents } = Asked::read(asked)?;
        let shown = Path::new(OsStr::from_bytes(asked));
        let guest = |folder| {
            let destination = Self::of(folder, dry).shown_as(shown);
            destination.with_trust(Trust::Guest)
        };
        match served.folder(&path, READ_FOLDER) {
            Ok(folder) => return Ok((guest(Some(folder)), None)),
            Err(error) if is(&error, &[Errno::NOTDIR, Errno::NOENT]) => {}
            Err(error) => return Err(error),
        }
        let (above, name) = served.above(&path)?;
        if source_is_one_file && !is_contents {
            let (folder, _) = path.split().ok_or(Errno::ISDIR)?;
            let folder = served.folder(&folder, READ_FOLDER)?;
            let name = RelPath::top().join(name).map_err(io::Error::other)?;
            return Ok((guest(Some(folder)), Some(name)));
        }
        let stands = statat(&above, name, AtFlags::SYMLINK_NOFOLLOW);
        if dry && matches!(stands, Err(Errno::NOENT)) {
            let destination = Self {
                above: Some(above),
                ..guest(None)
            };
            return Ok((destination, None));
        }
        match mkdirat(&above, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        Ok((guest(Some(served.folder(&path, READ_FOLDER)?)), None))
    }

    /// Reads what was written back before it gets its name, from the disk where the file system is on one.
    #[must_use]
    pub fn with_read_back(self) -> Self {
        Self {
            reads_back: true,
            ..self
        }
    }

    /// Whether files that are copied once more on the way to their names are given up.
    pub(crate) fn set_stopped(&self, is_stopped: bool) {
        self.is_stopped.store(is_stopped, Ordering::Relaxed);
    }

    fn stopped(&self) -> io::Result<()> {
        match self.is_stopped.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(()),
        }
    }

    /// Whether what was written is read back.
    pub(crate) fn reads_back(&self) -> bool {
        self.reads_back
    }

    /// Takes less of the source's word about its files; all of it otherwise.
    #[must_use]
    pub fn with_trust(self, trust: Trust) -> Self {
        Self { trust, ..self }
    }

    fn of(folder: Option<OwnedFd>, dry: bool) -> Self {
        Self::with(folder.map(Top::new), dry)
    }

    fn shown_as(self, typed: &Path) -> Self {
        let shown = typed.display().to_string();
        Self { shown, ..self }
    }

    /// What was typed, for messages.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Whether this user may make names in the folder, or in the one in which it would be made, as far as the kernel says
    /// that without making one.
    ///
    /// # Errors
    /// As access(2): no permission, a read-only file system.
    pub(crate) fn may_write(&self) -> io::Result<()> {
        let top = self.top.as_ref().map(|top| top.folder());
        let Some(folder) = top.or_else(|| self.above.as_ref().map(AsFd::as_fd)) else {
            return Ok(());
        };
        let wanted = Access::WRITE_OK | Access::EXEC_OK;
        Ok(accessat(folder, c".", wanted, AtFlags::EACCESS)?)
    }

    fn with(top: Option<Top>, dry: bool) -> Self {
        Self {
            top: top.map(Arc::new),
            above: None,
            shown: String::new(),
            dry,
            folders: Folders::default(),
            accounts: Accounts::default(),
            counts: Counts::default(),
            superuser: rustix::process::geteuid().is_root(),
            trust: Trust::Whole,
            reads_back: false,
            is_stopped: AtomicBool::new(false),
            mounts: Mutex::default(),
            is_fat: OnceLock::new(),
            is_foreign: OnceLock::new(),
            has_no_nameless: AtomicBool::new(false),
            opened_up: Mutex::default(),
            meant: Mutex::default(),
            looks: Box::default(),
        }
    }

    /// A file that grows in the staging folder `staging`, which another host made that sees this folder too; of `size`
    /// bytes, to be read and written. Nothing is made, also with what [`Destination::resolve`] calls `dry`.
    ///
    /// # Errors
    /// `ENOENT` where it is not seen from here; `InvalidData` where it is not such a file, or not this user's; as open(2).
    pub(crate) fn growing(&self, staging: &[u8], number: u64, size: u64) -> io::Result<File> {
        let top = self.top.as_ref().ok_or(Errno::NOENT)?;
        staging::growing(top, staging, number, size)
    }

    /// The staging folder of the copy `identity`: what an earlier try left, unless that still runs, or a new one.
    ///
    /// # Errors
    /// As mkdir(2) and flock(2).
    pub fn staging(&self, identity: &[u8; 16]) -> io::Result<Staging> {
        self.staging_unless(identity, &|| false)
    }

    /// As [`Destination::staging`]; an earlier try that still runs is not waited for once `is_stopped`.
    ///
    /// # Errors
    /// [`io::ErrorKind::Interrupted`] when it is; as [`Destination::staging`].
    pub fn staging_unless(
        &self,
        identity: &[u8; 16],
        is_stopped: &dyn Fn() -> bool,
    ) -> io::Result<Staging> {
        self.staging_after(identity, is_stopped, staging::HELD)
    }

    /// The same, with another limit on how long an earlier try that still runs is waited for.
    fn staging_after(
        &self,
        identity: &[u8; 16],
        is_stopped: &dyn Fn() -> bool,
        held: Duration,
    ) -> io::Result<Staging> {
        let staging = Staging::open(self.written()?, identity, is_stopped, held)?;
        self.folders.bar(staging.place());
        Ok(staging)
    }

    /// Whether nothing stands at these names at the top, or nothing at all where none are said: a source may then send small
    /// files before it is asked for them. False as well where that cannot be seen.
    pub fn is_free(&self, names: &[RelPath]) -> bool {
        let Some(top) = &self.top else {
            return true;
        };
        if names.is_empty() {
            let names = top.open(b"", READ_FOLDER).map(rustix::fs::Dir::new);
            let Ok(Ok(names)) = names else { return false };
            let is_other = |name: &[u8]| !matches!(name, b"." | b"..");
            let mut names =
                names.map(|name| name.is_ok_and(|n| !is_other(n.file_name().to_bytes())));
            return names.all(|is_itself| is_itself);
        }
        names.iter().all(|name| matches!(self.look(name), Ok(None)))
    }

    /// Whether what was looked at is a folder with something in it, which nothing that is no folder takes the place of. One
    /// that cannot be read counts as such.
    pub(crate) fn is_filled(&self, path: &RelPath, stands: &Existing) -> bool {
        let Some(top) = self
            .top
            .as_ref()
            .filter(|_| stands.kind == Standing::Folder)
        else {
            return false;
        };
        let names = top.open(path.as_bytes(), READ_FOLDER);
        let names = names.and_then(|folder| Ok(rustix::fs::Dir::new(folder)?));
        let is_other = |name: &[u8]| !matches!(name, b"." | b"..");
        names.map_or(true, |mut names| {
            names.any(|name| name.map_or(true, |name| is_other(name.file_name().to_bytes())))
        })
    }

    /// What is at `path`, a link not followed; `None` where nothing is or where something on the way is no folder.
    ///
    /// # Errors
    /// As fstatat(2).
    pub fn look(&self, path: &RelPath) -> io::Result<Option<Existing>> {
        let Some(top) = &self.top else {
            return Ok(None);
        };
        let found = self.beside(top, path, |folder, name| {
            let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let target = match kind_of(&stat) {
                FileType::Symlink => Some(readlinkat(folder, name, Vec::new())?.into_bytes()),
                _ => None,
            };
            Ok((stat, target))
        });
        match found {
            Ok((stat, target)) => Ok(Some(existing(&stat, target))),
            Err(error) if nothing_there(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the file at `path` to be read and compared.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when it is no file; `ELOOP` when it is a link; as open(2).
    pub fn open_existing(&self, path: &RelPath) -> io::Result<File> {
        let top = self.top.as_ref().ok_or(Errno::NOENT)?;
        let file = self.beside(top, path, |folder, name| {
            openat(folder, name, READ_FILE | OFlags::NOFOLLOW, Mode::empty())
        })?;
        if kind_of(&fstat(&file)?) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
        }
        Ok(File::from(file))
    }

    /// Opens the file that was looked at as `looked_at`, and nothing that somebody put in its place since.
    ///
    /// # Errors
    /// `ESTALE` where something else is at `path` by now; as [`Destination::open_existing`].
    fn open_as(&self, path: &RelPath, looked_at: &Existing) -> io::Result<File> {
        let file = self.open_existing(path)?;
        same(&fstat(&file)?, looked_at.identity)?;
        Ok(file)
    }

    /// As [`Destination::open_as`], of whatever it is, as a place only: links are not followed.
    fn place_as(&self, path: &RelPath, looked_at: &Existing) -> io::Result<OwnedFd> {
        let top = self.written()?;
        let place = self.beside(top, path, |folder, name| {
            openat(folder, name, PLACE, Mode::empty())
        })?;
        same(&fstat(&place)?, looked_at.identity)?;
        Ok(place)
    }

    /// Makes the folder `path`, if it is not there; the folder it is in must be. What stands there and is no folder, a
    /// link too, makes way. With `private`, nobody else may enter it until [`Destination::finish_folder`]; without, it
    /// has the mode of any new folder. Whether it was made.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn make_folder(&self, path: &RelPath, private: bool) -> io::Result<bool> {
        let top = self.written()?;
        if path.is_top() {
            return Ok(false);
        }
        let mode = Mode::from_raw_mode(if private { 0o700 } else { 0o777 });
        for _ in 0..REPLACE_TRIES {
            let made = self.beside(top, path, |folder, name| mkdirat(folder, name, mode));
            let is_new = match made {
                Ok(()) => {
                    self.folders.forget(path.as_bytes());
                    true
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
                Err(error) => return Err(error),
            };
            let opened = self.beside(top, path, |folder, name| {
                openat(folder, name, FOLDER_ITSELF, Mode::empty())
            });
            match opened {
                Ok(folder) => {
                    let stat = fstat(&folder)?;
                    if !is_new {
                        self.open_up(path, &folder, &stat)?;
                    }
                    self.meant()
                        .insert(path.clone(), (stat.st_dev, stat.st_ino));
                    self.folders.keep(path.as_bytes(), folder, &stat)?;
                    return Ok(is_new);
                }
                Err(error) if is(&error, &[Errno::NOTDIR, Errno::LOOP]) => {
                    // Fails where it has become a folder meanwhile, which the next try sees.
                    let _ = self.beside(top, path, |folder, name| {
                        unlinkat(folder, name, AtFlags::empty())
                    });
                    self.folders.forget(path.as_bytes());
                }
                Err(error) if is(&error, &[Errno::NOENT]) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EXIST.into())
    }

    /// Lets this user write into a folder of its own that has a mode against it.
    fn open_up(&self, path: &RelPath, folder: &OwnedFd, stat: &Stat) -> io::Result<()> {
        let mode = stat.st_mode & 0o7777;
        if self.superuser
            || mode & 0o700 == 0o700
            || stat.st_uid != rustix::process::geteuid().as_raw()
        {
            return Ok(());
        }
        // A folder that may not be read is open as a place only; its mode is changed through what /proc shows of that.
        rustix::fs::chmod(shown(folder), Mode::from_raw_mode(mode | 0o700))?;
        let mut opened_up = self
            .opened_up
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        opened_up.entry(path.clone()).or_insert(mode);
        Ok(())
    }

    fn meant(&self) -> MutexGuard<'_, HashMap<RelPath, (u64, u64)>> {
        self.meant.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a folder what belongs to it, once nothing more is written into it: the deepest first. The top may be one.
    ///
    /// # Errors
    /// `ESTALE` where it is another than [`Destination::make_folder`] made or found; as fchmod(2) and futimens(2), but for
    /// what [`Shortfalls`] counts.
    pub fn finish_folder(&self, path: &RelPath, meta: &Meta) -> io::Result<()> {
        let top = self.written()?;
        let folder = top.open(path.as_bytes(), READ_FOLDER)?;
        if let Some(identity) = self.meant().remove(path) {
            same(&fstat(&folder)?, identity)?;
        }
        let before = self
            .opened_up
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(path);
        match (meta.mode, before) {
            (None, Some(mode)) => self.dress(
                folder.as_fd(),
                &Meta {
                    mode: Some(mode),
                    ..meta.clone()
                },
            ),
            _ => self.dress(folder.as_fd(), meta),
        }
    }

    /// Puts a symbolic link at `path`, over what stands there unless that is a folder with something in it.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for an empty target or one with a NUL; [`io::ErrorKind::IsADirectory`] for a folder
    /// in the way; as symlink(2).
    pub fn symlink(
        &self,
        staging: &Staging,
        path: &RelPath,
        target: &[u8],
        meta: &Meta,
    ) -> io::Result<()> {
        check_time(meta)?;
        self.put(staging, path, |folder, name| {
            symlinkat(target, folder, name)?;
            self.dress_symlink(&openat(folder, name, PLACE, Mode::empty())?, meta)
        })
    }

    /// Whether `path` and `to` are names of one file already.
    ///
    /// # Errors
    /// As [`Destination::look`].
    pub fn is_linked(&self, path: &RelPath, to: &RelPath) -> io::Result<bool> {
        let (path, to) = (self.look(path)?, self.look(to)?);
        Ok(path
            .zip(to)
            .is_some_and(|(path, to)| path.identity == to.identity))
    }

    /// Makes `path` another name of the file `to`, over what stands there unless that is a folder with something in it.
    /// False: it was one already.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when `to` is no file; [`io::ErrorKind::IsADirectory`] for a folder in the way; as
    /// link(2).
    pub fn hardlink(&self, staging: &Staging, path: &RelPath, to: &RelPath) -> io::Result<bool> {
        let top = self.written()?;
        let Some(wanted) = self.look(to)? else {
            return Err(Errno::NOENT.into());
        };
        if wanted.kind != Standing::File {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a hard link to what is no file",
            ));
        }
        // rename(2) does nothing when both names are the same file already.
        if self
            .look(path)?
            .is_some_and(|there| there.identity == wanted.identity)
        {
            return Ok(false);
        }
        let (from, name) = self.folder_of(top, to)?;
        let linked = self.put(staging, path, |folder, new| {
            linkat(&from.open, name, folder, new, AtFlags::empty())?;
            same(
                &statat(folder, new, AtFlags::SYMLINK_NOFOLLOW)?,
                wanted.identity,
            )
        });
        match linked {
            // FAT and its like know no second name; elsewhere there are too many, or a mount ends in between.
            Err(error)
                if is(
                    &error,
                    &[
                        Errno::PERM,
                        Errno::OPNOTSUPP,
                        Errno::NOSYS,
                        Errno::MLINK,
                        Errno::XDEV,
                    ],
                ) =>
            {
                count(&self.counts.links, 1);
                self.copy_of(staging, path, to, &wanted)?;
                Ok(true)
            }
            other => other.map(|()| true),
        }
    }

    /// Makes `path` a file of its own with what `to` has, where no hard link can be made.
    fn copy_of(
        &self,
        staging: &Staging,
        path: &RelPath,
        to: &RelPath,
        like: &Existing,
    ) -> io::Result<()> {
        let file = self.open_as(to, like)?;
        let meta = Meta {
            mode: Some(like.mode),
            modified: Some(like.modified),
            owner: Some(like.owner),
            ..Meta::default()
        };
        self.put_file(staging, path, &meta, &|copy| {
            copy_sparse(&file, copy, &|| self.stopped())?;
            if self.reads_back {
                check_copy(&file, copy, &|| self.stopped())?;
            }
            self.dress(copy.as_fd(), &meta)
        })
    }

    /// Puts a finished file at `path`: what belongs to it first, then, with `fsync`, its bytes to the disk, then one
    /// rename(2) over what stands there, unless that is a folder with something in it.
    ///
    /// # Errors
    /// [`io::ErrorKind::IsADirectory`] for a folder in the way; as rename(2) and fsync(2).
    pub fn commit(
        &self,
        partial: &Partial,
        path: &RelPath,
        meta: &Meta,
        fsync: bool,
    ) -> io::Result<()> {
        let top = self.written()?;
        let meta = self.with_mode_of(path, meta)?;
        let file = partial.file().as_fd();
        self.dress(file, &meta)?;
        if fsync {
            rustix::fs::fsync(file)?;
        }
        let (folder, name) = self.folder_of(top, path)?;
        partial.is_named()?;
        match replace(partial.folder(), partial.name(), folder.open.as_fd(), name) {
            Err(error) if is(&error, &[Errno::XDEV]) => {}
            other => return other,
        }
        self.put_beside(&folder, name, &meta, &|copy| {
            copy_sparse(partial.file(), copy, &|| self.stopped())?;
            if self.reads_back {
                // The partial file was read back; this is another, on another disk.
                check_copy(partial.file(), copy, &|| self.stopped())?;
            }
            self.dress(copy.as_fd(), &meta)?;
            if fsync {
                rustix::fs::fsync(copy)?;
            }
            Ok(())
        })?;
        partial.remove_name()
    }

    /// Remembers that something was written on the file system of `folder`, for [`Destination::sync`].
    fn keep_mount(&self, folder: &Arc<Folder>) {
        self.mounts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(folder.device())
            .or_insert_with(|| Arc::clone(folder));
    }

    /// Bytes and files there is room for.
    ///
    /// # Errors
    /// As fstatvfs(3).
    pub fn room(&self) -> io::Result<Room> {
        let top = self.top.as_ref().ok_or(Errno::NOENT)?;
        room(top.folder())
    }

    /// Brings everything that was written to the disk (syncfs(2)), on every file system that was written to.
    ///
    /// # Errors
    /// As syncfs(2).
    pub fn sync(&self) -> io::Result<()> {
        syncfs(self.written()?.folder())?;
        let mounts = self.mounts.lock().unwrap_or_else(PoisonError::into_inner);
        for folder in mounts.values() {
            // A starting point only cannot be synced; what is at it can.
            let open = openat(&folder.open, c".", READ_FOLDER, Mode::empty())?;
            syncfs(&open)?;
        }
        Ok(())
    }

    /// Whether a file that stands here with the time `here` is the source's with the time `there`: the same, or as near as
    /// this file system can say it. FAT has times in steps of two seconds; FUSE and servers in any, SFTP's whole seconds.
    pub fn is_time(&self, here: Stamp, there: Stamp) -> bool {
        here == there
            || (is_cut(here, there) && self.is_foreign())
            || (here.nanoseconds.is_multiple_of(10_000_000)
                && there.seconds.abs_diff(here.seconds) <= 2
                && self.is_fat())
    }

    fn is_foreign(&self) -> bool {
        let top = self.top.as_ref();
        *self
            .is_foreign
            .get_or_init(|| top.is_some_and(|top| own::is_foreign(top)))
    }

    fn is_fat(&self) -> bool {
        *self.is_fat.get_or_init(|| {
            let kind = self
                .top
                .as_ref()
                .and_then(|top| rustix::fs::fstatfs(top.folder()).ok());
            // MSDOS_SUPER_MAGIC and EXFAT_SUPER_MAGIC in include/uapi/linux/magic.h.
            kind.is_some_and(|stat| matches!(stat.f_type, 0x4d44 | 0x2011_bab0))
        })
    }

    /// What could not be kept so far.
    pub fn shortfalls(&self) -> Shortfalls {
        let counts = &self.counts;
        let [
            owners,
            bits,
            attributes_refused,
            attributes_unsupported,
            others,
            links,
        ] = [
            &counts.owners,
            &counts.bits,
            &counts.attributes_refused,
            &counts.attributes_unsupported,
            &counts.others,
            &counts.links,
        ]
        .map(|count| count.load(Ordering::Relaxed));
        Shortfalls {
            owners,
            bits,
            attributes_refused,
            attributes_unsupported,
            others,
            links,
        }
    }

    fn written(&self) -> io::Result<&Arc<Top>> {
        match &self.top {
            Some(top) if !self.dry => Ok(top),
            _ => Err(Errno::ROFS.into()),
        }
    }

    /// The folder `path` is in, open, and its name there.
    fn folder_of<'a>(&self, top: &Top, path: &'a RelPath) -> io::Result<(Arc<Folder>, &'a [u8])> {
        let (above, name) = halves(path);
        if name.is_empty() || leads_to_staging(path.as_bytes()) {
            return Err(folders::not_written());
        }
        Ok((self.folders.open(top, above)?, name))
    }

    /// Does something to a name in its folder; once more, with the folder opened anew, where it was moved or deleted.
    fn beside<T>(
        &self,
        top: &Top,
        path: &RelPath,
        act: impl Fn(BorrowedFd<'_>, &[u8]) -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        if path.is_top() {
            return Ok(act(top.folder(), b".")?);
        }
        let (folder, name) = self.folder_of(top, path)?;
        match act(folder.open.as_fd(), name) {
            Err(Errno::NOENT) if Folders::is_stale(&folder) => {
                self.folders.forget(halves(path).0);
                let (folder, name) = self.folder_of(top, path)?;
                Ok(act(folder.open.as_fd(), name)?)
            }
            other => Ok(other?),
        }
    }

    /// Where modes are not kept, what stands at `path` hands its own on.
    fn with_mode_of<'a>(
        &self,
        path: &RelPath,
        meta: &'a Meta,
    ) -> io::Result<std::borrow::Cow<'a, Meta>> {
        use std::borrow::Cow;
        check_time(meta)?;
        if meta.mode.is_some() {
            return Ok(Cow::Borrowed(meta));
        }
        let there = self
            .look(path)?
            .filter(|there| there.kind == Standing::File);
        let mode = there.map(|there| there.mode & 0o777);
        Ok(match mode {
            Some(_) => Cow::Owned(Meta {
                mode,
                ..meta.clone()
            }),
            None => Cow::Borrowed(meta),
        })
    }

    /// Gives an open file or folder what belongs to it. The order matters: a change of owner clears bits and
    /// capabilities (chown(2)), an access control list changes the mode (acl(5)), and the time comes last.
    fn dress(&self, open: BorrowedFd<'_>, meta: &Meta) -> io::Result<()> {
        check_time(meta)?;
        let stat = fstat(open)?;
        let (user, group) = self.own(open, &stat, meta)?;
        let set = match meta.attributes.is_empty() {
            true => attributes::Set::default(),
            false => attributes::set(
                open,
                &meta.attributes,
                self.superuser && self.trust != Trust::Guest,
                user && group && self.trust == Trust::Whole,
            )?,
        };
        let removed = match meta.has_all_attributes {
            true => attributes::remove_others(open, &meta.attributes)?,
            false => attributes::Set::default(),
        };
        count(
            &self.counts.attributes_refused,
            set.refused + removed.refused,
        );
        count(&self.counts.attributes_unsupported, set.unsupported);
        if let Some(mode) = meta.mode {
            let mode = self.safe_mode(mode, &stat, user, group);
            // A change of owner may have cleared bits.
            let is_list = set.list || removed.list;
            let same = stat.st_mode & 0o7777 == mode && !is_list && mode & 0o6000 == 0;
            if !same {
                self.or_count(fchmod(open, Mode::from_raw_mode(mode)))?;
            }
        }
        if let Some(time) = meta.modified {
            self.or_count(futimens(open, &times(time, self.access(&stat))))?;
        }
        Ok(())
    }

    /// Sets owner and group; whether each is what the source has. Not so where they were not kept.
    fn own(&self, open: BorrowedFd<'_>, stat: &Stat, meta: &Meta) -> io::Result<(bool, bool)> {
        let Some(owner) = meta.owner.filter(|_| self.trust != Trust::Guest) else {
            return Ok((false, false));
        };
        let (user, group) = self.accounts.numbers(owner, meta.owner_names.as_ref());
        let (same_user, same_group) = (stat.st_uid == user, stat.st_gid == group);
        if same_user && same_group {
            return Ok((true, true));
        }
        let (user_id, group_id) = (id(user, Uid::from_raw), id(group, Gid::from_raw));
        let all = match same_user {
            true => Err(Errno::PERM),
            false => fchown(open, user_id, group_id),
        };
        match all {
            Ok(()) => return Ok((user_id.is_some(), group_id.is_some())),
            // Such as EINVAL: not a number of this user namespace.
            Err(error) if is_not_kept(error) => {}
            Err(error) => return Err(error.into()),
        }
        let group_set = same_group || (group_id.is_some() && fchown(open, None, group_id).is_ok());
        if !(same_user && group_set) {
            count(&self.counts.owners, 1);
        }
        Ok((same_user, group_set))
    }

    /// The mode without bits that would lend somebody else's rights: a program must not run as this user because the
    /// other side says so.
    fn safe_mode(&self, mode: u32, stat: &Stat, user: bool, group: bool) -> u32 {
        let is_folder = kind_of(stat) == FileType::Directory;
        let (kept, dropped) = self.lent(mode, is_folder, user, group);
        if dropped != 0 {
            count(&self.counts.bits, 1);
        }
        kept
    }

    /// What of a mode is kept, and what is not, where owner and group are the source's or not.
    fn lent(&self, mode: u32, is_folder: bool, user: bool, group: bool) -> (u32, u32) {
        let mode = mode & 0o7777;
        if is_folder {
            return (mode, 0);
        }
        let (user, group) = match self.trust {
            Trust::Whole => (user, group),
            Trust::NoSetId | Trust::Guest => (false, false),
        };
        let dropped =
            (if user { 0 } else { mode & 0o4000 }) | (if group { 0 } else { mode & 0o2000 });
        (mode & !dropped, dropped)
    }

    /// Gives a link, open as a place, what belongs to it.
    fn dress_symlink(&self, link: &OwnedFd, meta: &Meta) -> io::Result<()> {
        let stat = fstat(link)?;
        if kind_of(&stat) != FileType::Symlink {
            return Err(replaced());
        }
        let mut is_kept = false;
        if let Some(owner) = meta.owner.filter(|_| self.trust != Trust::Guest) {
            let (user, group) = self.accounts.numbers(owner, meta.owner_names.as_ref());
            is_kept = true;
            if (stat.st_uid, stat.st_gid) != (user, group) {
                let (user, group) = (id(user, Uid::from_raw), id(group, Gid::from_raw));
                match chownat(link, c"", user, group, AtFlags::EMPTY_PATH) {
                    Ok(()) => {}
                    Err(error) if is_not_kept(error) => {
                        is_kept = false;
                        count(&self.counts.owners, 1);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        if !meta.attributes.is_empty() {
            let trusted = is_kept && self.superuser && self.trust == Trust::Whole;
            let set = attributes::set_on_link(link, &meta.attributes, trusted)?;
            count(&self.counts.attributes_refused, set.refused);
            count(&self.counts.attributes_unsupported, set.unsupported);
        }
        if let Some(time) = meta.modified {
            self.or_count(set_time(link, time, self.access(&stat)))?;
        }
        Ok(())
    }

    /// The time of access to be set with that of modification, where a file system may not set one of them alone: libfuse 2
    /// passes over such a call and reports success.
    fn access(&self, stat: &Stat) -> Option<Timespec> {
        self.is_foreign().then(|| Timespec {
            tv_sec: stat.st_atime,
            tv_nsec: i64::try_from(stat.st_atime_nsec).unwrap_or(0),
        })
    }

    fn or_count(&self, done: rustix::io::Result<()>) -> io::Result<()> {
        match done {
            // Somebody else's folder, or a time the file system cannot hold.
            Err(error) if is_not_kept(error) => {
                count(&self.counts.others, 1);
                Ok(())
            }
            other => Ok(other?),
        }
    }
}

/// How often something in the way is removed before it counts as an error: somebody puts it back each time.
const REPLACE_TRIES: usize = 16;
/// What is at a name, not what it leads to; needs no right to it.
const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FOLDER_ITSELF: OFlags = PLACE.union(OFlags::DIRECTORY);
/// What a file is told by that reads otherwise than it was written.
pub(crate) const NOT_AS_WRITTEN: &str = "what the disk gives back is not what was written";

/// Brings a file to the disk and lets go of what the kernel has of it in memory, so that the next read is the disk's. Only
/// what is on the disk is let go (posix_fadvise(2)); a file system in memory has nothing else.
pub(crate) fn out_of_memory(file: &File) -> io::Result<()> {
    rustix::fs::fsync(file)?;
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

/// Copies a file with its holes, unless `stopped` fails.
fn copy_sparse(from: &File, to: &File, stopped: &dyn Fn() -> io::Result<()>) -> io::Result<()> {
    use std::os::unix::fs::FileExt as _;
    let size = from.metadata()?.len();
    data_in(from, 0..size, &mut |block, at| {
        stopped()?;
        to.write_all_at(block, at)
    })?;
    to.set_len(size)
}

/// Hands what is no hole of `bytes` of a file to `each`, with where it begins, at most 1 MiB at a time.
pub(crate) fn data_in(
    file: &File,
    bytes: Range<u64>,
    each: &mut dyn FnMut(&[u8], u64) -> io::Result<()>,
) -> io::Result<()> {
    use rustix::fs::{SeekFrom, seek};
    use std::os::unix::fs::FileExt as _;
    let mut room = Vec::new();
    let place = room::place(&mut room, 1 << 20, PAGE);
    let block = &mut room[place];
    let mut at = bytes.start;
    while at < bytes.end {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(error) => return Err(error.into()),
        };
        let end = seek(file, SeekFrom::Hole(start))
            .unwrap_or(bytes.end)
            .max(start + 1)
            .min(bytes.end);
        at = start;
        while at < end {
            let most = usize::try_from(end - at)
                .unwrap_or(usize::MAX)
                .min(block.len());
            let read = file.read_at(&mut block[..most], at)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            each(&block[..read], at)?;
            at += read as u64;
        }
    }
    Ok(())
}

/// Reads a copy back from the disk and holds it against what it is of.
///
/// # Errors
/// With [`NOT_AS_WRITTEN`] where they differ; as `stopped`, read(2) and fsync(2).
fn check_copy(of: &File, copy: &File, stopped: &dyn Fn() -> io::Result<()>) -> io::Result<()> {
    use std::os::unix::fs::FileExt as _;
    out_of_memory(copy)?;
    let size = of.metadata()?.len();
    let differs = || Err(io::Error::other(NOT_AS_WRITTEN));
    if copy.metadata()?.len() != size {
        return differs();
    }
    let mut room = Vec::new();
    let place = room::place(&mut room, 1 << 20, PAGE);
    let other = &mut room[place];
    // Where either has data: the other has the same, or a hole that reads as zeros.
    for (one, another) in [(copy, of), (of, copy)] {
        data_in(one, 0..size, &mut |block, at| {
            stopped()?;
            let other = &mut other[..block.len()];
            another.read_exact_at(other, at)?;
            match *other == *block {
                true => Ok(()),
                false => differs(),
            }
        })?;
    }
    Ok(())
}

/// The folder a path is in, and its name there.
fn halves(path: &RelPath) -> (&[u8], &[u8]) {
    let bytes = path.as_bytes();
    match bytes.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&bytes[..slash], &bytes[slash + 1..]),
        None => (b"", bytes),
    }
}

fn room(folder: BorrowedFd<'_>) -> io::Result<Room> {
    let stat = fstatvfs(folder)?;
    let files = if stat.f_files == 0 {
        u64::MAX
    } else {
        stat.f_favail
    };
    Ok(Room {
        bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        files,
    })
}

fn existing(stat: &Stat, target: Option<Vec<u8>>) -> Existing {
    let kind = match (kind_of(stat), target) {
        (FileType::Directory, _) => Standing::Folder,
        (FileType::RegularFile, _) => Standing::File,
        (FileType::Symlink, Some(target)) => Standing::Symlink {
            target: target.into(),
        },
        _ => Standing::Special,
    };
    Existing {
        kind,
        size: size_of(stat),
        modified: modified(stat),
        mode: stat.st_mode & 0o7777,
        owner: (stat.st_uid, stat.st_gid),
        #[allow(
            clippy::useless_conversion,
            reason = "its width differs between architectures"
        )]
        links: stat.st_nlink.into(),
        identity: (stat.st_dev, stat.st_ino),
    }
}

/// `u32::MAX` is chown(2)'s word for "leave it", never an owner.
fn id<T>(number: u32, from: impl Fn(u32) -> T) -> Option<T> {
    (number != u32::MAX).then(|| from(number))
}

fn times(modified: Stamp, access: Option<Timespec>) -> Timestamps {
    Timestamps {
        last_access: access.unwrap_or(Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        }),
        last_modification: Timespec {
            tv_sec: modified.seconds,
            tv_nsec: modified.nanoseconds.into(),
        },
    }
}

/// Sets the time of what is open as a place.
fn set_time(place: &OwnedFd, time: Stamp, access: Option<Timespec>) -> rustix::io::Result<()> {
    let times = times(time, access);
    match utimensat(place, c"", &times, AtFlags::EMPTY_PATH) {
        // Before Linux 5.8.
        Err(Errno::INVAL) => utimensat(CWD, shown(place), &times, AtFlags::empty()),
        other => other,
    }
}

/// Whether a time is another one cut to a step that file systems have, in nanoseconds.
fn is_cut(here: Stamp, there: Stamp) -> bool {
    const STEPS: [u32; 4] = [100, 1_000, 10_000_000, 1_000_000_000];
    let cut = |step| there.nanoseconds - there.nanoseconds % step;
    here.seconds == there.seconds && STEPS.iter().any(|step| here.nanoseconds == cut(*step))
}

/// Nanoseconds from a second up have meanings of their own in utimensat(2).
fn check_time(meta: &Meta) -> io::Result<()> {
    match meta.modified {
        Some(time) if time.nanoseconds >= 1_000_000_000 => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a time with more nanoseconds than a second has",
        )),
        _ => Ok(()),
    }
}

fn count(counter: &AtomicU64, by: u64) {
    if by > 0 {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

/// The folder that the last name of a path is in.
pub(crate) fn folder_above(path: &Path) -> &Path {
    match path.parent() {
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
        None => path,
    }
}

/// What keeps a destination from being made.
fn no_folder_above(error: Errno) -> io::Error {
    match error {
        Errno::NOENT => io::Error::new(
            io::ErrorKind::NotFound,
            "the folder above it is not there; make it first",
        ),
        other => other.into(),
    }
}

/// Refuses what is not the file or folder of that device and number.
fn same(stat: &Stat, identity: (u64, u64)) -> io::Result<()> {
    match (stat.st_dev, stat.st_ino) == identity {
        true => Ok(()),
        false => Err(replaced()),
    }
}

fn replaced() -> io::Error {
    let text = "another user or program put something else in its place meanwhile; copy again";
    io::Error::new(io::ErrorKind::StaleNetworkFileHandle, text)
}

/// The way to what is open, for calls that take no descriptor.
fn shown(open: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", open.as_raw_fd())
}

fn is(error: &io::Error, any: &[Errno]) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    errno.is_some_and(|errno| any.contains(&errno))
}

fn nothing_there(error: &io::Error) -> bool {
    is(error, &[Errno::NOENT, Errno::NOTDIR, Errno::LOOP])
}

#[cfg(test)]
mod tests;
