//! Round trips while the path is idle and while a transfer fills it, and the queue that lies between.

use measure::{Client, Direction, MeasureError, Outcome, Pinger, RoundTrip, Stop};
use report::model::LoadLatency;
use units::{Duration, Histogram, Instant};

/// Starts to ping beside a client and waits until the idle path is known. `timeout` is for
/// connecting.
pub(crate) fn start(
    client: &Client,
    timeout: Duration,
    stop: &Stop,
) -> Result<Pinger, MeasureError> {
    let pinger = Pinger::start(client, INTERVAL, timeout)?;
    let until = sys::clock::monotonic() + IDLE;
    while sys::clock::monotonic() < until && !stop.is_stopped() {
        std::thread::sleep(STEP.to_std());
    }
    Ok(pinger)
}

/// Ends the pings and sums them up; `None` where one of the two parts has none, as after an
/// interruption. A far end without a second session costs a warning, not the measurement.
pub(crate) fn finish(
    pinger: Pinger,
    outcome: &Outcome,
) -> Result<Option<LoadLatency>, MeasureError> {
    match pinger.finish() {
        Ok(round_trips) => Ok(sum_up(&round_trips, outcome)),
        Err(MeasureError::Local { what, source }) => Err(MeasureError::Local { what, source }),
        Err(error) => {
            tracing::warn!("no round trips beside the transfer: {error}");
            Ok(None)
        }
    }
}

fn sum_up(round_trips: &[RoundTrip], outcome: &Outcome) -> Option<LoadLatency> {
    let config = &outcome.config;
    let near = match config.direction {
        Direction::Up => &outcome.sender,
        Direction::Down => &outcome.receiver,
    };
    let (from, to) = (near.start + config.ramp, near.start + config.duration);
    let (idle_probes, idle) = within(round_trips, Instant::ZERO, near.start);
    let (load_probes, load) = within(round_trips, from, to);
    let idle_median = idle.quantile(500)?;
    let load_median = load.quantile(500)?;
    let extra_ns = load_median.as_ns().saturating_sub(idle_median.as_ns());
    let rate = outcome.goodput_after_ramp().as_bits_per_second();
    let queue = u128::from(rate) * u128::from(extra_ns) / 8 / 1_000_000_000;
    Some(LoadLatency {
        idle_probes,
        idle_min_ns: idle.min()?.as_ns(),
        idle_median_ns: idle_median.as_ns(),
        load_probes,
        load_median_ns: load_median.as_ns(),
        load_p99_ns: load.quantile(990)?.as_ns(),
        load_max_ns: load.max()?.as_ns(),
        extra_ns,
        queue_bytes: u64::try_from(queue).unwrap_or(u64::MAX),
        round_trips_ns: thinned(round_trips, near.start),
    })
}

/// How many round trips began between two moments, and how long they took, each counted for as long as
/// it was the latest: long ones are asked for more rarely, and would count for less than their time.
fn within(round_trips: &[RoundTrip], from: Instant, to: Instant) -> (u64, Histogram) {
    let (mut count, mut times) = (0, Histogram::new());
    for (i, trip) in round_trips.iter().enumerate() {
        if trip.sent < from || trip.sent >= to {
            continue;
        }
        let next = round_trips.get(i + 1).map_or(to, |next| next.sent.min(to));
        let span = next.saturating_since(trip.sent).as_ns();
        for _ in 0..(span / INTERVAL.as_ns()).max(1) {
            times.record(trip.took);
        }
        count += 1;
    }
    (count, times)
}

/// Round trips from the start on; of more than can be kept, the longest of each few.
fn thinned(round_trips: &[RoundTrip], start: Instant) -> Vec<[u64; 2]> {
    let first = round_trips.partition_point(|r| r.sent < start);
    let those = round_trips.get(first..).unwrap_or_default();
    let each = those.len().div_ceil(KEPT_MAX).max(1);
    let longest = those
        .chunks(each)
        .filter_map(|few| few.iter().max_by_key(|r| r.took));
    let kept = longest.map(|r| [r.sent.saturating_since(start).as_ns(), r.took.as_ns()]);
    kept.collect()
}

/// Fine enough to see a sawtooth; 100 small segments a second are 0.1 Mb/s.
const INTERVAL: Duration = Duration::from_ms(10);
/// A hundred pings on a short path.
const IDLE: Duration = Duration::from_s(1);
const KEPT_MAX: usize = 2_000;
const STEP: Duration = Duration::from_ms(20);

#[cfg(test)]
mod tests {
    use measure::{Config, EndResult};

    use super::*;

    fn trip(ms: u64, took_ms: u64) -> RoundTrip {
        RoundTrip {
            sent: Instant::from_ns(ms * 1_000_000),
            took: Duration::from_ms(took_ms),
        }
    }

    #[test]
    fn idle_and_load_are_told_apart_at_the_ramp_and_the_end() {
        let end = EndResult {
            start: Instant::from_ns(1_000_000_000),
            ..EndResult::default()
        };
        let outcome = Outcome {
            config: Config {
                duration: Duration::from_s(3),
                ramp: Duration::from_s(1),
                ..Config::default()
            },
            idle_rtt: measure::IdleRtt::default(),
            sender: end.clone(),
            receiver: end,
            interrupted: false,
            complete: true,
        };
        // Idle before 1000, the ramp until 2000, load until 4000.
        let trips = [
            trip(999, 20),
            trip(1_000, 500),
            trip(1_999, 500),
            trip(2_000, 120),
            trip(3_999, 120),
            trip(4_000, 900),
        ];
        let told = sum_up(&trips, &outcome).unwrap();
        assert_eq!((told.idle_probes, told.load_probes), (1, 2));
        assert_eq!(
            (told.idle_min_ns, told.load_max_ns),
            (20_000_000, 120_000_000)
        );
        let extra_ms = told.extra_ns as f64 / 1e6;
        assert!((extra_ms - 100.0).abs() < 1.0, "{extra_ms}");
        assert_eq!(told.round_trips_ns.len(), 5);
        assert_eq!(told.round_trips_ns[0], [0, 500_000_000]);
        assert_eq!(sum_up(&trips[..3], &outcome), None);
    }

    #[test]
    fn a_round_trip_counts_for_the_time_until_the_next() {
        // 900 ms of 300 ms each, asked for three times, and 100 ms of 10 ms, asked for ten times.
        let mut trips: Vec<RoundTrip> = (0..3).map(|n| trip(n * 300, 300)).collect();
        trips.extend((0..10).map(|n| trip(900 + n * 10, 10)));
        let (count, times) = within(&trips, Instant::ZERO, Instant::from_ns(1_000_000_000));
        assert_eq!((count, times.count()), (13, 100));
        assert!(times.quantile(500) > Some(Duration::from_ms(298)));
    }

    #[test]
    fn a_long_run_keeps_the_longest_of_each_few() {
        let trips: Vec<RoundTrip> = (0..4_001).map(|n| trip(n, 10 + n % 3)).collect();
        let kept = thinned(&trips, Instant::ZERO);
        assert_eq!(kept.len(), 1_334);
        assert!(kept[..1_333].iter().all(|&[_, took]| took == 12_000_000));
        assert_eq!(thinned(&trips[..2_000], Instant::ZERO).len(), 2_000);
    }
}
