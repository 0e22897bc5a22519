//! Bulk transfers over a bare veth pair: ours beside iperf3 and nuttcp, and what reading `tcp_info`
//! costs.
//!
//! Both ends of every tool are processes of their own. Payload is what the receiving end of the tool
//! says; CPU is what the kernel booked on both processes from start to end, setting up included, so
//! it is measured alike for all. Tools take turns at being first.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::thread;

use anyhow::{Context as _, bail, ensure};
use explain::sweep::Estimate;
use measure::{Client, Config, Outcome, Stop, Transport};
use sys::clock;
use units::Duration;

use super::children::{Ended, output_within};
use super::iperf3;
use super::record::{Record, Recorder};
use super::site::{CONGESTION_CONTROL, End, Place, Site};
use super::table::{Table, number};

/// One thing measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cell {
    /// So many TCP streams.
    Tcp(u16),
    /// Datagrams of so many bytes, as fast as they go.
    Udp(u32),
    /// 64 TCP streams, read every 10 ms, every millisecond and hardly at all.
    Sampling,
}

/// Who transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Ours,
    /// Ours, with a reading of every stream each so many milliseconds.
    Sampling(u64),
    Iperf3,
    Nuttcp,
}

/// What is transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    streams: u16,
    /// Payload of a datagram; over TCP if none is given.
    datagram_bytes: Option<u32>,
    seconds: u64,
}

/// What one transfer gave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Transfer {
    /// Payload received.
    bytes: f64,
    seconds: f64,
    /// Datagrams received and sent; nothing over TCP.
    received: f64,
    sent: f64,
    /// CPU of both ends.
    cpu_s: f64,
}

impl Cell {
    pub(crate) const ALL: [Self; 5] = [
        Self::Tcp(1),
        Self::Tcp(8),
        Self::Udp(64),
        Self::Udp(1_472),
        Self::Sampling,
    ];

    pub(crate) fn name(self) -> String {
        match self {
            Self::Tcp(streams) => format!("throughput/tcp/{streams}"),
            Self::Udp(bytes) => format!("throughput/udp/{bytes}"),
            Self::Sampling => "throughput/sampling".to_owned(),
        }
    }

    fn tools(self) -> &'static [Tool] {
        match self {
            Self::Tcp(_) => &[Tool::Ours, Tool::Iperf3, Tool::Nuttcp],
            Self::Udp(_) => &[Tool::Ours, Tool::Iperf3],
            Self::Sampling => &[Tool::Ours, Tool::Sampling(10), Tool::Sampling(1)],
        }
    }

    fn load(self, seconds: u64) -> Load {
        let (streams, datagram_bytes) = match self {
            Self::Tcp(streams) => (streams, None),
            Self::Udp(bytes) => (1, Some(bytes)),
            Self::Sampling => (64, None),
        };
        Load {
            streams,
            datagram_bytes,
            seconds,
        }
    }

    /// Measures by every tool that is there; `own` is this program.
    pub(crate) fn measure(
        self,
        round: u32,
        own: &Path,
        quick: bool,
        has: impl Fn(&str) -> bool,
        to: &mut Recorder,
    ) -> anyhow::Result<()> {
        let site = Site::plain(Place::Veth, 1500, true)?;
        let load = self.load(if quick { 1 } else { 3 });
        let mut tools: Vec<Tool> = self.tools().to_vec();
        tools.retain(|tool| tool.program().is_none_or(&has));
        let turn = usize::try_from(round).unwrap_or(0) % tools.len().max(1);
        tools.rotate_left(turn);
        for tool in tools {
            let before = clock::children_cpu();
            let transfer = tool.transfer(&site, own, load);
            let transfer = transfer.with_context(|| tool.name().to_owned())?;
            let cpu = clock::children_cpu() - before;
            let transfer = Transfer {
                cpu_s: cpu.as_s_f64(),
                ..transfer
            };
            transfer.keep(tool, to);
        }
        Ok(())
    }
}

impl Tool {
    const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Sampling(10) => "each_10_ms",
            Self::Sampling(_) => "each_1_ms",
            Self::Iperf3 => "iperf3",
            Self::Nuttcp => "nuttcp",
        }
    }

    const fn program(self) -> Option<&'static str> {
        match self {
            Self::Ours | Self::Sampling(_) => None,
            Self::Iperf3 => Some("iperf3"),
            Self::Nuttcp => Some("nuttcp"),
        }
    }

    fn transfer(self, site: &Site, own: &Path, load: Load) -> anyhow::Result<Transfer> {
        let (near, far) = (site.near(), site.far());
        match self {
            Self::Ours => ours(&near, &far, own, load, Duration::from_s(load.seconds)),
            Self::Sampling(ms) => ours(&near, &far, own, load, Duration::from_ms(ms)),
            Self::Iperf3 => by_iperf3(&near, &far, load),
            Self::Nuttcp => by_nuttcp(&near, &far, load),
        }
    }
}

impl Transfer {
    fn keep(&self, tool: Tool, to: &mut Recorder) {
        let name = |metric: &str| format!("{}.{metric}", tool.name());
        to.put(name("goodput"), self.bytes * 8.0 / self.seconds, "b/s");
        let giga = self.bytes / 1e9;
        to.put(name("cpu_per_gb"), self.cpu_s / giga, "s/GB");
        if self.sent > 0.0 {
            to.put(name("received"), self.received / self.seconds, "1/s");
            to.put(name("sent"), self.sent / self.seconds, "1/s");
            let packets = self.received.max(1.0);
            to.put(name("cpu_per_packet"), self.cpu_s * 1e9 / packets, "ns");
        }
    }
}

/// Our near end, in a process of its own: `xtask end send ADDRESS STREAMS SECONDS DATAGRAM SAMPLE_MS`,
/// a datagram of 0 bytes being TCP. Prints what a [`Transfer`] is made of.
pub(crate) fn send(args: &[&str]) -> anyhow::Result<()> {
    let &[address, streams, seconds, datagram, sample_ms] = args else {
        bail!("five words expected");
    };
    let datagram: u32 = datagram.parse()?;
    let base = Config::default();
    let config = Config {
        streams: streams.parse()?,
        duration: Duration::from_s(seconds.parse()?),
        ramp: Duration::ZERO,
        sample_interval: Duration::from_ms(sample_ms.parse()?),
        transport: if datagram > 0 {
            Transport::Udp
        } else {
            Transport::Tcp
        },
        block_bytes: if datagram > 0 {
            datagram
        } else {
            base.block_bytes
        },
        congestion: (datagram == 0).then(|| CONGESTION_CONTROL.to_owned()),
        ..base
    };
    let mut client: Client = super::measure::connect(address.parse()?)?;
    let outcome: Outcome = client.run(&config, &Stop::new(), &mut |_| {})?;
    let udp = outcome.datagrams().unwrap_or_default();
    println!(
        "{} {} {} {}",
        outcome.receiver.bytes,
        outcome.receiver.duration.as_s_f64(),
        udp.received,
        udp.sent
    );
    Ok(())
}

fn ours(
    near: &End<'_>,
    far: &End<'_>,
    own: &Path,
    load: Load,
    sample: Duration,
) -> anyhow::Result<Transfer> {
    let own = own.to_str().context("a path that is no text")?;
    let address = SocketAddr::from((far.address(), measure::DEFAULT_PORT)).to_string();
    let mut server = far.program(own)?;
    let server = server.args(["end", "serve", &address]);
    let _server = Ended::of(server.stdin(Stdio::null()).spawn()?);
    let mut client = near.program(own)?;
    client.args(["end", "send", &address]).args([
        load.streams.to_string(),
        load.seconds.to_string(),
        load.datagram_bytes.unwrap_or(0).to_string(),
        (sample.as_ns() / 1_000_000).to_string(),
    ]);
    let client = client.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let text = output_within(client, TIME_LIMIT)?;
    let text = String::from_utf8_lossy(&text);
    let numbers: Vec<f64> = text
        .split_ascii_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    let &[bytes, seconds, received, sent] = numbers.as_slice() else {
        bail!("four numbers expected: {text}");
    };
    Ok(Transfer {
        bytes,
        seconds,
        received,
        sent,
        cpu_s: 0.0,
    })
}

fn by_iperf3(near: &End<'_>, far: &End<'_>, load: Load) -> anyhow::Result<Transfer> {
    let (streams, seconds) = (load.streams.to_string(), load.seconds.to_string());
    let size = load.datagram_bytes.map(|bytes| bytes.to_string());
    let mut args = vec!["-t", &seconds, "-P", &streams];
    match &size {
        Some(size) => args.extend(["-u", "-b", "0", "-l", size]),
        None => args.extend(["-C", CONGESTION_CONTROL]),
    }
    let answer = iperf3::ask(near, far, &args)?;
    let number = |pointer: &str| iperf3::number(&answer, pointer);
    if load.datagram_bytes.is_none() {
        return Ok(Transfer {
            bytes: number("/end/sum_received/bytes")?,
            seconds: number("/end/sum_received/seconds")?,
            ..Transfer::default()
        });
    }
    let (sent, lost) = (
        number("/end/sum/packets")?,
        number("/end/sum/lost_packets")?,
    );
    let received = sent - lost;
    Ok(Transfer {
        bytes: received * f64::from(load.datagram_bytes.unwrap_or(0)),
        seconds: number("/end/sum/seconds")?,
        received,
        sent,
        cpu_s: 0.0,
    })
}

fn by_nuttcp(near: &End<'_>, far: &End<'_>, load: Load) -> anyhow::Result<Transfer> {
    ensure!(
        load.datagram_bytes.is_none(),
        "nuttcp is asked for TCP only"
    );
    let quiet = |program: &mut std::process::Command| {
        program
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .stdout(Stdio::null());
    };
    let mut server = far.program("nuttcp")?;
    quiet(server.args(["-S", "--nofork"]));
    let _server = Ended::of(server.spawn().context("starting nuttcp's server")?);
    let (time, streams) = (format!("-T{}", load.seconds), format!("-N{}", load.streams));
    let address = far.address().to_string();
    for _ in 0..CONNECT_TRIES {
        thread::sleep(CONNECT_PAUSE.to_std());
        let mut client = near.program("nuttcp")?;
        quiet(client.args(["-fparse", &time, &streams, &address]));
        let client = client.stdout(Stdio::piped()).spawn()?;
        let text = output_within(client, TIME_LIMIT)?;
        if let Some(transfer) = nuttcp_says(&String::from_utf8_lossy(&text)) {
            return Ok(transfer);
        }
    }
    bail!("its server does not answer")
}

/// Reads `nuttcp -fparse`: words of key=value.
fn nuttcp_says(text: &str) -> Option<Transfer> {
    let value = |key: &str| -> Option<f64> {
        let mut words = text.split_ascii_whitespace();
        let value = words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))?;
        value.parse().ok()
    };
    Some(Transfer {
        bytes: value("megabytes")? * f64::from(1 << 20),
        seconds: value("real_seconds")?,
        ..Transfer::default()
    })
}

/// The tables of these cells, as far as they were measured.
pub(crate) fn render(record: &Record) -> String {
    let mut text = String::new();
    let mut tcp = Table::new(&[
        "TCP streams",
        "ours Gb/s",
        "iperf3 Gb/s",
        "nuttcp Gb/s",
        "ours / iperf3",
        "ours / nuttcp",
        "ours, CPU s/GB",
        "iperf3, CPU s/GB",
        "nuttcp, CPU s/GB",
    ]);
    let mut udp = Table::new(&[
        "datagram, B",
        "ours received/s",
        "iperf3 received/s",
        "ours / iperf3",
        "ours lost",
        "iperf3 lost",
        "ours, CPU ns each",
        "iperf3, CPU ns each",
    ]);
    let (mut any_tcp, mut any_udp) = (false, false);
    for cell in Cell::ALL {
        let name = cell.name();
        if !record.has(&name) {
            continue;
        }
        let median = |metric: &str| record.median(&name, metric);
        let ratio = |over: &str, under: &str| interval(record, &name, over, under);
        match cell {
            Cell::Tcp(streams) => {
                any_tcp = true;
                tcp.row(vec![
                    streams.to_string(),
                    number(median("ours.goodput"), 1e9, 2),
                    number(median("iperf3.goodput"), 1e9, 2),
                    number(median("nuttcp.goodput"), 1e9, 2),
                    ratio("ours.goodput", "iperf3.goodput"),
                    ratio("ours.goodput", "nuttcp.goodput"),
                    number(median("ours.cpu_per_gb"), 1.0, 3),
                    number(median("iperf3.cpu_per_gb"), 1.0, 3),
                    number(median("nuttcp.cpu_per_gb"), 1.0, 3),
                ]);
            }
            Cell::Udp(bytes) => {
                any_udp = true;
                let lost = |who: &str| {
                    let came = (&*name, &*format!("{who}.received"));
                    let ratio = record.median_ratio(came, (&name, &format!("{who}.sent")));
                    number(ratio.map(|r| (1.0 - r) * 100.0), 1.0, 1) + " %"
                };
                udp.row(vec![
                    bytes.to_string(),
                    number(median("ours.received"), 1e3, 0) + " k",
                    number(median("iperf3.received"), 1e3, 0) + " k",
                    ratio("ours.received", "iperf3.received"),
                    lost("ours"),
                    lost("iperf3"),
                    number(median("ours.cpu_per_packet"), 1.0, 0),
                    number(median("iperf3.cpu_per_packet"), 1.0, 0),
                ]);
            }
            Cell::Sampling => {}
        }
    }
    if any_tcp {
        text += &format!("\n### TCP over veth\n\n{TCP_LEGEND}\n\n{}", tcp.finish());
    }
    if any_udp {
        text += &format!("\n### UDP over veth\n\n{UDP_LEGEND}\n\n{}", udp.finish());
    }
    let name = Cell::Sampling.name();
    if record.has(&name) {
        let of = |who: &str| {
            let (goodput, cpu) = (format!("{who}.goodput"), format!("{who}.cpu_per_gb"));
            let left = interval(record, &name, &goodput, "ours.goodput");
            let cpu = interval(record, &name, &cpu, "ours.cpu_per_gb");
            format!("leaves {left} of the goodput at {cpu} of the CPU a byte")
        };
        text += &format!(
            "\nReading tcp_info of 64 streams at both ends every 10 ms {}; every millisecond, ten times the \
             readings, so that what they cost stands out of the noise, {} ({} Gb/s without).\n",
            of("each_10_ms"),
            of("each_1_ms"),
            number(record.median(&name, "ours.goodput"), 1e9, 2),
        );
    }
    text
}

/// Median of the rounds' ratios, and half of the mean's 95 % confidence interval.
pub(super) fn interval(record: &Record, cell: &str, over: &str, under: &str) -> String {
    let ratios = record.ratios((cell, over), (cell, under));
    match Estimate::of(&ratios) {
        None => "–".to_owned(),
        Some(one) if one.count < 2 => format!("{:.3}", one.median),
        Some(known) => format!("{:.3} ± {:.3}", known.median, known.error * known.median),
    }
}

const TCP_LEGEND: &str = "Payload received a second, and CPU of both ends' processes a GB (10^9 bytes) \
    of it, over one veth pair with MTU 1500, CUBIC, 3 s. Ratios are medians of the rounds' ratios, \
    with half of the 95 % confidence interval of their mean.";
const UDP_LEGEND: &str = "Datagrams received a second of those sent as fast as the tool goes, for 3 s, \
    and CPU of both ends for each that was received. Ours hands up to 64 at once to the kernel, which \
    cuts them (UDP GSO), and takes them joined (GRO); this iperf3 makes a system call for each.";
/// Several times the longest transfer here.
const TIME_LIMIT: std::time::Duration = std::time::Duration::from_secs(30);
const CONNECT_TRIES: u32 = 30;
const CONNECT_PAUSE: Duration = Duration::from_ms(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nuttcp_is_read_by_its_keys() {
        let text =
            "megabytes=2.0000 real_seconds=0.50 rate_Mbps=33.5 tx_cpu=9 rx_cpu=8 retrans=0\n";
        let read = nuttcp_says(text).unwrap();
        assert_eq!((read.bytes, read.seconds), (2_097_152.0, 0.5));
        assert_eq!(nuttcp_says("connect: Connection refused\n"), None);
    }

    #[test]
    fn a_transfer_is_kept_as_rates() {
        let mut to = Recorder::new(1, "x".to_owned(), 0.0);
        let transfer = Transfer {
            bytes: 2e9,
            seconds: 2.0,
            received: 10.0,
            sent: 20.0,
            cpu_s: 1.0,
        };
        transfer.keep(Tool::Ours, &mut to);
        let (rows, _) = to.into_parts();
        let of = |metric: &str| rows.iter().find(|r| r.metric == metric).unwrap().value;
        assert_eq!(of("ours.goodput"), 8e9);
        assert_eq!(of("ours.cpu_per_gb"), 0.5);
        assert_eq!((of("ours.received"), of("ours.sent")), (5.0, 10.0));
        assert_eq!(of("ours.cpu_per_packet"), 1e8);
    }
}
