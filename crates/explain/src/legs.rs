//! Which leg of a path is bad: transfers from one host to testers along the path, compared.
//!
//! All transfers start at the near host and end ever farther, so a *leg* is what one transfer passes
//! beyond the one before it. A leg is bad where goodput, loss or waiting changes beyond what the legs
//! before explain:
//!
//! * **goodput** below 0.8 of what the transfer to the tester before got, after that was lowered for
//!   the longer round trip where a window or losses held it, and for the losses of the legs before
//!   (RFC 9438, section 5.1). A host's own limit (buffers, CPU, application, too short a transfer) is
//!   no leg's.
//! * **loss** far above what the legs before make likely (by the counts' Poisson errors).
//! * **waiting**: the median round trip of the idle path over its smallest: others fill a queue there.
//!
//! A tester may be slow itself. What goes through its leg and gets on better absolves the leg.
//!
//! What is left out: legs that only testers could measure among themselves, and different routes to
//! two testers; with those the sums do not add up.

use throughput::{Cause, models};
use units::{Duration, Rate};

use crate::facts::ENOUGH_LOSSES;
use crate::text;

/// One transfer to a tester.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Leg {
    /// The tester.
    pub to: String,
    /// Payload received per second.
    pub goodput: Rate,
    /// Smallest round trip of the idle path.
    pub idle_rtt: Duration,
    /// Median of it.
    pub idle_rtt_median: Duration,
    /// Data segments sent.
    pub sent_segments: u64,
    /// Of these, lost.
    pub lost_segments: u64,
    /// Of these, while no queue was full.
    pub lost_beside_queue: u64,
    /// Whether the sender slows down for each loss, as CUBIC does and BBR does not.
    pub slows_for_loss: bool,
    /// Payload of a segment in bytes.
    pub mss_bytes: u64,
    /// Connections.
    pub streams: u32,
    /// What held the transfer, where that is certain.
    pub cause: Option<Cause>,
}

/// What a leg adds to the path before it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LegFinding {
    /// Idle round trip that it adds.
    pub rtt: Duration,
    /// Goodput that the legs before explain; `None` for the first.
    pub explained: Option<Rate>,
    /// Goodput falls here.
    pub slows: bool,
    /// Packets are lost here.
    pub loses: bool,
    /// Packets wait here though the path is idle.
    pub delays: bool,
    /// A host holds the transfer to this tester, not the leg.
    pub held_by_host: bool,
}

/// All legs compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// One for each leg, in their order.
    pub legs: Vec<LegFinding>,
    /// The bad one, if any is.
    pub bad: Option<usize>,
    /// In a sentence.
    pub sentence: String,
}

impl LegFinding {
    /// Whether anything changes here.
    pub const fn is_bad(&self) -> bool {
        self.slows || self.loses || self.delays
    }
}

/// Compares transfers to testers along a path, the nearest first, the far end last.
pub fn compare_legs(legs: &[Leg]) -> Comparison {
    let found: Vec<LegFinding> = (0..legs.len()).map(|k| finding(legs, k)).collect();
    // A fall of goodput is what the user feels; of several the deepest, then the first.
    let each = found.as_slice();
    let fall = |k: usize| {
        let explained = each[k].explained.map_or(0, Rate::as_bits_per_second);
        explained as f64 / legs[k].goodput.as_bits_per_second().max(1) as f64
    };
    let marked = |mark: fn(&LegFinding) -> bool| (0..each.len()).filter(move |&k| mark(&each[k]));
    let deepest = marked(|f| f.slows).reduce(|best, k| if fall(k) > fall(best) { k } else { best });
    let bad = deepest
        .or_else(|| marked(|f| f.loses).next())
        .or_else(|| marked(|f| f.delays).next());
    let sentence = match bad {
        Some(k) => bad_sentence(legs, &found[k], k),
        None => good_sentence(legs, &found),
    };
    Comparison {
        legs: found,
        bad,
        sentence,
    }
}

fn finding(legs: &[Leg], k: usize) -> LegFinding {
    let leg = &legs[k];
    let before = k.checked_sub(1).map(|j| (j, &legs[j]));
    let explained = before.map(|(j, b)| explained(b, best(legs, j), leg));
    let held_by_host = leg.cause.is_some_and(is_hosts);
    let falls = |e: Rate| {
        let got = best(legs, k).as_bits_per_second() as f64;
        got < e.as_bits_per_second() as f64 * FALL
    };
    let nearer = before.map_or(Duration::ZERO, |(_, b)| b.idle_rtt);
    let waits_before = before.map_or(Duration::ZERO, |(j, _)| waiting(legs, j));
    let waits = waiting(legs, k);
    LegFinding {
        rtt: leg.idle_rtt - nearer,
        explained,
        slows: !held_by_host && explained.is_some_and(falls),
        loses: loses(legs, k),
        delays: waits > waits_before.saturating_mul(2) + WAIT_MIN,
        held_by_host,
    }
}

/// What a tester or one behind it got: what passes a leg and gets on better absolves it.
fn best(legs: &[Leg], k: usize) -> Rate {
    let from = legs[k..].iter().map(|l| l.goodput);
    from.max().unwrap_or_default()
}

/// Goodput to `leg` that the transfer before it makes likely, with that one's best.
fn explained(before: &Leg, best: Rate, leg: &Leg) -> Rate {
    let mut rate = best.as_bits_per_second() as f64;
    let (near, far) = (before.idle_rtt.as_s_f64(), leg.idle_rtt.as_s_f64());
    // Window over round trip (RFC 7323, 1.1); Mathis' and CUBIC's rates fall alike or less.
    if before.cause.is_some_and(falls_with_distance) && near > 0.0 && far > near {
        rate *= near / far;
    }
    if leg.slows_for_loss && before.lost_beside_queue >= ENOUGH_LOSSES {
        let loss = before.lost_beside_queue as f64 / before.sent_segments.max(1) as f64;
        let one = models::cubic(leg.mss_bytes, leg.idle_rtt, loss);
        let all = one.map(|r| r.as_bits_per_second() as f64 * f64::from(leg.streams.max(1)));
        rate = rate.min(all.unwrap_or(rate));
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not above the rate that it began with, nor below 0"
    )]
    Rate::from_bits_per_second(rate as u64)
}

const fn falls_with_distance(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::SendBuffer
            | Cause::ReceiveWindow
            | Cause::WindowScaling
            | Cause::Loss
            | Cause::ShallowQueue
            | Cause::ShortTransfer
    )
}

const fn is_hosts(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::SendBuffer
            | Cause::ReceiveWindow
            | Cause::HostCpu
            | Cause::Application
            | Cause::ShortTransfer
    )
}

/// Losses beyond what the leg before makes likely, and not refuted by a transfer that went farther.
///
/// A queue that is full in one transfer may be half empty in the next, so what is held against this
/// leg are losses beside a full queue only, and what speaks for it are all losses of others.
fn loses(legs: &[Leg], k: usize) -> bool {
    let leg = &legs[k];
    let (lost, sent) = (
        leg.lost_beside_queue as f64,
        leg.sent_segments.max(1) as f64,
    );
    // Of what fills a path some is lost, and not every reading catches the queue full.
    let fills = leg.cause == Some(Cause::BottleneckReached);
    if leg.lost_beside_queue < ENOUGH_LOSSES
        || fills && lost < leg.lost_segments as f64 * BESIDE_QUEUE_MIN
    {
        return false;
    }
    let likely = match k.checked_sub(1).map(|j| &legs[j]) {
        None => 0.0,
        Some(b) => {
            let lost = b.lost_segments as f64;
            (lost + 2.0 * lost.sqrt() + 3.0) / b.sent_segments.max(1) as f64 * sent
        }
    };
    let refuted = legs[k + 1..].iter().any(|farther| {
        let due = lost / sent * farther.sent_segments as f64;
        due >= REFUTE_LOSSES && (farther.lost_segments as f64) < due / 4.0
    });
    lost > likely + 3.0 * likely.sqrt() && !refuted
}

/// Time that packets of the idle path wait, at most what a farther tester saw.
fn waiting(legs: &[Leg], k: usize) -> Duration {
    let each = legs[k..].iter().map(|l| l.idle_rtt_median - l.idle_rtt);
    each.min().unwrap_or_default()
}

fn name(legs: &[Leg], k: usize) -> String {
    let from = k.checked_sub(1).map_or("here", |j| legs[j].to.as_str());
    format!("{from} to {}", legs[k].to)
}

fn bad_sentence(legs: &[Leg], found: &LegFinding, k: usize) -> String {
    let leg = &legs[k];
    let mut signs = Vec::new();
    if let (true, Some(explained)) = (found.slows, found.explained) {
        signs.push(format!(
            "{} get through where the legs before leave {explained}",
            leg.goodput
        ));
    }
    if found.loses {
        let rate = |lost: u64, of: &Leg| lost as f64 / of.sent_segments.max(1) as f64;
        let before = k.checked_sub(1).map_or_else(String::new, |j| {
            let before = text::loss(rate(legs[j].lost_segments, &legs[j]));
            format!(", {before} before it")
        });
        let lost = text::loss(rate(leg.lost_beside_queue, leg));
        signs.push(format!(
            "{lost} of the packets are lost with no queue full{before}"
        ));
    }
    if found.delays {
        let waits = leg.idle_rtt_median - leg.idle_rtt;
        signs.push(format!("packets wait {waits} there while we send nothing"));
    }
    format!(
        "The leg from {} is the bad one: {}",
        name(legs, k),
        signs.join("; ")
    )
}

fn good_sentence(legs: &[Leg], found: &[LegFinding]) -> String {
    let Some((last, first)) = legs.last().zip(legs.first()) else {
        return "There are no legs to compare".to_owned();
    };
    if found.last().is_some_and(|f| f.held_by_host) {
        return format!(
            "No leg is to blame: a host holds the transfer to {}",
            last.to
        );
    }
    match legs.len() {
        1 => format!("There is one leg only, to {}", last.to),
        _ => format!(
            "No leg stands out: {} get to {}, {} to {}, and distance explains the difference",
            first.goodput, first.to, last.goodput, last.to
        ),
    }
}

/// From this share of what the legs before explain downwards a leg slows; chosen above what repeated
/// transfers differ by.
const FALL: f64 = 0.8;
/// Scheduling of both ends moves a median of ten by less; chosen.
const WAIT_MIN: Duration = Duration::from_ms(5);
/// Of a transfer that fills the path so much of its losses must be beside a full queue; chosen.
const BESIDE_QUEUE_MIN: f64 = 0.25;
/// Losses that a farther transfer must have had the chance to meet.
const REFUTE_LOSSES: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// A transfer that filled `mbps` over `rtt_ms` and lost nothing.
    fn leg(to: &str, mbps: u64, rtt_ms: u64) -> Leg {
        Leg {
            to: to.to_owned(),
            goodput: Rate::from_bits_per_second(mbps * 1_000_000),
            idle_rtt: Duration::from_ms(rtt_ms),
            idle_rtt_median: Duration::from_ms(rtt_ms),
            sent_segments: 100_000,
            mss_bytes: 1_448,
            slows_for_loss: true,
            streams: 1,
            ..Leg::default()
        }
    }

    fn losing(lost_segments: u64, leg: Leg) -> Leg {
        Leg {
            lost_segments,
            lost_beside_queue: lost_segments,
            ..leg
        }
    }

    fn held(cause: Cause, leg: Leg) -> Leg {
        Leg {
            cause: Some(cause),
            ..leg
        }
    }

    fn bad(legs: &[Leg]) -> Option<usize> {
        compare_legs(legs).bad
    }

    #[test]
    fn a_narrow_leg_is_named_with_both_rates() {
        let path = [leg("a", 940, 2), leg("b", 938, 10), leg("far", 94, 28)];
        let found = compare_legs(&path);
        assert_eq!(found.bad, Some(2));
        assert_eq!(
            found.sentence,
            "The leg from b to far is the bad one: 94 Mb/s get through where the legs before leave \
             938 Mb/s"
        );
        assert_eq!(found.legs[1].rtt, Duration::from_ms(8));
    }

    #[test]
    fn legs_alike_blame_none_on_either_side_of_the_mark() {
        assert_eq!(bad(&[leg("a", 100, 2), leg("far", 80, 9)]), None);
        assert_eq!(bad(&[leg("a", 100, 2), leg("far", 79, 9)]), Some(1));
        assert_eq!(bad(&[leg("far", 100, 2)]), None);
        assert_eq!(bad(&[]), None);
    }

    #[test]
    fn a_slow_tester_is_absolved_by_what_passes_it() {
        assert_eq!(
            bad(&[leg("a", 900, 1), leg("b", 50, 5), leg("far", 890, 9)]),
            None
        );
    }

    #[test]
    fn a_window_over_a_longer_round_trip_explains_the_fall() {
        let window = |leg| held(Cause::WindowScaling, leg);
        assert_eq!(
            bad(&[window(leg("a", 500, 10)), window(leg("far", 100, 50))]),
            None
        );
        assert_eq!(
            bad(&[window(leg("a", 500, 10)), window(leg("far", 79, 50))]),
            Some(1)
        );
        // The same fall, with nothing known that falls with distance.
        assert_eq!(bad(&[leg("a", 500, 10), leg("far", 100, 50)]), Some(1));
    }

    #[test]
    fn a_hosts_limit_is_no_legs() {
        for cause in [Cause::SendBuffer, Cause::ReceiveWindow, Cause::HostCpu] {
            let path = [leg("a", 900, 1), held(cause, leg("far", 60, 80))];
            let found = compare_legs(&path);
            assert_eq!(found.bad, None, "{cause:?}");
            assert!(
                found.sentence.contains("a host holds"),
                "{}",
                found.sentence
            );
        }
        let scaling = [
            leg("a", 900, 1),
            held(Cause::WindowScaling, leg("far", 6, 80)),
        ];
        assert_eq!(bad(&scaling), Some(1), "a firewall is on the leg");
    }

    #[test]
    fn losses_are_named_where_they_begin() {
        let path = [
            leg("a", 900, 1),
            losing(50, leg("b", 850, 2)),
            losing(55, leg("far", 20, 40)),
        ];
        let found = compare_legs(&path);
        let loses: Vec<bool> = found.legs.iter().map(|f| f.loses).collect();
        assert_eq!(loses, [false, true, false]);
        // Over 40 ms that loss allows some 16 Mb/s: the last leg is not to blame for its rate.
        assert_eq!(found.bad, Some(1));
        assert!(
            found
                .sentence
                .starts_with("The leg from a to b is the bad one")
        );
    }

    #[test]
    fn a_few_losses_and_those_of_a_full_path_prove_nothing() {
        assert_eq!(bad(&[losing(3, leg("far", 90, 9))]), None);
        assert_eq!(bad(&[losing(4, leg("far", 90, 9))]), Some(0));
        let full = |beside| {
            let queue = Leg {
                lost_beside_queue: beside,
                ..losing(400, leg("far", 90, 9))
            };
            bad(&[held(Cause::BottleneckReached, queue)])
        };
        assert_eq!((full(99), full(100)), (None, Some(0)));
        assert_eq!(
            bad(&[losing(20, leg("a", 90, 9)), losing(35, leg("far", 90, 9))]),
            Some(0)
        );
    }

    #[test]
    fn losses_before_count_whether_their_queue_was_full_or_not() {
        let queue = Leg {
            lost_beside_queue: 20,
            ..losing(200, leg("a", 90, 1))
        };
        assert_eq!(
            bad(&[queue.clone(), losing(150, leg("far", 90, 9))]),
            Some(0)
        );
        let quiet = Leg {
            lost_beside_queue: 0,
            ..queue
        };
        assert_eq!(bad(&[quiet, losing(150, leg("far", 90, 9))]), None);
    }

    #[test]
    fn losses_slow_only_a_sender_that_minds_them() {
        let path = |slows_for_loss| {
            let far = Leg {
                slows_for_loss,
                ..losing(300, leg("far", 9, 100))
            };
            compare_legs(&[losing(300, leg("a", 90, 1)), far]).legs[1].slows
        };
        assert!(path(false) && !path(true));
    }

    #[test]
    fn losses_that_a_farther_transfer_does_not_meet_are_the_testers_own() {
        let path = [losing(100, leg("a", 90, 1)), losing(2, leg("far", 90, 9))];
        assert_eq!(bad(&path), None);
    }

    #[test]
    fn packets_that_wait_on_an_idle_path_name_its_queue() {
        let waiting = |ms, leg: Leg| Leg {
            idle_rtt_median: leg.idle_rtt + Duration::from_ms(ms),
            ..leg
        };
        let path = |ms| [leg("a", 90, 1), waiting(ms, leg("far", 89, 9))];
        assert_eq!(bad(&path(5)), None);
        let found = compare_legs(&path(30));
        assert_eq!(found.bad, Some(1));
        assert!(
            found.sentence.contains("packets wait 30 ms"),
            "{}",
            found.sentence
        );
    }
}
