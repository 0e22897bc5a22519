//! Senders that something beside the path holds back: their host below TCP, and too few acknowledgments.

use explain::{Cause, Diagnosis, Evidence, HostConfig, PathKnowledge, Sample, StreamEvidence};
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
    diagnosed(gigabits(5), None, |n, info| {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a window in segments"
        )]
        let cwnd = (20.0 * growth.powi(i32::try_from(n).unwrap())) as u64;
        info.snd_ssthresh_segments = 0x7fff_ffff;
        (info.snd_cwnd_segments, info.unacked_segments) = (cwnd, cwnd);
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
    let counts_bytes = opening(1.9, 8);
    let usual = opening(1.5, 2);
    for found in [counts_bytes, usual] {
        let named = found.findings.iter().any(|f| f.cause == Cause::ThinnedAcks);
        assert!(!named, "{found:?}");
    }
}
