use super::*;
use throughput::live::Limit;

fn socket(cookie: u64, bytes: u64, busy_ms: u64) -> Record {
    Record {
        state: state::ESTABLISHED,
        local: "10.0.0.1:40000".parse().unwrap(),
        remote: "10.0.0.2:443".parse().unwrap(),
        cookie,
        uid: 1_000,
        inode: 77,
        unread_bytes: 0,
        unacknowledged_bytes: 0,
        info: Some(TcpInfo {
            len_bytes: 280,
            bytes_acked: bytes + 1,
            bytes_sent: bytes,
            segs_out: bytes / 1_000,
            data_segs_out: bytes / 1_000,
            busy_time_us: busy_ms * 1_000,
            rwnd_limited_us: busy_ms * 1_000,
            ..TcpInfo::default()
        }),
        memory: None,
        congestion: Name::of(b"cubic\0"),
        cgroup: Some(5),
    }
}

const ID: Id = Id {
    namespace: 0,
    cookie: 1,
};

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * 1_000_000)
}

fn dump(table: &mut Table, ms: u64, sockets: &[Record]) -> Vec<Change> {
    table.begin(at(ms));
    let changes = sockets.iter().map(|s| table.observe(0, s)).collect();
    table.finish(true);
    changes
}

#[test]
fn a_second_dump_has_rates_and_the_limit_and_the_first_its_life() {
    let mut table = Table::default();
    assert_eq!(
        dump(&mut table, 0, &[socket(1, 500_000, 400)]),
        [Change::New]
    );
    let known = table.get(ID).unwrap();
    assert!(known.moment.lifetime && known.was_there);
    assert_eq!(known.since, Sum::default());
    let changes = dump(&mut table, 1_000, &[socket(1, 1_500_000, 1_300)]);
    assert_eq!(changes, [Change::Changed]);
    let moment = table.get(ID).unwrap().moment;
    assert_eq!(moment.rate_out().as_bits_per_second(), 8_000_000);
    assert_eq!(moment.limit, Limit::ReceiveWindow);
    assert!((moment.share - 0.9).abs() < 1e-9);
    assert_eq!(table.total().open.acked_bytes, 1_000_000);
    let same = dump(&mut table, 2_000, &[socket(1, 1_500_000, 1_300)]);
    assert_eq!(same, [Change::Same]);
    assert_eq!(table.get(ID).unwrap().moment.limit, Limit::Idle);
}

#[test]
fn a_close_event_has_the_last_bytes_and_those_of_short_connections() {
    let mut table = Table::default();
    dump(&mut table, 0, &[socket(1, 500_000, 0)]);
    dump(
        &mut table,
        1_000,
        &[socket(1, 600_000, 0), socket(2, 1_000, 0)],
    );
    table.close(0, &socket(1, 700_000, 0));
    table.close(0, &socket(2, 5_000, 0));
    table.close(0, &socket(3, 9_000, 0));
    let total = table.total();
    assert_eq!(total.open, Sum::default());
    assert_eq!(total.closed.connections, 3);
    assert_eq!(total.closed.acked_bytes, 200_000 + 5_000 + 9_000);
    assert_eq!(total.recent.acked_bytes, 100_000 + 4_000 + 9_000);
    let groups = table.groups(By::Port, |_| true);
    assert_eq!(groups[&Key::Port(443)].closed.connections, 3);
    assert_eq!(groups.len(), 1);
    assert_eq!(table.counts().closed, 3);
}

#[test]
fn a_connection_missing_once_may_have_its_event_on_the_way_and_twice_is_gone() {
    let mut table = Table::default();
    dump(&mut table, 0, &[]);
    dump(&mut table, 1_000, &[socket(1, 1_000, 0)]);
    dump(&mut table, 2_000, &[]);
    assert_eq!(table.counts().vanished, 0);
    table.begin(at(3_000));
    assert_eq!(table.finish(true), [ID]);
    assert_eq!((table.counts().vanished, table.counts().opened), (1, 1));
    assert_eq!(table.total().closed.acked_bytes, 1_000);
}

#[test]
fn a_dump_that_was_cut_loses_nobody() {
    let mut table = Table::default();
    dump(&mut table, 0, &[socket(1, 1_000, 0)]);
    for ms in [1_000, 2_000, 3_000] {
        table.begin(at(ms));
        assert!(table.finish(false).is_empty());
    }
    assert_eq!(table.counts().partial_dumps, 3);
    assert!(table.get(ID).is_some());
}

#[test]
fn a_port_that_listens_here_is_the_service_and_its_process_likely_the_owner() {
    let mut table = Table::default();
    let process = Arc::new(Process {
        pid: 9,
        name: "httpd".to_owned(),
    });
    let listener = Record {
        state: state::LISTEN,
        info: None,
        ..socket(8, 0, 0)
    };
    dump(&mut table, 0, &[listener]);
    table.listens(0, 40_000, &process);
    table.close(0, &socket(3, 9_000, 0));
    // Its own end is no connection's.
    let listener = Record {
        remote: "0.0.0.0:0".parse().unwrap(),
        ..socket(8, 0, 0)
    };
    table.close(0, &listener);
    assert_eq!(table.counts().closed, 1);
    let by_port = table.groups(By::Port, |_| true);
    assert_eq!(by_port[&Key::Port(40_000)].closed.acked_bytes, 9_000);
    let by_process = table.groups(By::Process, |_| true);
    assert_eq!(by_process[&Key::Process(process)].closed.connections, 1);
}

#[test]
fn owners_are_given_by_inode_and_namespace() {
    let mut table = Table::default();
    dump(&mut table, 0, &[socket(1, 0, 0)]);
    let process = Arc::new(Process {
        pid: 9,
        name: "curl".to_owned(),
    });
    let owners = HashMap::from([(77, process)]);
    table.owned(1, &owners);
    assert!(table.get(ID).unwrap().process.is_none());
    table.owned(0, &owners);
    assert_eq!(table.get(ID).unwrap().process.as_ref().unwrap().pid, 9);
}

#[test]
fn readings_are_kept_of_those_that_are_followed_only() {
    let mut table = Table::default();
    dump(&mut table, 0, &[socket(1, 0, 0)]);
    table.follow([ID].into_iter());
    for n in 1..700 {
        dump(&mut table, n * 1_000, &[socket(1, n * 1_000, 0)]);
    }
    assert_eq!(table.history(ID).count(), HISTORY_MAX);
    assert_eq!(table.history(ID).next().unwrap().0, at(699_000));
    table.follow(std::iter::empty());
    assert_eq!(table.history(ID).count(), 0);
}
