//! A daemon (`goodput serve --dir`): copies for sites that want no ssh for them. One port takes
//! jobs and the links of their sessions.
//!
//! Who is there is found out before anything is read of it ([`gate`]): by a token, by certificates, or both. A job is the
//! one that ssh would have carried ([`super::job`]); its paths are below the served folder, and nothing that it brings
//! makes a program run with other rights, or a file somebody else's.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::destination::Destination;
use crate::engine::Watch;
use crate::filter::Filter;
use crate::gate::{self, Gate, Line};
use crate::link::{self, Sessions, Socket};
use crate::meeting::{self, Meeting};
use crate::quic::{self, Carriage, Door, Transport};
use crate::reason::reason;
use crate::source::Source;
use crate::{Cipher, Confined, Key, SessionId, unpaced};
use units::text::plain;

use super::caller::Caller;
use super::job::{self, Ends, Failed, JOB_MOST, Job, Meets, Ready, Reply};
use fault::Failure;
use sys::threads;

/// The port of daemons, unless another is said.
pub const PORT: u16 = 5212;
/// Connections at once of which it is not known yet who they are; of more, the oldest are cut of the address that has most.
const UNKNOWN_MOST: usize = 64;
/// Threads for these and for those that were cut and have not noticed yet. With as many, nobody is taken in until one ends.
const UNKNOWN_THREADS_MOST: usize = 2 * UNKNOWN_MOST;
/// How long a job may take to come, from being let in: the longest at 3 Mb/s.
const JOB_PATIENCE: Duration = Duration::from_secs(60);
/// What token files are turned into, so that one token may serve measurements too.
pub const PURPOSE: &str = "goodput copy daemon 1";

/// What a daemon serves, and to whom.
#[derive(Debug)]
pub struct Service {
    /// Where it listens.
    pub at: SocketAddr,
    /// The folder that is served.
    pub folder: PathBuf,
    /// Clients may write there.
    pub is_writable: bool,
    /// Certificate and key to show, in PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Authorities of which one must have signed a client's certificate, and certificates that they
    /// revoked.
    pub clients: Option<(PathBuf, Option<PathBuf>)>,
    /// What clients have to hold.
    pub token: Option<Key>,
    /// Copies at once.
    pub sessions_max: usize,
    /// Of these, copies of one address.
    pub sessions_of_one_max: usize,
    /// How long somebody may take to say who it is, and how long every refusal takes.
    pub refusal: Duration,
}

impl Service {
    /// A folder to be read by who holds the token, at [`PORT`] of this machine alone.
    pub fn new(folder: PathBuf, token: Option<Key>) -> Self {
        Self {
            at: SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)),
            folder,
            is_writable: false,
            identity: None,
            clients: None,
            token,
            sessions_max: usize::MAX,
            sessions_of_one_max: usize::MAX,
            refusal: gate::PATIENCE,
        }
    }
}

struct Daemon<'a> {
    gate: Gate,
    served: Confined,
    is_writable: bool,
    sessions_most: usize,
    sessions_most_of_one: usize,
    /// Copies that are served, by address.
    running: Mutex<HashMap<IpAddr, usize>>,
    /// Threads of connections of which it is not known yet who they are.
    threads: AtomicUsize,
    meetings: Mutex<HashMap<[u8; 16], Arc<Meeting>>>,
    /// Where blocks over QUIC arrive, on the port of TCP.
    door: Option<Door>,
    unknown: Mutex<Unknown>,
    speeds: Vec<(Cipher, f64)>,
    refusal: Duration,
    caller: &'a Caller,
}

/// Connections of which it is not known yet who they are.
#[derive(Default)]
struct Unknown {
    next: u64,
    there: BTreeMap<u64, Stranger>,
}

struct Stranger {
    address: IpAddr,
    socket: TcpStream,
    cut: Arc<AtomicBool>,
}

impl Stranger {
    fn cut(&self) {
        // Before its thread wakes up.
        self.cut.store(true, Ordering::Release);
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Who is one and the same to limits: an address of IPv4, a network of 64 bits of IPv6, which one host usually has.
fn site(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

/// The oldest of the address that has most; of several such, the oldest of all.
fn superfluous(there: impl Iterator<Item = (u64, IpAddr)> + Clone) -> Option<u64> {
    let mut of = HashMap::<IpAddr, usize>::new();
    for (_, address) in there.clone() {
        *of.entry(address).or_default() += 1;
    }
    let most = of.values().max().copied()?;
    there
        .filter(|(_, address)| of.get(address) == Some(&most))
        .map(|(number, _)| number)
        .min()
}

/// Serves copies until asked to stop. Notes say what is served where.
///
/// ```no_run
/// use copy::Key;
/// use copy::task::{Caller, daemon};
///
/// let service = daemon::Service::new("/srv/data".into(), Some(Key::random()?));
/// daemon::serve(&service, &Caller::default())?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Where it lets anybody in, or cannot listen or read what it is told to.
pub fn serve(service: &Service, caller: &Caller) -> Result<(), Failure> {
    let at = service.at;
    if service.token.is_none() && service.clients.is_none() {
        return Err(Failure::usage(
            "--dir lets nobody in without proof: say --token-file, or --certificate, --key and \
             --client-ca, or both",
        ));
    }
    let identity = service.identity.as_ref();
    let identity = identity.map(|(certificate, key)| tls::Identity::read(certificate, key));
    let identity = identity.transpose().map_err(Failure::here)?;
    let clients = service.clients.as_ref();
    let clients = clients.map(|(authorities, crl)| tls::Clients::read(authorities, crl.as_deref()));
    let clients = clients.transpose().map_err(Failure::here)?;
    let config = tls::gate_server(identity, clients).map_err(Failure::here)?;
    let folder = &service.folder;
    let served = Confined::open(folder)
        .map_err(|error| Failure::usage(format!("--dir {}: {error}", folder.display())))?;
    sys::host::raise_descriptor_limit();
    let listener = TcpListener::bind(at)
        .map_err(|error| Failure::here(format!("cannot listen at {at}: {error}")))?;
    let local = listener.local_addr().map_err(Failure::here)?;
    let door = quic::beside(&listener).and_then(Door::open);
    let door = door.inspect_err(|error| {
        caller.note(format_args!(
            "no QUIC: the port is not to be had for UDP ({error}); TCP carries all"
        ));
    });
    let daemon = Daemon {
        gate: Gate::new(config, service.token.clone()).with_patience(service.refusal),
        served,
        is_writable: service.is_writable,
        sessions_most: service.sessions_max,
        sessions_most_of_one: service.sessions_of_one_max,
        running: Mutex::default(),
        threads: AtomicUsize::new(0),
        meetings: Mutex::default(),
        door: door.ok(),
        unknown: Mutex::default(),
        speeds: job::speeds(),
        refusal: service.refusal,
        caller,
    };
    let how = match service.is_writable {
        true => "to be read and written",
        false => "to be read; --writable lets clients write and delete there",
    };
    caller.note(format_args!(
        "serving {} on {local}, {how}; Ctrl-C or SIGTERM ends it",
        folder.display()
    ));
    if local.ip().is_loopback() {
        caller.note("only this machine can reach it: say --listen 0.0.0.0 for other machines");
    }
    daemon.run(&listener).map_err(Failure::here)
}

/// What a daemon needs of a job that it takes: whose session, and what is left out. Whether the
/// paths are below its folder is not looked at.
///
/// # Errors
/// Why it does not take it, for the client.
pub fn admits(job: &Job, is_writable: bool) -> Result<(SessionId, Key, Filter), String> {
    let session = SessionId::from_hex(&job.session);
    let (Some(session), Some(key)) = (session, Key::from_hex(&job.key)) else {
        return Err("the session has no key".to_owned());
    };
    let why = if !matches!(job.meets, Meets::Listens { .. }) {
        "a daemon listens, and connects to nobody"
    } else if job.has_helpers || job.helps.is_some() {
        "a daemon's folder is its own host's business"
    } else if job.allowed.is_empty() || job.allowed.iter().any(|cipher| cipher.is_open()) {
        "this daemon encrypts all that it sends and takes"
    } else if !job.is_source && !job.dry && !is_writable {
        "this daemon's folder is to be read only: `goodput serve --writable` lets clients write"
    } else {
        let filter = job.filter().map_err(|error| error.to_string())?;
        return Ok((session, key, filter));
    };
    Err(why.to_owned())
}

/// What the job is about, below the served folder.
fn ends(served: &Confined, job: &Job) -> Result<Ends, String> {
    if job.list.is_some() {
        return Err("this daemon takes no lists of names".to_owned());
    }
    if job.is_source {
        let source = Source::open_in(served, &job.paths);
        return Ok(Ends::Source(source.map_err(|error| error.to_string())?));
    }
    let [path] = &job.paths[..] else {
        return Err("a destination is one path".to_owned());
    };
    let opened = Destination::resolve_in(served, path, job.is_one_file, job.makes_nothing());
    let (destination, name) = opened.map_err(|error| match error.raw_os_error() {
        Some(_) => {
            let (place, why) = (path.escape_ascii(), reason(&error));
            format!("cannot write in {place} ({why}); nothing was copied")
        }
        None => format!("{}: {error}", path.escape_ascii()),
    })?;
    Ok(Ends::Destination(Box::new(destination), name, None))
}

/// Whether a daemon of this folder takes a line as a job. Its source or destination is looked for,
/// and nothing is made.
///
/// ```
/// use copy::{Confined, task::daemon};
///
/// let served = Confined::open(&std::env::temp_dir())?;
/// let said = daemon::takes(&served, false, br#"{"version":99}"#);
/// assert!(said.is_err_and(|why| why.contains("bring the older one up to date")));
/// # Ok::<_, std::io::Error>(())
/// ```
///
/// # Errors
/// Why not, for the client.
pub fn takes(served: &Confined, is_writable: bool, line: &[u8]) -> Result<(), String> {
    let mut job = Job::read(line).map_err(|no| no.words())?;
    admits(&job, is_writable)?;
    job.dry = true;
    ends(served, &job).map(drop)
}

impl Sessions for Daemon<'_> {
    fn find(&self, session: SessionId) -> Option<(Key, Vec<Cipher>)> {
        self.meetings().get(&session.0)?.find(session)
    }
}

impl Daemon<'_> {
    fn run(&self, listener: &TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let begun = unpaced::begin(listener.as_fd());
        thread::scope(|scope| {
            if let Some(door) = &self.door {
                let links = move || self.links_over_quic(scope, door);
                if let Err(error) = threads::scoped(scope, "gp-links", links) {
                    // Links come by TCP then.
                    tracing::warn!("no links over QUIC: {error}");
                    door.close();
                }
            }
            while self.caller.interrupted().is_none() {
                if self.threads.load(Ordering::Acquire) >= UNKNOWN_THREADS_MOST {
                    // Who comes now waits in the kernel.
                    thread::sleep(Duration::from_millis(10));
                    continue;
                }
                let (socket, peer) = match listener.accept() {
                    Ok(accepted) => accepted,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        if let Err(error) = meeting::has_come(listener) {
                            self.door.iter().for_each(Door::close);
                            return Err(error);
                        }
                        continue;
                    }
                    // Somebody who left already, or too many descriptors for now.
                    Err(_) => {
                        thread::sleep(Duration::from_millis(10));
                        continue;
                    }
                };
                begun.settle(socket.as_fd());
                let Ok(arrived) = self.arrived(&socket, peer) else {
                    continue;
                };
                let meets = move || {
                    let ended = socket
                        .set_nonblocking(false)
                        .and_then(|()| self.meet(socket, peer, arrived));
                    if let Err(error) = ended {
                        tracing::info!("{peer}: {error}");
                    }
                };
                // What cannot have a thread is dropped, and its place with it.
                if let Err(error) = threads::scoped(scope, "gp-meet", meets) {
                    tracing::info!("{peer}: no thread for it: {error}");
                    thread::sleep(Duration::from_millis(10));
                }
            }
            // Who is in the middle of something is not waited for.
            let unknown = std::mem::take(&mut self.unknown().there);
            unknown.values().for_each(Stranger::cut);
            Ok(())
        })
    }

    /// Takes links that QUIC carries until asked to stop. There are no more of them than sessions have, and some that have
    /// not proved themselves.
    fn links_over_quic<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        door: &'scope Door,
    ) {
        while self.caller.interrupted().is_none() && !door.is_over() {
            let Some(socket) = door.next(Duration::from_millis(100)) else {
                continue;
            };
            let meets =
                move || match link::accept_quietly(socket, self, Instant::now() + self.refusal) {
                    Ok((session, which, link)) => {
                        if let Some(meeting) = self.meetings().get(&session.0).cloned() {
                            meeting.offer(which, link);
                        }
                    }
                    Err(error) => tracing::info!("over QUIC: {error}"),
                };
            if let Err(error) = threads::scoped(scope, "gp-meet", meets) {
                tracing::info!("over QUIC: no thread for it: {error}");
            }
        }
        door.close();
    }

    /// Remembers a connection until it is known who it is.
    fn arrived(&self, socket: &TcpStream, peer: SocketAddr) -> io::Result<Arrived<'_>> {
        let cut = Arc::<AtomicBool>::default();
        let stranger = Stranger {
            address: site(peer),
            socket: socket.try_clone()?,
            cut: Arc::clone(&cut),
        };
        let mut unknown = self.unknown();
        if unknown.there.len() >= UNKNOWN_MOST {
            // Whoever opens connections and says nothing keeps nobody out.
            let there = unknown.there.iter().map(|(n, there)| (*n, there.address));
            let cut = superfluous(there).and_then(|number| unknown.there.remove(&number));
            cut.iter().for_each(Stranger::cut);
        }
        let number = unknown.next;
        unknown.next += 1;
        unknown.there.insert(number, stranger);
        self.threads.fetch_add(1, Ordering::AcqRel);
        Ok(Arrived {
            daemon: self,
            number,
            cut,
        })
    }

    /// A link of a session that runs, or somebody at the door: TLS begins with another byte than a link's greeting.
    fn meet(&self, socket: TcpStream, peer: SocketAddr, arrived: Arrived<'_>) -> io::Result<()> {
        let since = Instant::now();
        socket.set_read_timeout(Some(self.refusal))?;
        let mut first = [0];
        if matches!(socket.peek(&mut first), Ok(1)) && first == *b"G" {
            let until = since + self.refusal;
            let socket = Socket::Tcp(socket);
            let again = socket.again()?;
            let accepted = link::accept_quietly(socket, self, until);
            let (session, which, link) =
                accepted.inspect_err(|_| gate::refuse(&again, until, &arrived.cut))?;
            drop(arrived);
            if let Some(meeting) = self.meetings().get(&session.0).cloned() {
                meeting.offer(which, link);
            }
            return Ok(());
        }
        // A connection that said nothing for as long as anybody has, too.
        let socket = Socket::Tcp(socket);
        let line = self.gate.admit_unless(socket, since, &arrived.cut)?;
        self.session(line, peer, arrived)
    }

    /// One job, from its line to its end.
    fn session(&self, mut line: Line, peer: SocketAddr, arrived: Arrived<'_>) -> io::Result<()> {
        let begun = Instant::now();
        line.set_deadline(Some(begun + JOB_PATIENCE))?;
        let place = Place::take(self, site(peer));
        // Who has no place stays among those who make room for others.
        let _stranger = place.is_err().then_some(arrived);
        let mut text = Vec::new();
        let mut reader = BufReader::new(&mut line).take(JOB_MOST);
        match &place {
            Ok(_) => reader.read_until(b'\n', &mut text)?,
            // Heard, so that it hears the answer, and not kept.
            Err(_) => reader.skip_until(b'\n')?,
        };
        drop(reader);
        let watch = Watch::default();
        let result = match &place {
            Err(why) => Err((why.clone(), true)),
            Ok(_) => match Job::read(&text) {
                Err(no) => Err((no.words(), true)),
                Ok(job) => self.work(&job, &mut line, peer, &watch),
            },
        };
        drop(text);
        match &result {
            Ok(account) => tracing::info!(
                "{peer}: done, {} files and {} bytes in {:.1} s",
                account.placed,
                account.placed_bytes,
                begun.elapsed().as_secs_f64()
            ),
            Err((why, _)) => tracing::info!("{peer}: {}", plain(why)),
        }
        say(&mut line, &job::last_word(result, &watch))
    }

    fn work(
        &self,
        job: &Job,
        line: &mut Line,
        peer: SocketAddr,
        watch: &Watch,
    ) -> Result<crate::message::Account, Failed> {
        let (session, key, filter) = admits(job, self.is_writable).map_err(|why| (why, true))?;
        let ends = ends(&self.served, job).map_err(|why| (why, true))?;
        tracing::info!(
            "{peer}: {} {}",
            if job.is_source { "reads" } else { "writes" },
            job.paths
                .iter()
                .map(|path| path.escape_ascii().to_string())
                .collect::<Vec<_>>()
                .join(" ")
        );
        let door = self.door.as_ref();
        let door = door.filter(|door| job.transport != Transport::Tcp && !door.is_over());
        let carriage = match door {
            Some(_) => Carriage::at_door(job.transport),
            None => Carriage::nowhere(job.transport),
        };
        let meeting = Meeting::listening(session, key.clone(), job.allowed.clone());
        let meeting = Arc::new(meeting.with_carriage(carriage));
        let Some(_registered) = Registered::new(self, session, &meeting) else {
            return Err(("a session of this number runs already".to_owned(), true));
        };
        let _expected = door.map(|door| door.expect(session, &key));
        let ready = Ready {
            is_one_file: ends.is_one_file(),
            unasked: job.takes_unasked(&ends),
            quic: door.is_some(),
            ..Ready::of_this_host(self.speeds.clone())
        };
        let ends = ends.prepare(job, &filter, watch)?;
        line.set_deadline(None)
            .and_then(|()| say(line, &Reply::Ready(ready)))
            .map_err(|error| (error.to_string(), false))?;
        let socket = line.socket().again();
        let socket = socket.map_err(|error| (error.to_string(), true))?;
        meeting::notice_death(socket.as_fd());
        let is_gone = AtomicBool::new(false);
        thread::scope(|scope| {
            let gone = &is_gone;
            let watched = &socket;
            let watches = threads::scoped(scope, "gp-watch", move || {
                // Nothing is said any more but that it is over.
                if let Socket::Tcp(socket) = watched {
                    let _ = socket.peek(&mut [0]);
                }
                gone.store(true, Ordering::Relaxed);
            });
            watches.map_err(|error| (error.to_string(), true))?;
            let is_ended =
                || is_gone.load(Ordering::Relaxed) || self.caller.interrupted().is_some();
            let mut tell = |reply: &Reply| {
                if say(line, reply).is_err() {
                    is_gone.store(true, Ordering::Relaxed);
                }
            };
            let result = job.perform(ends, &filter, &meeting, watch, &mut tell, &is_ended);
            // The last word is still to come; only what is heard is over.
            if let Socket::Tcp(socket) = &socket {
                let _ = socket.shutdown(Shutdown::Read);
            }
            result
        })
    }

    fn meetings(&self) -> MutexGuard<'_, HashMap<[u8; 16], Arc<Meeting>>> {
        self.meetings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unknown(&self) -> MutexGuard<'_, Unknown> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection among those that are not known yet; it and its thread are not, once this is gone.
struct Arrived<'a> {
    daemon: &'a Daemon<'a>,
    number: u64,
    cut: Arc<AtomicBool>,
}

impl Drop for Arrived<'_> {
    fn drop(&mut self) {
        self.daemon.unknown().there.remove(&self.number);
        self.daemon.threads.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One of the copies that are served at once.
struct Place<'a>(&'a Daemon<'a>, IpAddr);

impl<'a> Place<'a> {
    /// Or why not, for the user.
    fn take(daemon: &'a Daemon<'_>, site: IpAddr) -> Result<Self, String> {
        let mut running = daemon.running();
        let of_all: usize = running.values().sum();
        let of_one = running.get(&site).copied().unwrap_or(0);
        let (most, whose) = match () {
            () if of_all >= daemon.sessions_most => (daemon.sessions_most, ""),
            () if of_one >= daemon.sessions_most_of_one => {
                (daemon.sessions_most_of_one, " of this address")
            }
            () => {
                running.insert(site, of_one + 1);
                return Ok(Self(daemon, site));
            }
        };
        let copies = if most == 1 { "copy" } else { "copies" };
        Err(format!(
            "this daemon serves {most} {copies}{whose} already: try again later"
        ))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut running = self.0.running();
        let left = running.remove(&self.1).unwrap_or(0).saturating_sub(1);
        if left > 0 {
            running.insert(self.1, left);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn of_the_address_that_has_most_the_oldest_goes() {
        let of = |addresses: &[&str]| {
            let all: Vec<_> = (5..)
                .zip(addresses)
                .map(|(number, address)| {
                    let address = address.parse().unwrap();
                    (number, site(SocketAddr::new(address, 1)))
                })
                .collect();
            superfluous(all.into_iter())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["192.0.2.1", "192.0.2.2", "192.0.2.2"]), Some(6));
        assert_eq!(of(&["192.0.2.1", "192.0.2.2"]), Some(5));
        // One host may have all addresses of a network of IPv6, and one of IPv4 may come as one of IPv6.
        assert_eq!(
            of(&["192.0.2.1", "2001:db8::1", "2001:db8::ffff:2"]),
            Some(6)
        );
        assert_eq!(of(&["2001:db8::1", "2001:db8:0:1::1"]), Some(5));
        assert_eq!(of(&["192.0.2.1", "::ffff:192.0.2.2", "192.0.2.2"]), Some(6));
    }

    /// A right job, with one of its fields another.
    fn line(field: &str, value: serde_json::Value) -> Vec<u8> {
        let text = include_str!("../../../../fuzz/copy_job.json");
        let mut job: serde_json::Value = serde_json::from_str(text).unwrap();
        job[field] = value;
        serde_json::to_vec(&job).unwrap()
    }

    #[test]
    fn a_daemon_takes_what_is_below_its_folder_and_writes_only_where_it_may() {
        let place = Scratch::new();
        let served = place.path().join("served");
        std::fs::create_dir(&served).unwrap();
        std::fs::write(served.join("file"), "text").unwrap();
        std::fs::write(place.path().join("secret"), "secret").unwrap();
        let served = Confined::open(&served).unwrap();
        let takes = |writes, line: &[u8]| takes(&served, writes, line);
        let paths = |text: &str| line("paths", serde_json::json!([text.as_bytes()]));
        assert_eq!(takes(false, &paths("file")), Ok(()));
        for (wrong, why) in [
            (paths("../secret"), ""),
            (line("list", "file".into()), "no lists"),
            (line("allowed", serde_json::json!(["none"])), "encrypts all"),
            (line("key", "07".into()), "no key"),
            (line("has_helpers", true.into()), "its own host's business"),
            (line("meets", "ListensInside".into()), "connects to nobody"),
            (line("version", 6.into()), "versions 3 to 5"),
            (b"no job".to_vec(), "no job"),
        ] {
            let said = takes(true, &wrong).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let writes = paths("new");
        let mut writes: serde_json::Value = serde_json::from_slice(&writes).unwrap();
        writes["is_source"] = false.into();
        let writes = serde_json::to_vec(&writes).unwrap();
        assert!(
            takes(false, &writes)
                .unwrap_err()
                .contains("to be read only")
        );
        assert_eq!(takes(true, &writes), Ok(()));
        assert_eq!(
            std::fs::read_dir(place.path().join("served"))
                .unwrap()
                .count(),
            1
        );
    }

    proptest::proptest! {
        #[test]
        fn any_path_is_below_the_folder_or_refused_and_nothing_is_made(
            path in proptest::collection::vec(proptest::num::u8::ANY, 0..40),
            is_source in proptest::bool::ANY,
        ) {
            let place = Scratch::new();
            let served = place.path().join("served");
            std::fs::create_dir(&served).unwrap();
            let confined = Confined::open(&served).unwrap();
            let text = line("paths", serde_json::json!([path]));
            let mut job: serde_json::Value = serde_json::from_slice(&text).unwrap();
            job["is_source"] = is_source.into();
            let _ = takes(&confined, true, &serde_json::to_vec(&job).unwrap());
            proptest::prop_assert_eq!(std::fs::read_dir(&served).unwrap().count(), 0);
            proptest::prop_assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
        }
    }
}
