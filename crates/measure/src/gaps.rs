//! Dynamic gap control of real sockets: `tcp_info` in, `SO_MAX_PACING_RATE` out.
//!
//! Linux paces by bytes of payload (`tcp_update_skb_after_send`, net/ipv4/tcp_output.c), in bursts of
//! about a millisecond's worth and two segments at least (`tcp_tso_autosize`): no gap is shorter than
//! the burst that it follows. With the fq qdisc the qdisc keeps the same rate, by bytes on the wire.

use std::net::TcpStream;
use std::os::fd::AsFd;

use ::tcp::gap_control::{GapControl, Phase, Reading, Ride};
use sys::{clock, tcp};
use units::{Duration, Instant, Rate};
use wire::tcp_info::TcpInfo;

/// What is held up for less than this at a time is not seen: the kernel counts it in jiffies.
const HELD_UP_SPAN: Duration = Duration::from_ms(20);

/// Changes of the ceiling below a two-hundredth are not worth a system call.
const CHANGE_LEAST: u64 = 200;

/// A stream and its controller.
struct Stream<'a> {
    socket: &'a TcpStream,
    control: GapControl,
    due: Instant,
    /// Segments delivered; the kernel's counter has 32 bits.
    delivered: u64,
    delivered_before: u64,
    ceiling: Option<Rate>,
    /// The congestion control may be changed, and was not.
    may_change: bool,
    /// It may be begun anew, and was at this time.
    may_renew: bool,
    renewed: Instant,
    /// When the time held up was looked at last, and what it was.
    looked: Instant,
    held_up: Duration,
}

/// The congestion control that losses do not slow down.
const LOSS_TOLERANT: &str = "bbr";

/// What every socket may have for a moment: choosing what a socket has already changes nothing.
const BETWEEN: &str = "reno";

/// BBR that saw no shorter round trip for 10 s lets four segments be under way for 200 ms and a round trip, to
/// see the path without its own queue (`BBR_PROBE_RTT`, net/ipv4/tcp_bbr.c). Here there is none, and at 522 ms
/// that costs a sixteenth of the rate: it is begun anew before, which keeps its window.
const RENEW: Duration = Duration::from_s(8);

/// `tcpi_ca_state` without losses or reordering (`TCP_CA_Open`, include/uapi/linux/tcp.h).
const CA_OPEN: u64 = 0;

/// Keeps each stream just under its path's rate until `is_over`. With `may_change` a stream whose losses
/// have nothing to do with its rate gets another congestion control, where the host allows it.
pub(crate) fn control(sockets: &[TcpStream], may_change: bool, is_over: impl Fn() -> bool) {
    let now = clock::monotonic();
    let stream = |(socket, seed)| Stream {
        socket,
        control: GapControl::new(seed),
        due: now,
        delivered: 0,
        delivered_before: 0,
        ceiling: None,
        may_change,
        may_renew: may_change,
        renewed: now,
        looked: now,
        held_up: Duration::ZERO,
    };
    // Seeds are far apart, and other processes' streams have other ones.
    let seeds = (1_u64..).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ now.as_ns());
    let mut streams: Vec<_> = sockets.iter().zip(seeds).map(stream).collect();
    while !is_over() {
        let now = clock::monotonic();
        for stream in streams.iter_mut().filter(|stream| stream.due <= now) {
            // A socket that cannot be read or set has ended, which its data thread tells.
            let _ = stream.turn(now);
        }
        let Some(due) = streams.iter().map(|stream| stream.due).min() else {
            return;
        };
        std::thread::sleep(due.saturating_since(clock::monotonic()).to_std());
    }
}

impl Stream<'_> {
    fn turn(&mut self, now: Instant) -> std::io::Result<()> {
        let info = tcp::tcp_info(self.socket.as_fd())?;
        let reading = self.reading(now, &info);
        let before = self.control.phase();
        let ceiling = self.control.on_reading(now, &reading);
        let phase = self.control.phase();
        if phase != before {
            let found = self.control.found();
            let round_trip = reading.round_trip;
            tracing::debug!(?phase, ?ceiling, ?found, %round_trip, held_up = reading.held_up, "gap");
        }
        self.due = now + self.control.interval();
        if self.may_change && self.control.ride() == Ride::LossTolerant {
            self.may_change = false;
            let fd = self.socket.as_fd();
            if tcp::congestion(fd)? != LOSS_TOLERANT
                && tcp::set_congestion(fd, LOSS_TOLERANT).is_ok()
            {
                tracing::debug!("{LOSS_TOLERANT} from now on: there are losses without a queue");
                self.control.restart(now);
                (self.may_renew, self.renewed) = (true, now);
            }
        }
        self.renew(now, info.ca_state == CA_OPEN)?;
        let bits = |rate: Option<Rate>| rate.map_or(u64::MAX, Rate::as_bits_per_second);
        let (old, new) = (bits(self.ceiling), bits(ceiling));
        if old.abs_diff(new) > old / CHANGE_LEAST
            && let Some(rate) = ceiling
        {
            tcp::set_max_pacing(self.socket.as_fd(), rate)?;
            self.ceiling = ceiling;
        }
        Ok(())
    }

    fn renew(&mut self, now: Instant, is_open: bool) -> std::io::Result<()> {
        let is_due = self.may_renew && now.saturating_since(self.renewed) >= RENEW;
        if !is_due || !is_open || self.control.phase() != Phase::Hold {
            return Ok(());
        }
        self.renewed = now;
        let fd = self.socket.as_fd();
        self.may_renew = tcp::congestion(fd)? == LOSS_TOLERANT;
        if self.may_renew {
            tcp::set_congestion(fd, BETWEEN)?;
            tcp::set_congestion(fd, LOSS_TOLERANT)?;
            tracing::trace!("{LOSS_TOLERANT} anew");
        }
        Ok(())
    }

    fn reading(&mut self, now: Instant, info: &TcpInfo) -> Reading {
        let new = info.delivered_segments.wrapping_sub(self.delivered_before);
        self.delivered_before = info.delivered_segments;
        self.delivered += new & u64::from(u32::MAX);
        let segment = info.snd_mss_bytes;
        Reading {
            delivered: self.delivered * segment,
            retransmitted: info.bytes_retrans,
            round_trip: Duration::from_us(info.rtt_us),
            held_up: self.is_held_up(now, info),
        }
    }

    /// True when the receiver's window or the send buffer held the stream up for most of the time of late.
    fn is_held_up(&mut self, now: Instant, info: &TcpInfo) -> bool {
        let span = now.saturating_since(self.looked);
        if span < HELD_UP_SPAN {
            return false;
        }
        let total = Duration::from_us(info.rwnd_limited_us + info.sndbuf_limited_us);
        let held_up = Duration::from_ns(total.as_ns() - self.held_up.as_ns().min(total.as_ns()));
        self.looked = now;
        self.held_up = total;
        held_up.as_ns() * 2 > span.as_ns()
    }
}
