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

/// One host's probing.
#[derive(Debug)]
pub(crate) struct Prober {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<io::Result<Vec<Departure>>>,
    receiver: JoinHandle<io::Result<Vec<Arrival>>>,
}

/// A probe that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) sequence: u32,
    pub(crate) stamp_realtime_ns: u64,
}

/// What one host saw: the departures of its own probes, the arrivals of the other's.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostStamps {
    pub(crate) departures: Vec<Departure>,
    pub(crate) arrivals: Vec<Arrival>,
}

impl Prober {
    /// Starts to probe from `own` to `other` and to receive the other's probes.
    pub(crate) fn start(ns: &NetNs, own: Ipv4Addr, other: Ipv4Addr) -> io::Result<Self> {
        let socket = ns.run(|| -> io::Result<StampedSocket> {
            let socket = UdpSocket::bind(SocketAddrV4::new(own, PORT))?;
            socket.connect(SocketAddrV4::new(other, PORT))?;
            socket.set_read_timeout(Some(READ_TIMEOUT))?;
            StampedSocket::new(socket)
        })??;
        let socket = Arc::new(socket);
        let stop = Arc::new(AtomicBool::new(false));
        let sender = {
            let (socket, stop) = (Arc::clone(&socket), Arc::clone(&stop));
            thread::Builder::new()
                .name("probe-tx".into())
                .spawn(move || send(&socket, &stop))?
        };
        let receiver = {
            let stop = Arc::clone(&stop);
            thread::Builder::new()
                .name("probe-rx".into())
                .spawn(move || receive(&socket, &stop))?
        };
        Ok(Self {
            stop,
            sender,
            receiver,
        })
    }

    /// Stops probing; the receiver stays until `drain` after the last probe.
    pub(crate) fn finish(self, drain: StdDuration) -> io::Result<HostStamps> {
        self.stop.store(true, Ordering::Relaxed);
        let panicked = |_| io::Error::other("a probe thread panicked");
        let departures = self.sender.join().map_err(panicked)??;
        thread::sleep(drain);
        // The receiver ends at its first idle read after the stop.
        let arrivals = self.receiver.join().map_err(panicked)??;
        Ok(HostStamps {
            departures,
            arrivals,
        })
    }
}

fn send(socket: &StampedSocket, stop: &AtomicBool) -> io::Result<Vec<Departure>> {
    let mut departures = Vec::with_capacity(4_096);
    let mut payload = [0_u8; PAYLOAD_BYTES];
    payload[..MAGIC.len()].copy_from_slice(MAGIC);
    let mut sequence = 0_u32;
    while !stop.load(Ordering::Relaxed) && departures.len() < PROBES_MAX {
        payload[MAGIC.len()..].copy_from_slice(&sequence.to_be_bytes());
        match socket.socket().send(&payload) {
            Ok(_) => sequence += 1,
            // A full transmit buffer or a refused port at the far side: the next one may pass.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => sequence += 1,
            Err(e) => return Err(e),
        }
        thread::sleep(INTERVAL);
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
                if let (Some(sequence), Some(stamp_realtime_ns)) =
                    (sequence, datagram.stamp_realtime_ns)
                    && arrivals.len() < PROBES_MAX
                {
                    arrivals.push(Arrival {
                        sequence,
                        stamp_realtime_ns,
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
pub(crate) fn sequence_of(frame: &[u8]) -> Option<u32> {
    if frame.len() != FRAME_BYTES {
        return None;
    }
    payload_sequence(&frame[FRAME_BYTES - PAYLOAD_BYTES..])
}

fn payload_sequence(payload: &[u8]) -> Option<u32> {
    let number = payload.strip_prefix(MAGIC)?;
    Some(u32::from_be_bytes(number.try_into().ok()?))
}

/// RFC 862's discard would answer nothing either, but a port of our own cannot be mistaken.
const PORT: u16 = 5211;
const MAGIC: &[u8; 16] = b"goodput-probe-v1";
const PAYLOAD_BYTES: usize = MAGIC.len() + 4;
const FRAME_BYTES: usize = 14 + 20 + 8 + PAYLOAD_BYTES;
/// 200 probes a second: 20 samples above the 99th percentile in 10 s, 0.02 % of a gigabit.
const INTERVAL: StdDuration = StdDuration::from_millis(5);
const READ_TIMEOUT: StdDuration = StdDuration::from_millis(50);
const PROBES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_probe_frame_is_taken_for_one() {
        let mut frame = vec![0_u8; FRAME_BYTES];
        assert_eq!(sequence_of(&frame), None);
        frame[42..58].copy_from_slice(MAGIC);
        frame[58..62].copy_from_slice(&7_u32.to_be_bytes());
        assert_eq!(sequence_of(&frame), Some(7));
        assert_eq!(sequence_of(&frame[1..]), None);
        frame.push(0);
        assert_eq!(sequence_of(&frame), None);
    }
}
