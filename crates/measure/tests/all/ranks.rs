//! Ranks over the loopback interface: pairs, rings, and what hosts refuse to do for a stranger.
//!
//! No assertion rests on how long something takes; waits have generous limits so that a hang fails.

use std::net::{SocketAddr, TcpListener};

use measure::message::{DATA_OPENING_BYTES, Kind, Message, Refusal, greeting};
use measure::{
    Client, FarFacts, FlowTimes, Limits, MeasureError, Member, RankPeer, RankSpec, RankStep,
    RankTest, Ranks, Stop,
};
use units::Duration;

use crate::common::{PATIENCE, Serving, hear, say};

fn open() -> Limits {
    Limits {
        ranks: true,
        ..Limits::default()
    }
}

fn servers(count: usize) -> Vec<Serving> {
    (0..count).map(|_| Serving::with(open())).collect()
}

fn member(number: usize, client: Client) -> Member {
    Member {
        name: format!("h{number}"),
        client,
        addr: None,
        congestion: None,
    }
}

fn enlist(servers: &[Serving]) -> Result<Ranks, MeasureError> {
    let members = servers.iter().enumerate();
    let members = members.map(|(number, serving)| member(number, serving.client()));
    Ranks::enlist(members.collect(), &Stop::new())
}

fn test(ranks: &mut Ranks, flows: &[(usize, usize)], test: &RankTest) -> Vec<FlowTimes> {
    ranks.step(flows, &Stop::new()).unwrap();
    let times = ranks.test(flows, test, &Stop::new()).unwrap();
    assert_eq!(times.len(), flows.len());
    for each in &times {
        assert!(each.send > Duration::ZERO && each.receive > Duration::ZERO);
    }
    times
}

#[test]
fn pairs_send_at_once_and_meet_others_in_the_next_step() {
    let servers = servers(4);
    let mut ranks = enlist(&servers).unwrap();
    assert_eq!(ranks.hosts().count(), 4);
    for flows in [[(0, 2), (1, 3)], [(0, 3), (1, 2)]] {
        for (bytes, count, window, ping) in [
            (1, 20, 1, true),
            (70_000, 3, 1, false),
            (1_000, 10, 4, false),
            (1, 1, 100, false),
        ] {
            let what = RankTest {
                bytes,
                count,
                window,
                ping,
            };
            test(&mut ranks, &flows, &what);
        }
    }
}

#[test]
fn in_a_ring_every_rank_sends_and_receives_at_once() {
    let servers = servers(3);
    let mut ranks = enlist(&servers).unwrap();
    let what = RankTest {
        bytes: 100_000,
        count: 4,
        window: 2,
        ping: false,
    };
    for shift in 1..3 {
        let flows: Vec<(usize, usize)> = (0..3).map(|r| (r, (r + shift) % 3)).collect();
        test(&mut ranks, &flows, &what);
    }
    // Two ranks to each other are a ring as well.
    test(&mut ranks, &[(0, 1), (1, 0)], &what);
}

#[test]
fn the_session_goes_on_after_being_a_rank() {
    let servers = servers(2);
    let mut ranks = enlist(&servers).unwrap();
    test(
        &mut ranks,
        &[(0, 1)],
        &RankTest {
            bytes: 1,
            ..RankTest::default()
        },
    );
    drop(ranks);
    servers[0].assert_serves("127.0.0.1");
}

#[test]
fn a_server_is_no_rank_unless_it_was_told_so() {
    let (willing, unwilling) = (Serving::with(open()), Serving::new());
    let error = enlist(&[willing, unwilling]).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("rank h1") && text.contains("serve --ranks"),
        "{text}"
    );
}

#[test]
fn impossible_steps_and_tests_are_refused() {
    let servers = servers(3);
    let mut ranks = enlist(&servers).unwrap();
    for flows in [
        &[(0, 1), (0, 2)][..],
        &[(0, 2), (1, 2)],
        &[(0, 3)],
        &[(1, 1)],
    ] {
        let refused = ranks.step(flows, &Stop::new());
        assert!(matches!(refused, Err(MeasureError::Config(_))), "{flows:?}");
    }
    for (bytes, count, window) in [(0, 1, 1), ((8 << 20) + 1, 1, 1), (1, 0, 1), (1, 1, 0)] {
        let what = RankTest {
            bytes,
            count,
            window,
            ping: false,
        };
        let refused = ranks.test(&[(0, 1)], &what, &Stop::new());
        assert!(matches!(refused, Err(MeasureError::Config(_))), "{what:?}");
    }
    // What the client would not ask for is refused there too, and the rank remains one.
    let stranger = servers[0].stranger();
    let session = rank_by_hand(stranger);
    say(
        &session,
        &Message::RankTest(RankTest {
            bytes: u32::MAX,
            ..RankTest::default()
        }),
    );
    assert!(matches!(hear(&session), Message::Refused(_)));
    say(&session, &Message::Ping { n: 4, dscp: None });
    assert_eq!(hear(&session), Message::Pong { n: 4 });
}

/// A session that is a rank, without a client.
fn rank_by_hand(mut stream: std::net::TcpStream) -> std::net::TcpStream {
    use std::io::{Read, Write};
    stream.write_all(&greeting(Kind::Control)).unwrap();
    stream.read_exact(&mut [0; 24]).unwrap();
    assert!(matches!(hear(&stream), Message::Welcome(_)));
    say(&stream, &Message::StartRank(RankSpec::default()));
    assert!(matches!(hear(&stream), Message::Accept { .. }));
    stream
}

fn quick() -> Limits {
    Limits {
        silence: Duration::from_s(1),
        ..open()
    }
}

fn step_to(addr: SocketAddr) -> Message {
    Message::RankStep(RankStep {
        send: Some(RankPeer {
            addr,
            token: "0".repeat(32),
        }),
        receive: None,
    })
}

/// The text of a refusal.
fn refused(session: &std::net::TcpStream) -> String {
    match hear(session) {
        Message::Refused(Refusal::Host { text }) => text,
        other => panic!("{other:?}"),
    }
}

/// Who is no server gets the opening of a data connection and not a byte more, whatever it says.
#[test]
fn nothing_is_sent_to_who_did_not_expect_it() {
    use std::io::Write;
    for says in [&b""[..], b"ready\r\n", b"rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"] {
        let serving = Serving::with(quick());
        let session = rank_by_hand(serving.stranger());
        let victim = TcpListener::bind("127.0.0.1:0").unwrap();
        say(&session, &step_to(victim.local_addr().unwrap()));
        let (mut got, _) = victim.accept().unwrap();
        got.set_read_timeout(Some(PATIENCE.to_std())).unwrap();
        got.write_all(says).unwrap();
        refused(&session);
        // A test without a connection moves nothing.
        let test = RankTest {
            window: 1_000,
            ..RankTest::default()
        };
        say(&session, &Message::RankTest(test));
        assert!(matches!(hear(&session), Message::RankTimes(times) if times.send_ns.is_none()));
        let all = read_until_closed(&mut got);
        assert_eq!(all.len(), DATA_OPENING_BYTES, "to {says:?}");
    }
}

/// What comes until the other end is gone, by a reset where it did not read all.
fn read_until_closed(stream: &mut std::net::TcpStream) -> Vec<u8> {
    use std::io::Read;
    let mut all = Vec::new();
    if let Err(error) = stream.read_to_end(&mut all) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    all
}

/// A closed port, one that is silent and one that talks are the same to the client; and after a few it is
/// no rank any more.
#[test]
fn a_client_learns_nothing_of_who_is_where_it_points() {
    use std::io::Write;
    let serving = Serving::with(quick());
    let session = rank_by_hand(serving.stranger());
    let (silent, talks) = ("127.0.0.1:0", "127.0.0.1:0");
    let silent = TcpListener::bind(silent).unwrap();
    let talks = TcpListener::bind(talks).unwrap();
    let [silent_at, talks_at] = [&silent, &talks].map(|l| l.local_addr().unwrap());
    let closed = SocketAddr::from(([127, 0, 0, 1], testing::free_port()));
    let addrs = [silent_at, talks_at, closed];
    let talking = std::thread::spawn(move || {
        let (mut stream, _) = talks.accept().unwrap();
        stream.write_all(b"SSH-2.0-x\r\n").unwrap();
        read_until_closed(&mut stream)
    });
    let begun = std::time::Instant::now();
    let said = addrs.map(|addr| {
        say(&session, &step_to(addr));
        refused(&session)
    });
    // None is answered before its time is over.
    assert!(begun.elapsed() >= Duration::from_s(3).to_std());
    assert_eq!(said[0], "that rank did not answer as a rank");
    assert!(said.iter().all(|text| *text == said[0]), "{said:?}");
    let last = hear(&session);
    assert!(
        matches!(&last, Message::Failed { text } if text.contains("3 steps")),
        "{last:?}"
    );
    talking.join().unwrap();
}

#[test]
fn a_rank_is_not_sent_to_addresses_that_are_no_hosts() {
    let serving = Serving::with(quick());
    let session = rank_by_hand(serving.stranger());
    for addr in ["0.0.0.0:5210", "224.0.0.1:5210", "255.255.255.255:5210"] {
        say(&session, &step_to(addr.parse().unwrap()));
        let text = refused(&session);
        assert!(
            text.contains("is not where another host's rank can be"),
            "{text}"
        );
    }
}

/// Pings are answered during a step; a wish to stop ends it, and the session goes on.
#[test]
fn a_step_answers_pings_and_ends_when_told_to() {
    let serving = Serving::with(open());
    let session = rank_by_hand(serving.stranger());
    let step = RankStep {
        send: None,
        receive: Some(7),
    };
    say(&session, &Message::RankStep(step));
    for n in 0..3 {
        say(&session, &Message::Ping { n, dscp: None });
        assert_eq!(hear(&session), Message::Pong { n });
    }
    say(&session, &Message::Stop);
    say(&session, &Message::StartRank(RankSpec::default()));
    assert!(matches!(hear(&session), Message::Accept { .. }));
}

/// A server of the shortest silence that is waited for, and one whose host has died: it answers nothing.
#[test]
fn a_rank_that_falls_silent_is_named_and_others_stay_awake() {
    let serving = Serving::with(quick());
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = mute.local_addr().unwrap();
    let over = Stop::new();
    let dead = std::thread::spawn({
        let over = over.clone();
        move || {
            use std::io::{Read, Write};
            let (mut stream, _) = mute.accept().unwrap();
            stream.read_exact(&mut [0; 24]).unwrap();
            stream.write_all(&greeting(Kind::Server)).unwrap();
            say(&stream, &Message::Welcome(Box::<FarFacts>::default()));
            hear(&stream);
            let token = "0".repeat(32);
            say(&stream, &Message::Accept { token });
            while !over.is_stopped() {
                std::thread::sleep(Duration::from_ms(10).to_std());
            }
        }
    });
    let short = Duration::from_s(1);
    let live = member(0, Client::connect_addr(serving.addr, short).unwrap());
    let dead_one = member(1, Client::connect_addr(addr, short).unwrap());
    let mut ranks = Ranks::enlist(vec![live, dead_one], &Stop::new()).unwrap();
    let what = RankTest::default();
    let error = ranks.test(&[(1, 0)], &what, &Stop::new()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("rank h1"), "{text}");
    over.stop();
    dead.join().unwrap();
}

#[test]
fn a_test_of_a_rank_that_there_is_not_is_refused() {
    let servers = servers(2);
    let mut ranks = enlist(&servers).unwrap();
    for flow in [(0, 2), (9, 1)] {
        let refused = ranks.test(&[flow], &RankTest::default(), &Stop::new());
        assert!(matches!(refused, Err(MeasureError::Config(_))), "{flow:?}");
    }
}

/// What ranks move is in the counters of the server.
#[test]
fn payload_of_ranks_is_counted() {
    use std::io::{Read, Write};
    let mut server = measure::Server::bind("127.0.0.1:0".parse().unwrap(), open()).unwrap();
    let metrics = server.publish("127.0.0.1:0".parse().unwrap()).unwrap();
    let servers = [Serving::start(server), Serving::with(open())];
    let mut ranks = enlist(&servers).unwrap();
    let what = RankTest {
        bytes: 1_000,
        count: 10,
        window: 4,
        ping: false,
    };
    test(&mut ranks, &[(0, 1)], &what);
    let mut stream = std::net::TcpStream::connect(metrics).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let line = "goodput_payload_bytes_total{protocol=\"goodput\",direction=\"sent\"} 10000";
    assert!(text.lines().any(|l| l == line), "{text}");
}

/// An end of before there were ranks hangs up over the word.
#[test]
fn an_old_end_is_told_to_be_updated() {
    let old = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr: SocketAddr = old.local_addr().unwrap();
    let serving = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = old.accept().unwrap();
        stream.read_exact(&mut [0; 24]).unwrap();
        stream.write_all(&greeting(Kind::Server)).unwrap();
        say(&stream, &Message::Welcome(Box::<FarFacts>::default()));
        hear(&stream);
        let text = "not a message: unknown variant `start_rank`".to_owned();
        say(&stream, &Message::Failed { text });
    });
    let client = Client::connect_addr(addr, PATIENCE).unwrap();
    let error = Ranks::enlist(vec![member(0, client)], &Stop::new()).unwrap_err();
    assert!(
        error.to_string().contains("update the far goodput"),
        "{error}"
    );
    serving.join().unwrap();
}

#[test]
fn a_rank_that_ends_is_named() {
    let mut servers = servers(2);
    let mut ranks = enlist(&servers).unwrap();
    ranks.step(&[(0, 1)], &Stop::new()).unwrap();
    servers.pop();
    let error = ranks.step(&[(0, 1)], &Stop::new()).unwrap_err();
    assert!(matches!(error, MeasureError::Rank { .. }), "{error}");
}
