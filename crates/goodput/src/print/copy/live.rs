//! The progress of a copy: a line on a terminal, a line a second, or a JSON object a second.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::copy::engine::Watch;
use ::copy::task::progress::{Progress, largest};
use ::copy::task::told::{average, bytes};
use ::copy::task::{NoteKind, Observer};
use indicatif::{ProgressBar, ProgressStyle};
use report::model::{CopyConnection, CopyInterval, CopyNote, CopyQuic};
use serde::Serialize;
use units::Rate;

use crate::args::copy::CopyFormat;
use crate::print;
use report::shown::Shown;

/// How often there is a line where they do not replace each other.
const SECOND: Duration = Duration::from_secs(1);
/// What is left of a second at the end, if it is worth a line.
const SHORTEST: Duration = Duration::from_millis(200);
/// Connections that a terminal shows one by one.
const LINES_MAX: usize = 32;
/// How to show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// A line on stderr, if that is a terminal.
    Screen,
    /// Lines on stdout.
    Lines,
    /// Lines on stderr, since stdout is for the result.
    Aside,
    /// JSON objects on stdout.
    Events,
}

impl Manner {
    fn of(show: &Show) -> Self {
        let is_text = show.format == CopyFormat::Text;
        let is_terminal = io::stderr().is_terminal();
        match (show.format, show.is_live) {
            (CopyFormat::Jsonl, _) => Self::Events,
            (_, false) => Self::Screen,
            (_, true) if is_terminal && (!is_text || io::stdout().is_terminal()) => Self::Screen,
            (_, true) if is_text => Self::Lines,
            (_, true) => Self::Aside,
        }
    }
}

/// What is shown of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Show {
    /// What is printed.
    pub(crate) format: CopyFormat,
    /// A line a second, also where the output is no terminal.
    pub(crate) is_live: bool,
    /// Also a line for each connection.
    pub(crate) per_stream: bool,
}

/// Shows a copy, once it has begun.
pub(crate) struct Live {
    show: Show,
    shown: Shown,
    view: Option<View>,
}

impl Live {
    pub(crate) fn new(show: Show, shown: Shown) -> Self {
        Self {
            show,
            shown,
            view: None,
        }
    }
}

impl Observer for Live {
    fn begin(&mut self, begun: Instant) {
        self.view = Some(View::new(&self.show, self.shown.clone(), begun));
    }

    fn note(&mut self, kind: NoteKind, text: &str, t_ns: u64) {
        if let Some(view) = &self.view {
            view.note(kind, text, t_ns);
        }
    }

    fn look(&mut self, watch: &Watch, confirmed: u64, progress: &mut Progress) {
        if let Some(view) = &mut self.view {
            view.look(watch, confirmed, progress);
        }
    }

    fn end(&mut self, watch: &Watch, confirmed: u64, progress: &mut Progress) {
        if let Some(view) = self.view.take() {
            view.end(watch, confirmed, progress);
        }
    }
}

/// A copy on show.
struct View {
    manner: Manner,
    /// Notes are printed as they come, or with the result only.
    prints_notes: bool,
    shown: Shown,
    per_stream: bool,
    bar: ProgressBar,
    begun: Instant,
    /// What had arrived when, over about a second.
    seen: VecDeque<(Instant, u64)>,
    /// When an interval was printed last, and what had arrived then.
    said: (Instant, u64),
    /// Lines of connections, as they were printed last.
    lines: String,
}

impl View {
    fn new(show: &Show, shown: Shown, begun: Instant) -> Self {
        let manner = Manner::of(show);
        let bar = match manner {
            // Hidden by indicatif itself when stderr is not a terminal.
            Manner::Screen if !print::QUIET.load(Ordering::Relaxed) => ProgressBar::new_spinner(),
            _ => ProgressBar::hidden(),
        };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        let now = Instant::now();
        Self {
            manner,
            prints_notes: show.format == CopyFormat::Text,
            shown,
            per_stream: show.per_stream,
            bar,
            begun,
            seen: VecDeque::from([(now, 0)]),
            said: (now, 0),
            lines: String::new(),
        }
    }

    fn note(&self, kind: NoteKind, text: &str, t_ns: u64) {
        if self.manner == Manner::Events {
            let kind = match kind {
                NoteKind::Limit => "limit",
                NoteKind::Chosen => "chosen",
                NoteKind::Skipped => "skipped",
            };
            event(&CopyNote {
                event: "note".to_owned(),
                t_ns,
                kind: kind.to_owned(),
                text: text.to_owned(),
            });
        } else if kind == NoteKind::Limit || (self.prints_notes && self.shown.is_new(text)) {
            self.bar.suspend(|| print::note(text));
        }
    }

    /// What is known now.
    fn look(&mut self, watch: &Watch, confirmed: u64, progress: &mut Progress) {
        let now = Instant::now();
        self.seen.push_back((now, confirmed));
        if self.seen.len() > 11 {
            self.seen.pop_front();
        }
        if now - self.said.0 >= SECOND {
            self.say(watch, now, confirmed, progress);
        }
        if self.manner == Manner::Screen {
            let (then, before) = self.seen[0];
            let rate = average(confirmed.saturating_sub(before), then.elapsed());
            let line = line(&counted(watch, confirmed, rate), rate);
            self.bar.set_message(format!("{line}{}", self.lines));
            self.bar.tick();
        }
    }

    /// Prints what happened since the last time.
    fn say(&mut self, watch: &Watch, now: Instant, confirmed: u64, progress: &mut Progress) {
        let (then, before) = self.said;
        let took = now - then;
        self.said = (now, confirmed);
        let rate = average(confirmed.saturating_sub(before), took);
        let begun = self.begun;
        let (connections, quic) = progress.interval();
        let interval = CopyInterval {
            t_ns: nanoseconds(now - begun),
            interval_ns: nanoseconds(took),
            goodput_average_bits_per_second: average(confirmed, now - begun).as_bits_per_second(),
            connections,
            quic,
            ..counted(watch, confirmed, rate)
        };
        if self.manner == Manner::Events {
            return event(&interval);
        }
        self.lines.clear();
        if self.per_stream {
            // The last column stays free, or terminals wrap.
            let width = sys::terminal::columns(io::stderr()).map(|n| n.saturating_sub(1));
            self.lines = per_stream(&interval, width.unwrap_or(usize::MAX));
        }
        let seconds = interval.t_ns as f64 / 1e9;
        let line = format!("{seconds:>5.1} s  {}{}", line(&interval, rate), self.lines);
        match self.manner {
            // A reader that went away, or a full disk, shows when the result is written.
            Manner::Lines => drop(print::print(&format!("{line}\n"))),
            Manner::Aside => print::note(line),
            Manner::Screen | Manner::Events => {}
        }
    }

    fn end(mut self, watch: &Watch, confirmed: u64, progress: &mut Progress) {
        self.bar.finish_and_clear();
        let now = Instant::now();
        let is_new = confirmed > self.said.1 || now - self.said.0 >= SHORTEST;
        if is_new && self.manner != Manner::Screen {
            self.say(watch, now, confirmed, progress);
        }
    }
}

/// A JSON object as a line on stdout.
fn event(object: &impl Serialize) {
    // A reader that went away, or a full disk, shows when the result is written.
    drop(print::print_json_line(object));
}

/// The counters, without times.
fn counted(watch: &Watch, confirmed: u64, rate: Rate) -> CopyInterval {
    let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let wanted = now(&watch.wanted_bytes).max(confirmed);
    let is_walked = watch.is_walked.load(Ordering::Relaxed);
    let bits = rate.as_bits_per_second();
    let left = u128::from(wanted - confirmed) * 8_000_000_000 / u128::from(bits.max(1));
    CopyInterval {
        event: "interval".to_owned(),
        confirmed_bytes: confirmed,
        wanted_bytes: wanted,
        names: now(&watch.names),
        is_walked,
        placed: now(&watch.placed),
        goodput_bits_per_second: bits,
        left_ns: (is_walked && bits > 0).then(|| u64::try_from(left).unwrap_or(u64::MAX)),
        streams: now(&watch.streams),
        ..CopyInterval::default()
    }
}

/// The progress as text.
fn line(now: &CopyInterval, rate: Rate) -> String {
    let ahead = match (now.left_ns, now.is_walked, now.wanted_bytes) {
        (Some(ns), ..) => format!(", {} s left", ns / 1_000_000_000),
        (None, false, 1..) => ", still listing files".to_owned(),
        (None, ..) => String::new(),
    };
    format!(
        "{} of {} arrived, {} files, {rate} over {} connections{ahead}",
        bytes(now.confirmed_bytes),
        bytes(now.wanted_bytes),
        now.placed,
        now.streams,
    )
}

/// A line for each connection, each after a line feed and cut at `width` columns.
fn per_stream(interval: &CopyInterval, width: usize) -> String {
    let over_quic = interval.quic.iter().map(quic_line);
    let lines = interval.connections.iter().map(stream_line);
    let mut text = String::new();
    for line in lines.chain(over_quic).take(LINES_MAX) {
        let line: String = line.chars().take(width).collect();
        text += &format!("\n{}", line.trim_end());
    }
    let all = interval.connections.len() + interval.quic.len();
    let more = all.saturating_sub(LINES_MAX);
    if more > 0 {
        let plural = if more == 1 { "" } else { "s" };
        text += &format!("\n  {more} more connection{plural}");
    }
    text
}

/// How one connection is.
fn stream_line(connection: &CopyConnection) -> String {
    let rate = Rate::from_bits_per_second(connection.acked_bits_per_second).to_string();
    let round_trip = units::Duration::from_ns(connection.rtt_ns).to_string();
    let window = units::Bytes::new(connection.congestion_window_bytes).to_string();
    let limit = match &connection.shares {
        None => String::new(),
        Some(shares) => {
            let (name, share) = largest(shares);
            format!("  {name} {:.0} %", share * 100.0)
        }
    };
    format!(
        "  stream {:>3}  {rate:<10}  RTT {round_trip:<9}  window {window:<8}  retr {:<4}{limit}",
        connection.stream, connection.retransmitted_segments
    )
}

/// How one connection over QUIC is.
fn quic_line(connection: &CopyQuic) -> String {
    let rate = Rate::from_bits_per_second(connection.sent_bits_per_second).to_string();
    let round_trip = units::Duration::from_ns(connection.rtt_ns).to_string();
    let window = units::Bytes::new(connection.congestion_window_bytes).to_string();
    format!(
        "  stream {:>3}  {rate:<10}  RTT {round_trip:<9}  window {window:<8}  lost {} of {} packets, QUIC",
        connection.stream, connection.packets_lost, connection.packets_sent
    )
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use report::model::Shares;

    use super::*;

    #[test]
    fn a_connection_over_quic_has_a_line() {
        let line = quic_line(&CopyQuic {
            stream: 3,
            sent_bits_per_second: 6_000_000,
            packets_sent: 300,
            packets_lost: 30,
            ..CopyQuic::default()
        });
        assert!(line.contains("stream   3  6 Mb/s"), "{line}");
        assert!(line.ends_with("lost 30 of 300 packets, QUIC"), "{line}");
    }

    #[test]
    fn the_time_left_is_shown_once_all_names_are_known() {
        let watch = Watch::default();
        watch.wanted_bytes.store(3_000_000, Ordering::Relaxed);
        let rate = Rate::from_bits_per_second(8_000_000);
        let looking = counted(&watch, 1_000_000, rate);
        assert_eq!(looking.left_ns, None);
        assert!(line(&looking, rate).ends_with("still listing files"));
        watch.is_walked.store(true, Ordering::Relaxed);
        let walked = counted(&watch, 1_000_000, rate);
        assert_eq!(walked.left_ns, Some(2_000_000_000));
        assert_eq!(
            line(&walked, rate),
            "1.00 MB of 3.00 MB arrived, 0 files, 8 Mb/s over 0 connections, 2 s left"
        );
        assert_eq!(counted(&watch, 9_000_000, Rate::default()).left_ns, None);
    }

    #[test]
    fn the_progress_of_each_connection_as_text() {
        let connection = |stream, acked_bits_per_second, shares| CopyConnection {
            stream,
            acked_bits_per_second,
            retransmitted_segments: 12 * stream,
            rtt_ns: 85_020_000,
            congestion_window_bytes: 2_104_000,
            shares,
            ..CopyConnection::default()
        };
        let limited = Shares {
            network: 0.31,
            receive_window: 0.69,
            ..Shares::default()
        };
        let many = (3..=LINES_MAX as u64).map(|stream| connection(stream, 1_000_000, None));
        let interval = CopyInterval {
            connections: [
                connection(0, 941_400_000, Some(limited)),
                connection(1, 3_596_000, None),
            ]
            .into_iter()
            .chain(many)
            .collect(),
            quic: vec![CopyQuic {
                stream: 2,
                sent_bits_per_second: 612_000_000,
                rtt_ns: 85_020_000,
                congestion_window_bytes: 812_000,
                packets_sent: 48_120,
                packets_lost: 30,
                ..CopyQuic::default()
            }],
            ..CopyInterval::default()
        };
        let few = CopyInterval {
            connections: interval.connections[..2].to_vec(),
            ..interval.clone()
        };
        crate::print::golden!("copy_live", |width| per_stream(&few, width));
        let all = per_stream(&interval, 120);
        assert!(all.ends_with("\n  1 more connection"), "{all}");
    }
}
