//! `cargo xtask bench truth`: does `explain` name the limit that was planted?
//!
//! Connections are made in the lab, each with a limit of a known kind and everything else drawn at random
//! (round trip, rate, queue, buffers, off-loads, congestion control), captured at both hosts and judged from
//! the packets alone. Told are how often the planted limit had the largest share of time, what it was taken
//! for where it had not, and whether counts agree with the kernel's own of the same connection.

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
    /// At the sender, at the receiver.
    found: [String; 2],
    share: [f64; 2],
    shares: [String; 2],
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
            kernel: kernel(&made.info),
            ..Row::default()
        }
    };
    row.not_planted = not_planted(plan, &row.kernel).unwrap_or_default();
    for (n, end) in ["near", "far"].iter().enumerate() {
        let judged = judged::judge(&folder.join(format!("{}-{end}.pcapng", plan.name)))?;
        row.found[n] = judged.class().name().into();
        row.share[n] = judged.shares.first().map_or(0.0, |s| s.1);
        row.shares[n] = judged.line();
        if n == 0 {
            row.ours = counts(&judged);
            let capture = folder.join(format!("{}-near.pcapng", plan.name));
            row.round_trips = beside_tshark(&capture, &folder.join("runs"))?;
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

fn line(row: &Row) -> String {
    let mark = |n: usize| {
        if row.found[n] == row.planted {
            "ok"
        } else {
            "NO"
        }
    };
    format!(
        "{:16} {} {} | {}near: {} | far: {} | {}",
        row.name,
        mark(0),
        mark(1),
        match &*row.not_planted {
            "" => String::new(),
            why => format!("{why} | "),
        },
        row.shares[0],
        row.shares[1],
        row.parameters
    )
}

fn render(all: &[Row], seed: u64, draws: u32) -> String {
    let mut text = String::new();
    let rows: Vec<&Row> = all.iter().filter(|r| r.not_planted.is_empty()).collect();
    for (n, end) in ["sender", "receiver"].iter().enumerate() {
        let right = rows.iter().filter(|r| r.found[n] == r.planted).count();
        let all = rows.len();
        let _ = writeln!(
            text,
            "\nCaptured at the {end}: {right} of {all} right ({:.1} %).\n",
            100.0 * right as f64 / all as f64
        );
        let mut header = vec!["planted", "right"];
        header.extend(Class::ALL.iter().map(|c| c.name()));
        let mut table = Table::new(&header);
        for kind in Kind::ALL {
            let of_kind: Vec<&&Row> = rows.iter().filter(|r| r.kind == kind.name()).collect();
            if of_kind.is_empty() {
                continue;
            }
            let count = |name: &str| of_kind.iter().filter(|r| r.found[n] == name).count();
            let mut cells = vec![
                kind.name().to_owned(),
                format!("{} of {}", count(kind.class().name()), of_kind.len()),
            ];
            cells.extend(Class::ALL.iter().map(|c| match count(c.name()) {
                0 => String::new(),
                n => n.to_string(),
            }));
            table.row(cells);
        }
        text += &table.finish();
    }
    text += &agreement(all);
    let missed = all.len() - rows.len();
    let _ = writeln!(
        text,
        "\nSeed {seed}, {draws} draws of each kind; {missed} not counted, since the kernel's counters show \
         that the planted limit did not hold them."
    );
    text
}

/// How many connections' counts at the sender are the kernel's own to the byte and segment.
fn agreement(rows: &[Row]) -> String {
    let whole: Vec<&Row> = rows.iter().filter(|r| r.missed == 0).collect();
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
            ..Row::default()
        };
        assert!(
            agreement(&[row]).contains("of 1 connections: the least the same to a microsecond 1")
        );
        assert!(!agreement(&[Row::default()]).contains("tshark"));
    }
}
