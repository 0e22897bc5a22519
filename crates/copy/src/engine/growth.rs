//! How many streams there are: chosen from how far the far side is, and raised while more help. A
//! pure machine: it is told what was seen in a span of time ([`Span`]), and says how many streams
//! there are to be.
//!
//! One TCP connection fills a path only where its buffers hold a product of rate and round trip, and where its congestion
//! control forgives losses that have nothing to do with its rate. More connections are asked for
//! where buffers, losses or threads hold those there are; not where a queue has grown, nor where
//! the last that came brought nothing.

use std::time::Duration;

use crate::link::STREAMS_MOST;

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
pub(super) const USUAL_BUFFER: u64 = 4 << 20;
/// Up to so long a round trip that number does. Over a longer one a stream's buffers carry less, and its first packets too.
const USUAL_ROUND_TRIP: Duration = Duration::from_millis(100);
/// How often in a row threads may fall behind before there are more.
const BEHIND: u32 = 2;
/// Bytes of a segment at an MTU of 1500, with time stamps.
pub(super) const USUAL_SEGMENT: u64 = 1_448;
/// What more streams must bring to be followed by more still.
const GAIN: f64 = 1.10;
/// How often more streams may bring nothing before they are enough.
const VAIN_MOST: u32 = 2;
/// What streams did in a span of time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    /// They had more to send than was in hand.
    pub(super) is_loaded: bool,
    /// Delivered bits a second, all together.
    pub(super) rate: f64,
    /// Threads fell behind in more than half of the looks.
    pub(super) is_behind: bool,
    /// A queue has grown.
    pub(super) has_queue: bool,
    /// A queue was seen meanwhile.
    pub(super) had_queue: bool,
    /// Segments that were sent again.
    pub(super) again: u64,
    /// How long the span was.
    pub(super) time: Duration,
    /// Streams, and segments that each may have under way, on average.
    pub(super) streams: usize,
    pub(super) window: f64,
    /// Buffers held them back.
    pub(super) is_held_by_windows: bool,
    /// Losses did.
    pub(super) is_held_by_losses: bool,
}

/// How many streams are best, as far as known.
#[derive(Clone, Debug)]
pub(super) struct Growth {
    ways: u16,
    cores: u16,
    most: u16,
    /// What a long path with buffers as distributions ship them has at first.
    usual: u16,
    wanted: u16,
    /// The rate of the span before.
    before: f64,
    /// How often in a row more streams brought nothing, and threads fell behind.
    in_vain: u32,
    behind: u32,
    is_new: bool,
}

impl Growth {
    /// As many streams over each of `ways`; never more than `most` where that are enough for one
    /// over each.
    pub(super) fn new(ways: usize, cores: usize, most: u16) -> Self {
        let ways = u16::try_from(ways).unwrap_or(u16::MAX);
        let mut growth = Self {
            ways,
            cores: u16::try_from(cores).unwrap_or(u16::MAX),
            most: STREAMS_MOST,
            usual: 0,
            wanted: 0,
            before: 0.0,
            in_vain: 0,
            behind: 0,
            is_new: false,
        };
        growth.most = growth.even(most.max(ways));
        growth.wanted = growth.even(1);
        growth
    }

    /// As many over each way.
    fn even(&self, streams: u16) -> u16 {
        streams
            .next_multiple_of(self.ways.min(STREAMS_MOST))
            .min(STREAMS_MOST)
    }

    /// So many, if there may be, and as many over each way.
    pub(super) fn at_most(&self, streams: u16) -> u16 {
        self.even(streams).min(self.most)
    }

    /// How many there are to be.
    pub(super) fn wanted(&self) -> u16 {
        self.wanted
    }

    /// There may be no more.
    pub(super) fn is_full(&self) -> bool {
        self.wanted >= self.most
    }

    /// The last that came need as long as a span to find their rate.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    /// There are so few that threads could be what holds them.
    pub(super) fn may_be_behind(&self) -> bool {
        self.wanted < self.cores.min(self.usual)
    }

    /// The path is short: how many streams it has.
    pub(super) fn on_short(&mut self) -> u16 {
        self.wanted = self.at_most(self.cores.min(SHORT_STREAMS));
        self.wanted
    }

    /// The path is long: how many streams it has to begin with, and whether that are fewer than
    /// usual for what buffers hold.
    pub(super) fn on_long(
        &mut self,
        segment: u64,
        round_trip: Duration,
        buffer: Option<u64>,
    ) -> (u16, bool) {
        self.usual = self.at_most(begin_with(segment, round_trip, USUAL_BUFFER));
        let begin = begin_with(segment, round_trip, buffer.unwrap_or(USUAL_BUFFER));
        self.wanted = self.at_most(begin);
        (self.wanted, self.wanted < self.usual)
    }

    /// Takes what was seen; why there are to be more, if there are.
    pub(super) fn on_span(&mut self, span: &Span) -> Option<Why> {
        if !span.is_loaded {
            self.before = 0.0;
            return None;
        }
        // The first look is still in the ramp, and faster than nothing.
        let is_faster = span.rate > self.before * GAIN;
        self.before = span.rate;
        self.in_vain = match (self.is_new, is_faster) {
            (_, true) => 0,
            (true, false) => self.in_vain + 1,
            (false, false) => self.in_vain,
        };
        self.is_new = false;
        self.behind = match span.is_behind {
            true => self.behind + 1,
            false => 0,
        };
        // Where a queue has grown, more under way is no more at the other end. While it grows by
        // itself, more connections would only be in each other's way.
        if self.in_vain >= VAIN_MOST || span.has_queue || is_faster {
            return None;
        }
        // What a queue that ran over took is sent again while it empties, and says nothing of the path.
        let tells = !span.had_queue
            && span.again > 0
            && comes_too_often(span.again, span.time, span.streams, span.window);
        let why = match (span.is_held_by_windows, tells) {
            (true, _) => Why::Buffers,
            (false, true) if span.is_held_by_losses => Why::Losses,
            _ if self.behind >= BEHIND => Why::Threads,
            _ => return None,
        };
        let wanted = self.wanted;
        let more = match why {
            Why::Buffers => self
                .even((wanted + wanted / 2).max(wanted + 2))
                .max(self.usual),
            // They are seen at once, and what each stream finds goes down with their root only.
            Why::Losses => self.even(wanted * 2).max(self.usual),
            Why::Threads => self.even(self.cores),
        };
        self.wanted = more.min(self.most);
        self.is_new = true;
        Some(why)
    }
}

/// Why more streams help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Buffers,
    Losses,
    Threads,
}

impl Why {
    pub(super) const fn text(self) -> &'static str {
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

/// How many streams a long path has at first, by its segments' bytes, its round trip and what each stream's buffers grow to.
pub(super) fn begin_with(segment: u64, round_trip: Duration, buffer: u64) -> u16 {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meeting::LONG;

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

    /// A span in which nothing holds streams that are loaded.
    fn span(rate: f64) -> Span {
        Span {
            is_loaded: true,
            rate,
            time: Duration::from_millis(400),
            streams: 16,
            window: 540.0,
            ..Span::default()
        }
    }

    fn long(most: u16) -> Growth {
        let mut growth = Growth::new(1, 2, most);
        let begin = growth.on_long(USUAL_SEGMENT, USUAL_ROUND_TRIP, None);
        assert_eq!(begin, (16.min(most), false));
        growth
    }

    #[test]
    fn a_short_path_has_a_stream_for_each_core_and_as_many_over_each_way() {
        for (ways, cores, most, streams) in [
            (1, 2, 32, 2),
            (1, 64, 32, 4),
            (3, 4, 32, 6),
            (1, 8, 1, 1),
            (8, 2, 4, 8),
        ] {
            let mut growth = Growth::new(ways, cores, most);
            assert_eq!(growth.on_short(), streams, "{ways} {cores} {most}");
        }
    }

    #[test]
    fn streams_that_buffers_hold_become_half_as_many_more_until_there_may_be_no_more() {
        let mut growth = long(32);
        let held = Span {
            is_held_by_windows: true,
            ..span(1e9)
        };
        // Still in the ramp.
        assert_eq!(growth.on_span(&held), None);
        assert_eq!(growth.on_span(&held), Some(Why::Buffers));
        assert_eq!((growth.wanted(), growth.is_new()), (24, true));
        let held = |rate| Span { rate, ..held };
        assert_eq!(growth.on_span(&held(1.5e9)), None);
        assert_eq!(growth.on_span(&held(1.5e9)), Some(Why::Buffers));
        assert_eq!((growth.wanted(), growth.is_full()), (32, true));
    }

    #[test]
    fn losses_double_streams_and_a_queue_leaves_them_as_they_are() {
        let lossy = Span {
            again: 34,
            is_held_by_losses: true,
            ..span(1e8)
        };
        let mut growth = long(64);
        assert_eq!(growth.on_span(&lossy), None);
        for queue in [
            Span {
                has_queue: true,
                ..lossy
            },
            Span {
                had_queue: true,
                ..lossy
            },
            Span { again: 1, ..lossy },
            Span {
                is_held_by_losses: false,
                ..lossy
            },
        ] {
            assert_eq!(growth.on_span(&queue), None, "{queue:?}");
        }
        assert_eq!(growth.on_span(&lossy), Some(Why::Losses));
        assert_eq!(growth.wanted(), 32);
        // Twice in a row they brought nothing.
        assert_eq!(growth.on_span(&lossy), Some(Why::Losses));
        assert_eq!(growth.wanted(), 64);
        assert_eq!(growth.on_span(&lossy), None);
        assert_eq!((growth.on_span(&lossy), growth.wanted()), (None, 64));
    }

    #[test]
    fn threads_that_fall_behind_twice_in_a_row_get_company() {
        let mut growth = Growth::new(1, 8, 32);
        let (begin, is_fewer) = growth.on_long(USUAL_SEGMENT, USUAL_ROUND_TRIP, Some(64 << 20));
        assert!(begin == 1 && is_fewer && growth.may_be_behind());
        let behind = Span {
            is_behind: true,
            ..span(1e9)
        };
        assert_eq!(growth.on_span(&behind), None);
        let idle = Span {
            is_loaded: false,
            ..behind
        };
        // What is not loaded says nothing, and the next is as after the ramp.
        assert_eq!(growth.on_span(&idle), None);
        assert_eq!(growth.on_span(&behind), None);
        assert_eq!(growth.on_span(&behind), Some(Why::Threads));
        assert_eq!((growth.wanted(), growth.may_be_behind()), (8, false));
    }
}
