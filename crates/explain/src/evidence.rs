//! What a diagnosis rests on: readings of the connections, what is known of the path, settings.
//!
//! All of it is handed in; nothing here asks a kernel. A field that nobody could find out is
//! `None` or empty, and every rule that would need it stays silent or says so.

use throughput::{BufferModel, PathKnowledge, Probe, StreamEvidence};
use units::{Bytes, Duration, Rate};
use wire::tcp_info::TcpInfo;

use crate::declared::WriteCost;

/// One transfer in one direction, as measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Its connections, with readings of the sending end.
    pub streams: Vec<StreamEvidence>,
    /// Which host sent.
    pub direction: Direction,
    /// What is known of the path.
    pub path: PathKnowledge,
    /// Settings of the sending host.
    pub sender: HostConfig,
    /// Settings of the receiving host.
    pub receiver: HostConfig,
    /// From first to last byte.
    pub duration: Duration,
    /// The start that `goodput_after_ramp` leaves out.
    pub ramp: Duration,
    /// Payload received per second after the ramp, all streams together.
    pub goodput_after_ramp: Rate,
    /// Payload received per second over the whole transfer, all streams together.
    pub goodput_whole: Rate,
    /// Round trip of the idle path just before; zero when it is not known.
    pub idle_rtt: Duration,
    /// Wire rate to aim at where the bottleneck is not known: the NIC's speed, or what was paid for.
    pub target: Option<Rate>,
    /// The sending program always had data to write, as a bulk test does: what looks like a pause is
    /// then its send buffer.
    pub writes_always: bool,
    /// The sender finds its pacing rate on the way: what it holds is a result, no wish.
    pub finds_pace: bool,
    /// CPU time of the sending threads over the duration: 1 is one CPU all the time.
    pub sender_cpu: Option<f64>,
    /// The same of the receiving threads.
    pub receiver_cpu: Option<f64>,
    /// What the sending host's CPUs did meanwhile, where it tells.
    pub sender_load: Option<HostLoad>,
    /// The same of the receiving host.
    pub receiver_load: Option<HostLoad>,
    /// Both ends are on one machine, whose CPUs both loads count.
    pub one_machine: bool,
    /// What the receiving end's kernel holds of window scaling, where it tells.
    pub receiver_scaling: Option<Scaling>,
    /// Short transfers that were made to tell causes apart, see [`crate::next_probe`].
    pub probes: Vec<Probe>,
    /// How buffers become windows on these kernels.
    pub buffers: BufferModel,
    /// Whether the lab that carried the path kept up; `None` on a real network.
    pub lab_trusted: Option<bool>,
    /// Where the lab's own lateness and losses did nothing worse than slow the transfer: by this share of the goodput at most.
    pub lab_slowed: Option<f64>,
    /// Frames that the lab lost by itself: no losses of the path.
    pub lab_losses: u64,
}

/// Which host sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// The near host (where the command runs) sends.
    #[default]
    Up,
    /// The far host sends.
    Down,
}

/// Window scaling as one end sees it after the SYNs (RFC 7323, section 2; `tcpi_options`,
/// `tcpi_snd_wscale`, `tcpi_rcv_wscale`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scaling {
    /// Both SYNs, as this end saw them, carried the option.
    pub agreed: bool,
    /// Shift that this end announced, 0..=14.
    pub own_shift: u64,
    /// Shift that arrived from the peer, 0..=14.
    pub peer_shift: u64,
}

/// What one end's CPUs did over the transfer. Shares are of the time, 0..=1; those of the machine are
/// everybody's, in ticks of 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostLoad {
    /// Share of one CPU that the busiest data thread used.
    pub busiest_thread: Option<f64>,
    /// Share of the time that this thread could have run and waited for a CPU.
    pub thread_waited: f64,
    /// CPUs that all data threads used: 2 is two throughout.
    pub threads: f64,
    /// CPUs online.
    pub cpus: u32,
    /// Share of all CPUs' time that was not idle.
    pub busy: f64,
    /// Share of it in interrupts and softirqs.
    pub softirq: f64,
    /// Share of it that the hypervisor took.
    pub steal: f64,
    /// The CPU with the least idle time.
    pub fullest_cpu: Option<CpuLoad>,
    /// The CPU with the most softirq time.
    pub softirq_cpu: Option<CpuLoad>,
    /// What one thread copies from memory to memory, where that was measured.
    pub memory_copy: Option<Rate>,
}

/// One CPU's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuLoad {
    /// Its number.
    pub number: u32,
    /// Share that was not idle.
    pub busy: f64,
    /// Share in interrupts and softirqs.
    pub softirq: f64,
}

/// What one host was set to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostConfig {
    /// `net.ipv4.tcp_rmem`: min, default, max in bytes.
    pub tcp_rmem_bytes: Option<[u64; 3]>,
    /// `net.ipv4.tcp_wmem`: min, default, max in bytes.
    pub tcp_wmem_bytes: Option<[u64; 3]>,
    /// `net.ipv4.tcp_window_scaling`: whether its SYNs offer the option.
    pub window_scaling: Option<bool>,
    /// Congestion control of the connections, such as `cubic`; empty when not known.
    pub congestion_control: String,
    /// Congestion controls that an application of this host may choose.
    pub congestion_controls_available: Vec<String>,
    /// Send buffer that the application fixed, as `getsockopt(SO_SNDBUF)` reads it back: Linux
    /// has doubled what was asked for (socket(7)). It switches autotuning off.
    pub sndbuf_fixed: Option<Bytes>,
    /// Receive buffer that the application fixed, as `getsockopt(SO_RCVBUF)` reads it back.
    pub rcvbuf_fixed: Option<Bytes>,
    /// What writing costs it by declaration, where it does.
    pub write_cost: Option<WriteCost>,
    /// Rate of the bus between its memory and its interface, as the machine states it, before overhead.
    pub bus: Option<Rate>,
}

impl Evidence {
    /// Goodput that is judged: after the ramp where there was time for one, else of the whole.
    pub fn goodput(&self) -> Rate {
        if self.goodput_after_ramp > Rate::default() {
            self.goodput_after_ramp
        } else {
            self.goodput_whole
        }
    }

    /// Round trip of the idle path: as measured, else the smallest that any stream saw, else zero.
    pub fn idle_rtt_or_smallest(&self) -> Duration {
        if self.idle_rtt > Duration::ZERO {
            return self.idle_rtt;
        }
        let samples = self.streams.iter().flat_map(|s| &s.samples);
        // The kernel starts the minimum at all ones (net/ipv4/tcp.c, tcp_init_sock).
        let seen = samples
            .map(|s| s.info.min_rtt_us)
            .filter(|&us| us > 0 && us < MIN_RTT_UNSET_US);
        seen.min().map_or(Duration::ZERO, Duration::from_us)
    }
}

impl Scaling {
    /// What a reading of `tcp_info` tells.
    pub const fn of(info: &TcpInfo) -> Self {
        Self {
            agreed: info.window_scaling(),
            own_shift: info.own_window_shift(),
            peer_shift: info.peer_window_shift(),
        }
    }
}

impl HostConfig {
    /// True when the connections are governed by a congestion control of that name's family:
    /// `bbr` covers `bbr2` and `bbr3` as well.
    pub fn congestion_control_is(&self, family: &str) -> bool {
        self.congestion_control.starts_with(family)
    }
}

/// What `tcpi_min_rtt` reads before the first round trip was measured.
const MIN_RTT_UNSET_US: u64 = u32::MAX as u64;
