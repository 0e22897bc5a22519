//! A process of its own, so that its descriptors and threads can be counted.

#[path = "all/support/mod.rs"]
mod support;

use std::path::Path;

use lab::{Lab, PathFile};

use crate::support::{may_run, path, wait_until};

#[test]
fn labs_that_come_and_go_leave_no_descriptors_threads_or_memory() {
    if !may_run() {
        return;
    }
    let path = path(1500, "delay = \"1ms\"");
    let by_kernel = PathFile::parse(
        Path::new("kernel.toml"),
        "title = \"a test\"\nrun = \"kernel\"\n[hosts.near]\n[hosts.far]\n[routers.r]\n[links.a]\n\
         between = [\"near\", \"r\"]\nrate = \"50Mb/s\"\n[links.b]\nbetween = [\"r\", \"far\"]\n",
    );
    let by_kernel = by_kernel.unwrap();
    let cycle = |with_phase: bool| {
        for path in [&path, &by_kernel] {
            let lab = Lab::up(path).unwrap();
            if with_phase {
                lab.begin_phase().unwrap().finish().unwrap();
                // One that is given up on its way.
                drop(lab.begin_phase().unwrap());
            }
        }
    };
    // What is set up once and for all is set up now.
    cycle(true);
    let (descriptors, threads) = (count("fd"), count("task"));
    let memory = resident_bytes();
    // More on request: GOODPUT_LAB_CYCLES=1000.
    let cycles = std::env::var("GOODPUT_LAB_CYCLES").map_or(50, |n| n.parse().unwrap());
    for n in 0..cycles {
        cycle(n % 10 == 0);
    }
    // Not more: what a phase that was given up had open may have been open still when they were counted first.
    assert!(count("fd") <= descriptors, "{} {descriptors}", count("fd"));
    let grown = resident_bytes().saturating_sub(memory);
    eprintln!("{cycles} labs: {grown} bytes more than after the first");
    assert!(grown < 16 << 20, "{grown}");
    // A joined thread may linger for a moment.
    wait_until("the threads to end", || count("task") <= threads);
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:"))
        .unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib * 1024
}

fn count(what: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{what}"))
        .unwrap()
        .count()
}
