//! Trees of files from one host to another, at the speed of the path between them.
//!
//! A source walks what it is told to send, a destination writes it and nothing else. What they tell each other about a
//! name is an [`Entry`]; bytes travel as blocks with their part of the file's BLAKE3 hash ([`digest`]), over links that
//! know who is at the other end ([`link`]).

#![forbid(unsafe_code)]

mod accounts;
mod attributes;
mod beneath;
mod channel;
mod confined;
pub mod destination;
pub mod digest;
pub mod engine;
pub mod entry;
pub mod filter;
pub mod gate;
pub mod journal;
mod key;
pub mod link;
mod listing;
pub mod manifest;
pub mod meeting;
pub mod message;
pub mod quic;
pub mod schedule;
#[cfg(test)]
mod scratch;
pub mod source;

pub use attributes::ATTRIBUTES_BYTES_MOST;
pub use confined::Confined;
pub use entry::{Entry, Kind, Meta, PathError, RelPath, Stamp};
pub use key::{Key, SessionId};
pub use link::Cipher;
