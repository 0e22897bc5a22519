//! A client, a gateway and a server, each in a network namespace of its own.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use gateway::Gateway;
use gateway::config::Config;
use gateway::counters::Counts;
use gateway::view::Seen;
use sys::netlink::{Netlink, VethEnd};
use sys::netns::NetNs;

pub(crate) struct Net {
    pub(crate) client: NetNs,
    pub(crate) middle: NetNs,
    pub(crate) server: NetNs,
}

pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 2);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 2, 2);
pub(crate) const CLIENT6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 2);
pub(crate) const SERVER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 2, 0, 0, 0, 2);
/// An address of the server's link where nobody is and nobody is asked for.
pub(crate) const SILENT: Ipv4Addr = Ipv4Addr::new(198, 18, 2, 9);
/// One where nobody answers the question who has it.
pub(crate) const ABSENT: Ipv4Addr = Ipv4Addr::new(198, 18, 2, 10);
/// One that the server would know, which does not.
pub(crate) const BEYOND: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

impl Net {
    /// `None` without the privilege.
    pub(crate) fn new() -> Option<Self> {
        let (Ok(client), Ok(middle), Ok(server)) =
            (NetNs::create(), NetNs::create(), NetNs::create())
        else {
            testing::skipped("no privilege to make namespaces");
            return None;
        };
        let net = Self {
            client,
            middle,
            server,
        };
        net.join(&net.client, 1, "in0", 0);
        // The server knows the way to the client, and no other.
        net.join(&net.server, 2, "out0", 16);
        net.middle
            .run(|| -> io::Result<()> {
                let mut netlink = Netlink::open()?;
                netlink.set_up("lo", None)?;
                netlink.add_neighbour("out0", SILENT, [2, 9, 9, 9, 9, 9])?;
                netlink.add_route("out0", BEYOND.into(), 32, SERVER.into())?;
                fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
                fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")
            })
            .unwrap()
            .unwrap();
        let forward = || fs::write("/proc/sys/net/ipv4/ip_forward", "1");
        net.server.run(forward).unwrap().unwrap();
        Some(net)
    }

    /// A link between a host and the gateway.
    fn join(&self, host: &NetNs, number: u8, name: &str, bits: u8) {
        let there = VethEnd {
            name: "eth0",
            mac: [2, 0, 0, 0, number, 2],
            netns: host.as_fd(),
        };
        let here = VethEnd {
            name,
            mac: [2, 0, 0, 0, number, 1],
            netns: self.middle.as_fd(),
        };
        let near4 = Ipv4Addr::new(198, 18, number, 1);
        let far4 = Ipv4Addr::new(198, 18, number, 2);
        let net6 = |host| Ipv6Addr::new(0xfd00, 0, 0, number.into(), 0, 0, 0, host);
        let made = self.middle.run(|| -> io::Result<()> {
            let mut netlink = Netlink::open()?;
            netlink.add_veth(there, here)?;
            netlink.add_address(name, near4, 24)?;
            netlink.add_address(name, net6(1), 64)?;
            netlink.set_up(name, None)
        });
        made.unwrap().unwrap();
        let made = host.run(|| -> io::Result<()> {
            let mut netlink = Netlink::open()?;
            netlink.set_up("lo", None)?;
            netlink.add_address("eth0", far4, 24)?;
            netlink.add_address("eth0", net6(2), 64)?;
            netlink.set_up("eth0", None)?;
            let base = if bits == 0 { [0; 4] } else { [198, 18, 0, 0] };
            netlink.add_route("eth0", base.into(), bits, near4.into())?;
            let any6 = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
            netlink.add_route("eth0", any6, 0, net6(1).into())
        });
        made.unwrap().unwrap();
    }

    pub(crate) fn config() -> Config {
        Config::parse("[inside]\ninterfaces = ['in0']\n[outside]\ninterfaces = ['out0']").unwrap()
    }

    pub(crate) fn gateway(&self, config: Config) -> Gateway {
        self.middle.run(|| Gateway::start(config)).unwrap().unwrap()
    }

    pub(crate) fn listen(&self, addr: impl Into<IpAddr>) -> (TcpListener, SocketAddr) {
        let addr = SocketAddr::new(addr.into(), 0);
        let listener = self
            .server
            .run(|| TcpListener::bind(addr))
            .unwrap()
            .unwrap();
        let addr = listener.local_addr().unwrap();
        (listener, addr)
    }

    pub(crate) fn connect(&self, addr: SocketAddr) -> io::Result<TcpStream> {
        let stream = self
            .client
            .run(|| TcpStream::connect_timeout(&addr, PATIENCE))
            .unwrap()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// SYNs that the client's kernel sent again, since somebody was slow to answer (`TcpExtTCPSynRetrans`).
    pub(crate) fn syns_again(&self) -> u64 {
        let read = || fs::read_to_string("/proc/thread-self/net/netstat");
        let text = self.client.run(read).unwrap().unwrap();
        let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let at = names.split_whitespace().position(|n| n == "TCPSynRetrans");
        let value = values.split_whitespace().nth(at.unwrap());
        value.unwrap().parse().unwrap()
    }

    /// Both ends of a connection from the client to the server.
    pub(crate) fn pair(&self) -> (TcpStream, TcpStream) {
        let (listener, addr) = self.listen(SERVER);
        let near = self.connect(addr).unwrap();
        let far = accept(&listener).0;
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        far.set_write_timeout(Some(PATIENCE)).unwrap();
        (near, far)
    }
}

/// The next connection, which may not keep the test for ever.
pub(crate) fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    listener.set_nonblocking(true).unwrap();
    let end = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok(accepted) => return accepted,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => panic!("{e}"),
        }
        assert!(Instant::now() < end, "nobody connects");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What is wanted of the connections, as soon as it is shown: a worker comes to a new one, and answers, in its own time.
pub(crate) fn shown<T>(gateway: &Gateway, find: impl Fn(&[Seen]) -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        let seen = gateway.look(9);
        if let Some(found) = find(&seen) {
            return found;
        }
        assert!(Instant::now() < end, "{seen:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits, bounded, until the counts are as they should be.
pub(crate) fn until(gateway: &Gateway, what: &str, done: impl Fn(&Counts) -> bool) -> Counts {
    let end = Instant::now() + PATIENCE;
    loop {
        let counts = gateway.counts();
        if done(&counts) {
            return counts;
        }
        assert!(Instant::now() < end, "{what}: {counts:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
