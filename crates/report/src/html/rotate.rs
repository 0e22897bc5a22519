//! Pairs that sent at once: the heat map of who got how much, the worst, average and best by the number
//! of ranks, and the links that they shared.

use std::collections::BTreeMap;

use super::sweep::{dash, row, table_head};
use super::{left_out, shown};
use crate::model::{Rotate, RotateCount, RotateLink, RotateObserved, Run};
use crate::svg::escape;
use crate::text;

/// Nothing where no pairs were measured.
pub(super) fn section(out: &mut String, run: &Run) {
    let Some(rotate) = run.rotate.as_ref().filter(|r| !r.rounds.is_empty()) else {
        return;
    };
    put!(
        out,
        "<section>\n<h2>{} <span>{} over {}</span></h2>\n",
        heading(rotate),
        text::plural(rotate.ranks.len() as u64, "rank"),
        shown(&rotate.transport.to_uppercase())
    );
    heat_map(out, rotate);
    counts(out, rotate);
    links(out, rotate);
    for note in notes(rotate) {
        put!(
            out,
            "<p class=\"note\">{}</p>\n",
            super::shown_sentence(&note)
        );
    }
    out.push_str("</section>\n");
}

fn heading(rotate: &Rotate) -> String {
    let what = match rotate.measure.as_str() {
        "latency" => "Latency",
        _ => "Bandwidth",
    };
    let pattern = shown(&rotate.pattern);
    format!("{what} of pairs at once, pattern {pattern}")
}

/// What each pair of the heat map came to: rates in bits a second, or nanoseconds.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Heat {
    /// Ranks that send, rising: the rows.
    pub(crate) rows: Vec<u32>,
    /// Ranks that receive: the columns.
    pub(crate) columns: Vec<u32>,
    /// By sender and receiver.
    pub(crate) cells: BTreeMap<(u32, u32), f64>,
    /// The best: the highest rate, the shortest time.
    pub(crate) best: f64,
    /// Whether it is of times.
    pub(crate) of_times: bool,
}

impl Heat {
    /// Of the most ranks and the largest messages; a pair that came twice counts by its mean.
    pub(crate) fn of(rotate: &Rotate) -> Self {
        let of_times = rotate.measure == "latency";
        let mut sums: BTreeMap<(u32, u32), (f64, f64)> = BTreeMap::new();
        for flow in rotate.whole().flat_map(|round| &round.flows) {
            let value = match of_times {
                true => flow.latency_ns,
                false => flow.bits_per_second.map(|bits| bits as f64),
            };
            if let Some(value) = value.filter(|v| v.is_finite() && *v >= 0.0) {
                let sum = sums.entry((flow.from, flow.to)).or_default();
                *sum = (sum.0 + value, sum.1 + 1.0);
            }
        }
        let cells: BTreeMap<_, _> = sums.into_iter().map(|(k, (s, n))| (k, s / n)).collect();
        let mut rows: Vec<u32> = cells.keys().map(|k| k.0).collect();
        let mut columns: Vec<u32> = cells.keys().map(|k| k.1).collect();
        for ranks in [&mut rows, &mut columns] {
            ranks.sort_unstable();
            ranks.dedup();
        }
        let best = match of_times {
            true => cells.values().copied().fold(f64::INFINITY, f64::min),
            false => cells.values().copied().fold(0.0, f64::max),
        };
        Self {
            rows,
            columns,
            cells,
            best,
            of_times,
        }
    }

    /// How good a pair is beside the best, 0 to 1.
    pub(crate) fn share(&self, from: u32, to: u32) -> Option<f64> {
        let value = *self.cells.get(&(from, to))?;
        let share = match self.of_times {
            true => self.best / value,
            false => value / self.best,
        };
        Some(if share.is_finite() {
            share.clamp(0.0, 1.0)
        } else {
            1.0
        })
    }

    /// A pair's value with its unit.
    pub(crate) fn said(&self, value: f64) -> String {
        match self.of_times {
            true => microseconds(value),
            false => text::rate(text::whole(value)),
        }
    }
}

fn heat_map(out: &mut String, rotate: &Rotate) {
    let heat = Heat::of(rotate);
    if heat.cells.is_empty() || heat.rows.len().max(heat.columns.len()) > MAP_MAX {
        return;
    }
    let name = |rank: u32| {
        let at = usize::try_from(rank).unwrap_or(usize::MAX);
        let name = rotate.ranks.get(at).map(|n| text::plain(n));
        name.unwrap_or_else(|| format!("rank {rank}"))
    };
    let (width, height) = (heat.columns.len(), heat.rows.len());
    put!(
        out,
        "<p class=\"note\">A row for each sender, a column for each receiver; the best pair got {}. {}</p>\n\
         <svg class=\"heat\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"heat map of {height} senders and \
         {width} receivers\">\n",
        heat.said(heat.best),
        "Full colour is as good as the best; another colour is below three quarters of it.",
        width * CELL,
        height * CELL,
    );
    for (y, &from) in heat.rows.iter().enumerate() {
        for (x, &to) in heat.columns.iter().enumerate() {
            let Some(share) = heat.share(from, to) else {
                continue;
            };
            let class = if share < SLOW { "slow" } else { "fast" };
            // The slowest is the strongest of its colour.
            let strength = if share < SLOW { 1.0 - share } else { share };
            let value = heat.cells.get(&(from, to)).copied().unwrap_or(0.0);
            put!(
                out,
                "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" \
                 fill-opacity=\"{strength:.2}\">",
                x * CELL,
                y * CELL,
                CELL - 1,
                CELL - 1
            );
            let label = format!("{} to {}: {}", name(from), name(to), heat.said(value));
            put!(out, "<title>{}</title></rect>\n", escape(&label));
        }
    }
    out.push_str("</svg>\n");
}

fn counts(out: &mut String, rotate: &Rotate) {
    out.push_str("<div class=\"scroll\">");
    table_head(out, &COUNT_HEADS);
    for count in rotate.counts.iter().take(ROWS_MAX) {
        row(out, &count_cells(count), false);
    }
    out.push_str("</tbody></table></div>\n");
    left_out(out, rotate.counts.len(), ROWS_MAX, "rows");
}

/// Of [`count_cells`].
pub(crate) const COUNT_HEADS: [&str; 8] = [
    "ranks",
    "message",
    "pairs",
    "worst",
    "average",
    "best",
    "aggregate",
    "floor",
];

/// A number of ranks in a line: as the terminal has it too.
pub(crate) fn count_cells(count: &RotateCount) -> [String; 8] {
    let rate = |bits: Option<u64>| bits.map(text::rate);
    let time = |ns: Option<f64>| ns.map(microseconds);
    let either = |bits, ns| rate(bits).or_else(|| time(ns)).unwrap_or_else(dash);
    [
        count.ranks.to_string(),
        text::size(count.message_bytes.into()),
        text::count(count.pairs.into()),
        either(count.worst_bits_per_second, count.worst_latency_ns),
        either(count.average_bits_per_second, count.average_latency_ns),
        either(count.best_bits_per_second, count.best_latency_ns),
        either(count.aggregate_bits_per_second, None),
        either(count.floor_bits_per_second, None),
    ]
}

/// As tools for clusters say it.
fn microseconds(ns: f64) -> String {
    format!("{:.2} us", ns / 1e3)
}

fn links(out: &mut String, rotate: &Rotate) {
    if rotate.links.is_empty() {
        return;
    }
    out.push_str("<h3>Links that pairs shared</h3>\n<div class=\"scroll\">");
    table_head(out, &LINK_HEADS);
    for link in rotate.links.iter().take(ROWS_MAX) {
        row(out, &link_cells(link), false);
    }
    out.push_str("</tbody></table></div>\n");
    left_out(out, rotate.links.len(), ROWS_MAX, "links");
}

/// Of [`link_cells`].
pub(crate) const LINK_HEADS: [&str; 6] = [
    "link",
    "way",
    "rate",
    "most flows",
    "each got",
    "rounds shared",
];

/// A link in a line.
pub(crate) fn link_cells(link: &RotateLink) -> [String; 6] {
    [
        text::plain(&link.link),
        format!("{} to {}", text::plain(&link.from), text::plain(&link.to)),
        text::rate(link.rate_bits_per_second),
        link.flows_max.to_string(),
        text::rate(link.each_bits_per_second),
        link.rounds_shared.to_string(),
    ]
}

/// What is to be known of the numbers.
pub(crate) fn notes(rotate: &Rotate) -> Vec<String> {
    let mut notes = Vec::new();
    let last = rotate.rounds.last();
    let (messages, window) = last.map_or((0, 0), |r| (r.messages, r.window));
    let over_tcp = rotate.transport == "tcp";
    notes.push(match (rotate.measure.as_str(), over_tcp) {
        ("latency", true) => format!(
            "Latency is half a round trip of the smallest message, 1 B: TCP has no empty ones. {messages} round \
             trips of each pair, all pairs of a round at once."
        ),
        ("latency", false) => format!(
            "Latency is half a round trip of an empty message: {messages} of each pair, all pairs of a round at once."
        ),
        (_, true) => format!(
            "Each pair's best of {}: {messages} messages, of which every {} confirmed by the receiver before \
             the next goes.",
            text::plural(rotate.tests.into(), "test"),
            match window {
                0 | 1 => "one is".to_owned(),
                n => format!("{n} are"),
            }
        ),
        (_, false) => format!(
            "Each pair's best of {}: {messages} messages, {}.",
            text::plural(rotate.tests.into(), "test"),
            match window {
                0 | 1 => "by synchronous sends".to_owned(),
                n => format!("of which {n} may be under way"),
            }
        ),
    });
    if let Some(turns) = rotate.turns.filter(|n| *n > 1) {
        notes.push(format!(
            "mpirun started all processes {turns} times; each pair's best of all counts."
        ));
    }
    notes.extend(rotate.observed.as_ref().map(beside));
    if let Some(library) = &rotate.mpi_library {
        notes.push(format!("MPI is {}.", text::plain(library)));
    }
    if let Some(seed) = rotate.order_seed {
        notes.push(format!("The order of the ranks is that of seed {seed}."));
    }
    if let Some(skew) = rotate.start_skew_ns {
        let skew = text::duration(skew);
        notes.push(format!(
            "The last pair was told to begin {skew} after the first, at most."
        ));
    }
    notes
}

/// Another's program in turns with ours.
fn beside(observed: &RotateObserved) -> String {
    let [_, _, _, worst, average, best, ..] = count_cells(&observed.count);
    let ratio = |ratio: Option<f64>| ratio.map_or_else(dash, |r| format!("{r:.3}"));
    let mut said = format!(
        "{} in turns with it, each pair's best of as many: worst {worst}, average {average}, best {best}. Ours over its: {}, {}, {}.",
        text::plain(&observed.tool),
        ratio(observed.worst_ratio),
        ratio(observed.average_ratio),
        ratio(observed.best_ratio)
    );
    if let Some(parser) = &observed.parser {
        let all = text::plural(parser.outputs.into(), "output");
        put!(
            said,
            " Its parser found STATUS=PASSED and our four numbers in {} of {all} of ours.",
            parser.read
        );
    }
    said
}

/// Below it a pair is slow; as the finding has it.
const SLOW: f64 = 0.75;
/// Side of a cell in the picture's own units.
const CELL: usize = 12;
/// Beyond it the picture would be a megabyte.
const MAP_MAX: usize = 64;
const ROWS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{RotateFlow, RotateParser, RotateRound};

    fn rotate(flows: impl IntoIterator<Item = (u32, u32, u64)>) -> Rotate {
        let flow = |(from, to, bits)| RotateFlow {
            from,
            to,
            bits_per_second: Some(bits),
            ..RotateFlow::default()
        };
        Rotate {
            pattern: "rotate".to_owned(),
            measure: "bandwidth".to_owned(),
            transport: "tcp".to_owned(),
            ranks: ["a", "b<script>", "c", "d"].map(str::to_owned).to_vec(),
            rounds: vec![RotateRound {
                ranks: 4,
                message_bytes: 8 << 20,
                flows: flows.into_iter().map(flow).collect(),
                ..RotateRound::default()
            }],
            counts: vec![RotateCount::default()],
            ..Rotate::default()
        }
    }

    fn page(rotate: Rotate) -> String {
        let mut out = String::new();
        let run = Run {
            rotate: Some(rotate),
            ..Run::default()
        };
        section(&mut out, &run);
        out
    }

    #[test]
    fn each_pair_has_a_cell_and_slow_ones_another_colour() {
        let out = page(rotate([(0, 2, 100), (0, 3, 50), (1, 2, 80), (1, 3, 74)]));
        assert_eq!(out.matches("<rect class=\"fast\"").count(), 2);
        assert_eq!(out.matches("<rect class=\"slow\"").count(), 2);
        assert!(out.contains("<title>a to d: 50 b/s</title>"), "{out}");
        assert!(!out.contains("<script"), "{out}");
        assert!(page(Rotate::default()).is_empty());
    }

    #[test]
    fn who_ran_in_turns_with_it_is_told_with_the_ratios() {
        let mut with = rotate([(0, 1, 100)]);
        with.turns = Some(3);
        with.observed = Some(RotateObserved {
            tool: "CBench rotate".to_owned(),
            count: RotateCount {
                best_bits_per_second: Some(50_000_000),
                ..RotateCount::default()
            },
            best_ratio: Some(0.984),
            parser: Some(RotateParser {
                outputs: 3,
                read: 3,
                ..RotateParser::default()
            }),
            ..RotateObserved::default()
        });
        let said = notes(&with).join(" ");
        for text in ["3 times", "best 50 Mb/s", "0.984", "in 3 of 3 outputs"] {
            assert!(said.contains(text), "{text}: {said}");
        }
    }

    #[test]
    fn of_times_the_shortest_is_best() {
        let mut times = rotate([]);
        times.measure = "latency".to_owned();
        for (to, ns) in [(2, 10_000.0), (3, 40_000.0)] {
            times.rounds[0].flows.push(RotateFlow {
                to,
                latency_ns: Some(ns),
                ..RotateFlow::default()
            });
        }
        let heat = Heat::of(&times);
        assert_eq!(
            (heat.share(0, 2), heat.share(0, 3)),
            (Some(1.0), Some(0.25))
        );
        assert_eq!(heat.share(3, 0), None);
        assert!(page(times).contains("d: 40.00 us"));
    }

    #[test]
    fn whatever_a_run_says_the_page_is_bounded_and_whole() {
        let wild = (0..200_u32).flat_map(|from| (0..200).map(move |to| (from, to, u64::MAX)));
        let out = page(rotate(wild));
        assert!(out.len() < 1 << 20 && !out.contains("NaN"), "{}", out.len());
        let zero = page(rotate([(0, 1, 0), (u32::MAX, 0, 0)]));
        assert!(!zero.contains("NaN"), "{zero}");
        for tag in ["svg", "rect", "title", "table", "tr", "section"] {
            let opened = zero.matches(&format!("<{tag}>")).count()
                + zero.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, zero.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }
}
