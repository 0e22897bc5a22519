//! Folders for tests.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A new folder, removed with all in it at the end.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self::below(&std::env::temp_dir()).unwrap()
    }

    /// In memory, where there is such a place: for many names, where it does not matter what file system has them.
    pub(crate) fn of_many_names() -> Self {
        Self::below(Path::new("/dev/shm")).unwrap_or_else(|_| Self::new())
    }

    fn below(folder: &Path) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("goodput-copy-{}-{number}", std::process::id());
        let path = folder.join(name);
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A path in it.
    pub(crate) fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file, and the folders it is in.
    pub(crate) fn file(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn folder(&self, name: impl AsRef<Path>) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(&path).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A test that failed may leave what cannot be removed; the failure is what counts.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether tests run as the superuser.
pub(crate) fn is_superuser() -> bool {
    rustix::process::geteuid().is_root()
}
