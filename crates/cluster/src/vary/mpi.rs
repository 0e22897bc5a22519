//! A sweep shared out to processes of MPI, each of which runs this program.

use fault::Failure;
use measure::Stop;

use super::Sweep;
use crate::simulate::Found;

/// What the first process has: what it began, and what came of all combinations.
pub type Led<K> = (K, Result<Found, Failure>);

/// Refuses: this build has no MPI.
///
/// # Errors
/// Always.
#[cfg(not(feature = "mpi"))]
pub fn over_mpi<K>(
    _: impl FnOnce() -> Result<Sweep, Failure>,
    _: impl FnOnce(&Sweep) -> Result<K, Failure>,
    _: &Stop,
) -> Result<Option<Led<K>>, Failure> {
    Err(Failure::usage(
        "this goodput was built without MPI: build it with `cargo build --release --features mpi`, which \
         needs mpicc and libclang",
    ))
}

/// All processes read the sweep and run their share of the combinations. The first one begins what keeps them, and has
/// what came of all; others have nothing.
///
/// # Errors
/// MPI cannot be started, or this process cannot read the sweep or begin.
#[cfg(feature = "mpi")]
pub fn over_mpi<K>(
    read: impl FnOnce() -> Result<Sweep, Failure>,
    begin: impl FnOnce(&Sweep) -> Result<K, Failure>,
    stop: &Stop,
) -> Result<Option<Led<K>>, Failure> {
    let processes = Processes(measure::mpi::MpiRanks::start()?);
    if !processes.0.leads() {
        let read = read();
        // A file may be on one node only: all go on or none.
        let all = processes.0.agree(read.is_ok());
        let led = all.first() == Some(&true);
        return match read {
            Ok(sweep) if !all.contains(&false) => {
                super::run(&sweep, Some(&processes), stop).map(|_| None)
            }
            // The first process says the same of itself where it could not either.
            Err(error) if led => Err(error),
            _ => Ok(None),
        };
    }
    let begun = read().and_then(|sweep| begin(&sweep).map(|kept| (sweep, kept)));
    let all = processes.0.agree(begun.is_ok());
    let (sweep, kept) = begun?;
    let found = match all.iter().position(|fine| !fine) {
        None => super::run(&sweep, Some(&processes), stop),
        Some(process) => Err(Failure::usage(format!(
            "process {process} cannot take part, and says why"
        ))),
    };
    Ok(Some((kept, found)))
}

#[cfg(feature = "mpi")]
struct Processes(measure::mpi::MpiRanks);

#[cfg(feature = "mpi")]
impl super::Crew for Processes {
    fn place(&self) -> (usize, usize) {
        self.0.place()
    }

    fn gather(&self, own: &str) -> Vec<String> {
        self.0.gather(own)
    }
}
