//! Patterns of many hosts on a modelled fabric: rates by number of nodes, pair by pair, and where flows met.

use super::sweep::{row as table_row, table_head};
use super::{left_out, shown};
use crate::model::{FabricCable, FabricNodes, FabricRun, FabricStep, FabricStudy, Run};
use crate::svg::{Axis, Chart};
use crate::text;

/// Nothing where no pattern was run.
pub(super) fn section(out: &mut String, run: &Run) {
    let Some(fabric) = run.fabric.as_ref() else {
        return;
    };
    settings(out, fabric);
    if fabric.studies.is_empty() {
        return;
    }
    out.push_str("<section>\n");
    if fabric.studies.len() > 1 {
        comparison(out, fabric);
    }
    for study in fabric.studies.iter().take(STUDIES_MAX) {
        put!(
            out,
            "<h2>{} <span>{}, routes: {}; {}</span></h2>\n",
            shown(&study.name),
            shown(&study.pattern),
            shown(&study.routing),
            shown(&study.topology)
        );
        by_nodes(out, study);
        // Pings do not fill cables.
        let step = study
            .worst_step
            .as_ref()
            .filter(|_| study.counts != "latency");
        if let Some(step) = step {
            tree(out, study, step);
        }
        heat(out, study);
        numbers(out, study);
        if let Some(step) = step {
            cables(out, step);
        }
    }
    left_out(out, fabric.studies.len(), STUDIES_MAX, "cases");
    out.push_str("</section>\n");
}

/// The average of every case by nodes, in one picture.
fn comparison(out: &mut String, fabric: &FabricRun) {
    let rates = || {
        fabric
            .studies
            .iter()
            .filter(|s| s.counts == "rate")
            .take(STUDIES_MAX)
    };
    let several = rates().filter(|s| s.points.len() > 1).count() > 1;
    let all = fabric.studies.iter().take(STUDIES_MAX);
    put!(out, "<h2>All cases</h2>\n");
    if several {
        let x = nodes_axis(rates().flat_map(|s| &s.points));
        let largest = rates().map(|s| s.peak_bits_per_second).max().unwrap_or(0);
        let y = Axis::rate(largest as f64).with_label_room();
        let keys: String = rates()
            .enumerate()
            .map(|(n, s)| key(&format!("line c{}", n % COLOURS), &s.name))
            .collect();
        put!(
            out,
            "<h4>Average pair <span>{} by nodes</span></h4>\n<div class=\"keys\">{keys}</div>\n<div class=\"plot\">\n",
            y.unit
        );
        let mut chart = Chart::new("average pair of every case", 280, x, y);
        for (n, study) in rates().enumerate() {
            chart = points(chart, &format!("c{}", n % COLOURS), study, |p| {
                p.average_bits_per_second
            });
        }
        put!(out, "{}</div>\n", chart.render());
    }
    out.push_str("<div class=\"scroll\">");
    table_head(
        out,
        &[
            "case",
            "nodes",
            "of the best",
            "worst pair",
            "lost",
            "finding",
        ],
    );
    for study in all {
        let Some(last) = study.points.last() else {
            continue;
        };
        let lost = last
            .lost_shares
            .map_or(1.0 - last.average_share_of_peak, |l| l[0]);
        let rate = study.counts == "rate";
        let cells = [
            study.name.clone(),
            last.nodes.to_string(),
            if rate {
                percent(last.average_share_of_peak)
            } else {
                "–".to_owned()
            },
            if rate {
                percent(last.worst_share_of_best)
            } else {
                "–".to_owned()
            },
            if study.counts == "latency" {
                "–".to_owned()
            } else {
                percent(lost)
            },
            match last.flows_on_a_cable_max {
                _ if study.counts == "latency" => "–".to_owned(),
                0 | 1 => "no cable is shared".to_owned(),
                n => format!("up to {n} flows on a cable"),
            },
        ];
        table_row(out, &cells, false);
    }
    out.push_str("</tbody></table></div>\n");
}

/// Values of a sweep, a line each.
fn settings(out: &mut String, fabric: &FabricRun) {
    let Some(first) = fabric.settings.first() else {
        return;
    };
    out.push_str("<section>\n<h2>Every combination</h2>\n<div class=\"scroll\">");
    let mut heads: Vec<&str> = first
        .values
        .iter()
        .take(8)
        .map(|[key, _]| key.as_str())
        .collect();
    heads.extend(["case", "nodes", "found", "± of 95 %"]);
    table_head(out, &heads);
    let all = || {
        let settings = fabric.settings.iter();
        settings.flat_map(|s| s.studies.iter().map(move |study| (s, study)))
    };
    for (setting, study) in all().take(ROWS_MAX) {
        let Some(last) = study.points.last() else {
            continue;
        };
        let mut cells: Vec<String> = setting
            .values
            .iter()
            .take(8)
            .map(|[_, v]| v.clone())
            .collect();
        let [found, sure] = in_short(study, last);
        cells.extend([study.name.clone(), last.nodes.to_string(), found, sure]);
        table_row(out, &cells, false);
    }
    out.push_str("</tbody></table></div>\n");
    left_out(out, all().count(), ROWS_MAX, "combinations");
    out.push_str("</section>\n");
}

/// What a study found with the largest number of nodes, and how sure that is.
pub(crate) fn in_short(study: &FabricStudy, last: &FabricNodes) -> [String; 2] {
    let none = || "–".to_owned();
    match study.counts.as_str() {
        "latency" => {
            let [_, average, _] = last.latency_ns.unwrap_or_default();
            [format!("{:.2} us", average / 1e3), none()]
        }
        "time" => {
            let [lost, worst] = last.lost_shares.unwrap_or_default();
            let found = format!(
                "{} of the speed lost, worst seed {}",
                percent(lost),
                percent(worst)
            );
            [found, none()]
        }
        _ => [
            format!(
                "average {} of the best ({})",
                percent(last.average_share_of_peak),
                megabytes(last.average_bits_per_second)
            ),
            last.share_interval
                .map_or_else(none, |half| format!("{:.1} points", half * 100.0)),
        ],
    }
}

fn key(class: &str, name: &str) -> String {
    format!(
        "<span class=\"key\"><i class=\"{class}\"></i>{}</span>",
        shown(name)
    )
}

fn nodes_axis<'a>(points: impl Iterator<Item = &'a FabricNodes>) -> Axis {
    let largest = points.map(|p| p.nodes).max().unwrap_or(1).max(2);
    Axis::count(f64::from(largest), "nodes")
}

fn points(
    mut chart: Chart,
    class: &str,
    study: &FabricStudy,
    of: impl Fn(&FabricNodes) -> u64,
) -> Chart {
    let line: Vec<(f64, f64)> = study
        .points
        .iter()
        .take(ROWS_MAX)
        .map(|p| (f64::from(p.nodes), of(p) as f64))
        .collect();
    chart = chart.line(class, &text::plain(&study.name), &line);
    for (x, y) in line {
        let title = format!("{x} nodes: {}", megabytes(text::whole(y)));
        chart = chart.dot(class, &title, x, y);
    }
    chart
}

/// Best, average and worst pair; latency; or time.
fn by_nodes(out: &mut String, study: &FabricStudy) {
    if study.points.len() < 2 || study.counts != "rate" {
        return;
    }
    let x = nodes_axis(study.points.iter());
    let y = Axis::rate(study.peak_bits_per_second as f64).with_label_room();
    let keys = [
        ("c2", "best pair"),
        ("c0", "average"),
        ("c1", "worst pair"),
        ("c5", "average by fair shares alone"),
    ];
    let keys: String = keys
        .iter()
        .map(|(class, name)| key(&format!("line {class}"), name))
        .collect();
    put!(
        out,
        "<h4>Goodput of a pair <span>{} by nodes; all seeds and steps</span></h4>\n<div class=\"keys\">{keys}</div>\n<div class=\"plot\">\n",
        y.unit
    );
    let peak = study.peak_bits_per_second as f64;
    let mut chart = Chart::new("goodput of a pair by number of nodes", 280, x, y);
    chart = points(chart, "c5", study, |p| {
        text::whole(p.fair_share_of_peak * peak)
    });
    chart = points(chart, "c2", study, |p| p.best_bits_per_second);
    chart = points(chart, "c1", study, |p| p.worst_bits_per_second);
    chart = points(chart, "c0", study, |p| p.average_bits_per_second);
    for point in &study.points {
        if let Some(half) = point.share_interval {
            let y = point.average_share_of_peak;
            let ends = ((y - half).max(0.0) * peak, (y + half) * peak);
            chart = chart.whisker("c0", f64::from(point.nodes), ends);
        }
    }
    if let Some(full) = study.full_to_nodes
        && study.points.last().is_some_and(|p| p.nodes > full)
    {
        let label = format!("all pairs full up to {full} nodes");
        chart = chart.vertical("c2", &label, f64::from(full), 0);
    }
    put!(out, "{}</div>\n", chart.render());
}

/// Chips tier above tier and their cables, those that several flows share on top.
fn tree(out: &mut String, study: &FabricStudy, step: &FabricStep) {
    let mut used: Vec<u32> = step.cables.iter().flat_map(|c| [c.from, c.to]).collect();
    used.sort_unstable();
    used.dedup();
    let tier_of = |n: u32| step.chips.get(n as usize).map_or(0, |c| c.tier);
    let highest = used.iter().map(|n| tier_of(*n)).max().unwrap_or(0);
    if !(2..=TIERS_MAX).contains(&highest) {
        return;
    }
    let tier = |t: u32| used.iter().filter(move |n| tier_of(**n) == t);
    if (1..=highest).any(|t| tier(t).count() > CHIPS_MAX) {
        return;
    }
    let place = |chip: u32| -> (f64, f64) {
        let t = tier_of(chip);
        let all = tier(t).count().max(1) as f64;
        let n = tier(t).position(|c| *c == chip).unwrap_or(0) as f64;
        let (x, y) = (
            (n + 0.5) / all * TREE_WIDTH,
            f64::from(highest - t) * TIER_PX + 22.0,
        );
        (x, y)
    };
    let most = step.cables.iter().map(|c| c.flows).max().unwrap_or(0);
    put!(
        out,
        "<h4>Where flows met <span>{} {} of {} nodes, the slowest: flows on each cable between chips, the busier direction; \
         {} directions carry nothing</span></h4>\n<div class=\"keys\">",
        if study.pattern.starts_with("rotate") {
            "rotation"
        } else {
            "step"
        },
        step.step,
        step.nodes,
        step.idle_cables
    );
    for n in 1..=most.min(4) {
        let name = match n {
            1 => "one flow".to_owned(),
            4 if most > 4 => format!("4 to {most} flows"),
            n => format!("{n} flows"),
        };
        put!(out, "{}", key(&format!("line met{n}"), &name));
    }
    let height = f64::from(highest - 1) * TIER_PX + 44.0;
    put!(
        out,
        "</div>\n<div class=\"scroll\"><svg class=\"met\" viewBox=\"0 0 {TREE_WIDTH} {height}\" role=\"img\">\
         <title>cables between chips by the flows they carry</title>\n"
    );
    let mut drawn: Vec<&FabricCable> = step.cables.iter().collect();
    drawn.sort_by_key(|c| c.flows);
    for cable in drawn {
        let ((x1, y1), (x2, y2)) = (place(cable.from), place(cable.to));
        // Up and down lie side by side.
        let aside = if y1 > y2 { -1.5 } else { 1.5 };
        put!(
            out,
            "<line class=\"met{}\" x1=\"{:.1}\" y1=\"{y1:.1}\" x2=\"{:.1}\" y2=\"{y2:.1}\"><title>{}: {}, busy {} of the time\
             </title></line>\n",
            cable.flows.clamp(1, 4),
            x1 + aside,
            x2 + aside,
            shown(&cable.link),
            text::plural(cable.flows.into(), "flow"),
            percent(cable.busy_share)
        );
    }
    for chip in &used {
        let (x, y) = place(*chip);
        let t = tier_of(*chip);
        let all = tier(t).count().max(1) as f64;
        let wide = (TREE_WIDTH / all * 0.7).min(58.0);
        let name = step
            .chips
            .get(*chip as usize)
            .map_or("", |c| c.name.as_str());
        put!(
            out,
            "<rect class=\"chip\" x=\"{:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"18\" rx=\"3\"><title>{}</title></rect>\n",
            x - wide / 2.0,
            y - 9.0,
            shown(name)
        );
        let chars = text::plain(name).chars().count() as f64;
        if chars * 6.0 < wide {
            put!(
                out,
                "<text x=\"{x:.1}\" y=\"{:.1}\">{}</text>\n",
                y + 4.0,
                shown(name)
            );
        }
    }
    out.push_str("</svg></div>\n");
}

/// Sender by receiver, darker where less arrived.
fn heat(out: &mut String, study: &FabricStudy) {
    let Some(map) = &study.map else { return };
    let rows = map.bits_per_second.len().min(CELLS_MAX);
    let columns = map
        .bits_per_second
        .first()
        .map_or(0, Vec::len)
        .min(CELLS_MAX);
    if rows < 2 || columns < 2 {
        return;
    }
    let each = (HEAT_PX / rows.max(columns) as f64).clamp(2.0, 24.0);
    let (width, height) = (columns as f64 * each, rows as f64 * each);
    let last = |first: u32, cells: usize| {
        let cells = u32::try_from(cells).unwrap_or(u32::MAX);
        first
            .saturating_add(cells.saturating_mul(map.ranks_of_a_cell))
            .saturating_sub(1)
    };
    put!(
        out,
        "<h4>Pair by pair <span>senders {} to {} down, receivers {} to {} across; first seed. Darker is slower; white was not run</span></h4>\n\
         <div class=\"keys\">{}{}{}{}</div>\n\
         <div class=\"scroll\"><svg class=\"pairs\" width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\"><title>goodput of each pair</title>\n",
        map.first_sender,
        last(map.first_sender, rows),
        map.first_receiver,
        last(map.first_receiver, columns),
        key("q9", "full"),
        key("q6", "a half"),
        key("q3", "a third"),
        key("q0", "less"),
    );
    let peak = study.peak_bits_per_second.max(1) as f64;
    for (n, cells) in map.bits_per_second.iter().take(rows).enumerate() {
        let shade = |bits: u64| match bits {
            0 => None,
            bits => {
                let share = bits as f64 / peak;
                Some(SHADES.iter().filter(|s| share >= **s).count())
            }
        };
        let mut from = 0;
        while from < cells.len().min(columns) {
            let level = shade(cells[from]);
            let mut to = from + 1;
            while to < cells.len().min(columns) && shade(cells[to]) == level {
                to += 1;
            }
            if let Some(level) = level {
                put!(
                    out,
                    "<rect class=\"q{level}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{each:.1}\"/>",
                    from as f64 * each,
                    n as f64 * each,
                    (to - from) as f64 * each
                );
            }
            from = to;
        }
        out.push('\n');
    }
    out.push_str("</svg></div>\n");
}

fn numbers(out: &mut String, study: &FabricStudy) {
    out.push_str("<h4>By number of nodes</h4>\n<div class=\"scroll\">");
    table_head(out, &heads(study));
    for cells in rows(study).into_iter().take(ROWS_MAX) {
        table_row(out, &cells, false);
    }
    out.push_str("</tbody></table></div>\n");
    left_out(out, study.points.len(), ROWS_MAX, "numbers of nodes");
    for line in [failures(study), replayed(study)].into_iter().flatten() {
        put!(out, "<p>{}</p>\n", shown(&line));
    }
    if !study.trust.is_empty() {
        put!(out, "<p class=\"note\">{}</p>\n", shown(&study.trust));
    }
    if let Some(formula) = study.points.last().and_then(|p| p.latency_formula.as_ref()) {
        put!(
            out,
            "<p class=\"note\">Of the last, by formula: hosts {:.3} us, chips {:.3} us, cables {:.3} us, bits onto the last wire {:.3} us; \
             the longest way through the fabric, chips and cables: {:.3} us over {} chips.</p>\n",
            formula.host_ns / 1e3,
            formula.chip_ns / 1e3,
            formula.cable_ns / 1e3,
            formula.wire_ns / 1e3,
            formula.fabric_max_ns / 1e3,
            formula.chips[1]
        );
    }
    if study.jobs.is_empty() {
        return;
    }
    out.push_str("<h4>Jobs</h4>\n<div class=\"scroll\">");
    table_head(
        out,
        &[
            "job",
            "pattern",
            "ranks",
            "takes",
            "one switch alone",
            "lost",
            "worst seed",
        ],
    );
    for job in study.jobs.iter().take(ROWS_MAX) {
        let cells = [
            job.name.clone(),
            job.pattern.clone(),
            job.nodes.to_string(),
            microseconds(job.finish_ns[0]),
            microseconds(job.ideal_ns),
            percent(job.lost_shares[0]),
            percent(job.lost_shares[1]),
        ];
        table_row(out, &cells, false);
    }
    out.push_str("</tbody></table></div>\n");
}

/// Those that most flows share.
fn cables(out: &mut String, step: &FabricStep) {
    let mut all: Vec<&FabricCable> = step.cables.iter().collect();
    if all.is_empty() {
        return;
    }
    all.sort_by(|a, b| {
        b.flows
            .cmp(&a.flows)
            .then(b.credit_wait_share.total_cmp(&a.credit_wait_share))
    });
    out.push_str("<details>\n<summary>Cables that most flows share, and waits for room</summary>\n<div class=\"scroll\">");
    table_head(
        out,
        &[
            "cable",
            "flows",
            "busy",
            "waited for room at the far end",
            "wait of a packet",
            "others held behind it",
        ],
    );
    for cable in all.iter().take(CABLES_MAX) {
        let cells = [
            cable.link.clone(),
            cable.flows.to_string(),
            percent(cable.busy_share),
            percent(cable.credit_wait_share),
            microseconds(cable.wait_ns),
            percent(cable.held_others_share),
        ];
        table_row(out, &cells, false);
    }
    out.push_str("</tbody></table></div>\n");
    left_out(out, all.len(), CABLES_MAX, "directions of cables");
    if !step.waits.is_empty() {
        out.push_str("<div class=\"scroll\">");
        table_head(
            out,
            &[
                "packets waited for room on",
                "held by packets that wait for",
                "of the time",
            ],
        );
        for wait in step.waits.iter().take(CABLES_MAX) {
            let on = wait.on.clone();
            let on = on.unwrap_or_else(|| "nobody: it was on its way back".to_owned());
            table_row(out, &[wait.cable.clone(), on, percent(wait.share)], false);
        }
        out.push_str("</tbody></table></div>\n");
    }
    out.push_str("</details>\n");
}

/// Columns of a study's table.
pub(crate) fn heads(study: &FabricStudy) -> Vec<&'static str> {
    match study.counts.as_str() {
        "latency" => vec!["nodes", "least", "average", "most", "by formula", "chips"],
        "time" => vec![
            "nodes",
            "steps",
            "takes",
            "one switch",
            "lost",
            "worst seed",
        ],
        _ => vec![
            "nodes",
            "steps",
            "best",
            "average",
            "worst",
            "of peak",
            "fair shares",
            "on a cable",
        ],
    }
}

/// A line for each number of nodes.
pub(crate) fn rows(study: &FabricStudy) -> Vec<Vec<String>> {
    study.points.iter().map(|p| row(study, p)).collect()
}

fn row(study: &FabricStudy, point: &FabricNodes) -> Vec<String> {
    let mut cells = vec![point.nodes.to_string()];
    match study.counts.as_str() {
        "latency" => {
            let [least, average, most] = point.latency_ns.unwrap_or_default();
            let formula = point.latency_formula.clone().unwrap_or_default();
            let [few, many] = formula.chips;
            let chips = match few == many {
                true => few.to_string(),
                false => format!("{few} to {many}"),
            };
            cells.extend([
                microseconds(least),
                microseconds(average),
                microseconds(most),
                microseconds(formula.sum_ns),
                chips,
            ]);
        }
        "time" => {
            let [took, _] = point.finish_ns.unwrap_or_default();
            let [lost, worst] = point.lost_shares.unwrap_or_default();
            cells.extend([
                steps(point),
                microseconds(took),
                microseconds(point.ideal_ns.unwrap_or_default()),
                percent(lost),
                percent(worst),
            ]);
        }
        _ => cells.extend([
            steps(point),
            megabytes(point.best_bits_per_second),
            megabytes(point.average_bits_per_second),
            megabytes(point.worst_bits_per_second),
            match point.share_interval {
                Some(half) => format!(
                    "{:.0} ± {:.0} %",
                    point.average_share_of_peak * 100.0,
                    half * 100.0
                ),
                None => percent(point.average_share_of_peak),
            },
            match point.fair_share_of_peak {
                0.0 => "–".to_owned(),
                share => percent(share),
            },
            text::plural(point.flows_on_a_cable_max.into(), "flow"),
        ]),
    }
    cells
}

fn steps(point: &FabricNodes) -> String {
    match point.steps_all {
        Some(all) if all > point.steps => format!("{} of {all}", point.steps),
        _ => point.steps.to_string(),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn microseconds(ns: f64) -> String {
    format!("{:.2} us", ns / 1e3)
}

/// As tools for these fabrics say it: 10^6 bytes a second.
fn megabytes(bits_per_second: u64) -> String {
    format!("{:.0} MB/s", bits_per_second as f64 / 8e6)
}

const STUDIES_MAX: usize = 12;
const ROWS_MAX: usize = 200;
const CABLES_MAX: usize = 20;
const COLOURS: usize = 6;
/// More do not fit a page.
const CHIPS_MAX: usize = 120;
const TIERS_MAX: u32 = 5;
const CELLS_MAX: usize = 128;
const TREE_WIDTH: f64 = 1_080.0;
const TIER_PX: f64 = 170.0;
const HEAT_PX: f64 = 520.0;
/// Shares of the peak at which the next shade begins.
const SHADES: [f64; 9] = [0.15, 0.2, 0.25, 0.33, 0.42, 0.5, 0.62, 0.75, 0.9];

/// What failed and what came of it, in a line; nothing where nothing fails.
pub(crate) fn failures(study: &FabricStudy) -> Option<String> {
    let recovery = study.recovery.as_ref()?;
    let all = study.faults.iter().take(FAULTS_SHOWN).map(|fault| {
        let until = match fault.until_ns {
            Some(until) => format!("from {} to {}", short_time(fault.at_ns), short_time(until)),
            None => format!("from {} on", short_time(fault.at_ns)),
        };
        format!(
            "{} {until}, {} packets lost",
            fault.link, fault.lost_packets
        )
    });
    let all: Vec<String> = all.collect();
    let more = match study.faults.len().saturating_sub(FAULTS_SHOWN) {
        0 => String::new(),
        more => format!("; {more} more"),
    };
    let moved = match (recovery.moved_flows, recovery.moved_after_max_ns) {
        (Some(flows), Some(ns)) if flows > 0 => {
            format!(", {flows} flows moved, {:.3} ms after it at most", ns / 1e6)
        }
        _ => String::new(),
    };
    Some(format!(
        "failed: {}{more}; {} packets sent again, {} timers, {} of {} flows given up{moved}; longest silence {:.3} ms",
        all.join("; "),
        recovery.resent_packets,
        recovery.timeouts,
        recovery.broken_flows,
        recovery.flows,
        recovery.silence_max_ns / 1e6
    ))
}

/// What a trace's messages took, in a line.
pub(crate) fn replayed(study: &FabricStudy) -> Option<String> {
    let replay = study.replay.as_ref()?;
    Some(format!(
        "{} messages: half of them took at most {:.2} times as long as alone, 99 of 100 {:.2} times, the slowest {:.2} times",
        replay.messages, replay.slowdown_median, replay.slowdown_p99, replay.slowdown_max
    ))
}

fn short_time(ns: u64) -> String {
    match ns % 1_000_000 {
        0 => format!("{} ms", ns / 1_000_000),
        _ => format!("{}.{:03} us", ns / 1_000, ns % 1_000),
    }
}

const FAULTS_SHOWN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FabricChip, FabricMap};

    #[test]
    fn a_study_has_its_pictures_and_no_markup_of_its_own() {
        let point = |nodes, average| FabricNodes {
            nodes,
            best_bits_per_second: 8_000_000_000,
            average_bits_per_second: average,
            worst_bits_per_second: average / 2,
            average_share_of_peak: average as f64 / 8e9,
            flows_on_a_cable_max: 3,
            ..FabricNodes::default()
        };
        let chip = |name: &str, tier| FabricChip {
            name: name.to_owned(),
            tier,
        };
        let study = FabricStudy {
            name: "<b>".to_owned(),
            pattern: "rotate".to_owned(),
            counts: "rate".to_owned(),
            peak_bits_per_second: 8_000_000_000,
            full_to_nodes: Some(2),
            points: vec![point(2, 8_000_000_000), point(4, 4_000_000_000)],
            map: Some(FabricMap {
                ranks_of_a_cell: 1,
                first_receiver: 2,
                bits_per_second: vec![vec![8_000_000_000, 0], vec![1, 2]],
                ..FabricMap::default()
            }),
            worst_step: Some(FabricStep {
                chips: vec![chip("leaf<i>", 1), chip("spine", 2)],
                cables: vec![FabricCable {
                    link: "leaf<i>:3/spine:1".to_owned(),
                    from: 0,
                    to: 1,
                    flows: 3,
                    ..FabricCable::default()
                }],
                idle_cables: 7,
                ..FabricStep::default()
            }),
            ..FabricStudy::default()
        };
        let run = Run {
            fabric: Some(FabricRun {
                studies: vec![study],
                ..FabricRun::default()
            }),
            ..Run::default()
        };
        let mut out = String::new();
        section(&mut out, &run);
        for has in [
            "class=\"met3\"",
            "class=\"pairs\"",
            "50 %",
            "7 directions",
            "up to 2 nodes",
        ] {
            assert!(out.contains(has), "{has} in {out}");
        }
        assert!(!out.contains("<b>") && !out.contains("<i>"), "{out}");
    }
}
