//! What holds for any evidence, however damaged.

use explain::{
    CpuLoad, Evidence, HostConfig, HostLoad, Scaling, Setup, WriteCost, diagnose, next_probe,
    predict,
};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use throughput::models::{self, AckPolicy};
use throughput::{
    IpVersion, PathKnowledge, Probe, ProbeKind, Sample, Shares, StreamEvidence, intervals, shares,
};
use units::{Bytes, Duration, Rate};
use wire::tcp_info::TcpInfo;

/// Small numbers, ordinary ones, and the ends of the ranges.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0..10_u64,
        6 => 0..20_000_000_u64,
        1 => Just(u64::from(u32::MAX)),
        1 => Just(u64::MAX),
        1 => any::<u64>(),
    ]
}

fn time() -> impl Strategy<Value = Duration> {
    number().prop_map(Duration::from_ns)
}

fn maybe(strategy: impl Strategy<Value = u64>) -> impl Strategy<Value = Option<u64>> {
    proptest::option::of(strategy)
}

fn reading() -> impl Strategy<Value = Sample> {
    (
        time(),
        proptest::collection::vec(number(), FIELDS.len()),
        number(),
    )
        .prop_map(|(t, values, app_bytes)| {
            let mut info = TcpInfo {
                len_bytes: 280,
                ..TcpInfo::default()
            };
            for (name, value) in FIELDS.into_iter().zip(values) {
                assert!(info.set(name, value), "{name}");
            }
            Sample {
                t,
                info,
                app_bytes: Bytes::new(app_bytes),
            }
        })
}

fn readings() -> impl Strategy<Value = Vec<Sample>> {
    proptest::collection::vec(reading(), 0..6)
}

fn sizes() -> impl Strategy<Value = Option<[u64; 3]>> {
    proptest::option::of([number(), number(), number()])
}

fn write_cost() -> impl Strategy<Value = Option<WriteCost>> {
    let times = [time(), time(), time()];
    let cost = (number(), times, maybe(number()), number());
    let cost = cost.prop_map(|(write, [call, packet, page], copy, page_size)| WriteCost {
        write: Bytes::new(write),
        call,
        packet,
        copy: copy.map(Rate::from_bits_per_second),
        page,
        page_size: Bytes::new(page_size),
    });
    proptest::option::of(cost)
}

fn host() -> impl Strategy<Value = HostConfig> {
    let scaling = proptest::option::of(any::<bool>());
    let control = prop_oneof![Just(""), Just("cubic"), Just("reno"), Just("bbr")];
    let buffers = (
        maybe(number()),
        maybe(number()),
        write_cost(),
        maybe(number()),
    );
    let host = (sizes(), sizes(), scaling, control, buffers).prop_map(
        |(
            tcp_rmem_bytes,
            tcp_wmem_bytes,
            window_scaling,
            control,
            (sndbuf, rcvbuf, write_cost, bus),
        )| HostConfig {
            window_scaling,
            tcp_rmem_bytes,
            tcp_wmem_bytes,
            congestion_control: control.to_owned(),
            congestion_controls_available: vec!["bbr".to_owned()],
            sndbuf_fixed: sndbuf.map(Bytes::new),
            rcvbuf_fixed: rcvbuf.map(Bytes::new),
            write_cost,
            bus: bus.map(Rate::from_bits_per_second),
        },
    );
    // Nested by value, the strategies would outgrow a test's stack.
    host.boxed()
}

fn path() -> impl Strategy<Value = PathKnowledge> {
    (
        maybe(number()),
        maybe(number()),
        proptest::option::of(any::<u32>()),
        maybe(number()),
    )
        .prop_map(|(bottleneck, achievable, mtu_bytes, queue)| PathKnowledge {
            bottleneck: bottleneck.map(Rate::from_bits_per_second),
            achievable: achievable.map(Rate::from_bits_per_second),
            mtu_bytes,
            ip_version: IpVersion::V4,
            queue: queue.map(Bytes::new),
        })
}

fn scaling() -> impl Strategy<Value = Option<Scaling>> {
    let shifts = (any::<bool>(), number(), number());
    let scaling = shifts.prop_map(|(agreed, own_shift, peer_shift)| Scaling {
        agreed,
        own_shift,
        peer_shift,
    });
    proptest::option::of(scaling)
}

fn probe() -> impl Strategy<Value = Probe> {
    let kind = prop_oneof![
        any::<u16>().prop_map(ProbeKind::Segments),
        number().prop_map(|n| ProbeKind::Paced(Rate::from_bits_per_second(n))),
    ];
    let counts = [number(), number(), number(), number(), number()];
    (kind, any::<u16>(), counts, any::<f64>()).prop_map(|(kind, streams, counts, float)| Probe {
        kind,
        streams,
        segment_bytes: counts[0],
        goodput: Rate::from_bits_per_second(counts[1]),
        packets_per_second: float,
        sent_segments: counts[2],
        lost_segments: counts[3],
        loss_intervals: counts[4],
        cpu: Some(float),
    })
}

/// A load as only a hostile far end would tell it.
fn load() -> impl Strategy<Value = HostLoad> {
    let share = || prop_oneof![0.0..=1.0_f64, any::<f64>()];
    (share(), share(), share(), share(), any::<u32>()).prop_map(|(a, b, c, d, cpus)| {
        let cpu = CpuLoad {
            number: cpus,
            busy: b,
            softirq: c,
        };
        HostLoad {
            busiest_thread: Some(a),
            thread_waited: d,
            threads: d,
            cpus,
            busy: b,
            softirq: c,
            steal: d,
            fullest_cpu: Some(cpu),
            softirq_cpu: Some(cpu),
            memory_copy: Some(Rate::from_bits_per_second(cpus.into())),
        }
    })
}

fn evidence() -> impl Strategy<Value = Evidence> {
    let streams = proptest::collection::vec(readings(), 0..4);
    let times = (time(), time(), time());
    let rates = (number(), number(), maybe(number()));
    let loads = (
        proptest::option::of(load()),
        proptest::option::of(load()),
        any::<bool>(),
    );
    let beside = (scaling(), proptest::collection::vec(probe(), 0..3), loads);
    (streams, path(), (host(), host()), times, rates, beside).prop_map(
        |(streams, path, (sender, receiver), times, rates, beside)| Evidence {
            receiver_scaling: beside.0,
            probes: beside.1,
            sender_load: beside.2.0,
            receiver_load: beside.2.1,
            one_machine: beside.2.2,
            streams: streams
                .into_iter()
                .map(|samples| StreamEvidence { samples })
                .collect(),
            path,
            sender,
            receiver,
            duration: times.0,
            ramp: times.1,
            idle_rtt: times.2,
            goodput_after_ramp: Rate::from_bits_per_second(rates.0),
            goodput_whole: Rate::from_bits_per_second(rates.1),
            target: rates.2.map(Rate::from_bits_per_second),
            ..Evidence::default()
        },
    )
}

fn whole_and_parts(s: Shares) -> (f64, [f64; 4]) {
    let parts = [s.application, s.receive_window, s.send_buffer, s.network];
    (parts.iter().sum(), parts)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))), ..ProptestConfig::default() })]

    #[test]
    fn shares_lie_within_0_and_1_and_sum_to_1(samples in readings()) {
        let each = intervals(&samples).into_iter().filter_map(|i| i.shares);
        for found in shares(&samples).into_iter().chain(each) {
            let (sum, parts) = whole_and_parts(found);
            prop_assert!((sum - 1.0).abs() < 1e-9, "{found:?}");
            prop_assert!(parts.iter().all(|p| (0.0..=1.0).contains(p)), "{found:?}");
        }
    }

    #[test]
    fn any_evidence_gets_a_diagnosis_in_range(evidence in evidence()) {
        let diagnosis = diagnose(&evidence);
        prop_assert!(!diagnosis.verdict.sentence.is_empty());
        for f in &diagnosis.findings {
            prop_assert!((0.0..=1.0).contains(&f.confidence), "{f:?}");
            prop_assert!((0.0..=1.0).contains(&f.share), "{f:?}");
            prop_assert!(!f.title.is_empty() && !f.evidence.is_empty(), "{f:?}");
        }
        let (sure, others): (Vec<_>, Vec<_>) =
            diagnosis.findings.iter().partition(|f| f.confidence >= 0.5);
        let listed: Vec<f64> = diagnosis.findings.iter().map(throughput::Finding::weight).collect();
        for part in [&sure, &others] {
            prop_assert!(part.is_sorted_by(|a, b| a.weight() >= b.weight()));
        }
        let grouped = sure.iter().chain(&others).map(|f| f.weight());
        prop_assert!(grouped.eq(listed));
        if let Some(attributed) = diagnosis.facts.attributed {
            prop_assert!((whole_and_parts(attributed).0 - 1.0).abs() < 1e-9);
        }
        let mut tried = Vec::new();
        while let Some(plan) = next_probe(&diagnosis, &tried) {
            prop_assert!(plan.ramp < plan.duration && (1..=128).contains(&plan.streams), "{plan:?}");
            tried.push(plan);
            prop_assert!(tried.len() <= 2);
        }
        prop_assert_eq!(diagnose(&evidence), diagnosis);
    }

    #[test]
    fn a_lab_that_fell_behind_never_blames(evidence in evidence()) {
        let diagnosis = diagnose(&Evidence { lab_trusted: Some(false), ..evidence });
        prop_assert!(diagnosis.findings.is_empty());
        prop_assert!(!diagnosis.verdict.conclusive && !diagnosis.verdict.healthy);
    }

    #[test]
    fn no_prediction_exceeds_the_path(
        sender in host(),
        receiver in host(),
        path in path(),
        idle_rtt in time(),
        streams in any::<u32>(),
        loss in 0.0..1.0_f64,
    ) {
        let found = predict(&Setup {
            sender: &sender,
            receiver: &receiver,
            path: &path,
            idle_rtt,
            streams,
            buffers: throughput::BufferModel::LINUX,
            loss_rate: Some(loss),
        });
        if let (Some(rate), Some(limit)) = (found.rate, path.achievable_rate()) {
            prop_assert!(rate <= limit, "{found:?}");
        }
    }

    #[test]
    fn cubic_is_never_below_reno(rtt_us in 1..1_000_000_u64, exponent in -10.0..0.0_f64) {
        let (rtt, p) = (Duration::from_us(rtt_us), 10_f64.powf(exponent));
        let reno = models::reno_window_segments(p, AckPolicy::EveryPacket).unwrap();
        let cubic = models::cubic_window_segments(rtt, p).unwrap();
        prop_assert!(cubic >= reno * (1.0 - 1e-9));
    }

    #[test]
    fn more_loss_is_never_faster(rtt_us in 1..1_000_000_u64, p in 1e-9..0.5_f64) {
        let rtt = Duration::from_us(rtt_us);
        let rate = |p| models::cubic(1_448, rtt, p).unwrap();
        prop_assert!(rate(p * 2.0) <= rate(p));
    }
}

/// Every field that a rule reads.
const FIELDS: [&str; 24] = [
    "options",
    "delivery_flags",
    "snd_mss_bytes",
    "unacked_segments",
    "rtt_us",
    "snd_ssthresh_segments",
    "snd_cwnd_segments",
    "total_retrans_segments",
    "max_pacing_rate_bytes_per_second",
    "bytes_acked",
    "notsent_bytes",
    "min_rtt_us",
    "data_segs_out",
    "busy_time_us",
    "rwnd_limited_us",
    "sndbuf_limited_us",
    "snd_wnd_bytes",
    "dsack_dups",
    "total_rto",
    "delivery_rate_bytes_per_second",
    "bytes_sent",
    "bytes_retrans",
    "reord_seen",
    "rcv_wnd_bytes",
];
