//! A gateway as text.

use super::{Ink, Page};
use crate::html::gateway::{TALKER_HEADS, half_facts, lines, talker_cells};
use crate::model::Run;
use crate::table::{Column, Table};
use crate::text;

impl Page {
    /// What it gained, the connections of each side, the connections that carried most.
    pub(super) fn gateway(&mut self, run: &Run) {
        for gateway in &run.gateways {
            if !gateway.name.is_empty() {
                let name = self.ink(Ink::Bold, &text::plain(&gateway.name));
                put!(self.out, "{name}\n");
            }
            for line in lines(gateway) {
                self.wrapped("", &text::plain(&line), Ink::Plain);
            }
            for half in gateway.halves.iter().take(2) {
                if half.acknowledged_bits_per_second.is_some() {
                    let side = text::plain(&half.side);
                    let line = format!("{side} connections: {}", half_facts(half));
                    self.wrapped("", &line, Ink::Plain);
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
                self.line(&line);
            }
        }
    }
}

/// All that were kept are in run.json.
const TALKERS_MAX: usize = 10;
