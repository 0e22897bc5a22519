//! The near end against iperf3's servers.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;

use rustix::event::PollFlags;
use serde_json::Value;
use sys::{clock, tcp};
use units::{Bytes, Duration, Instant, Rate};

use super::DEFAULT_PORT;
use super::flow::{self, Flow, Flowed, Sockets, quiet};
use super::line::{Line, unexpected};
use super::message::{self, COOKIE_BYTES, Cookie, REPORT_BYTES_MAX, State, results_bytes_max};
use super::params::{Params, UDP_BLOCK_BYTES, UDP_BLOCKS, error_text};
use super::results::{Results, StreamResult};
use super::server::{ANSWER, HELLO, OLD_ANSWER, settle_all};
use crate::approach::{Approach, Dscp};
use crate::client::{lost, reporter};
use crate::control::Trouble;
use crate::crew::Role;
use crate::facts::HostFacts;
use crate::message::describe_foreign;
use crate::outcome::{EndResult, IdleRtt, Outcome};
use crate::target::resolve;
use crate::transfer::{in_time, probe_congestion};
use crate::udp::UdpSample;
use crate::wait::{TICK, wait_for};
use crate::{Config, Direction, End, MeasureError, Progress, Stop};

/// What to measure.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// Direction, streams, time, congestion control, sampling. The ramp is what iperf3 omits and has
    /// whole seconds; as everywhere here it is part of the duration.
    pub config: Config,
    /// Both ends send, each over streams of its own.
    pub bidirectional: bool,
    /// UDP at this rate of each stream; a rate of 0 is as fast as the host can.
    pub udp: Option<Rate>,
    /// Bytes of a write, or of a datagram; iperf3's own default if none is given.
    pub length: Option<u32>,
    /// Socket buffers of both ends.
    pub window: Option<Bytes>,
    /// Bytes of all streams that end the test, instead of the time.
    pub bytes: Option<u64>,
    /// Ask for the server's own report.
    pub server_output: bool,
}

/// What a test gave.
#[derive(Clone, Debug)]
pub struct Tested {
    /// One for each direction, the near end's sending first.
    pub halves: Vec<Half>,
    /// What was asked of the server.
    pub params: Params,
    /// What the near end told the server.
    pub near: Results,
    /// What the server told.
    pub far: Results,
    /// The test's cookie, as iperf3 shows it.
    pub cookie: String,
}

/// One direction of a test.
#[derive(Clone, Debug)]
pub struct Half {
    /// As of our own protocol. The far end has totals and no samples; they leave the ramp out.
    pub outcome: Outcome,
    /// Readings of UDP streams at the near end.
    pub udp: Option<Vec<UdpSample>>,
    /// The streams as the near end counted them.
    pub near: Vec<StreamResult>,
    /// The same as the far end counted them.
    pub far: Vec<StreamResult>,
}

/// A control connection on which no test has run yet; iperf3 has one for each test.
#[derive(Debug)]
pub struct Client {
    line: Line,
    addr: SocketAddr,
    cookie: Cookie,
    near: HostFacts,
    idle: IdleRtt,
    patience: Duration,
    approach: Approach,
}

impl Client {
    /// Connects to what [`sys::endpoint::Endpoint`] reads; the port defaults to 5201.
    ///
    /// # Errors
    ///
    /// Says whether the name, the route, a firewall, the far host or its program is at fault.
    pub fn connect(target: &str, timeout: Duration, stop: &Stop) -> Result<Self, MeasureError> {
        Self::connect_by(&Approach::default(), target, timeout, stop)
    }

    /// The same from a given source address or device. The mark is that of the control connection;
    /// the streams' is [`Config::dscp`]. There is no token in iperf3's protocol.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`], and [`MeasureError::Config`] or [`MeasureError::Local`] when this host
    /// does not have the address or device.
    pub fn connect_by(
        approach: &Approach,
        target: &str,
        timeout: Duration,
        stop: &Stop,
    ) -> Result<Self, MeasureError> {
        approach.check()?;
        let mut failure = None;
        for addr in approach.reachable(resolve(target, DEFAULT_PORT)?)? {
            match Self::connect_addr_by(approach, addr, timeout, stop) {
                Ok(client) => return Ok(client),
                Err(MeasureError::Interrupted) => return Err(MeasureError::Interrupted),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| MeasureError::Target {
            target: target.to_owned(),
            problem: "its name has no address".to_owned(),
        }))
    }

    /// Connects to an address, says the cookie and waits until the server asks for parameters.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`]; [`MeasureError::Busy`] where another test is running.
    pub fn connect_addr(
        addr: SocketAddr,
        timeout: Duration,
        stop: &Stop,
    ) -> Result<Self, MeasureError> {
        Self::connect_addr_by(&Approach::default(), addr, timeout, stop)
    }

    fn connect_addr_by(
        approach: &Approach,
        addr: SocketAddr,
        timeout: Duration,
        stop: &Stop,
    ) -> Result<Self, MeasureError> {
        let local = |what| move |source| MeasureError::Local { what, source };
        let deadline = in_time(timeout);
        let stream = approach
            .connect(addr, 1, timeout, |_| Ok(()), stop)?
            .remove(0);
        let random = sys::random::bytes().map_err(local("read random bytes"))?;
        let cookie = message::cookie_of(random);
        let patience = timeout.max(SILENCE);
        let mut line = Line::new(stream, patience).map_err(local("set up a socket"))?;
        let foreign = |bytes: &[u8]| MeasureError::NotIperf3 {
            addr,
            seen: describe_foreign(bytes),
        };
        let asked = line.write_all(&cookie, deadline, stop);
        let asked = asked.and_then(|()| line.state(deadline, stop));
        match asked {
            Ok(State::ParamExchange) => {}
            Ok(State::AccessDenied) => {
                return Err(MeasureError::Busy {
                    addr,
                    sessions: 1,
                    per_address: None,
                });
            }
            Ok(State::ServerError) => {
                let told = line.error_numbers(deadline, stop);
                let (number, _) = told.map_err(|t| lost(t, BEFORE))?;
                let text = error_text(number);
                return Err(MeasureError::FarFailed(format!(
                    "iperf3's error {number}, {text}"
                )));
            }
            Ok(_) | Err(Trouble::Closed | Trouble::Malformed(_) | Trouble::Io(_)) => {
                return Err(foreign(&[]));
            }
            Err(Trouble::Silent) => {
                let after = timeout;
                return Err(MeasureError::Silent { addr, after });
            }
            Err(trouble) => return Err(lost(trouble, "at the greeting")),
        }
        let here = line.stream().local_addr().ok();
        let near = HostFacts {
            path_mtu_bytes: tcp::path_mtu(line.stream().as_fd()).ok(),
            ..HostFacts::of_this_host(here.map(|addr| addr.ip()))
        };
        let idle = idle_rtt(line.stream());
        Ok(Self {
            line,
            addr,
            cookie,
            near,
            idle,
            patience,
            approach: approach.clone(),
        })
    }

    /// This host.
    pub fn near(&self) -> &HostFacts {
        &self.near
    }

    /// Round trip of the idle path as the kernel saw it on the control connection: of a handshake
    /// and one exchange, since iperf3 answers no pings.
    pub fn idle_rtt(&self) -> &IdleRtt {
        &self.idle
    }

    /// Runs the test. `progress` is called every 200 ms or so with what the near end counts.
    ///
    /// # Errors
    ///
    /// Every [`MeasureError`] but those of binding.
    pub fn run(
        mut self,
        wish: &Wish,
        stop: &Stop,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Tested, MeasureError> {
        wish.config.check()?;
        let params = self.params(wish)?;
        let flows = self.open(wish, &params, stop)?;
        for flow in &flows {
            flow.go();
        }
        let early = self.accompany(wish, &flows, stop, progress)?;
        let roles: Vec<Role> = flows.iter().map(Flow::role).collect();
        let acknowledged = self.await_senders(&flows);
        // What is on its way should arrive before the word that ends the counting, which takes half a
        // round trip itself.
        let half = Duration::from_ns(self.idle.min.as_ns() / 2);
        std::thread::sleep(match acknowledged {
            Some(_) => (LINGER - half).to_std(),
            None => (LINGER + half).to_std(),
        });
        self.tell(State::TestEnd, stop)?;
        // From the arrival of the last byte, half a round trip before its acknowledgement's, to that of
        // the word, half a round trip from now.
        let still = acknowledged.map(|at| clock::monotonic().saturating_since(at) + self.idle.min);
        let ended = settle_all(flows, quiet(self.line.stream()), params.omit());
        if early {
            let error = ended.iter().find_map(|(f, _)| f.result.error.clone());
            let gone = || "the far end closed it".to_owned();
            return Err(MeasureError::StreamBroken(error.unwrap_or_else(gone)));
        }
        self.expect(State::ExchangeResults, stop)?;
        let near = flow::results(&ended, params.omit());
        let deadline = in_time(self.patience);
        let sent = message::encode(&near.to_json());
        let told = self.line.write_all(&sent, deadline, stop);
        let max = match wish.server_output {
            true => REPORT_BYTES_MAX,
            false => results_bytes_max(params.streams),
        };
        let told = told.and_then(|()| self.line.json(max, deadline, stop));
        let far = Results::parse(&told.map_err(|t| lost(t, RESULTS))?);
        let far = far.map_err(MeasureError::Protocol)?;
        self.expect(State::DisplayResults, stop)?;
        // The server has told everything: whether it hears this does not matter any more.
        drop(self.tell(State::IperfDone, stop));
        let halves = self.halves(wish, &roles, ended, &near, &far, still);
        let text = String::from_utf8_lossy(&self.cookie[..COOKIE_BYTES - 1]).into_owned();
        Ok(Tested {
            halves,
            params,
            near,
            far,
            cookie: text,
        })
    }

    fn params(&self, wish: &Wish) -> Result<Params, MeasureError> {
        let refuse = |text: String| Err(MeasureError::Config(text));
        let config = &wish.config;
        let second = 1_000_000_000;
        if !config.ramp.as_ns().is_multiple_of(second) || config.ramp > Duration::from_s(600) {
            let ramp = config.ramp;
            return refuse(format!(
                "a ramp of {ramp}; iperf3 omits whole seconds, up to 600"
            ));
        }
        let counted = config.duration.as_ns().saturating_sub(config.ramp.as_ns());
        let udp = wish.udp.is_some();
        let block = match wish.length {
            Some(length) => length,
            None if udp => self.datagram_bytes(),
            None => config.block_bytes,
        };
        let (low, high) = UDP_BLOCKS;
        if udp && !(low..=high).contains(&u64::from(block)) {
            return refuse(format!("datagrams of {block} B; {low} to {high} B work"));
        }
        let window = wish.window.map_or(0, Bytes::as_u64);
        if window > 512 << 20 {
            return refuse("socket buffers above 512 MiB; iperf3 takes no more".to_owned());
        }
        let params = Params {
            udp,
            tos: config.dscp.map_or(0, Dscp::class),
            omit_s: u32::try_from(config.ramp.as_ns() / second).unwrap_or(0),
            time_s: match wish.bytes {
                Some(_) => 0,
                None => u32::try_from(counted.div_ceil(second)).unwrap_or(u32::MAX),
            },
            bytes: wish.bytes.unwrap_or(0),
            streams: config.streams,
            reverse: config.direction == Direction::Down && !wish.bidirectional,
            bidirectional: wish.bidirectional,
            window_bytes: u32::try_from(window).unwrap_or(0),
            block_bytes: block,
            rate: wish.udp.or(config.rate).map_or(0, Rate::as_bits_per_second),
            pacing: config.max_pacing.map_or(0, Rate::as_bits_per_second),
            congestion: config.congestion.clone().filter(|_| !udp),
            server_output: wish.server_output,
            ..Params::default()
        };
        // The server's own checks, before it makes them.
        let checked = Params::parse(&params.to_json());
        checked.map_err(|refused| MeasureError::Config(refused.text))
    }

    /// The largest datagram that needs no fragments, by the control connection's segments.
    fn datagram_bytes(&self) -> u32 {
        let segment = tcp::segment_size(self.line.stream().as_fd()).unwrap_or(UDP_BLOCK_BYTES);
        segment.clamp(16, 65_507)
    }

    fn tell(&mut self, state: State, stop: &Stop) -> Result<(), MeasureError> {
        let told = self.line.tell(state, in_time(self.patience), stop);
        told.map_err(|t| lost(t, DURING))
    }

    /// Waits for a state; the server's own words of failure are told as such.
    fn expect(&mut self, wanted: State, stop: &Stop) -> Result<(), MeasureError> {
        let state = self.line.state(in_time(self.patience), stop);
        match state.map_err(|t| lost(t, DURING))? {
            state if state == wanted => Ok(()),
            state => Err(self.failure(state, stop)),
        }
    }

    /// What a state that ends the test means.
    fn failure(&mut self, state: State, stop: &Stop) -> MeasureError {
        match state {
            State::ServerError => {
                let numbers = self.line.error_numbers(in_time(self.patience), stop);
                let (number, errno) = match numbers {
                    Ok(numbers) => numbers,
                    Err(trouble) => return lost(trouble, DURING),
                };
                let why = match errno {
                    0 => String::new(),
                    _ => format!(": {}", io::Error::from_raw_os_error(errno)),
                };
                let text = error_text(number);
                MeasureError::FarFailed(format!("iperf3's error {number}, {text}{why}"))
            }
            State::ServerTerminate => {
                MeasureError::FarFailed("the iperf3 server was stopped".to_owned())
            }
            State::AccessDenied => MeasureError::Busy {
                addr: self.addr,
                sessions: 1,
                per_address: None,
            },
            other => lost(unexpected(other), DURING),
        }
    }

    /// From the parameters to streams that stand ready at both ends.
    fn open(
        &mut self,
        wish: &Wish,
        params: &Params,
        stop: &Stop,
    ) -> Result<Vec<Flow>, MeasureError> {
        let local = |what| move |source| MeasureError::Local { what, source };
        if let Some(name) = &params.congestion {
            let probed = probe_congestion(self.line.stream(), name);
            if let Some(no) = probed.map_err(local("ask for a congestion control"))? {
                return Err(MeasureError::Congestion {
                    end: End::Near,
                    name: name.clone(),
                    permitted: no.permitted,
                    available: no.available,
                });
            }
        }
        let sent = message::encode(&params.to_json());
        let sent = self.line.write_all(&sent, in_time(self.patience), stop);
        sent.map_err(|t| lost(t, BEFORE))?;
        self.expect(State::CreateStreams, stop)?;
        let roles: &[Role] = match (params.bidirectional, params.reverse) {
            (true, _) => &[Role::Sender, Role::Receiver],
            (false, false) => &[Role::Sender],
            (false, true) => &[Role::Receiver],
        };
        let config = Config {
            block_bytes: params.block_bytes,
            duration: match wish.bytes {
                Some(_) => NO_END,
                None => wish.config.duration,
            },
            ..wish.config.clone()
        };
        let mut flows = Vec::new();
        for &role in roles {
            let sockets = self.open_sockets(params, stop)?;
            let budget = wish.bytes.filter(|_| role == Role::Sender);
            let shape = flow::shape(params, budget);
            let flow = Flow::prepare(params, role, &config, sockets, shape);
            flows.push(flow.map_err(local("start the data threads"))?);
        }
        self.expect(State::TestStart, stop)?;
        self.expect(State::TestRunning, stop)?;
        Ok(flows)
    }

    /// One after the other: the order in which they arrive is that of the streams.
    fn open_sockets(&mut self, params: &Params, stop: &Stop) -> Result<Sockets, MeasureError> {
        if params.udp {
            let sockets = (0..params.streams).map(|_| self.open_udp(params, stop));
            return Ok(Sockets::Udp(sockets.collect::<Result<_, _>>()?));
        }
        let sockets = (0..params.streams).map(|_| self.open_tcp(params, stop));
        Ok(Sockets::Tcp(sockets.collect::<Result<_, _>>()?))
    }

    fn open_tcp(&self, params: &Params, stop: &Stop) -> Result<TcpStream, MeasureError> {
        let set = |fd: std::os::fd::BorrowedFd<'_>| flow::set_options(fd, params);
        let approach = &self.approach;
        let stream = approach.connect(self.addr, 1, self.patience, set, stop)?;
        let mut stream = stream
            .into_iter()
            .next()
            .ok_or_else(|| MeasureError::Protocol("no data connection".to_owned()))?;
        // A new connection's buffer has room for a cookie.
        let said = io::Write::write_all(&mut stream, &self.cookie);
        said.map_err(|error| MeasureError::StreamBroken(error.to_string()))?;
        Ok(stream)
    }

    /// Says hello and waits for the answer. Not said twice: a server would take the second for data.
    fn open_udp(&mut self, params: &Params, stop: &Stop) -> Result<UdpSocket, MeasureError> {
        let local = |source| MeasureError::Local {
            what: "open a UDP socket",
            source,
        };
        let any: SocketAddr = match self.addr {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let from = self.approach.bind.unwrap_or(any);
        let socket = self.approach.datagrams(from, self.addr).map_err(local)?;
        flow::set_options(socket.as_fd(), params).map_err(local)?;
        socket.send(&HELLO).map_err(local)?;
        let deadline = in_time(self.patience);
        let mut words = [0; 16];
        while clock::monotonic() < deadline {
            wait_for(&socket, PollFlags::IN, TICK).map_err(local)?;
            match socket.recv(&mut words) {
                Ok(4) if words[..4] == ANSWER || words[..4] == OLD_ANSWER => return Ok(socket),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => break,
                // Data of another stream that overtook the answer, or nothing yet.
                _ => {}
            }
            if stop.is_stopped() {
                return Err(MeasureError::Interrupted);
            }
            match self.line.try_state(Duration::ZERO) {
                Ok(None) => {}
                Ok(Some(state)) => return Err(self.failure(state, stop)),
                Err(trouble) => return Err(lost(trouble, BEFORE)),
            }
        }
        let text = format!(
            "no answer from UDP port {}; open it there too",
            self.addr.port()
        );
        Err(MeasureError::StreamBroken(text))
    }

    /// Waits until the test is over. True when a stream broke before.
    fn accompany(
        &mut self,
        wish: &Wish,
        flows: &[Flow],
        stop: &Stop,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<bool, MeasureError> {
        let mut report = reporter(wish.config.duration, || None, progress);
        let mut due = PROGRESS_INTERVAL;
        let enough = |flow: &Flow| wish.bytes.is_some_and(|bytes| flow.bytes() >= bytes);
        let late = wish.bytes.is_none().then_some(wish.config.duration);
        loop {
            match self.line.try_state(STEP).map_err(|t| lost(t, DURING))? {
                None => {}
                Some(state) => return Err(self.failure(state, stop)),
            }
            if stop.is_stopped() {
                drop(
                    self.line
                        .tell(State::ClientTerminate, in_time(TICK), &Stop::new()),
                );
                return Err(MeasureError::Interrupted);
            }
            let elapsed = flows.iter().map(Flow::elapsed).max().unwrap_or_default();
            if elapsed >= due {
                due = elapsed + PROGRESS_INTERVAL;
                report(elapsed, flows.iter().map(Flow::bytes).sum());
            }
            let sent = flows.iter().filter(|f| f.role() == Role::Sender);
            let sent = sent.map(Flow::is_finished).reduce(|a, b| a && b);
            let over = late.is_some_and(|d| elapsed >= d) || flows.iter().any(enough);
            if over || sent == Some(true) {
                // A sender ends with the time or the bytes; one that ends before has failed.
                let whole = match wish.bytes {
                    Some(_) => flows.iter().any(enough),
                    None => elapsed + TICK >= wish.config.duration,
                };
                return Ok(sent == Some(true) && !whole);
            }
            let left = |f: &&Flow| f.role() == Role::Receiver && f.is_finished();
            if flows.iter().any(|f| left(&f)) {
                // All that was asked for may have come, just before the end of file.
                return Ok(!flows.iter().any(enough));
            }
        }
    }

    /// Waits until the senders' data was acknowledged, so that the server can count it: when it was. None
    /// without such a sender, or where it took too long.
    fn await_senders(&self, flows: &[Flow]) -> Option<Instant> {
        let limit = in_time(ACKS_MAX);
        let engines = |flow: &Flow| match flow {
            Flow::Tcp(engine) if flow.role() == Role::Sender => Some(engine.is_acknowledged()),
            _ => None,
        };
        flows.iter().find_map(engines)?;
        while flows.iter().filter_map(engines).any(|done| !done) {
            if clock::monotonic() >= limit {
                return None;
            }
            std::thread::sleep(ACK_STEP);
        }
        Some(clock::monotonic())
    }

    fn halves(
        &self,
        wish: &Wish,
        roles: &[Role],
        ended: Vec<(Flowed, f64)>,
        near: &Results,
        far: &Results,
        still: Option<Duration>,
    ) -> Vec<Half> {
        let each = usize::from(wish.config.streams);
        let half = |(index, (flowed, _)): (usize, (Flowed, f64))| {
            let ours: Vec<StreamResult> = near
                .streams
                .iter()
                .skip(index * each)
                .take(each)
                .cloned()
                .collect();
            let found = |s: &StreamResult| far.stream(s.id).cloned().unwrap_or_default();
            let theirs: Vec<StreamResult> = ours.iter().map(found).collect();
            self.half(wish, flowed, roles.len(), (ours, theirs), far, still)
        };
        ended.into_iter().enumerate().map(half).collect()
    }

    fn half(
        &self,
        wish: &Wish,
        flowed: Flowed,
        halves: usize,
        (near, far): (Vec<StreamResult>, Vec<StreamResult>),
        told: &Results,
        still: Option<Duration>,
    ) -> Half {
        let ours = flowed.result;
        let seconds = far.iter().map(|s| s.seconds).fold(0.0, f64::max);
        let still = still.filter(|_| flowed.role == Role::Sender && flowed.udp.is_none());
        let omit = wish.config.ramp.as_s_f64();
        // Of both directions the server tells one sum; half for each is as good as anything.
        #[allow(clippy::cast_precision_loss, reason = "1 or 2")]
        let cpu = told.cpu_percent[0] / 100.0 * (seconds + omit) / halves.max(1) as f64;
        let theirs = EndResult {
            bytes: far.iter().map(|s| s.bytes).sum(),
            duration: without(duration_of(seconds), still),
            cpu: duration_of(cpu),
            congestion: told.congestion.clone().unwrap_or_default(),
            ..EndResult::default()
        };
        let counted: u64 = near.iter().map(|s| s.bytes).sum();
        let complete = counted == theirs.bytes || flowed.udp.is_some();
        let (direction, sender, receiver) = match flowed.role {
            Role::Sender => (Direction::Up, ours, theirs),
            Role::Receiver => (Direction::Down, theirs, ours),
        };
        let config = Config {
            direction,
            ..wish.config.clone()
        };
        Half {
            outcome: Outcome {
                config,
                idle_rtt: self.idle.clone(),
                sender,
                receiver,
                interrupted: false,
                complete,
            },
            udp: flowed.udp,
            near,
            far,
        }
    }
}

impl Tested {
    /// The server's own report, where it gave one.
    pub fn server_output(&self) -> Option<&Value> {
        self.far.server_output.as_ref()
    }
}

fn idle_rtt(stream: &TcpStream) -> IdleRtt {
    let info = tcp::tcp_info(stream.as_fd()).unwrap_or_default();
    let known = Some(info.min_rtt_us).filter(|&us| us > 0 && us < u64::from(u32::MAX));
    let min = Duration::from_us(known.unwrap_or(info.rtt_us));
    IdleRtt {
        min,
        median: Duration::from_us(info.rtt_us).max(min),
        samples: Vec::new(),
        kernel_min: known.map(Duration::from_us),
    }
}

/// The time that a server counted, less that in which nothing could come any more: at most half of it,
/// whatever the server says.
fn without(counted: Duration, still: Option<Duration>) -> Duration {
    let most = Duration::from_ns(counted.as_ns() / 2);
    counted - still.unwrap_or_default().min(most)
}

/// Seconds that the far end told.
fn duration_of(seconds: f64) -> Duration {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, and the number is not negative"
    )]
    let ns = (seconds.max(0.0) * 1e9) as u64;
    Duration::from_ns(ns.min(FOREVER.as_ns()))
}

const DURING: &str = "during the test";
const BEFORE: &str = "before the test";
const RESULTS: &str = "before it told its results";
/// How long a server that owes a message may be silent.
const SILENCE: Duration = Duration::from_s(10);
const PROGRESS_INTERVAL: Duration = Duration::from_ms(200);
/// How late the end of a test may be noticed: a thousandth of a short one.
const STEP: Duration = Duration::from_ms(1);
/// An iperf3 server reads the word that ends the test before data that lies there already.
const LINGER: Duration = Duration::from_ms(5);
/// As long as a queue may hold the last bytes; the server gives a test up only later.
const ACKS_MAX: Duration = Duration::from_s(5);
const ACK_STEP: std::time::Duration = std::time::Duration::from_micros(200);
/// Where bytes end the test.
const NO_END: Duration = Duration::from_s(48 * 3600);
/// What a hostile server may claim.
const FOREVER: Duration = Duration::from_s(30 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_nothing_could_come_does_not_count() {
        let (s, ms) = (Duration::from_s, Duration::from_ms);
        assert_eq!(without(s(4), Some(ms(65))), ms(3_935));
        assert_eq!(without(s(4), None), s(4));
        // A server that counts nothing, or less than the pause, makes no rate without end.
        assert_eq!(without(ms(100), Some(s(9))), ms(50));
        assert_eq!(without(Duration::ZERO, Some(s(9))), Duration::ZERO);
    }
}
