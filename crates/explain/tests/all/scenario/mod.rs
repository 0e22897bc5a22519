//! Synthetic transfers: a template with the interesting fields in view, and the readings that a
//! kernel would have given.

use explain::{CpuLoad, Evidence, HostConfig, HostLoad, Scaling};
use throughput::{PathKnowledge, Probe, Sample, StreamEvidence};
use units::{Bytes, Duration, Rate};
use wire::tcp_info::TcpInfo;

/// One transfer in levels; readings are made from it every `every_ms`.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) streams: u64,
    pub(crate) seconds: f64,
    pub(crate) every_ms: u64,
    pub(crate) goodput: &'static str,
    pub(crate) idle_rtt_us: u64,
    /// Round trip under load: low and high end of a sawtooth over two seconds.
    pub(crate) rtt_us: [u64; 2],
    /// application, receive window, send buffer, network.
    pub(crate) shares: [f64; 4],
    pub(crate) loss: f64,
    pub(crate) snd_wnd_bytes: [u64; 2],
    pub(crate) cwnd_segments: [u64; 2],
    pub(crate) ssthresh: u64,
    pub(crate) window_scaling: bool,
    pub(crate) app_limited: bool,
    /// Before Linux 4.10: no clocks.
    pub(crate) old_kernel: bool,
    pub(crate) max_pacing_bytes_per_second: u64,
    pub(crate) bottleneck: Option<&'static str>,
    pub(crate) target: Option<&'static str>,
    pub(crate) queue_bytes: Option<u64>,
    pub(crate) sender: HostConfig,
    pub(crate) receiver: HostConfig,
    pub(crate) lab_trusted: Option<bool>,
    /// Shift that the far host announced; none arrives (0) where scaling was agreed on.
    pub(crate) far_shift: Option<u64>,
    pub(crate) probes: Vec<Probe>,
    pub(crate) writes_always: bool,
    pub(crate) sender_cpu: Option<f64>,
    pub(crate) sender_load: Option<HostLoad>,
    pub(crate) receiver_load: Option<HostLoad>,
}

impl Default for Scenario {
    /// A healthy gigabit path over 85.02 ms with buffers that hold it.
    fn default() -> Self {
        Self {
            name: "",
            streams: 1,
            seconds: 10.0,
            every_ms: 100,
            goodput: "900Mb/s",
            idle_rtt_us: 85_020,
            rtt_us: [85_100, 85_300],
            shares: [0.0, 0.0, 0.0, 1.0],
            loss: 0.0,
            snd_wnd_bytes: [32 << 20, 32 << 20],
            cwnd_segments: [7_400, 7_500],
            ssthresh: 7_000,
            window_scaling: true,
            app_limited: false,
            old_kernel: false,
            max_pacing_bytes_per_second: u64::MAX,
            bottleneck: Some("1Gb/s"),
            target: None,
            queue_bytes: None,
            sender: host(64 << 20, 64 << 20),
            receiver: host(64 << 20, 64 << 20),
            lab_trusted: Some(true),
            far_shift: None,
            probes: Vec::new(),
            writes_always: false,
            sender_cpu: None,
            sender_load: None,
            receiver_load: None,
        }
    }
}

/// A host with these maxima, CUBIC in use and BBR at hand.
pub(crate) fn host(rmem_max: u64, wmem_max: u64) -> HostConfig {
    HostConfig {
        tcp_rmem_bytes: Some([4_096, 131_072.min(rmem_max), rmem_max]),
        tcp_wmem_bytes: Some([4_096, 16_384.min(wmem_max), wmem_max]),
        congestion_control: "cubic".to_owned(),
        congestion_controls_available: vec!["cubic".to_owned(), "bbr".to_owned()],
        ..HostConfig::default()
    }
}

/// A host of four CPUs whose data thread and fullest CPU are that busy; the second is the one that
/// handles packets, for a share of its time.
pub(crate) fn load(thread: f64, cpu: f64, softirq: f64) -> HostLoad {
    let packets = CpuLoad {
        number: 1,
        busy: cpu,
        softirq,
    };
    HostLoad {
        busiest_thread: Some(thread),
        thread_waited: 0.0,
        threads: thread,
        cpus: 4,
        busy: (thread + cpu) / 4.0,
        softirq: softirq / 4.0,
        steal: 0.0,
        fullest_cpu: Some(packets),
        softirq_cpu: Some(packets),
        memory_copy: None,
    }
}

impl Scenario {
    /// What was known after the transfer.
    pub(crate) fn evidence(&self) -> Evidence {
        let rate: Rate = self.goodput.parse().unwrap();
        let stream = StreamEvidence {
            samples: self.samples(rate),
        };
        Evidence {
            streams: vec![stream; usize::try_from(self.streams).unwrap()],
            path: PathKnowledge {
                bottleneck: self.bottleneck.map(|r| r.parse().unwrap()),
                mtu_bytes: Some(1_500),
                queue: self.queue_bytes.map(Bytes::new),
                ..PathKnowledge::default()
            },
            sender: self.sender.clone(),
            receiver: self.receiver.clone(),
            duration: seconds(self.seconds),
            ramp: seconds(self.seconds / 10.0),
            goodput_after_ramp: rate,
            goodput_whole: rate,
            idle_rtt: Duration::from_us(self.idle_rtt_us),
            target: self.target.map(|r| r.parse().unwrap()),
            lab_trusted: self.lab_trusted,
            receiver_scaling: self.far_shift.map(|own_shift| Scaling {
                agreed: true,
                own_shift,
                peer_shift: own_shift,
            }),
            probes: self.probes.clone(),
            writes_always: self.writes_always,
            sender_cpu: self.sender_cpu,
            sender_load: self.sender_load,
            receiver_load: self.receiver_load,
            ..Evidence::default()
        }
    }

    fn samples(&self, rate: Rate) -> Vec<Sample> {
        let count = whole(self.seconds * 1_000.0) / self.every_ms;
        (0..=count)
            .map(|n| self.sample(n * self.every_ms, n as f64 / count as f64, rate))
            .collect()
    }

    /// The reading at `t_ms`, a fraction `along` of the way.
    fn sample(&self, t_ms: u64, along: f64, rate: Rate) -> Sample {
        let t = Duration::from_ms(t_ms);
        let bytes = rate.bytes_in(t).as_u64() / self.streams;
        let sent = bytes / MSS_BYTES;
        let us = |share: f64| whole(share * t.as_s_f64() * 1e6);
        let saw = (t_ms % 2_000) as f64 / 2_000.0;
        let [_, receive_window, send_buffer, network] = self.shares;
        let info = TcpInfo {
            len_bytes: if self.old_kernel { 160 } else { 280 },
            options: if self.window_scaling { 7 } else { 3 },
            delivery_flags: u64::from(self.app_limited),
            snd_mss_bytes: MSS_BYTES,
            unacked_segments: between(self.cwnd_segments, along) / 2,
            rtt_us: between(self.rtt_us, saw),
            snd_ssthresh_segments: self.ssthresh,
            snd_cwnd_segments: between(self.cwnd_segments, along),
            total_retrans_segments: whole(sent as f64 * self.loss),
            max_pacing_rate_bytes_per_second: self.max_pacing_bytes_per_second,
            bytes_acked: bytes,
            notsent_bytes: if self.app_limited { 0 } else { 100_000 },
            min_rtt_us: self.idle_rtt_us,
            data_segs_out: sent,
            busy_time_us: us(receive_window + send_buffer + network),
            rwnd_limited_us: us(receive_window),
            sndbuf_limited_us: us(send_buffer),
            snd_wnd_bytes: between(self.snd_wnd_bytes, saw),
            ..TcpInfo::default()
        };
        Sample {
            t,
            info,
            app_bytes: Bytes::new(bytes),
        }
    }
}

fn between([low, high]: [u64; 2], fraction: f64) -> u64 {
    let (low, high) = (low as f64, high as f64);
    whole(low + (high - low) * fraction)
}

fn seconds(s: f64) -> Duration {
    Duration::from_us(whole(s * 1e6))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "levels of the scenarios are small and not below zero"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

const MSS_BYTES: u64 = 1_448;
