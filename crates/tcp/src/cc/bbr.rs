//! BBR, version 1, as Linux has it (net/ipv4/tcp_bbr.c; draft-cardwell-iccrg-bbr-congestion-control-00).
//!
//! The window follows the largest delivery rate of ten round trips times the smallest round trip of ten seconds, and
//! the pacing rate the first of them; neither a loss nor a delay lowers them. Four modes: start-up (gain
//! 2.885), drain, probing for bandwidth in cycles of eight phases, probing for the round trip (four segments for
//! 200 ms, every ten seconds). Not done: the long-term sampling that finds policers.

use units::{Duration, Instant, Rng};

use super::Window;

/// A rate sample and what else an acknowledgment says (net/ipv4/tcp_rate.c).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) now: Instant,
    /// Segments delivered so far.
    pub(crate) delivered_total: u64,
    /// Of them, those that had been when the newest delivered segment was sent; `None`: nothing new.
    pub(crate) prior_delivered: Option<u64>,
    /// Longer of the times in which they were sent and acknowledged; zero: no valid sample.
    pub(crate) interval: Duration,
    pub(crate) app_limited: bool,
    pub(crate) acked: u64,
    pub(crate) losses: u64,
    pub(crate) rtt: Option<Duration>,
    pub(crate) in_flight: u64,
    pub(crate) in_flight_before: u64,
    /// Loss recovery, or the time after a timeout.
    pub(crate) recovering: bool,
    /// Time for which what is sent already fills the pacing rate.
    pub(crate) ahead: Duration,
    pub(crate) burst: u64,
    /// In flight when the newest delivered segment had been sent, and lost from then on.
    pub(crate) sent_in_flight: u64,
    pub(crate) lost_since: u64,
    /// The window was what held the sender back.
    pub(crate) cwnd_limited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBandwidth,
    ProbeRtt,
}

/// BBR's memory.
#[derive(Clone, Debug)]
pub(crate) struct Bbr {
    mode: Mode,
    segment_bytes: u64,
    initial_window: u64,
    pacing_gain: u64,
    cwnd_gain: u64,
    /// Payload bytes a second.
    pacing_rate: u64,
    bandwidth: MaxFilter,
    rounds: u64,
    round_start: bool,
    next_round_delivered: u64,
    full_bandwidth: u64,
    full_count: u32,
    full: bool,
    cycle: usize,
    cycle_start: Instant,
    rtt_min: Duration,
    rtt_min_at: Instant,
    probe_done_at: Option<Instant>,
    probe_round_done: bool,
    prior_cwnd: u64,
    conservation: bool,
    was_recovering: bool,
    aggregation: Aggregation,
    burst: u64,
    rng: Rng,
}

/// The largest value of some rounds (lib/win_minmax.c in short: one value for each round).
#[derive(Clone, Debug, Default)]
pub(super) struct MaxFilter {
    best: [(u64, u64); 3],
}

/// What acknowledgments bring beyond the bandwidth when they come in lumps.
#[derive(Clone, Debug, Default)]
struct Aggregation {
    epoch: Instant,
    acked: u64,
    extra: [u64; 2],
    rounds: u64,
    place: usize,
}

impl MaxFilter {
    pub(super) const fn max(&self) -> u64 {
        self.best[0].1
    }

    /// Kathleen Nichols' three best of a window of so many rounds.
    pub(super) fn add(&mut self, round: u64, value: u64, rounds: u64) {
        let new = (round, value);
        if value >= self.best[0].1 || round.saturating_sub(self.best[2].0) > rounds {
            self.best = [new; 3];
            return;
        }
        if value >= self.best[1].1 {
            (self.best[1], self.best[2]) = (new, new);
        } else if value >= self.best[2].1 {
            self.best[2] = new;
        }
        let age = round - self.best[0].0;
        if age > rounds {
            self.best = [self.best[1], self.best[2], new];
            if round - self.best[0].0 > rounds {
                self.best = [self.best[1], self.best[2], new];
            }
        } else if self.best[1].0 == self.best[0].0 && age > rounds / 4 {
            (self.best[1], self.best[2]) = (new, new);
        } else if self.best[2].0 == self.best[1].0 && age > rounds / 2 {
            self.best[2] = new;
        }
    }
}

impl Bbr {
    pub(crate) fn new(segment_bytes: u32, initial_window: u64, seed: u64) -> Self {
        Self {
            mode: Mode::Startup,
            segment_bytes: segment_bytes.into(),
            initial_window,
            pacing_gain: HIGH_GAIN,
            cwnd_gain: HIGH_GAIN,
            pacing_rate: 0,
            bandwidth: MaxFilter::default(),
            rounds: 0,
            round_start: false,
            next_round_delivered: 0,
            full_bandwidth: 0,
            full_count: 0,
            full: false,
            cycle: 0,
            cycle_start: Instant::ZERO,
            rtt_min: Duration::from_ns(u64::MAX),
            rtt_min_at: Instant::ZERO,
            probe_done_at: None,
            probe_round_done: false,
            prior_cwnd: 0,
            conservation: false,
            was_recovering: false,
            aggregation: Aggregation::default(),
            burst: 2,
            rng: Rng::new(seed),
        }
    }

    /// The handshake gave a round trip: the initial window is paced over it.
    pub(crate) fn begin(&mut self, now: Instant, round_trip: Duration) {
        let rtt = round_trip.as_ns().max(1_000);
        let bytes = u128::from(self.initial_window * self.segment_bytes);
        let rate =
            bytes * 1_000_000_000 / u128::from(rtt) * u128::from(HIGH_GAIN) / u128::from(UNIT);
        self.pacing_rate = u64::try_from(rate).unwrap_or(u64::MAX).max(1);
        self.rtt_min = round_trip;
        self.rtt_min_at = now;
        self.cycle_start = now;
    }

    pub(crate) const fn pacing_rate(&self) -> u64 {
        self.pacing_rate
    }

    /// Where it stands.
    pub(crate) const fn phase(&self) -> &'static str {
        match self.mode {
            Mode::Startup => "startup",
            Mode::Drain => "drain",
            Mode::ProbeBandwidth => "probe-bw",
            Mode::ProbeRtt => "probe-rtt",
        }
    }

    /// A loss: the window is remembered, the threshold stays.
    pub(crate) fn on_loss(&mut self, window: &Window) {
        self.save(window);
    }

    /// A timeout.
    pub(crate) const fn on_timeout(&mut self) {
        self.full_bandwidth = 0;
        self.round_start = true;
        self.was_recovering = true;
    }

    pub(crate) fn on_ack(&mut self, window: &mut Window, sample: &Sample) {
        self.burst = sample.burst;
        self.update_bandwidth(sample);
        self.update_aggregation(window, sample);
        self.update_cycle(sample);
        self.check_full(sample);
        self.check_drain(sample);
        self.update_rtt(window, sample);
        self.update_gains();
        self.set_pacing_rate();
        self.set_window(window, sample);
    }

    fn update_bandwidth(&mut self, sample: &Sample) {
        self.round_start = false;
        let Some(prior) = sample.prior_delivered else {
            return;
        };
        if sample.interval == Duration::ZERO {
            return;
        }
        if prior >= self.next_round_delivered {
            self.next_round_delivered = sample.delivered_total;
            self.rounds += 1;
            self.round_start = true;
            self.conservation = false;
        }
        let rate = rate_of(sample.delivered_total - prior, sample.interval);
        if !sample.app_limited || rate >= self.bandwidth.max() {
            self.bandwidth.add(self.rounds, rate, BANDWIDTH_ROUNDS);
        }
    }

    fn update_aggregation(&mut self, window: &Window, sample: &Sample) {
        if sample.acked == 0 || sample.prior_delivered.is_none() {
            return;
        }
        let bandwidth = self.bandwidth.max();
        let a = &mut self.aggregation;
        if self.round_start {
            a.rounds += 1;
            if a.rounds >= AGGREGATION_ROUNDS {
                a.rounds = 0;
                a.place ^= 1;
                a.extra[a.place] = 0;
            }
        }
        let expected = segments_in(bandwidth, sample.now.saturating_since(a.epoch));
        if a.acked <= expected || a.acked + sample.acked >= 1 << 20 {
            a.acked = 0;
            a.epoch = sample.now;
        }
        let expected = segments_in(bandwidth, sample.now.saturating_since(a.epoch));
        a.acked += sample.acked;
        let extra = a.acked.saturating_sub(expected).min(window.cwnd);
        a.extra[a.place] = a.extra[a.place].max(extra);
    }

    fn update_cycle(&mut self, sample: &Sample) {
        if self.mode == Mode::ProbeBandwidth && self.is_phase_over(sample) {
            self.cycle = (self.cycle + 1) % CYCLE.len();
            self.cycle_start = sample.now;
        }
    }

    fn is_phase_over(&self, sample: &Sample) -> bool {
        let long = sample.now.saturating_since(self.cycle_start) > self.rtt_min;
        let in_flight = self.in_flight_later(sample.in_flight_before, sample);
        match self.pacing_gain.cmp(&UNIT) {
            std::cmp::Ordering::Equal => long,
            std::cmp::Ordering::Greater => {
                long && (sample.losses > 0 || in_flight >= self.target(self.pacing_gain))
            }
            std::cmp::Ordering::Less => long || in_flight <= self.target(UNIT),
        }
    }

    /// What will be in flight when the pacing rate lets the next segment out.
    fn in_flight_later(&self, in_flight: u64, sample: &Sample) -> u64 {
        let gone = segments_in(self.bandwidth.max(), sample.ahead);
        let more = if self.pacing_gain > UNIT {
            self.burst
        } else {
            0
        };
        (in_flight + more).saturating_sub(gone)
    }

    fn check_full(&mut self, sample: &Sample) {
        if self.full || !self.round_start || sample.app_limited {
            return;
        }
        if self.bandwidth.max() >= self.full_bandwidth * 5 / 4 {
            self.full_bandwidth = self.bandwidth.max();
            self.full_count = 0;
            return;
        }
        self.full_count += 1;
        self.full = self.full_count >= 3;
    }

    fn check_drain(&mut self, sample: &Sample) {
        if self.mode == Mode::Startup && self.full {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain
            && self.in_flight_later(sample.in_flight, sample) <= self.target(UNIT)
        {
            self.probe_bandwidth(sample.now);
        }
    }

    fn probe_bandwidth(&mut self, now: Instant) {
        self.mode = Mode::ProbeBandwidth;
        // Any phase but the draining one, so that flows do not probe together.
        let drawn = usize::try_from(self.rng.next_u64() % 7).unwrap_or(0);
        self.cycle = (CYCLE.len() - 1 - drawn + 1) % CYCLE.len();
        self.cycle_start = now;
    }

    fn update_rtt(&mut self, window: &mut Window, sample: &Sample) {
        let expired = sample.now > self.rtt_min_at + RTT_WINDOW;
        if let Some(rtt) = sample.rtt
            && (rtt < self.rtt_min || expired)
        {
            self.rtt_min = rtt;
            self.rtt_min_at = sample.now;
        }
        if expired && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.save(window);
            self.probe_done_at = None;
        }
        if self.mode != Mode::ProbeRtt {
            return;
        }
        match self.probe_done_at {
            None if sample.in_flight <= WINDOW_MIN => {
                self.probe_done_at = Some(sample.now + PROBE_RTT_TIME);
                self.probe_round_done = false;
                self.next_round_delivered = sample.delivered_total;
            }
            None => {}
            Some(done) => {
                self.probe_round_done |= self.round_start;
                if self.probe_round_done && sample.now > done {
                    self.rtt_min_at = sample.now;
                    window.cwnd = window.cwnd.max(self.prior_cwnd);
                    if self.full {
                        self.probe_bandwidth(sample.now);
                    } else {
                        self.mode = Mode::Startup;
                    }
                }
            }
        }
    }

    fn update_gains(&mut self) {
        (self.pacing_gain, self.cwnd_gain) = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeBandwidth => (CYCLE[self.cycle], 2 * UNIT),
            Mode::ProbeRtt => (UNIT, UNIT),
        };
    }

    fn set_pacing_rate(&mut self) {
        let bytes = u128::from(self.bandwidth.max()) * u128::from(self.segment_bytes);
        let rate = bytes * u128::from(self.pacing_gain) / u128::from(UNIT);
        // One per cent less, so that the queue drains.
        let rate = ((rate * 1_000_000) >> RATE_SHIFT) * 99 / 100;
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        if rate > 0 && (self.full || rate > self.pacing_rate) {
            self.pacing_rate = rate;
        }
    }

    fn set_window(&mut self, window: &mut Window, sample: &Sample) {
        if sample.acked > 0 && !self.recover(window, sample) {
            let mut target = self.flight(self.cwnd_gain);
            if self.full {
                let most = segments_in(self.bandwidth.max(), AGGREGATION_TIME_MAX);
                target += self
                    .aggregation
                    .extra
                    .iter()
                    .copied()
                    .max()
                    .unwrap_or(0)
                    .min(most);
            }
            let target = self.quantised(target);
            if self.full {
                window.cwnd = (window.cwnd + sample.acked).min(target);
            } else if window.cwnd < target || sample.delivered_total < self.initial_window {
                window.cwnd += sample.acked;
            }
            window.cwnd = window.cwnd.max(WINDOW_MIN);
        }
        if self.mode == Mode::ProbeRtt {
            window.cwnd = window.cwnd.min(WINDOW_MIN);
        }
    }

    /// Packet conservation in the first round trip of a recovery; true while it is on.
    fn recover(&mut self, window: &mut Window, sample: &Sample) -> bool {
        let mut cwnd = window.cwnd;
        if sample.losses > 0 {
            cwnd = cwnd.saturating_sub(sample.losses).max(1);
        }
        if sample.recovering && !self.was_recovering {
            self.conservation = true;
            self.next_round_delivered = sample.delivered_total;
            cwnd = sample.in_flight + sample.acked;
        } else if self.was_recovering && !sample.recovering {
            cwnd = cwnd.max(self.prior_cwnd);
            self.conservation = false;
        }
        self.was_recovering = sample.recovering;
        if self.conservation {
            cwnd = cwnd.max(sample.in_flight + sample.acked);
        }
        window.cwnd = cwnd;
        self.conservation
    }

    fn save(&mut self, window: &Window) {
        self.prior_cwnd = if !self.was_recovering && self.mode != Mode::ProbeRtt {
            window.cwnd
        } else {
            self.prior_cwnd.max(window.cwnd)
        };
    }

    /// Bandwidth times round trip times gain.
    fn flight(&self, gain: u64) -> u64 {
        if self.bandwidth.max() == 0 {
            return self.initial_window;
        }
        let segments = u128::from(self.bandwidth.max()) * u128::from(self.rtt_min.as_ns()) / 1_000;
        let scaled = (segments * u128::from(gain) / u128::from(UNIT)).div_ceil(1 << RATE_SHIFT);
        u64::try_from(scaled).unwrap_or(u64::MAX / 4)
    }

    /// Room for bursts under way at both hosts.
    const fn quantised(&self, segments: u64) -> u64 {
        let even = (segments + 3 * self.burst + 1) & !1;
        if matches!(self.mode, Mode::ProbeBandwidth) && self.cycle == 0 {
            even + 2
        } else {
            even
        }
    }

    fn target(&self, gain: u64) -> u64 {
        self.quantised(self.flight(gain))
    }
}

/// Segments in 2^24 microseconds, as the kernel counts. The time is not zero.
pub(super) fn rate_of(segments: u64, time: Duration) -> u64 {
    let rate = (u128::from(segments) << RATE_SHIFT) * 1_000 / u128::from(time.as_ns());
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// What a rate brings in a time.
pub(super) fn segments_in(rate: u64, time: Duration) -> u64 {
    let segments = (u128::from(rate) * u128::from(time.as_ns()) / 1_000) >> RATE_SHIFT;
    u64::try_from(segments).unwrap_or(u64::MAX / 4)
}

/// Gains are in 256ths, rates in segments per 2^24 microseconds.
const UNIT: u64 = 256;
pub(super) const RATE_SHIFT: u32 = 24;
/// 2 / ln 2.
const HIGH_GAIN: u64 = UNIT * 2885 / 1000 + 1;
const DRAIN_GAIN: u64 = UNIT * 1000 / 2885;
const CYCLE: [u64; 8] = [
    UNIT * 5 / 4,
    UNIT * 3 / 4,
    UNIT,
    UNIT,
    UNIT,
    UNIT,
    UNIT,
    UNIT,
];
const BANDWIDTH_ROUNDS: u64 = 10;
const RTT_WINDOW: Duration = Duration::from_s(10);
const PROBE_RTT_TIME: Duration = Duration::from_ms(200);
const WINDOW_MIN: u64 = 4;
const AGGREGATION_ROUNDS: u64 = 5;
const AGGREGATION_TIME_MAX: Duration = Duration::from_ms(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_rate_is_forgotten_after_ten_rounds() {
        let mut filter = MaxFilter::default();
        filter.add(1, 100, 10);
        for round in 2..=11 {
            filter.add(round, 50, 10);
            assert_eq!(filter.max(), 100, "{round}");
        }
        filter.add(12, 50, 10);
        assert_eq!(filter.max(), 50);
    }
}
