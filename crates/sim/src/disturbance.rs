//! What a place where packets arrive does to them beside the path: it hands some over late, or loses them.

use std::collections::VecDeque;

use link::Train;
use units::{Duration, Instant};

/// Packets that would arrive from one instant on and before another arrive later by so much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late {
    /// The first instant.
    pub from: Instant,
    /// The end.
    pub to: Instant,
    /// How much later. None overtakes another.
    pub by: Duration,
}

/// What happens at the end of one direction, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct Disturbance {
    /// Times that do not overlap.
    pub late: VecDeque<Late>,
    /// So many packets are lost, the first that arrive from that time on.
    pub losses: VecDeque<(Instant, u64)>,
}

/// One that is under way.
#[derive(Debug, Default)]
pub(crate) struct Disturbed {
    plan: Disturbance,
    lost: u64,
    /// When the last packet was handed over.
    last: Instant,
    /// What is left of a train of which a part has been handed over.
    rest: Option<Train>,
}

impl Disturbed {
    pub(crate) fn new(plan: Disturbance) -> Self {
        Self {
            plan,
            ..Self::default()
        }
    }

    /// The rest of the train that came last.
    pub(crate) const fn take_rest(&mut self) -> Option<Train> {
        self.rest.take()
    }

    /// Whether there is one.
    pub(crate) const fn has_rest(&self) -> bool {
        self.rest.is_some()
    }

    /// How many packets were lost here.
    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }

    /// What becomes of a train: its first packets as they are handed over, the others by [`Self::take_rest`]; `None` where
    /// nothing is left of it.
    pub(crate) fn pass(&mut self, train: Train) -> Option<Train> {
        let train = self.lose(train)?;
        while self.plan.late.front().is_some_and(|l| l.to <= train.at) {
            self.plan.late.pop_front();
        }
        let part = match self.plan.late.front().copied() {
            None => train,
            Some(late) if train.at < late.from => self.first(train, late.from),
            Some(late) => self.first(train, late.to).delayed(late.by),
        };
        // Behind what came before, however late that is.
        let part = part.delayed(self.last.saturating_since(part.at));
        self.last = part.last_time();
        Some(part)
    }

    /// The packets that arrive before `until`, at least one; the others wait.
    fn first(&mut self, train: Train, until: Instant) -> Train {
        let (mut least, mut most) = (1, train.count);
        while least < most {
            let middle = least + (most - least) / 2;
            if train.time_of(middle) < until {
                least = middle + 1;
            } else {
                most = middle;
            }
        }
        if least < train.count {
            self.rest = Some(train.part(least, train.count - least));
        }
        train.part(0, least)
    }

    fn lose(&mut self, train: Train) -> Option<Train> {
        let Some((at, left)) = self.plan.losses.front_mut() else {
            return Some(train);
        };
        if *at > train.at {
            return Some(train);
        }
        let gone = u16::try_from(*left).unwrap_or(u16::MAX).min(train.count);
        *left -= u64::from(gone);
        self.lost += u64::from(gone);
        if *left == 0 {
            self.plan.losses.pop_front();
        }
        (gone < train.count).then(|| train.part(gone, train.count - gone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use link::{Marks, Spacing};

    fn at(us: u64) -> Instant {
        Instant::from_ns(us * 1_000)
    }

    /// `count` packets, 10 us apart, the first at `us`.
    fn train(us: u64, count: u16) -> Train {
        Train {
            handle: 0,
            first: 0,
            count,
            wire_bytes: 1250,
            flow: 0,
            group: 0,
            marks: Marks::NONE,
            damage: 0,
            at: at(us),
            spacing: Spacing::back_to_back(1250, 1_000_000_000, 0),
        }
    }

    /// First packet, number and time of all parts of a train.
    fn parts(disturbed: &mut Disturbed, train: Train) -> Vec<(u16, u16, Instant)> {
        let mut parts = Vec::new();
        let mut next = Some(train);
        while let Some(train) = next {
            parts.extend(disturbed.pass(train).map(|t| (t.first, t.count, t.at)));
            next = disturbed.take_rest();
        }
        parts
    }

    #[test]
    fn what_is_late_is_late_and_the_others_wait_for_it() {
        let mut d = Disturbed::new(Disturbance {
            late: VecDeque::from([Late {
                from: at(100),
                to: at(200),
                by: Duration::from_us(50),
            }]),
            ..Disturbance::default()
        });
        // Packets at 80, 90, then 100 to 190, then 200 and 210.
        let all = parts(&mut d, train(80, 14));
        assert_eq!(all, [(0, 2, at(80)), (2, 10, at(150)), (12, 2, at(240))]);
        assert_eq!(parts(&mut d, train(260, 2)), [(0, 2, at(260))]);
    }

    #[test]
    fn a_loss_takes_the_first_that_arrive_from_its_time_on() {
        let mut d = Disturbed::new(Disturbance {
            losses: VecDeque::from([(at(50), 3)]),
            ..Disturbance::default()
        });
        assert_eq!(parts(&mut d, train(40, 1)), [(0, 1, at(40))]);
        assert_eq!(parts(&mut d, train(50, 2)), []);
        assert_eq!(parts(&mut d, train(70, 3)), [(1, 2, at(80))]);
        assert_eq!(d.lost(), 3);
    }
}
