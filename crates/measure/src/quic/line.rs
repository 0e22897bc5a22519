//! One QUIC connection over one connected UDP socket: packets in, packets out, and when to look again.
//!
//! The kernel joins what arrives (UDP_GRO) and cuts what leaves (UDP_SEGMENT) where it can. A datagram
//! that the kernel refuses counts as sent: QUIC notices its loss. ECN bits go both ways; those of what
//! is sent belong to the socket, since they hardly ever change.
//!
//! The send window follows the congestion window, twice its size as Linux does it for TCP
//! (net/ipv4/tcp_input.c, tcp_sndbuf_expand): more would only stand in the queue at the end.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::{
    Connection, ConnectionHandle, ConnectionId, DatagramEvent, EcnCodepoint, Endpoint,
    EndpointConfig, Event, Transmit, VarInt,
};
use rustix::event::PollFlags;
use sys::{tcp, udp};
use units::{Bytes, Duration};

use super::{Opening, client_config, first_name, server_config};
use crate::Config;
use crate::tls::Side;
use crate::wait::is_timeout;
use crate::wait::wait_for;

/// A connection and its socket.
pub(crate) struct Line {
    socket: UdpSocket,
    core: Core,
    inbox: udp::Inbox,
    /// What was received and is on its way through the machine; reused when it is through.
    arrived: BytesMut,
    out: Vec<u8>,
    /// What is in `out` while the kernel has no room for it.
    waiting: Option<Transmit>,
    /// The kernel cuts datagrams.
    cuts: bool,
    dscp_class: u8,
    ecn: Option<EcnCodepoint>,
    /// Window as it was set last, and the most that it may be.
    send_window: u64,
    send_window_max: u64,
    fixed_window: bool,
    /// The kernel's count of drops as it was, where there is one.
    drops_before: Option<u32>,
}

/// What one call brought.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrived {
    /// Of all datagrams.
    pub(crate) bytes: usize,
    /// There may be more.
    pub(crate) more: bool,
}

/// The machines.
struct Core {
    endpoint: Endpoint,
    live: Option<(ConnectionHandle, Connection)>,
    remote: SocketAddr,
    /// What the first packet has to name; a client's own is none of its business.
    name: Option<ConnectionId>,
    scratch: Vec<u8>,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line")
            .field("socket", &self.socket)
            .finish()
    }
}

impl Line {
    /// Takes over a connected socket. A client's connection begins now, a server's with the packet that
    /// names it.
    ///
    /// # Errors
    /// What the kernel says of the socket's options; `Other` for what the machines refuse.
    pub(crate) fn new(socket: UdpSocket, config: &Config, opening: &Opening) -> io::Result<Self> {
        let fd = socket.as_fd();
        socket.set_nonblocking(true)?;
        udp::set_mtu_probing(fd)?;
        udp::set_ecn_reports(fd)?;
        // Without it every datagram comes by itself.
        drop(udp::set_join(fd));
        let dscp_class = config.dscp.map_or(0, |dscp| dscp.class());
        let remote = socket.peer_addr()?;
        let packet_max = packet_max(&socket, remote);
        let Opening { token, stream, .. } = *opening;
        let name = first_name(token, stream);
        let mut hosting = EndpointConfig::default();
        hosting.supported_versions(vec![VERSION]);
        hosting
            .max_udp_payload_size(PACKET_MAX)
            .map_err(io::Error::other)?;
        let hosting = Arc::new(hosting);
        let core = match opening.side {
            Side::Server => {
                let server = server_config(config, packet_max, opening.silence)?;
                let endpoint = Endpoint::new(hosting, Some(Arc::new(server)), true, None);
                Core::new(endpoint, None, remote, Some(name))
            }
            Side::Client => {
                let client = client_config(config, packet_max, opening.silence, name)?;
                let mut endpoint = Endpoint::new(hosting, None, true, None);
                let live = endpoint.connect(Instant::now(), client, remote, ::tls::NAME);
                Core::new(
                    endpoint,
                    Some(live.map_err(io::Error::other)?),
                    remote,
                    None,
                )
            }
        };
        let send_window_max = super::send_window(config).as_u64();
        // Strangers may have filled a server's socket before it was connected.
        let drops_before = udp::drops(socket.as_fd()).ok();
        Ok(Self {
            socket,
            core,
            inbox: udp::Inbox::new(INBOX_MESSAGES, ROOM_JOINED),
            arrived: BytesMut::with_capacity(INBOX_MESSAGES * ROOM_JOINED),
            out: Vec::new(),
            waiting: None,
            cuts: true,
            dscp_class,
            ecn: None,
            send_window: send_window_max,
            send_window_max,
            fixed_window: config.send_buffer.is_some(),
            drops_before,
        })
    }

    pub(crate) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Datagrams of this connection that the kernel threw away here, mostly for want of room; of some that
    /// it had joined it counts one. `None` where it does not tell.
    pub(crate) fn drops(&self) -> Option<u32> {
        let now = udp::drops(self.socket.as_fd()).ok()?;
        Some(now.wrapping_sub(self.drops_before?))
    }

    /// The connection, once there is one.
    pub(crate) fn connection(&mut self) -> Option<&mut Connection> {
        self.core.live.as_mut().map(|(_, connection)| connection)
    }

    /// Takes what has arrived.
    ///
    /// # Errors
    /// As recvmmsg(2), but for what ICMP says: QUIC believes none of it (RFC 9000, section 14.2.1).
    pub(crate) fn receive(&mut self) -> io::Result<Arrived> {
        match self.inbox.receive(self.socket.as_fd()) {
            Ok(()) => {}
            Err(error) if is_timeout(&error) || is_icmp(&error) => {
                return Ok(Arrived::default());
            }
            Err(error) => return Err(error),
        }
        // Not before they were taken: a round trip that ends earlier than its answer came is too short.
        let now = Instant::now();
        // In order, QUIC is through with it before the next call, and the same memory serves again. While
        // it keeps some, since something before that is missing, each datagram gets its own: else a small
        // one could hold on to a large piece.
        let total: usize = self.inbox.messages().map(|m| m.bytes.len()).sum();
        let shared = self.arrived.try_reclaim(total);
        for message in self.inbox.messages() {
            let ecn = EcnCodepoint::from_bits(message.ecn);
            if !shared {
                for datagram in message.bytes.chunks(message.segment) {
                    self.core.handle(now, ecn, BytesMut::from(datagram));
                }
                continue;
            }
            self.arrived.extend_from_slice(message.bytes);
            let mut rest = self.arrived.split();
            while !rest.is_empty() {
                let datagram = rest.split_to(message.segment.min(rest.len()));
                self.core.handle(now, ecn, datagram);
            }
        }
        Ok(Arrived {
            bytes: total,
            more: self.inbox.len() == INBOX_MESSAGES,
        })
    }

    /// Does what time and the machines' own affairs ask for.
    pub(crate) fn tend(&mut self, now: Instant) {
        self.core.tend(now);
    }

    /// What has happened since.
    pub(crate) fn poll(&mut self) -> Option<Event> {
        self.connection()?.poll()
    }

    /// Sends what there is to send, up to [`BURST`] calls; true when there may be more.
    pub(crate) fn transmit(&mut self, now: Instant) -> bool {
        for _ in 0..BURST {
            let transmit = match self.waiting.take() {
                Some(waiting) => waiting,
                None => match self.next(now) {
                    Some(transmit) => transmit,
                    None => return false,
                },
            };
            if !self.hand_over(&transmit) {
                self.waiting = Some(transmit);
                return false;
            }
        }
        true
    }

    /// Sleeps until something comes, there is room again, a timer of the connection's is due, or `most`
    /// has passed.
    ///
    /// # Errors
    /// As poll(2).
    pub(crate) fn wait(&mut self, most: Duration) -> io::Result<()> {
        let due = self.connection().and_then(Connection::poll_timeout);
        let left = due.map_or(most, |at| {
            let left = at.saturating_duration_since(Instant::now()).as_nanos();
            Duration::from_ns(u64::try_from(left).unwrap_or(u64::MAX)).min(most)
        });
        let room = match self.waiting {
            Some(_) => PollFlags::OUT,
            None => PollFlags::empty(),
        };
        wait_for(&self.socket, PollFlags::IN | room, left)
    }

    /// Sets the send window by the congestion window.
    pub(crate) fn fit_send_window(&mut self) {
        if self.fixed_window {
            return;
        }
        let Some((_, connection)) = &mut self.core.live else {
            return;
        };
        let wanted = connection.congestion_state().window().saturating_mul(2);
        let wanted = wanted.clamp(
            SEND_WINDOW_MIN.min(self.send_window_max),
            self.send_window_max,
        );
        if wanted != self.send_window {
            self.send_window = wanted;
            connection.set_send_window(wanted);
        }
    }

    /// The send window as it is.
    pub(crate) fn send_window(&self) -> Bytes {
        Bytes::new(self.send_window)
    }

    /// Ends the connection with a code, and says so once.
    pub(crate) fn close(&mut self, now: Instant, code: u32) {
        if let Some(connection) = self.connection() {
            connection.close(now, VarInt::from_u32(code), bytes::Bytes::new());
            self.waiting = None;
            self.transmit(now);
        }
    }

    fn next(&mut self, now: Instant) -> Option<Transmit> {
        let (_, connection) = self.core.live.as_mut()?;
        let most = match self.cuts {
            true => udp::SEGMENTED_BYTES_MAX / usize::from(connection.current_mtu()).max(1),
            false => 1,
        };
        self.out.clear();
        connection.poll_transmit(now, most.clamp(1, udp::BATCH_MAX), &mut self.out)
    }

    /// False where the kernel has no room now.
    fn hand_over(&mut self, transmit: &Transmit) -> bool {
        if transmit.ecn != self.ecn {
            let bits = transmit.ecn.map_or(0, |ecn| ecn as u8);
            // Unmarked packets are no fault.
            drop(tcp::set_tos(self.socket.as_fd(), self.dscp_class | bits));
            self.ecn = transmit.ecn;
        }
        let bytes = &self.out[..transmit.size];
        let segment = transmit.segment_size.unwrap_or(transmit.size);
        if let (true, Ok(size)) = (segment < bytes.len() && self.cuts, u16::try_from(segment)) {
            match udp::send_segmented(self.socket.as_fd(), bytes, size) {
                Ok(()) => return true,
                Err(error) if is_timeout(&error) => return false,
                Err(error) if is_icmp(&error) => return true,
                // This device or path cannot; several messages in a call do as well.
                Err(_) => self.cuts = false,
            }
        }
        match udp::send(self.socket.as_fd(), bytes, segment) {
            Err(error) => !is_timeout(&error),
            Ok(_) => true,
        }
    }
}

impl Core {
    fn new(
        endpoint: Endpoint,
        live: Option<(ConnectionHandle, Connection)>,
        remote: SocketAddr,
        name: Option<ConnectionId>,
    ) -> Self {
        Self {
            endpoint,
            live,
            remote,
            name,
            scratch: Vec::new(),
        }
    }

    fn handle(&mut self, now: Instant, ecn: Option<EcnCodepoint>, datagram: BytesMut) {
        self.scratch.clear();
        let (endpoint, scratch) = (&mut self.endpoint, &mut self.scratch);
        match endpoint.handle(now, self.remote, None, ecn, datagram, scratch) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => match &mut self.live {
                Some((own, connection)) if *own == handle => connection.handle_event(event),
                _ => {}
            },
            Some(DatagramEvent::NewConnection(incoming)) => {
                let named = self.name.as_ref() == Some(incoming.orig_dst_cid());
                if self.live.is_some() || !named {
                    return endpoint.ignore(incoming);
                }
                // What cannot be accepted was no honest packet.
                self.live = endpoint.accept(incoming, now, scratch, None).ok();
            }
            // Strangers get no answer.
            Some(DatagramEvent::Response(_)) | None => {}
        }
    }

    fn tend(&mut self, now: Instant) {
        let Some((handle, connection)) = &mut self.live else {
            return;
        };
        if connection.poll_timeout().is_some_and(|at| at <= now) {
            connection.handle_timeout(now);
        }
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
    }
}

/// Largest packet that the route carries, as UDP's payload.
fn packet_max(socket: &UdpSocket, remote: SocketAddr) -> u16 {
    let mtu = tcp::path_mtu(socket.as_fd()).unwrap_or(0);
    // UDP over IP without options (RFC 768, RFC 791, RFC 8200).
    let headers = if remote.ip().to_canonical().is_ipv4() {
        28
    } else {
        48
    };
    let payload = u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX);
    payload.clamp(PACKET_MIN, PACKET_MAX)
}

/// What the network says and anybody could: of a connected socket it comes with the next call.
fn is_icmp(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable
    )
}

/// RFC 9000.
const VERSION: u32 = 1;
/// Every path carries it (RFC 9000, section 14).
const PACKET_MIN: u16 = 1_200;
/// The largest UDP payload over IPv4.
const PACKET_MAX: u16 = 65_507;
/// Largest message that the kernel joins.
const ROOM_JOINED: usize = 65_536;
/// Messages of one call: 1 MiB of room.
const INBOX_MESSAGES: usize = 16;
/// Calls before it looks for acknowledgements again: up to 512 KiB.
const BURST: u32 = 8;
/// Several bursts, so that a window that opens finds something to send.
const SEND_WINDOW_MIN: u64 = 512 << 10;

#[cfg(test)]
mod tests {
    use units::Rng;

    use super::*;
    use crate::protocol::TOKEN_BYTES;

    fn opening(side: Side, token: u8) -> Opening {
        Opening {
            side,
            token: [token; TOKEN_BYTES],
            stream: 3,
            silence: Duration::from_s(60),
        }
    }

    /// Two lines whose sockets are connected, and the client's socket once more.
    fn pair(client: u8, server: u8) -> (Line, Line, UdpSocket) {
        let (a, b) = (
            UdpSocket::bind("127.0.0.1:0").unwrap(),
            UdpSocket::bind("127.0.0.1:0").unwrap(),
        );
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        let thrower = a.try_clone().unwrap();
        let config = Config::default();
        let near = Line::new(a, &config, &opening(Side::Client, client)).unwrap();
        let far = Line::new(b, &config, &opening(Side::Server, server)).unwrap();
        (near, far, thrower)
    }

    /// One turn; true when the handshake ended in it.
    fn turn(line: &mut Line) -> bool {
        let now = Instant::now();
        line.receive().unwrap();
        line.tend(now);
        let mut connected = false;
        while let Some(event) = line.poll() {
            assert!(!matches!(event, Event::ConnectionLost { .. }), "{event:?}");
            connected |= matches!(event, Event::Connected);
        }
        line.transmit(now);
        connected
    }

    /// Bytes of any kind, every other like a packet's beginning (RFC 9000, section 17).
    fn junk(rng: &mut Rng) -> Vec<u8> {
        let len = usize::try_from(rng.next_u64() % 1_500).unwrap();
        let mut bytes = vec![0; len];
        bytes.fill_with(|| rng.next_u64().to_ne_bytes()[0]);
        let begins: [&[u8]; 3] = [&[], &[0xc3, 0, 0, 0, 1, 18], &[0xe3, 0, 0, 0, 1, 8]];
        let begin = begins[usize::try_from(rng.next_u64() % 3).unwrap()];
        if len > 100 {
            bytes[..begin.len()].copy_from_slice(begin);
        }
        bytes
    }

    #[test]
    fn junk_from_the_peers_own_address_makes_no_connection_and_breaks_none() {
        let (mut near, mut far, thrower) = pair(1, 1);
        let mut rng = Rng::new(11);
        for _ in 0..2_000 {
            drop(thrower.send(&junk(&mut rng)));
            turn(&mut far);
            assert!(far.connection().is_none());
            // Strangers get no answer.
            assert_eq!(
                thrower.recv(&mut [0; 8]).unwrap_err().kind(),
                ErrorKind::WouldBlock
            );
        }
        let (mut here, mut there) = (false, false);
        while !(here && there) {
            drop(thrower.send(&junk(&mut rng)));
            here |= turn(&mut near);
            there |= turn(&mut far);
        }
        for _ in 0..2_000 {
            drop(thrower.send(&junk(&mut rng)));
            turn(&mut far);
        }
        assert!(!far.connection().unwrap().is_closed());
    }

    #[test]
    fn what_found_no_room_in_the_socket_is_counted_from_the_beginning_on() {
        let (a, b) = (
            UdpSocket::bind("127.0.0.1:0").unwrap(),
            UdpSocket::bind("127.0.0.1:0").unwrap(),
        );
        a.connect(b.local_addr().unwrap()).unwrap();
        b.connect(a.local_addr().unwrap()).unwrap();
        // The least that the kernel grants: a few datagrams.
        tcp::set_receive_buffer(b.as_fd(), Bytes::new(1)).unwrap();
        let throw = || {
            for _ in 0..50 {
                assert_eq!(a.send(&[0; 1_000]).unwrap(), 1_000);
            }
        };
        throw();
        assert!(udp::drops(b.as_fd()).unwrap() > 0);
        let config = Config::default();
        let mut line = Line::new(b, &config, &opening(Side::Server, 1)).unwrap();
        assert_eq!(line.drops(), Some(0));
        let mut received = || {
            let mut bytes = 0;
            loop {
                match line.receive().unwrap().bytes {
                    0 => return bytes / 1_000,
                    more => bytes += more,
                }
            }
        };
        let before = received();
        assert!((1..50).contains(&before), "{before}");
        throw();
        let fresh = received();
        assert!((1..50).contains(&fresh), "{fresh}");
        assert_eq!(line.drops(), Some(50 - u32::try_from(fresh).unwrap()));
    }

    #[test]
    fn a_first_packet_without_the_transfers_token_is_dropped() {
        let (mut near, mut far, thrower) = pair(1, 2);
        for _ in 0..100 {
            turn(&mut near);
            turn(&mut far);
        }
        assert!(far.connection().is_none());
        assert_eq!(
            thrower.recv(&mut [0; 8]).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        assert!(near.connection().unwrap().is_handshaking());
    }
}
