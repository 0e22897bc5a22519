//! A gateway with several links outside, each a pair of interfaces of real kernels.

mod net;

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use gateway::Gateway;
use gateway::config::Config;
use gateway::links::LinkStatus;
use net::{CLIENT, Net, PATIENCE};
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
