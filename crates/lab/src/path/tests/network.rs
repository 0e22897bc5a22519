//! Nodes, addresses, routes, rules and what changes.

use super::*;

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
    // 1 Gb/s for 50 + 20 ms and the queue, half as much again, and the queue once more.
    let memory = |queue: u64| Bytes::new((8_750_000 + queue) * 3 / 2 + queue + (4 << 20));
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
