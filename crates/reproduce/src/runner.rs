//! Who runs a step of a row, and what comes of it.

use std::fmt;
use std::path::PathBuf;

use serde_json::Value;

use crate::experiment::RunStep;

/// Knows the verbs that steps name.
pub trait Runner {
    /// A step begins, also one that another kernel is booted for.
    fn begins(&mut self, step: &RunStep) {
        let _ = step;
    }

    /// Runs `step` to its end.
    ///
    /// # Errors
    /// There is no run that could be judged, and why.
    fn run(&mut self, step: &RunStep) -> Result<Done, NoRun>;
}

/// What a step gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// Its `run.json` (the model of `report::model::Run`), or what a check reads in place of it.
    pub run: Value,
    /// Where the evidence lies.
    pub folder: Option<PathBuf>,
}

/// Why a step gave nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRun {
    /// This machine lacks what it takes: that says nothing of goodput.
    Lacking(String),
    /// It did not run, or not to its end.
    Failed(String),
}

impl<T: Into<String>> From<T> for NoRun {
    fn from(why: T) -> Self {
        Self::Failed(why.into())
    }
}

impl fmt::Display for NoRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lacking(what) => write!(f, "cannot run here: {what}"),
            Self::Failed(why) => write!(f, "did not run: {why}"),
        }
    }
}
