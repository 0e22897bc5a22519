//! Addresses of one link (RFC 4007): a target, a source address and a listener with their interface, over a pair of
//! interfaces in namespaces of their own, of which only the interface's name leads from one to the other.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use measure::stamp::{Probing, Reflector, probe_by};
use measure::{
    Approach, Client, Config, Direction, Limits, MeasureError, Server, Stop, Transport, iperf3,
};
use sys::endpoint;
use sys::netlink::{Netlink, VethEnd};
use sys::netns::NetNs;
use units::{Duration, Rate};

use crate::common::{PATIENCE, Serving, in_own_network, short, transfer};

/// Two links to another namespace; the far end of both has the address `fe80::b`, so that without the interface nobody could
/// say which is meant. Where something listens there on the second.
fn two_links_with_one_address() -> NetNs {
    let (near, far) = (NetNs::current().unwrap(), NetNs::create().unwrap());
    for n in 1..=2 {
        let end = |name, netns, mac| VethEnd {
            name,
            netns,
            mac: [2, 0, 0, 0, mac, n],
        };
        let (here, there) = (format!("near{n}"), format!("far{n}"));
        let mut netlink = Netlink::open().unwrap();
        netlink
            .add_veth(end(&here, near.as_fd(), 1), end(&there, far.as_fd(), 2))
            .unwrap();
        let up = |name: &str, last: u16| {
            let address: std::net::Ipv6Addr = [0xfe80, 0, 0, 0, 0, 0, 0, last].into();
            let mut netlink = Netlink::open().unwrap();
            netlink.add_address(name, address, 64).unwrap();
            netlink.set_up(name, None).unwrap();
        };
        up(&here, 0xa);
        far.run(|| up(&there, 0xb)).unwrap();
    }
    far
}

fn serve_on_the_second(far: &NetNs) -> Serving {
    let start = || {
        let at = endpoint::listening("[fe80::b%far2]:0", 0).unwrap();
        Serving::start(Server::bind(at, Limits::default()).unwrap())
    };
    far.run(start).unwrap()
}

/// From `fe80::a` on an interface, or wherever the kernel likes.
fn from(source: Option<&str>) -> Approach {
    Approach {
        bind: source.map(|typed| endpoint::source(typed).unwrap()),
        ..Approach::default()
    }
}

#[test]
fn a_link_local_target_is_measured_over_every_transport() {
    in_own_network(|| {
        let far = two_links_with_one_address();
        let serving = serve_on_the_second(&far);
        let port = serving.addr.port();
        let stop = Stop::new();
        let interface = |at: Option<SocketAddr>| match at.unwrap() {
            SocketAddr::V6(v6) => v6.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        let second = interface(Some(endpoint::source("fe80::a%near2").unwrap()));
        for (source, target) in [
            (None, format!("[fe80::b%near2]:{port}")),
            (Some("fe80::a%near2"), format!("[fe80::b%near2]:{port}")),
            // The source says by which interface.
            (Some("fe80::a%near2"), format!("[fe80::b]:{port}")),
        ] {
            let mut client = Client::connect_by(&from(source), &target, PATIENCE, &stop).unwrap();
            assert_eq!(
                interface(client.local_addr()),
                second,
                "{source:?} {target}"
            );
            for transport in [Transport::Tcp, Transport::Udp, Transport::Quic] {
                for direction in [Direction::Up, Direction::Down] {
                    let config = Config {
                        transport,
                        rate: (transport == Transport::Udp)
                            .then(|| Rate::from_bits_per_second(10_000_000)),
                        ..short(direction, 2)
                    };
                    let outcome = transfer(&mut client, &config);
                    let which = format!("{transport:?} {direction:?} {source:?} {target}");
                    assert!(outcome.receiver.bytes > 0, "{which}");
                }
            }
        }
        let other = format!("[fe80::b%near1]:{port}");
        let refused = Client::connect_by(&from(None), &other, PATIENCE, &stop).unwrap_err();
        assert!(matches!(refused, MeasureError::Refused { .. }), "{refused}");
    });
}

#[test]
fn iperf3s_protocol_and_stamp_take_a_link_local_target_too() {
    in_own_network(|| {
        let far = two_links_with_one_address();
        let serving = serve_on_the_second(&far);
        let stop = Stop::new();
        let target = format!("[fe80::b%near2]:{}", serving.addr.port());
        for source in [None, Some("fe80::a%near2")] {
            for udp in [None, Some(Rate::from_bits_per_second(1_000_000))] {
                let wish = iperf3::Wish {
                    config: Config {
                        ramp: Duration::ZERO,
                        ..Config::default()
                    },
                    bytes: Some(100_000),
                    udp,
                    ..iperf3::Wish::default()
                };
                let client = iperf3::Client::connect_by(&from(source), &target, PATIENCE, &stop);
                let tested = client.unwrap().run(&wish, &stop, &mut |_| {}).unwrap();
                assert!(tested.far.streams[0].bytes > 0, "{source:?} {udp:?}");
            }
        }
        let bind = || Reflector::bind(endpoint::listening("fe80::b%far2", 0).unwrap()).unwrap();
        let reflector = far.run(bind).unwrap();
        let target = format!("[fe80::b%near2]:{}", reflector.local_addr().port());
        let probing = Probing {
            count: 3,
            wait: PATIENCE,
            ..Probing::default()
        };
        let probed = std::thread::scope(|scope| {
            let reflecting = Stop::new();
            scope.spawn({
                let reflecting = reflecting.clone();
                let reflector = &reflector;
                move || reflector.serve(&reflecting).unwrap()
            });
            let probed = probe_by(&from(None), &target, &probing, &stop);
            reflecting.stop();
            probed.unwrap()
        });
        assert_eq!(probed.replies.len(), 3);
    });
}
