//! A sweep: its points, its curves, and what they say: the key `sweep` of `run.json`.

use serde::{Deserialize, Serialize};

use super::{Certificate, Observer};

/// Many short transfers with one or two settings varied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sweep {
    /// What was varied: along the curves first, then from curve to curve.
    pub axes: Vec<SweepAxis>,
    /// Every combination of settings.
    pub points: Vec<SweepPoint>,
    /// One for each setting of the second axis, or one.
    pub curves: Vec<SweepCurve>,
    /// Rounds that were begun; each measures points in a random order of its own.
    pub rounds: u32,
    /// Seed of the orders.
    pub seed: u64,
    /// What the confidence intervals were to be, half of them as a share of the mean.
    pub precision: f64,
    /// How far whole rounds differ, the highest over the lowest less 1: the machine's drift.
    pub drift: f64,
    /// True when the time was over before every point was known to that precision.
    pub out_of_time: bool,
    /// Time that each transfer was measured, after its ramp.
    pub measured_ns: u64,
    /// Ramp of each transfer.
    pub ramp_ns: u64,
    /// Idle round trip at the beginning.
    pub rtt_idle_ns: u64,
    /// Both ends were on one machine, and each kept to a CPU of its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
    /// Direction, as in a phase.
    pub direction: String,
    /// Where one sender's curve overtakes another's, where senders were varied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub crossings: Vec<SweepCrossing>,
    /// Another tool that measured the points as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observer: Option<SweepObserver>,
    /// The lab's own accuracy over the whole sweep.
    pub certificate: Option<Certificate>,
    /// Of messages over TCP: what all their points share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<SweepMessages>,
    /// Latency of messages by their size.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<SweepLatency>,
}

/// What the points of a sweep of messages share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SweepMessages {
    /// `tcp`, `verbs-rc`, `verbs-uc` or `verbs-ud`.
    pub transport: String,
    /// Messages that may be unconfirmed where rates are measured.
    pub window: u32,
    /// Both ends ask their sockets again and again instead of sleeping.
    pub spin: bool,
    /// Time for which messages went to and fro at each measurement; its first tenth does not count.
    pub to_and_fro_ns: u64,
    /// What the tool adds to a round trip.
    pub tool_ns: f64,
    /// Latency in words.
    pub sentence: String,
    /// Sizes that were not measured, and why.
    pub left_out: Option<String>,
    /// What became of the part over RDMA verbs.
    pub verbs: String,
}

/// Latency of messages of one size, half of the round trip. All but the medians of single
/// measurements are of all round trips of all rounds together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SweepLatency {
    /// Size of a message.
    pub message_bytes: u64,
    /// Round trips.
    pub round_trips: u64,
    /// Shortest.
    pub min_ns: u64,
    /// Median.
    pub median_ns: u64,
    /// Mean.
    pub mean_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// Round trips beside these that the kernel stamped as they left and came back, on this host; of TCP
    /// and messages up to 1 KiB, where the interface's driver stamps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_round_trips: Option<u64>,
    /// Their median between the kernel's stamps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_median_ns: Option<u64>,
    /// The same round trips by the program's clock: median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stamped_median_ns: Option<u64>,
    /// Median of each measurement, in the order they were made.
    pub each_median_ns: Vec<u64>,
    /// Round in which each was made, from 1.
    pub each_round: Vec<u32>,
    /// Half of the 95 % confidence interval of their mean, as a share of it; absent below two.
    pub error: Option<f64>,
    /// It falls out of its neighbours.
    pub anomaly: bool,
}

/// One curve overtakes another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SweepCrossing {
    /// Name of the curve that does.
    pub name: String,
    /// Name of the one that is overtaken.
    pub overtakes: String,
    /// Where the measured lines cross, in the first axis' unit.
    pub at: u64,
    /// The same where the axis is of bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_bytes: Option<u64>,
}

/// Who else measured a sweep's points.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SweepObserver {
    /// Program and version.
    pub tool: String,
    /// Its command at the last point.
    pub command: String,
    /// How often each point was measured by it at most.
    pub rounds: u32,
}

/// What is varied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SweepAxis {
    /// `write-size`, `socket-buffer`, `streams`, `message-size`, `mtu`, ...
    pub name: String,
    /// `bytes`, `bits_per_second` or empty for a count.
    pub unit: String,
    /// The settings, rising.
    pub values: Vec<u64>,
    /// Where settings are names, those of 1, 2, ...
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// One combination of settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SweepPoint {
    /// One for each axis, in its unit.
    pub settings: Vec<u64>,
    /// Goodput of each transfer, in the order they were made.
    pub each_bits_per_second: Vec<u64>,
    /// Round in which each was made, from 1.
    pub each_round: Vec<u32>,
    /// Their median.
    pub goodput_bits_per_second: u64,
    /// Half of the 95 % confidence interval of the mean, as a share of it (Student's t); absent
    /// below two transfers.
    pub error: Option<f64>,
    /// It falls out of its neighbours, or behind the point before where a curve falls again and again.
    pub anomaly: bool,
    /// Median of what the observer measured there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observer_bits_per_second: Option<u64>,
    /// The observer's two ends had used up the CPUs that were left to them, in most of its measurements:
    /// its number is that of its own cost.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub observer_without_cpu: bool,
    /// CPUs that the sender's data threads used, median; 1 is one CPU throughout.
    pub cpu_sender: f64,
    /// The receiver's. Of messages both ways at once these are the near and the far end's.
    pub cpu_receiver: f64,
    /// What was done with messages: `one_way` or `both_ways`, the rates of both directions added up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Messages in numbers, where they were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<SweepRate>,
    /// UDP: share of the datagrams that was lost, median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Payload of the segments that the sender's kernel cut, where the MTU was varied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment_bytes: Option<u64>,
    /// The window that the receiver's kernel had offered, streams added up, median; where a buffer was
    /// varied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_bytes: Option<u64>,
    /// What the sender's kernel had on the way, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight_bytes: Option<u64>,
    /// Share of the time that windows and send buffers held the sender, as its kernel counts, mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_share: Option<f64>,
    /// The same measured by others, after the last round.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub observers: Vec<Observer>,
}

/// Messages of one size in numbers, as tools for RDMA list them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SweepRate {
    /// Messages counted in all measurements together.
    pub iterations: u64,
    /// Highest of the measurements.
    pub peak_bits_per_second: u64,
    /// Their mean.
    pub average_bits_per_second: u64,
    /// Messages a second, of that mean.
    pub messages_per_second: u64,
}

/// What one curve says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SweepCurve {
    /// Setting of the second axis.
    pub second: Option<u64>,
    /// The same in words, where it is a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What was done with messages, as in its points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// `knee`, `flat`, `rising`, `noisy` (the points are not known well enough) or `unknown`.
    pub shape: String,
    /// Where the measured line comes within 5 % of the plateau, in the first axis' unit.
    pub knee: Option<u64>,
    /// The same where the axis is of bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knee_bytes: Option<u64>,
    /// From here to `knee_high` 95 % of the knees lie that other rounds of the run might have given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knee_low: Option<u64>,
    /// See `knee_low`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knee_high: Option<u64>,
    /// The first measured setting that is.
    pub knee_measured: Option<u64>,
    /// The first measured setting with 90 % of what the path can carry, where the axis is of bytes and
    /// the path's rate is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_from_bytes: Option<u64>,
    /// The size at whose multiples the curve falls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anomaly_period_bytes: Option<u64>,
    /// Where a buffer was varied, at the knee: the window that the receiver's kernel offered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knee_window_bytes: Option<u64>,
    /// Up to which setting windows and send buffers held the sender for half of the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_up_to_bytes: Option<u64>,
    /// The rate there times the idle round trip.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_rtt_bytes: Option<u64>,
    /// The largest difference of a point from what the observer measured there, as a share of it; points
    /// at which it had no CPU left do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observer_difference_max: Option<f64>,
    /// Points that the observer measured too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observer_points: Option<u32>,
    /// Of these, such at which it had CPU left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observer_points_with_cpu: Option<u32>,
    /// By how much the observer was faster at most, at any of these points, as a share of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observer_faster_max: Option<f64>,
    /// Where it is level, what held the senders for most of the time by their kernel: `receive_window` or
    /// `send_buffer`, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_by: Option<String>,
    /// The plateau.
    pub plateau_bits_per_second: Option<u64>,
    /// In words.
    pub sentence: String,
}
