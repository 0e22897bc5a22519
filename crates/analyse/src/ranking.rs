//! The connections that lost most: a bounded number of all that were read.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::mem;

use explain::passive::{self, Passive, Weight};
use explain::trace::Connection;
use units::Instant;

use crate::tables::Tables;
use crate::unmade::Unmade;

/// One connection with what was found of it.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) file: u32,
    /// Time of the file's first packet.
    pub(crate) begins: Instant,
    pub(crate) connection: Connection,
    pub(crate) passive: Passive,
}

impl Judged {
    /// Payload of the side that is judged, each byte once.
    pub(crate) fn carried(&self) -> u64 {
        let side = usize::from(self.passive.sender);
        self.connection.sides[side].unique_bytes
    }
}

/// What connections are ordered by, the one to go first last: bytes lost, bytes carried, the earlier first
/// frame; and its place.
type Rank = (u64, u64, Reverse<u64>, usize);

/// Those that lost most, a bounded number.
#[derive(Default)]
pub(crate) struct Ranking {
    kept: BinaryHeap<Reverse<Rank>>,
    places: Vec<Option<Box<Judged>>>,
    /// Those that were never made.
    pub(crate) unmade: Unmade,
    /// Where all connections go, whatever their rank.
    pub(crate) tables: Option<Tables>,
}

impl Ranking {
    /// Takes a connection of file `file` that carried data, and judges it if it belongs to them.
    pub(crate) fn add(&mut self, file: u32, connection: Connection, weight: Weight) {
        let (lost, carried) = (weight.lost.as_u64(), weight.carried.as_u64());
        let first = Reverse(connection.first.frame);
        let full = self.kept.len() >= KEPT_MAX;
        let worst = self.kept.peek().map(|Reverse(w)| (w.0, w.1, w.2));
        if full && worst.is_some_and(|w| (lost, carried, first) <= w) {
            return;
        }
        let Some(passive) = passive::judge(&connection) else {
            return;
        };
        let judged = Judged {
            file,
            begins: Instant::ZERO,
            connection,
            passive,
        };
        let place = match full.then(|| self.kept.pop()).flatten() {
            Some(Reverse(gone)) => gone.3,
            None => {
                self.places.push(None);
                self.places.len() - 1
            }
        };
        self.places[place] = Some(Box::new(judged));
        self.kept.push(Reverse((lost, carried, first, place)));
    }

    /// Says when a file's first packet was.
    pub(crate) fn set_begins(&mut self, file: u32, begins: Instant) {
        let kept = self.places.iter_mut().flatten();
        kept.filter(|judged| judged.file == file)
            .for_each(|judged| judged.begins = begins);
    }

    /// The one that lost most first.
    pub(crate) fn into_sorted(mut self) -> Vec<Judged> {
        let order = mem::take(&mut self.kept).into_sorted_vec();
        let places = order
            .into_iter()
            .filter_map(|Reverse(w)| self.places[w.3].take());
        places.map(|judged| *judged).collect()
    }
}

/// Connections that a run keeps.
const KEPT_MAX: usize = 200;
