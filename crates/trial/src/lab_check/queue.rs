//! What a log says of a queue that turned frames away: that the frames which it names as waiting add
//! up to the depth it states, and which frames of a burst went.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use lab::log::Legend;
use link::record::{Block, Code, Reader, Row, Rows};
use serde::Serialize;

/// One queue's drops.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct QueueDrops {
    pub(super) link: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) stage: String,
    /// Frames that came to it.
    pub(super) arrivals: u64,
    /// Of these turned away since it was full, or the buffer that it shares.
    pub(super) queue_full: u64,
    /// Of these with a depth that is exactly the sum of the frames which the log has waiting then.
    pub(super) explained: u64,
    /// Of these that would have gone beyond the limit which the log names.
    pub(super) over_limit: u64,
    /// Least and most bytes in the queue when it turned a frame away.
    pub(super) depth_min_bytes: u64,
    pub(super) depth_max_bytes: u64,
    /// Flows that had frames in the queue when it turned a frame away, most at once.
    pub(super) competitors_max: u64,
    /// Bursts of a flow (ten frames at least, no gap of 20 ms within) that lost a frame.
    pub(super) bursts_with_loss: u64,
    /// Share of these that lost their first frame, 0 to 1.
    pub(super) lost_first_share: f64,
    /// Share of these that lost their last frame, 0 to 1.
    pub(super) lost_last_share: f64,
    /// Where in its burst a lost frame stood, median: 0 first, 1 last.
    pub(super) lost_place_median: f64,
}

/// A frame's segment at a queue.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    time_ns: u64,
    flow: u32,
    lost: bool,
}

/// The queues that turned frames away, in the order of the links.
pub(super) fn drops(reader: Reader<'_>, legend: &Legend) -> Vec<QueueDrops> {
    let full = |row: &Row| is_full(row.decision);
    let rows = || {
        let blocks = reader.clone().flatten();
        blocks.filter_map(decisions).flatten()
    };
    let mut queues: Vec<(u16, u8)> = rows().filter(full).map(|r| (r.link, r.stage)).collect();
    queues.sort_unstable();
    queues.dedup();
    let one = |(link, stage)| {
        let of_queue = rows().filter(|r| (r.link, r.stage) == (link, stage));
        let named = legend.links.get(usize::from(link));
        let mut drops = QueueDrops {
            link: named.map(|l| l.name.clone()).unwrap_or_default(),
            from: named.map(|l| l.from.clone()).unwrap_or_default(),
            to: named.map(|l| l.to.clone()).unwrap_or_default(),
            stage: named
                .and_then(|l| l.stages.get(usize::from(stage)).cloned())
                .unwrap_or_default(),
            ..QueueDrops::default()
        };
        replay(&of_queue.collect::<Vec<_>>(), &mut drops);
        drops
    };
    queues.into_iter().map(one).collect()
}

/// Turned away for want of room, of its own or of the switch's.
fn is_full(decision: Code) -> bool {
    matches!(decision, Code::QUEUE_FULL | Code::SHARED_BUFFER)
}

fn decisions(block: Block<'_>) -> Option<Rows<'_>> {
    match block {
        Block::Decisions(rows) => Some(rows),
        _ => None,
    }
}

/// Goes through a queue's rows as they were decided, with the frames that wait.
fn replay(rows: &[Row], drops: &mut QueueDrops) {
    let mut departs: HashMap<(u64, u32), u64> = HashMap::new();
    for row in rows.iter().filter(|r| r.decision == Code::SERVED) {
        for segment in row.segments() {
            if let Some(at) = segment.departs {
                departs.insert((row.frame, segment.segment), at.as_ns());
            }
        }
    }
    let mut waiting: BinaryHeap<Reverse<(u64, u32, u32)>> = BinaryHeap::new();
    let mut bytes = 0_u64;
    let mut flows: HashMap<u32, u64> = HashMap::new();
    let mut arrivals = Vec::new();
    drops.depth_min_bytes = u64::MAX;
    for row in rows {
        if row.decision != Code::QUEUED && !is_full(row.decision) {
            continue;
        }
        for segment in row.segments() {
            let now = segment.time.as_ns();
            while let Some(&Reverse((at, size, flow))) = waiting.peek()
                && at <= now
            {
                waiting.pop();
                bytes -= u64::from(size);
                if let Some(n) = flows.get_mut(&flow) {
                    *n -= 1;
                    if *n == 0 {
                        flows.remove(&flow);
                    }
                }
            }
            let lost = is_full(row.decision);
            arrivals.push(Arrival {
                time_ns: now,
                flow: row.flow,
                lost,
            });
            drops.arrivals += 1;
            if lost {
                drops.queue_full += 1;
                drops.explained += u64::from(bytes == row.queue_bytes);
                let with_it = row.queue_bytes + u64::from(row.wire_bytes);
                drops.over_limit += u64::from(row.detail > 0 && with_it > row.detail.into());
                drops.depth_min_bytes = drops.depth_min_bytes.min(row.queue_bytes);
                drops.depth_max_bytes = drops.depth_max_bytes.max(row.queue_bytes);
                drops.competitors_max = drops.competitors_max.max(flows.len() as u64);
            } else if let Some(&at) = departs.get(&(row.frame, segment.segment)) {
                waiting.push(Reverse((at, row.wire_bytes, row.flow)));
                bytes += u64::from(row.wire_bytes);
                *flows.entry(row.flow).or_insert(0) += 1;
            }
        }
    }
    bursts(&arrivals, drops);
}

/// Which frames of its burst each flow lost.
fn bursts(arrivals: &[Arrival], drops: &mut QueueDrops) {
    let mut flows: HashMap<u32, Vec<Arrival>> = HashMap::new();
    for &arrival in arrivals {
        flows.entry(arrival.flow).or_default().push(arrival);
    }
    let (mut with_loss, mut first, mut last) = (0_u64, 0_u64, 0_u64);
    let mut places = Vec::new();
    for list in flows.values() {
        let gap = |a: &Arrival, b: &Arrival| b.time_ns.saturating_sub(a.time_ns) < BURST_GAP_NS;
        let bursts = list.chunk_by(gap).filter(|b| b.len() >= BURST_FRAMES_MIN);
        for burst in bursts.filter(|b| b.iter().any(|a| a.lost)) {
            with_loss += 1;
            first += u64::from(burst.first().is_some_and(|a| a.lost));
            last += u64::from(burst.last().is_some_and(|a| a.lost));
            let end = (burst.len() - 1).max(1) as f64;
            let lost = burst.iter().enumerate().filter(|(_, a)| a.lost);
            places.extend(lost.map(|(n, _)| n as f64 / end));
        }
    }
    places.sort_unstable_by(f64::total_cmp);
    drops.bursts_with_loss = with_loss;
    drops.lost_first_share = first as f64 / with_loss.max(1) as f64;
    drops.lost_last_share = last as f64 / with_loss.max(1) as f64;
    drops.lost_place_median = places.get(places.len() / 2).copied().unwrap_or(0.0);
}

/// Frames of a flow farther apart are two bursts; a sender may lose its CPU for some milliseconds.
const BURST_GAP_NS: u64 = 20_000_000;
/// Fewer have no first and last worth the name.
const BURST_FRAMES_MIN: usize = 10;

#[cfg(test)]
mod tests {
    use units::Instant;

    use super::*;

    /// A queue of three frames of 1000 bytes, one served every 1000 ns: frames 1 to 5 at 0 ns.
    fn rows() -> Vec<Row> {
        let mut rows = Vec::new();
        for frame in 1..=5_u64 {
            let lost = frame > 3;
            let row = Row {
                time: Instant::from_ns(10),
                departs: Instant::from_ns(10 + 1000 * frame),
                frame,
                count: 1,
                wire_bytes: 1000,
                flow: if frame == 2 { 8 } else { 7 },
                queue_bytes: if lost { 3000 } else { 1000 * frame },
                decision: if lost { Code::QUEUE_FULL } else { Code::QUEUED },
                detail: if lost { 3999 } else { 0 },
                ..Row::default()
            };
            rows.push(row);
            if !lost {
                rows.push(Row {
                    decision: Code::SERVED,
                    ..row
                });
            }
        }
        rows
    }

    #[test]
    fn the_frames_that_wait_add_up_to_the_depth_at_each_drop() {
        let mut drops = QueueDrops::default();
        replay(&rows(), &mut drops);
        assert_eq!(
            (drops.arrivals, drops.queue_full, drops.explained),
            (5, 2, 2)
        );
        assert_eq!((drops.depth_min_bytes, drops.depth_max_bytes), (3000, 3000));
        assert_eq!(drops.competitors_max, 2);
        assert_eq!(drops.over_limit, 2);
    }

    #[test]
    fn a_depth_that_no_frames_make_up_is_not_explained() {
        let mut rows = rows();
        rows.retain(|row| !(row.frame == 1 && row.decision == Code::SERVED));
        let mut drops = QueueDrops::default();
        replay(&rows, &mut drops);
        assert_eq!((drops.queue_full, drops.explained), (2, 0));
    }

    #[test]
    fn a_burst_is_ten_frames_without_a_gap_of_20_ms() {
        let at = |n: u64, step_ns: u64, lost| Arrival {
            time_ns: n * step_ns,
            flow: 1,
            lost,
        };
        let lost_last = |frames: u64, step_ns| {
            let arrivals: Vec<Arrival> =
                (1..=frames).map(|n| at(n, step_ns, n == frames)).collect();
            let mut drops = QueueDrops::default();
            bursts(&arrivals, &mut drops);
            (
                drops.bursts_with_loss,
                drops.lost_first_share,
                drops.lost_last_share,
            )
        };
        assert_eq!(lost_last(10, 19_999_999), (1, 0.0, 1.0));
        assert_eq!(lost_last(10, 20_000_000), (0, 0.0, 0.0));
        assert_eq!(lost_last(9, 1_000), (0, 0.0, 0.0));
    }
}
