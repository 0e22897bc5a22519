//! `goodput copy`: what starts the far side is a script in ssh's place, so that both ends are this binary's.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ::copy::link::{VERSION, VERSION_OLDEST};

use crate::support::{BINARY, Scratch, usable, wait_until, with_own_mounts, with_own_network};

/// A script that takes a host and a command, and runs the command here in a shell of its own.
const RSH: &str = "#!/bin/sh\nshift\nSSH_CONNECTION='127.0.0.1 1 127.0.0.1 22'\nexport SSH_CONNECTION\nsh -c \"$*\"\n";

fn executable(scratch: &Scratch, name: &str, text: &str) -> PathBuf {
    let path = scratch.write(name, text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// `goodput copy` with a script in ssh's place.
fn copy(scratch: &Scratch, args: &[&str]) -> Command {
    let rsh = scratch.path("rsh");
    if !rsh.exists() {
        executable(scratch, "rsh", RSH);
    }
    let mut all = vec!["copy", "-e", rsh.to_str().unwrap(), "--far-goodput", BINARY];
    all.extend(args);
    scratch.goodput(&all)
}

#[test]
fn what_starts_a_shell_is_quoted_as_for_a_shell() {
    let scratch = Scratch::new();
    scratch.write("file", "some text");
    fs::create_dir(scratch.path("a folder")).unwrap();
    let checks = "[ \"$1\" = -o ] && [ \"$2\" = 'LogLevel ERROR' ] || exit 9\nshift 2\n";
    let script = RSH.replacen("shift\n", &format!("{checks}shift\n"), 1);
    let program = executable(&scratch, "a folder/rsh", &script);
    let far = format!("localhost:{}/", scratch.path("there").display());
    let quoted = format!("'{}' -o \"LogLevel ERROR\"", program.display());
    let copy = |rsh: &str| {
        let args = ["copy", "-e", rsh, "--far-goodput", BINARY, "file", &far];
        scratch.run(scratch.goodput(&args))
    };
    fs::create_dir(scratch.path("there")).unwrap();
    let ended = copy(&quoted);
    assert_eq!(ended.code(), 0, "{ended:#?}");
    assert_eq!(
        fs::read_to_string(scratch.path("there/file")).unwrap(),
        "some text"
    );
    for wrong in ["ssh -o 'LogLevel", "", " "] {
        copy(wrong).fails_with(2, &["--rsh", "LogLevel ERROR"]);
    }
}

/// Everything about a tree that a copy keeps.
fn tree(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::symlink_metadata(&path).unwrap();
            let what = if stat.is_symlink() {
                format!("-> {:?}", fs::read_link(&path).unwrap())
            } else {
                let time = format!("{:o} {}.{}", stat.mode(), stat.mtime(), stat.mtime_nsec());
                match stat.is_dir() {
                    true => {
                        folders.push(path.clone());
                        format!("folder {time}")
                    }
                    false => {
                        let bytes = fs::read(&path).unwrap();
                        format!("{:?} {time}", copy_sum(&bytes))
                    }
                }
            };
            all.insert(path.strip_prefix(top).unwrap().to_owned(), what);
        }
    }
    all
}

/// Length and a sum; nobody means harm here.
fn copy_sum(bytes: &[u8]) -> (usize, u64) {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    (bytes.len(), bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn bytes(n: usize, seed: u64) -> Vec<u8> {
    let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut bytes: Vec<u8> = (0..n.div_ceil(8))
        .flat_map(|_| chance.next().to_le_bytes())
        .collect();
    bytes.truncate(n);
    bytes
}

/// A small tree, and one larger file.
fn plant(scratch: &Scratch, large: usize) -> PathBuf {
    let top = scratch.path("from");
    fs::create_dir_all(top.join("a/b")).unwrap();
    for n in 0..40 {
        fs::write(top.join(format!("a/f{n}")), bytes(n * 300, n as u64)).unwrap();
    }
    fs::write(top.join("a/b/middle"), bytes(700_000, 3)).unwrap();
    fs::write(top.join("large"), bytes(large, 4)).unwrap();
    symlink("a/f1", top.join("link")).unwrap();
    top
}

#[test]
fn every_way_to_another_host_brings_the_same_tree() {
    let scratch = Scratch::new();
    let from = plant(&scratch, 3 << 20);
    let here = |name: &str| scratch.path(name).display().to_string();
    let source = format!("{}/", from.display());
    let far = |path: &str| format!("127.0.0.1:{path}");
    let ways: [(&str, Vec<String>); 6] = [
        ("push", vec![source.clone(), far(&here("push"))]),
        ("pull", vec![far(&source), here("pull")]),
        (
            "back",
            vec!["--reverse".into(), source.clone(), far(&here("back"))],
        ),
        (
            "pull-back",
            vec!["--reverse".into(), far(&source), here("pull-back")],
        ),
        (
            "inside",
            vec![
                "--through-ssh".into(),
                "-s2".into(),
                source.clone(),
                far(&here("inside")),
            ],
        ),
        (
            "third",
            vec![far(&source), format!("127.0.0.1:{}", here("third"))],
        ),
    ];
    for (name, args) in &ways {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let again = [&["--json"], &args[..]].concat();
        let run = scratch.run(copy(&scratch, &again)).succeeds().json();
        assert_eq!(tree(&from), tree(&scratch.path(name)), "{name}");
        // Each side tells where its time went.
        let ends = run["copy"]["ends"].as_array().expect("ends");
        let names: Vec<_> = ends.iter().map(|end| end["end"].as_str()).collect();
        assert_eq!(names, [Some("source"), Some("destination")], "{name}");
        for end in ends {
            let parts = ["disk", "sums", "link", "idle"].map(|part| end["time"][part].as_f64());
            let all: f64 = parts.iter().flatten().sum();
            assert!((all - 1.0).abs() < 1e-9, "{name}: {end}");
        }
        // Whichever side sends, its kernel tells of each connection; pipes have none.
        let connections = run["copy"]["connections"].as_array();
        let told = connections.map_or(0, Vec::len) as u64;
        let streams = run["copy"]["streams"].as_u64().unwrap();
        assert_eq!(
            told,
            if *name == "inside" { 0 } else { streams },
            "{name}: {run}"
        );
        // And there is nothing to do the second time.
        let run = scratch.run(copy(&scratch, &again)).succeeds().json();
        assert_eq!(run["copy"]["received_bytes"], 0, "{name}");
    }
    scratch.assert_nothing_left();
}

#[test]
fn quic_carries_blocks_where_it_is_asked_for_and_can() {
    let scratch = Scratch::new();
    let from = plant(&scratch, 3 << 20);
    let here = |name: &str| scratch.path(name).display().to_string();
    let source = format!("{}/", from.display());
    let far = |path: &str| format!("127.0.0.1:{path}");
    let ways: [(&str, Vec<String>); 5] = [
        ("here", vec![source.clone(), here("here")]),
        ("push", vec![source.clone(), far(&here("push"))]),
        ("pull", vec![far(&source), here("pull")]),
        (
            "back",
            vec!["--reverse".into(), source.clone(), far(&here("back"))],
        ),
        (
            "pull-back",
            vec!["--reverse".into(), far(&source), here("pull-back")],
        ),
    ];
    for (name, args) in &ways {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let args = [&["--json", "--transport", "quic", "-s2"], &args[..]].concat();
        let run = scratch.run(copy(&scratch, &args)).succeeds().json();
        assert_eq!(tree(&from), tree(&scratch.path(name)), "{name}");
        assert_eq!(run["copy"]["transport"], "quic", "{name}");
        assert_eq!(run["copy"]["failed"], 0, "{name}");
        // What was sent in the last turn of who moves packets may not be counted.
        let counted = run["copy"]["quic"].as_array().unwrap();
        let sum = |key: &str| {
            counted
                .iter()
                .map(|one| one[key].as_u64().unwrap())
                .sum::<u64>()
        };
        assert!(sum("sent_bytes") > 1 << 20, "{name}: {counted:?}");
        assert!(
            sum("packets_lost") < sum("packets_sent"),
            "{name}: {counted:?}"
        );
        assert!(sum("rtt_ns") > 0 && sum("congestion_window_bytes") > 0);
        for end in run["copy"]["ends"].as_array().unwrap() {
            assert!(end["quic_cpu_ns"].as_u64() > Some(0), "{name}: {end}");
        }
    }
    for (more, says) in [
        (&["--through-ssh"][..], "ssh carries no datagrams"),
        (&["--cipher", "none"], "always encrypts"),
        (&["--congestion", "cubic"], "of its own"),
    ] {
        let to = far("x");
        let args = [&["--transport", "quic"], more, &[&source, &to]].concat();
        scratch.run(copy(&scratch, &args)).fails_with(2, &[says]);
    }
    scratch.assert_nothing_left();
}

#[test]
fn a_dry_run_a_list_and_deletion_do_what_they_say() {
    let scratch = Scratch::new();
    let from = plant(&scratch, 1000);
    let (source, to) = (format!("{}/", from.display()), scratch.path("to"));
    let far = format!("127.0.0.1:{}", to.display());
    let run = scratch.run(copy(&scratch, &["-n", &source, &far]));
    run.succeeds();
    assert!(!to.exists());
    assert!(run.stderr.contains("would copy"), "{run:#?}");
    let list = scratch.write("list", "a/f1\na/b/middle\n");
    let list = list.to_str().unwrap();
    scratch
        .run(copy(&scratch, &["--files-from", list, &source, &far]))
        .succeeds();
    assert!(
        to.join("a/f1").exists() && to.join("a/b/middle").exists() && !to.join("large").exists()
    );
    // The list goes to where the source is; with it, what else is there stays there.
    let odd = b"a/f2\na/\xff\n./a/b/\n";
    fs::write(from.join(std::ffi::OsStr::from_bytes(b"a/\xff")), "odd").unwrap();
    let odd_list = scratch.path("odd-list");
    fs::write(&odd_list, odd).unwrap();
    let sums = scratch.path("sums").display().to_string();
    let from_far = format!("127.0.0.1:{source}");
    for (name, args) in [
        (
            "listed",
            vec![
                "--files-from",
                odd_list.to_str().unwrap(),
                "--manifest",
                &sums,
            ],
        ),
        (
            "listed-third",
            vec!["--files-from", odd_list.to_str().unwrap()],
        ),
    ] {
        let listed = scratch.path(name);
        let to = match name {
            "listed" => listed.display().to_string(),
            _ => format!("127.0.0.1:{}", listed.display()),
        };
        scratch
            .run(copy(&scratch, &[&args[..], &[&from_far, &to]].concat()))
            .succeeds();
        let names: Vec<_> = tree(&listed).into_keys().collect();
        let expected = [&b"a"[..], b"a/b", b"a/b/middle", b"a/f2", b"a/\xff"];
        let expected = expected.map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(name)));
        assert_eq!(names, expected, "{name}");
    }
    let sums = fs::read_to_string(sums).unwrap();
    let named: Vec<_> = sums.lines().map(|line| &line[66..]).collect();
    assert_eq!(named, ["a/b/middle", "a/f2"]);
    scratch
        .run(copy(
            &scratch,
            &["--files-from", list, "127.0.0.1:/nowhere/at/all", "x"],
        ))
        .fails_with(4, &["/nowhere/at/all"]);
    fs::remove_file(from.join(std::ffi::OsStr::from_bytes(b"a/\xff"))).unwrap();
    fs::write(to.join("extra"), b"x").unwrap();
    scratch
        .run(copy(&scratch, &["--delete", &source, &far]))
        .succeeds();
    assert_eq!(tree(&from), tree(&to));
    scratch.assert_nothing_left();
}

#[test]
fn what_goes_wrong_has_its_exit_code_and_its_words() {
    let scratch = Scratch::new();
    let from = plant(&scratch, 1000);
    let source = from.to_str().unwrap();
    let far = format!("127.0.0.1:{}", scratch.path("to").display());
    let rsh = executable(&scratch, "no-way", "#!/bin/sh\nexit 255\n");
    let start = |args: &[&str]| scratch.run(scratch.goodput(&[&["copy"], args].concat()));
    executable(&scratch, "rsh", RSH);
    let script = scratch.path("rsh").display().to_string();
    start(&[
        "-e",
        &script,
        "--far-goodput",
        "/nowhere/goodput",
        source,
        &far,
    ])
    .fails_with(
        4,
        &["there is no '/nowhere/goodput' on 127.0.0.1", "--push"],
    );
    start(&["-e", rsh.to_str().unwrap(), source, &far])
        .fails_with(4, &["did not get to 127.0.0.1"]);
    start(&["-e", "/nowhere/ssh", source, &far]).fails_with(3, &["/nowhere/ssh"]);
    scratch
        .run(copy(&scratch, &["/nowhere/at/all", &far]))
        .fails_with(2, &["/nowhere/at/all"]);
    scratch
        .run(copy(&scratch, &["127.0.0.1:/nowhere/at/all", "here"]))
        .fails_with(4, &["/nowhere/at/all"]);
    let all = format!("127.0.0.1:{source}/a/*");
    let hint = "names are not expanded on another host";
    let ended = scratch.run(copy(&scratch, &[&all, "here"]));
    ended.fails_with(4, &["/a/*", hint]);
    scratch
        .run(copy(
            &scratch,
            &[source, "127.0.0.1:/proc/nothing/is/made/here"],
        ))
        .fails_with(4, &["127.0.0.1: "]);
    scratch
        .run(copy(&scratch, &["-s2", "hostA:a", "hostB:b", &far]))
        .fails_with(2, &["must be on one host"]);
    // A lab's hosts have this host's disk.
    for to in [
        format!("{source}/a/copy"),
        format!("lab:dtn-100ms:{source}/a/copy/"),
    ] {
        let ended = scratch.run(copy(&scratch, &[source, &to]));
        ended.fails_with(2, &["is to be copied there"]);
    }
    // A far side that says nothing of the kind, and ends.
    let talks = executable(
        &scratch,
        "talks",
        "#!/bin/sh\necho Welcome\necho '{\"Ready\":5}'\nexit 0\n",
    );
    start(&["-e", talks.to_str().unwrap(), source, &far]).fails_with(4, &["ended before it began"]);
    // Another version of what is told to the far side.
    let mut agent = scratch.script(&[], "echo '{}' | $GOODPUT agent");
    agent.env("RUST_BACKTRACE", "0");
    scratch
        .run(agent)
        .fails_with(2, &["no job of this version"]);
    scratch.assert_nothing_left();
}

#[test]
fn the_key_is_told_once_and_stands_nowhere() {
    let scratch = Scratch::new();
    let from = plant(&scratch, 1 << 20);
    let told = scratch.path("told");
    // Keeps what the far side is told, and what others could see of both sides meanwhile.
    let script = format!(
        "#!/bin/sh\nshift\n(sleep 0.3; cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ > {0}-seen 2> /dev/null) &\n\
         {{ head -n 1 | tee {0}; cat; }} | sh -c \"$*\"\nwait\n",
        told.display()
    );
    let rsh = executable(&scratch, "listens", &script);
    let far = format!("127.0.0.1:{}", scratch.path("to").display());
    let args = [
        "copy",
        "-e",
        rsh.to_str().unwrap(),
        "--far-goodput",
        BINARY,
        "--limit",
        "10Mb/s",
    ];
    let mut command = scratch.goodput(&[&args[..], &[from.to_str().unwrap(), &far]].concat());
    command.env("RUST_LOG", "trace").env("GOODPUT_LOG", "trace");
    let ended = scratch.run(command);
    ended.succeeds();
    let job: serde_json::Value = serde_json::from_slice(&fs::read(&told).unwrap()).unwrap();
    let key = job["key"].as_str().unwrap().to_owned();
    assert_eq!(key.len(), 64);
    let mut seen = vec![fs::read(scratch.path("told-seen")).unwrap()];
    assert!(
        String::from_utf8_lossy(&seen[0]).contains("agent"),
        "nothing was seen"
    );
    seen.push(ended.stdout.into_bytes());
    seen.push(ended.stderr.into_bytes());
    for entry in fs::read_dir(scratch.run_folder()).unwrap() {
        seen.extend(fs::read(entry.unwrap().path()));
    }
    for text in seen {
        assert!(!text.windows(64).any(|part| part == key.as_bytes()));
    }
}

#[test]
fn a_source_that_is_only_asked_whether_it_is_one_file_answers_and_is_done() {
    let scratch = Scratch::new();
    let from = plant(&scratch, 1 << 20);
    let codes = scratch.path("codes");
    // Keeps how each far side ended.
    let script = format!(
        "#!/bin/sh\nshift\nsh -c \"$*\"\ncode=$?\necho $code >> {}\nexit $code\n",
        codes.display()
    );
    let rsh = executable(&scratch, "listens", &script);
    let (from, to) = (
        format!("localhost:{}", from.display()),
        format!("127.0.0.1:{}", scratch.path("to").display()),
    );
    let shell = ["-e", rsh.to_str().unwrap(), "--far-goodput", BINARY];
    let args = [&["copy"], &shell[..], &[&from, &to]].concat();
    scratch.run(scratch.goodput(&args)).succeeds();
    // Done, and neither stopped by the end of its input nor killed.
    let codes = fs::read_to_string(codes).unwrap();
    assert_eq!(codes.lines().next(), Some("0"), "{codes}");
}

#[test]
fn what_only_checks_what_arrives_makes_nothing() {
    let scratch = Scratch::new();
    let from = plant(&scratch, 1 << 20);
    let source = format!("{}/", from.display());
    let to = scratch.path("to").display().to_string();
    for (source, to) in [
        (source.clone(), to.clone()),
        (source.clone(), format!("127.0.0.1:{to}")),
        (format!("127.0.0.1:{source}"), to.clone()),
        // One file, and its name.
        (format!("{source}large"), format!("127.0.0.1:{to}")),
    ] {
        let args = ["--null-sink", "--json", &source, &to];
        let run = scratch.run(copy(&scratch, &args)).succeeds().json();
        assert!(run["copy"]["received_bytes"].as_u64() >= Some(1 << 20));
        assert_eq!(run["copy"]["null_sink"], true);
        let sentence = run["verdict"]["sentence"].as_str().unwrap();
        assert!(sentence.contains("nothing was written"), "{sentence}");
        assert!(!scratch.path("to").exists(), "{to}");
    }
    let args = ["--null-sink", "--delete", &source, &to];
    let refused = scratch.run(copy(&scratch, &args));
    assert_eq!(refused.code(), 2, "{refused:#?}");
    assert!(refused.stderr.contains("--delete"), "{refused:#?}");
}

/// Processes of this test by what they run: the client, the script, the far side.
fn victims(scratch: &Scratch) -> Vec<(i32, &'static str)> {
    let dir = scratch.path("").display().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let Ok(id) = entry.unwrap().file_name().to_string_lossy().parse::<i32>() else {
            continue;
        };
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        // Whole: another test's folder may begin with this one's name.
        let environment = String::from_utf8_lossy(&environment).replace('\0', "/");
        if !environment.contains(&dir) {
            continue;
        }
        let what = match line.split(' ').collect::<Vec<_>>()[..] {
            [program, "copy", ..] if program == BINARY => "client",
            [program, "agent", ..] if program == BINARY => "agent",
            ["/bin/sh", ..] => "script",
            _ => continue,
        };
        found.push((id, what));
    }
    found
}

/// Copies over and over, kills one of what runs at a moment of chance, and gives the same command again until it is done;
/// how many of each kind were killed.
fn kill_again_and_again(
    kills_wanted: usize,
    seed: u64,
    flags: &[&str],
) -> BTreeMap<&'static str, usize> {
    let scratch = Scratch::new();
    let from = plant(&scratch, 3 << 20);
    let source = format!("{}/", from.display());
    let mut chance = Chance(seed);
    let mut kills = BTreeMap::new();
    for round in 0.. {
        let to = scratch.path(&format!("to{round}"));
        let (near, far) = match chance.next() % 2 {
            0 => (source.clone(), format!("127.0.0.1:{}", to.display())),
            _ => (format!("127.0.0.1:{source}"), to.display().to_string()),
        };
        loop {
            let args = ["-s2", "--block", "64KiB", "--limit", "40Mb/s", &near, &far];
            let args = [flags, &args[..]].concat();
            let mut running = scratch.start(copy(&scratch, &args));
            let kind = ["client", "agent", "script"][usize::try_from(chance.next() % 3).unwrap()];
            let find = || {
                victims(&scratch)
                    .into_iter()
                    .find(|(_, what)| *what == kind)
            };
            // From when it is there: anything from the first handshake to the last rename.
            let mut victim = find();
            while victim.is_none() && !running.has_ended() {
                thread::sleep(Duration::from_millis(5));
                victim = find();
            }
            let at = Duration::from_millis(chance.next() % 500);
            let begun = Instant::now();
            while begun.elapsed() < at && !running.has_ended() {
                thread::sleep(Duration::from_millis(5));
            }
            if let (Some((id, _)), true) = (victim, kills.values().sum::<usize>() < kills_wanted)
                && find().is_some_and(|(now, _)| now == id)
            {
                let status = Command::new("kill").args(["-9", &id.to_string()]).status();
                if status.unwrap().success() {
                    *kills.entry(kind).or_insert(0_usize) += 1;
                }
            }
            let ended = running.end();
            assert!(!ended.stderr.contains("panicked"), "{ended:#?}");
            if ended.code() == 0 {
                break;
            }
        }
        // A far side whose client was killed takes a moment to end, and what it holds goes with it.
        scratch.assert_nothing_left();
        assert_eq!(tree(&from), tree(&to), "round {round}");
        if kills.values().sum::<usize>() >= kills_wanted {
            break;
        }
    }
    kills
}

#[test]
fn sender_receiver_and_shell_are_killed_fifty_times_and_the_same_command_goes_on() {
    let since = Instant::now();
    let lanes: Vec<_> = (0..5)
        .map(|lane| {
            // In one of them kills fall between fsync, journal and rename, too.
            let flags: &[&str] = match lane {
                0 => &["--transport", "tcp"],
                _ => &["--transport", "tcp", "--no-fsync"],
            };
            thread::spawn(move || kill_again_and_again(10, 2026 + lane * 77, flags))
        })
        .collect();
    let mut all = BTreeMap::new();
    for lane in lanes {
        for (kind, count) in lane.join().unwrap() {
            *all.entry(kind).or_insert(0) += count;
        }
    }
    println!("{all:?} in {:?}", since.elapsed());
    assert_eq!((all.len(), all.values().sum::<usize>()), (3, 50), "{all:?}");
}

#[test]
fn what_is_killed_over_quic_goes_on_too() {
    let kills = kill_again_and_again(9, 2027, &["--transport", "quic", "--no-fsync"]);
    assert_eq!(kills.values().sum::<usize>(), 9, "{kills:?}");
}

#[test]
fn a_disk_that_is_full_is_waited_for_until_it_has_room() {
    let Some(mounts) = with_own_mounts() else {
        return;
    };
    let scratch = Scratch::new();
    plant(&scratch, 6 << 20);
    executable(&scratch, "rsh", RSH);
    let script = r#"
        set -e
        mkdir -p small
        mount -t tmpfs -o size=12m tmpfs small
        dd if=/dev/zero of=small/filler bs=1M count=10 2> /dev/null
        $GOODPUT copy -e "$DIR/rsh" --far-goodput "$GOODPUT" from/ "127.0.0.1:$DIR/small/to" 2> said &
        copy=$!
        until grep -q 'disk is full' said; do kill -0 $copy; sleep 0.05; done
        rm small/filler
        wait $copy
        diff -r from small/to
        rm -r small/to
        dd if=/dev/zero of=small/filler bs=1M count=10 2> /dev/null
        mkdir -p small/to
    "#;
    scratch.run(scratch.script(mounts, script)).succeeds();
    scratch.assert_nothing_left();
}

#[test]
fn what_is_excluded_or_a_file_at_the_source_is_not_swept() {
    let scratch = Scratch::new();
    for (name, text) in [("data/keep/x", "1"), ("data/old.bak/x", "2"), ("log", "3")] {
        let path = scratch.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    for name in [
        "there/old.bak/precious",
        "there/keep/extra",
        "backup/log/precious",
    ] {
        let path = scratch.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "precious").unwrap();
    }
    let text = |name: &str| scratch.path(name).to_str().unwrap().to_owned();
    let args = [
        "--delete",
        "--exclude",
        "*.bak",
        &text("data/keep"),
        &text("data/old.bak"),
        &text("there/"),
    ];
    let ended = copy(&scratch, &args).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert!(scratch.path("there/old.bak/precious").exists());
    assert!(!scratch.path("there/keep/extra").exists());
    let args = ["--delete", &text("log"), &text("backup/log.old")];
    let ended = copy(&scratch, &args).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert!(scratch.path("backup/log/precious").exists());
    assert_eq!(
        fs::read_to_string(scratch.path("backup/log.old")).unwrap(),
        "3"
    );
}

#[test]
fn a_folder_that_somebody_else_made_is_not_pushed_into() {
    let scratch = Scratch::new();
    let folder = scratch.path("tmp");
    fs::create_dir_all(&folder).unwrap();
    fs::write(scratch.path("x"), "x").unwrap();
    let rsh = executable(
        &scratch,
        "rsh-tmp",
        &format!(
            "#!/bin/sh\nshift\nTMPDIR={}\nexport TMPDIR\nsh -c \"$*\"\n",
            folder.display()
        ),
    );
    let there = scratch.path("to/").to_str().unwrap().to_owned();
    let far = format!("127.0.0.1:{there}");
    let from = scratch.path("x");
    let args = [
        "copy",
        "-e",
        rsh.to_str().unwrap(),
        "--push",
        from.to_str().unwrap(),
        &far,
    ];
    let ended = scratch.goodput(&args).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let made: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    let [made] = &made[..] else {
        panic!("{made:?}")
    };
    assert_eq!(fs::metadata(made).unwrap().mode() & 0o777, 0o700);
    // A link to a program, or in the folder's place, is not run.
    let program = made.join("goodput");
    fs::remove_file(&program).unwrap();
    symlink("/bin/true", &program).unwrap();
    let ended = scratch.goodput(&args).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert!(!fs::symlink_metadata(&program).unwrap().is_symlink());
    let elsewhere = scratch.path("elsewhere");
    fs::rename(made, &elsewhere).unwrap();
    symlink(&elsewhere, made).unwrap();
    let ended = scratch.goodput(&args).output().unwrap();
    assert_eq!(ended.status.code(), Some(4), "{ended:?}");
}

/// Answers one greeting as a goodput whose protocol is of another version, or greets as one.
fn of_version(mut socket: TcpStream, version: u16, greets: bool) -> Vec<u8> {
    let mut said = b"GOODCOPY".to_vec();
    said.extend_from_slice(&[version.to_le_bytes(), version.to_le_bytes()].concat());
    // A greeting of nothing further; an answer that there is no version in common.
    said.extend_from_slice(&match greets {
        true => [0; 16 + 2 + 1 + 32 + 2].to_vec(),
        false => [&[1][..], &[0; 32]].concat(),
    });
    let mut heard = vec![0; if greets { 13 } else { 12 }];
    if !greets {
        socket.read_exact(&mut heard).unwrap();
    }
    socket.write_all(&said).unwrap();
    if greets {
        socket.read_exact(&mut heard).unwrap();
    }
    heard
}

#[test]
fn a_far_side_of_another_version_is_told_apart_before_anything_is_sent() {
    let scratch = Scratch::new();
    let from = scratch.write("file", "text").display().to_string();
    let mine = format!("this one {VERSION_OLDEST} to {VERSION}: bring the older one up to date");
    for version in [VERSION - 1, VERSION + 1] {
        let theirs =
            format!("the far side speaks versions {version} to {version} of the copy protocol");
        // It listens.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let script = format!(
            "#!/bin/sh\necho '{{\"Ready\":{{\"at\":\"{at}\",\"is_one_file\":false,\"speeds\":[]}}}}'\nexec cat > /dev/null\n"
        );
        let far = executable(&scratch, "listens", &script);
        let answers = thread::spawn(move || {
            while let Ok((socket, _)) = listener.accept() {
                of_version(socket, version, false);
            }
        });
        let args = [
            "copy",
            "-e",
            far.to_str().unwrap(),
            &from,
            "127.0.0.1:/nowhere",
        ];
        scratch
            .run(scratch.goodput(&args))
            .fails_with(4, &[&theirs, &mine]);
        drop(answers);
        // It connects, and ends when it has heard.
        let port = testing::free_port();
        let script = "#!/bin/sh\necho '{\"Ready\":{\"at\":null,\"is_one_file\":false,\"speeds\":[]}}'\n\
                      read -r job\nwhile [ ! -e \"$0.heard\" ]; do sleep 0.05; done\nexit 1\n";
        let far = executable(&scratch, "connects", script);
        let heard = scratch.path("connects.heard");
        let _ = fs::remove_file(&heard);
        let port_said = port.to_string();
        let args = [
            "copy",
            "--reverse",
            "--port",
            &port_said,
            "-e",
            far.to_str().unwrap(),
            &from,
            "127.0.0.1:/nowhere",
        ];
        let copy = scratch.start(scratch.goodput(&args));
        let mut socket = None;
        wait_until("the copy to listen", || {
            socket = TcpStream::connect(("127.0.0.1", port)).ok();
            socket.is_some()
        });
        let answer = of_version(socket.unwrap(), version, true);
        assert_eq!(answer[12], 1, "{answer:?}");
        fs::write(&heard, b"").unwrap();
        copy.end().fails_with(4, &[&theirs, &mine]);
    }
    // What is told to the far side has a version of its own.
    for version in [1, 99] {
        let script = format!(
            "#!/bin/sh\nshift\nread -r job\n{{ printf '%s\\n' \"$job\" | sed 's/\"version\":[0-9]*/\"version\":{version}/'; cat; }} | sh -c \"$*\"\n"
        );
        let far = executable(&scratch, "rewrites", &script);
        let args = [
            "copy",
            "-e",
            far.to_str().unwrap(),
            "--far-goodput",
            BINARY,
            &from,
            "127.0.0.1:/nowhere",
        ];
        let theirs = format!("the other's has {version}: bring the older one up to date");
        scratch
            .run(scratch.goodput(&args))
            .fails_with(4, &["has jobs of version", &theirs]);
    }
    scratch.assert_nothing_left();
}

#[test]
fn a_far_host_cannot_have_this_host_connect_to_its_own_services() {
    let scratch = Scratch::new();
    let from = plant(&scratch, 1 << 10).display().to_string();
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    service.set_nonblocking(true).unwrap();
    let at = service.local_addr().unwrap();
    let other = SocketAddr::from(([127, 0, 0, 1], testing::free_port()));
    // An address of this host for a name without one; a port that was not asked for; another port than the first.
    for (n, (host, first, all, flags, said)) in [
        ("alias.invalid", at, "", &[][..], "--addresses 127.0.0.1"),
        ("127.0.0.1", at, "", &["--port", "1"], "not asked to listen"),
        (
            "127.0.0.1",
            other,
            &format!(r#","all":[["{at}","eth0"]]"#),
            &["--addresses", "all"],
            "as well",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let script = format!(
            "#!/bin/sh\necho '{{\"Ready\":{{\"at\":\"{first}\",\"is_one_file\":false,\"speeds\":[]{all}}}}}'\nsleep 1\n"
        );
        let far = executable(&scratch, &format!("reports{n}"), &script);
        let to = format!("{host}:/nowhere");
        let begin = ["copy", "-e", far.to_str().unwrap()];
        let args = [&begin[..], flags, &[&from, &to]].concat();
        scratch.run(scratch.goodput(&args)).fails_with(4, &[said]);
        let came = service.accept().map(|(_, who)| who);
        assert!(came.is_err(), "{n}: connected to {at}");
    }
}

#[test]
fn what_ssh_carries_says_what_that_costs() {
    let scratch = Scratch::new();
    let from = plant(&scratch, 3 << 20);
    let source = format!("{}/", from.display());
    let far = format!("127.0.0.1:{}", scratch.path("to").display());
    let ended = scratch.run(copy(&scratch, &["--through-ssh", "-s2", &source, &far]));
    ended.succeeds();
    let before = "inside ssh: blocks go through 2 ssh connections, each encrypted once more by ssh on both hosts";
    assert!(ended.stderr.contains(before), "{}", ended.stderr);
    let chosen = scratch.run_json()["copy"]["chosen"].to_string();
    assert!(chosen.contains(before), "{chosen}");
    assert!(
        chosen.contains("MB at ") && chosen.contains("of this host's CPU"),
        "{chosen}"
    );
    assert_eq!(tree(&from), tree(&scratch.path("to")));
    scratch.assert_nothing_left();
}

/// A wrapper with a network of its own in which `nft` drops packets and `ss` tells of connections.
fn with_a_firewall() -> Option<&'static [&'static str]> {
    usable(&[], &["ss", "-V"])?;
    usable(with_own_network()?, &["nft", "add", "table", "inet", "t"])
}

/// A firewall without rules, which drops what leaves: for this host to itself, what arrives too.
const FIREWALL: &str = r#"
    set -e
    ip link set lo up
    nft add table inet t
    nft add chain inet t single '{ type filter hook output priority 0; }'
    nft add chain inet t every '{ type filter hook output priority 0; }'
"#;

#[test]
fn while_a_firewall_drops_all_it_says_whom_it_tries_to_reach() {
    let Some(network) = with_a_firewall() else {
        return;
    };
    let scratch = Scratch::new();
    plant(&scratch, 1 << 20);
    executable(&scratch, "rsh", RSH);
    let script = format!(
        r#"{FIREWALL}
        nft add rule inet t every tcp dport 5299 drop
        $GOODPUT copy -e "$DIR/rsh" --far-goodput "$GOODPUT" --port 5299 from/ "127.0.0.1:$DIR/to" 2> said &
        copy=$!
        until grep -q 'still trying to reach 127.0.0.1, port 5299' said; do kill -0 $copy; sleep 0.05; done
        nft flush chain inet t every
        wait $copy
        diff -r from to
    "#
    );
    scratch.run(scratch.script(network, &script)).succeeds();
    scratch.assert_nothing_left();
}

#[test]
fn a_firewall_that_drops_one_stream_or_for_a_while_all_costs_no_byte() {
    let Some(network) = with_a_firewall() else {
        return;
    };
    let scratch = Scratch::new();
    plant(&scratch, 12 << 20);
    executable(&scratch, "rsh", RSH);
    // Of each copy the port of a connection that carries blocks, once it has; copies are slow, so that they are in the middle then.
    let script = format!(
        r#"{FIREWALL}
        copies() {{
            $GOODPUT copy -e "$DIR/rsh" --far-goodput "$GOODPUT" --port $1 -s4 --limit 12Mb/s --transport tcp                 from/ "127.0.0.1:$DIR/to-$1"
        }}
        carrier() {{
            ss -HtinO state established "( dport = :$1 )" | awk '{{
                for (i = 5; i <= NF; i++)
                    if ($i ~ /^bytes_acked:/ && substr($i, 13) + 0 > 400000) {{ sub(/.*:/, "", $3); print $3; exit }}
            }}'
        }}
        copies 5301 & one=$!
        copies 5302 & all=$!
        port=
        until [ -n "$port" ]; do kill -0 $one; sleep 0.05; port=$(carrier 5301); done
        nft add rule inet t single tcp sport $port counter drop
        nft add rule inet t single tcp dport $port counter drop
        port=
        until [ -n "$port" ]; do kill -0 $all; sleep 0.05; port=$(carrier 5302); done
        nft add rule inet t every tcp sport 5302 counter drop
        nft add rule inet t every tcp dport 5302 counter drop
        kill -0 $one
        kill -0 $all
        sleep 4
        nft list chain inet t every | grep -q 'packets [1-9]'
        nft flush chain inet t every
        wait $one
        wait $all
        diff -r from to-5301
        diff -r from to-5302
        nft list chain inet t single | grep -q 'packets [1-9]'
    "#
    );
    scratch.run(scratch.script(network, &script)).succeeds();
    assert_eq!(tree(&scratch.path("from")), tree(&scratch.path("to-5301")));
    assert_eq!(tree(&scratch.path("from")), tree(&scratch.path("to-5302")));
    scratch.assert_nothing_left();
}
