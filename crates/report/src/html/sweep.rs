//! A sweep: its curves with their knees, as a map of shades where two things were varied, and every
//! point with what it rests on.

use super::{left_out, shown, shown_sentence};
use crate::model::{Run, Sweep, SweepAxis, SweepCurve, SweepPoint};
use crate::svg::{Axis, Chart};
use crate::text;

/// Nothing where the run is no sweep.
pub(super) fn section(out: &mut String, run: &Run) {
    let Some(sweep) = &run.sweep else { return };
    let Some(first) = sweep.axes.first().filter(|a| !a.values.is_empty()) else {
        return;
    };
    put!(
        out,
        "<section>\n<h2>Goodput by {}{}</h2>\n",
        shown(&first.name),
        sweep.axes.get(1).map_or_else(String::new, |a| format!(
            " <span>and by {}</span>",
            shown(&a.name)
        ))
    );
    chart(out, sweep, first);
    sentences(out, sweep);
    if sweep.axes.len() > 1 {
        heat_map(out, sweep);
    }
    grounds(out, sweep);
    points(out, sweep);
    out.push_str("</section>\n");
}

fn chart(out: &mut String, sweep: &Sweep, axis: &SweepAxis) {
    let place = |setting: u64| (setting.max(1) as f64).log2();
    let (low, high) = (
        place(axis.values[0]),
        place(axis.values.last().copied().unwrap_or(1)),
    );
    let span = (high - low).max(1.0);
    let step = axis.values.len().div_ceil(TICKS_MAX).max(1);
    let ticks = axis.values.iter().take(POINTS_MAX).step_by(step);
    let x = Axis {
        max: span,
        ticks: ticks.map(|&v| (place(v) - low, setting(axis, v))).collect(),
        unit: "",
    };
    let largest = sweep.points.iter().map(|p| p.goodput_bits_per_second).max();
    let y = Axis::rate(largest.unwrap_or(0) as f64).with_label_room();
    let curves = sweep.curves.iter().take(CURVES_MAX).enumerate();
    let keys: Vec<String> = curves
        .clone()
        .filter_map(|(n, c)| Some((n, sweep.axes.get(1)?, c.second?)))
        .map(|(n, second, value)| {
            format!(
                "<span class=\"key\"><i class=\"line c{}\"></i>{}</span>",
                n % COLOURS,
                shown(&setting(second, value))
            )
        })
        .collect();
    put!(
        out,
        "<h4>Goodput <span>{}, median and 95 % interval of each point; a ring falls out of its neighbours</span></h4>\n\
         <div class=\"keys\">{}</div>\n<div class=\"plot\">\n",
        y.unit,
        keys.concat()
    );
    let mut chart = Chart::new("goodput of the sweep", 300, x, y);
    for (n, curve) in curves {
        let class = format!("c{}", n % COLOURS);
        let of_curve: Vec<&SweepPoint> = points_of(sweep, curve).take(POINTS_MAX).collect();
        let line: Vec<(f64, f64)> = of_curve
            .iter()
            .map(|p| (place(p.settings[0]) - low, p.goodput_bits_per_second as f64))
            .collect();
        chart = chart.line(&class, &text::plain(&curve.sentence), &line);
        for (point, &(x, y)) in of_curve.iter().zip(&line) {
            let title = format!(
                "{}: {}{}",
                setting(axis, point.settings[0]),
                text::rate(point.goodput_bits_per_second),
                point
                    .error
                    .map_or_else(String::new, |e| format!(" ± {}", text::percent(e)))
            );
            if let Some(error) = point.error.filter(|e| e.is_finite()) {
                let sure = (y * (1.0 - error).max(0.0), y * (1.0 + error.min(2.0)));
                chart = chart.whisker(&class, x, sure);
            }
            let mark = if point.anomaly { "anomaly" } else { "" };
            chart = chart.dot(&format!("{class} {mark}"), &title, x, y);
        }
        if let Some(knee) = curve.knee {
            let label = setting(axis, knee);
            chart = chart.vertical(&class, &label, place(knee) - low);
        }
    }
    put!(out, "{}</div>\n", chart.render());
}

fn sentences(out: &mut String, sweep: &Sweep) {
    out.push_str("<ul>\n");
    for curve in sweep.curves.iter().take(CURVES_MAX) {
        put!(out, "<li>{}</li>\n", shown_sentence(&curve.sentence));
    }
    out.push_str("</ul>\n");
    left_out(out, sweep.curves.len(), CURVES_MAX, "curves");
}

/// Every combination, shaded by its share of the highest.
fn heat_map(out: &mut String, sweep: &Sweep) {
    let [across, down, ..] = sweep.axes.as_slice() else {
        return;
    };
    let highest = sweep.points.iter().map(|p| p.goodput_bits_per_second).max();
    let highest = highest.unwrap_or(0).max(1) as f64;
    put!(
        out,
        "<h4>All combinations <span>{} across, {} down; darker is faster</span></h4>\n\
         <div class=\"scroll\"><table class=\"heat\">\n<thead><tr><td></td>",
        shown(&across.name),
        shown(&down.name)
    );
    for &value in across.values.iter().take(POINTS_MAX) {
        put!(
            out,
            "<th scope=\"col\">{}</th>",
            shown(&setting(across, value))
        );
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for &second in down.values.iter().take(CURVES_MAX) {
        put!(
            out,
            "<tr><th scope=\"row\">{}</th>",
            shown(&setting(down, second))
        );
        for &first in across.values.iter().take(POINTS_MAX) {
            let at = |p: &&SweepPoint| p.settings == [first, second];
            match sweep.points.iter().find(at) {
                Some(p) => put!(
                    out,
                    "<td style=\"--share:{:.2}\">{}</td>",
                    (p.goodput_bits_per_second as f64 / highest).clamp(0.0, 1.0),
                    text::rate(p.goodput_bits_per_second)
                ),
                None => out.push_str("<td>–</td>"),
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
}

fn grounds(out: &mut String, sweep: &Sweep) {
    let transfers: usize = sweep
        .points
        .iter()
        .map(|p| p.each_bits_per_second.len())
        .sum();
    put!(
        out,
        "<p class=\"note\">{} of {} each after a ramp of {}, in {} of random order (seed {}). \
         Points were repeated until half of the 95 % confidence interval was below {} of the mean{}. \
         Whole rounds differ by {}.</p>\n",
        text::plural(transfers as u64, "transfer"),
        text::duration(sweep.measured_ns),
        text::duration(sweep.ramp_ns),
        text::plural(sweep.rounds.into(), "round"),
        sweep.seed,
        text::percent(sweep.precision),
        if sweep.out_of_time {
            ", as far as the time allowed"
        } else {
            ""
        },
        text::percent(sweep.drift),
    );
    if let Some(c) = sweep.certificate.as_ref().filter(|c| !c.trusted) {
        put!(
            out,
            "<p class=\"error\">The lab fell behind: {}.</p>\n",
            shown(&c.problems.join("; "))
        );
    }
}

fn points(out: &mut String, sweep: &Sweep) {
    out.push_str("<details><summary>Every point</summary>\n<table class=\"list\">\n<thead><tr>");
    for axis in &sweep.axes {
        put!(out, "<th class=\"n\">{}</th>", shown(&axis.name));
    }
    out.push_str(
        "<th class=\"n\">median</th><th class=\"n\">± 95 %</th><th class=\"n\">transfers</th>\
         <th class=\"n\">CPUs sending</th><th class=\"n\">receiving</th><th></th></tr></thead>\n<tbody>\n",
    );
    for point in sweep.points.iter().take(ROWS_MAX) {
        out.push_str("<tr>");
        for (axis, &value) in sweep.axes.iter().zip(&point.settings) {
            put!(out, "<td class=\"n\">{}</td>", shown(&setting(axis, value)));
        }
        put!(
            out,
            "<td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{:.2}</td><td class=\"n\">{:.2}</td><td>{}</td></tr>\n",
            text::rate(point.goodput_bits_per_second),
            point.error.map_or_else(|| "–".to_owned(), text::percent),
            point.each_bits_per_second.len(),
            point.cpu_sender,
            point.cpu_receiver,
            if point.anomaly {
                "out of its neighbours"
            } else {
                ""
            }
        );
    }
    out.push_str("</tbody></table>\n");
    left_out(out, sweep.points.len(), ROWS_MAX, "points");
    out.push_str("</details>\n");
}

/// The points of a curve, in the order of the first axis.
fn points_of<'s>(sweep: &'s Sweep, curve: &SweepCurve) -> impl Iterator<Item = &'s SweepPoint> {
    let second = curve.second;
    let mut points: Vec<&SweepPoint> = sweep
        .points
        .iter()
        .filter(|p| !p.settings.is_empty() && p.settings.get(1).copied() == second)
        .collect();
    points.sort_by_key(|p| p.settings[0]);
    points.into_iter()
}

/// A setting with its unit.
pub fn setting(axis: &SweepAxis, value: u64) -> String {
    match axis.unit.as_str() {
        "bytes" => text::size(value),
        "bits_per_second" => text::rate(value),
        _ => {
            let place = usize::try_from(value).ok().and_then(|v| v.checked_sub(1));
            let name = place.and_then(|n| axis.names.get(n));
            name.map_or_else(|| value.to_string(), |name| text::plain(name))
        }
    }
}

/// As many labels as a narrow page has room for.
const TICKS_MAX: usize = 9;
const POINTS_MAX: usize = 200;
const CURVES_MAX: usize = 24;
const ROWS_MAX: usize = 1_000;
/// Colours of the style sheet.
const COLOURS: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(points: usize) -> Sweep {
        let values: Vec<u64> = (1..=points as u64).map(|n| n * 1024).collect();
        let point = |&v: &u64| SweepPoint {
            settings: vec![v],
            each_bits_per_second: vec![v; 3],
            goodput_bits_per_second: v,
            anomaly: v == 2048,
            error: Some(0.01),
            ..SweepPoint::default()
        };
        Sweep {
            points: values.iter().map(point).collect(),
            axes: vec![SweepAxis {
                name: "write-size<b>".to_owned(),
                unit: "bytes".to_owned(),
                values,
                names: Vec::new(),
            }],
            curves: vec![SweepCurve {
                shape: "knee".to_owned(),
                knee: Some(3000),
                sentence: "the knee is at <i>3 kB".to_owned(),
                ..SweepCurve::default()
            }],
            ..Sweep::default()
        }
    }

    fn page(sweep: Sweep) -> String {
        let mut out = String::new();
        let run = Run {
            sweep: Some(sweep),
            ..Run::default()
        };
        section(&mut out, &run);
        out
    }

    #[test]
    fn a_curve_has_a_dot_for_each_point_a_ring_for_what_falls_out_and_a_line_at_the_knee() {
        let out = page(sweep(8));
        assert_eq!(out.matches("class=\"dot ").count(), 8);
        assert_eq!(out.matches("anomaly\" cx").count(), 1);
        assert_eq!(out.matches("<line class=\"vertical").count(), 1);
        assert!(!out.contains("<b>") && !out.contains("<i>3"), "{out}");
        assert!(out.contains("2 KiB: 2.048 kb/s ± 1 %"), "{out}");
    }

    #[test]
    fn whatever_a_sweep_holds_the_section_is_bounded_and_whole() {
        let mut odd = sweep(3);
        odd.points[0].settings.clear();
        odd.points[1].error = Some(f64::NAN);
        odd.axes.push(SweepAxis::default());
        odd.curves = vec![SweepCurve::default(); 1_000];
        for out in [page(odd), page(sweep(50_000)), page(Sweep::default())] {
            assert!(out.len() < 1 << 20, "{}", out.len());
            assert!(!out.contains("NaN"), "{out}");
            for tag in ["svg", "table", "tr", "td", "section", "ul", "li"] {
                let opened = out.matches(&format!("<{tag}>")).count()
                    + out.matches(&format!("<{tag} ")).count();
                assert_eq!(opened, out.matches(&format!("</{tag}>")).count(), "{tag}");
            }
        }
    }
}
