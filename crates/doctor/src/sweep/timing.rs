//! How long each transfer of a sweep takes, and where its ends run.

use std::net::IpAddr;

use measure::{Client, Config, Transport};
use units::Duration;

use super::{Axis, Kind};

/// Ramp and whole duration: long enough for slow start to end and for some round trips after it. Within a
/// machine (`apart`) there are thousands of those in a few milliseconds, and transfers differ more among each
/// other than in their course: many short ones say more. What was typed goes first.
pub(super) fn times(
    rtt: Duration,
    apart: bool,
    duration: Option<Duration>,
    ramp: Option<Duration>,
) -> (Duration, Duration) {
    let least = if apart { WITHIN } else { BETWEEN };
    let enough = least.0.max(rtt.saturating_mul(RAMP_ROUND_TRIPS));
    if let Some(whole) = duration {
        let half = Duration::from_ns(whole.as_ns() / 2);
        return (ramp.unwrap_or_else(|| enough.min(half)), whole);
    }
    let measured = least.1.max(rtt.saturating_mul(MEASURED_ROUND_TRIPS));
    let ramp = ramp.unwrap_or(enough);
    (ramp, ramp + measured)
}

/// Whether both ends are on one machine and the sweep's transfers have a stream each, so that each end
/// can have a CPU of its own. Where the scheduler puts the two decides more than most settings:
/// on a virtual machine with two CPUs 64 KiB buffers gave 17 Gb/s with an end on each and 27 to 34 Gb/s
/// with both on one, and transfers change between the two as they go.
pub(super) fn apart(client: &Client, config: &Config, axes: &[Axis]) -> bool {
    let fits = matches!(config.transport, Transport::Tcp | Transport::Tls);
    let alone = config.streams == 1 && !axes.iter().any(|axis| axis.kind == Kind::Streams);
    let near = client.local_addr().map(|local| local.ip());
    let room = sys::sched::cpus().len() > 1;
    fits && alone && room && is_own(client.addr().ip(), near)
}

/// An address that packets do not leave the machine for: loopback, or the own one.
fn is_own(far: IpAddr, near: Option<IpAddr>) -> bool {
    far.to_canonical().is_loopback() || near == Some(far)
}

/// Least ramp and least time measured between two machines; a queue may be longer than the idle path.
const BETWEEN: (Duration, Duration) = (Duration::from_ms(200), Duration::from_ms(500));
/// Of these, within one: some ticks of its scheduler.
const WITHIN: (Duration, Duration) = (Duration::from_ms(50), Duration::from_ms(200));
/// From ten segments (RFC 6928) to forty thousand.
const RAMP_ROUND_TRIPS: u64 = 12;
const MEASURED_ROUND_TRIPS: u64 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_follows_the_round_trip_and_what_was_typed() {
        let ms = Duration::from_ms;
        let cases = [
            (0, true, (50, 250)),
            (0, false, (200, 700)),
            (20, false, (240, 740)),
            (100, false, (1200, 1800)),
        ];
        for (rtt, apart, (ramp, whole)) in cases {
            let found = times(ms(rtt), apart, None, None);
            assert_eq!(found, (ms(ramp), ms(whole)), "{rtt}");
        }
        let typed =
            |duration, ramp: Option<u64>| times(ms(9), false, Some(ms(duration)), ramp.map(ms));
        assert_eq!(typed(80, None), (ms(40), ms(80)));
        assert_eq!(typed(800, None), (ms(200), ms(800)));
        assert_eq!(typed(80, Some(7)), (ms(7), ms(80)));
        // A ramp alone: the time measured is what it would have been.
        let ramp = |typed| times(ms(9), false, None, Some(ms(typed)));
        assert_eq!(ramp(7), (ms(7), ms(507)));
        assert_eq!(ramp(3_000), (ms(3_000), ms(3_500)));
    }

    #[test]
    fn one_machine_is_told_by_its_addresses() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for far in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert!(is_own(ip(far), None), "{far}");
        }
        let near = Some(ip("192.0.2.1"));
        assert!(is_own(ip("192.0.2.1"), near));
        assert!(!is_own(ip("192.0.2.2"), near));
        assert!(!is_own(ip("2001:db8::1"), None));
    }
}
