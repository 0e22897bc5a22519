//! Packets as they pass the senders' own lines, each with its time.
//!
//! Data count when their last octet has left the first link of their way, that link's delay included;
//! acknowledgments when they reach the sender. So spacing of data is that of the sender's line, before any queue
//! behind it.

use link::Train;
use tcp::Ack;
use units::Instant;

/// A packet that passed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Passed {
    /// When its last octet did.
    pub at: Instant,
    /// Its flow.
    pub flow: u32,
    /// From the receiver.
    pub back: bool,
    /// What it is.
    pub what: What,
}

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// Of the handshake.
    Syn,
    /// A full data segment, by its number.
    Data(u64),
    /// An acknowledgment.
    Ack(Ack),
}

#[derive(Debug)]
pub(crate) struct Tap {
    packets: Vec<Passed>,
    most: usize,
}

impl Tap {
    pub(crate) const fn new(most: usize) -> Self {
        Self {
            packets: Vec::new(),
            most,
        }
    }

    /// The segments of a train; `what` says what the one of that place in its frame is.
    pub(crate) fn take(&mut self, train: &Train, back: bool, what: impl Fn(u16) -> What) {
        let mut times = train.times();
        for n in 0..train.count {
            if self.packets.len() >= self.most {
                return;
            }
            let what = what(train.first + n);
            self.packets.push(Passed {
                at: times.at(),
                flow: train.flow,
                back,
                what,
            });
            times.step();
        }
    }

    pub(crate) fn into_order(mut self) -> Vec<Passed> {
        // A train is taken whole, though others' packets pass between its own.
        self.packets.sort_by_key(|p| p.at);
        self.packets
    }
}
