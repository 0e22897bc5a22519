//! Bursts that meet in a switch whose ports share a buffer: what the log says of them, and that the
//! same arrivals are decided on alike in virtual time.

use std::collections::BTreeMap;
use std::path::Path;

use lab::{Lab, Options, PathFile};
use link::record::{Block, Code, Reader, Row};
use link::{Decision, Event, Log, Marks, Output, Pipeline, SharedBuffer, Spacing, Train};
use units::Instant;

use crate::support::{SILENCE, may_run, receive, udp};

const BUFFER_BYTES: u64 = 30_000;

/// a and b on fast links, c and d on slow ones with delays that differ.
fn path() -> PathFile {
    let text = format!(
        "title = \"a test\"\n[hosts.a]\n[hosts.b]\n[hosts.c]\n[hosts.d]\n\
         [switches.sw]\nbuffer = \"{BUFFER_BYTES}B\"\nbuffer_alpha = 2.0\n\
         [links.a]\nbetween = [\"a\", \"sw\"]\n[links.b]\nbetween = [\"b\", \"sw\"]\n\
         [links.c]\nbetween = [\"sw\", \"c\"]\nrate = \"50Mb/s\"\ndelay = \"1ms\"\n\
         [links.d]\nbetween = [\"sw\", \"d\"]\nrate = \"20Mb/s\"\ndelay = \"5ms\"\n"
    );
    PathFile::parse(Path::new("test.toml"), &text).unwrap()
}

/// The log's number of the way from the switch to c and to d.
const TO: [u16; 2] = [4, 6];

/// Bursts from two hosts to two slow ones; the log's decisions there, and how many were dropped.
fn logged_run(path: &PathFile) -> (Vec<Row>, u64) {
    let file = std::env::temp_dir().join(format!("goodput-shared-{}.gplog", std::process::id()));
    let _ = std::fs::remove_file(&file);
    let options = Options {
        log: Some(file.clone()),
    };
    let lab = Lab::up_with(path, options).unwrap();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| lab.host(name).unwrap());
    let sockets = [a, b, c, d].map(|host| udp(host, 7_000));
    // The answers teach the switch where all are.
    for (from, to) in [
        (&sockets[2], a),
        (&sockets[3], b),
        (&sockets[0], c),
        (&sockets[1], d),
    ] {
        from.send_to(b"here", (to.address(), 7_000)).unwrap();
    }
    for socket in &sockets {
        assert_eq!(receive(socket, 1, crate::support::PATIENCE), 1);
    }
    let lost = |lab: &Lab| {
        let counts = lab.link_counts().unwrap();
        [2, 3].map(|link| counts[link].1.link.queue_full)
    };
    // A machine under load sends slowly: again until both have lost some.
    let since = std::time::Instant::now();
    let mut burst = 0;
    while lost(&lab).iter().any(|&n| n < 10) {
        assert!(
            since.elapsed() < crate::support::PATIENCE,
            "{:?}",
            lost(&lab)
        );
        for k in 0..200_usize {
            let payload = vec![7; 100 + (k * 37 + burst * 500) % 1_300];
            let to = if k % 3 == 0 { d } else { c };
            let to = (to.address(), 7_000);
            sockets[k % 2].send_to(&payload, to).unwrap();
        }
        for socket in &sockets[2..] {
            receive(socket, u64::MAX, SILENCE / 4);
        }
        burst += 1;
    }
    let dropped = lost(&lab).iter().sum();
    let rate = link::Change::Rate(units::Rate::from_bits_per_second(1_000_000));
    let refused = lab.set("c", true, false, rate).unwrap_err().to_string();
    assert!(refused.contains("shares"), "{refused}");
    lab.set("c", false, true, rate).unwrap();
    let end = lab.down().unwrap().unwrap();
    assert_eq!((end.lost_rows, end.lost_frames), (0, 0));
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let blocks = Reader::new(&bytes).unwrap().map(Result::unwrap);
    let rows = blocks.filter_map(|block| match block {
        Block::Decisions(rows) => Some(rows),
        _ => None,
    });
    let rows = rows.flatten().filter(|row| TO.contains(&row.link));
    (rows.collect(), dropped)
}

/// Link, frame, code, depth, limit, time.
type Decided = (u16, u64, u8, u64, u64, u64);

struct Decisions<'a> {
    link: u16,
    all: &'a mut Vec<Decided>,
}

impl Log for Decisions<'_> {
    fn on_event(&mut self, event: &Event) {
        let (depth, limit) = match event.decision {
            Decision::Dropped {
                queue_bytes,
                limit_bytes,
                ..
            } => (queue_bytes, limit_bytes),
            Decision::Queued { queue_bytes, .. } => (queue_bytes, 0),
            Decision::Scheduled { departs } => (departs.as_ns(), 0),
            _ => return,
        };
        let code = event.decision.code();
        let at = event.train.at.as_ns();
        assert_eq!(event.train.count, 1);
        self.all
            .push((self.link, event.train.handle, code, depth, limit, at));
    }
}

/// The same arrivals through pipelines of a buffer of their own.
fn again(path: &PathFile, rows: &[Row]) -> Vec<Decided> {
    let spec = path.network.switches[0].buffer.unwrap();
    let buffer = SharedBuffer::new(spec.bytes, spec.alpha);
    let mut pipelines: BTreeMap<u16, Pipeline> = TO
        .iter()
        .map(|&link| {
            let spec = &path.network.links[usize::from(link / 2)].forward;
            (link, spec.pipeline_in(&buffer, Instant::ZERO, 1_000))
        })
        .collect();
    let came = |row: &&Row| row.decision == Code::QUEUED || row.decision.is_drop();
    let mut arrivals: Vec<&Row> = rows.iter().filter(came).collect();
    arrivals.sort_by_key(|row| (row.time, row.link));
    let mut all = Vec::new();
    let poll = |pipelines: &mut BTreeMap<u16, Pipeline>, now: Instant, all: &mut Vec<_>| {
        for (&link, pipeline) in pipelines {
            let mut log = Decisions { link, all };
            while let Output::Release(_) = pipeline.poll_output(now, &mut log) {}
        }
    };
    for row in arrivals {
        let before = Instant::from_ns(row.time.as_ns() - 1);
        poll(&mut pipelines, before, &mut all);
        let train = Train {
            handle: row.frame,
            first: 0,
            count: 1,
            wire_bytes: row.wire_bytes,
            flow: row.flow,
            group: 0,
            marks: Marks::NONE,
            damage: 0,
            at: row.time,
            spacing: Spacing::TOGETHER,
        };
        let link = row.link;
        let mut log = Decisions {
            link,
            all: &mut all,
        };
        pipelines
            .get_mut(&link)
            .unwrap()
            .handle_train(train, &mut log);
    }
    poll(&mut pipelines, Instant::MAX, &mut all);
    all.sort_unstable();
    all
}

#[test]
fn bursts_that_meet_lose_by_the_threshold_of_the_moment_and_do_so_again_in_virtual_time() {
    if !may_run() {
        return;
    }
    let path = path();
    let (rows, dropped) = logged_run(&path);
    let lost: Vec<&Row> = rows
        .iter()
        .filter(|r| r.decision == Code::SHARED_BUFFER)
        .collect();
    assert_eq!(lost.len() as u64, dropped);
    assert!(
        TO.iter().all(|&to| lost.iter().any(|r| r.link == to)),
        "{dropped}"
    );
    let mut limits: Vec<u32> = lost.iter().map(|r| r.detail).collect();
    for row in &lost {
        let size = u64::from(row.wire_bytes);
        let free = u64::from(row.detail) / 2;
        assert!(
            row.queue_bytes + size > u64::from(row.detail) || size > free,
            "{row:?}"
        );
        assert!(row.queue_bytes + free <= BUFFER_BYTES, "{row:?}");
    }
    limits.sort_unstable();
    limits.dedup();
    assert!(limits.len() > 1, "a threshold that moves: {limits:?}");
    let mut real: Vec<Decided> = Vec::new();
    for row in &rows {
        let known =
            row.decision.is_drop() || [Code::QUEUED, Code::SCHEDULED].contains(&row.decision);
        let depth = match row.decision {
            Code::SCHEDULED => row.departs.as_ns(),
            _ => row.queue_bytes,
        };
        if known {
            let time = row.time.as_ns();
            real.push((
                row.link,
                row.frame,
                row.decision.0,
                depth,
                row.detail.into(),
                time,
            ));
        }
    }
    real.sort_unstable();
    let again = again(&path, &rows);
    assert_eq!(real.len(), again.len());
    for (real, again) in real.iter().zip(&again) {
        assert_eq!(
            real, again,
            "link, frame, code, depth or departure, limit, time"
        );
    }
}
