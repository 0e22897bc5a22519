//! What `explain` says of a capture.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Context as _;
use capture::file;
use explain::passive::{self, Waited};
use explain::trace::{Captured, Connection, Limit, Limits, Tracker};
use throughput::Cause;
use units::Instant;
use wire::pcap;
use wire::segment::Decoded;

use super::plan::{Class, Dice};

/// A capture's one connection, judged.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) connection: Connection,
    pub(crate) sender: usize,
    /// What the verdict names; `None` where it says that nothing tells.
    pub(crate) found: Option<Class>,
    /// 0..=1.
    pub(crate) confidence: f64,
    /// Shares of time, the largest first.
    pub(crate) limits: Vec<(Waited, f64)>,
}

impl Judged {
    /// The shares in a line.
    pub(crate) fn line(&self) -> String {
        let shares = self.limits.iter().filter(|l| l.1 >= 0.02);
        let shares = shares.map(|(limit, share)| format!("{} {:.0}", limit.name(), share * 100.0));
        shares.collect::<Vec<_>>().join(", ")
    }
}

/// Judges the connection that carried most.
pub(crate) fn judge(path: &Path) -> anyhow::Result<Judged> {
    let mut capture = file::open(path)?;
    let mut all: Vec<Connection> = Vec::new();
    let mut tracker = Tracker::new(Limits::default(), |connection| all.push(connection));
    capture.for_each_segment(|packet, decoded, segment| {
        if decoded == Decoded::Tcp {
            tracker.take_all(&[Captured {
                time: Instant::from_ns(packet.time_ns),
                frame: packet.frame,
                interface: packet.interface,
                segment: *segment,
            }]);
        }
        ControlFlow::Continue(())
    });
    tracker.finish();
    drop(tracker);
    let carried = |c: &Connection| c.sides.iter().map(|s| s.unique_bytes).sum::<u64>();
    let connection = all.into_iter().max_by_key(carried);
    let connection = connection.context("the capture holds no connection")?;
    let passive = passive::judge(&connection).context("the connection has no data")?;
    let cause = passive.verdict.cause;
    let confidence = passive.findings.first().map_or(0.0, |f| f.confidence);
    Ok(Judged {
        sender: usize::from(passive.sender),
        found: cause.map(|cause| class(cause, &passive.shares)),
        confidence,
        connection,
        limits: passive.shares,
    })
}

fn class(cause: Cause, shares: &[(Waited, f64)]) -> Class {
    match cause {
        Cause::ReceiveWindow | Cause::WindowScaling => Class::ReceiveWindow,
        Cause::SendBuffer => Class::SendWindow,
        Cause::Loss | Cause::ShallowQueue => Class::Loss,
        Cause::BottleneckReached => Class::Bottleneck,
        Cause::ShortTransfer => Class::SlowStart,
        Cause::ConnectionSetup => Class::Setup,
        Cause::Outage => Class::Outage,
        Cause::StoppedDelivery => Class::Stopped,
        Cause::PathMtu => Class::PathMtu,
        Cause::ServerThink => Class::Server,
        Cause::ClientThink => Class::Client,
        Cause::RoundTrips => Class::RoundTrips,
        Cause::Nagle => Class::Nagle,
        // Of either side, or a pace.
        Cause::Application => {
            let which = shares.iter().find_map(|(waited, _)| match waited {
                Waited::Limit(Limit::Application) => Some(Class::Application),
                Waited::Limit(Limit::Pacing) => Some(Class::Pacing),
                Waited::Limit(Limit::ZeroWindow | Limit::ReceiveWindow) => Some(Class::SlowReader),
                _ => None,
            });
            which.unwrap_or(Class::Other)
        }
        _ => Class::Other,
    }
}

/// Writes what a mirror port would have shown of a capture's packets: copies of all or of a part, a drawn time behind the first
/// ones, and one in a hundred of all lost.
pub(crate) fn mirror(from: &Path, to: &Path, dice: &mut Dice) -> anyhow::Result<()> {
    let mut capture = file::open(from)?;
    let copied = match dice.coin() {
        true => 1.0,
        false => dice.even(0.1, 0.9),
    };
    let behind_ns = dice.log(1e3, 2e6);
    let mut all = Vec::new();
    while let Some(packet) = capture.next_packet() {
        let copies = 1 + usize::from(dice.even(0.0, 1.0) < copied);
        for copy in 0..copies {
            // A queue more or less before the second port.
            let behind = copy as f64 * behind_ns * dice.even(0.8, 1.2);
            if dice.even(0.0, 1.0) >= CAPTURE_LOSS {
                let time = packet.time_ns + behind as u64;
                all.push((time, packet.original_bytes, packet.captured.to_vec()));
            }
        }
    }
    all.sort_by_key(|(time, ..)| *time);
    let mut out = Vec::new();
    pcap::header(65_535, &mut out);
    for (time, original, captured) in &all {
        pcap::packet(*time, captured, *original, &mut out);
    }
    std::fs::write(to, out).with_context(|| format!("writing {}", to.display()))
}

/// Of a mirror port's packets.
const CAPTURE_LOSS: f64 = 0.01;
