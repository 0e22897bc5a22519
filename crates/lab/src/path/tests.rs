use super::*;
use link::Change;
use link::spec::{DisciplineSpec, LossSpec, Medium, ServerSpec};

const GOOD: &str = r#"
title = "a path"
[hosts.near]
mtu = 1500
congestion_control = "cubic"
tcp_rmem = ["4KiB", "64KiB", "64KiB"]
tcp_wmem = ["4KiB", "64KiB", "64KiB"]
[hosts.far]
mtu = 9000
congestion_control = "reno"
tcp_rmem = ["4KiB", "64KiB", "64KiB"]
tcp_wmem = ["4KiB", "64KiB", "64KiB"]
sysctl = { "net.ipv4.tcp_timestamps" = 0 }
[links.wan]
between = ["near", "far"]
rate = "1Gb/s"
delay = "42.5ms"
backward = { loss = 0.25 }
"#;

/// Two switches, two routers, four hosts: `a` and `b` on one segment, `c` behind both routers, `d`
/// on the link between them.
const CAMPUS: &str = r#"
title = "a campus"
[hosts.a]
[hosts.b]
mtu = 9000
[hosts.c]
[hosts.d]
[switches.s]
[switches.t]
[routers.r]
[routers.q]
[links.a]
between = ["a", "s"]
[links.b]
between = ["b", "s"]
[links.up]
between = ["s", "r"]
rate = "100Mb/s"
[links.r]
between = ["r", "t"]
delay = "3ms"
[links.q]
between = ["t", "q"]
[links.d]
between = ["d", "t"]
[links.c]
between = ["q", "c"]
rate = "1Gb/s"
"#;

fn parse(text: &str) -> Result<PathFile, PathError> {
    PathFile::parse_with(Path::new("x.toml"), text, &|file| match file.to_str() {
        Some("good.trace") => Ok("1\n1\n2\n".to_owned()),
        Some("bad.trace") => Ok("1\nx\n".to_owned()),
        _ => Err(io::Error::from(io::ErrorKind::NotFound)),
    })
}

#[track_caller]
fn good(text: &str) -> PathFile {
    parse(text).unwrap_or_else(|e| panic!("{e}"))
}

/// A path of two hosts with these keys in its link.
fn link_of(keys: &str) -> String {
    format!(
        "title = \"x\"\n[hosts.near]\n[hosts.far]\n[links.wan]\nbetween = [\"near\", \"far\"]\n{keys}\n"
    )
}

#[track_caller]
fn refused(text: &str, line: usize, says: &str) {
    match parse(text) {
        Err(PathError::Refused {
            line: at, problem, ..
        }) => {
            assert!(problem.contains(says), "'{problem}' lacks '{says}'");
            assert_eq!(at, line, "{problem}");
        }
        other => panic!("{other:?}\n{text}"),
    }
}

#[test]
fn a_good_file_means_what_it_says() {
    let path = good(GOOD);
    assert_eq!(path.near.mtu_bytes, 1500);
    assert_eq!(path.far.sysctl["net.ipv4.tcp_timestamps"], "0");
    assert_eq!(path.rtt_configured(), Duration::from_ms(85));
    assert_eq!((path.forward.loss, path.backward.loss), (0.0, 0.25));
    let product = Bytes::new(10_625_000);
    assert_eq!(path.forward.queue, product, "one round trip's product");
    assert_eq!(path.forward.queue_bytes(1500), product);
    assert_eq!((path.forward.seed, path.backward.seed), (1, 2));
    assert_eq!(path.transfer.streams, 1);
    assert_eq!((path.mtu_bytes(), path.link.as_str()), (1500, "wan"));
    let rings = path.forward.ring_bytes() + path.backward.ring_bytes();
    assert_eq!(path.memory_bytes(), rings);
}

#[test]
fn a_link_without_rate_keeps_the_memory_that_it_had() {
    let path = good(&link_of(""));
    // 10 Gb/s for 20 ms, half as much again, and 4 MiB, both ways.
    assert_eq!(
        path.memory_bytes(),
        Bytes::new(2 * (37_500_000 + (4 << 20)))
    );
    assert_eq!(path.forward.rate, None);
    assert_eq!(path.forward.queue, Bytes::new(0));
}

#[test]
fn mistakes_are_refused_with_line_and_expectation() {
    for (from, to, line, says) in [
        (
            "mtu = 1500",
            "mtu = 1500\nmut = 1",
            5,
            "unknown key 'mut'; did you mean 'mtu'?",
        ),
        (
            "mtu = 1500",
            "speed = 1",
            4,
            "unknown key 'speed'; expected one of: mtu, congestion_control",
        ),
        ("title = \"a path\"", "", 1, "the key 'title' is missing"),
        ("mtu = 1500", "mtu = 575", 4, "expected 576 to 65535"),
        ("mtu = 9000", "mtu = 65536", 9, "expected 576 to 65535"),
        (
            "delay = ",
            "dealy = ",
            17,
            "unknown key 'dealy'; did you mean 'delay'?",
        ),
        ("{ loss =", "{ los =", 18, "did you mean 'loss'?"),
        ("\"1Gb/s\"", "\"1\"", 16, "has no unit; expected a rate"),
        ("\"1Gb/s\"", "1000", 16, "expected a string"),
        ("\"1Gb/s\"", "\"7999b/s\"", 16, "expected 8 kb/s to 1 Tb/s"),
        (
            "\"42.5ms\"",
            "\"42.5 furlongs\"",
            17,
            "unknown unit 'furlongs'",
        ),
        ("\"42.5ms\"", "\"11s\"", 17, "expected at most 10 s"),
        (
            "loss = 0.25",
            "loss = 1.5",
            18,
            "expected a share from 0 to 1",
        ),
        (
            "loss = 0.25",
            "loss = nan",
            18,
            "expected a share from 0 to 1",
        ),
        (
            "loss = 0.25",
            "loss = \"x\"",
            18,
            "expected a share from 0 to 1",
        ),
        ("\"far\"]", "\"away\"]", 15, "no host 'away'"),
        (
            "\"far\"]",
            "\"fra\"]",
            15,
            "no host 'fra' in this file; did you mean 'far'?",
        ),
        ("\"far\"]", "\"near\"]", 15, "two different nodes"),
        ("\"reno\"", "\"re no\"", 10, "expected a name such as cubic"),
        (
            "net.ipv4.tcp_timestamps",
            "kernel.panic",
            13,
            "under net.ipv4 or net.ipv6",
        ),
        (
            "net.ipv4.tcp_timestamps",
            "net.ipv4...x",
            13,
            "under net.ipv4 or net.ipv6",
        ),
        ("= 0 }", "= true }", 13, "expected text or a whole number"),
        (
            "\"64KiB\", \"64KiB\"]",
            "\"128KiB\", \"64KiB\"]",
            6,
            "min <= default <= max",
        ),
        (
            "rate = \"1Gb/s\"\ndelay = \"42.5ms\"",
            "rate = \"1Tb/s\"\ndelay = \"10s\"",
            14,
            "for frames in flight",
        ),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from}");
        refused(&text, line, says);
    }
}

#[test]
fn a_missing_file_and_a_directory_are_unreadable() {
    for file in ["/nonexistent/x.toml", "/"] {
        let error = PathFile::read(Path::new(file)).unwrap_err();
        assert!(matches!(error, PathError::Unreadable { .. }), "{error}");
    }
}

#[test]
fn hosts_have_the_defaults_of_linux() {
    let path = good(&link_of(""));
    let host = &path.near;
    assert_eq!(
        (host.mtu_bytes, host.congestion_control.as_str()),
        (1500, "cubic")
    );
    assert_eq!(host.tcp_rmem_bytes, [4_096, 131_072, 6_291_456]);
    assert_eq!(host.tcp_wmem_bytes, [4_096, 16_384, 4_194_304]);
    assert!(host.offloads && host.interface.is_none());
}

#[test]
fn the_near_host_of_a_plain_path_has_the_first_address_wherever_it_stands() {
    let swapped = link_of("").replacen("\"near\", \"far\"", "\"far\", \"near\"", 1);
    for (text, near) in [(link_of(""), "near"), (swapped, "far")] {
        let path = good(&text);
        assert_eq!(path.near.name, near);
        assert_eq!(path.near.address4, Ipv4Addr::new(198, 18, 0, 1));
        assert_eq!(path.far.address4, Ipv4Addr::new(198, 18, 0, 2));
        assert_eq!(path.near.address6.to_string(), "fd67:7064::1");
        assert_eq!(path.near.mac.to_string(), "02:67:70:00:00:01");
        assert_eq!((path.near.prefix4, path.near.prefix6), (24, 64));
        assert_eq!(path.near.gateway4, None);
    }
}

#[test]
fn every_key_of_a_direction_reaches_its_stage() {
    let path = good(&link_of(
        r#"
medium = "wan-phy"
gap = 700
rate = "1Gb/s"
queue = "1MB"
queue_packets = 500
discipline = { red = { min = "30kB", max = "90kB", ecn = true } }
loss = [0.1, { burst = { enter = 0.01, leave = 0.5 } }, { every = 100, offset = 1 }, { frames = [3, 17] }]
duplicate = 0.2
corrupt = 0.3
delay = "1ms"
jitter = { amount = "2ms", shape = "normal", correlation = 0.5, reorder = true }
coalesce = { hold = "50us" }
policer = { rate = "100Mb/s", burst = "20kB" }
flow_cap = { rate = "10Mb/s", burst = "10kB" }
packets_per_second = 1000
outages = [["10s", "12s"], ["20s", "21s"]]
outage_every = ["30s", "1s"]
black_hole_above = 1400
middlebox = ["strip-window-scale", "seq-check", { mss-clamp = 1360 }]
seed = 7
backward = { medium = "ethernet", gap = 20, loss = 0, seed = 9, middlebox = [] }"#,
    ));
    let link = &path.network.links[0];
    let to = &link.forward;
    assert_eq!(to.medium, Medium::WanPhy { gap_bytes: 700 });
    let rate = to.rate.as_ref().unwrap();
    assert_eq!(
        rate.server,
        ServerSpec::Rate(Rate::from_bits_per_second(1_000_000_000))
    );
    assert_eq!(
        (rate.limits.bytes, rate.limits.packets),
        (Some(1_000_000), Some(500))
    );
    let red = DisciplineSpec::Red {
        min: Bytes::new(30_000),
        max: Bytes::new(90_000),
        probability: 0.1,
        weight: 0.002,
        ecn: true,
    };
    assert_eq!(rate.discipline, red);
    let burst = LossSpec::Burst {
        enter: 0.01,
        leave: 0.5,
        good: 0.0,
        bad: 1.0,
    };
    let periodic = LossSpec::Periodic {
        every: 100,
        offset: 1,
    };
    let listed = LossSpec::Listed(vec![3, 17]);
    assert_eq!(to.loss, [LossSpec::Random(0.1), burst, periodic, listed]);
    assert_eq!(
        (to.duplicate, to.corrupt, to.delay),
        (0.2, 0.3, Duration::from_ms(1))
    );
    let jitter = to.jitter.unwrap();
    assert_eq!(
        (jitter.amount, jitter.correlation),
        (Duration::from_ms(2), 0.5)
    );
    assert!(jitter.reorder && jitter.shape == spec::JitterShape::Normal);
    let coalesce = to.coalesce.unwrap();
    assert_eq!(
        (coalesce.hold, coalesce.packets),
        (Duration::from_us(50), 64)
    );
    assert_eq!(to.policer.unwrap().burst, Bytes::new(20_000));
    assert_eq!(
        to.flow_cap.unwrap().rate,
        Rate::from_bits_per_second(10_000_000)
    );
    let budget = to.packet_budget.unwrap();
    assert_eq!((budget.per_second, budget.queue_packets), (1_000, 1_000));
    let s = Duration::from_s;
    assert_eq!(to.outages.spans, [(s(10), s(12)), (s(20), s(21))]);
    assert_eq!(to.outages.periodic, Some((s(30), s(1))));
    assert_eq!(to.black_hole_above_bytes, Some(1_400));
    let boxes = [
        Middlebox::StripWindowScale,
        Middlebox::SeqCheck,
        Middlebox::MssClamp(1_360),
    ];
    assert_eq!(link.middlebox(true), boxes);
    assert_eq!(link.middlebox(false), []);
    assert_eq!((to.seed, link.backward.seed), (7, 9));
    assert_eq!(link.backward.medium, Medium::Ethernet { gap_bytes: 20 });
    assert_eq!(link.backward.loss, []);
}

#[test]
fn disciplines_have_the_defaults_of_their_rfcs() {
    let spec = |keys: &str| {
        let text = link_of(&format!("rate = \"1Gb/s\"\ndelay = \"10ms\"\n{keys}"));
        good(&text).network.links[0].forward.rate.clone().unwrap()
    };
    let codel = |ecn| spec::CodelSpec {
        target: Duration::from_ms(5),
        interval: Duration::from_ms(100),
        ecn,
    };
    let fq = spec("discipline = \"fq-codel\"");
    let expected = DisciplineSpec::FqCodel {
        codel: codel(true),
        flows: 1_024,
        quantum_bytes: 1_514,
    };
    assert_eq!(fq.discipline, expected);
    assert_eq!((fq.limits.bytes, fq.limits.packets), (None, Some(10_240)));
    let plain = spec("discipline = { codel = {} }");
    assert_eq!(plain.discipline, DisciplineSpec::Codel(codel(false)));
    assert_eq!(plain.limits.packets, Some(1_000));
    let marking = spec("mark_above = \"300kB\"");
    let mark_above = Some(Bytes::new(300_000));
    assert_eq!(marking.discipline, DisciplineSpec::DropTail { mark_above });
    assert_eq!(marking.limits.bytes, Some(2_500_000));
}

#[test]
fn a_limit_in_packets_alone_is_a_queue_of_so_many_full_frames() {
    let path = good(&link_of("rate = \"1Gb/s\"\ndiscipline = \"codel\""));
    assert_eq!(path.forward.queue, Bytes::new(1_538_000));
    assert_eq!(path.forward.queue_packets, Some(1_000));
}

#[test]
fn both_sides_of_the_limits_of_a_direction() {
    let rate = "rate = \"1Gb/s\"\n";
    for (fits, breaks, says) in [
        ("gap = 100000", "gap = 100001", "expected 0 to 100000"),
        ("rate = \"8kb/s\"", "rate = \"7999b/s\"", "expected 8 kb/s"),
        (
            "delay = \"10s\"\nrate = \"8kb/s\"",
            "delay = \"10001ms\"",
            "at most 10 s",
        ),
        (
            "rate = \"1Gb/s\"\nqueue = \"1538B\"",
            "rate = \"1Gb/s\"\nqueue = \"1537B\"",
            "1538 bytes",
        ),
        (
            "black_hole_above = 68",
            "black_hole_above = 67",
            "68 to 65535",
        ),
        (
            "black_hole_above = 65535",
            "black_hole_above = 65536",
            "68 to 65535",
        ),
        (
            "packets_per_second = 1",
            "packets_per_second = 0",
            "expected 1 to",
        ),
        (
            "packets_per_second = 1\npackets_queue = 1",
            "packets_queue = 1",
            "packets_per_second beside it",
        ),
        (
            "policer = { rate = \"1Mb/s\", burst = \"1538B\" }",
            "policer = { rate = \"1Mb/s\", burst = \"1537B\" }",
            "a full frame on the wire",
        ),
        (
            "jitter = { amount = \"1ns\", correlation = 0.99 }",
            "jitter = { amount = \"1ns\", correlation = 1.0 }",
            "0 to below 1",
        ),
        (
            "coalesce = { hold = \"1s\" }",
            "coalesce = { hold = \"1001ms\" }",
            "up to 1 s",
        ),
        (
            "outages = [[\"0s\", \"1s\"], [\"2s\", \"3s\"]]",
            "outages = [[\"0s\", \"2s\"], [\"2s\", \"3s\"]]",
            "in the order of time and apart",
        ),
        (
            "outage_every = [\"2s\", \"1s\"]",
            "outage_every = [\"2s\", \"2s\"]",
            "above 0 and shorter",
        ),
        ("loss = { every = 1 }", "loss = { every = 0 }", "at least 1"),
        (
            "loss = { frames = [1] }",
            "loss = { frames = [0] }",
            "from 1",
        ),
        (
            "loss = { frames = [1, 2] }",
            "loss = { frames = [2, 2] }",
            "rising order",
        ),
        (
            "loss = { every = 3 }",
            "loss = { every = 3, frames = [1] }",
            "expected one of burst",
        ),
        (
            "middlebox = [{ mss-clamp = 88 }]",
            "middlebox = [{ mss-clamp = 87 }]",
            "expected 88 to 65495",
        ),
        (
            "middlebox = [\"strip-sack\"]",
            "middlebox = [\"strip-sak\"]",
            "did you mean 'strip-sack'?",
        ),
        (
            "medium = \"none\"",
            "medium = \"none\"\ngap = 1",
            "has no gap",
        ),
        (
            "trace = \"good.trace\"",
            "trace = \"bad.trace\"",
            "bad.trace, line 2",
        ),
        (
            "trace = \"good.trace\"",
            "trace = \"no.trace\"",
            "cannot read no.trace",
        ),
        ("mtu = 576", "mtu = 575", "expected 576 to 65535"),
    ] {
        good(&link_of(fits));
        let line = 5 + breaks.lines().count();
        refused(&link_of(breaks), line, says);
    }
    for breaks in [
        "queue = \"1MB\"",
        "queue_packets = 1",
        "discipline = \"codel\"",
        "mark_above = \"1MB\"",
    ] {
        refused(&link_of(breaks), 6, "needs a rate that empties it");
    }
    for (breaks, says) in [
        ("trace = \"good.trace\"", "either a rate or a trace"),
        ("queue_packets = 0", "at least 1"),
        ("discipline = \"red\"", "red needs thresholds"),
        ("discipline = \"fifo\"", "expected \"drop-tail\""),
        (
            "discipline = { red = { min = \"2kB\", max = \"2kB\" } }",
            "min < max",
        ),
        (
            "discipline = { codel = { target = \"100ms\" } }",
            "an interval above it",
        ),
        (
            "discipline = { fq-codel = { flows = 0 } }",
            "1 to 65536 flows",
        ),
        (
            "discipline = { codel = { targte = \"1ms\" } }",
            "did you mean 'target'?",
        ),
        (
            "discipline = { codel = {}, fq-codel = {} }",
            "expected one discipline",
        ),
    ] {
        refused(&link_of(&format!("{rate}{breaks}")), 7, says);
    }
    let mark = "discipline = \"codel\"\nmark_above = \"1MB\"";
    refused(
        &link_of(&format!("{rate}{mark}")),
        8,
        "only a drop-tail queue",
    );
}

#[test]
fn a_direction_may_follow_a_trace_where_the_link_has_a_rate() {
    let path = good(&link_of(
        "rate = \"1Mb/s\"\nforward = { trace = \"good.trace\" }",
    ));
    // Three times 1,504 bytes in 2 ms.
    assert_eq!(
        path.forward.rate,
        Some(Rate::from_bits_per_second(18_048_000))
    );
    assert_eq!(
        path.backward.rate,
        Some(Rate::from_bits_per_second(1_000_000))
    );
}

#[test]
fn the_memory_of_a_trace_is_that_of_its_densest_window() {
    let memory = |trace: &str| {
        let files = |_: &Path| Ok(trace.to_owned());
        let text = link_of("forward = { trace = \"t\", queue = \"1538B\" }");
        let path = PathFile::parse_with(Path::new("x.toml"), &text, &files).unwrap();
        path.network.links[0].memory_bytes(true).as_u64() - (4 << 20)
    };
    // 1,000 opportunities at once, every two seconds, and one 7 ms before.
    let dense = "7\n".repeat(1_000) + "2000\n";
    assert_eq!(memory(&dense), (1_001 * 1_504 + 1_538) * 3 / 2);
    // Ten in ten milliseconds, over and over: twenty in twenty, and one at the window's edge.
    let even: String = (1..=10).map(|ms| format!("{ms}\n")).collect();
    assert_eq!(memory(&even), (21 * 1_504 + 1_538) * 3 / 2);
}

#[test]
fn effective_loss_is_what_gets_lost_in_the_long_run() {
    let loss = |keys: &str| good(&link_of(keys)).forward.loss;
    assert_eq!(loss("loss = 0.001"), 0.001);
    assert_eq!(loss("loss = { every = 100 }"), 0.01);
    assert_eq!(loss("loss = [0.5, 0.5]"), 0.75);
    assert_eq!(loss("loss = 0.5\ncorrupt = 0.5"), 0.75);
    assert_eq!(
        loss("loss = { burst = { enter = 0.25, leave = 0.75 } }"),
        0.25
    );
    assert_eq!(loss("loss = { burst = { enter = 0, leave = 0 } }"), 0.0);
    assert_eq!(loss("loss = { frames = [1] }"), 0.0);
}

#[test]
fn the_rate_of_another_medium_is_told_as_that_of_an_ethernet() {
    let rate = |keys: &str| {
        let path = good(&link_of(&format!("rate = \"1Gb/s\"\n{keys}")));
        path.forward.rate.unwrap().as_bits_per_second()
    };
    assert_eq!(rate(""), 1_000_000_000);
    // 1538 bytes of Ethernet are 1538 + 1526 / 13 of the WAN PHY, 1500 without framing, 1546 with a
    // gap of 20.
    assert_eq!(rate("medium = \"wan-phy\""), 1_000_000_000 * 1_538 / 1_655);
    assert_eq!(rate("medium = \"none\""), 1_000_000_000 * 1_538 / 1_500);
    assert_eq!(rate("gap = 20"), 1_000_000_000 * 1_538 / 1_546);
}

#[test]
fn hosts_on_one_segment_share_a_subnet_and_routers_stand_at_its_end() {
    let network = good(CAMPUS).network;
    let hosts: Vec<String> = network
        .hosts
        .iter()
        .map(|h| h.address4.to_string())
        .collect();
    assert_eq!(
        hosts,
        ["198.18.0.1", "198.18.0.2", "198.18.2.1", "198.18.1.1"]
    );
    let ends = |n: usize| -> Vec<String> {
        let own = &network.routers[n].interfaces;
        own.iter()
            .map(|i| format!("{} {}", i.address4, i.address6))
            .collect()
    };
    assert_eq!(
        ends(0),
        [
            "198.18.0.254 fd67:7064::fe",
            "198.18.1.254 fd67:7064:0:1::fe"
        ]
    );
    assert_eq!(
        ends(1),
        [
            "198.18.1.253 fd67:7064:0:1::fd",
            "198.18.2.254 fd67:7064:0:2::fe"
        ]
    );
    assert_eq!(
        network.routers[1].interfaces[0].mac.to_string(),
        "02:67:70:01:00:03"
    );
    // The router's side of a subnet takes what its smallest host takes.
    assert_eq!(network.routers[0].interfaces[0].mtu_bytes, 1_500);
    assert_eq!(
        network.links.iter().map(|l| l.segment).collect::<Vec<_>>(),
        [0, 0, 0, 1, 1, 1, 2]
    );
}

#[test]
fn routes_are_those_of_fewest_links() {
    let network = good(CAMPUS).network;
    // d reaches c by q, which is not its default gateway.
    assert_eq!(
        network.hosts[3].gateway4,
        Some(Ipv4Addr::new(198, 18, 1, 254))
    );
    assert_eq!(
        table(&network, &network.hosts[3].routes),
        "198.18.2.0/24 by d to 198.18.1.253\n\
         fd67:7064:0:2::/64 by d to fd67:7064:0:1::fd\n"
    );
    assert_eq!(walk(&network, "d", "c"), "d q c");
    assert_eq!(walk(&network, "a", "c"), "a up r q c");
    assert_eq!(walk(&network, "c", "a"), "c q r up a");
    assert_eq!(walk(&network, "a", "b"), "a b");
}

#[test]
fn the_path_between_two_hosts_is_what_its_links_make_together() {
    let path = good(CAMPUS);
    assert_eq!(
        (path.near.name.as_str(), path.far.name.as_str()),
        ("a", "d")
    );
    assert_eq!(
        path.forward.rate,
        Some(Rate::from_bits_per_second(100_000_000))
    );
    assert_eq!(path.link, "up");
    assert_eq!(path.forward.delay, Duration::from_ms(3));
    assert_eq!(path.forward.queue, Bytes::new(128 << 10));
    assert_eq!(path.forward.seed, 5, "of the third link");
    assert_eq!(path.mtu_bytes(), 1_500);

    let jumbo = CAMPUS.replace("[hosts.d]", "[hosts.d]\nmtu = 9000");
    let jumbo = jumbo + "[transfer]\nfrom = \"b\"\nto = \"d\"";
    let path = good(&jumbo);
    assert_eq!(path.near.name, "b");
    assert_eq!(
        path.mtu_bytes(),
        1_500,
        "routers send what all on a subnet take"
    );
    let neighbours = good(&CAMPUS.replace("[hosts.a]", "[hosts.a]\nmtu = 9000"));
    assert_eq!(neighbours.network.mtu_bytes(0, 1), 9_000);
}

#[test]
fn tables_of_three_routers_in_a_row() {
    let path = PathFile::read(&paths_folder().join("multi-hop.toml")).unwrap();
    let network = &path.network;
    let tables: Vec<String> = network
        .routers
        .iter()
        .map(|r| format!("{}\n{}", r.name, table(network, &r.routes)))
        .collect();
    let tables: String = tables
        .concat()
        .lines()
        .filter(|l| !l.contains(':'))
        .fold(String::new(), |all, line| all + line + "\n");
    assert_eq!(
        tables,
        "first\n\
         198.18.0.0/24 by near\n\
         198.18.1.0/24 by west\n\
         198.18.2.0/24 by west to 198.18.1.253\n\
         198.18.3.0/24 by west to 198.18.1.253\n\
         second\n\
         198.18.0.0/24 by west to 198.18.1.254\n\
         198.18.1.0/24 by west\n\
         198.18.2.0/24 by east\n\
         198.18.3.0/24 by east to 198.18.2.253\n\
         third\n\
         198.18.0.0/24 by east to 198.18.2.254\n\
         198.18.1.0/24 by east to 198.18.2.254\n\
         198.18.2.0/24 by east\n\
         198.18.3.0/24 by far\n"
    );
    let v6 = table(network, &network.routers[0].routes);
    assert!(
        v6.contains("fd67:7064:0:3::/64 by west to fd67:7064:0:1::fd\n"),
        "{v6}"
    );
    assert_eq!(path.link, "east");
    assert_eq!(path.rtt_configured(), Duration::from_ms(30));
    assert_eq!(
        (network.routers[0].answers, network.routers[1].answers),
        (true, false)
    );
}

#[test]
fn stated_routes_win_and_there_and_back_may_differ() {
    let path = PathFile::read(&paths_folder().join("asymmetric-route.toml")).unwrap();
    assert_eq!(walk(&path.network, "near", "far"), "near up far");
    assert_eq!(walk(&path.network, "far", "near"), "far down near");
    let delays = (path.forward.delay, path.backward.delay);
    assert_eq!(delays, (Duration::from_ms(10), Duration::from_ms(60)));
    assert_eq!(path.link, "up");
    let west = table(&path.network, &path.network.routers[0].routes);
    let first: Vec<&str> = west.lines().take(2).collect();
    assert_eq!(
        first,
        [
            "198.18.3.1 by up to 198.18.1.253",
            "fd67:7064:0:3::1 by up to fd67:7064:0:1::fd"
        ]
    );
}

#[test]
fn routes_that_cannot_be_are_refused() {
    for (routes, line, says) in [
        (
            "[{ to = \"c\", via = \"q\" }]",
            11,
            "no link 'q' at this node",
        ),
        ("[{ to = \"x y\", via = \"r\" }]", 11, "no host 'x y'"),
        (
            "[{ to = \"10.0.0.1/8\", via = \"r\" }]",
            11,
            "write 10.0.0.0/8",
        ),
        (
            "[{ to = \"10.0.0.0/8\", via = \"up\" }]",
            11,
            "no router is behind 'up'",
        ),
        (
            "[{ to = \"c\", via = \"r\", next = \"p\" }]",
            11,
            "no router 'p' on that link",
        ),
        (
            "[{ to = \"c\", via = \"r\", nxt = \"q\" }]",
            11,
            "did you mean 'next'?",
        ),
    ] {
        let text = CAMPUS.replace("[routers.r]", &format!("[routers.r]\nroutes = {routes}"));
        refused(&text, line, says);
    }
    let circle = CAMPUS.replace(
        "[routers.q]",
        "[routers.q]\nroutes = [{ to = \"c\", via = \"q\" }]",
    ) + "[transfer]\nto = \"c\"\n";
    refused(&circle, 1, "go round in a circle");
    let third = "[routers.p]\n[links.p]\nbetween = [\"p\", \"t\"]\n";
    let route = |next: &str| {
        let routes = format!("[routers.r]\nroutes = [{{ to = \"c\", via = \"r\"{next} }}]");
        CAMPUS.replace("[routers.r]", &routes) + third
    };
    refused(&route(""), 11, "several routers are behind 'r'");
    assert_eq!(
        walk(&good(&route(", next = \"q\"")).network, "a", "c"),
        "a up r q c"
    );
}

#[test]
fn nodes_that_do_not_hang_together_are_refused() {
    for (from, to, line, says) in [
        (
            "[switches.t]",
            "[switches.t]\n[hosts.e]",
            10,
            "host 'e' has no link",
        ),
        (
            "[switches.t]",
            "[switches.t]\n[switches.u]",
            10,
            "lead from host 'a' to 'u'",
        ),
        (
            "[switches.t]",
            "[switches.t]\n[switches.a]",
            10,
            "name of another node",
        ),
        (
            "[\"a\", \"s\"]",
            "[\"b\", \"s\"]",
            3,
            "host 'a' has no link",
        ),
        ("[\"a\", \"s\"]", "[\"a\", \"sw\"]", 13, "did you mean 's'?"),
        (
            "[\"q\", \"c\"]",
            "[\"b\", \"c\"]",
            4,
            "host 'b' has 2 links",
        ),
    ] {
        let text = CAMPUS.replacen(from, to, 1);
        assert_ne!(text, CAMPUS, "{from}");
        refused(&text, line, says);
    }
    let ring = "[switches.u]\n[links.su]\nbetween = [\"s\", \"u\"]\n\
                [links.us]\nbetween = [\"u\", \"s\"]\n";
    refused(&format!("{CAMPUS}{ring}"), 33, "joined already");
    // A router between makes no loop.
    let around = "[routers.p]\n[links.sp]\nbetween = [\"s\", \"p\"]\n\
                  [links.pt]\nbetween = [\"p\", \"t\"]\n";
    good(&format!("{CAMPUS}{around}"));
}

#[test]
fn both_sides_of_the_limits_in_number() {
    let star = |hosts: usize| {
        let mut text = "title = \"a star\"\n[switches.hub]\n".to_owned();
        for n in 0..hosts {
            text += &format!("[hosts.h{n}]\n[links.l{n}]\nbetween = [\"h{n}\", \"hub\"]\n");
        }
        text
    };
    let largest = good(&star(1_024));
    assert_eq!(
        largest.memory_bytes(),
        Bytes::new(1_024 << 20),
        "a megabyte a link"
    );
    let last = &largest.network.hosts[1_023];
    assert_eq!(
        (last.address4, last.prefix4),
        (Ipv4Addr::new(198, 18, 4, 0), 21)
    );
    refused(
        &star(1_025),
        1,
        "hosts: 1025 of them; expected at most 1024",
    );

    let rules = |n: usize| {
        let rules = "[[switches.hub.rules]]\ndrop = true\n".repeat(n);
        format!("{}{rules}", star(2))
    };
    assert_eq!(good(&rules(1_024)).network.switches[0].rules.len(), 1_024);
    refused(&rules(1_025), 1, "rules: 1025 of them");

    let row = |routers: usize| {
        let mut text = "title = \"x\"\n[hosts.a]\n[hosts.b]\n".to_owned();
        for n in 0..routers {
            text += &format!("[routers.r{n}]\n");
        }
        for n in 1..routers {
            text += &format!("[links.l{n}]\nbetween = [\"r{}\", \"r{n}\"]\n", n - 1);
        }
        let last = routers - 1;
        text + &format!(
            "[links.a]\nbetween = [\"a\", \"r0\"]\n[links.b]\nbetween = [\"r{last}\", \"b\"]\n"
        )
    };
    assert_eq!(good(&row(256)).network.walk(0, 1).unwrap().len(), 257);
    refused(&row(257), 1, "routers: 257 of them");
}

#[test]
fn stated_addresses_are_kept_and_their_subnet_is_the_segments() {
    let path = PathFile::read(&paths_folder().join("dual-stack.toml")).unwrap();
    let near = &path.near;
    assert_eq!(
        (near.address4, near.prefix4),
        (Ipv4Addr::new(10, 1, 0, 10), 24)
    );
    assert_eq!(near.gateway4, Some(Ipv4Addr::new(10, 1, 0, 1)));
    assert_eq!(near.gateway6, Some("fd00:1::1".parse().unwrap()));
    assert_eq!(path.network.routers[0].rules[0].in_link, Some(3));

    let with = |a: &str, b: &str| {
        let a = format!("[hosts.a]\naddresses = [{a}]");
        let b = format!("[hosts.b]\naddresses = [{b}]");
        CAMPUS.replace("[hosts.a]", &a).replace("[hosts.b]", &b)
    };
    let partly = good(&with("\"198.18.0.2/29\"", ""));
    let addresses: Vec<String> = partly
        .network
        .hosts
        .iter()
        .map(|h| h.address4.to_string())
        .collect();
    assert_eq!(
        addresses[..2],
        ["198.18.0.2", "198.18.0.1"],
        "the next free one"
    );
    assert_eq!(
        addresses[3], "198.18.1.1",
        "no other segment has a part of the block"
    );
    for (a, b, line, says) in [
        ("\"10.0.0.0/24\"", "", 4, "expected the address of a host"),
        ("\"10.0.0.255/24\"", "", 4, "expected the address of a host"),
        ("\"10.0.0.1/31\"", "", 4, "expected the address of a host"),
        ("\"10.0.0.1\"", "", 4, "expected the address of a host"),
        ("\"224.0.0.1/24\"", "", 4, "expected the address of a host"),
        ("\"fd00::1/127\"", "", 4, "expected the address of a host"),
        (
            "\"10.0.0.1/24\", \"10.0.0.2/24\"",
            "",
            4,
            "one of each IP version",
        ),
        (
            "\"10.0.0.1/24\"",
            "\"10.0.0.1/24\"",
            6,
            "10.0.0.1 is given twice",
        ),
        (
            "\"10.0.0.1/24\"",
            "\"10.0.1.1/24\"",
            6,
            "is not in 10.0.0.0/24",
        ),
    ] {
        refused(&with(a, b), line, says);
    }
    let d =
        with("\"10.0.0.1/8\"", "").replace("[hosts.d]", "[hosts.d]\naddresses = [\"10.9.0.1/24\"]");
    refused(&d, 10, "10.9.0.0/24 overlaps 10.0.0.0/8");
    let narrow = with("\"10.0.0.1/30\"", "") + "[hosts.e]\n[links.e]\nbetween = [\"e\", \"s\"]\n";
    refused(&narrow, 1, "10.0.0.0/30 has no room");
}

#[test]
fn rules_say_what_they_match_and_do() {
    let rules =
        |rules: &str| CAMPUS.replace("[switches.s]", &format!("[switches.s]\nrules = [{rules}]"));
    let network = good(&rules(
        r#"
{ in = "a", protocol = "tcp", dst_port = "1000-2000", flags = "syn+!ack", every = 3, drop = true },
{ src = "10.0.0.0/8", dst = "10.1.2.3", protocol = 17, src_port = 53, dscp = 46, nth = 2, to = ["up", "b"] },
{ src_mac = "02:00:00:00:00:01", vlan = 7, mirror = "b" },
{ rewrite = { dst = "fd00::1", dst_port = 80, ttl = 9 } }"#,
    ))
    .network;
    let [first, second, third, fourth] = network.switches[0].rules.as_slice() else {
        panic!("four rules");
    };
    assert_eq!(
        (first.in_link, first.every, first.nth),
        (Some(0), Some(3), None)
    );
    assert_eq!(first.matches.protocol, Some(6));
    assert_eq!(first.matches.dst_ports, Some(1000..=2000));
    let flags = first.matches.tcp_flags.unwrap();
    assert_eq!((flags.mask, flags.value), (0x12, 0x02));
    assert_eq!(first.action, ActionSpec::Drop);
    assert_eq!(second.matches.src_ports, Some(53..=53));
    assert_eq!(second.matches.dst.unwrap().to_string(), "10.1.2.3");
    assert_eq!(second.action, ActionSpec::To(vec![2, 1]));
    assert_eq!(third.action, ActionSpec::Mirror(1));
    let rewrite = RewriteSpec {
        dst: Some("fd00::1".parse().unwrap()),
        dst_port: Some(80),
        ttl: Some(9),
        ..RewriteSpec::default()
    };
    assert_eq!(fourth.action, ActionSpec::Rewrite(rewrite));

    for (rule, says) in [
        ("{ }", "a rule does one thing"),
        ("{ drop = true, mirror = \"b\" }", "a rule does one thing"),
        ("{ drop = false }", "expected true"),
        ("{ to = [] }", "at least one link"),
        ("{ to = [\"b\", \"b\"] }", "'b' is there twice"),
        ("{ to = [\"c\"] }", "no link 'c' at this node"),
        ("{ in = \"u\", drop = true }", "did you mean"),
        ("{ protocol = 256, drop = true }", "a number up to 255"),
        (
            "{ protocol = \"icmp\", src_port = 1, drop = true }",
            "only tcp and udp",
        ),
        (
            "{ protocol = \"udp\", flags = \"syn\", drop = true }",
            "only tcp has them",
        ),
        ("{ dst_port = \"2-1\", drop = true }", "a range such as"),
        (
            "{ dst_port = 65536, drop = true }",
            "expected one such as 80",
        ),
        ("{ flags = \"syn+syn\", drop = true }", "each once"),
        ("{ flags = \"sin\", drop = true }", "each once"),
        ("{ dscp = 64, drop = true }", "expected 0 to 63"),
        ("{ vlan = 4096, drop = true }", "expected 0 to 4095"),
        ("{ nth = 0, drop = true }", "at least 1"),
        ("{ nth = 1, every = 1, drop = true }", "either nth or every"),
        (
            "{ src = \"10.0.0.0/8\", dst = \"fd00::/8\", drop = true }",
            "both IPv4 or both IPv6",
        ),
        ("{ src = \"10.0.0.1/8\", drop = true }", "write 10.0.0.0/8"),
        ("{ src_mac = \"2:0\", drop = true }", "02:00:00:00:00:01"),
        ("{ rewrite = {} }", "at least one field"),
        ("{ rewrite = { ttl = 0 } }", "at least 1"),
        (
            "{ rewrite = { src = \"10.0.0.0/8\" } }",
            "an IPv4 or IPv6 address",
        ),
    ] {
        refused(&rules(&format!("\n{rule}")), 10, says);
    }
}

#[test]
fn a_schedule_is_sorted_and_its_peaks_are_paid_for_in_memory() {
    let link = |schedule: &str| link_of(&format!("rate = \"10Mb/s\"\n{schedule}"));
    let path = good(&link(
        r#"[[schedule]]
at = "20s"
link = "wan"
rate = "1Gb/s"
delay = "50ms"
[[schedule]]
at = "10s"
link = "wan"
direction = "backward"
up = false
loss = 0.5
queue = "2MB""#,
    ));
    let limits = link::QueueLimits {
        bytes: Some(2_000_000),
        packets: None,
    };
    let entries: Vec<(u64, bool, bool, Change)> = path
        .network
        .schedule
        .iter()
        .map(|e| {
            (
                e.at.as_ns() / 1_000_000_000,
                e.forward,
                e.backward,
                e.change,
            )
        })
        .collect();
    let rate = Change::Rate(Rate::from_bits_per_second(1_000_000_000));
    let delay = Change::Delay(Duration::from_ms(50));
    assert_eq!(
        entries,
        [
            (10, false, true, Change::Limits(limits)),
            (10, false, true, Change::Loss(0.5)),
            (10, false, true, Change::Up(false)),
            (20, true, false, rate),
            (20, true, false, delay),
            (20, false, true, rate),
            (20, false, true, delay),
        ]
    );
    let own = &path.network.links[0];
    assert_eq!(
        own.backward.loss,
        [LossSpec::Random(0.0)],
        "a stage that can change"
    );
    assert_eq!(own.forward.loss, []);
    // 1 Gb/s for 50 + 20 ms and the queue, half as much again.
    let memory = |queue: u64| Bytes::new((8_750_000 + queue) * 3 / 2 + (4 << 20));
    assert_eq!(own.forward_memory, memory(131_072));
    assert_eq!(own.backward_memory, memory(2_000_000));
    assert_eq!(
        path.forward.delay,
        Duration::ZERO,
        "the path is as it begins"
    );

    for (change, line, says) in [
        ("link = \"wan\"", 7, "expected what changes"),
        ("link = \"won\"\nup = true", 9, "did you mean 'wan'?"),
        ("link = \"wan\"\nloss = 2", 10, "a share from 0 to 1"),
        ("link = \"wan\"\nqueue = \"1537B\"", 10, "none would fit"),
        (
            "link = \"wan\"\ndirection = \"up\"\nup = true",
            10,
            "forward, backward",
        ),
    ] {
        let text = link(&format!("[[schedule]]\nat = \"1s\"\n{change}"));
        refused(&text, line, says);
    }
    let late = "[[schedule]]\nat = \"86401s\"\nlink = \"wan\"\nup = true";
    refused(&link(late), 8, "at most 86400 s");
    good(&link(&late.replace("86401", "86400")));
    let no_rate = "[[schedule]]\nat = \"1s\"\nlink = \"wan\"\nrate = \"1Mb/s\"";
    refused(&link_of(no_rate), 9, "none that could change");
}

#[test]
fn an_interface_of_the_machine_takes_a_hosts_place() {
    let with = |keys: &str| CAMPUS.replace("[hosts.d]", &format!("[hosts.d]\n{keys}"));
    let path = good(&with("interface = \"eth1\""));
    assert_eq!(path.network.hosts[3].interface.as_deref(), Some("eth1"));
    assert_eq!(
        path.far.name, "c",
        "a measurement is between hosts of the lab"
    );
    for (keys, line, says) in [
        ("interface = \"eth/1\"", 8, "such as eth1"),
        ("interface = \"0123456789abcdef\"", 8, "such as eth1"),
        (
            "interface = \"eth1\"\noffloads = false",
            8,
            "mtu and addresses alone",
        ),
    ] {
        refused(&with(keys), line, says);
    }
    let twice =
        with("interface = \"eth1\"").replace("[hosts.c]", "[hosts.c]\ninterface = \"eth1\"");
    refused(&twice, 9, "another host has it");
    let measured = with("interface = \"eth1\"") + "[transfer]\nto = \"d\"\n";
    refused(&measured, 31, "between hosts of the lab");
}

#[test]
fn a_measurement_is_between_the_hosts_that_the_file_names() {
    let ends = |transfer: &str| {
        let path = good(&format!("{CAMPUS}[transfer]\n{transfer}\n"));
        format!("{} {}", path.near.name, path.far.name)
    };
    assert_eq!(ends("from = \"c\""), "c d");
    assert_eq!(ends("from = \"d\""), "d a");
    assert_eq!(ends("to = \"a\""), "d a");
    assert_eq!(ends("from = \"b\"\nto = \"c\""), "b c");
    let refuse = |transfer: &str, says: &str| {
        refused(
            &format!("{CAMPUS}[transfer]\nfrom = \"a\"\n{transfer}"),
            31,
            says,
        );
    };
    refuse("to = \"a\"", "another host than from");
    refuse("to = \"s\"", "no host 's'");
    let named = CAMPUS
        .replace("hosts.b", "hosts.near")
        .replace("\"b\"", "\"near\"");
    let named = named
        .replace("hosts.c", "hosts.far")
        .replace("\"c\"]", "\"far\"]");
    let path = good(&named);
    assert_eq!(
        (path.near.name.as_str(), path.far.name.as_str()),
        ("near", "far")
    );
}

#[test]
fn every_path_of_the_project_is_sound_and_in_the_readme() {
    let readme = std::fs::read_to_string(paths_folder().join("README.md")).unwrap();
    let mut paths = 0;
    for entry in std::fs::read_dir(paths_folder()).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        let path = PathFile::read(&file).unwrap_or_else(|e| panic!("{e}"));
        assert!(
            path.memory_bytes() < Bytes::new(1 << 30),
            "{}",
            file.display()
        );
        let name = file.file_stem().unwrap().to_str().unwrap();
        assert!(
            readme.contains(&format!("| `{name}` |")),
            "{name} is not in the README"
        );
        paths += 1;
    }
    assert_eq!(
        readme.matches("\n| `").count(),
        readme_keys(&readme) + paths
    );
}

#[test]
fn mutilated_files_are_refused_with_a_line_or_stay_within_bounds() {
    let mut rng = units::Rng::new(11);
    let mut below = |n: usize| usize::try_from(rng.next_u64() % n as u64).unwrap();
    let mut texts = vec![GOOD.to_owned(), CAMPUS.to_owned()];
    for name in [
        "dual-stack",
        "asymmetric-route",
        "bursty-loss",
        "two-into-one",
    ] {
        let file = paths_folder().join(format!("{name}.toml"));
        texts.push(std::fs::read_to_string(file).unwrap());
    }
    let (mut kept, mut refused) = (0, 0);
    for round in 0..3_000 {
        let mut bytes = texts[round % texts.len()].clone().into_bytes();
        let other = texts[below(texts.len())].as_bytes();
        for _ in 0..1 + below(3) {
            let at = below(bytes.len());
            match below(3) {
                0 => bytes[at] = b"0129az\"[]{}=.,\n-"[below(16)],
                1 => drop(bytes.drain(at..(at + 1 + below(30)).min(bytes.len()))),
                _ => {
                    let from = below(other.len());
                    let line = other[from..].split_inclusive(|&b| b == b'\n').next();
                    bytes.splice(at..at, line.unwrap_or_default().iter().copied());
                }
            }
        }
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        match parse(&text) {
            Ok(path) => {
                kept += 1;
                assert!(path.memory_bytes() <= MEMORY_MAX);
                let _ = path.mtu_bytes();
            }
            Err(PathError::Refused { line, .. }) => {
                refused += 1;
                assert!(line <= text.lines().count().max(1) + 1, "{text}");
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(kept > 100 && refused > 100, "{kept} {refused}");
}

/// Rows of the README's tables of keys, which stand above those of the paths.
fn readme_keys(readme: &str) -> usize {
    let (keys, _) = readme.split_once("## Built-in paths").unwrap();
    keys.matches("\n| `").count()
}

fn paths_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../paths")
}

/// One route a line: block, link, next hop.
fn table(network: &Network, routes: &[Route]) -> String {
    let line = |r: &Route| {
        let via = r
            .via
            .map_or_else(String::new, |v| format!(" to {}", v.address));
        format!("{} by {}{via}\n", r.to, network.links[r.link].name)
    };
    routes.iter().map(line).collect()
}

/// The links between two hosts by name.
#[track_caller]
fn walk(network: &Network, from: &str, to: &str) -> String {
    let host = |name: &str| network.hosts.iter().position(|h| h.name == name).unwrap();
    let hops = network.walk(host(from), host(to)).unwrap();
    let mut node = Node::Host(host(from));
    for hop in &hops {
        let [a, b] = network.links[hop.link].between;
        let (begin, end) = if hop.forward { (a, b) } else { (b, a) };
        assert_eq!(begin, node, "each link begins where the last one ended");
        node = end;
    }
    let names: Vec<&str> = hops
        .iter()
        .map(|h| network.links[h.link].name.as_str())
        .collect();
    names.join(" ")
}
