//! Several addresses at an end, and several hosts that see the destination's files.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use copy::destination::Destination;
use copy::engine::fetch::fetch;
use copy::engine::help::help_seeing;
use copy::engine::receive::{ReceiveOptions, receive};
use copy::engine::send::{SendOptions, send};
use copy::engine::tune::Streams;
use copy::engine::{CopyError, Watch};
use copy::filter::Filter;
use copy::link::{Socket, Which};
use copy::meeting::{self, Dial, Meeting};
use copy::message::Account;
use copy::quic::{self, Carriage, Transport};
use copy::source::Source;
use copy::{Cipher, Key, SessionId, Way};

use crate::common::{Place, bytes, left_over, plant, tree};

const PATIENCE: Duration = Duration::from_secs(20);
const CIPHER: Cipher = Cipher::Aes128Gcm;
/// What is planted takes a second and a half at this: links whose handshakes come late on a busy machine have their part, too.
const UNHURRIED: units::Rate = units::Rate::from_bits_per_second(160_000_000);

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    (listener, at)
}

fn dial(at: SocketAddr) -> Dial {
    Box::new(move || TcpStream::connect(at).map(Socket::Tcp))
}

/// What the two sides of a session said, and watched.
struct Ended {
    sent: Result<Account, CopyError>,
    received: Result<Account, CopyError>,
    source: Watch,
    destination: Watch,
    near: Meeting,
}

/// A session: the source goes by `ways`, hosts beside the one that leads see its files below the paths `beside`, whose links
/// come to listeners of their own.
struct Session<'a> {
    ways: Vec<Way>,
    listeners: Vec<TcpListener>,
    beside: Vec<(TcpListener, PathBuf)>,
    leader: SocketAddr,
    streams: Streams,
    limit: Option<units::Rate>,
    reads_back: bool,
    transport: Transport,
    /// Of those who lead: so many of the first take no datagrams.
    closed: usize,
    /// How long hosts beside the one that leads wait to see a file that it made.
    seen: Duration,
    /// The source holds once it sent so many bytes, until what is done meanwhile has it go on.
    hold_at: Option<NonZeroU64>,
    ids: (SessionId, Key),
    meanwhile: &'a (dyn Fn(&Meeting, &Watch, &[Meeting]) + Sync),
}

fn nothing(_: &Meeting, _: &Watch, _: &[Meeting]) {}

impl Session<'_> {
    /// Over one listener for each way.
    fn over(count: usize) -> Self {
        let (listeners, at): (Vec<_>, Vec<_>) = (0..count).map(|_| listener()).unzip();
        let way = |(n, at): (usize, &SocketAddr)| Way::new(format!("way {n}"), dial(*at));
        Session {
            ways: at.iter().enumerate().map(way).collect(),
            listeners,
            beside: Vec::new(),
            leader: at[0],
            streams: Streams::Fixed(6),
            limit: None,
            reads_back: false,
            transport: Transport::Tcp,
            closed: 0,
            seen: Duration::from_secs(5),
            hold_at: None,
            ids: (SessionId::random().unwrap(), Key::random().unwrap()),
            meanwhile: &nothing,
        }
    }

    /// One that leads, and others that see its files below these paths.
    fn hosts(beside: &[&Path]) -> Self {
        let mut session = Self::over(1);
        for (n, path) in beside.iter().enumerate() {
            let (listener, at) = listener();
            let way = Way::new(format!("host {n}"), dial(at));
            session.ways.push(way.for_blocks_only());
            session.beside.push((listener, path.to_path_buf()));
        }
        session
    }

    fn run(self, from: &Path, to: &Path) -> Ended {
        let (session, key) = self.ids.clone();
        let near = Meeting::connecting_over(self.ways, session, key.clone(), CIPHER);
        let near = match self.transport {
            Transport::Tcp => near,
            other => near.with_carriage(Carriage::connecting(other)),
        };
        let near = near.with_patience(PATIENCE);
        let listening = |at: &mut dyn Iterator<Item = &TcpListener>| {
            let meeting = Meeting::listening(session, key.clone(), vec![CIPHER]);
            let sockets = at.map(|listener| quic::beside(listener).unwrap()).collect();
            match self.transport {
                Transport::Tcp => meeting,
                other => meeting.with_carriage(Carriage::listening_at(other, sockets)),
            }
        };
        let far = listening(&mut self.listeners[self.closed..].iter()).with_patience(PATIENCE);
        let helpers = self.beside.iter();
        let helpers: Vec<Meeting> = helpers
            .map(|(listener, _)| listening(&mut std::iter::once(listener)))
            .collect();
        let source = Source::open(&[format!("{}/", from.display())]).unwrap();
        let (destination, _) = Destination::resolve(to, false, false).unwrap();
        let destination = match self.reads_back {
            true => destination.with_read_back(),
            false => destination,
        };
        let send_options = SendOptions {
            streams: self.streams,
            block: Some(1 << 16),
            limit: self.limit,
            ..SendOptions::default()
        };
        let receive_options = ReceiveOptions {
            has_helpers: !helpers.is_empty(),
            ..ReceiveOptions::default()
        };
        let (sends, receives) = (Watch::default(), Watch::default());
        sends.hold_at(self.hold_at);
        let (sent, received) = thread::scope(|scope| {
            for listener in &self.listeners {
                let far = &far;
                scope.spawn(move || meeting::listen(listener, far).unwrap());
            }
            for ((listener, path), helper) in self.beside.into_iter().zip(&helpers) {
                let leader = dial(self.leader);
                let leader = Meeting::connecting(leader, session, key.clone(), CIPHER)
                    .with_patience(Duration::from_secs(3));
                // A host that is gone refuses whoever dials it: its listener goes with this.
                scope.spawn(move || meeting::listen(&listener, helper).unwrap());
                scope.spawn(move || {
                    let (seen, _) = Destination::resolve(&path, false, true).unwrap();
                    let watch = Watch::default();
                    help_seeing(helper, &leader, &seen, &watch, self.seen).unwrap();
                    println!("helper: {:?}", watch.notes(0));
                });
            }
            let received = scope.spawn(|| receive(&far, &destination, &receive_options, &receives));
            let sent = scope.spawn(|| send(&near, &source, &Filter::new(), &send_options, &sends));
            let meanwhile = scope.spawn(|| (self.meanwhile)(&near, &sends, &helpers));
            let sent = sent.join().unwrap();
            let received = received.join().unwrap();
            far.close();
            helpers.iter().for_each(Meeting::close);
            meanwhile.join().unwrap();
            (sent, received)
        });
        println!("source: {:?}", sends.notes(0));
        println!("destination: {:?}", receives.notes(0));
        Ended {
            sent,
            received,
            source: sends,
            destination: receives,
            near,
        }
    }
}

impl Ended {
    fn is_whole(&self, from: &Path, to: &Path) {
        assert_eq!(self.sent.as_ref().unwrap().failed, 0);
        assert_eq!(self.received.as_ref().unwrap().failed, 0);
        assert_eq!(tree(from), tree(to));
        assert!(left_over(to).is_empty());
    }

    fn helped(&self) -> u64 {
        self.destination.helped_bytes.load(Ordering::Relaxed)
    }

    fn notes(&self) -> String {
        format!("{:?}", self.source.notes(0))
    }
}

fn planted() -> Place {
    let place = Place::new();
    plant(&place.from());
    fs::write(place.from().join("large"), bytes(24 << 20, 5)).unwrap();
    place
}

#[test]
fn links_are_spread_over_all_addresses_and_one_that_is_dead_is_told_and_left() {
    let place = planted();
    let mut session = Session::over(3);
    session.limit = Some(UNHURRIED);
    // Nobody listens there any more.
    let (gone, at) = listener();
    drop(gone);
    session.ways.insert(1, Way::new("dead", dial(at)));
    let ended = session.run(&place.from(), &place.to());
    ended.is_whole(&place.from(), &place.to());
    let carried = ended.near.carried();
    assert_eq!(carried.len(), 4);
    for way in &carried {
        let is_dead = way.name == "dead";
        assert_eq!(way.bytes == 0, is_dead, "{carried:?}");
        assert_eq!(way.failures > 0, is_dead, "{carried:?}");
    }
    let notes = ended.notes();
    assert!(notes.contains("dead: ") && notes.contains("carried over each: way 0"));
}

/// Runs a session slowly enough that all hosts and ways have their part, and sees that they did.
fn all_take_part(mut session: Session<'_>, place: &Place) -> Ended {
    session.limit = Some(UNHURRIED);
    let ended = session.run(&place.from(), &place.to());
    ended.is_whole(&place.from(), &place.to());
    assert!(ended.helped() > 1 << 20, "{} bytes", ended.helped());
    let carried = ended.near.carried();
    assert!(carried.iter().all(|way| way.bytes > 0), "{carried:?}");
    ended
}

/// Streams that QUIC carried, and bytes of theirs.
fn over_quic(ended: &Ended) -> (usize, u64) {
    let counts = ended.source.over_quic();
    (
        counts.len(),
        counts.values().map(|one| one.bytes_sent).sum(),
    )
}

#[test]
fn quic_goes_over_all_addresses_and_leaves_one_that_is_dead() {
    let place = planted();
    let mut session = Session::over(3);
    session.transport = Transport::Quic;
    session.limit = Some(UNHURRIED);
    let (gone, at) = listener();
    drop(gone);
    session.ways.insert(1, Way::new("dead", dial(at)));
    let ended = session.run(&place.from(), &place.to());
    ended.is_whole(&place.from(), &place.to());
    assert_eq!(over_quic(&ended).0, 6);
    let carried = ended.near.carried();
    for way in &carried {
        let is_dead = way.name == "dead";
        assert_eq!(way.bytes == 0, is_dead, "{carried:?}");
        assert_eq!(way.failures > 0, is_dead, "{carried:?}");
    }
    let sum: u64 = carried.iter().map(|way| way.bytes).sum();
    let (_, sent) = over_quic(&ended);
    assert!(sent > sum / 10 * 9, "{sent} of {sum}");
    assert!(ended.notes().contains("dead: "), "{}", ended.notes());
}

#[test]
fn an_address_without_datagrams_has_tcp_and_the_others_quic() {
    let place = planted();
    let mut session = Session::over(3);
    session.transport = Transport::Quic;
    session.closed = 1;
    session.limit = Some(UNHURRIED);
    // Nobody is to be done before it is known there.
    session.hold_at = NonZeroU64::new(1 << 20);
    let meanwhile = |near: &Meeting, watch: &Watch, _: &[Meeting]| {
        let is_known = || format!("{:?}", watch.notes(0)).contains("TCP in place of QUIC");
        while !is_known() && !near.is_over() {
            thread::sleep(Duration::from_millis(5));
        }
        watch.hold_at(None);
    };
    session.meanwhile = &meanwhile;
    let ended = session.run(&place.from(), &place.to());
    ended.is_whole(&place.from(), &place.to());
    let carried = ended.near.carried();
    assert!(carried.iter().all(|way| way.bytes > 0), "{carried:?}");
    let notes = ended.notes();
    assert!(notes.contains("way 0: TCP in place of QUIC"), "{notes}");
    assert!(over_quic(&ended).0 >= 4, "{:?}", over_quic(&ended));
    assert!(ended.source.is_quic.load(Ordering::Relaxed));
}

#[test]
fn hosts_that_see_the_same_files_take_blocks_over_quic() {
    let place = planted();
    fs::create_dir(place.to()).unwrap();
    let to = place.to();
    let mut session = Session::hosts(&[&to, &to]);
    session.transport = Transport::Quic;
    let ended = all_take_part(session, &place);
    assert_eq!(over_quic(&ended).0, 6);
}

#[test]
fn an_address_that_dies_is_left_and_taken_again_when_it_answers() {
    let place = planted();
    let mut session = Session::over(2);
    let is_dead = Arc::new(AtomicBool::new(false));
    let (dead, at) = (Arc::clone(&is_dead), session.leader);
    let flaky = move || match dead.load(Ordering::Relaxed) {
        true => Err(io::ErrorKind::ConnectionRefused.into()),
        false => TcpStream::connect(at).map(Socket::Tcp),
    };
    session.ways.insert(0, Way::new("flaky", Box::new(flaky)));
    session.limit = Some(units::Rate::from_bits_per_second(40_000_000));
    let meanwhile = move |near: &Meeting, watch: &Watch, _: &[Meeting]| {
        let at_least = |bytes| {
            while watch.confirmed_bytes.load(Ordering::Relaxed) < bytes && !near.is_over() {
                thread::sleep(Duration::from_millis(1));
            }
        };
        at_least(1 << 20);
        is_dead.store(true, Ordering::Relaxed);
        for which in near.open_links() {
            near.cut(which);
        }
        let failures = || near.carried()[0].failures;
        while failures() == 0 && !near.is_over() {
            thread::sleep(Duration::from_millis(1));
        }
        is_dead.store(false, Ordering::Relaxed);
        let is_back = || format!("{:?}", watch.notes(0)).contains("flaky answers again");
        while !is_back() && !near.is_over() {
            thread::sleep(Duration::from_millis(5));
        }
        watch.set_limit(Some(UNHURRIED));
    };
    session.meanwhile = &meanwhile;
    let ended = session.run(&place.from(), &place.to());
    ended.is_whole(&place.from(), &place.to());
    let notes = ended.notes();
    assert!(
        notes.contains("flaky: ") && notes.contains("flaky answers again"),
        "{notes}"
    );
}

#[test]
fn a_slow_address_does_not_hold_the_others_back() {
    /// What the slow one may have in hand: its buffers, and blocks that wait for them.
    const IN_HAND: u64 = 6 << 20;
    let place = planted();
    let all = 24 << 20;
    // Where it had nothing before the others were done, nothing is shown.
    for attempt in 0..10 {
        let to = place.0.join(format!("to-{attempt}"));
        let mut session = Session::over(1);
        let at = session.leader;
        let dialled = Arc::<Mutex<Vec<TcpStream>>>::default();
        let slow_ones = Arc::clone(&dialled);
        let slow = move || {
            let socket = TcpStream::connect(at)?;
            let rate = units::Rate::from_bits_per_second(400_000);
            sys::tcp::set_max_pacing(socket.as_fd(), rate)?;
            slow_ones.lock().unwrap().push(socket.try_clone()?);
            Ok(Socket::Tcp(socket))
        };
        session.ways.push(Way::new("slow", Box::new(slow)));
        session.streams = Streams::Chosen { most: 4 };
        let meanwhile = |near: &Meeting, watch: &Watch, _: &[Meeting]| {
            // It would have half of all for minutes: the others have done the rest before it is let go.
            let confirmed = || watch.confirmed_bytes.load(Ordering::Relaxed);
            let begun = Instant::now();
            while confirmed() < all - IN_HAND && !near.is_over() {
                let waited = begun.elapsed();
                assert!(waited < PATIENCE * 6, "held back at {}", confirmed());
                thread::sleep(Duration::from_millis(1));
            }
            let fast = units::Rate::from_bits_per_second(100_000_000_000);
            for socket in &*dialled.lock().unwrap() {
                sys::tcp::set_max_pacing(socket.as_fd(), fast).unwrap();
            }
        };
        session.meanwhile = &meanwhile;
        let ended = session.run(&place.from(), &to);
        ended.is_whole(&place.from(), &to);
        if ended.near.carried()[1].bytes > 0 {
            return;
        }
    }
    panic!("the slow one never had anything");
}

/// A listener that passes on to another until it is told to hold: from then on it takes all that comes, and nothing arrives.
#[derive(Default)]
struct Hole {
    is_holding: AtomicBool,
    swallowed: AtomicU64,
}

impl Hole {
    fn passes_on(hole: &Arc<Self>, to: SocketAddr) -> SocketAddr {
        let (listener, at) = listener();
        let hole = Arc::clone(hole);
        thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let Ok(far) = TcpStream::connect(to) else {
                    return;
                };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let hole = Arc::clone(&hole);
                    thread::spawn(move || hole.pass(from, to));
                }
            }
        });
        at
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut room = vec![0; 1 << 16];
        while let Ok(n @ 1..) = from.read(&mut room) {
            match self.is_holding.load(Ordering::Relaxed) {
                true => drop(self.swallowed.fetch_add(n as u64, Ordering::Relaxed)),
                false if to.write_all(&room[..n]).is_err() => break,
                false => {}
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }

    /// Holds from when so many bytes are confirmed, and waits until it has some.
    fn hold_from(&self, bytes: u64, near: &Meeting, watch: &Watch) {
        let wait = |is_so: &dyn Fn() -> bool| {
            while !is_so() && !near.is_over() {
                thread::sleep(Duration::from_millis(1));
            }
        };
        wait(&|| watch.confirmed_bytes.load(Ordering::Relaxed) >= bytes);
        self.is_holding.store(true, Ordering::Relaxed);
        wait(&|| self.swallowed.load(Ordering::Relaxed) > 1 << 18);
    }
}

#[test]
fn what_an_address_swallows_is_sent_by_the_others_while_it_seems_to_live() {
    let place = planted();
    let hole = Arc::<Hole>::default();
    let mut session = Session::over(2);
    let at = Hole::passes_on(&hole, session.leader);
    session.ways.insert(1, Way::new("hole", dial(at)));
    session.limit = Some(UNHURRIED);
    let meanwhile = |near: &Meeting, watch: &Watch, _: &[Meeting]| {
        hole.hold_from(16 << 20, near, watch);
        // Its connections acknowledge all they get: nothing but the end of the copy ends them, or what follows here.
        let begun = Instant::now();
        while !near.is_over() && begun.elapsed() < PATIENCE * 3 {
            thread::sleep(Duration::from_millis(1));
        }
        hole.is_holding.store(false, Ordering::Relaxed);
        near.open_links()
            .into_iter()
            .for_each(|which| near.cut(which));
    };
    session.meanwhile = &meanwhile;
    let ended = session.run(&place.from(), &place.to());
    ended.is_whole(&place.from(), &place.to());
    assert!(hole.swallowed.load(Ordering::Relaxed) > 1 << 18);
    assert_eq!(ended.near.reconnects(), 0);
    let wanted = ended.source.wanted_bytes.load(Ordering::Relaxed);
    let confirmed = ended.source.confirmed_bytes.load(Ordering::Relaxed);
    assert_eq!(confirmed, wanted, "what was sent twice counts once");
}

#[test]
fn what_was_lost_with_an_address_is_not_kept_until_it_was_dialled() {
    let place = planted();
    let hole = Arc::<Hole>::default();
    let mut session = Session::over(2);
    let at = Hole::passes_on(&hole, session.leader);
    let (is_dead, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (is_dead, is_over) = (Arc::new(is_dead), Arc::new(is_over));
    let (dead, over) = (Arc::clone(&is_dead), Arc::clone(&is_over));
    // Nobody says no there, either.
    let silent = move || {
        let begun = Instant::now();
        while dead.load(Ordering::Relaxed) && !over.load(Ordering::Relaxed) {
            assert!(begun.elapsed() < PATIENCE * 3, "kept until it was dialled");
            thread::sleep(Duration::from_millis(1));
        }
        TcpStream::connect(at).map(Socket::Tcp)
    };
    session.ways.insert(1, Way::new("hole", Box::new(silent)));
    session.limit = Some(UNHURRIED);
    let meanwhile = |near: &Meeting, watch: &Watch, _: &[Meeting]| {
        hole.hold_from(4 << 20, near, watch);
        is_dead.store(true, Ordering::Relaxed);
        // Those that went elsewhere come again.
        for which in near.open_links() {
            if matches!(which, Which::Blocks(_)) {
                near.cut(which);
            }
        }
        while !near.is_over() {
            thread::sleep(Duration::from_millis(1));
        }
        is_over.store(true, Ordering::Relaxed);
    };
    session.meanwhile = &meanwhile;
    let ended = session.run(&place.from(), &place.to());
    ended.is_whole(&place.from(), &place.to());
    assert!(hole.swallowed.load(Ordering::Relaxed) > 1 << 18);
}

fn written_together(reads_back: bool) {
    let place = planted();
    fs::create_dir(place.to()).unwrap();
    let to = place.to();
    let mut session = Session::hosts(&[&to, &to]);
    session.reads_back = reads_back;
    all_take_part(session, &place);
}

#[test]
fn hosts_that_see_the_same_files_write_them_together() {
    written_together(false);
}

#[test]
fn what_hosts_wrote_together_is_read_back() {
    written_together(true);
}

#[test]
fn a_host_that_sees_other_files_passes_on_what_it_gets_and_writes_nothing() {
    let place = planted();
    fs::create_dir(place.to()).unwrap();
    let elsewhere = place.0.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    // And one that has no such folder.
    let nowhere = place.0.join("nowhere");
    let mut session = Session::hosts(&[&elsewhere, &nowhere]);
    // What they wait for does not come.
    session.seen = Duration::from_millis(300);
    let ended = session.run(&place.from(), &place.to());
    ended.is_whole(&place.from(), &place.to());
    assert_eq!(ended.helped(), 0);
    assert!(tree(&elsewhere).is_empty() && !nowhere.exists());
}

#[test]
fn hosts_whose_connections_are_cut_and_that_go_away_cost_nothing_but_time() {
    let place = planted();
    fs::create_dir(place.to()).unwrap();
    let to = place.to();
    let mut session = Session::hosts(&[&to, &to]);
    session.limit = Some(units::Rate::from_bits_per_second(100_000_000));
    let meanwhile = |near: &Meeting, watch: &Watch, helpers: &[Meeting]| {
        let mut cut = 0;
        while !near.is_over() {
            thread::sleep(Duration::from_millis(100));
            for which in near.open_links() {
                if matches!(which, Which::Blocks(n) if n % 3 == cut % 3) {
                    near.cut(which);
                }
            }
            cut += 1;
            if watch.confirmed_bytes.load(Ordering::Relaxed) > 8 << 20 {
                helpers[0].close();
            }
        }
    };
    session.meanwhile = &meanwhile;
    let ended = session.run(&place.from(), &place.to());
    ended.is_whole(&place.from(), &place.to());
    assert!(ended.near.reconnects() > 0);
}

#[test]
fn what_hosts_wrote_together_is_resumed_after_a_stop() {
    let place = planted();
    fs::create_dir(place.to()).unwrap();
    let to = place.to();
    let mut session = Session::hosts(&[&to]);
    session.limit = Some(units::Rate::from_bits_per_second(60_000_000));
    let meanwhile = |near: &Meeting, watch: &Watch, _: &[Meeting]| {
        while watch.confirmed_bytes.load(Ordering::Relaxed) < 8 << 20 && !near.is_over() {
            thread::sleep(Duration::from_millis(1));
        }
        watch.stop();
    };
    session.meanwhile = &meanwhile;
    let ended = session.run(&place.from(), &place.to());
    assert!(ended.sent.is_err() && ended.helped() > 0);
    let ended = Session::hosts(&[&to]).run(&place.from(), &place.to());
    ended.is_whole(&place.from(), &place.to());
    assert!(ended.received.unwrap().resumed_bytes > 0);
}

/// From hosts that see the source's files, each below a path of its own, to one that connects to all; what they sent.
fn from_hosts(from: &Path, beside: &[&Path], to: &Path) -> (Result<Account, CopyError>, u64) {
    let (session, key) = (SessionId::random().unwrap(), Key::random().unwrap());
    let listening = || Meeting::listening(session, key.clone(), vec![CIPHER]);
    let (lead, at) = listener();
    let leader = listening().with_patience(PATIENCE);
    let listeners: Vec<_> = beside.iter().map(|_| listener()).collect();
    let mut ways = vec![Way::new("leader", dial(at))];
    for (_, at) in &listeners {
        ways.push(Way::new("helper", dial(*at)).for_blocks_only());
    }
    let far = Meeting::connecting_over(ways, session, key.clone(), CIPHER).with_patience(PATIENCE);
    let helpers: Vec<Meeting> = beside.iter().map(|_| listening()).collect();
    let whole = |path: &Path| Source::open(&[format!("{}/", path.display())]).unwrap();
    let source = whole(from);
    let (destination, _) = Destination::resolve(to, false, false).unwrap();
    let options = SendOptions {
        streams: Streams::Fixed(6),
        block: Some(1 << 16),
        limit: Some(UNHURRIED),
        has_helpers: true,
        ..SendOptions::default()
    };
    let (sends, receives) = (Watch::default(), Watch::default());
    let received = thread::scope(|scope| {
        scope.spawn(|| meeting::listen(&lead, &leader).unwrap());
        for ((listener, path), helper) in listeners.iter().zip(beside).zip(&helpers) {
            let to_leader = Meeting::connecting(dial(at), session, key.clone(), CIPHER);
            let seen = whole(path);
            scope.spawn(move || meeting::listen(&listener.0, helper).unwrap());
            scope.spawn(move || {
                let watch = Watch::default();
                fetch(helper, &to_leader, &seen, &watch).unwrap();
                println!("helper: {:?}", watch.notes(0));
            });
        }
        let sent = scope.spawn(|| send(&leader, &source, &Filter::new(), &options, &sends));
        let received = receive(&far, &destination, &ReceiveOptions::default(), &receives);
        let sent = sent.join().unwrap();
        leader.close();
        helpers.iter().for_each(Meeting::close);
        assert_eq!(sent.is_ok(), received.is_ok());
        received
    });
    println!("source: {:?}", sends.notes(0));
    println!("destination: {:?}", receives.notes(0));
    (received, sends.helped_bytes.load(Ordering::Relaxed))
}

#[test]
fn hosts_that_see_the_same_files_read_them_together() {
    let place = planted();
    let from = place.from();
    let (received, helped) = from_hosts(&from, &[&from, &from], &place.to());
    assert_eq!(received.unwrap().failed, 0);
    assert_eq!(tree(&from), tree(&place.to()));
    assert!(helped > 1 << 20, "{helped} bytes");
}

#[test]
fn a_host_that_sees_other_files_of_a_source_sends_none_of_them() {
    let place = planted();
    let elsewhere = place.0.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    // Of the same name and length, and not the same.
    fs::write(elsewhere.join("large"), bytes(24 << 20, 6)).unwrap();
    let empty = place.0.join("empty");
    fs::create_dir(&empty).unwrap();
    let (received, _) = from_hosts(&place.from(), &[&elsewhere, &empty], &place.to());
    assert_eq!(received.unwrap().failed, 0);
    assert_eq!(tree(&place.from()), tree(&place.to()));
}
