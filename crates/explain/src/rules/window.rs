//! The window is too small: the receiver's, or what the sender's buffer holds.
//!
//! The two are ends of one limit. With both small the smaller one limits, but jitter and jiffies
//! mix the kernel's clocks, so their shares are taken together and the larger names the cause.
//! Mending one alone moves the limit to the other: the remedy raises both when both are too small.

use throughput::shares::Shares;
use throughput::{Cause, Finding, Host, Remedy, RemedyHost, Setting};
use units::{Bytes, Rate};

use crate::case::Case;
use crate::confidence::{agreement, data, ramp, with_model};
use crate::evidence::HostConfig;
use crate::facts::Range;
use crate::remedy::{Buffer, Change, STREAMS_WITHOUT_RATE, streams_for, streams_rate};
use crate::rules::{application, clock_lines};
use crate::text;

/// A window below the path's size.
pub(crate) fn find(case: &Case<'_>) -> Option<Finding> {
    let shares = case.facts.attributed?;
    let share = shares.window();
    let main = main_buffer(case, shares);
    if share < SHARE_MIN || (main == Buffer::Receive && reader_is_slow(case)) {
        return None;
    }
    let window = effective_window(case, main);
    let model = window.and_then(|w| case.window_rate(w));
    // A window that would carry more than the path does cannot be what holds the transfer.
    if case
        .facts
        .achievable
        .zip(model)
        .is_some_and(|(path, m)| m >= path)
    {
        return None;
    }
    let fit = model.map(|m| agreement(case.facts.goodput, m));
    let confidence = data(case.facts.intervals) * ramp(share, SHARE_MIN, 0.5) * with_model(fit);
    let unscaled = (main == Buffer::Receive).then(|| unscaled(case)).flatten();
    let (title, remedy) = match unscaled {
        Some(why) => (unscaled_title(case, why), unscaled_remedy(case, why)),
        None => (title(case, main, window), buffer_remedy(case, main)),
    };
    let cause = match (main, unscaled) {
        (_, Some(Unscaled::Removed | Unscaled::Rewritten | Unscaled::Shifted)) => {
            Cause::WindowScaling
        }
        (Buffer::Send, _) => Cause::SendBuffer,
        (Buffer::Receive, _) => Cause::ReceiveWindow,
    };
    let evidence = evidence(case, main, model);
    Some(Finding {
        cause,
        title,
        confidence,
        share,
        evidence,
        remedy: Some(remedy),
    })
}

/// True when what is small about the window is not the buffer.
fn reader_is_slow(case: &Case<'_>) -> bool {
    application::reads_slowly(case) || application::never_grew(case)
}

/// Which of the two limits. The smaller window does where both clocks ran: a writer that waits for
/// its buffer while the peer's window is full is booked as send-buffer-limited, since that clock has
/// the higher priority (net/ipv4/tcp_output.c, tcp_chrono_start), though the window holds it back.
fn main_buffer(case: &Case<'_>, shares: Shares) -> Buffer {
    let both = shares.send_buffer.min(shares.receive_window) >= BOTH_MIN;
    let windows = (
        case.window(Buffer::Send),
        effective_window(case, Buffer::Receive),
    );
    let send = match windows {
        (Some(send), Some(receive)) if both => send < receive,
        _ => shares.send_buffer > shares.receive_window,
    };
    if send { Buffer::Send } else { Buffer::Receive }
}

/// Why a window stays within the 16 bits of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unscaled {
    /// The SYNs did not agree on scaling, and whether the hosts offer it is not known, or one is
    /// known not to.
    NotNegotiated,
    /// Both hosts offer it, yet it was not agreed on, or at one end only: something between them
    /// takes the option out.
    Removed,
    /// They did, yet the window never exceeds 64 KiB though the receiver has room for more: the
    /// signature of a firewall that rewrites windows (Penn State / VTTI, ESnet's case study).
    Rewritten,
    /// The shift that arrived is smaller than the one that was sent.
    Shifted,
}

fn unscaled(case: &Case<'_>) -> Option<Unscaled> {
    let window = case.facts.peer_window?;
    let sees = case.facts.sender_scaling?;
    let far = case.evidence.receiver_scaling;
    // Windows shrink where a smaller shift arrives than was announced, however large they are.
    if far.is_some_and(|f| f.agreed && sees.agreed && f.own_shift > sees.peer_shift) {
        return Some(Unscaled::Shifted);
    }
    if window.max.as_u64() > UNSCALED_MAX_BYTES {
        return None;
    }
    let offered = |host: &HostConfig| host.window_scaling == Some(true);
    let both_offer = offered(&case.evidence.sender) && offered(&case.evidence.receiver);
    match sees.agreed {
        false if both_offer || far.is_some_and(|f| f.agreed) => Some(Unscaled::Removed),
        false => Some(Unscaled::NotNegotiated),
        true => {
            let room = case.window(Buffer::Receive)?.as_u64();
            let pinned = window.max.as_u64() >= UNSCALED_MAX_BYTES / 10 * 9;
            (pinned && room >= 4 * UNSCALED_MAX_BYTES).then_some(Unscaled::Rewritten)
        }
    }
}

/// The window that limits: as advertised where the kernel told, else as the buffer allows.
fn effective_window(case: &Case<'_>, buffer: Buffer) -> Option<Bytes> {
    let seen = case.facts.peer_window.map(|w| w.median);
    match buffer {
        Buffer::Send => case.window(Buffer::Send),
        Buffer::Receive => seen.or_else(|| case.window(Buffer::Receive)),
    }
}

fn title(case: &Case<'_>, main: Buffer, window: Option<Bytes>) -> String {
    let size = window.map_or_else(String::new, |w| format!(" of {w}"));
    let (goodput, possible) = (case.facts.goodput, case.of_possible());
    format!(
        "The {}{size} limits this transfer to {goodput}{possible}",
        main.name()
    )
}

fn unscaled_title(case: &Case<'_>, why: Unscaled) -> String {
    let why = match why {
        Unscaled::NotNegotiated => "no window scaling was negotiated",
        Unscaled::Removed => {
            "something between the hosts takes the window scale option out of their SYNs"
        }
        Unscaled::Shifted => {
            let (goodput, possible) = (case.facts.goodput, case.of_possible());
            return format!(
                "Something between the hosts lowers the window scale in their SYNs, so that the \
                 receive window reads too small: {goodput}{possible}"
            );
        }
        Unscaled::Rewritten => "scaling was negotiated, yet the window arrives cut to 16 bits",
    };
    let (goodput, possible) = (case.facts.goodput, case.of_possible());
    format!("The receive window cannot exceed 64 KiB, since {why}: {goodput}{possible}")
}

fn evidence(case: &Case<'_>, main: Buffer, model: Option<Rate>) -> Vec<String> {
    let facts = case.facts;
    let mut lines = clock_lines(case);
    if let Some(Range {
        min, median, max, ..
    }) = facts.peer_window
    {
        lines.push(format!(
            "advertised window (tcpi_snd_wnd): median {median}, {min} to {max}"
        ));
    }
    for buffer in [main, main.other()] {
        lines.extend(configured_line(case, buffer));
    }
    if let Some(model) = model {
        lines.push(format!(
            "a window a round trip of {} makes {model}; measured {}",
            facts.idle_rtt, facts.goodput
        ));
    }
    if let Some(rate) = facts.wire_rate {
        let bdp = throughput::models::bdp(rate, facts.idle_rtt);
        lines.push(format!(
            "the path holds {rate} x {} = {bdp}",
            facts.idle_rtt
        ));
    }
    lines.extend(scaling_line(case));
    if facts.window_scaling == Some(false) {
        lines.push("window scaling is off (tcpi_options lacks TCPI_OPT_WSCALE)".to_owned());
    }
    lines
}

/// What the two ends' kernels hold of the option, where they differ or should not lack it.
fn scaling_line(case: &Case<'_>) -> Option<String> {
    let (sees, far) = (case.facts.sender_scaling?, case.evidence.receiver_scaling?);
    let (here, there) = (case.host_name(Host::Sender), case.host_name(Host::Receiver));
    let host = |config: &HostConfig| config.window_scaling == Some(true);
    match (sees.agreed, far.agreed) {
        (false, true) => Some(format!(
            "{there} agreed on window scaling (shift {}), {here} did not see the option",
            far.own_shift
        )),
        (true, true) if sees.peer_shift != far.own_shift => Some(format!(
            "{there} announced a shift of {} (tcpi_rcv_wscale), {} arrived at {here} \
             (tcpi_snd_wscale)",
            far.own_shift, sees.peer_shift
        )),
        (false, false) if host(&case.evidence.sender) && host(&case.evidence.receiver) => {
            Some(format!(
                "net.ipv4.tcp_window_scaling is on at {here} and at {there}: both SYNs left with \
                 the option"
            ))
        }
        _ => None,
    }
}

fn configured_line(case: &Case<'_>, buffer: Buffer) -> Option<String> {
    let host = match buffer {
        Buffer::Send => &case.evidence.sender,
        Buffer::Receive => &case.evidence.receiver,
    };
    let place = case.host_name(buffer.host());
    let window = case.window(buffer)?;
    let size = match (buffer.fixed(host), buffer.configured(host)) {
        (Some(fixed), _) => format!("the application fixed {fixed} on {place}"),
        (None, Some(sizes)) => {
            format!(
                "{} on {place} ends at {}",
                buffer.sysctl(),
                Bytes::new(sizes[2])
            )
        }
        (None, None) => return None,
    };
    let rate = case
        .window_rate(window)
        .map_or_else(String::new, |r| format!(", or {r}"));
    Some(format!("{size}: room for {window} in flight{rate}"))
}

fn buffer_remedy(case: &Case<'_>, main: Buffer) -> Remedy {
    let mut change = Change::of(case);
    change.raise(case, main);
    if other_is_too_small(case, main.other()) {
        change.raise(case, main.other());
    }
    change.add_streams_if_needed(case);
    let prediction = change.predict(case);
    let host = change
        .place(case)
        .unwrap_or_else(|| case.remedy_host(main.host()));
    let mut summary = text::list(&change.steps);
    upper_first(&mut summary);
    Remedy {
        summary,
        host,
        flags: stream_flags(case),
        cost: cost(&change, host),
        sysctl: change.sysctl,
        settings: change.settings,
        predicted: prediction.rate,
        predicted_from: prediction.rate.map(|_| prediction.formula),
    }
}

/// True when the other buffer would be the next to limit: below what the path carries, or, where
/// that is not known, blamed by the clocks already.
fn other_is_too_small(case: &Case<'_>, other: Buffer) -> bool {
    let rate = case.window(other).and_then(|w| case.window_rate(w));
    match (rate, case.facts.achievable) {
        (Some(rate), Some(wanted)) => rate < wanted,
        _ => {
            let share = case.facts.attributed.map_or(0.0, |s| match other {
                Buffer::Send => s.send_buffer,
                Buffer::Receive => s.receive_window,
            });
            share >= SHARE_MIN
        }
    }
}

fn unscaled_remedy(case: &Case<'_>, why: Unscaled) -> Remedy {
    let each = case.facts.goodput_per_stream;
    let streams = case
        .facts
        .achievable
        .map(|wanted| streams_for(wanted, each));
    let streams = streams.unwrap_or(STREAMS_WITHOUT_RATE);
    let predicted = streams_rate(streams, each, case.facts.achievable);
    let (summary, host, sysctl) = match why {
        Unscaled::NotNegotiated => (
            "Turn window scaling on at both ends and let the firewalls between them pass it",
            RemedyHost::Both,
            vec!["net.ipv4.tcp_window_scaling = 1".to_owned()],
        ),
        Unscaled::Removed | Unscaled::Shifted => (
            "Let the firewall between the hosts pass the window scale option of SYNs",
            RemedyHost::Network,
            Vec::new(),
        ),
        Unscaled::Rewritten => (
            "Turn off the firewall's TCP sequence or window checking",
            RemedyHost::Network,
            Vec::new(),
        ),
    };
    Remedy {
        summary: format!("{summary}; until then use {streams} streams"),
        host,
        sysctl,
        flags: vec![format!("--streams {streams}")],
        settings: vec![Setting::Streams(streams)],
        predicted: Some(predicted),
        predicted_from: Some(format!(
            "min({streams} streams x {each}, the path) = {predicted}"
        )),
        cost: format!("{streams} streams take {streams} shares from others on the path"),
    }
}

fn stream_flags(case: &Case<'_>) -> Vec<String> {
    let Some(wanted) = case.facts.achievable else {
        return vec![format!("--streams {STREAMS_WITHOUT_RATE}")];
    };
    let each = case.facts.goodput_per_stream;
    let streams = streams_for(wanted, each);
    let rate = streams_rate(streams, each, Some(wanted));
    vec![format!("--streams {streams}   # about {rate}")]
}

fn cost(change: &Change, host: RemedyHost) -> String {
    let largest = change.settings.iter().filter_map(|s| match s {
        Setting::Sysctl { value, .. } => value.rsplit(' ').next()?.parse().ok(),
        _ => None,
    });
    match largest.max() {
        None => "none: autotuning takes what a connection needs".to_owned(),
        Some(bytes) => {
            let ends = if host == RemedyHost::Both {
                " at each end"
            } else {
                ""
            };
            let size = Bytes::new(bytes);
            format!("up to {size} of memory a connection{ends}, taken only as it is needed")
        }
    }
}

fn upper_first(text: &mut str) {
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
}

/// A clock that ran for less is noise; chosen.
const BOTH_MIN: f64 = 0.02;

/// Below this share of the time a window limit is noise: one jiffy in 80 ms.
const SHARE_MIN: f64 = 0.05;

/// The window field without scaling (RFC 9293, section 3.1).
const UNSCALED_MAX_BYTES: u64 = 65_535;
