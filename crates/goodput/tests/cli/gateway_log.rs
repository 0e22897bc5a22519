//! `goodput gateway --log`: what became of each connection.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::{Value, json};

use super::gateway::net::{Net, SERVER, SERVER6, SILENT};
use super::gateway::{ask, inside, start, status};
use super::support::{Scratch, wait_until};

fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    // What is being written has no end yet.
    let lines = text.split_inclusive('\n').filter(|l| l.ends_with('\n'));
    lines.map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// Waits for so many lines of an event; the last one of them.
fn when(file: &Path, event: &str, count: usize) -> Value {
    let of = || -> Vec<Value> {
        let all = lines(file).into_iter();
        all.filter(|l| l["event"] == event).collect()
    };
    wait_until(&format!("{count} lines that say {event}"), || {
        of().len() >= count
    });
    let found = of();
    assert_eq!(found.len(), count, "{found:#?}");
    found[count - 1].clone()
}

fn serve(net: &Net, to: IpAddr) -> (TcpListener, TcpStream, TcpStream) {
    let (listener, addr) = net.listen(to);
    let near = net.connect(addr).unwrap();
    let far = listener.accept().unwrap().0;
    (listener, near, far)
}

/// So many bytes there and back.
fn speak(near: &mut TcpStream, far: &mut TcpStream, there: usize, back: usize) {
    near.write_all(&vec![1; there]).unwrap();
    far.read_exact(&mut vec![0; there]).unwrap();
    far.write_all(&vec![2; back]).unwrap();
    near.read_exact(&mut vec![0; back]).unwrap();
}

const RULES: &str = "[[rule]]\naction = 'refuse'\nserver = '198.18.2.9'\n\
                     [[rule]]\naction = 'bypass'\nside = 'inside'\nmss = '1441..1460'\n";

#[test]
fn each_connection_has_a_line_and_a_split_one_has_another_when_it_is_over() {
    let scratch = Scratch::new();
    let Some(net) = Net::new() else { return };
    let file = scratch.path("decisions.jsonl");
    let log = file.to_str().unwrap();
    let config = scratch.write("gateway.toml", RULES);
    let config = config.to_str().unwrap();
    let running = start(
        &scratch,
        &net,
        &["--config", config, "--log", log, "--drain", "1s"],
    );
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    // Its IPv6 segments are smaller by the header's 20 bytes: no rule fits.
    let (_listener, mut near, mut far) = serve(&net, SERVER6.into());
    speak(&mut near, &mut far, 700, 3);
    let split = when(&file, "split", 1);
    assert_eq!(split["client"], near.local_addr().unwrap().to_string());
    assert_eq!(split["server"], far.local_addr().unwrap().to_string());
    assert_eq!(
        (&split["side"], &split["mss"]),
        (&json!("inside"), &json!(1440))
    );
    assert_eq!(
        (&split["why"], &split["rule"]),
        (&json!("no-rule"), &Value::Null)
    );
    assert!(split["held_us"].as_u64() > Some(0), "{split}");
    assert!(split["time"].as_str().unwrap().ends_with('Z'), "{split}");
    drop((near, far));
    let ended = when(&file, "ended", 1);
    assert_eq!(ended["client"], split["client"]);
    assert_eq!(
        (&ended["why"], &ended["carried"]),
        (&json!("closed"), &json!([700, 3]))
    );
    assert_eq!(ended["undelivered"], json!([0, 0]));

    // IPv4 passes by the rule of its segments.
    let (_listener, mut near, mut far) = serve(&net, SERVER.into());
    speak(&mut near, &mut far, 5, 5);
    let unsplit = when(&file, "unsplit", 1);
    assert_eq!(
        (&unsplit["why"], &unsplit["rule"]),
        (&json!("rule"), &json!(2))
    );
    assert_eq!(unsplit["mss"], 1460);

    // One that a rule forbids, one that its server refuses.
    let refused = net.connect((SILENT, 9).into()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(when(&file, "refused", 1)["rule"], 1);
    let (listener, addr) = net.listen(SERVER6);
    drop(listener);
    let refused = net.connect(addr).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let line = when(&file, "refused", 2);
    assert_eq!(
        (&line["why"], &line["server"]),
        (&json!("server"), &json!(addr.to_string()))
    );

    // Another process goes on in the same file, also with what it did not begin.
    let (_listener, mut near, mut far) = serve(&net, SERVER6.into());
    speak(&mut near, &mut far, 10, 0);
    when(&file, "split", 2);
    ask(&scratch, &net, &["reload"]).succeeds();
    ask(&scratch, &net, &["upgrade"]).succeeds();
    running.end().succeeds();
    speak(&mut near, &mut far, 10, 1);
    sys::tcp::set_reset_on_close(near.as_fd()).unwrap();
    drop(near);
    let error = far.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let ended = when(&file, "ended", 2);
    assert_eq!(
        (&ended["why"], &ended["carried"]),
        (&json!("reset"), &json!([20, 1]))
    );
    let (_listener, near, far) = serve(&net, SERVER6.into());
    when(&file, "split", 3);
    // What stands when it ends has its line as well.
    ask(&scratch, &net, &["drain"]).succeeds();
    let ended = when(&file, "ended", 3);
    assert_eq!(
        (&ended["why"], &ended["carried"]),
        (&json!("stopped"), &json!([0, 0]))
    );
    drop((near, far));
    scratch.assert_nothing_left();
}

#[test]
fn what_comes_too_fast_is_counted_and_a_link_in_the_files_place_is_refused() {
    let scratch = Scratch::new();
    let Some(net) = Net::new() else { return };
    let file = scratch.path("decisions.jsonl");
    let log = file.to_str().unwrap();
    let other = scratch.write("other", "kept\n");
    symlink(&other, &file).unwrap();
    let sides = [
        "gateway",
        "--inside",
        "in0",
        "--outside",
        "out0",
        "--log",
        log,
    ];
    let refused = scratch.run(inside(&net, scratch.goodput(&sides)));
    refused.fails_with(2, &["the log ", "decisions.jsonl"]);
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "kept\n");
    std::fs::remove_file(&file).unwrap();

    let text = format!("[log]\nfile = '{log}'\nlines-per-second = 5\n");
    let config = scratch.write("gateway.toml", &text);
    let running = start(&scratch, &net, &["--config", config.to_str().unwrap()]);
    let (listener, addr) = net.listen(SERVER);
    for _ in 0..60 {
        let near = net.connect(addr).unwrap();
        drop((listener.accept().unwrap(), near));
    }
    wait_until("all to have ended", || {
        let now = status(&scratch, &net);
        now["split"] == 60 && now["live"] == 0
    });
    running.signal("INT");
    running.end().succeeds();
    let lines = lines(&file);
    let dropped = |l: &Value| l["entries"].as_u64();
    let all: u64 = lines.iter().map(|l| dropped(l).unwrap_or(1)).sum();
    assert_eq!(all, 120, "{lines:#?}");
    assert!(lines.iter().any(|l| dropped(l).is_some()), "{lines:#?}");
}
