//! Connections and groups as lines of text.

use units::text::plain;
use units::{Duration, Rate};
use wire::inet_diag::state;

use crate::names::Names;
use crate::row::{self, Sort, View};
use crate::session::Session;
use crate::sums::{By, Group};
use crate::table::Connection;

/// The line above everything.
pub fn summary(session: &Session, width: usize) -> String {
    let table = session.table();
    let total = table.total();
    let (out, received) = row::rates(session, &total);
    let counts = table.counts();
    let mut limits: Vec<(&str, u64)> = Vec::new();
    for known in table.connections() {
        let name = known.moment.limit.name();
        match limits.iter_mut().find(|(n, _)| *n == name) {
            Some((_, count)) => *count += 1,
            None => limits.push((name, 1)),
        }
    }
    limits.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let limits: Vec<String> = limits
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    let mut parts = vec![
        format!("{} connections", total.open.connections),
        format!("out {}", rate(out)),
        format!("in {}", rate(received)),
        format!("closed {}", total.closed.connections),
    ];
    if counts.gaps > 0 || counts.vanished > 0 {
        parts.push(format!(
            "GAPS {} (missed ends {})",
            counts.gaps, counts.vanished
        ));
    }
    parts.push(limits.join(", "));
    cut(&parts.join("  "), width)
}

/// Names of the columns, with a mark at the one that sorts.
pub fn heading(view: &View, width: usize) -> String {
    let columns = Columns::of(width);
    let name = |sort: Sort, text: &str| match view.sort == sort {
        true => format!("{text}{}", if view.reverse { '^' } else { 'v' }),
        false => text.to_owned(),
    };
    cut(
        &columns.line(&[
            name(Sort::Process, "PROCESS"),
            name(Sort::Peer, "PEER"),
            name(
                Sort::Out,
                if view.sort == Sort::Rate {
                    "OUT*"
                } else {
                    "OUT"
                },
            ),
            name(Sort::In, if view.sort == Sort::Rate { "IN*" } else { "IN" }),
            name(Sort::Limit, "LIMITED BY"),
            name(Sort::Rtt, "RTT/MIN"),
            name(Sort::Retransmitted, "RETR"),
            name(Sort::Age, "AGE"),
        ]),
        width,
    )
}

/// A connection: process, peer, rates out and in, what limits it with a bar of its share, round trip over the smallest,
/// retransmissions, age. `~` marks shares of the whole life, `>` an age that is a least.
pub fn line(session: &Session, known: &Connection, names: &Names, width: usize) -> String {
    let moment = &known.moment;
    let process = known.process.as_ref().map_or_else(
        || format!("uid {}", known.uid),
        |p| format!("{} {}", plain(&p.name), p.pid),
    );
    let rates = match moment.lifetime {
        true => ["-".to_owned(), "-".to_owned()],
        false => [
            rate(moment.rate_out().as_bits_per_second()),
            rate(moment.rate_in().as_bits_per_second()),
        ],
    };
    let [out, received] = rates;
    let mark = if moment.lifetime { "~" } else { "" };
    let limit = match known.state {
        state::ESTABLISHED | state::CLOSE_WAIT => format!(
            "{:<10} {} {}{:.0} %",
            moment.limit.name(),
            bar(moment.share),
            mark,
            moment.share * 100.0
        ),
        other => format!("{:<10} {}", moment.limit.name(), state::name(other)),
    };
    let us = |us: u64| Duration::from_us(us).to_string();
    let rtt = match row::min_rtt_us(known) {
        Some(least) => format!("{}/{}", us(known.info.rtt_us), us(least)),
        None => "-".to_owned(),
    };
    let retransmitted = match moment.segments_sent {
        0 => "-".to_owned(),
        _ => format!("{:.2} %", moment.retransmitted_share() * 100.0),
    };
    let age = known.age(session.table().now());
    let age = format!(
        "{}{}",
        if known.was_there { ">" } else { "" },
        short_age(age)
    );
    let columns = Columns::of(width);
    let peer = plain(&names.end(known.remote)).into_owned();
    cut(
        &columns.line(&[process, peer, out, received, limit, rtt, retransmitted, age]),
        width,
    )
}

/// Names of the columns of groups.
pub fn group_heading(by: By, width: usize) -> String {
    let name = by.name().to_uppercase();
    cut(
        &group_columns(
            width,
            &[
                &name, "OPEN", "CLOSED", "OUT", "IN", "SENT", "RECEIVED", "RETR",
            ],
        ),
        width,
    )
}

/// A group of connections: how many are open and have closed, its rates, and what it carried since the start.
pub fn group_line(session: &Session, name: &str, group: &Group, width: usize) -> String {
    let (out, received) = row::rates(session, group);
    let bytes = |n: u64| units::Bytes::new(n).to_string();
    let sent = group.open.segments_sent + group.closed.segments_sent;
    let again = group.open.segments_retransmitted + group.closed.segments_retransmitted;
    let share = match sent {
        0 => "-".to_owned(),
        _ => format!("{:.2} %", again as f64 * 100.0 / sent as f64),
    };
    let name = plain(name);
    cut(
        &group_columns(
            width,
            &[
                &name,
                &group.open.connections.to_string(),
                &group.closed.connections.to_string(),
                &rate(out),
                &rate(received),
                &bytes(group.open.acked_bytes + group.closed.acked_bytes),
                &bytes(group.open.received_bytes + group.closed.received_bytes),
                &share,
            ],
        ),
        width,
    )
}

/// All lines of what a view shows; `top` rows at most.
pub fn lines(
    session: &Session,
    view: &View,
    names: &Names,
    width: usize,
    top: usize,
) -> Vec<String> {
    if let Some(by) = view.by {
        let groups = view.groups(session, by);
        let rows = groups.iter().take(top).map(|(key, group)| {
            group_line(session, &row::key_name(session, names, key), group, width)
        });
        return std::iter::once(group_heading(by, width))
            .chain(rows)
            .collect();
    }
    let rows = view.select(session, top);
    let rows = rows
        .into_iter()
        .map(|known| line(session, known, names, width));
    std::iter::once(heading(view, width)).chain(rows).collect()
}

/// Details of a connection: its ends, where its time went, buffers, windows.
pub fn details(session: &Session, known: &Connection, names: &Names) -> Vec<String> {
    let moment = &known.moment;
    let info = &known.info;
    let bytes = |n: u64| units::Bytes::new(n).to_string();
    let mut lines = vec![
        format!(
            "{} -> {}  {}  {}  cookie {}",
            names.end(known.local),
            names.end(known.remote),
            state::name(known.state),
            known.congestion.as_str(),
            known.id.cookie
        ),
        format!(
            "limited by {}: {}",
            moment.limit.name(),
            moment.limit.meaning()
        ),
    ];
    if let Some(s) = moment.shares {
        let when = if moment.lifetime {
            "since it began to send"
        } else {
            "in the last interval"
        };
        lines.push(format!(
            "time {when}: application {:.0} %  receive window {:.0} %  send buffer {:.0} %  network {:.0} %",
            s.application * 100.0,
            s.receive_window * 100.0,
            s.send_buffer * 100.0,
            s.network * 100.0
        ));
    }
    lines.push(format!(
        "windows: congestion {} ({} segments)  peer's {}  own {}  in flight {}  unsent {}  unread {}",
        bytes(info.snd_cwnd_segments.saturating_mul(info.snd_mss_bytes)),
        info.snd_cwnd_segments,
        bytes(info.snd_wnd_bytes),
        bytes(info.rcv_wnd_bytes),
        bytes(info.unacked_segments.saturating_mul(info.snd_mss_bytes)),
        bytes(info.notsent_bytes),
        bytes(u64::from(known.unread_bytes))
    ));
    if let Some(memory) = known.memory {
        lines.push(format!(
            "buffers: send {} of {}  receive {} of {}  drops {}",
            bytes(u64::from(memory.queued_bytes)),
            bytes(u64::from(memory.send_buffer_bytes)),
            bytes(u64::from(memory.receive_used_bytes)),
            bytes(u64::from(memory.receive_buffer_bytes)),
            memory.drops
        ));
    }
    lines.push(life(known));
    let place = known.cgroup.and_then(|id| session.cgroup(id));
    if let Some(place) = place {
        let container = known.cgroup.and_then(|id| session.container(id));
        let container = container.map_or_else(String::new, |c| format!("  container {c}"));
        lines.push(format!("cgroup {place}{container}"));
    }
    lines.extend(history(session, known));
    lines.iter().map(|line| plain(line).into_owned()).collect()
}

/// What a connection has done since it began.
fn life(known: &Connection) -> String {
    let info = &known.info;
    let bytes = |n: u64| units::Bytes::new(n).to_string();
    format!(
        "life: sent {}  received {}  retransmitted {} of {} segments  timeouts {}  reordering {}  MSS {}  path MTU {}",
        bytes(throughput::live::payload_acked(info)),
        bytes(info.bytes_received),
        info.total_retrans_segments,
        info.data_segs_out,
        info.total_rto,
        info.reord_seen,
        info.snd_mss_bytes,
        info.pmtu_bytes
    )
}

/// Rates of the last intervals as a row of bars, the newest right.
fn history(session: &Session, known: &Connection) -> Option<String> {
    let readings: Vec<_> = session
        .table()
        .history(known.id)
        .take(HISTORY_SHOWN + 1)
        .collect();
    let rates: Vec<f64> = readings
        .windows(2)
        .map(|pair| {
            let carried = |info: &wire::tcp_info::TcpInfo| info.bytes_acked + info.bytes_received;
            let bytes = carried(&pair[0].1).saturating_sub(carried(&pair[1].1));
            let ns = pair[0].0.saturating_since(pair[1].0).as_ns().max(1);
            bytes as f64 * 8e9 / ns as f64
        })
        .collect();
    let largest = rates.iter().copied().fold(0.0, f64::max);
    if largest <= 0.0 {
        return None;
    }
    let bars: String = rates
        .iter()
        .rev()
        .map(|rate| {
            let level = (rate / largest * 7.0).round().clamp(0.0, 7.0);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "0 to 7"
            )]
            let level = level as usize;
            BARS[level]
        })
        .collect();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate"
    )]
    let largest = largest as u64;
    Some(format!(
        "rate, last {} intervals, up to {}: {bars}",
        rates.len(),
        rate(largest)
    ))
}

/// A bar of eight places.
fn bar(share: f64) -> String {
    let eighths = (share.clamp(0.0, 1.0) * 8.0).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 to 8"
    )]
    let full = eighths as usize;
    format!("{}{}", "#".repeat(full), ".".repeat(8 - full))
}

fn rate(bits_per_second: u64) -> String {
    Rate::from_bits_per_second(bits_per_second).to_string()
}

/// An age in one or two units: 12s, 5m07s, 3h10m, 4d02h.
fn short_age(age: Duration) -> String {
    let s = age.as_ns() / 1_000_000_000;
    match s {
        0..60 => format!("{s}s"),
        60..3_600 => format!("{}m{:02}s", s / 60, s % 60),
        3_600..86_400 => format!("{}h{:02}m", s / 3_600, s / 60 % 60),
        _ => format!("{}d{:02}h", s / 86_400, s / 3_600 % 24),
    }
}

/// Widths of process and peer; others are fixed.
struct Columns {
    process: usize,
    peer: usize,
}

impl Columns {
    fn of(width: usize) -> Self {
        let rest = width.saturating_sub(FIXED_COLUMNS).clamp(24, 72);
        Self {
            process: rest * 2 / 5,
            peer: rest - rest * 2 / 5,
        }
    }

    fn line(&self, cells: &[String; 8]) -> String {
        let [process, peer, out, received, limit, rtt, retransmitted, age] = cells;
        let (a, b) = (self.process, self.peer);
        format!(
            "{:<a$} {:<b$} {out:>10} {received:>10} {limit:<26} {rtt:>17} {retransmitted:>7} {age:>7}",
            cut(process, a),
            cut(peer, b)
        )
    }
}

fn group_columns(width: usize, cells: &[&str; 8]) -> String {
    let [name, open, closed, out, received, sent, taken, again] = cells;
    let a = width.saturating_sub(72).clamp(16, 60);
    format!(
        "{:<a$} {open:>7} {closed:>9} {out:>10} {received:>10} {sent:>10} {taken:>10} {again:>8}",
        cut(name, a)
    )
}

/// The first `width` columns.
pub(crate) fn cut(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        Some((at, _)) => text[..at].to_owned(),
        None => text.trim_end().to_owned(),
    }
}

/// All but process and peer: rates, limit, round trips, retransmissions, age, blanks between.
const FIXED_COLUMNS: usize = 10 + 10 + 26 + 17 + 7 + 7 + 7;
const HISTORY_SHOWN: usize = 60;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_two_units_at_most() {
        for (s, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m00s"),
            (3_599, "59m59s"),
            (3_600, "1h00m"),
            (86_399, "23h59m"),
            (86_400, "1d00h"),
        ] {
            assert_eq!(short_age(Duration::from_s(s)), text);
        }
    }

    #[test]
    fn a_bar_is_full_at_all_of_the_time_and_empty_at_none() {
        assert_eq!(bar(0.0), "........");
        assert_eq!(bar(0.5), "####....");
        assert_eq!(bar(1.0), "########");
        assert_eq!(bar(f64::NAN.max(2.0)), "########");
    }

    #[test]
    fn a_line_is_cut_between_characters() {
        assert_eq!(cut("äöü", 2), "äö");
        assert_eq!(cut("äöü  ", 9), "äöü");
        assert_eq!(cut("äöü", 3), "äöü");
    }
}
