//! Two captures of the same connections at two points of their path, matched packet by packet: how far
//! the clocks are apart, how long packets were on their way between the points in each direction, and
//! where each lost segment was lost.
//!
//! First [`Anchors`] say whether two captures have packets in common at all. Then [`Pairing`] is given
//! both, each in its own order; [`Pairing::next`] says of which the next packet is wanted, so that both
//! are read at the same time of the path, whatever their clocks say. Segments are found again by
//! connection, bytes and time stamp, also where super-packets were cut or joined in between (TSO, GRO);
//! IP identification and the usual delay decide where stamps do not.
//!
//! Of a direction, the **first** point is the one that its packets pass first, which the two directions'
//! times tell together without knowing the clocks. Then
//!
//! * what the first point saw, the second did not, and the receiver did not acknowledge before it was
//!   sent again, was lost **between** them;
//! * what the first point saw for the first time when it was sent again was lost **before** it;
//! * what the second point saw again, though it had seen it, was lost **behind** it, if the receiver has
//!   said since that it lacks it; else it was sent again in vain.
//!
//! What was acknowledged and never seen at one point was not lost there; its capture has a hole.
//!
//! **Memory is bounded**: [`Limits::copies_max`] packets that wait for their other half, for
//! [`WAIT_NS`] of the captures' time at most, [`Limits::connections_max`] connections of some kilobytes,
//! [`Limits::lines_max`] losses with their frames (all are counted), 2^17 samples of delays, 2^10 probes.
//! A packet that had no room to wait is counted as not judged, never as lost.
//!
//! Where addresses are translated between the points, [`Names`] says which connection became which, and the
//! far capture's packets are given the near one's names before they come here.
//!
//! Left out: payload, encryption that hides TCP between them.

mod anchors;
mod clocks;
mod ranges;
mod translated;
mod way;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};

use units::Instant;
use wire::segment::{FlowKey, Segment};
use wire::tcp::Flags;

use crate::one_way::{Delays, Within};
use clocks::{Probes, Sample, Samples};
use way::{Running, Seen, Way};

pub use anchors::{Anchors, Common};
pub use translated::{Names, Translated, Translations};

/// Which of the two captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The one named first.
    Near,
    /// The other one.
    Far,
}

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Packets that wait for their other half, of some 150 B each.
    pub copies_max: usize,
    /// Connections; further ones are counted only.
    pub connections_max: usize,
    /// Losses that are written down one by one.
    pub lines_max: usize,
}

/// Matches two captures.
#[derive(Debug)]
pub struct Pairing {
    limits: Limits,
    room: Room,
    ends: [Progress; 2],
    /// How much later the far capture had the packet that both had last.
    ahead_ns: i64,
    /// Time of the near capture that has passed.
    progress_ns: u64,
    swept_ns: u64,
    /// Packets since then.
    unswept: usize,
    flows: HashMap<FlowKey, Current>,
    connections: Vec<Conversation>,
    left_out: u64,
    samples: Samples,
    probes: Probes,
}

/// What two captures say together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Paired {
    /// TCP packets of each that were looked at.
    pub packets: [u64; 2],
    /// Of these, ones that the other has too.
    pub matched: [u64; 2],
    /// The clocks; `None` where no connection had packets each way in both.
    pub clocks: Option<ClockFacts>,
    /// From near to far, and back.
    pub delays: [Option<DelayFacts>; 2],
    /// Connections that both have, the one that lost most first.
    pub connections: Vec<PairedConnection>,
    /// Of those there are, at most so many were looked at.
    pub connections_left_out: u64,
}

/// How the far capture's clock runs against the near one's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockFacts {
    /// How far it is ahead in the middle, nanoseconds. The uncertainty is half the least round trip
    /// between the points and more.
    pub offset_ns: Within,
    /// Parts in a million by which it is faster; `None` of less than a second.
    pub drift_ppm: Option<Within>,
    /// Times that one of the clocks was set; delays are of the longest stretch between.
    pub steps: u32,
    /// Least time from one point to the other and back.
    pub round_trip_min_ns: i64,
}

/// One-way delays between the points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayFacts {
    /// Packets that they are of: drawn evenly where there were more than 2^17.
    pub packets: u64,
    /// In nanoseconds.
    pub delays: Delays,
}

/// A connection that both captures have.
#[derive(Clone, Debug, PartialEq)]
pub struct PairedConnection {
    /// Its ends.
    pub flow: FlowKey,
    /// Which of them is on the near capture's side: 0 the lower one.
    pub near_side: u8,
    /// Nothing told that: the captures have packets of one direction only.
    pub is_side_assumed: bool,
    /// Its first frame in each.
    pub first_frames: [Option<u64>; 2],
    /// What each end sent: the lower one's first.
    pub ways: [WayFacts; 2],
}

/// One direction of a connection between the two points.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WayFacts {
    /// Which capture its packets passed first: 0 near.
    pub first: usize,
    /// Packets of each capture, and those of them that the other has, too.
    pub packets: [u64; 2],
    /// See there.
    pub matched: [u64; 2],
    /// Payload that passed the first point.
    pub bytes: u64,
    /// Lost before the first point.
    pub before: Count,
    /// Lost between them.
    pub between: Count,
    /// Lost behind the second point.
    pub behind: Count,
    /// Sent again though nothing was lost, as the second point saw it.
    pub spurious: Count,
    /// Not captured at the first point: the second has it.
    pub unseen_first: Count,
    /// Not captured at the second: the receiver has it.
    pub unseen_second: Count,
    /// Not to be judged: outside the other capture's time, or no room to wait.
    pub unjudged: Count,
    /// Packets without payload (ACKs mostly) that the second point did not see.
    pub control_lost: u64,
    /// Packets that a capture has twice.
    pub duplicates: [u64; 2],
    /// Delays, on the way from the first to the second.
    pub delays: Option<DelayFacts>,
    /// Each loss with its frames, in the order in which they were found, as many as there was room for.
    pub losses: Vec<Lost>,
}

/// Segments and their payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Segments, as large as the connection's are.
    pub segments: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Where a segment was lost, along its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Before the first point.
    Before,
    /// Between them.
    Between,
    /// Behind the second.
    After,
}

/// One loss: a segment, or neighbours of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Where.
    pub place: Place,
    /// Time of the packet that shows it, by the clock of the capture that has it.
    pub time_ns: u64,
    /// Sequence number of its first byte.
    pub sequence: u32,
    /// Payload.
    pub bytes: u64,
    /// Segments.
    pub segments: u64,
    /// The packet in each capture: what was lost where it was seen, else what was sent again in its place.
    pub frames: [Option<u64>; 2],
    /// The packet that was sent again in its place and came through, in both.
    pub repeat: Option<[u64; 2]>,
    /// Place of the reason in a list that whoever knows it has; see [`attach`].
    pub reason: Option<u16>,
    /// Segments of it that the reason is known of.
    pub reason_segments: u64,
}

/// A segment that something is known to have dropped, as by a lab's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Its connection.
    pub flow: FlowKey,
    /// Which end sent it.
    pub from: u8,
    /// Sequence number of its first byte.
    pub sequence: u32,
    /// Payload.
    pub bytes: u32,
    /// When it was sent, by the near capture's clock about.
    pub time_ns: u64,
    /// Place in the caller's list.
    pub reason: u16,
}

/// What is left of what may be kept.
#[derive(Clone, Copy, Debug)]
struct Room {
    copies: usize,
    lines: usize,
}

/// How far a capture has been read.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    begins_ns: Option<u64>,
    /// The latest packet's time, which may go back.
    now_ns: u64,
    latest_ns: u64,
    packets: u64,
    has_ended: bool,
}

/// The connections of one pair of endpoints, the newest last, and which of them each point is at.
#[derive(Clone, Debug, Default)]
struct Current {
    list: VecDeque<usize>,
    at: [Option<usize>; 2],
}

/// A connection under way.
#[derive(Clone, Debug)]
struct Conversation {
    flow: FlowKey,
    initial: [Option<u32>; 2],
    first_frames: [Option<u64>; 2],
    ways: [Way; 2],
    last: [Option<(u64, u64)>; 2],
    /// Probes in which the lower end's packets passed near first, less the others.
    votes: i64,
    /// Hops left of each way's first packet at each point.
    hops: [[Option<u8>; 2]; 2],
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            copies_max: 1 << 18,
            connections_max: 1 << 14,
            lines_max: 1 << 16,
        }
    }
}

impl Room {
    /// Room for one more where `waiting` wait already.
    const fn take_copy(&mut self, waiting: usize) -> bool {
        let fits = self.copies > 0 && waiting < WAITING_MAX;
        self.copies -= fits as usize;
        fits
    }

    const fn take_line(&mut self) -> bool {
        let fits = self.lines > 0;
        self.lines -= fits as usize;
        fits
    }
}

impl Count {
    fn of(bytes: u64, segment_bytes: u64) -> Self {
        let segments = match segment_bytes {
            0 => 1,
            full => bytes.div_ceil(full).max(1),
        };
        Self { segments, bytes }
    }

    /// Adds another; saturates.
    pub const fn add(&mut self, other: Self) {
        self.segments = self.segments.saturating_add(other.segments);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl WayFacts {
    /// Segments lost anywhere.
    pub const fn lost(&self) -> u64 {
        let on_the_way = self.before.segments.saturating_add(self.between.segments);
        on_the_way.saturating_add(self.behind.segments)
    }
}

impl Pairing {
    /// Matches captures of which the second has packets `ahead_ns` later than the first, about; `seed`
    /// draws the samples.
    pub fn new(limits: Limits, ahead_ns: i64, seed: u64) -> Self {
        Self {
            limits,
            room: Room {
                copies: limits.copies_max,
                lines: limits.lines_max,
            },
            ends: <[Progress; 2]>::default(),
            ahead_ns,
            progress_ns: 0,
            swept_ns: 0,
            unswept: 0,
            flows: HashMap::new(),
            connections: Vec::new(),
            left_out: 0,
            samples: Samples::new(seed),
            probes: Probes::new(ahead_ns),
        }
    }

    /// Which capture's next packet is wanted: of the one that is behind; `None` when both have ended.
    pub fn next(&self) -> Option<Point> {
        let [near, far] = &self.ends;
        match (near.has_ended, far.has_ended) {
            (true, true) => None,
            (true, false) => Some(Point::Far),
            (false, true) => Some(Point::Near),
            (false, false) if near.begins_ns.is_none() => Some(Point::Near),
            (false, false) if far.begins_ns.is_none() => Some(Point::Far),
            (false, false) => {
                let behind = apart_ns(near.now_ns, far.now_ns) >= self.ahead_ns;
                Some(if behind { Point::Near } else { Point::Far })
            }
        }
    }

    /// A capture has no more packets.
    pub const fn end(&mut self, point: Point) {
        self.ends[point as usize].has_ended = true;
    }

    /// Takes a TCP packet of one of the captures.
    pub fn take(&mut self, point: Point, time: Instant, frame: u64, segment: &Segment) {
        let at = point as usize;
        let time_ns = time.as_ns();
        let progress = &mut self.ends[at];
        progress.packets += 1;
        let begun = *progress.begins_ns.get_or_insert(time_ns);
        if at == 0 {
            // Goes on at its pace where the clock is set back.
            let before = progress
                .now_ns
                .max(if progress.packets == 1 { begun } else { 0 });
            let passed = time_ns.saturating_sub(before);
            self.progress_ns = self.progress_ns.saturating_add(passed);
        }
        progress.now_ns = time_ns;
        progress.latest_ns = progress.latest_ns.max(time_ns);
        self.unswept += 1;
        // Never more often than there is work in it, so that it costs each packet the same.
        let work = self.connections.len() + self.limits.copies_max - self.room.copies;
        if self.progress_ns.saturating_sub(self.swept_ns) >= SWEEP_NS && self.unswept >= work {
            (self.swept_ns, self.unswept) = (self.progress_ns, 0);
            self.sweep();
        }
        let Some(number) = self.connection(at, segment) else {
            self.left_out += 1;
            return;
        };
        let from = usize::from(segment.from & 1);
        let connection = &mut self.connections[number];
        connection.first_frames[at].get_or_insert(frame);
        connection.hops[from][at].get_or_insert(segment.ttl);
        if segment.flags.contains(Flags::SYN) {
            for way in &mut connection.ways {
                way.on_mss(from, segment.syn.mss);
            }
        }
        connection.ways[1 - from].on_answer(at, segment);
        let seen = Seen {
            point: at,
            time_ns,
            frame,
            segment,
        };
        let Some(times) = connection.ways[from].take(seen, &mut self.room) else {
            return;
        };
        self.on_match(number, from, times);
    }

    /// What both say together, when both have ended.
    pub fn finish(mut self) -> Paired {
        let clocks = self.probes.clocks();
        let samples = std::mem::take(&mut self.samples.kept);
        let running = [self.running(0, true), self.running(1, true)];
        let mut paired = Paired {
            packets: [self.ends[0].packets, self.ends[1].packets],
            connections_left_out: self.left_out,
            clocks: clocks.map(|c| ClockFacts {
                offset_ns: Within {
                    value: c.base_ns as f64 + c.line.offset_ns.value,
                    ..c.line.offset_ns
                },
                drift_ppm: c.drift_ppm(),
                steps: c.steps,
                round_trip_min_ns: c.round_trip_min_ns,
            }),
            ..Paired::default()
        };
        let mut places: Vec<Option<u8>> = Vec::with_capacity(self.connections.len());
        let mut by_connection: HashMap<u32, Vec<Sample>> = HashMap::new();
        for sample in &samples {
            let of = by_connection.entry(sample.connection).or_default();
            of.push(*sample);
        }
        let delays_of = |all: &mut dyn Iterator<Item = Sample>, first: bool| {
            let (packets, delays) = clocks.as_ref()?.delays(all, first);
            delays.map(|delays| DelayFacts { packets, delays })
        };
        for (number, mut c) in (0_u32..).zip(std::mem::take(&mut self.connections)) {
            for way in &mut c.ways {
                for at in 0..2 {
                    way.expire(at, u64::MAX, running[1 - at], &mut self.room);
                }
            }
            let (near_side, is_side_assumed) = c.near_side();
            let has_match = c.ways.iter().any(Way::has_match);
            places.push(has_match.then_some(near_side));
            if !has_match {
                continue;
            }
            let own = by_connection.get(&number).map_or(&[][..], Vec::as_slice);
            let facts = |side: usize| {
                let first = usize::from(usize::from(near_side) != side);
                let mut of_way = own.iter().copied().filter(|s| usize::from(s.way) == side);
                WayFacts {
                    delays: delays_of(&mut of_way, first == 0),
                    ..way_facts(&c.ways[side], first)
                }
            };
            let ways = [facts(0), facts(1)];
            for way in &ways {
                for at in 0..2 {
                    paired.matched[at] += way.matched[at];
                }
            }
            paired.connections.push(PairedConnection {
                flow: c.flow,
                near_side,
                is_side_assumed,
                first_frames: c.first_frames,
                ways,
            });
        }
        for (direction, delays) in paired.delays.iter_mut().enumerate() {
            let mut going = samples.iter().copied().filter(|s| {
                let place = usize::try_from(s.connection)
                    .ok()
                    .and_then(|n| places.get(n));
                let near_side = place.copied().flatten();
                near_side.is_some_and(|near| usize::from(near != s.way) == direction)
            });
            *delays = delays_of(&mut going, direction == 0);
        }
        let lost = |c: &PairedConnection| c.ways.iter().map(WayFacts::lost).sum::<u64>();
        let bytes = |c: &PairedConnection| c.ways.iter().map(|w| w.bytes).sum::<u64>();
        paired
            .connections
            .sort_by_key(|c| std::cmp::Reverse((lost(c), bytes(c))));
        paired
    }

    fn on_match(&mut self, number: usize, way: usize, times: (u64, u64)) {
        self.ahead_ns = apart_ns(times.0, times.1);
        let connection = &mut self.connections[number];
        self.samples.take(Sample {
            progress_ns: self.progress_ns,
            near_ns: times.0,
            apart_ns: self.ahead_ns,
            connection: u32::try_from(number).unwrap_or(u32::MAX),
            way: u8::from(way == 1),
        });
        connection.last[way] = Some(times);
        if let Some(back) = connection.last[1 - way] {
            let [low, high] = if way == 0 {
                [times, back]
            } else {
                [back, times]
            };
            connection.votes += (apart_ns(low.0, low.1) - apart_ns(high.0, high.1)).signum();
            self.probes.take(self.progress_ns, back, times);
        }
    }

    /// Judges what has waited long enough.
    fn sweep(&mut self) {
        let running = [self.running(0, false), self.running(1, false)];
        // A copy at one point may go when both points are that much later than it.
        let [near, far] = [self.ends[0].now_ns, self.ends[1].now_ns];
        let far_by_near = far.saturating_add_signed(self.ahead_ns.saturating_neg());
        let near_by_far = near.saturating_add_signed(self.ahead_ns);
        let until = [
            near.min(far_by_near).saturating_sub(WAIT_NS),
            far.min(near_by_far).saturating_sub(WAIT_NS),
        ];
        for connection in &mut self.connections {
            for way in &mut connection.ways {
                for at in 0..2 {
                    way.expire(at, until[at], running[1 - at], &mut self.room);
                }
            }
        }
    }

    fn running(&self, point: usize, has_ended: bool) -> Running {
        let progress = &self.ends[point];
        Running {
            begins_ns: progress.begins_ns.unwrap_or(u64::MAX),
            ends_ns: has_ended.then_some(progress.latest_ns),
        }
    }

    /// The connection that a packet belongs to; `None` where there is no room for it.
    fn connection(&mut self, at: usize, segment: &Segment) -> Option<usize> {
        let begins = segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::ACK);
        let from = usize::from(segment.from & 1);
        if !self.flows.contains_key(&segment.flow) {
            if self.connections.len() >= self.limits.connections_max {
                return None;
            }
            self.flows.insert(segment.flow, Current::default());
        }
        let current = self.flows.get_mut(&segment.flow)?;
        let known = current.at[at].or_else(|| current.list.back().copied());
        let is_another = |n: &usize| {
            let initial = self.connections.get(*n).and_then(|c| c.initial[from]);
            begins && initial.is_some_and(|i| i != segment.sequence)
        };
        let known = known.filter(|n| !is_another(n)).or_else(|| {
            let mut others = current.list.iter().copied();
            others.find(|n| begins && !is_another(n))
        });
        let number = match known {
            Some(number) => number,
            None if self.connections.len() >= self.limits.connections_max => return None,
            None => {
                self.connections.push(Conversation::new(segment.flow));
                current.list.push_back(self.connections.len() - 1);
                if current.list.len() > INCARNATIONS_MAX {
                    current.list.pop_front();
                }
                self.connections.len() - 1
            }
        };
        current.at[at] = Some(number);
        if begins {
            let initial = &mut self.connections.get_mut(number)?.initial[from];
            initial.get_or_insert(segment.sequence);
        }
        Some(number)
    }
}

impl Conversation {
    fn new(flow: FlowKey) -> Self {
        Self {
            flow,
            initial: [None; 2],
            first_frames: [None; 2],
            ways: [Way::new(), Way::new()],
            last: [None; 2],
            votes: 0,
            hops: [[None; 2]; 2],
        }
    }

    /// Which end is on the near capture's side, and whether that is no more than an assumption: both
    /// ways' times tell, else hops left, else who sent more is near.
    fn near_side(&self) -> (u8, bool) {
        let by_hops = |way: usize| {
            let [near, far] = self.hops[way];
            let fewer = i64::from(near?) - i64::from(far?);
            Some(if way == 0 { fewer } else { -fewer })
        };
        let hops: i64 = [by_hops(0), by_hops(1)].into_iter().flatten().sum();
        let told = if self.votes == 0 { hops } else { self.votes };
        if told != 0 {
            return (u8::from(told < 0), false);
        }
        let bytes = |way: &Way| way.views().iter().map(|v| v.bytes).sum::<u64>();
        (u8::from(bytes(&self.ways[1]) > bytes(&self.ways[0])), true)
    }
}

/// What the views say when `first` is the point that its packets pass first.
fn way_facts(way: &Way, first: usize) -> WayFacts {
    let views = way.views();
    let (one, two) = (&views[first], &views[1 - first]);
    let of_first = one.lines.iter().filter(|l| l.lost.place != Place::After);
    let of_second = two.lines.iter().filter(|l| l.lost.place == Place::After);
    WayFacts {
        first,
        packets: [views[0].packets, views[1].packets],
        matched: [views[0].matched, views[1].matched],
        bytes: one.bytes,
        before: one.filled,
        between: one.vanished,
        behind: two.behind,
        spurious: two.spurious,
        unseen_first: {
            let mut all = two.vanished;
            all.add(two.unseen);
            all
        },
        unseen_second: one.unseen,
        unjudged: one.unjudged,
        control_lost: one.control_vanished,
        duplicates: [views[0].duplicates, views[1].duplicates],
        delays: None,
        losses: of_first
            .chain(of_second)
            .filter(|l| !l.withdrawn)
            .map(|l| l.lost)
            .collect(),
    }
}

/// Tells losses what dropped them: by connection, bytes and time, each drop once.
/// Returns how many drops found their loss.
pub fn attach(paired: &mut Paired, drops: &[Dropped]) -> u64 {
    let mut by_way: HashMap<(FlowKey, u8), Vec<(Dropped, bool)>> = HashMap::new();
    for drop in drops {
        let of = by_way.entry((drop.flow, drop.from & 1)).or_default();
        of.push((*drop, false));
    }
    for all in by_way.values_mut() {
        all.sort_by_key(|(d, _)| d.sequence);
    }
    let mut found = 0;
    for connection in &mut paired.connections {
        for (side, way) in (0_u8..).zip(&mut connection.ways) {
            let Some(all) = by_way.get_mut(&(connection.flow, side)) else {
                continue;
            };
            for lost in &mut way.losses {
                found += explain_loss(lost, all);
            }
        }
    }
    found
}

/// Gives a loss the drops that fall into it, the nearest in time first.
fn explain_loss(lost: &mut Lost, drops: &mut [(Dropped, bool)]) -> u64 {
    let within =
        |d: &Dropped| u64::from(d.sequence.wrapping_sub(lost.sequence)) < lost.bytes.max(1);
    // The numbers may wrap within a loss: then its begin is behind its end.
    let from = drops.partition_point(|(d, _)| d.sequence < lost.sequence);
    let mut near: Vec<(u64, usize)> = (0..drops.len())
        .map(|n| (from + n) % drops.len())
        .take_while(|&n| within(&drops[n].0))
        .filter(|&n| !drops[n].1)
        .map(|n| (drops[n].0.time_ns.abs_diff(lost.time_ns), n))
        .filter(|(apart, _)| *apart < ATTACH_NS)
        .collect();
    near.sort_unstable();
    let most = usize::try_from(lost.segments).unwrap_or(usize::MAX);
    for &(_, n) in near.iter().take(most) {
        drops[n].1 = true;
        lost.reason.get_or_insert(drops[n].0.reason);
        lost.reason_segments += 1;
    }
    near.len().min(most) as u64
}

/// How much later the second time is; saturates.
fn apart_ns(near_ns: u64, far_ns: u64) -> i64 {
    let apart = i128::from(far_ns) - i128::from(near_ns);
    i64::try_from(apart).unwrap_or(if apart < 0 { i64::MIN } else { i64::MAX })
}

/// Time of the captures after which what only one saw is judged: longer than a packet is on its way, and
/// than the third timeout of what is sent again over a path of a second.
pub const WAIT_NS: u64 = 12_000_000_000;
const SWEEP_NS: u64 = 1_000_000_000;
/// Packets of one direction that wait at one point: three seconds of single segments at 100 Mb/s.
const WAITING_MAX: usize = 1 << 15;
/// Connections between the same ports, one after the other.
const INCARNATIONS_MAX: usize = 4;
/// A copy sent again follows no sooner than that; chosen.
const ATTACH_NS: u64 = 5_000_000_000;
