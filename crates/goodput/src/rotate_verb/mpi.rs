//! Ranks that are processes of MPI.

use super::{Done, RotateArgs};
use crate::context::Context;
use crate::failure::Failure;

/// Refuses: this build has no MPI.
pub(super) fn perform(_: &RotateArgs, _: &Context) -> Result<Option<Done>, Failure> {
    Err(Failure::usage(anyhow::anyhow!(
        "this goodput was built without MPI: build it with `cargo build --release --features mpi`, which \
         needs mpicc and libclang"
    )))
}
