//! What the user sees of a copy: while it goes on, and afterwards.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ::copy::engine::{Note, Watch};
use indicatif::{ProgressBar, ProgressStyle};
use report::model::{Copy, CopyKernel, CopyTime, Run, Verdict};
use units::Rate;

use super::limits::Limits;
use super::{Done, Plan, observed};
use crate::context::{self, Context};

/// How often the line is drawn.
const EVERY: Duration = Duration::from_millis(100);
/// How often it is seen whether it is over.
const LOOK: Duration = Duration::from_millis(5);

/// A far side's words without what a terminal would obey.
pub(super) fn plain(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Shows how far it is until `is_over`, and has it stop when the user asks.
pub(super) fn show(
    watch: &Watch,
    limits: &mut Limits,
    context: &Context,
    json: bool,
    is_over: &dyn Fn() -> bool,
) {
    // Hidden by indicatif itself when stderr is not a terminal.
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let mut told = 0;
    // What had arrived when, over about a second.
    let mut seen = VecDeque::from([(Instant::now(), 0)]);
    while !is_over() {
        let due = Instant::now() + EVERY;
        // Whoever copies one small file sees when it is done.
        while Instant::now() < due && !is_over() {
            thread::sleep(LOOK);
        }
        if context.interrupted().is_some() {
            watch.stop();
        }
        if let Some(text) = limits.tick(watch) {
            bar.suspend(|| context::note(text));
        }
        let (notes, _) = watch.notes(told);
        told += notes.len();
        for note in notes {
            let (Note::Skipped(text) | Note::Chosen(text)) = note;
            if !json {
                bar.suspend(|| context::note(plain(&text)));
            }
        }
        let confirmed = now(&watch.confirmed_bytes);
        seen.push_back((Instant::now(), confirmed));
        if seen.len() > 11 {
            seen.pop_front();
        }
        let (then, before) = seen[0];
        let fresh = confirmed.saturating_sub(before);
        let rate = average(fresh, then.elapsed());
        let wanted = now(&watch.wanted_bytes);
        let left = wanted.saturating_sub(confirmed);
        let is_walked = watch.is_walked.load(Ordering::Relaxed);
        let ahead = match (
            is_walked && rate > Rate::from_bits_per_second(0),
            wanted > 0,
        ) {
            (true, _) => {
                let seconds = left.saturating_mul(8) / rate.as_bits_per_second().max(1);
                format!(", {seconds} s left")
            }
            (false, true) => ", still looking".to_owned(),
            (false, false) => String::new(),
        };
        bar.set_message(format!(
            "{} of {} arrived, {} files, {} over {} connections{ahead}",
            bytes(confirmed),
            bytes(wanted.max(confirmed)),
            now(&watch.placed),
            rate,
            now(&watch.streams),
        ));
        bar.tick();
    }
    bar.finish_and_clear();
}

fn average(bytes: u64, time: Duration) -> Rate {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Rate::average(units::Bytes::new(bytes), units::Duration::from_ns(ns))
}

/// In powers of ten, as rates are.
fn bytes(n: u64) -> String {
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
    let spent = [
        &done.watch.disk_ns,
        &done.watch.sum_ns,
        &done.watch.link_ns,
        &done.watch.idle_ns,
    ];
    let spent = spent.map(now);
    let all = spent.iter().sum::<u64>().max(1) as f64;
    let [disk, sums, link, idle] = spent.map(|part| part as f64 / all);
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
        time: CopyTime {
            disk,
            sums,
            link,
            idle,
        },
        kernel: kernel(done),
        ciphers: Vec::new(),
        ranking_agrees: None,
        choice_agrees: None,
        files_observed: None,
        cpu_ns: sys::clock::process_cpu().as_ns(),
        why: String::new(),
        chosen,
        notes,
        notes_more,
        certificate: done.certificate.clone(),
    };
    copy.why = why(&copy, done);
    observed::put(plan, &mut copy);
    run.verdict = Some(verdict(&copy));
    run.copy = Some(copy);
}

/// What the kernel has of the connections, where this side sent.
fn kernel(done: &Done) -> Option<CopyKernel> {
    let ends = done.watch.ends();
    let sum = |of: fn(&wire::tcp_info::TcpInfo) -> u64| ends.iter().map(of).sum();
    let closest = ends.iter().map(|info| info.min_rtt_us).min()?;
    Some(CopyKernel {
        connections: ends.len() as u64,
        acked_bytes: sum(|info| info.bytes_acked),
        retransmitted_segments: sum(|info| info.total_retrans_segments),
        rtt_min_ns: closest * 1_000,
    })
}

/// What held it, out of where the threads that carry blocks spent their time and what the kernel says of their windows.
fn why(copy: &Copy, done: &Done) -> String {
    if copy.received_bytes == 0 {
        return String::new();
    }
    let time = &copy.time;
    let (here, there) = match done.is_source {
        true => ("source", "destination"),
        false => ("destination", "source"),
    };
    if let Some(achievable) = copy.achievable_bits_per_second
        && copy.goodput_bits_per_second as f64 > 0.9 * achievable as f64
    {
        return "the path is full".to_owned();
    }
    if time.idle > 0.5 {
        return format!(
            "connections waited for files: {} to look at, of {} each on average",
            report_count(copy.names),
            bytes(copy.placed_bytes / copy.placed.max(1))
        );
    }
    if time.disk > 0.5 {
        return format!("the {here}'s disk");
    }
    if time.sums > 0.5 {
        return format!("the {here}'s CPU, with sums of blocks");
    }
    let ends = done.watch.ends();
    if ends.is_empty() {
        // The side that sent knows, and it is not this one.
        return String::new();
    }
    let sum = |of: fn(&wire::tcp_info::TcpInfo) -> u64| ends.iter().map(of).sum::<u64>() as f64;
    let busy = sum(|info| info.busy_time_us).max(1.0);
    let short = ends.iter().all(|info| info.rtt_us < 1_000);
    if sum(|info| info.rwnd_limited_us) > 0.4 * busy {
        if short {
            return format!("the {there}: its CPU or its disk takes no more");
        }
        return format!(
            "the {there}: it takes no more, for its disk, its CPU or its buffers' limit (tcp_rmem)"
        );
    }
    if sum(|info| info.sndbuf_limited_us) > 0.4 * busy {
        return "this host's limit of send buffers (tcp_wmem): more connections, or a higher limit"
            .to_owned();
    }
    let idle_path = ends.iter().map(|info| info.rtt_us).min().unwrap_or(0);
    match idle_path {
        0..1_000 => "the two hosts' CPUs".to_owned(),
        _ => "the path: what its congestion control found there".to_owned(),
    }
}

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
