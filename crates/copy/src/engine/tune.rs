//! How many streams there are, and how each is sent: what is seen is told to [`Growth`], and what
//! it says is done and told with the reason. Without rights over the host's limits there remain
//! more connections, and the congestion controls that the host allows.

use std::cell::Cell;
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use units::Rate;
use wire::tcp_info::TcpInfo;

use crate::link::{Socket, Which};
use crate::meeting::{LONG, Meeting};
use crate::quic::Transport;
use crate::unpaced;

use super::growth::{Growth, Span, USUAL_BUFFER, USUAL_SEGMENT, begin_with};
use super::options::SendOptions;
use super::seen::{
    FILLS, Loaded, delivered, falls_behind, has_queue, held_by_losses, held_by_windows, of_streams,
    resent, wait, window_time,
};
use super::{Note, Watch, carry};

pub use super::options::Streams;

/// A first connection that has no answer for so long goes over a long path ([`LONG`], four times): the others need not wait for
/// it.
const SILENCE: Duration = Duration::from_millis(20);
/// What waits in the kernel of a long path's stream and is not on its way yet, at most: so that at the end no stream has
/// much left when the others have nothing.
const UNSENT_MOST: units::Bytes = units::Bytes::new(256 << 10);
/// Of a span's looks, every how many one is at queues.
const QUEUE_LOOKS: u32 = 5;
/// Of fewer packets that were sent again in a span no share is told: a receiver that its disk holds drops some of a short queue, and
/// that is no loss of the path.
const AGAIN_LEAST: u64 = 100;
/// A span of looking is at least so long, and at least so many round trips.
const SPAN_LEAST: Duration = Duration::from_millis(300);
const SPAN_ROUND_TRIPS: u32 = 4;
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
        meeting.sleep(Duration::from_millis(50));
    }
}

/// Opens streams as they help ([`Growth`]), until the session is over.
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
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut growth = Growth::new(meeting.ways(), cores, most);
    load.open_streams(growth.wanted());
    if meeting.wish() == Transport::Quic && carry::has_begun(meeting, watch) {
        load.open_streams(growth.at_most(carry::STREAMS));
        return;
    }
    open_early(meeting, load, &growth);
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
    if begin(meeting, watch, &mut growth, round_trip, load) {
        grow(meeting, watch, &mut growth, round_trip, load);
    }
}

/// Opens as many streams as a path of that round trip has to begin with; whether more may help
/// later.
fn begin(
    meeting: &Meeting,
    watch: &Watch,
    growth: &mut Growth,
    round_trip: Duration,
    load: &dyn Loaded,
) -> bool {
    let milliseconds = round_trip.as_secs_f64() * 1e3;
    if round_trip < LONG {
        let wanted = growth.on_short();
        load.open_streams(wanted);
        let over = match meeting.ways() {
            1 => String::new(),
            ways => format!(" over {ways} ways"),
        };
        watch.note(Note::Chosen(format!(
            "{wanted} streams{over}: the far side is {milliseconds:.2} ms away, so that cores are what \
             counts"
        )));
        return false;
    }
    let info = meeting.first();
    let segment = info.map_or(USUAL_SEGMENT, |info| info.snd_mss_bytes);
    let buffer = info.and_then(|info| buffers(meeting, &info));
    let (wanted, is_fewer) = growth.on_long(segment, round_trip, buffer);
    let holds = match buffer {
        Some(bytes) if is_fewer => format!(
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
    true
}

/// Opens more streams on a long path while they help.
fn grow(
    meeting: &Meeting,
    watch: &Watch,
    growth: &mut Growth,
    round_trip: Duration,
    load: &dyn Loaded,
) {
    let milliseconds = round_trip.as_secs_f64() * 1e3;
    let span = SPAN_LEAST.max(round_trip * SPAN_ROUND_TRIPS);
    while !growth.is_full() && !meeting.is_over() {
        // New connections need as long again to find their rate.
        if growth.is_new() && (wait(meeting, span, || None::<()>).is_some() || meeting.is_over()) {
            return;
        }
        let Some(seen) = look_for(span, meeting, growth.may_be_behind(), load) else {
            return;
        };
        let before = growth.wanted();
        if let Some(why) = growth.on_span(&seen) {
            let (wanted, why) = (growth.wanted(), why.text());
            watch.note(Note::Chosen(format!(
                "{wanted} streams in place of {before}, together {:.0} Mb/s over {milliseconds:.0} ms: {why}",
                seen.rate / 1e6
            )));
            load.open_streams(wanted);
        }
    }
}

/// What streams do in a span of time; `None` where the session ends meanwhile.
fn look_for(
    span: Duration,
    meeting: &Meeting,
    may_be_behind: bool,
    load: &dyn Loaded,
) -> Option<Span> {
    let (bytes, again, since) = (delivered(meeting), resent(meeting), Instant::now());
    let windows = window_time(meeting);
    let (looks, idle) = (Cell::new(0_u32), Cell::new(0_u32));
    let had_queue = Cell::new(false);
    wait(meeting, span, || {
        if looks.get().is_multiple_of(QUEUE_LOOKS) && !had_queue.get() {
            had_queue.set(has_queue(meeting));
        }
        looks.set(looks.get() + 1);
        idle.set(idle.get() + u32::from(may_be_behind && falls_behind(meeting)));
        None::<()>
    });
    if meeting.is_over() {
        return None;
    }
    if !load.is_loaded() {
        return Some(Span::default());
    }
    let time = since.elapsed();
    let rate = delivered(meeting).saturating_sub(bytes) as f64 * 8.0 / time.as_secs_f64();
    let all = of_streams(meeting);
    let segments = all.iter().map(|info| info.snd_cwnd_segments).sum::<u64>();
    Some(Span {
        is_loaded: true,
        rate,
        is_behind: idle.get() * 2 > looks.get(),
        has_queue: has_queue(meeting),
        had_queue: had_queue.get(),
        again: resent(meeting).saturating_sub(again),
        time,
        streams: all.len(),
        window: segments as f64 / all.len().max(1) as f64,
        is_held_by_windows: held_by_windows(windows, window_time(meeting)),
        is_held_by_losses: held_by_losses(meeting),
    })
}

/// Has a long path's streams connect while the first one waits for its answer, where what this host knows of the way says how
/// many there will be at least.
fn open_early(meeting: &Meeting, load: &dyn Loaded, growth: &Growth) {
    let near = meeting.near();
    let Some(segment) = near.segment else {
        return;
    };
    // The far side's buffers are not known: where this side's are usual, they do not matter.
    let buffer = near.send_buffer.unwrap_or(USUAL_BUFFER);
    let early = growth.at_most(begin_with(segment, SILENCE, buffer));
    let answers = || meeting.round_trip();
    if early > 1 && wait(meeting, SILENCE, answers).is_none() && !meeting.is_over() {
        load.open_streams(early);
    }
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
