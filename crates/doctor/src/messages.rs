//! Latency and rate by the size of messages.

use std::cmp::Reverse;
use std::path::PathBuf;

use measure::{
    Approach, Client, MeasureError, MessageOutcome, MessageSpec, Overhead, Pattern, Stop, Verbs,
    VerbsPort,
};
use report::RunFolder;
use report::model::{MessagePoint, MessageSweep, SweepAxis, Verdict as RunVerdict};
use units::{Bytes, Duration, Rate};

use crate::doctor::Finished;
use crate::session::Site;
use crate::watcher::Watcher;
use fault::Failure;
use job::target::Target;
use job::{Context, record};

/// What messages to exchange, and with whom.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The far end.
    pub target: Target,
    /// How to come to it.
    pub approach: Approach,
    /// Sizes in bytes, in the order that they are measured.
    pub sizes: Vec<u32>,
    /// All of a measurement but size and pattern.
    pub spec: MessageSpec,
    /// Folder that run folders are made in.
    pub runs: PathBuf,
}

/// Measures every size in all patterns and keeps what was measured, however it ends.
///
/// # Examples
///
/// ```no_run
/// use doctor::Silent;
/// use doctor::messages::{self, Plan};
///
/// let context = job::Context::start(|| {})?;
/// let plan = Plan {
///     target: job::Target::parse(Some("dtn.example.org"))?,
///     approach: measure::Approach::default(),
///     sizes: messages::sizes_of("sizes", "1..1MiB")?,
///     spec: measure::MessageSpec {
///         duration_ns: messages::EACH.as_ns(),
///         ..measure::MessageSpec::default()
///     },
///     runs: "runs".into(),
/// };
/// let finished = messages::perform(&plan, &context, &mut Silent)?;
/// println!("{:?}", finished.run.messages);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn perform(
    plan: &Plan,
    context: &Context,
    watcher: &mut dyn Watcher,
) -> Result<Finished, Failure> {
    let base = &plan.spec;
    let mut run = record::begin("measure", &plan.target, context);
    let mut folder = RunFolder::create(&plan.runs, "messages", &plan.target.name(), run.clone())?;
    let path = folder.path().to_owned();
    let mut messages = MessageSweep {
        transport: base.verbs.map_or("tcp", Verbs::name).to_owned(),
        spin: base.spin,
        window: base.window,
        each_ns: base.duration_ns,
        ..MessageSweep::default()
    };
    let result = exchange(&mut messages, plan, context, watcher);
    run.verdict = Some(verdict(&messages, result.is_ok()));
    run.messages = Some(messages);
    record::end_as(&mut run, &result, context);
    let kept = folder.finish(&run, &[]);
    if let Some(code) = context.interrupted() {
        if run.messages.as_ref().is_none_or(|m| m.points.is_empty()) {
            return Err(Failure::interrupted(code));
        }
        let page = path.join("report.html");
        watcher.note(&format!("what was measured so far: {}", page.display()));
        return Err(Failure::interrupted(code));
    }
    result?;
    kept?;
    Ok(Finished {
        run,
        findings: Vec::new(),
        folder: path,
        document: None,
        failure: None,
    })
}

/// Every size, one after the other; those that were measured to their end are kept.
fn exchange(
    messages: &mut MessageSweep,
    plan: &Plan,
    context: &Context,
    watcher: &mut dyn Watcher,
) -> Result<(), Failure> {
    let stop = &context.stop;
    let site = Site::open(plan.target.clone(), &plan.approach)?;
    let phase = match &site {
        Site::Lab { lab, .. } => Some(lab.begin_phase()?),
        _ => None,
    };
    let points = &mut messages.points;
    let done = site.with_client(stop, |mut client| {
        for &bytes in &plan.sizes {
            watcher.note(&format!("messages of {}", Bytes::new(bytes.into())));
            match point(&mut client, &plan.spec, bytes, stop)? {
                Some(point) => points.push(point),
                None => break,
            }
        }
        Ok(())
    });
    if let Some(phase) = phase {
        messages.certificate = Some(record::certificate(&phase.finish()?));
    }
    let overhead = Overhead::measure();
    (messages.clock_ns, messages.tool_ns) = (overhead.clock_ns, overhead.round_ns);
    done
}

/// What the numbers say at a glance; nothing where the lab fell behind, though they are kept.
fn verdict(messages: &MessageSweep, is_whole: bool) -> RunVerdict {
    let behind = record::fell_behind(messages.certificate.as_ref());
    let behind = behind.filter(|_| !messages.points.is_empty());
    RunVerdict {
        conclusive: is_whole && behind.is_none() && !messages.points.is_empty(),
        sentence: behind.unwrap_or_else(|| sentence(&messages.points)),
        ..RunVerdict::default()
    }
}

fn sentence(points: &[MessagePoint]) -> String {
    let axis = SweepAxis {
        unit: "bytes".to_owned(),
        ..SweepAxis::default()
    };
    let size = |p: &MessagePoint| report::setting(&axis, p.message_bytes.into());
    let Some(smallest) = points.iter().min_by_key(|p| p.message_bytes) else {
        return "Nothing was measured to its end.".to_owned();
    };
    let takes = smallest.latency_median_ns.map_or_else(
        || "no round trip was measured".to_owned(),
        |ns| {
            let time = Duration::from_ns(ns);
            format!("a message of {} takes {time}", size(smallest))
        },
    );
    type Of = fn(&MessagePoint) -> u64;
    let ways: [(&str, Of); 2] = [
        ("up", |p| p.up_bits_per_second),
        ("down", |p| p.down_bits_per_second),
    ];
    let most = ways.map(|(way, of)| {
        // Of sizes that are as fast the smallest.
        let best = points
            .iter()
            .max_by_key(|p| (of(p), Reverse(p.message_bytes)));
        let (rate, at) = best.map_or((0, String::new()), |p| (of(p), size(p)));
        let rate = Rate::from_bits_per_second(rate);
        format!("{rate} {way} with {at}")
    });
    format!("In the median {takes}; at most {}.", most.join(", "))
}

/// One size in all patterns; `None` when the user ended it: what was under way then is no reading.
fn point(
    client: &mut Client,
    base: &MessageSpec,
    bytes: u32,
    stop: &Stop,
) -> Result<Option<MessagePoint>, MeasureError> {
    let mut run = |pattern| {
        let spec = MessageSpec {
            pattern,
            bytes,
            ..base.clone()
        };
        client.messages(&spec, stop)
    };
    let (ping, up) = (run(Pattern::PingPong)?, run(Pattern::Up)?);
    let (down, both) = (run(Pattern::Down)?, run(Pattern::Both)?);
    if stop.is_stopped() {
        return Ok(None);
    }
    let half = |time: Option<Duration>| time.map(|t| t.as_ns() / 2);
    let times = &ping.round_trips;
    let rate = |outcome: &MessageOutcome| {
        let near = outcome.near.rate(bytes).as_bits_per_second();
        near + outcome.far.rate(bytes).as_bits_per_second()
    };
    Ok(Some(MessagePoint {
        message_bytes: bytes,
        round_trips: times.count(),
        latency_min_ns: half(times.min()),
        latency_median_ns: half(times.quantile(500)),
        latency_p99_ns: half(times.quantile(990)),
        latency_p999_ns: half(times.quantile(999)),
        latency_max_ns: half(times.max()),
        up_bits_per_second: rate(&up),
        down_bits_per_second: rate(&down),
        both_bits_per_second: rate(&both),
        up_messages: up.far.messages,
        down_messages: down.near.messages,
        up_lost: lost(&up).map(|[up, _]| up),
        down_lost: lost(&down).map(|[_, down]| down),
        rdma_port: ping.verbs.as_ref().map(port_name),
    }))
}

/// Messages lost each way, where that is counted: over RC none, and it would show.
pub(crate) fn lost(outcome: &MessageOutcome) -> Option<[u64; 2]> {
    outcome.spec.verbs.map(|_| outcome.lost())
}

/// A port as it is spoken of.
pub(crate) fn port_name(port: &VerbsPort) -> String {
    let (device, number, mtu) = (&port.device, port.number, port.mtu_bytes);
    let (kind, index) = (&port.gid_type, port.gid_index);
    format!("{device} port {number}, {kind} by GID {index}, MTU {mtu} B")
}

/// Messages that may be unconfirmed unless told.
pub const fn window(verbs: Option<Verbs>) -> u32 {
    match verbs {
        Some(_) => VERBS_WINDOW,
        None => WINDOW,
    }
}

/// `1`, `1,64,4KiB` or `2..8MiB`: every power of two from one to the other.
pub fn sizes_of(flag: &str, typed: &str) -> Result<Vec<u32>, Failure> {
    let bad = |why: &str| {
        Failure::usage(format!(
            "{flag} '{typed}': {why}; expected a size, several with commas, or FROM..TO for the \
             powers of two between them, 1 B to 8 MiB"
        ))
    };
    let size = |text: &str| -> Result<u32, Failure> {
        // A bare number is of bytes.
        let bytes = text.parse::<u64>().ok();
        let bytes = bytes.or_else(|| text.parse::<Bytes>().ok().map(Bytes::as_u64));
        let bytes = bytes.and_then(|n| u32::try_from(n).ok());
        bytes
            .filter(|n| (1..=1 << 23).contains(n))
            .ok_or_else(|| bad(&format!("'{text}' is no such size")))
    };
    if let Some((from, to)) = typed.split_once("..") {
        let (from, to) = (size(from)?, size(to)?);
        let powers: Vec<u32> = (0..=23).map(|n| 1 << n).collect();
        let between = powers.into_iter().filter(|n| (from..=to).contains(n));
        let sizes: Vec<u32> = between.collect();
        return match sizes.is_empty() {
            true => Err(bad("there is no power of two between them")),
            false => Ok(sizes),
        };
    }
    let sizes: Vec<u32> = typed.split(',').map(size).collect::<Result<_, _>>()?;
    if sizes.len() > SIZES_MAX {
        return Err(bad("more than 64 sizes"));
    }
    Ok(sizes)
}

/// How long each measurement takes unless told: long enough for the 99.9th percentile of a path
/// of 100 us.
pub const EACH: Duration = Duration::from_ms(500);
const SIZES_MAX: usize = 64;
/// Unless told: fills 10 Gb/s at 1 ms with messages of 64 KiB.
const WINDOW: u32 = 64;
/// As `ib_send_bw`'s transmit queue.
const VERBS_WINDOW: u32 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_names_the_smallest_size_and_the_fastest() {
        let point = |message_bytes, median, up| MessagePoint {
            message_bytes,
            latency_median_ns: median,
            up_bits_per_second: up,
            down_bits_per_second: 5_000_000,
            ..MessagePoint::default()
        };
        let points = [
            point(1 << 20, Some(900_000), 941_000_000),
            point(64, Some(7_000), 80_000_000),
            point(1 << 10, Some(8_000), 941_000_000),
        ];
        assert_eq!(
            sentence(&points),
            "In the median a message of 64 B takes 7 us; at most 941 Mb/s up with 1 KiB, 5 Mb/s down with 64 B."
        );
        assert!(sentence(&[point(1, None, 0)]).contains("no round trip"));
        assert!(sentence(&[]).contains("Nothing"));
    }

    #[test]
    fn only_a_whole_run_over_a_lab_that_kept_up_is_conclusive() {
        let mut messages = MessageSweep {
            points: vec![MessagePoint::default()],
            ..MessageSweep::default()
        };
        let trusted = |trusted| report::model::Certificate {
            trusted,
            ..Default::default()
        };
        assert!(verdict(&messages, true).conclusive);
        assert!(!verdict(&messages, false).conclusive);
        messages.certificate = Some(trusted(true));
        assert!(verdict(&messages, true).conclusive);
        messages.certificate = Some(trusted(false));
        let behind = verdict(&messages, true);
        assert!(!behind.conclusive && behind.sentence.contains("fell behind"));
        messages.points.clear();
        let nothing = verdict(&messages, true);
        assert!(!nothing.conclusive && nothing.sentence.contains("Nothing"));
    }

    #[test]
    fn sizes_are_lists_or_powers_of_two() {
        let read = |text| sizes_of("--messages", text).unwrap();
        assert_eq!(read("1"), [1]);
        assert_eq!(read("3,64,4KiB"), [3, 64, 4096]);
        assert_eq!(read("2..16"), [2, 4, 8, 16]);
        assert_eq!(read("3..5"), [4]);
        assert_eq!(read("1..8MiB").len(), 24);
        for wrong in ["", "0", "9MiB", "x", "5..7", "8..2", "1,,2", "1..x"] {
            assert_eq!(
                sizes_of("--messages", wrong).unwrap_err().code,
                fault::USAGE,
                "{wrong}"
            );
        }
    }
}
