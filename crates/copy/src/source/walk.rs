//! From what the user named to entries: depth first, names of a folder sorted by bytes, a folder before what is in it.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, accessat, fstat, openat, readlinkat, statat,
};
use rustix::io::Errno;

use crate::attributes::{self, Reader, is_of_link};
use crate::beneath::{READ_FILE, READ_FOLDER, Top, is_staging, kind_of, modified, size_of, stored};
use crate::entry::{Entry, Kind, Meta, PATH_BYTES_MOST, RelPath};
use crate::filter::Filter;
use crate::listing::{Next, Way};
use crate::reason::reason;

use super::{Fingerprint, Found, Keep, Skipped, Source, Walked, What, Why};

/// The most files with several names that are remembered, some 100 bytes each.
const LINKS_MOST: usize = 1 << 20;

impl Source {
    /// Tells everything there is to copy, and what is left out: depth first, names of a folder sorted by bytes, a folder
    /// before what is in it, until `each` breaks. The top itself comes first where its contents are what the user named.
    ///
    /// Holds the names of the folders on the way to where it is, and one path for each file of several names. `filter` is
    /// asked with paths below the top; what is in an excluded folder is not looked at.
    ///
    /// # Errors
    /// None: what fails is told as [`Walked::Skipped`].
    pub fn walk(
        &self,
        filter: &Filter,
        keep: &Keep,
        each: &mut dyn FnMut(Walked) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.walk_unless(filter, keep, &|| false, each)
    }

    /// As [`Source::walk`], until `is_stopped` too: that is asked at every excluded name, of which `each` is not told, and
    /// there may be millions in a row.
    ///
    /// # Errors
    /// As [`Source::walk`].
    pub fn walk_unless(
        &self,
        filter: &Filter,
        keep: &Keep,
        is_stopped: &dyn Fn() -> bool,
        each: &mut dyn FnMut(Walked) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let attributes = Reader::new(self.superuser);
        let (links, crowded) = (HashMap::new(), false);
        let mut walk = Walk {
            source: self,
            filter,
            keep: *keep,
            is_stopped,
            each,
            links,
            crowded,
            is_listed: false,
            attributes,
        };
        if let [part] = &self.parts[..] {
            return match &part.what {
                What::Contents => walk.contents(&part.top),
                What::Name(name) => walk.one(&part.top, name),
                What::List(names) => walk.list(&part.top, names),
            };
        }
        let mut owners: Vec<(&[u8], usize)> = self
            .owners
            .iter()
            .map(|(name, index)| (&name[..], *index))
            .collect();
        owners.sort_unstable();
        owners
            .into_iter()
            .try_for_each(|(name, index)| walk.one(&self.parts[index].top, name))
    }
}

struct Walk<'a> {
    source: &'a Source,
    filter: &'a Filter,
    keep: Keep,
    is_stopped: &'a dyn Fn() -> bool,
    each: &'a mut dyn FnMut(Walked) -> ControlFlow<()>,
    /// Files of several names by device and number: the first path, and how many names are to come.
    links: HashMap<(u64, u64), (RelPath, u32)>,
    /// Whether [`Why::Links`] was told.
    crowded: bool,
    /// What is looked at is named by a list.
    is_listed: bool,
    attributes: Reader,
}

impl Walk<'_> {
    /// What is in the folder `top`, which is the top.
    fn contents(&mut self, top: &Top) -> ControlFlow<()> {
        let path = RelPath::top();
        match top.open(b"", READ_FOLDER) {
            Ok(folder) => {
                self.folder(&path, folder.as_fd())?;
                let mut way = Way::new(top);
                self.enter(&mut way, path, folder)?;
                self.down(&mut way)
            }
            Err(error) => self.skip(path, unreadable(&error)),
        }
    }

    /// `name` at the top, and all that is in it.
    fn one(&mut self, top: &Top, name: &[u8]) -> ControlFlow<()> {
        let Ok(path) = RelPath::top().join(name) else {
            return self.skip(RelPath::top(), Why::Long);
        };
        let mut way = Way::new(top);
        if let Some(folder) = self.name(top.folder(), &path, name, FileType::Unknown)? {
            self.enter(&mut way, path, folder)?;
        }
        self.down(&mut way)
    }

    /// What a sorted list names, and the folders on the way to each.
    fn list(&mut self, top: &Top, names: &[(RelPath, bool)]) -> ControlFlow<()> {
        // The folders told that the next name may be in, the outermost first.
        let mut told: Vec<RelPath> = Vec::new();
        // What is done with already: copied with all that is in it, or no folder that is copied.
        let mut covered: Option<RelPath> = None;
        // The last name that is no folder, or is not there.
        let mut leaf: Option<&RelPath> = None;
        for (path, whole) in names {
            if path.is_top() {
                if *whole {
                    return self.contents(top);
                }
                continue;
            }
            if covered
                .as_ref()
                .is_some_and(|folder| is_below(path, folder))
            {
                continue;
            }
            if leaf.is_some_and(|leaf| is_below(path, leaf)) {
                self.skip(path.clone(), Why::Missing)?;
                continue;
            }
            while told.last().is_some_and(|folder| !is_below(path, folder)) {
                told.pop();
            }
            if let Some(missing) = self.folders_above(top, path, &mut told)? {
                covered = Some(missing);
                continue;
            }
            let Some(folder) = self.listed_name(top, path, FileType::Unknown)? else {
                leaf = Some(path);
                continue;
            };
            if *whole {
                covered = Some(path.clone());
                let mut way = Way::new(top);
                self.enter(&mut way, path.clone(), folder)?;
                self.down(&mut way)?;
            } else {
                told.push(path.clone());
            }
        }
        ControlFlow::Continue(())
    }

    /// Tells the folders `path` is in that were not told yet. The first that is no folder, or is not copied, if one is.
    fn folders_above(
        &mut self,
        top: &Top,
        path: &RelPath,
        told: &mut Vec<RelPath>,
    ) -> ControlFlow<(), Option<RelPath>> {
        let above = |path: &RelPath| path.split().map(|(folder, _)| folder);
        let folders = std::iter::successors(above(path), above);
        let above: Vec<RelPath> = folders.filter(|folder| !folder.is_top()).collect();
        for folder in above.into_iter().rev().skip(told.len()) {
            if self
                .listed_name(top, &folder, FileType::Directory)?
                .is_none()
            {
                return ControlFlow::Continue(Some(folder));
            }
            told.push(folder);
        }
        ControlFlow::Continue(None)
    }

    /// Tells what a listed name, or a folder above one, is; a folder comes back open.
    fn listed_name(
        &mut self,
        top: &Top,
        path: &RelPath,
        kind: FileType,
    ) -> ControlFlow<(), Option<OwnedFd>> {
        let Some((above, name)) = path.split() else {
            return ControlFlow::Continue(None);
        };
        self.is_listed = true;
        let told = match top.open(above.as_bytes(), OFlags::PATH | OFlags::DIRECTORY) {
            Ok(folder) => self.name(folder.as_fd(), path, name, kind),
            Err(error) => self
                .skip(path.clone(), unreadable(&error))
                .map_continue(|()| None),
        };
        self.is_listed = false;
        told
    }

    fn enter(&mut self, way: &mut Way<'_>, path: RelPath, folder: OwnedFd) -> ControlFlow<()> {
        match way.enter(path.clone(), folder) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) if error.kind() == io::ErrorKind::OutOfMemory => {
                self.skip(path, Why::Crowded)
            }
            Err(error) => self.skip(path, unreadable(&error)),
        }
    }

    /// Goes the way down to its end, into every folder and up again.
    fn down(&mut self, way: &mut Way<'_>) -> ControlFlow<()> {
        while !way.is_empty() {
            let Next::Name(name, kind) = way.next() else {
                way.leave();
                continue;
            };
            if is_staging(&name) && kind != FileType::RegularFile {
                continue;
            }
            let Ok(path) = way.path().join(&name) else {
                self.skip(way.path(), Why::Long)?;
                continue;
            };
            let entered = match way.folder() {
                Ok(folder) => self.name(folder, &path, &name, kind)?,
                Err(error) => {
                    self.skip(way.path(), unreadable(&error))?;
                    way.give_up();
                    None
                }
            };
            if let Some(folder) = entered {
                self.enter(way, path, folder)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Tells what `name` in `folder` is; a folder comes back open.
    fn name(
        &mut self,
        folder: BorrowedFd<'_>,
        path: &RelPath,
        name: &[u8],
        kind: FileType,
    ) -> ControlFlow<(), Option<OwnedFd>> {
        if kind == FileType::Directory {
            return self.folder_name(folder, path, name);
        }
        // What its folder says of a name spares an excluded one a call, on a network file system a round trip.
        let is_known = kind != FileType::Unknown;
        if is_known && !self.filter.admits(path, false) {
            return self.excluded();
        }
        let stat = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(error) => {
                self.skip(path.clone(), unreadable(&error.into()))?;
                return ControlFlow::Continue(None);
            }
        };
        let kind = kind_of(&stat);
        if kind == FileType::Directory {
            return self.folder_name(folder, path, name);
        }
        if !is_known && !self.filter.admits(path, false) {
            return self.excluded();
        }
        match kind {
            FileType::RegularFile => self.file(folder, path, name, &stat)?,
            FileType::Symlink => self.symlink(folder, path, name, &stat)?,
            FileType::Socket => self.skip(path.clone(), Why::Socket)?,
            FileType::Fifo => self.skip(path.clone(), Why::Pipe)?,
            _ => self.skip(path.clone(), Why::Device)?,
        }
        ControlFlow::Continue(None)
    }

    /// Passes an excluded name, unless the walk is stopped: nobody is told of the name who could break it off.
    fn excluded(&self) -> ControlFlow<(), Option<OwnedFd>> {
        match (self.is_stopped)() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(None),
        }
    }

    fn folder_name(
        &mut self,
        above: BorrowedFd<'_>,
        path: &RelPath,
        name: &[u8],
    ) -> ControlFlow<(), Option<OwnedFd>> {
        if !self.filter.admits(path, true) {
            return self.excluded();
        }
        match openat(above, name, READ_FOLDER | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(folder) => {
                self.folder(path, folder.as_fd())?;
                return ControlFlow::Continue(Some(folder));
            }
            Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => {
                self.skip(path.clone(), Why::Gone)?
            }
            Err(error) => {
                // The folder is there, as what it is, even where its contents cannot be read.
                if let Ok(stat) = statat(above, name, AtFlags::SYMLINK_NOFOLLOW)
                    && kind_of(&stat) == FileType::Directory
                {
                    let meta = self.meta(&stat, attributes::Read::default());
                    self.found(path, Kind::Folder, meta, None)?;
                }
                self.skip(path.clone(), unreadable(&error.into()))?;
            }
        }
        ControlFlow::Continue(None)
    }

    /// Tells an open folder.
    fn folder(&mut self, path: &RelPath, folder: BorrowedFd<'_>) -> ControlFlow<()> {
        let stat = match fstat(folder) {
            Ok(stat) => stat,
            Err(error) => return self.skip(path.clone(), unreadable(&error.into())),
        };
        let attributes = match self.keep.attributes {
            true => self.attributes.of(folder),
            false => Ok(attributes::Read::default()),
        };
        let attributes = self.attributes_or_word(path, attributes)?;
        let meta = self.meta(&stat, attributes);
        self.found(path, Kind::Folder, meta, None)
    }

    fn file(
        &mut self,
        folder: BorrowedFd<'_>,
        path: &RelPath,
        name: &[u8],
        stat: &Stat,
    ) -> ControlFlow<()> {
        if stat.st_nlink > 1
            && self.keep.links
            && let Some(to) = self.linked(path, stat)?
        {
            return self.found(path, Kind::Hardlink { to }, Meta::default(), None);
        }
        if !self.may_read(folder, name, stat) {
            return self.skip(path.clone(), unreadable(&Errno::ACCESS.into()));
        }
        let attributes = match self.keep.attributes {
            true => self.file_attributes(folder, name),
            false => Ok(attributes::Read::default()),
        };
        let attributes = self.attributes_or_word(path, attributes)?;
        let meta = self.meta(stat, attributes);
        self.found(
            path,
            Kind::File {
                size: size_of(stat),
            },
            meta,
            Some(stat),
        )
    }

    fn file_attributes(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &[u8],
    ) -> io::Result<attributes::Read> {
        if self.attributes.by_name() {
            return self.attributes.of_name(folder, name);
        }
        let file = openat(folder, name, READ_FILE | OFlags::NOFOLLOW, Mode::empty())?;
        self.attributes.of(file.as_fd())
    }

    /// The path this file was told under, if it was.
    fn linked(&mut self, path: &RelPath, stat: &Stat) -> ControlFlow<(), Option<RelPath>> {
        let full = self.links.len() >= LINKS_MOST;
        match self.links.entry((stat.st_dev, stat.st_ino)) {
            Slot::Occupied(mut slot) => {
                let (to, left) = slot.get_mut();
                *left = left.saturating_sub(1);
                let (to, left) = (to.clone(), *left);
                if left == 0 {
                    slot.remove();
                }
                ControlFlow::Continue(Some(to))
            }
            Slot::Vacant(_) if full => {
                if !self.crowded {
                    self.crowded = true;
                    self.skip(path.clone(), Why::Links)?;
                }
                ControlFlow::Continue(None)
            }
            Slot::Vacant(slot) => {
                let names: u32 = stat.st_nlink.try_into().unwrap_or(u32::MAX);
                slot.insert((path.clone(), names - 1));
                ControlFlow::Continue(None)
            }
        }
    }

    fn symlink(
        &mut self,
        folder: BorrowedFd<'_>,
        path: &RelPath,
        name: &[u8],
        stat: &Stat,
    ) -> ControlFlow<()> {
        match readlinkat(folder, name, Vec::new()) {
            Ok(target) if (1..=PATH_BYTES_MOST).contains(&target.as_bytes().len()) => {
                let target = target.into_bytes().into();
                let has_any = self.keep.attributes && self.source.superuser;
                let attributes = match has_any && self.attributes.by_name() {
                    true => self.attributes.of_name(folder, name),
                    false => Ok(attributes::Read::default()),
                };
                let mut read = self.attributes_or_word(path, attributes)?;
                read.attributes.retain(|(name, _)| is_of_link(name));
                // Users set none on links.
                read.has_all = false;
                let meta = Meta {
                    mode: None,
                    ..self.meta(stat, read)
                };
                self.found(path, Kind::Symlink { target }, meta, None)
            }
            Ok(_) => self.skip(path.clone(), Why::Long),
            Err(Errno::INVAL) => self.skip(path.clone(), Why::Gone),
            Err(error) => self.skip(path.clone(), unreadable(&error.into())),
        }
    }

    /// Whether the file can be opened, as far as that is known without opening it: most files can be read by all.
    fn may_read(&self, folder: BorrowedFd<'_>, name: &[u8], stat: &Stat) -> bool {
        use rustix::fs::Access;
        self.source.superuser
            || stat.st_mode & 0o444 == 0o444
            || accessat(folder, name, Access::READ_OK, AtFlags::EACCESS) != Err(Errno::ACCESS)
    }

    fn meta(&self, stat: &Stat, read: attributes::Read) -> Meta {
        let owner = (stat.st_uid, stat.st_gid);
        Meta {
            mode: self.keep.mode.then_some(stat.st_mode & 0o7777),
            owner: self.keep.owner.then_some(owner),
            owner_names: self.keep.owner.then(|| self.source.accounts.names(owner)),
            modified: self.keep.times.then(|| modified(stat)),
            attributes: read.attributes,
            has_all_attributes: read.has_all,
        }
    }

    fn attributes_or_word(
        &mut self,
        path: &RelPath,
        read: io::Result<attributes::Read>,
    ) -> ControlFlow<(), attributes::Read> {
        ControlFlow::Continue(match read {
            Ok(read) => read,
            Err(_) => {
                self.skip(path.clone(), Why::Attributes)?;
                attributes::Read::default()
            }
        })
    }

    fn found(
        &mut self,
        path: &RelPath,
        kind: Kind,
        meta: Meta,
        file: Option<&Stat>,
    ) -> ControlFlow<()> {
        let entry = Entry {
            path: path.clone(),
            kind,
            meta,
        };
        let fingerprint = file.map(Fingerprint::of);
        let data = file.map_or(0, |stat| stored(stat).min(size_of(stat)));
        (self.each)(Walked::Found(Found {
            entry,
            fingerprint,
            data,
        }))
    }

    fn skip(&mut self, path: RelPath, why: Why) -> ControlFlow<()> {
        // Nobody read its folder.
        let why = match (why, self.is_listed) {
            (Why::Gone, true) => Why::Missing,
            (why, _) => why,
        };
        (self.each)(Walked::Skipped(Skipped { path, why }))
    }
}

fn unreadable(error: &io::Error) -> Why {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Why::Gone,
        Some(Errno::NAMETOOLONG) => Why::Long,
        _ => Why::Unreadable(reason(error).into()),
    }
}

fn is_below(path: &RelPath, folder: &RelPath) -> bool {
    let rest = path.as_bytes().strip_prefix(folder.as_bytes());
    rest.is_some_and(|rest| folder.is_top() || rest.starts_with(b"/"))
}
