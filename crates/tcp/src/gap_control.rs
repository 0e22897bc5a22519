//! Dynamic gap control: finds a path's bottleneck with no rate given and holds a sender just under it.
//!
//! The seed's instrument set the gap between packets by hand, or by an algorithm that was never
//! published; this one is ours. It is a ceiling on a sender's pacing rate (`SO_MAX_PACING_RATE`, or a gap
//! in octets in the model), moved by what the sender's kernel reports of the connection: bytes
//! delivered, bytes sent again, round trip. The congestion control beneath keeps the window; the ceiling
//! keeps it from filling the queue.
//!
//! ```text
//!  Startup -- queue grows, or delivery does not --> Drain ---> Hold ---> Probe ---> Judge
//!                                                     ^         |  ^                  |
//!                                                     +- queue -+  +-- rate kept or --+
//!                                                                        taken back
//! ```
//!
//! * **Startup** leaves the congestion control to itself, at no more than some twice of what was
//!   delivered in the last round trip, until the queue grows or delivery stalls. **Drain** stays well
//!   below the rate until the queue is gone.
//! * **Hold** keeps a share ([`HELD`]) of the rate found. A queue that stands although nothing here
//!   probes is a neighbour's probe, or a path that became slower: the ceiling yields as large a share of
//!   itself as the queue is of the round trip, which is by how much the path was asked for too much. After
//!   a yield larger than any probe asks for, the next probe asks, once, for what there was before: bursts of
//!   others, or of a busy machine, go as they come.
//! * **Probe** raises the ceiling by a step for one round trip; **Judge** looks at it one round trip
//!   later. If delivery rose and the queue did not, the new rate is kept and the next step is twice as
//!   large; otherwise it is taken back, but for what was delivered more meanwhile. Steps are so large that
//!   their queue is just seen, thus alike for all, yields a share of one's own: as with any additive
//!   increase and multiplicative decrease, flows that share a bottleneck come to equal parts (Chiu and
//!   Jain 1989, "Analysis of the increase and decrease algorithms for congestion avoidance in computer
//!   networks").
//! * **Loss** in Hold, with an empty queue, is not congestion. It is answered by nothing but advice
//!   ([`Ride`]): a congestion control that halves on such losses cannot fill the path under whatever
//!   ceiling. Where more than [`LOSS_MAX`] of the bytes is lost, what is delivered is all that the path
//!   takes (a policer shows no queue), and the ceiling goes there.
//! * **A stall** of path or machine, in which nothing is delivered, leaves a queue and a burst that are
//!   nobody's doing: the queue is drained, and no rate judged by either.
//!
//! It assumes one bottleneck at a time; that a queue shows in the round trip or in loss; that the
//! connection has data to send, held up neither by its application nor by the receiver's window
//! (readings that say so are not judged); and round trips that are good to some 0.1 ms.

use std::collections::VecDeque;

use units::{Duration, Instant, Rate};

/// Share of the rate found that is held.
pub const HELD: f64 = 0.985;

/// Share of bytes lost beyond which delivery, not the queue, says what the path takes.
pub const LOSS_MAX: f64 = 0.02;

/// Startup's ceiling, of what was delivered last: a window doubles each round trip below it.
const STARTUP_GAIN: f64 = 2.2;

/// Drain's ceiling, of the rate found.
const DRAIN_GAIN: f64 = 0.8;

/// A probe's first step, of the rate found.
const STEP: f64 = 1.0 / 24.0;

/// A probe's largest step, of the rate it starts from.
const STEP_MAX: f64 = 0.5;

/// Largest share of its own rate by which a ceiling yields to a queue that it did not make.
const YIELD_MAX: f64 = 1.0 / 8.0;

/// A queue is there when the round trip is longer by this part of its base ...
const QUEUE_SHARE: u64 = 32;

/// ... and by this at least: less is scheduling.
const QUEUE_MIN: Duration = Duration::from_us(500);

/// By so much a loaded round trip may be longer than an idle one without a queue: senders hand over
/// about a millisecond's worth at once (`tcp_tso_autosize`), whose last segment waits for the others.
const BURST: Duration = Duration::from_us(1_000);

/// Shortest time over which a rate is judged: below it bursts and stamps are too coarse.
const ROUND_MIN: Duration = Duration::from_ms(20);

/// Where nothing is delivered for this long, an eighth of the round trip and the time of
/// [`STALL_BYTES`], something stands still: a queue does not keep a path from delivering.
const STALL: Duration = Duration::from_ms(4);

/// More than two large segments, which are delivered at once.
const STALL_BYTES: f64 = 32_768.0;

/// Rounds after a stall in which a queue is what it left behind, and rates are what catches up.
const STALL_ROUNDS: u64 = 2;

/// Weight of what a probe's queue says of the rate against what was known.
const NEW_WEIGHT: f64 = 0.5;

/// Rounds from a probe that was taken back to the next.
const REST_ROUNDS: u64 = 4;

/// How often that doubles while probes are refused in a row.
const REFUSED_MAX: u32 = 2;

/// Rounds for which a probe waits for the congestion control to use it: one more than BBR's cycle.
const UNUSED_ROUNDS: u64 = 9;

/// Rounds over which losses are counted: one burst of them says nothing of the rate.
const LOSS_ROUNDS: u64 = 3;

/// Rounds after which what does not drain is taken for a longer path.
const DRAIN_ROUNDS: u64 = 8;

/// Rounds of Hold after which what was there before a dip is asked for: others' bursts are short.
const YIELD_ROUNDS: u64 = 1;

/// A yield of more than this share is a dip: a neighbour's probe asks for less, and what it asks for is to become its own.
const DIP: f64 = 0.06;

/// Readings kept, at most.
const READINGS: usize = 112;

/// What a sender's kernel says of a connection at one moment. Counts are since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Bytes that the receiver has, by ACK or SACK (`tcpi_delivered` segments).
    pub delivered: u64,
    /// Bytes sent again (`tcpi_bytes_retrans`).
    pub retransmitted: u64,
    /// Round trip of late (`tcpi_rtt`); zero where none was measured yet.
    pub round_trip: Duration,
    /// The application or the receiver's window held the sender up since the last reading.
    pub held_up: bool,
}

/// The congestion control that a ceiling is best put on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ride {
    /// Any: no loss was seen that the ceiling would not prevent. One that does not probe of itself
    /// (CUBIC, Reno) leaves the queue alone.
    Any,
    /// One that does not halve at each loss (BBR): there are losses that have nothing to do with the rate.
    LossTolerant,
}

/// Where the search stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The rate is not known yet.
    Startup,
    /// Well below the rate until the queue is gone.
    Drain,
    /// Just under the rate.
    Hold,
    /// Above it for a round trip.
    Probe,
    /// Just under it again, waiting for the probe's echo.
    Judge,
}

/// The controller of one connection.
#[derive(Clone, Debug)]
pub struct GapControl {
    phase: Phase,
    /// The rate found, bytes a second.
    rate: f64,
    /// By how much the next probe goes up, bytes a second.
    step: f64,
    /// The step of a probe that shows as a queue, and hardly more.
    visible: f64,
    /// This Drain follows Startup: the rate is not quite known.
    learns: bool,
    /// It followed Startup with a queue, whose delivery is the path's rate.
    had_queue: bool,
    /// This Drain has taken delivery for the rate.
    followed: bool,
    /// Lowest ceiling of this Drain, of the rate found.
    drain_gain: f64,
    /// Draws that keep flows' probes apart.
    rng: u64,
    /// Rounds of Hold before the next probe.
    rest: u64,
    /// The probe lasts until the congestion control has used it.
    waits_for_use: bool,
    /// Probes taken back in a row at this rate.
    refused: u32,
    /// What had been found before a dip, until a probe has asked whether it is there again.
    before_yield: Option<f64>,
    /// The probe asks that.
    asks_back: bool,
    ride: Ride,
    /// Shortest round trip, and the shortest since the last Drain began.
    base: Duration,
    base_lately: Duration,
    /// Readings of the last two rounds.
    window: VecDeque<Count>,
    startup: Startup,
    /// What had been counted when the phase began, and the one before.
    entered: Count,
    entered_before: Count,
    /// Since when there is a queue; now, where there is none.
    queued_since: Instant,
    /// Bytes sent again until Hold had lasted two rounds.
    calm: Option<u64>,
    /// Since when Hold counts losses.
    loss_from: Count,
    /// When delivery went on last, and until when a stall is to blame for queues and rates.
    moved: Count,
    excused_until: Instant,
    /// Longest queue of the phase, or, in Judge, since the probe began.
    queue_max: Duration,
    /// Queue when the probe began.
    queue_before: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    at: Instant,
    delivered: u64,
    retransmitted: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Startup {
    /// Highest delivery, bytes a second.
    best: f64,
    /// What it has to exceed by a quarter.
    mark: f64,
    /// Rounds in which it did not.
    flat: u32,
    round_began: Instant,
}

impl Count {
    /// Bytes a second from `self` to `later`.
    fn rate_to(&self, later: &Self) -> f64 {
        let time = later.at.saturating_since(self.at).as_s_f64();
        if time > 0.0 {
            later.delivered.saturating_sub(self.delivered) as f64 / time
        } else {
            0.0
        }
    }

    /// Share of what was sent from `self` to `later` that was lost.
    fn loss_to(&self, later: &Self) -> f64 {
        let lost = later.retransmitted.saturating_sub(self.retransmitted) as f64;
        let delivered = later.delivered.saturating_sub(self.delivered) as f64;
        if lost > 0.0 {
            lost / (lost + delivered)
        } else {
            0.0
        }
    }
}

impl GapControl {
    /// A controller that knows nothing yet. Flows on one path need different seeds.
    pub fn new(seed: u64) -> Self {
        Self {
            phase: Phase::Startup,
            rate: 0.0,
            step: 0.0,
            visible: 0.0,
            learns: false,
            had_queue: false,
            followed: false,
            drain_gain: DRAIN_GAIN,
            rng: seed | 1,
            rest: 1,
            waits_for_use: false,
            refused: 0,
            before_yield: None,
            asks_back: false,
            ride: Ride::Any,
            base: Duration::from_ns(u64::MAX),
            base_lately: Duration::from_ns(u64::MAX),
            window: VecDeque::with_capacity(READINGS + 1),
            startup: Startup::default(),
            entered: Count::default(),
            entered_before: Count::default(),
            queued_since: Instant::ZERO,
            calm: None,
            loss_from: Count::default(),
            moved: Count::default(),
            excused_until: Instant::ZERO,
            queue_max: Duration::ZERO,
            queue_before: Duration::ZERO,
        }
    }

    /// Searches from where it is as at the beginning: the congestion control was changed.
    pub fn restart(&mut self, now: Instant) {
        self.startup = Startup {
            round_began: now,
            ..Startup::default()
        };
        self.window.clear();
        self.phase = Phase::Startup;
        self.queue_max = Duration::ZERO;
    }

    /// Where the search stands.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// What the ceiling is best put on.
    pub const fn ride(&self) -> Ride {
        self.ride
    }

    /// The rate found (of bytes as [`Reading::delivered`] counts them); `None` before there is one.
    pub fn found(&self) -> Option<Rate> {
        (self.phase != Phase::Startup).then(|| rate_of(self.rate))
    }

    /// When the next reading should come: after a sixteenth of a round trip, 1 to 25 ms.
    pub fn interval(&self) -> Duration {
        let sixteenth = self.base.as_ns() / 16;
        Duration::from_ns(sixteenth.clamp(1_000_000, 25_000_000))
    }

    /// Takes a reading, later than all before. Returns the ceiling from now on, in bits of delivered
    /// bytes a second; `None` leaves the sender to itself.
    pub fn on_reading(&mut self, now: Instant, reading: &Reading) -> Option<Rate> {
        if reading.round_trip == Duration::ZERO {
            return self.ceiling();
        }
        let count = Count {
            at: now,
            delivered: reading.delivered,
            retransmitted: reading.retransmitted,
        };
        self.base = self.base.min(reading.round_trip);
        self.base_lately = self.base_lately.min(reading.round_trip);
        if reading.held_up {
            // What is delivered says nothing of the path now, and a probe cannot be judged.
            self.window.clear();
            self.moved = count;
            match self.phase {
                Phase::Startup => {}
                _ => {
                    self.waits_for_use = false;
                    self.enter(Phase::Hold, count);
                }
            }
            return self.ceiling();
        }
        let moves = self.moves(count);
        self.remember(count);
        if !moves && self.phase != Phase::Startup {
            // Nothing new is known.
            return self.ceiling();
        }
        let floor = match self.phase {
            Phase::Startup => self.base,
            _ => self.base_lately.min(self.base + BURST),
        };
        let queue = reading.round_trip.as_ns().saturating_sub(floor.as_ns());
        let queue = Duration::from_ns(queue);
        self.queue_max = self.queue_max.max(queue);
        if queue < self.queue_least() {
            self.queued_since = now;
        }
        match self.phase {
            Phase::Startup => self.start_up(count, queue),
            Phase::Drain => self.drain(count, queue),
            Phase::Hold => self.hold(count, queue),
            Phase::Probe => self.probe(count, queue),
            Phase::Judge => self.judge(count, queue),
        }
        self.ceiling()
    }

    fn ceiling(&self) -> Option<Rate> {
        let bytes_per_second = match self.phase {
            Phase::Startup => self.startup.best * STARTUP_GAIN,
            Phase::Drain => self.rate * self.drain_gain,
            Phase::Hold | Phase::Judge => self.rate * HELD,
            Phase::Probe => self.rate * HELD + self.step,
        };
        (bytes_per_second > 0.0).then(|| rate_of(bytes_per_second))
    }

    /// The time over which a rate is judged.
    fn round(&self) -> Duration {
        self.base.max(ROUND_MIN)
    }

    /// The least that counts as a queue.
    fn queue_least(&self) -> Duration {
        Duration::from_ns(self.base.as_ns() / QUEUE_SHARE).max(QUEUE_MIN)
    }

    fn age(&self, count: &Count) -> Duration {
        count.at.saturating_since(self.entered.at)
    }

    fn enter(&mut self, phase: Phase, count: Count) {
        self.phase = phase;
        self.entered_before = self.entered;
        self.calm = None;
        self.entered = count;
        self.loss_from = count;
        if phase != Phase::Judge {
            self.queue_max = Duration::ZERO;
        }
        if phase == Phase::Drain {
            self.base_lately = Duration::from_ns(u64::MAX);
        }
    }

    /// True when something was delivered since the last reading. A machine or a path that stood still
    /// leaves a queue and a burst, which say nothing of the rate.
    fn moves(&mut self, count: Count) -> bool {
        if count.delivered == self.moved.delivered {
            return false;
        }
        let still = count.at.saturating_since(self.moved.at);
        let least = STALL.max(Duration::from_ns(self.base.as_ns() / 8)) + self.interval();
        let is_stall = self.phase != Phase::Startup
            && still >= least
            && still.as_s_f64() * self.rate >= STALL_BYTES;
        self.moved = count;
        if is_stall {
            let rounds = Duration::from_ns(self.round().as_ns() * STALL_ROUNDS);
            self.excused_until = count.at + still.min(rounds) + rounds;
        }
        true
    }

    fn is_excused(&self, now: Instant) -> bool {
        now < self.excused_until
    }

    /// Keeps two rounds of readings, no closer than a 48th of a round.
    fn remember(&mut self, count: Count) {
        let round = self.round();
        let kept = self.window.len();
        if kept >= 2 {
            let since = count.at.saturating_since(self.window[kept - 2].at);
            if since.as_ns() < round.as_ns() / 48 {
                self.window.pop_back();
            }
        }
        self.window.push_back(count);
        let old = |at: Instant| count.at.saturating_since(at).as_ns() >= round.as_ns() * 2;
        while self.window.len() > READINGS || (self.window.len() > 2 && old(self.window[1].at)) {
            self.window.pop_front();
        }
    }

    /// Bytes a second delivered of late, over at least `span`.
    fn delivered(&self, span: Duration) -> Option<f64> {
        let last = self.window.back()?;
        let long = |first: &&Count| last.at.saturating_since(first.at) >= span;
        let first = self.window.iter().rev().find(long)?;
        Some(first.rate_to(last))
    }

    /// The same over the `span` before that.
    fn delivered_before(&self, span: Duration) -> Option<f64> {
        let end = self.window.back()?.at;
        let far = |n: u64| move |c: &&Count| end.saturating_since(c.at).as_ns() >= span.as_ns() * n;
        let last = self.window.iter().rev().find(far(1))?;
        let first = self.window.iter().rev().find(far(2))?;
        Some(first.rate_to(last))
    }

    fn start_up(&mut self, count: Count, queue: Duration) {
        let round = self.round();
        // Delivery doubles each round: half of one says what the whole would have hidden.
        let Some(delivered) = self.delivered(Duration::from_ns(round.as_ns() / 2)) else {
            return;
        };
        let startup = &mut self.startup;
        startup.best = startup.best.max(delivered);
        if startup.best >= startup.mark * 1.25 {
            startup.mark = startup.best;
            startup.flat = 0;
            startup.round_began = count.at;
        } else if count.at.saturating_since(startup.round_began) >= round {
            startup.flat += 1;
            startup.round_began = count.at;
        }
        let flat = startup.flat >= 3;
        if count.retransmitted > 0 && self.queue_max < self.queue_least() {
            self.ride = Ride::LossTolerant;
        }
        let lossy = self
            .window
            .front()
            .is_some_and(|c| c.loss_to(&count) > LOSS_MAX);
        // Among others delivery goes on rising with a queue there: their share becomes ours.
        let of_round = self.delivered(round).unwrap_or(delivered);
        let rising = self
            .delivered_before(round)
            .is_none_or(|before| of_round > before * 1.3);
        let full = queue >= self.queue_least() && !rising;
        let deep = queue.as_ns() >= self.queue_least().as_ns() * 4;
        if full || deep || lossy || flat {
            self.rate = self.startup.best;
            self.had_queue = full || deep;
            self.visible = self.rate * STEP;
            self.learns = true;
            self.go_drain(count, queue);
        }
    }

    fn go_drain(&mut self, count: Count, queue: Duration) {
        let round = self.round();
        self.drain_gain = (HELD - queue.as_s_f64() / round.as_s_f64()).max(0.5);
        self.enter(Phase::Drain, count);
    }

    fn drain(&mut self, count: Count, queue: Duration) {
        let round = self.round();
        let age = self.age(&count);
        // For a round trip the path still delivers what came before, at its own rate if it had a queue.
        if self.learns && age >= self.base {
            self.learns = false;
            if let Some(delivered) = self.delivered(round)
                && !self.is_excused(count.at)
            {
                self.rate = match self.had_queue {
                    true => delivered,
                    false => self.rate.max(delivered),
                };
            }
        }
        let empty = queue.as_ns() * 2 < self.queue_least().as_ns();
        if !self.followed
            && !self.is_excused(count.at)
            && age.as_ns() >= round.as_ns() * 2
            && queue.as_ns() >= self.queue_least().as_ns() * 4
        {
            // It empties far too slowly: the path is slower than thought, and delivers all it can.
            if let Some(delivered) = self.delivered(round).filter(|d| *d < self.rate) {
                self.yields_to(delivered.max(self.rate / 2.0));
                self.go_drain(count, queue);
                self.followed = true;
                return;
            }
        }
        let late = age.as_ns() >= round.as_ns() * DRAIN_ROUNDS;
        if late && !empty {
            // What nothing empties is no queue of ours: the path became longer.
            self.base = self.base_lately;
        }
        if late || (empty && age >= self.base) {
            self.followed = false;
            self.learns = false;
            self.step = self.first_step();
            self.enter(Phase::Hold, count);
        }
    }

    /// Lowers the rate for a queue that is not ours, and remembers where it was.
    fn yields_to(&mut self, rate: f64) {
        let was = self.before_yield.unwrap_or(self.rate).max(self.rate);
        self.before_yield = Some(was).filter(|was| rate < was * (1.0 - DIP));
        self.rate = rate;
    }

    fn first_step(&self) -> f64 {
        self.visible.min(self.rate * STEP_MAX)
    }

    /// Rounds until the next probe: [`REST_ROUNDS`] to twice as many, and the longer the more were refused.
    fn draw_rest(&mut self) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        let rounds = REST_ROUNDS << self.refused.min(REFUSED_MAX);
        rounds + self.rng % rounds
    }

    fn hold(&mut self, count: Count, queue: Duration) {
        let round = self.round();
        let age = self.age(&count);
        if age < round {
            return;
        }
        if self.is_excused(count.at) {
            self.loss_from = count;
        }
        let counted = count.at.saturating_since(self.loss_from.at);
        if counted.as_ns() >= round.as_ns() * LOSS_ROUNDS
            && self.loss_from.loss_to(&count) > LOSS_MAX
        {
            self.rate = self.rate.min(self.loss_from.rate_to(&count));
            self.go_drain(count, queue);
            return;
        }
        let stands = count.at.saturating_since(self.queued_since);
        if stands.as_ns() >= round.as_ns() / 2 {
            if self.is_excused(self.queued_since) || self.is_excused(count.at) {
                self.go_drain(count, queue);
                return;
            }
            let over = self.queue_max.as_s_f64() / round.as_s_f64();
            self.yields_to(self.rate * (1.0 - over.min(YIELD_MAX)));
            self.refused = 0;
            self.rest = self.draw_rest();
            self.go_drain(count, queue);
            return;
        }
        // What is sent again now was lost in Hold, not in what was before.
        if age.as_ns() >= round.as_ns() * 2 {
            let calm = *self.calm.get_or_insert(count.retransmitted);
            if count.retransmitted > calm && self.queue_max < self.queue_least() {
                self.ride = Ride::LossTolerant;
            }
        }
        // Whoever came may be gone.
        let rest = match self.before_yield {
            Some(_) => self.rest.min(YIELD_ROUNDS),
            None => self.rest,
        };
        if age.as_ns() >= round.as_ns() * rest {
            self.asks_back = false;
            if let Some(was) = self.before_yield {
                let back = ((was - self.rate) * HELD).min(self.rate * STEP_MAX);
                if back > self.step {
                    self.asks_back = true;
                    self.step = back;
                } else {
                    self.before_yield = None;
                }
            }
            self.enter(Phase::Probe, count);
            self.queue_before = queue;
        }
    }

    fn probe(&mut self, count: Count, queue: Duration) {
        let round = self.round();
        let age = self.age(&count);
        let over = match self.waits_for_use {
            false => age >= round,
            true => {
                let shows = self.is_used(self.delivered(round)) || queue >= self.queue_least();
                shows || age.as_ns() >= round.as_ns() * UNUSED_ROUNDS
            }
        };
        if over {
            self.enter(Phase::Judge, count);
        }
    }

    /// True when about half of a probe's step or more was delivered.
    fn is_used(&self, delivered: Option<f64>) -> bool {
        delivered.is_some_and(|delivered| delivered >= self.rate * HELD + self.step * 0.4)
    }

    fn judge(&mut self, count: Count, queue: Duration) {
        let round = self.round();
        // The probe's last packet is answered a round trip after it left.
        if self.age(&count).as_ns() < self.base.as_ns() + round.as_ns() / 16 {
            return;
        }
        if self.is_excused(self.entered_before.at) || self.is_excused(count.at) {
            self.waits_for_use = false;
            self.rest = 1;
            self.leave_judge(count, queue);
            return;
        }
        let held = self.rate * HELD;
        let tried = held + self.step;
        // The queue of a bottleneck that takes no more than before.
        let excess = self.step / tried * round.as_s_f64();
        let grown = self.queue_max.as_s_f64() - self.queue_before.as_s_f64();
        let queued = grown > excess * 0.4 && grown > QUEUE_MIN.as_s_f64() / 3.0;
        let lost = self.entered_before.loss_to(&count);
        let lossy = lost > (self.step / tried * 0.3).min(LOSS_MAX);
        let used = self.is_used(self.delivered(round));
        if !queued && !lossy && !used && !self.waits_for_use {
            // The congestion control did not follow. BBR does one round in eight.
            self.waits_for_use = true;
            self.enter(Phase::Probe, count);
            return;
        }
        self.waits_for_use = false;
        if !queued && !lossy && used {
            self.rate = tried;
            self.step = match std::mem::take(&mut self.asks_back) {
                true => self.first_step(),
                false => (self.step * 2.0).min(self.rate * STEP_MAX),
            };
            self.rest = 0;
            self.refused = 0;
            self.enter(Phase::Hold, count);
            return;
        }
        self.rest = self.draw_rest();
        let foreign = grown > excess * 1.5 + QUEUE_MIN.as_s_f64();
        if let Some(delivered) = self.delivered(round).filter(|_| queued) {
            // With a queue standing the path delivers all it can. Less than thought may be a neighbour's doing,
            // or of a sender that dipped before the queue was there.
            let stood =
                count.at.saturating_since(self.queued_since).as_ns() >= round.as_ns() / 4 * 3;
            if delivered > self.rate || (stood && !foreign) {
                self.rate += (delivered.min(tried) - self.rate) * NEW_WEIGHT;
            }
        }
        if std::mem::take(&mut self.asks_back) {
            // Others have it; what shows as a queue was not asked.
            self.before_yield = None;
        } else if foreign {
            // More than the probe can have made: somebody else's, and nothing learnt.
            self.rest = 1 + self.rest % 2;
        } else {
            // The next one is to show as half as much again as what counts as a queue: to others too.
            let wanted = self.queue_least().as_s_f64() * 1.5;
            let more = if lossy {
                0.5
            } else {
                (wanted / grown.max(1e-6)).clamp(0.5, 2.0)
            };
            self.visible = self.step * more;
            self.refused += 1;
        }
        self.step = self.first_step();
        self.leave_judge(count, queue);
    }

    fn leave_judge(&mut self, count: Count, queue: Duration) {
        if queue >= self.queue_least() {
            self.go_drain(count, queue);
        } else {
            self.enter(Phase::Hold, count);
        }
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what fits"
)]
fn rate_of(bytes_per_second: f64) -> Rate {
    Rate::from_bits_per_second((bytes_per_second * 8.0).clamp(8.0, 1e15) as u64)
}
