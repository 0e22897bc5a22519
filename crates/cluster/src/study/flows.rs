//! A step as fluids: rates by fair shares over the tables' ways, times by volumes, latencies by formula.

use crate::pattern::Counts;
use crate::{Step, Study};
use fabric::FlowSpec;
use run::model::FabricStep;

use super::made::{Fluids, Made};
use super::picture::picture;
use super::{Item, Outcome, float, formula_parts, packets};
use fault::Failure;

/// Estimates it; a picture of its cables if it is worse than the worst so far, which it then is.
pub(super) fn step(
    study: &Study,
    made: &Made,
    fluids: &mut Fluids<'_>,
    item: &Item,
    step: &Step,
    worst: Option<&mut f64>,
) -> Result<Outcome, Failure> {
    let spec = &made.built.spec;
    let mut outcome = Outcome {
        fluid_flows: step.flows.len() as u64,
        ..Outcome::default()
    };
    let volumes = fluids.volumes(&step.flows);
    if let Some(n) = volumes.iter().position(|v| v.alone <= 0.0) {
        let sends = step.sends[n];
        return Err(Failure::check(format!(
            "{} with {} nodes, step {}: a buffer on the way of rank {} to {} holds no packet",
            study.name, item.nodes, item.step, sends.from, sends.to
        )));
    }
    let done_s = fluids.shared.finish(&volumes);
    for load in fluids.shared.loads() {
        if made.inner[load.channel as usize] {
            outcome.flows_max = outcome.flows_max.max(load.flows);
        }
    }
    // What a message takes beside its bytes' rate: its first packet's way.
    let mut way = Vec::new();
    let mut took_s = Vec::with_capacity(volumes.len());
    for (flow, done) in step.flows.iter().zip(&done_s) {
        way.clear();
        made.routes.way(&made.graph, flow.from, flow.to, &mut way);
        took_s.push(done + float(fluids.alone.of(spec, flow, &way).latency_ps) * 1e-12);
    }
    outcome.took_ps = took_s.iter().copied().fold(0.0, f64::max) * 1e12;
    match study.traffic.kind.counts() {
        Counts::Rate => {
            for ((sends, volume), (took, done)) in step
                .sends
                .iter()
                .zip(&volumes)
                .zip(took_s.iter().zip(&done_s))
            {
                let rate = volume.bytes / took;
                outcome.rates.add(rate);
                outcome.fair_sum += volume.bytes / done;
                if item.mapped {
                    outcome.pairs.push((sends.from, sends.to, rate));
                }
            }
        }
        Counts::Latency => {
            for flow in &step.flows {
                let back = FlowSpec {
                    from: flow.to,
                    to: flow.from,
                    ..*flow
                };
                let ways = [flow, &back].map(|f| made.way(f.from, f.to));
                let there = formula_parts(&made.built, flow, &ways[0]);
                let back = formula_parts(&made.built, &back, &ways[1]);
                outcome.latencies_ps.push((there.sum + back.sum) / 2.0);
                outcome.parts.push(there);
            }
        }
        Counts::Time => {
            outcome.jobs_ps = packets::jobs(study, fluids, step, &volumes, |n| took_s[n] * 1e12);
        }
    }
    if let Some(worst) = worst
        && outcome.goodness() < *worst
    {
        *worst = outcome.goodness();
        // The ideal of a program is another fabric's: this one's flows once more.
        outcome.step = Some(drawn(made, fluids, item, &outcome, &volumes));
    }
    Ok(outcome)
}

/// The cables between chips.
fn drawn(
    made: &Made,
    fluids: &Fluids<'_>,
    item: &Item,
    outcome: &Outcome,
    volumes: &[fabric::fluid::Volume],
) -> FabricStep {
    let mut flows_over = vec![0; made.inner.len()];
    let mut bytes_over = vec![0.0; made.inner.len()];
    for (n, volume) in volumes.iter().enumerate() {
        for channel in fluids.shared.way(n) {
            let channel = *channel as usize;
            if made.inner[channel] {
                flows_over[channel] += 1;
                bytes_over[channel] += volume.bytes;
            }
        }
    }
    let took_s = outcome.took_ps * 1e-12;
    picture(
        made,
        item,
        outcome.took_ps / 1e3,
        &flows_over,
        |channel, cable| {
            let most = fluids.shared.capacity(u32::try_from(channel).unwrap_or(0)) * took_s;
            run::model::FabricCable {
                busy_share: bytes_over[channel] / most.max(1.0),
                ..cable
            }
        },
    )
}
