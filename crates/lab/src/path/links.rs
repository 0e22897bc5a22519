//! Directions of links: which values are possible, and what they need of each other.

use std::io;
use std::path::Path;

use link::QueueLimits;
use link::medium::cable_max;
use link::spec::{
    CoalesceSpec, CodelSpec, DirectionSpec, DisciplineSpec, Duplex, HarmonizerMode, HarmonizerSpec,
    JitterShape, JitterSpec, LossSpec, Medium, Outages, PacketBudget, PolicerSpec, RateSpec,
    ServerSpec, SharedSpec,
};
use link::trace::Trace;
use spans::Spanned;
use units::{Bytes, Duration, Rate};
use wire::classify::Prefix;

use super::network::Middlebox;
use super::raw::{
    Of, RawBucket, RawCodel, RawDirection, RawDiscipline, RawDuplex, RawFqCodel, RawGroup,
    RawHarmonizer, RawLengthen, RawLink, RawLoss, RawLossTable, RawLosses, RawMedium, RawMiddlebox,
    RawMiddleboxName, RawShape, RawShare, RawShuffle,
};
use super::rules::parsed;
use super::{Refusal, UNLIMITED_RATE, refuse};
use crate::groups::{GroupRule, Grouping};

/// What the check of a direction has to know beyond its keys.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    /// Largest packet that comes, network layer bytes.
    pub(super) mtu_bytes: u32,
    /// Delays of both directions together.
    pub(super) rtt: Duration,
    /// Seed where the file names none.
    pub(super) seed: u64,
    /// Reads a file that the path file names.
    pub(super) files: &'a Files<'a>,
    /// The path file.
    pub(super) file: &'a Path,
}

/// Reads the text of a file.
pub(super) type Files<'a> = dyn Fn(&Path) -> io::Result<String> + 'a;

/// The keys of both directions. A direction's own rate or trace takes the place of either of the
/// link's.
pub(super) fn both_directions(link: &RawLink) -> [RawDirection; 2] {
    [(true, &link.forward), (false, &link.backward)].map(|(forward, own)| {
        let mut merged = link.direction(forward);
        if own.rate.is_some() && own.trace.is_none() {
            merged.trace = None;
        }
        if own.trace.is_some() && own.rate.is_none() {
            merged.rate = None;
        }
        if own.seed.is_none() {
            merged.seed = link.seed.map(|s| s.wrapping_add(u64::from(!forward)));
        }
        merged
    })
}

/// The delay, which the default queues of both directions need.
pub(super) fn check_delay(delay: Option<&Of<Duration>>) -> Result<Duration, Refusal> {
    let value = delay.map_or(Duration::ZERO, |d| d.get_ref().0);
    match delay {
        Some(delay) if value > DELAY_MAX => refuse(
            delay,
            format!("delay = {value}: expected at most {DELAY_MAX}"),
        ),
        _ => Ok(value),
    }
}

/// A rate that a link may have.
pub(super) fn check_rate(key: &str, rate: &Of<Rate>) -> Result<Rate, Refusal> {
    let value = rate.get_ref().0;
    if (RATE_MIN..=RATE_MAX).contains(&value) {
        Ok(value)
    } else {
        refuse(
            rate,
            format!("{key} = {value}: expected {RATE_MIN} to {RATE_MAX}"),
        )
    }
}

/// A share at `at`.
pub(super) fn check_share(key: &str, at: usize, share: RawShare) -> Result<f64, Refusal> {
    let RawShare(value) = share;
    if (0.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        Err(Refusal {
            at,
            problem: format!("{key} = {value}: expected a share from 0 to 1"),
        })
    }
}

/// All stages of a direction.
pub(super) fn check_direction(
    raw: &RawDirection,
    context: Context<'_>,
) -> Result<DirectionSpec, Refusal> {
    let medium = check_medium(raw)?;
    let frame = medium.wire_bytes(context.mtu_bytes.saturating_add(ETHERNET_HEADER));
    let share = |key, share: &Option<Spanned<RawShare>>| match share {
        Some(s) => check_share(key, s.span().start, *s.get_ref()),
        None => Ok(0.0),
    };
    let rate = check_queue(raw, context, frame)?;
    let harmonizer = check_harmonizer(raw, context, rate.as_ref(), frame)?;
    Ok(DirectionSpec {
        medium,
        black_hole_above_bytes: within("black_hole_above", &raw.black_hole_above, 68, 65_535)?,
        outages: check_outages(raw)?,
        policer: check_bucket("policer", raw.policer.as_ref(), frame)?,
        flow_cap: check_bucket("flow_cap", raw.flow_cap.as_ref(), frame)?,
        packet_budget: check_budget(raw)?,
        harmonizer,
        rate,
        shared: None,
        loss: check_losses(raw.loss.as_ref())?,
        duplicate: share("duplicate", &raw.duplicate)?,
        corrupt: share("corrupt", &raw.corrupt)?,
        delay: check_delay(raw.delay.as_ref())?,
        jitter: check_jitter(raw)?,
        coalesce: check_coalesce(raw)?,
        seed: raw.seed.unwrap_or(context.seed),
    })
}

/// What both directions share, if the sender of either is half duplex.
pub(super) fn check_shared(
    link: &RawLink,
    raws: &[RawDirection; 2],
    specs: [&mut DirectionSpec; 2],
) -> Result<(), Refusal> {
    let half = |raw: &&RawDirection| is_half(raw);
    let Some(duplex) = raws.iter().find(half).and_then(|raw| raw.duplex.as_ref()) else {
        return match &link.cable {
            Some(cable) => refuse(cable, "cable: expected duplex = \"half\" at an end"),
            None => Ok(()),
        };
    };
    let rate = |spec: &DirectionSpec| match spec.rate.as_ref().map(|r| &r.server) {
        Some(ServerSpec::Rate(rate)) => Some(*rate),
        _ => None,
    };
    let (Some(rate), Some(other)) = (rate(specs[0]), rate(specs[1])) else {
        return refuse(
            duplex,
            "duplex: half duplex shares a medium; expected a rate, the same for both directions",
        );
    };
    if rate != other || rate > HALF_RATE_MAX {
        return refuse(
            duplex,
            format!(
                "duplex: half duplex shares a medium; expected one rate of at most {HALF_RATE_MAX} \
                 for both directions, found {rate} and {other}"
            ),
        );
    }
    let is_ethernet = |spec: &&mut DirectionSpec| matches!(spec.medium, Medium::Ethernet { .. });
    if !specs.iter().all(is_ethernet) {
        return refuse(
            duplex,
            "duplex: expected medium \"ethernet\" with half duplex",
        );
    }
    let cable = link.cable.as_ref().map_or(CABLE, |c| c.get_ref().0);
    let most = cable_max(rate);
    if let Some(stated) = &link.cable
        && (cable == Duration::ZERO || cable > most)
    {
        return refuse(
            stated,
            format!(
                "cable = {cable}: expected 1 ns to {most}, so that there, back and a jam last no \
                 longer than a slot at {rate}"
            ),
        );
    }
    for (spec, raw) in specs.into_iter().zip(raws) {
        let duplex = if is_half(raw) {
            Duplex::Half
        } else {
            Duplex::Full
        };
        spec.shared = Some(SharedSpec { duplex, cable });
    }
    Ok(())
}

fn is_half(raw: &RawDirection) -> bool {
    raw.duplex.as_ref().map(|d| *d.get_ref()) == Some(RawDuplex::Half)
}

fn within(
    key: &str,
    value: &Option<Spanned<u32>>,
    min: u32,
    max: u32,
) -> Result<Option<u32>, Refusal> {
    match value {
        Some(v) if !(min..=max).contains(v.get_ref()) => refuse(
            v,
            format!("{key} = {}: expected {min} to {max}", v.get_ref()),
        ),
        other => Ok(other.as_ref().map(|v| *v.get_ref())),
    }
}

fn check_medium(raw: &RawDirection) -> Result<Medium, Refusal> {
    let gap_bytes = within("gap", &raw.gap, 0, GAP_MAX)?.unwrap_or(GAP_STANDARD);
    match raw.medium.as_ref().map(|m| *m.get_ref()) {
        None | Some(RawMedium::Ethernet) => Ok(Medium::Ethernet { gap_bytes }),
        Some(RawMedium::WanPhy) => Ok(Medium::WanPhy { gap_bytes }),
        Some(RawMedium::None) => match &raw.gap {
            Some(gap) => refuse(gap, "gap: medium \"none\" has no gap between packets"),
            None => Ok(Medium::None),
        },
    }
}

fn check_outages(raw: &RawDirection) -> Result<Outages, Refusal> {
    let mut outages = Outages::default();
    if let Some(list) = &raw.outages {
        if list.get_ref().len() > SPANS_MAX {
            return refuse(list, format!("outages: expected at most {SPANS_MAX}"));
        }
        let mut last = None;
        for &[from, until] in list.get_ref() {
            let (from, until) = (from.0, until.0);
            if from >= until || last.is_some_and(|last| from <= last) {
                return refuse(
                    list,
                    "outages: expected [from, until] in the order of time and apart, such as \
                     [[\"10s\", \"12s\"], [\"20s\", \"21s\"]]",
                );
            }
            last = Some(until);
            outages.spans.push((from, until));
        }
    }
    if let Some(pair) = &raw.outage_every {
        let [period, down] = pair.get_ref().map(|q| q.0);
        if down == Duration::ZERO || down >= period {
            return refuse(
                pair,
                "outage_every: expected [period, time down], the second above 0 and shorter",
            );
        }
        outages.periodic = Some((period, down));
    }
    Ok(outages)
}

fn check_bucket(
    key: &str,
    raw: Option<&Spanned<RawBucket>>,
    frame: u32,
) -> Result<Option<PolicerSpec>, Refusal> {
    let Some(bucket) = raw.map(Spanned::get_ref) else {
        return Ok(None);
    };
    let rate = check_rate(&format!("{key}.rate"), &bucket.rate)?;
    let burst = bucket.burst.get_ref().0;
    if burst < Bytes::new(frame.into()) || burst > BURST_MAX {
        return refuse(
            &bucket.burst,
            format!(
                "{key}.burst: expected {frame} bytes, a full frame on the wire, to {BURST_MAX}"
            ),
        );
    }
    Ok(Some(PolicerSpec { rate, burst }))
}

fn check_budget(raw: &RawDirection) -> Result<Option<PacketBudget>, Refusal> {
    let queue_packets = within("packets_queue", &raw.packets_queue, 1, QUEUE_PACKETS_MAX)?;
    match (&raw.packets_per_second, &raw.packets_queue) {
        (Some(n), _) if !(1..=PACKETS_PER_SECOND_MAX).contains(n.get_ref()) => refuse(
            n,
            format!("packets_per_second: expected 1 to {PACKETS_PER_SECOND_MAX}"),
        ),
        (Some(n), _) => Ok(Some(PacketBudget {
            per_second: *n.get_ref(),
            queue_packets: queue_packets.unwrap_or(1_000),
        })),
        (None, Some(queue)) => refuse(
            queue,
            "packets_queue: expected packets_per_second beside it",
        ),
        (None, None) => Ok(None),
    }
}

fn check_queue(
    raw: &RawDirection,
    context: Context<'_>,
    frame: u32,
) -> Result<Option<RateSpec>, Refusal> {
    if let Some(packets) = &raw.queue_packets
        && *packets.get_ref() == 0
    {
        return refuse(packets, "queue_packets: expected at least 1");
    }
    let server = match (&raw.rate, &raw.trace) {
        (Some(_), Some(trace)) => {
            return refuse(trace, "trace: expected either a rate or a trace");
        }
        (Some(rate), None) => ServerSpec::Rate(check_rate("rate", rate)?),
        (None, Some(trace)) => ServerSpec::Trace(read_trace(trace, context)?),
        (None, None) => return check_no_queue(raw),
    };
    let discipline = check_discipline(raw)?;
    let stated = raw.queue.as_ref().map(|q| q.get_ref().0);
    let stated = stated.filter(|q| q.as_u64() > 0);
    if let (Some(queue), Some(bytes)) = (&raw.queue, stated)
        && bytes < Bytes::new(frame.into())
    {
        return refuse(
            queue,
            format!("queue: a full frame takes {frame} bytes on the wire; none would fit"),
        );
    }
    let own_limit = match discipline {
        DisciplineSpec::Codel(_) => Some(CODEL_PACKETS),
        DisciplineSpec::FqCodel { .. } => Some(FQ_CODEL_PACKETS),
        DisciplineSpec::DropTail { .. } | DisciplineSpec::Red { .. } => None,
    };
    let packets = raw.queue_packets.as_ref().map(|p| *p.get_ref());
    // A queue that the file leaves open is one bandwidth-delay product of the link's round trip.
    let product = || {
        mean_rate(&server)
            .bytes_in(context.rtt)
            .max(QUEUE_MIN.max(Bytes::new(frame.into())))
    };
    let bytes = match (stated, own_limit) {
        (Some(bytes), _) => Some(bytes),
        (None, Some(_)) => None,
        (None, None) => Some(product()),
    };
    Ok(Some(RateSpec {
        server,
        limits: QueueLimits {
            bytes: bytes.map(Bytes::as_u64),
            packets: packets.or(own_limit),
        },
        discipline,
    }))
}

/// Without a rate nothing waits: keys of a queue would mean nothing.
fn check_no_queue(raw: &RawDirection) -> Result<Option<RateSpec>, Refusal> {
    let places = [
        ("queue", raw.queue.as_ref().map(Spanned::span)),
        (
            "queue_packets",
            raw.queue_packets.as_ref().map(Spanned::span),
        ),
        ("discipline", raw.discipline.as_ref().map(Spanned::span)),
        ("mark_above", raw.mark_above.as_ref().map(Spanned::span)),
    ];
    for (key, span) in places {
        if let Some(span) = span {
            return Err(Refusal {
                at: span.start,
                problem: format!("{key}: a queue needs a rate that empties it"),
            });
        }
    }
    Ok(None)
}

fn check_discipline(raw: &RawDirection) -> Result<DisciplineSpec, Refusal> {
    let mark_above = raw.mark_above.as_ref();
    let Some(spanned) = &raw.discipline else {
        return Ok(DisciplineSpec::DropTail {
            mark_above: mark_above.map(|m| m.get_ref().0),
        });
    };
    let is_drop_tail = matches!(spanned.get_ref(), RawDiscipline::DropTail);
    if let (Some(mark), false) = (mark_above, is_drop_tail) {
        return refuse(
            mark,
            "mark_above: only a drop-tail queue has this threshold",
        );
    }
    match spanned.get_ref() {
        RawDiscipline::DropTail => Ok(DisciplineSpec::DropTail {
            mark_above: mark_above.map(|m| m.get_ref().0),
        }),
        RawDiscipline::Red(red) => {
            let (min, max) = (red.min.0, red.max.0);
            let probability = red.probability.unwrap_or(RED_PROBABILITY);
            let weight = red.weight.unwrap_or(RED_WEIGHT);
            let is_share = |p: f64| p > 0.0 && p <= 1.0;
            if min >= max || max > BURST_MAX || !is_share(probability) || !is_share(weight) {
                return refuse(
                    spanned,
                    format!(
                        "red: expected min < max <= {BURST_MAX}, and probability and weight above \
                         0, up to 1"
                    ),
                );
            }
            let ecn = red.ecn.unwrap_or(false);
            Ok(DisciplineSpec::Red {
                min,
                max,
                probability,
                weight,
                ecn,
            })
        }
        RawDiscipline::Codel(codel) => {
            check_codel(spanned, codel, false).map(DisciplineSpec::Codel)
        }
        RawDiscipline::FqCodel(fq) => check_fq_codel(spanned, fq),
    }
}

fn check_codel<T>(
    spanned: &Spanned<T>,
    raw: &RawCodel,
    ecn_default: bool,
) -> Result<CodelSpec, Refusal> {
    let target = raw.target.map_or(CODEL_TARGET, |q| q.0);
    let interval = raw.interval.map_or(CODEL_INTERVAL, |q| q.0);
    if target == Duration::ZERO || target >= interval || interval > DELAY_MAX {
        return refuse(
            spanned,
            format!("codel: expected a target above 0 and an interval above it, up to {DELAY_MAX}"),
        );
    }
    Ok(CodelSpec {
        target,
        interval,
        ecn: raw.ecn.unwrap_or(ecn_default),
    })
}

fn check_fq_codel<T>(spanned: &Spanned<T>, raw: &RawFqCodel) -> Result<DisciplineSpec, Refusal> {
    let codel = RawCodel {
        target: raw.target,
        interval: raw.interval,
        ecn: raw.ecn,
    };
    let codel = check_codel(spanned, &codel, true)?;
    let flows = raw.flows.unwrap_or(FQ_FLOWS);
    let quantum_bytes = raw.quantum.unwrap_or(FQ_QUANTUM);
    if !(1..=65_536).contains(&flows) || !(64..=1_048_576).contains(&quantum_bytes) {
        return refuse(
            spanned,
            "fq-codel: expected 1 to 65536 flows and a quantum of 64 to 1048576 bytes",
        );
    }
    Ok(DisciplineSpec::FqCodel {
        codel,
        flows,
        quantum_bytes,
    })
}

fn read_trace(name: &Spanned<String>, context: Context<'_>) -> Result<String, Refusal> {
    let folder = context.file.parent().unwrap_or_else(|| Path::new(""));
    let file = folder.join(name.get_ref());
    let text = (context.files)(&file)
        .or_else(|e| refuse(name, format!("trace: cannot read {}: {e}", file.display())))?;
    Trace::parse(&text).or_else(|e| {
        refuse(
            name,
            format!("trace: {}, line {}: {}", file.display(), e.line, e.problem),
        )
    })?;
    Ok(text)
}

fn check_losses(raw: Option<&Spanned<RawLosses>>) -> Result<Vec<LossSpec>, Refusal> {
    let Some(raw) = raw else {
        return Ok(Vec::new());
    };
    let at = raw.span().start;
    let losses = match raw.get_ref() {
        RawLosses::One(loss) => vec![check_loss(at, loss)?],
        RawLosses::Many(list) if list.len() > LOSSES_MAX => {
            return refuse(
                raw,
                format!("loss: expected at most {LOSSES_MAX} in a list"),
            );
        }
        RawLosses::Many(list) => list
            .iter()
            .map(|loss| check_loss(loss.span().start, loss.get_ref()))
            .collect::<Result<_, _>>()?,
    };
    Ok(losses.into_iter().flatten().collect())
}

/// `None` for a share of zero: no stage.
fn check_loss(at: usize, raw: &RawLoss) -> Result<Option<LossSpec>, Refusal> {
    let table = match raw {
        RawLoss::Share(share) => {
            let share = check_share("loss", at, *share)?;
            return Ok(Some(LossSpec::Random(share)).filter(|_| share > 0.0));
        }
        RawLoss::Table(table) => table,
    };
    let fail = |problem: &str| {
        Err(Refusal {
            at,
            problem: problem.to_owned(),
        })
    };
    match table {
        RawLossTable {
            burst: Some(burst),
            every: None,
            offset: None,
            frames: None,
        } => {
            let share = |key, value| check_share(key, at, value);
            Ok(Some(LossSpec::Burst {
                enter: share("loss.burst.enter", burst.enter)?,
                leave: share("loss.burst.leave", burst.leave)?,
                good: share("loss.burst.good", burst.good.unwrap_or(RawShare(0.0)))?,
                bad: share("loss.burst.bad", burst.bad.unwrap_or(RawShare(1.0)))?,
            }))
        }
        &RawLossTable {
            burst: None,
            every: Some(every),
            offset,
            frames: None,
        } => {
            let offset = offset.unwrap_or(every);
            if every == 0 || offset == 0 {
                return fail("loss: frames are counted from 1; every and offset are at least 1");
            }
            Ok(Some(LossSpec::Periodic { every, offset }))
        }
        RawLossTable {
            burst: None,
            every: None,
            offset: None,
            frames: Some(frames),
        } => {
            let rising = frames.windows(2).all(|w| w[0] < w[1]);
            if frames.is_empty() || frames[0] == 0 || !rising || frames.len() > FRAMES_MAX {
                return fail(&format!(
                    "loss.frames: expected 1 to {FRAMES_MAX} numbers in rising order, from 1"
                ));
            }
            Ok(Some(LossSpec::Listed(frames.clone())))
        }
        _ => fail("loss: expected one of burst, every (with offset) and frames in a table"),
    }
}

fn check_jitter(raw: &RawDirection) -> Result<Option<JitterSpec>, Refusal> {
    let Some(spanned) = &raw.jitter else {
        return Ok(None);
    };
    let jitter = spanned.get_ref();
    let amount = jitter.amount.0;
    if amount == Duration::ZERO || amount > DELAY_MAX {
        return refuse(
            spanned,
            format!("jitter.amount: expected a time above 0, up to {DELAY_MAX}"),
        );
    }
    let correlation = jitter.correlation.unwrap_or(0.0);
    if !(0.0..1.0).contains(&correlation) {
        return refuse(
            spanned,
            format!("jitter.correlation = {correlation}: expected 0 to below 1"),
        );
    }
    Ok(Some(JitterSpec {
        amount,
        shape: match jitter.shape {
            None | Some(RawShape::Uniform) => JitterShape::Uniform,
            Some(RawShape::Normal) => JitterShape::Normal,
        },
        correlation,
        reorder: jitter.reorder.unwrap_or(false),
    }))
}

fn check_coalesce(raw: &RawDirection) -> Result<Option<CoalesceSpec>, Refusal> {
    let Some(spanned) = &raw.coalesce else {
        return Ok(None);
    };
    let hold = spanned.get_ref().hold.0;
    let packets = spanned.get_ref().packets.unwrap_or(64);
    if hold == Duration::ZERO || hold > HOLD_MAX || !(1..=65_535).contains(&packets) {
        return refuse(
            spanned,
            format!("coalesce: expected a hold above 0, up to {HOLD_MAX}, and 1 to 65535 packets"),
        );
    }
    Ok(Some(CoalesceSpec { hold, packets }))
}

fn check_harmonizer(
    raw: &RawDirection,
    context: Context<'_>,
    queue: Option<&RateSpec>,
    frame: u32,
) -> Result<Option<HarmonizerSpec>, Refusal> {
    let Some(spanned) = &raw.harmonizer else {
        return Ok(None);
    };
    let within = |key: &str, value: Duration, min: Duration, max: Duration| {
        if (min..=max).contains(&value) {
            return Ok(value);
        }
        refuse(
            spanned,
            format!("harmonizer.{key} = {value}: expected {min} to {max}"),
        )
    };
    let (mode, memory) = match spanned.get_ref() {
        RawHarmonizer::Shuffle(shuffle) => {
            let default = Duration::from_ns(context.rtt.as_ns() / MIXED_OF_ROUND_TRIP);
            let default = default.clamp(MIXED_MIN, MIXED_MAX);
            let hold = shuffle.hold.map_or(default, |q| q.0);
            let hold = within("hold", hold, Duration::from_us(1), HOLD_MAX)?;
            (HarmonizerMode::Shuffle { hold }, shuffle.memory)
        }
        RawHarmonizer::Lengthen(lengthen) => {
            let default = context.rtt.max(ROUND_TRIP_MIN);
            let round_trip = lengthen.round_trip.map_or(default, |q| q.0);
            let round_trip = within("round_trip", round_trip, ROUND_TRIP_MIN, DELAY_MAX)?;
            let delay_max = lengthen.delay_max.map_or(round_trip, |q| q.0);
            let rate = match (&lengthen.rate, queue) {
                (Some(rate), _) => check_rate("harmonizer.rate", rate)?,
                (None, Some(queue)) => mean_rate(&queue.server),
                (None, None) => {
                    return refuse(
                        spanned,
                        "harmonizer: lengthen needs the bottleneck's rate: expected a rate of the \
                         link or of its own",
                    );
                }
            };
            let mode = HarmonizerMode::Lengthen {
                round_trip,
                delay_max: within("delay_max", delay_max, Duration::from_us(1), DELAY_MAX)?,
                rate,
            };
            (mode, lengthen.memory)
        }
    };
    let memory = memory.map_or(HARMONIZER_MEMORY, |q| q.0);
    if memory < Bytes::new(frame.into()) || memory > BURST_MAX {
        return refuse(
            spanned,
            format!(
                "harmonizer.memory = {memory}: expected {frame} bytes, a full frame, to {BURST_MAX}"
            ),
        );
    }
    Ok(Some(HarmonizerSpec { mode, memory }))
}

/// Which flows a harmonizer takes as parallel streams.
pub(super) fn check_grouping(raw: &RawDirection) -> Result<Grouping, Refusal> {
    let groups = match raw.harmonizer.as_ref().map(Spanned::get_ref) {
        Some(
            RawHarmonizer::Shuffle(RawShuffle { groups, .. })
            | RawHarmonizer::Lengthen(RawLengthen { groups, .. }),
        ) => groups.as_deref().unwrap_or_default(),
        None => &[],
    };
    if let Some(last) = groups.get(GROUPS_MAX) {
        return refuse(
            last,
            format!("harmonizer.groups: expected at most {GROUPS_MAX}"),
        );
    }
    let check = |spanned: &Spanned<RawGroup>| {
        let group = spanned.get_ref();
        let (src, dst) = (parsed::<Prefix>(&group.src)?, parsed::<Prefix>(&group.dst)?);
        match (src, dst) {
            (None, None) => refuse(spanned, "harmonizer.groups: expected src, dst or both"),
            (Some(src), Some(dst)) if src.network().is_ipv4() != dst.network().is_ipv4() => {
                refuse(spanned, "src and dst: expected both IPv4 or both IPv6")
            }
            _ => Ok(GroupRule { src, dst }),
        }
    };
    let rules = groups.iter().map(check).collect::<Result<_, _>>()?;
    Ok(Grouping { rules })
}

/// The boxes of a direction.
pub(super) fn check_middlebox(raw: &RawDirection) -> Result<Vec<Middlebox>, Refusal> {
    let Some(spanned) = &raw.middlebox else {
        return Ok(Vec::new());
    };
    if spanned.get_ref().len() > MIDDLEBOXES_MAX {
        return refuse(
            spanned,
            format!("middlebox: expected at most {MIDDLEBOXES_MAX}"),
        );
    }
    let check = |raw: &RawMiddlebox| match *raw {
        RawMiddlebox::Named(RawMiddleboxName::StripWindowScale) => Ok(Middlebox::StripWindowScale),
        RawMiddlebox::Named(RawMiddleboxName::StripOptions) => Ok(Middlebox::StripOptions),
        RawMiddlebox::Named(RawMiddleboxName::StripSack) => Ok(Middlebox::StripSack),
        RawMiddlebox::Named(RawMiddleboxName::StripTimestamps) => Ok(Middlebox::StripTimestamps),
        RawMiddlebox::Named(RawMiddleboxName::SeqCheck) => Ok(Middlebox::SeqCheck),
        RawMiddlebox::MssClamp(mss) if (MSS_MIN..=MSS_MAX).contains(&mss) => {
            Ok(Middlebox::MssClamp(mss))
        }
        RawMiddlebox::MssClamp(_) => refuse(
            spanned,
            format!("middlebox: mss-clamp: expected {MSS_MIN} to {MSS_MAX} bytes"),
        ),
    };
    spanned.get_ref().iter().map(check).collect()
}

/// The rate of a server; of a trace the mean.
pub(super) fn mean_rate(server: &ServerSpec) -> Rate {
    match server {
        ServerSpec::Rate(rate) => *rate,
        ServerSpec::Trace(text) => Rate::from_bits_per_second(
            Trace::parse(text).map_or(0, |trace| trace.mean_bits_per_second()),
        ),
    }
}

/// The most bytes that a direction's queue may hold when frames are of `mtu_bytes`.
pub(super) fn queue_bytes(spec: &DirectionSpec, mtu_bytes: u32) -> Bytes {
    let Some(rate) = &spec.rate else {
        return Bytes::new(0);
    };
    let frame = u64::from(
        spec.medium
            .wire_bytes(mtu_bytes.saturating_add(ETHERNET_HEADER)),
    );
    let packets = |n: u32| u64::from(n).saturating_mul(frame);
    let limits = rate.limits;
    Bytes::new(match (limits.bytes, limits.packets) {
        (Some(bytes), _) => bytes,
        (None, Some(n)) => packets(n),
        (None, None) => 0,
    })
}

/// What a schedule may make of a direction at most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extremes {
    pub(super) rate: Option<Rate>,
    pub(super) delay: Duration,
    pub(super) queue: Bytes,
}

/// Memory for the frames of a direction: half as much again as they take on the wire and the queue once
/// more, for trains of which a full queue refused a part, and room for bursts that wait to be decided on.
/// Where senders overrun the queue twice, half of each train lies there for nothing. A link without rate and
/// delay keeps next to nothing where it is one of several.
pub(super) fn memory_bytes(
    spec: &DirectionSpec,
    mtu_bytes: u32,
    extremes: Extremes,
    alone: bool,
) -> Bytes {
    let flight = flight_bytes(spec, mtu_bytes, extremes).as_u64();
    let keeps_nothing = spec.rate.is_none()
        && spec.packet_budget.is_none()
        && spec.harmonizer.is_none()
        && spec.jitter.is_none()
        && spec.delay.max(extremes.delay) == Duration::ZERO;
    if keeps_nothing && !alone {
        return PASSING;
    }
    let queue = queue_bytes(spec, mtu_bytes).max(extremes.queue);
    Bytes::new(flight.saturating_add(flight / 2)) + queue + super::RING_EXTRA
}

fn flight_bytes(spec: &DirectionSpec, mtu_bytes: u32, extremes: Extremes) -> Bytes {
    let jitter = spec.jitter.map_or(Duration::ZERO, |j| match j.shape {
        JitterShape::Uniform => j.amount,
        JitterShape::Normal => j.amount.saturating_mul(4),
    });
    let hold = spec.coalesce.map_or(Duration::ZERO, |c| c.hold);
    let kept = spec.delay.max(extremes.delay) + jitter + hold + super::LATENESS;
    let carried = match &spec.rate {
        None => UNLIMITED_RATE.bytes_in(kept),
        Some(RateSpec {
            server: ServerSpec::Trace(text),
            ..
        }) => trace_bytes_in(text, kept),
        Some(rate) => mean_rate(&rate.server)
            .max(extremes.rate.unwrap_or(Rate::from_bits_per_second(0)))
            .bytes_in(kept),
    };
    let queue = queue_bytes(spec, mtu_bytes).max(extremes.queue);
    let frame = u64::from(
        spec.medium
            .wire_bytes(mtu_bytes.saturating_add(ETHERNET_HEADER)),
    );
    let budget = spec
        .packet_budget
        .map_or(0, |b| u64::from(b.queue_packets).saturating_mul(frame));
    let harmonized = spec.harmonizer.map_or(Bytes::new(0), |h| {
        h.memory.min(UNLIMITED_RATE.bytes_in(h.delay_max()))
    });
    carried + queue + Bytes::new(budget) + harmonized
}

/// The most bytes that a trace lets through in a window of `time`.
fn trace_bytes_in(text: &str, time: Duration) -> Bytes {
    let times: Vec<u64> = text.lines().filter_map(|l| l.trim().parse().ok()).collect();
    let period = times.last().copied().unwrap_or(1).max(1);
    let window = time.as_ns().div_ceil(1_000_000);
    let whole = (window / period).saturating_mul(times.len() as u64);
    let rest = window % period;
    // The part beyond whole periods, wherever it begins, the seam included.
    let at = |n: usize| times[n % times.len()] + period * (n / times.len()) as u64;
    let (mut most, mut end) = (0, 0);
    for start in 0..times.len() {
        while end < start + times.len() && at(end) <= times[start] + rest {
            end += 1;
        }
        most = most.max(end - start);
    }
    Bytes::new(
        whole
            .saturating_add(most as u64)
            .saturating_mul(TRACE_BYTES),
    )
}

/// Largest burst, threshold or RED queue.
const BURST_MAX: Bytes = Bytes::new(1 << 30);
/// 100 m of copper, as long as 100BASE-TX may be, at two thirds of the speed of light.
const CABLE: Duration = Duration::from_ns(500);
const CODEL_INTERVAL: Duration = Duration::from_ms(100);
/// RFC 8289, sections 4.3 and 4.4: 5 ms and 100 ms.
const CODEL_TARGET: Duration = Duration::from_ms(5);
const CODEL_PACKETS: u32 = 1_000;
/// Above any terrestrial or geostationary path by far; bounds memory with the rate.
const DELAY_MAX: Duration = Duration::from_s(10);
const ETHERNET_HEADER: u32 = 14;
/// RFC 8290, section 5.2: 10,240 packets, 1,024 queues, a quantum of 1,514 bytes, ECN on.
const FQ_CODEL_PACKETS: u32 = 10_240;
const FQ_FLOWS: u32 = 1_024;
const FQ_QUANTUM: u32 = 1_514;
/// Numbers of a list of lost frames.
const FRAMES_MAX: usize = 10_000;
/// Some frames' worth; a pause of longer is better a rate.
const GAP_MAX: u32 = 100_000;
/// IEEE 802.3, 4.4.2: 96 bits.
const GAP_STANDARD: u32 = 12;
/// Above, IEEE 802.3 knows full duplex only.
const HALF_RATE_MAX: Rate = Rate::from_bits_per_second(1_000_000_000);
/// 64 MiB hold 400 ms at 1 Gb/s, and 50 ms at 10 Gb/s.
const HARMONIZER_MEMORY: Bytes = Bytes::new(64 << 20);
const HOLD_MAX: Duration = Duration::from_s(1);
const GROUPS_MAX: usize = 256;
const LOSSES_MAX: usize = 8;
const MIDDLEBOXES_MAX: usize = 8;
/// Streams are mixed over a small part of a round trip, 3 %, which still covers the times at which one
/// program starts them; and over no more than costs a short transfer little.
const MIXED_OF_ROUND_TRIP: u64 = 32;
const MIXED_MIN: Duration = Duration::from_ms(1);
const MIXED_MAX: Duration = Duration::from_ms(20);
/// TCP_MIN_MSS of Linux' include/net/tcp.h.
const MSS_MIN: u16 = 88;
/// 65,535 less IPv4 and TCP headers.
const MSS_MAX: u16 = 65_495;
const PACKETS_PER_SECOND_MAX: u64 = 1_000_000_000;
/// A link without rate and delay hands frames on at once; a megabyte for both directions.
const PASSING: Bytes = Bytes::new(512 << 10);
/// Default queue on short paths, where one bandwidth-delay product is next to nothing.
const QUEUE_MIN: Bytes = Bytes::new(128 * 1024);
const QUEUE_PACKETS_MAX: u32 = 1_000_000;
/// Rates are counted over a round trip: shorter ones hold too few packets.
const ROUND_TRIP_MIN: Duration = Duration::from_ms(1);
const RATE_MIN: Rate = Rate::from_bits_per_second(8_000);
const RATE_MAX: Rate = Rate::from_bits_per_second(1_000_000_000_000);
/// Floyd and Jacobson 1993 use 1/50; Floyd's note of 1997 "RED: Discussions of Setting Parameters"
/// says 0.1 for the probability, and 0.002 for the weight.
const RED_PROBABILITY: f64 = 0.1;
const RED_WEIGHT: f64 = 0.002;
const SPANS_MAX: usize = 1_000;
/// What an opportunity of a mahimahi trace carries.
const TRACE_BYTES: u64 = 1_504;
