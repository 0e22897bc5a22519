//! A sweep shared out to processes of MPI, each of which runs this program.

use super::{Done, SweepArgs};
use crate::context::Context;
use crate::failure::Failure;

/// Refuses: this build has no MPI.
#[cfg(not(feature = "mpi"))]
pub(super) fn perform(_: &SweepArgs, _: &Context) -> Result<Option<Done>, Failure> {
    Err(Failure::usage(anyhow::anyhow!(
        "this goodput was built without MPI: build it with `cargo build --release --features mpi`, which \
         needs mpicc and libclang"
    )))
}

/// All processes run their share of the combinations; the first one keeps and says what came of them.
#[cfg(feature = "mpi")]
pub(super) fn perform(args: &SweepArgs, context: &Context) -> Result<Option<Done>, Failure> {
    use super::{Begun, vary};

    let processes = Processes(measure::mpi::MpiRanks::start()?);
    if !processes.0.leads() {
        let read = super::find(&args.run.file, args.run.tier.map(cluster::Tier::from));
        let read = read.and_then(|file| vary::axes(&file, &args.vary).map(|axes| (file, axes)));
        // A file may be on one node only: all go on or none.
        let all = processes.0.agree(read.is_ok());
        let led = all.first() == Some(&true);
        return match read {
            Ok((file, axes)) if !all.contains(&false) => {
                let crew: Option<&dyn vary::Crew> = Some(&processes);
                vary::run(&file, &axes, &args.cases, crew, context).map(|_| None)
            }
            // The first process says the same of itself where it could not either.
            Err(error) if led => Err(error),
            _ => Ok(None),
        };
    }
    let begun = Begun::new(&args.run, Some(args), context);
    let all = processes.0.agree(begun.is_ok());
    let begun = begun?;
    let missing = all.iter().position(|fine| !fine);
    begun
        .end(context, |file, axes| match missing {
            None => vary::run(file, axes, &args.cases, Some(&processes), context),
            Some(process) => Err(Failure::usage(anyhow::anyhow!(
                "process {process} cannot take part, and says why"
            ))),
        })
        .map(Some)
}

#[cfg(feature = "mpi")]
struct Processes(measure::mpi::MpiRanks);

#[cfg(feature = "mpi")]
impl super::vary::Crew for Processes {
    fn place(&self) -> (usize, usize) {
        self.0.place()
    }

    fn gather(&self, own: &str) -> Vec<String> {
        self.0.gather(own)
    }
}
