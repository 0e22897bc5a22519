//! What came of simulations, in the schema of a run folder.

use job::record;
use lab::PathFile;
use report::model::{GapThreshold, ModelFacts, PathFacts, Phase, Run, Verdict};
use throughput::PathKnowledge;
use units::{Bytes, Duration, Instant, Rate};

use super::cells::Cell;
use super::course::{Outcome, counted};
use lab::model::{PacingWish, Planned};

/// `one_queue`: all cells have the planned one.
pub(crate) fn path_facts(path: &PathFile, planned: &Planned, one_queue: bool) -> PathFacts {
    let knowledge = PathKnowledge {
        bottleneck: path.forward.rate,
        mtu_bytes: Some(planned.mtu_bytes),
        ..PathKnowledge::default()
    };
    let rtt = path.rtt_configured();
    PathFacts {
        scaled_by: None,
        source: "configured".to_owned(),
        file: Some(path.file.display().to_string()),
        text: Some(path.text.clone()),
        title: Some(path.title.clone()),
        rate_bits_per_second: path.forward.rate.map(Rate::as_bits_per_second),
        achievable_bits_per_second: knowledge.achievable_rate().map(Rate::as_bits_per_second),
        rtt_idle_ns: Some(rtt.as_ns()),
        delay_forward_ns: Some(path.forward.delay.as_ns()),
        delay_backward_ns: Some(path.backward.delay.as_ns()),
        queue_bytes: match one_queue {
            true => planned.queue_bytes,
            false => None,
        },
        loss_forward: path.forward.loss,
        loss_backward: path.backward.loss,
        mtu_bytes: Some(planned.mtu_bytes),
        bdp_bytes: path.forward.rate.map(|r| r.bytes_in(rtt).as_u64()),
    }
}

pub(crate) fn phase(
    path: &PathFile,
    cell: &Cell,
    planned: &Planned,
    outcome: &Outcome,
    time: Duration,
    ramp: Duration,
) -> Phase {
    let wishes = &cell.wishes;
    let [bytes_before, sent_before, again_before] = outcome.at_ramp;
    let senders = outcome.flows.iter().filter_map(|f| f.sender.as_ref());
    let sent: u64 = outcome.flows.iter().map(|f| f.data_packets).sum();
    let again: u64 = senders.map(|s| s.retransmitted).sum();
    let after = Bytes::new(outcome.bytes - bytes_before);
    Phase {
        name: cell.name.clone(),
        attempts: 1,
        direction: "up".to_owned(),
        streams: wishes.streams.into(),
        congestion_control: wishes.algorithm.name().to_owned(),
        application_bits_per_second: match wishes.pacing {
            PacingWish::Application { rate, .. } => rate.as_bits_per_second(),
            _ => 0,
        },
        duration_ns: time.as_ns(),
        ramp_ns: ramp.as_ns(),
        rtt_idle_ns: path.rtt_configured().as_ns(),
        goodput_bits_per_second: Rate::average(after, time - ramp).as_bits_per_second(),
        goodput_whole_bits_per_second: Rate::average(Bytes::new(outcome.bytes), time)
            .as_bits_per_second(),
        bytes_received: outcome.bytes,
        // As the kernel's counts of `measure`: after the ramp.
        segments_sent: sent - sent_before,
        segments_retransmitted: again - again_before,
        segment_bytes: planned.segment_bytes.into(),
        packets_per_second: after.as_u64() / u64::from(planned.segment_bytes) * 1_000_000_000
            / (time - ramp).as_ns().max(1),
        notes: vec![format!(
            "Simulated, not measured: model packets in virtual time; dropped at full queues {}, lost on the way {}",
            outcome.queue_full, outcome.lost
        )],
        model: Some(ModelFacts {
            pacing: wishes.pacing.to_string(),
            gap_octets: match wishes.pacing {
                PacingWish::Gap(octets) => Some(octets),
                _ => None,
            },
            queue_limit_bytes: planned.queue_bytes,
            queue_max_bytes: outcome.queue_max_bytes,
            queue_growth_bytes_per_second: outcome.track.growth(),
            dropped_at_queues: outcome.queue_full,
            lost_on_the_way: outcome.lost,
            first_drop_ns: outcome.track.first_drop.map(Instant::as_ns),
            recoveries: counted(outcome, |s| s.recoveries),
            timeouts: counted(outcome, |s| s.timeouts),
            bus_bits_per_second: planned.bus.map(|(rate, _)| rate.as_bits_per_second()),
            bus_payload_bits_per_second: planned.bus.map(|(_, rate)| rate.as_bits_per_second()),
            ..ModelFacts::default()
        }),
        ..Phase::default()
    }
}

pub(crate) fn verdict(run: &Run, outcome: &Outcome) -> Verdict {
    let goodput = run.phases.last().map_or(0, |p| p.goodput_bits_per_second);
    let rate = Rate::from_bits_per_second(goodput);
    let achievable = run.path.as_ref().and_then(|p| p.achievable_bits_per_second);
    let share = achievable.map_or_else(String::new, |a| {
        format!(
            ", {:.1} % of what the path can carry",
            record::percent(rate, a)
        )
    });
    let (recoveries, timeouts) = (
        counted(outcome, |s| s.recoveries),
        counted(outcome, |s| s.timeouts),
    );
    let sentence = match run.phases.len() {
        1 => format!(
            "In the model {rate}{share}; {recoveries} recoveries from loss, {timeouts} timeouts."
        ),
        n => format!("In the model {n} simulations; the last one {rate}{share}."),
    };
    Verdict {
        sentence,
        conclusive: true,
        ..Verdict::default()
    }
}

/// Where gaps stop losing, of several.
pub(crate) fn threshold(phases: &[Phase], planned: &Planned) -> Option<GapThreshold> {
    let mut gaps: Vec<(u32, u64)> = phases
        .iter()
        .filter_map(|p| p.model.as_ref())
        .filter_map(|m| Some((m.gap_octets?, m.dropped_at_queues)))
        .collect();
    gaps.sort_unstable();
    let losing = gaps.iter().rposition(|(_, dropped)| *dropped > 0);
    let clean = gaps.get(losing.map_or(0, |n| n + 1));
    (gaps.len() > 1).then(|| GapThreshold {
        balanced_octets: planned.balanced_gap,
        losing_octets: losing.map(|n| gaps[n].0),
        clean_octets: clean.map(|(gap, _)| *gap),
    })
}
