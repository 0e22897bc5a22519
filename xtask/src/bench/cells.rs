//! The cells: what is measured where, and which numbers are kept of it.

use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Context as _;
use lab::{Certificate, Phase};
use measure::{Outcome, Sample};
use units::Duration;

use super::meter::{MachineMeter, MachineUse, Noise};
use super::record::Recorder;
use super::site::{Place, Site, path_text};
use super::{Times, iperf3, ours};

/// One thing measured in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    /// One TCP stream through a path without rate or delay.
    Tcp {
        /// What joins the hosts.
        place: Place,
        /// MTU of the hosts.
        mtu: u32,
        /// Whether the hosts hand over trains of segments with open checksums, as they do on a card
        /// that cuts them.
        offloads: bool,
    },
    /// Datagrams, one system call each.
    Udp {
        /// What joins the hosts.
        place: Place,
        /// Payload of each.
        payload_bytes: usize,
    },
    /// Probes on an otherwise idle path of 50 ms.
    Idle,
    /// One TCP stream on the path of the file, ours and iperf3's, and probes beside it.
    Healthy(PathBuf),
}

/// Who sends a TCP stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// The peer.
    Iperf3,
    /// The measure crate.
    Ours,
}

/// What a stream did.
#[derive(Clone, Copy, Debug)]
struct Stream {
    goodput_bits_per_second: f64,
    near_cpu_s: f64,
    far_cpu_s: f64,
    retransmits: f64,
}

impl Cell {
    /// All cells in the order in which they run. What is to be compared stands together.
    pub(crate) fn all(healthy: &Path) -> Vec<Self> {
        let mut cells = Vec::new();
        for mtu in MTUS {
            for offloads in [true, false] {
                cells.extend(
                    [Place::Veth, Place::Bridge, Place::Lab].map(|place| Self::Tcp {
                        place,
                        mtu,
                        offloads,
                    }),
                );
            }
        }
        for payload_bytes in PAYLOADS_BYTES {
            cells.extend([Place::Bridge, Place::Lab].map(|place| Self::Udp {
                place,
                payload_bytes,
            }));
        }
        cells.extend([Self::Idle, Self::Healthy(healthy.to_owned())]);
        cells
    }

    /// Its name in rows and for `--only`.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Tcp {
                place,
                mtu,
                offloads,
            } => tcp_name(*place, *mtu, *offloads),
            Self::Udp {
                place,
                payload_bytes,
            } => udp_name(*place, *payload_bytes),
            Self::Idle => IDLE.to_owned(),
            Self::Healthy(_) => HEALTHY.to_owned(),
        }
    }

    /// True when nothing of it can be measured without iproute2.
    pub(crate) const fn needs_ip(&self) -> bool {
        matches!(
            self,
            Self::Tcp {
                place: Place::Bridge,
                ..
            } | Self::Udp {
                place: Place::Bridge,
                ..
            }
        )
    }

    /// True when nothing of it can be measured without iperf3.
    pub(crate) const fn needs_iperf3(&self) -> bool {
        match self {
            Self::Tcp { place, mtu, .. } => !has_ours(*place, *mtu),
            _ => false,
        }
    }

    /// Measures once and keeps the numbers.
    pub(crate) fn measure(
        &self,
        round: u32,
        times: &Times,
        has_iperf3: bool,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        match self {
            Self::Tcp {
                place,
                mtu,
                offloads,
            } => {
                let site = Site::plain(*place, *mtu, *offloads)?;
                let with_ours = has_ours(*place, *mtu);
                ours::warm_up(&site.near(), &site.far())?;
                for tool in tools(round, has_iperf3, with_ours) {
                    stream(&site, tool, times.tcp_omit_s, times.tcp_s, recorder)?;
                }
                Ok(())
            }
            Self::Udp {
                place,
                payload_bytes,
            } => {
                let site = Site::plain(*place, UDP_MTU, true)?;
                datagrams(&site, *payload_bytes, times.udp_s, recorder)
            }
            Self::Idle => {
                listen(times, recorder);
                idle(times, recorder)
            }
            Self::Healthy(file) => {
                listen(times, recorder);
                let site = Site::lab_file(file)?;
                ours::warm_up(&site.near(), &site.far())?;
                for tool in tools(round, has_iperf3, true) {
                    let certificate =
                        stream(&site, tool, HEALTHY_OMIT_S, times.healthy_s, recorder)?;
                    let certificate = certificate.context("a lab without a certificate")?;
                    keep_delay(tool.name(), &certificate, recorder);
                }
                Ok(())
            }
        }
    }
}

impl Tool {
    const fn name(self) -> &'static str {
        match self {
            Self::Iperf3 => "iperf3",
            Self::Ours => "ours",
        }
    }
}

/// Where our own transfer runs as well. Outside the lab at one MTU only: that tells what is the
/// tool's doing and what the lab's, and every transfer is a quarter of a minute in five rounds.
const fn has_ours(place: Place, mtu: u32) -> bool {
    matches!(place, Place::Lab) || mtu == MTUS[0]
}

/// Who measures, in turns: whoever comes second meets a warmer machine.
fn tools(round: u32, has_iperf3: bool, with_ours: bool) -> Vec<Tool> {
    let mut tools = Vec::new();
    if has_iperf3 {
        tools.push(Tool::Iperf3);
    }
    if with_ours {
        tools.push(Tool::Ours);
    }
    if round.is_multiple_of(2) {
        tools.reverse();
    }
    tools
}

/// Runs one stream and keeps what it did and cost; the lab's certificate where there is a lab.
pub(crate) fn stream(
    site: &Site,
    tool: Tool,
    omit_s: u64,
    seconds: u64,
    recorder: &mut Recorder,
) -> anyhow::Result<Option<Certificate>> {
    let phase = begin_phase(site)?;
    let meter = MachineMeter::start();
    let (near, far) = (site.near(), site.far());
    let sending_s = Duration::from_s(omit_s + seconds).as_s_f64();
    let stream = match tool {
        Tool::Iperf3 => {
            let report = iperf3::measure(&near, &far, omit_s, seconds)?;
            Stream {
                goodput_bits_per_second: report.goodput_bits_per_second,
                near_cpu_s: report.near_cpus * sending_s,
                far_cpu_s: report.far_cpus * sending_s,
                retransmits: report.retransmits,
            }
        }
        Tool::Ours => {
            let outcome = ours::tcp(&near, &far, omit_s, seconds)?;
            Stream {
                goodput_bits_per_second: outcome.goodput_after_ramp().as_bits_per_second() as f64,
                near_cpu_s: outcome.sender.cpu.as_s_f64(),
                far_cpu_s: outcome.receiver.cpu.as_s_f64(),
                retransmits: retransmits(&outcome),
            }
        }
    };
    let machine = meter.read();
    let certificate = phase.map(Phase::finish).transpose()?;
    let mut put = |what: &str, value: f64, unit| {
        recorder.put(format!("{}.{what}", tool.name()), value, unit);
    };
    put("goodput", stream.goodput_bits_per_second, "b/s");
    put("near_cpu", stream.near_cpu_s, "s");
    put("far_cpu", stream.far_cpu_s, "s");
    put("retransmits", stream.retransmits, "segments");
    put("sending", sending_s, "s");
    if let Some(certificate) = &certificate {
        let gbit = stream.goodput_bits_per_second * sending_s / 1e9;
        let cpu = certificate.cpu.as_s_f64();
        put(
            "lab_cpu_per_gbit",
            cpu / gbit.max(f64::MIN_POSITIVE),
            "s/Gbit",
        );
    }
    keep_machine(tool.name(), machine, recorder);
    keep_lab(tool.name(), certificate.as_ref(), sending_s, recorder);
    Ok(certificate)
}

/// Segments sent again after the ramp, as iperf3 counts them after what it omits.
fn retransmits(outcome: &Outcome) -> f64 {
    let samples = &outcome.sender.samples;
    let from = samples.iter().find(|s| s.t >= outcome.config.ramp);
    let count = |s: Option<&Sample>| s.map_or(0, |s| s.info.total_retrans_segments);
    let (before, after) = (count(from), count(samples.last()));
    after.saturating_sub(before) as f64
}

/// Sends datagrams and keeps what became of them.
fn datagrams(
    site: &Site,
    payload_bytes: usize,
    seconds: u64,
    recorder: &mut Recorder,
) -> anyhow::Result<()> {
    let phase = begin_phase(site)?;
    let meter = MachineMeter::start();
    let seen = ours::datagrams(&site.near(), &site.far(), payload_bytes, seconds)?;
    let machine = meter.read();
    let certificate = phase.map(Phase::finish).transpose()?;
    let wall = seen.wall.as_s_f64();
    let lab = certificate
        .as_ref()
        .map_or(0, Certificate::frames_lost_by_lab);
    let missing = seen.sent.saturating_sub(seen.received);
    let elsewhere = missing.saturating_sub(lab + seen.lost_socket);
    recorder.put("udp.sent", seen.sent as f64 / wall, "packets/s");
    recorder.put("udp.received", seen.received as f64 / wall, "packets/s");
    for (metric, packets) in [
        ("udp.sent_total", seen.sent),
        ("udp.refused", seen.refused),
        ("udp.lost_socket", seen.lost_socket),
        ("udp.lost_elsewhere", elsewhere),
    ] {
        recorder.put(metric, packets as f64, "packets");
    }
    recorder.put("udp.near_cpu", seen.near_cpu.as_s_f64(), "s");
    recorder.put("udp.far_cpu", seen.far_cpu.as_s_f64(), "s");
    keep_machine("udp", machine, recorder);
    keep_lab("udp", certificate.as_ref(), wall, recorder);
    Ok(())
}

/// Probes an idle path of 50 ms.
fn idle(times: &Times, recorder: &mut Recorder) -> anyhow::Result<()> {
    let site = Site::lab(&path_text(1_500, "delay = \"50ms\""))?;
    let phase = begin_phase(&site)?.context("a lab without a phase")?;
    let meter = MachineMeter::start();
    thread::sleep(Duration::from_s(times.idle_s).to_std());
    let machine = meter.read();
    let certificate = phase.finish()?;
    keep_delay("idle", &certificate, recorder);
    keep_machine("idle", machine, recorder);
    keep_lab("idle", Some(&certificate), machine.wall_s, recorder);
    Ok(())
}

fn begin_phase(site: &Site) -> anyhow::Result<Option<Phase<'_>>> {
    Ok(site.as_lab().map(lab::Lab::begin_phase).transpose()?)
}

/// Hears how quiet the machine is by itself.
pub(crate) fn listen(times: &Times, recorder: &mut Recorder) {
    let noise = Noise::listen(Duration::from_ms(times.noise_ms));
    recorder.put("noise.gaps", f64::from(noise.gaps), "gaps");
    recorder.put("noise.lost", noise.lost.as_s_f64(), "s");
    recorder.put("noise.others_cpu", noise.others_cpu_s, "s");
    recorder.put("noise.stolen", noise.stolen_s, "s");
    recorder.put("noise.wall", noise.wall_s, "s");
}

/// CPU of everybody; `who` had it run.
pub(crate) fn keep_machine(who: &str, machine: MachineUse, recorder: &mut Recorder) {
    let cpus = machine.busy_s / machine.wall_s.max(f64::MIN_POSITIVE);
    recorder.put(format!("{who}.machine_cpus"), cpus, "CPUs");
    recorder.put(format!("{who}.machine_stolen"), machine.stolen_s, "s");
}

/// What the lab carried and what that cost it; nothing where there is no lab.
fn keep_lab(who: &str, certificate: Option<&Certificate>, sending_s: f64, recorder: &mut Recorder) {
    let Some(certificate) = certificate else {
        return;
    };
    let mut put = |what: &str, value: f64, unit| {
        recorder.put(format!("{who}.{what}"), value, unit);
    };
    let queue_drops = certificate.forward.link.queue_full + certificate.backward.link.queue_full;
    put(
        "lab_frames",
        certificate.frames() as f64 / sending_s,
        "frames/s",
    );
    put("lab_cpu", certificate.cpu.as_s_f64(), "s");
    put(
        "lab_lost",
        certificate.frames_lost_by_lab() as f64,
        "frames",
    );
    put("lab_late", certificate.frames_late() as f64, "frames");
    put("path_queue_drops", queue_drops as f64, "frames");
}

/// The error of the lab's delay, and what the lab itself objects to.
fn keep_delay(who: &str, certificate: &Certificate, recorder: &mut Recorder) {
    for (what, ns) in [
        ("error_p50", certificate.delay_error_p50_ns),
        ("error_p99", certificate.delay_error_p99_ns),
        ("error_p999", certificate.delay_error_p999_ns),
        ("error_max", certificate.delay_error_max_ns),
    ] {
        recorder.put(format!("{who}.{what}"), ns as f64, "ns");
    }
    for error in &certificate.rate_errors {
        let window = error.window.as_ns() / 1_000_000;
        let what = format!("{who}.rate_error_{window}ms_p99");
        recorder.put(what, error.p99_ppm as f64, "ppm");
    }
    recorder.put(format!("{who}.probes"), certificate.probes as f64, "frames");
    let trusted = f64::from(u8::from(certificate.trusted()));
    recorder.put(format!("{who}.trusted"), trusted, "0 or 1");
    for problem in &certificate.problems {
        recorder.note(&format!("{who}: not trusted: {problem}"));
    }
}

pub(crate) fn tcp_name(place: Place, mtu: u32, offloads: bool) -> String {
    let offloads = if offloads { "on" } else { "off" };
    format!("tcp/{}/{mtu}/{offloads}", place.name())
}

pub(crate) fn udp_name(place: Place, payload_bytes: usize) -> String {
    format!("udp/{}/{payload_bytes}", place.name())
}

/// Name of the idle cell.
pub(crate) const IDLE: &str = "delay/idle-50ms";
/// Name of the cell of the healthy path.
pub(crate) const HEALTHY: &str = "healthy/1g-20ms";
/// Ethernet's, and what fast networks are set to.
pub(crate) const MTUS: [u32; 2] = [1_500, 9_000];
/// Small ones, and the largest that fit into an Ethernet frame.
pub(crate) const PAYLOADS_BYTES: [usize; 2] = [64, 1_472];
const UDP_MTU: u32 = 1_500;
/// Slow start on a round trip of 20 ms takes a quarter of this.
const HEALTHY_OMIT_S: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_names_of_their_own() {
        let cells = Cell::all(Path::new("x.toml"));
        let mut names: Vec<String> = cells.iter().map(Cell::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), cells.len());
        assert_eq!(cells.len(), 12 + 4 + 2);
    }

    #[test]
    fn tools_take_turns_at_being_first() {
        assert_eq!(tools(1, true, true), [Tool::Iperf3, Tool::Ours]);
        assert_eq!(tools(2, true, true), [Tool::Ours, Tool::Iperf3]);
        assert_eq!(tools(2, false, true), [Tool::Ours]);
        assert_eq!(tools(1, true, false), [Tool::Iperf3]);
    }
}
