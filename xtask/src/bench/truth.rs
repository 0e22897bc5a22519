//! `cargo xtask bench truth`: does `explain` name the limit that was planted?
//!
//! Connections are made in the lab, each with a limit of a known kind and everything else drawn at random
//! (round trip, rate, queue, buffers, off-loads, congestion control), captured at both hosts and judged from
//! the packets alone. So is what a mirror port would have shown: the capture of one of them with second copies of packets
//! and one in a hundred missing. Shown are how often the verdict names the planted limit, what it names
//! otherwise, how confidence goes with being right, and whether counts agree with the kernel's own of the same
//! connection.

mod dialogue;
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "as drawn"
)]
mod judged;
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "drawn numbers are positive and far below 2^52"
)]
mod plan;
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "as drawn"
)]
mod transfer;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wire::tcp_info::TcpInfo;

use super::table::{self, Table};
use super::{Options, workspace};
use judged::Judged;
use plan::{Class, Kind, Plan};

/// One connection as it is kept.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Row {
    name: String,
    kind: String,
    planted: String,
    /// At each of [`ENDS`]; empty where the verdict names nothing.
    found: [String; 3],
    confidence: [f64; 3],
    shares: [String; 3],
    /// Ends where what was planted does not show.
    #[serde(default)]
    hidden: [bool; 3],
    parameters: String,
    /// Why the kernel's own counters say that it was not planted; empty where they do not.
    #[serde(default)]
    not_planted: String,
    /// Packets that the captures missed.
    missed: u64,
    kernel: BTreeMap<String, u64>,
    /// Ours of the sender's capture.
    ours: BTreeMap<String, u64>,
    /// Round trips at the sender by us and by tshark; absent where tshark was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    round_trips: Option<RoundTrips>,
}

/// What `goodput explain --observer tshark` says of the round trips of a capture's largest connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
struct RoundTrips {
    /// Ours and tshark's.
    samples: [u64; 2],
    min_ns: [u64; 2],
    median_ns: [u64; 2],
    /// By the rule of `explain`: the least the same to a microsecond, the median to an eighth or 10 us.
    agrees: bool,
}

/// Makes connections of every kind, or judges those of an earlier run again, and writes what was found.
pub(crate) fn truth(options: &Options) -> anyhow::Result<ExitCode> {
    let root = workspace();
    let draws = options
        .rounds
        .unwrap_or(if options.quick { 1 } else { DRAWS });
    let seed = options.seed.unwrap_or(SEED);
    let folder = root.join(format!("target/bench/truth/{seed}"));
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let only = options.only.as_deref().unwrap_or_default();
    let kinds = Kind::ALL
        .iter()
        .copied()
        .filter(|kind| kind.name().contains(only));
    let mut rows = Vec::new();
    for number in 0..draws {
        for kind in kinds.clone() {
            let plan = Plan::draw(kind, number, seed);
            match one(&plan, &folder, seed, options.again) {
                Ok(row) => {
                    eprintln!("{}", line(&row));
                    rows.push(row);
                }
                Err(error) => eprintln!("{}: failed: {error:#}", plan.name),
            }
        }
    }
    ensure!(!rows.is_empty(), "nothing was judged");
    let text = render(&rows, seed, draws);
    println!("{text}");
    let whole =
        !options.quick && options.only.is_none() && !options.again && options.seed.is_none();
    let file = match whole {
        true => root.join("bench/truth.json"),
        false => folder.join("rows.json"),
    };
    // A line each, so that one change is one line.
    let lines: Result<Vec<String>, _> = rows.iter().map(serde_json::to_string).collect();
    fs::write(&file, format!("[\n{}\n]\n", lines?.join(",\n")))?;
    if whole {
        let page = root.join("docs/guide/limits.md");
        let old = fs::read_to_string(&page)?;
        let new = table::put_between(&old, &text, MARKERS).context("the page lacks the markers")?;
        fs::write(page, new)?;
    }
    eprintln!("results: {}", file.display());
    Ok(ExitCode::SUCCESS)
}

/// Makes one connection, or takes the one that was made, and judges its captures.
fn one(plan: &Plan, folder: &Path, seed: u64, again: bool) -> anyhow::Result<Row> {
    let kept = folder.join(format!("{}.json", plan.name));
    let mut row = if again {
        serde_json::from_str(&fs::read_to_string(&kept)?)?
    } else {
        let made = transfer::make(plan, folder, seed)?;
        Row {
            name: plan.name.clone(),
            kind: plan.kind.name().into(),
            planted: plan.kind.class().name().into(),
            parameters: parameters(plan),
            missed: made.missed,
            kernel: match plan.is_dialogue() || plan.cut.is_some() {
                // Of one side, and of a path that loses what it has sent.
                true => BTreeMap::new(),
                false => kernel(&made.info),
            },
            ..Row::default()
        }
    };
    row.not_planted = not_planted(plan, &row.kernel).unwrap_or_default();
    let file = |end: &str| folder.join(format!("{}-{end}.pcapng", plan.name));
    let mut dice = plan::Dice::new(seed, 96, plan.rtt.as_ns());
    // Of what is about one side's packets, at that side; otherwise at either.
    let about = plan.is_about();
    let mirrored = match plan.is_broken() {
        true => about,
        false => usize::from(dice.coin()),
    };
    judged::mirror(&file(ENDS[mirrored]), &file(ENDS[2]), &mut dice)?;
    for (n, end) in ENDS.iter().enumerate() {
        row.hidden[n] = plan.kind == Kind::BlackHole && n == 1 - about;
        let judged = match judged::judge(&file(end)) {
            Ok(judged) => judged,
            // No data came so far.
            Err(_) if row.hidden[n] => continue,
            Err(e) => return Err(e),
        };
        row.found[n] = judged.found.map_or("", Class::name).into();
        row.confidence[n] = judged.confidence;
        row.shares[n] = judged.line();
        if n == 0 {
            row.ours = counts(&judged);
            row.round_trips = beside_tshark(&file(end), &folder.join("runs"))?;
        }
    }
    fs::write(&kept, serde_json::to_string(&row)?)?;
    Ok(row)
}

/// Has the program, where it is built, compare a capture's round trips with those of tshark, where that is
/// installed.
fn beside_tshark(capture: &Path, runs: &Path) -> anyhow::Result<Option<RoundTrips>> {
    let built = workspace().join("target/release/goodput");
    let program = std::env::var_os("GOODPUT").map_or(built, PathBuf::from);
    let has_tshark = || Command::new("tshark").arg("--version").output().is_ok();
    if !program.exists() || !has_tshark() {
        return Ok(None);
    }
    let mut asked = Command::new(program);
    asked.args(["explain", "--spacing", "--observer", "tshark", "--json"]);
    let told = asked.arg("--runs").arg(runs).arg(capture).output()?;
    let run: Value = serde_json::from_slice(&told.stdout).with_context(|| {
        let said = String::from_utf8_lossy(&told.stderr);
        format!("explaining {}: {said}", capture.display())
    })?;
    Ok(round_trips(&run))
}

/// Of the connection with the most samples: the others are control connections.
fn round_trips(run: &Value) -> Option<RoundTrips> {
    let all = run.pointer("/trace/observer/round_trips")?.as_array()?;
    let count = |r: &Value| r.pointer("/ours/samples").and_then(Value::as_u64);
    let most = all.iter().max_by_key(|r| count(r))?;
    let both = |key: &str| ["ours", "theirs"].map(|who| most[who][key].as_u64().unwrap_or(0));
    Some(RoundTrips {
        samples: both("samples"),
        min_ns: both("min_ns"),
        median_ns: both("median_ns"),
        agrees: most["agrees"] == true,
    })
}

fn parameters(plan: &Plan) -> String {
    let mut text = format!(
        "{} {} queue {} {}{}",
        plan.rtt,
        plan.rate,
        plan.queue,
        plan.congestion,
        if plan.offloads { " off-loads" } else { "" }
    );
    for (name, buffer) in ["wmem", "rmem"].iter().zip(plan.buffers) {
        if let Some(buffer) = buffer {
            let _ = write!(text, " {name} {buffer}");
        }
    }
    for (name, value) in [
        ("paced", plan.pacing.map(|r| r.to_string())),
        ("reads", plan.reads.map(|r| r.to_string())),
    ] {
        if let Some(value) = value {
            let _ = write!(text, " {name} {value}");
        }
    }
    if plan.sends != plan::Sends::Bulk {
        let _ = write!(text, " {:?}", plan.sends);
    }
    let _ = write!(text, " {}", plan.link.trim());
    text.trim().to_owned()
}

fn kernel(info: &TcpInfo) -> BTreeMap<String, u64> {
    let wanted = |name: &&str| KERNEL.contains(name);
    let fields = info.fields().filter(|(name, _)| wanted(name));
    fields
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// What shows that something else held the connection, by the kernel's counters: explain has no part in it.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn not_planted(plan: &Plan, kernel: &BTreeMap<String, u64>) -> Option<String> {
    if plan.is_dialogue() || plan.cut.is_some() {
        return None;
    }
    let of = |name: &str| kernel.get(name).copied().unwrap_or(0) as f64;
    let busy = of("busy_time_us").max(1.0);
    let carried = of("bytes_acked") * 8e6 / busy / plan.rate.as_bits_per_second() as f64;
    let windowed = of("rwnd_limited_us") / busy;
    match plan.kind.class() {
        Class::Bottleneck if carried < 0.7 => Some(format!("{:.0} % of the rate", carried * 100.0)),
        Class::Loss | Class::ReceiveWindow | Class::SendWindow | Class::Pacing if carried > 0.7 => {
            Some(format!("{:.0} % of the rate", carried * 100.0))
        }
        Class::ReceiveWindow | Class::SlowReader if windowed < 0.5 => Some(format!(
            "the window held it {:.0} % of the time",
            windowed * 100.0
        )),
        Class::Loss if windowed > 0.3 => Some(format!(
            "the window held it {:.0} % of the time",
            windowed * 100.0
        )),
        Class::Loss if of("total_retrans_segments") < 3.0 => Some("hardly a loss".to_owned()),
        _ => None,
    }
}

fn counts(judged: &Judged) -> BTreeMap<String, u64> {
    let side = &judged.connection.sides[judged.sender];
    [
        ("unique_bytes", side.unique_bytes),
        ("payload_bytes", side.payload_bytes),
        ("acked_bytes", side.acked_bytes),
        ("data_packets", side.data_segments),
        ("wire_segments", side.wire_segments),
        ("retransmitted_bytes", side.retransmissions.bytes()),
        ("retransmitted_packets", side.retransmissions.segments()),
        ("timeouts", side.retransmissions.timeout.segments),
        (
            "rtt_min_us",
            side.rtt_ahead.map_or(0, |rtt| rtt.as_ns() / 1_000),
        ),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

impl Row {
    /// The verdict at this end is the planted limit.
    fn is_right(&self, end: usize) -> bool {
        let found = &*self.found[end];
        // An application that pauses within its messages and one that pauses before them are one.
        let thinks = ["application", "client"];
        found == self.planted || thinks.contains(&found) && thinks.contains(&&*self.planted)
    }
}

fn line(row: &Row) -> String {
    let end = |n: usize| {
        let mark = match (row.hidden[n], row.is_right(n)) {
            (true, _) => "--",
            (_, true) => "ok",
            (_, false) => "NO",
        };
        let found = &row.found[n];
        format!(
            "{mark} {found} {:.0} % ({})",
            row.confidence[n] * 100.0,
            row.shares[n]
        )
    };
    format!(
        "{:18} {}{} | {} | {} | {}",
        row.name,
        match &*row.not_planted {
            "" => String::new(),
            why => format!("{why} | "),
        },
        end(0),
        end(1),
        end(2),
        row.parameters
    )
}

fn render(all: &[Row], seed: u64, draws: u32) -> String {
    let mut text = String::new();
    let rows: Vec<&Row> = all.iter().filter(|r| r.not_planted.is_empty()).collect();
    let mut table = Table::new(&["planted", "near", "far", "mirror port", "taken for"]);
    let seen = |r: &&&Row, n: usize| !r.hidden[n];
    for kind in Kind::ALL {
        let of_kind: Vec<&&Row> = rows.iter().filter(|r| r.kind == kind.name()).collect();
        if of_kind.is_empty() {
            continue;
        }
        let mut cells = vec![kind.name().to_owned()];
        let mut wrong: BTreeMap<&str, u32> = BTreeMap::new();
        for n in 0..ENDS.len() {
            let seen: Vec<_> = of_kind.iter().filter(|r| seen(r, n)).collect();
            let right = seen.iter().filter(|r| r.is_right(n)).count();
            for row in seen.iter().filter(|r| !r.is_right(n)) {
                let found = match &*row.found[n] {
                    "" => "nothing",
                    found => found,
                };
                *wrong.entry(found).or_default() += 1;
            }
            cells.push(format!("{right} of {}", seen.len()));
        }
        let wrong = wrong.iter().map(|(found, n)| format!("{n} {found}"));
        cells.push(wrong.collect::<Vec<_>>().join(", "));
        table.row(cells);
    }
    let judged: Vec<(f64, bool, bool)> = rows
        .iter()
        .flat_map(|r| {
            (0..ENDS.len())
                .filter(|n| !r.hidden[*n])
                .map(move |n| (r, n))
        })
        .map(|(r, n)| (r.confidence[n], r.is_right(n), r.found[n].is_empty()))
        .collect();
    let share = |n: usize| 100.0 * n as f64 / judged.len() as f64;
    let right = judged.iter().filter(|j| j.1).count();
    let sure = judged.iter().filter(|j| !j.1 && !j.2 && j.0 > SURE).count();
    let _ = writeln!(
        text,
        "\nOf {} captures {right} right ({:.1} %), {sure} wrong with a confidence above 80 % ({:.1} %).\n",
        judged.len(),
        share(right),
        share(sure)
    );
    text += &table.finish();
    text += &reliability(&judged);
    text += &agreement(all);
    let missed = all.len() - rows.len();
    let _ = writeln!(
        text,
        "\nSeed {seed}, {draws} draws of each kind; {missed} not counted, since the kernel's counters show \
         that the planted limit did not hold them."
    );
    text
}

/// How often verdicts of about the same confidence are right, as a table with bars.
fn reliability(judged: &[(f64, bool, bool)]) -> String {
    let mut table = Table::new(&["confidence", "verdicts", "mean", "right", ""]);
    for (low, high) in [
        (0.0, 0.3),
        (0.3, 0.5),
        (0.5, 0.7),
        (0.7, 0.8),
        (0.8, 0.9),
        (0.9, 0.95),
        (0.95, 1.01),
    ] {
        let within = |j: &&(f64, bool, bool)| !j.2 && (low..high).contains(&j.0);
        let of: Vec<_> = judged.iter().filter(within).collect();
        if of.is_empty() {
            continue;
        }
        let n = of.len() as f64;
        let mean = of.iter().map(|j| j.0).sum::<f64>() / n;
        let right = of.iter().filter(|j| j.1).count() as f64 / n;
        table.row(vec![
            format!("{:.0} to {:.0} %", low * 100.0, f64::min(high, 1.0) * 100.0),
            of.len().to_string(),
            format!("{:.0} %", mean * 100.0),
            format!("{:.0} %", right * 100.0),
            "#".repeat(20 * of.iter().filter(|j| j.1).count() / of.len()),
        ]);
    }
    format!(
        "\nConfidence, and how often verdicts with it are right:\n\n{}",
        table.finish()
    )
}

/// How many connections' counts at the sender are the kernel's own to the byte and segment.
fn agreement(rows: &[Row]) -> String {
    let whole = rows
        .iter()
        .filter(|r| r.missed == 0 && !r.kernel.is_empty());
    let whole: Vec<&Row> = whole.collect();
    let equal = |ours: &str, kernels: &dyn Fn(&Row) -> u64| {
        let of = |row: &&&Row| row.ours.get(ours).copied() == Some(kernels(row));
        whole.iter().filter(of).count()
    };
    let of = |name: &'static str| move |row: &Row| row.kernel.get(name).copied().unwrap_or(0);
    // SYN and FIN take a number each.
    let acked = |row: &Row| of("bytes_acked")(row).saturating_sub(2);
    let beside: Vec<RoundTrips> = whole.iter().filter_map(|r| r.round_trips).collect();
    let agree = beside.iter().filter(|r| r.agrees).count();
    let same_least = |r: &&RoundTrips| r.min_ns[0].abs_diff(r.min_ns[1]) <= 1_000;
    let least = beside.iter().filter(same_least).count();
    let tshark = match beside.len() {
        0 => String::new(),
        all => format!(
            "\nRound trips at the sender beside tshark's, of {all} connections: the least the same to a microsecond \
             {least}, that and the median to an eighth {agree}.\n"
        ),
    };
    format!(
        "\nThe same at the sender as the kernel's `tcp_info` says, of {} connections whose captures missed nothing: \
         bytes sent {}, bytes acknowledged {}, bytes sent again {}, segments sent {}.\n{tshark}",
        whole.len(),
        equal("payload_bytes", &of("bytes_sent")),
        equal("acked_bytes", &acked),
        equal("retransmitted_bytes", &of("bytes_retrans")),
        equal("wire_segments", &of("data_segs_out")),
    )
}

/// Whose captures are judged; the last is made of one of the first.
const ENDS: [&str; 3] = ["near", "far", "mirror"];
/// A confidence above which nobody doubts.
const SURE: f64 = 0.8;
/// Draws of each kind.
const DRAWS: u32 = 10;
const SEED: u64 = 20_261_122;
const MARKERS: (&str, &str) = ("<!-- truth:begin -->", "<!-- truth:end -->");
const KERNEL: [&str; 12] = [
    "bytes_acked",
    "bytes_sent",
    "bytes_retrans",
    "data_segs_out",
    "total_retrans_segments",
    "min_rtt_us",
    "busy_time_us",
    "rwnd_limited_us",
    "sndbuf_limited_us",
    "dsack_dups",
    "total_rto",
    "snd_mss_bytes",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_with_most_round_trips_is_the_one_that_counts() {
        let of = |samples: u64, agrees: bool| {
            let one = |n: u64| serde_json::json!({"samples": n, "min_ns": 5, "median_ns": 7});
            serde_json::json!({"ours": one(samples), "theirs": one(samples + 1), "agrees": agrees})
        };
        let run = serde_json::json!({
            "trace": {"observer": {"round_trips": [of(3, false), of(900, true), of(2, false)]}}
        });
        let found = round_trips(&run).unwrap();
        assert_eq!((found.samples, found.agrees), ([900, 901], true));
        assert_eq!((found.min_ns, found.median_ns), ([5, 5], [7, 7]));
        assert_eq!(round_trips(&Value::Null), None);
        let row = Row {
            round_trips: Some(found),
            kernel: BTreeMap::from([("bytes_acked".to_owned(), 2)]),
            ..Row::default()
        };
        assert!(
            agreement(&[row]).contains("of 1 connections: the least the same to a microsecond 1")
        );
        assert!(!agreement(&[Row::default()]).contains("tshark"));
    }
}
