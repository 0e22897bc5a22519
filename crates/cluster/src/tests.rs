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
