//! The log of what became of each connection: JSON lines, written by the main thread.
//!
//! Bounded in size (one older file is kept) and in rate (what comes faster is counted, and a line says how much). What
//! is in the way of writing ends no connection: lines that cannot be written are counted as well.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fault::Failure;
use run::utc_of_ns;
use serde::Serialize;
use sys::clock;
use units::{Duration, Instant};

use super::event::Event;
use crate::decisions::{Decisions, Entry, LogConfig};

/// The file, and what waits to be written there.
#[derive(Debug)]
pub(super) struct DecisionLog {
    config: LogConfig,
    decisions: Option<Decisions>,
    file: File,
    buffer: String,
    /// Entries in the buffer, and those that its lines count.
    buffered: u64,
    second: Instant,
    lines: u32,
    /// Entries that nobody will read.
    dropped: u64,
    /// The last write did not succeed.
    failed: bool,
    /// Why, until somebody has been told.
    trouble: Option<Event>,
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    time: String,
    #[serde(flatten)]
    entry: &'a Entry,
}

/// So many entries are not there.
#[derive(Debug, Serialize)]
struct Dropped {
    time: String,
    event: &'static str,
    entries: u64,
}

impl DecisionLog {
    /// Makes the file, or goes on with it.
    pub(super) fn open(config: &LogConfig) -> Result<Self, Failure> {
        let name = config.file.display();
        let file = sys::append::open(&config.file)
            .map_err(|e| Failure::usage(format!("the log {name}: {e}")))?;
        Ok(Self {
            config: config.clone(),
            decisions: None,
            file,
            buffer: String::new(),
            buffered: 0,
            second: clock::monotonic(),
            lines: 0,
            dropped: 0,
            failed: false,
            trouble: None,
        })
    }

    /// What it writes from now on.
    pub(super) fn listen(&mut self, decisions: Option<Decisions>) {
        self.decisions = decisions;
    }

    /// Other bounds, for the same file.
    pub(super) fn become_another(&mut self, config: Option<&LogConfig>) {
        if let Some(config) = config {
            self.config = config.clone();
        }
    }

    /// To be called often: writes what has been decided since, and says once what is in the way of that.
    pub(super) fn look(&mut self) -> Option<Event> {
        self.take(clock::monotonic(), AT_ONCE);
        self.flush();
        self.trouble.take()
    }

    /// The gateway has ended, or another one goes on: writes the rest.
    pub(super) fn end(mut self) -> Option<Event> {
        self.take(clock::monotonic(), usize::MAX);
        if self.dropped > 0 {
            self.say_dropped();
        }
        self.flush();
        self.trouble
    }

    fn take(&mut self, now: Instant, most: usize) {
        if now.saturating_since(self.second) >= SECOND {
            (self.second, self.lines) = (now, 0);
        }
        if let Some(decisions) = self.decisions.take() {
            self.dropped += decisions.take_lost();
            let entries = std::iter::from_fn(|| decisions.take());
            for entry in entries.take(most) {
                self.put(&entry);
            }
            self.decisions = Some(decisions);
        }
        if self.dropped > 0 && self.lines < self.config.lines_per_second && !self.failed {
            self.say_dropped();
        }
    }

    fn put(&mut self, entry: &Entry) {
        if self.lines >= self.config.lines_per_second {
            self.dropped += 1;
            return;
        }
        self.lines += 1;
        let time = utc_of_ns(entry.at_ns);
        self.add(&Line { time, entry }, 1);
    }

    fn say_dropped(&mut self) {
        let entries = std::mem::take(&mut self.dropped);
        self.lines += 1;
        let line = Dropped {
            time: utc_of_ns(clock::realtime_ns()),
            event: "dropped",
            entries,
        };
        self.add(&line, entries);
    }

    fn add(&mut self, line: &impl Serialize, entries: u64) {
        let Ok(text) = serde_json::to_string(line) else {
            self.dropped += entries;
            return;
        };
        let most = usize::try_from(self.config.size.as_u64()).unwrap_or(usize::MAX);
        if self.buffer.len() + text.len() >= most.min(PART) {
            self.flush();
        }
        self.buffer += &text;
        self.buffer.push('\n');
        self.buffered += entries;
    }

    fn flush(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let written = self.write();
        self.buffer.clear();
        let entries = std::mem::take(&mut self.buffered);
        match written {
            Ok(()) => self.failed = false,
            Err(error) => {
                self.dropped += entries;
                if !self.failed {
                    let file = self.config.file.clone();
                    self.trouble = Some(Event::LogFailed { file, error });
                }
                self.failed = true;
            }
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let path = &self.config.file;
        let ours = self.file.metadata()?;
        // Somebody else has moved it away or made another one.
        if identity(path) != Some((ours.dev(), ours.ino())) {
            self.file = sys::append::open(path)?;
        }
        let size = self.file.metadata()?.len();
        let need = self.buffer.len() as u64;
        if size > 0 && size.saturating_add(need) > self.config.size.as_u64() {
            fs::rename(path, older(path))?;
            self.file = sys::append::open(path)?;
        }
        if self.failed {
            // The last one may have left a part of a line.
            self.file.write_all(b"\n")?;
        }
        self.file.write_all(self.buffer.as_bytes())
    }
}

/// Device and inode of what has this name, not of what it leads to.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// What the file before is called.
fn older(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".1");
    name.into()
}

const SECOND: Duration = Duration::from_s(1);
/// Entries in one look, so that the main thread turns.
const AT_ONCE: usize = 16_384;
/// Bytes written at once.
const PART: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::{self, Why};
    use serde_json::Value;
    use units::Bytes;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("goodput-decisions-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn log(&self, size: u64, lines_per_second: u32) -> DecisionLog {
            let mut config = LogConfig::to(self.0.join("log"));
            config.size = Bytes::new(size);
            config.lines_per_second = lines_per_second;
            DecisionLog::open(&config).unwrap()
        }

        fn lines(&self, name: &str) -> Vec<Value> {
            let text = fs::read_to_string(self.0.join(name)).unwrap();
            let lines = text.lines().filter(|line| !line.is_empty());
            lines.map(|l| serde_json::from_str(l).unwrap()).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn entry(port: u16) -> Entry {
        Entry {
            at_ns: 1_500_000_000,
            event: decisions::Event::Unsplit,
            why: Why::Rule,
            rule: Some(1),
            client: ([10, 0, 0, 1], port).into(),
            server: ([10, 0, 0, 2], 80).into(),
            side: "inside",
            mss: Some(1460),
            held_us: None,
            lasted_ms: None,
            carried: None,
            undelivered: None,
        }
    }

    #[test]
    fn the_file_is_bounded_and_one_older_is_kept() {
        let folder = Folder::new("bounded");
        let mut log = folder.log(4096, 100_000);
        for port in 1..=500 {
            log.put(&entry(port));
        }
        log.end();
        for name in ["log", "log.1"] {
            let size = fs::metadata(folder.0.join(name)).unwrap().len();
            assert!(size <= 4096, "{name}: {size}");
        }
        let all = [folder.lines("log.1"), folder.lines("log")].concat();
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 2);
        // The last ones, in their order, each a whole line.
        for (line, port) in all.iter().rev().zip((1..=500).rev()) {
            assert_eq!(line["client"], format!("10.0.0.1:{port}"));
            assert_eq!(line["time"], "1970-01-01T00:00:01.5Z");
        }
        assert!(all.len() > 20, "{}", all.len());
    }

    #[test]
    fn what_comes_too_fast_is_counted_and_said() {
        let folder = Folder::new("fast");
        let mut log = folder.log(1 << 20, 10);
        for port in 1..=50 {
            log.put(&entry(port));
        }
        log.look();
        assert_eq!(folder.lines("log").len(), 10);
        let later = clock::monotonic() + SECOND;
        log.take(later, AT_ONCE);
        log.put(&entry(51));
        log.end();
        let lines = folder.lines("log");
        assert_eq!(lines.len(), 12);
        assert_eq!(
            (&lines[10]["event"], &lines[10]["entries"]),
            (&"dropped".into(), &40.into())
        );
    }

    #[test]
    fn a_file_that_was_moved_away_is_made_anew_and_a_link_is_not_followed() {
        let folder = Folder::new("moved");
        let mut log = folder.log(1 << 20, 100);
        log.put(&entry(1));
        log.flush();
        fs::rename(folder.0.join("log"), folder.0.join("old")).unwrap();
        log.put(&entry(2));
        log.flush();
        assert_eq!(
            (folder.lines("old").len(), folder.lines("log").len()),
            (1, 1)
        );
        // Somebody puts a link in its place: nothing is written where it leads to, and it is counted.
        fs::remove_file(folder.0.join("log")).unwrap();
        std::os::unix::fs::symlink(folder.0.join("old"), folder.0.join("log")).unwrap();
        log.put(&entry(3));
        log.flush();
        assert_eq!(
            (folder.lines("old").len(), log.dropped, log.failed),
            (1, 1, true)
        );
        fs::remove_file(folder.0.join("log")).unwrap();
        log.put(&entry(4));
        log.end();
        let lines = folder.lines("log");
        assert_eq!((lines.len(), &lines[1]["entries"]), (2, &1.into()));
    }
}
