//! Words and numbers that the page and the terminal share: status, causes, percentages.
//!
//! Rates, durations and sizes print through `units`, so that a number reads the same everywhere.
//! Text from outside (names, path files, evidence) passes through [`plain`] before it is shown:
//! control characters and direction overrides neither move a terminal's cursor nor reorder a page.

pub(crate) mod copy;
pub(crate) mod messages;

pub(crate) use run::text::{plain, plain_block};
use units::{Bytes, Duration, Rate};

use crate::model::{EndCost, HostCost, LegRecord, MachineCost, Phase, Run, RunState, Shares};

/// How a run's outcome is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Limited,
    Unsure,
    Bad,
}

/// The outcome in a word or three.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) label: String,
    pub(crate) tone: Tone,
}

/// One part of the sender's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// What held the sender back.
    pub(crate) name: &'static str,
    /// Suffix of its style class, and its name in `findings.json`.
    pub(crate) class: &'static str,
}

/// The four parts of the sender's time, in the order in which they are drawn.
pub(crate) const PARTS: [Part; 4] = [
    Part {
        name: "application",
        class: "application",
    },
    Part {
        name: "receive window",
        class: "receive_window",
    },
    Part {
        name: "send buffer",
        class: "send_buffer",
    },
    Part {
        name: "network",
        class: "network",
    },
];

/// The values of [`PARTS`], in their order; what is not a number reads zero.
pub(crate) fn part_values(shares: &Shares) -> [f64; 4] {
    let clean = |v: f64| {
        if v.is_finite() {
            v.clamp(0.0, 1.0)
        } else {
            0.0
        }
    };
    [
        shares.application,
        shares.receive_window,
        shares.send_buffer,
        shares.network,
    ]
    .map(clean)
}

/// What became of the run.
pub(crate) fn status(run: &Run) -> Status {
    let of = |label: &str, tone| Status {
        label: label.to_owned(),
        tone,
    };
    match run.state {
        RunState::Failed => return of("failed", Tone::Bad),
        // Its page was asked for meanwhile.
        RunState::Running if !run.gateways.is_empty() => return of("running", Tone::Good),
        RunState::Interrupted | RunState::Running => return of("interrupted", Tone::Unsure),
        RunState::Done => {}
    }
    // Of phases the verdict knows.
    if run.certificate().is_some_and(|c| !c.trusted) {
        return of("lab not trusted", Tone::Unsure);
    }
    let Some(verdict) = &run.verdict else {
        return of("no verdict", Tone::Unsure);
    };
    // Datagrams have no cause to be found: they came or they were lost.
    let udp = run.phases.last().and_then(|phase| phase.udp.as_ref());
    if let Some(udp) = udp.filter(|udp| verdict.cause.is_none() && udp.packets > 0) {
        return match udp.lost {
            0 => of("delivered", Tone::Good),
            _ => of("datagrams lost", Tone::Limited),
        };
    }
    if run.copy.as_ref().is_some_and(|copy| copy.failed > 0) {
        return of("incomplete", Tone::Unsure);
    }
    if !verdict.conclusive {
        return of("inconclusive", Tone::Unsure);
    }
    if run.verb == "sim" || run.fabric.is_some() {
        return of("simulated", Tone::Good);
    }
    if let Some(copy) = &run.copy {
        let label = match (copy.dry_run, copy.null_sink) {
            (true, _) => "not changed",
            (false, true) => "checked",
            (false, false) => "copied",
        };
        return of(label, Tone::Good);
    }
    if !run.gateways.is_empty() {
        return of("split", Tone::Good);
    }
    if run.sweep.is_some() {
        return of("swept", Tone::Good);
    }
    if run.messages.is_some() {
        return of("measured", Tone::Good);
    }
    if run.legs.iter().any(|leg| leg.bad) {
        return of("limited on one leg", Tone::Limited);
    }
    if verdict.healthy {
        return of("healthy", Tone::Good);
    }
    match &verdict.cause {
        Some(cause) => of(&format!("limited by {}", cause_label(cause)), Tone::Limited),
        None => of("limited", Tone::Limited),
    }
}

/// The verdict's sentence, or what can be said without one.
pub(crate) fn sentence(run: &Run) -> String {
    let verdict = run
        .verdict
        .as_ref()
        .map(|v| plain(&v.sentence))
        .filter(|s| !s.is_empty());
    if let Some(sentence) = verdict {
        return sentence;
    }
    let error = run.error.as_deref().map(plain).filter(|e| !e.is_empty());
    match (run.state, error) {
        (_, Some(error)) => error,
        (RunState::Failed, None) => "The run failed without saying why.".to_owned(),
        (RunState::Interrupted | RunState::Running, None) => {
            "The run ended before a verdict; what was measured until then is below.".to_owned()
        }
        (RunState::Done, None) => "The run has no verdict.".to_owned(),
    }
}

/// A cause's machine-readable name in words.
pub(crate) fn cause_label(cause: &str) -> String {
    match cause {
        "loss" => "packet loss".to_owned(),
        "receive_window" => "the receive window".to_owned(),
        "window_scaling" => "lost window scaling".to_owned(),
        "packet_rate" => "a device's packet rate".to_owned(),
        "send_buffer" => "the send buffer".to_owned(),
        "shallow_queue" => "a shallow queue".to_owned(),
        "short_transfer" => "its own shortness".to_owned(),
        "network_unknown" => "the network".to_owned(),
        "bottleneck_reached" => "the bottleneck's rate".to_owned(),
        "application" => "the application".to_owned(),
        "cpu" => "CPU".to_owned(),
        "declared_cost" => "a declared cost".to_owned(),
        "host_cpu" => "a host's CPU".to_owned(),
        "host_bus" => "a host's bus".to_owned(),
        "thinned_acks" => "thinned acknowledgments".to_owned(),
        "mtu" => "MTU".to_owned(),
        "static_routes" => "static routes".to_owned(),
        "chosen_paths" => "how paths are chosen".to_owned(),
        "connection_setup" => "connection setup".to_owned(),
        "outage" => "an outage of the path".to_owned(),
        "stopped_delivery" => "a path that stopped delivering".to_owned(),
        "path_mtu" => "a black hole for large packets".to_owned(),
        "server_think" => "the server's application".to_owned(),
        "client_think" => "the client's application".to_owned(),
        "round_trips" => "round trips between requests".to_owned(),
        "nagle" => "Nagle's algorithm and delayed ACKs".to_owned(),
        "long_way" => "a long way for short messages".to_owned(),
        "failed_link" => "a link that failed".to_owned(),
        other => plain(other).replace('_', " "),
    }
}

/// Both ends of a leg.
pub(crate) fn leg_name(leg: &LegRecord) -> String {
    format!("{} → {}", plain(&leg.from), plain(&leg.to))
}

/// What changes on a leg, in words; nothing where nothing does.
pub(crate) fn leg_mark(leg: &LegRecord) -> String {
    let marks = [
        (leg.slows, "slower"),
        (leg.loses, "loses packets"),
        (leg.delays, "a queue"),
        (leg.held_by_host, "held by a host"),
    ];
    let words: Vec<&str> = marks.into_iter().filter(|m| m.0).map(|m| m.1).collect();
    match (leg.bad, words.is_empty()) {
        (true, _) => format!("← {}", words.join(", ")),
        (false, true) => String::new(),
        (false, false) => format!("({})", words.join(", ")),
    }
}

/// What a transfer cost in a sentence: CPU time of the ends' threads, then the machines' CPUs.
pub(crate) fn host_cost(cost: &HostCost) -> String {
    let of = |end: &EndCost| {
        let busy = end.busiest_thread_share;
        let thread = match busy >= THREAD_WORTH_SAYING {
            true => format!(" (busiest thread {})", percent(busy)),
            false => String::new(),
        };
        let name = plain(&end.end);
        format!("{name} {} CPU s/GB{thread}", seconds_per_gigabyte(end))
    };
    let ends = cost.ends.iter().take(2).map(of);
    let machines = cost.machines.iter().take(2).map(cost_of_machine);
    ends.chain(machines).collect::<Vec<_>>().join("; ")
}

/// CPU seconds for each 10^9 bytes, in three decimals.
pub(crate) fn seconds_per_gigabyte(end: &EndCost) -> String {
    format!("{:.3}", end.cpu_ns_per_gigabyte as f64 / 1e9)
}

/// A machine's CPUs in a line: how full, what of it for packets, which is full, what was stolen.
pub(crate) fn cost_of_machine(machine: &MachineCost) -> String {
    let mean = machine.mean();
    let mut line = format!(
        "{}: {} busy, softirq {}",
        machine_name(machine),
        percent(mean.busy()),
        percent(mean.softirq_share + mean.irq_share),
    );
    if let Some(cpu) = machine.fullest() {
        let full = if cpu.busy() >= FULL { " full" } else { "" };
        line += &format!(", core {}{full}: {}", cpu.cpu, percent(cpu.busy()));
    }
    if mean.steal_share >= STEAL_WORTH_SAYING {
        line += &format!(", stolen {}", percent(mean.steal_share));
    }
    line
}

/// Whose machine, and how many CPUs it has.
pub(crate) fn machine_name(machine: &MachineCost) -> String {
    let cpus = plural(machine.cpus.len() as u64, "CPU");
    match machine.ends.as_slice() {
        [one] => format!("{}'s {cpus}", plain(one)),
        _ => format!("both ends on one machine of {cpus}"),
    }
}

/// A thread that used less has nothing to do with a limit.
const THREAD_WORTH_SAYING: f64 = 0.5;
/// From here on a CPU is called full.
const FULL: f64 = 0.95;
/// Less stolen time is not worth a word.
const STEAL_WORTH_SAYING: f64 = 0.005;

/// The phases that were measured to their end.
pub(crate) fn measured(run: &Run) -> impl Iterator<Item = &Phase> {
    run.phases.iter().filter(|p| goodput(p).is_some())
}

/// The phase that was measured first, and the one after the remedy if there was one.
pub(crate) fn before_and_after(run: &Run) -> (Option<&Phase>, Option<&Phase>) {
    let after = measured(run).filter(|p| p.name == "after").last();
    let before = measured(run).find(|p| p.name == "before");
    let first = measured(run).find(|p| p.name != "after");
    (before.or(first), after)
}

/// TCP payload that the path can carry.
pub(crate) fn achievable(run: &Run) -> Option<u64> {
    run.path
        .as_ref()
        .and_then(|p| p.achievable_bits_per_second)
        .filter(|&rate| rate > 0)
}

/// A PCI Express link as trained, with what the device can where that is more.
pub fn pci(link: &crate::model::PciFacts) -> String {
    let transfers = |millions: u32| format!("{} GT/s", f64::from(millions) / 1e3);
    let mut text = format!(
        "{} x{}",
        transfers(link.megatransfers_per_second),
        link.lanes
    );
    let slower = link.megatransfers_per_second < link.megatransfers_per_second_max;
    if slower || link.lanes < link.lanes_max {
        let most = transfers(link.megatransfers_per_second_max);
        text += &format!(" (the device can {most} x{})", link.lanes_max);
    }
    text += &format!(", {}", rate(link.bits_per_second));
    if let Some(above) = &link.slower_above {
        text += &format!(" by the link at {above}");
    }
    text
}

/// A phase's goodput, if it was measured to its end.
pub(crate) const fn goodput(phase: &Phase) -> Option<u64> {
    match (phase.goodput_bits_per_second, phase.duration_ns) {
        (0, 0) => None,
        (rate, _) => Some(rate),
    }
}

/// `a / b`, if that is a number.
pub(crate) fn ratio(a: u64, b: u64) -> Option<f64> {
    (b > 0).then(|| a as f64 / b as f64)
}

/// A share as a percentage: two digits below 10 %, whole percents above.
pub(crate) fn percent(share: f64) -> String {
    if !share.is_finite() {
        return "–".to_owned();
    }
    let value = share * 100.0;
    let decimals = match value.abs() {
        v if v < 0.000_05 => 0,
        v if v < 0.01 => 4,
        v if v < 0.1 => 3,
        v if v < 1.0 => 2,
        v if v < 9.95 => 1,
        // 99.6 % must not read as 100 %: the missing part is what the reader looks for.
        v if v > 99.0 && v < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text} %")
}

/// A share of the time as a percentage; what is there and below a tenth of a percent is said to be less
/// than that.
pub(crate) fn percent_of_time(share: f64) -> String {
    if share > 0.0 && share < 0.001 {
        return "< 0.1 %".to_owned();
    }
    percent(share)
}

/// Millionths as a percentage that is not too small: tenths, rounded up.
pub(crate) fn percent_up(ppm: u64) -> String {
    let tenths = ppm.div_ceil(1_000);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// A gain such as `238` or `1.24`, without the sign of multiplication.
pub(crate) fn factor(gain: f64) -> String {
    match gain {
        g if !g.is_finite() => "–".to_owned(),
        g if g >= 100_000.0 => format!("{g:.1e}"),
        g if g >= 19.95 => format!("{g:.0}"),
        g if g >= 9.995 => format!("{g:.1}"),
        g => format!("{g:.2}"),
    }
}

/// How far a measurement lies from its prediction: `+2.1 %`.
pub(crate) fn deviation(measured: u64, predicted: u64) -> Option<String> {
    let ratio = ratio(measured, predicted)? - 1.0;
    Some(if ratio.abs() < 0.000_5 {
        "as predicted".to_owned()
    } else if ratio > 9.0 {
        format!("{} times the prediction", factor(ratio + 1.0))
    } else {
        format!(
            "{} {} predicted",
            percent(ratio.abs()),
            if ratio < 0.0 { "below" } else { "above" }
        )
    })
}

/// Events of all with their share: `12 of 802,345 (0.002 %)`.
pub(crate) fn part_of(part: u64, whole: u64) -> String {
    match ratio(part, whole) {
        Some(_) if part == 0 => format!("0 of {}", count(whole)),
        Some(share) => format!("{} of {} ({})", count(part), count(whole), percent(share)),
        None => count(part),
    }
}

/// The nearest whole number.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and what is shown is never negative"
)]
pub(crate) fn whole(v: f64) -> u64 {
    v.round() as u64
}

/// A whole number with its thousands set apart.
pub(crate) fn count(n: u64) -> String {
    units::text::grouped(&n.to_string())
}

pub(crate) fn rate(bits_per_second: u64) -> String {
    Rate::from_bits_per_second(bits_per_second).to_string()
}

/// A size that was chosen: in powers of two where it is up to 999 of them in quarters, or a whole number
/// of up to four digits. Longer ones are rounded to four digits.
pub(crate) fn size(bytes: u64) -> String {
    if bytes < 1 << 10 {
        return bytes_exact(bytes);
    }
    let short = |scale: u64| {
        let quarters = bytes.is_multiple_of(scale / 4) && bytes < 1000 * scale;
        let whole = bytes.is_multiple_of(scale) && bytes < 10_000 * scale;
        bytes >= scale && (quarters || whole)
    };
    let binary = [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match binary.into_iter().find(|&(scale, _)| short(scale)) {
        Some((scale, name)) => format!("{} {name}", bytes as f64 / scale as f64),
        None => self::bytes(bytes),
    }
}

pub(crate) fn bytes(bytes: u64) -> String {
    Bytes::new(bytes).to_string()
}

/// How to write these sizes side by side: in powers of two where all divide evenly, else decimal.
pub(crate) fn sizes(all: &[u64]) -> impl Fn(u64) -> String + use<> {
    let is_binary = all.iter().all(|&n| Bytes::new(n).is_binary());
    move |bytes| {
        let bytes = Bytes::new(bytes);
        match is_binary {
            true => bytes.to_string(),
            false => bytes.decimal(),
        }
    }
}

/// A small size to the byte: `1500 B`.
pub(crate) fn bytes_exact(bytes: u64) -> String {
    format!("{bytes} B")
}

pub(crate) fn duration(ns: u64) -> String {
    Duration::from_ns(ns).to_string()
}

pub(crate) fn signed_duration(ns: i64) -> String {
    format!(
        "{}{}",
        if ns < 0 { "-" } else { "" },
        duration(ns.unsigned_abs())
    )
}

/// `n thing` or `n things`.
pub(crate) fn plural(n: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(n), if n == 1 { "" } else { "s" })
}

/// `text` with a no-break space between a digit and what follows it: `3.9 Mb/s` stays together.
pub(crate) fn glued(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(' ') {
        let (word, next) = (&rest[..at], &rest[at + 1..]);
        out.push_str(word);
        let unit = next
            .split([' ', ',', ';', '.', ':', ')', '<'])
            .next()
            .unwrap_or_default();
        let glue = word.ends_with(|c: char| c.is_ascii_digit()) && UNITS.contains(&unit);
        out.push(if glue { '\u{a0}' } else { ' ' });
        rest = next;
    }
    out + rest
}

/// Start of a run for a reader: `2026-01-31 12:00:00 UTC`; as it stands when it is not a time.
pub(crate) fn utc(rfc3339: &str) -> String {
    match rfc3339.parse::<jiff::Timestamp>() {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => plain(rfc3339),
    }
}

/// What `units` prints after a number, and percent.
const UNITS: [&str; 20] = [
    "b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s", "ns", "us", "ms", "s", "min", "B", "kB", "MB", "GB",
    "TB", "KiB", "MiB", "GiB", "%", "times",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Phase, UdpFacts, Verdict};

    #[test]
    fn a_simulated_run_is_not_called_limited() {
        let run = Run {
            verb: "sim".to_owned(),
            state: RunState::Done,
            verdict: Some(Verdict {
                conclusive: true,
                ..Default::default()
            }),
            ..Run::default()
        };
        assert_eq!(status(&run).label, "simulated");
        let measured = Run {
            verb: "measure".to_owned(),
            ..run
        };
        assert_eq!(status(&measured).label, "limited");
    }

    #[test]
    fn datagrams_were_delivered_or_lost_and_a_cause_that_was_found_comes_first() {
        let over_udp = |lost, cause: Option<&str>| Run {
            state: RunState::Done,
            verdict: Some(Verdict {
                conclusive: cause.is_some(),
                cause: cause.map(str::to_owned),
                ..Default::default()
            }),
            phases: vec![Phase {
                udp: Some(UdpFacts {
                    packets: 10,
                    lost,
                    ..UdpFacts::default()
                }),
                ..Phase::default()
            }],
            ..Run::default()
        };
        assert_eq!(status(&over_udp(0, None)).label, "delivered");
        assert_eq!(status(&over_udp(1, None)).label, "datagrams lost");
        let named = status(&over_udp(1, Some("packet_rate")));
        assert_eq!(named.label, "limited by a device's packet rate");
    }

    #[test]
    fn percentages_keep_the_digits_that_matter() {
        let shares = [
            0.0,
            0.000_021,
            0.004_108,
            0.0412,
            0.5,
            0.949_9,
            0.996,
            1.0,
            f64::NAN,
        ];
        let texts: Vec<String> = shares.iter().map(|&s| percent(s)).collect();
        let expected = [
            "0 %", "0.0021 %", "0.41 %", "4.1 %", "50 %", "95 %", "99.6 %", "100 %", "–",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn sizes_have_at_most_five_digits() {
        for (number, said) in [
            (1_023, "1023 B"),
            (1_024, "1 KiB"),
            (1_280, "1.25 KiB"),
            (1_281, "1.281 kB"),
            (1_448 << 10, "1448 KiB"),
            (1_048_320, "1.048 MB"),
            (999 << 10 | 768, "999.75 KiB"),
            (1_000 << 10 | 256, "1.024 MB"),
            (9_999 << 10, "9999 KiB"),
            (10_001 << 10, "10.24 MB"),
            (115_037_440, "115 MB"),
            (1_536 << 20, "1.5 GiB"),
            (10_000 << 30, "10.74 TB"),
        ] {
            assert_eq!(size(number), said, "{number}");
        }
        // What was measured stays as short.
        assert_eq!(bytes(112_341 << 10), "115 MB");
    }

    #[test]
    fn gains_and_counts_read_easily() {
        let gains: Vec<String> = [1.0, 1.237, 9.999, 12.34, 238.4, 3.2e7]
            .iter()
            .map(|&g| factor(g))
            .collect();
        assert_eq!(gains, ["1.00", "1.24", "10.0", "12.3", "238", "3.2e7"]);
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(part_of(12, 802_345), "12 of 802,345 (0.0015 %)");
        assert_eq!(part_of(12, 0), "12");
    }

    #[test]
    fn a_run_still_running_reads_as_interrupted_whatever_its_verdict() {
        let verdict = Verdict {
            healthy: true,
            conclusive: true,
            ..Verdict::default()
        };
        let run = Run {
            verdict: Some(verdict),
            ..Run::default()
        };
        assert_eq!(status(&run).label, "interrupted");
        let run = Run {
            state: RunState::Done,
            ..run
        };
        assert_eq!(
            status(&run),
            Status {
                label: "healthy".to_owned(),
                tone: Tone::Good
            }
        );
    }

    #[test]
    fn only_what_was_measured_to_its_end_is_before_or_after() {
        let phase = |name: &str, duration_ns| Phase {
            name: name.to_owned(),
            duration_ns,
            ..Phase::default()
        };
        let run = |phases| Run {
            phases,
            ..Run::default()
        };
        let only_after = run(vec![phase("after", 1)]);
        assert!(matches!(before_and_after(&only_after), (None, Some(_))));
        let sweep = run(vec![phase("sweep", 1), phase("after", 1)]);
        assert!(matches!(before_and_after(&sweep), (Some(_), Some(_))));
        let unfinished = run(vec![phase("before", 1), phase("after", 0)]);
        assert!(matches!(before_and_after(&unfinished), (Some(_), None)));
    }

    #[test]
    fn a_number_keeps_its_unit_on_the_line() {
        assert_eq!(
            glued("at 3.9 Mb/s, in 2 of 85 ms."),
            "at 3.9\u{a0}Mb/s, in 2 of 85\u{a0}ms."
        );
    }
}
