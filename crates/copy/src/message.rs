//! What a source and a destination tell each other beside blocks, as bytes.
//!
//! Numbers are little-endian, of fixed length; strings and lists begin with their length. Everything read here came from
//! outside: lengths are held against what is there before anything is made of them.

use thiserror::Error;

use units::text::plain;

use crate::digest::{Cut, SUM_BYTES, Sum};
use crate::entry::{Entry, Kind, Meta, PathError, RelPath, Stamp};

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// It ends before it should.
    #[error("a message ends before it should")]
    Short,
    /// Bytes are left over.
    #[error("a message is longer than it should be")]
    Long,
    /// A number that means nothing here.
    #[error("a message with a number that means nothing")]
    Number,
    /// A path that is none.
    #[error("{0}")]
    Path(#[from] PathError),
    /// A text that is not UTF-8.
    #[error("a message with a text that is none")]
    Text,
}

/// What a name is called between the two sides: numbered by the source, from 0, in the order in which they are told.
pub type NameId = u64;

/// A name as the source tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its number.
    pub id: NameId,
    /// The name.
    pub entry: Entry,
    /// When it was modified last, whether that is kept or not: what a quick comparison goes by.
    pub modified: Stamp,
}

/// A file that the destination wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// Which.
    pub id: NameId,
    /// Bytes in a block, where it has some or sums of some.
    pub block: Option<u32>,
    /// Blocks that it has already, from..to, in order and apart.
    pub have: Vec<(u64, u64)>,
    /// Sums of blocks that it has from elsewhere, for the source to compare with its own.
    pub compare: Vec<(u64, Sum)>,
}

/// What a source says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromSource {
    /// Some names, folders before what is in them.
    Names(Vec<Told>),
    /// How a wanted file is cut, and which blocks of it are holes, from..to, in order and apart.
    Layout {
        /// Which.
        id: NameId,
        /// Bytes, as at opening.
        size: u64,
        /// Bytes in a block.
        block: u32,
        /// Blocks without data.
        holes: Vec<(u64, u64)>,
    },
    /// All blocks of a file were sent, and it did not change meanwhile.
    Ended(NameId),
    /// A wanted file will not come in this form: it changed, is gone, or cannot be read.
    Lost {
        /// Which.
        id: NameId,
        /// In words.
        why: String,
    },
    /// That was the last name; what is told after it is told anew since it changed.
    Walked {
        /// Folders of which the source told all it has: where what it has not may be deleted.
        roots: Vec<RelPath>,
        /// Whether there was nothing that the source could not read.
        is_whole: bool,
    },
    /// So many streams are wanted.
    Streams(u16),
    /// Blocks are to be carried by QUIC from now on, or by TCP again; only to who can, and connects.
    Carry(bool),
    /// The source gives up.
    Stops(String),
    /// The source heard that all is done.
    Bye,
}

/// What a destination says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromDestination {
    /// What is wanted of all names up to one, without it; the others of these are not.
    Decided {
        /// The first name that is not decided yet.
        until: NameId,
        /// What is wanted.
        wants: Vec<Want>,
    },
    /// Names below the next that is decided upon, of which word comes by itself: what is there of them takes long to read.
    Later(Vec<NameId>),
    /// Frames handled on each stream since the session began.
    Received {
        /// Stream and count.
        streams: Vec<(u16, u64)>,
        /// Files that stand under their names now.
        placed: u64,
    },
    /// Something the user should know.
    Problem(String),
    /// All is done.
    Finished(Account),
    /// The destination gives up.
    Stops(String),
}

/// What a destination did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Names told, of all kinds.
    pub names: u64,
    /// Files that were as they should be already.
    pub same: u64,
    /// Files and links placed, or given the mode, owner or attributes that alone were other.
    pub placed: u64,
    /// Bytes of data received in blocks.
    pub received_bytes: u64,
    /// Bytes that were there already from an earlier attempt or an older copy.
    pub resumed_bytes: u64,
    /// Bytes of files placed, with holes.
    pub placed_bytes: u64,
    /// Names that could not be written.
    pub failed: u64,
    /// Names removed.
    pub deleted: u64,
}

/// Writes messages.
#[derive(Debug, Default)]
struct Out(Vec<u8>);

impl Out {
    fn u8(&mut self, n: u8) {
        self.0.push(n);
    }
    fn u16(&mut self, n: u16) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }
    fn u32(&mut self, n: u32) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }
    fn u64(&mut self, n: u64) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }
    fn count(&mut self, n: usize) {
        self.u32(u32::try_from(n).unwrap_or(u32::MAX));
    }
    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
    }
    fn stamp(&mut self, stamp: Stamp) {
        self.0.extend_from_slice(&stamp.seconds.to_le_bytes());
        self.u32(stamp.nanoseconds);
    }
    fn ranges(&mut self, ranges: &[(u64, u64)]) {
        self.count(ranges.len());
        for (from, to) in ranges {
            self.u64(*from);
            self.u64(*to);
        }
    }
}

/// Reads messages.
struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (taken, left) = self.0.split_at_checked(n).ok_or(Malformed::Short)?;
        self.0 = left;
        Ok(taken)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed::Short)
    }
    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }
    fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    /// A number of things of at least `least` bytes each, of which no more can follow than there are bytes.
    fn count(&mut self, least: usize) -> Result<usize, Malformed> {
        let count = usize::try_from(self.u32()?).map_err(|_| Malformed::Number)?;
        match count.checked_mul(least) {
            Some(bytes) if bytes <= self.0.len() => Ok(count),
            _ => Err(Malformed::Short),
        }
    }
    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.count(1)?;
        self.take(count)
    }
    fn text(&mut self) -> Result<String, Malformed> {
        let text = std::str::from_utf8(self.bytes()?).map_err(|_| Malformed::Text)?;
        Ok(plain(text).into_owned())
    }
    fn path(&mut self) -> Result<RelPath, Malformed> {
        Ok(RelPath::new(self.bytes()?)?)
    }
    fn stamp(&mut self) -> Result<Stamp, Malformed> {
        let seconds = i64::from_le_bytes(self.array()?);
        let nanoseconds = self.u32()?;
        if nanoseconds >= 1_000_000_000 {
            return Err(Malformed::Number);
        }
        Ok(Stamp {
            seconds,
            nanoseconds,
        })
    }
    /// Ranges in order and apart, none empty.
    fn ranges(&mut self) -> Result<Vec<(u64, u64)>, Malformed> {
        let count = self.count(16)?;
        let mut ranges = Vec::with_capacity(count);
        let mut last = None;
        for _ in 0..count {
            let (from, to) = (self.u64()?, self.u64()?);
            if from >= to || last.is_some_and(|last| from <= last) {
                return Err(Malformed::Number);
            }
            last = Some(to);
            ranges.push((from, to));
        }
        Ok(ranges)
    }
    fn end(self) -> Result<(), Malformed> {
        match self.0 {
            [] => Ok(()),
            _ => Err(Malformed::Long),
        }
    }
}

fn put_entry(out: &mut Out, told: &Told) {
    let Entry { path, kind, meta } = &told.entry;
    out.u64(told.id);
    out.bytes(path.as_bytes());
    out.stamp(told.modified);
    match kind {
        Kind::Folder => out.u8(0),
        Kind::File { size } => {
            out.u8(1);
            out.u64(*size);
        }
        Kind::Symlink { target } => {
            out.u8(2);
            out.bytes(target);
        }
        Kind::Hardlink { to } => {
            out.u8(3);
            out.bytes(to.as_bytes());
        }
    }
    let flags = u8::from(meta.mode.is_some())
        | u8::from(meta.owner.is_some()) << 1
        | u8::from(meta.owner_names.is_some()) << 2
        | u8::from(meta.modified.is_some()) << 3
        | u8::from(meta.has_all_attributes) << 4;
    out.u8(flags);
    if let Some(mode) = meta.mode {
        out.u32(mode);
    }
    if let Some((user, group)) = meta.owner {
        out.u32(user);
        out.u32(group);
    }
    if let Some((user, group)) = &meta.owner_names {
        out.bytes(user.as_bytes());
        out.bytes(group.as_bytes());
    }
    if let Some(modified) = meta.modified {
        out.stamp(modified);
    }
    out.count(meta.attributes.len());
    for (name, value) in &meta.attributes {
        out.bytes(name);
        out.bytes(value);
    }
}

fn entry(input: &mut In<'_>) -> Result<Told, Malformed> {
    let id = input.u64()?;
    let path = input.path()?;
    let modified = input.stamp()?;
    let kind = match input.u8()? {
        0 => Kind::Folder,
        1 => Kind::File { size: input.u64()? },
        2 => {
            let target = input.bytes()?;
            if target.is_empty() || target.contains(&0) {
                return Err(Malformed::Path(PathError::Empty));
            }
            if target.len() > crate::entry::PATH_BYTES_MOST {
                return Err(Malformed::Path(PathError::Long));
            }
            Kind::Symlink {
                target: target.into(),
            }
        }
        3 => {
            let to = input.path()?;
            if to.is_top() {
                return Err(Malformed::Path(PathError::Empty));
            }
            Kind::Hardlink { to }
        }
        _ => return Err(Malformed::Number),
    };
    if path.is_top() && kind != Kind::Folder {
        return Err(Malformed::Path(PathError::Empty));
    }
    let flags = input.u8()?;
    if flags > 31 {
        return Err(Malformed::Number);
    }
    let mut meta = Meta {
        has_all_attributes: flags & 16 != 0,
        ..Meta::default()
    };
    if flags & 1 != 0 {
        meta.mode = Some(input.u32()?).filter(|mode| *mode <= 0o7777);
        if meta.mode.is_none() {
            return Err(Malformed::Number);
        }
    }
    if flags & 2 != 0 {
        meta.owner = Some((input.u32()?, input.u32()?));
    }
    if flags & 4 != 0 {
        let names = (input.text()?.into(), input.text()?.into());
        meta.owner_names = Some(names);
    }
    if flags & 8 != 0 {
        meta.modified = Some(input.stamp()?);
    }
    let mut names_bytes = 0;
    for _ in 0..input.count(8)? {
        let (name, value) = (input.bytes()?, input.bytes()?);
        // Linux's limits (include/uapi/linux/limits.h: XATTR_NAME_MAX, XATTR_SIZE_MAX, XATTR_LIST_MAX of names that end
        // with a zero each).
        names_bytes += name.len() + 1;
        if name.is_empty()
            || name.contains(&0)
            || name.len() > 255
            || value.len() > 65_536
            || names_bytes > 65_536
        {
            return Err(Malformed::Number);
        }
        meta.attributes.push((name.into(), value.into()));
    }
    Ok(Told {
        id,
        entry: Entry { path, kind, meta },
        modified,
    })
}

impl FromSource {
    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Out::default();
        match self {
            Self::Names(names) => {
                out.u8(1);
                out.count(names.len());
                names.iter().for_each(|told| put_entry(&mut out, told));
            }
            Self::Layout {
                id,
                size,
                block,
                holes,
            } => {
                out.u8(2);
                out.u64(*id);
                out.u64(*size);
                out.u32(*block);
                out.ranges(holes);
            }
            Self::Ended(id) => {
                out.u8(3);
                out.u64(*id);
            }
            Self::Lost { id, why } => {
                out.u8(4);
                out.u64(*id);
                out.bytes(why.as_bytes());
            }
            Self::Walked { roots, is_whole } => {
                out.u8(5);
                out.u8((*is_whole).into());
                out.count(roots.len());
                roots.iter().for_each(|root| out.bytes(root.as_bytes()));
            }
            Self::Streams(streams) => {
                out.u8(6);
                out.u16(*streams);
            }
            Self::Stops(why) => {
                out.u8(7);
                out.bytes(why.as_bytes());
            }
            Self::Bye => out.u8(8),
            Self::Carry(is_quic) => {
                out.u8(9);
                out.u8((*is_quic).into());
            }
        }
        out.0
    }

    /// From bytes.
    ///
    /// # Errors
    /// As [`Malformed`] tells.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut input = In(bytes);
        let message = match input.u8()? {
            1 => {
                let count = input.count(8 + 4 + 12 + 1 + 1 + 4)?;
                let names = (0..count)
                    .map(|_| entry(&mut input))
                    .collect::<Result<_, _>>()?;
                Self::Names(names)
            }
            2 => {
                let (id, size, block) = (input.u64()?, input.u64()?, input.u32()?);
                let cut = Cut::new(size, block).ok_or(Malformed::Number)?;
                let holes = input.ranges()?;
                if holes.last().is_some_and(|(_, to)| *to > cut.blocks()) {
                    return Err(Malformed::Number);
                }
                Self::Layout {
                    id,
                    size,
                    block,
                    holes,
                }
            }
            3 => Self::Ended(input.u64()?),
            4 => Self::Lost {
                id: input.u64()?,
                why: input.text()?,
            },
            5 => {
                let is_whole = match input.u8()? {
                    0 => false,
                    1 => true,
                    _ => return Err(Malformed::Number),
                };
                let count = input.count(4)?;
                let roots = (0..count).map(|_| input.path()).collect::<Result<_, _>>()?;
                Self::Walked { roots, is_whole }
            }
            6 => Self::Streams(input.u16()?),
            7 => Self::Stops(input.text()?),
            8 => Self::Bye,
            9 => match input.u8()? {
                0 => Self::Carry(false),
                1 => Self::Carry(true),
                _ => return Err(Malformed::Number),
            },
            _ => return Err(Malformed::Number),
        };
        input.end()?;
        Ok(message)
    }
}

/// What an attribute takes of memory beside its name and value: two pointers with lengths, as often again while a list of them
/// grows, and what an allocator adds to two pieces.
const ATTRIBUTE_BYTES: usize = 96;

/// Bytes of a name's entry, about: in memory, which is never less than in a message.
pub(crate) fn bytes_of(entry: &Entry) -> usize {
    let meta = &entry.meta;
    let attributes = meta
        .attributes
        .iter()
        .map(|(name, value)| name.len() + value.len() + ATTRIBUTE_BYTES);
    let kind = match &entry.kind {
        Kind::Symlink { target } => target.len(),
        Kind::Hardlink { to } => to.as_bytes().len(),
        Kind::Folder | Kind::File { .. } => 8,
    };
    let names = meta
        .owner_names
        .as_ref()
        .map_or(0, |(user, group)| user.len() + group.len());
    80 + entry.path.as_bytes().len() + kind + names + attributes.sum::<usize>()
}

impl FromDestination {
    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Out::default();
        match self {
            Self::Decided { until, wants } => {
                out.u8(1);
                out.u64(*until);
                out.count(wants.len());
                for want in wants {
                    out.u64(want.id);
                    out.u32(want.block.unwrap_or(0));
                    out.ranges(&want.have);
                    out.count(want.compare.len());
                    for (index, sum) in &want.compare {
                        out.u64(*index);
                        out.0.extend_from_slice(sum);
                    }
                }
            }
            Self::Later(ids) => {
                out.u8(6);
                out.count(ids.len());
                ids.iter().for_each(|id| out.u64(*id));
            }
            Self::Received { streams, placed } => {
                out.u8(2);
                out.count(streams.len());
                for (stream, count) in streams {
                    out.u16(*stream);
                    out.u64(*count);
                }
                out.u64(*placed);
            }
            Self::Problem(text) => {
                out.u8(3);
                out.bytes(text.as_bytes());
            }
            Self::Finished(account) => {
                out.u8(4);
                account.numbers().into_iter().for_each(|n| out.u64(n));
            }
            Self::Stops(why) => {
                out.u8(5);
                out.bytes(why.as_bytes());
            }
        }
        out.0
    }

    /// From bytes.
    ///
    /// # Errors
    /// As [`Malformed`] tells.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut input = In(bytes);
        let message = match input.u8()? {
            1 => {
                let until = input.u64()?;
                let count = input.count(20)?;
                let mut wants = Vec::with_capacity(count);
                for _ in 0..count {
                    let (id, block) = (input.u64()?, input.u32()?);
                    let have = input.ranges()?;
                    let block = match block {
                        0 if have.is_empty() => None,
                        _ => Some(Cut::new(0, block).ok_or(Malformed::Number)?.block()),
                    };
                    let compare = (0..input.count(8 + SUM_BYTES)?)
                        .map(|_| Ok((input.u64()?, input.array()?)))
                        .collect::<Result<_, Malformed>>()?;
                    wants.push(Want {
                        id,
                        block,
                        have,
                        compare,
                    });
                }
                Self::Decided { until, wants }
            }
            2 => {
                let count = input.count(10)?;
                let streams = (0..count)
                    .map(|_| Ok((input.u16()?, input.u64()?)))
                    .collect::<Result<_, Malformed>>()?;
                Self::Received {
                    streams,
                    placed: input.u64()?,
                }
            }
            3 => Self::Problem(input.text()?),
            4 => {
                let mut numbers = [0; Account::NUMBERS];
                for number in &mut numbers {
                    *number = input.u64()?;
                }
                Self::Finished(Account::of(numbers))
            }
            6 => {
                let count = input.count(8)?;
                let ids = (0..count).map(|_| input.u64());
                Self::Later(ids.collect::<Result<_, _>>()?)
            }
            5 => Self::Stops(input.text()?),
            _ => return Err(Malformed::Number),
        };
        input.end()?;
        Ok(message)
    }
}

impl Account {
    /// How many numbers it has.
    pub const NUMBERS: usize = 8;

    /// Its numbers in order.
    pub fn numbers(&self) -> [u64; Self::NUMBERS] {
        [
            self.names,
            self.same,
            self.placed,
            self.received_bytes,
            self.resumed_bytes,
            self.placed_bytes,
            self.failed,
            self.deleted,
        ]
    }

    /// From its numbers in order.
    pub fn of(numbers: [u64; Self::NUMBERS]) -> Self {
        let [
            names,
            same,
            placed,
            received_bytes,
            resumed_bytes,
            placed_bytes,
            failed,
            deleted,
        ] = numbers;
        Self {
            names,
            same,
            placed,
            received_bytes,
            resumed_bytes,
            placed_bytes,
            failed,
            deleted,
        }
    }
}

/// What is told about a frame of blocks: each one's file, place and sum; data follow in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHead {
    /// The file.
    pub id: NameId,
    /// Which block of it.
    pub index: u64,
    /// Bytes; 0 for an empty file, or with [`BlockHead::same`].
    pub len: u32,
    /// The block's sum.
    pub sum: Sum,
    /// The destination has these bytes already, as their sum says; none follow.
    pub same: bool,
    /// Pages of zeros are left out; which, a map behind the others says.
    pub has_gaps: bool,
}

/// Bytes of one [`BlockHead`].
pub const BLOCK_HEAD_BYTES: usize = 8 + 8 + 4 + 1 + SUM_BYTES;

impl BlockHead {
    /// Adds it to what is told about a frame.
    pub fn put(&self, about: &mut Vec<u8>) {
        about.extend_from_slice(&self.id.to_le_bytes());
        about.extend_from_slice(&self.index.to_le_bytes());
        about.extend_from_slice(&self.len.to_le_bytes());
        about.push(match (self.same, self.has_gaps) {
            (false, false) => 0,
            (true, _) => 1,
            (false, true) => 2,
        });
        about.extend_from_slice(&self.sum);
    }

    /// All in a frame; their lengths are those of its data.
    ///
    /// # Errors
    /// As [`Malformed`] tells.
    pub fn read_all(about: &[u8], data: usize) -> Result<Vec<Self>, Malformed> {
        if !about.len().is_multiple_of(BLOCK_HEAD_BYTES) {
            return Err(Malformed::Short);
        }
        let mut input = In(about);
        let mut heads = Vec::with_capacity(about.len() / BLOCK_HEAD_BYTES);
        let mut left = data;
        while !input.0.is_empty() {
            let (id, index, len) = (input.u64()?, input.u64()?, input.u32()?);
            let (same, has_gaps) = match input.u8()? {
                0 => (false, false),
                1 if len == 0 => (true, false),
                2 if len > 0 => (false, true),
                _ => return Err(Malformed::Number),
            };
            let sum = input.array()?;
            left = left
                .checked_sub(usize::try_from(len).map_err(|_| Malformed::Number)?)
                .ok_or(Malformed::Short)?;
            heads.push(Self {
                id,
                index,
                len,
                sum,
                same,
                has_gaps,
            });
        }
        match left {
            0 => Ok(heads),
            _ => Err(Malformed::Long),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told() -> Told {
        Told {
            id: 7,
            entry: Entry {
                path: RelPath::new(b"a/\xff").unwrap(),
                kind: Kind::Hardlink {
                    to: RelPath::new(b"b").unwrap(),
                },
                meta: Meta {
                    mode: Some(0o4755),
                    owner: Some((0, 65_534)),
                    owner_names: Some(("root".into(), "nogroup".into())),
                    modified: Some(Stamp {
                        seconds: -1,
                        nanoseconds: 999_999_999,
                    }),
                    attributes: vec![(b"user.x"[..].into(), b"\0value"[..].into())],
                    has_all_attributes: true,
                },
            },
            modified: Stamp {
                seconds: 1,
                nanoseconds: 2,
            },
        }
    }

    #[test]
    fn texts_of_a_peer_are_plain() {
        let hostile = "x\x1b]0;t\x07\n\u{9b}\u{202e}";
        let sent = [
            FromSource::Stops(hostile.to_owned()).to_bytes(),
            FromDestination::Problem(hostile.to_owned()).to_bytes(),
            FromDestination::Stops(hostile.to_owned()).to_bytes(),
        ];
        let plain = |text: String| assert_eq!(text, "x\u{fffd}]0;t\u{fffd} \u{fffd}\u{fffd}");
        match FromSource::read(&sent[0]).unwrap() {
            FromSource::Stops(text) => plain(text),
            other => panic!("{other:?}"),
        }
        for bytes in &sent[1..] {
            match FromDestination::read(bytes).unwrap() {
                FromDestination::Problem(text) | FromDestination::Stops(text) => plain(text),
                other => panic!("{other:?}"),
            }
        }
    }

    fn source_messages() -> Vec<FromSource> {
        let plain = |kind| Told {
            entry: Entry {
                path: RelPath::new(b"x").unwrap(),
                kind,
                meta: Meta::default(),
            },
            ..told()
        };
        vec![
            FromSource::Names(vec![
                told(),
                plain(Kind::Folder),
                plain(Kind::File { size: u64::MAX }),
                plain(Kind::Symlink {
                    target: b"../../etc"[..].into(),
                }),
            ]),
            FromSource::Layout {
                id: 1,
                size: 3 << 20,
                block: 1 << 20,
                holes: vec![(0, 1), (2, 3)],
            },
            FromSource::Ended(3),
            FromSource::Lost {
                id: 4,
                why: "gone".into(),
            },
            FromSource::Walked {
                roots: vec![RelPath::top(), RelPath::new(b"a").unwrap()],
                is_whole: true,
            },
            FromSource::Streams(9),
            FromSource::Carry(false),
            FromSource::Carry(true),
            FromSource::Stops("no".into()),
            FromSource::Bye,
        ]
    }

    fn destination_messages() -> Vec<FromDestination> {
        vec![
            FromDestination::Decided {
                until: 9,
                wants: vec![Want {
                    id: 3,
                    block: Some(1 << 20),
                    have: vec![(1, 2)],
                    compare: vec![(5, [6; 32])],
                }],
            },
            FromDestination::Received {
                streams: vec![(0, 5), (1, 6)],
                placed: 4,
            },
            FromDestination::Later(vec![3, 4]),
            FromDestination::Problem("disk".into()),
            FromDestination::Finished(Account {
                names: 1,
                deleted: 8,
                ..Account::default()
            }),
            FromDestination::Stops("no".into()),
        ]
    }

    #[test]
    fn what_is_written_is_read_again_and_no_less_nor_more_of_it() {
        for message in source_messages() {
            let bytes = message.to_bytes();
            assert_eq!(FromSource::read(&bytes), Ok(message));
            for cut in 0..bytes.len() {
                assert!(FromSource::read(&bytes[..cut]).is_err());
            }
            assert!(FromSource::read(&[&bytes[..], b"x"].concat()).is_err());
        }
        for message in destination_messages() {
            let bytes = message.to_bytes();
            assert_eq!(FromDestination::read(&bytes), Ok(message));
            for cut in 0..bytes.len() {
                assert!(FromDestination::read(&bytes[..cut]).is_err());
            }
            assert!(FromDestination::read(&[&bytes[..], b"x"].concat()).is_err());
        }
        let Told { .. } = told();
        assert!(bytes_of(&told().entry) + 5 >= FromSource::Names(vec![told()]).to_bytes().len());
    }

    #[test]
    fn ranges_that_touch_or_turn_back_are_refused() {
        for holes in [
            vec![(1, 1)],
            vec![(2, 1)],
            vec![(0, 1), (1, 2)],
            vec![(0, 4)],
        ] {
            let bytes = FromSource::Layout {
                id: 1,
                size: 3 << 20,
                block: 1 << 20,
                holes,
            }
            .to_bytes();
            assert_eq!(FromSource::read(&bytes), Err(Malformed::Number));
        }
    }

    #[test]
    fn attributes_have_no_more_names_than_linux_lists() {
        // 256 bytes each with the zero at its end: 256 of them have 65,536.
        for (count, is_taken) in [(256, true), (257, false)] {
            let mut many = told();
            many.entry.meta.attributes = (0..count)
                .map(|n: u32| (format!("{n:0>255}").into_bytes().into(), Box::default()))
                .collect();
            let read = FromSource::read(&FromSource::Names(vec![many]).to_bytes());
            assert_eq!(read.is_ok(), is_taken, "{count}");
        }
    }

    #[test]
    fn a_path_that_leaves_the_top_is_refused_with_the_message() {
        let bytes = FromSource::Names(vec![told()]).to_bytes();
        let at = bytes.windows(3).position(|w| w == b"a/\xff").unwrap();
        let mut bad = bytes.clone();
        bad[at..at + 2].copy_from_slice(b"..");
        // "..\xff" is a name; with the slash kept it is not.
        assert!(FromSource::read(&bad).is_ok());
        bad[at..at + 3].copy_from_slice(b"/..");
        assert_eq!(
            FromSource::read(&bad),
            Err(Malformed::Path(PathError::Absolute))
        );
    }

    #[test]
    fn heads_of_blocks_must_cover_the_data_exactly() {
        let head = |len| BlockHead {
            id: 1,
            index: 2,
            len,
            sum: [3; 32],
            same: false,
            has_gaps: false,
        };
        let mut about = Vec::new();
        head(5).put(&mut about);
        head(0).put(&mut about);
        assert_eq!(BlockHead::read_all(&about, 5), Ok(vec![head(5), head(0)]));
        assert_eq!(BlockHead::read_all(&about, 4), Err(Malformed::Short));
        assert_eq!(BlockHead::read_all(&about, 6), Err(Malformed::Long));
        assert_eq!(BlockHead::read_all(&about[1..], 5), Err(Malformed::Short));
        let mut about = Vec::new();
        BlockHead {
            same: true,
            has_gaps: false,
            ..head(5)
        }
        .put(&mut about);
        assert_eq!(BlockHead::read_all(&about, 5), Err(Malformed::Number));
    }

    proptest! {
        #[test]
        fn bytes_of_any_kind_do_no_harm(bytes: Vec<u8>, at in 0_usize..200, with: u8) {
            let _ = FromSource::read(&bytes);
            let _ = FromDestination::read(&bytes);
            for message in source_messages() {
                let mut bytes = message.to_bytes();
                let at = at % bytes.len();
                bytes[at] = with;
                let _ = FromSource::read(&bytes);
            }
        }
    }
}
