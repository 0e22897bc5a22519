//! QUIC (RFC 9000) on data connections: a transfer through a transport that lives in the program.
//!
//! Each stream of a transfer is a connection of its own, with a UDP socket and a thread at each end and
//! one unidirectional stream of payload. What QUIC is, is quinn-proto's, a machine without sockets and
//! clock; [`line`] moves its packets through a socket, [`engine`] runs the threads and reads them out.
//!
//! As over TLS nobody is authenticated: the certificate is in the source and the client takes any. A
//! server listens to a connection only if its first packet names the transfer's token, on a socket that
//! is connected to who opened the stream with it; everything else is dropped without an answer.
//!
//! Left out: early data, migration, address validation by Retry, datagrams (RFC 9221), several streams in
//! a connection, and pacing at a rate of the user's.

pub(crate) mod engine;
mod line;

use std::io::{self, ErrorKind};
use std::sync::Arc;

use quinn_proto::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    ClientConfig, ConnectionId, ConnectionStats, IdleTimeout, MtuDiscoveryConfig, ServerConfig,
    TransportConfig, VarInt,
};
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use units::{Bytes, Duration};

use crate::Config;
use crate::config::{QUIC_CONGESTION, QUIC_WINDOWS_BYTES_MAX};
use crate::protocol::TOKEN_BYTES;
use crate::tls::{self, Side};

pub(crate) use line::Line;

/// One reading of a QUIC connection, as its own end counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuicInfo {
    /// Smoothed round trip (RFC 9002, section 5.3).
    pub rtt_us: u64,
    /// Smallest round trip seen.
    pub min_rtt_us: u64,
    /// Congestion window.
    pub congestion_window_bytes: u64,
    /// Largest packet that it sends now, as UDP's payload.
    pub packet_bytes: u64,
    /// Packets sent, acknowledgements and MTU probes included.
    pub packets_sent: u64,
    /// Of these, thought lost; MTU probes left out.
    pub packets_lost: u64,
    /// Bytes of them.
    pub bytes_lost: u64,
    /// Times that the congestion window was cut.
    pub congestion_events: u64,
    /// Times that packets of the found size were no longer carried.
    pub black_holes: u64,
    /// Datagrams received, of whatever kind.
    pub datagrams_received: u64,
}

impl QuicInfo {
    /// Name and value of every field, in their order.
    pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let values = {
            let mut copy = *self;
            copy.slots().map(|(name, slot)| (name, *slot))
        };
        values.into_iter()
    }

    /// Sets a field by name; false when there is none of that name.
    pub(crate) fn set(&mut self, name: &str, value: u64) -> bool {
        let slot = self.slots().into_iter().find(|(known, _)| *known == name);
        slot.map(|(_, slot)| *slot = value).is_some()
    }

    /// Two connections as one.
    pub(crate) fn joined(self, other: Self) -> Self {
        let add = u64::saturating_add;
        Self {
            rtt_us: self.rtt_us.max(other.rtt_us),
            min_rtt_us: self.min_rtt_us.min(other.min_rtt_us),
            congestion_window_bytes: add(
                self.congestion_window_bytes,
                other.congestion_window_bytes,
            ),
            packet_bytes: self.packet_bytes.max(other.packet_bytes),
            packets_sent: add(self.packets_sent, other.packets_sent),
            packets_lost: add(self.packets_lost, other.packets_lost),
            bytes_lost: add(self.bytes_lost, other.bytes_lost),
            congestion_events: add(self.congestion_events, other.congestion_events),
            black_holes: add(self.black_holes, other.black_holes),
            datagrams_received: add(self.datagrams_received, other.datagrams_received),
        }
    }

    fn slots(&mut self) -> [(&'static str, &mut u64); 10] {
        // Without `..`: a field that is not named below does not compile.
        let Self {
            rtt_us,
            min_rtt_us,
            congestion_window_bytes,
            packet_bytes,
            packets_sent,
            packets_lost,
            bytes_lost,
            congestion_events,
            black_holes,
            datagrams_received,
        } = self;
        [
            ("rtt_us", rtt_us),
            ("min_rtt_us", min_rtt_us),
            ("congestion_window_bytes", congestion_window_bytes),
            ("packet_bytes", packet_bytes),
            ("packets_sent", packets_sent),
            ("packets_lost", packets_lost),
            ("bytes_lost", bytes_lost),
            ("congestion_events", congestion_events),
            ("black_holes", black_holes),
            ("datagrams_received", datagrams_received),
        ]
    }
}

impl From<&ConnectionStats> for QuicInfo {
    fn from(stats: &ConnectionStats) -> Self {
        let us = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let path = &stats.path;
        Self {
            rtt_us: us(path.rtt),
            min_rtt_us: us(path.min_rtt),
            congestion_window_bytes: path.cwnd,
            packet_bytes: path.current_mtu.into(),
            packets_sent: path.sent_packets,
            packets_lost: path.lost_packets,
            bytes_lost: path.lost_bytes,
            congestion_events: path.congestion_events,
            black_holes: path.black_holes_detected,
            datagrams_received: stats.udp_rx.datagrams,
        }
    }
}

/// The name of the congestion control that a wish stands for.
pub(crate) fn congestion(config: &Config) -> &str {
    config.congestion.as_deref().unwrap_or(QUIC_CONGESTION[0])
}

/// What a connection may have unread at its receiver: stream and connection alike.
pub(crate) fn receive_window(config: &Config) -> Bytes {
    window(config, config.receive_buffer)
}

/// The most that a connection holds of what was not acknowledged. Where nobody asked for a size less is
/// taken, as the congestion window goes: see [`line`].
pub(crate) fn send_window(config: &Config) -> Bytes {
    let held = u64::from(config.block_bytes) * BLOCKS_HELD_MAX;
    window(config, config.send_buffer).min(Bytes::new(held))
}

fn window(config: &Config, asked: Option<Bytes>) -> Bytes {
    let streams = u64::from(config.streams.max(1));
    let default = WINDOW_DEFAULT.min(QUIC_WINDOWS_BYTES_MAX / streams);
    Bytes::new(asked.map_or(default, Bytes::as_u64).max(WINDOW_MIN))
}

/// The name that a connection's first packet goes by, which a server knows before: token and stream.
fn first_name(token: [u8; TOKEN_BYTES], stream: u16) -> ConnectionId {
    let mut name = [0; TOKEN_BYTES + 2];
    name[..TOKEN_BYTES].copy_from_slice(&token);
    name[TOKEN_BYTES..].copy_from_slice(&stream.to_be_bytes());
    ConnectionId::new(&name)
}

fn client_config(
    config: &Config,
    packet_max: u16,
    silence: Duration,
    name: ConnectionId,
) -> io::Result<ClientConfig> {
    let mut crypto = tls::client_config(config.cipher).map_err(io::Error::other)?;
    crypto.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = QuicClientConfig::with_initial(Arc::new(crypto), initial_suite()?);
    let mut client = ClientConfig::new(Arc::new(crypto.map_err(io::Error::other)?));
    client.initial_dst_cid_provider(Arc::new(move || name));
    client.transport_config(Arc::new(transport(config, packet_max, silence)?));
    Ok(client)
}

fn server_config(config: &Config, packet_max: u16, silence: Duration) -> io::Result<ServerConfig> {
    let mut crypto = tls::server_config(config.cipher).map_err(io::Error::other)?;
    crypto.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = QuicServerConfig::with_initial(Arc::new(crypto), initial_suite()?);
    let mut server = ServerConfig::with_crypto(Arc::new(crypto.map_err(io::Error::other)?));
    server.transport_config(Arc::new(transport(config, packet_max, silence)?));
    server.migration(false).max_incoming(1);
    server.incoming_buffer_size(INCOMING_BYTES);
    server.incoming_buffer_size_total(INCOMING_BYTES);
    Ok(server)
}

/// First packets are encrypted with this suite, whatever comes after (RFC 9001, section 5.2).
fn initial_suite() -> io::Result<rustls::quic::Suite> {
    let suite = TLS13_AES_128_GCM_SHA256.tls13();
    let suite = suite.and_then(rustls::Tls13CipherSuite::quic_suite);
    suite.ok_or_else(|| io::Error::new(ErrorKind::Unsupported, "no cipher for QUIC"))
}

fn transport(config: &Config, packet_max: u16, silence: Duration) -> io::Result<TransportConfig> {
    let receive = VarInt::try_from(receive_window(config).as_u64()).map_err(io::Error::other)?;
    let idle = IdleTimeout::try_from(silence.to_std()).map_err(io::Error::other)?;
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.upper_bound(packet_max);
    let controller: Arc<dyn ControllerFactory + Send + Sync> = match congestion(config) {
        "newreno" => Arc::new(NewRenoConfig::default()),
        "bbr" => Arc::new(BbrConfig::default()),
        _ => Arc::new(CubicConfig::default()),
    };
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(0_u8.into())
        .max_concurrent_uni_streams(1_u8.into())
        .max_idle_timeout(Some(idle))
        .stream_receive_window(receive)
        .receive_window(receive)
        .send_window(send_window(config).as_u64())
        .mtu_discovery_config(Some(mtu))
        .datagram_receive_buffer_size(None)
        .congestion_controller_factory(controller);
    Ok(transport)
}

/// A stream of a transfer before it is a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) side: Side,
    pub(crate) token: [u8; TOKEN_BYTES],
    pub(crate) stream: u16,
    /// How long a peer may say nothing.
    pub(crate) silence: Duration,
}

/// Both ends name it (RFC 9001, section 8.1).
const ALPN: &[u8] = b"goodput";
/// 26 Gb/s over a round trip of 20 ms.
const WINDOW_DEFAULT: u64 = 64 << 20;
/// A few packets: below it nothing moves.
const WINDOW_MIN: u64 = 4 << 10;
/// Packets that may come before the first was looked at; nothing waits, so a flight is plenty.
const INCOMING_BYTES: u64 = 64 << 10;
/// Of small blocks it holds so many, each of which takes some bytes beside its own.
const BLOCKS_HELD_MAX: u64 = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_written_by_names_reads_back() {
        let mut info = QuicInfo::default();
        for ((_, slot), n) in info.slots().into_iter().zip(1..) {
            *slot = n;
        }
        assert_eq!((info.rtt_us, info.datagrams_received), (1, 10));
        let mut back = QuicInfo::default();
        for (name, value) in info.fields() {
            assert!(back.set(name, value), "{name}");
        }
        assert_eq!(back, info);
        assert!(!back.set("of_the_future", 1));
    }

    #[test]
    fn windows_are_bounded_over_all_streams() {
        let config = |streams, receive_buffer| Config {
            streams,
            receive_buffer,
            ..Config::default()
        };
        let window = |streams, asked| receive_window(&config(streams, asked)).as_u64();
        assert_eq!(window(1, None), 64 << 20);
        assert_eq!(window(4, None), 64 << 20);
        assert_eq!(window(5, None), (256 << 20) / 5);
        assert_eq!(window(128, None), 2 << 20);
        assert_eq!(window(1, Some(Bytes::new(1))), 4 << 10);
        assert_eq!(window(1, Some(Bytes::new(100 << 20))), 100 << 20);
        let small = Config {
            block_bytes: 10,
            ..Config::default()
        };
        assert_eq!(send_window(&small), Bytes::new(10 * (16 << 10)));
    }

    #[test]
    fn a_first_packets_name_tells_token_and_stream_apart() {
        let name = |token, stream| first_name([token; TOKEN_BYTES], stream);
        assert_eq!(name(1, 2), name(1, 2));
        assert_ne!(name(1, 2), name(1, 3));
        assert_ne!(name(1, 2), name(2, 2));
        // Unpredictable and long enough (RFC 9000, section 7.2).
        assert_eq!(name(1, 2).len(), 18);
    }
}
