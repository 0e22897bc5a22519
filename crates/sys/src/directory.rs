//! Directories by descriptor: what is checked on it cannot be swapped for something else meanwhile.
//!
//! Source: open(2).

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open as open_file};

/// Opens the directory `path` itself: not what a symbolic link in its place leads to.
///
/// # Errors
/// `ENOTDIR` when it is no directory or a symbolic link; as open(2).
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(open_file(path, flags, Mode::empty())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_a_directory_itself_is_opened() {
        let root = std::env::temp_dir().join(format!("goodput-directory-{}", std::process::id()));
        fs::create_dir(&root).unwrap();
        fs::write(root.join("file"), "").unwrap();
        symlink(&root, root.join("link")).unwrap();
        assert!(open(&root).unwrap().metadata().unwrap().is_dir());
        for other in ["file", "link"] {
            let error = open(&root.join(other)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotADirectory, "{other}");
        }
        fs::remove_dir_all(&root).unwrap();
    }
}
