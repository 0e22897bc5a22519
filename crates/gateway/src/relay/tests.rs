//! The machine between two sockets of a world without time: what goes in comes out.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// A socket as the kernel has it, as far as the machine can tell.
#[derive(Debug, Default)]
struct Socket {
    /// What its peer sent and nobody read; `Err` is an urgent byte.
    inbox: VecDeque<Result<u8, u8>>,
    peer_ended: bool,
    /// What was written to it and its peer has not taken.
    outbox: VecDeque<Result<u8, u8>>,
    room: usize,
    shut: bool,
}

/// The machine, its sockets and pipes.
#[derive(Debug)]
struct World {
    relay: Relay,
    sockets: [Socket; 2],
    pipes: [VecDeque<u8>; 2],
    reset: bool,
    closed: bool,
}

const PIPE: usize = 16;

impl World {
    fn new(room: usize) -> Self {
        let socket = || Socket {
            room,
            ..Socket::default()
        };
        Self {
            relay: Relay::new(),
            sockets: [socket(), socket()],
            pipes: Default::default(),
            reset: false,
            closed: false,
        }
    }

    /// A peer sends.
    fn send(&mut self, side: Side, bytes: &[u8]) {
        let socket = &mut self.sockets[side.index()];
        assert!(!socket.peer_ended);
        socket.inbox.extend(bytes.iter().map(|&b| Ok(b)));
        self.relay.on_readable(side);
    }

    fn send_urgent(&mut self, side: Side, byte: u8) {
        self.sockets[side.index()].inbox.push_back(Err(byte));
        self.relay.on_urgent(side);
    }

    fn end(&mut self, side: Side) {
        self.sockets[side.index()].peer_ended = true;
        self.relay.on_readable(side);
    }

    /// A peer reads up to so much.
    fn take(&mut self, side: Side, most: usize) -> Vec<Result<u8, u8>> {
        let socket = &mut self.sockets[side.index()];
        let count = most.min(socket.outbox.len());
        let taken = socket.outbox.drain(..count).collect();
        if count > 0 {
            self.relay.on_writable(side);
        }
        taken
    }

    fn fill(&mut self, from: Side, by_copy: bool) -> Moved {
        let (socket, pipe) = (
            &mut self.sockets[from.index()],
            &mut self.pipes[from.index()],
        );
        let mut moved = 0;
        while pipe.len() < PIPE {
            match socket.inbox.front() {
                Some(Ok(byte)) => pipe.push_back(*byte),
                _ => break,
            }
            socket.inbox.pop_front();
            moved += 1;
        }
        match (moved, socket.inbox.is_empty() || !by_copy) {
            (0, _) if pipe.len() == PIPE => Moved::NotNow,
            (0, true) if socket.peer_ended => Moved::End,
            (0, _) => Moved::NotNow,
            (moved, _) => Moved::Bytes(moved),
        }
    }

    /// Goes on until the machine waits.
    fn settle(&mut self) {
        for _ in 0..100_000 {
            match self.relay.poll_step() {
                Step::Fill(from) => {
                    let moved = self.fill(from, false);
                    self.relay.on_filled(from, moved);
                }
                Step::FillByCopy(from) => {
                    let moved = self.fill(from, true);
                    self.relay.on_filled(from, moved);
                }
                Step::Drain { to, bytes, .. } => {
                    let pipe = &mut self.pipes[to.other().index()];
                    assert_eq!(bytes, pipe.len() as u64);
                    let socket = &mut self.sockets[to.index()];
                    assert!(!socket.shut);
                    let room = socket.room - socket.outbox.len();
                    let count = room.min(pipe.len());
                    socket.outbox.extend(pipe.drain(..count).map(Ok));
                    let moved = match count {
                        0 => Moved::NotNow,
                        n => Moved::Bytes(n as u64),
                    };
                    self.relay.on_drained(to, moved);
                }
                Step::TakeUrgent(from) => {
                    let inbox = &mut self.sockets[from.index()].inbox;
                    let byte = inbox.front().and_then(|b| b.err());
                    if byte.is_some() {
                        inbox.pop_front();
                    }
                    self.relay.on_urgent_taken(from, byte);
                }
                Step::SendUrgent { to, byte } => {
                    let socket = &mut self.sockets[to.index()];
                    let sent = socket.outbox.len() < socket.room;
                    if sent {
                        socket.outbox.push_back(Err(byte));
                    }
                    self.relay.on_urgent_sent(to, sent);
                }
                Step::Shut(side) => {
                    self.sockets[side.index()].shut = true;
                    self.relay.on_shut(side);
                }
                Step::Wait => return,
                Step::Close => {
                    self.closed = true;
                    return;
                }
                Step::Reset => {
                    self.reset = true;
                    return;
                }
            }
        }
        panic!("the machine never rests: {self:?}");
    }
}

#[test]
fn an_end_waits_for_what_the_blocked_peer_has_not_taken() {
    let mut world = World::new(4);
    let bytes: Vec<u8> = (0..30).collect();
    world.send(Side::Client, &bytes);
    world.end(Side::Client);
    world.settle();
    // Four in the socket, sixteen in the pipe, ten not read yet, and no end.
    assert_eq!(world.relay.in_pipe(Side::Client), 16);
    assert!(!world.sockets[1].shut);
    let mut got = Vec::new();
    while got.len() < 30 {
        assert!(!world.sockets[1].shut || world.sockets[1].outbox.len() + got.len() == 30);
        got.extend(world.take(Side::Server, 3));
        world.settle();
    }
    assert_eq!(got, bytes.iter().map(|&b| Ok(b)).collect::<Vec<_>>());
    assert!(world.sockets[1].shut && !world.closed);
    // The other direction still lives.
    world.send(Side::Server, b"late");
    world.settle();
    assert_eq!(world.take(Side::Client, 9).len(), 4);
    world.end(Side::Server);
    world.settle();
    assert!(world.closed);
}

#[test]
fn a_blocked_output_holds_no_more_than_its_bound() {
    let mut relay = Relay::new();
    relay.on_readable(Side::Client);
    assert_eq!(relay.poll_step(), Step::Fill(Side::Client));
    relay.on_filled(Side::Client, Moved::Bytes(1000));
    relay.on_drained(Side::Server, Moved::NotNow);
    assert_eq!(relay.poll_step(), Step::Fill(Side::Client));
    let room = relay.may_fill(Side::Client);
    assert_eq!(room, HELD_BYTES - 1000);
    relay.on_filled(Side::Client, Moved::Bytes(room));
    assert_eq!(relay.poll_step(), Step::Wait);
    // Room: all of it goes, and more comes.
    relay.on_writable(Side::Server);
    relay.on_drained(Side::Server, Moved::Bytes(HELD_BYTES));
    assert_eq!(relay.poll_step(), Step::Fill(Side::Client));
    assert_eq!(relay.may_fill(Side::Client), u64::MAX);
}

#[test]
fn an_end_passes_in_either_order() {
    for first in Side::BOTH {
        let mut world = World::new(8);
        world.end(first);
        world.settle();
        assert!(world.sockets[first.other().index()].shut);
        assert!(!world.sockets[first.index()].shut && !world.closed);
        world.end(first.other());
        world.settle();
        assert!(world.closed);
    }
}

#[test]
fn a_failure_resets_both_whatever_is_under_way() {
    let mut world = World::new(1);
    world.send(Side::Client, b"some that do not fit");
    world.end(Side::Client);
    world.settle();
    world.relay.on_failed();
    world.settle();
    assert!(world.reset);
}

#[test]
fn an_urgent_byte_keeps_its_place() {
    for ended in [false, true] {
        let mut world = World::new(64);
        world.send(Side::Client, b"before");
        world.send_urgent(Side::Client, b'!');
        world.send(Side::Client, b"after");
        if ended {
            world.end(Side::Client);
        }
        world.settle();
        let got = world.take(Side::Server, 64);
        let mut expected: Vec<Result<u8, u8>> = b"before".iter().map(|&b| Ok(b)).collect();
        expected.push(Err(b'!'));
        expected.extend(b"after".iter().map(|&b| Ok(b)));
        assert_eq!(got, expected);
        assert_eq!(world.sockets[1].shut, ended);
        assert_eq!(world.relay.carried(Side::Client), 12);
    }
}

/// What happens outside.
#[derive(Clone, Debug)]
enum Event {
    Send(Side, usize),
    Urgent(Side),
    End(Side),
    Take(Side, usize),
    /// The kernel says so without reason.
    Spurious(Side),
}

fn event() -> impl Strategy<Value = Event> {
    let side = || prop_oneof![Just(Side::Client), Just(Side::Server)];
    prop_oneof![
        4 => (side(), 1..50_usize).prop_map(|(s, n)| Event::Send(s, n)),
        1 => side().prop_map(Event::Urgent),
        1 => side().prop_map(Event::End),
        4 => (side(), 1..40_usize).prop_map(|(s, n)| Event::Take(s, n)),
        1 => side().prop_map(Event::Spurious),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_outside_nothing_is_lost_added_or_moved(
        events in prop::collection::vec(event(), 1..60),
        room in 1..30_usize,
    ) {
        let mut world = World::new(room);
        let mut sent: [Vec<Result<u8, u8>>; 2] = Default::default();
        let mut got: [Vec<Result<u8, u8>>; 2] = Default::default();
        let mut ended = [false; 2];
        let mut next = 0_u8;
        // A second urgent byte before the first was taken takes its place, as in TCP: one at a time.
        for event in events {
            match event {
                Event::Send(side, count) if !ended[side.index()] => {
                    let bytes: Vec<u8> = (0..count).map(|_| { next = next.wrapping_add(1); next }).collect();
                    sent[side.index()].extend(bytes.iter().map(|&b| Ok(b)));
                    world.send(side, &bytes);
                }
                Event::Urgent(side) if !ended[side.index()]
                    && !sent[side.index()].iter().any(Result::is_err) => {
                    sent[side.index()].push(Err(7));
                    world.send_urgent(side, 7);
                }
                Event::End(side) if !ended[side.index()] => {
                    ended[side.index()] = true;
                    world.end(side);
                }
                Event::Take(side, most) => {
                    let taken = world.take(side, most);
                    got[side.other().index()].extend(taken);
                }
                Event::Spurious(side) => {
                    world.relay.on_readable(side);
                    world.relay.on_writable(side);
                }
                _ => {}
            }
            world.settle();
        }
        for side in Side::BOTH {
            if !ended[side.index()] {
                world.end(side);
            }
        }
        for _ in 0..10_000 {
            world.settle();
            let before = got.clone();
            for side in Side::BOTH {
                let taken = world.take(side, 5);
                got[side.other().index()].extend(taken);
            }
            if before == got {
                break;
            }
        }
        prop_assert_eq!(&got, &sent);
        prop_assert!(world.closed, "{:?}", world);
        prop_assert!(world.sockets.iter().all(|s| s.shut));
    }
}
