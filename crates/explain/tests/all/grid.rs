//! A grid of transfers, each with its verdict: the table is what a change of the rules changes.

use std::fmt::Write as _;

use crate::scenario::{Scenario, host, load};
use explain::{
    Diagnosis, Evidence, HostConfig, HostLoad, ProbePlan, WriteCost, diagnose, next_probe,
};
use throughput::{Cause, Probe, ProbeKind, Setting};
use units::{Bytes, Duration, Rate};

/// 2^31 - 1: no threshold yet.
const NO_THRESHOLD: u64 = 0x7fff_ffff;

fn small_windows() -> Vec<Scenario> {
    let receive = Scenario {
        name: "small receive buffer",
        goodput: "3.05Mb/s",
        shares: [0.0, 0.97, 0.0, 0.03],
        snd_wnd_bytes: [32_768, 32_768],
        cwnd_segments: [40, 40],
        ssthresh: NO_THRESHOLD,
        receiver: host(65_536, 64 << 20),
        ..Scenario::default()
    };
    let send = Scenario {
        name: "small send buffer",
        goodput: "4.2Mb/s",
        shares: [0.0, 0.0, 0.62, 0.38],
        cwnd_segments: [60, 60],
        ssthresh: NO_THRESHOLD,
        app_limited: true,
        sender: host(64 << 20, 65_536),
        ..Scenario::default()
    };
    let both = Scenario {
        name: "both buffers small",
        shares: [0.0, 0.7, 0.2, 0.1],
        sender: host(64 << 20, 65_536),
        ..receive.clone()
    };
    let fixed = Scenario {
        name: "buffer fixed by application",
        goodput: "20Mb/s",
        snd_wnd_bytes: [212_992, 212_992],
        receiver: HostConfig {
            rcvbuf_fixed: Some(Bytes::new(425_984)),
            ..host(64 << 20, 64 << 20)
        },
        ..receive.clone()
    };
    let unscaled = Scenario {
        name: "no window scaling",
        goodput: "51Mb/s",
        idle_rtt_us: 10_000,
        rtt_us: [10_050, 10_150],
        snd_wnd_bytes: [65_535, 65_535],
        window_scaling: false,
        receiver: host(6 << 20, 4 << 20),
        ..receive.clone()
    };
    let rewritten = Scenario {
        name: "window cut by a firewall",
        window_scaling: true,
        ..unscaled.clone()
    };
    let offering = |on| HostConfig {
        window_scaling: Some(on),
        ..host(6 << 20, 4 << 20)
    };
    let removed = Scenario {
        name: "window scaling taken out on the way",
        sender: offering(true),
        receiver: offering(true),
        ..unscaled.clone()
    };
    let off = Scenario {
        name: "window scaling off at one end",
        receiver: offering(false),
        ..removed.clone()
    };
    let one_side = Scenario {
        name: "window scaling taken out of the answer",
        snd_wnd_bytes: [1_024, 1_024],
        goodput: "800kb/s",
        far_shift: Some(7),
        ..unscaled.clone()
    };
    let shifted = Scenario {
        name: "window scale rewritten",
        snd_wnd_bytes: [262_140, 262_140],
        goodput: "205Mb/s",
        window_scaling: true,
        far_shift: Some(2),
        ..unscaled.clone()
    };
    let four = Scenario {
        name: "four streams, small receive buffer",
        streams: 4,
        goodput: "12.2Mb/s",
        ..receive.clone()
    };
    vec![
        receive, four, send, both, fixed, unscaled, rewritten, removed, off, one_side, shifted,
    ]
}

fn network() -> Vec<Scenario> {
    let loss = Scenario {
        name: "random loss 1e-3, 85 ms",
        goodput: "5.1Mb/s",
        loss: 1e-3,
        cwnd_segments: [38, 38],
        ssthresh: 30,
        seconds: 30.0,
        ..Scenario::default()
    };
    let few = Scenario {
        name: "few losses in 10 s",
        seconds: 10.0,
        ..loss.clone()
    };
    let bbr = Scenario {
        name: "loss under bbr",
        goodput: "830Mb/s",
        loss: 1e-4,
        sender: HostConfig {
            congestion_control: "bbr".to_owned(),
            ..host(64 << 20, 64 << 20)
        },
        ..loss.clone()
    };
    let healthy = Scenario {
        name: "healthy 1G 20 ms, queue losses",
        goodput: "935Mb/s",
        idle_rtt_us: 20_000,
        rtt_us: [30_000, 39_800],
        loss: 1e-5,
        queue_bytes: Some(2_500_000),
        ..Scenario::default()
    };
    let shallow = Scenario {
        name: "queue too short",
        goodput: "800Mb/s",
        rtt_us: [20_100, 21_900],
        loss: 2e-5,
        queue_bytes: Some(250_000),
        ..healthy.clone()
    };
    let unstated = Scenario {
        name: "bottleneck not stated",
        goodput: "480Mb/s",
        bottleneck: None,
        target: Some("10Gb/s"),
        queue_bytes: None,
        lab_trusted: None,
        ..healthy.clone()
    };
    let shared = Scenario {
        name: "others share the bottleneck",
        goodput: "300Mb/s",
        ..healthy.clone()
    };
    let bare = Scenario {
        name: "network, no reason seen",
        goodput: "300Mb/s",
        loss: 0.0,
        rtt_us: [20_050, 20_200],
        ..healthy.clone()
    };
    let old = Scenario {
        name: "old kernel",
        old_kernel: true,
        ..bare.clone()
    };
    vec![
        loss, few, bbr, healthy, shallow, unstated, shared, bare, old,
    ]
}

/// A probe of `streams` with segments of `bytes` that lost one in a hundred.
fn smaller(streams: u16, bytes: u16, packets_per_second: f64) -> Probe {
    let rate = packets_per_second * 8.0 * f64::from(bytes);
    Probe {
        kind: ProbeKind::Segments(bytes + 12),
        streams,
        segment_bytes: bytes.into(),
        goodput: format!("{rate:.0}b/s").parse().unwrap(),
        packets_per_second,
        sent_segments: 80_000,
        lost_segments: 800,
        loss_intervals: 20,
        cpu: Some(0.1),
    }
}

/// A probe paced at `rate` that lost so many segments in as many intervals.
fn paced(rate: &str, sent_segments: u64, lost: u64) -> Probe {
    Probe {
        kind: ProbeKind::Paced(rate.parse().unwrap()),
        segment_bytes: 1_448,
        goodput: rate.parse().unwrap(),
        sent_segments,
        lost_segments: lost,
        loss_intervals: lost,
        ..smaller(1, 1_448, 0.0)
    }
}

fn told_by_probes() -> Vec<Scenario> {
    let firewall = Scenario {
        name: "a device that counts packets",
        goodput: "455Mb/s",
        idle_rtt_us: 20_000,
        rtt_us: [20_100, 32_000],
        loss: 1e-3,
        probes: vec![smaller(4, 718, 44_400.0)],
        ..Scenario::default()
    };
    let unstated = Scenario {
        name: "the same, no rate stated",
        bottleneck: None,
        target: Some("10Gb/s"),
        lab_trusted: None,
        ..firewall.clone()
    };
    let line = Scenario {
        name: "a line, no rate stated",
        probes: vec![smaller(4, 718, 78_600.0)],
        ..unstated.clone()
    };
    let busy = Scenario {
        name: "a device or a busy host",
        probes: vec![Probe {
            cpu: Some(1.0),
            ..smaller(4, 718, 44_400.0)
        }],
        ..firewall.clone()
    };
    let random = Scenario {
        name: "random loss, told by probes",
        goodput: "5.1Mb/s",
        loss: 1e-3,
        cwnd_segments: [38, 38],
        ssthresh: 30,
        seconds: 30.0,
        probes: vec![smaller(4, 718, 1_760.0), paced("5.2Mb/s", 6_000, 6)],
        ..Scenario::default()
    };
    let bursts = Scenario {
        name: "bursts at a short queue",
        streams: 4,
        goodput: "86Mb/s",
        idle_rtt_us: 300_100,
        rtt_us: [300_200, 301_300],
        loss: 3e-4,
        queue_bytes: Some(524_288),
        seconds: 30.0,
        probes: vec![smaller(16, 718, 50_000.0), paced("470Mb/s", 200_000, 0)],
        ..Scenario::default()
    };
    let still = Scenario {
        name: "loss that a pace does not end",
        probes: vec![smaller(16, 718, 50_000.0), paced("470Mb/s", 200_000, 60)],
        ..bursts.clone()
    };
    vec![firewall, unstated, line, busy, random, bursts, still]
}

fn ends_and_time() -> Vec<Scenario> {
    let idle = Scenario {
        name: "application idle",
        goodput: "210Mb/s",
        shares: [0.75, 0.0, 0.0, 0.25],
        idle_rtt_us: 1_000,
        rtt_us: [1_020, 1_100],
        ..Scenario::default()
    };
    let trickle = Scenario {
        name: "application slow on a long path",
        goodput: "210Mb/s",
        app_limited: true,
        ..Scenario::default()
    };
    let paced = Scenario {
        name: "application paces itself",
        goodput: "96Mb/s",
        max_pacing_bytes_per_second: 12_500_000,
        ..Scenario::default()
    };
    let reader = Scenario {
        name: "receiver reads slowly",
        goodput: "80Mb/s",
        shares: [0.0, 0.9, 0.0, 0.1],
        snd_wnd_bytes: [16_384, 3 << 20],
        ..Scenario::default()
    };
    let late = Scenario {
        name: "receiver reads late",
        goodput: "7.5Mb/s",
        shares: [0.0, 0.99, 0.0, 0.01],
        snd_wnd_bytes: [80_896, 80_896],
        ..Scenario::default()
    };
    let short = Scenario {
        name: "short transfer",
        seconds: 0.5,
        every_ms: 50,
        goodput: "40Mb/s",
        cwnd_segments: [10, 640],
        ssthresh: NO_THRESHOLD,
        ..Scenario::default()
    };
    let growing = Scenario {
        name: "left slow start early",
        goodput: "500Mb/s",
        cwnd_segments: [3_000, 6_000],
        ssthresh: 3_000,
        ..Scenario::default()
    };
    let fell_behind = Scenario {
        name: "lab fell behind",
        goodput: "300Mb/s",
        loss: 1e-3,
        lab_trusted: Some(false),
        ..Scenario::default()
    };
    let nothing = Scenario {
        name: "nothing arrived",
        goodput: "0b/s",
        ..Scenario::default()
    };
    vec![
        idle,
        trickle,
        paced,
        reader,
        late,
        short,
        growing,
        fell_behind,
        nothing,
    ]
}

fn declared_costs() -> Vec<Scenario> {
    let costing = HostConfig {
        write_cost: Some(WriteCost {
            write: Bytes::new(128 << 10),
            call: Duration::from_ns(15_200),
            copy: "832Mb/s".parse().ok(),
            ..WriteCost::default()
        }),
        ..host(64 << 20, 64 << 20)
    };
    let declared = Scenario {
        name: "declared cost of writing",
        goodput: "815Mb/s",
        shares: [0.3, 0.0, 0.0, 0.7],
        app_limited: true,
        sender: costing.clone(),
        ..Scenario::default()
    };
    let unspent = Scenario {
        name: "declared cost that is not spent",
        goodput: "210Mb/s",
        shares: [0.75, 0.0, 0.0, 0.25],
        ..declared.clone()
    };
    let window = Scenario {
        name: "small receive buffer before a declared cost",
        goodput: "3.05Mb/s",
        shares: [0.0, 0.97, 0.0, 0.03],
        snd_wnd_bytes: [32_768, 32_768],
        receiver: host(65_536, 64 << 20),
        ..declared.clone()
    };
    let unneeded = Scenario {
        name: "declared cost above what the path carries",
        goodput: "600Mb/s",
        bottleneck: Some("800Mb/s"),
        shares: [0.0, 0.0, 0.0, 1.0],
        ..declared.clone()
    };
    let just_below = Scenario {
        name: "declared cost just below what the path carries",
        bottleneck: Some("900Mb/s"),
        ..declared.clone()
    };
    let just_above = Scenario {
        name: "declared cost just above what the path carries",
        bottleneck: Some("870Mb/s"),
        ..declared.clone()
    };
    let writing = Scenario {
        name: "declared cost of a sender that always writes",
        writes_always: true,
        shares: [0.0, 0.0, 0.3, 0.7],
        ..declared.clone()
    };
    let free = Scenario {
        name: "the same without the cost",
        sender: host(64 << 20, 64 << 20),
        ..writing.clone()
    };
    vec![
        declared, writing, free, unspent, window, unneeded, just_below, just_above,
    ]
}

fn hosts_without_time() -> Vec<Scenario> {
    let sender = Scenario {
        name: "sending thread full",
        goodput: "21Gb/s",
        bottleneck: None,
        target: Some("100Gb/s"),
        lab_trusted: None,
        idle_rtt_us: 100,
        rtt_us: [105, 130],
        shares: [0.1, 0.0, 0.0, 0.9],
        app_limited: true,
        writes_always: true,
        sender_cpu: Some(0.99),
        sender_load: Some(load(0.99, 0.99, 0.1)),
        receiver_load: Some(load(0.6, 0.7, 0.3)),
        ..Scenario::default()
    };
    let reader = Scenario {
        name: "receiving thread full",
        shares: [0.0, 0.9, 0.0, 0.1],
        snd_wnd_bytes: [16_384, 3 << 20],
        app_limited: false,
        sender_cpu: Some(0.5),
        sender_load: Some(load(0.5, 0.5, 0.1)),
        receiver_load: Some(load(0.98, 0.98, 0.2)),
        ..sender.clone()
    };
    let softirq = Scenario {
        name: "softirqs fill a CPU",
        receiver_load: Some(load(0.5, 0.99, 0.95)),
        ..reader.clone()
    };
    let all_cpus = Scenario {
        name: "all CPUs full",
        receiver_load: Some(HostLoad {
            threads: 2.4,
            busy: 0.99,
            ..load(0.4, 0.99, 0.2)
        }),
        ..reader.clone()
    };
    vec![sender, reader, softirq, all_cpus]
}

fn all() -> Vec<Scenario> {
    [
        small_windows(),
        network(),
        told_by_probes(),
        ends_and_time(),
        hosts_without_time(),
        declared_costs(),
    ]
    .concat()
}

fn named(name: &str) -> Diagnosis {
    let found = all().into_iter().find(|s| s.name == name).unwrap();
    diagnose(&found.evidence())
}

#[test]
fn each_transfer_gets_its_cause() {
    let mut table = String::new();
    for scenario in all() {
        let diagnosis = diagnose(&scenario.evidence());
        let verdict = &diagnosis.verdict;
        let marks = [
            (verdict.healthy, " [healthy]"),
            (!verdict.conclusive, " [inconclusive]"),
        ];
        let marks: Vec<&str> = marks
            .into_iter()
            .filter_map(|(on, name)| on.then_some(name))
            .collect();
        writeln!(table, "{}{}", scenario.name, marks.concat()).unwrap();
        for f in &diagnosis.findings {
            let (cause, sure, share) = (f.cause.name(), f.confidence, f.share);
            writeln!(
                table,
                "    {cause} (confidence {sure:.2}, share {share:.2})"
            )
            .unwrap();
        }
        writeln!(table, "    {}", verdict.sentence).unwrap();
    }
    insta::assert_snapshot!(table, @"
    small receive buffer
        receive_window (confidence 1.00, share 0.97)
        The receive window of 32 KiB limits this transfer to 3.05 Mb/s of 941.5 Mb/s possible; raise net.ipv4.tcp_rmem on the far host to 36 MiB, for about 941.5 Mb/s
    four streams, small receive buffer
        receive_window (confidence 1.00, share 0.97)
        The receive window of 32 KiB limits this transfer to 12.2 Mb/s of 941.5 Mb/s possible; raise net.ipv4.tcp_rmem on the far host to 36 MiB, for about 941.5 Mb/s
    small send buffer
        send_buffer (confidence 0.92, share 1.00)
        The send buffer of 58.98 kB limits this transfer to 4.2 Mb/s of 941.5 Mb/s possible; raise net.ipv4.tcp_wmem on the near host to 24 MiB, for about 941.5 Mb/s
    both buffers small
        receive_window (confidence 1.00, share 0.90)
        The receive window of 32 KiB limits this transfer to 3.05 Mb/s of 941.5 Mb/s possible; raise net.ipv4.tcp_rmem on the far host to 36 MiB and raise net.ipv4.tcp_wmem on the near host to 24 MiB, for about 941.5 Mb/s
    buffer fixed by application
        receive_window (confidence 1.00, share 0.97)
        The receive window of 208 KiB limits this transfer to 20 Mb/s of 941.5 Mb/s possible; leave SO_RCVBUF unset on the far host, for about 941.5 Mb/s
    no window scaling
        receive_window (confidence 0.99, share 0.97)
        The receive window cannot exceed 64 KiB, since no window scaling was negotiated: 51 Mb/s of 941.5 Mb/s possible; turn window scaling on at both ends and let the firewalls between them pass it; until then use 19 streams, for about 941.5 Mb/s
    window cut by a firewall
        window_scaling (confidence 0.99, share 0.97)
        The receive window cannot exceed 64 KiB, since scaling was negotiated, yet the window arrives cut to 16 bits: 51 Mb/s of 941.5 Mb/s possible; turn off the firewall's TCP sequence or window checking; until then use 19 streams, for about 941.5 Mb/s
    window scaling taken out on the way
        window_scaling (confidence 0.99, share 0.97)
        The receive window cannot exceed 64 KiB, since something between the hosts takes the window scale option out of their SYNs: 51 Mb/s of 941.5 Mb/s possible; let the firewall between the hosts pass the window scale option of SYNs; until then use 19 streams, for about 941.5 Mb/s
    window scaling off at one end
        receive_window (confidence 0.99, share 0.97)
        The receive window cannot exceed 64 KiB, since no window scaling was negotiated: 51 Mb/s of 941.5 Mb/s possible; turn window scaling on at both ends and let the firewalls between them pass it; until then use 19 streams, for about 941.5 Mb/s
    window scaling taken out of the answer
        window_scaling (confidence 0.99, share 0.97)
        The receive window cannot exceed 64 KiB, since something between the hosts takes the window scale option out of their SYNs: 800 kb/s of 941.5 Mb/s possible; let the firewall between the hosts pass the window scale option of SYNs; until then use 128 streams, for about 102.4 Mb/s
    window scale rewritten
        window_scaling (confidence 0.99, share 0.97)
        Something between the hosts lowers the window scale in their SYNs, so that the receive window reads too small: 205 Mb/s of 941.5 Mb/s possible; let the firewall between the hosts pass the window scale option of SYNs; until then use 5 streams, for about 941.5 Mb/s
    random loss 1e-3, 85 ms
        loss (confidence 0.99, share 1.00)
        0.1 % (1 in 990) of the packets are lost with no queue of 8.502 ms or more, which holds cubic to 5.1 Mb/s of 941.5 Mb/s possible; find and mend what loses packets (a shorter queue, optics, cables, duplex, a line card, a policer); until then use bbr, or 128 streams, for about 846.5 Mb/s
    few losses in 10 s
        loss (confidence 0.74, share 1.00)
        0.1 % (1 in 990) of the packets are lost with no queue of 8.502 ms or more, which holds cubic to 5.1 Mb/s of 941.5 Mb/s possible; find and mend what loses packets (a shorter queue, optics, cables, duplex, a line card, a policer); until then use bbr, or 128 streams, for about 846.5 Mb/s
    loss under bbr [inconclusive]
        network_unknown (confidence 0.40, share 1.00)
        loss (confidence 0.06, share 1.00)
        The network holds this transfer to 830 Mb/s of 941.5 Mb/s possible; nothing measured says why; measure again with more streams and at another time of day
    healthy 1G 20 ms, queue losses [healthy]
        bottleneck_reached (confidence 1.00, share 1.00)
        The path gives what it can: 935 Mb/s is 99 % of 941.5 Mb/s
    queue too short
        shallow_queue (confidence 0.62, share 1.00)
        loss (confidence 0.06, share 1.00)
        The bottleneck's queue runs empty after each loss, which costs 15 % of 941.5 Mb/s possible; give the bottleneck a queue of 1.075 MB, or pace the sender (bbr)
    bottleneck not stated [healthy]
        bottleneck_reached (confidence 0.80, share 1.00)
        A bottleneck of about 480 Mb/s seems to be reached, below the 9.415 Gb/s aimed at
    others share the bottleneck [inconclusive]
        network_unknown (confidence 0.40, share 1.00)
        The network holds this transfer to 300 Mb/s of 941.5 Mb/s possible; a queue fills all the same, so others share the bottleneck or it is slower than stated; measure again with more streams and at another time of day
    network, no reason seen [inconclusive]
        network_unknown (confidence 0.40, share 1.00)
        The network holds this transfer to 300 Mb/s of 941.5 Mb/s possible; nothing measured says why; measure again with more streams and at another time of day
    old kernel [inconclusive]
        network_unknown (confidence 0.40, share 1.00)
        The network holds this transfer to 300 Mb/s of 941.5 Mb/s possible; nothing measured says why; measure again with more streams and at another time of day
    a device that counts packets
        packet_rate (confidence 1.00, share 1.00)
        A device between the hosts, such as a firewall, passes about 44,400 packets/s whatever their size: 455 Mb/s of 941.5 Mb/s possible; upgrade or bypass what counts packets between the hosts; 941.5 Mb/s takes 81,300 packets/s
    the same, no rate stated
        packet_rate (confidence 1.00, share 1.00)
        A device between the hosts, such as a firewall, passes about 44,400 packets/s whatever their size: 455 Mb/s of 9.415 Gb/s aimed at; upgrade or bypass what counts packets between the hosts; 9.415 Gb/s takes 813,000 packets/s
    a line, no rate stated [healthy]
        bottleneck_reached (confidence 0.70, share 1.00)
        loss (confidence 0.08, share 1.00)
        A bottleneck of about 455 Mb/s seems to be reached, below the 9.415 Gb/s aimed at
    a device or a busy host [inconclusive]
        packet_rate (confidence 0.40, share 1.00)
        loss (confidence 0.08, share 1.00)
        Not proven: A device between the hosts, such as a firewall, passes about 44,400 packets/s whatever their size: 455 Mb/s of 941.5 Mb/s possible; upgrade or bypass what counts packets between the hosts; 941.5 Mb/s takes 81,300 packets/s
    random loss, told by probes
        loss (confidence 0.99, share 1.00)
        0.1 % (1 in 990) of the packets are lost with no queue of 8.502 ms or more, which holds cubic to 5.1 Mb/s of 941.5 Mb/s possible; find and mend what loses packets (a shorter queue, optics, cables, duplex, a line card, a policer); until then use bbr, or 128 streams, for about 846.5 Mb/s
    bursts at a short queue
        shallow_queue (confidence 1.00, share 1.00)
        Bursts overrun a queue that is too short for 300.1 ms of round trip, and cubic recovers slowly: 86 Mb/s of 941.5 Mb/s possible; give the bottleneck a queue of 16.13 MB, or pace the sender (bbr, or a fixed pace), for about 847.1 Mb/s
    loss that a pace does not end
        loss (confidence 0.67, share 1.00)
        0.03 % (1 in 3,300) of the packets are lost without a full queue, which holds cubic to 86 Mb/s of 941.5 Mb/s possible; find and mend what loses packets (optics, cables, duplex, a line card, a policer); until then use bbr, or 44 streams, for about 847.1 Mb/s
    application idle
        application (confidence 1.00, share 0.75)
        The application on the near host had nothing to send for 75 % of the time: 210 Mb/s of 941.5 Mb/s possible; look for what keeps the sender from writing: a busy CPU, a cipher, a rate limit of the application
    application slow on a long path
        application (confidence 1.00, share 1.00)
        The application on the near host had nothing to send for 100 % of the time: 210 Mb/s of 941.5 Mb/s possible; look for what keeps the sender from writing: a busy CPU, a cipher, a rate limit of the application
    application paces itself
        application (confidence 1.00, share 1.00)
        The application on the near host asked for a pace of 100 Mb/s: 96 Mb/s of 941.5 Mb/s possible; raise or leave out SO_MAX_PACING_RATE
    receiver reads slowly
        application (confidence 0.90, share 0.90)
        The application on the far host reads too slowly: 80 Mb/s of 941.5 Mb/s possible; look for what keeps the receiver from reading: a busy CPU, a cipher, a rate limit of the application
    receiver reads late
        application (confidence 0.90, share 0.99)
        The application on the far host reads too late for its kernel to open the window beyond 79 KiB: 7.5 Mb/s of 941.5 Mb/s possible; give the receiver's application CPU time: what else runs there, or its priority
    short transfer [inconclusive]
        short_transfer (confidence 1.00, share 1.00)
        The transfer ended in slow start after 500 ms; to fill 1 Gb/s over 85.02 ms it takes 935.2 ms; measure for 10 s; real transfers this short gain from streams
    left slow start early [inconclusive]
        short_transfer (confidence 0.80, share 1.00)
        The transfer ended after 10 s while CUBIC was still growing: 500 Mb/s of 941.5 Mb/s possible, and a window of this path takes up to 17.66 s to grow back; measure for 53 s; real transfers this short gain from streams
    lab fell behind [inconclusive]
        The lab fell behind, so this run says nothing about the path: lower the path's rate or free the CPU, and run again
    nothing arrived [inconclusive]
        No payload arrived, so there is nothing to explain
    sending thread full
        host_cpu (confidence 1.00, share 1.00)
        The near host is the limit, not the network, at 21 Gb/s of 94.15 Gb/s aimed at; a sending thread used 99 % of one CPU; let more CPUs work, with more streams, or make each byte cheaper: larger packets, off-loads of the interface, no copy
    receiving thread full
        host_cpu (confidence 1.00, share 0.90)
        The far host is the limit, not the network, at 21 Gb/s of 94.15 Gb/s aimed at; a receiving thread used 98 % of one CPU; let more CPUs work, with more streams, or make each byte cheaper: larger packets, off-loads of the interface, no copy
    softirqs fill a CPU
        host_cpu (confidence 1.00, share 0.90)
        The far host is the limit, not the network, at 21 Gb/s of 94.15 Gb/s aimed at; CPU 1 is full: 99 %, 96 % of it in softirqs; spread arriving packets over more CPUs (receive queues, RPS), or make them fewer: larger packets, GRO
    all CPUs full
        host_cpu (confidence 1.00, share 0.90)
        The far host is the limit, not the network, at 21 Gb/s of 94.15 Gb/s aimed at; all its CPUs are full: 99 %; free the CPUs of other work, or use a host with more of them
    declared cost of writing
        declared_cost (confidence 1.00, share 0.99)
        The declared cost per byte on the near host allows 822.1 Mb/s: 815 Mb/s of 941.5 Mb/s possible; use a host that copies faster, or one that does not copy
    declared cost of a sender that always writes
        declared_cost (confidence 1.00, share 0.99)
        The declared cost per byte on the near host allows 822.1 Mb/s: 815 Mb/s of 941.5 Mb/s possible; use a host that copies faster, or one that does not copy
    the same without the cost [inconclusive]
        Nothing explains why this transfer got 815 Mb/s
    declared cost that is not spent
        application (confidence 1.00, share 1.00)
        The application on the near host had nothing to send for 100 % of the time: 210 Mb/s of 941.5 Mb/s possible; look for what keeps the sender from writing: a busy CPU, a cipher, a rate limit of the application
    small receive buffer before a declared cost
        receive_window (confidence 1.00, share 0.97)
        The receive window of 32 KiB limits this transfer to 3.05 Mb/s of 941.5 Mb/s possible; raise net.ipv4.tcp_rmem on the far host to 36 MiB and use 2 streams, for about 941.5 Mb/s
    declared cost above what the path carries
        application (confidence 1.00, share 1.00)
        The application on the near host had nothing to send for 100 % of the time: 600 Mb/s of 753.2 Mb/s possible; look for what keeps the sender from writing: a busy CPU, a cipher, a rate limit of the application
    declared cost just below what the path carries [healthy]
        bottleneck_reached (confidence 1.00, share 0.00)
        declared_cost (confidence 1.00, share 0.99)
        The path gives what it can: 815 Mb/s is 96 % of 847.3 Mb/s; the limit is the declared cost per byte on the near host, which allows 822.1 Mb/s
    declared cost just above what the path carries [healthy]
        bottleneck_reached (confidence 1.00, share 0.00)
        The path gives what it can: 815 Mb/s is 100 % of 819.1 Mb/s
    ");
}

fn report(diagnosis: &Diagnosis) -> String {
    let mut text = String::new();
    for f in &diagnosis.findings {
        writeln!(text, "{}\n", f.title).unwrap();
        for line in &f.evidence {
            writeln!(text, "  - {line}").unwrap();
        }
        let Some(r) = &f.remedy else { continue };
        writeln!(text, "\n  {} [{}]", r.summary, r.host.name()).unwrap();
        for line in &r.sysctl {
            writeln!(text, "    {line}").unwrap();
        }
        writeln!(text, "    flags: {}", r.flags.join(" | ")).unwrap();
        for setting in &r.settings {
            writeln!(text, "    {setting:?}").unwrap();
        }
        if let (Some(rate), Some(from)) = (r.predicted, &r.predicted_from) {
            writeln!(text, "    predicted {rate}: {from}").unwrap();
        }
        writeln!(text, "    cost: {}\n", r.cost).unwrap();
    }
    text
}

#[test]
fn a_window_remedy_raises_both_buffers_when_both_are_too_small() {
    insta::assert_snapshot!(report(&named("both buffers small")), @r#"
    The receive window of 32 KiB limits this transfer to 3.05 Mb/s of 941.5 Mb/s possible

      - of the sender's time the receive window took 70 % (tcpi_rwnd_limited), the send buffer 20 % (tcpi_sndbuf_limited), the network 10 % (the rest of tcpi_busy_time), the application 0 %
      - advertised window (tcpi_snd_wnd): median 32 KiB, 32 KiB to 32 KiB
      - net.ipv4.tcp_rmem on the far host ends at 64 KiB: room for 39.32 kB in flight, or 3.7 Mb/s
      - net.ipv4.tcp_wmem on the near host ends at 64 KiB: room for 58.98 kB in flight, or 5.55 Mb/s
      - a window a round trip of 85.02 ms makes 3.083 Mb/s; measured 3.05 Mb/s
      - the path holds 1 Gb/s x 85.02 ms = 10.63 MB

      Raise net.ipv4.tcp_rmem on the far host to 36 MiB and raise net.ipv4.tcp_wmem on the near host to 24 MiB [both]
        # on the far host; the second line is for applications that set SO_RCVBUF
        net.ipv4.tcp_rmem = 4096 131072 37748736
        net.core.rmem_max = 37748736
        # on the near host; the second line is for applications that set SO_SNDBUF
        net.ipv4.tcp_wmem = 4096 16384 25165824
        net.core.wmem_max = 25165824
        flags: --streams 128   # about 390.4 Mb/s
        Sysctl { host: Receiver, name: "net.ipv4.tcp_rmem", value: "4096 131072 37748736" }
        Sysctl { host: Sender, name: "net.ipv4.tcp_wmem", value: "4096 16384 25165824" }
        predicted 941.5 Mb/s: TCP payload of 1 Gb/s on the wire = 941.5 Mb/s
        cost: up to 36 MiB of memory a connection at each end, taken only as it is needed
    "#);
}

#[test]
fn a_loss_remedy_says_what_the_path_bears_and_what_helps_meanwhile() {
    insta::assert_snapshot!(report(&named("random loss 1e-3, 85 ms")), @r#"
    0.1 % (1 in 990) of the packets are lost with no queue of 8.502 ms or more, which holds cubic to 5.1 Mb/s of 941.5 Mb/s possible

      - 12 of 11887 segments retransmitted (tcpi_total_retrans, tcpi_data_segs_out): 12 lost, 0 needless (tcpi_dsack_dups), 0 timeouts
      - 0 % of them while the round trip exceeded 93.52 ms, as a full queue would make it
      - round trip under load (tcpi_rtt): median 85.2 ms, idle 85.02 ms
      - at that loss and 85.02 ms Reno gets 5.252 Mb/s a stream (Mathis 1997), CUBIC 5.252 Mb/s (RFC 9438); measured 5.1 Mb/s
      - to fill 941.5 Mb/s over 85.02 ms one CUBIC stream bears a loss of 0.000069 % (1 in 1,400,000), one Reno stream 0.000001 % (1 in 97,000,000) (NPAD), a loss every 839.3 s

      Find and mend what loses packets (a shorter queue, optics, cables, duplex, a line card, a policer); until then use bbr, or 128 streams [network]
        net.ipv4.tcp_congestion_control = bbr
        flags: --congestion bbr | --streams 128
        CongestionControl("bbr")
        predicted 846.5 Mb/s: bbr does not slow down for this loss: 90 % of what the path carries = 846.5 Mb/s; 128 streams make 652.8 Mb/s
        cost: bbr may take more than its share from loss-based flows beside it
    "#);
}

#[test]
fn a_buffer_that_the_application_fixed_is_to_be_left_to_the_kernel() {
    let remedy = named("buffer fixed by application").findings[0]
        .remedy
        .clone()
        .unwrap();
    assert_eq!(
        remedy.settings,
        [Setting::AutotuneBuffer(throughput::Host::Receiver)]
    );
    assert!(remedy.sysctl.is_empty());
    assert_eq!(remedy.predicted.unwrap().to_string(), "941.5 Mb/s");
}

#[test]
fn one_small_buffer_leaves_the_other_alone() {
    let remedy = named("small receive buffer").findings[0]
        .remedy
        .clone()
        .unwrap();
    assert_eq!(remedy.host, throughput::RemedyHost::Far);
    assert_eq!(remedy.settings.len(), 1);
}

#[test]
fn the_remedy_is_named_for_the_host_that_receives() {
    let mut evidence = all()[0].evidence();
    evidence.direction = explain::Direction::Down;
    let remedy = diagnose(&evidence).findings[0].remedy.clone().unwrap();
    assert_eq!(remedy.host, throughput::RemedyHost::Near);
    assert!(remedy.summary.contains("the near host"));
}

#[test]
fn a_lab_that_fell_behind_blames_nothing() {
    let diagnosis = named("lab fell behind");
    assert!(diagnosis.findings.is_empty());
    assert!(!diagnosis.verdict.conclusive && diagnosis.verdict.cause.is_none());
}

#[test]
fn a_healthy_path_gets_one_finding_and_no_remedy() {
    let diagnosis = named("healthy 1G 20 ms, queue losses");
    let causes: Vec<Cause> = diagnosis.findings.iter().map(|f| f.cause).collect();
    assert_eq!(causes, [Cause::BottleneckReached]);
    assert!(diagnosis.findings[0].remedy.is_none());
}

#[test]
fn with_both_clocks_running_the_smaller_window_names_the_cause() {
    // 64 KiB each: a window of 39 kB, a send buffer of 59 kB; the kernel's clocks mix.
    let both = small_windows()
        .into_iter()
        .find(|s| s.name == "both buffers small")
        .unwrap();
    let cause = |receive: f64, send: f64, sender: &HostConfig| {
        let scenario = Scenario {
            shares: [0.0, receive, send, 0.0],
            sender: sender.clone(),
            ..both.clone()
        };
        diagnose(&scenario.evidence()).findings[0].cause
    };
    for (receive, send) in [(0.9, 0.1), (0.5, 0.5), (0.1, 0.9)] {
        assert_eq!(cause(receive, send, &both.sender), Cause::ReceiveWindow);
    }
    // A send buffer of 16 KiB is the smaller one.
    let tiny = host(64 << 20, 16_384);
    assert_eq!(cause(0.9, 0.1, &tiny), Cause::SendBuffer);
    // A clock that did not run cannot name a cause.
    assert_eq!(cause(0.0, 1.0, &both.sender), Cause::SendBuffer);
}

#[test]
fn a_window_that_would_carry_more_than_the_path_is_not_blamed() {
    // 4 MiB of send buffer are 3.77 MB in flight: 1.5 Gb/s at 20 ms, above the gigabit.
    let slow = Scenario {
        shares: [0.0, 0.0, 0.6, 0.4],
        goodput: "688Mb/s",
        idle_rtt_us: 20_000,
        rtt_us: [20_100, 20_200],
        sender: host(64 << 20, 4 << 20),
        ..Scenario::default()
    };
    let causes = |s: &Scenario| -> Vec<Cause> {
        diagnose(&s.evidence())
            .findings
            .iter()
            .map(|f| f.cause)
            .collect()
    };
    assert!(!causes(&slow).contains(&Cause::SendBuffer));
    let short_of_it = Scenario {
        sender: host(64 << 20, 2 << 20),
        ..slow
    };
    assert!(causes(&short_of_it).contains(&Cause::SendBuffer));
}

#[test]
fn a_path_beyond_the_largest_window_is_told_to_use_streams() {
    let long = Scenario {
        bottleneck: Some("100Gb/s"),
        goodput: "3Gb/s",
        idle_rtt_us: 300_000,
        ..small_windows()[0].clone()
    };
    let remedy = diagnose(&long.evidence()).findings[0]
        .remedy
        .clone()
        .unwrap();
    assert_eq!(remedy.settings.last(), Some(&Setting::Streams(6)));
}

#[test]
fn time_that_was_moved_to_the_send_buffer_is_said_to_be() {
    insta::assert_snapshot!(report(&named("small send buffer")), @r#"
    The send buffer of 58.98 kB limits this transfer to 4.2 Mb/s of 941.5 Mb/s possible

      - of the sender's time the receive window took 0 % (tcpi_rwnd_limited), the send buffer 62 % (tcpi_sndbuf_limited), the network 38 % (the rest of tcpi_busy_time), the application 0 %
      - in 100 % of the readings nothing waited to be sent and the windows had room: so much of the network's share counts as the send buffer's
      - advertised window (tcpi_snd_wnd): median 32 MiB, 32 MiB to 32 MiB
      - net.ipv4.tcp_wmem on the near host ends at 64 KiB: room for 58.98 kB in flight, or 5.55 Mb/s
      - net.ipv4.tcp_rmem on the far host ends at 64 MiB: room for 40.27 MB in flight, or 3.789 Gb/s
      - a window a round trip of 85.02 ms makes 5.55 Mb/s; measured 4.2 Mb/s
      - the path holds 1 Gb/s x 85.02 ms = 10.63 MB

      Raise net.ipv4.tcp_wmem on the near host to 24 MiB [near]
        # on the near host; the second line is for applications that set SO_SNDBUF
        net.ipv4.tcp_wmem = 4096 16384 25165824
        net.core.wmem_max = 25165824
        flags: --streams 128   # about 537.6 Mb/s
        Sysctl { host: Sender, name: "net.ipv4.tcp_wmem", value: "4096 16384 25165824" }
        predicted 941.5 Mb/s: TCP payload of 1 Gb/s on the wire = 941.5 Mb/s
        cost: up to 24 MiB of memory a connection, taken only as it is needed
    "#);
}

#[test]
fn neither_firewall_is_blamed_on_the_hosts() {
    for name in [
        "a device that counts packets",
        "the same, no rate stated",
        "window scaling taken out on the way",
        "window scale rewritten",
    ] {
        for finding in named(name).findings {
            let remedy = finding.remedy.unwrap();
            assert_eq!(remedy.host, throughput::RemedyHost::Network, "{name}");
            assert!(remedy.sysctl.is_empty(), "{name}");
        }
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of 0 to 1 of a count"
)]
fn part(of: u64, share: f64) -> u64 {
    (of as f64 * share).round() as u64
}

#[test]
fn losses_well_below_what_came_through_are_no_devices() {
    let firewall = told_by_probes().remove(0);
    let cause = |lost: fn(f64) -> f64| {
        let mut evidence = firewall.evidence();
        let samples = &mut evidence.streams[0].samples;
        let (end, last) = samples.last().map(|s| (s.t.as_s_f64(), s.info)).unwrap();
        for sample in samples {
            // A window that grows all the time.
            let along = sample.t.as_s_f64() / end;
            sample.info.data_segs_out = part(last.data_segs_out, along.powi(2));
            sample.info.total_retrans_segments = part(last.total_retrans_segments, lost(along));
        }
        let verdict = diagnose(&evidence).verdict;
        verdict.cause.filter(|_| verdict.conclusive)
    };
    let device = Some(Cause::PacketRate);
    assert_eq!(cause(|along| (3.0 * along - 2.0).max(0.0)), device);
    assert_ne!(cause(|along| (2.0 * along).min(1.0)), device);
}

#[test]
fn packets_that_come_no_faster_are_a_device_and_those_that_double_a_line() {
    let firewall = told_by_probes().remove(0);
    // 455 Mb/s of 1448-byte segments less one in a thousand lost.
    let before = 455e6 / 8.0 / 1_448.0 * 0.999;
    let is = |times: f64| {
        let scenario = Scenario {
            probes: vec![smaller(4, 718, before * times)],
            ..firewall.clone()
        };
        let verdict = diagnose(&scenario.evidence()).verdict;
        verdict.conclusive && verdict.cause == Some(Cause::PacketRate)
    };
    for (times, is_device) in [
        (0.6, false),
        (0.9, true),
        (1.5, true),
        (1.7, true),
        (1.76, false),
        (2.0, false),
        (4.0, false),
    ] {
        assert_eq!(is(times), is_device, "{times}");
    }
}

#[test]
fn a_pace_proves_bursts_only_where_losses_had_their_chance() {
    let bursts = told_by_probes().remove(5);
    let sure = |rate: &str, sent: u64, lost: u64| {
        let scenario = Scenario {
            probes: vec![paced(rate, sent, lost)],
            ..bursts.clone()
        };
        let found = diagnose(&scenario.evidence()).findings;
        found
            .iter()
            .find(|f| f.cause == Cause::ShallowQueue)
            .map_or(0.0, |f| f.confidence)
    };
    assert!(sure("470Mb/s", 200_000, 0) > 0.9);
    assert!(sure("470Mb/s", 1_000, 0) < 0.1, "too short to lose any");
    assert!(sure("80Mb/s", 200_000, 0) < 0.1, "slower than unpaced");
    assert!(sure("470Mb/s", 200_000, 60) < 0.1, "losses as before");
}

/// A pace that tells causes apart is no prediction of BBR, which finds the path's own rate: on
/// `tokyo-lfn-300ms` the probe got 237 Mb/s, BBR 835.
#[test]
fn what_bbr_makes_of_a_path_is_not_what_a_paced_probe_got() {
    let bursts = Scenario {
        goodput: "118Mb/s",
        probes: vec![paced("237Mb/s", 200_000, 0)],
        ..told_by_probes().remove(5)
    };
    let remedy = |change: &dyn Fn(&mut Scenario)| {
        let mut scenario = bursts.clone();
        change(&mut scenario);
        let finding = diagnose(&scenario.evidence()).findings.remove(0);
        assert_eq!(finding.cause, Cause::ShallowQueue);
        finding.remedy.unwrap()
    };
    let bbr = remedy(&|_| {});
    let expected = bbr.predicted.unwrap().to_string();
    assert_eq!(expected, "847.1 Mb/s", "{:?}", bbr.predicted_from);
    assert_eq!(bbr.settings, [Setting::CongestionControl("bbr".to_owned())]);
    // Losses bound neither: CUBIC's response would be some 4 Mb/s a stream. Buffers do.
    let small = remedy(&|s| s.sender = host(64 << 20, 4 << 20));
    let expected = small.predicted.unwrap().to_string();
    assert_eq!(expected, "362.2 Mb/s", "{:?}", small.predicted_from);
    // Without a BBR to choose, or the path's rate, the probe is what there is.
    let without: [&dyn Fn(&mut Scenario); 2] = [
        &|s| s.sender.congestion_controls_available = vec!["cubic".to_owned()],
        &|s| s.bottleneck = None,
    ];
    for change in without {
        let pace = remedy(change);
        assert_eq!(pace.predicted.unwrap().to_string(), "237 Mb/s");
        assert!(pace.settings.is_empty());
    }
}

#[test]
fn a_pace_that_proves_nothing_leaves_the_other_sign_of_a_short_queue() {
    let short = network()
        .into_iter()
        .find(|s| s.name == "queue too short")
        .unwrap();
    let without = diagnose(&short.evidence());
    let with = Scenario {
        probes: vec![paced("750Mb/s", 1_000, 5)],
        ..short
    };
    let with = diagnose(&with.evidence());
    assert_eq!(with.verdict.cause, Some(Cause::ShallowQueue));
    assert_eq!(with.verdict.sentence, without.verdict.sentence);
}

#[test]
fn probes_are_made_where_packets_are_lost_and_only_there() {
    let plan = |name: &str, made: usize| {
        let mut scenario = all().into_iter().find(|s| s.name == name).unwrap();
        scenario.probes.truncate(made);
        let diagnosis = diagnose(&scenario.evidence());
        let mut tried: Vec<ProbePlan> = Vec::new();
        for _ in 0..made {
            tried.extend(next_probe(&diagnosis, &tried));
        }
        next_probe(&diagnosis, &tried).map(|p| p.kind.name())
    };
    assert_eq!(plan("bursts at a short queue", 0), Some("segments"));
    assert_eq!(plan("bursts at a short queue", 1), Some("paced"));
    assert_eq!(plan("bursts at a short queue", 2), None);
    assert_eq!(plan("a device that counts packets", 0), Some("segments"));
    assert_eq!(plan("a device that counts packets", 1), None);
    assert_eq!(plan("small receive buffer", 0), None);
    assert_eq!(plan("healthy 1G 20 ms, queue losses", 0), None);
    assert_eq!(plan("network, no reason seen", 0), None);
    assert_eq!(plan("lab fell behind", 0), None);
}

/// How sure the rule is that a host is the limit.
fn host_is_limit(scenario: &Scenario) -> f64 {
    let found = diagnose(&scenario.evidence()).findings;
    let cpu = found.iter().find(|f| f.cause == Cause::HostCpu);
    cpu.map_or(0.0, |f| f.confidence)
}

#[test]
fn a_host_with_time_left_is_never_the_limit() {
    for scenario in all() {
        for (thread, cpu, softirq) in [(0.84, 0.9, 0.9), (0.5, 0.9, 0.2), (0.0, 1.0, 0.4)] {
            let idle = Scenario {
                sender_load: Some(load(thread, cpu, softirq)),
                receiver_load: Some(load(thread, cpu, softirq)),
                ..scenario.clone()
            };
            assert_eq!(host_is_limit(&idle), 0.0, "{} {thread} {cpu}", idle.name);
        }
    }
}

#[test]
fn a_full_host_is_not_blamed_where_the_network_holds_the_sender_back() {
    for scenario in network().into_iter().chain(told_by_probes()) {
        let full = Scenario {
            sender_load: Some(load(1.0, 1.0, 1.0)),
            receiver_load: Some(load(1.0, 1.0, 1.0)),
            ..scenario
        };
        assert_eq!(host_is_limit(&full), 0.0, "{}", full.name);
    }
}

#[test]
fn a_thread_fills_its_cpu_from_nine_tenths_on() {
    let sender = hosts_without_time().remove(0);
    let sure = |thread: f64| {
        let scenario = Scenario {
            sender_load: Some(load(thread, thread, 0.1)),
            ..sender.clone()
        };
        host_is_limit(&scenario)
    };
    assert_eq!((sure(0.85), sure(0.97)), (0.0, 1.0));
    assert!(sure(0.9) < 0.5 && sure(0.92) > 0.5);
    assert!((80..=120).map(|n| sure(f64::from(n) / 100.0)).is_sorted());
}

#[test]
fn a_thread_that_waits_for_its_turn_has_no_cpu_time_left() {
    let sender = hosts_without_time().remove(0);
    let sure = |thread_waited: f64| {
        let scenario = Scenario {
            sender_load: Some(HostLoad {
                thread_waited,
                ..load(0.6, 0.8, 0.1)
            }),
            ..sender.clone()
        };
        host_is_limit(&scenario)
    };
    assert_eq!((sure(0.2), sure(0.4)), (0.0, 1.0));
}

#[test]
fn what_a_copy_takes_of_a_cpu_is_said_where_it_was_measured() {
    let sender = hosts_without_time().remove(0);
    let said = |memory_copy: Option<Rate>| {
        let load = sender.sender_load.map(|load| HostLoad {
            memory_copy,
            ..load
        });
        let scenario = Scenario {
            sender_load: load,
            ..sender.clone()
        };
        let findings = diagnose(&scenario.evidence()).findings;
        let host = findings.into_iter().find(|f| f.cause == Cause::HostCpu);
        let lines = host.unwrap().evidence.into_iter();
        lines.filter(|l| l.contains("copy")).collect::<Vec<_>>()
    };
    assert_eq!(said(None), [""; 0]);
    assert_eq!(said(Some(Rate::from_bits_per_second(0))), [""; 0]);
    // As fast as the payload itself: a whole CPU.
    let goodput: Rate = sender.goodput.parse().unwrap();
    let lines = said(Some(goodput));
    assert!(lines[0].contains("takes 100 % of a CPU"), "{lines:?}");
}

#[test]
fn in_a_lab_only_a_thread_tells_since_the_labs_own_is_never_idle() {
    let softirq = hosts_without_time().remove(2);
    assert!(host_is_limit(&softirq) > 0.9);
    let lab = Scenario {
        lab_trusted: Some(true),
        ..softirq
    };
    assert_eq!(host_is_limit(&lab), 0.0);
}

#[test]
fn a_full_machine_counts_only_where_the_transfer_uses_it() {
    let all_cpus = hosts_without_time().remove(3);
    assert!(host_is_limit(&all_cpus) > 0.9);
    let others = Scenario {
        receiver_load: Some(HostLoad {
            threads: 0.4,
            softirq: 0.1,
            busy: 1.0,
            ..load(0.4, 0.99, 0.2)
        }),
        ..all_cpus
    };
    assert_eq!(host_is_limit(&others), 0.0);
}

#[test]
fn one_machine_works_for_both_ends() {
    let half = HostLoad {
        threads: 0.9,
        softirq: 0.1,
        busy: 1.0,
        ..load(0.5, 0.99, 0.2)
    };
    let scenario = Scenario {
        sender_load: Some(half),
        receiver_load: Some(half),
        ..hosts_without_time().remove(3)
    };
    let mut evidence = scenario.evidence();
    let sure = |evidence: &Evidence| {
        let found = diagnose(evidence).findings;
        let cpu = found.iter().find(|f| f.cause == Cause::HostCpu);
        cpu.map_or(0.0, |f| f.confidence)
    };
    assert!(sure(&evidence) < 0.1);
    evidence.one_machine = true;
    assert!(sure(&evidence) > 0.7);
}

#[test]
fn a_declared_cost_is_named_where_goodput_is_what_it_allows() {
    let scenario = Scenario {
        bottleneck: Some("10Gb/s"),
        ..declared_costs().remove(0)
    };
    let told = |goodput| {
        let diagnosis = diagnose(
            &Scenario {
                goodput,
                ..scenario.clone()
            }
            .evidence(),
        );
        let named = diagnosis.verdict.cause == Some(Cause::DeclaredCost);
        (named && diagnosis.verdict.conclusive, diagnosis)
    };
    let finding = told("815Mb/s").1.findings.remove(0);
    assert_eq!(finding.remedy.unwrap().host, throughput::RemedyHost::Near);
    let lines = finding.evidence[..2].join("\n");
    insta::assert_snapshot!(lines, @"
    each write costs the near host 1.26 ms for its bytes, 15.2 us for the call, as it declares: 128 KiB / 1.276 ms = 822.1 Mb/s
    that cost took 99 % of its time
    ");
    // Of 822 Mb/s: well below something else holds it, well above nobody spends it.
    for (goodput, named) in [
        ("600Mb/s", false),
        ("740Mb/s", true),
        ("900Mb/s", true),
        ("1.1Gb/s", false),
    ] {
        let (found, diagnosis) = told(goodput);
        assert_eq!(found, named, "{goodput}: {}", diagnosis.verdict.sentence);
    }
}

#[test]
fn one_machine_is_called_both_ends() {
    let mut evidence = hosts_without_time()[0].evidence();
    evidence.one_machine = true;
    let title = diagnose(&evidence).findings.remove(0).title;
    assert!(
        title.starts_with("This machine, which is both ends, is the limit"),
        "{title}"
    );
}

/// Beyond what a box makes of windows, and far below what the buffer may grow to: the reader is late. Else the buffer is small.
#[test]
fn a_window_that_stays_far_below_its_buffer_is_the_readers() {
    let cause = |window: u64, buffer: u64| {
        let scenario = Scenario {
            goodput: "7.5Mb/s",
            shares: [0.0, 0.99, 0.0, 0.01],
            snd_wnd_bytes: [window, window],
            receiver: host(buffer, 64 << 20),
            ..Scenario::default()
        };
        diagnose(&scenario.evidence()).findings[0].cause
    };
    // Half of a buffer is window, and a bit more.
    assert_eq!(cause(80_896, 64 << 20), Cause::Application);
    assert_eq!(cause(80_896, 1 << 20), Cause::ReceiveWindow);
}

/// A lab that only slows makes no buffer smaller; one that is worse, or a window near what the path carries, says nothing.
#[test]
fn a_window_that_binds_whatever_a_late_lab_did_is_named_all_the_same() {
    let conclusive = |goodput: &'static str, slowed: Option<f64>| {
        let scenario = Scenario {
            goodput,
            shares: [0.0, 0.97, 0.0, 0.03],
            snd_wnd_bytes: [39_550, 39_550],
            receiver: host(65_536, 64 << 20),
            lab_trusted: Some(false),
            ..Scenario::default()
        };
        let evidence = Evidence {
            lab_slowed: slowed,
            ..scenario.evidence()
        };
        diagnose(&evidence).verdict.conclusive
    };
    assert!(conclusive("3.6Mb/s", Some(0.3)));
    assert!(!conclusive("3.6Mb/s", Some(220.0)));
    assert!(!conclusive("3.6Mb/s", None));
}

/// What the lab lost is no loss of the path.
#[test]
fn losses_of_the_lab_are_not_blamed_on_the_path() {
    let lost = |lab_losses| {
        let scenario = Scenario {
            loss: 1e-3,
            goodput: "300Mb/s",
            ..Scenario::default()
        };
        let evidence = Evidence {
            lab_losses,
            ..scenario.evidence()
        };
        diagnose(&evidence).facts.lost_segments()
    };
    let all = lost(0);
    assert!(all > 100);
    assert_eq!((lost(all - 1), lost(all), lost(all + 1)), (1, 0, 0));
}
