//! The simulations that a run is made of: every combination of what is varied.

use fault::Failure;
use lab::PathFile;
use tcp::Algorithm;
use units::Bytes;

use super::plan::Plan;
use lab::model::{PacingWish, Wishes};

/// One of the simulations that a run is made of.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// What differs from the others.
    pub(crate) name: String,
    pub(crate) wishes: Wishes,
}

/// Every combination of what is varied.
pub(crate) fn cells(plan: &Plan, path: &PathFile) -> Result<Vec<Cell>, Failure> {
    let near = &path.network.hosts[path.transfer.from];
    let own = [near.congestion_control.clone()];
    let names: &[String] = match plan.congestion.is_empty() {
        true => &own,
        false => &plan.congestion,
    };
    let queues: Vec<Option<Bytes>> = match plan.queue.is_empty() {
        true => vec![None],
        false => plan.queue.iter().copied().map(Some).collect(),
    };
    let pacings = &plan.pacing;
    let mut cells = Vec::new();
    for name in names {
        for queue in &queues {
            for pacing in pacings {
                let mut parts = Vec::new();
                if names.len() > 1 {
                    parts.push(name.clone());
                }
                parts.extend(queue.filter(|_| queues.len() > 1).map(|q| q.to_string()));
                if pacings.len() > 1 {
                    parts.push(pacing.to_string());
                }
                let name_of_all = match parts.is_empty() {
                    true => PHASE.to_owned(),
                    false => parts.join(", "),
                };
                let algorithm = match pacing {
                    PacingWish::Auto if plan.congestion.is_empty() => Algorithm::Bbr.name(),
                    _ => name,
                };
                cells.push(Cell {
                    name: name_of_all,
                    wishes: wishes(plan, path, algorithm, *pacing, *queue)?,
                });
            }
        }
    }
    let mut names: Vec<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Failure::usage(format!(
            "'{}' would be simulated twice",
            pair[0]
        )));
    }
    if cells.len() > CELLS_MAX {
        return Err(Failure::usage(format!(
            "{} simulations are too many for one run; {CELLS_MAX} at most",
            cells.len()
        )));
    }
    Ok(cells)
}

fn wishes(
    plan: &Plan,
    path: &PathFile,
    name: &str,
    pacing: PacingWish,
    queue: Option<Bytes>,
) -> Result<Wishes, Failure> {
    let Some(algorithm) = Algorithm::named(name) else {
        let known: Vec<&str> = Algorithm::ALL.iter().map(|a| a.name()).collect();
        return Err(Failure::usage(format!(
            "the sim has no congestion control '{name}'; it has {}",
            known.join(", ")
        )));
    };
    Ok(Wishes {
        streams: plan.streams.unwrap_or(path.transfer.streams),
        algorithm,
        hystart: plan.hystart,
        pacing,
        apart: plan.apart,
        queue,
        mtu_bytes: plan.mtu_bytes,
        seed: plan.seed,
        burst_bytes: u32::try_from(plan.burst.as_u64())
            .unwrap_or(65_536)
            .min(65_536),
        lone_segments: false,
        counts_acks: plan.counts_acks,
    })
}

/// Phase of a run that varies nothing.
const PHASE: &str = "measured";
const CELLS_MAX: usize = 1_000;
