//! The sending end: what may be sent now, what was, and what became of it.
//!
//! Data in flight is kept as the bursts in which it left, so that a megabyte costs a few words; what
//! happened to single segments stands on a [`Board`] that is touched only after a loss. `sender/incoming.rs`
//! takes acknowledgments, `sender/recovery.rs` finds losses and repairs them, this file sends.
//!
//! Sent are first the segments that are lost, then new ones, as many as congestion window (RFC 5681,
//! counted as RFC 6675's pipe), receive window, send buffer and pacing allow. Small pieces wait for
//! more as in Linux's `tcp_tso_should_defer`, so that bursts stay large.

mod incoming;
pub(crate) mod meter;
mod recovery;

use std::collections::VecDeque;

use units::{Duration, Instant, Rate, Serialiser};

use crate::board::Board;
use crate::cc::{Control, Window};
use crate::config::{Pacing, SenderConfig};
use crate::packet::{Burst, Spaced};
use crate::ranges::Ranges;
use crate::rtt::Rtt;
use meter::{Meter, Stamp};
use recovery::{Frto, Probe, Rack, Reduction, Undo};

/// The sending end of a connection.
#[derive(Clone, Debug)]
pub struct Sender {
    config: SenderConfig,
    // Sequence space, in segments.
    una: u64,
    next: u64,
    edge: u64,
    segments: u64,
    start: Instant,
    // In flight.
    sent: VecDeque<Sent>,
    board: Board,
    sacked: Ranges,
    sacked_out: u64,
    lost_out: u64,
    again_out: u64,
    /// Copies on their way, in the order in which they were sent.
    again: VecDeque<Again>,
    /// Copies that were lost as well, to be sent before all else.
    lost_twice: VecDeque<u64>,
    /// Below it nothing waits to be sent again for the first time.
    repair_from: u64,
    /// Below it what was sent first has been judged.
    judged: u64,
    /// From it on the board is clear.
    flagged_to: u64,
    // Windows.
    window: Window,
    control: Control,
    /// The window was full when last looked at, and what was in flight then; good until `usage_end`
    /// is acknowledged.
    cwnd_limited: bool,
    most_in_flight: u64,
    usage_end: u64,
    /// Something was sent, or the window was full, since [`Sender::poll_transmit`] last had nothing to give.
    sent_some: bool,
    full: bool,
    // Recovery.
    state: State,
    recovery_point: u64,
    reduction: Reduction,
    /// The receiver is to be told of a reduction.
    tell_reduced: bool,
    rack: Rack,
    undo: Undo,
    frto: Frto,
    probe: Probe,
    reordering_seen: bool,
    reordering: u64,
    // Clocks.
    rtt: Rtt,
    timer: Timer,
    reorder_at: Instant,
    pace: Option<Pace>,
    held: Held,
    // Counters.
    meter: Meter,
    lost_total: u64,
    retransmitted: u64,
    timeouts: u64,
    recoveries: u64,
    probes: u64,
    undone: u64,
}

/// A burst as it left.
#[derive(Clone, Copy, Debug)]
struct Sent {
    first: u64,
    end: u64,
    at: Instant,
    stamp: Stamp,
}

/// A segment sent again.
#[derive(Clone, Copy, Debug)]
struct Again {
    segment: u64,
    at: Instant,
    stamp: Stamp,
}

/// What the one timer waits for (Linux has one as well).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    Idle,
    /// RFC 6298.
    Retransmit(Instant),
    /// RFC 8985 section 7: the end of the data may be lost.
    Probe(Instant),
}

/// What kept the next segment back when last asked for it, as far as time alone changes that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    ByPace,
    ByApplication,
    Otherwise,
}

/// Where a connection stands with losses, as Linux names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is missing.
    Open,
    /// A queue marked; the window is being reduced, nothing is missing (`CWR`).
    Reduced,
    /// Segments are being repaired, the window is being reduced.
    Recovery,
    /// A timeout: everything old counts as lost.
    Loss,
}

impl State {
    /// The window is on its way down.
    const fn reduces(self) -> bool {
        matches!(self, Self::Recovery | Self::Reduced)
    }

    /// Losses are being repaired.
    const fn repairs(self) -> bool {
        matches!(self, Self::Recovery | Self::Loss)
    }
}

/// A sender's state at a moment.
#[derive(Clone, Copy, Debug)]
pub struct SenderInfo {
    /// Segments acknowledged in order.
    pub acknowledged: u64,
    /// The same in payload bytes.
    pub acknowledged_bytes: u64,
    /// Segments sent and not acknowledged in order.
    pub unacked: u64,
    /// Segments in flight (RFC 6675's pipe).
    pub in_flight: u64,
    /// Congestion window in segments.
    pub cwnd: u64,
    /// Slow start threshold in segments; `None` before the first loss.
    pub ssthresh: Option<u64>,
    /// Smoothed round trip; zero before the first sample.
    pub rtt: Duration,
    /// The smallest.
    pub rtt_min: Option<Duration>,
    /// Bytes a second that Linux would state as its pacing rate (tcpi_pacing_rate), paced or not.
    pub pacing_rate: u64,
    /// Segments that the receiver's window still allows.
    pub window: u64,
    /// Segments that have arrived, in order or not (`tcpi_delivered`).
    pub delivered: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Recoveries without a timeout.
    pub recoveries: u64,
    /// Probes for a lost tail.
    pub probes: u64,
    /// Where it stands.
    pub state: State,
    /// What BBR is about; `None` with other algorithms.
    pub phase: Option<&'static str>,
}

/// When the next segment may leave.
#[derive(Clone, Debug)]
struct Pace {
    at: Instant,
    clock: Option<Serialiser>,
}

impl Sender {
    /// A sender whose handshake is done at `now`; it took `round_trip`, and `edge` is the receive window in
    /// segments that it told of.
    pub fn new(config: SenderConfig, now: Instant, round_trip: Duration, edge: u64) -> Self {
        let segment_bytes = u64::from(config.segment_bytes.max(1));
        let segments = config
            .data_bytes
            .map_or(u64::MAX / 4, |b| b.div_ceil(segment_bytes));
        let mut rtt = Rtt::default();
        rtt.on_sample(now, round_trip, 0, 0);
        let mut control = Control::new(&config);
        control.begin(now, round_trip);
        let paces = config.pacing != Pacing::Off || control.models();
        let clock = match config.pacing {
            Pacing::Gap { line, .. } => Some(Serialiser::new(line)),
            _ => None,
        };
        Self {
            una: 0,
            next: 0,
            edge,
            segments,
            start: now,
            sent: VecDeque::with_capacity(256),
            board: Board::new(),
            sacked: Ranges::default(),
            sacked_out: 0,
            lost_out: 0,
            again_out: 0,
            again: VecDeque::new(),
            lost_twice: VecDeque::new(),
            repair_from: 0,
            judged: 0,
            flagged_to: 0,
            window: Window {
                cwnd: config.initial_window.max(1),
                ssthresh: u64::MAX,
                count: 0,
            },
            control,
            cwnd_limited: false,
            most_in_flight: 0,
            usage_end: 0,
            sent_some: false,
            full: false,
            state: State::Open,
            recovery_point: 0,
            reduction: Reduction::default(),
            tell_reduced: false,
            rack: Rack::default(),
            undo: Undo::default(),
            frto: Frto::default(),
            probe: Probe::default(),
            reordering_seen: false,
            reordering: DUPLICATES_MIN,
            rtt,
            timer: Timer::Idle,
            reorder_at: Instant::MAX,
            pace: paces.then_some(Pace { at: now, clock }),
            held: Held::Otherwise,
            meter: Meter::default(),
            lost_total: 0,
            retransmitted: 0,
            timeouts: 0,
            recoveries: 0,
            probes: 0,
            undone: 0,
            config,
        }
    }

    /// Sets the ceiling of the pacing from now on, as `SO_MAX_PACING_RATE` does; [`Pacing::Rate`]'s only.
    pub const fn set_pacing_rate(&mut self, rate: Rate) {
        if let Pacing::Rate(most) = &mut self.config.pacing {
            *most = rate;
        }
    }

    /// The next burst that leaves at `now`, if any. To be asked until it gives none, after every
    /// acknowledgment and timeout.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Burst> {
        let burst = self.choose(now);
        match &burst {
            Some(burst) => {
                self.sent_some = true;
                if self.state.reduces() {
                    self.reduction.out += u64::from(burst.count);
                }
                self.on_sent(now, burst);
            }
            None if self.frto.holds && self.next == self.recovery_point => {
                return self.poll_without_frto(now);
            }
            None => self.validate(),
        }
        burst
    }

    /// Nothing new could be sent after a timeout: what is lost is.
    #[cold]
    fn poll_without_frto(&mut self, now: Instant) -> Option<Burst> {
        self.give_up_on_timeout();
        self.poll_transmit(now)
    }

    fn choose(&mut self, now: Instant) -> Option<Burst> {
        if self.probe.wanted
            && let Some(burst) = self.send_probe(now)
        {
            return Some(burst);
        }
        self.held = Held::Otherwise;
        if self.pace.as_ref().is_some_and(|p| p.at > now) {
            self.held = Held::ByPace;
            return None;
        }
        let room = self.window.cwnd.saturating_sub(self.in_flight());
        let largest = self.burst_segments();
        if self.lost_out > self.again_out
            && room > 0
            && !self.frto.holds
            && let Some(burst) = self.repair(now, room.min(largest))
        {
            return Some(burst);
        }
        let open = self.edge.saturating_sub(self.next);
        let buffered = (self.una + self.config.buffer_segments).saturating_sub(self.next);
        let waiting = self.available(now).saturating_sub(self.next);
        let allowed = open.min(room);
        let count = allowed.min(buffered).min(waiting).min(largest);
        if count == 0 {
            self.full |= room == 0 && waiting > 0;
            if waiting == 0 && room > 0 {
                self.held = Held::ByApplication;
                self.meter.on_nothing_to_send(self.in_flight());
            }
            return None;
        }
        if count < largest && waiting > allowed && self.defers(now, allowed, largest) {
            self.full |= room <= open;
            return None;
        }
        Some(self.send_new(now, count))
    }

    fn send_new(&mut self, now: Instant, count: u64) -> Burst {
        let burst = Burst {
            first: self.next,
            count: u16::try_from(count).unwrap_or(u16::MAX),
            again: false,
            reduced: std::mem::take(&mut self.tell_reduced),
            spaced: self.spacing(),
        };
        let alone = self.una == self.next;
        if alone {
            self.on_restart(now);
        }
        self.next += u64::from(burst.count);
        self.board.fit(self.una, self.next);
        let stamp = self.stamp(now, alone, 0);
        self.sent.push_back(Sent {
            first: burst.first,
            end: self.next,
            at: now,
            stamp,
        });
        if !matches!(self.timer, Timer::Retransmit(_)) {
            self.arm(now);
        }
        burst
    }

    /// Bytes that may wait in the queues of the sender's host before it is held (TCP small queues, Linux'
    /// `tcp_small_queue_check`): two bursts, or a millisecond of the pacing rate; without pacing
    /// net.ipv4.tcp_limit_output_bytes at most.
    pub fn host_limit_bytes(&self) -> u64 {
        let burst = self.burst_segments() * u64::from(self.config.segment_bytes);
        let limit = (2 * burst).max(self.pacing_rate() / 1024);
        match self.pace {
            Some(_) => limit,
            None => limit.min(LIMIT_OUTPUT_BYTES),
        }
    }

    /// Nothing is in flight, and something is to be sent.
    fn on_restart(&mut self, now: Instant) {
        if let Control::Bbr3(bbr) = &mut self.control
            && self.meter.is_app_limited()
        {
            let delivered = self.una + self.sacked_out;
            bbr.on_restart(now, &mut self.window, delivered);
        }
    }

    /// What rate samples take from a burst that leaves now; `more` of it are not yet counted as in flight.
    fn stamp(&mut self, now: Instant, alone: bool, more: u64) -> Stamp {
        if !self.control.models() {
            return Stamp::default();
        }
        let in_flight = self.in_flight() + more;
        self.meter.stamp(now, alone, in_flight, self.lost_total)
    }

    /// The host takes no more for now, though more might be sent (as Linux's queues below TCP hold a
    /// sender back): the window was not what did.
    pub fn on_host_busy(&mut self) {
        self.held = Held::Otherwise;
        self.validate();
    }

    /// Linux's `tcp_cwnd_validate`: was the congestion window what held the sender back?
    fn validate(&mut self) {
        let full = self.full || self.in_flight() >= self.window.cwnd;
        if !self.sent_some && !full {
            return;
        }
        let out = self.next - self.una;
        if self.una >= self.usage_end || full || (!self.cwnd_limited && out > self.most_in_flight) {
            self.cwnd_limited = full;
            self.most_in_flight = out;
            self.usage_end = self.next;
        }
        (self.sent_some, self.full) = (false, false);
    }

    /// Lets everything happen that is due at `now`. Then [`Self::poll_transmit`] is to be asked.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.reorder_at <= now {
            self.reorder_at = Instant::MAX;
            self.detect(now);
            self.begin_recovery_if_lost();
        }
        match self.timer {
            Timer::Retransmit(at) if at <= now => self.on_retransmission_timeout(now),
            Timer::Probe(at) if at <= now => self.on_probe_timeout(now),
            _ => {}
        }
    }

    /// When [`Self::handle_timeout`] or [`Self::poll_transmit`] is to be called next without an
    /// acknowledgment.
    pub fn next_timeout(&self) -> Instant {
        let timer = match self.timer {
            Timer::Idle => Instant::MAX,
            Timer::Retransmit(at) | Timer::Probe(at) => at,
        };
        let mut next = timer.min(self.reorder_at);
        match self.held {
            Held::ByPace => next = self.pace.as_ref().map_or(next, |p| next.min(p.at)),
            Held::ByApplication => next = self.next_write().map_or(next, |at| next.min(at)),
            Held::Otherwise => {}
        }
        next
    }

    /// True when all of a sized transfer is acknowledged.
    pub const fn is_done(&self) -> bool {
        self.una >= self.segments
    }

    /// How the connection stands.
    pub fn info(&self) -> SenderInfo {
        let bytes = self.una * u64::from(self.config.segment_bytes);
        SenderInfo {
            acknowledged: self.una,
            acknowledged_bytes: self.config.data_bytes.map_or(bytes, |all| bytes.min(all)),
            unacked: self.next - self.una,
            in_flight: self.in_flight(),
            cwnd: self.window.cwnd,
            ssthresh: (self.window.ssthresh < u64::MAX).then_some(self.window.ssthresh),
            rtt: self.rtt.smoothed(),
            rtt_min: self.rtt.min(),
            pacing_rate: self.pacing_rate(),
            window: self.edge.saturating_sub(self.next),
            delivered: self.una + self.sacked_out,
            retransmitted: self.retransmitted,
            timeouts: self.timeouts,
            recoveries: self.recoveries,
            probes: self.probes,
            state: self.state,
            phase: self.control.phase(),
        }
    }

    /// RFC 6675's pipe, with Linux's counters.
    const fn in_flight(&self) -> u64 {
        self.next - self.una - self.sacked_out - self.lost_out + self.again_out
    }

    /// Payload bytes a second of a window in a round trip, as Linux counts: in microseconds.
    fn window_rate(&self) -> u64 {
        let rtt_us = (self.rtt.smoothed().as_ns() / 1_000).max(1);
        let bytes = self.window.cwnd * u64::from(self.config.segment_bytes);
        bytes.saturating_mul(1_000_000) / rtt_us
    }

    /// The rate that Linux would pace at: `tcp_update_pacing_rate`.
    fn pacing_rate(&self) -> u64 {
        if let Some(rate) = self.control.pacing_rate() {
            return match self.config.pacing {
                Pacing::Rate(most) => rate.min(most.as_bits_per_second() / 8).max(1),
                _ => rate.max(1),
            };
        }
        let percent = if self.config.pacing == Pacing::WindowExact {
            100
        } else if self.window.cwnd < self.window.ssthresh / 2 {
            200
        } else {
            120
        };
        let rate = self.window_rate().saturating_mul(percent) / 100;
        match self.config.pacing {
            Pacing::Rate(most) => rate.min(most.as_bits_per_second() / 8).max(1),
            _ => rate.max(1),
        }
    }

    /// Segments of a full burst: about a millisecond at the pacing rate (Linux, `tcp_tso_autosize`
    /// with sk_pacing_shift 10 and net.ipv4.tcp_min_tso_segs), at most what the interface takes.
    fn burst_segments(&self) -> u64 {
        let segment = u64::from(self.config.segment_bytes.max(1));
        if self.config.pacing == Pacing::WindowExact {
            return 1;
        }
        let most = (u64::from(self.config.burst_bytes) / segment).max(1);
        (self.pacing_rate() / 1024 / segment).max(2).min(most)
    }

    /// Linux's `tcp_tso_should_defer`: a piece waits for more where an acknowledgment that brings it
    /// is near.
    fn defers(&self, now: Instant, allowed: u64, largest: u64) -> bool {
        if self.state.repairs() || allowed >= largest {
            return false;
        }
        let Some(newest) = self.sent.back() else {
            return false;
        };
        if now.saturating_since(newest.at) > RECENT {
            return false;
        }
        let whole = self.window.cwnd.min(self.edge.saturating_sub(self.una));
        if allowed >= whole / TSO_WIN_DIVISOR {
            return false;
        }
        let oldest = self.sent.front().map_or(now, |s| s.at);
        now.saturating_since(oldest).as_ns() >= self.rtt.smoothed().as_ns() / 2
    }

    /// Segments that the application has written by `now`.
    fn available(&self, now: Instant) -> u64 {
        let Some(rate) = self.config.application_rate else {
            return self.segments;
        };
        let written = rate.bytes_in(now.saturating_since(self.start)).as_u64();
        let block = self.config.application_block.max(1);
        let written = written / block * block;
        (written / u64::from(self.config.segment_bytes.max(1))).min(self.segments)
    }

    /// When the application has written the next segment that it has not, its whole block with it.
    fn next_write(&self) -> Option<Instant> {
        let rate = self.config.application_rate?.as_bits_per_second().max(1);
        let block = u128::from(self.config.application_block.max(1));
        let bytes = u128::from(self.next + 1) * u128::from(self.config.segment_bytes);
        let bits = bytes.div_ceil(block) * block * 8;
        let ns = (bits * 1_000_000_000).div_ceil(u128::from(rate));
        let more = self.next < self.segments;
        more.then(|| self.start + Duration::from_ns(u64::try_from(ns).unwrap_or(u64::MAX)))
    }

    /// How the segments of a burst follow each other when the line's gap is set.
    fn spacing(&self) -> Option<Spaced> {
        let Pacing::Gap {
            gap_bytes,
            frame_bytes,
            line,
        } = self.config.pacing
        else {
            return None;
        };
        let clock = self.pace.as_ref()?.clock.as_ref()?;
        Some(Spaced {
            bytes: frame_bytes + gap_bytes,
            rate_bits_per_second: line.as_bits_per_second(),
            remainder: clock.remainder(),
        })
    }

    /// What pacing makes of a burst that leaves at `now`.
    fn on_sent(&mut self, now: Instant, burst: &Burst) {
        if burst.again {
            self.retransmitted += u64::from(burst.count);
        }
        if self.pace.is_none() {
            return;
        }
        let bytes = u64::from(burst.count) * u64::from(self.config.segment_bytes);
        let rate = self.pacing_rate();
        let Some(pace) = &mut self.pace else { return };
        if let (
            Pacing::Gap {
                gap_bytes,
                frame_bytes,
                ..
            },
            Some(clock),
        ) = (self.config.pacing, &mut pace.clock)
        {
            if now > pace.at {
                clock.reset();
            }
            pace.at = now;
            for _ in 0..burst.count {
                pace.at += clock.next(frame_bytes + gap_bytes);
            }
            return;
        }
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let mut len = u64::try_from(ns).unwrap_or(u64::MAX);
        // Linux: up to half of a burst's time makes good for being late.
        let credit = now.saturating_since(pace.at).as_ns();
        len -= (len / 2).min(credit);
        pace.at = now + Duration::from_ns(len);
    }

    /// Starts the one timer anew: for a probe where that is allowed, else for the timeout.
    fn arm(&mut self, now: Instant) {
        if self.una == self.next {
            self.timer = Timer::Idle;
            return;
        }
        let timeout = self.rtt.timeout();
        self.timer = match self.probe_after() {
            Some(after) if after < timeout => Timer::Probe(now + after),
            _ => Timer::Retransmit(now + timeout),
        };
    }
}

/// Linux 6.18, net.ipv4.tcp_limit_output_bytes.
const LIMIT_OUTPUT_BYTES: u64 = 4 << 20;
/// Linux, net.ipv4.tcp_tso_win_divisor.
const TSO_WIN_DIVISOR: u64 = 3;
/// Linux, net.ipv4.tcp_reordering: RFC 6675's DupThresh.
const DUPLICATES_MIN: u64 = 3;
/// Linux: nothing waits for more when the last burst is longer ago.
const RECENT: Duration = Duration::from_ms(1);
