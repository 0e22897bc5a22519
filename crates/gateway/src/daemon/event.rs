//! What a gateway's process has to say while it runs.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use run::FolderError;
use units::Duration;

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// Its run folder cannot be made; it runs without.
    NoRunFolder(FolderError),
    /// Its run folder cannot be written any more; it runs on without.
    RunFolderEnded(FolderError),
    /// This is what it does to the machine until it ends, as text.
    Changes(String),
    /// No directory for a control socket is known; it runs without.
    NoControlDirectory,
    /// Its control socket cannot be made; it runs without.
    NoControl {
        /// The socket.
        file: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// Counts can be read here.
    Metrics(SocketAddr),
    /// Counts cannot be read: this address did not get free.
    NoMetrics(SocketAddr),
    /// It has taken so many connections over from the gateway that ran.
    TookOver {
        /// Connections.
        live: u64,
    },
    /// It splits connections between these interfaces.
    Splitting {
        /// Interfaces inside, with commas between them.
        inside: String,
        /// The same outside.
        outside: String,
    },
    /// It accepts connections that are made to it.
    Accepting,
    /// The log of decisions cannot be written; what is lost is counted.
    LogFailed {
        /// The log.
        file: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// The program that was to go on for it did not; it goes on itself.
    UpgradeFailed(String),
    /// It could not give its connections away; it goes on itself.
    HandOverFailed(io::Error),
    /// It takes no connection up any more, and waits so long for those that it has.
    Draining {
        /// Connections.
        live: u64,
        /// How long they may go on.
        time: Duration,
    },
}
