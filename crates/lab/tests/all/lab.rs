//! Labs of real namespaces and real kernels' frames, held against what their path files say.
//!
//! Only lower bounds of time are asserted (the lab is never early), and sums of frames; how late a
//! busy machine makes the lab is the certificate's business.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Certificate, Host, Lab};

use crate::support::{
    PATIENCE, SETTLE, SILENCE, is_silence, lost_by_forwarder, may_run, path, receive, udp, up,
    wait_until,
};

/// Sends back what comes, until `stop`.
fn echo(socket: &UdpSocket, stop: &AtomicBool) {
    socket
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let mut buffer = [0; 65_536];
    while !stop.load(Ordering::Relaxed) {
        match socket.recv_from(&mut buffer) {
            Ok((n, from)) => {
                socket.send_to(&buffer[..n], from).unwrap();
            }
            Err(e) => assert!(is_silence(&e), "{e}"),
        }
    }
}

/// Round trips of `n` echoes that carry `text`.
fn round_trips(lab: &Lab, n: usize, text: &[u8]) -> Vec<Duration> {
    let (near, far) = (udp(lab.near(), 4_000), udp(lab.far(), 4_000));
    let address = far.local_addr().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| echo(&far, &stop));
        let trips = (0..n)
            .map(|_| {
                let since = Instant::now();
                near.send_to(text, address).unwrap();
                let mut buffer = [0; 100];
                let n = near.recv(&mut buffer);
                let trip = since.elapsed();
                stop.store(n.is_err(), Ordering::Relaxed);
                assert_eq!(&buffer[..n.unwrap()], text);
                trip
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        trips
    })
}

#[test]
fn an_echo_takes_the_delay_of_both_ways_and_the_certificate_says_how_exactly() {
    let path = path(1500, "delay = \"50ms\"");
    let Some(lab) = up(&path) else { return };
    let phase = lab.begin_phase().unwrap();
    thread::sleep(SETTLE);
    let trips = round_trips(&lab, 5, b"echo");
    let certificate = phase.finish().unwrap();
    let shortest = *trips.iter().min().unwrap();
    // Kernel stamps are turned from one clock into the other with an error of some microseconds.
    assert!(shortest >= Duration::from_micros(99_900), "{trips:?}");
    assert!(certificate.probes > 0, "{certificate:?}");
    assert!(
        certificate.delay_error_p50_ns > -100_000 && certificate.delay_error_p50_ns < 50_000_000,
        "{certificate:?}"
    );
    assert!(certificate.delay_error_p50_ns <= certificate.delay_error_p99_ns);
    assert!(certificate.delay_error_p99_ns <= certificate.delay_error_max_ns);
    assert_eq!(lost_by_forwarder(&certificate), 0, "{certificate:?}");
    assert!(certificate.forward.segments_out >= 5 && certificate.backward.segments_out >= 5);
}

#[test]
fn a_phase_shorter_than_the_path_waits_for_its_probes() {
    let Some(lab) = up(&path(1500, "delay = \"300ms\"")) else {
        return;
    };
    let phase = lab.begin_phase().unwrap();
    thread::sleep(Duration::from_millis(30));
    let certificate = phase.finish().unwrap();
    assert!(certificate.probes > 0, "{certificate:?}");
    assert_eq!(certificate.probes_lost, 0, "{certificate:?}");
}

#[test]
fn total_loss_in_one_direction_is_the_path_s_and_not_the_lab_s() {
    const SENT: u64 = 100;
    let Some(lab) = up(&path(1500, "delay = \"5ms\"\nforward = { loss = 1.0 }")) else {
        return;
    };
    let (near, far) = (udp(lab.near(), 4_000), udp(lab.far(), 4_000));
    let phase = lab.begin_phase().unwrap();
    thread::sleep(SETTLE);
    for _ in 0..SENT {
        near.send_to(b"there", far.local_addr().unwrap()).unwrap();
        far.send_to(b"back", near.local_addr().unwrap()).unwrap();
    }
    assert_eq!(receive(&near, SENT, PATIENCE), SENT);
    assert_eq!(receive(&far, 1, SILENCE), 0);
    let certificate = phase.finish().unwrap();
    assert!(certificate.forward.link.lost >= SENT, "{certificate:?}");
    assert_eq!(certificate.forward.segments_out, 0, "{certificate:?}");
    assert_eq!(certificate.backward.link.lost, 0, "{certificate:?}");
    assert_eq!(lost_by_forwarder(&certificate), 0, "{certificate:?}");
}

#[test]
fn a_queue_drops_what_it_cannot_hold_and_counts_it() {
    const SENT: u64 = 100;
    // A frame of 1472 bytes of payload is 1538 on the wire, 12.3 ms at this rate.
    for limit in ["queue = \"15380B\"", "queue = \"1MB\"\nqueue_packets = 10"] {
        let link = format!("rate = \"1Mb/s\"\ndelay = \"1ms\"\n{limit}");
        let Some(lab) = up(&path(1500, &link)) else {
            return;
        };
        let (near, far) = (udp(lab.near(), 4_000), udp(lab.far(), 4_000));
        let phase = lab.begin_phase().unwrap();
        thread::sleep(SETTLE);
        for _ in 0..SENT {
            near.send_to(&[7; 1472], far.local_addr().unwrap()).unwrap();
        }
        let received = receive(&far, SENT, SILENCE);
        let certificate = phase.finish().unwrap();
        let link = certificate.forward.link;
        // Probes share the queue: they are dropped and counted with the others.
        assert!(received < SENT, "{received}");
        assert!(received + link.queue_full >= SENT, "{received} {link:?}");
        assert!(link.queue_full > 0 && link.lost == 0, "{link:?}");
        assert!(link.queue_bytes_max <= 15_380, "{link:?}");
        assert_eq!(lost_by_forwarder(&certificate), 0, "{certificate:?}");
    }
}

#[test]
fn the_delay_line_holds_a_second_at_a_gigabit() {
    // More on request: GOODPUT_LAB_DELAY=4s puts 500 MB in flight.
    let delay = std::env::var("GOODPUT_LAB_DELAY").unwrap_or_else(|_| "1s".to_owned());
    let link = "rate = \"1Gb/s\"\ndelay = \"1ms\"\nqueue = \"4MB\"\n";
    let path = path(1500, &format!("{link}forward = {{ delay = \"{delay}\" }}"));
    let time = Duration::from_nanos(path.forward.delay.as_ns()) + Duration::from_millis(500);
    let Some(lab) = up(&path) else { return };
    let _alone = alone();
    let (near, far) = (udp(lab.near(), 4_000), udp(lab.far(), 4_000));
    // Without CAP_NET_ADMIN the socket is small and may overflow: that is counted below.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&far, 256 << 20);
    let phase = lab.begin_phase().unwrap();
    thread::sleep(SETTLE);
    let address = far.local_addr().unwrap();
    let (sent, received) = thread::scope(|scope| {
        let sender = scope.spawn(|| send_paced(&near, address, time));
        let mut received = receive(&far, 1, PATIENCE);
        received += receive(&far, u64::MAX, 2 * SILENCE);
        (sender.join().unwrap(), received)
    });
    let certificate = phase.finish().unwrap();
    let overflowed = receive_buffer_errors(lab.far());
    let forward = certificate.forward;
    assert_eq!(forward.lost_memory, 0, "{certificate:?}");
    let accounted = received
        + overflowed
        + forward.link.lost
        + forward.link.queue_full
        + forward.lost_receive
        + forward.lost_send;
    let missing = sent.saturating_sub(accounted);
    assert!(
        missing <= device_drops(&certificate),
        "{sent} sent, {received} received, {missing} unaccounted: {certificate:?}"
    );
    eprintln!("{sent} sent in {time:?}, {received} received; {certificate:?}");
    let flight = path.forward.flight_bytes() + path.backward.flight_bytes();
    let memory = certificate.memory_bytes;
    assert!(
        memory >= flight.as_u64() && memory <= 2 * flight.as_u64(),
        "{memory}"
    );
}

/// Sends full datagrams for `time` at 0.9 Gb/s of wire or as fast as it goes; how many.
fn send_paced(socket: &UdpSocket, to: SocketAddr, time: Duration) -> u64 {
    const WIRE_BITS: u64 = 1_538 * 8;
    let since = Instant::now();
    let mut sent = 0;
    loop {
        let elapsed = since.elapsed();
        if elapsed >= time {
            return sent;
        }
        // Bits per nanosecond are gigabits per second.
        let due = u64::try_from(elapsed.as_nanos()).unwrap() * 9 / 10 / WIRE_BITS;
        while sent < due {
            socket.send_to(&[7; 1472], to).unwrap();
            sent += 1;
        }
        thread::sleep(Duration::from_micros(200));
    }
}

/// Datagrams that found the receiving socket full.
fn receive_buffer_errors(host: &Host) -> u64 {
    let snmp = host.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"));
    let snmp = snmp.unwrap().unwrap();
    let mut udp = snmp.lines().filter(|line| line.starts_with("Udp:"));
    let (names, values) = (udp.next().unwrap(), udp.next().unwrap());
    let at = names.split(' ').position(|n| n == "RcvbufErrors").unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

/// Frames that the veth devices dropped: told in the certificate's words only.
fn device_drops(certificate: &Certificate) -> u64 {
    let told = certificate.problems.iter().find_map(|problem| {
        let rest = problem.strip_prefix("the lab itself lost ")?;
        rest.strip_suffix(" frames")?.parse::<u64>().ok()
    });
    told.unwrap_or(0)
        .saturating_sub(certificate.frames_lost_by_lab())
}

#[test]
fn no_byte_changes_on_a_lossy_path_that_cuts_trains() {
    for mtu_bytes in [1500, 9000] {
        let link = "rate = \"2Gb/s\"\ndelay = \"1ms\"\nqueue = \"500kB\"\nloss = 0.001";
        let Some(lab) = up(&path(mtu_bytes, link)) else {
            return;
        };
        let certificate = transfer(&lab, stream());
        let link = certificate.forward.link;
        assert!(link.lost > 0, "{link:?}");
        assert_eq!(lost_by_forwarder(&certificate), 0, "{certificate:?}");
    }
}

#[test]
fn no_byte_changes_on_a_path_that_passes_whole_trains() {
    let Some(lab) = up(&path(1500, "delay = \"1ms\"")) else {
        return;
    };
    let certificate = transfer(&lab, stream());
    let forward = certificate.forward;
    let arrived = frames_received(lab.far());
    assert!(
        2 * forward.frames_in < forward.segments_out && 2 * arrived < forward.segments_out,
        "{arrived} frames arrived: {forward:?}"
    );
    assert_eq!(lost_by_forwarder(&certificate), 0, "{certificate:?}");
}

/// Frames that the host's interface took in, each super-frame once.
fn frames_received(host: &Host) -> u64 {
    let table = host.run(|| std::fs::read_to_string("/proc/thread-self/net/dev"));
    let table = table.unwrap().unwrap();
    let line = table.lines().find(|line| line.contains("eth0:")).unwrap();
    let mut words = line.split_whitespace();
    words.nth(2).unwrap().parse().unwrap()
}

/// 64 MiB without a pattern.
fn stream() -> &'static [u8] {
    static STREAM: OnceLock<Vec<u8>> = OnceLock::new();
    STREAM.get_or_init(|| {
        let mut rng = units::Rng::new(42);
        (0..8 << 20)
            .flat_map(|_| rng.next_u64().to_le_bytes())
            .collect()
    })
}

/// Sends `data` by TCP from near to far, where every byte is compared.
fn transfer(lab: &Lab, data: &[u8]) -> Certificate {
    let _alone = alone();
    let phase = lab.begin_phase().unwrap();
    let address = SocketAddr::from((lab.far().address(), 4_000));
    let bind = || TcpListener::bind(address);
    let listener = lab.far().run(bind).unwrap().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let connect = || TcpStream::connect(address);
            let mut stream = lab.near().run(connect).unwrap().unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(data).unwrap();
        });
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut buffer = vec![0; 1 << 18];
        let mut at = 0;
        loop {
            let n = stream.read(&mut buffer).unwrap();
            if n == 0 {
                break;
            }
            assert!(data[at..].starts_with(&buffer[..n]), "changed after {at}");
            at += n;
        }
        assert_eq!(at, data.len());
    });
    phase.finish().unwrap()
}

#[test]
fn two_labs_at_once_do_not_meet() {
    let slow = path(1500, "delay = \"30ms\"");
    let fast = path(1500, "delay = \"1ms\"");
    let (Some(slow), Some(fast)) = (up(&slow), up(&fast)) else {
        return;
    };
    // Same addresses, same ports, other worlds.
    assert_eq!(slow.near().address(), fast.near().address());
    thread::scope(|scope| {
        let one = scope.spawn(|| round_trips(&slow, 5, b"slow"));
        let other = scope.spawn(|| round_trips(&fast, 5, b"fast"));
        let least = |trips: Vec<Duration>| trips.into_iter().min().unwrap();
        assert!(least(one.join().unwrap()) >= Duration::from_micros(59_900));
        assert!(least(other.join().unwrap()) >= Duration::from_micros(1_900));
    });
}

#[test]
fn a_host_s_settings_stay_in_the_host() {
    const NAME: &str = "/proc/sys/net/ipv4/tcp_rmem";
    let Some(lab) = up(&path(1500, "delay = \"1ms\"")) else {
        return;
    };
    let outside = std::fs::read_to_string(NAME).unwrap();
    lab.far()
        .set("net.ipv4.tcp_rmem", "4096 5000 6000")
        .unwrap();
    let read = |host: &Host| host.run(|| std::fs::read_to_string(NAME)).unwrap().unwrap();
    assert_eq!(read(lab.far()).trim().replace('\t', " "), "4096 5000 6000");
    assert_eq!(
        read(lab.near()).trim().replace('\t', " "),
        "4096 131072 4194304"
    );
    assert_eq!(std::fs::read_to_string(NAME).unwrap(), outside);
    let refused = lab.far().set("net.ipv4.no_such_setting", "1").unwrap_err();
    assert!(refused.to_string().contains("no_such_setting"), "{refused}");
}

#[test]
fn a_child_in_a_host_dies_with_the_lab_s_process() {
    if !may_run() {
        return;
    }
    let mut helper = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "lab::helper_that_runs_a_child_in_a_host",
            "--nocapture",
        ])
        .env(HELPER, "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut pipe = helper.stdout.take().unwrap();
    let child = loop {
        let mut buffer = [0; 100];
        let n = pipe.read(&mut buffer).unwrap();
        assert!(n > 0, "the helper ended: {said}");
        said.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
        let line = said.lines().find_map(|l| l.split_once("child "));
        if let Some((_, id)) = line.filter(|_| said.ends_with('\n')) {
            break id.trim().to_owned();
        }
    };
    assert!(is_sleeping(&child));
    helper.kill().unwrap();
    helper.wait().unwrap();
    wait_until("the child to die", || !is_sleeping(&child));
}

/// Not a test: what the test above starts and kills.
#[test]
fn helper_that_runs_a_child_in_a_host() {
    if std::env::var_os(HELPER).is_none() {
        return;
    }
    let lab = Lab::up(&path(1500, "delay = \"1ms\"")).unwrap();
    let mut child = lab.far().program("sleep").unwrap();
    let mut child = child.arg("60").spawn().unwrap();
    println!("\nchild {}", child.id());
    // Killed long before.
    let _ = child.wait();
    drop(lab);
}

fn is_sleeping(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"));
    status.is_ok_and(|s| s.contains("sleep") && !s.contains("State:\tZ"))
}

#[test]
fn a_lab_leaves_nothing_in_the_namespace_that_it_was_started_in() {
    let before = std::fs::read_to_string("/proc/net/dev").unwrap();
    let Some(lab) = up(&path(1500, "delay = \"1ms\"")) else {
        return;
    };
    let during = std::fs::read_to_string("/proc/net/dev").unwrap();
    let names = |text: &str| {
        let mut names: Vec<String> = text
            .lines()
            .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()))
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(&before), names(&during));
    assert_eq!(lab.near().address(), Ipv4Addr::new(198, 18, 0, 1));
    let inside = lab.near().run(|| {
        let text = std::fs::read_to_string("/proc/thread-self/net/dev");
        names(&text.unwrap())
    });
    assert_eq!(inside.unwrap(), ["eth0", "lo"]);
}

/// TCP from near to far for `time`, then back; the rate of each, and both ways' counts.
fn tcp_both_ways(lab: &Lab, time: Duration) -> ([f64; 2], Certificate) {
    let phase = lab.begin_phase().unwrap();
    let rates = [
        (lab.near(), lab.far(), 5_001),
        (lab.far(), lab.near(), 5_002),
    ];
    let rates = rates.map(|(from, to, port)| tcp_rate(from, to, port, time));
    (rates, phase.finish().unwrap())
}

/// Bits a second that arrive while one connection is kept full.
fn tcp_rate(from: &Host, to: &Host, port: u16, time: Duration) -> f64 {
    let address = SocketAddr::from((to.address(), port));
    let listener = to.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = from.run(|| TcpStream::connect(address)).unwrap().unwrap();
            // Another one, BBR say, would not mind the losses.
            sys::tcp::set_congestion(stream.as_fd(), "cubic").unwrap();
            stream
                .set_write_timeout(Some(Duration::from_millis(100)))
                .unwrap();
            while !stop.load(Ordering::Relaxed) {
                // A write that waits for room too long is no failure here.
                let _ = stream.write(&[7; 65_536]);
            }
        });
        let (mut stream, _) = listener.accept().unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let (since, mut bytes) = (Instant::now(), 0);
        let mut buffer = [0; 65_536];
        while since.elapsed() < time {
            bytes += stream.read(&mut buffer).unwrap_or(0);
        }
        stop.store(true, Ordering::Relaxed);
        bytes as f64 * 8.0 / since.elapsed().as_secs_f64()
    })
}

#[test]
fn tcp_fills_half_duplex_both_ways_and_starves_on_a_mismatch_that_ping_does_not_see() {
    let _alone = alone();
    let half = "rate = \"100Mb/s\"\ndelay = \"10ms\"\nqueue = \"512KiB\"\nduplex = \"half\"";
    let Some(lab) = up(&path(1500, half)) else {
        return;
    };
    let (good, certificate) = tcp_both_ways(&lab, Duration::from_secs(4));
    let (there, back) = (certificate.forward.link, certificate.backward.link);
    assert!(
        there.collisions > 0 && back.collisions > 0,
        "{certificate:?}"
    );
    let both = there.plus(&back);
    assert_eq!(
        (both.late_collisions, both.collision_fcs),
        (0, 0),
        "{both:?}"
    );
    drop(lab);

    let lab = up(&path(
        1500,
        &format!("{half}\nbackward = {{ duplex = \"full\" }}"),
    ))
    .unwrap();
    // One datagram on its way at a time meets no other.
    assert_eq!(round_trips(&lab, 20, b"ping").len(), 20);
    let (bad, certificate) = tcp_both_ways(&lab, Duration::from_secs(4));
    let (there, back) = (certificate.forward.link, certificate.backward.link);
    assert!(
        there.late_collisions > 0 && there.collision_fcs == 0,
        "{there:?}"
    );
    assert!(back.collision_fcs > 0 && back.collisions == 0, "{back:?}");
    // Most frames pass, and yet: a fourth of the good rate at most, whatever this machine's load.
    for (good, bad) in good.into_iter().zip(bad) {
        println!("half duplex {good:.3e} b/s, mismatch {bad:.3e} b/s");
        assert!(bad < good / 4.0, "{good} {bad}");
    }
    assert!(there.scheduled > 5 * there.lost, "{there:?}");
}

/// Holds back the other tests that load the machine.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const HELPER: &str = "GOODPUT_LAB_TEST_HELPER";
