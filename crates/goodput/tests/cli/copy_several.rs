//! `goodput copy` over several addresses of an end, and to several hosts that see the same files. A script stands in ssh's
//! place: every host is this one, at an address of 127.0.0.0/8.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::support::{BINARY, Ended, Scratch, usable, with_own_mounts, with_own_network};

const RSH: &str = "#!/bin/sh\nhost=$1\nshift\n[ \"$host\" = gone ] && exit 255\nSSH_CONNECTION=\"127.0.0.1 1 $host 22\"\nexport SSH_CONNECTION\nGOODPUT_TEST_HOST=$host exec sh -c \"exec $*\"\n";

fn rsh(scratch: &Scratch) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let path = scratch.write("rsh", RSH);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn copy(scratch: &Scratch, args: &[&str]) -> Command {
    let rsh = rsh(scratch);
    let begin = ["copy", "-e", rsh.to_str().unwrap(), "--far-goodput", BINARY];
    scratch.goodput(&[&begin, args].concat())
}

fn bytes(n: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..n.div_ceil(8)).flat_map(|_| next()).collect();
    bytes.truncate(n);
    bytes
}

fn plant(scratch: &Scratch, large: usize) -> PathBuf {
    let from = scratch.path("from");
    fs::create_dir_all(from.join("a")).unwrap();
    for n in 0..50 {
        fs::write(from.join(format!("a/f{n}")), bytes(n * 300, n as u64)).unwrap();
    }
    fs::write(from.join("large"), bytes(large, 77)).unwrap();
    from
}

fn assert_same(from: &Path, to: &Path) {
    for name in (0..50)
        .map(|n| format!("a/f{n}"))
        .chain(["large".to_owned()])
    {
        let (there, here) = (fs::read(from.join(&name)), fs::read(to.join(&name)));
        assert!(there.unwrap() == here.unwrap(), "{name}");
    }
    assert_eq!(fs::read_dir(to).unwrap().count(), 2, "something is left");
}

/// What the run says that each way carried.
fn carried(ended: &Ended) -> String {
    let run = ended.json();
    let chosen = run["copy"]["chosen"].as_array().unwrap().clone();
    let carried = chosen
        .iter()
        .filter_map(|text| text.as_str()?.strip_prefix("carried over each: "));
    carried.collect::<Vec<_>>().join("; ")
}

#[test]
fn several_addresses_of_either_end_carry_a_copy_together() {
    let scratch = Scratch::new();
    let from = plant(&scratch, 12 << 20);
    let source = format!("{}/", from.display());
    for (name, flags, is_pull, ways) in [
        (
            "push",
            &["--addresses", "127.0.0.2,127.0.0.3"][..],
            false,
            &["127.0.0.2 ", "127.0.0.3 "][..],
        ),
        (
            "pull",
            &["--addresses", "127.0.0.2,127.0.0.3,127.0.0.4"],
            true,
            &["127.0.0.2 ", "127.0.0.3 ", "127.0.0.4 "],
        ),
        (
            "pairs",
            &[
                "--addresses",
                "127.0.0.2,127.0.0.3",
                "--from-addresses",
                "127.0.0.5,127.0.0.6",
            ],
            false,
            &["127.0.0.5 to 127.0.0.2 ", "127.0.0.6 to 127.0.0.3 "],
        ),
        // Of three, one is not the far host's.
        (
            "wrong",
            &["--addresses", "127.0.0.2,192.0.2.1,127.0.0.3"],
            false,
            &["127.0.0.2 ", "127.0.0.3 "],
        ),
    ] {
        let to = scratch.path(name);
        let far = |path: &str| format!("127.0.0.1:{path}");
        let (from_typed, to_typed) = match is_pull {
            true => (far(&source), to.display().to_string()),
            false => (source.clone(), far(to.to_str().unwrap())),
        };
        let begin = ["--json", "-s6", "--limit", "200Mb/s"];
        let args = [&begin[..], flags, &[&from_typed, &to_typed]].concat();
        let ended = scratch.run(copy(&scratch, &args));
        let said = carried(ended.succeeds());
        assert_same(&from, &to);
        for way in ways {
            assert!(said.contains(way), "{name}: {said}");
        }
        assert!(!said.contains(" 0.0 MB"), "{name}: {said}");
        let is_told = ended.stderr.contains("cannot listen at 192.0.2.1");
        assert_eq!(is_told, name == "wrong", "{name}: {}", ended.stderr);
    }
    // The far side connects, to both of this one's.
    let to = scratch.path("back");
    let far = format!("127.0.0.1:{}", to.display());
    let ways = ["--reverse", "--from-addresses", "127.0.0.5,127.0.0.6"];
    let args = [&ways[..], &["--json", "-s4", &source, &far]].concat();
    scratch.run(copy(&scratch, &args)).succeeds();
    assert_same(&from, &to);
    // The same over QUIC, with a line for each connection.
    let to = scratch.path("back-quic");
    let far = format!("127.0.0.1:{}", to.display());
    let begin = [
        "--transport",
        "quic",
        "--format",
        "jsonl",
        "--limit",
        "60Mb/s",
        "-s4",
    ];
    let args = [&ways[..], &begin, &[&source, &far]].concat();
    let ended = scratch.run(copy(&scratch, &args));
    assert_same(&from, &to);
    let events = ended.succeeds().stdout.lines();
    let events: Vec<serde_json::Value> = events
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let intervals = events.iter().filter(|event| event["event"] == "interval");
    let told: Vec<&serde_json::Value> = intervals
        .filter_map(|event| event["quic"].as_array())
        .flatten()
        .collect();
    // A line is an interval's, in which a connection may have sent nothing.
    let mut packets = [0; 4];
    for one in told {
        let stream = one["stream"].as_u64().unwrap();
        packets[usize::try_from(stream).unwrap()] += one["packets_sent"].as_u64().unwrap();
    }
    assert!(packets.iter().all(|&sent| sent > 0), "{packets:?}");
    scratch.assert_nothing_left();
}

#[test]
fn hosts_that_see_the_same_files_take_a_copy_together() {
    let scratch = Scratch::new();
    let from = plant(&scratch, 12 << 20);
    let source = format!("{}/", from.display());
    for (name, flags, far_source) in [
        ("push", &[][..], false),
        ("verify", &["--verify", "--no-fsync"], false),
        ("quic", &["--transport", "quic"], false),
        ("third", &[], true),
    ] {
        let source = match far_source {
            true => format!("127.0.0.9:{source}"),
            false => source.clone(),
        };
        // Slower, where all was done before the last host was there to help.
        let said = ["200Mb/s", "40Mb/s", "8Mb/s"].iter().find_map(|limit| {
            let to = scratch.path(&format!("{name}-{}", limit.trim_end_matches("Mb/s")));
            let far = format!("127.0.0.1,127.0.0.2,127.0.0.3:{}", to.display());
            let begin = ["--json", "-s6", "--limit", limit];
            let args = [&begin[..], flags, &[&source, &far]].concat();
            let ended = scratch.run(copy(&scratch, &args));
            ended.succeeds();
            assert_same(&from, &to);
            if far_source {
                return Some(String::new());
            }
            let carrier = ended.json()["copy"]["transport"].clone();
            assert_eq!(carrier == "quic", name == "quic", "{carrier}");
            Some(carried(&ended)).filter(|said| !said.contains(" 0.0 MB"))
        });
        let said = said.unwrap_or_else(|| panic!("{name}: a host carried nothing"));
        for host in ["127.0.0.1 ", "127.0.0.2 ", "127.0.0.3 "] {
            assert!(far_source || said.contains(host), "{name}: {said}");
        }
    }
    // From hosts that see the same files, to here.
    let to = scratch.path("pull");
    let far = format!("127.0.0.1,127.0.0.2,127.0.0.3:{source}");
    let args = ["--json", "-s6", &far, to.to_str().unwrap()];
    let ended = scratch.run(copy(&scratch, &args));
    let said = carried(ended.succeeds());
    assert_same(&from, &to);
    // Who carried how much is theirs to settle; together it is all of it.
    let each: Vec<(&str, f64)> = said
        .split(", ")
        .map(|each| {
            let (host, megabytes) = each.split_once(' ').unwrap();
            let megabytes = megabytes.strip_suffix(" MB").unwrap();
            (host, megabytes.parse().unwrap())
        })
        .collect();
    let hosts: Vec<&str> = each.iter().map(|(host, _)| *host).collect();
    assert_eq!(hosts, ["127.0.0.1", "127.0.0.2", "127.0.0.3"], "{said}");
    let all = (12 << 20) as f64 / 1e6 + (0..50).map(|n| n as f64 * 300e-6).sum::<f64>();
    let carried: f64 = each.iter().map(|(_, megabytes)| megabytes).sum();
    assert!(carried > all - 0.2, "{said}, of {all} MB");
    // A new name for one file, and a host that is not there.
    let to = scratch.path("renamed");
    let file = from.join("large");
    let far = format!("127.0.0.1,127.0.0.2,gone:{}", to.display());
    let ended = scratch.run(copy(&scratch, &[file.to_str().unwrap(), &far]));
    ended.succeeds();
    assert!(fs::read(&file).unwrap() == fs::read(&to).unwrap());
    assert!(
        ended.stderr.contains("gone does not help"),
        "{}",
        ended.stderr
    );
    scratch.assert_nothing_left();
}

/// The far side of a host, if it runs.
fn agent(scratch: &Scratch, host: &str) -> Option<String> {
    let dir = scratch.path("").display().to_string();
    let dir = dir.trim_end_matches('/');
    fs::read_dir("/proc").unwrap().find_map(|entry| {
        let id = entry
            .unwrap()
            .file_name()
            .into_string()
            .ok()
            .filter(|id| id.bytes().all(|byte| byte.is_ascii_digit()))?;
        let read = |what: &str| fs::read(format!("/proc/{id}/{what}")).unwrap_or_default();
        let environment = read("environ");
        let environment = String::from_utf8_lossy(&environment);
        let is_its = environment
            .split('\0')
            .any(|line| line == format!("GOODPUT_TEST_HOST={host}"));
        let is_agent = read("cmdline").starts_with(format!("{BINARY}\0agent").as_bytes());
        (is_agent && is_its && environment.contains(dir)).then_some(id)
    })
}

/// Bytes of the journal of a copy under way.
fn journalled(to: &Path) -> u64 {
    let folders = fs::read_dir(to).into_iter().flatten().flatten();
    let journals = folders.filter_map(|folder| fs::metadata(folder.path().join("journal")).ok());
    journals.map(|journal| journal.len()).max().unwrap_or(0)
}

/// Kills the far side of a host while it copies to a folder, once the journal has blocks; `None` where it was done before.
///
/// It runs in slices until then, so that it cannot end between two looks at the journal.
fn killed(scratch: &Scratch, victim: &str, to: &Path, args: &[&str]) -> Option<Ended> {
    let mut running = scratch.start(copy(scratch, args));
    let mut found = None;
    while found.is_none() && !running.has_ended() {
        found = agent(scratch, victim);
        thread::sleep(Duration::from_millis(1));
    }
    let signal = |name: &str| {
        let id = found.as_ref()?;
        let sent = Command::new("kill").args([name, id]).status().unwrap();
        sent.success().then_some(())
    };
    // From when the journal has blocks.
    while journalled(to) < 4000 && !running.has_ended() && signal("-CONT").is_some() {
        thread::sleep(Duration::from_millis(10));
        signal("-STOP");
    }
    let was_there = signal("-KILL").is_some();
    let ended = running.end();
    assert!(!ended.stderr.contains("panicked"), "{ended:#?}");
    // Without its leader no copy succeeds: it had said its last word.
    let was_done = victim == "127.0.0.1" && ended.code() == 0;
    (was_there && !was_done).then_some(ended)
}

#[test]
fn hosts_are_killed_and_the_copy_goes_on_or_is_resumed() {
    let scratch = Scratch::new();
    let from = plant(&scratch, 24 << 20);
    let source = format!("{}/", from.display());
    for victim in ["127.0.0.2", "127.0.0.1"] {
        // Half as fast each time that it was done before it was seen: where others have the CPUs, looks are rare.
        let mut tries = (0..6).map(|n| 60 >> n).filter_map(|megabits| {
            let to = scratch.path(&format!("to-{victim}-{megabits}"));
            let far = format!("127.0.0.1,127.0.0.2,127.0.0.3:{}", to.display());
            let limit = format!("{megabits}Mb/s");
            let args = ["-s6", "--block", "64KiB", "--limit", &limit, &source, &far];
            let ended = killed(&scratch, victim, &to, &args)?;
            Some((ended, to, far))
        });
        let (ended, to, far) = tries.next().expect("it was always done before");
        if victim == "127.0.0.1" {
            // Whoever leads has the journal: the same command goes on.
            assert_ne!(ended.code(), 0);
            let ended = scratch.run(copy(&scratch, &["--json", &source, &far]));
            let resumed = ended.succeeds().json()["copy"]["resumed_bytes"].as_u64();
            assert!(resumed.unwrap() > 0);
        } else {
            ended.succeeds();
        }
        assert_same(&from, &to);
    }
    scratch.assert_nothing_left();
}

#[test]
fn what_does_not_go_together_is_told() {
    let scratch = Scratch::new();
    let from = plant(&scratch, 1000);
    let source = from.to_str().unwrap();
    let there = scratch.path("to").display().to_string();
    let (far, hosts) = (
        format!("127.0.0.1:{there}"),
        format!("127.0.0.1,127.0.0.2:{there}"),
    );
    for (args, says) in [
        (
            &["--addresses", "127.0.0.2", source, &there][..],
            "between hosts",
        ),
        (&["--addresses", "all,127.0.0.2", source, &far], "alone"),
        (&["--addresses", "no.such.name.", source, &far], "has none"),
        (&["--addresses", "0.0.0.0", source, &far], "of one host"),
        (
            &["--through-ssh", "--addresses", "127.0.0.2", source, &far],
            "inside ssh",
        ),
        (&["--reverse", source, &hosts], "are for one"),
        (&["--limit", "1Mb/s", &hosts, source], "read by several"),
        (&[&hosts, &far], "name one of them"),
        (&[&hosts, &far, source], "on the same hosts"),
        (
            &["--reverse", "--addresses", "127.0.0.2", source, &far],
            "--from-addresses",
        ),
    ] {
        scratch.run(copy(&scratch, args)).fails_with(2, &[says]);
    }
    assert!(!scratch.path("to").exists());
}

#[test]
fn an_address_of_one_link_is_reached_by_the_interface_that_was_typed() {
    let Some(wrapper) = with_own_network() else {
        return;
    };
    let v6 = ["ip", "-6", "addr", "add", "fe80::7/64", "dev", "lo"];
    if usable(wrapper, &v6).is_none() {
        return;
    }
    let scratch = Scratch::new();
    let from = plant(&scratch, 1 << 20);
    rsh(&scratch);
    // The one that listens has it, too: both are this host.
    let script = r#"
        set -e
        ip link set lo up
        ip link add name v1 type veth peer name v2
        for n in 1 2; do ip addr add fe80::$n/64 dev v$n nodad; ip link set v$n up; done
        $GOODPUT copy --json -e "$DIR/rsh" --far-goodput "$GOODPUT" --addresses 'fe80::1%v1' from/ "127.0.0.1:$DIR/to"
        $GOODPUT copy -e "$DIR/rsh" --far-goodput "$GOODPUT" --reverse --from-addresses '[fe80::2%v2]' --addresses 'fe80::2%v2' \
            from/ "127.0.0.1:$DIR/back"
    "#;
    let ended = scratch.run(scratch.script(wrapper, script));
    ended.succeeds();
    for name in ["to", "back"] {
        assert_same(&from, &scratch.path(name));
    }
    scratch.assert_nothing_left();
}

#[test]
fn all_addresses_of_a_name_are_taken() {
    let Some(wrapper) = with_own_mounts() else {
        return;
    };
    let scratch = Scratch::new();
    let from = plant(&scratch, 12 << 20);
    rsh(&scratch);
    scratch.write("hosts", "127.0.0.2 twin.test\n127.0.0.3 twin.test\n");
    let script = r#"
        set -e
        mount --bind hosts /etc/hosts
        $GOODPUT copy --json -e "$DIR/rsh" --far-goodput "$GOODPUT" -s4 --limit 200Mb/s --addresses twin.test from/ "127.0.0.1:$DIR/to"
    "#;
    let ended = scratch.run(scratch.script(wrapper, script));
    let said = carried(ended.succeeds());
    assert!(
        said.contains("127.0.0.2 ") && said.contains("127.0.0.3 "),
        "{said}"
    );
    assert_same(&from, &scratch.path("to"));
    scratch.assert_nothing_left();
}

/// Two hosts with four links of 40 Mb/s between them; the far one's process is `$far`.
const FOUR_LINKS: &str = "
set -e
unshare -n sleep 300 & far=$!
trap 'kill $far' EXIT
while [ \"$(readlink /proc/$far/ns/net)\" = \"$(readlink /proc/$$/ns/net)\" ]; do sleep 0.01; done
there() { nsenter -t $far -n \"$@\"; }
for n in 1 2 3 4; do
  ip link add name u$n type veth peer name d$n netns $far
  ip addr add 10.77.$n.1/24 dev u$n
  there ip addr add 10.77.$n.2/24 dev d$n
  ip link set u$n up
  there ip link set d$n up
  tc qdisc add dev u$n root tbf rate ${RATE:-40mbit} burst 32kb latency 100ms
done
printf '#!/bin/sh\\nshift\\nexport SSH_CONNECTION=\"10.77.1.1 1 10.77.1.2 22\"\\nexec nsenter -t %s -n sh -c \"exec $*\"\\n' $far > rsh
chmod +x rsh
sent() { for n in 1 2 3 4; do cat /proc/net/dev | awk -v i=u$n: '$1 == i { print $10 }'; done | tr '\\n' ' '; }
";

#[test]
fn four_links_carry_a_share_each_by_the_kernels_own_count() {
    let Some(wrapper) = with_own_network() else {
        return;
    };
    let scratch = Scratch::new();
    let from = plant(&scratch, 12 << 20);
    let (source, to) = (format!("{}/", from.display()), scratch.path("to"));
    let script = format!(
        "cd {dir}\n{FOUR_LINKS}\n{BINARY} copy -e ./rsh --far-goodput {BINARY} --runs runs --addresses all {source} h:{to}\necho sent $(sent)\n",
        dir = scratch.path("").display(),
        to = to.display(),
    );
    let ended = scratch.run(scratch.script(wrapper, &script));
    ended.succeeds();
    assert_same(&from, &to);
    let sent = ended
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("sent "));
    let sent: Vec<u64> = sent
        .unwrap()
        .split(' ')
        .map(|count| count.parse().unwrap())
        .collect();
    // Each is as fast as the others.
    assert!(sent.iter().all(|bytes| *bytes > 1 << 20), "{sent:?}");
    assert!(
        ended
            .stderr
            .contains("connections are spread over 10.77.1.2 (d1), 10.77.2.2 (d2)")
    );
    scratch.assert_nothing_left();
}

#[test]
fn quic_carries_a_share_over_each_link_and_the_rest_goes_by_others_where_one_dies() {
    let Some(wrapper) = with_own_network() else {
        return;
    };
    let scratch = Scratch::new();
    let from = plant(&scratch, 32 << 20);
    let (source, to) = (format!("{}/", from.display()), scratch.path("to"));
    // The third is cut in silence, both ways, once some of it went over it.
    let script = format!(
        "cd {dir}\nRATE=5mbit\n{FOUR_LINKS}\n\
         ({BINARY} copy -e ./rsh --far-goodput {BINARY} --runs runs --json --transport quic -s8 --block 64KiB --addresses all {source} h:{to} > said) &\n\
         copies=$!\n\
         while kill -0 $copies && [ $(sent | cut -d' ' -f3) -lt 1500000 ]; do sleep 0.05; done\n\
         tc qdisc replace dev u3 root blackhole\nthere tc qdisc replace dev d3 root blackhole\n\
         echo cut $(sent)\nwait $copies\necho sent $(sent)\ncat said\n",
        dir = scratch.path("").display(),
        to = to.display(),
    );
    let ended = scratch.run(scratch.script(wrapper, &script));
    ended.succeeds();
    assert_same(&from, &to);
    let counts = |word: &str| -> Vec<u64> {
        let line = ended
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix(word));
        let line = line.unwrap().trim();
        line.split(' ')
            .map(|count| count.parse().unwrap())
            .collect()
    };
    let (cut, sent) = (counts("cut "), counts("sent "));
    assert!(sent.iter().all(|bytes| *bytes > 1 << 20), "{sent:?}");
    // From then on nothing leaves by it, and the others have the rest.
    assert_eq!(cut[2], sent[2], "{cut:?} {sent:?}");
    let of_others = |all: &[u64]| all[0] + all[1] + all[3];
    let (before, after) = (of_others(&cut), of_others(&sent));
    assert!(after > before + (8 << 20), "{cut:?} {sent:?}");
    let json = &ended.stdout[ended.stdout.find("\n{").unwrap()..];
    let run: serde_json::Value = serde_json::from_str(json).unwrap();
    let copy = &run["copy"];
    assert_eq!(copy["transport"], "quic", "{copy:#}");
    assert_eq!(copy["quic"].as_array().unwrap().len(), 8, "{copy:#}");
    let ways = copy["ways"].as_array().unwrap();
    assert_eq!(ways.len(), 4, "{ways:?}");
    assert!(
        ways.iter()
            .all(|way| way["carried_bytes"].as_u64() > Some(1 << 19))
    );
    assert!(ways[2]["failures"].as_u64() > Some(0), "{ways:?}");
    let chosen = copy["chosen"].to_string();
    assert!(chosen.contains("10.77.3.2: "), "{chosen}");
    scratch.assert_nothing_left();
}
