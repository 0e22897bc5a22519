//! How work fails and whose fault that is: one error type for services and jobs, with the exit code that belongs to it.
//!
//! Left out: errors that a caller takes apart; those are each crate's own enums, which become a [`Failure`] at its edge.

#![forbid(unsafe_code)]

mod refusal;

use std::error::Error;
use std::fmt;

pub use refusal::Refusal;

/// An error with the exit code that belongs to it.
#[derive(Debug)]
pub struct Failure {
    /// Exit code.
    pub code: u8,
    error: Cause,
}

/// What went wrong, in words for the user; a `String`, a `&str`, or any error.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Result of a verb: the exit code when it ran to its end.
pub type Verdict = Result<u8, Failure>;

/// Done.
pub const DONE: u8 = 0;
/// The check or comparison failed, or nothing could be concluded.
pub const CHECK_FAILED: u8 = 1;
/// What was typed or written in a file makes no sense.
pub const USAGE: u8 = 2;
/// Not on this machine: privilege, kernel feature, disk.
pub const CANNOT_RUN_HERE: u8 = 3;
/// The far end or the network failed.
pub const FAR_OR_NETWORK: u8 = 4;

impl Failure {
    /// The user's request is at fault.
    pub fn usage(error: impl Into<Cause>) -> Self {
        Self {
            code: USAGE,
            error: error.into(),
        }
    }

    /// This machine is at fault.
    pub fn here(error: impl Into<Cause>) -> Self {
        Self {
            code: CANNOT_RUN_HERE,
            error: error.into(),
        }
    }

    /// The far end or the network is at fault.
    pub fn far(error: impl Into<Cause>) -> Self {
        Self {
            code: FAR_OR_NETWORK,
            error: error.into(),
        }
    }

    /// An error with the exit code that another process had for it.
    pub fn with_code(code: u8, error: impl Into<Cause>) -> Self {
        Self {
            code,
            error: error.into(),
        }
    }

    /// What was to be checked does not hold.
    pub fn check(message: String) -> Self {
        Self {
            code: CHECK_FAILED,
            error: message.into(),
        }
    }

    /// Ended by a signal.
    pub fn interrupted(code: u8) -> Self {
        Self {
            code,
            error: "stopped by the user".into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_its_cause_and_has_the_exit_code_of_whoever_is_at_fault() {
        for (failure, code) in [
            (Failure::usage("no such path"), 2),
            (Failure::here("no such path"), 3),
            (Failure::far("no such path"), 4),
            (Failure::check("no such path".to_owned()), 1),
        ] {
            assert_eq!(
                (failure.code, failure.to_string().as_str()),
                (code, "no such path")
            );
        }
        assert_eq!(Failure::interrupted(130).code, 130);
    }
}
