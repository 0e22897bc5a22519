//! What a sender may reach at most where writing has a declared cost, as a path file says of a host
//! that stands for a slower machine.
//!
//! Left out: what a connection's first writes gain before its buffer is full, and costs of receiving,
//! which nobody declares.

use throughput::models::bits_per_second;
use units::{Bytes, Duration, Rate};

/// What each write of a stream costs the sender, each stream by itself. The default costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCost {
    /// Bytes of a write.
    pub write: Bytes,
    /// Each call.
    pub call: Duration,
    /// Each full packet of the stream.
    pub packet: Duration,
    /// Copying bytes; none: it takes no time.
    pub copy: Option<Rate>,
    /// Each page that a write's bytes lie in, wholly or in part.
    pub page: Duration,
    /// Size of a page; no pages where it is 0.
    pub page_size: Bytes,
}

/// A part of what a write costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Call,
    Packets,
    Bytes,
    Pages,
}

/// What a write takes in all and what of it for what, in seconds.
#[derive(Clone, Debug)]
pub(crate) struct Bill {
    write: Bytes,
    /// The largest first, none of them zero.
    parts: Vec<(Part, f64)>,
}

impl WriteCost {
    /// Payload a second of so many streams whose full packets carry `mss_bytes`; `None` where nothing costs
    /// anything.
    pub fn rate(&self, mss_bytes: u64, streams: u32) -> Option<Rate> {
        self.bill(mss_bytes)?.rate(streams)
    }

    /// Packets are those of the stream: of a small write a part of one.
    pub(crate) fn bill(&self, mss_bytes: u64) -> Option<Bill> {
        let bytes = self.write.as_u64();
        let pages = match self.page_size.as_u64() {
            0 => 0,
            size => bytes.div_ceil(size),
        };
        let copy = self.copy.map_or(0.0, |rate| {
            bytes as f64 * 8.0 / rate.as_bits_per_second().max(1) as f64
        });
        let packets = bytes as f64 / mss_bytes.max(1) as f64;
        let mut parts = vec![
            (Part::Call, self.call.as_s_f64()),
            (Part::Packets, self.packet.as_s_f64() * packets),
            (Part::Bytes, copy),
            (Part::Pages, self.page.as_s_f64() * pages as f64),
        ];
        parts.retain(|(_, seconds)| *seconds > 0.0);
        parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        let write = self.write;
        (bytes > 0 && !parts.is_empty()).then_some(Bill { write, parts })
    }
}

impl Bill {
    fn seconds(&self) -> f64 {
        self.parts.iter().map(|(_, seconds)| seconds).sum()
    }

    pub(crate) fn rate(&self, streams: u32) -> Option<Rate> {
        let bits = self.write.as_u64() as f64 * 8.0;
        let rate = bits_per_second(bits / self.seconds() * f64::from(streams.max(1)));
        // Below 1 b/s there is nothing to compare with.
        (rate > Rate::default()).then_some(rate)
    }

    /// What takes most of it.
    pub(crate) fn most(&self) -> Part {
        self.parts.first().map_or(Part::Call, |(part, _)| *part)
    }

    /// `4 x 128 KiB / 1.276 ms`.
    pub(crate) fn quotient(&self, streams: u32) -> String {
        let times = crate::text::times(streams);
        format!("{times}{} / {}", self.write, time(self.seconds()))
    }

    /// `1.26 ms for its bytes, 15.2 us for the call`.
    pub(crate) fn parts_in_words(&self) -> String {
        let parts = self.parts.iter();
        let words =
            parts.map(|(part, seconds)| format!("{} for {}", time(*seconds), part.of_write()));
        words.collect::<Vec<_>>().join(", ")
    }
}

impl Part {
    const fn of_write(self) -> &'static str {
        match self {
            Self::Call => "the call",
            Self::Packets => "its packets",
            Self::Bytes => "its bytes",
            Self::Pages => "its pages",
        }
    }

    /// What a cost is declared for.
    pub(crate) const fn each(self) -> &'static str {
        match self {
            Self::Call => "write",
            Self::Packets => "packet",
            Self::Bytes => "byte",
            Self::Pages => "page",
        }
    }
}

fn time(seconds: f64) -> Duration {
    throughput::models::seconds(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(n: u64) -> Duration {
        Duration::from_us(n)
    }

    /// `unicos` of paths/cray-buffers.toml.
    fn buffers() -> WriteCost {
        WriteCost {
            write: Bytes::new(128 << 10),
            call: Duration::from_ns(15_200),
            copy: Some(Rate::from_bits_per_second(8 * 104_000_000)),
            ..WriteCost::default()
        }
    }

    #[test]
    fn a_write_takes_the_sum_of_its_parts() {
        let bill = buffers().bill(1_448).unwrap();
        assert_eq!(bill.quotient(1), "128 KiB / 1.276 ms");
        assert_eq!(bill.quotient(4), "4 x 128 KiB / 1.276 ms");
        assert_eq!(
            bill.parts_in_words(),
            "1.26 ms for its bytes, 15.2 us for the call"
        );
        assert_eq!(bill.most(), Part::Bytes);
        assert_eq!(bill.rate(1).unwrap().to_string(), "822.1 Mb/s");
        // Each stream spends by itself.
        assert_eq!(bill.rate(2).unwrap().to_string(), "1.644 Gb/s");
        assert_eq!(bill.rate(0), bill.rate(1));
    }

    /// `unicos` and `solaris` of paths/cray-writes.toml: the rates that its comments work out.
    #[test]
    fn pages_count_whole_and_packets_in_part() {
        let unicos = |bytes| WriteCost {
            write: Bytes::new(bytes),
            call: Duration::from_ns(12_800),
            copy: Some(Rate::from_bits_per_second(8 * 250_000_000)),
            page: us(49),
            page_size: Bytes::new(8 << 10),
            ..WriteCost::default()
        };
        let seconds = |bytes| unicos(bytes).bill(1_448).unwrap().seconds();
        assert!((seconds(3_500) - 75.8e-6).abs() < 1e-9);
        // One byte more is one page more.
        let more = seconds((8 << 10) + 1) - seconds(8 << 10);
        assert!((more - 49.004e-6).abs() < 1e-9, "{more}");
        let solaris = WriteCost {
            write: Bytes::new(1_448),
            packet: us(29),
            ..WriteCost::default()
        };
        assert_eq!(solaris.rate(1_448, 1).unwrap().to_string(), "399.4 Mb/s");
        let half = WriteCost {
            write: Bytes::new(724),
            ..solaris
        };
        assert_eq!(half.rate(1_448, 1), solaris.rate(1_448, 1));
    }

    #[test]
    fn what_costs_nothing_allows_anything() {
        assert_eq!(WriteCost::default().rate(1_448, 1), None);
        let page = WriteCost {
            write: Bytes::new(1),
            page: us(1),
            ..WriteCost::default()
        };
        assert_eq!(page.rate(1_448, 1), None);
        let nothing_written = WriteCost {
            write: Bytes::new(0),
            ..buffers()
        };
        assert_eq!(nothing_written.rate(1_448, 1), None);
    }
}
