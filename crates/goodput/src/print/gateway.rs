//! What `goodput gateway` prints: events while it runs, counts, and the results of a trial.

use std::fmt::Write as _;

use fault::Failure;
use gateway::buffers::Decision;
use gateway::check::{Checked, Level};
use gateway::counters::Counts;
use gateway::daemon::{Ended, Event};
use gateway::links::LinkStatus;
use gateway::sampled::Sampled;
use gateway::status::{Shown, Status, Sums, held_by};
use gateway::view::HalfSeen;
use report::table::{Column, Table};
use serde_json::Value;
use units::{Bytes, Duration, Rate};

use crate::print;

/// Prints what happens while a gateway runs.
pub(crate) fn event(event: Event) {
    print::note(format_args!("gateway: {}", sentence(&event)));
    if let Event::Changes(text) = event {
        print::note(text.trim_end());
    }
}

fn sentence(event: &Event) -> String {
    match event {
        Event::Changes(_) => "changes to this machine while it runs:".to_owned(),
        Event::NoRunFolder(error) => format!("no run folder: {error}"),
        Event::RunFolderEnded(error) => format!("cannot write to its run folder any more: {error}"),
        Event::NoControlDirectory => {
            "no control socket: XDG_RUNTIME_DIR names no directory; status and reload need one, use \
             --control FILE"
                .to_owned()
        }
        Event::NoControl { file, error } => format!(
            "no control socket at {}: {error}; status and reload will not work",
            file.display()
        ),
        Event::Metrics(address) => format!("metrics on http://{address}/metrics"),
        Event::NoMetrics(address) => format!("no metrics: {address} is not free"),
        Event::TookOver { live } => format!("took over from the running gateway, with {live} connections"),
        Event::Splitting { inside, outside } => format!(
            "splitting between {inside} and {outside}; Ctrl-C waits for connections to end, a second one \
             ends them"
        ),
        Event::Accepting => {
            "accepting; Ctrl-C waits for connections to end, a second one ends them".to_owned()
        },
        Event::LogFailed { file, error } => {
            format!("cannot write the log {}: {error}", file.display())
        }
        Event::UpgradeFailed(why) => why.clone(),
        Event::HandOverFailed(error) => format!("the upgrade failed, this process continues: {error}"),
        Event::Draining { live, time } => {
            format!("{live} connections have {time} to end; new connections pass unsplit")
        }
    }
}

/// Prints how a gateway ended and where its run folder is.
pub(crate) fn ended(ended: Ended, json: bool) -> Result<(), Failure> {
    let Ended {
        counts,
        handed_over,
        folder,
    } = ended;
    if handed_over {
        print::note("gateway: another process continues with its connections and counts");
    } else if json {
        print::print_json(&Status::of(counts, Vec::new()))?;
    } else {
        print::print(&lines(&words(&counts), print::width()))?;
    }
    if let Some(folder) = folder.transpose()?
        && !handed_over
    {
        print::note(format_args!("kept in {}", folder.display()));
    }
    Ok(())
}

/// The checks, one paragraph each.
pub(crate) fn checks(list: &[Checked], width: usize) -> String {
    list.iter().map(|checked| line(checked, width)).collect()
}

fn line(checked: &Checked, width: usize) -> String {
    let mark = match checked.level {
        Level::Fine => "ok      ",
        Level::Poor => "poor    ",
        Level::Missing => "MISSING ",
    };
    let advice = match checked.advice.as_str() {
        "" => String::new(),
        advice => format!(": {advice}"),
    };
    print::labelled(mark, &format!("{}{advice}", checked.what), width)
}

/// All of a status.
pub(crate) fn status(status: &Status, width: usize) -> String {
    let text = counts_of(status) + &buffers(&status.buffers) + &sampled(&status.unsplit_samples);
    lines(&text, width)
}

/// Shows a status in place of the one before. False once the reader has closed stdout.
pub(crate) fn watched(status: &Status) -> bool {
    print::print_screen(&screen(status, print::width()))
}

/// A status as the live view shows it: counts, and a table of the busiest connections.
fn screen(status: &Status, width: usize) -> String {
    let counts = lines(&counts_of(status), width);
    format!("{counts}\n{}\n", table(status, width))
}

fn counts_of(status: &Status) -> String {
    words(&status.counts) + &totals(status.sums.as_ref()) + &links(&status.links)
}

/// Each line wrapped with a hanging indent.
fn lines(text: &str, width: usize) -> String {
    let wrapped = |line| print::wrapped(line, 2, width);
    text.lines().map(wrapped).collect()
}

/// Prints what happens during a trial.
pub(crate) fn trial_event(event: trial::gateway::Event) {
    let trial::gateway::Event::FellBehind(problems) = event;
    print::note(format_args!(
        "the lab fell behind ({problems}); repeating the trial"
    ));
}

/// The results of a trial.
pub(crate) fn trial(found: &Value, width: usize) -> String {
    let rate = found["goodput_bits_per_second"].as_f64().unwrap_or(0.0) / 1e6;
    let mut text = format!("{rate:.1} Mb/s by iperf3\n");
    for link in found["links"].as_array().into_iter().flatten() {
        text += &format!(
            "{} {}: sent {} B, received {} B (kernel counters)\n",
            link["side"].as_str().unwrap_or(""),
            link["link"].as_str().unwrap_or(""),
            link["sent_bytes"],
            link["received_bytes"],
        );
    }
    for (key, what) in [
        ("cut", "cut"),
        ("renew", "renewed"),
        ("reload", "files read"),
        ("systemd", "by systemd"),
        ("segments", "segments"),
        ("exact", "exact"),
    ] {
        if !found[key].is_null() {
            text += &format!("{what}: {}\n", found[key]);
        }
    }
    let trusted = found["certificate"]["trusted"].as_bool() == Some(true);
    let by_kernel = !found["certificate"]["kernel"].is_null();
    text += match trusted {
        true if by_kernel => "lab: trusted; the kernel ran the links at their rates\n",
        true => "lab: trusted\n",
        false => "lab: NOT trusted; it fell behind, so these figures measure this machine\n",
    };
    lines(&text, width)
}

/// Counts as text.
fn words(c: &Counts) -> String {
    let mean = c.held_ns.checked_div(c.split).unwrap_or(0);
    let mut text = format!(
        "split {}, live {}, ended {}, reset {}\n\
         outward {}, inward {}, urgent bytes {}\n\
         servers refused {}, unreachable {}, without answer {}; clients gone {}\n\
         unsplit by rule {}, at a limit {}, out of resources {}; refused by rule {}\n\
         SYNs waiting {}, mean wait {}; {} pipes hold {}\n",
        c.split,
        c.live,
        c.ended,
        c.reset,
        Bytes::new(c.bytes_outward),
        Bytes::new(c.bytes_inward),
        c.urgent,
        c.refused,
        c.unreachable,
        c.silent,
        c.abandoned,
        c.bypassed,
        c.over_limit,
        c.failed,
        c.forbidden,
        c.waiting,
        Duration::from_ns(mean),
        c.pipes,
        Bytes::new(c.in_pipes),
    );
    for (count, what) in [
        (
            c.one_way,
            "pairs of hosts with an asymmetric route: answers bypass the gateway",
        ),
        (
            c.passed_one_way,
            "SYNs passed unsplit because of an asymmetric route",
        ),
        (
            c.passed_silent,
            "SYNs passed unsplit because another to the same server got no answer",
        ),
        (
            c.undelivered,
            "connections reset with bytes that were acknowledged but not delivered",
        ),
        (c.bytes_undelivered, "bytes acknowledged but not delivered"),
        (
            c.acks_held,
            "connections whose last ACK waits for the other side's ACK",
        ),
        (
            c.other_port,
            "connections could not keep the client's source port",
        ),
        (
            c.looped,
            "connections came from the gateway itself: the target leads back to it",
        ),
        (c.sampled, "SYNs passed unsplit as samples"),
        (c.copies, "times no pipe was free: the gateway copied bytes"),
        (
            c.accept_rests,
            "times accepting paused: no file descriptor or no memory left",
        ),
        (
            c.options_refused,
            "socket options refused by the kernel (-vv lists them)",
        ),
    ] {
        if count > 0 {
            let _ = writeln!(text, "{count} {what}");
        }
    }
    text
}

/// Totals of the busiest connections: the gain, and a line for each side.
fn totals(sums: Option<&Sums>) -> String {
    let mut text = String::new();
    let Some(sums) = sums else { return text };
    let rate = Rate::from_bits_per_second;
    if let Some(carried) = sums.carried_bps {
        let _ = write!(text, "carried {} while data moved", rate(carried));
        if let (Some(unsplit), Some(gain)) = (sums.unsplit_bps, sums.gain) {
            let unsplit = rate(unsplit);
            let _ = write!(
                text,
                "; unsplit about {unsplit} by the model: gain {gain:.1} times"
            );
        }
        text.push('\n');
    }
    for half in &sums.halves {
        let (Some(rtt), Some(bps)) = (half.rtt_ns, half.acknowledged_bits_per_second) else {
            continue;
        };
        let _ = writeln!(
            text,
            "{} connections: {}, RTT {}; limited by receivers {:.0} % of the time, by the gateway's buffers \
             {:.0} %; {:.2} % retransmitted",
            half.side,
            rate(bps),
            Duration::from_ns(rtt),
            100.0 * half.receiver_share,
            100.0 * half.buffer_share,
            100.0 * half.retransmitted_share,
        );
    }
    text
}

/// Links of sides that have several, a line each.
fn links(links: &[LinkStatus]) -> String {
    let line = |l: &LinkStatus| {
        let state = match (l.alive, l.answers) {
            (false, _) => "down",
            (true, true) => "up",
            // It has a carrier; no gateway or host behind it answers.
            (true, false) => "up by its carrier only",
        };
        let LinkStatus {
            side,
            interface,
            connections,
            placed,
            ..
        } = l;
        format!("{side} {interface}: {state}, {connections} connections now, {placed} in total\n")
    };
    links.iter().map(line).collect()
}

/// Connections that passed unsplit and were counted, a line each.
fn sampled(all: &[Sampled]) -> String {
    let line = |s: &Sampled| {
        format!(
            "unsplit: {} to {}: {} for {}\n",
            s.client,
            s.server,
            Rate::from_bits_per_second(s.rate_bps),
            Duration::from_ms(s.moving_ms)
        )
    };
    all.iter().map(line).collect()
}

/// What buffers new connections get and why, a line for each path that was measured.
fn buffers(decisions: &[Decision]) -> String {
    let size = |bytes: Option<u64>| {
        bytes.map_or_else(
            || "chosen by the kernel".to_owned(),
            |b| Bytes::new(b).to_string(),
        )
    };
    let line = |d: &Decision| {
        let (sent, received) = (d.sent_bps, d.received_bps);
        format!(
            "{} {}: send buffer {}, receive buffer {} ({}; RTT {}, sent {}, received {})\n",
            d.side,
            d.hosts,
            size(d.send_bytes),
            size(d.receive_bytes),
            d.why,
            Duration::from_us(d.rtt_us),
            Rate::from_bits_per_second(sent),
            Rate::from_bits_per_second(received),
        )
    };
    decisions.iter().map(line).collect()
}

/// The busiest connections, a line each. Where the terminal is narrow, columns are left out.
fn table(status: &Status, width: usize) -> String {
    let heads = HEADS.map(str::to_owned);
    let cells: Vec<[String; 8]> = std::iter::once(heads)
        .chain(status.connections.iter().map(cells))
        .collect();
    let mut lines = Vec::new();
    for left_out in 0..=OPTIONAL.len() {
        let shown: Vec<usize> = (0..HEADS.len())
            .filter(|column| !OPTIONAL[..left_out].contains(column))
            .collect();
        let columns = shown.iter().map(|&column| match column {
            CLIENT | SERVER | LIMITED_BY => Column::words(14),
            _ => Column::numbers(9),
        });
        let mut table = Table::new(columns);
        for row in &cells {
            table.row(shown.iter().map(|&column| row[column].as_str()));
        }
        lines = table.lines();
        if lines.iter().all(|line| line.chars().count() <= width) {
            break;
        }
    }
    let lines = lines.iter().map(|line| format!("{}\n", line.trim_end()));
    lines.collect()
}

fn cells(shown: &Shown) -> [String; 8] {
    let Shown { seen, unsplit_bps } = shown;
    let [there, back] = seen.rate_bps.map(Rate::from_bits_per_second);
    // The side that sends more.
    let to = usize::from(there >= back);
    let rtt = |half: &HalfSeen| Duration::from_us(half.rtt_us).to_string();
    let rate = |bps| Rate::from_bits_per_second(bps).to_string();
    [
        seen.client.to_string(),
        seen.server.to_string(),
        there.to_string(),
        back.to_string(),
        rtt(&seen.halves[1]),
        rtt(&seen.halves[0]),
        held_by(&seen.halves[to]),
        unsplit_bps[1 - to].map_or_else(|| "-".to_owned(), rate),
    ]
}

const HEADS: [&str; 8] = [
    "CLIENT",
    "SERVER",
    "TO SERVER",
    "TO CLIENT",
    "RTT SERVER",
    "RTT CLIENT",
    "LIMITED BY",
    "UNSPLIT ~",
];
const CLIENT: usize = 0;
const SERVER: usize = 1;
const LIMITED_BY: usize = 6;
/// Columns that a narrow terminal lacks, the first to go first: the round trips, then the model.
const OPTIONAL: [usize; 3] = [5, 4, 7];

#[cfg(test)]
mod tests {
    use gateway::view::Seen;
    use report::model::GatewayHalf;

    use super::*;

    fn seen() -> Seen {
        let half = HalfSeen {
            rtt_us: 1_000,
            min_rtt_us: 1_000,
            mss_bytes: 1_448,
            window_bytes: 458_752,
            segments: 10_000,
            acknowledged: 1,
            busy_us: 1_000_000,
            ..HalfSeen::default()
        };
        Seen {
            client: "10.9.1.2:40000".parse().unwrap(),
            server: "10.9.2.2:5001".parse().unwrap(),
            outside: false,
            age_ms: 1_000,
            carried: [1, 0],
            rate_bps: [900_000_000, 0],
            in_pipe: [0, 0],
            halves: [
                half.clone(),
                HalfSeen {
                    min_rtt_us: 49_000,
                    window_limited_us: 400_000,
                    ..half
                },
            ],
        }
    }

    fn whole() -> Status {
        let counts = Counts {
            split: 1_204,
            live: 2,
            ended: 1_190,
            reset: 12,
            bytes_outward: 48_000_000_000,
            bytes_inward: 1_200_000_000,
            held_ns: 1_204 * 51_000_000,
            refused: 3,
            silent: 1,
            bypassed: 17,
            pipes: 6,
            in_pipes: 131_072,
            one_way: 1,
            passed_one_way: 9,
            passed_silent: 2,
            undelivered: 1,
            bytes_undelivered: 2_896,
            acks_held: 1,
            other_port: 4,
            looped: 1,
            sampled: 8,
            copies: 5,
            accept_rests: 1,
            options_refused: 2,
            ..Counts::default()
        };
        let half = |side: &str, rtt_ns| GatewayHalf {
            side: side.to_owned(),
            rtt_ns: Some(rtt_ns),
            acknowledged_bits_per_second: Some(900_000_000),
            receiver_share: 0.25,
            buffer_share: 0.11,
            retransmitted_share: 0.0004,
            ..GatewayHalf::default()
        };
        let mut status = Status::of(counts, vec![seen(), back()]);
        status.sums = Some(Sums {
            carried_bps: Some(900_000_000),
            unsplit_bps: Some(90_000_000),
            gain: Some(10.0),
            halves: vec![half("inside", 1_000_000), half("outside", 50_000_000)],
            ..Sums::default()
        });
        status.links = [(true, true), (true, false), (false, false)]
            .into_iter()
            .zip(["eth1", "eth2", "eth3"])
            .map(|((alive, answers), interface)| LinkStatus {
                side: "outside".to_owned(),
                interface: interface.to_owned(),
                alive,
                answers,
                connections: u64::from(answers) * 2,
                placed: 602,
                answer_ns: 0,
            })
            .collect();
        status.buffers = vec![decision()];
        status.unsplit_samples = vec![Sampled {
            client: seen().client,
            server: seen().server,
            carried: [9_000_000, 0],
            rate_bps: 72_000_000,
            moving_ms: 1_000,
        }];
        status
    }

    /// One that receives, over a short path and without a limit of its own.
    fn back() -> Seen {
        Seen {
            client: "10.9.1.3:50122".parse().unwrap(),
            rate_bps: [1_200, 12_500_000],
            halves: [(); 2].map(|()| HalfSeen {
                rtt_us: 210,
                min_rtt_us: 200,
                busy_us: 1_000_000,
                ..HalfSeen::default()
            }),
            ..seen()
        }
    }

    fn decision() -> Decision {
        Decision {
            side: "outside".to_owned(),
            hosts: "10.9.2.0/24".to_owned(),
            rtt_us: 50_000,
            sent_bps: 937_000_000,
            received_bps: 0,
            send_bytes: Some(12 << 20),
            receive_bytes: None,
            why: "needs 12 MiB".to_owned(),
        }
    }

    #[test]
    fn a_status_as_text() {
        print::golden!("gateway_status", |width| status(&whole(), width));
    }

    #[test]
    fn the_live_view_as_text() {
        print::golden!("gateway_watch", |width| screen(&whole(), width));
    }

    #[test]
    fn checks_as_text() {
        let list = [
            (Level::Fine, "inside: in0 is up, MTU 1500", ""),
            (
                Level::Poor,
                "net.core.rmem_max is 212992: receive buffers stay below the 36 MiB that this path needs",
                "sysctl -w net.core.rmem_max=37748736",
            ),
            (
                Level::Missing,
                "outside: nowhere: No such device",
                "ip link lists the interfaces",
            ),
        ];
        let list = list.map(|(level, what, advice)| Checked {
            level,
            what: what.to_owned(),
            advice: advice.to_owned(),
        });
        print::golden!("gateway_check", |width| checks(&list, width));
    }

    #[test]
    fn a_trial_as_text() {
        let found = serde_json::json!({
            "goodput_bits_per_second": 937_400_000.0,
            "links": [
                {"side": "outside", "link": "out0", "sent_bytes": 1_204_000_000_u64, "received_bytes": 30_500_000},
            ],
            "cut": "out1",
            "certificate": {"trusted": false, "kernel": null},
        });
        print::golden!("gateway_trial", |width| trial(&found, width));
    }

    #[test]
    fn events_as_text() {
        let events = [
            Event::Changes("table inet goodput-gateway-4710".to_owned()),
            Event::NoControlDirectory,
            Event::TookOver { live: 12 },
            Event::Splitting {
                inside: "in0".to_owned(),
                outside: "out0".to_owned(),
            },
            Event::Accepting,
            Event::UpgradeFailed("the new process ended with exit code 2".to_owned()),
            Event::Draining {
                live: 12,
                time: Duration::from_s(30),
            },
        ];
        let text: Vec<String> = events.iter().map(sentence).collect();
        insta::assert_snapshot!("gateway_events", text.join("\n"));
    }

    #[test]
    fn a_connection_is_a_line_with_what_limits_it() {
        let status = Status::of(Counts::default(), vec![seen()]);
        let text = table(&status, 120);
        let line = text.lines().nth(1).unwrap();
        for part in ["10.9.1.2:40000", "900 Mb/s", "receiver 40 %", "73.4 Mb/s"] {
            assert!(line.contains(part), "{part}: {line}");
        }
        let json = serde_json::to_string(&status).unwrap();
        let again: Status = serde_json::from_str(&json).unwrap();
        assert_eq!(table(&again, 120), text);
        // Counts and lists are one object: no name may stand twice.
        let sampled = Sampled {
            client: seen().client,
            server: seen().server,
            carried: [9_000_000, 0],
            rate_bps: 72_000_000,
            moving_ms: 1_000,
        };
        let status = status.with_samples(vec![sampled]);
        let json = serde_json::to_string(&status).unwrap();
        let again: Status = serde_json::from_str(&json).unwrap();
        let line = super::sampled(&again.unsplit_samples);
        assert!(line.contains("10.9.2.2:5001: 72 Mb/s for 1 s"), "{line}");
    }

    #[test]
    fn totals_are_the_gain_and_a_line_for_each_side_that_sent() {
        assert_eq!(totals(None), "");
        let half = |side: &str, rtt_ns| GatewayHalf {
            side: side.to_owned(),
            rtt_ns,
            acknowledged_bits_per_second: Some(900_000_000),
            receiver_share: 0.25,
            ..GatewayHalf::default()
        };
        let mut all = Sums {
            carried_bps: Some(900_000_000),
            halves: vec![half("inside", None), half("outside", Some(50_000_000))],
            ..Sums::default()
        };
        let text = totals(Some(&all));
        assert_eq!(
            text,
            "carried 900 Mb/s while data moved\n\
             outside connections: 900 Mb/s, RTT 50 ms; limited by receivers 25 % of the time, by the gateway's \
             buffers 0 %; 0.00 % retransmitted\n"
        );
        (all.unsplit_bps, all.gain) = (Some(90_000_000), Some(10.0));
        let text = totals(Some(&all));
        let gain = "moved; unsplit about 90 Mb/s by the model: gain 10.0 times\n";
        assert!(text.contains(gain), "{text}");
    }

    #[test]
    fn each_path_has_a_line_with_its_buffers_and_why() {
        let text = buffers(&[decision()]);
        for part in [
            "10.9.2.0/24: send buffer 12 MiB",
            "receive buffer chosen by the kernel",
            "needs 12 MiB; RTT 50 ms",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
