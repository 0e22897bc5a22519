//! The far end: waits on one port, greets, and serves sessions in threads of its own.
//!
//! One loop accepts connections and reads their first bytes, however slowly these come, without a
//! thread for each ([`crate::lobby`]); only a complete greeting gets one. A control connection becomes
//! a session (one thread, and one a stream during a transfer), a data connection is handed to the
//! session whose token it names. Everything that a peer can make grow has a limit in [`Limits`].
//! Where a shared token is demanded, a client learns nothing and gets nothing before its proof.

mod datagrams;
mod quic;

pub(crate) use datagrams::{OPENING_MAX, is_same_host};

use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use sys::clock;
use sys::threads;
use tracing::{debug, info, warn};
use units::{Bytes, Duration, Instant};

use crate::approach::{self, Dscp};
use crate::ceiling::Ceiling;
use crate::config::Spec;
use crate::control::{Control, Trouble, farewell};
use crate::crew::Role;
use crate::engine::{self, Shape};
use crate::facts::FarFacts;
use crate::iperf3::message::Cookie;
use crate::iperf3::{self, Cookies};
use crate::limits::Limits;
use crate::lobby::{Lobby, Newcomer, Token, Verdict, source_of};
use crate::message::{self, Kind, Message, Refusal};
use crate::outcome::EndResult;
use crate::secret::{self, Nonce, Prover, Secret};
use crate::tally::{Protocol, Reason, Tally};
use crate::tls::Side;
use crate::transfer::{
    Flow, Patience, accompany, in_time, probe_congestion, server_role, set_options, unexpected,
};
use crate::{Config, Direction, MeasureError, STREAMS_MAX, Stop, Transport, codec, metrics};

/// A bound server, not yet serving.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<TcpListener>,
    addr: SocketAddr,
    limits: Limits,
    secret: Option<Secret>,
    iperf3_open: bool,
    metrics: Option<TcpListener>,
}

/// What all sessions of a server share.
#[derive(Clone, Debug)]
pub(crate) struct House {
    pub(crate) limits: Limits,
    secret: Option<Secret>,
    registry: Arc<Registry>,
    cookies: Arc<Cookies>,
    ceiling: Option<Arc<Ceiling>>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) stop: Stop,
}

/// A running session and whom it counts for.
#[derive(Debug)]
struct Running {
    source: IpAddr,
    thread: JoinHandle<()>,
}

/// Transfers that wait for their data connections.
#[derive(Debug, Default)]
struct Registry(Mutex<HashMap<Token, SyncSender<(u16, TcpStream)>>>);

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
            secret: None,
            iperf3_open: false,
            metrics: None,
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

    /// Serves only who proves that it has the token. iperf3's clients cannot: they are refused unless
    /// `iperf3_open`.
    pub fn demand(&mut self, secret: Secret, iperf3_open: bool) {
        self.secret = Some(secret);
        self.iperf3_open = iperf3_open;
    }

    /// Answers `GET /metrics` on an address while serving, in OpenMetrics 1.0. Whoever reaches it may
    /// read; there are no names or addresses of clients in it.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Bind`] when the address cannot be had.
    pub fn publish(&mut self, addr: SocketAddr) -> Result<SocketAddr, MeasureError> {
        let (listener, addr) = listen(addr)?;
        self.metrics = Some(listener);
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
    /// [`MeasureError::Local`] when the listening socket itself breaks, or there is no thread for the
    /// metrics.
    pub fn serve(&self, stop: &Stop) -> Result<(), MeasureError> {
        let house = House {
            limits: self.limits.clone(),
            secret: self.secret.clone(),
            registry: Arc::default(),
            cookies: Arc::default(),
            ceiling: self
                .limits
                .rate_max
                .map(|rate| Arc::new(Ceiling::new(rate))),
            tally: Arc::default(),
            stop: stop.clone(),
        };
        let publisher = self.publisher(&house)?;
        let mut lobby = Lobby::new(self.limits.silence, Arc::clone(&house.tally));
        let mut sessions: Vec<Running> = Vec::new();
        let mut broken = None;
        while !stop.is_stopped() {
            if let Err(source) = lobby.wait(&self.listeners) {
                broken = Some(MeasureError::Local {
                    what: "wait for connections",
                    source,
                });
                break;
            }
            for listener in &self.listeners {
                lobby.accept(listener);
            }
            sessions.retain(|session| !session.thread.is_finished());
            for (newcomer, verdict) in lobby.judge() {
                match verdict {
                    Verdict::Control if self.may_wait(&newcomer, &sessions) => {
                        lobby.keep(newcomer);
                    }
                    Verdict::Control => sessions.extend(self.open(newcomer, &sessions, &house)),
                    Verdict::Iperf3(cookie) => {
                        sessions.extend(self.open_iperf3(newcomer, cookie, &sessions, &house));
                    }
                    Verdict::Data(token, stream) => house.hand_over(token, stream, newcomer),
                    verdict => lobby.dismiss(&newcomer, &verdict),
                }
            }
        }
        if broken.is_some() {
            stop.stop();
        }
        for thread in sessions.into_iter().map(|s| s.thread).chain(publisher) {
            // A session that panicked has told so on stderr; the others are not to suffer.
            drop(thread.join());
        }
        broken.map_or(Ok(()), Err)
    }

    fn publisher(&self, house: &House) -> Result<Option<JoinHandle<()>>, MeasureError> {
        let local = |what| move |source| MeasureError::Local { what, source };
        let Some(listener) = &self.metrics else {
            return Ok(None);
        };
        let listener = listener.try_clone();
        let listener = listener.map_err(local("set up the metrics"))?;
        let (tally, stop) = (Arc::clone(&house.tally), house.stop.clone());
        let spawned = threads::spawn("gp-metrics", move || {
            metrics::serve(&listener, &|| tally.openmetrics(), &stop)
        });
        spawned
            .map(Some)
            .map_err(local("start a thread for the metrics"))
    }

    /// True while no session is free but one of them may be about to end: a client that hangs up and
    /// connects again is not to find its own old session in the way.
    fn may_wait(&self, newcomer: &Newcomer, sessions: &[Running]) -> bool {
        let waited = clock::monotonic().saturating_since(newcomer.since);
        waited < FULL_PATIENCE && self.full(newcomer.peer, sessions).is_some()
    }

    /// Why there is no session for a peer, if so.
    fn full(&self, peer: SocketAddr, sessions: &[Running]) -> Option<Reason> {
        let (source, limits) = (source_of(peer), &self.limits);
        let own = sessions.iter().filter(|s| s.source == source).count();
        if is_reached(limits.sessions, sessions.len()) {
            return Some(Reason::Busy);
        }
        is_reached(limits.sessions_per_address, own).then_some(Reason::Address)
    }

    /// Makes a control connection a session, or turns it away.
    fn open(&self, newcomer: Newcomer, sessions: &[Running], house: &House) -> Option<Running> {
        let Newcomer { stream, peer, .. } = newcomer;
        if let Some(reason) = self.full(peer, sessions) {
            let limits = &self.limits;
            house.tally.refused(reason);
            info!(%peer, "turned away: {}", limits.words(reason));
            let per_address = Some(limits.sessions_per_address);
            turn_away(
                &stream,
                &Message::Busy {
                    sessions: limits.sessions,
                    per_address: per_address.filter(|_| reason == Reason::Address),
                },
            );
            return None;
        }
        let spare = stream.try_clone();
        let session = Session {
            peer,
            house: house.clone(),
            begun: clock::monotonic(),
            transfers: Cell::new(0),
            bytes: Cell::new(0),
            failed_steps: Cell::new(0),
        };
        match threads::spawn("gp-session", move || session.run(stream)) {
            Ok(thread) => Some(Running {
                source: source_of(peer),
                thread,
            }),
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

    /// Hands an iperf3 connection to the test that waits for it, makes it a session, or turns it away.
    fn open_iperf3(
        &self,
        newcomer: Newcomer,
        cookie: Cookie,
        sessions: &[Running],
        house: &House,
    ) -> Option<Running> {
        let Newcomer {
            stream,
            peer,
            number,
            ..
        } = newcomer;
        let (_, stream) = house.cookies.hand_over(&cookie, (number, stream))?;
        if self.secret.is_some() && !self.iperf3_open {
            house.tally.refused(Reason::Token);
            info!(%peer, "turned away: iperf3 has no token");
            iperf3::deny_without_token(&stream);
            return None;
        }
        if let Some(reason) = self.full(peer, sessions) {
            house.tally.refused(reason);
            info!(%peer, "turned away: {}", self.limits.words(reason));
            iperf3::deny(&stream);
            return None;
        }
        let host = iperf3::Host {
            peer,
            limits: house.limits.clone(),
            cookies: Arc::clone(&house.cookies),
            ceiling: house.ceiling.clone(),
            tally: Arc::clone(&house.tally),
            stop: house.stop.clone(),
        };
        let spawned = threads::spawn("gp-iperf3", move || host.run(stream, cookie));
        let thread = spawned.map_err(|error| warn!(%peer, %error, "no thread for a session"));
        Some(Running {
            source: source_of(peer),
            thread: thread.ok()?,
        })
    }
}

impl Limits {
    fn words(&self, reason: Reason) -> String {
        match reason {
            Reason::Address => format!(
                "all {} sessions of one address are taken",
                self.sessions_per_address
            ),
            _ => format!("all {} sessions are taken", self.sessions),
        }
    }
}

fn is_reached(limit: u32, count: usize) -> bool {
    count >= usize::try_from(limit).unwrap_or(usize::MAX)
}

/// A listening socket that does not block, and its address.
fn listen(addr: SocketAddr) -> Result<(TcpListener, SocketAddr), MeasureError> {
    let bound = || -> io::Result<_> {
        // Answers plain TCP all the same, where the kernel has it.
        let listener = sys::mptcp::listen(addr).or_else(|_| TcpListener::bind(addr))?;
        // The standard library's 128 overflow while this thread waits for a CPU, and who is dropped
        // there comes back after a second. A second call changes the length (listen(2)).
        rustix::net::listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        Ok((listener, addr))
    };
    bound().map_err(|source| MeasureError::Bind { addr, source })
}

impl Registry {
    fn map(&self) -> MutexGuard<'_, HashMap<Token, SyncSender<(u16, TcpStream)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl House {
    /// What all transfers may send: clients of a server with a token have proved it.
    pub(crate) fn ceiling(&self) -> Option<Arc<Ceiling>> {
        self.ceiling.clone().filter(|_| self.is_open())
    }

    /// True where clients need no token.
    pub(crate) fn is_open(&self) -> bool {
        self.secret.is_none()
    }

    fn hand_over(&self, token: Token, stream: u16, newcomer: Newcomer) {
        let peer = newcomer.peer;
        let Some(session) = self.registry.map().get(&token).cloned() else {
            self.tally.refused(Reason::Stray);
            info!(%peer, "dropped: a data connection with a wrong token");
            return;
        };
        // Fails when the session has just given up, or has more connections than it asked for: then
        // this one closes with it.
        drop(session.try_send((stream, newcomer.stream)));
    }
}

/// One client's session, in its own thread.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) peer: SocketAddr,
    pub(crate) house: House,
    begun: Instant,
    /// Ended transfers and their payload, for the log.
    transfers: Cell<u64>,
    bytes: Cell<u64>,
    /// As a rank.
    pub(crate) failed_steps: Cell<u32>,
}

/// A transfer's place in the registry; gives it back when dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    registry: &'a Registry,
    pub(crate) token: Token,
    pub(crate) arrivals: Receiver<(u16, TcpStream)>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.registry.map().remove(&self.token);
    }
}

/// Why a session ends early.
#[derive(Debug)]
pub(crate) enum Leave {
    /// The control connection's trouble.
    Trouble(Trouble),
    /// This host cannot go on.
    Host(String),
    /// It did not prove that it has the token, and was told so.
    Denied,
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
        let opened = Control::new(
            stream,
            self.house.limits.message_bytes,
            self.house.limits.silence,
        );
        let mut control = match opened {
            Ok(control) => control,
            Err(error) => return debug!(%peer, %error, "gone before the session began"),
        };
        info!(%peer, "session opened");
        let welcome = Message::Welcome(Box::new(FarFacts {
            rate_max_bits_per_second: self.house.ceiling().map(|c| c.rate().as_bits_per_second()),
            ..FarFacts::to_tell(local, path_mtu)
        }));
        let _open = self.house.tally.opened(Protocol::Goodput);
        let ended = self
            .greet(&mut control, &welcome)
            .and_then(|()| self.talk(&mut control));
        let (transfers, bytes) = (self.transfers.get(), Bytes::new(self.bytes.get()));
        let took = clock::monotonic().saturating_since(self.begun);
        let done = format!("after {took}, {transfers} transfers, {bytes}");
        match ended {
            Ok(()) | Err(Leave::Trouble(Trouble::Closed)) => info!(%peer, "session closed {done}"),
            Err(Leave::Denied) => {
                self.house.tally.refused(Reason::Token);
                info!(%peer, "turned away: no proof of the token");
            }
            Err(Leave::Trouble(Trouble::Stopped)) => {
                let text = "goodput serve is being stopped there".to_owned();
                control.send_last(&Message::Failed { text });
            }
            Err(Leave::Trouble(trouble)) => {
                let text = trouble.text();
                info!(%peer, "session dropped {done}: {text}");
                control.send_last(&Message::Failed { text });
            }
            Err(Leave::Host(text)) => {
                warn!(%peer, "session failed {done}: {text}");
                control.send_last(&Message::Failed { text });
            }
        }
    }

    fn greet(&self, control: &mut Control, welcome: &Message) -> Result<(), Leave> {
        let deadline = in_time(self.house.limits.silence);
        control.write_all(&message::greeting(Kind::Server), deadline, &self.house.stop)?;
        if let Some(secret) = &self.house.secret {
            self.challenge(control, secret)?;
        }
        self.send(control, welcome)
    }

    /// Has the client prove that it has the token, and then proves the same to it.
    fn challenge(&self, control: &mut Control, secret: &Secret) -> Result<(), Leave> {
        let random = |error: io::Error| Leave::Host(format!("no random bytes: {error}"));
        let server = secret::nonce().map_err(random)?;
        let nonce = secret::to_hex(&server);
        self.send(control, &Message::Challenge { nonce })?;
        let deadline = in_time(self.house.limits.silence.min(PROOF_PATIENCE));
        let answered = match control.receive(deadline, &self.house.stop) {
            Ok(Message::Answer { nonce, proof }) => {
                secret::from_hex(&nonce).zip(secret::from_hex(&proof))
            }
            Ok(other) => return Err(unexpected(&other).into()),
            // A client without a token leaves here.
            Err(Trouble::Closed | Trouble::Silent) => None,
            Err(trouble) => return Err(trouble.into()),
        };
        let right = |(client, proof): &(Nonce, [u8; 32])| {
            secret.proves(proof, Prover::Client, &server, client)
        };
        let Some((client, _)) = answered.filter(right) else {
            control.send_last(&Message::Denied);
            return Err(Leave::Denied);
        };
        let proof = secret::to_hex(&secret.proof(Prover::Server, &server, &client));
        self.send(control, &Message::Proof { proof })
    }

    /// Answers until the client leaves.
    fn talk(&self, control: &mut Control) -> Result<(), Leave> {
        loop {
            match control.receive(in_time(self.house.limits.silence), &self.house.stop)? {
                Message::Ping { n, dscp } => {
                    mark(control, dscp.and_then(Dscp::new));
                    self.send(control, &Message::Pong { n })?;
                }
                Message::Start(spec) => self.transfer(control, &spec)?,
                Message::StartMessages(spec) => self.messages(control, &spec)?,
                Message::StartRank(spec) => self.rank(control, &spec)?,
                // Left over from a transfer whose end crossed the wish to stop it.
                Message::Stop
                | Message::Progress { .. }
                | Message::Received { .. }
                | Message::Sent { .. } => {}
                other => return Err(unexpected(&other).into()),
            }
        }
    }

    pub(crate) fn send(&self, control: &mut Control, message: &Message) -> Result<(), Leave> {
        Ok(control.send(
            message,
            in_time(self.house.limits.silence),
            &self.house.stop,
        )?)
    }

    fn transfer(&self, control: &mut Control, spec: &Spec) -> Result<(), Leave> {
        let config = Config::from(spec);
        let role = server_role(config.direction);
        let admitted = self
            .admit(control, &config, role)
            .and_then(|place| self.bounded(spec, &config, role).map(|()| place));
        let place = match admitted {
            Ok(place) => place,
            Err(refusal) => {
                self.house.tally.refused(Reason::Transfer);
                info!(peer = %self.peer, ?refusal, "refused {}", asked(&config));
                return self.send(control, &Message::Refused(refusal));
            }
        };
        mark(control, config.dscp);
        if config.transport == Transport::Udp {
            return self.transfer_datagrams(control, &config, role, &place);
        }
        if config.transport == Transport::Quic {
            return self.transfer_quic(control, &config, role, &place);
        }
        let token = message::token_to_hex(place.token);
        self.send(control, &Message::Accept { token })?;
        let sockets = self.gather(control, &place, config.streams)?;
        drop(place);
        let host = |error: io::Error| Leave::Host(format!("cannot prepare the streams: {error}"));
        for socket in &sockets {
            set_options(socket.as_fd(), role, &config).map_err(host)?;
        }
        let patience = self.house.limits.silence;
        let engine = engine::prepare(
            role,
            &config,
            sockets,
            Side::Server,
            patience,
            &self.house.stop,
            self.shape(&config),
        );
        self.see_through(control, &config, role, engine.map_err(host)?)
    }

    /// From streams that stand ready here to the result.
    fn see_through(
        &self,
        control: &mut Control,
        config: &Config,
        role: Role,
        engine: impl Flow,
    ) -> Result<(), Leave> {
        if !self.may_go(control, role)? {
            return self.tell(control, &abort(engine));
        }
        engine.go();
        let patience = self.patience(config);
        let stop = &self.house.stop;
        let ending = match accompany(control, &engine, role, patience, stop, &mut |_, _| {}) {
            Ok(ending) if !stop.is_stopped() => ending,
            ended => {
                let trouble = ended.err().unwrap_or(Trouble::Stopped);
                let why = format!("broken off, {}", trouble.text());
                self.account(config, role, engine.bytes(), engine.elapsed(), &why);
                return Err(trouble.into());
            }
        };
        let result = engine.finish();
        let how = format!("{ending:?}").to_lowercase();
        self.account(config, role, result.bytes, result.duration, &how);
        self.tell(control, &result)
    }

    /// Checks a wish against limits and host, and reserves a token for it.
    fn admit(&self, control: &Control, config: &Config, role: Role) -> Result<Place<'_>, Refusal> {
        config.check().map_err(|error| Refusal::Limit {
            text: error.to_string(),
        })?;
        let limits = &self.house.limits;
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
            && config.transport != Transport::Quic
            && let Some(no) = probe_congestion(control.stream(), name).map_err(host)?
        {
            return Err(Refusal::Congestion {
                permitted: no.permitted,
                available: no.available,
            });
        }
        self.reserve()
    }

    /// Refuses what would send datagrams to an address that nobody has proved, and what no rate can be set for
    /// where the rate is limited.
    fn bounded(&self, spec: &Spec, config: &Config, role: Role) -> Result<(), Refusal> {
        let refuse = |text: &str| {
            let text = text.to_owned();
            Err(Refusal::Limit { text })
        };
        let datagrams = matches!(config.transport, Transport::Udp | Transport::Quic);
        if datagrams && !spec.proves_address {
            return refuse(
                "the client cannot prove its UDP address to the server; update the client's goodput",
            );
        }
        if config.transport == Transport::Quic
            && role == Role::Sender
            && self.house.ceiling().is_some()
        {
            return refuse(
                "the server sends over QUIC only to clients with its token, since its rate is limited \
                 (--rate-max)",
            );
        }
        Ok(())
    }

    /// What a transfer's senders here may send.
    pub(crate) fn shape(&self, config: &Config) -> Shape {
        Shape {
            ceiling: self.house.ceiling(),
            ..Shape::of(config)
        }
    }

    /// A token that data connections may name from now on.
    pub(crate) fn reserve(&self) -> Result<Place<'_>, Refusal> {
        let token: Token = sys::random::bytes().map_err(|error| Refusal::Host {
            text: error.to_string(),
        })?;
        // Those that come beyond it are dropped: nobody needs twice as many streams.
        let (sender, arrivals) = sync_channel(2 * usize::from(STREAMS_MAX));
        self.house.registry.map().insert(token, sender);
        Ok(Place {
            registry: &self.house.registry,
            token,
            arrivals,
        })
    }

    /// Waits until every stream's connection has come.
    pub(crate) fn gather(
        &self,
        control: &mut Control,
        place: &Place<'_>,
        streams: u16,
    ) -> Result<Vec<TcpStream>, Leave> {
        let deadline = in_time(self.house.limits.silence);
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
            if self.house.stop.is_stopped() {
                return Err(Trouble::Stopped.into());
            }
            if let Some(other) = control.try_receive(GATHER_TICK)? {
                return Err(unexpected(&other).into());
            }
        }
        Ok(sockets.into_iter().flatten().collect())
    }

    /// Says that all is ready and waits for the client's word; false when it stops instead.
    fn may_go(&self, control: &mut Control, role: Role) -> Result<bool, Leave> {
        self.send(control, &Message::Ready)?;
        match control.receive(in_time(self.house.limits.silence), &self.house.stop)? {
            Message::Go => {}
            Message::Stop => return Ok(false),
            other => return Err(unexpected(&other).into()),
        }
        if role == Role::Sender {
            self.send(control, &Message::Started)?;
        }
        Ok(true)
    }

    /// With a client in a transfer.
    fn patience(&self, config: &Config) -> Patience {
        Patience {
            silence: self.house.limits.silence,
            duration: config.duration,
            drain: config.drain,
        }
    }

    /// Sends a result; each message of it may take as long as the client's patience.
    fn tell(&self, control: &mut Control, result: &EndResult) -> Result<(), Leave> {
        codec::messages_of(result).try_for_each(|message| self.send(control, &message))
    }

    /// Counts an ended transfer.
    pub(crate) fn count(&self, role: Role, bytes: u64) {
        let tally = &self.house.tally;
        tally.transferred(Protocol::Goodput, role, bytes);
        self.transfers.set(self.transfers.get() + 1);
        self.bytes.set(self.bytes.get().saturating_add(bytes));
    }

    /// Counts and logs an ended transfer.
    fn account(&self, config: &Config, role: Role, bytes: u64, took: Duration, how: &str) {
        self.count(role, bytes);
        let (peer, bytes, asked) = (self.peer, Bytes::new(bytes), asked(config));
        info!(%peer, "{asked}: {bytes} in {took}, {how}");
    }
}

/// Marks what the server says from now on, for control and data to meet the same queues. A mark that this
/// host refuses is no reason not to measure.
fn mark(control: &Control, dscp: Option<Dscp>) {
    if let Some(dscp) = dscp {
        drop(approach::mark(control.stream(), dscp));
    }
}

/// What a client asked for, for the log. Checked values only: a name that was not could hold
/// anything.
fn asked(config: &Config) -> String {
    let way = match config.direction {
        Direction::Up => "up",
        Direction::Down => "down",
    };
    let (streams, duration) = (config.streams, config.duration);
    let mut text = format!("{way}, {streams} streams, {duration}");
    if let (Some(name), true) = (&config.congestion, config.check().is_ok()) {
        text += &format!(", {name}");
    }
    if let Some(dscp) = config.dscp {
        text += &format!(", DSCP {}", dscp.number());
    }
    text
}

/// Ends an engine that has not started.
fn abort(engine: impl Flow) -> EndResult {
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
/// What Linux allows by default (net.core.somaxconn) and cuts more at.
const BACKLOG: i32 = 4096;
/// Enough for the round trip of any path: an answer takes no thought.
const PROOF_PATIENCE: Duration = Duration::from_s(5);
/// While data connections come in, looked for more often than a tick.
const GATHER_TICK: Duration = Duration::from_ms(1);
