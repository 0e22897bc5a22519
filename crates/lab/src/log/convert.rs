//! A log as CSV, Parquet or pcapng.
//!
//! Decisions become one line for each segment, joined with the frame's headers as they were at
//! ingress; pcapng holds the frames at ingress, one packet for each segment, with the drops in
//! comments. Only what was captured is written: headers. Each converter reads the log twice and
//! keeps the frames' records in memory (some 60 bytes each). CSV and Parquet take the decisions from
//! the file one by one; pcapng keeps all drops in memory (some 80 bytes a row), and with a filter by
//! link or decision all rows that the filter takes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};

use link::record::{Code, FrameRecord, Reader, Row};
use units::Instant;
use units::text::plain;
use wire::pcapng;

use super::contents::Contents;
use super::headers::{Headers, Workbench};

pub use super::parquet::parquet;

/// What to convert. The default takes all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Not before this time.
    pub from: Option<Instant>,
    /// Before this time.
    pub until: Option<Instant>,
    /// Decisions of this link only.
    pub link: Option<u16>,
    /// Frames of this flow only.
    pub flow: Option<u32>,
    /// This frame only.
    pub frame: Option<u64>,
    /// These decisions only; empty for all.
    pub decisions: Vec<Code>,
    /// Drops only.
    pub drops_only: bool,
}

/// What was converted, and how far the log can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// Lines or packets written.
    pub written: u64,
    /// The log has no end: its writer was interrupted, or it still writes.
    pub interrupted: bool,
    /// Where the log is cut, bytes from its start.
    pub truncated_at: Option<u64>,
    /// Blocks that contradict their type and were left out.
    pub malformed_blocks: u64,
    /// Decisions that are missing since the disk was behind.
    pub lost_rows: u64,
    /// Frames likewise.
    pub lost_frames: u64,
}

impl Converted {
    pub(super) fn of(contents: &Contents<'_>) -> Self {
        let end = contents.end.unwrap_or_default();
        Self {
            written: 0,
            interrupted: contents.end.is_none(),
            truncated_at: contents.truncated_at,
            malformed_blocks: contents.malformed_blocks,
            lost_rows: end.lost_rows,
            lost_frames: end.lost_frames,
        }
    }
}

impl Filter {
    fn takes_time(&self, time: Instant) -> bool {
        self.from.is_none_or(|from| time >= from) && self.until.is_none_or(|until| time < until)
    }

    fn takes_row(&self, row: &Row) -> bool {
        self.link.is_none_or(|link| link == row.link)
            && self.flow.is_none_or(|flow| flow == row.flow)
            && self.frame.is_none_or(|frame| frame == row.frame)
            && (self.decisions.is_empty() || self.decisions.contains(&row.decision))
            && (!self.drops_only || row.decision.is_drop())
    }

    fn takes_frame(&self, frame: &FrameRecord<'_>) -> bool {
        self.takes_time(frame.time)
            && self.flow.is_none_or(|flow| flow == frame.flow)
            && self.frame.is_none_or(|number| number == frame.number)
    }

    /// True when a frame is taken for what was decided on it.
    fn asks_for_decisions(&self) -> bool {
        self.link.is_some() || !self.decisions.is_empty() || self.drops_only
    }
}

/// A decision on one segment, with its frame's headers.
#[derive(Debug)]
pub(super) struct Line<'a> {
    pub(super) row: &'a Row,
    pub(super) time: Instant,
    pub(super) departs: Option<Instant>,
    pub(super) segment: u32,
    pub(super) names: &'a Names<'a>,
    pub(super) headers: &'a Headers,
    pub(super) sequence: Option<u32>,
}

/// The names in a row.
#[derive(Debug)]
pub(super) struct Names<'a> {
    pub(super) port: Cow<'a, str>,
    pub(super) link: Cow<'a, str>,
    pub(super) stage: Cow<'a, str>,
    pub(super) decision: Cow<'a, str>,
}

/// What stands in a column.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Number(u64),
    Text(&'a str),
    /// Unknown or not applicable.
    Nothing,
}

/// A column: its name, whether it holds numbers, and whether it may be empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) is_number: bool,
    pub(super) is_optional: bool,
}

impl Line<'_> {
    /// The values in the order of [`COLUMNS`].
    pub(super) fn values(&self) -> [Value<'_>; COLUMNS.len()] {
        let time_ns = self.time.as_ns();
        let departs_ns = self.departs.map(Instant::as_ns);
        let wait_ns = departs_ns.map(|departs| departs.saturating_sub(time_ns));
        let (row, names, headers) = (self.row, self.names, self.headers);
        [
            Value::Number(time_ns),
            Value::Number(row.frame),
            Value::Number(self.segment.into()),
            Value::text(&names.port),
            Value::text(&names.link),
            Value::text(&names.stage),
            Value::text(&names.decision),
            Value::number(departs_ns),
            Value::number(wait_ns),
            Value::Number(row.queue_bytes),
            Value::Number(row.queue_packets.into()),
            Value::Number(row.wire_bytes.into()),
            Value::Number(row.flow.into()),
            Value::Number(row.detail.into()),
            Value::text(&headers.source),
            Value::text(&headers.destination),
            Value::text(&headers.protocol),
            Value::number(headers.source_port),
            Value::number(headers.destination_port),
            Value::number(self.sequence),
        ]
    }
}

impl<'a> Value<'a> {
    fn text(text: &'a str) -> Self {
        if text.is_empty() {
            Self::Nothing
        } else {
            Self::Text(text)
        }
    }

    fn number<N: Into<u64>>(number: Option<N>) -> Self {
        number.map_or(Self::Nothing, |number| Self::Number(number.into()))
    }
}

impl Column {
    const fn number(name: &'static str) -> Self {
        Self {
            name,
            is_number: true,
            is_optional: false,
        }
    }

    const fn text(name: &'static str) -> Self {
        Self {
            is_number: false,
            ..Self::number(name)
        }
    }

    const fn optional(self) -> Self {
        Self {
            is_optional: true,
            ..self
        }
    }
}

/// Hands every decision that the filter takes to `write`, segment by segment in the file's order.
pub(super) fn for_each_line(
    contents: &Contents<'_>,
    filter: &Filter,
    mut write: impl FnMut(&Line<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let legend = &contents.legend;
    let mut bench = Workbench::new();
    // Decisions on one frame stand close together: most are those of the frame before.
    let mut known: Option<(u64, Headers)> = None;
    for row in contents.rows().filter(|row| filter.takes_row(row)) {
        let frame = contents.frame(row.frame);
        if known
            .as_ref()
            .is_none_or(|(number, _)| *number != row.frame)
        {
            let headers = frame.map(|frame| bench.load(frame).headers());
            known = Some((row.frame, headers.unwrap_or_default()));
        }
        let Some((_, headers)) = &known else {
            continue;
        };
        let names = Names {
            port: frame
                .map(|frame| legend.port(frame.port))
                .unwrap_or_default(),
            link: legend.link(row.link).unwrap_or_default(),
            stage: legend.stage(row.link, row.stage).unwrap_or_default(),
            decision: legend.decision(row.decision),
        };
        let payload = frame.map_or(0, |frame| u32::from(frame.segment_payload_bytes));
        for segment in row.segments().filter(|s| filter.takes_time(s.time)) {
            let skipped = payload.wrapping_mul(segment.segment);
            write(&Line {
                row: &row,
                time: segment.time,
                departs: segment.departs,
                segment: segment.segment,
                names: &names,
                headers,
                sequence: headers.sequence.map(|first| first.wrapping_add(skipped)),
            })?;
        }
    }
    Ok(())
}

/// Writes the decisions as CSV (RFC 4180, but lines end with LF alone), with a header. What is
/// unknown is empty.
///
/// # Errors
/// `out` fails.
pub fn csv<W: Write>(reader: Reader<'_>, out: W, filter: &Filter) -> io::Result<Converted> {
    let contents = Contents::read(reader);
    let mut converted = Converted::of(&contents);
    let mut out = BufWriter::new(out);
    let names = COLUMNS.map(|column| column.name);
    writeln!(out, "{}", names.join(","))?;
    for_each_line(&contents, filter, |line| {
        for (i, value) in line.values().iter().enumerate() {
            if i > 0 {
                out.write_all(b",")?;
            }
            match value {
                Value::Number(number) => write!(out, "{number}")?,
                Value::Text(text) => csv_text(text, &mut out)?,
                Value::Nothing => {}
            }
        }
        converted.written += 1;
        out.write_all(b"\n")
    })?;
    out.flush()?;
    Ok(converted)
}

/// A cell of text: plain, and quoted where a comma or a quote would break it. A spreadsheet takes a cell that begins with `=`,
/// `+`, `-` or `@` for a formula, and a name from a log is none: it gets an apostrophe first, as spreadsheets mark text.
fn csv_text(text: &str, out: &mut impl Write) -> io::Result<()> {
    let text = plain(text);
    let is_formula = text.starts_with(['=', '+', '-', '@']) && text.parse::<f64>().is_err();
    let mark = if is_formula { "'" } else { "" };
    if text.contains([',', '"']) {
        write!(out, "\"{mark}{}\"", text.replace('"', "\"\""))
    } else {
        write!(out, "{mark}{text}")
    }
}

/// Writes the frames at ingress as pcapng, one packet for each segment as the wire would carry it,
/// its headers only, with an interface for each port. A segment that was dropped says so in a
/// comment. A filter by link or decision takes the segments of which such a decision is logged.
///
/// # Errors
/// `out` fails.
pub fn pcapng<W: Write>(reader: Reader<'_>, out: W, filter: &Filter) -> io::Result<Converted> {
    let contents = Contents::read(reader);
    let mut converted = Converted::of(&contents);
    let fates = Fates::read(&contents, filter);
    let mut capture = Capture::begin(&contents, BufWriter::new(out))?;
    let mut bench = Workbench::new();
    let mut comment = String::new();
    let mut in_order: Vec<&FrameRecord<'_>> = contents.frames().iter().collect();
    in_order.sort_by_key(|frame| frame.time);
    for frame in in_order
        .into_iter()
        .filter(|frame| filter.takes_frame(frame))
    {
        let mut fate = fates.of(&contents, frame);
        let mut loaded = bench.load(frame);
        for k in 0..loaded.segments() {
            if !fate.comment_on(&contents, k, &mut comment) {
                continue;
            }
            let original_bytes = loaded.segment_bytes(k);
            capture.packet(frame, original_bytes, loaded.segment_head(k), &comment)?;
            converted.written += 1;
        }
    }
    capture.out.flush()?;
    Ok(converted)
}

/// Decisions that pcapng needs, in the order of their frames and first segments.
struct Fates {
    rows: Vec<Row>,
    /// Segments without such a decision are left out.
    is_required: bool,
    filter: Filter,
}

/// Those on one frame, while its segments are gone through in their order.
struct Fate<'a> {
    fates: &'a Fates,
    /// Rows that begin at a later segment.
    rest: &'a [Row],
    /// Drops that may go on to the segment in hand; at most [`COMMENT_DROPS_MAX`].
    drops: Vec<&'a Row>,
    /// First segment behind all that the filter took.
    taken_until: u32,
}

impl Fates {
    fn read(contents: &Contents<'_>, filter: &Filter) -> Self {
        let is_required = filter.asks_for_decisions();
        let is_needed =
            |row: &Row| row.decision.is_drop() || (is_required && filter.takes_row(row));
        let mut rows: Vec<Row> = contents.rows().filter(is_needed).collect();
        rows.sort_by_key(|row| (row.frame, row.first));
        Self {
            rows,
            is_required,
            filter: filter.clone(),
        }
    }

    /// Of several frames with one number, which no log of a lab has, the first has them all.
    fn of(&self, contents: &Contents<'_>, frame: &FrameRecord<'_>) -> Fate<'_> {
        let number = frame.number;
        let is_first = contents
            .frame(number)
            .is_some_and(|first| std::ptr::eq(first, frame));
        let from = self.rows.partition_point(|row| row.frame < number);
        let until = self.rows.partition_point(|row| row.frame <= number);
        let rows = self.rows.get(from..until).filter(|_| is_first);
        Fate {
            fates: self,
            rest: rows.unwrap_or_default(),
            drops: Vec::new(),
            taken_until: 0,
        }
    }
}

impl Fate<'_> {
    /// Writes how segment `k`, later than the one before, was dropped, if it was; false when the
    /// filter leaves it out.
    fn comment_on(&mut self, contents: &Contents<'_>, k: u16, to: &mut String) -> bool {
        to.clear();
        let k = u32::from(k);
        let end = |row: &Row| u32::from(row.first) + u32::from(row.count);
        self.drops.retain(|row| end(row) > k);
        while let Some((row, rest)) = self.rest.split_first()
            && u32::from(row.first) <= k
        {
            self.rest = rest;
            if end(row) <= k {
                continue;
            }
            if self.fates.filter.takes_row(row) {
                self.taken_until = self.taken_until.max(end(row));
            }
            if row.decision.is_drop() && self.drops.len() < COMMENT_DROPS_MAX {
                self.drops.push(row);
            }
        }
        for drop in &self.drops {
            describe_drop(contents, drop, to);
        }
        !self.fates.is_required || k < self.taken_until
    }
}

/// Appends a drop in words, as far as there is room.
fn describe_drop(contents: &Contents<'_>, row: &Row, to: &mut String) {
    let legend = &contents.legend;
    let between = if to.is_empty() { "" } else { "; " };
    let mut say = |text: &str| {
        let room = COMMENT_BYTES_MAX.saturating_sub(to.len());
        to.push_str(&text[..text.floor_char_boundary(room)]);
    };
    say(between);
    say("dropped: ");
    say(&legend.decision(row.decision));
    if let (Some(link), Some(stage)) = (legend.link(row.link), legend.stage(row.link, row.stage)) {
        say(" at link ");
        say(&link);
        say("/");
        say(&stage);
    }
    if row.queue_bytes > 0 {
        say(&format!(", {} bytes waiting", row.queue_bytes));
    }
}

/// A pcapng file that is being written.
struct Capture<W: Write> {
    out: W,
    block: Vec<u8>,
    interfaces: HashMap<u16, u32>,
    t0_realtime_ns: u64,
}

impl<W: Write> Capture<W> {
    /// Writes the head, with an interface for each port of the legend.
    fn begin(contents: &Contents<'_>, out: W) -> io::Result<Self> {
        let mut capture = Self {
            out,
            block: Vec::new(),
            interfaces: HashMap::new(),
            t0_realtime_ns: contents.legend.t0_realtime_ns,
        };
        let application = format!("goodput {}", contents.legend.goodput_version);
        pcapng::section_header(&application, &mut capture.block);
        for (port, name) in (0..=u16::MAX).zip(&contents.legend.ports) {
            capture.interface(port, name);
        }
        capture.write()?;
        Ok(capture)
    }

    fn interface(&mut self, port: u16, name: &str) -> u32 {
        pcapng::interface(name, 0, &mut self.block);
        let number = u32::try_from(self.interfaces.len()).unwrap_or(u32::MAX);
        self.interfaces.insert(port, number);
        number
    }

    fn packet(
        &mut self,
        frame: &FrameRecord<'_>,
        original_bytes: u32,
        head: &[u8],
        comment: &str,
    ) -> io::Result<()> {
        let interface = match self.interfaces.get(&frame.port) {
            Some(&interface) => interface,
            // A port that the legend does not name.
            None => self.interface(frame.port, &frame.port.to_string()),
        };
        let packet = pcapng::Packet {
            interface,
            time_ns: self.t0_realtime_ns.saturating_add(frame.time.as_ns()),
            captured: head,
            original_bytes,
            direction: pcapng::Direction::Inbound,
            comment,
        };
        pcapng::packet(&packet, &mut self.block);
        self.write()
    }

    fn write(&mut self) -> io::Result<()> {
        self.out.write_all(&self.block)?;
        self.block.clear();
        Ok(())
    }
}

/// Longest comment on a packet. A segment is dropped once, or once for each copy: only a log that is
/// none of a lab's has more to say.
const COMMENT_BYTES_MAX: usize = 2_000;
/// Most drops that a comment tells: each segment looks through all of them.
const COMMENT_DROPS_MAX: usize = 32;

/// The columns of CSV and Parquet; docs/lab-log.md says what they mean.
pub(super) const COLUMNS: [Column; 20] = [
    Column::number("time_ns"),
    Column::number("frame"),
    Column::number("segment"),
    Column::text("port").optional(),
    Column::text("link").optional(),
    Column::text("stage").optional(),
    Column::text("decision"),
    Column::number("departs_ns").optional(),
    Column::number("wait_ns").optional(),
    Column::number("queue_bytes"),
    Column::number("queue_packets"),
    Column::number("wire_bytes"),
    Column::number("flow"),
    Column::number("detail"),
    Column::text("src").optional(),
    Column::text("dst").optional(),
    Column::text("protocol").optional(),
    Column::number("src_port").optional(),
    Column::number("dst_port").optional(),
    Column::number("tcp_seq").optional(),
];
