//! FAST TCP (D. X. Wei, C. Jin, S. H. Low, S. Hegde, "FAST TCP: motivation, architecture, algorithms,
//! performance", IEEE/ACM Transactions on Networking 14(6), 2006, equation 7).
//!
//! Every other round trip w becomes min(2w, (1 - g) w + g (w baseRTT / RTT + alpha)), so that alpha segments of the flow
//! wait in queues: the window is steady where the queue is that long and round trips tell of it. Slow start ends when alpha
//! segments wait; a loss halves. Equation 7 is the paper's; how often and where slow start ends are ours,
//! since its code was never published.

use units::Duration;

use super::cubic::{as_f64, whole};
use super::{Progress, Window};

/// FAST's memory.
#[derive(Clone, Debug)]
pub(crate) struct Fast {
    alpha: u64,
    base: Option<Duration>,
    /// Smallest of the round trips of this one, so that bursts do not count as queue.
    lowest: Option<Duration>,
    round_end: u64,
    changed: bool,
}

impl Fast {
    pub(crate) const fn new(alpha: u64) -> Self {
        Self {
            alpha,
            base: None,
            lowest: None,
            round_end: 0,
            changed: false,
        }
    }

    pub(super) fn on_ack(&mut self, window: &mut Window, progress: &Progress) {
        if let Some(rtt) = progress.rtt {
            self.base = Some(self.base.map_or(rtt, |b| b.min(rtt)));
            self.lowest = Some(self.lowest.map_or(rtt, |l| l.min(rtt)));
        }
        if window.in_slow_start() && progress.cwnd_limited {
            let _ = window.slow_start(progress.acked);
        }
        if progress.una <= self.round_end {
            return;
        }
        self.round_end = progress.next;
        let Some((base, rtt)) = self.base.zip(self.lowest.take()) else {
            return;
        };
        let cwnd = as_f64(window.cwnd);
        let share = base.as_s_f64() / rtt.as_s_f64().max(1e-9);
        if window.in_slow_start() {
            if cwnd * (1.0 - share) >= as_f64(self.alpha) {
                window.ssthresh = window.cwnd;
            }
            return;
        }
        self.changed = !self.changed;
        if self.changed || !progress.cwnd_limited {
            return;
        }
        let wanted = (1.0 - GAMMA) * cwnd + GAMMA * (cwnd * share + as_f64(self.alpha));
        window.cwnd = whole(wanted.min(2.0 * cwnd)).max(2);
    }
}

pub(super) fn threshold(window: &Window) -> u64 {
    (window.cwnd / 2).max(2)
}

/// The paper's experiments.
const GAMMA: f64 = 0.5;
