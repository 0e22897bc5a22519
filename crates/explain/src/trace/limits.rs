//! What kept a sender from sending sooner, decided while its packets pass.
//!
//! **At once** is decided what one event shows: the peer's window is closed or has no room for a
//! segment, or all is acknowledged and nothing new comes. The time from each event to the next goes
//! to what held in between. What is left is *open*: data are in flight and there is room for more.
//!
//! **Round by round** is decided on open time. A round begins with the first data after the last
//! round and ends with their ACK. Its flight, rate, round trip, losses and the clock of its segments
//! are compared with the round before, in this order:
//!
//! 1. the round trip is at least a quarter and 50 us above the least one, and the rate stays
//!    the same or the flight grows by less than half: a queue stands, the *bottleneck* is full. Time
//!    at the peer's window counts so too: with a larger one the queue would only be longer;
//! 2. something was lost in this round, or the flight has not regained what it was at the last
//!    loss: *congestion window after loss*;
//! 3. no round before, or the flight grew by half: *slow start*;
//! 4. the flight is what it was, within three segments, twice in a row and not growing: ACKs set the segments'
//!    times: *sender window* (send buffer, or a congestion window that does not move); the
//!    segments come evenly by a clock of their own: *pacing*; unevenly: the *application*;
//! 5. the flight grows: *congestion window* that has met no loss, else *after loss*.
//!
//! When a timeout or tail loss probe resends, the silence before it was *recovery timeout*, whatever it looked like.
//!
//! **Far from the sender.** An ACK seen at t is at the sender half a round trip (capture point to
//! sender and back) later, and what it sends then is seen another half later. So ACKs take effect
//! that round trip after they were seen, by the least of the last samples. That puts the sender's
//! time half a round trip late throughout; where that round trip changes faster than it is sampled,
//! flights are off by as much data as the change lasts.
//!
//! Left out: what SACK says of the flight (holes count as in flight), limited transmit, several
//! flows that share a bottleneck.

use std::collections::VecDeque;

use units::Duration;

use crate::trace::number::saturated;
use crate::trace::slices::{Slices, Writer};

/// What kept a sender from sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// The connection was not yet made.
    Handshake,
    /// The application had nothing to send, or sends by a clock of its own in bursts.
    Application,
    /// The peer's window had no room for a segment.
    ReceiveWindow,
    /// The peer's window was closed.
    ZeroWindow,
    /// The congestion window was still growing fast.
    SlowStart,
    /// The congestion window was small after a loss.
    LossWindow,
    /// The flight stays the same below the peer's window: send buffer or fixed congestion window.
    SenderWindow,
    /// A queue stood: the path carried what it could.
    Bottleneck,
    /// Segments leave evenly by the sender's clock.
    Pacing,
    /// The sender waited for a timeout.
    RecoveryTimeout,
    /// The congestion window grew slowly and had met no loss.
    CongestionWindow,
    /// Nothing tells.
    Unknown,
    /// It had said that it has no more data.
    Finished,
}

impl Limit {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; LIMITS] = [
        Self::Handshake,
        Self::Application,
        Self::ReceiveWindow,
        Self::ZeroWindow,
        Self::SlowStart,
        Self::LossWindow,
        Self::SenderWindow,
        Self::Bottleneck,
        Self::Pacing,
        Self::RecoveryTimeout,
        Self::CongestionWindow,
        Self::Unknown,
        Self::Finished,
    ];

    /// Machine-readable name, as in `run.json`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Application => "application",
            Self::ReceiveWindow => "receive_window",
            Self::ZeroWindow => "zero_window",
            Self::SlowStart => "slow_start",
            Self::LossWindow => "loss_window",
            Self::SenderWindow => "sender_window",
            Self::Bottleneck => "bottleneck",
            Self::Pacing => "pacing",
            Self::RecoveryTimeout => "recovery_timeout",
            Self::CongestionWindow => "congestion_window",
            Self::Unknown => "unknown",
            Self::Finished => "finished",
        }
    }
}

/// Time that went to a limit, with packets that show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitTime {
    /// Which.
    pub limit: Limit,
    /// How long in all.
    pub time: Duration,
    /// Where it began to hold for longest: frame and for how long, longest first; `None` where there
    /// were fewer.
    pub proofs: [Option<(u64, Duration)>; PROOFS],
}

/// Sums over a side's rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoundTotals {
    /// Rounds.
    pub rounds: u64,
    /// Their time.
    pub time_ns: u64,
    /// Bytes acknowledged in them.
    pub acked_bytes: u64,
    /// Sum of their largest flights.
    pub flight_bytes_sum: u64,
    /// Sum of their least round trips, both halves, and how many had one.
    pub rtt_ns_sum: u64,
    /// See there.
    pub rtt_rounds: u64,
    /// Rounds with retransmissions.
    pub lossy: u64,
    /// With a round trip a quarter above the least.
    pub inflated: u64,
    /// With the flight of the round before.
    pub flat_flight: u64,
    /// With the rate of the round before.
    pub flat_rate: u64,
    /// With a flight half as large again as in the round before.
    pub growing: u64,
    /// Data sent as soon as an ACK came.
    pub clocked: u64,
    /// Data sent without one.
    pub own_clock: u64,
    /// Segments below full size.
    pub short_segments: u64,
    /// Gaps between data segments: how many, their sum in ns, the sum of their squares.
    pub gaps: u64,
    /// See there.
    pub gap_ns_sum: f64,
    /// See there.
    pub gap_ns_square_sum: f64,
}

/// What the packets say of the path at the time of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) now: u64,
    pub(crate) frame: u64,
    /// Packets of the connection so far.
    pub(crate) packets: u64,
    /// Payload of a full segment.
    pub(crate) segment_bytes: u64,
    /// Least round trip, both halves; zero when unknown.
    pub(crate) base_rtt: u64,
    /// After how long an ACK shows in what is seen of the sender.
    pub(crate) lag: u64,
}

/// An ACK as the sender gets it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) due: u64,
    pub(crate) frame: u64,
    pub(crate) una: u64,
    /// One past the last byte that the peer takes; 0 when its scale is unknown.
    pub(crate) edge: u64,
    pub(crate) closed: bool,
}

/// A data segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// One past the last byte sent so far.
    pub(crate) next: u64,
    pub(crate) payload: u64,
    pub(crate) fin: bool,
    pub(crate) resent: Option<Resent>,
}

/// What a segment sent once more tells of the time before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resent {
    /// An answer to ACKs.
    Answer,
    /// A timer ran out.
    Timer,
}

/// Where one sender's time goes. What each packet needs comes first.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Sender {
    /// Accounts are settled up to here.
    until: u64,
    state: usize,
    /// Since when, and since which frame, the state has held.
    since: (u64, u64),
    next: u64,
    una: u64,
    edge: u64,
    /// Loss recovery lasts until this is acknowledged.
    recover: u64,
    last_data: u64,
    last_ack: u64,
    /// Bytes in flight at the capture point, for the means of slices.
    seen_flight: u64,
    /// Flight before the last loss; zero when regained.
    loss_flight: u64,
    closed: bool,
    fin: bool,
    short: bool,
    ack_since_data: bool,
    flat_rounds: u32,
    grown_rounds: u32,
    /// It has lost something since the peer's window held it.
    lost_before: bool,
    pub(crate) slices: Writer,
    lagged: VecDeque<Ack>,
    round: Round,
    before: Option<Before>,
    /// Undecided time since the last round's end, by kind.
    pending: [u64; UNDECIDED],
    /// Of it, since the last data.
    quiet: [u64; UNDECIDED],
    /// Longest undecided stretch, by kind, with its first frame.
    longest: [(u64, u64); UNDECIDED],
    pending_since: u64,
    times: [u64; LIMITS],
    totals: RoundTotals,
    proofs: [Proofs; LIMITS],
}

/// The present round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    active: bool,
    start: u64,
    end_sequence: u64,
    flight_max: u64,
    acked: u64,
    acks: u64,
    /// Zero without one.
    rtt_min: u64,
    resent: bool,
    clocked: u64,
    own_clock: u64,
    gaps: u64,
    gap_sum: f64,
    gap_square_sum: f64,
}

/// The last round.
#[derive(Clone, Copy, Debug)]
struct Before {
    flight_max: u64,
    rate: f64,
    rtt_min: u64,
    ack_spacing: u64,
    limit: Limit,
}

/// The longest stretches of a limit: frames and microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Proofs {
    frames: [u64; PROOFS],
    us: [u32; PROOFS],
}

impl Sender {
    /// A sender whose connection began at `first` and was made at `made`, and whose first data are
    /// sent at `now`.
    pub(crate) fn new(first: Mark2, made: Mark2, now: u64, una: u64) -> Self {
        let mut sender = Self {
            until: first.0,
            state: Limit::Handshake as usize,
            since: first,
            next: una,
            una,
            edge: 0,
            closed: false,
            fin: false,
            short: false,
            recover: 0,
            last_data: 0,
            last_ack: 0,
            ack_since_data: false,
            seen_flight: 0,
            lagged: VecDeque::new(),
            round: Round::default(),
            before: None,
            flat_rounds: 0,
            grown_rounds: 0,
            lost_before: false,
            loss_flight: 0,
            pending: [0; UNDECIDED],
            pending_since: now,
            quiet: [0; UNDECIDED],
            longest: [(0, 0); UNDECIDED],
            times: [0; LIMITS],
            proofs: [Proofs::default(); LIMITS],
            totals: RoundTotals::default(),
            slices: Writer::new(first.0),
        };
        sender.account(made.0.clamp(first.0, now), 0);
        sender.enter(Limit::Application as usize, made.1);
        sender.account(now, 0);
        sender
    }

    /// Lets all happen that takes effect up to now.
    #[inline]
    pub(crate) fn advance(&mut self, path: &Path) {
        while let Some(&ack) = self.lagged.front() {
            if ack.due > path.now {
                break;
            }
            self.lagged.pop_front();
            self.apply(ack, path);
        }
        self.account(path.now, path.packets);
    }

    /// All that it sent was acknowledged.
    pub(crate) fn is_idle(&self) -> bool {
        self.flight() == 0
    }

    /// One number of each line that most packets need.
    #[inline]
    pub(crate) fn fetch(&self) -> u64 {
        let scalars = self.until ^ self.last_ack ^ self.round.start ^ self.round.gaps;
        scalars ^ self.pending[0] ^ self.longest[0].0 ^ self.times[4] ^ self.slices.fetch()
    }

    /// Memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.slices.bytes() + self.lagged.capacity() * size_of::<Ack>()
    }

    /// A data segment passes, after [`Self::advance`].
    pub(crate) fn on_data(&mut self, sent: Sent, path: &Path) {
        self.close_stretch();
        if sent.resent == Some(Resent::Timer) {
            self.blame_timer(path);
        }
        let new = sent.next > self.next;
        if sent.resent.is_some() {
            if self.una >= self.recover && self.loss_flight == 0 {
                let before = self.before.map_or(0, |b| b.flight_max);
                self.loss_flight = before.max(self.round.flight_max);
            }
            self.recover = self.recover.max(sent.next);
            self.round.resent = true;
        }
        if new && sent.payload > 0 {
            self.clock(path);
            self.short = !sent.payload.is_multiple_of(path.segment_bytes.max(1));
            self.totals.short_segments += u64::from(self.short);
        }
        self.next = self.next.max(sent.next);
        self.fin |= sent.fin;
        if !self.round.active {
            self.round.active = true;
            self.round.start = path.now;
            self.round.end_sequence = self.next;
        }
        self.round.flight_max = self.round.flight_max.max(self.flight());
        self.last_data = path.now;
        self.ack_since_data = false;
        self.quiet = [0; UNDECIDED];
        self.enter(self.instant(path.segment_bytes), path.frame);
    }

    /// An ACK passes, after [`Self::advance`].
    pub(crate) fn on_ack(&mut self, mut ack: Ack, path: &Path) {
        if path.lag == 0 && self.lagged.is_empty() {
            return self.apply(ack, path);
        }
        let many = self.lagged.len() >= LAGGED_MAX;
        ack.due = path.now.saturating_add(path.lag);
        match self.lagged.back_mut() {
            // Too many for the memory: they are taken as of the time of the last one held.
            Some(last) if many => {
                *last = Ack {
                    due: last.due,
                    ..ack
                }
            }
            Some(last) => {
                ack.due = ack.due.max(last.due);
                self.lagged.push_back(ack);
            }
            None => self.lagged.push_back(ack),
        }
    }

    /// A round trip: from the capture point to the receiver, and both halves.
    #[inline]
    pub(crate) fn on_rtt(&mut self, total_ns: u64) {
        let round = &mut self.round;
        if round.rtt_min == 0 || total_ns < round.rtt_min {
            round.rtt_min = total_ns;
        }
    }

    /// Bytes in flight at the capture point from now on.
    #[inline]
    pub(crate) fn set_seen_flight(&mut self, bytes: u64) {
        self.seen_flight = bytes;
    }

    /// The accounts, settled up to the end of the connection.
    pub(crate) fn finish(mut self, path: &Path) -> (Vec<LimitTime>, RoundTotals, Slices) {
        self.account(path.now, path.packets);
        self.close_stretch();
        let open = match self.before {
            _ if self.una < self.recover => Limit::LossWindow,
            Some(before) => before.limit,
            None => Limit::SlowStart,
        };
        self.resolve(open, Limit::ReceiveWindow, path.now);
        let mut limits: Vec<LimitTime> = Limit::ALL
            .into_iter()
            .zip(self.times.into_iter().zip(self.proofs))
            .filter(|(_, (ns, _))| *ns > 0)
            .map(|(limit, (ns, proofs))| LimitTime {
                limit,
                time: Duration::from_ns(ns),
                proofs: proofs.list(),
            })
            .collect();
        limits.sort_by_key(|l| std::cmp::Reverse(l.time));
        (limits, self.totals, self.slices.into_slices())
    }

    fn flight(&self) -> u64 {
        self.next.saturating_sub(self.una)
    }

    /// The time since the last event goes to the state that held.
    #[inline]
    fn account(&mut self, now: u64, packets: u64) {
        let spent = now.saturating_sub(self.until);
        if spent == 0 {
            return;
        }
        self.slices
            .spend(self.state, self.until, now, self.seen_flight, packets);
        if let Some(time) = self.times.get_mut(self.state) {
            *time += spent;
        } else {
            self.pending[self.state - LIMITS] += spent;
            self.quiet[self.state - LIMITS] += spent;
        }
        self.until = now;
    }

    /// What keeps it from sending, as far as one event shows.
    #[inline]
    fn instant(&self, segment_bytes: u64) -> usize {
        let recovering = self.una < self.recover;
        if self.fin && !recovering {
            Limit::Finished as usize
        } else if self.closed && self.edge <= self.next {
            Limit::ZeroWindow as usize
        } else if self.flight() == 0 {
            Limit::Application as usize
        } else if recovering {
            OPEN
        } else if self.edge != 0 && self.next + segment_bytes > self.edge {
            WINDOW
        } else if self.short || self.drains() {
            SHORT
        } else {
            OPEN
        }
    }

    /// ACKs have taken away half of the flight and no data came for them: it has no more. A send
    /// buffer wakes its writer when a third is free.
    #[inline]
    fn drains(&self) -> bool {
        let flight = self
            .before
            .map_or(0, |b| b.flight_max)
            .max(self.round.flight_max);
        self.ack_since_data && self.loss_flight == 0 && self.flight() < flight / 2
    }

    #[inline]
    fn enter(&mut self, state: usize, frame: u64) {
        if state != self.state {
            self.close_stretch();
            self.state = state;
            self.since = (self.until, frame);
        } else if self.since.0 == self.until {
            self.since.1 = frame;
        }
    }

    /// Notes how long the state has held without data or change.
    #[inline]
    fn close_stretch(&mut self) {
        let stretch = self.until.saturating_sub(self.since.0);
        if stretch == 0 {
            return;
        }
        if let Some(proofs) = self.proofs.get_mut(self.state) {
            proofs.add(self.since.1, stretch);
        } else {
            let longest = &mut self.longest[self.state - LIMITS];
            if stretch > longest.0 {
                *longest = (stretch, self.since.1);
            }
        }
        self.since.0 = self.until;
    }

    #[inline]
    fn apply(&mut self, ack: Ack, path: &Path) {
        // A time of the past may come of lags that shrink.
        let now = ack.due.clamp(self.until, path.now.max(self.until));
        self.account(now, path.packets);
        if ack.una > self.una {
            self.round.acked += ack.una - self.una;
            self.round.acks += 1;
            self.una = ack.una;
            self.last_ack = now;
            self.ack_since_data = true;
        }
        self.edge = ack.edge;
        self.closed = ack.closed;
        if self.round.active {
            let long = now.saturating_sub(self.round.start) >= ROUND_NS_MIN;
            if self.una >= self.round.end_sequence && (long || self.flight() == 0) {
                self.end_round(now, path);
            }
        } else if self.flight() == 0 && self.una >= self.recover {
            // A whole flight was acknowledged and nothing new came: it had no more.
            self.close_stretch();
            self.resolve(Limit::Application, Limit::ReceiveWindow, now);
        }
        self.enter(self.instant(path.segment_bytes), ack.frame);
    }

    /// Whose clock new data follow.
    fn clock(&mut self, path: &Path) {
        if self.last_data == 0 {
            return;
        }
        let gap = path.now.saturating_sub(self.last_data);
        let spacing = self.before.map_or(0, |b| b.ack_spacing);
        // Far from the sender its reaction is blurred by the path.
        let part = if path.lag == 0 { 8 } else { 4 };
        let round = &mut self.round;
        if self.ack_since_data {
            let reaction = path.now.saturating_sub(self.last_ack);
            if reaction <= (spacing / part).max(REACTION_NS_MIN) {
                round.clocked += 1;
            } else {
                round.own_clock += 1;
            }
        } else if gap > (spacing / 3).max(REACTION_NS_MIN) {
            round.own_clock += 1;
        }
        round.gaps += 1;
        round.gap_sum += gap as f64;
        round.gap_square_sum += gap as f64 * gap as f64;
    }

    /// Time since the last data was spent waiting for a timer.
    fn blame_timer(&mut self, path: &Path) {
        let to = Limit::RecoveryTimeout as usize;
        let mut all = 0;
        for kind in 0..UNDECIDED {
            let ns = std::mem::take(&mut self.quiet[kind]);
            if ns > 0 {
                self.pending[kind] -= ns.min(self.pending[kind]);
                let since = self.last_data.max(self.pending_since);
                self.slices
                    .move_time_within(LIMITS + kind, to, since, path.now);
                self.longest[kind] = (0, 0);
                all += ns;
            }
        }
        self.times[to] += all;
        if all > 0 {
            self.proofs[to].add(path.frame, all);
        }
    }

    fn end_round(&mut self, now: u64, path: &Path) {
        self.close_stretch();
        let round = std::mem::take(&mut self.round);
        let duration = now.saturating_sub(round.start).max(1);
        let rate = round.acked as f64 / duration as f64;
        let rtt = match round.rtt_min {
            0 => self.before.map_or(0, |b| b.rtt_min),
            rtt => rtt,
        };
        let shape = self.shape(&round, rate, rtt, path);
        self.total(&round, &shape, duration);
        let limit = self.classify(&round, &shape);
        let window = if shape.queue() {
            Limit::Bottleneck
        } else {
            Limit::ReceiveWindow
        };
        // A flight that the peer's window holds has nothing more to regain.
        let held = self.pending[WINDOW - LIMITS] > self.pending[OPEN - LIMITS];
        self.lost_before = (self.lost_before || round.resent) && !held;
        if round.flight_max * 20 >= self.loss_flight * 19 || held {
            self.loss_flight = 0;
        }
        self.resolve(limit, window, now);
        self.before = Some(Before {
            flight_max: round.flight_max,
            rate,
            rtt_min: rtt,
            ack_spacing: duration.checked_div(round.acks).unwrap_or(duration),
            limit,
        });
    }

    fn shape(&mut self, round: &Round, rate: f64, rtt: u64, path: &Path) -> Shape {
        let before = self.before;
        let flight = round.flight_max as f64;
        let growth = before.map_or(f64::INFINITY, |b| flight / b.flight_max.max(1) as f64);
        let change = before.map_or(f64::INFINITY, |b| rate / b.rate.max(1e-12) - 1.0);
        let slack = (3 * path.segment_bytes).max(round.flight_max / 50);
        let flat_flight = before.is_some_and(|b| b.flight_max.abs_diff(round.flight_max) <= slack);
        self.flat_rounds = if flat_flight { self.flat_rounds + 1 } else { 0 };
        let grown =
            before.is_some_and(|b| round.flight_max > b.flight_max + path.segment_bytes / 2);
        self.grown_rounds = if grown { self.grown_rounds + 1 } else { 0 };
        Shape {
            growth,
            flat_rate: change.abs() <= RATE_SAME,
            flat_flight,
            inflated: path.base_rtt > 0
                && rtt.saturating_sub(path.base_rtt) > (path.base_rtt / 4).max(QUEUE_NS_MIN),
        }
    }

    fn classify(&self, round: &Round, shape: &Shape) -> Limit {
        let lost = round.resent || self.una < self.recover;
        let regained = round.flight_max * 20 >= self.loss_flight * 19;
        if shape.queue() || (shape.inflated && lost) {
            Limit::Bottleneck
        } else if lost || (self.loss_flight > 0 && !regained) {
            Limit::LossWindow
        } else if shape.growth >= GROWTH_SLOW_START {
            Limit::SlowStart
        } else {
            let events = round.clocked + round.own_clock;
            let clocked = round.clocked * 10 >= events * 6;
            if !clocked {
                return if round.even() {
                    Limit::Pacing
                } else {
                    Limit::Application
                };
            }
            match self.flat_rounds {
                2.. if self.grown_rounds < 2 => Limit::SenderWindow,
                _ if self.lost_before => Limit::LossWindow,
                _ if shape.growth > 1.0 => Limit::CongestionWindow,
                _ => Limit::Unknown,
            }
        }
    }

    fn total(&mut self, round: &Round, shape: &Shape, duration: u64) {
        let totals = &mut self.totals;
        totals.rounds += 1;
        totals.time_ns += duration;
        totals.acked_bytes += round.acked;
        totals.flight_bytes_sum = totals.flight_bytes_sum.saturating_add(round.flight_max);
        totals.rtt_ns_sum = totals.rtt_ns_sum.saturating_add(round.rtt_min);
        totals.rtt_rounds += u64::from(round.rtt_min > 0);
        totals.lossy += u64::from(round.resent);
        totals.inflated += u64::from(shape.inflated);
        totals.flat_flight += u64::from(shape.flat_flight);
        totals.flat_rate += u64::from(shape.flat_rate);
        totals.growing += u64::from(shape.growth >= GROWTH_SLOW_START && shape.growth.is_finite());
        totals.clocked += round.clocked;
        totals.own_clock += round.own_clock;
        totals.gaps += round.gaps;
        totals.gap_ns_sum += round.gap_sum;
        totals.gap_ns_square_sum += round.gap_square_sum;
    }

    /// Undecided time goes to what was decided.
    fn resolve(&mut self, open: Limit, window: Limit, now: u64) {
        for (kind, limit) in [open, window, Limit::Application].into_iter().enumerate() {
            let ns = std::mem::take(&mut self.pending[kind]);
            let (stretch, frame) = std::mem::take(&mut self.longest[kind]);
            if ns > 0 {
                self.times[limit as usize] += ns;
                self.slices
                    .move_time(LIMITS + kind, limit as usize, self.pending_since, now);
                if stretch > 0 {
                    self.proofs[limit as usize].add(frame, ns);
                }
            }
        }
        self.pending_since = now;
        self.quiet = [0; UNDECIDED];
    }
}

/// A round beside the one before.
struct Shape {
    growth: f64,
    flat_rate: bool,
    flat_flight: bool,
    inflated: bool,
}

impl Shape {
    /// A queue stands and the path carries no more.
    fn queue(&self) -> bool {
        self.inflated && (self.flat_rate || self.growth < GROWTH_SLOW_START)
    }
}

impl Round {
    /// Gaps between its data segments are much alike.
    fn even(&self) -> bool {
        if self.gaps < 4 {
            return false;
        }
        let n = self.gaps as f64;
        let mean = self.gap_sum / n;
        let variance = self.gap_square_sum / n - mean * mean;
        variance <= EVEN * mean * mean
    }
}

impl Proofs {
    fn add(&mut self, frame: u64, ns: u64) {
        let us = saturated(ns / 1_000).max(1);
        let Some(at) = self.us.iter().position(|&held| us > held) else {
            return;
        };
        self.us[at..].rotate_right(1);
        self.frames[at..].rotate_right(1);
        (self.us[at], self.frames[at]) = (us, frame);
    }

    fn list(&self) -> [Option<(u64, Duration)>; PROOFS] {
        std::array::from_fn(|i| {
            let time = Duration::from_us(u64::from(self.us[i]));
            (self.us[i] > 0).then_some((self.frames[i], time))
        })
    }
}

/// Time and frame.
pub(crate) type Mark2 = (u64, u64);

/// How many limits there are.
pub(crate) const LIMITS: usize = 13;
/// States that a round's end decides on: open, at the peer's window, after a short segment.
const UNDECIDED: usize = 3;
const OPEN: usize = LIMITS;
const WINDOW: usize = LIMITS + 1;
const SHORT: usize = LIMITS + 2;
/// All states that time is spent in.
pub(crate) const STATES: usize = LIMITS + UNDECIDED;
const PROOFS: usize = 4;

/// ACKs on their way to the sender; more are taken together.
const LAGGED_MAX: usize = 1_024;
/// Shorter rounds are put together: with fewer segments nothing can be compared.
const ROUND_NS_MIN: u64 = 200_000;
/// A waiting time that is not yet a queue: what interrupts and schedulers add.
const QUEUE_NS_MIN: u64 = 50_000;
/// A host's time from ACK to data that is no time of its own.
const REACTION_NS_MIN: u64 = 20_000;
/// Growth from round to round that only slow start has: with an ACK for every other segment it is
/// 1.5 at least (RFC 5681 section 3.1, byte counting off).
const GROWTH_SLOW_START: f64 = 1.45;
/// Rates that count as the same.
const RATE_SAME: f64 = 0.25;
/// Square of the variation of gaps that counts as even: half of the mean.
const EVEN: f64 = 0.25;
