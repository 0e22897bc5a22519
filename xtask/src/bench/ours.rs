//! Our own transfers between the two hosts of a site: TCP by the measure crate, and datagrams.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::Context as _;
use measure::{Client, Config, Limits, MeasureError, Outcome, Server, Stop};
use sys::clock;
use units::{Bytes, Duration};

use super::site::{CONGESTION_CONTROL, End};

/// One stream from near to far: `omit_s` seconds that do not count, then `seconds` that do.
pub(crate) fn tcp(
    near: &End<'_>,
    far: &End<'_>,
    omit_s: u64,
    seconds: u64,
) -> anyhow::Result<Outcome> {
    let (ramp, counted) = (Duration::from_s(omit_s), Duration::from_s(seconds));
    transfer(near, far, CONGESTION_CONTROL, ramp, ramp + counted)
}

/// One stream of a congestion control of its own, all of which counts.
pub(crate) fn tcp_by(
    near: &End<'_>,
    far: &End<'_>,
    congestion: &str,
    seconds: u64,
) -> anyhow::Result<Outcome> {
    transfer(
        near,
        far,
        congestion,
        Duration::ZERO,
        Duration::from_s(seconds),
    )
}

/// A short transfer that nobody counts: a fresh lab meets its memory for the first time, and whoever
/// came first would pay for that.
pub(crate) fn warm_up(near: &End<'_>, far: &End<'_>) -> anyhow::Result<()> {
    transfer(near, far, CONGESTION_CONTROL, Duration::ZERO, WARM_UP).map(drop)
}

fn transfer(
    near: &End<'_>,
    far: &End<'_>,
    congestion: &str,
    ramp: Duration,
    duration: Duration,
) -> anyhow::Result<Outcome> {
    let config = Config {
        duration,
        ramp,
        congestion: Some(congestion.to_owned()),
        ..Config::default()
    };
    let address = SocketAddr::from((far.address(), measure::DEFAULT_PORT));
    let serving = Stop::new();
    thread::scope(|scope| {
        let (ready, bound) = mpsc::channel();
        let (stop, far) = (serving.clone(), *far);
        let server = scope.spawn(move || {
            far.run(|| -> Result<(), MeasureError> {
                let server = Server::bind(address, Limits::default());
                // Whoever waits for it is in this function, until it has heard.
                let _ = ready.send(());
                server?.serve(&stop)
            })
        });
        let result = match bound.recv() {
            Ok(()) => near.run(|| {
                let mut client = Client::connect_addr(address, CONNECT_TIMEOUT)?;
                client.run(&config, &Stop::new(), &mut |_| {})
            }),
            Err(_) => Err(anyhow::anyhow!("the far end did not start")),
        };
        serving.stop();
        let served = server.join().ok().context("the far end panicked")?;
        served??;
        Ok(result??)
    })
}

/// What became of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Datagrams {
    /// Accepted by the sender's kernel.
    pub(crate) sent: u64,
    /// Refused by it (full buffers).
    pub(crate) refused: u64,
    /// Read by the receiving program.
    pub(crate) received: u64,
    /// Lost in the receiver's socket buffer, after the path.
    pub(crate) lost_socket: u64,
    /// Time of sending.
    pub(crate) wall: Duration,
    /// CPU of the sending thread, with what the kernel does on its account.
    pub(crate) near_cpu: Duration,
    /// CPU of the receiving thread.
    pub(crate) far_cpu: Duration,
}

/// Sends datagrams of `payload_bytes` from near to far as fast as one call each allows.
pub(crate) fn datagrams(
    near: &End<'_>,
    far: &End<'_>,
    payload_bytes: usize,
    seconds: u64,
) -> anyhow::Result<Datagrams> {
    // A socket stays in the namespace of its birth, whichever thread uses it.
    let sink = far.run(|| UdpSocket::bind((far.address(), UDP_PORT)))??;
    sink.set_read_timeout(Some(READ_TIMEOUT.to_std()))?;
    // As much as the machine allows without force.
    sys::tcp::set_receive_buffer(sink.as_fd(), SINK_BUFFER)?;
    let source = near.run(|| -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind((near.address(), 0))?;
        socket.connect((far.address(), UDP_PORT))?;
        Ok(socket)
    })??;
    let lost_before = socket_losses(far)?;
    let stop = AtomicBool::new(false);
    let mut result = thread::scope(|scope| -> io::Result<Datagrams> {
        let receiver = scope.spawn(|| receive(&sink, &stop));
        let sender = scope.spawn(|| send(&source, payload_bytes, Duration::from_s(seconds)));
        let gone = |_| io::Error::other("a thread panicked");
        let sent = sender.join().map_err(gone).flatten();
        stop.store(true, Ordering::Relaxed);
        let (received, far_cpu) = receiver.join().map_err(gone)??;
        Ok(Datagrams {
            received,
            far_cpu,
            ..sent?
        })
    })?;
    result.lost_socket = socket_losses(far)?.saturating_sub(lost_before);
    Ok(result)
}

fn send(socket: &UdpSocket, payload_bytes: usize, time: Duration) -> io::Result<Datagrams> {
    let payload = vec![0x67_u8; payload_bytes];
    let (mut sent, mut refused) = (0, 0);
    let (start, cpu) = (clock::monotonic(), clock::thread_cpu());
    while clock::monotonic().saturating_since(start) < time {
        // The clock is looked at once in so many calls, or it would be measured too.
        for _ in 0..SENDS_A_LOOK {
            match socket.send(&payload) {
                Ok(_) => sent += 1,
                Err(e) if is_full(&e) => refused += 1,
                Err(e) => return Err(e),
            }
        }
    }
    Ok(Datagrams {
        sent,
        refused,
        wall: clock::monotonic().saturating_since(start),
        near_cpu: clock::thread_cpu() - cpu,
        ..Datagrams::default()
    })
}

/// ENOBUFS has no name in std.
fn is_full(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ENOBUFS) || error.kind() == io::ErrorKind::WouldBlock
}

/// Counts until nothing has come for a while after the stop.
fn receive(socket: &UdpSocket, stop: &AtomicBool) -> io::Result<(u64, Duration)> {
    let mut buffer = [0; 2_048];
    let mut received = 0;
    let cpu = clock::thread_cpu();
    loop {
        match socket.recv(&mut buffer) {
            Ok(_) => received += 1,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if stop.load(Ordering::Relaxed) {
                    return Ok((received, clock::thread_cpu() - cpu));
                }
            }
            Err(e) => return Err(e),
        }
    }
}

/// Datagrams that found their socket's buffer full, in the host since it was made.
fn socket_losses(end: &End<'_>) -> anyhow::Result<u64> {
    let text = end.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))??;
    snmp(&text, "Udp", "RcvbufErrors").context("/proc/net/snmp lacks Udp: RcvbufErrors")
}

/// A counter of /proc/net/snmp: a line of names and a line of values for each protocol.
fn snmp(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| {
        let (head, rest) = line.split_once(':')?;
        (head == protocol).then(|| rest.split_ascii_whitespace())
    });
    let (mut names, mut values) = (lines.next()?, lines.next()?);
    let at = names.position(|n| n == name)?;
    values.nth(at)?.parse().ok()
}

/// Several times what it takes to fill the ring of a path without a rate (some 40 MB) once.
const WARM_UP: Duration = Duration::from_ms(200);
const CONNECT_TIMEOUT: Duration = Duration::from_s(10);
/// Beside iperf3's, ours and the lab's probes.
const UDP_PORT: u16 = 5_219;
const READ_TIMEOUT: Duration = Duration::from_ms(200);
/// 4 MiB: what net.core.rmem_max is on most machines, about 5 ms of small datagrams.
const SINK_BUFFER: Bytes = Bytes::new(4 << 20);
const SENDS_A_LOOK: u32 = 64;
/// errno(3) on Linux.
const ENOBUFS: i32 = 105;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let text = "Tcp: A B\nTcp: 7 8\nUdp: InDatagrams RcvbufErrors\nUdp: 5 6\nUdpLite: \
                    InDatagrams RcvbufErrors\nUdpLite: 1 2\n";
        assert_eq!(snmp(text, "Udp", "RcvbufErrors"), Some(6));
        assert_eq!(snmp(text, "Udp", "Other"), None);
        assert_eq!(snmp("Udp: A\n", "Udp", "A"), None);
    }
}
