//! What kept a sender from sending sooner, decided while its packets pass.
//!
//! **At once** is decided what one event shows: the peer's window is closed, or has shrunk to less than half
//! of what it was, which only a peer that does not read does; or it has no room for a segment; or all is
//! acknowledged and nothing new comes. The time from each event to the next goes to what held in between.
//! Time after a short segment waits for the next data: where an ACK set them off, writes had waited for a
//! buffer; else it was the application's. What is left is *open*: data are in flight and there is room for more.
//!
//! **Round by round** is decided on open time. A round begins with the first data after the last
//! round and ends with their ACK. Its flight, rate, round trip, losses and the clock of its segments
//! are compared with the rounds before, in this order:
//!
//! 1. the path is full, *bottleneck*: the round trip is at least a quarter and 50 us above the least one, and
//!    the rate stays the same or the flight grows by less than half; or data are evenly spaced, at the same
//!    rate, and even the fastest ones waited for a thirty-second of the round trip; or the rate is what
//!    rounds before have shown to be the path's, by one of these or by more in flight that was carried no faster
//!    and took longer; or, at the receiver, it is what segments that follow one another come at. Time at the
//!    peer's window counts so too where a queue stands: with a larger one it would only be longer. No path was
//!    full that idled for a quarter of the round: at the receiver by any gap, at the sender by one that is so
//!    much longer than the slowest round trip waited;
//! 2. something was lost in this round, or neither flight nor rate has regained what it was at the last
//!    loss: *congestion window after loss*;
//! 3. no round before, or the flight grew by half: *slow start*;
//! 4. the flight fell at the last loss, and is no larger than it was there, or not for long: *congestion window
//!    after loss*, whatever the pace. A socket's pace is its own; one that falls with a loss is what the
//!    congestion control made of it (BBR's at a policer lasts 48 rounds: net/ipv4/tcp_bbr.c, bbr_lt_bw_sampling);
//! 5. bursts as a pacer sends them, each followed by as long a gap for its bytes, are *pacing*; where most of the
//!    time that data waited ended without an ACK, it is the *application*'s. Time counts and not how often: one
//!    write into a buffer with room again leaves as many bursts with a pacer's gaps between them;
//! 6. the flight is what it was, within three segments, twice in a row and not growing: *sender window* (send
//!    buffer, or a congestion window that does not move);
//! 7. the flight grows: *congestion window* that has met no loss, else *after loss*.
//!
//! Rounds before the path's rate was shown that were as fast are its as well, once it is.
//!
//! When a timeout or tail loss probe resends, the silence before it was *recovery timeout*, whatever it looked like.
//!
//! **Far from the sender.** An ACK seen at t is at the sender half a round trip (capture point to
//! sender and back) later, and what it sends then is seen another half later. So ACKs take effect
//! that round trip after they were seen, by the least of the last samples. That puts the sender's
//! time half a round trip late throughout; where that round trip changes faster than it is sampled,
//! flights are off by as much data as the change lasts.
//!
//! **Known to fail.** An application that writes by a timer whose period is a whole part of the round trip looks
//! as if ACKs set its data off. A program that a busy machine wakes late, after its send buffer has room, looks
//! as if it had a clock of its own. Pacing at exactly the path's rate is told from a full path only by a queue.
//!
//! Left out: what SACK says of the flight (holes count as in flight), limited transmit, several
//! flows that share a bottleneck.

mod rounds;

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
    /// After how long an ACK shows in what is seen of the sender: the least, and of late, with a queue
    /// on the way or the sender's own waiting in it.
    pub(crate) lag: u64,
    pub(crate) lag_of_late: u64,
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
    /// `una` as the last ACK had it.
    round_una: u64,
    /// Loss recovery lasts until this is acknowledged.
    recover: u64,
    last_data: u64,
    last_ack: u64,
    /// Bytes in flight at the capture point, for the means of slices.
    seen_flight: u64,
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
    /// Flight, rate and mean round trip of the round before that one.
    earlier: Option<Before>,
    /// Rounds that a capacity shown later may explain.
    open_rounds: Vec<OpenRound>,
    /// What the path has shown that it carries.
    capacity: Capacity,
    /// Largest window that the peer has offered, past its first.
    window_max: u64,
    /// Data since the last gap that tells bursts apart.
    burst_bytes: u64,
    /// Least time between two full segments, of all rounds; zero before the first.
    gap_least: u64,
    /// Far from the sender: a quarter of all full segments come sooner than this after the one before; zero
    /// before the first.
    gap_quarter: u64,
    /// Time that a pacer waited for each byte, of late; zero before the first.
    pace: f64,
    saw: Saw,
    /// How long data waited that ACKs set off, and that none did: the last rounds' weigh most.
    waits: (f64, f64),
    /// Undecided time since the last round's end, by kind.
    pending: [u64; UNDECIDED],
    /// Of it, since the last data.
    quiet: [u64; UNDECIDED],
    /// Longest undecided stretch, by kind, with its first frame.
    longest: [(u64, u64); UNDECIDED],
    pending_since: u64,
    /// Since when time after a short segment waits for the next data.
    short_since: u64,
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
    /// How long data waited that an ACK set off, and that none did; a pacer's waiting is neither.
    clocked_ns: u64,
    own_ns: u64,
    gaps: u64,
    gap_max: u64,
    gap_sum: f64,
    gap_square_sum: f64,
    rtts: u64,
    rtt_max: u64,
    rtt_sum: u64,
    /// Segments below full size.
    shorts: u64,
    /// Bursts: how many, and the gap behind each for each of its bytes, summed and squared.
    bursts: u64,
    pace_sum: f64,
    pace_square_sum: f64,
    /// Least time between data segments.
    gap_min: u64,
    /// ACKs that opened the window by a good part more than they acknowledged.
    reads: u64,
    /// Longest gap behind a burst of more than [`PACED_SEGMENTS`].
    lump_gap_max: u64,
}

/// The last round.
#[derive(Clone, Copy, Debug)]
struct Before {
    flight_max: u64,
    rate: f64,
    rtt_min: u64,
    rtt_mean: u64,
    ack_spacing: u64,
    /// Mean time between data segments.
    gap: u64,
    resent: bool,
    limit: Limit,
}

/// A round that may have been the path's.
#[derive(Clone, Copy, Debug)]
struct OpenRound {
    from: u64,
    to: u64,
    frame: u64,
    ns: u64,
    rate: f64,
    limit: Limit,
}

/// The rate at which more in flight has shown to bring nothing but a longer queue.
#[derive(Clone, Copy, Debug, Default)]
struct Capacity {
    /// Bytes per ns; zero when not known.
    rate: f64,
    /// Rounds that showed it, and rounds since.
    shown: u32,
    rounds: u32,
}

/// What losses do to the flight: it falls, and grows until the next one.
#[derive(Clone, Copy, Debug, Default)]
struct Saw {
    /// Flight and rate before the last loss.
    flight: u64,
    rate: f64,
    /// Rounds since.
    rounds: u32,
    /// After how many the flight or rate was what it had been; zero before.
    regained: u32,
    /// It had fallen.
    fell: bool,
    /// It has not been since what it had been.
    open: bool,
}

/// The longest stretches of a limit: frames and microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Proofs {
    frames: [u64; PROOFS],
    us: [u32; PROOFS],
}

impl Sender {
    /// A sender whose connection began at `first` and was made at `made`, whose first data are sent at
    /// `now`, and whose peer's window was closed for a time before.
    pub(crate) fn new(
        first: Mark2,
        made: Mark2,
        now: u64,
        una: u64,
        closed: Option<(Mark2, u64)>,
    ) -> Self {
        let mut sender = Self {
            until: first.0,
            state: Limit::Handshake as usize,
            since: first,
            next: una,
            una,
            edge: 0,
            round_una: una,
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
            earlier: None,
            open_rounds: Vec::new(),
            capacity: Capacity::default(),
            window_max: 0,
            burst_bytes: 0,
            gap_least: 0,
            gap_quarter: 0,
            pace: 0.0,
            saw: Saw::default(),
            waits: (0.0, 0.0),
            short_since: now,
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
        if let Some((since, until)) = closed {
            sender.account(since.0.clamp(sender.until, now), 0);
            sender.enter(Limit::ZeroWindow as usize, since.1);
            sender.account(until.clamp(sender.until, now), 0);
            sender.enter(Limit::Application as usize, since.1);
        }
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
        let rounds = self.open_rounds.capacity() * size_of::<OpenRound>();
        let acks = self.lagged.capacity() * size_of::<Ack>();
        size_of::<Self>() + self.slices.bytes() + acks + rounds
    }

    /// A data segment passes, after [`Self::advance`].
    pub(crate) fn on_data(&mut self, sent: Sent, path: &Path) {
        self.close_stretch();
        if sent.resent == Some(Resent::Timer) {
            self.blame_timer(path);
        }
        let new = sent.next > self.next;
        if sent.resent.is_some() {
            if self.una >= self.recover && !self.saw.open {
                self.saw = self.at_loss();
            }
            self.recover = self.recover.max(sent.next);
            self.round.resent = true;
        }
        if new && sent.payload > 0 {
            let clocked = self.clock(sent.payload, path);
            self.settle_short(clocked, path.now);
            self.burst(sent.payload, path);
            self.short = !sent.payload.is_multiple_of(path.segment_bytes.max(1));
            self.totals.short_segments += u64::from(self.short);
            self.round.shorts += u64::from(self.short);
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

    /// What a loss now takes away. The rate is by Little's law too, over the slowest round trip: what is
    /// acknowledged lags behind a flight that grows.
    fn at_loss(&self) -> Saw {
        let before = self.before.map_or(0, |b| b.flight_max);
        let flight = before.max(self.round.flight_max);
        let slowest = |b: Before| b.rtt_mean.max(self.round.rtt_max).max(1);
        let rate = |b: Before| b.rate.max(flight as f64 / slowest(b) as f64);
        Saw {
            flight,
            rate: self.before.map_or(0.0, rate),
            open: flight > 0,
            ..Saw::default()
        }
    }

    /// An ACK passes, after [`Self::advance`].
    pub(crate) fn on_ack(&mut self, mut ack: Ack, path: &Path) {
        if path.lag == 0 && self.lagged.is_empty() {
            return self.apply(ack, path);
        }
        let many = self.lagged.len() >= LAGGED_MAX;
        // Where a queue stands it delays data; else what was added of late was the sender's own time.
        let queue = self.before.is_some_and(|b| b.limit == Limit::Bottleneck);
        let lag = if queue { path.lag_of_late } else { path.lag };
        ack.due = path.now.saturating_add(lag);
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
        round.rtt_max = round.rtt_max.max(total_ns);
        round.rtts += 1;
        round.rtt_sum = round.rtt_sum.saturating_add(total_ns);
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
        self.settle_short(false, path.now);
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
        } else if self.edge != 0 && self.next + segment_bytes.min(self.window_max / 2) > self.edge {
            // What is in flight is all that the peer has not taken from its window: the rest waits for
            // its application.
            match self.edge.saturating_sub(self.una) < self.window_max / 2 {
                true => Limit::ZeroWindow as usize,
                false => WINDOW,
            }
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
        self.ack_since_data && !self.saw.open && self.flight() < flight / 2
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
        let opened = ack.edge.saturating_sub(self.edge);
        let acked = ack.una.saturating_sub(self.round_una);
        self.round_una = ack.una;
        // Room that the peer's program has made, not the ACK.
        if self.edge > 0 && opened.saturating_sub(acked) >= self.window_max / 4 {
            self.round.reads += u64::from(ack.edge.saturating_sub(ack.una) <= self.window_max);
        }
        self.edge = ack.edge;
        self.window_max = self.window_max.max(ack.edge.saturating_sub(ack.una));
        self.closed = ack.closed;
        if self.round.active {
            let long = now.saturating_sub(self.round.start) >= ROUND_NS_MIN;
            if self.una >= self.round.end_sequence && (long || self.flight() == 0) {
                self.end_round(now, path);
            }
        } else if self.flight() == 0 && self.una >= self.recover {
            // A whole flight was acknowledged and nothing new came: it had no more.
            self.close_stretch();
            self.settle_short(false, now);
            self.resolve(Limit::Application, Limit::ReceiveWindow, now);
        }
        self.enter(self.instant(path.segment_bytes), ack.frame);
    }

    /// Whose clock new data follow: true when an ACK set them off.
    fn clock(&mut self, payload: u64, path: &Path) -> bool {
        if self.last_data == 0 {
            return false;
        }
        let gap = path.now.saturating_sub(self.last_data);
        let spacing = self.before.map_or(0, |b| b.ack_spacing);
        // Far from the sender its reaction is blurred by the path.
        let part = if path.lag == 0 { 8 } else { 4 };
        // Far from the sender, segments of one burst come as the path spaces them: they tell nothing, and
        // the first one came later than a bare ACK would have, by as much.
        let spread = match path.lag {
            0 => 0,
            _ => self.gap_quarter.min(path.base_rtt / 8),
        };
        let full = payload >= path.segment_bytes;
        if full && (self.round.gap_min == 0 || gap < self.round.gap_min) {
            self.round.gap_min = gap.max(1);
        }
        self.round.gaps += 1;
        self.round.gap_max = self.round.gap_max.max(gap);
        self.round.gap_sum += gap as f64;
        self.round.gap_square_sum += gap as f64 * gap as f64;
        if full && path.lag > 0 {
            self.note_gap(gap, payload, path.segment_bytes);
        }
        if spread > 0 && gap.saturating_mul(2) <= spread * 3 {
            return false;
        }
        let wake = (path.base_rtt / WAKE_PART).min(WAKE_NS_MAX);
        let round = &mut self.round;
        let mut clocked = false;
        let mut own = false;
        if self.ack_since_data {
            let reaction = path
                .now
                .saturating_sub(self.last_ack.saturating_add(spread));
            clocked = reaction
                <= (spacing / part)
                    .clamp(REACTION_NS_MIN, REACTION_NS_MAX)
                    .max(wake);
            if clocked && payload < path.segment_bytes {
                // Nagle's algorithm held it back until an ACK came (RFC 896): it says nothing of buffers.
                clocked = false;
            } else if clocked {
                round.clocked += 1;
                round.clocked_ns += gap;
            } else {
                own = true;
            }
        } else {
            own = gap > (spacing / 3).max(REACTION_NS_MIN);
        }
        if own {
            round.own_clock += 1;
            if !self.is_in_pace(gap, path.segment_bytes) {
                self.round.own_ns += gap;
            }
        }
        clocked
    }

    /// The gap is as long as a pacer waits for the bytes before it.
    fn is_in_pace(&self, gap: u64, segment_bytes: u64) -> bool {
        let due = self.burst_bytes as f64 * self.pace;
        self.may_be_pace(gap, segment_bytes) && (gap as f64 - due).abs() <= due / 4.0
    }

    /// A pacer sends bursts of 1 ms, but two whole segments at least.
    fn may_be_pace(&self, gap: u64, segment_bytes: u64) -> bool {
        gap <= PACED_GAP_NS_MAX
            || self.burst_bytes <= PACED_SEGMENTS * segment_bytes
                && self.burst_bytes.is_multiple_of(segment_bytes.max(1))
    }

    /// Follows the quarter of gaps, by steps so that three above weigh as one below.
    fn note_gap(&mut self, gap: u64, payload: u64, segment_bytes: u64) {
        let gap = match payload > segment_bytes {
            true => gap.saturating_mul(segment_bytes) / payload,
            false => gap,
        };
        let step = self.gap_quarter / 256 + 1;
        if self.gap_quarter == 0 {
            self.gap_quarter = gap;
        } else if gap < self.gap_quarter {
            self.gap_quarter = self.gap_quarter.saturating_sub(3 * step).max(1);
        } else {
            self.gap_quarter = self.gap_quarter.saturating_add(step);
        }
    }

    /// Bursts and what follows them: paced data come as a burst of about 1 ms, then a gap as long as its
    /// bytes take at the rate (net/ipv4/tcp_output.c, tcp_tso_autosize).
    fn burst(&mut self, payload: u64, path: &Path) {
        let gap = path.now.saturating_sub(self.last_data);
        let mean = self.before.map_or(0, |b| b.gap);
        if self.last_data > 0 && self.burst_bytes > 0 && gap.saturating_mul(2) > mean {
            let pace = gap as f64 / self.burst_bytes as f64;
            if self.may_be_pace(gap, path.segment_bytes) {
                self.pace = pace;
            }
            let round = &mut self.round;
            round.bursts += 1;
            round.pace_sum += pace;
            round.pace_square_sum += pace * pace;
            if self.burst_bytes > PACED_SEGMENTS * path.segment_bytes {
                round.lump_gap_max = round.lump_gap_max.max(gap);
            }
            self.burst_bytes = 0;
        }
        self.burst_bytes += payload;
    }

    /// Time after a short segment: it was the application's, or, where an ACK set off what came next, a
    /// buffer's that writes had to wait for.
    fn settle_short(&mut self, clocked: bool, now: u64) {
        let kind = SHORT - LIMITS;
        let ns = std::mem::take(&mut self.pending[kind]);
        let (stretch, frame) = std::mem::take(&mut self.longest[kind]);
        self.quiet[kind] = 0;
        let since = std::mem::replace(&mut self.short_since, now);
        if ns == 0 {
            return;
        }
        if clocked {
            self.pending[OPEN - LIMITS] += ns;
            self.slices.move_time(SHORT, OPEN, since, now);
            if stretch > self.longest[OPEN - LIMITS].0 {
                self.longest[OPEN - LIMITS] = (stretch, frame);
            }
            self.pending_since = self.pending_since.min(since);
        } else {
            let to = Limit::Application as usize;
            self.times[to] += ns;
            self.slices.move_time(SHORT, to, since, now);
            if stretch > 0 {
                self.proofs[to].add(frame, ns);
            }
        }
    }

    /// Time since the last data was spent waiting for a timer.
    fn blame_timer(&mut self, path: &Path) {
        let to = Limit::RecoveryTimeout as usize;
        let mut all = 0;
        for kind in 0..UNDECIDED {
            let ns = std::mem::take(&mut self.quiet[kind]).min(self.pending[kind]);
            if ns > 0 {
                self.pending[kind] -= ns;
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

/// Mean of so many times in ns; the sum of none.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a sum of times of a round, far below 2^63 ns"
)]
fn mean_ns(sum: f64, count: u64) -> u64 {
    (sum / count.max(1) as f64) as u64
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
/// A host's time from ACK to data that is no time of its own.
const REACTION_NS_MIN: u64 = 20_000;
/// However rarely ACKs come, it takes no longer.
const REACTION_NS_MAX: u64 = 200_000;
/// A program that waits for room to write is woken and runs within this part of the round trip,
const WAKE_PART: u64 = 64;
/// and within this time.
const WAKE_NS_MAX: u64 = 150_000;
/// Segments that a pacer sends at a time at least.
const PACED_SEGMENTS: u64 = 2;
/// Longest gap behind more than these: 1 ms by the kernel, and as much for its timer.
const PACED_GAP_NS_MAX: u64 = 2_500_000;
