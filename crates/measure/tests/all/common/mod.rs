//! A server in a thread of the test, and clients that are not honest.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use measure::message::{Message, decode, encode};
use measure::{Approach, Client, Config, Direction, Limits, MeasureError, Outcome, Server, Stop};
use sys::netlink::Netlink;
use sys::netns::NetNs;
use units::{Bytes, Duration};

/// Far above anything that a test needs on the slowest machine.
pub(crate) const PATIENCE: Duration = Duration::from_s(60);

/// A server until it is dropped.
pub(crate) struct Serving {
    pub(crate) addr: SocketAddr,
    pub(crate) stop: Stop,
    thread: Option<JoinHandle<Result<(), MeasureError>>>,
}

impl Serving {
    pub(crate) fn with(limits: Limits) -> Self {
        Self::start(Server::bind("127.0.0.1:0".parse().unwrap(), limits).unwrap())
    }

    pub(crate) fn start(server: Server) -> Self {
        let (addr, stop) = (server.local_addr(), Stop::new());
        let thread = std::thread::spawn({
            let stop = stop.clone();
            move || server.serve(&stop)
        });
        Self {
            addr,
            stop,
            thread: Some(thread),
        }
    }

    /// On the loopback interface, with the limits that it has unless told otherwise.
    pub(crate) fn new() -> Self {
        Self::with(Limits::default())
    }

    /// A client that leaves all to the kernel.
    #[track_caller]
    pub(crate) fn client(&self) -> Client {
        Client::connect_addr(self.addr, PATIENCE).unwrap()
    }

    pub(crate) fn connect(&self, approach: &Approach) -> Result<Client, MeasureError> {
        Client::connect_addr_by(approach, self.addr, PATIENCE, &Stop::new())
    }

    /// A plain TCP connection, for what no honest client does.
    pub(crate) fn stranger(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE.to_std())).unwrap();
        stream
    }

    /// An honest transfer from `source` still works.
    #[track_caller]
    pub(crate) fn assert_serves(&self, source: &str) {
        let deadline = std::time::Instant::now() + PATIENCE.to_std();
        loop {
            match self.connect(&from(source)) {
                Ok(mut client) => {
                    for direction in [Direction::Up, Direction::Down] {
                        assert!(run(&mut client, direction).complete, "{direction:?}");
                    }
                    return;
                }
                // Sessions of those that vanished may still be on their way out.
                Err(MeasureError::Busy { .. }) if std::time::Instant::now() < deadline => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.stop();
        let result = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            result.unwrap().unwrap().unwrap();
        }
    }
}

/// From one of the loopback network's addresses.
pub(crate) fn from(source: &str) -> Approach {
    Approach {
        bind: Some((source.parse::<IpAddr>().unwrap(), 0).into()),
        ..Approach::default()
    }
}

/// A wish for 0.3 s, of which 0.2 s count.
pub(crate) fn short(direction: Direction, streams: u16) -> Config {
    Config {
        direction,
        streams,
        duration: Duration::from_ms(300),
        ramp: Duration::from_ms(100),
        sample_interval: Duration::from_ms(20),
        ..Config::default()
    }
}

/// A transfer to its end.
#[track_caller]
pub(crate) fn transfer(client: &mut Client, config: &Config) -> Outcome {
    client.run(config, &Stop::new(), &mut |_| {}).unwrap()
}

/// A transfer of a tenth of a second.
#[track_caller]
pub(crate) fn run(client: &mut Client, direction: Direction) -> Outcome {
    let config = Config {
        duration: Duration::from_ms(100),
        ramp: Duration::from_ms(20),
        ..short(direction, 2)
    };
    transfer(client, &config)
}

/// A transfer that would take minutes, stopped by the user once payload has arrived.
#[track_caller]
pub(crate) fn stopped(client: &mut Client, config: &Config) -> Outcome {
    let config = Config {
        duration: Duration::from_s(600),
        ..config.clone()
    };
    let stop = Stop::new();
    let outcome = client.run(&config, &stop, &mut |progress| {
        if progress.bytes > Bytes::new(0) {
            stop.stop();
        }
    });
    let outcome = outcome.unwrap();
    assert!(outcome.interrupted && !outcome.complete);
    assert!(outcome.receiver.bytes > 0);
    outcome
}

/// Runs `work` with a client of each family of one server, which listens on both.
pub(crate) fn over_both_families(work: impl Fn(&str, Client) + Sync) {
    in_own_network(|| {
        let serving =
            Serving::start(Server::bind("[::]:0".parse().unwrap(), Limits::default()).unwrap());
        for host in ["[::1]", "127.0.0.1"] {
            let target = format!("{host}:{}", serving.addr.port());
            work(&target, Client::connect(&target, PATIENCE).unwrap());
        }
    });
}

/// A UDP port that another program has is told; the transfer made once it is free comes back.
#[track_caller]
pub(crate) fn assert_taken_port_is_told(config: &Config) -> Outcome {
    let serving = Serving::new();
    let other = UdpSocket::bind(serving.addr).unwrap();
    let mut client = serving.client();
    let failed = client.run(config, &Stop::new(), &mut |_| {});
    let text = failed.unwrap_err().to_string();
    assert!(text.contains("UDP port"), "{text}");
    drop(other);
    transfer(&mut client, config)
}

/// Says a message.
pub(crate) fn say(mut stream: &TcpStream, message: &Message) {
    let mut bytes = Vec::new();
    encode(message, &mut bytes);
    stream.write_all(&bytes).unwrap();
}

/// Hears a message, byte by byte so that none of the next is taken.
pub(crate) fn hear(mut stream: &TcpStream) -> Message {
    let mut bytes = Vec::new();
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
        if let Some((message, _)) = decode(&bytes, 1 << 20).unwrap() {
            return message;
        }
    }
}

/// Reads until the peer closes or resets; fails when it does neither.
#[track_caller]
pub(crate) fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("still open"),
        _ => bytes,
    }
}

/// Runs `work` in a network of its own whose loopback interface is up; `None`, said aloud, without the
/// right to make one.
pub(crate) fn in_own_network<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    let Ok(ns) = NetNs::create() else {
        testing::skipped("no right to make a network namespace");
        return None;
    };
    let inside = || {
        Netlink::open().unwrap().set_up("lo", None).unwrap();
        work()
    };
    Some(ns.run(inside).unwrap())
}

/// Tests that count what the process has run one at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
