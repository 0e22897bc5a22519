//! The summary of a small run of each kind at 80 and 120 columns, without colour, as `snapshots/` has it.

use super::tests::{fixed_run, message_sweep};
use super::*;
use crate::model::{
    Copy, CopyEnd, CopyTime, FabricCurve, FabricNodes, FabricRun, FabricStudy, GatewayHalf,
    GatewayRun, GatewayTalker, LegRecord, MessagePoint, MessageSweep, ModelFacts, Rotate,
    RotateCount, RotateFlow, RotateRound, RunState, Shares, SweepAxis, SweepCurve, SweepObserver,
    TraceBursts, TraceConnection, TraceFile, TraceMode, TraceObserver, TraceRetransmissions,
    TraceSections, TraceShare, TraceSpacing, TraceUnmade, Verdict,
};
use crate::model::{Trace, UdpFacts};

/// Compares both widths. Text wraps at the width; a table keeps its columns, `table` of them where that is more.
fn golden(name: &str, run: &Run, findings: &[FindingRecord], table: usize) {
    for width in [80, 120] {
        let text = summary(run, findings, false, width);
        for line in text.lines() {
            let long = line.chars().count();
            assert!(long <= width.max(table), "{long} columns: {line}");
        }
        insta::assert_snapshot!(format!("{name}_{width}"), text);
    }
}

fn run_of(name: &str, sentence: &str) -> Run {
    Run {
        name: name.to_owned(),
        state: RunState::Done,
        verdict: Some(Verdict {
            sentence: sentence.to_owned(),
            conclusive: true,
            healthy: true,
            ..Verdict::default()
        }),
        ..Run::default()
    }
}

#[test]
fn doctor() {
    let (mut run, findings) = fixed_run();
    run.phases[0].notes = vec!["the receiver's kernel has window scaling switched off".to_owned()];
    golden("doctor", &run, &findings, 80);
}

#[test]
fn legs() {
    let leg = |from: &str, to: &str, goodput_bits_per_second, slows: bool| LegRecord {
        from: from.to_owned(),
        to: to.to_owned(),
        goodput_bits_per_second,
        explained_bits_per_second: slows.then_some(940_000_000),
        rtt_added_ns: 4_000_000,
        loss: if slows { 0.012 } else { 0.0 },
        slows,
        bad: slows,
        ..LegRecord::default()
    };
    let mut run = run_of("dtn.example.org", "The leg from tester-1 to dtn limits.");
    run.legs = vec![
        leg("here", "tester-1.example.org", 940_000_000, false),
        leg("tester-1.example.org", "dtn.example.org", 94_000_000, true),
    ];
    golden("legs", &run, &[], 80);
}

#[test]
fn measure_over_udp() {
    let mut run = run_of("dtn.example.org", "94.1 Mb/s received of 100 Mb/s sent.");
    run.phases = vec![Phase {
        name: "measured".to_owned(),
        goodput_bits_per_second: 94_100_000,
        udp: Some(UdpFacts {
            packets: 84_310,
            lost: 4_960,
            jitter_ns: 31_000,
            ..UdpFacts::default()
        }),
        notes: vec![
            "the datagrams were lost in bursts of 40 on average, as a full queue drops them"
                .to_owned(),
        ],
        certificate: Some(Certificate {
            problems: vec!["1587 of 26232 frames left more than 1 ms late".to_owned()],
            frames: 26_232,
            frames_late: 1_587,
            ..Certificate::default()
        }),
        ..Phase::default()
    }];
    golden("measure_udp", &run, &[], 80);
}

#[test]
fn a_lab_that_the_kernel_ran() {
    let mut run = run_of("lab:wan", "930.2 Mb/s received.");
    run.phases = vec![Phase {
        name: "measured".to_owned(),
        goodput_bits_per_second: 930_200_000,
        certificate: Some(Certificate {
            trusted: true,
            kernel: Some(crate::model::KernelRun {
                links: vec![KernelPace {
                    windows_busy: 298,
                    windows_over: 1,
                    drops: 1_204,
                    ..KernelPace::default()
                }],
                ..crate::model::KernelRun::default()
            }),
            ..Certificate::default()
        }),
        ..Phase::default()
    }];
    golden("measure_kernel_lab", &run, &[], 80);
}

#[test]
fn sweep() {
    let point = |setting, goodput_bits_per_second, theirs| SweepPoint {
        settings: vec![setting],
        goodput_bits_per_second,
        error: Some(0.012),
        anomaly: setting == 65_536,
        window_bytes: Some(2 * setting),
        loss: Some(0.0004),
        observer_bits_per_second: Some(theirs),
        observer_without_cpu: setting == 1 << 20,
        ..SweepPoint::default()
    };
    let mut run = run_of("dtn.example.org", "Knee of socket-buffer: 256 KiB.");
    run.sweep = Some(Sweep {
        axes: vec![SweepAxis {
            name: "socket-buffer".to_owned(),
            unit: "bytes".to_owned(),
            values: vec![16_384, 65_536, 1 << 20],
            names: Vec::new(),
        }],
        points: vec![
            point(16_384, 98_000_000, 97_100_000),
            point(65_536, 71_200_000, 391_000_000),
            point(1 << 20, 941_400_000, 610_000_000),
        ],
        curves: vec![SweepCurve {
            sentence: "the knee is at a socket buffer of 256 KiB".to_owned(),
            ..SweepCurve::default()
        }],
        observer: Some(SweepObserver {
            tool: "iperf3 3.12".to_owned(),
            ..SweepObserver::default()
        }),
        ..Sweep::default()
    });
    golden("sweep", &run, &[], 80);
}

#[test]
fn sweep_of_messages() {
    golden("sweep_messages", &message_sweep(), &[], 82);
}

#[test]
fn messages() {
    let point = |message_bytes: u32, up_bits_per_second, is_measured: bool| {
        let time = |ns: u64| is_measured.then_some(ns);
        MessagePoint {
            message_bytes,
            round_trips: if is_measured { 40_000 } else { 0 },
            latency_min_ns: time(5_900),
            latency_median_ns: time(7_010),
            latency_p99_ns: time(12_400),
            latency_p999_ns: time(101_000),
            latency_max_ns: time(4_012_000),
            up_bits_per_second,
            down_bits_per_second: up_bits_per_second,
            both_bits_per_second: 2 * up_bits_per_second,
            ..MessagePoint::default()
        }
    };
    let mut run = run_of("dtn.example.org", "A 64 B message takes 7.01 us.");
    run.messages = Some(MessageSweep {
        transport: "tcp".to_owned(),
        window: 128,
        clock_ns: 24.0,
        tool_ns: 310.0,
        points: vec![
            point(64, 41_000_000, true),
            point(65_536, 940_000_000, false),
        ],
        ..MessageSweep::default()
    });
    golden("messages", &run, &[], 109);
}

#[test]
fn explain() {
    let share = |limit: &str, share| TraceShare {
        limit: limit.to_owned(),
        share,
    };
    let spacing = TraceSpacing {
        packets: 12_839,
        size_bytes: 9_018,
        step_ns: 1,
        error_ns: 5,
        packet_time_ns: 7_220,
        gaps: 12_838,
        modes: vec![TraceMode {
            gap_ns: 7_780,
            idle_ns: Some(560),
            share: 0.5,
        }],
        bursts: TraceBursts {
            limit_ns: 8_192,
            bursts: 2,
            longest_packets: 12_000,
            mean_packets: 6_419.5,
            bits_per_second: 9_271_000_000,
            ..TraceBursts::default()
        },
        sections: vec![
            TraceSections {
                length_ns: 5_000_000,
                peak_bits_per_second: 9_204_000_000,
                median_bits_per_second: 9_204_000_000,
                least_bits_per_second: 3_670_000_000,
                ..TraceSections::default()
            },
            TraceSections {
                length_ns: 300_000_000,
                refused: Some("the connection lasted 105 ms only".to_owned()),
                ..TraceSections::default()
            },
        ],
        ..TraceSpacing::default()
    };
    let connection = |number, goodput_bits_per_second, shares, spacing| TraceConnection {
        number,
        sender: format!("198.18.0.1:4203{number}"),
        receiver: "198.18.0.2:5201".to_owned(),
        goodput_bits_per_second,
        payload_bytes: 2_220_000 * u64::from(number),
        reverse_payload_bytes: 412 * u64::from(number - 1),
        reset_by: (number == 2).then(|| "198.18.0.2:5201".to_owned()),
        active_ns: 5_245_000_000,
        best_bits_per_second: (number == 1).then_some(3_907_000),
        rtt_min_ns: Some(85_100_000),
        retransmissions: TraceRetransmissions {
            fast: 12,
            timeout: u64::from(number),
            ..TraceRetransmissions::default()
        },
        shares,
        spacing,
        ..TraceConnection::default()
    };
    let window = vec![share("receive_window", 0.72), share("sender_window", 0.21)];
    let trace = Trace {
        files: vec![TraceFile {
            name: "slow.pcapng".to_owned(),
            dropped: Some(40),
            ..TraceFile::default()
        }],
        packets: 19_262,
        tcp_packets: 19_240,
        connections_seen: 5,
        connections_with_data: 2,
        connections_evicted: 1,
        unmade: vec![TraceUnmade {
            server: "198.18.0.2:22".to_owned(),
            how: "refused".to_owned(),
            connections: 3,
        }],
        connections: vec![
            connection(1, 3_386_000, window, Some(spacing)),
            connection(2, 81_000, vec![share("bottleneck", 0.98)], None),
        ],
        observer: Some(TraceObserver {
            tool: "TShark 4.0.17".to_owned(),
            packets: 19_262,
            gaps: 12_838,
            sections: 22,
            bursts: 2,
            agrees: true,
            ..TraceObserver::default()
        }),
        ..Trace::default()
    };
    let mut run = run_of(
        "slow.pcapng",
        "The receive window of 65.54 kB was full for 72 % of the time (65.54 kB / 85.1 ms = 6.161 \
         Mb/s)",
    );
    run.trace = Some(trace);
    golden("explain", &run, &[], 80);
}

#[test]
fn copy() {
    let end = |end: &str, disk, link| CopyEnd {
        end: end.to_owned(),
        time: CopyTime {
            disk,
            sums: 0.08,
            link,
            idle: 0.92 - disk - link,
        },
        ..CopyEnd::default()
    };
    let mut run = run_of(
        "dtn.example.org:/data",
        "1.204 Gb/s: reading files at the source took 71 % of its threads' time, so its disk is the \
         limit.",
    );
    run.copy = Some(Copy {
        placed: 1_204,
        same: 31,
        deleted: 3,
        failed: 1,
        streams: 4,
        reconnects: 1,
        cipher: "AES-128-GCM".to_owned(),
        transport: "tcp".to_owned(),
        received_bytes: 12_040_000_000,
        resumed_bytes: 204_000_000,
        ends: vec![end("source", 0.71, 0.11), end("destination", 0.07, 0.3)],
        chosen: vec!["4 connections: one more did not raise the rate".to_owned()],
        notes: vec!["a/socket: not a file, folder or link; skipped".to_owned()],
        notes_more: 2,
        ..Copy::default()
    });
    golden("copy", &run, &[], 80);
}

#[test]
fn sim() {
    let phase = |name: &str, goodput_bits_per_second, retransmitted, network| Phase {
        name: name.to_owned(),
        goodput_bits_per_second,
        segments_sent: 802_345,
        segments_retransmitted: retransmitted,
        rtt_idle_ns: 85_020_000,
        shares: Shares {
            network,
            send_buffer: 1.0 - network,
            ..Shares::default()
        },
        model: Some(ModelFacts::default()),
        ..Phase::default()
    };
    let mut run = run_of("wan.toml", "cubic 611.2 Mb/s, bbr 902 Mb/s");
    run.verb = "sim".to_owned();
    run.phases = vec![
        phase("cubic", 611_200_000, 1_310, 0.98),
        phase("bbr", 902_000_000, 12_040, 0.71),
    ];
    golden("sim", &run, &[], 80);
}

#[test]
fn fabric() {
    let curve = |name: &str, peak_bits_per_second, below_first_bits_per_second| FabricCurve {
        name: name.to_owned(),
        transport: "rc".to_owned(),
        peak_bits_per_second,
        below_first_bits_per_second,
        limit: "bus_read".to_owned(),
        formula_difference_max: 0.000_21,
        ..FabricCurve::default()
    };
    let point = |nodes, average_bits_per_second: u64| FabricNodes {
        nodes,
        steps: nodes - 1,
        best_bits_per_second: 8_000_000_000,
        average_bits_per_second,
        worst_bits_per_second: average_bits_per_second / 2,
        average_share_of_peak: average_bits_per_second as f64 / 8e9,
        flows_on_a_cable_max: 3,
        ..FabricNodes::default()
    };
    let mut run = run_of("fabric.toml", "up to 2 nodes the worst pair has the peak");
    run.fabric = Some(FabricRun {
        curves: vec![
            curve("rc-direct", 7_504_000_000, 0),
            curve("rc-10km", 7_120_000_000, 384_000_000),
        ],
        studies: vec![FabricStudy {
            name: "all".to_owned(),
            pattern: "rotate".to_owned(),
            counts: "rate".to_owned(),
            routing: "tables by destination".to_owned(),
            topology: "4 leaves, 2 spines".to_owned(),
            trust: "Packets were simulated one by one.".to_owned(),
            peak_bits_per_second: 8_000_000_000,
            full_to_nodes: Some(2),
            points: vec![point(2, 8_000_000_000), point(4, 4_000_000_000)],
            ..FabricStudy::default()
        }],
        ..FabricRun::default()
    });
    golden("fabric", &run, &[], 80);
}

#[test]
fn rotate() {
    let flow = |from, to, bits_per_second| RotateFlow {
        from,
        to,
        bits_per_second: Some(bits_per_second),
        ..RotateFlow::default()
    };
    let mut run = run_of("4 hosts", "The worst pair has 50 % of the best.");
    run.rotate = Some(Rotate {
        pattern: "rotate".to_owned(),
        measure: "bandwidth".to_owned(),
        transport: "tcp".to_owned(),
        tests: 3,
        ranks: ["a", "b", "c", "d"].map(str::to_owned).to_vec(),
        rounds: vec![RotateRound {
            ranks: 4,
            message_bytes: 8 << 20,
            flows: vec![
                flow(0, 2, 940_000_000),
                flow(0, 3, 470_000_000),
                flow(1, 2, 200_000_000),
                flow(1, 3, 640_000_000),
            ],
            ..RotateRound::default()
        }],
        counts: vec![RotateCount {
            ranks: 4,
            message_bytes: 8 << 20,
            rounds: 2,
            worst_bits_per_second: Some(200_000_000),
            average_bits_per_second: Some(562_500_000),
            best_bits_per_second: Some(940_000_000),
            ..RotateCount::default()
        }],
        pairs_slow: 3,
        ..Rotate::default()
    });
    golden("rotate", &run, &[], 96);
}

#[test]
fn gateway() {
    let half = |side: &str| GatewayHalf {
        side: side.to_owned(),
        rtt_ns: Some(51_000_000),
        min_rtt_ns: Some(50_200_000),
        acknowledged_bits_per_second: Some(940_000_000),
        receiver_share: 0.25,
        retransmitted_share: 0.0003,
        ..GatewayHalf::default()
    };
    let mut run = run_of("gw", "12.8 times the goodput of unsplit connections.");
    run.gateways = vec![GatewayRun {
        name: "gw".to_owned(),
        split: 4,
        ended: 3,
        live: 1,
        carried_bits_per_second: Some(937_000_000),
        unsplit_bits_per_second: Some(73_200_000),
        gain: Some(12.8),
        held_mean_ns: Some(50_000_000),
        held_slowest_ns: Some(51_000_000),
        halves: vec![half("inside"), half("outside")],
        talkers: vec![GatewayTalker {
            client: "10.0.0.1:40122".to_owned(),
            server: "198.18.0.2:443".to_owned(),
            back_bytes: 1_204_000_000,
            bits_per_second: 937_000_000,
            rtt_client_ns: 400_000,
            rtt_server_ns: 50_200_000,
            held_by: "receiver 40 %".to_owned(),
            unsplit_bits_per_second: Some(73_200_000),
            ..GatewayTalker::default()
        }],
        ..GatewayRun::default()
    }];
    golden("gateway", &run, &[], 120);
}
