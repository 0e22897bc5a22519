//! Whose turn it is to open UDP streams: one transfer at a time, and every address in its turn.
//!
//! All that is new at the UDP port goes to the socket bound last, so only one transfer can wait for its openings there. A
//! client may hold its turn for seconds and send none. So turns go round by address: of those that wait, the address
//! whose last turn is longest ago is next, and one that has several sessions does not keep the others out.

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The turns of a server.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_taken: bool,
    /// In the order of their coming.
    waiting: Vec<(u64, IpAddr)>,
    number: u64,
    /// Addresses that had a turn, the latest last.
    recent: Vec<IpAddr>,
}

/// More addresses than sessions wait for nobody: the oldest are forgotten.
const RECENT_MAX: usize = 256;

impl Turns {
    /// Gets in line for a client from `source` (as [`crate::lobby::source_of`] has it).
    pub(crate) fn wait(&self, source: IpAddr) -> Waiting<'_> {
        let mut state = self.state();
        state.number += 1;
        let number = state.number;
        state.waiting.push((number, source));
        Waiting {
            turns: self,
            number,
            source,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The number of the one whose turn is next.
    fn next(&self) -> Option<u64> {
        let had = |source: &IpAddr| self.recent.iter().position(|recent| recent == source);
        let first = self
            .waiting
            .iter()
            .min_by_key(|(number, source)| (had(source).map_or(0, |at| at + 1), *number));
        first.map(|(number, _)| *number)
    }
}

/// A place in line; left when dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    turns: &'a Turns,
    number: u64,
    source: IpAddr,
}

impl<'a> Waiting<'a> {
    /// The turn, if it has come.
    pub(crate) fn try_take(&self) -> Option<Turn<'a>> {
        let mut state = self.turns.state();
        if state.is_taken || state.next() != Some(self.number) {
            return None;
        }
        state.is_taken = true;
        state.recent.retain(|recent| *recent != self.source);
        state.recent.push(self.source);
        let over = state.recent.len().saturating_sub(RECENT_MAX);
        state.recent.drain(..over);
        Some(Turn(self.turns))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let number = self.number;
        self.turns.state().waiting.retain(|(of, _)| *of != number);
    }
}

/// A turn; over when dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state().is_taken = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn one_has_the_turn_at_a_time_and_the_others_in_their_order() {
        let turns = Turns::default();
        let (first, second) = (turns.wait(ip(1)), turns.wait(ip(2)));
        assert!(second.try_take().is_none(), "the first has not gone");
        let turn = first.try_take().unwrap();
        drop(first);
        assert!(second.try_take().is_none(), "taken");
        drop(turn);
        assert!(second.try_take().is_some());
    }

    #[test]
    fn an_address_with_many_sessions_does_not_keep_the_others_out() {
        let turns = Turns::default();
        let many: Vec<_> = (0..7).map(|_| turns.wait(ip(1))).collect();
        let turn = many[0].try_take().unwrap();
        let other = turns.wait(ip(2));
        drop(turn);
        assert!(many.iter().all(|waits| waits.try_take().is_none()));
        drop(other.try_take().unwrap());
        drop(other);
        // Nobody else waits.
        assert!(many[0].try_take().is_some());
    }

    #[test]
    fn one_that_goes_without_its_turn_keeps_nobody_waiting() {
        let turns = Turns::default();
        let (first, second) = (turns.wait(ip(1)), turns.wait(ip(1)));
        drop(first);
        assert!(second.try_take().is_some());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let turns = Turns::default();
        for n in 0..1_000_u32 {
            let waits = turns.wait(IpAddr::from(n.to_be_bytes()));
            drop(waits.try_take().unwrap());
        }
        assert_eq!(turns.state().recent.len(), RECENT_MAX);
    }
}
