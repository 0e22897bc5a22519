//! Threads, descriptors or the disk run out at any moment: the n-th call of a kind fails, for all n that a small run reaches. What
//! is said then is one sentence with the right exit code; nothing hangs, panics or stays behind.
//!
//! By seccomp's notifications (`nth/nth.c`, built with the C compiler that the build needs anyway). A few of all n, evenly spread,
//! unless `GOODPUT_FAULTS=all`.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::support::{Scratch, run_folders};

/// Kinds of calls, and the error that each fails with: EAGAIN, EMFILE, ENOSPC.
const KINDS: [(&str, i32); 5] = [
    ("clone", 11),
    ("open", 24),
    ("pipe", 24),
    ("socket", 24),
    ("write", 28),
];

/// The command has so long, in seconds: beyond the 15 s of a handshake, which none may need.
const SECONDS: &str = "14";
/// Of each kind, where not all are tried.
const TRIED: usize = 9;
const WORKERS: usize = 4;

#[test]
fn a_copy_survives_or_says_what_ran_out() {
    walk(&|scratch, to| {
        let files = scratch.path("from");
        if !files.exists() {
            fs::create_dir(&files).unwrap();
            for (name, size) in [("a", 300_000), ("b", 5), ("c", 90_000)] {
                fs::write(files.join(name), vec![7; size]).unwrap();
            }
        }
        let (from, to) = (files.display().to_string(), to.display().to_string());
        vec!["copy".into(), format!("{from}/"), format!("{to}/there/")]
    });
}

#[test]
fn a_measurement_survives_or_says_what_ran_out() {
    let scratch = Scratch::new();
    let serving = scratch.start(scratch.goodput(&["serve", "--listen", "127.0.0.1:0"]));
    let address = super::far_end::address_of(&serving.stderr_when("serving on"));
    walk(&|_, _| {
        let words = ["measure", &address, "-d", "100ms", "-s", "2"];
        words.map(str::to_owned).to_vec()
    });
    serving.signal("TERM");
    serving.end().succeeds();
}

#[test]
fn a_model_survives_or_says_what_ran_out() {
    walk(&|_, _| vec!["sim".into(), "columbia-untuned".into()]);
}

#[test]
fn a_server_without_a_thread_or_descriptor_serves_the_next() {
    let scratch = Scratch::new();
    let Some(nth) = built(&scratch) else { return };
    for (kind, error) in [("clone", 11), ("socket", 24)] {
        for n in 1..=6 {
            let port = testing::free_port();
            let (at, n) = (format!("127.0.0.1:{port}"), n.to_string());
            let counts = scratch.path("serve-count").display().to_string();
            let fails = [&nth, kind, &n, &error.to_string(), "60", &counts];
            let mut serving = scratch.start(scratch.within(&fails, &["serve", "--listen", &at]));
            let measure = |seconds| {
                let words = ["measure", at.as_str(), "-d", "100ms", "-s", "2"];
                let bounded = ["timeout", "--kill-after=1", seconds];
                scratch.run(scratch.within(&bounded, &words))
            };
            // It could not begin, or it serves all but one.
            while !serving.has_ended() && !serving.stderr().contains("serving on") {
                thread::sleep(Duration::from_millis(5));
            }
            if serving.stderr().contains("serving on") {
                let codes = ["20"; 3].map(|seconds| measure(seconds).code());
                let failed = codes.iter().filter(|code| **code != 0);
                assert!(failed.clone().count() <= 1, "{kind} {n}: {codes:?}");
                assert!(
                    failed.clone().all(|code| *code == 4),
                    "{kind} {n}: {codes:?}"
                );
                signal_child(serving.child.id());
                serving.end().succeeds();
            } else {
                serving.end().fails_with(3, &["goodput: "]);
            }
        }
    }
    scratch.assert_nothing_left();
}

/// Ends what the program that lets calls fail runs.
fn signal_child(id: u32) {
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    for child in children.split_whitespace() {
        Command::new("kill")
            .args(["-TERM", child])
            .status()
            .unwrap();
    }
}

/// What a run is, given a folder of its own.
type Words<'a> = &'a (dyn Fn(&Scratch, &Path) -> Vec<String> + Sync);

/// Has each kind of call fail, one in each run.
fn walk(words: Words<'_>) {
    let scratch = Scratch::new();
    let Some(nth) = built(&scratch) else { return };
    let mut all = VecDeque::new();
    for (kind, error) in KINDS {
        let (code, count, said) = one(&scratch, &nth, (kind, 0, error), words);
        assert_eq!(code, 0, "{said}");
        let is_all = std::env::var_os("GOODPUT_FAULTS").is_some_and(|value| value == "all");
        let tried = if is_all { count } else { count.min(TRIED) };
        all.extend((0..tried).map(|n| (kind, 1 + n * count / tried, error)));
    }
    let all = Mutex::new(all);
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let Some(fault) = all.lock().unwrap().pop_front() else {
                        return;
                    };
                    let (code, _, said) = one(&scratch, &nth, fault, words);
                    // Done all the same, with one file less, or not here; the far end is not at fault.
                    assert!(
                        [0, 1, 3].contains(&code),
                        "{fault:?}: exit code {code}\n{said}"
                    );
                    assert!(!said.contains("panicked"), "{fault:?}\n{said}");
                    if code == 3 {
                        let sentences = said.lines().filter(|l| l.starts_with("goodput: "));
                        assert_eq!(sentences.count(), 1, "{fault:?}\n{said}");
                    }
                }
            });
        }
    });
    scratch.assert_nothing_left();
}

/// Runs it with the `n`-th call failing: the exit code, how many such calls there were, and what was said.
fn one(
    scratch: &Scratch,
    nth: &str,
    (kind, n, error): (&str, usize, i32),
    words: Words<'_>,
) -> (i32, usize, String) {
    let own = scratch.path(&format!("{kind}-{n}"));
    fs::create_dir(&own).unwrap();
    let words = words(scratch, &own);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let counts = own.join("count");
    let (n, error) = (n.to_string(), error.to_string());
    let wrapper = [nth, kind, &n, &error, SECONDS, counts.to_str().unwrap()];
    let mut command = scratch.within(&wrapper, &words);
    command.env("GOODPUT_RUNS", own.join("runs"));
    let ended = scratch.run(command);
    let count = fs::read_to_string(counts).unwrap().trim().parse().unwrap();
    let said = format!("{}\n{}", ended.stdout, ended.stderr);
    let left = parts_below(&own);
    // What another attempt goes on from, and what a note names.
    let is_told =
        said.contains("what arrived is kept") || said.contains("is left at the destination");
    assert!(
        left.is_empty() || is_told,
        "{kind} {n}: left {left:?}\n{said}"
    );
    for folder in run_folders(&own.join("runs")) {
        let text = fs::read(folder.join("run.json")).unwrap_or_default();
        let is_whole =
            text.is_empty() || serde_json::from_slice::<serde_json::Value>(&text).is_ok();
        assert!(is_whole, "{kind} {n}: half a run.json\n{said}");
    }
    let code = ended.code();
    let _ = fs::remove_dir_all(own);
    (code, count, said)
}

/// Folders of unfinished files.
fn parts_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_name().to_string_lossy().starts_with(".goodput-") {
            true => found.push(path),
            false if path.is_dir() => found.extend(parts_below(&path)),
            false => {}
        }
    }
    found
}

/// The program that has calls fail; `None` where this machine cannot build or run it.
fn built(scratch: &Scratch) -> Option<String> {
    let source = scratch.write("nth.c", include_str!("nth/nth.c"));
    let program = scratch.path("nth").display().to_string();
    let built = Command::new("cc")
        .args(["-O1", "-o", &program])
        .arg(source)
        .status();
    if !built.is_ok_and(|status| status.success()) {
        testing::skipped("needs a C compiler (cc)");
        return None;
    }
    let counts = scratch.path("trial").display().to_string();
    let tried = Command::new(&program)
        .args(["open", "0", "24", "9", &counts, "/bin/true"])
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        testing::unneeded("this kernel has no seccomp notifications for this user");
        return None;
    }
    Some(program)
}
