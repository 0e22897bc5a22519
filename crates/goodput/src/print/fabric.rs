//! What `goodput fabric` prints: a run with its speed, and the buffers that a cable needs.

use std::path::Path;
use std::time::Duration;

use cluster::cable::{Answer, Plan};
use cluster::length;
use fabric::link::{CableKind, copper_reach_m};
use fault::Failure;
use report::model::{FindingRecord, Run};
use report::table::{Column, Table};
use serde_json::{Value, json};
use units::Bytes;

use crate::print;

/// A run, how fast it went, and where its report is.
pub(crate) fn run(
    run: &Run,
    findings: &[FindingRecord],
    folder: &Path,
    wall: Duration,
) -> Result<(), Failure> {
    let (color, width) = (print::color(), print::width());
    let text = report::terminal::summary(run, findings, color, width);
    print::print_colored(&text)?;
    print::print(&speed(run, wall))?;
    print::print_place("Report", &folder.join("report.html"))
}

/// How fast virtual time went.
fn speed(run: &Run, wall: Duration) -> String {
    let Some(fabric) = &run.fabric else {
        return String::new();
    };
    let wall = wall.as_secs_f64().max(1e-9);
    if fabric.packet_hops == 0 {
        return format!("Estimated {} flows in {wall:.2} s\n", fabric.fluid_flows);
    }
    format!(
        "Simulated {} packet-hops in {wall:.2} s: {:.2} M packet-hops/s\n",
        fabric.packet_hops,
        float(fabric.packet_hops) / wall / 1e6
    )
}

/// What a cable needs, as JSON.
pub(crate) fn cable_json(plan: &Plan, answer: &Answer) -> Value {
    let needs = &answer.needs;
    let (payload, goodput) = answer.rates();
    let rows = answer.speeds.iter().map(|at| {
        json!({
            "speed": at.speed.name(),
            "lane_buffer_bytes": at.lane_buffer_bytes,
            "reach_mm": at.reach_mm,
            "copper_reach_m": copper_reach_m(at.speed, plan.width),
        })
    });
    json!({
        "speed": plan.speed.name(),
        "width": plan.width,
        "length_mm": plan.length_mm,
        "delay_ns": float(needs.delay_ps) / 1e3,
        "round_ns": float(needs.round_ps) / 1e3,
        "payload_bits_per_second": payload,
        "in_flight_bytes": needs.in_flight_bytes,
        "packets": needs.packets,
        "lane_buffer_bytes": needs.lane_bytes,
        "port_buffer_bytes": needs.lane_bytes * u64::from(plan.lanes),
        "beyond_credits": needs.beyond_credits,
        "lane_packets": answer.lane_packets,
        "goodput_bits_per_second": goodput,
        "copper_reach_m": copper_reach_m(plan.speed, plan.width),
        "speeds": rows.collect::<Vec<_>>(),
    })
}

fn lanes(n: u8) -> String {
    match n {
        1 => "1 lane".to_owned(),
        n => format!("{n} lanes"),
    }
}

/// With how many lanes the buffer is enough, by the subnet manager's code.
fn fewer_lanes(buffer: Bytes, answer: &Answer) -> String {
    match answer.lanes_enough(buffer) {
        Some((n, code)) => format!(
            "With {} it is enough: set max_op_vls to {code} in the subnet manager",
            lanes(n)
        ),
        None => format!(
            "One lane with all of it is not enough either: it needs {} B, or a shorter cable",
            answer.needs.lane_bytes
        ),
    }
}

/// What a cable needs, as text.
pub(crate) fn cable(plan: &Plan, answer: &Answer, width: usize) -> String {
    let text = sentences(plan, answer);
    let wrapped = |line| print::wrapped(line, 2, width);
    let text: String = text.lines().map(wrapped).collect();
    format!("{text}\n{}", speeds(plan, answer))
}

/// What the cable needs, a sentence a line.
fn sentences(plan: &Plan, answer: &Answer) -> String {
    let needs = &answer.needs;
    let (data, of) = plan.speed.code();
    let us = |ps: u64| float(ps) / 1e6;
    let mut out = format!(
        "{}X {}: {} lanes x {} x {data}/{of} ({}) = {:.3} GB/s on the wire, {:.1} MB/s of payload in packets of {} B\n\
         Cable: {} of {} = {:.3} us one-way delay\n\
         Credits for a packet return after {:.3} us = {:.3} on the wire + 2 x {:.3} of cable + {:.3} at the receiver\n\
         In that time {} B are in flight: a lane needs buffers for {} packets = {} B, {} {} B\n",
        plan.width,
        plan.speed,
        plan.width,
        plan.speed.signalling(),
        plan.speed.code_name(),
        1_000.0 / plan.speed.byte_time(plan.width).as_f64(),
        needs.payload_bytes_per_second / 1e6,
        plan.mtu,
        length(plan.length_mm),
        match plan.kind {
            CableKind::Copper => "copper",
            CableKind::Fibre => "fibre",
        },
        us(needs.delay_ps),
        us(needs.round_ps),
        us(needs.packet_ps),
        us(needs.delay_ps),
        us(needs.round_ps - needs.packet_ps - 2 * needs.delay_ps),
        needs.in_flight_bytes,
        needs.packets,
        needs.lane_bytes,
        lanes(plan.lanes),
        needs.lane_bytes * u64::from(plan.lanes),
    );
    if needs.beyond_credits {
        out += "That exceeds the credit limit: 2048 blocks of 64 B a lane.\n";
    }
    let with_buffer = answer.lane_packets.zip(answer.goodput_bytes_per_second);
    if let (Some(buffer), Some((has, rate))) = (plan.buffer, with_buffer) {
        out += &format!(
            "A port's buffer of {buffer} shared by {} holds {has} packets a lane and carries {:.1} MB/s: \
             {has} x {} B / {:.3} us, at most the link's rate\n",
            lanes(plan.lanes),
            rate / 1e6,
            plan.mtu,
            us(needs.round_ps),
        );
        if has < needs.packets {
            out += &(fewer_lanes(buffer, answer) + "\n");
        }
    }
    let reach = copper_reach_m(plan.speed, plan.width);
    if plan.kind == CableKind::Copper {
        out += &match reach {
            Some(m) if plan.length_mm <= m * 1_000 => format!("Passive copper reaches {m} m.\n"),
            Some(m) => {
                format!("Passive copper reaches {m} m only: use fibre or an active cable.\n")
            }
            None => "The reach of passive copper at this rate is unknown.\n".to_owned(),
        };
    }
    out
}

/// The lane buffer and the reach at each speed.
fn speeds(plan: &Plan, answer: &Answer) -> String {
    let mut rows = Table::new([
        Column::words(5),
        Column::numbers(14),
        Column::numbers(12),
        Column::numbers(12),
    ]);
    rows.row(["", "lane buffer", "buffer reach", "copper reach"]);
    for at in &answer.speeds {
        rows.row([
            at.speed.to_string(),
            format!("{} B", at.lane_buffer_bytes),
            at.reach_mm
                .map_or_else(|| "–".to_owned(), |mm| format!("{} m", mm / 1_000)),
            copper_reach_m(at.speed, plan.width)
                .map_or_else(|| "–".to_owned(), |m| format!("{m} m")),
        ]);
    }
    let lines = rows.lines().into_iter();
    lines.map(|line| format!("{}\n", line.trim_end())).collect()
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
const fn float(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::fabric::CableArgs;

    fn said(typed: &str) -> String {
        let (plan, answer) = answered(typed);
        cable(&plan, &answer, 120)
    }

    fn answered(typed: &str) -> (Plan, Answer) {
        use clap::Parser;
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: CableArgs,
        }
        let words = std::iter::once("cable").chain(typed.split(' '));
        let args = Line::parse_from(words).args;
        let plan = args.plan().unwrap();
        let answer = plan.answer();
        (plan, answer)
    }

    #[test]
    fn a_cable_as_text() {
        let (plan, answer) = answered("--rate ddr --length 100m --lanes 8 --buffer 36KiB");
        print::golden!("fabric_cable", |width| cable(&plan, &answer, width));
        let (plan, answer) =
            answered("--rate ddr --length 12m --kind copper --lanes 8 --buffer 4KiB");
        print::golden!("fabric_cable_short", |width| cable(&plan, &answer, width));
    }

    #[test]
    fn the_speed_of_a_run_is_in_packet_hops_or_flows() {
        use report::model::FabricRun;
        let wall = Duration::from_millis(1_500);
        let of = |packet_hops, fluid_flows| Run {
            fabric: Some(FabricRun {
                packet_hops,
                fluid_flows,
                ..FabricRun::default()
            }),
            ..Run::default()
        };
        assert_eq!(
            speed(&of(3_000_000, 0), wall),
            "Simulated 3000000 packet-hops in 1.50 s: 2.00 M packet-hops/s\n"
        );
        assert_eq!(speed(&of(0, 992), wall), "Estimated 992 flows in 1.50 s\n");
    }

    #[test]
    fn a_buffer_that_is_too_small_has_a_hint_with_the_lanes_for_which_it_is_enough() {
        let ddr = "--rate ddr --length 100m --buffer";
        for (typed, says) in [
            (
                "36KiB --lanes 8",
                "With 4 lanes it is enough: set max_op_vls to 3",
            ),
            (
                "16KiB --lanes 8",
                "With 2 lanes it is enough: set max_op_vls to 2",
            ),
            ("4KiB --lanes 8", "it needs 6336 B"),
        ] {
            let said = said(&format!("{ddr} {typed}"));
            assert!(said.contains(says), "{said}");
        }
        let enough = said(&format!("{ddr} 64KiB --lanes 8"));
        assert!(!enough.contains("enough"), "{enough}");
    }

    #[test]
    fn the_reach_of_copper_is_shown_where_the_cable_is_copper() {
        let long = "--rate ddr --length 12m";
        assert!(!said(long).contains("Passive"));
        assert!(said(&format!("{long} --kind copper")).contains("10 m only"));
        assert!(said(long).contains(", 1 lane "));
    }
}
