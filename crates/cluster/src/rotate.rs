//! Pairs of hosts that send to each other at once.
//!
//! The benchmarks are CBench's `rotate` and `rotate_latency`, Presta's `com` and mpiGraph, as [`crate::pairs`] has
//! them. Ranks are hosts where `goodput serve --ranks` runs ([`far`]), hosts of a lab ([`in_lab`]), or processes of MPI
//! ([`over_mpi`], [`Turns`]); what is done with them is the same, and so is what is found in it.

mod cbench;
mod counts;
mod drive;
mod finding;
mod hosts;
mod mpi;
mod mpirun;
mod plan;
mod programs;
mod ways;

use run::model::{FindingRecord, Verdict};

pub use counts::counts;
pub use drive::{Event, Measured, Observer};
pub use hosts::{Far, far, in_lab};
pub use mpi::{Led, over_mpi};
pub use mpirun::{Beside, Mpirun, Turns};
pub use plan::{Pattern, Plan, Planned, Setup, of as plan};

impl Measured {
    /// Sums up what was measured, and says what the rates say of the network. `whole` where nothing broke it off; `behind` is
    /// why a lab's numbers say nothing.
    pub fn conclude(
        &mut self,
        whole: bool,
        behind: Option<String>,
    ) -> (Vec<FindingRecord>, Verdict) {
        if let Some(ways) = &self.ways {
            ways.fair_shares(&mut self.rotate);
        }
        self.rotate.counts = counts(&self.rotate);
        finding::of(&mut self.rotate, self.ways.as_ref(), whole, behind)
    }
}
