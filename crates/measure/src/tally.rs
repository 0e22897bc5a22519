//! What a server counts, and how it tells it: the text of OpenMetrics 1.0.
//!
//! Counters only grow while the server runs. Bytes are counted when a transfer ends, not while it
//! runs: the data path has no counter that all threads share.

use std::sync::atomic::{AtomicU64, Ordering};

use units::openmetrics::{Kind, Rows, Text};

use crate::crew::Role;
use crate::protocol::PROTOCOL;

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
        let mut text = Text::default();
        let protocol = PROTOCOL.to_string();
        let labels = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("protocol", protocol.as_str()),
        ];
        text.family("goodput_build", Kind::Info, "", "The serving program.")
            .row(&labels, 1);
        let now = text.family("goodput_sessions_open", Kind::Gauge, "", "Sessions now.");
        by_label(now, "protocol", &PROTOCOLS, &self.open);
        let begun = text.family("goodput_sessions", Kind::Counter, "", "Sessions begun.");
        by_label(begun, "protocol", &PROTOCOLS, &self.sessions);
        let help = "Transfers ended, whole or not, by what this server did.";
        by_way(
            text.family("goodput_transfers", Kind::Counter, "", help),
            &self.transfers,
        );
        let help = "Payload of ended transfers, by what this server did.";
        by_way(
            text.family("goodput_payload_bytes", Kind::Counter, "bytes", help),
            &self.bytes,
        );
        let help = "Connections and transfers turned away.";
        let refusals = text.family("goodput_refusals", Kind::Counter, "", help);
        by_label(refusals, "reason", &REASONS, &self.refusals);
        text.end()
    }
}

fn by_label(mut rows: Rows<'_>, label: &str, values: &[&str], counts: &[AtomicU64]) {
    for (value, count) in values.iter().zip(counts) {
        rows.row(&[(label, value)], count.load(Ordering::Relaxed));
    }
}

fn by_way(mut rows: Rows<'_>, counts: &[[AtomicU64; 2]; PROTOCOLS.len()]) {
    for (protocol, counts) in PROTOCOLS.iter().zip(counts) {
        for (way, count) in ["received", "sent"].iter().zip(counts) {
            let labels = [("protocol", *protocol), ("direction", *way)];
            rows.row(&labels, count.load(Ordering::Relaxed));
        }
    }
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
        let begin = "# TYPE goodput_sessions counter\n\
                     # HELP goodput_sessions Sessions begun.\n\
                     goodput_sessions_total{protocol=\"goodput\"} 0\n";
        assert!(text.contains(begin), "{text}");
        drop(open);
        let text = tally.openmetrics();
        assert!(text.contains("goodput_sessions_open{protocol=\"iperf3\"} 0\n"));
        assert!(text.contains("goodput_sessions_total{protocol=\"iperf3\"} 1\n"));
    }
}
