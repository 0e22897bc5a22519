//! The run folder on disk: made at the start, filled as the run goes on, readable however it ends.
//!
//! `run.json` and `findings.json` are replaced as a whole (see [`sys::folder`]), so a reader never
//! sees half of one. `samples.jsonl` only grows; a kill in the middle leaves at most
//! one torn line, which the reader counts and skips. A folder that says `running` on reading was
//! killed: nobody writes that state at an end.
//!
//! Reading trusts nothing: folders are passed around, so sizes are bounded, only regular files are
//! opened, links are not followed, and a sample keeps only the fields that
//! [`wire::tcp_info::TcpInfo`] knows.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use fault::Failure;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sys::folder::Folder;
use units::text::plain_json;

use crate::json::{self, Tree};
use crate::model::{
    FindingRecord, GATEWAY_FIELDS, QUIC_FIELDS, Run, RunState, SCHEMA_VERSION, SampleRecord,
};
use crate::text;

/// Draws a run with its samples and findings as the page that becomes [`REPORT_FILE`].
pub type Page<'a> = &'a dyn Fn(&Run, &[SampleRecord], &[FindingRecord]) -> String;

/// A run's folder, open for writing.
///
/// Dropping it before [`finish`](Self::finish) succeeded marks the run as interrupted and keeps
/// what was sampled.
#[derive(Debug)]
pub struct RunFolder {
    folder: Folder,
    run: Run,
    samples: BufWriter<File>,
    line: Vec<u8>,
    finished: bool,
}

/// A run read back.
#[derive(Clone, Debug, Default)]
pub struct LoadedRun {
    /// Where it was read.
    pub path: PathBuf,
    /// `run.json`; never in the state `running`.
    pub run: Run,
    /// `samples.jsonl`.
    pub samples: Vec<SampleRecord>,
    /// `findings.json`.
    pub findings: Vec<FindingRecord>,
    /// Lines of `samples.jsonl` that are no samples: the torn end of a killed run, or damage.
    pub skipped_lines: u64,
    /// True when `samples.jsonl` went on beyond [`SAMPLES_MAX`] or [`SAMPLES_BYTES_MAX`].
    pub truncated: bool,
}

/// Why a run folder could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// The file system or the user's quota is full.
    #[error(
        "the disk is full: could not {doing} {}: {source}; free some space or choose another place \
         for the run folder", .path.display()
    )]
    DiskFull {
        /// File or folder.
        path: PathBuf,
        /// What was tried: `write`, `create`.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The user may not write or read there.
    #[error(
        "not permitted to {doing} {}: {source}; choose another place for the run folder or change \
         the permissions of this one", .path.display()
    )]
    Permission {
        /// File or folder.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// There is no run to read.
    #[error(
        "{} is not a run folder: it has no readable {missing}; name a folder that goodput made, \
         such as runs/20260131T120000.000Z-doctor-name", .path.display()
    )]
    NotARun {
        /// The folder.
        path: PathBuf,
        /// The file that is not there.
        missing: &'static str,
    },
    /// A file is larger than any that goodput writes.
    #[error(
        "{} is larger than {limit_bytes} bytes, more than goodput ever writes: the file is damaged \
         or not from goodput", .path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Bytes that are read at most.
        limit_bytes: u64,
    },
    /// A file does not say what it should.
    #[error(
        "{} is not what goodput writes: {problem}; restore the file from a copy or measure again",
        .path.display()
    )]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What the parser said, with line and column.
        problem: String,
    },
    /// Anything else that the kernel refused.
    #[error(
        "could not {doing} {}: {source}; see that the file system is healthy and mounted",
        .path.display()
    )]
    Io {
        /// File or folder.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl RunFolder {
    /// Makes `<parent>/<UTC time>-<verb>-<name>/` and writes `run.json` with the state `running`.
    ///
    /// Parents are made as needed. `name` may be anything: what a file name should not hold becomes
    /// a hyphen. Verb, name, start and schema version are filled into `run` where they are missing.
    /// Where that fails, on a full disk for instance, no folder is left.
    pub fn create(parent: &Path, verb: &str, name: &str, run: Run) -> Result<Self, FolderError> {
        fs::create_dir_all(parent).map_err(failed(parent, "create"))?;
        let now = jiff::Timestamp::now();
        let folder = create_fresh(parent, &folder_name(now, verb, name))?;
        let run = Run {
            schema_version: SCHEMA_VERSION,
            verb: given_or(run.verb, verb),
            name: given_or(run.name, name),
            started_utc: given_or(run.started_utc, &now.to_string()),
            state: RunState::Running,
            ..run
        };
        // Only a folder with this file reads: it is the first, and where it cannot be had nothing stays.
        let begun = write_json(&folder, RUN_FILE, json::of_run(&run)).and_then(|()| {
            let made = folder.create(SAMPLES_FILE);
            made.map_err(failed(&folder.path().join(SAMPLES_FILE), "create"))
        });
        let samples = begun.inspect_err(|_| {
            let _ = folder.remove(RUN_FILE);
            let _ = fs::remove_dir(folder.path());
        })?;
        let samples = BufWriter::with_capacity(SAMPLES_BUFFER_BYTES, samples);
        Ok(Self {
            folder,
            run,
            samples,
            line: Vec::new(),
            finished: false,
        })
    }

    /// Appends one line to `samples.jsonl`; buffered.
    ///
    /// An error leaves no half line behind: the sample is taken whole or not at all.
    pub fn append_sample(&mut self, sample: &SampleRecord) -> Result<(), FolderError> {
        let path = || self.folder.path().join(SAMPLES_FILE);
        self.line.clear();
        serde_json::to_writer(&mut self.line, sample).map_err(|e| FolderError::Malformed {
            path: path(),
            problem: e.to_string(),
        })?;
        self.line.push(b'\n');
        self.samples
            .write_all(&self.line)
            .map_err(|e| failed(&path(), "write")(e))
    }

    /// Brings the folder up to date while the run goes on: flushes the samples and replaces
    /// `findings.json` and `run.json`.
    pub fn write(&mut self, run: &Run, findings: &[FindingRecord]) -> Result<(), FolderError> {
        self.flush_samples()?;
        self.run = self.completed(run);
        write_json(&self.folder, FINDINGS_FILE, json::of_findings(findings))?;
        write_json(&self.folder, RUN_FILE, json::of_run(&self.run))
    }

    /// Writes everything, `report.html` as `page` draws it included, and `run.json` last: a run that
    /// says `done` on disk is whole. A run still `running` is taken to be done.
    pub fn finish(
        &mut self,
        run: &Run,
        findings: &[FindingRecord],
        page: Page<'_>,
    ) -> Result<(), FolderError> {
        let mut run = self.completed(run);
        if run.state == RunState::Running {
            run.state = RunState::Done;
        }
        run.finished_utc
            .get_or_insert_with(|| jiff::Timestamp::now().to_string());
        self.flush_samples()?;
        let (samples, _, _) = load_samples(&self.folder)?;
        write_json(&self.folder, FINDINGS_FILE, json::of_findings(findings))?;
        write_page(&self.folder, &page(&run, &samples, findings))?;
        write_json(&self.folder, RUN_FILE, json::of_run(&run))?;
        self.run = run;
        self.finished = true;
        Ok(())
    }

    /// Writes everything while the run goes on, `report.html` as `page` draws it included, and
    /// returns the page's file.
    pub fn draw(
        &mut self,
        run: &Run,
        findings: &[FindingRecord],
        page: Page<'_>,
    ) -> Result<PathBuf, FolderError> {
        self.write(run, findings)?;
        let (samples, _, _) = load_samples(&self.folder)?;
        write_page(&self.folder, &page(&self.run, &samples, findings))
    }

    /// Takes back what [`create`](Self::create) made, for a run that never began. The folder stays if
    /// anything else is in it.
    pub fn discard(mut self) {
        self.finished = true;
        // What cannot be removed stays: nobody is left to tell.
        for name in [RUN_FILE, SAMPLES_FILE] {
            let _ = self.folder.remove(name);
        }
        let _ = fs::remove_dir(self.path());
    }

    /// The run as it was written last.
    pub const fn run(&self) -> &Run {
        &self.run
    }

    /// Where the run is kept.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Reads a run folder, also one whose run was killed.
    ///
    /// `findings.json` and `samples.jsonl` may be missing. A run left `running` reads as
    /// interrupted; lines that are no samples are counted and skipped.
    pub fn load(path: &Path) -> Result<LoadedRun, FolderError> {
        Ok(Self::load_with_folder(path)?.1)
    }

    /// As [`load`](Self::load), with the folder that it was read from, whatever its name means later.
    pub fn load_with_folder(path: &Path) -> Result<(Folder, LoadedRun), FolderError> {
        let folder = Folder::open(path).map_err(|e| match is_missing(&e) {
            true => no_run(path),
            false => failed(path, "read")(e),
        })?;
        let loaded = Self::load_from(&folder)?;
        Ok((folder, loaded))
    }

    fn load_from(folder: &Folder) -> Result<LoadedRun, FolderError> {
        let path = folder.path();
        let mut run: Run = read_json(folder, RUN_FILE)?.ok_or_else(|| no_run(path))?;
        if run.state == RunState::Running {
            run.state = RunState::Interrupted;
        }
        let findings = read_json(folder, FINDINGS_FILE)?.unwrap_or_default();
        let (samples, skipped_lines, truncated) = load_samples(folder)?;
        Ok(LoadedRun {
            path: path.to_owned(),
            run,
            samples,
            findings,
            skipped_lines,
            truncated,
        })
    }

    /// `run` with the facts that were known at the start, where it leaves them out.
    fn completed(&self, run: &Run) -> Run {
        let run = run.clone();
        Run {
            schema_version: SCHEMA_VERSION,
            verb: given_or(run.verb, &self.run.verb),
            name: given_or(run.name, &self.run.name),
            started_utc: given_or(run.started_utc, &self.run.started_utc),
            ..run
        }
    }

    fn flush_samples(&mut self) -> Result<(), FolderError> {
        self.samples
            .flush()
            .map_err(failed(&self.folder.path().join(SAMPLES_FILE), "write"))
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        if self.run.state == RunState::Running {
            self.run.state = RunState::Interrupted;
            self.run
                .finished_utc
                .get_or_insert_with(|| jiff::Timestamp::now().to_string());
        }
        // Nobody is left to tell: the folder reads as interrupted even if this fails.
        let _ = self.flush_samples();
        let _ = write_json(&self.folder, RUN_FILE, json::of_run(&self.run));
    }
}

fn given_or(given: String, default: &str) -> String {
    if given.is_empty() {
        default.to_owned()
    } else {
        given
    }
}

/// `20260131T120000.000Z-doctor-name`.
fn folder_name(now: jiff::Timestamp, verb: &str, name: &str) -> String {
    let time = now.strftime("%Y%m%dT%H%M%S.%3fZ");
    let (verb, name) = (sanitised(verb), sanitised(name));
    format!(
        "{time}-{verb}{}{name}",
        if name.is_empty() { "" } else { "-" }
    )
}

/// Only letters, digits, `.`, `_` and single hyphens; none of the last three at either end.
fn sanitised(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if out.len() >= NAME_BYTES_MAX {
            break;
        }
        match c {
            'A'..='Z' | 'a'..='z' | '0'..='9' | '.' | '_' => out.push(c),
            _ if out.ends_with('-') => {}
            _ => out.push('-'),
        }
    }
    out.trim_matches(['-', '.', '_']).to_owned()
}

/// Makes `parent/name`, or `parent/name-2` and so on when that exists: never another run's folder.
fn create_fresh(parent: &Path, name: &str) -> Result<Folder, FolderError> {
    let within = Folder::open(parent).map_err(failed(parent, "create"))?;
    for attempt in 1..=COLLISIONS_MAX {
        let suffix = if attempt == 1 {
            String::new()
        } else {
            format!("-{attempt}")
        };
        let name = format!("{name}{suffix}");
        match within.make(&name, 0o777) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && attempt < COLLISIONS_MAX => {}
            made => return made.map_err(failed(&parent.join(name), "create")),
        }
    }
    unreachable!("the last attempt returns")
}

fn write_json(
    folder: &Folder,
    name: &str,
    tree: serde_json::Result<Tree>,
) -> Result<(), FolderError> {
    let path = folder.path().join(name);
    let text = tree.and_then(|tree| serde_json::to_string_pretty(&tree));
    let text = text.map_err(|e| FolderError::Malformed {
        path: path.clone(),
        problem: text::plain(&e.to_string()),
    })?;
    let text = plain_json(&text) + "\n";
    folder
        .replace(name, text.as_bytes())
        .map_err(failed(&path, "write"))
}

/// Writes the page of a run and returns its file.
fn write_page(folder: &Folder, page: &str) -> Result<PathBuf, FolderError> {
    let path = folder.path().join(REPORT_FILE);
    let written = folder.replace(REPORT_FILE, page.as_bytes());
    written.map_err(failed(&path, "write"))?;
    Ok(path)
}

/// Reads a small JSON file; `None` when there is none. A key that holds null counts as absent: a
/// number that was none (0/0) is written so.
fn read_json<T: DeserializeOwned>(folder: &Folder, name: &str) -> Result<Option<T>, FolderError> {
    let Some(file) = open_regular(folder, name)? else {
        return Ok(None);
    };
    let path = &folder.path().join(name);
    let mut bytes = Vec::new();
    file.take(JSON_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(failed(path, "read"))?;
    if bytes.len() as u64 > JSON_BYTES_MAX {
        return Err(FolderError::TooLarge {
            path: path.to_owned(),
            limit_bytes: JSON_BYTES_MAX,
        });
    }
    let malformed = |e: serde_json::Error| FolderError::Malformed {
        path: path.to_owned(),
        problem: text::plain(&e.to_string()),
    };
    let mut value: Value = serde_json::from_slice(&bytes).map_err(malformed)?;
    json::drop_nulls(&mut value);
    json::plain_value(&mut value);
    json::schema(value).map(Some).map_err(malformed)
}

/// Samples, lines skipped, and whether there was more than is read.
fn load_samples(folder: &Folder) -> Result<(Vec<SampleRecord>, u64, bool), FolderError> {
    let Some(file) = open_regular(folder, SAMPLES_FILE)? else {
        return Ok((Vec::new(), 0, false));
    };
    let path = folder.path().join(SAMPLES_FILE);
    read_samples(BufReader::new(file)).map_err(failed(&path, "read"))
}

fn read_samples(mut input: impl BufRead) -> io::Result<(Vec<SampleRecord>, u64, bool)> {
    let known = wire::tcp_info::TcpInfo::default();
    let others = || QUIC_FIELDS.iter().chain(&GATEWAY_FIELDS);
    let is_known = |name: &String| { known }.set(name, 0) || others().any(|other| other == name);
    let (mut samples, mut skipped, mut read_bytes) = (Vec::new(), 0, 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = (&mut input)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok((samples, skipped, false));
        }
        read_bytes += length as u64;
        if samples.len() >= SAMPLES_MAX || read_bytes > SAMPLES_BYTES_MAX {
            return Ok((samples, skipped, true));
        }
        match serde_json::from_slice::<SampleRecord>(&line) {
            Ok(mut sample) => {
                sample.tcp_info.retain(|name, _| is_known(name));
                samples.push(sample);
            }
            Err(_) if line.iter().all(u8::is_ascii_whitespace) => {}
            Err(_) => skipped += 1,
        }
    }
}

/// Opens a file that is one: reading from a pipe or a device would not end, and what a link leads to
/// may be a secret of the reader's that the page then shows.
fn open_regular(folder: &Folder, name: &str) -> Result<Option<File>, FolderError> {
    let path = folder.path().join(name);
    match folder.read(name) {
        Ok(file) => Ok(Some(file)),
        Err(e) if is_missing(&e) => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => Err(FolderError::Malformed {
            path,
            problem: e.to_string(),
        }),
        Err(e) => Err(failed(&path, "read")(e)),
    }
}

fn is_missing(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

fn no_run(path: &Path) -> FolderError {
    FolderError::NotARun {
        path: path.to_owned(),
        missing: RUN_FILE,
    }
}

/// Sorts a kernel's refusal by what the user can do about it.
fn failed(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.to_owned();
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FolderError::DiskFull {
            path,
            doing,
            source,
        },
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            FolderError::Permission {
                path,
                doing,
                source,
            }
        }
        _ => FolderError::Io {
            path,
            doing,
            source,
        },
    }
}

const RUN_FILE: &str = "run.json";
const SAMPLES_FILE: &str = "samples.jsonl";
const FINDINGS_FILE: &str = "findings.json";
/// The page that is drawn of a run, in its folder.
pub const REPORT_FILE: &str = "report.html";

/// Bytes of a name in the folder's name: verb and name together stay far below the 255 of a file.
const NAME_BYTES_MAX: usize = 60;
/// Runs that may start in one millisecond under one name.
const COLLISIONS_MAX: u32 = 1_000;
/// About 100 samples: a second of ten connections at both ends.
const SAMPLES_BUFFER_BYTES: usize = 256 << 10;
/// `run.json` and `findings.json`: thousands of times what a run writes.
const JSON_BYTES_MAX: u64 = 16 << 20;
/// One sample: 70 fields of 20 digits with their names stay below 4 KiB.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Bytes of samples that are read: two hours of ten connections sampled ten times a second.
pub const SAMPLES_BYTES_MAX: u64 = 1 << 30;
/// Samples that are read.
pub const SAMPLES_MAX: usize = 2_000_000;

impl From<FolderError> for Failure {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::NotARun { .. } | FolderError::Malformed { .. } => Self::usage(error),
            _ => Self::here(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::model::Phase;

    /// A directory of the test's own, removed at its end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("goodput-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn run(&self) -> RunFolder {
            RunFolder::create(&self.0, "doctor", "a path", Run::default()).unwrap()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// A page that says no more than whose it is.
    fn page(run: &Run, samples: &[SampleRecord], findings: &[FindingRecord]) -> String {
        let (samples, findings) = (samples.len(), findings.len());
        format!("<html>{}: {samples}, {findings}</html>\n", run.name)
    }

    fn sample(t_ns: u64) -> SampleRecord {
        let tcp_info = [("rtt_us".to_owned(), 85_020)].into();
        SampleRecord {
            phase: "before".to_owned(),
            t_ns,
            tcp_info,
            ..SampleRecord::default()
        }
    }

    #[test]
    fn a_folder_is_written_to_whatever_its_name_means_by_then() {
        let scratch = Scratch::new("reached");
        let mut folder = scratch.run();
        let own = folder.path().to_owned();
        let elsewhere = scratch.0.join("elsewhere");
        fs::rename(&own, &elsewhere).unwrap();
        let victim = scratch.0.join("victim");
        fs::create_dir(&victim).unwrap();
        symlink(&victim, &own).unwrap();
        let file = folder.draw(&Run::default(), &[], &page).unwrap();
        assert_eq!((folder.path(), file), (&*own, own.join(REPORT_FILE)));
        folder.append_sample(&sample(1)).unwrap();
        folder.finish(&Run::default(), &[], &page).unwrap();
        let loaded = RunFolder::load(&elsewhere).unwrap();
        assert_eq!(
            (loaded.samples.len(), loaded.run.state),
            (1, RunState::Done)
        );
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
    }

    /// Every file that a run folder may hold, and the names that their unfinished versions once had.
    fn names() -> Vec<String> {
        let all = [RUN_FILE, SAMPLES_FILE, FINDINGS_FILE, REPORT_FILE];
        let unfinished = all.map(|name| format!(".{name}.tmp"));
        all.map(str::to_owned)
            .into_iter()
            .chain(unfinished)
            .collect()
    }

    #[test]
    fn what_another_user_put_in_a_run_folder_is_never_written_through() {
        let scratch = Scratch::new("written-through");
        let victim = scratch.0.join("victim");
        let dangling = scratch.0.join("made");
        fs::write(&victim, "precious").unwrap();
        type Put = fn(&Path, &Path);
        let kinds: [(&str, &Path, Put); 3] = [
            ("link", &victim, |victim, at| symlink(victim, at).unwrap()),
            ("hard link", &victim, |victim, at| {
                fs::hard_link(victim, at).unwrap()
            }),
            ("dangling link", &dangling, |victim, at| {
                symlink(victim, at).unwrap()
            }),
        ];
        for ((kind, target, put), name) in kinds
            .iter()
            .flat_map(|kind| names().into_iter().map(move |name| (kind, name)))
        {
            let mut folder = scratch.run();
            let at = folder.path().join(&name);
            // Samples go to a file that was opened at the start; only their reader looks at the name.
            let _ = fs::remove_file(&at);
            put(target, &at);
            folder.append_sample(&sample(1)).unwrap();
            for _ in 0..2 {
                let _ = folder.write(&Run::default(), &[]);
                let _ = folder.draw(&Run::default(), &[], &page);
            }
            let finished = folder.finish(&Run::default(), &[], &page);
            let is_link = *kind != "hard link";
            assert_eq!(
                finished.is_ok(),
                name != SAMPLES_FILE || !is_link,
                "{kind} {name}"
            );
            drop(folder);
            assert_eq!(fs::read(&victim).unwrap(), b"precious", "{kind} {name}");
            assert!(!dangling.exists(), "{kind} {name}");
        }
    }

    #[test]
    fn links_in_a_run_folder_are_not_read() {
        let scratch = Scratch::new("links");
        let mut elsewhere = scratch.run();
        elsewhere.append_sample(&sample(1)).unwrap();
        elsewhere.finish(&Run::default(), &[], &page).unwrap();
        for name in [RUN_FILE, SAMPLES_FILE, FINDINGS_FILE] {
            let mut folder = scratch.run();
            folder.finish(&Run::default(), &[], &page).unwrap();
            fs::remove_file(folder.path().join(name)).unwrap();
            symlink(elsewhere.path().join(name), folder.path().join(name)).unwrap();
            let error = RunFolder::load(folder.path()).unwrap_err().to_string();
            assert!(
                error.contains(name) && error.contains("symbolic link"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_finished_run_reads_back_as_it_was_written() {
        let scratch = Scratch::new("finished");
        let mut folder = scratch.run();
        (0..3).for_each(|t| folder.append_sample(&sample(t)).unwrap());
        let phase = Phase {
            name: "before".to_owned(),
            ..Phase::default()
        };
        let run = Run {
            name: "x".to_owned(),
            phases: vec![phase],
            ..Run::default()
        };
        let finding = FindingRecord {
            cause: "loss".to_owned(),
            ..FindingRecord::default()
        };
        let findings = std::slice::from_ref(&finding);
        folder.finish(&run, findings, &page).unwrap();
        let path = folder.path().to_owned();
        drop(folder);
        let loaded = RunFolder::load(&path).unwrap();
        assert_eq!(loaded.run.state, RunState::Done);
        assert_eq!(loaded.run.phases, run.phases);
        assert_eq!(loaded.samples, [sample(0), sample(1), sample(2)]);
        assert_eq!(loaded.findings, [finding]);
        assert_eq!((loaded.skipped_lines, loaded.truncated), (0, false));
        let page = fs::read_to_string(path.join("report.html")).unwrap();
        assert_eq!(page, "<html>x: 3, 1</html>\n");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 4);
    }

    #[test]
    fn a_dropped_run_is_interrupted_and_keeps_its_samples() {
        let scratch = Scratch::new("dropped");
        let mut folder = scratch.run();
        folder.append_sample(&sample(7)).unwrap();
        let path = folder.path().to_owned();
        drop(folder);
        let text = fs::read_to_string(path.join("run.json")).unwrap();
        assert!(text.contains("\"state\": \"interrupted\""), "{text}");
        let loaded = RunFolder::load(&path).unwrap();
        assert_eq!(loaded.samples, [sample(7)]);
        assert_eq!(
            (loaded.run.verb.as_str(), loaded.run.name.as_str()),
            ("doctor", "a path")
        );
    }

    #[test]
    fn a_killed_run_reads_as_interrupted_and_its_torn_line_is_counted() {
        let scratch = Scratch::new("killed");
        let mut folder = scratch.run();
        folder.append_sample(&sample(1)).unwrap();
        folder.write(&Run::default(), &[]).unwrap();
        let path = folder.path().to_owned();
        std::mem::forget(folder);
        let mut file = File::options()
            .append(true)
            .open(path.join("samples.jsonl"))
            .unwrap();
        file.write_all(br#"{"phase":"before","end":"sen"#).unwrap();
        let loaded = RunFolder::load(&path).unwrap();
        assert_eq!(loaded.run.state, RunState::Interrupted);
        assert_eq!((loaded.samples.len(), loaded.skipped_lines), (1, 1));
    }

    #[test]
    fn names_from_outside_stay_inside_the_parent() {
        let scratch = Scratch::new("names");
        for name in [
            "../../etc/passwd",
            "a/b\0c",
            "..",
            "",
            "ünïcode",
            &"x".repeat(5_000),
        ] {
            let folder = RunFolder::create(&scratch.0, "do/ctor", name, Run::default()).unwrap();
            assert_eq!(folder.path().parent(), Some(scratch.0.as_path()));
            let own = folder
                .path()
                .file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            assert!(own.len() < 160, "{own}");
            assert!(
                own.chars()
                    .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)),
                "{own}"
            );
        }
        assert_eq!(sanitised("../../etc/passwd"), "etc-passwd");
        assert_eq!(sanitised(".."), "");
    }

    #[test]
    fn runs_of_the_same_millisecond_get_their_own_folders() {
        let scratch = Scratch::new("collision");
        let now = jiff::Timestamp::UNIX_EPOCH;
        let name = folder_name(now, "doctor", "lab:x");
        assert_eq!(name, "19700101T000000.000Z-doctor-lab-x");
        let first = create_fresh(&scratch.0, &name).unwrap();
        let second = create_fresh(&scratch.0, &name).unwrap();
        assert_ne!(first.path(), second.path());
        assert!(
            second
                .path()
                .ends_with("19700101T000000.000Z-doctor-lab-x-2")
        );
    }

    #[test]
    fn parents_are_made_and_a_parent_that_cannot_be_is_named() {
        let scratch = Scratch::new("parents");
        let deep = scratch.0.join("a/b/c");
        assert!(RunFolder::create(&deep, "doctor", "x", Run::default()).is_ok());
        fs::write(scratch.0.join("file"), "").unwrap();
        let error = RunFolder::create(&scratch.0.join("file/x"), "doctor", "x", Run::default())
            .unwrap_err();
        assert!(error.to_string().contains("file/x"), "{error}");
    }

    #[test]
    fn a_run_that_never_began_leaves_nothing_but_what_others_put_there() {
        let scratch = Scratch::new("discard");
        let folder = scratch.run();
        let path = folder.path().to_owned();
        folder.discard();
        assert!(!path.exists());
        let folder = scratch.run();
        let path = folder.path().to_owned();
        fs::write(path.join("own"), "").unwrap();
        folder.discard();
        assert!(path.join("own").exists() && !path.join("run.json").exists());
    }

    #[test]
    fn a_full_disk_is_told_apart_and_names_the_file() {
        let scratch = Scratch::new("full");
        let mut folder = scratch.run();
        let full = File::options().write(true).open("/dev/full").unwrap();
        folder.samples = BufWriter::with_capacity(64, full);
        let error = folder.append_sample(&sample(1)).unwrap_err();
        assert!(matches!(error, FolderError::DiskFull { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.starts_with("the disk is full: could not write") && text.contains("samples.jsonl")
        );
        // The disk has room again: the folder still ends up readable.
        drop(folder);
    }

    #[test]
    fn a_failed_finish_leaves_the_run_interrupted() {
        let scratch = Scratch::new("failed-finish");
        let mut folder = scratch.run();
        let path = folder.path().to_owned();
        fs::create_dir(path.join("report.html")).unwrap();
        assert!(folder.finish(&Run::default(), &[], &page).is_err());
        drop(folder);
        assert_eq!(
            RunFolder::load(&path).unwrap().run.state,
            RunState::Interrupted
        );
        assert_eq!(
            fs::read_dir(&path).unwrap().count(),
            4,
            "nothing unfinished"
        );
    }

    #[test]
    fn what_is_no_run_is_refused_with_its_path() {
        let scratch = Scratch::new("no-run");
        let error = RunFolder::load(&scratch.0).unwrap_err();
        assert!(matches!(error, FolderError::NotARun { .. }), "{error}");
        symlink("/dev/zero", scratch.0.join("run.json")).unwrap();
        let error = RunFolder::load(&scratch.0).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
        fs::remove_file(scratch.0.join("run.json")).unwrap();
        for text in [
            "",
            "[",
            "{\"phases\": 3}",
            "{\"state\": \"dancing\"}",
            "\u{0}\u{1}",
        ] {
            fs::write(scratch.0.join("run.json"), text).unwrap();
            let error = RunFolder::load(&scratch.0).unwrap_err();
            assert!(
                matches!(error, FolderError::Malformed { .. }),
                "{text}: {error}"
            );
        }
        fs::write(scratch.0.join("run.json"), vec![b' '; 17 << 20]).unwrap();
        assert!(matches!(
            RunFolder::load(&scratch.0),
            Err(FolderError::TooLarge { .. })
        ));
    }

    #[test]
    fn a_number_that_was_none_does_not_make_a_run_unreadable() {
        let scratch = Scratch::new("nan");
        let mut folder = scratch.run();
        let mut phase = Phase::default();
        phase.shares.network = f64::NAN;
        folder
            .finish(
                &Run {
                    phases: vec![phase],
                    ..Run::default()
                },
                &[],
                &page,
            )
            .unwrap();
        let loaded = RunFolder::load(folder.path()).unwrap();
        assert_eq!(loaded.run.phases.len(), 1);
    }

    #[test]
    fn hostile_sample_lines_are_skipped_and_unknown_fields_dropped() {
        let mut text =
            br#"{"phase":"p","end":"sender","stream":0,"t_ns":1,"app_bytes":2,"#.to_vec();
        text.extend_from_slice(b"\"rtt_us\":5,\"no_such_field\":6}\n\n  \nnot json\n\xff\xfe\n");
        text.extend(std::iter::repeat_n(b'[', 200_000));
        text.push(b'\n');
        let (samples, skipped, truncated) = read_samples(text.as_slice()).unwrap();
        assert_eq!(samples.len(), 1);
        assert_eq!(samples[0].tcp_info.keys().collect::<Vec<_>>(), ["rtt_us"]);
        assert_eq!((skipped, truncated), (2 + 4, false));
    }
}
