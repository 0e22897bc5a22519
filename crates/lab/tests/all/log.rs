//! The packet log from the logger to what other programs read.

use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::hostile::{HOSTILE, assert_clean_lines};
use lab::log::{
    Converted, Depth, Fate, Filter, Legend, LinkLegend, Logger, NODE_STAGE, SERIES_MAX, Segments,
    Summary, convert,
};
use link::record::{Block, Code, End, FrameRecord, MAGIC, NO_LINK, ROW_BYTES, Reader, Row};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use proptest::prelude::*;
use units::Instant;
use wire::{ethernet, ipv4, ipv6, protocol, tcp, udp};

/// A file's place, free again when it is dropped.
struct TempPath(PathBuf);

impl TempPath {
    fn new(name: &str) -> Self {
        let name = format!("goodput-log-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        Self(path)
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn legend() -> Legend {
    Legend {
        ports: vec!["near".to_owned(), "far".to_owned()],
        links: vec![LinkLegend {
            name: "wan".to_owned(),
            from: "near".to_owned(),
            to: "far".to_owned(),
            stages: vec!["loss".to_owned(), "queue, long".to_owned()],
        }],
        ..Legend::new("a test", 1_700_000_000_000_000_000)
    }
}

fn link_header(ethertype: u16) -> [u8; 14] {
    let mut header = [0; 14];
    let repr = ethernet::Repr {
        destination: [2, 0, 0, 0, 0, 2],
        source: [2, 0, 0, 0, 0, 1],
        ethertype,
    };
    repr.emit(&[], &mut header).unwrap();
    header
}

/// Headers of TCP over IPv4 with `payload_len` bytes of payload: 14, 20 and 32 bytes.
fn tcp4_head(payload_len: u16) -> Vec<u8> {
    let mut head = link_header(ethernet::TYPE_IPV4).to_vec();
    head.resize(66, 0);
    let ip = ipv4::Repr {
        source: [10, 0, 0, 1],
        destination: [10, 0, 0, 2],
        protocol: protocol::TCP,
        payload_len: 32 + payload_len,
        dscp: 0,
        ecn: 0,
        identification: 0xffff,
        dont_fragment: true,
        ttl: 64,
    };
    ip.emit(&mut head[14..]).unwrap();
    let tcp = tcp::Repr {
        source_port: 40_000,
        destination_port: 5_201,
        sequence: u32::MAX - 99,
        flags: tcp::Flags::ACK,
        timestamps: Some((1, 2)),
        ..tcp::Repr::default()
    };
    assert_eq!(tcp.emit(&mut head[34..]).unwrap(), 32);
    head
}

/// Headers of UDP over IPv6: 14, 40 and 8 bytes.
fn udp6_head(payload_len: u16) -> Vec<u8> {
    let mut head = link_header(ethernet::TYPE_IPV6).to_vec();
    head.resize(62, 0);
    let mut address = [0; 16];
    (address[0], address[15]) = (0xfd, 1);
    let ip = ipv6::Repr {
        source: address,
        destination: address,
        next_header: protocol::UDP,
        payload_len: 8 + payload_len,
        dscp: 0,
        ecn: 0,
        flow_label: 0,
        hop_limit: 64,
    };
    ip.emit(&mut head[14..]).unwrap();
    let udp = udp::Repr {
        source_port: 1_000,
        destination_port: 443,
        payload_len,
    };
    udp.emit(&mut head[54..]).unwrap();
    head
}

/// Frame 1: TCP, three segments of 1000, 1000 and 500 bytes, in at 1 ms.
fn tcp_frame(head: &[u8]) -> FrameRecord<'_> {
    FrameRecord {
        time: Instant::from_ns(1_000_000),
        number: 1,
        port: 0,
        segments: 3,
        frame_bytes: 66 + 2_500,
        segment_payload_bytes: 1_000,
        header_bytes: 66,
        flow: 11,
        captured: head,
    }
}

/// Frame 2: UDP, two segments of 1200 and 1 bytes, in at 2 ms at the other port.
fn udp_frame(head: &[u8]) -> FrameRecord<'_> {
    FrameRecord {
        time: Instant::from_ns(2_000_000),
        number: 2,
        port: 1,
        segments: 2,
        frame_bytes: 62 + 1_201,
        segment_payload_bytes: 1_200,
        header_bytes: 62,
        flow: 22,
        captured: head,
    }
}

/// Of frame 1, one segment is queued and two find the queue full.
fn rows() -> [Row; 4] {
    let queued = Row {
        time: Instant::from_ns(1_000_000),
        departs: Instant::from_ns(1_500_000),
        departs_step_fs: 1_230_400_000,
        frame: 1,
        queue_bytes: 1_090,
        queue_packets: 1,
        wire_bytes: 1_090,
        count: 1,
        link: 0,
        stage: 1,
        decision: Code::QUEUED,
        flow: 11,
        ..Row::default()
    };
    let full = Row {
        time_step_fs: 1_500_000,
        departs: Instant::MAX,
        departs_step_fs: 0,
        queue_bytes: 123_456,
        first: 1,
        count: 2,
        decision: Code::QUEUE_FULL,
        ..queued
    };
    let no_route = Row {
        time: Instant::from_ns(2_000_000),
        departs: Instant::MAX,
        frame: 2,
        queue_bytes: 0,
        queue_packets: 0,
        wire_bytes: 64,
        first: 1,
        link: NO_LINK,
        stage: 0,
        decision: Code::NO_ROUTE,
        flow: 22,
        ..queued
    };
    let unheard_of = Row {
        frame: 9,
        link: 7,
        stage: 3,
        decision: Code(99),
        ..no_route
    };
    [queued, full, no_route, unheard_of]
}

/// The log of both frames and all rows.
fn log() -> Vec<u8> {
    log_named(&legend())
}

/// The same with other names.
fn log_named(legend: &Legend) -> Vec<u8> {
    static FILES: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = FILES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = TempPath::new(&format!("log-{number}"));
    let (mut logger, writer) = Logger::create(&path.0, legend).unwrap();
    let [queued, full, no_route, unheard_of] = rows();
    logger.frame(&tcp_frame(&tcp4_head(2_500)));
    logger.row(&queued);
    logger.row(&full);
    logger.frame(&udp_frame(&udp6_head(1_201)));
    logger.row(&no_route);
    logger.row(&unheard_of);
    drop(logger);
    writer.finish().unwrap();
    std::fs::read(&path.0).unwrap()
}

fn csv_of(log: &[u8], filter: &Filter) -> (String, Converted) {
    let mut out = Vec::new();
    let converted = convert::csv(Reader::new(log).unwrap(), &mut out, filter).unwrap();
    (String::from_utf8(out).unwrap(), converted)
}

const WHOLE_CSV: &str = "\
time_ns,frame,segment,port,link,stage,decision,departs_ns,wait_ns,queue_bytes,queue_packets,\
wire_bytes,flow,detail,src,dst,protocol,src_port,dst_port,tcp_seq
1000000,1,0,near,wan,\"queue, long\",queued,1500000,500000,1090,1,1090,11,0,\
10.0.0.1,10.0.0.2,tcp,40000,5201,4294967196
1000000,1,1,near,wan,\"queue, long\",queue_full,,,123456,1,1090,11,0,\
10.0.0.1,10.0.0.2,tcp,40000,5201,900
1000001,1,2,near,wan,\"queue, long\",queue_full,,,123456,1,1090,11,0,\
10.0.0.1,10.0.0.2,tcp,40000,5201,1900
2000000,2,1,far,,,no_route,,,0,0,64,22,0,fd00::1,fd00::1,udp,1000,443,
2000000,9,1,,7,3,99,,,0,0,64,22,0,,,,,,
";

#[test]
fn a_log_is_private_and_counts_what_is_in_it() {
    let path = TempPath::new("counts");
    let (mut logger, writer) = Logger::create(&path.0, &legend()).unwrap();
    let head = tcp4_head(2_500);
    // Enough for several chunks, in blocks of many rows and of one.
    for i in 0..40_000 {
        if i % 1_000 < 100 {
            logger.frame(&FrameRecord {
                number: i,
                ..tcp_frame(&head)
            });
        }
        logger.row(&Row {
            frame: i,
            ..rows()[0]
        });
        if i == 20_000 {
            logger.flush();
        }
    }
    assert_eq!(logger.lost(), (0, 0));
    drop(logger);
    let end = writer.finish().unwrap();
    let expected = End {
        rows: 40_000,
        frames: 4_000,
        ..End::default()
    };
    assert_eq!(end, expected);
    let mode = std::fs::metadata(&path.0).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let bytes = std::fs::read(&path.0).unwrap();
    let (mut rows, mut frames, mut ends) = (Vec::new(), 0, Vec::new());
    for block in Reader::new(&bytes).unwrap() {
        match block.unwrap() {
            Block::Decisions(some) => rows.extend(some.map(|row| row.frame)),
            Block::Frame(frame) => {
                assert_eq!(frame.captured, head);
                frames += 1;
            }
            Block::End(end) => ends.push(end),
            _ => {}
        }
    }
    assert!(rows.iter().copied().eq(0..40_000));
    assert_eq!((frames, ends), (4_000, vec![expected]));
}

#[test]
fn a_file_that_exists_is_not_written_over() {
    let path = TempPath::new("exists");
    std::fs::write(&path.0, "mine").unwrap();
    let error = Logger::create(&path.0, &legend()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&path.0).unwrap(), b"mine");
}

#[test]
fn the_csv_has_a_line_for_each_segment() {
    let (csv, converted) = csv_of(&log(), &Filter::default());
    assert_eq!(csv, WHOLE_CSV);
    let expected = Converted {
        written: 5,
        ..Converted::default()
    };
    assert_eq!(converted, expected);
}

#[test]
fn a_filter_takes_what_it_names() {
    let log = log();
    let segments = |filter: &Filter| {
        let (csv, _) = csv_of(&log, filter);
        let key = |line: &str| {
            line.split(',')
                .skip(1)
                .take(2)
                .collect::<Vec<_>>()
                .join(".")
        };
        csv.lines().skip(1).map(key).collect::<Vec<_>>()
    };
    let all = Filter::default;
    let at = |ns| Some(Instant::from_ns(ns));
    let cases = [
        (
            Filter {
                from: at(1_000_001),
                until: at(2_000_000),
                ..all()
            },
            &["1.2"][..],
        ),
        (
            Filter {
                from: at(2_000_000),
                ..all()
            },
            &["2.1", "9.1"],
        ),
        (
            Filter {
                link: Some(7),
                ..all()
            },
            &["9.1"],
        ),
        (
            Filter {
                flow: Some(22),
                ..all()
            },
            &["2.1", "9.1"],
        ),
        (
            Filter {
                frame: Some(2),
                ..all()
            },
            &["2.1"],
        ),
        (
            Filter {
                decisions: vec![Code::QUEUED, Code(99)],
                ..all()
            },
            &["1.0", "9.1"],
        ),
        (
            Filter {
                drops_only: true,
                ..all()
            },
            &["1.1", "1.2", "2.1"],
        ),
    ];
    for (filter, expected) in cases {
        assert_eq!(segments(&filter), expected, "{filter:?}");
    }
}

#[test]
fn names_of_a_log_are_neither_controls_nor_formulas_in_csv() {
    let name = || HOSTILE.to_owned();
    let hostile = Legend {
        ports: vec![name(), "-7".to_owned()],
        links: vec![LinkLegend {
            name: name(),
            from: name(),
            to: name(),
            stages: vec![name(), "@SUM(A1), \"x\"".to_owned()],
        }],
        decisions: (0..=u8::MAX).map(|code| (code, name())).collect(),
        seed_notes: vec![name()],
        ..Legend::new(HOSTILE, 1)
    };
    let log = log_named(&hostile);
    let (csv, _) = csv_of(&log, &Filter::default());
    assert_clean_lines(&csv, "CSV");
    assert_eq!(csv.lines().count(), WHOLE_CSV.lines().count());
    let cells = csv.split([',', '\n', '"']);
    let is_formula =
        |cell: &&str| cell.starts_with(['=', '+', '-', '@']) && cell.parse::<f64>().is_err();
    assert_eq!(cells.filter(is_formula).collect::<Vec<_>>(), [""; 0]);
    assert!(
        csv.contains(",-7,") && csv.contains("\"'@SUM(A1), \"\"x\"\"\""),
        "{csv}"
    );
    let legend = Reader::new(&log)
        .unwrap()
        .flatten()
        .find_map(|block| match block {
            Block::Legend(json) => Legend::read(json),
            _ => None,
        });
    let legend = format!("{:?}", legend.unwrap()).replace("\\u{fffd}", "");
    assert!(
        !legend.contains("\\u{") && !legend.contains("\\n"),
        "{legend}"
    );
}

#[test]
fn parquet_says_the_same_as_the_csv() {
    let log = log();
    let path = TempPath::new("parquet");
    let out = std::fs::File::create(&path.0).unwrap();
    let reader = Reader::new(&log).unwrap();
    let converted = convert::parquet(reader, out, &Filter::default()).unwrap();
    assert_eq!(converted.written, 5);
    let file = SerializedFileReader::new(std::fs::File::open(&path.0).unwrap()).unwrap();
    assert_eq!(file.metadata().file_metadata().num_rows(), 5);
    let mut lines = Vec::new();
    for row in file.get_row_iter(None).unwrap() {
        let row = row.unwrap();
        if lines.is_empty() {
            let names: Vec<_> = row
                .get_column_iter()
                .map(|(name, _)| name.as_str())
                .collect();
            lines.push(names.join(","));
        }
        let values: Vec<_> = row
            .get_column_iter()
            .map(|(_, value)| as_csv(value))
            .collect();
        lines.push(values.join(","));
    }
    assert_eq!(lines.join("\n") + "\n", WHOLE_CSV);
}

fn as_csv(value: &Field) -> String {
    match value {
        Field::Long(number) => number.to_string(),
        Field::Str(text) if text.contains(',') => format!("\"{text}\""),
        Field::Str(text) => text.clone(),
        Field::Null => String::new(),
        other => panic!("no column is {other:?}"),
    }
}

/// More rows than one row group holds.
#[test]
fn parquet_keeps_every_row_of_a_long_log() {
    let long = Row {
        count: u16::MAX,
        decision: Code::QUEUED,
        ..Row::default()
    };
    let log = log_of(&[long; 3]);
    let path = TempPath::new("long");
    let out = std::fs::File::create(&path.0).unwrap();
    let reader = Reader::new(&log).unwrap();
    let converted = convert::parquet(reader, out, &Filter::default()).unwrap();
    assert_eq!(converted.written, 3 * 65_535);
    assert!(converted.interrupted);
    let file = SerializedFileReader::new(std::fs::File::open(&path.0).unwrap()).unwrap();
    let groups: Vec<i64> = file
        .metadata()
        .row_groups()
        .iter()
        .map(|g| g.num_rows())
        .collect();
    assert_eq!(groups, [122_880, 3 * 65_535 - 122_880]);
}

/// Fields of every packet as tshark reads them.
fn tshark(path: &Path, fields: &[&str]) -> Vec<Vec<String>> {
    let mut command = Command::new("tshark");
    command
        .arg("-r")
        .arg(path)
        .args(["-n", "-T", "fields", "-E", "separator=|"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.output().expect("these tests need tshark");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let text = String::from_utf8(output.stdout).unwrap();
    let cells = |line: &str| line.split('|').map(str::to_owned).collect();
    text.lines().map(cells).collect()
}

fn capture(name: &str, log: &[u8], filter: &Filter) -> (TempPath, Converted) {
    let path = TempPath::new(name);
    let out = std::fs::File::create(&path.0).unwrap();
    let converted = convert::pcapng(Reader::new(log).unwrap(), out, filter).unwrap();
    (path, converted)
}

#[test]
fn tshark_reads_each_segment_as_the_wire_would_carry_it() {
    let (path, converted) = capture("all.pcapng", &log(), &Filter::default());
    assert_eq!(converted.written, 5);
    let fields = [
        "frame.interface_name",
        "frame.time_epoch",
        "frame.len",
        "frame.cap_len",
        "ip.len",
        "ip.id",
        "tcp.seq_raw",
        "ipv6.plen",
        "udp.length",
        "frame.packet_flags_direction",
        "frame.comment",
    ];
    let full = "dropped: queue_full at link wan/queue, long, 123456 bytes waiting";
    let expected = [
        "near|1700000000.001000000|1066|66|1052|0xffff|4294967196|||0x00000001|".to_owned(),
        format!("near|1700000000.001000000|1066|66|1052|0x0000|900|||0x00000001|{full}"),
        format!("near|1700000000.001000000|566|66|552|0x0001|1900|||0x00000001|{full}"),
        "far|1700000000.002000000|1262|62||||1208|1208|0x00000001|".to_owned(),
        "far|1700000000.002000000|63|62||||9|9|0x00000001|dropped: no_route".to_owned(),
    ];
    let read: Vec<String> = tshark(&path.0, &fields)
        .iter()
        .map(|row| row.join("|"))
        .collect();
    assert_eq!(read, expected);
}

#[test]
fn a_capture_of_the_drops_leaves_out_the_rest() {
    let filter = Filter {
        drops_only: true,
        link: Some(0),
        ..Filter::default()
    };
    let (path, converted) = capture("drops.pcapng", &log(), &filter);
    assert_eq!(converted.written, 2);
    assert_eq!(tshark(&path.0, &["frame.len"]), [["1066"], ["566"]]);
}

/// The record claims segments, but the headers contradict it: lengths and numbers are set in them
/// all the same. Where the record contradicts itself, the frame stays whole.
#[test]
fn a_frame_that_cannot_be_cut_still_has_its_lengths() {
    let mut head = tcp4_head(2_500);
    // A total length that does not agree with the frame's, as BIG TCP has it.
    head[16..18].fill(0);
    let path = TempPath::new("uncut");
    let (mut logger, writer) = Logger::create(&path.0, &legend()).unwrap();
    logger.frame(&tcp_frame(&head));
    // 12,000 segments of a payload of 2,500 bytes cannot be.
    logger.frame(&FrameRecord {
        number: 2,
        segments: 12_000,
        ..tcp_frame(&head)
    });
    drop(logger);
    writer.finish().unwrap();
    let log = std::fs::read(&path.0).unwrap();
    let (path, _) = capture("uncut.pcapng", &log, &Filter::default());
    let fields = [
        "frame.len",
        "frame.cap_len",
        "ip.len",
        "ip.id",
        "tcp.seq_raw",
    ];
    let read: Vec<String> = tshark(&path.0, &fields)
        .iter()
        .map(|row| row.join("|"))
        .collect();
    assert_eq!(
        read[..2],
        ["1066|66|1052|0xffff|4294967196", "1066|66|1052|0x0000|900"]
    );
    assert_eq!(read[2], "566|66|552|0x0001|1900");
    assert!(read[3].starts_with("2566|66|"), "{}", read[3]);
    assert_eq!(read.len(), 4);
}

#[test]
fn an_interrupted_log_gives_what_it_has() {
    let log = log();
    // Inside of the last block of rows: the end is missing too.
    let cut = &log[..log.len() - 100];
    let (csv, converted) = csv_of(cut, &Filter::default());
    assert!(converted.interrupted);
    assert_eq!(converted.truncated_at, Some(log.len() as u64 - 40 - 152));
    let kept: Vec<&str> = WHOLE_CSV.lines().take(4).collect();
    assert_eq!(csv, kept.join("\n") + "\n");
}

#[test]
fn a_summary_counts_by_queue_flow_and_cause() {
    let log = log();
    let summary = Summary::read(Reader::new(&log).unwrap());
    assert_eq!(summary.start, Instant::from_ns(1_000_000));
    // 1 ms in bins of 1001 ns, the narrowest that are no more than a thousand.
    assert_eq!((summary.bin.as_ns(), summary.bins), (1_001, 1_000));
    assert_eq!(summary.read.written, 5);

    let [wan, nameless] = &summary.links[..] else {
        panic!("the link, and what no link decided: {:?}", summary.links);
    };
    let [queue] = &wan.queues[..] else {
        panic!("one queue: {:?}", wan.queues);
    };
    assert_eq!((&*wan.name, &*queue.stage), ("wan", "queue, long"));
    let depth = Depth {
        min_bytes: 1_090,
        max_bytes: 123_456,
    };
    assert_eq!(queue.depths[0], Some(depth));
    assert!(queue.depths[1..].iter().all(Option::is_none));
    let [flow] = queue.flows[..] else {
        panic!("one flow: {:?}", queue.flows);
    };
    assert_eq!(
        (flow.flow, flow.arrived, flow.dropped, flow.turns),
        (11, 3, 2, 1)
    );
    assert_eq!(flow.wire_bytes, 3 * 1_090);
    let arrivals: Vec<_> = queue
        .arrivals
        .iter()
        .map(|a| (a.segments, a.dropped))
        .collect();
    assert_eq!(arrivals, [(1, false), (2, true)]);
    let [full] = &wan.drops[..] else {
        panic!("one cause: {:?}", wan.drops);
    };
    assert_eq!(
        (full.cause, full.total, full.per_bin[0]),
        (Code::QUEUE_FULL, 2, 2)
    );

    assert_eq!(nameless.name, "");
    assert_eq!(nameless.drops[0].cause, Code::NO_ROUTE);
    assert_eq!(nameless.drops[0].per_bin.last(), Some(&1));
}

/// A log of a legend and rows.
fn log_with(legend: &Legend, rows: &[Row]) -> Vec<u8> {
    let json = serde_json::to_vec(legend).unwrap();
    let payload_bytes = u32::try_from(json.len()).unwrap();
    let mut log = MAGIC.to_vec();
    log.extend(link::record::block_header(
        link::record::LEGEND,
        payload_bytes,
    ));
    log.extend(json);
    log.resize(link::record::padded(log.len()), 0);
    log.extend(&log_of(rows)[MAGIC.len()..]);
    log
}

/// A log of rows alone.
fn log_of(rows: &[Row]) -> Vec<u8> {
    let mut log = MAGIC.to_vec();
    let payload_bytes = u32::try_from(rows.len() * ROW_BYTES).unwrap();
    log.extend(link::record::block_header(
        link::record::DECISIONS,
        payload_bytes,
    ));
    for row in rows {
        let mut bytes = [0; ROW_BYTES];
        row.encode(&mut bytes);
        log.extend(bytes);
    }
    log
}

#[test]
fn a_drop_from_within_a_queue_is_no_second_arrival() {
    let at = |ns: u64, decision, first, count, queue_bytes| Row {
        time: Instant::from_ns(ns),
        departs: Instant::MAX,
        frame: 1,
        first,
        count,
        decision,
        queue_bytes,
        flow: 5,
        ..Row::default()
    };
    let log = log_of(&[
        at(10, Code::QUEUED, 0, 3, 300),
        Row {
            departs: Instant::from_ns(30),
            ..at(10, Code::SERVED, 0, 1, 200)
        },
        at(10, Code::EARLY_DROP, 1, 1, 100),
        Row {
            departs: Instant::from_ns(40),
            ..at(10, Code::SERVED, 2, 1, 0)
        },
        // The same number at an empty queue: turned away as it comes.
        at(50, Code::EARLY_DROP, 1, 1, 0),
    ]);
    let summary = Summary::read(Reader::new(&log).unwrap());
    assert_eq!((summary.bin.as_ns(), summary.bins), (1, 41));
    // No legend: the queue is at a link without a name.
    let queue = &summary.links[0].queues[0];
    let flow = queue.flows[0];
    assert_eq!((flow.arrived, flow.dropped), (4, 2));
    let arrivals: Vec<_> = queue
        .arrivals
        .iter()
        .map(|a| (a.segments, a.dropped))
        .collect();
    assert_eq!(arrivals, [(3, false), (1, true)]);
    let seen = |(at, depth): (usize, &Option<Depth>)| depth.map(|d| (at, d.min_bytes, d.max_bytes));
    let depths: Vec<_> = queue.depths.iter().enumerate().filter_map(seen).collect();
    assert_eq!(
        depths,
        [(0, 300, 300), (20, 200, 200), (30, 0, 0), (40, 0, 0)]
    );
    assert_eq!(summary.links[0].drops[0].total, 2);
}

#[test]
fn what_left_by_a_port_or_was_lost_at_a_node_has_the_stage_node() {
    let at_node = Row {
        count: 1,
        stage: NODE_STAGE,
        decision: Code::NO_ROUTE,
        ..Row::default()
    };
    let log = log_with(&legend(), &[at_node]);
    let (csv, _) = csv_of(&log, &Filter::default());
    assert!(csv.contains(",wan,node,no_route,"), "{csv}");
    let summary = Summary::read(Reader::new(&log).unwrap());
    assert_eq!(
        (summary.links.len(), summary.links[0].drops[0].total),
        (1, 1)
    );
}

/// The stages and totals of each link's queues, and the drops of each link.
fn counted(summary: &Summary) -> Vec<(Vec<(&str, u64)>, u64)> {
    let arrived = |queue: &lab::log::QueueSummary| queue.flows.iter().map(|f| f.arrived).sum();
    let links = summary.links.iter();
    links
        .map(|link| {
            let queues = link.queues.iter();
            let queues = queues.map(|queue| (&*queue.stage, arrived(queue)));
            (queues.collect(), link.drops.iter().map(|d| d.total).sum())
        })
        .collect()
}

#[test]
fn what_the_legend_does_not_name_is_counted_together() {
    let full = Row {
        count: 1,
        decision: Code::QUEUE_FULL,
        ..Row::default()
    };
    // Two stages, the line's end, one beyond it; two links beyond the only one.
    let places = [(0, 0), (0, 1), (0, 2), (0, 3), (0, 77), (1, 0), (9, 9)];
    let rows = places.map(|(link, stage)| Row {
        link,
        stage,
        ..full
    });
    let summary = log_with(&legend(), &rows);
    let summary = Summary::read(Reader::new(&summary).unwrap());
    let wan = vec![("loss", 1), ("queue, long", 1), ("end", 1), ("other", 2)];
    assert_eq!(counted(&summary), [(wan, 5), (vec![("other", 2)], 2)]);
}

#[test]
fn a_summary_has_so_many_series_and_counts_the_others_together() {
    let link = LinkLegend {
        stages: vec!["queue".to_owned(); 64],
        ..LinkLegend::default()
    };
    let many = Legend {
        links: vec![link; 100],
        ..Legend::default()
    };
    let row = |i: usize| Row {
        count: 1,
        link: u16::try_from(i / 64).unwrap(),
        stage: u8::try_from(i % 64).unwrap(),
        decision: Code::QUEUED,
        ..Row::default()
    };
    for (queues, others) in [
        (SERIES_MAX, 0),
        (SERIES_MAX + 1, 1),
        (6_400, 6_400 - SERIES_MAX),
    ] {
        // The first ones have their place still when there is none for others.
        let rows: Vec<Row> = (0..queues).chain(0..10).map(row).collect();
        let log = log_with(&many, &rows);
        let summary = Summary::read(Reader::new(&log).unwrap());
        let counted = counted(&summary);
        let apart: usize = counted.iter().take(100).map(|link| link.0.len()).sum();
        assert_eq!(apart, SERIES_MAX);
        assert_eq!(counted[0].0[..11][9..], [("queue", 2), ("queue", 1)]);
        let together = counted.get(100).map_or(0, |link| link.0[0].1);
        assert_eq!(together, others as u64);
    }
}

#[test]
fn drops_are_counted_in_the_bin_of_each_segment() {
    let steps_fs = [1, 999_999, 1_000_000, 1_000_001, 1_230_400_000, u64::MAX];
    for time_step_fs in steps_fs {
        let row = |ns, count| Row {
            time: Instant::from_ns(ns),
            time_step_fs,
            count,
            decision: Code::LOST_RANDOM,
            ..Row::default()
        };
        let rows = [
            row(7, u16::MAX),
            row(3_000_000, 1_000),
            row(u64::MAX - 9, 100),
        ];
        for rows in [&rows[..1], &rows[..2], &rows[..]] {
            let log = log_of(rows);
            let summary = Summary::read(Reader::new(&log).unwrap());
            let mut per_bin = vec![0; summary.bins];
            for segment in rows.iter().flat_map(Row::segments) {
                let at_ns = segment.time.as_ns() - summary.start.as_ns();
                per_bin[usize::try_from(at_ns / summary.bin.as_ns()).unwrap()] += 1;
            }
            assert_eq!(summary.links[0].drops[0].per_bin, per_bin);
        }
    }
}

/// Neighbours are one run; else the way of 1,024 is followed.
#[test]
fn the_runs_of_a_frame_number_that_repeats_are_followed_so_far() {
    for (runs, apart, arrived) in [(1_024, 2, 1_024), (1_025, 2, 1_026), (9_000, 1, 9_000)] {
        let row = |i: u16, decision| Row {
            first: i * apart,
            count: 1,
            decision,
            ..Row::default()
        };
        let mut rows: Vec<Row> = (0..runs).map(|i| row(i, Code::QUEUED)).collect();
        rows.push(row(runs - 1, Code::EARLY_DROP));
        let log = log_of(&rows);
        let summary = Summary::read(Reader::new(&log).unwrap());
        assert_eq!(summary.links[0].queues[0].flows[0].arrived, arrived);
    }
}

#[test]
fn a_legend_larger_than_any_labs_is_not_read() {
    for (title_bytes, is_read) in [(3 << 20, true), (5 << 20, false)] {
        let large = Legend {
            title: "x".repeat(title_bytes),
            ..legend()
        };
        let log = log_with(&large, &rows());
        let summary = Summary::read(Reader::new(&log).unwrap());
        assert_eq!(summary.read.malformed_blocks, u64::from(!is_read));
        assert_eq!(summary.links[0].name, if is_read { "wan" } else { "" });
    }
}

#[test]
fn a_comment_ends_somewhere_however_often_a_segment_was_dropped() {
    let drop = Row {
        frame: 1,
        count: 3,
        decision: Code::NO_ROUTE,
        ..Row::default()
    };
    let long = Legend {
        decisions: [(Code::NO_ROUTE.0, "ä".repeat(300))].into(),
        ..legend()
    };
    let other = Row {
        first: 1,
        count: 1,
        decision: Code::FILTERED,
        ..drop
    };
    // "dropped: ", 300 times "ä", " at link wan/loss"; then "; dropped: 41 at link wan/loss".
    let [once, again] = [9 + 600 + 17, 2 + 9 + 2 + 17];
    let three = 3 * once + 2 * 2;
    for (times, bytes) in [(3, [three, three + again, three]), (1_000, [2_000; 3])] {
        let mut log = MAGIC.to_vec();
        let head = tcp4_head(2_500);
        let mut block = [0; link::record::FRAME_BLOCK_BYTES_MAX];
        let len = tcp_frame(&head).encode(&mut block);
        let rows = [vec![drop; times], vec![other]].concat();
        log.extend(&log_with(&long, &rows)[MAGIC.len()..]);
        log.extend(&block[..len]);
        let (path, converted) = capture(&format!("long-{times}"), &log, &Filter::default());
        assert_eq!(converted.written, 3);
        let comments = tshark(&path.0, &["frame.comment"]);
        let lengths: Vec<usize> = comments.iter().map(|comment| comment[0].len()).collect();
        assert_eq!(lengths, bytes);
    }
}

#[test]
fn an_empty_log_has_an_empty_summary() {
    let summary = Summary::read(Reader::new(&MAGIC).unwrap());
    assert_eq!((summary.bins, summary.links.len()), (0, 0));
    assert!(summary.read.interrupted);
}

/// Whatever a log holds, every reader of it comes to an end without a panic.
fn read_all(log: &[u8]) {
    let Ok(reader) = Reader::new(log) else {
        return;
    };
    let filter = Filter::default();
    let lines = convert::csv(reader.clone(), std::io::sink(), &filter).unwrap();
    let rows = convert::parquet(reader.clone(), std::io::sink(), &filter).unwrap();
    assert_eq!(lines, rows);
    convert::pcapng(reader.clone(), std::io::sink(), &filter).unwrap();
    let summary = Summary::read(reader.clone());
    assert_eq!(summary.read, lines);
    let segments = Segments::read(reader);
    segments.for_each(|seen| {
        if let Fate::Lost(reason) = seen.fate {
            assert!(usize::from(reason) < segments.reasons().len());
        }
        ControlFlow::Continue(())
    });
    assert_eq!(segments.trusted().lost_rows, lines.lost_rows);
}

prop_compose! {
    fn any_row()(
        words in any::<[u64; 6]>(),
        halves in any::<[u32; 4]>(),
        quarters in any::<[u16; 3]>(),
        stage: u8,
        decision: u8,
    ) -> Row {
        Row {
            time: Instant::from_ns(words[0]),
            time_step_fs: words[1],
            departs: Instant::from_ns(words[2]),
            departs_step_fs: words[3],
            frame: words[4],
            queue_bytes: words[5],
            queue_packets: halves[0],
            wire_bytes: halves[1],
            first: quarters[0],
            count: quarters[1],
            link: quarters[2],
            stage,
            decision: Code(decision),
            flow: halves[2],
            detail: halves[3],
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_and_frames_read_back_as_they_were_written(
        row in any_row(),
        captured in prop::collection::vec(any::<u8>(), 0..=128),
        words in any::<[u64; 2]>(),
        halves in any::<[u32; 2]>(),
        quarters in any::<[u16; 4]>(),
    ) {
        let mut bytes = [0; ROW_BYTES];
        row.encode(&mut bytes);
        prop_assert_eq!(Row::decode(&bytes), row);

        let frame = FrameRecord {
            time: Instant::from_ns(words[0]),
            number: words[1],
            port: quarters[0],
            segments: quarters[1],
            frame_bytes: halves[0],
            segment_payload_bytes: quarters[2],
            header_bytes: quarters[3],
            flow: halves[1],
            captured: &captured,
        };
        let mut block = [0; link::record::FRAME_BLOCK_BYTES_MAX];
        let len = frame.encode(&mut block);
        let log = [&MAGIC[..], &block[..len]].concat();
        let read: Vec<_> = Reader::new(&log).unwrap().collect();
        prop_assert!(matches!(read[..], [Ok(Block::Frame(read))] if read == frame));
    }

    #[test]
    fn random_bytes_never_panic_a_reader(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        read_all(&bytes);
        read_all(&[&MAGIC[..], &bytes].concat());
    }
}

proptest! {
    // Each case writes up to a hundred thousand lines: a run may claim 65,535 segments.
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_damaged_log_never_panics_a_reader(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        len in any::<prop::sample::Index>(),
    ) {
        let mut log = damageable();
        for (at, byte) in damage {
            let at = at.index(log.len() - MAGIC.len()) + MAGIC.len();
            log[at] = byte;
        }
        log.truncate(MAGIC.len() + len.index(log.len() - MAGIC.len() + 1));
        read_all(&log);
    }
}

/// A log without a legend: every damage hits a frame, a row or the end.
fn damageable() -> Vec<u8> {
    let mut log = MAGIC.to_vec();
    let (tcp, udp) = (tcp4_head(2_500), udp6_head(1_201));
    for frame in [tcp_frame(&tcp), udp_frame(&udp)] {
        let mut block = [0; link::record::FRAME_BLOCK_BYTES_MAX];
        let len = frame.encode(&mut block);
        log.extend(&block[..len]);
    }
    log.extend(&log_of(&rows())[MAGIC.len()..]);
    log.extend(End::default().encode());
    log
}
