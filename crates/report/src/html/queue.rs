//! A packet log as a page: how full each queue was, what was dropped and why, and in which order
//! flows came when most was lost.
//!
//! Drawn are the links that dropped something and the queues that were at least a twentieth as deep
//! as the deepest; the others are lines of a table. Time is merged into bins that a screen can show.
//! The page is bounded whatever the picture says: so many links, flows and marks, and a word on
//! what was left out.

use super::{ENTRIES_MAX, close_page, left_out, open_page, shown_sentence};
use crate::svg::{Axis, Chart, escape};
use crate::text::{self, Tone};

/// A log in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPicture {
    /// What was run; empty when the log does not say.
    pub title: String,
    /// Name of the file.
    pub file: String,
    /// From the first time in the log to the end of the last bin.
    pub span_ns: u64,
    /// Width of the bins of all series.
    pub bin_ns: u64,
    /// Frames in the log.
    pub frames: u64,
    /// Decisions on segments in the log.
    pub decisions: u64,
    /// Decisions that are missing since the disk was behind.
    pub lost_rows: u64,
    /// Frames likewise.
    pub lost_frames: u64,
    /// The log has no end: its lab was killed or still runs.
    pub interrupted: bool,
    /// Where the log is cut, bytes from its start.
    pub truncated_at: Option<u64>,
    /// Parts that make no sense and were left out.
    pub malformed_blocks: u64,
    /// The links, one for each direction.
    pub links: Vec<LinkPicture>,
}

/// One direction of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkPicture {
    /// Its name and where it leads.
    pub name: String,
    /// What it dropped.
    pub drops: Vec<DropPicture>,
    /// Its queues.
    pub queues: Vec<QueuePicture>,
}

/// Drops of one cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DropPicture {
    /// The cause, as logs name it.
    pub cause: String,
    /// Segments in the whole log.
    pub total: u64,
    /// Segments in each bin.
    pub per_bin: Vec<u64>,
}

/// One queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueuePicture {
    /// The stage of the link that it is.
    pub stage: String,
    /// Least and most bytes in each bin; `None` where nothing was decided.
    pub depths: Vec<Option<(u64, u64)>>,
    /// The flows in the order of their first arrivals.
    pub flows: Vec<FlowPicture>,
    /// Arrivals in their order.
    pub arrivals: Vec<ArrivalPicture>,
    /// Segments that came after those.
    pub segments_left_out: u64,
}

/// One flow at a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowPicture {
    /// The flow's hash.
    pub flow: u32,
    /// Segments that came.
    pub arrived: u64,
    /// Of these, dropped by the queue.
    pub dropped: u64,
    /// Times at which its segments followed another flow's.
    pub turns: u64,
}

/// Segments of one flow that came one after the other and shared their fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrivalPicture {
    /// When the first came, from the log's first time.
    pub at_ns: u64,
    /// The flow's hash.
    pub flow: u32,
    /// How many.
    pub segments: u64,
    /// True when the queue turned them away.
    pub dropped: bool,
}

/// The page of a log: a complete HTML document. `flow_name` says who talks to whom in a flow, if
/// that is known; it is asked for the few flows that are shown.
pub fn render(log: &LogPicture, flow_name: &dyn Fn(u32) -> Option<String>) -> String {
    let title = clipped(&log.title);
    let mut out = open_page(&format!("goodput log {title}"));
    header(&mut out, log, &title);
    let page = Page {
        log,
        flow_name,
        causes: causes_of(log),
        deepest: log
            .links
            .iter()
            .map(LinkPicture::deepest)
            .max()
            .unwrap_or(0),
    };
    let (drawn, listed): (Vec<_>, Vec<_>) =
        log.links.iter().partition(|link| page.is_of_interest(link));
    // The worst first: it is what the page is opened for.
    let mut drawn = drawn;
    drawn.sort_by_key(|link| std::cmp::Reverse((link.dropped(), link.deepest())));
    for link in drawn.iter().take(LINKS_MAX) {
        page.link(&mut out, link);
    }
    left_out(
        &mut out,
        drawn.len(),
        LINKS_MAX,
        "links with drops or queues",
    );
    page.table(&mut out, &listed);
    close_page(&mut out);
    out
}

/// The same in a few lines of plain text, ended by `\n`.
pub fn summary(log: &LogPicture) -> String {
    let mut out = format!("{}\n", sentence(log));
    let title = clipped(&log.title);
    for line in [title, facts(log).join(", ")] {
        if !line.is_empty() {
            put!(out, "  {line}\n");
        }
    }
    for reservation in reservations(log) {
        put!(out, "  {reservation}\n");
    }
    out.push('\n');
    for link in log.links.iter().take(ENTRIES_MAX) {
        let most = match link.queues.is_empty() {
            true => "no queue".to_owned(),
            false => format!("queue at most {}", text::bytes(link.deepest())),
        };
        let name = clipped(&link.name);
        put!(out, "  {name:<30}  {most}, {}\n", link.drops_in_words());
    }
    if log.links.len() > ENTRIES_MAX {
        put!(out, "  and {} more links\n", log.links.len() - ENTRIES_MAX);
    }
    out
}

fn header(out: &mut String, log: &LogPicture, title: &str) {
    out.push_str("<header>\n<p class=\"kicker\"><b>goodput log</b>");
    let file = clipped(&log.file);
    let known = [title.to_owned(), file].into_iter().chain(facts(log));
    for fact in known.filter(|fact| !fact.is_empty()) {
        put!(out, "<span>{}</span>", escape(&text::glued(&fact)));
    }
    let (tone, label) = match log.links.iter().any(|link| link.dropped() > 0) {
        true => (Tone::Limited, "drops"),
        false => (Tone::Good, "no drops"),
    };
    put!(
        out,
        "</p>\n<p class=\"chip {}\">{label}</p>\n<h1>{}</h1>\n",
        super::tone_class(tone),
        shown_sentence(&sentence(log))
    );
    for reservation in reservations(log) {
        put!(out, "<p class=\"error\">{reservation}</p>\n");
    }
    out.push_str("</header>\n");
}

/// What matters most, in one sentence.
fn sentence(log: &LogPicture) -> String {
    let worst = log.links.iter().max_by_key(|link| link.dropped());
    let deepest = log.links.iter().max_by_key(|link| link.deepest());
    match (worst, deepest) {
        (Some(worst), _) if worst.dropped() > 0 => {
            let queue = match worst.deepest() {
                0 => String::new(),
                most => format!("; its queue held at most {}", text::bytes(most)),
            };
            format!(
                "{} dropped {}{queue}",
                clipped(&worst.name),
                worst.drops_of_arrivals()
            )
        }
        (_, Some(deepest)) if deepest.deepest() > 0 => format!(
            "Nothing was dropped; the deepest queue was that of {} with {}",
            clipped(&deepest.name),
            text::bytes(deepest.deepest())
        ),
        _ => "Nothing was queued and nothing was dropped".to_owned(),
    }
}

fn facts(log: &LogPicture) -> [String; 3] {
    [
        text::duration(log.span_ns),
        text::plural(log.frames, "frame"),
        text::plural(log.decisions, "decision") + " on segments",
    ]
}

/// How far the log can be trusted, where there is something to say.
fn reservations(log: &LogPicture) -> Vec<String> {
    let mut all = Vec::new();
    if log.interrupted {
        all.push("The log has no end: its lab was killed, or still runs.".to_owned());
    }
    if let Some(at) = log.truncated_at {
        all.push(format!(
            "The log is cut at byte {at}; what stands before is shown."
        ));
    }
    if log.malformed_blocks > 0 {
        let blocks = text::plural(log.malformed_blocks, "block");
        all.push(format!("Left out since they make no sense: {blocks}."));
    }
    if log.lost_rows > 0 || log.lost_frames > 0 {
        all.push(format!(
            "Missing since the disk was behind: {} and {}.",
            text::plural(log.lost_rows, "row"),
            text::plural(log.lost_frames, "frame")
        ));
    }
    all
}

impl LinkPicture {
    fn dropped(&self) -> u64 {
        self.drops
            .iter()
            .fold(0, |sum, d| sum.saturating_add(d.total))
    }

    fn deepest(&self) -> u64 {
        self.queues
            .iter()
            .map(QueuePicture::deepest)
            .max()
            .unwrap_or(0)
    }

    /// `12 queue_full, 3 lost_random`, or `no drops`.
    fn drops_in_words(&self) -> String {
        match self.dropped() {
            0 => "no drops".to_owned(),
            _ => format!("dropped {}", self.causes_in_words()),
        }
    }

    fn causes_in_words(&self) -> String {
        let mut drops: Vec<&DropPicture> = self.drops.iter().filter(|d| d.total > 0).collect();
        drops.sort_by_key(|d| std::cmp::Reverse(d.total));
        let words = drops.iter().map(|d| {
            let cause = clipped(&d.cause);
            format!("{} {cause}", text::count(d.total))
        });
        words.collect::<Vec<_>>().join(", ")
    }

    /// `12 of 300 segments (4 %): queue_full` where one queue dropped all of them; otherwise nobody
    /// counted what the drops are part of.
    fn drops_of_arrivals(&self) -> String {
        let causes: Vec<&DropPicture> = self.drops.iter().filter(|d| d.total > 0).collect();
        let why = match causes.as_slice() {
            [only] => clipped(&only.cause),
            _ => self.causes_in_words(),
        };
        let dropped = self.dropped();
        match self.queues.as_slice() {
            [queue] if queue.dropped() == dropped => {
                let arrived = queue.arrived();
                let (part, share) = (text::count(dropped), share_of(dropped, arrived));
                format!("{part} of {} segments{share}: {why}", text::count(arrived))
            }
            _ => format!("{}: {why}", text::plural(dropped, "segment")),
        }
    }
}

impl QueuePicture {
    fn deepest(&self) -> u64 {
        self.depths.iter().flatten().map(|d| d.1).max().unwrap_or(0)
    }

    fn arrived(&self) -> u64 {
        self.flows
            .iter()
            .fold(0, |sum, f| sum.saturating_add(f.arrived))
    }

    fn dropped(&self) -> u64 {
        let dropped = self.flows.iter().map(|flow| flow.dropped);
        dropped.fold(0, u64::saturating_add)
    }

    /// Depth in each of at most [`BINS_MAX`] bins, and how many of the log's one of them holds.
    /// Where nothing was decided the queue was what it was before: empty, if it had drained.
    fn spans(&self, bins: usize) -> (usize, Vec<(f64, f64)>) {
        let mut before = (0, 0);
        let filled = (0..bins).map(|i| {
            let decided = self.depths.get(i).copied().flatten();
            let drained = before.0 == 0;
            before = decided.unwrap_or(if drained { (0, 0) } else { before });
            before
        });
        let filled: Vec<(u64, u64)> = filled.collect();
        let merged = filled.len().div_ceil(BINS_MAX).max(1);
        let spans = filled.chunks(merged).map(|chunk| {
            let low = chunk.iter().map(|d| d.0).min().unwrap_or(0);
            let high = chunk.iter().map(|d| d.1).max().unwrap_or(0);
            (low as f64, high as f64)
        });
        (merged, spans.collect())
    }
}

/// What all sections need.
struct Page<'a> {
    log: &'a LogPicture,
    flow_name: &'a dyn Fn(u32) -> Option<String>,
    /// The causes that have a colour, the most frequent first.
    causes: Vec<&'a str>,
    /// Most bytes in any queue.
    deepest: u64,
}

impl Page<'_> {
    fn is_of_interest(&self, link: &LinkPicture) -> bool {
        link.dropped() > 0 || link.queues.iter().any(|queue| self.is_deep(queue))
    }

    fn is_deep(&self, queue: &QueuePicture) -> bool {
        let deepest = queue.deepest();
        deepest > 0 && deepest >= self.deepest / SHALLOW
    }

    fn link(&self, out: &mut String, link: &LinkPicture) {
        let facts = match link.dropped() {
            0 => "no drops".to_owned(),
            _ => format!("dropped {}", link.drops_of_arrivals()),
        };
        put!(
            out,
            "<section>\n<h2>{} <span>{}</span></h2>\n",
            escape(&clipped(&link.name)),
            shown_sentence(&facts)
        );
        // A queue is drawn where it was deep, or where flows lost in it.
        let is_drawn = |q: &&QueuePicture| self.is_deep(q) || q.flows.iter().any(|f| f.dropped > 0);
        let queues: Vec<&QueuePicture> = link.queues.iter().filter(is_drawn).collect();
        for queue in queues.iter().take(QUEUES_MAX) {
            let stage = match link.queues.len() {
                1 => String::new(),
                _ => clipped(&queue.stage),
            };
            self.depth(out, link, queue, &stage);
        }
        self.drops(out, link);
        for queue in queues.iter().take(QUEUES_MAX) {
            self.order(out, link, queue);
            self.flows(out, queue);
        }
        left_out(out, queues.len(), QUEUES_MAX, "queues of this link");
        out.push_str("</section>\n");
    }

    fn time(&self) -> Axis {
        Axis::time(self.span_s())
    }

    fn span_s(&self) -> f64 {
        (self.log.span_ns as f64 / 1e9).max(1e-9)
    }

    fn bins(&self) -> usize {
        let bins = self.log.span_ns.div_ceil(self.log.bin_ns.max(1)).max(1);
        usize::try_from(bins)
            .unwrap_or(LOG_BINS_MAX)
            .min(LOG_BINS_MAX)
    }

    fn depth(&self, out: &mut String, link: &LinkPicture, queue: &QueuePicture, stage: &str) {
        let (merged, spans) = queue.spans(self.bins());
        let most = queue.deepest();
        let width_s = self.log.bin_ns as f64 * merged as f64 / 1e9;
        let axis = Axis::wire_bytes(most as f64);
        let name = match stage {
            "" => "Bytes in the queue".to_owned(),
            stage => format!("Bytes in {stage}"),
        };
        let says = format!("least to most, {} at most", text::bytes(most));
        heading(out, &name, axis.unit, &[("range", says)]);
        let title = format!("{name} of {} over time", clipped(&link.name));
        let chart = Chart::new(&title, 170, self.time(), axis)
            .range("depth", "least to most bytes in the queue", width_s, &spans)
            .columns(spans.len(), width_s, |i| {
                let (low, high) = spans[i];
                format!(
                    "{}: {} to {}",
                    at_s(i as f64 * width_s),
                    text::bytes(text::whole(low)),
                    text::bytes(text::whole(high))
                )
            });
        figure(out, &chart);
    }

    fn drops(&self, out: &mut String, link: &LinkPicture) {
        if link.dropped() == 0 {
            return;
        }
        let bins = self.bins();
        let merged = bins.div_ceil(BINS_MAX).max(1);
        let mut values = vec![[0.0; LAYERS]; bins.div_ceil(merged)];
        let mut totals = [0_u64; LAYERS];
        for drops in &link.drops {
            let layer = self.layer(&drops.cause);
            totals[layer] = totals[layer].saturating_add(drops.total);
            for (i, &segments) in drops.per_bin.iter().enumerate() {
                if let Some(value) = values.get_mut(i / merged) {
                    value[layer] += segments as f64;
                }
            }
        }
        let most = values.iter().map(|v| v.iter().sum::<f64>());
        let axis = Axis::count(most.fold(0.0, f64::max), "segments");
        let names: [String; LAYERS] = std::array::from_fn(|layer| {
            let name = self
                .causes
                .get(layer)
                .map_or_else(|| "other causes".to_owned(), |cause| clipped(cause));
            format!("{name} {}", text::count(totals[layer]))
        });
        let legend: Vec<(&str, String)> = (0..LAYERS)
            .filter(|&layer| totals[layer] > 0)
            .map(|layer| (CLASSES[layer], names[layer].clone()))
            .collect();
        let bin_ns = self.log.bin_ns.saturating_mul(merged as u64);
        let unit = format!("segments in each {}", text::duration(bin_ns));
        out.push_str("<div class=\"drops\">\n");
        heading(out, "Dropped", &unit, &legend);
        let title = format!("segments dropped by {} over time", clipped(&link.name));
        let width_s = bin_ns as f64 / 1e9;
        let layers = std::array::from_fn::<_, LAYERS, _>(|k| (CLASSES[k], names[k].clone()));
        let chart = Chart::new(&title, 110, self.time(), axis)
            .bands(&layers, width_s, &values)
            .columns(values.len(), width_s, |i| {
                let dropped = text::whole(values[i].iter().sum());
                format!("{}: {}", at_s(i as f64 * width_s), text::count(dropped))
            });
        figure(out, &chart);
        out.push_str("</div>\n");
    }

    /// The layer in which a cause is drawn; the last one is for all without a colour.
    fn layer(&self, cause: &str) -> usize {
        let known = self.causes.iter().position(|known| *known == cause);
        known.unwrap_or(LAYERS - 1)
    }

    /// Who came when, around the time at which most was dropped.
    fn order(&self, out: &mut String, link: &LinkPicture, queue: &QueuePicture) {
        let Some(burst) = Burst::worst(&queue.arrivals, self.log.span_ns) else {
            return;
        };
        let rows = burst.rows();
        let drawn = &rows[..rows.len().min(FLOWS_MAX)];
        let mut legend = vec![("dots", "came and found room".to_owned())];
        let name = if rows.iter().any(|row| row.dropped > 0) {
            legend.push(("crosses", "came and was dropped".to_owned()));
            "Who came when most was dropped"
        } else {
            "Who came when most came"
        };
        let start = text::duration(burst.start_ns);
        let when = format!("from {start} after the log's start");
        heading(out, name, &when, &legend);
        let height = ROW_PX * u32::try_from(drawn.len()).unwrap_or(1);
        let axis = Axis {
            max: 1.0,
            ticks: Vec::new(),
            unit: "",
        };
        let title = format!("arrivals at {} by flow", clipped(&link.name));
        let time = Axis::time((burst.span_ns as f64 / 1e9).max(1e-9));
        let mut chart = Chart::new(&title, height, time, axis);
        for (row, top) in drawn.iter().zip((0..).step_by(ROW_PX as usize)) {
            let came = text::plural(row.arrived, "segment");
            let fate = match row.dropped {
                0 => format!("{came}, none dropped"),
                dropped => format!("{} of {came} dropped", text::count(dropped)),
            };
            let caption = format!("{}: {fate}", self.flow(row.flow));
            let times = |dropped| burst.times_s(row.flow, dropped);
            chart = chart
                .caption(top + 15, &caption)
                .dots("arrival", top + 26, &times(false))
                .crosses("drop", top + 36, &times(true));
        }
        figure(out, &chart);
        self.left_out_of_order(out, queue, &burst, &rows);
    }

    fn left_out_of_order(
        &self,
        out: &mut String,
        queue: &QueuePicture,
        burst: &Burst<'_>,
        rows: &[Row],
    ) {
        let segments = burst.arrivals.iter().map(|a| a.segments).max().unwrap_or(0);
        if segments > 1 {
            put!(
                out,
                "<p class=\"note\">A mark stands for segments that came one after the other: \
                 at most {} here.</p>\n",
                text::count(segments)
            );
        }
        let rest = rows.get(FLOWS_MAX..).unwrap_or_default();
        if !rest.is_empty() {
            let sum =
                |of: fn(&Row) -> u64| text::count(rest.iter().map(of).fold(0, u64::saturating_add));
            put!(
                out,
                "<p class=\"note\">{} more flows are not shown: {} segments, {} dropped.</p>\n",
                rest.len(),
                sum(|row| row.arrived),
                sum(|row| row.dropped)
            );
        }
        if queue.segments_left_out > 0 {
            let until = queue.arrivals.last().map_or(0, |last| last.at_ns);
            put!(
                out,
                "<p class=\"note\">Only the first {} runs of arrivals were looked at, up to {} of \
                 the log; {} came later.</p>\n",
                text::count(queue.arrivals.len() as u64),
                text::duration(until),
                text::plural(queue.segments_left_out, "segment")
            );
        }
    }

    /// All flows of a queue in the whole log.
    fn flows(&self, out: &mut String, queue: &QueuePicture) {
        let mut flows: Vec<&FlowPicture> = queue.flows.iter().collect();
        if flows.is_empty() {
            return;
        }
        flows.sort_by_key(|f| std::cmp::Reverse((f.dropped, f.arrived)));
        out.push_str(
            "<h4>Flows, <span>whole log</span></h4>\n\
             <div class=\"scroll\"><table class=\"list flow\">\n<thead><tr><th>flow</th>\
             <th class=\"n\">segments</th><th class=\"n\">dropped</th>\
             <th class=\"n\">came in a row</th></tr></thead>\n<tbody>\n",
        );
        for flow in flows.iter().take(FLOWS_MAX) {
            let in_a_row = match flow.turns {
                0 => "–".to_owned(),
                turns => format!("{:.1}", flow.arrived as f64 / turns as f64),
            };
            let dropped = match flow.dropped {
                0 => "0".to_owned(),
                dropped => text::count(dropped) + &share_of(dropped, flow.arrived),
            };
            put!(
                out,
                "<tr><td>{}</td><td class=\"n\" data-label=\"segments\">{}</td>\
                 <td class=\"n\" data-label=\"dropped\">{dropped}</td>\
                 <td class=\"n\" data-label=\"in a row\">{in_a_row}</td></tr>\n",
                escape(&self.flow(flow.flow)),
                text::count(flow.arrived)
            );
        }
        out.push_str("</tbody></table></div>\n");
        left_out(out, flows.len(), FLOWS_MAX, "flows");
    }

    /// A flow's name; its hash where nobody knows it.
    fn flow(&self, flow: u32) -> String {
        let known = (self.flow_name)(flow).map(|name| clipped(&name));
        let known = known.filter(|name| !name.is_empty());
        known.unwrap_or_else(|| format!("flow {flow:08x}"))
    }

    /// The links that have no chart.
    fn table(&self, out: &mut String, links: &[&LinkPicture]) {
        if links.is_empty() {
            return;
        }
        out.push_str(
            "<section>\n<h2>Links without drops <span>and with less than a twentieth of the \
             deepest queue</span></h2>\n<div class=\"scroll\"><table class=\"list\">\n\
             <thead><tr><th>link</th><th class=\"n\">queue at most</th></tr></thead>\n<tbody>\n",
        );
        for link in links.iter().take(ENTRIES_MAX) {
            let most = match link.deepest() {
                0 => "nothing queued".to_owned(),
                most => text::bytes(most),
            };
            put!(
                out,
                "<tr><td>{}</td><td class=\"n\">{most}</td></tr>\n",
                escape(&clipped(&link.name))
            );
        }
        out.push_str("</tbody></table></div>\n");
        left_out(out, links.len(), ENTRIES_MAX, "links");
        out.push_str("</section>\n");
    }
}

/// The causes with a colour of their own: the most frequent on all links, equal ones by name.
fn causes_of(log: &LogPicture) -> Vec<&str> {
    let mut totals = std::collections::BTreeMap::<&str, u64>::new();
    for drops in log.links.iter().flat_map(|link| &link.drops) {
        let total = totals.entry(&drops.cause).or_default();
        *total = total.saturating_add(drops.total);
    }
    let mut causes: Vec<(&str, u64)> = totals.into_iter().filter(|c| c.1 > 0).collect();
    causes.sort_by_key(|&(_, total)| std::cmp::Reverse(total));
    let colours = causes.into_iter().take(LAYERS - 1);
    colours.map(|(cause, _)| cause).collect()
}

/// Part of the arrivals at a queue: those around the worst loss.
struct Burst<'a> {
    arrivals: &'a [ArrivalPicture],
    start_ns: u64,
    span_ns: u64,
}

/// A flow in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Row {
    flow: u32,
    arrived: u64,
    dropped: u64,
}

impl<'a> Burst<'a> {
    /// Of all stretches of at most [`MARKS_MAX`] marks and a hundredth of the log (20 ms at least)
    /// the first with most segments dropped; where nothing was dropped, with most arrived.
    fn worst(arrivals: &'a [ArrivalPicture], span_ns: u64) -> Option<Self> {
        let limit_ns = (span_ns / BURST_SHARE).max(BURST_NS_MIN);
        let weight = |a: &ArrivalPicture| (if a.dropped { a.segments } else { 0 }, a.segments);
        let (mut from, mut sum) = (0, (0_u64, 0_u64));
        let (mut best, mut best_sum) = (0..0, (0, 0));
        for (i, arrival) in arrivals.iter().enumerate() {
            let more = weight(arrival);
            sum = (sum.0.saturating_add(more.0), sum.1.saturating_add(more.1));
            while from < i
                && (i - from >= MARKS_MAX
                    || arrival.at_ns.saturating_sub(arrivals[from].at_ns) > limit_ns)
            {
                let less = weight(&arrivals[from]);
                sum = (sum.0.saturating_sub(less.0), sum.1.saturating_sub(less.1));
                from += 1;
            }
            if sum > best_sum {
                (best, best_sum) = (from..i + 1, sum);
            }
        }
        let arrivals = &arrivals[best];
        let start_ns = arrivals.iter().map(|a| a.at_ns).min()?;
        let end_ns = arrivals.iter().map(|a| a.at_ns).max()?;
        Some(Self {
            arrivals,
            start_ns,
            span_ns: end_ns - start_ns,
        })
    }

    /// Its flows; those that lost most come first.
    fn rows(&self) -> Vec<Row> {
        let mut by_flow = std::collections::BTreeMap::<u32, Row>::new();
        for arrival in self.arrivals {
            let row = by_flow.entry(arrival.flow).or_default();
            row.flow = arrival.flow;
            row.arrived = row.arrived.saturating_add(arrival.segments);
            if arrival.dropped {
                row.dropped = row.dropped.saturating_add(arrival.segments);
            }
        }
        let mut rows: Vec<Row> = by_flow.into_values().collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.dropped, row.arrived)));
        rows
    }

    /// When a flow's segments came that shared this fate, seconds from the start.
    fn times_s(&self, flow: u32, dropped: bool) -> Vec<f64> {
        let shared = |a: &&ArrivalPicture| a.flow == flow && a.dropped == dropped;
        let arrivals = self.arrivals.iter().filter(shared);
        arrivals
            .map(|a| (a.at_ns - self.start_ns) as f64 / 1e9)
            .collect()
    }
}

/// A name from outside, fit to be shown and no longer than a line.
fn clipped(name: &str) -> String {
    let name = text::plain(name);
    match name.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => name[..end].to_owned() + "…",
        None => name,
    }
}

/// A chart's name, its unit, and the legend.
fn heading(out: &mut String, name: &str, unit: &str, legend: &[(&str, String)]) {
    put!(
        out,
        "<h4>{}, <span>{}</span></h4>\n<p class=\"keys\">",
        escape(name),
        escape(unit)
    );
    for (class, text) in legend {
        put!(
            out,
            "<span class=\"key\"><i class=\"{class}\"></i>{}</span> ",
            escape(text)
        );
    }
    out.push_str("</p>\n");
}

fn figure(out: &mut String, chart: &Chart) {
    put!(out, "<div class=\"plot\">{}</div>\n", chart.render());
}

/// ` (4 %)`; nothing where there is no whole.
fn share_of(part: u64, whole: u64) -> String {
    let share = text::ratio(part, whole).map(text::percent);
    share.map(|share| format!(" ({share})")).unwrap_or_default()
}

fn at_s(seconds: f64) -> String {
    text::duration(text::whole(seconds * 1e9))
}

/// Characters of a name.
const NAME_CHARS_MAX: usize = 100;
/// Links with charts.
const LINKS_MAX: usize = 8;
/// Queues of one link with charts.
const QUEUES_MAX: usize = 4;
/// Flows in a picture or table: more rows are not read.
const FLOWS_MAX: usize = 8;
/// Marks in a picture of arrivals: with more, one cannot tell them apart.
const MARKS_MAX: usize = 500;
/// A row of that picture: a caption, dots, crosses.
const ROW_PX: u32 = 46;
/// The picture shows this part of the log,
const BURST_SHARE: u64 = 100;
/// yet no less than a few queues of some milliseconds take to fill and drain.
const BURST_NS_MIN: u64 = 20_000_000;
/// Bins of a chart: each is a few pixels wide.
const BINS_MAX: usize = 250;
/// Bins of a log that are looked at; its reader makes at most a thousand.
const LOG_BINS_MAX: usize = 10_000;
/// A queue that never held the deepest's share of one in so many is no picture.
const SHALLOW: u64 = 20;
/// Causes with a colour, and one layer for the rest.
const LAYERS: usize = 7;
/// Their classes.
const CLASSES: [&str; LAYERS] = ["d0", "d1", "d2", "d3", "d4", "d5", "d6"];

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const HOSTILE: &str = "</p><script>alert('x')</script><img src=x>&\u{202e}";

    fn drops(cause: &str, per_bin: &[u64]) -> DropPicture {
        DropPicture {
            cause: cause.to_owned(),
            total: per_bin.iter().sum(),
            per_bin: per_bin.to_vec(),
        }
    }

    fn arrival(at_ms: u64, flow: u32, segments: u64, dropped: bool) -> ArrivalPicture {
        ArrivalPicture {
            at_ns: at_ms * MS,
            flow,
            segments,
            dropped,
        }
    }

    fn queue(depths: &[Option<(u64, u64)>]) -> QueuePicture {
        QueuePicture {
            stage: "queue".to_owned(),
            depths: depths.to_vec(),
            ..QueuePicture::default()
        }
    }

    fn link(name: &str, deepest: u64) -> LinkPicture {
        LinkPicture {
            name: name.to_owned(),
            queues: vec![queue(&[Some((0, deepest))])],
            ..LinkPicture::default()
        }
    }

    /// One queue of 90 kB that lost 30 of 40 segments of flow 1, and a quiet way back.
    fn log() -> LogPicture {
        let flow = |flow, arrived, dropped| FlowPicture {
            flow,
            arrived,
            dropped,
            turns: 2,
        };
        let lossy = LinkPicture {
            name: "wan: a → b".to_owned(),
            drops: vec![drops("queue_full", &[0, 29, 1])],
            queues: vec![QueuePicture {
                flows: vec![flow(1, 40, 30), flow(2, 80, 0)],
                arrivals: vec![
                    arrival(0, 2, 80, false),
                    arrival(15, 1, 10, false),
                    arrival(16, 1, 30, true),
                ],
                ..queue(&[Some((0, 3_000)), Some((40_000, 90_000)), None])
            }],
        };
        LogPicture {
            title: "Two into one".to_owned(),
            file: "q.gplog".to_owned(),
            span_ns: 30 * MS,
            bin_ns: 10 * MS,
            frames: 7,
            decisions: 240,
            links: vec![link("wan: b → a", 1_500), lossy],
            ..LogPicture::default()
        }
    }

    fn no_name(_: u32) -> Option<String> {
        None
    }

    #[test]
    fn the_summary_says_who_dropped_what_and_how_full_the_queue_was() {
        let log = LogPicture {
            interrupted: true,
            lost_rows: 1,
            ..log()
        };
        assert_eq!(
            summary(&log),
            "wan: a → b dropped 30 of 120 segments (25 %): queue_full; its queue held at most 90 kB\n  \
             Two into one\n  30 ms, 7 frames, 240 decisions on segments\n  \
             The log has no end: its lab was killed, or still runs.\n  \
             Missing since the disk was behind: 1 row and 0 frames.\n\n  \
             wan: b → a                      queue at most 1.5 kB, no drops\n  \
             wan: a → b                      queue at most 90 kB, dropped 30 queue_full\n"
        );
    }

    #[test]
    fn a_page_has_charts_of_what_was_lost_and_names_the_flows() {
        let page = render(&log(), &|flow| {
            (flow == 1).then(|| "udp a:1 → b:2".to_owned())
        });
        assert_eq!(page.matches("<svg class=\"chart\"").count(), 3);
        assert_eq!(page.matches("<circle").count(), 2);
        assert_eq!(page.matches("<path d=\"M-3-3L3 3M-3 3L3-3\"/>").count(), 1);
        assert!(page.contains("udp a:1 → b:2: 30 of 40 segments dropped"));
        assert!(page.contains("flow 00000002: 80 segments, none dropped"));
        assert!(page.contains("<td>wan: b → a</td><td class=\"n\">1.5 kB</td>"));
    }

    #[test]
    fn a_queue_of_a_twentieth_of_the_deepest_is_drawn_and_a_shallower_one_is_a_line() {
        for (deepest, charts) in [(4_999, 1), (5_000, 2)] {
            let log = LogPicture {
                links: vec![link("one", 100_000), link("two", deepest)],
                ..LogPicture::default()
            };
            let page = render(&log, &no_name);
            let drawn = page.matches("<svg class=\"chart\"").count();
            assert_eq!(drawn, charts, "{deepest}");
            assert_eq!(page.contains("<td>two</td>"), charts == 1);
        }
    }

    #[test]
    fn a_link_that_drops_without_a_queue_has_a_chart_of_its_drops() {
        let lossy = LinkPicture {
            name: "air".to_owned(),
            drops: vec![drops("lost_random", &[2])],
            queues: Vec::new(),
        };
        let log = LogPicture {
            links: vec![lossy],
            ..LogPicture::default()
        };
        let page = render(&log, &no_name);
        assert_eq!(page.matches("<svg class=\"chart\"").count(), 1);
        assert!(page.contains("air dropped 2 segments: lost_random"));
    }

    #[test]
    fn a_share_is_told_only_where_one_queue_dropped_all() {
        let mut picture = log();
        picture.links[1].drops.push(drops("lost_random", &[5]));
        let said = summary(&picture);
        let says = "dropped 35 segments: 30 queue_full, 5 lost_random; its queue";
        assert!(said.contains(says), "{said}");
    }

    #[test]
    fn an_undecided_bin_is_empty_after_a_drained_one_and_full_after_a_full_one() {
        let queue = queue(&[None, Some((0, 9)), None, Some((4, 7)), None]);
        let (merged, spans) = queue.spans(6);
        assert_eq!(merged, 1);
        let held = (4.0, 7.0);
        assert_eq!(
            spans,
            [(0.0, 0.0), (0.0, 9.0), (0.0, 0.0), held, held, held]
        );
    }

    #[test]
    fn merged_bins_keep_the_least_and_the_most() {
        let depths: Vec<_> = (0..BINS_MAX as u64 + 1).map(|i| Some((i, i + 5))).collect();
        assert_eq!(queue(&depths).spans(BINS_MAX).0, 1);
        let (merged, spans) = queue(&depths).spans(BINS_MAX + 1);
        assert_eq!((merged, spans[0]), (2, (0.0, 6.0)));
    }

    #[test]
    fn the_worst_burst_is_where_most_was_dropped_within_a_hundredth() {
        let quiet = (0..50).map(|i| arrival(i, 1, 100, false));
        let single = [arrival(3_000, 1, 4, true), arrival(3_101, 1, 4, true)];
        let burst = [
            arrival(5_000, 2, 3, true),
            arrival(5_050, 1, 1, false),
            arrival(5_100, 1, 3, true),
        ];
        let all: Vec<_> = quiet.chain(single).chain(burst).collect();
        let worst = Burst::worst(&all, 10_000 * MS).unwrap();
        assert_eq!(worst.arrivals, burst);
        assert_eq!((worst.start_ns, worst.span_ns), (5_000 * MS, 100 * MS));
        // A hundredth that is 1 ms longer holds the other pair.
        let worst = Burst::worst(&all, 10_100 * MS).unwrap();
        assert_eq!(worst.arrivals, single);
        assert!(Burst::worst(&[], 1).is_none());
    }

    #[test]
    fn without_drops_the_burst_is_where_most_came() {
        let all = [
            arrival(0, 1, 5, false),
            arrival(21, 1, 3, false),
            arrival(41, 1, 3, false),
            arrival(62, 1, 5, false),
        ];
        let worst = Burst::worst(&all, 1).unwrap();
        assert_eq!(worst.arrivals, &all[1..3]);
    }

    #[test]
    fn flows_and_marks_that_are_left_out_are_counted() {
        let flows = u32::try_from(FLOWS_MAX).unwrap() + 2;
        let marks = (0..2 * MARKS_MAX as u64).zip((0..flows).cycle());
        let mut picture = log();
        picture.links[1].queues[0].arrivals = marks
            .map(|(i, flow)| arrival(0, flow, 1, i % 2 == 0))
            .collect();
        picture.links[1].queues[0].segments_left_out = 33;
        let page = render(&picture, &no_name);
        let drawn = page.matches("<circle").count() + page.matches("M-3-3L3").count();
        assert_eq!(drawn, MARKS_MAX * FLOWS_MAX / (FLOWS_MAX + 2));
        assert!(page.contains("2 more flows are not shown: 100 segments, 0 dropped."));
        assert!(page.contains("the first 1,000 runs") && page.contains("33 segments came later"));
    }

    #[test]
    fn causes_beyond_the_colours_share_the_last_layer() {
        let names: Vec<String> = (0..LAYERS + 1).map(|i| format!("cause{i}")).collect();
        let causes = (1..).zip(&names).map(|(n, name)| drops(name, &[n]));
        let mut picture = log();
        picture.links[0].drops = causes.collect();
        picture.links[1].drops.clear();
        let page = render(&picture, &no_name);
        // 1 and 2 of the rarest.
        assert!(page.contains("<i class=\"d6\"></i>other causes 3</span>"));
        assert!(page.contains("<i class=\"d0\"></i>cause7 8</span>"));
    }

    #[test]
    fn hostile_names_are_shown_and_never_obeyed() {
        let bad = || HOSTILE.to_owned();
        let mut picture = log();
        picture.title = bad();
        picture.file = bad();
        picture.links[1].name = bad();
        picture.links[1].drops[0].cause = bad();
        let twin = picture.links[1].queues[0].clone();
        picture.links[1].queues.push(twin);
        picture.links[1].queues[0].stage = bad();
        picture.links[0].name = bad();
        let page = render(&picture, &|_| Some(bad()));
        assert!(!page.contains("<script") && !page.contains("<img") && !page.contains('\u{202e}'));
        assert!(page.contains("&lt;script&gt;"));
        assert!(!summary(&picture).contains('\u{202e}'));
        for tag in [
            "section", "div", "table", "tr", "td", "th", "p", "svg", "g", "h1", "h2", "h4", "span",
            "text", "title",
        ] {
            let opened = page.matches(&format!("<{tag}>")).count()
                + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn a_name_is_clipped_to_a_line() {
        let fits = "é".repeat(NAME_CHARS_MAX);
        assert_eq!(clipped(&fits), fits);
        assert_eq!(clipped(&(fits.clone() + "é")), fits + "…");
    }

    #[test]
    fn a_flood_gives_a_bounded_page_and_nothing_gives_a_whole_one() {
        let empty = render(&LogPicture::default(), &no_name);
        assert!(empty.contains("Nothing was queued and nothing was dropped"));
        assert!(empty.ends_with("</html>\n") && !empty.contains("NaN"));

        let huge = Some((u64::MAX, u64::MAX));
        let arrivals: Vec<_> = (0..20_000)
            .map(|i| arrival(0, i, u64::MAX, i % 2 == 0))
            .collect();
        let flows = arrivals.iter().map(|a| FlowPicture {
            flow: a.flow,
            arrived: u64::MAX,
            dropped: u64::MAX,
            turns: 1,
        });
        let queue = QueuePicture {
            flows: flows.collect(),
            arrivals: arrivals.clone(),
            ..queue(&vec![huge; 20_000])
        };
        let mut cause = drops("queue_full", &[]);
        cause.total = u64::MAX;
        cause.per_bin = vec![u64::MAX; 20_000];
        let flooded = LinkPicture {
            name: "x".repeat(1 << 20),
            drops: vec![cause; 40],
            queues: vec![queue; 6],
        };
        let log = LogPicture {
            span_ns: u64::MAX,
            bin_ns: 1,
            lost_rows: u64::MAX,
            lost_frames: u64::MAX,
            links: vec![flooded; 20],
            ..LogPicture::default()
        };
        let page = render(&log, &no_name);
        assert!(page.len() < 8 << 20, "{}", page.len());
        assert!(!page.contains("NaN"));
        assert!(page.contains("12 more links with drops or queues are not shown"));
        assert!(summary(&log).len() < 256 << 10);
    }
}
