//! Whose a socket is: a walk over the descriptors of all processes, a part at a time; and the network namespaces that
//! processes are in.
//!
//! A walk costs a system call for each open file of the machine, so it is made only when somebody wants to know, and no more of it
//! at once than the caller allows. Descriptors of others' processes take ptrace rights over them; without these the sockets stay
//! without a process.
//!
//! Sources: proc_pid_fd(5), ptrace(2) ("Ptrace access mode checking"), proc_pid_ns(5).

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::{Dir, Mode, OFlags};

use crate::netns::NetNs;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name as the kernel keeps it, 15 bytes at most.
    pub name: String,
}

/// A walk over all processes that is made in parts.
#[derive(Debug, Default)]
pub struct Walk {
    /// Processes that were not looked at yet, the newest last.
    waiting: Vec<u32>,
}

impl Walk {
    /// True when no walk is in progress.
    pub const fn is_done(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Begins with the list of processes as it is now.
    pub fn begin(&mut self) {
        self.waiting = pids();
    }

    /// Looks at `files_max` open files or one process, whichever is more: the owners of the sockets among `wanted`, by inode,
    /// which are taken out of it. Ends early when nothing is wanted any more.
    pub fn step(&mut self, wanted: &mut HashSet<u32>, files_max: usize) -> HashMap<u32, Process> {
        let mut found = HashMap::new();
        let mut files = 0;
        while files < files_max && !wanted.is_empty() {
            let Some(pid) = self.waiting.pop() else {
                break;
            };
            let mut process = None;
            files += sockets_of(pid, &mut |inode| {
                if wanted.remove(&inode) {
                    let process = process.get_or_insert_with(|| Process {
                        pid,
                        name: name_of(pid),
                    });
                    found.insert(inode, process.clone());
                }
            });
        }
        if wanted.is_empty() {
            self.waiting.clear();
        }
        found
    }
}

/// Calls `each` with the inode of every socket that a process has open; how many files it has. None of one that is gone or
/// another user's.
fn sockets_of(pid: u32, each: &mut dyn FnMut(u32)) -> usize {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = rustix::fs::open(format!("/proc/{pid}/fd"), flags, Mode::empty()) else {
        return 0;
    };
    let Ok(entries) = Dir::read_from(&folder) else {
        return 0;
    };
    let mut files = 0;
    for entry in entries.filter_map(Result::ok) {
        files += 1;
        if let Some(inode) = socket_at(&folder, entry.file_name()) {
            each(inode);
        }
    }
    files
}

/// Inode of the socket that a link of such a folder leads to: `socket:[123]`.
fn socket_at(folder: &OwnedFd, name: &CStr) -> Option<u32> {
    let mut buffer = [MaybeUninit::uninit(); 32];
    let (link, _) = rustix::fs::readlinkat_raw(folder, name, &mut buffer).ok()?;
    let number = link.strip_prefix(b"socket:[")?.strip_suffix(b"]")?;
    str::from_utf8(number).ok()?.parse().ok()
}

fn pids() -> Vec<u32> {
    numbers_in("/proc")
}

/// The entries of a folder that are numbers, in order.
fn numbers_in(folder: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let numbers = entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

/// Name of a process; empty when it is gone.
pub fn name_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// The network namespaces that threads of this machine are in but the calling thread's, each by its inode; of `max` at most, in the
/// order of the processes. Those that may not be looked at are left out. Every thread is looked at: a program may have
/// each in another one.
///
/// # Errors
/// Without procfs.
pub fn other_namespaces(max: usize) -> io::Result<Vec<(u64, NetNs)>> {
    let mut known = HashSet::from([fs::metadata("/proc/thread-self/ns/net")?.ino()]);
    let mut found = Vec::new();
    for pid in pids() {
        for tid in numbers_in(&format!("/proc/{pid}/task")) {
            let path = format!("/proc/{pid}/task/{tid}/ns/net");
            let Ok(inode) = fs::metadata(&path).map(|m| m.ino()) else {
                continue;
            };
            if found.len() < max && !known.contains(&inode)
                && let Ok(file) = File::open(&path)
                // The thread may have moved meanwhile.
                && let Ok(inode) = file.metadata().map(|m| m.ino())
                && known.insert(inode)
            {
                found.push((inode, NetNs::from(OwnedFd::from(file))));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn the_process_of_a_socket_is_found_and_a_budget_ends_a_step_early() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap();
        let link = link.to_str().unwrap().to_owned();
        let inode: u32 = link[8..link.len() - 1].parse().unwrap();
        let mut walk = Walk::default();
        assert!(walk.is_done());
        walk.begin();
        let mut wanted = HashSet::from([inode]);
        assert!(walk.step(&mut wanted, 0).is_empty() && !walk.is_done());
        let found = walk.step(&mut wanted, usize::MAX);
        assert_eq!(found[&inode].pid, std::process::id());
        assert_eq!(found[&inode].name, name_of(std::process::id()));
        assert!(wanted.is_empty() && walk.is_done());
    }

    #[test]
    fn a_namespace_that_one_thread_is_in_is_found() {
        let Ok(namespace) = NetNs::create() else {
            testing::skipped("no privilege to make namespaces");
            return;
        };
        let found = namespace.run(|| {
            let own = fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
            std::thread::scope(|scope| {
                let elsewhere = || {
                    // That of the process's first thread.
                    NetNs::from(OwnedFd::from(File::open("/proc/self/ns/net")?)).enter()?;
                    other_namespaces(1_000)
                };
                let list = scope.spawn(elsewhere).join().unwrap();
                list.map(|list| list.iter().any(|(inode, _)| *inode == own))
            })
        });
        match found.unwrap() {
            Ok(found) => assert!(found),
            Err(_) => testing::skipped("no privilege to look at the first process"),
        }
    }

    #[test]
    fn a_socket_that_nobody_has_open_ends_the_walk_without_a_process() {
        let mut walk = Walk::default();
        walk.begin();
        let mut wanted = HashSet::from([0]);
        assert!(walk.step(&mut wanted, usize::MAX).is_empty());
        assert!(walk.is_done() && wanted.contains(&0));
        assert_eq!(name_of(0), "");
        assert_eq!(sockets_of(0, &mut |_| ()), 0);
    }
}
