//! Paths and sockets for the lab's tests.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(unreachable_pub, reason = "a module shared by test crates")]

use std::io;
use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

use lab::{Certificate, Host, Lab, PathFile};

/// A path of two alike hosts with 4 MiB buffers; `link` is the link's table.
pub fn path(mtu_bytes: u32, link: &str) -> PathFile {
    let host = |name: &str| {
        format!(
            "[hosts.{name}]\nmtu = {mtu_bytes}\ncongestion_control = \"cubic\"\n\
             tcp_rmem = [\"4KiB\", \"128KiB\", \"4MiB\"]\n\
             tcp_wmem = [\"4KiB\", \"128KiB\", \"4MiB\"]\n"
        )
    };
    let text = format!(
        "title = \"a test\"\n{}{}[links.wan]\nbetween = [\"near\", \"far\"]\n{link}\n",
        host("near"),
        host("far")
    );
    PathFile::parse(Path::new("test.toml"), &text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// A lab of the path, or `None` with a word on why where namespaces cannot be had.
pub fn up(path: &PathFile) -> Option<Lab> {
    may_run().then(|| Lab::up(path).unwrap())
}

/// Whether labs can run here. A test's process has threads already and cannot become root of a user
/// namespace; `unshare -Ur cargo test` runs them without root.
pub fn may_run() -> bool {
    let may = sys::netns::can_create_namespaces();
    if !may {
        testing::skipped("needs CAP_SYS_ADMIN; run as root or by `unshare -Ur cargo test`");
    }
    may
}

/// A UDP socket in a host that waits [`PATIENCE`] for a datagram.
pub fn udp(host: &Host, port: u16) -> UdpSocket {
    let address = (host.address(), port);
    let socket = host.run(|| UdpSocket::bind(address)).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Datagrams that come until nothing has come for `silence` or `wanted` are there.
pub fn receive(socket: &UdpSocket, wanted: u64, silence: Duration) -> u64 {
    socket.set_read_timeout(Some(silence)).unwrap();
    let mut buffer = [0; 65_536];
    let mut count = 0;
    while count < wanted {
        match socket.recv(&mut buffer) {
            Ok(_) => count += 1,
            Err(e) if is_silence(&e) => break,
            Err(e) => panic!("{e}"),
        }
    }
    count
}

/// True for a read that timed out.
pub fn is_silence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Frames that the forwarder itself lost, both ways. None of a test may, whatever the load.
pub fn lost_by_forwarder(certificate: &Certificate) -> u64 {
    [&certificate.forward, &certificate.backward]
        .iter()
        .map(|d| d.lost_memory + d.lost_receive + d.lost_send)
        .sum()
}

/// Waits for a condition, at most [`PATIENCE`].
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Far beyond what anything here takes, for machines under load.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// A silence after which nothing more is under way on a short path.
pub const SILENCE: Duration = Duration::from_millis(1_500);
/// The forwarder counts anew a moment after a phase was begun: no frame of a test before that.
pub const SETTLE: Duration = Duration::from_millis(200);
