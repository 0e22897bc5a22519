use proptest::prelude::*;

use super::*;
use crate::hostile::{HOSTILE, assert_clean_lines};
use crate::route::{Graph, Routes};
use crate::topology::tests::parts;

/// As ibnetdiscover prints it; attributes and comments are of the kinds that real ones have.
const DISCOVERED: &str = r#"#
# Topology file: generated on Tue Jun  5 14:15:10 2007
#
# Initiated from node 0008f10403960558 port 0008f10403960559

vendid=0x8f1
devid=0x5a06
sysimgguid=0x5442ba00003000
switchguid=0x5442ba00003080(5442ba00003080)
Switch	24 "S-005442ba00003080"		# "ISR9024 Voltaire" base port 0 lid 6 lmc 0
[22]	"H-0008f10403961354"[1](8f10403961355) 		# "node1 HCA-1" lid 4 4xSDR
[10]	"S-0008f10400410015"[1]		# "SW-6IB4 Voltaire" lid 3 4xSDR
[8][ext 9]	"H-0008f10403960558"[2](8f1040396055a) 		# "node2 # HCA-1" lid 14 4xDDR
[7]	"R-0008f10403960999"[1] # "router" lid 77 4xSDR

vendid=0x8f1
switchguid=0x8f10400410015(8f10400410015)
Switch	8 "S-0008f10400410015"		# "SW-6IB4 Voltaire" base port 0 lid 3 lmc 0
[6]	"H-0008f10403960984"[1](8f10403960985) 		# "node3 HCA-1" lid 16 1xSDR
[1]	"S-005442ba00003080"[10]		# "ISR9024 Voltaire" lid 6 4xSDR

caguid=0x8f10403960984
Ca	2 "H-0008f10403960984"		# "node3 HCA-1"
[1](8f10403960985) 	"S-0008f10400410015"[6]		# lid 16 lmc 1 "SW-6IB4 Voltaire" lid 3 1xSDR

Ca	2 "H-0008f10403960558"		# "node2 # HCA-1"
[2](8f1040396055a) 	"S-005442ba00003080"[8][ext 9]		# lid 14 lmc 1 "ISR9024 Voltaire" lid 6 4xDDR

Ca	2 "H-0008f10403961354"		# "node1 HCA-1"
[1](8f10403961355) 	"S-005442ba00003080"[22]		# lid 4 lmc 1 "ISR9024 Voltaire" lid 6 4xSDR

Ca	1 "H-unplugged"

Rt	2 "R-0008f10403960999" # "router"
[1]	"S-005442ba00003080"[7] # lid 77
"#;

#[test]
fn names_and_errors_of_a_fabric_of_somebody_else_are_plain() {
    let words = HOSTILE.replace(['\r', '\n', '\u{85}', '\u{2028}', '\u{2029}'], "");
    let is_name = |c: char| c.is_ascii_alphanumeric();
    // Each word of the file.
    let mut begins = 0;
    let (mut taken, mut refused) = (0, 0);
    while let Some(at) = DISCOVERED[begins..].find(is_name) {
        let from = begins + at;
        let length = DISCOVERED[from..].find(|c| !is_name(c)).unwrap_or(1);
        begins = from + length;
        let text = format!("{}{words}{}", &DISCOVERED[..from], &DISCOVERED[begins..]);
        match ibnetdiscover(&text, &parts(24)) {
            Ok(import) => {
                taken += 1;
                let names = &import.network.names;
                let all = names.hosts().iter().chain(names.switches());
                all.chain(&import.remarks)
                    .for_each(|name| assert_clean_lines(name, &text));
            }
            Err(error) => {
                refused += 1;
                assert_clean_lines(&error.to_string(), &text);
            }
        }
    }
    assert!(
        taken > 20 && refused > 20,
        "{taken} taken, {refused} refused"
    );
    for text in [
        format!("{words} 1 b 2"),
        format!("a {words} b 2"),
        format!("a 1 b {words}"),
        words,
    ] {
        match edges(&text, &parts(24)) {
            Ok(import) => {
                let names = import.network.names.hosts().iter();
                names.for_each(|name| assert_clean_lines(name, &text));
            }
            Err(error) => assert_clean_lines(&error.to_string(), &text),
        }
    }
}

#[test]
fn a_discovered_fabric_keeps_its_names_ports_and_speeds() {
    let import = ibnetdiscover(DISCOVERED, &parts(24)).unwrap();
    let Network { spec, names } = &import.network;
    assert_eq!(
        names.hosts(),
        ["node3 HCA-1", "node2 # HCA-1", "node1 HCA-1"]
    );
    assert_eq!(names.switches(), ["ISR9024 Voltaire", "SW-6IB4 Voltaire"]);
    assert_eq!(spec.switches[0].ports, 24);
    assert_eq!(spec.switches[1].ports, 8);
    let links: Vec<String> = (0..4)
        .map(|link| {
            let rated = spec.links[link as usize].cable.rated.unwrap();
            format!("{}, {rated}", names.channel(spec, link * 2))
        })
        .collect();
    assert_eq!(
        links,
        [
            "node3 HCA-1 -> SW-6IB4 Voltaire port 6, SDR",
            "node2 # HCA-1 -> ISR9024 Voltaire port 8, DDR",
            "node1 HCA-1 -> ISR9024 Voltaire port 22, SDR",
            "ISR9024 Voltaire port 10 -> SW-6IB4 Voltaire port 1, SDR",
        ]
    );
    assert_eq!(
        import.remarks,
        [
            "line 14: a cable to a router is left out",
            "line 19: 1 lanes of signalling; the model has 4",
            "line 24: 1 lanes of signalling; the model has 4",
        ]
    );
    let graph = Graph::new(spec);
    let mut way = Vec::new();
    assert!(Routes::new(spec).unwrap().way(&graph, 0, 1, &mut way));
    assert_eq!(way.len(), 3);
}

/// Tables of DISCOVERED's two switches, as dump_lfts prints them and as OpenSM does.
const TABLES: &str =
    "Unicast lids [0x0-0x10] of switch Lid 6 guid 0x005442ba00003080 (ISR9024 Voltaire):
  Lid  Out   Destination
       Port     Info
0x0003 010 : (Switch portguid 0x0008f10400410015: 'SW-6IB4 Voltaire')
0x0004 022 : (Channel Adapter portguid 0x0008f10403961355: 'node1 HCA-1')
0x000e 008 : (Channel Adapter portguid 0x0008f1040396055a: 'node2 # HCA-1')
0x0010 010 : (Channel Adapter portguid 0x0008f10403960985: 'node3 HCA-1')
4 valid lids dumped
Unicast lids [0x0-0x10] of switch Lid 99 guid 0x1 ('not in the topology'):
0x0004 250 # unknown node and type
Unicast lids [0x0-0x10] of switch Lid 3 guid 0x0008f10400410015 ('SW-6IB4 Voltaire'):
0x0004 001 # Channel Adapter portguid 0x0008f10403961355: 'node1 HCA-1'
0x000e 001 # Channel Adapter portguid 0x0008f1040396055a: 'node2 # HCA-1'
0x0010 006 # Channel Adapter portguid 0x0008f10403960985: 'node3 HCA-1'
17 lids dumped
";

#[test]
fn tables_of_a_running_fabric_are_its_routes() {
    let import = ibnetdiscover(DISCOVERED, &parts(24)).unwrap();
    assert_eq!(import.lids, [Some(16), Some(14), Some(4)]);
    let mut spec = import.network.spec.clone();
    let table = lfts(TABLES, &import).unwrap();
    // Ports in the order of the cables: hosts first.
    assert_eq!(Routes::new(&spec).unwrap().table(), table);
    spec.routing = crate::Routing::Table(table);
    let (graph, routes) = (Graph::new(&spec), Routes::new(&spec).unwrap());
    let mut way = Vec::new();
    assert!(routes.way(&graph, 0, 1, &mut way));
    assert_eq!(way.len(), 3);
}

#[test]
fn tables_that_do_not_fit_are_refused_with_their_line() {
    let import = ibnetdiscover(DISCOVERED, &parts(24)).unwrap();
    for (from, to, line, reason) in [
        (
            "0x0004 022 :",
            "0x0004 021 :",
            5,
            "port 21 of ISR9024 Voltaire has no cable",
        ),
        ("0x0004 022 :", "0x0004 many :", 5, "expected a lid such as"),
        ("0x0004 022 :", "0xfffff 022 :", 5, "expected a lid such as"),
        (
            "0x000e 008 :",
            "0x0004 008 :",
            6,
            "in this switch's table already",
        ),
        (
            "guid 0x005442ba00003080",
            "",
            1,
            "expected the switch's 'guid",
        ),
        ("Unicast", "Multicast", 1, "expected a line 'Unicast lids"),
        ("4 valid lids dumped", "what", 8, "'what': expected"),
    ] {
        let text = TABLES.replacen(from, to, 1);
        let error = lfts(&text, &import).unwrap_err();
        assert_eq!(error.line, line, "{from}: {error}");
        assert!(error.to_string().contains(reason), "{from}: {error}");
    }
    for (text, reason) in [
        ("", "no line 'Unicast"),
        ("0x0001 001 :", "an entry before any"),
    ] {
        let error = lfts(text, &import).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let nameless = ibnetdiscover(&DISCOVERED.replace("lid ", "lad "), &parts(24)).unwrap();
    let error = lfts(TABLES, &nameless).unwrap_err().to_string();
    assert!(error.contains("has no lid for node3"), "{error}");
    // A table without a line is one that leads nowhere.
    let mut spec = import.network.spec.clone();
    let short = TABLES.replace("0x0010 010", "0x0011 010");
    spec.routing = crate::Routing::Table(lfts(&short, &import).unwrap());
    let error = Routes::new(&spec).unwrap_err().to_string();
    assert!(
        error.contains("switch 0: its table has no port for host 0"),
        "{error}"
    );
}

#[test]
fn an_adapter_with_two_cables_is_two_hosts_and_one_side_is_enough() {
    let text =
        "Switch 8 \"a\"\n[1] \"h\"[1]\n[2] \"h\"[2]\n[3] \"i\"[1]\nHca 2 \"h\"\nHca 2 \"i\"\n";
    let import = ibnetdiscover(text, &parts(24)).unwrap();
    assert_eq!(import.network.names.hosts(), ["h port 1", "h port 2", "i"]);
}

#[test]
fn lists_of_cables_take_names_with_one_cable_for_hosts() {
    let text = "# two leaves, a spine with parallel cables\n\
                a leaf0 1 1\nb leaf0\nc leaf1 # last one\nd leaf1\n\
                leaf0 spine 13 1\nleaf0 spine\nspine leaf1 3 13\n\n";
    let import = edges(text, &parts(24)).unwrap();
    let Network { spec, names } = &import.network;
    assert_eq!(names.hosts(), ["a", "b", "c", "d"]);
    assert_eq!(names.switches(), ["leaf0", "leaf1", "spine"]);
    assert_eq!(names.channel(spec, 2), "b -> leaf0 port 2");
    assert_eq!(names.channel(spec, 8), "leaf0 port 3 -> spine port 2");
    assert_eq!(names.channel(spec, 10), "leaf0 port 13 -> spine port 1");
    assert_eq!(names.channel(spec, 12), "leaf1 port 13 -> spine port 3");
}

#[test]
fn what_is_wrong_is_refused_with_its_line() {
    let long = format!("a b\n{}\n", "c".repeat(LINE_BYTES_MAX + 1));
    let many: String = (0..65).map(|n| format!("h{n} switch\n")).collect();
    for (text, line, reason) in [
        ("", 0, "0 hosts; expected 2 to"),
        ("a b\na", 2, "expected two names"),
        ("a b 1", 1, "expected two names"),
        ("a b 1 0", 1, "'0' is no port"),
        ("a b 1 65", 1, "'65' is no port"),
        ("a s 1 1\nb s 1 1", 2, "s port 1 has a cable already"),
        ("a s\nb s\ns s", 3, "leads to itself"),
        (&long, 2, "longer than 4096 bytes"),
        (&many, 65, "switch has more than 64 cables"),
    ] {
        let error = edges(text, &parts(24)).unwrap_err();
        assert_eq!(error.line, line, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    let pair = "Ca 1 \"g\"\nCa 1 \"h\"\n";
    for (text, line, reason) in [
        ("[1] \"h\"[1]", 1, "a port before any"),
        (
            "Ca 1 \"h\"\n[1] \"s\"[1]\n[1] \"s\"[1]",
            3,
            "more cables than ports",
        ),
        ("Bridge 8 \"a\"", 1, "expected Switch, Ca or Rt"),
        ("Switch many \"a\"", 1, "a number of ports up to 254"),
        ("Switch 255 \"a\"", 1, "a number of ports up to 254"),
        (
            "Switch 65 \"a\"",
            1,
            "a switch of 65 ports; expected 64 at most",
        ),
        ("Switch 8 a", 1, "a name in quotes"),
        ("Switch 8 \"a\"\nCa 1 \"a\"", 2, "is described before"),
        ("Ca 1 \"h\"\n[1] \"s\"[1]", 2, "\"s\" is not described"),
        ("Ca 1 \"h\"\n[1] \"h\"[1]", 2, "leads to itself"),
        (
            "Ca 1 \"h\"\n[1 \"s\"[1]",
            2,
            "expected [port] \"name\"[port]",
        ),
        ("Ca 1 \"h\"\n[1] \"s\"", 2, "expected [port] \"name\"[port]"),
        (
            "Switch 8 \"a\"\n[9] \"h\"[1]\nCa 1 \"h\"",
            2,
            "port 9; a has 1 to 8",
        ),
        (
            "Switch 8 \"a\"\n[1] \"h\"[2]\nCa 1 \"h\"",
            2,
            "port 2; h has 1 to 1",
        ),
        (
            "Switch 8 \"a\"\n[1] \"h\"[1]\n[1] \"h\"[1]\nCa 1 \"h\"",
            3,
            "port 1 is in line 2 already",
        ),
        (
            "Switch 8 \"a\"\n[1] \"h\"[1]\nCa 1 \"h\"\n[1] \"a\"[2]",
            2,
            "h port 1 leads elsewhere in line 4",
        ),
        (
            "Switch 8 \"a\"\n[1] \"h\"[1]\n[2] \"h\"[1]\nCa 1 \"h\"",
            4,
            "h port 1 has two cables",
        ),
        (pair, 0, "0 hosts; expected"),
    ] {
        let error = ibnetdiscover(text, &parts(24)).unwrap_err();
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.to_string().contains(reason), "{text}: {error}");
    }
}

/// Whatever it says, a fabric that was read can be asked for routes.
fn assert_sound(found: Result<Import, ImportError>, text: &str) {
    match found {
        Ok(import) => {
            let spec = &import.network.spec;
            spec.check().unwrap();
            for link in 0..spec.links.len() {
                import
                    .network
                    .names
                    .channel(spec, u32::try_from(link * 2 + 1).unwrap());
            }
            let _ = Routes::new(spec);
            assert!(import.remarks.len() <= REMARKS_MAX);
        }
        Err(error) => assert!(error.line <= text.lines().count()),
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,300}") {
        assert_sound(edges(&text, &parts(24)), &text);
        assert_sound(ibnetdiscover(&text, &parts(24)), &text);
    }

    #[test]
    fn any_words_of_the_formats_are_read_or_refused(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "Switch", "Ca", "Rt", "\"a\"", "\"b\"", "\"c\"", "[1]", "[2]", "[ext 1]", "(9)", "8", "1", "2",
                "\n", "\n", "#", "4xDDR", "1xFDR10", "a", "b", "c", "s", "=", "é",
            ]),
            0..120,
        ),
    ) {
        let text = words.join(" ");
        assert_sound(edges(&text, &parts(24)), &text);
        assert_sound(ibnetdiscover(&text, &parts(24)), &text);
    }

    #[test]
    fn lines_of_a_discovered_fabric_in_any_order_are_read_or_refused(keep: u64, swap in 0_usize..30) {
        let mut lines: Vec<&str> = DISCOVERED.lines().collect();
        let count = lines.len();
        lines.swap(swap % count, (swap * 7 + 3) % count);
        let kept = lines.iter().enumerate().filter(|(n, _)| keep >> (n % 64) & 1 == 1);
        let text: Vec<&str> = kept.map(|(_, line)| *line).collect();
        let text = text.join("\n");
        assert_sound(ibnetdiscover(&text, &parts(24)), &text);
    }
}
