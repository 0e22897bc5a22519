//! Clients' sockets: taken from their listeners, as long as there are descriptors for them.

use std::fmt::Display;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use sys::{clock, transparent};
use units::{Duration, Instant};

use super::decided::About;
use super::{Connecting, LISTENERS, Order, Worker};
use crate::config::{Mode, Zone};
use crate::decisions::{Event, Why};
use crate::deferral::OnSyn;
use crate::rules::{Action, Asked};
use crate::sockets;
use crate::syn::Ends;

/// Where nothing can be accepted for now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    until: Option<Instant>,
    /// When that was said last, and how often it has been since.
    said: Option<Instant>,
    unsaid: u64,
}

impl Worker {
    pub(super) fn listen(&self) -> io::Result<()> {
        for (index, (listener, _)) in self.listeners.iter().enumerate() {
            let token = EventData::new_u64(LISTENERS - index as u64);
            epoll::add(&self.epoll, listener, token, EventFlags::IN)?;
        }
        Ok(())
    }

    pub(super) fn accept(&mut self, index: usize) {
        // The event of a listener that rests since this very round.
        if self.rest.until.is_some() {
            return;
        }
        // One at a time: where there is another one, the next look says so.
        let (listener, zone) = &self.listeners[index];
        let zone = *zone;
        match transparent::accept(listener) {
            Ok(Some((socket, from))) => match self.config.mode {
                Mode::Transparent => self.join(socket, from),
                Mode::Explicit { target, .. } => self.go_on(socket, from, zone, target),
            },
            Ok(None) => {}
            Err(e) if has_no_means(&e) => self.rest_from_accepting(&e),
            // Gone before it was taken.
            Err(e) => self.warn(&format_args!("accepting: {e}")),
        }
    }

    /// Who waits stays in the kernel's queue. Listeners would say at once that he is still there, again and again.
    fn rest_from_accepting(&mut self, error: &io::Error) {
        for (listener, _) in &self.listeners {
            let _ = epoll::delete(&self.epoll, listener);
        }
        let now = clock::monotonic();
        self.rest.until = Some(now + REST);
        self.counters.accept_rests.more();
        let silent = |said| now.saturating_since(said) < MINUTE;
        if self.rest.said.is_some_and(silent) {
            self.rest.unsaid += 1;
            return;
        }
        self.rest.said = Some(now);
        let unsaid = match std::mem::take(&mut self.rest.unsaid) {
            0 => String::new(),
            n => format!(" ({n} more such rests before)"),
        };
        tracing::warn!("accepts nothing for {REST}: {error}; who connects waits{unsaid}");
    }

    pub(super) fn look_at_rest(&mut self, now: Instant) {
        if self.rest.until.is_none_or(|until| now < until) {
            return;
        }
        self.rest.until = None;
        if let Err(e) = self.listen() {
            self.rest_from_accepting(&e);
        }
    }

    /// The client's half of a connection whose server's half stands.
    fn join(&mut self, client: TcpStream, from: SocketAddr) {
        let Ok(to) = client.local_addr() else {
            return;
        };
        let ends = Ends {
            client: from,
            server: to,
        };
        // Dropping resets: the server has ended it meanwhile, or nobody held this SYN.
        let Some((slot, held)) = self.deferral.on_accepted(ends) else {
            return;
        };
        self.begin(slot, client, held);
    }

    /// The other end is a socket of this gateway.
    fn is_own(&self, client: &TcpStream, from: SocketAddr) -> bool {
        let Ok(meant) = transparent::meant_for(client) else {
            return false;
        };
        let ends = Ends {
            client: from,
            server: meant,
        };
        self.orders.own().contains(&ends)
    }

    /// Connects to the target on the gateway's own account. Another worker may accept the connection before connect(2) has come
    /// back: it finds out whose it is only when that is written down.
    fn connect_to(&self, target: SocketAddr, zone: Zone) -> io::Result<(TcpStream, Ends)> {
        let mut all = self.orders.own();
        let server = sockets::connect_openly(target, self.config.zone(zone))?;
        let own = Ends {
            client: server.local_addr()?,
            server: at_loopback(target),
        };
        all.insert(own);
        Ok((server, own))
    }

    /// Somebody connected openly: go on to the target.
    fn go_on(&mut self, client: TcpStream, from: SocketAddr, zone: Zone, target: SocketAddr) {
        let ends = Ends {
            client: from,
            server: target,
        };
        let refused = |why: &dyn Display| tracing::info!("{from} to {target}: {why}");
        let mut about = About {
            ends,
            zone,
            mss: None,
            rule: None,
        };
        if self.orders.current() != Order::Run {
            return;
        }
        if self.is_own(&client, from) {
            self.counters.looped.more();
            self.note(Event::Refused, Why::Loop, about);
            return refused(&"the gateway's target leads back to it");
        }
        // Here nothing can be passed on unsplit.
        let (action, rule) = self.config.rules.decide(Asked {
            client: from,
            server: target,
            side: zone,
            mss: None,
        });
        about.rule = rule;
        let forbidden = match (action, self.deferral.handle_syn(ends)) {
            (Action::Split, OnSyn::Connect) => None,
            (Action::Split, OnSyn::Pass(why)) => Some(why.into()),
            _ => Some(Why::Rule),
        };
        if let Some(why) = forbidden {
            self.counters.forbidden.more();
            self.note(Event::Refused, why, about);
            return refused(&"a rule or a limit forbids it");
        }
        let connected = self.connect_to(target, zone.other());
        let placed = connected.and_then(|(server, own)| {
            self.place(Connecting {
                server,
                ends,
                zone,
                mss: None,
                rule,
                link: None,
                begun: clock::monotonic(),
                dscp: 0,
                answer_dscp: 0,
                client: Some(client),
                answered: false,
                seen: EventFlags::empty(),
                own: Some(own),
            })
            .inspect_err(|_| {
                self.orders.own().remove(&own);
            })
        });
        match placed {
            Ok(slot) => self.deferral.begin(clock::monotonic(), ends, 0, slot),
            Err(e) => {
                self.counters.failed.more();
                self.note(Event::Refused, Why::Failure, about);
                refused(&e);
            }
        }
    }
}

/// Where a connection to an address arrives: at loopback, where it is of all zeros.
fn at_loopback(target: SocketAddr) -> SocketAddr {
    let ip = match target.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    (ip, target.port()).into()
}

/// No descriptor or no memory: it fails again until somebody gives some back.
fn has_no_means(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS)
    )
}

/// As long as times are not looked at.
const REST: Duration = Duration::from_ms(100);
const MINUTE: Duration = Duration::from_s(60);
