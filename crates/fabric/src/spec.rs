//! What a fabric is made of, checked before anything runs.

use std::sync::Arc;

use units::Rate;

use crate::ethernet::{self, Ethernet, FlowControl, WIRE_ONLY_BYTES};
use crate::fault::Faults;
use crate::link::{ByteTime, Cable, Speed};
use crate::route::{Engine, Manager};
use crate::selection::{CLOCK_MAX_PS, Selection};

/// A whole fabric. Ports are numbered in the order in which links name their node.
#[derive(Clone, Debug)]
pub struct FabricSpec {
    /// Hosts, each with one port and one link.
    pub hosts: Vec<HostSpec>,
    /// Switch chips.
    pub switches: Vec<SwitchSpec>,
    /// Cables between ports.
    pub links: Vec<LinkSpec>,
    /// Virtual lanes for data that the subnet manager asks for; a link has as many as both its ends can.
    pub operational_lanes: u8,
    /// How packets find their way.
    pub routing: Routing,
    /// Whether they keep to it.
    pub selection: Selection,
    /// Of all that is drawn at random; each part of the fabric has a stream of its own.
    pub seed: u64,
    /// Where packets wait in chips.
    pub queueing: Queueing,
    /// Links are Ethernet; `None`: InfiniBand.
    pub ethernet: Option<Ethernet>,
    /// Links that fail; `None`: none does.
    pub faults: Option<Arc<Faults>>,
}

impl Default for FabricSpec {
    /// Nothing in it; one lane, fewest hops, static, FIFOs at inputs.
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            switches: Vec::new(),
            links: Vec::new(),
            operational_lanes: 1,
            routing: Routing::MinHop,
            selection: Selection::Static,
            seed: 1,
            queueing: Queueing::Input,
            ethernet: None,
            faults: None,
        }
    }
}

/// Where packets wait in a chip. Room is counted at the port that they came by in each case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queueing {
    /// A FIFO for each lane at each input: heads block those behind them (InfiniBand chips).
    #[default]
    Input,
    /// At each input a FIFO for each output: nobody waits behind another output's packets.
    VirtualOutput,
    /// A FIFO at each output in the order of arrival, whichever input they came by: chips with a shared memory.
    Output,
}

/// How packets find their way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Fewest hops, ports with the fewest destinations first.
    MinHop,
    /// As an engine with its options finds them.
    Managed(Manager),
    /// Out-port of switch s towards host h at s * hosts + h.
    Table(Vec<u8>),
}

/// A port of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// Fastest signalling.
    pub speed: Speed,
    /// Lanes of signalling: 1, 4, 8 or 12.
    pub width: u8,
    /// Memory for packets that came, of all virtual lanes for data together.
    pub buffer_bytes: u64,
    /// Virtual lanes for data that the part has: 1, 2, 4, 8 or 15.
    pub virtual_lanes: u8,
    /// From the end of a packet in the buffer until the flow-control packet leaves that gives its room back.
    pub credit_ps: u64,
}

/// A host with its adapter (HCA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// Its port.
    pub port: PortSpec,
    /// What lies between memory and adapter; `None`: as fast as any link.
    pub bus: Option<BusSpec>,
    /// CPU time of a message at the sender: posting it and taking its completion. Flows have a core each.
    pub post_ps: u64,
    /// Time of the adapter's engine for each message.
    pub engine_ps: u64,
    /// The same for a datagram: address vector and, at the far side, the global header's place.
    pub engine_datagram_ps: u64,
    /// Packets that the adapter fetches ahead of its port.
    pub prefetch_packets: u32,
}

/// A bus that moves packets in bursts, both ways at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusSpec {
    /// Of data within a burst.
    pub rate: Rate,
    /// Longest burst; a packet begins its own.
    pub burst_bytes: u32,
    /// Time of each burst beside that: headers, set-up, turn-around.
    pub burst_ps: u64,
    /// From asking until data has crossed, beside the time above; takes no share of the rate.
    pub latency_ps: u64,
}

impl BusSpec {
    /// Time for which a packet's payload occupies the bus.
    pub fn busy_ps(&self, payload_bytes: u32) -> u64 {
        let bursts = u64::from(payload_bytes.div_ceil(self.burst_bytes.max(1)).max(1));
        bursts * self.burst_ps + ByteTime::of_rate(self.rate).of(payload_bytes)
    }
}

/// A switch chip: a crossbar with buffers at its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchSpec {
    /// Ports that it has.
    pub ports: u8,
    /// Each of them.
    pub port: PortSpec,
    /// First bit in to first bit out; last bit in to first bit out where it stores and forwards.
    pub latency_ps: u64,
    /// Whole packets are taken in before they go out.
    pub store_and_forward: bool,
}

/// A cable between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// Its ends.
    pub ends: [Node; 2],
    /// The cable.
    pub cable: Cable,
}

/// One of the parts, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// A host.
    Host(u32),
    /// A switch chip.
    Switch(u32),
}

/// Service of InfiniBand, or of Ethernet in its stead, that carries a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection: each message is acknowledged.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram: a message is one packet.
    Ud,
    /// iWARP, remote memory over TCP, on Ethernet.
    Iwarp,
}

impl Transport {
    /// Those of InfiniBand.
    pub const ALL: [Self; 3] = [Self::Rc, Self::Uc, Self::Ud];

    /// As it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rc => "rc",
            Self::Uc => "uc",
            Self::Ud => "ud",
            Self::Iwarp => "iwarp",
        }
    }

    /// Octets beside the payload that take buffer space: local route header 8, base transport header 12, invariant
    /// CRC 4, variant CRC 2; a datagram's extended header 8 (IBA volume 1, chapters 7 to 9). On Ethernet see
    /// [`FabricSpec::wire_bytes`].
    pub const fn header_bytes(self) -> u32 {
        match self {
            Self::Rc | Self::Uc | Self::Iwarp => 26,
            Self::Ud => 34,
        }
    }

    /// Each message is acknowledged.
    pub const fn is_acknowledged(self) -> bool {
        matches!(self, Self::Rc | Self::Iwarp)
    }

    /// Octets of a payload's packet on the wire: headers and the two delimiters of a packet.
    pub const fn wire_bytes(self, payload_bytes: u32) -> u32 {
        payload_bytes + self.header_bytes() + DELIMITER_BYTES
    }

    /// Credit blocks that it takes.
    pub const fn blocks(self, payload_bytes: u32) -> u32 {
        (payload_bytes + self.header_bytes()).div_ceil(BLOCK_BYTES)
    }
}

/// What two hosts do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSpec {
    /// Number of the sending host.
    pub from: u32,
    /// Number of the receiving host.
    pub to: u32,
    /// Service.
    pub transport: Transport,
    /// Payload of a packet at most: 256, 512, 1024, 2048 or 4096.
    pub mtu_bytes: u32,
    /// Payload of a message.
    pub message_bytes: u32,
    /// How many.
    pub messages: u64,
    /// Messages that may be posted and not completed.
    pub depth: u32,
    /// Each is answered by one of the same size before the next is sent.
    pub ping_pong: bool,
    /// When the first is posted.
    pub start_ps: u64,
    /// Virtual lane of its packets and acknowledgments.
    pub lane: u8,
    /// What the receiver does with packets that come too early.
    pub ordering: Ordering,
    /// Receiver's window of iWARP.
    pub window_bytes: u32,
    /// From a message's being in memory until the program that waits for it has it: none where it polls that memory.
    pub take_ps: u64,
    /// One of many that come and go, as a trace has them: its host knows of it from its start on, and as long as it sends.
    pub passing: bool,
    /// It starts `start_ps` after all of this earlier flow, one to its own sender, is there; with `passing` only.
    pub after: Option<u32>,
    /// Each message is asked for first, as MPI does with long ones (rendezvous): a request of [`ASK_BYTES`] to the
    /// receiver and an answer as long, and it is posted when that is there. As many are asked for as `depth` says.
    pub rendezvous: bool,
}

impl Default for FlowSpec {
    /// One message of 1 MiB from host 0 to host 1 over a reliable connection, MTU 2048, lane 0, order kept.
    fn default() -> Self {
        Self {
            from: 0,
            to: 1,
            transport: Transport::Rc,
            mtu_bytes: 2_048,
            message_bytes: 1 << 20,
            messages: 1,
            depth: 1,
            ping_pong: false,
            start_ps: 0,
            lane: 0,
            ordering: Ordering::Strict,
            window_bytes: 256 << 10,
            take_ps: 0,
            passing: false,
            after: None,
            rendezvous: false,
        }
    }
}

/// Payload of the request for a message and of its answer: a header of MPI's with address and key (Open MPI's
/// rendezvous header has 56 to 72 B).
pub const ASK_BYTES: u32 = 64;

/// What a receiver does with packets of a flow that overtook others of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ordering {
    /// They wait in the adapter until those before them have come, and only then cross the bus to their place.
    ///
    /// Assumed: the adapter has memory for all of them beside the port's buffer, whose room is given back at once; so
    /// the fabric is not held up, and what is late is the placing: it begins when the gap is closed, at the
    /// bus' rate.
    #[default]
    Strict,
    /// Each is placed as it comes, since it names its place (RFC 5041, direct data placement).
    /// Messages are still complete one after another.
    Relaxed,
}

/// Why a fabric cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// Which part is at fault.
    pub place: Place,
    /// What is wrong with it, and what was expected.
    pub problem: String,
}

/// Part of a specification, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// All of it.
    Whole,
    /// A host.
    Host(u32),
    /// A switch.
    Switch(u32),
    /// A link.
    Link(u32),
    /// A flow.
    Flow(u32),
}

impl std::fmt::Display for SpecError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.place {
            Place::Whole => f.write_str(&self.problem),
            Place::Host(n) => write!(f, "host {n}: {}", self.problem),
            Place::Switch(n) => write!(f, "switch {n}: {}", self.problem),
            Place::Link(n) => write!(f, "link {n}: {}", self.problem),
            Place::Flow(n) => write!(f, "flow {n}: {}", self.problem),
        }
    }
}

impl std::error::Error for SpecError {}

impl From<Engine> for Routing {
    fn from(engine: Engine) -> Self {
        Self::Managed(engine.into())
    }
}

impl FabricSpec {
    /// The port at a node.
    pub fn port(&self, node: Node) -> &PortSpec {
        match node {
            Node::Host(n) => &self.hosts[n as usize].port,
            Node::Switch(n) => &self.switches[n as usize].port,
        }
    }

    /// Signalling and width that a link trains to: the least of both ports and the cable.
    pub fn trained(&self, link: &LinkSpec) -> (Speed, u8) {
        let [a, b] = link.ends.map(|end| self.port(end));
        let speed = a.speed.min(b.speed);
        let speed = link.cable.rated.map_or(speed, |rated| rated.min(speed));
        (speed, a.width.min(b.width))
    }

    /// Octets of a payload's packet on the wire.
    pub const fn wire_bytes(&self, transport: Transport, payload_bytes: u32) -> u32 {
        match self.ethernet {
            Some(_) => ethernet::frame_bytes(transport, payload_bytes) + WIRE_ONLY_BYTES,
            None => transport.wire_bytes(payload_bytes),
        }
    }

    /// Of a packet's octets on the wire, those that take no buffer.
    pub(crate) const fn wire_only_bytes(&self) -> u32 {
        match self.ethernet {
            Some(_) => WIRE_ONLY_BYTES,
            None => DELIMITER_BYTES,
        }
    }

    /// Blocks of 64 B that a payload's packet takes in a buffer.
    pub const fn blocks(&self, transport: Transport, payload_bytes: u32) -> u32 {
        (self.wire_bytes(transport, payload_bytes) - self.wire_only_bytes()).div_ceil(BLOCK_BYTES)
    }

    /// Senders wait for credits.
    pub fn has_credits(&self) -> bool {
        self.ethernet
            .is_none_or(|e| e.control == FlowControl::Credits)
    }

    /// Virtual lanes for data on a link.
    pub fn lanes(&self, link: &LinkSpec) -> u8 {
        let [a, b] = link.ends.map(|end| self.port(end).virtual_lanes);
        a.min(b).min(self.operational_lanes)
    }

    /// Credit blocks that the port at `to` gives each virtual lane of a link: an even share of its buffer.
    pub fn lane_blocks(&self, link: &LinkSpec, to: Node) -> u32 {
        let share = self.port(to).buffer_bytes / u64::from(self.lanes(link)).max(1);
        let blocks = u32::try_from(share / u64::from(BLOCK_BYTES)).unwrap_or(u32::MAX);
        match self.ethernet {
            Some(_) => blocks,
            None => blocks.min(BLOCKS_MAX),
        }
    }

    /// Checks all parts against each other.
    ///
    /// # Errors
    /// The first [`SpecError`] found.
    pub fn check(&self) -> Result<(), SpecError> {
        let whole = |problem: String| Err(at(Place::Whole, problem));
        if self.hosts.len() < 2 || self.hosts.len() > HOSTS_MAX {
            let found = self.hosts.len();
            return whole(format!("{found} hosts; expected 2 to {HOSTS_MAX}"));
        }
        if self.switches.len() > SWITCHES_MAX {
            let found = self.switches.len();
            return whole(format!("{found} switches; expected at most {SWITCHES_MAX}"));
        }
        if !matches!(self.operational_lanes, 1 | 2 | 4 | 8 | 15) {
            let found = self.operational_lanes;
            return whole(format!(
                "{found} operational lanes; expected 1, 2, 4, 8 or 15"
            ));
        }
        for (n, host) in (0..).zip(&self.hosts) {
            host.check().map_err(|p| at(Place::Host(n), p))?;
        }
        for (n, switch) in (0..).zip(&self.switches) {
            switch.check().map_err(|p| at(Place::Switch(n), p))?;
        }
        if let Some(FlowControl::Pfc(pfc)) = self.ethernet.map(|e| e.control)
            && pfc.xon_bytes > pfc.xoff_bytes
        {
            return whole("a pause ends at or below the level at which it begins".to_owned());
        }
        if let Some(FlowControl::Pfc(pfc)) = self.ethernet.map(|e| e.control) {
            within(pfc.respond_ps, "acting on a pause").map_err(|p| at(Place::Whole, p))?;
        }
        if self
            .ethernet
            .is_some_and(|e| e.retry_ps == 0 || e.retry_ps > CLOCK_MAX_PS)
        {
            return whole("senders must wait before they try again, 1000 s at most".to_owned());
        }
        self.selection.check().map_err(|p| at(Place::Whole, p))?;
        self.check_links()
    }

    fn check_links(&self) -> Result<(), SpecError> {
        let mut host_links = vec![0_u32; self.hosts.len()];
        let mut switch_links = vec![0_u32; self.switches.len()];
        for (n, link) in (0..).zip(&self.links) {
            let fail = |problem: String| Err(at(Place::Link(n), problem));
            for end in link.ends {
                let count = match end {
                    Node::Host(h) => host_links.get_mut(h as usize),
                    Node::Switch(s) => switch_links.get_mut(s as usize),
                };
                let Some(count) = count else {
                    return fail("an end that does not exist".to_owned());
                };
                *count += 1;
            }
            if link.ends[0] == link.ends[1] {
                return fail("both ends at the same part".to_owned());
            }
            if link.cable.delay_ps() > DELAY_MAX_PS {
                return fail("the cable delays by more than 10 ms".to_owned());
            }
        }
        if let Some((n, count)) = (0..).zip(&host_links).find(|(_, count)| **count != 1) {
            let problem = match count {
                0 => "not connected to anything".to_owned(),
                count => format!("{count} links; a host has one port"),
            };
            return Err(at(Place::Host(n), problem));
        }
        for (n, (count, switch)) in (0..).zip(switch_links.iter().zip(&self.switches)) {
            if *count > u32::from(switch.ports) {
                let problem = format!("{count} links at a chip of {} ports", switch.ports);
                return Err(at(Place::Switch(n), problem));
            }
        }
        Ok(())
    }
}

impl PortSpec {
    fn check(&self) -> Result<(), String> {
        if !matches!(self.width, 1 | 2 | 4 | 8 | 12) {
            return Err(format!(
                "{} lanes wide; expected 1, 2, 4, 8 or 12",
                self.width
            ));
        }
        if !matches!(self.virtual_lanes, 1 | 2 | 4 | 8 | 15) {
            let found = self.virtual_lanes;
            return Err(format!("{found} virtual lanes; expected 1, 2, 4, 8 or 15"));
        }
        if self.buffer_bytes == 0 || self.buffer_bytes > BUFFER_MAX_BYTES {
            return Err("its buffer must be 1 B to 1 GiB".to_owned());
        }
        within(self.credit_ps, "its credits")
    }
}

impl HostSpec {
    fn check(&self) -> Result<(), String> {
        self.port.check()?;
        within(self.post_ps, "posting")?;
        within(self.engine_ps, "its engine")?;
        within(self.engine_datagram_ps, "its engine for datagrams")?;
        if self.prefetch_packets == 0 || self.prefetch_packets > PREFETCH_MAX {
            return Err(format!("it must fetch 1 to {PREFETCH_MAX} packets ahead"));
        }
        let Some(bus) = &self.bus else { return Ok(()) };
        within(bus.burst_ps, "each burst of its bus")?;
        within(bus.latency_ps, "the bus' latency")?;
        if bus.rate < BUS_RATE_MIN || bus.rate > BUS_RATE_MAX {
            return Err(format!(
                "its bus must have {BUS_RATE_MIN} to {BUS_RATE_MAX}"
            ));
        }
        if bus.burst_bytes < 8 || bus.burst_bytes > 1 << 20 {
            return Err("its bus must have bursts of 8 B to 1 MiB".to_owned());
        }
        Ok(())
    }
}

impl SwitchSpec {
    fn check(&self) -> Result<(), String> {
        self.port.check()?;
        if self.ports < 2 || self.ports > PORTS_MAX {
            return Err(format!("{} ports; expected 2 to {PORTS_MAX}", self.ports));
        }
        within(self.latency_ps, "its latency")
    }
}

impl FlowSpec {
    /// Checks it against the fabric that it is for.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, fabric: &FabricSpec) -> Result<(), String> {
        let hosts = fabric.hosts.len();
        if self.lane >= LANES_MAX {
            let found = self.lane;
            return Err(format!("lane {found}; data has lanes 0 to 14"));
        }
        if self.start_ps > CLOCK_MAX_PS {
            return Err("it must begin within 1000 s".to_owned());
        }
        within(self.take_ps, "taking a message")?;
        if self.rendezvous {
            if self.ping_pong || self.passing || !self.transport.is_acknowledged() {
                return Err(
                    "a message that is asked for is one of a stream, by a service that acknowledges"
                        .to_owned(),
                );
            }
            if fabric.faults.is_some() {
                return Err("where links fail, messages are not asked for first".to_owned());
            }
        }
        if self.from as usize >= hosts || self.to as usize >= hosts || self.from == self.to {
            return Err("it must be between two hosts".to_owned());
        }
        let lossy = fabric
            .ethernet
            .is_some_and(|e| e.control == FlowControl::DropTail);
        if lossy && !self.transport.is_acknowledged() {
            let name = self.transport.name();
            return Err(format!("{name} over links that lose packets never ends"));
        }
        if self.transport == Transport::Iwarp {
            if fabric.ethernet.is_none() {
                return Err("iWARP needs Ethernet".to_owned());
            }
            if self.mtu_bytes < 64 || self.mtu_bytes > IWARP_MAX_BYTES {
                let found = self.mtu_bytes;
                return Err(format!(
                    "packets of {found} B; expected 64 to {IWARP_MAX_BYTES}"
                ));
            }
        } else if !matches!(self.mtu_bytes, 256 | 512 | 1024 | 2048 | 4096) {
            let found = self.mtu_bytes;
            return Err(format!(
                "an MTU of {found} B; expected 256, 512, 1024, 2048 or 4096"
            ));
        }
        if self.message_bytes == 0 || self.message_bytes > MESSAGE_MAX_BYTES {
            return Err("messages must be of 1 B to 2 GiB".to_owned());
        }
        if self.transport == Transport::Ud && self.message_bytes > self.mtu_bytes {
            let (size, mtu) = (self.message_bytes, self.mtu_bytes);
            return Err(format!(
                "a datagram of {size} B does not fit the MTU of {mtu} B"
            ));
        }
        if self.messages == 0 || self.depth == 0 || self.depth > DEPTH_MAX {
            return Err(format!(
                "at least one message, and 1 to {DEPTH_MAX} posted at once"
            ));
        }
        Ok(())
    }
}

pub(crate) fn at(place: Place, problem: impl Into<String>) -> SpecError {
    SpecError {
        place,
        problem: problem.into(),
    }
}

fn within(ps: u64, what: &str) -> Result<(), String> {
    match ps <= DELAY_MAX_PS {
        true => Ok(()),
        false => Err(format!("{what} may take 10 ms at most")),
    }
}

/// Credits are counted in blocks (IBA volume 1, section 7.9).
pub const BLOCK_BYTES: u32 = 64;
/// Blocks that may be outstanding: half of the 12 bits that count them.
pub const BLOCKS_MAX: u32 = 2_048;
/// Symbols that begin and end a packet on the wire.
pub const DELIMITER_BYTES: u32 = 2;
/// A flow-control packet: two words, its CRC, delimiters.
pub const CREDIT_BYTES: u32 = 8;
/// Acknowledgment: headers as above and its own of 4.
pub const ACK_BYTES: u32 = 30;
/// Hosts of a fabric; what numbers in an event leave room for.
pub const HOSTS_MAX: usize = 20_000;
/// Switch chips of a fabric.
pub const SWITCHES_MAX: usize = 20_000;
/// Ports of a chip: requests are bits of a word.
pub const PORTS_MAX: u8 = 64;
/// Payload of iWARP in the longest frames.
const IWARP_MAX_BYTES: u32 = 9_216 - 60;
/// Virtual lanes for data.
pub const LANES_MAX: u8 = 15;
/// Longest of any single delay: 2000 km of cable.
pub const DELAY_MAX_PS: u64 = 10_000_000_000;
/// Messages of a verb's length field.
pub const MESSAGE_MAX_BYTES: u32 = 1 << 31;
/// Messages posted at once.
pub const DEPTH_MAX: u32 = 1 << 16;
/// Packets fetched ahead.
pub const PREFETCH_MAX: u32 = 1_024;
const BUFFER_MAX_BYTES: u64 = 1 << 30;
/// Slower than PCI ever was.
const BUS_RATE_MIN: Rate = Rate::from_bits_per_second(1_000_000);
const BUS_RATE_MAX: Rate = Rate::from_bits_per_second(10_000_000_000_000);
