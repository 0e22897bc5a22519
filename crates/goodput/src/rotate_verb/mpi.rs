//! Ranks that are processes of MPI, each of which runs this program.

use super::{Done, RotateArgs};
use crate::context::Context;
use crate::failure::Failure;

/// Refuses: this build has no MPI.
#[cfg(not(feature = "mpi"))]
pub(super) fn perform(_: &RotateArgs, _: &Context) -> Result<Option<Done>, Failure> {
    Err(Failure::usage(anyhow::anyhow!(
        "this goodput was built without MPI: build it with `cargo build --release --features mpi`, which \
         needs mpicc and libclang"
    )))
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
    // The same at every process, so that all go on or none.
    let plan = plan::of(args, &names);
    if !ranks.leads() {
        let Ok(plan) = plan else { return Ok(None) };
        for planned in &plan.rounds {
            let flows: Vec<(usize, usize)> = planned.flows.iter().map(|f| (f.from, f.to)).collect();
            let done = ranks.round(&flows, &planned.test, plan.tests, &context.stop);
            if done.is_err() {
                break;
            }
        }
        return Ok(None);
    }
    let plan = plan?;
    let mut kept = Kept::begin(args, &None, &format!("mpi-{}-ranks", names.len()), context)?;
    kept.rotate.ranks = names;
    kept.rotate.mpi_library = Some(MpiRanks::library());
    let mut led = Led {
        ranks,
        stop: &context.stop,
    };
    // Whether to stop all processes decide together, after a round.
    let result = kept.drive(&mut led, &plan, &Stop::new());
    kept.end(result, context).map(Some)
}

/// The leader's ranks, with the request to stop.
#[cfg(feature = "mpi")]
struct Led<'a> {
    ranks: measure::mpi::MpiRanks,
    stop: &'a measure::Stop,
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
        Ok(self.ranks.round(flows, test, tests, self.stop)?)
    }

    fn skew(&self) -> Option<units::Duration> {
        None
    }
}
