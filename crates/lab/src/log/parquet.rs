//! Decisions as Parquet: the columns of the CSV with their types, some ten times smaller.

use std::io::{self, Write};

use link::record::Reader;
use table::{GROUP_ROWS, Kind, Table};

use super::contents::Contents;
use super::convert::{COLUMNS, Column, Converted, Filter, Value, for_each_line};

/// Writes the decisions as Parquet, compressed with Snappy.
///
/// # Errors
/// `out` fails.
pub fn parquet<W: Write + Send>(
    reader: Reader<'_>,
    out: W,
    filter: &Filter,
) -> io::Result<Converted> {
    let contents = Contents::read(reader);
    let mut converted = Converted::of(&contents);
    let made_by = concat!("goodput ", env!("CARGO_PKG_VERSION"));
    let columns = COLUMNS.map(column);
    let mut table = Table::new(out, "decisions", made_by, &columns, GROUP_ROWS)?;
    for_each_line(&contents, filter, |line| {
        table.push(line.values().map(value))?;
        converted.written += 1;
        Ok(())
    })?;
    table.finish()?;
    Ok(converted)
}

fn column(of: Column) -> table::Column {
    let kind = match of.is_number {
        true => Kind::Integer,
        false => Kind::Text,
    };
    table::Column {
        is_optional: of.is_optional,
        is_rising: ["time_ns", "frame", "departs_ns"].contains(&of.name),
        ..table::Column::new(of.name, kind)
    }
}

fn value(of: Value<'_>) -> table::Value<'_> {
    match of {
        Value::Number(number) => table::Value::whole(number),
        Value::Text(text) => table::Value::Text(text),
        Value::Nothing => table::Value::Nothing,
    }
}
