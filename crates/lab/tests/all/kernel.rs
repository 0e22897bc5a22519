//! Labs whose links the kernel runs.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use lab::{Host, Lab, LabError, Options, PathError, PathFile};

use crate::support::{PATIENCE, may_run};

const PAIR: &str = "run = \"kernel\"\n[hosts.near]\n[hosts.far]\n[links.wan]\n\
                    between = [\"near\", \"far\"]\n";

const TWO_UPLINKS: &str = r#"
    run = "kernel"
    [hosts.near]
    [hosts.far]
    [routers.gate.gateway]
    inside = { links = ["in"] }
    outside = { links = ["up-1", "up-2"] }
    [routers.world]
    [links.in]
    between = ["near", "gate"]
    [links.up-1]
    between = ["gate", "world"]
    rate = "50Mb/s"
    [links.up-2]
    between = ["gate", "world"]
    rate = "50Mb/s"
    [links.out]
    between = ["world", "far"]
"#;

fn parse(text: &str) -> Result<PathFile, PathError> {
    PathFile::parse(
        Path::new("test.toml"),
        &format!("title = \"a test\"\n{text}"),
    )
}

/// Sends by TCP for `time`, and says how many bytes came.
fn send(near: &Host, far: &Host, port: u16, time: Duration) -> u64 {
    let address = (far.address(), port);
    let listener = far.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let connect = || TcpStream::connect_timeout(&address.into(), PATIENCE);
    let mut from = near.run(connect).unwrap().unwrap();
    let (mut to, _) = listener.accept().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (block, begun) = (vec![7; 1 << 16], Instant::now());
            while begun.elapsed() < time {
                from.write_all(&block).unwrap();
            }
        });
        let mut buffer = vec![0; 1 << 16];
        let mut bytes = 0;
        // To the end, or the sender would wait for ever.
        loop {
            match to.read(&mut buffer).unwrap() {
                0 => break bytes,
                read => bytes += read as u64,
            }
        }
    })
}

#[test]
fn a_rate_of_50_megabits_is_kept_with_all_that_a_frame_is_on_the_wire() {
    if !may_run() {
        return;
    }
    let path = parse(&format!("{PAIR}rate = \"50Mb/s\"\nqueue = \"256KiB\"\n")).unwrap();
    let lab = Lab::up(&path).unwrap();
    let phase = lab.begin_phase().unwrap();
    let payload = send(lab.near(), lab.far(), 5001, Duration::from_secs(4));
    let certificate = phase.finish().unwrap();
    let run = certificate.kernel.as_ref().unwrap();
    let [there, back] = run.paces.as_slice() else {
        panic!("{run:?}");
    };
    assert_eq!((there.from.as_str(), there.to.as_str()), ("near", "far"));
    // Two counters of the kernel's agree on what was on the wire, and it is what the rate carries.
    let ratio = there.wire_bytes as f64 / there.counted_bytes as f64;
    assert!((ratio - 1.0).abs() < 0.002, "{there:?}");
    assert!(
        there.windows_over == 0 && there.frames > there.packets,
        "{there:?}"
    );
    assert!(back.wire_bytes > 0 && back.wire_bytes < there.wire_bytes / 10);
    assert!(certificate.probes == 0 && certificate.forward.segments_out == there.frames);
    // 1448 of 1538 bytes of each frame are payload.
    let frames_bytes = payload as f64 * 1538.0 / 1448.0;
    let share = frames_bytes / there.wire_bytes as f64;
    assert!(
        there.drops > 0 || (share - 1.0).abs() < 0.005,
        "{share}: {run:?}"
    );
    // Of what is slower the machine is the cause, and then the certificate says so.
    if certificate.trusted() && there.windows_busy > 10 {
        assert!(there.busy_ppm.abs_diff(1_000_000) < 20_000, "{there:?}");
    } else {
        eprintln!("not trusted: {:?}", certificate.problems);
    }
}

#[test]
fn connections_spread_over_uplinks_and_other_packets_are_routed() {
    if !may_run() {
        return;
    }
    let path = parse(TWO_UPLINKS).unwrap();
    for (path, splits) in [(path.clone(), true), (path.routed(), false)] {
        let lab = Lab::up(&path).unwrap();
        let second = Duration::from_secs(1);
        thread::scope(|scope| {
            let one = scope.spawn(|| send(lab.near(), lab.far(), 5001, second));
            thread::sleep(second / 10);
            send(lab.near(), lab.far(), 5002, second);
            one.join().unwrap();
        });
        let counts = lab.link_counts().unwrap();
        let frames = |name: &str| {
            let link = counts.iter().find(|(n, ..)| n == name).unwrap();
            link.1.segments_out
        };
        assert!(frames("up-1") > 1_000, "{counts:?}");
        assert_eq!(frames("up-2") > 1_000, splits, "{counts:?}");
        assert_eq!(lab.gateways().len(), usize::from(splits));
        let receiver = lab
            .far()
            .run(|| UdpSocket::bind((lab.far().address(), 5000)));
        let receiver = receiver.unwrap().unwrap();
        receiver.set_read_timeout(Some(PATIENCE)).unwrap();
        let sender = lab
            .near()
            .run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)));
        let to = (lab.far().address(), 5000);
        sender.unwrap().unwrap().send_to(b"word", to).unwrap();
        let (_, from) = receiver.recv_from(&mut [0; 8]).unwrap();
        assert_eq!(from.ip(), IpAddr::from(lab.near().address()));
    }
}

/// More than what a kernel has to say by itself.
const WORDS: u64 = 20;

const FOUR_LINKS: &str = r#"
    run = "kernel"
    [hosts.near]
    [hosts.far]
    [links.one]
    between = ["near", "far"]
    rate = "50Mb/s"
    [links.two]
    between = ["far", "near"]
    rate = "50Mb/s"
    [links.three]
    between = ["near", "far"]
    rate = "50Mb/s"
    [[schedule]]
    at = "1s"
    link = "three"
    up = false
"#;

#[test]
fn a_host_has_an_address_on_each_of_its_links_and_a_link_is_cut_and_mended() {
    if !may_run() {
        return;
    }
    let path = parse(FOUR_LINKS).unwrap();
    assert_eq!(path.network.walk(0, 1).unwrap().len(), 1);
    let begun = Instant::now();
    let lab = Lab::up(&path).unwrap();
    let addresses = |host: &Host| -> Vec<String> {
        host.addresses()
            .map(|address| address.to_string())
            .collect()
    };
    assert_eq!(
        addresses(lab.near()),
        ["198.18.0.1", "198.18.1.1", "198.18.2.1"]
    );
    let far: Vec<Ipv4Addr> = lab.far().addresses().collect();
    let receivers: Vec<UdpSocket> = far
        .iter()
        .map(|address| {
            let bound = lab.far().run(|| UdpSocket::bind((*address, 5000)));
            let socket = bound.unwrap().unwrap();
            socket
                .set_read_timeout(Some(Duration::from_millis(200)))
                .unwrap();
            socket
        })
        .collect();
    let sender = lab.near().run(|| UdpSocket::bind("0.0.0.0:0"));
    let sender = sender.unwrap().unwrap();
    let arrives = |number: usize| {
        sender.send_to(b"word", (far[number], 5000)).unwrap();
        receivers[number].recv(&mut [0; 8]).is_ok()
    };
    let frames = |name: &str| {
        let counts = lab.link_counts().unwrap();
        let link = counts.iter().find(|(n, ..)| n == name).unwrap();
        (link.1.segments_out, link.2.segments_out)
    };
    // Each goes by its own link: the second leads from the far host.
    let there = || (frames("one").0, frames("two").1);
    for (number, wanted) in [(0, (true, false)), (1, (false, true))] {
        let before = there();
        assert!((0..WORDS).all(|_| arrives(number)));
        let after = there();
        // The kernel may say a word of its own meanwhile, such as which groups an address belongs to.
        let carried = (after.0 - before.0 >= WORDS, after.1 - before.1 >= WORDS);
        assert_eq!(carried, wanted, "{before:?} {after:?}");
    }
    assert!(arrives(2) || begun.elapsed() > Duration::from_secs(1));
    // Nobody is told of what is cut: sending goes on.
    let two = |up| lab.set("two", true, true, link::Change::Up(up)).unwrap();
    two(false);
    assert!(!arrives(1));
    assert!(arrives(0));
    two(true);
    assert!(arrives(1));
    while arrives(2) {
        assert!(begun.elapsed() < PATIENCE, "the schedule does not cut");
    }
    assert!(arrives(0) && arrives(1));
}

#[test]
fn what_the_kernel_cannot_do_is_refused_with_key_and_line() {
    let refused = |text: &str| match parse(text).unwrap_err() {
        PathError::Refused { line, problem, .. } => (line, problem),
        other => panic!("{other}"),
    };
    let pair = |more: &str| refused(&format!("{PAIR}{more}"));
    for (key, value) in [
        ("delay", "\"1ms\""),
        ("loss", "0.01"),
        ("jitter", "{ amount = \"1ms\" }"),
        ("duplicate", "0.01"),
        ("backward", "{ delay = \"1ms\" }"),
        ("middlebox", "[\"strip-sack\"]"),
    ] {
        let (line, problem) = pair(&format!("rate = \"1Gb/s\"\n{key} = {value}\n"));
        let key = if key == "backward" { "delay" } else { key };
        assert!(problem.contains(&format!("wan: {key}: ")), "{problem}");
        assert_eq!(line, 8, "{problem}");
    }
    let (line, problem) = pair("rate = \"1Gb/s\"\nqueue = \"20KiB\"\n");
    assert!(
        line == 8 && problem.starts_with("queue = 20"),
        "{line}: {problem}"
    );
    let (_, problem) = refused(&PAIR.replace("[hosts.far]", "[hosts.far]\nmtu = 9000"));
    assert!(problem.starts_with("mtu: "), "{problem}");
    let symmetric = TWO_UPLINKS.replace("[routers.world]", "[routers.world]\nsymmetric = true");
    let (line, problem) = refused(&symmetric);
    assert!(
        line == 10 && problem.starts_with("world: symmetric: "),
        "{line}: {problem}"
    );
    let (line, problem) = refused(&PAIR.replace("\"kernel\"", "\"kernle\""));
    assert!(line == 2 && problem.contains("kernel"), "{line}: {problem}");
    let schedule = |change: &str| {
        let text = format!("[[schedule]]\nat = \"1s\"\nlink = \"wan\"\n{change}\n");
        pair(&format!("rate = \"1Gb/s\"\n{text}")).1
    };
    let problem = schedule("rate = \"1Mb/s\"");
    assert!(problem.starts_with("schedule: rate: "), "{problem}");
    let (_, problem) = pair("[[schedule]]\nat = \"1s\"\nlink = \"wan\"\nup = false\n");
    assert!(problem.contains("wan has no rate"), "{problem}");
    // With the engine a host has one link.
    let (_, problem) = refused(&FOUR_LINKS.replace("\"kernel\"", "\"engine\""));
    assert!(problem.contains("3 links"), "{problem}");
    // A delay of nothing is none.
    assert!(
        parse(&format!("{PAIR}delay = \"0ms\"\n"))
            .unwrap()
            .network
            .by_kernel
    );
    assert!(
        !parse(&PAIR.replace("kernel", "engine"))
            .unwrap()
            .network
            .by_kernel
    );
}

#[test]
fn what_takes_the_engine_is_refused_while_it_runs() {
    if !may_run() {
        return;
    }
    let path = parse(PAIR).unwrap();
    let log = Some(std::env::temp_dir().join("never-made.gplog"));
    let refused = Lab::up_with(&path, Options { log }).unwrap_err();
    assert!(matches!(refused, LabError::ByKernel(_)), "{refused}");
    let lab = Lab::up(&path).unwrap();
    for refused in [
        lab.set("wan", true, true, link::Change::Up(false))
            .unwrap_err(),
        lab.rule_hits("wan").unwrap_err(),
    ] {
        eprintln!("{refused}");
    }
    assert!(matches!(
        lab.set("wan", true, true, link::Change::Up(false)),
        Err(LabError::ByKernel(_))
    ));
    assert_eq!(lab.down().unwrap(), None);
}
