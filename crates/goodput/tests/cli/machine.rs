//! Failures for programs: every verb with machine-readable output, every exit code.

use serde_json::Value;

use crate::support::Scratch;

/// Command lines that fail, with their exit codes; `$CLOSED` is an address where nobody listens.
const FAILURES: [(&str, i32); 24] = [
    ("measure $CLOSED -d 1s --json", 4),
    ("measure $CLOSED -d 1s --format json", 4),
    ("measure $CLOSED -d 1s --format jsonl", 4),
    ("measure iperf3://$CLOSED -d 1s --format iperf3-json", 4),
    ("measure lab:no-such-path --json", 2),
    ("measure --no-such-option --format=iperf3-json", 2),
    ("doctor lab:no-such-path --json", 2),
    ("doctor $CLOSED --json", 4),
    ("explain missing.pcap --json", 2),
    ("explain lab:no-such-path --json", 2),
    ("capture no-such-interface -w x.pcapng --json", 2),
    ("copy missing there --json", 2),
    ("copy missing there --format jsonl", 2),
    ("copy here goodput://$CLOSED/x --json", 2),
    ("sim no-such-path --json", 2),
    ("fabric run missing.toml --json", 2),
    ("fabric cable --json --no-such-option", 2),
    ("rotate missing.toml --json", 2),
    ("gateway status --control no-such-socket --json", 4),
    ("gateway check missing.toml --json", 2),
    ("lab check missing.toml --json", 2),
    ("lab down no-such-lab --json", 2),
    ("reproduce no-such-row --json", 2),
    ("lab ps --json --no-such-option", 2),
];

#[test]
fn each_says_why_in_the_layout_that_was_asked_for() {
    let scratch = Scratch::new();
    scratch.write("here", "some text");
    let closed = format!("127.0.0.1:{}", testing::free_port());
    for (line, code) in FAILURES {
        let words: Vec<String> = line
            .split(' ')
            .map(|word| word.replace("$CLOSED", &closed))
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ended = scratch.run(scratch.goodput(&words));
        assert_eq!(ended.code(), code, "{line}: {ended:#?}");
        let last = ended.stdout.lines().last().unwrap_or_default();
        let said: Value =
            serde_json::from_str(last).unwrap_or_else(|e| panic!("{line}: {e}: {ended:#?}"));
        let error = said["error"].as_str().unwrap_or_default();
        assert!(!error.is_empty(), "{line}: {said}");
        assert!(
            ended.stderr.contains(error.lines().next().unwrap()),
            "{line}: {ended:#?}"
        );
        if line.contains("iperf3-json") {
            assert!(
                said["start"].is_object() && said["end"].is_object(),
                "{said}"
            );
            assert_eq!(said["intervals"], serde_json::json!([]));
        } else {
            assert_eq!(said["exit_code"], code, "{line}");
            assert_eq!(said["event"] == "error", line.contains("jsonl"), "{line}");
        }
        // The whole of stdout is that.
        assert_eq!(ended.stdout.lines().count(), 1, "{line}: {ended:#?}");
    }
}
