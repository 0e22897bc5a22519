//! Trees of files from one host to another, at the speed of the path between them.
//!
//! A source walks what it is told to send, a destination writes it and nothing else. What they tell each other about a
//! name is an [`Entry`]; bytes travel as blocks with their part of the file's BLAKE3 hash ([`digest`]), over links that
//! know who is at the other end ([`link`]).
//!
//! The short way in is a [`Session`]: it says how the two ends know each other, [`send_tree`] and [`receive_tree`] do the rest,
//! and a [`Watch`](engine::Watch) tells how far they are. What can be set beside is in [`engine`].
//!
//! ```
//! use std::net::{TcpListener, TcpStream};
//! use copy::{Session, engine::Watch, link::Socket};
//!
//! let top = std::env::temp_dir().join(format!("goodput-copy-doc-{}", std::process::id()));
//! std::fs::create_dir_all(top.join("from/below"))?;
//! std::fs::write(top.join("from/below/file"), "text")?;
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let at = listener.local_addr()?;
//! let session = Session::new()?;
//! let near = session.connects(Box::new(move || TcpStream::connect(at).map(Socket::Tcp)));
//! let far = session.listens();
//!
//! let (sends, receives) = (Watch::default(), Watch::default());
//! let account = std::thread::scope(|scope| {
//!     scope.spawn(|| copy::meeting::listen(&listener, &far));
//!     scope.spawn(|| copy::receive_tree(&far, &top.join("to"), &receives));
//!     copy::send_tree(&near, &top.join("from/"), &sends)
//! })?;
//! assert_eq!((account.placed, account.received_bytes, account.failed), (1, 4, 0));
//! assert_eq!(receives.progress().confirmed_bytes, 4);
//! assert_eq!(std::fs::read(top.join("to/below/file"))?, b"text");
//! # std::fs::remove_dir_all(&top)?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod accounts;
mod attributes;
mod beneath;
mod channel;
mod confined;
pub mod destination;
pub mod digest;
mod direct;
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
mod reason;
mod room;
pub mod schedule;
#[cfg(test)]
mod scratch;
mod session;
pub mod source;
pub mod task;
pub mod unpaced;
mod ways;

pub use attributes::ATTRIBUTES_BYTES_MOST;
pub use confined::Confined;
pub use entry::{Entry, Kind, Meta, PathError, RelPath, Stamp};
pub use key::{Key, SessionId};
pub use link::Cipher;
pub use session::{Progress, Session, receive_tree, send_tree};
pub use ways::{Carried, Near, Way};
