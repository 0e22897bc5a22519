//! Every connection and its course as tables in the run folder: `connections.parquet` and
//! `intervals.parquet`.
//!
//! The page and `run.json` keep the connections that lost most; these hold all, also those without data,
//! and are written while packets are read, so that memory stays bounded. Rows come in the order in which
//! connections end, which depends on the number of threads; each group of rows is put in the order of
//! frames, so a capture of up to [`GROUP`] connections gives the same file with any number.
//!
//! Left out: the direction that carried less, but for its sums; what a lab's log says of losses.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use explain::passive::{self, Passive, Waited};
use explain::trace::{Connection, Counted, Limit, SideFacts, Slice, Slices, Spread, Start};
use table::{Column, GROUP_ROWS, Kind, Table, Value};
use units::{Duration, Instant, Rate};

use crate::names::{address, captured, ended};
use fault::Failure;

/// The tables of a run, which threads share.
#[derive(Clone, Debug)]
pub(crate) struct Tables(Arc<Mutex<Open>>);

#[derive(Debug)]
struct Open {
    files: [PathBuf; 2],
    /// `None` after a failure or the end.
    tables: Option<[Table<BufWriter<File>>; 2]>,
    failed: Option<io::Error>,
}

/// Rows that were written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) connections: u64,
    pub(crate) intervals: u64,
}

impl Tables {
    /// Begins both tables in a run folder.
    pub(crate) fn create(folder: &Path) -> Result<Self, Failure> {
        let files = [CONNECTIONS_FILE, INTERVALS_FILE].map(|name| folder.join(name));
        let begun = || {
            let [first, second] = &files;
            let connections = begin(first, "connections", &columns(CONNECTIONS), GROUP)?;
            let intervals = begin(second, "intervals", &columns(INTERVALS), GROUP_ROWS)?;
            Ok([connections, intervals])
        };
        let tables = begun().map_err(|e| unwritable(folder, &e))?;
        Ok(Self(Arc::new(Mutex::new(Open {
            files,
            tables: Some(tables),
            failed: None,
        }))))
    }

    /// Adds a connection of capture `file`. What goes wrong is told at the end.
    pub(crate) fn take(&self, file: u32, connection: &Connection) {
        let passive = passive::judge(connection);
        let seen = Seen::new(file, connection, passive.as_ref());
        let mut open = self.open();
        let Some([connections, intervals]) = &mut open.tables else {
            return;
        };
        let mut write = || {
            connections.push(CONNECTIONS.iter().map(|(_, value)| value(&seen)))?;
            for part in parts(&seen) {
                intervals.push(INTERVALS.iter().map(|(_, value)| value(&part)))?;
            }
            Ok(())
        };
        if let Err(error) = write() {
            open.tables = None;
            open.failed = Some(error);
        }
    }

    /// Writes the end of both.
    pub(crate) fn finish(&self) -> Result<Written, Failure> {
        let mut open = self.open();
        let place = open.files[0].clone();
        let folder = place.parent().unwrap_or(&place).to_owned();
        if let Some(error) = open.failed.take() {
            return Err(unwritable(&folder, &error));
        }
        let Some([connections, intervals]) = open.tables.take() else {
            return Ok(Written::default());
        };
        let done = || {
            Ok(Written {
                connections: connections.finish()?,
                intervals: intervals.finish()?,
            })
        };
        done().map_err(|e| unwritable(&folder, &e))
    }

    /// Gives both up.
    pub(crate) fn discard(&self) {
        let mut open = self.open();
        open.tables = None;
        for file in &open.files {
            // What cannot be removed stays: nobody is left to tell.
            let _ = fs::remove_file(file);
        }
    }

    /// A panic while it was locked ends the command anyway.
    fn open(&self) -> std::sync::MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn begin(
    file: &Path,
    name: &str,
    columns: &[Column],
    rows: usize,
) -> io::Result<Table<BufWriter<File>>> {
    let out = BufWriter::new(File::create_new(file)?);
    let made_by = concat!("goodput ", env!("CARGO_PKG_VERSION"));
    let table = Table::new(out, name, made_by, columns, rows)?;
    Ok(table.ordered_by(&["file", "first_frame", "since_ns"]))
}

fn unwritable(folder: &Path, error: &io::Error) -> Failure {
    let folder = folder.display();
    Failure::here(format!("cannot write the tables in {folder}: {error}"))
}

/// A connection and the direction that its row is of.
struct Seen<'a> {
    file: u32,
    connection: &'a Connection,
    passive: Option<&'a Passive>,
    sender: usize,
    side: &'a SideFacts,
    peer: &'a SideFacts,
    addresses: [String; 2],
}

impl<'a> Seen<'a> {
    /// Of the side that carried more; without data, of the one that sent the SYN.
    fn new(file: u32, connection: &'a Connection, passive: Option<&'a Passive>) -> Self {
        let sender = match (passive, connection.start) {
            (Some(passive), _) => passive.sender,
            (None, Start::Syn { by }) => by,
            (None, Start::Midway) => 0,
        };
        let sender = usize::from(sender.min(1));
        Self {
            file,
            connection,
            passive,
            sender,
            side: &connection.sides[sender],
            peer: &connection.sides[1 - sender],
            addresses: connection.flow.addresses.map(address),
        }
    }

    fn address(&self, side: usize) -> Value<'_> {
        Value::Text(&self.addresses[side])
    }

    fn lasts(&self) -> Duration {
        let c = self.connection;
        c.last.time.saturating_since(c.first.time)
    }

    /// Share of the time that counts; nothing where none does.
    fn share(&self, limit: Limit) -> Value<'static> {
        self.waited(Waited::Limit(limit))
    }

    /// Share of the connection's time that was waited for this; nothing where none counts.
    fn waited(&self, waited: Waited) -> Value<'static> {
        let Some(passive) = self.passive else {
            return Value::Nothing;
        };
        let own = passive.shares.iter().find(|(w, _)| *w == waited);
        Value::Real(own.map_or(0.0, |(_, share)| *share))
    }

    fn again(&self, of: fn(&explain::trace::Retransmissions) -> Counted) -> Value<'static> {
        Value::whole(of(&self.side.retransmissions).segments)
    }
}

/// One slice of a connection's time.
struct Part<'a> {
    of: &'a Seen<'a>,
    slice: &'a Slice,
    begins: Instant,
    /// Up to the connection's end.
    width: Duration,
}

impl Part<'_> {
    /// Nothing where the slice is an instant, at the connection's end.
    fn rate(&self, bytes: u64) -> Value<'static> {
        match self.width {
            Duration::ZERO => Value::Nothing,
            width => {
                Value::whole(Rate::average(units::Bytes::new(bytes), width).as_bits_per_second())
            }
        }
    }

    fn limit(&self) -> Option<(Limit, Duration)> {
        let times = Limit::ALL.map(|limit| (limit, self.slice.time(limit)));
        let longest = times.into_iter().max_by_key(|(_, time)| *time);
        longest.filter(|(_, time)| *time > Duration::ZERO)
    }
}

fn parts<'a>(of: &'a Seen<'a>) -> impl Iterator<Item = Part<'a>> {
    let slices = of.side.slices.iter();
    slices.flat_map(move |slices: &Slices| {
        let last = of.connection.last.time;
        slices.list.iter().enumerate().map(move |(n, slice)| {
            let begins = slices.start + slices.width.saturating_mul(n as u64);
            Part {
                of,
                slice,
                begins,
                width: slices.width.min(last.saturating_since(begins)),
            }
        })
    })
}

/// A column, and what a connection has there.
type OfConnection = (Column, for<'v, 'a> fn(&'v Seen<'a>) -> Value<'v>);

/// A column, and what a slice has there.
type OfPart = (Column, for<'v, 'a> fn(&'v Part<'a>) -> Value<'v>);

fn columns<F>(rows: &[(Column, F)]) -> Vec<Column> {
    rows.iter().map(|(column, _)| *column).collect()
}

const fn integer(name: &'static str) -> Column {
    Column::new(name, Kind::Integer)
}

const fn text(name: &'static str) -> Column {
    Column::new(name, Kind::Text)
}

const fn share(name: &'static str) -> Column {
    Column::new(name, Kind::Real).optional()
}

fn ns(time: Duration) -> Value<'static> {
    Value::whole(time.as_ns())
}

fn time(at: Instant) -> Value<'static> {
    Value::whole(at.as_ns())
}

fn known<'a, T>(value: Option<T>, of: impl Fn(T) -> Value<'a>) -> Value<'a> {
    value.map_or(Value::Nothing, of)
}

fn spread(spread: &Spread, of: fn(&Spread) -> u64) -> Value<'static> {
    match spread.count {
        0 => Value::Nothing,
        _ => Value::whole(of(spread)),
    }
}

/// In this order; docs/run-folder.md says what they mean.
const CONNECTIONS: &[OfConnection] = &[
    (integer("file"), |s| Value::whole(s.file)),
    (integer("first_frame").rising(), |s| {
        Value::whole(s.connection.first.frame)
    }),
    (integer("last_frame"), |s| {
        Value::whole(s.connection.last.frame)
    }),
    (integer("interface"), |s| {
        Value::whole(s.connection.interface)
    }),
    (Column::new("begins_utc", Kind::Time).rising(), |s| {
        time(s.connection.first.time)
    }),
    (integer("lasts_ns"), |s| ns(s.lasts())),
    (text("begun"), |s| {
        Value::Text(match s.connection.start {
            Start::Syn { .. } => "syn",
            Start::Midway => "midway",
        })
    }),
    (text("ended"), |s| Value::Text(ended(s.connection.end))),
    (text("sender_address"), |s| s.address(s.sender)),
    (integer("sender_port"), |s| {
        Value::whole(s.connection.flow.ports[s.sender])
    }),
    (text("receiver_address"), |s| s.address(1 - s.sender)),
    (integer("receiver_port"), |s| {
        Value::whole(s.connection.flow.ports[1 - s.sender])
    }),
    (integer("payload_bytes"), |s| {
        Value::whole(s.side.unique_bytes)
    }),
    (integer("reverse_payload_bytes"), |s| {
        Value::whole(s.peer.unique_bytes)
    }),
    (integer("packets"), |s| Value::whole(s.side.packets)),
    (integer("reverse_packets"), |s| Value::whole(s.peer.packets)),
    (integer("data_packets"), |s| {
        Value::whole(s.side.data_segments)
    }),
    (integer("super_packets"), |s| {
        Value::whole(s.side.super_packets)
    }),
    (integer("wire_segments"), |s| {
        Value::whole(s.side.wire_segments)
    }),
    (integer("active_ns").optional(), |s| {
        known(s.passive, |p| ns(p.active))
    }),
    (integer("goodput_bits_per_second").optional(), |s| {
        known(s.passive, |p| Value::whole(p.goodput.as_bits_per_second()))
    }),
    (integer("best_bits_per_second").optional(), |s| {
        known(s.passive.and_then(|p| p.best), |r| {
            Value::whole(r.as_bits_per_second())
        })
    }),
    (integer("lost_bytes").optional(), |s| {
        known(s.passive, |p| Value::whole(p.lost.as_u64()))
    }),
    (text("cause").optional(), |s| {
        known(s.passive.and_then(|p| p.verdict.cause), |c| {
            Value::Text(c.name())
        })
    }),
    (Column::new("confidence", Kind::Real).optional(), |s| {
        known(s.passive.and_then(|p| p.findings.first()), |f| {
            Value::Real(f.confidence)
        })
    }),
    (integer("handshake_ns").optional(), |s| {
        let c = s.connection;
        known(
            c.handshake_to_server.zip(c.handshake_to_client),
            |(there, back)| ns(there + back),
        )
    }),
    (integer("rtt_min_ns").optional(), |s| {
        known(s.side.rtt_ahead, |ahead| {
            ns(ahead + s.side.rtt_behind.unwrap_or_default())
        })
    }),
    (integer("rtt_ack_samples"), |s| {
        Value::whole(s.peer.rtt_ack_ns.count)
    }),
    (integer("rtt_ack_min_ns").optional(), |s| {
        spread(&s.peer.rtt_ack_ns, |r| r.min)
    }),
    (integer("rtt_ack_median_ns").optional(), |s| {
        spread(&s.peer.rtt_ack_ns, |r| r.median)
    }),
    (integer("rtt_ack_mean_ns").optional(), |s| {
        spread(&s.peer.rtt_ack_ns, |r| r.mean)
    }),
    (integer("rtt_ack_max_ns").optional(), |s| {
        spread(&s.peer.rtt_ack_ns, |r| r.max)
    }),
    (integer("rtt_timestamp_median_ns").optional(), |s| {
        spread(&s.peer.rtt_timestamp_ns, |r| r.median)
    }),
    (integer("again_fast_packets"), |s| s.again(|r| r.fast)),
    (integer("again_timeout_packets"), |s| s.again(|r| r.timeout)),
    (integer("again_tail_probe_packets"), |s| {
        s.again(|r| r.tail_probe)
    }),
    (integer("again_other_packets"), |s| s.again(|r| r.other)),
    (integer("again_original_unseen_packets"), |s| {
        s.again(|r| r.original_unseen)
    }),
    (integer("again_spurious_packets"), |s| {
        Value::whole(s.side.retransmissions.spurious)
    }),
    (integer("again_bytes"), |s| {
        Value::whole(s.side.repeated_bytes)
    }),
    (integer("out_of_order_packets"), |s| {
        Value::whole(s.side.out_of_order)
    }),
    (integer("duplicate_acks"), |s| {
        Value::whole(s.peer.duplicate_acks)
    }),
    (Column::new("segments_per_ack", Kind::Real), |s| {
        Value::Real(s.peer.segments_per_ack)
    }),
    (integer("zero_windows"), |s| {
        Value::whole(s.peer.zero_windows)
    }),
    (integer("zero_window_ns"), |s| ns(s.peer.zero_window_time)),
    (integer("window_min_bytes").optional(), |s| {
        spread(&s.peer.window_bytes, |w| w.min)
    }),
    (integer("window_median_bytes").optional(), |s| {
        spread(&s.peer.window_bytes, |w| w.median)
    }),
    (integer("window_max_bytes").optional(), |s| {
        spread(&s.peer.window_bytes, |w| w.max)
    }),
    (integer("flight_max_bytes"), |s| {
        Value::whole(s.side.flight_bytes_max)
    }),
    (integer("flight_mean_bytes"), |s| {
        Value::whole(s.side.flight_bytes_mean)
    }),
    (integer("segment_bytes"), |s| {
        Value::whole(s.side.segment_bytes)
    }),
    (integer("sender_mss_bytes").optional(), |s| {
        known(s.side.mss, Value::whole)
    }),
    (integer("receiver_mss_bytes").optional(), |s| {
        known(s.peer.mss, Value::whole)
    }),
    (integer("sender_window_scale").optional(), |s| {
        known(s.side.window_scale, Value::whole)
    }),
    (integer("receiver_window_scale").optional(), |s| {
        known(s.peer.window_scale, Value::whole)
    }),
    (Column::new("sack", Kind::Truth), |s| {
        Value::Truth(s.connection.sack)
    }),
    (Column::new("timestamps", Kind::Truth), |s| {
        Value::Truth(s.connection.timestamps)
    }),
    (integer("ce_packets"), |s| Value::whole(s.side.ce)),
    (integer("idle_ns"), |s| ns(s.side.idle_time)),
    (text("captured").optional(), |s| {
        known(s.side.capture_point, |at| Value::Text(captured(at)))
    }),
    (Column::new("complete", Kind::Truth), |s| {
        Value::Truth(s.connection.complete)
    }),
    (share("application_share"), |s| s.share(Limit::Application)),
    (share("receive_window_share"), |s| {
        s.share(Limit::ReceiveWindow)
    }),
    (share("zero_window_share"), |s| s.share(Limit::ZeroWindow)),
    (share("slow_start_share"), |s| s.share(Limit::SlowStart)),
    (share("loss_window_share"), |s| s.share(Limit::LossWindow)),
    (share("sender_window_share"), |s| {
        s.share(Limit::SenderWindow)
    }),
    (share("bottleneck_share"), |s| s.share(Limit::Bottleneck)),
    (share("pacing_share"), |s| s.share(Limit::Pacing)),
    (share("recovery_timeout_share"), |s| {
        s.share(Limit::RecoveryTimeout)
    }),
    (share("congestion_window_share"), |s| {
        s.share(Limit::CongestionWindow)
    }),
    (share("unknown_share"), |s| s.share(Limit::Unknown)),
    (share("setup_share"), |s| s.waited(Waited::Setup)),
    (share("client_share"), |s| s.waited(Waited::Client)),
    (share("server_share"), |s| s.waited(Waited::Server)),
    (share("round_trips_share"), |s| s.waited(Waited::RoundTrips)),
    (share("nagle_share"), |s| s.waited(Waited::Nagle)),
    (share("outage_share"), |s| s.waited(Waited::Outage)),
    (share("sending_share"), |s| s.waited(Waited::Sending)),
    (share("other_direction_share"), |s| {
        s.waited(Waited::OtherDirection)
    }),
];

/// Likewise.
const INTERVALS: &[OfPart] = &[
    (integer("file"), |p| Value::whole(p.of.file)),
    (integer("first_frame"), |p| {
        Value::whole(p.of.connection.first.frame)
    }),
    (Column::new("begins_utc", Kind::Time).rising(), |p| {
        time(p.begins)
    }),
    (integer("since_ns"), |p| {
        ns(p.begins.saturating_since(p.of.connection.first.time))
    }),
    (integer("width_ns"), |p| ns(p.width)),
    (integer("sent_bytes"), |p| Value::whole(p.slice.sent_bytes)),
    (integer("acked_bytes"), |p| {
        Value::whole(p.slice.acked_bytes)
    }),
    (integer("sent_bits_per_second").optional(), |p| {
        p.rate(p.slice.sent_bytes)
    }),
    (integer("acked_bits_per_second").optional(), |p| {
        p.rate(p.slice.acked_bytes)
    }),
    (integer("again_packets"), |p| {
        Value::whole(p.slice.retransmitted_segments)
    }),
    (integer("rtt_ack_samples"), |p| {
        Value::whole(p.slice.rtt_count)
    }),
    (integer("rtt_ack_min_ns").optional(), |p| {
        known(p.slice.rtt_mean(), |_| Value::whole(p.slice.rtt_ns_min))
    }),
    (integer("rtt_ack_mean_ns").optional(), |p| {
        known(p.slice.rtt_mean(), ns)
    }),
    (integer("flight_max_bytes"), |p| {
        Value::whole(p.slice.flight_bytes_max)
    }),
    (integer("flight_mean_bytes"), |p| {
        Value::whole(p.slice.flight_bytes_mean(p.width))
    }),
    (integer("window_min_bytes").optional(), |p| {
        let least = p.slice.window_bytes_min;
        known((least != u32::MAX).then_some(least), Value::whole)
    }),
    (text("limit").optional(), |p| {
        known(p.limit(), |(limit, _)| Value::Text(limit.name()))
    }),
    (share("limit_share"), |p| {
        let known_ns = p.slice.time_known().as_s_f64();
        known(p.limit(), |(_, time)| {
            Value::Real(time.as_s_f64() / known_ns)
        })
    }),
];

/// Table of all connections in a run folder.
pub const CONNECTIONS_FILE: &str = "connections.parquet";
/// Table of the slices of their time.
pub const INTERVALS_FILE: &str = "intervals.parquet";
/// Connections of a group of rows: some 20 MB until it is written.
const GROUP: usize = 32_768;

#[cfg(test)]
mod tests {
    use super::*;

    /// What docs/run-folder.md says of a table.
    fn documented(section: &str) -> Vec<String> {
        let all = report::columns::columns().into_iter();
        all.filter(|c| c.section == section)
            .map(|c| c.key)
            .collect()
    }

    #[test]
    fn every_column_has_its_line_in_the_same_order() {
        let names = |all: Vec<Column>| -> Vec<&str> { all.iter().map(|c| c.name).collect() };
        assert_eq!(
            names(columns(CONNECTIONS)),
            documented(CONNECTIONS_FILE),
            "docs/run-folder.md"
        );
        assert_eq!(
            names(columns(INTERVALS)),
            documented(INTERVALS_FILE),
            "docs/run-folder.md"
        );
    }

    #[test]
    fn every_limit_that_counts_has_its_share() {
        let counted = Limit::ALL
            .iter()
            .filter(|l| !matches!(l, Limit::Handshake | Limit::Finished));
        for limit in counted {
            let name = format!("{}_share", limit.name());
            assert!(
                CONNECTIONS.iter().any(|(c, _)| c.name == name),
                "{name} is missing"
            );
        }
    }
}
