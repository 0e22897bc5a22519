//! What the user sees of a copy when it is over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::disk::Io;
use crate::engine::{Note, Watch};
use crate::quic::Counts;
use run::model::{Copy, CopyEnd, CopyKernel, CopyQuic, CopyTime, CopyWay, Run, Verdict};
use units::Rate;
use wire::tcp_info::TcpInfo;

use super::why::HostFacts;
use super::{Caller, Done, Plan, job, observed, progress, why};

/// The rate of so many bytes in so much time.
pub fn average(bytes: u64, time: Duration) -> Rate {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Rate::average(units::Bytes::new(bytes), units::Duration::from_ns(ns))
}

/// In powers of ten, as rates are.
pub fn bytes(n: u64) -> String {
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
pub(super) fn put(run: &mut Run, plan: &Plan, done: &Done, caller: &Caller) {
    let mut copy = counted(plan, done);
    for end in &copy.ends {
        let is_asked = plan.request.io(end.end == "source") == Io::Direct;
        // An older far side, and one that only small files or other hosts' blocks came to, say nothing themselves.
        if is_asked && end.direct_bytes == 0 && copy.received_bytes > 0 {
            let text = format!("nothing went past the page cache at the {}", end.end);
            copy.chosen.push(text);
        }
    }
    let connections = connections(done);
    let facts = facts(&copy, plan, done, &connections);
    let why = why::why(&facts);
    let buffers = match plan.request.streams {
        None => why::buffers_for_one(&facts, [done.hosts[0].buffers[0], done.hosts[1].buffers[1]]),
        Some(_) => None,
    };
    copy.why = why;
    copy.chosen.extend(buffers);
    if let Some(cpu_ns) = done.ssh_cpu_ns.filter(|_| copy.received_bytes > 0) {
        copy.chosen.push(inside_ssh(&copy, cpu_ns));
    }
    observed::put(plan, &mut copy, caller);
    run.verdict = Some(verdict(&copy, done.watch.specials()));
    run.copy = Some(copy);
}

/// What the counters say of it.
fn counted(plan: &Plan, done: &Done) -> Copy {
    let account = &done.account;
    let typed: Vec<String> = plan
        .request
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
    Copy {
        from,
        to,
        dry_run: plan.request.dry_run,
        null_sink: plan.request.null_sink,
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
        skipped: sum_of(done.watch.specials()),
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
    }
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
    let near = spent(&done.watch, done.watched_cpu_ns);
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
        progress::since(stream, &made, &counts)
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

/// What is known of why it was no faster.
fn facts<'a>(
    copy: &'a Copy,
    plan: &Plan,
    done: &Done,
    connections: &'a [TcpInfo],
) -> why::Facts<'a> {
    let is_elsewhere = [plan.from[0].is_elsewhere(), plan.to.is_elsewhere()];
    let takes_part = is_elsewhere != [true, true];
    let is_alone = is_elsewhere == [false, false];
    let here = HostFacts {
        speeds: match done.cipher.is_open() {
            true => Vec::new(),
            false => job::speeds(),
        },
        ..HostFacts::here()
    };
    let bytes = copy.received_bytes.max(copy.sent_bytes);
    let cpu = |whose: &str, busy_ns: u64, host: &HostFacts, sides: f64| {
        let mut speeds = host.speeds.iter();
        let speed = speeds.find(|(cipher, _)| *cipher == done.cipher);
        // Encrypting and decrypting one after the other was measured, of which each side does one.
        let seconds = speed.map_or(0.0, |(_, speed)| {
            sides / 2.0 * bytes as f64 / speed.max(1.0)
        });
        why::Cpu {
            whose: whose.to_owned(),
            busy_ns,
            cores: host.cores,
            cipher_ns: u64::try_from(
                Duration::try_from_secs_f64(seconds)
                    .unwrap_or_default()
                    .as_nanos(),
            )
            .unwrap_or(u64::MAX),
        }
    };
    let mut cpus = Vec::new();
    if takes_part {
        let sides = if is_alone { 2.0 } else { 1.0 };
        cpus.push(cpu("this host", copy.cpu_ns, &here, sides));
    }
    for end in &copy.ends {
        let host = &done.hosts[usize::from(end.end == "destination")];
        let told = end.cpu_ns.filter(|ns| *ns > 0);
        cpus.extend(told.map(|ns| cpu(&format!("the {}", end.end), ns, host, 1.0)));
    }
    let limits = super::limits::Limits::of(&plan.request).ok();
    why::Facts {
        copy,
        limit: limits.and_then(|limits| limits.now()),
        made_ns: done.progress.first_made_ns().unwrap_or(0),
        cpus,
        connections,
        inside: plan.request.through_ssh.then_some(done.ssh_cpu_ns),
        is_source_here: !is_elsewhere[0],
    }
}

/// What ssh cost that carried the copy.
fn inside_ssh(copy: &Copy, cpu_ns: u64) -> String {
    let seconds = |ns: u64| ns as f64 / 1e9;
    format!(
        "inside ssh: {} at {}, for which ssh took {:.1} s of this host's CPU beside goodput's {:.1} s, and as much of the other's; \
         connections of their own need none of that",
        bytes(copy.received_bytes),
        Rate::from_bits_per_second(copy.goodput_bits_per_second),
        seconds(cpu_ns),
        seconds(copy.cpu_ns),
    )
}

/// A far side's numbers may be any.
fn sum_of(counts: [u64; 3]) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

/// How many names were skipped, and what they are; nothing where none were.
fn skipped(specials: [u64; 3]) -> Option<String> {
    let kinds = [
        ("socket", "sockets"),
        ("named pipe", "named pipes"),
        ("device", "devices"),
    ];
    let there = kinds.into_iter().zip(specials);
    let there: Vec<_> = there.filter(|(_, count)| *count > 0).collect();
    let what = match &there[..] {
        [] => return None,
        [((one, _), 1)] => (*one).to_owned(),
        [((_, many), _)] => (*many).to_owned(),
        all => {
            let each = all.iter().map(|((one, many), count)| match count {
                1 => format!("1 {one}"),
                n => format!("{n} {many}"),
            });
            each.collect::<Vec<_>>().join(", ")
        }
    };
    Some(format!("{} skipped ({what})", sum_of(specials)))
}

/// What came of the names.
fn outcome(copy: &Copy, specials: [u64; 3]) -> String {
    if copy.failed > 0 {
        let all = copy.placed.saturating_add(copy.same);
        let all = all.saturating_add(copy.failed);
        let files = if all == 1 { "file" } else { "files" };
        return format!("incomplete: {} of {all} {files} not copied", copy.failed);
    }
    if copy.dry_run {
        return "Nothing was changed".to_owned();
    }
    let has_come = copy.received_bytes > 0 || copy.placed > 0;
    match (has_come, skipped(specials)) {
        (false, Some(skipped)) if copy.same == 0 => format!("nothing copied: {skipped}"),
        (false, Some(skipped)) => format!("All was there already, {skipped}"),
        (false, None) => "All was there already".to_owned(),
        (true, _) if copy.null_sink => "All arrived, and nothing was written".to_owned(),
        (true, _) => "All arrived".to_owned(),
    }
}

fn verdict(copy: &Copy, specials: [u64; 3]) -> Verdict {
    let seconds = copy.duration_ns as f64 / 1e9;
    let rate = Rate::from_bits_per_second(copy.goodput_bits_per_second);
    let what = outcome(copy, specials);
    let share = copy.achievable_bits_per_second.map(|achievable| {
        format!(
            ", {:.1} % of what the path carries",
            copy.goodput_bits_per_second as f64 * 100.0 / achievable.max(1) as f64
        )
    });
    let speed = match copy.received_bytes {
        0 => String::new(),
        n => format!(
            "{} {} in {seconds:.1} s, {rate}{}",
            if copy.failed > 0 { ";" } else { ":" },
            bytes(n),
            share.unwrap_or_default()
        ),
    };
    let why = match copy.why.as_str() {
        "" => String::new(),
        why::TOO_SHORT => format!("; {} what held it", why::TOO_SHORT),
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
    fn the_verdict_names_what_was_not_copied_and_what_was_skipped() {
        let says = |copy: &Copy, specials| verdict(copy, specials).sentence;
        let bad = Copy {
            placed: 27,
            failed: 1,
            received_bytes: 2_000_000,
            duration_ns: 1_000_000_000,
            goodput_bits_per_second: 16_000_000,
            ..Copy::default()
        };
        assert_eq!(
            says(&bad, [0; 3]),
            "incomplete: 1 of 28 files not copied; 2.00 MB in 1.0 s, 16 Mb/s"
        );
        assert!(!verdict(&bad, [0; 3]).conclusive);
        let none = Copy::default();
        assert_eq!(
            says(&none, [0, 1, 0]),
            "nothing copied: 1 skipped (named pipe)"
        );
        assert_eq!(
            says(&none, [0, 0, 3]),
            "nothing copied: 3 skipped (devices)"
        );
        assert_eq!(
            says(&none, [1, 2, 0]),
            "nothing copied: 3 skipped (1 socket, 2 named pipes)"
        );
        let same = Copy {
            same: 2,
            ..Copy::default()
        };
        assert_eq!(
            says(&same, [0, 1, 0]),
            "All was there already, 1 skipped (named pipe)"
        );
        assert_eq!(says(&same, [0; 3]), "All was there already");
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
