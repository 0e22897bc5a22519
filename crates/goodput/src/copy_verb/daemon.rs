//! `goodput serve --dir`: copies for sites that want no ssh for them. One port takes jobs and the links of their sessions.
//!
//! Who is there is found out before anything is read of it ([`gate`]): by a token, by certificates, or both. A job is the
//! one that ssh would have carried ([`super::job`]); its paths are below the served folder, and nothing that it brings
//! makes a program run with other rights, or a file somebody else's.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
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
use ::copy::quic::{self, Carriage, Door, Transport};
use ::copy::source::Source;
use ::copy::{Cipher, Confined, Key, SessionId, unpaced};
use measure::Secret;
use units::text::plain;

use super::job::{self, Ends, Failed, JOB_MOST, Job, Meets, Ready, Reply};
use crate::cli::ServeArgs;
use crate::context::{self, Context};
use crate::failure::{self, Failure, Verdict};

/// The port of daemons, unless another is said.
pub(crate) const PORT: u16 = 5212;
/// Connections at once of which it is not known yet who they are; of more, the oldest are cut of the address that has most.
const UNKNOWN_MOST: usize = 64;
/// Threads for these and for those that were cut and have not noticed yet. With as many, nobody is taken in until one ends.
const UNKNOWN_THREADS_MOST: usize = 2 * UNKNOWN_MOST;
/// How long a job may take to come, from being let in: the longest at 3 Mb/s.
const JOB_PATIENCE: Duration = Duration::from_secs(60);
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
    context: &'a Context,
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
        .map(|authorities| tls::Clients::read(authorities, args.client_crl.as_deref()))
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
    let door = quic::beside(&listener).and_then(Door::open);
    let door = door.inspect_err(|error| {
        context::note(format_args!(
            "no QUIC: the port is not to be had for UDP ({error}); TCP carries all"
        ));
    });
    let daemon = Daemon {
        gate: Gate::new(config, token),
        served,
        is_writable: args.writable,
        sessions_most: usize::try_from(args.clients).unwrap_or(usize::MAX),
        sessions_most_of_one: args.clients_per_address.map_or(usize::MAX, |most| {
            usize::try_from(most).unwrap_or(usize::MAX)
        }),
        running: Mutex::default(),
        threads: AtomicUsize::new(0),
        meetings: Mutex::default(),
        door: door.ok(),
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
        let begun = unpaced::begin(listener.as_fd());
        thread::scope(|scope| {
            if let Some(door) = &self.door {
                scope.spawn(move || self.links_over_quic(scope, door));
            }
            while self.context.interrupted().is_none() {
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
                if let Err(error) = thread::Builder::new().spawn_scoped(scope, meets) {
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
        while self.context.interrupted().is_none() && !door.is_over() {
            let Some(socket) = door.next(Duration::from_millis(100)) else {
                continue;
            };
            let meets =
                move || match link::accept_quietly(socket, self, Instant::now() + gate::PATIENCE) {
                    Ok((session, which, link)) => {
                        if let Some(meeting) = self.meetings().get(&session.0).cloned() {
                            meeting.offer(which, link);
                        }
                    }
                    Err(error) => tracing::info!("over QUIC: {error}"),
                };
            if let Err(error) = thread::Builder::new().spawn_scoped(scope, meets) {
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
        socket.set_read_timeout(Some(gate::PATIENCE))?;
        let mut first = [0];
        if matches!(socket.peek(&mut first), Ok(1)) && first == *b"G" {
            let until = since + gate::PATIENCE;
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
    ) -> Result<::copy::message::Account, Failed> {
        let refused = |why: &str| Err((why.to_owned(), true));
        let session = SessionId::from_hex(&job.session);
        let (Some(session), Some(key)) = (session, Key::from_hex(&job.key)) else {
            return refused("the session has no key");
        };
        if !matches!(job.meets, Meets::Listens { .. }) {
            return refused("a daemon listens, and connects to nobody");
        }
        if job.has_helpers || job.helps.is_some() {
            return refused("a daemon's folder is its own host's business");
        }
        if job.allowed.is_empty() || job.allowed.iter().any(|cipher| cipher.is_open()) {
            return refused("this daemon encrypts all that it sends and takes");
        }
        if !job.is_source && !job.dry && !self.is_writable {
            return refused(
                "this daemon's folder is to be read only: `goodput serve --writable` lets clients write",
            );
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
        let door = self.door.as_ref();
        let door = door.filter(|door| job.transport != Transport::Tcp && !door.is_over());
        let carriage = match door {
            Some(_) => Carriage::at_door(job.transport),
            None => Carriage::nowhere(job.transport),
        };
        let meeting = Meeting::listening(session, key.clone(), job.allowed.clone());
        let meeting = Arc::new(meeting.with_carriage(carriage));
        let Some(_registered) = Registered::new(self, session, &meeting) else {
            return refused("a session of this number runs already");
        };
        let _expected = door.map(|door| door.expect(session, &key));
        let ready = Ready {
            is_one_file: ends.is_one_file(),
            unasked: job.takes_unasked(&ends),
            quic: door.is_some(),
            ..Ready::of_this_host(self.speeds.clone())
        };
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
            let watches = thread::Builder::new().spawn_scoped(scope, move || {
                // Nothing is said any more but that it is over.
                if let Socket::Tcp(socket) = watched {
                    let _ = socket.peek(&mut [0]);
                }
                gone.store(true, Ordering::Relaxed);
            });
            watches.map_err(|error| (format!("no thread for it: {error}"), true))?;
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
                let _ = socket.shutdown(Shutdown::Read);
            }
            result
        })
    }

    /// What the job is about, below the served folder.
    fn ends(&self, job: &Job) -> Result<Ends, String> {
        if job.list.is_some() {
            return Err("this daemon takes no lists of names".to_owned());
        }
        if job.is_source {
            let source = Source::open_in(&self.served, &job.paths);
            return Ok(Ends::Source(source.map_err(|error| error.to_string())?));
        }
        let [path] = &job.paths[..] else {
            return Err("a destination is one path".to_owned());
        };
        let opened =
            Destination::resolve_in(&self.served, path, job.is_one_file, job.makes_nothing());
        let (destination, name) =
            opened.map_err(|error| format!("{}: {error}", path.escape_ascii()))?;
        Ok(Ends::Destination(destination, name))
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
}
