//! What a gateway shows of itself: as JSON, as OpenMetrics.
//!
//! What the path would reach without it is a model and no bound: the receiver's window as it stands over the smallest
//! round trips of both halves, or what Reno (Mathis et al. 1997) or CUBIC (RFC 9438 section 5), whichever is faster,
//! make of the losses that the sending half sees, over both; of window and losses the smaller one. It knows neither the
//! sender's buffer nor losses on the sender's side, which would make it less; nor a receiver that would open its
//! window further, nor congestion controls that losses do not hold (BBR), which would make it more.

mod openmetrics;

use run::model::GatewayHalf;
use serde::{Deserialize, Serialize};
use throughput::models::{self, AckPolicy};
use units::{Bytes, Duration, Rate};

use crate::buffers::Decision;
use crate::counters::Counts;
use crate::links::LinkStatus;
use crate::sampled::Sampled;
use crate::view::{HalfSeen, Seen};

/// What `status` and the end say, for machines.
#[derive(Debug, Serialize, Deserialize)]
pub struct Status {
    /// Of this layout.
    schema: u32,
    /// Who answers.
    pid: u32,
    /// Of all connections.
    #[serde(flatten)]
    pub counts: Counts,
    /// Of the busiest, since it began to look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sums: Option<Sums>,
    /// The busiest of the last second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<Shown>,
    /// Of sides that have several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkStatus>,
    /// Of ways that were measured, where the buffers of new connections hang on that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buffers: Vec<Decision>,
    /// Connections that passed unsplit and were counted, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsplit_samples: Vec<Sampled>,
}

/// What the busiest connections came to, looked at once a second.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Sums {
    /// Outward, inward, in the last second.
    pub rates_bps: [u64; 2],
    /// While anything moved.
    pub carried_bps: Option<u64>,
    /// What of it they would have carried unsplit, by the model.
    pub unsplit_bps: Option<u64>,
    /// The one over the other.
    pub gain: Option<f64>,
    /// Of halves inside, outside.
    pub halves: Vec<GatewayHalf>,
}

/// A connection, and what it would reach without the gateway.
#[derive(Debug, Serialize, Deserialize)]
pub struct Shown {
    /// The connection.
    #[serde(flatten)]
    pub seen: Seen,
    /// By the model, each way, bits per second; none where nothing has been learnt.
    pub unsplit_bps: [Option<u64>; 2],
}

impl Status {
    /// By counts and what was seen of the busiest connections.
    pub fn of(counts: Counts, seen: Vec<Seen>) -> Self {
        let shown = |seen: Seen| Shown {
            unsplit_bps: [1, 0].map(|to| unsplit(&seen, to).map(Rate::as_bits_per_second)),
            seen,
        };
        Self {
            schema: 1,
            pid: std::process::id(),
            counts,
            sums: None,
            connections: seen.into_iter().map(shown).collect(),
            links: Vec::new(),
            buffers: Vec::new(),
            unsplit_samples: Vec::new(),
        }
    }

    /// With the links of sides that have several.
    pub fn with_links(self, links: Vec<LinkStatus>) -> Self {
        Self { links, ..self }
    }

    /// With what the busiest connections came to.
    pub fn with_sums(self, sums: Option<Sums>) -> Self {
        Self { sums, ..self }
    }

    /// With what buffers new connections get.
    pub fn with_buffers(self, buffers: Vec<Decision>) -> Self {
        Self { buffers, ..self }
    }

    /// With the connections that passed unsplit.
    pub fn with_samples(self, unsplit_samples: Vec<Sampled>) -> Self {
        Self {
            unsplit_samples,
            ..self
        }
    }

    /// For collectors that read OpenMetrics 1.0.
    pub fn openmetrics(&self) -> String {
        openmetrics::text(self)
    }
}

/// What one connection end to end would carry towards this half's end, by the model.
pub fn unsplit(seen: &Seen, to: usize) -> Option<Rate> {
    let receiver = &seen.halves[to];
    let rtt = |half: &HalfSeen| Duration::from_us(half.min_rtt_us);
    let whole = rtt(&seen.halves[0]) + rtt(&seen.halves[1]);
    // Without data the kernel has no better round trip than the handshake's, which is one.
    let window = (receiver.acknowledged > 0 && receiver.window_bytes > 0)
        .then(|| models::window_limit(Bytes::new(receiver.window_bytes), whole))
        .flatten();
    let mss = seen.halves.iter().map(|h| h.mss_bytes).min()?;
    #[allow(clippy::cast_precision_loss, reason = "a share of packets")]
    let lost = receiver.retransmissions as f64 / receiver.segments.max(1) as f64;
    let reno = models::mathis(mss, whole, lost, AckPolicy::EveryPacket);
    let loss = reno.max(models::cubic(mss, whole, lost));
    match (window, loss) {
        (Some(window), Some(loss)) => Some(window.min(loss)),
        (one, other) => one.or(other),
    }
}

/// What held a sending half back for most of its time.
pub fn held_by(half: &HalfSeen) -> String {
    let share = |part: u64| (part * 100).checked_div(half.busy_us).unwrap_or(0);
    let window = share(half.window_limited_us);
    let buffer = share(half.buffer_limited_us);
    match (window, buffer) {
        _ if half.busy_us == 0 => "no data".to_owned(),
        (w, b) if w >= b && w >= 10 => format!("receiver {w} %"),
        (_, b) if b >= 10 => format!("our buffer {b} %"),
        _ => "network or source".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Seen {
        let half = HalfSeen {
            rtt_us: 1_000,
            min_rtt_us: 1_000,
            mss_bytes: 1_448,
            window_bytes: 458_752,
            segments: 10_000,
            acknowledged: 1,
            busy_us: 1_000_000,
            ..HalfSeen::default()
        };
        Seen {
            client: "10.9.1.2:40000".parse().unwrap(),
            server: "10.9.2.2:5001".parse().unwrap(),
            outside: false,
            age_ms: 1_000,
            carried: [1, 0],
            rate_bps: [900_000_000, 0],
            in_pipe: [0, 0],
            halves: [
                half.clone(),
                HalfSeen {
                    min_rtt_us: 49_000,
                    window_limited_us: 400_000,
                    ..half
                },
            ],
        }
    }

    #[test]
    fn unsplit_is_the_window_over_both_round_trips_or_the_faster_of_reno_and_cubic_at_the_losses() {
        let mut seen = seen();
        // 458,752 bytes in 50 ms.
        let rate = unsplit(&seen, 1).unwrap();
        assert_eq!(rate.as_bits_per_second(), 73_400_320);
        // 1448 bytes * sqrt(1.5 / 0.0001) / 50 ms.
        seen.halves[1].retransmissions = 1;
        let rate = unsplit(&seen, 1).unwrap();
        assert_eq!(rate.to_string(), "28.37 Mb/s");
        // The longer the path, the more CUBIC has of it: 1.054 * 0.5^0.75 / 0.0001^0.75 segments in 500 ms.
        seen.halves[1].min_rtt_us = 499_000;
        seen.halves[1].window_bytes = 1 << 30;
        let rate = unsplit(&seen, 1).unwrap();
        let reno = models::mathis(
            1_448,
            Duration::from_ms(500),
            0.0001,
            AckPolicy::EveryPacket,
        );
        assert_eq!(reno.unwrap().to_string(), "2.837 Mb/s");
        assert_eq!(rate.to_string(), "14.52 Mb/s");
        seen.halves[0].acknowledged = 0;
        assert_eq!(unsplit(&seen, 0), None);
    }
}
