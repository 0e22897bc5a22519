//! What a server counts, and how it tells it: the text of OpenMetrics 1.0.
//!
//! Counters only grow while the server runs. Bytes are counted when a transfer ends, not while it
//! runs: the data path has no counter that all threads share.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::Role;
use crate::message::PROTOCOL;

/// Counts of one server, shared by its threads.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    sessions: [AtomicU64; PROTOCOLS.len()],
    open: [AtomicU64; PROTOCOLS.len()],
    transfers: [[AtomicU64; 2]; PROTOCOLS.len()],
    bytes: [[AtomicU64; 2]; PROTOCOLS.len()],
    refusals: [AtomicU64; REASONS.len()],
}

/// Which protocol a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Goodput,
    Iperf3,
}

/// Why a connection or a transfer was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// All sessions are taken.
    Busy,
    /// All sessions that one address may have are taken.
    Address,
    /// No proof of the shared token, or a wrong one.
    Token,
    /// Another protocol number.
    Version,
    /// Another protocol.
    Foreign,
    /// Closed or fell silent before it had said what it is.
    Silent,
    /// Dropped to make room for newer connections.
    Crowd,
    /// A data connection that no transfer waits for.
    Stray,
    /// A transfer beyond the limits, or that the host cannot do.
    Transfer,
}

/// A session that is counted as open until this is dropped.
#[derive(Debug)]
pub(crate) struct Open<'a> {
    tally: &'a Tally,
    protocol: Protocol,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.tally.open[self.protocol as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

impl Tally {
    /// A session begins.
    pub(crate) fn opened(&self, protocol: Protocol) -> Open<'_> {
        self.sessions[protocol as usize].fetch_add(1, Ordering::Relaxed);
        self.open[protocol as usize].fetch_add(1, Ordering::Relaxed);
        Open {
            tally: self,
            protocol,
        }
    }

    /// A transfer has ended, whole or not; `role` is the server's.
    pub(crate) fn transferred(&self, protocol: Protocol, role: Role, bytes: u64) {
        let way = usize::from(role == Role::Sender);
        self.transfers[protocol as usize][way].fetch_add(1, Ordering::Relaxed);
        self.bytes[protocol as usize][way].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Somebody was turned away.
    pub(crate) fn refused(&self, reason: Reason) {
        self.refusals[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// All of it in the text format of OpenMetrics 1.0.
    pub(crate) fn openmetrics(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, to: &mut String) -> std::fmt::Result {
        let version = env!("CARGO_PKG_VERSION");
        family(to, "goodput_build", "info", "", "The serving program.")?;
        writeln!(
            to,
            "goodput_build_info{{version=\"{version}\",protocol=\"{PROTOCOL}\"}} 1"
        )?;
        family(to, "goodput_sessions_open", "gauge", "", "Sessions now.")?;
        for (protocol, count) in PROTOCOLS.iter().zip(&self.open) {
            let count = count.load(Ordering::Relaxed);
            writeln!(
                to,
                "goodput_sessions_open{{protocol=\"{protocol}\"}} {count}"
            )?;
        }
        family(to, "goodput_sessions", "counter", "", "Sessions begun.")?;
        for (protocol, count) in PROTOCOLS.iter().zip(&self.sessions) {
            let count = count.load(Ordering::Relaxed);
            writeln!(
                to,
                "goodput_sessions_total{{protocol=\"{protocol}\"}} {count}"
            )?;
        }
        let help = "Transfers ended, whole or not, by what this server did.";
        family(to, "goodput_transfers", "counter", "", help)?;
        by_way(to, "goodput_transfers_total", &self.transfers)?;
        let help = "Payload of ended transfers, by what this server did.";
        family(to, "goodput_payload_bytes", "counter", "bytes", help)?;
        by_way(to, "goodput_payload_bytes_total", &self.bytes)?;
        let help = "Connections and transfers turned away.";
        family(to, "goodput_refusals", "counter", "", help)?;
        for (reason, count) in REASONS.iter().zip(&self.refusals) {
            let count = count.load(Ordering::Relaxed);
            writeln!(to, "goodput_refusals_total{{reason=\"{reason}\"}} {count}")?;
        }
        writeln!(to, "# EOF")
    }
}

fn family(to: &mut String, name: &str, kind: &str, unit: &str, help: &str) -> std::fmt::Result {
    writeln!(to, "# TYPE {name} {kind}")?;
    if !unit.is_empty() {
        writeln!(to, "# UNIT {name} {unit}")?;
    }
    writeln!(to, "# HELP {name} {help}")
}

fn by_way(
    to: &mut String,
    name: &str,
    counts: &[[AtomicU64; 2]; PROTOCOLS.len()],
) -> std::fmt::Result {
    for (protocol, counts) in PROTOCOLS.iter().zip(counts) {
        for (way, count) in ["received", "sent"].iter().zip(counts) {
            let count = count.load(Ordering::Relaxed);
            writeln!(
                to,
                "{name}{{protocol=\"{protocol}\",direction=\"{way}\"}} {count}"
            )?;
        }
    }
    Ok(())
}

/// Labels, in the order of [`Protocol`].
const PROTOCOLS: [&str; 2] = ["goodput", "iperf3"];
/// Labels, in the order of [`Reason`].
const REASONS: [&str; 9] = [
    "busy", "address", "token", "version", "foreign", "silent", "crowd", "stray", "transfer",
];
const _: () = assert!(Protocol::Iperf3 as usize + 1 == PROTOCOLS.len());
const _: () = assert!(Reason::Transfer as usize + 1 == REASONS.len());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stand_with_their_labels_and_a_session_closes_once() {
        let tally = Tally::default();
        let open = tally.opened(Protocol::Iperf3);
        tally.transferred(Protocol::Goodput, Role::Sender, 7);
        tally.refused(Reason::Token);
        let text = tally.openmetrics();
        for line in [
            "goodput_sessions_open{protocol=\"iperf3\"} 1",
            "goodput_sessions_open{protocol=\"goodput\"} 0",
            "goodput_payload_bytes_total{protocol=\"goodput\",direction=\"sent\"} 7",
            "goodput_payload_bytes_total{protocol=\"goodput\",direction=\"received\"} 0",
            "goodput_refusals_total{reason=\"token\"} 1",
            "goodput_refusals_total{reason=\"transfer\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        drop(open);
        let text = tally.openmetrics();
        assert!(text.contains("goodput_sessions_open{protocol=\"iperf3\"} 0\n"));
        assert!(text.contains("goodput_sessions_total{protocol=\"iperf3\"} 1\n"));
    }
}
