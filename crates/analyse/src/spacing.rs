//! Packets at fine time: one more look at the files for the gaps, bursts, sections and round trips of the
//! connections that lost most, and for the order of those that run side by side.
//!
//! Only packets with payload have gaps and bursts, and of the other side only those without are ACKs. What
//! the stamps do not tell apart is not shown as if they did: bins are no finer than `finest`, and an order
//! is told only where a sixteenth of a round trip is more than that.
//!
//! Left out: standard input (which can be read once only), super-packets cut into what
//! the wire carried (TSO and GRO: capture with them off, or at a switch).

mod streams;

use std::collections::HashMap;
use std::ops::{ControlFlow, RangeInclusive};
use std::path::Path;

use explain::spacing::{Acks, Bins, Bursts, Gaps, Sections, Stamps, half_within};
use explain::trace::Spread;
use report::model::{
    TraceAcks, TraceBursts, TraceMode, TracePhase, TraceSections, TraceSpacing, TraceStreams,
};
use units::{Bytes, Duration, FineHistogram, Instant, Rate};
use wire::segment::{Decoded, FlowKey, Segment};

use crate::input::Input;
use crate::ranking::Judged;
use fault::Failure;

/// What is asked of the packets' spacing.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Lengths of sections.
    pub(crate) sections: Vec<Duration>,
    /// Width of the gaps' bins.
    pub(crate) bin: Option<Duration>,
    /// The line's rate, if known.
    pub(crate) line: Option<Rate>,
}

/// What was counted of one connection.
#[derive(Debug)]
pub(crate) struct Counted {
    /// Place among the connections that are kept.
    pub(crate) of: usize,
    pub(crate) file: u32,
    pub(crate) key: (u32, FlowKey),
    pub(crate) sender: u8,
    /// Its frames: another connection may have the same ports.
    pub(crate) frames: RangeInclusive<u64>,
    pub(crate) begun: Instant,
    span: Duration,
    gaps: Gaps,
    acks: Acks,
    pub(crate) bursts: Bursts,
    pub(crate) sections: Vec<Result<Sections, String>>,
    phase: Option<(Duration, Sections)>,
    /// By the first look: from data to its ACK.
    pub(crate) round_trips: Spread,
}

impl Question {
    /// Lengths in their order, each once.
    ///
    /// # Errors
    /// A sentence where one is outside 100 ns to 4.2 s, or where there are too many.
    pub fn new(
        mut sections: Vec<Duration>,
        bin: Option<Duration>,
        line: Option<Rate>,
    ) -> Result<Self, String> {
        if sections.is_empty() {
            sections = SECTIONS_DEFAULT.to_vec();
        }
        sections.sort_unstable();
        sections.dedup();
        if let Some(length) = sections
            .iter()
            .find(|l| !(SECTION_MIN..=SECTION_MAX).contains(*l))
        {
            return Err(format!("--section {length}: expected 100ns to 4.2s"));
        }
        if sections.len() > SECTIONS_MAX {
            return Err(format!("--section: at most {SECTIONS_MAX} lengths at once"));
        }
        if bin == Some(Duration::ZERO) {
            return Err("--bin 0ns: expected at least 1ns".to_owned());
        }
        if line == Some(Rate::default()) {
            return Err("--line-rate: expected more than 0b/s".to_owned());
        }
        Ok(Self {
            sections,
            bin,
            line,
        })
    }

    /// The line's rate from elsewhere, where it was not said.
    pub(crate) fn with_line(self, line: Option<Rate>) -> Self {
        Self {
            line: self.line.or(line),
            ..self
        }
    }
}

/// Reads the files once more and counts; those of `kept` that are looked at come in their order.
pub(crate) fn count(
    files: &[Input],
    kept: &[Judged],
    question: &Question,
    is_stopped: &dyn Fn() -> bool,
) -> Result<(Vec<Counted>, Vec<TraceStreams>), Failure> {
    let looked_at = kept.len().min(SPACED_MAX);
    let mut counted: Vec<Counted> = kept
        .iter()
        .enumerate()
        .take(SPACED_MAX)
        .map(|(of, judged)| Counted::new(of, judged, question, looked_at))
        .collect();
    let mut groups = streams::groups(kept);
    for (n, input) in files.iter().enumerate() {
        let in_file = |file: u32| usize::try_from(file) == Ok(n);
        let mut places: HashMap<(u32, FlowKey), Places> = HashMap::new();
        for (place, one) in counted.iter().enumerate().filter(|(_, c)| in_file(c.file)) {
            places.entry(one.key).or_default().counted.push(place);
        }
        for (place, group) in groups.iter().enumerate().filter(|(_, g)| in_file(g.file)) {
            for key in group.keys() {
                places.entry(key).or_default().groups.push(place);
            }
        }
        if places.is_empty() || input.path() == Path::new("-") {
            continue;
        }
        input.open()?.for_each_segment(|packet, decoded, segment| {
            if decoded == Decoded::Tcp
                && let Some(places) = places.get(&(packet.interface, segment.flow))
            {
                let at = Instant::from_ns(packet.time_ns);
                for &place in &places.counted {
                    if let Some(one) = counted.get_mut(place) {
                        one.take(at, packet.frame, packet.original_bytes, segment);
                    }
                }
                for &place in &places.groups {
                    if let Some(group) = groups.get_mut(place) {
                        let key = (packet.interface, segment.flow);
                        group.take(at, packet.frame, &key, segment);
                    }
                }
            }
            match is_stopped() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
    }
    let finest = |of: usize| {
        let one = counted.iter().find(|c| c.of == of);
        one.map(|c| c.gaps.stamps(question.line).finest())
    };
    let streams = groups.iter().map(|g| g.found(&finest)).collect();
    Ok((counted, streams))
}

/// Who is to be told of a flow's packets.
#[derive(Debug, Default)]
struct Places {
    counted: Vec<usize>,
    groups: Vec<usize>,
}

impl Counted {
    fn new(of: usize, judged: &Judged, question: &Question, looked_at: usize) -> Self {
        let c = &judged.connection;
        let side = &c.sides[usize::from(judged.passive.sender)];
        let span = c.last.time.saturating_since(c.first.time);
        let rtt = side.rtt_ahead.unwrap_or_default() + side.rtt_behind.unwrap_or_default();
        let cells = (CELLS_ALL / looked_at.max(1) / (question.sections.len() + 1)).max(1);
        let of_length = |length: Duration| {
            let shortest = Duration::from_ns(span.as_ns().div_ceil(cells as u64).max(1));
            if length < shortest {
                return Err(format!(
                    "sections of {length} over {span} are more than are kept: {shortest} or longer fit"
                ));
            }
            if length > span {
                return Err(format!("the connection lasted {span} only"));
            }
            Sections::new(c.first.time, span, length, 1)
                .map_err(|e| format!("sections of at least {} fit", e.shortest))
        };
        let step = Duration::from_ns(rtt.as_ns() / PHASE_STEPS);
        Self {
            of,
            file: judged.file,
            key: (c.interface, c.flow),
            sender: judged.passive.sender,
            frames: c.first.frame..=c.last.frame,
            begun: c.first.time,
            span,
            gaps: Gaps::new(),
            acks: Acks::new(side.segment_bytes),
            bursts: Bursts::new(),
            sections: question.sections.iter().map(|l| of_length(*l)).collect(),
            phase: (step > Duration::ZERO)
                .then(|| of_length(step).ok())
                .flatten()
                .map(|sections| (rtt, sections)),
            round_trips: c.sides[usize::from(1 - judged.passive.sender.min(1))].rtt_ack_ns,
        }
    }

    fn take(&mut self, at: Instant, frame: u64, original_bytes: u32, segment: &Segment) {
        if !self.frames.contains(&frame) {
            return;
        }
        let sections = self.sections.iter_mut().filter_map(|s| s.as_mut().ok());
        let sections = sections.chain(self.phase.as_mut().map(|(_, s)| s));
        if segment.from != self.sender {
            self.acks.take(at, segment);
            if segment.payload_bytes == 0 {
                sections.for_each(|s| s.ack(at, 0));
            }
            return;
        }
        if segment.payload_bytes == 0 {
            return;
        }
        sections.for_each(|s| s.data(at, 0, segment.payload_bytes));
        let wire_bytes = on_the_wire(original_bytes);
        self.gaps.take(at, wire_bytes);
        self.bursts.take(at, wire_bytes);
    }

    /// The longest gap that counts as back to back: twice a packet's own time, and what the stamps may
    /// be wrong by. Where that time is not known, it is taken for the shortest gap that many have; zero
    /// without one.
    pub(crate) fn burst_limit(&self, line: Option<Rate>) -> Duration {
        let stamps = self.gaps.stamps(line);
        let shortest = || self.gaps.modes(line).first().map(|mode| mode.gap);
        let time = match stamps.packet_time {
            Duration::ZERO => shortest(),
            time => Some(time),
        };
        time.map_or(Duration::ZERO, |time| time.saturating_mul(2) + stamps.error)
    }

    /// For the report.
    pub(crate) fn found(&self, question: &Question) -> TraceSpacing {
        let stamps = self.gaps.stamps(question.line);
        let histogram = self.gaps.histogram();
        let ns = |d: Option<Duration>| d.map(Duration::as_ns);
        let asked = question
            .bin
            .map(|width| (width, self.gaps.bins(width, question.line)));
        let refused = asked.as_ref().and_then(|(width, bins)| {
            let refused = bins.as_ref().err()?;
            Some(format!("bins of {width} are not shown: {refused}"))
        });
        let fine = match &asked {
            Some((_, Ok(bins))) => Some(bins.clone()),
            _ => self.fine(&stamps, question.line),
        };
        TraceSpacing {
            packets: self.gaps.packets(),
            size_bytes: self.gaps.size(),
            line_bits_per_second: question.line.map(Rate::as_bits_per_second),
            step_ns: stamps.step.as_ns(),
            error_ns: stamps.error.as_ns(),
            packet_time_ns: stamps.packet_time.as_ns(),
            finest_ns: stamps.finest().as_ns(),
            backwards: self.gaps.backwards(),
            gaps: histogram.count(),
            gap_min_ns: ns(histogram.min()),
            gap_median_ns: ns(histogram.quantile(500)),
            gap_p99_ns: ns(histogram.quantile(990)),
            gap_max_ns: ns(histogram.max()),
            modes: self.modes(question.line),
            bin_ns: ns(question.bin),
            bin_borne: asked.as_ref().map(|(_, bins)| bins.is_ok()),
            refused,
            bins: overall(histogram, &stamps),
            fine: fine.as_ref().map(listed).unwrap_or_default(),
            bursts: self.found_bursts(question.line),
            sections: question
                .sections
                .iter()
                .zip(&self.sections)
                .map(|(length, sections)| rates(*length, sections, self.span))
                .collect(),
            phase: self.phase.as_ref().and_then(|(rtt, sections)| {
                let phase = sections.phase(*rtt);
                (!phase.data.is_empty()).then(|| TracePhase {
                    rtt_ns: rtt.as_ns(),
                    step_ns: sections.length().as_ns(),
                    data_half_share: half_within(&phase.data),
                    acks_half_share: half_within(&phase.acks),
                    data: phase.data,
                    acks: phase.acks,
                })
            }),
            acks: (self.acks.packets() > 0).then(|| self.found_acks(&stamps)),
        }
    }

    fn found_acks(&self, stamps: &Stamps) -> TraceAcks {
        let gaps = self.acks.gaps();
        let ns = |d: Option<Duration>| d.map(Duration::as_ns);
        TraceAcks {
            packets: self.acks.packets(),
            gap_min_ns: ns(gaps.min()),
            gap_median_ns: ns(gaps.quantile(500)),
            gap_p99_ns: ns(gaps.quantile(990)),
            gap_max_ns: ns(gaps.max()),
            bins: overall(gaps, stamps),
            segments_mean: self.acks.segments_mean(),
            by_segments: self.acks.by_segments().to_vec(),
        }
    }

    fn modes(&self, line: Option<Rate>) -> Vec<TraceMode> {
        let own = line.map(|rate| {
            let bits_ns = u64::from(self.gaps.size()) * 8 * 1_000_000_000;
            bits_ns / rate.as_bits_per_second().max(1)
        });
        let modes = self.gaps.modes(line);
        let told = modes.iter().map(|m| TraceMode {
            gap_ns: m.gap.as_ns(),
            idle_ns: own.and_then(|own| m.gap.as_ns().checked_sub(own)),
            share: m.share,
        });
        told.collect()
    }

    /// The middle nine tenths, in some hundred bins where the stamps bear that many.
    fn fine(&self, stamps: &Stamps, line: Option<Rate>) -> Option<Bins> {
        let histogram = self.gaps.histogram();
        let (low, high) = histogram.quantile(50).zip(histogram.quantile(950))?;
        let width = (high.as_ns().saturating_sub(low.as_ns()) / FINE_BINS).max(1);
        let finest = stamps.finest().as_ns();
        let width = Duration::from_ns(width.div_ceil(finest).saturating_mul(finest));
        let mut bins = self.gaps.bins(width, line).ok()?;
        let last = high.as_ns() / width.as_ns();
        let keep = usize::try_from(last.saturating_sub(bins.from.as_ns() / width.as_ns()) + 1);
        bins.counts.truncate(keep.unwrap_or(usize::MAX));
        Some(bins)
    }

    fn found_bursts(&self, line: Option<Rate>) -> TraceBursts {
        let limit = self.burst_limit(line);
        if limit == Duration::ZERO {
            return TraceBursts::default();
        }
        let burst = self.bursts.within(limit);
        let lengths = burst.by_packets.iter().rposition(|n| *n > 0);
        TraceBursts {
            limit_ns: burst.limit.as_ns(),
            bursts: burst.bursts,
            longest_packets: burst.longest_packets,
            longest_bytes: burst.longest_bytes.as_u64(),
            mean_packets: burst.mean_packets(),
            bits_per_second: burst.rate().as_bits_per_second(),
            by_packets: burst.by_packets[..lengths.map_or(0, |n| n + 1)].to_vec(),
        }
    }
}

/// Octets of an Ethernet frame with preamble and check sequence, without the gap behind it (IEEE 802.3
/// clause 3.1.1): what a gap is idle beyond is then 12 octets where frames are back to back.
pub(crate) fn on_the_wire(original_bytes: u32) -> u32 {
    original_bytes.saturating_add(4).max(64).saturating_add(8)
}

/// All gaps, in bins a sixteenth of themselves wide and never finer than the stamps.
fn overall(gaps: &FineHistogram, stamps: &Stamps) -> Vec<(u64, u64, u64)> {
    let finest = stamps.finest().as_ns();
    let mut bins: Vec<(u64, u64, u64)> = Vec::new();
    for (from, to, n) in gaps.buckets() {
        let gap = u64::midpoint(from.as_ns(), to.as_ns().saturating_sub(1));
        match bins.last_mut() {
            Some(last) if gap < last.1 => last.2 += n,
            _ => {
                let begins = gap / finest * finest;
                let width = (begins / 16).max(finest).div_ceil(finest) * finest;
                bins.push((begins, begins.saturating_add(width), n));
            }
        }
    }
    bins
}

/// Bins that hold something.
fn listed(bins: &Bins) -> Vec<(u64, u64, u64)> {
    let width = bins.width.as_ns();
    let each = (0_u64..).zip(&bins.counts).filter(|(_, n)| **n > 0);
    each.map(|(place, n)| {
        let from = bins.from.as_ns() + place * width;
        (from, from + width, *n)
    })
    .collect()
}

fn rates(length: Duration, sections: &Result<Sections, String>, span: Duration) -> TraceSections {
    let mut told = TraceSections {
        length_ns: length.as_ns(),
        ..TraceSections::default()
    };
    let sections = match sections {
        Ok(sections) => sections,
        Err(why) => {
            told.refused = Some(why.clone());
            return told;
        }
    };
    let whole = usize::try_from(span.as_ns() / length.as_ns()).unwrap_or(usize::MAX);
    let sums = (0..sections.len().min(whole)).map(|n| sections.bytes(n, 0).as_u64());
    let mut sums: Vec<u64> = sums.collect();
    let peak = sums.iter().enumerate();
    let peak = peak.max_by_key(|(n, bytes)| (**bytes, std::cmp::Reverse(*n)));
    let peak_at = peak.map_or(0, |(n, _)| n as u64);
    sums.sort_unstable();
    let rate = |bytes: Option<&u64>| {
        let bytes = Bytes::new(bytes.copied().unwrap_or(0));
        Rate::average(bytes, length).as_bits_per_second()
    };
    told.sections = sums.len() as u64;
    told.busy = sums.iter().filter(|bytes| **bytes > 0).count() as u64;
    told.peak_bits_per_second = rate(sums.last());
    told.peak_at_ns = peak_at * length.as_ns();
    told.median_bits_per_second = rate(sums.get(sums.len() / 2));
    told.least_bits_per_second = rate(sums.first());
    told
}

/// TAPEE's: what a switch's buffer feels, and a long round trip.
const SECTIONS_DEFAULT: [Duration; 2] = [Duration::from_ms(5), Duration::from_ms(300)];
const SECTION_MIN: Duration = Duration::from_ns(100);
const SECTION_MAX: Duration = Duration::from_ms(4_200);
const SECTIONS_MAX: usize = 8;
/// Connections that are looked at: 3 MiB each for their gaps.
pub(crate) const SPACED_MAX: usize = 20;
/// Sections of all connections and lengths, 16 B each.
const CELLS_ALL: usize = 8 << 20;
const PHASE_STEPS: u64 = 64;
const FINE_BINS: u64 = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(lasts: Duration, lengths: &[Duration]) -> (Counted, Question) {
        let question = Question::new(lengths.to_vec(), None, None).unwrap();
        let judged = streams::tests::judged(0, 1, lasts, Duration::from_ms(10));
        (Counted::new(0, &judged, &question, 1), question)
    }

    fn segment(from: u8, payload_bytes: u32) -> Segment {
        Segment {
            from,
            payload_bytes,
            ..Segment::default()
        }
    }

    #[test]
    fn lengths_of_sections_have_bounds() {
        let ns = |n| vec![Duration::from_ns(n)];
        assert!(Question::new(ns(99), None, None).is_err());
        assert!(Question::new(ns(100), None, None).is_ok());
        assert!(Question::new(ns(4_200_000_000), None, None).is_ok());
        assert!(Question::new(ns(4_200_000_001), None, None).is_err());
        let default = Question::new(vec![], None, None).unwrap();
        assert_eq!(default.sections, SECTIONS_DEFAULT);
        let many = |n: u64| (1..=n).map(Duration::from_ms).collect();
        assert!(Question::new(many(8), None, None).is_ok());
        assert!(Question::new(many(9), None, None).is_err());
        assert!(Question::new(vec![], Some(Duration::ZERO), None).is_err());
    }

    #[test]
    fn sections_that_do_not_fit_say_which_would() {
        let second = Duration::from_s(1);
        let (too_short, _) = counted(second, &[Duration::from_ns(100)]);
        let why = too_short.sections[0].as_ref().unwrap_err();
        assert!(why.contains("239 ns or longer fit"), "{why}");
        let (fits, _) = counted(second, &[Duration::from_ns(239)]);
        assert!(fits.sections[0].is_ok());
        let (longer, _) = counted(second, &[Duration::from_ms(1_001)]);
        assert_eq!(
            longer.sections[0].as_ref().unwrap_err(),
            "the connection lasted 1 s only"
        );
        assert!(counted(second, &[second]).0.sections[0].is_ok());
    }

    #[test]
    fn rates_are_those_of_whole_sections() {
        let (mut one, question) = counted(Duration::from_ms(25), &[Duration::from_ms(10)]);
        for (ms, bytes) in [(0, 1_000), (9, 250), (10, 500), (24, 9_000)] {
            let at = one.begun + Duration::from_ms(ms);
            one.take(at, 1, 1_514, &segment(0, bytes));
            one.take(at, 1, 60, &segment(1, 0));
        }
        // Of another connection with the same ports.
        one.take(one.begun, 3, 1_514, &segment(0, 9_000));
        let told = &one.found(&question).sections[0];
        assert_eq!((told.sections, told.busy), (2, 2));
        assert_eq!(told.peak_bits_per_second, 1_000_000);
        assert_eq!(told.peak_at_ns, 0);
        assert_eq!(told.least_bits_per_second, 400_000);
        assert_eq!(one.found(&question).packets, 4);
    }

    #[test]
    fn bins_finer_than_the_stamps_are_refused_in_a_sentence() {
        let (mut one, _) = counted(Duration::from_s(1), &[Duration::from_ms(10)]);
        for n in 0..1_000_u64 {
            let at = one.begun + Duration::from_us(n * 12);
            one.take(at, 1, 1_514, &segment(0, 1_448));
        }
        let asked = |ns| Question::new(vec![], Some(Duration::from_ns(ns)), None).unwrap();
        let refused = one.found(&asked(11_999));
        assert_eq!(refused.bin_borne, Some(false));
        let why = refused.refused.unwrap();
        assert!(why.contains("less than 12 us"), "{why}");
        assert!(refused.fine.iter().all(|(from, to, _)| to - from == 12_000));
        assert!(refused.bins.iter().all(|(from, to, _)| to - from >= 12_000));
        let borne = one.found(&asked(12_000));
        assert_eq!((borne.bin_borne, borne.refused), (Some(true), None));
        assert_eq!(borne.fine, [(12_000, 24_000, 999)]);
    }

    #[test]
    fn gaps_of_700_and_720_octets_have_their_idle_times() {
        let line = Rate::from_bits_per_second(10_000_000_000);
        let question = Question::new(vec![], None, Some(line)).unwrap();
        let (mut one, _) = counted(Duration::from_s(1), &[Duration::from_ms(10)]);
        let mut tenths = 0;
        for n in 0..4_000_u64 {
            let at = one.begun + Duration::from_ns(tenths / 10);
            one.take(at, 1, 9_014, &segment(0, 8_948));
            tenths += (9_026 + if n % 2 == 0 { 700 } else { 720 }) * 8;
        }
        let found = one.found(&question);
        let idle: Vec<u64> = found.modes.iter().filter_map(|m| m.idle_ns).collect();
        assert_eq!(idle.len(), 2, "{:?}", found.modes);
        assert!(idle[0].abs_diff(560) <= 1 && idle[1].abs_diff(576) <= 1);
        assert!(found.finest_ns <= 16);
        assert_eq!(found.bursts.bursts, 1);
        assert_eq!(found.bursts.longest_packets, 4_000);
    }
}
