//! A modelled fabric: goodput by message size for each transport, and what bounds each case.

use super::sweep::{chart, dash, row, table_head};
use super::{left_out, shown};
use crate::model::{FabricCurve, FabricRun, Run, Sweep, SweepAxis, SweepCurve, SweepPoint};
use crate::text;

/// Nothing where no fabric was modelled.
pub(super) fn section(out: &mut String, run: &Run) {
    let Some(fabric) = run.fabric.as_ref().filter(|f| !f.curves.is_empty()) else {
        return;
    };
    out.push_str("<section>\n<h2>Goodput by the size of a message</h2>\n");
    let mut transports: Vec<&str> = Vec::new();
    for curve in &fabric.curves {
        if !transports.contains(&curve.transport.as_str()) && transports.len() < TRANSPORTS_MAX {
            transports.push(&curve.transport);
        }
    }
    for transport in transports {
        let drawn = as_sweep(fabric, transport);
        // A line wants two ends.
        if let Some(axis) = drawn.axes.first().filter(|a| a.values.len() > 1) {
            put!(out, "<h3>{}</h3>\n", shown(&transport.to_ascii_uppercase()));
            chart(out, &drawn, axis, "a line for each case");
        }
    }
    cases(out, fabric);
    bounds(out, fabric);
    out.push_str("</section>\n");
}

fn as_sweep(fabric: &FabricRun, transport: &str) -> Sweep {
    let curves = || {
        let of_it = fabric.curves.iter().filter(|c| c.transport == transport);
        of_it.take(ROWS_MAX)
    };
    let mut values: Vec<u64> = curves()
        .flat_map(|c| c.points.iter().take(ROWS_MAX))
        .map(|p| p.message_bytes.into())
        .collect();
    values.sort_unstable();
    values.dedup();
    let points = curves().flat_map(|c| {
        c.points.iter().take(ROWS_MAX).map(|p| SweepPoint {
            settings: vec![p.message_bytes.into()],
            goodput_bits_per_second: p.goodput_bits_per_second,
            pattern: Some(c.name.clone()),
            ..SweepPoint::default()
        })
    });
    Sweep {
        points: points.collect(),
        curves: curves()
            .map(|c| SweepCurve {
                pattern: Some(c.name.clone()),
                sentence: c.name.clone(),
                ..SweepCurve::default()
            })
            .collect(),
        axes: vec![SweepAxis {
            name: "message-size".to_owned(),
            unit: "bytes".to_owned(),
            values,
            names: Vec::new(),
        }],
        ..Sweep::default()
    }
}

fn cases(out: &mut String, fabric: &FabricRun) {
    out.push_str("<div class=\"scroll\">");
    table_head(
        out,
        &[
            "case",
            "goodput",
            "below the first",
            "bound by",
            "off the formula",
            "latency",
        ],
    );
    for curve in fabric.curves.iter().take(ROWS_MAX) {
        row(out, &cells(curve), false);
    }
    out.push_str("</tbody></table></div>\n");
    left_out(out, fabric.curves.len(), ROWS_MAX, "cases");
}

/// A case in a line: as the terminal has it too.
pub(crate) fn cells(curve: &FabricCurve) -> [String; 6] {
    let latency = curve.points.iter().find_map(|p| p.latency_ns);
    [
        text::plain(&curve.name),
        megabytes(curve.peak_bits_per_second),
        match curve.below_first_bits_per_second {
            0 => dash(),
            below => megabytes(below),
        },
        text::plain(&curve.limit).replace('_', " "),
        format!("{:.4} %", curve.formula_difference_max * 100.0),
        latency.map_or_else(dash, |ns| format!("{:.2} us", ns / 1e3)),
    ]
}

/// As tools for these fabrics say it: 10^6 bytes a second.
fn megabytes(bits_per_second: u64) -> String {
    format!("{:.1} MB/s", bits_per_second as f64 / 8e6)
}

fn bounds(out: &mut String, fabric: &FabricRun) {
    out.push_str(
        "<details>\n<summary>What each part lets through</summary>\n<div class=\"scroll\">",
    );
    table_head(out, &["case", "part", "at", "lets through", "since"]);
    let all = || {
        let curves = fabric.curves.iter().take(ROWS_MAX);
        curves.flat_map(|c| c.bounds.iter().map(move |b| (c, b)))
    };
    for (curve, bound) in all().take(ROWS_MAX) {
        let cells = [
            curve.name.clone(),
            bound.part.replace('_', " "),
            bound.place.clone(),
            megabytes(bound.bits_per_second),
            bound.how.clone(),
        ];
        row(out, &cells, false);
    }
    out.push_str("</tbody></table></div>\n");
    left_out(out, all().count(), ROWS_MAX, "bounds");
    out.push_str("</details>\n");
}

/// A file has 64 cases at most, of three transports each.
const ROWS_MAX: usize = 200;
const TRANSPORTS_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FabricBound, FabricPoint};

    #[test]
    fn a_case_has_its_line_its_bounds_and_no_markup_of_its_own() {
        let point = |message_bytes| FabricPoint {
            message_bytes,
            goodput_bits_per_second: 8_000_000_000,
            ..FabricPoint::default()
        };
        let run = Run {
            fabric: Some(FabricRun {
                curves: vec![FabricCurve {
                    name: "rc-<b>".to_owned(),
                    transport: "rc".to_owned(),
                    peak_bits_per_second: 8_000_000_000,
                    below_first_bits_per_second: 4_000_000_000,
                    limit: "credits".to_owned(),
                    bounds: vec![FabricBound {
                        part: "credits".to_owned(),
                        how: "2 packets".to_owned(),
                        ..FabricBound::default()
                    }],
                    points: vec![point(2), point(4)],
                    ..FabricCurve::default()
                }],
                ..FabricRun::default()
            }),
            ..Run::default()
        };
        let mut out = String::new();
        section(&mut out, &run);
        assert!(out.contains("<svg") && out.contains("1000.0 MB/s"), "{out}");
        assert!(
            out.contains("500.0 MB/s") && out.contains("2 packets"),
            "{out}"
        );
        assert!(!out.contains("<b>"), "{out}");
    }
}
