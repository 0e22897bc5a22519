//! A gateway on the page: what it gained, rates and round trips of both halves over time, who talked most,
//! its links.

use super::{left_out, phases, shown, shown_sentence, with_small_unit};
use crate::model::{
    GAINED, GatewayBuffer, GatewayHalf, GatewayLink, GatewayRun, GatewaySampled, GatewayTalker,
    Run, SampleRecord,
};
use crate::svg::{Axis, Chart, share_bar};
use crate::text;

/// Nothing where no gateway was.
pub(super) fn section(out: &mut String, run: &Run, samples: &[SampleRecord]) {
    for (number, gateway) in run.gateways.iter().take(GATEWAYS_MAX).enumerate() {
        figures(out, gateway);
        put!(out, "<section>\n<h2>Gateway");
        if !gateway.name.is_empty() {
            put!(out, " {}", shown(&gateway.name));
        }
        put!(
            out,
            " <span>{} inside, {} outside, {}</span></h2>\n",
            shown(&gateway.inside.join(", ")),
            shown(&gateway.outside.join(", ")),
            text::duration(gateway.watched_ns)
        );
        for line in lines(gateway) {
            put!(out, "<p>{}</p>\n", shown_sentence(&line));
        }
        let series = Series::of(number, samples);
        if series.rates.iter().any(|way| way.len() > 2) {
            out.push_str("<div class=\"panels wide\">\n<div>\n");
            rates(out, &series);
            in_pipes(out, &series);
            out.push_str("</div>\n<div>\n");
            round_trips(out, &series);
            held(out, &series);
            out.push_str("</div>\n</div>\n");
        }
        halves(out, &gateway.halves);
        talkers(out, gateway);
        links(out, &gateway.links);
        sampled(out, &gateway.sampled);
        buffers(out, &gateway.buffers);
        put!(out, "<p class=\"note\">{NOTE}</p>\n</section>\n");
    }
    left_out(out, run.gateways.len(), GATEWAYS_MAX, "gateways");
}

/// The gain, as large as a number can be.
fn figures(out: &mut String, gateway: &GatewayRun) {
    let Some(carried) = gateway.carried_bits_per_second else {
        return;
    };
    out.push_str("<section class=\"numbers\">\n<div class=\"figures\">\n");
    let mut figure = |label: &str, value: &str, class: &str| {
        put!(
            out,
            "<div class=\"figure {class}\"><span>{label}</span><b>{}</b></div>\n",
            with_small_unit(value)
        );
    };
    let gain = gateway.gain.filter(|gain| *gain >= GAINED);
    if let (Some(unsplit), Some(_)) = (gateway.unsplit_bits_per_second, gain) {
        let label = "the same unsplit, by the model";
        figure(label, &text::rate(unsplit), "was");
    }
    figure("through the gateway", &text::rate(carried), "now");
    if let Some(gain) = gain {
        figure("gain", &format!("{} times", text::factor(gain)), "gain");
    }
    out.push_str("</div>\n</section>\n");
}

/// What there is to say, a line each; the terminal's too.
pub(crate) fn lines(gateway: &GatewayRun) -> Vec<String> {
    let count = text::count;
    let mut first = format!(
        "{} split: {} live, {} ended, {} reset; {} at once at most.",
        text::plural(gateway.split, "connection"),
        count(gateway.live),
        count(gateway.ended),
        count(gateway.reset),
        count(gateway.live_max)
    );
    let passed = &gateway.passed;
    if passed.all() > 0 {
        put!(
            first,
            " {} passed unsplit: {} by a rule, {} at a limit, {} for lack of means, {} to be counted.",
            count(passed.all()),
            count(passed.by_rule),
            count(passed.at_limit),
            count(passed.for_lack),
            count(passed.sampled)
        );
        let (one_way, silent) = (passed.one_way, passed.beside_silence);
        if one_way > 0 || silent > 0 {
            first.pop();
            put!(
                first,
                ", {} since answers take another way, {} beside one that waited in vain.",
                count(one_way),
                count(silent)
            );
        }
    }
    let refused = &gateway.refused;
    if refused.all() > 0 {
        put!(
            first,
            " {} refused: {} by their server, {} by a rule, {} could not be reached, {} silent.",
            count(refused.all()),
            count(refused.by_server),
            count(refused.by_rule),
            count(refused.unreachable),
            count(refused.silent)
        );
    }
    if gateway.abandoned > 0 {
        let gone = text::plural(gateway.abandoned, "client");
        put!(first, " {gone} gone when the server had accepted.");
    }
    if gateway.undelivered > 0 {
        put!(
            first,
            " {} reset with {} that one end was told have arrived and the other did not acknowledge.",
            count(gateway.undelivered),
            text::bytes(gateway.undelivered_bytes)
        );
    }
    let mut second = format!(
        "{} outward, {} inward; {} in {} at most between sockets.",
        text::bytes(gateway.outward_bytes),
        text::bytes(gateway.inward_bytes),
        text::bytes(gateway.in_pipes_max_bytes),
        text::plural(gateway.pipes_max, "pipe")
    );
    if let (Some(mean), Some(slowest)) = (gateway.held_mean_ns, gateway.held_slowest_ns) {
        put!(
            second,
            " A SYN was held for {} on average until its server had answered, {} in the slowest second.",
            text::duration(mean),
            text::duration(slowest)
        );
    }
    vec![first, second]
}

/// Samples as lines of a chart, outward first.
#[derive(Debug, Default)]
struct Series {
    end_s: f64,
    rates: [Vec<(f64, f64)>; 2],
    round_trips: [Vec<(f64, f64)>; 2],
    in_pipes: Vec<(f64, f64)>,
    held: Vec<(f64, f64)>,
}

impl Series {
    fn of(number: usize, samples: &[SampleRecord]) -> Self {
        let mut series = Self::default();
        for (way, (end, _)) in WAYS.iter().enumerate() {
            let own = |s: &&SampleRecord| s.end == *end && s.stream as usize == number;
            let mut before: Option<(f64, u64)> = None;
            for sample in samples.iter().filter(own) {
                let at = sample.t_ns as f64 / 1e9;
                series.end_s = series.end_s.max(at);
                if let Some((then, bytes)) = before
                    && at > then
                {
                    let more = sample.app_bytes.saturating_sub(bytes) as f64;
                    series.rates[way].push((at, 8.0 * more / (at - then)));
                }
                before = Some((at, sample.app_bytes));
                let of = |field: &str| sample.tcp_info.get(field).map(|n| (at, *n as f64));
                let trip = of("rtt_us").map(|(at, us)| (at, us * 1e3));
                series.round_trips[way].extend(trip);
                series.in_pipes.extend(of("gateway_in_pipes_bytes"));
                series.held.extend(of("gateway_held_ns"));
            }
        }
        series
    }
}

fn rates(out: &mut String, series: &Series) {
    let axis = Axis::rate(largest(&series.rates));
    let legend = WAYS.map(|(name, class)| (line(class), name.to_owned()));
    phases::heading(out, "Carried", axis.unit, &keys(&legend));
    let title = "bytes carried each way over time";
    let mut chart = Chart::new(title, 150, Axis::time(series.end_s), axis);
    for ((name, class), points) in WAYS.iter().zip(&series.rates) {
        chart = chart.line(class, name, points);
    }
    phases::figure(out, &chart);
}

fn round_trips(out: &mut String, series: &Series) {
    let most = largest(&series.round_trips);
    if most <= 0.0 {
        return;
    }
    let axis = Axis::round_trip(most);
    let legend = WAYS.map(|(name, class)| (line(class), format!("towards {}", towards(name))));
    phases::heading(
        out,
        "Round trip of the sending halves",
        axis.unit,
        &keys(&legend),
    );
    let title = "round trip of the halves that send, over time";
    let mut chart = Chart::new(title, 150, Axis::time(series.end_s), axis);
    for ((name, class), points) in WAYS.iter().zip(&series.round_trips) {
        chart = chart.line(class, towards(name), points);
    }
    phases::figure(out, &chart);
}

fn in_pipes(out: &mut String, series: &Series) {
    let most = largest(std::slice::from_ref(&series.in_pipes));
    if most <= 0.0 {
        return;
    }
    let axis = Axis::bytes(most);
    phases::heading(out, "Between the sockets", axis.unit, &[]);
    let chart = Chart::new(
        "bytes in pipes over time",
        90,
        Axis::time(series.end_s),
        axis,
    );
    let name = "bytes in pipes";
    phases::figure(out, &chart.line("cwnd", name, &series.in_pipes));
}

fn held(out: &mut String, series: &Series) {
    let most = largest(std::slice::from_ref(&series.held));
    if most <= 0.0 {
        return;
    }
    let axis = Axis::round_trip(most);
    phases::heading(out, "SYNs were held for", axis.unit, &[]);
    let title = "how long SYNs were held, over time";
    let chart = Chart::new(title, 90, Axis::time(series.end_s), axis);
    phases::figure(
        out,
        &chart.line("rtt", "held until the server answered", &series.held),
    );
}

fn largest(lines: &[Vec<(f64, f64)>]) -> f64 {
    lines.iter().flatten().map(|p| p.1).fold(0.0, f64::max)
}

fn line(class: &str) -> String {
    format!("line {class}")
}

fn keys(legend: &[(String, String)]) -> Vec<(&str, String)> {
    let keys = legend.iter();
    keys.map(|(class, name)| (class.as_str(), name.clone()))
        .collect()
}

fn towards(way: &str) -> &'static str {
    match way {
        "outward" => "outside",
        _ => "inside",
    }
}

/// Where the time of each side's halves went.
fn halves(out: &mut String, halves: &[GatewayHalf]) {
    let known = |half: &&GatewayHalf| half.acknowledged_bits_per_second.is_some();
    for half in halves.iter().take(2).filter(known) {
        put!(
            out,
            "<h4>Halves {}, <span>{}</span></h4>\n",
            shown(&half.side),
            shown(&half_facts(half))
        );
        let other = (1.0 - half.receiver_share - half.buffer_share).max(0.0);
        let parts = [
            ("network", other, "network or source"),
            ("receive_window", half.receiver_share, "receiver's window"),
            ("send_buffer", half.buffer_share, "our send buffer"),
        ];
        out.push_str("<p class=\"keys\">");
        for (class, share, word) in &parts {
            put!(
                out,
                "<span class=\"key\"><i class=\"{class}\"></i>{word} {}</span> ",
                text::percent_of_time(*share)
            );
        }
        out.push_str("</p>\n");
        let bars: Vec<(&str, f64, String)> = parts
            .iter()
            .map(|(class, share, word)| {
                let tip = format!("{word}: {}", text::percent_of_time(*share));
                (*class, *share, tip)
            })
            .collect();
        out.push_str(&share_bar("what held the halves", 14, &bars, None));
    }
}

/// Rate and round trip of a side's halves.
pub(crate) fn half_facts(half: &GatewayHalf) -> String {
    let mut facts = Vec::new();
    facts.extend(half.acknowledged_bits_per_second.map(text::rate));
    let trip = |what: &str, ns: u64| format!("{what} {}", text::duration(ns));
    facts.extend(half.rtt_ns.map(|ns| trip("round trip", ns)));
    facts.extend(half.min_rtt_ns.map(|ns| trip("smallest", ns)));
    facts.push(format!(
        "{} sent again",
        text::percent(half.retransmitted_share)
    ));
    facts.join(", ")
}

fn talkers(out: &mut String, gateway: &GatewayRun) {
    if gateway.talkers.is_empty() {
        return;
    }
    out.push_str(
        "<h4>Who carried most</h4>\n<div class=\"scroll\"><table class=\"list\">\n<thead><tr>\
         <th>client</th><th>server</th>",
    );
    for head in &TALKER_HEADS[2..7] {
        put!(out, "<th class=\"n\">{head}</th>");
    }
    out.push_str("<th>held by</th></tr></thead>\n<tbody>\n");
    for talker in gateway.talkers.iter().take(ROWS_MAX) {
        let [client, server, rest @ .., held] = talker_cells(talker);
        put!(
            out,
            "<tr><td>{}</td><td>{}</td>",
            shown(&client),
            shown(&server)
        );
        for cell in rest {
            put!(out, "<td class=\"n\">{}</td>", shown(&cell));
        }
        put!(out, "<td>{}</td></tr>\n", shown(&held));
    }
    out.push_str("</tbody>\n</table></div>\n");
    left_out(out, gateway.talkers.len(), ROWS_MAX, "connections");
}

/// Of [`talker_cells`].
pub(crate) const TALKER_HEADS: [&str; 8] = [
    "client",
    "server",
    "carried",
    "rate",
    "unsplit, model",
    "RTT client",
    "RTT server",
    "held by",
];

/// A connection in a line: as the terminal has it too.
pub(crate) fn talker_cells(talker: &GatewayTalker) -> [String; 8] {
    let unsplit = talker.unsplit_bits_per_second.map(text::rate);
    [
        text::plain(&talker.client),
        text::plain(&talker.server),
        text::bytes(talker.there_bytes.saturating_add(talker.back_bytes)),
        text::rate(talker.bits_per_second),
        unsplit.unwrap_or_else(|| "–".to_owned()),
        text::duration(talker.rtt_client_ns),
        text::duration(talker.rtt_server_ns),
        text::plain(&talker.held_by),
    ]
}

fn links(out: &mut String, links: &[GatewayLink]) {
    if links.is_empty() {
        return;
    }
    out.push_str(
        "<h4>Links</h4>\n<div class=\"scroll\"><table class=\"list\">\n<thead><tr><th>side</th>\
         <th>interface</th><th>state</th><th class=\"n\">connections</th><th class=\"n\">ever placed</th>\
         </tr></thead>\n<tbody>\n",
    );
    for link in links.iter().take(ROWS_MAX) {
        let state = match (link.alive, link.answers) {
            (false, _) => "<span class=\"word bad\">dead</span>",
            (true, true) => "alive",
            (true, false) => "alive by its carrier alone",
        };
        put!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{state}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>\n",
            shown(&link.side),
            shown(&link.interface),
            text::count(link.connections),
            text::count(link.placed)
        );
    }
    out.push_str("</tbody>\n</table></div>\n");
    left_out(out, links.len(), ROWS_MAX, "links");
}

/// Those that passed unsplit, beside the model.
fn sampled(out: &mut String, sampled: &[GatewaySampled]) {
    if sampled.is_empty() {
        return;
    }
    out.push_str(
        "<h4>Unsplit, counted by the kernel</h4>\n<div class=\"scroll\"><table class=\"list\">\n<thead><tr>\
         <th>client</th><th>server</th><th class=\"n\">carried</th><th class=\"n\">for</th>\
         <th class=\"n\">rate</th><th class=\"n\">model</th></tr></thead>\n<tbody>\n",
    );
    for one in sampled.iter().take(ROWS_MAX) {
        let model = one.model_bits_per_second.map(text::rate);
        put!(
            out,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td></tr>\n",
            shown(&one.client),
            shown(&one.server),
            text::bytes(one.there_bytes.saturating_add(one.back_bytes)),
            text::duration(one.moving_ns),
            text::rate(one.bits_per_second),
            model.unwrap_or_else(|| "–".to_owned())
        );
    }
    out.push_str("</tbody>\n</table></div>\n");
    left_out(out, sampled.len(), ROWS_MAX, "connections");
}

/// What new connections get, and why.
fn buffers(out: &mut String, buffers: &[GatewayBuffer]) {
    if buffers.is_empty() {
        return;
    }
    out.push_str(
        "<h4>Buffers of new connections</h4>\n<div class=\"scroll\"><table class=\"list\">\n<thead><tr>\
         <th>side</th><th>hosts</th><th class=\"n\">round trip</th><th class=\"n\">there</th>\
         <th class=\"n\">back</th><th class=\"n\">send</th><th class=\"n\">receive</th><th>why</th>\
         </tr></thead>\n<tbody>\n",
    );
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "the kernel's".to_owned(), text::bytes);
    for buffer in buffers.iter().take(ROWS_MAX) {
        put!(
            out,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>\n",
            shown(&buffer.side),
            shown(&buffer.hosts),
            text::duration(buffer.min_rtt_ns),
            text::rate(buffer.sent_bits_per_second),
            text::rate(buffer.received_bits_per_second),
            size(buffer.send_bytes),
            size(buffer.receive_bytes),
            shown(&buffer.why)
        );
    }
    out.push_str("</tbody>\n</table></div>\n");
    left_out(out, buffers.len(), ROWS_MAX, "ways");
}

/// Ways, with their colours.
const WAYS: [(&str, &str); 2] = [("outward", "goodput"), ("inward", "rtt")];
const NOTE: &str = "Unsplit is a model: the receiver's window as it stands over both round trips, or the rate of Reno \
    or CUBIC, whichever is faster, at the losses seen; of these the smaller one. Where it allows as much as \
    was carried, it counts as the same. The sender's own buffer cannot be seen from here, which would make it \
    less; a window that would grow and BBR, which losses do not hold, would make it more. Looked at once a \
    second: shorter connections count, but are not listed.";
const GATEWAYS_MAX: usize = 8;
const ROWS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::RunState;

    fn run() -> Run {
        let half = |side: &str| GatewayHalf {
            side: side.to_owned(),
            rtt_ns: Some(51_000_000),
            acknowledged_bits_per_second: Some(940_000_000),
            receiver_share: 0.25,
            ..GatewayHalf::default()
        };
        Run {
            gateways: vec![GatewayRun {
                name: "<b>cns".to_owned(),
                split: 4,
                ended: 3,
                live: 1,
                carried_bits_per_second: Some(937_000_000),
                unsplit_bits_per_second: Some(73_200_000),
                gain: Some(12.8),
                held_mean_ns: Some(50_000_000),
                held_slowest_ns: Some(51_000_000),
                halves: vec![half("inside"), half("outside")],
                talkers: vec![GatewayTalker {
                    client: "10.0.0.1:<i>".to_owned(),
                    bits_per_second: 937_000_000,
                    held_by: "receiver 40 %".to_owned(),
                    ..GatewayTalker::default()
                }],
                links: vec![GatewayLink {
                    interface: "eth2".to_owned(),
                    ..GatewayLink::default()
                }],
                buffers: vec![GatewayBuffer {
                    hosts: "10.9.2.0/24".to_owned(),
                    send_bytes: Some(12 << 20),
                    ..GatewayBuffer::default()
                }],
                sampled: vec![GatewaySampled {
                    server: "10.9.2.7:5001".to_owned(),
                    bits_per_second: 70_000_000,
                    model_bits_per_second: Some(73_000_000),
                    ..GatewaySampled::default()
                }],
                ..GatewayRun::default()
            }],
            ..Run::default()
        }
    }

    fn samples(count: u64) -> Vec<SampleRecord> {
        let one = |n: u64, end: &str| SampleRecord {
            end: end.to_owned(),
            t_ns: n * 1_000_000_000,
            app_bytes: n * 100_000_000,
            tcp_info: [
                ("rtt_us".to_owned(), 51_000),
                ("gateway_in_pipes_bytes".to_owned(), 65_536),
                ("gateway_held_ns".to_owned(), 50_000_000),
            ]
            .into(),
            ..SampleRecord::default()
        };
        (0..count)
            .flat_map(|n| [one(n, "outward"), one(n, "inward")])
            .collect()
    }

    #[test]
    fn the_gain_stands_first_and_everything_else_has_its_place() {
        let page = crate::html::render(&run(), &samples(5), &[]);
        for part in [
            "12.8<small>&nbsp;times",
            "937<small>&nbsp;Mb/s",
            "73.2<small>&nbsp;Mb/s",
            "4 connections split: 1 live, 3 ended",
            "held for 50 ms on average",
            "bytes carried each way over time",
            "round trip of the halves that send",
            "bytes in pipes over time",
            "receiver&#39;s window 25 %",
            "receiver 40 %",
            "word bad\">dead",
            "10.9.2.0/24",
            "12 MiB",
            "10.9.2.7:5001",
            ">70 Mb/s<",
            "running",
        ] {
            let plain = page.replace('\u{a0}', " ").replace("'s", "&#39;s");
            assert!(plain.contains(part), "{part}");
        }
        assert!(!page.contains("<b>cns") && !page.contains("<i>\u{3c}"));
        let said = crate::terminal::summary(&run(), &[], false, 100);
        assert!(said.contains("4 connections split"), "{said}");
    }

    #[test]
    fn what_was_lost_and_what_took_another_way_is_said() {
        let mut gateway = GatewayRun::default();
        let plain = |gateway: &GatewayRun| lines(gateway)[0].replace('\u{a0}', " ");
        assert!(plain(&gateway).ends_with("0 at once at most."));
        gateway.passed.one_way = 3;
        gateway.passed.beside_silence = 1;
        (gateway.undelivered, gateway.undelivered_bytes) = (1, 2_000);
        gateway.abandoned = 1;
        let said = plain(&gateway);
        for part in [
            "4 passed unsplit",
            "0 to be counted, 3 since answers take another way, 1 beside one",
            "1 client gone when the server had accepted.",
            "1 reset with 2",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn a_gateway_that_carried_nothing_has_no_figures() {
        let mut idle = run();
        idle.state = RunState::Done;
        idle.gateways[0].gain = Some(1.0);
        let page = crate::html::render(&idle, &samples(2), &[]);
        assert!(
            !page.contains("by the model</span>") && !page.contains(">gain</span>"),
            "{page}"
        );
        idle.gateways[0] = GatewayRun::default();
        let page = crate::html::render(&idle, &samples(2), &[]);
        assert!(!page.contains("class=\"figure"), "{page}");
        assert!(!page.contains("over time"), "{page}");
    }

    #[test]
    fn numbers_without_bounds_make_a_page_all_the_same() {
        let mut wild = run();
        let gateway = &mut wild.gateways[0];
        gateway.gain = Some(f64::NAN);
        gateway.halves[0].receiver_share = f64::NAN;
        gateway.halves[0].retransmitted_share = f64::INFINITY;
        gateway.passed.by_rule = u64::MAX;
        gateway.passed.at_limit = 1;
        gateway.talkers = vec![gateway.talkers[0].clone(); 1000];
        gateway.talkers[0].there_bytes = u64::MAX;
        gateway.talkers[0].back_bytes = 1;
        let page = crate::html::render(&wild, &samples(5), &[]);
        assert!(page.contains("960 more connections are not shown"));
        assert!(page.len() < 1 << 20);
    }
}
