//! One-way delay between two hosts, judged by their kernels' stamps alone.
//!
//! As the lab's own probes, 200 small datagrams a second each way, stamped as the sender's driver
//! takes them and as the receiver's kernel first sees them. Nothing here knows what joins the hosts, so
//! a lab and a qdisc are judged alike. What it cannot tell is the delay that was due where a queue
//! decides it: it is for paths of a constant delay.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sys::clock;
use sys::stamp::StampedSocket;
use units::{Bytes, Duration, Rate};

use super::site::{End, INTERFACE, Site};

/// What probing found, both ways together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probed {
    /// Delay less what was asked for in nanoseconds, sorted.
    pub(crate) errors_ns: Vec<i64>,
    /// Departed and never arrived.
    pub(crate) lost: u64,
    /// Full frames sent beside the probes from near to far.
    pub(crate) frames_sent: u64,
    /// Of these and the probes, how many the far host's interface saw.
    pub(crate) frames_arrived: u64,
    /// Time of sending.
    pub(crate) wall: Duration,
}

/// Frames and bytes of a host's interface since it was made; a super-frame counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    pub(crate) received_bytes: u64,
    pub(crate) received_frames: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) sent_frames: u64,
}

/// Probes for `time` on a path of `delay` each way, beside full frames at `load` from near to far.
pub(crate) fn probe(
    site: &Site,
    delay: Duration,
    load: Option<Rate>,
    time: Duration,
) -> anyhow::Result<Probed> {
    let (near, far) = (site.near(), site.far());
    let sockets = [stamped(&near, &far)?, stamped(&far, &near)?];
    let (source, _sink) = bulk(&near, &far)?;
    let before = carried(&far)?;
    let (stop, drained) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut probed = Probed::default();
    thread::scope(|scope| -> anyhow::Result<()> {
        let senders = sockets.each_ref().map(|s| scope.spawn(|| send(s, &stop)));
        let receivers = sockets
            .each_ref()
            .map(|s| scope.spawn(|| receive(s, &drained)));
        let loaded = match load {
            Some(rate) => fill(&source, rate, time),
            None => {
                thread::sleep(time.to_std());
                Ok((0, time))
            }
        };
        stop.store(true, Ordering::Relaxed);
        let gone = |_| io::Error::other("a probing thread panicked");
        let mut departures = Vec::new();
        for sender in senders {
            departures.push(sender.join().map_err(gone)??);
        }
        thread::sleep((delay + DRAIN).to_std());
        drained.store(true, Ordering::Relaxed);
        let mut arrivals = Vec::new();
        for receiver in receivers {
            arrivals.push(receiver.join().map_err(gone)??);
        }
        (probed.frames_sent, probed.wall) = loaded?;
        for (from, to) in [(0, 1), (1, 0)] {
            compare(&departures[from], &arrivals[to], delay, &mut probed);
        }
        Ok(())
    })?;
    probed.frames_arrived = carried(&far)?.received_frames - before.received_frames;
    probed.errors_ns.sort_unstable();
    Ok(probed)
}

/// What `end`'s interface has carried.
pub(crate) fn carried(end: &End<'_>) -> anyhow::Result<Carried> {
    let text = end.run(|| std::fs::read_to_string("/proc/thread-self/net/dev"))??;
    carried_of(&text).ok_or_else(|| anyhow::anyhow!("/proc/net/dev lacks {INTERFACE}"))
}

/// The value below which so many thousandths of the sorted `values` lie; 0 of nothing.
pub(crate) fn permille(values: &[i64], share: usize) -> i64 {
    let at = (values.len() * share / 1_000).min(values.len().saturating_sub(1));
    values.get(at).copied().unwrap_or(0)
}

fn stamped(own: &End<'_>, other: &End<'_>) -> anyhow::Result<StampedSocket> {
    let (own_address, other_address) = (own.address(), other.address());
    Ok(own.run(move || -> io::Result<StampedSocket> {
        let socket = UdpSocket::bind(SocketAddrV4::new(own_address, PROBE_PORT))?;
        socket.connect(SocketAddrV4::new(other_address, PROBE_PORT))?;
        socket.set_read_timeout(Some(READ_TIMEOUT.to_std()))?;
        StampedSocket::new(socket)
    })??)
}

/// A socket to fill the path from, and one at the far end that nobody reads: the kernel drops what
/// does not fit, which costs least.
fn bulk(near: &End<'_>, far: &End<'_>) -> anyhow::Result<(UdpSocket, UdpSocket)> {
    let to = SocketAddrV4::new(far.address(), BULK_PORT);
    let sink = far.run(|| UdpSocket::bind(to))??;
    sys::tcp::set_receive_buffer(sink.as_fd(), Bytes::new(4_096))?;
    let from = SocketAddrV4::new(near.address(), BULK_PORT);
    let source = near.run(|| -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind(from)?;
        socket.connect(to)?;
        Ok(socket)
    })??;
    Ok((source, sink))
}

/// Departures by their kernel's numbers, which are ours as well. A bridge hands on the sender's frame
/// itself, and its port's driver stamps it once more, behind netem: the first stamp is the host's.
fn send(socket: &StampedSocket, stop: &AtomicBool) -> io::Result<BTreeMap<u32, u64>> {
    let mut departures = BTreeMap::new();
    let mut collect = || -> io::Result<()> {
        while let Some(departure) = socket.departure()? {
            let first = departures.entry(departure.id);
            first.or_insert(departure.stamp_realtime_ns);
        }
        Ok(())
    };
    let mut payload = [0_u8; PAYLOAD_BYTES];
    let mut number = 0_u32;
    while !stop.load(Ordering::Relaxed) {
        payload[..4].copy_from_slice(&number.to_be_bytes());
        socket.socket().send(&payload)?;
        number += 1;
        thread::sleep(INTERVAL.to_std());
        collect()?;
    }
    // The last one may still wait in a qdisc of the host's own.
    thread::sleep(INTERVAL.to_std());
    collect()?;
    Ok(departures)
}

fn receive(socket: &StampedSocket, drained: &AtomicBool) -> io::Result<HashMap<u32, Option<u64>>> {
    let mut arrivals = HashMap::new();
    let mut buffer = [0_u8; 256];
    loop {
        match socket.receive(&mut buffer) {
            Ok(datagram) if datagram.len == PAYLOAD_BYTES => {
                let number = u32::from_be_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]);
                arrivals.insert(number, datagram.stamp_realtime_ns);
            }
            Ok(_) => {}
            Err(e) if is_idle(&e) => {
                if drained.load(Ordering::Relaxed) {
                    return Ok(arrivals);
                }
            }
            Err(e) => return Err(e),
        }
    }
}

fn is_idle(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// Adds the errors of one direction. A probe that came without a stamp, as the first ones may, is
/// neither right nor lost.
fn compare(
    departures: &BTreeMap<u32, u64>,
    arrivals: &HashMap<u32, Option<u64>>,
    delay: Duration,
    probed: &mut Probed,
) {
    let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
    for (number, departed) in departures {
        match arrivals.get(number) {
            Some(Some(arrived)) => {
                let took = signed(*arrived) - signed(*departed);
                probed.errors_ns.push(took - signed(delay.as_ns()));
            }
            Some(None) => {}
            None => probed.lost += 1,
        }
    }
}

/// Sends full frames for `time`, evenly as far as a thread can that sleeps between: as many as are due
/// by now, then a pause. What it cannot send in time is left out, not caught up.
fn fill(socket: &UdpSocket, rate: Rate, time: Duration) -> io::Result<(u64, Duration)> {
    let payload = [0x67_u8; BULK_PAYLOAD_BYTES];
    let frame_ns = (BULK_WIRE_BYTES * 8 * 1_000_000_000 / rate.as_bits_per_second().max(1)).max(1);
    let start = clock::monotonic();
    let (mut sent, mut due_ns) = (0, 0);
    loop {
        let now = clock::monotonic().saturating_since(start);
        if now >= time {
            return Ok((sent, now));
        }
        due_ns = due_ns.max(now.as_ns().saturating_sub(BEHIND_MAX.as_ns()));
        while due_ns <= now.as_ns() {
            match socket.send(&payload) {
                Ok(_) => sent += 1,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.raw_os_error() == Some(ENOBUFS) => {}
                Err(e) => return Err(e),
            }
            due_ns += frame_ns;
        }
        thread::sleep(FILL_PAUSE.to_std());
    }
}

/// proc_net_dev(5): eight numbers received, eight sent, bytes and frames first.
fn carried_of(text: &str) -> Option<Carried> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, numbers) = lines.find(|(name, _)| name.trim() == INTERFACE)?;
    let numbers = numbers.split_ascii_whitespace().map(|n| n.parse().ok());
    let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
    let [received_bytes, received_frames, ..] = numbers[..] else {
        return None;
    };
    Some(Carried {
        received_bytes,
        received_frames,
        sent_bytes: *numbers.get(8)?,
        sent_frames: *numbers.get(9)?,
    })
}

/// As the lab's own: 200 a second.
const INTERVAL: Duration = Duration::from_ms(5);
/// As the lab's own.
const PAYLOAD_BYTES: usize = 24;
/// Beside the lab's own, iperf3's and ours.
const PROBE_PORT: u16 = 5_220;
const BULK_PORT: u16 = 5_221;
/// An Ethernet frame of 1,500 bytes of IP.
const BULK_PAYLOAD_BYTES: usize = 1_472;
/// With preamble, header, check sequence and gap.
const BULK_WIRE_BYTES: u64 = 1_538;
/// 16 frames at 1 Gb/s.
const FILL_PAUSE: Duration = Duration::from_us(200);
/// Longer stalls are not made up for with a burst of more than 160 frames at 1 Gb/s.
const BEHIND_MAX: Duration = Duration::from_ms(2);
const READ_TIMEOUT: Duration = Duration::from_ms(100);
/// Several times the lateness that would be news.
const DRAIN: Duration = Duration::from_ms(300);
/// errno(3) on Linux.
const ENOBUFS: i32 = 105;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_sorted_values() {
        let values: Vec<i64> = (0..1_000).collect();
        assert_eq!(permille(&values, 500), 500);
        assert_eq!(permille(&values, 999), 999);
        assert_eq!(permille(&values[..10], 999), 9);
        assert_eq!(permille(&[], 500), 0);
    }

    #[test]
    fn early_late_lost_and_unstamped_probes_are_told_apart() {
        let departures = BTreeMap::from([(0, 1_000), (1, 2_000), (2, 3_000), (3, 4_000)]);
        let arrivals = HashMap::from([(0, Some(1_600)), (1, Some(2_400)), (3, None)]);
        let mut probed = Probed::default();
        compare(&departures, &arrivals, Duration::from_ns(500), &mut probed);
        assert_eq!((&probed.errors_ns[..], probed.lost), (&[100, -100][..], 1));
    }

    #[test]
    fn counters_are_those_of_the_hosts_interface() {
        let text = "Inter-| Receive | Transmit\n face |bytes packets errs\n\
                    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
                    eth0: 21 22 3 4 5 6 7 8 29 30 11 12 13 14 15 16\n";
        let carried = Carried {
            received_bytes: 21,
            received_frames: 22,
            sent_bytes: 29,
            sent_frames: 30,
        };
        assert_eq!(carried_of(text), Some(carried));
        assert_eq!(carried_of("eth0: 1 2 3\n"), None);
        assert_eq!(carried_of(""), None);
    }

    #[test]
    fn frames_are_sent_at_their_rate_or_below() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(socket.local_addr().unwrap()).unwrap();
        let rate = Rate::from_bits_per_second(BULK_WIRE_BYTES * 8 * 1_000);
        let (sent, wall) = fill(&socket, rate, Duration::from_ms(50)).unwrap();
        // One is due at the start, and one each millisecond since.
        assert!(
            sent >= 1 && sent <= wall.as_ns() / 1_000_000 + 1,
            "{sent} in {wall}"
        );
    }
}
