//! `--quiet`: errors, and results for programs, are all that is printed.

use std::fs;

use crate::far_end::address_of;
use crate::support::Scratch;

#[test]
fn a_quiet_verb_prints_only_what_programs_asked_for() {
    let scratch = Scratch::new();
    let serving = scratch.start(scratch.goodput(&["serve", "--listen", "127.0.0.1:0"]));
    let address = address_of(&serving.stderr_when("serving on"));
    let from = scratch.path("from");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("file"), "text").unwrap();
    let from = format!("{}/", from.display());
    let to = format!("{}/", scratch.path("to").display());
    for words in [
        &["measure", address.as_str(), "-d", "100ms"][..],
        &["copy", &from, &to],
        &["sim", "columbia-untuned"],
    ] {
        let text = scratch.run(scratch.goodput(&[words, &["-q"]].concat()));
        text.succeeds();
        assert_eq!(
            (text.stdout.as_str(), text.stderr.as_str()),
            ("", ""),
            "{words:?}"
        );
        let json = scratch.run(scratch.goodput(&[&["--quiet"], words, &["--json"]].concat()));
        assert!(json.succeeds().json().is_object(), "{words:?}");
        assert_eq!(json.stderr, "", "{words:?}");
    }
    serving.signal("TERM");
    serving.end().succeeds();
    for (code, words) in [
        (4, &["measure", address.as_str(), "-d", "100ms"][..]),
        (2, &["copy", "no/such", &to]),
        (2, &["sim", "no-such-path"]),
    ] {
        let failed = scratch.run(scratch.goodput(&[words, &["-q"]].concat()));
        failed.fails_with(code, &["goodput: "]);
        assert_eq!(failed.stdout, "", "{words:?}");
    }
    let script = scratch.run(scratch.goodput(&["-q", "completions", "bash"]));
    assert!(script.succeeds().stdout.contains("goodput"));
    scratch.assert_nothing_left();
}
