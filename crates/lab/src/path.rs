//! Path files: hosts, switches, routers and the links between them as TOML, checked before anything
//! is built.
//!
//! Every value carries its unit. Unknown keys, impossible values and wrong units are refused with
//! file, line and what was expected. The layout is described in `paths/README.md`.
//!
//! [`PathFile::network`] is the whole of it. The other fields are one path through it, that of the
//! measurement: what a packet meets between the two hosts that `[transfer]` names.

mod buffers;
mod check;
mod gateways;
pub mod hint;
pub(crate) mod kernel;
mod links;
mod network;
mod raw;
mod rules;
mod scale;
mod topology;

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        Self::usage(error)
    }
}

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use fault::{Failure, Refusal};
use link::spec;
use spans::Spanned;
use units::text::{line_at, plain};
use units::{Bytes, Duration, Rate};
use wire::classify::Mac;

pub(crate) use buffers::refuses as refused_by_buffer;
pub use network::{
    ActionSpec, BufferSpec, GatewaySpec, Hop, Interface, LinkSpec, Middlebox, Network, NextHop,
    Node, RewriteSpec, Route, RouterSpec, RuleSpec, ScheduleEntry, SwitchSpec,
};

/// A checked path file.
#[derive(Clone, Debug, PartialEq)]
pub struct PathFile {
    /// Where it was read from; `paths/NAME.toml` for a built-in path.
    pub file: PathBuf,
    /// Its text as read.
    pub text: String,
    /// One line on what the path is.
    pub title: String,
    /// The host that sends by default.
    pub near: HostSpec,
    /// The host at the other end.
    pub far: HostSpec,
    /// Name of the link that limits the way from near to far: the one of the smallest rate, or of
    /// the longest delay where none has a rate.
    pub link: String,
    /// Near to far, all links together: the smallest rate with its queue, the sum of the delays,
    /// the losses combined. The rate is that of an Ethernet which would carry as many full frames.
    pub forward: DirectionSpec,
    /// The same far to near.
    pub backward: DirectionSpec,
    /// What a measurement on this path does unless told otherwise.
    pub transfer: TransferSpec,
    /// Everything that is to be built.
    pub network: Network,
    /// Rates and queues are a part of the file's, one in so many: 1 as it stands there.
    pub scaled_by: u32,
}

/// A host of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// Name in the file.
    pub name: String,
    /// MTU of its interface.
    pub mtu_bytes: u32,
    /// Congestion control of its sockets.
    pub congestion_control: String,
    /// Receive buffer: min, default, max.
    pub tcp_rmem_bytes: [u64; 3],
    /// Send buffer: min, default, max.
    pub tcp_wmem_bytes: [u64; 3],
    /// Further settings under net.ipv4 and net.ipv6, by name.
    pub sysctl: BTreeMap<String, String>,
    /// Its interface is to use segmentation and checksum off-loads.
    pub offloads: bool,
    /// What writing costs the machine that it stands for. The lab itself does nothing with it: a
    /// sender that runs in the host may spend it.
    pub costs: HostCosts,
    /// The bus between its memory and its interface, for virtual time; a lab's hosts have this machine's.
    pub bus: Option<HostBus>,
    /// A network interface of this machine that takes the host's place: what is behind it is not
    /// the lab's.
    pub interface: Option<String>,
    /// Its link; of several the first in the file.
    pub link: usize,
    /// Its Ethernet address; of no meaning behind an interface of the machine.
    pub mac: Mac,
    /// Its IPv4 address.
    pub address4: Ipv4Addr,
    /// Bits of the subnet.
    pub prefix4: u8,
    /// Its IPv6 address.
    pub address6: Ipv6Addr,
    /// Bits of the subnet.
    pub prefix6: u8,
    /// Default gateway, the first router on its subnet.
    pub gateway4: Option<Ipv4Addr>,
    /// The same router's IPv6 address.
    pub gateway6: Option<Ipv6Addr>,
    /// The same router's Ethernet address.
    pub gateway_mac: Option<Mac>,
    /// What another router on its subnet is nearer to than the default gateway.
    pub routes: Vec<Route>,
    /// Its ends of further links, where the kernel runs them: the interfaces `eth1` and so on.
    pub more: Vec<Interface>,
}

impl HostSpec {
    /// Its links, in the order of the file.
    pub fn links(&self) -> impl Iterator<Item = usize> {
        let more = self.more.iter().map(|own| own.link);
        std::iter::once(self.link).chain(more)
    }

    /// Name of its interface on a link.
    pub(crate) fn interface_on(&self, link: usize) -> String {
        let place = self.links().position(|own| own == link).unwrap_or(0);
        interface_name(place)
    }
}

/// Name of an interface of a gateway by its place among the gateway's links.
pub(crate) fn interface_name(place: usize) -> String {
    format!("eth{place}")
}

/// What each write of a sender costs a host; the default is nothing beyond what it costs here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCosts {
    /// Each call.
    pub write: Duration,
    /// Each full packet.
    pub packet: Duration,
    /// Copying.
    pub copy_rate: Option<Rate>,
    /// Each page that a write touches.
    pub page: Duration,
    /// Size of a page, 0 where pages cost nothing.
    pub page_size: Bytes,
}

/// What packets cross on their way to a host's interface, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBus {
    /// At which it moves frames.
    pub rate: Rate,
    /// Time of each transfer, one a frame, beside that: set-up, descriptors, waiting for the bus.
    pub cost: Duration,
}

/// One direction of the path.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionSpec {
    /// Rate over wire bytes; `None`: as fast as frames come.
    pub rate: Option<Rate>,
    /// One-way delay.
    pub delay: Duration,
    /// Queue before the rate, in wire bytes.
    pub queue: Bytes,
    /// The same in packets, where limited.
    pub queue_packets: Option<u32>,
    /// Share of frames lost or corrupted in the long run.
    pub loss: f64,
    /// Seed of the random stages.
    pub seed: u64,
}

/// Defaults for measurements on the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferSpec {
    /// Parallel connections.
    pub streams: u16,
    /// Time that data is sent.
    pub duration: Duration,
    /// Part of it at the start that is left out of the headline number.
    pub ramp: Duration,
    /// Number of the near host.
    pub from: usize,
    /// Number of the far host.
    pub to: usize,
}

/// Why a path file was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The file cannot be read.
    #[error("cannot read the path file {file}: {problem}")]
    Unreadable {
        /// The file.
        file: String,
        /// What the system said.
        problem: String,
    },
    /// The text is not a path file.
    #[error("{file}, line {line}: {problem}")]
    Refused {
        /// The file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong and what was expected.
        problem: String,
    },
}

impl PathFile {
    /// Reads and checks a file of at most [`FILE_BYTES_MAX`].
    ///
    /// # Errors
    /// [`PathError`] with file, line and what was expected.
    pub fn read(file: &Path) -> Result<Self, PathError> {
        let unreadable = |problem: String| PathError::Unreadable {
            file: plain(&file.to_string_lossy()).into_owned(),
            problem,
        };
        let text = read_text(file, FILE_BYTES_MAX).map_err(|e| unreadable(e.to_string()))?;
        Self::parse(file, &text)
    }

    /// Checks `text` as if read from `file`. Traces that it names are read from the disk.
    ///
    /// # Errors
    /// [`PathError::Refused`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, PathError> {
        Self::parse_with(file, text, &|trace| read_text(trace, TRACE_BYTES_MAX))
    }

    /// The same where `files` reads the traces that the text names.
    ///
    /// # Errors
    /// [`PathError::Refused`].
    pub fn parse_with(
        file: &Path,
        text: &str,
        files: &dyn Fn(&Path) -> io::Result<String>,
    ) -> Result<Self, PathError> {
        let refuse = |at: usize, problem: String| PathError::Refused {
            file: plain(&file.to_string_lossy()).into_owned(),
            line: line_at(text, at),
            problem: plain(&problem).into_owned(),
        };
        let raw: raw::RawFile =
            spans::from_str(text).map_err(|e| refuse(e.at(), hint::reword(e.message())))?;
        check::check(&raw, file, text, files).map_err(|e| refuse(e.at, e.problem))
    }

    /// The direction's spec: `true` for near to far.
    pub const fn direction(&self, forward: bool) -> &DirectionSpec {
        if forward {
            &self.forward
        } else {
            &self.backward
        }
    }

    /// The round trip of a minimal frame through an otherwise empty path, without serialisation.
    pub fn rtt_configured(&self) -> Duration {
        self.forward.delay + self.backward.delay
    }

    /// Memory that the lab sets aside for frames in flight, all links together.
    pub fn memory_bytes(&self) -> Bytes {
        self.network.memory_bytes()
    }

    /// The smallest MTU on the way between the two hosts, theirs included.
    pub fn mtu_bytes(&self) -> u32 {
        let TransferSpec { from, to, .. } = self.transfer;
        let mtu = |from, to| self.network.mtu_bytes(from, to);
        mtu(from, to).min(mtu(to, from))
    }
}

impl PathFile {
    /// The same network without its gateways: routers of the lab's own making are in their places.
    pub fn routed(mut self) -> Self {
        for router in &mut self.network.routers {
            router.gateway = None;
        }
        self
    }

    /// The same network measured between two other hosts, by their numbers: hosts, rate, queue, delay and losses
    /// are those of the way between them.
    ///
    /// # Errors
    /// In one line, when packets find no way or the two are one.
    pub fn between(&self, from: usize, to: usize) -> Result<Self, String> {
        let hosts = &self.network.hosts;
        let (Some(near), Some(far)) = (hosts.get(from), hosts.get(to)) else {
            return Err("there is no such host".to_owned());
        };
        if from == to {
            return Err(format!("{} cannot send to itself", near.name));
        }
        let way = Way::between(&self.network, from, to)?;
        let mut path = Self {
            near: near.clone(),
            far: far.clone(),
            link: self.network.links[way.limit].name.clone(),
            forward: way.forward,
            backward: way.backward,
            ..self.clone()
        };
        (path.transfer.from, path.transfer.to) = (from, to);
        Ok(path)
    }
}

/// What packets meet between two hosts.
struct Way {
    forward: DirectionSpec,
    backward: DirectionSpec,
    /// Number of the link that limits the way there.
    limit: usize,
}

impl Way {
    fn between(network: &Network, from: usize, to: usize) -> Result<Self, String> {
        let walk = |from: usize, to: usize| {
            network.walk(from, to).ok_or_else(|| {
                format!(
                    "routes: packets from {} to {} go round in a circle or find no way",
                    network.hosts[from].name, network.hosts[to].name
                )
            })
        };
        let (there, back) = (walk(from, to)?, walk(to, from)?);
        let mtu = network.mtu_bytes(from, to).min(network.mtu_bytes(to, from));
        let (forward, limit) = DirectionSpec::along(network, &there, mtu);
        let (backward, _) = DirectionSpec::along(network, &back, mtu);
        Ok(Self {
            forward,
            backward,
            limit,
        })
    }
}

impl DirectionSpec {
    /// What packets meet that take `hops` one after the other, and the link that limits them.
    fn along(network: &Network, hops: &[Hop], mtu_bytes: u32) -> (Self, usize) {
        let stages = |hop: &Hop| network.links[hop.link].direction(hop.forward);
        let rate = |hop: &Hop| {
            let server = &stages(hop).rate.as_ref()?.server;
            let rate = links::mean_rate(server);
            Some(as_on_ethernet(rate, stages(hop).medium, mtu_bytes))
        };
        let longest = hops.iter().rev().max_by_key(|hop| stages(hop).delay);
        let slowest = hops.iter().filter(|hop| rate(hop).is_some());
        let slowest = slowest.min_by_key(|hop| rate(hop)).or(longest);
        let first = Hop {
            link: 0,
            forward: true,
        };
        let limit = slowest.copied().unwrap_or(first);
        let limits = stages(&limit).rate.as_ref().map(|r| r.limits);
        let (mut delay, mut loss) = (Duration::ZERO, 0.0);
        for hop in hops {
            delay = delay + stages(hop).delay;
            for share in loss_shares(stages(hop)) {
                loss = loss + share - loss * share;
            }
        }
        let direction = Self {
            rate: rate(&limit),
            delay,
            queue: links::queue_bytes(stages(&limit), mtu_bytes),
            queue_packets: limits.and_then(|l| l.packets),
            loss,
            seed: stages(&limit).seed,
        };
        (direction, limit.link)
    }

    /// The queue in wire bytes when frames are as large as `mtu_bytes` allows, whichever limit binds.
    pub fn queue_bytes(&self, mtu_bytes: u32) -> Bytes {
        let frame = u64::from(frame_wire_bytes(mtu_bytes));
        self.queue_packets.map_or(self.queue, |n| {
            self.queue.min(Bytes::new(u64::from(n) * frame))
        })
    }

    /// Memory for the frames of this direction: half as much again as they take on the wire and the queue
    /// once more, for trains of which it refused a part, and room for bursts that wait to be decided on.
    pub fn ring_bytes(&self) -> Bytes {
        let flight = self.flight_bytes().as_u64();
        Bytes::new(flight.saturating_add(flight / 2)) + self.queue + RING_EXTRA
    }

    /// Bytes that frames in flight may take: what the delay line holds at the rate, and the queue.
    /// Without a rate, what [`UNLIMITED_RATE`] would bring in the delay.
    pub fn flight_bytes(&self) -> Bytes {
        let rate = self.rate.unwrap_or(UNLIMITED_RATE);
        rate.bytes_in(self.delay + LATENESS)
            + if self.rate.is_some() {
                self.queue
            } else {
                Bytes::new(0)
            }
    }
}

/// The rate of an Ethernet that carries as many full frames as this medium does.
fn as_on_ethernet(rate: Rate, medium: spec::Medium, mtu_bytes: u32) -> Rate {
    let frame = u128::from(medium.wire_bytes(mtu_bytes + 14));
    let bits = u128::from(rate.as_bits_per_second());
    let scaled = bits * u128::from(frame_wire_bytes(mtu_bytes)) / frame;
    Rate::from_bits_per_second(u64::try_from(scaled).unwrap_or(u64::MAX))
}

/// Shares that a direction's stages lose in the long run, each by itself. A corrupted frame fails
/// its checksum.
fn loss_shares(stages: &spec::DirectionSpec) -> impl Iterator<Item = f64> {
    let share = |loss: &spec::LossSpec| match *loss {
        spec::LossSpec::Random(share) => share,
        spec::LossSpec::Burst {
            enter,
            leave,
            good,
            bad,
        } => {
            let in_bad = if enter > 0.0 {
                enter / (enter + leave)
            } else {
                0.0
            };
            good * (1.0 - in_bad) + bad * in_bad
        }
        spec::LossSpec::Periodic { every, .. } => 1.0 / every as f64,
        spec::LossSpec::Listed(_) => 0.0,
    };
    let corrupt = Some(stages.corrupt).filter(|&c| c > 0.0);
    stages.loss.iter().map(share).chain(corrupt)
}

/// The text of a regular file of at most `bytes_max`, whatever length its entry claims.
fn read_text(file: &Path, bytes_max: u64) -> io::Result<String> {
    if !std::fs::metadata(file)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    let mut limited = std::fs::File::open(file)?.take(bytes_max + 1);
    limited.read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        let limit = Bytes::new(bytes_max);
        return Err(io::Error::other(format!("it is larger than {limit}")));
    }
    Ok(text)
}

fn refuse<T, S>(spanned: &Spanned<S>, problem: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(spanned.span().start, problem))
}

/// A full frame of that MTU with its Ethernet header, on the wire.
fn frame_wire_bytes(mtu_bytes: u32) -> u32 {
    spec::Medium::ETHERNET.wire_bytes(mtu_bytes + 14)
}

/// A path file is read by people; a megabyte is none.
pub const FILE_BYTES_MAX: u64 = 256 * 1024;
/// An hour of a link of 50 Mb/s is as much.
pub const TRACE_BYTES_MAX: u64 = 16 << 20;
/// Rate that sizes the memory of a link without a rate of its own.
pub const UNLIMITED_RATE: Rate = Rate::from_bits_per_second(10_000_000_000);
/// Memory for frames in flight that a path may ask for, all links together.
pub const MEMORY_MAX: Bytes = Bytes::new(4 << 30);
/// How late a driver may be with what is due.
const LATENESS: Duration = Duration::from_ms(20);
/// Room beyond a link's own bytes: bursts that wait to be decided on, and the ring's seam.
const RING_EXTRA: Bytes = Bytes::new(4 << 20);
