//! What a transfer gave: bytes, CPU and samples of both ends, and the rates computed from them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use units::{Bytes, Duration, Instant, Rate};
use wire::tcp_info::TcpInfo;

use crate::outlet::ZeroCopyCounts;
use crate::quic::QuicInfo;
use crate::{Config, HostCost, MeasureError};

/// One transfer, as both ends saw it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was asked for.
    pub config: Config,
    /// The path's round trip just before.
    pub idle_rtt: IdleRtt,
    /// The sending end.
    pub sender: EndResult,
    /// The receiving end.
    pub receiver: EndResult,
    /// The user ended it early: the numbers hold for the time until then.
    pub interrupted: bool,
    /// Every byte that was sent was received. False after an interruption, or when the queues took
    /// so long to drain that the rest was thrown away; the rates hold all the same.
    pub complete: bool,
}

/// What a client has of a transfer.
#[derive(Debug)]
pub struct Kept {
    /// The transfer, as far as it went.
    pub outcome: Outcome,
    /// What ended it before its time, other than the user or the limits. Where the far end's result is missing, its half of
    /// the outcome is what this end knows of it: of a receiver bytes and time, of a sender nothing.
    pub broken: Option<MeasureError>,
}

/// Round trip of the idle path, measured on the control connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdleRtt {
    /// Smallest: the kernel's `tcpi_min_rtt` where it has one, else of `samples`.
    pub min: Duration,
    /// Median of `samples`.
    pub median: Duration,
    /// Request to response as the programs see it, wake-ups included, in the order measured.
    pub samples: Vec<Duration>,
    /// The kernel's `tcpi_min_rtt` of the connection over the last minutes.
    pub kernel_min: Option<Duration>,
}

/// One end of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndResult {
    /// CPU time of the data threads, user and kernel. What the kernel does in interrupts is not in
    /// it.
    pub cpu: Duration,
    /// Of it, in user space, as the kernel books it. This end only.
    pub cpu_user: Duration,
    /// Payload bytes written or read by the application.
    pub bytes: u64,
    /// From the start to the end of the last stream: its last write, or the end of file.
    pub duration: Duration,
    /// The start on CLOCK_MONOTONIC of that machine; comparable within one machine only.
    pub start: Instant,
    /// Congestion control of the sockets (the receiver's matters little).
    pub congestion: String,
    /// Send buffer at the end, in the kernel's bookkeeping: twice what SO_SNDBUF was granted, or
    /// where autotuning arrived.
    pub send_buffer: Bytes,
    /// Receive buffer at the end, in the same bookkeeping.
    pub receive_buffer: Bytes,
    /// What broke a stream, if anything did.
    pub error: Option<String>,
    /// What became of sends without copying, at a sender that was asked for them.
    pub zero_copy: Option<ZeroCopyCounts>,
    /// What became of multipath connections, where they were asked for. This end only.
    pub mptcp: Option<MptcpCounts>,
    /// Datagrams of each stream; empty over TCP.
    pub udp: Vec<UdpCounts>,
    /// Over QUIC: datagrams that this end's kernel threw away for want of room in the sockets' buffers. Of
    /// some that it had joined it counts one. `None` where kernel or end do not tell.
    pub socket_dropped: Option<u64>,
    /// Payload bytes of each stream. This end only.
    pub stream_bytes: Vec<u64>,
    /// Own and peer's address of each stream, while it was open. This end only.
    pub addresses: Vec<(SocketAddr, SocketAddr)>,
    /// What it cost the host; absent where an older end did not tell.
    pub cost: Option<HostCost>,
    /// Readings in the order of time; within one round in the order of streams.
    pub samples: Vec<Sample>,
}

/// Multipath connections of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MptcpCounts {
    /// Streams that were multipath from the first to the last reading; the others are plain TCP.
    pub streams: u16,
    /// The most subflows that these had, added up.
    pub subflows: u32,
}

/// Datagrams of one stream at one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UdpCounts {
    /// Sender: datagrams sent. Receiver: the highest number that came.
    pub packets: u64,
    /// Receiver: numbers below it that did not come.
    pub lost: u64,
    /// Receiver: datagrams that came after a higher number.
    pub late: u64,
    /// Receiver: datagrams that came once more.
    pub duplicates: u64,
    /// Receiver: RFC 3550 jitter.
    pub jitter_ns: u64,
    /// Receiver: thrown away by its own kernel for want of room in the socket's buffer.
    pub dropped: u64,
    /// Receiver: without the transfer's key, so not of this stream; not in the other counts.
    pub foreign: u64,
}

/// Datagrams of a transfer, all streams together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Datagrams {
    /// Sent.
    pub sent: u64,
    /// Received, each counted once.
    pub received: u64,
    /// Sent and not received.
    pub lost: u64,
    /// Received after a higher number.
    pub late: u64,
    /// Received once more.
    pub duplicates: u64,
    /// RFC 3550 jitter, the streams' mean.
    pub jitter: Duration,
    /// Of those lost, thrown away by the receiver's kernel for want of room in the socket's buffer.
    pub dropped: u64,
    /// Received without the transfer's key.
    pub foreign: u64,
}

/// One reading of one stream at one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Stream number from 0.
    pub stream: u16,
    /// Which reading.
    pub kind: SampleKind,
    /// Time since the start at that end.
    pub t: Duration,
    /// Payload bytes the application had written or read.
    pub app_bytes: u64,
    /// The kernel's view. Its byte counters include the connection's opening of some 40 bytes.
    pub info: TcpInfo,
    /// Over QUIC, of which the kernel knows nothing: the connection's own view.
    pub quic: Option<QuicInfo>,
}

/// When a sample was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SampleKind {
    /// Before the first byte, at t = 0.
    Start,
    /// On the way.
    #[default]
    Periodic,
    /// Sender: the moment that sending ended, with queues still full; differences of limit times up
    /// to here cover the sending time. Receiver: after the last byte.
    End,
    /// Sender only: after the receiver had taken everything; differences of counters up to here
    /// cover the whole transfer.
    Drained,
}

impl Outcome {
    /// Payload received per second between the end of the ramp and the nominal end, by the
    /// receiver's clock, which starts when the first byte could arrive. What drains from queues
    /// after the sender stopped is left out. An interrupted run counts up to its last sample.
    pub fn goodput_after_ramp(&self) -> Rate {
        self.receiver
            .rate_between(self.config.ramp, self.config.duration)
    }

    /// True when both ends were on one machine, so that its account is one and not two.
    pub fn on_one_machine(&self) -> bool {
        let costs = self.sender.cost.as_ref().zip(self.receiver.cost.as_ref());
        costs.is_some_and(|(a, b)| a.same_machine(b))
    }

    /// Payload received per second from the start until the last byte.
    pub fn goodput_whole(&self) -> Rate {
        Rate::average(Bytes::new(self.receiver.bytes), self.receiver.duration)
    }
}

impl Outcome {
    /// What became of the datagrams; `None` over TCP.
    pub fn datagrams(&self) -> Option<Datagrams> {
        let (sent, got) = (&self.sender.udp, &self.receiver.udp);
        if sent.is_empty() && got.is_empty() {
            return None;
        }
        let sum = |counts: &[UdpCounts], of: fn(&UdpCounts) -> u64| -> u64 {
            counts.iter().map(of).fold(0, u64::saturating_add)
        };
        let received = sum(got, |c| c.packets.saturating_sub(c.lost));
        let sent = sum(sent, |c| c.packets);
        let streams = u64::try_from(got.len()).unwrap_or(1).max(1);
        Some(Datagrams {
            sent,
            received,
            lost: sent.saturating_sub(received),
            late: sum(got, |c| c.late),
            duplicates: sum(got, |c| c.duplicates),
            jitter: Duration::from_ns(sum(got, |c| c.jitter_ns) / streams),
            dropped: sum(got, |c| c.dropped),
            foreign: sum(got, |c| c.foreign),
        })
    }
}

impl EndResult {
    /// QUIC's own counts of all connections at their last reading: counters in sum, the largest of what
    /// does not add up; `None` over another transport.
    pub fn quic(&self) -> Option<QuicInfo> {
        let mut last: BTreeMap<u16, QuicInfo> = BTreeMap::new();
        for sample in &self.samples {
            last.extend(sample.quic.map(|info| (sample.stream, info)));
        }
        last.into_values().reduce(QuicInfo::joined)
    }

    /// Average application rate between two times since the start, interpolated between samples
    /// and cut at the last one; over the whole time when the last sample is before `from`.
    pub fn rate_between(&self, from: Duration, to: Duration) -> Rate {
        let last = self
            .samples
            .iter()
            .map(|s| s.t)
            .max()
            .unwrap_or(Duration::ZERO);
        let to = to.min(last);
        if to <= from {
            return Rate::average(Bytes::new(self.bytes), self.duration);
        }
        let bytes = self.bytes_at(to).saturating_sub(self.bytes_at(from));
        Rate::average(Bytes::new(bytes), to - from)
    }

    /// Payload bytes of all streams at a time since the start, interpolated between samples.
    pub fn bytes_at(&self, t: Duration) -> u64 {
        let streams = self
            .samples
            .iter()
            .map(|s| usize::from(s.stream) + 1)
            .max()
            .unwrap_or(0);
        let mut before: Vec<Option<(Duration, u64)>> = vec![None; streams];
        let mut after: Vec<Option<(Duration, u64)>> = vec![None; streams];
        for sample in &self.samples {
            let stream = usize::from(sample.stream);
            let point = Some((sample.t, sample.app_bytes));
            if sample.t <= t {
                before[stream] = point;
            } else if after[stream].is_none() {
                after[stream] = point;
            }
        }
        before
            .into_iter()
            .zip(after)
            .map(|(low, high)| interpolate(low, high, t))
            .sum()
    }
}

/// Bytes at `t` on the line between two points; a missing left point is the origin, a missing
/// right one means that nothing came after.
fn interpolate(low: Option<(Duration, u64)>, high: Option<(Duration, u64)>, t: Duration) -> u64 {
    let (t0, b0) = low.unwrap_or((Duration::ZERO, 0));
    let Some((t1, b1)) = high else { return b0 };
    let span = u128::from((t1 - t0).as_ns()).max(1);
    let part = u128::from((t - t0).as_ns()) * u128::from(b1.saturating_sub(b0)) / span;
    b0.saturating_add(u64::try_from(part).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(stream: u16, ms: u64, app_bytes: u64) -> Sample {
        Sample {
            stream,
            t: Duration::from_ms(ms),
            app_bytes,
            ..Sample::default()
        }
    }

    /// 1 kB/ms after a ramp of 100 ms at a tenth of it; drained until 400 ms.
    fn outcome() -> Outcome {
        let samples = vec![
            sample(0, 0, 0),
            sample(0, 100, 10_000),
            sample(0, 350, 260_000),
        ];
        let receiver = EndResult {
            bytes: 260_000,
            duration: Duration::from_ms(350),
            samples,
            ..EndResult::default()
        };
        let config = Config {
            duration: Duration::from_ms(300),
            ramp: Duration::from_ms(100),
            ..Config::default()
        };
        let sender = EndResult::default();
        let idle_rtt = IdleRtt::default();
        Outcome {
            config,
            idle_rtt,
            sender,
            receiver,
            interrupted: false,
            complete: true,
        }
    }

    #[test]
    fn headline_goodput_leaves_out_the_ramp_and_the_drain() {
        assert_eq!(
            outcome().goodput_after_ramp(),
            Rate::from_bits_per_second(8_000_000)
        );
        let whole = 260_000 * 8 * 1000 / 350;
        assert_eq!(outcome().goodput_whole(), Rate::from_bits_per_second(whole));
    }

    #[test]
    fn an_interrupted_run_counts_up_to_its_last_sample() {
        let mut cut = outcome();
        cut.config.duration = Duration::from_s(10);
        assert_eq!(
            cut.goodput_after_ramp(),
            Rate::from_bits_per_second(8_000_000)
        );
        cut.config.ramp = Duration::from_s(5);
        assert_eq!(cut.goodput_after_ramp(), cut.goodput_whole());
    }

    #[test]
    fn what_was_sent_and_did_not_come_is_lost_even_at_the_end() {
        let mut run = outcome();
        assert_eq!(run.datagrams(), None);
        let count = |packets, lost| UdpCounts {
            packets,
            lost,
            ..UdpCounts::default()
        };
        run.sender.udp = vec![count(100, 0), count(50, 0)];
        // Of the first stream two are missing between, and the last three.
        run.receiver.udp = vec![count(97, 2), count(50, 0)];
        let got = run.datagrams().unwrap();
        assert_eq!((got.sent, got.received, got.lost), (150, 145, 5));
    }

    #[test]
    fn streams_sampled_at_different_times_add_up() {
        let end = EndResult {
            samples: vec![
                sample(0, 0, 0),
                sample(1, 0, 0),
                sample(0, 10, 100),
                sample(1, 20, 400),
                sample(0, 20, 200),
            ],
            ..EndResult::default()
        };
        assert_eq!(end.bytes_at(Duration::from_ms(10)), 100 + 200);
        assert_eq!(end.bytes_at(Duration::from_ms(15)), 150 + 300);
        assert_eq!(end.bytes_at(Duration::from_s(1)), 600);
        assert_eq!(EndResult::default().bytes_at(Duration::from_s(1)), 0);
    }
}
