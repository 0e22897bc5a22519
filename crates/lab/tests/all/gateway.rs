//! A gateway among the nodes of a path file: kernels' TCP on both sides of it, a lab's links before and
//! behind.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use lab::{Host, Lab, PathFile};

use crate::support::{PATIENCE, may_run};

const ONE: &str = r#"
    [hosts.near]
    mtu = 65535
    [hosts.far]
    [routers.gate.gateway]
    inside = { links = ["a"] }
    outside = { links = ["b"] }
    [links.a]
    between = ["near", "gate"]
    delay = "1ms"
    [links.b]
    between = ["gate", "far"]
    delay = "2ms"
"#;

const TWO_UPLINKS: &str = r#"
    [hosts.near]
    [hosts.far]
    [routers.gate.gateway]
    inside = { links = ["in"] }
    outside = { links = ["up-1", "up-2"] }
    [routers.world]
    symmetric = true
    [links.in]
    between = ["near", "gate"]
    [links.up-1]
    between = ["gate", "world"]
    rate = "100Mb/s"
    delay = "1ms"
    [links.up-2]
    between = ["gate", "world"]
    rate = "100Mb/s"
    delay = "1ms"
    [links.out]
    between = ["world", "far"]
"#;

fn parse(text: &str) -> PathFile {
    let text = format!("title = \"a test\"\n{text}");
    PathFile::parse(Path::new("test.toml"), &text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn pair(near: &Host, far: &Host, port: u16) -> (TcpStream, TcpStream) {
    let address = (far.address(), port);
    let listener = far.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let connect = || TcpStream::connect_timeout(&address.into(), PATIENCE);
    let a = near.run(connect).unwrap().unwrap();
    let (b, peer) = listener.accept().unwrap();
    assert_eq!(peer, a.local_addr().unwrap());
    for end in [&a, &b] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
        end.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    (a, b)
}

fn bytes(n: usize) -> Vec<u8> {
    (0..n)
        .map(|i| (((i * 31) >> 7) ^ i).to_le_bytes()[0])
        .collect()
}

fn carry(from: &mut TcpStream, to: &mut TcpStream, sent: &[u8]) {
    thread::scope(|scope| {
        scope.spawn(|| from.write_all(sent).unwrap());
        let mut got = vec![0; sent.len()];
        to.read_exact(&mut got).unwrap();
        assert!(got == sent);
    });
}

#[test]
fn a_gateway_splits_and_each_half_has_its_own_segments() {
    if !may_run() {
        return;
    }
    let path = parse(ONE);
    let lab = Lab::up(&path).unwrap();
    let (mut a, mut b) = pair(lab.near(), lab.far(), 5001);
    let sent = bytes(3 << 20);
    carry(&mut a, &mut b, &sent);
    carry(&mut b, &mut a, &sent);
    let segment = |socket: &TcpStream| {
        let info = sys::tcp::tcp_info(socket.as_fd()).unwrap();
        info.snd_mss_bytes
    };
    assert!(segment(&a) > 60_000, "{}", segment(&a));
    assert!(segment(&b) <= 1460, "{}", segment(&b));
    let gateway = &lab.gateways()[0];
    let counts = gateway.counts();
    assert_eq!(counts.split, 1);
    assert_eq!(counts.bytes_outward, sent.len() as u64);
    assert_eq!(counts.bytes_inward, sent.len() as u64);
    let links = gateway.links().unwrap();
    assert_eq!(links.len(), 2);
    assert!(
        links
            .iter()
            .all(|l| l.counters.tx_bytes > sent.len() as u64)
    );
    // Its namespace can be entered like a host's.
    assert_eq!(lab.host("gate").unwrap().name(), "gate");
}

#[test]
fn what_is_no_tcp_is_routed_and_both_links_have_probes_of_their_own() {
    if !may_run() {
        return;
    }
    let lab = Lab::up(&parse(ONE)).unwrap();
    let phase = lab.begin_phase().unwrap();
    thread::sleep(Duration::from_millis(500));
    let certificate = phase.finish().unwrap();
    // Two ways over each of two links, 200 a second.
    assert!(certificate.probes > 200, "{certificate:?}");
    assert_eq!(certificate.probes_lost, 0, "{certificate:?}");
    let datagram = |from: &Host, to: &Host| {
        let receiver = to
            .run(|| std::net::UdpSocket::bind((to.address(), 5000)))
            .unwrap()
            .unwrap();
        receiver.set_read_timeout(Some(PATIENCE)).unwrap();
        let sender = from
            .run(|| std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))
            .unwrap()
            .unwrap();
        sender.send_to(b"word", (to.address(), 5000)).unwrap();
        receiver.recv_from(&mut [0; 8]).unwrap().1.ip()
    };
    let from = datagram(lab.near(), lab.far());
    assert_eq!(from, IpAddr::from(lab.near().address()));
    assert_eq!(lab.gateways()[0].counts().split, 0);
}

#[test]
fn the_same_file_without_its_gateway_is_routed() {
    if !may_run() {
        return;
    }
    let lab = Lab::up(&parse(ONE).routed()).unwrap();
    assert!(lab.gateways().is_empty());
    let (mut a, mut b) = pair(lab.near(), lab.far(), 5001);
    carry(&mut a, &mut b, &bytes(100_000));
    let segment = sys::tcp::tcp_info(a.as_fd()).unwrap().snd_mss_bytes;
    assert!(segment <= 1460, "{segment}");
}

#[test]
fn a_link_that_is_cut_in_silence_loses_nothing_but_time() {
    if !may_run() {
        return;
    }
    let lab = Lab::up(&parse(TWO_UPLINKS)).unwrap();
    let gateway = &lab.gateways()[0];
    let mut pairs: Vec<_> = (5001..5003)
        .map(|port| pair(lab.near(), lab.far(), port))
        .collect();
    let placed: Vec<u64> = gateway.placed().iter().map(|l| l.connections).collect();
    assert_eq!(placed, [1, 1]);
    lab.set("up-2", true, true, link::Change::Up(false))
        .unwrap();
    let sent = bytes(2 << 20);
    thread::scope(|scope| {
        for (a, b) in &mut pairs {
            scope.spawn(|| carry(a, b, &sent));
        }
    });
    let end = Instant::now() + PATIENCE;
    while gateway.placed()[1].alive {
        assert!(Instant::now() < end, "a dead link is never noticed");
        thread::sleep(Duration::from_millis(10));
    }
    for port in 5003..5006 {
        let (mut a, mut b) = pair(lab.near(), lab.far(), port);
        carry(&mut a, &mut b, b"new");
    }
    assert_eq!(gateway.placed()[1].placed, 1);
    assert_eq!(gateway.placed()[0].placed, 4);
    // And when it is mended, it is used again.
    lab.set("up-2", true, true, link::Change::Up(true)).unwrap();
    let end = Instant::now() + PATIENCE;
    while !gateway.placed()[1].alive {
        assert!(Instant::now() < end, "a mended link is never noticed");
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(gateway.counts().reset, 0);
}

#[test]
fn what_a_gateway_cannot_be_is_said_with_its_line() {
    let refused = |change: &str, to: &str| {
        let text = format!("title = \"a test\"\n{}", ONE.replace(change, to));
        let error = PathFile::parse(Path::new("x.toml"), &text).unwrap_err();
        error.to_string()
    };
    for (change, to, expected) in [
        (
            "links = [\"b\"]",
            "links = [\"a\"]",
            "the link 'a' is named twice",
        ),
        ("links = [\"b\"]", "links = [\"c\"]", "no link 'c'"),
        ("links = [\"b\"]", "links = []", "1 to 16 links"),
        (
            "links = [\"b\"]",
            "links = [\"b\"], spread = \"most\"",
            "expected least-load, hash or measured",
        ),
        (
            "links = [\"b\"]",
            "links = [\"b\"], buffer = \"1kB\"",
            "4KiB to 1GiB",
        ),
    ] {
        let error = refused(change, to);
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn a_side_with_one_link_may_hold_back_last_acks() {
    let side = |links: &str| format!("{{ links = [{links}], hold_last_ack = true }}");
    let text = ONE.replace("{ links = [\"a\"] }", &side("\"a\""));
    let path = parse(&text);
    let own = path.network.routers[0].gateway.as_ref().unwrap();
    assert_eq!(
        [0, 1].map(|n| own.config.zones[n].hold_last_ack),
        [true, false]
    );
    let text = TWO_UPLINKS.replace(
        "{ links = [\"up-1\", \"up-2\"] }",
        &side("\"up-1\", \"up-2\""),
    );
    let text = format!("title = \"a test\"\n{text}");
    let error = PathFile::parse(Path::new("x.toml"), &text).unwrap_err();
    assert!(
        error.to_string().contains("only on a side with one link"),
        "{error}"
    );
}

/// A gateway with small buffers of the kernel's, 50 ms from the far host.
const LONG: &str = r#"
    [hosts.near]
    [hosts.far]
    tcp_rmem = ["4KiB", "1MiB", "6MiB"]
    [routers.gate.gateway]
    inside = { links = ["a"] }
    outside = { links = ["b"] }
    tcp_wmem = ["4KiB", "512KiB", "512KiB"]
    buffer_memory = "64MiB"
    [links.a]
    between = ["near", "gate"]
    [links.b]
    between = ["gate", "far"]
    rate = "200Mb/s"
    delay = "25ms"
    queue = "1MiB"
"#;

const WIDE: &str = r#"
    [hosts.near]
    [hosts.far]
    [routers.gate.gateway]
    inside = { links = ["a"] }
    outside = { links = ["b"] }
    [links.a]
    between = ["near", "gate"]
    [links.b]
    between = ["gate", "far"]
    rate = "200Mb/s"
    delay = "25ms"
    queue = "1MiB"
"#;

/// Sends to a port of the far host until `seen` has an answer, [`PATIENCE`] at most.
fn send_until<T>(lab: &Lab, port: u16, seen: impl Fn() -> Option<T>) -> Option<T> {
    let (mut a, mut b) = pair(lab.near(), lab.far(), port);
    let block = bytes(64 << 10);
    thread::scope(|scope| {
        let reading = scope.spawn(move || std::io::copy(&mut b, &mut std::io::sink()).unwrap());
        let end = Instant::now() + PATIENCE;
        let (mut sent, mut found) = (0, None);
        while found.is_none() && Instant::now() < end {
            a.write_all(&block).unwrap();
            sent += block.len() as u64;
            found = seen();
        }
        drop(a);
        assert_eq!(reading.join().unwrap(), sent);
        found
    })
}

/// So many connections that all could fill the kernel's memory for TCP.
fn crowd(lab: &Lab) -> Vec<(TcpStream, TcpStream)> {
    let most = sys::host::tcp_mem_triplet("tcp_rmem").unwrap()[2];
    let pressure = sys::host::tcp_memory().unwrap().pressure.as_u64();
    let address = (lab.far().address(), 5000);
    let listener = lab
        .far()
        .run(|| TcpListener::bind(address))
        .unwrap()
        .unwrap();
    let one = || {
        let connect = || TcpStream::connect_timeout(&address.into(), PATIENCE);
        let near = lab.near().run(connect).unwrap().unwrap();
        (near, listener.accept().unwrap().0)
    };
    (0..=pressure / most).map(|_| one()).collect()
}

#[test]
fn among_many_a_window_grows_for_who_has_a_path_to_fill() {
    if !may_run() {
        return;
    }
    let lab = Lab::up(&parse(WIDE)).unwrap();
    let crowd = crowd(&lab);
    assert!(crowd.len() < 5_000, "{} descriptors", crowd.len());
    let offered = |far: &TcpStream| sys::tcp::tcp_info(far.as_fd()).unwrap().snd_wnd_bytes;
    let block = bytes(64 << 10);
    // 1.25 MB fill this path.
    let (mut near, mut far) = pair(lab.near(), lab.far(), 5002);
    thread::scope(|scope| {
        let reading = scope.spawn(move || std::io::copy(&mut near, &mut std::io::sink()).unwrap());
        let end = Instant::now() + PATIENCE;
        let (mut sent, mut most) = (0, 0);
        while most < 1_250_000 && Instant::now() < end {
            far.write_all(&block).unwrap();
            sent += block.len() as u64;
            most = most.max(offered(&far));
        }
        drop(far);
        assert_eq!(reading.join().unwrap(), sent);
        assert!(most >= 1_250_000, "{most}");
    });
}

/// True where sockets may have larger buffers than `net.core.wmem_max`.
fn may_enlarge(host: &Host) -> bool {
    let forced = host.run(|| {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        sys::transparent::force_send_buffer(socket.as_fd(), units::Bytes::new(64 << 10)).is_ok()
    });
    let may = forced.unwrap();
    if !may {
        testing::skipped("needs CAP_NET_ADMIN over the machine");
    }
    may
}

#[test]
fn the_next_connection_of_a_long_path_has_the_buffer_that_the_first_one_lacked() {
    if !may_run() {
        return;
    }
    let lab = Lab::up(&parse(LONG)).unwrap();
    if !may_enlarge(lab.far()) {
        return;
    }
    let gateway = &lab.gateways()[0];
    assert_eq!(gateway.buffers(), []);
    let outside = || gateway.buffers().into_iter().find(|d| d.side == "outside");
    let decided = || outside().filter(|d| d.send_bytes.is_some());
    let first = send_until(&lab, 5001, decided).expect("a decision");
    // Twice what was under way, by its own figures, which is more than the kernel's tuning gives: half of its
    // 512 KiB.
    let need = |bps: u64, rtt_us: u64| 2 * (bps / 8) * rtt_us / 1_000_000;
    let set = first.send_bytes.unwrap();
    assert!(set > 256 << 10, "{first:?}");
    let expected = need(first.sent_bps, first.rtt_us);
    assert!(set.abs_diff(expected) <= expected / 100, "{first:?}");
    let inside = gateway.buffers().into_iter().find(|d| d.side == "inside");
    assert!(inside.is_none_or(|d| d.send_bytes.is_none() && d.receive_bytes.is_none()));
    let second = send_until(&lab, 5002, || {
        let all = gateway.look(10);
        let second = all.iter().find(|s| s.server.port() == 5002)?;
        Some([0, 1].map(|n| second.halves[n].send_buffer_bytes))
    });
    let [to_client, to_server] = second.expect("the connection is seen");
    // Rates only grow and round trips only shrink; the kernel's bookkeeping has twice what was set.
    let least = 2 * need(first.sent_bps, outside().unwrap().rtt_us) * 99 / 100;
    assert!(to_server >= least, "{to_server}, {first:?}");
    assert!(to_client <= 512 << 10, "{to_client}");
}

#[test]
fn measured_buffers_take_no_more_memory_together_than_they_may() {
    if !may_run() {
        return;
    }
    let up = |memory: &str| Lab::up(&parse(&LONG.replace("64MiB", memory))).unwrap();
    let lab = up("3MiB");
    if !may_enlarge(lab.far()) {
        return;
    }
    // One connection with four buffers, of each of which the kernel takes twice what is set.
    let gateway = &lab.gateways()[0];
    let found = send_until(&lab, 5001, || {
        gateway
            .buffers()
            .into_iter()
            .find(|d| d.send_bytes.is_some())
    });
    let found = found.expect("a decision");
    assert_eq!(found.send_bytes, Some((3 << 20) / 8), "{found:?}");
    assert!(found.why.contains("memory for all allows"), "{found:?}");
    drop(lab);
    let lab = up("0B");
    let gateway = &lab.gateways()[0];
    // It has been looked at, and nothing follows.
    let seen = send_until(&lab, 5001, || {
        let all = gateway.look(1);
        all.into_iter().find(|s| s.rate_bps[0] > 16_000_000)
    });
    assert!(seen.is_some());
    assert_eq!(gateway.buffers(), []);
}
