//! Measurements over UDP: at a set rate, or at the highest that comes through.

use explain::{Diagnosis, Prediction};
use measure::{Config, Outcome, SampleKind, Stop};
use report::model::{RateSearch, RateTrial, UdpFacts};
use units::{Bytes, Duration, Rate};

use super::{Before, Extras, Measured, Site, evidence};
use crate::watcher::{NotesOnly, Watcher};
use fault::Failure;

impl Site {
    /// Measures once over UDP; before that finds the rate, where `extras.search` says what loss may be.
    pub(super) fn measure_udp(
        &self,
        name: &str,
        config: &Config,
        stop: &Stop,
        extras: Extras,
        watcher: &mut dyn Watcher,
    ) -> Result<Measured, Failure> {
        let before = self.before(config, extras);
        let mut config = config.clone();
        let searched = match extras.search {
            None => None,
            Some(limit) => {
                let searched = self.search(&config, &before, stop, limit, watcher)?;
                let tried = searched.trials.iter().map(|t| t.rate_bits_per_second);
                // Where nothing passed, what is lost at the lowest rate is the finding.
                let rate = searched.found_bits_per_second.or_else(|| tried.min());
                config.rate = rate.map(Rate::from_bits_per_second);
                Some(searched)
            }
        };
        let (mut transfer, certificate) =
            self.shown((name, false), &config, &before, stop, watcher)?;
        let trusted = certificate.as_ref().map(lab::Certificate::trusted);
        let facts = UdpFacts {
            search: searched,
            ..facts(&transfer.outcome)
        };
        let all = config
            .rate
            .map_or(0, Rate::as_bits_per_second)
            .saturating_mul(config.streams.into());
        expect_rate(&mut transfer.prediction, all);
        forget_tcp(&mut transfer.outcome);
        let mut diagnosis = explain::diagnose(&evidence(&transfer, before.path, trusted));
        let goodput = transfer.outcome.goodput_after_ramp();
        let said = match &facts.search {
            Some(search) => search_sentence(search, config.streams, &facts, goodput),
            None => sentence(&facts, goodput),
        };
        say_only(&mut diagnosis, said);
        Ok(Measured {
            udp: Some(facts),
            ..Measured::of(transfer, certificate, diagnosis)
        })
    }

    /// Short transfers at one rate after the other; each is said as it ends.
    fn search(
        &self,
        config: &Config,
        before: &Before,
        stop: &Stop,
        limit: f64,
        watcher: &mut dyn Watcher,
    ) -> Result<RateSearch, Failure> {
        let mut machine = explain::RateSearch::new();
        let mut trials = Vec::new();
        while let Some(rate) = machine.next_rate() {
            let config = Config {
                rate: Some(rate),
                duration: TRIAL,
                ramp: Duration::ZERO,
                ..config.clone()
            };
            let (transfer, _) = self.transfer(&config, before, stop, &mut NotesOnly(watcher))?;
            if transfer.outcome.interrupted {
                return Err(measure::MeasureError::Interrupted.into());
            }
            let trial = trial(&transfer.outcome, rate, limit);
            watcher.note(&format!("trial {}: {}", trials.len() + 1, spoken(&trial)));
            machine.on_trial(trial.passed);
            trials.push(trial);
        }
        Ok(RateSearch {
            loss_limit: limit,
            found_bits_per_second: machine.found().map(Rate::as_bits_per_second),
            trials,
        })
    }
}

fn trial(outcome: &Outcome, rate: Rate, limit: f64) -> RateTrial {
    let facts = facts(outcome);
    let asked = rate
        .as_bits_per_second()
        .saturating_mul(outcome.config.streams.into());
    let few = facts.packets <= u64::from(outcome.config.streams);
    let kept = few || as_f64(facts.sent_bits_per_second) >= KEPT * as_f64(asked);
    let within = as_f64(facts.lost) <= limit * as_f64(facts.packets);
    RateTrial {
        rate_bits_per_second: rate.as_bits_per_second(),
        sent_bits_per_second: facts.sent_bits_per_second,
        packets: facts.packets,
        lost: facts.lost,
        passed: kept && within && facts.packets > 0,
    }
}

fn spoken(trial: &RateTrial) -> String {
    let rate = Rate::from_bits_per_second(trial.rate_bits_per_second);
    let sent = Rate::from_bits_per_second(trial.sent_bits_per_second);
    let verdict = if trial.passed { "passed" } else { "failed" };
    let (lost, packets) = (trial.lost, trial.packets);
    format!("{rate} a stream: {sent} sent, {lost} of {packets} datagrams lost; {verdict}")
}

/// What became of the datagrams of a transfer of our own protocol.
fn facts(outcome: &Outcome) -> UdpFacts {
    let counts = outcome.datagrams().unwrap_or_default();
    let sent = Bytes::new(outcome.sender.bytes);
    // A sender of few datagrams is done before its time; those of its rate were still kept.
    let took = outcome.sender.duration.max(outcome.config.duration);
    UdpFacts {
        packets: counts.sent,
        lost: counts.lost,
        late: Some(counts.late),
        duplicates: Some(counts.duplicates),
        jitter_ns: counts.jitter.as_ns(),
        receiver_dropped: Some(counts.dropped),
        datagram_bytes: outcome.config.block_bytes.into(),
        sent_bits_per_second: Rate::average(sent, took).as_bits_per_second(),
        search: None,
    }
}

/// The verdict over UDP: what came and what was lost.
pub(super) fn sentence(udp: &UdpFacts, goodput: Rate) -> String {
    let (lost, packets) = (udp.lost, udp.packets);
    let place = place(lost, udp.receiver_dropped);
    match lost {
        0 => format!("All {packets} datagrams were delivered, at {goodput}"),
        _ => format!("{goodput} received over UDP; {lost} of {packets} datagrams lost, {place}"),
    }
}

/// Where losses happened, by what the receiver's kernel dropped itself.
pub(super) fn place(lost: u64, receiver_dropped: Option<u64>) -> String {
    match receiver_dropped {
        None => "on the path or for want of room in the receiver's buffer".to_owned(),
        Some(0) => "on the path".to_owned(),
        Some(n) if n >= lost => "for want of room in the receiver's buffer".to_owned(),
        // Of datagrams that its kernel had joined it counts one.
        Some(n) => format!("at least {n} of them for want of room in the receiver's buffer"),
    }
}

fn search_sentence(search: &RateSearch, streams: u16, udp: &UdpFacts, goodput: Rate) -> String {
    let limit = 100.0 * search.loss_limit;
    let after = sentence(udp, goodput);
    let Some(found) = search.found_bits_per_second else {
        return format!(
            "No rate that was tried kept its loss within {limit} %. At the lowest: {after}"
        );
    };
    let rate = Rate::from_bits_per_second(found);
    let each = match streams {
        1 => String::new(),
        n => format!(" on each of {n} streams"),
    };
    let above = |t: &&RateTrial| t.rate_bits_per_second > found;
    let next = search.trials.iter().filter(above);
    let next = next.min_by_key(|t| t.rate_bits_per_second);
    let slow = next.is_some_and(|t| as_f64(t.lost) <= search.loss_limit * as_f64(t.packets));
    let why = match slow {
        true => "; beyond it the sender does not keep the rate",
        false => "",
    };
    let held = match as_f64(udp.lost) <= search.loss_limit * as_f64(udp.packets) {
        true => "Measured at it",
        false => "The measurement at it lost more",
    };
    format!(
        "{rate}{each} is the highest rate with a loss within {limit} % ({} trials){why}. {held}: {after}",
        search.trials.len()
    )
}

/// The prediction over UDP: what was asked for, 0 for no rate.
pub(super) fn expect_rate(prediction: &mut Prediction, bits_per_second: u64) {
    let rate = Rate::from_bits_per_second(bits_per_second);
    prediction.rate = Some(rate).filter(|_| bits_per_second > 0);
    prediction.formula = "the rate that was asked for".to_owned();
}

/// There is no `tcp_info` of datagrams: readings that the rules would look into are set aside.
pub(super) fn forget_tcp(outcome: &mut Outcome) {
    for end in [&mut outcome.sender, &mut outcome.receiver] {
        for sample in &mut end.samples {
            sample.kind = SampleKind::Drained;
        }
    }
}

/// A verdict without findings.
pub(super) fn say_only(diagnosis: &mut Diagnosis, sentence: String) {
    diagnosis.findings.clear();
    diagnosis.verdict.sentence = sentence;
    diagnosis.verdict.cause = None;
    diagnosis.verdict.healthy = false;
    diagnosis.verdict.conclusive = false;
}

#[allow(clippy::cast_precision_loss, reason = "compared as shares")]
fn as_f64(n: u64) -> f64 {
    n as f64
}

/// Long enough for a queue of half a second to fill and overflow.
const TRIAL: Duration = Duration::from_s(1);
/// Share of a rate below which its sender did not keep it.
const KEPT: f64 = 0.97;
