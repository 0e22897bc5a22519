//! A copy as a user asks for it: from where to where, by what means, and what came of it.
//!
//! A [`Request`] is what was asked, a [`Plan`] what is begun with; [`Plan::run`] carries it out and
//! [`Plan::record`] puts what came of it into a run. ssh starts the far side ([`far`]) and carries
//! a key that is used once; the bytes go over connections of their own. A daemon ([`daemon`]) and
//! this host itself are far sides too. Nothing here prints: who calls gets notes by its [`Caller`]
//! and counters by its [`Observer`].
//!
//! ```
//! use copy::task::{Caller, Plan, Request, Unobserved};
//!
//! let top = std::env::temp_dir().join(format!("goodput-task-doc-{}", std::process::id()));
//! std::fs::create_dir_all(top.join("from"))?;
//! std::fs::write(top.join("from/file"), "text")?;
//! let request = Request {
//!     operands: vec![top.join("from/").into(), top.join("to").into()],
//!     ..Request::default()
//! };
//! let plan = Plan::new(request)?;
//! let done = plan.run(&Caller::default(), &mut Unobserved)?;
//! let mut run = run::model::Run::default();
//! plan.record(&mut run, &done, &Caller::default());
//! assert_eq!(run.copy.map(|copy| copy.placed), Some(1));
//! assert_eq!(std::fs::read(top.join("to/file"))?, b"text");
//! # std::fs::remove_dir_all(&top)?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

pub mod agent;
mod caller;
pub mod daemon;
mod far;
mod inside;
pub mod job;
mod joined;
mod limits;
mod manifest;
pub mod observed;
pub mod operand;
pub mod progress;
mod reach;
pub mod repair;
mod request;
pub mod rules;
mod served;
pub mod told;
pub mod ways;
pub mod why;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use fault::Failure;
use run::model::{self, Run, SampleRecord};
use sys::folder::Scratch;
use units::Rate;

use crate::destination::Destination;
use crate::engine::receive::{Prepared, ReceiveOptions, prepare, receive_prepared};
use crate::engine::{CopyError, Note, Watch};
use crate::meeting::Meeting;
use crate::message::Account;
use crate::quic::{Carriage, Transport};
use crate::reason::is_exhausted;
use crate::source::{Source, SourceError};
use crate::{Carried, Cipher, Key, RelPath, SessionId};

pub use caller::{Caller, NoteKind, Observer, Unobserved};
use limits::Limits;
use operand::Operand;
use progress::Progress;
pub use request::Request;
use sys::threads::Crew;
use why::HostFacts;

/// One copy, before anything is begun.
#[derive(Debug)]
pub struct Plan {
    /// What was asked for.
    pub request: Request,
    /// What is copied, all of one host; at least one.
    pub from: Vec<Operand>,
    /// Where to.
    pub to: Operand,
    /// What bytes are encrypted with, unless the far side is better with another.
    pub cipher: Cipher,
    /// Which session the two sides have.
    pub session: SessionId,
    /// What they know each other by.
    pub key: Key,
    /// What stands for a source that is none.
    _scratch: Option<Scratch>,
    /// What `--files-from` lists; standard input can be read once.
    listed: OnceCell<Vec<u8>>,
    /// What another tool had on the same path meanwhile, or why not.
    pub beside: OnceCell<Result<model::Observer, String>>,
}

/// What came of a copy on this side or as the far side told.
#[derive(Debug)]
pub struct Done {
    account: Account,
    /// What this side watched; the source's where both are here.
    watch: Watch,
    /// What the other side told of its time.
    far: Option<told::Spent>,
    /// CPU time of the side that was watched, where that is a process of another host.
    watched_cpu_ns: Option<u64>,
    /// What is known of the source's host, and of the destination's.
    pub hosts: [HostFacts; 2],
    /// CPU time of ssh on this host, where it carried the copy.
    ssh_cpu_ns: Option<u64>,
    /// What had arrived when.
    progress: Progress,
    took: Duration,
    is_source: bool,
    reconnects: u64,
    /// What each way carried, where this side connected by several.
    ways: Vec<Carried>,
    cipher: Cipher,
    /// Whether a lab was what its path file says.
    pub certificate: Option<model::Certificate>,
    /// What the path carries, where that is known.
    pub achievable: Option<Rate>,
}

impl Done {
    /// What had arrived when, and what kernels said of the connections meanwhile.
    pub fn samples(&self) -> impl Iterator<Item = SampleRecord> {
        self.progress.samples()
    }
}

/// A file of one hole stands for the source; it is never read.
fn null_plan(
    request: Request,
    mut operands: Vec<Operand>,
    size: units::Bytes,
) -> Result<Plan, Failure> {
    let (Some(to), true) = (operands.pop(), operands.is_empty()) else {
        return Err(Failure::usage(
            "--null-source takes the place of the source: name the destination only",
        ));
    };
    let scratch = scratch_of(size.as_u64())
        .map_err(|error| Failure::here(format!("a file of {size}: {error}")))?;
    let from = vec![Operand::Here(scratch.path().join("null"))];
    plan_of(request, from, to, Some(scratch))
}

/// A file of that size, in a folder that goes when it is no longer needed.
fn scratch_of(size: u64) -> io::Result<Scratch> {
    let place = Scratch::new("null")?;
    std::fs::File::create_new(place.path().join("null"))?.set_len(size)?;
    Ok(place)
}

fn plan_of(
    request: Request,
    from: Vec<Operand>,
    to: Operand,
    scratch: Option<Scratch>,
) -> Result<Plan, Failure> {
    check(&request, &from, &to)?;
    sys::host::raise_descriptor_limit();
    let cipher = request.cipher.unwrap_or_else(job::faster_cipher);
    let (session, key) = SessionId::random()
        .and_then(|session| Ok((session, Key::random()?)))
        .map_err(|error| Failure::here(format!("no random bytes: {error}")))?;
    Ok(Plan {
        request,
        from,
        to,
        cipher,
        session,
        key,
        _scratch: scratch,
        listed: OnceCell::new(),
        beside: OnceCell::new(),
    })
}

/// Refuses what does not go together.
fn check(request: &Request, from: &[Operand], to: &Operand) -> Result<(), Failure> {
    far::rsh_words(&request.rsh)?;
    let first = from.first().map(Operand::place);
    if from.iter().any(|operand| Some(operand.place()) != first) {
        return Err(Failure::usage(
            "all that is copied must be on one host; give a command for each",
        ));
    }
    if request.manifest.is_some() && from[0].is_elsewhere() && to.is_elsewhere() {
        let host = to.place().unwrap_or_default();
        return Err(Failure::usage(format!(
            "--manifest reads files of this host, and both ends are others: run `goodput copy --manifest` on \
             {host}, with the source as it is and the destination as a path there"
        )));
    }
    if request.files_from.is_some()
        && (from.len() != 1 || matches!(from[0], Operand::Served { .. }))
    {
        return Err(Failure::usage(
            "--files-from goes with one source folder, here or where ssh leads; of a daemon's, --include and --exclude choose",
        ));
    }
    if (request.limit.is_some() || request.limit_from.is_some()) && request.through_ssh {
        return Err(Failure::usage(
            "--limit paces connections of its own; inside ssh there are none",
        ));
    }
    request.check_transport()?;
    if request.io.len() > 2 {
        return Err(Failure::usage(
            "--io takes one word for both ends, or the source's and the destination's",
        ));
    }
    observed::check(&request.observers, from, to)?;
    ways::check(request, from, to)?;
    let is_served = |operand: &Operand| matches!(operand, Operand::Served { .. });
    if from.iter().chain([to]).any(is_served) {
        served::check(request)?;
        if from[0].is_far() && to.is_far() {
            return Err(Failure::usage(
                "a copy with a daemon has its other end on this host",
            ));
        }
    }
    Ok(())
}

impl Plan {
    /// Reads the operands, and refuses what does not go together.
    ///
    /// # Errors
    /// What is wrong with the request.
    pub fn new(request: Request) -> Result<Self, Failure> {
        let operands = request.operands.iter().map(|typed| Operand::parse(typed));
        let mut from = operands.collect::<Result<Vec<_>, _>>()?;
        if let Some(size) = request.null_source {
            return null_plan(request, from, size);
        }
        let Some(to) = from.pop().filter(|_| !from.is_empty()) else {
            return Err(Failure::usage("say what to copy, and where to"));
        };
        plan_of(request, from, to, None)
    }

    /// Ciphers that whoever listens takes.
    pub fn allowed(&self) -> Vec<Cipher> {
        match self.request.cipher {
            Some(_) => vec![self.cipher],
            None => vec![Cipher::Aes128Gcm, Cipher::Chacha20Poly1305],
        }
    }

    /// A name for the run: of the host that is not this one.
    pub fn name(&self) -> String {
        let far = [&self.to, &self.from[0]]
            .into_iter()
            .find_map(Operand::far_name);
        far.unwrap_or_else(|| "here".to_owned())
    }

    /// Carries it out.
    ///
    /// # Errors
    /// Why not, with whose fault it is. A copy through a lab is for whoever has the lab
    /// ([`Plan::both`]).
    pub fn run(&self, caller: &Caller, observer: &mut dyn Observer) -> Result<Done, Failure> {
        match (&self.from[0], &self.to) {
            (Operand::Lab { .. }, _) | (_, Operand::Lab { .. }) => {
                Err(Failure::usage("a copy through a lab needs the lab"))
            }
            (Operand::Far { .. }, Operand::Far { .. }) => far::third_party(self, caller, observer),
            (Operand::Far { .. } | Operand::Served { .. }, _) => far::pull(self, caller, observer),
            (_, Operand::Far { .. } | Operand::Served { .. }) => far::push(self, caller, observer),
            (Operand::Here(_), Operand::Here(_)) => self.here(caller, observer),
        }
    }

    /// Puts what came of it into the run, with what other tools say that were asked for.
    pub fn record(&self, run: &mut Run, done: &Done, caller: &Caller) {
        told::put(run, self, done, caller);
    }

    /// Writes the manifest, if one was asked for.
    ///
    /// # Errors
    /// Where it cannot be written, or what it lists cannot be read.
    pub fn write_manifest(&self, caller: &Caller) -> Result<(), Failure> {
        manifest::write(self, caller)
    }

    /// First names that a source may tell: those that were asked for, unless what is in a folder was.
    fn only(&self) -> Result<Option<Vec<Box<[u8]>>>, Failure> {
        let Some(names) = self.names()? else {
            return Ok(self.from.iter().map(Operand::last_name).collect());
        };
        let first = names.iter().map(|(name, _)| name.names().next());
        let first: Option<BTreeSet<_>> = first.map(|name| name.map(Box::from)).collect();
        Ok(first.map(|first| first.into_iter().collect()))
    }

    /// Of a destination on this host: whether nothing stands there that a copy may meet.
    fn is_free(&self) -> Result<bool, Failure> {
        // Whether the source is one file is not known yet; as a dry run, nothing is made.
        let Ok((there, _)) = Destination::resolve(self.to.path(), false, true) else {
            return Ok(false);
        };
        let names = self.only()?.unwrap_or_default();
        let names: Result<Vec<_>, _> = names.iter().map(|name| RelPath::new(name)).collect();
        Ok(!self.request.makes_nothing() && names.is_ok_and(|names| there.is_free(&names)))
    }

    /// What `--files-from` lists, as it stands there.
    fn list(&self) -> Result<Option<&[u8]>, Failure> {
        let Some(file) = &self.request.files_from else {
            return Ok(None);
        };
        if let Some(text) = self.listed.get() {
            return Ok(Some(text));
        }
        let text = job::read_list(file).map_err(|error| of_list(file, &error.to_string()))?;
        Ok(Some(self.listed.get_or_init(|| text)))
    }

    /// The names in it, each with whether all that is in it is meant.
    fn names(&self) -> Result<Option<Vec<(RelPath, bool)>>, Failure> {
        let (Some(text), Some(file)) = (self.list()?, &self.request.files_from) else {
            return Ok(None);
        };
        let names = crate::source::listed(text, false);
        Ok(Some(
            names.map_err(|error| of_list(file, &error.to_string()))?,
        ))
    }

    /// By what an interrupted attempt is known again: where from and where to.
    fn identity(&self) -> [u8; 16] {
        let mut hasher = [0; 16];
        // Two hosts may have the same paths.
        let host = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
        let mut text = host;
        for operand in self.from.iter().chain([&self.to]) {
            text.extend_from_slice(&operand.identity());
            text.push(0);
        }
        hasher.copy_from_slice(&crate::digest::sum_of(&text)[..16]);
        hasher
    }

    /// The source, where it is on this host.
    ///
    /// # Errors
    /// Where it cannot be opened.
    pub fn source(&self) -> Result<Source, Failure> {
        let paths: Vec<_> = self.from.iter().map(Operand::path).collect();
        let opened = match self.names()? {
            None => Source::open(&paths),
            Some(names) => Source::from_list(paths[0], names),
        };
        opened.map_err(|error| match &error {
            SourceError::Open { error: why, .. } if is_exhausted(why) => Failure::here(error),
            _ => Failure::usage(error),
        })
    }

    /// Both sides on this host, over loopback.
    fn here(&self, caller: &Caller, observer: &mut dyn Observer) -> Result<Done, Failure> {
        self.not_into_itself()?;
        let source = self.source()?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(Failure::here)?;
        let at = listener.local_addr().map_err(Failure::here)?;
        let dial = ways::dialing(None, vec![at], job::CONNECT);
        // Nothing is lost on the way to oneself.
        let wish = match self.request.transport() {
            Transport::Auto => Transport::Tcp,
            other => other,
        };
        let near = Meeting::connecting(dial, self.session, self.key.clone(), self.cipher)
            .with_carriage(Carriage::connecting(wish));
        let far = Meeting::listening(self.session, self.key.clone(), vec![self.cipher])
            .with_carriage(job::carriage(wish, std::slice::from_ref(&listener)));
        self.both(&source, &near, &far, &[listener], caller, observer)
    }

    /// A folder copied below itself would never be whole.
    ///
    /// # Errors
    /// Where the destination is in a source.
    pub fn not_into_itself(&self) -> Result<(), Failure> {
        let whole = |path: &Path| {
            // What does not exist yet is in a folder that does.
            let (mut path, mut below) = (std::path::absolute(path).ok()?, PathBuf::new());
            loop {
                if let Ok(found) = path.canonicalize() {
                    return Some(found.join(below));
                }
                below = Path::new(path.file_name()?).join(below);
                path.pop();
            }
        };
        let to = whole(self.to.path());
        for from in &self.from {
            let path = from.path();
            if let (Some(from), Some(to)) = (whole(path), &to)
                && from.is_dir()
                && to.starts_with(&from)
            {
                return Err(Failure::usage(format!(
                    "{} is in {}, which is to be copied there",
                    self.to.path().display(),
                    path.display()
                )));
            }
        }
        Ok(())
    }

    /// Both sides in this process; `far` listens, at all of these, and is the destination.
    ///
    /// # Errors
    /// As [`Plan::run`].
    pub fn both(
        &self,
        source: &Source,
        near: &Meeting,
        far: &Meeting,
        listeners: &[TcpListener],
        caller: &Caller,
        observer: &mut dyn Observer,
    ) -> Result<Done, Failure> {
        let (destination, name) = job::destination(
            self.to.path(),
            source.is_one_file(),
            self.request.makes_nothing(),
        )
        .map_err(Failure::here)?;
        let mut receive = self.request.receive_options(self.identity())?;
        receive.name = name;
        let (send, filter) = (self.request.send_options()?, self.request.filter()?);
        let destination = match self.request.verify {
            true => destination.with_read_back(),
            false => destination,
        };
        let prepared = prepare_here(&destination, &receive, caller)?;
        let (watch, far_watch) = (Watch::default(), Watch::default());
        let mut limits = Limits::of(&self.request)?;
        limits.tick(&watch);
        let begun = Instant::now();
        let crew = Crew::new(|_: &io::Error| {
            near.close();
            far.close();
        });
        let (sent, progress) = thread::scope(|scope| {
            for listener in listeners {
                crew.start(scope, "gp-listen", || crate::meeting::listen(listener, far));
            }
            let (destination, receive, far_watch) = (&destination, &receive, &far_watch);
            let received = crew.start(scope, "gp-receives", move || {
                let received = receive_prepared(far, destination, prepared, receive, far_watch);
                far.close();
                if received.is_err() {
                    // The other side's thread waits for a connection that will not come.
                    near.hurry(Duration::from_millis(500));
                }
                received
            });
            let sent = crew.start(scope, "gp-sends", || {
                crate::engine::send::send(near, source, &filter, &send, &watch)
            });
            let progress = progress::follow(&watch, &mut limits, caller, observer, &|| {
                joined::is_over(&sent)
            });
            let sent = joined::join(sent, &crew);
            if sent.is_err() {
                far_watch.stop();
            }
            let received = joined::join(received, &crew);
            // Of two complaints, the one that is not about the other side.
            let sent = match (sent, received) {
                (Err(CopyError::Far(_) | CopyError::Link(_)), Err(error @ CopyError::Here(_))) => {
                    Err(error)
                }
                (sent, _) => sent,
            };
            (sent, progress)
        });
        let account = sent.map_err(|error| failure(error, caller))?;
        // What the destination chose, and would do, is its own to say.
        for note in far_watch.notes(0).0 {
            if self.request.dry_run || matches!(note, Note::Chosen(_)) {
                let (Note::Skipped(text) | Note::Chosen(text)) = &note;
                if !self.request.is_for_programs {
                    caller.note(text);
                }
                watch.note(note);
            }
        }
        Ok(Done {
            account,
            watch,
            far: Some(told::spent(&far_watch, None)),
            watched_cpu_ns: None,
            hosts: [HostFacts::here(), HostFacts::here()],
            ssh_cpu_ns: None,
            progress,
            took: begun.elapsed(),
            is_source: true,
            reconnects: near.reconnects(),
            ways: near.carried(),
            cipher: near.cipher(),
            certificate: None,
            achievable: None,
        })
    }
}

/// Opens what a destination on this host needs, before anybody is met.
fn prepare_here(
    destination: &Destination,
    options: &ReceiveOptions,
    caller: &Caller,
) -> Result<Prepared, Failure> {
    let prepared = prepare(destination, options, &|| caller.interrupted().is_some());
    prepared.map_err(|error| failure(error, caller))
}

fn of_list(file: &Path, why: &str) -> Failure {
    Failure::usage(format!("--files-from {}: {why}", file.display()))
}

/// Whose fault it is.
fn failure(error: CopyError, caller: &Caller) -> Failure {
    match error {
        CopyError::Stopped => Failure::interrupted(caller.interrupted().unwrap_or(130)),
        CopyError::Refused(text) => Failure::here(text),
        CopyError::Here(text) => Failure::here(format!(
            "{text}; what arrived is kept, and the same command goes on from there"
        )),
        other => Failure::far(format!(
            "{other}; what arrived is kept, and the same command goes on from there"
        )),
    }
}
