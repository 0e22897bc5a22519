//! Ranks that are processes of MPI: the same rounds as [`crate::Ranks`], by MPI's own calls.
//!
//! Every process runs the same rounds in the same order; what each took is gathered at all of them after a
//! round, with whether anybody was asked to stop, so that all go on or none.
//!
//! A sender that has no one to receive from sends synchronously (`MPI_Ssend`) where the window is 1, as
//! CBench's `rotate`, and by `MPI_Send` where it is larger, as Presta's `com`; an empty message from the
//! receiver then ends its time. A rank with both roles has as many sends and receives under way at once as
//! the window says, 10 at most, and waits for all, as mpiGraph. Left out: threads, one-sided calls.

use mpi::environment::{self, Universe};
use mpi::point_to_point::send_receive_into;
use mpi::request;
use mpi::topology::{Process, SimpleCommunicator};
use mpi::traits::{Communicator, CommunicatorCollectives, Destination, Source};
use sys::clock;
use units::Duration;

use crate::{FlowTimes, MeasureError, RankTest, Stop};

/// This process among the others. MPI ends when it is dropped.
pub struct MpiRanks {
    world: SimpleCommunicator,
    rank: usize,
    size: usize,
    /// Process of each rank.
    order: Vec<usize>,
    _universe: Universe,
}

impl std::fmt::Debug for MpiRanks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MPI process {} of {}", self.rank, self.size)
    }
}

impl MpiRanks {
    /// Enters MPI; once in a process.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Local`] when this process has been in it already.
    pub fn start() -> Result<Self, MeasureError> {
        let universe = mpi::initialize_with_threading(mpi::Threading::Funneled);
        let (universe, _) = universe.ok_or_else(|| MeasureError::Local {
            what: "start MPI",
            source: std::io::Error::other("it was started before"),
        })?;
        let world = universe.world();
        let number = |n: i32| usize::try_from(n).unwrap_or(0);
        let (rank, size) = (number(world.rank()), number(world.size()));
        Ok(Self {
            world,
            rank,
            size,
            order: (0..size).collect(),
            _universe: universe,
        })
    }

    /// Whether this is the process that speaks for all.
    pub const fn leads(&self) -> bool {
        self.rank == 0
    }

    /// What the library calls itself, its first line.
    pub fn library() -> String {
        let version = environment::library_version().unwrap_or_default();
        let line = version.lines().next().unwrap_or_default();
        crate::facts::clean(line)
    }

    /// Renumbers: rank n is the process `order[n]`, which must be a permutation.
    pub fn reorder(&mut self, order: Vec<usize>) {
        self.order = order;
    }

    /// Names of the ranks: their processors, with the rank's number where several share one. Of all
    /// processes at once.
    pub fn names(&self) -> Vec<String> {
        let mut own = [0_u8; NAME_BYTES];
        let name = environment::processor_name().unwrap_or_default();
        let bytes = name.as_bytes();
        let len = bytes.len().min(NAME_BYTES);
        own[..len].copy_from_slice(&bytes[..len]);
        let mut all = vec![0_u8; NAME_BYTES * self.size];
        self.world.all_gather_into(&own[..], &mut all[..]);
        let texts: Vec<String> = all
            .chunks(NAME_BYTES)
            .map(|name| crate::facts::clean(String::from_utf8_lossy(name).trim_matches('\0')))
            .collect();
        let named = self.order.iter().map(|&process| {
            let name = &texts[process];
            match texts.iter().filter(|other| *other == name).count() {
                1 => name.clone(),
                _ => format!("{name}:{process}"),
            }
        });
        named.collect()
    }

    /// Number of this process, and of all.
    pub const fn place(&self) -> (usize, usize) {
        (self.rank, self.size)
    }

    /// A text of each process, by its number, at the first one; nothing at others. Of all processes at once.
    pub fn gather(&self, own: &str) -> Vec<String> {
        if self.rank > 0 {
            self.world.process_at_rank(0).send(own.as_bytes());
            return Vec::new();
        }
        let mut all = vec![own.to_owned()];
        for process in 1..self.size {
            let from = self
                .world
                .process_at_rank(i32::try_from(process).unwrap_or(0));
            let (bytes, _) = from.receive_vec::<u8>();
            all.push(String::from_utf8_lossy(&bytes).into_owned());
        }
        all
    }

    /// What each process says, by its number: whether it can go on. Of all processes at once; one that cannot
    /// must say so here before it leaves, or the others wait for it in the next round.
    pub fn agree(&self, fine: bool) -> Vec<bool> {
        let mut all = vec![0_u8; self.size];
        self.world
            .all_gather_into(&[u8::from(fine)][..], &mut all[..]);
        all.into_iter().map(|fine| fine > 0).collect()
    }

    /// Has the flows do the test so many times, after a barrier and an empty message to and fro each time:
    /// each flow's shortest times. Of all processes at once; a rank sends in one flow at most and receives
    /// in one at most.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Interrupted`] when any process was asked to stop or does not go on.
    pub fn round(
        &mut self,
        flows: &[(usize, usize)],
        test: &RankTest,
        tests: u32,
        stop: &Stop,
    ) -> Result<Vec<FlowTimes>, MeasureError> {
        if self.agree(true).contains(&false) {
            return Err(MeasureError::Interrupted);
        }
        let process = |rank: usize| self.order.get(rank).copied().unwrap_or(0);
        let is_own = |rank: usize| process(rank) == self.rank;
        let to = flows.iter().find(|f| is_own(f.0)).map(|f| process(f.1));
        let from = flows.iter().find(|f| is_own(f.1)).map(|f| process(f.0));
        let at = |process: usize| {
            let number = i32::try_from(process).unwrap_or(0);
            self.world.process_at_rank(number)
        };
        let (to, from) = (to.map(at), from.map(at));
        let mut own = [u64::MAX, u64::MAX, 0];
        // Made anew for each round, as `rotate` does.
        let mut room = Room::of(test, to.is_some() && from.is_some());
        for _ in 0..tests {
            self.world.barrier();
            let took = match (&to, &from) {
                (None, None) => [None, None],
                (Some(to), None) => [Some(send(to, test, &mut room)), None],
                (None, Some(from)) => [None, Some(receive(from, test, &mut room))],
                (Some(to), Some(from)) => {
                    let took = both(to, from, test, &mut room);
                    [Some(took), Some(took)]
                }
            };
            for (best, took) in own.iter_mut().zip(took) {
                *best = took.map_or(*best, |took| took.as_ns().min(*best));
            }
        }
        own[2] = u64::from(stop.is_stopped());
        let mut all = vec![0_u64; own.len() * self.size];
        self.world.all_gather_into(&own[..], &mut all[..]);
        let of = |process: usize, n: usize| all[process * own.len() + n];
        if (0..self.size).any(|process| of(process, 2) > 0) {
            return Err(MeasureError::Interrupted);
        }
        let each = flows.iter().map(|&(from, to)| FlowTimes {
            send: Duration::from_ns(of(process(from), 0)),
            receive: Duration::from_ns(of(process(to), 1)),
        });
        Ok(each.collect())
    }
}

/// What messages are sent from and taken into.
struct Room {
    out: Vec<u8>,
    into: Vec<u8>,
    /// Messages under way at once.
    group: usize,
}

impl Room {
    fn of(test: &RankTest, both: bool) -> Self {
        let bytes = usize::try_from(test.bytes).unwrap_or(0);
        let window = usize::try_from(test.window).unwrap_or(1);
        let group = if both { window.clamp(1, GROUP_MAX) } else { 1 };
        Self {
            // Not written, as `rotate` does not: the kernel then has one page of zeros stand for all of it,
            // and a copy through shared memory reads it from the cache.
            out: vec![0; bytes],
            into: vec![0; bytes * group],
            group,
        }
    }
}

type Peer<'a> = Process<'a>;

/// An empty message to and fro; from here on clocks run.
fn handshake(to: &Peer<'_>, from: &Peer<'_>) {
    let none: [u8; 0] = [];
    send_receive_into(&none[..], to, &mut [0_u8; 0][..], from);
}

fn send(to: &Peer<'_>, test: &RankTest, room: &mut Room) -> Duration {
    handshake(to, to);
    let start = clock::monotonic();
    for _ in 0..test.count {
        if test.ping {
            to.send(&room.out[..]);
            to.receive_into(&mut room.into[..]);
        } else if test.window == 1 {
            to.synchronous_send(&room.out[..]);
        } else {
            to.send(&room.out[..]);
        }
    }
    if !test.ping && test.window > 1 {
        to.receive_into(&mut [0_u8; 0][..]);
    }
    clock::monotonic().saturating_since(start)
}

fn receive(from: &Peer<'_>, test: &RankTest, room: &mut Room) -> Duration {
    handshake(from, from);
    let start = clock::monotonic();
    for _ in 0..test.count {
        from.receive_into(&mut room.into[..]);
        if test.ping {
            from.send(&room.out[..]);
        }
    }
    let took = clock::monotonic().saturating_since(start);
    if !test.ping && test.window > 1 {
        from.send(&[0_u8; 0][..]);
    }
    took
}

/// Sends to one and receives from another at once.
fn both(to: &Peer<'_>, from: &Peer<'_>, test: &RankTest, room: &mut Room) -> Duration {
    handshake(to, from);
    let start = clock::monotonic();
    let mut left = usize::try_from(test.count).unwrap_or(usize::MAX);
    let bytes = room.out.len().max(1);
    while left > 0 {
        let now = left.min(room.group);
        request::multiple_scope(2 * now, |scope, pending| {
            for part in room.into.chunks_mut(bytes).take(now) {
                pending.add(from.immediate_receive_into(scope, part));
            }
            for _ in 0..now {
                pending.add(to.immediate_send(scope, &room.out[..]));
            }
            pending.wait_all(&mut Vec::new());
        });
        left -= now;
    }
    clock::monotonic().saturating_since(start)
}

/// mpiGraph's window.
const GROUP_MAX: usize = 10;
const NAME_BYTES: usize = 64;
