//! What a capture lacks, doubles or gets wrong of a connection, and what conclusions are worth then.

use units::{Bytes, Duration};

use crate::confidence::ramp;
use crate::text;
use crate::trace::{Connection, Start};

/// What is to be said of a connection's capture before its verdict.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Quality {
    /// Sentences without a stop.
    pub(super) notes: Vec<String>,
    /// 0..=1: what confidences are multiplied by.
    pub(super) factor: f64,
}

pub(super) fn of(connection: &Connection) -> Quality {
    let mut quality = Quality {
        notes: Vec::new(),
        factor: 1.0,
    };
    quality.one_way(connection);
    quality.missing(connection);
    quality.copies(connection);
    if connection.start == Start::Midway && connection.sides.iter().all(|s| s.packets > 0) {
        quality.note("the capture begins in the middle of the connection: how windows are scaled is not known");
    }
    if matches!(connection.start, Start::Syn { .. })
        && connection
            .sides
            .iter()
            .any(|s| s.packets > 0 && s.syns == 0)
    {
        quality.note(
            "the SYN of one side is not in the capture: how its windows are scaled is not known",
        );
    }
    if connection.time_steps_back > 0 {
        quality.note(&format!(
            "{} stamped before the one captured ahead of it",
            match connection.time_steps_back {
                1 => "1 packet is".to_owned(),
                n => format!("{} packets are", text::grouped(&n.to_string())),
            }
        ));
    }
    quality
}

impl Quality {
    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }

    fn one_way(&mut self, connection: &Connection) {
        if connection.sides.iter().all(|side| side.packets > 0) {
            return;
        }
        self.note(
            "only one direction was captured: round trips, windows and what was acknowledged are not known",
        );
        self.factor *= ONE_WAY;
    }

    fn missing(&mut self, connection: &Connection) {
        let unseen: u64 = connection.sides.iter().map(|side| side.unseen_bytes).sum();
        let all: u64 = connection.sides.iter().map(|s| s.unique_bytes).sum::<u64>() + unseen;
        if unseen == 0 || all == 0 {
            return;
        }
        let share = unseen as f64 / all as f64;
        self.note(&format!(
            "the capture is incomplete: {} ({}) were acknowledged that are not in it",
            Bytes::new(unseen),
            text::percent(share)
        ));
        self.factor *= 1.0 - (1.0 - INCOMPLETE) * ramp(share, MISSING_MIN, MISSING_MANY);
    }

    fn copies(&mut self, connection: &Connection) {
        let copies: u64 = connection.sides.iter().map(|side| side.duplicates).sum();
        if copies == 0 {
            return;
        }
        let apart = connection.sides.iter().map(|s| s.duplicates_apart_max);
        let apart = apart.max().unwrap_or(Duration::ZERO);
        let packets: u64 = connection.sides.iter().map(|side| side.packets).sum();
        self.note(&format!(
            "{} of {} packets are second copies of others, up to {apart} later, as mirror ports make \
             them: left out",
            text::grouped(&copies.to_string()),
            text::grouped(&packets.to_string())
        ));
    }
}

/// What one direction can tell.
const ONE_WAY: f64 = 0.4;
/// What is left where much is missing: not enough for a conclusion.
const INCOMPLETE: f64 = 0.45;
/// Shares of missing payload that cost nothing, and all of that.
const MISSING_MIN: f64 = 0.001;
const MISSING_MANY: f64 = 0.03;
