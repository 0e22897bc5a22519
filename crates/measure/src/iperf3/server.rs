//! The far end for iperf3's clients: one test a session.
//!
//! Unlike iperf3's own server it runs several tests at once: the cookie says which test a data
//! connection belongs to. Datagrams have none, so UDP streams are opened by one test at a time, and
//! belong to it by their source address.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::PollFlags;
use serde_json::json;
use sys::clock;
use tracing::{debug, info, warn};
use units::{Bytes, Duration, Rate};

use super::flow::{self, Flow, Flowed, Sockets, quiet};
use super::line::{Line, unexpected};
use super::message::{self, Cookie, PARAMS_BYTES_MAX, State, results_bytes_max};
use super::params::{
    IE_AUTHORIZATION, IE_CONGESTION, IE_DURATION, IE_EXPIRED, IE_NO_DATA, IE_STREAM, IE_STREAMS,
    Params, Refused,
};
use super::results::Results;
use crate::ceiling::Ceiling;
use crate::control::{Trouble, farewell};
use crate::crew::Role;
use crate::engine::Shape;
use crate::lobby::source_of;
use crate::server::{OPENING_MAX, is_same_host};
use crate::tally::{Protocol, Reason, Tally};
use crate::transfer::{in_time, probe_congestion};
use crate::turns::{Turn, Turns};
use crate::wait::{TICK, wait_for};
use crate::{Config, Limits, STREAMS_MAX, Stop, udp};

/// Tests that wait for their data connections.
#[derive(Debug, Default)]
pub(crate) struct Cookies {
    waiting: Mutex<HashMap<Cookie, SyncSender<Arrival>>>,
    /// To open UDP streams, of either protocol.
    pub(crate) udp: Turns,
}

/// A data connection and its place in the order of arrival, which is the order of the streams.
type Arrival = (u64, TcpStream);

/// One client's session.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) peer: SocketAddr,
    pub(crate) limits: Limits,
    pub(crate) cookies: Arc<Cookies>,
    /// What its tests share with all transfers to clients without a token.
    pub(crate) ceiling: Option<Arc<Ceiling>>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) stop: Stop,
}

/// Why a session ends early.
#[derive(Debug)]
enum Leave {
    Trouble(Trouble),
    /// The client is told by a number of iperf3's.
    Refused(Refused),
}

impl From<Trouble> for Leave {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl Cookies {
    fn waiting(&self) -> MutexGuard<'_, HashMap<Cookie, SyncSender<Arrival>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a data connection to the test that waits for it; gives it back if none does.
    pub(crate) fn hand_over(&self, cookie: &Cookie, arrival: Arrival) -> Option<Arrival> {
        let Some(test) = self.waiting().get(cookie).cloned() else {
            return Some(arrival);
        };
        // Fails when the test has just given up, or has more connections than it asked for: then
        // this one closes with it.
        drop(test.try_send(arrival));
        None
    }
}

/// A test's place among those that wait; gives it back when dropped.
struct Place<'a> {
    cookies: &'a Cookies,
    cookie: Cookie,
    arrivals: Receiver<Arrival>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.cookies.waiting().remove(&self.cookie);
    }
}

/// Tells a client that there is no room for its test.
pub(crate) fn deny(stream: &TcpStream) {
    farewell(stream, &[State::AccessDenied.byte()]);
}

/// Tells a client that only who has a token is served.
pub(crate) fn deny_without_token(stream: &TcpStream) {
    farewell(stream, &server_error(IE_AUTHORIZATION));
}

/// The words that end a test with one of iperf3's error numbers.
fn server_error(number: i32) -> Vec<u8> {
    let mut words = vec![State::ServerError.byte()];
    words.extend(number.to_be_bytes());
    words.extend(0_i32.to_be_bytes());
    words
}

impl Host {
    /// Runs the test of a control connection whose cookie has been read.
    pub(crate) fn run(self, stream: TcpStream, cookie: Cookie) {
        let peer = self.peer;
        let mut line = match Line::new(stream, self.limits.silence) {
            Ok(line) => line,
            Err(error) => return debug!(%peer, %error, "gone before its test began"),
        };
        let _open = self.tally.opened(Protocol::Iperf3);
        let begun = clock::monotonic();
        let ended = self.test(&mut line, &cookie);
        let took = clock::monotonic().saturating_since(begun);
        match ended {
            Ok(()) | Err(Leave::Trouble(Trouble::Closed)) => {
                info!(%peer, "iperf3 test ended after {took}");
            }
            Err(Leave::Trouble(Trouble::Stopped)) => {
                farewell(line.stream(), &[State::ServerTerminate.byte()]);
            }
            Err(Leave::Trouble(trouble)) => {
                info!(%peer, "iperf3 test dropped after {took}: {}", trouble.text());
            }
            Err(Leave::Refused(refused)) => {
                info!(%peer, "iperf3 test refused: {}", refused.text);
                self.tally.refused(Reason::Transfer);
                farewell(line.stream(), &server_error(refused.number));
            }
        }
    }

    fn test(&self, line: &mut Line, cookie: &Cookie) -> Result<(), Leave> {
        self.tell(line, State::ParamExchange)?;
        let json = line.json(PARAMS_BYTES_MAX, in_time(self.limits.silence), &self.stop)?;
        let params = Params::parse(&json).map_err(Leave::Refused)?;
        self.admit(line, &params)?;
        info!(peer = %self.peer, "iperf3 test: {params:?}");
        let flows = self.open(line, cookie, &params)?;
        self.tell(line, State::TestStart)?;
        self.tell(line, State::TestRunning)?;
        for flow in &flows {
            flow.go();
        }
        self.accompany(line, &params, &flows)?;
        let ended = settle_all(flows, quiet(line.stream()), params.omit());
        for (flowed, _) in &ended {
            let bytes = flowed.result.bytes;
            self.tally.transferred(Protocol::Iperf3, flowed.role, bytes);
        }
        self.exchange(line, &params, &ended)?;
        self.tell(line, State::DisplayResults)?;
        // Its goodbye, or the end of the connection: both will do.
        match line.state(in_time(self.limits.silence), &self.stop) {
            Ok(State::IperfDone) | Err(Trouble::Closed | Trouble::Io(_)) => Ok(()),
            Ok(other) => Err(unexpected(other).into()),
            Err(trouble) => Err(trouble.into()),
        }
    }

    fn tell(&self, line: &mut Line, state: State) -> Result<(), Trouble> {
        line.tell(state, in_time(self.limits.silence), &self.stop)
    }

    /// Checks a wish against the limits and the host.
    fn admit(&self, line: &Line, params: &Params) -> Result<(), Leave> {
        let no = |number, text: String| Err(Leave::Refused(Refused { number, text }));
        let whole = Duration::from_s(u64::from(params.omit_s) + u64::from(params.time_s));
        if params.streams > self.limits.streams {
            return no(IE_STREAMS, format!("{} streams", params.streams));
        }
        if whole > self.limits.duration {
            return no(IE_DURATION, format!("a duration of {whole}"));
        }
        if let Some(name) = params.congestion.as_deref().filter(|_| !params.udp) {
            match probe_congestion(line.stream(), name) {
                Ok(Some(missing)) if !missing.permitted => {
                    return no(IE_CONGESTION, format!("'{name}', which is not permitted"));
                }
                Ok(Some(_)) => warn!(peer = %self.peer, "no congestion control '{name}' here"),
                Ok(None) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Waits for the data connections and prepares their streams: first those on which the client
    /// sends, as it opens them.
    fn open(&self, line: &mut Line, cookie: &Cookie, params: &Params) -> Result<Vec<Flow>, Leave> {
        let each = usize::from(params.streams);
        let roles: &[Role] = match (params.bidirectional, params.reverse) {
            (true, _) => &[Role::Receiver, Role::Sender],
            (false, true) => &[Role::Sender],
            (false, false) => &[Role::Receiver],
        };
        let sockets: Vec<Sockets> = if params.udp {
            let mut all = self.gather_udp(line, params, each * roles.len())?;
            let rest = all.split_off(each.min(all.len()));
            vec![Sockets::Udp(all), Sockets::Udp(rest)]
        } else {
            let mut all = self.gather_tcp(line, cookie, params, each * roles.len())?;
            let rest = all.split_off(each.min(all.len()));
            vec![Sockets::Tcp(all), Sockets::Tcp(rest)]
        };
        let config = self.config(params);
        let pairs = roles.iter().zip(sockets);
        let prepare = |(&role, sockets): (&Role, Sockets)| {
            // Datagrams may be lost, and what is omitted is not counted: then the client alone
            // knows when it has enough.
            let counted = !params.udp && params.omit_s == 0 && role == Role::Sender;
            let budget = params.budget().filter(|_| counted);
            let shape = Shape {
                ceiling: self.ceiling.clone(),
                ..flow::shape(params, budget)
            };
            Flow::prepare(params, role, &config, sockets, shape)
        };
        let flows: io::Result<Vec<Flow>> = pairs.map(prepare).collect();
        flows.map_err(|error| stream_failure(&error))
    }

    /// Senders here stop when told.
    fn config(&self, params: &Params) -> Config {
        Config {
            streams: params.streams,
            duration: self.limits.duration + SPARE,
            ramp: params.omit(),
            block_bytes: params.block_bytes,
            sample_interval: SAMPLE_INTERVAL,
            ..Config::default()
        }
    }

    fn gather_tcp(
        &self,
        line: &mut Line,
        cookie: &Cookie,
        params: &Params,
        count: usize,
    ) -> Result<Vec<TcpStream>, Leave> {
        // Both directions of the largest test; those that come beyond it are dropped.
        let (sender, arrivals) = sync_channel(2 * usize::from(STREAMS_MAX));
        self.cookies.waiting().insert(*cookie, sender);
        let place = Place {
            cookies: &self.cookies,
            cookie: *cookie,
            arrivals,
        };
        self.tell(line, State::CreateStreams)?;
        let deadline = in_time(self.limits.silence);
        let mut arrived: Vec<Arrival> = Vec::new();
        while arrived.len() < count {
            arrived.extend(place.arrivals.try_iter().take(count - arrived.len()));
            if arrived.len() == count {
                break;
            }
            if clock::monotonic() >= deadline {
                let text = format!("{} of {count} streams did not come", count - arrived.len());
                let number = IE_STREAM;
                return Err(Leave::Refused(Refused { number, text }));
            }
            self.expect_silence(line, GATHER_TICK)?;
        }
        arrived.sort_by_key(|(number, _)| *number);
        let prepared = arrived.into_iter().map(|(_, stream)| {
            flow::set_options(stream.as_fd(), params)?;
            stream.set_nodelay(params.no_delay)?;
            Ok(stream)
        });
        let prepared: io::Result<Vec<TcpStream>> = prepared.collect();
        prepared.map_err(|error| stream_failure(&error))
    }

    /// Answers a datagram for each stream. The socket that hears one becomes the stream's; the next
    /// is there before the answer, since the client goes on when it has it.
    fn gather_udp(
        &self,
        line: &mut Line,
        params: &Params,
        count: usize,
    ) -> Result<Vec<UdpSocket>, Leave> {
        let _turn = self.udp_turn(line)?;
        let here = line.stream().local_addr().map_err(Trouble::Io)?;
        let mut listener = udp::beside(here).map_err(|e| stream_failure(&e))?;
        self.tell(line, State::CreateStreams)?;
        let deadline = in_time(self.limits.silence.min(OPENING_MAX));
        let mut sockets = Vec::new();
        while sockets.len() < count {
            if clock::monotonic() >= deadline {
                let text = format!("{} of {count} streams did not come", count - sockets.len());
                let number = IE_STREAM;
                return Err(Leave::Refused(Refused { number, text }));
            }
            self.expect_silence(line, Duration::ZERO)?;
            wait_for(&listener, PollFlags::IN, TICK).map_err(Trouble::Io)?;
            let mut words = [0; 16];
            let Ok((len, from)) = listener.recv_from(&mut words) else {
                continue;
            };
            // iperf3's datagrams carry no token: all that is known of one is the address it came from.
            if !is_same_host(from, self.peer) || len != HELLO_BYTES {
                debug!(%from, "dropped: a datagram that opens no stream");
                continue;
            }
            let answer = if words[..len] == OLD_HELLO {
                OLD_ANSWER
            } else {
                ANSWER
            };
            let mut opened = || -> io::Result<UdpSocket> {
                listener.connect(from)?;
                flow::set_options(listener.as_fd(), params)?;
                let next = udp::beside(here)?;
                listener.send(&answer)?;
                Ok(std::mem::replace(&mut listener, next))
            };
            sockets.push(opened().map_err(|e| stream_failure(&e))?);
        }
        Ok(sockets)
    }

    /// Waits for the turn to open UDP streams.
    fn udp_turn(&self, line: &mut Line) -> Result<Turn<'_>, Leave> {
        let deadline = in_time(self.limits.silence);
        let waits = self.cookies.udp.wait(source_of(self.peer));
        loop {
            if let Some(turn) = waits.try_take() {
                return Ok(turn);
            }
            if clock::monotonic() >= deadline {
                return Err(Trouble::Silent.into());
            }
            self.expect_silence(line, GATHER_TICK)?;
        }
    }

    /// Looks whether the client has left; it has nothing to say now.
    fn expect_silence(&self, line: &mut Line, wait: Duration) -> Result<(), Leave> {
        if self.stop.is_stopped() {
            return Err(Trouble::Stopped.into());
        }
        match line.try_state(wait)? {
            None => Ok(()),
            Some(State::ClientTerminate | State::IperfDone) => Err(Trouble::Closed.into()),
            Some(other) => Err(unexpected(other).into()),
        }
    }

    /// Waits until the client says that the test is over.
    fn accompany(&self, line: &mut Line, params: &Params, flows: &[Flow]) -> Result<(), Leave> {
        let no = |number, text: &str| {
            let text = text.to_owned();
            Err(Leave::Refused(Refused { number, text }))
        };
        let mut moved = (0, clock::monotonic());
        let asked = Duration::from_s(params.time_s.into());
        let most = match params.time_s {
            0 => self.limits.duration,
            _ => asked + params.omit() + GRACE,
        };
        let begun = clock::monotonic();
        loop {
            match line.try_state(TICK)? {
                None => {}
                Some(State::TestEnd) => return Ok(()),
                Some(State::ClientTerminate | State::IperfDone) => {
                    return Err(Trouble::Closed.into());
                }
                Some(other) => return Err(unexpected(other).into()),
            }
            if self.stop.is_stopped() {
                return Err(Trouble::Stopped.into());
            }
            let now = clock::monotonic();
            let bytes = flows.iter().map(Flow::bytes).sum();
            if bytes != moved.0 {
                moved = (bytes, now);
            }
            if now >= begun + most {
                return no(IE_EXPIRED, "a test that does not end");
            }
            // Where bytes end the test and all are sent, the client has the word.
            if now >= moved.1 + self.limits.silence.max(STALL) {
                return no(IE_NO_DATA, "a test without data");
            }
        }
    }

    fn exchange(
        &self,
        line: &mut Line,
        params: &Params,
        ended: &[(Flowed, f64)],
    ) -> Result<(), Leave> {
        self.tell(line, State::ExchangeResults)?;
        let deadline = in_time(self.limits.silence);
        let max = results_bytes_max(params.streams);
        let theirs = line.json(max, deadline, &self.stop)?;
        // What they counted is for their display and our log only.
        let theirs = Results::parse(&theirs).unwrap_or_default();
        let mut ours = flow::results(ended, params.omit());
        let text = summary(ended, &ours, &theirs);
        for row in text.lines() {
            info!(peer = %self.peer, "{row}");
        }
        if params.server_output {
            ours.server_output = Some(json!(text));
        }
        line.write_all(&message::encode(&ours.to_json()), deadline, &self.stop)?;
        Ok(())
    }
}

/// Ends all flows: senders at once, receivers when nothing is on its way to them. Their results,
/// and the seconds that each counted.
pub(super) fn settle_all(flows: Vec<Flow>, quiet: Duration, omit: Duration) -> Vec<(Flowed, f64)> {
    let ends: Vec<Duration> = flows.iter().map(Flow::elapsed).collect();
    for flow in flows.iter().filter(|f| f.role() == Role::Sender) {
        if !flow.is_finished() {
            flow.end();
        }
    }
    let end = |(flow, at): (Flow, Duration)| {
        let at = match flow.role() {
            Role::Sender => at,
            Role::Receiver => flow.settle(at, quiet),
        };
        // A sender that stopped by itself did so at its time, not when that was noticed.
        let itself = flow.role() == Role::Sender && flow.is_finished();
        if !itself {
            flow.end();
        }
        let mut flowed = flow.finish();
        let at = if itself { flowed.result.duration } else { at };
        flowed.result.duration = at;
        (flowed, at.as_s_f64() - omit.as_s_f64().min(at.as_s_f64()))
    };
    flows.into_iter().zip(ends).map(end).collect()
}

/// A row for each stream, as `--get-server-output` shows it.
fn summary(ended: &[(Flowed, f64)], ours: &Results, theirs: &Results) -> String {
    let mut text = format!("goodput {} serves iperf3\n", env!("CARGO_PKG_VERSION"));
    let mut streams = ours.streams.iter();
    for (flowed, seconds) in ended {
        let (verb, other) = match flowed.role {
            Role::Sender => ("sent", "received"),
            Role::Receiver => ("received", "sent"),
        };
        for stream in streams.by_ref().take(flowed.result.stream_bytes.len()) {
            let bytes = Bytes::new(stream.bytes);
            let rate = Rate::average(bytes, flowed.result.duration);
            let told = theirs.stream(stream.id).map_or(0, |s| s.bytes);
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "[{:3}] {seconds:.2} s: {verb} {bytes} ({rate}), the client {other} {}",
                stream.id,
                Bytes::new(told)
            );
        }
    }
    text
}

fn stream_failure(error: &io::Error) -> Leave {
    Leave::Refused(Refused {
        number: IE_STREAM,
        text: format!("streams that cannot be prepared: {error}"),
    })
}

impl Params {
    /// What is left out at the start.
    pub(super) fn omit(&self) -> Duration {
        Duration::from_s(self.omit_s.into())
    }
}

/// A datagram that opens a stream, and the answer, as they lie on the wire; iperf3 below 3.10 has
/// other numbers.
pub(super) const HELLO: [u8; 4] = *b"9876";
pub(super) const ANSWER: [u8; 4] = *b"6789";
const OLD_HELLO: [u8; 4] = 123_456_789_u32.to_le_bytes();
pub(super) const OLD_ANSWER: [u8; 4] = 987_654_321_u32.to_le_bytes();
const HELLO_BYTES: usize = 4;
/// While data connections come in, looked for more often than a tick.
const GATHER_TICK: Duration = Duration::from_ms(1);
/// A client that waits for acknowledgements, or whose host is busy, is late by so much at most.
const GRACE: Duration = Duration::from_s(30);
/// Of a client that is there (its kernel answers [`Line`]'s probes), as iperf3: blocks that the rate puts far apart end no test.
const STALL: Duration = Duration::from_s(120);
/// Beyond the longest test, so that the client's word comes first.
const SPARE: Duration = Duration::from_s(60);
/// Readings here serve the omitted time only, which has a reading of its own.
const SAMPLE_INTERVAL: Duration = Duration::from_s(1);
