//! What can be done with a plan: apply, confirm, verify, undo; and saying where things stand.

use std::io::{self, BufRead, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use fault::Failure;
use settings::{Key, Plan, drop_in};

use crate::change::{self, Undone};
use crate::host::{Host, Values, same};
use crate::journal::{self, Event, Journal};
use crate::others::{self, DROP_IN};
use crate::place;

/// One host, with its journal.
#[derive(Debug)]
pub struct Tuner {
    /// The host.
    pub host: Host,
    folder: PathBuf,
    namespace: String,
    first: bool,
}

/// Whether and how a plan has to be confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// It stays.
    None,
    /// Undone after so many seconds unless confirmed.
    Within(u64),
}

/// A plan that waits for its confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Which plan.
    pub number: u64,
    /// Seconds that it waits.
    pub seconds: u64,
}

/// Where a host stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Nothing is applied, or how the last plan stands: `applied`, `unconfirmed`, `interrupted`, `rolled_back`.
    pub word: &'static str,
    /// What the last plan is for.
    pub what: String,
    /// When it was applied, in UTC.
    pub at: String,
    /// Each value that is ours: key, as we set it, as it is now; `None` where it cannot be read.
    pub values: Vec<(String, String, Option<String>)>,
    /// The journal's folder.
    pub folder: PathBuf,
}

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// What was looked at, in order.
    pub checks: Vec<Checked>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// What.
    pub what: String,
    /// As it should be.
    pub expected: String,
    /// As it is.
    pub found: String,
    /// Whether that will do.
    pub holds: bool,
}

impl Tuner {
    /// The host, with journals below `state`.
    pub fn new(host: Host, state: &Path) -> Self {
        // tcp_mem is the machine's and shows in its first namespace only.
        let first = host.read(&Key::sysctl("net.ipv4.tcp_mem")).is_ok();
        let namespace = match host.tree.is_machine() {
            true => place::namespace(first),
            false => "host".to_owned(),
        };
        Self {
            folder: state.join(&namespace),
            namespace,
            host,
            first,
        }
    }

    /// Applies a plan. `started` is called once the journal has begun and before anything is changed, with what waits for a
    /// confirmation: whoever undoes it in time has to be there by then. Its failure ends the apply.
    ///
    /// # Errors
    /// A step that fails, after which nothing is changed; an earlier plan was interrupted or waits; the plan must not be applied; nothing persists where
    /// `at_boot` is wanted.
    pub fn apply(
        &self,
        plan: &Plan,
        confirmation: Confirmation,
        at_boot: bool,
        started: &mut dyn FnMut(Waiting) -> io::Result<()>,
    ) -> Result<Option<Waiting>, Failure> {
        if let Some(why) = &plan.refused {
            return Err(Failure::check(format!("nothing is changed: {why}")));
        }
        let mut journal = Journal::open(&self.folder)?;
        self.forget_gone(&mut journal)?;
        match word(&journal.events) {
            "interrupted" => {
                return Err(Failure::check(
                    "an earlier apply was interrupted half-way; take it back first: goodput tune undo".to_owned(),
                ));
            }
            "unconfirmed" => {
                return Err(Failure::check(
                    "an earlier apply waits for its confirmation; first: goodput tune confirm, or goodput tune undo"
                        .to_owned(),
                ));
            }
            _ => {}
        }
        let number = now_ns();
        let confirm_s = match confirmation {
            Confirmation::None => None,
            Confirmation::Within(seconds) => Some(seconds),
        };
        let drop_in = match at_boot && self.first {
            true => self.drop_in_text(&journal, plan),
            false => String::new(),
        };
        let request = &plan.request;
        journal.add(Event::Apply {
            number,
            at: utc(),
            boot_id: self.boot_id(),
            namespace: self.namespace.clone(),
            what: format!(
                "{} at {}, {} connection(s), {}",
                request.rate,
                request.rtt,
                request.connections,
                request.role.what()
            ),
            confirm_s,
            drop_in: drop_in.clone(),
        })?;
        let waiting = confirm_s.map(|seconds| Waiting { number, seconds });
        if let Some(waiting) = waiting
            && let Err(error) = started(waiting)
        {
            let why = format!("nothing is changed: nobody would undo it in time: {error}");
            journal.add(Event::RolledBack { why: why.clone() })?;
            return Err(Failure::here(why));
        }
        change::set(&self.host, &mut journal, &plan.steps)?;
        if waiting.is_none() && !drop_in.is_empty() {
            self.write_drop_in(&mut journal, &drop_in)?;
        }
        journal.add(Event::Applied)?;
        Ok(waiting)
    }

    /// All that is ours after the plan, as a file.
    fn drop_in_text(&self, journal: &Journal, plan: &Plan) -> String {
        let mut all = change::ours(&journal.events);
        all.retain(|(key, _)| !plan.steps.iter().any(|step| step.key == *key));
        let before = all.iter().map(|(key, value)| (key, value.as_str()));
        let now = plan.steps.iter().map(|s| (&s.key, s.new.as_str()));
        let request = &plan.request;
        let what = format!("for {} at {}", request.rate, request.rtt);
        let all: Vec<_> = before.chain(now).collect();
        match all.iter().any(|(key, _)| key.as_sysctl().is_some()) {
            true => drop_in(all.into_iter(), &what),
            false => String::new(),
        }
    }

    /// A file that cannot be written takes the values back: nothing half done.
    fn write_drop_in(&self, journal: &mut Journal, text: &str) -> Result<(), Failure> {
        let Err(failure) = change::write_drop_in(&self.host.tree, journal, text) else {
            return Ok(());
        };
        let segment = journal.last().to_vec();
        let mut undone = Undone::default();
        change::drop_in_back(&self.host.tree, &segment, &mut undone);
        change::back(&self.host, &segment);
        let why = format!("{failure}; nothing is changed (without the file: --no-boot)");
        journal.add(Event::RolledBack { why: why.clone() })?;
        Err(Failure::with_code(failure.code, why))
    }

    /// Has the last plan stay.
    ///
    /// # Errors
    /// There is none that waits.
    pub fn confirm(&self) -> Result<(), Failure> {
        let mut journal = Journal::open(&self.folder)?;
        if word(&journal.events) != "unconfirmed" {
            return Err(Failure::check(
                "nothing waits for a confirmation: it was confirmed, or undone when its time was over".to_owned(),
            ));
        }
        let drop_in = match journal.last().first() {
            Some(Event::Apply { drop_in, .. }) => drop_in.clone(),
            _ => String::new(),
        };
        if !drop_in.is_empty() {
            change::write_drop_in(&self.host.tree, &mut journal, &drop_in)?;
        }
        journal.add(Event::Confirmed)
    }

    /// Takes everything back that is still ours.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn undo(&self) -> Result<Undone, Failure> {
        let mut journal = Journal::open(&self.folder)?;
        self.forget_gone(&mut journal)?;
        self.take_back(&mut journal)
    }

    /// Waits, and then takes a plan back unless it was confirmed. For a process of its own.
    ///
    /// # Errors
    /// As [`Tuner::undo`].
    pub fn undo_unless_confirmed(&self, waiting: Waiting) -> Result<Option<Undone>, Failure> {
        thread::sleep(Duration::from_secs(waiting.seconds));
        let mut journal = self.open_patiently()?;
        let is_last = matches!(
            journal.last().first(),
            Some(Event::Apply { number, .. }) if *number == waiting.number
        );
        let waits = matches!(word(&journal.events), "unconfirmed" | "interrupted");
        match is_last && waits {
            true => self.take_back(&mut journal).map(Some),
            false => Ok(None),
        }
    }

    /// Whoever holds the lock lets go of it soon; ten minutes bound that.
    fn open_patiently(&self) -> Result<Journal, Failure> {
        for _ in 0..3_000 {
            if let Ok(journal) = Journal::open(&self.folder) {
                return Ok(journal);
            }
            thread::sleep(Duration::from_millis(200));
        }
        Journal::open(&self.folder)
    }

    fn take_back(&self, journal: &mut Journal) -> Result<Undone, Failure> {
        let mut undone = Undone::default();
        change::drop_in_back(&self.host.tree, &journal.events, &mut undone);
        let values = change::back(&self.host, &journal.events);
        undone.restored.extend(values.restored);
        undone.foreign.extend(values.foreign);
        undone.failed.extend(values.failed);
        if undone.failed.is_empty() {
            journal.close()?;
        }
        Ok(undone)
    }

    /// A namespace of an earlier boot is gone with its values.
    fn forget_gone(&self, journal: &mut Journal) -> Result<(), Failure> {
        let boot = self.boot_id();
        let gone = journal
            .last()
            .first()
            .is_some_and(|event| matches!(event, Event::Apply { boot_id, .. } if *boot_id != boot));
        match gone && !self.first {
            true => journal.close(),
            false => Ok(()),
        }
    }

    fn boot_id(&self) -> String {
        let read = self.host.tree.read("/proc/sys/kernel/random/boot_id");
        read.unwrap_or_default()
    }

    /// Where the host stands; needs no lock.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn state(&self) -> Result<State, Failure> {
        let events = journal::read(&self.folder)?;
        let last = events.iter().rev().find_map(|event| match event {
            Event::Apply { at, what, .. } => Some((at.clone(), what.clone())),
            _ => None,
        });
        let (at, what) = last.unwrap_or_default();
        let values = change::ours(&events).into_iter();
        let values = values.map(|(key, ours)| {
            let now = self.host.read(&key).ok();
            (key.to_string(), ours, now)
        });
        Ok(State {
            word: word(&events),
            at,
            what,
            values: match word(&events) {
                "rolled_back" => Vec::new(),
                _ => values.collect(),
            },
            folder: self.folder.clone(),
        })
    }

    /// Reads everything back that was set, the file at boot, and a fresh connection.
    ///
    /// # Errors
    /// The journal cannot be read, or nothing is applied.
    pub fn verify(&self) -> Result<Verified, Failure> {
        let events = journal::read(&self.folder)?;
        if !matches!(word(&events), "applied" | "unconfirmed") {
            return Err(Failure::check(
                "nothing is applied that could be verified; see: goodput tune status".to_owned(),
            ));
        }
        let mut verified = Verified::default();
        for (key, ours) in change::ours(&events) {
            let found = self.host.read(&key);
            verified.checks.push(Checked {
                what: key.to_string(),
                holds: found.as_ref().is_ok_and(|now| same(&key, now, &ours)),
                found: found.unwrap_or_else(|e| e.to_string()),
                expected: ours,
            });
        }
        self.verify_boot(&events, &mut verified);
        if self.host.tree.is_machine() {
            verified.checks.extend(self.fresh_connection());
        }
        Ok(verified)
    }

    /// The drop-in is there and nothing comes after it.
    fn verify_boot(&self, events: &[Event], verified: &mut Verified) {
        let written = events.iter().rev().find_map(|event| match event {
            Event::File { new, .. } => Some(new),
            _ => None,
        });
        let Some(written) = written else {
            return;
        };
        let now = std::fs::read_to_string(self.host.tree.path(DROP_IN));
        verified.checks.push(Checked {
            what: DROP_IN.to_owned(),
            expected: "as written".to_owned(),
            holds: now.as_ref().is_ok_and(|now| now == written),
            found: match now {
                Ok(now) if now == *written => "as written".to_owned(),
                Ok(_) => "edited".to_owned(),
                Err(e) => e.to_string(),
            },
        });
        let boot = others::at_boot(&self.host.tree);
        for (key, ours) in change::ours(events) {
            let Some(name) = key.as_sysctl() else {
                continue;
            };
            for winner in others::winners(&boot, name, &ours) {
                verified.checks.push(Checked {
                    what: format!("{name} at boot"),
                    expected: ours.clone(),
                    found: format!("{} by {}:{}", winner.value, winner.file, winner.line),
                    holds: false,
                });
            }
        }
    }

    /// The shift that a new connection announces follows from tcp_rmem and rmem_max (net/ipv4/tcp_output.c,
    /// `tcp_select_initial_window`).
    fn fresh_connection(&self) -> Option<Checked> {
        let third = |text: String| text.split_whitespace().nth(2)?.parse::<u64>().ok();
        let rmem = self.host.read(&Key::sysctl("net.ipv4.tcp_rmem")).ok();
        let rmem = rmem.and_then(third)?;
        let most = self.host.read(&Key::sysctl("net.core.rmem_max")).ok();
        let most = most.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let expected = (rmem.max(most).max(1).ilog2().saturating_sub(15)).min(14);
        let found = connect().ok()?;
        Some(Checked {
            what: "window scale of a fresh connection".to_owned(),
            expected: expected.to_string(),
            found: found.to_string(),
            holds: found == u64::from(expected),
        })
    }

    /// Waits for a line on stdin, at most so long; true when one came.
    pub fn key_within(seconds: u64) -> bool {
        let (tell, told) = mpsc::channel();
        let asked = sys::threads::spawn("tune-key", move || {
            let mut line = String::new();
            let read = io::stdin().read_line(&mut line);
            let _ = tell.send(read.is_ok_and(|bytes| bytes > 0));
        });
        asked.is_ok()
            && told
                .recv_timeout(Duration::from_secs(seconds))
                .unwrap_or(false)
    }
}

/// Starts a process that takes a plan back in time. It has left the terminal when this returns, so it survives that.
///
/// # Errors
/// It cannot be started, or ends at once.
pub fn start_watch(command: &mut Command) -> io::Result<()> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn()?;
    let mut word = String::new();
    if let Some(out) = child.stdout.take() {
        io::BufReader::new(out).read_line(&mut word)?;
    }
    match word.trim() == READY {
        true => Ok(()),
        false => Err(io::Error::other("the process that would undo it ended")),
    }
}

/// The other side of [`start_watch`]: leaves the terminal, and says so.
///
/// # Errors
/// As setsid(2).
pub fn detach() -> io::Result<()> {
    sys::control::leave_terminal()?;
    let mut out = io::stdout();
    writeln!(out, "{READY}")?;
    out.flush()?;
    sys::control::close_standard_streams()
}

const READY: &str = "ready";

/// Over the loopback interface; the namespace may have it down.
fn connect() -> io::Result<u64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let client = TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    let info = sys::tcp::tcp_info(client.as_fd())?;
    Ok(info.own_window_shift())
}

/// How the last plan stands.
fn word(events: &[Event]) -> &'static str {
    let begin = |event: &Event| matches!(event, Event::Apply { .. });
    let Some(from) = events.iter().rposition(begin) else {
        return "nothing";
    };
    let last = &events[from..];
    let has = |wanted: fn(&Event) -> bool| last.iter().any(wanted);
    let waits = matches!(
        last[0],
        Event::Apply {
            confirm_s: Some(_),
            ..
        }
    );
    if has(|e| matches!(e, Event::RolledBack { .. })) {
        match word(&events[..from]) {
            "nothing" => "rolled_back",
            earlier => earlier,
        }
    } else if !has(|e| matches!(e, Event::Applied)) {
        "interrupted"
    } else if waits && !has(|e| matches!(e, Event::Confirmed)) {
        "unconfirmed"
    } else {
        "applied"
    }
}

fn now_ns() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(0)
}

fn utc() -> String {
    let now = jiff::Timestamp::now().as_second();
    jiff::Timestamp::from_second(now).map_or_else(|_| String::new(), |at| at.to_string())
}
