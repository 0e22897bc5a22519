//! Texts from outside at the command's own outlets: stdout, stderr, the log, pages.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::far_end::address_of;
use crate::hostile_texts::{FORGED, HOSTILE, assert_clean, assert_clean_lines, assert_clean_page};
use crate::support::{Ended, Scratch, is_root, run_folders};

fn assert_shown_plain(ended: &Ended, what: &str) {
    assert_clean_lines(&ended.stdout, &format!("stdout of {what}"));
    assert_clean_lines(&ended.stderr, &format!("stderr of {what}"));
}

/// As a text of TOML.
fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        c if c.is_ascii_control() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

fn path_file(title: &str, more: &str) -> String {
    format!(
        "title = {}\n[hosts.near]\n[hosts.far]\n[links.wan]\nbetween = [\"near\", \"far\"]\nrate = \"100Mb/s\"\n\
         delay = \"1ms\"\n{more}",
        quoted(title)
    )
}

#[test]
fn keys_of_files_are_plain_in_errors() {
    let scratch = Scratch::new();
    for (name, verb, text) in [
        (
            "p.toml",
            &["sim"][..],
            path_file("x", &format!("{} = 1\n", quoted(HOSTILE))),
        ),
        (
            "p.toml",
            &["sim"],
            path_file("x", &format!("{HOSTILE} = 1\n")),
        ),
        (
            "p.toml",
            &["lab", "shell"],
            path_file("x", &format!("[links.{}]\n", quoted(HOSTILE))),
        ),
        (
            "f.toml",
            &["fabric", "run"],
            format!("{} = 1\n", quoted(HOSTILE)),
        ),
        (
            "g.toml",
            &["gateway", "check", "--config"],
            format!("{} = 1\n", quoted(HOSTILE)),
        ),
        (
            "g.toml",
            &["gateway", "check", "--config"],
            format!("{HOSTILE} = 1\n"),
        ),
        ("x.pcap", &["explain"], HOSTILE.to_owned()),
        ("x.gplog", &["lab", "log"], HOSTILE.to_owned()),
    ] {
        scratch.write(name, &text);
        let ended = scratch.run(scratch.goodput(&[verb, &[name]].concat()));
        assert_shown_plain(&ended, &format!("{verb:?} of {text:?}"));
        assert!(!ended.stderr.is_empty() && ended.code() != 0, "{ended:#?}");
    }
}

#[test]
fn what_is_typed_is_plain_in_errors() {
    let scratch = Scratch::new();
    // Whatever a shell's pattern found: names with no NUL.
    let typed = HOSTILE.replace('\0', "");
    for args in [
        &["report", &typed][..],
        &["report", &format!("--{typed}")],
        &[&typed],
        &["sim", &typed],
        &["lab", "log", &typed],
        &["explain", &typed],
        &["gateway", "check", "--config", &typed],
        &["copy", &typed, "there"],
    ] {
        let ended = scratch.run(scratch.goodput(args));
        assert_shown_plain(&ended, &format!("{args:?}"));
        assert!(!ended.stderr.is_empty() && ended.code() != 0, "{ended:#?}");
    }
}

#[test]
fn a_title_is_plain_wherever_it_is_shown_and_json_has_the_files_text() {
    let scratch = Scratch::new();
    let text = path_file(HOSTILE, "") + "# \u{202e}\u{9b} a comment\n";
    scratch.write("p.toml", &text);
    let sim = scratch.run(scratch.goodput(&["sim", "p.toml", "--time", "1s"]));
    sim.succeeds();
    assert_shown_plain(&sim, "sim");
    let as_json = scratch.run(scratch.goodput(&["sim", "p.toml", "--time", "1s", "--json"]));
    assert_shown_plain(&as_json, "sim --json");
    assert_eq!(as_json.json()["path"]["text"], Value::from(text));
    for folder in run_folders(&scratch.runs()) {
        let read = |name| fs::read_to_string(folder.join(name)).unwrap();
        assert_clean_page(&read("report.html"), "report.html");
        assert_clean(&read("run.json"), "run.json");
    }
    let shell = ["lab", "shell", "p.toml", "--", "true"];
    let shell = scratch.run(scratch.goodput(&shell));
    if shell.code() == 3 {
        return testing::skipped(format_args!("no lab here: {}", shell.stderr));
    }
    assert_shown_plain(&shell, "lab shell");
    assert!(shell.stderr.contains("owned"), "{shell:#?}");
}

#[test]
fn a_lab_that_is_up_has_a_plain_title() {
    if !is_root() {
        return testing::skipped("not root");
    }
    let scratch = Scratch::new();
    scratch.write("p.toml", &path_file(HOSTILE, ""));
    let up = scratch.run(scratch.goodput(&["lab", "up", "p.toml", "--name", "hostile-texts"]));
    if up.code() == 3 {
        return testing::skipped(format_args!("no lab here: {}", up.stderr));
    }
    let ps = scratch.run(scratch.goodput(&["lab", "ps"]));
    let ps_json = scratch.run(scratch.goodput(&["lab", "ps", "--json"]));
    let down = scratch.run(scratch.goodput(&["lab", "down", "hostile-texts"]));
    for (what, ended) in [
        ("up", &up),
        ("ps", &ps),
        ("ps --json", &ps_json),
        ("down", &down),
    ] {
        ended.succeeds();
        assert_shown_plain(ended, what);
    }
    assert!(ps.stdout.contains("owned"), "{ps:#?}");
}

#[test]
fn a_run_folder_of_somebody_else_is_shown_plain() {
    let scratch = Scratch::new();
    scratch.write("p.toml", &path_file("x", ""));
    scratch
        .run(scratch.goodput(&["sim", "p.toml", "--time", "1s"]))
        .succeeds();
    let folder = scratch.run_folder();
    let file = folder.join("run.json");
    let run: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let mut left = 0;
    loop {
        let mut changed = run.clone();
        let mut at = left;
        if !replace(&mut changed, &mut at) {
            break;
        }
        left += 1;
        fs::write(&file, changed.to_string()).unwrap();
        let ended = scratch.run(scratch.goodput(&["report", folder.to_str().unwrap()]));
        assert_shown_plain(&ended, &format!("report of {changed}"));
        if ended.code() == 0 {
            let page = fs::read_to_string(folder.join("report.html")).unwrap();
            assert_clean_page(&page, &format!("page of {changed}"));
        }
    }
    assert!(left > 10, "{left} texts");
    fs::write(&file, json!({ "state": HOSTILE }).to_string()).unwrap();
    let ended = scratch.run(scratch.goodput(&["report", folder.to_str().unwrap()]));
    ended.fails_with(2, &["unknown variant"]);
    assert_shown_plain(&ended, "a state");
}

/// Makes the `left`th text hostile.
fn replace(value: &mut Value, left: &mut usize) -> bool {
    match value {
        Value::String(text) if *left == 0 => {
            *text = HOSTILE.to_owned();
            true
        }
        Value::String(_) => {
            *left -= 1;
            false
        }
        Value::Array(items) => items.iter_mut().any(|item| replace(item, left)),
        Value::Object(members) => members.values_mut().any(|member| replace(member, left)),
        _ => false,
    }
}

#[test]
fn a_client_without_a_token_forges_no_log_line() {
    let scratch = Scratch::new();
    let listen = ["serve", "--listen", "127.0.0.1:0", "--log-clients", "-v"];
    let serving = scratch.start(scratch.goodput(&listen));
    let address = address_of(&serving.stderr_when("serving on"));
    let mut clients = Vec::new();
    let name = format!("\n{FORGED}: session opened");
    for message in [
        json!({ name: {} }),
        json!(HOSTILE),
        json!({ "type": HOSTILE }),
        json!({ HOSTILE: HOSTILE }),
    ] {
        let mut client = TcpStream::connect(&address).unwrap();
        let text = message.to_string();
        client
            .write_all(&measure::message::greeting(measure::message::Kind::Control))
            .unwrap();
        client
            .write_all(&u32::try_from(text.len()).unwrap().to_be_bytes())
            .unwrap();
        client.write_all(text.as_bytes()).unwrap();
        clients.push(client);
    }
    // What is no greeting, and what iperf3 would send.
    for words in [HOSTILE.as_bytes(), &b"a".repeat(37)] {
        let mut client = TcpStream::connect(&address).unwrap();
        client.write_all(words).unwrap();
        clients.push(client);
    }
    crate::support::wait_until("four refusals", || {
        serving.stderr().matches("session dropped").count() >= 4
    });
    drop(clients);
    serving.signal("TERM");
    let served = serving.end();
    assert!(served.stderr.contains(FORGED), "{served:#?}");
    assert_shown_plain(&served, "serve");
}

#[test]
fn a_shell_and_a_far_host_are_shown_plain_with_their_name() {
    let scratch = Scratch::new();
    scratch.write("hostile", HOSTILE);
    scratch.write("from", "x");
    for (name, script) in [
        ("fails", "cat hostile >&2; exit 1".to_owned()),
        (
            "talks",
            format!("cat hostile hostile; echo '{}'", json!({ "note": HOSTILE })),
        ),
        (
            "refuses",
            format!(
                "echo '{}'; exit 1",
                json!({ "failed": { "code": 4, "why": HOSTILE } })
            ),
        ),
        (
            "refuses too",
            format!(
                "echo '{}'; exit 1",
                json!({ "Failed": { "code": 4, "why": HOSTILE } })
            ),
        ),
    ] {
        scratch.write("shell", &script);
        let copy = ["copy", "--rsh", "sh shell", "from", "far:to"];
        let ended = scratch.run(scratch.goodput(&copy));
        assert_shown_plain(&ended, name);
        assert_ne!(ended.code(), 0, "{ended:#?}");
        if name == "fails" {
            assert!(ended.stderr.contains("far: =h"), "{ended:#?}");
        }
    }
}
