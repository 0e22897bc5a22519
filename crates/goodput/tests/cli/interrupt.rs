//! Ctrl-C, SIGTERM and kill -9 at every stage: the exit code, a run folder that reads, nothing left.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    Ended, Running, Scratch, json, lab_beside_others, run_folders, usable, wait_until,
};

const LONG: [&str; 5] = ["doctor", "-d", "20s", "--ramp", "1s"];
const BRIEF: [&str; 5] = ["doctor", "-d", "1s", "--ramp", "200ms"];

/// A path that any machine keeps up with, however loaded: beside a lab that fell behind no observer is
/// run.
const SLOW: &str = "title = \"slow\"\n[hosts.near]\n[hosts.far]\n[links.wan]\n\
                    between = [\"near\", \"far\"]\nrate = \"1Mb/s\"\ndelay = \"400ms\"\n";

/// `run.json` as it stands, if it is there already.
fn state(runs: &Path) -> Option<Value> {
    let folder = run_folders(runs).into_iter().next()?;
    let file = folder.join("run.json");
    file.exists().then(|| json(&file))
}

fn phases(runs: &Path) -> usize {
    state(runs).map_or(0, |run| run["phases"].as_array().map_or(0, Vec::len))
}

/// The run must have ended by `code`, say in `run.json` that it was interrupted, and still read.
#[track_caller]
fn assert_interrupted(scratch: &Scratch, ended: &Ended, code: i32) {
    ended.fails_with(code, &["stopped by the user"]);
    let run = scratch.run_json();
    assert_eq!(run["state"], "interrupted", "{run:#}");
    assert!(run["finished_utc"].is_string(), "{run:#}");
    assert_reads(scratch, "interrupted");
    scratch.assert_nothing_left();
}

#[track_caller]
fn assert_reads(scratch: &Scratch, word: &str) {
    let folder = scratch.run_folder();
    let report = scratch.run(scratch.goodput(&["report", folder.to_str().unwrap()]));
    report.succeeds();
    assert!(report.stdout.contains(word), "{report:#?}");
    assert!(folder.join("report.html").exists());
}

#[test]
fn a_signal_at_any_moment_ends_the_run_and_leaves_it_readable() {
    let _beside = lab_beside_others();
    let moments = [
        ("INT", 130, 300),
        ("TERM", 143, 300),
        ("INT", 130, 1_000),
        ("INT", 130, 3_000),
        ("HUP", 129, 3_000),
        ("INT", 130, 6_000),
    ];
    let is_ignored = hang_ups_are_ignored();
    // Together, in folders of their own: what they measure does not matter.
    thread::scope(|scope| {
        for (signal, code, after_ms) in moments {
            if signal == "HUP" && is_ignored {
                continue;
            }
            scope.spawn(move || {
                let scratch = Scratch::new();
                let running = scratch.start(scratch.goodput(&LONG));
                wait_until("the run folder", || state(&scratch.runs()).is_some());
                thread::sleep(Duration::from_millis(after_ms));
                running.signal(signal);
                assert_interrupted(&scratch, &running.end(), code);
            });
        }
    });
}

/// Whether these tests were started by nohup(1) or its like: what they start then goes on after SIGHUP, as it was asked to.
fn hang_ups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // SIGHUP is 1, the lowest bit (proc(5)).
    ignored
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 != 0)
}

#[test]
fn a_signal_before_there_is_anything_ends_it_at_once() {
    for delay_ms in [0, 5, 20] {
        let scratch = Scratch::new();
        let running = scratch.start(scratch.goodput(&LONG));
        thread::sleep(Duration::from_millis(delay_ms));
        running.signal("INT");
        // Before the handler stands the kernel ends the process itself: 130 for a shell as well.
        assert_eq!(running.end().code(), 130);
        if let Some(run) = state(&scratch.runs()) {
            assert_eq!(run["state"], "interrupted", "{run:#}");
        }
        scratch.assert_nothing_left();
    }
}

#[test]
fn a_signal_during_after_keeps_what_before_measured() {
    let _beside = lab_beside_others();
    let scratch = Scratch::new();
    let mut running = scratch.start(scratch.goodput(&BRIEF));
    wait_until("the first phase", || {
        running.has_ended() || phases(&scratch.runs()) == 1
    });
    if let Some(ended) = ended_inconclusively(&scratch, &mut running) {
        eprintln!("the machine is too busy to reach the second phase: {ended}");
        return;
    }
    running.signal("INT");
    let ended = running.end();
    assert!(
        ended.stderr.contains("what was measured so far"),
        "{ended:#?}"
    );
    assert_interrupted(&scratch, &ended, 130);
    assert_ne!(phases(&scratch.runs()), 0);
}

/// Doctor stops after one phase where the lab fell behind; there is no second one to interrupt then.
fn ended_inconclusively(scratch: &Scratch, running: &mut Running) -> Option<String> {
    let run = state(&scratch.runs())?;
    let conclusive = run["verdict"]["conclusive"] == true;
    // The verdict is written with the end of the run, so a run without one goes on.
    let over = running.has_ended();
    (over && !conclusive).then(|| run["verdict"]["sentence"].to_string())
}

#[test]
fn asking_twice_does_not_wait() {
    let scratch = Scratch::new();
    let running = scratch.start(scratch.goodput(&LONG));
    wait_until("the run folder", || state(&scratch.runs()).is_some());
    running.signal("TERM");
    thread::sleep(Duration::from_millis(30));
    running.signal("INT");
    let code = running.end().code();
    assert!([130, 143].contains(&code), "{code}");
    // Whichever came first, the folder reads.
    assert!(state(&scratch.runs()).is_some());
    let folder = scratch.run_folder();
    let report = scratch.run(scratch.goodput(&["report", folder.to_str().unwrap()]));
    report.succeeds();
    scratch.assert_nothing_left();
}

#[test]
fn kill_minus_nine_leaves_no_process_and_a_run_that_reads() {
    let _beside = lab_beside_others();
    let scratch = Scratch::new();
    let running = scratch.start(scratch.goodput(&LONG));
    wait_until("the run folder", || state(&scratch.runs()).is_some());
    thread::sleep(Duration::from_millis(1_500));
    running.signal("KILL");
    assert_eq!(running.end().code(), 128 + 9);
    scratch.assert_nothing_left();
    assert_eq!(scratch.run_json()["state"], "running");
    assert_reads(&scratch, "The run ended before a verdict");
}

#[test]
fn kill_minus_nine_takes_the_observer_with_it() {
    if usable(&["iperf3"], &["--version"]).is_none() {
        return;
    }
    let _beside = lab_beside_others();
    let scratch = Scratch::new();
    let Some((running, _)) = with_observers(&scratch, 1) else {
        return;
    };
    running.signal("KILL");
    assert_eq!(running.end().code(), 128 + 9);
    scratch.assert_nothing_left();
}

#[test]
fn a_signal_does_not_wait_for_an_observer_that_hangs() {
    if usable(&["iperf3"], &["--version"]).is_none() {
        return;
    }
    let _beside = lab_beside_others();
    let scratch = Scratch::new();
    let Some((running, observers)) = with_observers(&scratch, 2) else {
        return;
    };
    for observer in &observers {
        let _ = Command::new("kill").args(["-STOP", &observer.id]).status();
    }
    running.signal("INT");
    assert_interrupted(&scratch, &running.end(), 130);
}

/// A run with so many ends of an observer in it. `None`, said aloud, where the machine is so busy that
/// the lab falls behind time after time: then no observer is started.
fn with_observers(scratch: &Scratch, ends: usize) -> Option<(Running, Vec<Offspring>)> {
    scratch.write("slow.toml", SLOW);
    let flags = ["lab:slow.toml", "--no-fix", "--observer", "iperf3"];
    let args = [&BRIEF[..], &flags].concat();
    for _ in 0..5 {
        let mut running = scratch.start(scratch.goodput(&args));
        let goodput = running.child.id();
        let mut observers = Vec::new();
        wait_until("iperf3", || {
            observers = children(goodput);
            observers.retain(|child| child.name == "iperf3");
            running.has_ended() || observers.len() >= ends
        });
        if observers.len() >= ends {
            return Some((running, observers));
        }
        running.end();
        let _ = std::fs::remove_dir_all(scratch.runs());
    }
    testing::unneeded("the lab falls behind on this machine");
    None
}

/// A child of a process.
struct Offspring {
    id: String,
    name: String,
}

/// The children of a process, of all its threads.
fn children(parent: u32) -> Vec<Offspring> {
    let read = |file: String| std::fs::read_to_string(file).unwrap_or_default();
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task"));
    tasks
        .into_iter()
        .flatten()
        .flatten()
        .flat_map(|task| {
            let list = read(task.path().join("children").display().to_string());
            list.split_whitespace()
                .map(|id| Offspring {
                    id: id.to_owned(),
                    name: read(format!("/proc/{id}/comm")).trim().to_owned(),
                })
                .collect::<Vec<_>>()
        })
        .collect()
}
