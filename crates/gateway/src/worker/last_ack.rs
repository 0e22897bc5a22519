//! The last ACK towards a side that wants it so waits until the other side has acknowledged everything.
//!
//! The kernel acknowledges what it receives, before any program hears of it. So what a half on such a side sends
//! passes a queue, and once that side has sent its FIN, everything that would acknowledge it stays there: until
//! the FIN that was passed on is acknowledged by the other side, which also says that all bytes before it were. The
//! halves are kept as long. If the other side never does, TCP itself gives up there, and both ends are reset.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use sys::nfqueue::{Fate, Queue};

use super::{Carrying, State, Worker};
use crate::install;
use crate::relay::{Side, Step};
use crate::syn::Packet;

/// What waits in the queue, and for whom.
#[derive(Debug)]
pub(super) struct LastAcks {
    queue: Queue,
    mark: u32,
    /// Halves whose packets pass the queue, by the ends that those packets bear: from, to.
    halves: HashMap<(SocketAddr, SocketAddr), (usize, Side)>,
    /// The same by their connection's slot.
    slots: HashMap<usize, Vec<(SocketAddr, SocketAddr)>>,
    /// Packets that wait, by their connection's slot.
    held: HashMap<usize, Vec<(Side, u32)>>,
}

impl LastAcks {
    pub(super) fn new(queue: Queue, mark: u32) -> Self {
        Self {
            queue,
            mark,
            halves: HashMap::new(),
            slots: HashMap::new(),
            held: HashMap::new(),
        }
    }

    pub(super) const fn queue(&self) -> &Queue {
        &self.queue
    }

    /// `to`: where its peer is, of one that does not stand yet.
    fn watch(&mut self, slot: usize, side: Side, socket: &TcpStream, to: Option<SocketAddr>) {
        let to = to.map_or_else(|| socket.peer_addr(), Ok);
        if let (Ok(from), Ok(to)) = (socket.local_addr(), to)
            && self.halves.insert((from, to), (slot, side)) != Some((slot, side))
        {
            self.slots.entry(slot).or_default().push((from, to));
        }
    }

    fn decide(&mut self, id: u32, fate: Fate) {
        if let Err(e) = self.queue.decide(id, fate) {
            tracing::warn!("cannot tell the kernel what becomes of an ACK: {e}");
        }
    }
}

impl Worker {
    /// The mark of what halves on this side send, where their last ACK is held back.
    pub(super) fn hold_mark(&self, zone: crate::config::Zone) -> Option<u32> {
        let holds = self.config.zone(zone).hold_last_ack;
        holds.then(|| install::hold_mark(&self.config, self.number))
    }

    pub(super) fn bind_last_acks(&mut self) -> io::Result<()> {
        if let Some(number) = install::hold_queue(&self.config, self.number) {
            let queue = Queue::bind_whole(number, QUEUED, HEADER_BYTES)?;
            let mark = install::hold_mark(&self.config, self.number);
            self.last_acks = Some(LastAcks::new(queue, mark));
        }
        Ok(())
    }

    /// A connection is begun, or stands, whose halves may be such. A server may end before its client's handshake is
    /// complete.
    pub(super) fn watch_last_acks(&mut self, slot: usize) {
        let Some(acks) = &mut self.last_acks else {
            return;
        };
        let holds = |zone| self.config.zone(zone).hold_last_ack;
        match &mut self.slots[slot].state {
            State::Free => {}
            State::Connecting(connecting) => {
                if holds(connecting.zone.other()) {
                    let to = connecting.ends.server;
                    acks.watch(slot, Side::Server, &connecting.server, Some(to));
                }
            }
            State::Carrying(carrying) => {
                for side in Side::BOTH {
                    if holds(carrying.zone_of(side)) {
                        carrying.stays = true;
                        acks.watch(slot, side, &carrying.sockets[side.index()], None);
                    }
                }
            }
        }
    }

    /// Packets that halves on such a side send.
    pub(super) fn take_acks(&mut self) {
        let Some(mut acks) = self.last_acks.take() else {
            return;
        };
        let mut came = Vec::new();
        if let Err(e) = acks
            .queue
            .receive(|h| came.push((h.id, Packet::parse(h.bytes).ok())))
        {
            self.warn(&format_args!(
                "the queue of ACKs overflowed: {e}; they will come again"
            ));
        }
        for (id, packet) in came {
            let half = packet.and_then(|p| acks.halves.get(&(p.from, p.to)).copied());
            let wait = half.filter(|(slot, side)| match &self.slots[*slot].state {
                State::Carrying(carrying) => {
                    carrying.has_sent_fin(*side) && !carrying.has_acknowledged_all(side.other())
                }
                // There is nobody yet who could have acknowledged anything.
                State::Connecting(connecting) => has_sent_fin(connecting.server.as_fd()),
                State::Free => false,
            });
            match wait {
                None => acks.decide(id, Fate::Go(acks.mark)),
                Some((slot, side)) => {
                    let held = acks.held.entry(slot).or_default();
                    if held.is_empty() {
                        self.counters.acks_held.more();
                    }
                    if held.len() < HELD_EACH {
                        held.push((side, id));
                    } else {
                        // TCP sends it again.
                        acks.decide(id, Fate::Drop);
                    }
                }
            }
        }
        self.last_acks = Some(acks);
    }

    /// True while a connection that has ended is to be kept since an ACK of it waits, or may come to wait.
    pub(super) fn keeps_for_last_ack(&self, slot: usize) -> bool {
        let (Some(_), State::Carrying(carrying)) = (&self.last_acks, &self.slots[slot].state)
        else {
            return false;
        };
        Side::BOTH.into_iter().any(|side| {
            self.config.zone(carrying.zone_of(side)).hold_last_ack
                && !carrying.has_acknowledged_all(side.other())
        })
    }

    /// Lets go what has waited long enough, of one connection.
    pub(super) fn look_at_last_acks(&mut self, slot: usize) {
        let (Some(acks), State::Carrying(carrying)) =
            (&mut self.last_acks, &self.slots[slot].state)
        else {
            return;
        };
        if let Some(held) = acks.held.remove(&slot) {
            let (go, stay): (Vec<_>, Vec<_>) = held
                .into_iter()
                .partition(|(side, _)| carrying.has_acknowledged_all(side.other()));
            for (_, id) in go {
                acks.decide(id, Fate::Go(acks.mark));
            }
            if stay.is_empty() {
                self.counters.acks_held.less();
            } else {
                acks.held.insert(slot, stay);
            }
        }
    }

    /// The same of all, and of connections that were kept.
    pub(super) fn look_at_all_last_acks(&mut self) {
        let Some(acks) = &self.last_acks else {
            return;
        };
        let slots: Vec<usize> = acks.slots.keys().copied().collect();
        for slot in slots {
            self.look_at_last_acks(slot);
            if let State::Carrying(carrying) = &self.slots[slot].state
                && carrying.relay.poll_step() == Step::Close
            {
                self.carry(slot);
            }
        }
    }

    /// A connection is over: nothing of it waits any more.
    pub(super) fn forget_last_acks(&mut self, slot: usize) {
        let Some(acks) = &mut self.last_acks else {
            return;
        };
        for half in acks.slots.remove(&slot).into_iter().flatten() {
            // Another connection may have come to these ends.
            if acks.halves.get(&half).is_some_and(|(of, _)| *of == slot) {
                acks.halves.remove(&half);
            }
        }
        if let Some(held) = acks.held.remove(&slot) {
            self.counters.acks_held.less();
            for (_, id) in held {
                // Of one that was reset: the ACK would say what is not so.
                acks.decide(id, Fate::Drop);
            }
        }
    }

    /// Nothing waits: who goes on for this one does not know what did. Peers send their FIN again.
    pub(super) fn drop_last_acks(&mut self) {
        let Some(acks) = &mut self.last_acks else {
            return;
        };
        for (_, held) in std::mem::take(&mut acks.held) {
            self.counters.acks_held.less();
            for (_, id) in held {
                acks.decide(id, Fate::Drop);
            }
        }
    }
}

impl Carrying {
    /// The side of the gateway that this half is on.
    pub(super) fn zone_of(&self, side: Side) -> crate::config::Zone {
        match side {
            Side::Client => self.zone,
            Side::Server => self.zone.other(),
        }
    }

    /// The kernel has this side's FIN.
    fn has_sent_fin(&self, side: Side) -> bool {
        has_sent_fin(self.sockets[side.index()].as_fd())
    }

    /// This side has acknowledged everything, the end as well.
    fn has_acknowledged_all(&self, side: Side) -> bool {
        self.relay.has_shut(side) && has_acknowledged_fin(self.sockets[side.index()].as_fd())
    }
}

fn state(socket: BorrowedFd<'_>) -> u64 {
    let info = sys::tcp::tcp_info(socket);
    info.map_or(CLOSE, |info| info.state)
}

fn has_sent_fin(socket: BorrowedFd<'_>) -> bool {
    [CLOSE_WAIT, LAST_ACK, CLOSING, TIME_WAIT, CLOSE].contains(&state(socket))
}

/// Of a socket that has sent one.
fn has_acknowledged_fin(socket: BorrowedFd<'_>) -> bool {
    match state(socket) {
        FIN_WAIT2 | TIME_WAIT => true,
        // So is one that was reset or gave up; nobody need have been told of that yet.
        CLOSE => {
            let mut socket = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
            let at_once = Timespec::default();
            let asked = rustix::event::poll(&mut socket, Some(&at_once));
            asked.is_ok() && !socket[0].revents().contains(PollFlags::ERR)
        }
        _ => false,
    }
}

/// include/net/tcp_states.h.
const FIN_WAIT2: u64 = 5;
const TIME_WAIT: u64 = 6;
const CLOSE: u64 = 7;
const CLOSE_WAIT: u64 = 8;
const LAST_ACK: u64 = 9;
const CLOSING: u64 = 11;
/// Packets in the kernel's queue; beyond, they pass.
const QUEUED: u32 = 16_384;
/// Packets of one connection that wait; beyond, they are dropped and come again.
const HELD_EACH: usize = 64;
/// Both headers with all options.
const HEADER_BYTES: u16 = 256;

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Shutdown, TcpListener};
    use std::thread;

    use super::*;

    #[test]
    fn a_reset_is_no_acknowledgment_of_the_end() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        for is_reset in [false, true] {
            let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut peer, _) = listener.accept().unwrap();
            ours.shutdown(Shutdown::Write).unwrap();
            assert_eq!(peer.read(&mut [0]).unwrap(), 0);
            if is_reset {
                sys::tcp::set_reset_on_close(peer.as_fd()).unwrap();
            }
            drop(peer);
            while state(ours.as_fd()) != CLOSE {
                thread::yield_now();
            }
            assert_eq!(has_acknowledged_fin(ours.as_fd()), !is_reset);
        }
    }
}
