//! What the rows gave when they were last run on this machine: `runs/board.json`.
//!
//! The file is a convenience, not the evidence: that lies in the run folders. So reading it never
//! fails. An unreadable file is told of and set aside on the next write, an unreadable entry is
//! passed over, and unknown keys are ignored. Writing takes a lock, reads again, replaces the file
//! in one step and never leaves a half-written one. The newest [`RESULTS_PER_ROW`] results of a row
//! are kept, so that the file stays small and a row's past can be told.
//!
//! Left out: merging states of several machines; a number belongs to the machine that gave it.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sys::folder::Folder;

use crate::check::CheckResult;

/// Results of earlier runs, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    results: Vec<RowResult>,
    /// What could not be read, in a sentence for the user.
    pub warning: Option<String>,
    /// The file is not one of ours, or broken: set it aside before writing.
    foreign: bool,
}

/// One run of one row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowResult {
    /// The row.
    pub id: String,
    /// How it ended.
    pub outcome: Outcome,
    /// When, RFC 3339 UTC.
    pub finished_utc: String,
    /// Where the evidence lies.
    #[serde(default)]
    pub run_folder: Option<String>,
    /// The goodput that ran it.
    pub goodput_version: String,
    /// Fingerprint of the row's text that judged it.
    #[serde(default)]
    pub row_digest: String,
    /// Steps that did not run, a line each with the reason.
    #[serde(default)]
    pub errors: Vec<String>,
    /// Every reading, ours beside theirs.
    pub checks: Vec<CheckResult>,
}

/// How a row ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Every check passed and every observer that the row names passed one.
    Green,
    /// It ran, nothing failed, but a reading, a premise or an observer is missing.
    Amber,
    /// A check failed, or a step did not run.
    Failed,
}

impl State {
    /// Reads the file; a missing one is an empty state.
    pub fn read(path: &Path) -> Self {
        let text = match read_limited(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::default(),
            Err(error) => return Self::unreadable(path, &error.to_string()),
        };
        let file: Value = match report::from_json(text.as_bytes()) {
            Ok(file) => file,
            Err(error) => return Self::unreadable(path, &error.to_string()),
        };
        if file.get("schema_version").and_then(Value::as_u64) != Some(SCHEMA_VERSION) {
            return Self::unreadable(path, "it is not version 1 of this file");
        }
        let entries = file
            .get("results")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let read: Vec<_> = entries
            .iter()
            .filter_map(|entry| RowResult::deserialize(entry).ok())
            .collect();
        let passed_over = entries.len() - read.len();
        let warning = (passed_over > 0).then(|| {
            format!(
                "{}: {passed_over} result(s) could not be read and are not shown",
                path.display()
            )
        });
        Self {
            results: read,
            warning,
            foreign: false,
        }
    }

    /// Adds a result to the file and returns the new state.
    pub fn record(path: &Path, result: RowResult) -> io::Result<Self> {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        if let Some(parent) = parent {
            fs::create_dir_all(parent)?;
        }
        let (folder, name) = Folder::of(path)?;
        // Held to the end of this function; a lock file of its own, since the file is replaced.
        let lock = folder.lock_file(with_suffix(Path::new(name), ".lock"))?;
        lock.lock()?;
        // A link is the user's own, or another's: neither is replaced.
        if let Err(error) = folder.read(name)
            && error.kind() == io::ErrorKind::InvalidInput
        {
            return Err(error);
        }
        let mut state = Self::read(path);
        if state.foreign {
            fs::rename(path, with_suffix(path, ".unreadable"))?;
        }
        state.add(result);
        let file = json!({ "schema_version": SCHEMA_VERSION, "results": state.results });
        let text = serde_json::to_string_pretty(&file)? + "\n";
        folder.replace(name, text.as_bytes())?;
        Ok(state)
    }

    /// The newest result of a row.
    pub fn latest(&self, id: &str) -> Option<&RowResult> {
        self.results.iter().rev().find(|result| result.id == id)
    }

    /// Adds a result and lets the row's oldest go.
    pub fn add(&mut self, result: RowResult) {
        let id = result.id.clone();
        self.results.push(result);
        let surplus = self
            .results
            .iter()
            .filter(|r| r.id == id)
            .count()
            .saturating_sub(RESULTS_PER_ROW);
        let mut dropped = 0;
        self.results.retain(|r| {
            let drop = r.id == id && dropped < surplus;
            dropped += usize::from(drop);
            !drop
        });
    }

    fn unreadable(path: &Path, why: &str) -> Self {
        let warning = format!(
            "{} cannot be read ({why}); earlier results are not shown and the next run sets the \
             file aside",
            path.display()
        );
        Self {
            results: Vec::new(),
            warning: Some(warning),
            foreign: true,
        }
    }
}

fn read_limited(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let (folder, name) = Folder::of(path)?;
    folder
        .read(name)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is larger than 16 MiB",
        ));
    }
    Ok(text)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Version of the file's layout.
const SCHEMA_VERSION: u64 = 1;

/// Chosen: enough to see a row come and go; 47 rows with ten results of 5 kB stay below 3 MB.
const RESULTS_PER_ROW: usize = 10;

/// Chosen: five times what the retention above allows.
const FILE_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of this test's own, removed when it ends.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("goodput-board-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
        fn file(&self) -> PathBuf {
            self.0.join("runs").join("board.json")
        }
        fn write(&self, bytes: &[u8]) -> PathBuf {
            fs::create_dir_all(self.0.join("runs")).unwrap();
            fs::write(self.file(), bytes).unwrap();
            self.file()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn result(id: &str, when: &str) -> RowResult {
        RowResult {
            id: id.into(),
            outcome: Outcome::Green,
            finished_utc: when.into(),
            run_folder: None,
            goodput_version: "0.1.0".into(),
            row_digest: String::new(),
            errors: Vec::new(),
            checks: Vec::new(),
        }
    }

    #[test]
    fn a_missing_file_is_an_empty_state() {
        let folder = Folder::new("missing");
        assert_eq!(State::read(&folder.file()), State::default());
    }

    #[test]
    fn what_is_recorded_is_read_again_and_nothing_else_stays_behind() {
        let folder = Folder::new("again");
        let path = folder.file();
        State::record(&path, result("N1", "1")).unwrap();
        State::record(&path, result("C1", "2")).unwrap();
        State::record(&path, result("N1", "3")).unwrap();
        let state = State::read(&path);
        assert_eq!(state.latest("N1").unwrap().finished_utc, "3");
        assert_eq!(state.latest("C1").unwrap().finished_utc, "2");
        assert_eq!(state.latest("S8"), None);
        let mut names: Vec<_> = fs::read_dir(path.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["board.json", "board.json.lock"]);
    }

    #[test]
    fn links_in_the_place_of_its_files_are_not_followed() {
        let own = |suffix: &str| format!("board.json{suffix}");
        for name in [
            own(""),
            own(".lock"),
            own(".unreadable"),
            own(&format!(".{}.new", std::process::id())),
        ] {
            for (kind, is_dangling) in [("link", false), ("dangling link", true)] {
                let folder = Folder::new("links");
                let victim = folder.0.join("victim");
                fs::create_dir(folder.0.join("runs")).unwrap();
                if !is_dangling {
                    fs::write(&victim, "precious").unwrap();
                }
                let at = folder.0.join("runs").join(&name);
                std::os::unix::fs::symlink(&victim, at).unwrap();
                let recorded = State::record(&folder.file(), result("N1", "1"));
                let is_free = name != own("") && name != own(".lock");
                assert_eq!(recorded.is_ok(), is_free, "{kind} {name}");
                assert_eq!(victim.exists(), !is_dangling, "{kind} {name}");
                let left = fs::read(&victim).unwrap_or_else(|_| b"precious".into());
                assert_eq!(left, b"precious", "{kind} {name}");
            }
        }
    }

    #[test]
    fn garbage_is_told_of_and_set_aside_not_lost() {
        for (name, bytes) in [
            ("words", b"not json".as_slice()),
            ("bytes", &[0xff, 0xfe, 0x00]),
            ("cut", b"{\"schema_version\": 1, \"results\": ["),
            ("newer", b"{\"schema_version\": 2, \"results\": []}"),
            ("list", b"[1, 2, 3]"),
        ] {
            let folder = Folder::new(name);
            let path = folder.write(bytes);
            assert!(State::read(&path).warning.is_some(), "{name}");
            let state = State::record(&path, result("N1", "1")).unwrap();
            assert!(state.latest("N1").is_some(), "{name}");
            assert_eq!(fs::read(with_suffix(&path, ".unreadable")).unwrap(), bytes);
            assert_eq!(State::read(&path).warning, None, "{name}");
        }
    }

    #[test]
    fn one_bad_entry_does_not_hide_the_others() {
        let folder = Folder::new("entry");
        let good = serde_json::to_value(result("N1", "1")).unwrap();
        let file = serde_json::json!({
            "schema_version": 1,
            "results": [{"id": "C1"}, 7, good],
            "later": "ignored",
        });
        let path = folder.write(file.to_string().as_bytes());
        let state = State::read(&path);
        assert!(state.latest("N1").is_some() && state.latest("C1").is_none());
        assert!(state.warning.unwrap().contains("2 result(s)"));
    }

    #[test]
    fn a_row_keeps_its_newest_results_only() {
        let mut state = State::default();
        state.add(result("C1", "first"));
        for n in 0..=RESULTS_PER_ROW {
            state.add(result("N1", &n.to_string()));
        }
        assert_eq!(
            state.results.iter().filter(|r| r.id == "N1").count(),
            RESULTS_PER_ROW
        );
        assert_eq!(
            state
                .results
                .iter()
                .find(|r| r.id == "N1")
                .unwrap()
                .finished_utc,
            "1"
        );
        assert!(state.latest("C1").is_some());
    }

    #[test]
    fn two_writers_at_once_lose_nothing() {
        let folder = Folder::new("two");
        let path = folder.file();
        std::thread::scope(|scope| {
            for id in ["C1", "C2", "C3", "C4"] {
                let path = &path;
                scope.spawn(move || State::record(path, result(id, "1")).unwrap());
            }
        });
        let state = State::read(&path);
        assert!(
            ["C1", "C2", "C3", "C4"]
                .iter()
                .all(|id| state.latest(id).is_some())
        );
    }
}
