//! `cargo xtask captures DIR...`: what `explain` counts in any captures, beside what tshark does.
//!
//! Both read every file; each TCP connection, by addresses and ports, is compared in what both can count:
//! packets and payload of each direction, retransmissions with payload, packets with a closed window, the round trip of
//! the handshake. Retransmissions agree, too, where the difference is second copies of packets, which `explain` tells by their IP
//! identification and tshark does not, or packets that tshark calls out of order. Shown are the shares that agree,
//! and each connection that does not in a line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context as _, ensure};
use capture::file::{self, End};
use explain::trace::{Captured, Connection, Limits, Tracker};
use units::Instant;
use wire::segment::{Decoded, FlowKey};
use wire::tcp::Flags;

/// What is counted of a connection; of the direction from its lower endpoint first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counted {
    packets: [u64; 2],
    payload_bytes: [u64; 2],
    zero_windows: [u64; 2],
    retransmissions: u64,
    /// What may be counted as a retransmission by the other one: our second copies of packets, which a mirror port made,
    /// and what tshark calls out of order though it was sent once more.
    doubtful: u64,
    /// Microseconds; `None` where no handshake was seen.
    handshake_us: Option<u64>,
}

/// Connections by their endpoints, the lower first.
type Connections = BTreeMap<(String, String), Counted>;

/// A capture as one of the two reads it.
#[derive(Clone, Debug, Default)]
struct Seen {
    frames: u64,
    connections: Connections,
}

/// What both say of one file.
#[derive(Clone, Debug, Default)]
struct Compared {
    /// Both read it to the same frame.
    files: u64,
    files_agree: u64,
    connections: u64,
    agree: BTreeMap<&'static str, u64>,
    lines: Vec<String>,
}

/// Compares all captures below these folders.
pub(crate) fn captures(folders: &[&str]) -> anyhow::Result<ExitCode> {
    let mut files = Vec::new();
    for folder in folders {
        walk(Path::new(folder), &mut files)?;
    }
    ensure!(!files.is_empty(), "no files below {}", folders.join(" "));
    files.sort();
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Compared::default()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let one = compare(file);
                    all.lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .add(one);
                }
            });
        }
    });
    let mut all = all
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    all.lines.sort();
    for line in &all.lines {
        println!("{line}");
    }
    println!("{}", all.summary(files.len()));
    Ok(ExitCode::SUCCESS)
}

fn walk(at: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if at.is_file() {
        files.push(at.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(at).with_context(|| format!("reading {}", at.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_symlink() {
            continue;
        }
        walk(&entry.path(), files)?;
    }
    Ok(())
}

fn compare(path: &Path) -> Compared {
    let name = path.display();
    let mut compared = Compared::default();
    let (ours, theirs) = (ours(path), theirs(path));
    let (ours, theirs) = match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => (ours, theirs),
        (Err(_), Err(_)) => return compared,
        (Err(error), Ok(theirs)) => {
            compared.files = 1;
            let frames = theirs.frames;
            compared.lines.push(format!(
                "{name}: not read: {error:#}; tshark has {frames} frames"
            ));
            return compared;
        }
        (Ok(ours), Err(error)) => {
            let frames = ours.frames;
            compared.lines.push(format!(
                "{name}: tshark does not read it: {error:#}; we have {frames} frames"
            ));
            return compared;
        }
    };
    compared.files = 1;
    compared.files_agree = u64::from(ours.frames == theirs.frames);
    if ours.frames != theirs.frames {
        compared.lines.push(format!(
            "{name}: frames {} tshark {}",
            ours.frames, theirs.frames
        ));
    }
    let keys = ours.connections.keys().chain(theirs.connections.keys());
    let mut keys: Vec<_> = keys.collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let none = Counted::default();
        let a = ours.connections.get(key).unwrap_or(&none);
        let b = theirs.connections.get(key).unwrap_or(&none);
        compared.hold(&name, key, a, b);
    }
    compared
}

/// No more retransmissions than the other one counts or may have counted.
const fn is_within(one: &Counted, other: &Counted) -> bool {
    one.retransmissions <= other.retransmissions + other.doubtful
}

impl Compared {
    /// Compares what both say of one connection.
    fn hold(
        &mut self,
        name: &dyn std::fmt::Display,
        key: &(String, String),
        a: &Counted,
        b: &Counted,
    ) {
        self.connections += 1;
        // We have none where a SYN came twice: nobody knows which was answered.
        let near = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => a.abs_diff(b) <= 1,
            _ => true,
        };
        let fields = [
            ("packets", a.packets == b.packets),
            ("payload", a.payload_bytes == b.payload_bytes),
            ("zero windows", a.zero_windows == b.zero_windows),
            ("retransmissions", is_within(a, b) && is_within(b, a)),
            // The first SYN or its copy.
            (
                "handshake",
                a.doubtful > 0 || near(a.handshake_us, b.handshake_us),
            ),
        ];
        let equal = a.retransmissions == b.retransmissions;
        let exactly = self.agree.entry(EXACTLY).or_default();
        *exactly += u64::from(equal);
        for (field, agrees) in fields {
            *self.agree.entry(field).or_default() += u64::from(agrees);
        }
        let all = fields.iter().all(|(_, agrees)| *agrees);
        *self.agree.entry("all of these").or_default() += u64::from(all);
        if !all {
            let differ = fields.iter().filter(|f| !f.1).map(|f| f.0);
            let differ = differ.collect::<Vec<_>>().join(", ");
            self.lines.push(format!(
                "{name}: {} {}: {differ}: {a:?} tshark {b:?}",
                key.0, key.1
            ));
        }
    }

    fn add(&mut self, other: Self) {
        self.files += other.files;
        self.files_agree += other.files_agree;
        self.connections += other.connections;
        for (field, count) in other.agree {
            *self.agree.entry(field).or_default() += count;
        }
        self.lines.extend(other.lines);
    }

    fn summary(&self, files: usize) -> String {
        let mut text = format!(
            "{} of {files} files read by both or by tshark; {} to the same frame\n{} connections; agree in",
            self.files, self.files_agree, self.connections
        );
        for (field, count) in &self.agree {
            let share = *count as f64 / self.connections.max(1) as f64 * 100.0;
            let _ = write!(text, "\n  {field}: {count} ({share:.2} %)");
        }
        text
    }
}

/// What `explain` reads.
fn ours(path: &Path) -> anyhow::Result<Seen> {
    let mut capture = file::open(path)?;
    let mut seen = Seen::default();
    let mut all: Vec<Connection> = Vec::new();
    let mut tracker = Tracker::new(Limits::default(), |connection| all.push(connection));
    capture.for_each_segment(|packet, decoded, segment| {
        if decoded == Decoded::Tcp {
            let side = usize::from(segment.from & 1);
            let counted = seen.connections.entry(key(&segment.flow)).or_default();
            counted.packets[side] += 1;
            counted.payload_bytes[side] += u64::from(segment.payload_bytes);
            let ends = Flags::SYN.with(Flags::FIN).with(Flags::RST).bits();
            let closed = segment.window == 0 && segment.flags.bits() & ends == 0;
            counted.zero_windows[side] += u64::from(closed);
            tracker.take_all(&[Captured {
                time: Instant::from_ns(packet.time_ns),
                frame: packet.frame,
                interface: packet.interface,
                segment: *segment,
            }]);
        }
        ControlFlow::Continue(())
    });
    tracker.finish();
    drop(tracker);
    if let (0, Some(End::Stopped(stopped))) = (capture.frames(), capture.end()) {
        anyhow::bail!("{stopped}");
    }
    seen.frames = capture.frames();
    for connection in all {
        let counted = seen.connections.entry(key(&connection.flow)).or_default();
        for side in &connection.sides {
            counted.retransmissions += side.retransmissions.segments();
            counted.doubtful += side.duplicates;
        }
        let both = connection
            .handshake_to_server
            .zip(connection.handshake_to_client);
        let us = both.map(|(there, back)| (there + back).as_ns() / 1_000);
        counted.handshake_us = counted.handshake_us.or(us);
    }
    Ok(seen)
}

fn key(flow: &FlowKey) -> (String, String) {
    let end = |side: usize| {
        let address = std::net::Ipv6Addr::from(flow.addresses[side]);
        let address = address
            .to_ipv4_mapped()
            .map_or_else(|| address.to_string(), |v4| v4.to_string());
        format!("{address} {}", flow.ports[side])
    };
    (end(0), end(1))
}

/// What tshark reads.
fn theirs(path: &Path) -> anyhow::Result<Seen> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(path).args([
        "-T",
        "fields",
        "-E",
        "occurrence=l",
        "-E",
        "separator=/t",
    ]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let output = command
        .stderr(Stdio::piped())
        .output()
        .context("running tshark")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut seen = Seen::default();
    for line in text.lines() {
        seen.frames += 1;
        let fields: Vec<&str> = line.split('\t').collect();
        let field = |n: usize| fields.get(n).copied().unwrap_or("");
        // A header quoted by an ICMP error is no packet of the connection.
        let quoted = !field(10).is_empty() || !field(11).is_empty();
        let Ok(source_port) = field(4).parse::<u16>() else {
            continue;
        };
        let Ok(destination_port) = field(5).parse::<u16>() else {
            continue;
        };
        if quoted {
            continue;
        }
        let v6 = field(13) == "6";
        let pair = if v6 {
            (field(2), field(3))
        } else {
            (field(0), field(1))
        };
        let (Some(source), Some(destination)) = (address(pair.0), address(pair.1)) else {
            continue;
        };
        let (flow, from) = FlowKey::of((source, source_port), (destination, destination_port));
        let side = usize::from(from);
        let counted = seen.connections.entry(key(&flow)).or_default();
        counted.packets[side] += 1;
        counted.payload_bytes[side] += field(6).parse::<u64>().unwrap_or(0);
        counted.zero_windows[side] += u64::from(!field(8).is_empty());
        let again = !field(7).is_empty() && field(6) != "0";
        counted.retransmissions += u64::from(again);
        counted.doubtful += u64::from(!field(14).is_empty());
        if counted.handshake_us.is_none() {
            let seconds = format!("{}s", field(9));
            let time = seconds.parse::<units::Duration>().ok();
            counted.handshake_us = time.map(|d| d.as_ns() / 1_000);
        }
    }
    ensure!(
        seen.frames > 0,
        "{}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(seen)
}

/// An address in 16 octets, IPv4 mapped.
fn address(text: &str) -> Option<[u8; 16]> {
    Some(match text.parse().ok()? {
        std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        std::net::IpAddr::V6(v6) => v6.octets(),
    })
}

const EXACTLY: &str = "retransmissions, to the packet";
const FIELDS: [&str; 15] = [
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.len",
    "tcp.analysis.retransmission",
    "tcp.analysis.zero_window",
    "tcp.analysis.initial_rtt",
    "icmp.type",
    "icmpv6.type",
    "frame.number",
    "ip.version",
    "tcp.analysis.out_of_order",
];
