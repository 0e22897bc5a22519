//! When QUIC carries blocks: asked for, or tried because TCP shows that it cannot, and kept only where it was faster.
//!
//! What TCP shows is either losses that hold streams whose congestion control takes them for queues (more than one packet in
//! a thousand), or buffers that hold as many streams as there may be. Then both are measured for the same time, by what
//! the destination confirms, and the choice is told with both rates. Nothing is tried twice.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::meeting::Meeting;
use crate::quic::Transport;

use super::seen::{self, Loaded, Windows};
use super::{Note, Watch};

/// Streams over QUIC: one would fill the path, and these keep several cores at files and sums.
pub(super) const STREAMS: u16 = 4;
/// How long the first link may take until it is known what carries it.
const BEGIN: Duration = Duration::from_secs(30);
/// A look at TCP is at least so long, and at least so many round trips.
const LOOK: Duration = Duration::from_secs(2);
const LOOK_ROUND_TRIPS: u32 = 20;
/// Looks in a row that must say the same, and that are measured.
const LOOKS: u32 = 2;
/// What is left to send must keep both going for so many times what a trial takes, or there is nothing to gain.
const WORTH: u32 = 4;
/// Of packets sent, those sent again, from which on losses are tried against.
pub(super) const LOSSES: f64 = 1e-3;
/// How long links may take to come again over QUIC.
const SWITCH: Duration = Duration::from_secs(12);
/// What QUIC must bring to be kept: it costs several times the CPU.
const GAIN: f64 = 1.15;

/// Waits until a first stream is there, as was asked for; whether QUIC carries it. Tells what does.
pub(super) fn has_begun(meeting: &Meeting, watch: &Watch) -> bool {
    let open = seen::wait(meeting, BEGIN, || match meeting.over_quic() {
        (_, 0) => None,
        (over_quic, _) => Some(over_quic > 0),
    });
    let note = match open {
        Some(true) => "QUIC, as was asked for: it has a congestion control of its own".to_owned(),
        Some(false) => format!("TCP in place of QUIC: {}", reason(meeting)),
        None => return false,
    };
    watch.note(Note::Chosen(note));
    open == Some(true)
}

fn reason(meeting: &Meeting) -> String {
    let here = meeting.carry_failure();
    here.unwrap_or_else(|| match meeting.may_carry() {
        true => "the side that connects got no answer over UDP".to_owned(),
        false => "no datagrams go to and fro between these sides".to_owned(),
    })
}

/// What TCP's streams were seen to do.
struct Look {
    /// Confirmed bits a second.
    rate: f64,
    /// What holds them, in words, if it is what QUIC may not be held by.
    held: Option<&'static str>,
}

/// Tries QUIC once TCP has shown that it cannot, where that was left open, and tells when QUIC that carries is given up.
pub(super) fn watch(meeting: &Meeting, watch: &Watch, load: &dyn Loaded) {
    if !meeting.may_carry() {
        return;
    }
    let is_over_quic = match meeting.wish() {
        Transport::Tcp => false,
        Transport::Quic => {
            let begun = || (meeting.over_quic().0 > 0).then_some(());
            seen::wait(meeting, BEGIN, begun).is_some()
        }
        Transport::Auto => watch_tcp(meeting, watch, load),
    };
    if is_over_quic {
        tell_end(meeting, watch);
    }
}

/// Waits until TCP carries what QUIC did, which failed again and again, and says so.
fn tell_end(meeting: &Meeting, watch: &Watch) {
    // Links that come again are none meanwhile; so one look does not tell.
    let is_gone = || matches!(meeting.over_quic(), (0, 1..));
    while !meeting.is_over() {
        let was_gone = is_gone();
        seen::wait(meeting, LOOK, || None::<()>);
        if was_gone && is_gone() {
            let why = meeting.carry_failure();
            let why = why.unwrap_or_else(|| "the side that connects gets no answer".to_owned());
            watch.note(Note::Chosen(format!(
                "TCP again: QUIC fails where it worked: {why}"
            )));
            return;
        }
    }
}

/// Watches TCP, and tries QUIC once; whether QUIC was kept.
fn watch_tcp(meeting: &Meeting, watch: &Watch, load: &dyn Loaded) -> bool {
    let mut same: Vec<Look> = Vec::new();
    while !meeting.is_over() {
        let Some(look) = look(meeting, watch, load) else {
            same.clear();
            continue;
        };
        let held = look.held;
        if held.is_none() || same.last().is_some_and(|last| last.held != held) {
            same.clear();
        }
        same.push(look);
        let (Some(why), true) = (held, same.len() >= LOOKS as usize) else {
            continue;
        };
        let rate = same.iter().map(|look| look.rate).sum::<f64>() / same.len() as f64;
        let left = watch
            .wanted_bytes
            .load(Ordering::Relaxed)
            .saturating_sub(watch.confirmed_bytes.load(Ordering::Relaxed));
        let trial = span(meeting) * LOOKS * WORTH;
        if (left as f64) * 8.0 < rate * trial.as_secs_f64() {
            // More may be wanted while the source is walked.
            same.clear();
            continue;
        }
        return attempt(meeting, watch, load, rate, why);
    }
    false
}

/// One look at TCP; `None` where streams had nothing to do, or came and went.
fn look(meeting: &Meeting, watch: &Watch, load: &dyn Loaded) -> Option<Look> {
    let (_, streams) = meeting.over_quic();
    let (again, sent) = (seen::resent(meeting), sent(meeting));
    let windows = seen::window_time(meeting);
    let rate = rate(meeting, watch, span(meeting));
    let is_same = meeting.over_quic() == (0, streams);
    if !load.is_loaded() || !is_same || streams == 0 {
        return None;
    }
    let again = seen::resent(meeting).checked_sub(again)?;
    let sent = self::sent(meeting).checked_sub(sent).filter(|n| *n > 0)?;
    Some(Look {
        rate,
        held: holds(
            again as f64 / sent as f64,
            seen::held_by_losses(meeting),
            windows,
            seen::window_time(meeting),
        ),
    })
}

/// Why TCP cannot, if it shows that.
fn holds(losses: f64, is_by_losses: bool, before: Windows, after: Windows) -> Option<&'static str> {
    match (
        losses > LOSSES && is_by_losses,
        seen::held_by_windows(before, after),
    ) {
        (true, _) => Some("losses hold TCP"),
        (false, true) => Some("buffers hold TCP"),
        (false, false) => None,
    }
}

/// Measures QUIC beside TCP's `rate`, and keeps the better; whether that is QUIC.
fn attempt(meeting: &Meeting, watch: &Watch, load: &dyn Loaded, rate: f64, why: &str) -> bool {
    load.carry(true);
    let switched = seen::wait(meeting, SWITCH, || match meeting.over_quic() {
        (over_quic, all) if over_quic * 2 > all => Some(()),
        _ => None,
    });
    if meeting.is_over() {
        return false;
    }
    if switched.is_none() {
        load.carry(false);
        watch.note(Note::Chosen(format!(
            "TCP: {why}, but QUIC was not to be had: {}",
            reason(meeting)
        )));
        return false;
    }
    // As long again to find its rate.
    let span = span(meeting);
    self::rate(meeting, watch, span);
    let quic = self::rate(meeting, watch, span * LOOKS);
    if meeting.is_over() {
        return false;
    }
    let is_better = quic > rate * GAIN;
    if !is_better {
        load.carry(false);
    }
    let (chosen, other) = match is_better {
        true => (("QUIC", quic), ("TCP", rate)),
        false => (("TCP", rate), ("QUIC", quic)),
    };
    watch.note(Note::Chosen(format!(
        "{} with {:.1} Mb/s, {} had {:.1} Mb/s: {why}",
        chosen.0,
        chosen.1 / 1e6,
        other.0,
        other.1 / 1e6
    )));
    is_better
}

fn span(meeting: &Meeting) -> Duration {
    let round_trip = meeting.round_trip().unwrap_or_default();
    LOOK.max(round_trip * LOOK_ROUND_TRIPS)
}

/// Bits a second that the destination confirms from now on, for so long or until this is over.
fn rate(meeting: &Meeting, watch: &Watch, span: Duration) -> f64 {
    let confirmed = || watch.confirmed_bytes.load(Ordering::Relaxed);
    let (before, since) = (confirmed(), Instant::now());
    seen::wait(meeting, span, || None::<()>);
    confirmed().saturating_sub(before) as f64 * 8.0 / since.elapsed().as_secs_f64()
}

/// Segments with data that were sent on all streams of blocks now open.
pub(super) fn sent(meeting: &Meeting) -> u64 {
    let all = seen::of_streams(meeting);
    all.iter().map(|info| info.data_segs_out).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_holds_tcp_and_not_quic_is_tried_against() {
        let windows = |theirs| Windows {
            busy: 900,
            theirs,
            ..Windows::default()
        };
        for (losses, by_losses, theirs, held) in [
            (0.0, false, 0, false),
            // BBR forgives losses.
            (0.01, false, 0, false),
            (0.0009, true, 0, false),
            (0.0011, true, 0, true),
            (0.0, false, 300, true),
            (0.0, true, 200, false),
        ] {
            let found = holds(losses, by_losses, Windows::default(), windows(theirs));
            assert_eq!(found.is_some(), held, "{losses} {by_losses} {theirs}");
        }
    }
}
