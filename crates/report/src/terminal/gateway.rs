//! A gateway as text.

use super::{Ink, Page};
use crate::html::gateway::{TALKER_HEADS, half_facts, lines, talker_cells};
use crate::model::Run;
use crate::table::{Column, Table};
use crate::text;

impl Page {
    /// What it gained, both sides' halves, who carried most.
    pub(super) fn gateway(&mut self, run: &Run) {
        for gateway in &run.gateways {
            if !gateway.name.is_empty() {
                let name = self.ink(Ink::Bold, &text::plain(&gateway.name));
                put!(self.out, "{name}\n");
            }
            for line in lines(gateway) {
                put!(self.out, "{}\n", text::plain(&line));
            }
            for half in gateway.halves.iter().take(2) {
                if half.acknowledged_bits_per_second.is_some() {
                    let side = text::plain(&half.side);
                    put!(self.out, "halves {side}: {}\n", half_facts(half));
                }
            }
            if gateway.talkers.is_empty() {
                continue;
            }
            let mut table = Table::new([
                Column::words(20),
                Column::words(20),
                Column::numbers(9),
                Column::numbers(9),
                Column::numbers(15),
                Column::numbers(10),
                Column::numbers(10),
                Column::words(12),
            ]);
            table.row(TALKER_HEADS);
            for talker in gateway.talkers.iter().take(TALKERS_MAX) {
                table.row(talker_cells(talker));
            }
            for line in table.lines() {
                put!(self.out, "{line}\n");
            }
        }
    }
}

/// All that were kept are in run.json.
const TALKERS_MAX: usize = 10;
