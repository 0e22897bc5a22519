//! What limits a connection right now: two readings of its counters, some time apart, become rates and a verdict.
//!
//! The clocks are those of [`crate::shares`]; they speak for what this host sends. Of what it receives the sender's clocks are
//! at the other end, and this end's window and unread bytes say whether the limit is here.
//!
//! **Resolution.** The clocks step by a jiffy, 4 ms at HZ=250: with a second between readings a share is exact to 0.4 %.
//! Counters of 32 bits wrap.
//!
//! **Known to be wrong.** A writer that pauses for less than a round trip keeps data outstanding, and the clocks call that
//! network; it is moved to the application where a reading finds nothing to send ([`crate::is_starved`]), so it needs a
//! reading at the right moment. Losses of a path and of a full queue look alike but for the round trip.

use units::{Bytes, Duration, Rate};
use wire::tcp_info::TcpInfo;

use crate::sample::{Sample, is_starved};
use crate::shares::{self, Shares, delta_u32};

/// What limits a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Limit {
    /// Nothing was sent or received.
    #[default]
    Idle,
    /// The application here sent no more.
    Application,
    /// The peer's receive window, as large as its buffer lets it be.
    ReceiveWindow,
    /// The peer's application: it leaves data unread, and the window closes.
    Reader,
    /// The send buffer of this host.
    SendBuffer,
    /// Retransmissions, though no queue is full.
    Loss,
    /// The congestion window: the path, or a start that is not over.
    Congestion,
    /// The rate that the application asked for (SO_MAX_PACING_RATE).
    Pacing,
    /// The application here leaves received data unread.
    OwnReader,
    /// This host's receive window.
    OwnWindow,
    /// Data comes, and the limit is at the peer or on the path: the sender's clocks are there.
    Peer,
    /// The kernel keeps no clocks (before Linux 4.10).
    Unknown,
}

impl Limit {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Idle,
        Self::Application,
        Self::ReceiveWindow,
        Self::Reader,
        Self::SendBuffer,
        Self::Loss,
        Self::Congestion,
        Self::Pacing,
        Self::OwnReader,
        Self::OwnWindow,
        Self::Peer,
        Self::Unknown,
    ];

    /// Name for columns, filters and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Application => "app",
            Self::ReceiveWindow => "rwnd",
            Self::Reader => "reader",
            Self::SendBuffer => "sndbuf",
            Self::Loss => "loss",
            Self::Congestion => "cwnd",
            Self::Pacing => "pacing",
            Self::OwnReader => "own-reader",
            Self::OwnWindow => "own-rwnd",
            Self::Peer => "peer",
            Self::Unknown => "unknown",
        }
    }

    /// The limit of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|l| l.name() == name)
    }

    /// What it means, as part of a sentence.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Idle => "nothing was sent or received",
            Self::Application => "the application on this host had nothing to send",
            Self::ReceiveWindow => "the peer's receive window was full",
            Self::Reader => "the peer's application reads too slowly: its window closes",
            Self::SendBuffer => "the send buffer of this host was full",
            Self::Loss => "segments were lost and retransmitted while no queue was full",
            Self::Congestion => "the congestion window was full: the path, its queue, or a start",
            Self::Pacing => "the application asked for this rate (SO_MAX_PACING_RATE)",
            Self::OwnReader => "the application on this host leaves received data unread",
            Self::OwnWindow => "the receive window of this host was full",
            Self::Peer => "data arrives; only the sender's kernel knows what limits it",
            Self::Unknown => "this kernel keeps no clocks (Linux 4.10 has them first)",
        }
    }
}

/// What is known of a connection beside its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Surroundings {
    /// Bytes received that nobody has read.
    pub unread: Bytes,
    /// Largest window that the peer has offered so far.
    pub peer_window_max: Bytes,
    /// Smallest window among the last readings.
    pub peer_window_min: Bytes,
    /// Held in the send buffer, as the kernel counts it (sk_wmem_queued).
    pub queued: Bytes,
    /// Limit of the send buffer; zero when not known.
    pub send_buffer: Bytes,
}

/// What happened between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moment {
    /// Time between them; zero at first sight.
    pub span: Duration,
    /// At first sight: the numbers are of the connection's whole life, and rates are zero.
    pub lifetime: bool,
    /// Payload that the peer acknowledged, in bytes.
    pub acked_bytes: u64,
    /// Payload that came in order, in bytes.
    pub received_bytes: u64,
    /// Bytes on an Ethernet wire that left, as an interface counts them: payload, retransmissions, headers of every segment.
    pub wire_out_bytes: u64,
    /// Bytes on the wire that came, headers counted, retransmissions not.
    pub wire_in_bytes: u64,
    /// Segments with data that left.
    pub segments_sent: u64,
    /// Of these, retransmissions.
    pub segments_retransmitted: u64,
    /// Where the sender's time went, starved time moved to the application; `None` without clocks.
    pub shares: Option<Shares>,
    /// What limits it.
    pub limit: Limit,
    /// 0..=1: share of the time that goes to the limit.
    pub share: f64,
}

impl Moment {
    /// Payload acknowledged per second.
    pub fn rate_out(&self) -> Rate {
        rate(self.acked_bytes, self.span)
    }

    /// Payload received per second.
    pub fn rate_in(&self) -> Rate {
        rate(self.received_bytes, self.span)
    }

    /// Share of the segments sent that were retransmissions, 0..=1.
    pub fn retransmitted_share(&self) -> f64 {
        match self.segments_sent {
            0 => 0.0,
            sent => (self.segments_retransmitted as f64 / sent as f64).min(1.0),
        }
    }
}

/// What happened from `before` to `now`, `span` apart; of a connection seen for the first time, in its life.
pub fn moment(
    before: Option<&TcpInfo>,
    now: &TcpInfo,
    span: Duration,
    around: &Surroundings,
    ipv6: bool,
) -> Moment {
    let none = TcpInfo {
        len_bytes: now.len_bytes,
        ..TcpInfo::default()
    };
    let lifetime = before.is_none();
    let from = before.unwrap_or(&none);
    let header = header_bytes(now, ipv6);
    let segments_out = delta_u32(from.segs_out, now.segs_out);
    let segments_in = delta_u32(from.segs_in, now.segs_in);
    let sent = now.bytes_sent.saturating_sub(from.bytes_sent);
    let received_bytes = now.bytes_received.saturating_sub(from.bytes_received);
    let mut moment = Moment {
        span: if lifetime { Duration::ZERO } else { span },
        lifetime,
        acked_bytes: payload_acked(now).saturating_sub(payload_acked(from)),
        received_bytes,
        wire_out_bytes: sent.saturating_add(segments_out * header),
        wire_in_bytes: received_bytes.saturating_add(segments_in * header),
        segments_sent: delta_u32(from.data_segs_out, now.data_segs_out),
        segments_retransmitted: delta_u32(from.total_retrans_segments, now.total_retrans_segments),
        ..Moment::default()
    };
    moment.shares = shares_between(from, now, span, around, lifetime);
    (moment.limit, moment.share) = verdict(&moment, now, around);
    moment
}

/// Payload that the peer acknowledged: what was sent less what is not acknowledged yet. `bytes_acked` counts SYN and FIN too.
pub fn payload_acked(info: &TcpInfo) -> u64 {
    let first = info.bytes_sent.saturating_sub(info.bytes_retrans);
    match info.bytes_sent {
        // Before Linux 4.19.
        0 => info.bytes_acked.saturating_sub(1),
        _ => info.bytes_acked.min(first),
    }
}

/// Bytes of Ethernet, IP and TCP headers of a segment, as an interface counts them; SYNs have some bytes of options more.
fn header_bytes(info: &TcpInfo, ipv6: bool) -> u64 {
    let ip = if ipv6 { 40 } else { 20 };
    // TCPI_OPT_TIMESTAMPS: 10 bytes and two to align (RFC 7323, appendix A).
    let options = if info.options & 1 == 1 { 12 } else { 0 };
    14 + ip + 20 + options
}

/// The clocks' shares, with starved time moved to the application.
fn shares_between(
    from: &TcpInfo,
    now: &TcpInfo,
    span: Duration,
    around: &Surroundings,
    lifetime: bool,
) -> Option<Shares> {
    // Nobody knows how long a connection has lived: at first sight shares are of its busy time.
    let span = match lifetime {
        true => Duration::from_us(now.busy_time_us.max(1)),
        false => span,
    };
    let sample = |t: Duration, info: &TcpInfo| Sample {
        t,
        info: *info,
        app_bytes: Bytes::default(),
    };
    let mut shares = shares::shares(&[sample(Duration::ZERO, from), sample(span, now)])?;
    // All that the buffer takes is in flight, and both windows have room: the clock of the buffer runs only while a writer that was
    // refused waits with nothing in flight that could wake it, so a buffer below the path's window shows as network.
    if !lifetime && is_starved(now, true) && is_full(around) {
        shares.send_buffer += shares.network;
        shares.network = 0.0;
        return Some(shares);
    }
    let starved = [from, now].map(|info| is_starved(info, false));
    let starved = starved.iter().filter(|s| **s).count() as f64 / 2.0;
    let moved = shares.network * if lifetime { 0.0 } else { starved };
    shares.network -= moved;
    shares.application += moved;
    Some(shares)
}

/// So full that a blocked writer is not woken: less than a third is free (net/core/stream.c, `sk_stream_write_space`).
fn is_full(around: &Surroundings) -> bool {
    let (queued, most) = (around.queued.as_u64(), around.send_buffer.as_u64());
    most > 0 && queued.saturating_mul(3) >= most.saturating_mul(2)
}

fn verdict(moment: &Moment, now: &TcpInfo, around: &Surroundings) -> (Limit, f64) {
    if moment.acked_bytes == 0 && moment.received_bytes == 0 && moment.segments_sent == 0 {
        // A window that stays closed moves nothing, and its clock runs all the same.
        let closed = moment
            .shares
            .filter(|s| !moment.lifetime && s.receive_window >= STALL_MIN);
        return match closed {
            Some(shares) => (of_window(moment, now, around), shares.receive_window),
            None if is_unread(around, now) => (Limit::OwnReader, 1.0),
            None => (Limit::Idle, 1.0),
        };
    }
    if moment.received_bytes > moment.acked_bytes {
        return received(moment, now, around);
    }
    let Some(shares) = moment.shares else {
        return (Limit::Unknown, 0.0);
    };
    let each = [
        (of_window(moment, now, around), shares.receive_window),
        (Limit::SendBuffer, shares.send_buffer),
        (of_network(moment, now), shares.network),
        (Limit::Application, shares.application),
    ];
    // Of equals the first: a window that was full is a cause, an idle application often its effect.
    each.into_iter()
        .rev()
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap_or_default()
}

/// Which end of the receive window limits: its size, or a reader that lets it close. A window of constant size carries one window a
/// round trip; where it falls below a quarter of its largest and less than half of that was delivered, data stays unread.
fn of_window(moment: &Moment, now: &TcpInfo, around: &Surroundings) -> Limit {
    let largest = around.peer_window_max.as_u64();
    let smallest = around.peer_window_min.as_u64().min(now.snd_wnd_bytes);
    let closes = smallest < largest / 4;
    let full = largest as f64 / (now.rtt_us.max(1) as f64 / 1e6);
    let delivered = moment.acked_bytes as f64 / (moment.span.as_ns().max(1) as f64 / 1e9);
    match closes && delivered < full / 2.0 {
        true => Limit::Reader,
        false => Limit::ReceiveWindow,
    }
}

/// What the congestion window's time is due to.
fn of_network(moment: &Moment, now: &TcpInfo) -> Limit {
    let cap = now.max_pacing_rate_bytes_per_second;
    let delivered = moment.rate_out().as_bits_per_second() / 8;
    if cap > 0 && cap < PACED_MAX && delivered >= cap / 10 * 8 {
        return Limit::Pacing;
    }
    let queue_is_full = now.min_rtt_us > 0 && now.rtt_us >= now.min_rtt_us + now.min_rtt_us / 2;
    match moment.retransmitted_share() >= LOSS_MIN && !queue_is_full {
        true => Limit::Loss,
        false => Limit::Congestion,
    }
}

/// The limit of what comes, as far as this end sees it.
fn received(moment: &Moment, now: &TcpInfo, around: &Surroundings) -> (Limit, f64) {
    if is_unread(around, now) {
        return (Limit::OwnReader, 1.0);
    }
    // What came in a round trip, against what this end let come.
    let per_round = match moment.span.as_ns() {
        0 => 0.0,
        ns => moment.received_bytes as f64 * now.rcv_rtt_us as f64 * 1e3 / ns as f64,
    };
    let window = now.rcv_wnd_bytes as f64;
    let used = if window > 0.0 {
        (per_round / window).min(1.0)
    } else {
        0.0
    };
    match used >= WINDOW_USED {
        true => (Limit::OwnWindow, used),
        false => (Limit::Peer, 1.0),
    }
}

/// More is unread than is free: the reader is behind, and the window shrinks.
fn is_unread(around: &Surroundings, now: &TcpInfo) -> bool {
    around.unread.as_u64() >= UNREAD_MIN_BYTES && around.unread.as_u64() > now.rcv_wnd_bytes
}

fn rate(bytes: u64, span: Duration) -> Rate {
    match span {
        Duration::ZERO => Rate::default(),
        span => Rate::average(Bytes::new(bytes), span),
    }
}

/// Retransmissions below one segment in a thousand limit nobody much: Mathis' formula then allows some 40 segments a round trip.
const LOSS_MIN: f64 = 0.001;
/// Share of a stalled interval that the window must have; chosen.
const STALL_MIN: f64 = 0.5;
/// A window of which so much is used each round trip limits; the estimate of the round trip is coarse.
const WINDOW_USED: f64 = 0.8;
/// Less unread is a reader that was not scheduled yet; chosen: one write of a common program.
const UNREAD_MIN_BYTES: u64 = 64 << 10;
/// All ones in 32 or 64 bits: no pace was asked for (net/core/sock.c).
const PACED_MAX: u64 = u32::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000;

    fn reading() -> TcpInfo {
        TcpInfo {
            len_bytes: 280,
            rtt_us: 20 * MS,
            min_rtt_us: 20 * MS,
            snd_mss_bytes: 1_448,
            snd_cwnd_segments: 100,
            snd_wnd_bytes: 65_536,
            max_pacing_rate_bytes_per_second: u64::MAX,
            ..TcpInfo::default()
        }
    }

    /// A second in which the clocks ran for so many milliseconds, and 3 MB were delivered.
    fn second(busy: u64, rwnd: u64, sndbuf: u64) -> TcpInfo {
        TcpInfo {
            busy_time_us: busy * MS,
            rwnd_limited_us: rwnd * MS,
            sndbuf_limited_us: sndbuf * MS,
            bytes_acked: 3_000_000,
            bytes_sent: 3_000_000,
            data_segs_out: 2_072,
            segs_out: 2_072,
            unacked_segments: 100,
            ..reading()
        }
    }

    fn judged(now: &TcpInfo, around: &Surroundings) -> (Limit, f64) {
        let m = moment(Some(&reading()), now, Duration::from_s(1), around, false);
        (m.limit, (m.share * 1000.0).round() / 1000.0)
    }

    fn limit(now: &TcpInfo) -> (Limit, f64) {
        judged(now, &Surroundings::default())
    }

    #[test]
    fn the_clock_that_ran_longest_is_the_limit() {
        assert_eq!(
            limit(&second(1_000, 510, 490)),
            (Limit::ReceiveWindow, 0.51)
        );
        assert_eq!(limit(&second(1_000, 490, 510)), (Limit::SendBuffer, 0.51));
        assert_eq!(limit(&second(1_000, 0, 490)), (Limit::Congestion, 0.51));
        assert_eq!(limit(&second(501, 0, 0)), (Limit::Congestion, 0.501));
        assert_eq!(limit(&second(499, 0, 0)), (Limit::Application, 0.501));
        assert_eq!(limit(&second(1_000, 500, 500)), (Limit::ReceiveWindow, 0.5));
    }

    #[test]
    fn one_segment_in_a_thousand_is_a_loss_unless_a_queue_is_full() {
        let lossy = |retransmitted, rtt_us| TcpInfo {
            data_segs_out: 10_000,
            total_retrans_segments: retransmitted,
            rtt_us,
            ..second(1_000, 0, 0)
        };
        assert_eq!(limit(&lossy(9, 20 * MS)).0, Limit::Congestion);
        assert_eq!(limit(&lossy(10, 20 * MS)).0, Limit::Loss);
        assert_eq!(limit(&lossy(10, 30 * MS - 1)).0, Limit::Loss);
        assert_eq!(limit(&lossy(10, 30 * MS)).0, Limit::Congestion);
    }

    #[test]
    fn a_pace_that_was_asked_for_is_the_limit_from_four_fifths_of_it_on() {
        let paced = |rate| TcpInfo {
            max_pacing_rate_bytes_per_second: rate,
            ..second(1_000, 0, 0)
        };
        assert_eq!(limit(&paced(3_750_000)).0, Limit::Pacing);
        assert_eq!(limit(&paced(3_760_000)).0, Limit::Congestion);
        assert_eq!(limit(&paced(u64::from(u32::MAX))).0, Limit::Congestion);
    }

    #[test]
    fn a_window_that_closes_below_a_quarter_has_a_slow_reader() {
        let around = |smallest| Surroundings {
            peer_window_max: Bytes::new(400_000),
            peer_window_min: Bytes::new(smallest),
            ..Surroundings::default()
        };
        let now = TcpInfo {
            snd_wnd_bytes: 400_000,
            ..second(1_000, 900, 0)
        };
        assert_eq!(judged(&now, &around(99_999)).0, Limit::Reader);
        assert_eq!(judged(&now, &around(100_000)).0, Limit::ReceiveWindow);
        // What one such window carries in 20 ms is 20 MB/s; half of it was delivered.
        let fast = |bytes| TcpInfo {
            bytes_acked: bytes,
            bytes_sent: bytes,
            ..now
        };
        assert_eq!(judged(&fast(9_999_999), &around(0)).0, Limit::Reader);
        assert_eq!(
            judged(&fast(10_000_000), &around(0)).0,
            Limit::ReceiveWindow
        );
    }

    #[test]
    fn a_pause_that_a_reading_finds_moves_time_from_network_to_application() {
        let starved = |unacked_segments, delivery_flags| TcpInfo {
            unacked_segments,
            delivery_flags,
            ..second(1_000, 0, 0)
        };
        assert_eq!(limit(&starved(99, 1)), (Limit::Congestion, 0.5));
        assert_eq!(limit(&starved(100, 1)), (Limit::Congestion, 1.0));
        let before = TcpInfo {
            delivery_flags: 1,
            ..reading()
        };
        let around = Surroundings::default();
        let m = moment(
            Some(&before),
            &starved(99, 1),
            Duration::from_s(1),
            &around,
            false,
        );
        assert_eq!((m.limit, m.share), (Limit::Application, 1.0));
    }

    #[test]
    fn a_send_buffer_that_is_all_in_flight_is_the_limit_from_two_thirds_on() {
        let around = |queued| Surroundings {
            queued: Bytes::new(queued),
            send_buffer: Bytes::new(60_000),
            ..Surroundings::default()
        };
        let sends = |unacked_segments, notsent_bytes| TcpInfo {
            unacked_segments,
            notsent_bytes,
            ..second(1_000, 0, 0)
        };
        assert_eq!(
            judged(&sends(40, 0), &around(40_000)),
            (Limit::SendBuffer, 1.0)
        );
        assert_eq!(judged(&sends(40, 0), &around(39_999)).0, Limit::Congestion);
        // Unsent data or a full congestion window: the buffer has more than may leave.
        assert_eq!(judged(&sends(40, 1), &around(60_000)).0, Limit::Congestion);
        assert_eq!(judged(&sends(100, 0), &around(60_000)).0, Limit::Congestion);
    }

    #[test]
    fn nothing_moved_is_idle_unless_a_window_is_closed_or_data_unread() {
        let stalled = |rwnd| TcpInfo {
            busy_time_us: 1_000 * MS,
            rwnd_limited_us: rwnd * MS,
            unacked_segments: 100,
            ..reading()
        };
        assert_eq!(limit(&stalled(499)).0, Limit::Idle);
        assert_eq!(limit(&stalled(500)), (Limit::ReceiveWindow, 0.5));
        let unread = |bytes| Surroundings {
            unread: Bytes::new(bytes),
            ..Surroundings::default()
        };
        assert_eq!(judged(&reading(), &unread(65_535)).0, Limit::Idle);
        assert_eq!(judged(&reading(), &unread(65_536)).0, Limit::OwnReader);
    }

    #[test]
    fn a_receiver_blames_its_reader_its_window_or_nobody_here() {
        let receives = |bytes_received| TcpInfo {
            bytes_received,
            rcv_rtt_us: 100 * MS,
            rcv_wnd_bytes: 100_000,
            ..reading()
        };
        assert_eq!(limit(&receives(800_000)), (Limit::OwnWindow, 0.8));
        assert_eq!(limit(&receives(799_999)).0, Limit::Peer);
        let unread = |bytes| Surroundings {
            unread: Bytes::new(bytes),
            ..Surroundings::default()
        };
        assert_eq!(judged(&receives(1_000), &unread(100_000)).0, Limit::Peer);
        assert_eq!(
            judged(&receives(1_000), &unread(100_001)).0,
            Limit::OwnReader
        );
    }

    #[test]
    fn first_sight_is_of_the_whole_life_and_has_no_rate() {
        let around = Surroundings::default();
        let m = moment(
            None,
            &second(1_000, 700, 0),
            Duration::from_s(9),
            &around,
            false,
        );
        assert!(m.lifetime && m.span == Duration::ZERO && m.rate_out() == Rate::default());
        assert_eq!((m.acked_bytes, m.limit), (3_000_000, Limit::ReceiveWindow));
        assert!((m.share - 0.7).abs() < 1e-9);
    }

    #[test]
    fn counters_of_32_bits_wrap_and_headers_count() {
        let before = TcpInfo {
            segs_out: u64::from(u32::MAX),
            data_segs_out: u64::from(u32::MAX),
            total_retrans_segments: u64::from(u32::MAX) - 1,
            ..reading()
        };
        let now = TcpInfo {
            data_segs_out: 9,
            total_retrans_segments: 3,
            ..reading()
        };
        let around = Surroundings::default();
        let m = moment(Some(&before), &now, Duration::from_s(1), &around, false);
        assert_eq!((m.segments_sent, m.segments_retransmitted), (10, 5));
        assert_eq!(m.retransmitted_share(), 0.5);
        // 34 bytes of Ethernet and IP, 20 of TCP, 12 of timestamps.
        assert_eq!(m.wire_out_bytes, 54);
        let sent = TcpInfo {
            segs_out: 9,
            bytes_sent: 5_000,
            options: 1,
            ..reading()
        };
        let m = moment(Some(&before), &sent, Duration::from_s(1), &around, true);
        assert_eq!(m.wire_out_bytes, 5_860);
    }

    #[test]
    fn syn_and_fin_are_no_payload() {
        let done = TcpInfo {
            bytes_acked: 5_002,
            bytes_sent: 6_000,
            bytes_retrans: 1_000,
            ..reading()
        };
        assert_eq!(payload_acked(&done), 5_000);
        let on_its_way = TcpInfo {
            bytes_acked: 4_001,
            ..done
        };
        assert_eq!(payload_acked(&on_its_way), 4_001);
        let old = TcpInfo {
            bytes_acked: 5_002,
            ..reading()
        };
        assert_eq!(payload_acked(&old), 5_001);
    }

    #[test]
    fn an_old_kernel_tells_no_limit_and_names_are_read_back() {
        let mut now = second(1_000, 0, 0);
        now.len_bytes = 160;
        assert_eq!(limit(&now), (Limit::Unknown, 0.0));
        for one in Limit::ALL {
            assert_eq!(Limit::of_name(one.name()), Some(one));
            assert!(!one.meaning().is_empty());
        }
        assert_eq!(Limit::of_name("rwnd "), None);
    }
}
