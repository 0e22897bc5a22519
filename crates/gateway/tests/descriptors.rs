//! A gateway that has no descriptor left lets clients wait and does not spin; alone in its process, whose limit it lowers.

#[path = "all/net/mod.rs"]
mod net;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Instant;

use gateway::Gateway;
use gateway::config::{Config, Mode};
use net::until;
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn who_connects_while_no_descriptor_is_left_waits_and_is_carried_when_there_is_one() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = server.local_addr().unwrap();
    let listen = SocketAddr::from(([127, 0, 0, 1], testing::free_port()));
    let gateway = Gateway::start(Config {
        mode: Mode::Explicit { listen, target },
        ..Config::default()
    })
    .unwrap();
    // It has its descriptor before there are no more.
    let client = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let before = getrlimit(Resource::Nofile);
    let lowest = rustix::io::dup(&client).unwrap().as_raw_fd();
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(u64::try_from(lowest).unwrap()),
            ..before
        },
    )
    .unwrap();
    let begun = Instant::now();
    rustix::net::connect(&client, &listen).unwrap();
    let rested = until(&gateway, "it rests thrice", |c| c.accept_rests >= 3).accept_rests;
    // Each rest takes 100 ms at least, however slow this machine is.
    let most = begun.elapsed().as_millis() / 100 + 1;
    assert!(u128::from(rested) <= most, "{rested} in {most} x 100 ms");
    setrlimit(Resource::Nofile, before).unwrap();

    let mut near = TcpStream::from(client);
    near.set_read_timeout(Some(net::PATIENCE)).unwrap();
    near.write_all(b"still there").unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    let (mut far, _) = server.accept().unwrap();
    let mut text = String::new();
    far.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still there");
    drop(far);
    assert_eq!(near.read(&mut [0]).unwrap(), 0);
    until(&gateway, "it ends", |c| c.ended == 1);
}
