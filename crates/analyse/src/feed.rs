//! Packets of one capture to its analysis, and what that hands over to the ranking.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::mem;

use capture::decoder::Decoder;
use explain::trace::{Captured, Limits};
use report::model::{Trace, TraceOther};
use units::Instant;
use wire::segment::{Decoded, Segment};

use crate::clock::{Clock, Faults};
use crate::ranking::Ranking;
use crate::threads::{self, Analysis};
use fault::Failure;

/// Where packets go.
pub(crate) struct Feed {
    analysis: Analysis,
    clock: Clock<(u64, u32, Option<Segment>)>,
    begins: Option<u64>,
    last: u64,
    frames: u64,
    packets: u64,
}

/// What was fed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fed {
    /// Packets of all kinds.
    pub(crate) frames: u64,
    /// Time of the first that has one.
    pub(crate) begins: Option<u64>,
    /// The latest time.
    pub(crate) last: u64,
    /// What was wrong with the times.
    pub(crate) faults: Faults,
}

impl fmt::Debug for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed")
            .field("frames", &self.frames)
            .finish_non_exhaustive()
    }
}

impl Feed {
    /// A packet, whatever it is.
    #[inline]
    pub(crate) fn take(
        &mut self,
        time_ns: u64,
        frame: u64,
        interface: u32,
        decoded: Decoded,
        segment: &Segment,
    ) {
        self.frames += 1;
        let segment = (decoded == Decoded::Tcp).then_some(*segment);
        self.packets += u64::from(segment.is_some());
        let Self {
            clock,
            analysis,
            begins,
            last,
            ..
        } = self;
        clock.push(time_ns, (frame, interface, segment), |time_ns, packet| {
            if begins.is_none() && time_ns > 0 {
                *begins = Some(time_ns);
            }
            *last = (*last).max(time_ns);
            hand_over(analysis, time_ns, packet);
        });
    }

    /// All that was held back is handed over.
    fn end(&mut self) {
        let Self {
            clock,
            analysis,
            last,
            ..
        } = self;
        clock.finish(|time_ns, packet| {
            *last = (*last).max(time_ns);
            hand_over(analysis, time_ns, packet);
        });
    }

    /// Nothing waits any longer to be given to the analysis.
    pub(crate) fn flush(&mut self) {
        self.analysis.flush();
    }

    /// Connections until now, those that have ended and those that go on.
    pub(crate) fn connections(&self) -> u64 {
        self.analysis.connections()
    }
}

#[inline]
fn hand_over(
    analysis: &mut Analysis,
    time_ns: u64,
    (frame, interface, segment): (u64, u32, Option<Segment>),
) {
    if let Some(segment) = segment {
        analysis.take(&Captured {
            time: Instant::from_ns(time_ns),
            frame,
            interface,
            segment,
        });
    }
}

/// Lets `source` feed the packets of capture `number` to an analysis on so many threads, or as many as there are
/// CPUs, and adds what they were to `trace` and `best`.
pub(crate) fn analyse(
    number: u32,
    threads: Option<usize>,
    trace: &mut Trace,
    best: &mut Ranking,
    source: impl FnOnce(&mut Feed),
) -> Result<Fed, Failure> {
    let limits = Limits {
        seed: RandomState::new().hash_one(number),
        ..Limits::default()
    };
    let mut feed = Feed {
        analysis: Analysis::new(threads::count(threads), limits, number, mem::take(best))?,
        clock: Clock::default(),
        begins: None,
        last: 0,
        frames: 0,
        packets: 0,
    };
    source(&mut feed);
    feed.end();
    let found = feed.analysis.finish();
    *best = found.best;
    best.set_begins(number, Instant::from_ns(feed.begins.unwrap_or(0)));
    trace.packets += feed.frames;
    trace.tcp_packets += feed.packets;
    trace.connections_seen += found.seen;
    trace.connections_with_data += found.with_data;
    trace.connections_evicted += found.counts.evicted;
    trace.half_open_dropped += found.counts.half_open_evicted;
    trace.connections_incomplete += found.counts.incomplete;
    trace.payload_bytes += found.payload_bytes;
    trace.lost_bytes += found.lost_bytes;
    Ok(Fed {
        frames: feed.frames,
        begins: feed.begins,
        last: feed.last,
        faults: feed.clock.faults(),
    })
}

/// Adds what the packets of a capture were to `trace`.
pub(crate) fn count(trace: &mut Trace, decoder: &Decoder) {
    let kinds = decoder.kinds();
    trace.unreadable_packets += kinds.cut + kinds.malformed + kinds.unknown_link + kinds.encrypted;
    let fragments = decoder.fragments();
    trace.fragments += fragments.fragments;
    trace.reassembled_packets += fragments.whole;
    trace.incomplete_packets += fragments.incomplete;
    let named = [
        ("UDP", kinds.udp),
        ("cut below the headers", kinds.cut),
        ("headers that contradict themselves", kinds.malformed),
        ("encrypted", kinds.encrypted),
    ];
    let named = named
        .into_iter()
        .map(|(what, packets)| (what.to_owned(), packets));
    let others = decoder
        .others()
        .into_iter()
        .map(|(what, packets)| (what.to_string(), packets));
    for (what, packets) in named.chain(others).filter(|(_, packets)| *packets > 0) {
        match trace.others.iter_mut().find(|other| other.what == what) {
            Some(other) => other.packets += packets,
            None => trace.others.push(TraceOther { what, packets }),
        }
    }
    trace
        .others
        .sort_by(|a, b| b.packets.cmp(&a.packets).then_with(|| a.what.cmp(&b.what)));
}
