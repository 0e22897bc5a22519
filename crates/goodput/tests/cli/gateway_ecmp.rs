//! Two gateways behind one address: a router on each side shares connections out between them (ECMP).

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use serde_json::Value;
use sys::netlink::{Netlink, VethEnd};
use sys::netns::NetNs;

use super::gateway::net::PATIENCE;
use super::support::{Running, Scratch, wait_until};

const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 2, 2);
const CONNECTIONS: usize = 32;

/// Client, router, two gateways side by side, router, server.
struct Wide {
    client: NetNs,
    inner: NetNs,
    gateways: [NetNs; 2],
    outer: NetNs,
    server: NetNs,
}

fn end<'n>((ns, name): (&'n NetNs, &'n str), net: u8, host: u8) -> VethEnd<'n> {
    VethEnd {
        name,
        mac: [2, 0, 0, 4, net, host],
        netns: ns.as_fd(),
    }
}

/// A link of the network 198.18.`net`.0/24: `near` is its host 1, `far` its host 2.
fn join(near: (&NetNs, &str), far: (&NetNs, &str), net: u8) {
    let made = near
        .0
        .run(|| Netlink::open()?.add_veth(end(near, net, 1), end(far, net, 2)));
    made.unwrap().unwrap();
    for (host, (ns, name)) in [(1, near), (2, far)] {
        let made = ns.run(|| -> io::Result<()> {
            let mut netlink = Netlink::open()?;
            netlink.set_up("lo", None)?;
            netlink.add_address(name, Ipv4Addr::new(198, 18, net, host), 24)?;
            netlink.set_up(name, None)
        });
        made.unwrap().unwrap();
    }
}

/// A command with words as a guide would have them; `false` where it cannot be run or says no.
fn does(ns: &NetNs, words: &str) -> bool {
    let mut words = words.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words).stdout(Stdio::null());
    ns.place(&mut command).unwrap();
    command.status().is_ok_and(|status| status.success())
}

fn set(ns: &NetNs, settings: &[(&str, &str)]) {
    let written = ns.run(|| {
        let name = |name: &str| format!("/proc/sys/net/ipv4/{name}");
        settings
            .iter()
            .try_for_each(|(key, value)| std::fs::write(name(key), value))
    });
    written.unwrap().unwrap();
}

const FORWARDS: [(&str, &str); 3] = [
    ("ip_forward", "1"),
    ("conf/all/rp_filter", "0"),
    ("conf/default/rp_filter", "0"),
];
/// By the addresses and the ports, both directions alike, and at both routers alike.
const SHARES: [(&str, &str); 3] = [
    ("fib_multipath_hash_policy", "3"),
    ("fib_multipath_hash_fields", "0x37"),
    ("fib_multipath_hash_seed", "7"),
];
const INWARD: &str =
    "ip route replace 198.18.1.0/24 nexthop via 198.18.21.1 nexthop via 198.18.22.1";
const INWARD_CROSSED: &str =
    "ip route replace 198.18.1.0/24 nexthop via 198.18.22.1 nexthop via 198.18.21.1";
const OUTWARD: &str =
    "ip route replace 198.18.2.0/24 nexthop via 198.18.11.2 nexthop via 198.18.12.2";

impl Wide {
    /// `None` without the privilege, without ip(8), and where the kernel's hash has no seed (before 6.11): then both
    /// routers share it, being one kernel, but no two machines would.
    fn new() -> Option<Self> {
        let made: Result<Vec<NetNs>, _> = (0..6).map(|_| NetNs::create()).collect();
        let Ok(made) = made else {
            testing::skipped("no privilege to make namespaces");
            return None;
        };
        let [client, inner, one, two, outer, server] = made.try_into().ok().unwrap();
        let wide = Self {
            client,
            inner,
            gateways: [one, two],
            outer,
            server,
        };
        for ns in [
            &wide.inner,
            &wide.outer,
            &wide.gateways[0],
            &wide.gateways[1],
        ] {
            set(ns, &FORWARDS);
        }
        let seed = "/proc/sys/net/ipv4/fib_multipath_hash_seed";
        let has_seed = wide.inner.run(|| std::path::Path::new(seed).exists());
        if !has_seed.unwrap() || !does(&wide.inner, "ip -V") {
            testing::skipped("no ip(8), or a kernel without fib_multipath_hash_seed");
            return None;
        }
        for ns in [&wide.inner, &wide.outer] {
            set(ns, &SHARES);
        }
        join((&wide.inner, "c0"), (&wide.client, "eth0"), 1);
        join((&wide.outer, "s0"), (&wide.server, "eth0"), 2);
        for (net, gateway) in (0_u8..).zip(&wide.gateways) {
            let name = ["g0", "g1"][usize::from(net)];
            join((&wide.inner, name), (gateway, "in0"), 11 + net);
            join((gateway, "out0"), (&wide.outer, name), 21 + net);
            for words in [
                format!("ip route add 198.18.1.0/24 via 198.18.{}.1", 11 + net),
                format!("ip route add 198.18.2.0/24 via 198.18.{}.2", 21 + net),
            ] {
                assert!(does(gateway, &words), "{words}");
            }
        }
        for (ns, words) in [
            (&wide.client, "ip route add default via 198.18.1.1"),
            (&wide.server, "ip route add default via 198.18.2.1"),
            (&wide.inner, OUTWARD),
            (&wide.outer, INWARD),
        ] {
            assert!(does(ns, words), "{words}");
        }
        Some(wide)
    }

    fn start(&self, number: usize, scratch: &Scratch) -> Running {
        let control = control(scratch, number);
        let args = [
            "gateway",
            "--inside",
            "in0",
            "--outside",
            "out0",
            "--control",
        ];
        let mut command = scratch.goodput(&[&args[..], &[&control]].concat());
        self.gateways[number].place(&mut command).unwrap();
        let running = scratch.start(command);
        running.stderr_when("gateway: splitting between in0 and out0");
        running
    }

    fn status(&self, number: usize, scratch: &Scratch) -> Value {
        let control = control(scratch, number);
        let args = ["gateway", "status", "--json", "--control", &control];
        scratch.run(scratch.goodput(&args)).succeeds().json()
    }

    /// What both count, one after the other.
    fn counts(&self, name: &str, scratch: &Scratch) -> [u64; 2] {
        [0, 1].map(|number| self.status(number, scratch)[name].as_u64().unwrap())
    }

    fn listen(&self) -> TcpListener {
        let bind = || TcpListener::bind((SERVER, 0));
        self.server.run(bind).unwrap().unwrap()
    }

    /// Connections that all stand, each with what was sent both ways.
    fn connections(&self, listener: &TcpListener) -> Vec<(TcpStream, TcpStream)> {
        let addr = listener.local_addr().unwrap();
        let mut pairs: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                let connect = || TcpStream::connect_timeout(&addr, PATIENCE);
                let near = self.client.run(connect).unwrap().unwrap();
                let (far, from) = listener.accept().unwrap();
                assert_eq!(from, near.local_addr().unwrap());
                for socket in [&near, &far] {
                    socket.set_read_timeout(Some(PATIENCE)).unwrap();
                }
                (near, far)
            })
            .collect();
        exchange(&mut pairs);
        pairs
    }
}

fn control(scratch: &Scratch, number: usize) -> String {
    let file = scratch.path(&format!("control-{number}"));
    file.to_str().unwrap().to_owned()
}

/// Each connection carries bytes of its own there and back.
fn exchange(pairs: &mut [(TcpStream, TcpStream)]) {
    for (number, (near, far)) in pairs.iter_mut().enumerate() {
        let word: Vec<u8> = (0..20_000_usize)
            .map(|n| u8::try_from((n + number) % 251).unwrap())
            .collect();
        let mut got = vec![0; word.len()];
        near.write_all(&word).unwrap();
        far.read_exact(&mut got).unwrap();
        assert!(got == word, "{number} there");
        far.write_all(&word).unwrap();
        near.read_exact(&mut got).unwrap();
        assert!(got == word, "{number} back");
    }
}

fn is_reset(socket: &TcpStream) -> bool {
    socket.set_nonblocking(true).unwrap();
    let said = socket.peek(&mut [0]).map_err(|e| e.kind());
    socket.set_nonblocking(false).unwrap();
    match said {
        Err(ErrorKind::ConnectionReset) => true,
        Err(ErrorKind::WouldBlock) => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_directions_of_each_connection_pass_the_same_of_two_gateways() {
    let scratch = Scratch::new();
    let Some(wide) = Wide::new() else { return };
    let _gateways = [0, 1].map(|number| wide.start(number, &scratch));
    let listener = wide.listen();
    let pairs = wide.connections(&listener);
    let split = wide.counts("split", &scratch);
    assert_eq!(split.iter().sum::<u64>(), CONNECTIONS as u64);
    assert!(split.iter().all(|n| *n > 0), "{split:?}");
    assert_eq!(wide.counts("one_way", &scratch), [0, 0]);
    drop(pairs);
    // By addresses alone, as the kernel does where nothing is set: what is between two hosts goes one way.
    for ns in [&wide.inner, &wide.outer] {
        set(ns, &[("fib_multipath_hash_policy", "0")]);
    }
    drop(wide.connections(&listener));
    let now = wide.counts("split", &scratch);
    let more = [now[0] - split[0], now[1] - split[1]];
    assert!(more.contains(&0), "{more:?}");
    assert_eq!(more.iter().sum::<u64>(), CONNECTIONS as u64);
    assert_eq!(wide.counts("one_way", &scratch), [0, 0]);
}

#[test]
fn a_killed_gateway_forwards_and_one_that_is_taken_away_leaves_all_to_the_other() {
    let scratch = Scratch::new();
    let Some(wide) = Wide::new() else { return };
    let [_stays, killed] = [0, 1].map(|number| wide.start(number, &scratch));
    let listener = wide.listen();
    let before = wide.connections(&listener);
    let split = wide.counts("split", &scratch);
    killed.signal("KILL");
    killed.end();
    // What it carried is reset at both ends; what the other one carries has not felt it.
    let mut felt = vec![[false; 2]; before.len()];
    wait_until("its connections to be reset", || {
        for (felt, (near, far)) in felt.iter_mut().zip(&before) {
            for (felt, socket) in felt.iter_mut().zip([near, far]) {
                // Told once.
                *felt = *felt || is_reset(socket);
            }
        }
        felt.iter().filter(|felt| **felt == [true; 2]).count() as u64 == split[1]
    });
    let stood = before.into_iter().zip(felt);
    let stood = stood.filter(|(_, felt)| *felt == [false; 2]);
    let mut stood: Vec<_> = stood.map(|(pair, _)| pair).collect();
    assert_eq!(stood.len() as u64, split[0]);
    exchange(&mut stood);
    // Its machine forwards: new connections that go by it pass unsplit.
    let pairs = wide.connections(&listener);
    let now = wide.status(0, &scratch)["split"].as_u64().unwrap();
    assert!(
        now > split[0] && now < split[0] + CONNECTIONS as u64,
        "{now} of {split:?}"
    );
    drop(pairs);
    // Its machine is gone, and both routers know: nothing goes that way.
    for ns in [&wide.inner, &wide.outer] {
        assert!(does(ns, "ip link set g1 down"));
    }
    let pairs = wide.connections(&listener);
    let last = wide.status(0, &scratch)["split"].as_u64().unwrap();
    assert_eq!(last, now + CONNECTIONS as u64);
    exchange(&mut stood);
    drop(pairs);
}

#[test]
fn where_answers_come_by_the_other_gateway_connections_live_unsplit() {
    let scratch = Scratch::new();
    let Some(wide) = Wide::new() else { return };
    assert!(does(&wide.outer, INWARD_CROSSED));
    let _gateways = [0, 1].map(|number| wide.start(number, &scratch));
    let listener = wide.listen();
    let pairs = wide.connections(&listener);
    assert_eq!(wide.counts("split", &scratch), [0, 0]);
    // Each has found it by the first connection that came by it, and that one was made as well.
    assert_eq!(wide.counts("one_way", &scratch), [1, 1]);
    let passed = wide.counts("passed_one_way", &scratch);
    assert!(
        passed.iter().sum::<u64>() >= CONNECTIONS as u64,
        "{passed:?}"
    );
    drop(pairs);
}
