//! How late the forwarder was, and when: what was due in a slot of time left so much later.

use std::collections::VecDeque;

use link::Release;
use units::{Duration, Instant};

/// What one direction that ends at a host added to its path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lateness {
    /// Segments and the sum of what each was late, in nanoseconds.
    segments: u64,
    sum_ns: u128,
    /// Slots in which something was [`WORTH`] late or more, ascending: number, and the latest in it.
    slots: VecDeque<(u64, Duration)>,
    /// Length of a slot is [`SLOT`] times 2 to this.
    doubled: u32,
    /// Frames lost by the lab, and when that was noticed.
    losses: VecDeque<(Instant, u64)>,
}

impl Lateness {
    /// Segments leave at `now`.
    pub(crate) fn account(&mut self, release: &Release, now: Instant) {
        let late = now.saturating_since(release.at);
        let last = now.saturating_since(release.last_at);
        let mean = (late.as_ns() + last.as_ns()) / 2;
        self.segments += u64::from(release.count);
        self.sum_ns += u128::from(mean) * u128::from(release.count);
        if late < WORTH {
            return;
        }
        let number = release.at.as_ns() / self.slot_ns();
        match self.slots.back_mut() {
            Some((of, most)) if *of >= number => *most = late.max(*most),
            _ => self.slots.push_back((number, late)),
        }
        if self.slots.len() > SLOTS_MAX {
            self.coarsen();
        }
    }

    /// Frames were lost, as was noticed at `now`.
    pub(crate) fn lose(&mut self, frames: u64, now: Instant) {
        if frames == 0 {
            return;
        }
        let is_full = self.losses.len() >= LOSSES_MAX;
        match self.losses.back_mut() {
            Some((at, n)) if is_full || now.saturating_since(*at) < LOSSES_APART => *n += frames,
            _ => self.losses.push_back((now, frames)),
        }
    }

    /// Losses of a direction on the way to this one.
    pub(crate) fn add_losses(&mut self, before: Option<&Self>) {
        let Some(before) = before else { return };
        self.losses.extend(&before.losses);
        self.losses.make_contiguous().sort_unstable();
    }

    const fn slot_ns(&self) -> u64 {
        SLOT.as_ns() << self.doubled
    }

    /// Slots twice as long.
    fn coarsen(&mut self) {
        self.doubled += 1;
        let mut merged: VecDeque<(u64, Duration)> = VecDeque::with_capacity(SLOTS_MAX + 1);
        for (number, late) in self.slots.drain(..) {
            match merged.back_mut() {
                Some((of, most)) if *of == number / 2 => *most = late.max(*most),
                _ => merged.push_back((number / 2, late)),
            }
        }
        self.slots = merged;
    }

    /// What a segment was late in the mean.
    pub(crate) fn mean(&self) -> Duration {
        let mean = self.sum_ns / u128::from(self.segments.max(1));
        Duration::from_ns(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    /// Time in which what was due was `least` late or more: each time counts what it stood still.
    pub(crate) fn stood_still(&self, least: Duration) -> (u64, Duration) {
        let (mut times, mut sum) = (0, Duration::ZERO);
        let mut over = 0;
        for &(number, late) in &self.slots {
            let due = number * self.slot_ns();
            if late < least || due < over {
                continue;
            }
            times += 1;
            sum = sum + late;
            over = due + late.as_ns();
        }
        (times, sum)
    }

    /// Losses by time.
    pub(crate) const fn losses(&self) -> &VecDeque<(Instant, u64)> {
        &self.losses
    }

    /// The same as a simulation takes it, whose time zero is `start`.
    pub(crate) fn disturbance(&self, start: Instant) -> sim::Disturbance {
        let length = self.slot_ns();
        let shifted = |at: u64| Instant::from_ns(at.saturating_sub(start.as_ns()));
        let slots = self.slots.iter();
        let slots = slots.filter(|(number, _)| number * length >= start.as_ns());
        let losses = self.losses.iter().filter(|(at, _)| *at >= start);
        sim::Disturbance {
            late: slots
                .map(|&(number, by)| sim::Late {
                    from: shifted(number * length),
                    to: shifted((number + 1) * length),
                    by,
                })
                .collect(),
            losses: losses.map(|&(at, n)| (shifted(at.as_ns()), n)).collect(),
        }
    }
}

/// Half of what a median may be late.
const WORTH: Duration = Duration::from_us(50);
const SLOT: Duration = Duration::from_us(250);
/// 16 s in which something is late in each slot, before they get longer; 1 MB.
const SLOTS_MAX: usize = 65_536;
/// The kernel is asked no more often what it dropped.
const LOSSES_APART: Duration = Duration::from_ms(10);
const LOSSES_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_ns(us * 1_000)
    }

    fn leave(lateness: &mut Lateness, due_us: u64, late_us: u64) {
        let release = Release {
            at: at(due_us),
            last_at: at(due_us),
            handle: 0,
            first: 0,
            count: 1,
            wire_bytes: 1538,
            marks: link::Marks::NONE,
            damage: 0,
        };
        lateness.account(&release, at(due_us + late_us));
    }

    #[test]
    fn a_slot_has_the_latest_and_the_mean_counts_all() {
        let mut lateness = Lateness::default();
        for (due, late) in [(0, 49), (250, 50), (400, 151), (600, 0)] {
            leave(&mut lateness, due, late);
        }
        assert_eq!(lateness.mean(), Duration::from_ns(62_500));
        let late = lateness.disturbance(Instant::ZERO).late;
        let one = sim::Late {
            from: at(250),
            to: at(500),
            by: Duration::from_us(151),
        };
        assert_eq!(late, [one]);
    }

    #[test]
    fn a_stall_is_counted_once_and_not_below_the_limit() {
        let mut lateness = Lateness::default();
        // 4 ms from 1 ms on, then 1 ms at 20 ms.
        for due in 0..16 {
            leave(&mut lateness, 1_000 + due * 250, 4_000 - due * 250);
        }
        leave(&mut lateness, 20_000, 1_000);
        let ms = Duration::from_ms;
        assert_eq!(lateness.stood_still(ms(1)), (2, ms(5)));
        assert_eq!(lateness.stood_still(ms(4)), (1, ms(4)));
        assert_eq!(lateness.stood_still(ms(5)), (0, ms(0)));
    }

    #[test]
    fn slots_get_longer_where_they_would_be_too_many() {
        let mut lateness = Lateness::default();
        for slot in 0..=SLOTS_MAX as u64 {
            leave(&mut lateness, slot * 250, 60 + slot % 2);
        }
        let late = lateness.disturbance(Instant::ZERO).late;
        assert_eq!(late.len(), SLOTS_MAX / 2 + 1);
        assert_eq!(late[0].to, at(500));
        assert_eq!(late[0].by, Duration::from_us(61));
    }

    #[test]
    fn losses_close_to_each_other_are_one() {
        let mut lateness = Lateness::default();
        for (us, n) in [(0, 2), (9_999, 1), (20_000, 0), (20_001, 4)] {
            lateness.lose(n, at(us));
        }
        assert_eq!(lateness.losses(), &[(at(0), 3), (at(20_001), 4)]);
    }
}
