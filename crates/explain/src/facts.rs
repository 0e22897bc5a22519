//! The numbers that the rules compare, worked out once from the evidence.
//!
//! Only readings after the ramp count, unless fewer than two are left; then all do. Losses are
//! counted over the whole transfer when fewer than four fell after the ramp. Medians stand for
//! levels (one disturbed reading must not move them), differences of counters for amounts.
//!
//! **Starved time.** The kernel calls a connection busy while anything is unacknowledged, so on a
//! long path an application that writes too slowly, and a writer that waits for a third of its
//! buffer to drain, both look like the network. A reading betrays them: the delivery rate is marked
//! app-limited, nothing waits to be sent, and fewer segments are in flight than the congestion
//! window allows. The fraction of such readings moves that part of the network's share to where
//! it belongs: to the send buffer if that has the larger share, else to the application.

use throughput::shares::{self, Shares, delta_u32};
use throughput::{Sample, is_held_below, is_starved, models};
use units::{Bytes, Duration, Rate};
use wire::tcp_info::TcpInfo;

use crate::evidence::{Evidence, Scaling};
use crate::peaks;

/// The evidence in numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Connections with at least one reading.
    pub streams: usize,
    /// Intervals after the ramp of the connection with the most.
    pub intervals: usize,
    /// Goodput that is judged.
    pub goodput: Rate,
    /// The same for each connection.
    pub goodput_per_stream: Rate,
    /// Wire rate that the transfer should fill: the bottleneck's, else the target.
    pub wire_rate: Option<Rate>,
    /// TCP payload that this rate carries.
    pub achievable: Option<Rate>,
    /// True when both come from a known bottleneck, false when from a target.
    pub bottleneck_known: bool,
    /// Payload of a segment: the kernel's `snd_mss`, else from the MTU.
    pub mss_bytes: u64,
    /// Round trip of the idle path; zero when unknown.
    pub idle_rtt: Duration,
    /// Median smoothed round trip under load.
    pub loaded_rtt: Option<Duration>,
    /// Highest smoothed round trip under load.
    pub highest_rtt: Option<Duration>,
    /// Time that a packet waits in the full queue, where queue and rate are known.
    pub full_queue_delay: Option<Duration>,
    /// Data segments sent.
    pub sent_segments: u64,
    /// Of these, retransmitted.
    pub retransmitted_segments: u64,
    /// Of these, needless: the peer reported a duplicate (DSACK).
    pub spurious_segments: u64,
    /// Of these, at most so many answer losses of the lab that carried the path.
    pub lab_losses: u64,
    /// Retransmitted for a loss of the path, as a share of the sent.
    pub loss_rate: f64,
    /// Segments retransmitted during the ramp.
    pub retransmitted_in_ramp_segments: u64,
    /// How much more of the retransmissions than of the data fell into the ramp: 0 for losses
    /// spread evenly, towards 1 for one burst at the end of slow start.
    pub bunched_in_ramp: f64,
    /// Share of the retransmissions that fell into intervals with a filled queue.
    pub lost_at_full_queue: f64,
    /// Share of the retransmissions that came while all windows together, a round trip, were less than
    /// three quarters of what the path can carry: whatever was full then was so for less than a round trip. Those
    /// between readings more than two round trips apart do not count as such.
    pub lost_below_rate: f64,
    /// Intervals between readings in which a connection retransmitted: how often losses came,
    /// however many at a time.
    pub loss_intervals: u64,
    /// Share of the sections of time with a loss in which far fewer packets arrived than came through in
    /// another; `None` where too few had one.
    pub lost_below_peak: Option<f64>,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Data segments that arrived a second, all connections together: those sent after the ramp
    /// less those lost.
    pub packets_per_second: f64,
    /// The peer's window, where the kernel tells it.
    pub peer_window: Option<Range>,
    /// Whether both ends agreed on window scaling.
    pub window_scaling: Option<bool>,
    /// What the sender's kernel holds of window scaling.
    pub sender_scaling: Option<Scaling>,
    /// Congestion windows in bytes, one connection's median.
    pub cwnd: Option<Range>,
    /// Share of readings in which data waited though both windows had room for an eighth of what was in flight:
    /// what holds it back lies between TCP and the line.
    pub held_below: f64,
    /// What TCP small queues let wait in the sender's host, as time at the goodput; it is part of the round trip.
    pub host_wait: Duration,
    /// How slow start went, where readings show it.
    pub opening: Option<Opening>,
    /// Share of readings that betray a starved sender.
    pub starved: f64,
    /// True while no connection has left slow start.
    pub in_slow_start: bool,
    /// Standard deviation of the intervals' rates over their mean.
    pub variation: Option<f64>,
    /// SO_MAX_PACING_RATE of all connections together, where all have one.
    pub pacing_cap: Option<Rate>,
    /// Where the time went, by the kernel's clocks.
    pub shares: Option<Shares>,
    /// The same with starved time moved to where it belongs.
    pub attributed: Option<Shares>,
}

/// How a window opened in slow start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Opening {
    /// Segments that one acknowledgment stood for.
    pub segments_per_ack: f64,
    /// Factor of the window in a round trip.
    pub growth: f64,
    /// The same for a window that grows by one segment for each acknowledgment, from how many of both came in
    /// each interval.
    pub growth_by_acks: f64,
    /// Time that was looked at.
    pub over: Duration,
}

/// How a quantity moved over the readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Smallest.
    pub min: Bytes,
    /// Median.
    pub median: Bytes,
    /// Largest.
    pub max: Bytes,
    /// At the first reading.
    pub first: Bytes,
    /// At the last reading.
    pub last: Bytes,
}

impl Facts {
    /// Works them out.
    pub fn of(evidence: &Evidence) -> Self {
        let steady: Vec<&[Sample]> = evidence
            .streams
            .iter()
            .map(|s| after_ramp(&s.samples, evidence.ramp))
            .filter(|samples| !samples.is_empty())
            .collect();
        let mut facts = Self {
            streams: steady.len(),
            intervals: steady.iter().map(|s| s.len() - 1).max().unwrap_or(0),
            goodput: evidence.goodput(),
            idle_rtt: evidence.idle_rtt_or_smallest(),
            ..Self::default()
        };
        let streams = u64::try_from(steady.len().max(1)).unwrap_or(u64::MAX);
        let per_stream = facts.goodput.as_bits_per_second() / streams;
        facts.goodput_per_stream = Rate::from_bits_per_second(per_stream);
        facts.fill_rates(evidence);
        facts.fill_levels(&steady, evidence.writes_always);
        facts.fill_losses(evidence, &steady);
        facts.fill_shares(&steady, evidence);
        facts
    }

    /// Goodput over what the path can carry, where that is known.
    pub fn utilisation(&self) -> Option<f64> {
        let achievable = self.achievable?.as_bits_per_second() as f64;
        (achievable > 0.0).then(|| self.goodput.as_bits_per_second() as f64 / achievable)
    }

    /// Time that the loaded round trip exceeds the idle one: the queue's.
    pub fn queue_delay(&self) -> Duration {
        self.loaded_rtt.unwrap_or_default() - self.idle_rtt
    }

    /// The attributed shares, or all to the network where the kernel does not tell.
    pub fn attributed_or_network(&self) -> Shares {
        let network = Shares {
            application: 0.0,
            receive_window: 0.0,
            send_buffer: 0.0,
            network: 1.0,
        };
        self.attributed.unwrap_or(network)
    }

    /// Retransmissions that answer a loss of the path.
    pub fn lost_segments(&self) -> u64 {
        self.retransmitted_segments
            .saturating_sub(self.spurious_segments)
            .saturating_sub(self.lab_losses)
    }

    /// True when the median cwnd of the last reading is well above that of the first.
    pub fn cwnd_grew(&self, factor: f64) -> bool {
        let grew = |r: Range| r.last.as_u64() as f64 >= factor * r.first.as_u64() as f64;
        self.cwnd.is_some_and(grew)
    }

    fn fill_rates(&mut self, evidence: &Evidence) {
        let path = &evidence.path;
        self.bottleneck_known = path.achievable_rate().is_some();
        if self.bottleneck_known {
            self.wire_rate = path.bottleneck.or(path.achievable);
            self.achievable = path.achievable_rate();
        } else if let Some(target) = evidence.target {
            self.wire_rate = Some(target);
            self.achievable = Some(path.achievable_of(target));
        }
        let queue = path.queue.zip(path.bottleneck);
        self.full_queue_delay = queue.and_then(|(size, rate)| time_to_send(size, rate));
        let samples = evidence.streams.iter().flat_map(|s| &s.samples);
        let seen = samples
            .map(|s| s.info.snd_mss_bytes)
            .filter(|&mss| mss > 0)
            .max();
        self.mss_bytes = seen.unwrap_or_else(|| path.mss_bytes());
    }

    fn fill_levels(&mut self, steady: &[&[Sample]], writes_always: bool) {
        let all = || steady.iter().flat_map(|s| s.iter());
        let rtts: Vec<u64> = all()
            .map(|s| shares::rtt(&s.info).as_ns())
            .filter(|&ns| ns > 0)
            .collect();
        self.loaded_rtt = median(rtts.clone()).map(Duration::from_ns);
        self.highest_rtt = rtts.into_iter().max().map(Duration::from_ns);
        self.peer_window = range(steady, |i| i.snd_wnd_bytes);
        self.cwnd = range(steady, |i| {
            i.snd_cwnd_segments.saturating_mul(i.snd_mss_bytes)
        });
        let last: Vec<&TcpInfo> = steady
            .iter()
            .filter_map(|s| s.last())
            .map(|s| &s.info)
            .collect();
        self.window_scaling = (!last.is_empty()).then(|| last.iter().any(|i| i.window_scaling()));
        self.sender_scaling = last.first().map(|info| Scaling::of(info));
        self.in_slow_start = !last.is_empty()
            && last
                .iter()
                .all(|i| i.snd_ssthresh_segments >= INFINITE_SSTHRESH);
        let readings = all().count();
        if readings > 0 {
            let starved = all().filter(|s| is_starved(&s.info, writes_always)).count();
            self.starved = starved as f64 / readings as f64;
            let held = all().filter(|s| is_held_below(&s.info)).count();
            self.held_below = held as f64 / readings as f64;
            self.host_wait = host_wait(steady, self.goodput);
        }
        self.pacing_cap = pacing_cap(&last);
    }

    fn fill_losses(&mut self, evidence: &Evidence, steady: &[&[Sample]]) {
        let whole: Vec<&[Sample]> = evidence
            .streams
            .iter()
            .map(|s| s.samples.as_slice())
            .collect();
        let retransmissions: fn(&TcpInfo) -> u64 = |i| i.total_retrans_segments;
        let sent: fn(&TcpInfo) -> u64 = |i| i.data_segs_out;
        let lost_after = grown(steady, retransmissions);
        let (lost_in_all, sent_in_all) = (grown(&whole, retransmissions), grown(&whole, sent));
        self.retransmitted_in_ramp_segments = lost_in_all.saturating_sub(lost_after);
        let sent_in_ramp = sent_in_all.saturating_sub(grown(steady, sent));
        let in_ramp = share_of(self.retransmitted_in_ramp_segments, lost_in_all)
            - share_of(sent_in_ramp, sent_in_all);
        self.bunched_in_ramp = in_ramp.max(0.0);
        self.opening = whole.iter().find_map(|samples| opening(samples));

        let counted = if lost_after >= ENOUGH_LOSSES {
            steady
        } else {
            &whole
        };
        self.sent_segments = grown(counted, sent);
        self.retransmitted_segments = grown(counted, retransmissions);
        self.spurious_segments = grown(counted, |i| i.dsack_dups).min(self.retransmitted_segments);
        self.timeouts = grown(counted, |i| i.total_rto);
        self.lab_losses = evidence.lab_losses;
        self.loss_rate = share_of(self.lost_segments(), self.sent_segments);
        self.lost_at_full_queue = self.share_lost_at_full_queue(counted);
        self.lost_below_rate = self.share_lost_below_rate(counted);
        self.loss_intervals = loss_intervals(counted);
        self.lost_below_peak = peaks::lost_below_peak(steady, self.idle_rtt);
        self.packets_per_second = steady.iter().map(|s| arrived_per_second(s)).sum();
    }

    fn fill_shares(&mut self, steady: &[&[Sample]], evidence: &Evidence) {
        let rates: Vec<f64> = steady
            .iter()
            .flat_map(|s| shares::intervals(s))
            .map(|i| i.delivered.as_bits_per_second() as f64)
            .collect();
        self.variation = variation(&rates);
        self.shares = shares::shares_of_streams(steady.iter().copied());
        let streams = evidence.streams.len().max(1) as f64;
        let cpu_bound = evidence
            .sender_cpu
            .is_some_and(|cpu| cpu / streams >= CPU_BOUND);
        let to_buffer = evidence.writes_always && !cpu_bound;
        self.attributed = self.shares.map(|s| attribute(s, self.starved, to_buffer));
    }

    /// Share of the retransmissions in intervals before or at whose ends the round trip rose above the queue's
    /// mark: a loss is seen a round trip late, and what a recovery sends again takes another (RFC 6937), when
    /// the queue may have drained already.
    fn share_lost_at_full_queue(&self, streams: &[&[Sample]]) -> f64 {
        let mark = self.idle_rtt + self.queue_mark();
        let (mut all, mut at_queue) = (0_u64, 0_u64);
        for samples in streams {
            // When the round trip last was that high.
            let mut full: Option<Duration> = None;
            for pair in samples.windows(2) {
                let (from, to) = (&pair[0].info, &pair[1].info);
                for reading in pair.iter().filter(|s| shares::rtt(&s.info) >= mark) {
                    full = Some(reading.t);
                }
                let lost = delta_u32(from.total_retrans_segments, to.total_retrans_segments);
                all = all.saturating_add(lost);
                let seen = pair[0].t - self.idle_rtt.saturating_mul(2);
                if full.is_some_and(|at| at >= seen) {
                    at_queue = at_queue.saturating_add(lost);
                }
            }
        }
        if all == 0 {
            0.0
        } else {
            at_queue as f64 / all as f64
        }
    }

    /// Share of the retransmissions in intervals before which all windows together were small beside what
    /// the path can carry; 0 where that is not known.
    fn share_lost_below_rate(&self, streams: &[&[Sample]]) -> f64 {
        let Some(achievable) = self.achievable.filter(|_| self.bottleneck_known) else {
            return 0.0;
        };
        let most = achievable.bytes_in(self.idle_rtt).as_u64() as f64 * BELOW_RATE;
        let mut losses: Vec<(Duration, u64)> = Vec::new();
        let mut all = 0_u64;
        for pair in streams.iter().flat_map(|s| s.windows(2)) {
            let (from, to) = (&pair[0].info, &pair[1].info);
            let lost = delta_u32(from.total_retrans_segments, to.total_retrans_segments);
            all = all.saturating_add(lost);
            // In a longer time a window that was small may have filled the path before the loss.
            if lost > 0 && pair[1].t - pair[0].t <= self.idle_rtt.saturating_mul(2) {
                losses.push((pair[0].t, lost));
            }
        }
        losses.sort_unstable();
        let mut places = vec![0; streams.len()];
        let mut below = 0_u64;
        for (t, lost) in losses {
            let mut windows = 0_u64;
            for (samples, place) in streams.iter().zip(&mut places) {
                while samples.get(*place + 1).is_some_and(|s| s.t <= t) {
                    *place += 1;
                }
                let window = samples.get(*place).map_or(0, |s| s.info.snd_cwnd_segments);
                windows = windows.saturating_add(window.saturating_mul(self.mss_bytes));
            }
            if (windows as f64) < most {
                below = below.saturating_add(lost);
            }
        }
        share_of(below, all)
    }

    /// Rise of the round trip from which a queue counts as filled: half of what the full queue
    /// takes, where that is known, else a tenth of the round trip and at least a millisecond.
    pub(crate) fn queue_mark(&self) -> Duration {
        match self.full_queue_delay {
            Some(full) => Duration::from_ns((full.as_ns() / 2).max(RTT_NOISE_NS)),
            None => Duration::from_ns((self.idle_rtt.as_ns() / 10).max(1_000_000)),
        }
    }
}

/// The readings after the ramp; all of them when fewer than two are left.
pub(crate) fn after_ramp(samples: &[Sample], ramp: Duration) -> &[Sample] {
    let start = samples
        .iter()
        .position(|s| s.t >= ramp)
        .unwrap_or(samples.len());
    if samples.len() - start >= 2 {
        &samples[start..]
    } else {
        samples
    }
}

/// Growth of a 32-bit counter over each connection's readings, in sum.
fn grown(streams: &[&[Sample]], field: fn(&TcpInfo) -> u64) -> u64 {
    let ends = streams.iter().filter_map(|s| Some((s.first()?, s.last()?)));
    ends.map(|(a, b)| delta_u32(field(&a.info), field(&b.info)))
        .fold(0, u64::saturating_add)
}

/// Intervals with a retransmission, over all connections.
fn loss_intervals(streams: &[&[Sample]]) -> u64 {
    let pairs = streams.iter().flat_map(|s| s.windows(2));
    let lost = pairs.filter(|pair| {
        let total = |at: usize| pair[at].info.total_retrans_segments;
        delta_u32(total(0), total(1)) > 0
    });
    u64::try_from(lost.count()).unwrap_or(u64::MAX)
}

/// Data segments of one connection that arrived a second; 0 where its readings span no time.
fn arrived_per_second(samples: &[Sample]) -> f64 {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else {
        return 0.0;
    };
    let span = (last.t - first.t).as_s_f64();
    let one = [samples];
    let lost =
        grown(&one, |i| i.total_retrans_segments).saturating_sub(grown(&one, |i| i.dsack_dups));
    let arrived = grown(&one, |i| i.data_segs_out).saturating_sub(lost);
    if span > 0.0 {
        arrived as f64 / span
    } else {
        0.0
    }
}

/// `part` of `whole` in 0..=1; nothing of nothing is 0.
fn share_of(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        (part as f64 / whole as f64).min(1.0)
    }
}

/// Bytes that TCP small queues let wait below TCP, over the rate at which they leave: a millisecond of the pacing
/// rate, as Linux keeps it whether it paces or not, of all connections (net/ipv4/tcp_output.c,
/// `tcp_small_queue_check`, and `tcp_update_pacing_rate` in tcp_input.c; net.ipv4.tcp_limit_output_bytes by default).
fn host_wait(streams: &[&[Sample]], rate: Rate) -> Duration {
    let of_one = |samples: &&[Sample]| {
        let limits = samples
            .iter()
            .map(|s| s.info.pacing_rate_bytes_per_second)
            .filter(|&paced| paced > 0 && paced != u64::MAX)
            .map(|paced| (paced >> PACING_SHIFT).min(LIMIT_OUTPUT_BYTES));
        median(limits.collect()).unwrap_or_default()
    };
    let bytes: u64 = streams.iter().map(of_one).sum();
    time_to_send(Bytes::new(bytes), rate).unwrap_or_default()
}

/// From a window of twice the usual beginning up to half of the largest in slow start.
fn opening(samples: &[Sample]) -> Option<Opening> {
    let slow = |s: &&Sample| s.info.snd_ssthresh_segments >= INFINITE_SSTHRESH;
    let top = samples
        .iter()
        .filter(slow)
        .map(|s| s.info.snd_cwnd_segments)
        .max()?;
    let first = samples
        .iter()
        .filter(slow)
        .find(|s| s.info.snd_cwnd_segments >= OPENING_FROM_SEGMENTS)?;
    let last = samples
        .iter()
        .filter(slow)
        .rfind(|s| s.info.snd_cwnd_segments <= top / 2)?;
    let (a, b) = (&first.info, &last.info);
    let over = last
        .t
        .as_ns()
        .checked_sub(first.t.as_ns())
        .filter(|ns| *ns > 0)?;
    let rtt_us = a.rtt_us.midpoint(b.rtt_us);
    let acks = delta_u32(a.segs_in, b.segs_in);
    let wider = b.snd_cwnd_segments as f64 / a.snd_cwnd_segments.max(1) as f64;
    if acks == 0 || rtt_us == 0 || a.snd_mss_bytes == 0 || wider < OPENING_WIDER {
        return None;
    }
    let segments = b.bytes_acked.checked_sub(a.bytes_acked)? as f64 / a.snd_mss_bytes as f64;
    let round_trips = over as f64 / 1e3 / rtt_us as f64;
    let within = |s: &&Sample| s.t >= first.t && s.t <= last.t;
    let within: Vec<&Sample> = samples.iter().filter(within).collect();
    // A window that something else leaves half empty opens by that, not by acknowledgments.
    let full = |s: &&&Sample| s.info.unacked_segments >= s.info.snd_cwnd_segments / 4 * 3;
    if within.iter().filter(full).count() < within.len().div_ceil(4) * 3 {
        return None;
    }
    let mut by_acks = 0.0;
    for pair in within.windows(2) {
        let (a, b) = (&pair[0].info, &pair[1].info);
        let segments = b.bytes_acked.saturating_sub(a.bytes_acked) as f64 / a.snd_mss_bytes as f64;
        let acks = delta_u32(a.segs_in, b.segs_in) as f64;
        let part = (pair[1].t - pair[0].t).as_s_f64() / (over as f64 / 1e9);
        by_acks += (1.0 + acks / segments.max(1.0)).ln() * part;
    }
    Some(Opening {
        segments_per_ack: segments / acks as f64,
        growth: wider.powf(1.0 / round_trips),
        growth_by_acks: by_acks.exp(),
        over: Duration::from_ns(over),
    })
}

/// Moves the starved part of the network's share to whom it belongs.
///
/// The kernel books sndbuf-limited time only when the last of the queue leaves while a writer is
/// already waiting (net/ipv4/tcp_output.c, tcp_cwnd_validate), so a writer that is woken for a third
/// of its buffer, fills it and waits again often shows as busy.
fn attribute(shares: Shares, starved: f64, to_buffer: bool) -> Shares {
    let moved = shares.network * starved;
    let mut moved_to = Shares {
        network: shares.network - moved,
        ..shares
    };
    if to_buffer || shares.send_buffer > shares.application {
        moved_to.send_buffer = (shares.send_buffer + moved).min(1.0);
    } else {
        moved_to.application = (shares.application + moved).min(1.0);
    }
    moved_to
}

fn pacing_cap(last: &[&TcpInfo]) -> Option<Rate> {
    let mut bytes = 0_u64;
    for info in last {
        let cap = info.max_pacing_rate_bytes_per_second;
        // All ones in 64 or, on old kernels, 32 bits: no limit. Zero: not told.
        if cap == 0 || cap == u64::MAX || cap == u64::from(u32::MAX) {
            return None;
        }
        bytes = bytes.saturating_add(cap);
    }
    (bytes > 0).then(|| Rate::from_bits_per_second(bytes.saturating_mul(8)))
}

/// Range over all readings that tell (above zero); first and last are medians over connections.
fn range(steady: &[&[Sample]], field: fn(&TcpInfo) -> u64) -> Option<Range> {
    let of = |samples: &mut dyn Iterator<Item = &Sample>| -> Vec<u64> {
        samples.map(|s| field(&s.info)).filter(|&v| v > 0).collect()
    };
    let all = of(&mut steady.iter().flat_map(|s| s.iter()));
    let first = of(&mut steady.iter().filter_map(|s| s.first()));
    let last = of(&mut steady.iter().filter_map(|s| s.last()));
    Some(Range {
        min: Bytes::new(*all.iter().min()?),
        max: Bytes::new(*all.iter().max()?),
        median: Bytes::new(median(all)?),
        first: Bytes::new(median(first).unwrap_or(0)),
        last: Bytes::new(median(last).unwrap_or(0)),
    })
}

/// The upper median, so that it is one of the values.
fn median(mut values: Vec<u64>) -> Option<u64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(middle).1)
}

fn variation(rates: &[f64]) -> Option<f64> {
    let n = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / n;
    if rates.len() < 2 || mean <= 0.0 {
        return None;
    }
    let variance = rates.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / n;
    Some(variance.sqrt() / mean)
}

fn time_to_send(size: Bytes, rate: Rate) -> Option<Duration> {
    let rate = rate.as_bits_per_second() as f64;
    (rate > 0.0).then(|| models::seconds(size.as_u64() as f64 * 8.0 / rate))
}

/// sk_pacing_shift: 2^-10 of a second (net/core/sock.c).
const PACING_SHIFT: u32 = 10;
/// net.ipv4.tcp_limit_output_bytes as Linux 6.18 sets it.
const LIMIT_OUTPUT_BYTES: u64 = 4 << 20;

/// Losses that must be seen before a loss rate means something (NPAD, pathdiag.py: four events).
pub(crate) const ENOUGH_LOSSES: u64 = 4;

/// A window that filled the path and its queue is cut to 0.7 of it at worst (RFC 9438, 4.6), so below this
/// it filled neither; chosen.
const BELOW_RATE: f64 = 0.75;

/// Twice the initial window of RFC 6928.
const OPENING_FROM_SEGMENTS: u64 = 20;
/// A window that opened by less tells of no pace; chosen.
const OPENING_WIDER: f64 = 3.0;

/// A thread that used this much of a CPU had little left to write faster with; chosen.
const CPU_BOUND: f64 = 0.8;
/// What a smoothed round trip moves by without any queue, interrupts and scheduling; chosen.
const RTT_NOISE_NS: u64 = 100_000;

/// include/net/tcp.h, `TCP_INFINITE_SSTHRESH`.
const INFINITE_SSTHRESH: u64 = 0x7fff_ffff;

#[cfg(test)]
mod tests {
    use super::*;
    use throughput::StreamEvidence;

    #[test]
    fn too_few_readings_after_the_ramp_bring_back_the_whole() {
        let at = |ms| Sample {
            t: Duration::from_ms(ms),
            ..Sample::default()
        };
        let samples = [at(0), at(500), at(1_000), at(1_500)];
        assert_eq!(after_ramp(&samples, Duration::from_ms(500)).len(), 3);
        assert_eq!(after_ramp(&samples, Duration::from_ms(1_200)).len(), 4);
        assert_eq!(after_ramp(&[], Duration::ZERO).len(), 0);
    }

    #[test]
    fn starved_time_goes_to_the_buffer_only_where_that_already_shows() {
        let network = Shares {
            application: 0.1,
            receive_window: 0.0,
            send_buffer: 0.0,
            network: 0.9,
        };
        let moved = attribute(network, 1.0, false);
        assert_eq!(
            (moved.application, moved.send_buffer, moved.network),
            (1.0, 0.0, 0.0)
        );
        let always = attribute(network, 1.0, true);
        assert_eq!((always.application, always.send_buffer), (0.1, 0.9));
        let buffer = Shares {
            application: 0.0,
            receive_window: 0.0,
            send_buffer: 0.5,
            network: 0.5,
        };
        let moved = attribute(buffer, 0.5, false);
        assert_eq!(
            (moved.application, moved.send_buffer, moved.network),
            (0.0, 0.75, 0.25)
        );
    }

    #[test]
    fn losses_are_told_apart_by_the_round_trip_around_them() {
        let reading = |ms, rtt_us, retrans| Sample {
            t: Duration::from_ms(ms),
            info: TcpInfo {
                rtt_us,
                total_retrans_segments: retrans,
                data_segs_out: ms * 10,
                ..TcpInfo::default()
            },
            app_bytes: Bytes::default(),
        };
        let samples = vec![
            reading(0, 20_000, 0),
            reading(100, 21_000, 1),
            reading(200, 40_000, 4),
        ];
        let evidence = Evidence {
            streams: vec![StreamEvidence { samples }],
            idle_rtt: Duration::from_ms(20),
            ..Evidence::default()
        };
        let facts = Facts::of(&evidence);
        assert_eq!(facts.lost_at_full_queue, 0.75);
        assert_eq!(facts.loss_rate, 0.002);
        assert_eq!(facts.highest_rtt, Some(Duration::from_ms(40)));
    }

    #[test]
    fn an_unset_pacing_rate_is_no_cap() {
        let with = |cap| TcpInfo {
            max_pacing_rate_bytes_per_second: cap,
            ..TcpInfo::default()
        };
        assert_eq!(pacing_cap(&[&with(u64::MAX)]), None);
        assert_eq!(pacing_cap(&[&with(0)]), None);
        assert_eq!(pacing_cap(&[]), None);
        let two = [&with(1_250_000), &with(1_250_000)];
        assert_eq!(pacing_cap(&two).unwrap().to_string(), "20 Mb/s");
    }
}
