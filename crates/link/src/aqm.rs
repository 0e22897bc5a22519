//! Active queue management: disciplines that tell senders of a queue before it is full.
//!
//! [`MarkingDropTail`] marks above a threshold, [`Red`] drops at random by the average queue,
//! [`Codel`] by the time that segments have waited, and [`FqCodel`] does so for each flow by itself
//! and serves the flows in turn. Each decides on segments, never on trains: where Linux drops a GSO
//! super-packet of 64 KiB whole, these drop one packet of it, as a router behind the host would.
//!
//! ECN (RFC 3168): where it is on, a segment with [`Marks::ECT`] is marked instead of dropped. For
//! want of room, marked or not, it is dropped all the same.
//!
//! Reading: S. Floyd and V. Jacobson, "Random Early Detection Gateways for Congestion Avoidance",
//! IEEE/ACM Transactions on Networking 1(4), 1993; RFC 8257 section 3.1 (threshold marking), RFC 8289
//! (`CoDel`), RFC 8290 (FQ-CoDel).

mod codel;
mod fq_codel;
mod lists;
mod marking;
mod red;
#[cfg(test)]
mod testing;

pub use codel::Codel;
pub use fq_codel::FqCodel;
pub use marking::MarkingDropTail;
pub use red::Red;

use crate::event::{Decision, DropCause, Event, Log};
use crate::queue::Backlog;
use crate::train::{Marks, Train};

/// True when a segment may be marked instead of dropped.
const fn takes_mark(ecn: bool, marks: Marks) -> bool {
    ecn && marks.has(Marks::ECT)
}

/// `run` with its mark, which is told to `log`.
fn mark(run: Train, inside: Backlog, log: &mut dyn Log) -> Train {
    let run = Train {
        marks: run.marks.with(Marks::CE),
        ..run
    };
    log.on_event(&Event {
        stage: 0,
        train: run,
        decision: Decision::Marked {
            queue_bytes: inside.bytes,
            queue_packets: inside.packets,
        },
    });
    run
}

fn log_queued(run: Train, inside: Backlog, log: &mut dyn Log) {
    log.on_event(&Event {
        stage: 0,
        train: run,
        decision: Decision::Queued {
            queue_bytes: inside.bytes,
            queue_packets: inside.packets,
        },
    });
}

fn log_dropped(run: Train, cause: DropCause, inside: Backlog, log: &mut dyn Log) {
    log.on_event(&Event {
        stage: 0,
        train: run,
        decision: Decision::Dropped {
            cause,
            queue_bytes: inside.bytes,
            queue_packets: inside.packets,
            limit_bytes: 0,
        },
    });
}
