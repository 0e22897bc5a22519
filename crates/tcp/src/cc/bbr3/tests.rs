//! Single rules; how it behaves on paths is tested in the `sim` crate.

use super::*;

#[test]
fn the_bound_is_what_was_in_flight_when_losses_passed_two_per_cent() {
    // Of 1,000 the 21st loss is the one too many, and all before the segment that was lost is the bound.
    assert!(!is_too_high(20, 1_000));
    assert!(is_too_high(21, 1_000));
    assert_eq!(flight_at_loss(1_000, 21), 999);
    // A single loss among 49 is above 2 %, among 50 it is not.
    assert!(is_too_high(1, 49) && !is_too_high(1, 50));
}

fn in_cruise(window: u64) -> (Bbr3, Window) {
    let mut bbr = Bbr3::new(1448, 10, 1);
    bbr.begin(Instant::ZERO, Duration::from_ms(100));
    bbr.full_ever = true;
    bbr.bandwidth_max = [0, rate_of(1_000, Duration::from_ms(100))];
    bbr.bandwidth = bbr.most();
    bbr.state = State::Cruise;
    bbr.wait = Duration::from_s(2);
    let window = Window {
        cwnd: window,
        ssthresh: u64::MAX,
        count: 0,
    };
    (bbr, window)
}

fn loss(segment: u64, sent_in_flight: u64, lost_since: u64) -> Loss {
    Loss {
        now: Instant::ZERO,
        segment,
        delivered: 10_000,
        sent_in_flight,
        lost_since,
        app_limited: false,
    }
}

/// The acknowledgment at the end of a round in which so many were delivered in 100 ms.
fn round_end(bbr: &Bbr3, delivered: u64) -> Sample {
    Sample {
        now: Instant::from_ns(200_000_000),
        delivered_total: bbr.loss_round_delivered + delivered,
        prior_delivered: Some(bbr.loss_round_delivered),
        interval: Duration::from_ms(100),
        acked: 2,
        in_flight: 1_000,
        sent_in_flight: 1_000,
        recovering: true,
        ..Sample::default()
    }
}

#[test]
fn a_round_with_a_loss_lowers_the_bounds_to_what_was_delivered_but_to_seven_tenths_at_most() {
    for (delivered, bound) in [(900, 900), (500, 700)] {
        let (mut bbr, mut window) = in_cruise(1_000);
        bbr.next_round_delivered = u64::MAX;
        bbr.on_loss(&window, &loss(7, 1_000, 1));
        let end = round_end(&bbr, delivered);
        bbr.on_ack(&mut window, &end);
        assert_eq!(bbr.flight_short, bound);
        assert_eq!(window.cwnd, bound);
        let rate = rate_of(bound, Duration::from_ms(100));
        assert!(bbr.bandwidth.abs_diff(rate) <= 1 << 10, "{bound}");
        // The long-term model is for probes.
        assert_eq!(bbr.flight_long, NONE);
    }
}

#[test]
fn a_probe_that_loses_too_much_ends_and_sets_the_bound_and_an_undo_takes_it_back() {
    let (mut bbr, mut window) = in_cruise(1_250);
    (bbr.state, bbr.probed) = (State::Up, true);
    bbr.on_loss(&window, &loss(7, 1_250, 25));
    assert_eq!((bbr.state, bbr.flight_long), (State::Up, NONE));
    bbr.on_loss(&window, &loss(8, 1_250, 26));
    assert_eq!((bbr.state, bbr.flight_long), (State::Down, 1_249));
    assert!(bbr.too_high);
    // Once in a probe only.
    bbr.on_loss(&window, &loss(9, 1_100, 27));
    assert_eq!(bbr.flight_long, 1_249);
    // 15 % of it are left to others in cruise.
    assert_eq!(bbr.flight_with_headroom(), 1_249 - 187);
    bbr.on_undo(&mut window, 10_100);
    assert_eq!((bbr.state, bbr.flight_long), (State::Refill, NONE));
}

#[test]
fn the_long_term_bound_is_seven_tenths_of_the_target_at_least() {
    let (mut bbr, window) = in_cruise(1_250);
    (bbr.state, bbr.probed) = (State::Up, true);
    bbr.on_loss(&window, &loss(7, 100, 5));
    assert_eq!(bbr.flight_long, 700);
}

#[test]
fn startup_ends_by_losses_at_six_places_and_not_at_five() {
    for (places, ends) in [(5, false), (6, true)] {
        let mut bbr = Bbr3::new(1448, 10, 1);
        bbr.begin(Instant::ZERO, Duration::from_ms(100));
        let mut window = Window {
            cwnd: 1_000,
            ssthresh: u64::MAX,
            count: 0,
        };
        // Ten lost each, side by side.
        for place in 0..places {
            for k in 0..10 {
                let n = place * 100 + k;
                bbr.on_loss(&window, &loss(n, 1_000, place * 10 + k + 1));
            }
        }
        let end = Sample {
            lost_since: places * 10,
            ..round_end(&bbr, 900)
        };
        bbr.on_ack(&mut window, &end);
        assert_eq!(bbr.state != State::Startup, ends, "{places}");
        if ends {
            assert_eq!(bbr.flight_long, 900);
        }
    }
}

#[test]
fn the_bound_rises_by_one_two_four_in_the_rounds_of_a_probe() {
    let (mut bbr, mut window) = in_cruise(1_000);
    (bbr.state, bbr.flight_long) = (State::Refill, 1_000);
    window.cwnd = 1_000;
    let mut grown = Vec::new();
    let begin = round_end(&bbr, 0);
    bbr.go_up(&window, &begin, bbr.bandwidth);
    for _ in 0..4 {
        let before = bbr.flight_long;
        window.cwnd = 1_000;
        for k in 0..500 {
            let sample = Sample {
                acked: 2,
                cwnd_limited: true,
                ..begin
            };
            bbr.round_start = k == 499;
            window.cwnd = bbr.flight_long;
            bbr.raise_flight(&window, &sample);
        }
        grown.push(bbr.flight_long - before);
    }
    assert_eq!(grown, [1, 2, 4, 8]);
}
