//! Captures, in and out.
//!
//! [`file`] brings in capture files and standard input: read, decompressed, cut into packets and those decoded,
//! as `wire::capture` and `wire::segment` have it; [`decoder`] puts fragments together and counts. [`live`] takes frames of an interface from the kernel and
//! gives them to an [`out::Output`], which writes one file or a row of them ([`rotation`]).
//!
//! Left out: seeking, compression other than gzip, zstd, lz4 and xz, and any when writing.

mod compressed;
pub mod crew;
pub mod decoder;
pub mod file;
pub mod live;
pub mod out;
pub mod rotation;

pub use live::{Captured, Limits, Options, Progress, Stamps, Tap};
pub use out::{About, Format, Output, Record};
pub use rotation::{Place, Rotation};

use fault::Failure;
use std::io;
use std::path::PathBuf;

/// Why a capture could not be made or went no further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// No such interface; the names of those there are.
    #[error("there is no interface '{name}' here, but {}", .there.join(", "))]
    NoInterface {
        /// The name that was asked for.
        name: String,
        /// Those that this network namespace has.
        there: Vec<String>,
    },
    /// Packet sockets are not for everybody.
    #[error(
        "capturing on '{0}' needs CAP_NET_RAW: be root, give the binary the capability (setcap \
         cap_net_raw+ep), or capture inside a lab (goodput lab exec)"
    )]
    NotPermitted(String),
    /// Something that does not carry Ethernet frames.
    #[error(
        "'{name}' does not carry Ethernet frames (hardware type {hardware}); only those are read"
    )]
    NotEthernet {
        /// The interface.
        name: String,
        /// ARP's number of its hardware.
        hardware: u16,
    },
    /// The filter is too long for the kernel.
    #[error("{0}")]
    Filter(#[from] wire::filter::FilterError),
    /// The interface went away in the middle; what was captured before is in the file.
    #[error("'{0}' went down; what it had carried until then is in the file")]
    WentDown(String),
    /// A step of setting the socket up, or of reading it.
    #[error("{step} on '{name}': {error}")]
    Socket {
        /// The interface.
        name: String,
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// There is something there already.
    #[error("{} is there already; --force writes over it", .0.display())]
    Exists(PathBuf),
    /// Writing failed; the packets before it are in the file.
    #[error("writing {}: {error}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        error: io::Error,
    },
    /// Who read our output wants no more of it.
    #[error("nobody reads the output any more")]
    NobodyReads,
}

impl From<CaptureError> for Failure {
    fn from(error: CaptureError) -> Self {
        match error {
            CaptureError::NoInterface { .. }
            | CaptureError::NotEthernet { .. }
            | CaptureError::Filter(_)
            | CaptureError::Exists(_) => Self::usage(error),
            _ => Self::here(error),
        }
    }
}
