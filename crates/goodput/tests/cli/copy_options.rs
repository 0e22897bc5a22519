//! `goodput copy`: limits that change, manifests, reading back.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{Scratch, usable, wait_until};

fn plant(scratch: &Scratch) -> String {
    let from = scratch.path("from");
    fs::create_dir_all(from.join("a")).unwrap();
    fs::write(from.join("a/large"), vec![5; 3 << 20]).unwrap();
    fs::write(from.join("a/back\\slash\nline"), b"odd").unwrap();
    fs::write(from.join("empty"), b"").unwrap();
    fs::hard_link(from.join("a/large"), from.join("second")).unwrap();
    std::os::unix::fs::symlink("empty", from.join("link")).unwrap();
    format!("{}/", from.display())
}

/// What `b3sum --check` would say of a manifest: the names whose hash is right.
fn check(manifest: &Path, top: &Path) -> Vec<String> {
    let mut fine = Vec::new();
    for line in fs::read_to_string(manifest).unwrap().lines() {
        let (line, is_escaped) = match line.strip_prefix('\\') {
            Some(rest) => (rest, true),
            None => (line, false),
        };
        let (hash, name) = line.split_once("  ").unwrap();
        let name = match is_escaped {
            // Of this test's names: no backslash stands before an n.
            true => name.replace("\\n", "\n").replace("\\\\", "\\"),
            false => name.to_owned(),
        };
        let bytes = fs::read(top.join(&name)).unwrap();
        let sum = copy::digest::sum_of(&bytes);
        let digits: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
        if digits == hash {
            fine.push(name);
        }
    }
    fine.sort();
    fine
}

#[test]
fn a_manifest_has_the_hash_of_each_file_and_is_right_where_the_copy_is() {
    let scratch = Scratch::new();
    let source = plant(&scratch);
    let (to, sums) = (scratch.path("to"), scratch.path("sums"));
    let file = sums.to_str().unwrap();
    let args = ["copy", "--verify", "--manifest", file, &source];
    scratch
        .run(scratch.goodput(&[&args[..], &[to.to_str().unwrap()]].concat()))
        .succeeds();
    let all = ["a/back\\slash\nline", "a/large", "empty", "second"];
    assert_eq!(check(&sums, &to), all);
    // Also of what was there already.
    fs::remove_file(&sums).unwrap();
    scratch
        .run(scratch.goodput(&[&args[..], &[to.to_str().unwrap()]].concat()))
        .succeeds();
    assert_eq!(check(&sums, &to), all);
    // A block that is hurt is found by it, and mended by a copy that compares sums.
    let large = to.join("a/large");
    let time = fs::metadata(&large).unwrap().modified().unwrap();
    let open = fs::File::options().write(true).open(&large).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&open, b"x", 2 << 20).unwrap();
    open.set_modified(time).unwrap();
    assert_eq!(check(&sums, &to), ["a/back\\slash\nline", "empty"]);
    let run = scratch
        .run(scratch.goodput(&["copy", "--json", "-c", &source, to.to_str().unwrap()]))
        .succeeds()
        .json();
    assert_eq!(
        run["copy"]["received_bytes"].as_u64().unwrap() >> 20,
        1,
        "{run}"
    );
    assert_eq!(check(&sums, &to), all);
    scratch.assert_nothing_left();
}

#[test]
fn a_manifest_is_no_other_file_and_lists_not_itself() {
    let scratch = Scratch::new();
    let source = plant(&scratch);
    let (to, sums) = (scratch.path("to"), scratch.path("from/sums"));
    let new = scratch.path("from/sums.new");
    fs::write(&new, b"somebody's").unwrap();
    let args = ["copy", "--manifest", sums.to_str().unwrap(), &source];
    scratch
        .run(scratch.goodput(&[&args[..], &[to.to_str().unwrap()]].concat()))
        .succeeds();
    assert_eq!(fs::read(&new).unwrap(), b"somebody's");
    let all = [
        "a/back\\slash\nline",
        "a/large",
        "empty",
        "second",
        "sums.new",
    ];
    assert_eq!(check(&sums, &to), all);
    assert_eq!(
        fs::read_to_string(&sums).unwrap().lines().count(),
        all.len()
    );
    scratch.assert_nothing_left();
}

#[test]
fn a_manifest_of_a_copy_between_two_other_hosts_is_refused_and_not_made_of_files_here() {
    let scratch = Scratch::new();
    let source = plant(&scratch);
    // A folder of the destination's path, here, with other files.
    let (to, sums) = (scratch.path("to"), scratch.path("sums"));
    fs::create_dir(&to).unwrap();
    fs::write(to.join("empty"), b"of this host").unwrap();
    let far = [format!("hostA:{source}"), format!("hostB:{}", to.display())];
    let file = sums.to_str().unwrap();
    let args = [
        "copy",
        "-e",
        "/bin/false",
        "--manifest",
        file,
        &far[0],
        &far[1],
    ];
    scratch
        .run(scratch.goodput(&args))
        .fails_with(2, &["run `goodput copy --manifest` on hostB"]);
    assert!(!sums.exists());
    scratch.assert_nothing_left();
}

#[test]
fn a_manifest_that_is_interrupted_gets_no_name() {
    let scratch = Scratch::new();
    let (from, to) = (scratch.path("from"), scratch.path("to"));
    fs::create_dir(&from).unwrap();
    // Nothing to copy and much to hash: holes.
    let long = fs::File::create(from.join("long")).unwrap();
    long.set_len(64 << 30).unwrap();
    fs::create_dir(&to).unwrap();
    let there = fs::File::create(to.join("long")).unwrap();
    there.set_len(64 << 30).unwrap();
    let time = long.metadata().unwrap().modified().unwrap();
    there.set_modified(time).unwrap();
    let sums = scratch.path("sums");
    let source = format!("{}/", from.display());
    let args = ["copy", "--manifest", sums.to_str().unwrap(), &source];
    let is_begun = || {
        let names = fs::read_dir(scratch.path(".")).unwrap().flatten();
        let mut names = names.map(|entry| entry.file_name().into_encoded_bytes());
        names.any(|name| name.starts_with(sys::folder::PREFIX.as_bytes()))
    };
    let copy = scratch.start(scratch.goodput(&[&args[..], &[to.to_str().unwrap()]].concat()));
    wait_until("the manifest to be begun", is_begun);
    copy.signal("INT");
    copy.end().fails_with(130, &["stopped"]);
    assert!(!sums.exists() && !is_begun());
}

#[test]
fn limits_are_read_again_while_the_copy_runs() {
    let scratch = Scratch::new();
    let source = plant(&scratch);
    let to = scratch.path("to").display().to_string();
    // So slow that it would take two minutes.
    let limits = scratch.write("limits", "200kb/s@00:00-12:00\n200kb/s\n");
    let args = ["copy", "-s1", "--limit-from", limits.to_str().unwrap()];
    let copy = scratch.start(scratch.goodput(&[&args[..], &[&source, &to]].concat()));
    wait_until("the copy to be under way", || Path::new(&to).exists());
    scratch.write("limits", "quickly\n");
    copy.stderr_when("limits stay as they were");
    scratch.write("limits", "none # from now on\n");
    copy.stderr_when("limits are now none");
    copy.end().succeeds();
    assert!(Path::new(&to).join("a/large").exists());
    let args = ["copy", "--limit", "5Mb/s@9-10", &source, &to];
    scratch
        .run(scratch.goodput(&args))
        .fails_with(2, &["RATE@HH:MM-HH:MM"]);
    scratch.assert_nothing_left();
}

/// Lines of JSON, one object each.
fn events(stdout: &str) -> Vec<Value> {
    let lines = stdout.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().unwrap()
}

#[test]
fn events_are_an_object_a_line_and_the_last_one_is_the_run() {
    let scratch = Scratch::new();
    let source = plant(&scratch);
    std::os::unix::net::UnixListener::bind(scratch.path("from/socket")).unwrap();
    let to = scratch.path("to").display().to_string();
    let args = ["copy", "--format", "jsonl", &source, &to];
    let ended = scratch.run(scratch.goodput(&args));
    ended.succeeds();
    let all = events(&ended.stdout);
    let of =
        |event: &str| -> Vec<&Value> { all.iter().filter(|one| one["event"] == event).collect() };
    let [result] = of("result")[..] else {
        panic!("{}", ended.stdout);
    };
    assert_eq!(all.last(), Some(result));
    let copy = &result["run"]["copy"];
    let folder = Path::new(result["folder"].as_str().unwrap());
    let kept = fs::read(folder.join("run.json")).unwrap();
    let kept: Value = serde_json::from_slice(&kept).unwrap();
    assert_eq!(kept["copy"], *copy);
    // The last interval has all of it, and each connection.
    let last = *of("interval").last().unwrap();
    // A block that was sent twice was confirmed twice.
    let bytes = |value: &Value| value.as_u64().unwrap();
    assert!(bytes(&last["confirmed_bytes"]) >= bytes(&copy["received_bytes"]));
    assert_eq!(
        (&last["is_walked"], &last["placed"]),
        (&true.into(), &copy["placed"])
    );
    let streams = copy["connections"].as_array().unwrap();
    assert_eq!(streams.len() as u64, copy["streams"].as_u64().unwrap());
    let acked: u64 = streams
        .iter()
        .map(|one| one["acked_bytes"].as_u64().unwrap())
        .sum();
    assert_eq!(acked, copy["kernel"]["acked_bytes"].as_u64().unwrap());
    // What was chosen is told with its reason, what was left out with its name.
    let kinds: Vec<_> = of("note")
        .iter()
        .map(|one| one["kind"].as_str().unwrap())
        .collect();
    assert!(kinds.contains(&"skipped"), "{kinds:?}");
    assert!(ended.stderr.is_empty(), "{}", ended.stderr);
    scratch
        .run(scratch.goodput(&["copy", "--json", "--format", "jsonl", &source, &to]))
        .fails_with(2, &["--format"]);
}

#[test]
fn how_each_connection_is_is_said_where_the_output_is_no_terminal() {
    let scratch = Scratch::new();
    let source = plant(&scratch);
    let to = scratch.path("to").display().to_string();
    let args = ["copy", "-s2", "--live", "--per-stream", &source, &to];
    let ended = scratch.run(scratch.goodput(&args));
    ended.succeeds();
    for said in [
        " arrived, ",
        "  stream   0  ",
        "  stream   1  ",
        "retr ",
        "held",
    ] {
        assert!(ended.stdout.contains(said), "{said}: {}", ended.stdout);
    }
    scratch.assert_nothing_left();
}

#[test]
fn a_manifest_repairs_a_destination_and_reads_only_what_is_hurt_of_the_source() {
    let scratch = Scratch::new();
    let source = plant(&scratch);
    // A name that a pattern would take for others.
    fs::write(scratch.path("from/a/[x]*"), b"wild").unwrap();
    fs::write(scratch.path("from/a/xy"), b"tame").unwrap();
    let (to, sums) = (scratch.path("to"), scratch.path("sums"));
    let (file, there) = (sums.to_str().unwrap(), to.to_str().unwrap());
    scratch
        .run(scratch.goodput(&["copy", "--manifest", file, &source, there]))
        .succeeds();
    let repair = ["copy", "--json", "--repair", file, &source, there];
    let run = scratch.run(scratch.goodput(&repair)).succeeds().json();
    assert_eq!(
        run["copy"]["repair"],
        serde_json::json!({"files": 6, "different": 0, "missing": 0, "left": 0})
    );
    // One block, one small file, and one that is gone; times stay as they are.
    let hurt = |name: &str, at: u64| {
        let open = fs::File::options().write(true).open(to.join(name)).unwrap();
        let time = open.metadata().unwrap().modified().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&open, b"!", at).unwrap();
        open.set_modified(time).unwrap();
    };
    hurt("a/large", 2 << 20);
    hurt("a/[x]*", 0);
    fs::remove_file(to.join("a/back\\slash\nline")).unwrap();
    // What the manifest knows nothing of is nobody's business, and what is whole is not read: nobody could.
    fs::write(scratch.path("from/new"), b"new").unwrap();
    fs::write(scratch.path("from/a/xy"), b"other").unwrap();
    let run = scratch.run(scratch.goodput(&repair)).succeeds().json();
    // `second` is the same file as `a/large`.
    assert_eq!(
        run["copy"]["repair"],
        serde_json::json!({"files": 6, "different": 3, "missing": 1, "left": 0})
    );
    assert_eq!(
        run["copy"]["received_bytes"].as_u64().unwrap() >> 20,
        1,
        "{run}"
    );
    let all = [
        "a/[x]*",
        "a/back\\slash\nline",
        "a/large",
        "a/xy",
        "empty",
        "second",
    ];
    assert_eq!(check(&sums, &to), all);
    assert!(!to.join("new").exists());
    // A source that has changed since cannot mend.
    hurt("a/xy", 0);
    let ended = scratch.run(scratch.goodput(&repair));
    ended.fails_with(1, &[]);
    let run = ended.json();
    assert_eq!(run["copy"]["repair"]["left"], 1);
    assert_eq!(run["verdict"]["conclusive"], false, "{run}");
    scratch.write("sums", "no such line\n");
    scratch
        .run(scratch.goodput(&repair))
        .fails_with(2, &["line 1"]);
    scratch
        .run(scratch.goodput(&["copy", "--repair", file, &source, "127.0.0.1:/x"]))
        .fails_with(2, &["on this host"]);
    scratch.assert_nothing_left();
}

#[test]
fn each_end_goes_past_the_cache_or_through_it_as_asked_for_and_says_so() {
    let scratch = Scratch::new();
    let source = plant(&scratch);
    let to = |name: &str| scratch.path(name).display().to_string();
    let long = 3 << 20;
    for (io, past) in [
        ("direct", [long, long]),
        ("direct,buffered", [long, 0]),
        ("buffered,direct", [0, long]),
        ("buffered", [0, 0]),
        ("auto", [0, 0]),
    ] {
        let args = ["copy", "--json", "--io", io, &source, &to(io)];
        let run = scratch.run(scratch.goodput(&args)).succeeds().json();
        assert_eq!(
            fs::read(scratch.path(io).join("a/large")).unwrap(),
            vec![5; 3 << 20]
        );
        let copy = &run["copy"];
        let chosen = copy["chosen"].to_string();
        for (end, past) in ["source", "destination"].into_iter().zip(past) {
            let ends = copy["ends"].as_array().unwrap();
            let told = ends.iter().find(|told| told["end"] == end).unwrap();
            if past == 0 {
                assert_eq!(told["direct_bytes"], 0, "{io}: {end}");
                continue;
            }
            // Where tests have their files need not have it; then this is said.
            let is_past = told["direct_bytes"] == past;
            let says = match is_past {
                true => format!("blocks of the {end}'s files go past the page cache"),
                false => format!("blocks of the {end}'s files go through the page cache, not past"),
            };
            assert!(chosen.contains(&says), "{io}: {end}: {chosen}");
        }
    }
    let args = ["copy", "--io", "direct,direct,auto", &source, &to("three")];
    scratch
        .run(scratch.goodput(&args))
        .fails_with(2, &["--io takes one word"]);
}

/// Names of all files below.
fn names(top: &Path) -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![top.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path.strip_prefix(top).unwrap().display().to_string()),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn rules_decide_in_the_order_in_which_they_were_typed_as_rsyncs_do() {
    let scratch = Scratch::new();
    for name in [
        "secret/key",
        "src/a.rs",
        "src/a.o",
        "src/deep/b.rs",
        "top.o",
        "notes",
    ] {
        let path = scratch.path("from").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    let rules = scratch.write("rules", "# what is made\n+ top.o\n*.o\n");
    let file = rules.to_str().unwrap();
    let all = [
        "notes",
        "secret/key",
        "src/a.o",
        "src/a.rs",
        "src/deep/b.rs",
        "top.o",
    ];
    let rsync = usable(&["rsync"], &["--version"]);
    let far = scratch.write("rsh", "#!/bin/sh\nshift\nSSH_CONNECTION='127.0.0.1 1 127.0.0.1 22'\nexport SSH_CONNECTION\nsh -c \"$*\"\n");
    let far = format!("sh {}", far.display());
    let source = format!("{}/", scratch.path("from").display());
    let cases: [(&[&str], Vec<&str>); 7] = [
        (
            &["--exclude", "secret/", "--include", "*"],
            [&all[..1], &all[2..]].concat(),
        ),
        (&["--include", "*", "--exclude", "secret/"], all.to_vec()),
        (
            &["--include", "*/", "--include", "*.rs", "--exclude", "*"],
            vec![all[3], all[4]],
        ),
        (
            &["--exclude", "*", "--include", "*/", "--include", "*.rs"],
            vec![],
        ),
        (
            &["--exclude-from", file, "--exclude", "secret"],
            vec![all[0], all[3], all[4], all[5]],
        ),
        (
            &["--include", "a.o", "--exclude-from", file],
            [&all[..5], &all[5..]].concat(),
        ),
        (
            &[
                "--exclude",
                "+ a.rs",
                "--exclude",
                "*.rs",
                "--include",
                "b.rs",
            ],
            [&all[..4], &all[5..]].concat(),
        ),
    ];
    for (n, (rules, expected)) in cases.iter().enumerate() {
        // By the far side's own walk, and by this one's.
        for (way, from) in [
            ("here", source.clone()),
            ("pull", format!("127.0.0.1:{source}")),
        ] {
            let to = scratch.path(&format!("to-{way}-{n}"));
            let begin = ["copy", "-e", &far, "--far-goodput", crate::support::BINARY];
            let ends = [&from, to.to_str().unwrap()];
            scratch
                .run(scratch.goodput(&[&begin[..], rules, &ends].concat()))
                .succeeds();
            assert_eq!(&names(&to), expected, "{way}: {rules:?}");
        }
        if rsync.is_some() {
            let to = scratch.path(&format!("rsync-{n}"));
            let ended = std::process::Command::new("rsync")
                .arg("-a")
                .args(*rules)
                .args([&source, to.to_str().unwrap()])
                .status();
            assert!(ended.unwrap().success());
            assert_eq!(&names(&to), expected, "rsync: {rules:?}");
        }
    }
    scratch.assert_nothing_left();
}

#[test]
fn what_rsync_and_scp_are_asked_for_is_taken_and_that_nothing_is_compressed_is_said() {
    let scratch = Scratch::new();
    let source = plant(&scratch);
    let asked: [&[&str]; 8] = [
        &["-r"],
        &["-av"],
        &["-avP", "--progress"],
        &["-rpt"],
        &["--archive", "--recursive", "--partial"],
        &["-aHAXS"],
        &["-az"],
        &["-r", "-r", "--compress"],
    ];
    for (n, flags) in asked.iter().enumerate() {
        let to = scratch.path(&format!("to-{n}"));
        let ends = [&source, to.to_str().unwrap()];
        let ended = scratch.run(scratch.goodput(&[&["copy"], *flags, &ends].concat()));
        ended.succeeds();
        assert_eq!(names(&to), names(&scratch.path("from")), "{flags:?}");
        let is_told = ended.stderr.contains("nothing is compressed");
        assert_eq!(is_told, n >= 6, "{flags:?}: {}", ended.stderr);
    }
    // What else they have is no more taken than before; -v says more, and stays so.
    scratch
        .run(scratch.goodput(&["copy", "-u", &source, "x"]))
        .fails_with(2, &["-u"]);
    let said = scratch
        .run(scratch.goodput(&["copy", "--help"]))
        .succeeds()
        .stdout
        .clone();
    assert!(
        said.contains("-r, -a, -p, -P") && said.contains("-v, --verbose"),
        "{said}"
    );
    scratch.assert_nothing_left();
}
