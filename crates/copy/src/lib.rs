//! Trees of files from one host to another, at the speed of the path between them.
//!
//! A source walks what it is told to send ([`source`]), a destination writes it and nothing else ([`destination`]).
//! What they tell each other about a name is an [`Entry`].

#![forbid(unsafe_code)]

pub mod entry;

pub use entry::{Entry, Kind, Meta, PathError, RelPath, Stamp};
