//! Packets at fine time: gaps between them, what the stamps can tell apart, bursts, rates in sections of
//! any length, and the order of parallel streams within a round trip.
//!
//! Everything is counted on line in bounded memory and read afterwards. Time comes with each packet and
//! may go back by the errors of the stamps; such packets are counted.
//!
//! Lineage: TAPEE's analysis with 100 ns resolution (the University of Tokyo at SC08), which showed that
//! parallel streams keep their order from one round trip to the next, and what that costs the last.

mod acks;
mod bursts;
mod gaps;
mod sections;

pub use acks::{Acks, half_within};
pub use bursts::{Burst, Bursts};
pub use gaps::{Bins, Gaps, Mode, Stamps, TooFine};
pub use sections::{Phase, Round, Sections, TooMany, order_kept};
