//! How soon and how closely senders came to their path's rate, from samples of their `tcp_info`.

#![allow(clippy::cast_precision_loss, reason = "bytes and times far below 2^53")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates and times are positive and far below 2^63"
)]

use std::collections::BTreeMap;

use crate::model::{SampleRecord, Settling};

/// Round trips that a search has before it is judged.
pub const ROUNDS: u64 = 20;

/// What is known of the path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// Payload bits a second that it can carry.
    pub achievable_bits_per_second: Option<u64>,
    /// Bits a second of the bottleneck's line.
    pub rate_bits_per_second: Option<u64>,
}

/// A sender at a moment.
#[derive(Clone, Copy, Debug)]
struct At {
    t_ns: u64,
    acked: u64,
    rtt_ns: u64,
    /// Bits a second; 0 where there is no ceiling.
    ceiling: u64,
    again: u64,
}

/// `None` where there are too few samples.
pub fn of(samples: &[SampleRecord], phase: &str, known: Known) -> Option<Settling> {
    let streams = senders(samples, phase);
    let end_ns = streams
        .iter()
        .filter_map(|s| s.last())
        .map(|a| a.t_ns)
        .min()?;
    let all = || streams.iter().flatten();
    let least = samples
        .iter()
        .filter(|s| s.phase == phase)
        .filter_map(|s| s.tcp_info.get("min_rtt_us"))
        .filter(|us| **us > 0 && **us < u64::from(u32::MAX))
        .min();
    let round_trip_ns = all()
        .map(|a| a.rtt_ns)
        .filter(|ns| *ns > 0)
        .chain(least.map(|us| us * 1_000))
        .min()?;
    let from_ns = ROUNDS * round_trip_ns;
    if streams.iter().any(|s| s.len() < 4) || from_ns >= end_ns {
        return None;
    }
    let rate = |from: u64, to: u64| streams.iter().map(|s| acked(s, from, to)).sum::<f64>();
    let goodput = rate(from_ns, end_ns);
    let (queue_share, queue_share_p95) = queue(&streams, from_ns, round_trip_ns);
    let held = (all().any(|a| a.ceiling > 0)).then(|| {
        let of = |s: &Vec<At>| median(s.iter().filter(|a| a.t_ns >= from_ns).map(|a| a.ceiling));
        streams.iter().map(of).sum::<u64>()
    });
    let line = |bits: u64| {
        let (line, payload) = (
            known.rate_bits_per_second?,
            known.achievable_bits_per_second?,
        );
        Some((bits as f64 * line as f64 / payload as f64) as u64)
    };
    let late = end_ns - (end_ns - from_ns) / 4;
    let parts: Vec<f64> = streams.iter().map(|s| acked(s, late, end_ns)).collect();
    Some(Settling {
        round_trip_ns,
        from_ns,
        goodput_bits_per_second: goodput as u64,
        share: known.achievable_bits_per_second.map(|a| goodput / a as f64),
        reached_round_trips: known
            .achievable_bits_per_second
            .and_then(|a| reached(&streams, a as f64 * 0.95, round_trip_ns, end_ns)),
        queue_share,
        queue_share_p95,
        settled_round_trips: held.and_then(|_| settled(&streams, from_ns, round_trip_ns)),
        held_bits_per_second: held,
        held_line_bits_per_second: held.and_then(line),
        jain: jain(&parts),
        part_after_ns: known
            .achievable_bits_per_second
            .and_then(|a| part_after(&streams, a as f64, round_trip_ns, end_ns)),
        retransmitted: streams.iter().map(|s| again_after(s, from_ns)).sum(),
    })
}

fn senders(samples: &[SampleRecord], phase: &str) -> Vec<Vec<At>> {
    let mut streams: BTreeMap<u32, Vec<At>> = BTreeMap::new();
    let of_phase = samples
        .iter()
        .filter(|s| s.phase == phase && s.end == "sender");
    for sample in of_phase {
        let field = |name: &str| sample.tcp_info.get(name).copied().unwrap_or(0);
        // What no ceiling is set on has the largest that there is.
        let ceiling = field("max_pacing_rate_bytes_per_second");
        streams.entry(sample.stream).or_default().push(At {
            t_ns: sample.t_ns,
            acked: field("bytes_acked"),
            rtt_ns: field("rtt_us") * 1_000,
            ceiling: if ceiling >= 1 << 48 { 0 } else { ceiling * 8 },
            again: field("total_retrans_segments"),
        });
    }
    let mut streams: Vec<Vec<At>> = streams.into_values().collect();
    for stream in &mut streams {
        stream.sort_by_key(|a| a.t_ns);
    }
    streams
}

/// Bits a second acknowledged between two times.
fn acked(stream: &[At], from_ns: u64, to_ns: u64) -> f64 {
    let at = |t: u64| {
        let after = stream.partition_point(|a| a.t_ns < t);
        let (Some(b), Some(a)) = (stream.get(after), stream.get(after.saturating_sub(1))) else {
            return stream.last().map_or(0.0, |a| a.acked as f64);
        };
        let part = match b.t_ns - a.t_ns {
            0 => 0.0,
            span => t.saturating_sub(a.t_ns) as f64 / span as f64,
        };
        a.acked as f64 + part * b.acked.saturating_sub(a.acked) as f64
    };
    (at(to_ns) - at(from_ns)) * 8e9 / to_ns.saturating_sub(from_ns).max(1) as f64
}

fn again_after(stream: &[At], from_ns: u64) -> u64 {
    let then = stream.iter().find(|a| a.t_ns >= from_ns);
    let last = stream.last().map_or(0, |a| a.again);
    last - then.map_or(last, |a| a.again).min(last)
}

/// Mean and 95th percentile of the round trip's growth, weighted by time.
fn queue(streams: &[Vec<At>], from_ns: u64, base_ns: u64) -> (f64, f64) {
    let mut grown: Vec<(f64, f64)> = Vec::new();
    for pair in streams.iter().flat_map(|s| s.windows(2)) {
        let [a, b] = pair else { continue };
        if a.t_ns >= from_ns && b.rtt_ns > 0 {
            let share = b.rtt_ns.saturating_sub(base_ns) as f64 / base_ns as f64;
            grown.push((share, (b.t_ns - a.t_ns) as f64));
        }
    }
    let total: f64 = grown.iter().map(|g| g.1).sum();
    if total <= 0.0 {
        return (0.0, 0.0);
    }
    let mean = grown.iter().map(|g| g.0 * g.1).sum::<f64>() / total;
    grown.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut seen = 0.0;
    let p95 = grown.iter().find(|g| {
        seen += g.1;
        seen >= total * 0.95
    });
    (mean, p95.map_or(0.0, |g| g.0))
}

/// The grid on which rates are looked at: no finer than the samples.
fn step(streams: &[Vec<At>], end_ns: u64) -> u64 {
    let most = streams.iter().map(Vec::len).max().unwrap_or(1);
    (end_ns / most.max(1) as u64).max(1)
}

fn reached(streams: &[Vec<At>], wanted: f64, round_trip_ns: u64, end_ns: u64) -> Option<f64> {
    let step = step(streams, end_ns);
    let span = round_trip_ns.max(10 * step.min(round_trip_ns));
    let mut to = span;
    while to <= end_ns {
        let rate: f64 = streams.iter().map(|s| acked(s, to - span, to)).sum();
        if rate >= wanted {
            return Some(to as f64 / round_trip_ns as f64);
        }
        to += step;
    }
    None
}

/// When the ceilings' sum came within a tenth of its median and stayed there for 9/10 of the time.
fn settled(streams: &[Vec<At>], from_ns: u64, round_trip_ns: u64) -> Option<f64> {
    // One stream's is the path's; of several each has its own way.
    let first = streams.first()?;
    let median = median(
        first
            .iter()
            .filter(|a| a.t_ns >= from_ns)
            .map(|a| a.ceiling),
    ) as f64;
    let is_near = |a: &At| (a.ceiling as f64 - median).abs() <= median / 10.0;
    let mut near = 0;
    let mut best = None;
    for (later, at) in first.iter().rev().zip(1_usize..).map(|(a, n)| (n, a)) {
        near += usize::from(is_near(at));
        if near * 10 >= later * 9 && is_near(at) {
            best = Some(at.t_ns);
        }
    }
    best.map(|ns| ns as f64 / round_trip_ns as f64)
}

fn part_after(streams: &[Vec<At>], all: f64, round_trip_ns: u64, end_ns: u64) -> Option<u64> {
    if streams.len() < 2 {
        return None;
    }
    let began = |s: &Vec<At>| s.iter().find(|a| a.acked > 0).map_or(0, |a| a.t_ns);
    let last = streams.iter().max_by_key(|s| began(s))?;
    let began = began(last);
    let wanted = all / streams.len() as f64 * 0.9;
    let span = (20 * round_trip_ns).max(2_000_000_000);
    let mut to = began + span;
    while to <= end_ns {
        if acked(last, to - span, to) >= wanted {
            return Some(to - span - began);
        }
        to += step(streams, end_ns);
    }
    None
}

fn jain(parts: &[f64]) -> f64 {
    let sum: f64 = parts.iter().sum();
    let squares: f64 = parts.iter().map(|p| p * p).sum();
    if squares > 0.0 {
        sum * sum / (parts.len() as f64 * squares)
    } else {
        1.0
    }
}

fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut all: Vec<u64> = values.collect();
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender that doubles until it has all of 80 Mb/s, on 100 ms, with a queue of a tenth now and then.
    fn samples() -> Vec<SampleRecord> {
        let (mut all, mut acked) = (Vec::new(), 0);
        for n in 0..1_000_u64 {
            let rate = (10_000 << (n / 10).min(10)).min(100_000);
            acked += rate;
            let fields = [
                ("bytes_acked", acked),
                ("rtt_us", if n % 10 == 9 { 110_000 } else { 100_000 }),
                ("max_pacing_rate_bytes_per_second", rate * 100),
                ("total_retrans_segments", n / 500),
            ];
            all.push(SampleRecord {
                phase: "p".to_owned(),
                end: "sender".to_owned(),
                t_ns: n * 10_000_000,
                tcp_info: fields.map(|(k, v)| (k.to_owned(), v)).into(),
                ..SampleRecord::default()
            });
        }
        all
    }

    #[test]
    fn rates_queue_and_rounds_are_those_of_the_samples() {
        let known = Known {
            achievable_bits_per_second: Some(80_000_000),
            rate_bits_per_second: Some(100_000_000),
        };
        let found = of(&samples(), "p", known).unwrap();
        assert_eq!(found.round_trip_ns, 100_000_000);
        assert!((found.share.unwrap() - 1.0).abs() < 1e-6, "{found:?}");
        // 10, 20, 40, 80, 100 % of the rate for a round trip each.
        let reached = found.reached_round_trips.unwrap();
        assert!((4.5..=5.2).contains(&reached), "{reached}");
        assert!((found.queue_share - 0.01).abs() < 1e-3, "{found:?}");
        assert!((found.queue_share_p95 - 0.1).abs() < 1e-9, "{found:?}");
        assert_eq!(found.held_bits_per_second, Some(80_000_000));
        assert_eq!(found.held_line_bits_per_second, Some(100_000_000));
        // Ten per cent of what follows may be elsewhere.
        assert!(found.settled_round_trips.unwrap() <= 4.0, "{found:?}");
        assert!((found.jain - 1.0).abs() < 1e-9 && found.part_after_ns.is_none());
        assert_eq!(found.retransmitted, 1);
    }

    #[test]
    fn of_two_streams_the_later_one_comes_to_its_part() {
        let mut all = samples();
        let late = samples().into_iter().map(|mut s| {
            s.stream = 1;
            let acked = s.t_ns.saturating_sub(4_000_000_000) / 100;
            s.tcp_info.insert("bytes_acked".to_owned(), acked);
            s
        });
        all.extend(late);
        let known = Known {
            achievable_bits_per_second: Some(160_000_000),
            ..Known::default()
        };
        let found = of(&all, "p", known).unwrap();
        assert!((found.jain - 1.0).abs() < 1e-3, "{found:?}");
        assert!(found.part_after_ns.unwrap() < 100_000_000, "{found:?}");
    }

    #[test]
    fn too_short_a_transfer_says_nothing() {
        assert_eq!(of(&samples()[..150], "p", Known::default()), None);
        assert_eq!(of(&[], "p", Known::default()), None);
    }
}
