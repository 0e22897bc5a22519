//! Threads are started in one place, `sys::threads`: there a refusal of the kernel is an error with a text. `std::thread::spawn`
//! and `Scope::spawn` panic instead, and in a scope the other threads are then waited for, for ever.
//!
//! Clippy's `disallowed-methods` would hold tests to it as well, where a panic is as good.

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn threads_are_started_where_a_refusal_is_an_error() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut files = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        files_below(&entry.unwrap().path().join("src"), &mut files);
    }
    assert!(files.len() > 400, "{} files", files.len());
    let mut found = Vec::new();
    for file in files {
        if file.ends_with("sys/src/threads.rs") || is_of_tests(&file) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for line in starts(&text) {
            found.push(format!("{}:{line}", file.display()));
        }
    }
    assert!(
        found.is_empty(),
        "use sys::threads here:\n{}",
        found.join("\n")
    );
}

#[test]
fn commands_and_tests_are_no_threads() {
    assert_eq!(
        starts("command.spawn()?;\nlet child = Command::new(x)\n.spawn()\n"),
        []
    );
    assert_eq!(
        starts("//! scope.spawn(|| x);\nthreads::spawn(\"x\", y);\n"),
        []
    );
    assert_eq!(starts("a\nscope.spawn(|| x);\n"), [2]);
    assert_eq!(
        starts("let a = thread::spawn(x);\nthread::Builder::new()\n.spawn_scoped(s, x)"),
        [1, 3]
    );
    assert_eq!(
        starts("a\n#[cfg(test)]\nmod tests {\nscope.spawn(|| x);\n"),
        []
    );
}

/// Lines, from 1, that start a thread by the standard library; none of the tests at the end of a file.
fn starts(text: &str) -> Vec<usize> {
    let own = text.lines().take_while(|line| *line != "#[cfg(test)]");
    let starts = |line: &str| {
        let code = line.split("//").next().unwrap_or_default();
        let takes_work = code.contains(".spawn(") && !code.contains(".spawn()");
        takes_work
            || code.contains(" thread::spawn(")
            || code.contains("std::thread::spawn(")
            || code.contains(".spawn_scoped(")
    };
    let lines = own.enumerate().filter(|(_, line)| starts(line));
    lines.map(|(n, _)| n + 1).collect()
}

fn is_of_tests(file: &Path) -> bool {
    file.ends_with("tests.rs") || file.iter().any(|part| part == "tests")
}

fn files_below(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files_below(&path, files),
            false if path.extension().is_some_and(|e| e == "rs") => files.push(path),
            false => {}
        }
    }
}
