//! What rules and remedies look at.

use crate::evidence::Evidence;
use crate::facts::Facts;

/// What a rule looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'a> {
    pub(crate) evidence: &'a Evidence,
    pub(crate) facts: &'a Facts,
}
