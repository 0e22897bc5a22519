//! The model against the kernel: what bench/sim.json keeps of the lab, and the simulation of the same transfers.
//!
//! The model's side is made anew here and is the same on every machine, so the snapshot changes when the model does.
//! `cargo xtask bench sim` writes the table of docs/guide/sim.md from the same rows.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::support::Scratch;
use grid::{Cell, LabRow};

#[allow(dead_code, reason = "the bench uses the rest")]
#[path = "../../../../xtask/src/bench/sim/grid.rs"]
mod grid;

#[test]
fn the_model_and_the_kernel_over_a_grid_of_paths() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = Path::new(env!("CARGO_BIN_EXE_goodput"));
    let kept = fs::read_to_string(root.join("bench/sim.json")).unwrap();
    let rows: Vec<LabRow> = serde_json::from_str(&kept).unwrap();
    let scratch = Scratch::new();
    let folder = scratch.path("sim");
    fs::create_dir_all(&folder).unwrap();
    let mut all = Vec::new();
    let mut text = String::new();
    for cell in Cell::all() {
        let one = grid::compare(&cell, &rows, |cell, row| {
            grid::simulate(program, cell, row, &folder)
        });
        if let Some(one) = one.unwrap() {
            let mark = if one.agrees() { "" } else { " *" };
            let _ = writeln!(
                text,
                "{}: kernel {:.2}, model {:.2}, {:.3}{mark}",
                cell.name(),
                one.lab / 1e6,
                one.sim / 1e6,
                one.ratio()
            );
            all.push(one);
        }
    }
    let table = grid::render(&all);
    insta::assert_snapshot!(text + &table);
    let page = fs::read_to_string(root.join("docs/guide/sim.md")).unwrap();
    assert!(
        page.contains(table.trim_end()),
        "docs/guide/sim.md has another table: cargo xtask bench sim --again"
    );
}
