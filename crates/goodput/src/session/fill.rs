//! What a path carries, by trains of datagrams: a queue that is kept busy lets out the path's own rate.

use measure::{Config, Stop, Transport};
use report::model::FillTrain;
use units::{Bytes, Duration, Rate};

use super::{Extras, Site, Transfer, hosts, path_mtu};
use crate::context;
use crate::failure::Failure;

/// A path as trains found it.
pub(crate) struct Found {
    /// In the order sent.
    pub(crate) trains: Vec<FillTrain>,
    /// On the wire, Ethernet around each packet.
    pub(crate) rate: Rate,
    /// Largest packet that both ends' routes carry.
    pub(crate) mtu_bytes: u32,
    /// Smallest round trip while idle.
    pub(crate) idle_rtt: Duration,
    /// The host could not send faster: the path may carry more.
    pub(crate) host_limited: bool,
    /// What the last train was sent with: facts of both ends.
    last: Transfer,
}

impl Site {
    /// Finds the rate: trains that are four times as fast each, until one comes out slower than it went in;
    /// then a longer one a little above what came.
    pub(crate) fn find_rate(
        &self,
        config: &Config,
        stop: &Stop,
        extras: Extras,
    ) -> Result<Found, Failure> {
        let before = self.before(config, extras);
        let mut trains = Vec::new();
        let mut send = |rate: u64, duration: Duration| -> Result<(FillTrain, Transfer), Failure> {
            let config = Config {
                streams: 1,
                transport: Transport::Udp,
                congestion: None,
                max_pacing: None,
                rate: Some(Rate::from_bits_per_second(rate)),
                // What fits the path's MTU.
                block_bytes: u32::from(u16::MAX),
                duration,
                ramp: Duration::from_ns(duration.as_ns() / 2),
                ..config.clone()
            };
            let (transfer, _) = self.transfer(&config, &before, stop, &mut |_| {})?;
            if transfer.outcome.interrupted {
                return Err(measure::MeasureError::Interrupted.into());
            }
            let outcome = &transfer.outcome;
            let took = outcome.sender.duration.max(duration);
            let sent = Rate::average(Bytes::new(outcome.sender.bytes), took);
            let train = FillTrain {
                rate_bits_per_second: rate,
                sent_bits_per_second: sent.as_bits_per_second(),
                received_bits_per_second: outcome.goodput_after_ramp().as_bits_per_second(),
            };
            context::note(format_args!(
                "train {}: {sent} sent, {} received",
                trains.len() + 1,
                outcome.goodput_after_ramp()
            ));
            trains.push(train.clone());
            Ok((train, transfer))
        };
        let mut rate = FIRST;
        let mut came = 0;
        let host_limited = loop {
            let (train, _) = send(rate, TRAIN)?;
            let host_limited = below(train.sent_bits_per_second, KEPT, rate);
            // Hosts that are overrun may take in less than the train before brought.
            came = train.received_bits_per_second.max(came);
            if host_limited || below(train.received_bits_per_second, KEPT, rate) {
                break host_limited;
            }
            rate *= GROWTH;
        };
        let rate = last_train(came, host_limited);
        let mut tries = 0_usize;
        let (mut train, last) = loop {
            let (train, transfer) = send(rate.max(FIRST / GROWTH), LAST_TRAIN)?;
            tries += 1;
            let counts = transfer.outcome.datagrams().unwrap_or_default();
            // A receiver that has no time for datagrams says nothing of the path.
            if counts.dropped * DROPPED_OF <= counts.sent || tries >= TRIES {
                break (train, transfer);
            }
        };
        // The short trains are too coarse to be compared.
        let long = trains.iter().rev().take(tries);
        let most = long.map(|t| t.received_bits_per_second).max();
        train.received_bits_per_second = most.unwrap_or(train.received_bits_per_second);
        let payload = u64::from(last.outcome.config.block_bytes).max(1);
        let mtu_bytes = path_mtu(&last.near, &last.far.host).unwrap_or(1_500);
        let on_wire = u128::from(u64::from(mtu_bytes) + ETHERNET_BYTES);
        let raw = u128::from(train.received_bits_per_second) * on_wire / u128::from(payload);
        Ok(Found {
            trains,
            rate: Rate::from_bits_per_second(u64::try_from(raw).unwrap_or(u64::MAX)),
            mtu_bytes,
            idle_rtt: last.outcome.idle_rtt.min,
            host_limited,
            last,
        })
    }
}

impl Found {
    /// Sender and receiver of a transfer as the rules see them.
    pub(crate) fn hosts(&self, config: &Config) -> (explain::HostConfig, explain::HostConfig) {
        hosts(config, &self.last.near, &self.last.far.host)
    }
}

/// Rate of the last train behind others of which `came` was the most that came through.
const fn last_train(came: u64, host_limited: bool) -> u64 {
    // What its own host holds back cannot be overrun.
    if host_limited {
        came
    } else {
        came + came / ABOVE
    }
}

/// Whether `x` is below that many hundredths of `of`.
const fn below(x: u64, hundredths: u64, of: u64) -> bool {
    (x as u128) * 100 < (of as u128) * (hundredths as u128)
}

/// 16 Mb/s, slower than paths that are worth filling.
const FIRST: u64 = 16_000_000;
/// From a train to the next.
const GROWTH: u64 = 4;
/// A train that comes at 95 % of its rate was not held up.
const KEPT: u64 = 95;
/// The last train is a sixteenth faster than the path.
const ABOVE: u64 = 16;
/// Half a second fills a queue or shows that there is room.
const TRAIN: Duration = Duration::from_s(1);
/// One of so many datagrams may find the receiver's socket full.
const DROPPED_OF: u64 = 1_000;
const TRIES: usize = 3;
/// A millisecond of it is 0.05 % of what counts.
const LAST_TRAIN: Duration = Duration::from_s(4);
/// Preamble, header, check sequence and gap (IEEE 802.3).
const ETHERNET_BYTES: u64 = 38;
