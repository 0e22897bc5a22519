//! When each of a fixed number of parties is to be called next, and whose turn it is.
//!
//! Every party has one time at most, so that nothing has to be taken back when it changes. A
//! tournament among them: each inner node holds the winner of the two below it. Ties go to the
//! lower number, so that a run does not hang on the order of changes.

use units::Instant;

/// Times of parties 0 to n - 1.
#[derive(Clone, Debug)]
pub(crate) struct Agenda {
    times: Vec<Instant>,
    /// Winners; the root is 1, the children of k are 2k and 2k + 1.
    winners: Vec<u32>,
    leaves: usize,
}

impl Agenda {
    /// `parties` that all sleep.
    pub(crate) fn new(parties: usize) -> Self {
        let leaves = parties.max(2).next_power_of_two();
        let mut agenda = Self {
            times: vec![Instant::MAX; leaves],
            winners: vec![0; leaves],
            leaves,
        };
        for party in 0..leaves {
            agenda.replay(party);
        }
        agenda
    }

    /// Party `party` is to be called at `at`.
    pub(crate) fn set(&mut self, party: usize, at: Instant) {
        if self.times[party] != at {
            self.times[party] = at;
            self.replay(party);
        }
    }

    /// Whose turn is next, and when.
    pub(crate) fn next(&self) -> (usize, Instant) {
        let party = self.winners[1] as usize;
        (party, self.times[party])
    }

    fn replay(&mut self, party: usize) {
        let mut node = (self.leaves + party) / 2;
        let pair = party & !1;
        let mut winner = self.better(pair, pair + 1);
        loop {
            self.winners[node] = u32::try_from(winner).unwrap_or(0);
            if node == 1 {
                return;
            }
            let other = self.winners[node ^ 1] as usize;
            winner = self.better(winner.min(other), winner.max(other));
            node /= 2;
        }
    }

    fn better(&self, low: usize, high: usize) -> usize {
        if self.times[high] < self.times[low] {
            high
        } else {
            low
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_is_next_and_of_equals_the_lowest() {
        for parties in [1, 2, 3, 5, 8, 13] {
            let mut agenda = Agenda::new(parties);
            let mut times = vec![u64::MAX; parties];
            let mut rng = units::Rng::new(3);
            for _ in 0..500 {
                let party = usize::try_from(rng.next_u64()).unwrap() % parties;
                times[party] = rng.next_u64() % 20;
                agenda.set(party, Instant::from_ns(times[party]));
                let best = (0..parties).min_by_key(|p| (times[*p], *p)).unwrap();
                assert_eq!(agenda.next(), (best, Instant::from_ns(times[best])));
            }
        }
    }
}
