//! A log's TCP segments: each loss with its reason, in virtual time and as written by hand.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use lab::PathFile;
use lab::log::{Fate, Legend, LinkLegend, Logger, Segments};
use link::record::{Code, FrameRecord, NO_LINK, Reader, Row};
use link::{Event, Link, LinkLog, Marks, Output, Spacing, Train, Way};
use units::{Instant, Rng};
use wire::{ethernet, ipv4, protocol, tcp};

/// A file's place, free again when it is dropped.
struct TempPath(PathBuf);

impl TempPath {
    fn new(name: &str) -> Self {
        let name = format!("goodput-segments-{}-{name}", std::process::id());
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

/// Headers of TCP over IPv4: 14, 20 and 20 bytes.
fn head(sequence: u32, payload_bytes: u16) -> Vec<u8> {
    let mut head = vec![0; 54];
    let link = ethernet::Repr {
        destination: [2; 6],
        source: [4; 6],
        ethertype: ethernet::TYPE_IPV4,
    };
    link.emit(&[], &mut head).unwrap();
    let ip = ipv4::Repr {
        source: [198, 18, 0, 1],
        destination: [198, 18, 0, 2],
        protocol: protocol::TCP,
        payload_len: 20 + payload_bytes,
        dscp: 0,
        ecn: 0,
        identification: 1,
        dont_fragment: true,
        ttl: 64,
    };
    ip.emit(&mut head[14..]).unwrap();
    let segment = tcp::Repr {
        source_port: 40_000,
        destination_port: 5_201,
        sequence,
        flags: tcp::Flags::ACK,
        ..tcp::Repr::default()
    };
    assert_eq!(segment.emit(&mut head[34..]).unwrap(), 20);
    head
}

fn frame(number: u64, time: Instant, segments: u16, captured: &[u8]) -> FrameRecord<'_> {
    FrameRecord {
        time,
        number,
        port: 0,
        segments,
        frame_bytes: 54 + u32::from(segments) * 1_000,
        segment_payload_bytes: if segments > 1 { 1_000 } else { 0 },
        header_bytes: 54,
        flow: 7,
        captured,
    }
}

fn legend(stages: Vec<String>) -> Legend {
    let link = |from: &str, to: &str| LinkLegend {
        name: "wan".to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
        stages: stages.clone(),
    };
    Legend {
        ports: vec!["near".to_owned(), "far".to_owned()],
        links: vec![link("near", "far"), link("far", "near")],
        ..Legend::new("a test", 1_000_000)
    }
}

fn log_of(name: &str, legend: &Legend, write: impl FnOnce(&mut Logger)) -> Vec<u8> {
    let path = TempPath::new(name);
    let (mut logger, writer) = Logger::create(&path.0, legend).unwrap();
    write(&mut logger);
    drop(logger);
    writer.finish().unwrap();
    std::fs::read(&path.0).unwrap()
}

/// What happened, in order: time, frame, sequence number, payload, and what.
fn read(log: &[u8]) -> Vec<(u64, u64, u32, u32, String)> {
    let segments = Segments::read(Reader::new(log).unwrap());
    let mut all = Vec::new();
    segments.for_each(|seen| {
        let what = match seen.fate {
            Fate::Came(port) => format!("came at {port}"),
            Fate::Left(port) => format!("left at {port}"),
            Fate::Lost(reason) => {
                let reason = &segments.reasons()[usize::from(reason)];
                format!("{} at {}/{}", reason.decision, reason.link, reason.stage)
            }
        };
        let s = seen.segment;
        all.push((seen.time_ns, seen.frame, s.sequence, s.payload_bytes, what));
        ControlFlow::Continue(())
    });
    all
}

#[test]
fn segments_come_are_lost_and_leave_in_the_order_of_time() {
    let captured = head(u32::MAX - 999, 3_000);
    let row = |ns, first, count, decision| Row {
        time: Instant::from_ns(ns),
        departs: Instant::MAX,
        frame: 1,
        first,
        count,
        decision,
        ..Row::default()
    };
    let rows = [
        row(10, 0, 3, Code::QUEUED),
        Row {
            departs: Instant::from_ns(900),
            ..row(800, 0, 1, Code::DELIVERED)
        },
        Row {
            time_step_fs: 5_000_000,
            ..row(20, 1, 2, Code::QUEUE_FULL)
        },
        row(30, 0, 1, Code::CORRUPTED),
        // What the legend does not know, what is beyond the frame, and a frame that is not there.
        Row {
            link: NO_LINK,
            ..row(40, 2, 9, Code(60))
        },
        Row {
            link: 9,
            ..row(50, 0, 1, Code::DELIVERED)
        },
        Row {
            frame: 2,
            ..row(60, 0, 1, Code::LOST_RANDOM)
        },
    ];
    let log = log_of("order", &legend(vec!["queue".to_owned()]), |logger| {
        logger.frame(&frame(1, Instant::from_ns(10), 3, &captured));
        for row in &rows {
            logger.row(row);
        }
    });
    let first = u32::MAX - 999;
    let expected = [
        (10, first, "came at 0"),
        (10, 0, "came at 0"),
        (10, 1_000, "came at 0"),
        (20, 0, "queue_full at wan/queue"),
        (25, 1_000, "queue_full at wan/queue"),
        (30, first, "corrupted at wan/queue"),
        (40, 1_000, "60 at /"),
        (900, first, "left at 1"),
    ];
    let expected =
        expected.map(|(ns, sequence, what)| (1_000_000 + ns, 1, sequence, 1_000, what.to_owned()));
    assert_eq!(read(&log), expected);
}

#[test]
fn reading_breaks_off_when_told_to() {
    let captured = head(0, 1_000);
    let log = log_of("break", &legend(Vec::new()), |logger| {
        for number in 0..10 {
            logger.frame(&frame(number, Instant::from_ns(number), 1, &captured));
        }
    });
    let mut seen = 0;
    Segments::read(Reader::new(&log).unwrap()).for_each(|_| {
        seen += 1;
        if seen == 3 {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    assert_eq!(seen, 3);
}

/// What a link in virtual time decided, and a log of it.
struct Written<'a> {
    logger: &'a mut Logger,
    lost: BTreeSet<(u32, &'static str)>,
}

impl LinkLog for Written<'_> {
    fn on_event(&mut self, _: Way, event: &Event) {
        let number = event.train.handle;
        let row = Row::of(event, 0, number);
        self.logger.row(&row);
        if row.decision.is_drop() {
            for segment in row.segments() {
                let sequence = u32::try_from(number).unwrap() * 10_000 + segment.segment * 1_000;
                let is_new = self.lost.insert((sequence, row.decision.name().unwrap()));
                assert!(is_new, "each is lost once");
            }
        }
    }
}

#[test]
fn what_a_link_loses_in_virtual_time_is_what_its_log_says_was_lost() {
    let text = "title = \"virtual\"\n[hosts.near]\n[hosts.far]\n[links.wan]\n\
                between = [\"near\", \"far\"]\nrate = \"50Mb/s\"\ndelay = \"20ms\"\n\
                queue = \"60KiB\"\nloss = 0.005\nseed = 3\n";
    let path = PathFile::parse(Path::new("test.toml"), text).unwrap();
    let spec = &path.network.links[0];
    let mut link = Link::of([&spec.forward, &spec.backward], Instant::ZERO, 1_000, false);
    let stages = link.stage_names(Way::Forward).map(str::to_owned).collect();
    let mut truth = BTreeSet::new();
    let log = log_of("virtual", &legend(stages), |logger| {
        let mut written = Written {
            logger,
            lost: BTreeSet::new(),
        };
        let mut rng = Rng::new(5);
        let mut now = 0;
        for number in 0..2_000_u64 {
            // 80 kb each 1.6 ms are the link's rate: now and then there is no room.
            now += rng.next_u64() % 3_200_000;
            let at = Instant::from_ns(now);
            let captured = head(u32::try_from(number).unwrap() * 10_000, 10_000);
            written.logger.frame(&frame(number, at, 10, &captured));
            while let Output::Release(_) = link.poll_output(Way::Forward, at, &mut written) {}
            let train = Train {
                handle: number,
                first: 0,
                count: 10,
                wire_bytes: 1_078,
                flow: 7,
                group: 0,
                marks: Marks::NONE,
                damage: 0,
                at,
                spacing: Spacing::TOGETHER,
            };
            link.handle_train(Way::Forward, train, &mut written);
        }
        let end = Instant::MAX;
        while let Output::Release(_) = link.poll_output(Way::Forward, end, &mut written) {}
        truth = std::mem::take(&mut written.lost);
    });
    let lost: BTreeSet<(u32, String)> = read(&log)
        .into_iter()
        .filter(|(_, _, _, _, what)| !what.starts_with("came"))
        .map(|(_, _, sequence, _, what)| (sequence, what))
        .collect();
    let places = |(sequence, cause): &(u32, &str)| {
        let stage = if *cause == "queue_full" {
            "queue"
        } else {
            "loss"
        };
        (*sequence, format!("{cause} at wan/{stage}"))
    };
    assert_eq!(lost, truth.iter().map(places).collect());
    for cause in ["queue_full", "lost_random"] {
        let of_cause = truth.iter().filter(|(_, c)| *c == cause).count();
        assert!(of_cause > 20, "{cause}: {of_cause}");
    }
}
