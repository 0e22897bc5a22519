//! The two directions of a link, by name.

use serde::{Deserialize, Serialize};

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the first node that the link names to the second.
    Forward,
    /// The way back.
    Backward,
}

impl Direction {
    /// Its word, in requests and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
        }
    }
}
