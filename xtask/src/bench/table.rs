//! The tables of `bench/README.md`, made of a record, each with its legend.

use std::fmt::Write as _;

use super::cells::{HEALTHY, IDLE, MTUS, PAYLOADS_BYTES, tcp_name, udp_name};
use super::record::Record;
use super::site::Place;

/// All tables, as Markdown.
pub(crate) fn render(record: &Record) -> String {
    let mut text = head(record);
    type Made = fn(&Record) -> String;
    let sections: [(&str, &str, &str, Made); 4] = [
        ("tcp/", "TCP, one stream, CUBIC", TCP_LEGEND, tcp),
        ("udp/", "UDP, one system call a packet", UDP_LEGEND, udp),
        ("", "Error of the one-way delay", DELAY_LEGEND, delay),
        (
            HEALTHY,
            "1 Gb/s, 20 ms: ours beside iperf3",
            HEALTHY_LEGEND,
            healthy,
        ),
    ];
    for (cells, title, legend, table) in sections {
        // The delay is measured in two kinds of cells.
        let is_there = |cell: &str| match cells {
            "" => cell == IDLE || cell == HEALTHY,
            start => cell.starts_with(start),
        };
        if record.rows.iter().any(|row| is_there(&row.cell)) {
            let table = table(record);
            let _ = write!(text, "\n### {title}\n\n{legend}\n\n{table}");
        }
    }
    if !record.notes.is_empty() {
        text.push_str("\n### Remarks of the run\n\n");
        for note in record.notes.iter().take(NOTES_MAX) {
            let _ = writeln!(text, "* {note}");
        }
        if record.notes.len() > NOTES_MAX {
            let more = record.notes.len() - NOTES_MAX;
            let _ = writeln!(text, "* and {more} more in lab.json");
        }
    }
    text
}

/// `text` with `body` between the markers; `None` when it lacks them.
pub(crate) fn put_between(text: &str, body: &str, (begin, end): (&str, &str)) -> Option<String> {
    let (before, rest) = text.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!(
        "{before}{begin}\n{}\n{end}{after}",
        body.trim_end()
    ))
}

pub(crate) fn head(record: &Record) -> String {
    let machine = &record.machine;
    let loads: Vec<f64> = record.rows.iter().map(|r| r.load).collect();
    let range = match (
        loads.iter().copied().min_by(f64::total_cmp),
        loads.iter().copied().max_by(f64::total_cmp),
    ) {
        (Some(least), Some(most)) => format!("{least:.1} to {most:.1}"),
        _ => "unknown".to_owned(),
    };
    let or_none = |tool: &Option<String>| tool.clone().unwrap_or_else(|| "missing".to_owned());
    let quick = if record.quick { ", quick" } else { "" };
    format!(
        "{}, {} round{}{quick}: Linux {}, {} × {}, load average {range} (the benchmark's own \
         included); commit {}; {}; {}.\n",
        record.date,
        record.rounds,
        if record.rounds == 1 { "" } else { "s" },
        machine.kernel,
        machine.cpus,
        machine.cpu,
        machine.commit.as_deref().unwrap_or("unknown"),
        or_none(&machine.iperf3),
        or_none(&machine.ip),
    )
}

fn tcp(record: &Record) -> String {
    let mut table = Table::new(&[
        "MTU",
        "offloads",
        "through",
        "iperf3 Gb/s",
        "of bridge",
        "ours Gb/s",
        "of bridge",
        "ours / iperf3",
        "CPU s/s, iperf3",
        "CPU s/s, ours",
        "machine CPUs",
        "lab frames/s",
        "lab CPU s/s",
        "lab CPU s/Gbit",
    ]);
    for mtu in MTUS {
        for offloads in [true, false] {
            let bridge = tcp_name(Place::Bridge, mtu, offloads);
            for place in [Place::Veth, Place::Bridge, Place::Lab] {
                let cell = tcp_name(place, mtu, offloads);
                if !record.has(&cell) {
                    continue;
                }
                let median = |metric: &str| record.median(&cell, metric);
                let of_bridge =
                    |metric: &str| record.median_ratio((&cell, metric), (&bridge, metric));
                let share =
                    |metric: &str, of: &str| record.median_ratio((&cell, metric), (&cell, of));
                table.row(vec![
                    mtu.to_string(),
                    if offloads { "on" } else { "off" }.to_owned(),
                    place.name().to_owned(),
                    number(median("iperf3.goodput"), 1e9, 2),
                    number(of_bridge("iperf3.goodput"), 1.0, 2),
                    number(median("ours.goodput"), 1e9, 2),
                    number(of_bridge("ours.goodput"), 1.0, 2),
                    number(share("ours.goodput", "iperf3.goodput"), 1.0, 3),
                    number(cpu_a_second(record, &cell, "iperf3"), 1.0, 2),
                    number(cpu_a_second(record, &cell, "ours"), 1.0, 2),
                    number(median("iperf3.machine_cpus"), 1.0, 2),
                    count(median("iperf3.lab_frames")),
                    number(share("iperf3.lab_cpu", "iperf3.sending"), 1.0, 2),
                    number(median("iperf3.lab_cpu_per_gbit"), 1.0, 3),
                ]);
            }
        }
    }
    table.finish()
}

/// CPU seconds of both ends a second of sending.
fn cpu_a_second(record: &Record, cell: &str, tool: &str) -> Option<f64> {
    let (near, far) = (format!("{tool}.near_cpu"), format!("{tool}.far_cpu"));
    let sending = record.median(cell, &format!("{tool}.sending"))?;
    Some(record.median_sum(cell, &[&near, &far])? / sending)
}

fn udp(record: &Record) -> String {
    let mut table = Table::new(&[
        "payload, B",
        "through",
        "sent/s",
        "received/s",
        "of bridge",
        "lost by lab",
        "lost in receiver's socket",
        "lost elsewhere",
        "CPU s: sender",
        "lab",
        "receiver",
        "machine CPUs",
    ]);
    for payload_bytes in PAYLOADS_BYTES {
        let bridge = udp_name(Place::Bridge, payload_bytes);
        for place in [Place::Bridge, Place::Lab] {
            let cell = udp_name(place, payload_bytes);
            if !record.has(&cell) {
                continue;
            }
            let median = |metric: &str| record.median(&cell, metric);
            let share = |metric: &str| {
                let ratio = record.median_ratio((&cell, metric), (&cell, "udp.sent_total"));
                number(ratio.map(|r| r * 100.0), 1.0, 2) + " %"
            };
            let of_bridge = record.median_ratio((&cell, "udp.received"), (&bridge, "udp.received"));
            let lost_by_lab = match place {
                Place::Lab => share("udp.lab_lost"),
                _ => NONE.to_owned(),
            };
            table.row(vec![
                payload_bytes.to_string(),
                place.name().to_owned(),
                count(median("udp.sent")),
                count(median("udp.received")),
                number(of_bridge, 1.0, 2),
                lost_by_lab,
                share("udp.lost_socket"),
                share("udp.lost_elsewhere"),
                number(median("udp.near_cpu"), 1.0, 2),
                number(median("udp.lab_cpu"), 1.0, 2),
                number(median("udp.far_cpu"), 1.0, 2),
                number(median("udp.machine_cpus"), 1.0, 2),
            ]);
        }
    }
    table.finish()
}

fn delay(record: &Record) -> String {
    let mut table = Table::new(&[
        "path",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "max us",
        "worst max us",
        "rate error, 99 % of 10 ms",
        "of 1 s",
        "probes",
        "rounds trusted",
        "lab CPU s",
        "machine's gaps > 1 ms, ms/s",
        "others' CPU s/s",
        "stolen s/s",
    ]);
    for (path, cell, who) in [
        ("50 ms, idle", IDLE, "idle"),
        ("1 Gb/s, 20 ms, full of ours", HEALTHY, "ours"),
        ("1 Gb/s, 20 ms, full of iperf3", HEALTHY, "iperf3"),
    ] {
        let name = |what: &str| format!("{who}.{what}");
        let median = |what: &str| record.median(cell, &name(what));
        let noise = |metric: &str| record.median_ratio((cell, metric), (cell, "noise.wall"));
        let trusted = name("trusted");
        let of = |wanted: f64| {
            let rows = record.rows.iter();
            rows.filter(|r| r.cell == cell && r.metric == trusted && r.value >= wanted)
                .count()
        };
        if of(0.0) == 0 {
            continue;
        }
        table.row(vec![
            path.to_owned(),
            number(median("error_p50"), 1e3, 0),
            number(median("error_p99"), 1e3, 0),
            number(median("error_p999"), 1e3, 0),
            number(median("error_max"), 1e3, 0),
            number(record.largest(cell, &name("error_max")), 1e3, 0),
            percent(median("rate_error_10ms_p99")),
            percent(median("rate_error_1000ms_p99")),
            number(median("probes"), 1.0, 0),
            format!("{} of {}", of(1.0), of(0.0)),
            number(median("lab_cpu"), 1.0, 2),
            number(noise("noise.lost"), 1e-3, 1),
            number(noise("noise.others_cpu"), 1.0, 2),
            number(noise("noise.stolen"), 1.0, 2),
        ]);
    }
    table.finish()
}

fn healthy(record: &Record) -> String {
    let mut table = Table::new(&[
        "who",
        "Mb/s",
        "of iperf3",
        "CPU s/s, both ends",
        "lab CPU s/Gbit",
        "sent again",
        "dropped by the path's queue",
    ]);
    for who in ["iperf3", "ours"] {
        let name = |what: &str| format!("{who}.{what}");
        let median = |what: &str| record.median(HEALTHY, &name(what));
        let of_iperf3 =
            record.median_ratio((HEALTHY, &name("goodput")), (HEALTHY, "iperf3.goodput"));
        table.row(vec![
            who.to_owned(),
            number(median("goodput"), 1e6, 1),
            number(of_iperf3, 1.0, 4),
            number(cpu_a_second(record, HEALTHY, who), 1.0, 3),
            number(median("lab_cpu_per_gbit"), 1.0, 3),
            number(median("retransmits"), 1.0, 0),
            number(median("path_queue_drops"), 1.0, 0),
        ]);
    }
    table.finish()
}

/// A table in Markdown, columns as wide as what is in them.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(header: &[&str]) -> Self {
        Self {
            rows: vec![header.iter().map(|&h| h.to_owned()).collect()],
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(
            cells.len(),
            self.rows[0].len(),
            "a row is as long as its header"
        );
        self.rows.push(cells);
    }

    pub(crate) fn finish(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0).max(3)
        };
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(text, "| {cell:width$} ");
            }
            text.push_str("|\n");
            if number == 0 {
                for width in &widths {
                    let _ = write!(text, "|{}", "-".repeat(width + 2));
                }
                text.push_str("|\n");
            }
        }
        text
    }
}

/// A value in a unit `scale` times its own.
pub(crate) fn number(value: Option<f64>, scale: f64, decimals: usize) -> String {
    value.map_or_else(|| NONE.to_owned(), |v| format!("{:.decimals$}", v / scale))
}

/// Parts in a million as per cent.
pub(crate) fn percent(ppm: Option<f64>) -> String {
    ppm.map_or_else(|| NONE.to_owned(), |v| format!("{:.3} %", v / 1e4))
}

/// A number of things: thousands as k, beyond a million as M.
fn count(value: Option<f64>) -> String {
    match value {
        None => NONE.to_owned(),
        Some(v) if v >= 1e6 => format!("{:.2} M", v / 1e6),
        Some(v) if v >= 1e3 => format!("{:.0} k", v / 1e3),
        Some(v) => format!("{v:.0}"),
    }
}

const NONE: &str = "–";
/// The tables are for readers; lab.json has every remark.
const NOTES_MAX: usize = 12;
pub(crate) const MARKERS: (&str, &str) = ("<!-- lab:begin -->", "<!-- lab:end -->");

const TCP_LEGEND: &str = "\
Payload received a second between two hosts joined by one veth pair, by a kernel bridge, and by the \
lab on a path without rate or delay; offloads off means that the hosts cut and checksum every \
segment themselves. CPU s/s is that of both ends' programs a second of sending, machine CPUs is \
everybody's while iperf3 ran, and the lab's columns (frames both ways as a wire would carry them, \
CPU of its forwarding thread) are from iperf3's runs as well.";
const UDP_LEGEND: &str = "\
Datagrams of one payload size, sent as fast as one send call each goes and counted by a receiving \
program; the lab's certificate says what it lost itself, the receiver's kernel what found its \
socket's buffer full. Loss is a share of what was sent, CPU seconds are over the whole cell, and \
machine CPUs include what the kernel did in interrupts, which is where a bridge's work shows.";
const DELAY_LEGEND: &str = "\
What the lab added to the delay that its path asks for, by the kernel stamps of the hosts on 200 \
probe frames a second each way (a kernel's own way through veth and scheduler included). Rate error \
is what left in a window beside what was due in it, in 99 % of the windows. The last \
three columns are of the machine alone, just before each cell: time lost in gaps of a spinning \
thread, CPU used by other programs, CPU taken by the hypervisor.";
const HEALTHY_LEGEND: &str = "\
The path of paths/healthy-1g-20ms.toml, filled by our transfer and by iperf3's in turns in one lab; \
the most that TCP can carry there at MTU 1500 with time stamps is 941.5 Mb/s of payload. Of iperf3 \
is the median of the rounds' ratios.";

#[cfg(test)]
mod tests {
    use super::super::record::{Machine, Row, SCHEMA_VERSION};
    use super::*;

    fn record(rows: &[(&str, &str, f64)]) -> Record {
        let rows = rows.iter().map(|&(cell, metric, value)| Row {
            round: 1,
            cell: cell.to_owned(),
            metric: metric.to_owned(),
            value,
            unit: "1",
            load: 0.25,
        });
        Record {
            schema_version: SCHEMA_VERSION,
            date: "2026-01-01T00:00:00Z".to_owned(),
            machine: Machine::default(),
            rounds: 1,
            quick: true,
            notes: Vec::new(),
            rows: rows.collect(),
        }
    }

    fn line<'a>(text: &'a str, start: &[&str]) -> Vec<&'a str> {
        let cells =
            |line: &'a str| -> Vec<&'a str> { line.split('|').map(str::trim).skip(1).collect() };
        let mut lines = text.lines().map(cells);
        lines.find(|cells| cells.starts_with(start)).unwrap()
    }

    #[test]
    fn medians_and_ratios_stand_in_their_columns() {
        let made = record(&[
            ("tcp/bridge/1500/on", "iperf3.goodput", 10e9),
            ("tcp/lab/1500/on", "iperf3.goodput", 8e9),
            ("tcp/lab/1500/on", "ours.goodput", 7.9e9),
            ("tcp/lab/1500/on", "ours.near_cpu", 2.0),
            ("tcp/lab/1500/on", "ours.far_cpu", 1.0),
            ("tcp/lab/1500/on", "ours.sending", 3.0),
            ("tcp/lab/1500/on", "iperf3.lab_frames", 1_234_000.0),
        ]);
        let text = render(&made);
        let row = line(&text, &["1500", "on", "lab"]);
        assert_eq!(
            row[3..12],
            [
                "8.00", "0.80", "7.90", "–", "0.988", "–", "1.00", "–", "1.23 M"
            ]
        );
    }

    #[test]
    fn a_record_of_nothing_still_renders() {
        assert!(!render(&record(&[])).contains("###"));
        let text = render(&record(&[(IDLE, "idle.trusted", 1.0), (HEALTHY, "x", 1.0)]));
        assert_eq!(line(&text, &["50 ms, idle"])[1], "–");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        assert!(!text.contains("UDP"), "{text}");
    }

    #[test]
    fn tables_have_as_many_columns_in_each_line() {
        let mut table = Table::new(&["a", "wide one"]);
        table.row(vec!["longer".to_owned(), "–".to_owned()]);
        let text = table.finish();
        assert_eq!(
            text,
            "| a      | wide one |\n|--------|----------|\n| longer | –        |\n"
        );
    }

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let put = |text: &str, body: &str| put_between(text, body, ("<", ">"));
        let once = put("top\n<\nold\n>\nbottom\n", "new\n").unwrap();
        assert_eq!(once, "top\n<\nnew\n>\nbottom\n");
        assert_eq!(put(&once, "new").unwrap(), once);
        assert_eq!(put("nothing", "new"), None);
    }

    #[test]
    fn counts_are_short() {
        let texts = [Some(12.0), Some(310_400.0), Some(2_345_678.0), None].map(count);
        assert_eq!(texts, ["12", "310 k", "2.35 M", "–"]);
    }
}
