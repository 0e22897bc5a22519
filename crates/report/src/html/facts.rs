//! What the numbers rest on: the lab's certificate, other tools' numbers, machines, command line.

use super::{ENTRIES_MAX, PHASES_MAX, left_out, shown, shown_block, table_row};
use crate::model::{
    Certificate, CpuShares, HostCost, HostFacts, KernelPace, NicFacts, PciFacts, Phase, Run,
};
use crate::text;

/// Was the path what the path file says?
pub(super) fn certificate(out: &mut String, run: &Run) {
    let of_phases = run
        .phases
        .iter()
        .filter_map(|p| Some((p.name.as_str(), p.certificate.as_ref()?)));
    let whole = run.certificate().map(|c| ("whole run", c));
    let certified: Vec<(&str, &Certificate)> = of_phases.chain(whole).take(PHASES_MAX).collect();
    if certified.is_empty() {
        return;
    }
    out.push_str(
        "<section>\n<h2>The lab's certificate <span>was the path what its file says?</span></h2>\n\
         <div class=\"scroll\"><table class=\"details\">\n<thead><tr><td></td>",
    );
    for (name, _) in &certified {
        put!(out, "<th scope=\"col\">{}</th>", shown(name));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    let mut row = |heading: &str, cell: &dyn Fn(&Certificate) -> String| {
        let cells: Vec<Option<String>> = certified.iter().map(|(_, c)| Some(cell(c))).collect();
        table_row(out, heading, &cells);
    };
    row("Verdict", &|c| {
        let (class, word) = if c.trusted {
            ("good", "trusted")
        } else {
            ("bad", "not trusted")
        };
        let problems = c
            .problems
            .iter()
            .take(ENTRIES_MAX)
            .map(|p| format!("<br>{}", shown(p)));
        format!(
            "<span class=\"word {class}\">{word}</span>{}",
            problems.collect::<String>()
        )
    });
    if certified.iter().any(|(_, c)| c.kernel.is_some()) {
        row("Links run by", &|c| match &c.kernel {
            Some(run) => {
                let sum = |of: fn(&KernelPace) -> u64| run.links.iter().map(of).sum::<u64>();
                format!(
                    "the kernel <i>no delay measured; {} busy, {} beyond the rate</i>",
                    text::plural(sum(|p| p.windows_busy), "window"),
                    text::count(sum(|p| p.windows_over))
                )
            }
            None => "goodput".to_owned(),
        });
    }
    row(
        "Goodput without the lab's own error",
        &|c| match c.goodput_error_ppm {
            None => "not known".to_owned(),
            Some(ppm) => {
                let how = if c.error_simulated {
                    "simulated"
                } else {
                    "by a bound"
                };
                let lapses = c.lapses.iter().take(ENTRIES_MAX);
                let lapses = lapses.map(|l| format!("<br><i>{}</i>", shown(l)));
                format!(
                    "at most {} higher <i>{how}</i>{}",
                    text::percent_up(ppm),
                    lapses.collect::<String>()
                )
            }
        },
    );
    row("One-way delay error", &|c| {
        if c.kernel.is_some() {
            return "not measured".to_owned();
        }
        let [p50, p99, p999, max] = [
            c.delay_error_p50_ns,
            c.delay_error_p99_ns,
            c.delay_error_p999_ns,
            c.delay_error_max_ns,
        ]
        .map(text::signed_duration);
        format!("<i>p50</i> {p50}, <i>p99</i> {p99}, <i>p99.9</i> {p999}, <i>max</i> {max}")
    });
    if certified.iter().any(|(_, c)| !c.rate_errors.is_empty()) {
        row("Rate error, 99 % of the windows", &|c| {
            let errors = c.rate_errors.iter().take(ENTRIES_MAX);
            let errors = errors.map(|e| {
                let window = text::duration(e.window_ns);
                format!(
                    "<i>{window}</i> ≤ {}",
                    text::percent(count_as_share(e.p99_ppm))
                )
            });
            errors.collect::<Vec<_>>().join(", ")
        });
    }
    row("Probes compared", &|c| match c.probes_lost {
        0 => text::count(c.probes),
        lost => format!(
            "{} <i>{} never arrived</i>",
            text::count(c.probes),
            text::count(lost)
        ),
    });
    row("Frames later than 1 ms", &|c| {
        text::part_of(c.frames_late, c.frames)
    });
    row("Frames lost by the lab", &|c| {
        text::count(c.frames_lost_by_lab)
    });
    row("Lost on purpose", &|c| {
        let random = (c.segments_lost_random, "at random");
        let queue = (c.segments_lost_queue, "at a full queue");
        let lost = [random, queue].into_iter().filter(|&(n, _)| n > 0);
        let lost: Vec<String> = lost
            .map(|(n, where_)| format!("{} <i>{where_}</i>", text::plural(n, "segment")))
            .collect();
        if lost.is_empty() {
            "nothing".to_owned()
        } else {
            lost.join(", ")
        }
    });
    row("Deepest queue", &|c| text::bytes(c.queue_max_bytes));
    row("Forwarder's CPU time", &|c| {
        text::duration(c.cpu_forwarder_ns)
    });
    row("Memory for frames in flight", &|c| {
        text::bytes(c.memory_bytes)
    });
    out.push_str("</tbody>\n</table></div>\n</section>\n");
}

/// The legs of the path, a line each.
pub(super) fn legs(out: &mut String, run: &Run) {
    if run.legs.is_empty() {
        return;
    }
    out.push_str(
        "<section>\n<h2>Legs <span>what each adds to the path before it</span></h2>\n\
         <div class=\"scroll\"><table class=\"list\">\n<thead><tr><th>leg</th>\
         <th class=\"n\">goodput to its end</th><th class=\"n\">explained by the legs before</th>\
         <th class=\"n\">round trip added</th><th class=\"n\">lost to its end</th><th></th></tr></thead>\n\
         <tbody>\n",
    );
    for leg in run.legs.iter().take(ENTRIES_MAX) {
        let explained = leg.explained_bits_per_second.map(text::rate);
        let class = if leg.bad { "word bad" } else { "word" };
        put!(
            out,
            "<tr><td><b>{}</b></td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td><span class=\"{class}\">{}</span></td></tr>\n",
            shown(&text::leg_name(leg)),
            text::rate(leg.goodput_bits_per_second),
            explained.as_deref().unwrap_or("–"),
            text::duration(leg.rtt_added_ns),
            text::percent(leg.loss),
            shown(&text::leg_mark(leg)),
        );
    }
    out.push_str("</tbody>\n</table></div>\n</section>\n");
}

/// What the transfers cost the hosts, and what their CPUs did meanwhile.
pub(super) fn host_cost(out: &mut String, run: &Run) {
    let told: Vec<(&Phase, &HostCost)> = run
        .phases
        .iter()
        .filter_map(|p| Some((p, p.host_cost.as_ref()?)))
        .take(PHASES_MAX)
        .collect();
    if told.is_empty() {
        return;
    }
    out.push_str(
        "<section>\n<h2>Host cost <span>CPU time of the transfer's threads, and of the machines \
         meanwhile</span></h2>\n<div class=\"scroll\"><table class=\"list\">\n<thead><tr><th>phase</th>\
         <th>end</th><th class=\"n\">CPU s/GB</th><th class=\"n\">user</th><th class=\"n\">system</th>\
         <th class=\"n\">busiest thread</th></tr></thead>\n<tbody>\n",
    );
    for (phase, end) in told
        .iter()
        .flat_map(|(p, c)| c.ends.iter().take(2).map(move |e| (p, e)))
    {
        put!(
            out,
            "<tr><td><b>{}</b></td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{} of a CPU</td></tr>\n",
            shown(&phase.name),
            shown(&end.end),
            text::seconds_per_gigabyte(end),
            text::duration(end.cpu_user_ns),
            text::duration(end.cpu_system_ns),
            text::percent(end.busiest_thread_share),
        );
    }
    out.push_str(
        "</tbody>\n</table></div>\n<div class=\"scroll\"><table class=\"list\">\n<thead><tr>\
         <th>phase</th><th>machine</th><th>CPU</th><th class=\"n\">busy</th><th class=\"n\">user</th>\
         <th class=\"n\">system</th><th class=\"n\">softirq</th><th class=\"n\">irq</th>\
         <th class=\"n\">stolen</th></tr></thead>\n<tbody>\n",
    );
    let machines = told
        .iter()
        .flat_map(|(p, c)| c.machines.iter().take(2).map(move |m| (p, m)));
    for (phase, machine) in machines {
        cpu_row(
            out,
            phase,
            &text::machine_name(machine),
            "all",
            &machine.mean(),
        );
        // The fullest tell; a machine of hundreds of idle CPUs would bury them.
        let mut cpus: Vec<&CpuShares> = machine.cpus.iter().collect();
        cpus.sort_by(|a, b| {
            a.idle_share
                .total_cmp(&b.idle_share)
                .then(a.cpu.cmp(&b.cpu))
        });
        for cpu in cpus.iter().take(CPUS_SHOWN) {
            cpu_row(out, phase, "", &cpu.cpu.to_string(), cpu);
        }
    }
    out.push_str("</tbody>\n</table></div>\n</section>\n");
}

fn cpu_row(out: &mut String, phase: &Phase, machine: &str, cpu: &str, shares: &CpuShares) {
    let phase = if machine.is_empty() {
        String::new()
    } else {
        shown(&phase.name)
    };
    put!(
        out,
        "<tr><td><b>{phase}</b></td><td>{}</td><td>{cpu}</td>",
        shown(machine)
    );
    for share in [
        shares.busy(),
        shares.user_share,
        shares.system_share,
        shares.softirq_share,
        shares.irq_share,
        shares.steal_share,
    ] {
        put!(out, "<td class=\"n\">{}</td>", text::percent(share));
    }
    out.push_str("</tr>\n");
}

/// CPUs of a machine that are shown, the fullest first.
const CPUS_SHOWN: usize = 8;

/// Other tools' numbers beside ours.
pub(super) fn observers(out: &mut String, run: &Run) {
    if run.phases.iter().all(|p| p.observers.is_empty()) {
        return;
    }
    out.push_str(
        "<section>\n<h2>Other observers <span>the same path in the same run</span></h2>\n\
         <div class=\"scroll\"><table class=\"list flow\">\n<thead><tr><th>phase</th><th>tool</th>\
         <th class=\"n\">its goodput</th><th class=\"n\">ours</th><th class=\"n\">ours / its</th>\
         <th>command</th></tr></thead>\n<tbody>\n",
    );
    let rows = run
        .phases
        .iter()
        .flat_map(|p| p.observers.iter().map(move |o| (p, o)));
    for (phase, observer) in rows.take(ENTRIES_MAX) {
        let (ours, theirs) = (
            phase.goodput_bits_per_second,
            observer.goodput_bits_per_second,
        );
        put!(
            out,
            "<tr><td><b>{}</b></td><td>{}</td><td class=\"n\" data-label=\"its goodput\">{}</td>\
             <td class=\"n\" data-label=\"ours\">{}</td>\
             <td class=\"n\" data-label=\"ours / its\">{}</td><td><code>{}</code></td></tr>\n",
            shown(&phase.name),
            shown(&observer.tool),
            text::rate(theirs),
            text::rate(ours),
            text::ratio(ours, theirs).map_or_else(|| "–".to_owned(), |r| format!("{r:.3}")),
            shown(&observer.command)
        );
    }
    out.push_str("</tbody>\n</table></div>\n</section>\n");
}

/// The machines, a column each.
pub(super) fn machines(out: &mut String, run: &Run) {
    if run.hosts.is_empty() {
        return;
    }
    let hosts: Vec<&HostFacts> = run.hosts.iter().take(HOSTS_MAX).collect();
    out.push_str(
        "<section>\n<h2>Machines</h2>\n<div class=\"scroll\"><table class=\"details\">\n\
         <thead><tr><td></td>",
    );
    for host in &hosts {
        put!(
            out,
            "<th scope=\"col\">{} <i>{}</i></th>",
            shown(&host.name),
            shown(&host.role)
        );
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    let mut row = |heading: &str, cell: &dyn Fn(&HostFacts) -> Option<String>| {
        let cells: Vec<Option<String>> = hosts.iter().map(|h| cell(h)).collect();
        table_row(out, heading, &cells);
    };
    let some = |text: &str| (!text.is_empty()).then(|| shown(text));
    row("Kernel", &|h| some(&h.kernel));
    row("CPU", &|h| {
        let model = some(&h.cpu_model)?;
        Some(if h.cpus > 0 {
            format!("{model} <i>{} online</i>", h.cpus)
        } else {
            model
        })
    });
    row("Load over one minute", &|h| {
        (h.cpus > 0).then(|| format!("{:.2}", f64::from(h.load_1min_percent) / 100.0))
    });
    row("Interfaces", &|h| {
        (!h.nics.is_empty()).then(|| interfaces(h))
    });
    row("<code>tcp_rmem</code> min, default, max", &|h| {
        h.tcp_rmem_bytes.map(triple)
    });
    row("<code>tcp_wmem</code> min, default, max", &|h| {
        h.tcp_wmem_bytes.map(triple)
    });
    row("Congestion control", &|h| {
        h.congestion_control.as_deref().and_then(some)
    });
    out.push_str("</tbody>\n</table></div>\n");
    left_out(out, run.hosts.len(), HOSTS_MAX, "machines");
    out.push_str("</section>\n");
}

fn triple(sizes: [u64; 3]) -> String {
    sizes.map(text::bytes).join(", ")
}

fn interfaces(host: &HostFacts) -> String {
    let nics = host.nics.iter().take(ENTRIES_MAX).map(|nic| {
        let driver = nic
            .driver
            .as_deref()
            .map(|d| format!("{}, ", shown(d)))
            .unwrap_or_default();
        let speed = nic
            .speed_bits_per_second
            .map(|s| format!(", {}", text::rate(s)));
        let mtu = text::bytes_exact(u64::from(nic.mtu_bytes));
        format!(
            "{} <i>{driver}MTU {mtu}{}{}</i>",
            shown(&nic.name),
            speed.unwrap_or_default(),
            work(nic) + &nic.pci.as_ref().map(pci).unwrap_or_default()
        )
    });
    nics.collect::<Vec<_>>().join("<br>")
}

/// What the interface takes off the kernel, and how long it holds interrupts back.
fn work(nic: &NicFacts) -> String {
    let offloads = [
        ("TSO", nic.tso),
        ("GSO", nic.gso),
        ("GRO", nic.gro),
        ("LRO", nic.lro),
        ("checksums sent", nic.transmit_checksum),
        ("checksums received", nic.receive_checksum),
    ];
    let listed = |wanted: bool| {
        let names = offloads.iter().filter(|(_, on)| *on == Some(wanted));
        names.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    };
    let mut lines = String::new();
    for (word, names) in [("on", listed(true)), ("off", listed(false))] {
        if !names.is_empty() {
            put!(lines, "<br>{word}: {names}");
        }
    }
    if let Some(us) = nic.receive_hold_off_us {
        let adapts = match nic.receive_hold_off_adapts {
            Some(true) => ", adaptive",
            _ => "",
        };
        let frames = nic.receive_hold_off_frames.unwrap_or(0);
        put!(
            lines,
            "<br>interrupts after {us} us or {frames} frames{adapts}"
        );
    }
    lines
}

/// Its PCI Express link beside what it can.
fn pci(link: &PciFacts) -> String {
    let mut line = format!("<br>PCI: {}", shown(&text::pci(link)));
    if let (Some(set), Some(most)) = (link.payload_bytes, link.payload_max_bytes) {
        put!(line, ", payloads of {set} of {most} B");
    }
    if let Some(read) = link.read_request_bytes {
        put!(line, ", reads of {read} B");
    }
    line
}

/// What it takes to make the run again.
pub(super) fn how_made(out: &mut String, run: &Run) {
    out.push_str("<section class=\"made\">\n<h2>How this was made</h2>\n");
    if !run.command_line.is_empty() {
        put!(
            out,
            "<pre class=\"copy\">{}\n</pre>\n",
            shown(&shell_line(&run.command_line))
        );
    }
    out.push_str("<dl class=\"facts\">");
    let mut fact = |term: &str, value: Option<String>| {
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            put!(out, "<div><dt>{term}</dt><dd>{value}</dd></div>");
        }
    };
    fact(
        "version",
        Some(shown(&run.goodput_version)).map(|v| {
            if v.is_empty() {
                v
            } else {
                format!("goodput {v}")
            }
        }),
    );
    fact("seed", run.seed.map(|s| s.to_string()));
    fact(
        "started",
        Some(crate::svg::escape(&text::utc(&run.started_utc))),
    );
    fact(
        "finished",
        run.finished_utc
            .as_deref()
            .map(|t| crate::svg::escape(&text::utc(t))),
    );
    fact(
        "path file",
        run.path.as_ref().and_then(|p| p.file.as_deref()).map(shown),
    );
    out.push_str("</dl>\n");
    if let Some(text) = run
        .path
        .as_ref()
        .and_then(|p| p.text.as_deref())
        .filter(|t| !t.is_empty())
    {
        put!(
            out,
            "<details><summary>The path file's text</summary>\n<pre>{}\n</pre>\n</details>\n",
            shown_block(text)
        );
    }
    out.push_str("</section>\n");
}

/// The command line so that a shell reads back the same words.
fn shell_line(words: &[String]) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    let quoted = words.iter().take(COMMAND_WORDS_MAX).map(|word| {
        if !word.is_empty() && word.chars().all(safe) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Machines shown side by side.
const HOSTS_MAX: usize = 8;
/// Words of a command line that are shown.
const COMMAND_WORDS_MAX: usize = 400;

#[allow(clippy::cast_precision_loss, reason = "a share to be shown")]
fn count_as_share(ppm: u64) -> f64 {
    ppm as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_reads_back_as_the_same_words() {
        let words = ["goodput", "doctor", "lab:x", "it's", "", "$(rm)"].map(str::to_owned);
        assert_eq!(
            shell_line(&words),
            r"goodput doctor lab:x 'it'\''s' '' '$(rm)'"
        );
    }
}
