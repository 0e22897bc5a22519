//! `goodput serve --dir`: who gets in, and how far.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ::copy::Key;
use ::copy::gate::Visitor;
use ::copy::link::{Socket, VERSION};
use measure::Secret;

use crate::support::{Running, Scratch};

const TOKEN: &str = "correct horse battery staple";
/// `copy::gate::PATIENCE`, which every refusal takes.
const REFUSAL: Duration = Duration::from_secs(5);

/// A file that is its owner's alone.
fn private(scratch: &Scratch, name: &str, text: &str) -> String {
    let path = scratch.write(name, text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

/// A certificate or key of the tests' own authorities, as a file of this test's.
fn pki(scratch: &Scratch, name: &str) -> String {
    let there = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/pki");
    private(
        scratch,
        name,
        &fs::read_to_string(there.join(name)).unwrap(),
    )
}

struct Daemon {
    running: Running,
    at: String,
}

impl Daemon {
    fn start(scratch: &Scratch, more: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", scratch, more)
    }

    fn start_at(listen: &str, scratch: &Scratch, more: &[&str]) -> Self {
        let dir = scratch.path("served");
        fs::create_dir_all(&dir).unwrap();
        let args = ["serve", "--listen", listen, "--log-clients", "--dir"];
        let args = [&args[..], &[dir.to_str().unwrap()], more].concat();
        let running = scratch.start(scratch.goodput(&args));
        let said = running.stderr_when("serving ");
        let at = said.split(" on ").nth(1).unwrap();
        let at = at.split(',').next().unwrap().to_owned();
        Self { running, at }
    }

    fn url(&self, path: &str) -> String {
        format!("goodput://{}/{path}", self.at)
    }

    /// Ends it; what it said.
    fn end(self) -> String {
        self.running.signal("TERM");
        let ended = self.running.end();
        ended.succeeds();
        ended.stderr
    }
}

fn plant(top: &Path) {
    fs::create_dir_all(top.join("a/b")).unwrap();
    for n in 0..30_u8 {
        fs::write(top.join(format!("a/f{n}")), vec![n; usize::from(n) * 500]).unwrap();
    }
    fs::write(top.join("a/b/large"), vec![7; 3 << 20]).unwrap();
}

/// Names and bytes of a tree.
fn tree(top: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => {
                    let name = path.strip_prefix(top).unwrap().to_owned();
                    all.push((name, fs::read(&path).unwrap()));
                }
            }
        }
    }
    all.sort();
    all
}

#[test]
fn who_has_the_token_writes_and_reads_and_nobody_else_does() {
    let scratch = Scratch::new();
    let token = private(&scratch, "token", TOKEN);
    let other = private(&scratch, "other", "another horse battery staple");
    let from = scratch.path("from");
    plant(&from);
    let daemon = Daemon::start(&scratch, &["--token-file", &token, "--writable"]);
    let source = format!("{}/", from.display());
    let copy = |args: &[&str]| scratch.run(scratch.goodput(&[&["copy"], args].concat()));
    let there = daemon.url("in/deep");
    fs::create_dir(scratch.path("served/in")).unwrap();
    copy(&["--token-file", &token, &source, &there]).succeeds();
    assert_eq!(tree(&from), tree(&scratch.path("served/in/deep")));
    let back = scratch.path("back");
    let back = back.to_str().unwrap();
    copy(&["--token-file", &token, &daemon.url("in/deep/"), back]).succeeds();
    assert_eq!(tree(&from), tree(&scratch.path("back")));
    // One file under a new name, and its name again.
    let one = from.join("a/f7").display().to_string();
    copy(&["--token-file", &token, &one, &daemon.url("renamed")]).succeeds();
    assert!(scratch.path("served/renamed").is_file());
    // Nobody else: not with another token, not with none, not over the usual gate's time.
    let since = Instant::now();
    copy(&["--token-file", &other, &source, &there]).fails_with(4, &["let nobody in"]);
    assert!(since.elapsed() >= REFUSAL);
    let ca = pki(&scratch, "site.pem");
    copy(&["--ca", &ca, &source, &there]).fails_with(4, &["certificate"]);
    copy(&[&source, &there]).fails_with(2, &["--token-file"]);
    fs::set_permissions(&token, fs::Permissions::from_mode(0o640)).unwrap();
    copy(&["--token-file", &token, &source, &there]).fails_with(2, &["chmod 600"]);
    let said = daemon.end();
    assert!(!said.contains("horse"), "{said}");
    assert!(said.contains("no token, or another"), "{said}");
    scratch.assert_nothing_left();
}

#[test]
fn the_token_stands_nowhere() {
    let scratch = Scratch::new();
    let token = private(&scratch, "token", TOKEN);
    let from = scratch.path("from");
    plant(&from);
    let daemon = Daemon::start(&scratch, &["--token-file", &token, "--writable"]);
    let source = format!("{}/", from.display());
    let args = ["copy", "--limit", "20Mb/s", "--token-file", &token];
    let copy = scratch.start(scratch.goodput(&[&args[..], &[&source, &daemon.url("to")]].concat()));
    let mut seen = Vec::new();
    for id in [copy.child.id(), daemon.running.child.id()] {
        for file in ["cmdline", "environ"] {
            seen.extend(fs::read(format!("/proc/{id}/{file}")).unwrap_or_default());
        }
    }
    copy.end().succeeds();
    for (_, bytes) in tree(&scratch.runs()) {
        seen.extend(bytes);
    }
    seen.extend(daemon.end().into_bytes());
    let seen = String::from_utf8_lossy(&seen);
    assert!(!seen.contains("battery"));
    scratch.assert_nothing_left();
}

#[test]
fn no_path_leads_out_of_what_is_served() {
    let scratch = Scratch::new();
    let token = private(&scratch, "token", TOKEN);
    let outside = scratch.path("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("secret"), b"not yours").unwrap();
    fs::create_dir_all(scratch.path("served")).unwrap();
    symlink(&outside, scratch.path("served/way")).unwrap();
    symlink("/", scratch.path("served/root")).unwrap();
    let own = scratch.path("own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("x"), b"x").unwrap();
    let own = format!("{}/", own.display());
    let daemon = Daemon::start(&scratch, &["--token-file", &token, "--writable"]);
    let copy = |from: &str, to: &str| {
        let args = ["copy", "--delete", "--token-file", &token, from, to];
        scratch.run(scratch.goodput(&args))
    };
    let here = format!("{}/", scratch.path("here").display());
    for way in [
        "../outside/secret",
        "a/../../outside/secret",
        "way/secret",
        "way/",
        "root/etc/",
        "%2e%2e/outside",
    ] {
        copy(&daemon.url(way), &here).fails_with(4, &[]);
        if way != "%2e%2e/outside" {
            copy(&own, &daemon.url(way)).fails_with(4, &[]);
        }
    }
    // The link itself is no way: it is copied as a link.
    copy(&daemon.url("way"), &here).succeeds();
    assert!(scratch.path("here/way").is_symlink());
    // A slash in front is the served folder's own.
    copy(&own, &daemon.url("/fine")).succeeds();
    assert!(scratch.path("served/fine/x").is_file());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(fs::read(outside.join("secret")).unwrap(), b"not yours");
    daemon.end();
    scratch.assert_nothing_left();
}

#[test]
fn what_is_to_be_read_only_stays_as_it_is_and_guests_bring_no_bits() {
    let scratch = Scratch::new();
    let token = private(&scratch, "token", TOKEN);
    let from = scratch.path("from");
    plant(&from);
    let program = from.join("program");
    fs::write(&program, b"#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o6755)).unwrap();
    let source = format!("{}/", from.display());
    let reads = Daemon::start(&scratch, &["--token-file", &token]);
    let copy = |args: &[&str]| {
        scratch.run(scratch.goodput(&[&["copy", "--token-file", &token], args].concat()))
    };
    copy(&[&source, &reads.url("")]).fails_with(4, &["read only"]);
    copy(&["--delete", &source, &reads.url("")]).fails_with(4, &["read only"]);
    assert_eq!(fs::read_dir(scratch.path("served")).unwrap().count(), 0);
    copy(&["-n", &source, &reads.url("")]).succeeds();
    reads.end();
    let writes = Daemon::start(&scratch, &["--token-file", &token, "--writable"]);
    copy(&["--cipher", "none", &source, &writes.url("")]).fails_with(2, &["encrypts"]);
    copy(&[&source, &writes.url("")]).succeeds();
    let mode = |path: &str| fs::metadata(scratch.path(path)).unwrap().mode() & 0o7777;
    assert_eq!(mode("served/program"), 0o755);
    // Nor do they come back from a host that is not this one, unless asked for.
    fs::set_permissions(
        scratch.path("served/program"),
        fs::Permissions::from_mode(0o4755),
    )
    .unwrap();
    let here = format!("{}/", scratch.path("here").display());
    copy(&[&writes.url("program"), &here]).succeeds();
    assert_eq!(mode("here/program"), 0o755);
    fs::remove_file(scratch.path("here/program")).unwrap();
    copy(&["--set-id", &writes.url("program"), &here]).succeeds();
    assert_eq!(mode("here/program"), 0o4755);
    writes.end();
    scratch.assert_nothing_left();
}

#[test]
fn a_certificate_of_the_sites_own_lets_in_and_a_strangers_does_not() {
    let scratch = Scratch::new();
    let [
        site,
        cert,
        key,
        client,
        client_key,
        unknown,
        unknown_key,
        stranger,
    ] = [
        "site.pem",
        "daemon.pem",
        "daemon-key.pem",
        "client.pem",
        "client-key.pem",
        "unknown.pem",
        "unknown-key.pem",
        "stranger.pem",
    ]
    .map(|name| pki(&scratch, name));
    let from = scratch.path("from");
    plant(&from);
    let source = format!("{}/", from.display());
    let daemon = Daemon::start(
        &scratch,
        &[
            "--certificate",
            &cert,
            "--key",
            &key,
            "--client-ca",
            &site,
            "--writable",
        ],
    );
    let to = daemon.url("to");
    let copy = |args: &[&str]| {
        let tail = [source.as_str(), to.as_str()];
        scratch.run(scratch.goodput(&[&["copy"], args, &tail].concat()))
    };
    let shows =
        |cert: &str, key: &str, ca: &str| copy(&["--certificate", cert, "--key", key, "--ca", ca]);
    shows(&client, &client_key, &site).succeeds();
    assert_eq!(tree(&from), tree(&scratch.path("served/to")));
    let since = Instant::now();
    shows(&unknown, &unknown_key, &site).fails_with(4, &["let nobody in"]);
    assert!(since.elapsed() >= REFUSAL);
    let since = Instant::now();
    copy(&["--ca", &site]).fails_with(4, &["let nobody in"]);
    assert!(since.elapsed() >= REFUSAL);
    // And a daemon that another authority vouches for is not this one.
    shows(&client, &client_key, &stranger).fails_with(4, &["certificate"]);
    // A key that others can read is none.
    fs::set_permissions(&client_key, fs::Permissions::from_mode(0o644)).unwrap();
    shows(&client, &client_key, &site).fails_with(3, &["chmod 600"]);
    daemon.end();
    scratch.assert_nothing_left();
}

#[test]
fn a_revoked_certificate_and_one_without_a_valid_list_are_refused() {
    let scratch = Scratch::new();
    let file = |name: &str| pki(&scratch, &format!("{name}.pem"));
    let [cert, key, site, ca] = ["daemon", "daemon-key", "site", "listing"].map(file);
    let from = scratch.path("from");
    plant(&from);
    let source = format!("{}/", from.display());
    for (list, admitted) in [
        (None, &["kept", "revoked"][..]),
        (Some("listing-crl"), &["kept"]),
        (Some("listing-old-crl"), &[]),
    ] {
        let mut args = vec!["--certificate", &cert, "--key", &key, "--client-ca", &ca];
        let list = list.map(file);
        if let Some(list) = &list {
            args.extend(["--client-crl", list]);
        }
        args.push("--writable");
        let daemon = Daemon::start(&scratch, &args);
        for name in ["kept", "revoked"] {
            let [own, own_key] = [name.to_owned(), format!("{name}-key")].map(|name| file(&name));
            let to = daemon.url(name);
            let shows = ["--certificate", &own, "--key", &own_key, "--ca", &site];
            let args = [&["copy"], &shows[..], &[&source, &to]].concat();
            let ended = scratch.run(scratch.goodput(&args));
            match admitted.contains(&name) {
                true => drop(ended.succeeds()),
                false => drop(ended.fails_with(4, &["let nobody in"])),
            }
        }
        daemon.end();
    }
    // What is no list is the user's mistake.
    let args = ["serve", "--dir", &source, "--listen", "127.0.0.1:0"];
    let wrong = [
        "--certificate",
        &cert,
        "--key",
        &key,
        "--client-ca",
        &ca,
        "--client-crl",
        &ca,
    ];
    scratch
        .run(scratch.goodput(&[&args[..], &wrong].concat()))
        .fails_with(3, &["no certificate revocation list"]);
    scratch.assert_nothing_left();
}

#[test]
fn two_are_served_at_once_and_a_third_is_told_so() {
    let scratch = Scratch::new();
    let token = private(&scratch, "token", TOKEN);
    let args = ["--token-file", &token, "--writable", "--clients", "2"];
    let from = scratch.path("from");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("file"), vec![3; 3 << 20]).unwrap();
    let source = format!("{}/", from.display());
    let daemon = Daemon::start(&scratch, &args);
    let command = |to: &str| {
        let args = ["copy", "--limit", "8Mb/s", "--token-file", &token];
        scratch.goodput(&[&args[..], &[&source, &daemon.url(to)]].concat())
    };
    let both = [scratch.start(command("one")), scratch.start(command("two"))];
    crate::support::wait_until("both to be under way", || {
        let staged = |to: &str| {
            let there = fs::read_dir(scratch.path("served").join(to));
            there.is_ok_and(|mut names| {
                names.any(|name| {
                    name.is_ok_and(|n| n.file_name().to_string_lossy().starts_with(".goodput-part"))
                })
            })
        };
        staged("one") && staged("two")
    });
    scratch
        .run(command("three"))
        .fails_with(4, &["2 copies already"]);
    // Who says nothing is not waited for, and sees what everybody sees who is not let in.
    let mut silent = TcpStream::connect(&daemon.at).unwrap();
    let mut heard = Vec::new();
    silent.read_to_end(&mut heard).unwrap();
    assert!(heard.is_empty());
    for running in both {
        running.end().succeeds();
    }
    assert_eq!(tree(&from), tree(&scratch.path("served/one")));
    assert_eq!(tree(&from), tree(&scratch.path("served/two")));
    daemon.end();
    scratch.assert_nothing_left();
}

#[test]
fn a_copy_that_is_killed_goes_on_and_a_daemon_that_ends_says_so() {
    let scratch = Scratch::new();
    let token = private(&scratch, "token", TOKEN);
    let from = scratch.path("from");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("file"), vec![3; 6 << 20]).unwrap();
    let source = format!("{}/", from.display());
    let daemon = Daemon::start(&scratch, &["--token-file", &token, "--writable"]);
    let to = daemon.url("to");
    let slow = [
        "copy",
        "--limit",
        "16Mb/s",
        "--token-file",
        &token,
        &source,
        &to,
    ];
    let copy = scratch.start(scratch.goodput(&slow));
    let journal = || {
        let there = fs::read_dir(scratch.path("served/to")).ok()?;
        let folder = there
            .flatten()
            .find(|e| e.file_name().to_string_lossy().starts_with(".goodput-part"))?;
        Some(fs::metadata(folder.path().join("journal")).ok()?.len())
    };
    // A block's record, behind the file's own.
    crate::support::wait_until("a block to be in the journal", || {
        journal().is_some_and(|bytes| bytes > 120)
    });
    copy.signal("KILL");
    drop(copy.end());
    let again = ["copy", "--json", "--token-file", &token, &source, &to];
    let run = scratch.run(scratch.goodput(&again)).succeeds().json();
    assert!(run["copy"]["resumed_bytes"].as_u64().unwrap() > 0, "{run}");
    assert_eq!(tree(&from), tree(&scratch.path("served/to")));
    fs::write(from.join("file"), vec![4; 6 << 20]).unwrap();
    let copy = scratch.start(scratch.goodput(&slow));
    crate::support::wait_until("a block to be in the journal", || {
        journal().is_some_and(|bytes| bytes > 120)
    });
    daemon.end();
    copy.end().fails_with(4, &["stopped"]);
    scratch.assert_nothing_left();
}

#[test]
fn who_is_let_in_and_says_nothing_has_a_place() {
    let scratch = Scratch::new();
    let token = private(&scratch, "token", TOKEN);
    let from = scratch.write("file", "text").display().to_string();
    for (limits, said) in [
        (&["--clients", "1"][..], "serves 1 copy already"),
        (
            &["--clients", "3", "--clients-per-address", "1"],
            "serves 1 copy of this address already",
        ),
    ] {
        let args = [&["--token-file", &token, "--writable"], limits].concat();
        let daemon = Daemon::start(&scratch, &args);
        let copy = ["copy", "--token-file", &token, &from, &daemon.url("to")];
        let key = Secret::read(Path::new(&token)).unwrap();
        let key = Key::from_hex(&key.derived("goodput copy daemon 1"));
        let config = tls::gate_client(None, None).unwrap();
        let visitor = Visitor::new(config, "127.0.0.1", key).unwrap();
        let socket = TcpStream::connect(&daemon.at).unwrap();
        let mut line = visitor.enter(Socket::Tcp(socket)).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            // A job that never ends, without a silence.
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) && line.write_all(b" ").is_ok() {
                    thread::sleep(Duration::from_millis(200));
                }
            });
            let refused = scratch.run(scratch.goodput(&copy));
            is_over.store(true, Ordering::Release);
            refused.fails_with(4, &[said]);
        });
        drop(line);
        daemon.end();
    }
    scratch.assert_nothing_left();
}

#[test]
fn strangers_take_no_more_threads_than_there_are_for_them_and_keep_nobody_out() {
    let scratch = Scratch::new();
    let token = private(&scratch, "token", TOKEN);
    let daemon = Daemon::start(&scratch, &["--token-file", &token, "--writable"]);
    let status = format!("/proc/{}/status", daemon.running.child.id());
    let threads = || -> usize {
        let status = fs::read_to_string(&status).unwrap();
        let line = status.lines().find_map(|l| l.strip_prefix("Threads:"));
        line.unwrap().trim().parse().unwrap()
    };
    let strangers: Vec<_> = (0..500)
        .map(|_| {
            let stranger = TcpStream::connect(&daemon.at).unwrap();
            // Known at once to be nobody; the refusal waits.
            let _ = (&stranger).write_all(b"GET / HTTP/1.0\r\n\r\n");
            let _ = stranger.shutdown(Shutdown::Write);
            assert!(threads() <= 128 + 8, "{}", threads());
            stranger
        })
        .collect();
    let from = scratch.write("file", "text").display().to_string();
    let copy = ["copy", "--token-file", &token, &from, &daemon.url("to")];
    scratch.run(scratch.goodput(&copy)).succeeds();
    assert!(threads() <= 128 + 8);
    drop(strangers);
    daemon.end();
    scratch.assert_nothing_left();
}

#[test]
fn a_greeting_of_no_session_hears_nothing() {
    let scratch = Scratch::new();
    let token = private(&scratch, "token", TOKEN);
    let daemon = Daemon::start(&scratch, &["--token-file", &token]);
    for version in [1, VERSION] {
        let mut greeting = [0; 65];
        greeting[..8].copy_from_slice(b"GOODCOPY");
        greeting[8..10].copy_from_slice(&version.to_le_bytes());
        greeting[10..12].copy_from_slice(&version.to_le_bytes());
        let since = Instant::now();
        let mut stranger = TcpStream::connect(&daemon.at).unwrap();
        stranger.write_all(&greeting).unwrap();
        let mut heard = Vec::new();
        let _ = stranger.read_to_end(&mut heard);
        assert!(heard.is_empty(), "{heard:?}");
        // Its clock begins when it takes a connection, which the kernel made before.
        assert!(since.elapsed() >= REFUSAL - Duration::from_millis(5));
    }
    daemon.end();
    scratch.assert_nothing_left();
}

#[test]
fn a_daemon_lets_nobody_in_without_proof() {
    let scratch = Scratch::new();
    let dir = scratch.path("served");
    fs::create_dir(&dir).unwrap();
    let dir = dir.to_str().unwrap();
    let serve =
        |args: &[&str]| scratch.run(scratch.goodput(&[&["serve", "--dir", dir], args].concat()));
    serve(&[]).fails_with(2, &["--token-file", "--client-ca"]);
    serve(&["--ranks"]).fails_with(2, &["--dir"]);
    let token = scratch.write("token", TOKEN).display().to_string();
    serve(&["--token-file", &token]).fails_with(2, &["chmod 600"]);
    scratch.assert_nothing_left();
}

#[test]
fn quic_carries_blocks_to_a_daemon_and_from_it() {
    let scratch = Scratch::new();
    let token = private(&scratch, "token", TOKEN);
    let from = scratch.path("from");
    plant(&from);
    let daemon = Daemon::start(&scratch, &["--token-file", &token, "--writable"]);
    let source = format!("{}/", from.display());
    // A stranger hears nothing: no version of QUIC, no Retry, no reset.
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let knock = || {
        for first in [0xc0, 0xd0, 0x40] {
            let mut packet = vec![first; 1_200];
            packet[1..6].copy_from_slice(&[0, 0, 0, 1, 20]);
            stranger.send_to(&packet, &daemon.at).unwrap();
        }
    };
    knock();
    // Two sessions at one port, one to the daemon and one from it.
    let quic = ["copy", "--json", "--transport", "quic", "-s2"];
    let copy =
        |args: &[&str]| scratch.goodput(&[&quic[..], &["--token-file", &token], args].concat());
    fs::create_dir(scratch.path("served/there")).unwrap();
    plant(&scratch.path("served/there"));
    let (to, back) = (daemon.url("to"), daemon.url("there/"));
    let here = scratch.path("back").display().to_string();
    let ran = thread::scope(|scope| {
        let there = scope.spawn(|| scratch.run(copy(&[&source, &to])).succeeds().json());
        let back = scratch.run(copy(&[&back, &here])).succeeds().json();
        [there.join().unwrap(), back]
    });
    for run in &ran {
        assert_eq!(
            run["copy"]["transport"], "quic",
            "{}",
            run["copy"]["chosen"]
        );
        assert_eq!(run["copy"]["failed"], 0);
    }
    assert_eq!(tree(&from), tree(&scratch.path("served/to")));
    assert_eq!(tree(&from), tree(&scratch.path("back")));
    knock();
    assert!(stranger.recv(&mut [0; 2_000]).is_err());
    daemon.end();
    scratch.assert_nothing_left();
}

#[test]
fn a_daemon_at_all_addresses_has_quic_at_each() {
    let scratch = Scratch::new();
    let token = private(&scratch, "token", TOKEN);
    let from = scratch.path("from");
    plant(&from);
    fs::write(from.join("more"), vec![9; 8 << 20]).unwrap();
    let source = format!("{}/", from.display());
    for (listen, addresses) in [
        ("0.0.0.0:0", &["127.0.0.2", "127.0.0.3", "127.9.8.7"][..]),
        // Of IPv6, and of IPv4 too.
        ("[::]:0", &["127.0.0.2", "::1", "127.9.8.7"]),
    ] {
        if listen.starts_with('[') && UdpSocket::bind("[::1]:0").is_err() {
            testing::skipped("no IPv6 here");
            continue;
        }
        let daemon = Daemon::start_at(listen, &scratch, &["--token-file", &token, "--writable"]);
        let port = daemon.at.rsplit(':').next().unwrap();
        let url = |path: &str| format!("goodput://127.0.0.1:{port}/{path}");
        let name = format!("to-{port}");
        let back = scratch.path(&format!("back-{port}"));
        let back_typed = back.display().to_string();
        for (typed, arrives) in [
            (
                [&source, &url(&name)],
                scratch.path(&format!("served/{name}")),
            ),
            ([&url(&format!("{name}/")), &back_typed], back),
        ] {
            let all = addresses.join(",");
            let mut args = vec!["copy", "--json", "--transport", "quic", "-s6"];
            args.extend(["--limit", "100Mb/s", "--token-file", &token]);
            args.extend(["--addresses", &all]);
            args.extend(typed.iter().map(|operand| operand.as_str()));
            let ended = scratch.run(scratch.goodput(&args));
            let run = ended.succeeds().json();
            let copy = &run["copy"];
            let chosen = copy["chosen"].to_string();
            assert_eq!(copy["transport"], "quic", "{listen}: {chosen}");
            assert!(!chosen.contains("TCP"), "{listen}: {chosen}");
            assert_eq!(copy["failed"], 0);
            let told = copy["chosen"].as_array().unwrap().iter();
            let carried = told
                .filter_map(|text| text.as_str()?.strip_prefix("carried over each: "))
                .collect::<String>();
            for address in addresses {
                assert!(carried.contains(&format!("{address} ")), "{carried}");
            }
            assert!(!carried.contains(" 0.0 MB"), "{listen}: {carried}");
            assert_eq!(tree(&from), tree(&arrives));
        }
        daemon.end();
        scratch.assert_nothing_left();
    }
}

#[test]
fn a_daemon_whose_port_somebody_has_for_udp_says_so_and_takes_tcp() {
    let scratch = Scratch::new();
    let token = private(&scratch, "token", TOKEN);
    let from = scratch.path("from");
    plant(&from);
    let taken = UdpSocket::bind(("127.0.0.1", testing::free_port())).unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let args = ["--listen", &at, "--token-file", &token, "--writable"];
    let dir = scratch.path("served");
    fs::create_dir_all(&dir).unwrap();
    let args = [&["serve", "--dir", dir.to_str().unwrap()], &args[..]].concat();
    let running = scratch.start(scratch.goodput(&args));
    running.stderr_when("serving ");
    let source = format!("{}/", from.display());
    let there = format!("goodput://{at}/to");
    let args = [
        "copy",
        "--json",
        "--transport",
        "quic",
        "--token-file",
        &token,
    ];
    let run = scratch.run(scratch.goodput(&[&args[..], &[&source, &there]].concat()));
    let run = run.succeeds().json();
    assert_eq!(run["copy"]["transport"], "tcp");
    let chosen = run["copy"]["chosen"].to_string();
    assert!(chosen.contains("TCP in place of QUIC"), "{chosen}");
    assert_eq!(tree(&from), tree(&scratch.path("served/to")));
    running.signal("TERM");
    let ended = running.end();
    ended.succeeds();
    assert!(ended.stderr.contains("no QUIC"), "{}", ended.stderr);
    scratch.assert_nothing_left();
}
