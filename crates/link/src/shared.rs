//! One buffer for the output queues of all ports of a switch, with dynamic thresholds.
//!
//! A queue may hold at most alpha times what is free of the buffer (A. K. Choudhury and E. L. Hahne,
//! "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", IEEE/ACM Transactions on
//! Networking 6(2), 1998): a burst at one port takes more while the others are idle, and what it
//! takes lowers the threshold of all.
//!
//! Whether a segment finds room hangs on all queues at the moment at which it comes. So they are
//! settled together: whichever pipeline asks first lets everything happen in all of them up to its
//! time, in the order of time; at one instant departures before arrivals, and arrivals in the
//! order of their ports. What was decided for other ports is kept until their own pipelines ask. How
//! often, how late and in which order they do changes nothing, as long as what comes is put in
//! before anyone settles a later time; what is put in later counts from then, at whichever port.
//!
//! Left out: memory in cells, headroom and reserves of each port, priorities, pushing out what has
//! been taken in.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use units::{Bytes, Duration, Instant};

use crate::event::{Decision, DropCause, Event, Log};
use crate::pipeline::{Change, Stage, Trains};
use crate::queue::{Backlog, Queue};
use crate::train::Train;

/// A buffer, to which queues are added. Copies are the same buffer.
#[derive(Clone, Debug)]
pub struct SharedBuffer {
    /// The queues are stages of several pipelines; one thread drives them all.
    inner: Arc<Mutex<Inner>>,
}

/// How much a queue may hold: this many 1024ths of what is free, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alpha(u32);

/// A queue in a buffer, as a stage.
#[derive(Debug)]
struct Port {
    buffer: SharedBuffer,
    number: usize,
}

#[derive(Debug)]
struct Inner {
    bytes: u64,
    alpha: Alpha,
    ports: Vec<PortQueue>,
    /// Everything before this has happened, and all departures at it.
    settled: Instant,
    out: Trains,
}

#[derive(Debug)]
struct PortQueue {
    queue: Queue,
    /// What was decided and its pipeline has not asked for, with the time at which it was.
    decided: VecDeque<(Instant, Decided)>,
}

#[derive(Clone, Copy, Debug)]
enum Decided {
    Event(Event),
    Leaves(Train),
}

/// Keeps events with the time at which they happen.
struct Keeper<'a> {
    at: Instant,
    decided: &'a mut VecDeque<(Instant, Decided)>,
}

impl Log for Keeper<'_> {
    fn on_event(&mut self, event: &Event) {
        self.decided.push_back((self.at, Decided::Event(*event)));
    }
}

impl Alpha {
    /// `alpha` rounded to 1024ths; `None` unless it is one of them at least and at most 1024.
    pub fn new(alpha: f64) -> Option<Self> {
        let parts = (alpha * 1024.0).round();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "within the range that is checked"
        )]
        (1.0..=1_048_576.0)
            .contains(&parts)
            .then_some(Self(parts as u32))
    }

    /// How much a queue may hold when `free` bytes are.
    pub fn threshold(self, free: u64) -> u64 {
        let limit = u128::from(free) * u128::from(self.0) / 1024;
        u64::try_from(limit).unwrap_or(u64::MAX)
    }

    /// The most that one queue ever holds of a buffer of so many bytes in frames of `frame`: what it
    /// takes up to alpha / (1 + alpha) of it, and a frame.
    pub fn most(self, buffer: Bytes, frame: u32) -> Bytes {
        let a = u128::from(self.0);
        let part = u128::from(buffer.as_u64()) * a / (1024 + a);
        let part = u64::try_from(part).unwrap_or(u64::MAX);
        Bytes::new(part.saturating_add(frame.into())).min(buffer)
    }
}

impl SharedBuffer {
    /// An empty buffer of so many bytes on the wire.
    pub fn new(bytes: Bytes, alpha: Alpha) -> Self {
        let inner = Inner {
            bytes: bytes.as_u64(),
            alpha,
            ports: Vec::new(),
            settled: Instant::ZERO,
            out: Trains::default(),
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
        }
    }

    /// A stage with this queue, which shares the buffer. Nothing in front of it in its pipeline may
    /// delay what passes.
    pub fn join(&self, queue: Queue) -> Box<dyn Stage> {
        let mut inner = self.lock();
        inner.ports.push(PortQueue {
            queue,
            decided: VecDeque::new(),
        });
        Box::new(Port {
            buffer: self.clone(),
            number: inner.ports.len() - 1,
        })
    }

    /// A panic of another holder leaves counts that may be wrong, but no danger.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Lets everything happen in all queues before `to`, and what leaves at it. What comes at it waits
    /// until all that does is known.
    fn settle(&mut self, to: Instant) {
        loop {
            let ports = self.ports.iter().enumerate();
            let service = ports
                .clone()
                .filter_map(|(n, p)| Some((p.queue.next_service()?, n)));
            let service = service.min().filter(|&(at, _)| at <= to);
            let arrival = ports.filter_map(|(n, p)| Some((p.queue.next_arrival()?, n)));
            let arrival = arrival.min().filter(|&(at, _)| at < to);
            match (arrival, service) {
                (Some((at, n)), Some((s, _))) if at < s => self.arrive(n, at),
                (_, Some((s, n))) => self.serve(n, s),
                (Some((at, n)), None) => self.arrive(n, at),
                (None, None) => break,
            }
        }
        self.settled = self.settled.max(to);
    }

    fn serve(&mut self, number: usize, start: Instant) {
        let Some(port) = self.ports.get_mut(number) else {
            return;
        };
        let mut log = Keeper {
            at: start,
            decided: &mut port.decided,
        };
        port.queue.serve_next(start, &mut self.out, &mut log);
        for train in self.out.drain() {
            port.decided.push_back((start, Decided::Leaves(train)));
        }
    }

    /// The segments that come to a port together next: those that find room are queued.
    fn arrive(&mut self, number: usize, at: Instant) {
        let mut held = 0;
        for port in &mut self.ports {
            held += port.queue.inside(at).bytes;
        }
        let (bytes, alpha) = (self.bytes, self.alpha);
        let Some(port) = self.ports.get_mut(number) else {
            return;
        };
        let Some(run) = port.queue.pop_pending() else {
            return;
        };
        let mut log = Keeper {
            at,
            decided: &mut port.decided,
        };
        let before = port.queue.inside(at);
        let fits = room(alpha, bytes.saturating_sub(held), before.bytes, &run);
        if fits > 0 {
            port.queue.take_in(run.part(0, fits), &mut log);
        }
        if fits < run.count {
            let rest = run.part(fits, run.count - fits);
            let inside = port.queue.inside(at);
            let taken = inside.packets.saturating_sub(before.packets);
            if taken < u32::from(fits) {
                // Its own limit turned some away already.
                port.queue.take_in(rest, &mut log);
            } else {
                let held = held.saturating_sub(before.bytes) + inside.bytes;
                let limit = alpha.threshold(bytes.saturating_sub(held));
                log.on_event(&refused(rest, inside, limit));
            }
        }
        if port.queue.is_idle_with_work(at) {
            self.serve(number, at);
        }
    }
}

/// Of a run that comes together, how many segments find room in a queue that holds `inside` bytes
/// when `free` are: each stays within what is free, and its queue within the threshold that held as
/// it came, itself counted.
fn room(alpha: Alpha, mut free: u64, mut inside: u64, run: &Train) -> u16 {
    let size = u64::from(run.wire_bytes);
    for k in 0..run.count {
        if size > free || inside + size > alpha.threshold(free) {
            return k;
        }
        free -= size;
        inside += size;
    }
    run.count
}

fn refused(run: Train, inside: Backlog, limit_bytes: u64) -> Event {
    Event {
        stage: 0,
        train: run,
        decision: Decision::Dropped {
            cause: DropCause::SharedBuffer,
            queue_bytes: inside.bytes,
            queue_packets: inside.packets,
            limit_bytes,
        },
    }
}

impl Stage for Port {
    fn name(&self) -> &'static str {
        "queue"
    }

    fn handle(&mut self, train: Train, out: &mut Trains, log: &mut dyn Log) {
        if let Some(port) = self.buffer.lock().ports.get_mut(self.number) {
            port.queue.handle(train, out, log);
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let inner = self.buffer.lock();
        let port = inner.ports.get(self.number)?;
        let decided = port.decided.front().map(|&(at, _)| at);
        let arrival = port.queue.next_arrival();
        // An instant is over in the next.
        let arrival = arrival.map(|at| at + Duration::from_ns(1));
        [decided, port.queue.next_service(), arrival]
            .into_iter()
            .flatten()
            .min()
    }

    fn advance(&mut self, to: Instant, out: &mut Trains, log: &mut dyn Log) {
        let mut inner = self.buffer.lock();
        inner.settle(to);
        let Some(port) = inner.ports.get_mut(self.number) else {
            return;
        };
        while let Some((_, decided)) = port.decided.pop_front_if(|(at, _)| *at <= to) {
            match decided {
                Decided::Event(event) => log.on_event(&event),
                Decided::Leaves(train) => out.push(train),
            }
        }
    }

    fn not_before(&self) -> Instant {
        self.buffer.lock().settled
    }

    fn change(&mut self, change: &Change) {
        if let Some(port) = self.buffer.lock().ports.get_mut(self.number) {
            port.queue.change(change);
        }
    }

    fn segments_held(&self) -> u64 {
        let inner = self.buffer.lock();
        let Some(port) = inner.ports.get(self.number) else {
            return 0;
        };
        let leaving = port.decided.iter().map(|(_, decided)| match decided {
            Decided::Leaves(train) => u64::from(train.count),
            Decided::Event(_) => 0,
        });
        port.queue.segments_held() + leaving.sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{DelayLine, Output, Pipeline};
    use crate::queue::QueueLimits;
    use crate::train::testing::train;
    use units::{Rate, Rng};

    /// A byte takes a nanosecond.
    const RATE: Rate = Rate::from_bits_per_second(8_000_000_000);
    const FRAME: u64 = 1_538;

    fn pipelines(bytes: u64, alpha: f64, delays: &[Duration]) -> Vec<Pipeline> {
        let buffer = SharedBuffer::new(Bytes::new(bytes), Alpha::new(alpha).unwrap());
        let each = delays.iter().map(|&delay| {
            let queue = buffer.join(Queue::drop_tail(RATE, QueueLimits::default()));
            Pipeline::new(vec![queue, Box::new(DelayLine::new(delay))], 16)
        });
        each.collect()
    }

    /// Handle, segment and what became of it: when it left the queue, or the depth and limit with
    /// which it was refused.
    type Fate = (u64, u16, Result<u64, (u64, u64)>);

    /// Each segment's fate as a pipeline tells it.
    fn fates(events: &[Event]) -> Vec<Fate> {
        let mut fates = Vec::new();
        for event in events {
            for k in 0..event.train.count {
                let fate = match event.decision {
                    Decision::Served {
                        departs, spacing, ..
                    } => {
                        let train = Train {
                            at: departs,
                            spacing,
                            ..event.train
                        };
                        Ok(train.time_of(k).as_ns())
                    }
                    Decision::Dropped {
                        cause: DropCause::SharedBuffer,
                        queue_bytes,
                        limit_bytes,
                        ..
                    } => Err((queue_bytes, limit_bytes)),
                    _ => continue,
                };
                fates.push((event.train.handle, event.train.first + k, fate));
            }
        }
        fates.sort_unstable();
        fates
    }

    /// The same decided segment by segment, with every departure remembered.
    fn slowly(arrivals: &[(usize, Train)], ports: usize, bytes: u64, alpha: u64) -> Vec<Fate> {
        let mut inside: Vec<Vec<(u64, u64)>> = vec![Vec::new(); ports];
        let mut fates = Vec::new();
        let mut arrivals = arrivals.to_vec();
        arrivals.sort_by_key(|(port, train)| (train.at, *port));
        for (port, train) in &arrivals {
            let at = train.at.as_ns();
            for queue in &mut inside {
                queue.retain(|&(leaves, _)| leaves > at);
            }
            let mut refused = None;
            for k in 0..train.count {
                let held = |q: &Vec<(u64, u64)>| q.iter().map(|&(_, size)| size).sum::<u64>();
                let free = bytes - inside.iter().map(held).sum::<u64>();
                let own = held(&inside[*port]);
                let size = u64::from(train.wire_bytes);
                if refused.is_none() && size <= free && own + size <= alpha * free {
                    let before = inside[*port].last().map_or(at, |&(leaves, _)| leaves);
                    inside[*port].push((before + size, size));
                    fates.push((train.handle, k, Ok(before + size)));
                } else {
                    let why = *refused.get_or_insert((own, alpha * free));
                    fates.push((train.handle, k, Err(why)));
                }
            }
        }
        fates.sort_unstable();
        fates
    }

    #[test]
    fn one_burst_takes_half_of_the_buffer_and_a_second_half_of_the_rest() {
        let mut both = pipelines(100 * FRAME, 1.0, &[Duration::ZERO; 2]);
        let mut logs = [Vec::new(), Vec::new()];
        for (n, pipeline) in both.iter_mut().enumerate() {
            pipeline.handle_train(train(n as u64, 60, 0), &mut logs[n]);
        }
        for (pipeline, log) in both.iter_mut().zip(&mut logs) {
            while let Output::Release(_) = pipeline.poll_output(Instant::from_ns(1 << 40), log) {}
        }
        let lost = |log: &Vec<Event>| fates(log).into_iter().filter(|f| f.2.is_err()).count();
        assert_eq!(logs.each_ref().map(lost), [10, 35]);
        let first = fates(&logs[0])[50];
        assert_eq!(
            first,
            (0, 50, Err((50 * FRAME, 50 * FRAME))),
            "depth and limit"
        );
        let second = fates(&logs[1])[25];
        assert_eq!(second, (1, 25, Err((25 * FRAME, 25 * FRAME))));
    }

    #[test]
    fn what_has_left_one_queue_is_room_for_another_from_that_instant_on() {
        // A buffer of one frame; by its threshold alone each queue may have four.
        for (at, fits) in [(FRAME - 1, 0), (FRAME, 1)] {
            let mut both = pipelines(FRAME, 4.0, &[Duration::ZERO, Duration::from_ms(1)]);
            let mut logs = [Vec::new(), Vec::new()];
            both[0].handle_train(train(0, 2, 0), &mut logs[0]);
            both[1].handle_train(train(1, 2, at), &mut logs[1]);
            for (pipeline, log) in both.iter_mut().zip(&mut logs) {
                while let Output::Release(_) = pipeline.poll_output(Instant::from_ns(1 << 40), log)
                {
                }
            }
            let ok = |log: &Vec<Event>| fates(log).into_iter().filter(|f| f.2.is_ok()).count();
            assert_eq!((ok(&logs[0]), ok(&logs[1])), (1, fits), "{at}");
        }
    }

    /// Drives pipelines with lookaheads of their own by polls at random times in random order.
    fn driven(
        arrivals: &[(usize, Train)],
        delays: &[Duration],
        (bytes, alpha): (u64, u64),
        seed: u64,
    ) -> Vec<Fate> {
        let mut rng = Rng::new(seed);
        #[allow(clippy::cast_precision_loss, reason = "small")]
        let mut all = pipelines(bytes, alpha as f64, delays);
        let mut log: Vec<Event> = Vec::new();
        for (port, train) in arrivals {
            // Never beyond what comes next.
            while !rng.next_u64().is_multiple_of(3) {
                let n = usize::try_from(rng.next_u64()).unwrap() % all.len();
                let back = Duration::from_ns(rng.next_u64() % 4_000);
                let now = train.at - back;
                while let Output::Release(_) = all[n].poll_output(now, &mut log) {}
            }
            assert_eq!(all[*port].handle_train(*train, &mut log), train.at);
        }
        for pipeline in &mut all {
            while let Output::Release(_) = pipeline.poll_output(Instant::from_ns(1 << 40), &mut log)
            {
            }
            assert_eq!(pipeline.segments_waiting(), 0);
        }
        fates(&log)
    }

    #[test]
    fn decisions_hang_on_arrivals_alone_and_are_those_of_the_paper() {
        let mut rng = Rng::new(1);
        let mut refused = 0;
        for round in 0..200 {
            let ports = 2 + usize::try_from(rng.next_u64() % 4).unwrap();
            let delays: Vec<Duration> = (0..ports)
                .map(|_| Duration::from_ns([0, 500, 20_000][(rng.next_u64() % 3) as usize]))
                .collect();
            let (bytes, alpha) = (20_000 + rng.next_u64() % 60_000, 1 + rng.next_u64() % 4);
            let mut at = 0;
            let arrivals: Vec<(usize, Train)> = (0..100)
                .map(|handle| {
                    at += rng.next_u64() % 4 * (rng.next_u64() % 3_000);
                    let count = 1 + u16::try_from(rng.next_u64() % 12).unwrap();
                    let train = Train {
                        wire_bytes: 84 + u32::try_from(rng.next_u64() % 1_455).unwrap(),
                        ..train(handle, count, at)
                    };
                    (usize::try_from(rng.next_u64()).unwrap() % ports, train)
                })
                .collect();
            let expected = slowly(&arrivals, ports, bytes, alpha);
            refused += expected.iter().filter(|f| f.2.is_err()).count();
            for seed in 0..3 {
                let seen = driven(&arrivals, &delays, (bytes, alpha), seed);
                assert_eq!(seen, expected, "round {round}, seed {seed}");
            }
        }
        assert!(refused > 1_000, "{refused}");
    }

    #[test]
    fn what_is_put_in_late_counts_from_what_is_settled_at_any_port() {
        let mut both = pipelines(100 * FRAME, 1.0, &[Duration::ZERO, Duration::from_ms(1)]);
        let mut log = Vec::new();
        both[0].handle_train(train(0, 1, 1_000), &mut log);
        both[0].poll_output(Instant::from_ns(5_000), &mut log);
        let at = both[1].handle_train(train(1, 1, 2_000), &mut log);
        assert_eq!(at.as_ns(), 5_000);
    }

    #[test]
    fn alpha_is_a_number_of_1024ths() {
        for (alpha, parts) in [
            (1.0 / 1024.0, 1),
            (1.0 / 128.0, 8),
            (1.0, 1024),
            (1024.0, 1 << 20),
        ] {
            assert_eq!(Alpha::new(alpha), Some(Alpha(parts)));
        }
        for wrong in [0.0, 1.0 / 4096.0, -1.0, 1025.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Alpha::new(wrong), None, "{wrong}");
        }
        let one = Alpha(1024);
        assert_eq!(one.most(Bytes::new(100_000), 1_538).as_u64(), 51_538);
        assert_eq!(
            Alpha(1 << 20).most(Bytes::new(1_000), 1_538).as_u64(),
            1_000
        );
    }
}
