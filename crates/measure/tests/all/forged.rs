//! Datagrams with a forged source: nothing is sent to an address that did not ask for it.
//!
//! The attacker here is a client: it has a session, knows the transfer's token, and names somebody else's
//! address as its own. Raw sockets take a network namespace; without the right to make one the tests say
//! `skipped: why`.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::time::Instant;

use measure::message::{
    ADDRESS_CHALLENGE_BYTES, DATA_OPENING_BYTES, Kind, Message, Refusal, data_opening, greeting,
    parse_address_challenge, token_from_hex,
};
use measure::{Config, Direction, Limits, MessageSpec, Pattern, Server, Stop, Transport, iperf3};
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use units::{Duration, Rate};

use crate::common::{PATIENCE, Serving, hear, in_own_network, say, short, transfer};

/// Somebody who never spoke to the server.
const VICTIM: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
const ATTACKER: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A UDP datagram with a source of the caller's choice (RFC 791, RFC 768; no checksum).
fn send_forged(source: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) {
    let len = |headers: usize| {
        u16::try_from(headers + payload.len())
            .unwrap()
            .to_be_bytes()
    };
    let mut packet = vec![0x45, 0];
    packet.extend(len(28));
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet.extend(source.ip().octets());
    packet.extend(to.ip().octets());
    packet.extend(source.port().to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    packet.extend(len(8));
    packet.extend([0, 0]);
    packet.extend(payload);
    // IPPROTO_RAW: the header above is sent as it is (raw(7)).
    let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).unwrap();
    sendto(&raw, &packet, SendFlags::empty(), &SocketAddr::from(to)).unwrap();
}

fn listening(ip: Ipv4Addr) -> (UdpSocket, SocketAddrV4) {
    let socket = UdpSocket::bind((ip, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let SocketAddr::V4(addr) = socket.local_addr().unwrap() else {
        unreachable!("bound to IPv4");
    };
    (socket, addr)
}

/// What has come, each datagram by itself.
fn received(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut bytes = [0; 70_000];
    loop {
        match socket.recv(&mut bytes) {
            Ok(len) => all.push(bytes[..len].to_vec()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return all,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A session that has requested one stream of datagrams, by a client that proves its address or knows nothing of that.
fn requested(serving: &Serving, transport: &str, direction: &str, proves: bool) -> TcpStream {
    let mut control = serving.stranger();
    control.write_all(&greeting(Kind::Control)).unwrap();
    control.read_exact(&mut [0; 24]).unwrap();
    assert!(matches!(hear(&control), Message::Welcome(_)));
    let proves = if proves {
        r#","proves_address":true"#
    } else {
        ""
    };
    let spec = format!(
        r#"{{"direction":"{direction}","streams":1,"transport":"{transport}","duration_ns":1000000000,"ramp_ns":0,
        "block_bytes":1000,"sample_interval_ns":100000000,"drain_ns":1000000000{proves}}}"#
    );
    let spec = serde_json::from_str(&spec).unwrap();
    say(&control, &Message::Start(spec));
    control
}

/// A session that has been accepted for one stream of datagrams down; the token of the transfer.
fn accepted(serving: &Serving, transport: &str) -> (TcpStream, [u8; 16]) {
    let control = requested(serving, transport, "down", true);
    let Message::Accept { token } = hear(&control) else {
        panic!("not accepted");
    };
    (control, token_from_hex(&token).unwrap())
}

/// Refuses what never opened soon.
fn impatient() -> Serving {
    Serving::with(Limits {
        silence: Duration::from_ms(500),
        ..Limits::default()
    })
}

fn v4(addr: SocketAddr) -> SocketAddrV4 {
    match addr {
        SocketAddr::V4(addr) => addr,
        SocketAddr::V6(_) => unreachable!("bound to IPv4"),
    }
}

/// Opens the stream with forged datagrams from `source`; the server's answer.
fn forge(serving: &Serving, transport: &str, source: SocketAddrV4, nonce: &[u8]) -> Message {
    let (control, token) = accepted(serving, transport);
    for _ in 0..OPENINGS {
        let opening = [&data_opening(token, 0)[..], nonce].concat();
        send_forged(source, v4(serving.addr), &opening);
    }
    hear(&control)
}

const OPENINGS: usize = 10;

#[test]
fn a_forged_opening_moves_no_datagram_to_its_address() {
    in_own_network(|| {
        let serving = impatient();
        let (victim, source) = listening(VICTIM);
        for transport in ["udp", "quic"] {
            for nonce in [&[][..], &[0; 16], &[0; 15], &[0; 17]] {
                let answer = forge(&serving, transport, source, nonce);
                let Message::Refused(Refusal::Host { text }) = answer else {
                    panic!("{transport}: {answer:?}");
                };
                assert!(text.contains("1 of 1 streams"), "{text}");
                let elsewhere = text.contains("from another address");
                assert_eq!(elsewhere, matches!(nonce.len(), 0 | 16), "{text}");
            }
        }
        assert_eq!(received(&victim), Vec::<Vec<u8>>::new());
        serving.assert_serves("127.0.0.1");
    });
}

/// Behind one NAT, another host has the client's address and another port.
#[test]
fn another_port_of_the_clients_address_receives_no_more_than_was_sent_in_its_name() {
    in_own_network(|| {
        let serving = impatient();
        for transport in ["udp", "quic"] {
            let (victim, source) = listening(ATTACKER);
            for nonce in [&[][..], &[0; 16]] {
                let answer = forge(&serving, transport, source, nonce);
                assert!(matches!(answer, Message::Refused(_)), "{answer:?}");
                let came = received(&victim);
                assert_eq!(came.len(), OPENINGS);
                for datagram in came {
                    assert!(parse_address_challenge(&datagram).is_some());
                    assert!(datagram.len() <= ADDRESS_CHALLENGE_BYTES);
                    assert!(datagram.len() < DATA_OPENING_BYTES);
                }
            }
        }
    });
}

#[test]
fn a_nonce_that_was_sent_to_another_port_opens_nothing() {
    in_own_network(|| {
        let serving = impatient();
        let (control, token) = accepted(&serving, "udp");
        let (honest, _) = listening(ATTACKER);
        honest.set_nonblocking(false).unwrap();
        honest.set_read_timeout(Some(PATIENCE.to_std())).unwrap();
        honest
            .send_to(&data_opening(token, 0), serving.addr)
            .unwrap();
        let mut challenge = [0; 64];
        let len = honest.recv(&mut challenge).unwrap();
        let nonce = parse_address_challenge(&challenge[..len]).unwrap();
        let (victim, source) = listening(ATTACKER);
        let opening = [&data_opening(token, 0)[..], &nonce].concat();
        send_forged(source, v4(serving.addr), &opening);
        let answer = hear(&control);
        assert!(matches!(answer, Message::Refused(_)), "{answer:?}");
        assert_eq!(received(&victim).len(), 1, "its own challenge");
    });
}

#[test]
fn a_client_that_cannot_prove_its_address_is_refused_with_what_to_do() {
    let serving = Serving::new();
    for transport in ["udp", "quic"] {
        let control = requested(&serving, transport, "up", false);
        let Message::Refused(Refusal::Limit { text }) = hear(&control) else {
            panic!("not refused");
        };
        assert!(text.contains("update"), "{text}");
    }
}

fn limited(mbps: u64) -> Limits {
    Limits {
        rate_max: Some(Rate::from_bits_per_second(mbps * 1_000_000)),
        ..Limits::default()
    }
}

/// Two streams down for 0.3 s by the sender's clock, as fast as is allowed.
fn down(transport: Transport) -> Config {
    Config {
        transport,
        block_bytes: 1_000,
        ..short(Direction::Down, 2)
    }
}

/// Sent within what the rate allows since `begun`, and one block, which may leave at once. A slow machine only makes the
/// bound wider.
#[track_caller]
fn assert_bounded(sent: u64, mbps: u32, begun: Instant, what: &str) {
    let bound = allowed(mbps, begun);
    assert!((1..=bound).contains(&sent), "{what}: {sent} of {bound}");
}

fn allowed(mbps: u32, begun: Instant) -> u64 {
    let us = u64::try_from(begun.elapsed().as_micros()).unwrap();
    us * u64::from(mbps) / 8 + 65_536
}

#[test]
fn what_clients_without_a_token_receive_is_bounded_over_every_transport() {
    let serving = Serving::with(limited(8));
    let mut client = serving.client();
    assert_eq!(client.far().rate_max_bits_per_second, Some(8_000_000));
    for transport in [
        Transport::Tcp,
        Transport::Tls,
        Transport::Mptcp,
        Transport::Udp,
    ] {
        let begun = Instant::now();
        let sent = transfer(&mut client, &down(transport)).sender.bytes;
        assert_bounded(sent, 8, begun, transport.name());
    }
    let quic = client.run(&down(Transport::Quic), &Stop::new(), &mut |_| {});
    let messages = MessageSpec {
        pattern: Pattern::Down,
        bytes: 1_000,
        duration_ns: 50_000_000,
        ..MessageSpec::default()
    };
    let messages = client.messages(&messages, &Stop::new());
    for refused in [quic.map(drop), messages.map(drop)] {
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("--rate-max"), "{text}");
    }
    // What the client sends is its own affair.
    let up = Config {
        direction: Direction::Up,
        ..down(Transport::Tcp)
    };
    let begun = Instant::now();
    let sent = transfer(&mut client, &up).sender.bytes;
    assert!(sent > allowed(8, begun), "{sent}");
}

/// Each transfer of these would have 64 MiB of free blocks and all its rate to itself, if they were counted alone.
#[test]
fn the_bound_holds_over_all_sessions_transfers_and_sizes_of_blocks() {
    let serving = Serving::with(limited(80));
    let begun = Instant::now();
    let sent: u64 = std::thread::scope(|scope| {
        let clients: Vec<_> = [(Transport::Tcp, 16 << 20), (Transport::Udp, 65_507)]
            .into_iter()
            .map(|(transport, block_bytes)| {
                let mut client = serving.client();
                let config = Config {
                    block_bytes,
                    streams: 4,
                    duration: Duration::from_ms(100),
                    ramp: Duration::ZERO,
                    ..down(transport)
                };
                scope.spawn(move || {
                    let of_one = (0..4).map(|_| transfer(&mut client, &config).sender.bytes);
                    of_one.sum::<u64>()
                })
            })
            .collect();
        clients.into_iter().map(|c| c.join().unwrap()).sum()
    });
    assert_bounded(sent, 80, begun, "all");
}

#[test]
fn a_token_lifts_the_bound_but_not_for_iperf3() {
    let secret = || measure::Secret::new(b"0123456789abcdef0123456789abcdef").unwrap();
    let mut server = Server::bind("127.0.0.1:0".parse().unwrap(), limited(8)).unwrap();
    server.demand(secret(), true);
    let serving = Serving::start(server);
    let approach = measure::Approach {
        secret: Some(secret()),
        ..measure::Approach::default()
    };
    let mut client = serving.connect(&approach).unwrap();
    assert_eq!(client.far().rate_max_bits_per_second, None);
    let begun = Instant::now();
    let sent = transfer(&mut client, &down(Transport::Tcp)).sender.bytes;
    assert!(sent > allowed(8, begun), "{sent}");
    let wish = iperf3::Wish {
        config: Config {
            duration: Duration::from_s(1),
            ramp: Duration::ZERO,
            ..down(Transport::Tcp)
        },
        ..iperf3::Wish::default()
    };
    let stop = Stop::new();
    let begun = Instant::now();
    let client = iperf3::Client::connect_addr(serving.addr, PATIENCE, &stop).unwrap();
    let tested = client.run(&wish, &stop, &mut |_| {}).unwrap();
    let sent: u64 = tested.far.streams.iter().map(|stream| stream.bytes).sum();
    // Its own word ends the test, some time after the second.
    assert_bounded(sent, 8, begun, "iperf3");
}
