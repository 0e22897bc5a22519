//! The data path of UDP at one end: a thread a stream that sends at a set rate or receives and
//! counts, and one sampler thread. Built like [`crate::engine`], with datagrams for blocks.
//!
//! A sender keeps its rate by the clock: what is due is sent at once, up to 64 datagrams in a call,
//! as one piece that the kernel cuts where the path's MTU allows it. So at rates above some 100 Mb/s
//! datagrams leave in bursts of a fraction of a millisecond. A receiver takes the kernel's stamps
//! for arrival times, so that its own scheduling is no jitter.
//!
//! Left out: one-way delay.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use sys::{clock, tcp, udp};
use units::{Bytes, Duration, Instant};

use crate::Config;
use crate::ceiling::time_of;
use crate::crew::Role;
use crate::crew::{Board, Crew, Ended, Rounds, Used};
use crate::datagram::{
    HEADER_BYTES_MAX, Header, KEY_BYTES, KEYED_BYTES, Tally, has_key, write_key,
};
use crate::engine::{Shape, payload};
use crate::outcome::{EndResult, Sample, SampleKind, UdpCounts};
use crate::wait::TICK;
use crate::wait::is_timeout;

/// One reading of one UDP stream at one end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UdpSample {
    /// Stream number from 0.
    pub stream: u16,
    /// Time since the start at that end.
    pub t: Duration,
    /// Payload bytes sent or received, headers included.
    pub bytes: u64,
    /// Highest datagram number sent or received.
    pub packets: u64,
    /// Numbers below it that did not come.
    pub lost: u64,
    /// Datagrams that came after a higher number.
    pub late: u64,
    /// Datagrams that came once more.
    pub duplicates: u64,
    /// RFC 3550 jitter, nanoseconds.
    pub jitter_ns: f64,
    /// Datagrams without the key; in none of the other counts.
    pub foreign: u64,
}

/// How datagrams begin.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Framing {
    /// Their counter has 64 bits.
    pub(crate) wide: bool,
    /// What stands behind the header, in our own protocol.
    pub(crate) key: Option<[u8; KEY_BYTES]>,
}

/// All streams of one end. Dropping it ends them and waits for their threads.
#[derive(Debug)]
pub(crate) struct UdpEngine {
    shared: Arc<Shared>,
    crew: Crew<(), Vec<UdpSample>>,
}

#[derive(Debug)]
struct Shared {
    role: Role,
    sockets: Vec<UdpSocket>,
    counts: Vec<Mutex<UdpSample>>,
    done: AtomicBool,
    board: Board<()>,
    shape: Shape,
    framing: Framing,
    size: usize,
}

impl UdpEngine {
    /// Takes over connected sockets and starts the threads; datagrams have `config.block_bytes`.
    /// `config.ramp` is a reading's time, as in TCP.
    pub(crate) fn prepare(
        role: Role,
        config: &Config,
        sockets: Vec<UdpSocket>,
        shape: Shape,
        framing: Framing,
    ) -> io::Result<Self> {
        for socket in &sockets {
            socket.set_nonblocking(false)?;
            socket.set_read_timeout(Some(TICK.to_std()))?;
            socket.set_write_timeout(Some(TICK.to_std()))?;
            udp::set_stamps(socket.as_fd())?;
            let fast = shape
                .rate
                .is_none_or(|r| r.as_bits_per_second() >= JOIN_FROM);
            if role == Role::Receiver && fast {
                // Without it every datagram comes by itself.
                drop(udp::set_join(socket.as_fd()));
            }
        }
        let size = usize::try_from(config.block_bytes).unwrap_or(usize::MAX);
        let header = framing.key.map_or(HEADER_BYTES_MAX, |_| KEYED_BYTES);
        let shared = Arc::new(Shared {
            role,
            counts: sockets.iter().map(|_| Mutex::default()).collect(),
            board: Board::new(sockets.len(), ()),
            sockets,
            done: AtomicBool::new(false),
            shape,
            framing,
            size: size.clamp(header, udp::SEGMENTED_BYTES_MAX),
        });
        let mut engine = Self {
            shared,
            crew: Crew::new(),
        };
        engine.launch(config)?;
        Ok(engine)
    }

    /// The start mark.
    pub(crate) fn go(&self) {
        self.shared.board.start();
    }

    /// Ends all streams within a tick.
    pub(crate) fn end(&self) {
        self.shared.done.store(true, Ordering::Relaxed);
        self.shared.board.end();
    }

    /// Which end this is.
    pub(crate) fn role(&self) -> Role {
        self.shared.role
    }

    /// Payload bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        (0..self.shared.counts.len())
            .map(|stream| self.shared.count(stream).bytes)
            .sum()
    }

    /// Datagrams of each stream: sent, or received, each counted once.
    pub(crate) fn packets(&self) -> Vec<u64> {
        let counted = |stream| {
            let count = self.shared.count(stream);
            count.packets.saturating_sub(count.lost)
        };
        (0..self.shared.counts.len()).map(counted).collect()
    }

    /// Time since the start mark.
    pub(crate) fn elapsed(&self) -> Duration {
        self.shared.board.elapsed()
    }

    /// True when no data thread is left.
    pub(crate) fn is_finished(&self) -> bool {
        self.shared.board.is_finished()
    }

    /// Collects what the threads found, ending them if they run: readings of both kinds, the last
    /// for each stream being its totals.
    pub(crate) fn finish(mut self) -> (EndResult, Vec<UdpSample>) {
        self.end();
        let started = self.shared.board.state().started;
        let started = started.unwrap_or_else(clock::monotonic);
        let mut result = EndResult {
            start: started,
            ..EndResult::default()
        };
        let (_, sampled) = self.crew.collect(&mut result, |_, ()| {});
        let mut samples = sampled.unwrap_or_default();
        samples.extend(self.shared.round(started));
        result.bytes = self.bytes();
        let streams = 0..self.shared.counts.len();
        result.stream_bytes = streams.map(|s| self.shared.count(s).bytes).collect();
        result.samples = samples.iter().map(plain).collect();
        result.udp = self.shared.totals();
        self.shared.describe(&mut result);
        (result, samples)
    }

    fn launch(&mut self, config: &Config) -> io::Result<()> {
        for stream in 0..self.shared.sockets.len() {
            let shared = Arc::clone(&self.shared);
            self.crew.carry(move || {
                let _leave = shared.board.leave();
                match shared.role {
                    Role::Sender => shared.send(stream),
                    Role::Receiver => shared.receive(stream),
                }
            })?;
        }
        let (shared, config) = (Arc::clone(&self.shared), config.clone());
        self.crew.sample(move || shared.sample_until_end(&config))
    }
}

impl Drop for UdpEngine {
    fn drop(&mut self) {
        self.end();
        self.crew.dismiss();
    }
}

impl Shared {
    fn count(&self, stream: usize) -> MutexGuard<'_, UdpSample> {
        let count = self.counts[stream].lock();
        count.unwrap_or_else(PoisonError::into_inner)
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::Relaxed)
    }

    /// Waits for the start mark; the present when ended before.
    fn await_start(&self) -> Instant {
        self.board.await_start().unwrap_or_else(clock::monotonic)
    }

    fn send(&self, stream: usize) -> Ended<()> {
        let socket = &self.sockets[stream];
        let batch = (udp::SEGMENTED_BYTES_MAX / self.size).clamp(1, udp::BATCH_MAX);
        let mut bytes = payload(batch * self.size);
        if let Some(key) = self.framing.key {
            let datagrams = bytes.chunks_exact_mut(self.size);
            datagrams.for_each(|datagram| write_key(key, datagram));
        }
        let mut cut = self.may_segment(socket);
        let (mut sent, mut failures, mut error) = (0_u64, 0, None);
        let started = self.await_start();
        let before = Used::now();
        while !self.is_done() {
            let due = self.due(started, sent, batch as u64);
            let granted = self.grant(due);
            if due > 0 && granted == 0 {
                break;
            }
            if granted == 0 {
                self.await_next(started, sent);
                continue;
            }
            if !self
                .shape
                .await_turn(granted * self.size as u64, &self.done)
            {
                break;
            }
            let count = usize::try_from(granted).unwrap_or(batch);
            self.stamp(&mut bytes, sent, count);
            let ready = &bytes[..count * self.size];
            match self.hand_over(socket, ready, &mut cut) {
                Ok(n) => {
                    self.give_back(granted - n as u64);
                    sent += n as u64;
                    failures = 0;
                    let mut counts = self.count(stream);
                    counts.packets = sent;
                    counts.bytes = sent * self.size as u64;
                }
                Err(e) => {
                    self.give_back(granted);
                    failures += 1;
                    // ENOBUFS and refusals by ICMP come and go; nothing else goes away so soon.
                    if !is_timeout(&e) && failures > FAILURES_MAX {
                        error = Some(e);
                        break;
                    }
                    std::thread::sleep(FAILURE_PAUSE);
                }
            }
        }
        Ended {
            used: Used::since(before),
            at: clock::monotonic(),
            error: error.map(|e: io::Error| e.to_string()),
            more: (),
        }
    }

    /// Datagrams that the rate allows now, at most `most`.
    fn due(&self, started: Instant, sent: u64, most: u64) -> u64 {
        let Some(rate) = self.shape.rate else {
            return most;
        };
        let elapsed = clock::monotonic().saturating_since(started);
        let bytes = rate.bytes_in(elapsed).as_u64();
        // The first is due at once.
        (bytes / self.size as u64 + 1)
            .saturating_sub(sent)
            .min(most)
    }

    /// Of `wanted` datagrams, those that the budget allows; the last may exceed it by a part.
    fn grant(&self, wanted: u64) -> u64 {
        let Some(budget) = &self.shape.budget else {
            return wanted;
        };
        let size = self.size as u64;
        let take = |left: u64| Some(left.saturating_sub(wanted * size));
        let left = budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        left.unwrap_or(0).div_ceil(size).min(wanted)
    }

    fn give_back(&self, datagrams: u64) {
        self.shape.give_back(datagrams * self.size as u64);
    }

    fn await_next(&self, started: Instant, sent: u64) {
        let Some(rate) = self.shape.rate else { return };
        let next = started + time_of(sent * self.size as u64, rate);
        let wait = next.saturating_since(clock::monotonic());
        // A rounding below the clock's step would spin.
        std::thread::sleep(wait.clamp(Duration::from_us(1), TICK).to_std());
    }

    fn stamp(&self, bytes: &mut [u8], sent: u64, count: usize) {
        let sent_ns = clock::monotonic().as_ns();
        let datagrams = bytes.chunks_exact_mut(self.size).take(count);
        for (datagram, number) in datagrams.zip(sent + 1..) {
            Header { sent_ns, number }.write(self.framing.wide, datagram);
        }
    }

    /// True where the kernel may cut pieces: not where single datagrams exceed the MTU already.
    fn may_segment(&self, socket: &UdpSocket) -> bool {
        let mtu = tcp::path_mtu(socket.as_fd()).unwrap_or(0);
        let ipv4 = |peer: SocketAddr| peer.ip().to_canonical().is_ipv4();
        // IPv6 and UDP, or IPv4 and UDP.
        let headers = match socket.peer_addr() {
            Ok(peer) if ipv4(peer) => 28,
            _ => 48,
        };
        self.size + headers <= usize::try_from(mtu).unwrap_or(0)
    }

    fn hand_over(&self, socket: &UdpSocket, ready: &[u8], cut: &mut bool) -> io::Result<usize> {
        let count = ready.len() / self.size;
        if *cut && count > 1 {
            let size = u16::try_from(self.size).unwrap_or(u16::MAX);
            match udp::send_segmented(socket.as_fd(), ready, size) {
                Ok(()) => return Ok(count),
                Err(e) if is_timeout(&e) || e.kind() == ErrorKind::ConnectionRefused => {
                    return Err(e);
                }
                // This device or path cannot; several messages in a call do as well.
                Err(_) => *cut = false,
            }
        }
        udp::send(socket.as_fd(), ready, self.size)
    }

    fn receive(&self, stream: usize) -> Ended<()> {
        let socket = &self.sockets[stream];
        let joined = udp::joins(socket.as_fd());
        let room = if joined { ROOM_JOINED } else { self.size };
        let mut inbox = udp::Inbox::new((INBOX_BYTES / room).clamp(1, INBOX_MAX), room);
        let mut tally = Tally::default();
        let (mut bytes, mut foreign, mut at, mut error) = (0_u64, 0_u64, None, None);
        let before = Used::now();
        while !self.is_done() {
            match inbox.receive(socket.as_fd()) {
                Ok(()) => {}
                Err(e) if is_timeout(&e) || e.kind() == ErrorKind::ConnectionRefused => continue,
                Err(e) => {
                    error = Some(e);
                    break;
                }
            }
            if bytes == 0 {
                self.board.start();
            }
            for (stamp, datagram) in inbox.datagrams() {
                // A handshake that was repeated has no key either.
                if self.framing.key.is_some_and(|key| !has_key(key, datagram)) {
                    foreign += 1;
                    continue;
                }
                // Shorter ones are no payload, such as iperf3's handshake.
                if let Some(header) = Header::read(self.framing.wide, datagram) {
                    bytes += datagram.len() as u64;
                    tally.on_datagram(header, stamp);
                }
            }
            at = Some(clock::monotonic());
            let mut counts = self.count(stream);
            *counts = UdpSample {
                bytes,
                packets: tally.highest,
                lost: tally.lost,
                late: tally.late,
                duplicates: tally.duplicates,
                jitter_ns: tally.jitter_ns,
                foreign,
                ..*counts
            };
        }
        Ended {
            used: Used::since(before),
            at: at.unwrap_or_else(clock::monotonic),
            error: error.map(|e: io::Error| e.to_string()),
            more: (),
        }
    }

    /// The sampler thread; tells senders to stop at the nominal end.
    fn sample_until_end(&self, config: &Config) -> Vec<UdpSample> {
        let started = self.await_start();
        let read = |rounds: &mut Rounds<UdpSample>| rounds.push(&self.round(started));
        let streams = self.sockets.len();
        let samples = self.board.sample(self.role, config, streams, started, read);
        if self.role == Role::Sender {
            self.done.store(true, Ordering::Relaxed);
        }
        samples
    }

    fn round(&self, started: Instant) -> Vec<UdpSample> {
        let read = |stream: u16| UdpSample {
            stream,
            t: clock::monotonic().saturating_since(started),
            ..*self.count(stream.into())
        };
        let streams = u16::try_from(self.counts.len()).unwrap_or(u16::MAX);
        (0..streams).map(read).collect()
    }

    fn totals(&self) -> Vec<UdpCounts> {
        let total = |(socket, stream): (&UdpSocket, usize)| {
            let count = *self.count(stream);
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "an estimate of some microseconds; a float cast saturates"
            )]
            let jitter_ns = count.jitter_ns as u64;
            let dropped = match self.role {
                Role::Sender => 0,
                Role::Receiver => udp::drops(socket.as_fd()).unwrap_or(0).into(),
            };
            UdpCounts {
                packets: count.packets,
                lost: count.lost,
                late: count.late,
                duplicates: count.duplicates,
                jitter_ns,
                dropped,
                foreign: count.foreign,
            }
        };
        self.sockets.iter().zip(0..).map(total).collect()
    }

    fn describe(&self, result: &mut EndResult) {
        let address = |s: &UdpSocket| Some((s.local_addr().ok()?, s.peer_addr().ok()?));
        result.addresses = self.sockets.iter().filter_map(address).collect();
        if let Some(socket) = self.sockets.first() {
            let bytes = |n: usize| Bytes::new(n as u64);
            let (send, receive) = (
                sockopt::socket_send_buffer_size(socket),
                sockopt::socket_recv_buffer_size(socket),
            );
            result.send_buffer = send.map(bytes).unwrap_or_default();
            result.receive_buffer = receive.map(bytes).unwrap_or_default();
        }
    }
}

/// A UDP socket beside others on the same port, which does not block.
pub(crate) fn beside(addr: SocketAddr) -> io::Result<UdpSocket> {
    let family = match addr {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    rustix::net::bind(&fd, &addr)?;
    Ok(UdpSocket::from(fd))
}

/// A reading as the rates are computed from it.
fn plain(sample: &UdpSample) -> Sample {
    Sample {
        stream: sample.stream,
        kind: SampleKind::Periodic,
        t: sample.t,
        app_bytes: sample.bytes,
        ..Sample::default()
    }
}

/// Joined datagrams share one arrival stamp, which blurs the jitter; below this rate a datagram at
/// a time is no burden.
const JOIN_FROM: u64 = 1_000_000_000;
/// Largest message that the kernel joins.
const ROOM_JOINED: usize = 65_536;
/// Room of one stream's inbox.
const INBOX_BYTES: usize = 256 * 1024;
const INBOX_MAX: usize = 64;
/// Failed calls in a row, a tenth of a second of them.
const FAILURES_MAX: u32 = 100;
const FAILURE_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use units::Rate;

    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let (a, b) = (
            UdpSocket::bind("127.0.0.1:0").unwrap(),
            UdpSocket::bind("127.0.0.1:0").unwrap(),
        );
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        (a, b)
    }

    fn config(block_bytes: u32) -> Config {
        Config {
            block_bytes,
            ramp: Duration::ZERO,
            duration: Duration::from_s(60),
            ..Config::default()
        }
    }

    #[test]
    fn a_budget_is_sent_and_counted_to_the_last_datagram() {
        for (size, budget, packets) in [(100, 2_000, 20), (1_000, 10_001, 11), (32_768, 65_536, 2)]
        {
            let (a, b) = pair();
            let config = config(size);
            let shape = Shape {
                budget: Some(Arc::new(AtomicU64::new(budget))),
                rate: Some(Rate::from_bits_per_second(100_000_000)),
                ..Shape::default()
            };
            let slow = Shape {
                rate: shape.rate,
                ..Shape::default()
            };
            let framing = Framing::default();
            let receiver =
                UdpEngine::prepare(Role::Receiver, &config, vec![b], slow, framing).unwrap();
            let sender =
                UdpEngine::prepare(Role::Sender, &config, vec![a], shape, framing).unwrap();
            sender.go();
            receiver.go();
            let all = packets * u64::from(size);
            while receiver.bytes() < all {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let (sent, _) = sender.finish();
            let (got, samples) = receiver.finish();
            assert_eq!((sent.bytes, got.bytes), (all, all));
            let last = samples.last().unwrap();
            assert_eq!((last.packets, last.lost, last.late), (packets, 0, 0));
        }
    }

    #[test]
    fn datagrams_without_the_key_are_counted_apart() {
        let (a, b) = pair();
        let config = config(100);
        let key = [9; KEY_BYTES];
        let framing = Framing {
            wide: true,
            key: Some(key),
        };
        let slow = Shape {
            rate: Some(Rate::from_bits_per_second(1_000_000)),
            ..Shape::default()
        };
        let receiver = UdpEngine::prepare(Role::Receiver, &config, vec![b], slow, framing).unwrap();
        receiver.go();
        let mut datagram = [0; 100];
        for number in [1, 2, 4] {
            Header { sent_ns: 0, number }.write(true, &mut datagram);
            write_key(key, &mut datagram);
            a.send(&datagram).unwrap();
            // Forged: its number would be a loss.
            Header {
                sent_ns: 0,
                number: number + 1_000,
            }
            .write(true, &mut datagram);
            write_key([8; KEY_BYTES], &mut datagram);
            a.send(&datagram).unwrap();
            a.send(&datagram[..10]).unwrap();
        }
        while receiver.bytes() < 300 || receiver.shared.count(0).foreign < 6 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(receiver.packets(), [3]);
        let (result, _) = receiver.finish();
        let counts = result.udp[0];
        assert_eq!((counts.packets, counts.lost, counts.foreign), (4, 1, 6));
    }
}
