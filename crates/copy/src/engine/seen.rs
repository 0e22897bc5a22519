//! What is seen of streams while they send: what kernels say of their connections, and what follows
//! from it.

use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use wire::tcp_info::TcpInfo;

use crate::link::{Socket, Which};
use crate::meeting::{Meeting, tcp_info};

use super::{Connection, Watch};

/// Whether there is more to send than streams have in hand.
pub(super) trait Loaded: Sync {
    fn is_loaded(&self) -> bool;
    /// Has both sides open so many streams.
    fn open_streams(&self, streams: u16);
    /// Has whichever side connects carry blocks by QUIC, or by TCP.
    fn carry(&self, is_quic: bool);
}

/// The congestion control for long paths, where the host allows it (draft-ietf-ccwg-bbr; Linux has its version 1).
pub(super) const FILLS: &str = "bbr";

/// Whether half of the streams, whose threads have enough to send, have nothing in the kernel that could leave.
pub(super) fn falls_behind(meeting: &Meeting) -> bool {
    const APPLICATION_LIMITED: u64 = 1;
    let all = of_streams(meeting);
    let idle = all
        .iter()
        .filter(|info| info.delivery_flags & APPLICATION_LIMITED != 0);
    !all.is_empty() && idle.count() * 2 >= all.len()
}

/// How often connections are looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Keeps what the kernel says of each stream's connection, until the session is over.
pub(super) fn look(meeting: &Meeting, watch: &Watch) {
    while !meeting.is_over() {
        look_once(meeting, watch);
        wait(meeting, LOOK, || None::<()>);
    }
}

/// As it is now.
pub(super) fn look_once(meeting: &Meeting, watch: &Watch) {
    for which in meeting.open_links() {
        let Which::Blocks(n) = which else { continue };
        if let Some(Some(info)) = meeting.of_socket(which, tcp_info) {
            know(n, info, watch);
        }
        let counts = meeting.of_socket(which, |socket| match socket {
            Socket::Quic(pipe) => Some(pipe.counts()),
            _ => None,
        });
        if let Some(counts) = counts.flatten() {
            watch.know_over_quic(n, counts);
        }
    }
    let spent = meeting.quic_cpu_ns();
    watch.quic_cpu_ns.store(spent, Ordering::Relaxed);
}

/// Keeps what the kernel says of a stream's connection now.
pub(super) fn know(stream: u16, info: TcpInfo, watch: &Watch) {
    let at_ns = sys::clock::monotonic().as_ns();
    let now = Connection {
        since_ns: at_ns,
        at_ns,
        info,
    };
    watch.know_connection(stream, now);
}

/// Waits so long, or until `there` gives something or the session is over.
pub(super) fn wait<T>(
    meeting: &Meeting,
    patience: Duration,
    there: impl Fn() -> Option<T>,
) -> Option<T> {
    let until = Instant::now() + patience;
    loop {
        if let Some(found) = there() {
            return Some(found);
        }
        if meeting.is_over() || Instant::now() >= until {
            return None;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Bytes that the far side's kernel confirmed, on all streams of blocks now open.
pub(super) fn delivered(meeting: &Meeting) -> u64 {
    of_streams(meeting)
        .iter()
        .map(|info| info.bytes_acked)
        .sum()
}

/// Segments that were sent again on all streams of blocks now open.
pub(super) fn resent(meeting: &Meeting) -> u64 {
    of_streams(meeting)
        .iter()
        .map(|info| info.total_retrans_segments)
        .sum()
}

/// Whether half of the streams had to slow down for losses, and a ceiling does not hold them lower. BBR does not, and writes into its threshold what it found under
/// way when it left its start (net/ipv4/tcp_bbr.c, `bbr_check_drain`).
pub(super) fn held_by_losses(meeting: &Meeting) -> bool {
    let (mut streams, mut held) = (0, 0);
    for which in meeting.open_links() {
        if !matches!(which, Which::Blocks(_)) {
            continue;
        }
        let is_held = meeting.of_socket(which, |socket| {
            let is_bbr = sys::tcp::congestion(socket.as_fd()).is_ok_and(|name| name == FILLS);
            let is_slow = |info: TcpInfo| {
                info.snd_ssthresh_segments < INFINITE
                    && info.pacing_rate_bytes_per_second < info.max_pacing_rate_bytes_per_second
            };
            !is_bbr && tcp_info(socket).is_some_and(is_slow)
        });
        streams += 1;
        held += usize::from(is_held == Some(true));
    }
    held * 2 >= streams.max(1)
}

/// `TCP_INFINITE_SSTHRESH` of Linux: no loss was seen.
const INFINITE: u64 = 0x7fff_ffff;

/// What the kernel knows of each stream of blocks now open.
pub(super) fn of_streams(meeting: &Meeting) -> Vec<TcpInfo> {
    let links = meeting.open_links().into_iter();
    let blocks = links.filter(|which| matches!(which, Which::Blocks(_)));
    blocks
        .filter_map(|which| meeting.of_socket(which, tcp_info)?)
        .collect()
}

/// Whether half of the streams wait in a queue on the path, for a fifth of the idle round trip or more.
pub(super) fn has_queue(meeting: &Meeting) -> bool {
    let all = of_streams(meeting);
    let waits = all
        .iter()
        .filter(|info| info.min_rtt_us > 0 && info.rtt_us * 5 > info.min_rtt_us * 6);
    !all.is_empty() && waits.count() * 2 >= all.len()
}

/// How long streams had something to send, and were held back meanwhile, in microseconds, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Windows {
    pub(super) busy: u64,
    /// By the other side's buffer.
    pub(super) theirs: u64,
    /// By this side's; where little was waiting, by whoever should have filled it.
    pub(super) ours: u64,
    /// Half of the streams have under way what this side's buffer holds, as the kernel counts it.
    pub(super) is_full: bool,
}

pub(super) fn window_time(meeting: &Meeting) -> Windows {
    let mut windows = Windows::default();
    let (mut streams, mut full) = (0, 0);
    for which in meeting.open_links() {
        if !matches!(which, Which::Blocks(_)) {
            continue;
        }
        let found = meeting.of_socket(which, |socket| {
            Some((
                tcp_info(socket)?,
                sys::tcp::send_buffer(socket.as_fd()).ok()?,
            ))
        });
        let Some((info, buffer)) = found.flatten() else {
            continue;
        };
        windows.busy += info.busy_time_us;
        windows.theirs += info.rwnd_limited_us;
        windows.ours += info.sndbuf_limited_us;
        streams += 1;
        // A packet takes nearly twice its payload of a buffer; one that is not full grows to twice what is under way.
        let under_way = info.unacked_segments * info.snd_mss_bytes;
        full += u64::from(under_way * 5 >= buffer.as_u64() * 2);
    }
    windows.is_full = streams > 0 && full * 2 >= streams;
    windows
}

/// Whether buffers held streams back for a third of the time between two looks or more.
pub(super) const fn held_by_windows(before: Windows, after: Windows) -> bool {
    let busy = after.busy.saturating_sub(before.busy);
    let mut held = after.theirs.saturating_sub(before.theirs);
    if after.is_full {
        held += after.ours.saturating_sub(before.ours);
    }
    busy > 0 && held * 3 >= busy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_nobody_fills_holds_nobody_back() {
        let after = |theirs, ours, is_full| Windows {
            busy: 900,
            theirs,
            ours,
            is_full,
        };
        for (theirs, ours, is_full, held) in [
            (0, 900, false, false),
            (0, 900, true, true),
            (299, 0, true, false),
            (200, 100, true, true),
            (300, 0, false, true),
        ] {
            let after = after(theirs, ours, is_full);
            assert_eq!(
                held_by_windows(Windows::default(), after),
                held,
                "{after:?}"
            );
        }
        assert!(!held_by_windows(Windows::default(), Windows::default()));
    }
}
