//! What held the senders where a curve is level, by their kernel's clocks: a setting that makes no
//! difference is no finding until it is said what does.

use explain::sweep::Estimate;
use measure::{Outcome, Sample, SampleKind};
use report::model::SweepCurve;

use super::{BUFFERS, Point};
use crate::sweep::Axis;

/// Shares of the time after the ramp that the receiver's window and the send buffer held the streams, as
/// the sender's kernel counts (`tcpi_rwnd_limited`, `tcpi_sndbuf_limited`).
pub(super) fn shares(outcome: &Outcome) -> Option<[f64; 2]> {
    let periodic = |s: &&Sample| s.kind == SampleKind::Periodic && s.t >= outcome.config.ramp;
    let (mut held, mut time) = ([0.0; 2], 0.0);
    for stream in 0..outcome.config.streams {
        let of_stream = |s: &&Sample| s.stream == stream;
        let samples = outcome.sender.samples.iter();
        let mut seen = samples.filter(periodic).filter(of_stream);
        let (first, last) = (seen.next()?, seen.next_back()?);
        let so_far = |s: &Sample| [s.info.rwnd_limited_us, s.info.sndbuf_limited_us];
        for ((held, after), before) in held.iter_mut().zip(so_far(last)).zip(so_far(first)) {
            *held += after.saturating_sub(before) as f64 / 1e6;
        }
        time += (last.t - first.t).as_s_f64();
    }
    (time > 0.0).then(|| held.map(|held| (held / time).min(1.0)))
}

/// Says of a level curve, or of a plateau, which of the two held its senders for most of the time, if one
/// did. Not where buffers are varied, of which the sentence says more.
pub(super) fn note(curve: &mut SweepCurve, axes: &[Axis], points: &[&Point]) {
    let from = match curve.shape.as_str() {
        "flat" => 0,
        "knee" => curve.knee_measured.unwrap_or(u64::MAX),
        _ => return,
    };
    if axes.iter().any(|axis| BUFFERS.contains(&axis.kind)) {
        return;
    }
    let level = points.iter().filter(|p| p.settings[0] >= from);
    let seen: Option<Vec<[f64; 2]>> = level.map(|p| of_point(p)).collect();
    let Some(seen) = seen.filter(|seen| !seen.is_empty()) else {
        return;
    };
    for (n, (name, spoken)) in HOLDERS.into_iter().enumerate() {
        // A single point that something else held would belie it.
        let least = seen.iter().map(|shares| shares[n]).fold(1.0, f64::min);
        if least >= MOST {
            curve.held_by = Some(name.to_owned());
            let share = 100.0 * least;
            let there = if from == 0 { "" } else { " there" };
            curve.sentence.push_str(&format!(
                "; the {spoken} limits{there}: by the sender's kernel for {share:.0} % of the time at least"
            ));
            return;
        }
    }
}

/// Medians of a point's measurements.
fn of_point(point: &Point) -> Option<[f64; 2]> {
    let of = |n: usize| {
        let seen = point.made.iter().filter_map(|m| Some(m.held_by?[n]));
        Some(Estimate::of(&seen.collect::<Vec<_>>())?.median)
    };
    Some([of(0)?, of(1)?])
}

/// As run.json has them, and in words.
const HOLDERS: [(&str, &str); 2] = [
    ("receive_window", "receive window"),
    ("send_buffer", "send buffer"),
];
const MOST: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::{Made, Task};

    fn points(shares: &[[f64; 2]]) -> Vec<Point> {
        let each = (1..).map(|n| 1024 * n).zip(shares);
        each.map(|(setting, &held_by)| {
            let made = Made {
                held_by: Some(held_by),
                ..Made::default()
            };
            Point {
                made: vec![made; 3],
                ..Point::new(vec![setting], Task::Transfer)
            }
        })
        .collect()
    }

    fn noted(shape: &str, axis: &str, points: &[Point]) -> SweepCurve {
        let mut curve = SweepCurve {
            shape: shape.to_owned(),
            knee_measured: (shape == "knee").then_some(2048),
            ..SweepCurve::default()
        };
        let axes = [Axis::parse(axis).unwrap()];
        note(&mut curve, &axes, &points.iter().collect::<Vec<_>>());
        curve
    }

    #[test]
    fn a_level_curve_says_what_held_its_senders() {
        let window = points(&[[0.9, 0.0], [0.98, 0.1], [0.95, 0.0]]);
        let flat = noted("flat", "write-size=1KiB..4KiB", &window);
        assert_eq!(flat.held_by.as_deref(), Some("receive_window"));
        let says =
            "; the receive window limits: by the sender's kernel for 90 % of the time at least";
        assert_eq!(flat.sentence, says);
        let buffer = points(&[[0.1, 0.0], [0.0, 0.7], [0.0, 0.8]]);
        let knee = noted("knee", "write-size=1KiB..4KiB", &buffer);
        assert_eq!(knee.held_by.as_deref(), Some("send_buffer"));
        assert!(knee.sentence.contains("limits there"), "{}", knee.sentence);
    }

    #[test]
    fn nothing_is_said_where_something_else_may_have_held_them() {
        let mixed = points(&[[0.9, 0.0], [0.2, 0.0], [0.95, 0.0]]);
        let window = points(&[[0.9, 0.0]; 3]);
        let mut unwatched = points(&[[0.9, 0.0]; 3]);
        for made in &mut unwatched[1].made {
            made.held_by = None;
        }
        for (shape, axis, points) in [
            ("flat", "write-size=1KiB..4KiB", &mixed),
            ("flat", "write-size=1KiB..4KiB", &unwatched),
            ("rising", "write-size=1KiB..4KiB", &window),
            ("flat", "socket-buffer=1KiB..4KiB", &window),
        ] {
            let curve = noted(shape, axis, points);
            assert_eq!((curve.held_by, curve.sentence.as_str()), (None, ""));
        }
    }
}
