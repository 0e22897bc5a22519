//! How many streams, and how each is sent: chosen from what the path shows, and told with the reason.
//!
//! One TCP connection fills a path only where its buffers hold a product of rate and round trip, and where its congestion
//! control forgives losses that have nothing to do with its rate. Without rights over the host's limits there remain more
//! connections, and the congestion controls that the host allows.

use std::cell::Cell;
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use units::Rate;
use wire::tcp_info::TcpInfo;

use crate::link::{STREAMS_MOST, Socket, Which};
use crate::meeting::{LONG, Meeting, tcp_info};
use crate::quic::Transport;
use crate::unpaced;

use super::send::SendOptions;
use super::{Connection, Note, Watch, carry};

/// How many streams of blocks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// As many as help.
    Chosen {
        /// Never more.
        most: u16,
    },
    /// So many.
    Fixed(u16),
}

/// Whether there is more to send than streams have in hand.
pub(super) trait Loaded: Sync {
    fn is_loaded(&self) -> bool;
    /// Has both sides open so many streams.
    fn open_streams(&self, streams: u16);
    /// Has whichever side connects carry blocks by QUIC, or by TCP.
    fn carry(&self, is_quic: bool);
}

/// Streams on a short path: what two to four cores can serve.
const SHORT_STREAMS: u16 = 4;
/// Streams on a long path to begin with: with buffers as distributions ship them (6 MiB to receive, 4 MiB to send, of
/// which some two thirds are payload) four times what 1 Gb/s and 100 ms have under way, and each begins with ten packets.
pub(super) const LONG_STREAMS: u16 = 16;
/// The same where segments are larger: at the same losses a stream's rate goes with its segments' length (Mathis et al. 1997),
/// and so does what it begins with. Fewer would wait for buffers as distributions ship them: at 1 Gb/s, 85 ms and an MTU of 9000
/// 8 carried 658 Mb/s of a GB, 12 651, and 4 that became 6 598.
const LONG_STREAMS_LEAST: u16 = 8;
/// Streams at most to begin with.
const BEGIN_MOST: u16 = 2 * LONG_STREAMS;
/// The shorter maximum of the buffers as distributions ship them, in bytes: what the number above is for.
const USUAL_BUFFER: u64 = 4 << 20;
/// Up to so long a round trip that number does. Over a longer one a stream's buffers carry less, and its first packets too.
const USUAL_ROUND_TRIP: Duration = Duration::from_millis(100);
/// A first connection that has no answer for so long goes over a long path ([`LONG`], four times): the others need not wait for
/// it.
const SILENCE: Duration = Duration::from_millis(20);
/// How often in a row threads may fall behind before there are more.
const BEHIND: u32 = 2;
/// Bytes of a segment at an MTU of 1500, with time stamps.
const USUAL_SEGMENT: u64 = 1_448;
/// What waits in the kernel of a long path's stream and is not on its way yet, at most: so that at the end no stream has
/// much left when the others have nothing.
const UNSENT_MOST: units::Bytes = units::Bytes::new(256 << 10);
/// What more streams must bring to be followed by more still.
const GAIN: f64 = 1.10;
/// How often more streams may bring nothing before they are enough.
const VAIN_MOST: u32 = 2;
/// Of a span's looks, every how many one is at queues.
const QUEUE_LOOKS: u32 = 5;
/// Of fewer packets that were sent again in a span no share is told: a receiver that its disk holds drops some of a short queue, and
/// that is no loss of the path.
const AGAIN_LEAST: u64 = 100;
/// A span of looking is at least so long, and at least so many round trips.
const SPAN_LEAST: Duration = Duration::from_millis(300);
const SPAN_ROUND_TRIPS: u32 = 4;
/// The congestion control for long paths, where the host allows it (draft-ietf-ccwg-bbr; Linux has its version 1).
pub(super) const FILLS: &str = "bbr";

/// What is best held below ceilings: it does not look for more by itself, as BBR does (RFC 9438).
pub(super) const PACED: &str = "cubic";

/// Sets what a stream's socket is to have; BBR where the path is long and streams are `is_free` of ceilings ([`super::gaps`]).
pub(super) fn prepare(socket: &TcpStream, options: &SendOptions, ways: usize, is_free: bool) {
    let round_trip = round_trip(socket);
    // Of several ways one may be slow: little waits for it when the others have nothing left.
    if round_trip >= LONG || ways > 1 {
        let _ = sys::tcp::set_notsent_lowat(socket.as_fd(), UNSENT_MOST);
    }
    let wanted = match &options.congestion {
        Some(name) => Some(name.as_str()),
        None => (round_trip >= LONG).then_some(if is_free { FILLS } else { PACED }),
    };
    if let Some(name) = wanted {
        let _ = sys::tcp::set_congestion(socket.as_fd(), name);
    }
}

fn round_trip(socket: &TcpStream) -> Duration {
    let info = sys::tcp::tcp_info(socket.as_fd()).unwrap_or_default();
    Duration::from_micros(info.rtt_us)
}

/// Keeps all streams together below a rate, which may change, by what the kernel lets each send (`SO_MAX_PACING_RATE`, socket(7)), until the
/// session is over.
pub(super) fn limit(meeting: &Meeting, limit: &dyn Fn() -> Option<Rate>) {
    let mut paced = Vec::new();
    while !meeting.is_over() {
        let mut open = meeting.open_links();
        open.retain(|which| matches!(which, Which::Blocks(_)));
        let Some(rate) = limit() else { return };
        let generation = (open.clone(), meeting.reconnects(), rate);
        if paced.last() != Some(&generation) {
            let share = rate.as_bits_per_second() / (open.len().max(1) as u64);
            let share = Rate::from_bits_per_second(share.max(8));
            for which in open {
                meeting.of_socket(which, |socket| match socket {
                    Socket::Quic(pipe) => pipe.set_limit(share),
                    _ => drop(sys::tcp::set_max_pacing(socket.as_fd(), share)),
                });
            }
            paced = vec![generation];
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Opens streams as they help, until the session is over.
pub(super) fn tune(meeting: &Meeting, streams: &Streams, watch: &Watch, load: &dyn Loaded) {
    let most = match *streams {
        Streams::Fixed(n) => {
            load.open_streams(n);
            if meeting.wish() == Transport::Quic {
                carry::has_begun(meeting, watch);
            }
            return;
        }
        Streams::Chosen { most } => most,
    };
    let ways = u16::try_from(meeting.ways()).unwrap_or(u16::MAX);
    // As many over each.
    let even = |streams: u16| {
        streams
            .next_multiple_of(ways.min(STREAMS_MOST))
            .min(STREAMS_MOST)
    };
    let most = even(most.max(ways));
    load.open_streams(even(1));
    if meeting.wish() == Transport::Quic && carry::has_begun(meeting, watch) {
        load.open_streams(even(carry::STREAMS).min(most));
        return;
    }
    open_early(meeting, load, |streams| even(streams).min(most));
    // The first connection says how far it is, before its handshake; what ssh carries says nothing.
    let first = wait(meeting, Duration::from_secs(120), || {
        let is_inside = |socket: &Socket| matches!(socket, Socket::Unix(_));
        let inside = meeting.of_socket(Which::Blocks(0), is_inside);
        let far = meeting.round_trip().map(Some);
        far.or_else(|| (inside == Some(true)).then_some(None))
    });
    let Some(Some(round_trip)) = first else {
        return;
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let cores = u16::try_from(cores).unwrap_or(u16::MAX);
    let milliseconds = round_trip.as_secs_f64() * 1e3;
    if round_trip < LONG {
        let wanted = even(cores.min(SHORT_STREAMS)).min(most);
        load.open_streams(wanted);
        let over = match ways {
            1 => String::new(),
            _ => format!(" over {ways} ways"),
        };
        watch.note(Note::Chosen(format!(
            "{wanted} streams{over}: the far side is {milliseconds:.2} ms away, so that cores are what \
             counts"
        )));
        return;
    }
    let info = meeting.first();
    let segment = info.map_or(USUAL_SEGMENT, |info| info.snd_mss_bytes);
    let buffer = info.and_then(|info| buffers(meeting, &info));
    let usual = even(begin_with(segment, round_trip, USUAL_BUFFER)).min(most);
    let begin = begin_with(segment, round_trip, buffer.unwrap_or(USUAL_BUFFER));
    let mut wanted = even(begin).min(most);
    let holds = match buffer {
        Some(bytes) if wanted < usual => format!(
            "; buffers of {} MiB and more let each have under way what several have elsewhere",
            bytes >> 20
        ),
        _ => String::new(),
    };
    let s = if wanted == 1 { "" } else { "s" };
    watch.note(Note::Chosen(format!(
        "{wanted} stream{s} to begin with: the far side is {milliseconds:.0} ms away, and a segment has {segment} bytes{holds}"
    )));
    load.open_streams(wanted);
    let span = SPAN_LEAST.max(round_trip * SPAN_ROUND_TRIPS);
    let mut before = 0.0;
    let mut in_vain = 0;
    let mut behind = 0;
    let mut is_new = false;
    while wanted < most && !meeting.is_over() {
        // New connections need as long again to find their rate.
        if is_new && (wait(meeting, span, || None::<()>).is_some() || meeting.is_over()) {
            return;
        }
        let (bytes, again, since) = (delivered(meeting), resent(meeting), Instant::now());
        let windows = window_time(meeting);
        let (looks, idle) = (Cell::new(0_u32), Cell::new(0_u32));
        let had_queue = Cell::new(false);
        let may_be_behind = wanted < cores.min(usual);
        wait(meeting, span, || {
            if looks.get().is_multiple_of(QUEUE_LOOKS) && !had_queue.get() {
                had_queue.set(has_queue(meeting));
            }
            looks.set(looks.get() + 1);
            idle.set(idle.get() + u32::from(may_be_behind && falls_behind(meeting)));
            None::<()>
        });
        if meeting.is_over() {
            return;
        }
        if !load.is_loaded() {
            before = 0.0;
            continue;
        }
        let rate =
            delivered(meeting).saturating_sub(bytes) as f64 * 8.0 / since.elapsed().as_secs_f64();
        // The first look is still in the ramp, and faster than nothing.
        let is_faster = rate > before * GAIN;
        before = rate;
        in_vain = match (is_new, is_faster) {
            (_, true) => 0,
            (true, false) => in_vain + 1,
            (false, false) => in_vain,
        };
        is_new = false;
        behind = match idle.get() * 2 > looks.get() {
            true => behind + 1,
            false => 0,
        };
        // Where a queue has grown, more under way is no more at the other end.
        if in_vain >= VAIN_MOST || has_queue(meeting) {
            continue;
        }
        // What a queue that ran over took is sent again while it empties, and says nothing of the path.
        let lost = match had_queue.get() {
            true => 0,
            false => resent(meeting).saturating_sub(again),
        };
        let tells = lost > 0 && {
            let all = of_streams(meeting);
            let segments = all.iter().map(|info| info.snd_cwnd_segments).sum::<u64>();
            let each = segments as f64 / all.len().max(1) as f64;
            comes_too_often(lost, since.elapsed(), all.len(), each)
        };
        let why = match (held_by_windows(windows, window_time(meeting)), tells) {
            // While it grows by itself, more connections would only be in each other's way.
            _ if is_faster => continue,
            (true, _) => Why::Buffers,
            (false, true) if held_by_losses(meeting) => Why::Losses,
            _ if behind >= BEHIND => Why::Threads,
            _ => continue,
        };
        let more = match why {
            Why::Buffers => even((wanted + wanted / 2).max(wanted + 2)).max(usual),
            // They are seen at once, and what each stream finds goes down with their root only.
            Why::Losses => even(wanted * 2).max(usual),
            Why::Threads => even(cores),
        };
        let (more, why) = (more.min(most), why.text());
        watch.note(Note::Chosen(format!(
            "{more} streams in place of {wanted}, together {:.0} Mb/s over {milliseconds:.0} ms: {why}",
            rate / 1e6
        )));
        wanted = more;
        is_new = true;
        load.open_streams(wanted);
    }
}

/// Why more streams help.
#[derive(Clone, Copy)]
enum Why {
    Buffers,
    Losses,
    Threads,
}

impl Why {
    const fn text(self) -> &'static str {
        match self {
            Self::Buffers => "buffers hold each at what the round trip lets them carry",
            Self::Losses => "losses hold each, and not a queue",
            Self::Threads => "one thread each does not keep them busy",
        }
    }
}

/// Whether so many losses in a time come more often to each of `streams` than its window of so many segments comes back after one:
/// CUBIC takes K = ∛(0.3 W / 0.4) seconds (RFC 9438, section 4.2), of which it is near what it had for the second half.
fn comes_too_often(lost: u64, time: Duration, streams: usize, window: f64) -> bool {
    let apart = time.as_secs_f64() * streams as f64 / lost as f64;
    apart < (window * 0.75).cbrt() / 2.0
}

/// Has a long path's streams connect while the first one waits for its answer, where what this host knows of the way says how
/// many there will be at least.
fn open_early(meeting: &Meeting, load: &dyn Loaded, even: impl Fn(u16) -> u16) {
    let near = meeting.near();
    let Some(segment) = near.segment else {
        return;
    };
    // The far side's buffers are not known: where this side's are usual, they do not matter.
    let buffer = near.send_buffer.unwrap_or(USUAL_BUFFER);
    let early = even(begin_with(segment, SILENCE, buffer));
    let answers = || meeting.round_trip();
    if early > 1 && wait(meeting, SILENCE, answers).is_none() && !meeting.is_over() {
        load.open_streams(early);
    }
}

/// How many streams a long path has at first, by its segments' bytes, its round trip and what each stream's buffers grow to.
fn begin_with(segment: u64, round_trip: Duration, buffer: u64) -> u16 {
    let far = round_trip.as_secs_f64() / USUAL_ROUND_TRIP.as_secs_f64();
    let far = far.clamp(1.0, (BEGIN_MOST / LONG_STREAMS).into());
    let by_segment = u64::from(LONG_STREAMS) * USUAL_SEGMENT / segment.max(1);
    let by_segment = by_segment.clamp(LONG_STREAMS_LEAST.into(), LONG_STREAMS.into());
    let by_buffer = (u64::from(LONG_STREAMS) * USUAL_BUFFER) as f64 / buffer.max(1) as f64;
    // A round trip is never quite what it is idle.
    let streams = ((by_segment as f64).min(by_buffer) * far - 0.5).max(1.0);
    (1..BEGIN_MOST)
        .find(|n| f64::from(*n) >= streams)
        .unwrap_or(BEGIN_MOST)
}

/// What a stream's buffers grow to, in bytes: this side's by its limit, the other's by the scale of its windows, which is
/// for its limit (`tcp_select_initial_window`, net/ipv4/tcp_output.c), and twice that at most. `None` where this side's is unknown.
fn buffers(meeting: &Meeting, info: &TcpInfo) -> Option<u64> {
    let here = meeting
        .near()
        .send_buffer
        .or_else(crate::ways::send_buffer)?;
    Some(here.min(1 << (15 + info.peer_window_shift())))
}

/// Whether half of the streams, whose threads have enough to send, have nothing in the kernel that could leave.
fn falls_behind(meeting: &Meeting) -> bool {
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
fn delivered(meeting: &Meeting) -> u64 {
    of_streams(meeting)
        .iter()
        .map(|info| info.bytes_acked)
        .sum()
}

/// Gives streams what they were kept off over one of the shortest paths ([`unpaced`]) where losses hold them after all, until
/// the session is over.
pub(super) fn heed_losses(meeting: &Meeting, watch: &Watch) {
    let mut are_heeded = false;
    while !meeting.is_over() {
        if !unpaced::has_kept_off() {
            wait(meeting, SPAN_LEAST, || None::<()>);
            continue;
        }
        let (again, sent) = (resent(meeting), carry::sent(meeting));
        wait(meeting, SPAN_LEAST, || None::<()>);
        let again = resent(meeting).saturating_sub(again);
        let sent = carry::sent(meeting).saturating_sub(sent);
        let is_lossy = again >= AGAIN_LEAST && again as f64 > sent as f64 * carry::LOSSES;
        if !(are_heeded || is_lossy && held_by_losses(meeting)) {
            continue;
        }
        // Connections that are made again begin as the first did.
        let mut streams = meeting.open_links();
        streams.retain(|which| matches!(which, Which::Blocks(_)));
        let give_back = |which| meeting.of_socket(which, unpaced::give_back).flatten();
        let given = streams.into_iter().filter_map(give_back).last();
        if let Some(own) = given
            && !std::mem::replace(&mut are_heeded, true)
        {
            watch.note(Note::Chosen(format!(
                "streams have the {own} of the source's host after all: {again} of {sent} packets were sent again"
            )));
        }
    }
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
fn has_queue(meeting: &Meeting) -> bool {
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
    fn longer_segments_need_fewer_streams() {
        for (segment, streams) in [
            (0, 16),
            (536, 16),
            (1_448, 16),
            (2_408, 9),
            (4_344, 8),
            (8_948, 8),
            (65_483, 8),
        ] {
            let found = begin_with(segment, LONG, USUAL_BUFFER);
            assert_eq!(found, streams, "{segment}");
        }
    }

    #[test]
    fn longer_paths_need_more_streams_and_larger_buffers_fewer() {
        let ms = Duration::from_millis;
        for (round_trip, mebibytes, streams) in [
            (100, 4, 16),
            (150, 4, 24),
            (300, 4, 32),
            (600, 4, 32),
            (85, 8, 8),
            (85, 12, 5),
            (85, 16, 4),
            (85, 64, 1),
            (300, 64, 2),
            (300, 128, 1),
            (5, 1 << 20, 1),
            (300, 1, 32),
        ] {
            let found = begin_with(USUAL_SEGMENT, ms(round_trip), mebibytes << 20);
            assert_eq!(found, streams, "{round_trip} ms, {mebibytes} MiB");
        }
        assert_eq!(begin_with(8_948, ms(300), USUAL_BUFFER), 16);
        assert_eq!(begin_with(8_948, ms(300), 64 << 20), 2);
        assert_eq!(begin_with(USUAL_SEGMENT, LONG, 0), 16);
    }

    #[test]
    fn a_loss_now_and_then_holds_no_stream() {
        let span = Duration::from_millis(340);
        // 8 of 1 Gb/s over 85 ms in segments of 8,948 bytes: 4.6 s to come back.
        assert!(!comes_too_often(1, span, 8, 148.0));
        assert!(comes_too_often(2, span, 8, 148.0));
        // 16 of 1,448 bytes over 100 ms, one in 10,000 lost, and one in 300,000.
        let span = Duration::from_millis(400);
        assert!(comes_too_often(34, span, 16, 540.0));
        assert!(!comes_too_often(1, span, 16, 540.0));
    }

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
