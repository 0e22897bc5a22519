//! `goodput tune`: undone from another process, after kills at any moment, byte for byte.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use sys::netlink::{Netlink, VethEnd};
use sys::netns::NetNs;
use units::Rng;

/// A namespace with a veth pair and a folder for its journal.
struct Place {
    ns: NetNs,
    state: PathBuf,
}

impl Place {
    fn new(name: &str) -> Option<Self> {
        let Ok(ns) = NetNs::create() else {
            testing::skipped("no privilege to make namespaces");
            return None;
        };
        ns.run(|| {
            let end = |name, mac| VethEnd {
                name,
                mac: [2, 0, 0, 0, 0, mac],
                netns: ns.as_fd(),
            };
            let mut netlink = Netlink::open().unwrap();
            netlink.add_veth(end("left", 1), end("right", 2)).unwrap();
            netlink.set_up("lo", None).unwrap();
        })
        .unwrap();
        let state =
            std::env::temp_dir().join(format!("goodput-cli-tune-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&state);
        Some(Self { ns, state })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_goodput"));
        command
            .arg("tune")
            .args(words)
            .arg("--state")
            .arg(&self.state);
        self.ns.place(&mut command).unwrap();
        command
    }

    fn tune(&self, words: &[&str]) -> (i32, String) {
        let output = self.command(words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap_or(-1), text)
    }

    fn state(&self) -> String {
        let output = self.command(&["status", "--json"]).output().unwrap();
        let state: Value = serde_json::from_slice(&output.stdout).unwrap();
        state["state"].as_str().unwrap().to_owned()
    }

    /// What sysctl, ip, tc and ethtool show.
    fn picture(&self) -> String {
        let mut text = String::new();
        for words in [
            "sysctl -a",
            "ip -d address show",
            "ip -d route show table all",
            "tc qdisc show",
            "ethtool -k left",
            "ethtool -c left",
        ] {
            let mut parts = words.split(' ');
            let mut command = Command::new(parts.next().unwrap());
            let output = self.ns.place(command.args(parts)).unwrap().output();
            match output {
                Ok(output) => text.push_str(&String::from_utf8_lossy(&output.stdout)),
                Err(e) => testing::skipped(format!("{words}: {e}")),
            }
        }
        // What the kernel changes by itself from one moment to the next.
        let moves = [
            "net.netfilter.nf_conntrack_count",
            "fs.",
            "kernel.",
            "vm.",
            "random.",
        ];
        let kept = text
            .lines()
            .filter(|line| !moves.iter().any(|begin| line.starts_with(begin)));
        kept.collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.state);
    }
}

#[test]
fn random_plans_killed_at_random_moments_leave_everything_as_it_was() {
    let Some(place) = Place::new("kills") else {
        return;
    };
    let rounds = std::env::var("GOODPUT_TUNE_ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(8);
    let seed = std::env::var("GOODPUT_TUNE_SEED")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(39);
    let mut rng = Rng::new(seed);
    let mut below = move |n: u64| rng.next_u64() % n;
    let offloads = ["tso", "gso", "gro"];
    let (mut interrupted, mut whole) = (0, 0);
    for round in 0..rounds {
        // Something to turn on, other than what the kernel begins with.
        let switch = offloads[usize::try_from(below(3)).unwrap()];
        let value = ["0", "1"][usize::try_from(below(2)).unwrap()];
        place
            .ns
            .run(|| fs::write("/proc/sys/net/ipv4/tcp_sack", value))
            .unwrap()
            .unwrap();
        let mut off = Command::new("ethtool");
        off.args(["-K", "left", switch, "off"])
            .stderr(Stdio::null());
        let _ = place.ns.place(&mut off).unwrap().status();
        let before = place.picture();
        let rate = format!("{}Mb/s,{}ms", 10 + below(40_000), 1 + below(300));
        let role = ["dtn", "web", "gateway"][usize::try_from(below(3)).unwrap()];
        let words = ["apply", "--for", &rate, "--role", role, "--device", "left"];
        let mut child = place
            .command(&words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_micros(below(25_000)));
        let _ = child.kill();
        let _ = child.wait();
        match place.state().as_str() {
            "interrupted" => interrupted += 1,
            "applied" => whole += 1,
            _ => {}
        }
        if below(2) == 0 {
            let mut child = place
                .command(&["undo"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            thread::sleep(Duration::from_micros(below(25_000)));
            let _ = child.kill();
            let _ = child.wait();
        }
        let (code, text) = place.tune(&["undo"]);
        assert_eq!(code, 0, "seed {seed}, round {round}: {text}");
        assert!(
            place.picture() == before,
            "seed {seed}, round {round}, {words:?}"
        );
        let mut on = Command::new("ethtool");
        on.args(["-K", "left", switch, "on"]).stderr(Stdio::null());
        let _ = place.ns.place(&mut on).unwrap().status();
    }
    eprintln!(
        "{rounds} plans: {interrupted} interrupted, {whole} applied, others killed before they began"
    );
}

#[test]
fn a_second_tune_is_refused_while_one_changes_the_host() {
    let Some(place) = Place::new("lock") else {
        return;
    };
    let words = ["apply", "--for", "10Gb/s,85ms", "--device", "left"];
    assert_eq!(place.tune(&words).0, 0);
    let folder = fs::read_dir(&place.state)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let held = fs::File::options()
        .write(true)
        .open(folder.join("lock"))
        .unwrap();
    held.lock().unwrap();
    for words in [&words[..], &["undo"], &["confirm"]] {
        let (code, text) = place.tune(words);
        assert_eq!(code, 3, "{text}");
        assert!(
            text.contains("another goodput tune changes this host"),
            "{text}"
        );
    }
    // Looking on needs no lock.
    assert_eq!(place.state(), "applied");
    held.unlock().unwrap();
    assert_eq!(place.tune(&["undo"]).0, 0);
    assert_eq!(place.state(), "nothing");
}

#[test]
fn what_is_not_confirmed_is_undone_though_the_one_who_applied_is_gone() {
    let Some(place) = Place::new("confirm") else {
        return;
    };
    let before = place.picture();
    let words = [
        "apply",
        "--for",
        "10Gb/s,85ms",
        "--device",
        "left",
        "--confirm",
        "1s",
    ];
    assert_eq!(place.tune(&words).0, 0);
    let mut left = 600;
    while place.state() != "nothing" && left > 0 {
        left -= 1;
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(place.picture(), before);
    let words = [&words[..6], &["600s"]].concat();
    assert_eq!(place.tune(&words).0, 0);
    assert_eq!(place.state(), "unconfirmed");
    assert_eq!(place.tune(&["confirm"]).0, 0);
    assert_eq!(place.state(), "applied");
    let (code, text) = place.tune(&["verify"]);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("window scale of a fresh connection  13"),
        "{text}"
    );
    assert_eq!(place.tune(&["undo"]).0, 0);
    assert_eq!(place.picture(), before);
    end_watchers(&place.state);
}

/// The process that would undo a confirmed plan sleeps on: it is this test's to end.
fn end_watchers(state: &Path) {
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.contains("revert") && line.contains(&*state.to_string_lossy()) {
            let name = entry.file_name();
            let _ = Command::new("kill").arg(name).status();
        }
    }
}

#[test]
fn a_plan_needs_no_privilege_and_says_so_to_programs_too() {
    let root = std::env::temp_dir().join(format!("goodput-cli-tune-root-{}", std::process::id()));
    let net = root.join("proc/sys/net/ipv4");
    fs::create_dir_all(&net).unwrap();
    fs::write(net.join("tcp_rmem"), "4096 131072 6291456\n").unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_goodput"));
        command
            .arg("tune")
            .args(words)
            .arg("--root")
            .arg(&root)
            .output()
            .unwrap()
    };
    let output = run(&["--for", "10Gb/s,85ms", "--json", "--judge", "nasa-2007"]);
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan["steps"][0]["new"], "4096 131072 356515840");
    assert_eq!(plan["judged"].as_array().unwrap().len(), 7);
    let output = run(&["--for", "10Gb/s,85ms", "--as", "sysctl"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("net.ipv4.tcp_rmem = 4096 131072 356515840\n"),
        "{text}"
    );
    for (words, code) in [
        (&["--for", "fast"][..], 2),
        (&["--for", "1Gb/s,0ms"], 2),
        (&["--from", "/no/such/run", "--json"], 2),
        (&["--device", "no-such-if"], 2),
        (&["verify"], 1),
        (&["confirm"], 1),
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(code), "{words:?}");
        if words.contains(&"--json") {
            let failure: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(failure["exit_code"], 2);
        }
    }
    fs::remove_dir_all(root).unwrap();
}
