//! What the kernel's socket diagnosis says of one TCP socket (`struct inet_diag_msg` and its attributes), and the request for it.
//!
//! A [`Socket`] is a view of one message's body: fixed fields, then attributes. Attributes that nobody here knows stay in the
//! bytes, so a recording keeps what a newer kernel says. Numbers are in the machine's order, ports and addresses in the network's.
//! Nothing is trusted: a message that ends early has no socket in it, an attribute that claims too much ends the list.
//!
//! Source: Linux include/uapi/linux/inet_diag.h, include/uapi/linux/sock_diag.h, net/ipv4/inet_diag.c (6.18).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::tcp_info::TcpInfo;

/// A view of one message's body, at least [`MESSAGE_BYTES`] long.
#[derive(Clone, Copy, Debug)]
pub struct Socket<'a> {
    bytes: &'a [u8],
}

/// What a socket's buffers hold, in bytes (`INET_DIAG_SKMEMINFO`; `skmem:` of ss).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Allocated for received data that nobody has read.
    pub receive_used_bytes: u32,
    /// Limit of the receive buffer.
    pub receive_buffer_bytes: u32,
    /// In the interface's queue or its driver.
    pub sending_bytes: u32,
    /// Limit of the send buffer.
    pub send_buffer_bytes: u32,
    /// Allocated for data that is to be sent or acknowledged.
    pub queued_bytes: u32,
    /// Packets dropped for want of room.
    pub drops: u32,
}

/// One socket, read whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// State, one of [`state`].
    pub state: u8,
    /// Own address.
    pub local: SocketAddr,
    /// The peer's address.
    pub remote: SocketAddr,
    /// The kernel's name of the socket, never used twice.
    pub cookie: u64,
    /// Owner.
    pub uid: u32,
    /// Inode of the file; 0 when there is none any more.
    pub inode: u32,
    /// Bytes received that the application has not read; of a listener, connections that wait.
    pub unread_bytes: u32,
    /// Bytes written that the peer has not acknowledged.
    pub unacknowledged_bytes: u32,
    /// The kernel's counters.
    pub info: Option<TcpInfo>,
    /// Its buffers.
    pub memory: Option<Memory>,
    /// Congestion control, 15 letters at most; empty when not reported.
    pub congestion: Name,
    /// Cgroup of cgroup v2 that the socket was made in.
    pub cgroup: Option<u64>,
}

/// A short name in place: no allocation for each socket.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; NAME_BYTES],
    length: u8,
}

impl Name {
    /// The bytes up to the first that is not printable ASCII, at most [`NAME_BYTES`].
    pub fn of(bytes: &[u8]) -> Self {
        let mut name = Self::default();
        for byte in bytes
            .iter()
            .take(NAME_BYTES)
            .take_while(|b| b.is_ascii_graphic())
        {
            name.bytes[usize::from(name.length)] = *byte;
            name.length += 1;
        }
        name
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl<'a> Socket<'a> {
    /// The body of a `SOCK_DIAG_BY_FAMILY` message; `None` when it is too short or of neither version of IP.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let known = matches!(bytes.first(), Some(&AF_INET | &AF_INET6));
        (bytes.len() >= MESSAGE_BYTES && known).then_some(Self { bytes })
    }

    /// All of it, as it came.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// State, one of [`state`].
    pub const fn state(&self) -> u8 {
        self.bytes[1]
    }

    /// Own address.
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.address(8), self.port(4))
    }

    /// The peer's address.
    pub fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.address(24), self.port(6))
    }

    /// The kernel's name of the socket.
    pub fn cookie(&self) -> u64 {
        u64::from(self.word(44)) | u64::from(self.word(48)) << 32
    }

    /// Attributes: kind, value. A nested flag is taken off the kind.
    pub fn attributes(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        let mut rest = &self.bytes[MESSAGE_BYTES..];
        std::iter::from_fn(move || {
            let head = rest.get(..4)?;
            let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
            let kind = u16::from_ne_bytes([head[2], head[3]]) & !NLA_F_NESTED;
            let value = rest.get(4..length)?;
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            Some((kind, value))
        })
    }

    /// Everything that is known of it.
    pub fn record(&self) -> Record {
        let mut record = Record {
            state: self.state(),
            local: self.local(),
            remote: self.remote(),
            cookie: self.cookie(),
            uid: self.word(64),
            inode: self.word(68),
            unread_bytes: self.word(56),
            unacknowledged_bytes: self.word(60),
            info: None,
            memory: None,
            congestion: Name::default(),
            cgroup: None,
        };
        for (kind, value) in self.attributes() {
            match kind {
                attribute::INFO => record.info = TcpInfo::parse(value),
                attribute::CONG => record.congestion = Name::of(value),
                attribute::SKMEMINFO => record.memory = Memory::parse(value),
                attribute::CGROUP_ID => {
                    record.cgroup = value.try_into().ok().map(u64::from_ne_bytes);
                }
                _ => {}
            }
        }
        record
    }

    fn word(&self, at: usize) -> u32 {
        let word = self.bytes.get(at..at + 4).and_then(|w| w.try_into().ok());
        word.map_or(0, u32::from_ne_bytes)
    }

    fn port(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// An IPv4 address in IPv6 clothes is one of IPv4: which is what the packets have.
    fn address(&self, at: usize) -> IpAddr {
        let bytes: [u8; 16] = self.bytes[at..at + 16].try_into().unwrap_or_default();
        if self.bytes[0] == AF_INET {
            return Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into();
        }
        Ipv6Addr::from(bytes).to_canonical()
    }
}

impl Memory {
    /// The numbers in the order of `SK_MEMINFO_*`; `None` below those that every kernel with the attribute has.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |n: usize| {
            let word = bytes.get(n * 4..n * 4 + 4)?;
            word.try_into().ok().map(u32::from_ne_bytes)
        };
        Some(Self {
            receive_used_bytes: word(0)?,
            receive_buffer_bytes: word(1)?,
            sending_bytes: word(2)?,
            send_buffer_bytes: word(3)?,
            queued_bytes: word(5)?,
            drops: word(8).unwrap_or(0),
        })
    }
}

/// The body of a request for all TCP sockets of one version of IP that are in one of `states` (bit n: state n), with counters,
/// buffers and congestion control.
pub fn request(ipv6: bool, states: u32) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[0] = if ipv6 { AF_INET6 } else { AF_INET };
    bytes[1] = crate::protocol::TCP;
    // Extensions are asked for by bit n - 1.
    bytes[2] = [attribute::INFO, attribute::CONG, attribute::SKMEMINFO]
        .iter()
        .fold(0, |asked, kind| asked | 1 << (kind - 1));
    bytes[4..8].copy_from_slice(&states.to_ne_bytes());
    bytes
}

/// Kinds of attributes (`INET_DIAG_*`).
pub mod attribute {
    /// `struct tcp_info`.
    pub const INFO: u16 = 2;
    /// Name of the congestion control.
    pub const CONG: u16 = 4;
    /// Bytes in the socket's buffers.
    pub const SKMEMINFO: u16 = 7;
    /// Cgroup of the socket; comes unasked.
    pub const CGROUP_ID: u16 = 21;
}

/// States of a TCP socket (include/net/tcp_states.h).
pub mod state {
    /// Data may flow in both directions.
    pub const ESTABLISHED: u8 = 1;
    /// Our SYN has no answer yet.
    pub const SYN_SENT: u8 = 2;
    /// A SYN came and was answered.
    pub const SYN_RECV: u8 = 3;
    /// We have sent our FIN.
    pub const FIN_WAIT1: u8 = 4;
    /// And it was acknowledged.
    pub const FIN_WAIT2: u8 = 5;
    /// Both FINs are done; the pair of addresses rests.
    pub const TIME_WAIT: u8 = 6;
    /// Closed.
    pub const CLOSE: u8 = 7;
    /// The peer has sent its FIN; the application has not closed.
    pub const CLOSE_WAIT: u8 = 8;
    /// And we have sent ours after it.
    pub const LAST_ACK: u8 = 9;
    /// Waits for connections.
    pub const LISTEN: u8 = 10;
    /// Both FINs crossed.
    pub const CLOSING: u8 = 11;
    /// A SYN came, and no socket was made for it yet.
    pub const NEW_SYN_RECV: u8 = 12;

    /// Names as ss has them, by number.
    pub const NAMES: [&str; 13] = [
        "unknown",
        "established",
        "syn-sent",
        "syn-recv",
        "fin-wait-1",
        "fin-wait-2",
        "time-wait",
        "closed",
        "close-wait",
        "last-ack",
        "listening",
        "closing",
        "new-syn-recv",
    ];

    /// Name of a state.
    pub fn name(state: u8) -> &'static str {
        NAMES.get(usize::from(state)).copied().unwrap_or(NAMES[0])
    }
}

/// Bytes of `struct inet_diag_msg`.
pub const MESSAGE_BYTES: usize = 72;
/// Bytes of `struct inet_diag_req_v2`.
pub const REQUEST_BYTES: usize = 56;
/// Longest name of a congestion control (TCP_CA_NAME_MAX, with its zero byte).
const NAME_BYTES: usize = 16;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const NLA_F_NESTED: u16 = 1 << 15;

#[cfg(test)]
mod tests {
    use super::*;

    /// The body of the close event of a connection over loopback that sent 5000 bytes, as Linux 6.18 on x86-64 wrote it.
    fn closed() -> Vec<u8> {
        let mut body = vec![0; MESSAGE_BYTES];
        body[..8].copy_from_slice(&[2, 7, 0, 0, 0x85, 0x1a, 0xe1, 0xaf]);
        body[8..12].copy_from_slice(&[127, 0, 0, 1]);
        body[24..28].copy_from_slice(&[127, 0, 0, 1]);
        body[44..48].copy_from_slice(&3_u32.to_ne_bytes());
        body.extend([5, 0, 10, 0, 6, 0, 0, 0]);
        body.extend([0x1c, 1, 2, 0]);
        let mut info = [0; 280];
        info[120..128].copy_from_slice(&5_002_u64.to_ne_bytes());
        body.extend(info);
        body
    }

    #[test]
    fn a_close_event_has_the_last_counters_and_no_inode() {
        let body = closed();
        let record = Socket::parse(&body).unwrap().record();
        assert_eq!(record.local, "127.0.0.1:34074".parse().unwrap());
        assert_eq!(record.remote, "127.0.0.1:57775".parse().unwrap());
        assert_eq!((record.cookie, record.inode), (3, 0));
        assert_eq!(state::name(record.state), "closed");
        assert_eq!(record.info.unwrap().bytes_acked, 5_002);
        let kinds: Vec<u16> = Socket::parse(&body)
            .unwrap()
            .attributes()
            .map(|(k, _)| k)
            .collect();
        assert_eq!(kinds, [10, attribute::INFO]);
    }

    #[test]
    fn a_body_cut_anywhere_is_read_as_far_as_it_goes() {
        let body = closed();
        assert!(Socket::parse(&body[..MESSAGE_BYTES - 1]).is_none());
        assert!(
            Socket::parse(&body[..MESSAGE_BYTES])
                .unwrap()
                .record()
                .info
                .is_none()
        );
        for length in MESSAGE_BYTES..body.len() {
            assert!(
                Socket::parse(&body[..length])
                    .unwrap()
                    .record()
                    .info
                    .is_none(),
                "{length}"
            );
        }
        // An attribute that claims to be shorter than its own head ends the list.
        let mut body = closed();
        body[MESSAGE_BYTES] = 3;
        assert_eq!(Socket::parse(&body).unwrap().attributes().count(), 0);
    }

    #[test]
    fn memory_congestion_and_cgroup_are_read_where_they_are_whole() {
        let mut body = closed();
        body.extend([40, 0, 7, 0]);
        body.extend((1..=9_u32).flat_map(u32::to_ne_bytes));
        body.extend([8, 0, 4, 0, b'b', b'b', b'r', 0]);
        body.extend([12, 0, 21, 0]);
        body.extend(77_u64.to_ne_bytes());
        let record = Socket::parse(&body).unwrap().record();
        let memory = record.memory.unwrap();
        assert_eq!(
            (
                memory.receive_buffer_bytes,
                memory.queued_bytes,
                memory.drops
            ),
            (2, 6, 9)
        );
        assert_eq!(
            (record.congestion.as_str(), record.cgroup),
            ("bbr", Some(77))
        );
        body.truncate(body.len() - 1);
        assert_eq!(Socket::parse(&body).unwrap().record().cgroup, None);
    }

    #[test]
    fn an_ipv4_peer_of_an_ipv6_socket_is_an_ipv4_address() {
        let mut body = closed();
        body[0] = AF_INET6;
        body[8..24].copy_from_slice(&Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets());
        let socket = Socket::parse(&body).unwrap();
        assert_eq!(socket.local(), "10.0.0.1:34074".parse().unwrap());
        assert!(socket.remote().is_ipv6());
        body[0] = 1;
        assert!(Socket::parse(&body).is_none());
    }

    #[test]
    fn a_request_asks_for_counters_congestion_control_and_memory() {
        let bytes = request(true, 1 << 1);
        assert_eq!(bytes[..8], [10, 6, 0b100_1010, 0, 2, 0, 0, 0]);
        assert_eq!(request(false, 0)[0], 2);
    }
}
