//! Programs that others have installed.

use std::fs;
use std::path::{Path, PathBuf};

/// The first file of that name in PATH that may be run.
pub(super) fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut each = std::env::split_paths(&path).map(|folder| folder.join(name));
    each.find(|file| is_program(file))
}

pub(super) fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}
