//! A time-sequence graph: what one side of a connection sent, what was acknowledged, and how far the
//! window reached, over time (after S. Shalunov's and T. Shepard's graphs; D. Clark's advice to plot them).
//!
//! Any number of segments goes into a fixed number of columns of time; each keeps the lowest and highest
//! sequence number sent in it, the last acknowledgment and window edge. Single segments are kept beside
//! that as long as there are few of them, so that a narrow window of time shows each one.

use units::{Bytes, Duration, Instant};
use wire::segment::Segment;
use wire::tcp::Flags;

/// Draws one side's data.
#[derive(Clone, Debug)]
pub struct Timeline {
    side: u8,
    begins: Instant,
    width: Duration,
    columns: Vec<Column>,
    marks: Vec<Mark>,
    marks_left_out: u64,
    /// Sequence number of offset 0.
    base: Option<u32>,
    highest: u64,
    acknowledged: u64,
    edge: u64,
    /// Shift of the receiver's window, once its SYN was seen; a connection whose SYNs were not seen has none.
    shift: Option<u8>,
}

/// A column of time. Offsets are bytes from the first sequence number seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Lowest and first beyond the highest byte sent for the first time, where something was.
    pub sent: Option<(u64, u64)>,
    /// The same of what was sent again; not part of `sent`.
    pub again: Option<(u64, u64)>,
    /// The same of what was reported as received out of order.
    pub sacked: Option<(u64, u64)>,
    /// First byte not yet acknowledged, at the column's end; `None` before the first acknowledgment.
    pub acknowledged: Option<u64>,
    /// First byte beyond the receive window, at the column's end.
    pub edge: Option<u64>,
    /// Data segments.
    pub segments: u32,
}

/// One segment or report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub at: Instant,
    /// First byte.
    pub low: u64,
    /// First byte beyond.
    pub high: u64,
    /// What it is.
    pub kind: MarkKind,
}

/// What a mark stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// Data that goes beyond all before.
    New,
    /// Data of which some was sent before, or that comes behind later data.
    Again,
    /// Received out of order, as the receiver reports.
    Sacked,
    /// The receiver has no room: its window is closed.
    ZeroWindow,
}

impl Timeline {
    /// For the data that `side` (0 or 1, as [`Segment::from`]) sends from `begins` on, in `columns` columns
    /// of `width`; both are one at least, the columns 100,000 at most. `shift` is the receiver's window
    /// scale where it is known beforehand.
    pub fn new(
        side: u8,
        begins: Instant,
        width: Duration,
        columns: usize,
        shift: Option<u8>,
    ) -> Self {
        Self {
            side,
            begins,
            width: width.max(Duration::from_ns(1)),
            columns: vec![Column::default(); columns.clamp(1, COLUMNS_MAX)],
            marks: Vec::new(),
            marks_left_out: 0,
            base: None,
            highest: 0,
            acknowledged: 0,
            edge: 0,
            shift,
        }
    }

    /// A segment of the connection, of either side; those before the first column count for what they say
    /// of sequence numbers, acknowledgment and window.
    pub fn take(&mut self, at: Instant, segment: &Segment) {
        if segment.from == self.side {
            self.sent(at, segment);
        } else {
            self.received(at, segment);
        }
    }

    fn sent(&mut self, at: Instant, segment: &Segment) {
        let syn = segment.flags.contains(Flags::SYN);
        let first = segment.sequence.wrapping_add(u32::from(syn));
        if syn || self.base.is_none() {
            // A SYN begins anew; in mid-connection the first segment does.
            if syn {
                (self.highest, self.acknowledged, self.edge) = (0, 0, 0);
            }
            self.base = Some(first);
        }
        let (Some(low), bytes) = (self.offset(first), u64::from(segment.payload_bytes)) else {
            return;
        };
        if bytes == 0 {
            return;
        }
        let high = low + bytes;
        let again = low < self.highest;
        self.highest = self.highest.max(high);
        let Some(column) = self.column(at) else {
            return;
        };
        column.segments = column.segments.saturating_add(1);
        // Apart: what is sent again lies far below what is new, and a stroke would join the two.
        match again {
            true => widen(&mut column.again, low, high),
            false => widen(&mut column.sent, low, high),
        }
        let kind = if again {
            MarkKind::Again
        } else {
            MarkKind::New
        };
        self.mark(Mark {
            at,
            low,
            high,
            kind,
        });
    }

    fn received(&mut self, at: Instant, segment: &Segment) {
        let syn = segment.flags.contains(Flags::SYN);
        if syn {
            let shift = segment.syn.window_scale.map_or(0, |s| s.min(SHIFT_MAX));
            self.shift = Some(shift);
        }
        if !segment.flags.contains(Flags::ACK) {
            return;
        }
        if self.base.is_none() {
            self.base = Some(segment.acknowledgment);
        }
        let Some(acknowledged) = self.offset(segment.acknowledgment) else {
            return;
        };
        self.acknowledged = self.acknowledged.max(acknowledged);
        // The window of a SYN is never scaled (RFC 7323 section 2.2).
        let shift = if syn { 0 } else { self.shift.unwrap_or(0) };
        let window = u64::from(segment.window) << shift;
        self.edge = self.edge.max(acknowledged + window);
        let (acknowledged, edge) = (self.acknowledged, self.edge);
        let mut sacked = [(0, 0); 4];
        let mut blocks = 0;
        for &(left, right) in segment.sack.as_slice() {
            if let (Some(low), Some(high)) = (self.offset(left), self.offset(right))
                && low < high
                && low > acknowledged
                && blocks < sacked.len()
            {
                sacked[blocks] = (low, high);
                blocks += 1;
            }
        }
        let Some(column) = self.column(at) else {
            return;
        };
        (column.acknowledged, column.edge) = (Some(acknowledged), Some(edge));
        for &(low, high) in &sacked[..blocks] {
            widen(&mut column.sacked, low, high);
        }
        for &(low, high) in &sacked[..blocks] {
            let kind = MarkKind::Sacked;
            self.mark(Mark {
                at,
                low,
                high,
                kind,
            });
        }
        let reset = segment.flags.contains(Flags::RST);
        if segment.window == 0 && !syn && !reset {
            let (low, high, kind) = (edge, edge, MarkKind::ZeroWindow);
            self.mark(Mark {
                at,
                low,
                high,
                kind,
            });
        }
    }

    /// Bytes from the first sequence number to this one: the nearest to the highest that has it. `None`
    /// before that, and where it lies before the first.
    fn offset(&self, sequence: u32) -> Option<u64> {
        let base = self.base?;
        let low = u32::try_from(self.highest & u64::from(u32::MAX)).unwrap_or(0);
        let ahead = sequence.wrapping_sub(base).wrapping_sub(low).cast_signed();
        self.highest.checked_add_signed(i64::from(ahead))
    }

    fn column(&mut self, at: Instant) -> Option<&mut Column> {
        if at < self.begins {
            return None;
        }
        let column = at.saturating_since(self.begins).as_ns() / self.width.as_ns();
        self.columns.get_mut(usize::try_from(column).ok()?)
    }

    fn mark(&mut self, mark: Mark) {
        if self.marks.len() < MARKS_MAX {
            self.marks.push(mark);
        } else {
            self.marks_left_out += 1;
        }
    }

    /// The columns, by time.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// When the first begins, and how long each is.
    pub const fn extent(&self) -> (Instant, Duration) {
        (self.begins, self.width)
    }

    /// Every segment and report, by time, where there were few enough to keep them all.
    pub fn marks(&self) -> Option<&[Mark]> {
        (self.marks_left_out == 0).then_some(self.marks.as_slice())
    }

    /// Bytes of sequence numbers that were sent, from the first one seen.
    pub const fn sent_to(&self) -> Bytes {
        Bytes::new(self.highest)
    }
}

fn widen(range: &mut Option<(u64, u64)>, low: u64, high: u64) {
    let (l, h) = range.unwrap_or((low, high));
    *range = Some((l.min(low), h.max(high)));
}

/// Segments that a page bears.
const MARKS_MAX: usize = 4_000;
const COLUMNS_MAX: usize = 100_000;
/// RFC 7323 section 2.3.
const SHIFT_MAX: u8 = 14;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wire::segment::SynOptions;
    use wire::tcp::SackBlocks;

    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    fn data(sequence: u32, payload_bytes: u32) -> Segment {
        let flags = Flags::ACK;
        Segment {
            sequence,
            payload_bytes,
            flags,
            ..Segment::default()
        }
    }

    fn ack(acknowledgment: u32, window: u16, sack: &[(u32, u32)]) -> Segment {
        let sack = SackBlocks::new(sack);
        Segment {
            from: 1,
            acknowledgment,
            window,
            flags: Flags::ACK,
            sack,
            ..Segment::default()
        }
    }

    fn syn(from: u8, sequence: u32, acknowledgment: u32, shift: Option<u8>) -> Segment {
        let flags = if from == 0 {
            Flags::SYN
        } else {
            Flags::SYN.with(Flags::ACK)
        };
        let syn = SynOptions {
            window_scale: shift,
            ..SynOptions::default()
        };
        Segment {
            from,
            sequence,
            acknowledgment,
            flags,
            window: 1_000,
            syn,
            ..Segment::default()
        }
    }

    fn ten_columns(segments: &[(u64, Segment)]) -> Timeline {
        let mut line = Timeline::new(0, at_ms(0), Duration::from_ms(10), 10, None);
        for (ms, segment) in segments {
            line.take(at_ms(*ms), segment);
        }
        line
    }

    #[test]
    fn a_column_holds_what_was_sent_acknowledged_and_allowed() {
        let line = ten_columns(&[
            (0, syn(0, 999, 0, Some(7))),
            (5, syn(1, 4_999, 1_000, Some(7))),
            (10, data(1_000, 100)),
            (11, data(1_100, 100)),
            (19, ack(1_100, 10, &[])),
            (20, ack(1_200, 20, &[])),
        ]);
        let first = line.columns()[1];
        assert_eq!((first.sent, first.segments), (Some((0, 200)), 2));
        assert_eq!(
            (first.acknowledged, first.edge),
            (Some(100), Some(100 + 1_280))
        );
        let second = line.columns()[2];
        assert_eq!((second.sent, second.edge), (None, Some(200 + 2_560)));
        // The SYN-ACK's window is not scaled.
        assert_eq!(line.columns()[0].edge, Some(1_000));
        assert_eq!(line.marks().unwrap().len(), 2);
    }

    #[test]
    fn what_was_sent_again_and_what_was_sacked_is_told() {
        let line = ten_columns(&[
            (10, data(0, 100)),
            (11, data(100, 100)),
            (12, data(200, 100)),
            (20, ack(100, 500, &[(200, 300)])),
            (30, data(100, 100)),
            (40, ack(300, 0, &[])),
        ]);
        assert_eq!(line.columns()[2].sacked, Some((200, 300)));
        assert_eq!(line.columns()[3].again, Some((100, 200)));
        assert_eq!(
            line.columns()[3].sent,
            None,
            "a stroke would join it to what is new"
        );
        let kinds: Vec<MarkKind> = line.marks().unwrap().iter().map(|m| m.kind).collect();
        use MarkKind::{Again, New, Sacked, ZeroWindow};
        assert_eq!(kinds, [New, New, New, Sacked, Again, ZeroWindow]);
    }

    #[test]
    fn sequence_numbers_go_round() {
        let start = u32::MAX - 49;
        let line = ten_columns(&[
            (10, data(start, 100)),
            (11, data(50, 100)),
            (20, ack(150, 0, &[])),
        ]);
        assert_eq!(line.columns()[1].sent, Some((0, 200)));
        assert_eq!(line.columns()[2].acknowledged, Some(200));
    }

    #[test]
    fn four_gib_and_more_are_drawn() {
        let mut line = Timeline::new(0, at_ms(0), Duration::from_ms(10), 10, None);
        for i in 0..5_000_u32 {
            line.take(at_ms(15), &data(i.wrapping_mul(1 << 20), 1 << 20));
        }
        assert_eq!(line.sent_to(), Bytes::new(5_000 << 20));
        assert_eq!(line.marks(), None, "too many to keep");
    }

    #[test]
    fn times_outside_the_columns_move_the_state_only() {
        let mut line = Timeline::new(0, at_ms(100), Duration::from_ms(10), 2, None);
        line.take(at_ms(10), &data(0, 100));
        line.take(at_ms(105), &data(100, 100));
        line.take(at_ms(120), &data(200, 100));
        assert_eq!(line.columns()[0].sent, Some((100, 200)));
        assert_eq!(line.columns()[1].sent, None);
        assert_eq!(line.sent_to(), Bytes::new(300));
    }

    proptest! {
        #[test]
        fn any_segments_are_borne(
            segments in prop::collection::vec(
                (any::<u64>(), 0_u8..2, any::<u32>(), any::<u32>(), any::<u16>(), any::<u16>(), any::<u32>(),
                 any::<(u32, u32)>()),
                0..60,
            ),
        ) {
            let mut line = Timeline::new(0, Instant::from_ns(1 << 40), Duration::from_s(1), 50, None);
            for (ns, from, sequence, acknowledgment, flags, window, payload_bytes, sack) in segments {
                line.take(Instant::from_ns(ns), &Segment {
                    from, sequence, acknowledgment, flags: Flags::from_bits(flags), window, payload_bytes,
                    sack: SackBlocks::new(&[sack]), ..Segment::default()
                });
            }
            for column in line.columns() {
                let (low, high) = column.sent.unwrap_or_default();
                prop_assert!(low <= high && high <= line.sent_to().as_u64());
            }
        }
    }
}
