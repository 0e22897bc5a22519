//! Ranks that are processes of MPI, each of which runs this program.

use fault::Failure;
use measure::Stop;

use super::drive::{Measured, Observer};
use super::plan::Setup;

/// What the first process has: what it began, what was measured, and how that ended.
pub type Led<K> = (K, Measured, Result<(), Failure>);

/// Why a build without MPI cannot, and the remedy.
pub(super) fn missing() -> Failure {
    Failure::usage(
        "this goodput was built without MPI: build it with `cargo build --release --features mpi`, which \
         needs mpicc and libclang (Debian: libopenmpi-dev and libclang-dev)",
    )
}

/// Refuses: this build has no MPI.
///
/// # Errors
/// Always.
#[cfg(not(feature = "mpi"))]
pub fn over_mpi<K>(
    _: &Setup,
    _: impl FnOnce(usize) -> Result<K, Failure>,
    _: &Observer<'_>,
    _: &Stop,
) -> Result<Option<Led<K>>, Failure> {
    Err(missing())
}

/// All processes do the rounds; the first one, which is told how many there are, begins what keeps them and has what came of
/// them. Others have nothing.
///
/// # Errors
/// MPI cannot be started, or this process cannot plan or begin.
#[cfg(feature = "mpi")]
pub fn over_mpi<K>(
    setup: &Setup,
    begin: impl FnOnce(usize) -> Result<K, Failure>,
    observer: &Observer<'_>,
    stop: &Stop,
) -> Result<Option<Led<K>>, Failure> {
    use measure::mpi::MpiRanks;

    use super::plan;

    let mut ranks = MpiRanks::start()?;
    let names = ranks.names();
    if let Some(seed) = setup.seed {
        ranks.reorder(crate::pairs::shuffled(names.len(), seed));
    }
    let names = ranks.names();
    let plan = plan::of(setup, &names);
    let kept = match (ranks.leads(), &plan) {
        (true, Ok(_)) => Some(begin(names.len())).transpose(),
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
    let (plan, Some(kept)) = (plan?, kept?) else {
        return Ok(None);
    };
    let mut found = Measured::new(setup);
    if let Some(process) = missing {
        let result = match stop.is_stopped() {
            true => Err(measure::MeasureError::Interrupted.into()),
            false => Err(Failure::usage(format!(
                "process {process} cannot take part, and says why"
            ))),
        };
        return Ok(Some((kept, found, result)));
    }
    found.rotate.ranks = names;
    found.rotate.mpi_library = Some(MpiRanks::library());
    let mut led = Leader {
        ranks,
        stop,
        left: plan.rounds.len(),
    };
    // Whether to stop all processes decide together, after a round.
    let result = found.drive(&mut led, &plan, observer, &Stop::new());
    if result.is_err() && led.left > 0 {
        // The others are about to begin the next round.
        led.ranks.agree(false);
    }
    Ok(Some((kept, found, result)))
}

/// All rounds of a process that does not lead.
#[cfg(feature = "mpi")]
fn follow(ranks: &mut measure::mpi::MpiRanks, plan: &super::plan::Plan, stop: &Stop) {
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
struct Leader<'a> {
    ranks: measure::mpi::MpiRanks,
    stop: &'a Stop,
    /// Rounds that the other processes still expect.
    left: usize,
}

#[cfg(feature = "mpi")]
impl super::drive::Ranks for Leader<'_> {
    fn round(
        &mut self,
        flows: &[(usize, usize)],
        test: &measure::RankTest,
        tests: u32,
        _: &Stop,
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
