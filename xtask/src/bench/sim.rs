//! `cargo xtask bench sim`: the simulated endpoints beside the kernel's TCP in the lab, over a grid of paths.
//!
//! The lab's side of each cell is measured once for each seed and kept in bench/sim.json; the model's side costs
//! seconds and is made anew at each call. So after a change of the model the table is there at once, and only what is
//! missing, or was measured while the machine was not quiet, takes time. The program is
//! target/release/goodput, or the one that GOODPUT names.
//!
//! The hosts of a lab are threads like any others: where one is kept from its CPU with its socket locked,
//! acknowledgments pile up and a burst follows, which shallow queues do not forgive. So the lab runs at a
//! real-time priority where that is allowed (16 Mb/s became 76, beside a dozen compilers).

mod grid;

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;

use super::children;
use super::table::{self, Table, number};
use super::{Options, workspace};
use grid::{Cell, Compared, LabRow};

/// Runs what is missing of the grid and compares.
pub(crate) fn sim(options: &Options) -> anyhow::Result<ExitCode> {
    let root = workspace();
    let program = children::program()?;
    let folder = root.join("target/bench/sim");
    fs::create_dir_all(&folder)?;
    let kept = root.join("bench/sim.json");
    let mut rows = read(&kept)?;
    let only = options.only.as_deref().unwrap_or_default();
    let mut cells = Cell::all();
    cells.retain(|cell| only.split(',').any(|name| cell.name().contains(name)));
    let mut failed = 0;
    if !options.again {
        for seed in 1..=u64::from(options.rounds.unwrap_or(1)) {
            for cell in &cells {
                let is_it = |r: &LabRow| r.cell == cell.name() && r.seed == seed;
                if rows.iter().any(|r| is_it(r) && cell.counts(r)) {
                    continue;
                }
                eprintln!("{}, seed {seed}", cell.name());
                match measure(&program, cell, seed, options, &folder) {
                    Ok(row) => {
                        rows.retain(|r| !is_it(r));
                        rows.push(row);
                        // At once, so that a run can be broken off.
                        write(&kept, &mut rows)?;
                    }
                    Err(error) => {
                        failed += 1;
                        eprintln!("{}, seed {seed}: failed: {error:#}", cell.name());
                    }
                }
            }
        }
    }
    let compared = |cells: &[Cell]| -> anyhow::Result<Vec<Compared>> {
        let mut all = Vec::new();
        for cell in cells {
            let one = grid::compare(cell, &rows, |cell, row| {
                grid::simulate(&program, cell, row, &folder).map_err(anyhow::Error::msg)
            });
            all.extend(one?);
        }
        Ok(all)
    };
    println!("{}", details(&compared(&cells)?));
    if options.only.is_none() {
        let text = grid::render(&compared(&Cell::all())?);
        println!("{text}");
        let page = root.join("docs/guide/sim.md");
        let old = fs::read_to_string(&page)?;
        let new = table::put_between(&old, &text, MARKERS).context("the page lacks the markers")?;
        fs::write(page, new)?;
    }
    Ok(if failed > 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// One transfer in the lab.
fn measure(
    program: &Path,
    cell: &Cell,
    seed: u64,
    options: &Options,
    folder: &Path,
) -> anyhow::Result<LabRow> {
    let file = folder.join(format!("{}-{seed}.toml", cell.name().replace('/', "-")));
    fs::write(&file, cell.path_text(seed))?;
    let quick = if options.quick { 8 } else { cell.seconds() };
    let seconds = options.time_s.unwrap_or(quick);
    let ramp_s = seconds / 4;
    let mut command = at_real_time(program);
    command.args(["measure", &format!("lab:{}", file.display()), "--json"]);
    command.args(["--duration", &format!("{seconds}s")]);
    command.args(["--ramp", &format!("{ramp_s}s")]);
    command.arg("--runs").arg(folder.join("runs"));
    let limit = Duration::from_secs(120 + 4 * seconds);
    let run = children::json_of(&mut command, limit)?;
    let phase = &run["phases"][0];
    let certificate = &phase["certificate"];
    let count = |from: &Value, key: &str| from[key].as_u64().with_context(|| format!("no {key}"));
    Ok(LabRow {
        cell: cell.name(),
        seed,
        duration_ns: count(phase, "duration_ns")?,
        ramp_ns: count(phase, "ramp_ns")?,
        goodput_bits_per_second: count(phase, "goodput_bits_per_second")?,
        lost_random: count(certificate, "segments_lost_random")?,
        lost_queue: count(certificate, "segments_lost_queue")?,
        trusted: certificate["trusted"] == Value::Bool(true),
        late_p999_ns: count(certificate, "delay_error_p999_ns")?,
        kernel: sys::host::kernel_release(),
        date: jiff::Timestamp::now().to_string(),
    })
}

/// The program, before all that has no real-time priority where `chrt` may ask for one.
fn at_real_time(program: &Path) -> Command {
    let chrt = || {
        let mut command = Command::new("chrt");
        command.args(["--rr", "20"]);
        command
    };
    let mut trial = chrt();
    trial.arg("true").stdin(Stdio::null()).stderr(Stdio::null());
    if trial.status().is_ok_and(|status| status.success()) {
        let mut command = chrt();
        command.arg(program);
        return command;
    }
    Command::new(program)
}

fn read(file: &Path) -> anyhow::Result<Vec<LabRow>> {
    if !file.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("in {}", file.display()))
}

/// In the order of the grid, a row a line, so that one change is one line.
fn write(file: &Path, rows: &mut [LabRow]) -> anyhow::Result<()> {
    let order: Vec<String> = Cell::all().iter().map(Cell::name).collect();
    rows.sort_by_key(|r| (order.iter().position(|name| *name == r.cell), r.seed));
    let lines: Result<Vec<String>, _> = rows.iter().map(serde_json::to_string).collect();
    fs::write(file, format!("[\n{}\n]\n", lines?.join(",\n")))
        .with_context(|| format!("writing {}", file.display()))
}

fn details(all: &[Compared]) -> String {
    let mut table = Table::new(&["cell", "seeds", "lab Mb/s", "sim Mb/s", "sim / lab"]);
    for one in all {
        let mark = if one.agrees() { "" } else { " *" };
        table.row(vec![
            one.cell.name(),
            one.seeds.to_string(),
            number(Some(one.lab), 1e6, 1),
            number(Some(one.sim), 1e6, 1),
            format!("{:.3}{mark}", one.ratio()),
        ]);
    }
    let within = all.iter().filter(|c| c.agrees()).count();
    format!(
        "{}\n{within} of {} cells agree within 10 %.\n",
        table.finish(),
        all.len()
    )
}

const MARKERS: (&str, &str) = ("<!-- sim:begin -->", "<!-- sim:end -->");
