//! What the tests of all disciplines share: arrivals, a queue driven over them, and its outcome.

use units::{Duration, Instant, Rate};

use crate::event::{Decision, DropCause, Event};
use crate::pipeline::{Stage, Trains};
use crate::queue::{Backlog, Discipline, Queue, QueueLimits, Server};
use crate::spec::CodelSpec;
pub(super) use crate::train::testing::train;
use crate::train::{Marks, Train};

/// Of a wide-area path: the defaults of RFC 8289.
pub(super) const CODEL: CodelSpec = CodelSpec {
    target: Duration::from_ms(5),
    interval: Duration::from_ms(100),
    ecn: false,
};

/// 1538 bytes take 1.2304 ms.
pub(super) const TEN_MEGABIT: Rate = Rate::from_bits_per_second(10_000_000);

pub(super) fn packets(limit: u32) -> QueueLimits {
    QueueLimits {
        bytes: None,
        packets: Some(limit),
    }
}

pub(super) fn bytes(limit: u64) -> QueueLimits {
    QueueLimits {
        bytes: Some(limit),
        packets: None,
    }
}

/// Single segments like `like` at a constant rate, from its time until `until_ns`.
pub(super) fn constant(like: Train, bits_per_second: u64, until_ns: u64) -> Vec<Train> {
    let gap_ns = u64::from(like.wire_bytes) * 8 * 1_000_000_000 / bits_per_second;
    (0..)
        .map(|n| (n, like.at + Duration::from_ns(n * gap_ns)))
        .take_while(|(_, at)| at.as_ns() < until_ns)
        .map(|(n, at)| Train {
            handle: like.handle + n,
            at,
            ..like
        })
        .collect()
}

/// All of them by time.
pub(super) fn merged(flows: Vec<Vec<Train>>) -> Vec<Train> {
    let mut all: Vec<Train> = flows.into_iter().flatten().collect();
    all.sort_by_key(|t| t.at);
    all
}

/// What left the queue, segment by segment, and what was logged until it was empty. With `every` the
/// queue is asked so often, else only once each arrival has been told.
pub(super) fn drive(
    discipline: impl Discipline + 'static,
    rate: Rate,
    arrivals: &[Train],
    every: Option<Duration>,
) -> (Vec<Train>, Vec<Event>) {
    let mut queue = Queue::new("queue", Box::new(discipline), Server::rate(rate));
    let (mut out, mut log) = (Trains::default(), Vec::new());
    let mut now = Instant::ZERO;
    for &arrival in arrivals {
        while let Some(step) = every.filter(|&step| now + step < arrival.at) {
            now += step;
            queue.advance(now, &mut out, &mut log);
        }
        queue.handle(arrival, &mut out, &mut log);
    }
    queue.advance(Instant::MAX, &mut out, &mut log);
    assert_eq!(
        queue.segments_held(),
        0,
        "all that waits is served in the end"
    );
    let single = |run: Train| (0..run.count).map(move |k| run.part(k, 1));
    (out.drain().flat_map(single).collect(), log)
}

/// Waiting and sending time of each served segment with the time at which it left.
pub(super) fn delays_ns(log: &[Event], flow: u32) -> Vec<(u64, u64)> {
    log.iter()
        .filter(|e| e.train.flow == flow)
        .filter_map(|e| match e.decision {
            Decision::Served { departs, .. } => {
                let delay = departs.saturating_since(e.train.at);
                Some((departs.as_ns(), delay.as_ns()))
            }
            _ => None,
        })
        .collect()
}

pub(super) fn marked(log: &[Event]) -> u64 {
    count(log, |d| matches!(d, Decision::Marked { .. }))
}

pub(super) fn dropped(log: &[Event]) -> u64 {
    count(log, |d| matches!(d, Decision::Dropped { .. }))
}

pub(super) fn dropped_as(log: &[Event], why: DropCause) -> u64 {
    count(
        log,
        |d| matches!(d, Decision::Dropped { cause, .. } if *cause == why),
    )
}

fn count(log: &[Event], is: impl Fn(&Decision) -> bool) -> u64 {
    let counted = log.iter().filter(|e| is(&e.decision));
    counted.map(|e| u64::from(e.train.count)).sum()
}

/// Hostile arrivals, fixed by the seed: bursts of one to 64 segments of all sizes of several flows,
/// some ECN-capable, too many for the queue at times and none for long at others.
pub(super) fn mixed_arrivals(seed: u64, trains: u64) -> Vec<Train> {
    let mut rng = units::Rng::new(seed);
    let mut below = |n: u64| rng.next_u64() % n;
    let mut at_ns = 0;
    (0..trains)
        .map(|handle| {
            at_ns += match below(20) {
                0 => below(400_000_000),
                1..9 => 0,
                _ => below(20_000_000),
            };
            Train {
                wire_bytes: u32::try_from(84 + below(1455)).unwrap(),
                flow: u32::try_from(below(7)).unwrap(),
                marks: [Marks::NONE, Marks::ECT][usize::from(below(3) == 0)],
                ..train(handle, u16::try_from(1 + below(64)).unwrap(), at_ns)
            }
        })
        .collect()
}

/// What every discipline owes: no segment lost from the books, none made, the limits kept by what
/// is left after each decision, and the same outcome however often the queue is asked.
pub(super) fn keeps_its_books<D: Discipline + 'static>(make: impl Fn(QueueLimits) -> D) {
    for seed in 1..=4 {
        let arrivals = mixed_arrivals(seed, 600);
        for limits in [packets(100), bytes(60_000), packets(1), bytes(100)] {
            let (out, log) = drive(make(limits), TEN_MEGABIT, &arrivals, None);
            let often = Some(Duration::from_us(700));
            let again = drive(make(limits), TEN_MEGABIT, &arrivals, often);
            assert_eq!(
                (&out, &log),
                (&again.0, &again.1),
                "seed {seed}, {limits:?}"
            );
            let mut ends: Vec<(u64, u16)> = out.iter().map(|t| (t.handle, t.first)).collect();
            ends.extend(
                log.iter()
                    .filter_map(|e| Some(e.train).zip(lost(e)))
                    .flat_map(|(run, ())| (0..run.count).map(move |k| (run.handle, run.first + k))),
            );
            ends.sort_unstable();
            let offered = arrivals
                .iter()
                .flat_map(|t| (0..t.count).map(|k| (t.handle, k)));
            assert!(
                offered.eq(ends),
                "each segment ends once, seed {seed}, {limits:?}"
            );
            assert!(within(limits, &log), "seed {seed}, {limits:?}");
            assert!(out.windows(2).all(|w| w[0].at < w[1].at));
        }
    }
}

fn lost(event: &Event) -> Option<()> {
    matches!(event.decision, Decision::Dropped { .. }).then_some(())
}

/// True when no served segment leaves more behind than the limits allow.
fn within(limits: QueueLimits, log: &[Event]) -> bool {
    log.iter().all(|e| match e.decision {
        Decision::Served {
            queue_bytes,
            queue_packets,
            ..
        } => {
            limits.bytes.is_none_or(|limit| queue_bytes <= limit)
                && limits.packets.is_none_or(|limit| queue_packets < limit)
        }
        _ => true,
    })
}

/// What the server is busy with while `bytes` are being sent.
pub(super) fn sending(bytes: u64) -> Backlog {
    Backlog { bytes, packets: 1 }
}

/// Mean waiting and sending time in microseconds over 20 s after the first 10, and the segments
/// served in them, of four senders that share 10 Mb/s and a round trip of 50 ms. Each opens its
/// window by a segment a round trip, and halves it when a segment was lost in the last one.
pub(super) fn responsive(discipline: impl Discipline + 'static) -> (u64, u64) {
    const TICK_NS: u64 = 1_000_000;
    let mut queue = Queue::new("queue", Box::new(discipline), Server::rate(TEN_MEGABIT));
    let (mut out, mut log) = (Trains::default(), Vec::new());
    let mut senders = [(10_u64, 0_u64, false); 4];
    let mut acknowledgements = std::collections::VecDeque::new();
    let (mut handle, mut delay_ns, mut served) = (0, 0, 0);
    for tick in 0..30_000 {
        let now = Instant::from_ns(tick * TICK_NS);
        queue.advance(now, &mut out, &mut log);
        for t in out.drain() {
            acknowledgements.push_back((t.at + Duration::from_ms(50), t.flow as usize));
        }
        for event in log.drain(..) {
            let (_, inside, lost) = &mut senders[event.train.flow as usize];
            match event.decision {
                Decision::Dropped { .. } => (*inside, *lost) = (*inside - 1, true),
                Decision::Served { departs, .. } if tick >= 10_000 => {
                    delay_ns += departs.saturating_since(event.train.at).as_ns();
                    served += 1;
                }
                _ => {}
            }
        }
        while acknowledgements.front().is_some_and(|&(at, _)| at <= now) {
            let flow = acknowledgements.pop_front().unwrap().1;
            senders[flow].1 -= 1;
        }
        for (flow, (window, inside, lost)) in senders.iter_mut().enumerate() {
            if (tick + 13 * flow as u64).is_multiple_of(50) {
                *window = if *lost { *window / 2 } else { *window + 1 }.max(2);
                *lost = false;
            }
            while *inside < *window {
                *inside += 1;
                handle += 1;
                let flow = u32::try_from(flow).unwrap();
                let segment = train(handle, 1, now.as_ns());
                queue.handle(Train { flow, ..segment }, &mut out, &mut log);
            }
        }
    }
    (delay_ns / served / 1_000, served)
}
