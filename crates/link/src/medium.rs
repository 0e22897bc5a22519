//! A medium that the two ends of a link share: half duplex with collisions, and the mismatch of a
//! half-duplex end with a full-duplex one.
//!
//! The machine is the transmitter of IEEE 802.3 clause 4.2 (CSMA/CD) at each end of one cable: it
//! waits while it hears the other and for the gap after (4.2.3.2.1 and 4.2.3.2.2, with the gap's last
//! third as the part that no longer looks), sends, and when it hears the other meanwhile ends with a
//! jam (4.2.3.2.4) and tries again after a random number of slots (4.2.3.2.5), 16 times at most. An
//! end that is full duplex sends whenever it has something and hears nothing while it does; beside a
//! half-duplex end that is the fault which a wrong setting makes. Then collisions come late, after
//! the slot time, and what the half-duplex end was to receive while it sent is damaged.
//!
//! Both ends have their queue here, since the turn of one hangs on the other. Segments are sent one
//! by one. Nothing decided at one end bears on the other sooner than the cable's delay, each end has
//! draws of its own, and an arrival comes after all else at its instant: so what happens does not
//! hang on when the machine is told to go on.
//!
//! Simplified: times are whole nanoseconds, rounded up (exact at 10 Mb/s, 100 Mb/s and 1 Gb/s); at
//! 1 Gb/s frames are stretched to the slot (4.2.3.4) but never sent in bursts; no repeater between the
//! ends. The standard lets a MAC of up to 100 Mb/s try again after a late collision; common chips do
//! not, and neither does this one: TCP finds such a loss, which is what makes the fault expensive.

use std::collections::VecDeque;

use units::{Duration, Instant, Rate, Rng};

use crate::event::{Decision, DropCause, Event};
use crate::pair::{LinkLog, Way};
use crate::pipeline::{Change, Stage, Trains};
use crate::queue::{Backlog, Discipline, Pending};
use crate::spec::Duplex;
use crate::train::{Spacing, Train};

/// One end of the medium.
#[derive(Debug)]
pub struct End {
    /// How it takes the other.
    pub duplex: Duplex,
    /// Octets between frames, part of each train's `wire_bytes`.
    pub gap_bytes: u32,
    /// What waits there.
    pub discipline: Box<dyn Discipline>,
    /// Of its draws.
    pub seed: u64,
}

/// A medium with an end for each way.
#[derive(Debug)]
pub struct SharedMedium {
    times: Times,
    ends: [Station; 2],
}

/// How long things take.
#[derive(Clone, Copy, Debug)]
struct Times {
    rate_bits_per_second: u64,
    cable: Duration,
    slot: Duration,
    preamble: Duration,
    jam: Duration,
    /// A frame with its preamble occupies the medium at least so long.
    frame_min: Duration,
}

#[derive(Debug)]
struct Station {
    duplex: Duplex,
    gap_bytes: u32,
    gap: Duration,
    pending: Pending,
    discipline: Box<dyn Discipline>,
    /// What was handed out to be sent; the first segment is on its way or tries to be.
    rest: Option<Train>,
    /// Of `rest`, in bytes and packets.
    sent: Backlog,
    rng: Rng,
    /// Collisions of the first segment.
    attempts: u32,
    sending: Option<Sending>,
    /// The first segment is not sent before: it came, or its back-off ends.
    ready: Instant,
    /// The gap after what was last heard or sent ends.
    gap_at: Instant,
    /// The other began in the last third of the gap: this end will not wait for it.
    committed: bool,
    /// The other is heard.
    carrier: bool,
    /// What the other has sent and has not passed yet.
    incoming: VecDeque<Signal>,
}

#[derive(Clone, Copy, Debug)]
struct Sending {
    start: Instant,
    end: Instant,
    collision: Option<Collision>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Collision {
    Early,
    Late,
}

/// A frame or a part of one on its way to the end that has it in its list.
#[derive(Clone, Copy, Debug)]
struct Signal {
    on: Instant,
    /// `Instant::MAX` until the sender has stopped.
    off: Instant,
    /// The segment, if all of it was sent.
    whole: Option<Train>,
    /// Its receiver was sending.
    damaged: bool,
    heard: bool,
}

/// What can happen, in the order in which it does at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Stop,
    Silence,
    Start,
    Carrier,
    Arrival,
}

impl SharedMedium {
    /// A cable of `rate` both ways with a delay of `cable`; the end at place n sends way n.
    ///
    /// # Panics
    /// When the rate is zero or the delay is.
    pub fn new(rate: Rate, cable: Duration, ends: [End; 2]) -> Self {
        assert!(
            cable > Duration::ZERO,
            "a signal takes time from end to end"
        );
        let times = Times::new(rate, cable);
        Self {
            times,
            ends: ends.map(|end| Station::new(end, &times)),
        }
    }

    /// Takes a train that way `way` is to carry.
    pub fn handle(&mut self, way: Way, train: Train) {
        self.ends[way.place()].pending.push(train);
    }

    /// When something happens next.
    pub fn next_wakeup(&self) -> Option<Instant> {
        self.next().map(|(at, ..)| at)
    }

    /// Lets everything happen up to and including `to`; what leaves way n goes to place n of `out`.
    pub fn advance(&mut self, to: Instant, out: &mut [Trains; 2], log: &mut dyn LinkLog) {
        while let Some((at, step, way)) = self.next().filter(|(at, ..)| *at <= to) {
            match step {
                Step::Stop => self.stop(way, at, log),
                Step::Silence => self.silence(way, at, out, log),
                Step::Start => self.start(way, at),
                Step::Carrier => self.ends[way.place()].hear(at, &self.times),
                Step::Arrival => self.ends[way.place()].arrive(at, way, log),
            }
        }
    }

    /// Works otherwise from now on, if the change concerns the queue of that way.
    pub fn change(&mut self, way: Way, change: &Change) {
        if let Change::Limits(limits) = *change {
            self.ends[way.place()].discipline.set_limits(limits);
        }
    }

    /// Segments of that way inside.
    pub fn segments_held(&self, way: Way) -> u64 {
        let own = &self.ends[way.place()];
        let rest = own.rest.map_or(0, |run| u64::from(run.count));
        let flying = &self.ends[way.other().place()].incoming;
        let flying = flying.iter().filter(|s| s.whole.is_some()).count() as u64;
        own.pending.segments() + u64::from(own.discipline.backlog().packets) + rest + flying
    }

    /// What happens next, when and at which end.
    fn next(&self) -> Option<(Instant, Step, Way)> {
        let of = |way: Way| {
            let steps = self.ends[way.place()].steps();
            steps.filter_map(move |(at, step)| Some((at?, step, way)))
        };
        let all = of(Way::Forward).chain(of(Way::Backward));
        all.min_by_key(|&(at, step, way)| (at, step, way.place()))
    }

    fn start(&mut self, way: Way, now: Instant) {
        let times = self.times;
        self.ends[way.place()].start(now, &times);
        self.ends[way.other().place()].incoming.push_back(Signal {
            on: now + times.cable,
            off: Instant::MAX,
            whole: None,
            damaged: false,
            heard: false,
        });
    }

    /// The end of way `way` stops sending: all of a frame, or as much as a collision left of it.
    fn stop(&mut self, way: Way, now: Instant, log: &mut dyn LinkLog) {
        let cable = self.times.cable;
        let whole = self.ends[way.place()].stop(now, &self.times, way, log);
        let receiver = &mut self.ends[way.other().place()];
        if let Some(signal) = receiver.incoming.back_mut() {
            signal.off = now + cable;
            signal.whole = whole;
        }
    }

    /// The last of what the other sent has come to the end of way `way`.
    fn silence(&mut self, way: Way, now: Instant, out: &mut [Trains; 2], log: &mut dyn LinkLog) {
        let Some(signal) = self.ends[way.place()].fall_silent(now) else {
            return;
        };
        let Some(segment) = signal.whole else { return };
        if signal.damaged {
            let event = Event {
                stage: 0,
                train: segment,
                decision: Decision::lost(DropCause::CollisionFcs),
            };
            log.on_event(way.other(), &event);
        } else {
            out[way.other().place()].push(segment.gathered(now));
        }
    }
}

impl Times {
    fn new(rate: Rate, cable: Duration) -> Self {
        assert!(
            rate.as_bits_per_second() > 0,
            "a medium needs a rate above zero"
        );
        let mut times = Self {
            rate_bits_per_second: rate.as_bits_per_second(),
            cable,
            slot: Duration::ZERO,
            preamble: Duration::ZERO,
            jam: Duration::ZERO,
            frame_min: Duration::ZERO,
        };
        let slot_bits = slot_bits(rate);
        times.slot = times.of_bits(slot_bits);
        times.preamble = times.of_bits(PREAMBLE_BITS);
        times.jam = times.of_bits(JAM_BITS);
        times.frame_min = times.of_bits(PREAMBLE_BITS + slot_bits);
        times
    }

    /// Rounded up.
    fn of_bits(&self, bits: u64) -> Duration {
        let ns = (u128::from(bits) * NS_PER_S).div_ceil(u128::from(self.rate_bits_per_second));
        Duration::from_ns(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

impl Station {
    fn new(end: End, times: &Times) -> Self {
        Self {
            duplex: end.duplex,
            gap_bytes: end.gap_bytes,
            gap: times.of_bits(u64::from(end.gap_bytes) * 8),
            pending: Pending::default(),
            discipline: end.discipline,
            rest: None,
            sent: Backlog::default(),
            rng: Rng::new(end.seed),
            attempts: 0,
            sending: None,
            ready: Instant::ZERO,
            gap_at: Instant::ZERO,
            committed: false,
            carrier: false,
            incoming: VecDeque::with_capacity(4),
        }
    }

    /// When what would happen here.
    fn steps(&self) -> impl Iterator<Item = (Option<Instant>, Step)> + use<> {
        let first = self.incoming.front();
        // While one is heard the next has not come: the other end's frames do not overlap.
        let unheard = self.incoming.iter().find(|s| !s.heard);
        let ends = first.filter(|s| s.heard && s.off < Instant::MAX);
        [
            (self.sending.map(|s| s.end), Step::Stop),
            (ends.map(|s| s.off), Step::Silence),
            (self.next_start(), Step::Start),
            (unheard.map(|s| s.on), Step::Carrier),
            (self.pending.next_at(), Step::Arrival),
        ]
        .into_iter()
    }

    /// When the first segment will be sent, as far as is known.
    fn next_start(&self) -> Option<Instant> {
        if self.rest.is_none() || self.sending.is_some() {
            return None;
        }
        if self.duplex == Duplex::Full || !self.carrier {
            return Some(self.ready.max(self.gap_at));
        }
        (self.committed && self.ready <= self.gap_at).then_some(self.gap_at)
    }

    fn arrive(&mut self, now: Instant, way: Way, log: &mut dyn LinkLog) {
        if let Some(run) = self.pending.pop() {
            let mut log = way.of(log);
            self.discipline.enqueue(run, now, self.sent, &mut log);
            self.take_next(now, way, log.log);
        }
    }

    /// Takes what is to be sent next out of the queue, if nothing is.
    fn take_next(&mut self, now: Instant, way: Way, log: &mut dyn LinkLog) {
        if self.rest.is_none() {
            self.rest = self.discipline.dequeue(now, &mut way.of(log));
            self.sent = self.rest.map_or(self.sent, |run| self.sent.plus(&run));
            self.ready = now;
        }
    }

    fn start(&mut self, now: Instant, times: &Times) {
        let wire_bytes = self.rest.map_or(0, |run| run.wire_bytes);
        let bits = u64::from(wire_bytes.saturating_sub(self.gap_bytes)) * 8;
        let mut lasts = times.of_bits(bits.max(1));
        if self.duplex == Duplex::Half {
            // Carrier extension; up to 100 Mb/s the smallest frame is as long as that anyhow.
            lasts = lasts.max(times.frame_min);
        }
        self.sending = Some(Sending {
            start: now,
            end: now + lasts,
            collision: None,
        });
        self.committed = false;
        if self.carrier && self.duplex == Duplex::Half {
            self.collide(now, times);
        }
    }

    /// The other is heard from now on.
    fn hear(&mut self, now: Instant, times: &Times) {
        if let Some(signal) = self.incoming.iter_mut().find(|s| !s.heard) {
            signal.heard = true;
        }
        self.carrier = true;
        if self.duplex == Duplex::Full {
            return;
        }
        if self.sending.is_some() {
            self.collide(now, times);
        } else {
            let third = Duration::from_ns(self.gap.as_ns() / 3);
            self.committed = now < self.gap_at && now + third >= self.gap_at;
        }
    }

    /// This end hears the other while it sends.
    fn collide(&mut self, now: Instant, times: &Times) {
        if let Some(signal) = self.incoming.front_mut() {
            signal.damaged = true;
        }
        if let Some(sending) = self.sending.as_mut().filter(|s| s.collision.is_none()) {
            let late = now.saturating_since(sending.start) > times.slot;
            sending.collision = Some(if late {
                Collision::Late
            } else {
                Collision::Early
            });
            // The preamble is sent to its end, then the jam (4.2.3.2.4).
            sending.end = now.max(sending.start + times.preamble) + times.jam;
        }
    }

    /// Stops sending; the segment, where all of it was sent.
    fn stop(
        &mut self,
        now: Instant,
        times: &Times,
        way: Way,
        log: &mut dyn LinkLog,
    ) -> Option<Train> {
        let sending = self.sending.take()?;
        if self.duplex == Duplex::Full || !self.carrier {
            self.gap_at = now + self.gap;
        }
        let segment = self.rest?.part(0, 1);
        match sending.collision {
            None => {
                self.forget_first();
                let waits = self.waiting();
                let decision = Decision::Served {
                    departs: now,
                    spacing: Spacing::TOGETHER,
                    queue_bytes: waits.bytes,
                    queue_packets: waits.packets,
                };
                self.say(segment, decision, way, log);
            }
            Some(Collision::Early) if self.attempts + 1 < ATTEMPTS_MAX => {
                self.attempts += 1;
                let slots = self.draw_slots();
                self.ready = now + times.slot.saturating_mul(slots);
                let attempt = self.attempts;
                self.say(segment, Decision::Collided { attempt }, way, log);
                return None;
            }
            Some(collision) => {
                let inside = self.discipline.backlog().and(self.sent);
                let decision = Decision::Dropped {
                    cause: match collision {
                        Collision::Early => DropCause::ExcessiveCollisions,
                        Collision::Late => DropCause::LateCollision,
                    },
                    queue_bytes: inside.bytes,
                    queue_packets: inside.packets,
                    limit_bytes: 0,
                };
                self.forget_first();
                self.say(segment, decision, way, log);
            }
        }
        self.take_next(now, way, log);
        sending.collision.is_none().then_some(segment)
    }

    /// What the other sent has passed.
    fn fall_silent(&mut self, now: Instant) -> Option<Signal> {
        self.carrier = false;
        let goes_on = self.committed && now < self.gap_at;
        if self.duplex == Duplex::Half && self.sending.is_none() && !goes_on {
            self.gap_at = now + self.gap;
        }
        self.incoming.pop_front()
    }

    /// The first segment is done with.
    fn forget_first(&mut self) {
        self.attempts = 0;
        if let Some(run) = self.rest {
            self.sent = self.sent.minus(&run.part(0, 1));
            self.rest = (run.count > 1).then(|| run.part(1, run.count - 1));
        }
    }

    /// What waits behind the segment that was just sent.
    fn waiting(&self) -> Backlog {
        let waits = self.discipline.backlog();
        self.rest.map_or(waits, |rest| waits.plus(&rest))
    }

    /// Slots to wait after the n-th collision: 0 to 2^min(n, 10) - 1 (4.2.3.2.5).
    fn draw_slots(&mut self) -> u64 {
        self.rng.next_u64() >> (64 - self.attempts.clamp(1, BACKOFF_LIMIT))
    }

    fn say(&self, train: Train, decision: Decision, way: Way, log: &mut dyn LinkLog) {
        let event = Event {
            stage: 0,
            train,
            decision,
        };
        log.on_event(way, &event);
    }
}

/// Bits of a slot: the time that an end must send to be sure that all hear it (IEEE 802.3, 4.4.2: 512
/// up to 100 Mb/s, 4096 at 1 Gb/s).
pub fn slot_bits(rate: Rate) -> u64 {
    if rate.as_bits_per_second() > 100_000_000 {
        4_096
    } else {
        512
    }
}

/// The longest cable with which every collision of two half-duplex ends comes within the slot: there,
/// back, and the jam.
pub fn cable_max(rate: Rate) -> Duration {
    let bits = (slot_bits(rate) - JAM_BITS) / 2;
    let ns = u128::from(bits) * NS_PER_S / u128::from(rate.as_bits_per_second().max(1));
    Duration::from_ns(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// The medium's place in the row of a direction's stages: what comes to it goes to the [`SharedMedium`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtMedium;

impl Stage for AtMedium {
    fn name(&self) -> &'static str {
        "medium"
    }

    fn handle(&mut self, train: Train, out: &mut Trains, _: &mut dyn crate::event::Log) {
        out.push(train);
    }
}

/// IEEE 802.3, 4.2.5: seven octets of preamble and the start delimiter.
const PREAMBLE_BITS: u64 = 64;
/// IEEE 802.3, 4.4.2: jamSize, attemptLimit, backoffLimit.
const JAM_BITS: u64 = 32;
const ATTEMPTS_MAX: u32 = 16;
const BACKOFF_LIMIT: u32 = 10;
const NS_PER_S: u128 = 1_000_000_000;

#[cfg(test)]
mod tests;
