//! Acknowledgments: what they say of segments in flight, and what follows from it.

use units::{Duration, Instant};

use super::{Sender, Stamp, State, Timer};
use crate::board::{AGAIN, EVER_AGAIN, LOST, SACKED};
use crate::cc::{Control, Progress};
use crate::packet::Ack;

/// What an acknowledgment brought.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct News {
    /// Segments newly known to have arrived.
    pub(super) delivered: u64,
    /// The left edge moved.
    pub(super) advanced: bool,
    /// Round trip of the newest segment that was sent once.
    rtt: Option<Duration>,
    /// It tells of a segment that came twice.
    pub(super) twice: bool,
    /// Something arrived that was sent once only, before the last recovery began.
    pub(super) once: bool,
    /// Lowest segment that came after later ones though it was sent once.
    late: Option<u64>,
}

impl Sender {
    /// Takes an acknowledgment that comes at `now`. Then [`Sender::poll_transmit`] is to be asked.
    pub fn handle_ack(&mut self, now: Instant, ack: &Ack) {
        if ack.next > self.next {
            // Of what was never sent: no receiver of ours says so.
            return;
        }
        self.edge = self.edge.max(ack.edge);
        let mut news = News {
            twice: ack.twice,
            ..News::default()
        };
        let highest = self.sacked.end().unwrap_or(0);
        let in_flight_before = self.in_flight();
        if ack.blocks_count > 0 {
            self.take_blocks(now, ack, highest, &mut news);
        }
        if ack.next > self.una {
            self.advance(now, ack.next, highest, &mut news);
        }
        if let Some(low) = news.late {
            self.on_reordering(highest - low);
        }
        if let Some(rtt) = news.rtt {
            self.rtt.on_sample(now, rtt, self.una, self.next);
        }
        self.conclude(now, &news, ack.congested, in_flight_before);
    }

    fn take_blocks(&mut self, now: Instant, ack: &Ack, highest: u64, news: &mut News) {
        let floor = self.una.max(ack.next);
        let mut sacked = std::mem::take(&mut self.sacked);
        for (number, &(start, end)) in ack.sacked().iter().enumerate() {
            if (number == 0 && ack.twice) || end > self.next {
                continue;
            }
            sacked.add(start.max(floor), end, |a, b| {
                self.on_sacked(now, a, b, highest, news);
            });
        }
        self.sacked = sacked;
    }

    /// Segments `[a, b)` are selectively acknowledged for the first time.
    fn on_sacked(&mut self, now: Instant, a: u64, b: u64, highest: u64, news: &mut News) {
        let mut newest = None;
        for n in a..b {
            let flags = self.board.of(n);
            self.settle_flags(flags);
            if flags & EVER_AGAIN == 0 {
                newest = Some(n);
                news.once |= n < self.recovery_point;
                if n < highest {
                    news.late = Some(news.late.map_or(n, |l| l.min(n)));
                }
            } else if flags & AGAIN != 0 {
                self.on_copy_arrived(now, n);
            }
            self.board.set(n, (flags & EVER_AGAIN) | SACKED);
        }
        self.flagged_to = self.flagged_to.max(b);
        self.sacked_out += b - a;
        news.delivered += b - a;
        if let Some(n) = newest {
            let (at, stamp) = self.sent_with(n);
            let rtt = now.saturating_since(at);
            self.on_sampled(at, n + 1, stamp);
            self.rack.on_arrival(at, n + 1, rtt, false, self.rtt.min());
            news.rtt = Some(rtt);
        }
    }

    /// Takes a segment out of the counts that its flags put it into.
    const fn settle_flags(&mut self, flags: u8) {
        if flags & LOST != 0 {
            self.lost_out -= 1;
        }
        if flags & AGAIN != 0 {
            self.again_out -= 1;
        }
        if flags & SACKED != 0 {
            self.sacked_out -= 1;
        }
    }

    /// The copy of segment `n` that was on its way is here.
    fn on_copy_arrived(&mut self, now: Instant, n: u64) {
        if let Some(copy) = self.again.iter().find(|c| c.segment == n) {
            let rtt = now.saturating_since(copy.at);
            let copy = *copy;
            self.on_sampled(copy.at, n + 1, copy.stamp);
            self.rack
                .on_arrival(copy.at, n + 1, rtt, true, self.rtt.min());
        }
        while let Some(front) = self.again.front()
            && (front.segment == n || front.segment < self.una)
        {
            self.again.pop_front();
        }
    }

    /// For rate samples: a segment that ends before `end` and left at `at` has arrived.
    fn on_sampled(&mut self, at: Instant, end: u64, stamp: Stamp) {
        if self.control.models() {
            self.meter.on_arrival(at, end, stamp);
        }
    }

    /// The left edge moves to `edge`.
    fn advance(&mut self, now: Instant, edge: u64, highest: u64, news: &mut News) {
        news.advanced = true;
        let mut once = true;
        if self.una >= self.flagged_to {
            news.delivered += edge - self.una;
            news.once |= self.una < self.recovery_point;
        } else {
            once = self.clear_flags(now, edge, highest, news);
        }
        let mut newest = None;
        while let Some(front) = self.sent.front()
            && front.first < edge
        {
            newest = Some((front.at, front.stamp, front.end));
            if front.end > edge {
                break;
            }
            self.sent.pop_front();
        }
        if once && let Some((at, stamp, end)) = newest {
            let rtt = now.saturating_since(at);
            let stamp = stamp.of_earlier(end - edge.min(end));
            self.on_sampled(at, edge, stamp);
            self.rack.on_arrival(at, edge, rtt, false, self.rtt.min());
            news.rtt = Some(rtt);
        }
        self.una = edge;
        self.frto.expired = 0;
        self.repair_from = self.repair_from.max(edge);
        self.judged = self.judged.max(edge);
    }

    /// Clears what the board has below `edge`; true when all that is new of it was sent only once.
    fn clear_flags(&mut self, now: Instant, edge: u64, highest: u64, news: &mut News) -> bool {
        let mut once = true;
        let mut fresh = false;
        for n in self.una..edge {
            let flags = self.board.of(n);
            self.settle_flags(flags);
            if flags & SACKED == 0 {
                news.delivered += 1;
                fresh = true;
                once &= flags & EVER_AGAIN == 0;
                news.once |= flags & EVER_AGAIN == 0 && n < self.recovery_point;
                if flags & AGAIN != 0 {
                    self.on_copy_arrived(now, n);
                }
                if flags & EVER_AGAIN == 0 && n < highest {
                    news.late = Some(news.late.map_or(n, |l| l.min(n)));
                }
            }
            if flags != 0 {
                self.board.set(n, 0);
            }
        }
        self.sacked.forget_below(edge);
        once && fresh
    }

    /// When the first copy of segment `n` left.
    pub(super) fn sent_with(&self, n: u64) -> (Instant, Stamp) {
        let place = self.sent.partition_point(|s| s.end <= n);
        let sent = self.sent.get(place);
        sent.map_or_else(
            || (self.start, Stamp::default()),
            |s| (s.at, s.stamp.of_earlier(s.end - 1 - n)),
        )
    }

    /// What follows for losses, window and clocks.
    fn conclude(&mut self, now: Instant, news: &News, echo: bool, in_flight_before: u64) {
        self.check_probe(news);
        self.check_undo(news);
        self.check_timeout(news);
        let over = match self.state {
            State::Open => false,
            // Held until the receiver has been told, so that its echoes of old marks are over.
            State::Reduced => self.una > self.recovery_point,
            State::Recovery | State::Loss => self.una >= self.recovery_point,
        };
        if over {
            self.end_recovery();
        }
        let lost_before = self.lost_total;
        if self.sacked_out > 0 || !self.again.is_empty() {
            self.detect(now);
            self.begin_recovery_if_lost();
        }
        if echo {
            self.on_echo();
        }
        let losses = self.lost_total - lost_before;
        if self.control.models() {
            self.model(now, news, losses, in_flight_before);
        } else {
            self.grow_or_reduce(now, news, losses);
        }
        if self.una == self.next {
            self.timer = Timer::Idle;
        } else if news.advanced || news.delivered > 0 {
            self.arm(now);
        }
    }

    fn grow_or_reduce(&mut self, now: Instant, news: &News, losses: u64) {
        let progress = Progress {
            now,
            acked: match self.config.counts_acks {
                true => news.delivered.min(1),
                false => news.delivered,
            },
            rtt: news.rtt,
            una: self.una,
            next: self.next,
            cwnd_limited: self.is_cwnd_limited(),
            paced: self.pace.is_some(),
            gathering: self.gathering(),
        };
        self.control.on_round_trip(&mut self.window, &progress);
        if self.state.reduces() {
            self.reduce(news.delivered, news.advanced && losses == 0);
        } else if news.delivered > 0 {
            self.control.on_ack(&mut self.window, &progress);
        }
    }

    /// Time of four of the largest bursts at the pacing rate, at most a millisecond.
    fn gathering(&self) -> Duration {
        if !self.window.in_slow_start() {
            return Duration::ZERO;
        }
        let ns = GATHERED_BYTES * 1_000_000_000 / self.pacing_rate().max(1);
        Duration::from_ns(ns).min(GATHERING_MAX)
    }

    /// BBR sets window and pace from the model of the path that rate samples make.
    fn model(&mut self, now: Instant, news: &News, losses: u64, in_flight_before: u64) {
        let rtt_min = self.rtt.min().unwrap_or(Duration::ZERO);
        let mut sample = self
            .meter
            .sample(now, news.delivered, rtt_min, self.lost_total);
        sample.rtt = news.rtt;
        sample.losses = losses;
        sample.in_flight = self.in_flight();
        sample.in_flight_before = in_flight_before;
        sample.recovering = self.state.repairs();
        sample.burst = self.burst_segments();
        let pace = self.pace.as_ref();
        sample.ahead = pace.map_or(Duration::ZERO, |p| p.at.saturating_since(now));
        sample.cwnd_limited = self.cwnd_limited;
        match &mut self.control {
            Control::Bbr(bbr) => bbr.on_ack(&mut self.window, &sample),
            Control::Bbr3(bbr) => {
                bbr.on_ack(&mut self.window, &sample);
                if bbr.holds_back() {
                    self.meter.on_nothing_to_send(sample.in_flight);
                }
            }
            _ => {}
        }
    }

    /// Linux's `tcp_is_cwnd_limited`.
    const fn is_cwnd_limited(&self) -> bool {
        self.cwnd_limited
            || (self.window.in_slow_start() && self.window.cwnd < 2 * self.most_in_flight)
    }
}

/// Linux: four times `sk_gso_max_size`.
const GATHERED_BYTES: u64 = 4 * 65_536;
const GATHERING_MAX: Duration = Duration::from_ms(1);
