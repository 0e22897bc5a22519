//! What one name in a tree is: its path below the top, its kind, and what belongs to it.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use thiserror::Error;
use units::text::is_plain;

/// The longest path in bytes (`PATH_MAX` in include/uapi/linux/limits.h, less its terminator).
pub const PATH_BYTES_MOST: usize = 4_095;
/// The longest name in bytes (`NAME_MAX` in include/uapi/linux/limits.h).
pub const NAME_BYTES_MOST: usize = 255;
/// The most names in a path: a folder in a folder costs either side a descriptor.
pub const DEPTH_MOST: usize = 512;

/// A path below a top folder: names, none of which is `.` or `..`, parted by single slashes. The empty path is the top.
///
/// Bytes need not be UTF-8.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelPath(Box<[u8]>);

/// Why bytes are no path below a top folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// It begins with a slash.
    #[error("a path from the root")]
    Absolute,
    /// A name is `.` or `..`.
    #[error("a path with . or .. in it")]
    Dots,
    /// Two slashes together, or one at the end.
    #[error("a path with an empty name in it")]
    Empty,
    /// A byte of 0.
    #[error("a path with a NUL in it")]
    Nul,
    /// Over [`PATH_BYTES_MOST`], [`NAME_BYTES_MOST`] or [`DEPTH_MOST`].
    #[error("a path that is too long")]
    Long,
}

impl RelPath {
    /// The top folder itself.
    pub fn top() -> Self {
        Self::default()
    }

    /// Checks what came from outside.
    ///
    /// # Errors
    /// As [`PathError`] tells.
    pub fn new(bytes: &[u8]) -> Result<Self, PathError> {
        if bytes.is_empty() {
            return Ok(Self::top());
        }
        if bytes[0] == b'/' {
            return Err(PathError::Absolute);
        }
        if bytes.len() > PATH_BYTES_MOST {
            return Err(PathError::Long);
        }
        let mut depth = 0;
        for name in bytes.split(|byte| *byte == b'/') {
            match name {
                b"" => return Err(PathError::Empty),
                b"." | b".." => return Err(PathError::Dots),
                _ if name.contains(&0) => return Err(PathError::Nul),
                _ if name.len() > NAME_BYTES_MOST => return Err(PathError::Long),
                _ => depth += 1,
            }
        }
        if depth > DEPTH_MOST {
            return Err(PathError::Long);
        }
        Ok(Self(bytes.into()))
    }

    /// This and one more name.
    ///
    /// # Errors
    /// As [`RelPath::new`] for the two together.
    pub fn join(&self, name: &[u8]) -> Result<Self, PathError> {
        if name.contains(&b'/') {
            return Err(PathError::Empty);
        }
        if name.is_empty() {
            return Err(PathError::Empty);
        }
        let mut bytes = self.0.to_vec();
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Self::new(&bytes)
    }

    /// Whether this is the top folder.
    pub fn is_top(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes, without slashes at the ends.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As the standard library takes it; empty for the top.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// The names in it, from the top down; none for the top.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        let names = self.0.split(|byte| *byte == b'/');
        names.filter(|name| !name.is_empty())
    }

    /// The folder it is in, and its name there. `None` for the top.
    pub fn split(&self) -> Option<(Self, &[u8])> {
        if self.is_top() {
            return None;
        }
        Some(match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (Self(self.0[..at].into()), &self.0[at + 1..]),
            None => (Self::top(), &self.0),
        })
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// As a terminal may show it: what is not UTF-8 or not [plain](is_plain) is escaped.
impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.0.utf8_chunks() {
            for letter in part.valid().chars() {
                match is_plain(letter) {
                    true => write!(f, "{letter}")?,
                    false => write!(f, "{}", letter.escape_default())?,
                }
            }
            write!(f, "{}", part.invalid().escape_ascii())?;
        }
        Ok(())
    }
}

/// A time of a file system: since 1970, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds of the second, 0..1_000_000_000.
    pub nanoseconds: u32,
}

/// What a name is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A folder; what is in it follows as entries of their own.
    Folder,
    /// A file of so many bytes.
    File {
        /// Length, with holes.
        size: u64,
    },
    /// A symbolic link and the bytes it holds, which may point anywhere and are never followed.
    Symlink {
        /// 1..=[`PATH_BYTES_MOST`] bytes.
        target: Box<[u8]>,
    },
    /// Another name of a file that was told before.
    Hardlink {
        /// That file's path.
        to: RelPath,
    },
}

/// An extended attribute: its name, without NUL, and its value.
pub type Attribute = (Box<[u8]>, Box<[u8]>);

/// What belongs to a name beside its bytes. What the user did not ask to keep is `None` or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Permission bits, set-user-ID, set-group-ID and sticky: 0..=0o7777.
    pub mode: Option<u32>,
    /// Owner and group as numbers.
    pub owner: Option<(u32, u32)>,
    /// Their names at the source, which win over the numbers where the destination knows them.
    pub owner_names: Option<(Box<str>, Box<str>)>,
    /// Time of last modification.
    pub modified: Option<Stamp>,
    /// Extended attributes, access control lists among them (`system.posix_acl_access`): name without NUL, value.
    pub attributes: Vec<Attribute>,
    /// These are all that it has of what users set ([`crate::attributes`]): others at the destination are not the source's.
    pub has_all_attributes: bool,
}

/// One name of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where, below the top. The top itself may be an entry: a folder's own mode and time.
    pub path: RelPath,
    /// What it is.
    pub kind: Kind,
    /// What belongs to it.
    pub meta: Meta,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leaves_the_top_is_refused() {
        for (bytes, why) in [
            (&b"/etc/passwd"[..], PathError::Absolute),
            (b"..", PathError::Dots),
            (b"a/../b", PathError::Dots),
            (b"a/.", PathError::Dots),
            (b"a//b", PathError::Empty),
            (b"a/", PathError::Empty),
            (b"a\0b", PathError::Nul),
        ] {
            assert_eq!(RelPath::new(bytes), Err(why), "{}", bytes.escape_ascii());
        }
        assert_eq!(
            RelPath::new(b"...").map(|p| p.to_string()),
            Ok("...".to_owned())
        );
    }

    #[test]
    fn names_and_paths_have_linux_limits() {
        let name = vec![b'x'; NAME_BYTES_MOST];
        assert!(RelPath::new(&name).is_ok());
        assert_eq!(
            RelPath::new(&[&name[..], b"x"].concat()),
            Err(PathError::Long)
        );
        let deep = vec!["d"; DEPTH_MOST].join("/");
        assert!(RelPath::new(deep.as_bytes()).is_ok());
        assert_eq!(
            RelPath::new(format!("{deep}/d").as_bytes()),
            Err(PathError::Long)
        );
        let long = vec!["y".repeat(200); 21].join("/");
        assert_eq!(RelPath::new(long.as_bytes()), Err(PathError::Long));
        assert!(RelPath::new(&long.as_bytes()[..PATH_BYTES_MOST]).is_ok());
    }

    #[test]
    fn a_path_splits_into_folder_and_name() {
        let path = RelPath::new(b"a/b/c").unwrap();
        let (folder, name) = path.split().unwrap();
        assert_eq!((folder.as_bytes(), name), (&b"a/b"[..], &b"c"[..]));
        assert_eq!(folder.join(name), Ok(path));
        assert_eq!(RelPath::top().split(), None);
        assert_eq!(RelPath::top().join(b"a/b"), Err(PathError::Empty));
        assert_eq!(RelPath::top().join(b".."), Err(PathError::Dots));
    }

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        let path = RelPath::new(b"a\x1b[2J\xff\xc3\xa9").unwrap();
        assert_eq!(path.to_string(), "a\\u{1b}[2J\\xff\u{e9}");
        let turned = RelPath::new("a\u{202e}gpj.\u{9b}\u{2028}\n".as_bytes()).unwrap();
        let shown = "a\\u{202e}gpj.\\u{9b}\\u{2028}\\n";
        assert_eq!(turned.to_string(), shown);
    }
}
