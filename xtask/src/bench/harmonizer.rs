//! `cargo xtask bench harmonizer`: parallel streams of kernels at a queue, without a Stream Harmonizer, with
//! each of its variants, and without one but held to one ceiling by their sender (`--pacing even`).
//!
//! A cell is a congestion control and a variant; a round is a seed of the box's draws. The order in which the
//! streams start is the threads' own. Runs are kept in target/bench/harmonizer and not made again while
//! they are there, so that the bench can be made in parts; remove the folder to begin anew. A run whose lab
//! fell behind is made once more the next time and does not count.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::children;
use super::record::{Machine, Record, Recorder};
use super::table::{Table, head, number};
use super::{Options, run, workspace, write};

/// A congestion control and a variant.
#[derive(Clone, Copy, Debug)]
struct Cell {
    congestion: &'static str,
    variant: &'static str,
}

impl Cell {
    fn all() -> Vec<Self> {
        let of = |congestion| {
            ["off", "shuffle", "lengthen", "even"].map(|variant| Self {
                congestion,
                variant,
            })
        };
        [of("cubic"), of("reno")].concat()
    }

    fn name(&self) -> String {
        format!("{}-{}", self.congestion, self.variant)
    }

    /// The run of a seed: kept, or made now.
    fn run_of(&self, seed: u32, program: &Path, seconds: u64) -> anyhow::Result<Value> {
        let root = workspace();
        let folder = root.join("target/bench/harmonizer");
        fs::create_dir_all(&folder)?;
        let name = format!("{}-{seed}", self.name());
        let kept = folder.join(&name).join("run.json");
        let read = || -> anyhow::Result<Value> {
            let text = fs::read(&kept).with_context(|| format!("reading {}", kept.display()))?;
            Ok(serde_json::from_slice(&text)?)
        };
        if let Ok(run) = read()
            && is_trusted(&run)
        {
            return Ok(run);
        }
        let built_in = match self.variant {
            "off" | "even" => "lfn-four-streams".to_owned(),
            variant => format!("lfn-four-streams-{variant}"),
        };
        let text = fs::read_to_string(root.join(format!("paths/{built_in}.toml")))?;
        let queue = text
            .lines()
            .find(|line| line.starts_with("queue"))
            .context("the path has no queue")?;
        let seeded = text.replace(queue, &format!("{queue}\nseed = {seed}"));
        let file = folder.join(format!("{name}.toml"));
        fs::write(&file, seeded)?;
        let runs = folder.join("tmp");
        let _ = fs::remove_dir_all(&runs);
        let (time, ramp) = (format!("{seconds}s"), format!("{}s", seconds / 5));
        let mut command = Command::new(program);
        command
            .arg("measure")
            .arg(format!("lab:{}", file.display()))
            .args(["--congestion", self.congestion, "--balance"])
            .args((self.variant == "even").then_some("--pacing=even"))
            .args(["--striped", STRIPED, "--duration", &time, "--ramp", &ramp])
            .arg("--runs")
            .arg(&runs)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        // A lab that fell behind is told by its certificate.
        let _ = command.status()?;
        let made = fs::read_dir(&runs)?.next().context("no run folder")??;
        let _ = fs::remove_dir_all(folder.join(&name));
        fs::rename(made.path(), folder.join(&name))?;
        read()
    }

    fn measure(
        &self,
        program: &Path,
        seconds: u64,
        seed: u32,
        to: &mut Recorder,
    ) -> anyhow::Result<()> {
        let run = self.run_of(seed, program, seconds)?;
        let balance = &run["balance"];
        ensure!(balance["min_to_mean"].is_number(), "the run has no balance");
        ensure!(is_trusted(&run), "the lab fell behind, or its log did");
        let mut put = |metric: &str, value: Option<f64>, unit| {
            if let Some(value) = value {
                to.put(metric, value, unit);
            }
        };
        put("min_to_mean", balance["min_to_mean"].as_f64(), "1");
        put("jain", balance["jain"].as_f64(), "1");
        for (section, name) in [(0, "300ms"), (1, "5ms")] {
            let of = &balance["sections"][section];
            let value = of["min_to_mean_median"].as_f64();
            put(&format!("min_to_mean.{name}"), value, "1");
            put(&format!("jain.{name}"), of["jain_median"].as_f64(), "1");
        }
        put("wire", balance["wire_bits_per_second"].as_f64(), "bit/s");
        let goodput = &run["phases"][0]["goodput_whole_bits_per_second"];
        put("goodput", goodput.as_f64(), "bit/s");
        let striped = balance["striped_ns"].as_f64();
        put("striped", striped.map(|ns| ns / 1e9), "s");
        let apart = balance["first_losses_apart_ns"].as_f64();
        put("losses_apart", apart.map(|ns| ns / 1e6), "ms");
        let reverse = balance["reverse_loss_order"].as_bool();
        put("reverse", reverse.map(|is| f64::from(u8::from(is))), "1");
        let delay = balance["to_queue_max_ns"].as_f64();
        put("delay_max", delay.map(|ns| ns / 1e6), "ms");
        Ok(())
    }
}

/// Whether lab and log kept up.
fn is_trusted(run: &Value) -> bool {
    run["phases"][0]["certificate"]["trusted"] == true && run["balance"]["log_missing"] == 0
}

/// Runs what is missing and writes the table.
pub(crate) fn harmonizer(options: &Options) -> anyhow::Result<ExitCode> {
    let root = workspace();
    let program = children::program()?;
    let machine = Machine::read(&root);
    let seconds = options.time_s.unwrap_or(SECONDS);
    let only = options.only.as_deref().unwrap_or_default();
    let mut cells = Cell::all();
    cells.retain(|cell| cell.name().contains(only));
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { 5 });
    let (rows, notes, failed) = run(rounds, &cells, Cell::name, |cell, to, seed| {
        cell.measure(&program, seconds, seed, to)
    });
    let record = Record::of(machine, rounds, options.quick, notes, rows);
    let tables = format!("{}\n\n{}", head(&record), table(&record, &cells));
    println!("{tables}");
    let whole = !options.quick && only.is_empty();
    let written = write(
        &root,
        "harmonizer.json",
        &record,
        whole.then_some(&*tables),
        ("<!-- harmonizer:begin -->", "<!-- harmonizer:end -->"),
    )?;
    eprintln!("results: {}", written.display());
    Ok(if failed > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Medians of the rounds, and how far they reach.
fn table(record: &Record, cells: &[Cell]) -> String {
    let mut table = Table::new(&[
        "CC, box",
        "runs",
        "min/mean, median (least)",
        "of 300 ms",
        "of 5 ms",
        "Jain",
        "payload Mb/s",
        "of off",
        "striped 1 GB, s",
        "not in time",
        "first losses apart, ms",
        "reverse order",
        "longest in box, ms",
    ]);
    for cell in cells {
        let name = cell.name();
        let of = |metric: &str| -> Vec<f64> {
            let rows = record.rows.iter();
            rows.filter(|r| r.cell == name && r.metric == metric)
                .map(|r| r.value)
                .collect()
        };
        let runs = of("min_to_mean");
        if runs.is_empty() {
            continue;
        }
        let median = |metric: &str| record.median(&name, metric);
        let least = runs.iter().copied().min_by(f64::total_cmp);
        let off = record.median(&format!("{}-off", cell.congestion), "goodput");
        let ratio = median("goodput").zip(off).map(|(on, off)| on / off);
        let reverse: f64 = of("reverse").iter().sum();
        table.row(vec![
            name.replace('-', ", "),
            runs.len().to_string(),
            format!(
                "{} ({})",
                number(median("min_to_mean"), 1.0, 2),
                number(least, 1.0, 2)
            ),
            number(median("min_to_mean.300ms"), 1.0, 2),
            number(median("min_to_mean.5ms"), 1.0, 2),
            number(median("jain"), 1.0, 2),
            number(median("goodput"), 1e6, 0),
            number(ratio, 1.0, 3),
            number(median("striped"), 1.0, 1),
            (runs.len() - of("striped").len()).to_string(),
            number(median("losses_apart"), 1.0, 0),
            format!("{reverse:.0}"),
            number(median("delay_max"), 1.0, 1),
        ]);
    }
    table.finish()
}

/// Long enough for slow start's losses and what follows from them.
const SECONDS: u64 = 25;
/// A file that is striped over the four streams.
const STRIPED: &str = "1GB";
