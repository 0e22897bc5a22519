//! Whole sessions over loopback: what was at the source is at the destination, whatever happens in between.

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use copy::destination::Destination;
use copy::engine::receive::{ReceiveOptions, receive};
use copy::engine::send::{SendOptions, send};
use copy::engine::tune::Streams;
use copy::engine::{CopyError, Watch};
use copy::filter::Filter;
use copy::link::{Socket, Which};
use copy::meeting::{self, Meeting};
use copy::message::Account;
use copy::source::{Keep, Source};
use copy::{Cipher, Key, SessionId};

/// A folder that goes with the test.
struct Place(PathBuf);

static PLACES: AtomicU64 = AtomicU64::new(0);

impl Place {
    fn new() -> Self {
        let number = PLACES.fetch_add(1, Ordering::Relaxed);
        let name = format!("goodput-copy-session-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("from")).unwrap();
        Self(path)
    }

    fn from(&self) -> PathBuf {
        self.0.join("from")
    }

    fn to(&self) -> PathBuf {
        self.0.join("to")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Session {
    cipher: Cipher,
    streams: Streams,
    receive: ReceiveOptions,
    block: Option<u32>,
    /// The source listens and the destination connects.
    is_reverse: bool,
    patience: Duration,
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
        }
    }
}

impl Session {
    /// Copies the contents of `from` to `to`; what both sides say of it.
    fn run(
        &self,
        from: &Path,
        to: &Path,
    ) -> (Result<Account, CopyError>, Result<Account, CopyError>) {
        self.run_with(from, to, |_, _| {})
    }

    fn run_with(
        &self,
        from: &Path,
        to: &Path,
        meanwhile: impl FnOnce(&Meeting, &Watch) + Send,
    ) -> (Result<Account, CopyError>, Result<Account, CopyError>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let (session, key) = (SessionId::random().unwrap(), Key::random().unwrap());
        let dial = Box::new(move || TcpStream::connect(at).map(Socket::Tcp));
        let connects = Meeting::connecting(dial, session, key.clone(), self.cipher)
            .with_patience(self.patience);
        let listens =
            Meeting::listening(session, key, vec![self.cipher]).with_patience(self.patience);
        let (near, far) = match self.is_reverse {
            false => (&connects, &listens),
            true => (&listens, &connects),
        };
        let typed = format!("{}/", from.display());
        let source = Source::open(&[typed]).unwrap();
        let (destination, _) = Destination::resolve(to, false, self.receive.dry).unwrap();
        let options = SendOptions {
            keep: Keep::default(),
            streams: self.streams,
            block: self.block,
            limit: None,
            null: false,
            congestion: None,
        };
        let (sends, receives) = (Watch::default(), Watch::default());
        let result = thread::scope(|scope| {
            scope.spawn(|| meeting::listen(&listener, &listens).unwrap());
            let received = scope.spawn(|| receive(far, &destination, &self.receive, &receives));
            let sent = scope.spawn(|| send(near, &source, &Filter::new(), &options, &sends));
            scope.spawn(|| meanwhile(near, &sends));
            let sent = sent.join().unwrap();
            // A listener whose own side is done ends too.
            let received = received.join().unwrap();
            listens.close();
            (sent, received)
        });
        println!("source: {:?}", sends.notes(0));
        println!("destination: {:?}", receives.notes(0));
        result
    }
}

/// Everything about a tree that a copy keeps: by path, kind, bytes, mode, time and link count.
fn tree(top: &Path) -> BTreeMap<PathBuf, String> {
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

fn bytes(n: usize, seed: u64) -> Vec<u8> {
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
fn plant(top: &Path) {
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

#[test]
fn a_tree_arrives_as_it_was_under_every_cipher_and_both_ways_round() {
    for (cipher, is_reverse) in [
        (Cipher::Aes128Gcm, false),
        (Cipher::Aes256Gcm, true),
        (Cipher::Chacha20Poly1305, false),
        (Cipher::IntegrityOnly, true),
        (Cipher::None, false),
    ] {
        let place = Place::new();
        plant(&place.from());
        let session = Session {
            cipher,
            is_reverse,
            ..Session::default()
        };
        let (sent, received) = session.run(&place.from(), &place.to());
        let account = sent.unwrap();
        assert_eq!(account, received.unwrap());
        assert_eq!(account.failed, 0);
        assert_eq!(tree(&place.from()), tree(&place.to()), "{cipher:?}");
        let there = fs::metadata(place.to().join("sparse")).unwrap();
        assert!(there.blocks() * 512 < 4 << 20, "{} blocks", there.blocks());
        // Again: nothing to do.
        let (sent, _) = session.run(&place.from(), &place.to());
        let again = sent.unwrap();
        assert_eq!((again.received_bytes, again.failed), (0, 0));
        assert_eq!(tree(&place.from()), tree(&place.to()), "{cipher:?}");
    }
}

#[test]
fn connections_that_are_cut_again_and_again_cost_time_only() {
    let place = Place::new();
    plant(&place.from());
    fs::write(place.from().join("large"), bytes(96 << 20, 5)).unwrap();
    let session = Session {
        streams: Streams::Fixed(3),
        block: Some(1 << 18),
        patience: Duration::from_secs(60),
        ..Session::default()
    };
    let (sent, received) = session.run_with(&place.from(), &place.to(), |meeting, watch| {
        let links = [
            Which::Blocks(0),
            Which::FromSource,
            Which::Blocks(1),
            Which::FromDestination,
            Which::Blocks(2),
        ];
        for round in 0..40 {
            thread::sleep(Duration::from_millis(25));
            if meeting.is_over() {
                break;
            }
            meeting.cut(links[round % links.len()]);
        }
        let _ = watch;
        println!("{} reconnects", meeting.reconnects());
        assert!(meeting.reconnects() > 0);
    });
    assert_eq!(sent.unwrap().failed, 0);
    assert_eq!(received.unwrap().failed, 0);
    assert_eq!(tree(&place.from()), tree(&place.to()));
}

#[test]
fn an_interrupted_copy_goes_on_where_it_was() {
    let place = Place::new();
    fs::write(place.from().join("large"), bytes(64 << 20, 5)).unwrap();
    let session = Session {
        receive: ReceiveOptions {
            fsync: true,
            ..ReceiveOptions::default()
        },
        block: Some(1 << 18),
        ..Session::default()
    };
    let (sent, received) = session.run_with(&place.from(), &place.to(), |meeting, watch| {
        while watch.confirmed_bytes.load(Ordering::Relaxed) < 8 << 20 && !meeting.is_over() {
            thread::sleep(Duration::from_millis(1));
        }
        watch.stop();
    });
    assert!(matches!(sent, Err(CopyError::Stopped)), "{sent:?}");
    assert!(received.is_err());
    assert!(!place.to().join("large").exists());
    let (sent, received) = session.run(&place.from(), &place.to());
    let account = sent.unwrap();
    assert!(account.resumed_bytes >= 8 << 20, "{account:?}");
    assert_eq!(account.resumed_bytes + account.received_bytes, 64 << 20);
    assert_eq!(received.unwrap().failed, 0);
    assert_eq!(tree(&place.from()), tree(&place.to()));
}

#[test]
fn only_the_block_that_differs_is_sent_again_when_sums_are_compared() {
    let place = Place::new();
    fs::write(place.from().join("large"), bytes(20 << 20, 5)).unwrap();
    let session = Session::default();
    session.run(&place.from(), &place.to()).0.unwrap();
    // A bit turns; length and time stay.
    let path = place.to().join("large");
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    let byte = fs::read(&path).unwrap()[7_654_321];
    file.write_all_at(&[byte ^ 4], 7_654_321).unwrap();
    file.set_modified(time).unwrap();
    let (sent, _) = session.run(&place.from(), &place.to());
    assert_eq!(sent.unwrap().placed, 0, "not noticed without looking");
    let checks = Session {
        receive: ReceiveOptions {
            checksum: true,
            ..ReceiveOptions::default()
        },
        ..Session::default()
    };
    let (sent, _) = checks.run(&place.from(), &place.to());
    let account = sent.unwrap();
    assert_eq!((account.received_bytes, account.placed), (1 << 20, 1));
    assert_eq!(tree(&place.from()), tree(&place.to()));
}

#[test]
fn what_the_source_has_not_is_deleted_when_asked_for() {
    let place = Place::new();
    plant(&place.from());
    let session = Session::default();
    session.run(&place.from(), &place.to()).0.unwrap();
    fs::write(place.to().join("extra"), b"x").unwrap();
    fs::create_dir_all(place.to().join("old/deep")).unwrap();
    let dry = Session {
        receive: ReceiveOptions {
            delete: true,
            dry: true,
            ..ReceiveOptions::default()
        },
        ..Session::default()
    };
    let (sent, _) = dry.run(&place.from(), &place.to());
    assert_eq!(sent.unwrap().deleted, 3);
    assert!(place.to().join("extra").exists());
    let deletes = Session {
        receive: ReceiveOptions {
            delete: true,
            ..ReceiveOptions::default()
        },
        ..Session::default()
    };
    let (sent, _) = deletes.run(&place.from(), &place.to());
    assert_eq!(sent.unwrap().deleted, 3);
    assert_eq!(tree(&place.from()), tree(&place.to()));
}

#[test]
fn a_dry_run_changes_nothing() {
    let place = Place::new();
    plant(&place.from());
    let session = Session {
        receive: ReceiveOptions {
            dry: true,
            ..ReceiveOptions::default()
        },
        ..Session::default()
    };
    let (sent, _) = session.run(&place.from(), &place.to());
    assert!(sent.unwrap().placed > 300);
    assert!(!place.to().exists());
}

#[test]
fn a_source_without_the_key_is_told_so() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let session = SessionId::random().unwrap();
    let listens = Meeting::listening(session, Key::random().unwrap(), vec![Cipher::Aes128Gcm]);
    let dial = Box::new(move || TcpStream::connect(at).map(Socket::Tcp));
    let connects = Meeting::connecting(dial, session, Key::random().unwrap(), Cipher::Aes128Gcm);
    thread::scope(|scope| {
        scope.spawn(|| meeting::listen(&listener, &listens).unwrap());
        let source = Source::open(&[place.from()]).unwrap();
        let options = SendOptions {
            keep: Keep::default(),
            streams: Streams::Fixed(1),
            block: None,
            limit: None,
            null: false,
            congestion: None,
        };
        let sent = send(
            &connects,
            &source,
            &Filter::new(),
            &options,
            &Watch::default(),
        );
        assert!(matches!(sent, Err(CopyError::Link(_))), "{sent:?}");
        listens.close();
    });
}
