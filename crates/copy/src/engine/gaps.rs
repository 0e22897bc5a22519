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

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ::tcp::gap_control::{GapControl, Phase, Ride};
use ::tcp::gap_sums::Sums;
use units::{Instant, Rate};
use wire::tcp_info::TcpInfo;

use crate::link::Which;
use crate::meeting::{LONG, Meeting, tcp_info};

use super::growth::LONG_STREAMS;
use super::options::{SendOptions, Streams};
use super::seen::{FILLS, Loaded};
use super::{Note, Watch};

pub use super::options::Pacing;

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
    let mut sums = Sums::new(now);
    let mut is_told = false;
    while !meeting.is_over() {
        let infos: Vec<(u16, TcpInfo)> = infos(meeting);
        if may_free && is_free.load(Ordering::Relaxed) {
            // Files are small: word of it came after the first stream.
            infos.iter().for_each(|(n, _)| set(meeting, *n, NO_CEILING));
            return;
        }
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

/// More than any connection sends.
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
        sums: &Sums<u16>,
        round_trip: units::Duration,
    ) -> Option<&'static str> {
        let is_lossy = control.ride() == Ride::LossTolerant;
        match (control.phase(), control.found()) {
            (Phase::Startup, _) if is_lossy => Some("something was lost before there was a queue"),
            (Phase::Hold, Some(found)) => {
                if sums.rounds() != self.rounds {
                    self.rounds = sums.rounds();
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
        let found = meeting.of_socket(first, |socket| match socket.is_quic() {
            true => None,
            false => Some(tcp_info(socket).and_then(|_| sys::tcp::congestion(socket.as_fd()).ok())),
        });
        match found.flatten() {
            // None yet, or over QUIC, which may come back to TCP.
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

/// A rate in whole bits a second, one at least.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates, and no rate is negative"
)]
fn bits(rate: f64) -> u64 {
    (rate as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
