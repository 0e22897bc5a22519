//! What the rates say of the network: which links are shared, which hosts are slow.

use run::model::{
    FindingRecord, RemedyRecord, Rotate, RotateLink, RotateMultiple, RotateRound,
    Verdict as RunVerdict,
};
use units::Rate;

use super::ways::Ways;
use crate::pairs::{self, Cause, Crowd, Flow, Matrix, Reading};

/// Findings, the most likely first, and the verdict; `whole` where nothing broke it off, `behind` where
/// its lab fell behind. Fills in what they rest on.
pub(super) fn of(
    rotate: &mut Rotate,
    ways: Option<&Ways>,
    whole: bool,
    behind: Option<String>,
) -> (Vec<FindingRecord>, RunVerdict) {
    let conclusive = whole && behind.is_none() && !rotate.rounds.is_empty();
    let verdict = |sentence: String| RunVerdict {
        sentence,
        conclusive,
        ..RunVerdict::default()
    };
    if rotate.rounds.is_empty() {
        return (
            Vec::new(),
            verdict("Nothing was measured to its end.".to_owned()),
        );
    }
    if rotate.measure == "latency" {
        let sentence = behind.unwrap_or_else(|| latency(rotate));
        let healthy = conclusive;
        return (
            Vec::new(),
            RunVerdict {
                healthy,
                ..verdict(sentence)
            },
        );
    }
    let reading = read(rotate);
    let mut findings = Vec::new();
    findings.extend(ways.and_then(|ways| shared_links(rotate, ways, &reading)));
    if findings.is_empty() {
        findings.extend(by_rates(rotate, &reading));
    }
    let first = findings.first();
    let summary = summary(rotate, &reading);
    let sentence = match (&behind, first) {
        (Some(behind), _) => behind.clone(),
        (None, Some(finding)) => format!("{summary}: {}", finding.title),
        (None, None) => format!("{summary}."),
    };
    let verdict = RunVerdict {
        cause: first.map(|f| f.cause.clone()).filter(|_| behind.is_none()),
        healthy: conclusive && reading.slow == 0,
        ..verdict(sentence)
    };
    (findings, verdict)
}

/// The matrix of all ranks, read; its counts go into the run.
fn read(rotate: &mut Rotate) -> Reading {
    let at = |rank: u32| usize::try_from(rank).unwrap_or(usize::MAX);
    let mut matrix = Matrix::new(rotate.ranks.len());
    for flow in rotate.whole().flat_map(|r| &r.flows) {
        if let Some(bits) = flow.bits_per_second {
            let pair = Flow {
                from: at(flow.from),
                to: at(flow.to),
            };
            matrix.set(pair, bits as f64);
        }
    }
    let reading = pairs::read(&matrix);
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    rotate.pairs_slow = small(reading.slow);
    let multiples = reading.multiples.iter().map(|m| RotateMultiple {
        divided_by: small(m.by),
        pairs: small(m.pairs),
    });
    rotate.multiples = multiples.collect();
    reading
}

fn latency(rotate: &Rotate) -> String {
    let Some(count) = rotate.counts.last() else {
        return "Nothing was measured to its end.".to_owned();
    };
    let us = |ns: Option<f64>| format!("{:.2} us", ns.unwrap_or(0.0) / 1e3);
    format!(
        "Half a round trip takes {} in the mean of {} pairs, {} to {}.",
        us(count.average_latency_ns),
        count.pairs,
        us(count.best_latency_ns),
        us(count.worst_latency_ns)
    )
}

fn summary(rotate: &Rotate, reading: &Reading) -> String {
    let all = rotate.ranks.len();
    let counts = rotate.counts.iter();
    let largest = counts.max_by_key(|c| (c.ranks, c.message_bytes));
    let Some(count) = largest else {
        return format!("{all} ranks");
    };
    let rate = |bits: Option<u64>| Rate::from_bits_per_second(bits.unwrap_or(0));
    let share = count.average_share.unwrap_or(0.0) * 100.0;
    let mut said = format!(
        "{} ranks: pairs get {} in the mean, {share:.0} % of the best; {} of {} are below three quarters of it",
        count.ranks,
        rate(count.average_bits_per_second),
        reading.slow,
        reading.pairs
    );
    let full = |c: &&run::model::RotateCount| {
        c.message_bytes == count.message_bytes && c.average_share.is_some_and(|s| s >= FULL)
    };
    let full = rotate.counts.iter().filter(full).map(|c| c.ranks).max();
    if let Some(ranks) = full.filter(|&ranks| ranks < count.ranks && rotate.counts.len() > 1) {
        said += &format!(", and to {ranks} ranks the average is within 5 % of the best");
    }
    said
}

/// Links that held pairs back, where their ways are known.
fn shared_links(rotate: &mut Rotate, ways: &Ways, reading: &Reading) -> Option<FindingRecord> {
    let whole: Vec<RotateRound> = rotate.whole().cloned().collect();
    let rounds: Vec<&RotateRound> = whole.iter().collect();
    let alone = reading.best / 8.0;
    let crowds = ways.crowds(&rounds, alone);
    let links = crowds.iter().map(|c| record_of(c, ways, &rounds));
    rotate.links = links.collect();
    let worst = crowds.first()?;
    if reading.slow == 0 {
        return None;
    }
    let lost: f64 = crowds.iter().map(|c| c.lost).sum();
    let link = &ways.links[worst.link];
    let each = rate(worst.each * 8.0);
    let carries = link.rate.map_or_else(String::new, |r| format!(", {r}"));
    let round = rounds.get(worst.round)?;
    let on = ways.on(round, worst.link);
    let beside = ways.beside(worst.link);
    // Without another way out there is nothing to be routed.
    let kind = if beside.is_empty() {
        ""
    } else {
        "static routes: "
    };
    let title = format!(
        "{kind}{} flows at once over {} ({} to {}{carries}), {each} each where the best pair gets {}",
        worst.flows_max,
        link.name,
        link.from,
        link.to,
        rate(reading.best)
    );
    let name = |rank: u32| rank_name(rotate, rank);
    let pairs: Vec<String> = on
        .iter()
        .map(|&(a, b)| format!("{} to {}", name(a), name(b)))
        .collect();
    let mut evidence = vec![format!(
        "in {} {} these cross {} at once: {}",
        round_name(rotate),
        round.number,
        link.name,
        listed(&pairs)
    )];
    let idle: Vec<usize> = beside
        .iter()
        .copied()
        .filter(|&other| ways.on(round, other).is_empty())
        .collect();
    if !beside.is_empty() {
        let said = beside.iter().map(|&other| {
            let flows = ways.on(round, other).len();
            format!("{} {flows}", ways.links[other].name)
        });
        let said: Vec<String> = said.collect();
        evidence.push(format!(
            "meanwhile flows on the other ways out of {}: {}",
            link.from,
            listed(&said)
        ));
    }
    for crowd in crowds.iter().skip(1).take(EVIDENCE_LINKS) {
        let other = &ways.links[crowd.link];
        evidence.push(format!(
            "{} ({} to {}): up to {} flows, {} each",
            other.name,
            other.from,
            other.to,
            crowd.flows_max,
            rate(crowd.each * 8.0)
        ));
    }
    evidence.extend(fairness(&rounds));
    let to: Vec<String> = on.iter().map(|&(_, b)| name(b)).collect();
    let remedy = idle.first().map(|&other| RemedyRecord {
        summary: format!(
            "at {} spread the routes to {} over {} as well, which nothing crossed then",
            link.from,
            listed(&to),
            ways.links[other].name
        ),
        host: "network".to_owned(),
        cost: "routes that suit this pairing need not suit another".to_owned(),
        ..RemedyRecord::default()
    });
    let total: f64 = whole.iter().map(|r| r.flows.len() as f64 * alone).sum();
    Some(FindingRecord {
        phase: rotate.pattern.clone(),
        cause: "shared_link".to_owned(),
        title,
        confidence: if rotate.certificate.as_ref().is_none_or(|c| c.trusted) {
            0.95
        } else {
            0.5
        },
        share: (lost / total.max(1.0)).clamp(0.0, 1.0),
        evidence,
        remedy,
    })
}

/// How near the flows come to their fair shares.
fn fairness(rounds: &[&RotateRound]) -> Option<String> {
    let ratios = rounds.iter().flat_map(|r| &r.flows).filter_map(|f| {
        let fair = f.fair_bits_per_second.filter(|&fair| fair > 0)?;
        Some(f.bits_per_second? as f64 / fair as f64)
    });
    let mut ratios: Vec<f64> = ratios.collect();
    ratios.sort_by(f64::total_cmp);
    let median = *ratios.get(ratios.len() / 2)?;
    Some(format!(
        "with even shares of the links on its way the median pair would get {:.2} of what it got",
        1.0 / median.max(f64::MIN_POSITIVE)
    ))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, and a rate is not negative"
)]
fn rate(bits: f64) -> Rate {
    Rate::from_bits_per_second(bits.round() as u64)
}

fn record_of(crowd: &Crowd, ways: &Ways, rounds: &[&RotateRound]) -> RotateLink {
    let link = &ways.links[crowd.link];
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    RotateLink {
        link: link.name.clone(),
        from: link.from.clone(),
        to: link.to.clone(),
        rate_bits_per_second: link.rate.map_or(0, Rate::as_bits_per_second),
        flows_max: small(crowd.flows_max),
        round: rounds.get(crowd.round).map_or(0, |r| r.number),
        rounds_shared: small(crowd.rounds),
        each_bits_per_second: rate(crowd.each * 8.0).as_bits_per_second(),
    }
}

/// What can be said where nobody knows the ways.
fn by_rates(rotate: &Rotate, reading: &Reading) -> Option<FindingRecord> {
    let evidence = |m: &pairs::Multiple| match m.by {
        1 => format!(
            "as fast as the best, to 12 %: {} of {} pairs",
            m.pairs, reading.pairs
        ),
        by => format!(
            "the best divided by {by}, to 12 %: {} of {} pairs",
            m.pairs, reading.pairs
        ),
    };
    let evidence: Vec<String> = reading.multiples.iter().map(evidence).collect();
    let (cause, title, confidence) = match &reading.cause {
        Cause::None => return None,
        Cause::Ranks(ranks) => {
            let small = |n: &usize| u32::try_from(*n).unwrap_or(u32::MAX);
            let names: Vec<String> = ranks.iter().map(|r| rank_name(rotate, small(r))).collect();
            let text = format!("{} slow with every partner", is_are(&names));
            ("slow_host", text, 0.8)
        }
        Cause::Shared => (
            "shared_link",
            "slow pairs get the best divided by whole numbers, as where static routes put several on one link"
                .to_owned(),
            0.7,
        ),
        Cause::Unknown => (
            "uneven_pairs",
            "slow pairs fit neither a slow host nor links that are shared evenly".to_owned(),
            0.3,
        ),
    };
    Some(FindingRecord {
        phase: rotate.pattern.clone(),
        cause: cause.to_owned(),
        title,
        confidence,
        share: reading.slow as f64 / reading.pairs.max(1) as f64,
        evidence,
        remedy: None,
    })
}

fn is_are(names: &[String]) -> String {
    match names {
        [one] => format!("{one} is"),
        many => format!("{} are", listed(many)),
    }
}

/// With commas, the first few.
fn listed(words: &[String]) -> String {
    let mut said = words
        .iter()
        .take(LISTED_MAX)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if words.len() > LISTED_MAX {
        said += &format!(" and {} more", words.len() - LISTED_MAX);
    }
    said
}

fn rank_name(rotate: &Rotate, rank: u32) -> String {
    let at = usize::try_from(rank).unwrap_or(usize::MAX);
    let name = rotate.ranks.get(at).cloned();
    name.unwrap_or_else(|| format!("rank {rank}"))
}

fn round_name(rotate: &Rotate) -> &'static str {
    match rotate.pattern.as_str() {
        "mpigraph" => "step",
        "com" => "round",
        _ => "rotation",
    }
}

/// The average is as good as the best (as the paper of DCA says "within 5 %").
const FULL: f64 = 0.95;
const EVIDENCE_LINKS: usize = 3;
const LISTED_MAX: usize = 6;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use lab::PathFile;
    use run::model::RotateFlow;

    use super::*;

    /// Four hosts on two routers that two links join; all routes take the first.
    fn path() -> PathFile {
        let mut text = "title = \"x\"\n[hosts.a]\n[hosts.b]\n[hosts.c]\n[hosts.d]\n".to_owned();
        text += "[routers.east]\n[routers.mid]\n";
        text += "[routers.west]\nroutes = [{ to = \"c\", via = \"one\" }, { to = \"d\", via = \"one\" }]\n";
        for (link, between) in [
            ("a", ["a", "west"]),
            ("b", ["b", "west"]),
            ("c", ["c", "east"]),
            ("d", ["d", "east"]),
        ] {
            text += &format!(
                "[links.{link}]\nbetween = {between:?}\nrate = \"10Mb/s\"\ndelay = \"1ms\"\n"
            );
        }
        for (link, between) in [
            ("one", ["west", "east"]),
            ("two", ["west", "mid"]),
            ("three", ["mid", "east"]),
        ] {
            text += &format!(
                "[links.{link}]\nbetween = {between:?}\nrate = \"10Mb/s\"\ndelay = \"1ms\"\n"
            );
        }
        PathFile::parse(Path::new("x.toml"), &text).unwrap()
    }

    fn rotate(rates: [u64; 4]) -> Rotate {
        let flow = |from, to, bits| RotateFlow {
            from,
            to,
            bits_per_second: Some(bits),
            ..RotateFlow::default()
        };
        let round = |number, flows: Vec<RotateFlow>| RotateRound {
            ranks: 4,
            number,
            message_bytes: 1000,
            messages: 1,
            window: 1,
            flows,
        };
        let mut rotate = Rotate {
            pattern: "rotate".to_owned(),
            measure: "bandwidth".to_owned(),
            ranks: ["a", "b", "c", "d"].map(str::to_owned).to_vec(),
            rounds: vec![
                round(0, vec![flow(0, 2, rates[0]), flow(1, 3, rates[1])]),
                round(1, vec![flow(0, 3, rates[2]), flow(1, 2, rates[3])]),
            ],
            ..Rotate::default()
        };
        rotate.counts = super::super::counts::counts(&rotate);
        rotate
    }

    #[test]
    fn the_link_that_all_cross_is_named_and_the_one_that_none_does() {
        let ways = Ways::of(&path(), &[0, 1, 2, 3]);
        let mut rotate = rotate([9_000_000, 4_500_000, 4_500_000, 4_600_000]);
        ways.fair_shares(&mut rotate);
        let fair: Vec<_> = rotate.rounds[0]
            .flows
            .iter()
            .map(|f| f.fair_bits_per_second)
            .collect();
        // Half of 10 Mb/s less the headers of full frames.
        assert_eq!(fair, [Some(4_707_412); 2]);
        let (findings, verdict) = of(&mut rotate, Some(&ways), true, None);
        let finding = &findings[0];
        assert_eq!(finding.cause, "shared_link");
        assert!(
            finding
                .title
                .contains("2 flows at once over one (west to east, 10 Mb/s)"),
            "{}",
            finding.title
        );
        let all = finding.evidence.join("\n");
        assert!(
            all.contains("rotation 0 these cross one at once: a to c, b to d"),
            "{all}"
        );
        assert!(all.contains("other ways out of west: two 0"), "{all}");
        let remedy = finding.remedy.as_ref().unwrap();
        assert!(
            remedy.summary.contains("routes to c, d over two"),
            "{}",
            remedy.summary
        );
        assert!(verdict.conclusive && !verdict.healthy);
        assert_eq!(
            (rotate.links[0].flows_max, rotate.links[0].rounds_shared),
            (2, 2)
        );
    }

    #[test]
    fn without_ways_the_rates_speak() {
        let mut even = rotate([10, 10, 10, 10].map(|n| n * 1_000_000));
        let (findings, verdict) = of(&mut even, None, true, None);
        assert!(findings.is_empty() && verdict.healthy, "{findings:?}");
        assert_eq!(
            even.multiples,
            [RotateMultiple {
                divided_by: 1,
                pairs: 4
            }]
        );
        let mut shared = rotate([10, 5, 5, 5].map(|n| n * 1_000_000));
        let (findings, _) = of(&mut shared, None, true, None);
        assert_eq!(
            (findings[0].cause.as_str(), shared.pairs_slow),
            ("shared_link", 3)
        );
        let mut slow = rotate([10, 2, 10, 2].map(|n| n * 1_000_000));
        let (findings, verdict) = of(&mut slow, None, true, None);
        assert!(
            findings[0].title.contains("b is slow with every partner"),
            "{}",
            findings[0].title
        );
        assert!(verdict.sentence.contains("2 of 4"), "{}", verdict.sentence);
    }

    #[test]
    fn nothing_is_concluded_from_a_lab_that_fell_behind_or_a_run_that_broke_off() {
        let mut rotate = rotate([10; 4]);
        rotate.certificate = Some(run::model::Certificate::default());
        let behind = Some("The lab fell behind.".to_owned());
        let (_, verdict) = of(&mut rotate, None, true, behind);
        assert!(!verdict.conclusive && verdict.sentence.contains("fell behind"));
        rotate.certificate = None;
        assert!(!of(&mut rotate, None, false, None).1.conclusive);
        let (_, nothing) = of(&mut Rotate::default(), None, true, None);
        assert!(!nothing.conclusive && nothing.sentence.contains("Nothing"));
    }
}
