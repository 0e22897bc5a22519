//! What a connection over QUIC counts of itself, in the place of the kernel's `tcp_info`.

use quinn_proto::ConnectionStats;

/// A stream's connection over QUIC, as its sending side counts; of connections that took each other's place together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// When the first was made, in nanoseconds by a clock of the sending side.
    pub made_ns: u64,
    /// When it was so, by the same clock.
    pub at_ns: u64,
    /// Smoothed round trip (RFC 9002, section 5.3).
    pub rtt_us: u64,
    /// Smallest round trip seen.
    pub min_rtt_us: u64,
    /// Congestion window.
    pub congestion_window_bytes: u64,
    /// Largest packet that it sends now, as UDP's payload.
    pub packet_bytes: u64,
    /// Packets sent, acknowledgments and MTU probes included.
    pub packets_sent: u64,
    /// Of these, thought lost; MTU probes left out.
    pub packets_lost: u64,
    /// UDP payload sent.
    pub bytes_sent: u64,
    /// Of it, thought lost.
    pub bytes_lost: u64,
    /// Times that losses or marks (ECN) were taken for congestion.
    pub congestion_events: u64,
}

impl Counts {
    pub(super) fn of(stats: &ConnectionStats, made_ns: u64, at_ns: u64) -> Self {
        let us = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let path = &stats.path;
        Self {
            made_ns,
            at_ns,
            rtt_us: us(path.rtt),
            min_rtt_us: us(path.min_rtt),
            congestion_window_bytes: path.cwnd,
            packet_bytes: path.current_mtu.into(),
            packets_sent: path.sent_packets,
            packets_lost: path.lost_packets,
            bytes_sent: stats.udp_tx.bytes,
            bytes_lost: path.lost_bytes,
            congestion_events: path.congestion_events,
        }
    }

    /// What it counts of one that came later, with what was counted before it.
    #[must_use]
    pub fn then(&self, next: &Self) -> Self {
        let add = u64::saturating_add;
        Self {
            made_ns: self.made_ns,
            min_rtt_us: match (self.min_rtt_us, next.min_rtt_us) {
                (0, us) | (us, 0) => us,
                (one, other) => one.min(other),
            },
            packets_sent: add(self.packets_sent, next.packets_sent),
            packets_lost: add(self.packets_lost, next.packets_lost),
            bytes_sent: add(self.bytes_sent, next.bytes_sent),
            bytes_lost: add(self.bytes_lost, next.bytes_lost),
            congestion_events: add(self.congestion_events, next.congestion_events),
            ..*next
        }
    }

    /// All of it in this order, to be told.
    pub const fn to_words(&self) -> [u64; 11] {
        [
            self.made_ns,
            self.at_ns,
            self.rtt_us,
            self.min_rtt_us,
            self.congestion_window_bytes,
            self.packet_bytes,
            self.packets_sent,
            self.packets_lost,
            self.bytes_sent,
            self.bytes_lost,
            self.congestion_events,
        ]
    }

    /// What was told; numbers beyond those known here are passed over, and missing ones are none.
    pub fn of_words(words: &[u64]) -> Self {
        let mut words = words.iter().copied();
        let mut next = || words.next().unwrap_or(0);
        Self {
            made_ns: next(),
            at_ns: next(),
            rtt_us: next(),
            min_rtt_us: next(),
            congestion_window_bytes: next(),
            packet_bytes: next(),
            packets_sent: next(),
            packets_lost: next(),
            bytes_sent: next(),
            bytes_lost: next(),
            congestion_events: next(),
        }
    }
}

/// Connections of one stream over QUIC, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Series {
    before: Option<Counts>,
    now: Counts,
}

impl Series {
    /// Takes what is counted now: of the same connection, or of one made since.
    pub(crate) fn take(&mut self, now: Counts) {
        if now.made_ns != self.now.made_ns && self.now.made_ns > 0 {
            self.before = Some(self.total());
        }
        self.now = now;
    }

    pub(crate) fn total(&self) -> Counts {
        match &self.before {
            Some(before) => before.then(&self.now),
            None => self.now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_made_again_goes_on_counting() {
        let counted = |made_ns, at_ns, packets_sent, min_rtt_us| Counts {
            made_ns,
            at_ns,
            packets_sent,
            packets_lost: packets_sent / 10,
            bytes_sent: packets_sent * 1_200,
            min_rtt_us,
            ..Counts::default()
        };
        let mut series = Series::default();
        for now in [
            counted(5, 6, 100, 300),
            counted(5, 7, 200, 300),
            // More at its first look than the one before it ever had.
            counted(8, 9, 900, 320),
            counted(8, 10, 1_000, 310),
            counted(11, 12, 10, 0),
        ] {
            series.take(now);
        }
        let total = series.total();
        assert_eq!((total.made_ns, total.at_ns), (5, 12));
        assert_eq!((total.packets_sent, total.packets_lost), (1_210, 121));
        assert_eq!((total.bytes_sent, total.min_rtt_us), (1_452_000, 300));
    }

    #[test]
    fn what_is_told_arrives_also_between_versions() {
        let words: Vec<u64> = (1..=11).collect();
        let counts = Counts::of_words(&words);
        assert_eq!(counts.to_words()[..], words[..]);
        let longer: Vec<u64> = (1..=13).collect();
        assert_eq!(Counts::of_words(&longer), counts);
        let shorter = Counts::of_words(&words[..7]);
        assert_eq!((shorter.packets_sent, shorter.packets_lost), (7, 0));
    }
}
