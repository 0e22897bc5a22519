//! How links that the kernel runs kept their rates, by the kernel's own counters.

use link::spec::Medium;
use sys::netlink::LinkCounters;
use sys::qdisc::BucketCounters;
use units::{Bytes, Duration, Instant, Rate};

use crate::forward::DirectionCounts;
use crate::path::kernel::HEADER_BYTES;
use crate::rate::RateError;

/// What the kernel did in a phase of a lab whose links it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelRun {
    /// Each direction of each link, forward at even places, backward behind it.
    pub paces: Vec<Pace>,
    /// The largest packet that passed as one: super-packets are not cut into frames.
    pub packet_max: Bytes,
    /// Part of the CPUs' time without work, in millionths.
    pub idle_ppm: u64,
    /// Part that the hypervisor took.
    pub steal_ppm: u64,
}

/// A direction of a link over one phase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// The link.
    pub link: String,
    /// The node that sends.
    pub from: String,
    /// The node that receives.
    pub to: String,
    /// Its rate in the path file.
    pub rate: Option<Rate>,
    /// Bytes on the wire by the counters of the interface that sends, with what each frame of a super-packet has of
    /// its own. Without a rate a super-packet is one frame.
    pub wire_bytes: u64,
    /// The same as the token bucket counted them.
    pub counted_bytes: u64,
    /// Frames.
    pub frames: u64,
    /// Packets, a super-packet as one.
    pub packets: u64,
    /// Packets that found its queue full, a super-packet as one.
    pub drops: u64,
    /// Packets that the interfaces themselves dropped.
    pub lost: u64,
    /// How often a packet had to wait for the rate.
    pub overlimits: u64,
    /// What passed in the phase over what the rate carries, in millionths.
    pub share_ppm: u64,
    /// Windows of [`WINDOW`] looked at: fewer than there were where the machine let nobody look.
    pub windows: u64,
    /// Windows that there were.
    pub windows_due: u64,
    /// In how many of them more passed than the rate and one burst.
    pub windows_over: u64,
    /// In how many of them something waited all the while.
    pub windows_busy: u64,
    /// What passed in these over what the rate carries, in millionths.
    pub busy_ppm: u64,
    /// In these: |passed - due| over what was due.
    pub error: RateError,
}

/// Counters of one direction since the lab came up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    /// At the end that sends.
    pub(crate) sent: LinkCounters,
    /// Dropped by the end that receives.
    pub(crate) refused: u64,
    /// Of its token bucket, where it has a rate.
    pub(crate) bucket: Option<BucketCounters>,
}

/// A token bucket at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// The kernel was asked at the first and had answered at the second.
    pub(crate) between: [Instant; 2],
    /// That have passed since the lab came up.
    pub(crate) bytes: u64,
    /// Something waited.
    pub(crate) busy: bool,
}

/// Compares what passed with what was due, window by window.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    rate: Rate,
    burst: Bytes,
    /// Begin of the window; busy while something has waited ever since.
    start: Option<Sample>,
    windows: u64,
    over: u64,
    passed: u64,
    due: u64,
    errors: Vec<u64>,
}

impl Pace {
    /// What was counted between two moments.
    pub(crate) fn of(before: &Counted, after: &Counted, medium: Medium) -> Self {
        let packets = after.sent.tx_packets - before.sent.tx_packets;
        let [old, new] = [before, after].map(|c| c.bucket.unwrap_or_default());
        let frames = match after.bucket {
            Some(_) => new.frames.wrapping_sub(old.frames).into(),
            None => packets,
        };
        // What a frame takes beyond its own bytes: a full one, for the least ones are padded too.
        let beside = i64::from(medium.wire_bytes(FRAME_BYTES)) - i64::from(FRAME_BYTES);
        let headers = u64::from(HEADER_BYTES) * frames.saturating_sub(packets);
        let bytes = after.sent.tx_bytes - before.sent.tx_bytes + headers;
        let beside = beside * i64::try_from(frames).unwrap_or(0);
        Self {
            wire_bytes: bytes.saturating_add_signed(beside),
            counted_bytes: new.bytes - old.bytes,
            frames,
            packets,
            drops: new.drops.wrapping_sub(old.drops).into(),
            overlimits: new.overlimits.wrapping_sub(old.overlimits).into(),
            lost: (after.sent.tx_dropped + after.refused)
                - (before.sent.tx_dropped + before.refused),
            ..Self::default()
        }
    }

    /// As those of a lab whose links are ours.
    pub(crate) fn counts(&self) -> DirectionCounts {
        DirectionCounts {
            frames_in: self.packets + self.drops,
            segments_out: self.frames,
            lost_send: self.lost,
            link: link::Counters {
                queue_full: self.drops,
                scheduled: self.frames,
                ..link::Counters::default()
            },
            ..DirectionCounts::default()
        }
    }

    /// Adds how the rate was kept in a phase that took so long.
    pub(crate) fn judge(&mut self, meter: &Meter, took: Duration) {
        let whole = meter.rate.bytes_in(took).as_u64();
        self.rate = Some(meter.rate);
        self.share_ppm = millionths(self.counted_bytes, whole);
        self.windows = meter.windows;
        self.windows_due = took.as_ns() / WINDOW.as_ns();
        self.windows_over = meter.over;
        self.windows_busy = meter.errors.len() as u64;
        self.busy_ppm = millionths(meter.passed, meter.due);
        let mut errors = meter.errors.clone();
        errors.sort_unstable();
        let rank = (errors.len() * 99).div_ceil(100).max(1);
        self.error = RateError {
            window: WINDOW,
            windows: self.windows_busy,
            p99_ppm: errors.get(rank - 1).copied().unwrap_or(0),
            max_ppm: errors.last().copied().unwrap_or(0),
        };
    }

    /// True when the link, not what was sent over it, set the pace.
    fn is_full(&self) -> bool {
        self.share_ppm >= FULL_PPM || 2 * self.windows_busy >= self.windows.max(1)
    }

    /// What is wrong, if anything.
    fn problem(&self) -> Option<String> {
        let (link, from, to) = (&self.link, &self.from, &self.to);
        let rate = self.rate?;
        let way = format!("{link} from {from} to {to}");
        if self.windows_due >= BUSY_MIN && self.windows < self.windows_due / SEEN_PARTS {
            return Some(format!(
                "{way} was looked at in {} of {} windows of {WINDOW} only: the machine was late",
                self.windows, self.windows_due
            ));
        }
        if self.windows_over > 0 {
            return Some(format!(
                "{way} carried more than {rate} and a burst in {} of {} windows of {WINDOW}",
                self.windows_over, self.windows
            ));
        }
        if self.windows_busy >= BUSY_MIN && self.busy_ppm < KEPT_PPM {
            return Some(format!(
                "{way} carried {} of {rate} while packets waited: the machine was late",
                percent(self.busy_ppm)
            ));
        }
        let more = self.wire_bytes.saturating_sub(self.counted_bytes);
        if more > self.counted_bytes / 100 + SLACK_BYTES {
            return Some(format!(
                "{way} carried {} B, and {} B were counted: frames of super-packets were smaller than its MTU, or \
                 others than TCP's were cut",
                self.wire_bytes, self.counted_bytes
            ));
        }
        let fewer = self.counted_bytes.saturating_sub(self.wire_bytes);
        if fewer > self.counted_bytes / 50 + SLACK_BYTES {
            return Some(format!(
                "{way} carried {} B, and {} B were counted: super-packets were others than TCP's, which it carried at \
                 less than {rate}",
                self.wire_bytes, self.counted_bytes
            ));
        }
        None
    }
}

impl KernelRun {
    /// What was wrong in the phase, a line each.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = self.paces.iter().filter_map(Pace::problem).collect();
        let lost: u64 = self.paces.iter().map(|p| p.lost).sum();
        if lost > 0 {
            problems.push(format!("the interfaces of the lab lost {lost} packets"));
        }
        let rated = || self.paces.iter().filter(|p| p.rate.is_some());
        let exhausted = self.idle_ppm < IDLE_MIN_PPM || self.steal_ppm > STEAL_MAX_PPM;
        if exhausted && rated().count() > 0 && !rated().any(Pace::is_full) {
            problems.push(format!(
                "no link was full, and of the CPUs' time {} were idle and {} stolen: the machine set the pace",
                percent(self.idle_ppm),
                percent(self.steal_ppm)
            ));
        }
        problems
    }

    /// The worst direction.
    pub(crate) fn error(&self) -> Option<RateError> {
        let busy = self.paces.iter().filter(|p| p.windows_busy > 0);
        busy.map(|p| p.error).reduce(|all, one| RateError {
            window: WINDOW,
            windows: all.windows + one.windows,
            p99_ppm: all.p99_ppm.max(one.p99_ppm),
            max_ppm: all.max_ppm.max(one.max_ppm),
        })
    }
}

impl Meter {
    pub(crate) const fn new(rate: Rate, burst: Bytes) -> Self {
        Self {
            rate,
            burst,
            start: None,
            windows: 0,
            over: 0,
            passed: 0,
            due: 0,
            errors: Vec::new(),
        }
    }

    /// A later sample. One that took long says too little.
    pub(crate) fn add(&mut self, sample: Sample) {
        let [asked, answered] = sample.between;
        if answered.saturating_since(asked) > BLUR {
            return;
        }
        let Some(start) = &mut self.start else {
            self.start = Some(sample);
            return;
        };
        start.busy &= sample.busy;
        if asked.saturating_since(start.between[0]) < WINDOW {
            return;
        }
        let start = *start;
        self.start = Some(sample);
        let passed = sample.bytes.saturating_sub(start.bytes);
        let middle = |s: Sample| {
            s.between[0]
                + Duration::from_ns(s.between[1].saturating_since(s.between[0]).as_ns() / 2)
        };
        let longest = answered.saturating_since(start.between[0]);
        let most = self.rate.bytes_in(longest).as_u64() + self.burst.as_u64();
        self.windows += 1;
        self.over += u64::from(passed > most);
        if start.busy && self.errors.len() < WINDOWS_MAX {
            let took = middle(sample).saturating_since(middle(start));
            let due = self.rate.bytes_in(took).as_u64();
            self.passed += passed;
            self.due += due;
            self.errors.push(millionths(passed.abs_diff(due), due));
        }
    }
}

fn millionths(part: u64, whole: u64) -> u64 {
    let ppm = u128::from(part) * 1_000_000 / u128::from(whole.max(1));
    u64::try_from(ppm).unwrap_or(u64::MAX)
}

/// One place behind the point.
pub(crate) fn percent(ppm: u64) -> String {
    let tenths = (ppm + 500) / 1_000;
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// Long enough that a burst of 5 ms is a twentieth of it.
const WINDOW: Duration = Duration::from_ms(100);
/// A sample that took longer says nothing of a window.
const BLUR: Duration = Duration::from_ms(2);
/// Ten hours.
const WINDOWS_MAX: usize = 360_000;
/// Half a second.
const BUSY_MIN: u64 = 5;
/// Of the windows, the part that is looked at least: in the others it may have been anything.
const SEEN_PARTS: u64 = 2;
/// A link that had something to send all the while: what it carries of its rate at least.
const KEPT_PPM: u64 = 980_000;
/// Of a whole phase, with its begin and end.
const FULL_PPM: u64 = 900_000;
const IDLE_MIN_PPM: u64 = 20_000;
const STEAL_MAX_PPM: u64 = 50_000;
/// A few packets, which are many of few.
const SLACK_BYTES: u64 = 1 << 16;
/// With its Ethernet header.
const FRAME_BYTES: u32 = 1_514;

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: Rate = Rate::from_bits_per_second(1_000_000_000);

    /// A second of samples 20 ms apart at which `bytes(ms)` have passed.
    fn metered(busy: bool, bytes: impl Fn(u64) -> u64) -> Pace {
        let mut meter = Meter::new(GIGABIT, Bytes::new(125_000));
        for ms in (0..=1_000).step_by(20) {
            let at = Instant::from_ns(ms * 1_000_000);
            meter.add(Sample {
                between: [at, at],
                bytes: bytes(ms),
                busy,
            });
        }
        let mut pace = Pace {
            counted_bytes: bytes(1_000),
            wire_bytes: bytes(1_000),
            ..Pace::default()
        };
        pace.judge(&meter, Duration::from_s(1));
        pace
    }

    #[test]
    fn a_kept_rate_is_trusted() {
        let pace = metered(true, |ms| ms * 125_000);
        assert_eq!(
            (pace.windows, pace.windows_busy, pace.windows_over),
            (10, 10, 0)
        );
        assert_eq!((pace.busy_ppm, pace.share_ppm), (1_000_000, 1_000_000));
        assert_eq!(pace.error.max_ppm, 0);
        assert_eq!(pace.problem(), None);
    }

    #[test]
    fn a_link_that_waits_and_does_not_send_is_late() {
        let problem = metered(true, |ms| ms * 120_000).problem().unwrap();
        assert!(problem.contains("96.0 %"), "{problem}");
        // With nothing to send it is not.
        assert_eq!(metered(false, |ms| ms * 120_000).problem(), None);
    }

    #[test]
    fn a_link_that_nobody_could_look_at_is_not_trusted() {
        // Full, and 4 % late: no sample says so, for each took too long.
        let mut meter = Meter::new(GIGABIT, Bytes::new(125_000));
        for ms in (0..=1_000).step_by(20) {
            let at = |ms: u64| Instant::from_ns(ms * 1_000_000);
            meter.add(Sample {
                between: [at(ms), at(ms + 3)],
                bytes: ms * 120_000,
                busy: true,
            });
        }
        let mut pace = Pace {
            counted_bytes: 120_000_000,
            wire_bytes: 120_000_000,
            ..Pace::default()
        };
        pace.judge(&meter, Duration::from_s(1));
        let run = KernelRun {
            paces: vec![pace],
            ..KernelRun::default()
        };
        let problems = run.problems();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("in 0 of 10 windows"), "{problems:?}");
    }

    #[test]
    fn a_burst_may_be_beyond_the_rate_and_no_more() {
        let burst = |bytes| {
            move |ms: u64| {
                if ms > 50 {
                    ms * 125_000 + bytes
                } else {
                    ms * 125_000
                }
            }
        };
        assert_eq!(metered(true, burst(125_000)).problem(), None);
        let problem = metered(true, burst(125_001)).problem().unwrap();
        assert!(problem.contains("in 1 of 10 windows"), "{problem}");
    }

    #[test]
    fn busy_cpus_matter_where_no_link_is_full() {
        let mut run = KernelRun {
            paces: vec![metered(true, |ms| ms * 125_000)],
            idle_ppm: 0,
            ..KernelRun::default()
        };
        assert!(run.problems().is_empty());
        run.paces = vec![metered(false, |ms| ms * 60_000)];
        assert_eq!(run.problems().len(), 1, "{:?}", run.problems());
        run.idle_ppm = 300_000;
        assert!(run.problems().is_empty());
    }

    #[test]
    fn frames_smaller_than_counted_are_told() {
        let mut pace = metered(true, |ms| ms * 125_000);
        pace.wire_bytes += pace.counted_bytes / 50;
        assert!(pace.problem().unwrap().contains("smaller than its MTU"));
        pace.wire_bytes = pace.counted_bytes - pace.counted_bytes / 60;
        assert_eq!(pace.problem(), None);
        pace.wire_bytes = pace.counted_bytes - pace.counted_bytes / 40;
        assert!(pace.problem().unwrap().contains("others than TCP's"));
    }
}
