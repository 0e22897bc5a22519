//! Networks of several hosts: switches, routers, rules, boxes and the log, with real kernels at the ends.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use lab::{Host, Lab, Options, PathFile};
use link::record::{Block, Code, Reader};

use crate::support::{PATIENCE, SILENCE, may_run, receive, udp, wait_until};

fn parse(text: &str) -> PathFile {
    let text = format!("title = \"a test\"\n{text}");
    PathFile::parse(Path::new("test.toml"), &text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// `n` hosts h0, h1, … on a switch by links l0, l1, … that are like `link`.
fn star(n: usize, link: &str, more: &str) -> PathFile {
    let mut text = String::new();
    for i in 0..n {
        text += &format!("[hosts.h{i}]\n[links.l{i}]\nbetween = [\"h{i}\", \"sw\"]\n{link}\n");
    }
    parse(&format!("{text}[switches.sw]\n{more}"))
}

/// near - r1 - r2 - far, each link with `delay`, the middle one with `middle` too.
fn chain(middle: &str) -> PathFile {
    parse(&format!(
        "[hosts.near]\n[hosts.far]\n[routers.r1]\n[routers.r2]\n\
         [links.a]\nbetween = [\"near\", \"r1\"]\ndelay = \"1ms\"\n\
         [links.b]\nbetween = [\"r1\", \"r2\"]\ndelay = \"2ms\"\n{middle}\n\
         [links.c]\nbetween = [\"r2\", \"far\"]\ndelay = \"1ms\"\n"
    ))
}

fn up(path: &PathFile) -> Option<Lab> {
    may_run().then(|| Lab::up(path).unwrap())
}

/// What a program says when run in a host.
fn output(host: &Host, program: &str, args: &[&str]) -> String {
    let mut command = host.program(program).unwrap();
    let out = host.run(|| command.args(args).output()).unwrap();
    let out = out.unwrap_or_else(|e| panic!("this test needs {program}: {e}"));
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

/// Sends `bytes` over TCP from one host to another, both protocols' way; what arrived.
fn carry(from: &Host, to: &Host, address: IpAddr, bytes: &[u8]) -> Vec<u8> {
    let listener = to
        .run(|| TcpListener::bind((address, 5_001)))
        .unwrap()
        .unwrap();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            got
        });
        let mut stream = from
            .run(|| TcpStream::connect((address, 5_001)))
            .unwrap()
            .unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();
        drop(stream);
        receiver.join().unwrap()
    })
}

/// `n` bytes arrive unchanged over IPv4 and over IPv6.
fn carry_by_both_protocols(lab: &Lab, n: usize) {
    let bytes = noise(n);
    let (near, far) = (lab.near(), lab.far());
    for address in [IpAddr::V4(far.address()), IpAddr::V6(far.address6())] {
        assert!(carry(near, far, address, &bytes) == bytes, "{address}");
    }
}

fn noise(n: usize) -> Vec<u8> {
    let mut rng = units::Rng::new(7);
    (0..n / 8 + 1)
        .flat_map(|_| rng.next_u64().to_le_bytes())
        .take(n)
        .collect()
}

#[test]
fn five_hosts_all_to_all_at_once_and_every_byte_arrives() {
    let Some(lab) = up(&star(5, "rate = \"500Mb/s\"\ndelay = \"1ms\"", "")) else {
        return;
    };
    let bytes = noise(2 << 20);
    let hosts = lab.hosts();
    thread::scope(|scope| {
        for (i, to) in hosts.iter().enumerate() {
            let address = (to.address(), 6_000);
            let listener = to.run(|| TcpListener::bind(address)).unwrap().unwrap();
            let bytes = &bytes;
            scope.spawn(move || {
                for _ in 1..hosts.len() {
                    let (mut stream, _) = listener.accept().unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    scope.spawn(move || {
                        let mut got = Vec::new();
                        stream.read_to_end(&mut got).unwrap();
                        assert!(got == *bytes, "{} bytes at host {i}", got.len());
                    });
                }
            });
        }
        for (i, from) in hosts.iter().enumerate() {
            for (_, to) in hosts.iter().enumerate().filter(|&(k, _)| k != i) {
                let bytes = &bytes;
                scope.spawn(move || {
                    let address = (to.address(), 6_000);
                    let stream = from.run(|| TcpStream::connect(address)).unwrap();
                    stream.unwrap().write_all(bytes).unwrap();
                });
            }
        }
    });
    let counts = lab.link_counts().unwrap();
    let lost: u64 = counts
        .iter()
        .map(|(_, f, b)| f.lost_memory + b.lost_memory)
        .sum();
    assert_eq!((counts.len(), lost), (5, 0));
}

#[test]
fn a_switch_learns_where_hosts_are_and_tells_no_others() {
    let Some(lab) = up(&star(3, "", "")) else {
        return;
    };
    let socket = udp(&lab.hosts()[1], 7_000);
    let sender = udp(&lab.hosts()[0], 7_000);
    // The answer teaches the switch where host 1 is.
    let to = (lab.hosts()[1].address(), 7_000);
    sender.send_to(b"first", to).unwrap();
    let mut buffer = [0; 10];
    let (_, from) = socket.recv_from(&mut buffer).unwrap();
    socket.send_to(b"answer", from).unwrap();
    sender.recv(&mut buffer).unwrap();
    let before = lab.link_counts().unwrap();
    for _ in 0..100 {
        sender.send_to(b"more", to).unwrap();
    }
    assert_eq!(receive(&socket, 100, SILENCE), 100);
    let after = lab.link_counts().unwrap();
    let towards = |counts: &[(String, _, lab::DirectionCounts)], n: usize| counts[n].2.segments_out;
    assert!(towards(&after, 1) >= towards(&before, 1) + 100);
    assert!(
        towards(&after, 2) < towards(&before, 2) + 100,
        "host 2 heard it all"
    );
}

#[test]
fn two_into_one_port_the_log_knows_every_lost_frame_and_its_queue() {
    if !may_run() {
        return;
    }
    let path = parse(
        "[hosts.a]\n[hosts.b]\n[hosts.c]\n[switches.sw]\n\
         [links.a]\nbetween = [\"a\", \"sw\"]\n[links.b]\nbetween = [\"b\", \"sw\"]\n\
         [links.c]\nbetween = [\"sw\", \"c\"]\nrate = \"1Mb/s\"\nqueue = \"64KiB\"\n",
    );
    let folder = std::env::temp_dir().join(format!("goodput-log-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("two-into-one.gplog");
    let _ = std::fs::remove_file(&file);
    let options = Options {
        log: Some(file.clone()),
    };
    let lab = Lab::up_with(&path, options).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| lab.host(name).unwrap());
    let receiver = udp(c, 7_000);
    let (from_a, from_b) = (udp(a, 7_000), udp(b, 7_000));
    let to = (c.address(), 7_000);
    for _ in 0..100 {
        from_a.send_to(&[1; 1_400], to).unwrap();
        from_b.send_to(&[2; 1_400], to).unwrap();
    }
    let received = receive(&receiver, 200, SILENCE);
    let counts = lab.link_counts().unwrap();
    let dropped = counts[2].1.link.queue_full;
    let end = lab.down().unwrap().unwrap();
    assert_eq!((end.lost_rows, end.lost_frames), (0, 0));
    assert_eq!(received + dropped, 200);
    assert!(dropped > 50, "64 KiB hold some 45 of them: {dropped}");
    let bytes = std::fs::read(&file).unwrap();
    let wire = 1_400 + 8 + 20 + 14 + 24;
    let mut lost_rows = 0;
    for block in Reader::new(&bytes).unwrap() {
        let Block::Decisions(rows) = block.unwrap() else {
            continue;
        };
        for row in rows.filter(|r| r.decision == Code::QUEUE_FULL) {
            assert_eq!((row.link, row.count, row.wire_bytes), (4, 1, wire));
            assert!(
                row.queue_bytes + u64::from(wire) > 65_536,
                "it would have fitted: {row:?}"
            );
            lost_rows += 1;
        }
    }
    assert_eq!(lost_rows, dropped);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn routers_answer_pings_and_traceroute_and_forward_both_protocols() {
    let Some(lab) = up(&chain("")) else {
        return;
    };
    let far = lab.far().address().to_string();
    let traced = output(
        lab.near(),
        "traceroute",
        &["-n", "-q", "1", "-w", "2", &far],
    );
    let hops: Vec<&str> = traced
        .lines()
        .skip(1)
        .filter_map(|l| l.split_whitespace().nth(1))
        .collect();
    assert_eq!(hops.len(), 3, "{traced}");
    assert_eq!(hops[2], far, "{traced}");
    let pinged = output(lab.near(), "ping", &["-c", "1", "-W", "5", hops[0]]);
    assert!(pinged.contains("1 received"), "{pinged}");
    // Not only the first answers a message that is longer than any header.
    let second = output(
        lab.near(),
        "ping",
        &["-c", "1", "-W", "5", "-s", "1000", hops[1]],
    );
    assert!(second.contains("1 received"), "{second}");
    let far6 = lab.far().address6().to_string();
    let pinged = output(lab.near(), "ping", &["-6", "-c", "1", "-W", "5", &far6]);
    assert!(
        pinged.contains("1 received") && pinged.contains("ttl=62"),
        "{pinged}"
    );
    let expired = output(lab.near(), "ping", &["-c", "1", "-W", "5", "-t", "1", &far]);
    assert!(expired.contains("Time to live exceeded"), "{expired}");
    carry_by_both_protocols(&lab, 4 << 20);
}

#[test]
fn a_router_says_that_a_packet_is_too_big_and_tcp_finds_its_size() {
    let Some(lab) = up(&chain("mtu = 1400")) else {
        return;
    };
    let far = lab.far().address().to_string();
    let fits = output(
        lab.near(),
        "ping",
        &["-c", "1", "-W", "5", "-M", "do", "-s", "1372", &far],
    );
    assert!(fits.contains("1 received"), "{fits}");
    let big = output(
        lab.near(),
        "ping",
        &["-c", "1", "-W", "5", "-M", "do", "-s", "1373", &far],
    );
    assert!(
        big.contains("mtu = 1400") || big.contains("mtu=1400"),
        "{big}"
    );
    carry_by_both_protocols(&lab, 1 << 20);
}

#[test]
fn rules_drop_each_nth_frame_mirror_and_may_change_while_frames_flow() {
    let rules = "rules = [ { protocol = \"udp\", dst_port = \"7000\", every = 4, drop = true }, \
                 { protocol = \"udp\", dst_port = \"7000\", mirror = \"l2\" } ]";
    let Some(lab) = up(&star(3, "", rules)) else {
        return;
    };
    let receiver = udp(&lab.hosts()[1], 7_000);
    let sender = udp(&lab.hosts()[0], 7_000);
    let to = (lab.hosts()[1].address(), 7_000);
    let send = |n: usize| {
        for _ in 0..n {
            sender.send_to(&[0; 100], to).unwrap();
        }
    };
    send(100);
    assert_eq!(receive(&receiver, 100, SILENCE), 75);
    assert_eq!(lab.rule_hits("sw").unwrap(), [100, 75]);
    let mirrored = lab.link_counts().unwrap()[2].2.segments_out;
    assert!(mirrored >= 75, "{mirrored}");
    lab.set_rules("sw", &[]).unwrap();
    send(100);
    assert_eq!(receive(&receiver, 100, SILENCE), 100);
    assert!(lab.set_rules("nowhere", &[]).is_err());
}

#[test]
fn a_router_s_rules_count_each_segment_and_rewrite_before_it_routes() {
    if !may_run() {
        return;
    }
    let other = "rules = [ { protocol = \"udp\", dst_port = \"7000\", every = 2, drop = true }, \
                 { protocol = \"udp\", dst_port = \"7001\", rewrite = { dst_port = 7000 } } ]";
    let with_rules = parse(&format!(
        "[hosts.a]\n[hosts.b]\n[routers.r]\n{other}\n[links.a]\nbetween = [\"a\", \"r\"]\n[links.b]\nbetween = [\"r\", \"b\"]\n"
    ));
    let lab = Lab::up(&with_rules).unwrap();
    let [a, b] = ["a", "b"].map(|name| lab.host(name).unwrap());
    let (sender, receiver) = (udp(a, 7_000), udp(b, 7_000));
    for _ in 0..100 {
        sender.send_to(&[0; 100], (b.address(), 7_000)).unwrap();
    }
    assert_eq!(receive(&receiver, 100, SILENCE), 50);
    for _ in 0..10 {
        sender.send_to(&[0; 100], (b.address(), 7_001)).unwrap();
    }
    assert_eq!(
        receive(&receiver, 10, SILENCE),
        10,
        "the port was rewritten"
    );
    assert_eq!(lab.rule_hits("r").unwrap(), [100, 10]);
}

#[test]
fn rules_that_play_ball_between_two_switches_end() {
    let ball = "rules = [ { mirror = \"trunk\" }, { protocol = \"udp\", to = [\"trunk\"] } ]";
    let Some(lab) = up(&parse(&format!(
        "[hosts.a]\n[hosts.b]\n[switches.s]\n{ball}\n[switches.t]\n{ball}\n\
         [links.a]\nbetween = [\"a\", \"s\"]\n[links.trunk]\nbetween = [\"s\", \"t\"]\n\
         [links.b]\nbetween = [\"t\", \"b\"]\n"
    ))) else {
        return;
    };
    let [a, b] = ["a", "b"].map(|name| lab.host(name).unwrap());
    let sender = udp(a, 7_000);
    sender.send_to(b"ball", (b.address(), 7_000)).unwrap();
    // It is still there to answer.
    wait_until("the frame on the trunk", || {
        lab.link_counts().unwrap()[1].1.link.scheduled > 0
    });
}

#[test]
fn damage_on_a_link_to_a_router_reaches_the_far_host_and_answers_are_damaged_too() {
    let Some(lab) = up(&parse(
        "[hosts.a]\n[hosts.b]\n[routers.r]\n\
         [links.a]\nbetween = [\"a\", \"r\"]\ncorrupt = 1.0\n\
         [links.b]\nbetween = [\"r\", \"b\"]\n",
    )) else {
        return;
    };
    let [a, b] = ["a", "b"].map(|name| lab.host(name).unwrap());
    let (sender, receiver) = (udp(a, 7_000), udp(b, 7_000));
    for _ in 0..20 {
        sender.send_to(&[7; 1_000], (b.address(), 7_000)).unwrap();
    }
    // One flipped bit each: the receiving kernel's checksums find them all.
    assert_eq!(receive(&receiver, 20, SILENCE), 0);
    let counts = lab.link_counts().unwrap();
    assert!(counts[1].1.segments_out >= 20, "{:?}", counts[1].1);
    let lost: u64 = counts
        .iter()
        .map(|(_, f, b)| f.lost_send + b.lost_send)
        .sum();
    assert_eq!(lost, 0);
    let router = "198.18.0.254";
    let pinged = output(a, "ping", &["-c", "2", "-W", "1", router]);
    assert!(pinged.contains("0 received"), "{pinged}");
    let counts = lab.link_counts().unwrap();
    let lost: u64 = counts
        .iter()
        .map(|(_, f, b)| f.lost_send + b.lost_send)
        .sum();
    assert_eq!(lost, 0, "an answer that was sent as nothing");
}

#[test]
fn a_link_is_changed_while_it_runs() {
    let Some(lab) = up(&star(2, "delay = \"1ms\"", "")) else {
        return;
    };
    let (near, far) = (udp(&lab.hosts()[0], 7_000), udp(&lab.hosts()[1], 7_000));
    let to = (lab.hosts()[1].address(), 7_000);
    let one_way = || {
        let since = Instant::now();
        near.send_to(b"x", to).unwrap();
        let came = receive(&far, 1, SILENCE) == 1;
        came.then(|| since.elapsed())
    };
    assert!(one_way().unwrap() >= Duration::from_millis(2));
    let slow = link::Change::Delay(units::Duration::from_ms(80));
    lab.set("l0", true, true, slow).unwrap();
    wait_until("the longer delay", || {
        one_way().unwrap() >= Duration::from_millis(81)
    });
    lab.set("l1", true, true, link::Change::Up(false)).unwrap();
    wait_until("the cut", || one_way().is_none());
    lab.set("l1", true, true, link::Change::Up(true)).unwrap();
    wait_until("the link again", || one_way().is_some());
    let no_rate = link::Change::Rate(units::Rate::from_bits_per_second(1_000_000));
    assert!(
        lab.set("l0", true, true, no_rate)
            .unwrap_err()
            .to_string()
            .contains("no rate")
    );
    assert!(
        lab.set("l9", true, true, slow)
            .unwrap_err()
            .to_string()
            .contains("l0, l1")
    );
}

#[test]
fn sixty_four_hosts_come_up_and_reach_each_other() {
    if !may_run() {
        return;
    }
    let since = Instant::now();
    let lab = Lab::up(&star(64, "", "")).unwrap();
    eprintln!("64 hosts up in {:?}", since.elapsed());
    let hosts = lab.hosts();
    let sockets: Vec<UdpSocket> = hosts.iter().map(|h| udp(h, 7_000)).collect();
    for (i, socket) in sockets.iter().enumerate() {
        let to = &hosts[(i * 7 + 1) % 64];
        socket
            .send_to(&[u8::try_from(i).unwrap()], (to.address(), 7_000))
            .unwrap();
    }
    let mut seen = BTreeMap::new();
    for socket in &sockets {
        let mut buffer = [0; 10];
        socket.recv(&mut buffer).unwrap();
        *seen.entry(buffer[0]).or_insert(0) += 1;
    }
    assert_eq!(seen.len(), 64);
}

#[test]
fn copies_and_damage_are_made_as_told() {
    let Some(lab) = up(&parse(
        "[hosts.near]\n[hosts.far]\n[links.wan]\nbetween = [\"near\", \"far\"]\nforward = { duplicate = 0.5, corrupt = 0.25 }\n",
    )) else {
        return;
    };
    let receiver = udp(lab.far(), 7_000);
    let sender = udp(lab.near(), 7_000);
    let to = (lab.far().address(), 7_000);
    let (mut came, mut numbers, mut wrong) = (0_u64, BTreeSet::new(), 0);
    let mut buffer = [0; 2_000];
    // In parts that a receive buffer holds.
    for part in 0..8 {
        for n in part * 50..(part + 1) * 50_u32 {
            sender.send_to(&n.to_be_bytes().repeat(100), to).unwrap();
        }
        receiver.set_read_timeout(Some(SILENCE / 4)).unwrap();
        while let Ok(n) = receiver.recv(&mut buffer) {
            came += 1;
            numbers.insert(buffer[..4].to_vec());
            wrong += u64::from(!buffer[..n].chunks(4).all(|c| c == &buffer[..4]));
        }
    }
    let link = lab.link_counts().unwrap()[0].1.link;
    assert!((150..=250).contains(&link.duplicated), "{link:?}");
    // A flipped bit in payload or headers: the receiving kernel's checksums drop the datagram.
    assert_eq!(wrong, 0);
    assert!(
        link.corrupted >= 100 && came + link.corrupted >= 400 + link.duplicated - 10,
        "{came} {link:?}"
    );
    assert!(
        came < 400 + link.duplicated && numbers.len() > 300,
        "{came}"
    );
}
