//! Times of a capture's packets, with what is wrong with them taken out.
//!
//! A packet stamped far ahead of the one before is held back until the next one: where that is back
//! at the old time, the stamp was wrong, and the packet counts as of the time of the one before. Where
//! the clock went back, it goes on from where it was. A packet without a time has that of the one
//! before. Steps of less than a second are left to the analysis of each connection.

/// The clock of one capture.
#[derive(Debug, Default)]
pub(crate) struct Clock<T> {
    last: u64,
    /// What is added since the clock went back.
    ahead: u64,
    held: Option<(u64, T)>,
    faults: Faults,
}

/// What was wrong with a capture's times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Packets.
    pub(crate) packets: u64,
    /// Packets without a time.
    pub(crate) absent: u64,
    /// Of these, ones before the first that has one: a capture may begin at zero.
    pub(crate) absent_first: u64,
    /// Packets stamped ahead of those around them.
    pub(crate) ahead: u64,
    /// Times that the clock went back.
    pub(crate) back: u64,
}

impl<T> Clock<T> {
    /// A packet stamped `time`; hands over those that are to be taken now, with their times.
    #[inline]
    pub(crate) fn push(&mut self, time: u64, packet: T, mut take: impl FnMut(u64, T)) {
        self.faults.packets += 1;
        let expected = time.wrapping_add(self.ahead).wrapping_sub(self.last);
        if self.held.is_none() && expected < JUMP_NS && time > 0 {
            self.last = self.last.wrapping_add(expected);
            return take(self.last, packet);
        }
        self.odd(time, packet, &mut take);
    }

    /// Hands over what is held.
    pub(crate) fn finish(&mut self, mut take: impl FnMut(u64, T)) {
        if let Some((time, packet)) = self.held.take() {
            self.last = time;
            take(time, packet);
        }
    }

    pub(crate) const fn faults(&self) -> Faults {
        self.faults
    }

    #[cold]
    fn odd(&mut self, time: u64, packet: T, take: &mut impl FnMut(u64, T)) {
        if time == 0 {
            self.faults.absent += 1;
            self.faults.absent_first += u64::from(self.last == 0 && self.held.is_none());
            return match &self.held {
                None => take(self.last, packet),
                // Nothing to compare with.
                Some(_) => {
                    self.finish(&mut *take);
                    take(self.last, packet);
                }
            };
        }
        let time = time.saturating_add(self.ahead);
        if let Some((held, before)) = self.held.take() {
            if time < held - (held - self.last) / 2 {
                self.faults.ahead += 1;
                take(self.last, before);
            } else {
                self.last = held;
                take(held, before);
            }
        }
        if self.last == 0 {
            self.last = time;
        }
        if time >= self.last.saturating_add(JUMP_NS) {
            self.held = Some((time, packet));
            return;
        }
        if time.saturating_add(BACK_NS) < self.last {
            self.faults.back += 1;
            self.ahead = self.ahead.saturating_add(self.last - time);
        }
        self.last = self.last.max(time);
        take(self.last, packet);
    }
}

impl Faults {
    /// Sentences without a stop.
    pub(crate) fn notes(&self, name: &str) -> Vec<String> {
        let mut notes = Vec::new();
        let packets = |n: u64| {
            if n == 1 {
                "1 packet".to_owned()
            } else {
                format!("{n} packets")
            }
        };
        if self.absent > 0 && self.absent == self.packets {
            notes.push(format!(
                "the packets of {name} have no times: only counts are known"
            ));
        } else if self.absent > self.absent_first {
            let absent = self.absent - self.absent_first;
            let have = if absent == 1 { "has" } else { "have" };
            notes.push(format!("{} of {name} {have} no time", packets(absent)));
        }
        if self.ahead > 0 {
            notes.push(format!(
                "{} of {name} {} stamped far ahead of those around: taken as of the time of the one before",
                packets(self.ahead),
                if self.ahead == 1 { "is" } else { "are" }
            ));
        }
        if self.back > 0 {
            let times = if self.back == 1 {
                "once".to_owned()
            } else {
                format!("{} times", self.back)
            };
            notes.push(format!(
                "the clock of {name} went back {times}: times go on from where they were"
            ));
        }
        notes
    }
}

/// A gap that is looked at twice.
const JUMP_NS: u64 = 10_000_000_000;
/// Queues of an interface swap packets by less.
const BACK_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn through(times: &[u64]) -> (Vec<u64>, Faults) {
        let mut clock = Clock::default();
        let mut taken = Vec::new();
        for (n, &time) in times.iter().enumerate() {
            clock.push(time, n, |time, n| taken.push((n, time)));
        }
        clock.finish(|time, n| taken.push((n, time)));
        let order: Vec<usize> = taken.iter().map(|(n, _)| *n).collect();
        assert_eq!(order, (0..times.len()).collect::<Vec<_>>());
        (
            taken.into_iter().map(|(_, time)| time).collect(),
            clock.faults(),
        )
    }

    #[test]
    fn times_that_are_right_stay() {
        let times = [
            5 * S,
            5 * S + 1,
            15 * S,
            25 * S + 2,
            5000 * S,
            5000 * S,
            5001 * S,
        ];
        let (taken, faults) = through(&times);
        assert_eq!(taken, times);
        assert_eq!((faults.ahead, faults.back, faults.absent), (0, 0, 0));
        // The last packet after a long silence.
        assert_eq!(through(&[S, 100 * S]).0, [S, 100 * S]);
        assert!(through(&[]).0.is_empty());
    }

    #[test]
    fn one_packet_stamped_ahead_counts_as_of_the_one_before() {
        let (taken, faults) = through(&[S, 2 * S, 3602 * S, 3 * S, 4 * S]);
        assert_eq!(taken, [S, 2 * S, 2 * S, 3 * S, 4 * S]);
        assert_eq!((faults.ahead, faults.back), (1, 0));
        // The first of all looks the same as a clock that went back.
        let (taken, faults) = through(&[3602 * S, 3 * S, 4 * S]);
        assert_eq!(taken, [3602 * S, 3602 * S, 3603 * S]);
        assert_eq!((faults.ahead, faults.back), (0, 1));
    }

    #[test]
    fn a_clock_that_went_back_goes_on_from_where_it_was() {
        let (taken, faults) = through(&[100 * S, 101 * S, 41 * S, 42 * S, 43 * S]);
        assert_eq!(taken, [100 * S, 101 * S, 101 * S, 102 * S, 103 * S]);
        assert_eq!(faults.back, 1);
        // Queues that swap packets are left to others.
        let (taken, faults) = through(&[100 * S, 100 * S - 1000, 101 * S]);
        assert_eq!((taken, faults.back), (vec![100 * S, 100 * S, 101 * S], 0));
    }

    #[test]
    fn packets_without_a_time_have_that_of_the_one_before() {
        let (taken, faults) = through(&[0, 0, 0]);
        assert_eq!((taken, faults.absent), (vec![0; 3], 3));
        assert!(faults.notes("a.pcap")[0].contains("no times"));
        // A capture that begins at zero has all of them.
        let (taken, faults) = through(&[0, S / 100, S]);
        assert_eq!(taken, [0, S / 100, S]);
        assert!(faults.notes("a.pcap").is_empty());
        let (taken, _) = through(&[S, 0, 2 * S, 900 * S, 0, 901 * S]);
        assert_eq!(taken, [S, S, 2 * S, 900 * S, 900 * S, 901 * S]);
    }
}
