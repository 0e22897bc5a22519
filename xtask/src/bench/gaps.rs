//! `cargo xtask bench gaps`: dynamic gap control beside the kernel's BBR and CUBIC, over twelve paths.
//!
//! Each cell writes a path file and lets `goodput measure` fill it in the lab: by `--pacing auto`, by BBR and by
//! CUBIC, one after the other, so that a machine that grows slower does so for all. Two and four flows by
//! `--pacing auto` follow on two paths. What is told is `phases[].settling` of the run. A lab that fell behind does
//! not count.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;

use super::children;
use super::record::{Machine, Record, Recorder, Row};
use super::table::{self, Table, number};
use super::{Options, run, workspace};

/// One path.
#[derive(Clone, Copy, Debug)]
struct Cell {
    rate_mbit: u64,
    rtt_ms: u64,
    /// Queue, of the product of rate and round trip.
    queue_percent: u64,
    loss: &'static str,
    flows: u64,
}

const fn cell(rate_mbit: u64, rtt_ms: u64, queue_percent: u64, loss: &'static str) -> Cell {
    Cell {
        rate_mbit,
        rtt_ms,
        queue_percent,
        loss,
        flows: 1,
    }
}

const PATHS: [Cell; 16] = [
    cell(50, 10, 100, "0"),
    cell(50, 100, 20, "0"),
    cell(50, 522, 5, "0"),
    cell(100, 20, 50, "0"),
    cell(100, 200, 10, "0"),
    cell(300, 50, 5, "0"),
    cell(1_000, 10, 50, "0"),
    cell(1_000, 100, 10, "0"),
    cell(1_000, 522, 100, "0"),
    cell(100, 100, 20, "0.0001"),
    cell(300, 200, 50, "0.00001"),
    cell(1_000, 100, 10, "0.0001"),
    Cell {
        flows: 2,
        ..cell(100, 20, 50, "0")
    },
    Cell {
        flows: 4,
        ..cell(100, 20, 50, "0")
    },
    Cell {
        flows: 2,
        ..cell(100, 50, 100, "0")
    },
    Cell {
        flows: 4,
        ..cell(100, 50, 100, "0")
    },
];

const WHO: [&str; 3] = ["auto", "bbr", "cubic"];

impl Cell {
    fn name(&self) -> String {
        let Self {
            rate_mbit,
            rtt_ms,
            queue_percent,
            loss,
            flows,
        } = self;
        format!("gaps/{rate_mbit}M/{rtt_ms}ms/queue{queue_percent}/loss{loss}/flows{flows}")
    }

    /// As the guide's table has it.
    fn title(&self) -> String {
        let rate = match self.rate_mbit {
            1_000 => "1 Gb/s".to_owned(),
            n => format!("{n} Mb/s"),
        };
        let queue = match self.queue_percent {
            100 => "1".to_owned(),
            n => format!("0.{n:02}").trim_end_matches('0').to_owned(),
        };
        let loss = match self.loss {
            "0" => "",
            "0.0001" => ", loss 10⁻⁴",
            _ => ", loss 10⁻⁵",
        };
        format!("{rate}, {} ms, queue {queue}{loss}", self.rtt_ms)
    }

    fn path_text(&self) -> String {
        let bdp = self.rate_mbit * 125 * self.rtt_ms;
        // A queue of less than some packets is none.
        let queue = (bdp * self.queue_percent / 100).max(16 * 1538);
        let buffer = (8 * bdp).max(16 << 20);
        let mut text = format!("title = \"{}\"\n", self.name());
        for host in ["near", "far"] {
            text += &format!(
                "[hosts.{host}]\nmtu = 1500\n\
                 tcp_rmem = [\"4KiB\", \"128KiB\", \"{buffer}B\"]\n\
                 tcp_wmem = [\"4KiB\", \"64KiB\", \"{buffer}B\"]\n"
            );
        }
        let loss = match self.loss {
            "0" => String::new(),
            share => format!("forward = {{ loss = {share} }}\n"),
        };
        text + &format!(
            "[links.wan]\nbetween = [\"near\", \"far\"]\nrate = \"{}Mb/s\"\ndelay = \"{}us\"\n\
             queue = \"{queue}B\"\n{loss}",
            self.rate_mbit,
            self.rtt_ms * 500
        )
    }

    fn seconds(&self, quick: bool) -> u64 {
        match (self.flows, quick) {
            (1, false) => (self.rtt_ms / 10).max(6),
            (1, true) => (self.rtt_ms * 3 / 50).max(4),
            (_, false) => 30,
            (_, true) => 10,
        }
    }

    fn measure(&self, program: &Path, quick: bool, to: &mut Recorder) -> anyhow::Result<()> {
        let folder = workspace().join("target/bench/gaps");
        fs::create_dir_all(&folder)?;
        let file = folder.join(format!("{}.toml", self.name().replace('/', "-")));
        fs::write(&file, self.path_text())?;
        let seconds = self.seconds(quick);
        let who: &[&str] = if self.flows == 1 { &WHO } else { &WHO[..1] };
        for who in who {
            let mut command = Command::new(program);
            command
                .arg("measure")
                .arg(format!("lab:{}", file.display()));
            command.args(["--json", "--duration", &format!("{seconds}s")]);
            command.args(["--streams", &self.flows.to_string()]);
            command.args(["--every", &format!("{}ms", (self.rtt_ms / 4).clamp(2, 50))]);
            match *who {
                "auto" => command.args(["--pacing", "auto"]),
                other => command.args(["--congestion", other]),
            };
            command.arg("--runs").arg(folder.join("runs"));
            let limit = Duration::from_secs(60 + 4 * seconds);
            let told = children::json_of(&mut command, limit)?;
            let phase = &told["phases"][0];
            if phase["certificate"]["trusted"].as_bool() == Some(false) {
                to.note(&format!("{who}: the lab fell behind"));
                eprintln!("{}, {who}: the lab fell behind", self.name());
                continue;
            }
            for (key, unit) in KEYS {
                if let Some(value) = phase["settling"][key].as_f64() {
                    to.put(format!("{who}.{key}"), value, unit);
                }
            }
        }
        Ok(())
    }
}

/// What is kept of `phases[].settling`.
const KEYS: [(&str, &str); 8] = [
    ("share", "1"),
    ("reached_round_trips", "1"),
    ("settled_round_trips", "1"),
    ("queue_share", "1"),
    ("queue_share_p95", "1"),
    ("jain", "1"),
    ("part_after_ns", "ns"),
    ("retransmitted", "1"),
];

/// Measures the paths, and keeps rows and table.
pub(crate) fn gaps(options: &Options) -> anyhow::Result<ExitCode> {
    let root = workspace();
    let program = children::program()?;
    let machine = Machine::read(&root);
    let only = options.only.as_deref().unwrap_or_default();
    let mut cells = PATHS.to_vec();
    cells.retain(|cell| only.split(',').any(|name| cell.name().contains(name)));
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { 3 });
    let (mut rows, notes, failed) = run(rounds, &cells, Cell::name, |cell, to, _| {
        cell.measure(&program, options.quick, to)
    });
    let file = match options.quick {
        false => root.join("bench/gaps.json"),
        true => root.join("target/bench/gaps.json"),
    };
    if let Ok(text) = fs::read_to_string(&file) {
        // What was measured of other paths, or of those through which the lab fell behind now, stays.
        let old: Value = serde_json::from_str(&text).context("the rows that were there")?;
        let new: BTreeSet<_> = rows.iter().map(Row::whose).collect();
        let kept: Vec<Row> = rows_of(&old)
            .filter(|r| !new.contains(&r.whose()))
            .collect();
        rows.extend(kept);
    }
    let record = Record::of(machine, rounds, options.quick, notes, rows);
    let text = tables(&record);
    println!("{text}");
    fs::write(&file, record.to_json()?)?;
    if !options.quick {
        let page = root.join("docs/guide/pacing.md");
        let old = fs::read_to_string(&page)?;
        let new = table::put_between(&old, &text, MARKERS).context("the page lacks the markers")?;
        fs::write(page, new)?;
    }
    eprintln!("results: {}", file.display());
    Ok(if failed > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

impl Row {
    /// Cell, and who was measured.
    fn whose(&self) -> (String, String) {
        let who = self.metric.split('.').next().unwrap_or_default();
        (self.cell.clone(), who.to_owned())
    }
}

/// Rows of an earlier record.
fn rows_of(record: &Value) -> impl Iterator<Item = Row> + '_ {
    let rows = record["rows"].as_array().map(Vec::as_slice);
    rows.unwrap_or_default().iter().filter_map(|row| {
        let metric = row["metric"].as_str()?.to_owned();
        let key = metric.split_once('.')?.1;
        let unit = KEYS.iter().find(|(name, _)| *name == key)?.1;
        Some(Row {
            round: u32::try_from(row["round"].as_u64()?).ok()?,
            cell: row["cell"].as_str()?.to_owned(),
            value: row["value"].as_f64()?,
            load: row["load"].as_f64()?,
            unit,
            metric,
        })
    })
}

fn tables(record: &Record) -> String {
    let mut single = Table::new(&["path", "runs", "`auto`", "BBR", "CUBIC"]);
    let mut several = Table::new(&[
        "path",
        "flows",
        "together",
        "queue",
        "Jain's index",
        "last one's part after",
    ]);
    for cell in PATHS {
        let name = cell.name();
        let median = |who: &str, key: &str| record.median(&name, &format!("{who}.{key}"));
        let shown =
            |who: &str, key: &str, scale, decimals| number(median(who, key), scale, decimals);
        if median("auto", "share").is_none() {
            continue;
        }
        if cell.flows > 1 {
            several.row(vec![
                cell.title(),
                cell.flows.to_string(),
                shown("auto", "share", 0.01, 1) + " %",
                shown("auto", "queue_share", 0.01, 1) + " %",
                shown("auto", "jain", 1.0, 2),
                shown("auto", "part_after_ns", 1e9, 1) + " s",
            ]);
            continue;
        }
        let of = |who: &str| {
            let mut text = format!(
                "{} %, {} %, ",
                shown(who, "share", 0.01, 1),
                shown(who, "queue_share", 0.01, 1)
            );
            match median(who, "reached_round_trips") {
                Some(rounds) => _ = write!(text, "{rounds:.0}, "),
                None => text += "never, ",
            }
            text + &shown(who, "retransmitted", 1.0, 0)
        };
        let is_run = |row: &&Row| row.cell == name && row.metric == "auto.share";
        let runs = record.rows.iter().filter(is_run).count();
        let mut row = vec![cell.title(), runs.to_string()];
        row.extend(WHO.iter().map(|who| match median(who, "share") {
            Some(_) => of(who),
            None => "-".to_owned(),
        }));
        single.row(row);
    }
    format!(
        "{}\n{}\n{}\n",
        table::head(record),
        single.finish(),
        several.finish()
    )
}

const MARKERS: (&str, &str) = ("<!-- gaps:begin -->", "<!-- gaps:end -->");
