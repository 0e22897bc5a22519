//! `cargo xtask bench sim`: the simulated endpoints beside the kernel's TCP in the lab, over a grid of paths.
//!
//! Each cell writes a path file, lets `goodput measure` fill it in the lab and `goodput sim` in
//! virtual time, and compares goodput from the same second on. The program is target/release/goodput, or the
//! one that GOODPUT names. A cell agrees when both are within 10 %; a lab that fell behind does not count.
//!
//! One transfer under random loss is one draw of many: the lab and the sim draw the same losses for
//! the same packets only as long as both send alike, so that cells with loss are noisy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::children::output_within;
use super::record::{Machine, Record, Recorder};
use super::table::{Table, number};
use super::{Options, run, workspace, write};

/// One path and a congestion control.
#[derive(Clone, Debug)]
struct Cell {
    rtt_ms: u64,
    rate_mbit: u64,
    loss: &'static str,
    queue_percent: u64,
    congestion: &'static str,
    seconds: u64,
}

impl Cell {
    fn all(seconds: u64) -> Vec<Self> {
        let mut cells = Vec::new();
        for rtt_ms in [10, 85, 300] {
            for rate_mbit in [100, 1_000] {
                for loss in ["0", "0.0001", "0.001"] {
                    for queue_percent in [10, 100] {
                        for congestion in ["cubic", "reno", "bbr"] {
                            cells.push(Self {
                                rtt_ms,
                                rate_mbit,
                                loss,
                                queue_percent,
                                congestion,
                                seconds,
                            });
                        }
                    }
                }
            }
        }
        cells
    }

    fn name(&self) -> String {
        let Self {
            rtt_ms,
            rate_mbit,
            loss,
            queue_percent,
            congestion,
            ..
        } = self;
        format!("sim/{rtt_ms}ms/{rate_mbit}M/loss{loss}/queue{queue_percent}/{congestion}")
    }

    fn path_text(&self) -> String {
        let bdp = self.rate_mbit * 125 * self.rtt_ms;
        // A queue of less than some packets is none.
        let queue = (bdp * self.queue_percent / 100).max(16 * 1538);
        let buffer = (8 * bdp).max(16 << 20);
        let mut text = format!("title = \"{}\"\n", self.name());
        for host in ["near", "far"] {
            text += &format!(
                "[hosts.{host}]\nmtu = 1500\ncongestion_control = \"{}\"\n\
                 tcp_rmem = [\"4KiB\", \"128KiB\", \"{buffer}B\"]\n\
                 tcp_wmem = [\"4KiB\", \"64KiB\", \"{buffer}B\"]\n",
                self.congestion
            );
        }
        let loss = match self.loss {
            "0" => String::new(),
            share => format!("loss = {share}\n"),
        };
        text + &format!(
            "[links.wan]\nbetween = [\"near\", \"far\"]\nrate = \"{}Mb/s\"\ndelay = \"{}us\"\n\
             queue = \"{queue}B\"\n{loss}",
            self.rate_mbit,
            self.rtt_ms * 500
        )
    }

    fn measure(&self, program: &Path, to: &mut Recorder) -> anyhow::Result<()> {
        let folder = workspace().join("target/bench/sim");
        fs::create_dir_all(&folder)?;
        let file = folder.join(format!("{}.toml", self.name().replace('/', "-")));
        fs::write(&file, self.path_text())?;
        let (time, ramp) = (
            format!("{}s", self.seconds),
            format!("{}s", self.seconds / 4),
        );
        let runs = folder.join("runs");
        let ask = |verb: &str, path: String| -> anyhow::Result<Value> {
            let mut command = Command::new(program);
            command.args([verb, &path, "--json", "--duration", &time, "--ramp", &ramp]);
            command.arg("--runs").arg(&runs).stdin(Stdio::null());
            let child = command
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()?;
            let text = output_within(child, Duration::from_secs(120 + 4 * self.seconds))?;
            serde_json::from_slice(&text).with_context(|| format!("what {verb} said"))
        };
        let path = file.display().to_string();
        let model = ask("sim", path.clone())?;
        let kernel = ask("measure", format!("lab:{path}"))?;
        let phase = |v: &Value, key: &str| v["phases"][0][key].as_f64();
        let goodput = |v: &Value| phase(v, "goodput_bits_per_second").context("no goodput");
        let trusted = kernel["phases"][0]["certificate"]["trusted"].as_bool();
        ensure!(trusted != Some(false), "the lab fell behind");
        let (sim, lab) = (goodput(&model)?, goodput(&kernel)?);
        to.put("lab.goodput", lab, "bit/s");
        to.put("sim.goodput", sim, "bit/s");
        to.put("sim.of_lab", sim / lab.max(1.0), "1");
        for (who, run) in [("lab", &kernel), ("sim", &model)] {
            if let Some(again) = phase(run, "segments_retransmitted") {
                to.put(format!("{who}.sent_again"), again, "1");
            }
        }
        Ok(())
    }
}

/// Runs the grid.
pub(crate) fn sim(options: &Options) -> anyhow::Result<ExitCode> {
    let root = workspace();
    let built = root.join("target/release/goodput");
    let program = std::env::var_os("GOODPUT").map_or(built, PathBuf::from);
    ensure!(
        program.exists(),
        "there is no {}: build it first (cargo build --release) or name one in GOODPUT",
        program.display()
    );
    let machine = Machine::read(&root);
    let seconds = options.time_s.unwrap_or(if options.quick { 8 } else { 30 });
    let only = options.only.as_deref().unwrap_or_default();
    let mut cells = Cell::all(seconds);
    cells.retain(|cell| only.split(',').any(|name| cell.name().contains(name)));
    let rounds = options.rounds.unwrap_or(1);
    let (rows, notes, failed) = run(rounds, &cells, Cell::name, |cell, to, _| {
        cell.measure(&program, to)
    });
    let record = Record::of(machine, rounds, options.quick, notes, rows);
    println!("{}", table(&record, &cells));
    let written = write(&root, "sim.json", &record, None, ("", ""))?;
    eprintln!("results: {}", written.display());
    Ok(if failed > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn table(record: &Record, cells: &[Cell]) -> String {
    let mut table = Table::new(&[
        "cell",
        "lab Mb/s",
        "sim Mb/s",
        "sim / lab",
        "sent again, lab",
        "sim",
    ]);
    let (mut within, mut all) = (0, 0);
    for cell in cells {
        let name = cell.name();
        let median = |metric: &str| record.median(&name, metric);
        let Some(ratio) = median("sim.of_lab") else {
            continue;
        };
        all += 1;
        within += u32::from((ratio - 1.0).abs() <= WITHIN);
        let shown = |metric: &str, scale, decimals| number(median(metric), scale, decimals);
        table.row(vec![
            name.clone(),
            shown("lab.goodput", 1e6, 1),
            shown("sim.goodput", 1e6, 1),
            number(Some(ratio), 1.0, 3),
            shown("lab.sent_again", 1.0, 0),
            shown("sim.sent_again", 1.0, 0),
        ]);
    }
    format!(
        "{}\n{within} of {all} cells agree within 10 %.\n",
        table.finish()
    )
}

/// What counts as the same.
const WITHIN: f64 = 0.10;
