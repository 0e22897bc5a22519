//! Paths of cgroups by the number that sockets carry, and the container that a path names.
//!
//! The number of a cgroup is the inode of its folder (fs/kernfs, 64-bit). Container managers put each container into a cgroup whose
//! name holds its identity: `docker-<64 hex>.scope`, `cri-containerd-<64 hex>.scope`, `libpod-<64 hex>.scope`, `/docker/<64 hex>`,
//! `lxc.payload.<name>`, `machine-<name>.scope`.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Paths that were found, from the root of the cgroup hierarchy.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    paths: HashMap<u64, String>,
    /// How many dumps to go before folders are looked at again for a number that was not there.
    rest: u32,
}

impl Cgroups {
    /// Looks for the paths of these numbers, unless it did so lately.
    pub(crate) fn look(&mut self, mut wanted: impl Iterator<Item = u64>) {
        self.rest = self.rest.saturating_sub(1);
        if self.rest > 0 || wanted.all(|id| self.paths.contains_key(&id)) {
            return;
        }
        self.rest = REST_DUMPS;
        self.paths.clear();
        for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
            if Path::new(root).join("cgroup.controllers").exists() {
                self.walk(Path::new(root));
            }
        }
    }

    /// Takes over a path that a recording has.
    pub(crate) fn insert(&mut self, id: u64, path: String) {
        if self.paths.len() < CGROUPS_MAX {
            self.paths.insert(id, path);
        }
    }

    /// Path of a cgroup, with `/` for the root.
    pub(crate) fn path(&self, id: u64) -> Option<&str> {
        self.paths.get(&id).map(String::as_str)
    }

    /// All that are known.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, &str)> {
        self.paths.iter().map(|(id, path)| (*id, path.as_str()))
    }

    fn walk(&mut self, root: &Path) {
        if let Ok(metadata) = fs::metadata(root) {
            self.insert(metadata.ino(), "/".to_owned());
        }
        let mut waiting: Vec<PathBuf> = vec![root.to_owned()];
        while let Some(folder) = waiting.pop() {
            let Ok(entries) = fs::read_dir(&folder) else {
                continue;
            };
            let folders = entries.filter_map(Result::ok);
            let folders = folders.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
            for entry in folders {
                if self.paths.len() >= CGROUPS_MAX {
                    return;
                }
                let path = entry.path();
                let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy();
                self.paths.insert(entry.ino(), format!("/{name}"));
                waiting.push(path);
            }
        }
    }
}

/// The container that a cgroup's path names: its identity's first 12 digits as `docker ps` has them, or its name.
pub(crate) fn container(path: &str) -> Option<String> {
    path.rsplit('/').find_map(|part| {
        let part = part.strip_suffix(".scope").unwrap_or(part);
        if let Some(name) = part
            .strip_prefix("lxc.payload.")
            .or_else(|| part.strip_prefix("machine-"))
        {
            return (!name.is_empty()).then(|| name.to_owned());
        }
        let id = part.rsplit(['-', ':']).next()?;
        let is_id = id.len() == ID_DIGITS && id.bytes().all(|b| b.is_ascii_hexdigit());
        is_id.then(|| id[..SHORT_DIGITS].to_owned())
    })
}

const ID_DIGITS: usize = 64;
const SHORT_DIGITS: usize = 12;
/// Chosen: a host of a thousand containers has some of these each.
const CGROUPS_MAX: usize = 20_000;
const REST_DUMPS: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_have_the_first_digits_of_their_identity_or_their_name() {
        let id = "0123456789abcdef".repeat(4);
        for (path, found) in [
            (
                format!("/system.slice/docker-{id}.scope"),
                Some("0123456789ab"),
            ),
            (format!("/docker/{id}"), Some("0123456789ab")),
            (
                format!("/kubepods.slice/pod7/cri-containerd-{id}.scope"),
                Some("0123456789ab"),
            ),
            (
                format!("/kubepods/burstable/pod7/{id}/inner"),
                Some("0123456789ab"),
            ),
            (format!("/docker/{}", &id[1..]), None),
            (
                "/lxc.payload.web/system.slice/nginx.service".to_owned(),
                Some("web"),
            ),
            ("/machine.slice/machine-db.scope".to_owned(), Some("db")),
            ("/user.slice/user-1000.slice".to_owned(), None),
            ("/".to_owned(), None),
        ] {
            assert_eq!(container(&path).as_deref(), found, "{path}");
        }
    }

    #[test]
    fn what_was_not_found_is_looked_for_again_after_a_while() {
        let mut cgroups = Cgroups::default();
        cgroups.look([u64::MAX].into_iter());
        assert_eq!(cgroups.rest, REST_DUMPS);
        cgroups.insert(7, "/x".to_owned());
        cgroups.look([u64::MAX].into_iter());
        assert_eq!(
            (cgroups.rest, cgroups.path(7)),
            (REST_DUMPS - 1, Some("/x"))
        );
    }
}
