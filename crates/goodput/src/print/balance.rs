//! How parallel streams shared a lab's queue, as text.

use std::fmt::Write as _;

use report::model::Balance;
use units::{Bytes, Duration, Rate};

use super::wrapped;

/// The record as a table and lines of at most `width` columns.
pub(crate) fn text(record: &Balance, width: usize) -> String {
    let whole = Duration::from_ns(record.time_ns);
    let mut text = format!(
        "{} streams through {} in {whole}\n  stream            rate    lost  first loss   part done\n",
        record.streams.len(),
        record.link,
    );
    let time =
        |at: Option<u64>| at.map_or_else(|| "-".to_owned(), |at| Duration::from_ns(at).to_string());
    for (number, stream) in record.streams.iter().enumerate() {
        let rate = Rate::average(Bytes::new(stream.wire_bytes), whole).to_string();
        let _ = writeln!(
            text,
            "  {number:>6} {rate:>15} {:>7} {:>11} {:>11}",
            stream.lost_segments,
            time(stream.first_lost_ns),
            time(stream.striped_ns)
        );
    }
    let mut balance = |what: &str, min_to_mean: f64, jain: f64| {
        let _ = writeln!(text, "{what}: min/mean {min_to_mean:.3}, Jain {jain:.3}");
    };
    balance("all", record.min_to_mean, record.jain);
    for s in &record.sections {
        let what = format!("sections of {}, median", Duration::from_ns(s.length_ns));
        balance(&what, s.min_to_mean_median, s.jain_median);
    }
    let mut line = |words: &str| text += &wrapped(words, 2, width);
    line(&format!(
        "burst order {}, loss order {}; delay before the queue: mean {}, max {}",
        record.burst_order,
        record.loss_order,
        Duration::from_ns(record.to_queue_mean_ns),
        Duration::from_ns(record.to_queue_max_ns)
    ));
    if record.log_missing > 0 {
        line(&format!(
            "{} entries of the packet log are missing: the log writer fell behind",
            record.log_missing
        ));
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use report::model::{BalanceSections, BalancedStream};

    pub(crate) fn record() -> Balance {
        let stream = |flow, wire_bytes, lost_segments, first_lost_ns, striped_ns| BalancedStream {
            flow,
            wire_bytes,
            lost_segments,
            first_lost_ns,
            striped_ns,
        };
        Balance {
            link: "line/queue".to_owned(),
            time_ns: 30_000_000_000,
            streams: vec![
                stream(
                    0x1f,
                    941_000_000,
                    12,
                    Some(1_204_000_000),
                    Some(27_300_000_000),
                ),
                stream(0x2e, 1_204_000_000, 0, None, Some(21_100_000_000)),
                stream(0x3d, 388_400_000, 1_310, Some(988_000_000), None),
            ],
            burst_order: "0,2,1".to_owned(),
            loss_order: "2,0".to_owned(),
            min_to_mean: 0.46,
            jain: 0.862,
            sections: vec![BalanceSections {
                length_ns: 1_000_000_000,
                min_to_mean_median: 0.41,
                jain_median: 0.85,
            }],
            to_queue_mean_ns: 14_200,
            to_queue_max_ns: 1_040_000,
            log_missing: 318,
            ..Balance::default()
        }
    }

    #[test]
    fn three_unequal_streams_as_text() {
        crate::print::golden!("balance", |width| text(&record(), width));
    }
}
