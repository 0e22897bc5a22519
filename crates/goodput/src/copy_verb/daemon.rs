//! `goodput serve --dir`: copies for sites that want no ssh for them. One port takes jobs and the links of their sessions.
//!
//! Who is there is found out before anything is read of it ([`gate`]): by a token, by certificates, or both. A job is the
//! one that ssh would have carried ([`super::job`]); its paths are below the served folder, and nothing that it brings
//! makes a program run with other rights, or a file somebody else's.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ::copy::destination::Destination;
use ::copy::engine::Watch;
use ::copy::gate::{self, Gate, Line};
use ::copy::link::{self, Sessions, Socket};
use ::copy::meeting::{self, Meeting};
use ::copy::source::Source;
use ::copy::{Cipher, Confined, Key, SessionId};
use measure::Secret;

use super::job::{self, Ends, Failed, JOB_MOST, Job, Meets, Ready, Reply};
use crate::cli::ServeArgs;
use crate::context::{self, Context};
use crate::failure::{self, Failure, Verdict};

/// The port of daemons, unless another is said.
pub(crate) const PORT: u16 = 5212;
/// Connections at once of which it is not known yet who they are; of more, the oldest are cut.
const UNKNOWN_MOST: usize = 64;
/// What token files are turned into, so that one token may serve measurements too.
const PURPOSE: &str = "goodput copy daemon 1";

/// A key out of a token file.
pub(super) fn token(path: &Path) -> Result<Key, Failure> {
    let digits = Secret::read(path)?.derived(PURPOSE);
    Key::from_hex(&digits).ok_or_else(|| Failure::here(anyhow::anyhow!("a token that is no key")))
}

struct Daemon<'a> {
    gate: Gate,
    served: Confined,
    is_writable: bool,
    sessions_most: usize,
    running: AtomicUsize,
    meetings: Mutex<HashMap<[u8; 16], Arc<Meeting>>>,
    unknown: Mutex<Unknown>,
    speeds: Vec<(Cipher, f64)>,
    context: &'a Context,
}

/// Connections of which it is not known yet who they are.
#[derive(Default)]
struct Unknown {
    next: u64,
    sockets: BTreeMap<u64, TcpStream>,
}

/// Serves copies until asked to stop.
pub(crate) fn serve(args: &ServeArgs, folder: &Path, context: &Context) -> Verdict {
    let at = address(&args.listen)?;
    let usage = |text: &str| Failure::usage(anyhow::anyhow!("{text}"));
    if args.token_file.is_none() && args.client_ca.is_none() {
        return Err(usage(
            "--dir lets nobody in without proof: say --token-file, or --certificate, --key and \
             --client-ca, or both",
        ));
    }
    let here = |error: io::Error| Failure::here(error);
    let identity = match (&args.certificate, &args.key) {
        (Some(certificate), Some(key)) => {
            Some(tls::Identity::read(certificate, key).map_err(here)?)
        }
        _ => None,
    };
    let clients = args
        .client_ca
        .as_deref()
        .map(tls::authorities)
        .transpose()
        .map_err(here)?;
    let config = tls::gate_server(identity, clients).map_err(Failure::here)?;
    let token = args.token_file.as_deref().map(token).transpose()?;
    let served = Confined::open(folder)
        .map_err(|error| Failure::usage(anyhow::anyhow!("--dir {}: {error}", folder.display())))?;
    sys::host::raise_descriptor_limit();
    let listener = TcpListener::bind(at)
        .map_err(|error| Failure::here(anyhow::anyhow!("cannot listen at {at}: {error}")))?;
    let local = listener.local_addr().map_err(Failure::here)?;
    let daemon = Daemon {
        gate: Gate::new(config, token),
        served,
        is_writable: args.writable,
        sessions_most: usize::try_from(args.clients).unwrap_or(usize::MAX),
        running: AtomicUsize::new(0),
        meetings: Mutex::default(),
        unknown: Mutex::default(),
        speeds: job::speeds(),
        context,
    };
    let how = match args.writable {
        true => "to be read and written",
        false => "to be read; --writable lets clients write and delete there",
    };
    context::note(format_args!(
        "serving {} on {local}, {how}; Ctrl-C or SIGTERM ends it",
        folder.display()
    ));
    if local.ip().is_loopback() {
        context::note("only this machine can reach it: say --listen 0.0.0.0 for other machines");
    }
    daemon.run(&listener).map_err(Failure::here)?;
    Ok(failure::DONE)
}

fn address(typed: &str) -> Result<SocketAddr, Failure> {
    crate::serve::address_at(typed, PORT)
}

impl Sessions for Daemon<'_> {
    fn find(&self, session: SessionId) -> Option<(Key, Vec<Cipher>)> {
        self.meetings().get(&session.0)?.find(session)
    }
}

impl Daemon<'_> {
    fn run(&self, listener: &TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        thread::scope(|scope| {
            while self.context.interrupted().is_none() {
                let (socket, peer) = match listener.accept() {
                    Ok(accepted) => accepted,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        meeting::has_come(listener)?;
                        continue;
                    }
                    // Somebody who left already, or too many descriptors for now.
                    Err(_) => {
                        thread::sleep(Duration::from_millis(10));
                        continue;
                    }
                };
                let Ok(number) = self.arrived(&socket) else {
                    continue;
                };
                scope.spawn(move || {
                    let ended = socket
                        .set_nonblocking(false)
                        .and_then(|()| self.meet(socket, peer, number));
                    self.known(number);
                    if let Err(error) = ended {
                        tracing::info!("{peer}: {error}");
                    }
                });
            }
            // Who is in the middle of something is not waited for.
            let unknown = std::mem::take(&mut self.unknown().sockets);
            for socket in unknown.values() {
                let _ = socket.shutdown(std::net::Shutdown::Both);
            }
            Ok(())
        })
    }

    /// Remembers a connection until it is known who it is.
    fn arrived(&self, socket: &TcpStream) -> io::Result<u64> {
        let again = socket.try_clone()?;
        let mut unknown = self.unknown();
        if unknown.sockets.len() >= UNKNOWN_MOST
            && let Some((_, oldest)) = unknown.sockets.pop_first()
        {
            // Whoever opens connections and says nothing keeps nobody out.
            let _ = oldest.shutdown(std::net::Shutdown::Both);
        }
        let number = unknown.next;
        unknown.next += 1;
        unknown.sockets.insert(number, again);
        Ok(number)
    }

    fn known(&self, number: u64) {
        self.unknown().sockets.remove(&number);
    }

    /// A link of a session that runs, or somebody at the door: TLS begins with another byte than a link's greeting.
    fn meet(&self, socket: TcpStream, peer: SocketAddr, number: u64) -> io::Result<()> {
        let since = Instant::now();
        socket.set_read_timeout(Some(gate::PATIENCE))?;
        let mut first = [0];
        if matches!(socket.peek(&mut first), Ok(1)) && first == *b"G" {
            let (session, which, link) = link::accept(Socket::Tcp(socket), self)?;
            self.known(number);
            if let Some(meeting) = self.meetings().get(&session.0).cloned() {
                meeting.offer(which, link);
            }
            return Ok(());
        }
        // A connection that said nothing for as long as anybody has, too.
        let line = self.gate.admit(Socket::Tcp(socket), since)?;
        self.known(number);
        self.session(line, peer)
    }

    /// One job, from its line to its end.
    fn session(&self, mut line: Line, peer: SocketAddr) -> io::Result<()> {
        let begun = Instant::now();
        line.set_patience(Some(gate::PATIENCE))?;
        let mut text = Vec::new();
        let mut reader = BufReader::new(&mut line);
        reader
            .by_ref()
            .take(JOB_MOST)
            .read_until(b'\n', &mut text)?;
        drop(reader);
        let watch = Watch::default();
        let place = Place::take(self);
        let result = match (Job::read(&text), &place) {
            (Err(no), _) => Err((no.words(), true)),
            (Ok(_), None) => Err((
                format!(
                    "this daemon serves {} copies already: try again later",
                    self.sessions_most
                ),
                true,
            )),
            (Ok(job), Some(_)) => self.work(&job, &mut line, peer, &watch),
        };
        drop(text);
        match &result {
            Ok(account) => tracing::info!(
                "{peer}: done, {} files and {} bytes in {:.1} s",
                account.placed,
                account.placed_bytes,
                begun.elapsed().as_secs_f64()
            ),
            Err((why, _)) => tracing::info!("{peer}: {}", super::told::plain(why)),
        }
        say(&mut line, &job::last_word(result, &watch))
    }

    fn work(
        &self,
        job: &Job,
        line: &mut Line,
        peer: SocketAddr,
        watch: &Watch,
    ) -> Result<::copy::message::Account, Failed> {
        let refused = |why: &str| Err((why.to_owned(), true));
        let session = SessionId::from_hex(&job.session);
        let (Some(session), Some(key)) = (session, Key::from_hex(&job.key)) else {
            return refused("the session has no key");
        };
        if !matches!(job.meets, Meets::Listens { .. }) {
            return refused("a daemon listens, and connects to nobody");
        }
        if job.allowed.is_empty() || job.allowed.iter().any(|cipher| cipher.is_open()) {
            return refused("this daemon encrypts all that it sends and takes");
        }
        if !job.is_source && !job.dry && !self.is_writable {
            return refused("this daemon's folder is to be read only");
        }
        let filter = job.filter().map_err(|error| (error.to_string(), true))?;
        let ends = self.ends(job).map_err(|why| (why, true))?;
        tracing::info!(
            "{peer}: {} {}",
            if job.is_source { "reads" } else { "writes" },
            job.paths
                .iter()
                .map(|path| path.escape_ascii().to_string())
                .collect::<Vec<_>>()
                .join(" ")
        );
        let meeting = Arc::new(Meeting::listening(session, key, job.allowed.clone()));
        let Some(_registered) = Registered::new(self, session, &meeting) else {
            return refused("a session of this number runs already");
        };
        let ready = Ready {
            at: None,
            is_one_file: ends.is_one_file(),
            speeds: self.speeds.clone(),
        };
        line.set_patience(None)
            .and_then(|()| say(line, &Reply::Ready(ready)))
            .map_err(|error| (error.to_string(), false))?;
        let socket = line.socket().again();
        let socket = socket.map_err(|error| (error.to_string(), true))?;
        meeting::notice_death(socket.as_fd());
        let is_gone = AtomicBool::new(false);
        thread::scope(|scope| {
            let gone = &is_gone;
            let watched = &socket;
            scope.spawn(move || {
                // Nothing is said any more but that it is over.
                if let Socket::Tcp(socket) = watched {
                    let _ = socket.peek(&mut [0]);
                }
                gone.store(true, Ordering::Relaxed);
            });
            let is_ended =
                || is_gone.load(Ordering::Relaxed) || self.context.interrupted().is_some();
            let mut tell = |reply: &Reply| {
                if say(line, reply).is_err() {
                    is_gone.store(true, Ordering::Relaxed);
                }
            };
            let result = job.perform(ends, &filter, &meeting, watch, &mut tell, &is_ended);
            // The last word is still to come; only what is heard is over.
            if let Socket::Tcp(socket) = &socket {
                let _ = socket.shutdown(std::net::Shutdown::Read);
            }
            result
        })
    }

    /// What the job is about, below the served folder.
    fn ends(&self, job: &Job) -> Result<Ends, String> {
        if job.is_source {
            let source = Source::open_in(&self.served, &job.paths);
            return Ok(Ends::Source(source.map_err(|error| error.to_string())?));
        }
        let [path] = &job.paths[..] else {
            return Err("a destination is one path".to_owned());
        };
        let opened = Destination::resolve_in(&self.served, path, job.is_one_file, job.dry);
        let (destination, name) =
            opened.map_err(|error| format!("{}: {error}", path.escape_ascii()))?;
        Ok(Ends::Destination(destination, name))
    }

    fn meetings(&self) -> MutexGuard<'_, HashMap<[u8; 16], Arc<Meeting>>> {
        self.meetings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unknown(&self) -> MutexGuard<'_, Unknown> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the copies that are served at once.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(daemon: &'a Daemon<'_>) -> Option<Self> {
        let most = daemon.sessions_most;
        let taken = daemon
            .running
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| {
                (n < most).then_some(n + 1)
            });
        taken.ok().map(|_| Self(&daemon.running))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A session whose links are taken.
struct Registered<'a>(&'a Daemon<'a>, SessionId);

impl<'a> Registered<'a> {
    fn new(daemon: &'a Daemon<'a>, session: SessionId, meeting: &Arc<Meeting>) -> Option<Self> {
        let mut meetings = daemon.meetings();
        if meetings.contains_key(&session.0) {
            return None;
        }
        meetings.insert(session.0, Arc::clone(meeting));
        Some(Self(daemon, session))
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if let Some(meeting) = self.0.meetings().remove(&self.1.0) {
            meeting.close();
        }
    }
}

fn say(line: &mut Line, reply: &Reply) -> io::Result<()> {
    let mut text = serde_json::to_vec(reply).map_err(io::Error::other)?;
    text.push(b'\n');
    line.write_all(&text)?;
    line.flush()
}
