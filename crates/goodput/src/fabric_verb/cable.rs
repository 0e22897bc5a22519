//! `goodput fabric cable`: what a cable of some length needs at its far end, and how far a buffer reaches.

use cluster::length_mm;
use fabric::formula::{self, CableNeeds};
use fabric::link::{Cable, CableKind, Speed, copper_reach_m};
use report::table::{Column, Table};
use serde_json::{Value, json};
use units::{Bytes, Duration};

use super::finding::length;
use super::{float, ns};
use crate::context;
use crate::failure::{self, Failure, Verdict};

/// What `goodput fabric cable` takes.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct CableArgs {
    /// Signalling of a lane: sdr, ddr, qdr, fdr, edr, hdr, ndr or xdr
    #[arg(long, value_name = "SPEED", default_value = "ddr")]
    rate: Speed,
    /// Lanes of signalling, 1, 4, 8 or 12
    #[arg(long, value_name = "N", default_value = "4", value_parser = width)]
    width: u8,
    /// Length of the cable, such as 100m
    #[arg(long, value_name = "LENGTH", value_parser = millimetres)]
    length: u64,
    /// What it is made of
    #[arg(long, value_enum, default_value_t = KindArg::Fibre)]
    kind: KindArg,
    /// Virtual lanes for data that share the port's buffer
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=15))]
    lanes: u8,
    /// The port's buffer; without it, what is needed is said and no more
    #[arg(long, value_name = "SIZE")]
    buffer: Option<Bytes>,
    /// Payload of a packet
    #[arg(long, value_name = "BYTES", default_value = "2048", value_parser = mtu)]
    mtu: u32,
    /// What the far end takes from a packet's end until its credit leaves: switch, bus, issue
    #[arg(long, value_name = "TIME", default_value = "600ns")]
    fix: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum KindArg {
    Copper,
    Fibre,
}

fn millimetres(text: &str) -> Result<u64, String> {
    length_mm(text).ok_or_else(|| "expected a length such as 100m, 0.5m or 2km".to_owned())
}

fn width(text: &str) -> Result<u8, String> {
    let width = text
        .parse()
        .ok()
        .filter(|w| matches!(w, 1 | 2 | 4 | 8 | 12));
    width.ok_or_else(|| "expected 1, 2, 4, 8 or 12".to_owned())
}

fn mtu(text: &str) -> Result<u32, String> {
    let mtu = text
        .parse()
        .ok()
        .filter(|m| matches!(m, 256 | 512 | 1024 | 2048 | 4096));
    mtu.ok_or_else(|| "expected 256, 512, 1024, 2048 or 4096".to_owned())
}

pub(super) fn command(args: &CableArgs) -> Verdict {
    if args.json {
        context::print_json(&facts(args)?)?;
    } else {
        context::print(&text(args, &Answer::new(args)?))?;
    }
    Ok(failure::DONE)
}

/// What follows from what was typed.
struct Answer {
    needs: CableNeeds,
    /// Room of a lane that one packet takes.
    packet: u64,
    /// Packets that a lane has room for, where the buffer is known.
    has: Option<u32>,
    /// By signalling: packets needed, and how far the buffer lasts.
    speeds: Vec<(Speed, u32, Option<u64>)>,
}

impl Answer {
    fn new(args: &CableArgs) -> Result<Self, Failure> {
        let fix_ps = args.fix.as_ns().saturating_mul(1_000);
        if fix_ps > fabric::spec::DELAY_MAX_PS {
            let problem = anyhow::anyhow!("--fix may be 10 ms at most");
            return Err(Failure::usage(problem));
        }
        let kind = match args.kind {
            KindArg::Copper => CableKind::Copper,
            KindArg::Fibre => CableKind::Fibre,
        };
        let cable = Cable {
            kind,
            length_mm: args.length,
            rated: None,
            electronics_ps: 0,
        };
        let needs = |speed| formula::cable_needs(speed, args.width, &cable, args.mtu, fix_ps);
        let own = needs(args.rate);
        // Counted in whole packets of whole blocks.
        let packet = own.lane_bytes / u64::from(own.packets.max(1));
        let share = |b: Bytes| b.as_u64() / u64::from(args.lanes) / packet.max(1);
        let has = args
            .buffer
            .map(|b| u32::try_from(share(b)).unwrap_or(u32::MAX));
        let reach = |speed, n| formula::reach_mm(speed, args.width, kind, args.mtu, fix_ps, n);
        let of = |speed| {
            (
                speed,
                needs(speed).packets,
                has.and_then(|n| reach(speed, n)),
            )
        };
        Ok(Self {
            needs: own,
            packet,
            has,
            speeds: Speed::ALL.into_iter().map(of).collect(),
        })
    }
}

/// The same as JSON.
pub(super) fn facts(args: &CableArgs) -> Result<Value, Failure> {
    let Answer {
        needs,
        packet,
        has,
        speeds,
    } = Answer::new(args)?;
    let goodput = has.map(|n| super::bits(formula::with_packets(&needs, args.mtu, n)));
    let rows = speeds.iter().map(|(speed, packets, reach)| {
        json!({
            "speed": speed.name(),
            "lane_buffer_bytes": u64::from(*packets) * packet,
            "reach_mm": reach,
            "copper_reach_m": copper_reach_m(*speed, args.width),
        })
    });
    Ok(json!({
        "speed": args.rate.name(),
        "width": args.width,
        "length_mm": args.length,
        "delay_ns": ns(needs.delay_ps),
        "round_ns": ns(needs.round_ps),
        "payload_bits_per_second": super::bits(needs.payload_bytes_per_second),
        "in_flight_bytes": needs.in_flight_bytes,
        "packets": needs.packets,
        "lane_buffer_bytes": needs.lane_bytes,
        "port_buffer_bytes": needs.lane_bytes * u64::from(args.lanes),
        "beyond_credits": needs.beyond_credits,
        "lane_packets": has,
        "goodput_bits_per_second": goodput,
        "copper_reach_m": copper_reach_m(args.rate, args.width),
        "speeds": rows.collect::<Vec<_>>(),
    }))
}

fn lanes(n: u8) -> String {
    match n {
        1 => "1 lane".to_owned(),
        n => format!("{n} lanes"),
    }
}

/// With how many lanes the buffer is enough, by the subnet manager's code.
fn fewer_lanes(buffer: Bytes, needs: &CableNeeds, packet: u64) -> String {
    let enough = |n: u8| buffer.as_u64() / u64::from(n) / packet.max(1) >= needs.packets.into();
    let codes = [(4, 8), (3, 4), (2, 2), (1, 1)];
    match codes.into_iter().find(|(_, n)| enough(*n)) {
        Some((code, n)) => format!(
            "With {} it is enough: set max_op_vls to {code} in the subnet manager\n",
            lanes(n)
        ),
        None => format!(
            "One lane that has all of it is too short as well: {} B are needed, or a shorter cable\n",
            needs.lane_bytes
        ),
    }
}

fn text(args: &CableArgs, answer: &Answer) -> String {
    let Answer {
        needs,
        packet,
        has,
        speeds,
    } = answer;
    let (data, of) = args.rate.code();
    let us = |ps: u64| float(ps) / 1e6;
    let mut out = format!(
        "{}X {}: {} lanes x {} x {data}/{of} ({}) = {:.3} GB/s on the wire, {:.1} MB/s of payload in packets of {} B\n\
         Cable: {} of {} = {:.3} us one way\n\
         Credits for a packet are back after {:.3} us = {:.3} on the wire + 2 x {:.3} of cable + {:.3} at the far end\n\
         In that time {} B are on their way: a lane needs room for {} packets = {} B, {} {} B\n",
        args.width,
        args.rate,
        args.width,
        args.rate.signalling(),
        args.rate.code_name(),
        1_000.0 / args.rate.byte_time(args.width).as_f64(),
        needs.payload_bytes_per_second / 1e6,
        args.mtu,
        length(args.length),
        match args.kind {
            KindArg::Copper => "copper",
            KindArg::Fibre => "fibre",
        },
        us(needs.delay_ps),
        us(needs.round_ps),
        us(needs.packet_ps),
        us(needs.delay_ps),
        us(needs.round_ps - needs.packet_ps - 2 * needs.delay_ps),
        needs.in_flight_bytes,
        needs.packets,
        needs.lane_bytes,
        lanes(args.lanes),
        needs.lane_bytes * u64::from(args.lanes),
    );
    if needs.beyond_credits {
        out += "That is more than credits can count: 2048 blocks of 64 B a lane.\n";
    }
    if let (Some(buffer), Some(has)) = (args.buffer, *has) {
        let rate = formula::with_packets(needs, args.mtu, has);
        out += &format!(
            "A port's buffer of {buffer} shared by {} has room for {has} packets a lane: {has} x {} B / {:.3} us, \
             at most the link's = {:.1} MB/s\n",
            lanes(args.lanes),
            args.mtu,
            us(needs.round_ps),
            rate / 1e6
        );
        if has < needs.packets {
            out += &fewer_lanes(buffer, needs, *packet);
        }
    }
    let reach = copper_reach_m(args.rate, args.width);
    if args.kind == KindArg::Copper {
        out += &match reach {
            Some(m) if args.length <= m * 1_000 => format!("Passive copper reaches {m} m.\n"),
            Some(m) => format!("Passive copper reaches {m} m only: fibre or an active cable.\n"),
            None => "How far passive copper reaches at this rate is not in the table.\n".to_owned(),
        };
    }
    let mut rows = Table::new([
        Column::words(5),
        Column::numbers(14),
        Column::numbers(12),
        Column::numbers(12),
    ]);
    rows.row(["", "needs a lane", "buffer lasts", "copper"]);
    for (speed, packets, reach) in speeds {
        rows.row([
            speed.to_string(),
            format!("{} B", u64::from(*packets) * packet),
            reach.map_or_else(|| "–".to_owned(), |mm| format!("{} m", mm / 1_000)),
            copper_reach_m(*speed, args.width).map_or_else(|| "–".to_owned(), |m| format!("{m} m")),
        ]);
    }
    out.push('\n');
    for line in rows.lines() {
        out += line.trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(typed: &str) -> String {
        use clap::Parser;
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: CableArgs,
        }
        let words = std::iter::once("cable").chain(typed.split(' '));
        let args = Line::parse_from(words).args;
        text(&args, &Answer::new(&args).unwrap())
    }

    #[test]
    fn a_buffer_that_is_too_small_is_told_with_the_lanes_for_which_it_is_enough() {
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
            ("4KiB --lanes 8", "6336 B are needed"),
        ] {
            let said = said(&format!("{ddr} {typed}"));
            assert!(said.contains(says), "{said}");
        }
        let enough = said(&format!("{ddr} 64KiB --lanes 8"));
        assert!(!enough.contains("enough"), "{enough}");
    }

    #[test]
    fn copper_is_spoken_of_where_the_cable_is_copper() {
        let long = "--rate ddr --length 12m";
        assert!(!said(long).contains("Passive"));
        assert!(said(&format!("{long} --kind copper")).contains("10 m only"));
        assert!(said(long).contains(", 1 lane "));
    }
}
