//! `goodput measure --messages`: latency and rate by the size of messages.

use std::fmt::Write as _;

use measure::{
    Client, MeasureError, MessageOutcome, MessageSpec, Overhead, Pattern, Stop, Verbs, VerbsPort,
};
use report::model::{MessagePoint, MessageSweep};
use units::{Bytes, Duration, Rate};

use crate::cli::{MeasureArgs, TransportArg};
use crate::context::{self, Context};
use crate::doctor;
use crate::failure::{self, Failure, Verdict};
use crate::session::Site;
use crate::target::Target;
use crate::verbs::Wish;

/// Measures every size and prints a table, or the table as JSON.
pub(crate) fn command(args: &MeasureArgs, sizes: &str, context: &Context) -> Verdict {
    let sizes = sizes_of(sizes)?;
    let target = Target::parse(args.transfer.target.as_deref())?;
    let wish = Wish::of(args, &target, &measure::rdma_devices())?;
    if wish.test.udp.is_some() || !matches!(wish.test.transport, None | Some(TransportArg::Tcp)) {
        return Err(Failure::usage(anyhow::anyhow!(
            "--messages go over TCP or verbs; datagrams of several sizes are --sweep message-size --udp \
             RATE"
        )));
    }
    let approach = doctor::approach(&wish.approach, &target)?;
    let site = Site::open(target, &approach)?;
    let each = args.transfer.duration.unwrap_or(EACH);
    let base = MessageSpec {
        window: args.outstanding.unwrap_or_else(|| window(wish.verbs)),
        duration_ns: each.as_ns(),
        spin: args.spin || wish.verbs.is_some(),
        verbs: wish.verbs,
        rdma: wish.rdma,
        ..MessageSpec::default()
    };
    let stop = &context.stop;
    let points = site.with_client(stop, |mut client| {
        let mut points = Vec::new();
        for &bytes in &sizes {
            if stop.is_stopped() {
                break;
            }
            points.push(point(&mut client, &base, bytes, stop)?);
        }
        Ok(points)
    });
    // What was under way then is no reading.
    let points = match context.interrupted() {
        Some(code) if points.is_err() => return Err(Failure::interrupted(code)),
        _ => points?,
    };
    let overhead = Overhead::measure();
    let sweep = MessageSweep {
        transport: wish.verbs.map_or("tcp", Verbs::name).to_owned(),
        spin: base.spin,
        window: base.window,
        clock_ns: overhead.clock_ns,
        tool_ns: overhead.round_ns,
        points,
    };
    if args.transfer.json {
        let text = serde_json::to_string_pretty(&sweep).map_err(Failure::here)?;
        context::print(&format!("{text}\n"))?;
    } else {
        context::print(&table(&sweep))?;
    }
    match context.interrupted() {
        Some(code) => Err(Failure::interrupted(code)),
        None => Ok(failure::DONE),
    }
}

/// One size in all patterns.
fn point(
    client: &mut Client,
    base: &MessageSpec,
    bytes: u32,
    stop: &Stop,
) -> Result<MessagePoint, MeasureError> {
    context::note(format_args!("messages of {}", Bytes::new(bytes.into())));
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
    let half = |time: Option<Duration>| time.map(|t| t.as_ns() / 2);
    let times = &ping.round_trips;
    let rate = |outcome: &MessageOutcome| {
        let near = outcome.near.rate(bytes).as_bits_per_second();
        near + outcome.far.rate(bytes).as_bits_per_second()
    };
    Ok(MessagePoint {
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
    })
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
pub(crate) const fn window(verbs: Option<Verbs>) -> u32 {
    match verbs {
        Some(_) => VERBS_WINDOW,
        None => WINDOW,
    }
}

/// `1`, `1,64,4KiB` or `2..8MiB`: every power of two from one to the other.
fn sizes_of(typed: &str) -> Result<Vec<u32>, Failure> {
    let bad = |why: &str| {
        Failure::usage(anyhow::anyhow!(
            "--messages '{typed}': {why}; expected a size, several with commas, or FROM..TO for the \
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

fn table(sweep: &MessageSweep) -> String {
    let mut text = format!(
        "{:>9} {:>11} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11} {:>11} {:>11}\n",
        "bytes", "round trips", "min us", "median", "p99", "p99.9", "max", "up", "down", "both"
    );
    let us =
        |ns: Option<u64>| ns.map_or_else(|| "–".to_owned(), |ns| format!("{:.2}", ns as f64 / 1e3));
    let rate = |rate: u64| Rate::from_bits_per_second(rate).to_string();
    for p in &sweep.points {
        let _ = writeln!(
            text,
            "{:>9} {:>11} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11} {:>11} {:>11}",
            p.message_bytes,
            p.round_trips,
            us(p.latency_min_ns),
            us(p.latency_median_ns),
            us(p.latency_p99_ns),
            us(p.latency_p999_ns),
            us(p.latency_max_ns),
            rate(p.up_bits_per_second),
            rate(p.down_bits_per_second),
            rate(p.both_bits_per_second),
        );
    }
    text += &carried(sweep);
    let ends = if sweep.spin {
        "both ends spin"
    } else {
        "both ends sleep until a message is there"
    };
    let call = match sweep.transport.starts_with("verbs") {
        true => "send",
        false => "write",
    };
    let _ = writeln!(
        text,
        "Latency is half a round trip; {ends}. Of it the tool's own part is {:.0} ns (clock {:.0} ns). \
         Rates: one {call} a message, at most {} unconfirmed.",
        sweep.tool_ns / 2.0,
        sweep.clock_ns / 2.0,
        sweep.window
    );
    text
}

/// Where the messages went if not over TCP, and what was lost.
fn carried(sweep: &MessageSweep) -> String {
    let Some(port) = sweep.points.iter().find_map(|p| p.rdma_port.as_ref()) else {
        return String::new();
    };
    let mut text = format!("By {} through {port}", sweep.transport);
    let sum = |each: fn(&MessagePoint) -> Option<u64>| {
        let known: Option<Vec<u64>> = sweep.points.iter().map(each).collect();
        known.map(|all| all.iter().fold(0, |sum: u64, &n| sum.saturating_add(n)))
    };
    if let (Some(up), Some(down)) = (sum(|p| p.up_lost), sum(|p| p.down_lost)) {
        let _ = write!(text, "; lost: {up} up, {down} down");
    }
    text + ".\n"
}

/// Long enough for the 99.9th percentile of a path of 100 us.
const EACH: Duration = Duration::from_ms(500);
const SIZES_MAX: usize = 64;
/// Unless told: fills 10 Gb/s at 1 ms with messages of 64 KiB.
const WINDOW: u32 = 64;
/// As `ib_send_bw`'s transmit queue.
const VERBS_WINDOW: u32 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_tells_the_port_and_what_was_lost() {
        let mut sweep = MessageSweep {
            transport: "verbs-uc".to_owned(),
            spin: true,
            window: 128,
            points: vec![MessagePoint {
                message_bytes: 64,
                up_lost: Some(3),
                down_lost: Some(0),
                rdma_port: Some("rxe0 port 1".to_owned()),
                ..MessagePoint::default()
            }],
            ..MessageSweep::default()
        };
        let text = table(&sweep);
        let said = "By verbs-uc through rxe0 port 1; lost: 3 up, 0 down.";
        assert!(text.contains(said), "{text}");
        assert!(text.contains("one send a message, at most 128"), "{text}");
        sweep.points[0].up_lost = None;
        assert!(!table(&sweep).contains("lost"));
        sweep.points[0].rdma_port = None;
        sweep.transport = "tcp".to_owned();
        let text = table(&sweep);
        assert!(
            text.contains("one write a message") && !text.contains("By "),
            "{text}"
        );
    }

    #[test]
    fn sizes_are_lists_or_powers_of_two() {
        let read = |text| sizes_of(text).unwrap();
        assert_eq!(read("1"), [1]);
        assert_eq!(read("3,64,4KiB"), [3, 64, 4096]);
        assert_eq!(read("2..16"), [2, 4, 8, 16]);
        assert_eq!(read("3..5"), [4]);
        assert_eq!(read("1..8MiB").len(), 24);
        for wrong in ["", "0", "9MiB", "x", "5..7", "8..2", "1,,2", "1..x"] {
            assert_eq!(sizes_of(wrong).unwrap_err().code, failure::USAGE, "{wrong}");
        }
    }
}
