//! Exit code 4: the far end or the network failed. Each far end here is a thread of the test.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::Duration;

use crate::support::{Ended, Scratch, run_folders, wait_until, with_own_network};

/// A far end that does `work` with each connection; it ends with the test's process.
fn far_end(work: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().flatten().for_each(work));
    address
}

/// Measures against `target`, which must fail by exit code 4 with all of `says`, and leave a run
/// folder that tells the same.
#[track_caller]
fn fails_at_the_far_end(target: &str, says: &[&str]) -> Ended {
    let scratch = Scratch::new();
    let ended = scratch.run(scratch.goodput(&["measure", target, "-d", "1s"]));
    ended.fails_with(4, says);
    assert_reads_as_failed(&scratch, &ended);
    scratch.assert_nothing_left();
    ended
}

/// The only run folder has the error that was said, and can be drawn.
#[track_caller]
fn assert_reads_as_failed(scratch: &Scratch, ended: &Ended) {
    let run = scratch.run_json();
    assert_eq!(run["state"], "failed");
    assert!(ended.stderr.contains(run["error"].as_str().unwrap()));
    let folder = scratch.run_folder();
    let report = scratch.run(scratch.goodput(&["report", folder.to_str().unwrap()]));
    report.succeeds();
}

#[test]
fn a_far_end_that_refuses_the_transfer_leaves_a_run_that_reads() {
    let scratch = Scratch::new();
    let serving = scratch.start(scratch.goodput(&["serve", "--listen", "127.0.0.1:0"]));
    let address = address_of(&serving.stderr_when("serving on"));
    // It has no UDP port to open streams on.
    let taken = UdpSocket::bind(&address).unwrap();
    let refused = ["measure", &address, "-d", "1s", "--transport", "quic"];
    for more in [&[][..], &["--sweep", "streams=1,2"]] {
        let scratch = Scratch::new();
        let ended = scratch.run(scratch.goodput(&[&refused, more].concat()));
        ended.fails_with(4, &["UDP port"]);
        assert_reads_as_failed(&scratch, &ended);
    }
    drop(taken);
    serving.signal("TERM");
    serving.end().succeeds();
    scratch.assert_nothing_left();
}

#[test]
fn a_name_without_an_address_is_named() {
    let says = [
        "'no-such-host.invalid'",
        "has no address",
        "check the spelling",
    ];
    fails_at_the_far_end("no-such-host.invalid", &says);
}

#[test]
fn a_closed_port_is_refused_and_serve_is_recommended() {
    let target = format!("127.0.0.1:{}", testing::free_port());
    fails_at_the_far_end(&target, &[&target, "nobody listens", "goodput serve"]);
}

#[test]
fn a_far_end_without_iperf3_is_named() {
    let http = far_end(|mut stream| {
        let _ = stream.read(&mut [0; 64]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let says = ["is not an iperf3 server", "serve --iperf3"];
    fails_at_the_far_end(&format!("iperf3://{http}"), &says);
}

#[test]
fn a_host_without_a_route_cannot_be_reached() {
    let Some(wrapper) = with_own_network() else {
        return;
    };
    let scratch = Scratch::new();
    let ended = scratch.run(scratch.within(wrapper, &["measure", "192.0.2.1"]));
    ended.fails_with(
        4,
        &["192.0.2.1:5210", "cannot be reached", "check the route"],
    );
    assert_eq!(scratch.run_json()["state"], "failed");
    scratch.assert_nothing_left();
}

#[test]
fn a_host_that_swallows_every_packet_times_out() {
    let Some(wrapper) = with_own_network() else {
        return;
    };
    let scratch = Scratch::new();
    let script = "ip link add name v1 type veth peer name v2 &&
        ip link set dev v1 up && ip link set dev v2 up &&
        ip address add 192.0.2.2/24 dev v1 &&
        ip neighbour add 192.0.2.1 lladdr 2:0:0:0:0:1 dev v1 &&
        exec $GOODPUT measure 192.0.2.1:7000";
    let ended = scratch.run(scratch.script(wrapper, script));
    ended.fails_with(
        4,
        &["192.0.2.1:7000", "did not answer within 10 s", "firewall"],
    );
    scratch.assert_nothing_left();
}

#[test]
fn another_protocol_number_says_which_end_to_update() {
    for (number, older) in [("000", "far"), ("999", "near")] {
        let address = far_end(move |mut stream| {
            let _ = stream.read(&mut [0; 24]);
            let _ = stream.write_all(format!("goodput-measure {number} srv\n").as_bytes());
        });
        let update = format!("update the {older} one");
        let theirs = format!("protocol {},", number.parse::<u16>().unwrap());
        fails_at_the_far_end(&address.to_string(), &[&theirs, &update]);
    }
}

#[test]
fn a_web_server_is_not_goodput() {
    let address = far_end(|mut stream| {
        let _ = stream.read(&mut [0; 24]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let says = ["is not goodput", "HTTP", "goodput serve"];
    fails_at_the_far_end(&address.to_string(), &says);
}

#[test]
fn a_server_that_hangs_up_at_once_is_not_goodput() {
    let address = far_end(drop);
    fails_at_the_far_end(&address.to_string(), &[&address.to_string()]);
}

#[test]
fn a_server_that_says_nothing_is_given_up() {
    let address = far_end(|stream| {
        thread::spawn(move || {
            thread::sleep(Duration::from_secs(60));
            drop(stream);
        });
    });
    let says = ["said nothing within 10 s", "goodput serve"];
    fails_at_the_far_end(&address.to_string(), &says);
}

#[test]
fn a_far_end_that_dies_in_the_middle_is_noticed() {
    let scratch = Scratch::new();
    let serving = scratch.start(scratch.goodput(&["serve", "--listen", "127.0.0.1:0"]));
    let address = address_of(&serving.stderr_when("serving on"));
    let mut measuring = scratch.start(scratch.goodput(&["measure", &address, "-d", "30s"]));
    wait_until("the transfer to begin", || {
        measuring.has_ended() || transfers(&address)
    });
    serving.signal("KILL");
    assert_eq!(serving.end().code(), 128 + 9);
    let ended = measuring.end();
    ended.fails_with(4, &["goodput: "]);
    assert_eq!(scratch.run_json()["state"], "failed");
    scratch.assert_nothing_left();
}

#[test]
fn what_was_measured_before_the_far_end_died_is_kept_and_printed() {
    for more in [
        &[][..],
        &["-R"],
        &["--transport", "tls"],
        &["--transport", "quic"],
    ] {
        let scratch = Scratch::new();
        let serving = scratch.start(scratch.goodput(&["serve", "--listen", "127.0.0.1:0"]));
        let address = address_of(&serving.stderr_when("serving on"));
        let args = [
            &["measure", &address, "-d", "60s", "--json", "--live"],
            more,
        ]
        .concat();
        let measuring = scratch.start(scratch.goodput(&args));
        // A line a second, of what has arrived by then.
        measuring.stderr_when("b/s");
        serving.signal("KILL");
        assert_eq!(serving.end().code(), 128 + 9);
        let ended = measuring.end();
        ended.fails_with(4, &["goodput: "]);
        let (printed, kept) = (ended.json(), scratch.run_json());
        for run in [&printed, &kept] {
            assert_eq!(run["state"], "failed", "{more:?}");
            let phase = &run["phases"][0];
            assert_eq!(phase["incomplete"], run["error"], "{more:?}");
            assert!(phase["bytes_received"].as_u64().unwrap() > 0, "{more:?}");
            assert!(phase["goodput_bits_per_second"].as_u64().unwrap() > 0);
            assert!(phase["duration_ns"].as_u64().unwrap() < 60_000_000_000);
            let sentence = run["verdict"]["sentence"].as_str().unwrap();
            assert!(sentence.starts_with("Incomplete: "), "{sentence}");
            assert_eq!(run["verdict"]["conclusive"], false);
        }
        assert_reads_as_failed(&scratch, &ended);
        scratch.assert_nothing_left();
    }
}

#[test]
fn what_the_kernels_granted_of_socket_buffers_is_in_the_run_and_the_text() {
    let scratch = Scratch::new();
    let serving = scratch.start(scratch.goodput(&["serve", "--listen", "127.0.0.1:0"]));
    let address = address_of(&serving.stderr_when("serving on"));
    let args = ["measure", &address, "-d", "300ms", "-w", "1GiB"];
    let ended = scratch.run(scratch.goodput(&args));
    ended.succeeds();
    let run = scratch.run_json();
    let buffers = &run["phases"][0]["socket_buffers"];
    let size = |key: &str| buffers[key].as_u64().unwrap();
    // The limit of socket(7): the kernel takes no more than this without a privilege over the machine.
    let limit = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap();
        text.trim().parse::<u64>().unwrap().min(1 << 30)
    };
    for (end, name) in [("sender", "wmem_max"), ("receiver", "rmem_max")] {
        assert_eq!(size(&format!("{end}_asked_bytes")), 1 << 30);
        assert_eq!(size(&format!("{end}_granted_bytes")), limit(name));
    }
    let is_cut = limit("wmem_max").min(limit("rmem_max")) < 1 << 30;
    let said = "socket buffers granted: ";
    assert_eq!(run["phases"][0]["notes"].to_string().contains(said), is_cut);
    assert_eq!(ended.stdout.contains(said), is_cut, "{}", ended.stdout);
    serving.signal("TERM");
    serving.end().succeeds();
    scratch.assert_nothing_left();
}

#[test]
fn a_token_lets_its_holders_measure_and_is_nowhere_to_be_read() {
    let scratch = Scratch::new();
    let file = scratch.write("token", &format!("{TOKEN}\n"));
    let measure = |more: &[&str], address: &str| {
        let args = [&["measure", address, "-d", "200ms"], more].concat();
        scratch.run(scratch.goodput(&args))
    };
    let name = file.to_str().unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let listen = ["serve", "--listen", "127.0.0.1:0", "--log-clients"];
    let guarded = [&listen[..], &["--token-file", name]].concat();
    let refused = scratch.run(scratch.goodput(&guarded));
    refused.fails_with(2, &["mode 644", "chmod 600"]);
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let serving = scratch.start(scratch.goodput(&guarded));
    let address = address_of(&serving.stderr_when("serving on"));
    let with = measure(&["--token-file", name], &address);
    with.succeeds();
    let without = measure(&[], &address);
    without.fails_with(2, &["wants a token", "--token-file"]);
    serving.signal("TERM");
    let served = serving.end();
    for text in [
        "session opened",
        "up, 1 streams, 200 ms",
        "1 transfers",
        "no proof",
    ] {
        assert!(served.stderr.contains(text), "lacks '{text}': {served:#?}");
    }
    for ended in [&refused, &with, &without, &served] {
        assert!(!format!("{ended:?}").contains(TOKEN), "{ended:#?}");
    }
    for folder in run_folders(&scratch.runs()) {
        for file in fs::read_dir(folder).unwrap() {
            let bytes = fs::read(file.unwrap().path()).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains(TOKEN));
        }
    }
    scratch.assert_nothing_left();
}

#[test]
fn a_server_with_few_descriptors_keeps_some_for_those_who_speak() {
    let scratch = Scratch::new();
    let script = "ulimit -n 64 && exec $GOODPUT serve --listen 127.0.0.1:0 --silence 10min";
    let serving = scratch.start(scratch.script(&[], script));
    let address = address_of(&serving.stderr_when("serving on"));
    let connect = |_| TcpStream::connect(&address).unwrap();
    let silent: Vec<TcpStream> = (0..200).map(connect).collect();
    for streams in ["1", "8"] {
        let args = ["measure", &address, "-d", "200ms", "-s", streams];
        scratch.run(scratch.goodput(&args)).succeeds();
    }
    drop(silent);
    serving.signal("TERM");
    serving.end().succeeds();
    scratch.assert_nothing_left();
}

const TOKEN: &str = "a-token-of-more-than-16-bytes";

/// True when two connections to the address are established: control and data.
fn transfers(address: &str) -> bool {
    let port: u16 = address.rsplit(':').next().unwrap().parse().unwrap();
    let remote = format!(":{port:04X} 01 ");
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    table.matches(&remote).count() >= 2
}

/// The address in what `serve` says when it is ready.
pub(crate) fn address_of(stderr: &str) -> String {
    let (_, rest) = stderr.split_once("serving on ").unwrap();
    rest.split_once(';').unwrap().0.to_owned()
}
