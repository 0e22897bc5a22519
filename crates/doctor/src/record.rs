//! What a run folder keeps of a measurement: the services' own types put into the schema's.

use job::record::{certificate, host, of_file, pci, probe, whole};
use measure::{
    Direction, EndResult, HostFacts, Outcome, QuicInfo, Sending, Transport, ZeroCopyCounts,
};
use report::model::{self, PathFacts, Phase};
use throughput::models;
use units::Rate;

use crate::buffers;
use crate::session::{Measured, Site, path_mtu};

/// The machines, near first.
pub fn hosts(site: &Site, measured: &Measured) -> Vec<model::HostFacts> {
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

/// The path in the direction of the data.
pub fn path(site: &Site, measured: &Measured) -> PathFacts {
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

/// One measurement.
pub fn phase(name: &str, settings: &[String], measured: &Measured) -> Phase {
    let outcome = &measured.outcome;
    let config = &outcome.config;
    let facts = &measured.diagnosis.facts;
    Phase {
        name: name.to_owned(),
        attempts: 1,
        incomplete: measured.broken.as_ref().map(ToString::to_string),
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
        shares: shares(facts),
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
        socket_buffers: buffers::facts(outcome),
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

/// Where the sender's time went.
fn shares(facts: &explain::Facts) -> model::Shares {
    facts
        .attributed
        .map_or_else(model::Shares::default, |s| model::Shares {
            application: s.application,
            receive_window: s.receive_window,
            send_buffer: s.send_buffer,
            network: s.network,
        })
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
    notes.extend(buffers::note(outcome));
    notes.extend(mptcp_note(outcome));
    if outcome.config.transport == Transport::Tls {
        let cipher = outcome.config.cipher.name();
        notes.push(format!("TLS 1.3 with {cipher}; nobody was authenticated"));
    }
    notes.extend(quic_notes(outcome));
    notes.extend(outcome.sender.zero_copy.as_ref().map(zero_copy_note));
    notes.extend(cpu_note(outcome));
    notes
}

/// How many connections stayed multipath.
fn mptcp_note(outcome: &Outcome) -> Option<String> {
    let streams = outcome.config.streams;
    near_end(outcome).mptcp.map(|mptcp| match mptcp.streams {
        0 => {
            "MPTCP: fell back to plain TCP; one of the kernels has none (net.mptcp.enabled), or a \
              middlebox took the option out"
                .to_owned()
        }
        n => format!(
            "MPTCP: {n} of {streams} connections stayed multipath, with {} subflows at most",
            mptcp.subflows
        ),
    })
}

/// What QUIC counts itself, and what its receiver's kernel dropped.
fn quic_notes(outcome: &Outcome) -> Vec<String> {
    let Some(counts) = outcome.sender.quic() else {
        return Vec::new();
    };
    let (cipher, congestion) = (outcome.config.cipher.name(), &outcome.sender.congestion);
    let us = units::Duration::from_us;
    let mut notes = vec![
        format!("QUIC with {cipher} and {congestion}; nobody was authenticated"),
        format!(
            "QUIC's own counts at the sender: round trip {} (smallest {}), {} of {} packets lost, window cut \
             {} times, packets of {} B",
            us(counts.rtt_us),
            us(counts.min_rtt_us),
            counts.packets_lost,
            counts.packets_sent,
            counts.congestion_events,
            counts.packet_bytes
        ),
    ];
    if let Some(dropped @ 1..) = outcome.receiver.socket_dropped {
        notes.push(format!(
            "The receiver's kernel dropped {dropped} datagrams, or joined runs of them, for want of room in its \
             sockets: that is its host's doing, not the path's"
        ));
    }
    notes
}

/// How much of what was lent to the kernel it copied after all.
fn zero_copy_note(lent: &ZeroCopyCounts) -> String {
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
    text
}

/// What a transfer that is not plain writes over TCP cost its data threads.
fn cpu_note(outcome: &Outcome) -> Option<String> {
    let config = &outcome.config;
    let is_plain = config.sending == Sending::Write && config.transport == Transport::Tcp;
    let gigabytes = as_f64(outcome.receiver.bytes) / 1e9;
    let per = |cpu: units::Duration| cpu.as_s_f64() / gigabytes;
    (!is_plain && gigabytes > 0.0).then(|| {
        format!(
            "CPU of the data threads: sender {:.2}, receiver {:.2} seconds per GB",
            per(outcome.sender.cpu),
            per(outcome.receiver.cpu)
        )
    })
}

#[allow(clippy::cast_precision_loss, reason = "printed in few digits")]
fn as_f64(n: u64) -> f64 {
    n as f64
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
        let record = job::record::samples("before", &outcome).next().unwrap();
        let written: Vec<_> = record.tcp_info.keys().map(String::as_str).collect();
        let mut read = model::QUIC_FIELDS;
        read.sort_unstable();
        assert_eq!(written, read);
    }
}
