//! Pairs that sent at the same time, as text: a heat map of blocks and a table.

use super::{Ink, POINTS_MAX, Page};
use crate::html::rotate::{COUNT_HEADS, Heat, LINK_HEADS, count_cells, link_cells, notes};
use crate::model::{Rotate, Run};
use crate::table::{Column, Table};
use crate::text;

impl Page {
    /// The heat map, a line for each number of ranks, the shared links.
    pub(super) fn rotate(&mut self, run: &Run) {
        let Some(rotate) = run.rotate.as_ref().filter(|r| !r.rounds.is_empty()) else {
            return;
        };
        self.heat_map(rotate);
        self.out.push('\n');
        let mut table = Table::new([5, 8, 6, 10, 10, 10, 10, 10].map(Column::numbers));
        table.row(COUNT_HEADS);
        for count in rotate.counts.iter().take(COUNTS_MAX) {
            table.row(count_cells(count));
        }
        self.rows(&table);
        self.more_than(COUNTS_MAX, rotate.counts.len(), "row");
        if !rotate.links.is_empty() {
            self.out.push('\n');
            let mut table = Table::new([
                Column::words(8),
                Column::words(16),
                Column::numbers(9),
                Column::numbers(10),
                Column::numbers(9),
                Column::numbers(13),
            ]);
            table.row(LINK_HEADS);
            for link in rotate.links.iter().take(LINKS_MAX) {
                table.row(link_cells(link));
            }
            self.rows(&table);
        }
        for note in notes(rotate) {
            self.wrapped("", &text::plain(&note), Ink::Dim);
        }
    }

    fn rows(&mut self, table: &Table) {
        for line in table.lines() {
            self.line(&line);
        }
    }

    fn heat_map(&mut self, rotate: &Rotate) {
        let heat = Heat::of(rotate);
        let wide = 2 * heat.columns.len() + NAME_MAX + 2;
        if heat.cells.is_empty() || heat.rows.len() > POINTS_MAX || wide > self.width {
            return;
        }
        let name = |rank: u32| {
            let at = usize::try_from(rank).unwrap_or(usize::MAX);
            let name = rotate.ranks.get(at).map_or("", String::as_str);
            text::plain(name).chars().take(NAME_MAX).collect::<String>()
        };
        let best = heat.said(heat.best);
        let [quarter, half, three, more] = BLOCKS;
        let legend = format!(
            "from \\ to, a cell for each pair relative to the best ({best}): {quarter} to 1/4, \
             {half} 1/2, {three} 3/4, {more} more"
        );
        self.out.push('\n');
        self.wrapped("", &legend, Ink::Plain);
        for &from in &heat.rows {
            let cells = heat.columns.iter().map(|&to| {
                let block = heat.share(from, to).map_or(' ', block);
                format!("{block}{block}")
            });
            put!(
                self.out,
                "{:>NAME_MAX$}  {}\n",
                name(from),
                cells.collect::<String>()
            );
        }
        if let (Some(&first), Some(&last)) = (heat.columns.first(), heat.columns.last()) {
            put!(
                self.out,
                "{:NAME_MAX$}  {} ... {}\n",
                "",
                name(first),
                name(last)
            );
        }
    }
}

/// A density for a share of the best.
fn block(share: f64) -> char {
    match share {
        s if s <= 0.25 => BLOCKS[0],
        s if s <= 0.5 => BLOCKS[1],
        s if s < 0.75 => BLOCKS[2],
        _ => BLOCKS[3],
    }
}

const BLOCKS: [char; 4] = ['░', '▒', '▓', '█'];
const NAME_MAX: usize = 12;
/// A sweep of `com` over sizes has many: the first are shown.
const COUNTS_MAX: usize = 20;
const LINKS_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn densities_end_at_quarters() {
        let drawn: String = [0.0, 0.25, 0.26, 0.5, 0.51, 0.75, 1.0]
            .map(block)
            .iter()
            .collect();
        assert_eq!(drawn, "░░▒▒▓██");
    }
}
