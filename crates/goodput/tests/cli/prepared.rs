//! Folders that another user prepared: links, pipes and files in the place of what goodput reads and writes there.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use report::RunFolder;
use report::model::Run;

use crate::results::write_log;
use crate::support::{Scratch, with_own_mounts};

/// What another user may have put in the place of a file.
const KINDS: [&str; 4] = ["link", "hard link", "dangling link", "pipe"];

/// Puts `kind` in the place of `at`; it leads to `victim`, or to a file that is missing beside that.
fn put(kind: &str, at: &Path, victim: &Path) {
    let _ = fs::remove_file(at);
    match kind {
        "link" => symlink(victim, at).unwrap(),
        "hard link" => fs::hard_link(victim, at).unwrap(),
        "dangling link" => symlink(victim.with_extension("made"), at).unwrap(),
        _ => assert!(Command::new("mkfifo").arg(at).status().unwrap().success()),
    }
}

/// The victim is as it was, and nothing was made beside it.
#[track_caller]
fn assert_untouched(victim: &Path, what: &str) {
    let is_unchanged = fs::read(victim).unwrap() == b"precious";
    assert!(is_unchanged, "{what}: changed");
    assert!(!victim.with_extension("made").exists(), "{what}");
}

/// A run's folder as it comes from another host, below the scratch folder.
fn received(scratch: &Scratch, title: &str) -> PathBuf {
    let run = Run {
        name: title.to_owned(),
        ..Run::default()
    };
    let mut folder = RunFolder::create(&scratch.runs(), "doctor", title, run.clone()).unwrap();
    folder.finish(&run, &[]).unwrap();
    folder.path().to_owned()
}

/// Every file of a run folder, and what unfinished versions of them were once called.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let found = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let found: Vec<String> = found.collect();
    assert!(found.len() >= 4, "{found:?}");
    let unfinished: Vec<String> = found.iter().map(|name| format!(".{name}.tmp")).collect();
    [found, unfinished].concat()
}

#[test]
fn a_run_folder_from_somebody_else_neither_changes_nor_shows_other_files() {
    let scratch = Scratch::new();
    let victim = scratch.write("victim", "precious");
    for kind in KINDS {
        for name in names(&received(&scratch, "x")) {
            let folder = received(&scratch, "x");
            put(kind, &folder.join(&name), &victim);
            let what = format!("{kind} {name}");
            // A pipe that is opened would be waited for without end.
            let mut command = scratch.within(&["timeout", "20"], &["report"]);
            let ended = scratch.run({
                command.arg(&folder);
                command
            });
            assert_untouched(&victim, &what);
            let is_output = name == "report.html" || name.starts_with('.');
            // What the victim has is no run; lines that are no samples are skipped.
            let is_read = kind == "hard link" && name == "samples.jsonl";
            if is_output || is_read {
                ended.succeeds();
                let page = folder.join("report.html");
                assert!(fs::symlink_metadata(&page).unwrap().is_file(), "{what}");
                let text = fs::read_to_string(&page).unwrap();
                assert!(text.contains("</html>"), "{what}");
            } else {
                let why = match kind {
                    "hard link" => "not what goodput writes",
                    _ => "not a regular file",
                };
                ended.fails_with(2, &[&name, why]);
            }
        }
    }
}

#[test]
fn a_link_to_another_run_does_not_put_it_into_a_page() {
    let scratch = Scratch::new();
    let secret = received(&scratch, "known-to-the-reader-alone");
    for name in ["run.json", "samples.jsonl", "findings.json"] {
        let folder = received(&scratch, "x");
        fs::remove_file(folder.join("report.html")).unwrap();
        put("link", &folder.join(name), &secret.join(name));
        let ended = scratch.run(scratch.goodput(&["report", folder.to_str().unwrap()]));
        ended.fails_with(2, &[name, "symbolic link"]);
        assert!(!ended.stdout.contains("known-to"), "{}", ended.stdout);
        assert!(!folder.join("report.html").exists());
    }
}

#[test]
fn pages_with_a_name_of_their_own_replace_links_and_those_that_are_named_follow_them() {
    let scratch = Scratch::new();
    let victim = scratch.write("victim", "precious");
    let runs = ["x", "y"].map(|title| received(&scratch, title));
    let [x, y] = runs.each_ref().map(|run| run.to_str().unwrap());
    write_log(&scratch.path("q.gplog"));
    for (args, page) in [
        (&["report", x, y][..], "comparison.html"),
        (&["report", "q.gplog"], "q.html"),
    ] {
        for kind in KINDS {
            put(kind, &scratch.path(page), &victim);
            let ended = scratch.run(scratch.within(&["timeout", "20"], args));
            assert!(ended.succeeds().stdout.contains(page));
            assert_untouched(&victim, &format!("{kind} {page}"));
            let found = fs::symlink_metadata(scratch.path(page)).unwrap();
            assert!(found.is_file(), "{kind} {page}");
        }
    }
    // A user's own link, and what a shell has as one.
    fs::write(scratch.path("own"), "").unwrap();
    put("link", &scratch.path("to-own"), &scratch.path("own"));
    let ended = scratch.run(scratch.goodput(&["report", x, "-o", "to-own"]));
    ended.succeeds();
    assert!(
        fs::read_to_string(scratch.path("own"))
            .unwrap()
            .contains("</html>")
    );
    let ended = scratch.run(scratch.goodput(&["report", x, "-o", "/dev/stdout"]));
    assert!(ended.succeeds().stdout.contains("</html>"));
}

/// A script in ssh's place whose second command finds the folder of the first one exchanged, as `exchange` does it.
fn rsh_that_exchanges(scratch: &Scratch, exchange: &str) {
    let script = format!(
        r#"shift
TMPDIR="$DIR/tmp"; export TMPDIR
p=$(echo "$TMPDIR"/goodput-*)
case "$*" in *agent*)
    mv "$p" "$DIR/away"
    {exchange}
;; esac
sh -c "$*""#
    );
    scratch.write("rsh", &script);
}

#[test]
fn a_program_that_another_user_put_in_the_place_of_a_pushed_one_is_not_run() {
    if !sys::userns::user_id().eq(&0) {
        return testing::skipped("only root can give a folder to another user");
    }
    for (case, exchange) in [
        ("a link", r#"ln -s "$DIR/theirs" "$p""#),
        (
            "a folder of theirs",
            r#"cp -a "$DIR/theirs" "$p"; chown -R 65534 "$p""#,
        ),
        (
            "a program of theirs",
            r#"cp -a "$DIR/theirs" "$p"; chmod 700 "$p"; chown 65534 "$p/goodput""#,
        ),
        (
            "open to a group",
            r#"cp -a "$DIR/theirs" "$p"; chmod 770 "$p""#,
        ),
        ("open to all", r#"cp -a "$DIR/theirs" "$p"; chmod 707 "$p""#),
        ("gone", ":"),
    ] {
        let scratch = Scratch::new();
        for folder in ["tmp", "theirs", "from"] {
            fs::create_dir(scratch.path(folder)).unwrap();
        }
        scratch.write("from/x", "x");
        let program = scratch.write("theirs/goodput", "#!/bin/sh\ntouch \"$DIR/was-run\"\n");
        let mode = |file: &Path, mode| fs::set_permissions(file, PermissionsExt::from_mode(mode));
        mode(&program, 0o755).unwrap();
        rsh_that_exchanges(&scratch, exchange);
        let args = ["copy", "-e", "sh rsh", "--push", "from/", "127.0.0.1:to"];
        let ended = scratch.run(scratch.goodput(&args));
        assert!(!scratch.path("was-run").exists(), "{case}");
        ended.fails_with(4, &["goodput: ", "127.0.0.1"]);
        assert!(!scratch.path("to").exists(), "{case}");
    }
}

#[test]
fn a_folder_that_others_may_enter_is_not_pushed_into() {
    for mode in [0o770, 0o707, 0o750, 0o701] {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path("tmp")).unwrap();
        fs::create_dir(scratch.path("from")).unwrap();
        scratch.write("from/x", "x");
        rsh_that_exchanges(&scratch, r#"cp -a "$DIR/away" "$p""#);
        let args = ["copy", "-e", "sh rsh", "--push", "from/", "127.0.0.1:to"];
        scratch.run(scratch.goodput(&args)).succeeds();
        fs::remove_dir_all(scratch.path("away")).unwrap();
        let made = fs::read_dir(scratch.path("tmp")).unwrap().next();
        let made = made.unwrap().unwrap().path();
        fs::remove_file(made.join("goodput")).unwrap();
        fs::set_permissions(&made, PermissionsExt::from_mode(mode)).unwrap();
        let ended = scratch.run(scratch.goodput(&args));
        ended.fails_with(4, &["mode 700", "could not be brought to 127.0.0.1"]);
        assert_eq!(fs::read_dir(&made).unwrap().count(), 0, "{mode:o}");
    }
}

#[test]
fn random_bytes_come_from_the_kernel_and_not_from_a_file() {
    let Some(mounts) = with_own_mounts() else {
        return;
    };
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("from")).unwrap();
    scratch.write("from/x", "x");
    scratch.write("rsh", "#!/bin/sh\nshift\nsh -c \"$*\"\n");
    let script = r#"
        set -e
        mount --bind /dev/null /dev/urandom
        $GOODPUT copy -e "sh $DIR/rsh" --far-goodput "$GOODPUT" from/ "127.0.0.1:$DIR/to"
        diff -r from to
    "#;
    scratch.run(scratch.script(mounts, script)).succeeds();
}
