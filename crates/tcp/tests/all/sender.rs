//! A sender alone: what it makes of acknowledgments and of silence.

use tcp::{Ack, Algorithm, Burst, Pacing, Sender, SenderConfig, State};
use units::{Duration, Instant};

const ROUND_TRIP: Duration = Duration::from_ms(100);

fn sender(ecn: bool) -> Sender {
    let config = SenderConfig {
        algorithm: Algorithm::Reno,
        ecn,
        ..SenderConfig::default()
    };
    Sender::new(config, Instant::ZERO, ROUND_TRIP, 10_000)
}

fn all(sender: &mut Sender, now: Instant) -> Vec<Burst> {
    std::iter::from_fn(|| sender.poll_transmit(now)).collect()
}

fn ack(next: u64) -> Ack {
    Ack {
        next,
        edge: 10_000,
        ..Ack::default()
    }
}

fn echo(next: u64) -> Ack {
    Ack {
        congested: true,
        ..ack(next)
    }
}

#[test]
fn a_mark_halves_once_a_window_and_the_receiver_is_told() {
    // RFC 3168 6.1.2: no more than once for each window of data; the next new segment carries CWR.
    let mut s = sender(true);
    let sent: u16 = all(&mut s, Instant::ZERO).iter().map(|b| b.count).sum();
    assert_eq!(sent, 10);
    let mut told = 0;
    let at = |k: u64| Instant::ZERO + ROUND_TRIP + Duration::from_ms(k);
    for k in 1..=5 {
        s.handle_ack(at(k), &echo(2 * k));
        let info = s.info();
        assert_eq!(
            (info.state, info.ssthresh),
            (State::Reduced, Some(5)),
            "{k}"
        );
        told += all(&mut s, at(k)).iter().filter(|b| b.reduced).count();
    }
    assert_eq!(told, 1);
    assert_eq!(s.info().retransmitted, 0);
    // A segment from after the reduction has come: the window is over.
    s.handle_ack(at(100), &ack(11));
    assert_eq!((s.info().state, s.info().cwnd), (State::Open, 5));
    all(&mut s, at(100));
    s.handle_ack(at(101), &echo(12));
    assert_eq!(s.info().ssthresh, Some(2));
}

#[test]
fn without_an_agreement_an_echo_means_nothing() {
    let mut s = sender(false);
    all(&mut s, Instant::ZERO);
    s.handle_ack(Instant::ZERO + ROUND_TRIP, &echo(2));
    assert_eq!((s.info().state, s.info().ssthresh), (State::Open, None));
}

#[test]
fn a_timeout_within_a_recovery_does_not_reduce_again() {
    // Linux, tcp_enter_loss: the threshold stays until what was in flight at the first loss is acknowledged.
    let mut s = sender(false);
    all(&mut s, Instant::ZERO);
    let now = Instant::ZERO + ROUND_TRIP;
    let mut holes = ack(0);
    holes.blocks[0] = (1, 10);
    holes.blocks_count = 1;
    s.handle_ack(now, &holes);
    let info = s.info();
    assert_eq!((info.state, info.ssthresh), (State::Recovery, Some(5)));
    let again = all(&mut s, now);
    assert!(again[0].again && again[0].first == 0, "{again:?}");
    // The copy is lost as well, and all that followed it.
    while s.info().state == State::Recovery {
        let next = s.next_timeout();
        assert!(next < now + Duration::from_s(2), "no timeout");
        s.handle_timeout(next);
        all(&mut s, next);
    }
    let info = s.info();
    assert_eq!(
        (info.state, info.timeouts, info.ssthresh),
        (State::Loss, 1, Some(5))
    );
}

#[test]
fn a_reduction_that_is_taken_back_in_slow_start_leaves_the_window_as_it_was() {
    let mut s = sender(false);
    all(&mut s, Instant::ZERO);
    let now = Instant::ZERO + ROUND_TRIP;
    let mut holes = ack(0);
    holes.blocks[0] = (1, 10);
    holes.blocks_count = 1;
    s.handle_ack(now, &holes);
    all(&mut s, now);
    assert_eq!(s.info().state, State::Recovery);
    // Both the late segment and its copy have come; the one acknowledgment that arrives tells of both.
    let mut duplicate = ack(10);
    duplicate.twice = true;
    duplicate.blocks[0] = (0, 1);
    duplicate.blocks_count = 1;
    s.handle_ack(now + Duration::from_ms(1), &duplicate);
    let info = s.info();
    assert_eq!((info.state, info.ssthresh), (State::Open, None));
    assert!((10..=11).contains(&info.cwnd), "{info:?}");
}

/// Ten segments are on their way and nothing comes: the probe and then the timeout. What the timeout sends, and when.
fn timed_out(config: SenderConfig) -> (Sender, Instant) {
    let mut s = Sender::new(config, Instant::ZERO, ROUND_TRIP, 10_000);
    all(&mut s, Instant::ZERO);
    let mut now = Instant::ZERO;
    while s.info().timeouts == 0 {
        now = s.next_timeout();
        s.handle_timeout(now);
        if s.info().timeouts == 0 {
            all(&mut s, now);
        }
    }
    let sent = all(&mut s, now);
    assert_eq!((sent.len(), sent[0].first, sent[0].again), (1, 0, true));
    (s, now + Duration::from_ms(20))
}

fn reno() -> SenderConfig {
    SenderConfig {
        algorithm: Algorithm::Reno,
        ..SenderConfig::default()
    }
}

#[test]
fn a_timeout_that_came_too_early_is_taken_back_when_the_first_copies_arrive() {
    // RFC 5682 section 3.1 step 3.b: segment 1 was sent once.
    let (mut s, now) = timed_out(reno());
    let copies = s.info().retransmitted;
    assert_eq!((s.info().state, s.info().ssthresh), (State::Loss, Some(5)));
    s.handle_ack(now, &ack(2));
    let info = s.info();
    assert_eq!((info.state, info.ssthresh), (State::Open, None));
    assert!(info.cwnd >= 10, "{info:?}");
    assert!(all(&mut s, now).iter().all(|b| !b.again));
    assert_eq!(s.info().retransmitted, copies);
}

#[test]
fn after_a_timeout_new_segments_tell_whether_it_was_needed() {
    // Step 2.b: the copy of segment 0 has come; two new segments leave, no copies.
    for spurious in [true, false] {
        let (mut s, now) = timed_out(reno());
        let end = s.info().unacked;
        s.handle_ack(now, &ack(1));
        let sent = all(&mut s, now);
        assert!(!sent.is_empty(), "{:?}", s.info());
        assert!(sent.iter().all(|b| !b.again && b.first >= end), "{sent:?}");
        let now = now + ROUND_TRIP;
        if spurious {
            s.handle_ack(now, &ack(2));
            assert_eq!((s.info().state, s.info().ssthresh), (State::Open, None));
            continue;
        }
        // Step 3.a: only the new one has come.
        let mut news = ack(1);
        news.blocks[0] = (end, end + 1);
        news.blocks_count = 1;
        s.handle_ack(now, &news);
        assert_eq!((s.info().state, s.info().ssthresh), (State::Loss, Some(5)));
        let sent = all(&mut s, now);
        assert!(sent[0].again && sent[0].first == 1, "{sent:?}");
    }
}

#[test]
fn a_timeout_is_a_loss_where_nothing_new_can_tell() {
    let mut config = reno();
    config.data_bytes = Some(10 * 1448);
    let (mut s, now) = timed_out(config);
    s.handle_ack(now, &ack(1));
    assert_eq!(s.info().state, State::Loss);
    let sent = all(&mut s, now);
    assert!(sent[0].again && sent[0].first == 1, "{sent:?}");
    // And it stays one, whatever comes.
    s.handle_ack(now + ROUND_TRIP, &ack(4));
    assert_eq!((s.info().state, s.info().ssthresh), (State::Loss, Some(5)));
}

#[test]
fn a_timeout_within_a_recovery_is_no_question() {
    // Step 1: what arrives may be what the recovery has sent.
    let mut s = Sender::new(reno(), Instant::ZERO, ROUND_TRIP, 10_000);
    all(&mut s, Instant::ZERO);
    let now = Instant::ZERO + ROUND_TRIP;
    let mut holes = ack(0);
    holes.blocks[0] = (5, 9);
    holes.blocks_count = 1;
    s.handle_ack(now, &holes);
    all(&mut s, now);
    assert_eq!(s.info().state, State::Recovery);
    let mut at = now;
    while s.info().state == State::Recovery {
        at = s.next_timeout();
        s.handle_timeout(at);
    }
    all(&mut s, at);
    s.handle_ack(at + Duration::from_ms(20), &ack(1));
    assert_eq!(s.info().state, State::Loss);
    let sent = all(&mut s, at + Duration::from_ms(20));
    assert!(sent.iter().any(|b| b.again), "{sent:?}");
}

#[test]
fn a_host_holds_two_bursts_or_a_millisecond_and_without_pacing_four_mebibytes() {
    let limit = |window: u64, pacing: Pacing, burst_bytes: u32| {
        let config = SenderConfig {
            initial_window: window,
            pacing,
            burst_bytes,
            ..reno()
        };
        let s = Sender::new(config, Instant::ZERO, Duration::from_ms(10), 1 << 40);
        s.host_limit_bytes()
    };
    // In slow start twice the window a round trip: 1,000 segments are 289.6 MB/s.
    let rate = |window: u64| 2 * window * 1448 * 100;
    assert_eq!(limit(10, Pacing::Off, 65_536), 2 * 2 * 1448);
    assert_eq!(limit(400, Pacing::Off, 65_536), 2 * 45 * 1448);
    assert_eq!(limit(1_000, Pacing::Off, 65_536), rate(1_000) / 1024);
    assert_eq!(limit(14_000, Pacing::Off, 65_536), rate(14_000) / 1024);
    assert_eq!(limit(15_000, Pacing::Off, 65_536), 4 << 20);
    assert_eq!(limit(15_000, Pacing::Window, 65_536), rate(15_000) / 1024);
    // Packet by packet.
    assert_eq!(limit(10, Pacing::Off, 0), 2 * 1448);
}
