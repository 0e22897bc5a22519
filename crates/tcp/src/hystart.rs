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
        if self.found || cwnd < LOW_WINDOW {
            return false;
        }
        if progress.una > self.round_end {
            self.round_start = progress.now;
            self.last_ack = progress.now;
            self.round_end = progress.next;
            self.lowest = None;
            self.samples = 0;
        }
        if progress.now.saturating_since(self.last_ack) <= TRAIN_GAP {
            self.last_ack = progress.now;
            // Without pacing the window leaves in bursts, so that half the round trip is the mark.
            let mark = delay_min.as_ns() / if progress.paced { 1 } else { 2 };
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
