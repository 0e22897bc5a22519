//! The integration tests of this crate, in one binary.

mod crew;
mod files;
mod support;
mod tshark;
