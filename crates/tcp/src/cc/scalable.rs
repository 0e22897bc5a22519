//! Scalable TCP (T. Kelly, "Scalable TCP: improving performance in highspeed wide area networks",
//! Computer Communication Review 33(2), 2003): a = 0.01 of a segment for each that is acknowledged, b = 1/8 at
//! a loss. Below 100 segments it is Reno's, as the kernel's tcp_scalable has it.

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
    window.add_one_per(window.cwnd.min(SEGMENTS_PER_STEP), acked);
}

pub(super) fn threshold(window: &Window) -> u64 {
    (window.cwnd - window.cwnd / 8).max(2)
}

/// 1 / a.
const SEGMENTS_PER_STEP: u64 = 100;
