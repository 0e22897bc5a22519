use super::*;

const FILE: &str = r#"title = "Two hosts"
max_op_vls = 4

[host_kinds.hca]
speed = "ddr"
buffer = "72KiB"

[switch_kinds.chip]
speed = "ddr"
ports = 24
buffer = "36KiB"
latency = "200ns"

[cables.cx4]
kind = "copper"
length = "8m"

[cables.long]
kind = "fibre"
length = "100m"
rated = "sdr"

[hosts]
a = "hca"
b = "hca"

[switches]
sw = "chip"

[links.a-sw]
between = ["a", "sw"]
cable = "cx4"

[links.b-sw]
between = ["b", "sw"]
cable = "cx4"

[traffic]
from = "a"
to = "b"
transports = ["rc", "ud"]

[[cases]]
name = "short"

[[cases]]
name = "long"
max_op_vls = 1
cables = { b-sw = "long" }
"#;

fn parse(text: &str) -> Result<FabricFile, FileError> {
    FabricFile::parse(Path::new("x.toml"), text)
}

#[test]
fn a_file_is_its_cases() {
    let file = parse(FILE).unwrap();
    let [short, long] = &file.cases[..] else {
        panic!("{:?}", file.cases)
    };
    assert_eq!(
        (short.spec.operational_lanes, long.spec.operational_lanes),
        (8, 1)
    );
    assert_eq!(short.names.cables, ["cx4", "cx4"]);
    assert_eq!(long.names.cables, ["cx4", "long"]);
    assert_eq!(long.spec.links[1].cable.delay_ps(), 494_300);
    assert_eq!(short.traffic.sizes.first(), Some(&2));
    assert_eq!(short.traffic.sizes.last(), Some(&(1 << 23)));
    assert_eq!(short.traffic.sizes_of(Transport::Ud).last(), Some(2048));
}

#[test]
fn ethernets_are_called_by_what_they_carry() {
    use fabric::link::Speed;
    let port = |speed: &str| {
        let text = FILE.replace("speed = \"ddr\"", speed);
        parse(&text).map(|file| {
            let port = file.cases[0].spec.hosts[0].port;
            (port.speed, port.width)
        })
    };
    for (name, found) in [
        ("1ge", (Speed::Ge1, 1)),
        ("10ge", (Speed::Ge10, 1)),
        ("cx4", (Speed::Cx4, 4)),
        ("40ge", (Speed::Ge10, 4)),
        ("100ge", (Speed::Edr, 4)),
        ("800ge", (Speed::Ndr, 8)),
        ("ddr", (Speed::Ddr, 4)),
    ] {
        let written = format!("speed = \"{name}\"");
        assert_eq!(port(&written).unwrap(), found, "{name}");
    }
    // Lanes of one name each, side by side.
    assert_eq!(
        port("speed = \"10ge\"\nwidth = 4").unwrap(),
        (Speed::Ge10, 4)
    );
    for (written, says) in [
        ("speed = \"100ge\"\nwidth = 1", "has 4 lanes, not 1"),
        ("speed = \"30ge\"", "25ge, 40ge"),
    ] {
        let error = port(written).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn what_cannot_be_is_refused_with_line_and_reason() {
    for (from, to, line, says) in [
        ("title = \"Two hosts\"", "title = \"\"", 1, "one line"),
        (
            "max_op_vls = 4",
            "max_op_vls = 6",
            2,
            "max_op_vls 6: expected 1, 2, 3, 4 or 5",
        ),
        (
            "speed = \"ddr\"\nbuffer",
            "speed = \"fast\"\nbuffer",
            5,
            "sdr, ddr",
        ),
        (
            "buffer = \"72KiB\"",
            "buffer = \"0B\"",
            24,
            "host a: its buffer must be",
        ),
        ("buffer = \"72KiB\"", "buffer = \"72\"", 6, "has no unit"),
        (
            "buffer = \"36KiB\"",
            "buffer = \"4KiB\"",
            30,
            "case short, link a-sw: a buffer of 8 blocks",
        ),
        (
            "ports = 24",
            "ports = 1",
            28,
            "switch sw: 1 ports; expected 2 to 64",
        ),
        (
            "length = \"100m\"",
            "length = \"100\"",
            20,
            "'100' is no length",
        ),
        (
            "a = \"hca\"",
            "a = \"nic\"",
            24,
            "no kind of host 'nic'; this file has: hca",
        ),
        (
            "between = [\"b\", \"sw\"]",
            "between = [\"a\", \"sw\"]",
            24,
            "host a: 2 links",
        ),
        (
            "between = [\"b\", \"sw\"]",
            "between = [\"c\", \"sw\"]",
            35,
            "no host or switch 'c'",
        ),
        ("from = \"a\"", "from = \"sw\"", 39, "no host 'sw'"),
        ("to = \"b\"", "to = \"a\"", 38, "between two hosts"),
        ("name = \"long\"", "name = \"short\"", 47, "already"),
        ("{ b-sw", "{ c-sw", 49, "there is no link 'c-sw'"),
        ("from = \"a\"", "form = \"a\"", 39, "unknown field `form`"),
        (
            "latency = \"200ns\"",
            "latency = \"20s\"",
            28,
            "its latency may take 10 ms at most",
        ),
    ] {
        assert!(FILE.contains(from), "{from}");
        let error = parse(&FILE.replacen(from, to, 1)).unwrap_err();
        let FileError::Refused {
            line: at, problem, ..
        } = &error
        else {
            panic!("{error}")
        };
        assert!(problem.contains(says), "{error}, expected '{says}'");
        assert_eq!(*at, line, "{error}");
    }
}

#[test]
fn lengths_have_units() {
    assert_eq!(length_mm("100m"), Some(100_000));
    assert_eq!(length_mm("0.5 m"), Some(500));
    assert_eq!(length_mm("30cm"), Some(300));
    assert_eq!(length_mm("2000km"), Some(2_000_000_000));
    for bad in [
        "",
        "100",
        "m",
        "1e3m",
        "-1m",
        "2001km",
        "1..5m",
        "99999999999999999999m",
        ".5m",
    ] {
        assert_eq!(length_mm(bad), None, "{bad}");
    }
}

#[test]
fn the_fabrics_of_the_project_are_sound() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fabrics");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "toml") {
            FabricFile::read(&path).unwrap();
        }
    }
}

proptest::proptest! {
    /// As the fuzz target `fabric_file`.
    #[test]
    fn a_changed_file_is_refused_with_a_line_or_sound(
        at in 0_usize..1_000,
        to in "[\"\\[\\]{}=a-z0-9. \n]{0,6}",
        cut in 0_usize..12,
    ) {
        let at = at.min(FILE.len());
        let rest = FILE.get(at + cut..).unwrap_or("");
        let text = format!("{}{to}{rest}", &FILE[..at]);
        match parse(&text) {
            Ok(file) => proptest::prop_assert!(!file.cases.is_empty()),
            Err(FileError::Refused { line, .. }) => {
                proptest::prop_assert!(line >= 1 && line <= text.lines().count().max(1) + 1);
            }
            Err(other) => panic!("{other}"),
        }
    }
}

const CLUSTER: &str = r#"title = "A small tree"

[host_kinds.hca]
speed = "ddr"
buffer = "72KiB"

[switch_kinds.chip]
speed = "ddr"
ports = 8
buffer = "72KiB"
latency = "200ns"

[cables.cx4]
kind = "copper"
length = "8m"

[topology]
kind = "clos"
levels = 2
host = "hca"
chip = "chip"
cable = "cx4"
hosts = 12
placement = "packed"
routing = "minhop"
lids = "random"
seed = 1

[traffic]
pattern = "rotate"
nodes = [2, 8, 12]
message = "64KiB"
steps = 3
seeds = 2

[[cases]]
name = "one"

[[cases]]
name = "two"
set = { "topology.routing" = "d-mod-k", "traffic.pattern" = "permutation" }
"#;

#[test]
fn a_topology_and_a_pattern_are_studies() {
    let file = parse(CLUSTER).unwrap();
    let [one, two] = &file.studies[..] else {
        panic!("{:?}", file.studies)
    };
    assert_eq!((one.name.as_str(), two.name.as_str()), ("one", "two"));
    let built = one.build(0);
    assert_eq!(
        (built.spec.hosts.len(), built.spec.switches.len()),
        (12, 12)
    );
    // 12 host links and 8 leaves by 4 spines.
    assert_eq!(built.spec.links.len(), 12 + 32);
    assert!(
        built.names.links.iter().any(|l| l == "leaf-2:5/spine-0:3"),
        "{:?}",
        built.names
    );
    assert_eq!(one.traffic.steps(12, 0).len(), 3);
    assert_eq!(one.traffic.steps(2, 0), [0]);
    // What another seed draws is another order of LIDs, and so other tables.
    assert_ne!(one.build(1).spec.routing, built.spec.routing);
    assert_eq!(one.build(0).spec.routing, built.spec.routing);
    for study in [one, two] {
        for n in 0..2 {
            let built = study.build(n);
            let step = study.sends(&built, 12, 1, n);
            let mut world = fabric::World::new(&built.spec, &step.flows).unwrap();
            world.run().unwrap();
        }
    }
}

#[test]
fn a_rotation_is_that_of_cbench() {
    let file = parse(CLUSTER).unwrap();
    let all: Vec<(u32, u32)> = (0..4)
        .flat_map(|r| file.studies[0].traffic.sends(8, r, 0))
        .map(|s| (s.from, s.to))
        .collect();
    assert_eq!(&all[..5], [(0, 4), (1, 5), (2, 6), (3, 7), (0, 5)]);
    let mut each = all.clone();
    each.sort_unstable();
    each.dedup();
    assert_eq!(each.len(), 16);
}

#[test]
fn programs_deliver_what_they_promise() {
    use pattern::{AllReduce, AllToAll, Kind};
    let mut traffic = parse(CLUSTER).unwrap().studies[0].traffic.clone();
    traffic.steps = u32::MAX;
    // Everybody's block reaches everybody: directly once, or by way of others.
    for (kind, nodes) in [(AllToAll::Shift, 7), (AllToAll::Xor, 8)] {
        traffic.kind = Kind::AllToAll(kind);
        let mut all: Vec<(u32, u32)> = traffic
            .steps(nodes, 0)
            .into_iter()
            .flat_map(|s| traffic.sends(nodes, s, 0))
            .map(|s| (s.from, s.to))
            .collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), (nodes * (nodes - 1)) as usize);
    }
    // After all steps of a sum each has heard of each.
    for kind in [
        Kind::AllReduce(AllReduce::Tree),
        Kind::AllReduce(AllReduce::Doubling),
        Kind::AllReduce(AllReduce::Ring),
        Kind::AllToAll(AllToAll::Bruck),
    ] {
        traffic.kind = kind;
        let mut heard: Vec<u32> = (0..8).map(|n| 1 << n).collect();
        for step in traffic.steps(8, 0) {
            let before = heard.clone();
            for send in traffic.sends(8, step, 0) {
                heard[send.to as usize] |= before[send.from as usize];
            }
        }
        assert!(heard.iter().all(|h| *h == 255), "{kind:?} {heard:?}");
    }
}

#[test]
fn a_grid_in_blocks_has_the_edges_of_one_in_rows_and_fewer_between_leaves() {
    use pattern::{Halo, Kind};
    let mut traffic = parse(CLUSTER).unwrap().studies[0].traffic.clone();
    let mut edges = |halo| {
        traffic.kind = Kind::Halo(halo);
        traffic.sends(120, 0, 0)
    };
    let (rows, blocks) = (edges(Halo::Grid), edges(Halo::Blocks));
    assert_eq!((rows.len(), blocks.len()), (480, 480));
    let leaving = |all: &[Sends]| all.iter().filter(|s| s.from / 12 != s.to / 12).count();
    assert_eq!((leaving(&rows), leaving(&blocks)), (240, 140));
    for send in &blocks {
        let back = |s: &&Sends| (s.from, s.to) == (send.to, send.from);
        assert_eq!(blocks.iter().filter(back).count(), 1);
    }
}

#[test]
fn peers_beyond_those_polled_take_longer_by_what_the_file_says() {
    let text = include_str!("../../../fabrics/talon-ib.toml");
    let file = FabricFile::parse(Path::new("talon-ib.toml"), text).unwrap();
    let [rate, latency] = ["static", "latency"].map(|name| {
        let found = file.studies.iter().find(|s| s.name == name);
        found.unwrap().clone()
    });
    let built = latency.build(0);
    let flow = |study: &Study, step| study.sends(&built, 124, step, 0).flows[0];
    assert_eq!(
        [15, 16].map(|step| flow(&latency, step).take_ps),
        [0, 1_105_000]
    );
    assert_eq!(flow(&rate, 16).take_ps, 0);
    for step in [15, 16] {
        let flow = flow(&latency, step);
        let mut world = fabric::World::new(&built.spec, &[flow]).unwrap();
        let way = world.path(flow.from, flow.to);
        world.run().unwrap();
        let half = world.flow(0).round_trip_min_ps / 2;
        let formula = fabric::formula::latency_ps(&built.spec, &flow, &way);
        assert!(half.abs_diff(formula) < formula / 100, "{half} {formula}");
    }
}

#[test]
fn mpi_asks_for_long_messages_and_copies_short_ones() {
    let study = |message: &str, mpi: &str| {
        let message = format!("message = \"{message}\"\nmpi = {{ {mpi} }}");
        let text = CLUSTER.replace("message = \"64KiB\"", &message);
        parse(&text).map(|file| file.studies[0].clone())
    };
    let flow = |message: &str| {
        let study = study(message, "eager = \"12KiB\", copy = \"8Gb/s\"").unwrap();
        let built = study.build(0);
        let nodes = *study.traffic.nodes.last().unwrap();
        study.sends(&built, nodes, 0, 0).flows[0]
    };
    let (short, long) = (flow("12KiB"), flow("16KiB"));
    // 12 KiB at a byte a nanosecond.
    assert_eq!((short.rendezvous, short.take_ps), (false, 12_288_000));
    assert_eq!((long.rendezvous, long.take_ps), (true, 0));
    let error = study("16KiB", "eager = \"0B\"").unwrap_err().to_string();
    assert!(error.contains("1 B to 4 GiB"), "{error}");
    let eager = "message = \"64KiB\"\nmpi = { eager = \"12KiB\" }";
    let asked = CLUSTER.replace("message = \"64KiB\"", eager);
    for (text, says) in [
        (
            asked.replacen("rotate", "rotate-latency", 1),
            "sent at once: a longer 'eager'",
        ),
        (
            format!("tier = \"flows\"\n{asked}"),
            "fluids have no requests",
        ),
        (
            asked.replacen("seeds = 2", "transport = \"uc\"", 1),
            "by a service that acknowledges",
        ),
    ] {
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn a_cluster_that_cannot_be_is_refused_with_line_and_reason() {
    for (from, to, line, says) in [
        ("hosts = 12", "hosts = 33", 23, "has ports for 32"),
        ("ports = 8", "ports = 7", 21, "an even number"),
        (
            "kind = \"clos\"",
            "kind = \"ring\"",
            18,
            "no topology 'ring'",
        ),
        ("\"minhop\"", "\"best\"", 25, "is no routing"),
        (
            "chip = \"chip\"",
            "chip = \"x\"",
            21,
            "no kind of switch 'x'",
        ),
        (
            "lids = \"random\"",
            "lids = \"mixed\"",
            26,
            "in-order or random",
        ),
        (
            "pattern = \"rotate\"",
            "pattern = \"spin\"",
            30,
            "no pattern 'spin'",
        ),
        (
            "pattern = \"rotate\"",
            "algorithm = \"xor\"\npattern = \"rotate\"",
            30,
            "has no algorithms",
        ),
        ("[2, 8, 12]", "[2, 8, 14]", 31, "rising numbers of 2 to 12"),
        ("[2, 8, 12]", "[8, 2]", 31, "rising numbers of 2 to 12"),
        ("seeds = 2", "seeds = 0", 34, "seeds: expected 1 to 1000"),
        (
            "message = \"64KiB\"",
            "message = \"65MiB\"",
            32,
            "1 B to 64 MiB",
        ),
        (
            "steps = 3",
            "transport = \"ud\"",
            33,
            "datagrams carry no patterns",
        ),
        (
            "steps = 3",
            "from = \"n1\"",
            33,
            "traffic between two hosts",
        ),
        (
            "steps = 3",
            "messages = 100000\nseed = 4\nmtu = 256",
            30,
            "packets; expected at most",
        ),
        ("name = \"two\"", "name = \"one\"", 40, "already"),
        (
            "\"topology.routing\"",
            "\"topology.speed\"",
            41,
            "no key 'topology.speed'",
        ),
        (
            "\"d-mod-k\"",
            "\"best\"",
            40,
            "case two: 'best' is no routing",
        ),
        (
            "[topology]\n",
            "[hosts]\na = \"hca\"\n[topology]\n",
            19,
            "one or the other",
        ),
        (
            "buffer = \"72KiB\"\nlatency",
            "buffer = \"4KiB\"\nlatency",
            17,
            "holds no packet",
        ),
        ("seeds = 2", "seeds = 2000", 34, "seeds"),
    ] {
        assert!(CLUSTER.contains(from), "{from}");
        let mut text = CLUSTER.replacen(from, to, 1);
        if says.contains("packets;") {
            text = text.replace("\"64KiB\"", "\"64MiB\"");
        }
        let error = parse(&text).unwrap_err();
        let FileError::Refused {
            line: at, problem, ..
        } = &error
        else {
            panic!("{error}")
        };
        assert!(problem.contains(says), "{error}, expected '{says}'");
        assert_eq!(*at, line, "{error}");
    }
}

#[test]
fn jobs_share_the_hosts() {
    let text = CLUSTER
        .replace(
            "pattern = \"rotate\"\nnodes = [2, 8, 12]",
            "pattern = \"jobs\"",
        )
        .split("[[cases]]")
        .next()
        .unwrap()
        .to_owned()
        + r#"
[[traffic.jobs]]
name = "a"
pattern = "halo"
nodes = 6
message = "4KiB"
steps = 2
[[traffic.jobs]]
name = "b"
pattern = "all-to-all"
nodes = 4
message = "4KiB"
[traffic.files]
servers = 2
clients = 5
message = "8KiB"
"#;
    let file = parse(&text).unwrap();
    let traffic = &file.studies[0].traffic;
    assert_eq!(traffic.nodes, [12]);
    assert_eq!(traffic.steps(12, 0).len(), 3);
    let sends = traffic.sends(12, 2, 0);
    // The halo has ended; files go on.
    assert!(sends.iter().all(|s| s.job == 1 || s.job == pattern::FILES));
    assert!(sends.iter().all(|s| s.from < 12 && s.to < 12));
    let error = parse(&text.replace("nodes = 6", "nodes = 9")).unwrap_err();
    assert!(
        error.to_string().contains("need 15 hosts; there are 12"),
        "{error}"
    );
}

/// CLUSTER on cables from another file.
fn imported(topology: &str, texts: &[(&str, &str)]) -> Result<FabricFile, FileError> {
    let (before, rest) = CLUSTER.split_once("[topology]").unwrap();
    let (_, traffic) = rest.split_once("[traffic]").unwrap();
    let (traffic, _) = traffic.split_once("[[cases]]").unwrap();
    let traffic = traffic.replace("[2, 8, 12]", "[2, 4]");
    let parts = "host = \"hca\"\nchip = \"chip\"\ncable = \"cx4\"";
    let text = format!("{before}[topology]\n{topology}\n{parts}\n[traffic]{traffic}");
    let read = |name: &str| {
        let found = texts.iter().find(|(n, _)| *n == name);
        found
            .map(|(_, text)| (*text).to_owned())
            .ok_or_else(|| "is not there".to_owned())
    };
    FabricFile::parse_with(Path::new("x.toml"), &text, None, &read)
}

#[test]
fn cables_come_from_files_of_other_programs() {
    let edges = "a l0\nb l0\nc l1\nd l1\nl0 s/0\nl1 s/0\n";
    let file = imported("kind = \"edges\"\nfile = \"cables\"", &[("cables", edges)]).unwrap();
    let built = file.studies[0].build(0);
    assert_eq!(built.names.hosts, ["a", "b", "c", "d"]);
    assert_eq!(built.names.links[5], "l1:3/s-0:2");
    assert_eq!(built.tiers, [1, 1, 2]);
    for (topology, texts, says) in [
        (
            "kind = \"edges\"",
            &[][..],
            "line 18: edges: expected its 'file'",
        ),
        (
            "kind = \"edges\"\nfile = \"cables\"",
            &[],
            "line 19: cables: is not there",
        ),
        (
            "kind = \"edges\"\nfile = \"cables\"",
            &[("cables", "a b c")],
            "line 19: cables: line 1: expected two names",
        ),
        (
            "kind = \"edges\"\nfile = \"cables\"\nhosts = 4",
            &[("cables", edges)],
            "hosts are those of the file",
        ),
        (
            "kind = \"edges\"\nfile = \"cables\"\nlevels = 2",
            &[("cables", edges)],
            "has no key 'levels'",
        ),
        (
            "kind = \"edges\"\nfile = \"cables\"\nlfts = \"t\"",
            &[("cables", edges), ("t", "Unicast lids")],
            "t: the topology has no lid for a",
        ),
        (
            "kind = \"edges\"\nfile = \"cables\"",
            &[("cables", "a l0\nb l0\nc l1\nd l1\n")],
            "there is no way from here to host 0",
        ),
        (
            "kind = \"clos\"\nhosts = 4\nfile = \"cables\"",
            &[],
            "are of the kinds",
        ),
        ("kind = \"clos\"", &[], "expected how many 'hosts'"),
    ] {
        let error = imported(topology, texts).unwrap_err().to_string();
        assert!(error.contains(says), "{error}, expected {says}");
    }
    for name in ["/etc/passwd", "../x", "", "a/../b"] {
        let error = beside(Path::new("/"), name).unwrap_err();
        assert!(
            error.contains("in the folder of this one"),
            "{name}: {error}"
        );
    }
    let error = beside(Path::new("/dev"), "zero").unwrap_err();
    assert!(error.contains("expected a regular file"), "{error}");
}

#[test]
fn a_pattern_has_a_tier_of_the_file_or_of_the_command() {
    let flows = format!("tier = \"flows\"\n{CLUSTER}");
    assert_eq!(parse(CLUSTER).unwrap().studies[0].tier, Tier::Packets);
    assert_eq!(parse(&flows).unwrap().studies[0].tier, Tier::Flows);
    let typed = FabricFile::parse_as(Path::new("x.toml"), &flows, Some(Tier::Packets)).unwrap();
    assert_eq!(typed.studies[0].tier, Tier::Packets);
    let again = typed.with(&[("topology.seed".to_owned(), "3".to_owned())]);
    assert!(again.is_err() || again.unwrap().studies[0].tier == Tier::Packets);
    for (text, says) in [
        (
            flows.replace("\"flows\"", "\"some\""),
            "line 1: tier 'some': expected packets or flows",
        ),
        (
            format!("tier = \"flows\"\n{FILE}"),
            "tier 'flows' is for patterns",
        ),
        (
            flows.replace("kind = \"clos\"", "kind = \"clos\"\nselection = \"spray\""),
            "tier must be packets",
        ),
    ] {
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let error = FabricFile::parse_as(Path::new("x.toml"), FILE, Some(Tier::Flows)).unwrap_err();
    assert!(error.to_string().contains("for patterns"), "{error}");
}

proptest::proptest! {
    /// As the fuzz target `fabric_file`, for patterns.
    #[test]
    fn a_changed_cluster_is_refused_with_a_line_or_sound(
        at in 0_usize..1_000,
        to in "[\"\\[\\]{}=a-z0-9. \n]{0,6}",
        cut in 0_usize..12,
    ) {
        let at = at.min(CLUSTER.len());
        let rest = CLUSTER.get(at + cut..).unwrap_or("");
        let text = format!("{}{to}{rest}", &CLUSTER[..at]);
        match parse(&text) {
            Ok(file) => proptest::prop_assert!(file.cases.len() + file.studies.len() > 0),
            Err(FileError::Refused { line, .. }) => {
                proptest::prop_assert!(line >= 1 && line <= text.lines().count().max(1) + 1);
            }
            Err(other) => panic!("{other}"),
        }
    }
}

const FAILING: &str = concat!(
    include_str!("../tests/tree.toml"),
    r#"placement = "random"
[[fault]]
link = "LINK"
at = "100us"
until = "300us"
[recovery]
retry = "1ms"
retries = 5
reroute = "2ms"
[traffic]
pattern = "rotate"
message = "16KiB"
"#
);

#[test]
fn links_that_fail_are_named_from_either_end_or_by_their_host() {
    let parse = |text: &str| FabricFile::parse(Path::new("x.toml"), text);
    let with = |link: &str| parse(&FAILING.replace("LINK", link));
    let plain =
        FAILING.split("[[fault]]").next().unwrap().to_owned() + "[traffic]\npattern = \"rotate\"\n";
    let names = parse(&plain).unwrap().studies[0].build(0).names;
    let inner = names
        .links
        .iter()
        .find(|l| !l.starts_with('n') && !l.contains("/n"))
        .unwrap();
    let turned = inner
        .split_once('/')
        .map(|(a, b)| format!("{b}/{a}"))
        .unwrap();
    for link in [inner, &turned, "n5"] {
        let study = with(link).unwrap().studies.remove(0);
        for seed in 0..4 {
            let built = study.build(seed);
            let faults = built.spec.faults.unwrap();
            let down: Vec<u32> = faults.down_at(150_000_000).collect();
            assert_eq!(down.len(), 1);
            let name = &built.names.links[down[0] as usize];
            match link {
                "n5" => assert!(name.split('/').any(|end| end == "n5"), "{name}"),
                _ => assert_eq!(name, inner),
            }
            assert_eq!(faults.down_at(300_000_000).count(), 0);
            assert_eq!(faults.rule.retry_ps, 1_000_000_000);
            assert_eq!(
                (faults.rule.retries, faults.rule.sweep_ps),
                (5, Some(2_000_000_000))
            );
        }
    }
    // Refused in the line of the last such words.
    let refused = |text: &str, what: &str, words: &str| match parse(text).unwrap_err() {
        FileError::Refused { line, problem, .. } => {
            assert!(problem.contains(what), "{problem}");
            let place = text.rfind(words).unwrap();
            assert_eq!(line, text[..place].matches('\n').count() + 1, "{problem}");
        }
        other => panic!("{other}"),
    };
    let failing = FAILING.replace("LINK", inner);
    let changed = |from: &str, to: &str| failing.replace(from, to);
    refused(
        FAILING,
        "there is no link 'LINK'; expected a host",
        "link =",
    );
    refused(&changed("300us", "50us"), "comes back before", "link =");
    refused(&changed("300us", "5000s"), "within 1000 s", "link =");
    let again = format!("[[fault]]\nlink = \"{inner}\"\nat = \"200us\"\n[recovery]");
    refused(&changed("[recovery]", &again), "down already", "link =");
    let uc = changed("rotate\"", "rotate\"\ntransport = \"uc\"");
    refused(&uc, "would never come", "[traffic]");
    refused(
        &format!("tier = \"flows\"\n{failing}"),
        "tier must be packets",
        "[[fault]]",
    );
    refused(
        &changed("retries = 5", "retries = 5000"),
        "expected at most 1000",
        "link =",
    );
    let ethernet = changed("[traffic]", "[ethernet]\ncontrol = \"credits\"\n[traffic]");
    refused(&ethernet, "[ethernet] retry", "retry = \"1ms\"");
    let fault = &failing[failing.find("[[fault]]").unwrap()..failing.find("[recovery]").unwrap()];
    refused(&failing.replace(fault, ""), "no [[fault]]", "[recovery]");
    let pair = changed(
        "pattern = \"rotate\"\nmessage = \"16KiB\"",
        "from = \"n0\"\nto = \"n9\"",
    );
    refused(&pair, "links fail under patterns", "[[fault]]");
}
