//! A host is the limit: one of its CPUs has no time left, in a data thread, in softirqs, or all have.
//!
//! A thread that writes or reads all the time is never blocked, so no window and no network holds it
//! back. The network's share of the sender's time must be small all the same: a thread can be busy
//! with a link that is just as full, and then the link is to be named. Three signs, the surest speaks:
//!
//! * the busiest **data thread** used one CPU throughout, or waited for one where it did not;
//! * a **CPU** was full and spent half of it on interrupts and softirqs, which belong to no thread;
//! * **all CPUs** were full and the transfer used much of them.
//!
//! How much of a CPU one copy of the payload takes is said with it, where it was measured: each byte
//! goes through memory at least once at each end, unless it is lent to the kernel.
//!
//! What is left out: the bandwidth of all CPUs' memory together, and drops for want of CPU, which look
//! like loss.

use crate::case::Case;
use crate::confidence::{data, ramp};
use crate::evidence::{CpuLoad, HostLoad};
use crate::rules::application;
use crate::text;
use throughput::{Cause, Finding, Host, Remedy};
use units::{Bytes, Rate};

/// What shows that a host has no time left.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sign {
    /// Its share of one CPU, and of the time that it waited for one.
    Thread(f64, f64),
    Softirq(CpuLoad),
    All(f64),
}

/// The host whose CPU limits, if one does.
pub(crate) fn find(case: &Case<'_>) -> Option<Finding> {
    let ends = [
        (Host::Sender, case.evidence.sender_load.as_ref()),
        (Host::Receiver, case.evidence.receiver_load.as_ref()),
    ];
    let signs = ends.into_iter().filter_map(|(host, load)| {
        let (sign, sure) = surest(case, load?)?;
        Some((host, load?, sign, sure))
    });
    let (host, load, sign, sure) = signs.max_by(|a, b| a.3.total_cmp(&b.3))?;
    if application::is_paced(case) {
        return None;
    }
    let network = case.facts.attributed_or_network().network;
    let confidence = data(case.facts.intervals) * sure * (1.0 - ramp(network, 0.3, 0.7));
    Some(Finding {
        cause: Cause::HostCpu,
        title: title(case, host, sign),
        confidence,
        share: (1.0 - network).clamp(0.0, 1.0),
        evidence: evidence(case, host, load, network),
        remedy: Some(remedy(case, host, load, sign)),
    })
}

/// What a host that is the limit makes look small: its windows and its application.
pub(crate) const fn is_symptom(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::Application | Cause::SendBuffer | Cause::ReceiveWindow
    )
}

fn surest(case: &Case<'_>, load: &HostLoad) -> Option<(Sign, f64)> {
    let thread = load.busiest_thread.map(|busy| {
        // One that waits for its turn has no CPU time left either, whoever uses it up.
        let sure = ramp(busy + load.thread_waited, THREAD_BUSY, THREAD_FULL);
        (Sign::Thread(busy, load.thread_waited), sure)
    });
    // In a lab the thread that carries the path is never idle, and its softirqs are both hosts'.
    let in_lab = case.evidence.lab_trusted.is_some();
    let softirq = load.softirq_cpu.filter(|_| !in_lab).map(|cpu| {
        let sure = ramp(cpu.busy, CPU_BUSY, CPU_FULL) * ramp(cpu.softirq, 0.4, 0.6);
        (Sign::Softirq(cpu), sure)
    });
    let cpus = f64::from(load.cpus.max(1));
    // One machine works for both ends.
    let threads = if case.evidence.one_machine {
        let ends = [case.evidence.sender_load, case.evidence.receiver_load];
        ends.iter().flatten().map(|l| l.threads).sum()
    } else {
        load.threads
    };
    let own = threads / cpus + if in_lab { 0.0 } else { load.softirq };
    let sure = ramp(load.busy, CPU_BUSY, CPU_FULL) * ramp(own, 0.3, 0.6);
    let signs = [thread, softirq, Some((Sign::All(load.busy), sure))];
    let speaking = signs.into_iter().flatten().filter(|s| s.1 > 0.0);
    // Of equals the first: a thread says more than a machine.
    speaking.reduce(|best, next| if next.1 > best.1 { next } else { best })
}

fn place(case: &Case<'_>, host: Host) -> &'static str {
    if case.evidence.one_machine {
        "this machine, which is both ends"
    } else {
        case.host_name(host)
    }
}

fn title(case: &Case<'_>, host: Host, sign: Sign) -> String {
    let place = match (case.evidence.one_machine, case.host_name(host)) {
        (true, _) => "This machine, which is both ends,",
        (_, "the near host") => "The near host",
        _ => "The far host",
    };
    let end = match host {
        Host::Sender => "sending",
        Host::Receiver => "receiving",
    };
    let what = match sign {
        Sign::Thread(busy, waited) => {
            let waits = match waited >= WAIT_WORTH_SAYING {
                true => format!(" and waited for one for {}", text::percent(waited.min(1.0))),
                false => String::new(),
            };
            format!(
                "a {end} thread used {} of one CPU{waits}",
                text::percent(busy.min(1.0))
            )
        }
        Sign::Softirq(cpu) => format!(
            "CPU {} is full: {}, {} of it in softirqs",
            cpu.number,
            text::percent(cpu.busy),
            text::percent(cpu.softirq / cpu.busy.max(1e-9)),
        ),
        Sign::All(busy) => format!("all its CPUs are full: {}", text::percent(busy)),
    };
    let (goodput, possible) = (case.facts.goodput, case.of_possible());
    format!("{place} is the limit, not the network, at {goodput}{possible}; {what}")
}

fn evidence(case: &Case<'_>, host: Host, load: &HostLoad, network: f64) -> Vec<String> {
    let place = place(case, host);
    let mut lines = Vec::new();
    lines.extend(load.busiest_thread.map(|busy| {
        format!(
            "the busiest data thread on {place} used {} of one CPU and waited for one for {} of the \
             time (schedstat)",
            text::percent(busy),
            text::percent(load.thread_waited)
        )
    }));
    for cpu in load.fullest_cpu.into_iter().chain(
        load.softirq_cpu
            .filter(|s| Some(s.number) != load.fullest_cpu.map(|f| f.number) && s.softirq >= 0.05),
    ) {
        lines.push(format!(
            "CPU {} there was busy for {} of the time, in softirqs for {} (/proc/stat)",
            cpu.number,
            text::percent(cpu.busy),
            text::percent(cpu.softirq),
        ));
    }
    lines.extend(load.memory_copy.and_then(|copy| memory_line(case, copy)));
    if load.steal >= STEAL_WORTH_SAYING {
        let steal = text::percent(load.steal);
        lines.push(format!("the hypervisor took {steal} of its time (steal)"));
    }
    lines.push(format!(
        "the network held the sender back for {} of the time",
        text::percent(network)
    ));
    lines
}

/// What one copy of the payload takes, the busiest thread's part of it.
fn memory_line(case: &Case<'_>, copy: Rate) -> Option<String> {
    let (goodput, copied) = (
        case.facts.goodput.as_bits_per_second() as f64,
        copy.as_bits_per_second() as f64,
    );
    let each = goodput / f64::from(case.stream_count().max(1)) / copied;
    each.is_finite().then(|| {
        format!(
            "one copy of a stream's payload takes {} of a CPU there, which copies {}/s from memory to \
             memory",
            text::percent(each),
            Bytes::new(copy.as_bits_per_second() / 8),
        )
    })
}

fn remedy(case: &Case<'_>, host: Host, load: &HostLoad, sign: Sign) -> Remedy {
    let streams = case.stream_count();
    let wanted = load.cpus.min(STREAMS_MAX);
    let more = matches!(sign, Sign::Thread(..)) && wanted > streams;
    let summary = match sign {
        Sign::Thread(..) if more => {
            "Let more CPUs work, with more streams, or make each byte cheaper: larger packets, \
             off-loads of the interface, no copy"
        }
        Sign::Thread(..) => {
            "Make each byte cheaper (larger packets, off-loads of the interface, no copy), or use a \
             faster host"
        }
        Sign::Softirq(_) => {
            "Spread arriving packets over more CPUs (receive queues, RPS), or make them fewer: larger \
             packets, GRO"
        }
        Sign::All(_) => "Free the CPUs of other work, or use a host with more of them",
    };
    Remedy {
        summary: summary.to_owned(),
        host: case.remedy_host(host),
        sysctl: Vec::new(),
        flags: more
            .then(|| format!("--streams {wanted}"))
            .into_iter()
            .collect(),
        settings: Vec::new(),
        predicted: None,
        predicted_from: None,
        cost: "none for the network".to_owned(),
    }
}

/// A thread that waited for a seventh of the time was held back by something else; chosen.
const THREAD_BUSY: f64 = 0.85;
/// Wake-ups and the kernel's own work leave no thread much more than this; chosen.
const THREAD_FULL: f64 = 0.97;
/// The same of a CPU, whose account steps by 10 ms; chosen.
const CPU_BUSY: f64 = 0.9;
const CPU_FULL: f64 = 0.98;
/// Chosen.
const WAIT_WORTH_SAYING: f64 = 0.05;
/// Chosen.
const STEAL_WORTH_SAYING: f64 = 0.01;
/// More streams than this bring more cost than CPUs; chosen.
const STREAMS_MAX: u32 = 16;
