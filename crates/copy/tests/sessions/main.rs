//! Sessions as others run them: whole ones, ones that are disturbed, and ones whose other side means harm.

#![allow(
    clippy::cast_possible_truncation,
    reason = "small numbers that a test chose"
)]

mod belongings;
mod common;
mod disk;
#[path = "../../examples/two_ends.rs"]
mod example;
mod faults;
mod hostile;
mod null;
mod places;
mod quic;
mod racing;
mod several;
mod unasked;
mod whole;
