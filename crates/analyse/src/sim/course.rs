//! One simulation from its begin to its end, and what is kept of it.

use fault::Failure;
use job::Context;
use report::RunFolder;
use report::model::SampleRecord;
use sim::{FlowInfo, Gaps, World};
use tcp::Pacing;
use units::{Bytes, Duration, Instant, Rate};
use wire::tcp_info::TcpInfo;

use lab::model::Planned;

/// How long, and what is kept of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course<'a> {
    pub(crate) name: &'a str,
    pub(crate) time: Duration,
    pub(crate) ramp: Duration,
    pub(crate) every: Duration,
    pub(crate) capture: Option<Duration>,
    /// Seed of the search for the rate.
    pub(crate) finds: Option<u64>,
    /// Samples are kept to tell how it settled, if they are not too many.
    pub(crate) settles: bool,
    /// Samples are kept for the rules.
    pub(crate) explains: bool,
}

/// The bottleneck's queue and the drops, sample by sample.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueTrack {
    /// Time and deepest level so far, before the first drop.
    levels: Vec<(Instant, u64)>,
    pub(crate) first_drop: Option<Instant>,
}

impl QueueTrack {
    fn look(&mut self, world: &World, planned: &Planned) {
        if self.first_drop.is_some() {
            return;
        }
        if queue_drops(world, planned)[0] > 0 {
            self.first_drop = Some(world.now());
        } else if let Some(hop) = planned.bottleneck {
            let level = world.counters(hop.link, hop.way).queue_bytes_max;
            self.levels.push((world.now(), level));
        }
    }

    /// Fastest growth over half a second.
    pub(crate) fn growth(&self) -> Option<u64> {
        let mut from = 0;
        let mut most = None;
        for (at, level) in &self.levels {
            // The last level that is half a second old.
            while let Some((next, _)) = self.levels.get(from + 1)
                && at.saturating_since(*next) >= GROWS_OVER
            {
                from += 1;
            }
            let (before, low) = self.levels[from];
            let span = at.saturating_since(before);
            if span >= GROWS_OVER {
                let grown = u128::from(level - low) * 1_000_000_000 / u128::from(span.as_ns());
                most = most.max(u64::try_from(grown).ok());
            }
        }
        most
    }
}

/// Data segments that found no room, and those lost otherwise.
fn queue_drops(world: &World, planned: &Planned) -> [u64; 2] {
    let hops = planned.world.flows.first().map(|f| f.forward.as_slice());
    hops.unwrap_or_default()
        .iter()
        .fold([0; 2], |[full, lost], hop| {
            let c = world.counters(hop.link, hop.way);
            [full + c.queue_full + c.early, lost + c.lost]
        })
}

/// What a simulation gave.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) flows: Vec<FlowInfo>,
    /// Payload received, segments sent and sent again by the end of the ramp.
    pub(crate) at_ramp: [u64; 3],
    pub(crate) bytes: u64,
    pub(crate) packets: u64,
    pub(crate) wall: std::time::Duration,
    pub(crate) queue_full: u64,
    pub(crate) lost: u64,
    pub(crate) queue_max_bytes: u64,
    pub(crate) track: QueueTrack,
    pub(crate) passed: Option<Vec<sim::Passed>>,
    /// The senders' samples.
    pub(crate) streams: Vec<throughput::StreamEvidence>,
    pub(crate) kept: Option<Vec<SampleRecord>>,
}

/// Payload received, segments sent and sent again.
type Sums = [u64; 3];

/// A simulation on its way.
struct Running<'a> {
    course: &'a Course<'a>,
    planned: &'a Planned,
    world: World,
    gaps: Option<Gaps>,
    streams: Vec<throughput::StreamEvidence>,
    track: QueueTrack,
    kept: Option<Vec<SampleRecord>>,
    at_ramp: Option<Sums>,
    passed: Option<Vec<sim::Passed>>,
}

impl Course<'_> {
    /// Simulates to the end, or until the user asks to stop; samples go into the folder too.
    pub(crate) fn run(
        &self,
        planned: &Planned,
        context: &Context,
        mut folder: Option<&mut RunFolder>,
    ) -> Result<Outcome, Failure> {
        let mut running = Running::new(self, planned)?;
        let began = std::time::Instant::now();
        let (ramp, end) = (Instant::ZERO + self.ramp, Instant::ZERO + self.time);
        let captured = self.capture.map(|time| (ramp + time).min(end));
        let (mut at, mut sampled) = (Instant::ZERO, Instant::ZERO);
        loop {
            if at == sampled || at >= end {
                running.sample(at, folder.as_deref_mut())?;
                sampled = at + self.every;
            }
            if at >= ramp && running.at_ramp.is_none() {
                running.end_ramp(captured.is_some());
            }
            if captured.is_some_and(|to| at >= to) && running.passed.is_none() {
                running.passed = Some(running.world.watched());
            }
            if at >= end || context.interrupted().is_some() {
                break;
            }
            let stops = [Some(sampled), Some(ramp), captured, Some(end)];
            let next = stops.into_iter().flatten().filter(|stop| *stop > at).min();
            at = next.unwrap_or(end);
            running.run_until(at);
        }
        Ok(running.outcome(began.elapsed()))
    }
}

impl<'a> Running<'a> {
    fn new(course: &'a Course<'a>, planned: &'a Planned) -> Result<Self, Failure> {
        let world = World::new(planned.world.clone()).map_err(Failure::usage)?;
        let samples = course.time.as_ns() / course.every.as_ns().max(1) * world.flows() as u64;
        Ok(Self {
            course,
            planned,
            gaps: course.finds.map(|seed| gaps(planned, seed)),
            streams: vec![throughput::StreamEvidence::default(); world.flows()],
            track: QueueTrack::default(),
            kept: (course.settles && samples <= SAMPLES_MAX).then(Vec::new),
            at_ramp: None,
            passed: None,
            world,
        })
    }

    /// Takes a sample of each flow, and of the queue.
    fn sample(&mut self, at: Instant, mut folder: Option<&mut RunFolder>) -> Result<(), Failure> {
        let name = self.course.name;
        for (number, stream) in self.streams.iter_mut().enumerate() {
            let ceiling = self.gaps.as_ref().and_then(|g| g.ceiling(number));
            let info = self.world.flow(number);
            for sample in samples(name, number, at, &info, self.planned, ceiling) {
                if self.course.explains && sample.end == "sender" {
                    stream.samples.push(evidence(&sample));
                }
                if let Some(folder) = &mut folder {
                    folder.append_sample(&sample)?;
                }
                if let Some(kept) = &mut self.kept {
                    kept.push(sample);
                }
            }
        }
        self.track.look(&self.world, self.planned);
        Ok(())
    }

    fn end_ramp(&mut self, captures: bool) {
        self.at_ramp = Some(self.sums());
        if captures {
            self.world.watch(PASSED_MAX);
        }
    }

    fn run_until(&mut self, at: Instant) {
        match &mut self.gaps {
            Some(gaps) => gaps.run_until(&mut self.world, at),
            None => self.world.run_until(at),
        }
    }

    fn flows(&self) -> impl Iterator<Item = FlowInfo> + '_ {
        (0..self.world.flows()).map(|n| self.world.flow(n))
    }

    fn sums(&self) -> Sums {
        self.flows().fold([0; 3], |[bytes, sent, again], f| {
            let copies = f.sender.map_or(0, |s| s.retransmitted);
            [
                bytes + f.received_bytes,
                sent + f.data_packets,
                again + copies,
            ]
        })
    }

    fn outcome(self, wall: std::time::Duration) -> Outcome {
        let flows: Vec<FlowInfo> = self.flows().collect();
        let [queue_full, lost] = queue_drops(&self.world, self.planned);
        let bottleneck = self.planned.bottleneck;
        Outcome {
            at_ramp: self.at_ramp.unwrap_or_default(),
            bytes: self.sums()[0],
            packets: flows.iter().map(|f| f.data_packets + f.ack_packets).sum(),
            wall,
            queue_full,
            lost,
            queue_max_bytes: bottleneck.map_or(0, |hop| {
                self.world.counters(hop.link, hop.way).queue_bytes_max
            }),
            track: self.track,
            passed: self.passed,
            streams: self.streams,
            kept: self.kept,
            flows,
        }
    }
}

fn gaps(planned: &Planned, seed: u64) -> Gaps {
    let segments = vec![planned.segment_bytes; planned.world.flows.len()];
    Gaps::new(seed, &segments)
}

/// What both ends' `tcp_info` would say.
fn samples(
    phase: &str,
    number: usize,
    at: Instant,
    info: &FlowInfo,
    planned: &Planned,
    ceiling: Option<Rate>,
) -> Vec<SampleRecord> {
    let record = |end: &str, bytes: u64, fields: Vec<(&str, u64)>| SampleRecord {
        phase: phase.to_owned(),
        end: end.to_owned(),
        stream: u32::try_from(number).unwrap_or(0),
        t_ns: at.as_ns(),
        app_bytes: bytes,
        tcp_info: fields.into_iter().map(|(n, v)| (n.to_owned(), v)).collect(),
    };
    let mut all = vec![record(
        "receiver",
        info.received_bytes,
        vec![("rcv_space_bytes", info.window_bytes)],
    )];
    if let Some(s) = &info.sender {
        let segment = u64::from(planned.segment_bytes);
        let us = |d: Duration| d.as_ns() / 1_000;
        let flow = &planned.world.flows[number].sender;
        // An application that always has more keeps its buffer full.
        let notsent = match flow.application_rate {
            None => flow.buffer_segments.saturating_sub(s.unacked),
            Some(_) => 0,
        };
        let notsent = notsent.saturating_mul(segment).min(u64::from(u32::MAX));
        let mut fields = vec![
            ("segs_in", info.acks_in),
            ("notsent_bytes", notsent),
            (
                "snd_ssthresh_segments",
                s.ssthresh.unwrap_or(SSTHRESH_UNSET),
            ),
            ("snd_mss_bytes", segment),
            ("rtt_us", us(s.rtt)),
            ("snd_cwnd_segments", s.cwnd),
            ("unacked_segments", s.unacked),
            ("retrans_segments", 0),
            ("total_retrans_segments", s.retransmitted),
            ("bytes_acked", s.acknowledged_bytes),
            ("snd_wnd_bytes", (s.window + s.unacked) * segment),
            ("data_segs_out", info.data_packets),
            ("pacing_rate_bytes_per_second", s.pacing_rate),
        ];
        // One that always has more to send has always something outstanding.
        if flow.application_rate.is_none() {
            fields.push(("busy_time_us", at.as_ns() / 1_000));
            fields.push(("rwnd_limited_us", 0));
            fields.push(("sndbuf_limited_us", 0));
        }
        let set = match flow.pacing {
            Pacing::Rate(rate) if rate.as_bits_per_second() < u64::MAX => Some(rate),
            _ => None,
        };
        if let Some(rate) = ceiling.or(set) {
            let bytes = rate.as_bits_per_second() / 8;
            fields.push(("max_pacing_rate_bytes_per_second", bytes));
        }
        if let Some(min) = s.rtt_min {
            fields.push(("min_rtt_us", us(min)));
        }
        let sent = s.acknowledged_bytes + s.unacked * segment;
        all.push(record("sender", sent, fields));
    }
    all
}

/// A sender's sample as the rules take it.
fn evidence(record: &SampleRecord) -> throughput::Sample {
    let mut info = TcpInfo::default();
    for (name, value) in &record.tcp_info {
        info.set(name, *value);
    }
    throughput::Sample {
        t: Duration::from_ns(record.t_ns),
        info,
        app_bytes: Bytes::new(record.app_bytes),
    }
}

pub(crate) fn counted(outcome: &Outcome, field: fn(&tcp::SenderInfo) -> u64) -> u64 {
    let senders = outcome.flows.iter().filter_map(|f| f.sender.as_ref());
    senders.map(field).sum()
}

/// Linux: no threshold yet.
const SSTHRESH_UNSET: u64 = 0x7fff_ffff;
/// Samples that are kept in memory to tell how a search settled.
const SAMPLES_MAX: u64 = 500_000;
/// Packets of a capture, data and acknowledgments.
pub(crate) const PASSED_MAX: usize = 1_000_000;
/// Short enough to lie before a small queue's first drop, long enough to hold many frames; chosen.
const GROWS_OVER: Duration = Duration::from_ms(500);
