//! What a run folder keeps of a measurement: the services' own types put into the schema's.

use explain::{Diagnosis, models};
use lab::{Certificate, DirectionCounts};
use measure::{Direction, EndResult, HostFacts, Outcome, QuicInfo, Sending, Transport};
use report::model::{self, FindingRecord, PathFacts, Phase, RemedyRecord, Run, RunState};
use units::Rate;

use crate::context::Context;
use crate::failure::Failure;
use crate::session::{Measured, Site, path_mtu};
use crate::target::Target;

/// A run that has just begun.
pub(crate) fn begin(verb: &str, target: &Target, context: &Context) -> Run {
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
pub(crate) fn end(run: &mut Run) {
    run.finished_utc = Some(now_utc());
    if run.state == RunState::Running {
        run.state = RunState::Done;
    }
}

/// Marks a run ended as its work has: stopped by the user, failed, or done.
pub(crate) fn end_as<T>(run: &mut Run, result: &Result<T, Failure>, context: &Context) {
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
pub(crate) fn fell_behind(certificate: Option<&model::Certificate>) -> Option<String> {
    certificate.filter(|c| !c.trusted).map(|_| {
        "The lab fell behind, so these numbers say nothing about the path: lower the path's rate or \
         free the CPU, and run again."
            .to_owned()
    })
}

/// Readings of both ends.
pub(crate) fn samples<'a>(
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

/// The machines, near first.
pub(crate) fn hosts(site: &Site, measured: &Measured) -> Vec<model::HostFacts> {
    let names = match site {
        Site::Lab { lab, .. } => Some((lab.near().name().to_owned(), lab.far().name().to_owned())),
        Site::Host { .. } | Site::Iperf3 { .. } => None,
    };
    let near = names.as_ref().map(|n| n.0.clone());
    let far = names.map(|n| n.1);
    // In a lab the sockets are told; a host's own default would mislead there.
    let sender = &measured.outcome.sender.congestion;
    let (near_sends, lab) = (
        measured.outcome.config.direction == Direction::Up,
        matches!(site, Site::Lab { .. }),
    );
    let congestion = |is_near: bool, facts: &HostFacts| {
        let told = near_sends == is_near || lab;
        if told {
            Some(sender.clone())
        } else {
            facts.congestion_control.clone()
        }
    };
    vec![
        host(
            "near",
            near,
            &measured.near,
            congestion(true, &measured.near),
        ),
        host(
            "far",
            far,
            &measured.far.host,
            congestion(false, &measured.far.host),
        ),
    ]
}

/// This machine, of which no far end is told.
pub(crate) fn this_host() -> model::HostFacts {
    host("near", None, &HostFacts::of_this_host(None), None)
}

fn host(
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

fn pci(link: &measure::PciFacts) -> model::PciFacts {
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

/// The path in the direction of the data.
pub(crate) fn path(site: &Site, measured: &Measured) -> PathFacts {
    let outcome = &measured.outcome;
    let rtt = outcome.idle_rtt.min;
    let knowledge = site.knowledge(outcome.config.direction);
    let rate = knowledge.bottleneck;
    let mut facts = PathFacts {
        source: "measured".to_owned(),
        rate_bits_per_second: rate.map(Rate::as_bits_per_second),
        achievable_bits_per_second: knowledge.achievable_rate().map(Rate::as_bits_per_second),
        rtt_idle_ns: Some(rtt.as_ns()),
        bdp_bytes: rate.map(|r| models::bdp(r, rtt).as_u64()),
        mtu_bytes: knowledge
            .mtu_bytes
            .or_else(|| path_mtu(&measured.near, &measured.far.host)),
        queue_bytes: knowledge.queue.map(units::Bytes::as_u64),
        ..PathFacts::default()
    };
    if let Site::Lab { path, .. } = site {
        let file = of_file(path);
        facts = PathFacts {
            rate_bits_per_second: facts.rate_bits_per_second,
            achievable_bits_per_second: facts.achievable_bits_per_second,
            rtt_idle_ns: facts.rtt_idle_ns,
            bdp_bytes: facts.bdp_bytes,
            mtu_bytes: facts.mtu_bytes,
            queue_bytes: facts.queue_bytes,
            ..file
        };
    }
    facts
}

/// A lab's path by its file, whatever was measured on it.
pub(crate) fn of_file(path: &lab::PathFile) -> PathFacts {
    PathFacts {
        source: "configured".to_owned(),
        file: Some(path.file.display().to_string()),
        text: Some(path.text.clone()),
        title: Some(path.title.clone()),
        delay_forward_ns: Some(path.forward.delay.as_ns()),
        delay_backward_ns: Some(path.backward.delay.as_ns()),
        loss_forward: path.forward.loss,
        loss_backward: path.backward.loss,
        ..PathFacts::default()
    }
}

/// One measurement.
pub(crate) fn phase(name: &str, settings: &[String], measured: &Measured) -> Phase {
    let outcome = &measured.outcome;
    let config = &outcome.config;
    let facts = &measured.diagnosis.facts;
    let shares = facts
        .attributed
        .map_or_else(model::Shares::default, |s| model::Shares {
            application: s.application,
            receive_window: s.receive_window,
            send_buffer: s.send_buffer,
            network: s.network,
        });
    Phase {
        name: name.to_owned(),
        attempts: 1,
        settings: settings.to_vec(),
        direction: match config.direction {
            Direction::Up => "up".to_owned(),
            Direction::Down => "down".to_owned(),
        },
        streams: u32::from(config.streams),
        congestion_control: outcome.sender.congestion.clone(),
        duration_ns: outcome.receiver.duration.as_ns(),
        ramp_ns: config.ramp.as_ns(),
        rtt_idle_ns: outcome.idle_rtt.min.as_ns(),
        predicted_bits_per_second: measured.prediction.rate.map(Rate::as_bits_per_second),
        predicted_from: Some(measured.prediction.formula.clone()),
        goodput_bits_per_second: outcome.goodput_after_ramp().as_bits_per_second(),
        goodput_whole_bits_per_second: outcome.goodput_whole().as_bits_per_second(),
        bytes_received: outcome.receiver.bytes,
        segments_sent: facts.sent_segments,
        segments_retransmitted: measured
            .retransmitted
            .unwrap_or(facts.retransmitted_segments),
        shares,
        // Over UDP it stands with the datagrams.
        application_bits_per_second: config
            .rate
            .filter(|_| config.transport != Transport::Udp)
            .map_or(0, Rate::as_bits_per_second),
        cpu_sender_ns: outcome.sender.cpu.as_ns(),
        cpu_receiver_ns: outcome.receiver.cpu.as_ns(),
        latency: measured.latency.clone(),
        certificate: measured.certificate.as_ref().map(certificate),
        segment_bytes: facts.mss_bytes,
        packets_per_second: whole(facts.packets_per_second),
        probes: measured.probes.iter().map(probe).collect(),
        handshake: measured.handshake.clone(),
        observers: measured.observers.clone(),
        host_cost: crate::cost::record(outcome),
        transport: match config.transport {
            Transport::Tcp => String::new(),
            other => other.name().to_owned(),
        },
        sending: match config.sending {
            Sending::Write => String::new(),
            other => other.name().to_owned(),
        },
        notes: notes(measured),
        settling: None,
        zero_copy: outcome.sender.zero_copy.map(|c| model::ZeroCopyFacts {
            sends: c.sends,
            notified: c.notified,
            copied: c.copied,
            written: c.written,
        }),
        mptcp: near_end(outcome).mptcp.map(|m| model::MptcpFacts {
            streams: m.streams.into(),
            subflows: m.subflows,
        }),
        udp: measured.udp.clone(),
        quic: outcome.sender.quic().map(|counts| quic(outcome, &counts)),
        model: None,
    }
}

fn near_end(outcome: &Outcome) -> &EndResult {
    match outcome.config.direction {
        Direction::Up => &outcome.sender,
        Direction::Down => &outcome.receiver,
    }
}

/// QUIC's own counts at the sender, and what its receiver's kernel had no room for.
fn quic(outcome: &Outcome, counts: &QuicInfo) -> model::QuicFacts {
    model::QuicFacts {
        cipher: outcome.config.cipher.name().to_owned(),
        rtt_ns: counts.rtt_us.saturating_mul(1_000),
        min_rtt_ns: counts.min_rtt_us.saturating_mul(1_000),
        packet_bytes: counts.packet_bytes,
        packets_sent: counts.packets_sent,
        packets_lost: counts.packets_lost,
        congestion_events: counts.congestion_events,
        black_holes: counts.black_holes,
        receiver_dropped: outcome.receiver.socket_dropped,
    }
}

/// A PCI Express link that its interface may find narrow: the packets' own headers take up to a sixth of it.
fn pci_note(host: &HostFacts) -> Option<String> {
    let nic = host.interface.as_ref()?;
    let link = pci(nic.pci.as_ref()?);
    let told = link.bits_per_second as f64;
    let is_slow = match nic.speed_bits_per_second {
        Some(speed) => told < speed as f64 * PCI_ROOM,
        None => link.lanes < link.lanes_max || link.slower_above.is_some(),
    };
    let text = report::pci_link(&link);
    let speed = nic.speed_bits_per_second.map_or_else(String::new, |speed| {
        format!(", for {}", Rate::from_bits_per_second(speed))
    });
    is_slow.then(|| {
        format!(
            "{}: the PCI link of {} is narrow: {text}{speed}",
            host.hostname, nic.name
        )
    })
}

/// Chosen: a completion of 128 bytes of payload has 20 of headers and framing.
const PCI_ROOM: f64 = 1.2;

/// What became of the transport and the way of sending that were asked for.
fn notes(measured: &Measured) -> Vec<String> {
    let outcome = &measured.outcome;
    let mut notes: Vec<String> = [&measured.near, &measured.far.host]
        .into_iter()
        .filter_map(pci_note)
        .collect();
    let streams = outcome.config.streams;
    if let Some(mptcp) = near_end(outcome).mptcp {
        notes.push(match mptcp.streams {
            0 => "MPTCP: fell back to plain TCP; one of the kernels has none (net.mptcp.enabled), or a \
                  middlebox took the option out"
                .to_owned(),
            n => format!(
                "MPTCP: {n} of {streams} connections stayed multipath, with {} subflows at most",
                mptcp.subflows
            ),
        });
    }
    if outcome.config.transport == Transport::Tls {
        let cipher = outcome.config.cipher.name();
        notes.push(format!("TLS 1.3 with {cipher}; nobody was authenticated"));
    }
    if let Some(counts) = outcome.sender.quic() {
        let (cipher, congestion) = (outcome.config.cipher.name(), &outcome.sender.congestion);
        notes.push(format!(
            "QUIC with {cipher} and {congestion}; nobody was authenticated"
        ));
        let us = units::Duration::from_us;
        notes.push(format!(
            "QUIC's own counts at the sender: round trip {} (smallest {}), {} of {} packets lost, window cut \
             {} times, packets of {} B",
            us(counts.rtt_us),
            us(counts.min_rtt_us),
            counts.packets_lost,
            counts.packets_sent,
            counts.congestion_events,
            counts.packet_bytes
        ));
        if let Some(dropped @ 1..) = outcome.receiver.socket_dropped {
            notes.push(format!(
                "The receiver's kernel dropped {dropped} datagrams, or joined runs of them, for want of room in its \
                 sockets: that is its host's doing, not the path's"
            ));
        }
    }
    if let Some(lent) = outcome.sender.zero_copy {
        let share = |n: u64| 100.0 * as_f64(n) / as_f64(lent.sends).max(1.0);
        let mut text = match lent.copied {
            0 => format!("zero copy: {} sends, none copied", lent.sends),
            n => format!(
                "zero copy: the kernel copied {:.0} % of {} sends after all, as it does where the \
                 receiver is on this machine or the interface cannot gather",
                share(n),
                lent.sends
            ),
        };
        if lent.written > 0 {
            text += &format!(
                "; {} more were written, for want of memory to lock",
                lent.written
            );
        }
        if lent.notified < lent.sends {
            let open = lent.sends - lent.notified;
            text += &format!("; of {open} the kernel had not said at the end that they were done");
        }
        notes.push(text);
    }
    if outcome.config.sending != Sending::Write || outcome.config.transport != Transport::Tcp {
        let gigabytes = as_f64(outcome.receiver.bytes) / 1e9;
        let per = |cpu: units::Duration| cpu.as_s_f64() / gigabytes;
        if gigabytes > 0.0 {
            notes.push(format!(
                "CPU of the data threads: sender {:.2}, receiver {:.2} seconds per GB",
                per(outcome.sender.cpu),
                per(outcome.receiver.cpu)
            ));
        }
    }
    notes
}

#[allow(clippy::cast_precision_loss, reason = "printed in few digits")]
fn as_f64(n: u64) -> f64 {
    n as f64
}

/// A probe as run.json has it.
pub(crate) fn probe(p: &explain::Probe) -> model::ProbeRecord {
    model::ProbeRecord {
        kind: p.kind.name().to_owned(),
        streams: p.streams.into(),
        segment_bytes: p.segment_bytes,
        pace_bits_per_second: match p.kind {
            explain::ProbeKind::Paced(rate) => Some(rate.as_bits_per_second()),
            explain::ProbeKind::Segments(_) => None,
        },
        goodput_bits_per_second: p.goodput.as_bits_per_second(),
        packets_per_second: whole(p.packets_per_second),
        segments_sent: p.sent_segments,
        segments_lost: p.lost_segments,
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, and a rate is not negative"
)]
fn whole(rate: f64) -> u64 {
    rate.round() as u64
}

/// The first phase's verdict.
pub(crate) fn verdict(diagnosis: &Diagnosis) -> model::Verdict {
    let verdict = &diagnosis.verdict;
    let remedies = || diagnosis.findings.iter().filter_map(|f| f.remedy.as_ref());
    let is_setting = |line: &&String| !line.starts_with('#');
    let settings: usize = remedies()
        .map(|r| r.sysctl.iter().filter(is_setting).count())
        .sum();
    model::Verdict {
        sentence: verdict.sentence.clone(),
        cause: verdict.cause.map(|c| c.name().to_owned()),
        healthy: verdict.healthy,
        conclusive: verdict.conclusive,
        remedy_host: diagnosis
            .findings
            .first()
            .and_then(|f| f.remedy.as_ref())
            .map(|r| r.host.name().to_owned()),
        host_settings: u32::try_from(settings).ok(),
    }
}

/// A certificate as run.json has it.
pub(crate) fn certificate(c: &Certificate) -> model::Certificate {
    let sum = |field: fn(&DirectionCounts) -> u64| field(&c.forward) + field(&c.backward);
    model::Certificate {
        trusted: c.trusted(),
        problems: c.problems.clone(),
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
pub(crate) fn kernel_run(run: &lab::KernelRun) -> model::KernelRun {
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
pub(crate) fn findings(phase: &str, diagnosis: &Diagnosis) -> Vec<FindingRecord> {
    let findings = diagnosis.findings.iter();
    findings.map(|f| finding(phase, f)).collect()
}

/// One finding of a phase, or of a connection of a capture.
pub(crate) fn finding(phase: &str, f: &explain::Finding) -> FindingRecord {
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
pub(crate) fn percent(rate: Rate, whole: u64) -> f64 {
    100.0 * rate.as_bits_per_second() as f64 / whole.max(1) as f64
}

/// A time of day in nanoseconds since 1970, RFC 3339 UTC.
pub(crate) fn utc_of_ns(ns: u64) -> String {
    let time = jiff::Timestamp::from_nanosecond(i128::from(ns));
    time.map_or_else(|_| String::new(), |t| t.to_string())
}

/// The time of day, RFC 3339 UTC.
pub(crate) fn now_utc() -> String {
    jiff::Timestamp::now().to_string()
}

#[cfg(test)]
mod tests {
    use measure::{Config, IdleRtt, Sample};

    use super::*;

    #[test]
    fn a_link_is_called_narrow_where_its_interface_may_find_it_so() {
        let host = |lanes: u32, speed: Option<u64>| HostFacts {
            hostname: "dtn".to_owned(),
            interface: Some(measure::InterfaceFacts {
                name: "eth0".to_owned(),
                speed_bits_per_second: speed,
                pci: Some(measure::PciFacts {
                    megatransfers: 8_000,
                    lanes,
                    megatransfers_max: 8_000,
                    lanes_max: 8,
                    bits_per_second: u64::from(lanes) * 7_876_923_076,
                    ..measure::PciFacts::default()
                }),
                ..measure::InterfaceFacts::default()
            }),
            ..HostFacts::default()
        };
        let note = pci_note(&host(4, Some(40_000_000_000))).expect("31.5 Gb/s for 40");
        assert_eq!(
            note,
            "dtn: the PCI link of eth0 is narrow: 8 GT/s x4 (the device can 8 GT/s x8), 31.51 Gb/s, for 40 Gb/s"
        );
        assert_eq!(pci_note(&host(4, Some(25_000_000_000))), None);
        assert_eq!(pci_note(&host(8, None)), None);
        assert!(pci_note(&host(4, None)).is_some());
        assert_eq!(pci_note(&HostFacts::default()), None);
    }

    #[test]
    fn readings_of_quic_have_the_fields_that_a_run_folder_is_read_for() {
        let sender = EndResult {
            samples: vec![Sample {
                quic: Some(QuicInfo::default()),
                ..Sample::default()
            }],
            ..EndResult::default()
        };
        let outcome = Outcome {
            config: Config::default(),
            idle_rtt: IdleRtt::default(),
            sender,
            receiver: EndResult::default(),
            interrupted: false,
            complete: true,
        };
        let record = samples("before", &outcome).next().unwrap();
        let written: Vec<_> = record.tcp_info.keys().map(String::as_str).collect();
        let mut read = model::QUIC_FIELDS;
        read.sort_unstable();
        assert_eq!(written, read);
    }
}
