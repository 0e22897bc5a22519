//! The way of a case's messages, and what each part of it lets through.

use fabric::formula::{self, Bound, Limit};
use fabric::{FlowSpec, World};

use crate::Case;

/// Of all cores together.
pub(crate) fn bounds(case: &Case, flow: &FlowSpec) -> Vec<Bound> {
    let way = way(case, flow);
    let mut bounds = formula::bounds(&case.spec, flow, &way);
    for bound in &mut bounds {
        if bound.limit == Limit::Post {
            bound.bytes_per_second *= f64::from(case.traffic.cores);
        }
    }
    bounds
}

pub(crate) fn way(case: &Case, flow: &FlowSpec) -> Vec<(u32, usize)> {
    World::new(&case.spec, &[]).map_or_else(|_| Vec::new(), |w| w.path(flow.from, flow.to))
}
