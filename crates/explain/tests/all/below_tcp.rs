//! Senders that something beside the path's rate holds back: their host below TCP, too few
//! acknowledgments, one burst of slow start.

use explain::{Diagnosis, Evidence, HostConfig};
use throughput::{Cause, PathKnowledge, Sample, StreamEvidence};
use units::{Bytes, Duration, Rate};
use wire::tcp_info::TcpInfo;

const GIGABIT: u64 = 1_000_000_000;

fn gigabits(tenths: u64) -> Rate {
    Rate::from_bits_per_second(tenths * GIGABIT / 10)
}

/// Ten seconds over 10 Gb/s and 100 ms with jumbo frames at that goodput, as `shape` makes each reading
/// of its number.
fn diagnosed(goodput: Rate, bus: Option<Rate>, shape: impl Fn(u64, &mut TcpInfo)) -> Diagnosis {
    let bytes_each = goodput.as_bits_per_second() / 80;
    let samples = (0..100).map(|n| {
        let mut info = TcpInfo {
            len_bytes: 160,
            snd_mss_bytes: 8_948,
            rtt_us: 100_100,
            snd_ssthresh_segments: 7_000,
            snd_wnd_bytes: 256 << 20,
            bytes_acked: n * bytes_each,
            data_segs_out: n * bytes_each / 8_948,
            segs_in: n * bytes_each / 8_948 / 2,
            ..TcpInfo::default()
        };
        shape(n, &mut info);
        Sample {
            t: Duration::from_ms(100 * n),
            info,
            app_bytes: Bytes::new(n * bytes_each),
        }
    });
    let stream = StreamEvidence {
        samples: samples.collect(),
    };
    explain::diagnose(&Evidence {
        streams: vec![stream],
        path: PathKnowledge {
            bottleneck: Some(gigabits(100)),
            mtu_bytes: Some(9_000),
            queue: Some(Bytes::new(512 << 10)),
            ..PathKnowledge::default()
        },
        sender: HostConfig {
            congestion_control: "cubic".to_owned(),
            bus,
            ..HostConfig::default()
        },
        duration: Duration::from_s(10),
        ramp: Duration::from_s(1),
        goodput_after_ramp: goodput,
        goodput_whole: goodput,
        idle_rtt: Duration::from_ms(100),
        writes_always: true,
        ..Evidence::default()
    })
}

/// Windows with room, and data that waits all the same.
fn held(_: u64, info: &mut TcpInfo) {
    (info.snd_cwnd_segments, info.unacked_segments) = (14_000, 9_400);
    info.notsent_bytes = 4 << 20;
}

#[test]
fn a_bus_that_frames_fill_is_named_and_the_path_is_not_blamed() {
    let found = diagnosed(gigabits(68), Some(gigabits(85)), held);
    assert_eq!(found.verdict.cause, Some(Cause::HostBus));
    assert!(found.verdict.conclusive);
    assert!(found.verdict.sentence.contains("bus"), "{found:?}");
    let blames_path = |c: Cause| matches!(c, Cause::Loss | Cause::ShallowQueue);
    assert!(!found.findings.iter().any(|f| blames_path(f.cause)));
}

#[test]
fn what_small_queues_let_wait_in_the_host_is_no_queue_on_the_path() {
    // 1.2 times 6.8 Gb/s paced for 1/1024 s: 996 kB, which take 1.17 ms to leave.
    let at = |rtt_us: u64| {
        diagnosed(gigabits(68), Some(gigabits(85)), move |n, info| {
            held(n, info);
            info.pacing_rate_bytes_per_second = 1_020_000_000;
            info.rtt_us = rtt_us;
        })
    };
    let own = at(101_250);
    assert_eq!(own.verdict.cause, Some(Cause::HostBus), "{own:?}");
    assert!(own.verdict.conclusive);
    assert_ne!(at(101_700).verdict.cause, Some(Cause::HostBus));
}

#[test]
fn without_a_stated_bus_or_on_a_far_wider_one_it_is_not() {
    for bus in [None, Some(gigabits(400))] {
        let found = diagnosed(gigabits(68), bus, held);
        assert_ne!(found.verdict.cause, Some(Cause::HostBus));
    }
}

#[test]
fn a_full_window_or_a_queue_on_the_path_is_no_bus() {
    let full = diagnosed(gigabits(68), Some(gigabits(85)), |n, info| {
        held(n, info);
        info.snd_cwnd_segments = info.unacked_segments;
    });
    let queued = diagnosed(gigabits(68), Some(gigabits(85)), |n, info| {
        held(n, info);
        info.rtt_us = 100_500;
    });
    for found in [full, queued] {
        assert_ne!(found.verdict.cause, Some(Cause::HostBus), "{found:?}");
    }
}

/// A window that opens by `growth` a round trip, with one acknowledgment for `k` segments.
fn opening(growth: f64, k: u64) -> Diagnosis {
    opening_of(growth, k, 1)
}

/// The same, of which one in `part` segments is under way.
fn opening_of(growth: f64, k: u64, part: u64) -> Diagnosis {
    diagnosed(gigabits(5), None, |n, info| {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a window in segments"
        )]
        let cwnd = (20.0 * growth.powi(i32::try_from(n).unwrap())) as u64;
        info.snd_ssthresh_segments = 0x7fff_ffff;
        (info.snd_cwnd_segments, info.unacked_segments) = (cwnd, cwnd / part);
        info.rtt_us = 100_000;
        info.segs_in = info.bytes_acked / 8_948 / k;
    })
}

#[test]
fn few_acknowledgments_are_named_where_the_window_opens_at_their_pace() {
    let thinned = opening(1.125, 8);
    assert_eq!(
        thinned.verdict.cause,
        Some(Cause::ThinnedAcks),
        "{thinned:?}"
    );
    // One that counts bytes doubles, whatever is gathered.
    let half_empty = opening_of(1.125, 8, 2);
    assert!(half_empty.facts.opening.is_none(), "{half_empty:?}");
    let counts_bytes = opening(1.9, 8);
    let usual = opening(1.5, 2);
    for found in [counts_bytes, usual] {
        let named = found.findings.iter().any(|f| f.cause == Cause::ThinnedAcks);
        assert!(!named, "{found:?}");
    }
}

/// Slow start that lost 80 segments at a window of `window` and a round trip of `rtt_us`, and hardly grew
/// since; `more` shapes what comes after.
fn burst(window: u64, rtt_us: u64, more: impl Fn(u64, &mut TcpInfo)) -> Diagnosis {
    diagnosed(gigabits(30), None, |n, info| {
        let (cwnd, lost) = match n {
            0..=5 => (window >> (5 - n), 0),
            _ => (4_000 + n * 10, 80),
        };
        (info.snd_cwnd_segments, info.unacked_segments) = (cwnd, cwnd);
        info.total_retrans_segments = lost;
        info.rtt_us = if (4..=6).contains(&n) {
            rtt_us
        } else {
            100_010
        };
        more(n, info);
    })
}

#[test]
fn bursts_at_a_short_queue_are_named_by_their_windows_and_the_queue() {
    // 512 KiB are 0.42 ms at 10 Gb/s; 13,970 segments fill the path.
    let by_burst = |found: &Diagnosis| {
        let of_it = |f: &throughput::Finding| f.cause == Cause::ShallowQueue;
        found
            .findings
            .iter()
            .any(|f| of_it(f) && f.confidence >= 0.5)
    };
    let found = burst(1_900, 100_400, |_, _| {});
    assert_eq!(found.verdict.cause, Some(Cause::ShallowQueue), "{found:?}");
    assert!(found.verdict.conclusive && by_burst(&found), "{found:?}");
    assert!(found.findings[0].title.contains("slow start"), "{found:?}");
    let later = burst(1_900, 100_400, |n, info| {
        if n >= 50 {
            info.total_retrans_segments += 300;
        }
        if (49..=51).contains(&n) {
            info.rtt_us = 100_400;
        }
    });
    assert!(by_burst(&later), "{later:?}");
    assert!(!later.findings[0].title.contains("slow start"), "{later:?}");
    let at_no_queue = burst(1_900, 100_010, |_, _| {});
    let path_full = burst(14_000, 100_400, |_, _| {});
    let standing = burst(1_900, 100_400, |_, info| info.rtt_us = 100_400);
    let again = burst(1_900, 100_400, |n, info| {
        info.total_retrans_segments = n * 16;
    });
    let one_by_one = burst(1_900, 100_400, |n, info| {
        info.total_retrans_segments = n;
        info.rtt_us = 100_010 + n % 2 * 400;
    });
    for other in [at_no_queue, path_full, standing, again, one_by_one] {
        assert!(!by_burst(&other), "{other:?}");
    }
}
