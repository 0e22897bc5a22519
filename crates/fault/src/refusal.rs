//! What is wrong with a text that somebody wrote, and where.

/// A text refused: what is wrong, and from which byte on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Bytes before it.
    pub at: usize,
    /// What is wrong there, in words for whoever wrote it.
    pub problem: String,
}

impl Refusal {
    /// Refuses what begins at `at`.
    pub fn new(at: usize, problem: impl Into<String>) -> Self {
        let problem = problem.into();
        Self { at, problem }
    }
}
