//! A far side that was started, by a shell or at a daemon: what it says, and how it ends.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::engine::{Connection, CopyError, Note, Watch};
use crate::link::Socket;
use crate::meeting::{Dial, Meeting};
use crate::quic::Counts;
use sys::child::ChildHandle;
use units::text::plain;

use super::host_of;
use super::printed::{self, Printed};
use crate::task::inside::{self, Inside};
use crate::task::job::{self, Job, Ready, Reply};
use crate::task::operand::Operand;
use crate::task::reach::{Reach, WORDLESS};
use crate::task::{Caller, Plan, Request, served, told};
use fault::Failure;
use sys::threads;

/// How long a shell may take to start the far side: somebody may have to type a password.
const START: Duration = Duration::from_secs(180);
/// How long goodput may take to answer once the far shell has printed something.
const ANSWERS: Duration = Duration::from_secs(5);
/// How long a host may take to start that helps another: the one that leads waits meanwhile for its first connection, and
/// gives up after 60 s.
pub(super) const START_BESIDE: Duration = Duration::from_secs(30);
/// How long a shell is looked at for a connection, and how often: it speaks first a round trip after it has one.
const CONNECTS: Duration = Duration::from_secs(10);
const LOOKS: Duration = Duration::from_millis(5);
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
pub(super) struct Ended {
    pub(super) sent_bytes: u64,
    pub(super) unread: u64,
    /// Of a source: sockets, named pipes and devices that it skipped.
    pub(super) specials: [u64; 3],
    pub(super) spent: told::Spent,
}

/// A far side that was started.
pub(super) struct Far {
    pub(super) host: String,
    pub(super) held: Held,
    pub(super) replies: Receiver<Reply>,
    pub(super) ready: Ready,
    /// The command that runs goodput there.
    pub(super) program: String,
    /// Its output has ended, and so has it.
    pub(super) is_gone: Arc<AtomicBool>,
    /// What it told of its time so far.
    pub(super) spent: Arc<Heard>,
    /// Other hosts that write for it.
    pub(super) helpers: Vec<Held>,
    /// How the two sides come to each other.
    pub(super) reach: Arc<Reach>,
    /// What ssh spends that carries connections.
    pub(super) inside: Option<Arc<Inside>>,
}

/// What a far side told of its time, and whether it will tell no more.
#[derive(Debug, Default)]
pub(super) struct Heard {
    latest: Mutex<(Option<told::Spent>, bool)>,
    is_last: Condvar,
    /// What its kernel says of the connections on which it sends.
    connections: Mutex<Told>,
    /// What it counts of those over QUIC.
    over_quic: Mutex<Vec<(u16, Counts)>>,
    /// What came before its first word.
    printed: Mutex<Printed>,
}

impl Heard {
    fn note(&self, told: Option<told::Spent>, is_last: bool) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.0 = told.or(latest.0);
        latest.1 |= is_last;
        self.is_last.notify_all();
    }

    fn printed(&self) -> MutexGuard<'_, Printed> {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub(super) fn tell(&self, watch: &Watch) {
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
    pub(super) fn let_go(&mut self) {
        match self {
            Self::Shell(_, input, _) => drop(input.take()),
            Self::Line(socket) => socket.shut(),
        }
    }
}

impl Far {
    /// Starts what an operand's far side is.
    pub(super) fn begin(
        plan: &Plan,
        operand: &Operand,
        job: &Job,
        caller: &Caller,
    ) -> Result<Self, Failure> {
        match operand {
            Operand::Served { host, port, .. } => {
                let (line, at) = served::enter(&plan.request, host, *port, job)?;
                let socket = line.socket().again().map_err(Failure::here)?;
                let mut far =
                    Self::of(&plan.request, host, Held::Line(socket), line, START, caller)?;
                far.ready.at = Some(at);
                Ok(far)
            }
            other => Self::start(&plan.request, host_of(other), job, None, caller),
        }
    }

    /// Starts it by a shell, within `patience`, or as long as is usual.
    pub(super) fn start(
        request: &Request,
        host: &str,
        job: &Job,
        patience: Option<Duration>,
        caller: &Caller,
    ) -> Result<Self, Failure> {
        let since = Instant::now();
        let program = match request.push {
            true => pushed(request, host, patience, caller)?,
            false => request.far_goodput.clone(),
        };
        let mut command = shell(request, host, &format!("{program} agent"));
        let mut child = hastened(
            host,
            command.stdin(Stdio::piped()).stdout(Stdio::piped()),
            caller,
        )
        .map_err(|error| Failure::here(format!("{}: {error}", request.rsh)))?;
        let mut input = child.stdin.take();
        let mut line = serde_json::to_vec(job).map_err(Failure::here)?;
        line.push(b'\n');
        if line.len() as u64 > job::JOB_MOST {
            return Err(Failure::usage(format!(
                "what is to be told to {host} is longer than 16 MiB: take a shorter --files-from, or run goodput copy there"
            )));
        }
        if let Some(input) = &mut input {
            // A shell that is gone says why itself.
            let _ = input.write_all(&line).and_then(|()| input.flush());
        }
        let output = child.stdout.take();
        let held = Held::Shell(child, input, END);
        let output = output.ok_or_else(|| Failure::here("a shell without output"))?;
        let left = patience.map_or(START, |patience| patience.saturating_sub(since.elapsed()));
        let mut far = Self::of(request, host, held, output, left, caller)?;
        far.program = program;
        Ok(far)
    }

    /// A far side that answers by `output`, once it is ready.
    fn of(
        request: &Request,
        host: &str,
        held: Held,
        output: impl io::Read + Send + 'static,
        patience: Duration,
        caller: &Caller,
    ) -> Result<Self, Failure> {
        // What nobody reads in time is of no use later, but for how it ended.
        let (tell, replies) = mpsc::sync_channel(REPLIES_MOST);
        let is_gone = Arc::new(AtomicBool::new(false));
        let gone = Arc::clone(&is_gone);
        let spent = Arc::<Heard>::default();
        let tells = Arc::clone(&spent);
        let output = Overheard {
            output,
            heard: Arc::clone(&spent),
        };
        threads::spawn("far side", move || {
            read_replies(output, &tell, &tells);
            tells.note(None, true);
            gone.store(true, Ordering::Relaxed);
        })
        .map_err(Failure::here)?;
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
        far.ready = far.wait_ready(request, patience, caller)?;
        Ok(far)
    }

    fn wait_ready(
        &mut self,
        request: &Request,
        patience: Duration,
        caller: &Caller,
    ) -> Result<Ready, Failure> {
        let until = Instant::now() + patience;
        loop {
            if let Some(code) = caller.interrupted() {
                return Err(Failure::interrupted(code));
            }
            match self.replies.recv_timeout(Duration::from_millis(100)) {
                Ok(Reply::Ready(ready)) => return Ok(ready),
                Ok(Reply::Failed { why, is_here }) => {
                    let error = format!("{}: {}", self.host, plain(&why));
                    return Err(match is_here {
                        true => Failure::far(error),
                        false => Failure::usage(error),
                    });
                }
                Ok(Reply::Note(text)) => {
                    caller.note(format_args!("{}: {}", self.host, plain(&text)));
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => {
                    let silent = self.spent.printed().silent_since(ANSWERS);
                    if let Some(text) = silent {
                        self.hurries();
                        return Err(Failure::far(format!(
                            "{} reached {}, but goodput did not answer there within {} s; its shell printed \"{text}\"",
                            request.rsh,
                            self.host,
                            ANSWERS.as_secs()
                        )));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Failure::far(format!(
                        "{} did not start goodput on {} in {:.0} s",
                        request.rsh,
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
                            request.far_goodput, self.host
                        ),
                        Some(255) => format!("{} did not get to {}", request.rsh, self.host),
                        _ => {
                            let printed = self.spent.printed();
                            format!(
                                "{}: the far side ended before it began{}",
                                self.host,
                                printed.told()
                            )
                        }
                    };
                    let error = words;
                    return Err(Failure::far(error));
                }
            }
        }
    }

    /// Its end is not waited for.
    fn hurries(&mut self) {
        if let Held::Shell(_, _, grace) = &mut self.held {
            *grace = PARTING;
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
    pub(super) fn leave(mut self) -> Option<told::Spent> {
        self.helpers.iter_mut().for_each(Held::let_go);
        if let Held::Shell(_, _, grace) = &mut self.held {
            *grace = PARTING;
        }
        // Its last word left there right behind the session's.
        self.spent.last(END)
    }

    /// What it ends with; what it has to tell is told.
    pub(super) fn into_helper(self, caller: Caller) -> Held {
        let Self {
            host,
            held,
            replies,
            ..
        } = self;
        let tell = move || {
            while let Ok(reply) = replies.recv() {
                match reply {
                    Reply::Note(text) => caller.note(format_args!("{host}: {}", plain(&text))),
                    Reply::Failed { why, is_here: true } => {
                        caller.note(format_args!("{host}: {}", plain(&why)));
                    }
                    _ => {}
                }
            }
        };
        let _ = threads::spawn("helper", tell);
        held
    }

    /// Says what it costs that ssh carries connections.
    pub(super) fn say_inside(&self, watch: &Watch, streams: Option<u16>) {
        if self.inside.is_some() {
            let streams = streams.unwrap_or(1);
            watch.note(Note::Chosen(inside::costs(streams)));
        }
    }

    /// Waits until the far side says how it ended.
    pub(super) fn end(self, caller: &Caller, is_quiet: bool) -> Result<Ended, CopyError> {
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
                    specials,
                    ..
                }) => {
                    break Ok(Ended {
                        sent_bytes,
                        unread,
                        specials,
                        spent: spent_of(spent_ns, cpu_ns, quic_cpu_ns, direct_bytes),
                    });
                }
                Ok(Reply::Failed { why, is_here: true }) => {
                    break Err(CopyError::Here(format!("{}: {}", self.host, plain(&why))));
                }
                Ok(Reply::Failed { why, .. }) => {
                    break Err(CopyError::Far(plain(&why).into_owned()));
                }
                Ok(Reply::Note(text)) if !is_quiet => caller.note(plain(&text)),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => {
                    if caller.interrupted().is_some() {
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

/// How many shells' stderr is being shown.
static SHOWING: AtomicUsize = AtomicUsize::new(0);
/// Longer lines are shown in parts.
const LINE_SHOWN_MAX: u64 = 4_096;
const SHOWN_WITHIN: Duration = Duration::from_millis(300);

/// Connections as a far side tells of them.
type Told = Vec<(u16, Connection)>;

/// An output of which it is noted what comes before the first word.
struct Overheard<R> {
    output: R,
    heard: Arc<Heard>,
}

impl<R: io::Read> io::Read for Overheard<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let length = self.output.read(bytes)?;
        self.heard.printed().take(&bytes[..length], Instant::now());
        Ok(length)
    }
}

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
        let Some(reply) = printed::reply_in(&line) else {
            continue;
        };
        spent.printed().is_over();
        match &reply {
            Reply::Progress {
                spent_ns,
                cpu_ns,
                connections,
                over_quic,
                quic_cpu_ns,
                direct_bytes,
                is_last,
                ..
            } => {
                let told = spent_of(*spent_ns, *cpu_ns, *quic_cpu_ns, *direct_bytes);
                spent.know(connections, over_quic);
                spent.note(Some(told), *is_last);
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
pub(super) fn hurry_when_gone(is_gone: &AtomicBool, meeting: &Meeting) {
    while !meeting.is_over() {
        if is_gone.load(Ordering::Relaxed) {
            meeting.hurry(GONE);
            return;
        }
        meeting.sleep(Duration::from_millis(50));
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
        // Its reason comes before ours.
        if !child.wait().is_ok_and(|status| status.success()) {
            wait_shown();
        }
    }
}

/// A command on the far host.
fn shell(request: &Request, host: &str, what: &str) -> Command {
    let words = rsh_words(&request.rsh).unwrap_or_default();
    let (program, args) = words
        .split_first()
        .map_or(("ssh", &[][..]), |(p, a)| (p, a));
    let mut command = Command::new(program);
    command.args(args);
    command.arg(host).arg(what);
    command
}

/// The words of what starts a shell, with quotes as a shell reads them (POSIX.1, section 2.2).
///
/// # Errors
///
/// A usage failure for a quote that is not closed, and for no word at all.
pub(in crate::task) fn rsh_words(typed: &str) -> Result<Vec<String>, Failure> {
    let words = shlex::split(typed).filter(|words| !words.is_empty());
    words.ok_or_else(|| {
        Failure::usage(format!(
            "--rsh {typed:?}: expected a command and its arguments, quoted as for a shell, such as \
             ssh -o 'LogLevel ERROR'"
        ))
    })
}

/// Starts a shell, and has its connection send without delay from the first byte on. OpenSSH asks for that (`TCP_NODELAY` in
/// tcp(7)) only once its session stands. Until then its request for a service waits behind its word of new keys (RFC 4253
/// section 7.3) for an acknowledgement, which the far host holds back for 40 ms: a round trip and these 40 ms longer.
fn hastened(host: &str, command: &mut Command, caller: &Caller) -> io::Result<Child> {
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    if let Some(words) = child.stderr.take() {
        show_plain(host.to_owned(), words, caller.clone());
    }
    if let Ok(handle) = ChildHandle::of(&child) {
        // A shell that is not hastened is slower, no more.
        let _ = threads::spawn("hastens ssh", move || hasten(&handle));
    }
    Ok(child)
}

/// Shows what a shell or the far host says on stderr, line by line, each with the host's name and plain: it may be any bytes.
fn show_plain(host: String, words: ChildStderr, caller: Caller) {
    SHOWING.fetch_add(1, Ordering::Relaxed);
    let started = threads::spawn("stderr of ssh", move || {
        let mut words = BufReader::new(words);
        let mut line = Vec::new();
        while io::Read::take(&mut words, LINE_SHOWN_MAX)
            .read_until(b'\n', &mut line)
            .is_ok_and(|length| length > 0)
        {
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end();
            if !text.is_empty() {
                caller.note(format_args!("{host}: {}", plain(text)));
            }
            line.clear();
        }
        SHOWING.fetch_sub(1, Ordering::Relaxed);
    });
    if started.is_err() {
        SHOWING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits until what ended shells said is shown. Not for long: a shell may leave a process that keeps its stderr, such as the
/// master of shared connections (`ControlPersist` in ssh_config(5)).
fn wait_shown() {
    let since = Instant::now();
    while SHOWING.load(Ordering::Relaxed) > 0 && since.elapsed() < SHOWN_WITHIN {
        thread::sleep(Duration::from_millis(5));
    }
}

fn hasten(child: &ChildHandle) {
    let since = Instant::now();
    while since.elapsed() < CONNECTS && matches!(child.wait(LOOKS), Ok(false)) {
        if !matches!(child.send_without_delay(), Ok(false)) {
            return;
        }
    }
}

/// Brings this program to the far host, within `patience` where it has an end; where it is there, nothing is sent. What
/// starts it there: each start checks again what it starts.
fn pushed(
    request: &Request,
    host: &str,
    patience: Option<Duration>,
    caller: &Caller,
) -> Result<String, Failure> {
    let me = std::fs::File::open("/proc/self/exe").map_err(Failure::here)?;
    caller.note(format_args!("bringing goodput to {host}"));
    let bytes = me.metadata().map_err(Failure::here)?.len();
    let place = place()?;
    let script = placing(&place, bytes);
    let mut command = shell(request, host, &script);
    let (tell, printed) = mpsc::channel();
    let ended = hastened(host, command.stdin(me).stdout(Stdio::piped()), caller)
        .and_then(|mut child| {
            if let Some(output) = child.stdout.take() {
                threads::spawn("stdout of ssh", move || printed::all_of(output, &tell))?;
            }
            if let Some(patience) = patience
                && !ChildHandle::of(&child)?.wait(patience)?
            {
                child.kill()?;
            }
            child.wait()
        })
        .map_err(|error| Failure::here(format!("{}: {error}", request.rsh)))?;
    match ended.success() {
        true => Ok(starting(&place)),
        false => {
            wait_shown();
            Err(Failure::far(format!(
                "goodput could not be brought to {host}{}",
                printed
                    .recv_timeout(SHOWN_WITHIN)
                    .unwrap_or_default()
                    .told()
            )))
        }
    }
}

/// The folder of this program on a far host, as a shell there writes it. Named by the program's contents: the next time it
/// is there.
fn place() -> Result<String, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("goodput-{version}-{}", own_sum()?);
    Ok(format!("${{TMPDIR:-/tmp}}/{name}-$(id -u)"))
}

/// What a shell runs first: it opens the folder, and `$d` and `$g`, the program in it, lead there by the descriptor, so that
/// nobody can put another folder in its place. The name must be the folder's own and not a link's, and the folder this
/// user's, which nobody else may enter: mode 700, with or without the group that a folder above hands down.
fn opening(place: &str) -> String {
    format!(
        "p=\"{place}\"; d=/proc/$$/fd/9; g=\"$d/goodput\"; [ -d \"$p\" ] && exec 9<\"$p\"; \
         w=\"$(stat -L -c %d:%i \"$d\"):$(id -u)\"; \
         case \"$(stat -c %d:%i:%u:%a \"$p\")\" in \"$w:700\"|\"$w:2700\") ;; \
         *) echo \"goodput: $p is not a folder of this user alone (mode 700): remove it, or have TMPDIR name another \
         place\" >&2; exit 1;; esac; "
    )
}

/// Whether the program is a file of this user's there, and no link.
const OWN: &str = "[ -f \"$g\" ] && [ ! -L \"$g\" ] && [ -O \"$g\" ] && [ -x \"$g\" ]";

/// A command that puts so many bytes of its input into the folder as the program: whole before it has its name.
fn placing(place: &str, bytes: u64) -> String {
    let opening = opening(place);
    format!(
        "sh -c 'umask 077; mkdir \"{place}\" 2>/dev/null; {opening}n=\"$d/new.$$\"; \
         if {OWN}; then cat > /dev/null; \
         else cat > \"$n\" && [ \"$(wc -c < \"$n\")\" -eq {bytes} ] && chmod 700 \"$n\" && mv \"$n\" \"$g\" \
         || {{ rm -f \"$n\"; exit 1; }}; fi'"
    )
}

/// A command that runs the program with the words that follow it, once the folder is known to be safe.
fn starting(place: &str) -> String {
    let opening = opening(place);
    format!(
        "sh -c '{opening}{OWN} || {{ echo \"goodput: $p/goodput is gone: try again\" >&2; exit 1; }}; \
         exec \"$g\" \"$@\"' goodput"
    )
}

fn own_sum() -> Result<String, Failure> {
    let bytes = std::fs::read("/proc/self/exe").map_err(Failure::here)?;
    let sum = crate::digest::sum_of(&bytes);
    Ok(sum[..8].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Connections through ssh: one each, carried to the far side's own port.
pub(super) fn dial_inside(
    request: &Request,
    host: &str,
    program: &str,
    port: u16,
    inside: &Arc<Inside>,
    caller: &Caller,
) -> Dial {
    let inside = Arc::clone(inside);
    let (request, host, program) = (request.clone(), host.to_owned(), program.to_owned());
    let caller = caller.clone();
    Box::new(move || {
        let (near, far) = UnixStream::pair()?;
        let (input, output) = (OwnedFd::from(far.try_clone()?), OwnedFd::from(far));
        let what = format!("{program} agent --relay {port}");
        let mut command = shell(&request, &host, &what);
        let mut child = hastened(&host, command.stdin(input).stdout(output), &caller)?;
        inside.begins(child.id());
        let _ = threads::spawn("ssh", move || child.wait());
        Ok(Socket::Unix(near))
    })
}
