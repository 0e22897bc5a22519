//! The streams of a test in one direction at one end, over TCP or UDP, the same for client and
//! server, and what they come to in iperf3's terms.

use std::io;
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use sys::{clock, tcp};
use units::{Bytes, Duration, Rate};

use super::params::Params;
use super::results::{Results, StreamResult, stream_id};
use crate::Config;
use crate::crew::Role;
use crate::engine::{Engine, Shape};
use crate::outcome::EndResult;
use crate::udp::{Framing, UdpEngine, UdpSample};

/// Streams that run.
#[derive(Debug)]
pub(super) enum Flow {
    Tcp(Engine),
    Udp(UdpEngine),
}

/// Sockets for streams.
#[derive(Debug)]
pub(super) enum Sockets {
    Tcp(Vec<TcpStream>),
    Udp(Vec<UdpSocket>),
}

/// What streams came to.
#[derive(Clone, Debug)]
pub(super) struct Flowed {
    pub(super) role: Role,
    pub(super) result: EndResult,
    /// Readings of UDP streams.
    pub(super) udp: Option<Vec<UdpSample>>,
}

impl Flow {
    /// Streams that wait for [`Flow::go`]. Senders stop after `config.duration`, or when the budget of `shape` is
    /// handed over.
    pub(super) fn prepare(
        params: &Params,
        role: Role,
        config: &Config,
        sockets: Sockets,
        shape: Shape,
    ) -> io::Result<Self> {
        Ok(match sockets {
            Sockets::Tcp(sockets) => Self::Tcp(Engine::prepare(role, config, sockets, shape)?),
            Sockets::Udp(sockets) => {
                let wide = params.counters_64bit;
                let framing = Framing { wide, key: None };
                Self::Udp(UdpEngine::prepare(role, config, sockets, shape, framing)?)
            }
        })
    }

    pub(super) fn go(&self) {
        match self {
            Self::Tcp(engine) => engine.go(),
            Self::Udp(engine) => engine.go(),
        }
    }

    /// Ends the streams, which takes a tick at most.
    pub(super) fn end(&self) {
        match self {
            Self::Tcp(engine) => engine.end(),
            Self::Udp(engine) => engine.end(),
        }
    }

    pub(super) fn role(&self) -> Role {
        match self {
            Self::Tcp(engine) => engine.role(),
            Self::Udp(engine) => engine.role(),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Tcp(engine) => engine.bytes(),
            Self::Udp(engine) => engine.bytes(),
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        match self {
            Self::Tcp(engine) => engine.elapsed(),
            Self::Udp(engine) => engine.elapsed(),
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        match self {
            Self::Tcp(engine) => engine.is_finished(),
            Self::Udp(engine) => engine.is_finished(),
        }
    }

    /// Collects what was measured; call it when finished or ended.
    pub(super) fn finish(self) -> Flowed {
        let role = self.role();
        let (result, udp) = match self {
            Self::Tcp(engine) => (engine.finish(), None),
            Self::Udp(engine) => {
                let (result, samples) = engine.finish();
                (result, Some(samples))
            }
        };
        Flowed { role, result, udp }
    }

    /// True while something has arrived that no thread has taken yet.
    fn has_unread(&self) -> bool {
        match self {
            Self::Tcp(engine) => engine.has_unread(),
            Self::Udp(_) => false,
        }
    }

    /// Waits until a receiver's streams have ended or nothing has come for `quiet`: what was on its
    /// way when the test ended is part of it. Returns the time of the last bytes, at least `from`.
    pub(super) fn settle(&self, from: Duration, quiet: Duration) -> Duration {
        let begun = clock::monotonic();
        let (mut bytes, mut last, mut changed) = (self.bytes(), from, begun);
        loop {
            let finished = self.is_finished();
            let (now, has) = (clock::monotonic(), self.bytes());
            if has > bytes || self.has_unread() {
                (bytes, last, changed) = (has, self.elapsed(), now);
            }
            if finished || now >= changed + quiet || now >= begun + SETTLE_MAX {
                return last;
            }
            std::thread::sleep(SETTLE_STEP);
        }
    }
}

/// What senders may send: at the rate that the parameters ask for, and `budget` bytes in all.
pub(super) fn shape(params: &Params, budget: Option<u64>) -> Shape {
    Shape {
        budget: budget.map(|bytes| Arc::new(AtomicU64::new(bytes))),
        rate: Some(Rate::from_bits_per_second(params.rate)).filter(|_| params.rate > 0),
        ..Shape::default()
    }
}

impl Flowed {
    /// The streams as iperf3 tells them; `first` is the place of the first among all of the test,
    /// `omit` what is left out at the start, `seconds` what was counted.
    pub(super) fn streams(&self, first: usize, omit: Duration, seconds: f64) -> Vec<StreamResult> {
        let one = |index: usize| {
            let mut stream = StreamResult {
                id: stream_id(first + index),
                seconds,
                ..self.tcp_stream(index, omit)
            };
            if let Some(samples) = &self.udp {
                add_udp(&mut stream, samples, index, omit);
            }
            stream
        };
        (0..self.result.stream_bytes.len()).map(one).collect()
    }

    fn tcp_stream(&self, index: usize, omit: Duration) -> StreamResult {
        let all = self.result.stream_bytes[index];
        let of_stream = || {
            let samples = self.result.samples.iter();
            samples.filter(|s| usize::from(s.stream) == index)
        };
        let omitted = of_stream().min_by_key(|s| apart(s.t, omit));
        let omitted = omitted.filter(|_| omit > Duration::ZERO);
        let sent_again = |info: &wire::tcp_info::TcpInfo| info.total_retrans_segments;
        let retransmits = (self.role == Role::Sender && self.udp.is_none()).then(|| {
            let last = of_stream().map(|s| sent_again(&s.info)).max().unwrap_or(0);
            last.saturating_sub(omitted.map_or(0, |s| sent_again(&s.info)))
        });
        StreamResult {
            bytes: all.saturating_sub(omitted.map_or(0, |s| s.app_bytes)),
            retransmits,
            ..StreamResult::default()
        }
    }

    /// CPU time in percent of `seconds`: total, user, system.
    pub(super) fn cpu_percent(&self, seconds: f64) -> [f64; 3] {
        let share = |time: Duration| 100.0 * time.as_s_f64() / seconds.max(1e-9);
        let system = self
            .result
            .cpu
            .as_ns()
            .saturating_sub(self.result.cpu_user.as_ns());
        [
            share(self.result.cpu),
            share(self.result.cpu_user),
            share(Duration::from_ns(system)),
        ]
    }
}

/// The reading at the end of the omitted time is the one nearest to it.
fn apart(t: Duration, omit: Duration) -> u64 {
    t.as_ns().abs_diff(omit.as_ns())
}

fn add_udp(stream: &mut StreamResult, samples: &[UdpSample], index: usize, omit: Duration) {
    let of_stream = || samples.iter().filter(|s| usize::from(s.stream) == index);
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    if let Some(last) = of_stream().next_back() {
        stream.jitter_s = last.jitter_ns / 1e9;
        stream.lost = signed(last.lost);
        stream.packets = last.packets;
    }
    let omitted = of_stream().min_by_key(|s| apart(s.t, omit));
    if let Some(omitted) = omitted.filter(|_| omit > Duration::ZERO) {
        stream.lost_omitted = signed(omitted.lost);
        stream.packets_omitted = omitted.packets;
    }
}

/// Both ends' results of all flows of one end, as they are told.
pub(super) fn results(flows: &[(Flowed, f64)], omit: Duration) -> Results {
    let mut results = Results::default();
    for (flowed, seconds) in flows {
        let percent = flowed.cpu_percent(*seconds + omit.as_s_f64());
        for (sum, part) in results.cpu_percent.iter_mut().zip(percent) {
            *sum += part;
        }
        let streams = flowed.streams(results.streams.len(), omit, *seconds);
        results.streams.extend(streams);
        if flowed.role == Role::Sender {
            results.has_retransmits = Some(flowed.udp.is_none());
        }
        if flowed.udp.is_none() && !flowed.result.congestion.is_empty() {
            results.congestion = Some(flowed.result.congestion.clone());
        }
    }
    results
}

/// Sets a stream's options as iperf3 does, on both ends alike. A congestion control that this host
/// does not have is left out; the results tell which one ran.
pub(super) fn set_options(fd: BorrowedFd<'_>, params: &Params) -> io::Result<()> {
    if params.window_bytes > 0 {
        let size = Bytes::new(params.window_bytes.into());
        tcp::set_send_buffer(fd, size)?;
        tcp::set_receive_buffer(fd, size)?;
    }
    if params.tos > 0 {
        tcp::set_tos(fd, params.tos)?;
    }
    if params.pacing > 0 {
        tcp::set_max_pacing(fd, Rate::from_bits_per_second(params.pacing))?;
    }
    if params.udp {
        return grow_for_datagrams(fd, params);
    }
    if let Some(bytes) = u16::try_from(params.mss_bytes).ok().filter(|&b| b > 0) {
        // Of an accepted connection it is settled already.
        drop(tcp::set_max_segment(fd, bytes));
    }
    match params
        .congestion
        .as_deref()
        .map(|name| tcp::set_congestion(fd, name))
    {
        Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A buffer smaller than a datagram sends none, and one that holds a few loses them when the reader
/// is late. The kernel cuts the wish at `net.core.rmem_max`.
fn grow_for_datagrams(fd: BorrowedFd<'_>, params: &Params) -> io::Result<()> {
    let need = Bytes::new(u64::from(params.block_bytes) + 1024);
    if tcp::send_buffer(fd)? < need {
        tcp::set_send_buffer(fd, need)?;
    }
    if params.window_bytes == 0 {
        tcp::set_receive_buffer(fd, need.max(UDP_RECEIVE_BUFFER))?;
    }
    Ok(())
}

/// 30 ms at 1 Gb/s.
const UDP_RECEIVE_BUFFER: Bytes = Bytes::new(4 << 20);

/// How long silence must last to mean that nothing is on its way any more.
pub(super) fn quiet(control: &TcpStream) -> Duration {
    let rtt = tcp::tcp_info(control.as_fd()).map_or(0, |info| info.rtt_us);
    QUIET_MIN.max(Duration::from_us(rtt.saturating_mul(2)))
}

/// Longer than a scheduler's absence on a busy host, mostly. It is in no rate.
const QUIET_MIN: Duration = Duration::from_ms(100);
/// A queue that drains for longer is cut; iperf3 itself waits for nothing.
const SETTLE_MAX: Duration = Duration::from_s(5);
const SETTLE_STEP: std::time::Duration = std::time::Duration::from_millis(1);
