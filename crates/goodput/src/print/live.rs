//! What a transfer looks like while it runs: a block on a terminal, a line a second on a pipe, or a
//! JSON object a second.
//!
//! It shows what the receiver acknowledged and what this host's kernel reports of its
//! connections. The shares are the kernel's raw clocks over the last second, in steps of a jiffy;
//! what the verdict adds to them (`explain::Facts`) needs the whole transfer.

use std::collections::VecDeque;
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};

use doctor::Watcher;
use indicatif::{ProgressBar, ProgressStyle};
use measure::{Clocks, Progress, Reading};
use report::model::{self, IntervalRecord};
use throughput::Shares;
use units::text::plain;
use units::{Bytes, Duration, Rate};
use wire::tcp_info::TcpInfo;

use crate::print;
use crate::print::measure::Layout;

/// How to show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Live {
    /// A block on stderr, if that is a terminal; else nothing.
    #[default]
    Screen,
    /// Lines on stdout.
    Lines,
    /// Lines on stderr, since stdout is for the result.
    Aside,
    /// JSON objects on stdout.
    Json,
}

impl Live {
    /// What was asked for.
    fn of(layout: Layout, is_live: bool) -> Self {
        let text = layout == Layout::Text;
        match (layout, is_live) {
            (Layout::JsonLines, _) => Self::Json,
            (_, false) => Self::Screen,
            (_, true) if text && io::stdout().is_terminal() && io::stderr().is_terminal() => {
                Self::Screen
            }
            (_, true) if text => Self::Lines,
            (_, true) if io::stderr().is_terminal() => Self::Screen,
            (_, true) => Self::Aside,
        }
    }
}

/// Shows what a job reports: its notes on stderr, its transfers one after the other.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    live: Live,
    view: Option<View>,
}

impl Screen {
    /// For a result in that layout; `is_live` asks for lines where the output is no terminal, too.
    pub(crate) fn of(layout: Layout, is_live: bool) -> Self {
        Self {
            live: Live::of(layout, is_live),
            view: None,
        }
    }
}

impl Watcher for Screen {
    fn note(&mut self, text: &str) {
        print::note(text);
    }

    fn begins(&mut self, name: &str, is_probe: bool) {
        // A probe is no part of what was asked for.
        let live = if is_probe { Live::Screen } else { self.live };
        self.view = Some(View::new(live, name));
    }

    fn progress(&mut self, progress: &Progress) {
        if let Some(view) = &mut self.view {
            view.show(progress);
        }
    }

    fn ends(&mut self) {
        self.view = None;
    }
}

/// One transfer on show. Dropping it clears the screen's block.
#[derive(Debug)]
struct View {
    live: Live,
    phase: String,
    bar: ProgressBar,
    /// What was known over the last second or so, the oldest first.
    past: VecDeque<Point>,
    duration: Duration,
}

/// One progress.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    t: Duration,
    bytes: u64,
    near: Option<Reading>,
}

impl View {
    /// Shows that a connection is being made.
    fn new(live: Live, phase: &str) -> Self {
        let bar = match live {
            // Hidden by indicatif itself when stderr is not a terminal.
            Live::Screen if !print::QUIET.load(Ordering::Relaxed) => ProgressBar::new(1),
            _ => ProgressBar::hidden(),
        };
        let style = ProgressStyle::with_template("{prefix:8} [{bar:24}] {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("=> "));
        let phase = plain(phase);
        bar.set_prefix(phase.to_string());
        bar.set_message("connecting");
        ON_SCREEN.store(!bar.is_hidden(), Ordering::Relaxed);
        Self {
            live,
            phase: phase.into_owned(),
            bar,
            past: VecDeque::from([Point::default()]),
            duration: Duration::ZERO,
        }
    }

    /// Takes a progress, and shows it when it is time.
    fn show(&mut self, progress: &Progress) {
        let now = Point {
            t: progress.elapsed,
            bytes: progress.bytes.as_u64(),
            near: progress.near,
        };
        self.duration = progress.duration;
        if self.live == Live::Screen {
            self.past.push_back(now);
            // The newest that is a second old stays: the interval is never shorter.
            while self.past.len() > 2 && self.past[1].t + SECOND <= now.t {
                self.past.pop_front();
            }
            return self.draw(&now);
        }
        let due = self
            .past
            .front()
            .is_none_or(|from| from.t + SECOND <= now.t);
        if due {
            self.say(&now);
        } else {
            self.past.truncate(1);
            self.past.push_back(now);
        }
    }

    fn draw(&self, now: &Point) {
        let Some(from) = self.past.front() else {
            return;
        };
        let interval = interval(&self.phase, from, now);
        // The last column stays free, or terminals wrap.
        let width = sys::terminal::columns(io::stderr())
            .unwrap_or(80)
            .saturating_sub(1);
        let parts = parts_of(&interval, Some(self.duration));
        let message = packed(&parts, width.saturating_sub(BAR_COLUMNS), width);
        self.bar.set_length(self.duration.as_ns());
        self.bar
            .set_position(now.t.as_ns().min(self.duration.as_ns()));
        self.bar.set_message(message);
    }

    /// Says the interval up to `now`, and begins the next there.
    fn say(&mut self, now: &Point) {
        let Some(from) = self.past.front() else {
            return;
        };
        let interval = interval(&self.phase, from, now);
        self.past.clear();
        self.past.push_back(*now);
        match self.live {
            Live::Aside => print::note(line(&interval)),
            // A reader that went away, or a full disk, shows when the result is written.
            Live::Json => drop(print::print_json_line(&interval)),
            _ => drop(print::print(&format!("{}\n", line(&interval)))),
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let last = self.past.get(1).copied();
        let rest = self.past.front().zip(last);
        // What is left of a second, if it is worth a line.
        if let Some((from, last)) = rest
            && self.live != Live::Screen
            && last.t >= from.t + SHORTEST
        {
            self.say(&last);
        }
        self.bar.finish_and_clear();
        ON_SCREEN.store(false, Ordering::Relaxed);
    }
}

/// Leaves a block that will not be cleared any more, so that the prompt begins on a line of its own.
pub(crate) fn leave_screen() {
    if ON_SCREEN.swap(false, Ordering::Relaxed) {
        print::note("");
    }
}

/// What happened between two points.
fn interval(phase: &str, from: &Point, to: &Point) -> IntervalRecord {
    let rate = |bytes: u64, time: Duration| match time {
        Duration::ZERO => 0,
        time => Rate::average(Bytes::new(bytes), time).as_bits_per_second(),
    };
    let span = to.t - from.t;
    let near = to.near.unwrap_or_default();
    let sends = to.near.is_some_and(|n| n.sends);
    let receives = to.near.is_some_and(|n| !n.sends);
    let before = from.near.unwrap_or_default();
    let us = |d: Duration| d.as_ns() / 1_000;
    IntervalRecord {
        event: "interval".to_owned(),
        phase: phase.to_owned(),
        t_ns: to.t.as_ns(),
        interval_ns: span.as_ns(),
        bytes_received: to.bytes,
        goodput_bits_per_second: rate(to.bytes.saturating_sub(from.bytes), span),
        goodput_average_bits_per_second: rate(to.bytes, to.t),
        rtt_us: sends.then(|| us(near.rtt)),
        congestion_window_bytes: sends.then(|| near.congestion_window.as_u64()),
        peer_window_bytes: sends.then(|| near.peer_window.as_u64()),
        segments_retransmitted: sends
            .then(|| near.retransmitted.saturating_sub(before.retransmitted)),
        shares: sends.then(|| shares(&before, &near)).flatten(),
        receive_rtt_us: receives.then(|| us(near.receive_rtt)),
        receive_space_bytes: receives.then(|| near.receive_space.as_u64()),
    }
}

/// Where the sender's time went between two readings.
fn shares(from: &Reading, to: &Reading) -> Option<model::Shares> {
    let sample = |reading: &Reading, clocks: Clocks| throughput::Sample {
        t: reading.t,
        info: TcpInfo {
            len_bytes: WITH_CLOCKS_BYTES,
            busy_time_us: clocks.busy_us,
            rwnd_limited_us: clocks.rwnd_limited_us,
            sndbuf_limited_us: clocks.sndbuf_limited_us,
            ..TcpInfo::default()
        },
        ..throughput::Sample::default()
    };
    let samples = [
        sample(from, from.clocks.unwrap_or_default()),
        sample(to, to.clocks?),
    ];
    let found: Shares = throughput::shares(&samples)?;
    Some(model::Shares {
        application: found.application,
        receive_window: found.receive_window,
        send_buffer: found.send_buffer,
        network: found.network,
    })
}

/// An interval as a line of a log.
fn line(interval: &IntervalRecord) -> String {
    let parts = parts_of(interval, None);
    let parts: Vec<&str> = parts.iter().map(|p| p.as_str()).collect();
    format!("{:<10} {}", interval.phase, parts.join("  "))
}

/// The text of an interval, in parts.
fn parts_of(interval: &IntervalRecord, whole: Option<Duration>) -> Vec<String> {
    let mut parts = vec![rates(interval, whole)];
    parts.extend(connections(interval));
    parts.extend(Some(limits(interval)).filter(|text| !text.is_empty()));
    parts
}

/// `3.0 s of 10 s  now 941.2 Mb/s  average 938 Mb/s`.
fn rates(interval: &IntervalRecord, whole: Option<Duration>) -> String {
    let tenths = interval.t_ns / 100_000_000;
    let whole = whole.map_or_else(String::new, |d| format!(" of {d}"));
    let rate = Rate::from_bits_per_second;
    format!(
        "{:>3}.{} s{whole}  now {:<10}  average {:<10}",
        tenths / 10,
        tenths % 10,
        rate(interval.goodput_bits_per_second).to_string(),
        rate(interval.goodput_average_bits_per_second).to_string(),
    )
}

/// What this host's kernel reports: `RTT 20.3 ms  window 2.1 MB (peer's 6.3 MB)  ...`.
fn connections(i: &IntervalRecord) -> Vec<String> {
    let time = |us: u64| Duration::from_us(us).to_string();
    let bytes = |b: u64| Bytes::new(b).to_string();
    let mut parts = Vec::new();
    if let (Some(rtt), Some(window)) = (i.rtt_us, i.congestion_window_bytes) {
        let peer = i.peer_window_bytes.filter(|&b| b > 0);
        let peer = peer.map_or_else(String::new, |b| format!(" (peer's {})", bytes(b)));
        parts.push(format!("RTT {}", time(rtt)));
        parts.push(format!("window {}{peer}", bytes(window)));
        parts.push(format!(
            "retransmitted {}",
            i.segments_retransmitted.unwrap_or(0)
        ));
    }
    if let (Some(rtt), Some(space)) = (i.receive_rtt_us, i.receive_space_bytes) {
        parts.push(format!("RTT {}", time(rtt)));
        parts.push(format!("read per RTT {}", bytes(space)));
    }
    parts
}

/// Where the sender's time went: `network 96 %, receive window 4 %`.
fn limits(i: &IntervalRecord) -> String {
    let Some(shares) = &i.shares else {
        return String::new();
    };
    let mut each = [
        ("network", shares.network),
        ("receive window", shares.receive_window),
        ("send buffer", shares.send_buffer),
        ("application", shares.application),
    ];
    each.sort_by(|a, b| b.1.total_cmp(&a.1));
    let each = each.iter().filter(|(_, share)| *share >= 0.005);
    let each = each.map(|(name, share)| format!("{name} {:.0} %", share * 100.0));
    each.collect::<Vec<_>>().join(", ")
}

/// Parts in lines, as many on each as fit: `first` columns on the first line, `width` on others, below
/// the bar. What is longer than a line is cut, since a terminal would wrap it.
fn packed(parts: &[String], first: usize, width: usize) -> String {
    let mut lines = vec![String::new()];
    for part in parts.iter().filter(|p| !p.is_empty()) {
        let room = if lines.len() == 1 { first } else { width };
        let count = lines.len();
        let line = &mut lines[count - 1];
        let blank = line.trim().is_empty();
        let gap = if blank { "" } else { "  " };
        if line.chars().count() + gap.len() + part.trim_end().chars().count() <= room {
            *line += gap;
            *line += part;
        } else {
            let indented = format!("{:INDENT$}{}", "", part.trim_start());
            lines.push(indented.trim_end().chars().take(width).collect());
        }
    }
    lines.join("\n")
}

/// Columns of name and bar.
const BAR_COLUMNS: usize = 8 + 2 + 24 + 2;
/// Columns of the name.
const INDENT: usize = 9;
/// Whether a block is on the terminal: a second Ctrl-C ends the process without dropping it.
static ON_SCREEN: AtomicBool = AtomicBool::new(false);
const SECOND: Duration = Duration::from_s(1);
/// The rest of a transfer that is worth a line of its own.
const SHORTEST: Duration = Duration::from_ms(200);
/// A `tcp_info` of Linux 5.4 and later.
const WITH_CLOCKS_BYTES: usize = 232;

#[cfg(test)]
mod tests {
    use super::*;

    fn point(ms: u64, bytes: u64, near: Option<Reading>) -> Point {
        Point {
            t: Duration::from_ms(ms),
            bytes,
            near,
        }
    }

    fn sender(ms: u64, retransmitted: u64, busy_ms: u64, rwnd_ms: u64) -> Option<Reading> {
        Some(Reading {
            sends: true,
            t: Duration::from_ms(ms),
            rtt: Duration::from_us(20_300),
            congestion_window: Bytes::new(2_100_000),
            peer_window: Bytes::new(6_300_000),
            retransmitted,
            clocks: Some(Clocks {
                busy_us: busy_ms * 1_000,
                rwnd_limited_us: rwnd_ms * 1_000,
                sndbuf_limited_us: 0,
            }),
            ..Reading::default()
        })
    }

    #[test]
    fn an_interval_counts_from_its_own_beginning() {
        let from = point(1_000, 1_000_000, sender(1_000, 5, 1_000, 0));
        let to = point(2_000, 3_000_000, sender(2_000, 7, 2_000, 250));
        let i = interval("measured", &from, &to);
        assert_eq!(i.goodput_bits_per_second, 16_000_000);
        assert_eq!(i.goodput_average_bits_per_second, 12_000_000);
        assert_eq!(i.segments_retransmitted, Some(2));
        assert_eq!(i.shares.unwrap().receive_window, 0.25);
        assert_eq!(i.receive_rtt_us, None);
        let parts = parts_of(&i, Some(Duration::from_s(10)));
        assert_eq!(
            packed(&parts, 50, 80),
            "  2.0 s of 10 s  now 16 Mb/s     average 12 Mb/s   \n         RTT 20.3 ms  window 2.1 MB \
             (peer's 6.3 MB)  retransmitted 2\n         network 75 %, receive window 25 %"
        );
        let narrow = packed(&parts, 20, 40);
        assert!(narrow.starts_with('\n'), "{narrow}");
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 40),
            "{narrow}"
        );
        assert_eq!(packed(&parts, 200, 200).lines().count(), 1);
    }

    #[test]
    fn a_stall_reads_as_nothing_and_a_first_moment_divides_by_nothing() {
        let still = interval("x", &point(1_000, 9, None), &point(2_500, 9, None));
        assert_eq!(still.goodput_bits_per_second, 0);
        assert_eq!(still.shares, None);
        let start = interval("x", &Point::default(), &Point::default());
        assert_eq!(start.goodput_average_bits_per_second, 0);
    }

    #[test]
    fn a_receiver_reports_its_own_round_trip_and_no_shares() {
        let near = Some(Reading {
            receive_rtt: Duration::from_us(500),
            receive_space: Bytes::new(64_000),
            ..Reading::default()
        });
        let i = interval("x", &Point::default(), &point(1_000, 9, near));
        assert_eq!((i.rtt_us, i.receive_rtt_us), (None, Some(500)));
        assert_eq!(connections(&i), ["RTT 500 us", "read per RTT 64 kB"]);
    }

    #[test]
    fn a_line_comes_once_a_second_and_the_rest_is_kept_for_the_end() {
        let mut view = View::new(Live::Lines, "");
        let mut show = |ms: u64| {
            view.show(&Progress {
                elapsed: Duration::from_ms(ms),
                bytes: Bytes::new(ms),
                rate: Rate::default(),
                duration: Duration::from_s(2),
                near: None,
            });
            (view.past[0].t.as_ns() / 1_000_000, view.past.len())
        };
        assert_eq!(show(999), (0, 2));
        assert_eq!(show(1_000), (1_000, 1));
        assert_eq!(show(1_150), (1_000, 2));
        assert_eq!(show(1_900), (1_000, 2));
        // Not printed twice, nor drawn: nothing shorter than a fifth of a second is left.
        assert_eq!(show(2_000), (2_000, 1));
    }

    #[test]
    fn a_sending_and_a_receiving_interval_as_text() {
        let from = point(1_000, 1_000_000, sender(1_000, 5, 1_000, 0));
        let to = point(2_000, 3_000_000, sender(2_000, 7, 2_000, 250));
        let sends = interval("measured", &from, &to);
        let receives = Some(Reading {
            receive_rtt: Duration::from_us(500),
            receive_space: Bytes::new(64_000),
            ..Reading::default()
        });
        let to = point(2_000, 3_000_000, receives);
        let receives = interval("measured", &Point::default(), &to);
        let block = |interval, width: usize| {
            let parts = parts_of(interval, Some(Duration::from_s(10)));
            let text = packed(&parts, width - BAR_COLUMNS, width);
            format!("{:BAR_COLUMNS$}{text}", "measured [=====>   ]")
        };
        crate::print::golden!("live", |width| {
            [block(&sends, width), block(&receives, width)].join("\n")
        });
        let line = |interval| format!("{}\n", line(interval));
        insta::assert_snapshot!("live_lines", line(&sends) + &line(&receives));
    }
}
