//! What a round as a whole says: what its open time went to, and what the path carries. The order of
//! decisions is in `limits.rs`.

use super::{
    Before, Capacity, LIMITS, Limit, OPEN, OpenRound, PACED_GAP_NS_MAX, Path, Round, SHORT, Saw,
    Sender, UNDECIDED, WINDOW, mean_ns,
};

impl Sender {
    pub(super) fn end_round(&mut self, now: u64, path: &Path) {
        self.close_stretch();
        let round = std::mem::take(&mut self.round);
        let duration = now.saturating_sub(round.start).max(1);
        let rate = round.acked as f64 / duration as f64;
        let rtt = match round.rtt_min {
            0 => self.before.map_or(0, |b| b.rtt_min),
            rtt => rtt,
        };
        let rtt_mean = round.rtt_sum.checked_div(round.rtts).unwrap_or(rtt);
        let shape = self.shape(&round, rate, (rtt, rtt_mean, duration), path);
        self.total(&round, &shape, duration);
        self.learn(&round, &shape, rate);
        self.saw.on_round(&round, rate);
        let (clocked, own) = self.waits;
        self.waits = (
            clocked * WAITS_KEPT + round.clocked_ns as f64,
            own * WAITS_KEPT + round.own_ns as f64,
        );
        let limit = self.classify(&round, &shape, rate);
        let window = if shape.queue() {
            Limit::Bottleneck
        } else {
            Limit::ReceiveWindow
        };
        // A flight that the peer's window holds has nothing more to regain.
        let held = self.pending[WINDOW - LIMITS] > self.pending[OPEN - LIMITS];
        self.lost_before = (self.lost_before || round.resent) && !held;
        if held {
            self.saw = Saw::default();
        } else if self.saw.regains(&round, rate) {
            self.saw.open = false;
        }
        let ambiguous = [
            Limit::Pacing,
            Limit::SenderWindow,
            Limit::LossWindow,
            Limit::CongestionWindow,
            Limit::Unknown,
        ];
        let ns = self.pending[OPEN - LIMITS];
        if self.capacity.shown < CAPACITY_SHOWN
            && self.open_rounds.len() < OPEN_ROUNDS_MAX
            && ns > 0
            && !round.resent
            && ambiguous.contains(&limit)
        {
            self.open_rounds.push(OpenRound {
                from: self.pending_since,
                to: now,
                frame: path.frame,
                ns,
                rate,
                limit,
            });
        }
        self.resolve(limit, window, now);
        self.earlier = self.before;
        self.before = Some(Before {
            flight_max: round.flight_max,
            rate,
            rtt_min: rtt,
            rtt_mean,
            resent: round.resent,
            ack_spacing: duration.checked_div(round.acks).unwrap_or(duration),
            gap: mean_ns(round.gap_sum, round.gaps),
            limit,
        });
    }

    fn shape(
        &mut self,
        round: &Round,
        rate: f64,
        (rtt, rtt_mean, duration): (u64, u64, u64),
        path: &Path,
    ) -> Shape {
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
        // More in flight, no more carried, longer on its way: than one round ago or two, since a queue
        // shows a round trip after what fills it. One segment more is what a delayed ACK makes.
        let most = before.map_or(0, |b| b.flight_max).max(round.flight_max);
        let fuller = |then: Option<Before>| {
            then.is_some_and(|then| {
                let growth = most as f64 / then.flight_max.max(1) as f64;
                growth >= 1.1
                    && most >= then.flight_max + 2 * path.segment_bytes
                    && !then.resent
                    && rate / then.rate.max(1e-12) - 1.0 <= (growth - 1.0) * 0.4
                    && then.rtt_mean > 0
                    && rtt_mean.saturating_sub(then.rtt_mean)
                        > (then.rtt_mean / 20).max(QUEUE_NS_MIN)
            })
        };
        let calm = !round.resent && before.is_some_and(|b| !b.resent);
        let queued = calm && (fuller(before) || fuller(self.earlier));
        if round.gap_min > 0 && (self.gap_least == 0 || round.gap_min < self.gap_least) {
            self.gap_least = round.gap_min;
        }
        // Behind the narrowest link segments come one by one, at its rate, and at no time came faster: it had
        // no pause. Most pacers send two and more at a time, which come as fast as that link lets them; from
        // one that does not, nothing waits longer than for its turn.
        let apart = mean_ns(round.gap_sum, round.gaps);
        let fills = path.lag > 0
            && round.gaps >= 16
            && round.shorts == 0
            && round.bursts == round.gaps
            && round.is_even(EVEN / 25.0)
            && apart <= self.gap_least + self.gap_least / 2
            && rtt.saturating_sub(path.base_rtt) > apart;
        // As much as comes when one follows the other is all that the narrowest link can carry (one less the
        // dispersion score of Siekkinen and others). Segments of a pacer's that come one by one wait
        // for their turn and no longer.
        let narrow = path.segment_bytes as f64 / self.gap_quarter.max(1) as f64;
        let fills = fills
            || path.lag > 0
                && self.gap_quarter > 0
                && round.gaps >= 16
                && (NARROW_PART * narrow..=1.15 * narrow).contains(&rate)
                && rtt_mean.saturating_sub(path.base_rtt) > apart;
        // Evenly, and even the fastest ones waited.
        let stands = fills
            || round.is_paced() && {
                let wait = rtt.saturating_sub(path.base_rtt);
                // Far from the sender a round trip ends with data, which wait for their time to be sent.
                let apart = match path.lag {
                    0 => mean_ns(round.gap_sum, round.gaps),
                    _ => mean_ns(round.gap_sum, round.bursts),
                };
                path.base_rtt > 0 && wait > (path.base_rtt / 32).max(2 * QUEUE_NS_MIN) + 2 * apart
            };
        // A gap of the sender's empties a queue that is shorter, and the link idles for the rest of it. Behind
        // the queue all of the gap is the link's.
        let waited = match path.lag {
            0 => round.rtt_max.saturating_sub(path.base_rtt),
            _ => 0,
        };
        let idle = round.gap_max.saturating_sub(waited);
        let paused = idle > duration / IDLE_PART;
        // Held by a window that opens at once, or is acknowledged at once, after the peer's program has
        // read: that is what took so long.
        let held = self.pending[WINDOW - LIMITS] > self.pending[OPEN - LIMITS];
        let at_once = round.acked / round.acks.max(1) >= self.window_max / 2 || round.reads > 0;
        let read = held && at_once && self.window_max >= 4 * path.segment_bytes;
        Shape {
            paused,
            queued: queued && !paused && !read,
            stands: stands && !read,
            growth,
            flat_rate: change.abs() <= RATE_SAME,
            flat_flight,
            inflated: path.base_rtt > 0
                && !read
                && rtt.saturating_sub(path.base_rtt) > (path.base_rtt / 4).max(QUEUE_NS_MIN),
        }
    }

    /// Takes note of a round that shows what the path carries.
    fn learn(&mut self, round: &Round, shape: &Shape, rate: f64) {
        let calm = !round.resent && self.before.is_some_and(|b| !b.resent);
        let known = &mut self.capacity;
        known.rounds = known.rounds.saturating_add(1);
        // It has carried more, and no queue stood.
        if calm && !shape.queue() && rate > known.rate * 1.3 {
            *known = Capacity::default();
        }
        if round.resent || !(shape.queue() || shape.queued) {
            return;
        }
        // A path that has grown slower or faster is learnt anew.
        if rate > known.rate * 1.15 || rate < known.rate * 0.85 {
            let old = known.shown >= 2 && rate < known.rate && known.rounds < CAPACITY_ROUNDS;
            if !old {
                *known = Capacity {
                    rate,
                    shown: 1,
                    rounds: 0,
                };
            }
            return;
        }
        known.rate = known.rate.max(rate);
        known.shown += 1;
        known.rounds = 0;
        if known.shown == CAPACITY_SHOWN {
            self.explain_open_rounds();
        }
    }

    /// Rounds at the rate that now is known to be the path's were the path's as well.
    fn explain_open_rounds(&mut self) {
        for round in std::mem::take(&mut self.open_rounds) {
            if round.rate < self.capacity.rate * 0.9 {
                continue;
            }
            let (from, to) = (round.limit as usize, Limit::Bottleneck as usize);
            let ns = round.ns.min(self.times[from]);
            self.times[from] -= ns;
            self.times[to] += ns;
            self.slices.move_time_within(from, to, round.from, round.to);
            self.proofs[to].add(round.frame, ns);
        }
    }

    fn classify(&self, round: &Round, shape: &Shape, rate: f64) -> Limit {
        let lost = round.resent || self.una < self.recover;
        let known = self.capacity;
        let full = known.shown >= CAPACITY_SHOWN
            && known.rounds <= CAPACITY_ROUNDS
            && rate >= known.rate * 0.9
            && !shape.paused;
        if shape.queue() || (shape.inflated && lost) || full {
            return Limit::Bottleneck;
        }
        if lost || (self.saw.open && !self.saw.regains(round, rate)) {
            return Limit::LossWindow;
        }
        if shape.growth >= GROWTH_SLOW_START {
            return Limit::SlowStart;
        }
        if self.saw.holds(round, rate) && round.own_ns <= round.clocked_ns {
            return Limit::LossWindow;
        }
        if round.is_paced() {
            return Limit::Pacing;
        }
        // A buffer's writer may be late; an application's timer is in step with ACKs only by chance.
        let flat = self.flat_rounds >= 2 && self.grown_rounds < 2;
        let part = if flat { OWN_PART_FLAT } else { OWN_PART };
        let (clocked, own) = self.waits;
        if own > part * (clocked + own) {
            return Limit::Application;
        }
        match shape.growth {
            _ if flat => Limit::SenderWindow,
            _ if self.lost_before => Limit::LossWindow,
            growth if growth > 1.0 => Limit::CongestionWindow,
            _ => Limit::Unknown,
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
    pub(super) fn resolve(&mut self, open: Limit, window: Limit, now: u64) {
        for (kind, limit) in [open, window].into_iter().enumerate() {
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
        let short = self.quiet[SHORT - LIMITS];
        self.quiet = [0; UNDECIDED];
        self.quiet[SHORT - LIMITS] = short;
    }
}

/// A round beside the one before.
struct Shape {
    /// Nothing passed the narrowest link for a good part of it.
    paused: bool,
    /// More in flight brought nothing but a longer way.
    queued: bool,
    /// Even spacing, and a short queue that never went.
    stands: bool,
    growth: f64,
    flat_rate: bool,
    flat_flight: bool,
    inflated: bool,
}

impl Shape {
    /// A queue stands and the path carries no more.
    fn queue(&self) -> bool {
        if self.paused {
            return false;
        }
        (self.inflated && (self.flat_rate || self.growth < GROWTH_SLOW_START))
            || (self.stands && self.flat_rate)
    }
}

impl Saw {
    fn on_round(&mut self, round: &Round, rate: f64) {
        if self.flight == 0 {
            return;
        }
        self.rounds = self.rounds.saturating_add(1);
        if !round.resent && round.flight_max * 20 < self.flight * 17 {
            self.fell = true;
        }
        if self.regained == 0 && self.fell && self.regains(round, rate) {
            self.regained = self.rounds;
        }
    }

    /// The loss no longer tells in what is in flight or carried.
    fn regains(&self, round: &Round, rate: f64) -> bool {
        round.flight_max * 20 >= self.flight * 19
            || (self.rate > 0.0 && rate * 20.0 >= self.rate * 19.0)
    }

    /// It fell at a loss and has not grown far beyond what it was, nor had it long enough for the next one.
    fn holds(&self, round: &Round, rate: f64) -> bool {
        let higher = rate > self.rate * 1.15 && round.flight_max * 20 > self.flight * 23;
        let most = self.regained.saturating_mul(SAW_ROUNDS);
        self.fell && !higher && (self.regained == 0 || self.rounds <= most)
    }
}

impl Round {
    /// Bursts that a pacer may send, each followed by as long a gap for its bytes.
    fn is_paced(&self) -> bool {
        // A pacer sends what is there; a short segment behind each burst is the end of a write.
        if self.bursts < 4 || self.lump_gap_max > PACED_GAP_NS_MAX || self.shorts * 4 > self.bursts
        {
            return false;
        }
        self.is_even(EVEN)
    }

    /// The square of what gaps vary by for their bytes is at most so much of their mean's.
    fn is_even(&self, most: f64) -> bool {
        let n = self.bursts.max(1) as f64;
        let mean = self.pace_sum / n;
        let variance = self.pace_square_sum / n - mean * mean;
        variance <= most * mean * mean
    }
}

/// A waiting time that is not yet a queue: what interrupts and schedulers add.
const QUEUE_NS_MIN: u64 = 50_000;
/// Of the time that data waited, what waited for no ACK is more than this where it was the application's,
const OWN_PART: f64 = 0.5;
/// and where flights are the same: half of the waits that end with an ACK would be many by chance.
const OWN_PART_FLAT: f64 = 0.75;
/// What a round's waits still weigh in the next.
const WAITS_KEPT: f64 = 0.75;
/// So much of what the narrowest link lets through fills it.
const NARROW_PART: f64 = 0.92;
/// A path that was idle for this part of a round was not full.
const IDLE_PART: u64 = 4;
/// A loss is expected again within so many times the rounds that it took to grow back: CUBIC takes as long
/// again to grow as far above (RFC 9438 section 4.2), Reno less.
const SAW_ROUNDS: u32 = 3;
/// Rounds that must show it.
const CAPACITY_SHOWN: u32 = 2;
/// Rounds that are kept for what later ones may show.
const OPEN_ROUNDS_MAX: usize = 64;
/// For so many rounds a path is what it was shown to be.
const CAPACITY_ROUNDS: u32 = 64;
/// Growth from round to round that only slow start has: with an ACK for every other segment it is
/// 1.5 at least (RFC 5681 section 3.1, byte counting off).
const GROWTH_SLOW_START: f64 = 1.45;
/// Rates that count as the same.
const RATE_SAME: f64 = 0.25;
/// Square of the variation of gaps that counts as even: half of the mean.
const EVEN: f64 = 0.25;
