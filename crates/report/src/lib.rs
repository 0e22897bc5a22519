//! The run folder and the self-contained HTML report drawn from it.

pub mod model;
