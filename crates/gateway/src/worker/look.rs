//! What a worker says of its connections, when somebody asks and once a second.

use std::os::fd::AsFd;
use std::sync::mpsc::SyncSender;

use units::{Duration, Instant};

use super::{Carrying, State, Worker};
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
    pub(super) const fn new(since: Instant, now: Instant) -> Self {
        Self {
            since,
            looked: now,
            carried: [0; 2],
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
                busiest.sort_unstable_by_key(|c| {
                    std::cmp::Reverse(c.pace.rate_bps.iter().max().copied())
                });
                busiest.truncate(question.most);
            }
            let seen = busiest.iter().map(|c| c.seen(now)).collect();
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
            HalfSeen::of(&info, sys::tcp::congestion(fd).unwrap_or_default())
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
