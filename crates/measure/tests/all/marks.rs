//! Source address, device, DSCP and trains of datagrams, read off the packets: in a namespace of its own,
//! whose loopback interface a packet socket listens to.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use measure::stamp::{Probing, Reflector, probe_by};
use measure::{
    Approach, Client, Config, Direction, Dscp, Limits, MeasureError, MessageSpec, Pinger, Secret,
    Server, Stop, Transport, iperf3,
};
use sys::netlink::{Netlink, VethEnd};
use sys::netns::NetNs;
use sys::packet::PacketSocket;
use units::{Duration, Rate};

use crate::common::{PATIENCE, Serving, alone, in_own_network, run, short, transfer};

/// A packet as far as these tests care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    protocol: u8,
    from: SocketAddr,
    to: SocketAddr,
    dscp: u8,
    payload: bool,
}

/// Every TCP packet that the loopback interface took in.
fn drain(socket: &PacketSocket) -> Vec<Seen> {
    let mut seen = drain_all(socket);
    seen.retain(|p| p.protocol == TCP);
    seen
}

/// Every TCP and UDP packet that it took in.
fn drain_all(socket: &PacketSocket) -> Vec<Seen> {
    let mut seen = Vec::new();
    each_frame(socket, |frame| seen.extend(read(frame)));
    seen
}

/// How many TCP segments and UDP datagrams in IPv4 an interface took in, but for what a kernel says by
/// itself of what came to a closed socket: resets. ARP and ICMP are neither.
fn transported(socket: &PacketSocket) -> usize {
    let mut count = 0;
    each_frame(socket, |frame| {
        let ipv4 = frame[12..14] == [0x08, 0x00];
        // Protocols and RST: RFC 791, RFC 9293, section 3.1; IPv4 without options.
        let counts = match frame[23] {
            6 => frame[47] & 0x04 == 0,
            17 => true,
            _ => false,
        };
        count += usize::from(ipv4 && counts);
    });
    count
}

fn each_frame(socket: &PacketSocket, mut each: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 1 << 17];
    while let Some(received) = socket.receive(&mut buffer).unwrap() {
        each(&buffer[sys::packet::VNET_HDR_BYTES..received.len]);
    }
}

/// An Ethernet frame with TCP or UDP in IPv4 without options or in IPv6 without extensions.
fn read(frame: &[u8]) -> Option<Seen> {
    let packet = frame.get(14..)?;
    let known = |protocol: u8| [TCP, UDP].contains(&protocol);
    let (protocol, dscp, from, to, segment, len): (u8, u8, IpAddr, IpAddr, &[u8], usize) =
        match frame[12..14] {
            [0x08, 0x00] if packet[0] == 0x45 && known(packet[9]) => (
                packet[9],
                packet[1] >> 2,
                <[u8; 4]>::try_from(&packet[12..16]).ok()?.into(),
                <[u8; 4]>::try_from(&packet[16..20]).ok()?.into(),
                &packet[20..],
                usize::from(u16::from_be_bytes([packet[2], packet[3]])).wrapping_sub(20),
            ),
            [0x86, 0xdd] if known(packet[6]) => (
                packet[6],
                (packet[0] << 4 | packet[1] >> 4) >> 2,
                <[u8; 16]>::try_from(&packet[8..24]).ok()?.into(),
                <[u8; 16]>::try_from(&packet[24..40]).ok()?.into(),
                &packet[40..],
                usize::from(u16::from_be_bytes([packet[4], packet[5]])),
            ),
            _ => return None,
        };
    let port = |at: usize| u16::from_be_bytes([segment[at], segment[at + 1]]);
    let header = match protocol {
        TCP => usize::from(segment[12] >> 4) * 4,
        _ => 8,
    };
    Some(Seen {
        protocol,
        from: SocketAddr::new(from, port(0)),
        to: SocketAddr::new(to, port(2)),
        dscp,
        payload: len > header,
    })
}

/// Protocol numbers (RFC 9293, RFC 768).
const TCP: u8 = 6;
const UDP: u8 = 17;

fn listen(name: &str) -> PacketSocket {
    let index = Netlink::open().unwrap().index_of(name).unwrap();
    PacketSocket::open(index, 64 << 20).unwrap()
}

fn measure_with(approach: &Approach, addr: SocketAddr, direction: Direction) {
    measure_by(Transport::Tcp, approach, addr, direction);
}

fn measure_by(transport: Transport, approach: &Approach, addr: SocketAddr, direction: Direction) {
    let mut client = Client::connect_addr_by(approach, addr, PATIENCE, &Stop::new()).unwrap();
    let config = Config {
        transport,
        rate: (transport == Transport::Udp).then(|| Rate::from_bits_per_second(20_000_000)),
        direction,
        duration: Duration::from_ms(20),
        ramp: Duration::ZERO,
        dscp: approach.dscp,
        ..Config::default()
    };
    client.run(&config, &Stop::new(), &mut |_| {}).unwrap();
}

fn serve(addr: &str) -> Serving {
    Serving::start(Server::bind(addr.parse().unwrap(), Limits::default()).unwrap())
}

/// This host's addresses of both families, each with both directions.
fn both_families_and_ways() -> Vec<(IpAddr, Direction)> {
    let hosts = [
        IpAddr::from(Ipv4Addr::LOCALHOST),
        Ipv6Addr::LOCALHOST.into(),
    ];
    let ways = [Direction::Up, Direction::Down];
    let of = |host| ways.map(|way| (host, way));
    hosts.into_iter().flat_map(of).collect()
}

fn marked(number: u8) -> Approach {
    Approach {
        dscp: Dscp::new(number),
        ..Approach::default()
    }
}

#[test]
fn both_ends_mark_control_and_data_over_ipv4_and_ipv6() {
    let _alone = alone();
    in_own_network(|| {
        for (host, direction) in both_families_and_ways() {
            // A server each: what an earlier one still has to say has another port.
            let dual = serve("[::]:0");
            let port = dual.addr.port();
            let addr = SocketAddr::new(host, port);
            let socket = listen("lo");
            measure_with(&marked(46), addr, direction);
            let seen = drain(&socket);
            let near = seen.iter().filter(|p| p.to.port() == port);
            let unmarked: Vec<_> = near.clone().filter(|p| p.dscp != 46).collect();
            assert!(near.count() > 20, "{addr} {direction:?}: {seen:?}");
            assert!(unmarked.is_empty(), "{addr} {direction:?}: {unmarked:?}");
            // The far end learns of it with the wish: what it sends after that is marked.
            let mut far: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
            for packet in seen.iter().filter(|p| p.from.port() == port) {
                far.entry(packet.to.port()).or_default().push(packet.dscp);
            }
            assert_eq!(far.len(), 2, "control and one stream: {far:?}");
            for marks in far.values() {
                let first = marks.iter().position(|&m| m == 46).unwrap();
                assert!(marks[first..].iter().all(|&m| m == 46), "{addr}: {marks:?}");
                assert!(marks[..first].iter().all(|&m| m == 0), "{addr}: {marks:?}");
            }
            let payload = |p: &&Seen| p.from.port() == port && p.payload && p.dscp == 46;
            assert!(seen.iter().any(|p| payload(&p)), "{addr} {direction:?}");
        }
    });
}

#[test]
fn both_ends_mark_every_datagram_over_ipv4_and_ipv6() {
    let _alone = alone();
    in_own_network(|| {
        // Datagrams of the loopback interface's own MTU would be too few.
        Netlink::open().unwrap().set_up("lo", Some(1_500)).unwrap();
        for transport in [Transport::Udp, Transport::Quic] {
            for (host, direction) in both_families_and_ways() {
                let dual = serve("[::]:0");
                let addr = SocketAddr::new(host, dual.addr.port());
                let what = format!("{transport:?} {addr} {direction:?}");
                let socket = listen("lo");
                // A sender that had no CPU in its 20 ms sent nothing: then once more.
                let mut seen = Vec::new();
                for _ in 0..20 {
                    measure_by(transport, &marked(46), addr, direction);
                    seen.extend(drain_all(&socket));
                    seen.retain(|p| p.protocol == UDP);
                    let (near, far): (Vec<&Seen>, Vec<_>) = seen.iter().partition(|p| p.to == addr);
                    if near.len().max(far.len()) > 3 {
                        break;
                    }
                }
                let (near, far): (Vec<&Seen>, Vec<_>) = seen.iter().partition(|p| p.to == addr);
                let unmarked = seen.iter().filter(|p| p.dscp != 46).count();
                assert_eq!(
                    unmarked,
                    0,
                    "{what}: {} near, {} far",
                    near.len(),
                    far.len()
                );
                // Over UDP the server answers openings, and up it sends nothing else; over QUIC both ends send.
                let (near, far) = (near.len(), far.len());
                match (transport, direction) {
                    (Transport::Udp, Direction::Up) => {
                        assert!(near > 3 && far > 0 && far < near, "{what}: {near}, {far}")
                    }
                    _ => assert!(near > 0 && far > 3, "{what}: {near}, {far}"),
                }
            }
        }
    });
}

#[test]
fn multipath_connections_are_marked_over_ipv4_and_refused_by_name_over_ipv6() {
    let _alone = alone();
    in_own_network(|| {
        if std::fs::write("/proc/sys/net/mptcp/enabled", "1").is_err() {
            testing::skipped("this kernel has no MPTCP");
            return;
        }
        for (host, direction) in both_families_and_ways() {
            let dual = serve("[::]:0");
            let addr = SocketAddr::new(host, dual.addr.port());
            let approach = marked(46);
            if host.is_ipv6() {
                let mut client =
                    Client::connect_addr_by(&approach, addr, PATIENCE, &Stop::new()).unwrap();
                let config = Config {
                    transport: Transport::Mptcp,
                    dscp: approach.dscp,
                    ..short(direction, 1)
                };
                let refused = client.run(&config, &Stop::new(), &mut |_| {}).unwrap_err();
                assert!(refused.to_string().contains("no IPV6_TCLASS"), "{refused}");
                assert_eq!(refused.fault(), measure::Fault::Usage);
                continue;
            }
            let socket = listen("lo");
            measure_by(Transport::Mptcp, &approach, addr, direction);
            let mut seen = drain(&socket);
            // What the greeting says is not marked, at the server.
            seen.retain(|p| p.payload && (p.to == addr) == (direction == Direction::Up));
            let marks = seen.iter().filter(|p| p.dscp == 46).count();
            assert!(
                marks > 5 && seen.len() - marks < 5,
                "{addr} {direction:?}: {seen:?}"
            );
        }
    });
}

#[test]
fn pings_beside_a_transfer_and_their_answers_are_marked() {
    let _alone = alone();
    in_own_network(|| {
        let dual = serve("[::]:0");
        for host in ["127.0.0.1", "::1"] {
            let addr = SocketAddr::new(host.parse().unwrap(), dual.addr.port());
            let client =
                Client::connect_addr_by(&marked(46), addr, PATIENCE, &Stop::new()).unwrap();
            let socket = listen("lo");
            let pinger = Pinger::start(&client, Duration::from_ms(1), PATIENCE).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(50));
            let answered = pinger.finish().unwrap().len();
            let seen = drain(&socket);
            assert!(answered > 0);
            assert!(
                seen.iter().all(|p| p.to != addr || p.dscp == 46),
                "{seen:?}"
            );
            // Greeting and welcome come before the first ping.
            let words = seen.iter().filter(|p| p.from == addr && p.payload);
            let marks: Vec<u8> = words.map(|p| p.dscp).collect();
            assert!(marks.iter().is_sorted(), "{marks:?}");
            let marked = marks.iter().filter(|&&m| m == 46).count();
            assert!(marked >= answered, "{marked} of {answered}: {marks:?}");
        }
    });
}

#[test]
fn without_a_mark_nothing_is_marked() {
    let _alone = alone();
    in_own_network(|| {
        let serving = serve("127.0.0.1:0");
        for transport in [Transport::Tcp, Transport::Udp, Transport::Quic] {
            let socket = listen("lo");
            let none = Approach::default();
            measure_by(transport, &none, serving.addr, Direction::Down);
            let seen = drain_all(&socket);
            assert!(seen.len() > 20, "{transport:?}");
            assert!(seen.iter().all(|p| p.dscp == 0), "{seen:?}");
        }
    });
}

#[test]
fn control_and_data_come_from_the_source_address() {
    let _alone = alone();
    in_own_network(|| {
        let serving = serve("127.0.0.1:0");
        let socket = listen("lo");
        let source: IpAddr = "127.9.8.7".parse().unwrap();
        let approach = Approach {
            bind: Some((source, 0).into()),
            device: Some("lo".to_owned()),
            ..Approach::default()
        };
        measure_with(&approach, serving.addr, Direction::Up);
        let seen = drain(&socket);
        let mut near = seen.iter().filter(|p| p.to == serving.addr).peekable();
        assert!(near.peek().is_some());
        assert!(near.all(|p| p.from.ip() == source), "{seen:?}");
    });
}

#[test]
fn messages_come_from_the_source_address_and_both_ends_mark_them() {
    let _alone = alone();
    in_own_network(|| {
        let serving = serve("127.0.0.1:0");
        let approach = Approach {
            device: Some("lo".to_owned()),
            dscp: Dscp::new(46),
            ..crate::common::from("127.9.8.7")
        };
        let socket = listen("lo");
        let stop = Stop::new();
        let mut client = Client::connect_addr_by(&approach, serving.addr, PATIENCE, &stop).unwrap();
        let spec = MessageSpec {
            count: 20,
            ..MessageSpec::default()
        };
        client.messages(&spec, &stop).unwrap();
        let seen = drain(&socket);
        let near: Vec<&Seen> = seen.iter().filter(|p| p.to == serving.addr).collect();
        let same = |p: &&&Seen| p.from.ip() == approach.bind.unwrap().ip() && p.dscp == 46;
        assert_eq!(near.iter().filter(same).count(), near.len(), "{near:?}");
        // Twenty answers and the account, all after the wish.
        let marked = |p: &&Seen| p.from == serving.addr && p.payload && p.dscp == 46;
        assert!(seen.iter().filter(marked).count() > 20, "{seen:?}");
    });
}

#[test]
fn datagrams_that_fill_the_mtu_leave_many_at_a_time() {
    let _alone = alone();
    in_own_network(|| {
        Netlink::open().unwrap().set_up("lo", Some(1_500)).unwrap();
        for addr in ["127.0.0.1:0", "[::1]:0"] {
            let serving = serve(addr);
            let socket = listen("lo");
            let mut client = serving.client();
            let config = Config {
                duration: Duration::from_ms(20),
                ramp: Duration::ZERO,
                transport: Transport::Udp,
                ..Config::default()
            };
            let outcome = client.run(&config, &Stop::new(), &mut |_| {}).unwrap();
            // IP and UDP have 28 or 48 bytes.
            let payload = if serving.addr.is_ipv4() { 1_472 } else { 1_452 };
            assert_eq!(outcome.config.block_bytes, payload);
            let mut buffer = vec![0; 1 << 17];
            let mut longest = 0;
            while let Some(received) = socket.receive(&mut buffer).unwrap() {
                longest = longest.max(received.len);
            }
            assert!(longest > 10 * 1_500, "{addr}: {longest} B in one piece");
        }
    });
}

#[test]
fn an_iperf3_server_is_come_to_the_same_way() {
    let _alone = alone();
    in_own_network(|| {
        let serving = serve("127.0.0.1:0");
        let socket = listen("lo");
        let approach = Approach {
            device: Some("lo".to_owned()),
            dscp: Dscp::new(10),
            ..crate::common::from("127.9.8.7")
        };
        let wish = iperf3::Wish {
            config: Config {
                ramp: Duration::ZERO,
                dscp: approach.dscp,
                ..Config::default()
            },
            bytes: Some(100_000),
            ..iperf3::Wish::default()
        };
        let (stop, target) = (Stop::new(), serving.addr.to_string());
        let client = iperf3::Client::connect_by(&approach, &target, PATIENCE, &stop).unwrap();
        client.run(&wish, &stop, &mut |_| {}).unwrap();
        let seen = drain(&socket);
        let near: Vec<&Seen> = seen.iter().filter(|p| p.to == serving.addr).collect();
        assert!(near.len() > 10, "{seen:?}");
        let same = |p: &&&Seen| p.from.ip() == approach.bind.unwrap().ip() && p.dscp == 10;
        assert_eq!(near.iter().filter(same).count(), near.len(), "{near:?}");
        // The server marks its streams as the parameters tell it.
        let far = |p: &&Seen| p.from == serving.addr && p.dscp == 10;
        assert!(seen.iter().any(|p| far(&p)), "{seen:?}");
    });
}

/// Two links from this network to one of its own, named `near0`, `near1` and `far0`, `far1`, with
/// 198.18.0.0/24 and 198.18.1.0/24; all of 198.18 can be reached over the second, too.
pub(crate) fn two_links() -> NetNs {
    let (near, far) = (NetNs::current().unwrap(), NetNs::create().unwrap());
    let settle = || {
        let conf = "/proc/sys/net/ipv4/conf";
        for file in ["all/rp_filter", "default/rp_filter"] {
            // What comes by the second link for the first is not to be dropped (RFC 3704).
            std::fs::write(format!("{conf}/{file}"), "0").unwrap();
        }
        // Nothing travels that nobody sent; absent where the kernel has no IPv6.
        let silent = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
        drop(std::fs::write(silent, "1"));
    };
    settle();
    far.run(settle).unwrap();
    for n in 0..2 {
        let name = |side| format!("{side}{n}");
        let (here, there) = (name("near"), name("far"));
        let end = |name, side, netns| VethEnd {
            name,
            mac: [2, 0, 0, 0, side, n],
            netns,
        };
        let ends = (end(&here, 1, near.as_fd()), end(&there, 2, far.as_fd()));
        let mut netlink = Netlink::open().unwrap();
        netlink.add_veth(ends.0, ends.1).unwrap();
        let begin = |name: &str, last| {
            let mut netlink = Netlink::open().unwrap();
            let address = Ipv4Addr::new(198, 18, n, last);
            netlink.add_address(name, address, 24).unwrap();
            netlink.set_up(name, None).unwrap();
        };
        far.run(|| begin(&there, 2)).unwrap();
        begin(&here, 1);
    }
    let (all, by) = ([198, 18, 0, 0], [198, 18, 1, 2]);
    let routed = Netlink::open()
        .unwrap()
        .add_route("near1", all.into(), 16, by.into());
    routed.unwrap();
    far
}

#[test]
fn stamp_probes_come_from_the_source_address_and_bear_the_mark() {
    let _alone = alone();
    in_own_network(|| {
        for (any, source) in [("127.0.0.1:0", "127.9.8.7"), ("[::1]:0", "::1")] {
            let reflector = Reflector::bind(any.parse().unwrap()).unwrap();
            let (addr, stop) = (reflector.local_addr(), Stop::new());
            let socket = listen("lo");
            let approach = Approach {
                device: Some("lo".to_owned()),
                dscp: Dscp::new(46),
                ..crate::common::from(source)
            };
            let probing = Probing {
                count: 5,
                wait: PATIENCE,
                ..Probing::default()
            };
            let probed = std::thread::scope(|scope| {
                scope.spawn(|| reflector.serve(&stop).unwrap());
                let probed = probe_by(&approach, &addr.to_string(), &probing, &Stop::new());
                stop.stop();
                probed.unwrap()
            });
            assert_eq!(probed.replies.len(), 5, "{any}");
            let mut seen = drain_all(&socket);
            seen.retain(|p| p.protocol == UDP && p.to == addr);
            let marks: Vec<_> = seen.iter().map(|p| (p.from.ip(), p.dscp)).collect();
            assert_eq!(marks, [(approach.bind.unwrap().ip(), 46); 5], "{any}");
        }
    });
}

#[test]
fn stamp_probes_leave_by_the_device_that_was_named() {
    in_own_network(|| {
        let far = two_links();
        let bind = || Reflector::bind("198.18.0.2:0".parse().unwrap()).unwrap();
        let reflector = far.run(bind).unwrap();
        let links = ["far0", "far1"].map(|name| far.run(|| listen(name)).unwrap());
        let (addr, stop) = (reflector.local_addr().to_string(), Stop::new());
        std::thread::scope(|scope| {
            scope.spawn(|| reflector.serve(&stop).unwrap());
            for (device, expected) in [(None, [3, 0]), (Some("near1".to_owned()), [0, 3])] {
                let approach = Approach {
                    device,
                    ..Approach::default()
                };
                let probing = Probing {
                    count: 3,
                    wait: PATIENCE,
                    ..Probing::default()
                };
                probe_by(&approach, &addr, &probing, &Stop::new()).unwrap();
                let came = links.each_ref().map(transported);
                assert_eq!(came, expected, "{approach:?}");
            }
            stop.stop();
        });
    });
}

#[test]
fn stamp_probes_from_what_is_not_here_or_with_a_token_are_refused() {
    let wrong = |approach: &Approach| {
        let probing = Probing::default();
        probe_by(approach, "127.0.0.1:1", &probing, &Stop::new()).unwrap_err()
    };
    let error = wrong(&crate::common::from("192.0.2.1"));
    assert!(matches!(error, MeasureError::Local { .. }), "{error}");
    assert!(error.to_string().contains("ip addr"), "{error}");
    let error = wrong(&crate::common::from("::1"));
    assert!(matches!(error, MeasureError::Config(_)), "{error}");
    let error = wrong(&Approach {
        secret: Some(Secret::new(b"sixteen bytes or more").unwrap()),
        ..Approach::default()
    });
    assert!(matches!(error, MeasureError::Config(_)), "{error}");
}

#[test]
fn every_transport_leaves_and_comes_by_the_device_that_was_named() {
    in_own_network(|| {
        let far = two_links();
        let here = "198.18.0.2:0".parse().unwrap();
        let serve = || Serving::start(Server::bind(here, Limits::default()).unwrap());
        let serving = far.run(serve).unwrap();
        let links = ["far0", "far1"].map(|name| far.run(|| listen(name)).unwrap());
        let approach = Approach {
            device: Some("near1".to_owned()),
            ..Approach::default()
        };
        let mut client = serving.connect(&approach).unwrap();
        for transport in [Transport::Tcp, Transport::Udp, Transport::Quic] {
            for direction in [Direction::Up, Direction::Down] {
                let udp = transport == Transport::Udp;
                let config = Config {
                    transport,
                    rate: udp.then(|| Rate::from_bits_per_second(5_000_000)),
                    ..short(direction, 2)
                };
                let outcome = transfer(&mut client, &config);
                assert!(outcome.receiver.bytes > 0, "{transport:?} {direction:?}");
                let [other, named] = links.each_ref().map(transported);
                assert!(named > 0, "{transport:?} {direction:?}");
                assert_eq!(other, 0, "{transport:?} {direction:?}");
            }
        }
        // Left to itself the kernel takes the other link.
        transfer(&mut serving.client(), &short(Direction::Up, 1));
        assert!(transported(&links[0]) > 0);
    });
}

#[test]
fn an_address_or_device_that_is_not_here_is_this_hosts_fault() {
    let serving = serve("127.0.0.1:0");
    for (approach, says) in [
        (crate::common::from("192.0.2.1"), "ip addr"),
        (
            Approach {
                device: Some("no-such-if".to_owned()),
                ..Approach::default()
            },
            "ip link",
        ),
    ] {
        let error = serving.connect(&approach).unwrap_err();
        assert!(matches!(error, MeasureError::Local { .. }), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    let six = crate::common::from("::1");
    let stop = Stop::new();
    let target = serving.addr.to_string();
    let error = Client::connect_by(&six, &target, PATIENCE, &stop).unwrap_err();
    assert!(matches!(error, MeasureError::Config(_)), "{error}");
    assert!(
        run(
            &mut serving.connect(&Approach::default()).unwrap(),
            Direction::Up
        )
        .complete
    );
}
