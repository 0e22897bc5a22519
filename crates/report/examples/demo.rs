//! Writes run folders that look like real ones, for looking at the report without a network.
//!
//! `cargo run -p goodput-report --example demo [PARENT]` makes three: a path of 1 Gb/s and 85 ms
//! whose 64 KiB receive buffer is found and raised, a lossy path with four streams, and a run that
//! was interrupted. It also writes `comparison.html` beside them and prints the first run's
//! terminal summary. The samples come from formulas with a fixed seed, not from a measurement.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use report::model::{
    Certificate, FindingRecord, HostFacts, NicFacts, Observer, PathFacts, Phase, RemedyRecord, Run,
    RunState, SampleRecord, Shares, Verdict,
};
use report::{RunFolder, terminal};
use units::Rng;

fn main() -> Result<(), Box<dyn Error>> {
    let parent = std::env::args_os()
        .nth(1)
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let fixed = write_fixed(&parent)?;
    let lossy = write_lossy(&parent)?;
    let interrupted = write_interrupted(&parent)?;
    let mut loaded = Vec::new();
    for path in [&fixed, &lossy, &interrupted] {
        println!("{}", path.join("report.html").display());
        loaded.push(RunFolder::load(path)?);
    }
    let comparison = parent.join("comparison.html");
    std::fs::write(&comparison, report::render_comparison(&loaded))?;
    println!("{}\n", comparison.display());
    print!(
        "{}",
        terminal::summary(&loaded[0].run, &loaded[0].findings, true, 100)
    );
    Ok(())
}

/// The receive window holds a fast long path; a larger buffer frees it.
fn write_fixed(parent: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let mut folder = RunFolder::create(parent, "doctor", "transatlantic", Run::default())?;
    for sample in window_limited("before").into_iter().chain(ramping("after")) {
        folder.append_sample(&sample)?;
    }
    folder.finish(&fixed_run(), &fixed_findings())?;
    Ok(folder.path().to_owned())
}

fn write_lossy(parent: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let mut folder = RunFolder::create(parent, "doctor", "campus uplink", Run::default())?;
    for sample in sawtooth("before", 4) {
        folder.append_sample(&sample)?;
    }
    let phase = Phase {
        name: "before".to_owned(),
        streams: 4,
        congestion_control: "reno".to_owned(),
        duration_ns: 10 * S,
        rtt_idle_ns: 20_040_000,
        predicted_bits_per_second: Some(211_000_000),
        predicted_from: Some(
            "4 streams x 1.22 x 1448 B / (20.04 ms x sqrt(1e-4)), Mathis".to_owned(),
        ),
        goodput_bits_per_second: 197_300_000,
        goodput_whole_bits_per_second: 194_800_000,
        bytes_received: 243_500_000,
        segments_sent: 168_300,
        segments_retransmitted: 171,
        shares: Shares {
            network: 1.0,
            ..Shares::default()
        },
        ..Phase::default()
    };
    let run = Run {
        name: "campus uplink".to_owned(),
        phases: vec![phase],
        path: Some(PathFacts {
            source: "measured".to_owned(),
            rtt_idle_ns: Some(20_040_000),
            achievable_bits_per_second: Some(949_300_000),
            ..PathFacts::default()
        }),
        verdict: Some(Verdict {
            sentence:
                "One packet in a thousand is lost on the way: four Reno streams get 197 Mb/s."
                    .to_owned(),
            cause: Some("loss".to_owned()),
            healthy: false,
            conclusive: true,
            ..Verdict::default()
        }),
        ..Run::default()
    };
    folder.finish(&run, &[])?;
    Ok(folder.path().to_owned())
}

fn write_interrupted(parent: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let mut folder = RunFolder::create(parent, "measure", "dtn2.example.org", Run::default())?;
    for sample in window_limited("before").into_iter().take(60) {
        folder.append_sample(&sample)?;
    }
    let phase = Phase {
        name: "before".to_owned(),
        ..Phase::default()
    };
    let run = Run {
        state: RunState::Interrupted,
        phases: vec![phase],
        ..Run::default()
    };
    let run = Run {
        name: "dtn2.example.org".to_owned(),
        verb: "measure".to_owned(),
        ..run
    };
    folder.finish(&run, &[])?;
    Ok(folder.path().to_owned())
}

fn fixed_run() -> Run {
    Run {
        verb: "doctor".to_owned(),
        name: "transatlantic".to_owned(),
        state: RunState::Done,
        command_line: ["goodput", "doctor", "lab:transatlantic"]
            .map(str::to_owned)
            .to_vec(),
        goodput_version: "0.1.0".to_owned(),
        started_utc: "2026-01-31T12:00:00Z".to_owned(),
        finished_utc: Some("2026-01-31T12:00:24.512Z".to_owned()),
        seed: Some(1),
        hosts: vec![host("near", "chicago"), host("far", "geneva")],
        path: Some(path_facts()),
        phases: vec![phase_before(), phase_after()],
        verdict: Some(Verdict {
            sentence:
                "Geneva's 64 KiB receive buffer held this path at 3.9 Mb/s of the 949 Mb/s it \
                       can carry; with 25 MiB it delivers 930 Mb/s."
                    .to_owned(),
            cause: Some("receive_window".to_owned()),
            healthy: false,
            conclusive: true,
            ..Verdict::default()
        }),
        ..Run::default()
    }
}

fn host(role: &str, name: &str) -> HostFacts {
    HostFacts {
        role: role.to_owned(),
        name: name.to_owned(),
        kernel: "6.18.3".to_owned(),
        cpu_model: "AMD EPYC 9354 32-Core Processor".to_owned(),
        cpus: 64,
        load_1min_percent: 112,
        nics: vec![NicFacts {
            name: "eth0".to_owned(),
            mtu_bytes: 1500,
            driver: Some("veth".to_owned()),
            speed_bits_per_second: Some(10_000_000_000),
            ..NicFacts::default()
        }],
        tcp_rmem_bytes: Some([4_096, 65_536, 65_536]),
        tcp_wmem_bytes: Some([4_096, 16_384, 64 << 20]),
        congestion_control: Some("cubic".to_owned()),
    }
}

fn path_facts() -> PathFacts {
    PathFacts {
        file: Some("paths/transatlantic.toml".to_owned()),
        text: Some(
            "title = \"Chicago to Geneva\"\n\n[link]\n\
             rate = \"1Gb/s\"\ndelay = \"42.5ms\"\nqueue = \"1MiB\"\n"
                .to_owned(),
        ),
        title: Some("Chicago to Geneva".to_owned()),
        source: "configured".to_owned(),
        rate_bits_per_second: Some(1_000_000_000),
        achievable_bits_per_second: Some(949_284_785),
        delay_forward_ns: Some(42_500_000),
        delay_backward_ns: Some(42_500_000),
        rtt_idle_ns: Some(85_043_000),
        queue_bytes: Some(1 << 20),
        mtu_bytes: Some(1500),
        bdp_bytes: Some(10_630_375),
        ..PathFacts::default()
    }
}

fn phase_before() -> Phase {
    Phase {
        attempts: 1,
        name: "before".to_owned(),
        settings: vec!["net.ipv4.tcp_rmem = 4096 65536 65536".to_owned()],
        direction: "up".to_owned(),
        streams: 1,
        congestion_control: "cubic".to_owned(),
        duration_ns: 10 * S,
        ramp_ns: S,
        rtt_idle_ns: 85_043_000,
        predicted_bits_per_second: Some(3_934_000),
        predicted_from: Some("window 41,820 B / round trip 85.04 ms".to_owned()),
        goodput_bits_per_second: 3_901_000,
        goodput_whole_bits_per_second: 3_862_000,
        bytes_received: 4_827_500,
        segments_sent: 3_334,
        segments_retransmitted: 0,
        shares: Shares {
            receive_window: 0.953,
            network: 0.047,
            ..Shares::default()
        },
        cpu_sender_ns: 21_000_000,
        cpu_receiver_ns: 34_000_000,
        certificate: Some(certificate(6_710)),
        latency: None,
        observers: vec![observer(3_894_000)],
        ..Phase::default()
    }
}

fn phase_after() -> Phase {
    Phase {
        name: "after".to_owned(),
        settings: vec!["net.ipv4.tcp_rmem = 4096 131072 26214400".to_owned()],
        ramp_ns: 2 * S,
        predicted_bits_per_second: Some(949_284_785),
        predicted_from: Some("achievable rate: window 25 MiB / 85.04 ms is above it".to_owned()),
        goodput_bits_per_second: 930_214_000,
        goodput_whole_bits_per_second: 858_700_000,
        bytes_received: 1_073_375_000,
        segments_sent: 741_400,
        segments_retransmitted: 312,
        shares: Shares {
            application: 0.008,
            receive_window: 0.0,
            send_buffer: 0.021,
            network: 0.971,
        },
        cpu_sender_ns: 1_430_000_000,
        cpu_receiver_ns: 2_220_000_000,
        certificate: Some(Certificate {
            segments_lost_queue: 298,
            ..certificate(812_034)
        }),
        observers: vec![observer(928_100_000)],
        ..phase_before()
    }
}

fn certificate(frames: u64) -> Certificate {
    Certificate {
        trusted: true,
        probes: 1_000,
        delay_error_p50_ns: 1_240,
        delay_error_p99_ns: 14_800,
        delay_error_max_ns: 80_120,
        frames,
        queue_max_bytes: if frames > 100_000 { 1 << 20 } else { 1_538 },
        cpu_forwarder_ns: 3_120_000_000,
        memory_bytes: 64 << 20,
        ..Certificate::default()
    }
}

fn observer(goodput_bits_per_second: u64) -> Observer {
    Observer {
        tool: "iperf 3.12".to_owned(),
        command: "iperf3 -c 10.0.0.2 -t 10 -O 2".to_owned(),
        goodput_bits_per_second,
        ..Observer::default()
    }
}

fn fixed_findings() -> Vec<FindingRecord> {
    let remedy = RemedyRecord {
        summary: "Let the receive buffer grow to more than twice the bandwidth-delay product."
            .to_owned(),
        host: "far".to_owned(),
        sysctl: vec!["net.ipv4.tcp_rmem = 4096 131072 26214400".to_owned()],
        flags: vec!["goodput serve --receive-buffer 25MiB".to_owned()],
        predicted_bits_per_second: Some(949_284_785),
        predicted_from: Some("all of the achievable rate".to_owned()),
        cost: "up to 25 MiB of memory for each connection that needs it".to_owned(),
    };
    vec![
        FindingRecord {
            phase: "before".to_owned(),
            cause: "receive_window".to_owned(),
            title: "The peer's receive window held the sender back.".to_owned(),
            confidence: 0.98,
            share: 0.953,
            evidence: vec![
                "the kernel counted 9.53 s of 10 s as receive-window limited".to_owned(),
                "the window stayed at 41.82 kB; the path holds 10.63 MB".to_owned(),
                "bytes in flight reached the window in 97 of 100 samples".to_owned(),
                "net.ipv4.tcp_rmem allows 65536 B at most on geneva".to_owned(),
            ],
            remedy: Some(remedy),
        },
        FindingRecord {
            phase: "after".to_owned(),
            cause: "bottleneck_reached".to_owned(),
            title: "The transfer fills the bottleneck.".to_owned(),
            confidence: 0.95,
            share: 0.971,
            evidence: vec![
                "98 % of the achievable rate after the ramp".to_owned(),
                "round trip rose from 85.04 ms to 92.9 ms: a queue stands at the bottleneck"
                    .to_owned(),
            ],
            remedy: None,
        },
    ]
}

/// One reading of a sender.
struct Reading {
    stream: u32,
    ms: u64,
    acked_bytes: u64,
    rtt_us: u64,
    min_rtt_us: u64,
    cwnd_segments: u64,
    window_bytes: u64,
    flight_segments: u64,
    /// Busy, limited by the receive window, limited by the send buffer.
    spent_us: [u64; 3],
}

/// The sender's and the receiver's record of one reading.
fn records(phase: &str, r: &Reading) -> [SampleRecord; 2] {
    let fields = [
        ("snd_mss_bytes", MSS),
        ("rtt_us", r.rtt_us),
        ("min_rtt_us", r.min_rtt_us),
        ("snd_cwnd_segments", r.cwnd_segments),
        ("snd_wnd_bytes", r.window_bytes),
        ("unacked_segments", r.flight_segments),
        ("bytes_acked", r.acked_bytes),
        ("busy_time_us", r.spent_us[0]),
        ("rwnd_limited_us", r.spent_us[1]),
        ("sndbuf_limited_us", r.spent_us[2]),
    ];
    let record = |end: &str, tcp_info: BTreeMap<String, u64>| SampleRecord {
        phase: phase.to_owned(),
        end: end.to_owned(),
        stream: r.stream,
        t_ns: r.ms * 1_000_000,
        app_bytes: r.acked_bytes,
        tcp_info,
    };
    let named = fields.map(|(name, value)| (name.to_owned(), value));
    [
        record("sender", named.into()),
        record("receiver", BTreeMap::new()),
    ]
}

/// A window of 41.8 kB at 85 ms.
fn window_limited(phase: &str) -> Vec<SampleRecord> {
    let mut rng = Rng::new(1);
    let (mut acked, mut spent) = (0_u64, [0_u64; 3]);
    let mut samples = Vec::new();
    for ms in (0..=10_000_u64).step_by(100) {
        let ramping = ms < 300;
        let full = 49_175 - 2_000 + noise(&mut rng, 4_000);
        acked += if ms == 0 {
            0
        } else if ramping {
            full / 3
        } else {
            full
        };
        let waited = if ramping || ms == 0 {
            0
        } else {
            92_000 + noise(&mut rng, 7_000)
        };
        spent = [ms * 1_000, spent[1] + waited, 0];
        let flight_segments = if ramping { 10 } else { 27 + noise(&mut rng, 2) };
        samples.extend(records(
            phase,
            &Reading {
                stream: 0,
                ms,
                acked_bytes: acked,
                rtt_us: 85_043 + noise(&mut rng, 300),
                min_rtt_us: 85_043,
                cwnd_segments: if ramping { 10 + ms / 10 } else { 47 },
                window_bytes: 41_820,
                flight_segments,
                spent_us: spent,
            },
        ));
    }
    samples
}

/// Slow start from 10 segments at 85 ms up to the bottleneck, a loss at its queue, then CUBIC.
fn ramping(phase: &str) -> Vec<SampleRecord> {
    let mut rng = Rng::new(2);
    let pipe_segments = 7_340.0;
    let (mut acked, mut cwnd, mut sndbuf_us) = (0.0_f64, 10.0_f64, 0_u64);
    let mut samples = Vec::new();
    for ms in (0..=10_000_u64).step_by(100) {
        let t = ms as f64 / 1e3;
        cwnd = match t {
            t if t < 0.9 => 10.0 * 2_f64.powf(t / 0.085),
            t if t < 1.0 => pipe_segments + 720.0,
            // CUBIC: back to the old maximum along a cubic after a cut to 0.7 (RFC 9438).
            t => (0.4 * (t - 5.6).powi(3) * 40.0 + pipe_segments + 500.0)
                .clamp(cwnd.min(5_700.0), pipe_segments + 690.0),
        };
        let queue = (cwnd - pipe_segments).max(0.0);
        let delivered = (cwnd / pipe_segments).min(0.985);
        acked += if ms == 0 {
            0.0
        } else {
            delivered * 949.28e6 / 80.0
        };
        sndbuf_us += if (400..1_200).contains(&ms) {
            18_000
        } else {
            noise(&mut rng, 600)
        };
        samples.extend(records(
            phase,
            &Reading {
                stream: 0,
                ms,
                acked_bytes: whole(acked),
                rtt_us: 85_043 + whole(queue * 12.0) + noise(&mut rng, 300),
                min_rtt_us: 85_043,
                cwnd_segments: whole(cwnd),
                window_bytes: whole((65_536.0 * 2_f64.powf(t / 0.085)).min(25_600_000.0)),
                flight_segments: whole(cwnd * 0.985),
                spent_us: [ms * 1_000 - ms / 120 * 1_000, 0, sndbuf_us],
            },
        ));
    }
    samples
}

/// Reno under random loss: every stream its own saw.
fn sawtooth(phase: &str, streams: u32) -> Vec<SampleRecord> {
    let mut samples = Vec::new();
    for stream in 0..streams {
        let mut rng = Rng::new(10 + u64::from(stream));
        let (mut cwnd, mut acked) = (70_u64, 0_u64);
        for ms in (0..=10_000_u64).step_by(100) {
            acked += if ms == 0 { 0 } else { cwnd * MSS * 5 };
            samples.extend(records(
                phase,
                &Reading {
                    stream,
                    ms,
                    acked_bytes: acked,
                    rtt_us: 20_040 + noise(&mut rng, 250),
                    min_rtt_us: 20_040,
                    cwnd_segments: cwnd,
                    window_bytes: 3_145_728,
                    flight_segments: cwnd - noise(&mut rng, 3),
                    spent_us: [ms * 1_000, 0, 0],
                },
            ));
            cwnd = if noise(&mut rng, 10) == 0 {
                cwnd / 2 + 4
            } else {
                cwnd + 5
            };
        }
    }
    samples
}

/// A number below `limit`.
fn noise(rng: &mut Rng, limit: u64) -> u64 {
    rng.next_u64() % limit
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and nothing here is negative"
)]
fn whole(v: f64) -> u64 {
    v as u64
}

const MSS: u64 = 1_448;
const S: u64 = 1_000_000_000;
