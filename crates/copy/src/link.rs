//! One connection between a source and a destination: who is there, what was agreed, and frames after that.
//!
//! Whoever connects says which protocol it speaks, which session and which of its links this is, and the cipher; the other
//! answers. TLS 1.3 follows ([`Cipher::Aes128Gcm`] and its like) with a certificate that everybody has: it is not what
//! tells who is there. Each side proves instead that it holds the session's key, by HMAC-SHA-256 (RFC 2104) over its role,
//! everything that was said in clear, and the connection's exported secret (RFC 8446, section 7.5; the label of RFC 9266,
//! section 2): somebody between the two has two connections with two secrets, and a proof for one is none for the other.
//!
//! After that a link carries frames one way only, from [`Way::Writes`] to [`Way::Reads`].

use std::fmt;
use std::io::{self, BufRead as _, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use blake3::Hasher;
use hmac::{Hmac, KeyInit as _, Mac as _};
use rustls::crypto::ring::cipher_suite as suites;
use rustls::pki_types::ServerName;
use rustls::{
    CipherSuiteCommon, ClientConnection, Connection, ServerConnection, SupportedCipherSuite,
    Tls13CipherSuite,
};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::key::{Key, SessionId, nonce};
use crate::quic::Pipe;

use inbox::Inbox;

/// The protocol's version that is spoken here, and the oldest that is understood.
pub const VERSION: u16 = 3;
/// The oldest version of the protocol that is understood.
pub const VERSION_OLDEST: u16 = 3;

/// How frames are kept from others' eyes and hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cipher {
    /// TLS 1.3, AES with a key of 128 bits in Galois/counter mode.
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm,
    /// TLS 1.3, AES with a key of 256 bits in Galois/counter mode.
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm,
    /// TLS 1.3, ChaCha20 with Poly1305.
    #[serde(rename = "chacha20-poly1305")]
    Chacha20Poly1305,
    /// Readable by all, and no byte changed unnoticed: keyed BLAKE3 over each frame.
    IntegrityOnly,
    /// Readable and changeable by all on the path; errors of memory and cables are noticed.
    None,
}

impl Cipher {
    /// All, the usual one first.
    pub const ALL: [Self; 5] = [
        Self::Aes128Gcm,
        Self::Aes256Gcm,
        Self::Chacha20Poly1305,
        Self::IntegrityOnly,
        Self::None,
    ];

    /// Its name in flags, messages and run folders.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes-128-gcm",
            Self::Aes256Gcm => "aes-256-gcm",
            Self::Chacha20Poly1305 => "chacha20-poly1305",
            Self::IntegrityOnly => "integrity-only",
            Self::None => "none",
        }
    }

    /// Whether others can read what is sent.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::IntegrityOnly | Self::None)
    }

    const fn code(self) -> u8 {
        match self {
            Self::Aes128Gcm => 1,
            Self::Aes256Gcm => 2,
            Self::Chacha20Poly1305 => 3,
            Self::IntegrityOnly => 4,
            Self::None => 5,
        }
    }

    pub(crate) fn suite(self) -> Option<SupportedCipherSuite> {
        /// Of one suite of ring's.
        type Ours = LazyLock<Option<Tls13CipherSuite>>;
        static AES_128: Ours = LazyLock::new(|| renewing(suites::TLS13_AES_128_GCM_SHA256));
        static AES_256: Ours = LazyLock::new(|| renewing(suites::TLS13_AES_256_GCM_SHA384));
        static CHACHA: Ours = LazyLock::new(|| renewing(suites::TLS13_CHACHA20_POLY1305_SHA256));
        let suite = match self {
            Self::Aes128Gcm => &AES_128,
            Self::Aes256Gcm => &AES_256,
            Self::Chacha20Poly1305 => &CHACHA,
            Self::IntegrityOnly | Self::None => return None,
        };
        suite.as_ref().map(SupportedCipherSuite::from)
    }
}

/// A suite of TLS 1.3 that renews its keys after [`RECORDS_MOST`].
fn renewing(suite: SupportedCipherSuite) -> Option<Tls13CipherSuite> {
    suite
        .tls13()
        .map(|suite| renewing_after(suite, RECORDS_MOST))
}

fn renewing_after(suite: &Tls13CipherSuite, records: u64) -> Tls13CipherSuite {
    Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: suite.common.suite,
            hash_provider: suite.common.hash_provider,
            confidentiality_limit: suite.common.confidentiality_limit.min(records),
        },
        hkdf_provider: suite.hkdf_provider,
        aead_alg: suite.aead_alg,
        quic: suite.quic,
    }
}

/// Records of TLS that one key encrypts, at most, each of up to 16 KiB: a quarter of the 2^24 after which ring's AES-GCM is renewed
/// otherwise (RFC 8446, section 5.5: 2^24.5 of full length are safe). ChaCha20-Poly1305 never would be.
const RECORDS_MOST: u64 = 1 << 22;

/// Which link of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Which {
    /// Messages of the source.
    FromSource,
    /// Messages of the destination.
    FromDestination,
    /// Blocks, by the number of the stream.
    Blocks(u16),
}

impl Which {
    const fn code(self) -> u16 {
        match self {
            Self::FromSource => 0,
            Self::FromDestination => 1,
            Self::Blocks(n) => n + 2,
        }
    }

    /// `None` beyond [`STREAMS_MOST`].
    const fn of(code: u16) -> Option<Self> {
        match code {
            0 => Some(Self::FromSource),
            1 => Some(Self::FromDestination),
            n if n < STREAMS_MOST + 2 => Some(Self::Blocks(n - 2)),
            _ => None,
        }
    }
}

/// The most streams of blocks that a session has.
pub const STREAMS_MOST: u16 = 128;

/// What a link runs over: a TCP connection, one of QUIC, or a pipe that something else carries.
#[derive(Debug)]
pub enum Socket {
    /// A TCP connection.
    Tcp(TcpStream),
    /// One end of a pair; what is at the other end carries the bytes.
    Unix(UnixStream),
    /// A connection of QUIC, which encrypts.
    Quic(Pipe),
}

impl Socket {
    /// Another handle of the same socket.
    ///
    /// # Errors
    /// As dup(2).
    pub fn again(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(socket) => Self::Tcp(socket.try_clone()?),
            Self::Unix(socket) => Self::Unix(socket.try_clone()?),
            Self::Quic(pipe) => Self::Quic(pipe.again()?),
        })
    }

    /// Ends both directions, whoever waits on them.
    pub fn shut(&self) {
        let _ = match self {
            Self::Tcp(socket) => socket.shutdown(std::net::Shutdown::Both),
            Self::Unix(socket) => socket.shutdown(std::net::Shutdown::Both),
            Self::Quic(pipe) => pipe.socket().shutdown(std::net::Shutdown::Both),
        };
    }

    pub(crate) fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => {
                socket.set_nodelay(true)?;
                socket.set_read_timeout(patience)?;
                socket.set_write_timeout(patience)
            }
            Self::Unix(socket) => {
                socket.set_read_timeout(patience)?;
                socket.set_write_timeout(patience)
            }
            Self::Quic(pipe) => {
                pipe.socket().set_read_timeout(patience)?;
                pipe.socket().set_write_timeout(patience)
            }
        }
    }

    /// Whether QUIC carries it.
    pub const fn is_quic(&self) -> bool {
        matches!(self, Self::Quic(_))
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
            Self::Quic(pipe) => pipe.as_fd(),
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&*socket).read(bytes),
            Socket::Unix(socket) => (&*socket).read(bytes),
            Socket::Quic(pipe) => pipe.socket().read(bytes),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&*socket).write(bytes),
            Socket::Unix(socket) => (&*socket).write(bytes),
            Socket::Quic(pipe) => pipe.socket().write(bytes),
        }
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(socket) => (&*socket).write_vectored(parts),
            Socket::Unix(socket) => (&*socket).write_vectored(parts),
            Socket::Quic(pipe) => pipe.socket().write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket on which everything together has to be there by a time, however it trickles in.
struct Timed<'a>(&'a Socket, Instant);

impl Timed<'_> {
    fn set(&self) -> io::Result<()> {
        let left = self.1.checked_duration_since(Instant::now());
        // A patience of zero would be one without end.
        match left.filter(|left| *left >= Duration::from_millis(1)) {
            Some(left) => self.0.set_patience(Some(left)),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.set()?;
        let mut socket = self.0;
        socket.read(bytes)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.set()?;
        let mut socket = self.0;
        socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether this side writes frames or reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Frames go out.
    Writes,
    /// Frames come in.
    Reads,
}

/// A link after its handshake.
pub struct Link {
    socket: Socket,
    seal: Seal,
    /// Frames sent and received, which number them.
    sent: u64,
    received: u64,
    scratch: Vec<u8>,
    inbox: Inbox,
    /// Bytes of the frame that is being read that are still to come.
    due: usize,
    /// When its handshake has to be through; `None` after it.
    until: Option<Instant>,
}

enum Seal {
    Tls(Box<Connection>),
    /// What carries it encrypts, and this is the connection's secret.
    Carried([u8; 32]),
    /// Frames in clear with a sum under this key, mine and theirs.
    Sum {
        mine: [u8; 32],
        theirs: [u8; 32],
    },
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

/// What one frame is about; what its number means is the sessions' business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// What kind of frame.
    pub kind: u8,
    /// Bytes of what is told about the data.
    pub about: usize,
    /// Bytes of data.
    pub data: usize,
}

/// A frame's own bytes before what it carries: kind, three of zero, two lengths.
const HEAD_BYTES: usize = 12;
/// The sum of a frame in clear, in bytes.
const SUM_BYTES: usize = 16;
/// The most that is told about data, in bytes.
pub const ABOUT_MOST: usize = 1 << 20;
/// The most data of a frame, in bytes.
pub const DATA_MOST: usize = crate::digest::BLOCK_MOST as usize;

/// What says that a listener speaks something else, or has no such session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Welcome,
    Version,
    NoSession,
    Cipher,
    Link,
}

impl Answer {
    const fn code(self) -> u8 {
        match self {
            Self::Welcome => 0,
            Self::Version => 1,
            Self::NoSession => 2,
            Self::Cipher => 3,
            Self::Link => 4,
        }
    }
}

/// A greeting as far as every version has it, and all of it.
const HELLO_BEGIN: usize = 8 + 2 + 2 + 16 + 2 + 1 + 32;
const HELLO_BYTES: usize = HELLO_BEGIN + 2;
const ANSWER_BYTES: usize = 8 + 2 + 2 + 1 + 32;
const MAGIC: &[u8; 8] = b"GOODCOPY";
/// Bytes of nothing behind a greeting, at most.
const FILL_MOST: usize = 16 << 10;
/// Bytes of nothing that open a connection's window while the handshake takes its round trips: with the greeting some of the
/// ten packets that a connection begins with (RFC 6928), and with the proof the twenty that it may send then.
const FILL_GREETING: usize = 12 << 10;
const FILL_PROOF: usize = 27 << 10;
const _: () = assert!(FILL_GREETING <= FILL_MOST);

/// A shell prints no more before what it starts.
const TEXT_MAX: usize = 64 << 10;

/// How long a handshake may take on either side, from its first byte.
pub const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(15);

/// Connects a link: `socket` is connected already.
///
/// # Errors
/// `TimedOut` after `patience` without an answer; `PermissionDenied` where the other side lacks the key or the session,
/// `Unsupported` where it speaks another version or refuses the cipher, each with words for the user; as the socket.
pub fn connect(
    socket: Socket,
    session: SessionId,
    which: Which,
    cipher: Cipher,
    key: &Key,
) -> io::Result<Link> {
    let (patience, fills) = (HANDSHAKE_PATIENCE, None);
    connect_filling(socket, session, which, (cipher, key), patience, fills)
}

/// As [`connect`]. With a round trip, the handshake's packets are filled up with nothing, so that the connection's window is
/// open when it ends: for whoever has much to send over a long path. Where the first answer takes twice as long, the path has
/// a queue already, and no more of it comes.
pub(crate) fn connect_filling(
    socket: Socket,
    session: SessionId,
    which: Which,
    (cipher, key): (Cipher, &Key),
    patience: Duration,
    fills: Option<Duration>,
) -> io::Result<Link> {
    let until = Instant::now() + patience;
    socket.set_patience(Some(patience))?;
    let mut hello = Vec::with_capacity(HELLO_BYTES);
    hello.extend_from_slice(MAGIC);
    hello.extend_from_slice(&VERSION.to_le_bytes());
    hello.extend_from_slice(&VERSION_OLDEST.to_le_bytes());
    hello.extend_from_slice(&session.0);
    hello.extend_from_slice(&which.code().to_le_bytes());
    hello.push(cipher.code());
    hello.extend_from_slice(&nonce()?);
    let fills = fills.filter(|_| !socket.is_quic());
    let fill = if fills.is_some() { FILL_GREETING } else { 0 };
    hello.extend_from_slice(&u16::try_from(fill).unwrap_or(0).to_le_bytes());
    let mut tls = match cipher.suite() {
        Some(suite) if !socket.is_quic() => Some(client(suite).map_err(invalid)?),
        Some(_) => None,
        None if socket.is_quic() => return Err(unsupported("QUIC always encrypts".to_owned())),
        None => None,
    };
    // The first flight of TLS goes with it: one round trip less.
    let mut first = hello.clone();
    first.resize(HELLO_BYTES + fill, 0);
    if let Some(tls) = &mut tls {
        while tls.wants_write() {
            tls.write_tls(&mut first)?;
        }
    }
    let since = Instant::now();
    (&socket).write_all(&first)?;
    let mut answer = [0; ANSWER_BYTES];
    let mut timed = Timed(&socket, until);
    if matches!(timed.0, Socket::Unix(_)) {
        pass_over_text(&mut timed, &mut answer).map_err(patience_ended)?;
    } else {
        timed.read_exact(&mut answer).map_err(patience_ended)?;
    }
    let fills = fills.is_some_and(|round_trip| since.elapsed() < round_trip * 2);
    if answer[..8] != MAGIC[..] {
        return Err(io::Error::new(
            ErrorKind::InvalidData,
            "what answers there is no goodput",
        ));
    }
    let (newest, oldest) = (number(&answer[8..10]), number(&answer[10..12]));
    match answer[12] {
        0 => {}
        1 => {
            return Err(other_version(oldest, newest));
        }
        2 => return Err(denied("the far side knows no such session")),
        3 => {
            return Err(unsupported(format!(
                "the far side does not allow the cipher {}",
                cipher.name()
            )));
        }
        _ => return Err(unsupported("the far side refuses this link".to_owned())),
    }
    let said = [&hello[..], &answer].concat();
    let side = Side::Connects { fills };
    finish(socket, tls, side, cipher, key, &said, until)
}

/// Reads an answer behind whatever a shell prints first, where one starts what carries the link.
///
/// # Errors
/// `InvalidData` where too much comes without one; as read(2).
fn pass_over_text(from: &mut impl Read, answer: &mut [u8; ANSWER_BYTES]) -> io::Result<()> {
    let begin = MAGIC.len();
    from.read_exact(&mut answer[..begin])?;
    for _ in 0..TEXT_MAX {
        if answer[..begin] == MAGIC[..] {
            return from.read_exact(&mut answer[begin..]);
        }
        answer.copy_within(1..begin, 0);
        from.read_exact(&mut answer[begin - 1..begin])?;
    }
    Err(io::Error::new(
        ErrorKind::InvalidData,
        "what answers there prints text and is no goodput",
    ))
}

/// What a listener knows of sessions.
pub trait Sessions {
    /// The key of a session and the ciphers it may use; `None` where there is no such session.
    fn find(&self, session: SessionId) -> Option<(Key, Vec<Cipher>)>;
}

/// Answers who connected.
///
/// # Errors
/// As [`connect`]; `InvalidData` for what is no greeting.
pub fn accept(socket: Socket, sessions: &dyn Sessions) -> io::Result<(SessionId, Which, Link)> {
    accept_by(socket, sessions, None, HANDSHAKE_PATIENCE)
}

/// As [`accept`], but who names no session that runs hears nothing at all, and a greeting has to be there by `greeted`.
///
/// # Errors
/// As [`accept`].
pub fn accept_quietly(
    socket: Socket,
    sessions: &dyn Sessions,
    greeted: Instant,
) -> io::Result<(SessionId, Which, Link)> {
    accept_by(socket, sessions, Some(greeted), HANDSHAKE_PATIENCE)
}

fn accept_by(
    socket: Socket,
    sessions: &dyn Sessions,
    quiet: Option<Instant>,
    patience: Duration,
) -> io::Result<(SessionId, Which, Link)> {
    let until = Instant::now() + patience;
    let mut timed = Timed(&socket, quiet.unwrap_or(until));
    let mut hello = [0; HELLO_BYTES];
    let (begin, end) = hello.split_at_mut(HELLO_BEGIN);
    timed.read_exact(begin).map_err(patience_ended)?;
    if begin[..8] != MAGIC[..] {
        return Err(io::Error::new(ErrorKind::InvalidData, "not a greeting"));
    }
    // An older one is shorter, and has its answer.
    if number(&begin[8..10]) >= VERSION_OLDEST {
        timed.read_exact(end).map_err(patience_ended)?;
        let mut fill = [0; FILL_MOST];
        let Some(fill) = fill.get_mut(..usize::from(number(end))) else {
            return Err(io::Error::new(ErrorKind::InvalidData, "not a greeting"));
        };
        timed.read_exact(fill).map_err(patience_ended)?;
    }
    let mut answer = Vec::with_capacity(ANSWER_BYTES);
    answer.extend_from_slice(MAGIC);
    answer.extend_from_slice(&VERSION.to_le_bytes());
    answer.extend_from_slice(&VERSION_OLDEST.to_le_bytes());
    let (newest, oldest) = (number(&hello[8..10]), number(&hello[10..12]));
    let session = SessionId(hello[12..28].try_into().unwrap_or_default());
    let which = Which::of(number(&hello[28..30]));
    let cipher = Cipher::ALL.into_iter().find(|c| c.code() == hello[30]);
    let known = sessions.find(session);
    if quiet.is_some() && known.is_none() {
        return Err(denied("no such session"));
    }
    socket.set_patience(Some(patience))?;
    let (verdict, agreed) = match (known, cipher, which) {
        _ if oldest > VERSION || newest < VERSION_OLDEST => (Answer::Version, None),
        (None, ..) => (Answer::NoSession, None),
        // What is said comes over TCP only, and in clear over QUIC nothing.
        (Some(_), _, Some(Which::FromSource | Which::FromDestination)) if socket.is_quic() => {
            (Answer::Link, None)
        }
        (Some((key, allowed)), Some(cipher), Some(which))
            if allowed.contains(&cipher) && (cipher.suite().is_some() || !socket.is_quic()) =>
        {
            (Answer::Welcome, Some((key, cipher, which)))
        }
        (_, _, None) => (Answer::Link, None),
        _ => (Answer::Cipher, None),
    };
    answer.push(verdict.code());
    answer.extend_from_slice(&nonce()?);
    (&socket).write_all(&answer)?;
    let Some((key, cipher, which)) = agreed else {
        return Err(match verdict {
            Answer::Version => other_version(oldest, newest),
            _ => denied("refused"),
        });
    };
    let tls = match cipher.suite().filter(|_| !socket.is_quic()) {
        Some(suite) => Some(server(suite).map_err(invalid)?),
        None => None,
    };
    let said = [&hello[..], &answer].concat();
    let link = finish(socket, tls, Side::Listens, cipher, &key, &said, until)?;
    Ok((session, which, link))
}

/// The two sides have no version in common; the other has these.
fn other_version(oldest: u16, newest: u16) -> io::Error {
    unsupported(format!(
        "the far side speaks versions {oldest} to {newest} of the copy protocol, this one \
         {VERSION_OLDEST} to {VERSION}: bring the older one up to date"
    ))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Connects { fills: bool },
    Listens,
}

fn finish(
    socket: Socket,
    tls: Option<Connection>,
    side: Side,
    cipher: Cipher,
    key: &Key,
    said: &[u8],
    until: Instant,
) -> io::Result<Link> {
    let seal = match (tls, &socket) {
        (Some(mut tls), _) => {
            while tls.is_handshaking() {
                tls.complete_io(&mut Timed(&socket, until))
                    .map_err(patience_ended)?;
            }
            while tls.wants_write() {
                tls.write_tls(&mut &socket)?;
            }
            tls.set_buffer_limit(Some(TLS_BUFFER));
            Seal::Tls(Box::new(tls))
        }
        (None, Socket::Quic(pipe)) => Seal::Carried(*pipe.secret()),
        (None, _) => {
            let keys = match cipher {
                Cipher::IntegrityOnly => [
                    key.derived("goodput copy 2026 connector", said),
                    key.derived("goodput copy 2026 listener", said),
                ],
                // No secret: errors are noticed, not hands.
                _ => [[0; 32], [1; 32]],
            };
            match side {
                Side::Connects { .. } => Seal::Sum {
                    mine: keys[0],
                    theirs: keys[1],
                },
                Side::Listens => Seal::Sum {
                    mine: keys[1],
                    theirs: keys[0],
                },
            }
        }
    };
    let mut link = Link {
        socket,
        seal,
        sent: 0,
        received: 0,
        scratch: Vec::new(),
        inbox: Inbox::default(),
        due: 0,
        until: Some(until),
    };
    let bound = link.bound(said)?;
    let proof = |role: &[u8]| {
        let mut mac = Hmac::<Sha256>::new_from_slice(key.bytes()).map_err(io::Error::other)?;
        mac.update(b"goodput copy: ");
        mac.update(role);
        mac.update(&bound);
        Ok::<_, io::Error>(mac)
    };
    let (mine, theirs) = match side {
        Side::Connects { .. } => (proof(b"connector")?, proof(b"listener")?),
        Side::Listens => (proof(b"listener")?, proof(b"connector")?),
    };
    // Who connects proves itself first: a listener says nothing about its key to those who have none.
    if let Side::Connects { fills } = side {
        link.send(PROOF, &mine.clone().finalize().into_bytes(), &[])?;
        if fills {
            link.send(NOTHING, &[], &[0; FILL_PROOF])?;
        }
    }
    let mut buffer = Vec::new();
    let told = link.receive_at_most(&mut buffer, 32, 0);
    let head = match (told, side) {
        (Ok(head), _) => head,
        // Of frames with a keyed sum, the first tells already.
        (Err(error), Side::Listens) if error.kind() == ErrorKind::InvalidData => {
            let _ = link.send(PROOF, &[], &[]);
            return Err(denied("the other side does not hold the session's key"));
        }
        (Err(error), Side::Connects { .. }) if error.kind() == ErrorKind::InvalidData => {
            return Err(denied("the other side does not hold the session's key"));
        }
        (Err(error), _) => return Err(patience_ended(error)),
    };
    if head.kind != PROOF || theirs.verify_slice(&buffer[..head.about]).is_err() {
        if side == Side::Listens {
            // An empty proof is a refusal, so that who has the wrong key need not try again.
            let _ = link.send(PROOF, &[], &[]);
        }
        return Err(denied("the other side does not hold the session's key"));
    }
    if side == Side::Listens {
        link.send(PROOF, &mine.finalize().into_bytes(), &[])?;
    }
    if let Socket::Quic(pipe) = &link.socket {
        pipe.prove();
    }
    link.until = None;
    link.set_patience(Some(HANDSHAKE_PATIENCE))?;
    Ok(link)
}

/// A frame that proves.
const PROOF: u8 = 0;
/// A frame that is passed over.
const NOTHING: u8 = 4;
/// What waits for the kernel in user space, some 8 records of TLS: what a core's own cache holds twice.
const TLS_BUFFER: usize = 128 << 10;
/// What a frame has room for before any of it came.
const GROWS: usize = 64 << 10;

impl Link {
    /// The socket under it.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// How long a read or a write may wait for the other side from now on; `None` for ever.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.socket.set_patience(patience)
    }

    /// Sends one frame. `data` must be covered by a sum in `about` unless it is empty.
    ///
    /// # Errors
    /// As write(2); `TimedOut` when the other side takes nothing for as long as was set.
    pub fn send(&mut self, kind: u8, about: &[u8], data: &[u8]) -> io::Result<()> {
        self.send_gathered(kind, about, &[IoSlice::new(data)])
    }

    /// As [`Link::send`], of data that lies in several places.
    ///
    /// # Errors
    /// As [`Link::send`].
    pub fn send_gathered(
        &mut self,
        kind: u8,
        about: &[u8],
        data: &[IoSlice<'_>],
    ) -> io::Result<()> {
        let data_bytes = data.iter().map(|part| part.len()).sum();
        debug_assert!(about.len() <= ABOUT_MOST && data_bytes <= DATA_MOST);
        self.scratch.clear();
        self.scratch.extend_from_slice(&[kind, 0, 0, 0]);
        let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes();
        self.scratch.extend_from_slice(&length(about.len()));
        self.scratch.extend_from_slice(&length(data_bytes));
        self.scratch.extend_from_slice(about);
        let number = self.sent;
        self.sent += 1;
        if let Seal::Sum { mine, .. } = &self.seal {
            let sum = sum(mine, number, &self.scratch);
            self.scratch.extend_from_slice(&sum);
        }
        let mut parts = Vec::with_capacity(1 + data.len());
        parts.push(IoSlice::new(&self.scratch));
        parts.extend_from_slice(data);
        let mut left = &mut parts[..];
        match &mut self.seal {
            Seal::Tls(tls) => {
                while !left.is_empty() {
                    let taken = tls.writer().write_vectored(left)?;
                    IoSlice::advance_slices(&mut left, taken);
                    if taken == 0 || !left.is_empty() {
                        flush_tls(tls, &self.socket)?;
                    }
                }
                flush_tls(tls, &self.socket)
            }
            Seal::Carried(_) | Seal::Sum { .. } => write_all(&self.socket, left),
        }
    }

    /// The next frame: what it is about and its data lie one after the other in `buffer`, which grows as needed.
    ///
    /// # Errors
    /// As read(2); `UnexpectedEof` at the end; `TimedOut` as set; `InvalidData` for what was changed on its way or is longer
    /// than frames are.
    pub fn receive(&mut self, buffer: &mut Vec<u8>) -> io::Result<FrameHead> {
        loop {
            let head = self.receive_at_most(buffer, ABOUT_MOST, DATA_MOST)?;
            if head.kind != NOTHING {
                return Ok(head);
            }
        }
    }

    fn receive_at_most(
        &mut self,
        buffer: &mut Vec<u8>,
        about_most: usize,
        data_most: usize,
    ) -> io::Result<FrameHead> {
        let mut head = [0; HEAD_BYTES];
        self.read_exact(&mut head)?;
        let length = |at: usize| {
            let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX)
        };
        let (about, data) = (length(4), length(8));
        if head[1..4] != [0; 3] || about > about_most || data > data_most {
            return Err(io::Error::new(ErrorKind::InvalidData, "not a frame"));
        }
        let sum_bytes = match self.seal {
            Seal::Tls(_) | Seal::Carried(_) => 0,
            Seal::Sum { .. } => SUM_BYTES,
        };
        let mut told = [0; SUM_BYTES];
        self.due = about + sum_bytes + data;
        self.fill(buffer, 0, about)?;
        self.read_exact(&mut told[..sum_bytes])?;
        if let Seal::Sum { theirs, .. } = &self.seal {
            self.scratch.clear();
            self.scratch.extend_from_slice(&head);
            self.scratch.extend_from_slice(&buffer[..about]);
            let right = sum(theirs, self.received, &self.scratch);
            // Both are hashes' own, whose equality in constant time costs nothing here.
            if !is_same(&right, &told) {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "a frame was changed on its way",
                ));
            }
        }
        self.received += 1;
        self.fill(buffer, about, about + data)?;
        Ok(FrameHead {
            kind: head[0],
            about,
            data,
        })
    }

    /// Reads what lies from `from` to `to` in `buffer`, which grows to no more than twice of what came, and [`GROWS`].
    fn fill(&mut self, buffer: &mut Vec<u8>, from: usize, to: usize) -> io::Result<()> {
        let mut at = from;
        while at < to {
            let until = to.min(buffer.len().max(2 * at).max(GROWS));
            if buffer.len() < until {
                buffer.resize(until, 0);
            }
            self.read_exact(&mut buffer[at..until])?;
            at = until;
        }
        Ok(())
    }

    fn read_exact(&mut self, mut bytes: &mut [u8]) -> io::Result<()> {
        let Seal::Tls(tls) = &mut self.seal else {
            let read = match self.until {
                Some(until) => Timed(&self.socket, until).read_exact(bytes),
                None => self.inbox.fill(&self.socket, bytes),
            };
            return read.map_err(patience_ended);
        };
        while !bytes.is_empty() {
            match tls.reader().fill_buf() {
                Ok([]) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(ready) => {
                    let taken = ready.len().min(bytes.len());
                    bytes[..taken].copy_from_slice(&ready[..taken]);
                    tls.reader().consume(taken);
                    bytes = &mut bytes[taken..];
                    self.due = self.due.saturating_sub(taken);
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if let Some(until) = self.until {
                Timed(&self.socket, until).set().map_err(patience_ended)?;
            }
            // Zero bytes are the end, which `reader` tells after the next look.
            tls.read_tls(&mut self.inbox.of(&self.socket, self.due))
                .map_err(patience_ended)?;
            tls.process_new_packets().map_err(invalid)?;
            // New keys are answered with new keys.
            if tls.wants_write() {
                flush_tls(tls, &self.socket)?;
            }
        }
        Ok(())
    }

    /// What a proof on this connection, and on no other, is over.
    fn bound(&self, said: &[u8]) -> io::Result<Vec<u8>> {
        let mut bound = said.to_vec();
        match &self.seal {
            Seal::Tls(tls) => {
                let secret = tls
                    .export_keying_material([0; 32], b"EXPORTER-Channel-Binding", Some(&[]))
                    .map_err(invalid)?;
                bound.extend_from_slice(&secret);
            }
            Seal::Carried(secret) => bound.extend_from_slice(secret),
            Seal::Sum { .. } => {}
        }
        Ok(bound)
    }
}

/// Bytes a second that this core encrypts and decrypts one after the other with a cipher, in the best of some turns: in the
/// others it may have had something else to do. `None` where it is none of TLS. Takes some milliseconds.
pub fn speed(cipher: Cipher) -> Option<f64> {
    let suite = cipher.suite()?;
    let (mut near, mut far) = (client(suite).ok()?, server(suite).ok()?);
    let mut wire = Vec::new();
    let mut pass = |from: &mut Connection, to: &mut Connection| -> Option<()> {
        wire.clear();
        while from.wants_write() {
            from.write_tls(&mut wire).ok()?;
        }
        let mut left = &wire[..];
        while !left.is_empty() {
            to.read_tls(&mut left).ok()?;
            to.process_new_packets().ok()?;
            let read = to.reader().fill_buf().map_or(0, <[u8]>::len);
            to.reader().consume(read);
        }
        Some(())
    };
    for _ in 0..3 {
        pass(&mut near, &mut far)?;
        pass(&mut far, &mut near)?;
    }
    let block = vec![0x5a; 64 << 10];
    let mut best = 0.0_f64;
    for _ in 0..SPEED_TURNS {
        let since = Instant::now();
        for _ in 0..SPEED_BLOCKS {
            near.writer().write_all(&block).ok()?;
            pass(&mut near, &mut far)?;
        }
        let passed = (SPEED_BLOCKS * block.len()) as f64;
        best = best.max(passed / since.elapsed().as_secs_f64().max(1e-9));
    }
    Some(best)
}

/// What a cipher's speed is measured with: blocks of 64 KiB in a turn, and turns.
const SPEED_BLOCKS: usize = 8;
const SPEED_TURNS: usize = 8;

fn flush_tls(tls: &mut Connection, mut socket: &Socket) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(&mut socket).map_err(patience_ended)?;
    }
    Ok(())
}

/// All parts in as few calls as may be.
fn write_all(mut socket: &Socket, mut left: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !left.is_empty() {
        match socket.write_vectored(left) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(patience_ended(error)),
        }
    }
    Ok(())
}

fn sum(key: &[u8; 32], number: u64, bytes: &[u8]) -> [u8; SUM_BYTES] {
    let mut hasher = Hasher::new_keyed(key);
    hasher.update(&number.to_le_bytes());
    hasher.update(bytes);
    let mut sum = [0; SUM_BYTES];
    sum.copy_from_slice(&hasher.finalize().as_bytes()[..SUM_BYTES]);
    sum
}

fn is_same(a: &[u8; SUM_BYTES], b: &[u8; SUM_BYTES]) -> bool {
    // `Hash` compares in constant time.
    let wide = |bytes: &[u8; SUM_BYTES]| {
        let mut wide = [0; 32];
        wide[..SUM_BYTES].copy_from_slice(bytes);
        blake3::Hash::from_bytes(wide)
    };
    wide(a) == wide(b)
}

fn number(bytes: &[u8]) -> u16 {
    u16::from_le_bytes([bytes[0], bytes[1]])
}

fn client(suite: SupportedCipherSuite) -> Result<Connection, rustls::Error> {
    let name = ServerName::try_from(tls::NAME)
        .map_err(|_| rustls::Error::General("a name that is none".to_owned()))?;
    Ok(ClientConnection::new(Arc::new(tls::client_config(suite)?), name)?.into())
}

fn server(suite: SupportedCipherSuite) -> Result<Connection, rustls::Error> {
    Ok(ServerConnection::new(Arc::new(tls::server_config(suite)?))?.into())
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

fn denied(words: &'static str) -> io::Error {
    io::Error::new(ErrorKind::PermissionDenied, words)
}

fn unsupported(words: String) -> io::Error {
    io::Error::new(ErrorKind::Unsupported, words)
}

/// A socket whose time is over says `EAGAIN` (socket(7)), which is no word for a user.
fn patience_ended(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => io::Error::new(ErrorKind::TimedOut, "the other side is silent"),
        _ => error,
    }
}

mod inbox;
#[cfg(test)]
mod tests;
