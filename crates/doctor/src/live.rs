//! What the doctor's rules say of a connection that is only looked at: nothing is sent, the far host is not asked.
//!
//! The readings are of this host's end. Rules that need the far host's settings, a probe or the path's rate stay silent, so a limit of
//! the network is often "not known why".

use std::net::IpAddr;

use explain::{Evidence, HostConfig, diagnose};
use measure::HostFacts;
use throughput::{Sample, StreamEvidence};
use units::{Bytes, Duration, Instant, Rate};
use wire::tcp_info::TcpInfo;

pub use explain::Diagnosis;

/// What is known of this host, for all its connections.
#[derive(Clone, Debug)]
pub struct Onlooker {
    host: HostConfig,
    speed: Option<Rate>,
}

impl Onlooker {
    /// Reads this host's settings; `local` is an address of the interface that counts.
    pub fn of_this_host(local: Option<IpAddr>) -> Self {
        let facts = HostFacts::of_this_host(local);
        let speed = facts
            .interface
            .as_ref()
            .and_then(|i| i.speed_bits_per_second);
        Self {
            host: HostConfig {
                tcp_rmem_bytes: facts.tcp_rmem_bytes,
                tcp_wmem_bytes: facts.tcp_wmem_bytes,
                window_scaling: facts.tcp_window_scaling,
                congestion_control: facts.congestion_control.unwrap_or_default(),
                congestion_controls_available: facts.congestion_allowed,
                ..HostConfig::default()
            },
            speed: speed.map(Rate::from_bits_per_second),
        }
    }

    /// What limits a connection that sends, by two or more readings of it, the oldest first; `None` when it sent nothing between
    /// them. `send_buffer` is what SO_SNDBUF reads now: one below what autotuning would give is taken as fixed by the
    /// application.
    pub fn diagnose(
        &self,
        readings: &[(Instant, TcpInfo)],
        congestion: &str,
        send_buffer: Option<Bytes>,
    ) -> Option<Diagnosis> {
        let (first, last) = (readings.first()?, readings.last()?);
        let duration = last.0.saturating_since(first.0);
        let sent = last.1.bytes_acked.saturating_sub(first.1.bytes_acked);
        if duration == Duration::ZERO || sent == 0 {
            return None;
        }
        let samples = readings.iter().map(|(at, info)| Sample {
            t: at.saturating_since(first.0),
            info: *info,
            app_bytes: Bytes::new(info.bytes_acked),
        });
        let goodput = Rate::average(Bytes::new(sent), duration);
        let sender = HostConfig {
            congestion_control: congestion.to_owned(),
            sndbuf_fixed: send_buffer.filter(|&size| self.is_fixed(size, &last.1)),
            ..self.host.clone()
        };
        Some(diagnose(&Evidence {
            streams: vec![StreamEvidence {
                samples: samples.collect(),
            }],
            sender,
            duration,
            goodput_after_ramp: goodput,
            goodput_whole: goodput,
            target: self.speed,
            buffers: throughput::BufferModel::LINUX,
            ..Evidence::default()
        }))
    }

    /// A buffer that limits and is smaller than the most that autotuning gives has been set: autotuning would have grown it.
    fn is_fixed(&self, size: Bytes, info: &TcpInfo) -> bool {
        let most = self.host.tcp_wmem_bytes.map_or(0, |[.., most]| most);
        let limits = info.sndbuf_limited_us > info.busy_time_us / 20;
        limits && size.as_u64() < most
    }
}

/// A diagnosis as lines: the verdict, then what to do about it.
pub fn lines(diagnosis: &Diagnosis) -> Vec<String> {
    let mut lines = vec![format!("doctor: {}", diagnosis.verdict.sentence)];
    for finding in &diagnosis.findings {
        lines.push(format!(
            "- {} (confidence {:.0} %)",
            finding.title,
            finding.confidence * 100.0
        ));
        lines.extend(finding.evidence.iter().map(|fact| format!("    {fact}")));
        if let Some(remedy) = &finding.remedy {
            lines.push(format!(
                "  remedy: {}; cost: {}",
                remedy.summary, remedy.cost
            ));
            lines.extend(remedy.sysctl.iter().map(|line| format!("    {line}")));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use throughput::Cause;

    fn onlooker() -> Onlooker {
        Onlooker {
            host: HostConfig {
                tcp_wmem_bytes: Some([4_096, 16_384, 4_194_304]),
                ..HostConfig::default()
            },
            speed: None,
        }
    }

    /// A connection of 85 ms whose clocks ran for so many percent of the time.
    fn readings(rwnd: u64, sndbuf: u64) -> Vec<(Instant, TcpInfo)> {
        let reading = |n: u64| TcpInfo {
            len_bytes: 280,
            rtt_us: 85_000,
            min_rtt_us: 85_000,
            snd_mss_bytes: 1_448,
            snd_cwnd_segments: 100,
            unacked_segments: 27,
            notsent_bytes: 20_000,
            snd_wnd_bytes: 39_550,
            options: 7,
            busy_time_us: n * 200_000,
            rwnd_limited_us: n * 2_000 * rwnd,
            sndbuf_limited_us: n * 2_000 * sndbuf,
            bytes_acked: n * 90_000,
            bytes_sent: n * 90_000,
            ..TcpInfo::default()
        };
        (0..50)
            .map(|n| (Instant::from_ns(n * 200_000_000), reading(n)))
            .collect()
    }

    #[test]
    fn the_clock_that_ran_is_the_cause_with_its_remedy() {
        let of = |rwnd, sndbuf| {
            onlooker()
                .diagnose(&readings(rwnd, sndbuf), "cubic", None)
                .unwrap()
        };
        let found = of(95, 0);
        assert_eq!(
            found.verdict.cause,
            Some(Cause::ReceiveWindow),
            "{:?}",
            found.verdict
        );
        assert!(
            lines(&found).iter().any(|l| l.contains("remedy")),
            "{:?}",
            lines(&found)
        );
        assert_eq!(of(0, 95).verdict.cause, Some(Cause::SendBuffer));
    }

    #[test]
    fn one_reading_or_nothing_sent_is_no_diagnosis() {
        let onlooker = onlooker();
        let readings = readings(95, 0);
        assert!(onlooker.diagnose(&readings[..1], "cubic", None).is_none());
        let still = [
            readings[1],
            (Instant::from_ns(9_000_000_000), readings[1].1),
        ];
        assert!(onlooker.diagnose(&still, "cubic", None).is_none());
        assert!(onlooker.diagnose(&[], "cubic", None).is_none());
    }
}
