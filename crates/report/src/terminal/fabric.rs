//! Cases of a modelled fabric as a table.

use super::{POINTS_MAX, Page};
use crate::html::fabric_cells;
use crate::model::Run;
use crate::table::{Column, Table};

impl Page {
    /// A line for each case and transport.
    pub(super) fn fabric(&mut self, run: &Run) {
        let Some(fabric) = run.fabric.as_ref().filter(|f| !f.curves.is_empty()) else {
            return;
        };
        let shown = fabric.curves.iter().take(POINTS_MAX);
        let width = shown.clone().map(|c| c.name.chars().count()).max();
        let mut table = Table::new([
            Column::words(width.unwrap_or(0).clamp(4, 40)),
            Column::numbers(11),
            Column::numbers(11),
            Column::numbers(9),
            Column::numbers(11),
            Column::numbers(9),
        ]);
        table.row([
            "case",
            "goodput",
            "below first",
            "bound by",
            "off formula",
            "latency",
        ]);
        for curve in shown {
            table.row(fabric_cells(curve));
        }
        self.out.push('\n');
        for line in table.lines() {
            self.out.push_str(&line);
            self.out.push('\n');
        }
        self.more(fabric.curves.len(), "case");
    }
}
