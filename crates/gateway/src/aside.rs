//! When the gateway steps aside because a worker stands still, and when it comes back.
//!
//! A worker that hangs is worse than none: SYNs wait for it, and the queue's rule lets packets by only when nobody listens
//! there. So where a worker has not beaten for [`STILL`], new connections are to pass unsplit, all of them: who waits for
//! it cannot be told from others before its SYN is there. When each has been seen to beat [`SURE`] times since, they are
//! taken up again. A process that was stopped as a whole has looked at nothing meanwhile: what passes between two looks
//! counts for [`MOST`] at most.

use units::{Duration, Instant};

/// Whether new connections are taken up.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    aside: bool,
    looked: Option<Instant>,
    workers: Vec<Worker>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Worker {
    beats: u64,
    /// Since when it was not seen to beat.
    still: Duration,
    /// Looks at which it had, since something changed.
    beaten: u32,
}

impl Aside {
    /// Takes in how often each worker has beaten by now. To be called often; `true` to step aside, `false` to come back,
    /// again each [`EVERY`] until [`Self::on_done`].
    pub(crate) fn handle_beats(
        &mut self,
        now: Instant,
        beats: impl IntoIterator<Item = u64>,
    ) -> Option<bool> {
        let since = self.looked.map_or(EVERY, |at| now.saturating_since(at));
        if since < EVERY {
            return None;
        }
        self.looked = Some(now);
        for (number, beats) in beats.into_iter().enumerate() {
            if self.workers.len() == number {
                self.workers.push(Worker::default());
            }
            let worker = &mut self.workers[number];
            if worker.beats == beats {
                worker.still = worker.still + since.min(MOST);
            } else {
                (worker.beats, worker.still) = (beats, Duration::ZERO);
                worker.beaten += 1;
            }
        }
        let still = self.workers.iter().any(|w| w.still >= STILL);
        let sure = self.workers.iter().all(|w| w.beaten >= SURE);
        match self.aside {
            false => still.then_some(true),
            true => sure.then_some(false),
        }
    }

    /// What was asked for is done.
    pub(crate) fn on_done(&mut self, aside: bool) {
        self.aside = aside;
        for worker in &mut self.workers {
            worker.beaten = 0;
        }
    }

    /// New connections pass unsplit.
    pub(crate) const fn is_aside(&self) -> bool {
        self.aside
    }
}

/// Between looks: twice what a worker takes from beat to beat.
pub(crate) const EVERY: Duration = Duration::from_ms(200);
/// A SYN is sent again after 1 s and after 3 s (RFC 6298 2.1, 5.5): the third one passes.
pub(crate) const STILL: Duration = Duration::from_s(3);
/// Who looks may itself have to wait a second for a worker that does not answer.
const MOST: Duration = Duration::from_s(1);
/// 1 s and more: by then a worker has been through what waited for it.
const SURE: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks with these beats after one another, as far apart as they are to be; what was asked for.
    fn looks(aside: &mut Aside, at: &mut Instant, beats: &[[u64; 2]]) -> Vec<Option<bool>> {
        let look = |beats: &[u64; 2]| {
            *at += EVERY;
            let asked = aside.handle_beats(*at, *beats);
            if let Some(asked) = asked {
                aside.on_done(asked);
            }
            asked
        };
        beats.iter().map(look).collect()
    }

    #[test]
    fn it_steps_aside_when_one_stands_still_and_comes_back_when_all_are_sure_to_beat() {
        let (mut aside, mut at) = (Aside::default(), Instant::from_ns(0));
        let both: Vec<[u64; 2]> = (1..100).map(|n| [n, n]).collect();
        assert!(
            looks(&mut aside, &mut at, &both)
                .iter()
                .all(Option::is_none)
        );
        let one: Vec<[u64; 2]> = (0..15).map(|n| [100 + n, 99]).collect();
        let mut asked = looks(&mut aside, &mut at, &one);
        assert_eq!(asked.pop(), Some(Some(true)));
        assert!(asked.iter().all(Option::is_none) && aside.is_aside());
        // It beats once and hangs again.
        let again: Vec<[u64; 2]> = (0..50).map(|n| [200 + n, 100]).collect();
        assert!(
            looks(&mut aside, &mut at, &again)
                .iter()
                .all(Option::is_none)
        );
        let well: Vec<[u64; 2]> = (0..u64::from(SURE)).map(|n| [300 + n, 300 + n]).collect();
        let asked = looks(&mut aside, &mut at, &well);
        assert_eq!(asked.iter().flatten().collect::<Vec<_>>(), [&false]);
        assert!(!aside.is_aside());
    }

    #[test]
    fn a_process_that_was_stopped_as_a_whole_looks_anew() {
        let (mut aside, mut at) = (Aside::default(), Instant::from_ns(0));
        looks(&mut aside, &mut at, &[[1, 1], [2, 2]]);
        at += Duration::from_s(3600);
        assert_eq!(looks(&mut aside, &mut at, &[[2, 2], [3, 3]]), [None; 2]);
        // Looks that come too soon are none.
        for _ in 0..100 {
            assert_eq!(aside.handle_beats(at, [3, 3]), None);
        }
    }

    #[test]
    fn what_was_not_done_is_asked_for_again() {
        let mut aside = Aside::default();
        let mut at = Instant::from_ns(0);
        let mut asked = 0;
        for _ in 0..19 {
            at += EVERY;
            asked += u32::from(aside.handle_beats(at, [1]) == Some(true));
        }
        assert_eq!(asked, 4, "after 3.0, 3.2, 3.4 and 3.6 s");
    }
}
