//! How exactly a rate was kept: what left in a window of time beside what was due in it.

use units::{Duration, Instant, Rate};

/// Rate errors of one direction over windows of one length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateError {
    /// Length of the windows.
    pub window: Duration,
    /// Busy windows compared: those in which nine tenths of the rate or more was due.
    pub windows: u64,
    /// 99th percentile of |sent - due| over what the rate carries in a window, parts in a million.
    pub p99_ppm: u64,
    /// Largest.
    pub max_ppm: u64,
}

/// Compares, window by window.
#[derive(Clone, Debug)]
pub(crate) struct RateMeter {
    scales: [Scale; SCALES.len()],
}

#[derive(Clone, Debug)]
struct Scale {
    window_ns: u64,
    /// Wire bytes that the rate carries in a window.
    capacity: u64,
    slots: Box<[Slot]>,
    histogram: Histogram,
}

/// A window: its number, bytes due and bytes sent in it.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    number: u64,
    due: u64,
    sent: u64,
}

/// Counts in buckets an eighth of an octave wide.
#[derive(Clone, Debug)]
struct Histogram {
    buckets: Box<[u64]>,
    count: u64,
    max: u64,
}

impl RateMeter {
    pub(crate) fn new(rate: Rate) -> Self {
        Self {
            scales: SCALES.map(|window| Scale {
                window_ns: window.as_ns(),
                capacity: rate.bytes_in(window).as_u64().max(1),
                slots: vec![Slot::default(); SLOTS].into_boxed_slice(),
                histogram: Histogram::new(),
            }),
        }
    }

    /// `wire_bytes` that were due at `due` left at `sent`.
    pub(crate) fn account(&mut self, wire_bytes: u64, due: Instant, sent: Instant) {
        for scale in &mut self.scales {
            scale.slot(sent).sent += wire_bytes;
            // Of a window so long ago that its place is taken nothing is known any more.
            let number = due.as_ns() / scale.window_ns;
            let slot = scale.slot_if_kept(number);
            if let Some(slot) = slot {
                slot.due += wire_bytes;
            }
        }
    }

    /// The errors of all windows that are over by `now`.
    pub(crate) fn errors(&mut self, now: Instant) -> Vec<RateError> {
        self.scales.iter_mut().map(|s| s.error(now)).collect()
    }
}

impl Scale {
    fn slot(&mut self, at: Instant) -> &mut Slot {
        let number = at.as_ns() / self.window_ns;
        let index = index_of(number);
        if self.slots[index].number < number {
            self.close(index);
            self.slots[index].number = number;
        }
        &mut self.slots[index]
    }

    fn slot_if_kept(&mut self, number: u64) -> Option<&mut Slot> {
        let index = index_of(number);
        if self.slots[index].number < number {
            self.close(index);
            self.slots[index].number = number;
        }
        let slot = &mut self.slots[index];
        (slot.number == number).then_some(slot)
    }

    fn close(&mut self, index: usize) {
        let slot = std::mem::take(&mut self.slots[index]);
        if slot.due * 10 >= self.capacity * 9 {
            let error = slot.due.abs_diff(slot.sent);
            self.histogram.add(error * 1_000_000 / self.capacity);
        }
    }

    fn error(&mut self, now: Instant) -> RateError {
        let current = now.as_ns() / self.window_ns;
        for index in 0..self.slots.len() {
            if self.slots[index].number < current {
                self.close(index);
            }
        }
        RateError {
            window: Duration::from_ns(self.window_ns),
            windows: self.histogram.count,
            p99_ppm: self.histogram.percentile_99(),
            max_ppm: self.histogram.max,
        }
    }
}

impl Histogram {
    fn new() -> Self {
        Self {
            buckets: vec![0; BUCKETS].into_boxed_slice(),
            count: 0,
            max: 0,
        }
    }

    fn add(&mut self, value: u64) {
        self.buckets[bucket_of(value)] += 1;
        self.count += 1;
        self.max = self.max.max(value);
    }

    /// Upper end of the bucket in which the 99th percentile lies, at most the largest value.
    fn percentile_99(&self) -> u64 {
        let rank = (self.count * 99).div_ceil(100);
        let mut seen = 0;
        for (bucket, &n) in self.buckets.iter().enumerate() {
            seen += n;
            if n > 0 && seen >= rank {
                return upper_end(bucket).min(self.max);
            }
        }
        0
    }
}

fn index_of(number: u64) -> usize {
    usize::try_from(number % SLOTS as u64).unwrap_or(0)
}

/// Values below 8 have a bucket each, others eight an octave.
fn bucket_of(value: u64) -> usize {
    if value < 8 {
        return usize::try_from(value).unwrap_or(0);
    }
    let octave = value.ilog2();
    let eighth = (value >> (octave - 3)) & 7;
    usize::try_from(u64::from(octave - 2) * 8 + eighth).unwrap_or(BUCKETS - 1)
}

fn upper_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 8 {
        return bucket;
    }
    let (octave, eighth) = (bucket / 8 + 2, bucket % 8);
    ((9 + eighth) << (octave - 3)) - 1
}

const SCALES: [Duration; 3] = [
    Duration::from_ms(1),
    Duration::from_ms(10),
    Duration::from_s(1),
];
/// Windows kept open: what leaves later than so many is not compared.
const SLOTS: usize = 64;
const BUCKETS: usize = 64 * 8;

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: Rate = Rate::from_bits_per_second(1_000_000_000);

    /// 125 bytes each microsecond for `ms`, each `late` ns after its time.
    fn run(ms: u64, late: impl Fn(u64) -> u64) -> Vec<RateError> {
        let mut meter = RateMeter::new(GIGABIT);
        for us in 0..ms * 1_000 {
            let due = us * 1_000;
            meter.account(125, Instant::from_ns(due), Instant::from_ns(due + late(us)));
        }
        meter.errors(Instant::from_ns(ms * 1_000_000 + 1_000_000_000))
    }

    #[test]
    fn a_rate_that_is_kept_has_no_error() {
        let errors = run(3_000, |_| 0);
        let windows: Vec<u64> = errors.iter().map(|e| e.windows).collect();
        assert_eq!(windows, [3_000, 300, 3]);
        assert!(errors.iter().all(|e| e.max_ppm == 0 && e.p99_ppm == 0));
    }

    #[test]
    fn a_stall_of_a_millisecond_shows_in_short_windows_and_hardly_in_long_ones() {
        // What is due in [500 ms, 501 ms) leaves at its end.
        let errors = run(2_000, |us| {
            if (500_000..501_000).contains(&us) {
                (501_000 - us) * 1_000
            } else {
                0
            }
        });
        assert_eq!(errors[0].max_ppm, 1_000_000, "one window is empty");
        assert_eq!(errors[1].max_ppm, 0, "within one window of 10 ms");
        assert_eq!(errors[0].p99_ppm, 0, "two windows of 2000");
        assert_eq!(errors[2].max_ppm, 0);
    }

    #[test]
    fn an_idle_line_is_not_judged() {
        let mut meter = RateMeter::new(GIGABIT);
        meter.account(1_000, Instant::from_ns(10), Instant::from_ns(2_000_000));
        let errors = meter.errors(Instant::from_ns(5_000_000_000));
        assert!(errors.iter().all(|e| e.windows == 0));
    }

    #[test]
    fn buckets_are_an_eighth_of_an_octave_and_in_order() {
        let mut last = 0;
        for value in 0..100_000 {
            let bucket = bucket_of(value);
            assert!(bucket == last || bucket == last + 1, "{value}");
            assert!(upper_end(bucket) >= value);
            last = bucket;
        }
        assert!(bucket_of(u64::MAX) < BUCKETS);
    }
}
