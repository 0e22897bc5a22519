//! The network in motion: frames with their bytes through links, switches and routers.
//!
//! The engine owns the memory of frames in flight, one pipeline for each direction of each link, and
//! the nodes. It is given frames with the time at which they came, and it fills batches of what is to
//! leave by the ports; sockets, clocks and threads are the forwarder's. A frame is kept once however
//! many of its segments are on their way; a router's or rule's changes are kept as another beginning
//! of the same frame (a version), so that segments of one frame may differ in where they have been.

use std::ops::Range;

use link::record::{Code, FrameRecord, Row};
use link::{
    Change, Counters, Decision, DropCause, Event, Log, Marks, Output, Pipeline, Release, Spacing,
    Train,
};
use sys::packet::{SendBatch, VNET_HDR_BYTES};
use sys::simd;
use units::{Duration, Instant};
use wire::classify::Fields;
use wire::train::{self, CutBuf, HEADER_BYTES_MAX, Protocol, SuperFrame};
use wire::virtio::VirtioNetHdr;

use crate::forward::{DirectionCounts, ProbeSeen};
use crate::log::Logger;
use crate::middlebox::Middleboxes;
use crate::node::{Router, Routing, Rules, Ruling, Switch};
use crate::probe;
use crate::rate::{RateError, RateMeter};
use crate::store::{FrameStore, FrameTag};

/// What the network is made of.
#[derive(Debug)]
pub(crate) struct Wiring {
    pub(crate) nodes: Vec<NodeWiring>,
    /// Two for each link: forward at even places, backward behind it.
    pub(crate) directions: Vec<DirectionWiring>,
    /// The port whose probes go forward.
    pub(crate) near: usize,
}

#[derive(Debug)]
pub(crate) enum NodeWiring {
    /// A host, or an interface of the machine: port number, memory for its frames.
    Port {
        ring_bytes: usize,
    },
    Switch(Rules),
    Router(Box<Router>),
}

#[derive(Debug)]
pub(crate) struct DirectionWiring {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) spec: link::spec::DirectionSpec,
    pub(crate) middleboxes: Middleboxes,
    /// Changes at times after the start.
    pub(crate) schedule: Vec<(Duration, Change)>,
}

/// The network.
#[derive(Debug)]
pub(crate) struct Engine {
    /// One for each port, and one for the frames that nodes make.
    stores: Vec<FrameStore>,
    ports: Vec<Port>,
    directions: Vec<Direction>,
    nodes: Vec<Node>,
    versions: Vec<Version>,
    versions_free: Vec<usize>,
    cut: CutBuf,
    fates: Fates,
    to: Vec<usize>,
    /// A frame put together, where its parts do not lie in a row.
    scratch: Vec<u8>,
    /// When something is next due in each direction: nothing before.
    next: Vec<Instant>,
    probes: Vec<ProbeSeen>,
    frames: u64,
    log: Option<Logger>,
    /// The port whose probes go forward.
    near: usize,
}

/// What a step of [`Engine::poll`] asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poll {
    /// This port's batch is to be sent now, then ask again.
    Flush(usize),
    /// Nothing more is due before this instant.
    Wait(Instant),
}

#[derive(Debug)]
struct Port {
    out: usize,
    batch: SendBatch,
    in_batch: Vec<(usize, Release)>,
    last_arrival: Instant,
}

#[derive(Debug)]
struct Direction {
    pipeline: Pipeline,
    to: usize,
    spec: link::spec::DirectionSpec,
    middleboxes: Middleboxes,
    counts: DirectionCounts,
    /// Where the rate is constant.
    meter: Option<RateMeter>,
    /// It ends at a switch or router.
    feeds: bool,
    seen: Seen,
}

/// What was decided on the segments of the last frame that came out of a direction: the others of
/// the same frame go the same way.
#[derive(Debug, Default)]
struct Seen {
    frame: u64,
    handle: u64,
    to: Vec<usize>,
    version: Option<u64>,
}

#[derive(Debug)]
enum Node {
    Port(usize),
    Switch(Switch),
    Router(Box<Router>),
}

/// A frame with another beginning.
#[derive(Debug)]
struct Version {
    parent: u64,
    header: [u8; HEADER_BYTES_MAX],
    header_len: usize,
    outstanding: u32,
    /// Counts the uses of this place, so that an old handle is not taken for a new one.
    generation: u64,
    /// A direction may yet send further segments this way.
    open: bool,
}

/// Segments of a frame that come to a link together.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u16,
    count: u16,
    at: Instant,
    marks: Marks,
    damage: u32,
}

impl Run {
    /// All segments of a frame that has just come.
    const fn fresh(count: u16, at: Instant) -> Self {
        Self {
            first: 0,
            count,
            at,
            marks: Marks::NONE,
            damage: 0,
        }
    }

    /// Segments that leave another link.
    const fn of(release: &Release) -> Self {
        Self {
            first: release.first,
            count: release.count,
            at: release.last_at,
            marks: release.marks,
            damage: release.damage,
        }
    }
}

/// Collects what a pipeline decided, for the stores.
#[derive(Debug, Default)]
struct Fates {
    dropped: Vec<(u64, u16)>,
    copied: Vec<(u64, u16)>,
}

struct FateLog<'a> {
    counters: &'a mut Counters,
    fates: &'a mut Fates,
    books: Books<'a>,
    way: usize,
}

/// The packet log and what it needs to name frames.
struct Books<'a> {
    log: Option<&'a mut Logger>,
    stores: &'a [FrameStore],
    versions: &'a [Version],
}

impl Books<'_> {
    fn write(&mut self, event: &Event, way: usize) {
        let Some(log) = &mut self.log else { return };
        let handle = event.train.handle;
        let root = if store_of(handle) == VERSIONS {
            self.versions[version_index(handle)].parent
        } else {
            handle
        };
        let frame = self.stores[store_of(root)].tag(number_of(root)).number;
        let way = u16::try_from(way).unwrap_or(u16::MAX);
        log.row(&Row::of(event, way, frame));
    }
}

impl Log for FateLog<'_> {
    fn on_event(&mut self, event: &Event) {
        self.counters.on_event(event);
        self.books.write(event, self.way);
        let run = (event.train.handle, event.train.count);
        match event.decision {
            Decision::Dropped { .. } => self.fates.dropped.push(run),
            Decision::Duplicated => self.fates.copied.push(run),
            _ => {}
        }
    }
}

impl Engine {
    /// A network that begins at `start`.
    pub(crate) fn new(wiring: Wiring, start: Instant, log: Option<Logger>) -> Self {
        let mut out_of: Vec<Vec<usize>> = vec![Vec::new(); wiring.nodes.len()];
        for (number, direction) in wiring.directions.iter().enumerate() {
            out_of[direction.from].push(number);
        }
        let (mut stores, mut ports, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
        for (number, node) in wiring.nodes.into_iter().enumerate() {
            let out = std::mem::take(&mut out_of[number]);
            nodes.push(match node {
                NodeWiring::Port { ring_bytes } => {
                    stores.push(FrameStore::new(ring_bytes, FRAME_BYTES_MAX));
                    ports.push(Port {
                        out: out.first().copied().unwrap_or(0),
                        batch: SendBatch::new(BATCH_FRAMES),
                        in_batch: Vec::with_capacity(BATCH_FRAMES),
                        last_arrival: Instant::ZERO,
                    });
                    Node::Port(ports.len() - 1)
                }
                NodeWiring::Switch(rules) => Node::Switch(Switch::new(out, rules)),
                NodeWiring::Router(router) => Node::Router(router),
            });
        }
        stores.push(FrameStore::new(MADE_BYTES, FRAME_BYTES_MAX));
        let ways = wiring.directions.len();
        let directions: Vec<Direction> = wiring
            .directions
            .into_iter()
            .map(|d| {
                let mut pipeline = d.spec.changeable_pipeline(start, PORT_TRAINS);
                if matches!(nodes[d.to], Node::Port(_)) {
                    // What a node passes on must come to the next link at its own time.
                    pipeline = pipeline.catching_up_when(BEHIND);
                }
                // A rate that changes by plan is not measured against one of them.
                let changes_rate = d.schedule.iter().any(|(_, c)| matches!(c, Change::Rate(_)));
                for (after, change) in d.schedule {
                    pipeline.schedule(start + after, change);
                }
                Direction {
                    pipeline,
                    to: d.to,
                    meter: meter_of(&d.spec).filter(|_| !changes_rate),
                    spec: d.spec,
                    middleboxes: d.middleboxes,
                    counts: DirectionCounts::default(),
                    feeds: !matches!(nodes[d.to], Node::Port(_)),
                    seen: Seen::default(),
                }
            })
            .collect();
        Self {
            stores,
            ports,
            directions,
            nodes,
            versions: Vec::new(),
            versions_free: Vec::new(),
            cut: CutBuf::new(),
            fates: Fates::default(),
            to: Vec::new(),
            scratch: Vec::with_capacity(FRAME_BYTES_MAX),
            next: vec![Instant::ZERO; ways],
            probes: Vec::new(),
            frames: 0,
            log,
            near: wiring.near,
        }
    }

    /// Room for a frame of port `port`, vnet header first; `None` when its memory is full.
    pub(crate) fn reserve(&mut self, port: usize) -> Option<&mut [u8]> {
        self.stores[port].reserve()
    }

    /// The frame of `len` bytes that lies in what was reserved came at `at`.
    pub(crate) fn ingress(&mut self, port: usize, len: usize, at: Instant) {
        let at = at.max(self.ports[port].last_arrival);
        self.ports[port].last_arrival = at;
        let out = self.ports[port].out;
        self.directions[out].counts.frames_in += 1;
        let Some(handle) = self.admit(port, len, at, true) else {
            self.directions[out].counts.lost_memory += 1;
            return;
        };
        let segments = self.frame(handle).segments();
        self.enter(out, handle, Run::fresh(segments, at));
    }

    /// Keeps a frame of `len` bytes, vnet header included.
    fn admit(&mut self, store: usize, len: usize, at: Instant, own_probes: bool) -> Option<u64> {
        let bytes = self.stores[store].reserved(len);
        let vnet = VirtioNetHdr::parse(bytes)?;
        let bytes = bytes.get(VNET_HDR_BYTES..)?;
        let frame = SuperFrame::parse(vnet, bytes);
        let ect = wire::rewrite::ecn(bytes).is_some_and(|e| e == 1 || e == 2);
        self.frames += 1;
        let tag = FrameTag {
            arrived: at,
            number: self.frames,
            marks: if ect { Marks::ECT } else { Marks::NONE },
            probe: own_probes.then(|| probe::sequence_of(bytes)).flatten(),
        };
        if let Some(log) = &mut self.log {
            let gso = if frame.segments() > 1 {
                frame.vnet().gso_size
            } else {
                0
            };
            log.frame(&FrameRecord {
                time: at,
                number: tag.number,
                port: u16::try_from(store).unwrap_or(u16::MAX),
                segments: frame.segments(),
                frame_bytes: frame.frame_len(),
                segment_payload_bytes: gso,
                header_bytes: u16::try_from(frame.header_len()).unwrap_or(u16::MAX),
                flow: frame.flow(),
                captured: bytes,
            });
        }
        let number = self.stores[store].commit(len, frame, tag);
        Some(handle_of(store, number))
    }

    /// Sends segments of a frame down a direction.
    fn enter(&mut self, way: usize, handle: u64, run: Run) {
        let Run {
            first,
            count,
            at,
            marks,
            damage,
        } = run;
        let (root, _) = self.root(handle);
        let (frame, _) = self.stores[store_of(root)].frame(number_of(root));
        let tag = self.stores[store_of(root)].tag(number_of(root));
        if !self.directions[way].middleboxes.is_empty() {
            let passes = self.meddle(way, handle, first);
            if !passes {
                self.lose(way, handle, first, count, at, DropCause::Middlebox);
                return;
            }
        }
        let last = frame.segments() - 1;
        let spec = &self.directions[way].spec;
        let (medium, hole) = (spec.medium, spec.black_hole_above_bytes);
        let marks = marks.with(tag.marks);
        let mut from = first;
        let end = first + count;
        while from < end {
            // All but the last segment are of one size.
            let full = frame.segment_frame_bytes(from);
            let alike = frame.segment_frame_bytes(last) == full;
            let until = if alike || from > last {
                end
            } else {
                end.min(last.max(from + 1))
            };
            let l3 = full.saturating_sub(u32::try_from(frame.network_offset()).unwrap_or(14));
            if hole.is_some_and(|most| l3 > most) {
                self.lose(way, handle, from, until - from, at, DropCause::TooBig);
                from = until;
                continue;
            }
            let train = Train {
                handle,
                first: from,
                count: until - from,
                wire_bytes: medium.wire_bytes(full),
                flow: frame.flow(),
                marks,
                damage,
                at,
                spacing: Spacing::TOGETHER,
            };
            let direction = &mut self.directions[way];
            let mut log = FateLog {
                counters: &mut direction.counts.link,
                fates: &mut self.fates,
                books: Books {
                    log: self.log.as_mut(),
                    stores: &self.stores,
                    versions: &self.versions,
                },
                way,
            };
            direction.pipeline.handle_train(train, &mut log);
            self.next[way] = Instant::ZERO;
            self.settle_fates();
            from = until;
        }
    }

    /// Lets the middleboxes of a direction look at the frame; false when they drop it.
    fn meddle(&mut self, way: usize, handle: u64, first: u16) -> bool {
        let (root, version) = self.root(handle);
        let store = &mut self.stores[store_of(root)];
        let (frame, _) = store.frame(number_of(root));
        let partial = frame.vnet().needs_csum();
        let bytes = match version {
            Some(v) => {
                let version = &mut self.versions[v];
                &mut version.header[..version.header_len]
            }
            None => {
                let bytes = store.bytes_mut(number_of(root));
                bytes.get_mut(VNET_HDR_BYTES..).unwrap_or_default()
            }
        };
        self.directions[way]
            .middleboxes
            .pass(bytes, &frame, first, partial)
    }

    /// Books segments that a node or box lost; `first` and `at` are for the log.
    fn lose(
        &mut self,
        way: usize,
        handle: u64,
        first: u16,
        count: u16,
        at: Instant,
        cause: DropCause,
    ) {
        let frame = self.frame(handle);
        let train = Train {
            handle,
            first,
            count,
            wire_bytes: self.directions[way]
                .spec
                .medium
                .wire_bytes(frame.segment_frame_bytes(first)),
            flow: frame.flow(),
            marks: Marks::NONE,
            damage: 0,
            at,
            spacing: Spacing::TOGETHER,
        };
        let mut log = FateLog {
            counters: &mut self.directions[way].counts.link,
            fates: &mut self.fates,
            books: Books {
                log: self.log.as_mut(),
                stores: &self.stores,
                versions: &self.versions,
            },
            way,
        };
        log.on_event(&Event {
            stage: u8::MAX,
            train,
            decision: Decision::lost(cause),
        });
        self.settle_fates();
    }

    fn lose_release(&mut self, way: usize, release: Release, handle: u64, cause: DropCause) {
        let (first, count, at) = (release.first, release.count, release.last_at);
        self.lose(way, handle, first, count, at, cause);
    }

    /// Tells the stores what a pipeline decided.
    fn settle_fates(&mut self) {
        while let Some((handle, count)) = self.fates.copied.pop() {
            self.retain(handle, count);
        }
        while let Some((handle, count)) = self.fates.dropped.pop() {
            let (root, _) = self.root(handle);
            let tag = self.stores[store_of(root)].tag(number_of(root));
            if let Some(sequence) = tag.probe {
                let forward = store_of(root) == self.near;
                self.see_probe(sequence, forward, tag.arrived, None);
            }
            self.release(handle, count);
        }
    }

    fn see_probe(&mut self, sequence: u64, forward: bool, arrived: Instant, due: Option<Instant>) {
        if self.probes.len() < PROBES_MAX {
            self.probes.push(ProbeSeen {
                forward,
                sequence,
                arrived,
                due,
            });
        }
    }

    /// Moves everything that is due at `now`.
    pub(crate) fn poll(&mut self, now: Instant) -> Poll {
        // What feeds other links first, in the order of time: a queue behind a node must see its
        // arrivals as they came, however late this is called.
        while let Some((way, at)) = self.earliest_feeder(now) {
            if let Some(release) = self.poll_direction(way, at) {
                self.arrive(way, release);
            }
        }
        for way in 0..self.directions.len() {
            while self.next[way] <= now && !self.directions[way].feeds {
                if let Some(release) = self.poll_direction(way, now)
                    && let Some(port) = self.arrive(way, release)
                    && self.ports[port].batch.is_full()
                {
                    return Poll::Flush(port);
                }
            }
        }
        if let Some(port) = self.ports.iter().position(|p| !p.in_batch.is_empty()) {
            return Poll::Flush(port);
        }
        Poll::Wait(self.next.iter().copied().min().unwrap_or(Instant::MAX))
    }

    /// The direction towards a node in which something is due first, if by `now`.
    fn earliest_feeder(&self, now: Instant) -> Option<(usize, Instant)> {
        let due = self.next.iter().copied().enumerate();
        let due = due.filter(|&(way, at)| at <= now && self.directions[way].feeds);
        due.min_by_key(|&(_, at)| at)
    }

    /// Lets a direction go on to `now`: the next segments that leave it, if any do.
    fn poll_direction(&mut self, way: usize, now: Instant) -> Option<Release> {
        let direction = &mut self.directions[way];
        let mut log = FateLog {
            counters: &mut direction.counts.link,
            fates: &mut self.fates,
            books: Books {
                log: self.log.as_mut(),
                stores: &self.stores,
                versions: &self.versions,
            },
            way,
        };
        let output = direction.pipeline.poll_output(now, &mut log);
        match output {
            Output::Timeout(at) => self.next[way] = at,
            Output::Idle => self.next[way] = Instant::MAX,
            Output::Release(_) => {}
        }
        if !self.fates.dropped.is_empty() || !self.fates.copied.is_empty() {
            self.settle_fates();
        }
        match output {
            Output::Release(release) => Some(release),
            _ => None,
        }
    }

    /// Segments have come to the end of a link; the port that they leave by, if they do.
    fn arrive(&mut self, way: usize, release: Release) -> Option<usize> {
        match &self.nodes[self.directions[way].to] {
            Node::Port(port) => {
                let port = *port;
                self.egress(way, port, release);
                Some(port)
            }
            Node::Switch(_) => {
                self.at_switch(way, release);
                None
            }
            Node::Router(_) => {
                self.at_router(way, release);
                None
            }
        }
    }

    fn at_switch(&mut self, way: usize, release: Release) {
        let node = self.directions[way].to;
        let (root, _) = self.root(release.handle);
        let tag = self.stores[store_of(root)].tag(number_of(root));
        let seen = &self.directions[way].seen;
        let rules = match &self.nodes[node] {
            Node::Switch(switch) => (!switch.rules.is_empty(), switch.rules.counts()),
            _ => (false, false),
        };
        if seen.frame == tag.number && seen.handle == release.handle && !rules.1 {
            let to = std::mem::take(&mut self.directions[way].seen.to);
            let handle = self.directions[way].seen.version.unwrap_or(release.handle);
            self.spread(way, release, handle, &to);
            self.directions[way].seen.to = to;
            return;
        }
        let fields = self.fields(release.handle);
        let mut to = std::mem::take(&mut self.to);
        if let Node::Switch(switch) = &mut self.nodes[node] {
            switch.forward(&fields, way ^ 1, &mut to);
        }
        if rules.0 {
            self.by_the_rules(way, release, &fields, &to, rules.1);
        } else {
            self.spread(way, release, release.handle, &to);
            self.remember(way, tag.number, release.handle, &to, None);
        }
        self.to = to;
    }

    /// Applies a switch's rules before its own decision `to`.
    fn by_the_rules(
        &mut self,
        way: usize,
        release: Release,
        fields: &Fields,
        to: &[usize],
        each: bool,
    ) {
        let node = self.directions[way].to;
        let step = if each { 1 } else { release.count };
        let mut first = release.first;
        while first < release.first + release.count {
            let part = Release {
                first,
                count: step,
                ..release
            };
            first += step;
            let ruling = match &mut self.nodes[node] {
                Node::Switch(switch) => switch.rules.rule(fields, way, step),
                Node::Router(router) => router.rules.rule(fields, way, step),
                Node::Port(_) => Ruling::default(),
            };
            if ruling.dropped.is_some() {
                self.lose_release(way, part, part.handle, DropCause::Filtered);
                continue;
            }
            let handle = self.rewritten(part.handle, part.count, &ruling);
            let mut to = ruling.to.unwrap_or_else(|| to.to_vec());
            to.extend(&ruling.mirrors);
            // Never back where it came from: two switches would play ball for ever.
            to.retain(|&next| next != way ^ 1);
            self.spread(way, part, handle, &to);
            if handle != part.handle {
                self.close(handle);
            }
        }
    }

    /// Another version of the frame where rules change it; the segments are the version's then.
    fn rewritten(&mut self, handle: u64, count: u16, ruling: &Ruling) -> u64 {
        if ruling.rewrites.is_empty() {
            return handle;
        }
        let (version, index) = self.version_of(handle);
        let (root, _) = self.root(version);
        let partial = self.frame(root).vnet().needs_csum();
        let kept = &mut self.versions[index];
        for rewrite in &ruling.rewrites {
            rewrite.apply(&mut kept.header[..kept.header_len], partial);
        }
        self.hand_over(handle, index, count);
        version
    }

    fn remember(
        &mut self,
        way: usize,
        frame: u64,
        handle: u64,
        to: &[usize],
        version: Option<u64>,
    ) {
        if let Some(old) = self.directions[way].seen.version.take() {
            self.close(old);
        }
        let seen = &mut self.directions[way].seen;
        seen.frame = frame;
        seen.handle = handle;
        seen.to.clear();
        seen.to.extend_from_slice(to);
        seen.version = version;
    }

    /// Sends segments on by several directions, or by none. `handle` owns the segments already.
    fn spread(&mut self, way: usize, release: Release, handle: u64, to: &[usize]) {
        let Some((_, others)) = to.split_first() else {
            self.lose_release(way, release, handle, DropCause::NoRoute);
            return;
        };
        for _ in others {
            self.retain(handle, release.count);
        }
        for &next in to {
            self.pass_to(next, release, handle);
        }
    }

    /// Sends segments down the next link. Boxes there change a version of their own: the frame may be
    /// on its way elsewhere too.
    fn pass_to(&mut self, next: usize, release: Release, handle: u64) {
        if self.directions[next].middleboxes.is_empty() {
            self.enter(next, handle, Run::of(&release));
            return;
        }
        let (version, index) = self.version_of(handle);
        self.hand_over(handle, index, release.count);
        self.enter(next, version, Run::of(&release));
        self.close(version);
    }

    fn at_router(&mut self, way: usize, release: Release) {
        let node = self.directions[way].to;
        let (root, _) = self.root(release.handle);
        let tag = self.stores[store_of(root)].tag(number_of(root));
        let Node::Router(router) = &self.nodes[node] else {
            return;
        };
        let (has_rules, each) = (!router.rules.is_empty(), router.rules.counts());
        let seen = &self.directions[way].seen;
        let known = seen.frame == tag.number && seen.handle == release.handle;
        if known && !has_rules && !seen.to.is_empty() {
            let (to, version) = (seen.to[0], seen.version);
            let handle = version.unwrap_or(release.handle);
            if let Some(version) = version {
                self.hand_over(release.handle, version_index(version), release.count);
            }
            self.pass_to(to, release, handle);
            return;
        }
        let fields = self.fields(release.handle);
        if !has_rules {
            if let Some((out, version)) = self.route(way, release, release.handle, &fields) {
                self.remember(way, tag.number, release.handle, &[out], Some(version));
                self.pass_to(out, release, version);
            }
            return;
        }
        let step = if each { 1 } else { release.count };
        for first in (release.first..release.first + release.count).step_by(step.into()) {
            let part = Release {
                first,
                count: step,
                ..release
            };
            let ruling = match &mut self.nodes[node] {
                Node::Router(router) => router.rules.rule(&fields, way, step),
                _ => Ruling::default(),
            };
            self.route_by_ruling(way, part, &fields, ruling);
        }
    }

    /// What a router does with segments after its rules have spoken: what they rewrite is routed as
    /// rewritten, what they send somewhere goes there, mirrored copies go as they are.
    fn route_by_ruling(&mut self, way: usize, part: Release, fields: &Fields, ruling: Ruling) {
        if ruling.dropped.is_some() {
            self.lose_release(way, part, part.handle, DropCause::Filtered);
            return;
        }
        for &mirror in &ruling.mirrors {
            self.retain(part.handle, part.count);
            self.pass_aged(way, mirror, part, part.handle);
        }
        let handle = self.rewritten(part.handle, part.count, &ruling);
        if let Some((&last, others)) = ruling.to.as_ref().and_then(|to| to.split_last()) {
            for &next in others {
                self.retain(handle, part.count);
                self.pass_aged(way, next, part, handle);
            }
            self.pass_aged(way, last, part, handle);
        } else {
            let fields = if handle == part.handle {
                *fields
            } else {
                self.fields(handle)
            };
            if let Some((out, version)) = self.route(way, part, handle, &fields) {
                self.pass_to(out, part, version);
                self.close(version);
            }
        }
        if handle != part.handle {
            self.close(handle);
        }
    }

    /// Sends segments where a router's rule says, a hop older, so that rules that send in a circle end
    /// as routes do.
    fn pass_aged(&mut self, way: usize, next: usize, part: Release, handle: u64) {
        let ttl = self.fields(handle).ttl;
        if ttl <= 1 {
            self.lose_release(way, part, handle, DropCause::TtlExceeded);
            return;
        }
        let (version, index) = self.version_of(handle);
        let kept = &mut self.versions[index];
        wire::rewrite::decrement_ttl(&mut kept.header[..kept.header_len], 1);
        self.hand_over(handle, index, part.count);
        self.pass_to(next, part, version);
        self.close(version);
    }

    /// Routes segments: the direction by which they leave and the version that owns them then. `None`
    /// when they end here; answers are on their way then.
    fn route(
        &mut self,
        way: usize,
        release: Release,
        handle: u64,
        fields: &Fields,
    ) -> Option<(usize, u64)> {
        let node = self.directions[way].to;
        let interfaces = match &self.nodes[node] {
            Node::Router(router) => &router.interfaces[..],
            _ => &[],
        };
        let Some(at) = interfaces.iter().position(|i| i.out == way ^ 1) else {
            self.lose_release(way, release, handle, DropCause::NoRoute);
            return None;
        };
        let mut answer = [0_u8; ANSWER_BYTES_MAX];
        let routing = self.decide(node, fields, release, handle, at, &mut answer);
        match routing {
            Routing::Ignore => {
                self.lose_release(way, release, handle, DropCause::NoRoute);
                None
            }
            Routing::Consumed { answer: len } => {
                self.release(handle, release.count);
                self.answer(way ^ 1, &answer, len, release.last_at);
                None
            }
            Routing::Drop { cause, answer: len } => {
                self.lose_release(way, release, handle, cause);
                self.answer(way ^ 1, &answer, len, release.last_at);
                None
            }
            Routing::Forward { interface, to_mac } => {
                let Node::Router(router) = &self.nodes[node] else {
                    return None;
                };
                let leaving = &router.interfaces[interface];
                let (out, mac) = (leaving.out, leaving.mac);
                let (version, index) = self.version_of(handle);
                let kept = &mut self.versions[index];
                let header = &mut kept.header[..kept.header_len];
                wire::rewrite::set_source_mac(header, mac);
                wire::rewrite::set_destination_mac(header, to_mac);
                wire::rewrite::decrement_ttl(header, 1);
                self.hand_over(handle, index, release.count);
                Some((out, version))
            }
        }
    }

    fn decide(
        &mut self,
        node: usize,
        fields: &Fields,
        release: Release,
        handle: u64,
        at: usize,
        answer: &mut [u8],
    ) -> Routing {
        let (root, version) = self.root(handle);
        let (frame, range) = self.stores[store_of(root)].frame(number_of(root));
        let l3 = frame
            .segment_frame_bytes(release.first)
            .saturating_sub(u32::try_from(frame.network_offset()).unwrap_or(14));
        let stored = &self.stores[store_of(root)].memory()[range.start + VNET_HDR_BYTES..range.end];
        let bytes = match version {
            Some(v) => {
                let header = &self.versions[v].header[..self.versions[v].header_len];
                if frame.protocol() == Protocol::Icmp {
                    // To be answered the message must be whole.
                    self.scratch.clear();
                    self.scratch.extend_from_slice(header);
                    self.scratch
                        .extend_from_slice(stored.get(header.len()..).unwrap_or_default());
                    &self.scratch[..]
                } else {
                    header
                }
            }
            None => stored,
        };
        let Node::Router(router) = &mut self.nodes[node] else {
            return Routing::Ignore;
        };
        router.route(bytes, fields, l3, at, release.last_at, answer)
    }

    /// Sends a frame that a node made.
    fn answer(&mut self, way: usize, frame: &[u8], len: Option<usize>, at: Instant) {
        let Some(len) = len else { return };
        let store = self.stores.len() - 1;
        let Some(room) = self.stores[store].reserve() else {
            self.directions[way].counts.lost_memory += 1;
            return;
        };
        room[..VNET_HDR_BYTES].fill(0);
        room[VNET_HDR_BYTES..VNET_HDR_BYTES + len].copy_from_slice(&frame[..len]);
        if let Some(handle) = self.admit(store, VNET_HDR_BYTES + len, at, false) {
            self.enter(way, handle, Run::fresh(1, at));
        }
    }

    /// Puts segments into the batch of a port.
    fn egress(&mut self, way: usize, port: usize, release: Release) {
        let (root, version) = self.root(release.handle);
        let store = store_of(root);
        let (frame, range) = self.stores[store].frame(number_of(root));
        let start = range.start + VNET_HDR_BYTES;
        let bytes = &self.stores[store].memory()[start..range.end];
        let (first, count) = (release.first, release.count);
        let marked = release.marks.has(Marks::CE);
        let done = match version {
            Some(v) => {
                let header = &self.versions[v].header[..self.versions[v].header_len];
                frame.cut_over(header, first, count, &mut self.cut)
            }
            None if marked => {
                let header = &bytes[..frame.changeable_bytes()];
                frame.cut_over(header, first, count, &mut self.cut)
            }
            None => frame.cut(bytes, first, count, &mut self.cut),
        };
        let tag = self.stores[store].tag(number_of(root));
        if let Some(sequence) = tag.probe {
            self.see_probe(sequence, store == self.near, tag.arrived, Some(release.at));
        }
        if done.is_err() {
            self.directions[way].counts.lost_send += 1;
            self.release(release.handle, count);
            return;
        }
        if marked {
            frame.mark_ce(self.cut.headers_mut());
        }
        if release.damage != 0 {
            self.egress_damaged(way, port, release, store, start..range.end);
            return;
        }
        let payload = self.cut.payload();
        let payload = start + payload.start..start + payload.end;
        let vnet = self.cut.vnet().to_bytes();
        let memory = u16::try_from(store).unwrap_or(u16::MAX);
        let port = &mut self.ports[port];
        port.batch.push(vnet, self.cut.headers(), memory, payload);
        port.in_batch.push((way, release));
    }

    /// Sends a segment with one bit flipped: a frame of its own, its checksum completed before the
    /// flip, or the kernel would sign the damage.
    fn egress_damaged(
        &mut self,
        way: usize,
        port: usize,
        release: Release,
        store: usize,
        original: Range<usize>,
    ) {
        let source = &self.stores[store].memory()[original];
        self.scratch.clear();
        self.cut.append_to(source, &mut self.scratch);
        let sum = |bytes: &[u8]| simd::fold(simd::sum(bytes));
        train::finish_checksum_with(self.cut.vnet(), &mut self.scratch, sum);
        // The Ethernet header is left alone: a frame for nobody would be a loss, not a damage.
        let bits = self.scratch.len().saturating_sub(ETHERNET_BYTES) * 8;
        if bits > 0 {
            let bit = usize::try_from(release.damage).unwrap_or(0) % bits;
            self.scratch[ETHERNET_BYTES + bit / 8] ^= 1 << (bit % 8);
        }
        let made = self.stores.len() - 1;
        let len = VNET_HDR_BYTES + self.scratch.len();
        let room = self.stores[made].reserve().filter(|room| room.len() >= len);
        let Some(room) = room else {
            self.directions[way].counts.lost_memory += 1;
            self.release(release.handle, release.count);
            return;
        };
        room[..VNET_HDR_BYTES].fill(0);
        room[VNET_HDR_BYTES..len].copy_from_slice(&self.scratch);
        let admitted = self.admit(made, len, release.at, false);
        // Only now: the original may be the newest frame of the same store.
        self.release(release.handle, release.count);
        let Some(handle) = admitted else {
            return;
        };
        let (_, range) = self.stores[made].frame(number_of(handle));
        let payload = range.start + VNET_HDR_BYTES..range.end;
        let memory = u16::try_from(made).unwrap_or(u16::MAX);
        let port = &mut self.ports[port];
        let vnet = VirtioNetHdr::default().to_bytes();
        port.batch.push(vnet, &[], memory, payload);
        let whole = Release {
            handle,
            first: 0,
            count: 1,
            ..release
        };
        port.in_batch.push((way, whole));
    }

    /// The batch of a port and the memories that it points into.
    pub(crate) fn batch(&mut self, port: usize) -> (&mut SendBatch, &[FrameStore]) {
        (&mut self.ports[port].batch, &self.stores)
    }

    /// A port's batch was sent at `now`; `refused` of its frames were not.
    pub(crate) fn sent(&mut self, port: usize, refused: u64, now: Instant) {
        let mut in_batch = std::mem::take(&mut self.ports[port].in_batch);
        let mut last = None;
        for (way, release) in in_batch.drain(..) {
            if self.log.is_some() {
                self.log_delivery(way, &release, now);
            }
            let direction = &mut self.directions[way];
            direction.counts.account(&release, now);
            if let Some(meter) = &mut direction.meter {
                meter_release(meter, &release, now);
            }
            self.release(release.handle, release.count);
            last = Some(way);
        }
        self.ports[port].in_batch = in_batch;
        if let Some(way) = last {
            self.directions[way].counts.lost_send += refused;
        }
    }

    /// Rows for segments that left the network at `now`.
    fn log_delivery(&mut self, way: usize, release: &Release, now: Instant) {
        let (root, _) = self.root(release.handle);
        let (frame, _) = self.stores[store_of(root)].frame(number_of(root));
        let number = self.stores[store_of(root)].tag(number_of(root)).number;
        let Some(log) = &mut self.log else { return };
        log.row(&Row {
            time: release.at,
            time_step_fs: 0,
            departs: now,
            departs_step_fs: 0,
            frame: number,
            queue_bytes: 0,
            queue_packets: 0,
            wire_bytes: release.wire_bytes,
            first: release.first,
            count: release.count,
            link: u16::try_from(way).unwrap_or(u16::MAX),
            stage: u8::MAX,
            decision: Code::DELIVERED,
            flow: frame.flow(),
            detail: 0,
        });
    }

    /// Hands the log over for writing, when there is nothing else to do.
    pub(crate) fn flush_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }

    /// A frame of port `port` was lost before it came in, for want of memory or by the kernel.
    pub(crate) fn lost_at(&mut self, port: usize, why: Lost) {
        let out = self.ports[port].out;
        let counts = &mut self.directions[out].counts;
        match why {
            Lost::Memory => {
                counts.frames_in += 1;
                counts.lost_memory += 1;
            }
            Lost::Kernel(n) => counts.lost_receive += n,
        }
    }

    /// Changes a direction from `at` on.
    pub(crate) fn change(&mut self, way: usize, at: Instant, change: Change) {
        if let Some(direction) = self.directions.get_mut(way) {
            direction.pipeline.schedule(at, change);
            self.next[way] = Instant::ZERO;
            if let (Change::Rate(rate), Some(spec)) = (change, &mut direction.spec.rate) {
                // What was due is no measure any more; counting anew begins with the new rate.
                direction.meter = None;
                spec.server = link::spec::ServerSpec::Rate(rate);
            }
        }
    }

    /// Other rules for a node from now on; false when it takes none.
    pub(crate) fn set_rules(&mut self, node: usize, rules: Vec<crate::node::Rule>) -> bool {
        // What was decided before does not hold any more.
        for way in 0..self.directions.len() {
            self.remember(way, 0, 0, &[], None);
        }
        match self.nodes.get_mut(node) {
            Some(Node::Switch(switch)) => switch.rules.replace(rules),
            Some(Node::Router(router)) => router.rules.replace(rules),
            _ => return false,
        }
        true
    }

    /// A node's rules with what they have met so far.
    pub(crate) fn rules(&self, node: usize) -> &[crate::node::Rule] {
        match self.nodes.get(node) {
            Some(Node::Switch(switch)) => switch.rules.list(),
            Some(Node::Router(router)) => router.rules.list(),
            _ => &[],
        }
    }

    /// Counts since the last reset, each direction by itself.
    pub(crate) fn counts(&self) -> impl Iterator<Item = &DirectionCounts> + '_ {
        self.directions.iter().map(|d| &d.counts)
    }

    /// Counts anew.
    pub(crate) fn reset_counts(&mut self) {
        for direction in &mut self.directions {
            direction.counts = DirectionCounts::default();
            direction.meter = meter_of(&direction.spec);
        }
        self.probes = Vec::with_capacity(PROBES_PREALLOCATED);
    }

    /// How exactly each direction kept its rate; empty where it has none or is not a host's.
    pub(crate) fn rate_errors(&mut self, now: Instant) -> Vec<Vec<RateError>> {
        let meters = self.directions.iter_mut().map(|d| d.meter.as_mut());
        meters
            .map(|m| m.map_or_else(Vec::new, |m| m.errors(now)))
            .collect()
    }

    /// What became of the lab's own probes since the last call.
    pub(crate) fn take_probes(&mut self) -> Vec<ProbeSeen> {
        std::mem::take(&mut self.probes)
    }

    /// Segments on their way.
    pub(crate) fn segments_waiting(&self) -> u64 {
        self.directions
            .iter()
            .map(|d| d.pipeline.segments_waiting())
            .sum()
    }

    /// True when no frame is kept any more. Versions that a direction has open keep none by
    /// themselves.
    pub(crate) fn is_empty(&self) -> bool {
        let stored: usize = self.stores.iter().map(FrameStore::frames).sum();
        let versions = self.versions.iter().map(|v| v.outstanding);
        stored == 0 && versions.sum::<u32>() == 0
    }

    /// Memory set aside for frames.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.stores.iter().map(FrameStore::capacity_bytes).sum()
    }

    fn fields(&self, handle: u64) -> Fields {
        let (root, version) = self.root(handle);
        let (_, range) = self.stores[store_of(root)].frame(number_of(root));
        match version {
            Some(v) => Fields::parse(&self.versions[v].header[..self.versions[v].header_len]),
            None => {
                let memory = self.stores[store_of(root)].memory();
                Fields::parse(&memory[range.start + VNET_HDR_BYTES..range.end])
            }
        }
    }

    fn frame(&self, handle: u64) -> SuperFrame {
        let (root, _) = self.root(handle);
        self.stores[store_of(root)].frame(number_of(root)).0
    }

    /// The stored frame behind a handle, and its version.
    fn root(&self, handle: u64) -> (u64, Option<usize>) {
        if store_of(handle) == VERSIONS {
            let index = version_index(handle);
            (self.versions[index].parent, Some(index))
        } else {
            (handle, None)
        }
    }

    /// A version of the frame that may be changed, with nothing on its way yet.
    fn version_of(&mut self, handle: u64) -> (u64, usize) {
        let (root, version) = self.root(handle);
        let (frame, range) = self.stores[store_of(root)].frame(number_of(root));
        let mut header = [0; HEADER_BYTES_MAX];
        let header_len = frame.changeable_bytes();
        match version {
            Some(v) => header = self.versions[v].header,
            None => {
                let bytes = &self.stores[store_of(root)].memory()[range];
                let bytes = &bytes[VNET_HDR_BYTES..];
                header[..header_len].copy_from_slice(&bytes[..header_len]);
            }
        }
        let mut made = Version {
            parent: root,
            header,
            header_len,
            outstanding: 0,
            generation: 0,
            open: true,
        };
        let index = if let Some(index) = self.versions_free.pop() {
            made.generation = self.versions[index].generation + 1;
            self.versions[index] = made;
            index
        } else {
            self.versions.push(made);
            self.versions.len() - 1
        };
        let number = (self.versions[index].generation << VERSION_INDEX_BITS) | index as u64;
        (handle_of(VERSIONS, number), index)
    }

    /// No further segments will be sent as this version.
    fn close(&mut self, handle: u64) {
        if store_of(handle) == VERSIONS {
            let index = version_index(handle);
            self.versions[index].open = false;
            self.free_if_done(index);
        }
    }

    /// Segments of a frame go on as another version of it.
    fn hand_over(&mut self, from: u64, to: usize, count: u16) {
        self.versions[to].outstanding += u32::from(count);
        if let (_, Some(old)) = self.root(from) {
            self.versions[old].outstanding -= u32::from(count);
            self.free_if_done(old);
        }
    }

    fn free_if_done(&mut self, index: usize) {
        let version = &self.versions[index];
        if !version.open && version.outstanding == 0 {
            self.versions_free.push(index);
        }
    }

    fn retain(&mut self, handle: u64, count: u16) {
        let (root, version) = self.root(handle);
        if let Some(v) = version {
            self.versions[v].outstanding += u32::from(count);
        }
        self.stores[store_of(root)].retain(number_of(root), count);
    }

    fn release(&mut self, handle: u64, count: u16) {
        let (root, version) = self.root(handle);
        if let Some(v) = version {
            self.versions[v].outstanding -= u32::from(count);
            self.free_if_done(v);
        }
        self.stores[store_of(root)].release(number_of(root), count);
    }
}

/// A meter for the rate of a direction, if it has one rate.
fn meter_of(spec: &link::spec::DirectionSpec) -> Option<RateMeter> {
    match &spec.rate.as_ref()?.server {
        link::spec::ServerSpec::Rate(rate) => Some(RateMeter::new(*rate)),
        link::spec::ServerSpec::Trace(_) => None,
    }
}

fn meter_release(meter: &mut RateMeter, release: &Release, now: Instant) {
    let apart = release.last_at.saturating_since(release.at).as_ns();
    for k in 0..u64::from(release.count) {
        let steps = u64::from(release.count).saturating_sub(1).max(1);
        let due = release.at + Duration::from_ns(apart * k / steps);
        meter.account(release.wire_bytes.into(), due, now);
    }
}

/// Why a frame did not come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    Memory,
    Kernel(u64),
}

const fn handle_of(store: usize, number: u64) -> u64 {
    ((store as u64) << 48) | (number & NUMBER_MASK)
}

const fn store_of(handle: u64) -> usize {
    (handle >> 48) as usize
}

const fn number_of(handle: u64) -> u64 {
    handle & NUMBER_MASK
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "it was an index when the handle was made"
)]
const fn version_index(handle: u64) -> usize {
    (handle & ((1 << VERSION_INDEX_BITS) - 1)) as usize
}

/// Of a version's number: its place; the other 24 bits are how often that was used.
const VERSION_INDEX_BITS: u32 = 24;
const ETHERNET_BYTES: usize = 14;
const NUMBER_MASK: u64 = (1 << 48) - 1;
/// The store number that means a version.
const VERSIONS: usize = 0xffff;
/// A vnet header, two VLAN tags beyond the Ethernet header, and the largest GSO packet.
pub(crate) const FRAME_BYTES_MAX: usize = VNET_HDR_BYTES + 14 + 8 + 65_536;
/// Frames in one system call: few enough that the last is not late for the sake of the first.
const BATCH_FRAMES: usize = 32;
/// So far behind, overdue neighbours leave as one piece: they would leave in one burst anyhow, and
/// this costs a tenth. Above what a wake-up or one batch takes, below what counts as late.
const BEHIND: Duration = Duration::from_us(250);
/// Trains set aside for at each end of the line; it grows when first filled further.
const PORT_TRAINS: usize = 1 << 10;
/// Memory for what routers say and for damaged copies.
const MADE_BYTES: usize = 4 << 20;
/// An ICMPv6 error quotes at most the minimum MTU of 1280 bytes.
const ANSWER_BYTES_MAX: usize = 1_514;
/// Probes of three minutes; a longer phase grows the list once in a while.
const PROBES_PREALLOCATED: usize = 1 << 16;
/// Probes remembered in a phase: over an hour at 200/s both ways would be 1.4 M.
const PROBES_MAX: usize = 1 << 20;
