//! Runs the binary in a folder of its own and looks for what it left behind.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A folder that is gone after the test, and the mark by which all that was started there is found.
pub(crate) struct Scratch {
    dir: PathBuf,
    mark: String,
    mounts_before: BTreeSet<String>,
}

/// A command under way.
pub(crate) struct Running {
    pub(crate) child: Child,
    out: PathBuf,
    err: PathBuf,
}

/// A command that ended.
#[derive(Debug)]
pub(crate) struct Ended {
    status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Scratch {
    /// A new folder that everybody may enter.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("goodput-cli-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(&mark);
        fs::create_dir_all(&dir).unwrap();
        fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
        Self {
            dir,
            mark,
            mounts_before: namespace_mounts(),
        }
    }

    /// A path inside.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Writes a file inside.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.path(name);
        fs::write(&file, text).unwrap();
        file
    }

    /// The folder that run folders are made in.
    pub(crate) fn runs(&self) -> PathBuf {
        self.path("runs")
    }

    /// The only run folder there.
    pub(crate) fn run_folder(&self) -> PathBuf {
        let found = run_folders(&self.runs());
        assert_eq!(found.len(), 1, "run folders: {found:?}");
        found.into_iter().next().unwrap()
    }

    /// `run.json` of the only run folder.
    pub(crate) fn run_json(&self) -> Value {
        json(&self.run_folder().join("run.json"))
    }

    /// The binary, its run folders kept here.
    pub(crate) fn goodput(&self, args: &[&str]) -> Command {
        self.within(&[], args)
    }

    /// The binary started by another program, such as setpriv.
    pub(crate) fn within(&self, wrapper: &[&str], args: &[&str]) -> Command {
        let mut words: Vec<&OsStr> = SIGNALLED.iter().chain(wrapper).map(OsStr::new).collect();
        words.push(OsStr::new(BINARY));
        words.extend(args.iter().map(OsStr::new));
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        self.prepared(command)
    }

    /// A shell script; `$GOODPUT` is the binary, `$DIR` this folder.
    pub(crate) fn script(&self, wrapper: &[&str], script: &str) -> Command {
        let mut words = [&SIGNALLED, wrapper].concat();
        words.extend(["sh", "-c", script]);
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        self.prepared(command)
    }

    fn prepared(&self, mut command: Command) -> Command {
        command
            .current_dir(&self.dir)
            .env("GOODPUT_RUNS", self.runs())
            .env("GOODPUT", BINARY)
            .env("DIR", &self.dir)
            .env(MARK, &self.mark)
            .env("RUST_BACKTRACE", "0")
            .env_remove("NO_COLOR")
            .stdin(Stdio::null());
        command
    }

    /// Starts a command; its output goes to files so that no pipe can block it.
    pub(crate) fn start(&self, mut command: Command) -> Running {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let out = self.path(&format!("stdout-{number}"));
        let err = self.path(&format!("stderr-{number}"));
        command
            .stdout(File::create(&out).unwrap())
            .stderr(File::create(&err).unwrap());
        let child = command
            .spawn()
            .unwrap_or_else(|e| panic!("{command:?}: {e}"));
        Running { child, out, err }
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, command: Command) -> Ended {
        self.start(command).end()
    }

    /// Gives the folder to an unprivileged user.
    pub(crate) fn give_to_nobody(&self, name: &str) -> PathBuf {
        let dir = self.path(name);
        fs::create_dir_all(&dir).unwrap();
        chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
        dir
    }

    /// Nothing started here is alive, no namespace was given a name, no link of the lab lies in this
    /// one. Bounded: what is still dying gets a moment.
    pub(crate) fn assert_nothing_left(&self) {
        wait_until("everything that was started to be gone", || {
            marked_processes(&self.mark).is_empty()
        });
        let new: Vec<_> = namespace_mounts()
            .difference(&self.mounts_before)
            .cloned()
            .collect();
        assert!(new.is_empty(), "namespaces left mounted: {new:?}");
        let links = fs::read_to_string("/proc/net/dev").unwrap();
        for line in links.lines() {
            let name = line.split(':').next().unwrap().trim();
            assert!(!["near", "far"].contains(&name), "link left: {name}");
        }
    }
}

/// A shell has what it starts in the background ignore Ctrl-C, and so these tests and their children.
const SIGNALLED: [&str; 2] = ["/usr/bin/env", "--default-signal=INT"];

impl Drop for Scratch {
    fn drop(&mut self) {
        for process in marked_processes(&self.mark) {
            let _ = Command::new("kill").args(["-9", &process]).status();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Whether a process has SIGINT ignored (proc(5), `SigIgn`: bit 1); one that has ended does not.
fn ignores_interrupts(id: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    ignored.is_some_and(|bits| bits & 0b10 != 0)
}

impl Running {
    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        // Sent before env(1) has undone what a shell had set, it would be lost.
        wait_until("SIGINT is not ignored", || !ignores_interrupts(&id));
        let status = Command::new("kill").args(["-s", name, &id]).status();
        assert!(status.unwrap().success(), "kill -s {name} {id}");
    }

    /// What it has said so far on stderr.
    pub(crate) fn stderr(&self) -> String {
        fs::read_to_string(&self.err).unwrap()
    }

    /// What it has said on stderr once it has said `text`.
    #[track_caller]
    pub(crate) fn stderr_when(&self, text: &str) -> String {
        wait_until(text, || self.stderr().contains(text));
        self.stderr()
    }

    /// True when it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for the end.
    pub(crate) fn end(mut self) -> Ended {
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if since.elapsed() > END_MAX {
                self.child.kill().unwrap();
                self.child.wait().unwrap();
                panic!("did not end within {END_MAX:?}: {}", self.stderr());
            }
            thread::sleep(POLL);
        };
        let read = |file| String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned();
        Ended {
            status,
            stdout: read(&self.out),
            stderr: read(&self.err),
        }
    }
}

impl Ended {
    /// The exit code; 128 plus the signal's number where a signal ended it, as a shell has it.
    pub(crate) fn code(&self) -> i32 {
        self.status
            .code()
            .or_else(|| self.status.signal().map(|s| 128 + s))
            .unwrap()
    }

    /// Asserts the exit code and that stderr says all of `says`, without a panic.
    #[track_caller]
    pub(crate) fn fails_with(&self, code: i32, says: &[&str]) -> &Self {
        assert_eq!(self.code(), code, "{self:#?}");
        for text in says {
            assert!(self.stderr.contains(text), "lacks '{text}': {self:#?}");
        }
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        self
    }

    /// Asserts success.
    #[track_caller]
    pub(crate) fn succeeds(&self) -> &Self {
        self.fails_with(0, &[])
    }

    /// stdout as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:#?}"))
    }
}

/// Labs that measure are alone: two on two CPUs make each other late.
static LABS: RwLock<()> = RwLock::new(());

/// Holds back other tests that run labs.
pub(crate) fn lab_alone() -> RwLockWriteGuard<'static, ()> {
    LABS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Holds back tests whose labs measure; for labs of which no figure is looked at.
pub(crate) fn lab_beside_others() -> RwLockReadGuard<'static, ()> {
    LABS.read().unwrap_or_else(PoisonError::into_inner)
}

/// The run's verdict must name one of `causes`, or say that the lab fell behind on a busy machine.
/// Returns whether it was conclusive.
#[track_caller]
pub(crate) fn assert_verdict(run: &Value, code: i32, causes: &[&str]) -> bool {
    let verdict = &run["verdict"];
    if verdict["conclusive"] == true {
        let cause = verdict["cause"].as_str().unwrap_or("none");
        assert!(causes.contains(&cause), "{verdict:#}");
        assert_eq!(code, 0, "{verdict:#}");
        return true;
    }
    let phases = run["phases"].as_array().unwrap();
    // A rotation has one lab for all of its rounds, and no phases.
    let behind = phases.iter().chain([&run["rotate"]]).any(|p| {
        let problems = p["certificate"]["problems"].as_array();
        p["certificate"]["trusted"] == false && problems.is_some_and(|p| !p.is_empty())
    });
    assert!(behind, "inconclusive although the lab kept up: {run:#}");
    assert_eq!(code, 1, "{verdict:#}");
    eprintln!("the machine is too busy for a verdict; the run says so");
    false
}

/// Run folders in a folder, none where there is no such folder.
pub(crate) fn run_folders(runs: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(runs) else {
        return Vec::new();
    };
    let mut found: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    found.retain(|p| p.is_dir());
    found.sort();
    found
}

/// A file as JSON.
#[track_caller]
pub(crate) fn json(file: &Path) -> Value {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// Waits for a condition, at most [`END_MAX`].
#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < END_MAX, "waited in vain for {what}");
        thread::sleep(POLL);
    }
}

/// A wrapper that drops all privileges, or `None` with a word on why there is none.
///
/// The program may lie where only root comes, as in root's own cache: then nobody runs a link to it, or a copy, elsewhere.
pub(crate) fn as_nobody() -> Option<&'static [&'static str]> {
    static WRAPPER: OnceLock<Vec<&'static str>> = OnceLock::new();
    let wrapper = WRAPPER.get_or_init(|| {
        let script: &'static str = match reachable(Path::new(BINARY)) {
            Ok(place) => format!(
                "program=$1; shift; [ \"$program\" = '{BINARY}' ] && program='{0}'; GOODPUT='{0}' exec \"$program\" \"$@\"",
                place.display()
            )
            .leak(),
            Err(_) => "exec \"$@\"",
        };
        let begin = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        [&begin[..], &["sh", "-c", script, "sh"]].concat()
    });
    usable(wrapper, &[BINARY, "--version"])
}

/// A program at a place that every user reaches.
pub(crate) fn reachable(program: &Path) -> std::io::Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!(
        "goodput-under-test-{}",
        fs::metadata("/proc/self")?.uid()
    ));
    fs::create_dir_all(&folder)?;
    fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
    let (place, new) = (
        folder.join(program.file_name().unwrap_or_default()),
        folder.join(std::process::id().to_string()),
    );
    // By a rename: another run of the tests may be using the old one.
    if fs::hard_link(program, &new).is_err() {
        fs::copy(program, &new)?;
    }
    fs::rename(&new, &place)?;
    // Two names of one file: renaming one to the other leaves both.
    let _ = fs::remove_file(&new);
    Ok(place)
}

/// A wrapper with mounts of its own, on which a tmpfs can be mounted.
pub(crate) fn with_own_mounts() -> Option<&'static [&'static str]> {
    let try_mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/tmp"];
    usable(
        unshare(&["unshare", "-m"], &["unshare", "-Urm"]),
        &try_mount,
    )
}

/// A wrapper with a network namespace of its own, in which links can be made.
pub(crate) fn with_own_network() -> Option<&'static [&'static str]> {
    let try_link = [
        "ip", "link", "add", "name", "v1", "type", "veth", "peer", "name", "v2",
    ];
    usable(unshare(&["unshare", "-n"], &["unshare", "-Urn"]), &try_link)
}

/// The first for root, the second for everybody else.
fn unshare(
    root: &'static [&'static str],
    user: &'static [&'static str],
) -> &'static [&'static str] {
    if is_root() { root } else { user }
}

/// The wrapper, when `probe` succeeds in it.
pub(crate) fn usable(
    wrapper: &'static [&'static str],
    probe: &[&str],
) -> Option<&'static [&'static str]> {
    let mut words = wrapper.to_vec();
    words.extend(probe);
    let tried = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .output();
    let why = match tried {
        Ok(output) if output.status.success() => return Some(wrapper),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(e) => e.to_string(),
    };
    testing::skipped(format_args!(
        "`{}` does not work here: {why}",
        words.join(" ")
    ));
    None
}

/// True for uid 0.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Processes whose environment carries the mark; a child inherits it however it is detached.
fn marked_processes(mark: &str) -> Vec<String> {
    let marked = format!("{MARK}={mark}\0");
    let is_marked = |process: &String| {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        environment
            .windows(marked.len())
            .any(|w| w == marked.as_bytes())
    };
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|name| name.bytes().all(|b| b.is_ascii_digit()))
        .filter(is_marked)
        .collect()
}

/// Places at which namespaces are mounted, the way `ip netns` names them.
fn namespace_mounts() -> BTreeSet<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts
        .lines()
        .filter(|line| line.contains(" - nsfs "))
        .filter_map(|line| line.split(' ').nth(4))
        .map(ToOwned::to_owned)
        .collect()
}

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_goodput");
const MARK: &str = "GOODPUT_TEST_MARK";
const NOBODY: u32 = 65_534;
const POLL: Duration = Duration::from_millis(20);
/// Far beyond what any command here takes, for machines under load.
const END_MAX: Duration = Duration::from_secs(90);
