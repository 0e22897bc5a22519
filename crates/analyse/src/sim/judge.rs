//! What limits a simulated transfer: the rules of `doctor`, on the samples of the model's hosts.
//!
//! The rules see what they see of a real transfer, readings named as those of `tcp_info`, and what both ends'
//! machines state; of the scenario they know the path's rate and queue, as in a lab. Where they ask for a short
//! transfer that would tell causes apart, it is simulated.

use explain::{Diagnosis, Evidence, HostConfig, ProbePlan};
use lab::PathFile;
use lab::path::HostSpec;
use throughput::{PathKnowledge, Probe, ProbeKind};
use units::{Bytes, Duration, Rate};

use super::cells::Cell;
use super::course::{Course, Outcome};
use fault::Failure;
use job::Context;
use lab::model::{self, PacingWish, Planned, Wishes};

/// What the rules say, and the short simulations that they asked for.
pub(crate) fn diagnose(
    path: &PathFile,
    cell: &Cell,
    planned: &Planned,
    outcome: &Outcome,
    course: &Course<'_>,
    context: &Context,
) -> Result<(Diagnosis, Vec<Probe>), Failure> {
    let mut evidence = evidence(path, &cell.wishes, planned, outcome, course);
    let mut diagnosis = explain::diagnose(&evidence);
    let mut tried: Vec<ProbePlan> = Vec::new();
    while let Some(plan) = explain::next_probe(&diagnosis, &tried) {
        tried.push(plan);
        let probe = probe(path, cell, &plan, context)?;
        evidence.probes.push(probe);
        diagnosis = explain::diagnose(&evidence);
    }
    Ok((diagnosis, evidence.probes))
}

fn probe(
    path: &PathFile,
    cell: &Cell,
    plan: &ProbePlan,
    context: &Context,
) -> Result<Probe, Failure> {
    let mut wishes = Wishes {
        streams: plan.streams,
        ..cell.wishes.clone()
    };
    match plan.kind {
        ProbeKind::Segments(bytes) => {
            wishes.mtu_bytes = Some(u32::from(bytes) + IP_AND_TCP_BYTES);
        }
        ProbeKind::Paced(rate) => {
            let each = rate.as_bits_per_second() / u64::from(plan.streams.max(1));
            wishes.pacing = PacingWish::Rate(Rate::from_bits_per_second(each.max(8)));
        }
    }
    let planned = model::plan(path, &wishes)?;
    let course = Course {
        name: plan.kind.name(),
        time: plan.duration,
        ramp: plan.ramp,
        every: PROBE_EVERY,
        capture: None,
        finds: (wishes.pacing == PacingWish::Auto).then_some(1),
        settles: false,
        explains: true,
    };
    let outcome = course.run(&planned, context, None)?;
    let evidence = evidence(path, &wishes, &planned, &outcome, &course);
    Ok(plan.outcome(&evidence))
}

fn evidence(
    path: &PathFile,
    wishes: &Wishes,
    planned: &Planned,
    outcome: &Outcome,
    course: &Course<'_>,
) -> Evidence {
    let hosts = &path.network.hosts;
    let host = |spec: &HostSpec, congestion_control: &str| HostConfig {
        tcp_rmem_bytes: Some(spec.tcp_rmem_bytes),
        tcp_wmem_bytes: Some(spec.tcp_wmem_bytes),
        congestion_control: congestion_control.to_owned(),
        bus: spec.bus.map(|bus| bus.rate),
        ..HostConfig::default()
    };
    let rate = |bytes: u64, time: Duration| Rate::average(Bytes::new(bytes), time);
    Evidence {
        streams: outcome.streams.clone(),
        path: PathKnowledge {
            bottleneck: path.forward.rate,
            mtu_bytes: Some(planned.mtu_bytes),
            queue: planned.queue_bytes.map(Bytes::new),
            ..PathKnowledge::default()
        },
        sender: host(&hosts[path.transfer.from], wishes.algorithm.name()),
        receiver: host(&hosts[path.transfer.to], ""),
        duration: course.time,
        ramp: course.ramp,
        goodput_after_ramp: rate(
            outcome.bytes - outcome.at_ramp[0],
            course.time - course.ramp,
        ),
        goodput_whole: rate(outcome.bytes, course.time),
        idle_rtt: path.rtt_configured(),
        finds_pace: wishes.pacing == PacingWish::Auto,
        writes_always: !matches!(wishes.pacing, PacingWish::Application { .. }),
        ..Evidence::default()
    }
}

const IP_AND_TCP_BYTES: u32 = 40;
const PROBE_EVERY: Duration = Duration::from_ms(100);
