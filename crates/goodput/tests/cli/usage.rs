//! Exit code 2: what was typed or written in a file makes no sense.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::{Scratch, as_nobody, is_root, run_folders};

#[test]
fn a_command_line_that_makes_no_sense_is_refused_with_what_was_expected() {
    let scratch = Scratch::new();
    for (args, says) in [
        (&["doctor", "--flag"][..], &["--flag", "Usage"][..]),
        (&["docter"], &["docter", "doctor"]),
        (&["measure", "x", "--streams", "0"], &["1..=128"]),
        (&["measure", "x", "--streams", "129"], &["1..=128"]),
        (&["measure", "x", "-d", "10"], &["no unit"]),
        (
            &["measure", "x", "-d", "10m"],
            &["unknown unit 'm'", "min, h"],
        ),
        (
            &["measure", "-c", "10.0.0.1", "-t", "10s"],
            &["-c is --congestion here", "goodput measure 10.0.0.1"],
        ),
        (&["doctor", "-c", "far"], &["give the host without a flag"]),
        (&["measure", "x", "-d", "10 furlongs"], &["furlongs"]),
        (&["measure", "x", "-d", "2s", "--ramp", "2s"], &["ramp"]),
        (&["measure", "x", "--direction", "left"], &["up", "down"]),
        (&["measure", "x", "--observer", "ping"], &["iperf3"]),
        (
            &["measure", "fe80::1"],
            &["fe80::1 is link-local: name the interface, such as fe80::1%"],
        ),
        (
            &["measure", "fe80::1%eth0:5210"],
            &["in brackets, such as [fe80::1%eth0]:5210"],
        ),
        (
            &["measure", "iperf3://[fe80::1%no-such]"],
            &["no interface 'no-such'"],
        ),
        (
            &["measure", "http://x"],
            &["'http://' is not accepted here"],
        ),
        (
            &["measure", "x", "--bind", "fe80::dead"],
            &["name the interface, such as fe80::dead%"],
        ),
        (
            &["measure", "x", "--bind", "127.0.0.1:7"],
            &["without the port 7"],
        ),
        (
            &["serve", "--listen", "fe80::dead"],
            &["--listen 'fe80::dead'", "name the interface"],
        ),
        (&["serve", "--listen", "far"], &["an address, not a name"]),
        (
            &["gateway", "--listen", "x", "--target", "127.0.0.1:1"],
            &["an address, not a name"],
        ),
        (
            &["copy", "goodput://[fe80::1%eth0", "x"],
            &["']' is missing", "goodput://HOST:PORT/PATH"],
        ),
        (&["measure", "x", "--transport", "udp"], &["--udp search"]),
        (
            &["measure", "x", "--transport", "mptcp", "--udp", "1Mb/s"],
            &["udp only"],
        ),
        (
            &[
                "measure",
                "x",
                "--transport",
                "tcp",
                "--cipher",
                "aes-128-gcm",
            ],
            &["tls or quic only"],
        ),
        (
            &["measure", "x", "--transport", "quic", "--zero-copy"],
            &["zero-copy does not go with quic"],
        ),
        (
            &["measure", "x", "--transport", "quic", "--cc", "reno"],
            &["cubic, newreno, bbr"],
        ),
        (
            &["measure", "x", "--transport", "quic", "--udp", "1Mb/s"],
            &["udp only"],
        ),
        (
            &["measure", "iperf3://x", "--transport", "quic"],
            &["goodput serve"],
        ),
        (&["doctor", "x", "--transport", "quic"], &["--transport"]),
        (&["measure", "x", "--udp", "fast"], &["'search'"]),
        (
            &["measure", "x", "--udp", "search", "--loss-limit", "100%"],
            &["0.1%"],
        ),
        (
            &["measure", "x", "--udp", "search", "--loss-limit", "1"],
            &["0.1%"],
        ),
        (
            &["measure", "x", "--udp", "1Mb/s", "--length", "23B"],
            &["24 B"],
        ),
        (
            &["measure", "x", "--udp", "5Mb/s", "-l", "65508B"],
            &["--length", "datagrams of 65508 B", "65507 B are the most"],
        ),
        (
            &["measure", "iperf3://x", "--udp", "5Mb/s", "-l", "128KiB"],
            &["datagrams of 131072 B"],
        ),
        (
            &["measure", "x", "--sendfile", "/no/such/file"],
            &["generated"],
        ),
        (
            &["measure", "iperf3://x", "--zero-copy"],
            &["goodput serve"],
        ),
        (
            &["measure", "iperf3://x", "--fill"],
            &["--fill", "goodput serve"],
        ),
        (
            &["measure", "iperf3://x", "--pacing", "window=1MB"],
            &["--pacing window=", "goodput serve"],
        ),
        (
            &["measure", "iperf3://x", "--balance"],
            &["name a lab path"],
        ),
        (
            &["doctor", "columbia-untuned"],
            &["say lab:columbia-untuned"],
        ),
        (&["doctor", "me@far:x"], &["goodput serve"]),
        (&["measure", "far:99999"], &["far:99999", "HOST:PORT"]),
        (
            &["serve", "--listen", "far.example"],
            &["--listen", "127.0.0.1"],
        ),
        (&["serve", "--clients", "0"], &["1..=1024"]),
        (&["serve", "--clients-per-address", "0"], &["1..=1024"]),
        (
            &["serve", "--metrics", "host:1"],
            &["--metrics", "127.0.0.1"],
        ),
        (&["serve", "--iperf3-open"], &["--token-file"]),
        (&["serve", "--token-file", "no-such"], &["no-such"]),
        (&["measure", "x", "--token-file", "no-such"], &["no-such"]),
        (
            &["measure", "iperf3://x", "--token-file", "t"],
            &["iperf3", "no token"],
        ),
        (&["measure", "x", "--dscp", "64"], &["0 to 63"]),
        (
            &["measure", "x", "--bind", "lo"],
            &["an address, not a name"],
        ),
        (&["measure", "x", "--device", ""], &["eth0"]),
        (
            &["measure", "lab:healthy-1g-20ms", "--bind", "127.0.0.1"],
            &["far hosts"],
        ),
        (&["report"], &["RUN"]),
        (&["report", "."], &["run.json"]),
        (&["report", "no-such-folder"], &["no-such-folder"]),
        (&["reproduce", "X9"], &["X9"]),
        (&["reproduce", "--show"], &["<ID>"]),
        (&["completions", "cmd"], &["bash", "fish"]),
    ] {
        let ended = scratch.run(scratch.goodput(args));
        ended.fails_with(2, says);
        assert!(ended.stdout.is_empty(), "{ended:#?}");
    }
    scratch.assert_nothing_left();
}

#[test]
fn a_path_that_is_not_there_is_refused_with_the_name_that_was_likely_meant() {
    let scratch = Scratch::new();
    for (typed, says) in [
        ("lab:tokyo", "names: tokyo-lfn-300ms, "),
        ("lab:colombia-untuned", "did you mean 'columbia-untuned'?"),
        ("lab:no/such.toml", "no path file 'no/such.toml'"),
    ] {
        let ended = scratch.run(scratch.goodput(&["doctor", typed]));
        ended.fails_with(2, &[says]);
        // A list of names is no help to who typed a file's.
        assert_eq!(
            ended.stderr.contains("the nearest of"),
            typed == "lab:tokyo"
        );
    }
    assert!(run_folders(&scratch.runs()).is_empty());
    scratch.assert_nothing_left();
}

#[test]
fn a_directory_is_no_path_file() {
    let scratch = Scratch::new();
    let ended = scratch.run(scratch.goodput(&["doctor", "lab:."]));
    ended.fails_with(2, &["cannot read the path file .", "not a regular file"]);
    assert!(run_folders(&scratch.runs()).is_empty());
}

#[test]
fn a_bad_path_file_is_refused_with_file_and_line() {
    let scratch = Scratch::new();
    for (text, says) in [
        ("title = 3\n", "line 1"),
        ("title = 'x'\n\nhosts = [\n", "line 3"),
        ("title = 'x'\nspeed = 1\n", "line 2"),
        ("\u{0}\u{1}", "line 1"),
    ] {
        scratch.write("bad.toml", text);
        let ended = scratch.run(scratch.goodput(&["doctor", "lab:bad.toml"]));
        ended.fails_with(2, &["bad.toml", says]);
    }
    fs::write(scratch.path("bad.toml"), [0xff, 0xfe]).unwrap();
    let ended = scratch.run(scratch.goodput(&["doctor", "lab:bad.toml"]));
    ended.fails_with(2, &["cannot read the path file bad.toml"]);
    assert!(run_folders(&scratch.runs()).is_empty());
    scratch.assert_nothing_left();
}

#[test]
fn a_path_file_without_permission_is_unreadable_for_others() {
    let scratch = Scratch::new();
    if !is_root() {
        testing::skipped("root of the lab's user namespace may read all that its own user owns");
        return;
    }
    let Some(wrapper) = as_nobody() else { return };
    let closed = scratch.path("closed");
    fs::create_dir(&closed).unwrap();
    for file in [
        scratch.write("mode.toml", "x"),
        scratch.write("closed/in.toml", "x"),
    ] {
        fs::set_permissions(&file, PermissionsExt::from_mode(0o000)).unwrap();
        fs::set_permissions(&closed, PermissionsExt::from_mode(0o000)).unwrap();
        let target = format!("lab:{}", file.display());
        let ended = scratch.run(scratch.within(wrapper, &["doctor", &target]));
        fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
        let name = file.display().to_string();
        ended.fails_with(2, &[&name, "Permission denied"]);
    }
}

#[test]
fn every_verb_has_an_example_in_its_help() {
    let scratch = Scratch::new();
    for verb in [
        "doctor",
        "measure",
        "sim",
        "fabric",
        "gateway",
        "serve",
        "report",
        "reproduce",
        "completions",
        "man",
    ] {
        let ended = scratch.run(scratch.goodput(&[verb, "--help"]));
        let help = &ended.succeeds().stdout;
        let (_, examples) = help.split_once("Examples:").expect(verb);
        assert!(examples.contains(&format!("goodput {verb}")), "{help}");
    }
}
