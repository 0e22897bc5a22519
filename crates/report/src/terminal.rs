//! The doctor's result as plain text: read in five seconds, without leaving the shell.
//!
//! Bars use block characters of four densities, so the picture is the same without colour. Lines
//! wrap at the given width; what is to be copied (settings) is never wrapped.

mod copy;
mod fabric;
mod gateway;
#[cfg(test)]
mod golden;
mod messages;
mod rotate;
mod trace;

use crate::model::{
    Certificate, FindingRecord, HostCost, KernelPace, LoadLatency, Phase, RemedyRecord, Run, Sweep,
    SweepPoint,
};
use crate::table::{Column, Table};
use crate::text::{self, PARTS, Tone};

/// The run's summary, lines ended by `\n`; at most about thirty. Escape sequences only if `color`.
pub fn summary(run: &Run, findings: &[FindingRecord], color: bool, width: usize) -> String {
    let mut page = Page {
        out: String::new(),
        color,
        width: width.clamp(WIDTH_MIN, WIDTH_MAX),
    };
    page.verdict(run);
    page.sweep(run);
    page.sizes(run);
    page.fabric(run);
    page.rotate(run);
    page.copy(run);
    page.gateway(run);
    page.trace(run);
    page.legs(run);
    page.table(run);
    page.time_spent(run);
    page.latency(run);
    page.host_cost(run);
    match &run.trace {
        // Findings of many connections would hide each other: those of the first stand for them.
        Some(_) => page.findings(run, &of_first(findings)),
        None => {
            page.findings(run, findings);
            page.remedies(run, findings);
        }
    }
    page.grounds(run);
    page.out
}

/// Round trips idle and under load, and the queue that makes the difference.
fn latency_sentence(l: &LoadLatency, goodput_bits_per_second: u64) -> String {
    let both = format!(
        "Round trip {} idle, {} under load (99 %: {})",
        text::duration(l.idle_median_ns),
        text::duration(l.load_median_ns),
        text::duration(l.load_p99_ns),
    );
    // An idle host is slower to wake up than a busy one: on a short path load may look quicker.
    if l.extra_ns == 0 {
        return format!("{both}: no queueing delay.");
    }
    format!(
        "{both}: {} more, which is a queue of {} at {}.",
        text::duration(l.extra_ns),
        text::bytes(l.queue_bytes),
        text::rate(goodput_bits_per_second),
    )
}

/// Findings of the first connection of a capture.
fn of_first(findings: &[FindingRecord]) -> Vec<FindingRecord> {
    let first = findings.iter().filter(|f| f.phase == "1");
    first.cloned().collect()
}

/// Text under construction, with what is known of the terminal.
struct Page {
    out: String,
    color: bool,
    width: usize,
}

/// Colours by meaning, as SGR parameters of the terminal's own palette.
#[derive(Clone, Copy)]
enum Ink {
    Plain,
    Bold,
    Dim,
    Tone(Tone),
}

impl Page {
    fn verdict(&mut self, run: &Run) {
        let status = text::status(run);
        let label = self.ink(Ink::Tone(status.tone), &format!("● {}", status.label));
        let name = self.ink(Ink::Dim, &text::plain(&run.name));
        self.line(&format!("{label}  {name}"));
        for note in crate::html::trace::notes(run) {
            self.wrapped("", &text::plain(&format!("Capture: {note}.")), Ink::Plain);
        }
        let sentence = text::sentence(run);
        for line in wrap(&sentence, self.width) {
            let line = self.ink(Ink::Bold, &line);
            put!(self.out, "{line}\n");
        }
    }

    fn table(&mut self, run: &Run) {
        if !run.legs.is_empty() {
            return;
        }
        let phases: Vec<&Phase> = text::measured(run).take(COLUMNS_MAX).collect();
        if phases.is_empty() {
            return;
        }
        self.out.push('\n');
        let (before, after) = text::before_and_after(run);
        let gain = before
            .zip(after)
            .and_then(|(b, a)| text::ratio(a.goodput_bits_per_second, b.goodput_bits_per_second));
        let names: Vec<Option<String>> =
            phases.iter().map(|p| Some(text::plain(&p.name))).collect();
        if phases.len() > 1 {
            self.row("", &names, "");
        }
        let mut row = |heading: &str, note: &str, cell: &dyn Fn(&Phase) -> Option<String>| {
            let cells: Vec<Option<String>> = phases.iter().map(|p| cell(p)).collect();
            self.row(heading, &cells, note);
        };
        let times = gain
            .map(|g| format!("{} times", text::factor(g)))
            .unwrap_or_default();
        row("goodput", &times, &|p| text::goodput(p).map(text::rate));
        if let Some(achievable) = text::achievable(run) {
            row("of achievable", &text::rate(achievable), &|p| {
                text::ratio(p.goodput_bits_per_second, achievable).map(text::percent)
            });
        }
        row("predicted", "", &|p| {
            p.predicted_bits_per_second.map(text::rate)
        });
        row("lab error", "", &|p| {
            let ppm = p.certificate.as_ref()?.goodput_error_ppm?;
            Some(format!("at most {}", text::percent_up(ppm)))
        });
        row("idle RTT", "", &|p| {
            (p.rtt_idle_ns > 0).then(|| text::duration(p.rtt_idle_ns))
        });
        row("RTT under load", "", &|p| {
            p.latency.as_ref().map(|l| text::duration(l.load_median_ns))
        });
        row("retransmitted", "", &|p| {
            text::ratio(p.segments_retransmitted, p.segments_sent).map(text::percent)
        });
        row("lost", "", &|p| {
            let udp = p.udp.as_ref()?;
            text::ratio(udp.lost, udp.packets).map(text::percent)
        });
        row("jitter", "", &|p| {
            p.udp.as_ref().map(|udp| text::duration(udp.jitter_ns))
        });
        let notes = phases.iter().flat_map(|p| &p.notes).take(NOTES_MAX);
        for note in notes {
            self.wrapped("  ", &text::plain(note), Ink::Dim);
        }
    }

    /// A sweep's points, a line each, and its curves in words.
    fn sweep(&mut self, run: &Run) {
        let Some(sweep) = &run.sweep else { return };
        if sweep.messages.is_some() {
            self.messages(sweep);
        } else {
            self.points(sweep);
        }
        if let Some(certificate) = &sweep.certificate {
            self.out.push('\n');
            self.certificate(certificate);
        }
    }

    /// Messages of several sizes, a line each.
    fn sizes(&mut self, run: &Run) {
        let Some(messages) = &run.messages else {
            return;
        };
        if !messages.points.is_empty() {
            self.out.push('\n');
            self.out.push_str(&messages::table(messages));
            self.more(messages.points.len(), "size");
            for note in text::messages::notes(messages) {
                self.wrapped("", &note, Ink::Dim);
            }
        }
        if let Some(certificate) = &messages.certificate {
            self.out.push('\n');
            self.certificate(certificate);
        }
    }

    /// Points with a bar of the highest.
    fn points(&mut self, sweep: &Sweep) {
        let highest = sweep.points.iter().map(|p| p.goodput_bits_per_second).max();
        self.out.push('\n');
        let any = |has: fn(&SweepPoint) -> bool| sweep.points.iter().any(has);
        let lost = any(|p| p.loss.is_some());
        let offered = any(|p| p.window_bytes.is_some());
        let windows: Vec<u64> = sweep.points.iter().filter_map(|p| p.window_bytes).collect();
        let size = text::sizes(&windows);
        let observer = sweep
            .observer
            .as_ref()
            .filter(|_| any(|p| p.observer_bits_per_second.is_some()));
        let observer = observer.map(|o| text::plain(o.tool.split(' ').next().unwrap_or_default()));
        let mut head: Vec<String> = sweep.axes.iter().map(|a| text::plain(&a.name)).collect();
        let mut widths = vec![12; head.len()];
        head.extend(["goodput", "± 95 %"].map(str::to_owned));
        widths.extend([12, 6]);
        head.extend(lost.then(|| "lost".to_owned()));
        widths.extend(lost.then_some(6));
        head.extend(offered.then(|| "window".to_owned()));
        widths.extend(offered.then_some(10));
        head.extend(observer.clone());
        widths.extend(observer.as_ref().map(|_| 10));
        let mut table = Table::new(widths.into_iter().map(Column::numbers));
        table.row(head);
        for point in sweep.points.iter().take(POINTS_MAX) {
            let axes = sweep.axes.iter().zip(&point.settings);
            let mut row: Vec<String> = axes
                .map(|(axis, &value)| crate::html::sweep_setting(axis, value))
                .collect();
            row.push(text::rate(point.goodput_bits_per_second));
            row.push(sure(point.error));
            if lost {
                row.push(point.loss.map_or_else(String::new, text::percent));
            }
            if offered {
                row.push(point.window_bytes.map_or_else(String::new, &size));
            }
            if observer.is_some() {
                let theirs = point.observer_bits_per_second;
                let mark = if point.observer_without_cpu { "*" } else { "" };
                let rate = theirs.map_or_else(String::new, text::rate);
                row.push(format!("{mark}{rate}"));
            }
            table.row(row);
        }
        let mut lines = table.lines().into_iter();
        if let Some(head) = lines.next() {
            let head = self.ink(Ink::Dim, &head);
            self.line(&head);
        }
        for (point, line) in sweep.points.iter().zip(lines) {
            let share =
                text::ratio(point.goodput_bits_per_second, highest.unwrap_or(0)).unwrap_or(0.0);
            let taken = line.chars().count() + 4;
            let room = self.width.saturating_sub(taken).min(40);
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a share of 40"
            )]
            let cells = (share.clamp(0.0, 1.0) * room as f64).round() as usize;
            let (bar, mark) = ("█".repeat(cells), mark(point.anomaly));
            self.line(&format!("{line}  {bar}{mark}"));
        }
        self.more(sweep.points.len(), "point");
        if let (Some(tool), true) = (observer, any(|p| p.observer_without_cpu)) {
            let why = format!("* {tool} was CPU-bound");
            self.wrapped("", &why, Ink::Dim);
        }
    }

    /// Messages: rates by direction, then latency, in the columns of `ib_send_bw` and `ib_send_lat`.
    fn messages(&mut self, sweep: &Sweep) {
        let size = |bytes: u64| match sweep.axes.first() {
            Some(axis) => crate::html::sweep_setting(axis, bytes),
            None => text::size(bytes),
        };
        let shown = sweep.points.iter().take(POINTS_MAX);
        let mut table = Table::new([9, 10, 11, 11, 11, 6].map(Column::numbers));
        table.row([
            "bytes",
            "iterations",
            "peak",
            "average",
            "messages/s",
            "± 95 %",
        ]);
        for point in shown.clone() {
            let numbers = point.messages.clone().unwrap_or_default();
            table.row([
                size(point.settings.first().copied().unwrap_or(0)),
                text::count(numbers.iterations),
                text::rate(numbers.peak_bits_per_second),
                text::rate(numbers.average_bits_per_second),
                text::count(numbers.messages_per_second),
                sure(point.error),
            ]);
        }
        let mut lines = table.lines().into_iter();
        let head = lines.next().unwrap_or_default();
        let mut pattern = None;
        for (point, line) in shown.zip(lines) {
            if pattern != Some(&point.pattern) {
                let way = point.pattern.as_deref().unwrap_or("");
                self.headed(&text::plain(&crate::html::sweep_way(way)), &head);
                pattern = Some(&point.pattern);
            }
            self.line(&format!("{line}{}", mark(point.anomaly)));
        }
        self.more(sweep.points.len(), "point");
        let shown = sweep.latencies.iter().take(POINTS_MAX);
        let mut table = Table::new([9, 9, 8, 8, 8, 8, 8, 6].map(Column::numbers));
        table.row([
            "bytes",
            "iterations",
            "min",
            "median",
            "99 %",
            "99.9 %",
            "max",
            "± 95 %",
        ]);
        for l in shown.clone() {
            let sizes = [size(l.message_bytes), text::count(l.round_trips)];
            let times = [l.min_ns, l.median_ns, l.p99_ns, l.p999_ns, l.max_ns];
            let cells = sizes.into_iter().chain(times.map(text::duration));
            table.row(cells.chain([sure(l.error)]));
        }
        let mut lines = table.lines().into_iter();
        if let Some(head) = lines.next().filter(|_| !sweep.latencies.is_empty()) {
            self.headed("latency, half the round trip", &head);
        }
        for (l, line) in shown.zip(lines) {
            self.line(&format!("{line}{}", mark(l.anomaly)));
        }
        self.more(sweep.latencies.len(), "size");
        self.out.push('\n');
        let curves = sweep.curves.iter().take(COLUMNS_MAX);
        let mut said: Vec<String> = curves.map(|c| c.sentence.clone()).collect();
        said.extend(sweep.messages.iter().flat_map(crate::html::sweep_said));
        for sentence in said {
            self.wrapped("  - ", &text::plain(&sentence), Ink::Dim);
        }
    }

    /// A caption, and the heading of a table below it.
    fn headed(&mut self, caption: &str, head: &str) {
        let head = self.ink(Ink::Dim, head);
        put!(self.out, "\n  {caption}\n{head}\n");
    }

    fn more(&mut self, all: usize, thing: &str) {
        self.more_than(POINTS_MAX, all, thing);
    }

    fn more_than(&mut self, max: usize, all: usize, thing: &str) {
        if all > max {
            let more = text::plural((all - max) as u64, &format!("more {thing}"));
            self.wrapped("", &format!("{more} in the report"), Ink::Dim);
        }
    }

    /// A line for each leg of the path.
    fn legs(&mut self, run: &Run) {
        if run.legs.is_empty() {
            return;
        }
        let shown = run.legs.iter().take(LEGS_MAX);
        // A mark of ten columns follows the table.
        let name = self.width.saturating_sub(55).clamp(12, LEG_NAME_MAX);
        let numbers = [10, 10, 9, 6].map(Column::numbers);
        let mut table = Table::new([Column::words(name)].into_iter().chain(numbers));
        table.row(["leg", "goodput", "explained", "RTT added", "lost"]);
        for leg in shown.clone() {
            let explained = leg.explained_bits_per_second.map(text::rate);
            table.row([
                text::leg_name(leg).chars().take(name).collect(),
                text::rate(leg.goodput_bits_per_second),
                explained.unwrap_or_else(|| "–".to_owned()),
                text::duration(leg.rtt_added_ns),
                text::percent(leg.loss),
            ]);
        }
        let mut lines = table.lines().into_iter();
        let head = self.ink(Ink::Dim, &format!("  {}", lines.next().unwrap_or_default()));
        put!(self.out, "\n{head}\n");
        for (leg, line) in shown.zip(lines) {
            let mark = text::leg_mark(leg);
            let ink = if leg.bad { Ink::Bold } else { Ink::Plain };
            let line = self.ink(ink, &format!("  {line}  {mark}"));
            self.line(&line);
        }
    }

    /// A heading, one cell for each phase, a note; nothing when no cell has content.
    fn row(&mut self, heading: &str, cells: &[Option<String>], note: &str) {
        if cells.iter().all(Option::is_none) {
            return;
        }
        let heading = self.ink(Ink::Dim, &format!("  {heading:<15}"));
        let mut line = heading;
        for cell in cells {
            let cell: String = cell.as_deref().unwrap_or("–").chars().take(14).collect();
            put!(line, "{cell:<16}");
        }
        if !note.is_empty() {
            line += &self.ink(Ink::Dim, note);
        }
        self.line(&line);
    }

    /// Where the sender's time went, a bar for each phase.
    fn time_spent(&mut self, run: &Run) {
        let spent = |p: &&Phase| text::part_values(&p.shares).iter().any(|&v| v > 0.0);
        let phases: Vec<&Phase> = run.phases.iter().take(COLUMNS_MAX).filter(spent).collect();
        if !phases.is_empty() {
            let heading = self.ink(Ink::Dim, "  what limited the sender");
            put!(self.out, "\n{heading}\n");
        }
        for phase in phases {
            let values = text::part_values(&phase.shares);
            let mut parts: Vec<(usize, f64)> = values.into_iter().enumerate().collect();
            parts.retain(|&(_, v)| v >= 0.005);
            parts.sort_by(|a, b| b.1.total_cmp(&a.1));
            let name: String = text::plain(&phase.name).chars().take(14).collect();
            let mut line = format!("  {name:<15}{}", bar(values));
            let mut length = 2 + 15 + BAR_CELLS as usize;
            for (k, share) in parts {
                let word = format!(
                    "  {} {} {}",
                    GLYPHS[k],
                    PARTS[k].name,
                    text::percent_of_time(share)
                );
                length += word.chars().count();
                if length <= self.width {
                    line += &word;
                }
            }
            self.line(&line);
        }
    }

    /// What the transfer does to the round trip of other traffic.
    fn latency(&mut self, run: &Run) {
        for phase in run.phases.iter().take(COLUMNS_MAX) {
            let Some(l) = &phase.latency else { continue };
            let sentence = latency_sentence(l, phase.goodput_bits_per_second);
            self.out.push('\n');
            for line in wrap(&sentence, self.width) {
                put!(self.out, "  {line}\n");
            }
        }
    }

    /// CPU use of the hosts: a line or two for each phase that reports it.
    fn host_cost(&mut self, run: &Run) {
        let phases = run.phases.iter().take(COLUMNS_MAX);
        let costs: Vec<(&Phase, &HostCost)> = phases
            .filter_map(|p| Some((p, p.host_cost.as_ref()?)))
            .collect();
        if costs.is_empty() {
            return;
        }
        let heading = self.ink(Ink::Dim, "  CPU use of the hosts");
        put!(self.out, "\n{heading}\n");
        for (phase, cost) in costs {
            let name: String = text::plain(&phase.name).chars().take(14).collect();
            self.wrapped(&format!("  {name:<15}"), &text::host_cost(cost), Ink::Plain);
        }
    }

    /// The first finding with its evidence, the others by their titles.
    fn findings(&mut self, run: &Run, findings: &[FindingRecord]) {
        for (i, finding) in findings.iter().take(FINDINGS_MAX).enumerate() {
            let phase = text::plain(&finding.phase);
            let named = run.phases.len() > 1 && !phase.is_empty();
            let place = if named {
                format!("{phase}, ")
            } else {
                String::new()
            };
            let title = text::plain(&finding.title);
            let sure = text::percent(finding.confidence);
            let line = format!("{title} ({place}confidence {sure})");
            if i > 0 {
                self.wrapped("", &line, Ink::Dim);
                continue;
            }
            self.out.push('\n');
            self.wrapped("", &line, Ink::Bold);
            for line in finding.evidence.iter().take(EVIDENCE_MAX) {
                self.wrapped("  - ", &text::plain(line), Ink::Dim);
            }
        }
        if findings.len() > FINDINGS_MAX {
            let more = text::plural((findings.len() - FINDINGS_MAX) as u64, "more finding");
            self.wrapped("", &format!("{more} in the report"), Ink::Dim);
        }
    }

    fn remedies(&mut self, run: &Run, findings: &[FindingRecord]) {
        let mut seen: Vec<&RemedyRecord> = Vec::new();
        for remedy in findings.iter().filter_map(|f| f.remedy.as_ref()) {
            if !seen.contains(&remedy) && seen.len() < REMEDIES_MAX {
                seen.push(remedy);
                self.remedy(run, remedy);
            }
        }
    }

    fn remedy(&mut self, run: &Run, remedy: &RemedyRecord) {
        self.out.push('\n');
        self.wrapped(
            "",
            &format!("→ {}", text::plain(&remedy.summary)),
            Ink::Bold,
        );
        if !remedy.sysctl.is_empty() {
            let host = run
                .hosts
                .iter()
                .find(|h| h.role == remedy.host && !h.name.is_empty());
            let role = text::plain(&remedy.host);
            let place = match (role.as_str(), host) {
                ("both", _) => "on both hosts".to_owned(),
                // Mended in the network; what a host can do meanwhile is the sender's.
                ("network", _) => "on the sending host".to_owned(),
                (_, Some(host)) => format!("on the {role} host, {}", text::plain(&host.name)),
                _ => format!("on the {role} host"),
            };
            self.wrapped(
                "  ",
                &format!("{place}, in /etc/sysctl.d/90-goodput.conf:"),
                Ink::Dim,
            );
        }
        for line in remedy.sysctl.iter().take(SETTINGS_MAX) {
            put!(self.out, "    {}\n", text::plain(line));
        }
        if !remedy.flags.is_empty() {
            let lead = match remedy.flags.len() {
                1 => "or without privileges, with:",
                _ => "or without privileges, with one of:",
            };
            self.wrapped("  ", lead, Ink::Dim);
        }
        for line in remedy.flags.iter().take(SETTINGS_MAX) {
            put!(self.out, "    {}\n", text::plain(line));
        }
        let predicted = remedy
            .predicted_bits_per_second
            .map(|p| format!("predicted {}", text::rate(p)));
        let (_, after) = text::before_and_after(run);
        let measured = predicted.as_ref().and(after);
        let measured =
            measured.map(|a| format!("measured {}", text::rate(a.goodput_bits_per_second)));
        let cost = text::plain(&remedy.cost);
        let cost = (!cost.is_empty()).then(|| format!("cost: {cost}"));
        let facts: Vec<String> = predicted.into_iter().chain(measured).chain(cost).collect();
        if !facts.is_empty() {
            self.wrapped("  ", &facts.join("; "), Ink::Dim);
        }
    }

    /// What the numbers rest on: the lab's certificate and other tools' numbers.
    fn grounds(&mut self, run: &Run) {
        let worst = run.phases.iter().filter_map(|p| p.certificate.as_ref());
        let worst = worst.max_by_key(|c| (!c.trusted, c.frames_lost_by_lab, c.delay_error_p99_ns));
        let observers = run
            .phases
            .iter()
            .flat_map(|p| p.observers.iter().map(move |o| (p, o)));
        let observers: Vec<String> = observers
            .take(COLUMNS_MAX)
            .map(|(phase, o)| {
                let (ours, theirs) = (phase.goodput_bits_per_second, o.goodput_bits_per_second);
                let ratio = text::ratio(ours, theirs)
                    .map_or_else(String::new, |r| format!(", ours / its {r:.3}"));
                format!(
                    "{}, {}: {}{ratio}",
                    text::plain(&o.tool),
                    text::plain(&phase.name),
                    text::rate(theirs)
                )
            })
            .collect();
        if worst.is_some() || !observers.is_empty() {
            self.out.push('\n');
        }
        if let Some(certificate) = worst {
            self.certificate(certificate);
        }
        for line in observers {
            self.wrapped("", &line, Ink::Dim);
        }
    }

    fn certificate(&mut self, c: &Certificate) {
        let trusted = if c.trusted { "trusted" } else { "NOT TRUSTED" };
        let by_kernel = c.kernel.as_ref().map(|run| {
            let sum = |of: fn(&KernelPace) -> u64| text::count(run.links.iter().map(of).sum());
            format!(
                "lab {trusted}: the kernel ran the links, no delay was measured; {} loaded windows of 100 ms, {} above \
                 the rate; {} packets dropped at a full queue; {} lost by the lab",
                sum(|p| p.windows_busy),
                sum(|p| p.windows_over),
                sum(|p| p.drops),
                sum(|p| p.lost),
            )
        });
        let by_engine = || {
            let error = c.goodput_error_ppm.map_or_else(String::new, |ppm| {
                format!(
                    "its error at most {} of the goodput; ",
                    text::percent_up(ppm)
                )
            });
            format!(
                "lab {}: {error}delay error p50 {}, p99 {}, max {}; {} frames late; {} lost by the lab",
                trusted,
                text::signed_duration(c.delay_error_p50_ns),
                text::signed_duration(c.delay_error_p99_ns),
                text::signed_duration(c.delay_error_max_ns),
                text::part_of(c.frames_late, c.frames),
                text::count(c.frames_lost_by_lab),
            )
        };
        self.wrapped(
            "",
            &by_kernel.unwrap_or_else(by_engine),
            if c.trusted {
                Ink::Dim
            } else {
                Ink::Tone(Tone::Bad)
            },
        );
        for problem in c.problems.iter().take(EVIDENCE_MAX) {
            self.wrapped("  - ", &text::plain(problem), Ink::Tone(Tone::Bad));
        }
    }

    /// `lead` and `text`, wrapped with a hanging indent.
    fn wrapped(&mut self, lead: &str, text: &str, ink: Ink) {
        let indent = lead.chars().count();
        let text = units::text::plain(text);
        for (i, line) in wrap(&text, self.width - indent).iter().enumerate() {
            let lead = if i == 0 {
                lead.to_owned()
            } else {
                " ".repeat(indent)
            };
            let line = self.ink(ink, line);
            put!(self.out, "{lead}{line}\n");
        }
    }

    fn line(&mut self, line: &str) {
        put!(self.out, "{}\n", line.trim_end());
    }

    fn ink(&self, ink: Ink, text: &str) -> String {
        let text = units::text::plain(text);
        if !self.color || text.is_empty() || matches!(ink, Ink::Plain) {
            return text.into_owned();
        }
        let sgr = match ink {
            Ink::Plain => "0",
            Ink::Bold => "1",
            Ink::Dim => "2",
            Ink::Tone(Tone::Good) => "1;32",
            Ink::Tone(Tone::Limited) => "1;33",
            Ink::Tone(Tone::Unsure) => "1;36",
            Ink::Tone(Tone::Bad) => "1;31",
        };
        format!("\u{1b}[{sgr}m{text}\u{1b}[0m")
    }
}

fn sure(error: Option<f64>) -> String {
    error.map_or_else(|| "–".to_owned(), text::percent)
}

const fn mark(anomaly: bool) -> &'static str {
    if anomaly { " ← outlier" } else { "" }
}

/// [`BAR_CELLS`] characters, divided among the parts so that none above zero vanishes by rounding
/// of the sum: each ends where the running total ends.
fn bar(values: [f64; 4]) -> String {
    let mut out = String::new();
    let (mut sum, mut drawn) = (0.0, 0);
    for (value, glyph) in values.into_iter().zip(GLYPHS) {
        sum += value;
        let mut ends =
            (1..=BAR_CELLS).filter(|&cell| f64::from(cell) - 0.5 <= sum * f64::from(BAR_CELLS));
        let end = ends.next_back().unwrap_or(0);
        (drawn..end).for_each(|_| out.push(glyph));
        drawn = drawn.max(end);
    }
    (drawn..BAR_CELLS).for_each(|_| out.push(' '));
    out
}

/// `text` in lines of at most `width` characters, broken at blanks but not before `%`; a longer word has a line of its own.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut length) = (String::new(), 0);
    for word in words(text) {
        let word_length = word.chars().count();
        if length > 0 && length + 1 + word_length > width {
            lines.push(std::mem::take(&mut line));
            length = 0;
        }
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        line.push_str(&word);
        length += word_length;
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// The words of a text; a percentage is one.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match words.last_mut() {
            Some(number) if word.starts_with('%') => *number += &format!(" {word}"),
            _ => words.push(word.to_owned()),
        }
    }
    words
}

/// One for each of [`PARTS`], told apart by density where there is no colour.
const GLYPHS: [char; 4] = ['░', '█', '▓', '▒'];
/// Characters of a bar: 5 % each.
const BAR_CELLS: u32 = 20;
/// Phases that fit side by side in 80 columns.
const COLUMNS_MAX: usize = 3;
const POINTS_MAX: usize = 60;
const LEGS_MAX: usize = 17;
/// Of both its ends' names.
const LEG_NAME_MAX: usize = 26;
const NOTES_MAX: usize = 6;
const FINDINGS_MAX: usize = 3;
const EVIDENCE_MAX: usize = 4;
const REMEDIES_MAX: usize = 2;
const SETTINGS_MAX: usize = 8;
const WIDTH_MIN: usize = 40;
/// Longer lines are hard to read, however wide the window is.
const WIDTH_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        CpuShares, EndCost, HostFacts, LegRecord, MachineCost, Observer, PathFacts, RunState,
        Shares, SweepAxis, SweepCurve, SweepLatency, SweepMessages, SweepPoint, SweepRate, Verdict,
    };

    pub(super) fn fixed_run() -> (Run, Vec<FindingRecord>) {
        let phase = |name: &str, goodput: u64, predicted: u64, shares: Shares| Phase {
            name: name.to_owned(),
            goodput_bits_per_second: goodput,
            predicted_bits_per_second: Some(predicted),
            rtt_idle_ns: 85_020_000,
            segments_sent: 802_345,
            segments_retransmitted: 12,
            shares,
            certificate: Some(Certificate {
                trusted: true,
                delay_error_p50_ns: 1_200,
                delay_error_p99_ns: 14_800,
                delay_error_max_ns: 80_100,
                frames: 34_512,
                ..Certificate::default()
            }),
            ..Phase::default()
        };
        let held = Shares {
            receive_window: 0.953,
            network: 0.047,
            ..Shares::default()
        };
        let free = Shares {
            application: 0.02,
            network: 0.98,
            ..Shares::default()
        };
        let observer = Observer {
            tool: "iperf 3.12".to_owned(),
            goodput_bits_per_second: 928_100_000,
            ..Observer::default()
        };
        let mut after = phase("after", 930_200_000, 949_300_000, free);
        after.observers.push(observer);
        let run = Run {
            name: "transatlantic".to_owned(),
            state: RunState::Done,
            hosts: vec![HostFacts {
                role: "far".to_owned(),
                name: "geneva".to_owned(),
                ..HostFacts::default()
            }],
            path: Some(PathFacts {
                achievable_bits_per_second: Some(949_300_000),
                ..PathFacts::default()
            }),
            phases: vec![phase("before", 3_901_000, 3_934_000, held), after],
            verdict: Some(Verdict {
                sentence:
                    "The receiver's 64 KiB buffer holds this path at 3.9 Mb/s; with 25 MiB it \
                           carries 930 Mb/s."
                        .to_owned(),
                cause: Some("receive_window".to_owned()),
                healthy: false,
                conclusive: true,
                ..Verdict::default()
            }),
            ..Run::default()
        };
        let remedy = RemedyRecord {
            summary: "let the receive buffer grow to twice the bandwidth-delay product".to_owned(),
            host: "far".to_owned(),
            sysctl: vec!["net.ipv4.tcp_rmem = 4096 131072 26214400".to_owned()],
            flags: vec!["goodput doctor lab:transatlantic --receive-buffer 25MiB".to_owned()],
            predicted_bits_per_second: Some(949_300_000),
            cost: "up to 25 MiB of memory for each connection".to_owned(),
            ..RemedyRecord::default()
        };
        let finding = FindingRecord {
            phase: "before".to_owned(),
            cause: "receive_window".to_owned(),
            title: "The peer's receive window held the sender back.".to_owned(),
            confidence: 0.98,
            share: 0.953,
            evidence: vec![
                "receive-window limited for 9.53 s of 10 s".to_owned(),
                "window of 41.4 kB against a bandwidth-delay product of 10.62 MB".to_owned(),
            ],
            remedy: Some(remedy),
        };
        (run, vec![finding])
    }

    #[test]
    fn a_queue_is_named_only_where_load_takes_longer() {
        let longer = LoadLatency {
            idle_median_ns: 20_000_000,
            load_median_ns: 120_000_000,
            load_p99_ns: 150_000_000,
            extra_ns: 100_000_000,
            queue_bytes: 250_000,
            ..LoadLatency::default()
        };
        assert_eq!(
            latency_sentence(&longer, 20_000_000),
            "Round trip 20 ms idle, 120 ms under load (99 %: 150 ms): 100 ms more, which is a queue of \
             250 kB at 20 Mb/s."
        );
        let same = LoadLatency {
            extra_ns: 0,
            ..longer
        };
        assert!(latency_sentence(&same, 20_000_000).ends_with("no queueing delay."));
    }

    #[test]
    fn a_fixed_path_reads_in_thirty_lines() {
        let (run, findings) = fixed_run();
        let text = summary(&run, &findings, false, 80);
        assert!(text.lines().count() <= 30);
        assert!(text.lines().all(|l| l.chars().count() <= 80));
    }

    #[test]
    fn one_machine_is_accounted_once_and_a_full_core_is_named() {
        let (mut run, _) = fixed_run();
        run.phases.truncate(1);
        let end = |end: &str, busiest_thread_share| EndCost {
            end: end.to_owned(),
            cpu_ns_per_gigabyte: 310_000_000,
            busiest_thread_share,
            ..EndCost::default()
        };
        let cpu = |cpu, softirq_share, idle_share| CpuShares {
            cpu,
            softirq_share,
            idle_share,
            ..CpuShares::default()
        };
        run.phases[0].host_cost = Some(HostCost {
            ends: vec![end("sender", 0.98), end("receiver", 0.2)],
            machines: vec![MachineCost {
                ends: vec!["sender".to_owned(), "receiver".to_owned()],
                cpus: vec![cpu(0, 0.05, 0.5), cpu(1, 0.45, 0.03)],
                ..MachineCost::default()
            }],
        });
        let text = summary(&run, &[], false, 100);
        let (_, cost) = text.split_once("CPU use of the hosts\n").unwrap();
        let cost: Vec<&str> = cost
            .split("\n\n")
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        assert_eq!(
            cost.join(" "),
            "before sender 0.310 CPU s/GB (busiest thread 98 %); receiver 0.310 CPU s/GB; both ends on \
             one machine of 2 CPUs: 74 % busy, softirq 25 %, core 1 full: 97 %"
        );
    }

    #[test]
    fn each_leg_has_a_line_and_the_bad_one_is_marked() {
        let leg = |from: &str, to: &str, goodput, slows: bool| LegRecord {
            from: from.to_owned(),
            to: to.to_owned(),
            goodput_bits_per_second: goodput,
            explained_bits_per_second: slows.then_some(940_000_000),
            rtt_added_ns: 4_000_000,
            slows,
            bad: slows,
            ..LegRecord::default()
        };
        let run = Run {
            state: RunState::Done,
            legs: vec![
                leg("here", "a", 940_000_000, false),
                leg("a", "far", 94_000_000, true),
            ],
            ..Run::default()
        };
        let text = summary(&run, &[], false, 100);
        let lines: Vec<&str> = text.lines().filter(|l| l.contains('→')).collect();
        assert!(
            lines[0].ends_with("0 %") && lines[1].ends_with("← slower"),
            "{text}"
        );
        assert!(
            lines[1].contains("94 Mb/s") && lines[1].contains("940 Mb/s"),
            "{text}"
        );
    }

    pub(super) fn message_sweep() -> Run {
        let sizes = [2_u64, 1 << 10, 1 << 23];
        let point = |pattern: &str, size: u64| SweepPoint {
            settings: vec![size],
            error: Some(0.012),
            anomaly: size == 1024 && pattern == "one_way",
            pattern: Some(pattern.to_owned()),
            messages: Some(SweepRate {
                iterations: 940_000_000 / size,
                peak_bits_per_second: 941_200_000,
                average_bits_per_second: 940_100_000,
                messages_per_second: 940_100_000 / 8 / size,
            }),
            ..SweepPoint::default()
        };
        let ways = ["one_way", "both_ways"];
        let sweep = Sweep {
            axes: vec![SweepAxis {
                name: "message-size".to_owned(),
                unit: "bytes".to_owned(),
                values: sizes.to_vec(),
                names: Vec::new(),
            }],
            points: ways
                .iter()
                .flat_map(|way| sizes.map(|size| point(way, size)))
                .collect(),
            curves: ways
                .map(|way| SweepCurve {
                    sentence: format!(
                        "{}: the knee is at a message size of 41 kB",
                        way.replace('_', " ")
                    ),
                    ..SweepCurve::default()
                })
                .to_vec(),
            latencies: sizes
                .map(|message_bytes| SweepLatency {
                    message_bytes,
                    round_trips: 40_000,
                    min_ns: 5_900,
                    median_ns: 7_010,
                    mean_ns: 7_300,
                    p99_ns: 12_400,
                    p999_ns: 101_000,
                    max_ns: 4_012_000,
                    error: None,
                    ..SweepLatency::default()
                })
                .to_vec(),
            messages: Some(SweepMessages {
                sentence: "a 2 B message takes 7.01 us; up to 1 KiB that hardly grows".to_owned(),
                verbs: "not measured: there is no RDMA device on this host".to_owned(),
                ..SweepMessages::default()
            }),
            ..Sweep::default()
        };
        Run {
            name: "far.example.org".to_owned(),
            state: RunState::Done,
            sweep: Some(sweep),
            verdict: Some(Verdict {
                sentence:
                    "Knee of message-size: 41 kB one way, 41 kB both ways. A 2 B message takes \
                           7.01 us; up to 1 KiB that hardly grows."
                        .to_owned(),
                conclusive: true,
                ..Verdict::default()
            }),
            ..Run::default()
        }
    }

    #[test]
    fn an_empty_run_says_so_in_two_lines() {
        insta::assert_snapshot!(summary(&Run::default(), &[], false, 80), @r"
        ● interrupted
        The run ended before a verdict; what was measured until then is below.
        ");
    }

    #[test]
    fn colour_adds_only_escape_sequences() {
        let (run, findings) = fixed_run();
        let plain = summary(&run, &findings, false, 72);
        let mut coloured = summary(&run, &findings, true, 72);
        for sgr in ["0", "1", "2", "1;33"] {
            coloured = coloured.replace(&format!("\u{1b}[{sgr}m"), "");
        }
        let trimmed = |t: &str| {
            t.lines()
                .map(|l| l.trim_end().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(trimmed(&plain), trimmed(&coloured));
    }

    #[test]
    fn escape_sequences_from_outside_do_not_reach_the_terminal() {
        let bad = "\u{1b}]0;owned\u{7}\u{9b}31m".to_owned();
        let finding = FindingRecord {
            title: bad.clone(),
            evidence: vec![bad.clone()],
            ..FindingRecord::default()
        };
        let run = Run {
            name: bad.clone(),
            error: Some(bad),
            ..Run::default()
        };
        let text = summary(&run, &[finding], false, 80);
        assert!(
            text.chars().all(|c| c == '\n' || !c.is_control()),
            "{text:?}"
        );
    }

    #[test]
    fn bars_are_as_long_as_their_parts() {
        assert_eq!(
            bar([0.0, 0.953, 0.0, 0.047]),
            format!("{}▒", "█".repeat(19))
        );
        assert_eq!(bar([0.0; 4]), " ".repeat(20));
        assert_eq!(bar([1.0, 1.0, 1.0, 1.0]).chars().count(), 20);
    }

    #[test]
    fn lines_wrap_at_blanks_and_long_words_have_their_own() {
        assert_eq!(wrap("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(wrap("x toolongaword y", 5), ["x", "toolongaword", "y"]);
        assert_eq!(wrap("a 10 %, b", 5), ["a", "10 %,", "b"]);
        assert!(wrap("  ", 5).is_empty());
    }
}
