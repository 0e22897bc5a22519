//! Far sides that a shell starts: ssh, or what the user has in its place.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ::copy::destination::Trust;
use ::copy::engine::early::Early;
use ::copy::engine::receive::receive;
use ::copy::engine::send::{SendOptions, send_early};
use ::copy::engine::{Connection, CopyError, Note, Watch};
use ::copy::link::Socket;
use ::copy::meeting::{self, Dial, Meeting};
use ::copy::message::Account;
use ::copy::quic::{Carriage, Counts};
use ::copy::source::Source;
use ::copy::{Cipher, Way};
use sys::child::ChildHandle;

use super::inside::{self, Inside};
use super::job::{self, Job, Meets, Ready, Reply};
use super::limits::Limits;
use super::operand::Operand;
use super::reach::{Reach, UNREACHED, WORDLESS};
use super::ways::{self, Typed, WayTo};
use super::why::HostFacts;
use super::{CopyArgs, Done, Plan, failure, live, served, told};
use crate::context::{self, Context};
use crate::failure::Failure;

/// How long a shell may take to start the far side: somebody may have to type a password.
const START: Duration = Duration::from_secs(180);
/// How long a host may take to start that helps another: the one that leads waits meanwhile for its first connection, and
/// gives up after 60 s.
const START_BESIDE: Duration = Duration::from_secs(30);
/// How long a shell may take to end when its input has.
const END: Duration = Duration::from_secs(2);
/// How long connections are tried for again when the far side has ended.
const GONE: Duration = Duration::from_millis(500);
/// How long a far side that has nothing more to tell may take to end before its shell is ended.
const PARTING: Duration = Duration::from_millis(30);
/// What the far side said and nobody has read yet, at most.
const REPLIES_MOST: usize = 256;
/// The longest line that the far side says, in bytes.
const LINE_MOST: usize = 1 << 20;

/// What a far side that is done says beside its account.
struct Ended {
    sent_bytes: u64,
    unread: u64,
    spent: told::Spent,
}

/// A far side that was started.
struct Far {
    host: String,
    held: Held,
    replies: Receiver<Reply>,
    ready: Ready,
    /// What goodput is called there.
    program: String,
    /// Its output has ended, and so has it.
    is_gone: Arc<AtomicBool>,
    /// What it told of its time so far.
    spent: Arc<Heard>,
    /// Other hosts that write for it.
    helpers: Vec<Held>,
    /// How the two sides come to each other.
    reach: Arc<Reach>,
    /// What ssh spends that carries connections.
    inside: Option<Arc<Inside>>,
}

/// What a far side told of its time, and whether it will tell no more.
#[derive(Debug, Default)]
struct Heard {
    latest: Mutex<(Option<told::Spent>, bool)>,
    is_last: Condvar,
    /// What its kernel says of the connections on which it sends.
    connections: Mutex<Told>,
    /// What it counts of those over QUIC.
    over_quic: Mutex<Vec<(u16, Counts)>>,
}

impl Heard {
    fn note(&self, told: Option<told::Spent>, is_last: bool) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.0 = told.or(latest.0);
        latest.1 |= is_last;
        self.is_last.notify_all();
    }

    fn know(&self, told: &[job::ConnectionNow], over_quic: &[(u16, Vec<u64>)]) {
        if !over_quic.is_empty() {
            let all = over_quic.iter();
            let all = all.map(|(stream, words)| (*stream, Counts::of_words(words)));
            *self
                .over_quic
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = all.collect();
        }
        if !told.is_empty() {
            let all = told.iter().filter_map(job::connection_of).collect();
            *self
                .connections
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = all;
        }
    }

    /// Has a session's watcher know what was told last.
    fn tell(&self, watch: &Watch) {
        let mut told = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (stream, connection) in told.drain(..) {
            watch.know_connection(stream, connection);
        }
        let mut told = self
            .over_quic
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (stream, counts) in told.drain(..) {
            watch.know_over_quic(stream, counts);
        }
    }

    /// What it told last; its last word is waited for, but not for ever.
    fn last(&self, patience: Duration) -> Option<told::Spent> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .is_last
            .wait_timeout_while(latest, patience, |latest| !latest.1);
        waited.unwrap_or_else(PoisonError::into_inner).0.0
    }
}

/// What a far side ends with.
pub(super) enum Held {
    /// A shell, its standard input, and how long its end is waited for.
    Shell(Child, Option<ChildStdin>, Duration),
    /// A connection to a daemon.
    Line(Socket),
}

impl Held {
    /// Has the far side end.
    fn let_go(&mut self) {
        match self {
            Self::Shell(_, input, _) => drop(input.take()),
            Self::Line(socket) => socket.shut(),
        }
    }
}

impl Far {
    /// Starts what an operand's far side is.
    fn begin(
        plan: &Plan<'_>,
        operand: &Operand,
        job: &Job,
        context: &Context,
    ) -> Result<Self, Failure> {
        match operand {
            Operand::Served { host, port, .. } => {
                let (line, at) = served::enter(plan.args, host, *port, job)?;
                let socket = line.socket().again().map_err(Failure::here)?;
                let mut far = Self::of(plan.args, host, Held::Line(socket), line, START, context)?;
                far.ready.at = Some(at);
                Ok(far)
            }
            other => Self::start(plan.args, host_of(other), job, None, context),
        }
    }

    /// Starts it by a shell, within `patience`, or as long as is usual.
    fn start(
        args: &CopyArgs,
        host: &str,
        job: &Job,
        patience: Option<Duration>,
        context: &Context,
    ) -> Result<Self, Failure> {
        let since = Instant::now();
        let program = match args.push {
            true => pushed(args, host, patience)?,
            false => args.far_goodput.clone(),
        };
        let mut child = shell(args, host, &format!("{program} agent"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::here(anyhow::anyhow!("{}: {error}", args.rsh)))?;
        let mut input = child.stdin.take();
        let mut line = serde_json::to_vec(job).map_err(Failure::here)?;
        line.push(b'\n');
        if line.len() as u64 > job::JOB_MOST {
            return Err(Failure::usage(anyhow::anyhow!(
                "what is to be told to {host} is longer than 16 MiB: take a shorter --files-from, or run goodput copy there"
            )));
        }
        if let Some(input) = &mut input {
            // A shell that is gone says why itself.
            let _ = input.write_all(&line).and_then(|()| input.flush());
        }
        let output = child.stdout.take();
        let held = Held::Shell(child, input, END);
        let output =
            output.ok_or_else(|| Failure::here(anyhow::anyhow!("a shell without output")))?;
        let left = patience.map_or(START, |patience| patience.saturating_sub(since.elapsed()));
        let mut far = Self::of(args, host, held, output, left, context)?;
        far.program = program;
        Ok(far)
    }

    /// A far side that answers by `output`, once it is ready.
    fn of(
        args: &CopyArgs,
        host: &str,
        held: Held,
        output: impl io::Read + Send + 'static,
        patience: Duration,
        context: &Context,
    ) -> Result<Self, Failure> {
        // What nobody reads in time is of no use later, but for how it ended.
        let (tell, replies) = mpsc::sync_channel(REPLIES_MOST);
        let is_gone = Arc::new(AtomicBool::new(false));
        let gone = Arc::clone(&is_gone);
        let spent = Arc::<Heard>::default();
        let tells = Arc::clone(&spent);
        let _ = thread::Builder::new()
            .name("far side".into())
            .spawn(move || {
                read_replies(output, &tell, &tells);
                tells.note(None, true);
                gone.store(true, Ordering::Relaxed);
            });
        let mut far = Self {
            host: host.to_owned(),
            held,
            replies,
            ready: Ready::default(),
            program: String::new(),
            is_gone,
            spent,
            helpers: Vec::new(),
            reach: Arc::default(),
            inside: None,
        };
        far.ready = far.wait_ready(args, patience, context)?;
        Ok(far)
    }

    fn wait_ready(
        &mut self,
        args: &CopyArgs,
        patience: Duration,
        context: &Context,
    ) -> Result<Ready, Failure> {
        let until = Instant::now() + patience;
        loop {
            if let Some(code) = context.interrupted() {
                return Err(Failure::interrupted(code));
            }
            match self.replies.recv_timeout(Duration::from_millis(100)) {
                Ok(Reply::Ready(ready)) => return Ok(ready),
                Ok(Reply::Failed { why, is_here }) => {
                    let error = anyhow::anyhow!("{}: {}", self.host, told::plain(&why));
                    return Err(match is_here {
                        true => Failure::far(error),
                        false => Failure::usage(error),
                    });
                }
                Ok(Reply::Note(text)) => {
                    context::note(format_args!("{}: {}", self.host, told::plain(&text)));
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Failure::far(anyhow::anyhow!(
                        "{} did not start goodput on {} in {:.0} s",
                        args.rsh,
                        self.host,
                        patience.as_secs_f64()
                    )));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let code = self.exit_code();
                    let words = match code {
                        Some(127) => format!(
                            "there is no '{}' on {}; install goodput there, say where it is with \
                             --far-goodput, or bring this program along with --push",
                            args.far_goodput, self.host
                        ),
                        Some(255) => format!("{} did not get to {}", args.rsh, self.host),
                        _ => format!("{}: the far side ended before it began", self.host),
                    };
                    let error = anyhow::anyhow!("{words}");
                    return Err(Failure::far(error));
                }
            }
        }
    }

    /// How the shell ended, if it does within a moment.
    fn exit_code(&mut self) -> Option<i32> {
        self.held.let_go();
        let Held::Shell(child, ..) = &mut self.held else {
            return None;
        };
        for _ in 0..100 {
            if let Ok(Some(status)) = child.try_wait() {
                return status.code();
            }
            thread::sleep(Duration::from_millis(20));
        }
        None
    }

    /// The far side said by the session that all is done: what a shell says at its end takes round trips, and nothing new.
    fn leave(mut self) -> Option<told::Spent> {
        self.helpers.iter_mut().for_each(Held::let_go);
        if let Held::Shell(_, _, grace) = &mut self.held {
            *grace = PARTING;
        }
        // Its last word left there with the session's, not a round trip later.
        self.spent.last(END)
    }

    /// What it ends with; what it has to tell is told.
    fn into_helper(self) -> Held {
        let Self {
            host,
            held,
            replies,
            ..
        } = self;
        let tell = move || {
            while let Ok(reply) = replies.recv() {
                match reply {
                    Reply::Note(text) => {
                        context::note(format_args!("{host}: {}", told::plain(&text)))
                    }
                    Reply::Failed { why, is_here: true } => {
                        context::note(format_args!("{host}: {}", told::plain(&why)));
                    }
                    _ => {}
                }
            }
        };
        let _ = thread::Builder::new().name("helper".into()).spawn(tell);
        held
    }

    /// Says what it costs that ssh carries connections.
    fn say_inside(&self, watch: &Watch, streams: Option<u16>) {
        if self.inside.is_some() {
            let streams = streams.unwrap_or(1);
            watch.note(Note::Chosen(inside::costs(streams)));
        }
    }

    /// Waits until the far side says how it ended.
    fn end(self, context: &Context, is_quiet: bool) -> Result<Ended, CopyError> {
        let until = Instant::now() + Duration::from_secs(20);
        let ended = loop {
            match self.replies.recv_timeout(Duration::from_millis(100)) {
                Ok(Reply::Done {
                    sent_bytes,
                    unread,
                    spent_ns,
                    cpu_ns,
                    quic_cpu_ns,
                    direct_bytes,
                    ..
                }) => {
                    break Ok(Ended {
                        sent_bytes,
                        unread,
                        spent: spent_of(spent_ns, cpu_ns, quic_cpu_ns, direct_bytes),
                    });
                }
                Ok(Reply::Failed { why, is_here: true }) => {
                    break Err(CopyError::Here(format!(
                        "{}: {}",
                        self.host,
                        told::plain(&why)
                    )));
                }
                Ok(Reply::Failed { why, .. }) => break Err(CopyError::Far(told::plain(&why))),
                Ok(Reply::Note(text)) if !is_quiet => context::note(told::plain(&text)),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => {
                    if context.interrupted().is_some() {
                        break Err(CopyError::Stopped);
                    }
                }
                Err(_) => break Err(CopyError::Far(WORDLESS.to_owned())),
            }
        };
        if ended.is_ok() {
            self.leave();
        }
        ended
    }
}

const fn spent_of(
    times_ns: [u64; 4],
    cpu_ns: u64,
    quic_cpu_ns: u64,
    direct_bytes: u64,
) -> told::Spent {
    told::Spent {
        times_ns,
        cpu_ns: Some(cpu_ns),
        quic_cpu_ns,
        direct_bytes,
    }
}

/// Connections as a far side tells of them.
type Told = Vec<(u16, Connection)>;

fn read_replies(output: impl io::Read, tell: &SyncSender<Reply>, spent: &Heard) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = io::Read::take(&mut output, LINE_MOST as u64);
        match limited.read_until(b'\n', &mut line) {
            Ok(1..) => {}
            _ => break,
        }
        // Greetings of shells are passed over.
        let Ok(reply) = serde_json::from_slice(&line) else {
            continue;
        };
        match &reply {
            Reply::Progress {
                spent_ns,
                cpu_ns,
                connections,
                over_quic,
                quic_cpu_ns,
                ..
            } => {
                let told = spent_of(*spent_ns, *cpu_ns, *quic_cpu_ns, 0);
                spent.note(Some(told), false);
                spent.know(connections, over_quic);
            }
            Reply::Done {
                spent_ns,
                cpu_ns,
                quic_cpu_ns,
                direct_bytes,
                ..
            } => {
                let told = spent_of(*spent_ns, *cpu_ns, *quic_cpu_ns, *direct_bytes);
                spent.note(Some(told), true);
            }
            Reply::Failed { .. } => spent.note(None, true),
            Reply::Ready(_) | Reply::Note(_) => {}
        }
        let sent = match reply {
            Reply::Progress { .. } | Reply::Note(_) => {
                !matches!(tell.try_send(reply), Err(TrySendError::Disconnected(_)))
            }
            reply => tell.send(reply).is_ok(),
        };
        if !sent {
            break;
        }
    }
}

/// Has a session wait no longer than a moment for connections of a far side that has ended.
fn hurry_when_gone(is_gone: &AtomicBool, meeting: &Meeting) {
    while !meeting.is_over() {
        if is_gone.load(Ordering::Relaxed) {
            meeting.hurry(GONE);
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.let_go();
        let Self::Shell(child, _, grace) = self else {
            return;
        };
        // It ends by itself when its input does; a shell that does not, or whose connection is dead, is not waited for
        // for ever.
        let has_ended = ChildHandle::of(child).and_then(|child| child.wait(*grace));
        if !has_ended.unwrap_or(false) {
            let _ = child.kill();
        }
        let _ = child.wait();
    }
}

/// A command on the far host.
fn shell(args: &CopyArgs, host: &str, what: &str) -> Command {
    let mut words = args.rsh.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("ssh"));
    command.args(words);
    command.arg(host).arg(what);
    command
}

/// Brings this program to the far host, under a name of its own, within `patience` where it has an end; where it is there.
fn pushed(args: &CopyArgs, host: &str, patience: Option<Duration>) -> Result<String, Failure> {
    let me = std::fs::File::open("/proc/self/exe").map_err(Failure::here)?;
    context::note(format_args!("bringing goodput to {host}"));
    // Named by its contents: the next time it is there.
    let name = format!("goodput-{}-{}", env!("CARGO_PKG_VERSION"), own_sum()?);
    let place = format!("${{TMPDIR:-/tmp}}/{name}-$(id -u)");
    let bytes = me.metadata().map_err(Failure::here)?.len();
    // The folder is this user's own and no link, or nothing is done; the file is whole before it has its name.
    let script = format!(
        "umask 077; p=\"{place}\"; mkdir \"$p\" 2>/dev/null; \
         if [ -L \"$p\" ] || [ ! -d \"$p\" ] || [ ! -O \"$p\" ]; then cat > /dev/null; exit 1; fi; \
         g=\"$p/goodput\"; n=\"$p/new.$$\"; \
         if [ -f \"$g\" ] && [ ! -L \"$g\" ] && [ -O \"$g\" ] && [ -x \"$g\" ]; then cat > /dev/null; \
         else cat > \"$n\" && [ \"$(wc -c < \"$n\")\" -eq {bytes} ] && chmod 700 \"$n\" && mv \"$n\" \"$g\" \
         || {{ rm -f \"$n\"; exit 1; }}; fi; echo \"$g\""
    );
    let output = shell(args, host, &script)
        .stdin(me)
        .stdout(Stdio::piped())
        .spawn()
        .and_then(|mut child| {
            // What it prints is one line.
            if let Some(patience) = patience
                && !ChildHandle::of(&child)?.wait(patience)?
            {
                child.kill()?;
            }
            child.wait_with_output()
        })
        .map_err(|error| Failure::here(anyhow::anyhow!("{}: {error}", args.rsh)))?;
    let told = String::from_utf8_lossy(&output.stdout);
    match (output.status.success(), told.lines().last()) {
        (true, Some(path)) if path.starts_with('/') && !path.contains(['\'', '"', ' ']) => {
            Ok(path.to_owned())
        }
        _ => Err(Failure::far(anyhow::anyhow!(
            "goodput could not be brought to {host}"
        ))),
    }
}

fn own_sum() -> Result<String, Failure> {
    let bytes = std::fs::read("/proc/self/exe").map_err(Failure::here)?;
    let sum = ::copy::digest::sum_of(&bytes);
    Ok(sum[..8].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Connections through ssh: one each, carried to the far side's own port.
fn dial_inside(
    args: &CopyArgs,
    host: &str,
    program: &str,
    port: u16,
    inside: &Arc<Inside>,
) -> Dial {
    let inside = Arc::clone(inside);
    let (args, host, program) = (args.clone(), host.to_owned(), program.to_owned());
    Box::new(move || {
        let (near, far) = UnixStream::pair()?;
        let (input, output) = (OwnedFd::from(far.try_clone()?), OwnedFd::from(far));
        let what = format!("{program} agent --relay {port}");
        let mut child = shell(&args, &host, &what)
            .stdin(input)
            .stdout(output)
            .spawn()?;
        inside.begins(child.id());
        let _ = thread::Builder::new()
            .name("ssh".into())
            .spawn(move || child.wait());
        Ok(Socket::Unix(near))
    })
}

/// Addresses at which a far side that listens can be reached.
fn addresses(host: &str, ready: &Ready) -> Result<Vec<SocketAddr>, Failure> {
    let Some(at) = ready.at else {
        return Err(Failure::far(anyhow::anyhow!(
            "{host}: the far side does not say where it listens"
        )));
    };
    // What the user typed, where it is a name and no alias of ssh's; the far host's own address may be one that is good
    // in its own network only.
    let name = host.rsplit('@').next().unwrap_or(host);
    let found = (name, at.port()).to_socket_addrs();
    let mut all: Vec<_> = found.map(Iterator::collect).unwrap_or_default();
    if !all.contains(&at) {
        all.push(at);
    }
    Ok(all)
}

/// Starts the hosts that see the files of one that leads, and says by which ways all of them are reached. One that
/// cannot be started is told, and the others do its work.
fn start_helpers(
    plan: &Plan<'_>,
    operand: &Operand,
    leader: &mut Far,
    job: &Job,
    context: &Context,
) -> Result<Vec<WayTo>, Failure> {
    let at = addresses(&leader.host, &leader.ready)?;
    let mut ways = vec![WayTo {
        name: leader.host.clone(),
        from: None,
        to: at.clone(),
        is_for_blocks_only: false,
        has_no_datagrams: !leader.ready.quic,
    }];
    let job = job.clone().helping(at);
    let started = thread::scope(|scope| {
        let (args, job) = (plan.args, &job);
        let mut started = Vec::new();
        for host in operand.beside() {
            started.push((
                host,
                scope.spawn(move || Far::start(args, host, job, Some(START_BESIDE), context)),
            ));
        }
        let panicked = |_| Err(Failure::here(anyhow::anyhow!("a thread panicked")));
        let joined = started
            .into_iter()
            .map(|(host, started)| (host, started.join().unwrap_or_else(panicked)));
        joined.collect::<Vec<_>>()
    });
    for (host, started) in started {
        if let Some(code) = context.interrupted() {
            return Err(Failure::interrupted(code));
        }
        let reached = started.and_then(|far| Ok((addresses(host, &far.ready)?, far)));
        match reached {
            Ok((to, far)) => {
                ways.push(WayTo {
                    name: host.clone(),
                    from: None,
                    to,
                    is_for_blocks_only: true,
                    has_no_datagrams: !far.ready.quic,
                });
                leader.helpers.push(far.into_helper());
            }
            Err(failure) => context::note(format_args!(
                "{host} does not help: {failure}; the others carry its share"
            )),
        }
    }
    Ok(ways)
}

/// Where a far side shall listen.
fn listens(args: &CopyArgs) -> Result<Meets, Failure> {
    let typed = Typed::of(args)?;
    let port = args.port;
    Ok(match typed.is_far_all || !typed.far.is_empty() {
        true => Meets::ListensAt {
            addresses: typed.far.iter().map(SocketAddr::ip).collect(),
            port,
        },
        false => Meets::Listens { port },
    })
}

/// By which addresses a far side that listens is reached.
fn ways_to(plan: &Plan<'_>, operand: &Operand, ready: &Ready) -> Result<Vec<WayTo>, Failure> {
    let typed = Typed::of(plan.args)?;
    let host = host_of(operand);
    let usual = addresses(host, ready)?;
    if !typed.is_any() {
        return Ok(WayTo::only(usual));
    }
    let to: Vec<Vec<SocketAddr>> = match operand {
        // A daemon listens where it listens.
        Operand::Served { port, .. } if !typed.far.is_empty() => {
            let at = |address: &SocketAddr| {
                let mut at = *address;
                at.set_port(*port);
                vec![at]
            };
            typed.far.iter().map(at).collect()
        }
        _ if typed.is_far_all => {
            let found = ways::that_answer(host, ready.all.clone());
            found.into_iter().map(|at| vec![at]).collect()
        }
        // Nowhere else than was typed, whatever the far side says.
        _ => {
            let at = |address: &SocketAddr| {
                let mut all = ready.all.iter().map(|(at, _)| *at).chain(ready.at);
                let found = all.find(|at| at.ip() == address.ip())?;
                // Its interface has another number there.
                Some(match address {
                    SocketAddr::V6(typed) => ways::scoped(found, typed.scope_id()),
                    SocketAddr::V4(_) => found,
                })
            };
            typed.far.iter().filter_map(at).map(|at| vec![at]).collect()
        }
    };
    // None was typed, or none answers: what reached it before.
    let to = match to.len() {
        0 => vec![usual],
        _ => to,
    };
    Ok(ways::pairs(&typed.near, &to))
}

/// The cipher that is faster at both ends together.
fn cipher(plan: &Plan<'_>, ready: &Ready) -> Cipher {
    if plan.args.cipher.is_some() || ready.speeds.is_empty() {
        return plan.cipher;
    }
    let near = job::speeds();
    let cost = |cipher: Cipher| {
        let of = |speeds: &[(Cipher, f64)]| {
            let found = speeds.iter().find(|(other, _)| *other == cipher);
            found.map_or(f64::INFINITY, |(_, speed)| 1.0 / speed)
        };
        of(&near).max(of(&ready.speeds))
    };
    let both = [Cipher::Aes128Gcm, Cipher::Chacha20Poly1305];
    let mut best = plan.cipher;
    for cipher in both {
        if cost(cipher) < cost(best) {
            best = cipher;
        }
    }
    best
}

/// How the far side is met, and what this side does for it.
fn meet(
    plan: &Plan<'_>,
    operand: &Operand,
    context: &Context,
    job: impl FnOnce(Meets) -> Result<Job, Failure>,
) -> Result<(Far, Vec<TcpListener>, Meeting), Failure> {
    let args = plan.args;
    let typed = Typed::of(args)?;
    let far = |meets| {
        let job = job(meets)?;
        let mut far = Far::begin(plan, operand, &job, context)?;
        let ways = match job.has_helpers {
            true => Some(start_helpers(plan, operand, &mut far, &job, context)?),
            false => None,
        };
        Ok::<_, Failure>((far, ways))
    };
    if args.reverse && typed.is_any() {
        let note = &mut |text: String| context::note(text);
        if typed.near.is_empty() {
            return Err(Failure::usage(anyhow::anyhow!(
                "with --reverse, say with --from-addresses where the far side connects to"
            )));
        }
        let listeners = ways::listen_at(&typed.near, args.port, note)
            .map_err(|error| Failure::here(anyhow::anyhow!("cannot listen: {error}")))?;
        let at = |listener: &TcpListener| listener.local_addr().map(|at| vec![at]);
        let at = listeners.iter().map(at).collect::<Result<Vec<_>, _>>();
        let from: Vec<_> = typed.far.iter().map(SocketAddr::ip).collect();
        let ways = ways::pairs(&from, &at.map_err(Failure::here)?);
        let count = ways.len();
        let (mut far, _) = far(Meets::ConnectsOver { ways })?;
        let port = listeners
            .first()
            .and_then(|listener| listener.local_addr().ok());
        far.reach = Arc::new(Reach::back(
            host_of(operand),
            port.map_or(args.port, |at| at.port()),
        ));
        let carriage = match far.ready.quic {
            true => job::carriage(args.transport(), &listeners),
            false => Carriage::nowhere(args.transport()),
        };
        let meeting = Meeting::listening(plan.session, plan.key.clone(), plan.allowed())
            .with_far_ways(count)
            .with_carriage(carriage);
        return Ok((far, listeners, meeting));
    }
    if args.reverse {
        let listener = TcpListener::bind(("::", args.port))
            .or_else(|_| TcpListener::bind(("0.0.0.0", args.port)))
            .map_err(|error| Failure::here(anyhow::anyhow!("cannot listen: {error}")))?;
        let port = listener.local_addr().map_err(Failure::here)?.port();
        let (mut far, _) = far(Meets::ConnectsBack { port })?;
        far.reach = Arc::new(Reach::back(host_of(operand), port));
        let carriage = match far.ready.quic {
            true => job::carriage(args.transport(), std::slice::from_ref(&listener)),
            false => Carriage::nowhere(args.transport()),
        };
        let meeting = Meeting::listening(plan.session, plan.key.clone(), plan.allowed())
            .with_carriage(carriage);
        return Ok((far, vec![listener], meeting));
    }
    let meets = match (args.through_ssh, operand) {
        (true, _) => Meets::ListensInside,
        (false, Operand::Served { .. }) => Meets::Listens { port: args.port },
        (false, _) => listens(args)?,
    };
    let (mut far, hosts) = far(meets)?;
    let cipher = cipher(plan, &far.ready);
    let is_daemon = matches!(operand, Operand::Served { .. });
    if let (false, Some(at)) = (args.through_ssh, far.ready.at) {
        far.reach = Arc::new(Reach::to(host_of(operand), at.port(), is_daemon));
    }
    let ways = match (args.through_ssh, far.ready.at) {
        (true, Some(at)) => {
            let host = host_of(operand);
            let inside = far.inside.insert(Arc::default());
            let dial = dial_inside(args, host, &far.program, at.port(), inside);
            vec![Way::new("ssh", dial)]
        }
        _ => ways::ways(match hosts {
            Some(hosts) => hosts,
            None => ways_to(plan, operand, &far.ready)?,
        }),
    };
    let carriage = match far.ready.quic {
        true => job::connecting(args.transport(), ways.len()),
        false => Carriage::nowhere(args.transport()),
    };
    let meeting = Meeting::connecting_over(ways, plan.session, plan.key.clone(), cipher)
        .with_carriage(carriage);
    Ok((far, Vec::new(), meeting))
}

fn host_of(operand: &Operand) -> &str {
    operand.place().unwrap_or_default()
}

/// The job of an end, which leads where other hosts were named beside.
fn led(operand: &Operand, job: Job) -> Job {
    // Where nothing is written, nobody need help.
    match operand.beside().is_empty() || job.dry {
        true => job,
        false => job.leading(),
    }
}

/// From here to there.
pub(super) fn push(plan: &Plan<'_>, context: &Context) -> Result<Done, Failure> {
    let source = plan.source()?;
    let (options, filter) = (plan.args.send_options()?, plan.args.filter()?);
    let early = Early::default();
    let reads = !plan.args.dry_run && !options.null;
    thread::scope(|scope| {
        // A shell takes more than a dozen round trips to start the far side.
        scope.spawn(|| early.walk(&source, &filter, &options.keep, reads));
        let _stops = Stops(&early);
        push_of(plan, (&source, &early), &options, context)
    })
}

/// Ends a walk that nobody takes any more.
struct Stops<'a>(&'a Early);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn push_of(
    plan: &Plan<'_>,
    (source, early): (&Source, &Early),
    options: &SendOptions,
    context: &Context,
) -> Result<Done, Failure> {
    let (far, listeners, meeting) = meet(plan, &plan.to, context, |meets| {
        let mut job = Job::of(plan, false, meets)?;
        job.is_one_file = source.is_one_file();
        Ok(led(&plan.to, job))
    })?;
    let watch = Watch::default();
    far.say_inside(&watch, plan.args.streams);
    let mut limits = Limits::of(plan.args)?;
    limits.tick(&watch);
    // Without ssh's own time, and a password's.
    let begun = Instant::now();
    let (sent, progress) = thread::scope(|scope| {
        for listener in &listeners {
            scope.spawn(|| meeting::listen(listener, &meeting));
        }
        let sent = scope.spawn(|| {
            let sent = send_early(&meeting, source, early, options, &watch);
            meeting.close();
            sent
        });
        let is_gone = &far.is_gone;
        scope.spawn(|| hurry_when_gone(is_gone, &meeting));
        let inside = far.inside.as_deref();
        scope.spawn(|| far.reach.look(&meeting, &watch));
        let progress = live::show(plan.args, &watch, &mut limits, context, &|| {
            inside.inspect(|inside| inside.look());
            sent.is_finished()
        });
        let sent = sent
            .join()
            .unwrap_or_else(|_| Err(CopyError::Here("a thread panicked".into())));
        (sent, progress)
    });
    let far_host = HostFacts::told(&far.ready);
    let ssh_cpu_ns = far.inside.as_ref().map(|inside| inside.cpu_ns());
    let (account, far) = match sent {
        // Problems came by the session; what would be done is told at the end.
        Ok(account) if plan.args.dry_run => {
            let told = far.end(context, plan.args.is_for_programs());
            (account, told.ok().map(|told| told.spent))
        }
        Ok(account) => (account, far.leave()),
        Err(error) => {
            let reach = Arc::clone(&far.reach);
            let told = far.end(context, plan.args.is_for_programs() || !plan.args.dry_run);
            let is_theirs = matches!(error, CopyError::Far(_) | CopyError::Link(_));
            return Err(match told {
                Err(told @ CopyError::Here(_)) if is_theirs => failure(told, context),
                told => match reach.advice(&error, told.as_ref().err()) {
                    Some(words) => Failure::far(anyhow::anyhow!("{words}")),
                    None => failure(error, context),
                },
            });
        }
    };
    Ok(Done {
        account,
        watch,
        far,
        watched_cpu_ns: None,
        hosts: [HostFacts::here(), far_host],
        ssh_cpu_ns,
        progress,
        took: begun.elapsed(),
        is_source: true,
        reconnects: meeting.reconnects(),
        ways: meeting.carried(),
        cipher: meeting.cipher(),
        certificate: None,
        achievable: None,
    })
}

/// From there to here.
pub(super) fn pull(plan: &Plan<'_>, context: &Context) -> Result<Done, Failure> {
    let (far, listeners, meeting) = meet(plan, &plan.from[0], context, |meets| {
        let job = Job::of(plan, true, meets)?;
        Ok(led(&plan.from[0], job))
    })?;
    let (destination, name) = job::destination(
        plan.to.path(),
        far.ready.is_one_file,
        plan.args.makes_nothing(),
    )
    .map_err(Failure::here)?;
    let trust = match plan.args.set_id {
        true => Trust::Whole,
        false => Trust::NoSetId,
    };
    let destination = destination.with_trust(trust);
    let destination = match plan.args.verify {
        true => destination.with_read_back(),
        false => destination,
    };
    let mut options = plan.args.receive_options(plan.identity())?;
    options.name = name;
    options.only = plan.only()?;
    let watch = Watch::default();
    far.say_inside(&watch, plan.args.streams);
    let begun = Instant::now();
    let (received, mut progress) = thread::scope(|scope| {
        for listener in &listeners {
            scope.spawn(|| meeting::listen(listener, &meeting));
        }
        let received = scope.spawn(|| {
            let received = receive(&meeting, &destination, &options, &watch);
            meeting.close();
            received
        });
        let (is_gone, heard) = (&far.is_gone, &far.spent);
        let inside = far.inside.as_deref();
        scope.spawn(|| hurry_when_gone(is_gone, &meeting));
        scope.spawn(|| far.reach.look(&meeting, &watch));
        let progress = live::show(plan.args, &watch, &mut Limits::none(), context, &|| {
            inside.inspect(|inside| inside.look());
            heard.tell(&watch);
            received.is_finished()
        });
        let received = received
            .join()
            .unwrap_or_else(|_| Err(CopyError::Here("a thread panicked".into())));
        (received, progress)
    });
    let (heard, reach) = (Arc::clone(&far.spent), Arc::clone(&far.reach));
    let far_host = HostFacts::told(&far.ready);
    let ssh_cpu_ns = far.inside.as_ref().map(|inside| inside.cpu_ns());
    let told = far.end(context, plan.args.is_for_programs());
    // What it said after its last block.
    heard.tell(&watch);
    progress.know(&watch);
    let account = match (received, &told) {
        (Ok(account), _) => account,
        (Err(CopyError::Far(_) | CopyError::Link(_)), Err(CopyError::Here(text))) => {
            return Err(failure(CopyError::Here(text.clone()), context));
        }
        (Err(error), told) => {
            return Err(match reach.advice(&error, told.as_ref().err()) {
                Some(words) => Failure::far(anyhow::anyhow!("{words}")),
                None => failure(error, context),
            });
        }
    };
    if let Ok(told) = &told {
        watch.sent_bytes.store(told.sent_bytes, Ordering::Relaxed);
        watch.unread.store(told.unread, Ordering::Relaxed);
    }
    Ok(Done {
        account,
        watch,
        far: told.ok().map(|told| told.spent),
        watched_cpu_ns: None,
        hosts: [far_host, HostFacts::here()],
        ssh_cpu_ns,
        progress,
        took: begun.elapsed(),
        is_source: false,
        reconnects: meeting.reconnects(),
        ways: meeting.carried(),
        cipher: meeting.cipher(),
        certificate: None,
        achievable: None,
    })
}

/// From one far host to another; this one watches.
pub(super) fn third_party(plan: &Plan<'_>, context: &Context) -> Result<Done, Failure> {
    let args = plan.args;
    if args.reverse || args.through_ssh {
        return Err(Failure::usage(anyhow::anyhow!(
            "--reverse and --through-ssh are for copies that this host takes part in"
        )));
    }
    let (from, to) = (host_of(&plan.from[0]), host_of(&plan.to));
    let begun = Instant::now();
    // Whether the source is one file decides what the destination's name means; so it is asked first.
    let mut probe = Job::of(plan, true, Meets::ListensInside)?;
    probe.asks = true;
    let is_one_file = Far::start(args, from, &probe, None, context)?
        .ready
        .is_one_file;
    let mut job = Job::of(plan, false, listens(args)?)?;
    job.is_one_file = is_one_file;
    job.only = plan
        .only()?
        .map(|names| names.into_iter().map(Vec::from).collect());
    let job = led(&plan.to, job);
    let mut destination = Far::start(args, to, &job, None, context)?;
    let meets = match (job.has_helpers, Typed::of(args)?.is_any()) {
        (true, _) => Meets::ConnectsOver {
            ways: start_helpers(plan, &plan.to, &mut destination, &job, context)?,
        },
        (false, true) => Meets::ConnectsOver {
            ways: ways_to(plan, &plan.to, &destination.ready)?,
        },
        (false, false) => Meets::Connects {
            to: addresses(to, &destination.ready)?,
        },
    };
    let job = Job::of(plan, true, meets)?;
    let source = Far::start(args, from, &job, None, context)?;
    let mut hosts = [HostFacts::told(&source.ready), HostFacts::default()];
    let watch = Watch::default();
    let (ended, progress) = thread::scope(|scope| {
        let ended = scope.spawn(|| follow(source, from, &watch));
        let progress = live::show(args, &watch, &mut Limits::none(), context, &|| {
            ended.is_finished()
        });
        let ended = ended
            .join()
            .unwrap_or_else(|_| Err(CopyError::Here("a thread panicked".into())));
        (ended, progress)
    });
    if ended.is_err() {
        // It need not wait for a source that is gone.
        destination.held.let_go();
    }
    hosts[1] = HostFacts::told(&destination.ready);
    let told = destination.end(context, args.is_for_programs() || !args.dry_run);
    let account = match (ended, &told) {
        (Ok(account), _) => account,
        (Err(CopyError::Far(_)), Err(CopyError::Here(text))) => {
            return Err(failure(CopyError::Here(text.clone()), context));
        }
        (Err(CopyError::Far(why)), _) if why.contains(UNREACHED) => {
            return Err(Failure::far(anyhow::anyhow!(
                "{why}; {from} connects to {to}, and a firewall may stand between: --port says which port of {to} is open, \
                 and `goodput copy` on {to} itself has --reverse and --through-ssh besides"
            )));
        }
        (Err(error), _) => return Err(failure(error, context)),
    };
    let (account, cpu_ns) = account;
    Ok(Done {
        account,
        watch,
        far: told.ok().map(|told| told.spent),
        watched_cpu_ns: Some(cpu_ns).filter(|ns| *ns > 0),
        hosts,
        ssh_cpu_ns: None,
        progress,
        took: begun.elapsed(),
        is_source: true,
        reconnects: 0,
        ways: Vec::new(),
        cipher: plan.cipher,
        certificate: None,
        achievable: None,
    })
}

/// Keeps what a far source says of itself, until it ends; with its CPU time.
fn follow(source: Far, from: &str, watch: &Watch) -> Result<(Account, u64), CopyError> {
    loop {
        if watch.is_stopped() {
            break Err(CopyError::Stopped);
        }
        match source.replies.recv_timeout(Duration::from_millis(200)) {
            Ok(Reply::Progress {
                confirmed_bytes,
                wanted_bytes,
                names,
                placed,
                streams,
                connections,
                over_quic,
                ..
            }) => {
                for (stream, words) in &over_quic {
                    watch.know_over_quic(*stream, Counts::of_words(words));
                }
                for (stream, connection) in connections.iter().filter_map(job::connection_of) {
                    watch.know_connection(stream, connection);
                }
                watch
                    .confirmed_bytes
                    .store(confirmed_bytes, Ordering::Relaxed);
                watch.wanted_bytes.store(wanted_bytes, Ordering::Relaxed);
                watch.names.store(names, Ordering::Relaxed);
                watch.placed.store(placed, Ordering::Relaxed);
                watch.streams.store(streams, Ordering::Relaxed);
            }
            Ok(Reply::Note(text)) => {
                watch.note(Note::Skipped(format!("{from}: {}", told::plain(&text))));
            }
            Ok(Reply::Done {
                numbers,
                sent_bytes,
                unread,
                spent_ns,
                cpu_ns,
                over_quic,
                quic_cpu_ns,
                direct_bytes,
                ..
            }) => {
                watch.direct_bytes.store(direct_bytes, Ordering::Relaxed);
                watch.is_quic.store(over_quic, Ordering::Relaxed);
                watch.quic_cpu_ns.store(quic_cpu_ns, Ordering::Relaxed);
                watch.unread.store(unread, Ordering::Relaxed);
                watch.sent_bytes.store(sent_bytes, Ordering::Relaxed);
                let counters = [
                    &watch.disk_ns,
                    &watch.sum_ns,
                    &watch.link_ns,
                    &watch.idle_ns,
                ];
                for (counter, ns) in counters.into_iter().zip(spent_ns) {
                    counter.store(ns, Ordering::Relaxed);
                }
                break Ok((Account::of(numbers), cpu_ns));
            }
            Ok(Reply::Failed { why, .. }) => {
                break Err(CopyError::Far(format!("{from}: {}", told::plain(&why))));
            }
            Ok(Reply::Ready(_)) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                break Err(CopyError::Far(format!("{from}: {WORDLESS}")));
            }
        }
    }
}
