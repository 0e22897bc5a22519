//! The integration tests of this crate, in one binary.

mod below_tcp;
mod grid;
mod kinds;
mod pace;
mod properties;
mod scenario;
