//! Probe frames that judge the lab: small UDP datagrams stamped by the hosts' kernels.
//!
//! A probe takes the same way as every frame, queue included. The forwarder notes when it came and
//! when it was due; the hosts' kernels say when it left and when it was there. The error is
//! `(arrival - departure by the hosts) - (due - arrival by the forwarder)`: what the lab added to
//! the delay that the path file asked for.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration as StdDuration;

use sys::netns::NetNs;
use sys::stamp::{Departure, StampedSocket};
use sys::threads;
use units::Rate;

/// One host's probing.
#[derive(Debug)]
pub(crate) struct Prober {
    stop: StopOnDrop,
    /// Ends the receiver.
    deaf: StopOnDrop,
    phase: u32,
    sender: JoinHandle<io::Result<Vec<Departure>>>,
    receiver: JoinHandle<io::Result<Vec<Arrival>>>,
}

/// Ends the threads of a phase that was given up.
#[derive(Debug)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A probe that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Phase in the upper half, number within it in the lower.
    pub(crate) sequence: u64,
    /// Absent where the kernel gave none, as it may right after stamps were turned on.
    pub(crate) stamp_realtime_ns: Option<u64>,
}

/// What one host saw: the departures of its own probes, the arrivals of the other's.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostStamps {
    /// Sequence and kernel stamp of each departure.
    pub(crate) departures: Vec<(u64, u64)>,
    pub(crate) arrivals: Vec<Arrival>,
}

/// A host's socket for probes. Both hosts' are to be open before either sends: on a path without much delay
/// the first probe would find nobody, and count as lost.
#[derive(Debug)]
pub(crate) struct ProbeSocket(StampedSocket);

impl ProbeSocket {
    /// In the namespace of `own`, for probes to and from `other`.
    pub(crate) fn open(ns: &NetNs, own: Ipv4Addr, other: Ipv4Addr) -> io::Result<Self> {
        ns.run(|| Self::between(own, other))?
    }

    fn between(own: Ipv4Addr, other: Ipv4Addr) -> io::Result<Self> {
        let socket = UdpSocket::bind(SocketAddrV4::new(own, PORT))?;
        socket.connect(SocketAddrV4::new(other, PORT))?;
        socket.set_read_timeout(Some(READ_TIMEOUT))?;
        StampedSocket::new(socket).map(Self)
    }
}

impl Prober {
    /// Starts to send a probe each `interval`, and to receive the other host's.
    pub(crate) fn start(
        socket: ProbeSocket,
        phase: u32,
        interval: StdDuration,
    ) -> io::Result<Self> {
        let socket = Arc::new(socket.0);
        let [stop, deaf] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let sender = {
            let (socket, stop) = (Arc::clone(&socket), Arc::clone(&stop));
            threads::spawn("probe-tx", move || send(&socket, &stop, phase, interval))?
        };
        let receiver = {
            let deaf = Arc::clone(&deaf);
            threads::spawn("probe-rx", move || receive(&socket, &deaf))?
        };
        Ok(Self {
            stop: StopOnDrop(stop),
            deaf: StopOnDrop(deaf),
            phase,
            sender,
            receiver,
        })
    }

    /// Stops probing; the receiver stays until `drain` after the last probe.
    pub(crate) fn finish(self, drain: StdDuration) -> io::Result<HostStamps> {
        self.stop.0.store(true, Ordering::Relaxed);
        let panicked = |_| io::Error::other("a probe thread panicked");
        let departures = self.sender.join().map_err(panicked)??;
        thread::sleep(drain);
        // The receiver ends at its first idle read from now on. Before, it may be idle for as long as the
        // path takes: no probe of a short phase may have arrived yet.
        self.deaf.0.store(true, Ordering::Relaxed);
        let arrivals = self.receiver.join().map_err(panicked)??;
        let keyed = |d: Departure| (key(self.phase, d.id), d.stamp_realtime_ns);
        Ok(HostStamps {
            departures: departures.into_iter().map(keyed).collect(),
            arrivals,
        })
    }
}

fn send(
    socket: &StampedSocket,
    stop: &AtomicBool,
    phase: u32,
    interval: StdDuration,
) -> io::Result<Vec<Departure>> {
    let mut departures = Vec::with_capacity(4_096);
    let mut payload = [0_u8; PAYLOAD_BYTES];
    payload[..MAGIC.len()].copy_from_slice(MAGIC);
    let mut sequence = 0_u32;
    while !stop.load(Ordering::Relaxed) && departures.len() < PROBES_MAX {
        payload[MAGIC.len()..].copy_from_slice(&key(phase, sequence).to_be_bytes());
        match socket.socket().send(&payload) {
            Ok(_) => sequence += 1,
            // A full transmit buffer or a refused port at the far side: the next one may pass.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => sequence += 1,
            Err(e) => return Err(e),
        }
        thread::sleep(interval);
        collect(socket, &mut departures)?;
    }
    collect(socket, &mut departures)?;
    Ok(departures)
}

fn collect(socket: &StampedSocket, departures: &mut Vec<Departure>) -> io::Result<()> {
    while let Some(departure) = socket.departure()? {
        departures.push(departure);
    }
    Ok(())
}

fn receive(socket: &StampedSocket, stop: &AtomicBool) -> io::Result<Vec<Arrival>> {
    let mut arrivals = Vec::with_capacity(4_096);
    let mut buffer = [0_u8; 256];
    loop {
        match socket.receive(&mut buffer) {
            Ok(datagram) => {
                let sequence = payload_sequence(&buffer[..datagram.len]);
                if let Some(sequence) = sequence
                    && arrivals.len() < PROBES_MAX
                {
                    arrivals.push(Arrival {
                        sequence,
                        stamp_realtime_ns: datagram.stamp_realtime_ns,
                    });
                }
            }
            Err(e) if is_idle(&e) => {
                if stop.load(Ordering::Relaxed) {
                    return Ok(arrivals);
                }
            }
            Err(e) => return Err(e),
        }
    }
}

fn is_idle(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(
        error.kind(),
        WouldBlock | TimedOut | Interrupted | ConnectionRefused
    )
}

/// The probe's number when `frame` (Ethernet, IPv4 without options, UDP) is one.
pub(crate) fn sequence_of(frame: &[u8]) -> Option<u64> {
    if frame.len() != FRAME_BYTES {
        return None;
    }
    payload_sequence(&frame[FRAME_BYTES - PAYLOAD_BYTES..])
}

fn payload_sequence(payload: &[u8]) -> Option<u64> {
    let number = payload.strip_prefix(MAGIC)?;
    Some(u64::from_be_bytes(number.try_into().ok()?))
}

/// Phase and number in one, so that a late probe of an earlier phase is not taken for a new one.
fn key(phase: u32, number: u32) -> u64 {
    u64::from(phase) << 32 | u64::from(number)
}

/// The time between probes on a path of that rate, and of so many packets a second: 5 ms, and no more than a
/// thousandth of the rate and a hundredth of the packets.
pub(crate) fn interval(rate: Option<Rate>, packets_per_second: Option<u64>) -> StdDuration {
    let wire_bytes = u64::from(wire::train::wire_bytes(FRAME_WIRE));
    let at_most = rate.map_or(0, |r| {
        wire_bytes * 8 * 1_000 * 1_000_000_000 / r.as_bits_per_second().max(1)
    });
    let packets = packets_per_second.map_or(0, |n| 100 * 1_000_000_000 / n.max(1));
    INTERVAL.max(StdDuration::from_nanos(at_most.max(packets)))
}

/// A port of our own cannot be mistaken for anybody's service.
const PORT: u16 = 5211;
const MAGIC: &[u8; 16] = b"goodput-probe-v1";
const PAYLOAD_BYTES: usize = MAGIC.len() + 8;
const FRAME_BYTES: usize = 14 + 20 + 8 + PAYLOAD_BYTES;
const FRAME_WIRE: u32 = 14 + 20 + 8 + 24;
const _: () = assert!(FRAME_BYTES == FRAME_WIRE as usize);
/// 200 probes a second: 20 samples above the 99th percentile in 10 s, 0.014 % of a gigabit.
const INTERVAL: StdDuration = StdDuration::from_millis(5);
const READ_TIMEOUT: StdDuration = StdDuration::from_millis(50);
const PROBES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_take_a_thousandth_of_a_slow_path_at_most() {
        let ms = |rate: &str| interval(rate.parse().ok(), None).as_millis();
        assert_eq!(ms("1Gb/s"), 5);
        // 90 bytes on the wire are 720 bits.
        assert_eq!(ms("1Mb/s"), 720);
        assert_eq!(interval(None, None).as_millis(), 5);
    }

    #[test]
    fn probes_take_a_hundredth_of_a_packet_budget_at_most() {
        let ms = |budget| interval(None, Some(budget)).as_millis();
        assert_eq!([ms(45_000), ms(2_500), ms(1_000)], [5, 40, 100]);
    }

    #[test]
    fn probes_sent_before_the_other_host_looks_are_received() {
        let ends = [Ipv4Addr::new(127, 61, 0, 1), Ipv4Addr::new(127, 61, 0, 2)];
        let [near, far] = [(0, 1), (1, 0)]
            .map(|(own, other)| ProbeSocket::between(ends[own], ends[other]).unwrap());
        let interval = StdDuration::from_millis(1);
        let near = Prober::start(near, 7, interval).unwrap();
        thread::sleep(StdDuration::from_millis(20));
        let far = Prober::start(far, 7, interval).unwrap();
        // A receiver ends when nothing comes: both stop at once.
        let drain = StdDuration::from_millis(10);
        let (near, far) = thread::scope(|scope| {
            let near = scope.spawn(|| near.finish(drain).unwrap());
            let far = scope.spawn(|| far.finish(drain).unwrap());
            (near.join().unwrap(), far.join().unwrap())
        });
        assert!(!near.departures.is_empty());
        let arrived =
            |(sequence, _): &(u64, u64)| far.arrivals.iter().any(|a| a.sequence == *sequence);
        assert!(near.departures.iter().all(arrived), "{near:?} {far:?}");
    }

    #[test]
    fn only_a_whole_probe_frame_is_taken_for_one() {
        let mut frame = vec![0_u8; FRAME_BYTES];
        assert_eq!(sequence_of(&frame), None);
        frame[42..58].copy_from_slice(MAGIC);
        frame[58..66].copy_from_slice(&key(0, 7).to_be_bytes());
        assert_eq!(sequence_of(&frame), Some(7));
        assert_eq!(sequence_of(&frame[1..]), None);
        frame.push(0);
        assert_eq!(sequence_of(&frame), None);
    }
}
