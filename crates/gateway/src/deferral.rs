//! SYNs that wait until the server has said what it thinks of them: a machine without sockets.
//!
//! A client's SYN is held, a connection to the server is opened, and only when that stands the SYN goes on to
//! the socket that accepts it. So a client connects exactly when its server has accepted it, and hears a
//! refusal as its own.
//!
//! What strangers can make grow is bounded, in all and for each client. Beyond the bounds a SYN is passed on
//! as if there were no gateway: who floods is a matter of the server's own defence, as without us.
//!
//! A forged SYN would make us open a connection that its forger could not; it lasts until the accepting
//! side has waited in vain. While many wait, that time is shorter.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use units::{Duration, Instant};

use crate::syn::Ends;

/// Bounds and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// SYNs that wait, in all.
    pub waiting: usize,
    /// Of one client.
    pub waiting_per_client: usize,
    /// Split connections at a time, in all.
    pub connections: usize,
    /// Of one client.
    pub connections_per_client: usize,
    /// How long a server may take to answer.
    pub answer: Duration,
    /// How long a client may take to complete its handshake after that.
    pub handshake: Duration,
    /// The same while more than half of `waiting` wait.
    pub handshake_crowded: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiting: 4096,
            waiting_per_client: 512,
            connections: 65_536,
            connections_per_client: 16_384,
            // Linux gives up a SYN after 127 s (net.ipv4.tcp_syn_retries = 6).
            answer: Duration::from_s(130),
            // Four SYN-ACKs: 1 + 2 + 4 + 8 s.
            handshake: Duration::from_s(15),
            handshake_crowded: Duration::from_s(3),
        }
    }
}

/// What to do with a SYN that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnSyn {
    /// Hold it and connect to the server.
    Connect,
    /// Its connection is under way: this copy is not needed.
    Drop,
    /// Let it go to the accepting socket: its server has answered, or the connection stands.
    Release,
    /// Pass it on unsplit.
    Pass(Reason),
}

/// Why a connection is not split though the rules would have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Too many SYNs wait.
    Waiting,
    /// Too many of this client's.
    WaitingOfClient,
    /// Too many connections.
    Connections,
    /// Too many of this client's.
    ConnectionsOfClient,
}

/// SYNs that wait, each with a handle `S` of what connects to its server.
#[derive(Debug)]
pub struct Deferral<S> {
    limits: Limits,
    waiting: HashMap<Ends, Waiting<S>>,
    clients: HashMap<IpAddr, Client>,
    connections: HashSet<Ends>,
}

#[derive(Debug)]
struct Waiting<S> {
    socket: S,
    since: Instant,
    /// When the server answered.
    answered: Option<Instant>,
    /// Packet that waits for a verdict.
    packet: u32,
}

/// How far a SYN that waits has come, for another gateway on this machine: times are of one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Progress {
    /// When it came.
    pub since_ns: u64,
    /// When its server answered.
    pub answered_ns: Option<u64>,
    /// Packet that waits for a verdict.
    pub packet: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Client {
    waiting: usize,
    connections: usize,
}

/// A connection to a server that nobody waits for any more.
#[derive(Debug, PartialEq, Eq)]
pub struct Expired<S> {
    /// Of whom.
    pub ends: Ends,
    /// What connects or is connected.
    pub socket: S,
    /// The packet that is still held; `None` where the server had answered.
    pub packet: Option<u32>,
}

impl<S> Deferral<S> {
    /// Nobody waits.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            waiting: HashMap::new(),
            clients: HashMap::new(),
            connections: HashSet::new(),
        }
    }

    /// True for a connection that waits or stands: copies of its SYN are [`Self::handle_syn`]'s.
    pub fn knows(&self, ends: Ends) -> bool {
        self.waiting.contains_key(&ends) || self.connections.contains(&ends)
    }

    /// A SYN came. After [`OnSyn::Connect`], [`Self::begin`] says with what.
    pub fn handle_syn(&self, ends: Ends) -> OnSyn {
        if let Some(waiting) = self.waiting.get(&ends) {
            return match waiting.answered {
                Some(_) => OnSyn::Release,
                None => OnSyn::Drop,
            };
        }
        // Late, forged, or of a client that forgot: the socket that stands answers (RFC 5961 section 4).
        if self.connections.contains(&ends) {
            return OnSyn::Release;
        }
        let limits = &self.limits;
        let client = self.clients.get(&ends.client.ip());
        let client = client.copied().unwrap_or_default();
        let connections = self.connections.len() + self.waiting.len();
        if self.waiting.len() >= limits.waiting {
            OnSyn::Pass(Reason::Waiting)
        } else if client.waiting >= limits.waiting_per_client {
            OnSyn::Pass(Reason::WaitingOfClient)
        } else if connections >= limits.connections {
            OnSyn::Pass(Reason::Connections)
        } else if client.connections + client.waiting >= limits.connections_per_client {
            OnSyn::Pass(Reason::ConnectionsOfClient)
        } else {
            OnSyn::Connect
        }
    }

    /// A connection to the server is under way for a held SYN.
    pub fn begin(&mut self, now: Instant, ends: Ends, packet: u32, socket: S) {
        let waiting = Waiting {
            socket,
            since: now,
            answered: None,
            packet,
        };
        let before = self.waiting.insert(ends, waiting);
        assert!(before.is_none(), "{ends:?} waits twice");
        self.client(ends).waiting += 1;
    }

    /// The server accepted: the packet to let go on.
    pub fn on_answered(&mut self, now: Instant, ends: Ends) -> Option<u32> {
        let waiting = self.waiting.get_mut(&ends)?;
        waiting.answered = Some(now);
        Some(waiting.packet)
    }

    /// The server refused or cannot be reached: what connected, and the packet to answer.
    pub fn on_refused(&mut self, ends: Ends) -> Option<(S, u32)> {
        let waiting = self.forget(ends)?;
        Some((waiting.socket, waiting.packet))
    }

    /// The client's handshake is complete: the server's side of it, and how long the client's SYN was
    /// held. It counts as a connection from now on.
    pub fn on_accepted(&mut self, ends: Ends) -> Option<(S, Duration)> {
        // Where the server has not answered, the entry stays: its SYN still waits for a verdict.
        let waiting = self.waiting.get(&ends)?;
        let held = waiting.answered?.saturating_since(waiting.since);
        let waiting = self.forget(ends)?;
        self.connections.insert(ends);
        self.client(ends).connections += 1;
        Some((waiting.socket, held))
    }

    /// A connection has ended.
    pub fn on_closed(&mut self, ends: Ends) {
        assert!(self.connections.remove(&ends), "{ends:?} ended twice");
        self.client(ends).connections -= 1;
        self.tidy(ends.client.ip());
    }

    /// Takes out those whose time has passed.
    pub fn expire(&mut self, now: Instant) -> Vec<Expired<S>> {
        let limits = self.limits;
        let crowded = self.waiting.len() > limits.waiting / 2;
        let handshake = if crowded {
            limits.handshake_crowded
        } else {
            limits.handshake
        };
        let over = |w: &Waiting<S>| match w.answered {
            Some(at) => now.saturating_since(at) >= handshake,
            None => now.saturating_since(w.since) >= limits.answer,
        };
        let all = self.waiting.iter();
        let gone: Vec<Ends> = all.filter(|(_, w)| over(w)).map(|(e, _)| *e).collect();
        gone.into_iter()
            .filter_map(|ends| {
                let waiting = self.forget(ends)?;
                Some(Expired {
                    ends,
                    socket: waiting.socket,
                    packet: waiting.answered.is_none().then_some(waiting.packet),
                })
            })
            .collect()
    }

    /// Those whose server has not answered for so long.
    pub fn unanswered(&self, now: Instant, since: Duration) -> impl Iterator<Item = Ends> + '_ {
        let late =
            move |w: &Waiting<S>| w.answered.is_none() && now.saturating_since(w.since) >= since;
        let all = self.waiting.iter();
        all.filter(move |(_, w)| late(w)).map(|(ends, _)| *ends)
    }

    /// What connects for a SYN whose server has not answered.
    pub fn unanswered_socket(&self, ends: Ends) -> Option<S>
    where
        S: Copy,
    {
        let waiting = self.waiting.get(&ends)?;
        waiting.answered.is_none().then_some(waiting.socket)
    }

    /// How far a SYN that waits has come.
    pub fn progress(&self, ends: Ends) -> Option<Progress> {
        let waiting = self.waiting.get(&ends)?;
        Some(Progress {
            since_ns: waiting.since.as_ns(),
            answered_ns: waiting.answered.map(Instant::as_ns),
            packet: waiting.packet,
        })
    }

    /// One that waited with another gateway waits here, whatever the bounds.
    pub fn go_on(&mut self, ends: Ends, progress: Progress, socket: S) {
        let since = Instant::from_ns(progress.since_ns);
        self.begin(since, ends, progress.packet, socket);
        if let Some(at) = progress.answered_ns {
            self.on_answered(Instant::from_ns(at), ends);
        }
    }

    /// A connection that stood with another gateway stands here.
    pub fn go_on_connected(&mut self, ends: Ends) {
        if self.connections.insert(ends) {
            self.client(ends).connections += 1;
        }
    }

    /// Others' bounds from now on; what is beyond them already stays.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// SYNs that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Connections that have not ended.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Clients that anything is remembered of.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    fn client(&mut self, ends: Ends) -> &mut Client {
        self.clients.entry(ends.client.ip()).or_default()
    }

    fn forget(&mut self, ends: Ends) -> Option<Waiting<S>> {
        let waiting = self.waiting.remove(&ends)?;
        self.client(ends).waiting -= 1;
        self.tidy(ends.client.ip());
        Some(waiting)
    }

    fn tidy(&mut self, client: IpAddr) {
        let left = self.clients.get(&client);
        if left.is_some_and(|c| c.waiting + c.connections == 0) {
            self.clients.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        waiting: 4,
        waiting_per_client: 2,
        connections: 5,
        connections_per_client: 3,
        answer: Duration::from_s(130),
        handshake: Duration::from_s(15),
        handshake_crowded: Duration::from_s(3),
    };

    fn ends(client: u8, port: u16) -> Ends {
        Ends {
            client: ([10, 0, 0, client], port).into(),
            server: ([10, 1, 0, 1], 80).into(),
        }
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_ns(0) + Duration::from_s(seconds)
    }

    fn begin(deferral: &mut Deferral<u16>, now: Instant, ends: Ends) {
        assert_eq!(deferral.handle_syn(ends), OnSyn::Connect);
        deferral.begin(now, ends, u32::from(ends.client.port()), ends.client.port());
    }

    #[test]
    fn a_syn_waits_for_its_server_and_its_copies_for_nothing() {
        let mut d = Deferral::new(LIMITS);
        let e = ends(1, 7);
        assert!(!d.knows(e));
        begin(&mut d, at(0), e);
        assert!(d.knows(e));
        assert_eq!(d.handle_syn(e), OnSyn::Drop);
        assert_eq!(d.on_answered(at(1), e), Some(7));
        // The client lost our SYN-ACK and asks again.
        assert_eq!(d.handle_syn(e), OnSyn::Release);
        assert_eq!(d.on_accepted(e), Some((7, Duration::from_s(1))));
        assert_eq!((d.waiting(), d.connections()), (0, 1));
        // A SYN for a connection that stands opens no second one.
        assert!(d.knows(e));
        assert_eq!(d.handle_syn(e), OnSyn::Release);
        d.on_closed(e);
        assert!(!d.knows(e));
        assert_eq!((d.connections(), d.clients()), (0, 0));
    }

    #[test]
    fn who_waits_or_stands_does_so_with_the_next_gateway() {
        let (mut old, mut new) = (Deferral::new(LIMITS), Deferral::new(LIMITS));
        for port in 1..=2 {
            begin(&mut old, at(3), ends(1, port));
        }
        old.on_answered(at(4), ends(1, 2));
        for port in 1..=2 {
            let e = ends(1, port);
            new.go_on(e, old.progress(e).unwrap(), port);
            assert_eq!(new.progress(e), old.progress(e));
        }
        new.go_on_connected(ends(2, 9));
        assert_eq!(new.handle_syn(ends(1, 1)), OnSyn::Drop);
        assert_eq!(new.handle_syn(ends(2, 9)), OnSyn::Release);
        assert_eq!(new.on_accepted(ends(1, 2)), Some((2, Duration::from_s(1))));
        assert_eq!(new.expire(at(133)).len(), 1);
        new.on_closed(ends(2, 9));
        new.on_closed(ends(1, 2));
        assert_eq!((new.waiting(), new.connections(), new.clients()), (0, 0, 0));
    }

    #[test]
    fn nobody_is_accepted_before_the_server_has_answered() {
        let mut d = Deferral::new(LIMITS);
        begin(&mut d, at(0), ends(1, 7));
        assert_eq!(d.on_accepted(ends(1, 8)), None);
        assert_eq!(d.on_accepted(ends(1, 7)), None);
        // Who came too early is turned away; the SYN that is held is not forgotten.
        assert_eq!(d.waiting(), 1);
        assert_eq!(d.on_refused(ends(1, 7)), Some((7, 7)));
    }

    #[test]
    fn a_refusal_names_the_packet_to_answer() {
        let mut d = Deferral::new(LIMITS);
        begin(&mut d, at(0), ends(1, 7));
        assert_eq!(d.on_refused(ends(1, 7)), Some((7, 7)));
        assert_eq!(d.on_refused(ends(1, 7)), None);
        assert_eq!(d.clients(), 0);
    }

    #[test]
    fn each_bound_passes_the_next_one_on() {
        let mut d = Deferral::new(LIMITS);
        begin(&mut d, at(0), ends(1, 1));
        begin(&mut d, at(0), ends(1, 2));
        assert_eq!(
            d.handle_syn(ends(1, 3)),
            OnSyn::Pass(Reason::WaitingOfClient)
        );
        begin(&mut d, at(0), ends(2, 1));
        begin(&mut d, at(0), ends(3, 1));
        assert_eq!(d.handle_syn(ends(4, 1)), OnSyn::Pass(Reason::Waiting));
        for e in [ends(1, 1), ends(1, 2), ends(2, 1), ends(3, 1)] {
            d.on_answered(at(0), e);
            assert!(d.on_accepted(e).is_some());
        }
        begin(&mut d, at(0), ends(1, 3));
        // Four that stand and one that waits.
        assert_eq!(d.handle_syn(ends(4, 1)), OnSyn::Pass(Reason::Connections));
        d.on_closed(ends(3, 1));
        assert_eq!(
            d.handle_syn(ends(1, 4)),
            OnSyn::Pass(Reason::ConnectionsOfClient)
        );
        assert_eq!(d.handle_syn(ends(4, 1)), OnSyn::Connect);
    }

    #[test]
    fn who_waits_in_vain_is_let_go_at_the_moment_and_not_before() {
        let mut d = Deferral::new(LIMITS);
        begin(&mut d, at(0), ends(1, 1));
        begin(&mut d, at(0), ends(1, 2));
        d.on_answered(at(1), ends(1, 2));
        assert_eq!(d.expire(at(15)), []);
        let handshake = d.expire(at(16));
        assert_eq!(handshake.len(), 1);
        assert_eq!((handshake[0].socket, handshake[0].packet), (2, None));
        assert_eq!(d.expire(at(129)), []);
        let answer = d.expire(at(130));
        assert_eq!((answer[0].socket, answer[0].packet), (1, Some(1)));
        assert_eq!((d.waiting(), d.clients()), (0, 0));
    }

    #[test]
    fn a_crowd_waits_for_less() {
        let mut d = Deferral::new(LIMITS);
        for client in 1..=3 {
            begin(&mut d, at(0), ends(client, 1));
            d.on_answered(at(0), ends(client, 1));
        }
        assert_eq!(d.expire(at(2)).len(), 0);
        assert_eq!(d.expire(at(3)).len(), 3);
    }
}
