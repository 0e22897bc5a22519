//! The two captures' clocks, from packets that both saw.
//!
//! A packet one way and one the other way make a probe with four stamps, whichever of the two captures
//! is first on which way: the clocks are apart by half the sum of both differences, and wrong by half
//! the round trip at most. Of the whole time up to [`BINS`] probes are kept, the shortest round trip of
//! each stretch, so that [`one_way`] has a small number however long the captures are.
//!
//! A clock that is set while packets pass shows as a jump that no delay explains. Then the line goes
//! through the longest stretch without one, and delays are of that stretch.

use crate::one_way::{ClockLine, Delays, Reply, Within, one_way};
use units::Rng;

/// A packet's way: at which time by the first capture, and how much later the second had it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Never goes back, other than `near_ns`.
    pub(super) progress_ns: u64,
    pub(super) near_ns: u64,
    pub(super) apart_ns: i64,
    pub(super) connection: u32,
    pub(super) way: u8,
}

/// Samples drawn evenly from all that came (reservoir).
#[derive(Clone, Debug)]
pub(super) struct Samples {
    pub(super) kept: Vec<Sample>,
    seen: u64,
    rng: Rng,
}

impl Samples {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            kept: Vec::new(),
            seen: 0,
            rng: Rng::new(seed),
        }
    }

    pub(super) fn take(&mut self, sample: Sample) {
        self.seen += 1;
        if self.kept.len() < SAMPLES_MAX {
            self.kept.push(sample);
        } else if let Ok(place) = usize::try_from(self.rng.next_u64() % self.seen)
            && let Some(kept) = self.kept.get_mut(place)
        {
            *kept = sample;
        }
    }
}

/// The best probe of each stretch of time.
#[derive(Clone, Debug)]
pub(super) struct Probes {
    begins: Option<u64>,
    width_ns: u64,
    bins: Vec<Option<(u64, Reply)>>,
    base_ns: i64,
}

impl Probes {
    /// `base_ns`: about how far the second clock is ahead.
    pub(super) fn new(base_ns: i64) -> Self {
        Self {
            begins: None,
            width_ns: 1_000_000,
            bins: vec![None; BINS],
            base_ns,
        }
    }

    /// Two packets of one connection, one each way, as near and far times; the earlier match first.
    pub(super) fn take(&mut self, progress_ns: u64, one: (u64, u64), two: (u64, u64)) {
        let apart = |(near, far)| super::apart_ns(near, far);
        let (there, back) = if apart(one) >= apart(two) {
            (one, two)
        } else {
            (two, one)
        };
        let by_near = |(_, far): (u64, u64)| far.checked_add_signed(self.base_ns.saturating_neg());
        let (Some(t2_ns), Some(t3_ns)) = (by_near(there), by_near(back)) else {
            return;
        };
        let reply = Reply {
            t1_ns: there.0,
            t2_ns,
            t3_ns,
            t4_ns: back.0,
            ..Reply::default()
        };
        if reply.t4_ns < reply.t1_ns {
            return;
        }
        let begins = *self.begins.get_or_insert(progress_ns);
        let since = progress_ns.saturating_sub(begins);
        while since / self.width_ns >= BINS as u64 {
            self.halve();
        }
        let place = usize::try_from(since / self.width_ns).unwrap_or(BINS);
        if let Some(bin) = self.bins.get_mut(place)
            && bin.is_none_or(|(_, best)| round_trip(&reply) < round_trip(&best))
        {
            *bin = Some((progress_ns, reply));
        }
    }

    /// Half as many bins, each twice as wide.
    fn halve(&mut self) {
        self.width_ns = self.width_ns.saturating_mul(2);
        for n in 0..BINS {
            let pair = self.bins.get(2 * n..2 * n + 2).unwrap_or_default();
            let best = pair.iter().flatten().min_by_key(|(_, r)| round_trip(r));
            self.bins[n] = best.copied();
        }
    }

    /// What they tell.
    pub(super) fn clocks(&self) -> Option<Clocks> {
        let mut all: Vec<(u64, Reply)> = self.bins.iter().flatten().copied().collect();
        // One half before and one after a clock was set would bridge the jump.
        let mut round_trips: Vec<i128> = all.iter().map(|(_, r)| round_trip(r)).collect();
        round_trips.sort_unstable();
        let median = round_trips.get(round_trips.len() / 2).copied()?;
        all.retain(|(_, r)| round_trip(r) <= 2 * median.max(0) + 2 * STEP_MIN_NS);
        let mut stretches = vec![0];
        stretches.extend((1..all.len()).filter(|&n| is_step(&all[n - 1].1, &all[n].1)));
        let steps = u32::try_from(stretches.len() - 1).unwrap_or(u32::MAX);
        stretches.push(all.len());
        let longest = stretches.windows(2).max_by_key(|w| w[1] - w[0])?;
        let numbered = all[longest[0]..longest[1]].iter().zip(0_u32..);
        let replies: Vec<Reply> = numbered
            .map(|((_, reply), n)| Reply {
                sender_sequence: n,
                reflector_sequence: n,
                ..*reply
            })
            .collect();
        let found = one_way(replies.len() as u64, &replies);
        let start_ns = replies.iter().map(|r| r.t1_ns).min()?;
        // A stretch reaches up to the next step, which was between its last probe and the next one.
        let from = (longest[0] > 0).then(|| all[longest[0]].0);
        let until = (longest[1] < all.len()).then(|| all[longest[1] - 1].0);
        Some(Clocks {
            line: found.clocks?,
            base_ns: self.base_ns,
            start_ns,
            steps,
            round_trip_min_ns: found.round_trip?.min_ns,
            from_ns: from.unwrap_or(0),
            until_ns: until.unwrap_or(u64::MAX),
        })
    }
}

/// A line that tells one clock from the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    pub(super) line: ClockLine,
    pub(super) base_ns: i64,
    start_ns: u64,
    pub(super) steps: u32,
    pub(super) round_trip_min_ns: i64,
    from_ns: u64,
    until_ns: u64,
}

impl Clocks {
    /// By how much the second clock is faster; a steeper line than clocks have is one through queues.
    pub(super) fn drift_ppm(&self) -> Option<Within> {
        let possible = |d: &Within| d.value.abs() <= DRIFT_MAX_PPM as f64;
        self.line.drift_ppm.filter(possible)
    }

    /// How far the second clock is ahead at a time of the first one.
    fn ahead_ns(&self, near_ns: u64) -> i64 {
        let middle = self.start_ns.saturating_add(self.line.middle.as_ns());
        let since_s = super::apart_ns(middle, near_ns) as f64 / 1e9;
        let drift = self.drift_ppm().map_or(0.0, |d| d.value);
        let ahead = self.line.offset_ns.value + drift * 1e3 * since_s;
        #[allow(clippy::cast_possible_truncation, reason = "a float cast saturates")]
        let ahead = ahead.round() as i64;
        self.base_ns.saturating_add(ahead)
    }

    /// The delays of those samples that `first` says passed the first capture first (or, where it says
    /// false, second), on their way from one to the other.
    pub(super) fn delays(
        &self,
        samples: impl Iterator<Item = Sample>,
        first: bool,
    ) -> (u64, Option<Delays>) {
        let within = samples.filter(|s| (self.from_ns..=self.until_ns).contains(&s.progress_ns));
        let all: Vec<i64> = within
            .map(|s| {
                let later = s.apart_ns.saturating_sub(self.ahead_ns(s.near_ns));
                if first { later } else { later.saturating_neg() }
            })
            .collect();
        (all.len() as u64, Delays::of(all))
    }
}

/// How far the second clock looks ahead, twice, so that it is whole.
fn twice_ahead(r: &Reply) -> i128 {
    i128::from(r.t2_ns) - i128::from(r.t1_ns) + i128::from(r.t3_ns) - i128::from(r.t4_ns)
}

fn round_trip(r: &Reply) -> i128 {
    i128::from(r.t4_ns) - i128::from(r.t1_ns) + i128::from(r.t2_ns) - i128::from(r.t3_ns)
}

/// Whether one of the clocks was set between two probes: each knows the offset to half its round trip,
/// and no clock that runs drifts by more than [`DRIFT_MAX_PPM`].
fn is_step(a: &Reply, b: &Reply) -> bool {
    let apart = twice_ahead(b) - twice_ahead(a);
    let time = i128::from(b.t1_ns.abs_diff(a.t1_ns));
    let drift = 2 * time * DRIFT_MAX_PPM / 1_000_000;
    apart.abs() > round_trip(a).max(0) + round_trip(b).max(0) + drift + 2 * STEP_MIN_NS
}

/// Of which [`one_way`] makes 64 windows of 8 and more.
const BINS: usize = 1_024;
/// 4 MiB.
pub(super) const SAMPLES_MAX: usize = 1 << 17;
/// The kernel slews by 500 ppm at most (kernel/time/ntp.c, `MAXFREQ`); twice that for two clocks.
const DRIFT_MAX_PPM: i128 = 1_000;
/// Stamps of a busy host are late by some tens of microseconds; ten times that.
const STEP_MIN_NS: i128 = 500_000;
