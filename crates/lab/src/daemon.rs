//! A lab in the background: the process that holds it, and what starts that process.
//!
//! Whoever wants a lab runs [`start`] with the command of a process that calls [`detached`] and,
//! within, [`hold`]. A pipe tells the starter how that went, and it ends. The daemon has a session of
//! its own, so that a closed terminal does not end it. One thread answers the control socket:
//! requests are short, and none of them waits.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fault::{Failure, Verdict};
use link::record::End;
use measure::Stop;
use serde::{Deserialize, Serialize};
use sys::control::{self, Connection, Listener};
use sys::userns::{self, UserNs};

use crate::certificate::Certificate;
use crate::change::{self, Present};
use crate::direction::Direction;
use crate::lab::{Host, Lab, LabError, Options, Phase};
use crate::path::PathFile;
use crate::place::Claim;
use crate::protocol::{
    Answer, Entrance, HostState, LinkState, REQUEST_BYTES_MAX, Request, RuleState, Status,
};
use crate::serving::{self, StopOnDrop};

/// The line that the daemon writes when it is up or cannot be.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    Up(Status),
    /// The exit code and the message.
    Failed(u8, String),
}

/// What is to be held in the background.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The path.
    pub path: PathFile,
    /// Name of the lab.
    pub name: String,
    /// Whether it must have that name; another like it is taken otherwise where it is in use.
    pub exactly: bool,
    /// Where its socket is, as [`place::for_new`](crate::place::for_new) gave it.
    pub directory: PathBuf,
    /// Where what becomes of each frame is written.
    pub log: Option<PathBuf>,
}

/// How a lab ended.
#[derive(Debug)]
pub struct Ended {
    /// How accurate it was.
    pub certificate: Certified,
    /// What became of its log, if it had one.
    pub log: Result<Option<End>, LabError>,
}

/// How accurate a lab was; `None` where an end of the path is an interface of this machine, where no
/// probe can be stamped.
pub type Certified = Option<Result<Certificate, LabError>>;

/// Starts the process that calls [`detached`], and waits for its word.
///
/// ```no_run
/// use std::process::Command;
///
/// let status = lab::daemon::start(Command::new("goodput").args(["lab", "daemon", "..."]))?;
/// println!("lab '{}' is up", status.name);
/// # Ok::<(), fault::Failure>(())
/// ```
pub fn start(command: &mut Command) -> Result<Status, Failure> {
    let mut child = command
        // Nothing is to be kept busy by a process in the background.
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Failure::here)?;
    let mut word = String::new();
    if let Some(pipe) = child.stdout.take() {
        // Ends when the daemon has closed its standard streams, or has ended.
        let _ = pipe.take(WORD_BYTES_MAX).read_to_string(&mut word);
    }
    match run::from_json(word.as_bytes()) {
        Ok(Outcome::Up(status)) => Ok(status),
        outcome => {
            let ended = child.wait().map_err(Failure::here)?;
            match outcome {
                Ok(Outcome::Failed(code, message)) => Err(Failure::with_code(code, message)),
                _ => Err(Failure::here(format!(
                    "the lab's process ended before the lab was up ({ended})"
                ))),
            }
        }
    }
}

/// Leaves the terminal and runs `work`, which [holds](hold) a lab: from here on nobody sees what is
/// written but the one that waits in [`start`], which is told why `work` fails.
pub fn detached(work: impl FnOnce() -> Verdict) -> Verdict {
    let ended = control::leave_terminal()
        .map_err(Failure::here)
        .and_then(|()| work());
    if let Err(failure) = &ended {
        let word = Outcome::Failed(failure.code, failure.to_string());
        // Once the lab was up, this is /dev/null.
        let _ = say(&word);
        return Ok(failure.code);
    }
    ended
}

fn say(word: &Outcome) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, word)?;
    out.flush()
}

/// Builds the lab and holds it until asked to let go. Whoever asked is sent the lines that `told`
/// makes of how it ended.
///
/// ```no_run
/// use lab::daemon::{Plan, detached, hold};
///
/// detached(|| {
///     let plan = Plan {
///         path: lab::PathFile::read("my-path.toml".as_ref())?,
///         name: "trial".to_owned(),
///         exactly: true,
///         directory: lab::place::for_new()?,
///         log: None,
///     };
///     hold(plan, &measure::Stop::new(), &|ended| {
///         vec![format!("certified: {}", ended.certificate.is_some())]
///     })?;
///     Ok(fault::DONE)
/// })?;
/// # Ok::<(), fault::Failure>(())
/// ```
pub fn hold(plan: Plan, stop: &Stop, told: &dyn Fn(&Ended) -> Vec<String>) -> Result<(), Failure> {
    let claim = Claim::new(&plan.directory, &plan.name, plan.exactly)?;
    let options = Options { log: plan.log };
    let lab = Lab::up_with(&plan.path, options)?;
    let (asked_by, certificate) = serve(&lab, plan.path, &claim, stop)?;
    let log = lab.down();
    let lines = told(&Ended { certificate, log });
    // Gone for everybody before anybody is told.
    drop(claim);
    for connection in &asked_by {
        reply(connection, &Answer::Lines(lines.clone()), &[]);
    }
    // The connections close with the process: who waits for that knows that it is gone.
    Ok(())
}

/// Runs the hosts' servers and answers requests; returns those who asked for the end.
fn serve(
    lab: &Lab,
    path: PathFile,
    claim: &Claim,
    stop: &Stop,
) -> Result<(Vec<Connection>, Certified), Failure> {
    thread::scope(|scope| {
        let serving = StopOnDrop::default();
        for host in lab.hosts().iter().filter(|h| h.namespace().is_ok()) {
            serving::serve(scope, host, &serving.0)?;
        }
        let phase = match certifiable(lab) {
            true => Some(lab.begin_phase()?),
            false => None,
        };
        let mut desk = Desk::new(lab, path, claim.name.clone());
        let status = desk.status()?;
        say(&Outcome::Up(status)).map_err(Failure::here)?;
        control::close_standard_streams().map_err(Failure::here)?;
        let asked_by = attend(&claim.listener, &mut desk, stop);
        Ok((asked_by, phase.map(Phase::finish)))
    })
}

/// True when both ends of the measurement are hosts of the lab: only there can be probes.
pub(crate) fn certifiable(lab: &Lab) -> bool {
    lab.near().namespace().is_ok() && lab.far().namespace().is_ok()
}

/// Answers until the end is asked for, on the socket or by a signal.
fn attend(listener: &Listener, desk: &mut Desk<'_>, stop: &Stop) -> Vec<Connection> {
    let mut guests: Vec<(Connection, Instant)> = Vec::new();
    let mut asked_by = Vec::new();
    while asked_by.is_empty() && !stop.is_stopped() {
        let accepting = guests.len() < CONNECTIONS_MAX;
        let connections: Vec<&Connection> = guests.iter().map(|(c, _)| c).collect();
        if listener.wait(accepting, &connections, TICK).is_err() {
            thread::sleep(TICK);
        }
        if accepting {
            match listener.accept() {
                Ok(Some(connection)) if is_own(&connection) => {
                    guests.push((connection, Instant::now()));
                }
                Ok(Some(connection)) => {
                    let failure = Failure::here("this lab is another user's");
                    reply(&connection, &Answer::error(&failure), &[]);
                }
                Ok(None) => {}
                // Out of descriptors, most likely: later is better.
                Err(_) => thread::sleep(TICK),
            }
        }
        for (mut connection, since) in std::mem::take(&mut guests) {
            match connection.poll_line(REQUEST_BYTES_MAX) {
                Ok(None) if since.elapsed() < GUEST_PATIENCE => guests.push((connection, since)),
                Ok(None) => {}
                Ok(Some(line)) => match serde_json::from_slice(&line) {
                    Ok(Request::Down) => asked_by.push(connection),
                    Ok(request) => desk.answer(&connection, request),
                    Err(e) => refuse(&connection, &e.to_string()),
                },
                Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                    refuse(&connection, &e.to_string());
                }
                Err(_) => {}
            }
        }
    }
    asked_by
}

/// The socket's mode and its directory's say the same; this one does not hang on file systems.
fn is_own(connection: &Connection) -> bool {
    connection
        .peer()
        .is_ok_and(|peer| peer.uid == userns::user_id())
}

fn refuse(connection: &Connection, problem: &str) {
    let failure = Failure::usage(format!("not a request: {problem}"));
    reply(connection, &Answer::error(&failure), &[]);
}

fn reply(connection: &Connection, answer: &Answer, fds: &[BorrowedFd<'_>]) {
    // A socket's buffer takes all but the longest answers at once; who does not read gets none.
    let _ = connection.send(&answer.line(), fds, Instant::now() + REPLY_PATIENCE);
}

/// The lab and what is known of it.
struct Desk<'lab> {
    lab: &'lab Lab,
    path: PathFile,
    name: String,
    up_since: String,
    user_ns: Option<UserNs>,
    /// Forward and backward of each link, as it came up and as it is.
    links: Vec<[(Present, Present); 2]>,
    /// Of the nodes whose rules were changed.
    rules: BTreeMap<String, Vec<String>>,
}

impl<'lab> Desk<'lab> {
    fn new(lab: &'lab Lab, path: PathFile, name: String) -> Self {
        let links = path.network.links.iter().map(|link| {
            [true, false].map(|forward| {
                let present = Present::of(link, forward);
                (present, present)
            })
        });
        Self {
            lab,
            name,
            up_since: jiff::Timestamp::now().to_string(),
            user_ns: UserNs::current().ok(),
            links: links.collect(),
            rules: BTreeMap::new(),
            path,
        }
    }

    fn answer(&mut self, connection: &Connection, request: Request) {
        let answered = match request {
            Request::Status => self.status().map(Answer::Status),
            Request::Enter { host } => match self.enter(&host) {
                Ok((host, entrance)) => {
                    let ns = host.namespace().map(AsFd::as_fd).ok();
                    let user = self.user_ns.as_ref().map(AsFd::as_fd);
                    let fds: Vec<BorrowedFd<'_>> = ns.into_iter().chain(user).collect();
                    return reply(connection, &Answer::Entrance(entrance), &fds);
                }
                Err(failure) => Err(failure),
            },
            Request::Set {
                link,
                direction,
                settings,
            } => self.set(&link, direction, &settings).map(Answer::Lines),
            Request::Rules { node } => self.rules(&node).map(Answer::Rules),
            Request::SetRules { node, toml } => {
                self.set_rules(&node, toml.as_deref()).map(Answer::Lines)
            }
            // The caller's business.
            Request::Down => return,
        };
        let answer = answered.unwrap_or_else(|failure| Answer::error(&failure));
        reply(connection, &answer, &[]);
    }

    fn status(&self) -> Result<Status, Failure> {
        let network = &self.path.network;
        let hosts = network.hosts.iter().map(|host| HostState {
            name: host.name.clone(),
            address: host.address4.to_string(),
            address6: host.address6.to_string(),
            interface: host.interface.clone(),
        });
        let gateways = self.lab.gateways().iter().map(|gateway| HostState {
            name: gateway.host().name().to_owned(),
            address: gateway.host().address().to_string(),
            address6: gateway.host().address6().to_string(),
            interface: None,
        });
        let counts = self.lab.link_counts()?;
        let links = network.links.iter().zip(&counts).map(|(link, counts)| {
            let [from, to] = link.between.map(|node| network.name(node).to_owned());
            LinkState {
                name: link.name.clone(),
                from,
                to,
                forward: (&counts.1).into(),
                backward: (&counts.2).into(),
            }
        });
        Ok(Status {
            name: self.name.clone(),
            title: self.path.title.clone(),
            pid: std::process::id(),
            up_since: self.up_since.clone(),
            hosts: hosts.collect(),
            gateways: gateways.collect(),
            links: links.collect(),
        })
    }

    fn enter(&self, name: &str) -> Result<(&'lab Host, Entrance), Failure> {
        let hosts = self.lab.hosts();
        let host = self
            .lab
            .host(name)
            .map_err(|e| unknown(e, name, hosts.iter().map(Host::name)))?;
        host.namespace()?;
        let mut environment = BTreeMap::from([
            ("GOODPUT_LAB".to_owned(), self.name.clone()),
            ("GOODPUT_HOST".to_owned(), name.to_owned()),
        ]);
        for host in hosts.iter().filter(|h| h.namespace().is_ok()) {
            let variable = format!("GOODPUT_HOST_{}", variable(host.name()));
            environment.insert(variable, host.address().to_string());
        }
        Ok((host, Entrance { environment }))
    }

    fn set(
        &mut self,
        name: &str,
        direction: Option<Direction>,
        settings: &BTreeMap<String, String>,
    ) -> Result<Vec<String>, Failure> {
        let links = &self.path.network.links;
        let Some(number) = links.iter().position(|l| l.name == name) else {
            let known: Vec<&str> = links.iter().map(|l| l.name.as_str()).collect();
            return Err(Failure::usage(format!(
                "this lab has no link '{name}'; it has {}{}",
                known.join(", "),
                crate::path::hint::did_you_mean(name, known.iter().copied())
            )));
        };
        let ways = [Direction::Forward, Direction::Backward];
        let ways = (0..2)
            .zip(ways)
            .filter(|(_, way)| direction.is_none_or(|d| d == *way));
        let mut planned = Vec::new();
        for (way, _) in ways {
            planned.push((way, self.links[number][way].1.plan(settings)?));
        }
        let mut lines = Vec::new();
        for (way, planned) in planned {
            for change in planned.changes {
                self.lab.set(name, way == 0, way == 1, change)?;
            }
            let (start, present) = &mut self.links[number][way];
            let before = std::mem::replace(present, planned.after);
            let warning = present.too_much_for(start, &before);
            lines.extend(warning.map(|w| format!("warning: {w}")));
        }
        lines.dedup();
        Ok(lines)
    }

    fn rules(&self, node: &str) -> Result<Vec<RuleState>, Failure> {
        let hits = self
            .lab
            .rule_hits(node)
            .map_err(|e| self.unknown_node(e, node))?;
        let rules = match self.rules.get(node) {
            Some(rules) => rules.clone(),
            None => change::rules_of(&self.path, node),
        };
        let states = rules.into_iter().zip(hits);
        Ok(states
            .map(|(rule, hits)| RuleState { rule, hits })
            .collect())
    }

    fn set_rules(&mut self, node: &str, toml: Option<&str>) -> Result<Vec<String>, Failure> {
        // Whether there is such a node comes before what is wrong with its rules.
        self.lab
            .rule_hits(node)
            .map_err(|e| self.unknown_node(e, node))?;
        let (shown, specs) = change::rules(&self.path, node, toml.unwrap_or("rules = []"))?;
        self.lab.set_rules(node, &specs)?;
        let line = format!("{node} has {} rules now", specs.len());
        self.rules.insert(node.to_owned(), shown);
        Ok(vec![line])
    }

    fn unknown_node(&self, error: LabError, node: &str) -> Failure {
        let network = &self.path.network;
        let switches = network.switches.iter().map(|s| s.name.as_str());
        let routers = network.routers.iter().map(|r| r.name.as_str());
        unknown(error, node, switches.chain(routers))
    }
}

/// A name that the lab does not know is the user's fault.
fn unknown<'a>(error: LabError, typed: &str, known: impl Iterator<Item = &'a str>) -> Failure {
    match error {
        LabError::NoSuch { .. } => Failure::usage(format!(
            "{error}{}",
            crate::path::hint::did_you_mean(typed, known)
        )),
        other => other.into(),
    }
}

/// A host's name as part of a variable's.
fn variable(name: &str) -> String {
    let legal = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    name.chars().map(legal).collect()
}

/// The daemon's word is its status.
const WORD_BYTES_MAX: u64 = 4 << 20;
/// Guests at once; more wait in the socket's queue.
const CONNECTIONS_MAX: usize = 16;
/// A request is here at once from an honest client.
const GUEST_PATIENCE: Duration = Duration::from_secs(5);
/// Nothing else is answered meanwhile.
const REPLY_PATIENCE: Duration = Duration::from_millis(500);
/// How soon a signal is heeded.
const TICK: Duration = Duration::from_millis(50);
