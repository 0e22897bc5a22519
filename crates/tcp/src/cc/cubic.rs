//! CUBIC (RFC 9438), as Linux does it where that differs.
//!
//! Differences of Linux, which are kept: time starts at the first acknowledgment after a loss, the target is that
//! of one smallest round trip ahead, the window grows by at most half in a round trip, Reno's estimate is counted in segments,
//! beta is 717/1024 and C 0.4. Not done: the resets after an idle application (RFC 9438 4.2, `t_epoch` shift).

use units::{Duration, Instant};

use super::{Progress, Window};
use crate::config::Hystart;
use crate::hystart::{Classic, PlusPlus};

/// CUBIC's memory.
#[derive(Clone, Debug)]
pub(crate) struct Cubic {
    start: Start,
    epoch: Option<Instant>,
    /// Window before the last loss, segments; 0: none yet.
    last_max: u64,
    /// Where the cubic is flat, and when, after the epoch, it is.
    origin: u64,
    k_s: f64,
    /// Segments acknowledged since Reno's estimate last grew, and that estimate (RFC 9438 4.3).
    reno_count: u64,
    reno: u64,
    /// What the last look at the cubic said: segments for one.
    per: u64,
    seen_cwnd: u64,
    seen_at: Instant,
    delay_min: Option<Duration>,
}

/// How slow start may end early.
#[derive(Clone, Debug)]
enum Start {
    Off,
    Classic(Classic),
    PlusPlus(PlusPlus),
}

impl Cubic {
    pub(crate) fn new(hystart: Hystart) -> Self {
        Self {
            start: match hystart {
                Hystart::Off => Start::Off,
                Hystart::Linux => Start::Classic(Classic::default()),
                Hystart::PlusPlus => Start::PlusPlus(PlusPlus::default()),
            },
            epoch: None,
            last_max: 0,
            origin: 0,
            k_s: 0.0,
            reno_count: 0,
            reno: 0,
            per: 0,
            seen_cwnd: 0,
            seen_at: Instant::ZERO,
            delay_min: None,
        }
    }

    /// After a timeout nothing is known.
    pub(crate) fn reset(&mut self) {
        let mut start = std::mem::replace(&mut self.start, Start::Off);
        if let Start::Classic(classic) = &mut start {
            classic.reset();
        }
        *self = Self {
            start,
            delay_min: None,
            ..Self::new(Hystart::Off)
        };
    }

    pub(crate) fn on_round_trip(&mut self, window: &mut Window, progress: &Progress) {
        let Some(rtt) = progress.rtt else { return };
        let fresh_epoch = |epoch: Instant| progress.now.saturating_since(epoch) < AFTER_LOSS;
        if self.epoch.is_some_and(fresh_epoch) {
            return;
        }
        let delay_min = self.delay_min.map_or(rtt, |d| d.min(rtt));
        self.delay_min = Some(delay_min);
        if !window.in_slow_start() {
            return;
        }
        match &mut self.start {
            Start::Off | Start::PlusPlus(_) => {}
            Start::Classic(classic) => {
                if classic.ends(progress, window.cwnd, delay_min, rtt) {
                    window.ssthresh = window.cwnd;
                }
            }
        }
    }

    pub(crate) fn on_ack(&mut self, window: &mut Window, progress: &Progress) {
        if let Start::PlusPlus(plus) = &mut self.start
            && window.in_slow_start()
            && plus.on_ack(window, progress)
        {
            return;
        }
        if !progress.cwnd_limited {
            return;
        }
        let mut acked = progress.acked;
        if window.in_slow_start() {
            acked = window.slow_start(acked);
            if acked == 0 {
                return;
            }
        }
        self.look(progress.now, window.cwnd, acked);
        window.add_one_per(self.per, acked);
    }

    pub(crate) fn threshold(&mut self, window: &Window) -> u64 {
        self.epoch = None;
        // Fast convergence (RFC 9438 4.7): a window that did not reach the last one makes room.
        self.last_max = if window.cwnd < self.last_max {
            window.cwnd * (ONE + BETA) / (2 * ONE)
        } else {
            window.cwnd
        };
        (window.cwnd * BETA / ONE).max(2)
    }

    /// Sets how many acknowledged segments are worth one more in the window.
    fn look(&mut self, now: Instant, cwnd: u64, acked: u64) {
        self.reno_count += acked;
        if self.seen_cwnd == cwnd && now.saturating_since(self.seen_at) <= LOOK_EVERY {
            return;
        }
        self.seen_cwnd = cwnd;
        self.seen_at = now;
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => self.begin(now, cwnd, acked),
        };
        let ahead = self.delay_min.unwrap_or(Duration::ZERO);
        let t = (now.saturating_since(epoch) + ahead).as_s_f64() - self.k_s;
        // RFC 9438 equation 1.
        let target = as_f64(self.origin) + C * t * t * t;
        let now_at = as_f64(cwnd);
        self.per = if target > now_at {
            whole(now_at / (target - now_at))
        } else {
            100 * cwnd
        };
        if self.last_max == 0 {
            // Before any loss the cubic starts flat at an arbitrary place.
            self.per = self.per.min(20);
        }
        self.follow_reno(cwnd);
        self.per = self.per.max(2);
    }

    fn begin(&mut self, now: Instant, cwnd: u64, acked: u64) -> Instant {
        self.epoch = Some(now);
        self.reno_count = acked;
        self.reno = cwnd;
        if self.last_max <= cwnd {
            self.k_s = 0.0;
            self.origin = cwnd;
        } else {
            // RFC 9438 equation 2.
            self.k_s = cube_root(as_f64(self.last_max - cwnd) / C);
            self.origin = self.last_max;
        }
        now
    }

    /// RFC 9438 4.3: no slower than Reno that falls by the same factor.
    fn follow_reno(&mut self, cwnd: u64) {
        let per = ((cwnd * RENO_SCALE) >> 3).max(1);
        self.reno += self.reno_count / per;
        self.reno_count %= per;
        if self.reno > cwnd {
            self.per = self.per.min(cwnd / (self.reno - cwnd));
        }
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "windows are far below 2^53 segments"
)]
pub(crate) const fn as_f64(n: u64) -> f64 {
    n as f64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates at both ends"
)]
pub(crate) const fn whole(x: f64) -> u64 {
    x as u64
}

/// By Newton's steps, so that every machine finds the same bits.
fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let mut root = 1.0_f64.max(x / 3.0);
    for _ in 0..200 {
        let next = (2.0 * root + x / (root * root)) / 3.0;
        if next >= root {
            break;
        }
        root = next;
    }
    root
}

/// RFC 9438 4.6: 0.7; Linux's nearest.
const BETA: u64 = 717;
const ONE: u64 = 1024;
/// RFC 9438 section 5: segments per second cubed.
const C: f64 = 0.4;
/// 8 (1 + beta) / 3 (1 - beta): eight times the segments for each of Reno's, over the window.
const RENO_SCALE: u64 = 8 * (ONE + BETA) / 3 / (ONE - BETA);
/// Linux: HZ/32.
const LOOK_EVERY: Duration = Duration::from_us(31_250);
/// Linux: round trips are not believed for so long after a loss.
const AFTER_LOSS: Duration = Duration::from_s(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cube_root_is_one() {
        for x in [0.001, 0.5, 1.0, 8.0, 27.0, 12_345.678, 1e12] {
            let root = cube_root(x);
            assert!((root * root * root / x - 1.0).abs() < 1e-12, "{x}: {root}");
        }
    }

    #[test]
    fn after_k_seconds_the_window_is_what_it_was() {
        let mut cubic = Cubic::new(Hystart::Off);
        let mut window = Window {
            cwnd: 1_000,
            ssthresh: 1_000,
            count: 0,
        };
        window.cwnd = cubic.threshold(&window);
        window.ssthresh = window.cwnd;
        assert_eq!(window.cwnd, 700);
        // K = cbrt(300 / 0.4) = 9.09 s (RFC 9438 equation 2); a round trip of 100 ms.
        let mut now = 1_000_000_000;
        let mut at_k = 0;
        while now < 19_200_000_000 {
            let in_round = window.cwnd;
            for _ in 0..in_round {
                let progress = Progress {
                    now: Instant::from_ns(now),
                    acked: 1,
                    rtt: None,
                    una: 0,
                    next: 0,
                    cwnd_limited: true,
                    paced: false,
                    gathering: Duration::ZERO,
                };
                cubic.on_ack(&mut window, &progress);
                now += 100_000_000 / in_round;
            }
            if now < 10_100_000_000 {
                at_k = window.cwnd;
            }
        }
        assert!((990..=1_005).contains(&at_k), "{at_k}");
        // Another K later it is as far above.
        assert!((1_250..=1_330).contains(&window.cwnd), "{}", window.cwnd);
    }
}
