//! What goodput to expect before the first byte: from buffers, round trip, rate and loss.
//!
//! A connection sends at most a window a round trip. The window is the smallest of what the
//! receiver's buffer lets it advertise, what the sender's buffer holds, and 1 GiB, the largest that
//! TCP's header can say (RFC 7323, section 2.3: 2^16 shifted by 14). Under autotuning a buffer
//! grows to the third value of `tcp_rmem` or `tcp_wmem`; one that the application fixed stays.
//!
//! Left out: slow start (short transfers get less), memory pressure (`tcp_mem`), a receiver that
//! reads slowly, and the rise of the round trip by the transfer's own queue, which only begins once
//! the bottleneck is full.

use throughput::models::{self, LARGEST_WINDOW};
use throughput::{BufferModel, PathKnowledge};
use units::{Bytes, Duration, Rate};

use crate::evidence::HostConfig;
use crate::text;

/// What a prediction rests on.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The sending host.
    pub sender: &'a HostConfig,
    /// The receiving host.
    pub receiver: &'a HostConfig,
    /// The path.
    pub path: &'a PathKnowledge,
    /// Round trip of the idle path.
    pub idle_rtt: Duration,
    /// Parallel connections; zero counts as one.
    pub streams: u32,
    /// How buffers become windows.
    pub buffers: BufferModel,
    /// Loss rate that does not come from the transfer's own queue, if known.
    pub loss_rate: Option<f64>,
}

/// The expected goodput.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// Payload per second of all streams; `None` when nothing that limits is known.
    pub rate: Option<Rate>,
    /// What sets it.
    pub limit: Limit,
    /// How it was computed, with its numbers.
    pub formula: String,
}

/// What limits a predicted transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// The sender's buffer.
    SendBuffer,
    /// The window that the receiver's buffer allows.
    ReceiveWindow,
    /// TCP's largest window, 1 GiB for each connection.
    LargestWindow,
    /// The congestion control's response to loss.
    Loss,
    /// What writing costs the sender by declaration.
    DeclaredCost,
    /// The path's rate.
    Bottleneck,
    /// Nothing that limits is known.
    Unknown,
}

/// The windows of one connection that buffers allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Payload that the send buffer holds.
    pub send: Option<Bytes>,
    /// Window that the receiver may advertise.
    pub receive: Option<Bytes>,
}

impl Setup<'_> {
    /// The windows of one connection.
    pub fn windows(&self) -> Windows {
        Windows {
            send: send_buffer(self.sender).map(|b| self.buffers.send_payload(b)),
            receive: receive_buffer(self.receiver).map(|b| self.buffers.receive_window(b)),
        }
    }

    fn stream_count(&self) -> u64 {
        u64::from(self.streams.max(1))
    }
}

/// The goodput to expect, what sets it, and the formula with its numbers.
pub fn predict(setup: &Setup<'_>) -> Prediction {
    let candidates = [
        window_candidate(setup),
        loss_candidate(setup),
        cost_candidate(setup),
        path_candidate(setup),
    ];
    // The first of equals: a window that just fits the path is still what sets the rate.
    let smallest = candidates.into_iter().flatten().min_by_key(|c| c.rate);
    match smallest {
        Some(c) if c.rate > FASTEST_LINK => Prediction {
            rate: None,
            limit: Limit::Unknown,
            formula: format!(
                "buffers hold more in {} than any link carries; the path's rate is not known",
                setup.idle_rtt
            ),
        },
        Some(c) => Prediction {
            rate: Some(c.rate),
            limit: c.limit,
            formula: c.formula,
        },
        None => Prediction {
            rate: None,
            limit: Limit::Unknown,
            formula: "neither buffers nor the path's rate are known".to_owned(),
        },
    }
}

/// IEEE 802.3dj, the fastest Ethernet there is: a prediction above it says nothing.
const FASTEST_LINK: Rate = Rate::from_bits_per_second(1_600_000_000_000);

/// Largest size that the send buffer may take.
pub(crate) fn send_buffer(host: &HostConfig) -> Option<Bytes> {
    host.sndbuf_fixed
        .or_else(|| host.tcp_wmem_bytes.map(|sizes| Bytes::new(sizes[2])))
}

/// Largest size that the receive buffer may take.
pub(crate) fn receive_buffer(host: &HostConfig) -> Option<Bytes> {
    host.rcvbuf_fixed
        .or_else(|| host.tcp_rmem_bytes.map(|sizes| Bytes::new(sizes[2])))
}

struct Candidate {
    rate: Rate,
    limit: Limit,
    formula: String,
}

fn window_candidate(setup: &Setup<'_>) -> Option<Candidate> {
    let windows = setup.windows();
    let named = [
        (windows.receive, Limit::ReceiveWindow, "receive window"),
        (windows.send, Limit::SendBuffer, "send buffer"),
    ];
    let mut parts: Vec<(Bytes, Limit, &str)> = named
        .into_iter()
        .filter_map(|(size, limit, name)| Some((size?, limit, name)))
        .collect();
    if parts.is_empty() {
        return None;
    }
    if parts.iter().all(|&(size, ..)| size >= LARGEST_WINDOW) {
        parts = vec![(LARGEST_WINDOW, Limit::LargestWindow, "largest TCP window")];
    }
    let &(window, limit, _) = parts.iter().min_by_key(|&&(size, ..)| size)?;
    let one = models::window_limit(window, setup.idle_rtt)?;
    let rate = times(one, setup.stream_count());
    let list: Vec<String> = parts
        .iter()
        .map(|(size, _, name)| format!("{size} {name}"))
        .collect();
    let list = if list.len() > 1 {
        format!("min({})", list.join(", "))
    } else {
        list.concat()
    };
    let per_rtt = format!("{}{list} / {}", text::times(setup.streams), setup.idle_rtt);
    Some(Candidate {
        rate,
        limit,
        formula: format!("{per_rtt} = {rate}"),
    })
}

fn loss_candidate(setup: &Setup<'_>) -> Option<Candidate> {
    let p = setup.loss_rate?;
    let (name, one) = loss_response(setup.sender, setup.path, setup.idle_rtt, p)?;
    let rate = times(one, setup.stream_count());
    let loss = text::loss(p);
    let formula = format!(
        "{}{name} at {loss} loss and {} = {rate}",
        text::times(setup.streams),
        setup.idle_rtt
    );
    Some(Candidate {
        rate,
        limit: Limit::Loss,
        formula,
    })
}

fn cost_candidate(setup: &Setup<'_>) -> Option<Candidate> {
    let cost = setup.sender.write_cost.as_ref()?;
    let bill = cost.bill(setup.path.mss_bytes())?;
    let rate = bill.rate(setup.streams)?;
    let formula = format!("{}, a declared cost = {rate}", bill.quotient(setup.streams));
    Some(Candidate {
        rate,
        limit: Limit::DeclaredCost,
        formula,
    })
}

fn path_candidate(setup: &Setup<'_>) -> Option<Candidate> {
    let rate = setup.path.achievable_rate()?;
    let formula = match setup.path.bottleneck {
        Some(wire) => format!("TCP payload of {wire} on the wire = {rate}"),
        None => format!("TCP payload of the path = {rate}"),
    };
    Some(Candidate {
        rate,
        limit: Limit::Bottleneck,
        formula,
    })
}

/// Rate of one connection of that sender at loss rate `p`, and the model's name. BBR does not slow
/// down for the loss rates that the models cover: no limit.
pub(crate) fn loss_response(
    sender: &HostConfig,
    path: &PathKnowledge,
    rtt: Duration,
    p: f64,
) -> Option<(&'static str, Rate)> {
    let mss = path.mss_bytes();
    if sender.congestion_control_is("bbr") {
        return None;
    }
    if sender.congestion_control_is("reno") {
        let rate = models::mathis(mss, rtt, p, models::AckPolicy::EveryPacket)?;
        return Some(("Reno", rate));
    }
    Some(("CUBIC", models::cubic(mss, rtt, p)?))
}

fn times(rate: Rate, n: u64) -> Rate {
    Rate::from_bits_per_second(rate.as_bits_per_second().saturating_mul(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declared::WriteCost;

    fn host(rmem_max: u64, wmem_max: u64) -> HostConfig {
        HostConfig {
            tcp_rmem_bytes: Some([4_096, 131_072, rmem_max]),
            tcp_wmem_bytes: Some([4_096, 16_384, wmem_max]),
            congestion_control: "cubic".to_owned(),
            ..HostConfig::default()
        }
    }

    fn of(sender: &HostConfig, receiver: &HostConfig, path: &PathKnowledge) -> Prediction {
        predict(&setup(sender, receiver, path))
    }

    fn setup<'a>(
        sender: &'a HostConfig,
        receiver: &'a HostConfig,
        path: &'a PathKnowledge,
    ) -> Setup<'a> {
        Setup {
            sender,
            receiver,
            path,
            idle_rtt: Duration::from_us(85_020),
            streams: 1,
            buffers: BufferModel::LINUX,
            loss_rate: None,
        }
    }

    fn gigabit() -> PathKnowledge {
        PathKnowledge {
            bottleneck: Some(Rate::from_bits_per_second(1_000_000_000)),
            mtu_bytes: Some(1_500),
            ..PathKnowledge::default()
        }
    }

    #[test]
    fn the_smaller_buffer_sets_the_rate() {
        let small = host(65_536, 65_536);
        let found = of(&small, &small, &gigabit());
        assert_eq!(found.limit, Limit::ReceiveWindow);
        let formula = "min(39.32 kB receive window, 58.98 kB send buffer) / 85.02 ms = 3.7 Mb/s";
        assert_eq!(found.formula, formula);

        let found = of(&host(0, 65_536), &host(1 << 26, 0), &gigabit());
        assert_eq!(found.limit, Limit::SendBuffer);
        let formula = "min(40.27 MB receive window, 58.98 kB send buffer) / 85.02 ms = 5.55 Mb/s";
        assert_eq!(found.formula, formula);
    }

    #[test]
    fn large_buffers_leave_the_bottleneck() {
        let large = host(1 << 26, 1 << 26);
        let found = of(&large, &large, &gigabit());
        assert_eq!(found.limit, Limit::Bottleneck);
        assert_eq!(
            found.formula,
            "TCP payload of 1 Gb/s on the wire = 941.5 Mb/s"
        );
    }

    #[test]
    fn a_fixed_buffer_overrules_autotuning() {
        let large = host(1 << 26, 1 << 26);
        let fixed = HostConfig {
            rcvbuf_fixed: Some(Bytes::new(425_984)),
            ..large.clone()
        };
        let found = of(&large, &fixed, &gigabit());
        assert_eq!(found.limit, Limit::ReceiveWindow);
        assert_eq!(found.rate.unwrap().to_string(), "24.05 Mb/s");
    }

    #[test]
    fn nothing_is_predicted_above_the_fastest_link() {
        let large = host(1 << 26, 1 << 26);
        let nothing = PathKnowledge::default();
        let loopback = |us| {
            predict(&Setup {
                idle_rtt: Duration::from_us(us),
                ..setup(&large, &large, &nothing)
            })
        };
        // 40.27 MB in 201 us are 1.6025 Tb/s, in 202 us 1.5946 Tb/s.
        assert_eq!(loopback(201).rate, None);
        assert!(loopback(202).rate.is_some());
    }

    #[test]
    fn no_buffer_carries_one_stream_beyond_the_largest_window() {
        // measurement-and-diagnosis.md, section 1: 28.6 Gb/s at 300 ms.
        let huge = host(1 << 32, 1 << 32);
        let nothing = PathKnowledge::default();
        let long = Setup {
            idle_rtt: Duration::from_ms(300),
            ..setup(&huge, &huge, &nothing)
        };
        let found = predict(&long);
        assert_eq!(found.limit, Limit::LargestWindow);
        assert_eq!(
            found.formula,
            "1 GiB largest TCP window / 300 ms = 28.63 Gb/s"
        );
        let four = predict(&Setup { streams: 4, ..long });
        assert_eq!(
            four.formula,
            "4 x 1 GiB largest TCP window / 300 ms = 114.5 Gb/s"
        );
    }

    #[test]
    fn known_loss_limits_cubic_but_not_bbr() {
        let large = host(1 << 26, 1 << 26);
        let path = gigabit();
        let lossy = Setup {
            loss_rate: Some(1e-3),
            ..setup(&large, &large, &path)
        };
        let found = predict(&lossy);
        assert_eq!(found.limit, Limit::Loss);
        assert_eq!(
            found.formula,
            "CUBIC at 0.1 % (1 in 1,000) loss and 85.02 ms = 5.277 Mb/s"
        );
        let bbr = HostConfig {
            congestion_control: "bbr".to_owned(),
            ..large.clone()
        };
        assert_eq!(
            predict(&Setup {
                sender: &bbr,
                ..lossy
            })
            .limit,
            Limit::Bottleneck
        );
    }

    #[test]
    fn a_declared_cost_limits_below_what_the_path_carries() {
        let costing = |bits| HostConfig {
            write_cost: Some(WriteCost {
                write: Bytes::new(128 << 10),
                copy: Some(Rate::from_bits_per_second(bits)),
                ..WriteCost::default()
            }),
            ..host(1 << 26, 1 << 26)
        };
        let large = host(1 << 26, 1 << 26);
        let found = of(&costing(500_000_000), &large, &gigabit());
        assert_eq!(found.limit, Limit::DeclaredCost);
        assert_eq!(
            found.formula,
            "128 KiB / 2.097 ms, a declared cost = 500 Mb/s"
        );
        let path = gigabit();
        let sender = costing(300_000_000);
        let streams = |streams| Setup {
            streams,
            ..setup(&sender, &large, &path)
        };
        let three = predict(&streams(3));
        assert_eq!(three.rate.unwrap().to_string(), "900 Mb/s");
        assert!(
            three.formula.starts_with("3 x 128 KiB"),
            "{}",
            three.formula
        );
        // What four would spend the path does not carry.
        assert_eq!(predict(&streams(4)).limit, Limit::Bottleneck);
        // A receiver's is nobody's to spend.
        let found = of(&large, &costing(1_000), &gigabit());
        assert_eq!(found.limit, Limit::Bottleneck);
    }

    #[test]
    fn nothing_known_predicts_nothing() {
        let unknown = HostConfig::default();
        let found = of(&unknown, &unknown, &PathKnowledge::default());
        assert_eq!((found.rate, found.limit), (None, Limit::Unknown));
    }
}
