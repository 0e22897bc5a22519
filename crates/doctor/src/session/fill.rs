//! What a path carries, by trains of datagrams: a queue that is kept busy lets out the path's own rate.

use lab::Certificate;
use measure::{Config, Sending, Stop, Transport, WriteCosts};
use report::model::FillTrain;
use units::{Bytes, Duration, Rate};

use super::{Extras, Site, Transfer, hosts, path_mtu};
use crate::watcher::{NotesOnly, Watcher};
use fault::Failure;

/// A path as trains found it.
pub(crate) struct Found {
    /// In the order sent.
    pub trains: Vec<FillTrain>,
    /// On the wire, Ethernet around each packet.
    pub rate: Rate,
    /// Largest packet that both ends' routes carry.
    pub mtu_bytes: u32,
    /// Smallest round trip while idle.
    pub idle_rtt: Duration,
    /// The host could not send faster: the path may carry more.
    pub host_limited: bool,
    /// What the last train was sent with: facts of both ends.
    last: Transfer,
}

/// What a search brought back.
#[derive(Debug)]
struct Searched<T> {
    trains: Vec<FillTrain>,
    /// Payload a second that the path lets through.
    payload: u64,
    host_limited: bool,
    /// Of the last train.
    last: T,
}

impl Site {
    /// Finds the rate: trains that are four times as fast each, until one comes out slower than it went in;
    /// then a longer one a little above what came.
    pub(crate) fn find_rate(
        &self,
        config: &Config,
        stop: &Stop,
        extras: Extras,
        watcher: &mut dyn Watcher,
    ) -> Result<Found, Failure> {
        let before = self.before(config, extras);
        let mut number = 0;
        let Searched {
            trains,
            payload,
            host_limited,
            last,
        } = search(|rate, duration| -> Result<(FillTrain, Transfer), Failure> {
            let config = of_train(config, rate, duration);
            let (transfer, certificate) =
                self.transfer(&config, &before, stop, &mut NotesOnly(watcher))?;
            if transfer.outcome.interrupted {
                return Err(measure::MeasureError::Interrupted.into());
            }
            let outcome = &transfer.outcome;
            let counts = outcome.datagrams().unwrap_or_default();
            let took = outcome.sender.duration.max(duration);
            let sent = Rate::average(Bytes::new(outcome.sender.bytes), took);
            let received = outcome.goodput_after_ramp();
            number += 1;
            watcher.note(&format!("train {number}: {sent} sent, {received} received"));
            let train = FillTrain {
                rate_bits_per_second: rate,
                sent_bits_per_second: sent.as_bits_per_second(),
                received_bits_per_second: received.as_bits_per_second(),
                datagrams: counts.sent,
                receiver_dropped: counts.dropped,
                lab_trusted: certificate.as_ref().map(Certificate::trusted),
            };
            Ok((train, transfer))
        })?;
        let each = u64::from(last.outcome.config.block_bytes).max(1);
        let mtu_bytes = path_mtu(&last.near, &last.far.host).unwrap_or(1_500);
        let on_wire = u128::from(u64::from(mtu_bytes) + ETHERNET_BYTES);
        let raw = u128::from(payload) * on_wire / u128::from(each);
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

/// A train in place of the transfer that is to come. What that asks of TCP is not the train's.
fn of_train(config: &Config, rate: u64, duration: Duration) -> Config {
    Config {
        streams: 1,
        transport: Transport::Udp,
        congestion: None,
        max_pacing: None,
        rate: Some(Rate::from_bits_per_second(rate)),
        // What fits the path's MTU.
        block_bytes: measure::BLOCK_BYTES_DEFAULT,
        // A receiver with less room than usual drops what the path let through.
        send_buffer: None,
        receive_buffer: None,
        sending: Sending::Write,
        file: None,
        costs: WriteCosts::default(),
        duration,
        ramp: Duration::from_ns(duration.as_ns() / 2),
        ..config.clone()
    }
}

/// Sends trains of the rates and durations that tell most, and judges by them.
fn search<T, E>(
    mut send: impl FnMut(u64, Duration) -> Result<(FillTrain, T), E>,
) -> Result<Searched<T>, E> {
    let mut trains = Vec::new();
    let mut rate = FIRST;
    let mut came = 0;
    let host_limited = loop {
        let (train, _) = send(rate, TRAIN)?;
        let (sent, received) = (train.sent_bits_per_second, train.received_bits_per_second);
        trains.push(train);
        let slow_path = below(received, KEPT, sent.min(rate));
        // Hosts that are overrun may take in less than the train before brought.
        came = received.max(came);
        if slow_path || below(sent, KEPT, rate) {
            break !slow_path;
        }
        rate *= GROWTH;
    };
    let rate = last_train(came, host_limited);
    // The short trains are too coarse to be compared.
    let (mut payload, mut tries) = (0, 0);
    let last = loop {
        let (train, last) = send(rate, LAST_TRAIN)?;
        tries += 1;
        payload = train.received_bits_per_second.max(payload);
        // A receiver that has no time for datagrams says nothing of the path.
        let whole = train.receiver_dropped * DROPPED_OF <= train.datagrams;
        trains.push(train);
        if whole || tries >= TRIES {
            break last;
        }
    };
    Ok(Searched {
        trains,
        payload,
        host_limited,
        last,
    })
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
    let rate = if host_limited {
        came
    } else {
        came + came / ABOVE
    };
    if rate < LEAST { LEAST } else { rate }
}

/// Whether `x` is below that many hundredths of `of`.
const fn below(x: u64, hundredths: u64, of: u64) -> bool {
    (x as u128) * 100 < (of as u128) * (hundredths as u128)
}

/// 16 Mb/s, slower than paths that are worth filling.
const FIRST: u64 = 16_000_000;
/// However little came, the last train is this fast.
const LEAST: u64 = FIRST / GROWTH;
/// From a train to the next.
const GROWTH: u64 = 4;
/// A train that comes at 95 % of its rate was not held up.
const KEPT: u64 = 95;
/// The last train is a sixteenth faster than the path.
const ABOVE: u64 = 16;
/// The later half counts: it finds the queue filled, or shows that there is room.
const TRAIN: Duration = Duration::from_s(1);
/// One of so many datagrams may find the receiver's socket full.
const DROPPED_OF: u64 = 1_000;
const TRIES: u32 = 3;
/// A millisecond of it is 0.05 % of what counts.
const LAST_TRAIN: Duration = Duration::from_s(4);
/// Preamble, header, check sequence and gap (IEEE 802.3).
const ETHERNET_BYTES: u64 = 38;

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const MB: u64 = 1_000_000;

    /// What becomes of a train: Mb/s sent and received, drops at the receiver of a thousand datagrams.
    type Fate = (u64, u64, u64);

    /// Searches a path that does to each train what the list says; the rates asked for.
    fn searched(fates: &[Fate]) -> (Vec<u64>, Searched<usize>) {
        let mut asked = Vec::new();
        let searched = search(|rate, duration| {
            let (sent, received, dropped) = fates[asked.len()];
            asked.push(rate);
            let long = asked.len() > 1 && duration == LAST_TRAIN;
            assert!(long || duration == TRAIN);
            let train = FillTrain {
                rate_bits_per_second: rate,
                sent_bits_per_second: sent * MB,
                received_bits_per_second: received * MB,
                datagrams: 1_000,
                receiver_dropped: dropped,
                ..FillTrain::default()
            };
            Ok::<_, Infallible>((train, asked.len()))
        });
        let Ok(searched) = searched;
        assert_eq!(asked.len(), fates.len(), "{searched:?}");
        (asked, searched)
    }

    #[test]
    fn a_train_that_overran_the_hosts_does_not_hide_what_the_one_before_brought() {
        let (asked, searched) = searched(&[
            (16, 16, 0),
            (64, 64, 0),
            (256, 255, 0),
            (1_024, 1_020, 0),
            (4_096, 365, 0),
            (1_083, 1_030, 0),
        ]);
        let wanted = [16, 64, 256, 1_024, 4_096].map(|rate| rate * MB);
        assert_eq!(asked[..5], wanted);
        assert_eq!(asked[5], 1_020 * MB / 16 * 17);
        assert_eq!(searched.payload, 1_030 * MB);
        assert_eq!((searched.trains.len(), searched.last), (6, 6));
        assert!(!searched.host_limited);
    }

    #[test]
    fn a_host_slower_than_its_train_does_not_hide_a_path_that_is_slower_still() {
        let (asked, searched) = searched(&[
            (16, 16, 0),
            (64, 64, 0),
            (256, 256, 0),
            (700, 500, 0),
            (531, 505, 0),
        ]);
        assert_eq!(asked[4], 500 * MB / 16 * 17);
        assert!(!searched.host_limited);
    }

    #[test]
    fn a_train_of_95_percent_is_whole() {
        let (asked, _) = searched(&[(16, 16, 0), (64, 61, 0), (243, 243, 0), (243, 240, 0)]);
        // 243 of 256 is less, and it was the host that sent no more.
        assert_eq!(asked, [16, 64, 256, 243].map(|rate| rate * MB));
        let (asked, _) = searched(&[(16, 16, 0), (64, 60, 0), (63, 61, 0)]);
        assert_eq!(asked, [16 * MB, 64 * MB, 60 * MB / 16 * 17]);
    }

    #[test]
    fn a_host_that_cannot_send_faster_is_not_asked_to() {
        let (asked, searched) = searched(&[(16, 16, 0), (64, 64, 0), (200, 200, 0), (200, 199, 0)]);
        assert_eq!(asked[3], 200 * MB);
        assert_eq!(searched.payload, 199 * MB);
        assert!(searched.host_limited);
    }

    #[test]
    fn a_path_below_the_first_train_is_found_too() {
        let (asked, found) = searched(&[(16, 8, 0), (8, 7, 0)]);
        assert_eq!(asked, [16 * MB, 8 * MB / 16 * 17]);
        assert_eq!(found.payload, 7 * MB);
        // Nothing came: a rate of none would send nothing.
        let (asked, found) = searched(&[(16, 0, 0), (4, 0, 0)]);
        assert_eq!(asked, [16 * MB, 4 * MB]);
        assert_eq!(found.payload, 0);
    }

    #[test]
    fn the_last_train_is_tried_again_where_the_receiver_dropped() {
        let before = [(16, 16, 0), (64, 47, 0)];
        let rates = |fates: &[Fate]| searched(&[&before, fates].concat());
        // One of a thousand is nothing.
        let (_, found) = rates(&[(49, 45, 1)]);
        assert_eq!(found.payload, 45 * MB);
        let (asked, found) = rates(&[(49, 30, 2), (49, 46, 0)]);
        assert_eq!(found.payload, 46 * MB);
        assert_eq!(asked[2], asked[3]);
        // Of three tries the most counts, and none of the trains before.
        let (_, found) = rates(&[(49, 30, 9), (49, 44, 9), (49, 40, 9)]);
        assert_eq!((found.payload, found.last), (44 * MB, 5));
    }

    #[test]
    fn a_train_writes_plainly_whatever_the_transfer_does() {
        let costs = WriteCosts {
            call: Duration::from_us(12),
            ..WriteCosts::default()
        };
        let file = Some("/etc/hostname".into());
        let asked = [
            Config {
                sending: Sending::ZeroCopy,
                ..Config::default()
            },
            Config {
                sending: Sending::Sendfile,
                file,
                ..Config::default()
            },
            Config {
                costs,
                ..Config::default()
            },
            Config {
                send_buffer: Some(Bytes::new(65_536)),
                receive_buffer: Some(Bytes::new(65_536)),
                congestion: Some("bbr".to_owned()),
                streams: 4,
                ..Config::default()
            },
        ];
        for config in asked {
            let train = of_train(&config, FIRST, TRAIN);
            train.check().unwrap();
            assert_eq!(train, of_train(&Config::default(), FIRST, TRAIN));
        }
    }
}
