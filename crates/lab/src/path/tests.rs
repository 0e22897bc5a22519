mod network;

use super::*;
use link::Change;
use link::spec::{DisciplineSpec, Duplex, LossSpec, Medium, ServerSpec};

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
        (
            "loss = 0.25",
            "loss = \"100.1%\"",
            18,
            "'100.1%' is above 100 %; expected a share from 0 to 1, or a percentage",
        ),
        (
            "loss = 0.25",
            "loss = \"0.01\"",
            18,
            "'0.01' has no percent sign",
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

/// A switch with these keys and a link from it with those.
fn switch_of(keys: &str, link: &str) -> String {
    format!(
        "title = \"x\"\n[hosts.a]\n[hosts.b]\n[switches.sw]\n{keys}\n[links.a]\nbetween = [\"a\", \"sw\"]\n\
         [links.b]\nbetween = [\"sw\", \"b\"]\n{link}\n"
    )
}

#[test]
fn queues_of_a_switch_share_a_buffer_where_the_links_that_leave_it_have_rates() {
    let path = good(&switch_of("buffer = \"1MB\"", "rate = \"1Gb/s\""));
    let network = &path.network;
    let buffer = network.switches[0].buffer.unwrap();
    assert_eq!(buffer.bytes, Bytes::new(1_000_000));
    assert_eq!(Some(buffer.alpha), link::Alpha::new(1.0));
    let limit = |forward| {
        network.links[1]
            .direction(forward)
            .rate
            .as_ref()
            .unwrap()
            .limits
            .bytes
    };
    assert_eq!(limit(true), Some(501_538), "half and a frame");
    assert_eq!(limit(false), Some(131_072), "towards the switch, its own");
    let shares = |link, forward| network.buffer_of(link, forward);
    assert_eq!(
        (shares(0, false), shares(1, true), shares(1, false)),
        (None, Some(0), None)
    );
    let own = good(&switch_of(
        "buffer = \"1MB\"\nbuffer_alpha = 8",
        "rate = \"1Gb/s\"\nqueue = \"50kB\"",
    ));
    let rate = own.network.links[1].forward.rate.as_ref().unwrap();
    assert_eq!(rate.limits.bytes, Some(50_000), "both limits hold");
    assert!(
        good(&switch_of("", "rate = \"1Gb/s\"")).network.switches[0]
            .buffer
            .is_none()
    );
}

#[test]
fn a_shared_buffer_that_cannot_be_is_refused() {
    let rated = "rate = \"1Gb/s\"";
    for (keys, link, line, says) in [
        ("buffer = \"1MB\"", "", 5, "no link that leaves"),
        (
            "buffer = \"1537B\"\nbuffer_alpha = 8.0",
            rated,
            5,
            "none would fit",
        ),
        (
            "buffer = \"3kB\"\nbuffer_alpha = 0.5",
            rated,
            5,
            "none would fit",
        ),
        ("buffer = \"2GB\"", rated, 5, "at most"),
        ("buffer_alpha = 1.0", rated, 5, "no buffer"),
        ("buffer = \"1MB\"\nbuffer_alpha = 0.0", rated, 6, "1/1024"),
        ("buffer = \"1MB\"\nbuffer_alpha = nan", rated, 6, "1/1024"),
        (
            "buffer = \"1MB\"",
            "rate = \"1Gb/s\"\ndiscipline = \"codel\"",
            8,
            "drop-tail",
        ),
        (
            "buffer = \"1MB\"",
            "rate = \"1Gb/s\"\npackets_per_second = 10",
            8,
            "packets_per_second",
        ),
        (
            "buffer = \"1MB\"",
            "rate = \"1Gb/s\"\nduplex = \"half\"",
            8,
            "full duplex",
        ),
        (
            "buffer = \"1MB\"",
            "rate = \"1Gb/s\"\n[[schedule]]\nat = \"1s\"\nlink = \"b\"\nrate = \"2Gb/s\"",
            11,
            "shares",
        ),
    ] {
        refused(&switch_of(keys, link), line, says);
    }
    good(&switch_of("buffer = \"1538B\"", rated));
    let later = "rate = \"1Gb/s\"\n[[schedule]]\nat = \"1s\"\nlink = \"b\"\ndelay = \"2ms\"";
    good(&switch_of("buffer = \"1MB\"", later));
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

/// The path with these keys at its near host.
fn with_costs(keys: &str) -> String {
    link_of("").replacen("[hosts.near]", &format!("[hosts.near]\n{keys}"), 1)
}

#[test]
fn a_host_declares_what_its_writes_cost() {
    let none = good(&with_costs("")).near.costs;
    assert_eq!(none, HostCosts::default());
    let keys = "write_cost = \"5.8us\"\npacket_cost = \"29us\"\ncopy_rate = \"250MB/s\"\n\
                page_cost = \"49us\"\npage = \"8KiB\"";
    let costs = HostCosts {
        write: Duration::from_ns(5_800),
        packet: Duration::from_us(29),
        copy_rate: Some(Rate::from_bits_per_second(2_000_000_000)),
        page: Duration::from_us(49),
        page_size: Bytes::new(8192),
    };
    let path = good(&with_costs(keys));
    assert_eq!(
        (path.near.costs, path.far.costs),
        (costs, HostCosts::default())
    );
}

#[test]
fn both_sides_of_the_limits_of_costs() {
    for (key, rest, lowest, highest, below, above) in [
        ("write_cost", "", "1ns", "100ms", "0ns", "100000001ns"),
        ("packet_cost", "", "1ns", "100ms", "0ns", "100000001ns"),
        ("copy_rate", "", "8kb/s", "1Tb/s", "7999b/s", "1001Gb/s"),
        (
            "page_cost",
            "page = \"4KiB\"\n",
            "1ns",
            "100ms",
            "0ns",
            "100000001ns",
        ),
        (
            "page",
            "page_cost = \"1us\"\n",
            "512B",
            "1GiB",
            "511B",
            "1073741825B",
        ),
    ] {
        let line = if rest.is_empty() { 3 } else { 4 };
        for value in [lowest, highest] {
            good(&with_costs(&format!("{rest}{key} = \"{value}\"")));
        }
        for value in [below, above] {
            let text = with_costs(&format!("{rest}{key} = \"{value}\""));
            refused(&text, line, key);
            refused(&text, line, "expected");
        }
    }
    refused(
        &with_costs("page_cost = \"1us\""),
        3,
        "expected the page's size as well",
    );
    refused(
        &with_costs("page = \"4KiB\""),
        3,
        "expected what a page costs as well",
    );
    refused(&with_costs("write_cost = 5"), 3, "expected a string");
    refused(&with_costs("write_cost = \"5\""), 3, "has no unit");
    refused(
        &with_costs("write_costs = \"5us\""),
        3,
        "did you mean 'write_cost'?",
    );
}

#[test]
fn an_interface_of_the_machine_has_no_costs() {
    let keys = |cost: &str| {
        let hosts = "[hosts.a]\n[hosts.b]\n[hosts.c]\ninterface = \"eth1\"\n";
        let link = |n: &str| format!("[links.{n}]\nbetween = [\"{n}\", \"s\"]\n");
        let links = [link("a"), link("b"), link("c")].concat();
        format!("title = \"x\"\n{hosts}{cost}\n[switches.s]\n{links}")
    };
    good(&keys(""));
    for cost in [
        "write_cost = \"1us\"",
        "packet_cost = \"1us\"",
        "copy_rate = \"1Gb/s\"",
        "page_cost = \"1us\"\npage = \"4KiB\"",
    ] {
        refused(&keys(cost), 5, "mtu and addresses alone");
    }
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
harmonizer = { shuffle = { hold = "5ms", memory = "2MB", groups = [{ src = "10.0.0.0/24" }] } }
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
    let shuffle = spec::HarmonizerSpec {
        mode: spec::HarmonizerMode::Shuffle {
            hold: Duration::from_ms(5),
        },
        memory: Bytes::new(2_000_000),
    };
    assert_eq!(to.harmonizer, Some(shuffle));
    let group = link.grouping(true).rules[0];
    assert_eq!((group.src, group.dst), ("10.0.0.0/24".parse().ok(), None));
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
            "harmonizer = { shuffle = { hold = \"1us\" } }",
            "harmonizer = { shuffle = { hold = \"999ns\" } }",
            "expected 1 us to 1 s",
        ),
        (
            "harmonizer = { shuffle = { memory = \"1538B\" } }",
            "harmonizer = { shuffle = { memory = \"1537B\" } }",
            "a full frame",
        ),
        (
            "harmonizer = { lengthen = { rate = \"8kb/s\" } }",
            "harmonizer = \"lengthen\"",
            "needs the bottleneck's rate",
        ),
        (
            "rate = \"1Gb/s\"\nharmonizer = \"lengthen\"",
            "rate = \"1Gb/s\"\nharmonizer = \"longer\"",
            "expected \"shuffle\"",
        ),
        (
            "rate = \"1Gb/s\"\nharmonizer = { lengthen = { delay_max = \"10s\" } }",
            "rate = \"1Gb/s\"\nharmonizer = { lengthen = { round_trip = \"999us\" } }",
            "expected 1 ms to 10 s",
        ),
        (
            "harmonizer = { shuffle = { groups = [{ dst = \"10.0.0.1\" }] } }",
            "harmonizer = { shuffle = { groups = [{}] } }",
            "src, dst or both",
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
    assert_eq!(memory(&dense), (1_001 * 1_504 + 1_538) * 3 / 2 + 1_538);
    // Ten in ten milliseconds, over and over: twenty in twenty, and one at the window's edge.
    let even: String = (1..=10).map(|ms| format!("{ms}\n")).collect();
    assert_eq!(memory(&even), (21 * 1_504 + 1_538) * 3 / 2 + 1_538);
}

#[test]
fn a_percentage_is_the_share_that_it_stands_for_wherever_one_is_taken() {
    let as_shares = r#"loss = [0.007, { burst = { enter = 0.01, leave = 1, good = 0, bad = 0.5 } }]
duplicate = 0.001
corrupt = 1
[[schedule]]
at = "1s"
link = "wan"
loss = 0.02
"#;
    let as_percentages = r#"loss = ["0.7%", { burst = { enter = "1%", leave = "100%", good = "0%", bad = "50%" } }]
duplicate = "0.1%"
corrupt = "100%"
[[schedule]]
at = "1s"
link = "wan"
loss = "2 %"
"#;
    assert_eq!(
        good(&link_of(as_percentages)).network,
        good(&link_of(as_shares)).network
    );
    assert_eq!(good(&link_of("loss = \"1%\"")).forward.loss, 0.01);
    assert_eq!(good(&link_of("loss = \"100%\"")).forward.loss, 1.0);
}

#[test]
fn effective_loss_is_what_gets_lost_in_the_long_run() {
    let loss = |keys: &str| good(&link_of(keys)).forward.loss;
    assert_eq!(loss("loss = 0.001"), 0.001);
    assert_eq!(loss("loss = { every = 100 }"), 0.01);
    assert_eq!(loss("loss = [0.5, 0.5]"), 0.75);
    assert_eq!(loss("loss = [\"50%\", 0.5]"), 0.75);
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
fn every_path_of_the_project_is_sound_and_in_the_readme() {
    let readme = std::fs::read_to_string(paths_folder().join("README.md")).unwrap();
    let mut paths = 0;
    for entry in std::fs::read_dir(paths_folder()).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        let path = PathFile::read(&file).unwrap_or_else(|e| panic!("{e}"));
        let name = file.file_stem().unwrap().to_str().unwrap();
        let row = readme
            .lines()
            .find(|l| l.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("{name} is not in the README"));
        // Frames of the others lie in this machine's memory; what takes more of it than most have free says so.
        let told = ["for virtual time", "GB of memory"];
        assert!(
            path.memory_bytes() < Bytes::new(1 << 30) || told.iter().any(|t| row.contains(t)),
            "{name}: {}",
            path.memory_bytes()
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

/// A link of two hosts with these keys from line 6 on.
fn two_way(keys: &str) -> String {
    format!("title = \"x\"\n[hosts.a]\n[hosts.b]\n[links.l]\nbetween = [\"a\", \"b\"]\n{keys}\n")
}

#[test]
fn half_duplex_is_told_to_both_directions_and_a_mismatch_to_each() {
    let shared = |keys: &str| {
        let link = good(&two_way(keys)).network.links.remove(0);
        [link.forward, link.backward].map(|d| d.shared.map(|s| (s.duplex, s.cable)))
    };
    let (half, full) = (Duplex::Half, Duplex::Full);
    let us = Duration::from_us;
    let default = Duration::from_ns(500);
    assert_eq!(
        shared("rate = \"100Mb/s\"\nduplex = \"half\""),
        [Some((half, default)); 2]
    );
    assert_eq!(
        shared("rate = \"100Mb/s\"\ncable = \"2us\"\nbackward = { duplex = \"half\" }"),
        [Some((full, us(2))), Some((half, us(2)))]
    );
    assert_eq!(
        shared("rate = \"1Gb/s\"\nduplex = \"half\"\nforward = { duplex = \"full\" }"),
        [Some((full, default)), Some((half, default))]
    );
    assert_eq!(shared("duplex = \"full\""), [None; 2]);
}

#[test]
fn half_duplex_needs_one_rate_on_an_ethernet_and_a_cable_within_the_slot() {
    let fits = "rate = \"100Mb/s\"\nduplex = \"half\"\ncable = \"2400ns\"";
    good(&two_way(fits));
    let schedule = "[[schedule]]\nat = \"1s\"\nlink = \"l\"\n";
    good(&two_way(&format!("{fits}\n{schedule}delay = \"1ms\"")));
    for (from, to, line, says) in [
        ("2400ns", "2401ns", 8, "expected 1 ns to 2.4 us"),
        ("2400ns", "0ns", 8, "expected 1 ns to 2.4 us"),
        ("cable =", "cabel =", 8, "did you mean 'cable'?"),
        (
            "\"half\"",
            "\"haf\"",
            7,
            "unknown value 'haf'; did you mean 'half'?",
        ),
        ("duplex =", "duplx =", 7, "did you mean 'duplex'?"),
        ("\"half\"", "\"full\"", 8, "expected duplex = \"half\""),
        ("100Mb/s", "1001Mb/s", 7, "one rate of at most 1 Gb/s"),
        ("rate = \"100Mb/s\"", "", 7, "expected a rate"),
        (
            "rate = \"100Mb/s\"",
            "trace = \"good.trace\"",
            7,
            "expected a rate",
        ),
        (
            "rate = \"100Mb/s\"",
            "backward.rate = \"10Mb/s\"\nforward.rate = \"100Mb/s\"",
            8,
            "for both directions, found 100 Mb/s and 10 Mb/s",
        ),
        (
            "duplex = \"half\"",
            "duplex = \"half\"\nmedium = \"none\"",
            7,
            "expected medium \"ethernet\"",
        ),
    ] {
        let broken = fits.replace(from, to);
        refused(&two_way(&broken), line, says);
    }
    let changed = format!("{fits}\n{schedule}rate = \"10Mb/s\"");
    refused(
        &two_way(&changed),
        12,
        "both ends of half duplex keep theirs",
    );
}

#[test]
fn a_harmonizer_takes_its_times_from_the_path() {
    for (delay, hold) in [("10us", 1_000), ("150ms", 9_375), ("1s", 20_000)] {
        let link = |harmonizer| {
            let keys = format!("rate = \"1Gb/s\"\ndelay = \"{delay}\"\n{harmonizer}");
            let path = good(&link_of(&keys));
            path.network.links[0].forward.harmonizer.unwrap().mode
        };
        let hold = Duration::from_us(hold);
        assert_eq!(
            link("harmonizer = \"shuffle\""),
            spec::HarmonizerMode::Shuffle { hold }
        );
        let spec::HarmonizerMode::Lengthen {
            round_trip,
            delay_max,
            rate,
        } = link("harmonizer = \"lengthen\"")
        else {
            panic!("asked for lengthening");
        };
        let of_path = delay.parse::<Duration>().unwrap().saturating_mul(2);
        assert_eq!(round_trip, of_path.max(Duration::from_ms(1)));
        assert_eq!(
            (delay_max, rate.as_bits_per_second()),
            (round_trip, 1_000_000_000)
        );
    }
}
