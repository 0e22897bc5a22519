//! Losses: finding them (RACK-TLP, RFC 8985), sending again, and reducing the window meanwhile
//! (proportional rate reduction, RFC 6937), timeouts (RFC 6298 section 5), taking back what was none.
//!
//! As Linux (net/ipv4/tcp_recovery.c and tcp_input.c): three segments selectively acknowledged count at once, as
//! RFC 6675's threshold would have it, unless reordering was seen. Taken back is a reduction when duplicates were
//! reported of everything that had been sent again (RFC 3708), and a timeout when something arrives that was sent
//! only once (F-RTO with SACK, RFC 5682 section 3.1, as by net.ipv4.tcp_frto); not done: Eifel by timestamps.

use units::{Duration, Instant};

use super::incoming::News;
use super::{Again, Sender, Stamp, State, Timer};
use crate::board::{AGAIN, EVER_AGAIN, LOST, SACKED};
use crate::cc::{Control, Loss};
use crate::packet::Burst;

/// The newest segment known to have arrived, by the time at which it was sent (RFC 8985 5.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rack {
    known: bool,
    at: Instant,
    end: u64,
    rtt: Duration,
}

/// RFC 6937 section 3.1.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reduction {
    delivered: u64,
    pub(super) out: u64,
    prior: u64,
}

/// What is needed to take a reduction back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Undo {
    possible: bool,
    taken_back: bool,
    cwnd: u64,
    ssthresh: u64,
    /// Copies of which no duplicate was reported.
    pub(super) copies: u64,
}

/// Was the timeout needed (RFC 5682 section 3.1)?
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Frto {
    /// The question is open.
    open: bool,
    /// Nothing is repaired until the next acknowledgment: new segments are sent to see what becomes of them (step 2.b).
    pub(super) holds: bool,
    /// Timeouts since the left edge moved.
    pub(super) expired: u32,
}

/// A probe for a lost tail (RFC 8985 section 7).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Probe {
    /// To be sent, whatever the window says.
    pub(super) wanted: bool,
    /// Segment that is to be acknowledged for the probe to be over; 0: none is on its way.
    end: u64,
    /// It is a copy.
    copy: bool,
}

impl Rack {
    pub(super) fn on_arrival(
        &mut self,
        at: Instant,
        end: u64,
        rtt: Duration,
        copy: bool,
        rtt_min: Option<Duration>,
    ) {
        if copy && rtt_min.is_some_and(|min| rtt < min) {
            // It acknowledges the first copy (RFC 8985 5.2 step 2).
            return;
        }
        self.rtt = rtt;
        if !self.known || (at, end) > (self.at, self.end) {
            (self.known, self.at, self.end) = (true, at, end);
        }
    }
}

impl Sender {
    /// Reordering: RACK waits before it believes in losses from now on.
    pub(super) fn on_reordering(&mut self, distance: u64) {
        self.reordering_seen = true;
        self.reordering = self.reordering.max(distance).min(REORDERING_MAX);
    }

    /// RFC 8985 6.2 step 5: marks as lost what was sent sufficiently before what has arrived.
    pub(super) fn detect(&mut self, now: Instant) {
        if !self.rack.known {
            return;
        }
        let patience = self.rack.rtt + self.reordering_window();
        let first = self.judge_first_copies(now, patience);
        let again = self.judge_again(now, patience);
        let wait = first.max(again);
        self.reorder_at = if wait > Duration::ZERO {
            now + wait + TIMEOUT_MIN
        } else {
            Instant::MAX
        };
    }

    /// RFC 8985 6.2 step 4 with Linux's exceptions.
    fn reordering_window(&self) -> Duration {
        let certain = self.state.repairs() || self.sacked_out >= self.reordering;
        if !self.reordering_seen && certain {
            return Duration::ZERO;
        }
        let quarter = self.rtt.min().map_or(0, |m| m.as_ns() / 4);
        Duration::from_ns(quarter.min(self.rtt.smoothed().as_ns() / 8))
    }

    /// First copies were sent in the order of their numbers, so that one line divides them.
    fn judge_first_copies(&mut self, now: Instant, patience: Duration) -> Duration {
        let mut place = self.sent.partition_point(|s| s.end <= self.judged);
        while let Some(&sent) = self.sent.get(place) {
            let end = match sent.at.cmp(&self.rack.at) {
                std::cmp::Ordering::Less => sent.end,
                std::cmp::Ordering::Equal => sent.end.min(self.rack.end.saturating_sub(1)),
                std::cmp::Ordering::Greater => break,
            };
            if self.judged >= end {
                break;
            }
            let due = sent.at + patience;
            if due > now {
                return due.saturating_since(now);
            }
            for n in self.judged..end {
                if self.board.of(n) & (SACKED | LOST | AGAIN) == 0 {
                    self.mark_lost(now, n);
                }
            }
            self.judged = end;
            place += 1;
        }
        Duration::ZERO
    }

    fn judge_again(&mut self, now: Instant, patience: Duration) -> Duration {
        while let Some(&copy) = self.again.front() {
            let n = copy.segment;
            if n < self.una || self.board.of(n) & AGAIN == 0 {
                self.again.pop_front();
                continue;
            }
            if (copy.at, n + 1) >= (self.rack.at, self.rack.end) {
                break;
            }
            let due = copy.at + patience;
            if due > now {
                return due.saturating_since(now);
            }
            self.again.pop_front();
            self.again_out -= 1;
            let flags = self.board.of(n) & !AGAIN;
            self.board.set(n, flags);
            if flags & LOST == 0 {
                self.mark_lost_as(now, n, copy.stamp);
            } else {
                self.lost_total += 1;
                self.tell_lost(now, n, copy.stamp);
            }
            self.lost_twice.push_back(n);
        }
        Duration::ZERO
    }

    fn mark_lost(&mut self, now: Instant, n: u64) {
        let tells = matches!(self.control, Control::Bbr3(_));
        let stamp = if tells {
            self.sent_with(n).1
        } else {
            Stamp::default()
        };
        self.mark_lost_as(now, n, stamp);
    }

    fn mark_lost_as(&mut self, now: Instant, n: u64, stamp: Stamp) {
        self.board.set(n, self.board.of(n) | LOST);
        self.flagged_to = self.flagged_to.max(n + 1);
        self.repair_from = self.repair_from.min(n);
        self.lost_out += 1;
        self.lost_total += 1;
        self.tell_lost(now, n, stamp);
    }

    /// The copy of segment `n` that left with `stamp` is lost: to those whom single losses concern.
    fn tell_lost(&mut self, now: Instant, n: u64, stamp: Stamp) {
        let delivered = self.una + self.sacked_out;
        if let Control::Bbr3(bbr) = &mut self.control {
            let loss = Loss {
                now,
                segment: n,
                delivered,
                sent_in_flight: stamp.in_flight.into(),
                lost_since: stamp.lost_since(self.lost_total),
                app_limited: stamp.app_limited,
            };
            bbr.on_loss(&self.window, &loss);
        }
    }

    pub(super) fn begin_recovery_if_lost(&mut self) {
        if self.lost_out == 0 || self.state.repairs() {
            return;
        }
        let reduced = self.state == State::Reduced;
        self.state = State::Recovery;
        self.recoveries += 1;
        if !reduced {
            self.begin_reduction();
        }
    }

    /// The receiver tells of a mark: what a loss would be, once in a window (RFC 3168 6.1.2).
    pub(super) fn on_echo(&mut self) {
        if !self.config.ecn || self.state != State::Open {
            return;
        }
        self.state = State::Reduced;
        self.begin_reduction();
        self.undo = Undo::default();
    }

    fn begin_reduction(&mut self) {
        self.recovery_point = self.next;
        self.undo = Undo {
            possible: true,
            taken_back: false,
            cwnd: self.window.cwnd,
            ssthresh: self.window.ssthresh,
            copies: 0,
        };
        self.reduction = Reduction {
            delivered: 0,
            out: 0,
            prior: self.window.cwnd,
        };
        self.tell_reduced = self.config.ecn;
        self.window.count = 0;
        let delivered = self.una + self.sacked_out;
        self.window.ssthresh = self.control.threshold(&self.window, delivered);
    }

    /// RFC 6937 section 3.1, with the reduction bound that Linux takes: slow start while nothing more
    /// is found lost.
    pub(super) fn reduce(&mut self, delivered: u64, going_well: bool) {
        if delivered == 0 {
            return;
        }
        let (pipe, target) = (self.in_flight(), self.window.ssthresh);
        let r = &mut self.reduction;
        r.delivered += delivered;
        let send = if pipe > target {
            let share = (target * r.delivered).div_ceil(r.prior.max(1));
            share.saturating_sub(r.out)
        } else {
            let more = r.delivered.saturating_sub(r.out).max(delivered);
            (more + u64::from(going_well)).min(target - pipe)
        };
        let first = u64::from(r.out == 0);
        self.window.cwnd = pipe + send.max(first);
    }

    pub(super) fn end_recovery(&mut self) {
        // After a reduction that was taken back there is nothing to come down to (Linux: `undo_marker`).
        let reduced = self.state.reduces() && !self.undo.taken_back;
        if reduced && !self.control.models() {
            self.window.cwnd = self.window.ssthresh;
        }
        // What was lost twice beyond the point stays to be sent: the next recovery is about that.
        self.state = State::Open;
    }

    /// A reduction for which no reason is left is taken back.
    pub(super) fn check_undo(&mut self, news: &News) {
        if !news.twice || !self.undo.possible || self.undo.copies == 0 {
            return;
        }
        self.undo.copies -= 1;
        if self.undo.copies > 0 {
            return;
        }
        self.take_back();
        if self.state == State::Recovery {
            // The window is as it was; what is missing is repaired without a reduction.
            self.recovery_point = self.una;
        }
    }

    /// RFC 5682 section 3.1 with Linux's order of steps (`tcp_process_loss`).
    pub(super) fn check_timeout(&mut self, news: &News) {
        self.frto.holds = false;
        if self.state != State::Loss || !self.frto.open {
            return;
        }
        if news.once {
            // Step 3.b: what was sent before the timeout, and only then, has come.
            self.take_timeout_back();
        } else if self.next > self.recovery_point {
            // Step 3.a: something new has come, and nothing old.
            self.frto.open &= news.delivered == 0;
        } else if news.advanced && self.una < self.recovery_point {
            self.frto.holds = true;
        }
    }

    /// Nothing new could be sent: what is lost is sent again as ever.
    pub(super) fn give_up_on_timeout(&mut self) {
        self.frto.holds = false;
        self.frto.open = false;
    }

    /// The timeout came too early: nothing counts as lost by it (Linux, `tcp_try_undo_loss`).
    fn take_timeout_back(&mut self) {
        for n in self.una..self.flagged_to.min(self.next) {
            self.board.set(n, self.board.of(n) & !LOST);
        }
        self.lost_out = 0;
        self.lost_twice.clear();
        (self.repair_from, self.judged) = (self.una, self.una);
        self.frto.open = false;
        self.take_back();
        self.state = State::Open;
    }

    fn take_back(&mut self) {
        self.undo.possible = false;
        self.undo.taken_back = true;
        self.undone += 1;
        self.window.cwnd = self.window.cwnd.max(self.undo.cwnd);
        self.window.ssthresh = self.window.ssthresh.max(self.undo.ssthresh);
        if let Control::Bbr3(bbr) = &mut self.control {
            bbr.on_undo(&mut self.window, self.una + self.sacked_out);
        }
    }

    /// Segments that are lost and not on their way again, at most `room`.
    pub(super) fn repair(&mut self, now: Instant, room: u64) -> Option<Burst> {
        while let Some(n) = self.lost_twice.pop_front() {
            if n >= self.una && self.board.of(n) & (LOST | AGAIN | SACKED) == LOST {
                return Some(self.send_again(now, n, 1));
            }
        }
        let waits = |flags: u8| flags & (LOST | AGAIN | SACKED) == LOST;
        let mut n = self.repair_from;
        while n < self.judged && !waits(self.board.of(n)) {
            n += 1;
        }
        self.repair_from = n;
        let mut end = n;
        while end < self.judged && end - n < room && waits(self.board.of(end)) {
            end += 1;
        }
        (end > n).then(|| self.send_again(now, n, end - n))
    }

    fn send_again(&mut self, now: Instant, first: u64, count: u64) -> Burst {
        let stamp = self.stamp(now, false, count);
        for n in first..first + count {
            let stamp = stamp.of_earlier(first + count - 1 - n);
            self.board.set(n, self.board.of(n) | AGAIN | EVER_AGAIN);
            self.again.push_back(Again {
                segment: n,
                at: now,
                stamp,
            });
        }
        self.flagged_to = self.flagged_to.max(first + count);
        self.again_out += count;
        self.undo.copies += count;
        Burst {
            first,
            count: u16::try_from(count).unwrap_or(u16::MAX),
            again: true,
            reduced: false,
            spaced: self.spacing(),
        }
    }

    /// RFC 6298 5.4 to 5.7, RFC 5681 3.1 equation 4.
    pub(super) fn on_retransmission_timeout(&mut self, now: Instant) {
        self.timeouts += 1;
        // Not where a recovery was going on: what arrives then may be what that has sent (step 1).
        self.frto.open = !self.state.repairs() || self.frto.expired > 0;
        self.frto.holds = false;
        self.frto.expired += 1;
        if !self.state.repairs() {
            // What was lost within a window has reduced it once (Linux, `tcp_enter_loss`).
            self.begin_reduction();
        }
        if self.state != State::Loss {
            self.control.on_timeout();
        }
        self.recovery_point = self.next;
        self.state = State::Loss;
        self.mark_all_lost(now);
        self.window.cwnd = self.in_flight() + 1;
        self.window.count = 0;
        self.rtt.back_off();
        self.reorder_at = Instant::MAX;
        self.probe = Probe::default();
        self.timer = Timer::Retransmit(now + self.rtt.timeout());
    }

    /// All but what was sent so lately that it cannot have been acknowledged.
    fn mark_all_lost(&mut self, now: Instant) {
        self.again.clear();
        self.lost_twice.clear();
        let recent = self.sent.partition_point(|s| s.at + self.rack.rtt <= now);
        let mut end = self.next;
        if self.rack.known
            && let Some(sent) = self.sent.get(recent)
        {
            end = sent.first.max(self.una + 1);
        }
        for n in self.una..self.next {
            let flags = self.board.of(n);
            if flags & AGAIN != 0 {
                self.again_out -= 1;
                self.board.set(n, flags & !AGAIN);
            }
            if flags & (SACKED | LOST) == 0 && n < end {
                self.mark_lost(now, n);
            }
        }
        self.repair_from = self.una;
        self.judged = self.judged.max(end);
    }

    /// Time from the last segment sent to a probe, where one may be sent (RFC 8985 7.2).
    pub(super) fn probe_after(&self) -> Option<Duration> {
        if self.state.repairs() || self.sacked_out > 0 || self.probe.end > 0 {
            return None;
        }
        let alone = self.next - self.una == 1;
        let more = if alone {
            crate::rtt::RTO_MIN
        } else {
            TIMEOUT_MIN
        };
        Some(self.rtt.smoothed().saturating_mul(2) + more)
    }

    pub(super) fn on_probe_timeout(&mut self, now: Instant) {
        self.probes += 1;
        self.probe.wanted = true;
        self.timer = Timer::Retransmit(now + self.rtt.timeout());
    }

    /// The probe: a new segment where one may be sent, else the last one again.
    pub(super) fn send_probe(&mut self, now: Instant) -> Option<Burst> {
        self.probe.wanted = false;
        if self.una == self.next {
            return None;
        }
        let new = self.next < self.edge.min(self.available(now));
        let burst = if new {
            self.send_new(now, 1)
        } else {
            let last = self.next - 1;
            if self.board.of(last) != 0 {
                return None;
            }
            self.send_again(now, last, 1)
        };
        self.probe.end = self.next;
        self.probe.copy = !new;
        Some(burst)
    }

    /// RFC 8985 7.4: a tail that only the probe repaired was a loss.
    pub(super) fn check_probe(&mut self, news: &News) {
        if self.probe.end == 0 || self.una < self.probe.end {
            return;
        }
        let repaired = self.probe.copy && !news.twice && self.state == State::Open;
        self.probe = Probe::default();
        if repaired {
            self.recoveries += 1;
            self.begin_reduction();
            self.window.cwnd = self.window.cwnd.min(self.window.ssthresh);
            self.recovery_point = self.una;
        }
    }
}

/// Linux, net.ipv4.tcp_max_reordering.
const REORDERING_MAX: u64 = 300;
/// Linux, `TCP_TIMEOUT_MIN_US`.
const TIMEOUT_MIN: Duration = Duration::from_ms(2);
