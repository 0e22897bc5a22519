//! Where files grow: a folder in the top that only this user may enter, locked while it is used.
//!
//! It outlives the process that made it. Whoever copies the same thing again finds it by its identity, if nobody holds its
//! lock (flock(2)), which ends with the process.
//!
//! The owner of the top may rename, exchange and replace whatever is in it, at any time. So nothing is learnt from a name
//! there: the folder is opened once, without following a link, and what its descriptor says decides. It must belong to this
//! user, closed to all others and, if it is new, empty. All in it is reached by that descriptor, where no other user gets.
//! Its name is a hash of its identity and a secret, which are in it: whoever sees only names makes no other that fits.

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

use crate::beneath::{READ_FILE, READ_FOLDER, STAGING_PREFIX, Top, is_staging, kind_of, stored};
use crate::digest::sum_of;
use crate::key::SessionId;
use crate::listing::Names;

use super::own::Own;

/// What the file of this name holds: the identity, then the secret.
const IDENTITY: &str = "identity";
const IDENTITY_BYTES: usize = 16 + 16;
const JOURNAL: &str = "journal";
/// Goes with what an earlier try left half made.
const NEW_JOURNAL: &str = "n-journal";
/// How long a folder that is in use is waited for.
pub(super) const HELD: Duration = Duration::from_secs(4);
/// The most staging folders of a top that are looked at. Each is a copy that was not finished, and costs some five calls; what
/// only lies beyond is begun anew.
const FOLDERS_MOST: usize = 4_096;
/// Room for what one getdents64(2) answers.
const READ_BYTES: usize = 32 << 10;
/// How often, and after what pause, a folder is tried to be removed in which a file system keeps what was open: 2 s in all.
const REMOVE_TRIES: u32 = 40;
const REMOVE_PAUSE: Duration = Duration::from_millis(50);
/// How often another name is tried for a new folder: whoever owns the top may put something else in its place.
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
    /// Device and number there.
    place: (u64, u64),
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
        held: Duration,
    ) -> io::Result<Self> {
        let since = Instant::now();
        let own = Own::of(top)?;
        loop {
            let mut is_held = false;
            for name in all(top)? {
                match look(top, &name, own)? {
                    Found::Free(folder, Some(found)) if found == *identity => {
                        return Self::of(top, folder, name, *identity, own, true);
                    }
                    Found::Held(found) => is_held |= found == Some(*identity),
                    _ => {}
                }
            }
            // An earlier try that was killed at one end may need a moment to end at the other.
            if !is_held || since.elapsed() > held {
                break;
            }
            if is_stopped() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            thread::sleep(Duration::from_millis(50));
        }
        for _ in 0..NAME_TRIES {
            let SessionId(secret) = SessionId::random()?;
            let name = name_of(identity, &secret);
            match mkdirat(top.folder(), &name, Mode::RWXU) {
                Err(Errno::EXIST) => continue,
                other => other?,
            }
            match made(top, &name, own, identity, &secret) {
                Ok(Some(folder)) => return Self::of(top, folder, name, *identity, own, false),
                // Not ours; empty, or it is somebody's.
                Ok(None) => drop(unlinkat(top.folder(), &name[..], AtFlags::REMOVEDIR)),
                Err(error) => {
                    let _ = unlinkat(top.folder(), &name[..], AtFlags::REMOVEDIR);
                    return Err(error);
                }
            }
        }
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "each new folder for unfinished files was replaced before it was opened, or is not as it was made: another user \
             changes the destination folder meanwhile, or this file system keeps neither owners nor modes",
        ))
    }

    fn of(
        top: &Arc<Top>,
        folder: OwnedFd,
        name: Vec<u8>,
        identity: [u8; 16],
        own: Own,
        resumed: bool,
    ) -> io::Result<Self> {
        let stat = fstat(&folder)?;
        let (top, folder) = (top.clone(), Arc::new(folder));
        let staging = Self {
            top,
            folder,
            name,
            place: (stat.st_dev, stat.st_ino),
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
        own_file(&self.folder, self.own, JOURNAL, PRIVATE)
    }

    /// An empty file in which the journal is written anew, for [`Staging::replace_journal`].
    ///
    /// # Errors
    /// As open(2).
    pub fn new_journal(&self) -> io::Result<File> {
        own_file(&self.folder, self.own, NEW_JOURNAL, PRIVATE)
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
    /// it is new, and otherwise with what an earlier try wrote. With `private`, only this user may read it until it gets a
    /// mode of its own; without, it has the mode of any new file.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] when the file system has no room for `data` bytes beside those it has of the file;
    /// `EFBIG` when no file may be so long; as open(2).
    pub fn partial(&self, number: u64, size: u64, data: u64, private: bool) -> io::Result<Partial> {
        let name = format!("p{number}");
        let mode = if private { PRIVATE } else { USUAL };
        let (file, resumed) = self.grown(&name, mode)?;
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
        match prepared {
            Ok(()) => Ok(partial),
            Err(error) => {
                if !resumed {
                    // What could not be prepared is worth nothing.
                    let _ = partial.remove();
                }
                Err(error)
            }
        }
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
            if let Found::Free(folder, Some(found)) = look(&self.top, &name, self.own)?
                && found == self.identity
            {
                Self::of(&self.top, folder, name, found, self.own, true)?.remove_all()?;
            }
        }
        Ok(())
    }

    fn remove_all(&self) -> io::Result<()> {
        for tries in 0.. {
            // The identity last: until then, a folder half removed is found again.
            self.clean(|name| name != IDENTITY.as_bytes())?;
            self.clean(|_| true)?;
            match unlinkat(self.top.folder(), &self.name[..], AtFlags::REMOVEDIR) {
                // Somebody renamed it; it is empty.
                Err(_) if !is_at(&self.top, &self.name, self.place) => return Ok(()),
                // FUSE closes files a moment after this process did, and keeps what is open under another name; a file that
                // another thread holds is closed soon.
                Err(Errno::NOTEMPTY | Errno::EXIST) if tries < REMOVE_TRIES => {
                    thread::sleep(REMOVE_PAUSE);
                }
                other => return Ok(other?),
            }
        }
        Ok(())
    }

    pub(super) fn device(&self) -> u64 {
        self.place.0
    }

    /// Device and number there.
    pub(super) fn place(&self) -> (u64, u64) {
        self.place
    }

    /// A growing file, and whether an earlier try left it. One that has its owner already, on the way to its place, or more
    /// names than one, is copied: nothing is written into what others may have open.
    fn grown(&self, name: &str, mode: Mode) -> io::Result<(File, bool)> {
        let there = match opened(&self.folder, self.own, name, mode)? {
            Opened::New(file) => return Ok((file, false)),
            Opened::Own(file) => return Ok((file, true)),
            Opened::Other(there) => there,
        };
        let new = format!("n{}", self.next.fetch_add(1, Ordering::Relaxed));
        let file = own_file(&self.folder, self.own, &new, mode)?;
        super::copy_sparse(&there, &file, &|| Ok(()))?;
        renameat(&*self.folder, &new, &*self.folder, name)?;
        Ok((file, true))
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
        Names::of(again(&self.folder)?.as_fd())
    }

    fn clean(&self, is_rubbish: impl Fn(&[u8]) -> bool) -> io::Result<()> {
        let names = self.names()?;
        for name in (0..names.len())
            .map(|index| names.name(index))
            .filter(|name| is_rubbish(name))
        {
            match unlinkat(&*self.folder, name, AtFlags::empty()) {
                // What FUSE and NFS kept under another name goes by itself once it is closed.
                Ok(()) | Err(Errno::NOENT | Errno::BUSY) => {}
                Err(error) => return Err(error.into()),
            }
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
        clear(&self.file, bytes)
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

    /// Refuses where its name is another file's.
    pub(super) fn is_named(&self) -> io::Result<()> {
        let stat = fstat(&self.file)?;
        let there = statat(&*self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        super::same(&there, (stat.st_dev, stat.st_ino))
    }

    /// Removes its name, and leaves it open.
    pub(super) fn remove_name(&self) -> io::Result<()> {
        Ok(unlinkat(&*self.folder, &self.name, AtFlags::empty())?)
    }

    /// Closes and removes it, in this order: FUSE and NFS give an open file another name in place of removing it.
    pub(super) fn remove(self) -> io::Result<()> {
        let Self {
            file, folder, name, ..
        } = self;
        drop(file);
        Ok(unlinkat(&*folder, &name, AtFlags::empty())?)
    }
}

/// Makes holes of `bytes` of a growing file, or zeros where there are no holes.
///
/// # Errors
/// As fallocate(2), write(2).
pub(crate) fn clear(file: &File, bytes: std::ops::Range<u64>) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use std::os::unix::fs::FileExt as _;
    if bytes.is_empty() {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match fallocate(file, flags, bytes.start, bytes.end - bytes.start) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
        other => return Ok(other?),
    }
    // FAT and others have no holes to make.
    super::data_in(
        file,
        bytes,
        &mut |block, at| match block.iter().any(|byte| *byte != 0) {
            true => file.write_all_at(&vec![0; block.len()], at),
            false => Ok(()),
        },
    )
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

/// What the folder of a staging folder's name is.
enum Found {
    /// None of this user's.
    Other,
    /// Somebody uses it, as this user: whose it is, if that was written.
    Held(Option<[u8; 16]>),
    /// It is locked now, and whose it is, if that was written.
    Free(OwnedFd, Option<[u8; 16]>),
}

/// Looks at the folder `name`, and locks it if it is this user's and nobody uses it.
fn look(top: &Top, name: &[u8], own: Own) -> io::Result<Found> {
    let folder = match openat(
        top.folder(),
        name,
        READ_FOLDER | OFlags::NOFOLLOW,
        Mode::empty(),
    ) {
        Ok(folder) => folder,
        Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT | Errno::ACCESS) => return Ok(Found::Other),
        Err(error) => return Err(error.into()),
    };
    let stat = fstat(&folder)?;
    // One that others could have filled is not ours, whatever its name.
    if !own.fits(&stat) {
        return Ok(Found::Other);
    }
    match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(Found::Held(read_identity(&folder, own, name)?)),
        // A file system without locks: two copies of one thing at once are up to the user.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK) | Ok(()) => {}
        Err(error) => return Err(error.into()),
    }
    // Its user may have removed it between the opening and the lock.
    if !is_at(top, name, (stat.st_dev, stat.st_ino)) {
        return Ok(Found::Other);
    }
    let identity = read_identity(&folder, own, name)?;
    Ok(Found::Free(folder, identity))
}

/// Whether what has this name is what has this place.
fn is_at(top: &Top, name: &[u8], place: (u64, u64)) -> bool {
    let here = statat(top.folder(), name, AtFlags::SYMLINK_NOFOLLOW);
    here.is_ok_and(|here| (here.st_dev, here.st_ino) == place)
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
    let own = match Own::usual() {
        usual if usual.fits(&stat) => usual,
        _ => Own::of(top)?,
    };
    if !own.fits(&stat) {
        return Err(invalid(
            "a folder for unfinished files that is not this user's",
        ));
    }
    if read_identity(&folder, own, staging)?.is_none() {
        return Err(invalid(
            "a folder for unfinished files under another name than its own",
        ));
    }
    let flags = OWN_FILE.difference(OFlags::CREATE);
    let file = openat(&folder, format!("p{number}"), flags, Mode::empty())?;
    let stat = fstat(&file)?;
    if kind_of(&stat) != FileType::RegularFile || super::size_of(&stat) != size {
        return Err(invalid("an unfinished file of another length"));
    }
    if !own.has_alone(&stat) {
        return Err(invalid("an unfinished file that is not this user's alone"));
    }
    Ok(file.into())
}

/// The name of the staging folder that holds `identity` and `secret`.
fn name_of(identity: &[u8; 16], secret: &[u8; 16]) -> Vec<u8> {
    let mut name = STAGING_PREFIX.to_vec();
    for byte in &sum_of(&[*identity, *secret].concat())[..8] {
        name.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
    name
}

/// The identity in the staging folder `name`; `None` where none was written, or the folder has another's name.
fn read_identity(folder: &OwnedFd, own: Own, name: &[u8]) -> io::Result<Option<[u8; 16]>> {
    let file = match openat(
        folder,
        IDENTITY,
        READ_FILE | OFlags::NOFOLLOW,
        Mode::empty(),
    ) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if !own.has_alone(&fstat(&file)?) {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(IDENTITY_BYTES + 1);
    let most = IDENTITY_BYTES as u64 + 1;
    File::from(file).take(most).read_to_end(&mut bytes)?;
    let (Some(identity), Some(secret)) = (bytes.first_chunk(), bytes.last_chunk()) else {
        return Ok(None);
    };
    let is_its_own = bytes.len() == IDENTITY_BYTES && name_of(identity, secret) == name;
    Ok(is_its_own.then_some(*identity))
}

/// The folder that was just made, locked, with whose it is written in it; `None` where it is another. Where that fails, nothing is
/// left in it.
fn made(
    top: &Top,
    name: &[u8],
    own: Own,
    identity: &[u8; 16],
    secret: &[u8; 16],
) -> io::Result<Option<OwnedFd>> {
    // Somebody who looks for a folder of theirs may hold the lock for a moment, and who owns the top may have put another in
    // its place.
    let Found::Free(folder, None) = look(top, name, own)? else {
        return Ok(None);
    };
    if Names::of(again(&folder)?.as_fd())?.len() > 0 {
        return Ok(None);
    }
    let written = write_identity(&folder, own, identity, secret);
    if written.is_err() {
        for name in [NEW_IDENTITY, IDENTITY] {
            let _ = unlinkat(&folder, name, AtFlags::empty());
        }
    }
    written.map(|()| Some(folder))
}

fn write_identity(
    folder: &OwnedFd,
    own: Own,
    identity: &[u8; 16],
    secret: &[u8; 16],
) -> io::Result<()> {
    let mut file = own_file(folder, own, NEW_IDENTITY, PRIVATE)?;
    file.write_all(&[*identity, *secret].concat())?;
    Ok(renameat(folder, NEW_IDENTITY, folder, IDENTITY)?)
}

/// An open folder, open once more from its first name on.
fn again(folder: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(openat(folder, c".", READ_FOLDER, Mode::empty())?)
}

/// Everybody's mode, less the umask: the mode of a file of which none is kept.
const USUAL: Mode = Mode::from_bits_retain(0o666);
/// What [`IDENTITY`] is called until it is written.
const NEW_IDENTITY: &str = "n-identity";
/// Of a file that nobody else is to read, or that gets a mode of its own on the way to its place.
const PRIVATE: Mode = Mode::from_bits_retain(0o600);

/// A file in a staging folder.
enum Opened {
    /// It was made.
    New(File),
    /// It is this user's alone.
    Own(File),
    /// Somebody else's, or one with more names than this.
    Other(File),
}

/// Opens a file, or makes it.
fn opened(folder: &OwnedFd, own: Own, name: &str, mode: Mode) -> io::Result<Opened> {
    match openat(folder, name, OWN_FILE | OFlags::EXCL, mode) {
        Ok(open) => return Ok(Opened::New(open.into())),
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OWN_FILE.difference(OFlags::CREATE);
    let open = openat(folder, name, flags, Mode::empty())?;
    let stat = fstat(&open)?;
    if kind_of(&stat) != FileType::RegularFile {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "something in a staging folder that is no file",
        ));
    }
    Ok(match own.has_alone(&stat) {
        true => Opened::Own(open.into()),
        false => Opened::Other(open.into()),
    })
}

/// Opens a file of ours, or makes it; what is not this user's alone makes way.
fn own_file(folder: &OwnedFd, own: Own, name: &str, mode: Mode) -> io::Result<File> {
    for _ in 0..2 {
        match opened(folder, own, name, mode)? {
            Opened::New(file) | Opened::Own(file) => return Ok(file),
            Opened::Other(_) => unlinkat(folder, name, AtFlags::empty())?,
        }
    }
    Err(super::replaced())
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
        let staging = Staging::open(&top, &[1; 16], &|| false, HELD).unwrap();
        assert!(!staging.resumed());
        staging.discard().unwrap();
    }
}
