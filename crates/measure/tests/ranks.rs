//! Ranks over the loopback interface: pairs, rings, and what hosts refuse to do for a stranger.
//!
//! No assertion rests on how long something takes; waits have generous limits so that a hang fails.

mod common;

use std::net::{SocketAddr, TcpListener};

use measure::message::{DATA_OPENING_BYTES, Kind, Message, greeting};
use measure::{
    Client, FarFacts, FlowTimes, Limits, MeasureError, Member, RankPeer, RankSpec, RankStep,
    RankTest, Ranks, Stop,
};
use units::Duration;

use common::{PATIENCE, Serving, hear, read_to_end, say};

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

/// Who is no server gets the opening of a data connection and not a byte more.
#[test]
fn nothing_is_sent_to_who_did_not_expect_it() {
    let serving = Serving::with(Limits {
        silence: Duration::from_s(1),
        ..open()
    });
    let session = rank_by_hand(serving.stranger());
    let victim = TcpListener::bind("127.0.0.1:0").unwrap();
    let step = RankStep {
        send: Some(RankPeer {
            addr: victim.local_addr().unwrap(),
            token: "0".repeat(32),
        }),
        receive: None,
    };
    say(&session, &Message::RankStep(step));
    let (mut got, _) = victim.accept().unwrap();
    got.set_read_timeout(Some(PATIENCE.to_std())).unwrap();
    assert!(matches!(hear(&session), Message::Refused(_)));
    assert_eq!(read_to_end(&mut got).len(), DATA_OPENING_BYTES);
    // A test without a connection moves nothing.
    say(&session, &Message::RankTest(RankTest::default()));
    assert!(matches!(hear(&session), Message::RankTimes(times) if times.send_ns.is_none()));
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
