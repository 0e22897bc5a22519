//! Captures explained, in lines.

use super::{Ink, Page};
use crate::html::trace::spacing;
use crate::model::{Run, Trace, TraceConnection};
use crate::table::{Column, Table};
use crate::text;

impl Page {
    /// A line for each connection of a capture, and what was read.
    pub(super) fn trace(&mut self, run: &Run) {
        let Some(trace) = &run.trace else { return };
        let shown: Vec<&TraceConnection> = trace.connections.iter().take(CONNECTIONS_MAX).collect();
        if !shown.is_empty() {
            self.out.push('\n');
        }
        let mut table = Table::new([4, 11, 9, 11, 9, 5].map(Column::numbers));
        table.row(["", "goodput", "payload", "best", "rtt", "retr"]);
        for c in &shown {
            let dash = || "-".to_owned();
            table.row([
                format!("{}.", c.number),
                if c.active_ns == 0 {
                    dash()
                } else {
                    text::rate(c.goodput_bits_per_second)
                },
                text::size(c.payload_bytes),
                c.best_bits_per_second.map_or_else(dash, text::rate),
                c.rtt_min_ns.map_or_else(dash, text::duration),
                text::count(crate::html::trace::again(c)),
            ]);
        }
        let mut lines = table.lines().into_iter();
        let head = lines.next().filter(|_| !shown.is_empty());
        let rows: Vec<_> = shown.iter().zip(lines).collect();
        let columns = |row: &str, last: &str| row.chars().count() + 2 + last.chars().count();
        // The limits are a column where that fits, else lines of their own.
        let fits = rows
            .iter()
            .all(|(c, row)| columns(row, &limits(c)) <= self.width);
        if let Some(head) = head {
            let last = if fits { "  limited by" } else { "" };
            let head = self.ink(Ink::Dim, &format!("{head}{last}"));
            self.line(&head);
        }
        for (c, row) in rows {
            let limits = limits(c);
            let last = if fits { limits.as_str() } else { "" };
            self.line(&format!("{row}  {last}"));
            let mut ends = format!("{} > {}", text::plain(&c.sender), text::plain(&c.receiver));
            ends += &crate::html::trace::beside(c);
            let file = usize::try_from(c.file)
                .ok()
                .and_then(|n| trace.files.get(n));
            if let Some(file) = file.filter(|_| trace.files.len() > 1) {
                ends += &format!("  {}", text::plain(&file.name));
            }
            self.wrapped("     ", &ends, Ink::Dim);
            if !fits && !limits.is_empty() {
                self.wrapped("     ", &format!("limited by {limits}"), Ink::Plain);
            }
        }
        self.more(
            trace.connections.len().saturating_sub(CONNECTIONS_MAX),
            "connection",
        );
        self.spacing(trace);
        self.out.push('\n');
        let what = format!(
            "{} packets, {} of them TCP, in {} with data of {}",
            text::count(trace.packets),
            text::count(trace.tcp_packets),
            text::plural(trace.connections_with_data, "connection"),
            text::count(trace.connections_seen),
        );
        self.wrapped("", &what, Ink::Dim);
        for line in crate::html::trace::others(trace) {
            self.wrapped("", &text::plain(&line), Ink::Dim);
        }
        let unmade = crate::html::trace::unmade(trace);
        if !unmade.is_empty() {
            self.wrapped("", &text::plain(&unmade), Ink::Bold);
        }
        let given_up = crate::html::trace::given_up(trace);
        if !given_up.is_empty() {
            self.wrapped("", &given_up, Ink::Bold);
        }
        for file in trace.files.iter().take(CONNECTIONS_MAX) {
            let stopped = crate::html::trace::stopped(file);
            if !stopped.is_empty() {
                let line = format!("{}: {}", text::plain(&file.name), text::plain(&stopped));
                self.wrapped("", &line, Ink::Bold);
            }
            if let Some(dropped) = file.dropped.filter(|n| *n > 0) {
                let line = format!(
                    "{}: the capturing host dropped {} packets, so gaps may be missing captures, not losses",
                    text::plain(&file.name),
                    text::count(dropped)
                );
                self.wrapped("", &line, Ink::Bold);
            }
        }
        for log in trace.logs.iter().take(CONNECTIONS_MAX) {
            self.out.push('\n');
            self.wrapped("", &text::plain(&log.sentence), Ink::Bold);
        }
        for (n, line) in trace
            .pair
            .iter()
            .flat_map(crate::html::pair::lines)
            .enumerate()
        {
            if n == 0 {
                self.out.push('\n');
                self.wrapped("", &line, Ink::Bold);
            } else {
                self.wrapped("  ", &line, Ink::Plain);
            }
        }
    }

    /// When packets came, a few lines for each of the first connections.
    fn spacing(&mut self, trace: &Trace) {
        let spaced = trace.connections.iter().filter(|c| c.spacing.is_some());
        for c in spaced.take(SPACED_MAX) {
            let Some(s) = &c.spacing else { continue };
            self.out.push('\n');
            let mut line = |text: String| self.wrapped("     ", &text, Ink::Dim);
            line(format!("{}. {}", c.number, spacing::stamps(s)));
            if !s.modes.is_empty() {
                line(format!("gaps: {}", spacing::modes(s)));
            }
            if s.bursts.limit_ns > 0 {
                line(spacing::bursts(s));
            }
            if let Some(segments) = s.acks.as_ref().and_then(spacing::segments) {
                line(format!("segments that an ACK acknowledges: {segments}"));
            }
            for section in s.sections.iter().take(SECTIONS_NAMED) {
                let length = text::duration(section.length_ns);
                line(match &section.refused {
                    Some(why) => format!("sections of {length}: {}", text::plain(why)),
                    None => format!(
                        "sections of {length}: max {}, median {}, min {}",
                        text::rate(section.peak_bits_per_second),
                        text::rate(section.median_bits_per_second),
                        text::rate(section.least_bits_per_second)
                    ),
                });
            }
        }
        for s in trace.streams.iter().take(SPACED_MAX) {
            self.out.push('\n');
            let line = format!(
                "{} streams side by side. {}",
                s.connections.len(),
                spacing::order(s)
            );
            self.wrapped("     ", &line, Ink::Dim);
        }
        if let Some(o) = &trace.observer {
            self.out.push('\n');
            let line = format!(
                "{}: {}, {}, {}, {}: {}",
                text::plain(&o.tool),
                text::plural(o.packets, "packet"),
                text::plural(o.gaps, "gap"),
                text::plural(o.sections, "section"),
                text::plural(o.bursts, "burst"),
                if o.agrees {
                    "both agree"
                } else {
                    "THEY DIFFER"
                }
            );
            self.wrapped("", &line, if o.agrees { Ink::Dim } else { Ink::Bold });
            for r in o.round_trips.iter().take(SPACED_MAX) {
                self.wrapped("     ", &spacing::round_trips(r), Ink::Dim);
            }
        }
    }
}

/// What limited a connection, and for how much of the time.
fn limits(c: &TraceConnection) -> String {
    let named = c.shares.iter().filter(|s| s.share >= SHARE_NAMED);
    let limits = named.take(LIMITS_MAX).map(|s| {
        let limit = text::plain(&crate::html::trace::spoken(&s.limit));
        format!("{limit} {}", text::percent(s.share))
    });
    limits.collect::<Vec<_>>().join(", ")
}

/// Connections of a capture that get a line.
const CONNECTIONS_MAX: usize = 10;
/// Connections whose spacing is shown, and lengths of sections of each.
const SPACED_MAX: usize = 4;
const SECTIONS_NAMED: usize = 8;
/// Limits that are named of each.
const LIMITS_MAX: usize = 3;
const SHARE_NAMED: f64 = 0.02;
