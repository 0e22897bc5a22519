//! From a path file to a world that can be simulated, or a refusal that says what stands in the way.

use std::fmt;

use crate::path::{Hop, HostBus, HostSpec, Middlebox, Network, PathFile};
use fault::Failure;
use link::Way;
use link::spec::{DirectionSpec, DisciplineSpec, Medium, RateSpec, ServerSpec, Stretch};
use sim::{BusSpec, FlowSpec, LinkSpec, WorldSpec};
use tcp::{Algorithm, Hystart, Pacing, ReceiverConfig, SenderConfig};
use units::{Bytes, Duration, Instant, Rate};

/// What a simulation does beside what the path file says.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// Connections.
    pub streams: u16,
    /// Congestion control.
    pub algorithm: Algorithm,
    /// How its slow start ends early.
    pub hystart: Hystart,
    /// What holds packets back.
    pub pacing: PacingWish,
    /// Between the starts of two connections.
    pub apart: Duration,
    /// Of the sender, in place of the path's.
    pub mtu_bytes: Option<u32>,
    /// For the links' draws, in place of the path file's.
    pub seed: Option<u64>,
    /// Most that its off-loads hand over at once.
    pub burst_bytes: u32,
    /// The receiver takes segments one by one though they come together.
    pub lone_segments: bool,
    /// Of the bottleneck, in place of the path file's.
    pub queue: Option<Bytes>,
    /// The window grows by acknowledgments, not by what they acknowledge.
    pub counts_acks: bool,
}

/// What holds a sender's packets back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacingWish {
    /// Nothing.
    Off,
    /// The rate of window and round trip, as Linux paces.
    Window,
    /// That rate itself, packet by packet.
    Exact,
    /// A rate of payload.
    Rate(Rate),
    /// The rate is found on the way.
    Auto,
    /// Octets between frames on the sender's line.
    Gap(u32),
    /// Writes of a block each, at a mean rate of payload.
    Application {
        /// The mean rate.
        rate: Rate,
        /// Size of a write.
        block: Bytes,
    },
    /// Most payload in flight.
    Limit(Bytes),
}

impl fmt::Display for PacingWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Window => f.write_str("window"),
            Self::Exact => f.write_str("exact"),
            Self::Auto => f.write_str("auto"),
            Self::Rate(rate) => write!(f, "{rate}"),
            Self::Gap(octets) => write!(f, "gap {octets}"),
            Self::Application { rate, block } => write!(f, "writes of {block} at {rate}"),
            Self::Limit(most) => write!(f, "limit {most}"),
        }
    }
}

/// The world and what is to be known of it.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Links and flows.
    pub world: WorldSpec,
    /// Payload of a full segment.
    pub segment_bytes: u32,
    /// MTU of the sender.
    pub mtu_bytes: u32,
    /// IP and TCP headers.
    pub header_bytes: u32,
    /// Rate of the sender's bus, and payload that it carries.
    pub bus: Option<(Rate, Rate)>,
    /// Where a full segment takes longest.
    pub bottleneck: Option<sim::Hop>,
    /// Its queue.
    pub queue_bytes: Option<u64>,
    /// Rate of the sender's own line.
    pub line: Option<Rate>,
    /// Octets of a full segment on it, without a gap.
    pub frame_bytes: u32,
    /// Octets between frames on it at which the bottleneck is just filled.
    pub balanced_gap: Option<f64>,
}

/// The world of a path file: `streams` flows from its sender to its receiver.
pub fn plan(path: &PathFile, wishes: &Wishes) -> Result<Planned, Failure> {
    planned(path, wishes).map_err(|what| {
        let file = path.file.display();
        Failure::usage(format!("{file} cannot be simulated: {what}"))
    })
}

/// The same, or a sentence that says what stands in the way.
fn planned(path: &PathFile, wishes: &Wishes) -> Result<Planned, String> {
    let network = &path.network;
    let routes = Routes::of(path)?;
    routes.check(network)?;
    check_network(network)?;
    let near = &network.hosts[path.transfer.from];
    let mtu_bytes = mtu(path, wishes)?;
    let packets = Packets::of(path, &routes, mtu_bytes);
    let frame = packets.segment_bytes + packets.header_bytes + ETHERNET_HEADER_BYTES;
    let line = Line::of(network, routes.there[0], frame);
    let slowest = routes.slowest(network, frame);
    let bottleneck = slowest.map(|(hop, _)| hop);
    let flow = flow(path, wishes, &routes, &packets, &line)?;
    let mut links = links(network, wishes.seed);
    let queue_bytes = queue(&mut links, bottleneck, wishes.queue, frame)?;
    let bus_of = |bus: HostBus| (bus.rate, bus_payload(&bus, packets.segment_bytes, frame));
    let buses = near.bus.iter().map(|bus| BusSpec {
        rate: bus.rate,
        cost: bus.cost,
    });
    Ok(Planned {
        world: WorldSpec {
            links,
            flows: flows(&flow, wishes),
            buses: buses.collect(),
        },
        segment_bytes: packets.segment_bytes,
        mtu_bytes,
        header_bytes: packets.header_bytes,
        bus: near.bus.map(bus_of),
        bottleneck,
        queue_bytes,
        line: line.rate,
        frame_bytes: line.frame_bytes,
        balanced_gap: line.rate.zip(slowest).map(|(rate, (_, time))| {
            time * as_f64(rate.as_bits_per_second()) / 8.0 - f64::from(line.frame_bytes)
        }),
    })
}

/// Links that packets take, and those that acknowledgments take.
struct Routes {
    there: Vec<Hop>,
    back: Vec<Hop>,
}

impl Routes {
    fn of(path: &PathFile) -> Result<Self, String> {
        let (from, to) = (path.transfer.from, path.transfer.to);
        let walk = |from, to| path.network.walk(from, to);
        match (walk(from, to), walk(to, from)) {
            (Some(there), Some(back)) => Ok(Self { there, back }),
            _ => Err("its routes lead in a circle".to_owned()),
        }
    }

    fn hops(&self) -> impl Iterator<Item = &Hop> {
        self.there.iter().chain(&self.back)
    }

    /// Refuses middleboxes that the sim does not have.
    fn check(&self, network: &Network) -> Result<(), String> {
        let changes =
            |b: &&Middlebox| !matches!(b, Middlebox::MssClamp(_) | Middlebox::StripWindowScale);
        for hop in self.hops() {
            let link = &network.links[hop.link];
            let boxes = link.forward_middlebox.iter();
            if let Some(what) = boxes.chain(&link.backward_middlebox).find(changes) {
                return Err(format!(
                    "link {} has a middlebox ({what:?}), and the sim has none of that kind",
                    link.name
                ));
            }
        }
        Ok(())
    }

    /// Where a frame of so many bytes takes longest on its way there, and its seconds.
    fn slowest(&self, network: &Network, frame: u32) -> Option<(sim::Hop, f64)> {
        let timed = self.there.iter().filter_map(|hop| {
            let spec = network.links[hop.link].direction(hop.forward);
            Some((self::hop(hop), frame_time(spec, frame)?))
        });
        timed.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// Refuses what a network has and the sim has not.
fn check_network(network: &Network) -> Result<(), String> {
    let rules = network.switches.iter().map(|s| s.rules.len());
    let rules = rules.chain(network.routers.iter().map(|r| r.rules.len()));
    let what = if network.switches.iter().any(|s| s.buffer.is_some()) {
        "a switch shares its buffer among ports; the sim has queues of their own only"
    } else if rules.sum::<usize>() > 0 {
        "switches or routers have rules; the sim only forwards"
    } else if network.has_gateways() {
        "it has a gateway, which takes kernels; leave it out by :routed behind the path's name"
    } else {
        return Ok(());
    };
    Err(what.to_owned())
}

/// The MTU that was asked for, or the path's.
fn mtu(path: &PathFile, wishes: &Wishes) -> Result<u32, String> {
    let mtu = path.mtu_bytes();
    match wishes.mtu_bytes {
        Some(asked) if asked > mtu => {
            Err(format!("--mtu {asked} is above the path's MTU of {mtu}"))
        }
        asked => Ok(asked.unwrap_or(mtu)),
    }
}

/// What both ends agree on, and the path leaves of it.
struct Packets {
    segment_bytes: u32,
    /// IP and TCP headers.
    header_bytes: u32,
    ecn: bool,
    scaling: bool,
}

impl Packets {
    fn of(path: &PathFile, routes: &Routes, mtu: u32) -> Self {
        let network = &path.network;
        let (near, far) = (
            &network.hosts[path.transfer.from],
            &network.hosts[path.transfer.to],
        );
        let setting =
            |host: &HostSpec, name: &str| host.sysctl.get(&format!("net.ipv4.{name}")).cloned();
        let is_off = |host: &HostSpec, name: &str| setting(host, name).is_some_and(|v| v == "0");
        let both = |name: &str| !is_off(near, name) && !is_off(far, name);
        let header_bytes = if both("tcp_timestamps") { 52 } else { 40 };
        let mut packets = Self {
            segment_bytes: mtu.saturating_sub(header_bytes).max(1),
            header_bytes,
            // Linux asks for ECN when told to, and agrees when asked unless told not to.
            ecn: setting(near, "tcp_ecn").is_some_and(|v| v == "1") && !is_off(far, "tcp_ecn"),
            scaling: both("tcp_window_scaling"),
        };
        for hop in routes.hops() {
            for middlebox in network.links[hop.link].middlebox(hop.forward) {
                packets.change(middlebox);
            }
        }
        packets
    }

    fn change(&mut self, middlebox: &Middlebox) {
        match middlebox {
            Middlebox::MssClamp(most) => {
                let most = u32::from(*most) - (self.header_bytes - 40);
                self.segment_bytes = self.segment_bytes.min(most);
            }
            Middlebox::StripWindowScale => self.scaling = false,
            _ => {}
        }
    }
}

/// The sender's own line.
struct Line {
    /// Name of its link.
    name: String,
    rate: Option<Rate>,
    /// Octets of a full segment on it, without a gap.
    frame_bytes: u32,
    /// Octets between two frames at least.
    gap_bytes: u32,
}

impl Line {
    fn of(network: &Network, hop: Hop, frame: u32) -> Self {
        let link = &network.links[hop.link];
        let first = link.direction(hop.forward);
        let (frame_bytes, gap_bytes) = match first.medium {
            Medium::Ethernet { gap_bytes } | Medium::WanPhy { gap_bytes } => (
                Medium::Ethernet { gap_bytes: 0 }.wire_bytes(frame),
                gap_bytes,
            ),
            Medium::None => (Medium::None.wire_bytes(frame), 0),
        };
        Self {
            name: link.name.clone(),
            rate: match first.rate.as_ref().map(|r| &r.server) {
                Some(ServerSpec::Rate(rate)) => Some(*rate),
                _ => None,
            },
            frame_bytes,
            gap_bytes,
        }
    }

    /// What holds packets back on it.
    fn pacing(&self, wish: PacingWish) -> Result<Pacing, String> {
        Ok(match wish {
            PacingWish::Off | PacingWish::Application { .. } | PacingWish::Limit(_) => Pacing::Off,
            PacingWish::Window => Pacing::Window,
            PacingWish::Exact => Pacing::WindowExact,
            PacingWish::Rate(rate) => Pacing::Rate(rate),
            PacingWish::Auto => Pacing::Rate(Rate::from_bits_per_second(u64::MAX)),
            PacingWish::Gap(gap_bytes) => {
                let line = self.rate.ok_or_else(|| {
                    format!(
                        "--pacing gap= counts octets of the sender's line, and link {} has no rate",
                        self.name
                    )
                })?;
                Pacing::Gap {
                    gap_bytes: gap_bytes.max(self.gap_bytes),
                    frame_bytes: self.frame_bytes,
                    line,
                }
            }
        })
    }
}

/// The links with what changes on them, and with other seeds where one was asked for.
fn links(network: &Network, seed: Option<u64>) -> Vec<LinkSpec> {
    let each = network.links.iter().enumerate().map(|(number, link)| {
        let mut made = LinkSpec {
            forward: link.forward.clone(),
            backward: link.backward.clone(),
            schedule: Vec::new(),
        };
        if let Some(seed) = seed {
            made.forward.seed = mixed(seed, number, 0);
            made.backward.seed = mixed(seed, number, 1);
        }
        for entry in network.schedule.iter().filter(|e| e.link == number) {
            let at = Instant::ZERO + entry.at;
            let ways = [
                (entry.forward, Way::Forward),
                (entry.backward, Way::Backward),
            ];
            let wanted = ways.into_iter().filter(|(wanted, _)| *wanted);
            made.schedule
                .extend(wanted.map(|(_, way)| (at, way, entry.change)));
        }
        made
    });
    each.collect()
}

/// The first of the connections.
fn flow(
    path: &PathFile,
    wishes: &Wishes,
    routes: &Routes,
    packets: &Packets,
    line: &Line,
) -> Result<FlowSpec, String> {
    let hosts = &path.network.hosts;
    let (near, far) = (&hosts[path.transfer.from], &hosts[path.transfer.to]);
    let segment_bytes = packets.segment_bytes;
    let (application_rate, application_block) = match wishes.pacing {
        PacingWish::Application { rate, block } => (Some(rate), block.as_u64()),
        _ => (None, 0),
    };
    let mut buffer_segments = buffer_segments(near, segment_bytes);
    if let PacingWish::Limit(most) = wishes.pacing {
        let most = most.as_u64() / u64::from(segment_bytes);
        buffer_segments = buffer_segments.min(most.max(1));
    }
    Ok(FlowSpec {
        forward: routes.there.iter().map(hop).collect(),
        backward: routes.back.iter().map(hop).collect(),
        sender: SenderConfig {
            segment_bytes,
            buffer_segments,
            application_rate,
            application_block,
            counts_acks: wishes.counts_acks,
            algorithm: wishes.algorithm,
            hystart: wishes.hystart,
            pacing: line.pacing(wishes.pacing)?,
            ecn: packets.ecn,
            burst_bytes: if near.offloads { wishes.burst_bytes } else { 0 },
            ..SenderConfig::default()
        },
        receiver: ReceiverConfig {
            segment_bytes,
            buffer_bytes: far.tcp_rmem_bytes[1],
            buffer_bytes_max: far.tcp_rmem_bytes[2],
            scaling: packets.scaling,
            ..ReceiverConfig::default()
        },
        start: Instant::ZERO,
        header_bytes: packets.header_bytes,
        gathers: far.offloads && !wishes.lone_segments,
        bus: near.bus.map(|_| 0),
    })
}

/// All connections, by the first one.
fn flows(flow: &FlowSpec, wishes: &Wishes) -> Vec<FlowSpec> {
    let each = (0..wishes.streams).map(|n| FlowSpec {
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
    });
    each.collect()
}

/// Gives the slowest link's queue the room that was asked for; the room that it has.
fn queue(
    links: &mut [LinkSpec],
    bottleneck: Option<sim::Hop>,
    asked: Option<Bytes>,
    frame: u32,
) -> Result<Option<u64>, String> {
    let rate = bottleneck.and_then(|hop| rate_of(links, hop));
    let Some(asked) = asked else {
        return Ok(rate.and_then(|rate| rate.limits.bytes));
    };
    let rate = rate.ok_or("--queue: no link on the way has a rate")?;
    if !matches!(rate.discipline, DisciplineSpec::DropTail { .. }) {
        return Err("--queue: the slowest link's queue is no drop-tail".to_owned());
    }
    rate.limits.bytes = Some(asked.as_u64().max(frame.into()));
    Ok(rate.limits.bytes)
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
