//! Charts as inline SVG: axes with round ticks, areas, lines, stacked bands, dashed references.
//!
//! A chart stretches with the page and its text does not: marks live in a nested `<svg>` whose view
//! box is stretched (`preserveAspectRatio="none"`, strokes unscaled), labels stand outside it at
//! percentages of the width. So 390 px and 1280 px show the same chart with equally legible labels.
//! Tick labels of the y axis lie left of the picture: the page leaves a margin there
//! (`svg.chart { overflow: visible; margin-left: ... }`). Colours are the page's: every mark has a
//! class. Numbers are printed with one decimal, so equal input gives equal text.
//!
//! Left out: logarithmic axes, right-hand axes, scripts.

/// One axis from zero to `max`.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Value at the axis' far end.
    pub max: f64,
    /// Where the ticks are and what they read.
    pub ticks: Vec<(f64, String)>,
    /// Unit of the labels, for the chart's heading; empty when the labels carry it.
    pub unit: &'static str,
}

impl Axis {
    /// An axis for rates up to `max` bits per second, with some room above.
    pub fn rate(max: f64) -> Self {
        Self::decimal(
            max,
            &[
                (1e12, "Tb/s"),
                (1e9, "Gb/s"),
                (1e6, "Mb/s"),
                (1e3, "kb/s"),
                (1.0, "b/s"),
            ],
        )
    }

    /// An axis for round trips up to `max` nanoseconds, with some room above.
    pub fn round_trip(max: f64) -> Self {
        Self::decimal(max, &[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")])
    }

    /// An axis for sizes up to `max` bytes: ticks at powers of two, as buffers are sized.
    pub fn bytes(max: f64) -> Self {
        let max = sane(max) * HEADROOM;
        let step = 2_f64.powf((max / TICKS_WANTED).log2().ceil().max(0.0));
        let units = [
            (2_f64.powi(40), "TiB"),
            (2_f64.powi(30), "GiB"),
            (2_f64.powi(20), "MiB"),
            (1024.0, "KiB"),
            (1.0, "B"),
        ];
        let largest = (max / step).floor() * step;
        let (scale, unit) = pick(largest, &units);
        Self {
            max,
            ticks: ticks(max, step, scale, ""),
            unit,
        }
    }

    /// An axis for bytes on the wire up to `max`, with some room above: decimal, as rates are.
    pub fn wire_bytes(max: f64) -> Self {
        Self::decimal(max, &[(1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")])
    }

    /// An axis for things that are counted, up to `max`, with some room above; `unit` says what.
    pub fn count(max: f64, unit: &'static str) -> Self {
        let max = sane(max).max(1.0) * HEADROOM;
        let step = round_step(max / TICKS_WANTED).max(1.0).ceil();
        let (scale, prefix) = pick(max, &[(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")]);
        let mut ticks = ticks(max, step, scale, prefix);
        if let Some((_, zero)) = ticks.first_mut() {
            "0".clone_into(zero);
        }
        Self { max, ticks, unit }
    }

    /// An axis for shares of a whole.
    pub fn share() -> Self {
        let ticks = [(0.0, "0"), (0.5, "50"), (1.0, "100")];
        Self {
            max: 1.0,
            ticks: ticks.map(|(at, text)| (at, text.to_owned())).to_vec(),
            unit: "%",
        }
    }

    /// A time axis that ends exactly at `end_s` seconds; each label carries its unit.
    pub fn time(end_s: f64) -> Self {
        let max = sane(end_s);
        let step = round_step(max / TICKS_WANTED);
        let (scale, unit) = pick(max, &[(1.0, " s"), (1e-3, " ms"), (1e-6, " us")]);
        Self {
            max,
            ticks: ticks(max * (1.0 + 1e-9), step, scale, unit),
            unit: "",
        }
    }

    fn decimal(largest: f64, units: &[(f64, &'static str)]) -> Self {
        let largest = sane(largest);
        let max = largest * HEADROOM;
        let (scale, unit) = pick(largest, units);
        Self {
            max,
            ticks: ticks(max, round_step(max / TICKS_WANTED), scale, ""),
            unit,
        }
    }

    /// The same ticks with room above for a label: the largest value ends four fifths up.
    #[must_use]
    pub fn with_label_room(mut self) -> Self {
        self.max *= LABEL_ROOM;
        self
    }
}

/// A chart under construction. The order of calls is the order of painting.
#[derive(Clone, Debug)]
pub struct Chart {
    title: String,
    height_px: u32,
    x: Axis,
    y: Axis,
    time_labels: bool,
    marks: String,
    labels: String,
}

impl Chart {
    /// A chart that `title` describes to those who cannot see it.
    pub fn new(title: &str, height_px: u32, x: Axis, y: Axis) -> Self {
        Self {
            title: title.to_owned(),
            height_px,
            x,
            y,
            time_labels: true,
            marks: String::new(),
            labels: String::new(),
        }
    }

    /// Leaves out the time axis' labels: the chart below has them.
    #[must_use]
    pub const fn without_time_labels(mut self) -> Self {
        self.time_labels = false;
        self
    }

    /// A line through `points` of seconds and value, and what to say when it is pointed at.
    #[must_use]
    pub fn line(mut self, class: &str, title: &str, points: &[(f64, f64)]) -> Self {
        if points.is_empty() {
            return self;
        }
        let path = self.path(&thin(points, POINTS_MAX));
        put!(
            self.marks,
            "<path class=\"line {class}\" d=\"M{path}\"><title>{}</title></path>\n",
            escape(title)
        );
        self
    }

    /// The area between `points` and zero.
    #[must_use]
    pub fn area(mut self, class: &str, points: &[(f64, f64)]) -> Self {
        let thinned = thin(points, POINTS_MAX);
        if let (Some(first), Some(last)) = (thinned.first(), thinned.last()) {
            let (x0, x1) = (num(self.x_at(first.0)), num(self.x_at(last.0)));
            let (path, base) = (self.path(&thinned), num(self.y_at(0.0)));
            put!(
                self.marks,
                "<path class=\"area {class}\" d=\"M{x0} {base}L{path}L{x1} {base}Z\"/>\n"
            );
        }
        self
    }

    /// From the least to the greatest value in each of `spans`, which are `width` wide and begin at
    /// zero; what to say when it is pointed at.
    #[must_use]
    pub fn range(mut self, class: &str, title: &str, width: f64, spans: &[(f64, f64)]) -> Self {
        if spans.is_empty() {
            return self;
        }
        let edge = |i: usize| num(self.x_at(i as f64 * width));
        let mut d = format!("M0 {}", num(self.y_at(0.0)));
        for (i, (_, high)) in spans.iter().enumerate() {
            put!(d, "V{}H{}", num(self.y_at(*high)), edge(i + 1));
        }
        for (i, (low, _)) in spans.iter().enumerate().rev() {
            put!(d, "V{}H{}", num(self.y_at(*low)), edge(i));
        }
        put!(
            self.marks,
            "<path class=\"range {class}\" d=\"{d}Z\"><title>{}</title></path>\n",
            escape(title)
        );
        self
    }

    /// Upright strokes, each at a time from one value to another, and what to say when one is pointed at.
    #[must_use]
    pub fn strokes(mut self, class: &str, title: &str, strokes: &[(f64, f64, f64)]) -> Self {
        if strokes.is_empty() {
            return self;
        }
        let mut d = String::with_capacity(strokes.len() * 16);
        for &(x, low, high) in strokes.iter().take(STROKES_MAX) {
            let (top, foot) = (self.y_at(high), self.y_at(low));
            // A stroke of no height would not be seen.
            let foot = foot.max(top + 1.0);
            put!(d, "M{} {}V{}", num(self.x_at(x)), num(foot), num(top));
        }
        put!(
            self.marks,
            "<path class=\"stroke {class}\" d=\"{d}\"><title>{}</title></path>\n",
            escape(title)
        );
        self
    }

    /// Dots at the times `xs`, `y_px` below the top edge; round however wide the page is.
    #[must_use]
    pub fn dots(mut self, class: &str, y_px: u32, xs: &[f64]) -> Self {
        put!(self.labels, "<g class=\"dots {class}\">");
        for &x in xs {
            let percent = self.percent_at(x);
            put!(
                self.labels,
                "<circle cx=\"{percent}%\" cy=\"{y_px}\" r=\"2\"/>"
            );
        }
        self.labels.push_str("</g>\n");
        self
    }

    /// Crosses likewise.
    #[must_use]
    pub fn crosses(mut self, class: &str, y_px: u32, xs: &[f64]) -> Self {
        put!(self.labels, "<g class=\"crosses {class}\">");
        for &x in xs {
            let percent = self.percent_at(x);
            put!(
                self.labels,
                "<svg x=\"{percent}%\" y=\"{y_px}\"><path d=\"M-3-3L3 3M-3 3L3-3\"/></svg>"
            );
        }
        self.labels.push_str("</g>\n");
        self
    }

    /// A dot at a place of the chart, round however wide the page is; what to say when it is pointed at.
    #[must_use]
    pub fn dot(mut self, class: &str, title: &str, x: f64, y: f64) -> Self {
        put!(
            self.labels,
            "<circle class=\"dot {class}\" cx=\"{}%\" cy=\"{}\" r=\"3\"><title>{}</title></circle>\n",
            self.percent_at(x),
            num(self.y_at(y)),
            escape(title)
        );
        self
    }

    /// A thin line from `low` to `high` at `x`: how sure a dot is.
    #[must_use]
    pub fn whisker(mut self, class: &str, x: f64, (low, high): (f64, f64)) -> Self {
        let at = self.percent_at(x);
        put!(
            self.labels,
            "<line class=\"whisker {class}\" x1=\"{at}%\" x2=\"{at}%\" y1=\"{}\" y2=\"{}\"/>\n",
            num(self.y_at(low).max(0.0)),
            num(self.y_at(high).max(0.0)),
        );
        self
    }

    /// A dashed line from top to bottom at `x`, its label so many rows above the foot.
    #[must_use]
    pub fn vertical(mut self, class: &str, label: &str, x: f64, row: usize) -> Self {
        let above = u32::try_from(row)
            .unwrap_or(u32::MAX)
            .saturating_mul(ROW_PX);
        let at = self.percent_at(x);
        let anchor = if self.x_at(x) > 0.9 * VIEW_WIDTH {
            ("end", -4)
        } else {
            ("start", 4)
        };
        put!(
            self.labels,
            "<line class=\"vertical {class}\" x1=\"{at}%\" x2=\"{at}%\" y1=\"0\" y2=\"{h}\"/>\
             <text class=\"vertical\" x=\"{at}%\" dx=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n",
            anchor.1,
            self.height_px
                .saturating_sub(above.saturating_add(6))
                .max(12),
            anchor.0,
            escape(label),
            h = self.height_px,
        );
        self
    }

    /// A line of text at the left edge, its base `y_px` below the top edge.
    #[must_use]
    pub fn caption(mut self, y_px: u32, text: &str) -> Self {
        put!(
            self.labels,
            "<text class=\"caption\" x=\"0\" y=\"{y_px}\">{}</text>\n",
            escape(text)
        );
        self
    }

    /// Layers stacked from zero upwards: `values[i][k]` is layer k's share from time `i * width`
    /// to the next. A layer without any value is not drawn.
    #[must_use]
    pub fn bands<const N: usize>(
        mut self,
        layers: &[(&str, String); N],
        width: f64,
        values: &[[f64; N]],
    ) -> Self {
        for (k, (class, title)) in layers.iter().enumerate() {
            if values.iter().all(|v| v[k] <= 0.0) {
                continue;
            }
            let sum_to = |v: &[f64; N], k: usize| v[..k].iter().sum::<f64>();
            let top = |i: usize| sum_to(&values[i], k + 1);
            let bottom = |i: usize| sum_to(&values[i], k);
            let mut d = String::new();
            let mut step = |i: usize, from: usize, to: usize, y: f64| {
                let (from, to) = (from as f64 * width, to as f64 * width);
                let command = if i == 0 { 'M' } else { 'L' };
                let y = num(self.y_at(y));
                let (x0, x1) = (num(self.x_at(from)), num(self.x_at(to)));
                put!(d, "{command}{x0} {y}L{x1} {y}");
            };
            (0..values.len()).for_each(|i| step(i, i, i + 1, top(i)));
            (0..values.len())
                .rev()
                .for_each(|i| step(1, i + 1, i, bottom(i)));
            put!(
                self.marks,
                "<path class=\"band {class}\" d=\"{d}Z\"><title>{}</title></path>\n",
                escape(title)
            );
        }
        self
    }

    /// A dashed line across the chart at `value`; one above the chart is drawn at its top edge, and
    /// its label gets an arrow.
    #[must_use]
    pub fn reference(mut self, class: &str, label: &str, value: f64) -> Self {
        let above = value > self.y.max;
        let y = if above { 1.0 } else { self.y_at(value) };
        let arrow = if above { "↑ " } else { "" };
        // Labels go under a line near the top edge and above it elsewhere.
        let text_y = if y < 16.0 { y + 13.0 } else { y - 5.0 };
        put!(
            self.labels,
            "<line class=\"reference {class}\" x1=\"0\" x2=\"100%\" y1=\"{y}\" y2=\"{y}\"/>\n\
                 <text class=\"reference {class}\" x=\"100%\" dx=\"-4\" y=\"{ty}\" \
                 text-anchor=\"end\">{arrow}{label}</text>\n",
            y = num(y),
            ty = num(text_y),
            label = escape(label),
        );
        self
    }

    /// Shades the time from zero to `to`, which the numbers leave out.
    #[must_use]
    pub fn shade(mut self, title: &str, to: f64) -> Self {
        let width = self.x_at(to.min(self.x.max));
        if width > 0.0 {
            put!(
                self.marks,
                "<rect class=\"shade\" x=\"0\" y=\"0\" width=\"{}\" height=\"{}\">\
                     <title>{}</title></rect>\n",
                num(width),
                self.height_px,
                escape(title)
            );
        }
        self
    }

    /// Columns that light up and say `text(i)` when pointed at; `count` of them, `width` wide.
    #[must_use]
    pub fn columns(mut self, count: usize, width: f64, text: impl Fn(usize) -> String) -> Self {
        let step = self.x_at(width);
        for i in 0..count.min(COLUMNS_MAX) {
            put!(
                self.marks,
                "<rect class=\"column\" x=\"{}\" y=\"0\" width=\"{}\" height=\"{}\">\
                     <title>{}</title></rect>\n",
                num(i as f64 * step),
                num(step),
                self.height_px,
                escape(&text(i))
            );
        }
        self
    }

    /// The chart's text.
    pub fn render(&self) -> String {
        let mut out = String::with_capacity(self.marks.len() + 2_048);
        let full = self.height_px + if self.time_labels { TIME_LABELS_PX } else { 0 };
        let (h, title) = (self.height_px, escape(&self.title));
        put!(
            out,
            "<svg class=\"chart\" role=\"img\" width=\"100%\" height=\"{full}\">\n\
                 <title>{title}</title>\n"
        );
        self.grid(&mut out);
        put!(
            out,
            "<svg width=\"100%\" height=\"{h}\" viewBox=\"0 0 {VIEW_WIDTH} {h}\" \
                 preserveAspectRatio=\"none\">\n{}</svg>\n",
            self.marks
        );
        put!(
            out,
            "<line class=\"axis\" x1=\"0\" x2=\"100%\" y1=\"{h}\" y2=\"{h}\"/>\n{}</svg>\n",
            self.labels
        );
        out
    }

    fn grid(&self, out: &mut String) {
        for (value, label) in &self.y.ticks {
            let y = self.y_at(*value);
            put!(
                out,
                "<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{y}\" y2=\"{y}\"/>\
                     <text class=\"tick\" x=\"-7\" y=\"{ty}\" text-anchor=\"end\">{label}</text>\n",
                y = num(y),
                ty = num(y + 4.0),
                label = escape(label),
            );
        }
        for (value, label) in &self.x.ticks {
            let percent = self.x_at(*value) / VIEW_WIDTH * 100.0;
            put!(
                out,
                "<line class=\"grid\" x1=\"{x}%\" x2=\"{x}%\" y1=\"0\" y2=\"{}\"/>",
                self.height_px,
                x = num(percent)
            );
            if self.time_labels {
                let anchor = match percent {
                    p if p < 3.0 => "start",
                    p if p > 95.0 => "end",
                    _ => "middle",
                };
                put!(
                    out,
                    "<text class=\"tick\" x=\"{}%\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
                    num(percent),
                    self.height_px + 15,
                    escape(label)
                );
            }
            out.push('\n');
        }
    }

    fn path(&self, points: &[(f64, f64)]) -> String {
        let mut d = String::with_capacity(points.len() * 12);
        for (i, &(x, y)) in points.iter().enumerate() {
            let blank = if i == 0 { "" } else { "L" };
            put!(d, "{blank}{} {}", num(self.x_at(x)), num(self.y_at(y)));
        }
        d
    }

    /// Left edge 0, right edge [`VIEW_WIDTH`].
    fn x_at(&self, value: f64) -> f64 {
        (value / self.x.max).clamp(0.0, 1.0) * VIEW_WIDTH
    }

    /// [`Self::x_at`] as a percentage of the width, for marks that do not stretch.
    fn percent_at(&self, value: f64) -> String {
        let x = self.x_at(value);
        hundredths(if x.is_finite() { x } else { 0.0 } / VIEW_WIDTH * 100.0)
    }

    /// Zero at the bottom. What lies above the axis leaves the picture and is cut off there.
    fn y_at(&self, value: f64) -> f64 {
        let height = f64::from(self.height_px);
        (1.0 - (value / self.y.max).clamp(0.0, 4.0)) * height
    }
}

/// A bar of `parts` (class, share, tooltip) that add up to at most one, on an empty track; `mark`
/// sets a line across it at a share, with its tooltip.
pub fn share_bar(
    title: &str,
    height_px: u32,
    parts: &[(&str, f64, String)],
    mark: Option<(f64, String)>,
) -> String {
    let mut out = String::new();
    put!(
        out,
        "<svg class=\"bar\" role=\"img\" aria-label=\"{}\" width=\"100%\" height=\"{height_px}\">\
             <rect class=\"track\" width=\"100%\" height=\"{height_px}\"/>",
        escape(title)
    );
    let mut left = 0.0;
    for (class, share, tooltip) in parts {
        let share = if share.is_finite() {
            share.clamp(0.0, 1.0 - left)
        } else {
            0.0
        };
        if share > 0.0 {
            put!(
                out,
                "<rect class=\"fill {class}\" x=\"{}%\" width=\"{}%\" height=\"{height_px}\">\
                     <title>{}</title></rect>",
                hundredths(left * 100.0),
                hundredths(share * 100.0),
                escape(tooltip)
            );
        }
        left += share;
    }
    if let Some((share, tooltip)) = mark.filter(|(share, _)| share.is_finite()) {
        put!(
            out,
            "<rect class=\"mark\" x=\"{}%\" y=\"-3\" width=\"2\" height=\"{}\">\
             <title>{}</title></rect>",
            hundredths(share.clamp(0.0, 1.0) * 100.0),
            height_px + 6,
            escape(&tooltip)
        );
    }
    out.push_str("</svg>");
    out
}

/// At most `limit` of `points`: the smallest and the largest of each bucket in the order of time,
/// so that no spike is lost.
pub fn thin(points: &[(f64, f64)], limit: usize) -> Vec<(f64, f64)> {
    if points.len() <= limit || limit < 4 {
        return points.to_vec();
    }
    let size = points.len().div_ceil(limit / 2);
    let mut kept = Vec::with_capacity(limit);
    for bucket in points.chunks(size) {
        let by_value = |a: &usize, b: &usize| bucket[*a].1.total_cmp(&bucket[*b].1);
        let low = (0..bucket.len()).min_by(by_value).unwrap_or(0);
        let high = (0..bucket.len()).max_by(by_value).unwrap_or(0);
        kept.push(bucket[low.min(high)]);
        if low != high {
            kept.push(bucket[low.max(high)]);
        }
    }
    kept
}

/// `text` with the five characters that mean something to HTML and SVG spelled out, as far as
/// [`units::text::plain_lines`] lets it through.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in units::text::plain_lines(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A coordinate with one decimal, without a trailing `.0` and without a negative zero.
fn num(v: f64) -> String {
    let v = if v.is_finite() {
        (v * 10.0).round() / 10.0
    } else {
        0.0
    };
    format!("{}", if v == 0.0 { 0.0 } else { v })
}

/// Two decimals, for widths in percent: 0.01 % of a page is less than a pixel.
fn hundredths(v: f64) -> String {
    format!("{}", (v * 100.0).round() / 100.0)
}

/// Positive and finite, so that nothing divides by zero.
fn sane(v: f64) -> f64 {
    if v.is_finite() && v > 0.0 {
        v.min(1e30)
    } else {
        1.0
    }
}

/// 1, 2, 2.5 or 5 times a power of ten, at least `v`.
fn round_step(v: f64) -> f64 {
    let power = 10_f64.powf(v.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    power
        * steps
            .into_iter()
            .find(|step| step * power >= v * (1.0 - 1e-9))
            .unwrap_or(10.0)
}

fn pick(value: f64, units: &[(f64, &'static str)]) -> (f64, &'static str) {
    let fits = units
        .iter()
        .find(|(scale, _)| value >= scale * (1.0 - 1e-9));
    fits.or_else(|| units.last()).copied().unwrap_or((1.0, ""))
}

/// Multiples of `step` up to `max`, labelled in units of `scale`.
fn ticks(max: f64, step: f64, scale: f64, unit: &str) -> Vec<(f64, String)> {
    (0..TICKS_MAX)
        .map(|i| f64::from(i) * step)
        .take_while(|&at| at <= max)
        .map(|at| (at, format!("{}{unit}", (at / scale * 1e3).round() / 1e3)))
        .collect()
}
/// Strokes of one kind in a chart.
const STROKES_MAX: usize = 5_000;
/// Width of the stretched view box: a tenth of it is below a pixel on any screen.
const VIEW_WIDTH: f64 = 1_000.0;
/// Points of one line: more than a chart has pixels.
const POINTS_MAX: usize = 800;
/// Columns that can be pointed at.
const COLUMNS_MAX: usize = 400;
/// Room for the time axis' labels.
const TIME_LABELS_PX: u32 = 20;
/// From one row of labels to the next.
const ROW_PX: u32 = 14;
/// An axis ends this much above its largest value.
const HEADROOM: f64 = 1.08;
/// Additional room for a reference's label above the data.
const LABEL_ROOM: f64 = 1.16;
/// A step is chosen so that about this many ticks fit.
const TICKS_WANTED: f64 = 5.0;
/// Never reached with a step chosen as above; bounds the loop.
const TICKS_MAX: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> String {
        let ticks: Vec<&str> = axis.ticks.iter().map(|(_, label)| label.as_str()).collect();
        format!("{} {}", ticks.join(" | "), axis.unit)
            .trim()
            .to_owned()
    }

    #[test]
    fn counts_have_whole_ticks() {
        assert_eq!(labels(&Axis::count(1.0, "drops")), "0 | 1 drops");
        assert_eq!(labels(&Axis::count(0.0, "x")), "0 | 1 x");
        assert_eq!(
            labels(&Axis::count(9_000.0, "x")),
            "0 | 2k | 4k | 6k | 8k x"
        );
        assert_eq!(labels(&Axis::wire_bytes(131_072.0)), "0 | 50 | 100 kB");
    }

    #[test]
    fn a_range_goes_along_the_tops_and_back_along_the_bottoms() {
        let axis = |max| Axis {
            max,
            ..Axis::share()
        };
        let chart = Chart::new("", 100, axis(2.0), axis(10.0));
        let drawn = chart
            .clone()
            .range("r", "", 1.0, &[(0.0, 5.0), (2.0, 10.0)])
            .render();
        assert!(
            drawn.contains("d=\"M0 100V50H500V0H1000V80H500V100H0Z\""),
            "{drawn}"
        );
        let marks = chart
            .dots("d", 7, &[0.0, 1.0, f64::NAN, 3.0])
            .crosses("c", 9, &[0.5])
            .render();
        for at in [
            "cx=\"0%\"",
            "cx=\"50%\"",
            "cx=\"100%\"",
            "<svg x=\"25%\" y=\"9\"",
        ] {
            assert!(
                marks.contains(at) && !marks.contains("NaN"),
                "{at}: {marks}"
            );
        }
    }

    #[test]
    fn ticks_are_round_numbers_in_a_fitting_unit() {
        let mut table = String::new();
        for max in [3.9e6, 47e6, 930e6, 1e9, 9.4e9, 98e9, 870.0, 0.0] {
            table += &format!("{max:>12} b/s: {}\n", labels(&Axis::rate(max)));
        }
        for max in [512.0, 65_536.0, 10.6e6, 100e6, 3e9] {
            table += &format!("{max:>12} B:   {}\n", labels(&Axis::bytes(max)));
        }
        for end in [0.3, 1.0, 10.0, 12.5, 60.0, 3_600.0] {
            table += &format!("{end:>12} s:   {}\n", labels(&Axis::time(end)));
        }
        for max in [85e6, 120e3, 1.3e9] {
            table += &format!("{max:>12} ns:  {}\n", labels(&Axis::round_trip(max)));
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn a_chart_is_the_same_text_every_time() {
        let points = [(0.0, 0.0), (1.0, 2e6), (2.0, 3.9e6), (4.0, 3.8e6)];
        let chart = Chart::new(
            "goodput <over> time",
            100,
            Axis::time(4.0),
            Axis::rate(3.9e6),
        )
        .shade("ramp-up", 1.0)
        .area("goodput", &points)
        .line("goodput", "stream \"0\"", &points)
        .reference("achievable", "achievable 949 Mb/s", 949e6)
        .reference("predicted", "predicted 2 Mb/s", 2e6)
        .columns(2, 2.0, |i| format!("column {i}"));
        insta::assert_snapshot!(chart.render());
    }

    #[test]
    fn bands_stack_to_the_top_and_an_empty_layer_is_left_out() {
        let layers = [
            ("a", "A".to_owned()),
            ("b", "B".to_owned()),
            ("c", "C".to_owned()),
        ];
        let values = [[0.25, 0.0, 0.75], [0.5, 0.0, 0.5]];
        let chart = Chart::new("shares", 40, Axis::time(2.0), Axis::share())
            .without_time_labels()
            .bands(&layers, 1.0, &values);
        insta::assert_snapshot!(chart.render());
    }

    #[test]
    fn thinning_keeps_spikes_and_the_order_of_time() {
        let points: Vec<(f64, f64)> = (0..100_000)
            .map(|i| (f64::from(i), if i == 54_321 { 9.0 } else { 1.0 }))
            .collect();
        let thinned = thin(&points, 800);
        assert!(thinned.len() <= 800);
        assert!(thinned.contains(&(54_321.0, 9.0)));
        assert!(thinned.windows(2).all(|w| w[0].0 < w[1].0));
        assert_eq!(thin(&points[..800], 800), points[..800]);
    }

    #[test]
    fn numbers_that_are_none_draw_no_nonsense() {
        let points = [
            (0.0, f64::NAN),
            (f64::INFINITY, f64::NEG_INFINITY),
            (1.0, 1e300),
        ];
        let chart = Chart::new("", 10, Axis::time(f64::NAN), Axis::rate(f64::INFINITY))
            .area("x", &points)
            .line("x", "", &points)
            .reference("x", "", f64::NAN)
            .render();
        let parts = [("x", f64::NAN, String::new()), ("y", 7.0, String::new())];
        let bar = share_bar("", 4, &parts, Some((f64::INFINITY, String::new())));
        for text in [chart, bar] {
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        }
    }
}
