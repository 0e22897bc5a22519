//! Trees of files from one host to another, at the speed of the path between them.
//!
//! A source walks what it is told to send ([`source`]), a destination writes it and nothing else ([`destination`]).
//! What they tell each other about a name is an [`Entry`].

#![forbid(unsafe_code)]

mod accounts;
mod attributes;
mod beneath;
pub mod destination;
pub mod entry;
pub mod filter;
mod listing;
#[cfg(test)]
mod scratch;
pub mod source;

pub use attributes::ATTRIBUTES_BYTES_MOST;
pub use entry::{Attribute, Entry, Kind, Meta, PathError, RelPath, Stamp};
