//! The network in motion: frames with their bytes through links, switches and routers.
//!
//! The engine owns the memory of frames in flight, the pipelines of both directions of each link, and
//! the nodes. It is given frames with the time at which they came, and it fills batches of what is to
//! leave by the ports; sockets, clocks and threads are the forwarder's. What switches and routers do
//! is in `nodes`, fragmenting in `fragments`, the memory in [`crate::frames`].

mod fragments;
mod nodes;

use link::record::{Code, FrameRecord, Row};
use link::{
    Change, Decision, DropCause, Event, Link, LinkLog, Marks, Output, Release, SharedBuffer,
    Spacing, Train, Way,
};
use sys::packet::{SendBatch, VNET_HDR_BYTES};
use sys::simd;
use units::{Duration, Instant};
use wire::train::{self, CutBuf, SuperFrame};
use wire::virtio::VirtioNetHdr;

use crate::forward::{DirectionCounts, ProbeSeen};
use crate::frames::Frames;
use crate::groups::Grouping;
use crate::lateness::Lateness;
use crate::log::Logger;
use crate::middlebox::Middleboxes;
use crate::node::{Router, Rules, Switch};
use crate::probe;
use crate::rate::{RateError, RateMeter};
use crate::store::{FrameStore, FrameTag};

/// What the network is made of.
#[derive(Debug)]
pub(crate) struct Wiring {
    pub(crate) nodes: Vec<NodeWiring>,
    /// Two for each link: forward at even places, backward behind it.
    pub(crate) directions: Vec<DirectionWiring>,
    /// The ports whose probes go forward.
    pub(crate) near: Vec<usize>,
    /// Memory for what nodes make: answers, fragments, damaged copies.
    pub(crate) made_bytes: usize,
    /// Those of the switches that have one, by their numbers.
    pub(crate) buffers: Vec<Option<SharedBuffer>>,
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
    /// Of its flows, for a harmonizer.
    pub(crate) grouping: Grouping,
    /// Changes at times after the start.
    pub(crate) schedule: Vec<(Duration, Change)>,
    /// The switch whose buffer its queue shares.
    pub(crate) buffer: Option<usize>,
}

/// The network.
#[derive(Debug)]
pub(crate) struct Engine {
    /// In a store for each port, and one for the frames that nodes make.
    frames: Frames,
    ports: Vec<Port>,
    /// Both directions of one are at twice its place and behind.
    links: Vec<Link>,
    directions: Vec<Direction>,
    nodes: Vec<Node>,
    cut: CutBuf,
    fates: Fates,
    to: Vec<usize>,
    /// A frame put together, where its parts do not lie in a row.
    scratch: Vec<u8>,
    /// When something is next due in each direction: nothing before.
    next: Vec<Instant>,
    probes: Vec<ProbeSeen>,
    frames_admitted: u64,
    log: Option<Logger>,
    /// The ports whose probes go forward.
    near: Vec<usize>,
    /// The shortest delay that a link has, or may have had since the start.
    least_delay: Duration,
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
    to: usize,
    spec: link::spec::DirectionSpec,
    stretch: link::spec::Stretch,
    middleboxes: Middleboxes,
    grouping: Grouping,
    counts: DirectionCounts,
    lateness: Lateness,
    /// Where the rate is constant.
    meter: Option<RateMeter>,
    /// Its rate changes by plan, and is not measured against one of them.
    changes_rate: bool,
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

/// Books what a link decides: counts, fates, the packet log.
struct Books<'a> {
    directions: &'a mut [Direction],
    fates: &'a mut Fates,
    log: Option<&'a mut Logger>,
    frames: &'a Frames,
    link: usize,
}

impl LinkLog for Books<'_> {
    fn on_event(&mut self, way: Way, event: &Event) {
        let way = 2 * self.link + way.place();
        link::Log::on_event(&mut self.directions[way].counts.link, event);
        if let Some(log) = &mut self.log {
            let frame = self.frames.tag(event.train.handle).number;
            let way = u16::try_from(way).unwrap_or(u16::MAX);
            log.row(&Row::of(event, way, frame));
        }
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
        stores.push(FrameStore::new(wiring.made_bytes, FRAME_BYTES_MAX));
        let ways = wiring.directions.len();
        let is_port = |node: usize| matches!(nodes[node], Node::Port(_));
        let delays = wiring.directions.iter().flat_map(|d| {
            let changes = d.schedule.iter().filter_map(|(_, change)| match change {
                Change::Delay(delay) => Some(*delay),
                _ => None,
            });
            changes.chain([d.spec.delay])
        });
        let least_delay = delays.min().unwrap_or(Duration::ZERO);
        let links = wiring.directions.chunks_exact(2);
        let links = links
            .map(|both| link_of([&both[0], &both[1]], &wiring.buffers, start, is_port))
            .collect();
        let directions: Vec<Direction> = wiring
            .directions
            .into_iter()
            .map(|d| {
                let changes_rate = d.schedule.iter().any(|(_, c)| matches!(c, Change::Rate(_)));
                let mut direction = Direction {
                    to: d.to,
                    meter: None,
                    changes_rate,
                    spec: d.spec,
                    middleboxes: d.middleboxes,
                    grouping: d.grouping,
                    stretch: link::spec::Stretch::default(),
                    counts: DirectionCounts::default(),
                    lateness: Lateness::default(),
                    feeds: !is_port(d.to),
                    seen: Seen::default(),
                };
                direction.reset();
                direction
            })
            .collect();
        Self {
            frames: Frames::new(stores),
            ports,
            links,
            directions,
            nodes,
            cut: CutBuf::new(),
            fates: Fates::default(),
            to: Vec::new(),
            scratch: Vec::with_capacity(FRAME_BYTES_MAX),
            next: vec![Instant::ZERO; ways],
            probes: Vec::new(),
            frames_admitted: 0,
            log,
            near: wiring.near,
            least_delay,
        }
    }

    /// Room for a frame of port `port`, vnet header first; `None` when its memory is full.
    pub(crate) fn reserve(&mut self, port: usize) -> Option<&mut [u8]> {
        self.frames.reserve(port)
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
        let segments = self.frames.frame(handle).segments();
        self.enter(out, handle, Run::fresh(segments, at));
    }

    /// Keeps a frame of `len` bytes, vnet header included.
    fn admit(&mut self, store: usize, len: usize, at: Instant, own_probes: bool) -> Option<u64> {
        let bytes = self.frames.reserved(store, len);
        let vnet = VirtioNetHdr::parse(bytes)?;
        let bytes = bytes.get(VNET_HDR_BYTES..)?;
        let frame = SuperFrame::parse(vnet, bytes);
        // Not-ECT and CE are no offers to take marks (RFC 3168 section 5).
        let ect = matches!(frame.ecn(bytes), 1 | 2);
        self.frames_admitted += 1;
        let tag = FrameTag {
            arrived: at,
            number: self.frames_admitted,
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
        Some(self.frames.commit(store, len, frame, tag))
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
        let frame = self.frames.frame(handle);
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
        let group = match spec.harmonizer {
            Some(_) => self.directions[way]
                .grouping
                .group_of(&self.frames.fields(handle)),
            None => 0,
        };
        let marks = marks.with(self.frames.tag(handle).marks);
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
            let stretch = &mut self.directions[way].stretch;
            let (wire_bytes, longer) = stretch.wire_bytes(medium, full, until - from);
            let train = Train {
                handle,
                first: from,
                count: until - from,
                wire_bytes,
                flow: frame.flow(),
                group,
                marks,
                damage,
                at,
                spacing: Spacing::TOGETHER,
            };
            let usual = train.count - longer;
            self.book(way, |link, books| {
                if usual > 0 {
                    link.handle_train(way_of(way), train.part(0, usual), books);
                }
                if longer > 0 {
                    let train = Train {
                        wire_bytes: wire_bytes + 1,
                        ..train.part(usual, longer)
                    };
                    link.handle_train(way_of(way), train, books);
                }
            });
            self.next[way] = Instant::ZERO;
            if self.links[way / 2].is_shared() {
                self.next[way ^ 1] = Instant::ZERO;
            }
            from = until;
        }
    }

    /// Lets the middleboxes of a direction look at the frame; false when they drop it.
    fn meddle(&mut self, way: usize, handle: u64, first: u16) -> bool {
        let frame = self.frames.frame(handle);
        let partial = frame.vnet().needs_csum();
        let bytes = self.frames.beginning_mut(handle);
        let middleboxes = &mut self.directions[way].middleboxes;
        middleboxes.pass(bytes, &frame, first, partial)
    }

    /// Lets the link of a direction do something, and books what it decides.
    fn book<T>(&mut self, way: usize, work: impl FnOnce(&mut Link, &mut Books<'_>) -> T) -> T {
        let mut books = Books {
            directions: &mut self.directions,
            fates: &mut self.fates,
            log: self.log.as_mut(),
            frames: &self.frames,
            link: way / 2,
        };
        let done = work(&mut self.links[way / 2], &mut books);
        if !self.fates.dropped.is_empty() || !self.fates.copied.is_empty() {
            self.settle_fates();
        }
        done
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
        let frame = self.frames.frame(handle);
        let train = Train {
            handle,
            first,
            count,
            wire_bytes: self.directions[way]
                .spec
                .medium
                .wire_bytes(frame.segment_frame_bytes(first)),
            flow: frame.flow(),
            group: 0,
            marks: Marks::NONE,
            damage: 0,
            at,
            spacing: Spacing::TOGETHER,
        };
        let event = Event {
            stage: u8::MAX,
            train,
            decision: Decision::lost(cause),
        };
        self.book(way, |_, books| books.on_event(way_of(way), &event));
    }

    fn lose_release(&mut self, way: usize, release: Release, handle: u64, cause: DropCause) {
        let (first, count, at) = (release.first, release.count, release.last_at);
        self.lose(way, handle, first, count, at, cause);
    }

    /// Tells the memory what a pipeline decided.
    fn settle_fates(&mut self) {
        while let Some((handle, count)) = self.fates.copied.pop() {
            self.frames.retain(handle, count);
        }
        while let Some((handle, count)) = self.fates.dropped.pop() {
            self.see_probe(handle, None);
            self.frames.release(handle, count);
        }
    }

    /// Remembers when one of the lab's own probes is due, `None` where the path dropped it; nothing of
    /// other frames.
    fn see_probe(&mut self, handle: u64, due: Option<Instant>) {
        let tag = self.frames.tag(handle);
        let Some(sequence) = tag.probe else { return };
        if self.probes.len() < PROBES_MAX {
            self.probes.push(ProbeSeen {
                forward: self.near.contains(&self.frames.place(handle).0),
                sequence,
                arrived: tag.arrived,
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

    /// The shortest delay that a link has, or by its schedule will have.
    pub(crate) const fn least_delay(&self) -> Duration {
        self.least_delay
    }

    /// Lets what is overdue of a train leave as one piece at once (`soon`), or only once it is [`BEHIND`].
    pub(crate) fn catch_up_when(&mut self, soon: bool) {
        let behind = if soon { Duration::ZERO } else { BEHIND };
        for (way, direction) in self.directions.iter().enumerate() {
            if !direction.feeds {
                self.links[way / 2].catch_up_when(way_of(way), behind);
            }
        }
    }

    /// The direction towards a node in which something is due first, if by `now`.
    fn earliest_feeder(&self, now: Instant) -> Option<(usize, Instant)> {
        let due = self.next.iter().copied().enumerate();
        let due = due.filter(|&(way, at)| at <= now && self.directions[way].feeds);
        due.min_by_key(|&(_, at)| at)
    }

    /// Lets a direction go on to `now`: the next segments that leave it, if any do.
    fn poll_direction(&mut self, way: usize, now: Instant) -> Option<Release> {
        let output = self.book(way, |link, books| link.poll_output(way_of(way), now, books));
        let link = &self.links[way / 2];
        if link.is_shared() {
            // Both were settled: the other may be due sooner than was known.
            let other = way ^ 1;
            let due = link.next_due(way_of(other)).unwrap_or(Instant::MAX);
            self.next[other] = self.next[other].min(due);
        }
        match output {
            Output::Timeout(at) => self.next[way] = at,
            Output::Idle => self.next[way] = Instant::MAX,
            Output::Release(release) => return Some(release),
        }
        None
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

    /// Puts segments into the batch of a port.
    fn egress(&mut self, way: usize, port: usize, release: Release) {
        let handle = release.handle;
        let (store, range) = self.frames.place(handle);
        let frame = self.frames.frame(handle);
        let bytes = self.frames.stored(handle);
        let (first, count) = (release.first, release.count);
        let marked = release.marks.has(Marks::CE);
        // What is to be marked needs headers of its own.
        let beginning = marked.then(|| &bytes[..frame.changeable_bytes()]);
        let done = match self.frames.changed(handle).or(beginning) {
            Some(header) => frame.cut_over(header, first, count, &mut self.cut),
            None => frame.cut(bytes, first, count, &mut self.cut),
        };
        self.see_probe(handle, Some(release.at));
        if done.is_err() {
            self.directions[way].counts.lost_send += 1;
            self.frames.release(handle, count);
            return;
        }
        if marked {
            frame.mark_ce(self.cut.headers_mut());
        }
        if release.damage != 0 {
            self.egress_damaged(way, port, release);
            return;
        }
        let payload = self.cut.payload();
        let payload = range.start + payload.start..range.start + payload.end;
        let vnet = self.cut.vnet().to_bytes();
        let memory = u16::try_from(store).unwrap_or(u16::MAX);
        let port = &mut self.ports[port];
        port.batch.push(vnet, self.cut.headers(), memory, payload);
        port.in_batch.push((way, release));
    }

    /// Sends a segment with one bit flipped: a frame of its own, its checksum completed before the
    /// flip, or the kernel would sign the damage.
    fn egress_damaged(&mut self, way: usize, port: usize, release: Release) {
        let original = self.frames.stored(release.handle);
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        self.cut.append_to(original, &mut scratch);
        let sum = |bytes: &[u8]| simd::fold(simd::sum(bytes));
        train::finish_checksum_with(self.cut.vnet(), &mut scratch, sum);
        // The Ethernet header is left alone: a frame for nobody would be a loss, not a damage.
        let bits = scratch.len().saturating_sub(ETHERNET_BYTES) * 8;
        if bits > 0 {
            let bit = usize::try_from(release.damage).unwrap_or(0) % bits;
            scratch[ETHERNET_BYTES + bit / 8] ^= 1 << (bit % 8);
        }
        let made = self.make(way, &scratch, release.at);
        self.scratch = scratch;
        // Only now: the original may be the newest frame of the same store.
        self.frames.release(release.handle, release.count);
        let Some(handle) = made else { return };
        let (store, payload) = self.frames.place(handle);
        let memory = u16::try_from(store).unwrap_or(u16::MAX);
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

    /// Keeps a frame of the lab's own making; `None`, counted on `way`, when there is no room.
    fn make(&mut self, way: usize, frame: &[u8], at: Instant) -> Option<u64> {
        self.make_with(way, at, |room| {
            room.get_mut(..frame.len())?.copy_from_slice(frame);
            Some(frame.len())
        })
    }

    /// The batch of a port and the memories that it points into.
    pub(crate) fn batch(&mut self, port: usize) -> (&mut SendBatch, &[FrameStore]) {
        (&mut self.ports[port].batch, self.frames.stores())
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
            direction.lateness.account(&release, now);
            if let Some(meter) = &mut direction.meter {
                meter_release(meter, &release, now);
            }
            self.frames.release(release.handle, release.count);
            last = Some(way);
        }
        self.ports[port].in_batch = in_batch;
        if let Some(way) = last {
            self.directions[way].counts.lost_send += refused;
            self.directions[way].lateness.lose(refused, now);
        }
    }

    /// Rows for segments that left the network at `now`.
    fn log_delivery(&mut self, way: usize, release: &Release, now: Instant) {
        let flow = self.frames.frame(release.handle).flow();
        let number = self.frames.tag(release.handle).number;
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
            flow,
            detail: 0,
        });
    }

    /// Hands the log over for writing, when there is nothing else to do.
    pub(crate) fn flush_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }

    /// A frame of port `port` was lost before it came in, for want of memory or by the kernel; this was noticed at `now`.
    pub(crate) fn lost_at(&mut self, port: usize, why: Lost, now: Instant) {
        let direction = &mut self.directions[self.ports[port].out];
        let counts = &mut direction.counts;
        let lost = match why {
            Lost::Memory => {
                counts.frames_in += 1;
                counts.lost_memory += 1;
                1
            }
            Lost::Kernel(n) => {
                counts.lost_receive += n;
                n
            }
        };
        direction.lateness.lose(lost, now);
    }

    /// Changes a direction from `at` on.
    pub(crate) fn change(&mut self, way: usize, at: Instant, change: Change) {
        if let Some(direction) = self.directions.get_mut(way) {
            self.links[way / 2].schedule(way_of(way), at, change);
            self.next[way] = Instant::ZERO;
            if let Change::Delay(delay) = change {
                self.least_delay = self.least_delay.min(delay);
            }
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

    /// What each direction was late since [`Self::reset_counts`].
    pub(crate) fn lateness(&self) -> Vec<Lateness> {
        self.directions.iter().map(|d| d.lateness.clone()).collect()
    }

    /// Counts anew.
    pub(crate) fn reset_counts(&mut self) {
        for direction in &mut self.directions {
            direction.reset();
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
        self.links.iter().map(Link::segments_waiting).sum()
    }

    /// True when no frame is kept any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Memory set aside for frames.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.frames.capacity_bytes()
    }
}

impl Direction {
    /// Counts and measures anew. Only what leaves by a port is measured.
    fn reset(&mut self) {
        self.counts = DirectionCounts::default();
        self.lateness = Lateness::default();
        let measured = !self.changes_rate && !self.feeds;
        self.meter = meter_of(&self.spec).filter(|_| measured);
    }
}

/// The link of two directions that are each other's way back.
fn link_of(
    both: [&DirectionWiring; 2],
    buffers: &[Option<SharedBuffer>],
    start: Instant,
    is_port: impl Fn(usize) -> bool,
) -> Link {
    let shared = both.map(|d| buffers.get(d.buffer?)?.as_ref());
    let mut link = Link::of_in(shared, both.map(|d| &d.spec), start, PORT_TRAINS, true);
    for (way, direction) in Way::BOTH.into_iter().zip(both) {
        if is_port(direction.to) {
            // What a node passes on must come to the next link at its own time.
            link = link.catching_up_when(way, BEHIND);
        }
        for &(after, change) in &direction.schedule {
            link.schedule(way, start + after, change);
        }
    }
    link
}

/// Which way of its link a direction is.
const fn way_of(direction: usize) -> Way {
    if direction.is_multiple_of(2) {
        Way::Forward
    } else {
        Way::Backward
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

const ETHERNET_BYTES: usize = 14;
/// A vnet header, two VLAN tags beyond the Ethernet header, and the largest GSO packet.
pub(crate) const FRAME_BYTES_MAX: usize = VNET_HDR_BYTES + 14 + 8 + 65_536;
/// Frames in one system call: few enough that the last is not late for the sake of the first.
const BATCH_FRAMES: usize = 32;
/// So far behind, overdue neighbours leave as one piece: they would leave in one burst anyhow, and
/// this costs a tenth. Above what a wake-up or one batch takes, below what counts as late.
const BEHIND: Duration = Duration::from_us(250);
/// Trains set aside for at each end of the line; it grows when first filled further.
const PORT_TRAINS: usize = 1 << 10;
/// An ICMPv6 error quotes at most the minimum MTU of 1280 bytes.
const ANSWER_BYTES_MAX: usize = 1_514;
/// Probes of three minutes; a longer phase grows the list once in a while.
const PROBES_PREALLOCATED: usize = 1 << 16;
/// Probes remembered in a phase: over an hour at 200/s both ways would be 1.4 M.
const PROBES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::PathFile;
    use crate::wiring;
    use std::path::Path;

    fn engine(rest: &str) -> Engine {
        let text = format!(
            "title = \"x\"\n[hosts.a]\n[hosts.b]\n[links.l]\nbetween = [\"a\", \"b\"]\n\
             rate = \"1Gb/s\"\n{rest}"
        );
        let path = PathFile::parse(Path::new("x.toml"), &text).unwrap();
        let wiring = wiring::wiring(&path.network, vec![0], &[1 << 20, 1 << 20]);
        Engine::new(wiring, Instant::ZERO, None)
    }

    /// Windows over which the rate forward is measured, after the counts began anew.
    fn measured(schedule: &str) -> usize {
        let mut engine = engine(schedule);
        engine.reset_counts();
        engine.rate_errors(Instant::ZERO)[0].len()
    }

    #[test]
    fn a_rate_that_changes_by_plan_is_not_measured_against_its_first() {
        assert_eq!(measured(""), 3);
        let changes = "[[schedule]]\nat = \"1s\"\nlink = \"l\"\nrate = \"100Mb/s\"\n";
        assert_eq!(measured(changes), 0);
    }

    #[test]
    fn the_least_delay_is_that_of_any_direction_at_any_time() {
        let ms = Duration::from_ms;
        assert_eq!(engine("").least_delay(), ms(0));
        assert_eq!(engine("delay = \"50ms\"\n").least_delay(), ms(50));
        let change = "delay = \"50ms\"\n[[schedule]]\nat = \"1s\"\nlink = \"l\"\ndelay = \"7ms\"\n";
        let mut engine = engine(change);
        assert_eq!(engine.least_delay(), ms(7));
        engine.change(1, Instant::ZERO, Change::Delay(ms(9)));
        assert_eq!(engine.least_delay(), ms(7));
        engine.change(1, Instant::ZERO, Change::Delay(ms(3)));
        assert_eq!(engine.least_delay(), ms(3));
    }
}
