//! Who is let in, how many, and what is told of it: sessions an address, the shared token, metrics.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use measure::message::{Kind, Message, greeting};
use measure::{
    Approach, Client, Config, Direction, Fault, Limits, MeasureError, Secret, Server, Stop, iperf3,
};
use units::Duration;

use crate::common::{PATIENCE, Serving, from, hear, read_to_end, run, say};

fn bind() -> Server {
    Server::bind("127.0.0.1:0".parse().unwrap(), Limits::default()).unwrap()
}

fn with(secret: &str) -> Approach {
    Approach {
        secret: Some(Secret::new(secret.as_bytes()).unwrap()),
        ..Approach::default()
    }
}

fn guarded(iperf3_open: bool) -> Serving {
    let mut server = bind();
    server.demand(Secret::new(TOKEN.as_bytes()).unwrap(), iperf3_open);
    Serving::start(server)
}

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn one_address_has_its_share_of_the_sessions_and_no_more() {
    let serving = Serving::with(Limits {
        sessions: 3,
        sessions_per_address: 2,
        ..Limits::default()
    });
    let client = |source: &str| serving.connect(&from(source));
    let busy = |source: &str| match client(source).unwrap_err() {
        MeasureError::Busy {
            sessions,
            per_address,
            ..
        } => (sessions, per_address),
        error => panic!("{error}"),
    };
    let first = client("127.0.0.1").unwrap();
    let second = client("127.0.0.1").unwrap();
    assert_eq!(busy("127.0.0.1"), (3, Some(2)));
    let third = client("127.0.0.2").unwrap();
    assert_eq!(busy("127.0.0.2"), (3, None));
    assert_eq!(busy("127.0.0.3"), (3, None));
    drop((first, second, third));
    serving.assert_serves("127.0.0.1");
}

#[test]
fn the_same_token_at_both_ends_measures() {
    let serving = guarded(false);
    let mut client = serving.connect(&with(TOKEN)).unwrap();
    for direction in [Direction::Up, Direction::Down] {
        assert!(run(&mut client, direction).complete);
    }
    // Blanks at the end of the file are no part of it.
    serving.connect(&with(&format!("{TOKEN}\n"))).unwrap();
}

#[test]
fn without_the_token_or_with_another_one_a_client_is_refused_and_told_why() {
    let serving = guarded(false);
    let none = serving.connect(&Approach::default()).unwrap_err();
    assert!(matches!(none, MeasureError::TokenWanted { .. }), "{none}");
    assert!(none.to_string().contains("--token-file"), "{none}");
    let other = serving.connect(&with(&TOKEN.to_uppercase())).unwrap_err();
    assert!(
        matches!(other, MeasureError::TokenRefused { .. }),
        "{other}"
    );
    assert!(!other.to_string().contains("ABCDEF"), "{other}");
    for error in [none, other] {
        assert_eq!(error.fault(), Fault::Usage);
    }
    serving.connect(&with(TOKEN)).unwrap();
}

#[test]
fn a_server_that_does_not_prove_the_token_is_not_measured_with() {
    let open = Serving::with(Limits::default());
    let error = open.connect(&with(TOKEN)).unwrap_err();
    assert!(
        matches!(error, MeasureError::TokenUnproven { .. }),
        "{error}"
    );
    assert_eq!(error.fault(), Fault::FarHost);
    open.connect(&Approach::default()).unwrap();
    // One that asks for a proof, believes it, and gives the client's own back.
    let addr = impostor(|stream| {
        say(
            stream,
            &Message::Challenge {
                nonce: "ab".repeat(32),
            },
        );
        let Message::Answer { proof, .. } = hear(stream) else {
            panic!("no answer");
        };
        say(stream, &Message::Proof { proof });
    });
    let error = Client::connect_addr_by(&with(TOKEN), addr, PATIENCE, &Stop::new()).unwrap_err();
    assert!(
        matches!(error, MeasureError::TokenUnproven { .. }),
        "{error}"
    );
}

#[test]
fn nothing_but_a_proof_opens_a_guarded_session() {
    let serving = guarded(false);
    let zeros = "0".repeat(64);
    for words in [
        Message::Ping { n: 1, dscp: None },
        Message::Stop,
        Message::Answer {
            nonce: zeros.clone(),
            proof: zeros.clone(),
        },
        Message::Answer {
            nonce: String::new(),
            proof: zeros.clone(),
        },
        Message::Answer {
            nonce: zeros.clone(),
            proof: "\u{e4}".repeat(32),
        },
        Message::Proof { proof: zeros },
    ] {
        let mut stream = serving.stranger();
        stream.write_all(&greeting(Kind::Control)).unwrap();
        stream.read_exact(&mut [0; 24]).unwrap();
        assert!(matches!(hear(&stream), Message::Challenge { .. }));
        say(&stream, &words);
        let answer = String::from_utf8_lossy(&read_to_end(&mut stream)).into_owned();
        assert!(!answer.contains("welcome"), "{words:?}: {answer}");
        assert!(!answer.contains("pong"), "{words:?}: {answer}");
    }
    serving.connect(&with(TOKEN)).unwrap();
}

#[test]
fn no_two_challenges_are_the_same() {
    let serving = guarded(false);
    let challenge = || {
        let mut stream = serving.stranger();
        stream.write_all(&greeting(Kind::Control)).unwrap();
        stream.read_exact(&mut [0; 24]).unwrap();
        hear(&stream)
    };
    assert_ne!(challenge(), challenge());
}

#[test]
fn iperf3_is_refused_where_there_is_a_token_unless_it_is_open_to_it() {
    let stop = Stop::new();
    let wish = iperf3::Wish {
        config: Config {
            duration: Duration::from_s(1),
            ramp: Duration::ZERO,
            ..Config::default()
        },
        ..iperf3::Wish::default()
    };
    let closed = guarded(false);
    let error = iperf3::Client::connect(&closed.addr.to_string(), PATIENCE, &stop).unwrap_err();
    assert!(error.to_string().contains("142"), "{error}");
    let open = guarded(true);
    let client = iperf3::Client::connect(&open.addr.to_string(), PATIENCE, &stop).unwrap();
    client.run(&wish, &stop, &mut |_| {}).unwrap();
    // Our own protocol is not open for that.
    assert!(open.connect(&Approach::default()).is_err());
}

#[test]
fn stock_iperf3_is_told_that_it_is_not_authorised() {
    let closed = guarded(false);
    let run = |addr: SocketAddr| {
        let port = addr.port().to_string();
        let args = ["-c", "127.0.0.1", "-n", "100000", "-p", &port];
        std::process::Command::new("iperf3").args(args).output()
    };
    let Ok(refused) = run(closed.addr) else {
        return testing::skipped("iperf3 is not installed");
    };
    assert!(!refused.status.success());
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains("authorization failed"), "{words}");
    let served = run(guarded(true).addr).unwrap();
    assert!(served.status.success(), "{served:?}");
}

/// Answers the first connection with a greeting and what `work` says.
fn impostor(work: impl FnOnce(&TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 24]).unwrap();
        stream.write_all(&greeting(Kind::Server)).unwrap();
        work(&stream);
        // Until the client has gone, so that it reads the words and not a reset.
        let _ = stream.read(&mut [0; 1]);
    });
    addr
}

/// One scrape: the head and the body of the answer.
fn get(addr: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE.to_std())).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let text = String::from_utf8(read_to_end(&mut stream)).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Samples of an exposition by name and labels, after checking its form: every family has its
/// metadata first and its samples in one piece, named as its type demands; `# EOF` ends it.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let lines: Vec<&str> = text.strip_suffix('\n').unwrap().split('\n').collect();
    let (last, lines) = lines.split_last().unwrap();
    assert_eq!(*last, "# EOF");
    let mut samples = BTreeMap::new();
    let mut seen: Vec<String> = Vec::new();
    let mut family = (String::new(), String::new());
    for line in lines {
        if let Some(meta) = line.strip_prefix("# ") {
            let words: Vec<&str> = meta.splitn(3, ' ').collect();
            match words[0] {
                "TYPE" => {
                    assert!(!seen.iter().any(|name| name == words[1]), "{line}: twice");
                    seen.push(words[1].to_owned());
                    family = (words[1].to_owned(), words[2].to_owned());
                }
                "UNIT" => assert!(words[1].ends_with(&format!("_{}", words[2])), "{line}"),
                "HELP" => assert!(!words[2].is_empty()),
                _ => panic!("{line}"),
            }
            assert_eq!(words[1], family.0, "{line}");
            continue;
        }
        let (key, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = key.strip_suffix('}').unwrap().split_once('{').unwrap();
        let suffix = match family.1.as_str() {
            "counter" => "_total",
            "info" => "_info",
            "gauge" => "",
            other => panic!("{other}"),
        };
        assert_eq!(name, format!("{}{suffix}", family.0));
        for label in labels.split(',') {
            let (label, value) = label.split_once('=').unwrap();
            assert!(label.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
            assert!(
                value.starts_with('"') && value.ends_with('"') && value.len() > 2,
                "{line}"
            );
        }
        let value: f64 = value.parse().unwrap();
        assert!(
            samples.insert(key.to_owned(), value).is_none(),
            "{line}: twice"
        );
    }
    samples
}

const SCRAPE: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n";

#[test]
fn what_was_served_and_refused_is_told_in_openmetrics() {
    let mut server = Server::bind(
        "127.0.0.1:0".parse().unwrap(),
        Limits {
            sessions: 1,
            ..Limits::default()
        },
    )
    .unwrap();
    let metrics = server.publish("127.0.0.1:0".parse().unwrap()).unwrap();
    let serving = Serving::start(server);
    let (head, body) = get(metrics, SCRAPE);
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n"), "{head}");
    let kind = "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(head.lines().any(|line| line == kind), "{head}");
    assert!(
        head.contains(&format!("Content-Length: {}\r\n", body.len())),
        "{head}"
    );
    let fresh = parse(&body);
    assert!(
        fresh
            .iter()
            .all(|(key, &n)| n == 0.0 || key.starts_with("goodput_build"))
    );

    let mut client = serving.connect(&Approach::default()).unwrap();
    let up = run(&mut client, Direction::Up);
    let down = run(&mut client, Direction::Down);
    assert!(serving.connect(&Approach::default()).is_err());
    // The second transfer is over for us a moment before it is counted there.
    let key = |way: &str| {
        format!("goodput_payload_bytes_total{{protocol=\"goodput\",direction=\"{way}\"}}")
    };
    let now = loop {
        let now = parse(&get(metrics, SCRAPE).1);
        if now[&key("sent")] > 0.0 {
            break now;
        }
    };
    #[allow(clippy::cast_precision_loss, reason = "far below 2^53 bytes")]
    let bytes = |n: u64| n as f64;
    assert_eq!(now[&key("received")], bytes(up.receiver.bytes));
    assert_eq!(now[&key("sent")], bytes(down.sender.bytes));
    assert_eq!(now["goodput_sessions_open{protocol=\"goodput\"}"], 1.0);
    assert_eq!(now["goodput_sessions_total{protocol=\"goodput\"}"], 1.0);
    assert_eq!(now["goodput_sessions_total{protocol=\"iperf3\"}"], 0.0);
    assert_eq!(now["goodput_refusals_total{reason=\"busy\"}"], 1.0);
    assert_eq!(now["goodput_refusals_total{reason=\"token\"}"], 0.0);
}

#[test]
fn visitors_that_say_nothing_or_too_much_keep_no_scrape_out() {
    let mut server = bind();
    let metrics = server.publish("127.0.0.1:0".parse().unwrap()).unwrap();
    let serving = Serving::start(server);
    let mut silent: Vec<TcpStream> = (0..20)
        .map(|_| TcpStream::connect(metrics).unwrap())
        .collect();
    parse(&get(metrics, SCRAPE).1);
    for stream in &mut silent {
        stream.set_read_timeout(Some(PATIENCE.to_std())).unwrap();
        assert_eq!(read_to_end(stream), b"");
    }
    let mut endless = TcpStream::connect(metrics).unwrap();
    endless.set_read_timeout(Some(PATIENCE.to_std())).unwrap();
    let _ = endless.write_all(&[b'x'; 5000]);
    let words = String::from_utf8_lossy(&read_to_end(&mut endless)).into_owned();
    assert!(
        words.is_empty() || words.starts_with("HTTP/1.0 400"),
        "{words}"
    );
    let (head, _) = get(metrics, "GET / HTTP/1.0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.0 404"), "{head}");
    let (head, _) = get(metrics, "DELETE /metrics HTTP/1.0\r\n\r\n");
    assert!(head.starts_with("HTTP/1.0 405"), "{head}");
    // The measuring port tells nothing.
    let (head, _) = get(serving.addr, SCRAPE);
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");
}
