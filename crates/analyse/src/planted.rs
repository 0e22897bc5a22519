//! A path in place of a file: filled, and captured, so that what is found can be held against what was
//! planted.
//!
//! With gaps, in virtual time: one connection sends full frames by the link of the sending host, a machine
//! of [`link`], at its rate, and behind each frame the gap is as long as asked. A packet's stamp is when its
//! last octet has left the link, to the nanosecond. ACKs come a round trip later, each for two. Without
//! gaps, in real time: iperf3 in a lab, captured by the kernel's stamps where it arrives.
//!
//! Left out: losses, congestion control and switches in virtual time; only the first link is there.

use std::path::{Path, PathBuf};

use fault::Failure;
use lab::path::{Network, Node};
use link::spec::{DirectionSpec, Medium, ServerSpec};
use link::{Counters, Marks, Output, Pipeline, Spacing, Train};
use measure::Stop;
use units::{Duration, Instant, Rate};
use wire::tcp::Flags;
use wire::{ethernet, ipv4, pcapng, protocol, tcp};

use trial::lab_check::{self, Pattern, Tool};

use crate::plan::Filled;

/// Fills the path; the file, and the rate of the line that stamps were taken at.
pub(crate) fn capture(
    filled: &Filled,
    folder: &Path,
    stop: &Stop,
) -> Result<(PathBuf, Option<Rate>), Failure> {
    match filled.gaps.is_empty() {
        true => in_real_time(filled, folder, stop),
        false => in_virtual_time(filled, folder),
    }
}

fn in_real_time(
    filled: &Filled,
    folder: &Path,
    stop: &Stop,
) -> Result<(PathBuf, Option<Rate>), Failure> {
    let path = &filled.path;
    let hosts = &path.network.hosts;
    let line = direction(&path.network, path.transfer.to, false).and_then(constant_rate);
    let (from, to) = (
        &hosts[path.transfer.from].name,
        &hosts[path.transfer.to].name,
    );
    let plan = lab_check::Plan {
        path: path.clone(),
        traffic: Pattern::Pair(from.clone(), to.clone()),
        with: Tool::Iperf3,
        rate: line.unwrap_or(REAL_RATE).min(REAL_RATE),
        burst: 1,
        payload: None,
        time: filled.time.unwrap_or(REAL_TIME),
        rule: None,
        captures: true,
        in_virtual_time: false,
        runs: folder.to_owned(),
    };
    let own = lab_check::run(plan, stop)?.folder;
    Ok((own.join(format!("{to}.pcapng")), line))
}

fn in_virtual_time(filled: &Filled, folder: &Path) -> Result<(PathBuf, Option<Rate>), Failure> {
    let path = &filled.path;
    let refuse = |text: &str| Failure::usage(format!("{}: {text}", path.file.display()));
    let spec = direction(&path.network, path.transfer.from, true)
        .ok_or_else(|| refuse("its sending host has no link"))?;
    let rate = constant_rate(spec).ok_or_else(|| refuse("the sending host's link has no rate"))?;
    if spec.shared.is_some() || !matches!(spec.medium, Medium::Ethernet { .. }) {
        return Err(refuse(
            "the sending host's link is not Ethernet of full duplex",
        ));
    }
    if filled.gaps.len() > GAPS_MAX || filled.gaps.iter().any(|g| *g > GAP_MAX) {
        return Err(Failure::usage(format!(
            "--gaps: at most {GAPS_MAX} of at most {GAP_MAX} octets"
        )));
    }
    let mtu = path.network.hosts[path.transfer.from].mtu_bytes;
    let plan = Plan {
        rate,
        mtu: mtu.clamp(MTU_MIN, MTU_MAX),
        gaps: filled.gaps.clone(),
        time: filled.time.unwrap_or(VIRTUAL_TIME),
        rtt: spec.delay.max(Duration::from_us(50)).saturating_mul(2),
    };
    let packets = plan.fill(spec).map_err(Failure::usage)?;
    let file = folder.join("planted.pcapng");
    sys::folder::replace(&file, plan.written(&packets))
        .map_err(|_| Failure::here(format!("cannot write {}", file.display())))?;
    Ok((file, Some(rate)))
}

/// The direction of a host's link that leaves it, or that reaches it.
fn direction(network: &Network, host: usize, leaves: bool) -> Option<&DirectionSpec> {
    let link = network.links.get(network.hosts.get(host)?.link)?;
    Some(link.direction((link.between[0] == Node::Host(host)) == leaves))
}

fn constant_rate(spec: &DirectionSpec) -> Option<Rate> {
    match spec.rate.as_ref().map(|r| &r.server) {
        Some(ServerSpec::Rate(rate)) => Some(*rate),
        _ => None,
    }
}

/// What is sent.
#[derive(Clone, Debug)]
struct Plan {
    rate: Rate,
    mtu: u32,
    gaps: Vec<u32>,
    time: Duration,
    rtt: Duration,
}

/// A packet of the connection, by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sent {
    at: Instant,
    /// From the receiver.
    back: bool,
    flags: u16,
    sequence: u32,
    acknowledgment: u32,
    payload_bytes: u32,
}

impl Plan {
    /// What the link makes of it, in the order of time.
    ///
    /// # Errors
    /// A sentence where it would be too much, or where the link loses frames.
    fn fill(&self, spec: &DirectionSpec) -> Result<Vec<Sent>, String> {
        let wire = |n: usize| {
            let gap_bytes = self.gaps[n % self.gaps.len()];
            Medium::Ethernet { gap_bytes }.wire_bytes(self.mtu + ETHERNET_BYTES)
        };
        let time_of = |octets: u128| {
            let ns = octets * 8_000_000_000 / u128::from(self.rate.as_bits_per_second().max(1));
            Instant::ZERO + Duration::from_ns(u64::try_from(ns).unwrap_or(u64::MAX))
        };
        let mut pipeline = spec.pipeline(Instant::ZERO, 1_000);
        let (mut log, mut left) = (Counters::default(), Vec::new());
        let (mut octets, mut before, mut frames) = (0_u128, 0_u128, 0_usize);
        // Each frame comes when the last but one begins to leave, so the link is never without one.
        while time_of(octets) < Instant::ZERO + self.time {
            if frames == FRAMES_MAX {
                return Err(format!(
                    "more than {FRAMES_MAX} frames: ask for less --time"
                ));
            }
            let at = time_of(before);
            drain(&mut pipeline, at, &mut log, &mut left);
            let train = Train {
                handle: frames as u64,
                first: 0,
                count: 1,
                wire_bytes: wire(frames),
                flow: 0,
                group: 0,
                marks: Marks::NONE,
                damage: 0,
                at,
                spacing: Spacing::TOGETHER,
            };
            pipeline.handle_train(train, &mut log);
            before = octets;
            octets += u128::from(wire(frames));
            frames += 1;
        }
        drain(
            &mut pipeline,
            Instant::from_ns(u64::MAX),
            &mut log,
            &mut left,
        );
        if left.len() != frames {
            return Err(format!(
                "its first link let {} of {frames} frames pass: gaps are planted where none is lost",
                left.len()
            ));
        }
        Ok(self.connection(&left))
    }

    /// Handshake, data at these times, ACKs.
    fn connection(&self, data: &[Instant]) -> Vec<Sent> {
        let payload_bytes = self.mtu - 20 - TCP_BYTES;
        let sent = |after: Duration, back, flags: Flags, sequence, acknowledgment| Sent {
            at: Instant::from_ns(EPOCH_NS) + after,
            back,
            flags: flags.bits(),
            sequence,
            acknowledgment,
            payload_bytes: 0,
        };
        let (syn, ack) = (Flags::SYN, Flags::ACK);
        let mut all = vec![
            sent(Duration::ZERO, false, syn, 0, 0),
            sent(self.rtt, true, syn.with(ack), 0, 1),
            sent(self.rtt, false, ack, 1, 1),
        ];
        let mut next = 1_u32;
        for (n, at) in data.iter().enumerate() {
            let at = self.rtt + at.saturating_since(Instant::ZERO);
            all.push(Sent {
                payload_bytes,
                ..sent(at, false, ack, next, 1)
            });
            next = next.wrapping_add(payload_bytes);
            if n % 2 == 1 || n + 1 == data.len() {
                all.push(sent(at + self.rtt, true, ack, 1, next));
            }
        }
        all.sort_by_key(|s| s.at);
        all
    }

    fn written(&self, packets: &[Sent]) -> Vec<u8> {
        let mut file = Vec::new();
        let application = concat!("goodput ", env!("CARGO_PKG_VERSION"));
        pcapng::section_header(application, &mut file);
        pcapng::interface("virtual", 0, &mut file);
        for packet in packets {
            let headers = headers(packet);
            let packet = pcapng::Packet {
                time_ns: packet.at.as_ns(),
                captured: &headers,
                original_bytes: u32::try_from(headers.len()).unwrap_or(0) + packet.payload_bytes,
                ..pcapng::Packet::default()
            };
            pcapng::packet(&packet, &mut file);
        }
        file
    }
}

/// What leaves up to `to`.
fn drain(pipeline: &mut Pipeline, to: Instant, log: &mut Counters, left: &mut Vec<Instant>) {
    let mut now = Instant::ZERO;
    loop {
        match pipeline.poll_output(now, log) {
            Output::Release(release) => left.push(release.at),
            Output::Timeout(at) if at <= to => now = at.max(now),
            Output::Timeout(_) | Output::Idle => return,
        }
    }
}

fn headers(packet: &Sent) -> Vec<u8> {
    let ends = [([198, 18, 0, 1], 40_000), ([198, 18, 0, 2], 5_201)];
    let (from, to) = match packet.back {
        false => (ends[0], ends[1]),
        true => (ends[1], ends[0]),
    };
    let flags = Flags::from_bits(packet.flags);
    let is_syn = flags.contains(Flags::SYN);
    let segment = tcp::Repr {
        source_port: from.1,
        destination_port: to.1,
        sequence: packet.sequence,
        acknowledgment: packet.acknowledgment,
        flags,
        window: u16::MAX,
        // 1 GiB: never what limits.
        window_scale: is_syn.then_some(14),
        max_segment_size: is_syn.then_some(8_960),
        sack_permitted: is_syn,
        ..tcp::Repr::default()
    };
    let tcp_bytes = segment.header_len();
    let mut bytes = vec![0; 14 + 20 + tcp_bytes];
    let link = ethernet::Repr {
        destination: [2, 0, 0, 0, 0, 2],
        source: [2, 0, 0, 0, 0, 1],
        ethertype: 0x0800,
    };
    let payload_len = u32::try_from(tcp_bytes).unwrap_or(0) + packet.payload_bytes;
    let ip = ipv4::Repr {
        source: from.0,
        destination: to.0,
        protocol: protocol::TCP,
        payload_len: u16::try_from(payload_len).unwrap_or(u16::MAX),
        dscp: 0,
        ecn: 0,
        identification: 0,
        dont_fragment: true,
        ttl: 64,
    };
    let written = link.emit(&[], &mut bytes).is_ok()
        && ip.emit(&mut bytes[14..]).is_ok()
        && segment.emit(&mut bytes[34..]).is_ok();
    debug_assert!(written, "the buffer is as long as the headers");
    bytes
}

const REAL_TIME: Duration = Duration::from_s(3);
/// What dumpcap and the lab keep up with on a machine of two CPUs.
const REAL_RATE: Rate = Rate::from_bits_per_second(200_000_000);
const VIRTUAL_TIME: Duration = Duration::from_ms(100);
const FRAMES_MAX: usize = 2_000_000;
const GAPS_MAX: usize = 64;
const GAP_MAX: u32 = 1_000_000;
const MTU_MIN: u32 = 576;
/// As much as an IPv4 packet may be.
const MTU_MAX: u32 = 65_535;
const ETHERNET_BYTES: u32 = 14;
const TCP_BYTES: u32 = 20;
/// 2023-11-14: stamps like those of any capture.
const EPOCH_NS: u64 = 1_700_000_000_000_000_000;

#[cfg(test)]
mod tests {
    use lab::PathFile;

    use super::*;

    fn plan(gaps: &[u32]) -> Plan {
        Plan {
            rate: Rate::from_bits_per_second(10_000_000_000),
            mtu: 9_000,
            gaps: gaps.to_vec(),
            time: Duration::from_ms(5),
            rtt: Duration::from_ms(2),
        }
    }

    fn ten_gigabit(extra: &str) -> PathFile {
        let text = format!(
            "title = \"x\"\n[hosts.a]\nmtu = 9000\n[hosts.b]\nmtu = 9000\n[links.l]\nbetween = [\"a\", \"b\"]\n\
             rate = \"10Gb/s\"\ndelay = \"1ms\"\nqueue = \"4MiB\"\n{extra}"
        );
        PathFile::parse(Path::new("x.toml"), &text).unwrap()
    }

    #[test]
    fn gaps_are_exact_to_the_nanosecond_over_the_whole_time() {
        let path = ten_gigabit("");
        let spec = direction(&path.network, 0, true).unwrap();
        let packets = plan(&[700, 720]).fill(spec).unwrap();
        let data: Vec<u64> = packets
            .iter()
            .filter(|p| p.payload_bytes > 0)
            .map(|p| p.at.as_ns())
            .collect();
        assert_eq!(data.len(), 642);
        for (n, at) in (0_u64..).zip(&data) {
            // 9,726 and 9,746 octets in turn, 0.8 ns each.
            let octets = n / 2 * (9_726 + 9_746) + n % 2 * 9_746;
            assert_eq!(at - data[0], (octets * 8 + 8) / 10, "frame {n}");
        }
        let acks = packets.iter().filter(|p| p.back && p.sequence == 1).count();
        assert_eq!(acks, 321);
    }

    #[test]
    fn a_link_that_loses_plants_nothing() {
        let path = ten_gigabit("loss = 0.5\n");
        let spec = direction(&path.network, 0, true).unwrap();
        let why = plan(&[12]).fill(spec).unwrap_err();
        assert!(why.contains("none is lost"), "{why}");
    }
}
