//! A process of its own, so that its descriptors and threads can be counted.

mod support;

use lab::Lab;

use crate::support::{may_run, path, wait_until};

#[test]
fn fifty_labs_leave_neither_descriptors_nor_threads() {
    if !may_run() {
        return;
    }
    let path = path(1500, "delay = \"1ms\"");
    let cycle = |with_phase: bool| {
        let lab = Lab::up(&path).unwrap();
        if with_phase {
            lab.begin_phase().unwrap().finish().unwrap();
        }
    };
    // What is set up once and for all is set up now.
    cycle(true);
    let (descriptors, threads) = (count("fd"), count("task"));
    for n in 0..50 {
        cycle(n % 10 == 0);
    }
    assert_eq!(count("fd"), descriptors);
    // A joined thread may linger for a moment.
    wait_until("the threads to end", || count("task") <= threads);
}

fn count(what: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{what}"))
        .unwrap()
        .count()
}
