//! What an analysis holds of a crowd of connections: each crowd in a process of its own.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use explain::trace::{Batch, Captured, Counts, Limits, SHARDS, Split, Tracker};
use units::Instant;
use wire::segment::Segment;
use wire::tcp::Flags;

use super::super::children::{self, peak_bytes};
use super::super::record::{Record, Recorder};
use super::super::table::{Table, number};

/// A crowd.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Crowd {
    /// A million connections of ten packets.
    Short,
    /// A million connections of forty packets, each more than its log holds.
    Long,
    /// Ten million SYNs without an answer.
    Syns,
}

impl Crowd {
    pub(crate) const ALL: [Self; 3] = [Self::Short, Self::Long, Self::Syns];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Short => "memory/short",
            Self::Long => "memory/long",
            Self::Syns => "memory/syns",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Short => "connections of 10 packets",
            Self::Long => "connections of 40 packets",
            Self::Syns => "SYNs without an answer",
        }
    }

    const fn shape(self) -> (u32, u32) {
        match self {
            Self::Short => (1_000_000, 10),
            Self::Long => (1_000_000, 40),
            Self::Syns => (10_000_000, 1),
        }
    }

    /// Lets a process of its own hold it.
    pub(crate) fn measure(self, quick: bool, to: &mut Recorder) -> anyhow::Result<()> {
        let part = if quick { "100" } else { "1" };
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["crowd", self.name(), part]);
        let numbers = children::numbers(&mut command, CHILD_MAX)?;
        let [connections, bytes, evicted, forgotten, incomplete] = numbers[..] else {
            bail!("{}: {numbers:?}", self.name());
        };
        to.put("connections", connections, "1");
        to.put("memory", bytes, "B");
        to.put("evicted", evicted, "1");
        to.put("half_open_dropped", forgotten, "1");
        to.put("incomplete", incomplete, "1");
        Ok(())
    }
}

/// The process: analyses a part of a crowd and prints what it took.
pub(crate) fn crowd(name: &str, part: &str) -> anyhow::Result<()> {
    let crowd = Crowd::ALL.into_iter().find(|c| c.name() == name);
    let crowd = crowd.context("no such crowd")?;
    let (flows, turns) = crowd.shape();
    let flows = flows / part.parse::<u32>()?.max(1);
    let limits = Limits::default().of_shard();
    let mut trackers: Vec<_> = (0..SHARDS).map(|_| Tracker::new(limits, |_| ())).collect();
    let mut give = |n: usize, batch: Batch| {
        trackers[n].take_batch(&batch);
        batch
    };
    let mut split = Split::new();
    let mut frame = 0;
    let mut put = |flow, turn| {
        frame += 1;
        let captured = Captured {
            time: Instant::from_ns(frame * 1_000),
            frame,
            interface: 0,
            segment: segment(flow, turn),
        };
        split.put(&captured, &mut give);
    };
    // Each begins at once; then all have their turns.
    let begun = turns.min(3);
    for flow in 0..flows {
        (0..begun).for_each(|turn| put(flow, turn));
    }
    for turn in begun..turns {
        (0..flows).for_each(|flow| put(flow, turn));
    }
    split.flush(give);
    let mut counts = Counts::default();
    trackers.iter().for_each(|t| counts += t.counts());
    println!(
        "{flows} {} {} {} {}",
        peak_bytes()?,
        counts.evicted,
        counts.half_open_evicted,
        counts.incomplete
    );
    Ok(())
}

/// A SYN, its answer, and then data and ACKs in turn.
fn segment(flow: u32, turn: u32) -> Segment {
    let (from, sequence, acknowledgment, flags, payload_bytes) = match turn {
        0 => (0, 1_000, 0, Flags::SYN, 0),
        1 => (1, 5_000, 1_001, Flags::SYN.with(Flags::ACK), 0),
        n if n % 2 == 0 => (0, 1_001 + n / 2 * 100, 5_001, Flags::ACK, 100),
        n => (1, 5_001, 1_101 + n / 2 * 100, Flags::ACK, 0),
    };
    let mut segment = Segment {
        from,
        sequence,
        acknowledgment,
        flags,
        payload_bytes,
        window: 65_535,
        timestamps: Some((turn, turn)),
        ..Segment::default()
    };
    segment.flow.addresses[0][12..].copy_from_slice(&flow.to_be_bytes());
    segment.flow.ports = [40_000, 5_201];
    segment
}

/// What was held, crowd by crowd.
pub(super) fn table(record: &Record) -> String {
    let mut table = Table::new(&[
        "live at once",
        "MB",
        "given up",
        "SYNs forgotten",
        "by their first packets only",
    ]);
    for crowd in Crowd::ALL {
        let median = |metric: &str| record.median(crowd.name(), metric);
        if !record.has(crowd.name()) {
            continue;
        }
        table.row(vec![
            format!(
                "{} {}",
                number(median("connections"), 1.0, 0),
                crowd.words()
            ),
            number(median("memory"), 1e6, 0),
            number(median("evicted"), 1.0, 0),
            number(median("half_open_dropped"), 1.0, 0),
            number(median("incomplete"), 1.0, 0),
        ]);
    }
    table.finish()
}

const CHILD_MAX: Duration = Duration::from_secs(120);
