//! One UDP socket, its connections, and the thread that moves their packets and bytes.
//!
//! quinn-proto is a machine without sockets and clock. A turn: what arrived, what is due, what there is to read from pipes
//! and to write to them, what is to leave, then a sleep in poll(2) until one of these. A connection that sends bytes
//! leaves no faster than its congestion control's rate and its limit, whichever is less; acknowledgments are not held.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes, BytesMut};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    AckFrequencyConfig, ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir,
    EcnCodepoint, Endpoint, EndpointConfig, Event, IdleTimeout, Incoming, MtuDiscoveryConfig,
    ReadError, ServerConfig, StreamEvent, StreamId, Transmit, TransportConfig, VarInt, WriteError,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustls::SupportedCipherSuite;
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use sys::threads;
use sys::udp::{self, Ends};

use super::control::Factory;
use super::counts::Counts;
use super::{Names, Pipe, Roll, Ties, Waker, no_quic};
use crate::key::{Key, SessionId};
use crate::link::{Cipher, HANDSHAKE_PATIENCE};

/// RFC 9000.
const VERSION: u32 = 1;
/// Both ends name it (RFC 9001, section 8.1).
const ALPN: &[u8] = b"goodput-copy";
/// How long somebody who is dialled may take to answer: three round trips of a long path, and some of their packets lost.
pub(crate) const DIAL: Duration = Duration::from_secs(5);
/// A connection on which nothing comes for so long is given up, and within that it is asked so often.
pub(crate) const SILENCE: Duration = Duration::from_secs(15);
const ASKS: u32 = 4;
/// What a connection may have unread here, before and after its other end has proved the key: greetings with what fills
/// them, and 1.3 Gb/s over a round trip of 200 ms.
const WINDOW_STRANGER: u32 = 64 << 10;
const WINDOW: u32 = 32 << 20;
/// What all of them together may have unread, where whoever writes files is slower than the path.
const WINDOWS: u32 = 128 << 20;
/// What waits to be acknowledged, at least and at most.
const SEND_WINDOW_MIN: u64 = 512 << 10;
const SEND_WINDOW_MAX: u64 = 32 << 20;
/// Connections that have not proved themselves, at most; of others there are as many as links.
const STRANGERS_MOST: usize = 64;
/// What is said may take so long to arrive when a link is cut on this side.
const LINGER: Duration = Duration::from_secs(1);
/// Payload of a packet on Ethernet, over IPv4.
const PACKET_MAX: u16 = 1_472;
/// What is taken from a pipe, or written to it, at a time.
const PIECE: usize = 64 << 10;
/// From so many bytes on a connection is one that sends, and its packets are paced.
const SENDS: u64 = 64 << 10;
/// Steps of a connection's pace, and what a late step may catch up with: where the thread was not let run for some
/// milliseconds, its rate would be lost, and the model would take that for the path's.
const STEP: Duration = Duration::from_millis(1);
const CREDIT: Duration = Duration::from_millis(8);
/// Packets that are made in a row before acknowledgments are looked for again.
const CALLS_MOST: usize = 8;
/// Messages of one call, each as long as the kernel joins.
const INBOX_MESSAGES: usize = 16;
const ROOM_JOINED: usize = 65_536;
/// What is asked of the kernel for arrivals; it grants what it allows (net.core.rmem_max).
const SOCKET_BUFFER: u64 = 4 << 20;
/// One acknowledgment for so many packets (draft-ietf-quic-ack-frequency).
const PACKETS_PER_ACK: u32 = 8;

/// One socket and its connections. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Quic {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    come: Condvar,
    waker: Arc<Waker>,
    /// CPU time of the thread.
    cpu_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    dials: Vec<Dial>,
    /// Opened by the other side.
    come: VecDeque<Pipe>,
    is_over: bool,
}

#[derive(Debug)]
struct Dial {
    to: SocketAddr,
    answer: Sender<io::Result<Pipe>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody is let in any more, nor dialled.
    fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        state.dials.clear();
        self.come.notify_all();
    }
}

impl Drop for Quic {
    fn drop(&mut self) {
        self.close();
    }
}

impl Quic {
    /// Has a session's other side open connections at this socket, by one of these ciphers.
    ///
    /// # Errors
    /// What the kernel says of the socket and of threads; `Unsupported` where no cipher is one of QUIC's.
    pub(crate) fn listening(
        socket: UdpSocket,
        session: SessionId,
        key: Key,
        allowed: &[Cipher],
    ) -> io::Result<Self> {
        Self::listening_for(socket, Roll::of(Names { session, key }), allowed)
    }

    /// The same, of all sessions of a roll.
    ///
    /// # Errors
    /// As [`Quic::listening`].
    pub(super) fn listening_for(
        socket: UdpSocket,
        roll: Roll,
        allowed: &[Cipher],
    ) -> io::Result<Self> {
        let suites: Vec<_> = allowed.iter().filter_map(|cipher| cipher.suite()).collect();
        if suites.is_empty() {
            return Err(no_quic("QUIC always encrypts"));
        }
        let mut crypto = tls::server_config_of(suites).map_err(io::Error::other)?;
        crypto.alpn_protocols = vec![ALPN.to_vec()];
        let crypto = QuicServerConfig::with_initial(Arc::new(crypto), initial_suite()?);
        let mut server = ServerConfig::with_crypto(Arc::new(crypto.map_err(io::Error::other)?));
        server.transport_config(Arc::new(transport(SILENCE)?));
        server.migration(false);
        // Each is looked at when it comes, so none waits.
        server.incoming_buffer_size(WINDOW_STRANGER.into());
        server.incoming_buffer_size_total(WINDOW_STRANGER.into());
        Self::start(socket, roll, None, Some(server))
    }

    /// Opens connections of a session from this socket, by this cipher. One that is silent for so long is given up: of what
    /// both sides say, the shorter holds (RFC 9000, section 10.1).
    ///
    /// # Errors
    /// As [`Quic::listening`].
    pub(crate) fn connecting(
        socket: UdpSocket,
        session: SessionId,
        key: Key,
        cipher: Cipher,
        silence: Duration,
    ) -> io::Result<Self> {
        let suite = cipher.suite();
        let suite = suite.ok_or_else(|| no_quic("QUIC always encrypts"))?;
        let crypto = client_crypto(suite)?;
        let mut client = ClientConfig::new(Arc::new(crypto));
        client.transport_config(Arc::new(transport(silence)?));
        Self::start(socket, Roll::of(Names { session, key }), Some(client), None)
    }

    fn start(
        socket: UdpSocket,
        names: Roll,
        client: Option<ClientConfig>,
        server: Option<ServerConfig>,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let fd = socket.as_fd();
        udp::set_mtu_probing(fd)?;
        // A host has many addresses, and whoever asks at one of them hears nobody else.
        if server.is_some() {
            drop(udp::set_address_reports(fd));
        }
        // Without it, acknowledgments count no marks, and the other side leaves ECN after the first (RFC 9000, section 13.4.2).
        drop(udp::set_ecn_reports(fd));
        // Without it every datagram comes by itself.
        drop(udp::set_join(fd));
        drop(sys::tcp::set_receive_buffer(
            fd,
            units::Bytes::new(SOCKET_BUFFER),
        ));
        let (wakes, woken) = UnixStream::pair()?;
        wakes.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            come: Condvar::new(),
            waker: Arc::new(Waker(wakes)),
            cpu_ns: AtomicU64::new(0),
        });
        let mut hosting = EndpointConfig::default();
        hosting.supported_versions(vec![VERSION]);
        let endpoint = Endpoint::new(Arc::new(hosting), server.map(Arc::new), true, None);
        let driver = Driver {
            shared: Arc::clone(&shared),
            woken,
            socket,
            endpoint,
            client,
            names,
            lines: BTreeMap::new(),
            inbox: udp::Inbox::with_senders(INBOX_MESSAGES, ROOM_JOINED),
            out: Vec::new(),
            piece: vec![0; PIECE],
            waiting: None,
            cuts: true,
        };
        threads::spawn("gp-quic", move || driver.run())?;
        Ok(Self { shared })
    }

    /// Ends all connections; whoever waits for one is told.
    pub(crate) fn close(&self) {
        self.shared.end();
        self.shared.waker.wake();
    }

    /// A new connection to somebody who may take so long to answer.
    ///
    /// # Errors
    /// `TimedOut` where no answer comes in time; `NotConnected` once this is closed; why QUIC gave up otherwise.
    pub(crate) fn dial(&self, to: SocketAddr, patience: Duration) -> io::Result<Pipe> {
        let (answer, answered) = mpsc::channel();
        {
            let mut state = self.shared.lock();
            if state.is_over {
                return Err(ErrorKind::NotConnected.into());
            }
            state.dials.push(Dial { to, answer });
        }
        self.shared.waker.wake();
        answered.recv_timeout(patience).unwrap_or_else(|why| {
            Err(match why {
                RecvTimeoutError::Timeout => io::Error::new(
                    ErrorKind::TimedOut,
                    format!("no answer over UDP in {} s", patience.as_secs()),
                ),
                RecvTimeoutError::Disconnected => ErrorKind::NotConnected.into(),
            })
        })
    }

    /// CPU time that its thread has used.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.shared.cpu_ns.load(Ordering::Relaxed)
    }

    /// Whether its thread has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.shared.lock().is_over
    }

    /// The next connection that the other side opened, if one comes in time.
    pub(crate) fn next(&self, patience: Duration) -> Option<Pipe> {
        let state = self.shared.lock();
        let waited = self
            .shared
            .come
            .wait_timeout_while(state, patience, |state| {
                state.come.is_empty() && !state.is_over
            });
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.come.pop_front()
    }
}

fn client_crypto(suite: SupportedCipherSuite) -> io::Result<QuicClientConfig> {
    let mut crypto = tls::client_config(suite).map_err(io::Error::other)?;
    crypto.alpn_protocols = vec![ALPN.to_vec()];
    QuicClientConfig::with_initial(Arc::new(crypto), initial_suite()?).map_err(io::Error::other)
}

/// First packets are encrypted with this suite, whatever comes after (RFC 9001, section 5.2).
fn initial_suite() -> io::Result<rustls::quic::Suite> {
    let suite = TLS13_AES_128_GCM_SHA256.tls13();
    let suite = suite.and_then(rustls::Tls13CipherSuite::quic_suite);
    suite.ok_or_else(|| no_quic("no cipher for QUIC"))
}

fn transport(silence: Duration) -> io::Result<TransportConfig> {
    let idle = IdleTimeout::try_from(silence).map_err(io::Error::other)?;
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.upper_bound(PACKET_MAX);
    let mut frequency = AckFrequencyConfig::default();
    frequency.ack_eliciting_threshold(PACKETS_PER_ACK.into());
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(1_u8.into())
        .max_concurrent_uni_streams(0_u8.into())
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(silence / ASKS))
        .stream_receive_window(WINDOW.into())
        .receive_window(WINDOW_STRANGER.into())
        .send_window(SEND_WINDOW_MIN)
        .mtu_discovery_config(Some(mtu))
        .ack_frequency_config(Some(frequency))
        .datagram_receive_buffer_size(None)
        .congestion_controller_factory(Arc::new(Factory::default()));
    Ok(transport)
}

/// The thread's own.
struct Driver {
    shared: Arc<Shared>,
    woken: UnixStream,
    socket: UdpSocket,
    endpoint: Endpoint,
    client: Option<ClientConfig>,
    names: Roll,
    lines: BTreeMap<usize, Line>,
    inbox: udp::Inbox,
    out: Vec<u8>,
    piece: Vec<u8>,
    /// Where to, and how it is to be cut, what is in `out` while the kernel has no room for it.
    waiting: Option<(Ends, usize, u16)>,
    /// The kernel cuts datagrams.
    cuts: bool,
}

/// One connection.
struct Line {
    handle: ConnectionHandle,
    connection: Connection,
    /// The end of the pair that is not the link's; gone when the link is.
    pipe: Option<UnixStream>,
    ties: Option<Arc<Ties>>,
    stream: Option<StreamId>,
    /// Who waits for it.
    answer: Option<Sender<io::Result<Pipe>>>,
    /// Taken from the pipe and not by QUIC, and the other way round.
    outward: Bytes,
    inward: Bytes,
    /// Bytes that the link wrote.
    wrote: u64,
    /// The pipe may have something.
    is_readable: bool,
    /// Nothing more comes from the other side, or from the link, and the other side has all of it.
    has_ended: bool,
    said_all: Option<Instant>,
    is_heard: bool,
    window: u32,
    send_window: u64,
    pace: Pace,
    born: Instant,
    /// The same by the clock that counts go by.
    made_ns: u64,
    /// When the machine is to be looked at again.
    due: Option<Instant>,
    is_closed: bool,
}

/// What a connection may send before it has to wait.
#[derive(Debug)]
struct Pace {
    /// Bytes a second; 0 for as much as there is.
    rate: u64,
    /// Until when the rate is used up.
    used: Instant,
    /// When there is something to send again; `None` where nothing is held.
    next: Option<Instant>,
}

impl Pace {
    /// Bytes that may leave now, in packets of this size; 0 where it has to wait, until [`Pace::next`].
    fn room(&mut self, now: Instant, rate: u64, packet: u64) -> u64 {
        (self.rate, self.next) = (rate, None);
        if rate == 0 {
            self.used = now;
            return u64::MAX;
        }
        let burst = CREDIT.max(self.time(2 * packet));
        let since = now.saturating_duration_since(self.used);
        if since > burst {
            self.used += since - burst;
        }
        let room = u128::from(rate) * since.min(burst).as_nanos() / 1_000_000_000;
        let room = u64::try_from(room).unwrap_or(u64::MAX);
        if room < packet {
            self.next = Some(self.used + STEP.max(self.time(packet)));
            return 0;
        }
        room
    }

    fn sent(&mut self, bytes: u64) {
        if self.rate > 0 {
            self.used += self.time(bytes);
        }
    }

    fn time(&self, bytes: u64) -> Duration {
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate.max(1));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)).min(SILENCE)
    }
}

/// Whence and where to a packet goes, and whether it may be marked on its way (RFC 9000, section 13.4).
fn ends_of(transmit: &Transmit) -> Ends {
    Ends {
        from: transmit.src_ip,
        to: transmit.destination,
        ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
    }
}

impl Driver {
    fn run(mut self) {
        loop {
            let now = Instant::now();
            let dials = {
                let mut state = self.shared.lock();
                if state.is_over {
                    break;
                }
                std::mem::take(&mut state.dials)
            };
            for dial in dials {
                self.dial(now, dial);
            }
            let more = self.receive();
            // Not before what came was taken.
            let now = Instant::now();
            let keys: Vec<usize> = self.lines.keys().copied().collect();
            let mut is_busy = more;
            let proven = self.lines.values().filter(|line| line.is_proven());
            let window = window_of(proven.count());
            for key in keys {
                is_busy |= self.serve(now, key, window);
            }
            self.count();
            if !is_busy && self.sleep().is_err() {
                break;
            }
        }
        self.end();
    }

    /// Has all who ask know what connections count now.
    fn count(&self) {
        let at_ns = sys::clock::monotonic().as_ns();
        for line in self.lines.values() {
            if let Some(ties) = &line.ties {
                ties.count(Counts::of(&line.connection.stats(), line.made_ns, at_ns));
            }
        }
        let spent = sys::clock::thread_cpu().as_ns();
        self.shared.cpu_ns.store(spent, Ordering::Relaxed);
    }

    /// Says good-bye on each connection, once.
    fn end(&mut self) {
        let now = Instant::now();
        for line in self.lines.values_mut() {
            line.connection
                .close(now, VarInt::from_u32(0), Bytes::new());
            line.pipe = None;
        }
        let keys: Vec<usize> = self.lines.keys().copied().collect();
        for key in keys {
            self.transmit(now, key);
        }
        self.shared.end();
    }

    fn dial(&mut self, now: Instant, dial: Dial) {
        let connected = self.names.new_one().and_then(|name| {
            let mut client = self.client.clone().ok_or_else(|| no_quic("it listens"))?;
            client.initial_dst_cid_provider(Arc::new(move || name));
            self.endpoint
                .connect(now, client, dial.to, tls::NAME)
                .map_err(io::Error::other)
        });
        match connected {
            Ok((handle, connection)) => {
                let mut line = Line::new(handle, connection, now);
                line.answer = Some(dial.answer);
                self.lines.insert(handle.0, line);
            }
            Err(error) => drop(dial.answer.send(Err(error))),
        }
    }

    /// Takes what has arrived; whether there may be more.
    fn receive(&mut self) -> bool {
        if self.inbox.receive(self.socket.as_fd()).is_err() {
            // What the network says by ICMP anybody could: QUIC believes none of it (RFC 9000, section 14.2.1).
            return false;
        }
        // Not before they were taken: a round trip that ends earlier than its answer came is too short.
        let now = Instant::now();
        let mut strangers = Vec::new();
        for message in self.inbox.messages() {
            let Some(from) = message.from else { continue };
            // Those that were joined came with the same.
            let ecn = EcnCodepoint::from_bits(message.ecn);
            for datagram in message.bytes.chunks(message.segment) {
                let datagram = BytesMut::from(datagram);
                let mut response = Vec::new();
                let event =
                    self.endpoint
                        .handle(now, from, message.to, ecn, datagram, &mut response);
                match event {
                    Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                        if let Some(line) = self.lines.get_mut(&handle.0) {
                            line.connection.handle_event(event);
                        }
                    }
                    Some(DatagramEvent::NewConnection(incoming)) => strangers.push(incoming),
                    // Strangers get no answer.
                    Some(DatagramEvent::Response(_)) | None => {}
                }
            }
        }
        let is_full = self.inbox.len() == INBOX_MESSAGES;
        for incoming in strangers {
            self.meet(now, incoming);
        }
        is_full
    }

    /// Somebody's first packet.
    fn meet(&mut self, now: Instant, incoming: Incoming) {
        let strangers = self.lines.values().filter(|line| line.is_stranger());
        if !self.names.knows(incoming.orig_dst_cid()) || strangers.count() >= STRANGERS_MOST {
            return self.endpoint.ignore(incoming);
        }
        let mut answer = Vec::new();
        if !incoming.remote_address_validated() {
            let Ok(retry) = self.endpoint.retry(incoming, &mut answer) else {
                return;
            };
            let size = u16::try_from(retry.size).unwrap_or(u16::MAX);
            let _ = udp::send_to(self.socket.as_fd(), ends_of(&retry), &answer, size);
            return;
        }
        // What cannot be accepted was no honest packet.
        if let Ok((handle, connection)) = self.endpoint.accept(incoming, now, &mut answer, None) {
            let line = Line::new(handle, connection, now);
            self.lines.insert(handle.0, line);
        }
    }

    /// All that is to be done for one connection; whether there is more at once.
    fn serve(&mut self, now: Instant, key: usize, window: u32) -> bool {
        let Some(line) = self.lines.get_mut(&key) else {
            return false;
        };
        if line.connection.poll_timeout().is_some_and(|due| due <= now) {
            line.connection.handle_timeout(now);
        }
        line.events(&self.shared);
        let is_open = line.stream.is_some() && !line.is_closed;
        let mut is_busy = false;
        if is_open {
            line.take_in();
            is_busy = line.give_out(now, &mut self.piece);
        }
        line.tend(now, window);
        while let Some(event) = line.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(line.handle, event) {
                line.connection.handle_event(event);
            }
        }
        let is_drained = line.connection.is_drained();
        is_busy |= self.transmit(now, key);
        if is_drained {
            self.lines.remove(&key);
        } else if let Some(line) = self.lines.get_mut(&key) {
            line.due = line.connection.poll_timeout();
        }
        is_busy && !is_drained
    }

    /// Sends what one connection may send now; whether there may be more at once.
    fn transmit(&mut self, now: Instant, key: usize) -> bool {
        if let Some((ends, len, segment)) = self.waiting.take()
            && !self.hand_over(ends, len, segment)
        {
            self.waiting = Some((ends, len, segment));
            return false;
        }
        for _ in 0..CALLS_MOST {
            let Some(line) = self.lines.get_mut(&key) else {
                return false;
            };
            let packet = usize::from(line.connection.current_mtu()).max(1);
            let most = match (self.cuts, line.may_send(now)) {
                (_, 0) => return false,
                (false, _) => 1,
                (true, bytes) => usize::try_from(bytes)
                    .unwrap_or(usize::MAX)
                    .min(udp::SEGMENTED_BYTES_MAX)
                    .div_euclid(packet)
                    .clamp(1, udp::BATCH_MAX),
            };
            self.out.clear();
            let Some(transmit) = line.connection.poll_transmit(now, most, &mut self.out) else {
                return false;
            };
            line.pace.sent(transmit.size as u64);
            let segment = transmit.segment_size.unwrap_or(transmit.size);
            let segment = u16::try_from(segment).unwrap_or(u16::MAX);
            if !self.hand_over(ends_of(&transmit), transmit.size, segment) {
                self.waiting = Some((ends_of(&transmit), transmit.size, segment));
                return false;
            }
        }
        true
    }

    /// False where the kernel has no room now. What it refuses counts as sent: QUIC notices that it is lost.
    fn hand_over(&mut self, ends: Ends, len: usize, segment: u16) -> bool {
        let bytes = &self.out[..len];
        match udp::send_to(self.socket.as_fd(), ends, bytes, segment) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            // This kernel or device cannot (udp(7)): one by one does as well. What else there is passes.
            Err(error)
                if bytes.len() > usize::from(segment)
                    && matches!(Errno::from_io_error(&error), Some(Errno::INVAL | Errno::IO)) =>
            {
                // What is refused one by one as well is so for another reason, which other connections need not have.
                for datagram in bytes.chunks(usize::from(segment).max(1)) {
                    let sent = udp::send_to(self.socket.as_fd(), ends, datagram, segment);
                    self.cuts &= sent.is_err();
                }
            }
            _ => {}
        }
        true
    }

    /// Sleeps until something comes or is due.
    fn sleep(&mut self) -> io::Result<()> {
        let room = match self.waiting {
            Some(_) => PollFlags::OUT,
            None => PollFlags::empty(),
        };
        let mut fds = vec![
            PollFd::new(&self.socket, PollFlags::IN | room),
            PollFd::new(&self.woken, PollFlags::IN),
        ];
        let mut whose = Vec::new();
        let mut due: Option<Instant> = None;
        for (key, line) in &self.lines {
            let ends = line.said_all.filter(|_| !line.is_closed);
            let ends = ends.map(|at| at + LINGER);
            let strays = line.is_stranger().then(|| line.born + HANDSHAKE_PATIENCE);
            // While the kernel has no room, whose turn it is does not matter.
            let paced = line.pace.next.filter(|_| self.waiting.is_none());
            for at in [line.due, paced, ends, strays].into_iter().flatten() {
                due = Some(due.map_or(at, |due| due.min(at)));
            }
            let mut flags = PollFlags::empty();
            if line.outward.is_empty() && line.said_all.is_none() {
                flags |= PollFlags::IN;
            }
            if !line.inward.is_empty() {
                flags |= PollFlags::OUT;
            }
            if let Some(pipe) = line.pipe.as_ref().filter(|_| !flags.is_empty()) {
                fds.push(PollFd::new(pipe, flags));
                whose.push(*key);
            }
        }
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = fds[2..]
            .iter()
            .map(|fd| !(fd.revents() & !PollFlags::OUT).is_empty())
            .collect();
        let is_woken = !fds[1].revents().is_empty();
        for (key, is_ready) in whose.into_iter().zip(ready) {
            if let Some(line) = self.lines.get_mut(&key) {
                line.is_readable |= is_ready;
            }
        }
        if is_woken {
            while matches!((&self.woken).read(&mut self.piece), Ok(1..)) {}
        }
        Ok(())
    }
}

impl Line {
    fn new(handle: ConnectionHandle, connection: Connection, now: Instant) -> Self {
        Self {
            handle,
            connection,
            pipe: None,
            ties: None,
            stream: None,
            answer: None,
            outward: Bytes::new(),
            inward: Bytes::new(),
            wrote: 0,
            is_readable: true,
            has_ended: false,
            said_all: None,
            is_heard: false,
            window: WINDOW_STRANGER,
            send_window: SEND_WINDOW_MIN,
            pace: Pace {
                rate: 0,
                used: now,
                next: None,
            },
            born: now,
            made_ns: sys::clock::monotonic().as_ns(),
            due: None,
            is_closed: false,
        }
    }

    fn is_proven(&self) -> bool {
        let is_proven = |ties: &Arc<Ties>| ties.is_proven.load(Ordering::Acquire);
        !self.is_closed && self.ties.as_ref().is_some_and(is_proven)
    }

    fn is_stranger(&self) -> bool {
        !self.is_closed && !self.is_proven()
    }

    /// What has happened to the connection.
    fn events(&mut self, shared: &Shared) {
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected if self.answer.is_some() => {
                    let stream = self.connection.streams().open(Dir::Bi);
                    let pipe = self.open(stream, shared);
                    if let Some(answer) = self.answer.take() {
                        // Who gave up waiting drops it, and that ends it.
                        let _ = answer.send(pipe);
                    }
                }
                Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => {
                    let stream = self.connection.streams().accept(Dir::Bi);
                    if let Ok(pipe) = self.open(stream, shared) {
                        shared.lock().come.push_back(pipe);
                        shared.come.notify_all();
                    }
                }
                Event::Stream(StreamEvent::Finished { .. }) => {
                    self.is_heard = true;
                }
                Event::ConnectionLost { reason } => {
                    if let Some(answer) = self.answer.take() {
                        let error = io::Error::new(ErrorKind::ConnectionReset, reason.to_string());
                        let _ = answer.send(Err(error));
                    }
                    // The link's end reads that it is over.
                    (self.pipe, self.is_closed) = (None, true);
                }
                _ => {}
            }
        }
    }

    /// A pair for the stream: one end for the link.
    fn open(&mut self, stream: Option<StreamId>, shared: &Shared) -> io::Result<Pipe> {
        let stream = stream.filter(|_| self.stream.is_none());
        let stream = stream.ok_or_else(|| no_quic("no stream"))?;
        let mut secret = [0; 32];
        self.connection
            .crypto_session()
            .export_keying_material(&mut secret, b"EXPORTER-Channel-Binding", &[])
            .map_err(|_| no_quic("no secret of the connection's"))?;
        let (link, mine) = UnixStream::pair()?;
        mine.set_nonblocking(true)?;
        let ties = Arc::new(Ties {
            secret,
            is_proven: AtomicBool::new(false),
            limit: AtomicU64::new(u64::MAX),
            counts: Mutex::default(),
            waker: Arc::clone(&shared.waker),
        });
        self.stream = Some(stream);
        self.pipe = Some(mine);
        self.ties = Some(Arc::clone(&ties));
        Ok(Pipe { socket: link, ties })
    }

    /// From the stream into the pipe.
    fn take_in(&mut self) {
        let (Some(id), Some(pipe)) = (self.stream, &mut self.pipe) else {
            return;
        };
        if !self.inward.is_empty() && !write_some(pipe, &mut self.inward) {
            return;
        }
        if self.has_ended {
            return;
        }
        let mut stream = self.connection.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else {
            return;
        };
        loop {
            match chunks.next(PIECE) {
                Ok(Some(chunk)) => {
                    self.inward = chunk.bytes;
                    if !write_some(pipe, &mut self.inward) {
                        break;
                    }
                }
                Err(ReadError::Blocked) => break,
                Ok(None) | Err(ReadError::Reset(_)) => {
                    self.has_ended = true;
                    break;
                }
            }
        }
        // Whether the window has to be told is for the next packets to find out.
        let _ = chunks.finalize();
        if self.has_ended && self.inward.is_empty() {
            let _ = pipe.shutdown(Shutdown::Write);
        }
    }

    /// From the pipe into the stream; whether there is more of it at once.
    fn give_out(&mut self, now: Instant, piece: &mut [u8]) -> bool {
        let Some(id) = self.stream else { return false };
        self.fit_send_window();
        let mut stream = self.connection.send_stream(id);
        for _ in 0..CALLS_MOST {
            if !self.outward.is_empty() {
                match stream.write_chunks(std::slice::from_mut(&mut self.outward)) {
                    Ok(_) if self.outward.is_empty() => {}
                    Ok(_) | Err(WriteError::Blocked) => return false,
                    Err(_) => {
                        self.outward = Bytes::new();
                        self.said_all = self.said_all.or(Some(now));
                        return false;
                    }
                }
            }
            let Some(pipe) = self.pipe.as_mut().filter(|_| self.said_all.is_none()) else {
                return false;
            };
            if !self.is_readable {
                return false;
            }
            match pipe.read(piece) {
                Ok(0) => {
                    let _ = stream.finish();
                    self.said_all = Some(now);
                    return false;
                }
                Ok(n) => {
                    self.wrote += n as u64;
                    self.outward = Bytes::copy_from_slice(&piece[..n]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_readable = false;
                    if error.kind() != ErrorKind::WouldBlock {
                        self.said_all = Some(now);
                    }
                    return false;
                }
            }
        }
        true
    }

    /// What time asks for, and what others want to know and have it do.
    fn tend(&mut self, now: Instant, window: u32) {
        let is_late = self.is_stranger() && now >= self.born + HANDSHAKE_PATIENCE;
        let is_left = self
            .said_all
            .is_some_and(|at| self.is_heard || now >= at + LINGER);
        if (is_late || is_left) && !self.is_closed {
            self.connection
                .close(now, VarInt::from_u32(0), Bytes::new());
            (self.pipe, self.is_closed) = (None, true);
        }
        if self.window != window && self.is_proven() {
            self.window = window;
            self.connection.set_receive_window(window.into());
        }
    }

    /// Twice the congestion window, as Linux does it for TCP: more would only stand in the queue at the end.
    fn fit_send_window(&mut self) {
        let wanted = self.connection.congestion_state().window();
        let wanted = wanted
            .saturating_mul(2)
            .clamp(SEND_WINDOW_MIN, SEND_WINDOW_MAX);
        if wanted != self.send_window {
            self.send_window = wanted;
            self.connection.set_send_window(wanted);
        }
    }

    /// As [`Pace::room`], at the model's rate and below the limit.
    fn may_send(&mut self, now: Instant) -> u64 {
        let limit = self.ties.as_ref().map(|ties| &ties.limit);
        let limit = limit.map_or(u64::MAX, |limit| limit.load(Ordering::Relaxed));
        let rate = self.connection.congestion_state().metrics().pacing_rate;
        let rate = rate.map_or(limit, |bits| (bits / 8).min(limit));
        let rate = match self.wrote < SENDS || rate == u64::MAX {
            true => 0,
            false => rate.max(1),
        };
        let packet = self.connection.current_mtu().into();
        self.pace.room(now, rate, packet)
    }
}

/// What each of so many connections may have unread: all have as much together as four.
pub(super) fn window_of(proven: usize) -> u32 {
    let proven = u32::try_from(proven).unwrap_or(u32::MAX).max(1);
    (WINDOWS / proven).clamp(WINDOW_STRANGER, WINDOW)
}

/// Writes as much as the pipe takes; true when that was all. What nobody will read is forgotten.
fn write_some(pipe: &mut UnixStream, bytes: &mut Bytes) -> bool {
    while !bytes.is_empty() {
        match pipe.write(bytes) {
            Ok(n) => bytes.advance(n),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(_) => bytes.clear(),
        }
    }
    true
}
