//! Two ways to leave slow start before the queue overflows: Linux's HyStart of CUBIC and HyStart++
//! (RFC 9406).
//!
//! Reading list: S. Ha, I. Rhee, "Taming the elephants: new TCP slow start", Computer Networks 2011;
//! RFC 9406; net/ipv4/tcp_cubic.c for the constants.

use units::{Duration, Instant};

use crate::cc::{Progress, Window};

/// Trains of acknowledgments and growing delay.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classic {
    round_end: u64,
    round_start: Instant,
    last_ack: Instant,
    lowest: Option<Duration>,
    samples: u32,
    found: bool,
}

/// RFC 9406.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlusPlus {
    round_end: u64,
    last_min: Option<Duration>,
    this_min: Option<Duration>,
    samples: u32,
    /// Smallest round trip when the conservative phase began, and its rounds.
    conservative: Option<(Duration, u32)>,
    count: u64,
}

impl Classic {
    /// A timeout: the next slow start is looked at anew.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// True when slow start is to end here.
    pub(crate) fn ends(
        &mut self,
        progress: &Progress,
        cwnd: u64,
        delay_min: Duration,
        rtt: Duration,
    ) -> bool {
        if self.found {
            return false;
        }
        // From the first round on, below the lowest window as well: a round that began in the middle of a train would
        // take the queue of its first half for a longer path.
        if progress.una > self.round_end {
            self.round_start = progress.now;
            self.last_ack = progress.now;
            self.round_end = progress.next;
            self.lowest = None;
            self.samples = 0;
        }
        if cwnd < LOW_WINDOW {
            return false;
        }
        if progress.now.saturating_since(self.last_ack) <= TRAIN_GAP {
            self.last_ack = progress.now;
            // Without pacing the window leaves in bursts, so that half the round trip is the mark.
            let whole = (delay_min + progress.gathering).as_ns();
            let mark = whole / if progress.paced { 1 } else { 2 };
            if progress.now.saturating_since(self.round_start).as_ns() > mark {
                self.found = true;
            }
        }
        self.lowest = Some(self.lowest.map_or(rtt, |l| l.min(rtt)));
        if self.samples < SAMPLES {
            self.samples += 1;
        } else {
            let more = Duration::from_ns(delay_min.as_ns() / 8).clamp(DELAY_MIN, DELAY_MAX);
            self.found |= self.lowest.is_some_and(|l| l > delay_min + more);
        }
        self.found
    }
}

impl PlusPlus {
    /// True when the growth of this acknowledgment was seen to here (conservative slow start).
    pub(crate) fn on_ack(&mut self, window: &mut Window, progress: &Progress) -> bool {
        if progress.una > self.round_end {
            self.next_round(window, progress);
        }
        if let Some(rtt) = progress.rtt {
            self.this_min = Some(self.this_min.map_or(rtt, |m| m.min(rtt)));
            self.samples += 1;
        }
        let (Some(this), Some(last)) = (self.this_min, self.last_min) else {
            return false;
        };
        if self.samples < SAMPLES {
            return self.conservative.is_some() && self.slower(window, progress);
        }
        match self.conservative {
            None => {
                let more = Duration::from_ns(last.as_ns() / 8).clamp(DELAY_MIN, DELAY_MAX);
                if this >= last + more {
                    self.conservative = Some((this, 0));
                }
                false
            }
            Some((baseline, _)) if this < baseline => {
                // It was jitter: back to slow start.
                self.conservative = None;
                false
            }
            Some(_) => self.slower(window, progress),
        }
    }

    fn next_round(&mut self, window: &mut Window, progress: &Progress) {
        self.round_end = progress.next;
        self.last_min = self.this_min;
        self.this_min = None;
        self.samples = 0;
        if let Some((_, rounds)) = &mut self.conservative {
            *rounds += 1;
            if *rounds >= CONSERVATIVE_ROUNDS {
                window.ssthresh = window.cwnd;
            }
        }
    }

    /// A quarter of slow start's growth (RFC 9406 4.2).
    fn slower(&mut self, window: &mut Window, progress: &Progress) -> bool {
        if progress.cwnd_limited {
            self.count += progress.acked;
            let _ = window.slow_start(self.count / GROWTH_DIVISOR);
            self.count %= GROWTH_DIVISOR;
        }
        true
    }
}

/// Linux, hystart_low_window.
const LOW_WINDOW: u64 = 16;
/// Linux, hystart_ack_delta_us.
const TRAIN_GAP: Duration = Duration::from_ms(2);
/// Linux HYSTART_MIN_SAMPLES; RFC 9406 N_RTT_SAMPLE.
const SAMPLES: u32 = 8;
/// RFC 9406 MIN_RTT_THRESH, Linux HYSTART_DELAY_MIN.
const DELAY_MIN: Duration = Duration::from_ms(4);
/// RFC 9406 MAX_RTT_THRESH, Linux HYSTART_DELAY_MAX.
const DELAY_MAX: Duration = Duration::from_ms(16);
/// RFC 9406 CSS_GROWTH_DIVISOR.
const GROWTH_DIVISOR: u64 = 4;
/// RFC 9406 CSS_ROUNDS.
const CONSERVATIVE_ROUNDS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledgments of slow start: trains that leave every 300 ms, each segment of which waits for those before it
    /// twice as long as the one before did. The window at which HyStart ends it.
    fn exit_of(spacing_us: u64, later_ms: u64) -> Option<u64> {
        let mut classic = Classic::default();
        let (mut una, mut next, mut cwnd) = (0, 10, 10);
        for round in 1..14 {
            let train = next - una;
            for k in 0..train / 2 {
                una += 2;
                cwnd += 2;
                let rtt = Duration::from_ms(300 + later_ms) + Duration::from_us(k * spacing_us);
                let progress = Progress {
                    now: Instant::ZERO
                        + Duration::from_ms(300).saturating_mul(round)
                        + Duration::from_us(2 * k * spacing_us),
                    acked: 2,
                    rtt: Some(rtt),
                    una,
                    next,
                    cwnd_limited: true,
                    paced: false,
                    gathering: Duration::from_ms(1),
                };
                let delay_min = Duration::from_ms(300);
                if classic.ends(&progress, cwnd, delay_min, rtt) {
                    return Some(cwnd);
                }
                next = una + cwnd;
            }
        }
        None
    }

    #[test]
    fn a_queue_that_empties_between_trains_does_not_end_slow_start_but_a_long_train_does() {
        // Of 12 us a segment: half the round trip and of the millisecond of gathering, 150.5 ms, are 12,540 segments of
        // the first train that is longer, of 20,480.
        let cwnd = exit_of(12, 0).unwrap();
        assert!((33_000..33_040).contains(&cwnd), "{cwnd}");
        // A queue that stays: by the delay, in the first round whose window is large enough.
        let cwnd = exit_of(12, 40).unwrap();
        assert!(cwnd < 40, "{cwnd}");
    }
}
