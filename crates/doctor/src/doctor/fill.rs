//! Finds what a path carries, picks what one host can pick, and holds the path full.

use explain::Setup;
use measure::Config;
use report::RunFolder;
use report::model::Fill;
use throughput::{BufferModel, PathKnowledge, models};
use units::{Bytes, Duration, Rate};

use super::Doctor;
use crate::session::{Extras, Found, Measured, Site};
use fault::Failure;
use job::record;

/// What is not to be picked, since it was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given {
    /// Streams.
    pub streams: Option<u16>,
    /// Whether a congestion control was named, which is the transfer's then.
    pub congestion: bool,
    /// How long data is sent.
    pub duration: Option<Duration>,
    /// Its start that does not count.
    pub ramp: Option<Duration>,
}

/// What is picked for a path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice {
    streams: u16,
    pacing: Rate,
    ramp: Duration,
    /// Payload that must be under way, with a quarter to spare.
    window: Bytes,
    /// Each stream's buffers are to be made to hold that.
    widen: bool,
}

/// What is chosen by.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Rate of TCP payload.
    payload: Rate,
    idle_rtt: Duration,
    mtu_bytes: u32,
    /// Payload that one stream's buffers let be under way, where the hosts tell.
    one: Option<Bytes>,
    /// Streams that were typed.
    asked: Option<u16>,
    /// The hosts' buffers may be made larger.
    widens: bool,
}

impl Doctor<'_> {
    /// Finds the path's rate, chooses, holds it full, and says what stood in the way.
    pub(super) fn fill(
        &mut self,
        site: &Site,
        typed: Given,
        folder: &mut RunFolder,
    ) -> Result<(), Failure> {
        let stop = &self.context.stop;
        let found = site.find_rate(&self.config, stop, Extras::default(), self.watcher)?;
        let path = PathKnowledge {
            bottleneck: Some(found.rate),
            mtu_bytes: Some(found.mtu_bytes),
            ..PathKnowledge::default()
        };
        let payload = path.achievable_of(found.rate);
        // A window that was typed is no buffer of the kernel's.
        let widens = matches!(site, Site::Lab { .. }) && self.config.send_buffer.is_none();
        let choice = choose(Known {
            payload,
            idle_rtt: found.idle_rtt,
            mtu_bytes: found.mtu_bytes,
            one: window(&found, &self.config),
            asked: typed.streams,
            widens,
        });
        let settings = match site {
            Site::Lab { lab, .. } if choice.widen => widen(lab, choice.window)?,
            _ => Vec::new(),
        };
        if !typed.congestion {
            self.config.congestion = Some(CONGESTION.to_owned());
        }
        self.config.streams = choice.streams;
        self.config.max_pacing = Some(choice.pacing);
        self.config.duration = typed.duration.unwrap_or(choice.ramp + HOLD);
        let half = Duration::from_ns(self.config.duration.as_ns() / 2);
        self.config.ramp = typed.ramp.unwrap_or_else(|| choice.ramp.min(half));
        let known = site.knowledge(self.config.direction).achievable_rate();
        let fill = Fill {
            found_bits_per_second: found.rate.as_bits_per_second(),
            found_payload_bits_per_second: payload.as_bits_per_second(),
            chosen: self.said(&found, &choice, payload),
            pacing_bits_per_second: choice.pacing.as_bits_per_second(),
            achievable_payload_bits_per_second: known.unwrap_or(payload).as_bits_per_second(),
            trains: found.trains.clone(),
            ..Fill::default()
        };
        self.run.fill = Some(fill.clone());
        let measured = self.phase(site, "filled", &settings, folder)?;
        self.judge(&measured);
        let fill = outcome(fill, &found, &measured);
        // That the ceiling holds the sender back is what it is for.
        self.findings.retain(|f| f.cause != "application");
        if let Some(verdict) = &mut self.run.verdict {
            verdict.sentence = sentence(&fill, &measured);
            verdict.healthy = fill.in_the_way.is_empty();
            if verdict.cause.as_deref() == Some("application") {
                verdict.cause = None;
            }
        }
        self.run.fill = Some(fill);
        Ok(())
    }

    /// What was chosen, a sentence each.
    fn said(&self, found: &Found, choice: &Choice, payload: Rate) -> Vec<String> {
        let Choice {
            streams, pacing, ..
        } = choice;
        let congestion = self.config.congestion.as_deref().unwrap_or("the default");
        let of = if found.host_limited { "host" } else { "path" };
        vec![
            format!(
                "The {of} carries {} on the wire, {payload} of TCP payload at an MTU of {} B",
                found.rate, found.mtu_bytes
            ),
            format!(
                "A round trip of {} wants {} under way, a quarter to spare included: {streams} stream{}{}",
                found.idle_rtt,
                choice.window,
                if *streams == 1 { "" } else { "s" },
                if choice.widen {
                    ", the hosts' buffers made to hold it"
                } else {
                    ""
                }
            ),
            format!(
                "Paced at {pacing} each, {} per mille of it, under {congestion}: no queue, no losses of our own",
                PACED_PER_MILLE
            ),
        ]
    }
}

/// Payload that one stream's buffers let be under way, where the hosts tell.
fn window(found: &Found, config: &Config) -> Option<Bytes> {
    let (sender, receiver) = found.hosts(config);
    let path = PathKnowledge::default();
    let windows = Setup {
        sender: &sender,
        receiver: &receiver,
        path: &path,
        idle_rtt: found.idle_rtt,
        streams: 1,
        buffers: BufferModel::default(),
        loss_rate: None,
    }
    .windows();
    windows.send.into_iter().chain(windows.receive).min()
}

/// Streams, pacing and ramp for a path that was found.
fn choose(given: Known) -> Choice {
    let bdp = models::bdp(given.payload, given.idle_rtt);
    let wanted = Bytes::new(bdp.as_u64() + bdp.as_u64() / 4);
    let needed = given
        .one
        .map_or(1, |one| wanted.as_u64().div_ceil(one.as_u64().max(1)));
    let needed = u16::try_from(needed.max(1)).unwrap_or(u16::MAX);
    let least = given.asked.unwrap_or(1);
    let widen = given.widens && needed > least;
    let streams = match given.asked {
        None if !widen => needed.min(STREAMS_MAX),
        _ => least,
    };
    let segment = u64::from(given.mtu_bytes.max(100) - 52);
    let doublings = (bdp.as_u64() / (INITIAL_SEGMENTS * segment * u64::from(streams)).max(1))
        .max(1)
        .ilog2();
    let rounds = u64::from(doublings) + RAMP_ROUNDS;
    Choice {
        streams,
        pacing: each(given.payload, streams),
        ramp: given.idle_rtt.saturating_mul(rounds).max(RAMP_MIN),
        window: wanted,
        widen,
    }
}

/// Each stream's part of what is paced.
fn each(payload: Rate, streams: u16) -> Rate {
    let all = payload.as_bits_per_second() / 1_000 * PACED_PER_MILLE;
    Rate::from_bits_per_second(all / u64::from(streams.max(1)))
}

/// Lets sockets of a lab's hosts grow to `window`; what was set, a line each.
fn widen(lab: &lab::Lab, window: Bytes) -> Result<Vec<String>, Failure> {
    let buffer = window.as_u64().saturating_mul(2);
    let mut lines = Vec::new();
    for host in [lab.near(), lab.far()] {
        for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
            let value = format!("4096 131072 {buffer}");
            host.set(name, &value)?;
            lines.push(format!("{}: {name} = {value}", host.name()));
        }
    }
    Ok(lines)
}

/// What was reached, and what stood in the way.
fn outcome(fill: Fill, found: &Found, measured: &Measured) -> Fill {
    let (outcome, achievable) = (&measured.outcome, fill.achievable_payload_bits_per_second);
    let goodput = outcome.goodput_after_ramp();
    let achieved = record::percent(goodput, achievable);
    let second = Duration::from_s(1);
    let mut at = outcome.config.ramp;
    let mut least = achieved;
    while at + second <= outcome.config.duration {
        let rate = outcome.receiver.rate_between(at, at + second);
        least = least.min(record::percent(rate, achievable));
        at = at + second;
    }
    let segment = u128::from(measured.diagnosis.facts.mss_bytes.max(1));
    let on_wire = u128::from(found.mtu_bytes) + 38;
    let raw = u128::from(goodput.as_bits_per_second()) * on_wire / segment;
    let mut in_the_way = Vec::new();
    if achieved < FULL_PERCENT {
        let facts = &measured.diagnosis.facts;
        if facts.retransmitted_segments > 0 {
            in_the_way.push(format!(
                "{} of {} segments were lost and sent again; at a ceiling below the path's rate these losses \
                 are not of our making",
                facts.retransmitted_segments, facts.sent_segments
            ));
        }
        if let Some(shares) = facts.attributed {
            for (share, what) in [
                (shares.application, "the sending program"),
                (shares.receive_window, "the receiver's window"),
                (shares.send_buffer, "the send buffer"),
            ] {
                if share >= 0.005 {
                    in_the_way.push(format!(
                        "{what} held the sender back for {:.1} % of the time",
                        100.0 * share
                    ));
                }
            }
        }
        if least < achieved - 2.0 {
            in_the_way.push(format!(
                "It was not steady: {least:.1} % in the slowest second"
            ));
        }
        if found.host_limited {
            in_the_way.push("This host could not send datagrams faster than it did".to_owned());
        }
        if in_the_way.is_empty() {
            let all = fill.pacing_bits_per_second * u64::from(outcome.config.streams);
            let ceiling = Rate::from_bits_per_second(all);
            in_the_way.push(format!(
                "Only the ceiling, which is {:.1} % of achievable",
                record::percent(ceiling, achievable)
            ));
        }
    }
    Fill {
        achieved_percent: achieved,
        achieved_least_second_percent: least,
        raw_bits_per_second: u64::try_from(raw).unwrap_or(u64::MAX),
        in_the_way,
        ..fill
    }
}

fn sentence(fill: &Fill, measured: &Measured) -> String {
    let config = &measured.outcome.config;
    let held = config.duration - config.ramp;
    let rate = Rate::from_bits_per_second;
    let mut text = format!(
        "Held at {:.2} % of achievable for {held}: {} of {} payload, {} on the wire",
        fill.achieved_percent,
        measured.outcome.goodput_after_ramp(),
        rate(fill.achievable_payload_bits_per_second),
        rate(fill.raw_bits_per_second)
    );
    for way in &fill.in_the_way {
        text.push_str(". ");
        text.push_str(way);
    }
    text
}

/// It has no early end of slow start and no dip of its own: paced below the path's rate it loses nothing
/// and stays where its window is no limit.
const CONGESTION: &str = "reno";
/// Of the payload found: the trains' own error stays below the rest.
const PACED_PER_MILLE: u64 = 997;
/// How long the path is held where nothing else was asked for.
const HOLD: Duration = Duration::from_s(60);
/// Round trips beyond the doublings of slow start: the receiver's window follows later.
const RAMP_ROUNDS: u64 = 16;
const RAMP_MIN: Duration = Duration::from_s(2);
/// Initial window (RFC 6928).
const INITIAL_SEGMENTS: u64 = 10;
/// More streams than this are no way to fill a path.
const STREAMS_MAX: u16 = 64;
/// Nothing is said to stand in the way above.
const FULL_PERCENT: f64 = 99.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_share_what_is_paced() {
        let payload = Rate::from_bits_per_second(919_441_000);
        assert_eq!(each(payload, 1).as_bits_per_second(), 916_682_677);
        assert_eq!(each(payload, 4).as_bits_per_second(), 229_170_669);
        // Nothing is divided by none.
        assert_eq!(each(payload, 0), each(payload, 1));
    }
    #[test]
    fn a_labs_buffers_are_widened_and_a_host_gets_streams() {
        // 918 Mb/s and 522 ms: 59.9 MB, a quarter more is 74.9 MB.
        let given = |one: u64, asked, widens| {
            choose(Known {
                payload: Rate::from_bits_per_second(918_000_000),
                idle_rtt: Duration::from_ms(522),
                mtu_bytes: 9_000,
                one: Some(Bytes::new(one)),
                asked,
                widens,
            })
        };
        let ample = given(80_000_000, None, true);
        assert_eq!((ample.streams, ample.widen), (1, false));
        let chosen = |one, asked, widens| {
            let choice = given(one, asked, widens);
            (choice.streams, choice.widen)
        };
        assert_eq!(chosen(3_000_000, None, false), (25, false));
        assert_eq!(chosen(3_000_000, None, true), (1, true));
        // What was typed goes first.
        for (n, widen) in [(1, true), (4, true), (24, true), (25, false), (32, false)] {
            assert_eq!(chosen(3_000_000, Some(n), true), (n, widen));
            assert_eq!(chosen(3_000_000, Some(n), false), (n, false));
        }
        // 64 streams are six doublings ahead of the one that a lab's wide buffers carry.
        let (host, lab) = (given(64_000, None, false), given(64_000, None, true));
        assert_eq!((host.streams, lab.streams), (64, 1));
        assert_eq!(lab.ramp, ample.ramp);
        assert_eq!(lab.ramp - host.ramp, Duration::from_ms(6 * 522));
        assert_eq!(lab.pacing, ample.pacing);
        assert_eq!(
            host.pacing.as_bits_per_second(),
            lab.pacing.as_bits_per_second() / 64
        );
    }
}
