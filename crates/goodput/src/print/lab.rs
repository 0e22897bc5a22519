//! What `goodput lab` prints.

pub(crate) mod check;
pub(crate) mod log;

use std::fmt::Write as _;
use std::io;

use lab::daemon::{Certified, Ended};
use lab::protocol::{Counts, RuleState, Status};
use lab::{Certificate, Lab, LabError, Overload, PathFile};
use link::record::End;
use report::table::{Column, Table};
use units::Duration;

use crate::print;

/// A warning about a path that asks for more frames a second than this machine carries.
pub(crate) fn overload(overload: &Overload) -> String {
    format!(
        "warning: this path needs {} frames/s in each direction; without segmentation offload this \
         machine's lab carries about {}, so it will fall behind at full load",
        grouped(overload.needed),
        grouped(overload.carried)
    )
}

/// What to do with a lab that has just come up.
pub(crate) fn introduce(status: &Status, width: usize) -> String {
    let first = format!(
        "lab '{}' is up (process {}): {}",
        status.name, status.pid, status.title
    );
    let mut text = print::wrapped(&first, 2, width);
    text += &hosts(status);
    let inside = status.hosts.iter().find(|h| h.interface.is_none());
    let host = inside.map_or("HOST", |h| &h.name);
    text += &format!(
        "It stays up when this terminal is closed. Next:\n  \
         goodput lab exec --lab {name} {host} -- bash\n  \
         goodput lab ps\n  \
         goodput lab down {name}\n",
        name = status.name
    );
    text
}

/// The two ends of a path, for a shell on it.
pub(crate) fn behind(lab: &Lab, path: &PathFile, outside: bool) -> String {
    let (near, far) = (lab.near(), lab.far());
    let behind = match &path.network.hosts[path.transfer.to].interface {
        Some(interface) if outside => format!("this machine's network, via {interface}"),
        Some(interface) => {
            format!("{interface} of this host; meanwhile the host's own programs have no network")
        }
        None => format!(
            "{} ({}, goodput serve runs there)",
            far.name(),
            far.address()
        ),
    };
    let by = match path.network.by_kernel {
        true => "; the kernel runs its links",
        false => "",
    };
    format!(
        "lab: {} ({}) -> {behind}: {}{by}",
        near.name(),
        near.address(),
        path.title
    )
}

/// A lab with its hosts and links.
pub(crate) fn shown(status: &Status, width: usize) -> String {
    let title = format!("{}: {}", status.name, status.title);
    let mut text = print::wrapped(&title, 2, width);
    text += &format!("  process {}, up since {}\n", status.pid, status.up_since);
    text += &hosts(status);
    let counts = [10, 11, 6, 6, 11].map(Column::numbers);
    let mut table = Table::new([Column::words(20)].into_iter().chain(counts));
    table.row([
        "link",
        "frames",
        "queue drops",
        "lost",
        "late",
        "lost by lab",
    ]);
    let mut below = vec![None];
    for link in &status.links {
        for (from, to, counts) in [
            (&link.from, &link.to, &link.forward),
            (&link.to, &link.from, &link.backward),
        ] {
            let Counts {
                frames,
                dropped_queue,
                lost,
                late,
                lost_by_lab,
                ..
            } = *counts;
            let direction = format!("{}: {from} -> {to}", link.name);
            let numbers = [frames, dropped_queue, lost, late, lost_by_lab].map(grouped);
            table.row([direction].into_iter().chain(numbers));
            below.push(collisions(counts));
        }
    }
    for (line, below) in table.lines().into_iter().zip(below) {
        let _ = writeln!(text, "  {line}");
        text.extend(below.map(|line| print::wrapped(&line, 6, width)));
    }
    text
}

/// A line for each host: its name and where it is.
fn hosts(status: &Status) -> String {
    let mut table = Table::new([Column::words(12), Column::words(15), Column::words(0)]);
    for host in &status.hosts {
        match &host.interface {
            None => table.row([&host.name, &host.address, &host.address6]),
            Some(interface) => table.row([&host.name, &format!("behind {interface}")]),
        }
    }
    for gateway in &status.gateways {
        table.row([&gateway.name, &gateway.address, "gateway"]);
    }
    let lines = table.lines().into_iter();
    lines.map(|l| format!("  {}\n", l.trim_end())).collect()
}

/// A line about collisions and the frames lost to them, where there are any.
fn collisions(counts: &Counts) -> Option<String> {
    let numbers = [
        counts.collisions,
        counts.late_collisions,
        counts.excessive_collisions,
        counts.collision_fcs,
    ];
    if numbers == [0; 4] {
        return None;
    }
    let [all, late, excessive, fcs] = numbers.map(grouped);
    Some(format!(
        "    {all} collisions; lost to them: {late} late, {excessive} after 16 attempts, {fcs} on \
         arrival (FCS)"
    ))
}

/// A node's rules, each behind the number of segments that matched it.
pub(crate) fn rules(rules: &[RuleState]) -> String {
    let mut text = String::new();
    for state in rules {
        let _ = writeln!(text, "{:>12}  {}", grouped(state.hits), state.rule);
    }
    text
}

/// The last lines of a lab that ends: its accuracy and its log.
pub(crate) fn last_words(ended: &Ended) -> Vec<String> {
    let mut lines = vec![certified(&ended.certificate)];
    match &ended.log {
        Ok(None) => {}
        Ok(Some(end)) => lines.push(log_verdict(end)),
        Err(e) => lines.push(format!("log: {e}")),
    }
    lines
}

/// That a lab is down, and its last lines.
pub(crate) fn down(name: &str, lines: &[String], width: usize) -> String {
    let mut text = format!("lab '{name}' is down\n");
    for line in lines {
        text += &print::labelled("  ", line, width);
    }
    text
}

/// The lab's accuracy in one line, or why it is not known.
pub(crate) fn certified(certificate: &Certified) -> String {
    match certificate {
        None => NO_PROBES.to_owned(),
        Some(Err(e)) => no_report(e),
        Some(Ok(certificate)) => verdict(certificate),
    }
}

/// The lab's accuracy in one line.
fn verdict(certificate: &Certificate) -> String {
    let c = certificate;
    let trust = if c.trusted() {
        "trusted".to_owned()
    } else {
        format!("NOT trusted: {}", c.problems.join("; "))
    };
    if let Some(run) = &c.kernel {
        let said = |of: fn(&lab::Pace) -> u64| grouped(run.paces.iter().map(of).sum());
        return format!(
            "lab: the kernel ran the links, delay not measured; {} windows of 100 ms with a backlog, {} above the \
             rate; {} packets dropped at a full queue, {} lost by the lab; {trust}",
            said(|p| p.windows_busy),
            said(|p| p.windows_over),
            said(|p| p.drops),
            said(|p| p.lost),
        );
    }
    let [p50, p99, p999] = [
        c.delay_error_p50_ns,
        c.delay_error_p99_ns,
        c.delay_error_p999_ns,
    ]
    .map(signed);
    format!(
        "lab: delay error p50 {p50}, p99 {p99}, p99.9 {p999} of {} probes; {} of {} frames lost by \
         the lab; {trust}",
        grouped(c.probes),
        grouped(c.frames_lost_by_lab()),
        grouped(c.frames())
    )
}

/// Why there is no accuracy report.
fn no_report(error: &LabError) -> String {
    let unreachable = |e: &io::Error| e.kind() == io::ErrorKind::NetworkUnreachable;
    match error {
        // A shell inside has the host's addresses for as long as it runs, and probes have none.
        LabError::Kernel { source, .. } if unreachable(source) => {
            "lab: no accuracy report: another path was put in front of one of its hosts".to_owned()
        }
        _ => format!("lab: no accuracy report: {error}"),
    }
}

/// How a log ended.
pub(crate) fn log_verdict(end: &End) -> String {
    let lost = if end.lost_rows + end.lost_frames == 0 {
        "none lost".to_owned()
    } else {
        format!(
            "{} decisions and {} frames LOST: the disk was too slow",
            grouped(end.lost_rows),
            grouped(end.lost_frames)
        )
    };
    format!(
        "log: {} frames, {} decisions; {lost}",
        grouped(end.frames),
        grouped(end.rows)
    )
}

fn signed(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    format!("{sign}{}", Duration::from_ns(ns.unsigned_abs()))
}

/// `1,234,567`.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

const NO_PROBES: &str = "lab: no accuracy report: one end of the path is an interface of this machine, \
                         where probes get no timestamps";

#[cfg(test)]
mod tests {
    use super::*;
    use lab::protocol::{HostState, LinkState};

    #[test]
    fn columns_of_a_lab_do_not_touch_and_collisions_stand_below_their_link() {
        let host = |name: &str, interface: Option<&str>| HostState {
            name: name.to_owned(),
            address: "198.18.0.1".to_owned(),
            address6: "fd00::1".to_owned(),
            interface: interface.map(str::to_owned),
        };
        let counts = |frames, collisions| Counts {
            frames,
            collisions,
            ..Counts::default()
        };
        let status = Status {
            hosts: vec![
                host("a-host-of-a-long-name", None),
                host("b", Some("enp1s0")),
            ],
            gateways: Vec::new(),
            links: vec![LinkState {
                name: "a".repeat(30),
                from: "near".to_owned(),
                to: "far".to_owned(),
                forward: counts(1_234_567_890_123, 1),
                backward: counts(0, 0),
            }],
            name: "x".to_owned(),
            title: "y".to_owned(),
            pid: 1,
            up_since: "z".to_owned(),
        };
        let text = shown(&status, 120);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines[0],
            "  a-host-of-a-long-name  198.18.0.1       fd00::1"
        );
        assert_eq!(lines[1], "  b                      behind enp1s0");
        assert!(
            lines[3].contains("near -> far  1,234,567,890,123  "),
            "{text}"
        );
        assert!(lines[4].starts_with("    1 collisions"), "{text}");
        assert!(lines[5].contains("far -> near  "), "{text}");
    }

    #[test]
    fn collisions_have_a_line_only_where_there_are_any() {
        assert_eq!(collisions(&Counts::default()), None);
        let counts = Counts {
            collisions: 3_115,
            late_collisions: 2_802,
            ..Counts::default()
        };
        assert_eq!(
            collisions(&counts).unwrap(),
            "    3,115 collisions; lost to them: 2,802 late, 0 after 16 attempts, 0 on arrival (FCS)"
        );
        let damaged = Counts {
            collision_fcs: 1,
            ..Counts::default()
        };
        assert!(collisions(&damaged).unwrap().contains("1 on arrival"));
    }

    #[test]
    fn a_path_of_more_frames_than_the_lab_carries_is_announced() {
        let said = overload(&Overload {
            needed: 812_743,
            carried: 150_000,
        });
        assert!(
            said.contains("812,743 frames/s in each direction"),
            "{said}"
        );
    }

    fn up() -> Status {
        let host = |name: &str, address: &str, interface: Option<&str>| HostState {
            name: name.to_owned(),
            address: address.to_owned(),
            address6: "fd00:c612::1".to_owned(),
            interface: interface.map(str::to_owned),
        };
        Status {
            name: "wan".to_owned(),
            title: "Two senders into one port: 1 Gb/s, 256 KiB of queue, and 85 ms to the receiver"
                .to_owned(),
            pid: 4_711,
            up_since: "2026-11-28T20:00:00Z".to_owned(),
            hosts: vec![
                host("one", "198.18.0.1", None),
                host("receiver", "198.18.0.3", None),
                host("outside", "", Some("enp1s0")),
            ],
            gateways: vec![host("edge", "198.18.0.254", None)],
            links: vec![LinkState {
                name: "into".to_owned(),
                from: "switch".to_owned(),
                to: "receiver".to_owned(),
                forward: Counts {
                    frames: 51_341,
                    dropped_queue: 11_532,
                    lost: 12,
                    late: 3,
                    lost_by_lab: 1,
                    ..Counts::default()
                },
                backward: Counts {
                    frames: 941,
                    collisions: 3_115,
                    late_collisions: 2_802,
                    ..Counts::default()
                },
            }],
        }
    }

    #[test]
    fn a_lab_as_text() {
        print::golden!("lab_up", |width| introduce(&up(), width));
        print::golden!("lab_ps", |width| shown(&up(), width));
    }

    #[test]
    fn the_last_lines_of_a_lab_as_text() {
        let certificate = Certificate {
            probes: 10_136,
            delay_error_p50_ns: 12_630,
            delay_error_p99_ns: 142_800,
            delay_error_p999_ns: -7_503_000,
            problems: vec!["2.1 % of the probes were late by more than 1 ms".to_owned()],
            ..Certificate::default()
        };
        let of_kernel = Certificate {
            kernel: Some(lab::KernelRun {
                paces: vec![lab::Pace {
                    windows_busy: 48,
                    windows_over: 1,
                    drops: 1_204,
                    lost: 2,
                    ..lab::Pace::default()
                }],
                ..lab::KernelRun::default()
            }),
            ..Certificate::default()
        };
        let lost = End {
            rows: 104_552,
            frames: 52_282,
            lost_rows: 1_031,
            lost_frames: 17,
        };
        let whole = End {
            lost_rows: 0,
            lost_frames: 0,
            ..lost
        };
        let lines = [
            verdict(&certificate),
            verdict(&of_kernel),
            NO_PROBES.to_owned(),
            log_verdict(&whole),
            log_verdict(&lost),
        ];
        print::golden!("lab_down", |width| down("wan", &lines, width));
    }

    #[test]
    fn numbers_are_grouped() {
        let shown = [0, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }
}
