//! Trees, and sessions over loopback.

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use copy::destination::Destination;
use copy::engine::disk::Io;
use copy::engine::receive::{Prepared, ReceiveOptions, prepare, receive_prepared};
use copy::engine::send::{SendOptions, send};
use copy::engine::tune::Streams;
use copy::engine::{CopyError, Watch};
use copy::filter::Filter;
use copy::link::Socket;
use copy::meeting::{self, Meeting};
use copy::message::Account;
use copy::quic::{Carriage, Counts, Transport, beside};
use copy::source::Source;
use copy::{Cipher, Key, SessionId};

/// A folder that goes with the test.
pub(crate) struct Place(pub(crate) PathBuf);

static PLACES: AtomicU64 = AtomicU64::new(0);

impl Place {
    pub(crate) fn new() -> Self {
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let name = format!("goodput-copy-session-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("from")).unwrap();
        Self(path)
    }

    /// In memory, where there is such a place.
    pub(crate) fn in_memory() -> Option<Self> {
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let name = format!("goodput-copy-session-{}-{number}", std::process::id());
        let path = Path::new("/dev/shm").join(name);
        fs::create_dir_all(path.join("from")).ok()?;
        Some(Self(path))
    }

    /// For many small files, where it does not matter what file system has them: in memory, if there is much room. Others take
    /// long to make files just after others were removed.
    pub(crate) fn of_many_files() -> Self {
        const MUCH: u64 = 1 << 30;
        let has_much = |stat: rustix::fs::StatVfs| stat.f_bavail * stat.f_frsize >= MUCH;
        let in_memory = match rustix::fs::statvfs("/dev/shm").is_ok_and(has_much) {
            true => Self::in_memory(),
            false => None,
        };
        in_memory.unwrap_or_else(Self::new)
    }

    pub(crate) fn from(&self) -> PathBuf {
        self.0.join("from")
    }

    pub(crate) fn to(&self) -> PathBuf {
        self.0.join("to")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) struct Session {
    pub(crate) cipher: Cipher,
    pub(crate) streams: Streams,
    pub(crate) receive: ReceiveOptions,
    pub(crate) block: Option<u32>,
    /// The source listens and the destination connects.
    pub(crate) is_reverse: bool,
    pub(crate) patience: Duration,
    /// Small files come before they are asked for.
    pub(crate) unasked: bool,
    pub(crate) limit: Option<units::Rate>,
    /// The source holds once it sent so many bytes.
    pub(crate) hold_at: Option<NonZeroU64>,
    pub(crate) reads_back: bool,
    pub(crate) transport: Transport,
    /// Whoever listens takes no datagrams.
    pub(crate) is_udp_closed: bool,
    /// How long whoever is dialled over QUIC may take to answer, in place of the usual.
    pub(crate) answers_within: Option<Duration>,
    /// QUIC carried blocks when it ended.
    pub(crate) over_quic: AtomicBool,
    /// What the source counted of each stream over QUIC.
    pub(crate) counts: Mutex<Vec<Counts>>,
    /// CPU time that QUIC took at the source, and at the destination.
    pub(crate) quic_cpu_ns: [AtomicU64; 2],
    /// How both sides read and write; the destination's is in `receive` too.
    pub(crate) io: Io,
    /// Bytes that went past the cache at the source and at the destination.
    pub(crate) past_cache: [AtomicU64; 2],
    /// Bytes wanted and confirmed when it ended, at the source and at the destination.
    pub(crate) ended_with: Mutex<[(u64, u64); 2]>,
}

impl Default for Session {
    fn default() -> Self {
        Self {
            cipher: Cipher::Aes128Gcm,
            streams: Streams::Fixed(2),
            receive: ReceiveOptions::default(),
            block: None,
            is_reverse: false,
            patience: Duration::from_secs(20),
            unasked: false,
            limit: None,
            hold_at: None,
            reads_back: false,
            transport: Transport::Tcp,
            is_udp_closed: false,
            answers_within: None,
            over_quic: AtomicBool::new(false),
            counts: Mutex::default(),
            quic_cpu_ns: Default::default(),
            io: Io::Auto,
            past_cache: Default::default(),
            ended_with: Mutex::default(),
        }
    }
}

impl Session {
    /// Copies the contents of `from` to `to`; what both sides say of it.
    pub(crate) fn run(
        &self,
        from: &Path,
        to: &Path,
    ) -> (Result<Account, CopyError>, Result<Account, CopyError>) {
        self.run_with(from, to, |_, _| {})
    }

    pub(crate) fn run_with(
        &self,
        from: &Path,
        to: &Path,
        meanwhile: impl FnOnce(&Meeting, &Watch) + Send,
    ) -> (Result<Account, CopyError>, Result<Account, CopyError>) {
        let (destination, _) = Destination::resolve(to, false, self.receive.dry).unwrap();
        let destination = match self.reads_back {
            true => destination.with_read_back(),
            false => destination,
        };
        let prepared = match prepare(&destination, &self.receive, &|| false) {
            Ok(prepared) => prepared,
            Err(error) => panic!("{error}"),
        };
        self.run_on(from, &destination, prepared, meanwhile)
    }

    /// The same, into what was opened before.
    pub(crate) fn run_prepared(
        &self,
        from: &Path,
        to: &Destination,
        prepared: Prepared,
    ) -> (Result<Account, CopyError>, Result<Account, CopyError>) {
        self.run_on(from, to, prepared, |_, _| {})
    }

    fn run_on(
        &self,
        from: &Path,
        destination: &Destination,
        prepared: Prepared,
        meanwhile: impl FnOnce(&Meeting, &Watch) + Send,
    ) -> (Result<Account, CopyError>, Result<Account, CopyError>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let (session, key) = (SessionId::random().unwrap(), Key::random().unwrap());
        let dial = Box::new(move || TcpStream::connect(at).map(Socket::Tcp));
        let connects = Meeting::connecting(dial, session, key.clone(), self.cipher)
            .with_patience(self.patience)
            .with_carriage(match self.answers_within {
                Some(patience) => Carriage::connecting(self.transport).with_patience(patience),
                None => Carriage::connecting(self.transport),
            });
        let carriage = match (self.transport, self.is_udp_closed) {
            (Transport::Tcp, _) | (_, true) => Carriage::nowhere(self.transport),
            _ => Carriage::listening(self.transport, beside(&listener).unwrap()),
        };
        let listens = Meeting::listening(session, key, vec![self.cipher])
            .with_patience(self.patience)
            .with_carriage(carriage);
        let (near, far) = match self.is_reverse {
            false => (&connects, &listens),
            true => (&listens, &connects),
        };
        let typed = format!("{}/", from.display());
        let source = Source::open(&[typed]).unwrap();
        let options = SendOptions {
            streams: self.streams,
            block: self.block,
            limit: self.limit,
            io: self.io,
            tells_all_attributes: true,
            leaves_out_zeros: true,
            unasked: self.unasked,
            ..SendOptions::default()
        };
        let (sends, receives) = (Watch::default(), Watch::default());
        sends.hold_at(self.hold_at);
        let result = thread::scope(|scope| {
            scope.spawn(|| meeting::listen(&listener, &listens).unwrap());
            let (wanted, watch) = (&self.receive, &receives);
            let received =
                scope.spawn(move || receive_prepared(far, destination, prepared, wanted, watch));
            let sent = scope.spawn(|| send(near, &source, &Filter::new(), &options, &sends));
            scope.spawn(|| meanwhile(near, &sends));
            let sent = sent.join().unwrap();
            // A listener whose own side is done ends too.
            let received = received.join().unwrap();
            listens.close();
            (sent, received)
        });
        let over_quic = sends.is_quic.load(Ordering::Relaxed);
        self.over_quic.store(over_quic, Ordering::Relaxed);
        *self.counts.lock().unwrap() = sends.over_quic().into_values().collect();
        for (kept, watch) in self.quic_cpu_ns.iter().zip([&sends, &receives]) {
            kept.store(watch.quic_cpu_ns.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        for (kept, watch) in self.past_cache.iter().zip([&sends, &receives]) {
            let bytes = watch.direct_bytes.load(Ordering::Relaxed);
            kept.store(bytes, Ordering::Relaxed);
        }
        *self.ended_with.lock().unwrap() = [&sends, &receives].map(|watch| {
            let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            (now(&watch.wanted_bytes), now(&watch.confirmed_bytes))
        });
        println!("source: {:?}", sends.notes(0));
        println!("destination: {:?}", receives.notes(0));
        result
    }
}

/// Waits until the destination confirmed all that a source sends that holds at so many bytes, and stops it.
pub(crate) fn stop_at(held_at: Option<NonZeroU64>, meeting: &Meeting, watch: &Watch) {
    let at = held_at.unwrap().get();
    while watch.confirmed_bytes.load(Ordering::Relaxed) < at && !meeting.is_over() {
        thread::sleep(Duration::from_millis(1));
    }
    watch.stop();
}

/// Cuts a random connection every quarter of a second; how many, and how many of them QUIC carried.
pub(crate) fn cut_again_and_again(meeting: &Meeting) -> (u32, u32) {
    let mut chance = Chance(7);
    let (mut cuts, mut over_quic) = (0, 0);
    while !meeting.is_over() {
        thread::sleep(Duration::from_millis(250));
        let open = meeting.open_links();
        if let Some(which) = open.get(chance.below(open.len().max(1) as u64) as usize) {
            let is_quic = meeting.of_socket(*which, Socket::is_quic);
            over_quic += u32::from(is_quic == Some(true));
            meeting.cut(*which);
            cuts += 1;
        }
    }
    (cuts, over_quic)
}

/// Everything about a tree that a copy keeps: by path, kind, bytes, mode, time and link count.
pub(crate) fn tree(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::symlink_metadata(&path).unwrap();
            let what = if stat.is_symlink() {
                format!("-> {:?}", fs::read_link(&path).unwrap())
            } else if stat.is_dir() {
                folders.push(path.clone());
                "folder".to_owned()
            } else {
                blake3::hash(&fs::read(&path).unwrap()).to_hex().to_string()
            };
            let time = match stat.is_symlink() {
                true => String::new(),
                false => format!("{}.{:09}", stat.mtime(), stat.mtime_nsec()),
            };
            let kept = format!("{what} {:o} {time} {}", stat.mode(), stat.nlink());
            all.insert(path.strip_prefix(top).unwrap().to_owned(), kept);
        }
    }
    all
}

pub(crate) fn bytes(n: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(n + 8);
    while bytes.len() < n {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(n);
    bytes
}

/// Files of many lengths, folders, links, a hole, odd names.
pub(crate) fn plant(top: &Path) {
    let deep = top.join("a/b/c");
    fs::create_dir_all(&deep).unwrap();
    for (index, size) in [
        0,
        1,
        4095,
        4096,
        262_143,
        262_144,
        262_145,
        1 << 20,
        (3 << 20) + 17,
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(deep.join(format!("file{index}")), bytes(size, index as u64)).unwrap();
    }
    fs::create_dir_all(top.join("empty")).unwrap();
    for n in 0..300 {
        fs::write(top.join(format!("a/small{n}")), bytes(n * 7, n as u64)).unwrap();
    }
    fs::write(top.join(std::ffi::OsString::from("na\u{ef}ve\nname")), b"x").unwrap();
    symlink("../nowhere", top.join("link")).unwrap();
    fs::hard_link(deep.join("file8"), top.join("second")).unwrap();
    fs::set_permissions(deep.join("file1"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(top.join("empty"), fs::Permissions::from_mode(0o711)).unwrap();
    let sparse = fs::File::create(top.join("sparse")).unwrap();
    sparse.set_len(40 << 20).unwrap();
    sparse.write_all_at(&bytes(70_000, 99), 33 << 20).unwrap();
}

/// Does the same for each of several cases, for so many at once at most: what they do is mostly to wait.
pub(crate) fn at_once<T: Send>(cases: impl IntoIterator<Item = T>, each: impl Fn(T) + Sync) {
    const MOST: usize = 8;
    let cases: Mutex<Vec<T>> = Mutex::new(cases.into_iter().collect());
    let next = || cases.lock().unwrap().pop();
    thread::scope(|scope| {
        for _ in 0..MOST {
            scope.spawn(|| {
                while let Some(case) = next() {
                    each(case);
                }
            });
        }
    });
}

/// Numbers that look like chance and are the same each time.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    /// The next, below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Names of staging folders that were left.
pub(crate) fn left_over(top: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(top)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let is_ours = |path: &PathBuf| {
        path.file_name()
            .unwrap()
            .as_encoded_bytes()
            .starts_with(b".goodput")
    };
    entries.filter(is_ours).collect()
}
