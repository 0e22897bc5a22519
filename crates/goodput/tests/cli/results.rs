//! What a verb gives its user when all goes well.

use std::fs;
use std::path::Path;

use lab::log::{Legend, LinkLegend, Logger};
use link::record::{Code, FrameRecord, Row};
use serde_json::Value;

use crate::far_end::address_of;
use crate::support::{Scratch, assert_verdict, json, lab_alone};

const DOCTOR: [&str; 6] = ["doctor", "lab:columbia-untuned", "-d", "3s", "--ramp", "1s"];

/// One page, readable without a network: nothing in it is fetched from anywhere.
#[track_caller]
fn assert_self_contained(page: &Path) {
    let html = fs::read_to_string(page).unwrap().to_lowercase();
    assert!(html.contains("</html>"), "{}", page.display());
    for fetch in [
        "src=\"http",
        "src='http",
        "src=http",
        "href=\"http",
        "href='http",
        "url(http",
        "url(\"http",
        "url('http",
        "@import",
        "<script src",
        "stylesheet",
        "src=\"//",
        "href=\"//",
    ] {
        assert!(!html.contains(fetch), "{}: {fetch}", page.display());
    }
}

#[test]
fn doctor_finds_the_buffers_fixes_them_and_keeps_all_of_it() {
    let _alone = lab_alone();
    let scratch = Scratch::new();
    let mut command = scratch.goodput(&DOCTOR);
    command.arg("--json");
    let ended = scratch.run(command);
    let run = ended.json();
    let folder = scratch.run_folder();
    assert_eq!(run, json(&folder.join("run.json")));
    assert_eq!(run["state"], "done");
    assert_eq!(run["schema_version"], 1);
    let conclusive = assert_verdict(&run, ended.code(), &["receive_window", "send_buffer"]);
    let phases = run["phases"].as_array().unwrap();
    if conclusive {
        assert_eq!(phases.len(), 2);
        let rate = |i: usize| phases[i]["goodput_bits_per_second"].as_u64().unwrap();
        // 64 KiB of buffer every 85 ms are at most 6.2 Mb/s.
        assert!(rate(0) < 6_200_000 && rate(1) > rate(0), "{run:#}");
        assert!(!phases[1]["settings"].as_array().unwrap().is_empty());
    }
    let samples = fs::read_to_string(folder.join("samples.jsonl")).unwrap();
    for line in samples.lines() {
        let sample: Value = serde_json::from_str(line).unwrap();
        assert!(sample["t_ns"].is_u64(), "{line}");
    }
    assert!(samples.lines().count() > 10);
    assert!(json(&folder.join("findings.json")).is_array() || conclusive);
    assert_self_contained(&folder.join("report.html"));
    scratch.assert_nothing_left();
}

#[test]
fn a_sweep_measures_every_combination_and_draws_it() {
    let scratch = Scratch::new();
    let serving = scratch.start(scratch.goodput(&["serve", "--listen", "127.0.0.1:0"]));
    let address = address_of(&serving.stderr_when("for other machines"));
    let mut command = scratch.goodput(&[
        "measure", &address, "-d", "100ms", "--budget", "1ms", "--json",
    ]);
    command.args(["--sweep", "write-size=1KiB..8KiB", "--sweep", "streams=1,2"]);
    let ended = scratch.run(command);
    // Whether two rounds are enough for a knee is the machine's to say.
    assert!([0, 1].contains(&ended.code()), "{ended:#?}");
    let run = ended.json();
    let points = run["sweep"]["points"].as_array().unwrap();
    assert_eq!(points.len(), 8);
    for point in points {
        // The budget is over at once, and two rounds are had all the same.
        assert_eq!(point["each_bits_per_second"].as_array().unwrap().len(), 2);
        assert!(point["goodput_bits_per_second"].as_u64() > Some(0));
    }
    assert_eq!(run["sweep"]["curves"].as_array().unwrap().len(), 2);
    assert_eq!(run["sweep"]["out_of_time"], true);
    assert_self_contained(&scratch.run_folder().join("report.html"));
    // Of one stream and two the ends cannot have a CPU each alike.
    assert!(run["sweep"]["apart"].is_null());
    let mut alone = scratch.goodput(&[
        "measure", &address, "-d", "60ms", "--budget", "1ms", "--json",
    ]);
    alone.args(["--sweep", "write-size=1KiB..8KiB"]);
    let sweep = &scratch.run(alone).json()["sweep"];
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert_eq!(sweep["apart"] == true, cpus > 1);
    assert_eq!(sweep["points"].as_array().unwrap().len(), 4);
    let typed = ["measure", &address, "--sweep", "write-sizes"];
    let says = ["--sweep write-sizes: no such sweep; there are write-size"];
    scratch.run(scratch.goodput(&typed)).fails_with(2, &says);
    serving.signal("INT");
    serving.end().succeeds();
}

#[test]
fn a_sweep_of_messages_has_rates_of_both_ways_and_latency() {
    let scratch = Scratch::new();
    let serving = scratch.start(scratch.goodput(&["serve", "--listen", "127.0.0.1:0"]));
    let address = address_of(&serving.stderr_when("for other machines"));
    for direction in ["up", "down"] {
        let mut command = scratch.goodput(&["measure", &address, "-d", "60ms", "--json"]);
        command.args(["--budget", "1ms", "--direction", direction]);
        command.args(["--sweep", "message-size=2,1KiB,64KiB,1MiB"]);
        let ended = scratch.run(command);
        assert!([0, 1].contains(&ended.code()), "{ended:#?}");
        let run = ended.json();
        let sweep = &run["sweep"];
        assert_eq!(sweep["direction"], direction);
        let points = sweep["points"].as_array().unwrap();
        let ways: Vec<&str> = points
            .iter()
            .map(|p| p["pattern"].as_str().unwrap())
            .collect();
        assert_eq!(ways, [["one_way"; 4], ["both_ways"; 4]].concat());
        for point in points {
            let size = point["settings"][0].as_u64().unwrap();
            let numbers = &point["messages"];
            let [peak, average] = ["peak_bits_per_second", "average_bits_per_second"]
                .map(|key| numbers[key].as_u64().unwrap());
            assert!(peak >= average, "{point:#}");
            assert_eq!(numbers["messages_per_second"], average / 8 / size);
        }
        let latencies = sweep["latencies"].as_array().unwrap();
        assert_eq!(latencies.len(), 4);
        for latency in latencies {
            let times = ["min_ns", "median_ns", "p99_ns", "p999_ns", "max_ns"];
            let times = times.map(|key| latency[key].as_u64().unwrap());
            assert!(times[0] > 0 && times.is_sorted(), "{latency:#}");
            assert_eq!(latency["each_median_ns"].as_array().unwrap().len(), 2);
            // The kernel's stamps lie inside of what the program takes.
            let small = latency["message_bytes"].as_u64().unwrap() <= 1024;
            let stamped = ["kernel_median_ns", "stamped_median_ns"];
            let stamped = stamped.map(|key| latency[key].as_u64());
            assert_eq!(stamped.map(|ns| ns.is_some()), [small; 2], "{latency:#}");
            assert!(stamped.is_sorted(), "{latency:#}");
        }
        let curves = sweep["curves"].as_array().unwrap();
        assert_eq!(curves.len(), 2);
        assert!(
            sweep["messages"]["verbs"]
                .as_str()
                .unwrap()
                .contains("RDMA")
        );
        assert!(
            sweep["messages"]["sentence"]
                .as_str()
                .unwrap()
                .starts_with("a 2 B message takes")
        );
    }
    for folder in crate::support::run_folders(&scratch.runs()) {
        assert_self_contained(&folder.join("report.html"));
    }
    serving.signal("INT");
    serving.end().succeeds();
    scratch.assert_nothing_left();
}

#[test]
fn a_sweep_of_mtus_cuts_segments_to_them_and_ends_at_what_the_path_carries() {
    let _alone = lab_alone();
    let scratch = Scratch::new();
    let mut command = scratch.goodput(&["measure", "lab:gigabit-metro", "-d", "100ms", "--json"]);
    command.args(["--budget", "1ms", "--sweep", "mtu"]);
    let ended = scratch.run(command);
    assert!([0, 1].contains(&ended.code()), "{ended:#?}");
    let run = ended.json();
    let points = run["sweep"]["points"].as_array().unwrap();
    let cut: Vec<[u64; 2]> = points
        .iter()
        .map(|p| [&p["settings"][0], &p["segment_bytes"]].map(|v| v.as_u64().unwrap()))
        .collect();
    // Less 20 octets of each header, and 12 of timestamps.
    let asked = [576, 726, 914, 1152, 1500];
    assert_eq!(cut, asked.map(|mtu| [mtu, mtu - 52]));
    let mut command = scratch.goodput(&["measure", "lab:gigabit-metro", "--sweep", "mtu=1501"]);
    command.args(["-d", "100ms"]);
    let says = [
        "an MTU of 1501 B",
        "128 B to 1500 B, which is what the path carries",
    ];
    scratch.run(command).fails_with(2, &says);
    scratch.assert_nothing_left();
}

#[test]
fn what_does_not_go_with_a_sweep_of_messages_or_mtus_is_refused() {
    let scratch = Scratch::new();
    for (typed, says) in [
        ("--sweep message-size --sweep streams", "goes alone"),
        (
            "--sweep message-size --streams 2",
            "--streams does not hold",
        ),
        (
            "--sweep message-size --congestion reno",
            "--congestion does not hold",
        ),
        ("--sweep message-size=9MiB", "1 B to 8 MiB work"),
        ("--sweep message-size --transport tls", "not over tls"),
        ("--sweep mtu --transport mptcp", "not of mptcp"),
        ("--sweep mtu --udp 1Mb/s", "not of udp"),
        (
            "--sweep mtu --transport quic",
            "write-size and streams work",
        ),
        (
            "--sweep socket-buffer --transport quic",
            "write-size and streams work",
        ),
        ("--sweep message-size --transport quic", "not over quic"),
        (
            "--observer iperf3 --transport quic",
            "leave it out with --transport quic",
        ),
        ("--sweep streams --spin", "hold for messages"),
        ("--sweep streams --outstanding 4", "hold for messages"),
        (
            "--sweep mtu --observer iperf3",
            "iperf3 does not go with --sweep mtu",
        ),
        (
            "--sweep message-size --udp 1Mb/s --observer iperf3",
            "does not go with --sweep over udp",
        ),
        ("--sweep message-size --sweep sender=near", "goes alone"),
        ("--sweep sender=near", "goes beside another"),
        (
            "--sweep mtu --sweep sender=nobody",
            "'nobody' is no host of the lab",
        ),
        ("--sweep message-size --observer tshark", "tshark"),
        ("--sweep message-size --messages 4", "cannot be used with"),
        ("--outstanding 4", "--messages"),
    ] {
        let mut command = scratch.goodput(&["measure", "lab:gigabit-metro"]);
        command.args(typed.split(' '));
        scratch.run(command).fails_with(2, &[says]);
    }
    let costly = "title = \"x\"\n[hosts.near]\nwrite_cost = \"5us\"\n[hosts.far]\n[links.l]\n\
                  between = [\"near\", \"far\"]\n";
    scratch.write("costly.toml", costly);
    let mut command = scratch.goodput(&["measure", "lab:costly.toml"]);
    command.args(["--sweep", "message-size"]);
    scratch
        .run(command)
        .fails_with(2, &["messages do not spend"]);
    assert!(crate::support::run_folders(&scratch.runs()).is_empty());
}

#[test]
fn a_sweep_of_senders_has_a_curve_by_name_for_each() {
    let _alone = lab_alone();
    let scratch = Scratch::new();
    let mut command = scratch.goodput(&["measure", "lab:cray-writes", "-d", "100ms", "--json"]);
    command.args(["--budget", "1ms", "--sweep", "sender=unicos,linux"]);
    command.args(["--sweep", "write-size=8KiB,64KiB"]);
    let ended = scratch.run(command);
    assert!([0, 1].contains(&ended.code()), "{ended:#?}");
    let run = ended.json();
    let sweep = &run["sweep"];
    // Curves are drawn over the sizes, whichever was typed first.
    assert_eq!(sweep["axes"][0]["name"], "write-size");
    assert_eq!(
        sweep["axes"][1]["names"],
        serde_json::json!(["unicos", "linux"])
    );
    let points = sweep["points"].as_array().unwrap();
    let settings: Vec<&Value> = points.iter().map(|p| &p["settings"]).collect();
    let asked = [[8192, 1], [65_536, 1], [8192, 2], [65_536, 2]].map(|s| serde_json::json!(s));
    assert_eq!(settings, asked.each_ref());
    let curves = sweep["curves"].as_array().unwrap();
    let names: Vec<&Value> = curves.iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["unicos", "linux"]);
    scratch.assert_nothing_left();
}

#[test]
fn measure_and_serve_find_each_other_and_runs_compare() {
    let scratch = Scratch::new();
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let serving = scratch.start(scratch.goodput(&["serve", "--listen", listen]));
        let said = serving.stderr_when("for other machines");
        let address = address_of(&said);
        for direction in ["up", "down"] {
            let options = ["-d", "600ms", "--ramp", "100ms", "--direction", direction];
            let mut command = scratch.goodput(&["measure", &address, "--json"]);
            command.args(options);
            let ended = scratch.run(command);
            // Loopback is fast, not explained: a verdict is not owed, the number is.
            assert!([0, 1].contains(&ended.code()), "{ended:#?}");
            let run = ended.json();
            assert_eq!(run["state"], "done");
            assert_eq!(run["phases"][0]["direction"], direction);
            assert!(
                run["phases"][0]["goodput_bits_per_second"]
                    .as_u64()
                    .unwrap()
                    > 0
            );
        }
        serving.signal("INT");
        serving.end().succeeds();
    }
    let runs = crate::support::run_folders(&scratch.runs());
    assert_eq!(runs.len(), 4);
    let names: Vec<&str> = runs.iter().map(|r| r.to_str().unwrap()).collect();
    let mut command = scratch.goodput(&["report"]);
    command.args(&names[..2]).args(["--output", "both.html"]);
    let ended = scratch.run(command);
    assert!(ended.succeeds().stdout.contains("both.html"));
    assert_self_contained(&scratch.path("both.html"));
    for folder in [&names[..1], &names[..2]] {
        let mut command = scratch.goodput(&["report", "-o", "no/such.html"]);
        command.args(folder);
        let says = ["cannot write no/such.html", "No such file", "--output"];
        scratch.run(command).fails_with(3, &says);
    }
    let again = scratch.run(scratch.goodput(&["report", names[0]]));
    assert!(again.succeeds().stdout.contains("goodput"));
    assert_self_contained(&runs[0].join("report.html"));
    scratch.assert_nothing_left();
}

/// A log: 30 of 40 segments of a UDP flow find the queue of `wan` full; nothing comes back.
pub(crate) fn write_log(file: &Path) {
    let link = |from: &str, to: &str| LinkLegend {
        name: "wan".to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
        stages: vec!["queue".to_owned()],
    };
    let legend = Legend {
        links: vec![link("near", "far"), link("far", "near")],
        ..Legend::new("One <flow> too many", 0)
    };
    let (mut logger, writer) = Logger::create(file, &legend).unwrap();
    // Ethernet, IPv4 from 10.0.0.1 to 10.0.0.2, UDP from port 7000 to 9.
    let mut captured = [0; 42];
    captured[12..14].copy_from_slice(&[8, 0]);
    captured[14] = 0x45;
    captured[23] = 17;
    captured[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    captured[34..38].copy_from_slice(&[0x1b, 0x58, 0, 9]);
    logger.frame(&FrameRecord {
        segments: 40,
        flow: 77,
        captured: &captured,
        ..FrameRecord::default()
    });
    for (decision, first, count) in [(Code::QUEUED, 0, 10), (Code::QUEUE_FULL, 10, 30)] {
        logger.row(&Row {
            queue_bytes: 15_380,
            wire_bytes: 1_538,
            flow: 77,
            decision,
            first,
            count,
            ..Row::default()
        });
    }
    drop(logger);
    writer.finish().unwrap();
}

#[test]
fn a_packet_log_is_drawn_beside_itself() {
    let scratch = Scratch::new();
    write_log(&scratch.path("q.gplog"));
    let ended = scratch.run(scratch.goodput(&["report", "q.gplog"]));
    let said = &ended.succeeds().stdout;
    for says in [
        "wan: near → far dropped 30 of 40 segments (75 %): queue_full",
        "queue at most 15.38 kB, dropped 30 queue_full",
        "Report: q.html",
    ] {
        assert!(said.contains(says), "{said}");
    }
    assert_self_contained(&scratch.path("q.html"));
    let page = fs::read_to_string(scratch.path("q.html")).unwrap();
    assert!(page.contains("udp 10.0.0.1:7000 → 10.0.0.2:9: 30 of 40 segments dropped"));
    assert!(page.contains("One &lt;flow&gt; too many") && !page.contains("<flow>"));
    assert!(!page.contains("has no end"));

    // What an interrupted lab leaves.
    let bytes = fs::read(scratch.path("q.gplog")).unwrap();
    fs::write(scratch.path("cut.gplog"), &bytes[..bytes.len() - 8]).unwrap();
    let ended = scratch.run(scratch.goodput(&["report", "cut.gplog", "-o", "other.html"]));
    let said = &ended.succeeds().stdout;
    assert!(
        said.contains("has no end") && said.contains("cut at byte"),
        "{said}"
    );
    assert_self_contained(&scratch.path("other.html"));
    scratch.assert_nothing_left();
}

#[test]
fn a_log_that_cannot_be_drawn_is_refused_with_what_to_do() {
    let scratch = Scratch::new();
    let log = scratch.path("q.gplog");
    write_log(&log);
    let before = fs::read(&log).unwrap();
    // No bytes are behind this size.
    let big = scratch.write("big.gplog", "GPLOG1\0\0");
    let big = fs::OpenOptions::new().write(true).open(big).unwrap();
    big.set_len((2 << 30) + 1).unwrap();
    scratch.write("run.json", "{}");
    // One queue more than are drawn, each with what it dropped.
    let (mut logger, writer) =
        Logger::create(&scratch.path("many.gplog"), &Legend::new("", 0)).unwrap();
    for link in 0..2_049 {
        logger.row(&Row {
            link,
            decision: Code::QUEUE_FULL,
            count: 1,
            ..Row::default()
        });
    }
    drop(logger);
    writer.finish().unwrap();
    for (args, says) in [
        (
            &["big.gplog"][..],
            &["larger than 2 GiB", "goodput lab log", "--csv"][..],
        ),
        (
            &["many.gplog"],
            &["more queues", "goodput lab log", "--csv"],
        ),
        (&["run.json"], &["run.json", "GPLOG1", "run's folder"]),
        (&["q.gplog", "q.gplog"], &["drawn alone"]),
        (
            &["q.gplog", "-o", "q.gplog"],
            &["the log itself", "--output"],
        ),
    ] {
        let mut command = scratch.goodput(&["report"]);
        command.args(args);
        scratch.run(command).fails_with(2, says);
    }
    assert_eq!(fs::read(&log).unwrap(), before);
}

#[test]
fn the_board_has_forty_seven_rows() {
    let scratch = Scratch::new();
    let ended = scratch.run(scratch.goodput(&["reproduce", "--json"]));
    let board = ended.succeeds().json();
    let rows = board["rows"].as_array().or(board.as_array()).unwrap();
    assert_eq!(rows.len(), 47);
    let text = scratch.run(scratch.goodput(&["reproduce"]));
    for row in rows {
        let id = row["id"].as_str().unwrap();
        let shown = text.succeeds().stdout.lines().any(|line| {
            line.split(|c: char| !c.is_ascii_alphanumeric())
                .any(|word| word == id)
        });
        assert!(shown, "{id} in {}", text.stdout);
    }
    let ended = scratch.run(scratch.goodput(&["reproduce", "N1", "--show"]));
    assert!(ended.succeeds().stdout.contains("N1"));
}

#[test]
fn a_row_that_cannot_be_run_yet_says_what_is_missing() {
    let scratch = Scratch::new();
    let ended = scratch.run(scratch.goodput(&["reproduce", "C5"]));
    ended.fails_with(1, &["C5 cannot be run yet: "]);
    let (_, missing) = ended.stderr.split_once("yet: ").unwrap();
    assert!(missing.trim().len() > 10, "{ended:#?}");
}

#[test]
fn measure_speaks_iperf3_to_serve_in_every_direction() {
    let scratch = Scratch::new();
    let serving = scratch.start(scratch.goodput(&["serve", "--listen", "127.0.0.1:0"]));
    let address = address_of(&serving.stderr_when("for other machines"));
    let target = format!("iperf3://{address}");
    let measure = |scratch: &Scratch, options: &[&str]| {
        let mut command = scratch.goodput(&["measure", &target, "--time", "1s"]);
        command.args(options);
        scratch.run(command)
    };
    for (options, phases) in [
        (&["--json"][..], &["up"][..]),
        (&["--json", "--reverse"], &["down"]),
        (&["--json", "--bidir", "--streams", "2"], &["up", "down"]),
        (
            &["--json", "--bidir", "--udp", "20Mb/s", "--length", "1200B"],
            &["up", "down"],
        ),
    ] {
        let scratch = Scratch::new();
        let ended = measure(&scratch, options);
        ended.succeeds();
        let run = ended.json();
        assert_eq!(run["state"], "done");
        for (index, direction) in phases.iter().enumerate() {
            let phase = &run["phases"][index];
            assert_eq!(phase["direction"], *direction, "{options:?}");
            assert!(phase["goodput_bits_per_second"].as_u64().unwrap() > 0);
            let udp = options.contains(&"--udp");
            assert_eq!(phase["udp"]["packets"].is_u64(), udp, "{options:?}");
        }
        assert_eq!(run["phases"].as_array().unwrap().len(), phases.len());
        let folder = scratch.run_folder();
        let report = scratch.run(scratch.goodput(&["report", folder.to_str().unwrap()]));
        report.succeeds();
    }
    let ended = measure(&scratch, &["--format", "iperf3-json"]);
    ended.succeeds();
    let json = ended.json();
    assert!(json["end"]["sum_received"]["bytes"].as_u64().unwrap() > 0);
    assert_eq!(json["start"]["connecting_to"]["host"], address);
    serving.signal("INT");
    serving.end().succeeds();
    scratch.assert_nothing_left();
}

#[test]
fn transports_and_ways_of_sending_are_measured_and_kept() {
    let scratch = Scratch::new();
    let serving = scratch.start(scratch.goodput(&["serve", "--listen", "127.0.0.1:0"]));
    let address = address_of(&serving.stderr_when("for other machines"));
    let measured = |options: &[&str]| {
        let scratch = Scratch::new();
        let mut command = scratch.goodput(&["measure", &address, "--time", "500ms", "--json"]);
        command.args(options);
        let ended = scratch.run(command);
        ended.succeeds();
        let folder = scratch.run_folder();
        let report = scratch.run(scratch.goodput(&["report", folder.to_str().unwrap()]));
        report.succeeds();
        (ended.json()["phases"][0].clone(), ended.stderr)
    };
    let (phase, _) = measured(&["--udp", "8Mb/s", "--length", "1000B", "--reverse"]);
    assert_eq!(phase["transport"], "udp");
    let sent = phase["udp"]["packets"].as_u64().unwrap();
    assert!(sent > 0 && sent <= 500 + 64, "{sent}");
    assert_eq!(phase["udp"]["datagram_bytes"], 1_000);
    // No loss is too much, so that the search ends where this machine does.
    let options = [
        "--udp",
        "search",
        "--loss-limit",
        "99%",
        "--length",
        "1000B",
    ];
    let (phase, told) = measured(&options);
    let search = &phase["udp"]["search"];
    let trials = search["trials"].as_array().unwrap();
    assert!(trials.len() > 5, "{search}");
    assert_eq!(told.matches("trial ").count(), trials.len(), "{told}");
    let found = search["found_bits_per_second"].as_u64().unwrap();
    let passed = |t: &&Value| t["passed"] == true;
    let best = trials
        .iter()
        .filter(passed)
        .filter_map(|t| t["rate_bits_per_second"].as_u64());
    assert_eq!(best.max(), Some(found));
    let (phase, _) = measured(&["--zero-copy", "--length", "64KiB"]);
    assert_eq!(phase["sending"], "zero-copy");
    assert_eq!(phase["zero_copy"]["sends"], phase["zero_copy"]["notified"]);
    assert!(
        phase["notes"][0]
            .as_str()
            .unwrap()
            .contains("kernel copied")
    );
    let (phase, _) = measured(&["--sendfile", "generated", "--reverse"]);
    assert_eq!(phase["sending"], "sendfile");
    let (phase, _) = measured(&["--transport", "mptcp", "--streams", "2"]);
    assert_eq!(phase["transport"], "mptcp");
    assert!(phase["notes"][0].as_str().unwrap().starts_with("MPTCP: "));
    let (phase, _) = measured(&["--transport", "tls", "--cipher", "chacha20-poly1305"]);
    assert_eq!(phase["transport"], "tls");
    assert!(
        phase["notes"][0]
            .as_str()
            .unwrap()
            .contains("chacha20-poly1305")
    );
    let (phase, _) = measured(&["--transport", "quic", "--streams", "2", "--reverse"]);
    assert_eq!(phase["transport"], "quic");
    assert_eq!(phase["congestion_control"], "cubic");
    assert_eq!(phase["quic"]["cipher"], "aes-128-gcm");
    assert!(phase["quic"]["packets_sent"].as_u64().unwrap() > 0);
    assert!(phase["quic"]["rtt_ns"].as_u64().unwrap() > 0);
    let notes = phase["notes"].to_string();
    for said in ["QUIC with aes-128-gcm and cubic", "packets lost", "per GB"] {
        assert!(notes.contains(said), "{notes}");
    }
    serving.signal("INT");
    serving.end().succeeds();
}

#[test]
fn quic_crosses_a_lab_path_with_losses_both_ways_over_either_family() {
    let _alone = lab_alone();
    for (near, far) in [("10.0.0.1/24", "10.0.0.2/24"), ("fd00::1/64", "fd00::2/64")] {
        let scratch = Scratch::new();
        let path = format!(
            "title = \"x\"\n[hosts.near]\naddresses = [\"{near}\"]\ncongestion_control = \"reno\"\n\
             [hosts.far]\naddresses = [\"{far}\"]\n[links.l]\nbetween = [\"near\", \"far\"]\n\
             rate = \"20Mb/s\"\ndelay = \"2ms\"\nqueue = \"100KB\"\nloss = 0.02\n"
        );
        scratch.write("lossy.toml", &path);
        for way in ["up", "down"] {
            let mut command = scratch.goodput(&["measure", "lab:lossy.toml", "-d", "1s"]);
            command.args([
                "--ramp",
                "0s",
                "--transport",
                "quic",
                "--json",
                "--direction",
                way,
            ]);
            let ended = scratch.run(command);
            assert!([0, 1].contains(&ended.code()), "{ended:#?}");
            let run = ended.json();
            let phase = &run["phases"][0];
            assert!(phase["bytes_received"].as_u64().unwrap() > 0, "{run:#}");
            let counted = |key: &str| phase["quic"][key].as_u64().unwrap();
            // Two in a hundred of some hundred packets, and the path's own round trip.
            assert!(counted("packets_lost") > 0, "{phase:#}");
            assert!(counted("congestion_events") > 0, "{phase:#}");
            assert!(counted("min_rtt_ns") >= 4_000_000, "{phase:#}");
            assert!(
                (1_200..=1_472).contains(&counted("packet_bytes")),
                "{phase:#}"
            );
            // A path file's congestion control is the kernel's.
            assert_eq!(phase["congestion_control"], "cubic");
        }
        scratch.assert_nothing_left();
    }
}

#[test]
fn what_iperf3_prints_is_printed_of_our_own_protocol_too() {
    let scratch = Scratch::new();
    let serving = scratch.start(scratch.goodput(&["serve", "--listen", "127.0.0.1:0"]));
    let address = address_of(&serving.stderr_when("for other machines"));
    let options = [
        "-d",
        "600ms",
        "--ramp",
        "0s",
        "--format",
        "iperf3-json",
        "--reverse",
    ];
    let mut command = scratch.goodput(&["measure", &address]);
    command.args(options);
    let json = scratch.run(command).json();
    assert_eq!(json["start"]["test_start"]["reverse"], 1);
    let sent = json["end"]["sum_sent"]["bytes"].as_u64().unwrap();
    assert_eq!(json["end"]["sum_received"]["bytes"].as_u64().unwrap(), sent);
    assert!(
        json["intervals"][0]["sum"]["bits_per_second"]
            .as_f64()
            .unwrap()
            > 0.0
    );
    serving.signal("INT");
    serving.end().succeeds();
}

#[test]
fn completions_and_the_manual_name_every_verb() {
    let scratch = Scratch::new();
    let verbs = ["doctor", "measure", "serve", "report", "reproduce"];
    for shell in ["bash", "zsh", "fish"] {
        let ended = scratch.run(scratch.goodput(&["completions", shell]));
        let text = &ended.succeeds().stdout;
        assert!(verbs.iter().all(|verb| text.contains(verb)), "{shell}");
    }
    let ended = scratch.run(scratch.goodput(&["man"]));
    let text = &ended.succeeds().stdout;
    assert!(text.contains(".TH goodput 1"), "{text}");
    assert!(verbs.iter().all(|verb| text.contains(verb)), "{text}");
}

#[test]
fn a_pipe_stays_quiet_unless_it_is_asked_to_be_live() {
    let scratch = Scratch::new();
    let serving = scratch.start(scratch.goodput(&["serve", "--listen", "127.0.0.1:0"]));
    let address = address_of(&serving.stderr_when("for other machines"));
    let measure = |more: &[&str]| {
        let mut command = scratch.goodput(&["measure", &address, "-d", "1200ms"]);
        command.args(more);
        let ended = scratch.run(command);
        assert!([0, 1].contains(&ended.code()), "{ended:#?}");
        ended
    };
    let quiet = measure(&[]);
    assert!(!quiet.stdout.contains("average"), "{}", quiet.stdout);
    assert_eq!(quiet.stderr, "");
    let live = measure(&["--live"]);
    let line = live.stdout.lines().next().unwrap();
    assert!(line.contains("now ") && line.contains("window "), "{line}");
    // Lines wrap where they must.
    let words: Vec<&str> = live.stdout.split_whitespace().collect();
    let said = words.join(" ");
    assert!(said.contains("CPU use of the hosts"), "{said}");
    assert!(said.contains("both ends on one machine"), "{said}");
    let aside = measure(&["--live", "--json"]);
    assert_eq!(aside.json()["state"], "done");
    assert!(aside.stderr.contains("now "), "{}", aside.stderr);
    for direction in ["up", "down"] {
        let objects = measure(&["--format", "jsonl", "--direction", direction]).stdout;
        let objects: Vec<Value> = objects
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let (last, intervals) = objects.split_last().unwrap();
        assert_eq!(last["event"], "result");
        assert_eq!(last["run"]["phases"][0]["direction"], direction);
        assert!(!intervals.is_empty());
        for interval in intervals {
            assert_eq!(interval["event"], "interval");
            assert_eq!(interval["rtt_us"].is_u64(), direction == "up");
            assert_eq!(interval["receive_rtt_us"].is_u64(), direction == "down");
        }
        let ends = last["run"]["phases"][0]["host_cost"]["ends"].as_array();
        assert_eq!(ends.unwrap().len(), 2);
    }
    serving.signal("INT");
    serving.end().succeeds();
}

#[test]
fn testers_along_a_path_are_a_phase_each_and_compared() {
    let scratch = Scratch::new();
    let start = || scratch.start(scratch.goodput(&["serve", "--listen", "127.0.0.1:0"]));
    let (a, far) = (start(), start());
    let address = |s: &crate::support::Running| address_of(&s.stderr_when("for other machines"));
    let (first, last) = (address(&a), address(&far));
    let typed = ["measure", &last, "--via", &first, "-d", "400ms", "--json"];
    let run = scratch.run(scratch.goodput(&typed)).json();
    let names: Vec<&Value> = run["phases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| &p["name"])
        .collect();
    assert_eq!(names, [&format!("to {first}"), &format!("to {last}")]);
    let legs = run["legs"].as_array().unwrap();
    assert_eq!(
        (legs[0]["from"].as_str(), legs[1]["to"].as_str()),
        (Some("here"), Some(&*last))
    );
    assert!(run["verdict"]["sentence"].as_str().unwrap().contains("leg"));
    assert_self_contained(&scratch.run_folder().join("report.html"));
    let twice = ["measure", &first, "--via", &first];
    scratch
        .run(scratch.goodput(&twice))
        .fails_with(2, &["twice"]);
    for serving in [a, far] {
        serving.signal("INT");
        serving.end().succeeds();
    }
}

#[test]
fn the_keys_of_all_files_are_explained_without_measuring() {
    let scratch = Scratch::new();
    let ended = scratch.run(scratch.goodput(&["measure", "--explain-columns"]));
    let text = ended.succeeds().stdout.clone();
    for key in [
        "run.json\n",
        "phases[].goodput_bits_per_second",
        "idle RTT",
        "interval.t_ns",
    ] {
        assert!(text.contains(key), "{key}");
    }
    assert!(!scratch.runs().exists());
}
