//! Rows to a Parquet file: typed columns, written a group of rows at a time.
//!
//! Integers are signed and of 64 bits, so that differences of any two can be taken; larger ones become
//! the largest. What is unknown is null. Memory is that of one group: 10 B a number, 6 B a text that an
//! earlier row of the group had. Reading: github.com/apache/parquet-format, LogicalTypes.md and
//! Encodings.md.
//!
//! Left out: nested columns, reading.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Integers.
    Integer,
    /// Nanoseconds since 1970, shown as a time of day in UTC.
    Time,
    /// Numbers with a fraction.
    Real,
    /// True or false.
    Truth,
    /// Text.
    Text,
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, with its unit: a letter or `_`, then those and digits.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Whether a row may have nothing there.
    pub is_optional: bool,
    /// Whether it mostly grows from row to row, so that differences are short.
    pub is_rising: bool,
}

impl Column {
    /// One that every row has.
    pub const fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            is_optional: false,
            is_rising: false,
        }
    }

    /// A row may have nothing there.
    #[must_use]
    pub const fn optional(mut self) -> Self {
        self.is_optional = true;
        self
    }

    /// It mostly grows from row to row.
    #[must_use]
    pub const fn rising(mut self) -> Self {
        self.is_rising = true;
        self
    }
}

/// What stands in a row's column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Of [`Kind::Integer`] and [`Kind::Time`].
    Integer(i64),
    /// Of [`Kind::Real`].
    Real(f64),
    /// Of [`Kind::Truth`].
    Truth(bool),
    /// Of [`Kind::Text`].
    Text(&'a str),
    /// Unknown or not applicable.
    Nothing,
}

impl Value<'_> {
    /// An integer, the largest where it is larger.
    pub fn whole(number: impl TryInto<i64>) -> Self {
        Self::Integer(number.try_into().unwrap_or(i64::MAX))
    }
}

/// A table that is being written.
pub struct Table<W: Write + Send> {
    file: SerializedFileWriter<W>,
    columns: Vec<Values>,
    texts: Texts,
    /// Columns by which a group's rows are put in order.
    keys: Vec<usize>,
    group_rows: usize,
    rows: usize,
    written: u64,
}

impl<W: Write + Send> std::fmt::Debug for Table<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table")
            .field("written", &self.written)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

impl<W: Write + Send> Table<W> {
    /// An empty table that says it was made by `made_by`, compressed with Snappy, in groups of `group_rows`
    /// rows, which is what a reader shares out among threads.
    ///
    /// # Errors
    /// `out` fails, or a column has no proper name.
    pub fn new(
        out: W,
        name: &str,
        made_by: &str,
        columns: &[Column],
        group_rows: usize,
    ) -> io::Result<Self> {
        let schema = parse_message_type(&schema(name, columns)).map_err(failed)?;
        let properties = Arc::new(properties(made_by, columns));
        let file = SerializedFileWriter::new(out, Arc::new(schema), properties).map_err(failed)?;
        Ok(Self {
            file,
            columns: columns.iter().map(Values::new).collect(),
            texts: Texts::default(),
            keys: Vec::new(),
            group_rows: group_rows.max(1),
            rows: 0,
            written: 0,
        })
    }

    /// Rows of a group are put in the order of these columns of integers.
    #[must_use]
    pub fn ordered_by(mut self, names: &[&str]) -> Self {
        let place = |name: &&str| self.columns.iter().position(|c| c.column.name == *name);
        self.keys = names.iter().filter_map(place).collect();
        self
    }

    /// Adds a row. A value that is not of its column's kind, or missing, is nothing; where there must be
    /// one, it is zero or empty.
    ///
    /// # Errors
    /// A group was full, and writing it failed.
    pub fn push<'v>(&mut self, row: impl IntoIterator<Item = Value<'v>>) -> io::Result<()> {
        let mut row = row.into_iter();
        for column in &mut self.columns {
            column.push(row.next().unwrap_or(Value::Nothing), &mut self.texts);
        }
        self.rows += 1;
        if self.rows >= self.group_rows {
            self.write().map_err(failed)?;
        }
        Ok(())
    }

    /// Writes what is left and the file's end.
    ///
    /// # Errors
    /// Writing fails.
    pub fn finish(mut self) -> io::Result<u64> {
        if self.rows > 0 {
            self.write().map_err(failed)?;
        }
        self.file.close().map_err(failed)?;
        Ok(self.written)
    }

    /// Writes the rows as a group and starts anew.
    fn write(&mut self) -> Result<(), ParquetError> {
        let order = self.order();
        let mut group = self.file.next_row_group()?;
        for values in &mut self.columns {
            values.write(&mut group, order.as_deref(), &self.texts.list)?;
        }
        group.close()?;
        self.written += self.rows as u64;
        self.rows = 0;
        self.texts = Texts::default();
        Ok(())
    }

    /// The order of the rows in hand; `None` for that in which they came.
    fn order(&self) -> Option<Vec<usize>> {
        if self.keys.is_empty() {
            return None;
        }
        let mut order: Vec<usize> = (0..self.rows).collect();
        let key = |row: usize| self.keys.iter().map(move |&k| self.columns[k].integer(row));
        order.sort_by(|&a, &b| key(a).cmp(key(b)));
        Some(order)
    }
}

/// The texts of a group, each once.
#[derive(Default)]
struct Texts {
    list: Vec<ByteArray>,
    places: HashMap<String, u32>,
}

impl Texts {
    fn place(&mut self, text: &str) -> u32 {
        if let Some(&place) = self.places.get(text) {
            return place;
        }
        let place = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.list.push(ByteArray::from(text));
        self.places.insert(text.to_owned(), place);
        place
    }
}

/// One column of the rows in hand: something for each, and whether it is there.
struct Values {
    column: Column,
    cells: Cells,
    is_known: Vec<bool>,
}

enum Cells {
    Integers(Vec<i64>),
    Reals(Vec<f64>),
    Truths(Vec<bool>),
    Texts(Vec<u32>),
}

impl Values {
    fn new(column: &Column) -> Self {
        Self {
            column: *column,
            cells: match column.kind {
                Kind::Integer | Kind::Time => Cells::Integers(Vec::new()),
                Kind::Real => Cells::Reals(Vec::new()),
                Kind::Truth => Cells::Truths(Vec::new()),
                Kind::Text => Cells::Texts(Vec::new()),
            },
            is_known: Vec::new(),
        }
    }

    fn push(&mut self, value: Value<'_>, texts: &mut Texts) {
        let known = match (&mut self.cells, value) {
            (Cells::Integers(all), Value::Integer(v)) => put(all, v, true),
            (Cells::Reals(all), Value::Real(v)) => put(all, v, true),
            (Cells::Truths(all), Value::Truth(v)) => put(all, v, true),
            (Cells::Texts(all), Value::Text(v)) => put(all, texts.place(v), true),
            (Cells::Integers(all), _) => put(all, 0, false),
            (Cells::Reals(all), _) => put(all, 0.0, false),
            (Cells::Truths(all), _) => put(all, false, false),
            (Cells::Texts(all), _) => put(all, texts.place(""), false),
        };
        self.is_known.push(known || !self.column.is_optional);
    }

    fn integer(&self, row: usize) -> i64 {
        match &self.cells {
            Cells::Integers(all) => all.get(row).copied().unwrap_or(0),
            _ => 0,
        }
    }

    fn write<W: Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        order: Option<&[usize]>,
        texts: &[ByteArray],
    ) -> Result<(), ParquetError> {
        let Some(mut column) = group.next_column()? else {
            return Ok(());
        };
        let rows: Vec<usize> = match order {
            Some(order) => order.to_vec(),
            None => (0..self.is_known.len()).collect(),
        };
        let known = |row: &&usize| self.is_known[**row];
        let defined: Vec<i16> = rows.iter().map(|&r| i16::from(self.is_known[r])).collect();
        let defined = self.column.is_optional.then_some(&defined[..]);
        match (column.untyped(), &self.cells) {
            (ColumnWriter::Int64ColumnWriter(to), Cells::Integers(all)) => {
                let values: Vec<i64> = rows.iter().filter(known).map(|&r| all[r]).collect();
                to.write_batch(&values, defined, None)?;
            }
            (ColumnWriter::DoubleColumnWriter(to), Cells::Reals(all)) => {
                let values: Vec<f64> = rows.iter().filter(known).map(|&r| all[r]).collect();
                to.write_batch(&values, defined, None)?;
            }
            (ColumnWriter::BoolColumnWriter(to), Cells::Truths(all)) => {
                let values: Vec<bool> = rows.iter().filter(known).map(|&r| all[r]).collect();
                to.write_batch(&values, defined, None)?;
            }
            (ColumnWriter::ByteArrayColumnWriter(to), Cells::Texts(all)) => {
                let text = |&r: &usize| texts.get(all[r] as usize).cloned().unwrap_or_default();
                let values: Vec<ByteArray> = rows.iter().filter(known).map(text).collect();
                to.write_batch(&values, defined, None)?;
            }
            // The schema is made of the same kinds.
            _ => return Err(ParquetError::General("a column of another kind".to_owned())),
        }
        column.close()?;
        match &mut self.cells {
            Cells::Integers(all) => all.clear(),
            Cells::Reals(all) => all.clear(),
            Cells::Truths(all) => all.clear(),
            Cells::Texts(all) => all.clear(),
        }
        self.is_known.clear();
        Ok(())
    }
}

fn put<T>(all: &mut Vec<T>, value: T, known: bool) -> bool {
    all.push(value);
    known
}

fn failed(error: ParquetError) -> io::Error {
    match error {
        // So that a full disk is told apart.
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(io) => *io,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

/// The schema in Parquet's notation.
fn schema(name: &str, columns: &[Column]) -> String {
    let mut schema = format!("message {name} {{");
    for column in columns {
        let repetition = match column.is_optional {
            true => "optional",
            false => "required",
        };
        let (kind, meaning) = match column.kind {
            Kind::Integer => ("int64", ""),
            Kind::Time => ("int64", " (TIMESTAMP(NANOS,true))"),
            Kind::Real => ("double", ""),
            Kind::Truth => ("boolean", ""),
            Kind::Text => ("binary", " (STRING)"),
        };
        // Writing to a String cannot fail.
        let _ = write!(schema, " {repetition} {kind} {}{meaning};", column.name);
    }
    schema.push_str(" }");
    schema
}

fn properties(made_by: &str, columns: &[Column]) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(made_by.to_owned());
    // Numbers that mostly grow take a byte or two as differences; a dictionary would not help.
    for column in columns.iter().filter(|c| c.is_rising) {
        properties = properties
            .set_column_dictionary_enabled(column.name.into(), false)
            .set_column_encoding(column.name.into(), Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}

/// Rows of a group where a row is short: DuckDB's own tables use 122,880.
pub const GROUP_ROWS: usize = 122_880;

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;

    const COLUMNS: [Column; 5] = [
        Column::new("n", Kind::Integer).rising(),
        Column::new("at_utc", Kind::Time).optional(),
        Column::new("share", Kind::Real).optional(),
        Column::new("sack", Kind::Truth),
        Column::new("name", Kind::Text).optional(),
    ];

    fn row(n: i64) -> [Value<'static>; 5] {
        let odd = n % 2 == 1;
        [
            Value::Integer(n),
            Value::Integer(n * 1_000),
            if odd {
                Value::Nothing
            } else {
                Value::Real(0.5)
            },
            Value::Truth(odd),
            if odd {
                Value::Text("odd")
            } else {
                Value::Nothing
            },
        ]
    }

    fn read(bytes: Vec<u8>) -> (Vec<i64>, Vec<Vec<Field>>) {
        let path = std::env::temp_dir().join(format!(
            "goodput-table-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::write(&path, bytes).unwrap();
        let file = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        let groups = file.metadata().row_groups().iter().map(|g| g.num_rows());
        let groups = groups.collect();
        let rows = file.get_row_iter(None).unwrap().map(|row| {
            let row = row.unwrap();
            row.get_column_iter().map(|(_, f)| f.clone()).collect()
        });
        let rows = rows.collect();
        std::fs::remove_file(&path).unwrap();
        (groups, rows)
    }

    #[test]
    fn what_is_written_reads_back_with_its_nothings() {
        let mut bytes = Vec::new();
        let mut table = Table::new(&mut bytes, "t", "test", &COLUMNS, 3).unwrap();
        for n in 0..7 {
            table.push(row(n)).unwrap();
        }
        assert_eq!(table.finish().unwrap(), 7);
        let (groups, rows) = read(bytes);
        assert_eq!(groups, [3, 3, 1]);
        assert_eq!(rows[4][0], Field::Long(4));
        assert_eq!(rows[4][2], Field::Double(0.5));
        assert_eq!(rows[4][4], Field::Null);
        assert_eq!(rows[5][2], Field::Null);
        assert_eq!(rows[5][3], Field::Bool(true));
        assert_eq!(rows[5][4], Field::Str("odd".to_owned()));
    }

    #[test]
    fn rows_of_a_group_stand_in_the_order_of_their_keys() {
        let mut bytes = Vec::new();
        let table = Table::new(&mut bytes, "t", "test", &COLUMNS, 4).unwrap();
        let mut table = table.ordered_by(&["n"]);
        for n in [3, 1, 2, 0, 7, 5] {
            table.push(row(n)).unwrap();
        }
        table.finish().unwrap();
        let (_, rows) = read(bytes);
        let numbers: Vec<i64> = rows
            .iter()
            .map(|r| match r[0] {
                Field::Long(n) => n,
                _ => -1,
            })
            .collect();
        assert_eq!(numbers, [0, 1, 2, 3, 5, 7]);
        assert_eq!(rows[3][4], Field::Str("odd".to_owned()));
        assert_eq!(rows[2][4], Field::Null);
    }

    #[test]
    fn a_value_of_another_kind_is_nothing_and_a_short_row_is_filled() {
        let mut bytes = Vec::new();
        let mut table = Table::new(&mut bytes, "t", "test", &COLUMNS, 3).unwrap();
        table
            .push([Value::Text("x"), Value::Real(1.0), Value::Truth(true)])
            .unwrap();
        assert_eq!(table.finish().unwrap(), 1);
        let (_, rows) = read(bytes);
        assert_eq!(
            rows[0],
            [
                Field::Long(0),
                Field::Null,
                Field::Null,
                Field::Bool(false),
                Field::Null
            ]
        );
    }

    #[test]
    fn a_number_beyond_64_bits_with_sign_is_the_largest() {
        assert_eq!(Value::whole(u64::MAX), Value::Integer(i64::MAX));
        assert_eq!(Value::whole(7_u32), Value::Integer(7));
    }

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_told() {
        let failed = Table::new(Full, "t", "test", &COLUMNS, 3).and_then(|mut table| {
            table.push(row(1))?;
            table.finish()
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
