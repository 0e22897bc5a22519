//! A rank: a server's session that connects to other ranks and takes times with them.

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;

use sys::threads;
use sys::{clock, endpoint};
use tracing::info;
use units::{Bytes, Duration, Instant};

use super::line::{Answer, Line, Moved, Until, Watch};
use super::{RankPeer, RankSpec, RankStep, RankTest, RankTimes};
use crate::Stop;
use crate::approach::{self, Approach, Dscp};
use crate::control::{Control, Trouble};
use crate::crew::Role;
use crate::message::{self, Message, Refusal};
use crate::protocol::TOKEN_BYTES;
use crate::server::{Leave, Place, Session};
use crate::tally::Reason;
use crate::transfer::{in_time, probe_congestion, unexpected};
use crate::wait::TICK;

/// The connections of a step.
#[derive(Debug, Default)]
struct Lines {
    send: Option<Line>,
    receive: Option<Line>,
}

/// Looks at the control connection, and answers its pings: a client that has gone or wants no more ends a
/// step or test.
struct ByControl<'a> {
    session: &'a Session,
    control: &'a mut Control,
    until: Instant,
    /// How the rank's time ended, where it did meanwhile.
    ended: Option<Result<(), Leave>>,
}

impl Watch for ByControl<'_> {
    fn gone(&mut self) -> Option<&'static str> {
        let house = &self.session.house;
        if self.ended.is_some() {
            return Some("stopped");
        }
        if house.stop.is_stopped() {
            self.ended = Some(Err(Trouble::Stopped.into()));
            return Some("goodput serve is being stopped there");
        }
        if clock::monotonic() >= self.until {
            return Some("it took longer than this server allows");
        }
        let heard = match self.control.try_receive(Duration::ZERO) {
            Ok(None) => return None,
            Ok(Some(Message::Ping { n, .. })) => {
                match self.session.send(self.control, &Message::Pong { n }) {
                    Ok(()) => return None,
                    Err(leave) => Err(leave),
                }
            }
            Ok(Some(Message::Stop)) => Ok(()),
            Ok(Some(other)) => Err(unexpected(&other).into()),
            Err(trouble) => Err(trouble.into()),
        };
        let why = match heard {
            Ok(()) => "stopped",
            Err(_) => "its client has gone",
        };
        self.ended = Some(heard);
        Some(why)
    }
}

impl Session {
    /// Serves a client as one of its ranks, until it wants no more. The session goes on afterwards.
    pub(crate) fn rank(&self, control: &mut Control, spec: &RankSpec) -> Result<(), Leave> {
        let place = match self.admit_rank(control, spec) {
            Ok(place) => place,
            Err(refusal) => {
                info!(peer = %self.peer, ?refusal, "refused to be a rank");
                return self.send(control, &Message::Refused(refusal));
            }
        };
        info!(peer = %self.peer, "rank {}", spec.number);
        let token = message::token_to_hex(place.token);
        self.send(control, &Message::Accept { token })?;
        let mut lines = Lines::default();
        loop {
            // Its client has others to wait for, and pings meanwhile.
            match control.receive(in_time(self.house.limits.silence), &self.house.stop)? {
                Message::RankStep(step) => {
                    lines = Lines::default();
                    let mut watch = self.watch(control, self.house.limits.silence);
                    let made = self.connect(&mut watch, spec, &step, &place);
                    if let Some(ended) = watch.ended {
                        return ended;
                    }
                    match made {
                        Ok(made) => {
                            lines = made;
                            self.send(control, &Message::Ready)?;
                        }
                        Err(error) => {
                            self.house.tally.refused(Reason::Transfer);
                            self.give_up(control, error)?;
                            self.failed_steps.set(self.failed_steps.get() + 1);
                            if self.failed_steps.get() >= FAILED_STEPS_MAX {
                                let text = format!("{FAILED_STEPS_MAX} steps of this rank failed");
                                return Err(Leave::Host(text));
                            }
                        }
                    }
                }
                Message::RankTest(test) => {
                    let mut watch = self.watch(control, self.house.limits.duration);
                    let begun = clock::monotonic();
                    let times = self.test(&mut watch, &test, &mut lines);
                    let ended = watch.ended;
                    self.account_rank(spec, &mut lines, begun, times.is_ok());
                    if let Some(ended) = ended {
                        return ended;
                    }
                    match times {
                        Ok(times) => self.send(control, &Message::RankTimes(times))?,
                        Err(error) => {
                            lines = Lines::default();
                            self.give_up(control, error)?;
                        }
                    }
                }
                Message::Ping { n, .. } => self.send(control, &Message::Pong { n })?,
                Message::Stop => return Ok(()),
                other => return Err(unexpected(&other).into()),
            }
        }
    }

    /// Counts and logs what a test moved, whole or not.
    fn account_rank(&self, spec: &RankSpec, lines: &mut Lines, begun: Instant, whole: bool) {
        let mut moved = Moved::default();
        for line in [&mut lines.send, &mut lines.receive].into_iter().flatten() {
            let of_line = line.take_moved();
            moved.sent += of_line.sent;
            moved.received += of_line.received;
        }
        for (role, bytes) in [(Role::Sender, moved.sent), (Role::Receiver, moved.received)] {
            if bytes > 0 {
                self.count(role, bytes);
            }
        }
        let (sent, received) = (Bytes::new(moved.sent), Bytes::new(moved.received));
        let took = clock::monotonic().saturating_since(begun);
        let how = if whole { "complete" } else { "broken off" };
        let (peer, number) = (self.peer, spec.number);
        info!(%peer, "rank {number}: sent {sent}, received {received} in {took}, {how}");
    }

    /// Says why a step or test came to nothing.
    fn give_up(&self, control: &mut Control, error: io::Error) -> Result<(), Leave> {
        let text = error.to_string();
        self.send(control, &Message::Refused(Refusal::Host { text }))
    }

    fn admit_rank(&self, control: &Control, spec: &RankSpec) -> Result<Place<'_>, Refusal> {
        if !self.house.limits.ranks {
            let text =
                "it takes no part in tests among hosts; start it with `goodput serve --ranks`";
            return Err(Refusal::Limit {
                text: text.to_owned(),
            });
        }
        if self.house.ceiling().is_some() {
            let text = "only clients with its token may have it send to others, since its rate is limited \
                        (--rate-max)";
            return Err(Refusal::Limit {
                text: text.to_owned(),
            });
        }
        let host = |error: io::Error| Refusal::Host {
            text: error.to_string(),
        };
        if let Some(name) = &spec.congestion
            && let Some(no) = probe_congestion(control.stream(), name).map_err(host)?
        {
            return Err(Refusal::Congestion {
                permitted: no.permitted,
                available: no.available,
            });
        }
        self.reserve()
    }

    /// Connects to whom the step names, and waits for who is to come; both at once, so that a ring of ranks
    /// does not wait for itself, and who comes learns nothing of how connecting goes.
    ///
    /// What failed is not told, nor when: what the client may name is any address, and it is not to learn
    /// from here what answers there. The log has it.
    fn connect(
        &self,
        watch: &mut ByControl<'_>,
        spec: &RankSpec,
        step: &RankStep,
        place: &Place<'_>,
    ) -> io::Result<Lines> {
        let call = match &step.send {
            Some(to) => {
                let own = watch.control.stream().local_addr()?;
                Some(self.may_call(own.port(), spec, to)?)
            }
            None => None,
        };
        let silence = self.house.limits.silence;
        let (quit, over) = (Stop::new(), AtomicBool::new(false));
        let until = watch.until;
        let (sender, called) = mpsc::channel();
        let made = thread::scope(|scope| {
            let calling = call.map(|call| {
                let (quit, over) = (&quit, &over);
                let work = move || drop(sender.send(call.run(silence, quit, over, until)));
                threads::scoped(scope, "gp-rank", work).map(drop)
            });
            let made = (|| {
                let mut lines = Lines::default();
                let calling = calling.transpose()?.is_some();
                if let Some(from) = step.receive {
                    lines.receive = Some(await_rank(watch, spec, from, place, silence)?);
                }
                if calling {
                    lines.send = Some(await_call(watch, &called)??);
                }
                Ok(lines)
            })();
            quit.stop();
            over.store(true, Ordering::Relaxed);
            made
        });
        made.map_err(|error: io::Error| {
            info!(peer = %self.peer, %error, "rank {}: a step failed", spec.number);
            // Not before the time is over.
            while watch.gone().is_none() {
                thread::sleep(TICK.to_std());
            }
            io::Error::other(not_there(step, silence))
        })
    }

    fn watch<'a>(&'a self, control: &'a mut Control, limit: Duration) -> ByControl<'a> {
        ByControl {
            session: self,
            control,
            until: in_time(limit),
            ended: None,
        }
    }

    /// What to connect to, if a client from there may have this host connect there.
    fn may_call(&self, own_port: u16, spec: &RankSpec, to: &RankPeer) -> io::Result<Call> {
        let token =
            message::token_from_hex(&to.token).ok_or_else(|| io::Error::other("a broken token"))?;
        let (peer, number) = (self.peer, spec.number);
        // The client's number of the interface is none of this host's: it goes where the client came from.
        let addr = match peer {
            SocketAddr::V6(v6) => endpoint::scoped(to.addr, v6.scope_id()),
            SocketAddr::V4(_) => to.addr,
        };
        let own: Vec<IpAddr> = sys::host::addresses()
            .into_iter()
            .map(|(_, ip)| ip)
            .collect();
        if !may_be_rank(addr, peer.ip(), own_port, &own) {
            info!(%peer, "rank {number}: refused to connect to {addr}");
            let text = format!("{addr} is not where another host's rank can be");
            return Err(io::Error::other(text));
        }
        info!(%peer, "rank {number}: connecting to {addr}");
        Ok(Call {
            addr,
            token,
            spec: spec.clone(),
        })
    }

    /// What this rank does in a test, in both roles at once where it has both.
    fn test(
        &self,
        watch: &mut ByControl<'_>,
        test: &RankTest,
        lines: &mut Lines,
    ) -> io::Result<RankTimes> {
        if let Some(problem) = test.problem() {
            return Err(io::Error::other(problem));
        }
        let (send, receive) = match (&mut lines.send, &mut lines.receive) {
            (None, None) => (None, None),
            (Some(line), None) => (Some(line.send(test, watch)?), None),
            (None, Some(line)) => (None, Some(line.receive(test, watch)?)),
            (Some(out), Some(into)) => {
                let over = AtomicBool::new(false);
                thread::scope(|scope| {
                    let (sender, sent) = mpsc::channel();
                    let flag = &over;
                    let work = move || drop(sender.send(out.send(test, flag)));
                    threads::scoped(scope, "gp-rank", work)?;
                    let received = into.receive(test, &mut *watch);
                    let both = received.and_then(|received| {
                        let sent = await_call(watch, &sent)??;
                        Ok((Some(sent), Some(received)))
                    });
                    over.store(true, Ordering::Relaxed);
                    both
                })?
            }
        };
        Ok(RankTimes {
            send_ns: send.map(Duration::as_ns),
            receive_ns: receive.map(Duration::as_ns),
        })
    }
}

/// A connection to another rank that is to be made.
#[derive(Debug)]
struct Call {
    addr: SocketAddr,
    token: [u8; TOKEN_BYTES],
    spec: RankSpec,
}

impl Call {
    /// Connects, opens, waits for the answer.
    fn run(
        &self,
        silence: Duration,
        quit: &Stop,
        over: &AtomicBool,
        until: Instant,
    ) -> io::Result<Line> {
        let approach = Approach {
            dscp: self.spec.dscp.and_then(Dscp::new),
            ..Approach::default()
        };
        let set = |fd: std::os::fd::BorrowedFd<'_>| match &self.spec.congestion {
            Some(name) => sys::tcp::set_congestion(fd, name),
            None => Ok(()),
        };
        let connected = approach.connect(self.addr, 1, silence, set, quit);
        let mut socket = connected
            .map_err(|error| io::Error::other(error.to_string()))?
            .remove(0);
        sys::tcp::set_user_timeout(socket.as_fd(), silence)?;
        socket.write_all(&message::data_opening(self.token, self.spec.number))?;
        let answer = Answer::of(&self.token, self.spec.number);
        let mut line = Line::new(socket, silence, answer)?;
        line.await_welcome(Until(over, until))?;
        Ok(line)
    }
}

/// Waits for a rank to connect, and answers it.
fn await_rank(
    watch: &mut ByControl<'_>,
    spec: &RankSpec,
    from: u16,
    place: &Place<'_>,
    silence: Duration,
) -> io::Result<Line> {
    let socket = loop {
        // Looked at each time: who has the token can send as many strangers as it likes.
        if let Some(why) = watch.gone() {
            return Err(io::Error::other(why));
        }
        match place.arrivals.recv_timeout(TICK.to_std()) {
            Ok((number, socket)) if number == from => break socket,
            // Others are left over from a step that failed.
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("this server is ending"));
            }
        }
    };
    dress(&socket, spec)?;
    sys::tcp::set_user_timeout(socket.as_fd(), silence)?;
    let mut line = Line::new(socket, silence, Answer::of(&place.token, from))?;
    line.welcome(watch)?;
    Ok(line)
}

/// Waits for another thread's word while the client is looked at.
fn await_call<T>(watch: &mut ByControl<'_>, word: &Receiver<T>) -> io::Result<T> {
    loop {
        match word.recv_timeout(TICK.to_std()) {
            Ok(word) => return Ok(word),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("a thread panicked"));
            }
        }
        if let Some(why) = watch.gone() {
            return Err(io::Error::other(why));
        }
    }
}

/// Congestion control and mark for what an accepted connection sends, as a made one has them: messages of a
/// ping-pong and confirmations are to meet the same queues both ways.
fn dress(socket: &TcpStream, spec: &RankSpec) -> io::Result<()> {
    if let Some(name) = &spec.congestion {
        sys::tcp::set_congestion(socket.as_fd(), name)?;
    }
    match spec.dscp.and_then(Dscp::new) {
        Some(dscp) => approach::mark(socket, dscp),
        None => Ok(()),
    }
}

/// Whether another host's rank can be there, as a client at `client` may name it. Addresses of this host (`own`, and
/// loopback) are for its own clients, since its services may trust it; a link-local address, such as that of a cloud's
/// metadata, is for clients that have one of the same family; and of the system ports only the one that this server
/// has itself is another rank's.
fn may_be_rank(addr: SocketAddr, client: IpAddr, own_port: u16, own: &[IpAddr]) -> bool {
    let (ip, client) = (addr.ip().to_canonical(), client.to_canonical());
    let is_special = match ip {
        IpAddr::V4(v4) => v4.is_broadcast() || v4.octets()[0] == 0,
        IpAddr::V6(v6) => v6.is_unspecified(),
    };
    let is_own = |ip: IpAddr| ip.is_loopback() || own.contains(&ip);
    let is_port = addr.port() >= SYSTEM_PORTS || addr.port() == own_port;
    is_port
        && addr.port() > 0
        && !is_special
        && !ip.is_multicast()
        && (!is_own(ip) || is_own(client))
        && (!is_of_link(ip)
            || is_own(client)
            || (is_of_link(client) && client.is_ipv4() == ip.is_ipv4()))
}

fn is_of_link(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// The one answer for all that a step can fail of.
fn not_there(step: &RankStep, silence: Duration) -> String {
    let called = "that rank did not answer as a rank";
    match (step.send.is_some(), step.receive) {
        (true, None) => called.to_owned(),
        (true, Some(from)) => format!("{called}, or rank {from} did not come within {silence}"),
        (false, from) => format!("rank {} did not come within {silence}", from.unwrap_or(0)),
    }
}

impl From<Trouble> for io::Error {
    fn from(trouble: Trouble) -> Self {
        Self::other(trouble.text())
    }
}

/// Ports below are those of services (RFC 6335, system ports).
const SYSTEM_PORTS: u16 = 1024;
/// Of a session: a host that is down or a name that is wrong ends the test anyway.
const FAILED_STEPS_MAX: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_at_an_address_of_a_host() {
        let (near, far) = (["127.0.0.1", "::1", "::ffff:127.0.0.1"], "192.0.2.7");
        let may = |addr: &str, client: &str| {
            let own = ["192.0.2.1", "fe80::9"].map(|ip| ip.parse().unwrap());
            may_be_rank(addr.parse().unwrap(), client.parse().unwrap(), 443, &own)
        };
        for client in near.iter().chain([&far]) {
            for addr in [
                "198.51.100.1:5210",
                "[2001:db8::1]:5210",
                "198.51.100.1:1024",
                "198.51.100.1:443",
            ] {
                assert!(may(addr, client), "{addr} from {client}");
            }
            for addr in [
                "0.0.0.0:5210",
                "[::]:5210",
                "[::ffff:0.0.0.0]:5210",
                "224.0.0.1:5210",
                "[ff02::1]:5210",
                "255.255.255.255:5210",
                "0.1.2.3:5210",
                "198.51.100.1:0",
                "198.51.100.1:22",
                "[2001:db8::1]:1023",
            ] {
                assert!(!may(addr, client), "{addr} from {client}");
            }
        }
        for addr in [
            "127.0.0.1:5210",
            "127.8.9.1:5210",
            "[::1]:5210",
            "[::ffff:127.0.0.1]:5210",
            "169.254.169.254:5210",
            "[fe80::1]:5210",
        ] {
            assert!(
                near.iter().all(|client| may(addr, client)) && !may(addr, far),
                "{addr}"
            );
        }
        assert!(may("169.254.1.2:5210", "169.254.1.1") && may("[fe80::2]:5210", "fe80::1"));
        // Of the other family it is another link's.
        assert!(!may("169.254.1.2:5210", "fe80::1") && !may("[fe80::2]:5210", "169.254.1.1"));
        assert!(!may("192.0.2.1:5210", far) && may("192.0.2.1:5210", "192.0.2.1"));
        assert!(may("127.0.0.1:5210", "192.0.2.1"));
    }

    #[test]
    fn an_accepted_connection_sends_with_the_ranks_mark_and_congestion_control() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let spec = RankSpec {
            number: 0,
            congestion: Some("reno".to_owned()),
            dscp: Some(46),
        };
        dress(&accepted, &spec).unwrap();
        let name = rustix::net::sockopt::tcp_congestion(&accepted).unwrap();
        assert_eq!(name, "reno");
        assert_eq!(rustix::net::sockopt::ip_tos(&accepted).unwrap(), 46 << 2);
    }
}
