//! Other sides that mean harm: refused or passed over, nothing outside is touched, memory stays, and all ends soon.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::{TcpListener, TcpStream};
use std::ops::Deref;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use copy::destination::Destination;
use copy::engine::receive::{ReceiveOptions, receive};
use copy::engine::send::{SendOptions, send};
use copy::engine::tune::Streams;
use copy::engine::{CopyError, Watch};
use copy::filter::Filter;
use copy::link::{self, Link, Sessions, Socket, Which};
use copy::meeting::{self, Meeting};
use copy::message::{Account, BlockHead, FromDestination, FromSource, Told};
use copy::source::Source;
use copy::{Cipher, Entry, Key, Kind, Meta, RelPath, SessionId, Stamp};

use crate::common::{Place, at_once, bytes, tree};

/// Far below a test's time, far above what a session needs to end.
const SOON: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(2);
/// Three times what an honest side says something in.
const SILENCE: Duration = Duration::from_millis(1_500);
/// Far above what any of these tests says nothing for.
const LONG_SILENCE: Duration = Duration::from_secs(10);
const MESSAGE: u8 = 2;
const BLOCKS: u8 = 3;

/// The links of a side that means harm.
pub(crate) struct Evil {
    meeting: Meeting,
    anew: Box<dyn Fn() -> Meeting + Send + Sync>,
}

impl Evil {
    /// A link of blocks that waits for nothing before it is made, however soon the one before it died.
    fn blocks_at_once(&self) -> Option<(Link, u64)> {
        (self.anew)().to_write(Which::Blocks(0)).ok()
    }
}

impl Deref for Evil {
    type Target = Meeting;

    fn deref(&self) -> &Meeting {
        &self.meeting
    }
}

/// One side's messages, said by hand.
pub(crate) struct Says {
    link: Link,
    number: u64,
}

impl Says {
    fn new(meeting: &Meeting, which: Which) -> Self {
        let (link, _) = meeting.to_write(which).unwrap();
        Self { link, number: 0 }
    }

    /// Whether the other side still took it.
    pub(crate) fn raw(&mut self, message: &[u8]) -> bool {
        self.number += 1;
        let mut about = self.number.to_le_bytes().to_vec();
        about.extend_from_slice(&0_u64.to_le_bytes());
        about.extend_from_slice(message);
        self.link.send(MESSAGE, &about, &[]).is_ok()
    }

    pub(crate) fn names(&mut self, names: Vec<Told>) -> bool {
        self.raw(&FromSource::Names(names).to_bytes())
    }

    pub(crate) fn walked(&mut self) -> bool {
        let (roots, is_whole) = (vec![RelPath::top()], true);
        self.raw(&FromSource::Walked { roots, is_whole }.to_bytes())
    }
}

/// What a destination says to a source that means harm.
fn hears(mut link: Link) -> Receiver<FromDestination> {
    let (tell, heard) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = Vec::new();
        while let Ok(head) = link.receive(&mut buffer) {
            if let Ok(message) = FromDestination::read(&buffer[16..head.about]) {
                let _ = tell.send(message);
            }
        }
    });
    heard
}

pub(crate) fn wait_for(
    heard: &Receiver<FromDestination>,
    is_it: impl Fn(&FromDestination) -> bool,
) -> bool {
    // A machine with much else to do takes a while over thousands of files.
    let until = Instant::now() + Duration::from_secs(120);
    while Instant::now() < until {
        match heard.recv_timeout(Duration::from_millis(100)) {
            Ok(message) if is_it(&message) => return true,
            Ok(_) | Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(_) => return false,
        }
    }
    false
}

/// A source that has told all and hears that all is there.
fn ends(says: &mut Says, heard: &Receiver<FromDestination>) {
    says.walked();
    assert!(wait_for(heard, |message| matches!(
        message,
        FromDestination::Finished(_)
    )));
    says.raw(&FromSource::Bye.to_bytes());
}

pub(crate) fn is_decided(message: &FromDestination) -> bool {
    matches!(message, FromDestination::Decided { .. })
}

/// A destination and a source that means harm: what the destination says at last, and what it noted.
pub(crate) fn against_destination(
    cipher: Cipher,
    evil: impl FnOnce(&Evil, Says, Receiver<FromDestination>) + Send,
) -> (Result<Account, CopyError>, String) {
    against_destination_that_wants(cipher, None, evil)
}

/// The same, of a destination that asked for some names.
fn against_destination_that_wants(
    cipher: Cipher,
    only: Option<Vec<Box<[u8]>>>,
    evil: impl FnOnce(&Evil, Says, Receiver<FromDestination>) + Send,
) -> (Result<Account, CopyError>, String) {
    let (received, watch) = watched_against(cipher, only, evil);
    (received, format!("{:?}", watch.notes(0)))
}

/// The same, and what the destination counted.
fn watched_against(
    cipher: Cipher,
    only: Option<Vec<Box<[u8]>>>,
    evil: impl FnOnce(&Evil, Says, Receiver<FromDestination>) + Send,
) -> (Result<Account, CopyError>, Watch) {
    watched_for(LONG_SILENCE, cipher, only, evil)
}

/// The same of a destination that takes links for dead after so long without a word.
fn watched_for(
    silence: Duration,
    cipher: Cipher,
    only: Option<Vec<Box<[u8]>>>,
    evil: impl FnOnce(&Evil, Says, Receiver<FromDestination>) + Send,
) -> (Result<Account, CopyError>, Watch) {
    let place = Place::new();
    let outside = place.0.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), b"secret").unwrap();
    fs::create_dir(place.to()).unwrap();
    symlink(&outside, place.to().join("leads-out")).unwrap();
    let before = (tree(&outside), tree(&place.from()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let (session, key) = (SessionId::random().unwrap(), Key::random().unwrap());
    let connecting = {
        let key = key.clone();
        move || {
            let dial = Box::new(move || TcpStream::connect(at).map(Socket::Tcp));
            let theirs = Meeting::connecting(dial, session, key.clone(), cipher);
            theirs.with_patience(Duration::from_secs(5))
        }
    };
    let theirs = Evil {
        meeting: connecting(),
        anew: Box::new(connecting),
    };
    let ours = Meeting::listening(session, key, vec![cipher])
        .with_patience(PATIENCE)
        .with_silence(silence);
    let watch = Watch::default();
    let options = ReceiveOptions {
        delete: true,
        only,
        ..ReceiveOptions::default()
    };
    let received = thread::scope(|scope| {
        scope.spawn(|| meeting::listen(&listener, &ours).unwrap());
        let received = scope.spawn(|| {
            let (destination, _) = Destination::resolve(&place.to(), false, false).unwrap();
            let received = receive(&ours, &destination, &options, &watch);
            ours.close();
            received
        });
        let says = Says::new(&theirs, Which::FromSource);
        let heard = hears(theirs.to_read(Which::FromDestination, 0).unwrap());
        evil(&theirs, says, heard);
        theirs.close();
        let since = Instant::now();
        let received = received.join().unwrap();
        assert!(since.elapsed() < SOON, "took {:?}", since.elapsed());
        received
    });
    assert_eq!(
        before,
        (tree(&outside), tree(&place.from())),
        "touched what is outside"
    );
    // Beside it, too.
    let mut names: Vec<_> = fs::read_dir(&place.0)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["from", "outside", "to"]);
    (received, watch)
}

fn told(id: u64, path: &str, kind: Kind) -> Told {
    Told {
        id,
        entry: Entry {
            path: RelPath::new(path.as_bytes()).unwrap(),
            kind,
            meta: Meta::default(),
        },
        modified: Stamp {
            seconds: 1,
            nanoseconds: 0,
        },
    }
}

pub(crate) fn file(id: u64, path: &str, size: u64) -> Told {
    told(id, path, Kind::File { size })
}

pub(crate) fn head(id: u64, index: u64, data: &[u8], sum: [u8; 32]) -> Vec<u8> {
    let mut about = Vec::new();
    BlockHead {
        id,
        index,
        len: data.len() as u32,
        sum,
        same: false,
        has_gaps: false,
    }
    .put(&mut about);
    about
}

pub(crate) fn is_refused(result: &Result<Account, CopyError>) -> bool {
    matches!(result, Err(CopyError::Protocol(_)))
}

/// Names as no honest source can write them: bytes put in the place of others.
fn with_bytes(names: Vec<Told>, old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut bytes = FromSource::Names(names).to_bytes();
    let at = bytes
        .windows(old.len())
        .position(|part| part == old)
        .unwrap();
    bytes[at..at + old.len()].copy_from_slice(new);
    bytes
}

#[test]
fn names_that_lead_out_end_the_session() {
    let small = |path: &str| vec![file(0, path, 5)];
    let link = |to: &str| {
        let to = RelPath::new(to.as_bytes()).unwrap();
        vec![told(0, "name", Kind::Hardlink { to })]
    };
    let cases = [
        (small("xx/evil"), "xx/evil", "../evil"),
        (small("a/xx/xx/evil"), "a/xx/xx/evil", "a/../../evil"),
        (small("xtmp/evil"), "xtmp/evil", "/tmp/evil"),
        (small("a/x"), "a/x", "a//"),
        (small("a/x"), "a/x", "a/."),
        (small("evil"), "evil", "ev\0l"),
        (small("xx"), "xx", ".."),
        (
            link("xx/outside/secret"),
            "xx/outside/secret",
            "../outside/secret",
        ),
        (link("xetc/passwd"), "xetc/passwd", "/etc/passwd"),
    ];
    at_once(cases, |(names, old, new)| {
        let message = with_bytes(names, old.as_bytes(), new.as_bytes());
        let (received, _) = against_destination(Cipher::None, |_, mut says, heard| {
            says.raw(&message);
            says.walked();
            wait_for(&heard, |message| {
                matches!(message, FromDestination::Stops(_))
            });
        });
        assert!(is_refused(&received), "{new}: {received:?}");
    });
}

#[test]
fn names_that_were_not_asked_for_end_the_session() {
    let cases = [
        (".bashrc", true),
        (".ssh/authorized_keys", true),
        ("notes.txt.old", true),
        ("", true),
        ("notes.txt", false),
    ];
    at_once(cases, |(path, is_evil)| {
        let only = Some(vec![b"notes.txt"[..].into()]);
        let (received, _) =
            against_destination_that_wants(Cipher::None, only, |_, mut says, heard| {
                let kind = if path.is_empty() {
                    Kind::Folder
                } else {
                    Kind::File { size: 0 }
                };
                says.names(vec![told(0, path, kind)]);
                says.walked();
                wait_for(&heard, |message| {
                    matches!(
                        message,
                        FromDestination::Stops(_) | FromDestination::Finished(_)
                    )
                });
                says.raw(&FromSource::Bye.to_bytes());
            });
        assert_eq!(is_refused(&received), is_evil, "{path}: {received:?}");
    });
}

#[test]
fn hard_links_to_what_was_not_asked_for_end_the_session() {
    for (to, is_evil) in [(".ssh/authorized_keys", true), ("notes/a", false)] {
        let only = Some(vec![b"notes"[..].into()]);
        let (received, _) =
            against_destination_that_wants(Cipher::None, only, |_, mut says, heard| {
                let to = RelPath::new(to.as_bytes()).unwrap();
                says.names(vec![
                    told(0, "notes", Kind::Folder),
                    file(1, "notes/a", 0),
                    told(2, "notes/b", Kind::Hardlink { to }),
                ]);
                says.walked();
                wait_for(&heard, |message| {
                    matches!(
                        message,
                        FromDestination::Stops(_) | FromDestination::Finished(_)
                    )
                });
                says.raw(&FromSource::Bye.to_bytes());
            });
        assert_eq!(is_refused(&received), is_evil, "{to}: {received:?}");
        if let Ok(account) = received {
            assert_eq!(account.placed, 2);
        }
    }
}

#[test]
fn links_lead_nowhere_whatever_is_told_below_them() {
    let target = b"../outside"[..].into();
    let (received, notes) = against_destination(Cipher::Aes128Gcm, |meeting, mut says, heard| {
        let secret = RelPath::new(b"leads-out/secret").unwrap();
        let through = RelPath::new(b"d/secret").unwrap();
        says.names(vec![
            told(0, "d", Kind::Symlink { target }),
            file(1, "d/evil", 5),
            file(2, "leads-out/evil", 5),
            told(3, "d/evil-folder", Kind::Folder),
            told(4, "h1", Kind::Hardlink { to: secret }),
            told(5, "h2", Kind::Hardlink { to: through }),
            told(
                6,
                "d/h3",
                Kind::Hardlink {
                    to: RelPath::new(b"good").unwrap(),
                },
            ),
            file(7, "good", 4),
            file(8, ".goodput-part-0123456789abcdef", 4),
            file(9, ".goodput-part-0123456789abcdef/p0", 4),
        ]);
        assert!(wait_for(&heard, is_decided));
        let (mut blocks, _) = meeting.to_write(Which::Blocks(0)).unwrap();
        let sum = |data: &[u8]| *blake3::hash(data).as_bytes();
        for (id, data) in [
            (1, &b"evil!"[..]),
            (2, b"evil!"),
            (7, b"good"),
            (8, b"evil"),
            (9, b"evil"),
        ] {
            blocks
                .send(BLOCKS, &head(id, 0, data, sum(data)), data)
                .unwrap();
        }
        ends(&mut says, &heard);
    });
    let account = received.unwrap();
    // One file, and the link itself.
    assert_eq!(account.placed, 2, "{account:?} {notes}");
    assert!(account.failed >= 6, "{account:?} {notes}");
}

#[test]
fn sizes_and_holes_that_cannot_be_make_no_file() {
    thread::scope(|scope| {
        scope.spawn(sizes_that_cannot_be_make_no_file);
        scope.spawn(a_file_for_which_no_disk_has_room_ends_the_session);
        scope.spawn(holes_that_cannot_be_end_the_session);
    });
}

fn sizes_that_cannot_be_make_no_file() {
    at_once([1 << 63, u64::MAX, u64::MAX - 1], |size| {
        let (received, notes) = against_destination(Cipher::None, |_, mut says, heard| {
            says.names(vec![file(0, "huge", size)]);
            assert!(wait_for(&heard, is_decided));
            let block = 16 << 20;
            let holes = vec![(0, size.div_ceil(block.into()))];
            says.raw(
                &FromSource::Layout {
                    id: 0,
                    size,
                    block,
                    holes,
                }
                .to_bytes(),
            );
            says.raw(&FromSource::Ended(0).to_bytes());
            says.walked();
            wait_for(&heard, |message| {
                matches!(message, FromDestination::Finished(_))
            });
            says.raw(&FromSource::Bye.to_bytes());
        });
        let failed = received.as_ref().map_or(1, |account| account.failed);
        assert!(failed == 1, "{size}: {received:?} {notes}");
    });
}

fn holes_that_cannot_be_end_the_session() {
    let cases = [
        (3 << 20, vec![(0, 99)]),
        (4 << 20, vec![]),
        (3 << 20, vec![(2, 2)]),
    ];
    at_once(cases, |(size, holes)| {
        let (received, _) = against_destination(Cipher::None, |_, mut says, heard| {
            says.names(vec![file(0, "f", 3 << 20)]);
            assert!(wait_for(&heard, is_decided));
            says.raw(
                &FromSource::Layout {
                    id: 0,
                    size,
                    block: 1 << 20,
                    holes,
                }
                .to_bytes(),
            );
            wait_for(&heard, |message| {
                matches!(message, FromDestination::Stops(_))
            });
        });
        assert!(is_refused(&received), "{received:?}");
    });
}

/// Without holes: there is no such disk.
fn a_file_for_which_no_disk_has_room_ends_the_session() {
    let (received, _) = against_destination(Cipher::None, |_, mut says, heard| {
        let (size, block) = (1 << 62, 16 << 20);
        says.names(vec![file(0, "huge", size)]);
        assert!(wait_for(&heard, is_decided));
        says.raw(
            &FromSource::Layout {
                id: 0,
                size,
                block,
                holes: vec![],
            }
            .to_bytes(),
        );
        wait_for(&heard, |message| {
            matches!(message, FromDestination::Stops(_))
        });
    });
    assert!(matches!(received, Err(CopyError::Here(_))), "{received:?}");
}

#[test]
fn files_that_are_begun_and_never_ended_are_too_many_at_last() {
    let (received, _) = against_destination(Cipher::None, |_, mut says, heard| {
        let many = 9_000;
        let size = 1 << 20;
        let names = (0..many).map(|id| file(id, &format!("f{id}"), size));
        says.names(names.collect());
        assert!(wait_for(&heard, is_decided));
        for id in 0..many {
            let layout = FromSource::Layout {
                id,
                size,
                block: 1 << 20,
                holes: Vec::new(),
            };
            if !says.raw(&layout.to_bytes()) {
                break;
            }
        }
        wait_for(&heard, |message| {
            matches!(message, FromDestination::Stops(_))
        });
    });
    assert!(is_refused(&received), "{received:?}");
}

#[test]
fn blocks_that_are_swapped_wrong_or_of_nothing_are_not_taken() {
    let content = bytes(3 << 20, 4);
    let cut = copy::digest::Cut::new(3 << 20, 1 << 20).unwrap();
    let block = |index: u64| &content[(index << 20) as usize..((index + 1) << 20) as usize];
    // Each: what is sent as block 0 until the destination has had enough.
    let evils: [(u64, u64, &[u8], [u8; 32]); 5] = [
        (0, 0, block(1), cut.sum(0, block(0))),
        (0, 0, block(1), cut.sum(1, block(1))),
        (0, 3, block(0), cut.sum(0, block(0))),
        (0, u64::MAX, block(0), cut.sum(0, block(0))),
        (0, 0, &block(0)[..1000], cut.sum(0, &block(0)[..1000])),
    ];
    at_once(evils, |(id, index, data, sum)| {
        let (received, notes) = against_destination(Cipher::None, |meeting, mut says, heard| {
            says.names(vec![file(0, "f", 3 << 20)]);
            assert!(wait_for(&heard, is_decided));
            says.raw(
                &FromSource::Layout {
                    id: 0,
                    size: 3 << 20,
                    block: 1 << 20,
                    holes: vec![],
                }
                .to_bytes(),
            );
            says.raw(&FromSource::Ended(0).to_bytes());
            says.walked();
            let about = head(id, index, data, sum);
            while let Some((mut link, start)) = meeting.blocks_at_once() {
                assert_eq!(start, 0, "counted");
                if link.send(BLOCKS, &about, data).is_ok() && is_stopped_by(&mut link, &heard) {
                    break;
                }
            }
        });
        assert!(is_refused(&received), "{index}: {received:?} {notes}");
    });
}

/// Waits until a link is cut, or the destination has had enough; whether that is so.
fn is_stopped_by(link: &mut Link, heard: &Receiver<FromDestination>) -> bool {
    link.set_patience(Some(Duration::from_millis(20))).unwrap();
    loop {
        let cut = link.receive(&mut Vec::new()).unwrap_err();
        let is_stop = |message| matches!(message, FromDestination::Stops(_));
        if heard.try_iter().any(is_stop) {
            return true;
        }
        if cut.kind() != ErrorKind::TimedOut {
            return false;
        }
    }
}

#[test]
fn blocks_of_names_that_were_never_wanted_are_passed_over() {
    let (received, _) = against_destination(Cipher::None, |meeting, mut says, heard| {
        let (mut link, _) = meeting.to_write(Which::Blocks(0)).unwrap();
        for id in [0, 5, u64::MAX] {
            let _ = link.send(BLOCKS, &head(id, 0, b"evil", [0; 32]), b"evil");
        }
        ends(&mut says, &heard);
    });
    assert_eq!(received.unwrap().placed, 0);
}

#[test]
fn the_same_file_twice_counts_once_with_another_still_to_come() {
    let (received, watch) = watched_against(Cipher::None, None, |meeting, mut says, heard| {
        says.names(vec![file(0, "f", 4), file(1, "g", 4)]);
        assert!(wait_for(&heard, is_decided));
        let (mut link, _) = meeting.to_write(Which::Blocks(0)).unwrap();
        let sum = *blake3::hash(b"good").as_bytes();
        for id in [0, 0, 1] {
            link.send(BLOCKS, &head(id, 0, b"good", sum), b"good")
                .unwrap();
        }
        ends(&mut says, &heard);
    });
    assert_eq!(received.unwrap().placed, 2);
    let bytes = [&watch.wanted_bytes, &watch.confirmed_bytes];
    assert_eq!(bytes.map(|bytes| bytes.load(Ordering::Relaxed)), [8, 8]);
}

#[test]
fn blocks_of_a_file_of_which_nobody_says_how_it_is_cut_end_the_session() {
    let block = bytes(1 << 20, 4);
    let (received, _) = against_destination(Cipher::None, |meeting, mut says, heard| {
        says.names(vec![file(0, "f", 3 << 20)]);
        assert!(wait_for(&heard, is_decided));
        let (mut link, _) = meeting.to_write(Which::Blocks(0)).unwrap();
        let _ = link.send(BLOCKS, &head(0, 0, &block, [0; 32]), &block);
        // The link of messages lives on.
        let until = Instant::now() + SOON;
        let is_stop = |message| matches!(message, FromDestination::Stops(_));
        while !heard.try_iter().any(is_stop) && Instant::now() < until {
            let _ = says.link.send(MESSAGE, &[0; 16], &[]);
            thread::sleep(Duration::from_millis(50));
        }
    });
    assert!(is_refused(&received), "{received:?}");
}

#[test]
fn messages_that_are_none_end_the_session() {
    type Harm = Box<dyn FnOnce(&Meeting, &mut Says) + Send>;
    let evils: Vec<Harm> = vec![
        Box::new(|_, says| {
            says.raw(&vec![0xff; link::ABOUT_MOST - 16]);
        }),
        Box::new(|_, says| {
            says.raw(b"");
        }),
        // A list of 4,294,967,295 names in five bytes.
        Box::new(|_, says| {
            says.raw(&[1, 0xff, 0xff, 0xff, 0xff]);
        }),
        Box::new(|_, says| {
            says.names(vec![file(7, "not the first", 5)]);
        }),
        Box::new(|_, says| {
            says.number = 41;
            says.walked();
        }),
        // Confirms what was never said.
        Box::new(|_, says| {
            let mut about = 0_u64.to_le_bytes().to_vec();
            about.extend_from_slice(&1_000_u64.to_le_bytes());
            let _ = says.link.send(MESSAGE, &about, &[]);
        }),
        Box::new(|_, says| {
            let _ = says.link.send(9, &[0; 16], b"what");
        }),
        Box::new(|_, says| {
            let _ = says.link.send(MESSAGE, &[0; 3], &[]);
        }),
        Box::new(|meeting, _| {
            let (mut link, _) = meeting.to_write(Which::Blocks(0)).unwrap();
            let _ = link.send(BLOCKS, &[0; 7], &[0; 100]);
        }),
        Box::new(|meeting, _| {
            let (mut link, _) = meeting.to_write(Which::Blocks(127)).unwrap();
            let _ = link.send(200, &head(0, 0, b"", [0; 32]), &[]);
        }),
    ];
    at_once(evils.into_iter().enumerate(), |(number, evil)| {
        let (received, _) =
            against_destination(Cipher::IntegrityOnly, |meeting, mut says, heard| {
                evil(meeting, &mut says);
                wait_for(&heard, |message| {
                    matches!(message, FromDestination::Stops(_))
                });
            });
        assert!(is_refused(&received), "{number}: {received:?}");
    });
}

#[test]
fn half_frames_and_silence_end_when_patience_does() {
    // Each waits for the destination's patience.
    thread::scope(|scope| {
        scope.spawn(half_frames_end_when_patience_does);
        scope.spawn(the_longest_frame_of_which_nothing_comes_ends_when_patience_does);
        scope.spawn(all_links_and_not_a_word_end_when_patience_does);
    });
}

fn half_frames_end_when_patience_does() {
    // Half a frame's head, and the end.
    let (received, _) = against_destination(Cipher::None, |_, says, _| {
        let Socket::Tcp(socket) = says.link.socket() else {
            panic!("not TCP")
        };
        (&mut &*socket).write_all(&[MESSAGE, 0, 0, 0, 16]).unwrap();
        says.link.socket().shut();
    });
    assert!(matches!(received, Err(CopyError::Link(_))), "{received:?}");
}

fn the_longest_frame_of_which_nothing_comes_ends_when_patience_does() {
    // A head, and nothing more of it.
    let (received, _) = against_destination(Cipher::None, |meeting, says, _| {
        let (link, _) = meeting.to_write(Which::Blocks(0)).unwrap();
        let Socket::Tcp(socket) = link.socket() else {
            panic!("not TCP")
        };
        let mut head = vec![BLOCKS, 0, 0, 0];
        head.extend_from_slice(&(1_u32 << 20).to_le_bytes());
        head.extend_from_slice(&(16_u32 << 20).to_le_bytes());
        (&mut &*socket).write_all(&head).unwrap();
        drop(says);
    });
    assert!(matches!(received, Err(CopyError::Link(_))), "{received:?}");
}

fn all_links_and_not_a_word_end_when_patience_does() {
    let (received, _) = watched_for(SILENCE, Cipher::Aes128Gcm, None, |meeting, says, heard| {
        let blocks: Vec<_> = (0..4)
            .map(|n| meeting.to_write(Which::Blocks(n)).unwrap())
            .collect();
        while heard.recv().is_ok() {}
        drop((blocks, says));
    });
    assert!(matches!(received, Err(CopyError::Link(_))), "{received:?}");
}

/// Bytes of memory in use (proc(5), status).
fn resident() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    kib.unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn names_without_end_and_without_data_are_few_bytes_each_and_then_too_many() {
    const MANY: u64 = 20_000;
    let before = resident();
    let (received, _) = against_destination(Cipher::None, |_, mut says, heard| {
        for part in 0..MANY / 1000 {
            let ids = part * 1000..(part + 1) * 1000;
            says.names(ids.map(|id| file(id, &format!("n{id}"), 1 << 40)).collect());
        }
        let all = |message: &FromDestination| matches!(message, FromDestination::Decided { until, .. } if *until == MANY);
        assert!(wait_for(&heard, all));
        let grown = resident().saturating_sub(before);
        println!("{} bytes a name", grown / MANY);
        assert!(grown < MANY * 2_000 + (300 << 20), "{grown}");
    });
    assert!(matches!(received, Err(CopyError::Link(_))), "{received:?}");
    // With a mebibyte of attributes each.
    let value: Box<[u8]> = vec![7; 60_000].into();
    let (received, _) = against_destination(Cipher::None, |meeting, mut says, heard| {
        thread::scope(|scope| {
            // Whoever was told to stop is not to hang in what nobody reads.
            scope.spawn(move || {
                wait_for(&heard, |message| {
                    matches!(message, FromDestination::Stops(_))
                });
                meeting.cut(Which::FromSource);
            });
            for id in 0..2_000 {
                let mut name = file(id, &format!("n{id}"), 5);
                for n in 0..15 {
                    let key = format!("user.{n}").into_bytes().into();
                    name.entry.meta.attributes.push((key, value.clone()));
                }
                if !says.names(vec![name]) {
                    break;
                }
            }
        });
        let grown = resident().saturating_sub(before);
        println!("{grown} bytes in all");
        assert!(grown < 1 << 30, "{grown}");
    });
    assert!(is_refused(&received), "{received:?}");
}

#[test]
fn silent_connections_keep_nobody_out_and_hold_nothing_up() {
    let place = Place::new();
    fs::write(place.from().join("f"), bytes(1 << 20, 1)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let (session, key) = (SessionId::random().unwrap(), Key::random().unwrap());
    let ours =
        Meeting::listening(session, key.clone(), vec![Cipher::None]).with_patience(PATIENCE * 10);
    let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(at).unwrap()).collect();
    let dial = Box::new(move || TcpStream::connect(at).map(Socket::Tcp));
    let theirs = Meeting::connecting(dial, session, key, Cipher::None).with_patience(PATIENCE * 10);
    let since = Instant::now();
    thread::scope(|scope| {
        let listening = scope.spawn(|| meeting::listen(&listener, &ours).unwrap());
        let received = scope.spawn(|| {
            let (destination, _) = Destination::resolve(&place.to(), false, false).unwrap();
            let received = receive(
                &ours,
                &destination,
                &ReceiveOptions::default(),
                &Watch::default(),
            );
            ours.close();
            received
        });
        let source = Source::open(&[format!("{}/", place.from().display())]).unwrap();
        let sent = send(
            &theirs,
            &source,
            &Filter::new(),
            &options(),
            &Watch::default(),
        );
        assert_eq!(sent.unwrap().placed, 1);
        received.join().unwrap().unwrap();
        listening.join().unwrap();
    });
    // A handshake may take 15 s; its end is not waited for.
    assert!(
        since.elapsed() < Duration::from_secs(12),
        "{:?}",
        since.elapsed()
    );
    drop(silent);
}

pub(crate) fn options() -> SendOptions {
    SendOptions {
        streams: Streams::Fixed(1),
        ..SendOptions::default()
    }
}

/// A source and a destination that means harm: what the source says at last.
fn against_source(evil: impl FnOnce(&Meeting, Says, &Watch) + Send) -> Result<Account, CopyError> {
    against_source_with(&options(), evil)
}

/// The same of a source that was told more.
pub(crate) fn against_source_with(
    options: &SendOptions,
    evil: impl FnOnce(&Meeting, Says, &Watch) + Send,
) -> Result<Account, CopyError> {
    let place = Place::new();
    fs::write(place.from().join("f"), bytes(3 << 20, 4)).unwrap();
    fs::write(place.from().join("g"), b"small").unwrap();
    let before = tree(&place.from());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let (session, key) = (SessionId::random().unwrap(), Key::random().unwrap());
    let dial = Box::new(move || TcpStream::connect(at).map(Socket::Tcp));
    let ours =
        Meeting::connecting(dial, session, key.clone(), Cipher::None).with_patience(PATIENCE);
    let theirs =
        Meeting::listening(session, key, vec![Cipher::None]).with_patience(Duration::from_secs(5));
    let watch = Watch::default();
    let sent = thread::scope(|scope| {
        scope.spawn(|| meeting::listen(&listener, &theirs).unwrap());
        let sent = scope.spawn(|| {
            let source = Source::open(&[place.from()]).unwrap();
            let sent = send(&ours, &source, &Filter::new(), options, &watch);
            ours.close();
            sent
        });
        // One that panics fails; it does not leave the listener waiting.
        let closing = Closing(&theirs);
        let says = Says::new(&theirs, Which::FromDestination);
        evil(&theirs, says, &watch);
        let since = Instant::now();
        let sent = sent.join().unwrap();
        drop(closing);
        assert!(since.elapsed() < SOON, "took {:?}", since.elapsed());
        sent
    });
    assert_eq!(before, tree(&place.from()));
    sent
}

/// Closes a meeting when it goes.
struct Closing<'a>(&'a Meeting);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[test]
fn a_destination_that_says_what_it_must_not_is_left() {
    use copy::message::Want;
    let want = |id| Want {
        id,
        block: None,
        have: vec![],
        compare: vec![],
    };
    let evils: Vec<Vec<u8>> = vec![
        // Of blocks that the file has not.
        FromDestination::Decided {
            until: 9,
            wants: vec![Want {
                block: Some(1 << 20),
                have: vec![(0, 1), (2, u64::MAX)],
                ..want(1)
            }],
        }
        .to_bytes(),
        FromDestination::Decided {
            until: 9,
            wants: vec![Want {
                block: Some(1 << 16),
                compare: (0..1 << 14).map(|index| (index, [0; 32])).collect(),
                ..want(1)
            }],
        }
        .to_bytes(),
        // Not offered; twice; of what is no file.
        FromDestination::Decided {
            until: 9,
            wants: vec![want(77)],
        }
        .to_bytes(),
        FromDestination::Decided {
            until: 9,
            wants: vec![want(1), want(1)],
        }
        .to_bytes(),
        FromDestination::Decided {
            until: 9,
            wants: vec![want(0)],
        }
        .to_bytes(),
        vec![0xff; 1 << 19],
        vec![1, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
        vec![],
    ];
    at_once(evils.into_iter().enumerate(), |(number, evil)| {
        let sent = against_source(|meeting, mut says, _| {
            let mut link = meeting.to_read(Which::FromSource, 0).unwrap();
            let _ = link.receive(&mut Vec::new());
            says.raw(&evil);
            while link.receive(&mut Vec::new()).is_ok() {}
        });
        assert!(is_refused(&sent), "{number}: {sent:?}");
    });
    // Frames that were never sent, confirmed by message and at the beginning of a stream.
    let sent = against_source(|meeting, mut says, _| {
        let blocks = meeting.to_read(Which::Blocks(0), 0).unwrap();
        // Once it hears that, the source may be gone before it brings another link.
        let mut link = meeting.to_read(Which::FromSource, 0).unwrap();
        let streams = vec![(0, 1_000), (99, 5)];
        says.raw(&FromDestination::Received { streams, placed: 1 }.to_bytes());
        while link.receive(&mut Vec::new()).is_ok() {}
        drop(blocks);
    });
    assert!(is_refused(&sent), "{sent:?}");
    let sent = against_source(|meeting, _says, _| {
        // The source may be gone before this side knows of the stream.
        let _blocks = meeting.to_read(Which::Blocks(0), 1_000);
        let Ok(mut link) = meeting.to_read(Which::FromSource, 0) else {
            return;
        };
        while link.receive(&mut Vec::new()).is_ok() {}
    });
    assert!(is_refused(&sent), "{sent:?}");
    // A want, then nothing but what the user ends.
    let sent = against_source(|meeting, mut says, watch| {
        let mut link = meeting.to_read(Which::FromSource, 0).unwrap();
        let _ = link.receive(&mut Vec::new());
        // What is not told yet is not offered: the folder and both files.
        while watch.names.load(Ordering::Relaxed) < 3 {
            thread::sleep(Duration::from_millis(1));
        }
        let wants = vec![Want {
            block: Some(1 << 20),
            have: vec![(0, 1)],
            ..want(1)
        }];
        says.raw(
            &FromDestination::Decided {
                until: u64::MAX,
                wants,
            }
            .to_bytes(),
        );
        let mut blocks = meeting.to_read(Which::Blocks(0), 0).unwrap();
        let mut buffer = Vec::new();
        let head = blocks.receive(&mut buffer).unwrap();
        assert_eq!(head.data, 1 << 20);
        watch.stop();
        while link.receive(&mut buffer).is_ok() {}
    });
    assert!(matches!(sent, Err(CopyError::Stopped)), "{sent:?}");
}

#[test]
fn a_destination_that_never_reads_does_not_keep_the_user_from_stopping() {
    let sent = against_source(|meeting, _says, watch| {
        let link = meeting.to_read(Which::FromSource, 0).unwrap();
        watch.stop();
        thread::sleep(Duration::from_millis(300));
        drop(link);
    });
    assert!(matches!(sent, Err(CopyError::Stopped)), "{sent:?}");
}

struct One(SessionId, Key);

impl Sessions for One {
    fn find(&self, session: SessionId) -> Option<(Key, Vec<Cipher>)> {
        (session == self.0).then(|| (self.1.clone(), Cipher::ALL.to_vec()))
    }
}

#[test]
fn frames_that_are_replayed_or_swapped_are_refused() {
    use std::io::Read as _;
    for cipher in [
        Cipher::Aes128Gcm,
        Cipher::Chacha20Poly1305,
        Cipher::IntegrityOnly,
    ] {
        for is_swap in [false, true] {
            let (near, mut near_out) = UnixStream::pair().unwrap();
            let (far, mut far_in) = UnixStream::pair().unwrap();
            let (session, key) = (SessionId([7; 16]), Key::random().unwrap());
            let sessions = One(session, key.clone());
            thread::scope(|scope| {
                let far =
                    scope.spawn(move || link::accept(Socket::Unix(far), &sessions).unwrap().2);
                let near = scope.spawn(move || {
                    link::connect(Socket::Unix(near), session, Which::Blocks(0), cipher, &key)
                });
                // Carries the handshake, by either side's word, until both are through.
                let (mut up, mut down) =
                    (near_out.try_clone().unwrap(), far_in.try_clone().unwrap());
                let carry = |from: &mut UnixStream, to: &mut UnixStream| {
                    from.set_nonblocking(true).unwrap();
                    let mut bytes = [0; 65_536];
                    if let Ok(n @ 1..) = from.read(&mut bytes) {
                        from.set_nonblocking(false).unwrap();
                        to.write_all(&bytes[..n]).unwrap();
                    }
                    from.set_nonblocking(false).unwrap();
                };
                while !(near.is_finished() && far.is_finished()) {
                    carry(&mut near_out, &mut far_in);
                    carry(&mut down, &mut up);
                    thread::sleep(Duration::from_millis(1));
                }
                let mut near = near.join().unwrap().unwrap();
                let mut far = far.join().unwrap();
                let mut taken = |near: &mut Link, text: &[u8]| {
                    near.send(MESSAGE, text, &[]).unwrap();
                    let mut bytes = vec![0; 4096];
                    let n = near_out.read(&mut bytes).unwrap();
                    bytes.truncate(n);
                    bytes
                };
                let (first, second) = (taken(&mut near, b"first"), taken(&mut near, b"second"));
                let mut buffer = Vec::new();
                let evil = match is_swap {
                    true => [second, first].concat(),
                    false => [&first[..], &first].concat(),
                };
                far_in.write_all(&evil).unwrap();
                let mut passed = 0;
                let error = loop {
                    match far.receive(&mut buffer) {
                        Ok(_) => passed += 1,
                        Err(error) => break error,
                    }
                };
                assert!(passed <= u32::from(!is_swap), "{cipher:?} {passed}");
                assert_eq!(error.kind(), ErrorKind::InvalidData, "{cipher:?}");
            });
        }
    }
}
