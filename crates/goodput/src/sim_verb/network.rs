//! From a path file to a world that can be simulated, or a refusal that says what stands in the way.

use lab::path::{Hop, HostBus, HostSpec, Middlebox, PathFile};
use link::Way;
use link::spec::{DirectionSpec, DisciplineSpec, Medium, RateSpec, ServerSpec, Stretch};
use sim::{BusSpec, FlowSpec, LinkSpec, WorldSpec};
use tcp::{Algorithm, Hystart, Pacing, ReceiverConfig, SenderConfig};
use units::{Bytes, Duration, Instant, Rate};

use crate::failure::Failure;

/// What a simulation does beside what the path file says.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    pub(crate) streams: u16,
    pub(crate) algorithm: Algorithm,
    pub(crate) hystart: Hystart,
    pub(crate) pacing: PacingWish,
    /// Between the starts of two connections.
    pub(crate) apart: Duration,
    pub(crate) mtu_bytes: Option<u32>,
    pub(crate) seed: Option<u64>,
    pub(crate) burst_bytes: u32,
    pub(crate) lone_segments: bool,
    /// Of the bottleneck, in place of the path file's.
    pub(crate) queue: Option<Bytes>,
    /// The window grows by acknowledgments, not by what they acknowledge.
    pub(crate) counts_acks: bool,
}

/// `--pacing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacingWish {
    Off,
    Window,
    Exact,
    Rate(Rate),
    /// The rate is found on the way.
    Auto,
    /// Octets.
    Gap(u32),
    /// Writes of a block each, at a mean rate of payload.
    Application {
        rate: Rate,
        block: Bytes,
    },
    /// Most payload in flight.
    Limit(Bytes),
}

/// The world and what is to be known of it.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) world: WorldSpec,
    pub(crate) segment_bytes: u32,
    pub(crate) mtu_bytes: u32,
    /// IP and TCP headers.
    pub(crate) header_bytes: u32,
    /// Rate of the sender's bus, and payload that it carries.
    pub(crate) bus: Option<(Rate, Rate)>,
    /// Where a full segment takes longest.
    pub(crate) bottleneck: Option<sim::Hop>,
    /// Its queue.
    pub(crate) queue_bytes: Option<u64>,
    /// Rate of the sender's own line.
    pub(crate) line: Option<Rate>,
    /// Octets of a full segment on it, without a gap.
    pub(crate) frame_bytes: u32,
    /// Octets between frames on it at which the bottleneck is just filled.
    pub(crate) balanced_gap: Option<f64>,
}

/// The world of a path file: `streams` flows from its sender to its receiver.
pub(crate) fn plan(path: &PathFile, wishes: &Wishes) -> Result<Planned, Failure> {
    let network = &path.network;
    let (from, to) = (path.transfer.from, path.transfer.to);
    let refuse = |what: String| {
        let file = path.file.display();
        Err(Failure::usage(anyhow::anyhow!(
            "{file} cannot be simulated: {what}"
        )))
    };
    let (Some(there), Some(back)) = (network.walk(from, to), network.walk(to, from)) else {
        return refuse("its routes lead in a circle".to_owned());
    };
    for number in there.iter().chain(&back).map(|h| h.link) {
        let link = &network.links[number];
        let boxes = link
            .forward_middlebox
            .iter()
            .chain(&link.backward_middlebox);
        let changes =
            |b: &&Middlebox| !matches!(b, Middlebox::MssClamp(_) | Middlebox::StripWindowScale);
        if let Some(what) = boxes.into_iter().find(changes) {
            return refuse(format!(
                "link {} has a middlebox ({what:?}), and the sim has none of that kind",
                link.name
            ));
        }
    }
    if network.switches.iter().any(|s| s.buffer.is_some()) {
        return refuse(
            "a switch shares its buffer among ports; the sim has queues of their own only"
                .to_owned(),
        );
    }
    let rules = network.switches.iter().map(|s| s.rules.len());
    let rules = rules.chain(network.routers.iter().map(|r| r.rules.len()));
    if rules.sum::<usize>() > 0 {
        return refuse("switches or routers have rules; the sim only forwards".to_owned());
    }
    if network.has_gateways() {
        return refuse(
            "it has a gateway, which takes kernels; leave it out by :routed behind the path's name"
                .to_owned(),
        );
    }
    let (near, far) = (&network.hosts[from], &network.hosts[to]);
    let mtu = path.mtu_bytes();
    if let Some(asked) = wishes.mtu_bytes
        && asked > mtu
    {
        return refuse(format!("--mtu {asked} is above the path's MTU of {mtu}"));
    }
    let mtu = wishes.mtu_bytes.unwrap_or(mtu);
    let setting =
        |host: &HostSpec, name: &str| host.sysctl.get(&format!("net.ipv4.{name}")).cloned();
    let is_off = |host: &HostSpec, name: &str| setting(host, name).is_some_and(|v| v == "0");
    let timestamps = !is_off(near, "tcp_timestamps") && !is_off(far, "tcp_timestamps");
    // Linux asks for ECN when told to, and agrees when asked unless told not to.
    let ecn = setting(near, "tcp_ecn").is_some_and(|v| v == "1") && !is_off(far, "tcp_ecn");
    let header_bytes = if timestamps { 52 } else { 40 };
    let mut segment_bytes = mtu.saturating_sub(header_bytes).max(1);
    let mut scaling = !is_off(near, "tcp_window_scaling") && !is_off(far, "tcp_window_scaling");
    for hop in there.iter().chain(&back) {
        for middlebox in network.links[hop.link].middlebox(hop.forward) {
            match middlebox {
                Middlebox::MssClamp(most) => {
                    segment_bytes = segment_bytes.min(u32::from(*most) - (header_bytes - 40));
                }
                Middlebox::StripWindowScale => scaling = false,
                _ => {}
            }
        }
    }
    let mut links: Vec<LinkSpec> = network
        .links
        .iter()
        .enumerate()
        .map(|(number, link)| {
            let mut made = LinkSpec {
                forward: link.forward.clone(),
                backward: link.backward.clone(),
                schedule: Vec::new(),
            };
            if let Some(seed) = wishes.seed {
                made.forward.seed = mixed(seed, number, 0);
                made.backward.seed = mixed(seed, number, 1);
            }
            for entry in network.schedule.iter().filter(|e| e.link == number) {
                let at = Instant::ZERO + entry.at;
                for (wanted, way) in [
                    (entry.forward, Way::Forward),
                    (entry.backward, Way::Backward),
                ] {
                    if wanted {
                        made.schedule.push((at, way, entry.change));
                    }
                }
            }
            made
        })
        .collect();
    let first = network.links[there[0].link].direction(there[0].forward);
    let frame = segment_bytes + header_bytes + ETHERNET_HEADER_BYTES;
    let (frame_bytes, own_gap_bytes) = match first.medium {
        Medium::Ethernet { gap_bytes } | Medium::WanPhy { gap_bytes } => (
            Medium::Ethernet { gap_bytes: 0 }.wire_bytes(frame),
            gap_bytes,
        ),
        Medium::None => (Medium::None.wire_bytes(frame), 0),
    };
    let line = match first.rate.as_ref().map(|r| &r.server) {
        Some(ServerSpec::Rate(rate)) => Some(*rate),
        _ => None,
    };
    let slowest = there
        .iter()
        .filter_map(|hop| {
            let spec = network.links[hop.link].direction(hop.forward);
            Some((hop, frame_time(spec, frame)?))
        })
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let pacing = match wishes.pacing {
        PacingWish::Off => Pacing::Off,
        PacingWish::Application { .. } | PacingWish::Limit(_) => Pacing::Off,
        PacingWish::Window => Pacing::Window,
        PacingWish::Exact => Pacing::WindowExact,
        PacingWish::Rate(rate) => Pacing::Rate(rate),
        PacingWish::Auto => Pacing::Rate(Rate::from_bits_per_second(u64::MAX)),
        PacingWish::Gap(gap_bytes) => {
            let Some(line) = line else {
                return refuse(format!(
                    "--pacing gap= counts octets of the sender's line, and link {} has no rate",
                    network.links[there[0].link].name
                ));
            };
            Pacing::Gap {
                gap_bytes: gap_bytes.max(own_gap_bytes),
                frame_bytes,
                line,
            }
        }
    };
    let (application_rate, application_block) = match wishes.pacing {
        PacingWish::Application { rate, block } => (Some(rate), block.as_u64()),
        _ => (None, 0),
    };
    let mut buffer_segments = buffer_segments(near, segment_bytes);
    if let PacingWish::Limit(most) = wishes.pacing {
        let most = most.as_u64() / u64::from(segment_bytes);
        buffer_segments = buffer_segments.min(most.max(1));
    }
    let flow = FlowSpec {
        forward: there.iter().map(hop).collect(),
        backward: back.iter().map(hop).collect(),
        sender: SenderConfig {
            segment_bytes,
            buffer_segments,
            application_rate,
            application_block,
            counts_acks: wishes.counts_acks,
            algorithm: wishes.algorithm,
            hystart: wishes.hystart,
            pacing,
            ecn,
            burst_bytes: if near.offloads { wishes.burst_bytes } else { 0 },
            ..SenderConfig::default()
        },
        receiver: ReceiverConfig {
            segment_bytes,
            buffer_bytes: far.tcp_rmem_bytes[1],
            buffer_bytes_max: far.tcp_rmem_bytes[2],
            scaling,
            ..ReceiverConfig::default()
        },
        start: Instant::ZERO,
        header_bytes,
        gathers: far.offloads && !wishes.lone_segments,
        bus: near.bus.map(|_| 0),
    };
    let bottleneck = slowest.map(|(hop, _)| self::hop(hop));
    if let Some(bytes) = wishes.queue {
        let Some(rate) = bottleneck.and_then(|hop| rate_of(&mut links, hop)) else {
            return refuse("--queue: no link on the way has a rate".to_owned());
        };
        if !matches!(rate.discipline, DisciplineSpec::DropTail { .. }) {
            return refuse("--queue: the slowest link's queue is no drop-tail".to_owned());
        }
        rate.limits.bytes = Some(bytes.as_u64().max(frame.into()));
    }
    let queue_bytes = bottleneck
        .and_then(|hop| rate_of(&mut links, hop))
        .and_then(|rate| rate.limits.bytes);
    let flows = (0..wishes.streams)
        .map(|n| FlowSpec {
            // As `measure` opens its connections, one after the other.
            start: Instant::ZERO + wishes.apart.saturating_mul(n.into()),
            sender: SenderConfig {
                // Each draws its own waits, so that they do not probe together.
                seed: match wishes.algorithm {
                    Algorithm::Bbr3 => u64::from(n) + 1,
                    _ => flow.sender.seed,
                },
                ..flow.sender
            },
            ..flow.clone()
        })
        .collect();
    let buses = near.bus.iter().map(|bus| BusSpec {
        rate: bus.rate,
        cost: bus.cost,
    });
    let buses = buses.collect();
    Ok(Planned {
        world: WorldSpec {
            links,
            flows,
            buses,
        },
        segment_bytes,
        mtu_bytes: mtu,
        header_bytes,
        bus: near
            .bus
            .map(|bus| (bus.rate, bus_payload(&bus, segment_bytes, frame))),
        bottleneck,
        queue_bytes,
        line,
        frame_bytes,
        balanced_gap: line.zip(slowest).map(|(line, (_, time))| {
            time * as_f64(line.as_bits_per_second()) / 8.0 - f64::from(frame_bytes)
        }),
    })
}

/// Payload that a bus carries in frames of `frame_bytes`.
fn bus_payload(bus: &HostBus, segment_bytes: u32, frame_bytes: u32) -> Rate {
    let frame_ns = u128::from(frame_bytes) * 8_000_000_000
        / u128::from(bus.rate.as_bits_per_second().max(1))
        + u128::from(bus.cost.as_ns());
    let bits = u128::from(segment_bytes) * 8_000_000_000 / frame_ns.max(1);
    Rate::from_bits_per_second(u64::try_from(bits).unwrap_or(u64::MAX))
}

/// Seconds that a frame of `frame_bytes` takes of a direction with a constant rate, in the mean.
fn frame_time(spec: &DirectionSpec, frame_bytes: u32) -> Option<f64> {
    let Some(ServerSpec::Rate(rate)) = spec.rate.as_ref().map(|r| &r.server) else {
        return None;
    };
    // As many frames as its stretch, if it has one, takes to come round.
    let (each, longer) = Stretch::default().wire_bytes(spec.medium, frame_bytes, 13);
    let octets = f64::from(each) + f64::from(longer) / 13.0;
    Some(octets * 8.0 / as_f64(rate.as_bits_per_second()))
}

#[allow(clippy::cast_precision_loss, reason = "rates far below 2^53")]
const fn as_f64(value: u64) -> f64 {
    value as f64
}

fn rate_of(links: &mut [LinkSpec], hop: sim::Hop) -> Option<&mut RateSpec> {
    let link = links.get_mut(hop.link)?;
    match hop.way {
        Way::Forward => link.forward.rate.as_mut(),
        Way::Backward => link.backward.rate.as_mut(),
    }
}

const fn hop(hop: &Hop) -> sim::Hop {
    sim::Hop {
        link: hop.link,
        way: if hop.forward {
            Way::Forward
        } else {
            Way::Backward
        },
    }
}

/// Segments that a send buffer which has grown to its limit holds in flight. Part of it is the kernel's
/// own book-keeping, part waits to be sent: in the lab 0.98 of 64 KiB, 0.8 to 0.95 of 256 KiB to 4 MiB were in flight.
fn buffer_segments(host: &HostSpec, segment_bytes: u32) -> u64 {
    let bytes = host.tcp_wmem_bytes[2];
    (bytes - bytes / 20) / u64::from(segment_bytes.max(1))
}

/// A seed for each direction of each link.
fn mixed(seed: u64, link: usize, way: u64) -> u64 {
    let mut rng = units::Rng::new(seed ^ ((link as u64) << 8) ^ (way << 4));
    rng.next_u64()
}

const ETHERNET_HEADER_BYTES: u32 = 14;
