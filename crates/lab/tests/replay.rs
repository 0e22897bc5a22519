//! One model, two clocks: what a lab decided in real time, the pure pipeline decides again in virtual
//! time from the same arrivals.

mod support;

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;

use lab::{Lab, Options, PathFile};
use link::record::{Block, Code, FrameRecord, Reader, Row};
use link::{Decision, Event, Log, Marks, Output, Pipeline, Spacing, Train};
use units::Instant;

use crate::support::{PATIENCE, may_run};

/// Frame, segment, code, time; for what leaves, the time at which it leaves.
type Decided = (u64, u16, u8, u64);

#[derive(Default)]
struct Decisions(Vec<Decided>);

impl Decisions {
    fn add(&mut self, train: &Train, code: u8, at: impl Fn(u16) -> Instant) {
        for k in 0..train.count {
            self.0
                .push((train.handle, train.first + k, code, at(k).as_ns()));
        }
    }
}

impl Log for Decisions {
    fn on_event(&mut self, event: &Event) {
        let train = &event.train;
        match event.decision {
            Decision::Dropped { .. } | Decision::Marked { .. } | Decision::Scheduled { .. } => {
                self.add(train, event.decision.code(), |k| train.time_of(k));
            }
            _ => {}
        }
    }
}

/// The frame's trains as the lab makes them: all segments of one size, then the odd last one.
fn trains(frame: &FrameRecord<'_>, at: Instant) -> Vec<Train> {
    let header = u32::from(frame.header_bytes);
    let payload = u32::from(frame.segment_payload_bytes);
    let wire = |bytes: u32| link::spec::Medium::ETHERNET.wire_bytes(bytes);
    let (full, last) = if frame.segments == 1 {
        (frame.frame_bytes, frame.frame_bytes)
    } else {
        let before = (u32::from(frame.segments) - 1) * payload;
        (header + payload, frame.frame_bytes - before)
    };
    let ecn = wire::rewrite::ecn(frame.captured);
    let train = Train {
        handle: frame.number,
        first: 0,
        count: frame.segments,
        wire_bytes: wire(full),
        flow: frame.flow,
        marks: if matches!(ecn, Some(1 | 2)) {
            Marks::ECT
        } else {
            Marks::NONE
        },
        damage: 0,
        at,
        spacing: Spacing::TOGETHER,
    };
    if full == last {
        return vec![train];
    }
    let odd = Train {
        first: frame.segments - 1,
        count: 1,
        wire_bytes: wire(last),
        ..train
    };
    let rest = Train {
        count: frame.segments - 1,
        ..train
    };
    vec![rest, odd]
}

/// Transfers over the path with a log; what the log says of the way forward.
fn logged_run(path: &PathFile, name: &str) -> Vec<u8> {
    let file = std::env::temp_dir().join(format!("goodput-{name}-{}.gplog", std::process::id()));
    let _ = std::fs::remove_file(&file);
    let options = Options {
        log: Some(file.clone()),
    };
    let lab = Lab::up_with(path, options).unwrap();
    let bytes = vec![7; 8 << 20];
    let address = (lab.far().address(), 5_001);
    let listener = lab
        .far()
        .run(|| TcpListener::bind(address))
        .unwrap()
        .unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            assert_eq!(got.len(), bytes.len());
        });
        let stream = lab.near().run(|| TcpStream::connect(address)).unwrap();
        stream.unwrap().write_all(&bytes).unwrap();
    });
    let end = lab.down().unwrap().unwrap();
    assert_eq!((end.lost_rows, end.lost_frames), (0, 0));
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    bytes
}

fn replay(name: &str, link: &str) -> BTreeMap<u8, usize> {
    let path = format!(
        "title = \"replayed\"\n[hosts.near]\n[hosts.far]\n[links.wan]\n\
         between = [\"near\", \"far\"]\nseed = 5\n{link}\n"
    );
    let path = PathFile::parse(Path::new("test.toml"), &path).unwrap();
    let bytes = logged_run(&path, name);
    let mut frames: Vec<FrameRecord<'_>> = Vec::new();
    let mut rows: Vec<Row> = Vec::new();
    for block in Reader::new(&bytes).unwrap() {
        match block.unwrap() {
            Block::Frame(frame) if frame.port == 0 => frames.push(frame),
            Block::Decisions(more) => rows.extend(more.filter(|r| r.link == 0)),
            _ => {}
        }
    }
    // The first thing that happens to a frame happens when it counts as having come.
    let mut came: HashMap<u64, Instant> = HashMap::new();
    for row in &rows {
        let known = came.entry(row.frame).or_insert(row.time);
        *known = row.time.min(*known);
    }
    let mut pipeline: Pipeline = path.network.links[0].forward.pipeline(Instant::ZERO, 1_000);
    let mut again = Decisions::default();
    // What came as the lab went down has no rows: nothing was decided on it.
    let decided = frames.iter().filter(|f| came.contains_key(&f.number));
    for frame in decided {
        for train in trains(frame, came[&frame.number]) {
            while let Output::Release(_) = pipeline.poll_output(train.at, &mut again) {}
            pipeline.handle_train(train, &mut again);
        }
    }
    while let Output::Release(_) = pipeline.poll_output(Instant::MAX, &mut again) {}
    let mut real = Decisions::default();
    for row in &rows {
        let decided =
            row.decision.is_drop() || [Code::MARKED, Code::SCHEDULED].contains(&row.decision);
        if !decided {
            continue;
        }
        for segment in row.segments() {
            let segment_number = u16::try_from(segment.segment).unwrap();
            let time = segment.time.as_ns();
            real.0
                .push((row.frame, segment_number, row.decision.0, time));
        }
    }
    again.0.sort_unstable();
    real.0.sort_unstable();
    assert_eq!(real.0.len(), again.0.len());
    for (real, again) in real.0.iter().zip(&again.0) {
        // Steps in a log are rounded to femtoseconds: a nanosecond's edge may fall on the other side.
        let apart = real.3.abs_diff(again.3);
        assert!(
            (real.0, real.1, real.2) == (again.0, again.1, again.2) && apart <= 1,
            "{real:?} {again:?}"
        );
    }
    let mut kinds = BTreeMap::new();
    for (_, _, code, _) in real.0 {
        *kinds.entry(code).or_insert(0) += 1;
    }
    kinds
}

#[test]
fn a_short_queue_and_a_bad_line_decide_the_same_twice() {
    if !may_run() {
        return;
    }
    let kinds = replay(
        "queue",
        "rate = \"200Mb/s\"\ndelay = \"5ms\"\nqueue = \"60kB\"\nforward = { loss = 0.01 }",
    );
    assert!(
        kinds[&Code::QUEUE_FULL.0] > 0 && kinds[&Code::LOST_RANDOM.0] > 20,
        "{kinds:?}"
    );
}

#[test]
fn codel_and_bursts_decide_the_same_twice() {
    if !may_run() {
        return;
    }
    let kinds = replay(
        "codel",
        "rate = \"100Mb/s\"\ndelay = \"2ms\"\nqueue = \"1MB\"\ndiscipline = { fq-codel = { target = \"1ms\", interval = \"20ms\" } }\n\
         forward = { loss = { burst = { enter = 0.001, leave = 0.3 } } }",
    );
    assert!(
        kinds[&Code::LOST_BURST.0] > 0 && kinds.contains_key(&Code::EARLY_DROP.0),
        "{kinds:?}"
    );
}
