//! What a run folder says: the schema of `run.json`, `samples.jsonl` and `findings.json`.
//!
//! Users script on these files: a key is never renamed or given another unit without raising
//! [`SCHEMA_VERSION`]. Units stand in the key names. Unknown keys are ignored on reading, so that an
//! older goodput reads a newer run; missing optional keys read as absent.

mod balance;
mod copy;
mod fabric;
mod gateway;
mod pair;
mod rotate;
mod sim;
mod spacing;
mod sweep;
mod trace;

use serde::{Deserialize, Serialize};

pub use balance::*;
pub use copy::*;
pub use fabric::*;
pub use gateway::*;
pub use pair::*;
pub use rotate::*;
pub use sim::*;
pub use spacing::*;
pub use sweep::*;
pub use trace::*;

/// Version of the files' layout.
pub const SCHEMA_VERSION: u32 = 1;

/// `run.json`: one run of one verb.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, remote = "Self")]
pub struct Run {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The verb, such as `doctor`.
    pub verb: String,
    /// Name of the run: the path's or the far host's.
    pub name: String,
    /// How the run ended.
    pub state: RunState,
    /// What was typed.
    pub command_line: Vec<String>,
    /// Version of goodput.
    pub goodput_version: String,
    /// Start, RFC 3339 UTC.
    pub started_utc: String,
    /// End, RFC 3339 UTC.
    pub finished_utc: Option<String>,
    /// Seed of the path's random stages.
    pub seed: Option<u64>,
    /// The machines.
    pub hosts: Vec<HostFacts>,
    /// The path, as configured (lab) or as found (real hosts).
    pub path: Option<PathFacts>,
    /// Measurements in the order they were made: before, after.
    pub phases: Vec<Phase>,
    /// What each leg of the path adds, where testers along it were measured too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub legs: Vec<LegRecord>,
    /// A sweep's points and curves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
    /// Where gaps stop losing, of a simulation of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap_threshold: Option<GapThreshold>,
    /// Latency and rates of messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<MessageSweep>,
    /// Captures that were explained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
    /// How parallel streams fared at the queue of a lab.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<Balance>,
    /// How full the path was held, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill: Option<Fill>,
    /// A modelled cluster fabric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fabric: Option<FabricRun>,
    /// Pairs of hosts that sent to each other at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotate: Option<Rotate>,
    /// Of `copy` only: what was copied.
    pub copy: Option<Copy>,
    /// Of `gateway` only: what it did; of a trial each gateway of the lab.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<GatewayRun>,
    /// What all of it means.
    pub verdict: Option<Verdict>,
    /// Why a run failed.
    pub error: Option<String>,
}

impl Run {
    /// The lab's accuracy over the whole run, where it is not told of phases.
    pub fn certificate(&self) -> Option<&Certificate> {
        let of_sweep = self.sweep.as_ref().and_then(|s| s.certificate.as_ref());
        let of_messages = || self.messages.as_ref()?.certificate.as_ref();
        let of_rotate = || self.rotate.as_ref()?.certificate.as_ref();
        let of_copy = || self.copy.as_ref()?.certificate.as_ref();
        let of_gateway = || self.gateways.first()?.certificate.as_ref();
        of_sweep
            .or_else(of_messages)
            .or_else(of_rotate)
            .or_else(of_copy)
            .or_else(of_gateway)
    }
}

/// How a run ended. A run that was killed stays `running`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Under way, or killed without a chance to say so.
    #[default]
    Running,
    /// Finished.
    Done,
    /// Ended by an error.
    Failed,
    /// Stopped by the user.
    Interrupted,
}

/// Facts of one machine or lab host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostFacts {
    /// `near` (where the command ran) or `far`.
    pub role: String,
    /// Name in the path file, or host name.
    pub name: String,
    /// Kernel release.
    pub kernel: String,
    /// CPU model.
    pub cpu_model: String,
    /// CPUs online.
    pub cpus: u32,
    /// Load average over one minute at the start, times 100.
    pub load_1min_percent: u32,
    /// Interfaces that carried the run.
    pub nics: Vec<NicFacts>,
    /// `net.ipv4.tcp_rmem`: min, default, max bytes.
    pub tcp_rmem_bytes: Option<[u64; 3]>,
    /// `net.ipv4.tcp_wmem`: min, default, max bytes.
    pub tcp_wmem_bytes: Option<[u64; 3]>,
    /// Congestion control in use.
    pub congestion_control: Option<String>,
}

/// Facts of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NicFacts {
    /// Interface name.
    pub name: String,
    /// MTU.
    pub mtu_bytes: u32,
    /// Driver or kind (`veth`), if known.
    pub driver: Option<String>,
    /// Link speed, if the driver says it.
    pub speed_bits_per_second: Option<u64>,
    /// TCP segmentation by the card; absent, as the following, where the driver does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tso: Option<bool>,
    /// Segmentation late in software.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gso: Option<bool>,
    /// Merging of received segments in software.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gro: Option<bool>,
    /// Merging of received segments by the card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lro: Option<bool>,
    /// Checksums of what is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transmit_checksum: Option<bool>,
    /// Checksums of what is received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_checksum: Option<bool>,
    /// Longest wait from a received frame to its interrupt (`rx-usecs`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_hold_off_us: Option<u32>,
    /// Frames after which it comes at once (`rx-frames`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_hold_off_frames: Option<u32>,
    /// Whether the driver adapts the wait to the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_hold_off_adapts: Option<bool>,
    /// The PCI Express link between it and its host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci: Option<PciFacts>,
}

/// How a device's PCI Express link was trained, and what the device can.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PciFacts {
    /// Address of the device.
    pub address: String,
    /// Transfers a second of a lane, in millions.
    pub megatransfers_per_second: u32,
    /// Lanes in use.
    pub lanes: u32,
    /// Transfers a second of a lane, in millions, that the device can.
    pub megatransfers_per_second_max: u32,
    /// Lanes that the device has.
    pub lanes_max: u32,
    /// Largest payload of a packet that is set.
    pub payload_bytes: Option<u32>,
    /// The largest that the device can.
    pub payload_max_bytes: Option<u32>,
    /// Largest read that the device asks for.
    pub read_request_bytes: Option<u32>,
    /// The slowest link between the device and the root, after line coding.
    pub bits_per_second: u64,
    /// Where that is another link than the device's: the bridge that it leads to.
    pub slower_above: Option<String>,
}

/// The path between the hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathFacts {
    /// Path file, if the run had one.
    pub file: Option<String>,
    /// Its text, so that the run can be made again.
    pub text: Option<String>,
    /// One line on what the path is.
    pub title: Option<String>,
    /// Rates and queues are one part in so many of the file's; absent where they are the file's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaled_by: Option<u32>,
    /// Where the numbers come from: `configured` or `measured`.
    pub source: String,
    /// Bottleneck rate on the wire.
    pub rate_bits_per_second: Option<u64>,
    /// TCP payload that the rate can carry after all headers, preamble and gap.
    pub achievable_bits_per_second: Option<u64>,
    /// Configured delay towards the far host.
    pub delay_forward_ns: Option<u64>,
    /// Configured delay towards the near host.
    pub delay_backward_ns: Option<u64>,
    /// Round trip of an idle path, measured.
    pub rtt_idle_ns: Option<u64>,
    /// Bottleneck queue.
    pub queue_bytes: Option<u64>,
    /// Random loss, share of frames towards the far host.
    pub loss_forward: f64,
    /// Random loss towards the near host.
    pub loss_backward: f64,
    /// MTU.
    pub mtu_bytes: Option<u32>,
    /// Rate times idle round trip.
    pub bdp_bytes: Option<u64>,
}

/// One measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Phase {
    /// `before` or `after`.
    pub name: String,
    /// Times it was measured: 2 when the lab fell behind the first time. Only the last one is kept.
    pub attempts: u32,
    /// What ended the transfer before its time; the numbers hold for the time until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<String>,
    /// What was set for this phase, ready to read: `net.ipv4.tcp_rmem = 4096 65536 65536`.
    pub settings: Vec<String>,
    /// `up` (near sends) or `down`.
    pub direction: String,
    /// Parallel connections.
    pub streams: u32,
    /// Congestion control of the sender.
    pub congestion_control: String,
    /// Time from first to last byte.
    pub duration_ns: u64,
    /// Ramp-up left out of `goodput_bits_per_second`.
    pub ramp_ns: u64,
    /// Idle round trip just before the transfer.
    pub rtt_idle_ns: u64,
    /// What was predicted before the first byte, if anything could be.
    pub predicted_bits_per_second: Option<u64>,
    /// How: the formula with its numbers.
    pub predicted_from: Option<String>,
    /// Payload received per second after the ramp.
    pub goodput_bits_per_second: u64,
    /// Payload received per second over the whole transfer.
    pub goodput_whole_bits_per_second: u64,
    /// Payload bytes received.
    pub bytes_received: u64,
    /// Data segments sent, retransmissions included.
    pub segments_sent: u64,
    /// Data segments retransmitted.
    pub segments_retransmitted: u64,
    /// Where the sender's time went: the kernel's clocks, with starved time moved to the send buffer
    /// (docs/guide/limits.md); the raw clocks are in the samples.
    pub shares: Shares,
    /// Payload that each stream's application handed over a second, where it kept a rate; one without always
    /// had more to write.
    #[serde(skip_serializing_if = "is_zero")]
    pub application_bits_per_second: u64,
    /// CPU time of the sending process' threads.
    pub cpu_sender_ns: u64,
    /// CPU time of the receiving process' threads.
    pub cpu_receiver_ns: u64,
    /// Round trips while idle and during the transfer, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<LoadLatency>,
    /// The lab's own accuracy, where a lab carried the path.
    pub certificate: Option<Certificate>,
    /// Payload of a full segment.
    #[serde(skip_serializing_if = "is_zero")]
    pub segment_bytes: u64,
    /// Data segments that arrived a second after the ramp, all connections together.
    #[serde(skip_serializing_if = "is_zero")]
    pub packets_per_second: u64,
    /// Short transfers that told causes apart, in the order they were made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbeRecord>,
    /// A connection's handshake as another tool saw it at both ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake: Option<Handshake>,
    /// The same path measured by another tool in the same run.
    pub observers: Vec<Observer>,
    /// What the transfer cost the hosts, as far as they told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_cost: Option<HostCost>,
    /// What the payload travelled by; empty where that was TCP.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub transport: String,
    /// How the sender handed its payload over; empty where it wrote it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sending: String,
    /// What else there is to say of transport and sending, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// How soon and how closely the senders came to the path's rate, where their pacing rate was to be found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settling: Option<Settling>,
    /// Socket buffers that were asked for, and what the kernels granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_buffers: Option<SocketBufferFacts>,
    /// What became of sends without copying.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zero_copy: Option<ZeroCopyFacts>,
    /// What became of multipath connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mptcp: Option<MptcpFacts>,
    /// What became of the datagrams, of a phase over UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp: Option<UdpFacts>,
    /// What QUIC counted, of a phase over it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quic: Option<QuicFacts>,
    /// What only a model can tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelFacts>,
}

/// Socket buffers of fixed sizes: SO_SNDBUF of the sender, SO_RCVBUF of the receiver, of each connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SocketBufferFacts {
    /// Asked for at the sender; absent where its kernel tuned the buffer.
    pub sender_asked_bytes: Option<u64>,
    /// What the sender's kernel granted.
    pub sender_granted_bytes: Option<u64>,
    /// Asked for at the receiver; absent where its kernel tuned the buffer.
    pub receiver_asked_bytes: Option<u64>,
    /// What the receiver's kernel granted.
    pub receiver_granted_bytes: Option<u64>,
}

/// How soon and how closely senders came to their path's rate, from samples of their `tcp_info`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settling {
    /// Shortest round trip seen; the unit of what follows.
    pub round_trip_ns: u64,
    /// From when on goodput, queue and fairness are taken: 20 round trips after the first byte.
    pub from_ns: u64,
    /// Payload acknowledged a second from then on, all streams together.
    pub goodput_bits_per_second: u64,
    /// The same as a share of what the path can carry, where that is known.
    pub share: Option<f64>,
    /// Round trips until 95 % of that was acknowledged a second, over a round trip or ten samples.
    pub reached_round_trips: Option<f64>,
    /// Mean of the round trip's growth, as a share of it (or of the path's window: the same).
    pub queue_share: f64,
    /// Its 95th percentile.
    pub queue_share_p95: f64,
    /// Round trips until the pacing rate was within 10 % of where it stayed at least 9/10 of the time.
    pub settled_round_trips: Option<f64>,
    /// Median pacing rate (`SO_MAX_PACING_RATE`) of each stream, of payload, together.
    pub held_bits_per_second: Option<u64>,
    /// The same in bits of the bottleneck's line, framing included.
    pub held_line_bits_per_second: Option<u64>,
    /// Jain's index of the streams' goodput in the last quarter: 1 is all the same.
    pub jain: f64,
    /// Time from the last stream's first byte until it first had 9/10 of its equal part over two seconds or 20
    /// round trips.
    pub part_after_ns: Option<u64>,
    /// Segments sent again after `from_ns`.
    pub retransmitted: u64,
}

/// What one leg adds to the path before it, from transfers to both of its ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LegRecord {
    /// Where it begins; `here` for the first.
    pub from: String,
    /// Tester where it ends.
    pub to: String,
    /// Phase that measured from here to its end.
    pub phase: String,
    /// Goodput from here to its end.
    pub goodput_bits_per_second: u64,
    /// What the legs before explain.
    pub explained_bits_per_second: Option<u64>,
    /// Idle round trip that it adds.
    pub rtt_added_ns: u64,
    /// Share of the segments from here to its end that were lost while no queue was full.
    pub loss: f64,
    /// Goodput falls on it.
    pub slows: bool,
    /// Packets are lost on it.
    pub loses: bool,
    /// Packets wait on it though we send nothing.
    pub delays: bool,
    /// A host holds the transfer to its end, not the leg.
    pub held_by_host: bool,
    /// It is the one that the verdict names.
    pub bad: bool,
}

/// What a transfer cost its hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostCost {
    /// CPU time of the data threads, the sender's first.
    pub ends: Vec<EndCost>,
    /// What the machines' CPUs did meanwhile: one where both ends are on one machine, else the
    /// sender's first.
    pub machines: Vec<MachineCost>,
}

/// CPU time of one end's data threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndCost {
    /// `sender` or `receiver`.
    pub end: String,
    /// In user space, as the kernel books it.
    pub cpu_user_ns: u64,
    /// In the kernel.
    pub cpu_system_ns: u64,
    /// Both for each 10^9 bytes of payload.
    pub cpu_ns_per_gigabyte: u64,
    /// Share of one CPU that the busiest thread used.
    pub busiest_thread_share: f64,
    /// Share of the time that it could have run and waited for a CPU.
    pub busiest_thread_wait_share: f64,
    /// Bytes a second that one thread there copies from memory to memory; measured only where the
    /// busiest thread had hardly any time left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_copy_bytes_per_second: Option<u64>,
}

/// Where a machine's CPU time went during the transfer, all programs together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineCost {
    /// Ends that were on it.
    pub ends: Vec<String>,
    /// Time that was accounted.
    pub over_ns: u64,
    /// Its CPUs, shares of their time; all of them together are their mean.
    pub cpus: Vec<CpuShares>,
}

/// Shares of one CPU's time, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuShares {
    /// Its number.
    pub cpu: u32,
    /// Programs.
    pub user_share: f64,
    /// The kernel on behalf of programs.
    pub system_share: f64,
    /// Interrupts.
    pub irq_share: f64,
    /// Work put off from interrupts, such as what the network stack does with packets.
    pub softirq_share: f64,
    /// Taken by the hypervisor.
    pub steal_share: f64,
    /// Nothing to do.
    pub idle_share: f64,
}

impl CpuShares {
    /// Share that was not idle.
    pub fn busy(&self) -> f64 {
        (1.0 - self.idle_share).clamp(0.0, 1.0)
    }
}

impl MachineCost {
    /// All CPUs together: the mean of each share.
    pub fn mean(&self) -> CpuShares {
        let count = self.cpus.len().max(1) as f64;
        let mean = |part: fn(&CpuShares) -> f64| self.cpus.iter().map(part).sum::<f64>() / count;
        CpuShares {
            cpu: 0,
            user_share: mean(|c| c.user_share),
            system_share: mean(|c| c.system_share),
            irq_share: mean(|c| c.irq_share),
            softirq_share: mean(|c| c.softirq_share),
            steal_share: mean(|c| c.steal_share),
            idle_share: mean(|c| c.idle_share),
        }
    }

    /// The CPU with the least idle time.
    pub fn fullest(&self) -> Option<&CpuShares> {
        let by_idle = |a: &&CpuShares, b: &&CpuShares| a.idle_share.total_cmp(&b.idle_share);
        self.cpus.iter().min_by(by_idle)
    }

    /// The CPU with the most time in interrupts and softirqs.
    pub fn most_softirq(&self) -> Option<&CpuShares> {
        let work = |c: &CpuShares| c.irq_share + c.softirq_share;
        self.cpus.iter().max_by(|a, b| work(a).total_cmp(&work(b)))
    }
}

/// Datagrams of a phase over UDP, all streams together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UdpFacts {
    /// Datagrams sent, as far as the receiver could know: the highest number that came, or what the
    /// sender told.
    pub packets: u64,
    /// Of these, not received.
    pub lost: u64,
    /// Received after a later one; known where the near end receives.
    pub late: Option<u64>,
    /// Received once more; known where the near end receives.
    pub duplicates: Option<u64>,
    /// RFC 3550 jitter, the streams' mean.
    pub jitter_ns: u64,
    /// Of those lost, thrown away by the receiver's kernel for want of room in the socket's buffer, at
    /// least: of datagrams that it joined it counts one. Not known of iperf3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver_dropped: Option<u64>,
    /// Bytes of a datagram, header included; not known of iperf3.
    #[serde(skip_serializing_if = "is_zero")]
    pub datagram_bytes: u64,
    /// Payload sent per second by all streams; not known of iperf3.
    #[serde(skip_serializing_if = "is_zero")]
    pub sent_bits_per_second: u64,
    /// How the rate was found, where it was searched for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<RateSearch>,
}

/// A search for the highest rate that comes through.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RateSearch {
    /// Highest share of lost datagrams with which a trial passes.
    pub loss_limit: f64,
    /// The highest rate of each stream that passed.
    pub found_bits_per_second: Option<u64>,
    /// In the order in which they were made.
    pub trials: Vec<RateTrial>,
}

/// A short transfer at one rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RateTrial {
    /// Rate of each stream that was asked for.
    pub rate_bits_per_second: u64,
    /// Payload sent per second by all streams.
    pub sent_bits_per_second: u64,
    /// Datagrams sent.
    pub packets: u64,
    /// Of these, not received.
    pub lost: u64,
    /// The loss was within the limit and the sender kept the rate.
    pub passed: bool,
}

/// Sends without copying (MSG_ZEROCOPY), all streams together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ZeroCopyFacts {
    /// Sends.
    pub sends: u64,
    /// Of these, done with by the kernel's word.
    pub notified: u64,
    /// Of these, copied by the kernel after all.
    pub copied: u64,
    /// Sends that the kernel would not take without copying.
    pub written: u64,
}

/// Multipath TCP, as the near end saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MptcpFacts {
    /// Streams that stayed multipath; the others were plain TCP.
    pub streams: u32,
    /// Most subflows of these at one time, added up.
    pub subflows: u32,
}

/// QUIC's own counts at the sender, all connections together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QuicFacts {
    /// What it encrypted with.
    pub cipher: String,
    /// Smoothed round trip at the end, the longest of the connections.
    pub rtt_ns: u64,
    /// Smallest round trip.
    pub min_rtt_ns: u64,
    /// Largest packet at the end, as UDP's payload.
    pub packet_bytes: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Of these, thought lost.
    pub packets_lost: u64,
    /// Times that a congestion window was cut.
    pub congestion_events: u64,
    /// Times that packets of the found size were no longer carried.
    pub black_holes: u64,
    /// Datagrams that the receiver's kernel threw away for want of room in the sockets' buffers, at the
    /// least; absent where it did not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver_dropped: Option<u64>,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A short transfer beside the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProbeRecord {
    /// What it varied: `segments` or `paced`.
    pub kind: String,
    /// Parallel connections.
    pub streams: u32,
    /// Payload of a full segment.
    pub segment_bytes: u64,
    /// Pace of all connections together, where that was varied.
    pub pace_bits_per_second: Option<u64>,
    /// Payload received per second after the probe's ramp.
    pub goodput_bits_per_second: u64,
    /// Data segments that arrived a second after its ramp.
    pub packets_per_second: u64,
    /// Data segments sent, retransmissions included.
    pub segments_sent: u64,
    /// Data segments lost.
    pub segments_lost: u64,
}

/// The window scale option (RFC 7323) in the SYN of one connection and in its answer, as a tool saw
/// them leave and arrive; absent where it did not see the segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Handshake {
    /// Tool with version, such as `TShark 4.0.17`.
    pub tool: String,
    /// Command line at either end.
    pub command: String,
    /// The near host's SYN left with the option.
    pub syn_sent_with_window_scale: Option<bool>,
    /// It had the option when it arrived at the far host.
    pub syn_arrived_with_window_scale: Option<bool>,
    /// The far host's answer left with the option.
    pub answer_sent_with_window_scale: Option<bool>,
    /// It had the option when it arrived at the near host.
    pub answer_arrived_with_window_scale: Option<bool>,
}

/// Round trips of small requests on a connection of their own, idle and beside a transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadLatency {
    /// Requests answered before the transfer.
    pub idle_probes: u64,
    /// Shortest of them.
    pub idle_min_ns: u64,
    /// Median of them.
    pub idle_median_ns: u64,
    /// Requests sent between the ramp and the end of the transfer.
    pub load_probes: u64,
    /// Median of them.
    pub load_median_ns: u64,
    /// 99th percentile.
    pub load_p99_ns: u64,
    /// Longest.
    pub load_max_ns: u64,
    /// Median under load less the idle median.
    pub extra_ns: u64,
    /// The queue that explains it: goodput times the extra delay.
    pub queue_bytes: u64,
    /// Requests sent during the transfer, in order: time since its start, round trip. At most 2000;
    /// of more, the longest of each few.
    pub round_trips_ns: Vec<[u64; 2]>,
}

/// Messages of several sizes (`goodput measure --messages`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageSweep {
    /// `tcp`, `verbs-rc`, `verbs-uc` or `verbs-ud`.
    pub transport: String,
    /// Both ends ask their sockets again and again instead of sleeping.
    pub spin: bool,
    /// Messages that may be unconfirmed where rates are measured.
    pub window: u32,
    /// One reading of the clock.
    pub clock_ns: f64,
    /// What the tool adds to a round trip, clock included.
    pub tool_ns: f64,
    /// Time of each measurement.
    pub each_ns: u64,
    /// A point for each size.
    pub points: Vec<MessagePoint>,
    /// The lab's own accuracy over all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<Certificate>,
}

/// Messages of one size. Latency is half a round trip.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MessagePoint {
    /// Size of a message.
    pub message_bytes: u32,
    /// Round trips measured.
    pub round_trips: u64,
    /// Shortest.
    pub latency_min_ns: Option<u64>,
    /// Median.
    pub latency_median_ns: Option<u64>,
    /// 99th percentile.
    pub latency_p99_ns: Option<u64>,
    /// 99.9th percentile.
    pub latency_p999_ns: Option<u64>,
    /// Longest.
    pub latency_max_ns: Option<u64>,
    /// Payload a second from this side.
    pub up_bits_per_second: u64,
    /// Payload a second to this side.
    pub down_bits_per_second: u64,
    /// Both ways at once, added up.
    pub both_bits_per_second: u64,
    /// Messages that the far side took in `up`.
    pub up_messages: u64,
    /// Messages that this side took in `down`.
    pub down_messages: u64,
    /// Over verbs, messages lost in `up`: sent and never there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_lost: Option<u64>,
    /// Messages lost in `down`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down_lost: Option<u64>,
    /// Over verbs, this host's RDMA port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rdma_port: Option<String>,
}

/// What STAMP probes told (`goodput measure stamp://HOST`). Forward is towards the reflector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StampRecord {
    /// Address of the reflector.
    pub reflector: String,
    /// Probes sent.
    pub sent: u64,
    /// Probes answered, each once.
    pub answered: u64,
    /// Lost on the way there; absent where the reflector's numbers do not tell.
    pub forward_lost: Option<u64>,
    /// Answers lost on the way back.
    pub backward_lost: Option<u64>,
    /// Lost where nothing tells which way.
    pub lost_somewhere: u64,
    /// Probes that arrived more than once.
    pub forward_duplicates: u64,
    /// Answers that arrived more than once.
    pub backward_duplicates: u64,
    /// Probes that were overtaken.
    pub forward_reordered: u64,
    /// Answers that were overtaken.
    pub backward_reordered: u64,
    /// Answers whose stamps contradict each other.
    pub implausible: u64,
    /// Datagrams that answered nothing.
    pub strangers: u64,
    /// Answers whose departure and arrival here the kernel stamped.
    pub kernel_stamped: u64,
    /// Hops that the last answered probe had left.
    pub hops_left: Option<u8>,
    /// This clock follows an outer source.
    pub near_synchronised: bool,
    /// The reflector says that its clock does.
    pub far_synchronised: bool,
    /// Both ways, without the time in the reflector.
    pub round_trip: Option<DelayRecord>,
    /// There, within `clocks.offset_uncertainty_ns`.
    pub forward: Option<DelayRecord>,
    /// Back, within the same.
    pub backward: Option<DelayRecord>,
    /// The reflector's clock against this one.
    pub clocks: Option<ClockRecord>,
}

/// Delays, and how much longer than the shortest they were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DelayRecord {
    /// Shortest.
    pub min_ns: i64,
    /// Median.
    pub median_ns: i64,
    /// 99th percentile.
    pub p99_ns: i64,
    /// Longest.
    pub max_ns: i64,
    /// Median less shortest.
    pub variation_median_ns: i64,
    /// 99th percentile less shortest.
    pub variation_p99_ns: i64,
}

/// How two clocks compare.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClockRecord {
    /// How far the reflector's is ahead at `at_ns`.
    pub offset_ns: f64,
    /// The true offset is within this of it.
    pub offset_uncertainty_ns: f64,
    /// How much faster it runs; absent of less than a second or too few probes.
    pub drift_ppm: Option<f64>,
    /// The true drift is within this of it, if the two ways differ by the same throughout.
    pub drift_uncertainty_ppm: Option<f64>,
    /// Since the first probe.
    pub at_ns: u64,
    /// Windows whose best probe was used.
    pub points: u32,
}

/// Shares of the sender's time, each in 0..=1, summing to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shares {
    /// Nothing to send.
    pub application: f64,
    /// Held back by the peer's window.
    pub receive_window: f64,
    /// Held back by the own send buffer.
    pub send_buffer: f64,
    /// Held back by congestion window or pacing: the network.
    pub network: f64,
}

/// Another tool's number for the same path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Observer {
    /// Tool with version, such as `iperf 3.12`.
    pub tool: String,
    /// Command line.
    pub command: String,
    /// Payload received per second after the same ramp.
    pub goodput_bits_per_second: u64,
    /// CPUs that both of its ends used, as it says itself; 1 is one CPU throughout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
}

/// What the lab says of itself: was the path what the path file says?
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Certificate {
    /// False when the lab fell behind: then no verdict on the path may rest on this phase.
    pub trusted: bool,
    /// What was wrong, a line each.
    pub problems: Vec<String>,
    /// At most so far was the goodput from what the path alone gives, in millionths: without the lab's own lateness and losses
    /// it would have been so much higher. A bound, or by simulation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput_error_ppm: Option<u64>,
    /// The mean round trip was longer than the path's by so much, in millionths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip_error_ppm: Option<u64>,
    /// The path was simulated with and without what the lab added, and the goodput's error is the difference.
    pub error_simulated: bool,
    /// What the lab did late or lost beyond what is usual, a line each, whatever that comes to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lapses: Vec<String>,
    /// Probe frames compared.
    pub probes: u64,
    /// Probe frames that never arrived though the path did not drop them.
    pub probes_lost: u64,
    /// One-way delay error of probes by the hosts' kernel timestamps: 50th percentile.
    pub delay_error_p50_ns: i64,
    /// 99th percentile.
    pub delay_error_p99_ns: i64,
    /// 99.9th percentile.
    pub delay_error_p999_ns: i64,
    /// Largest.
    pub delay_error_max_ns: i64,
    /// How exactly rates were kept, the worst of all directions, over windows of several lengths.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rate_errors: Vec<RateError>,
    /// Frames that the forwarder carried.
    pub frames: u64,
    /// Of these, sent more than 1 ms after their time by the forwarder's own clock.
    pub frames_late: u64,
    /// Frames sent in one piece with neighbours since the forwarder was behind.
    pub frames_together: u64,
    /// Frames the lab itself lost (memory, kernel queues); must be 0.
    pub frames_lost_by_lab: u64,
    /// Segments that the path dropped on purpose: random loss.
    pub segments_lost_random: u64,
    /// Segments that the path dropped at a full queue.
    pub segments_lost_queue: u64,
    /// Deepest bottleneck queue.
    pub queue_max_bytes: u64,
    /// CPU time of the forwarding thread.
    pub cpu_forwarder_ns: u64,
    /// Memory set aside for frames in flight.
    pub memory_bytes: u64,
    /// Present where the kernel ran the lab's links: there are no probes then, and nothing is known of delays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelRun>,
}

/// What the kernel did in a phase of a lab whose links it ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelRun {
    /// The largest packet that passed as one; super-packets are not cut into frames.
    pub packet_max_bytes: u64,
    /// Part of the CPUs' time without work, in millionths.
    pub cpu_idle_ppm: u64,
    /// Part that the hypervisor took.
    pub cpu_steal_ppm: u64,
    /// Each direction of each link, forward at even places, backward behind it.
    pub links: Vec<KernelPace>,
}

/// A direction of a link that the kernel ran, by the kernel's counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelPace {
    /// The link.
    pub link: String,
    /// The node that sends.
    pub from: String,
    /// The node that receives.
    pub to: String,
    /// Its rate in the path file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bits_per_second: Option<u64>,
    /// Bytes on the wire by the counters of the interface that sends.
    pub wire_bytes: u64,
    /// The same as the token bucket counted them.
    pub counted_bytes: u64,
    /// Frames; without a rate a super-packet is one.
    pub frames: u64,
    /// Packets, a super-packet as one.
    pub packets: u64,
    /// Packets that found its queue full.
    pub drops: u64,
    /// Packets that the interfaces themselves dropped; must be 0.
    pub lost: u64,
    /// How often a packet had to wait for the rate.
    pub overlimits: u64,
    /// What passed over what the rate carries in the phase, in millionths.
    pub share_ppm: u64,
    /// Windows of 100 ms looked at.
    pub windows: u64,
    /// Windows that there were.
    pub windows_due: u64,
    /// In how many more passed than the rate and a burst; must be 0.
    pub windows_over: u64,
    /// In how many something waited all the while.
    pub windows_busy: u64,
    /// What passed in these over what the rate carries, in millionths.
    pub busy_ppm: u64,
    /// In these, the 99th percentile of |passed - due| over what was due, in millionths.
    pub error_p99_ppm: u64,
    /// Largest.
    pub error_max_ppm: u64,
}

/// What left in windows of one length beside what was due in them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RateError {
    /// Length of the windows.
    pub window_ns: u64,
    /// Busy windows compared: nine tenths of the rate or more were due.
    pub windows: u64,
    /// 99th percentile of |sent - due|, parts in a million of what the rate carries in a window.
    pub p99_ppm: u64,
    /// Largest.
    pub max_ppm: u64,
}

/// What the run means.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verdict {
    /// One sentence for a busy reader.
    pub sentence: String,
    /// Machine-readable name of the main cause, as in `findings.json`.
    pub cause: Option<String>,
    /// The path gives what it can.
    pub healthy: bool,
    /// False when the measurement cannot carry a verdict.
    pub conclusive: bool,
    /// Where the main finding's remedy belongs: `near`, `far`, `both` or `network`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy_host: Option<String>,
    /// Lines of host settings that the findings of the first phase advise, all together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_settings: Option<u32>,
}

/// One entry of `findings.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FindingRecord {
    /// Phase that it was found in.
    pub phase: String,
    /// `send_buffer`, `receive_window`, `loss`, `bottleneck_reached`, `application`, ...
    pub cause: String,
    /// One sentence.
    pub title: String,
    /// 0..=1: how sure.
    pub confidence: f64,
    /// 0..=1: share of the time lost to this cause.
    pub share: f64,
    /// Facts that show it, a line each with their numbers.
    pub evidence: Vec<String>,
    /// What to do, if anything.
    pub remedy: Option<RemedyRecord>,
}

/// What to change and what it would give.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RemedyRecord {
    /// One sentence.
    pub summary: String,
    /// Which host: `near`, `far`, `both` or `network`.
    pub host: String,
    /// Lines for /etc/sysctl.d, ready to copy.
    pub sysctl: Vec<String>,
    /// Flags of goodput or other commands that do the same without privileges.
    pub flags: Vec<String>,
    /// Goodput to expect afterwards.
    pub predicted_bits_per_second: Option<u64>,
    /// How that was computed.
    pub predicted_from: Option<String>,
    /// What it costs.
    pub cost: String,
}

/// One line of `measure --format jsonl` while a transfer runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct IntervalRecord {
    /// `interval`.
    pub event: String,
    /// Phase that is being measured.
    pub phase: String,
    /// Time since the start, at the receiving end.
    pub t_ns: u64,
    /// Time that this line is about: it ends at `t_ns`.
    pub interval_ns: u64,
    /// Payload received since the start.
    pub bytes_received: u64,
    /// Payload received per second in the interval.
    pub goodput_bits_per_second: u64,
    /// The same since the start, ramp included.
    pub goodput_average_bits_per_second: u64,
    /// Smoothed round trip at the end of the interval; this and the next four where the near end
    /// sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<u64>,
    /// Congestion windows of all connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion_window_bytes: Option<u64>,
    /// Windows that the peer allows all connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_window_bytes: Option<u64>,
    /// Segments retransmitted in the interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segments_retransmitted: Option<u64>,
    /// Where the sender's time went in the interval, by the kernel's clocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares: Option<Shares>,
    /// The receiver's estimate of the round trip; this and the next where the near end receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_rtt_us: Option<u64>,
    /// Bytes that the application took in a round trip, all connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_space_bytes: Option<u64>,
}

/// The last line of `measure --format jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResultRecord {
    /// `result`.
    pub event: String,
    /// The run folder.
    pub folder: String,
    /// The run, as in `run.json`.
    pub run: Run,
}

/// QUIC's own fields of a reading, where the kernel has no `tcp_info`.
pub const QUIC_FIELDS: [&str; 10] = [
    "quic_rtt_us",
    "quic_min_rtt_us",
    "quic_congestion_window_bytes",
    "quic_packet_bytes",
    "quic_packets_sent",
    "quic_packets_lost",
    "quic_bytes_lost",
    "quic_congestion_events",
    "quic_black_holes",
    "quic_datagrams_received",
];

/// One line of `samples.jsonl`: a reading of one connection at one end. The fields of
/// `wire::tcp_info::TcpInfo` follow under their own names, or [`QUIC_FIELDS`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampleRecord {
    /// Phase.
    pub phase: String,
    /// `sender` or `receiver`.
    pub end: String,
    /// Connection number from 0.
    pub stream: u32,
    /// Time since the transfer's start at that end.
    pub t_ns: u64,
    /// Payload bytes that the application had handed over (sender) or taken (receiver).
    pub app_bytes: u64,
    /// The kernel's fields by name.
    #[serde(flatten)]
    pub tcp_info: std::collections::BTreeMap<String, u64>,
}
