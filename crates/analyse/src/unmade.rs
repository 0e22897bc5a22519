//! Connections that were asked for and never made, by server.

use std::collections::BTreeMap;

use explain::trace::{Connection, End};
use report::model::TraceUnmade;

use crate::names::endpoint;

/// How many there were for each server, of a bounded number of servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unmade {
    servers: BTreeMap<(String, &'static str), u64>,
}

impl Unmade {
    /// Takes a connection without data.
    pub(crate) fn add(&mut self, c: &Connection) {
        let client = usize::from(c.client());
        let how = match c.end {
            _ if c.setup.time.is_some() || c.sides[client].syns == 0 => return,
            End::Reset { by } if usize::from(by) != client => "refused",
            _ if c.sides[1 - client].packets == 0 => "unanswered",
            _ => return,
        };
        let key = (endpoint(&c.flow, 1 - client), how);
        if self.servers.len() < SERVERS_MAX || self.servers.contains_key(&key) {
            *self.servers.entry(key).or_default() += 1;
        }
    }

    /// Most connections first.
    pub(crate) fn into_records(self) -> Vec<TraceUnmade> {
        let each = self.servers.into_iter();
        let mut all: Vec<TraceUnmade> = each
            .map(|((server, how), connections)| TraceUnmade {
                server,
                how: how.to_owned(),
                connections,
            })
            .collect();
        all.sort_by_key(|unmade| std::cmp::Reverse(unmade.connections));
        all.truncate(KEPT_MAX);
        all
    }
}

/// Servers that are counted; port scans have more.
const SERVERS_MAX: usize = 4_096;
/// Servers that a run names.
const KEPT_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use explain::trace::{Captured, Limits, Tracker};
    use units::Instant;
    use wire::segment::Segment;
    use wire::tcp::Flags;

    use super::*;

    /// What is said of connections of such packets, each `(client's port, from the server, flags)`.
    fn said(packets: &[(u16, bool, Flags)]) -> Vec<(String, String, u64)> {
        let mut unmade = Unmade::default();
        let mut tracker = Tracker::new(Limits::default(), |c: Connection| unmade.add(&c));
        for (n, &(port, server, flags)) in (1..).zip(packets) {
            let mut segment = Segment {
                flags,
                from: u8::from(!server),
                sequence: 7,
                acknowledgment: 8,
                ..Segment::default()
            };
            segment.flow.ports = [443, port];
            tracker.take_all(&[Captured {
                time: Instant::from_ns(n * 1_000_000),
                frame: n,
                interface: 0,
                segment,
            }]);
        }
        tracker.finish();
        drop(tracker);
        let all = unmade.into_records().into_iter();
        all.map(|u| (u.server, u.how, u.connections)).collect()
    }

    #[test]
    fn a_reset_refuses_silence_is_no_answer_and_what_was_made_is_neither() {
        let (syn, reset) = (Flags::SYN, Flags::RST.with(Flags::ACK));
        let answer = Flags::SYN.with(Flags::ACK);
        let [refused, unanswered] = ["refused", "unanswered"]
            .map(|how| move |n| vec![("[::]:443".to_owned(), how.to_owned(), n)]);
        assert_eq!(
            said(&[(5_000, false, syn), (5_000, true, reset)]),
            refused(1)
        );
        assert_eq!(
            said(&[(5_000, false, syn), (5_000, false, syn)]),
            unanswered(1)
        );
        assert_eq!(
            said(&[(5_000, false, syn), (5_001, false, syn)]),
            unanswered(2)
        );
        let made = [
            (5_000, false, syn),
            (5_000, true, answer),
            (5_000, false, Flags::ACK),
            (5_000, true, reset),
        ];
        assert_eq!(said(&made), []);
        // The client gives up.
        assert_eq!(
            said(&[(5_000, false, syn), (5_000, false, reset)]),
            unanswered(1)
        );
    }
}
