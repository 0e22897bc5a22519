//! `goodput copy` where something is wrong for good: refused at once, by a dry run as by a real one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::{Scratch, as_nobody, is_root};

/// A source, and a folder that the user who copies may not write in.
fn plant(scratch: &Scratch) -> (String, String) {
    let from = scratch.path("from");
    fs::create_dir_all(&from).unwrap();
    fs::write(from.join("file"), "text").unwrap();
    let locked = scratch.path("locked");
    fs::create_dir_all(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o555)).unwrap();
    let text = |path: std::path::PathBuf| path.display().to_string();
    (format!("{}/", text(from)), text(locked))
}

#[test]
fn a_destination_without_permission_is_refused_before_anything_is_copied() {
    let nobody = match is_root() {
        true => as_nobody(),
        false => Some(&[][..]),
    };
    let Some(nobody) = nobody else { return };
    let scratch = Scratch::new();
    let (source, locked) = plant(&scratch);
    if is_root() {
        scratch.give_to_nobody("runs");
    }
    let rsh = scratch.write(
        "rsh",
        "#!/bin/sh\nshift\nSSH_CONNECTION='127.0.0.1 1 127.0.0.1 22'\nexport SSH_CONNECTION\nsh -c \"$*\"\n",
    );
    fs::set_permissions(&rsh, fs::Permissions::from_mode(0o755)).unwrap();
    let rsh = rsh.display().to_string();
    let runs = scratch.runs().display().to_string();
    let (folder, new) = (format!("{locked}/"), format!("{locked}/new/"));
    let named = format!("{locked}/name");
    let file = format!("{source}file");
    for (from, to, place) in [
        (&source, &folder, &folder),
        (&source, &new, &locked),
        (&file, &named, &folder),
    ] {
        for dry in [&[][..], &["-n"]] {
            let args = [&["copy", "--runs", &runs], dry, &[from, to]].concat();
            let ended = scratch.run(scratch.within(nobody, &args));
            let says = format!("cannot write in {place} (permission denied); nothing was copied");
            ended.fails_with(3, &[&says]);
            assert!(!ended.stderr.contains("is kept"), "{}", ended.stderr);
        }
    }
    // The far side says it before anybody connects.
    let far = format!("127.0.0.1:{folder}");
    let args = [
        "copy",
        "--runs",
        &runs,
        "-e",
        &rsh,
        "--far-goodput",
        "$GOODPUT",
        &source,
        &far,
    ];
    let ended = scratch.run(scratch.within(nobody, &args));
    let says =
        format!("127.0.0.1: cannot write in {folder} (permission denied); nothing was copied");
    ended.fails_with(4, &[&says]);
    scratch.assert_nothing_left();
}

#[test]
fn a_dry_run_refuses_what_the_real_run_refuses() {
    let scratch = Scratch::new();
    let (source, _) = plant(&scratch);
    for dry in [&[][..], &["-n"]] {
        let args = [&["copy"], dry, &[&source, "no/such/er/"]].concat();
        let ended = scratch.run(scratch.goodput(&args));
        ended.fails_with(
            3,
            &["no/such/er/: the folder above it is not there; make it first"],
        );
        assert!(!ended.stderr.contains("would copy"), "{}", ended.stderr);
    }
    let list = scratch
        .write("list", "file\nmissing\n")
        .display()
        .to_string();
    let args = ["copy", "--files-from", &list, &source, "to"];
    let ended = scratch.run(scratch.goodput(&args));
    ended.fails_with(1, &["missing: no such file or folder; the list names it"]);
    assert!(!ended.stderr.contains("replaced since"), "{}", ended.stderr);
    assert!(
        ended.stdout.contains("incomplete: 1 of 2 files not copied"),
        "{}",
        ended.stdout
    );
    scratch.assert_nothing_left();
}

#[test]
fn each_note_is_printed_once_and_what_was_skipped_is_named() {
    let Some(()) = std::process::Command::new("mkfifo")
        .arg("--version")
        .output()
        .ok()
        .map(drop)
    else {
        return;
    };
    let scratch = Scratch::new();
    let from = scratch.path("from");
    fs::create_dir_all(&from).unwrap();
    scratch
        .run(scratch.script(&[], "mkfifo from/pipe"))
        .succeeds();
    let ended = scratch.run(scratch.goodput(&["copy", "from/", "to"]));
    ended.succeeds();
    let all = format!("{}{}", ended.stdout, ended.stderr);
    assert_eq!(
        all.matches("pipe: a named pipe: skipped").count(),
        1,
        "{all}"
    );
    let says = "nothing copied: 1 skipped (named pipe)";
    assert!(ended.stdout.contains(says), "{all}");
    assert!(!all.contains("All was there already"), "{all}");
    scratch.assert_nothing_left();
}
