//! `goodput copy` and what the far host's shell is and prints: start-up files that print, banners, other shells than POSIX's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::support::{Ended, Scratch};

const BINARY: &str = env!("CARGO_BIN_EXE_goodput");

/// Copies a file with this script in ssh's place; it has the far host's command in `$*` once it has shifted.
fn copy(scratch: &Scratch, script: &str, flags: &[&str]) -> Ended {
    let rsh = scratch.write("rsh", &format!("#!/bin/sh\nshift\n{script}\n"));
    fs::set_permissions(&rsh, PermissionsExt::from_mode(0o755)).unwrap();
    let from = scratch.write("file", "text").display().to_string();
    let to = format!("127.0.0.1:{}/", scratch.path("to").display());
    let rsh = rsh.display().to_string();
    let addresses = ["--addresses", "127.0.0.1"];
    let begin = ["copy", "-e", &rsh, "--far-goodput", BINARY];
    let inside = flags.contains(&"--through-ssh");
    let addresses = if inside { &[][..] } else { &addresses[..] };
    let words = [&begin[..], addresses, flags, &[&from, &to]].concat();
    scratch.run(scratch.goodput(&words))
}

fn arrived(scratch: &Scratch) -> bool {
    let text = fs::read_to_string(scratch.path("to/file"));
    text.is_ok_and(|text| text == "text")
}

#[test]
fn a_shell_that_prints_without_a_newline_is_passed_over() {
    for (script, flags) in [
        ("printf x; exec sh -c \"$*\"", &[][..]),
        ("echo hi; printf 'a {b} c '; exec sh -c \"$*\"", &[]),
        ("printf x; exec sh -c \"$*\"", &["--through-ssh"]),
        (
            "echo 'a banner'; echo; exec sh -c \"$*\"",
            &["--through-ssh"],
        ),
    ] {
        let scratch = Scratch::new();
        copy(&scratch, script, flags).succeeds();
        assert!(arrived(&scratch), "{script}");
        scratch.assert_nothing_left();
    }
}

#[test]
fn what_a_shell_prints_that_starts_nothing_is_told() {
    let scratch = Scratch::new();
    let says = [
        "goodput did not answer there within 5 s",
        "its shell printed \"Press any key\"",
    ];
    copy(&scratch, "printf 'Press any key'; exec sleep 60", &[]).fails_with(4, &says);
    let says = [
        "ended before it began",
        "its shell printed \"not available\"",
    ];
    copy(&scratch, "echo 'not available'; exit 1", &[]).fails_with(4, &says);
    let says = [
        "could not be brought to 127.0.0.1",
        "its shell printed \"not available\"",
    ];
    copy(&scratch, "echo 'not available'; exit 1", &["--push"]).fails_with(4, &says);
    assert!(!arrived(&scratch));
    scratch.assert_nothing_left();
}

#[test]
fn a_copy_brings_goodput_to_other_shells_than_posix() {
    for shell in ["fish", "tcsh"] {
        let there = Command::new(shell)
            .args(["-c", "true"])
            .stdin(Stdio::null())
            .status();
        if !there.is_ok_and(|status| status.success()) {
            testing::unneeded(format_args!("{shell} is not installed"));
            continue;
        }
        let scratch = Scratch::new();
        let script = format!("TMPDIR=\"$DIR\"\nexport TMPDIR\nexec {shell} -c \"$*\"");
        copy(&scratch, &script, &["--push"]).succeeds();
        assert!(arrived(&scratch), "{shell}");
        scratch.assert_nothing_left();
    }
}
