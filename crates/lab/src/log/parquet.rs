//! Decisions as Parquet: the columns of the CSV with their types, some ten times smaller.
//!
//! Numbers are signed 64-bit integers, so that differences of any two can be taken; what is
//! unknown is null. Reading: github.com/apache/parquet-format, LogicalTypes.md and Encodings.md.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;

use link::record::Reader;
use parquet::basic::{Compression, Encoding};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::contents::Contents;
use super::convert::{COLUMNS, Column, Converted, Filter, Line, Value, for_each_line};

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
    let schema = parse_message_type(&schema()).map_err(failed)?;
    let properties = Arc::new(properties());
    let mut file = SerializedFileWriter::new(out, Arc::new(schema), properties).map_err(failed)?;
    let mut group = Group::new();
    for_each_line(&contents, filter, |line| {
        group.push(line);
        converted.written += 1;
        if group.rows == GROUP_ROWS {
            group.write(&mut file).map_err(failed)?;
        }
        Ok(())
    })?;
    if group.rows > 0 {
        group.write(&mut file).map_err(failed)?;
    }
    file.close().map_err(failed)?;
    Ok(converted)
}

fn failed(error: ParquetError) -> io::Error {
    io::Error::other(error)
}

/// The schema in Parquet's notation.
fn schema() -> String {
    let mut schema = "message decisions {".to_owned();
    for column in COLUMNS {
        let repetition = if column.is_optional {
            "optional"
        } else {
            "required"
        };
        let (kind, meaning) = if column.is_number {
            ("int64", "")
        } else {
            ("binary", " (STRING)")
        };
        // Writing to a String cannot fail.
        let _ = write!(schema, " {repetition} {kind} {}{meaning};", column.name);
    }
    schema.push_str(" }");
    schema
}

fn properties() -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(format!("goodput {}", env!("CARGO_PKG_VERSION")));
    // Numbers that mostly grow take a byte or two as differences; a dictionary would not help.
    for name in ["time_ns", "frame", "departs_ns"] {
        properties = properties
            .set_column_dictionary_enabled(name.into(), false)
            .set_column_encoding(name.into(), Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}

/// Rows of one row group, column by column.
struct Group {
    columns: Vec<Values>,
    rows: usize,
    texts: HashMap<String, ByteArray>,
}

/// The values of one column that are not null, and for each row 1, or 0 for null.
struct Values {
    numbers: Vec<i64>,
    texts: Vec<ByteArray>,
    defined: Vec<i16>,
    column: Column,
}

impl Group {
    fn new() -> Self {
        let columns = COLUMNS.map(|column| Values {
            numbers: Vec::new(),
            texts: Vec::new(),
            defined: Vec::new(),
            column,
        });
        Self {
            columns: columns.into(),
            rows: 0,
            texts: HashMap::new(),
        }
    }

    fn push(&mut self, line: &Line<'_>) {
        self.rows += 1;
        for (column, value) in self.columns.iter_mut().zip(line.values()) {
            column.defined.push(1);
            match value {
                Value::Number(number) => {
                    column
                        .numbers
                        .push(i64::try_from(number).unwrap_or(i64::MAX));
                }
                Value::Text(text) => column.texts.push(shared(&mut self.texts, text)),
                Value::Nothing => {
                    if let Some(last) = column.defined.last_mut() {
                        *last = 0;
                    }
                }
            }
        }
    }

    /// Writes the rows as a row group and starts anew.
    fn write<W: Write + Send>(
        &mut self,
        file: &mut SerializedFileWriter<W>,
    ) -> Result<(), ParquetError> {
        let mut group = file.next_row_group()?;
        for values in &mut self.columns {
            let Some(mut column) = group.next_column()? else {
                break;
            };
            let defined = values.column.is_optional.then_some(&values.defined[..]);
            if values.column.is_number {
                let typed = column.typed::<Int64Type>();
                typed.write_batch(&values.numbers, defined, None)?;
            } else {
                let typed = column.typed::<ByteArrayType>();
                typed.write_batch(&values.texts, defined, None)?;
            }
            column.close()?;
            values.numbers.clear();
            values.texts.clear();
            values.defined.clear();
        }
        group.close()?;
        self.rows = 0;
        self.texts.clear();
        Ok(())
    }
}

/// The text as bytes that all rows share.
fn shared(texts: &mut HashMap<String, ByteArray>, text: &str) -> ByteArray {
    if let Some(known) = texts.get(text) {
        return known.clone();
    }
    let bytes = ByteArray::from(text);
    texts.insert(text.to_owned(), bytes.clone());
    bytes
}

/// Rows of a row group: the unit by which DuckDB shares work out among threads (its own tables use
/// 122,880), and 30 MB here.
const GROUP_ROWS: usize = 122_880;
