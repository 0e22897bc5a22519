//! The far side of a copy, as ssh starts it. What to do comes as one line of JSON on its input,
//! with the key; what is done goes out as lines of JSON. When the input ends, so does the copy.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fault::{Cause, Failure, Verdict};
use sys::threads::{self, Crew};

use crate::destination::Trust;
use crate::engine::Watch;
use crate::meeting::{self, Meeting};
use crate::message::Account;
use crate::quic::{Carriage, Transport};
use crate::{Key, SessionId};

use super::caller::Caller;
use super::job::{
    CONNECT, Ends, Failed, JOB_MOST, Job, Meets, NoJob, Ready, Reply, carriage, connecting,
    destination, last_word, speeds,
};
use super::reach::Reach;
use super::ways::{self, WayTo};

/// How long the host that leads is tried for: not as long as a source waits for a connection's first word.
const LEADER: Duration = Duration::from_secs(8);

/// Does what the first line of `input` says, and answers on `output`; stops when `input` ends. The
/// exit code says how it ended.
///
/// ```
/// use copy::task::{Caller, agent};
///
/// let mut said = Vec::new();
/// let job = br#"{"version":99}"#;
/// let code = agent::run(&job[..], &mut said, &Caller::default())?;
/// assert_eq!(code, fault::USAGE);
/// assert!(String::from_utf8_lossy(&said).contains("versions 3 to 5"));
/// # Ok::<_, fault::Failure>(())
/// ```
///
/// # Errors
/// Where the input cannot be read or is no job.
pub fn run(input: impl Read + Send + 'static, output: &mut dyn Write, caller: &Caller) -> Verdict {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    (&mut input)
        .take(JOB_MOST)
        .read_until(b'\n', &mut line)
        .map_err(Failure::here)?;
    let job = match Job::read(&line) {
        Ok(job) => job,
        Err(NoJob::None) => {
            return Err(Failure::usage(
                "`goodput agent` is what `goodput copy` starts on a far host; its standard input is no \
                 job of this version",
            ));
        }
        Err(other) => {
            let why = other.words();
            say(output, &Reply::Failed { why, is_here: true });
            return Ok(fault::USAGE);
        }
    };
    drop(line);
    sys::host::raise_descriptor_limit();
    let watch = Watch::default();
    let result = work(&job, &watch, input, output, caller);
    let code = match result {
        Ok(_) => fault::DONE,
        Err(_) => fault::FAR_OR_NETWORK,
    };
    say(output, &last_word(result, &watch));
    Ok(code)
}

fn work(
    job: &Job,
    watch: &Watch,
    mut input: impl Read + Send + 'static,
    output: &mut dyn Write,
    caller: &Caller,
) -> Result<Account, Failed> {
    let session = SessionId::from_hex(&job.session);
    let (Some(session), Some(key)) = (session, Key::from_hex(&job.key)) else {
        return Err(("the session has no key".to_owned(), false));
    };
    let filter = job.filter().map_err(here)?;
    let mut ready = Ready::of_this_host(speeds());
    let (listeners, meeting) = meeting(job, session, key, output).map_err(here)?;
    ready.quic = job.transport != Transport::Tcp && meeting.may_carry();
    let at = |listener: &TcpListener| listener.local_addr().ok();
    ready.at = listeners.first().and_then(at);
    if listeners.len() > 1 {
        let all = listeners.iter().filter_map(at);
        let name = |at: SocketAddr| sys::host::interface_with(at.ip()).map(|found| found.name);
        ready.all = all.map(|at| (at, name(at).unwrap_or_default())).collect();
    }
    // What is wrong with the paths is told before anybody connects.
    let ends = ends_of(job, session)?;
    ready.is_one_file = ends.is_one_file();
    ready.unasked = job.takes_unasked(&ends);
    let ends = ends.prepare(job, &filter, watch)?;
    say(output, &Reply::Ready(ready));
    if job.asks {
        return Ok(Account::default());
    }
    // Whoever started this is gone when standard input ends. Nobody waits for this thread: it may read for ever.
    let ended = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&ended);
    let stdin = threads::spawn("stdin", move || {
        let mut bytes = [0; 4096];
        while matches!(input.read(&mut bytes), Ok(1..)) {}
        end.store(true, Ordering::Relaxed);
    });
    stdin.map_err(|error| here(error.into()))?;
    let crew = Crew::new(|_: &io::Error| meeting.close());
    let done = thread::scope(|scope| {
        for listener in &listeners {
            crew.start(scope, "gp-listen", || meeting::listen(listener, &meeting));
        }
        let is_ended = || ended.load(Ordering::Relaxed) || caller.interrupted().is_some();
        // Who only watches has no connection to look at.
        if let Some(reach) = Reach::of(&job.meets).filter(|_| job.helps.is_none()) {
            let (meeting, watch) = (&meeting, watch);
            crew.start(scope, "gp-reach", move || reach.look(meeting, watch));
        }
        job.perform(
            ends,
            &filter,
            &meeting,
            watch,
            &mut |reply| say(output, reply),
            &is_ended,
        )
    });
    crew.over().map_err(|error| here(error.into()))?;
    done
}

fn here(error: Cause) -> Failed {
    (error.to_string(), true)
}

/// What the job is about.
fn ends_of(job: &Job, session: SessionId) -> Result<Ends, Failed> {
    let leader = |leader: &[SocketAddr]| {
        let key =
            Key::from_hex(&job.key).ok_or_else(|| ("the session has no key".to_owned(), false))?;
        let ways = ways::ways(WayTo::only(leader.to_vec()));
        let leader = Meeting::connecting_over(ways, session, key, job.cipher);
        Ok::<_, Failed>(leader.with_patience(LEADER))
    };
    Ok(match (job.is_source, &job.helps) {
        (true, Some(at)) => Ends::Reader(job.source().map_err(here)?, Box::new(leader(at)?)),
        (true, None) => Ends::Source(job.source().map_err(here)?),
        (false, Some(at)) => {
            let paths = job.paths();
            let [path] = &paths[..] else {
                return Err(("a destination is one path".to_owned(), false));
            };
            // Nothing is made here: the leader does.
            let (destination, _) = destination(path, job.is_one_file, true).map_err(here)?;
            Ends::Writer(Box::new(destination), Box::new(leader(at)?))
        }
        (false, None) => {
            let paths = job.paths();
            let [path] = &paths[..] else {
                return Err(("a destination is one path".to_owned(), false));
            };
            let (destination, name) =
                destination(path, job.is_one_file, job.makes_nothing()).map_err(here)?;
            let trust = match job.set_id {
                true => Trust::Whole,
                false => Trust::NoSetId,
            };
            Ends::Destination(Box::new(destination.with_trust(trust)), name, None)
        }
    })
}

/// Where ssh came from and where it arrived (`SSH_CONNECTION`, ssh(1)).
fn ssh_ends() -> Option<(IpAddr, IpAddr)> {
    let text = std::env::var("SSH_CONNECTION").ok()?;
    let mut words = text.split_whitespace();
    let from = words.next()?.parse().ok()?;
    let to = words.nth(1)?.parse().ok()?;
    Some((from, to))
}

fn meeting(
    job: &Job,
    session: SessionId,
    key: Key,
    output: &mut dyn Write,
) -> Result<(Vec<TcpListener>, Meeting), Cause> {
    // Where ssh arrived.
    let here = || ssh_ends().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |(_, to)| to);
    let bind = |at: SocketAddr| {
        let listener =
            TcpListener::bind(at).map_err(|error| format!("cannot listen at {at}: {error}"))?;
        Ok::<_, Cause>(vec![listener])
    };
    let listeners = match &job.meets {
        Meets::Connects { to } => Err(WayTo::only(to.clone())),
        Meets::ConnectsOver { ways } => Err(ways.clone()),
        Meets::ConnectsBack { port } => {
            let from = ssh_ends().map(|(from, _)| from);
            let from = from.ok_or("who connected is not known here")?;
            Err(WayTo::only(vec![SocketAddr::from((from, *port))]))
        }
        Meets::Listens { port } => Ok(bind(SocketAddr::from((here(), *port)))?),
        Meets::ListensInside => Ok(bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?),
        Meets::ListensAt { addresses, port } => {
            let own = || ways::own(here()).into_iter().map(|(address, _)| address);
            let at = match addresses.is_empty() {
                true => own().collect(),
                false => addresses.clone(),
            };
            Ok(ways::listen_at(&at, *port, &mut |text| {
                say(output, &Reply::Note(text));
            })?)
        }
    };
    Ok(match listeners {
        Ok(listeners) => {
            let ways = listeners.len();
            let carriage = match &job.meets {
                Meets::ListensInside => Carriage::default(),
                _ => carriage(job.transport, &listeners),
            };
            let meeting = Meeting::listening(session, key, job.allowed.clone());
            (
                listeners,
                meeting.with_far_ways(ways).with_carriage(carriage),
            )
        }
        Err(to) => {
            let carriage = connecting(job.transport, to.len());
            let meeting = Meeting::connecting_over(ways::ways(to), session, key, job.cipher);
            (Vec::new(), meeting.with_carriage(carriage))
        }
    })
}

fn say(output: &mut dyn Write, reply: &Reply) {
    if let Ok(mut line) = serde_json::to_string(reply) {
        line.push('\n');
        let _ = output
            .write_all(line.as_bytes())
            .and_then(|()| output.flush());
    }
}

/// Carries bytes between ssh, which is at `input` and `output`, and a port of this host.
///
/// # Errors
/// Where nothing listens at the port.
pub fn relay(
    port: u16,
    mut input: impl Read + Send + 'static,
    output: &mut dyn Write,
) -> Result<(), Failure> {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let socket = ways::connect(None, at, CONNECT)
        .map_err(|error| Failure::here(format!("port {port} of this host: {error}")))?;
    let mut from = socket.try_clone().map_err(Failure::here)?;
    let mut to = socket;
    // Either end takes the other with it; a thread that waits for input is not waited for.
    threads::spawn("relay", move || {
        let _ = io::copy(&mut input, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    })
    .map_err(Failure::here)?;
    let mut bytes = vec![0; 256 << 10];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        let written = output.write_all(&bytes[..n]);
        if written.and_then(|()| output.flush()).is_err() {
            break;
        }
    }
    Ok(())
}
