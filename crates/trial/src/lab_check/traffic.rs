//! Traffic for a check: datagrams of our own, paced and in bursts, or TCP by iperf3.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use fault::Cause;
use lab::{Host, Lab};
use measure::Stop;
use serde::Serialize;
use sys::child::Ended;
use sys::threads;
use units::{Bytes, Rate};

/// Who sends to whom, as host numbers.
pub(super) type Pair = (usize, usize);

/// What is sent.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) pairs: Vec<Pair>,
    /// Of each host that sends, network layer bytes.
    pub(super) rate: Rate,
    /// Frames in a row to one destination; above 1 the bursts of all hosts begin together.
    pub(super) burst: u32,
    /// Of each datagram.
    pub(super) payload: Bytes,
    pub(super) time: Duration,
}

/// What became of what one host sent to another, as the programs at both ends have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Flow {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
}

/// Sends datagrams; all hosts begin together.
pub(super) fn datagrams(lab: &Lab, load: &Load, stop: &Stop) -> Result<Vec<Flow>, Cause> {
    let hosts = lab.hosts();
    let over = AtomicBool::new(false);
    let begin = Instant::now() + HEAD_START;
    thread::scope(|scope| {
        let receivers: Vec<_> = (0..hosts.len())
            .map(|to| {
                let over = &over;
                threads::scoped(scope, "gp-hears", move || {
                    hosts[to].run(|| receive(&hosts[to], over))
                })
            })
            .collect();
        // Bursts are to meet: two threads would send them one after the other where CPUs are few.
        let all: Vec<usize> = (0..hosts.len()).collect();
        let groups = all.chunks(if load.burst > 1 { all.len().max(1) } else { 1 });
        let senders: Vec<_> = groups
            .map(|group| {
                let group = group.to_vec();
                threads::scoped(scope, "gp-sends", move || {
                    send(hosts, &group, load, begin, stop)
                })
            })
            .collect();
        let sent: Vec<_> = senders
            .into_iter()
            .map(|s| s.map(ScopedJoinHandle::join))
            .collect();
        thread::sleep(TAIL);
        over.store(true, Ordering::Relaxed);
        let mut flows = Vec::new();
        let mut came = Vec::new();
        for receiver in receivers {
            came.push(receiver?.join().map_err(|_| "a receiver panicked")???);
        }
        for sent in sent {
            let sent = sent?.map_err(|_| "a sender panicked")??;
            for ((from, to), sent_bytes) in sent {
                let received_bytes = came[to].get(&hosts[from].address()).copied();
                flows.push(Flow {
                    from: hosts[from].name().to_owned(),
                    to: hosts[to].name().to_owned(),
                    sent_bytes,
                    received_bytes: received_bytes.unwrap_or(0),
                });
            }
        }
        Ok(flows)
    })
}

/// A host's sockets, one for each that it sends to.
fn outlets(hosts: &[Host], from: usize, load: &Load) -> Result<Vec<(Pair, UdpSocket)>, Cause> {
    let mut sockets = Vec::new();
    for &pair in load.pairs.iter().filter(|p| p.0 == from) {
        // Bound to no destination, datagrams have no identification; connected ones count theirs.
        let socket = UdpSocket::bind((hosts[from].address(), 0))?;
        socket.connect((hosts[pair.1].address(), PORT))?;
        sockets.push((pair, socket));
    }
    Ok(sockets)
}

/// Sends what the hosts of a group send, their bursts frame by frame in turns; payload bytes of each
/// pair.
fn send(
    hosts: &[Host],
    group: &[usize],
    load: &Load,
    begin: Instant,
    stop: &Stop,
) -> Result<BTreeMap<Pair, u64>, Cause> {
    let mut senders = Vec::new();
    for &from in group {
        let sockets = hosts[from].run(|| outlets(hosts, from, load))??;
        if !sockets.is_empty() {
            senders.push(sockets);
        }
    }
    let payload = vec![0; usize::try_from(load.payload.as_u64())?];
    let bits = 8 * (load.payload.as_u64() + HEADER_BYTES) * u64::from(load.burst);
    let period_ns = u128::from(bits) * 1_000_000_000 / u128::from(load.rate.as_bits_per_second());
    let period = Duration::from_nanos(u64::try_from(period_ns)?);
    let mut sent = BTreeMap::new();
    let mut due = begin;
    for turn in 0.. {
        if senders.is_empty() || due >= begin + load.time || stop.is_stopped() {
            break;
        }
        thread::sleep(due.saturating_duration_since(Instant::now()));
        for _ in 0..load.burst {
            for sockets in &senders {
                let (pair, socket) = &sockets[turn % sockets.len()];
                // The socket waits for room; a queue without any (a network that is down) says so.
                match socket.send(&payload) {
                    Ok(bytes) => *sent.entry(*pair).or_insert(0) += bytes as u64,
                    Err(e) if is_passing(&e) => {}
                    Err(_) => return Err("sending a datagram".into()),
                }
            }
        }
        due += period;
    }
    Ok(sent)
}

/// ICMP that came back for an earlier datagram, or a queue that was full.
fn is_passing(e: &std::io::Error) -> bool {
    use std::io::ErrorKind as Kind;
    matches!(
        e.kind(),
        Kind::ConnectionRefused
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::WouldBlock
    ) || e.raw_os_error() == Some(ENOBUFS)
}

/// Payload bytes that came, by sender.
fn receive(host: &Host, over: &AtomicBool) -> Result<BTreeMap<Ipv4Addr, u64>, Cause> {
    let socket = UdpSocket::bind((host.address(), PORT))?;
    let _ = sys::tcp::set_receive_buffer(socket.as_fd(), Bytes::new(4 << 20));
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    let mut buffer = vec![0; 65_536];
    let mut came = BTreeMap::new();
    while !over.load(Ordering::Relaxed) {
        match socket.recv_from(&mut buffer) {
            Ok((bytes, std::net::SocketAddr::V4(from))) => {
                *came.entry(*from.ip()).or_insert(0) += bytes as u64;
            }
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(came)
}

/// One iperf3 connection for each pair, each of so many bytes at so much a second.
pub(super) fn iperf3(lab: &Lab, load: &Load, stop: &Stop) -> Result<Vec<Flow>, Cause> {
    let hosts = lab.hosts();
    thread::scope(|scope| {
        let runs: Vec<_> = load
            .pairs
            .iter()
            .map(|&(from, to)| {
                let flows = load.pairs.iter().filter(|p| p.0 == from).count() as u64;
                let rate = load.rate.as_bits_per_second() / flows.max(1);
                let bytes = rate / 8 * load.time.as_secs().max(1);
                threads::scoped(scope, "gp-flow", move || {
                    one_iperf3(&hosts[from], &hosts[to], from, rate, bytes, stop)
                })
            })
            .collect();
        runs.into_iter()
            .map(|r| {
                r?.join()
                    .unwrap_or_else(|_| Err("a thread panicked".into()))
            })
            .collect()
    })
}

fn one_iperf3(
    from: &Host,
    to: &Host,
    number: usize,
    rate: u64,
    bytes: u64,
    stop: &Stop,
) -> Result<Flow, Cause> {
    let port = (IPERF3_PORT + number).to_string();
    let mut server = quiet(to.program("iperf3")?);
    let mut server = Ended::start(server.args(["-s", "-1", "-p", &port]))
        .map_err(|_| "iperf3 cannot be started; install it (Debian: apt-get install iperf3)")?;
    let address = to.address().to_string();
    let (rate, count) = (rate.to_string(), bytes.to_string());
    for _ in 0..TRIES {
        if stop.is_stopped() {
            break;
        }
        thread::sleep(PAUSE);
        // Its receiver does not count what is under way at the end: small blocks keep that small.
        let args = [
            "-c", &address, "-p", &port, "-J", "-n", &count, "-b", &rate, "-l", "8K",
        ];
        let output = from.program("iperf3")?.args(args).output()?;
        if !output.status.success() {
            continue;
        }
        server.wait()?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let number = |at: &str| report.pointer(at).and_then(serde_json::Value::as_u64);
        return Ok(Flow {
            from: from.name().to_owned(),
            to: to.name().to_owned(),
            sent_bytes: number("/end/sum_sent/bytes").ok_or("iperf3 says no bytes sent")?,
            received_bytes: number("/end/sum_received/bytes").ok_or("nor received")?,
        });
    }
    Err(format!("iperf3 from {} to {} failed", from.name(), to.name()).into())
}

fn quiet(mut program: Command) -> Command {
    program
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    program
}

/// Until all hosts are ready to send.
const HEAD_START: Duration = Duration::from_millis(300);
/// For the receivers to empty their sockets.
const TAIL: Duration = Duration::from_millis(500);
const PORT: u16 = 5212;
const IPERF3_PORT: usize = 5300;
/// IPv4 and UDP.
pub(super) const HEADER_BYTES: u64 = 28;
const ENOBUFS: i32 = 105;
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);
