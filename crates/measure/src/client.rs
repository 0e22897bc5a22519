//! The near end: connects, learns who the far end is, measures.

mod datagrams;
mod quic;

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;

use sys::{clock, tcp};
use units::{Bytes, Duration, Instant, Rate};

use crate::approach::{Approach, Dscp};
use crate::codec::Decoder;
use crate::config::Spec;
use crate::control::{Control, Trouble};
use crate::crew::Role;
use crate::engine::{self, Shape};
use crate::facts::check_far;
use crate::facts::{FarFacts, HostFacts, clean};
use crate::message::{self, Heard, Kind, MESSAGE_BYTES_MAX, Message, MessageError, Refusal};
use crate::outcome::{EndResult, IdleRtt, Kept, Outcome};
use crate::protocol::{PROTOCOL, TOKEN_BYTES};
use crate::secret::{self, Nonce, Prover, Secret};
use crate::target::resolve;
use crate::tls::Side;
use crate::transfer::{
    Ending, Flow, Patience, accompany, client_role, in_time, probe_congestion, set_options,
    unexpected,
};
use crate::{Config, DEFAULT_PORT, Direction, End, MeasureError, Reading, Stop, Transport};

/// How far a transfer is, by what the receiving end acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Time since the start at the receiving end.
    pub elapsed: Duration,
    /// Payload that its application has taken.
    pub bytes: Bytes,
    /// Rate since the progress before.
    pub rate: Rate,
    /// How long the transfer is to last.
    pub duration: Duration,
    /// This end's connections, as they were read last; over iperf3's protocol absent.
    pub near: Option<Reading>,
}

/// A session with a far end. The far end drops a client that is silent for some seconds between
/// two transfers; the next call then connects again by itself.
#[derive(Debug)]
pub struct Client {
    addr: SocketAddr,
    timeout: Duration,
    far: FarFacts,
    near: HostFacts,
    local: Option<SocketAddr>,
    /// None after a failure that left the connection in an unknown state.
    pub(crate) control: Option<Control>,
    /// Measured since the last transfer.
    idle: Option<IdleRtt>,
    approach: Approach,
}

impl Client {
    /// Connects to what [`Endpoint`] reads; the port defaults to [`DEFAULT_PORT`]. Addresses of a name are tried in the resolver's order, within `timeout`
    /// altogether.
    ///
    /// # Errors
    ///
    /// Says whether the name, the route, a firewall, the far host or its program is at fault.
    pub fn connect(target: &str, timeout: Duration) -> Result<Self, MeasureError> {
        Self::connect_until(target, timeout, &Stop::new())
    }

    /// The same, given up when `stop` is raised.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`], and [`MeasureError::Interrupted`].
    pub fn connect_until(
        target: &str,
        timeout: Duration,
        stop: &Stop,
    ) -> Result<Self, MeasureError> {
        Self::connect_by(&Approach::default(), target, timeout, stop)
    }

    /// The same from a given source address or device, with a mark or a token.
    ///
    /// # Errors
    ///
    /// As [`Client::connect_until`]; [`MeasureError::Config`] or [`MeasureError::Local`] when this host
    /// does not have the address or device; what the token meets.
    pub fn connect_by(
        approach: &Approach,
        target: &str,
        timeout: Duration,
        stop: &Stop,
    ) -> Result<Self, MeasureError> {
        approach.check()?;
        let deadline = in_time(timeout);
        let mut failure = None;
        for addr in approach.reachable(resolve(target, DEFAULT_PORT)?)? {
            let left = deadline.saturating_since(clock::monotonic());
            if failure.is_some() && left == Duration::ZERO {
                break;
            }
            let left = left.max(Duration::from_ms(1));
            match Self::connect_addr_by(approach, addr, left, stop) {
                Ok(client) => return Ok(Self { timeout, ..client }),
                Err(MeasureError::Interrupted) => return Err(MeasureError::Interrupted),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| MeasureError::Target {
            target: target.to_owned(),
            problem: "its name has no address".to_owned(),
        }))
    }

    /// Connects to an address.
    ///
    /// # Errors
    ///
    /// Says whether the route, a firewall, the far host or its program is at fault.
    pub fn connect_addr(addr: SocketAddr, timeout: Duration) -> Result<Self, MeasureError> {
        Self::connect_addr_until(addr, timeout, &Stop::new())
    }

    /// The same, given up when `stop` is raised.
    ///
    /// # Errors
    ///
    /// As [`Client::connect_addr`], and [`MeasureError::Interrupted`].
    pub fn connect_addr_until(
        addr: SocketAddr,
        timeout: Duration,
        stop: &Stop,
    ) -> Result<Self, MeasureError> {
        Self::connect_addr_by(&Approach::default(), addr, timeout, stop)
    }

    /// The same from a given source address or device, with a mark or a token.
    ///
    /// # Errors
    ///
    /// As [`Client::connect_by`].
    pub fn connect_addr_by(
        approach: &Approach,
        addr: SocketAddr,
        timeout: Duration,
        stop: &Stop,
    ) -> Result<Self, MeasureError> {
        approach.check()?;
        let (control, far) = open(approach, addr, timeout, stop)?;
        let local = control.stream().local_addr().ok();
        let near = HostFacts {
            path_mtu_bytes: tcp::path_mtu(control.stream().as_fd()).ok(),
            ..HostFacts::of_this_host(local.map(|addr| addr.ip()))
        };
        Ok(Self {
            addr,
            timeout,
            far,
            near,
            local,
            control: Some(control),
            idle: None,
            approach: approach.clone(),
        })
    }

    /// How it came to the far end.
    pub(crate) const fn approach(&self) -> &Approach {
        &self.approach
    }

    /// The far end as it described itself.
    pub fn far(&self) -> &FarFacts {
        &self.far
    }

    /// This host, as the thread that connected sees it.
    pub fn near(&self) -> &HostFacts {
        &self.near
    }

    /// Where the far end is.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// This end of the control connection.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.local
    }

    /// Measures the round trip of the idle path: ten requests one after the other, fewer when they
    /// take longer than 3 s altogether, and the kernel's own minimum.
    ///
    /// # Errors
    ///
    /// [`MeasureError::PeerVanished`] and whatever a new connection may meet.
    pub fn idle_rtt(&mut self) -> Result<IdleRtt, MeasureError> {
        self.idle_rtt_until(&Stop::new())
    }

    /// The same, given up when `stop` is raised. The next transfer takes this result as its own.
    ///
    /// # Errors
    ///
    /// As [`Client::idle_rtt`], and [`MeasureError::Interrupted`].
    pub fn idle_rtt_until(&mut self, stop: &Stop) -> Result<IdleRtt, MeasureError> {
        let idle = self.ping_until(stop)?;
        self.idle = Some(idle.clone());
        Ok(idle)
    }

    /// Runs one transfer. `progress` is called every 200 ms or so, and
    /// every 500 ms while the far end is silent. When `stop` is raised, the
    /// transfer ends and what was measured so far comes back as an interrupted outcome.
    ///
    /// # Errors
    ///
    /// Every [`MeasureError`] but those of binding; [`MeasureError::Interrupted`] when there was
    /// nothing measured yet, or the far end did not tell its part within a second.
    pub fn run(
        &mut self,
        config: &Config,
        stop: &Stop,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Outcome, MeasureError> {
        let kept = self.run_kept(config, stop, progress)?;
        kept.broken.map_or(Ok(kept.outcome), Err)
    }

    /// The same, where what was measured until the far end was lost is worth keeping.
    ///
    /// # Errors
    ///
    /// As [`Client::run`]; a far end or connections that were lost when payload had arrived already are no error. Over UDP
    /// they are: what was lost on the way cannot be told from what came after the loss.
    pub fn run_kept(
        &mut self,
        config: &Config,
        stop: &Stop,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Kept, MeasureError> {
        config.check()?;
        check_far(&self.far, config)?;
        self.check_mark(config)?;
        let idle_rtt = match self.idle.take() {
            Some(measured) => measured,
            None => self.ping_until(stop)?,
        };
        let mut control = self.take_control()?;
        let outcome = self.transfer(&mut control, config, idle_rtt, stop, progress);
        // Only after these is the connection between two messages for certain.
        let refused = matches!(
            outcome,
            Err(MeasureError::FarLimit(_)
                | MeasureError::Congestion { .. }
                | MeasureError::NoDatagrams { .. }
                | MeasureError::FarLacks { .. })
        );
        let whole = outcome.as_ref().is_ok_and(|kept| kept.broken.is_none());
        if refused || whole {
            self.control = Some(control);
        }
        outcome
    }

    /// Refuses the one mark that the kernel cannot set, at either end.
    fn check_mark(&self, config: &Config) -> Result<(), MeasureError> {
        let over_ipv6 = self.addr.ip().to_canonical().is_ipv6();
        if config.transport != Transport::Mptcp || config.dscp.is_none() || !over_ipv6 {
            return Ok(());
        }
        Err(MeasureError::Config(
            "the kernel cannot mark MPTCP connections over IPv6: they have no IPV6_TCLASS; name an \
             IPv4 address, leave out --dscp, or take --transport tcp"
                .to_owned(),
        ))
    }

    fn ping_until(&mut self, stop: &Stop) -> Result<IdleRtt, MeasureError> {
        if stop.is_stopped() {
            return Err(MeasureError::Interrupted);
        }
        if let Some(mut control) = self.control.take() {
            match self.ping(&mut control, stop) {
                Ok(rtt) => {
                    self.control = Some(control);
                    return Ok(rtt);
                }
                Err(Trouble::Stopped) => return Err(MeasureError::Interrupted),
                Err(_) => {}
            }
        }
        // The far end has dropped the idle session, or this is the first call after a failure.
        let (mut control, far) = self.open_again()?;
        self.far = far;
        let rtt = self
            .ping(&mut control, stop)
            .map_err(|t| lost(t, "at the pings"))?;
        self.control = Some(control);
        Ok(rtt)
    }

    pub(crate) fn take_control(&mut self) -> Result<Control, MeasureError> {
        match self.control.take() {
            Some(control) => Ok(control),
            None => Ok(self.open_again()?.0),
        }
    }

    pub(crate) fn put_control(&mut self, control: Control) {
        self.control = Some(control);
    }

    fn open_again(&self) -> Result<(Control, FarFacts), MeasureError> {
        open(&self.approach, self.addr, self.timeout, &Stop::new())
    }

    pub(crate) fn patience(&self) -> Duration {
        self.timeout.max(SILENCE)
    }

    fn ping(&self, control: &mut Control, stop: &Stop) -> Result<IdleRtt, Trouble> {
        let dscp = self.approach.dscp.map(Dscp::number);
        ping(control, stop, self.patience(), dscp)
    }

    fn transfer(
        &self,
        control: &mut Control,
        config: &Config,
        idle_rtt: IdleRtt,
        stop: &Stop,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Kept, MeasureError> {
        let role = client_role(config.direction);
        if config.transport == Transport::Udp {
            let config = &self.fitted(config);
            let token = self.ask(control, config, role, stop)?;
            let about = (idle_rtt, stop, progress);
            let outcome = self.transfer_datagrams(control, config, role, token, about)?;
            let broken = None;
            return Ok(Kept { outcome, broken });
        }
        if config.transport == Transport::Quic {
            let token = self.ask(control, config, role, stop)?;
            let about = (idle_rtt, stop, progress);
            return self.transfer_quic(control, config, role, token, about);
        }
        let token = self.ask(control, config, role, stop)?;
        let sockets = self.open_streams(config, role, token, stop)?;
        let (patience, shape) = (self.patience(), Shape::of(config));
        let engine = engine::prepare(role, config, sockets, Side::Client, patience, stop, shape);
        let engine = engine.map_err(|source| match source.kind() {
            ErrorKind::Interrupted => MeasureError::Interrupted,
            ErrorKind::TimedOut | ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
                MeasureError::StreamBroken(format!("the TLS handshake: {source}"))
            }
            _ => MeasureError::Local {
                what: "start the data threads",
                source,
            },
        })?;
        let before = |t| lost(t, "before the first byte");
        let ready = control.receive(in_time(self.patience()), stop);
        expect(ready.map_err(before)?, &Message::Ready)?;
        let about = (idle_rtt, stop, progress);
        self.see_through(control, config, engine, role, about)
    }

    /// From streams that stand ready at both ends to the outcome.
    fn see_through(
        &self,
        control: &mut Control,
        config: &Config,
        engine: impl Flow,
        role: Role,
        about: (IdleRtt, &Stop, &mut dyn FnMut(Progress)),
    ) -> Result<Kept, MeasureError> {
        let (idle_rtt, stop, progress) = about;
        self.begin(control, config.direction, stop)?;
        engine.go();
        let patience = Patience {
            silence: self.patience(),
            duration: config.duration,
            drain: config.drain,
        };
        let mut arrived = (Duration::ZERO, 0);
        let ended = {
            let mut shown = reporter(config.duration, || engine.reading(), progress);
            let mut report = |elapsed, bytes| {
                arrived = (elapsed, bytes);
                shown(elapsed, bytes);
            };
            accompany(control, &engine, role, patience, stop, &mut report)
        };
        let ending = match ended {
            Ok(ending) => ending,
            Err(trouble) => {
                engine.abort();
                let ours = engine.finish();
                return cut_off(
                    config,
                    idle_rtt,
                    (role, ours),
                    arrived,
                    lost(trouble, DURING),
                );
            }
        };
        let mut waited = Waited {
            control,
            stop,
            limit: self.patience(),
        };
        if ending == Ending::Interrupted {
            let asked = waited
                .control
                .send(&Message::Stop, in_time(GRACE), &Stop::new());
            asked.map_err(|_| MeasureError::Interrupted)?;
            // The far end's word takes a round trip at least.
            waited.limit = GRACE.max(idle_rtt.min.saturating_mul(4)).min(GRACE_MAX);
        }
        let ours = engine.finish();
        match waited.result(config.streams, ending == Ending::Interrupted) {
            Ok(theirs) => assemble(config, idle_rtt, role, ours, theirs, ending),
            Err(error) => cut_off(config, idle_rtt, (role, ours), arrived, error),
        }
    }

    /// From the wish for a transfer to the token that its streams open with.
    fn ask(
        &self,
        control: &mut Control,
        config: &Config,
        role: Role,
        stop: &Stop,
    ) -> Result<[u8; TOKEN_BYTES], MeasureError> {
        let local = |what| move |source| MeasureError::Local { what, source };
        let refuse = |end, permitted, available| MeasureError::Congestion {
            end,
            name: config.congestion.clone().unwrap_or_default(),
            permitted,
            available,
        };
        let kernels = config.transport != Transport::Quic;
        if let (Role::Sender, Some(name), true) = (role, &config.congestion, kernels) {
            let probed = probe_congestion(control.stream(), name);
            if let Some(no) = probed.map_err(local("ask for a congestion control"))? {
                return Err(refuse(End::Near, no.permitted, no.available));
            }
        }
        let deadline = in_time(self.patience());
        let asked = control.send(&Message::Start(Spec::from(config)), deadline, stop);
        let answer = asked.and_then(|()| control.receive(deadline, stop));
        let token = match answer.map_err(|t| lost(t, "before the transfer"))? {
            Message::Accept { token } => message::token_from_hex(&token),
            Message::Refused(Refusal::Limit { text }) => {
                return Err(MeasureError::FarLimit(clean(&text)));
            }
            Message::Refused(Refusal::Congestion {
                permitted,
                available,
            }) => {
                let available = available.iter().take(32).map(|name| clean(name)).collect();
                return Err(refuse(End::Far, permitted, available));
            }
            Message::Refused(Refusal::Host { text }) | Message::Failed { text } => {
                return Err(MeasureError::FarFailed(clean(&text)));
            }
            other => return Err(lost(unexpected(&other), "before the transfer")),
        };
        token.ok_or_else(|| MeasureError::Protocol("a broken token".to_owned()))
    }

    /// Opens the data connections, all at once.
    fn open_streams(
        &self,
        config: &Config,
        role: Role,
        token: [u8; TOKEN_BYTES],
        stop: &Stop,
    ) -> Result<Vec<TcpStream>, MeasureError> {
        let set = |fd: std::os::fd::BorrowedFd<'_>| set_options(fd, role, config);
        let count = usize::from(config.streams);
        let timeout = self.patience();
        let make = match config.transport {
            // Without MPTCP here, as without it there, the streams are plain TCP.
            Transport::Mptcp => {
                |addr| sys::mptcp::unconnected(addr).or_else(|_| tcp::unconnected(addr))
            }
            _ => tcp::unconnected,
        };
        let approach = &self.approach;
        let mut sockets = approach.connect_of(make, self.addr, count, timeout, set, stop)?;
        for (socket, stream) in sockets.iter_mut().zip(0..) {
            // Some 40 bytes into an empty buffer: this does not block.
            let written = socket.write_all(&message::data_opening(token, stream));
            written.map_err(|error| MeasureError::StreamBroken(error.to_string()))?;
        }
        Ok(sockets)
    }

    /// From streams that stand ready at both ends to the start mark.
    fn begin(
        &self,
        control: &mut Control,
        direction: Direction,
        stop: &Stop,
    ) -> Result<(), MeasureError> {
        let lost = |t| lost(t, "before the first byte");
        let deadline = in_time(self.patience());
        control.send(&Message::Go, deadline, stop).map_err(lost)?;
        if direction == Direction::Down {
            expect(
                control.receive(deadline, stop).map_err(lost)?,
                &Message::Started,
            )?;
        }
        Ok(())
    }
}

/// The control connection while a result comes in.
struct Waited<'a> {
    control: &'a mut Control,
    stop: &'a Stop,
    limit: Duration,
}

impl Waited<'_> {
    /// The far end's result. After an interruption the user's stop flag is up already, so that only
    /// the limit counts.
    fn result(&mut self, streams: u16, interrupted: bool) -> Result<EndResult, MeasureError> {
        let unstoppable = Stop::new();
        let stop = if interrupted { &unstoppable } else { self.stop };
        let give_up = |trouble| match lost(trouble, "before it told its result") {
            MeasureError::PeerVanished { .. } if interrupted => MeasureError::Interrupted,
            error => error,
        };
        let mut decoder: Option<Decoder> = None;
        loop {
            let message = self
                .control
                .receive(in_time(self.limit), stop)
                .map_err(give_up)?;
            match (message, &mut decoder) {
                (Message::Result(head), None) => {
                    decoder = Some(Decoder::new(head, streams).map_err(MeasureError::Protocol)?);
                }
                (Message::Samples(rows), Some(decoder)) => {
                    decoder.add(&rows).map_err(MeasureError::Protocol)?;
                }
                (Message::ResultEnd, Some(_)) => {
                    return Ok(decoder.take().map(Decoder::finish).unwrap_or_default());
                }
                // Crossed our wish to stop.
                (Message::Progress { .. } | Message::Received { .. }, None) => {}
                (other, _) => return Err(lost(unexpected(&other), DURING)),
            }
        }
    }
}

/// Puts both ends' results where they belong and judges whether they are whole.
fn assemble(
    config: &Config,
    idle_rtt: IdleRtt,
    role: Role,
    ours: EndResult,
    theirs: EndResult,
    ending: Ending,
) -> Result<Kept, MeasureError> {
    let (sender, receiver) = match role {
        Role::Sender => (ours, theirs),
        Role::Receiver => (theirs, ours),
    };
    let complete = ending == Ending::Complete && sender.bytes == receiver.bytes;
    let interrupted = ending == Ending::Interrupted;
    let broken = sender.error.as_ref().or(receiver.error.as_ref());
    // An end that gave the drain up resets its streams: that shows as an error at the other.
    let drained_too_long = sender.duration >= config.duration && !complete;
    let broken = broken.filter(|_| !interrupted && !drained_too_long);
    let broken = broken.map(|error| MeasureError::StreamBroken(error.clone()));
    let outcome = Outcome {
        config: config.clone(),
        idle_rtt,
        sender,
        receiver,
        interrupted,
        complete,
    };
    worth_keeping(outcome, broken)
}

/// What this end has of a transfer whose far end was lost: `arrived` is when and how much the receiver reported last.
fn cut_off(
    config: &Config,
    idle_rtt: IdleRtt,
    (role, ours): (Role, EndResult),
    arrived: (Duration, u64),
    error: MeasureError,
) -> Result<Kept, MeasureError> {
    let lost = matches!(
        error,
        MeasureError::PeerVanished { .. } | MeasureError::FarFailed(_)
    );
    if !lost {
        return Err(error);
    }
    let mut config = config.clone();
    let (sender, receiver) = match role {
        Role::Receiver => (EndResult::default(), ours),
        Role::Sender => {
            // Its samples are lost, and with them how much of it was the ramp's.
            config.ramp = Duration::ZERO;
            let (duration, bytes) = arrived;
            let theirs = EndResult {
                duration,
                bytes,
                ..EndResult::default()
            };
            (ours, theirs)
        }
    };
    let outcome = Outcome {
        config,
        idle_rtt,
        sender,
        receiver,
        interrupted: false,
        complete: false,
    };
    worth_keeping(outcome, Some(error))
}

/// A broken transfer of which nothing arrived is an error and no more.
fn worth_keeping(outcome: Outcome, broken: Option<MeasureError>) -> Result<Kept, MeasureError> {
    match broken {
        Some(error) if outcome.receiver.bytes == 0 => Err(error),
        broken => Ok(Kept { outcome, broken }),
    }
}

/// Turns time and bytes into progress with a rate.
pub(crate) fn reporter(
    duration: Duration,
    near: impl Fn() -> Option<Reading>,
    progress: &mut dyn FnMut(Progress),
) -> impl FnMut(Duration, u64) {
    let (mut last_elapsed, mut last_bytes) = (Duration::ZERO, 0_u64);
    move |elapsed, bytes| {
        let fresh = Bytes::new(bytes.saturating_sub(last_bytes));
        let rate = Rate::average(fresh, elapsed - last_elapsed);
        (last_elapsed, last_bytes) = (elapsed, bytes);
        progress(Progress {
            elapsed,
            bytes: Bytes::new(bytes),
            rate,
            duration,
            near: near(),
        });
    }
}

/// Opens a control connection and exchanges greetings, and proofs where there is a token.
pub(crate) fn open(
    approach: &Approach,
    addr: SocketAddr,
    timeout: Duration,
    stop: &Stop,
) -> Result<(Control, FarFacts), MeasureError> {
    let deadline = in_time(timeout);
    let stream = approach
        .connect(addr, 1, timeout, |_| Ok(()), stop)?
        .remove(0);
    let silence = timeout.max(SILENCE);
    let mut control =
        Control::new(stream, MESSAGE_BYTES_MAX, silence).map_err(|source| MeasureError::Local {
            what: "set up a socket",
            source,
        })?;
    let silent = |trouble| match trouble {
        Trouble::Silent => MeasureError::Silent {
            addr,
            after: timeout,
        },
        Trouble::Closed | Trouble::Io(_) => MeasureError::NotGoodput {
            addr,
            seen: message::describe_foreign(&[]),
        },
        other => lost(other, GREETING),
    };
    control
        .write_all(&message::greeting(Kind::Control), deadline, stop)
        .map_err(silent)?;
    match control.hear(deadline, stop).map_err(silent)? {
        (Heard::Greeting(Kind::Server), _) => {}
        (Heard::OtherVersion(theirs), _) => {
            return Err(MeasureError::VersionMismatch {
                ours: PROTOCOL,
                theirs,
            });
        }
        (_, bytes) => {
            return Err(MeasureError::NotGoodput {
                addr,
                seen: message::describe_foreign(&bytes),
            });
        }
    }
    let mut first = control
        .receive(deadline, stop)
        .map_err(|t| lost(t, GREETING))?;
    let mut proven = false;
    if let Message::Challenge { nonce } = &first {
        let Some(secret) = &approach.secret else {
            return Err(MeasureError::TokenWanted { addr });
        };
        let nonce = secret::from_hex(nonce)
            .ok_or_else(|| MeasureError::Protocol("a broken challenge".to_owned()))?;
        first = answer(&mut control, secret, &nonce, addr, deadline, stop)?;
        proven = true;
    }
    match first {
        // Who wants a proof is not to measure with somebody else unawares.
        Message::Welcome(_) if approach.secret.is_some() && !proven => {
            Err(MeasureError::TokenUnproven { addr })
        }
        Message::Welcome(facts) => Ok((control, facts.cleaned())),
        Message::Busy {
            sessions,
            per_address,
        } => Err(MeasureError::Busy {
            addr,
            sessions,
            per_address,
        }),
        other => Err(lost(unexpected(&other), GREETING)),
    }
}

/// Answers a challenge and checks the far end's proof; what it says after that.
fn answer(
    control: &mut Control,
    secret: &Secret,
    server: &Nonce,
    addr: SocketAddr,
    deadline: Instant,
    stop: &Stop,
) -> Result<Message, MeasureError> {
    let trouble = |t| lost(t, GREETING);
    let client = secret::nonce().map_err(|source| MeasureError::Local {
        what: "read random bytes",
        source,
    })?;
    let answer = Message::Answer {
        nonce: secret::to_hex(&client),
        proof: secret::to_hex(&secret.proof(Prover::Client, server, &client)),
    };
    control.send(&answer, deadline, stop).map_err(trouble)?;
    let proof = match control.receive(deadline, stop).map_err(trouble)? {
        Message::Proof { proof } => secret::from_hex(&proof),
        Message::Denied => return Err(MeasureError::TokenRefused { addr }),
        other => return Err(lost(unexpected(&other), GREETING)),
    };
    if !proof.is_some_and(|proof| secret.proves(&proof, Prover::Server, server, &client)) {
        return Err(MeasureError::TokenUnproven { addr });
    }
    control.receive(deadline, stop).map_err(trouble)
}

fn ping(
    control: &mut Control,
    stop: &Stop,
    patience: Duration,
    dscp: Option<u8>,
) -> Result<IdleRtt, Trouble> {
    let begun = clock::monotonic();
    let mut samples = Vec::new();
    for n in 0..PINGS {
        let deadline = in_time(patience);
        let sent = clock::monotonic();
        control.send(&Message::Ping { n, dscp }, deadline, stop)?;
        loop {
            match control.receive(deadline, stop)? {
                Message::Pong { n: got } if got == n => break,
                // Left over from a transfer that was interrupted.
                Message::Pong { .. } | Message::Received { .. } => {}
                other => return Err(unexpected(&other)),
            }
        }
        samples.push(clock::monotonic().saturating_since(sent));
        if n >= 2 && clock::monotonic() >= begun + PINGS_TIME {
            break;
        }
    }
    let mut sorted = samples.clone();
    sorted.sort_unstable();
    let kernel_min = tcp::tcp_info(control.stream().as_fd())
        .ok()
        .map(|info| info.min_rtt_us)
        .filter(|&us| us > 0 && us < u64::from(u32::MAX))
        .map(Duration::from_us);
    let min = kernel_min.unwrap_or(sorted[0]);
    Ok(IdleRtt {
        min,
        median: sorted[sorted.len() / 2],
        samples,
        kernel_min,
    })
}

pub(crate) fn expect(message: Message, wanted: &Message) -> Result<(), MeasureError> {
    match message {
        message if message == *wanted => Ok(()),
        other => Err(lost(unexpected(&other), "before the first byte")),
    }
}

/// What trouble on the control connection means to the user.
pub(crate) fn lost(trouble: Trouble, when: &'static str) -> MeasureError {
    match trouble {
        Trouble::Stopped => MeasureError::Interrupted,
        Trouble::Failed(text) => MeasureError::FarFailed(clean(&text)),
        Trouble::Malformed(MessageError::Malformed(text)) => MeasureError::Protocol(clean(&text)),
        Trouble::Malformed(error) => MeasureError::Protocol(clean(&error.to_string())),
        other => MeasureError::PeerVanished {
            when,
            detail: other.text(),
        },
    }
}

/// A far host that does not answer within this is down or behind a firewall: what to connect with where nobody says
/// otherwise.
pub const CONNECT_TIMEOUT: Duration = Duration::from_s(10);

const DURING: &str = "during the transfer";
const GREETING: &str = "at the greeting";
/// How long a far end that owes a message may be silent; as its own limit.
const SILENCE: Duration = Duration::from_s(10);
/// How long a stopped client waits for the far end's half of the result.
const GRACE: Duration = Duration::from_s(1);
const GRACE_MAX: Duration = Duration::from_s(10);
const PINGS: u32 = 10;
/// Ten pings over a satellite are not worth more.
const PINGS_TIME: Duration = Duration::from_s(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_resolved_with_its_zone_and_the_default_port() {
        let ok = |target: &str| resolve(target, DEFAULT_PORT).unwrap();
        assert_eq!(ok("10.0.0.1:99"), ["10.0.0.1:99".parse().unwrap()]);
        assert_eq!(ok("[::1]"), ["[::1]:5210".parse().unwrap()]);
        let zone = |port| format!("[fe80::1%1]:{port}").parse().unwrap();
        assert_eq!(ok("fe80::1%lo"), [zone(5210)]);
        assert_eq!(ok("[fe80::1%lo]:99"), [zone(99)]);
    }

    #[test]
    fn bad_targets_are_the_users_fault() {
        for target in ["", "h:x", "u@h", "fe80::1%no-such"] {
            let error = resolve(target, DEFAULT_PORT).unwrap_err();
            assert_eq!(error.fault(), crate::Fault::Usage, "{target}");
        }
    }
}
