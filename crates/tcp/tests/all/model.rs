//! The model that other transports borrow, on a path of one queue: packets of one size, an acknowledgment for each, losses
//! found three packets later.

use std::collections::VecDeque;

use tcp::model::Model;
use units::{Duration, Instant, Rng};

const PACKET: u64 = 1_450;

struct Path {
    bytes_per_second: u64,
    round_trip: Duration,
    queue_packets: u64,
    loss: f64,
}

#[derive(Clone, Copy)]
struct Packet {
    sent: Instant,
    number: u64,
    /// When its acknowledgment comes; `None` where it is lost.
    back: Option<Instant>,
}

/// Bytes delivered in each second, and the greatest delay of the queue in the last.
fn run(path: &Path, seconds: u64, slower_from: u64) -> (Vec<u64>, Duration) {
    let mut model = Model::new(1_450, 10, 1);
    let mut rng = Rng::new(5);
    let (mut now, step) = (Instant::from_ns(1_000_000_000), Duration::from_us(50));
    let mut flying: VecDeque<Packet> = VecDeque::new();
    // When the server is free again.
    let mut free = now;
    let (mut tokens, mut number) = (0.0_f64, 0_u64);
    let mut delivered = vec![0; usize::try_from(seconds).unwrap()];
    let mut longest = Duration::ZERO;
    let begin = now;
    while now < begin + Duration::from_s(seconds) {
        let second = now.saturating_since(begin).as_ns() / 1_000_000_000;
        let rate = match second >= slower_from {
            true => path.bytes_per_second / 2,
            false => path.bytes_per_second,
        };
        let each = Duration::from_ns(PACKET * 1_000_000_000 / rate);
        // What comes back; the path keeps order, so what is missing before it is lost three packets later.
        let mut newest = None;
        let mut lost = (0, None);
        while let Some(first) = flying.front().copied() {
            match first.back {
                Some(back) if back <= now => {
                    model.on_ack(first.sent, PACKET);
                    let at = usize::try_from(second).unwrap();
                    delivered[at] += PACKET;
                    newest = Some(first.number);
                    flying.pop_front();
                }
                None if flying.iter().any(|later| {
                    later.number >= first.number + 3 && later.back.is_some_and(|b| b <= now)
                }) =>
                {
                    lost = (lost.0 + PACKET, Some(first.sent));
                    flying.pop_front();
                }
                _ => break,
            }
        }
        let in_flight = flying.len() as u64 * PACKET;
        if newest.is_some() {
            model.on_acks_end(now, in_flight, false);
        }
        if let (bytes, Some(sent)) = lost {
            model.on_lost(now, sent, bytes);
        }
        // What leaves: no more than the window, no faster than the pace.
        let pace = model.pacing_rate().unwrap_or(u64::MAX / 2) as f64;
        tokens = (tokens + pace * step.as_s_f64()).min(20.0 * PACKET as f64);
        while tokens >= PACKET as f64 && (flying.len() as u64 + 1) * PACKET <= model.window_bytes()
        {
            tokens -= PACKET as f64;
            let waits = free.saturating_since(now);
            let is_dropped = waits.as_ns() / each.as_ns().max(1) >= path.queue_packets;
            let chance = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            let back = match is_dropped || chance < path.loss {
                true => None,
                false => {
                    if second + 1 == seconds {
                        longest = longest.max(waits);
                    }
                    free = free.max(now) + each;
                    Some(free + path.round_trip)
                }
            };
            model.on_sent(now, PACKET);
            flying.push_back(Packet {
                sent: now,
                number,
                back,
            });
            number += 1;
        }
        now += step;
    }
    (delivered, longest)
}

const PATH: Path = Path {
    bytes_per_second: 6_250_000,
    round_trip: Duration::from_ms(100),
    queue_packets: 430,
    loss: 0.0,
};

/// Mean of seconds 5 on, as a share of the path's rate.
fn share(path: &Path) -> f64 {
    let (delivered, _) = run(path, 25, u64::MAX);
    let sum: u64 = delivered[5..].iter().sum();
    sum as f64 / 20.0 / path.bytes_per_second as f64
}

#[test]
fn it_fills_a_path_that_loses_one_in_a_hundred_by_itself() {
    for (loss, least) in [(0.0, 0.95), (0.001, 0.93), (0.003, 0.9), (0.01, 0.8)] {
        let share = share(&Path { loss, ..PATH });
        println!("{loss} {share}");
        assert!(share > least, "{loss} {share}");
    }
}

#[test]
fn it_backs_off_where_more_is_lost() {
    let share = share(&Path { loss: 0.05, ..PATH });
    assert!(share < 0.3, "{share}");
}

#[test]
fn it_follows_a_path_that_has_half_as_much() {
    let (delivered, waits) = run(&PATH, 30, 12);
    let full = PATH.bytes_per_second;
    assert!(delivered[11] * 100 > full * 90, "{delivered:?}");
    assert!(delivered[29] * 100 > full / 2 * 90, "{delivered:?}");
    // The queue is not kept full: 430 packets of the slower path are 200 ms.
    assert!(waits < Duration::from_ms(100), "{waits:?}");
}
