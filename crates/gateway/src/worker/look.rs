//! What a worker says of its connections, when somebody asks and once a second.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;

use units::{Duration, Instant};

use super::{Carrying, State, Worker};
use crate::buffers::{self, Sizes};
use crate::config::Zone;
use crate::relay::Side;
use crate::sockets;
use crate::view::{HalfSeen, Seen};

/// Asks for the busiest connections.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) most: usize,
    pub(crate) answer: SyncSender<Vec<Seen>>,
}

/// How fast a connection has been lately.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) since: Instant,
    looked: Instant,
    carried: [u64; 2],
    rate_bps: [u64; 2],
}

impl Pace {
    /// Of one that has carried so much by `now`.
    pub(super) const fn new(since: Instant, now: Instant, carried: [u64; 2]) -> Self {
        Self {
            since,
            looked: now,
            carried,
            rate_bps: [0; 2],
        }
    }

    fn look(&mut self, now: Instant, carried: [u64; 2]) {
        let time = now.saturating_since(self.looked);
        if time == Duration::ZERO {
            return;
        }
        for (index, bytes) in carried.into_iter().enumerate() {
            let more = units::Bytes::new(bytes - self.carried[index].min(bytes));
            self.rate_bps[index] = units::Rate::average(more, time).as_bits_per_second();
        }
        (self.looked, self.carried) = (now, carried);
    }
}

impl Worker {
    pub(super) fn answer_questions(&mut self, now: Instant) {
        while let Ok(question) = self.questions.try_recv() {
            let mut busiest: Vec<&Carrying> = self.carrying().collect();
            if busiest.len() > question.most {
                // Who asks puts them in order.
                busiest.select_nth_unstable_by_key(question.most, |c| {
                    std::cmp::Reverse(c.pace.rate_bps.iter().max().copied())
                });
                busiest.truncate(question.most);
            }
            let mut seen: Vec<Seen> = busiest.iter().map(|c| c.seen(now)).collect();
            self.orders.with_buffers(|buffers| {
                for seen in &mut seen {
                    seen.know_ways(buffers);
                }
            });
            // Who asked may have gone.
            let _ = question.answer.try_send(seen);
        }
    }

    pub(super) fn look_at_paces(&mut self, now: Instant) {
        for slot in &mut self.slots {
            if let State::Carrying(carrying) = &mut slot.state {
                let carried = Side::BOTH.map(|s| carrying.relay.carried(s));
                carrying.pace.look(now, carried);
                // Of the client's half its listener has seen to that. A connection that ends before this
                // pays nothing for it.
                if !std::mem::replace(&mut carrying.kept_alive, true) {
                    let server = carrying.sockets[Side::Server.index()].as_fd();
                    let refused =
                        sockets::keep_alive(server, self.config.zone(carrying.zone.other()));
                    self.counters.options_refused.add(refused);
                }
            }
        }
    }

    /// Takes in what the fast ones have measured, and gives listeners what their side has come to need.
    pub(super) fn learn(&mut self) {
        let config = Arc::clone(&self.config);
        let free = |zone: Zone| config.zone(zone).buffer.is_none();
        let fast = |c: &&Carrying| c.pace.rate_bps.iter().any(|bps| *bps >= WORTH);
        let mut learnt = Vec::new();
        for carrying in self.carrying().filter(fast).take(LOOKED_AT) {
            for side in Side::BOTH {
                let (zone, peer) = match side {
                    Side::Client => (carrying.zone, carrying.ends.client),
                    Side::Server => (carrying.zone.other(), carrying.ends.server),
                };
                let info = sys::tcp::tcp_info(carrying.sockets[side.index()].as_fd());
                if let Ok(info) = info {
                    let rtt = Duration::from_us(info.min_rtt_us.min(info.rtt_us));
                    // Sent to this end is what came from the other. Where buffers are given, round trips are all
                    // that is of use.
                    let rates = [side.other(), side].map(|s| carrying.pace.rate_bps[s.index()]);
                    let rates = if free(zone) { rates } else { [0; 2] };
                    let rates = rates.map(units::Rate::from_bits_per_second);
                    learnt.push((zone, peer.ip(), rates, rtt));
                }
            }
        }
        if learnt.is_empty() && !self.orders.enlarged.load(Ordering::Relaxed) {
            return;
        }
        let live = self.live();
        let sides = self.orders.with_buffers(|buffers| {
            for (zone, peer, rates, rtt) in learnt {
                buffers.observe(zone, peer, rates, rtt);
            }
            Zone::BOTH.map(|zone| buffers.sizes_of_side(zone, live))
        });
        let Some(sides) = sides else { return };
        if sides.iter().any(|s| *s != Sizes::default()) {
            self.orders.enlarged.store(true, Ordering::Relaxed);
        }
        for (listener, zone) in &self.listeners {
            // Less as well: the more stand, the less each new one gets.
            let (own, had) = (sides[zone.index()], self.listening[zone.index()]);
            if free(*zone) && own != had {
                sockets::refit(listener.as_fd(), had, own);
            }
        }
        for zone in Zone::BOTH.into_iter().filter(|z| free(*z)) {
            self.listening[zone.index()] = sides[zone.index()];
        }
    }

    /// The buffers that a new connection with a host gets.
    pub(super) fn learnt(&self, zone: Zone, peer: IpAddr) -> Sizes {
        let asked = self.orders.enlarged.load(Ordering::Relaxed);
        if !asked || self.config.zone(zone).buffer.is_some() {
            return Sizes::default();
        }
        let live = self.live();
        let sizes = self.orders.with_buffers(|b| b.sizes(zone, peer, live));
        sizes.unwrap_or_default()
    }

    /// Connections of all workers, as far as one knows: they are spread evenly.
    pub(super) fn live(&self) -> u64 {
        self.counters.live.get() * u64::from(self.config.workers)
    }

    fn carrying(&self) -> impl Iterator<Item = &Carrying> {
        self.slots.iter().filter_map(|slot| match &slot.state {
            State::Carrying(carrying) => Some(&**carrying),
            _ => None,
        })
    }
}

impl Carrying {
    fn seen(&self, now: Instant) -> Seen {
        let half = |side: Side| {
            let fd = self.sockets[side.index()].as_fd();
            let info = sys::tcp::tcp_info(fd).unwrap_or_default();
            let buffers = [sys::tcp::send_buffer(fd), sys::tcp::receive_buffer(fd)];
            let buffers = buffers.map(|b| b.map_or(0, units::Bytes::as_u64));
            let congestion = sys::tcp::congestion(fd).unwrap_or_default();
            HalfSeen::of(&info, congestion, buffers)
        };
        Seen {
            client: self.ends.client,
            server: self.ends.server,
            outside: self.zone == Zone::Outside,
            age_ms: now.saturating_since(self.pace.since).as_ns() / 1_000_000,
            carried: Side::BOTH.map(|s| self.relay.carried(s)),
            rate_bps: self.pace.rate_bps,
            in_pipe: Side::BOTH.map(|s| self.relay.in_pipe(s)),
            halves: Side::BOTH.map(half),
        }
    }
}

/// Of a second, of each worker: two questions to the kernel for each.
const LOOKED_AT: usize = 64;
const WORTH: u64 = buffers::WORTH.as_bits_per_second();
