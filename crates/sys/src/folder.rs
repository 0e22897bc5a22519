//! Files in a folder that others may have prepared: a run folder from somebody else, /tmp, the working directory.
//!
//! The folder is held by its descriptor, so what is read and what is written are in the same one, whatever becomes of
//! its name. Names in it are never followed: a symbolic link is refused when it is read, and what is written is a new
//! file. A file is replaced as a whole, by a new one under a name that nobody can guess, renamed into place: whatever
//! had the name before, such as a link, a hard link or a pipe, is neither opened nor changed.
//!
//! What a user names, such as an output file or a folder, is followed as always.
//!
//! Source: open(2), openat(2), rename(2).

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

use crate::random;

/// A folder, held by its descriptor.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// The folder that a user named, by a link too.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(path: &Path) -> io::Result<Self> {
        let at = match path.as_os_str().is_empty() {
            true => Path::new("."),
            false => path,
        };
        let fd = openat(CWD, at, FOLDER, Mode::empty())?;
        let path = path.to_owned();
        Ok(Self { fd, path })
    }

    /// The folder that holds `path`, and the name of `path` in it.
    ///
    /// # Errors
    /// `InvalidInput` where `path` ends in no name; as open(2).
    pub fn of(path: &Path) -> io::Result<(Self, &OsStr)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((
            Self::open(path.parent().unwrap_or_else(|| Path::new("")))?,
            name,
        ))
    }

    /// Makes a folder that is new, in `parent`, which is made with its own parents where it is missing.
    ///
    /// # Errors
    /// As [`Self::make`] and mkdir(2).
    pub fn fresh(parent: &Path, name: impl AsRef<OsStr>) -> io::Result<Self> {
        std::fs::create_dir_all(parent)?;
        Self::open(parent)?.make(name, 0o777)
    }

    /// Makes a folder in this one: what has the name already is neither taken nor followed. `mode` is cut by the umask.
    ///
    /// # Errors
    /// `EEXIST` where anything has that name; as mkdirat(2) and open(2).
    pub fn make(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<Self> {
        let component = component(name.as_ref())?;
        mkdirat(&self.fd, component, Mode::from_raw_mode(mode))?;
        self.folder(component)
    }

    /// A folder in this one: not what a link in its place leads to.
    ///
    /// # Errors
    /// `ENOTDIR` for anything else, a symbolic link too; as open(2).
    pub fn folder(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = component(name.as_ref())?;
        let fd = openat(&self.fd, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
        let path = self.path.join(name);
        Ok(Self { fd, path })
    }

    /// Opens a directory in this one to list or lock it: not what a link in its place leads to.
    ///
    /// # Errors
    /// As [`Self::folder`].
    pub fn directory(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.at(name.as_ref(), OFlags::DIRECTORY | INPUT | OFlags::NOFOLLOW)
    }

    /// What it is, by its descriptor.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn metadata(&self) -> io::Result<Metadata> {
        File::from(self.fd.try_clone()?).metadata()
    }

    /// Opens a regular file for reading: a link is not followed, a pipe not waited for.
    ///
    /// # Errors
    /// `InvalidInput` for what is no regular file; as open(2).
    pub fn read(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        regular(self.at(name.as_ref(), INPUT | OFlags::NOFOLLOW))
    }

    /// Opens the file of a lock and makes it where there is none. Its content is nobody's concern and stays.
    ///
    /// # Errors
    /// `InvalidInput` for what is no regular file; as open(2).
    pub fn lock_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        regular(self.at(name.as_ref(), flags | OFlags::NOCTTY | OFlags::CLOEXEC))
    }

    /// Makes a file, with the permissions that the umask leaves.
    ///
    /// # Errors
    /// `EEXIST` where anything has that name; as open(2).
    pub fn create(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.at(name.as_ref(), NEW)
    }

    /// Begins a file that takes the place of `name` once it is whole.
    ///
    /// # Errors
    /// As open(2).
    pub fn draft(&self, name: impl AsRef<OsStr>) -> io::Result<Draft> {
        let name = component(name.as_ref())?.to_owned();
        // Held once more, so that a draft may outlive what began it.
        let folder = self.fd.try_clone()?;
        let temporary = OsString::from(format!("{PREFIX}{}", random::digits()?));
        let file = self.at(&temporary, NEW)?;
        Ok(Draft {
            folder,
            name,
            temporary: Some(temporary),
            file,
        })
    }

    /// Replaces a file as a whole.
    ///
    /// # Errors
    /// As open(2), write(2), fsync(2), rename(2); then nothing has changed.
    pub fn replace(&self, name: impl AsRef<OsStr>, content: &[u8]) -> io::Result<()> {
        let mut draft = self.draft(name)?;
        draft.write_all(content)?;
        draft.place()
    }

    /// Removes a file, or the link that has its name.
    ///
    /// # Errors
    /// As unlinkat(2).
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        let name = component(name.as_ref())?;
        Ok(unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// Where it was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn at(&self, name: &OsStr, flags: OFlags) -> io::Result<File> {
        let name = component(name)?;
        let file = openat(self.fd.as_fd(), name, flags, Mode::from_raw_mode(0o666))?;
        Ok(file.into())
    }
}

/// A name in a folder: no path, which could lead through a link.
fn component(name: &OsStr) -> io::Result<&OsStr> {
    match Path::new(name).file_name() {
        Some(only) if only == name => Ok(name),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the name of a file in a folder is one component",
        )),
    }
}

/// A file that is not in its place yet. Dropped before that, it is gone.
#[derive(Debug)]
pub struct Draft {
    folder: OwnedFd,
    name: OsString,
    /// What it is called until it is in its place.
    temporary: Option<OsString>,
    file: File,
}

impl Draft {
    /// Puts it in its place once it is on the disk: errors that a network file system or a full disk would keep until
    /// after the close come out here.
    ///
    /// # Errors
    /// As fsync(2) and rename(2); then nothing is left of it.
    pub fn place(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        if let Some(temporary) = &self.temporary {
            renameat(&self.folder, temporary, &self.folder, &self.name)?;
        }
        self.temporary = None;
        Ok(())
    }

    /// What the file is, by its descriptor.
    ///
    /// # Errors
    /// As fstat(2).
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // The reason why it is given up matters more.
            let _ = unlinkat(&self.folder, temporary, AtFlags::empty());
        }
    }
}

/// A folder of this process alone below the one for temporary files: nobody else can guess its name or enter it. It is
/// removed with what is in it when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new one; `what` is for whoever finds it.
    ///
    /// # Errors
    /// As getrandom(2), open(2) and mkdirat(2).
    pub fn new(what: &str) -> io::Result<Self> {
        let parent = Folder::open(&std::env::temp_dir())?;
        let name = format!("goodput-{what}-{}", random::digits()?);
        Ok(Self(parent.make(name, 0o700)?.path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Replaces the file `path` as a whole; a link in its place is replaced, not followed.
///
/// # Errors
/// As [`Folder::replace`].
pub fn replace(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    let (folder, name) = Folder::of(path)?;
    folder.replace(name, content.as_ref())
}

/// Opens a regular file that a user named, by a link too, for reading. A pipe is refused, not waited for.
///
/// # Errors
/// `InvalidInput` for what is no regular file; as open(2).
pub fn input(path: &Path) -> io::Result<File> {
    regular(
        openat(CWD, path, INPUT, Mode::empty())
            .map_or_else(|error| Err(error.into()), |file| Ok(File::from(file))),
    )
}

/// What was opened, by its descriptor: a name may mean another file a moment later.
fn regular(opened: io::Result<File>) -> io::Result<File> {
    let no_file = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    match opened {
        Ok(file) if file.metadata()?.is_file() => Ok(file),
        Ok(_) => no_file("it is not a regular file"),
        Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::LOOP) => no_file("it is not a regular file but a symbolic link"),
            // A socket, or a device without a driver.
            Some(Errno::NXIO) => no_file("it is not a regular file"),
            _ => Err(error),
        },
    }
}

/// Only to reach what is in it: a folder that may not be listed will do.
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Without waiting for a pipe's writer.
const INPUT: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
/// `O_EXCL` does not follow a link (open(2)).
const NEW: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Names of files that are not in their place yet begin so.
pub const PREFIX: &str = ".goodput-out-";

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::{MetadataExt, symlink};

    /// What another user may have put in a file's place.
    const KINDS: [&str; 6] = [
        "link",
        "dangling link",
        "hard link",
        "pipe",
        "device",
        "folder",
    ];

    fn prepare(kind: &str, at: &Path, victim: &Path) {
        match kind {
            "link" => symlink(victim, at).unwrap(),
            "dangling link" => symlink(victim.with_extension("new"), at).unwrap(),
            "hard link" => fs::hard_link(victim, at).unwrap(),
            "pipe" => {
                let kind = rustix::fs::FileType::Fifo;
                rustix::fs::mknodat(CWD, at, kind, Mode::from_raw_mode(0o666), 0).unwrap();
            }
            "device" => symlink("/dev/zero", at).unwrap(),
            _ => fs::create_dir(at).unwrap(),
        }
    }

    #[test]
    fn what_has_a_files_name_is_never_written_through_nor_read() {
        let scratch = Scratch::new("folder-test").unwrap();
        let (victim, text) = (scratch.path().join("victim"), b"precious");
        fs::write(&victim, text).unwrap();
        for kind in KINDS {
            let path = scratch.path().join(kind).join("file");
            fs::create_dir(path.parent().unwrap()).unwrap();
            prepare(kind, &path, &victim);
            let (folder, name) = Folder::of(&path).unwrap();
            if kind != "hard link" {
                let error = folder.read(name).unwrap_err();
                let wanted = match kind {
                    "dangling link" | "link" | "device" => "symbolic link",
                    _ => "not a regular file",
                };
                assert!(error.to_string().contains(wanted), "{kind}: {error}");
                assert!(folder.lock_file(name).is_err(), "{kind}");
            }
            let error = folder.create(name).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{kind}");
            let replaced = replace(&path, "new");
            assert_eq!(replaced.is_ok(), kind != "folder", "{kind}: {replaced:?}");
            if kind != "folder" {
                let mut read = String::new();
                folder
                    .read(name)
                    .unwrap()
                    .read_to_string(&mut read)
                    .unwrap();
                assert_eq!(read, "new", "{kind}");
                assert_eq!(fs::metadata(&path).unwrap().nlink(), 1, "{kind}");
            }
            assert_eq!(fs::read(&victim).unwrap(), text, "{kind}");
            assert!(!victim.with_extension("new").exists(), "{kind}");
            assert_eq!(
                fs::read_dir(path.parent().unwrap()).unwrap().count(),
                1,
                "{kind}"
            );
        }
    }

    #[test]
    fn a_folder_stays_the_same_when_its_name_means_another() {
        let scratch = Scratch::new("folder-test").unwrap();
        let (parent, victim) = (scratch.path().join("parent"), scratch.path().join("victim"));
        fs::create_dir(&parent).unwrap();
        fs::create_dir(&victim).unwrap();
        let folder = Folder::open(&parent).unwrap().make("run", 0o777).unwrap();
        fs::rename(parent.join("run"), parent.join("away")).unwrap();
        symlink(&victim, parent.join("run")).unwrap();
        folder.replace("page", b"x").unwrap();
        folder.create("other").unwrap();
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
        assert_eq!(fs::read_dir(parent.join("away")).unwrap().count(), 2);
        let parent = Folder::open(&parent).unwrap();
        assert!(parent.folder("run").is_err(), "a link");
        let error = parent.make("run", 0o777).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        for name in ["", ".", "..", "a/b", "/a", "a/"] {
            assert!(folder.create(name).is_err(), "{name}");
            assert!(folder.make(name, 0o777).is_err(), "{name}");
            assert!(folder.folder(name).is_err(), "{name}");
            assert!(folder.draft(name).is_err(), "{name}");
            assert!(folder.remove(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_draft_that_is_given_up_leaves_what_was_there() {
        let scratch = Scratch::new("folder-test").unwrap();
        let folder = Folder::open(scratch.path()).unwrap();
        folder.replace("file", b"old").unwrap();
        let mut draft = folder.draft("file").unwrap();
        draft.write_all(b"new").unwrap();
        drop(draft);
        assert_eq!(fs::read(scratch.path().join("file")).unwrap(), b"old");
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_user_names_is_followed_and_a_pipe_is_not_waited_for() {
        let scratch = Scratch::new("folder-test").unwrap();
        let at = |name: &str| scratch.path().join(name);
        fs::write(at("file"), "x").unwrap();
        symlink(at("file"), at("to-file")).unwrap();
        prepare("pipe", &at("pipe"), &at("file"));
        assert!(input(&at("to-file")).is_ok());
        assert_eq!(
            input(&at("pipe")).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
}
