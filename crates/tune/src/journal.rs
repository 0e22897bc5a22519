//! What was done, written before it is done: one JSON object a line, each on the disk (fsync) before the next step.
//!
//! A line that a power loss cut in half names a write that did not happen, since the write waits for the line. It is passed over.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fault::Failure;
use serde::{Deserialize, Serialize};

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A plan begins to be applied.
    Apply {
        /// Which: nanoseconds since 1970.
        number: u64,
        /// When, in UTC.
        at: String,
        /// The boot that it belongs to (/proc/sys/kernel/random/boot_id).
        boot_id: String,
        /// The network namespace.
        namespace: String,
        /// What for, in words.
        what: String,
        /// Seconds until it is undone unless it is confirmed; absent where it stays.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        confirm_s: Option<u64>,
        /// Content of the drop-in file that a confirmation writes; empty where none is wanted.
        drop_in: String,
    },
    /// A value is about to be written.
    Write {
        /// Which ([`settings::Key`]).
        key: String,
        /// As read.
        old: String,
        /// As it will be.
        new: String,
    },
    /// A file is about to be written.
    File {
        /// Where.
        path: String,
        /// What was there; absent where nothing was.
        old: Option<String>,
        /// What will be there.
        new: String,
    },
    /// All values of the last plan are set.
    Applied,
    /// The last plan stays.
    Confirmed,
    /// The last plan failed and what it had set was taken back.
    RolledBack {
        /// Why.
        why: String,
    },
}

/// The folder of one namespace's journal, locked.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    /// What it holds, in order.
    pub events: Vec<Event>,
    lock: File,
}

const FILE: &str = "journal.jsonl";
const LAST: &str = "undone.jsonl";
/// A plan has some tens of lines.
const BYTES_MAX: u64 = 4 << 20;

impl Journal {
    /// Opens the journal in `folder`, which is made, and keeps others out until it is dropped.
    ///
    /// # Errors
    /// Another `tune` has it; the folder is somebody else's; it cannot be read or made.
    pub fn open(folder: &Path) -> Result<Self, Failure> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(folder).map_err(|e| here(folder, &e))?;
        check_owner(folder)?;
        let path = folder.join("lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(|e| here(&path, &e))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::here(format!(
                    "another goodput tune changes this host now ({} is locked); wait for it and try again",
                    path.display()
                )));
            }
            Err(TryLockError::Error(e)) => return Err(here(&path, &e)),
        }
        Ok(Self {
            events: read(folder)?,
            folder: folder.to_owned(),
            lock,
        })
    }

    /// Puts a line on the disk. Only then may what it says be done.
    ///
    /// # Errors
    /// As write(2) and fsync(2), such as a full disk.
    pub fn add(&mut self, event: Event) -> Result<(), Failure> {
        let path = self.folder.join(FILE);
        self.append(&path, &event).map_err(|e| here(&path, &e))?;
        self.events.push(event);
        Ok(())
    }

    fn append(&self, path: &Path, event: &Event) -> io::Result<()> {
        let is_new = !path.exists();
        let mut file = File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)?;
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        // What a power loss left of a line is closed, so that it spoils no other.
        if !is_new && !ends_a_line(path)? {
            line.insert(0, b'\n');
        }
        file.write_all(&line)?;
        file.sync_all()?;
        if is_new {
            File::open(&self.folder)?.sync_all()?;
        }
        Ok(())
    }

    /// Everything was undone: the journal is kept under another name, for people.
    ///
    /// # Errors
    /// As rename(2).
    pub fn close(&mut self) -> Result<(), Failure> {
        let path = self.folder.join(FILE);
        if path.exists() {
            let closed = fs::rename(&path, self.folder.join(LAST))
                .and_then(|()| File::open(&self.folder)?.sync_all());
            closed.map_err(|e| here(&path, &e))?;
        }
        self.events.clear();
        Ok(())
    }

    /// Events of the plan that was applied last, its beginning first.
    pub fn last(&self) -> &[Event] {
        let begin = |event: &Event| matches!(event, Event::Apply { .. });
        let from = self.events.iter().rposition(begin);
        from.map_or(&[], |from| &self.events[from..])
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // A process that was forked meanwhile has the file too, until it runs its program: closing alone would leave it locked.
        let _ = self.lock.unlock();
    }
}

/// What a journal holds, without the lock: for looking on.
///
/// # Errors
/// Where it is there and cannot be read.
pub(crate) fn read(folder: &Path) -> Result<Vec<Event>, Failure> {
    let path = folder.join(FILE);
    let bytes = match fs::metadata(&path) {
        Ok(facts) if facts.len() > BYTES_MAX => {
            return Err(Failure::here(format!(
                "{} is larger than any journal",
                path.display()
            )));
        }
        Ok(_) => fs::read(&path).map_err(|e| here(&path, &e))?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(here(&path, &e)),
    };
    let lines = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    Ok(lines
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect())
}

fn ends_a_line(path: &Path) -> io::Result<bool> {
    Ok(fs::read(path)?.last().is_none_or(|last| *last == b'\n'))
}

/// What the journal says is written as root: nobody else may have a hand in it.
fn check_owner(folder: &Path) -> Result<(), Failure> {
    let facts = fs::metadata(folder).map_err(|e| here(folder, &e))?;
    let own = facts.uid() == sys::control::effective_user();
    if own && facts.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(Failure::here(format!(
        "others may write in {}: it must belong to you alone (chmod 700), or name another with --state",
        folder.display()
    )))
}

pub(crate) fn here(path: &Path, error: &io::Error) -> Failure {
    Failure::here(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("goodput-journal-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    fn write(key: &str) -> Event {
        Event::Write {
            key: key.to_owned(),
            old: "0".to_owned(),
            new: "1".to_owned(),
        }
    }

    #[test]
    fn a_second_one_is_refused_while_the_first_holds_the_lock() {
        let folder = folder("lock");
        let first = Journal::open(&folder).unwrap();
        let refused = Journal::open(&folder).unwrap_err();
        assert_eq!(refused.code, fault::CANNOT_RUN_HERE);
        assert!(refused.to_string().contains("another goodput tune"));
        drop(first);
        Journal::open(&folder).unwrap();
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_line_cut_by_a_power_loss_is_passed_over_and_spoils_no_other() {
        let folder = folder("torn");
        let mut journal = Journal::open(&folder).unwrap();
        for key in ["net.ipv4.tcp_sack", "net.ipv4.tcp_rmem"] {
            journal.add(write(key)).unwrap();
        }
        drop(journal);
        let file = folder.join(FILE);
        let whole = fs::read(&file).unwrap();
        let first = whole.iter().position(|b| *b == b'\n').unwrap() + 1;
        for cut in 0..whole.len() {
            fs::write(&file, &whole[..cut]).unwrap();
            let mut journal = Journal::open(&folder).unwrap();
            // A line without its end may be whole.
            let whole_lines = usize::from(cut >= first - 1) + usize::from(cut >= whole.len() - 1);
            assert_eq!(journal.events.len(), whole_lines, "{cut}");
            journal.add(write("net.ipv4.tcp_mem")).unwrap();
            assert_eq!(read(&folder).unwrap().len(), whole_lines + 1, "{cut}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_others_may_write_in_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = folder("owner");
        drop(Journal::open(&folder).unwrap());
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Journal::open(&folder).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
