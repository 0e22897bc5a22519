//! Why a connection was no faster, by its packets alone: the time that its sender spent at each limit, as
//! findings with the packets that prove them.
//!
//! The same causes as [`crate::diagnose()`] names from the kernel's counters, so that both can be held
//! against each other. What a capture does not tell is left open: the hosts' settings, and which of send
//! buffer and fixed congestion window kept a flight from growing.

mod quality;
mod waits;

use std::cmp::Reverse;

use throughput::{Cause, Finding, Remedy, RemedyHost, Verdict};
use units::{Bytes, Duration, Rate};

use crate::confidence::{CONCLUSIVE, data, ramp};
use crate::text;
use crate::trace::{Connection, Limit, LimitTime, SideFacts, Spread, Start};

use waits::Times;
pub use waits::Waited;

/// What the packets say of one direction of a connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Passive {
    /// Who sent: 0 the lower endpoint, 1 the higher one.
    pub sender: u8,
    /// From the first data to the end of the last time that counts: neither handshake nor what came after
    /// the sender's FIN.
    pub active: Duration,
    /// Payload acknowledged per second of that; where no ACK was seen, payload sent.
    pub goodput: Rate,
    /// Share of the connection's time that was waited for each, largest first.
    pub shares: Vec<(Waited, f64)>,
    /// What the capture lacks, doubles or gets wrong, in sentences without a stop.
    pub notes: Vec<String>,
    /// What limits, the most important first.
    pub findings: Vec<Finding>,
    /// In a sentence.
    pub verdict: Verdict,
    /// The highest rate that it had over two round trips; `None` where it was too short to tell.
    pub best: Option<Rate>,
    /// Payload that the time at limits which can be lifted would have carried at that rate.
    pub lost: Bytes,
}

/// The direction that carried more, and why it carried no more; `None` of a connection without data.
pub fn judge(connection: &Connection) -> Option<Passive> {
    judge_side(connection, main_sender(connection))
}

/// Why `sender` sent no faster; `None` where it sent no data.
pub fn judge_side(connection: &Connection, sender: u8) -> Option<Passive> {
    let Some(case) = Case::of(connection, sender) else {
        return timeless(connection, sender);
    };
    let quality = quality::of(connection);
    let part = |&(waited, _): &(Waited, Duration)| (waited, case.times.share(waited));
    let parts = case.times.parts.iter().filter(|_| !case.one_way());
    let mut shares: Vec<(Waited, f64)> = parts.map(part).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let findings = case.findings(quality.factor);
    let best = best(case.side, case.goodput);
    Some(Passive {
        sender,
        active: case.active,
        goodput: case.goodput,
        verdict: verdict(&case, &findings),
        notes: quality.notes,
        shares,
        lost: lost(case.side, (case.goodput, case.active), best),
        best,
        findings,
    })
}

/// A side whose data all have one time, as where a capture has none; `None` where it sent no data.
fn timeless(connection: &Connection, sender: u8) -> Option<Passive> {
    let side = connection.sides.get(usize::from(sender))?;
    let lasts = connection.last.time.saturating_since(connection.first.time);
    let carried = Bytes::new(side.unique_bytes);
    let segments = text::plural(side.data_segments, "packet");
    let sentence = match lasts {
        Duration::ZERO => {
            format!("The capture has no times: {carried} in {segments}, how fast is not known")
        }
        _ => format!("Too little to tell: {segments} with data"),
    };
    (side.unique_bytes > 0).then(|| Passive {
        sender,
        active: Duration::ZERO,
        goodput: Rate::average(Bytes::default(), Duration::ZERO),
        shares: Vec::new(),
        notes: quality::of(connection).notes,
        findings: Vec::new(),
        verdict: Verdict {
            sentence,
            cause: None,
            healthy: false,
            conclusive: false,
        },
        best: None,
        lost: Bytes::default(),
    })
}

/// What the direction that carried more lost, as [`judge`] says, without the words: that takes a
/// tenth of the time. `None` where that gives none.
pub fn weigh(connection: &Connection) -> Option<Weight> {
    let side = &connection.sides[usize::from(main_sender(connection))];
    let carried = Bytes::new(side.unique_bytes);
    let lost = match basis(side) {
        Some(basis) => lost(side, basis, best(side, basis.0)),
        None => Bytes::default(),
    };
    (side.unique_bytes > 0).then_some(Weight { lost, carried })
}

/// How much a connection matters among others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// [`Passive::lost`].
    pub lost: Bytes,
    /// Payload of the direction that carried more.
    pub carried: Bytes,
}

/// The side whose data took by far the most time, or that carried more.
fn main_sender(connection: &Connection) -> u8 {
    let [low, high] = &connection.sides;
    let turns = [connection.turns(0), connection.turns(1)];
    let [a, b] = turns.map(|t| t.sending.as_ns().saturating_sub(t.pauses.as_ns()));
    let both = low.unique_bytes > 0 && high.unique_bytes > 0;
    if both && turns.iter().all(|t| t.messages > 0) && a.max(b) > MUCH_LONGER * a.min(b) {
        return u8::from(b > a);
    }
    u8::from(high.unique_bytes > low.unique_bytes)
}

struct Case<'a> {
    times: Times<'a>,
    connection: &'a Connection,
    side: &'a SideFacts,
    peer: &'a SideFacts,
    /// 0 or 1.
    sender: usize,
    active: Duration,
    goodput: Rate,
}

/// Time of one cause, of which several limits may be.
#[derive(Clone, Debug)]
struct Held {
    cause: Cause,
    main: Limit,
    share: f64,
    proofs: Vec<(u64, Duration)>,
}

impl<'a> Case<'a> {
    /// `None` where `sender` sent no data.
    fn of(connection: &'a Connection, sender: u8) -> Option<Self> {
        let side = connection.sides.get(usize::from(sender))?;
        let peer = connection.sides.get(usize::from(1 - sender.min(1)))?;
        let (goodput, active) = basis(side)?;
        Some(Self {
            times: Times::of(connection, sender)?,
            connection,
            side,
            peer,
            sender: usize::from(sender.min(1)),
            active,
            goodput,
        })
    }

    fn counted(&self) -> impl Iterator<Item = &'a LimitTime> {
        counted(self.side)
    }

    /// Nothing of the peer's was captured: neither what it acknowledged nor its windows.
    fn one_way(&self) -> bool {
        self.peer.packets == 0
    }

    fn findings(&self, quality: f64) -> Vec<Finding> {
        let mut held: Vec<Held> = Vec::new();
        for limit in self.counted() {
            self.add(&mut held, limit);
        }
        let mut findings: Vec<Finding> = held.iter().map(|h| self.finding(h)).collect();
        findings.extend(self.times.findings());
        if self.one_way() {
            findings.clear();
        }
        for finding in &mut findings {
            finding.confidence *= quality;
        }
        findings.retain(|f| f.weight() >= WORTH_NAMING);
        self.doubt(&mut findings);
        // What went wrong comes before what is no fault: a program that had nothing to send.
        let order = |f: &Finding| f.weight() * if is_fault(f.cause) { FAULT } else { 1.0 };
        findings.sort_by(|a, b| order(b).total_cmp(&order(a)).then(a.cause.cmp(&b.cause)));
        findings
    }

    /// Where two limits had about the same time, either may be taken for the other.
    fn doubt(&self, findings: &mut [Finding]) {
        let mut shares: Vec<f64> = findings.iter().map(|f| f.share).collect();
        shares.sort_by(|a, b| b.total_cmp(a));
        let next = shares.get(1).copied().unwrap_or(0.0);
        for finding in findings.iter_mut().filter(|f| !is_fault(f.cause)) {
            if shares.first() == Some(&finding.share) {
                let ahead = ramp(finding.share - next, 0.0, AHEAD);
                finding.confidence *= NO_BETTER + (1.0 - NO_BETTER) * ahead;
            }
        }
    }

    fn add(&self, held: &mut Vec<Held>, limit: &LimitTime) {
        let cause = self.cause(limit.limit);
        let proofs = limit.proofs.iter().flatten().copied();
        // One application is another than the other.
        let who = receives(limit.limit);
        let same = |h: &&mut Held| h.cause == cause && receives(h.main) == who;
        match held.iter_mut().find(same) {
            Some(h) => {
                h.share += self.times.share(Waited::Limit(limit.limit));
                h.proofs.extend(proofs);
            }
            // Limits come longest first, so the first one of a cause is its main one.
            None => held.push(Held {
                cause,
                main: limit.limit,
                share: self.times.share(Waited::Limit(limit.limit)),
                proofs: proofs.collect(),
            }),
        }
    }

    fn cause(&self, limit: Limit) -> Cause {
        match limit {
            Limit::ReceiveWindow | Limit::ZeroWindow if self.unscaled() => Cause::WindowScaling,
            Limit::ReceiveWindow if self.reads_slowly() => Cause::Application,
            Limit::ReceiveWindow => Cause::ReceiveWindow,
            Limit::SenderWindow => Cause::SendBuffer,
            Limit::ZeroWindow | Limit::Application | Limit::Pacing => Cause::Application,
            Limit::LossWindow | Limit::RecoveryTimeout if self.queues_before_loss() => {
                Cause::ShallowQueue
            }
            Limit::LossWindow | Limit::RecoveryTimeout => Cause::Loss,
            Limit::Bottleneck => Cause::BottleneckReached,
            Limit::SlowStart | Limit::CongestionWindow => Cause::ShortTransfer,
            _ => Cause::NetworkUnknown,
        }
    }

    /// Windows cannot pass 64 KiB, as a SYN that was seen says, and that is what keeps them small:
    /// they come near it, or are a small part of what the SYN offered, because only one side scales.
    fn unscaled(&self) -> bool {
        let begun = matches!(self.connection.start, Start::Syn { .. });
        let both = self.side.window_scale.is_some() && self.peer.window_scale.is_some();
        let near = self.peer.window_bytes.max >= UNSCALED_NEAR;
        begun && !both && self.peer.syns > 0 && (near || self.scaled_by_one())
    }

    /// The receiver's windows are far below what its SYN offered: it scales them, and the sender does
    /// not know.
    fn scaled_by_one(&self) -> bool {
        let first = u64::from(self.peer.syn_window.unwrap_or(0));
        self.peer.window_scale.is_none() && self.peer.window_bytes.median.saturating_mul(8) <= first
    }

    /// The window was emptied more rarely than a round trip would allow, though no queue stood: the
    /// program behind it did not read.
    fn reads_slowly(&self) -> bool {
        let Some(rtt) = self.rtt() else { return false };
        let window = offered(&self.peer.window_bytes).as_u64();
        let each = self.goodput.bytes_in(rtt).as_u64();
        let full = self.times.share(Waited::Limit(Limit::ReceiveWindow)) >= MOSTLY;
        full && self.side.rounds.lossy == 0 && each.saturating_mul(5) < window.saturating_mul(3)
    }

    /// A tenth of the rounds had a longer round trip than the least: queues fill before they overflow.
    fn queues_before_loss(&self) -> bool {
        let rounds = &self.side.rounds;
        rounds.inflated * 10 >= rounds.rounds.max(1)
    }

    fn finding(&self, held: &Held) -> Finding {
        let share = held.share;
        let rounds = usize::try_from(self.side.rounds.rounds).unwrap_or(usize::MAX);
        // Without its SYN nobody knows what the receiver's window is worth.
        let known = match (self.peer.syns, held.main) {
            (0, Limit::ReceiveWindow | Limit::SenderWindow) => UNKNOWN_SCALE,
            _ => 1.0,
        };
        // A window that is closed is seen, and needs no rounds to compare.
        let closed = held.main == Limit::ZeroWindow && self.peer.zero_windows > 0;
        let known = match held.main {
            Limit::Application if self.may_have_gone() => known * ONLY_SILENT,
            _ => known,
        };
        let readings = if closed { 1.0 } else { data(rounds) };
        Finding {
            cause: held.cause,
            title: self.title(held, share),
            confidence: readings * ramp(share, 0.0, 0.5) * known,
            share,
            evidence: self.evidence(held),
            remedy: self.remedy(held),
        }
    }

    /// Most of the time that it sent nothing is that before the end, and the capture was not taken at its side: it may have
    /// been idle, and it may have been cut off.
    fn may_have_gone(&self) -> bool {
        let at_end = self.connection.silences[self.sender].at_end;
        let idle =
            self.times.whole.as_s_f64() * self.times.share(Waited::Limit(Limit::Application));
        let ahead = self.side.rtt_ahead.unwrap_or_default();
        let behind = self.side.rtt_behind.unwrap_or_default();
        at_end >= LONG_SILENCE && at_end.as_s_f64() * 2.0 > idle && behind + behind > ahead
    }

    fn title(&self, held: &Held, share: f64) -> String {
        let side = self.side;
        let share = text::percent(share);
        let rtt = self.rtt();
        match held.main {
            Limit::ReceiveWindow | Limit::ZeroWindow => self.window_title(held.main, &share),
            Limit::SenderWindow => {
                let flight = Bytes::new(side.flight_bytes_max);
                format!(
                    "The sender never had more than {flight} in flight{}, for {share} of the time: its send \
                     buffer, or a congestion window that does not grow",
                    per_round_trip(flight, rtt)
                )
            }
            Limit::LossWindow | Limit::RecoveryTimeout => {
                let again = side.retransmissions.segments();
                let rate = again as f64 / side.data_segments.max(1) as f64;
                let why = if self.queues_before_loss() {
                    "A queue that overflows"
                } else {
                    "Loss without a queue"
                };
                let segments = if again == 1 { "segment" } else { "segments" };
                let again = text::grouped(&again.to_string());
                let loss = text::loss(rate);
                format!(
                    "{why} kept the congestion window small for {share} of the time: {again} {segments} sent \
                     again, {loss}"
                )
            }
            Limit::Bottleneck => format!(
                "The path carried what it could for {share} of the time: a queue stood before the bottleneck"
            ),
            Limit::SlowStart => {
                format!("The connection was still in slow start for {share} of the time")
            }
            Limit::CongestionWindow => format!(
                "The congestion window was still growing and had met no loss for {share} of the time"
            ),
            Limit::Pacing => {
                format!("The sender paced itself: evenly spaced segments for {share} of the time")
            }
            Limit::Application => {
                format!("The sending application had nothing to send for {share} of the time")
            }
            _ => format!("Nothing tells what held the sender for {share} of the time"),
        }
    }

    /// Of time at the peer's window.
    fn window_title(&self, limit: Limit, share: &str) -> String {
        let (peer, rtt) = (self.peer, self.rtt());
        match limit {
            Limit::ReceiveWindow | Limit::ZeroWindow if self.scaled_by_one() && self.unscaled() => {
                format!(
                    "Window scaling was lost on one side: the receiver offered {} in its SYN and {} later, \
                     for {share} of the time",
                    Bytes::new(u64::from(peer.syn_window.unwrap_or(0))),
                    Bytes::new(peer.window_bytes.median)
                )
            }
            Limit::ReceiveWindow if self.reads_slowly() => {
                let window = offered(&peer.window_bytes);
                format!(
                    "The receiving application read slowly: its window of {window} was full for {share} of the \
                     time and took {} instead of {}",
                    self.goodput,
                    Rate::average(window, rtt.unwrap_or_default())
                )
            }
            Limit::ReceiveWindow => {
                let window = offered(&peer.window_bytes);
                let scale = if self.unscaled() {
                    "; its scale was not agreed on"
                } else {
                    ""
                };
                format!(
                    "The receive window of {window} was full for {share} of the time{}{scale}",
                    per_round_trip(window, rtt)
                )
            }
            _ => format!(
                "The receiving application read too slowly: its window was closed {}, for {}",
                match peer.zero_windows {
                    1 => "once".to_owned(),
                    n => format!("{n} times"),
                },
                peer.zero_window_time
            ),
        }
    }

    fn evidence(&self, held: &Held) -> Vec<String> {
        let mut lines = Vec::new();
        let mut proofs = held.proofs.clone();
        proofs.sort_by_key(|&(frame, time)| (Reverse(time), frame));
        proofs.truncate(PROOFS_SHOWN);
        if !proofs.is_empty() {
            let each: Vec<String> = proofs
                .iter()
                .map(|(frame, time)| format!("from frame {frame} on for {time}"))
                .collect();
            lines.push(format!("longest {}", text::list(&each)));
        }
        let rounds = &self.side.rounds;
        if rounds.rounds > 0 {
            lines.push(format!(
                "of {} round trips {} had a flight half as large again as the one before, {} the same flight, {} \
                 a longer round trip, {} a loss",
                rounds.rounds, rounds.growing, rounds.flat_flight, rounds.inflated, rounds.lossy
            ));
        }
        if let Some(rtt) = self.rtt() {
            lines.push(format!(
                "least round trip {rtt}; in flight at most {}, on average {}",
                Bytes::new(self.side.flight_bytes_max),
                Bytes::new(self.side.flight_bytes_mean)
            ));
        }
        lines
    }

    fn remedy(&self, held: &Held) -> Option<Remedy> {
        let (summary, host) = match held.main {
            Limit::ReceiveWindow | Limit::ZeroWindow if self.unscaled() => (
                "Find what keeps window scaling (RFC 7323) out of the SYNs: a host's net.ipv4.tcp_window_scaling, \
                 or a device between the hosts",
                RemedyHost::Network,
            ),
            Limit::ReceiveWindow if self.reads_slowly() => (
                "Make the receiving application read faster, or raise its buffer",
                RemedyHost::Far,
            ),
            Limit::ReceiveWindow => (
                "Raise the receiver's buffer: the third number of net.ipv4.tcp_rmem, or SO_RCVBUF where its \
                 application sets one",
                RemedyHost::Far,
            ),
            Limit::ZeroWindow => (
                "Make the receiving application read faster",
                RemedyHost::Far,
            ),
            Limit::SenderWindow => (
                "Raise the sender's buffer: the third number of net.ipv4.tcp_wmem, or SO_SNDBUF where its \
                 application sets one",
                RemedyHost::Near,
            ),
            Limit::LossWindow | Limit::RecoveryTimeout if self.queues_before_loss() => (
                "Give the bottleneck a longer queue, or pace the sender below its rate",
                RemedyHost::Network,
            ),
            Limit::LossWindow | Limit::RecoveryTimeout => (
                "Find the link that loses packets; until then a congestion control that does not take loss for \
                 congestion, such as bbr",
                RemedyHost::Network,
            ),
            _ => return None,
        };
        Some(Remedy::advice(summary, host, ""))
    }

    /// The least round trip of both halves, where one was seen.
    fn rtt(&self) -> Option<Duration> {
        match (self.side.rtt_ahead, self.side.rtt_behind) {
            (Some(ahead), behind) => Some(ahead + behind.unwrap_or_default()),
            _ => None,
        }
    }
}

/// The window that was mostly offered: the median is known within an eighth, so where the largest is no
/// further off it stands for it.
fn offered(window: &Spread) -> Bytes {
    let near = window.max <= window.median + window.median / 8;
    Bytes::new(if near { window.max } else { window.median })
}

/// It is the receiver that made the sender wait.
const fn receives(limit: Limit) -> bool {
    matches!(limit, Limit::ZeroWindow | Limit::ReceiveWindow)
}

/// Times that say nothing of what held the sender.
const fn counts(limit: Limit) -> bool {
    !matches!(limit, Limit::Handshake | Limit::Finished)
}

fn goodput(side: &SideFacts, active: Duration) -> Rate {
    let bytes = match side.acked_bytes {
        0 => side.unique_bytes,
        acked => acked,
    };
    Rate::average(Bytes::new(bytes), active)
}

/// ` (65.5 kB / 20 ms = 26.2 Mb/s)`.
fn per_round_trip(bytes: Bytes, rtt: Option<Duration>) -> String {
    match rtt {
        Some(rtt) if rtt > Duration::ZERO => {
            format!(" ({bytes} / {rtt} = {})", Rate::average(bytes, rtt))
        }
        _ => String::new(),
    }
}

/// The highest rate over two round trips or 20 ms, from the slices; no less than the mean.
fn best(side: &SideFacts, goodput: Rate) -> Option<Rate> {
    if side.acked_bytes == 0 {
        return None;
    }
    let slices = side.slices.as_ref()?;
    let rtt = side.rtt_ahead.unwrap_or_default() + side.rtt_behind.unwrap_or_default();
    let over = rtt.saturating_mul(2).max(BEST_OVER).as_ns();
    let count = usize::try_from(over.div_ceil(slices.width.as_ns().max(1))).ok()?;
    let most = slices
        .list
        .windows(count.max(1))
        .map(|w| w.iter().map(|s| s.acked_bytes).sum::<u64>())
        .max()?;
    let best = Rate::average(Bytes::new(most), slices.width.saturating_mul(count as u64));
    Some(best.max(goodput))
}

/// What a side sent a second and for how long; `None` where it sent no data, or in no time.
fn basis(side: &SideFacts) -> Option<(Rate, Duration)> {
    let active: u64 = counted(side).map(|l| l.time.as_ns()).sum();
    let active = Duration::from_ns(active);
    (side.unique_bytes > 0 && active > Duration::ZERO).then(|| (goodput(side, active), active))
}

fn counted(side: &SideFacts) -> impl Iterator<Item = &LimitTime> {
    side.limits.iter().filter(|l| counts(l.limit))
}

fn lost(side: &SideFacts, (goodput, active): (Rate, Duration), best: Option<Rate>) -> Bytes {
    let Some(best) = best else {
        return Bytes::default();
    };
    let wanted = counted(side).filter(|l| l.limit != Limit::Application);
    let wanted: u64 = wanted.map(|l| l.time.as_ns()).sum();
    let could = best.bytes_in(Duration::from_ns(wanted));
    let did = goodput.bytes_in(active);
    Bytes::new(could.as_u64().saturating_sub(did.as_u64()))
}

fn verdict(case: &Case<'_>, findings: &[Finding]) -> Verdict {
    if case.one_way() {
        let sent = Bytes::new(case.side.unique_bytes);
        return Verdict {
            sentence: format!(
                "Only one direction was captured: {sent} at {}, and nothing tells what limited that",
                case.goodput
            ),
            cause: None,
            healthy: false,
            conclusive: false,
        };
    }
    let Some(main) = findings.first() else {
        return Verdict {
            sentence: format!("Nothing explains why this connection got {}", case.goodput),
            cause: None,
            healthy: false,
            conclusive: false,
        };
    };
    let judges = !matches!(main.cause, Cause::ShortTransfer | Cause::NetworkUnknown);
    let segments = case.side.data_segments;
    let closed = main.cause == Cause::Application && case.peer.zero_windows > 0;
    if segments < SEGMENTS_MIN && !is_seen(main.cause) && !closed {
        return Verdict {
            sentence: format!(
                "Too little to tell: {} with data",
                text::plural(segments, "packet")
            ),
            cause: None,
            healthy: false,
            conclusive: false,
        };
    }
    let sure = main.confidence >= CONCLUSIVE;
    Verdict {
        sentence: main.title.clone(),
        cause: Some(main.cause),
        healthy: sure && main.cause == Cause::BottleneckReached,
        conclusive: sure && judges,
    }
}

/// What a few packets show as well as many.
const fn is_seen(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::ConnectionSetup
            | Cause::Outage
            | Cause::PathMtu
            | Cause::StoppedDelivery
            | Cause::Nagle
            | Cause::ServerThink
            | Cause::ClientThink
    )
}

/// Something broke, for a time or for good.
const fn is_fault(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::ConnectionSetup | Cause::Outage | Cause::PathMtu | Cause::StoppedDelivery
    )
}

/// How much more a fault weighs than what else took time.
const FAULT: f64 = 2.5;

/// One side's data took by far the most time.
const MUCH_LONGER: u64 = 2;
/// Packets with data that say something of limits.
const SEGMENTS_MIN: u64 = 4;
/// Windows that scaling would have let grow.
const UNSCALED_NEAR: u64 = 48 * 1024;
/// Of the time.
const MOSTLY: f64 = 0.3;
/// A window whose scale was not seen may be anything up to 2^14 times as large.
const UNKNOWN_SCALE: f64 = 0.5;
/// What a finding is worth that is no further ahead of the next one, and by how much of the time it has to be.
const NO_BETTER: f64 = 0.6;
const AHEAD: f64 = 0.3;
/// What a silence is worth of which nobody knows whether it ended.
const ONLY_SILENT: f64 = 0.45;
const LONG_SILENCE: Duration = Duration::from_s(1);
/// Findings that weigh less than this (confidence times share) are noise; chosen.
const WORTH_NAMING: f64 = 0.05;
const PROOFS_SHOWN: usize = 3;
const BEST_OVER: Duration = Duration::from_ms(20);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::model::{MS, MSS, Model, PLAIN, packets, track};

    fn judged(model: &Model) -> Passive {
        let connection = track(&packets(model));
        let found = judge(&connection).unwrap();
        let weight = weigh(&connection).unwrap();
        let side = &connection.sides[usize::from(found.sender)];
        assert_eq!(weight.lost, found.lost);
        assert_eq!(weight.carried.as_u64(), side.unique_bytes);
        found
    }

    fn long(model: Model) -> Model {
        Model {
            total_bytes: 20_000 * MSS,
            ..model
        }
    }

    fn assert_cause(model: &Model, cause: Cause) -> Passive {
        let found = judged(model);
        assert_eq!(found.verdict.cause, Some(cause), "{:#?}", found.findings);
        let all: f64 = found.shares.iter().map(|(_, share)| share).sum();
        assert!((all - 1.0).abs() < 1e-9, "{all}");
        found
    }

    #[test]
    fn a_small_window_is_the_receivers() {
        let found = assert_cause(
            &long(Model {
                window: 1 << 18,
                ..PLAIN
            }),
            Cause::ReceiveWindow,
        );
        let title = &found.findings[0].title;
        // 256 KiB each 40 ms.
        assert!(title.contains("/ 40 ms = 52."), "{title}");
        assert!(found.verdict.conclusive && !found.verdict.healthy);
        let frames = &found.findings[0].evidence[0];
        assert!(frames.starts_with("longest from frame "), "{frames}");
        assert_eq!(
            found.findings[0].remedy.as_ref().unwrap().host,
            RemedyHost::Far
        );
    }

    #[test]
    fn a_flight_that_stays_below_the_window_is_the_send_buffers() {
        let model = long(Model {
            send_buffer: 1 << 18,
            ..PLAIN
        });
        assert_cause(&model, Cause::SendBuffer);
    }

    #[test]
    fn a_standing_queue_is_a_path_that_gives_what_it_can() {
        let full = long(Model {
            bytes_per_s: 12_500_000,
            queue_bytes: 500_000,
            ..PLAIN
        });
        let found = assert_cause(&full, Cause::BottleneckReached);
        assert!(found.verdict.healthy);
        // 100 Mb/s on the wire; the model's packets are payload and headers.
        let mbps = found.goodput.as_bits_per_second() / 1_000_000;
        assert!((85..=100).contains(&mbps), "{mbps}");
    }

    #[test]
    fn losses_without_a_queue_are_losses() {
        let lost: Vec<u64> = (1..60).map(|i| i * 331).collect();
        let found = assert_cause(
            &long(Model {
                lost,
                lost_at: 0.4,
                ..PLAIN
            }),
            Cause::Loss,
        );
        assert!(found.findings[0].title.contains("59 segments sent again"));
    }

    #[test]
    fn what_was_over_in_slow_start_was_too_short() {
        let found = assert_cause(
            &Model {
                total_bytes: 200 * MSS,
                ..PLAIN
            },
            Cause::ShortTransfer,
        );
        assert!(!found.verdict.conclusive);
    }

    #[test]
    fn an_application_that_writes_now_and_then_is_told() {
        let model = Model {
            write_bytes: 20 * MSS,
            write_every: 500 * MS,
            total_bytes: 400 * MSS,
            ..PLAIN
        };
        let found = assert_cause(&model, Cause::Application);
        // What the application did not want is not lost.
        let best = found.best.unwrap().bytes_in(found.active);
        assert!(found.lost.as_u64() * 2 < best.as_u64());
    }

    #[test]
    fn a_connection_without_data_is_not_judged() {
        let mut connection = track(&packets(&PLAIN));
        for side in &mut connection.sides {
            side.unique_bytes = 0;
        }
        assert_eq!(judge(&connection), None);
        assert_eq!(weigh(&connection), None);
    }
}
