//! Dynamic gap control of a copy's streams: all of them together are held just under what the path takes.
//!
//! A congestion control that knows no rate (CUBIC, Reno) finds it by filling a queue until something is lost. The streams of
//! one sender have one control instead ([`tcp::gap_control`]), which is given the sums of what they deliver; what it finds is
//! shared out as ceilings (`SO_MAX_PACING_RATE`, socket(7)). A stream that carries less than its part for a while, since it lost
//! something, leaves the rest to the others.
//!
//! BBR needs none of this where losses have nothing to do with the rate, and takes its part from whoever fills the queue. But
//! many streams of it fill the queue themselves, and each loses something when it runs over: so it is what is gone over to
//! where the ceilings do not do.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ::tcp::gap_control::{GapControl, Phase, Reading, Ride};
use units::{Instant, Rate};
use wire::tcp_info::TcpInfo;

use crate::link::Which;
use crate::meeting::{LONG, Meeting, tcp_info};

use super::send::SendOptions;
use super::tune::{FILLS, LONG_STREAMS, Loaded, Streams};
use super::{Note, Watch};

/// Whether streams are held just under what the path takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// Where the path is long, the streams' congestion control knows no rate, and neither it nor their number was asked for, or
    /// their number below what a long path is given. Where it was, many find the rate among themselves (16 of CUBIC carried no
    /// more over 100 ms when they were paced, 4 carried a tenth more).
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

/// How much more is asked of the kernel than is meant: its timers are late, and streams that had 463.5 Mb/s together carried
/// 459. It is less than the controller leaves free.
const LATE: f64 = 1.008;
/// Less than this of what was found, for so many rounds, in spite of losses without a queue: these hold the streams.
const SHORT: f64 = 0.9;
const SHORT_ROUNDS: u32 = 4;
/// How long a host's default may stand until a stream has what it is to have.
const BEGIN: Duration = Duration::from_secs(5);
/// Of the most that was found: where no more than this is left for as long as `LEFT_SPAN` and as many round trips, others fill the queue, to
/// whom the ceilings would yield ever more.
const LEFT: f64 = 0.75;
const LEFT_SPAN: units::Duration = units::Duration::from_s(2);
const LEFT_ROUND_TRIPS: u64 = 10;

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
    rounds: u64,
    looked: Instant,
    held_up_us: u64,
}

/// Keeps the streams under what the path takes, until the session is over.
pub(super) fn control(
    meeting: &Meeting,
    watch: &Watch,
    load: &dyn Loaded,
    options: &SendOptions,
    is_free: &AtomicBool,
) {
    let Some(name) = fitting(meeting, options) else {
        return;
    };
    let may_free = is_first(options, meeting.ways());
    let mut left = Left::default();
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
                for (stream, rate) in sums.shared_out(asked(rate)) {
                    set(meeting, stream, rate);
                }
            }
            if may_free && let Some(why) = left.why_not(now, &control, &sums, reading.round_trip) {
                is_free.store(true, Ordering::Relaxed);
                for (stream, _) in &infos {
                    set(meeting, *stream, NO_CEILING);
                    meeting.of_socket(Which::Blocks(*stream), |socket| {
                        let _ = sys::tcp::set_congestion(socket.as_fd(), FILLS);
                    });
                }
                let first = Which::Blocks(infos[0].0);
                let has = meeting.of_socket(first, |socket| sys::tcp::congestion(socket.as_fd()));
                let has = has.and_then(Result::ok).unwrap_or(name);
                watch.note(Note::Chosen(format!(
                    "streams of {has}, and not paced: {why}"
                )));
                return;
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

/// What the kernel is asked for, to come to `rate`.
fn asked(rate: Rate) -> Rate {
    Rate::from_bits_per_second(bits(rate.as_bits_per_second() as f64 * LATE))
}

/// As a socket has it that nobody paces.
const NO_CEILING: Rate = Rate::from_bits_per_second(u64::MAX);

fn set(meeting: &Meeting, stream: u16, rate: Rate) {
    meeting.of_socket(Which::Blocks(stream), |socket| {
        let _ = sys::tcp::set_max_pacing(socket.as_fd(), rate);
    });
}

/// Whether ceilings are tried before BBR: nothing was asked for that says otherwise.
pub(super) fn is_first(options: &SendOptions, ways: usize) -> bool {
    // Several ways have several bottlenecks.
    ways == 1
        && options.pacing == Pacing::Chosen
        && options.congestion.is_none()
        && options.limit.is_none()
        && matches!(options.streams, Streams::Chosen { .. })
}

/// What speaks against ceilings.
#[derive(Debug, Default)]
struct Left {
    best: u64,
    little_since: Option<Instant>,
    /// Rounds that were looked at, and those of late in which little was carried.
    rounds: u64,
    short: u32,
}

impl Left {
    fn why_not(
        &mut self,
        now: Instant,
        control: &GapControl,
        sums: &Sums,
        round_trip: units::Duration,
    ) -> Option<&'static str> {
        let is_lossy = control.ride() == Ride::LossTolerant;
        match (control.phase(), control.found()) {
            (Phase::Startup, _) if is_lossy => {
                return Some("something was lost before there was a queue");
            }
            (Phase::Hold, Some(found)) => {
                if sums.rounds != self.rounds {
                    self.rounds = sums.rounds;
                    let is_short = sums.carried() < found.as_bits_per_second() as f64 * SHORT;
                    self.short = if is_short { self.short + 1 } else { 0 };
                }
                if is_lossy && self.short >= SHORT_ROUNDS {
                    return Some("losses hold them, and not a queue");
                }
                self.is_little(now, found, round_trip)
                    .then_some("others fill the queue, and would have what ceilings leave as well")
            }
            _ => None,
        }
    }

    /// Whether `found` is little, and was for long.
    fn is_little(&mut self, now: Instant, found: Rate, round_trip: units::Duration) -> bool {
        let found = found.as_bits_per_second();
        self.best = self.best.max(found);
        if found as f64 > self.best as f64 * LEFT {
            self.little_since = None;
            return false;
        }
        let since = *self.little_since.get_or_insert(now);
        let least = LEFT_SPAN.as_ns().max(round_trip.as_ns() * LEFT_ROUND_TRIPS);
        now.saturating_since(since).as_ns() >= least
    }
}

/// Waits for the first stream; its congestion control, if it is to be paced.
fn fitting(meeting: &Meeting, options: &SendOptions) -> Option<String> {
    let first = Which::Blocks(0);
    let is_first = is_first(options, meeting.ways());
    let begun = std::time::Instant::now();
    while !meeting.is_over() {
        let found = meeting.of_socket(first, |socket| {
            tcp_info(socket).and_then(|_| sys::tcp::congestion(socket.as_fd()).ok())
        });
        match found {
            None => thread::sleep(Duration::from_millis(10)),
            // Pipes are nobody's to pace.
            Some(None) => return None,
            // A host's default, which the stream is about to change.
            Some(Some(name)) if name == FILLS && is_first && begun.elapsed() < BEGIN => {
                thread::sleep(Duration::from_millis(10));
            }
            Some(Some(name)) => {
                let is_long = meeting.round_trip()? >= LONG;
                let is_few = matches!(options.streams, Streams::Fixed(n) if n < LONG_STREAMS);
                let is_fitting = match options.pacing {
                    Pacing::Chosen => is_long && name != FILLS && (is_few || is_first),
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
            self.rounds += 1;
        }
        Reading {
            delivered: self.delivered,
            retransmitted: self.retransmitted,
            round_trip,
            held_up: is_held_up,
        }
    }

    /// Bits a second in the last whole round, all together.
    fn carried(&self) -> f64 {
        self.all.values().filter_map(|stream| stream.carries).sum()
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
    fn little_that_is_left_for_long_is_told_from_a_dip() {
        let mut left = Left::default();
        let rate = |n: u64| Rate::from_bits_per_second(n * 1_000_000);
        let mut at = |ms: u64, found: u64| {
            let round_trip = units::Duration::from_ms(100);
            left.is_little(Instant::from_ns(ms * 1_000_000), rate(found), round_trip)
        };
        assert!(!at(0, 400) && !at(100, 100) && !at(1_000, 290));
        // Above three quarters of the most: it counts anew.
        assert!(!at(1_500, 310) && !at(2_000, 290) && !at(3_900, 290));
        assert!(at(4_000, 290));
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
