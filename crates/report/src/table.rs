//! Tables of a terminal: columns that are as wide as their widest cell and never touch.
//!
//! Columns have a least width, so that tables of the same kind look alike from run to run. Width is
//! counted in characters: wide ones of East Asian scripts and combining ones are not seen as such.

use units::text::{is_plain, plain};

/// A table under construction: its rows, a heading being one, top down.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    align: Align,
    least: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

impl Column {
    /// Words: they begin below each other. At least so many characters wide.
    pub const fn words(least: usize) -> Self {
        let align = Align::Left;
        Self { align, least }
    }

    /// Numbers: their ends stand below each other.
    pub const fn numbers(least: usize) -> Self {
        let align = Align::Right;
        Self { align, least }
    }
}

impl Table {
    /// A table without rows.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row: a cell for each column, its text [plain]. Missing ones are empty, further ones are left out.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let cells = cells.into_iter().map(|cell| match cell.into() {
            cell if cell.chars().all(is_plain) => cell,
            cell => plain(&cell).into_owned(),
        });
        self.rows.push(cells.take(self.columns.len()).collect());
    }

    /// The rows as lines of one length, [`GAP`] blanks between any two columns.
    pub fn lines(&self) -> Vec<String> {
        let widths: Vec<usize> = (0..self.columns.len()).map(|n| self.width(n)).collect();
        self.rows
            .iter()
            .map(|row| self.line(row, &widths))
            .collect()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max();
        widest.unwrap_or(0).max(self.columns[column].least)
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (n, (column, &width)) in self.columns.iter().zip(widths).enumerate() {
            let cell = row.get(n).map_or("", String::as_str);
            let gap = if n == 0 { 0 } else { GAP };
            match column.align {
                Align::Left => put!(line, "{:gap$}{cell:<width$}", ""),
                Align::Right => put!(line, "{:gap$}{cell:>width$}", ""),
            }
        }
        line
    }
}

/// Blanks between two columns.
pub const GAP: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(rows: &[[&str; 3]]) -> Vec<String> {
        let columns = [Column::words(3), Column::numbers(4), Column::numbers(4)];
        let mut table = Table::new(columns);
        rows.iter().for_each(|row| table.row(*row));
        table.lines()
    }

    #[test]
    fn columns_keep_their_least_width_and_grow_with_their_cells() {
        assert_eq!(lines(&[["a", "1", "2"]]), ["a       1     2"]);
        let full = lines(&[["abc", "1234", "0.1%"]]);
        assert_eq!(full, ["abc  1234  0.1%"]);
        let grown = lines(&[["a", "493 Mb/s", "0.025 %"], ["b", "1", "2"]]);
        assert_eq!(grown, ["a    493 Mb/s  0.025 %", "b           1        2"]);
    }

    #[test]
    fn characters_count_and_not_bytes() {
        let mixed = lines(&[["ää", "–", "µ"], ["aaaa", "1", "1"]]);
        assert_eq!(mixed, ["ää       –     µ", "aaaa     1     1"]);
    }

    #[test]
    fn short_rows_are_filled_and_long_ones_cut() {
        let mut table = Table::new([Column::numbers(1), Column::numbers(1)]);
        table.row(["1"]);
        table.row(["1", "2", "3"]);
        assert_eq!(table.lines(), ["1   ", "1  2"]);
        assert!(Table::new([]).lines().is_empty());
    }
}
