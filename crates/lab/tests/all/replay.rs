//! One model, two clocks: what a lab decided in real time, the pure pipeline decides again in virtual
//! time from the same arrivals.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;

use lab::{Lab, Options, PathFile};
use link::record::{Block, Code, FrameRecord, Reader, Row};
use link::{Decision, Event, Link, LinkLog, Marks, Output, Spacing, Train, Way};
use units::Instant;

use crate::support::{PATIENCE, may_run};

/// Frame, segment, code and detail, time; for what leaves, the time at which it leaves.
type Decided = (u64, u16, (u8, u32), u64);

#[derive(Default)]
struct Decisions(Vec<Decided>);

impl Decisions {
    fn add(&mut self, train: &Train, code: (u8, u32), at: impl Fn(u16) -> Instant) {
        for k in 0..train.count {
            self.0
                .push((train.handle, train.first + k, code, at(k).as_ns()));
        }
    }
}

impl LinkLog for Decisions {
    fn on_event(&mut self, _: Way, event: &Event) {
        let train = &event.train;
        let detail = match event.decision {
            Decision::Collided { attempt } => attempt,
            Decision::Dropped { limit_bytes, .. } => u32::try_from(limit_bytes).unwrap(),
            Decision::Marked { .. } | Decision::Scheduled { .. } => 0,
            _ => return,
        };
        let code = event.decision.code();
        self.add(train, (code, detail), |k| train.time_of(k));
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
        group: 0,
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

/// Transfers over the path with a log; the log.
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
    // The last acknowledgements and the connection's end are to be decided on as well.
    let mut before = None;
    for _ in 0..50 {
        thread::sleep(std::time::Duration::from_millis(200));
        let now = lab.link_counts().unwrap();
        if before.as_ref() == Some(&now) {
            break;
        }
        before = Some(now);
    }
    let end = lab.down().unwrap().unwrap();
    assert_eq!((end.lost_rows, end.lost_frames), (0, 0));
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    bytes
}

/// Runs transfers over a link, and what became of them once more; both ways where these share a medium,
/// else forward. How often each thing was decided.
fn replay(name: &str, link: &str) -> BTreeMap<u8, usize> {
    let path = format!(
        "title = \"replayed\"\n[hosts.near]\n[hosts.far]\n[links.wan]\n\
         between = [\"near\", \"far\"]\nseed = 5\n{link}\n"
    );
    let path = PathFile::parse(Path::new("test.toml"), &path).unwrap();
    let spec = &path.network.links[0];
    let mut link = Link::of([&spec.forward, &spec.backward], Instant::ZERO, 1_000, false);
    let ways = if link.is_shared() { 2 } else { 1 };
    let bytes = logged_run(&path, name);
    let mut frames: Vec<FrameRecord<'_>> = Vec::new();
    let mut rows: Vec<Row> = Vec::new();
    for block in Reader::new(&bytes).unwrap() {
        match block.unwrap() {
            Block::Frame(frame) if frame.port < ways => frames.push(frame),
            Block::Decisions(more) => rows.extend(more.filter(|r| r.link < ways)),
            _ => {}
        }
    }
    // The first thing that happens to a frame happens when it counts as having come.
    let mut came: HashMap<u64, Instant> = HashMap::new();
    for row in &rows {
        let known = came.entry(row.frame).or_insert(row.time);
        *known = row.time.min(*known);
    }
    let mut again = Decisions::default();
    // What came as the lab went down has no rows: nothing was decided on it.
    frames.retain(|f| came.contains_key(&f.number));
    frames.sort_by_key(|f| (came[&f.number], f.number));
    let poll = |link: &mut Link, now, again: &mut Decisions| {
        for way in Way::BOTH {
            while let Output::Release(_) = link.poll_output(way, now, again) {}
        }
    };
    for frame in frames {
        let way = Way::BOTH[usize::from(frame.port)];
        for train in trains(&frame, came[&frame.number]) {
            poll(&mut link, train.at, &mut again);
            link.handle_train(way, train, &mut again);
        }
    }
    poll(&mut link, Instant::MAX, &mut again);
    let mut real = Decisions::default();
    for row in &rows {
        let decided = row.decision.is_drop()
            || [Code::MARKED, Code::SCHEDULED, Code::COLLIDED].contains(&row.decision);
        if !decided {
            continue;
        }
        for segment in row.segments() {
            let segment_number = u16::try_from(segment.segment).unwrap();
            let time = segment.time.as_ns();
            real.0.push((
                row.frame,
                segment_number,
                (row.decision.0, row.detail),
                time,
            ));
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
    for (_, _, (code, _), _) in real.0 {
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
        "rate = \"50Mb/s\"\ndelay = \"5ms\"\nqueue = \"30kB\"\nforward = { loss = 0.01 }",
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

#[test]
fn ends_of_a_shared_medium_collide_the_same_twice() {
    if !may_run() {
        return;
    }
    let half = "rate = \"100Mb/s\"\ndelay = \"5ms\"\nqueue = \"200kB\"\nduplex = \"half\"";
    let kinds = replay("half", half);
    assert!(kinds[&Code::COLLIDED.0] > 20, "{kinds:?}");
    let never = [Code::LATE_COLLISION, Code::COLLISION_FCS];
    assert!(
        !never.iter().any(|code| kinds.contains_key(&code.0)),
        "{kinds:?}"
    );
    let mismatch = format!("{half}\nbackward = {{ duplex = \"full\" }}");
    let kinds = replay("mismatch", &mismatch);
    assert!(
        never.iter().all(|code| kinds.contains_key(&code.0)),
        "{kinds:?}"
    );
}
