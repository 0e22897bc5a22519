//! Ranks that are processes of MPI, each of which runs this program.

use super::{Done, RotateArgs};
use crate::context::Context;
use crate::failure::Failure;

/// Why a build without MPI cannot, and the remedy.
pub(super) fn missing() -> Failure {
    Failure::usage(anyhow::anyhow!(
        "this goodput was built without MPI: build it with `cargo build --release --features mpi`, which \
         needs mpicc and libclang (Debian: libopenmpi-dev and libclang-dev)"
    ))
}

/// Refuses: this build has no MPI.
#[cfg(not(feature = "mpi"))]
pub(super) fn perform(_: &RotateArgs, _: &Context) -> Result<Option<Done>, Failure> {
    Err(missing())
}

/// All processes do the rounds; the first one keeps and says what came of them.
#[cfg(feature = "mpi")]
pub(super) fn perform(args: &RotateArgs, context: &Context) -> Result<Option<Done>, Failure> {
    use measure::Stop;
    use measure::mpi::MpiRanks;

    use super::{Kept, plan};

    let mut ranks = MpiRanks::start()?;
    let names = ranks.names();
    if let Some(seed) = args.seed {
        ranks.reorder(pairs::shuffled(names.len(), seed));
    }
    let names = ranks.names();
    let stop = &context.stop;
    let plan = plan::of(args, &names);
    let kept = match (ranks.leads(), &plan) {
        (true, Ok(_)) => {
            let name = format!("mpi-{}-ranks", names.len());
            Some(Kept::begin(args, &None, &name, context)).transpose()
        }
        _ => Ok(None),
    };
    // A list may be on one node only, a folder read-only: all go on or none.
    let all = ranks.agree(plan.is_ok() && kept.is_ok() && !stop.is_stopped());
    let led = all.first() == Some(&true);
    let missing = all.iter().position(|fine| !fine);
    if !ranks.leads() {
        return match (plan, missing) {
            (Ok(plan), None) => {
                follow(&mut ranks, &plan, stop);
                Ok(None)
            }
            // The first process says the same of itself where it could not either.
            (Err(error), _) if led => Err(error),
            _ => Ok(None),
        };
    }
    let (plan, Some(mut kept)) = (plan?, kept?) else {
        return Ok(None);
    };
    if let Some(process) = missing {
        let result = match stop.is_stopped() {
            true => Err(measure::MeasureError::Interrupted.into()),
            false => Err(Failure::usage(anyhow::anyhow!(
                "process {process} cannot take part, and says why"
            ))),
        };
        return kept.end(result, context).map(Some);
    }
    kept.rotate.ranks = names;
    kept.rotate.mpi_library = Some(MpiRanks::library());
    let mut led = Led {
        ranks,
        stop,
        left: plan.rounds.len(),
    };
    // Whether to stop all processes decide together, after a round.
    let result = kept.drive(&mut led, &plan, &Stop::new());
    if result.is_err() && led.left > 0 {
        // The others are about to begin the next round.
        led.ranks.agree(false);
    }
    kept.end(result, context).map(Some)
}

/// All rounds of a process that does not lead.
#[cfg(feature = "mpi")]
fn follow(ranks: &mut measure::mpi::MpiRanks, plan: &super::plan::Plan, stop: &measure::Stop) {
    for planned in &plan.rounds {
        let flows: Vec<(usize, usize)> = planned.flows.iter().map(|f| (f.from, f.to)).collect();
        let done = ranks.round(&flows, &planned.test, plan.tests, stop);
        if done.is_err() {
            break;
        }
    }
}

/// The leader's ranks, with the request to stop.
#[cfg(feature = "mpi")]
struct Led<'a> {
    ranks: measure::mpi::MpiRanks,
    stop: &'a measure::Stop,
    /// Rounds that the other processes still expect.
    left: usize,
}

#[cfg(feature = "mpi")]
impl super::Ranks for Led<'_> {
    fn round(
        &mut self,
        flows: &[(usize, usize)],
        test: &measure::RankTest,
        tests: u32,
        _: &measure::Stop,
    ) -> Result<Vec<measure::FlowTimes>, Failure> {
        let done = self.ranks.round(flows, test, tests, self.stop);
        // Who was told to stop knows it in every process.
        self.left = if done.is_ok() { self.left - 1 } else { 0 };
        Ok(done?)
    }

    fn skew(&self) -> Option<units::Duration> {
        None
    }
}
