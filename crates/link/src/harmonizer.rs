//! The Stream Harmonizer: parallel TCP streams that share a bottleneck are kept alike by a box before
//! it that sees only their packets.
//!
//! Streams that start together keep the order of their bursts from round trip to round trip, since
//! each packet answers an acknowledgement. While the windows double, the queue of the bottleneck fills
//! during a round trip's bursts, and what stands last in their order meets the full queue first. It
//! loses, and halves its window, while the others double theirs once more. On a long path the
//! difference stays: both then grow by the same few packets.
//!
//! * [`Shuffle`] mixes the packets of all streams over a short time, so that a full queue meets all of
//!   them at once and in proportion (University of Tokyo and NICT, SC08).
//! * [`Lengthen`] delays the packets of streams that are faster than the others, so that their round
//!   trip grows and their rate falls (Sugawara, Inaba, Hiraki: Flow Balancing Hardware for Parallel
//!   TCP Streams on Long Fat Pipe Network, FGCN 2007; NCA 2008 as Stream Equalizer). How the papers
//!   set the delay is not known here: that it is the wait for a stream's turn is ours.
//!
//! Both act on the flows ([`Train::flow`]) of one [`Train::group`] on each other and on nobody else. A
//! flow that is alone in its group passes untouched, as does what is in no group. Nothing is dropped,
//! no flow's segments overtake each other, delays and bytes held are bounded: what finds no room sends
//! away first what would leave next. Flows beyond the [`FLOWS_MAX`](crate::FLOWS_MAX) that are told
//! apart pass untouched as long as all of those have segments inside.
//!
//! Left out: the line's own serialisation. Two segments may leave closer than the line that brought
//! them lets them follow; what stands behind is the bottleneck's queue, which is slower.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use units::{Bytes, Duration, Instant};

use crate::pipeline::Trains;
use crate::queue::Backlog;
use crate::train::Train;

mod lengthen;
mod shuffle;
#[cfg(test)]
mod streams;

pub use lengthen::Lengthen;
pub use shuffle::Shuffle;

/// Runs that have been given the time at which they leave.
#[derive(Clone, Debug)]
struct Hold {
    leaving: BinaryHeap<Reverse<Leaving>>,
    pushed: u64,
    inside: Backlog,
}

/// The earliest first; of one time, the first to be pushed.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    at: Instant,
    number: u64,
    run: Train,
}

impl Hold {
    /// With room for full frames of `memory` in all, within reason, before it must grow.
    fn with_room(memory: Bytes) -> Self {
        let runs = (memory.as_u64() / FULL_FRAME).min(RUNS_AT_START);
        Self {
            leaving: BinaryHeap::with_capacity(usize::try_from(runs).unwrap_or(0)),
            pushed: 0,
            inside: Backlog::default(),
        }
    }

    /// Keeps `run` until `at`, when all of it leaves.
    fn push(&mut self, run: Train, at: Instant) {
        self.inside = self.inside.plus(&run);
        self.leaving.push(Reverse(Leaving {
            at,
            number: self.pushed,
            run,
        }));
        self.pushed += 1;
    }

    /// When the next leaves.
    fn next_at(&self) -> Option<Instant> {
        self.leaving.peek().map(|next| next.0.at)
    }

    /// Lets the next go, no later than `now`; false when there is none.
    fn release(&mut self, now: Instant, out: &mut Trains) -> bool {
        let Some(Reverse(next)) = self.leaving.pop() else {
            return false;
        };
        self.inside = self.inside.minus(&next.run);
        out.push(next.run.gathered(next.at.min(now)));
        true
    }
}

impl Ord for Leaving {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Leaving {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Leaving {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Leaving {}

/// A flow among all groups.
const fn key_of(train: &Train) -> u64 {
    (train.group as u64) << 32 | train.flow as u64
}

/// Longer than any round trip on Earth, three hops by geostationary satellites included: a stream
/// that is heard once a round trip is there all the while.
const ACTIVE: Duration = Duration::from_s(2);
const FULL_FRAME: u64 = 1_538;
/// 6 MiB of a table that grows where more is held.
const RUNS_AT_START: u64 = 65_536;
