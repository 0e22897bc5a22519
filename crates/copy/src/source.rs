//! The side that is read: what the user named, walked folder by folder.
//!
//! Below what the user named, no symbolic link is followed: folders and files are opened by name from the folder they are
//! in, or by one call that stays beneath it. What changes while it is read is found by its [`Fingerprint`].
//!
//! Left out: times of access, and the contents of devices. Sockets, pipes and devices are told as [`Skipped`].

mod file;
mod list;
mod walk;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;

use crate::accounts::Accounts;
use crate::beneath::{READ_FILE, READ_FOLDER, Top, is_staging, kind_of};
use crate::confined::{Asked, Confined};
use crate::entry::{Entry, RelPath};
use crate::listing::Names;

pub use self::file::{Fingerprint, RANGES_MOST, SourceFile};
pub use self::list::{ListError, listed};

/// What is kept of files beside their bytes; everything, unless the user says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Permission bits.
    pub mode: bool,
    /// Owner and group.
    pub owner: bool,
    /// Times of last modification.
    pub times: bool,
    /// Extended attributes and access control lists.
    pub attributes: bool,
    /// Hard links: several names of one file stay names of one file.
    pub links: bool,
}

impl Default for Keep {
    fn default() -> Self {
        Self {
            mode: true,
            owner: true,
            times: true,
            attributes: true,
            links: true,
        }
    }
}

/// What a walk comes to.
#[derive(Clone, Debug)]
pub enum Walked {
    /// Something to copy.
    Found(Found),
    /// Something that is not, or not wholly, copied; the walk goes on.
    Skipped(Skipped),
}

/// Something to copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Name, kind and what belongs to it.
    pub entry: Entry,
    /// Of a file whose bytes are to be copied ([`crate::Kind::File`]).
    pub fingerprint: Option<Fingerprint>,
    /// Bytes of it that are on the disk, at most its size: fewer where it has holes. 0 for what is no file.
    pub data: u64,
}

/// Something that is not, or not wholly, copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Where, below the top; where a name is too long for a path, the folder it is in.
    pub path: RelPath,
    /// Why.
    pub why: Why,
}

/// Why something is not copied.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// A socket.
    Socket,
    /// A named pipe.
    Pipe,
    /// A block or character device.
    Device,
    /// It may not be read, or reading failed, for this reason.
    Unreadable(Box<str>),
    /// It was there when its folder was read, and then no more; or it became something else.
    Gone,
    /// A list names it, or a name in it, and it was not there.
    Missing,
    /// The path or a link's target is longer or deeper than [`RelPath`] allows.
    Long,
    /// A folder with more names than are held in memory.
    Crowded,
    /// It is copied, without its extended attributes: they could not be read or are more than
    /// [`crate::ATTRIBUTES_BYTES_MOST`].
    Attributes,
    /// It is copied, as a file of its own: more names of files with several names than are held in memory.
    Links,
}

impl Why {
    /// Whether something of the tree is missing where it was copied to that a copy of it should have.
    pub const fn is_missing(&self) -> bool {
        !matches!(
            self,
            Self::Socket | Self::Pipe | Self::Device | Self::Attributes | Self::Links
        )
    }
}

impl Why {
    /// Of a socket, a named pipe and a device, which of them in this order.
    pub(crate) const fn special(&self) -> Option<usize> {
        match self {
            Self::Socket => Some(0),
            Self::Pipe => Some(1),
            Self::Device => Some(2),
            _ => None,
        }
    }
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Socket => "a socket: skipped",
            Self::Pipe => "a named pipe: skipped",
            Self::Device => "a device: skipped",
            Self::Unreadable(why) => return write!(f, "cannot be read: {why}"),
            Self::Gone => "gone or replaced since its folder was read",
            Self::Missing => "no such file or folder; the list names it or a name in it",
            Self::Long => "a path that is too long or too deep",
            Self::Crowded => "a folder with too many names",
            Self::Attributes => "copied without its extended attributes",
            Self::Links => "copied as a file of its own: too many hard links",
        })
    }
}

/// Why what the user named cannot be a source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The user named nothing.
    #[error("nothing to copy was named")]
    Nothing,
    /// It cannot be opened.
    #[error("{path}: {error}")]
    Open {
        /// As typed.
        path: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// A slash at the end of what is no folder.
    #[error("{path}: not a folder; leave out the slash at its end")]
    NoFolder {
        /// As typed.
        path: String,
    },
    /// Two of what was named would get one name at the destination.
    #[error("two things named {name} would be copied to one place; copy them one after the other")]
    Twice {
        /// The name.
        name: RelPath,
    },
    /// A name that cannot be told to the other side.
    #[error("{path}: {error}")]
    Path {
        /// As typed.
        path: String,
        /// What is wrong with it.
        error: crate::entry::PathError,
    },
}

/// What of a folder belongs to a source.
#[derive(Debug)]
enum What {
    /// All that is in it, at the top.
    Contents,
    /// One name in it.
    Name(Box<[u8]>),
    /// What a list names, sorted, and whether each is copied with all that is in it.
    List(Vec<(RelPath, bool)>),
}

#[derive(Debug)]
struct Part {
    top: Top,
    what: What,
    /// What the user typed, for messages.
    typed: String,
}

/// What is copied: everything the user named, as one tree.
#[derive(Debug)]
pub struct Source {
    parts: Vec<Part>,
    /// Whose part each name at the top is, where there are several.
    owners: HashMap<Box<[u8]>, usize>,
    accounts: Accounts,
    superuser: bool,
}

impl Source {
    /// Opens what the user named, as rsync(1) reads it: `dir` becomes a folder `dir` at the destination, `dir/` (or
    /// `dir/.`, `.`, `..`) gives what is in it, `file` becomes `file`. A symbolic link is copied as one, unless a slash
    /// follows it.
    ///
    /// # Errors
    /// As [`SourceError`] tells.
    pub fn open<P: AsRef<Path>>(operands: &[P]) -> Result<Self, SourceError> {
        let parts = operands
            .iter()
            .map(|operand| part(operand.as_ref()))
            .collect::<Result<_, _>>()?;
        Self::of(parts)
    }

    /// Opens a folder of which only `names` are copied (`--files-from`, see [`listed`]). The folders they are in are
    /// copied with them, without what else is in those.
    ///
    /// # Errors
    /// As [`SourceError`] tells.
    pub fn from_list(folder: &Path, mut names: Vec<(RelPath, bool)>) -> Result<Self, SourceError> {
        let told = |error| SourceError::Open {
            path: shown(folder),
            error,
        };
        let top = Top::new(open_folder(folder).map_err(told)?);
        // By names, not by bytes: a/b stands right behind a, before a-b.
        names.sort_unstable_by(|(a, whole_a), (b, whole_b)| {
            a.names().cmp(b.names()).then(whole_b.cmp(whole_a))
        });
        names.dedup_by(|(a, _), (b, _)| a == b);
        Self::of(vec![Part {
            top,
            what: What::List(names),
            typed: shown(folder),
        }])
    }

    /// As [`Source::open`], of what is in a folder that nobody gets out of: no link is followed on the way.
    ///
    /// # Errors
    /// As [`SourceError`] tells.
    pub fn open_in(served: &Confined, asked: &[Vec<u8>]) -> Result<Self, SourceError> {
        let parts = asked.iter().map(|asked| part_in(served, asked));
        Self::of(parts.collect::<Result<_, _>>()?)
    }

    fn of(parts: Vec<Part>) -> Result<Self, SourceError> {
        if parts.is_empty() {
            return Err(SourceError::Nothing);
        }
        let superuser = rustix::process::geteuid().is_root();
        let mut source = Self {
            parts,
            owners: HashMap::new(),
            accounts: Accounts::default(),
            superuser,
        };
        if source.parts.len() > 1 {
            source.settle_owners()?;
        }
        Ok(source)
    }

    fn settle_owners(&mut self) -> Result<(), SourceError> {
        for (index, part) in self.parts.iter().enumerate() {
            let names: Vec<Box<[u8]>> = match &part.what {
                What::Name(name) => vec![name.clone()],
                What::Contents | What::List(_) => part.names()?,
            };
            for name in names {
                let path = RelPath::top().join(&name).unwrap_or_default();
                if self.owners.insert(name, index).is_some() {
                    return Err(SourceError::Twice { name: path });
                }
            }
        }
        Ok(())
    }

    /// Whether it is one thing that is no folder: then a destination that does not exist is its new name.
    pub fn is_one_file(&self) -> bool {
        let [
            Part {
                top,
                what: What::Name(name),
                ..
            },
        ] = &self.parts[..]
        else {
            return false;
        };
        let stat = statat(top.folder(), &name[..], AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| kind_of(&stat) != FileType::Directory)
    }

    /// The folders that are copied with all that is in them: where `--delete` may look. The top, for `dir/`.
    pub fn roots(&self) -> Vec<RelPath> {
        let mut roots = Vec::new();
        for part in &self.parts {
            match &part.what {
                What::Contents => return vec![RelPath::top()],
                What::Name(name) => roots.extend(RelPath::top().join(name)),
                What::List(names) => {
                    roots.extend(
                        names
                            .iter()
                            .filter(|(_, whole)| *whole)
                            .map(|(path, _)| path.clone()),
                    );
                }
            }
        }
        roots
    }

    /// Opens the file `path` to be read, wherever it came from.
    ///
    /// The file's position is of no meaning: read at offsets (pread(2)).
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] when it is no file any more; `ELOOP` when a link stands on the way; as open(2).
    pub fn open_file(&self, path: &RelPath) -> io::Result<SourceFile> {
        SourceFile::new(self.part_of(path)?.top.open(path.as_bytes(), READ_FILE)?)
    }

    /// Whether what is at `path` now is what `fingerprint` says. It is not opened for reading.
    ///
    /// # Errors
    /// As open(2).
    pub(crate) fn is_as(&self, path: &RelPath, fingerprint: &Fingerprint) -> io::Result<bool> {
        let part = self.part_of(path)?;
        let place = part.top.open(path.as_bytes(), OFlags::PATH)?;
        Ok(Fingerprint::of(&fstat(&place)?) == *fingerprint)
    }

    /// Opens it past the kernel's page cache, if it is still what `fingerprint` says: blocks of another file would be taken
    /// for this one's.
    pub(crate) fn past_cache(
        &self,
        path: &RelPath,
        fingerprint: &Fingerprint,
    ) -> rustix::io::Result<OwnedFd> {
        let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let flags = READ_FILE | OFlags::DIRECT;
        let part = self.part_of(path).map_err(errno)?;
        let open = part.top.open(path.as_bytes(), flags).map_err(errno)?;
        match Fingerprint::of(&fstat(&open)?) == *fingerprint {
            true => Ok(open),
            false => Err(Errno::STALE),
        }
    }

    fn part_of(&self, path: &RelPath) -> io::Result<&Part> {
        if let [part] = &self.parts[..] {
            return Ok(part);
        }
        let owner = path.names().next().and_then(|name| self.owners.get(name));
        let part = owner.and_then(|index| self.parts.get(*index));
        part.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Part {
    fn names(&self) -> Result<Vec<Box<[u8]>>, SourceError> {
        let read = self
            .top
            .open(b"", READ_FOLDER)
            .and_then(|folder| Names::of(folder.as_fd()));
        let names = read.map_err(|error| SourceError::Open {
            path: self.typed.clone(),
            error,
        })?;
        let all = (0..names.len()).map(|index| names.name(index));
        Ok(all
            .filter(|name| !is_staging(name))
            .map(Into::into)
            .collect())
    }
}

fn part(typed: &Path) -> Result<Part, SourceError> {
    let told = |error| SourceError::Open {
        path: shown(typed),
        error,
    };
    let bytes = typed.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(told(Errno::NOENT.into()));
    }
    let name = bytes
        .rsplit(|byte| *byte == b'/')
        .next()
        .unwrap_or_default();
    if matches!(name, b"" | b"." | b"..") {
        let folder = open_folder(typed).map_err(|error| match error.kind() {
            io::ErrorKind::NotADirectory => SourceError::NoFolder { path: shown(typed) },
            _ => told(error),
        })?;
        return Ok(Part {
            top: Top::new(folder),
            what: What::Contents,
            typed: shown(typed),
        });
    }
    RelPath::new(name).map_err(|error| SourceError::Path {
        path: shown(typed),
        error,
    })?;
    let above = OsStr::from_bytes(&bytes[..bytes.len() - name.len()]);
    let above = if above.is_empty() {
        Path::new(".")
    } else {
        Path::new(above)
    };
    // Only passed through: it need not be readable.
    let folder = openat(
        CWD,
        above,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    );
    let folder = folder.map_err(|error| told(error.into()))?;
    statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| told(error.into()))?;
    Ok(Part {
        top: Top::new(folder),
        what: What::Name(name.into()),
        typed: shown(typed),
    })
}

fn part_in(served: &Confined, asked: &[u8]) -> Result<Part, SourceError> {
    let typed = asked.escape_ascii().to_string();
    let opened = Asked::read(asked).and_then(|Asked { path, is_contents }| {
        if is_contents {
            return Ok((served.folder(&path, READ_FOLDER)?, What::Contents));
        }
        let (folder, name) = served.above(&path)?;
        statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((folder, What::Name(name.into())))
    });
    match opened {
        Ok((folder, what)) => Ok(Part {
            top: Top::new(folder),
            what,
            typed,
        }),
        Err(error) => Err(SourceError::Open { path: typed, error }),
    }
}

fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, READ_FOLDER, Mode::empty())?)
}

/// As a terminal may show it.
fn shown(path: &Path) -> String {
    path.as_os_str().as_bytes().escape_ascii().to_string()
}

#[cfg(test)]
mod tests;
