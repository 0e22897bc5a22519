//! Lists of names to copy (`--files-from`).

use thiserror::Error;

use crate::entry::{PathError, RelPath};

/// The most names of one list: what fits into a gigabyte.
const NAMES_MOST: usize = 8_000_000;

/// What is wrong with a list of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ListError {
    /// A name that cannot be below the folder.
    #[error("name {number} of the list is {error}")]
    Name {
        /// Which, from 1.
        number: usize,
        /// What is wrong with it.
        error: PathError,
    },
    /// Too many.
    #[error("a list of more than {NAMES_MOST} names")]
    Many,
}

/// Reads a list for [`crate::source::Source::from_list`]: names divided by NUL bytes or by line ends; in lines, those that begin with `#` or `;` are
/// passed over. Slashes in front and `.` are taken out, as rsync(1) does; `..` is refused.
///
/// A folder is copied alone, so that what find(1) prints can be taken as it is; with a slash at its end, with all that is in
/// it (the `true` of a pair).
///
/// # Errors
/// As [`ListError`] tells.
pub fn listed(text: &[u8], by_nul: bool) -> Result<Vec<(RelPath, bool)>, ListError> {
    let mut names = Vec::new();
    let end = if by_nul { 0 } else { b'\n' };
    for (index, name) in text.split(|byte| *byte == end).enumerate() {
        let name = if by_nul {
            name
        } else {
            name.strip_suffix(b"\r").unwrap_or(name)
        };
        if name.is_empty() || (!by_nul && matches!(name[0], b'#' | b';')) {
            continue;
        }
        if names.len() == NAMES_MOST {
            return Err(ListError::Many);
        }
        let whole = name.ends_with(b"/") || name.ends_with(b"/.");
        let parts: Vec<&[u8]> = name
            .split(|byte| *byte == b'/')
            .filter(|part| !matches!(*part, b"" | b"."))
            .collect();
        let path = RelPath::new(&parts.join(&b'/'));
        let path = path.map_err(|error| ListError::Name {
            number: index + 1,
            error,
        })?;
        names.push((path, whole));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_rsync_reads_it() {
        let list = listed(b"# these\n/a//b\n./c/\n\n;no\n.\nd/.\r\n", false).unwrap();
        let told: Vec<(String, bool)> = list
            .iter()
            .map(|(path, whole)| (path.to_string(), *whole))
            .collect();
        let expected = [("a/b", false), ("c", true), ("", false), ("d", true)];
        assert_eq!(told, expected.map(|(path, whole)| (path.to_owned(), whole)));
        assert_eq!(listed(b"#a\0b\nc\0", true).unwrap().len(), 2);
        let error = ListError::Name {
            number: 2,
            error: PathError::Dots,
        };
        assert_eq!(listed(b"a\nb/../../c", false), Err(error));
    }
}
