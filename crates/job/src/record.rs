//! What a run folder keeps of any job: how a run began and ended, its hosts, path, findings and certificate in the schema's types.

use fault::Failure;
use lab::{Certificate, DirectionCounts};
use measure::{HostFacts, Outcome};
use run::model::{self, FindingRecord, PathFacts, RemedyRecord, Run, RunState};
use run::settling::Known;
pub use run::{now_utc, utc_of_ns};
use throughput::{Finding, PathKnowledge, Probe, ProbeKind, Verdict};
use units::Rate;

use crate::context::Context;
use crate::target::Target;

/// A run that has just begun.
pub fn begin(verb: &str, target: &Target, context: &Context) -> Run {
    Run {
        schema_version: model::SCHEMA_VERSION,
        verb: verb.to_owned(),
        name: target.name(),
        state: RunState::Running,
        command_line: context.command_line.clone(),
        goodput_version: env!("CARGO_PKG_VERSION").to_owned(),
        started_utc: now_utc(),
        seed: match target {
            Target::Lab(path) => Some(path.forward.seed),
            Target::Host(_) | Target::Iperf3(_) => None,
        },
        ..Run::default()
    }
}

/// Marks a run ended; one that nothing went wrong with is done.
pub fn end(run: &mut Run) {
    run.finished_utc = Some(now_utc());
    if run.state == RunState::Running {
        run.state = RunState::Done;
    }
}

/// Marks a run ended as its work has: stopped by the user, failed, or done.
pub fn end_as<T>(run: &mut Run, result: &Result<T, Failure>, context: &Context) {
    // A transfer that was stopped half-way is a result, but not what was asked for.
    if let Some(code) = context.interrupted() {
        run.state = RunState::Interrupted;
        run.error = Some(Failure::interrupted(code).to_string());
    } else if let Err(failure) = result {
        run.state = RunState::Failed;
        run.error = Some(failure.to_string());
    }
    end(run);
}

/// What a run without phases says where its lab was not what its path file says.
pub fn fell_behind(certificate: Option<&model::Certificate>) -> Option<String> {
    certificate.filter(|c| !c.trusted).map(|_| {
        "The lab fell behind, so these numbers say nothing about the path: lower the path's rate or \
         free the CPU, and run again."
            .to_owned()
    })
}

/// Readings of both ends.
pub fn samples<'a>(
    phase: &'a str,
    outcome: &'a Outcome,
) -> impl Iterator<Item = model::SampleRecord> + 'a {
    let ends = [("sender", &outcome.sender), ("receiver", &outcome.receiver)];
    ends.into_iter().flat_map(move |(end, result)| {
        result.samples.iter().map(move |s| model::SampleRecord {
            phase: phase.to_owned(),
            end: end.to_owned(),
            stream: u32::from(s.stream),
            t_ns: s.t.as_ns(),
            app_bytes: s.app_bytes,
            tcp_info: match &s.quic {
                None => s
                    .info
                    .fields()
                    .map(|(name, value)| (name.to_owned(), value))
                    .collect(),
                Some(quic) => quic
                    .fields()
                    .map(|(name, value)| (format!("quic_{name}"), value))
                    .collect(),
            },
        })
    })
}

/// This machine, of which no far end is told.
pub fn this_host() -> model::HostFacts {
    host("near", None, &HostFacts::of_this_host(None), None)
}

/// A host and its interface as run.json has them; without a `name`, by the name that it has itself.
pub fn host(
    role: &str,
    name: Option<String>,
    facts: &HostFacts,
    congestion_control: Option<String>,
) -> model::HostFacts {
    model::HostFacts {
        role: role.to_owned(),
        name: name.unwrap_or_else(|| facts.hostname.clone()),
        kernel: facts.kernel.clone(),
        cpu_model: facts.cpu_model.clone(),
        cpus: facts.cpus,
        load_1min_percent: facts.load_1min_percent,
        nics: facts
            .interface
            .iter()
            .map(|nic| model::NicFacts {
                name: nic.name.clone(),
                mtu_bytes: nic.mtu_bytes,
                driver: nic.driver.clone(),
                speed_bits_per_second: nic.speed_bits_per_second,
                tso: nic.work.tso,
                gso: nic.work.gso,
                gro: nic.work.gro,
                lro: nic.work.lro,
                transmit_checksum: nic.work.transmit_checksum,
                receive_checksum: nic.work.receive_checksum,
                receive_hold_off_us: nic.work.receive_hold_off_us,
                receive_hold_off_frames: nic.work.receive_hold_off_frames,
                receive_hold_off_adapts: nic.work.receive_hold_off_adapts,
                pci: nic.pci.as_ref().map(pci),
            })
            .collect(),
        tcp_rmem_bytes: facts.tcp_rmem_bytes,
        tcp_wmem_bytes: facts.tcp_wmem_bytes,
        congestion_control,
    }
}

/// A PCI Express link as run.json has it.
pub fn pci(link: &measure::PciFacts) -> model::PciFacts {
    model::PciFacts {
        address: link.address.clone(),
        megatransfers_per_second: link.megatransfers,
        lanes: link.lanes,
        megatransfers_per_second_max: link.megatransfers_max,
        lanes_max: link.lanes_max,
        payload_bytes: link.payload_bytes,
        payload_max_bytes: link.payload_max_bytes,
        read_request_bytes: link.read_request_bytes,
        bits_per_second: link.bits_per_second,
        slower_above: link.slower_above.clone(),
    }
}

/// A lab's path by its file, whatever was measured on it.
pub fn of_file(path: &lab::PathFile) -> PathFacts {
    PathFacts {
        source: "configured".to_owned(),
        file: Some(path.file.display().to_string()),
        text: Some(path.text.clone()),
        title: Some(match path.scaled_by {
            1 => path.title.clone(),
            by => format!("{} (rates and queues divided by {by})", path.title),
        }),
        scaled_by: Some(path.scaled_by).filter(|by| *by > 1),
        delay_forward_ns: Some(path.forward.delay.as_ns()),
        delay_backward_ns: Some(path.backward.delay.as_ns()),
        loss_forward: path.forward.loss,
        loss_backward: path.backward.loss,
        ..PathFacts::default()
    }
}

/// What a path file says of a direction before anything is measured: from near to far where `is_up`.
pub fn knowledge(path: &lab::PathFile, is_up: bool) -> PathKnowledge {
    let spec = path.direction(is_up);
    PathKnowledge {
        bottleneck: spec.rate,
        mtu_bytes: Some(path.mtu_bytes()),
        queue: spec.rate.map(|_| spec.queue_bytes(path.mtu_bytes())),
        ..PathKnowledge::default()
    }
}

/// What is known of a path when samples of it are judged.
pub const fn known(path: &PathFacts) -> Known {
    Known {
        achievable_bits_per_second: path.achievable_bits_per_second,
        rate_bits_per_second: path.rate_bits_per_second,
    }
}

/// A probe as run.json has it.
pub fn probe(p: &Probe) -> model::ProbeRecord {
    model::ProbeRecord {
        kind: p.kind.name().to_owned(),
        streams: p.streams.into(),
        segment_bytes: p.segment_bytes,
        pace_bits_per_second: match p.kind {
            ProbeKind::Paced(rate) => Some(rate.as_bits_per_second()),
            ProbeKind::Segments(_) => None,
        },
        goodput_bits_per_second: p.goodput.as_bits_per_second(),
        packets_per_second: whole(p.packets_per_second),
        segments_sent: p.sent_segments,
        segments_lost: p.lost_segments,
    }
}

/// `rate` to the nearest whole number; not a number is 0.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, and a rate is not negative"
)]
pub fn whole(rate: f64) -> u64 {
    rate.round() as u64
}

/// The first phase's verdict, and what its findings would change.
pub fn verdict(verdict: &Verdict, findings: &[Finding]) -> model::Verdict {
    let remedies = || findings.iter().filter_map(|f| f.remedy.as_ref());
    let is_setting = |line: &&String| !line.starts_with('#');
    let settings: usize = remedies()
        .map(|r| r.sysctl.iter().filter(is_setting).count())
        .sum();
    model::Verdict {
        sentence: verdict.sentence.clone(),
        cause: verdict.cause.map(|c| c.name().to_owned()),
        healthy: verdict.healthy,
        conclusive: verdict.conclusive,
        remedy_host: findings
            .first()
            .and_then(|f| f.remedy.as_ref())
            .map(|r| r.host.name().to_owned()),
        host_settings: u32::try_from(settings).ok(),
    }
}

/// A certificate as run.json has it.
pub fn certificate(c: &Certificate) -> model::Certificate {
    let sum = |field: fn(&DirectionCounts) -> u64| field(&c.forward) + field(&c.backward);
    model::Certificate {
        trusted: c.trusted(),
        problems: c.problems.clone(),
        goodput_error_ppm: c.kernel.is_none().then_some(c.error.goodput_ppm),
        round_trip_error_ppm: c.kernel.is_none().then_some(c.error.round_trip_ppm),
        error_simulated: c.error.simulated,
        lapses: c.lapses.clone(),
        probes: c.probes,
        probes_lost: c.probes_lost,
        delay_error_p50_ns: c.delay_error_p50_ns,
        delay_error_p99_ns: c.delay_error_p99_ns,
        delay_error_p999_ns: c.delay_error_p999_ns,
        delay_error_max_ns: c.delay_error_max_ns,
        rate_errors: c.rate_errors.iter().map(rate_error).collect(),
        frames: c.frames(),
        frames_late: c.frames_late(),
        frames_together: c.frames_together(),
        frames_lost_by_lab: c.frames_lost_by_lab(),
        segments_lost_random: sum(|d| d.link.lost),
        segments_lost_queue: sum(|d| d.link.queue_full),
        queue_max_bytes: c
            .forward
            .link
            .queue_bytes_max
            .max(c.backward.link.queue_bytes_max),
        cpu_forwarder_ns: c.cpu.as_ns(),
        memory_bytes: c.memory_bytes,
        kernel: c.kernel.as_ref().map(kernel_run),
    }
}

/// What the kernel did, as run.json has it.
pub fn kernel_run(run: &lab::KernelRun) -> model::KernelRun {
    let links = run.paces.iter().map(|p| model::KernelPace {
        link: p.link.clone(),
        from: p.from.clone(),
        to: p.to.clone(),
        rate_bits_per_second: p.rate.map(Rate::as_bits_per_second),
        wire_bytes: p.wire_bytes,
        counted_bytes: p.counted_bytes,
        frames: p.frames,
        packets: p.packets,
        drops: p.drops,
        lost: p.lost,
        overlimits: p.overlimits,
        share_ppm: p.share_ppm,
        windows: p.windows,
        windows_due: p.windows_due,
        windows_over: p.windows_over,
        windows_busy: p.windows_busy,
        busy_ppm: p.busy_ppm,
        error_p99_ppm: p.error.p99_ppm,
        error_max_ppm: p.error.max_ppm,
    });
    model::KernelRun {
        packet_max_bytes: run.packet_max.as_u64(),
        cpu_idle_ppm: run.idle_ppm,
        cpu_steal_ppm: run.steal_ppm,
        links: links.collect(),
    }
}

fn rate_error(e: &lab::RateError) -> model::RateError {
    model::RateError {
        window_ns: e.window.as_ns(),
        windows: e.windows,
        p99_ppm: e.p99_ppm,
        max_ppm: e.max_ppm,
    }
}

/// What was found in a phase.
pub fn findings(phase: &str, found: &[Finding]) -> Vec<FindingRecord> {
    found.iter().map(|f| finding(phase, f)).collect()
}

/// One finding of a phase, or of a connection of a capture.
pub fn finding(phase: &str, f: &Finding) -> FindingRecord {
    FindingRecord {
        phase: phase.to_owned(),
        cause: f.cause.name().to_owned(),
        title: f.title.clone(),
        confidence: f.confidence,
        share: f.share,
        evidence: f.evidence.clone(),
        remedy: f.remedy.as_ref().map(|r| RemedyRecord {
            summary: r.summary.clone(),
            host: r.host.name().to_owned(),
            sysctl: r.sysctl.clone(),
            flags: r.flags.clone(),
            predicted_bits_per_second: r.predicted.map(Rate::as_bits_per_second),
            predicted_from: r.predicted_from.clone(),
            cost: r.cost.clone(),
        }),
    }
}

/// `rate` as a percentage of `whole` bits per second.
#[allow(clippy::cast_precision_loss, reason = "printed without decimals")]
pub fn percent(rate: Rate, whole: u64) -> f64 {
    100.0 * rate.as_bits_per_second() as f64 / whole.max(1) as f64
}
