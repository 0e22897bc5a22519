//! A packet log as a page and as a line: how full its queues were, what was dropped, and who talked.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use fault::Failure;
use lab::log::{Legend, LinkSummary, QueueSummary, SERIES_MAX, Summary};
use link::record::{Block, Code, FrameRecord, Reader};
use report::html::queue::{
    self, ArrivalPicture, DropPicture, FlowPicture, LinkPicture, LogPicture, QueuePicture,
};
use sys::map;
use wire::{ethernet, protocol};

/// A log, drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// A complete HTML document.
    pub page: String,
    /// What it says, in short.
    pub summary: String,
}

/// Draws the packet log in `file`, which a lab wrote.
///
/// # Errors
/// The file cannot be read, is no log, or is too large for one picture.
///
/// # Examples
///
/// ```no_run
/// let drawn = analyse::draw_log("q.gplog".as_ref())?;
/// std::fs::write("q.html", drawn.page)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn draw_log(file: &Path) -> Result<Drawn, Failure> {
    let name = file.display();
    let bytes = read(file)?;
    let reader = Reader::new(&bytes).map_err(|e| {
        Failure::usage(format!(
            "{name}: {e}; name a run's folder or a log that goodput lab wrote with --log"
        ))
    })?;
    let contents = Contents::read(reader.clone())
        .map_err(|why| Failure::usage(format!("{name} {why}; look at it {BY_CSV}")))?;
    let picture = LogPicture {
        file: file
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        ..picture(&contents, Summary::read(reader))
    };
    let page = queue::render(&picture, &|flow| {
        contents.first_frames.get(&flow).and_then(talkers)
    });
    let summary = queue::summary(&picture);
    Ok(Drawn { page, summary })
}

/// The file in place, which has a limit: a part for each frame is held in memory.
fn read(file: &Path) -> Result<map::File, Failure> {
    let name = file.display();
    let bytes =
        map::File::open(file).map_err(|e| Failure::usage(format!("cannot read {name}: {e}")))?;
    if bytes.len() as u64 > LOG_BYTES_MAX {
        return Err(Failure::usage(format!(
            "{name} is larger than 2 GiB, too much for one picture; log a shorter time, or look at \
             it {BY_CSV}"
        )));
    }
    Ok(bytes)
}

/// What the summary of a log does not say.
struct Contents<'a> {
    legend: Legend,
    frames: u64,
    /// The first frame of each flow.
    first_frames: HashMap<u32, FrameRecord<'a>>,
}

impl<'a> Contents<'a> {
    /// Reads the log once.
    ///
    /// # Errors
    /// The log is not one of a lab: it names so many queues that the page would be of some hundred
    /// megabytes, or as many segments as no log of this size has.
    fn read(reader: Reader<'a>) -> Result<Self, &'static str> {
        let mut contents = Self {
            legend: Legend::default(),
            frames: 0,
            first_frames: HashMap::new(),
        };
        let mut series = BTreeSet::<(u16, u8, Code)>::new();
        let mut segments = 0_u64;
        for block in reader.flatten() {
            match block {
                Block::Legend(json) => {
                    contents.legend = Legend::read(json).unwrap_or(contents.legend);
                }
                Block::Frame(frame) => {
                    contents.frames += 1;
                    contents.first_frames.entry(frame.flow).or_insert(frame);
                }
                Block::Decisions(rows) => {
                    for row in rows {
                        segments += u64::from(row.count);
                        if row.decision.is_drop() {
                            series.insert((row.link, 0, row.decision));
                        }
                        if row.decision.is_by_queue() {
                            series.insert((row.link, row.stage, Code::QUEUED));
                        }
                        if series.len() > SERIES_MAX || segments > SEGMENTS_MAX {
                            return Err("names more queues or segments than a lab has");
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(contents)
    }

    /// A link's name and where it leads.
    fn link_name(&self, number: usize) -> String {
        match self.legend.links.get(number) {
            Some(link) => format!("{}: {} → {}", link.name, link.from, link.to),
            None => "other".to_owned(),
        }
    }
}

fn picture(contents: &Contents<'_>, summary: Summary) -> LogPicture {
    let (bin_ns, read) = (summary.bin.as_ns(), summary.read);
    let start_ns = summary.start.as_ns();
    let links = summary.links.into_iter().enumerate();
    LogPicture {
        title: contents.legend.title.clone(),
        file: String::new(),
        span_ns: bin_ns.saturating_mul(summary.bins as u64),
        bin_ns,
        frames: contents.frames,
        decisions: read.written,
        lost_rows: read.lost_rows,
        lost_frames: read.lost_frames,
        interrupted: read.interrupted,
        truncated_at: read.truncated_at,
        malformed_blocks: read.malformed_blocks,
        links: links
            .map(|(number, link)| link_picture(contents, number, link, start_ns))
            .collect(),
    }
}

fn link_picture(
    contents: &Contents<'_>,
    number: usize,
    link: LinkSummary,
    start_ns: u64,
) -> LinkPicture {
    let drops = link.drops.into_iter().map(|drops| DropPicture {
        cause: contents.legend.decision(drops.cause).into_owned(),
        total: drops.total,
        per_bin: drops.per_bin,
    });
    let queues = link.queues.into_iter();
    LinkPicture {
        name: contents.link_name(number),
        drops: drops.collect(),
        queues: queues.map(|queue| queue_picture(queue, start_ns)).collect(),
    }
}

fn queue_picture(queue: QueueSummary, start_ns: u64) -> QueuePicture {
    let depths = queue.depths.into_iter();
    let flows = queue.flows.into_iter().map(|flow| FlowPicture {
        flow: flow.flow,
        arrived: flow.arrived,
        dropped: flow.dropped,
        turns: flow.turns,
    });
    let arrivals = queue.arrivals.into_iter().map(|arrival| ArrivalPicture {
        at_ns: arrival.time.as_ns().saturating_sub(start_ns),
        flow: arrival.flow,
        segments: arrival.segments,
        dropped: arrival.dropped,
    });
    QueuePicture {
        stage: queue.stage,
        depths: depths
            .map(|depth| depth.map(|d| (d.min_bytes, d.max_bytes)))
            .collect(),
        flows: flows.collect(),
        arrivals: arrivals.collect(),
        segments_left_out: queue.segments_left_out,
    }
}

/// Who talks to whom: protocol, addresses and ports of a frame's headers, as far as they were
/// captured; `None` without IP. Only headers are logged, so lengths are not held against them.
fn talkers(frame: &FrameRecord<'_>) -> Option<String> {
    let network = ethernet::network(frame.captured)?;
    let ip = frame.captured.get(network.offset..)?;
    let (from, to, number, transport) = match network.ethertype {
        ethernet::TYPE_IPV4 => ipv4_talkers(ip)?,
        ethernet::TYPE_IPV6 => ipv6_talkers(ip)?,
        _ => return None,
    };
    let name = match number {
        protocol::TCP => "tcp",
        protocol::UDP => "udp",
        protocol::ICMP => return Some(format!("icmp {from} → {to}")),
        protocol::ICMPV6 => return Some(format!("icmpv6 {from} → {to}")),
        other => return Some(format!("protocol {other} {from} → {to}")),
    };
    let Some([a, b, c, d]) = transport.first_chunk::<4>().copied() else {
        return Some(format!("{name} {from} → {to}"));
    };
    let from = SocketAddr::new(from, u16::from_be_bytes([a, b]));
    let to = SocketAddr::new(to, u16::from_be_bytes([c, d]));
    Some(format!("{name} {from} → {to}"))
}

/// Source, destination, protocol (RFC 791 section 3.1) and what follows the header.
fn ipv4_talkers(ip: &[u8]) -> Option<(IpAddr, IpAddr, u8, &[u8])> {
    let fixed = ip.first_chunk::<20>()?;
    let address = |at: usize| Some(IpAddr::from(*fixed.get(at..)?.first_chunk::<4>()?));
    let is_later_fragment = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x1fff != 0;
    let transport = ip.get(usize::from(fixed[0] & 0x0f) * 4..);
    let transport = transport.filter(|_| !is_later_fragment);
    Some((
        address(12)?,
        address(16)?,
        fixed[9],
        transport.unwrap_or_default(),
    ))
}

/// Source, destination, protocol (RFC 8200 section 3) and what follows the header. One header of
/// hop-by-hop options is looked through, which multicast listener reports have (RFC 3810
/// section 5).
fn ipv6_talkers(ip: &[u8]) -> Option<(IpAddr, IpAddr, u8, &[u8])> {
    let (fixed, rest) = ip.split_first_chunk::<40>()?;
    let address = |at: usize| Some(IpAddr::from(*fixed.get(at..)?.first_chunk::<16>()?));
    let (from, to) = (address(8)?, address(24)?);
    match (fixed[6], rest) {
        (HOP_BY_HOP, &[number, words, ..]) => {
            let transport = rest.get((usize::from(words) + 1) * 8..);
            Some((from, to, number, transport.unwrap_or_default()))
        }
        (number, transport) => Some((from, to, number, transport)),
    }
}

/// Largest log that is drawn.
const LOG_BYTES_MAX: u64 = 2 << 30;
/// Segments in a log: more than 2 GiB of super-frames of 45 segments are.
const SEGMENTS_MAX: u64 = 1 << 32;
/// Next header of hop-by-hop options (RFC 8200 section 4.3).
const HOP_BY_HOP: u8 = 0;
const BY_CSV: &str = "link by link: goodput lab log FILE --link NAME --csv OUT.csv";
