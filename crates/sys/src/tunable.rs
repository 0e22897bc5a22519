//! Values of /proc and /sys that can be set, below the machine's root or any other folder.
//!
//! A folder in place of the root is an image of a machine, or a test's. Files are written, never made: a key that is not there
//! stays absent. /proc/sys answers for the network namespace of the calling thread.
//!
//! Sources: proc_sys(5), sysfs(5), proc_sys_net(5); Linux net/sysctl_net.c (modes and owners in a namespace).

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;

/// A tree that has /proc and /sys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    root: PathBuf,
}

/// Values are short; whoever stands in for /proc is not to fill the memory.
const BYTES_MAX: u64 = 64 << 10;

impl Tree {
    /// This machine's.
    pub fn machine() -> Self {
        Self::at(Path::new("/"))
    }

    /// The tree below `root`.
    pub fn at(root: &Path) -> Self {
        let root = root.to_owned();
        Self { root }
    }

    /// Whether it is this machine's.
    pub fn is_machine(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Where an absolute path lies in it.
    pub fn path(&self, absolute: &str) -> PathBuf {
        self.root.join(absolute.trim_start_matches('/'))
    }

    /// Where a sysctl lies in it.
    ///
    /// # Errors
    /// `InvalidInput` for a name that is none.
    pub fn sysctl(&self, name: &str) -> io::Result<PathBuf> {
        Ok(self.path(&crate::host::sysctl_path(name)?))
    }

    /// A file's text, without white space at its end.
    ///
    /// # Errors
    /// As open(2) and read(2); `InvalidData` for what is no text.
    pub fn read(&self, absolute: &str) -> io::Result<String> {
        read(&self.path(absolute))
    }

    /// Names in a folder, sorted; none where there is no folder.
    pub fn names(&self, absolute: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(absolute)).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }
}

/// A file's text, without white space at its end.
///
/// # Errors
/// As open(2) and read(2); `InvalidData` for what is no text.
pub fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(BYTES_MAX)
        .read_to_string(&mut text)?;
    Ok(text.trim_end().to_owned())
}

/// Writes a value in one write(2), as the kernel wants it.
///
/// # Errors
/// `NotFound` where there is no such value, `PermissionDenied` and `ReadOnlyFilesystem` as it says, `InvalidInput` for a value
/// out of the range that the kernel takes.
pub fn write(path: &Path, value: &str) -> io::Result<()> {
    let mut file = File::options().write(true).truncate(true).open(path)?;
    file.write_all(format!("{value}\n").as_bytes())
}

/// Whether root could write the file: it has a bit for its owner, and is not on a file system that is mounted read-only, as
/// containers have /proc/sys.
pub fn is_writable(path: &Path) -> bool {
    let owner_may = fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o200 != 0);
    let read_only = rustix::fs::statvfs(path)
        .is_ok_and(|facts| facts.f_flag.contains(StatVfsMountFlags::RDONLY));
    owner_may && !read_only
}

/// MemTotal of a proc_meminfo(5) in bytes.
pub fn memory_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Bytes of a page.
pub fn page_bytes() -> u64 {
    crate::host::page_bytes().unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_where_they_are_and_never_made() {
        let folder = std::env::temp_dir().join(format!("goodput-tree-{}", std::process::id()));
        let net = folder.join("proc/sys/net/ipv4");
        fs::create_dir_all(&net).unwrap();
        fs::write(net.join("tcp_sack"), "0\n").unwrap();
        let tree = Tree::at(&folder);
        assert!(!tree.is_machine() && Tree::machine().is_machine());
        let sack = tree.sysctl("net.ipv4.tcp_sack").unwrap();
        write(&sack, "1").unwrap();
        assert_eq!(read(&sack).unwrap(), "1");
        assert_eq!(tree.read("/proc/sys/net/ipv4/tcp_sack").unwrap(), "1");
        assert_eq!(tree.names("/proc/sys/net/ipv4"), ["tcp_sack"]);
        let absent = tree.sysctl("net.ipv4.tcp_no_such").unwrap();
        let error = write(&absent, "1").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(!absent.exists() && !is_writable(&absent));
        assert!(is_writable(&sack));
        fs::set_permissions(&sack, fs::Permissions::from_mode(0o444)).unwrap();
        assert!(!is_writable(&sack));
        assert!(tree.sysctl("net.ipv4/../../../etc/passwd").is_err());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn memory_is_read_in_kib() {
        assert_eq!(
            memory_total("MemTotal:       16384 kB\nMemFree: 1 kB\n"),
            Some(16 << 20)
        );
        assert_eq!(memory_total("MemTotal: much\n"), None);
    }
}
