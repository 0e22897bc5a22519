//! The names of a folder, and a way down a tree and up again that holds few descriptors.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, RawDir};

use crate::beneath::{READ_FOLDER, Top};
use crate::entry::RelPath;

/// The most bytes of names in one folder: some 10 million names of 25 bytes.
pub(crate) const NAMES_BYTES_MOST: usize = 256 << 20;
/// Room for what one getdents64(2) answers.
const READ_BYTES: usize = 32 << 10;
/// How many of the folders on the way down stay open; the others are opened anew on the way up.
const OPEN_MOST: usize = 32;

/// A folder's names, sorted by bytes, 16 bytes each beside their own.
#[derive(Debug, Default)]
pub(crate) struct Names {
    bytes: Vec<u8>,
    /// Start, length, what it was when it was read.
    each: Vec<(u32, u8, FileType)>,
}

impl Names {
    /// Reads `folder`, which was just opened.
    ///
    /// # Errors
    /// [`io::ErrorKind::OutOfMemory`] beyond [`NAMES_BYTES_MOST`]; as getdents64(2).
    pub(crate) fn of(folder: BorrowedFd<'_>) -> io::Result<Self> {
        let mut names = Self::default();
        let mut room = Vec::with_capacity(READ_BYTES);
        let mut read = RawDir::new(folder, room.spare_capacity_mut());
        while let Some(entry) = read.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            names.push(name, entry.file_type())?;
        }
        names.bytes.shrink_to_fit();
        names.each.shrink_to_fit();
        let bytes = &names.bytes;
        names
            .each
            .sort_unstable_by(|a, b| name_at(bytes, *a).cmp(name_at(bytes, *b)));
        Ok(names)
    }

    fn push(&mut self, name: &[u8], kind: FileType) -> io::Result<()> {
        let start = u32::try_from(self.bytes.len()).ok();
        let start = start.filter(|_| self.bytes.len() + name.len() <= NAMES_BYTES_MOST);
        // Some network file systems have names over NAME_MAX; nobody could open them here by a path.
        let (Some(start), Ok(length)) = (start, u8::try_from(name.len())) else {
            let why = "a folder with more names than fit into memory";
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, why));
        };
        self.bytes.extend_from_slice(name);
        self.each.push((start, length, kind));
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.each.len()
    }

    pub(crate) fn name(&self, index: usize) -> &[u8] {
        name_at(&self.bytes, self.each[index])
    }

    fn kind(&self, index: usize) -> FileType {
        self.each[index].2
    }
}

fn name_at(bytes: &[u8], (start, length, _): (u32, u8, FileType)) -> &[u8] {
    let start = start as usize;
    &bytes[start..start + usize::from(length)]
}

/// One folder on the way down.
#[derive(Debug)]
struct Level {
    path: RelPath,
    names: Names,
    next: usize,
    folder: Option<OwnedFd>,
    /// For whoever walks: whether something in it must stay.
    mark: bool,
}

/// The way from a top down to where a walk is.
#[derive(Debug)]
pub(crate) struct Way<'a> {
    top: &'a Top,
    levels: Vec<Level>,
}

/// What comes next on a way.
#[derive(Debug)]
pub(crate) enum Next {
    /// A name of the folder at the end of the way.
    Name(Vec<u8>, FileType),
    /// That folder is through; [`Way::leave`] it.
    End,
}

impl<'a> Way<'a> {
    pub(crate) fn new(top: &'a Top) -> Self {
        Self {
            top,
            levels: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// One folder further down.
    ///
    /// # Errors
    /// As [`Names::of`]; the way stays where it was.
    pub(crate) fn enter(&mut self, path: RelPath, folder: OwnedFd) -> io::Result<()> {
        let names = Names::of(folder.as_fd())?;
        if let Some(above) = self.levels.len().checked_sub(OPEN_MOST) {
            self.levels[above].folder = None;
        }
        let folder = Some(folder);
        self.levels.push(Level {
            path,
            names,
            next: 0,
            folder,
            mark: false,
        });
        Ok(())
    }

    /// The next name, or that there is none.
    pub(crate) fn next(&mut self) -> Next {
        let Some(level) = self.levels.last_mut() else {
            return Next::End;
        };
        if level.next == level.names.len() {
            return Next::End;
        }
        level.next += 1;
        let index = level.next - 1;
        Next::Name(level.names.name(index).to_vec(), level.names.kind(index))
    }

    /// The path of the folder at the end of the way.
    pub(crate) fn path(&self) -> RelPath {
        self.levels
            .last()
            .map_or_else(RelPath::top, |level| level.path.clone())
    }

    /// Its descriptor.
    ///
    /// # Errors
    /// When it had to be opened anew and is gone or replaced.
    pub(crate) fn folder(&mut self) -> io::Result<BorrowedFd<'_>> {
        let Some(level) = self.levels.last_mut() else {
            return Ok(self.top.folder());
        };
        if level.folder.is_none() {
            level.folder = Some(self.top.open(level.path.as_bytes(), READ_FOLDER)?);
        }
        Ok(level
            .folder
            .as_ref()
            .map_or_else(|| self.top.folder(), |folder| folder.as_fd()))
    }

    /// Marks the folder at the end of the way and all above it.
    pub(crate) fn mark(&mut self) {
        // What is marked has everything above it marked.
        self.levels
            .iter_mut()
            .rev()
            .take_while(|level| !level.mark)
            .for_each(|level| level.mark = true);
    }

    /// Up one folder: its path and whether it was marked.
    pub(crate) fn leave(&mut self) -> Option<(RelPath, bool)> {
        self.levels.pop().map(|level| (level.path, level.mark))
    }

    /// Does not come to the names that are left of this folder.
    pub(crate) fn give_up(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            level.next = level.names.len();
        }
    }
}
