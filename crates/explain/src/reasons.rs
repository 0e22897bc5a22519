//! Why segments were lost, from somebody who knows: a lab's log beside what packets look like.
//!
//! A capture tells a queue that overflows from a line that loses packets by round trips that grew
//! before, which may be wrong. Where the log says which it was, that holds.

use throughput::{Cause, Remedy, RemedyHost};

use crate::passive::Passive;
use crate::text;

/// What kind of place loses segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A queue without room, or one that drops early so as not to fill.
    Queue,
    /// Something that passes so many packets a second.
    PacketRate,
    /// Something that drops what is above a rate, without a queue.
    Policer,
    /// All others: a bad line, an outage, a rule.
    Line,
}

/// Segments of a sender that were lost for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lossy {
    /// What kind it is.
    pub kind: Kind,
    /// How many.
    pub segments: u64,
    /// The reason and its place, such as `queue_full at wan/queue`.
    pub words: String,
}

/// Puts the reasons of all losses of the sender in the place of what its packets look like.
pub fn tell(passive: &mut Passive, lossy: &[Lossy]) {
    let mut lossy: Vec<&Lossy> = lossy.iter().filter(|l| l.segments > 0).collect();
    lossy.sort_by_key(|l| std::cmp::Reverse(l.segments));
    let of_kind = |kind: Kind| {
        let all = lossy.iter().filter(|l| l.kind == kind);
        all.map(|l| l.segments).sum::<u64>()
    };
    let kinds = [Kind::Queue, Kind::PacketRate, Kind::Policer, Kind::Line];
    let main = kinds.into_iter().max_by_key(|kind| of_kind(*kind));
    let (Some(main), Some(largest)) = (main, lossy.first()) else {
        return;
    };
    let each: Vec<String> = lossy
        .iter()
        .take(NAMED_MAX)
        .map(|l| format!("{} {}", text::grouped(&l.segments.to_string()), l.words))
        .collect();
    let evidence = format!(
        "by the lab's log its lost segments were {}",
        text::list(&each)
    );
    let first = passive.findings.first().map(|f| f.cause);
    for finding in &mut passive.findings {
        if !matches!(finding.cause, Cause::Loss | Cause::ShallowQueue) {
            continue;
        }
        let (cause, what) = match main {
            Kind::Queue => (Cause::ShallowQueue, "A queue that overflows"),
            Kind::PacketRate => (Cause::PacketRate, "A limit of packets a second"),
            Kind::Policer => (Cause::Loss, "A policer"),
            Kind::Line => (Cause::Loss, "Loss without a queue"),
        };
        finding.cause = cause;
        finding.title = format!(
            "{what} kept the congestion window small for {} of the time: {} lost, {}",
            text::percent(finding.share),
            text::plural(lossy.iter().map(|l| l.segments).sum(), "segment"),
            largest.words
        );
        finding.evidence.insert(0, evidence.clone());
        let advice = match main {
            Kind::Queue => "Give the bottleneck a longer queue, or pace the sender below its rate",
            Kind::PacketRate => "Send larger packets, or find what handles them one by one",
            Kind::Policer => "Pace the sender below the policer's rate, or have the policer raised",
            Kind::Line => "Find what loses packets there; no longer queue helps",
        };
        finding.remedy = Some(Remedy::advice(advice, RemedyHost::Network, ""));
    }
    if let (Some(first), Some(main)) = (first, passive.findings.first())
        && matches!(first, Cause::Loss | Cause::ShallowQueue)
    {
        passive.verdict.sentence.clone_from(&main.title);
        passive.verdict.cause = Some(main.cause);
    }
}

const NAMED_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passive::judge;
    use crate::trace::model::{MSS, Model, PLAIN, packets, track};

    fn lossy(kind: Kind, segments: u64) -> Lossy {
        Lossy {
            kind,
            segments,
            words: format!("{kind:?} at wan/x"),
        }
    }

    fn judged() -> Passive {
        let model = Model {
            lost: (1..60).map(|i| i * 331).collect(),
            lost_at: 0.4,
            total_bytes: 20_000 * MSS,
            ..PLAIN
        };
        judge(&track(&packets(&model))).unwrap()
    }

    #[test]
    fn the_log_has_the_last_word_on_why_segments_were_lost() {
        let plain = judged();
        assert_eq!(plain.verdict.cause, Some(Cause::Loss));
        for (all, cause) in [
            (vec![lossy(Kind::Queue, 59)], Cause::ShallowQueue),
            (vec![lossy(Kind::Line, 59)], Cause::Loss),
            (vec![lossy(Kind::Policer, 59)], Cause::Loss),
            (vec![lossy(Kind::PacketRate, 59)], Cause::PacketRate),
            (
                vec![lossy(Kind::Queue, 29), lossy(Kind::Line, 30)],
                Cause::Loss,
            ),
            (
                vec![lossy(Kind::Queue, 30), lossy(Kind::Line, 29)],
                Cause::ShallowQueue,
            ),
        ] {
            let mut told = plain.clone();
            tell(&mut told, &all);
            assert_eq!(told.verdict.cause, Some(cause));
            assert_eq!(told.findings[0].cause, cause);
            assert_eq!(told.verdict.sentence, told.findings[0].title);
            assert!(told.verdict.sentence.contains("59 segments lost"));
            assert!(told.findings[0].evidence[0].contains("at wan/x"));
        }
    }

    #[test]
    fn without_a_reason_nothing_changes() {
        let plain = judged();
        for none in [vec![], vec![lossy(Kind::Queue, 0)]] {
            let mut told = plain.clone();
            tell(&mut told, &none);
            assert_eq!(told, plain);
        }
    }

    #[test]
    fn what_was_no_loss_stays_what_it_was() {
        let mut short = judge(&track(&packets(&Model {
            total_bytes: 200 * MSS,
            ..PLAIN
        })))
        .unwrap();
        let before = short.clone();
        tell(&mut short, &[lossy(Kind::Queue, 3)]);
        assert_eq!(short.verdict, before.verdict);
    }
}
