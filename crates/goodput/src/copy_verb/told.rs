//! What the user sees of a copy when it is over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ::copy::engine::disk::Io;
use ::copy::engine::{Note, Watch};
use ::copy::quic::Counts;
use report::model::{Copy, CopyEnd, CopyKernel, CopyQuic, CopyTime, CopyWay, Run, Verdict};
use units::Rate;
use wire::tcp_info::TcpInfo;

use super::operand::Operand;
use super::{Done, Plan, live, observed};

/// A far side's words without what a terminal would obey.
pub(super) fn plain(text: &str) -> String {
    text.replace(char::is_control, " ")
}

pub(super) fn average(bytes: u64, time: Duration) -> Rate {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Rate::average(units::Bytes::new(bytes), units::Duration::from_ns(ns))
}

/// In powers of ten, as rates are.
pub(super) fn bytes(n: u64) -> String {
    let mut value = n as f64;
    for unit in ["B", "kB", "MB", "GB", "TB"] {
        if value < 999.5 || unit == "TB" {
            let decimals = match value {
                _ if unit == "B" => 0,
                0.0..10.0 => 2,
                10.0..100.0 => 1,
                _ => 0,
            };
            return format!("{value:.decimals$} {unit}");
        }
        value /= 1e3;
    }
    String::new()
}

/// Puts what came of it into the run.
pub(super) fn put(run: &mut Run, plan: &Plan<'_>, done: &Done) {
    let account = &done.account;
    let typed: Vec<String> = plan
        .args
        .operands
        .iter()
        .map(|typed| typed.to_string_lossy().into_owned())
        .collect();
    let (to, from) = typed
        .split_last()
        .map_or((String::new(), Vec::new()), |(to, from)| {
            (to.clone(), from.to_vec())
        });
    let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let took = u64::try_from(done.took.as_nanos()).unwrap_or(u64::MAX);
    let goodput = average(account.received_bytes, done.took);
    let (mut chosen, mut notes) = (Vec::new(), Vec::new());
    let (all_notes, notes_more) = done.watch.notes(0);
    for note in all_notes {
        match note {
            Note::Chosen(text) => chosen.push(text),
            Note::Skipped(text) => notes.push(text),
        }
    }
    let mut copy = Copy {
        from,
        to,
        dry_run: plan.args.dry_run,
        cipher: done.cipher.name().to_owned(),
        transport: match done.watch.is_quic.load(Ordering::Relaxed) {
            true => "quic".to_owned(),
            false => "tcp".to_owned(),
        },
        streams: now(&done.watch.streams),
        reconnects: done.reconnects,
        names: account.names,
        same: account.same,
        placed: account.placed,
        failed: account.failed + now(&done.watch.unread),
        deleted: account.deleted,
        placed_bytes: account.placed_bytes,
        received_bytes: account.received_bytes,
        resumed_bytes: account.resumed_bytes,
        sent_bytes: now(&done.watch.sent_bytes),
        duration_ns: took,
        goodput_bits_per_second: goodput.as_bits_per_second(),
        steady_bits_per_second: done.watch.steady(),
        achievable_bits_per_second: done.achievable.map(Rate::as_bits_per_second),
        ends: ends(done),
        kernel: kernel(&connections(done)),
        connections: done.progress.connections(),
        quic: over_quic(&done.watch),
        ways: done
            .ways
            .iter()
            .map(|way| CopyWay {
                name: way.name.clone(),
                carried_bytes: way.bytes,
                failures: way.failures,
            })
            .collect(),
        ciphers: Vec::new(),
        ranking_agrees: None,
        choice_agrees: None,
        files_observed: None,
        beside: None,
        repair: None,
        cpu_ns: sys::clock::process_cpu().as_ns(),
        why: String::new(),
        chosen,
        notes,
        notes_more,
        certificate: done.certificate.clone(),
    };
    for end in &copy.ends {
        let is_asked = plan.args.io(end.end == "source") == Io::Direct;
        // An older far side, and one that only small files or other hosts' blocks came to, say nothing themselves.
        if is_asked && end.direct_bytes == 0 && copy.received_bytes > 0 {
            let text = format!("nothing went past the page cache at the {}", end.end);
            copy.chosen.push(text);
        }
    }
    copy.why = why(&copy, plan, done);
    observed::put(plan, &mut copy);
    run.verdict = Some(verdict(&copy));
    run.copy = Some(copy);
}

/// What a side told of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    /// Nanoseconds of the threads that carry blocks: files, sums, connections, waiting.
    pub(super) times_ns: [u64; 4],
    /// CPU time of its process, where that is another.
    pub(super) cpu_ns: Option<u64>,
    /// Bytes of blocks that were read or written past its page cache.
    pub(super) direct_bytes: u64,
    /// CPU time of the thread that moves QUIC's packets.
    pub(super) quic_cpu_ns: u64,
}

/// What is known of a side by its watch.
pub(super) fn spent(watch: &Watch, cpu_ns: Option<u64>) -> Spent {
    let times = [
        &watch.disk_ns,
        &watch.sum_ns,
        &watch.link_ns,
        &watch.idle_ns,
    ];
    Spent {
        times_ns: times.map(|counter| counter.load(Ordering::Relaxed)),
        cpu_ns,
        direct_bytes: watch.direct_bytes.load(Ordering::Relaxed),
        quic_cpu_ns: watch.quic_cpu_ns.load(Ordering::Relaxed),
    }
}

/// The source, then the destination, where they told.
fn ends(done: &Done) -> Vec<CopyEnd> {
    let near = spent(&done.watch, None);
    let (source, destination) = match done.is_source {
        true => (Some(near), done.far),
        false => (done.far, Some(near)),
    };
    [("source", source), ("destination", destination)]
        .into_iter()
        .filter_map(|(name, told)| end_of(name, told?))
        .collect()
}

fn end_of(name: &str, spent: Spent) -> Option<CopyEnd> {
    // A far side's numbers may be any.
    let all = spent.times_ns.iter().map(|part| *part as f64).sum::<f64>();
    if all <= 0.0 {
        return None;
    }
    let [disk, sums, link, idle] = spent.times_ns.map(|part| part as f64 / all);
    Some(CopyEnd {
        end: name.to_owned(),
        time: CopyTime {
            disk,
            sums,
            link,
            idle,
        },
        cpu_ns: spent.cpu_ns,
        quic_cpu_ns: Some(spent.quic_cpu_ns).filter(|ns| *ns > 0),
        direct_bytes: spent.direct_bytes,
    })
}

/// What the sending side counts of each connection over QUIC.
fn over_quic(watch: &Watch) -> Vec<CopyQuic> {
    let all = watch.over_quic().into_iter();
    all.map(|(stream, counts)| {
        let made = Counts {
            at_ns: counts.made_ns,
            ..Counts::default()
        };
        live::since(stream, &made, &counts)
    })
    .collect()
}

/// What the sending side's kernel knew of each connection last.
fn connections(done: &Done) -> Vec<TcpInfo> {
    let all = done.watch.connections().into_values();
    all.map(|connection| connection.info).collect()
}

/// What the sending side's kernel has of the connections.
fn kernel(ends: &[TcpInfo]) -> Option<CopyKernel> {
    let closest = ends.iter().map(|info| info.min_rtt_us).min()?;
    Some(CopyKernel {
        connections: ends.len() as u64,
        acked_bytes: sum(ends, |info| info.bytes_acked),
        retransmitted_segments: sum(ends, |info| info.total_retrans_segments),
        rtt_min_ns: closest.saturating_mul(1_000),
    })
}

/// A counter of all connections. A far side's numbers may be any.
fn sum(ends: &[TcpInfo], of: fn(&TcpInfo) -> u64) -> u64 {
    ends.iter().map(of).fold(0, u64::saturating_add)
}

/// What held it, out of where the threads that carry blocks spent their time and what the kernel says of their windows.
fn why(copy: &Copy, plan: &Plan<'_>, done: &Done) -> String {
    if copy.received_bytes == 0 {
        return String::new();
    }
    if let Some(achievable) = copy.achievable_bits_per_second {
        let full = |rate: u64| rate as f64 > 0.9 * achievable as f64;
        if full(copy.goodput_bits_per_second) {
            return "the path, which is full".to_owned();
        }
        if let Some(steady) = copy.steady_bits_per_second.filter(|steady| full(*steady)) {
            return format!(
                "its beginning and end: between them {}, which fills the path",
                Rate::from_bits_per_second(steady)
            );
        }
    }
    // Beside what packets have of their own, and the end.
    let reached = |limit: &Rate| {
        let fastest = copy
            .goodput_bits_per_second
            .max(copy.steady_bits_per_second.unwrap_or(0));
        fastest as f64 > 0.85 * limit.as_bits_per_second() as f64
    };
    let limits = super::limits::Limits::of(plan.args).ok();
    if let Some(limit) = limits.and_then(|limits| limits.now()).filter(reached) {
        return format!("the limit of {limit} that was asked for");
    }
    let made_ns = done.progress.first_made_ns().unwrap_or(0);
    if made_ns > LATE_NS.max(copy.duration_ns / 2) {
        return format!(
            "its beginning: the first connection for blocks was there after {:.1} s",
            made_ns as f64 / 1e9
        );
    }
    let cores = thread::available_parallelism().map_or(1, usize::from) as f64;
    let of_cores = copy.cpu_ns as f64 / copy.duration_ns.max(1) as f64;
    if of_cores > 0.8 * cores {
        return format!("this host's CPU: {of_cores:.1} of its {cores} cores were busy with it");
    }
    let time = |name: &str| copy.ends.iter().find(|end| end.end == name);
    if time("source").is_some_and(|end| end.time.idle > 0.5) {
        return format!(
            "looking at files, for which connections waited: {}, of {} each on average",
            report_count(copy.names),
            bytes(copy.placed_bytes / copy.placed.max(1))
        );
    }
    for end in &copy.ends {
        if end.time.disk > 0.5 {
            return format!("the {}'s disk", end.end);
        }
        if end.time.sums > 0.5 {
            return format!("the {}'s CPU, with sums of blocks", end.end);
        }
    }
    if copy.transport == "quic" {
        return "the path, as QUIC's congestion control found it, or the thread that moves its \
                packets"
            .to_owned();
    }
    let ends = connections(done);
    if ends.is_empty() {
        // An older far side does not tell.
        return String::new();
    }
    let sum = |of: fn(&TcpInfo) -> u64| sum(&ends, of) as f64;
    let busy = sum(|info| info.busy_time_us).max(1.0);
    let short = ends.iter().all(|info| info.rtt_us < 1_000);
    if sum(|info| info.rwnd_limited_us) > 0.4 * busy {
        if short {
            return "the destination: its CPU or its disk takes no more".to_owned();
        }
        return "the destination: it takes no more, for its disk, its CPU or its buffers' limit (tcp_rmem)"
            .to_owned();
    }
    if sum(|info| info.sndbuf_limited_us) > 0.4 * busy {
        let whose = match &plan.from[0] {
            Operand::Far { .. } | Operand::Served { .. } => "the source's",
            Operand::Here(_) | Operand::Lab { .. } => "this host's",
        };
        return format!(
            "{whose} limit of send buffers (tcp_wmem): more connections, or a higher limit"
        );
    }
    let idle_path = ends.iter().map(|info| info.rtt_us).min().unwrap_or(0);
    match idle_path {
        0..1_000 => "the two hosts' CPUs".to_owned(),
        _ => "the path: what its congestion control found there".to_owned(),
    }
}

/// A beginning that took no longer is none to speak of.
const LATE_NS: u64 = 1_000_000_000;

fn report_count(n: u64) -> String {
    match n {
        1 => "1 name".to_owned(),
        n => format!("{n} names"),
    }
}

fn verdict(copy: &Copy) -> Verdict {
    let seconds = copy.duration_ns as f64 / 1e9;
    let rate = Rate::from_bits_per_second(copy.goodput_bits_per_second);
    let what = match (copy.failed, copy.dry_run) {
        (0, true) => "Nothing was changed".to_owned(),
        (0, false) if copy.received_bytes == 0 && copy.placed == 0 => {
            "All was there already".to_owned()
        }
        (0, false) => "All arrived".to_owned(),
        (n, _) => format!("{n} names could not be copied"),
    };
    let share = copy.achievable_bits_per_second.map(|achievable| {
        format!(
            ", {:.1} % of what the path carries",
            copy.goodput_bits_per_second as f64 * 100.0 / achievable.max(1) as f64
        )
    });
    let speed = match copy.received_bytes {
        0 => String::new(),
        n => format!(
            ": {} in {seconds:.1} s, {rate}{}",
            bytes(n),
            share.unwrap_or_default()
        ),
    };
    let why = match copy.why.as_str() {
        "" => String::new(),
        why => format!("; held by {why}"),
    };
    Verdict {
        sentence: format!("{what}{speed}{why}"),
        conclusive: copy.failed == 0,
        ..Verdict::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_over_quic_have_their_rate_and_their_counts() {
        let watch = Watch::default();
        let words =
            |at_ms: u64, sent| [0, at_ms, 101, 100, 9, 1_400, sent, 7, 1_000 * sent, 700, 2];
        for (at_ms, sent) in [(1_500, 10), (3_000, 500)] {
            let mut words = words(at_ms * 1_000_000, sent);
            words[0] = 1_000_000_000;
            watch.know_over_quic(6, Counts::of_words(&words));
        }
        // A far side's numbers may be any.
        watch.know_over_quic(7, Counts::of_words(&[u64::MAX; 11]));
        watch.know_over_quic(u16::MAX, Counts::of_words(&words(9, 9)));
        let found = over_quic(&watch);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].stream, found[0].packets_sent), (6, 500));
        assert_eq!(found[0].sent_bits_per_second, 2_000_000);
        assert_eq!((found[0].packets_lost, found[0].congestion_events), (7, 2));
        assert_eq!((found[0].rtt_ns, found[0].rtt_min_ns), (101_000, 100_000));
        assert_eq!(found[1].sent_bits_per_second, 0);
    }

    #[test]
    fn a_far_sides_numbers_may_be_any() {
        let wild = TcpInfo {
            bytes_acked: u64::MAX,
            total_retrans_segments: u64::MAX,
            min_rtt_us: u64::MAX,
            ..TcpInfo::default()
        };
        let found = kernel(&[wild, wild]).unwrap();
        assert_eq!((found.acked_bytes, found.rtt_min_ns), (u64::MAX, u64::MAX));
        assert!(kernel(&[]).is_none());
    }
}
