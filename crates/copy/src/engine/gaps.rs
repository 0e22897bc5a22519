//! Dynamic gap control of a copy's streams: all of them together are held just under what the path takes.
//!
//! A congestion control that knows no rate (CUBIC, Reno) finds it by filling a queue until something is lost. The streams of
//! one sender have one control instead ([`tcp::gap_control`]), which is given the sums of what they deliver; what it finds is
//! shared out as ceilings (`SO_MAX_PACING_RATE`, socket(7)). A stream that carries less than its part for a while, since it lost
//! something, leaves the rest to the others.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::thread;
use std::time::Duration;

use ::tcp::gap_control::{GapControl, Phase, Reading};
use units::{Instant, Rate};
use wire::tcp_info::TcpInfo;

use crate::link::Which;
use crate::meeting::{LONG, Meeting, tcp_info};

use super::tune::{FILLS, LONG_STREAMS, Loaded, Streams};
use super::{Note, Watch};

/// Whether streams are held just under what the path takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// Where the path is long, the streams' congestion control knows no rate, and their number was set below what a long path
    /// is given: many find the rate among themselves (16 of CUBIC carried no more when they were paced, 4 carried a tenth more).
    #[default]
    Chosen,
    /// Whatever the path and the congestion control.
    Even,
    /// Never.
    Off,
}

/// What is held up for less than this at a time is not seen: the kernel counts it in jiffies.
const HELD_UP_SPAN: units::Duration = units::Duration::from_ms(20);
/// Ceilings that change by less than a two-hundredth are not worth a system call.
const CHANGE_LEAST: u64 = 200;
/// How much more than what a stream carries of late it may come to carry, before what is left of its part is there again.
const GROWTH: f64 = 1.5;
/// What a stream carries is counted over so much at least.
const ROUND_LEAST: units::Duration = units::Duration::from_ms(20);

/// One stream.
#[derive(Debug, Default)]
struct Stream {
    info: TcpInfo,
    /// Bytes since the round began, and in the last whole one a second.
    bytes: u64,
    carries: Option<f64>,
    ceiling: u64,
}

/// All of them.
#[derive(Debug, Default)]
struct Sums {
    all: BTreeMap<u16, Stream>,
    delivered: u64,
    retransmitted: u64,
    round_began: Instant,
    looked: Instant,
    held_up_us: u64,
}

/// Keeps the streams under what the path takes, until the session is over.
pub(super) fn control(
    meeting: &Meeting,
    watch: &Watch,
    load: &dyn Loaded,
    pacing: Pacing,
    streams: Streams,
) {
    let is_few = matches!(streams, Streams::Fixed(n) if n < LONG_STREAMS);
    let Some(name) = fitting(meeting, pacing, is_few) else {
        return;
    };
    let now = sys::clock::monotonic();
    let mut control = GapControl::new(now.as_ns());
    let mut sums = Sums {
        round_began: now,
        looked: now,
        ..Sums::default()
    };
    let mut is_told = false;
    while !meeting.is_over() {
        let infos: Vec<(u16, TcpInfo)> = infos(meeting);
        let now = sys::clock::monotonic();
        if !infos.is_empty() {
            let mut reading = sums.reading(now, &infos);
            reading.held_up |= !load.is_loaded();
            let ceiling = control.on_reading(now, &reading);
            if !is_told && control.phase() == Phase::Hold {
                is_told = true;
                watch.note(Note::Chosen(format!(
                    "streams are paced just under what the path is found to carry: {name} knows no rate, and fills a queue \
                     until something is lost"
                )));
            }
            if let Some(rate) = ceiling {
                for (stream, rate) in sums.shared_out(rate) {
                    meeting.of_socket(Which::Blocks(stream), |socket| {
                        let _ = sys::tcp::set_max_pacing(socket.as_fd(), rate);
                    });
                }
            }
        }
        thread::sleep(Duration::from_nanos(control.interval().as_ns()));
    }
    if let (true, Some(found)) = (is_told, control.found()) {
        watch.note(Note::Chosen(format!(
            "the pace at the end: just under {found}, all streams together"
        )));
    }
}

/// Waits for the first stream; its congestion control, if it is to be paced.
fn fitting(meeting: &Meeting, pacing: Pacing, is_few: bool) -> Option<String> {
    let first = Which::Blocks(0);
    while !meeting.is_over() {
        let found = meeting.of_socket(first, |socket| {
            tcp_info(socket).and_then(|_| sys::tcp::congestion(socket.as_fd()).ok())
        });
        match found {
            None => thread::sleep(Duration::from_millis(10)),
            // Pipes are nobody's to pace.
            Some(None) => return None,
            Some(Some(name)) => {
                let is_long = meeting.round_trip()? >= LONG;
                let is_fitting = match pacing {
                    Pacing::Chosen => is_long && is_few && name != FILLS,
                    Pacing::Even => true,
                    Pacing::Off => false,
                };
                return is_fitting.then_some(name);
            }
        }
    }
    None
}

fn infos(meeting: &Meeting) -> Vec<(u16, TcpInfo)> {
    let links = meeting.open_links().into_iter();
    links
        .filter_map(|which| match which {
            Which::Blocks(n) => Some((n, meeting.of_socket(which, tcp_info)??)),
            Which::FromSource | Which::FromDestination => None,
        })
        .collect()
}

impl Sums {
    /// All as one. The round trip is that of the stream that waits least: what waits in its own host for its part says nothing
    /// of the path.
    fn reading(&mut self, now: Instant, infos: &[(u16, TcpInfo)]) -> Reading {
        self.all
            .retain(|n, _| infos.iter().any(|(there, _)| there == n));
        let round_trip = infos.iter().map(|(_, info)| info.rtt_us).min().unwrap_or(0);
        let round_trip = units::Duration::from_us(round_trip);
        let mut held_up_us = 0;
        for (n, info) in infos {
            let is_new = !self.all.contains_key(n);
            let stream = self.all.entry(*n).or_default();
            let before = std::mem::replace(&mut stream.info, *info);
            // A connection that was made again counts from the beginning.
            if !is_new && info.bytes_acked >= before.bytes_acked {
                // The kernel's counter has 32 bits.
                let new = info
                    .delivered_segments
                    .wrapping_sub(before.delivered_segments);
                let new = (new & u64::from(u32::MAX)) * info.snd_mss_bytes;
                stream.bytes += new;
                self.delivered += new;
                self.retransmitted += info.bytes_retrans.saturating_sub(before.bytes_retrans);
                held_up_us += held_up(info).saturating_sub(held_up(&before));
            } else {
                (stream.bytes, stream.carries, stream.ceiling) = (0, None, 0);
            }
        }
        self.held_up_us += held_up_us;
        let span = now.saturating_since(self.looked);
        let mut is_held_up = false;
        if span >= HELD_UP_SPAN {
            let least = span.as_ns() / 1_000 * infos.len() as u64;
            is_held_up = self.held_up_us * 2 > least;
            (self.looked, self.held_up_us) = (now, 0);
        }
        let round = now.saturating_since(self.round_began);
        if round >= round_trip.max(ROUND_LEAST) {
            for stream in self.all.values_mut() {
                stream.carries = Some(stream.bytes as f64 * 8.0 / round.as_s_f64());
                stream.bytes = 0;
            }
            self.round_began = now;
        }
        Reading {
            delivered: self.delivered,
            retransmitted: self.retransmitted,
            round_trip,
            held_up: is_held_up,
        }
    }

    /// Ceilings that changed. Whoever carries far less than its part has room to grow, and the rest of it goes to the others.
    fn shared_out(&mut self, rate: Rate) -> Vec<(u16, Rate)> {
        let carries: Vec<Option<f64>> = self.all.values().map(|stream| stream.carries).collect();
        let parts = parts(rate.as_bits_per_second() as f64, &carries);
        let mut changed = Vec::new();
        for ((n, stream), part) in self.all.iter_mut().zip(parts) {
            let ceiling = bits(part);
            if stream.ceiling.abs_diff(ceiling) > stream.ceiling / CHANGE_LEAST {
                stream.ceiling = ceiling;
                changed.push((*n, Rate::from_bits_per_second(ceiling)));
            }
        }
        changed
    }
}

/// Parts of `rate` for streams that carry so much of late: even ones, but for who cannot use its part. Together they are `rate`.
fn parts(rate: f64, carries: &[Option<f64>]) -> Vec<f64> {
    let count = carries.len();
    // One that stands still may begin again at a fair part of the whole.
    let least = rate / count.max(1) as f64 / 4.0;
    let wanted = |carries: &Option<f64>| carries.map_or(rate, |now| (now * GROWTH).max(least));
    let wanted: Vec<f64> = carries.iter().map(wanted).collect();
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let (mut parts, mut left) = (vec![0.0; count], rate);
    for (done, &n) in order.iter().enumerate() {
        parts[n] = wanted[n].min(left / (count - done) as f64);
        left -= parts[n];
    }
    let more = left.max(0.0) / count.max(1) as f64;
    parts.into_iter().map(|part| part + more).collect()
}

/// A rate in whole bits a second, one at least.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates, and no rate is negative"
)]
fn bits(rate: f64) -> u64 {
    (rate as u64).max(1)
}

/// Receiver's window and send buffer, in microseconds.
const fn held_up(info: &TcpInfo) -> u64 {
    info.rwnd_limited_us + info.sndbuf_limited_us
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_use_its_part_leaves_it_to_the_others() {
        let of = |carries: &[Option<f64>]| -> Vec<u64> {
            parts(1_200.0, carries)
                .iter()
                .map(|part| bits(part.round()))
                .collect()
        };
        assert_eq!(of(&[None, None, None, None]), [300, 300, 300, 300]);
        // Two lost something; what they leave is the others'.
        let some = [Some(100.0), Some(20.0), Some(300.0), Some(300.0)];
        assert_eq!(of(&some), [169, 94, 469, 469]);
        // All grow: nothing is kept back.
        assert_eq!(of(&[Some(10.0), Some(10.0)]), [600, 600]);
        assert!(of(&[]).is_empty());
    }

    #[test]
    fn streams_are_read_as_one_and_a_new_connection_counts_from_its_beginning() {
        let info = |delivered: u64, rtt_us| TcpInfo {
            delivered_segments: delivered,
            bytes_acked: delivered * 1_000,
            snd_mss_bytes: 1_000,
            bytes_retrans: delivered,
            rtt_us,
            ..TcpInfo::default()
        };
        let mut streams = Sums::default();
        let at = Instant::from_ns;
        let first = [(0, info(5, 30_000)), (3, info(10, 20_000))];
        assert_eq!(streams.reading(at(1_000_000), &first).delivered, 0);
        let second = [(0, info(15, 30_000)), (3, info(20, 25_000))];
        let reading = streams.reading(at(101_000_000), &second);
        assert_eq!((reading.delivered, reading.retransmitted), (20_000, 20));
        assert_eq!(reading.round_trip, units::Duration::from_us(25_000));
        // 10,000 bytes in 101 ms.
        let carries = streams.all[&3].carries.unwrap();
        assert!((carries - 80_000.0 / 0.101).abs() < 1.0, "{carries}");
        let third = [
            (0, info(15, 30_000)),
            (3, info(2, 25_000)),
            (4, info(9, 20_000)),
        ];
        assert_eq!(streams.reading(at(102_000_000), &third).delivered, 20_000);
        let fourth = [(3, info(3, 25_000))];
        assert_eq!(streams.reading(at(103_000_000), &fourth).delivered, 21_000);
        assert_eq!(streams.all.len(), 1);
    }

    #[test]
    fn a_ceiling_that_hardly_changes_is_left() {
        let mut streams = Sums::default();
        streams.all.insert(1, Stream::default());
        streams.all.insert(2, Stream::default());
        let mbps = |n: u64| Rate::from_bits_per_second(n * 1_000_000);
        assert_eq!(
            streams.shared_out(mbps(100)),
            [(1, mbps(50)), (2, mbps(50))]
        );
        let hardly = Rate::from_bits_per_second(100_200_000);
        assert_eq!(streams.shared_out(hardly), []);
        assert_eq!(streams.shared_out(mbps(102)).len(), 2);
    }
}
