//! Files that grow at their end, opened so that nothing else is opened in their place.
//!
//! Source: open(2).

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open as open_file};

/// Opens the regular file `path` for what is added at its end, and makes it, for its owner alone, where there is none.
/// Its name may lead nowhere else: a symbolic link is refused, and so is another user's file.
///
/// # Errors
/// `ELOOP` for a symbolic link, `InvalidInput` for what is no regular file, `PermissionDenied` for another user's; as
/// open(2).
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    // Without waiting for somebody who reads from a pipe of that name.
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(open_file(path, flags, Mode::RUSR | Mode::WUSR)?);
    let found = file.metadata()?;
    if !found.is_file() {
        let kind = io::ErrorKind::InvalidInput;
        return Err(io::Error::new(kind, "it is no regular file"));
    }
    if found.uid() != crate::control::effective_user() && found.uid() != 0 {
        let kind = io::ErrorKind::PermissionDenied;
        return Err(io::Error::new(kind, "it is another user's file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn only_a_file_itself_is_opened_and_a_new_one_is_its_owners() {
        let root = std::env::temp_dir().join(format!("goodput-append-{}", std::process::id()));
        fs::create_dir(&root).unwrap();
        let path = root.join("log");
        for word in ["one\n", "two\n"] {
            open(&path).unwrap().write_all(word.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let link = root.join("link");
        symlink(&path, &link).unwrap();
        let error = open(&link).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
        assert!(open(&root).is_err(), "a directory");
        fs::remove_dir_all(&root).unwrap();
    }
}
