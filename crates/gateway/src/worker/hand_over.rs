//! A worker on its way from one process to another.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};
use sys::control::Connection;
use sys::nfqueue::Queue;
use units::Instant;

use super::carrying::Delay;
use super::last_ack::LastAcks;
use super::look::Pace;
use super::{Carrying, Connecting, Orders, Slot, State, Worker, interest, token};
use crate::config::{Config, Pacing, Zone};
use crate::links::Links;
use crate::relay::Side;
use crate::sockets::{self, Pipe};
use crate::upgrade::{self, FDS_MAX, Head, Record, Stage};

impl Worker {
    /// Sends everything that it has. It keeps its own descriptors, and can go on if this fails.
    ///
    /// # Errors
    /// What the connection says, or the one who is to take it.
    pub(crate) fn give(&self, to: &mut Connection) -> io::Result<()> {
        let busy = |slot: &&Slot| !matches!(slot.state, State::Free);
        let zones = self.listeners.iter().map(|(_, zone)| *zone);
        let head = Head {
            counts: self.counters.read(),
            listeners: zones.map(|zone| zone == Zone::Outside).collect(),
            queue: self.queue.is_some(),
            last_acks: self.last_acks.is_some(),
            one_way: self
                .one_way
                .found()
                .map(|(pair, until)| (pair, until.as_ns()))
                .collect(),
            connections: self.slots.iter().filter(busy).count(),
        };
        let listeners = self.listeners.iter().map(|(l, _)| l.as_fd());
        let queue = self.queue.as_ref().map(AsFd::as_fd);
        let acks = self.last_acks.as_ref().map(|a| a.queue().as_fd());
        let fds: Vec<_> = listeners.chain(queue).chain(acks).collect();
        upgrade::give(to, &head, &fds)?;
        let (mut records, mut fds) = (Vec::new(), Vec::new());
        for place in 0..self.slots.len() {
            let Some((record, its)) = self.record(place) else {
                continue;
            };
            if fds.len() + its.len() > FDS_MAX {
                upgrade::give(to, &records, &fds)?;
                (records, fds) = (Vec::new(), Vec::new());
            }
            records.push(record);
            fds.extend(its);
        }
        match records.is_empty() {
            true => Ok(()),
            false => upgrade::give(to, &records, &fds),
        }
    }

    fn record(&self, place: usize) -> Option<(Record, Vec<BorrowedFd<'_>>)> {
        let (ends, zone, link, stage, fds) = match &self.slots[place].state {
            State::Free => return None,
            State::Connecting(connecting) => {
                let Connecting {
                    server,
                    ends,
                    zone,
                    dscp,
                    answer_dscp,
                    client,
                    answered,
                    link,
                    mss,
                    rule,
                    ..
                } = &**connecting;
                let stage = Stage::Connecting {
                    dscp: *dscp,
                    answer_dscp: *answer_dscp,
                    answered: *answered,
                    progress: self.deferral.progress(*ends)?,
                    client: client.is_some(),
                    mss: *mss,
                    rule: *rule,
                };
                let client = client.as_ref().map(AsFd::as_fd);
                let fds: Vec<_> = client.into_iter().chain([server.as_fd()]).collect();
                (*ends, *zone, *link, stage, fds)
            }
            State::Carrying(carrying) => {
                let Carrying {
                    relay,
                    sockets,
                    pipes,
                    corked,
                    ends,
                    zone,
                    link,
                    pace,
                    ..
                } = &**carrying;
                let mut paced = [false; 2];
                for side in self.paced_sides(place) {
                    paced[side.index()] = true;
                }
                let stage = Stage::Carrying {
                    paced,
                    since_ns: pace.since.as_ns(),
                    relay: Box::new(relay.clone()),
                    corked: *corked,
                    pipes: pipes.each_ref().map(Option::is_some),
                };
                let mut fds: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
                for pipe in pipes.iter().flatten() {
                    fds.extend([pipe.out.as_fd(), pipe.into.as_fd()]);
                }
                (*ends, *zone, *link, stage, fds)
            }
        };
        let record = Record {
            ends,
            outside: zone == Zone::Outside,
            link,
            stage,
        };
        Some((record, fds))
    }

    /// Makes a worker of what another one gave. Nothing is read or written until it runs.
    ///
    /// # Errors
    /// What the connection says, what is missing, what the kernel refuses.
    pub(crate) fn take(
        number: u8,
        config: Arc<Config>,
        zones: Vec<(u32, Zone)>,
        links: Arc<Links>,
        orders: Arc<Orders>,
        from: &mut Connection,
    ) -> io::Result<Self> {
        let queue = config.queue + u16::from(number);
        let mut worker = Self::bare(number, config, zones, links, orders)
            .map_err(|(what, e)| io::Error::new(e.kind(), format!("{what}: {e}")))?;
        let (head, mut fds): (Head, _) = upgrade::hear(from)?;
        for outside in head.listeners {
            let listener = TcpListener::from(upgrade::next(&mut fds)?);
            worker.listeners.push((listener, zone_of(outside)));
        }
        if head.queue {
            worker.queue = Some(Queue::from_fd(upgrade::next(&mut fds)?, queue));
        }
        if head.last_acks {
            let number = crate::install::hold_queue(&worker.config, worker.number).unwrap_or(0);
            let queue = Queue::from_fd(upgrade::next(&mut fds)?, number);
            let mark = crate::install::hold_mark(&worker.config, worker.number);
            worker.last_acks = Some(LastAcks::new(queue, mark));
        }
        let found = head.one_way.into_iter();
        worker
            .one_way
            .go_on_from(found.map(|(pair, until)| (pair, Instant::from_ns(until))));
        worker.counters.go_on_from(&head.counts);
        worker.counters.acks_held.set(0);
        // Those that were kept for later are not among what comes.
        worker.counters.pipes.set(0);
        worker.register()?;
        upgrade::accept(from)?;
        let mut left = head.connections;
        while left > 0 {
            let (records, mut fds): (Vec<Record>, _) = upgrade::hear(from)?;
            if records.is_empty() {
                return Err(io::Error::other("fewer connections than promised"));
            }
            left = left.saturating_sub(records.len());
            for record in records {
                worker.take_up(record, &mut fds)?;
            }
            upgrade::accept(from)?;
        }
        Ok(worker)
    }

    /// From here on there is no other gateway: what was made as that one's configuration said becomes what ours says.
    pub(crate) fn make_own(&mut self) {
        for (listener, zone) in &self.listeners {
            let refused = sockets::prepare_anew(listener.as_fd(), self.config.zone(*zone));
            self.counters.options_refused.add(refused);
        }
        for (slot, side) in std::mem::take(&mut self.left_ceilings) {
            let State::Carrying(carrying) = &self.slots[slot].state else {
                continue;
            };
            let socket = carrying.sockets[side.index()].as_fd();
            let _ = match self.config.zone(carrying.zone_of(side)).pacing {
                Some(Pacing::Rate(rate)) => sys::tcp::set_max_pacing(socket, rate),
                _ => sys::tcp::lift_max_pacing(socket),
            };
        }
    }

    fn take_up(
        &mut self,
        record: Record,
        fds: &mut impl Iterator<Item = OwnedFd>,
    ) -> io::Result<()> {
        let Record {
            ends,
            outside,
            link,
            stage,
        } = record;
        // Both have the same links, in the same order.
        let link = link.filter(|at| *at < self.links.all().len());
        if let Some(link) = link {
            self.links.on_placed(link);
        }
        let slot = self.slots.len();
        let zone = zone_of(outside);
        let listen = |socket: &TcpStream, side: Side| {
            let data = EventData::new_u64(token(slot, 0, side));
            epoll::add(&self.epoll, socket, data, interest())
        };
        let mut paced_before = [false; 2];
        let state = match stage {
            Stage::Connecting {
                dscp,
                answer_dscp,
                answered,
                progress,
                client,
                mss,
                rule,
            } => {
                let client = client.then(|| upgrade::next(fds)).transpose()?;
                let server = TcpStream::from(upgrade::next(fds)?);
                listen(&server, Side::Server)?;
                self.deferral.go_on(ends, progress, slot);
                State::Connecting(Box::new(Connecting {
                    server,
                    ends,
                    zone,
                    mss,
                    rule,
                    dscp,
                    answer_dscp,
                    client: client.map(TcpStream::from),
                    answered,
                    link,
                    begun: Instant::from_ns(progress.since_ns),
                    // This epoll tells it anew.
                    seen: EventFlags::empty(),
                    own: None,
                }))
            }
            Stage::Carrying {
                since_ns,
                relay,
                corked,
                pipes,
                paced,
            } => {
                paced_before = paced;
                let client = TcpStream::from(upgrade::next(fds)?);
                let server = TcpStream::from(upgrade::next(fds)?);
                listen(&client, Side::Client)?;
                listen(&server, Side::Server)?;
                let mut pipe = |there: bool| -> io::Result<Option<Pipe>> {
                    if !there {
                        return Ok(None);
                    }
                    let out = upgrade::next(fds)?;
                    let into = upgrade::next(fds)?;
                    Ok(Some(Pipe::from_parts(out, into)))
                };
                let pipes = [pipe(pipes[0])?, pipe(pipes[1])?];
                self.counters
                    .pipes
                    .add(pipes.iter().flatten().count() as u64);
                self.deferral.go_on_connected(ends);
                // What the old one knew to be ready nobody announces again.
                self.busy.push_back(slot);
                let carried = Side::BOTH.map(|s| relay.carried(s));
                let now = sys::clock::monotonic();
                State::Carrying(Box::new(Carrying {
                    relay: *relay,
                    sockets: [client, server],
                    pipes,
                    corked,
                    marked: [true; 2],
                    fresh: [false; 2],
                    hung_up: [false; 2],
                    large: [false; 2],
                    delay: [Delay::Written; 2],
                    room_told: true,
                    stays: false,
                    kept_alive: false,
                    own: None,
                    ends,
                    zone,
                    link,
                    queued: true,
                    pace: Pace::new(Instant::from_ns(since_ns), now, carried),
                    bounded: [None; 2],
                    windows: [None; 2],
                }))
            }
        };
        self.slots.push(Slot {
            generation: 0,
            state,
        });
        self.watch_last_acks(slot);
        self.join_gaps(slot, sys::clock::monotonic());
        let paced: Vec<Side> = self.paced_sides(slot).collect();
        let left = Side::BOTH.into_iter();
        let left = left.filter(|s| paced_before[s.index()] && !paced.contains(s));
        self.left_ceilings.extend(left.map(|side| (slot, side)));
        Ok(())
    }
}

const fn zone_of(outside: bool) -> Zone {
    match outside {
        true => Zone::Outside,
        false => Zone::Inside,
    }
}
