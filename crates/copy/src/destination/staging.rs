//! Where files grow: a folder in the top that only this user may enter, locked while it is used.
//!
//! It outlives the process that made it. Whoever copies the same thing again finds it by its identity, if nobody holds its
//! lock (flock(2)), which ends with the process.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, RawDir, flock, fstat, mkdirat, openat,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::beneath::{
    READ_FILE, READ_FOLDER, STAGING_PREFIX, Top, fresh_digits, is_staging, kind_of, stored,
};
use crate::listing::Names;

const IDENTITY: &str = "identity";
const JOURNAL: &str = "journal";
/// Goes with what an earlier try left half made.
const NEW_JOURNAL: &str = "n-journal";
/// How long a folder that is in use is waited for.
const HELD: Duration = Duration::from_secs(4);
/// The most staging folders of a top that are looked at. Each is a copy that was not finished, and costs some five calls; what
/// only lies beyond is begun anew.
const FOLDERS_MOST: usize = 4_096;
/// Room for what one getdents64(2) answers.
const READ_BYTES: usize = 32 << 10;
/// How often another name is tried for a new folder.
const NAME_TRIES: usize = 64;
const OWN_FILE: OFlags = OFlags::RDWR
    .union(OFlags::CREATE)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// The staging folder of one copy, locked while this exists. Dropped, it stays for another try.
#[derive(Debug)]
pub struct Staging {
    top: Arc<Top>,
    folder: Arc<OwnedFd>,
    name: Vec<u8>,
    device: u64,
    identity: [u8; 16],
    own: Own,
    resumed: bool,
    /// Number of the next short-lived name.
    next: AtomicU64,
}

/// A file that grows in a staging folder. Dropped, it stays for another try.
#[derive(Debug)]
pub struct Partial {
    file: File,
    folder: Arc<OwnedFd>,
    name: String,
    resumed: bool,
}

impl Staging {
    pub(super) fn open(
        top: &Arc<Top>,
        identity: &[u8; 16],
        is_stopped: &dyn Fn() -> bool,
    ) -> io::Result<Self> {
        let since = Instant::now();
        let mut own = Own::usual();
        loop {
            let mut is_held = false;
            let there = all(top)?;
            if there.iter().any(|name| !own.is(top, name)) {
                own = Own::here(top).unwrap_or(own);
            }
            for name in there {
                match locked(top, &name, &own)? {
                    Some((folder, Some(found))) if found == *identity => {
                        return Self::of(top, folder, name, *identity, own, true);
                    }
                    None => is_held |= identity_of(top, &name) == Some(*identity),
                    _ => {}
                }
            }
            // An earlier try that was killed at one end may need a moment to end at the other.
            if !is_held || since.elapsed() > HELD {
                break;
            }
            if is_stopped() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            thread::sleep(Duration::from_millis(50));
        }
        for _ in 0..NAME_TRIES {
            let name = [STAGING_PREFIX, fresh_digits().as_bytes()].concat();
            match mkdirat(top.folder(), &name, Mode::RWXU) {
                Err(Errno::EXIST) => continue,
                other => other?,
            }
            if !own.is(top, &name) {
                own = Own::of(top, &name)?;
            }
            // Somebody who looks for a folder of theirs may hold the lock for a moment.
            if let Some((folder, None)) = locked(top, &name, &own)? {
                write_identity(&folder, identity)?;
                return Self::of(top, folder, name, *identity, own, false);
            }
            // Not ours; empty, or it is somebody's.
            let _ = unlinkat(top.folder(), &name[..], AtFlags::REMOVEDIR);
        }
        Err(Errno::BUSY.into())
    }

    fn of(
        top: &Arc<Top>,
        folder: OwnedFd,
        name: Vec<u8>,
        identity: [u8; 16],
        own: Own,
        resumed: bool,
    ) -> io::Result<Self> {
        let device = fstat(&folder)?.st_dev;
        let (top, folder) = (top.clone(), Arc::new(folder));
        let staging = Self {
            top,
            folder,
            name,
            device,
            identity,
            own,
            resumed,
            next: AtomicU64::new(0),
        };
        if resumed {
            // What was on its way to its place when an earlier try ended is made again.
            staging.clean(|name| name.starts_with(b"n"))?;
        }
        Ok(staging)
    }

    /// Whether an earlier try left it.
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// Its own name, in the top.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// The file in which the copy notes what it has done, empty in a new folder; to be read and written.
    ///
    /// # Errors
    /// As open(2).
    pub fn journal(&self) -> io::Result<File> {
        own_file(&self.folder, JOURNAL).map(|(file, _)| file)
    }

    /// An empty file in which the journal is written anew, for [`Staging::replace_journal`].
    ///
    /// # Errors
    /// As open(2).
    pub fn new_journal(&self) -> io::Result<File> {
        own_file(&self.folder, NEW_JOURNAL).map(|(file, _)| file)
    }

    /// Puts what was written anew in the journal's place.
    ///
    /// # Errors
    /// As rename(2).
    pub fn replace_journal(&self) -> io::Result<()> {
        Ok(renameat(
            &*self.folder,
            NEW_JOURNAL,
            &*self.folder,
            JOURNAL,
        )?)
    }

    /// The growing file of number `number`, `size` bytes long, of which `data` are to be written at most: all holes when
    /// it is new, and otherwise with what an earlier try wrote.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] when the file system has no room for `data` bytes beside those it has of the file;
    /// `EFBIG` when no file may be so long; as open(2).
    pub fn partial(&self, number: u64, size: u64, data: u64) -> io::Result<Partial> {
        let name = format!("p{number}");
        let (file, resumed) = own_file(&self.folder, &name)?;
        let partial = Partial {
            file,
            folder: self.folder.clone(),
            name,
            resumed,
        };
        let stat = fstat(&partial.file)?;
        let missing = data.min(size).saturating_sub(stored(&stat));
        let prepared = match missing > super::room(self.folder.as_fd())?.bytes {
            true => Err(io::ErrorKind::StorageFull.into()),
            false if super::size_of(&stat) != size => partial.file.set_len(size),
            false => Ok(()),
        };
        if prepared.is_err() && !resumed {
            // The error is told; what could not be prepared is worth nothing.
            let _ = partial.remove();
        }
        prepared.map(|()| partial)
    }

    /// The numbers of the growing files that are there, in order.
    ///
    /// # Errors
    /// As getdents64(2).
    pub fn partials(&self) -> io::Result<Vec<u64>> {
        let names = self.names()?;
        let numbers = (0..names.len()).filter_map(|index| {
            let digits = names.name(index).strip_prefix(b"p")?;
            std::str::from_utf8(digits).ok()?.parse().ok()
        });
        let mut numbers: Vec<u64> = numbers.collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Removes the growing file of number `number`, if there is one.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn remove(&self, number: u64) -> io::Result<()> {
        match unlinkat(&*self.folder, format!("p{number}"), AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Removes the folder and all that is in it: the copy is done, or not wanted any more.
    ///
    /// # Errors
    /// As unlink(2) and rmdir(2).
    pub fn discard(&self) -> io::Result<()> {
        self.remove_all()?;
        // What another try at the same left, which nobody will ask for any more.
        for name in all(&self.top)? {
            if let Some((folder, Some(found))) = locked(&self.top, &name, &self.own)?
                && found == self.identity
            {
                Self::of(&self.top, folder, name, found, self.own, true)?.remove_all()?;
            }
        }
        Ok(())
    }

    fn remove_all(&self) -> io::Result<()> {
        // The identity last: until then, a folder half removed is found again.
        self.clean(|name| name != IDENTITY.as_bytes())?;
        self.clean(|_| true)?;
        Ok(unlinkat(
            self.top.folder(),
            &self.name[..],
            AtFlags::REMOVEDIR,
        )?)
    }

    pub(super) fn device(&self) -> u64 {
        self.device
    }

    /// Makes something new here under a name of its own and hands it to `mv`, which takes it to its place.
    pub(super) fn make_and_move(
        &self,
        make: impl Fn(BorrowedFd<'_>, &[u8]) -> io::Result<()>,
        mv: impl FnOnce(BorrowedFd<'_>, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let name = format!("n{}", self.next.fetch_add(1, Ordering::Relaxed));
        let (folder, name) = (self.folder.as_fd(), name.as_bytes());
        let made = make(folder, name).and_then(|()| mv(folder, name));
        if made.is_err() {
            // It may never have been made.
            let _ = unlinkat(folder, name, AtFlags::empty());
        }
        made
    }

    fn names(&self) -> io::Result<Names> {
        Names::of(openat(&*self.folder, c".", READ_FOLDER, Mode::empty())?.as_fd())
    }

    fn clean(&self, is_rubbish: impl Fn(&[u8]) -> bool) -> io::Result<()> {
        let names = self.names()?;
        for name in (0..names.len())
            .map(|index| names.name(index))
            .filter(|name| is_rubbish(name))
        {
            unlinkat(&*self.folder, name, AtFlags::empty())?;
        }
        Ok(())
    }
}

impl Partial {
    /// The file, to be written at offsets.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The same file open once more, past the kernel's page cache.
    pub(crate) fn past_cache(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OWN_FILE.difference(OFlags::CREATE) | OFlags::DIRECT;
        openat(&*self.folder, &self.name, flags, Mode::empty())
    }

    /// Whether an earlier try left it.
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// Makes holes of `bytes`, whatever an earlier try left there.
    ///
    /// # Errors
    /// As fallocate(2), write(2).
    pub(crate) fn clear(&self, bytes: std::ops::Range<u64>) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        use std::os::unix::fs::FileExt as _;
        if bytes.is_empty() {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, bytes.start, bytes.end - bytes.start) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            other => return Ok(other?),
        }
        // FAT and others have no holes to make.
        super::data_in(
            &self.file,
            bytes,
            &mut |block, at| match block.iter().any(|byte| *byte != 0) {
                true => self.file.write_all_at(&vec![0; block.len()], at),
                false => Ok(()),
            },
        )
    }

    /// Lets this user open it again, whatever mode it was given on the way to its name.
    pub(crate) fn keep_open(&self) {
        use std::os::unix::fs::PermissionsExt as _;
        if let Ok(stat) = self.file.metadata() {
            let mode = std::fs::Permissions::from_mode(stat.permissions().mode() | 0o600);
            // Where that fails, it is told when it is opened.
            let _ = self.file.set_permissions(mode);
        }
    }

    pub(super) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    pub(super) fn name(&self) -> &[u8] {
        self.name.as_bytes()
    }

    pub(super) fn remove(&self) -> io::Result<()> {
        Ok(unlinkat(&*self.folder, &self.name, AtFlags::empty())?)
    }
}

/// How a folder looks that this user makes for itself alone, mode 0700.
///
/// FAT and some mounts of other systems keep neither owner nor mode, and a server that does not trust the superuser
/// (`root_squash` in exports(5)) makes what it writes somebody else's. There, nobody can say whose a folder is better than
/// by comparing it with one that was just made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Own {
    user: u32,
    /// Permission bits for others that cannot be taken away.
    open: u32,
}

impl Own {
    /// Where owners and modes are kept.
    fn usual() -> Self {
        Self {
            user: rustix::process::geteuid().as_raw(),
            open: 0,
        }
    }

    /// As a folder looks that this user has just made.
    fn of(top: &Top, name: &[u8]) -> io::Result<Self> {
        let stat = statat(top.folder(), name, AtFlags::SYMLINK_NOFOLLOW)?;
        if kind_of(&stat) != FileType::Directory {
            return Err(Errno::NOTDIR.into());
        }
        Ok(Self {
            user: stat.st_uid,
            open: stat.st_mode & 0o077,
        })
    }

    /// By making one, and removing it.
    fn here(top: &Top) -> io::Result<Self> {
        let name = [STAGING_PREFIX, fresh_digits().as_bytes()].concat();
        mkdirat(top.folder(), &name, Mode::RWXU)?;
        let own = Self::of(top, &name);
        let _ = unlinkat(top.folder(), &name[..], AtFlags::REMOVEDIR);
        own
    }

    /// Whether a folder looks so.
    fn is(&self, top: &Top, name: &[u8]) -> bool {
        let stat = statat(top.folder(), name, AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| self.fits(stat.st_uid, stat.st_mode))
    }

    const fn fits(&self, user: u32, mode: u32) -> bool {
        user == self.user && mode & 0o077 & !self.open == 0
    }
}

/// Names of all staging folders, sorted, but [`FOLDERS_MOST`] at most. What else is in the top may be more than fits into
/// memory.
fn all(top: &Top) -> io::Result<Vec<Vec<u8>>> {
    let folder = top.open(b"", READ_FOLDER)?;
    let mut room = Vec::with_capacity(READ_BYTES);
    let mut read = RawDir::new(&folder, room.spare_capacity_mut());
    let mut names = Vec::new();
    while names.len() < FOLDERS_MOST
        && let Some(entry) = read.next()
    {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if is_staging(name) {
            names.push(name.to_vec());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Whose a folder is that somebody uses.
fn identity_of(top: &Top, name: &[u8]) -> Option<[u8; 16]> {
    let flags = READ_FOLDER | OFlags::NOFOLLOW;
    let folder = openat(top.folder(), name, flags, Mode::empty()).ok()?;
    read_identity(&folder).ok()?
}

/// The folder `name`, locked, and the identity in it, if one was written. `None` when it is no staging folder of this user,
/// or somebody uses it.
fn locked(top: &Top, name: &[u8], own: &Own) -> io::Result<Option<(OwnedFd, Option<[u8; 16]>)>> {
    let folder = match openat(
        top.folder(),
        name,
        READ_FOLDER | OFlags::NOFOLLOW,
        Mode::empty(),
    ) {
        Ok(folder) => folder,
        Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT | Errno::ACCESS) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let stat = fstat(&folder)?;
    // One that others could have filled is not ours, whatever its name.
    if !own.fits(stat.st_uid, stat.st_mode) {
        return Ok(None);
    }
    match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        // A file system without locks: two copies of one thing at once are up to the user.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK) | Ok(()) => {}
        Err(error) => return Err(error.into()),
    }
    // Its user may have removed it between the opening and the lock.
    let here = statat(top.folder(), name, AtFlags::SYMLINK_NOFOLLOW);
    if !here.is_ok_and(|here| (here.st_dev, here.st_ino) == (stat.st_dev, stat.st_ino)) {
        return Ok(None);
    }
    let identity = read_identity(&folder)?;
    Ok(Some((folder, identity)))
}

/// A growing file of a staging folder that another host holds.
pub(super) fn growing(top: &Top, staging: &[u8], number: u64, size: u64) -> io::Result<File> {
    let invalid = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text);
    if !is_staging(staging) {
        return Err(invalid("a folder that is none for unfinished files"));
    }
    let flags = READ_FOLDER | OFlags::NOFOLLOW;
    let folder = openat(top.folder(), staging, flags, Mode::empty())?;
    let stat = fstat(&folder)?;
    let fits = |own: &Own| own.fits(stat.st_uid, stat.st_mode);
    if !fits(&Own::usual()) && !Own::here(top).is_ok_and(|own| fits(&own)) {
        return Err(invalid(
            "a folder for unfinished files that is not this user's",
        ));
    }
    let flags = OWN_FILE.difference(OFlags::CREATE);
    let file = openat(&folder, format!("p{number}"), flags, Mode::empty())?;
    let stat = fstat(&file)?;
    if kind_of(&stat) != FileType::RegularFile || super::size_of(&stat) != size {
        return Err(invalid("an unfinished file of another length"));
    }
    Ok(file.into())
}

fn read_identity(folder: &OwnedFd) -> io::Result<Option<[u8; 16]>> {
    let file = match openat(
        folder,
        IDENTITY,
        READ_FILE | OFlags::NOFOLLOW,
        Mode::empty(),
    ) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut bytes = Vec::with_capacity(17);
    file.take(17).read_to_end(&mut bytes)?;
    Ok(bytes.try_into().ok())
}

fn write_identity(folder: &OwnedFd, identity: &[u8; 16]) -> io::Result<()> {
    let (mut file, _) = own_file(folder, "n-identity")?;
    file.write_all(identity)?;
    Ok(renameat(folder, "n-identity", folder, IDENTITY)?)
}

/// Opens a file of ours, or makes it; whether it was there. Everybody's mode, less the umask: nobody else gets here, and
/// it is the mode of a file of which none is kept.
fn own_file(folder: &OwnedFd, name: &str) -> io::Result<(File, bool)> {
    let mode = Mode::from_raw_mode(0o666);
    let (open, was_there) = match openat(folder, name, OWN_FILE | OFlags::EXCL, mode) {
        Ok(open) => (open, false),
        Err(Errno::EXIST) => (openat(folder, name, OWN_FILE, mode)?, true),
        Err(error) => return Err(error.into()),
    };
    if kind_of(&fstat(&open)?) != FileType::RegularFile {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "something in a staging folder that is no file",
        ));
    }
    Ok((File::from(open), was_there))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn top(scratch: &Scratch) -> Arc<Top> {
        let folder = openat(rustix::fs::CWD, scratch.path(), READ_FOLDER, Mode::empty());
        Arc::new(Top::new(folder.unwrap()))
    }

    #[test]
    fn staging_folders_are_found_among_whatever_else_is_there() {
        let scratch = Scratch::new();
        let top = top(&scratch);
        assert_eq!(all(&top).unwrap(), [b""; 0]);
        // More names than one call answers, and some that only look alike.
        for n in 0..5_000 {
            scratch.folder(format!("other-{n}-of-a-name-that-is-long"));
        }
        scratch.folder(".goodput-part-short");
        scratch.folder(".goodput-new-0123456789abcdef");
        let names = ["0000000000000001", "0123456789abcdef", "fedcba9876543210"];
        let names = names.map(|digits| format!(".goodput-part-{digits}"));
        for name in names.iter().rev() {
            scratch.folder(name);
        }
        assert_eq!(all(&top).unwrap(), names.map(String::into_bytes));
    }

    #[test]
    fn who_left_more_folders_than_are_looked_at_begins_anew() {
        let scratch = Scratch::new();
        for n in 0..FOLDERS_MOST + 5 {
            scratch.folder(format!(".goodput-part-{n:016x}"));
        }
        let top = top(&scratch);
        assert_eq!(all(&top).unwrap().len(), FOLDERS_MOST);
        let staging = Staging::open(&top, &[1; 16], &|| false).unwrap();
        assert!(!staging.resumed());
        staging.discard().unwrap();
    }

    #[test]
    fn a_folder_that_others_could_have_filled_is_nobodys_own() {
        let usual = Own { user: 7, open: 0 };
        assert!(usual.fits(7, 0o040_700) && usual.fits(7, 0o042_700));
        assert!(!usual.fits(8, 0o040_700) && !usual.fits(7, 0o040_750));
        // FAT with umask=022: all looks so, whoever made it.
        let fat = Own {
            user: 0,
            open: 0o055,
        };
        assert!(fat.fits(0, 0o040_755) && !fat.fits(0, 0o040_777) && !fat.fits(7, 0o040_755));
        // A superuser who is nobody at the server.
        let squashed = Own {
            user: 65_534,
            open: 0,
        };
        assert!(squashed.fits(65_534, 0o040_700) && !squashed.fits(65_534, 0o040_777));
        assert!(!squashed.fits(7, 0o040_700));
    }
}
