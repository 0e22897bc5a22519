//! What holds a pattern back, in words, and what the engine says another routing would give.

use crate::{Layout, Study, Tier};
use fabric::route::Engine;
use run::model::{
    FabricCable, FabricNodes, FabricRun, FabricStudy, FindingRecord, RemedyRecord, Verdict,
};

use crate::numbers::{float, megabytes};
use crate::study;
use fault::Failure;
use measure::Stop;

/// The finding of a study whose links failed, if that took anything.
pub(crate) fn failed(found: &FabricStudy) -> Option<FindingRecord> {
    let recovery = found.recovery.as_ref()?;
    let worst = found.faults.iter().max_by_key(|f| f.lost_packets)?;
    let lost: u64 = found.faults.iter().map(|f| f.lost_packets).sum();
    if lost == 0 {
        return None;
    }
    let ms = |ns: u64| float(ns) / 1e6;
    let how_long = match worst.until_ns {
        Some(until) => format!("for {:.3} ms", ms(until - worst.at_ns)),
        None => "and stays down".to_owned(),
    };
    let mut evidence = vec![
        format!(
            "{} packets were lost on it, {lost} on all links that failed; {} were sent again",
            worst.lost_packets, recovery.resent_packets
        ),
        format!(
            "a sender heard nothing new for {:.3} ms at most; {} timers ran out",
            recovery.silence_max_ns / 1e6,
            recovery.timeouts
        ),
    ];
    if let (Some(flows), Some(after)) = (recovery.moved_flows, recovery.moved_after_max_ns) {
        evidence.push(format!(
            "probes without an answer moved {flows} flows, {:.3} ms after the failure at most",
            after / 1e6
        ));
    }
    let broken = match recovery.broken_flows {
        0 => String::new(),
        n => format!("; {n} of {} flows were given up", recovery.flows),
    };
    Some(FindingRecord {
        phase: found.name.clone(),
        cause: "failed_link".to_owned(),
        title: format!(
            "link {} failed after {:.3} ms {how_long}{broken}",
            worst.link,
            ms(worst.at_ns)
        ),
        confidence: 1.0,
        share: float(recovery.broken_flows) / float(recovery.flows.max(1)),
        evidence,
        ..FindingRecord::default()
    })
}

/// What a program's time is held against.
fn beside(found: &FabricStudy) -> &'static str {
    match found.pattern.as_str() {
        "replay" => "where each message is alone",
        _ => "on one large switch",
    }
}

/// The finding of a study, if something is lost.
pub(crate) fn of(
    study: &Study,
    found: &FabricStudy,
    counts: &mut FabricRun,
    stop: &Stop,
) -> Result<Option<FindingRecord>, Failure> {
    let Some(last) = found.points.last() else {
        return Ok(None);
    };
    if found.replay.is_some() {
        // Its messages over a cable were not there at once: their number says nothing.
        return Ok(None);
    }
    let lost = lost(found, last);
    if lost < LOST_MIN {
        return Ok(None);
    }
    let Some(step) = &found.worst_step else {
        return Ok(None);
    };
    let chosen = chosen(study);
    let Some(cable) = most_shared(&step.cables).filter(|c| c.flows > 1) else {
        return Ok(Some(of_none_shared(found, chosen, lost)));
    };
    let mut evidence = vec![
        format!(
            "{} {}: {} of {} directions of cables between chips carry nothing, {}",
            step_name(found),
            step.step,
            step.idle_cables,
            step.idle_cables + step.shared_by.iter().sum::<u32>(),
            shared_by(&step.shared_by)
        ),
        format!(
            "with {} nodes the average pair gets {:.0} % of the best, the worst {:.0} %",
            last.nodes,
            last.average_share_of_peak * 100.0,
            last.worst_share_of_best * 100.0
        ),
    ];
    if last.fair_share_of_peak > 0.0 && study.tier == Tier::Packets {
        let blocking = (last.fair_share_of_peak - last.average_share_of_peak).max(0.0);
        evidence.push(format!(
            "links shared fairly and nothing else would give {:.0} %: {:.0} points are lost to sharing, {:.0} to packets \
             that wait behind others which wait (head-of-line blocking)",
            last.fair_share_of_peak * 100.0,
            (1.0 - last.fair_share_of_peak) * 100.0,
            blocking * 100.0
        ));
    }
    if let Some([_, worst]) = last.lost_shares {
        evidence[1] = format!(
            "with {} nodes it takes {:.2} times as long as {}; {:.0} % of the speed is lost in the worst seed",
            last.nodes,
            1.0 / (1.0 - lost).max(1e-3),
            beside(found),
            worst * 100.0
        );
    }
    if let Some(wait) = step.waits.first().filter(|w| w.share >= WAIT_MIN) {
        evidence.push(match &wait.on {
            Some(on) => format!(
                "packets wait longest on {}: {:.0} % of the time for room in the next chip, held by packets that wait for {on}",
                wait.cable,
                wait.share * 100.0
            ),
            None => format!(
                "packets wait longest on {}: {:.0} % of the time for room that is on its way back: the buffer is small for the cable",
                wait.cable,
                wait.share * 100.0
            ),
        });
    }
    let (cause, title) = match chosen {
        None => (
            "static_routes",
            format!(
                "static routes: {} flows share {} while {} others stand idle",
                cable.flows,
                spoken(step, cable),
                step.idle_cables
            ),
        ),
        // Of packets as many as so many flows have.
        Some(rule) => (
            "chosen_paths",
            format!(
                "chosen paths ({rule}): packets of {} flows' worth crossed {} while {} others stood idle",
                cable.flows,
                spoken(step, cable),
                step.idle_cables
            ),
        ),
    };
    let remedy = remedy(study, found, last, counts, stop)?;
    Ok(Some(FindingRecord {
        phase: found.name.clone(),
        cause: cause.to_owned(),
        title,
        confidence: 1.0,
        share: lost,
        evidence,
        remedy,
    }))
}

/// By which rule chips choose, where tables do not say it all.
fn chosen(study: &Study) -> Option<&'static str> {
    match &study.layout {
        Layout::Made(made) if made.selection_name != "static" => Some(made.selection_name),
        _ => None,
    }
}

/// The finding where speed is lost and no cable between chips has more than a flow.
fn of_none_shared(found: &FabricStudy, chosen: Option<&str>, lost: f64) -> FindingRecord {
    let (cause, title) = match (found.counts.as_str(), chosen) {
        // One large switch has the same host links: those are not what is lost.
        ("time", _) => (
            "long_way",
            "messages are short beside their way, which leads through more chips than one"
                .to_owned(),
        ),
        (_, Some(rule)) => (
            "chosen_paths",
            format!(
                "chosen paths ({rule}): packets that meet for a moment wait, though no cable has more than it carries"
            ),
        ),
        (_, None) => (
            "incast",
            "hosts are sent more than their links carry; the fabric between them is not the limit"
                .to_owned(),
        ),
    };
    FindingRecord {
        phase: found.name.clone(),
        cause: cause.to_owned(),
        title,
        confidence: 1.0,
        share: lost,
        evidence: vec![format!(
            "no cable between chips has two flows; the least loaded host link sets {:.0} MB/s",
            megabytes(found.alone_bits_per_second)
        )],
        ..FindingRecord::default()
    }
}

/// `leaf-3 port 14 to spine-2`.
fn spoken(step: &run::model::FabricStep, cable: &FabricCable) -> String {
    let chip = |n: u32| step.chips.get(n as usize).map_or("?", |c| c.name.as_str());
    let from = chip(cable.from);
    let end = cable
        .link
        .split('/')
        .find(|e| e.split(':').next() == Some(from));
    let port = end.and_then(|e| e.split(':').nth(1));
    match port {
        Some(port) => format!("{from} port {port} to {}", chip(cable.to)),
        None => format!("link {} from {from}", cable.link),
    }
}

fn step_name(found: &FabricStudy) -> &'static str {
    match found.pattern.as_str() {
        "rotate" => "rotation",
        _ => "step",
    }
}

fn shared_by(counts: &[u32]) -> String {
    let each = (1..).zip(counts).filter(|(_, n)| **n > 0);
    let each: Vec<String> = each
        .map(|(flows, n)| match flows {
            1 => format!("{n} one flow"),
            flows => format!("{n} {flows} flows"),
        })
        .collect();
    each.join(", ")
}

fn most_shared(cables: &[FabricCable]) -> Option<&FabricCable> {
    // The first of equals, and uplinks come first.
    cables.iter().rev().max_by_key(|c| c.flows)
}

/// Share of the speed that is lost with this many nodes.
fn lost(found: &FabricStudy, last: &FabricNodes) -> f64 {
    match (found.counts.as_str(), last.lost_shares) {
        ("rate", _) => 1.0 - last.average_share_of_peak,
        (_, Some([median, _])) => median,
        _ => 0.0,
    }
}

/// Tables by the destination's port, asked of the engine: the first seed, the largest number of nodes.
fn remedy(
    study: &Study,
    found: &FabricStudy,
    last: &FabricNodes,
    counts: &mut FabricRun,
    stop: &Stop,
) -> Result<Option<RemedyRecord>, Failure> {
    let Layout::Made(made) = &study.layout else {
        return Ok(None);
    };
    if chosen(study).is_some()
        || !made.is_tree()
        || made.engine != Engine::MinHop
        || stop.is_stopped()
    {
        return Ok(None);
    }
    let mut other = study.clone();
    if let Layout::Made(made) = &mut other.layout {
        made.engine = Engine::DModK;
    }
    other.traffic.seeds = 1;
    other.traffic.nodes = vec![last.nodes];
    let tried = study::run(std::slice::from_ref(&other), counts, stop)?;
    let Some((tried, point)) = tried.first().and_then(|t| Some((t, t.points.last()?))) else {
        return Ok(None);
    };
    let after = lost(tried, point);
    if after + GAIN_MIN > lost(found, last) {
        return Ok(None);
    }
    let gives = match tried.counts.as_str() {
        "rate" => format!(
            "the same steps with such tables: average {:.0} % of the best, {} flows on a cable at most",
            point.average_share_of_peak * 100.0,
            point.flows_on_a_cable_max
        ),
        _ => format!(
            "the same steps with such tables lose {:.0} %",
            after * 100.0
        ),
    };
    Ok(Some(RemedyRecord {
        summary: "fill the tables by the destination's port (opensm: routing_engine ftree) and give ranks out in the order of the \
                  ports (opensm-ftree-ca-order.dump)"
            .to_owned(),
        host: "network".to_owned(),
        predicted_bits_per_second: (tried.counts == "rate").then_some(point.average_bits_per_second),
        predicted_from: Some(gives),
        cost: "holds for shifts of ranks in that order; patterns that jobs share collide again".to_owned(),
        ..RemedyRecord::default()
    }))
}

/// Of all studies, in a sentence.
pub(crate) fn verdict(fabric: &FabricRun, findings: &[FindingRecord]) -> Verdict {
    let studies = &fabric.studies;
    let worst = studies
        .iter()
        .filter_map(|s| s.points.last().map(|p| (s, p)))
        .max_by(|a, b| lost(a.0, a.1).total_cmp(&lost(b.0, b.1)));
    let Some((found, last)) = worst else {
        return Verdict::default();
    };
    let finding = findings.iter().find(|f| f.phase == found.name);
    let of = match studies.len() {
        1 => String::new(),
        _ => format!(" ({})", found.name),
    };
    let (nodes, n) = (last.nodes, found.seeds);
    let seeds = if n > 1 {
        format!(" over {n} seeds")
    } else {
        String::new()
    };
    let sentence = match (found.counts.as_str(), last.latency_ns, last.finish_ns) {
        ("latency", Some([_, average, _]), _) => {
            let first = found
                .points
                .first()
                .and_then(|p| p.latency_ns)
                .map_or(0.0, |l| l[1]);
            let least = found.points.first().map_or(nodes, |p| p.nodes);
            let from = if least < nodes {
                format!("{:.2} us with {least} nodes and ", first / 1e3)
            } else {
                String::new()
            };
            let average = average / 1e3;
            format!(
                "In the model{of} half a round trip takes {from}{average:.2} us with {nodes} nodes."
            )
        }
        ("time", _, Some([finish, _])) => format!(
            "In the model{of} {} of {nodes} nodes takes {:.3} ms and loses {:.0} % of the speed that it has {}{seeds}",
            found.pattern,
            finish / 1e6,
            lost(found, last) * 100.0,
            beside(found)
        ),
        _ => format!(
            "In the model{of} the average pair of {nodes} nodes gets {:.0} % of the best, {:.0} MB/s, the worst {:.0} %{seeds}",
            last.average_share_of_peak * 100.0,
            megabytes(last.average_bits_per_second),
            last.worst_share_of_best * 100.0
        ),
    };
    let sentence = match finding {
        Some(finding) => format!("{sentence}: {}", finding.title),
        None if sentence.ends_with('.') => sentence,
        None => format!("{sentence}."),
    };
    Verdict {
        sentence,
        cause: finding.map(|f| f.cause.clone()),
        conclusive: true,
        healthy: finding.is_none(),
        ..Verdict::default()
    }
}

/// Whoever loses less is not asked why; chosen.
const LOST_MIN: f64 = 0.05;
/// A remedy that gives back less is none; chosen.
const GAIN_MIN: f64 = 0.03;
/// Waiting that is worth a line; chosen.
const WAIT_MIN: f64 = 0.05;
