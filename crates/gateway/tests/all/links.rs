//! A gateway with several links outside, each a pair of interfaces of real kernels.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::net::{CLIENT, Net, PATIENCE, shown};
use gateway::Gateway;
use gateway::config::Config;
use gateway::links::LinkStatus;
use gateway::view::Seen;
use sys::netlink::{LinkCounters, Netlink, VethEnd};

/// The server's, behind all links.
const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 80);

/// [`Net`] with so many links more between gateway and server.
struct Wide {
    net: Net,
    names: Vec<String>,
}

impl Wide {
    fn new(count: u8) -> Option<Self> {
        let net = Net::new()?;
        let names: Vec<String> = (0..count).map(|n| format!("up{n}")).collect();
        for (number, name) in (0..count).zip(&names) {
            let there = VethEnd {
                name,
                mac: [2, 0, 0, 1, number, 2],
                netns: net.server.as_fd(),
            };
            let here = VethEnd {
                name,
                mac: [2, 0, 0, 1, number, 1],
                netns: net.middle.as_fd(),
            };
            let [near, far] = [1, 2].map(|host| Ipv4Addr::new(198, 18, 100 + number, host));
            let metric = 100 + u32::from(number);
            let made = net.middle.run(|| -> io::Result<()> {
                let mut netlink = Netlink::open()?;
                netlink.add_veth(there, here)?;
                netlink.add_address(name, near, 24)?;
                netlink.set_up(name, None)
            });
            made.unwrap().unwrap();
            let made = net.server.run(|| -> io::Result<()> {
                let mut netlink = Netlink::open()?;
                netlink.add_address(name, far, 24)?;
                netlink.set_up(name, None)?;
                netlink.add_route_of(
                    name,
                    Ipv4Addr::new(198, 18, 1, 0).into(),
                    24,
                    near.into(),
                    metric,
                )
            });
            made.unwrap().unwrap();
            let made = net.middle.run(|| -> io::Result<()> {
                let mut netlink = Netlink::open()?;
                netlink.add_route_of(name, SERVER.into(), 32, far.into(), metric)
            });
            made.unwrap().unwrap();
        }
        let own = net
            .server
            .run(|| Netlink::open()?.add_address("lo", SERVER, 32));
        own.unwrap().unwrap();
        Some(Self { net, names })
    }

    fn gateway(&self, more: &str) -> Gateway {
        let text = format!(
            "[inside]\ninterfaces = ['in0']\n[outside]\ninterfaces = {:?}\n{more}",
            self.names
        );
        self.net.gateway(Config::parse(&text).unwrap())
    }

    fn listen(&self) -> TcpListener {
        let listener = self.net.server.run(|| TcpListener::bind((SERVER, 0)));
        listener.unwrap().unwrap()
    }

    fn pair(&self) -> (TcpStream, TcpStream) {
        let listener = self.listen();
        let near = self.net.connect(listener.local_addr().unwrap()).unwrap();
        let (far, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), IpAddr::from(CLIENT));
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        far.set_write_timeout(Some(PATIENCE)).unwrap();
        (near, far)
    }

    fn counters(&self) -> Vec<LinkCounters> {
        let read = self.net.middle.run(|| -> io::Result<Vec<LinkCounters>> {
            let mut netlink = Netlink::open()?;
            self.names.iter().map(|n| netlink.counters(n)).collect()
        });
        read.unwrap().unwrap()
    }
}

fn carry(from: &mut TcpStream, to: &mut TcpStream, bytes: &[u8]) {
    thread::scope(|scope| {
        scope.spawn(|| from.write_all(bytes).unwrap());
        let mut got = vec![0; bytes.len()];
        to.read_exact(&mut got).unwrap();
        assert!(got == bytes);
    });
}

fn bytes(n: usize) -> Vec<u8> {
    (0..n)
        .map(|i| (((i * 31) >> 7) ^ i).to_le_bytes()[0])
        .collect()
}

fn until(gateway: &Gateway, what: &str, done: impl Fn(&[LinkStatus]) -> bool) {
    let end = Instant::now() + PATIENCE;
    loop {
        let links = gateway.links();
        if done(&links) {
            return;
        }
        assert!(Instant::now() < end, "{what}: {links:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn four_connections_are_one_on_each_of_four_links_by_the_kernels_count() {
    let Some(wide) = Wide::new(4) else { return };
    let gateway = wide.gateway("");
    let sent = bytes(1 << 20);
    let before = wide.counters();
    let mut pairs: Vec<_> = (0..4).map(|_| wide.pair()).collect();
    for (near, far) in &mut pairs {
        carry(near, far, &sent);
    }
    for (then, now) in before.iter().zip(wide.counters()) {
        let carried = now.tx_bytes - then.tx_bytes;
        let one = sent.len() as u64;
        assert!((one..one * 3 / 2).contains(&carried), "{carried}");
    }
    drop(pairs);
    until(&gateway, "all end", |links| {
        links.iter().all(|l| l.connections == 0)
    });
}

#[test]
fn a_link_without_carrier_is_avoided_and_what_was_on_it_goes_on() {
    let Some(wide) = Wide::new(4) else { return };
    let gateway = wide.gateway("");
    let mut pairs: Vec<_> = (0..4).map(|_| wide.pair()).collect();
    until(&gateway, "one on each", |links| {
        links.iter().all(|l| l.connections == 1)
    });
    let cut = wide.net.server.run(|| Netlink::open()?.set_down("up2"));
    cut.unwrap().unwrap();
    let sent = bytes(4 << 20);
    thread::scope(|scope| {
        for (near, far) in &mut pairs {
            scope.spawn(|| carry(near, far, &sent));
        }
    });
    until(&gateway, "a dead link", |links| !links[2].alive);
    let before = gateway.links()[2].placed;
    // Which of the others carried least of late depends on when they did; all of them do in the end.
    let end = Instant::now() + PATIENCE;
    while ![0, 1, 3]
        .iter()
        .all(|&l: &usize| gateway.links()[l].placed > 1)
    {
        assert!(Instant::now() < end, "{:?}", gateway.links());
        let (mut near, mut far) = wide.pair();
        carry(&mut near, &mut far, b"new");
    }
    let links = gateway.links();
    assert_eq!(links[2].placed, before, "{links:?}");
    assert_eq!(gateway.counts().reset, 0);
}

#[test]
fn a_link_that_comes_back_carries_again() {
    let Some(wide) = Wide::new(2) else { return };
    let gateway = wide.gateway("spread = 'hash'");
    let set = |up: bool| {
        let changed = wide.net.server.run(|| {
            let mut netlink = Netlink::open()?;
            match up {
                true => netlink.set_up("up1", None),
                false => netlink.set_down("up1"),
            }
        });
        changed.unwrap().unwrap();
    };
    set(false);
    until(&gateway, "dead", |links| !links[1].alive);
    set(true);
    until(&gateway, "alive", |links| links[1].alive);
    let end = Instant::now() + PATIENCE;
    while gateway.links()[1].placed == 0 {
        assert!(Instant::now() < end);
        let (mut near, mut far) = wide.pair();
        carry(&mut near, &mut far, b"again");
    }
}

#[test]
fn a_next_hop_that_takes_anothers_place_need_not_answer() {
    let Some(wide) = Wide::new(2) else { return };
    let echo = |ignored: &str| {
        let file = "/proc/sys/net/ipv4/icmp_echo_ignore_all";
        let set = wide.net.server.run(|| std::fs::write(file, ignored));
        set.unwrap().unwrap();
    };
    let gateway = wide.gateway("");
    until(&gateway, "all have answered", |links| {
        links.iter().all(|l| l.answers)
    });
    echo("1");
    until(&gateway, "all are silent", |links| {
        links.iter().all(|l| !l.alive)
    });
    let next = Ipv4Addr::new(198, 18, 101, 3);
    let moved = wide
        .net
        .server
        .run(|| Netlink::open()?.add_address("up1", next, 24));
    moved.unwrap().unwrap();
    let moved = wide.net.middle.run(|| {
        let any = IpAddr::from(Ipv4Addr::UNSPECIFIED);
        Netlink::open()?.add_route_of("up1", any, 0, next.into(), 101)
    });
    moved.unwrap().unwrap();
    until(&gateway, "the new one lives", |links| links[1].alive);
    assert!(!gateway.links()[0].alive);
    echo("0");
    until(&gateway, "the old one is back", |links| links[0].alive);
}

#[test]
fn nothing_of_the_links_stays_behind() {
    let Some(wide) = Wide::new(3) else { return };
    let gateway = wide.gateway("");
    let (mut near, mut far) = wide.pair();
    carry(&mut near, &mut far, b"word");
    let routes = || {
        let read = wide.net.middle.run(|| -> io::Result<usize> {
            let mut netlink = Netlink::open()?;
            let mut sum = 0;
            for table in 4710..4720 {
                sum += netlink.routes_in(table)?;
            }
            Ok(sum)
        });
        read.unwrap().unwrap()
    };
    assert!(routes() > 2);
    // Who would use a table of ours is told so, and takes nothing away.
    let text = "table = 4711\nqueue = 9000\nport = 29000\nmark = 5\n[inside]\ninterfaces = ['in0']\n\
        [outside]\ninterfaces = ['out0']";
    let second = Config::parse(text).unwrap();
    let before = routes();
    let refused = wide.net.middle.run(|| Gateway::start(second)).unwrap();
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("4711"), "{said}");
    assert_eq!(routes(), before);
    drop(gateway);
    assert_eq!(routes(), 0);
    let rules = wide
        .net
        .middle
        .run(|| Netlink::open()?.rules_of(4710..=4711));
    assert_eq!(rules.unwrap().unwrap(), 0);
}

/// A command in the gateway's namespace; what it printed.
fn ip(wide: &Wide, words: &str) -> String {
    let mut command = Command::new("ip");
    command.args(words.split(' '));
    wide.net.middle.place(&mut command).unwrap();
    let ended = command.output().expect("iproute2 is installed");
    assert!(ended.status.success(), "{words}: {ended:?}");
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

/// Links that lead everywhere, as those to the world do.
fn to_the_world(wide: &Wide, more: &str) {
    for number in 0..wide.names.len() {
        let (net, metric) = (100 + number, 100 + number);
        let words = format!("via 198.18.{net}.2 dev up{number} metric {metric}{more}");
        ip(wide, &format!("route add default {words}"));
    }
}

#[test]
fn a_server_behind_an_interface_of_no_side_is_reached_by_that() {
    let Some(wide) = Wide::new(2) else { return };
    to_the_world(&wide, "");
    let beside = Ipv4Addr::new(198, 18, 2, 7);
    let listener = wide.net.server.run(|| {
        Netlink::open()?.add_address("eth0", beside, 24)?;
        TcpListener::bind((beside, 0))
    });
    let listener = listener.unwrap().unwrap();
    let gateway = wide.gateway("");
    let sent = bytes(1 << 20);
    let of = |name: &'static str| {
        let read = wide.net.middle.run(|| Netlink::open()?.counters(name));
        read.unwrap().unwrap().tx_bytes
    };
    let before = of("out0");
    // Whichever link it is placed on.
    for _ in 0..2 {
        let mut near = wide.net.connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        carry(&mut near, &mut far, &sent);
    }
    assert!(of("out0") - before > 2 << 20);
    assert_eq!(gateway.counts().split, 2);
}

#[test]
fn what_routes_forbid_stays_forbidden_with_several_links() {
    let Some(wide) = Wide::new(2) else { return };
    to_the_world(&wide, "");
    let kinds = ["unreachable", "prohibit", "blackhole"];
    for (number, kind) in (1..).zip(kinds) {
        let there = Ipv4Addr::new(203, 0, 113, number);
        ip(&wide, &format!("route add {kind} {there}/32"));
        let made = wide
            .net
            .server
            .run(|| Netlink::open()?.add_address("lo", there, 32));
        made.unwrap().unwrap();
    }
    let any = || TcpListener::bind("0.0.0.0:0");
    let listener = wide.net.server.run(any).unwrap().unwrap();
    let port = listener.local_addr().unwrap().port();
    let gateway = wide.gateway("");
    let connect = |host: u8, patience: Duration| {
        let to = SocketAddr::from(([203, 0, 113, host], port));
        let tried = wide
            .net
            .client
            .run(|| TcpStream::connect_timeout(&to, patience));
        tried.unwrap().unwrap_err().kind()
    };
    assert_eq!(connect(1, PATIENCE), ErrorKind::HostUnreachable);
    assert_eq!(connect(2, PATIENCE), ErrorKind::HostUnreachable);
    assert_eq!(gateway.counts().unreachable, 2);
    // Nobody says so: it passes, and is lost as it would be without a gateway.
    assert_eq!(connect(3, Duration::from_millis(300)), ErrorKind::TimedOut);
    assert!(gateway.counts().failed > 0);
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn what_a_route_says_of_its_connections_holds_on_each_link() {
    let Some(wide) = Wide::new(2) else { return };
    to_the_world(&wide, " features ecn mtu lock 1300 initcwnd 20");
    for (number, name) in wide.names.iter().enumerate() {
        // What leads there more closely says nothing.
        let (net, metric) = (100 + number, 100 + number);
        let via = format!("via 198.18.{net}.2 dev {name} metric {metric}");
        ip(&wide, &format!("route del {SERVER}/32 {via}"));
    }
    let gateway = wide.gateway("");
    for table in [4711, 4712] {
        let shown = ip(&wide, &format!("route show table {table} default"));
        for said in ["features ecn", "mtu lock 1300", "initcwnd 20"] {
            assert!(shown.contains(said), "{shown}");
        }
    }
    let _pairs = [wide.pair(), wide.pair()];
    let sizes = shown(&gateway, |seen| {
        let of = |seen: &Seen| seen.halves.each_ref().map(|half| half.mss_bytes);
        (seen.len() == 2).then(|| seen.iter().map(of).collect::<Vec<_>>())
    });
    // Towards the client, towards the server; 52 bytes of headers with time stamps.
    assert_eq!(sizes, [[1448, 1248]; 2]);
}
