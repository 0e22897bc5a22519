//! What `explain` says of a capture.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::Context as _;
use capture::file;
use explain::passive::{self, Waited};
use explain::trace::{Captured, Connection, Limit, Limits, Tracker};
use units::Instant;
use wire::segment::Decoded;

use super::plan::Class;

/// A capture's one connection, judged.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) connection: Connection,
    pub(crate) sender: usize,
    /// Shares of time, the largest first.
    pub(crate) shares: Vec<(Class, f64)>,
    pub(crate) limits: Vec<(Waited, f64)>,
}

impl Judged {
    /// What the largest share went to.
    pub(crate) fn class(&self) -> Class {
        self.shares.first().map_or(Class::Other, |s| s.0)
    }

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
    let mut sums: BTreeMap<Class, f64> = BTreeMap::new();
    for (limit, share) in &passive.shares {
        *sums.entry(class(*limit)).or_default() += share;
    }
    let mut shares: Vec<_> = sums.into_iter().collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(Judged {
        sender: usize::from(passive.sender),
        connection,
        shares,
        limits: passive.shares,
    })
}

/// What is one cause is one class.
const fn class(waited: Waited) -> Class {
    let limit = match waited {
        Waited::Limit(limit) => limit,
        // Where nothing else is lost than what a queue or a link drops.
        Waited::Outage => return Class::Loss,
        Waited::Client | Waited::Server => return Class::Application,
        _ => return Class::Other,
    };
    match limit {
        Limit::Application => Class::Application,
        Limit::Pacing => Class::Pacing,
        Limit::ReceiveWindow => Class::ReceiveWindow,
        Limit::ZeroWindow => Class::SlowReader,
        Limit::SenderWindow => Class::SendWindow,
        Limit::SlowStart | Limit::CongestionWindow => Class::SlowStart,
        Limit::LossWindow | Limit::RecoveryTimeout => Class::Loss,
        Limit::Bottleneck => Class::Bottleneck,
        _ => Class::Other,
    }
}
