//! How the command fails: whose fault it is decides the exit code.

use std::fmt;

use measure::Fault;

/// An error with the exit code that belongs to it.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Exit code.
    pub(crate) code: u8,
    error: anyhow::Error,
}

/// Result of a verb: the exit code when it ran to its end.
pub(crate) type Verdict = Result<u8, Failure>;

/// Done.
pub(crate) const DONE: u8 = 0;
/// The check or comparison failed, or nothing could be concluded.
pub(crate) const CHECK_FAILED: u8 = 1;
/// What was typed or written in a file makes no sense.
pub(crate) const USAGE: u8 = 2;
/// Not on this machine: privilege, kernel feature, disk.
pub(crate) const CANNOT_RUN_HERE: u8 = 3;
/// The far end or the network failed.
pub(crate) const FAR_OR_NETWORK: u8 = 4;

impl Failure {
    /// The user's request is at fault.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self {
            code: USAGE,
            error: error.into(),
        }
    }

    /// This machine is at fault.
    pub(crate) fn here(error: impl Into<anyhow::Error>) -> Self {
        Self {
            code: CANNOT_RUN_HERE,
            error: error.into(),
        }
    }

    /// The far end or the network is at fault.
    pub(crate) fn far(error: impl Into<anyhow::Error>) -> Self {
        Self {
            code: FAR_OR_NETWORK,
            error: error.into(),
        }
    }

    /// What was to be checked does not hold.
    pub(crate) fn check(message: String) -> Self {
        Self {
            code: CHECK_FAILED,
            error: anyhow::Error::msg(message),
        }
    }

    /// Ended by a signal.
    pub(crate) fn interrupted(code: u8) -> Self {
        Self {
            code,
            error: anyhow::Error::msg("stopped by the user"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)
    }
}

impl From<lab::PathError> for Failure {
    fn from(error: lab::PathError) -> Self {
        Self::usage(error)
    }
}

impl From<lab::LabError> for Failure {
    fn from(error: lab::LabError) -> Self {
        Self::here(error)
    }
}

impl From<report::FolderError> for Failure {
    fn from(error: report::FolderError) -> Self {
        match error {
            report::FolderError::NotARun { .. } | report::FolderError::Malformed { .. } => {
                Self::usage(error)
            }
            _ => Self::here(error),
        }
    }
}

impl From<measure::MeasureError> for Failure {
    fn from(error: measure::MeasureError) -> Self {
        let code = match error.fault() {
            // Whichever end is the older one: this machine can run goodput, the two do not go together.
            _ if matches!(error, measure::MeasureError::VersionMismatch { .. }) => FAR_OR_NETWORK,
            Fault::Usage => USAGE,
            Fault::ThisHost => CANNOT_RUN_HERE,
            _ => FAR_OR_NETWORK,
        };
        Self {
            code,
            error: error.into(),
        }
    }
}
