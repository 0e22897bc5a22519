//! Packets of the sender's line as a capture with exact times, and how they are spaced.
//!
//! Headers only, as a capture with a short snapshot length has them. A stamp is when a packet's last octet
//! has left the sender's first link, or, of an acknowledgment, reached the sender; nanoseconds, rounded down, so
//! at 10 Gb/s, where an octet takes 0.8 ns, a distance may look an octet and a quarter off at most.

use std::path::Path;

use fault::Failure;
use report::model::ModelSpacing;
use sim::{Passed, What};
use wire::tcp::{Flags, SackBlocks};
use wire::{ethernet, ipv4, pcapng, protocol, tcp};

use crate::observed::printed::{Asked, nanoseconds};
use lab::model::Planned;

/// Writes them.
pub(crate) fn write(file: &Path, packets: &[Passed], planned: &Planned) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    let application = concat!("goodput ", env!("CARGO_PKG_VERSION"));
    pcapng::section_header(application, &mut bytes);
    pcapng::interface("sender", 0, &mut bytes);
    let mut shaken = vec![false; planned.world.flows.len()];
    for packet in packets {
        let flow = packet.flow as usize;
        // A second SYN between the two is the answer.
        let answer = packet.what == What::Syn && std::mem::replace(&mut shaken[flow], true);
        let headers = headers(packet, answer, planned);
        let payload = match packet.what {
            What::Data(_) => planned.segment_bytes,
            _ => 0,
        };
        let packet = pcapng::Packet {
            time_ns: EPOCH_NS + packet.at.as_ns(),
            captured: &headers,
            original_bytes: u32::try_from(headers.len()).unwrap_or(0) + payload,
            ..pcapng::Packet::default()
        };
        pcapng::packet(&packet, &mut bytes);
    }
    sys::folder::replace(file, bytes)
        .map_err(|_| Failure::here(format!("cannot write {}", file.display())))
}

fn headers(packet: &Passed, answer: bool, planned: &Planned) -> Vec<u8> {
    let segment = planned.segment_bytes;
    let number = |n: u64| {
        let bytes = n.wrapping_mul(segment.into()).wrapping_add(1);
        u32::try_from(bytes & u64::from(u32::MAX)).unwrap_or(0)
    };
    let back = packet.back || answer;
    let port = 40_000 + u16::try_from(packet.flow).unwrap_or(0);
    let ends = [([198, 18, 0, 1], port), ([198, 18, 0, 2], 5_201)];
    let (from, to) = match back {
        false => (ends[0], ends[1]),
        true => (ends[1], ends[0]),
    };
    let syn = packet.what == What::Syn;
    let clock = u32::try_from((packet.at.as_ns() / 1_000_000) & u64::from(u32::MAX)).unwrap_or(0);
    let mut told = tcp::Repr {
        source_port: from.1,
        destination_port: to.1,
        flags: match (syn, answer) {
            (true, false) => Flags::SYN,
            (true, true) => Flags::SYN.with(Flags::ACK),
            _ => Flags::ACK,
        },
        window: u16::MAX,
        window_scale: syn.then_some(14),
        max_segment_size: syn.then(|| u16::try_from(planned.mtu_bytes - 40).unwrap_or(u16::MAX)),
        sack_permitted: syn,
        timestamps: (planned.header_bytes > 40).then_some((clock, 0)),
        ..tcp::Repr::default()
    };
    let mut payload = 0;
    match packet.what {
        What::Syn => told.acknowledgment = u32::from(answer),
        What::Data(n) => {
            told.sequence = number(n);
            told.acknowledgment = 1;
            payload = segment;
        }
        What::Ack(ack) => {
            told.sequence = 1;
            told.acknowledgment = number(ack.next);
            let blocks = ack.sacked().iter();
            let blocks: Vec<_> = blocks.map(|(a, b)| (number(*a), number(*b))).collect();
            told.sack = SackBlocks::new(&blocks);
        }
    }
    let tcp_bytes = told.header_len();
    let mut bytes = vec![0; 34 + tcp_bytes];
    let link = ethernet::Repr {
        destination: [2, 0, 0, 0, 0, if back { 1 } else { 2 }],
        source: [2, 0, 0, 0, 0, if back { 2 } else { 1 }],
        ethertype: 0x0800,
    };
    let whole = u32::try_from(tcp_bytes).unwrap_or(0) + payload;
    let ip = ipv4::Repr {
        source: from.0,
        destination: to.0,
        protocol: protocol::TCP,
        payload_len: u16::try_from(whole).unwrap_or(u16::MAX),
        dscp: 0,
        ecn: 0,
        identification: 0,
        dont_fragment: true,
        ttl: 64,
    };
    let written = link.emit(&[], &mut bytes).is_ok()
        && ip.emit(&mut bytes[14..]).is_ok()
        && told.emit(&mut bytes[34..]).is_ok();
    debug_assert!(written, "the buffer is as long as the headers");
    bytes
}

/// How the data packets of each sender follow each other, by the exact times.
pub(crate) fn spacing(packets: &[Passed], planned: &Planned, asked: Option<u32>) -> ModelSpacing {
    let data = packets
        .iter()
        .filter(|p| matches!(p.what, What::Data(_)))
        .map(|p| (u64::from(p.flow), p.at.as_ns()));
    let mut told = between(data, planned, asked);
    "goodput".clone_into(&mut told.tool);
    told
}

/// The same by what tshark prints of the capture.
pub(crate) fn by_tshark(
    file: &Path,
    planned: &Planned,
    asked: Option<u32>,
) -> Result<ModelSpacing, Failure> {
    let mut data = Vec::new();
    PACKETS.read(file, |_, (_, port, _, _), [time, payload]| {
        if let (Some(at), Ok(1..)) = (nanoseconds(time), payload.parse::<u32>()) {
            data.push((u64::from(port), at));
        }
    })?;
    let mut told = between(data.into_iter(), planned, asked);
    "TShark".clone_into(&mut told.tool);
    told.command = format!("tshark {}", PACKETS.arguments().join(" "));
    Ok(told)
}

/// Distances on the sender's line less a frame, of packets with their connection and nanoseconds.
fn between(
    data: impl Iterator<Item = (u64, u64)>,
    planned: &Planned,
    asked: Option<u32>,
) -> ModelSpacing {
    let rate = planned.line.map_or(0, units::Rate::as_bits_per_second);
    let mut told = ModelSpacing {
        octets_asked: asked,
        line_bits_per_second: rate,
        ..ModelSpacing::default()
    };
    let mut last = std::collections::BTreeMap::new();
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    for (flow, at) in data {
        told.packets += 1;
        if let Some(before) = last.insert(flow, at) {
            #[allow(clippy::cast_precision_loss, reason = "octets of a gap")]
            let octets = at.saturating_sub(before) as f64 * rate as f64 / 8e9;
            let gap = octets - f64::from(planned.frame_bytes);
            (least, most) = (least.min(gap), most.max(gap));
        }
    }
    if least.is_finite() {
        (told.octets_min, told.octets_max) = (Some(least), Some(most));
        told.octets_error_max = asked.map(|asked| {
            let asked = f64::from(asked);
            (least - asked).abs().max((most - asked).abs())
        });
    }
    told
}

const PACKETS: Asked<2> = Asked {
    preference: "tcp.analyze_sequence_numbers:false",
    fields: ["frame.time_epoch", "tcp.len"],
};
/// 2023-11-14: stamps like those of any capture.
const EPOCH_NS: u64 = 1_700_000_000_000_000_000;
