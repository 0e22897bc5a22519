//! BBR, version 3, as draft-ietf-ccwg-bbr has it (the editors' copy of 3 August 2026; its section titles are cited).
//!
//! As version 1 it paces by the largest delivery rate and the smallest round trip, but bounds both by what losses
//! say: a long-term bound on what is in flight, found where probing lost more than 2 %, and short-term bounds on rate
//! and flight that every round with a loss lowers to what was delivered in it, at most by 0.7. Probing goes
//! down, cruises, refills, goes up; on the time scale of Reno, at most three seconds.
//!
//! Left out: the draft names no answer to ECN ("ECN"); a mark here counts as a loss of the round while it does not
//! probe, and ends no probe. Added: a sender may forgive ([`Bbr3::forgiving`]), since by the draft a path that loses one
//! packet in a hundred by itself keeps 99 % a round and three quarters on average. Where the draft's text and its pseudocode differ (Drain's bound on the flight) the latter counts.

use units::{Duration, Instant, Rng};

use super::Window;
use super::bbr::{MaxFilter, RATE_SHIFT, Sample, rate_of, segments_in};

/// "State Machine"; the four phases of ProbeBW are states of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

/// What acknowledgments tell of the last probe ("ProbeBW State").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Feedback {
    Init,
    Refilling,
    Starting,
    Coming,
    Stopping,
}

/// A segment found lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    pub(crate) now: Instant,
    pub(crate) segment: u64,
    /// Segments delivered so far.
    pub(crate) delivered: u64,
    /// In flight when it had been sent, itself included.
    pub(crate) sent_in_flight: u64,
    /// Lost since it was sent, itself included.
    pub(crate) lost_since: u64,
    pub(crate) app_limited: bool,
}

/// What a recovery that had no reason gives back ("Undo State").
#[derive(Clone, Copy, Debug)]
struct Undo {
    state: Option<State>,
    bandwidth_short: u64,
    flight_short: u64,
    flight_long: u64,
}

/// BBR's memory. Rates are segments in 2^24 microseconds, flights segments.
#[derive(Clone, Debug)]
pub(crate) struct Bbr3 {
    state: State,
    segment_bytes: u64,
    initial_window: u64,
    /// Payload bytes a second.
    pacing_rate: u64,
    burst: u64,
    // The path: rates of the last probing cycle and of this one, and the bounds.
    bandwidth_max: [u64; 2],
    bandwidth_short: u64,
    bandwidth: u64,
    rtt_min: Duration,
    rtt_min_at: Instant,
    flight_long: u64,
    flight_short: u64,
    extra: MaxFilter,
    extra_from: Instant,
    extra_delivered: u64,
    // Rounds.
    rounds: u64,
    round_start: bool,
    next_round_delivered: u64,
    // The newest round, and its losses.
    bandwidth_latest: u64,
    delivered_latest: u64,
    loss_round_delivered: u64,
    loss_round_start: bool,
    loss_in_round: bool,
    /// Ranges of segments lost in this round, and the end of the last one.
    lost_ranges: u32,
    lost_end: u64,
    /// Losses of up to 2 % a round without a queue are the path's own; of this round the losses and the least round trip.
    forgives: bool,
    round_losses: u64,
    round_rtt: Duration,
    // The full pipe.
    full_ever: bool,
    full_now: bool,
    full_bandwidth: u64,
    full_count: u32,
    drain_round: u64,
    // Probing for bandwidth.
    cycle_start: Instant,
    wait: Duration,
    rounds_since_up: u64,
    up_rounds: u32,
    up_acked: u64,
    up_acked_each: u64,
    feedback: Feedback,
    probed: bool,
    too_high: bool,
    precaution: bool,
    // Probing for the round trip.
    delay_min: Duration,
    delay_min_at: Instant,
    delay_expired: bool,
    probe_done_at: Option<Instant>,
    probe_round_done: bool,
    from_idle: bool,
    // Losses.
    prior_cwnd: u64,
    undo: Undo,
    kept: bool,
    was_recovering: bool,
    rng: Rng,
}

impl Bbr3 {
    pub(crate) fn new(segment_bytes: u32, initial_window: u64, seed: u64) -> Self {
        Self {
            state: State::Startup,
            segment_bytes: segment_bytes.into(),
            initial_window,
            pacing_rate: 0,
            burst: 2,
            bandwidth_max: [0; 2],
            bandwidth_short: NONE,
            bandwidth: 0,
            rtt_min: Duration::from_ns(u64::MAX),
            rtt_min_at: Instant::ZERO,
            flight_long: NONE,
            flight_short: NONE,
            extra: MaxFilter::default(),
            extra_from: Instant::ZERO,
            extra_delivered: 0,
            rounds: 0,
            round_start: false,
            next_round_delivered: 0,
            bandwidth_latest: 0,
            delivered_latest: 0,
            loss_round_delivered: 0,
            loss_round_start: false,
            loss_in_round: false,
            lost_ranges: 0,
            lost_end: 0,
            forgives: false,
            round_losses: 0,
            round_rtt: Duration::from_ns(u64::MAX),
            full_ever: false,
            full_now: false,
            full_bandwidth: 0,
            full_count: 0,
            drain_round: 0,
            cycle_start: Instant::ZERO,
            wait: Duration::ZERO,
            rounds_since_up: 0,
            up_rounds: 0,
            up_acked: 0,
            up_acked_each: NONE,
            feedback: Feedback::Init,
            probed: false,
            too_high: false,
            precaution: false,
            delay_min: Duration::from_ns(u64::MAX),
            delay_min_at: Instant::ZERO,
            delay_expired: false,
            probe_done_at: None,
            probe_round_done: false,
            from_idle: false,
            prior_cwnd: 0,
            undo: Undo {
                state: None,
                bandwidth_short: 0,
                flight_short: 0,
                flight_long: 0,
            },
            kept: false,
            was_recovering: false,
            rng: Rng::new(seed),
        }
    }

    /// The same, for paths that lose by themselves: a round's losses lower the short-term bounds only where they are more
    /// than 2 %, or where every round trip of the round was a quarter longer than the least: then somebody's queue ran over.
    pub(crate) fn forgiving(self, forgives: bool) -> Self {
        Self { forgives, ..self }
    }

    /// The handshake gave a round trip: the initial window is paced over it ("Pacing Rate").
    pub(crate) fn begin(&mut self, now: Instant, round_trip: Duration) {
        let rtt = round_trip.as_ns().max(1_000);
        let bytes = u128::from(self.initial_window * self.segment_bytes);
        let rate = bytes * 1_000_000_000 / u128::from(rtt) * u128::from(STARTUP_GAIN) / 100;
        self.pacing_rate = u64::try_from(rate).unwrap_or(u64::MAX).max(1);
        (self.rtt_min, self.rtt_min_at) = (round_trip, now);
        (self.delay_min, self.delay_min_at) = (round_trip, now);
        self.extra_from = now;
        self.cycle_start = now;
    }

    pub(crate) const fn pacing_rate(&self) -> u64 {
        self.pacing_rate
    }

    /// Segments have another size from now on.
    pub(crate) const fn resize(&mut self, segment_bytes: u64) {
        self.segment_bytes = segment_bytes;
    }

    /// Where it stands.
    pub(crate) const fn phase(&self) -> &'static str {
        match self.state {
            State::Startup => "startup",
            State::Drain => "drain",
            State::Down => "down",
            State::Cruise => "cruise",
            State::Refill => "refill",
            State::Up => "up",
            State::ProbeRtt => "probe-rtt",
        }
    }

    /// Samples of now say nothing of what the path could carry ("ProbeRTT Logic").
    pub(crate) const fn holds_back(&self) -> bool {
        matches!(self.state, State::ProbeRtt)
    }

    /// A recovery begins, or a timeout, or a queue marked ("Modulating cwnd in Loss Recovery").
    pub(crate) fn on_reduction(&mut self, window: &Window, delivered: u64) {
        self.save(window);
        self.note_loss(window, delivered);
    }

    /// "Restarting From Idle": something is sent though nothing was in flight, for want of data.
    pub(crate) fn on_restart(&mut self, now: Instant, window: &mut Window, delivered: u64) {
        self.from_idle = true;
        self.extra_from = now;
        if self.state.probes_bandwidth() {
            self.set_pacing_rate(CRUISE_GAIN);
        } else if self.state == State::ProbeRtt {
            self.end_probe_rtt_if_due(now, window, delivered);
        }
    }

    /// "Per-Loss Steps".
    pub(crate) fn on_loss(&mut self, window: &Window, loss: &Loss) {
        self.note_loss(window, loss.delivered);
        self.round_losses += 1;
        if self.lost_ranges == 0 || loss.segment != self.lost_end {
            self.lost_ranges += 1;
        }
        self.lost_end = loss.segment + 1;
        if !self.probed || !is_too_high(loss.lost_since, loss.sent_in_flight) {
            return;
        }
        self.too_high = true;
        self.probed = false;
        if !loss.app_limited {
            let at_loss = flight_at_loss(loss.sent_in_flight, loss.lost_since);
            self.flight_long = at_loss.max(self.target(window) * BETA / 100);
        }
        if self.state == State::Up {
            self.undo.state = Some(State::Up);
            self.go_down(loss.now, loss.delivered);
        }
    }

    /// "Handling a Spurious Loss Recovery".
    pub(crate) fn on_undo(&mut self, window: &mut Window, delivered: u64) {
        self.restore(window);
        self.loss_in_round = false;
        self.reset_full(0);
        self.bandwidth_short = self.bandwidth_short.max(self.undo.bandwidth_short);
        self.flight_short = self.flight_short.max(self.undo.flight_short);
        self.flight_long = self.flight_long.max(self.undo.flight_long);
        let elsewhere = self.state != State::ProbeRtt;
        match self.undo.state.take() {
            Some(State::Startup) if self.state != State::Startup => {
                self.full_ever = false;
                if elsewhere {
                    self.state = State::Startup;
                }
            }
            Some(State::Up) if self.state != State::Up && elsewhere => self.refill(delivered),
            _ => {}
        }
    }

    /// "Per-ACK Steps".
    pub(crate) fn on_ack(&mut self, window: &mut Window, sample: &Sample) {
        self.burst = sample.burst;
        if self.was_recovering && !sample.recovering {
            self.restore(window);
        }
        self.was_recovering = sample.recovering;
        self.kept &= sample.recovering;
        let rate = match sample.prior_delivered {
            Some(prior) if sample.interval > Duration::ZERO => {
                rate_of(sample.delivered_total - prior, sample.interval)
            }
            _ => 0,
        };
        if let Some(rtt) = sample.rtt {
            self.round_rtt = self.round_rtt.min(rtt);
        }
        self.update_latest(sample, rate);
        self.update_round(sample);
        self.update_bandwidth(sample, rate);
        self.adapt_lower_bounds(window);
        self.update_aggregation(window, sample);
        self.check_full(sample, rate);
        self.check_startup(sample);
        self.check_drain(sample);
        self.update_cycle(window, sample, rate);
        self.update_rtt(sample);
        self.check_probe_rtt(window, sample);
        if self.loss_round_start {
            (self.bandwidth_latest, self.delivered_latest) = (rate, delivered_of(sample));
            self.lost_ranges = 0;
        }
        self.bandwidth = self.most().min(self.bandwidth_short);
        self.set_pacing_rate(self.state.pacing_gain());
        self.set_window(window, sample);
    }

    /// "When not Probing for Bandwidth": rate and volume of the last round.
    fn update_latest(&mut self, sample: &Sample, rate: u64) {
        self.loss_round_start = false;
        let Some(prior) = sample.prior_delivered else {
            return;
        };
        self.bandwidth_latest = self.bandwidth_latest.max(rate);
        self.delivered_latest = self.delivered_latest.max(delivered_of(sample));
        if prior >= self.loss_round_delivered {
            self.loss_round_delivered = sample.delivered_total;
            self.loss_round_start = true;
        }
    }

    /// "Tracking Packet-Timed Round Trips".
    fn update_round(&mut self, sample: &Sample) {
        self.round_start = sample
            .prior_delivered
            .is_some_and(|p| p >= self.next_round_delivered);
        if self.round_start {
            self.next_round_delivered = sample.delivered_total;
            self.rounds += 1;
            self.rounds_since_up += 1;
        }
    }

    /// "Updating the BBR.max_bw Max Filter".
    fn update_bandwidth(&mut self, sample: &Sample, rate: u64) {
        if rate > 0 && (rate >= self.most() || !sample.app_limited) {
            self.bandwidth_max[1] = self.bandwidth_max[1].max(rate);
        }
    }

    /// Largest rate of this cycle and the one before.
    fn most(&self) -> u64 {
        self.bandwidth_max[0].max(self.bandwidth_max[1])
    }

    /// Once in a round: what was lost lowers the short-term bounds, unless it probes.
    fn adapt_lower_bounds(&mut self, window: &Window) {
        if !self.loss_round_start {
            return;
        }
        let probes = matches!(self.state, State::Startup | State::Refill | State::Up);
        if self.loss_in_round && !probes && !self.is_forgiven() {
            if self.bandwidth_short == NONE {
                self.bandwidth_short = self.most();
            }
            if self.flight_short == NONE {
                self.flight_short = window.cwnd;
            }
            let bandwidth = u128::from(self.bandwidth_short) * u128::from(BETA) / 100;
            let bandwidth = u64::try_from(bandwidth).unwrap_or(u64::MAX);
            self.bandwidth_short = self.bandwidth_latest.max(bandwidth);
            self.flight_short = self.delivered_latest.max(self.flight_short * BETA / 100);
        }
        self.loss_in_round = false;
        (self.round_losses, self.round_rtt) = (0, Duration::from_ns(u64::MAX));
    }

    /// Whether a round's losses say nothing of its rate.
    fn is_forgiven(&self) -> bool {
        let sent = self.delivered_latest + self.round_losses;
        // In nanoseconds; without a round trip of this round nothing is known of a queue.
        let has_queue = self.round_rtt.as_ns() / 5 >= self.rtt_min.as_ns() / 4;
        // A round of marks alone has a queue that says so.
        let is_lost = self.round_losses > 0 && !is_too_high(self.round_losses, sent);
        self.forgives && is_lost && !has_queue
    }

    /// "BBR.extra_acked".
    fn update_aggregation(&mut self, window: &Window, sample: &Sample) {
        let mut expected =
            segments_in(self.bandwidth, sample.now.saturating_since(self.extra_from));
        if self.extra_delivered <= expected {
            (self.extra_delivered, self.extra_from, expected) = (0, sample.now, 0);
        }
        self.extra_delivered += sample.acked;
        let extra = self.extra_delivered.saturating_sub(expected);
        let rounds = if self.full_ever { EXTRA_ROUNDS } else { 1 };
        self.extra.add(self.rounds, extra.min(window.cwnd), rounds);
    }

    /// "Exiting Acceleration Based on Bandwidth Plateau".
    fn check_full(&mut self, sample: &Sample, rate: u64) {
        if self.full_now || !self.round_start || sample.app_limited || rate == 0 {
            return;
        }
        if u128::from(rate) * 4 >= u128::from(self.full_bandwidth) * 5 {
            self.reset_full(rate);
            return;
        }
        self.full_count += 1;
        self.full_now = self.full_count >= FULL_ROUNDS;
        self.full_ever |= self.full_now;
    }

    const fn reset_full(&mut self, rate: u64) {
        (self.full_bandwidth, self.full_count, self.full_now) = (rate, 0, false);
    }

    /// "Exiting Startup Based on Packet Loss": a whole round of recovery in which more than 2 % were lost, at six places.
    fn check_startup(&mut self, sample: &Sample) {
        if self.state != State::Startup {
            return;
        }
        if !self.full_ever
            && self.loss_round_start
            && sample.recovering
            && self.lost_ranges >= STARTUP_LOST_RANGES
            && is_too_high(sample.lost_since, sample.sent_in_flight)
        {
            self.undo.state = Some(State::Startup);
            self.full_ever = true;
            self.flight_long = self.flight(100, self.bandwidth).max(self.delivered_latest);
        }
        if self.full_ever {
            self.state = State::Drain;
            self.drain_round = self.rounds;
        }
    }

    /// "Drain".
    fn check_drain(&mut self, sample: &Sample) {
        if self.state == State::Drain
            && (sample.in_flight <= self.bounded_flight(self.bandwidth)
                || self.rounds > self.drain_round + DRAIN_ROUNDS)
        {
            self.go_down(sample.now, sample.delivered_total);
        }
    }

    /// "ProbeBW Algorithm Details".
    fn update_cycle(&mut self, window: &Window, sample: &Sample, rate: u64) {
        if !self.full_ever || self.adapt_long_term(window, sample) {
            return;
        }
        match self.state {
            State::Down | State::Cruise => {
                if self.is_time_to_probe(window, sample.now) {
                    self.refill(sample.delivered_total);
                } else if self.state == State::Down && self.is_time_to_cruise(sample) {
                    self.state = State::Cruise;
                }
            }
            State::Refill if self.round_start => {
                self.probed = true;
                self.go_up(window, sample, rate);
            }
            State::Up => {
                if self.is_time_to_go_down(window, sample, rate) {
                    self.too_high = false;
                    self.go_down(sample.now, sample.delivered_total);
                }
            }
            State::Startup | State::Drain | State::Refill | State::ProbeRtt => {}
        }
    }

    /// The long-term bound, and which cycle rates belong to; true when a state was decided on.
    fn adapt_long_term(&mut self, window: &Window, sample: &Sample) -> bool {
        if self.feedback == Feedback::Starting && self.round_start {
            self.feedback = Feedback::Coming;
        }
        if self.feedback == Feedback::Stopping && self.round_start {
            self.probed = false;
            self.feedback = Feedback::Init;
            if self.state.probes_bandwidth() {
                if !sample.app_limited && self.bandwidth_max[1] > 0 {
                    self.bandwidth_max = [self.bandwidth_max[1], 0];
                }
                if self.precaution && !self.too_high {
                    // The cautious probe lost nothing: a real one follows at once.
                    self.refill(sample.delivered_total);
                    return true;
                }
            }
        }
        if is_too_high(sample.lost_since, sample.sent_in_flight) || self.flight_long == NONE {
            return false;
        }
        self.flight_long = self.flight_long.max(sample.sent_in_flight);
        if self.state == State::Up {
            self.raise_flight(window, sample);
        }
        false
    }

    fn raise_flight(&mut self, window: &Window, sample: &Sample) {
        if !sample.cwnd_limited || window.cwnd < self.flight_long {
            return;
        }
        self.up_acked += sample.acked;
        self.flight_long += self.up_acked / self.up_acked_each;
        self.up_acked %= self.up_acked_each;
        if self.round_start {
            self.steepen(window);
        }
    }

    /// One segment more a round, then two, four, eight.
    fn steepen(&mut self, window: &Window) {
        self.up_acked_each = (window.cwnd >> self.up_rounds).max(1);
        self.up_rounds = (self.up_rounds + 1).min(30);
    }

    /// "Time Scale for Bandwidth Probing": two to three seconds, sooner where Reno would have grown back sooner.
    fn is_time_to_probe(&self, window: &Window, now: Instant) -> bool {
        now > self.cycle_start + self.wait
            || self.rounds_since_up >= self.target(window).min(RENO_ROUNDS)
    }

    fn is_time_to_cruise(&self, sample: &Sample) -> bool {
        sample.in_flight <= self.flight_with_headroom()
            && sample.in_flight <= self.bounded_flight(self.most())
    }

    /// "Exit Conditions for Bandwidth Probing", but for loss.
    fn is_time_to_go_down(&mut self, window: &Window, sample: &Sample, rate: u64) -> bool {
        if self.too_high && sample.in_flight >= self.flight_long {
            self.precaution = true;
            return true;
        }
        if sample.cwnd_limited && window.cwnd >= self.flight_long {
            self.reset_full(rate);
            return false;
        }
        self.full_now
    }

    fn go_down(&mut self, now: Instant, delivered: u64) {
        self.loss_in_round = false;
        (self.bandwidth_latest, self.delivered_latest) = (0, 0);
        self.up_acked_each = NONE;
        self.rounds_since_up = self.rng.next_u64() % 2;
        let more = self.rng.next_u64() % 1_000_000_000;
        self.wait = Duration::from_ns(2_000_000_000 + more);
        self.cycle_start = now;
        self.feedback = Feedback::Stopping;
        self.next_round_delivered = delivered;
        self.state = State::Down;
    }

    const fn refill(&mut self, delivered: u64) {
        self.forget_short_term();
        (self.up_rounds, self.up_acked) = (0, 0);
        self.precaution = false;
        self.feedback = Feedback::Refilling;
        self.next_round_delivered = delivered;
        self.state = State::Refill;
    }

    fn go_up(&mut self, window: &Window, sample: &Sample, rate: u64) {
        self.feedback = Feedback::Starting;
        self.next_round_delivered = sample.delivered_total;
        self.reset_full(rate);
        self.state = State::Up;
        self.steepen(window);
    }

    const fn forget_short_term(&mut self) {
        (self.bandwidth_short, self.flight_short) = (NONE, NONE);
    }

    /// "ProbeRTT Logic".
    fn update_rtt(&mut self, sample: &Sample) {
        self.delay_expired = sample.now > self.delay_min_at + PROBE_RTT_EVERY;
        if let Some(rtt) = sample.rtt
            && (rtt < self.delay_min || self.delay_expired)
        {
            (self.delay_min, self.delay_min_at) = (rtt, sample.now);
        }
        if self.delay_min < self.rtt_min || sample.now > self.rtt_min_at + RTT_WINDOW {
            (self.rtt_min, self.rtt_min_at) = (self.delay_min, self.delay_min_at);
        }
    }

    fn check_probe_rtt(&mut self, window: &mut Window, sample: &Sample) {
        if self.state != State::ProbeRtt && self.delay_expired && !self.from_idle {
            self.save(window);
            self.state = State::ProbeRtt;
            self.probe_done_at = None;
            self.feedback = Feedback::Stopping;
            self.next_round_delivered = sample.delivered_total;
        }
        if self.state == State::ProbeRtt {
            match self.probe_done_at {
                None if sample.in_flight <= self.probe_rtt_window() => {
                    self.probe_done_at = Some(sample.now + PROBE_RTT_TIME);
                    self.probe_round_done = false;
                    self.next_round_delivered = sample.delivered_total;
                }
                None => {}
                Some(_) => {
                    self.probe_round_done |= self.round_start;
                    if self.probe_round_done {
                        self.end_probe_rtt_if_due(sample.now, window, sample.delivered_total);
                    }
                }
            }
        }
        if sample.prior_delivered.is_some() {
            self.from_idle = false;
        }
    }

    fn end_probe_rtt_if_due(&mut self, now: Instant, window: &mut Window, delivered: u64) {
        if self.probe_done_at.is_none_or(|done| now <= done) {
            return;
        }
        self.delay_min_at = now;
        self.restore(window);
        self.forget_short_term();
        if self.full_ever {
            // The queue is empty already: what goes down cruises at once ("Exiting ProbeRTT").
            self.go_down(now, delivered);
            self.state = State::Cruise;
        } else {
            self.state = State::Startup;
        }
    }

    /// "Pacing Rate": one per cent below, so that the queue drains.
    fn set_pacing_rate(&mut self, gain: u64) {
        let bytes = u128::from(self.bandwidth) * u128::from(self.segment_bytes);
        let rate = ((bytes * u128::from(gain) / 100 * 1_000_000) >> RATE_SHIFT) * 99 / 100;
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        if rate > 0 && (self.full_ever || rate > self.pacing_rate) {
            self.pacing_rate = rate;
        }
    }

    /// "cwnd Adjustment Mechanism" and "Bounding cwnd Based on Recent Congestion".
    fn set_window(&self, window: &mut Window, sample: &Sample) {
        let most = self.flight(self.state.cwnd_gain(), self.bandwidth) + self.extra.max();
        let most = self.quantised(most);
        if self.full_ever {
            window.cwnd = (window.cwnd + sample.acked).min(most);
        } else if window.cwnd < most || sample.delivered_total < self.initial_window {
            window.cwnd += sample.acked;
        }
        window.cwnd = window.cwnd.max(WINDOW_MIN);
        let long = match self.state {
            State::Startup | State::Drain => NONE,
            State::Down | State::Refill | State::Up => self.flight_long,
            State::Cruise => self.flight_with_headroom(),
            State::ProbeRtt => self.flight_with_headroom().min(self.probe_rtt_window()),
        };
        let bound = long.min(self.flight_short).max(WINDOW_MIN);
        window.cwnd = window.cwnd.min(bound);
    }

    /// "Modulating cwnd in ProbeRTT".
    fn probe_rtt_window(&self) -> u64 {
        self.flight(50, self.bandwidth).max(WINDOW_MIN)
    }

    /// A rate times the round trip times a gain, per cent.
    fn flight(&self, gain: u64, rate: u64) -> u64 {
        if rate == 0 {
            return self.initial_window;
        }
        let segments = u128::from(rate) * u128::from(self.rtt_min.as_ns()) / 1_000;
        let scaled = (segments * u128::from(gain) / 100).div_ceil(1 << RATE_SHIFT);
        u64::try_from(scaled).unwrap_or(u64::MAX / 4)
    }

    /// "Computing BBR.max_inflight": at least three bursts.
    fn quantised(&self, segments: u64) -> u64 {
        let floor = segments.max(3 * self.burst).max(WINDOW_MIN);
        floor + if self.state == State::Up { 2 } else { 0 }
    }

    /// What a rate keeps in flight without a queue.
    fn bounded_flight(&self, rate: u64) -> u64 {
        self.quantised(self.flight(100, rate))
    }

    fn target(&self, window: &Window) -> u64 {
        self.flight(100, self.bandwidth).min(window.cwnd)
    }

    /// Room is left to others.
    fn flight_with_headroom(&self) -> u64 {
        if self.flight_long == NONE {
            return NONE;
        }
        let headroom = (self.flight_long * HEADROOM / 100).max(1);
        self.flight_long.saturating_sub(headroom).max(WINDOW_MIN)
    }

    fn note_loss(&mut self, window: &Window, delivered: u64) {
        if !self.loss_in_round {
            self.loss_round_delivered = delivered;
        }
        self.loss_in_round = true;
        self.keep(window);
    }

    /// "Saving State Upon Loss Recovery": once in a recovery. The pseudocode's once in a round would forget, at the next
    /// loss, which probe a loss has ended.
    fn keep(&mut self, window: &Window) {
        if self.kept {
            return;
        }
        self.kept = true;
        self.save(window);
        self.undo = Undo {
            state: None,
            bandwidth_short: self.bandwidth_short,
            flight_short: self.flight_short,
            flight_long: self.flight_long,
        };
    }

    fn save(&mut self, window: &Window) {
        self.prior_cwnd = if !self.was_recovering && self.state != State::ProbeRtt {
            window.cwnd
        } else {
            self.prior_cwnd.max(window.cwnd)
        };
    }

    fn restore(&self, window: &mut Window) {
        window.cwnd = window.cwnd.max(self.prior_cwnd);
    }
}

impl State {
    const fn probes_bandwidth(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    /// "Summary of Control Behavior in the State Machine", per cent.
    const fn pacing_gain(self) -> u64 {
        match self {
            Self::Startup => STARTUP_GAIN,
            Self::Drain => 50,
            Self::Down => 90,
            Self::Cruise | Self::Refill | Self::ProbeRtt => CRUISE_GAIN,
            Self::Up => 125,
        }
    }

    const fn cwnd_gain(self) -> u64 {
        match self {
            Self::Up => 225,
            Self::ProbeRtt => 50,
            _ => 200,
        }
    }
}

fn delivered_of(sample: &Sample) -> u64 {
    sample
        .prior_delivered
        .map_or(0, |prior| sample.delivered_total - prior)
}

/// "Probing for Bandwidth In ProbeBW": more than 2 % of what was in flight.
const fn is_too_high(lost: u64, in_flight: u64) -> bool {
    lost * 100 > in_flight * LOSS_MOST
}

/// What was in flight when losses passed 2 %; the segment itself is one of both.
const fn flight_at_loss(in_flight: u64, lost: u64) -> u64 {
    let before = in_flight.saturating_sub(1);
    let room = (before * LOSS_MOST).saturating_sub(lost.saturating_sub(1) * 100);
    before + room / (100 - LOSS_MOST)
}

/// No bound.
const NONE: u64 = u64::MAX;
/// 4 ln 2, per cent.
const STARTUP_GAIN: u64 = 277;
const CRUISE_GAIN: u64 = 100;
/// Per cent: losses that a probe may cause, what a bound keeps after a round of losses, what is left to others.
const LOSS_MOST: u64 = 2;
const BETA: u64 = 70;
const HEADROOM: u64 = 15;
const FULL_ROUNDS: u32 = 3;
const STARTUP_LOST_RANGES: u32 = 6;
const DRAIN_ROUNDS: u64 = 3;
const EXTRA_ROUNDS: u64 = 10;
const RENO_ROUNDS: u64 = 63;
const WINDOW_MIN: u64 = 4;
const RTT_WINDOW: Duration = Duration::from_s(10);
const PROBE_RTT_EVERY: Duration = Duration::from_s(5);
const PROBE_RTT_TIME: Duration = Duration::from_ms(200);

#[cfg(test)]
mod tests;
