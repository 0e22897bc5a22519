//! Reno (RFC 5681 section 3.1): one segment a round trip, half at a loss.

use super::{Progress, Window};

pub(super) fn on_ack(window: &mut Window, progress: &Progress) {
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
    window.add_one_per(window.cwnd, acked);
}

/// RFC 5681 equation 4 with the window in place of the flight, as Linux.
pub(super) fn threshold(window: &Window) -> u64 {
    (window.cwnd / 2).max(2)
}
