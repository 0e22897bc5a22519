//! The far end: waits on one port, greets, and serves sessions in threads of its own.
//!
//! One loop accepts connections and reads their first bytes, however slowly these come, without a
//! thread for each; only a complete greeting gets one. A control connection becomes a session (one
//! thread, and one a stream during a transfer), a data connection is handed to the session whose
//! token it names. Everything that a peer can make grow has a limit in [`Limits`].

mod datagrams;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};
use sys::clock;
use tracing::{debug, info, warn};
use units::{Bytes, Duration, Instant};

use crate::codec;
use crate::config::Spec;
use crate::control::{Control, TICK, Trouble, farewell, timespec};
use crate::engine::{Engine, Role};
use crate::facts::FarFacts;
use crate::iperf3::message::{COOKIE_BYTES, Cookie, HeardCookie, hear_cookie};
use crate::iperf3::{self, Cookies};
use crate::message::{
    self, DATA_OPENING_BYTES, GREETING_BYTES, Heard, Kind, MESSAGE_BYTES_MAX, Message, PROTOCOL,
    Refusal, TOKEN_BYTES,
};
use crate::outcome::EndResult;
use crate::tls::{self, Side};
use crate::transfer::{
    Ending, Patience, accompany, in_time, probe_congestion, server_role, set_options, unexpected,
};
use crate::{Config, MeasureError, STREAMS_MAX, Stop, Transport};

/// What a server lets its clients do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions at once; a client beyond them is told that the server is busy.
    pub sessions: u32,
    /// Streams of one transfer, at most 128.
    pub streams: u16,
    /// Duration of one transfer.
    pub duration: Duration,
    /// How long a client may be silent or slow where it owes something, before it is dropped.
    pub silence: Duration,
    /// Size of one control message.
    pub message_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 8,
            streams: STREAMS_MAX,
            duration: Duration::from_s(3600),
            silence: Duration::from_s(10),
            message_bytes: MESSAGE_BYTES_MAX,
        }
    }
}

/// A bound server, not yet serving.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<TcpListener>,
    addr: SocketAddr,
    limits: Limits,
}

type Token = [u8; TOKEN_BYTES];

/// Transfers that wait for their data connections.
#[derive(Debug, Default)]
struct Registry(Mutex<HashMap<Token, Sender<(u16, TcpStream)>>>);

/// A connection that has not said yet what it is.
#[derive(Debug)]
struct Newcomer {
    stream: TcpStream,
    peer: SocketAddr,
    /// Its place in the order of arrival.
    number: u64,
    bytes: [u8; DATA_OPENING_BYTES],
    len: usize,
    deadline: Instant,
}

/// What a newcomer turned out to be.
enum Verdict {
    /// Not all of its opening has come.
    Wait,
    Control,
    Data(Token, u16),
    OtherVersion(u16),
    /// A connection of iperf3's.
    Iperf3(Cookie),
    Foreign,
    /// Closed or broken.
    Gone,
}

impl Server {
    /// Listens on an address; port 0 lets the kernel choose.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Bind`] when the address cannot be had.
    pub fn bind(addr: SocketAddr, limits: Limits) -> Result<Self, MeasureError> {
        let (listener, addr) = listen(addr)?;
        let streams = limits.streams.clamp(1, STREAMS_MAX);
        Ok(Self {
            listeners: vec![listener],
            addr,
            limits: Limits { streams, ..limits },
        })
    }

    /// Listens on one more address. Both protocols are spoken on each.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Bind`] when the address cannot be had.
    pub fn listen_also(&mut self, addr: SocketAddr) -> Result<SocketAddr, MeasureError> {
        let (listener, addr) = listen(addr)?;
        self.listeners.push(listener);
        Ok(addr)
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until `stop`, then ends all sessions and waits for them, all within 200 ms.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Local`] when the listening socket itself breaks.
    pub fn serve(&self, stop: &Stop) -> Result<(), MeasureError> {
        let registry = Arc::new(Registry::default());
        let cookies = Arc::new(Cookies::default());
        let mut arrived = 0;
        let mut newcomers: Vec<Newcomer> = Vec::new();
        let mut sessions: Vec<JoinHandle<()>> = Vec::new();
        let mut broken = None;
        while !stop.is_stopped() {
            if let Err(source) = self.wait(&newcomers) {
                broken = Some(MeasureError::Local {
                    what: "wait for connections",
                    source,
                });
                break;
            }
            self.accept(&mut newcomers, &mut arrived);
            sessions.retain(|session| !session.is_finished());
            let now = clock::monotonic();
            for mut newcomer in std::mem::take(&mut newcomers) {
                match newcomer.judge() {
                    Verdict::Wait if now < newcomer.deadline => newcomers.push(newcomer),
                    Verdict::Control if self.may_wait(&newcomer, sessions.len()) => {
                        newcomers.push(newcomer);
                    }
                    Verdict::Control => {
                        let open = sessions.len();
                        sessions.extend(self.open(newcomer, open, &registry, &cookies, stop));
                    }
                    Verdict::Iperf3(cookie) => {
                        let (number, peer) = (newcomer.number, newcomer.peer);
                        let arrival = (number, newcomer.stream);
                        if let Some((_, stream)) = cookies.hand_over(&cookie, arrival) {
                            let host = iperf3::Host {
                                peer,
                                limits: self.limits.clone(),
                                cookies: Arc::clone(&cookies),
                                stop: stop.clone(),
                            };
                            let open = sessions.len();
                            sessions.extend(self.open_iperf3(host, stream, cookie, open));
                        }
                    }
                    Verdict::Data(token, stream) => registry.hand_over(token, stream, newcomer),
                    verdict => newcomer.dismiss(&verdict),
                }
            }
        }
        if broken.is_some() {
            stop.stop();
        }
        for session in sessions {
            // A session that panicked has told so on stderr; the others are not to suffer.
            drop(session.join());
        }
        broken.map_or(Ok(()), Err)
    }

    /// Waits up to a tick for a new connection or for more of a newcomer's bytes.
    fn wait(&self, newcomers: &[Newcomer]) -> io::Result<()> {
        let listeners = self.listeners.iter();
        let mut fds: Vec<PollFd<'_>> = listeners.map(|l| PollFd::new(l, PollFlags::IN)).collect();
        fds.extend(
            newcomers
                .iter()
                .map(|n| PollFd::new(&n.stream, PollFlags::IN)),
        );
        match poll(&mut fds, Some(&timespec(TICK))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn accept(&self, newcomers: &mut Vec<Newcomer>, arrived: &mut u64) {
        for listener in &self.listeners {
            self.accept_from(listener, newcomers, arrived);
        }
    }

    fn accept_from(
        &self,
        listener: &TcpListener,
        newcomers: &mut Vec<Newcomer>,
        arrived: &mut u64,
    ) {
        for _ in 0..NEWCOMERS_MAX {
            let (stream, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    // Mostly EMFILE, or a connection that was reset in the queue: later is better.
                    debug!(%error, "accept failed");
                    std::thread::sleep(ACCEPT_PAUSE);
                    return;
                }
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if newcomers.len() >= NEWCOMERS_MAX {
                // An honest client's opening is here within a round trip: the oldest is the least
                // likely to be one.
                let oldest = newcomers.remove(0);
                warn!(peer = %oldest.peer, "dropped: too many connections say nothing");
            }
            let deadline = in_time(self.limits.silence);
            let bytes = [0; DATA_OPENING_BYTES];
            *arrived += 1;
            newcomers.push(Newcomer {
                stream,
                peer,
                number: *arrived,
                bytes,
                len: 0,
                deadline,
            });
        }
    }

    /// True while all sessions are taken but one of them may be about to end: a client that hangs
    /// up and connects again is not to find its own old session in the way.
    fn may_wait(&self, newcomer: &Newcomer, open: usize) -> bool {
        let since = newcomer.deadline - self.limits.silence;
        self.is_full(open) && clock::monotonic().saturating_since(since) < FULL_PATIENCE
    }

    fn is_full(&self, open: usize) -> bool {
        open >= usize::try_from(self.limits.sessions).unwrap_or(usize::MAX)
    }

    /// Makes a control connection a session, or turns it away.
    fn open(
        &self,
        newcomer: Newcomer,
        open: usize,
        registry: &Arc<Registry>,
        cookies: &Arc<Cookies>,
        stop: &Stop,
    ) -> Option<JoinHandle<()>> {
        let Newcomer { stream, peer, .. } = newcomer;
        let sessions = self.limits.sessions;
        if self.is_full(open) {
            info!(%peer, "turned away: all {sessions} sessions are taken");
            turn_away(&stream, &Message::Busy { sessions });
            return None;
        }
        let spare = stream.try_clone();
        let session = Session {
            peer,
            limits: self.limits.clone(),
            registry: Arc::clone(registry),
            cookies: Arc::clone(cookies),
            stop: stop.clone(),
        };
        let thread = Builder::new().name("gp-session".to_owned());
        match thread.spawn(move || session.run(stream)) {
            Ok(handle) => Some(handle),
            Err(error) => {
                warn!(%peer, %error, "no thread for a session");
                let text = format!("no thread for a session: {error}");
                if let Ok(stream) = spare {
                    turn_away(&stream, &Message::Failed { text });
                }
                None
            }
        }
    }
}

impl Server {
    /// Makes an iperf3 control connection a session, or turns it away.
    fn open_iperf3(
        &self,
        host: iperf3::Host,
        stream: TcpStream,
        cookie: Cookie,
        open: usize,
    ) -> Option<JoinHandle<()>> {
        let peer = host.peer;
        if self.is_full(open) {
            info!(%peer, "turned away: all {} sessions are taken", self.limits.sessions);
            iperf3::deny(&stream);
            return None;
        }
        let thread = Builder::new().name("gp-iperf3".to_owned());
        let spawned = thread.spawn(move || host.run(stream, cookie));
        spawned
            .map_err(|error| warn!(%peer, %error, "no thread for a session"))
            .ok()
    }
}

/// A listening socket that does not block, and its address.
fn listen(addr: SocketAddr) -> Result<(TcpListener, SocketAddr), MeasureError> {
    let bound = || -> io::Result<_> {
        // Answers plain TCP all the same, where the kernel has it.
        let listener = sys::mptcp::listen(addr).or_else(|_| TcpListener::bind(addr))?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        Ok((listener, addr))
    };
    bound().map_err(|source| MeasureError::Bind { addr, source })
}

impl Newcomer {
    /// Reads what has come, never beyond the opening: what follows belongs to others.
    fn judge(&mut self) -> Verdict {
        loop {
            let seen = &self.bytes[..self.len];
            let want = match message::hear(seen) {
                Heard::More => GREETING_BYTES,
                Heard::Greeting(Kind::Control) => return Verdict::Control,
                Heard::Greeting(Kind::Data) if self.len == DATA_OPENING_BYTES => {
                    let (token, stream) = message::parse_data_opening(&self.bytes);
                    return Verdict::Data(token, stream);
                }
                Heard::Greeting(Kind::Data) => DATA_OPENING_BYTES,
                Heard::Greeting(Kind::Server) => return Verdict::Foreign,
                Heard::Foreign => match hear_cookie(seen) {
                    HeardCookie::More => COOKIE_BYTES,
                    HeardCookie::Whole(cookie) => return Verdict::Iperf3(cookie),
                    HeardCookie::Foreign => return Verdict::Foreign,
                },
                Heard::OtherVersion(number) => return Verdict::OtherVersion(number),
            };
            match self.stream.read(&mut self.bytes[self.len..want]) {
                Ok(0) => return Verdict::Gone,
                Ok(n) => self.len += n,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Verdict::Wait,
                    ErrorKind::Interrupted => {}
                    _ => return Verdict::Gone,
                },
            }
        }
    }

    fn dismiss(self, verdict: &Verdict) {
        let peer = self.peer;
        match verdict {
            Verdict::OtherVersion(theirs) => {
                info!(%peer, "speaks protocol {theirs}, we speak {PROTOCOL}: turned away");
                farewell(&self.stream, &message::greeting(Kind::Server));
            }
            Verdict::Foreign => {
                let seen = &self.bytes[..self.len];
                let what = message::describe_foreign(seen);
                info!(%peer, "is not goodput, it {what}: turned away");
                let http = what.starts_with("speaks HTTP");
                let line = message::greeting(Kind::Server);
                farewell(&self.stream, if http { HTTP_ANSWER } else { &line });
            }
            _ => debug!(%peer, "dropped: silent, slow or gone"),
        }
    }
}

impl Registry {
    fn map(&self) -> MutexGuard<'_, HashMap<Token, Sender<(u16, TcpStream)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hand_over(&self, token: Token, stream: u16, newcomer: Newcomer) {
        let Some(session) = self.map().get(&token).cloned() else {
            info!(peer = %newcomer.peer, "dropped: a data connection with a wrong token");
            return;
        };
        // Fails when the session has just given up: then the connection closes with it.
        drop(session.send((stream, newcomer.stream)));
    }
}

/// One client's session, in its own thread.
#[derive(Debug)]
struct Session {
    peer: SocketAddr,
    limits: Limits,
    registry: Arc<Registry>,
    /// Whose turn it is to open UDP streams.
    cookies: Arc<Cookies>,
    stop: Stop,
}

/// A transfer's place in the registry; gives it back when dropped.
#[derive(Debug)]
struct Place<'a> {
    registry: &'a Registry,
    token: Token,
    arrivals: Receiver<(u16, TcpStream)>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.registry.map().remove(&self.token);
    }
}

/// Why a session ends early.
#[derive(Debug)]
enum Leave {
    /// The control connection's trouble.
    Trouble(Trouble),
    /// This host cannot go on.
    Host(String),
}

impl From<Trouble> for Leave {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl Session {
    fn run(self, stream: TcpStream) {
        let peer = self.peer;
        let local = stream.local_addr().ok().map(|addr| addr.ip());
        let path_mtu = sys::tcp::path_mtu(stream.as_fd()).ok();
        let opened = Control::new(stream, self.limits.message_bytes, self.limits.silence);
        let mut control = match opened {
            Ok(control) => control,
            Err(error) => return debug!(%peer, %error, "gone before the session began"),
        };
        info!(%peer, "session opened");
        let welcome = Message::Welcome(Box::new(FarFacts::to_tell(local, path_mtu)));
        let ended = self
            .greet(&mut control, &welcome)
            .and_then(|()| self.talk(&mut control));
        match ended {
            Ok(()) | Err(Leave::Trouble(Trouble::Closed)) => info!(%peer, "session closed"),
            Err(Leave::Trouble(Trouble::Stopped)) => {
                let text = "goodput serve is being stopped there".to_owned();
                control.send_last(&Message::Failed { text });
            }
            Err(Leave::Trouble(trouble)) => {
                let text = trouble.text();
                info!(%peer, "session dropped: {text}");
                control.send_last(&Message::Failed { text });
            }
            Err(Leave::Host(text)) => {
                warn!(%peer, "session failed: {text}");
                control.send_last(&Message::Failed { text });
            }
        }
    }

    fn greet(&self, control: &mut Control, welcome: &Message) -> Result<(), Leave> {
        let deadline = in_time(self.limits.silence);
        control.write_all(&message::greeting(Kind::Server), deadline, &self.stop)?;
        Ok(control.send(welcome, deadline, &self.stop)?)
    }

    /// Answers until the client leaves.
    fn talk(&self, control: &mut Control) -> Result<(), Leave> {
        loop {
            match control.receive(in_time(self.limits.silence), &self.stop)? {
                Message::Ping { n } => self.send(control, &Message::Pong { n })?,
                Message::Start(spec) => self.transfer(control, &spec)?,
                // Left over from a transfer whose end crossed the wish to stop it.
                Message::Stop | Message::Progress { .. } | Message::Received { .. } => {}
                other => return Err(unexpected(&other).into()),
            }
        }
    }

    fn send(&self, control: &mut Control, message: &Message) -> Result<(), Leave> {
        Ok(control.send(message, in_time(self.limits.silence), &self.stop)?)
    }

    fn transfer(&self, control: &mut Control, spec: &Spec) -> Result<(), Leave> {
        let config = Config::from(spec);
        let role = server_role(config.direction);
        let place = match self.admit(control, &config, role) {
            Ok(place) => place,
            Err(refusal) => {
                info!(peer = %self.peer, ?refusal, "refused a transfer");
                return self.send(control, &Message::Refused(refusal));
            }
        };
        if config.transport == Transport::Udp {
            return self.transfer_datagrams(control, &config, role, &place);
        }
        let token = message::token_to_hex(place.token);
        self.send(control, &Message::Accept { token })?;
        let sockets = self.gather(control, &place, config.streams)?;
        drop(place);
        let host = |error: io::Error| Leave::Host(format!("cannot prepare the streams: {error}"));
        for socket in &sockets {
            set_options(socket.as_fd(), role, &config).map_err(host)?;
        }
        let patience = self.limits.silence;
        let engine = tls::prepare(role, &config, sockets, Side::Server, patience, &self.stop);
        let engine = engine.map_err(host)?;
        self.send(control, &Message::Ready)?;
        match control.receive(in_time(self.limits.silence), &self.stop)? {
            Message::Go => {}
            Message::Stop => return self.tell(control, &abort(engine)),
            other => return Err(unexpected(&other).into()),
        }
        if role == Role::Sender {
            self.send(control, &Message::Started)?;
        }
        engine.go();
        let patience = Patience {
            silence: self.limits.silence,
            duration: config.duration,
            drain: config.drain,
        };
        let ending = accompany(control, &engine, role, patience, &self.stop, &mut |_, _| {})?;
        if self.stop.is_stopped() {
            return Err(Trouble::Stopped.into());
        }
        let result = engine.finish();
        self.log(&config, &result, ending);
        self.tell(control, &result)
    }

    /// Checks a wish against limits and host, and reserves a token for it.
    fn admit(&self, control: &Control, config: &Config, role: Role) -> Result<Place<'_>, Refusal> {
        config.check().map_err(|error| Refusal::Limit {
            text: error.to_string(),
        })?;
        let limits = &self.limits;
        if config.streams > limits.streams {
            let text = format!(
                "it allows {} streams, not {}",
                limits.streams, config.streams
            );
            return Err(Refusal::Limit { text });
        }
        if config.duration > limits.duration {
            let text = format!("it allows {}, not {}", limits.duration, config.duration);
            return Err(Refusal::Limit { text });
        }
        let host = |error: io::Error| Refusal::Host {
            text: error.to_string(),
        };
        if let (Role::Sender, Some(name)) = (role, &config.congestion)
            && let Some(no) = probe_congestion(control.stream(), name).map_err(host)?
        {
            return Err(Refusal::Congestion {
                permitted: no.permitted,
                available: no.available,
            });
        }
        let mut token = [0; TOKEN_BYTES];
        File::open("/dev/urandom")
            .and_then(|mut f| f.read_exact(&mut token))
            .map_err(host)?;
        let (sender, arrivals) = channel();
        self.registry.map().insert(token, sender);
        Ok(Place {
            registry: &self.registry,
            token,
            arrivals,
        })
    }

    /// Waits until every stream's connection has come.
    fn gather(
        &self,
        control: &mut Control,
        place: &Place<'_>,
        streams: u16,
    ) -> Result<Vec<TcpStream>, Leave> {
        let deadline = in_time(self.limits.silence);
        let mut sockets: Vec<Option<TcpStream>> = (0..streams).map(|_| None).collect();
        let mut missing = sockets.len();
        while missing > 0 {
            while let Ok((stream, socket)) = place.arrivals.try_recv() {
                match sockets.get_mut(usize::from(stream)) {
                    Some(slot @ None) => {
                        *slot = Some(socket);
                        missing -= 1;
                    }
                    _ => debug!(peer = %self.peer, stream, "dropped: no such stream, or twice"),
                }
            }
            if missing == 0 {
                break;
            }
            if clock::monotonic() >= deadline {
                let text = format!("{missing} of {streams} data connections did not come");
                return Err(Leave::Host(text));
            }
            if self.stop.is_stopped() {
                return Err(Trouble::Stopped.into());
            }
            if let Some(other) = control.try_receive(GATHER_TICK)? {
                return Err(unexpected(&other).into());
            }
        }
        Ok(sockets.into_iter().flatten().collect())
    }

    /// Sends a result; each message of it may take as long as the client's patience.
    fn tell(&self, control: &mut Control, result: &EndResult) -> Result<(), Leave> {
        codec::messages_of(result).try_for_each(|message| self.send(control, &message))
    }

    fn log(&self, config: &Config, result: &EndResult, ending: Ending) {
        let (peer, streams) = (self.peer, config.streams);
        let (bytes, took) = (Bytes::new(result.bytes), result.duration);
        info!(%peer, "{:?}, {streams} streams: {bytes} in {took}, {ending:?}", config.direction);
    }
}

/// Ends an engine that has not started.
fn abort(engine: Engine) -> EndResult {
    engine.abort();
    engine.finish()
}

/// Greets and says why there will be no session.
fn turn_away(stream: &TcpStream, why: &Message) {
    let mut words = message::greeting(Kind::Server).to_vec();
    message::encode(why, &mut words);
    farewell(stream, &words);
}

/// A session notices within a tick that its client has gone.
const FULL_PATIENCE: Duration = Duration::from_ms(300);
/// Connections at once that have not said what they are: two clients' worth of streams.
const NEWCOMERS_MAX: usize = 256;
/// Short enough not to delay a stop, long enough not to spin when file descriptors run out.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);
/// While data connections come in, looked for more often than a tick.
const GATHER_TICK: Duration = Duration::from_ms(1);
const HTTP_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Connection: close\r\n\r\nThis port speaks the goodput measurement protocol, not HTTP.\n";
