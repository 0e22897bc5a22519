//! What the other side of a copy is told to do, and what it answers: JSON, an object a line, with
//! the session's key.
//!
//! [`super::agent`] has it from ssh, [`super::daemon`] from a connection; both have
//! [`Job::perform`] do it.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::destination::{Destination, folder_above};
use crate::engine::disk::Io;
use crate::engine::fetch::fetch;
use crate::engine::gaps::Pacing;
use crate::engine::help::help;
use crate::engine::receive::{Prepared, ReceiveOptions, prepare, receive_prepared};
use crate::engine::send::{SendOptions, send};
use crate::engine::tune::Streams;
use crate::engine::{Connection, CopyError, Note, Watch};
use crate::filter::Filter;
use crate::meeting::Meeting;
use crate::message::Account;
use crate::quic::{self, Carriage, Transport};
use crate::reason::reason;
use crate::source::{Keep, Source, SourceError};
use crate::{Cipher, RelPath};
use serde::{Deserialize, Serialize};
use wire::tcp_info::TcpInfo;

use super::joined;
use super::limits::{self, Limits};
use super::progress::FIELDS;
use super::ways::WayTo;
use super::{Plan, told, why};
use fault::{Cause, Failure};
use sys::threads::Crew;

/// The longest job, in bytes: paths and patterns.
pub(super) const JOB_MOST: u64 = 16 << 20;
/// The longest list of files, in bytes.
const LIST_MOST: u64 = 256 << 20;
/// How long a connection may take to be made.
pub(super) const CONNECT: Duration = Duration::from_secs(10);

/// What the far side is to do.
#[derive(Clone, Serialize, Deserialize)]
pub struct Job {
    pub(super) version: u32,
    pub(super) session: String,
    pub(super) key: String,
    pub(super) is_source: bool,
    pub(super) meets: Meets,
    pub(super) cipher: Cipher,
    pub(super) allowed: Vec<Cipher>,
    pub(super) paths: Vec<Vec<u8>>,
    pub(super) is_one_file: bool,
    pub(super) only: Option<Vec<Vec<u8>>>,
    keep: [bool; 5],
    /// Of jobs that older versions make: rules that come before all others.
    includes: Vec<String>,
    /// Rules in order; `+ ` in front of those that include.
    excludes: Vec<String>,
    streams: Option<u16>,
    block: Option<u32>,
    /// Limits by time of day, and how far the user's clock is from UTC, in minutes.
    limits: Option<String>,
    clock_minutes: i32,
    /// What is written is read back.
    verify: bool,
    congestion: Option<String>,
    /// What carries blocks; who does not know of it has TCP.
    #[serde(default)]
    pub(super) transport: Transport,
    /// Whether streams are paced; chosen where nothing is said.
    #[serde(default)]
    paced: Option<bool>,
    /// How its files are read or written; who does not know of it goes through the cache.
    #[serde(default)]
    io: Io,
    delete: bool,
    pub(super) dry: bool,
    fsync: bool,
    checksum: bool,
    null: bool,
    /// Set-user-ID bits are kept.
    pub(super) set_id: bool,
    identity: [u8; 16],
    /// Of a source: names out of its one folder, as `--files-from` takes them, a letter for each byte.
    #[serde(default)]
    pub(super) list: Option<String>,
    /// Other hosts see the same files: they write blocks of a destination, and read those of a source.
    #[serde(default)]
    pub(super) has_helpers: bool,
    /// Does so, for a host that leads and is reached so.
    #[serde(default)]
    pub(super) helps: Option<Vec<SocketAddr>>,
    /// Only its first answer is wanted; who does not know of this waits for the other side until its input ends.
    #[serde(default)]
    pub(super) asks: bool,
    /// Of a source: the other side understands word of whether a name's attributes are all told.
    #[serde(default)]
    pub(super) all_attributes: bool,
    /// Of a source: the other side understands blocks without their pages of zeros.
    #[serde(default)]
    pub(super) gaps: bool,
    /// Of a destination: the first names that come, a letter for each byte; none where they are not known.
    #[serde(default)]
    pub(super) first_names: Vec<String>,
    /// Of a source: nothing stands at the destination, which takes small files that it did not ask for.
    #[serde(default)]
    pub(super) unasked: bool,
}

/// Not shown: the key.
impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("version", &self.version)
            .field("session", &self.session)
            .field("is_source", &self.is_source)
            .field("meets", &self.meets)
            .finish_non_exhaustive()
    }
}

/// What every version of a job has.
#[derive(Deserialize)]
struct AnyJob {
    version: u32,
}

/// First names that are told of a source, at most: of more, a destination looks whether anything stands there.
const FIRST_NAMES_MOST: usize = 64;

/// The layout of [`Job`] and [`Reply`], and the oldest that is understood: a job that needs nothing newer is of that one.
pub(super) const JOB_VERSION: u32 = 5;
/// From this one on there are lists, several addresses, and anything.
const JOB_VERSION_LISTS: u32 = 5;
const JOB_VERSION_SEVERAL: u32 = 4;
const JOB_VERSION_OLDEST: u32 = 3;

/// How the two sides come together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Meets {
    /// The far side listens where ssh reached it, on this port or any.
    Listens { port: u16 },
    /// It listens to its own host only, for what ssh carries.
    ListensInside,
    /// It connects to one of these.
    Connects { to: Vec<SocketAddr> },
    /// It connects to where ssh came from, on this port.
    ConnectsBack { port: u16 },
    /// It listens at all of these, or, where none are said, at an address of each of its interfaces, on this port or any.
    ListensAt { addresses: Vec<IpAddr>, port: u16 },
    /// It connects by all of these.
    ConnectsOver { ways: Vec<WayTo> },
}

impl Meets {
    /// The oldest version of jobs that has it.
    const fn version(&self) -> u32 {
        match self {
            Self::Listens { .. }
            | Self::ListensInside
            | Self::Connects { .. }
            | Self::ConnectsBack { .. } => JOB_VERSION_OLDEST,
            Self::ListensAt { .. } | Self::ConnectsOver { .. } => JOB_VERSION_SEVERAL,
        }
    }
}

/// What the far side says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// It can begin.
    Ready(Ready),
    /// How far it is, and where its time went.
    Progress {
        confirmed_bytes: u64,
        wanted_bytes: u64,
        names: u64,
        placed: u64,
        streams: u64,
        /// Of the threads that carry blocks: files, sums, connections, waiting.
        #[serde(default)]
        spent_ns: [u64; 4],
        #[serde(default)]
        cpu_ns: u64,
        /// Of a source, some times a second.
        #[serde(default)]
        connections: Vec<ConnectionNow>,
        /// The same of streams over QUIC: their numbers, and [`crate::quic::Counts::to_words`].
        #[serde(default)]
        over_quic: Vec<(u16, Vec<u64>)>,
        /// Of the thread that moves QUIC's packets.
        #[serde(default)]
        quic_cpu_ns: u64,
        /// Bytes of blocks that went past its page cache.
        #[serde(default)]
        direct_bytes: u64,
        /// The session is done, and nothing is to come but [`Self::Done`], which says the same a round trip later.
        #[serde(default)]
        is_last: bool,
    },
    /// Something the user is to know.
    Note(String),
    /// All is done.
    Done {
        numbers: [u64; 8],
        sent_bytes: u64,
        unread: u64,
        /// Of the threads that carry blocks: files, sums, connections, waiting.
        #[serde(default)]
        spent_ns: [u64; 4],
        #[serde(default)]
        cpu_ns: u64,
        /// QUIC carried blocks at the end.
        #[serde(default)]
        over_quic: bool,
        /// Of the thread that moves its packets.
        #[serde(default)]
        quic_cpu_ns: u64,
        /// Bytes of blocks that went past its page cache.
        #[serde(default)]
        direct_bytes: u64,
        /// Of a source: sockets, named pipes and devices that it skipped.
        #[serde(default)]
        specials: [u64; 3],
    },
    /// It gave up; whether its own host is at fault.
    Failed { why: String, is_here: bool },
}

/// What a kernel says of a stream's connection: the stream, since when and when in nanoseconds by a clock of the sending side,
/// and [`FIELDS`].
pub(super) type ConnectionNow = (u16, [u64; 2], Vec<u64>);

/// What of a connection is told.
fn connection_now(stream: u16, connection: &Connection) -> ConnectionNow {
    let fields = FIELDS.iter().map(|name| {
        let mut all = connection.info.fields();
        all.find(|(found, _)| found == name).map(|(_, value)| value)
    });
    // What a kernel does not know ends the list: fields are in the order in which kernels learned them.
    let known = fields.map_while(|field| field).collect();
    (stream, [connection.since_ns, connection.at_ns], known)
}

/// What was told of a connection.
pub(super) fn connection_of((stream, times, told): &ConnectionNow) -> Option<(u16, Connection)> {
    let mut info = TcpInfo::default();
    for (name, value) in FIELDS.iter().zip(told) {
        info.set(name, *value);
    }
    let [since_ns, at_ns] = *times;
    let now = Connection {
        since_ns,
        at_ns,
        info,
    };
    (!told.is_empty()).then_some((*stream, now))
}

/// What is known when the far side can begin.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Ready {
    /// Where it listens.
    pub(super) at: Option<SocketAddr>,
    /// Of a source: it is one file.
    pub(super) is_one_file: bool,
    /// Bytes a second that it encrypts and decrypts, by cipher.
    pub(super) speeds: Vec<(Cipher, f64)>,
    /// It knows of QUIC, and where it listens has a port for it.
    #[serde(default)]
    pub(super) quic: bool,
    /// All addresses that it listens at, with their interfaces, where there are several.
    #[serde(default)]
    pub(super) all: Vec<(SocketAddr, String)>,
    /// Cores that it may use; 0 of one that does not tell.
    #[serde(default)]
    pub(super) cores: u32,
    /// What TCP's buffers grow to there at most, in bytes, to send and to receive; 0 as before.
    #[serde(default)]
    pub(super) buffers: [u64; 2],
    /// It understands word of whether a name's attributes are all told.
    #[serde(default)]
    pub(super) all_attributes: bool,
    /// It understands blocks without their pages of zeros.
    #[serde(default)]
    pub(super) gaps: bool,
    /// Of a destination: nothing stands there, and it takes small files that it did not ask for.
    #[serde(default)]
    pub(super) unasked: bool,
}

impl Ready {
    /// What this host tells of itself, with its ciphers' speeds.
    pub(super) fn of_this_host(speeds: Vec<(Cipher, f64)>) -> Self {
        let cores = thread::available_parallelism().map_or(0, usize::from);
        Self {
            speeds,
            cores: u32::try_from(cores).unwrap_or(0),
            buffers: why::buffers_here().map(Option::unwrap_or_default),
            all_attributes: true,
            gaps: true,
            ..Self::default()
        }
    }
}

/// Why a line is no job.
#[derive(Debug, PartialEq, Eq)]
pub enum NoJob {
    /// Something else altogether.
    None,
    /// Of another version.
    Version(u32),
}

impl NoJob {
    /// For the user of the other side.
    pub fn words(&self) -> String {
        let mine = env!("CARGO_PKG_VERSION");
        match self {
            Self::None => format!("goodput {mine} of this host was told what is no job"),
            Self::Version(version) => format!(
                "this host's goodput {mine} has jobs of versions {JOB_VERSION_OLDEST} to {JOB_VERSION}, \
                 the other's has {version}: bring the older one up to date"
            ),
        }
    }
}

impl Job {
    /// A job for one side of a plan.
    pub(super) fn of(plan: &Plan, is_source: bool, meets: Meets) -> Result<Self, Failure> {
        let request = &plan.request;
        let operands = match is_source {
            true => &plan.from[..],
            false => std::slice::from_ref(&plan.to),
        };
        let keep = request.keep;
        let options = request.send_options()?;
        // The far side need not be asked whether the patterns are any.
        request.filter()?;
        let list = match is_source {
            true => plan.list()?.map(letters),
            false => None,
        };
        let first_names = match is_source {
            true => None,
            false => plan.only()?,
        };
        let first_names = first_names.filter(|names| names.len() <= FIRST_NAMES_MOST);
        let first_names = first_names.unwrap_or_default();
        let first_names = first_names.iter().map(|name| letters(name)).collect();
        let bytes = |operand: &super::Operand| operand.path().as_os_str().as_bytes().to_vec();
        Ok(Self {
            version: match list {
                Some(_) => JOB_VERSION_LISTS,
                None => meets.version(),
            },
            list,
            session: plan.session.to_string(),
            key: plan.key.to_hex(),
            is_source,
            meets,
            cipher: plan.cipher,
            allowed: plan.allowed(),
            paths: operands.iter().map(bytes).collect(),
            is_one_file: false,
            only: None,
            keep: [
                keep.mode,
                keep.owner,
                keep.times,
                keep.attributes,
                keep.links,
            ],
            includes: Vec::new(),
            excludes: request.rules.lines()?.to_vec(),
            streams: request.streams,
            block: options.block,
            limits: Limits::of(request)?.text(),
            clock_minutes: limits::clock_minutes(),
            verify: request.verify,
            congestion: request.congestion.clone(),
            transport: request.transport(),
            paced: match request.pacing {
                Pacing::Chosen => None,
                pacing => Some(pacing == Pacing::Even),
            },
            io: request.io(is_source),
            delete: request.delete,
            dry: request.dry_run,
            fsync: request.fsync,
            checksum: request.checksum,
            null: match is_source {
                true => request.null_source.is_some(),
                false => request.null_sink,
            },
            // Whoever sends from here reads what is this user's own; of two far hosts, neither has the other.
            set_id: request.set_id || !plan.from[0].is_far(),
            identity: plan.identity(),
            has_helpers: false,
            helps: None,
            asks: false,
            all_attributes: is_source,
            gaps: is_source && plan.from[0].beside().is_empty(),
            first_names,
            unasked: false,
        })
    }

    /// The same for a destination that other hosts write blocks for.
    pub(super) fn leading(self) -> Self {
        Self {
            version: self.version.max(JOB_VERSION_SEVERAL),
            has_helpers: true,
            ..self
        }
    }

    /// The same for a host that writes blocks for the one that leads.
    pub(super) fn helping(self, leader: Vec<SocketAddr>) -> Self {
        Self {
            version: self.version.max(JOB_VERSION_SEVERAL),
            has_helpers: false,
            helps: Some(leader),
            // What is tried and measured is one path.
            transport: match self.transport {
                Transport::Auto => Transport::Tcp,
                other => other,
            },
            ..self
        }
    }

    /// Reads what came as one line.
    ///
    /// # Errors
    /// Why not, for the other side's user: another version, or no job at all.
    pub fn read(line: &[u8]) -> Result<Self, NoJob> {
        let AnyJob { version } = serde_json::from_slice(line).map_err(|_| NoJob::None)?;
        if !(JOB_VERSION_OLDEST..=JOB_VERSION).contains(&version) {
            return Err(NoJob::Version(version));
        }
        serde_json::from_slice(line).map_err(|_| NoJob::None)
    }

    /// Nothing at a destination is made, nor written.
    pub(super) const fn makes_nothing(&self) -> bool {
        self.dry || self.null
    }

    /// Whether small files may come to a destination before it asks for them: nothing stands in their way.
    pub(super) fn takes_unasked(&self, ends: &Ends) -> bool {
        let Ends::Destination(destination, name, _) = ends else {
            return false;
        };
        if self.makes_nothing() || self.has_helpers {
            return false;
        }
        let path = |name: &String| RelPath::new(&bytes_of(name)?).ok();
        let names: Option<Vec<_>> = match name {
            Some(name) => Some(vec![name.clone()]),
            None => self.first_names.iter().map(path).collect(),
        };
        names.is_some_and(|names| destination.is_free(&names))
    }

    pub(super) fn filter(&self) -> Result<Filter, Cause> {
        let mut filter = Filter::new();
        for pattern in &self.includes {
            filter.include(pattern.as_bytes())?;
        }
        for pattern in &self.excludes {
            filter.exclude(pattern.as_bytes())?;
        }
        Ok(filter)
    }

    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.paths.iter().map(|bytes| at_home(bytes)).collect()
    }

    /// What it says of a source, opened.
    pub(super) fn source(&self) -> Result<Source, Cause> {
        let paths = self.paths();
        let opened = match (&self.list, &paths[..]) {
            (None, _) => Source::open(&paths),
            (Some(list), [folder]) => {
                let list = bytes_of(list).ok_or("a list of no bytes")?;
                Source::from_list(folder, crate::source::listed(&list, false)?)
            }
            (Some(_), _) => return Err("a list goes with one folder".into()),
        };
        opened.map_err(|error| {
            let is_missing = matches!(&error, SourceError::Open { error, .. } if error.kind() == io::ErrorKind::NotFound);
            let is_wild = self.paths.iter().any(|path| path.iter().any(|byte| b"*?[".contains(byte)));
            match is_missing && is_wild {
                true => Cause::from(format!(
                    "{error}; names are not expanded on another host: say the folder, and choose with --include and --exclude"
                )),
                false => Cause::from(error),
            }
        })
    }

    fn send_options(&self) -> SendOptions {
        let [mode, owner, times, attributes, links] = self.keep;
        SendOptions {
            keep: Keep {
                mode,
                owner,
                times,
                attributes,
                links,
            },
            streams: match self.streams {
                Some(n) => Streams::Fixed(n),
                None => Streams::Chosen { most: 32 },
            },
            block: self.block,
            limit: None,
            null: self.null,
            congestion: self.congestion.clone(),
            pacing: match self.paced {
                None => Pacing::Chosen,
                Some(true) => Pacing::Even,
                Some(false) => Pacing::Off,
            },
            has_helpers: self.has_helpers,
            io: self.io,
            tells_all_attributes: self.all_attributes,
            leaves_out_zeros: self.gaps,
            unasked: self.unasked,
        }
    }
}

/// A letter for each byte: names need not be UTF-8, and JSON's lists of numbers take four times as much.
fn letters(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// The bytes that letters stand for.
fn bytes_of(letters: &str) -> Option<Vec<u8>> {
    let bytes = letters
        .chars()
        .map(|letter| u8::try_from(u32::from(letter)).ok());
    bytes.collect()
}

/// A path as a shell in the home folder would have it.
fn at_home(bytes: &[u8]) -> PathBuf {
    let home = || std::env::var_os("HOME").map(PathBuf::from);
    match bytes {
        b"~" => home().unwrap_or_else(|| PathBuf::from(".")),
        [b'~', b'/', rest @ ..] => {
            let rest = OsString::from_vec(rest.to_vec());
            home().map_or_else(|| PathBuf::from(&rest), |home| home.join(&rest))
        }
        _ => PathBuf::from(OsString::from_vec(bytes.to_vec())),
    }
}

/// The destination that was typed, and the new name of a source that is one file.
pub(super) fn destination(
    typed: &Path,
    is_one_file: bool,
    dry: bool,
) -> Result<(Destination, Option<RelPath>), Cause> {
    Destination::resolve(typed, is_one_file, dry).map_err(|error| not_written(typed, &error))
}

/// Why a destination cannot be written in. Nothing was made yet.
fn not_written(typed: &Path, error: &io::Error) -> Cause {
    if error.raw_os_error().is_none() {
        return format!("{}: {error}", typed.display()).into();
    }
    let place = match typed.symlink_metadata() {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => folder_above(typed),
        _ => typed,
    };
    let (place, why) = (place.display(), reason(error));
    format!("cannot write in {place} ({why}); nothing was copied").into()
}

/// The faster of the ciphers that keep what is sent from others' eyes, on this host.
pub(super) fn faster_cipher() -> Cipher {
    let mut best = (Cipher::Aes128Gcm, 0.0);
    for (cipher, speed) in speeds() {
        if speed > best.1 {
            best = (cipher, speed);
        }
    }
    best.0
}

/// Bytes a second that this host encrypts and decrypts on one core; measured once.
pub(super) fn speeds() -> Vec<(Cipher, f64)> {
    static SPEEDS: OnceLock<Vec<(Cipher, f64)>> = OnceLock::new();
    let measure = || {
        [Cipher::Aes128Gcm, Cipher::Chacha20Poly1305]
            .into_iter()
            .filter_map(|cipher| Some((cipher, crate::link::speed(cipher)?)))
            .collect()
    };
    SPEEDS.get_or_init(measure).clone()
}

/// Names of files, one a line.
pub(super) fn read_list(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    match path.as_os_str().as_bytes() {
        b"-" => io::stdin().take(LIST_MOST + 1).read_to_end(&mut text)?,
        _ => std::fs::File::open(path)?
            .take(LIST_MOST + 1)
            .read_to_end(&mut text)?,
    };
    if text.len() as u64 > LIST_MOST {
        return Err(io::Error::other("a list of more than 256 MiB"));
    }
    Ok(text)
}

/// What carries blocks to whoever listens here: datagrams come at the same addresses and ports as connections.
pub fn carriage(wish: Transport, listeners: &[TcpListener]) -> Carriage {
    match (wish, listeners.len()) {
        (Transport::Tcp, _) => Carriage::default(),
        // What is tried and measured is one path.
        (Transport::Auto, 2..) => Carriage::nowhere(wish),
        // A port that is taken for UDP leaves TCP.
        _ => {
            let sockets = listeners.iter().map(quic::beside);
            Carriage::listening_at(wish, sockets.filter_map(Result::ok).collect())
        }
    }
}

/// What carries blocks from whoever connects by so many ways.
pub fn connecting(wish: Transport, ways: usize) -> Carriage {
    match (wish, ways) {
        (Transport::Auto, 2..) => Carriage::nowhere(wish),
        _ => Carriage::connecting(wish),
    }
}

/// What is said at the end.
pub(super) fn last_word(result: Result<Account, Failed>, watch: &Watch) -> Reply {
    match result {
        Ok(account) => Reply::Done {
            numbers: account.numbers(),
            sent_bytes: watch.sent_bytes.load(Ordering::Relaxed),
            unread: watch.unread.load(Ordering::Relaxed),
            spent_ns: told::spent(watch, None).times_ns,
            cpu_ns: sys::clock::process_cpu().as_ns(),
            over_quic: watch.is_quic.load(Ordering::Relaxed),
            quic_cpu_ns: watch.quic_cpu_ns.load(Ordering::Relaxed),
            direct_bytes: watch.direct_bytes.load(Ordering::Relaxed),
            specials: watch.specials(),
        },
        Err((why, is_here)) => Reply::Failed { why, is_here },
    }
}

/// Why a far side gave up, and whether its own host is at fault.
pub(super) type Failed = (String, bool);

/// What a far side works on.
pub(super) enum Ends {
    Source(Source),
    /// Where to, its new name where the source is one file, and what was opened there.
    Destination(Box<Destination>, Option<RelPath>, Option<Prepared>),
    /// A destination, or a source, that another host leads, and how that one is met.
    Writer(Box<Destination>, Box<Meeting>),
    Reader(Source, Box<Meeting>),
}

impl Ends {
    pub(super) fn is_one_file(&self) -> bool {
        matches!(self, Self::Source(source) if source.is_one_file())
    }

    /// Opens what a destination needs: one that cannot be written in is reported before anybody connects.
    ///
    /// # Errors
    /// Why not, with whose fault it is.
    pub(super) fn prepare(self, job: &Job, filter: &Filter, watch: &Watch) -> Result<Self, Failed> {
        let Self::Destination(destination, name, _) = self else {
            return Ok(self);
        };
        let options = job.receive_options(name.clone(), filter);
        let prepared = prepare(&destination, &options, &|| watch.is_stopped());
        let prepared = prepared.map_err(|error| (error.to_string(), true))?;
        Ok(Self::Destination(destination, name, Some(prepared)))
    }
}

impl Job {
    /// Does it, and closes the meeting; tells by `say`, and stops once `is_ended`.
    pub(super) fn perform(
        &self,
        ends: Ends,
        filter: &Filter,
        meeting: &Meeting,
        watch: &Watch,
        say: &mut dyn FnMut(&Reply),
        is_ended: &dyn Fn() -> bool,
    ) -> Result<Account, Failed> {
        let mut limits = Limits::told(self.limits.as_deref(), self.clock_minutes)
            .map_err(|error| (error, true))?;
        if self.is_source {
            limits.tick(watch);
        }
        let crew = Crew::new(|_: &io::Error| meeting.close());
        let done = thread::scope(|scope| {
            let working = crew.start(scope, "gp-works", || match ends {
                Ends::Source(source) => send(meeting, &source, filter, &self.send_options(), watch),
                Ends::Writer(target, leader) => {
                    help(meeting, &leader, &target, watch).map(|()| Account::default())
                }
                Ends::Reader(source, leader) => {
                    fetch(meeting, &leader, &source, watch).map(|()| Account::default())
                }
                Ends::Destination(target, name, prepared) => {
                    let options = self.receive_options(name, filter);
                    self.receive_into(*target, prepared, &options, meeting, watch)
                }
            });
            let (mut told, mut looks) = (0, 0_u64);
            let mut is_last_told = false;
            while !joined::is_over(&working) {
                let due = Instant::now() + Duration::from_millis(100);
                while Instant::now() < due && !joined::is_over(&working) {
                    // The other side waits for it.
                    if !is_last_told && watch.is_finished.load(Ordering::Relaxed) {
                        is_last_told = true;
                        told = tell_notes(watch, told, say);
                        tell_progress(watch, true, true, say);
                    }
                    thread::sleep(Duration::from_millis(2));
                }
                if is_ended() {
                    watch.stop();
                }
                told = tell_notes(watch, told, say);
                if self.is_source
                    && let Some(text) = limits.tick(watch)
                {
                    say(&Reply::Note(text));
                }
                looks += 1;
                tell_progress(watch, looks % TELL_EACH == 0, false, say);
            }
            tell_notes(watch, told, say);
            // Whoever sent does not wait for the last word.
            tell_progress(watch, true, false, say);
            let done = joined::join(working, &crew);
            meeting.close();
            done
        });
        match done {
            Ok(account) => Ok(account),
            Err(error) => Err((
                error.to_string(),
                matches!(error, CopyError::Here(_) | CopyError::Refused(_)),
            )),
        }
    }

    fn receive_into(
        &self,
        target: Destination,
        prepared: Option<Prepared>,
        options: &ReceiveOptions,
        meeting: &Meeting,
        watch: &Watch,
    ) -> Result<Account, CopyError> {
        let target = match self.verify {
            true => target.with_read_back(),
            false => target,
        };
        let prepared = match prepared {
            Some(prepared) => prepared,
            None => prepare(&target, options, &|| watch.is_stopped())?,
        };
        receive_prepared(meeting, &target, prepared, options, watch)
    }

    fn receive_options(&self, name: Option<RelPath>, filter: &Filter) -> ReceiveOptions {
        let only = self.only.clone();
        ReceiveOptions {
            only: only.map(|all| all.into_iter().map(Vec::into).collect()),
            name,
            delete: self.delete,
            dry: self.dry,
            fsync: self.fsync,
            checksum: self.checksum,
            null: self.null,
            has_helpers: self.has_helpers,
            filter: filter.clone(),
            identity: self.identity,
            io: self.io,
        }
    }
}

fn tell_notes(watch: &Watch, told: usize, say: &mut dyn FnMut(&Reply)) -> usize {
    let (notes, _) = watch.notes(told);
    for note in &notes {
        let (Note::Skipped(text) | Note::Chosen(text)) = note;
        say(&Reply::Note(text.clone()));
    }
    told + notes.len()
}

/// Connections are told of each so many times.
const TELL_EACH: u64 = 5;

fn tell_progress(watch: &Watch, connections: bool, is_last: bool, say: &mut dyn FnMut(&Reply)) {
    let now = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    say(&Reply::Progress {
        confirmed_bytes: now(&watch.confirmed_bytes),
        wanted_bytes: now(&watch.wanted_bytes),
        names: now(&watch.names),
        placed: now(&watch.placed),
        streams: now(&watch.streams),
        spent_ns: told::spent(watch, None).times_ns,
        cpu_ns: sys::clock::process_cpu().as_ns(),
        connections: match connections {
            true => {
                let all = watch.connections();
                let all = all.iter().map(|(n, now)| connection_now(*n, now));
                all.collect()
            }
            false => Vec::new(),
        },
        over_quic: match connections {
            true => {
                let all = watch.over_quic().into_iter();
                all.map(|(n, counts)| (n, counts.to_words().to_vec()))
                    .collect()
            }
            false => Vec::new(),
        },
        quic_cpu_ns: now(&watch.quic_cpu_ns),
        direct_bytes: now(&watch.direct_bytes),
        is_last,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_says_of_a_connection_arrives_as_far_as_it_knows() {
        let mut info = TcpInfo::default();
        // As many fields as Linux 4.6 has.
        for name in ["snd_mss_bytes", "rtt_us", "bytes_acked", "min_rtt_us"] {
            assert!(info.set(name, 1_448));
        }
        let told = connection_now(
            5,
            &Connection {
                since_ns: 8,
                at_ns: 9,
                info,
            },
        );
        let line = serde_json::to_vec(&told).unwrap();
        let (stream, heard) = connection_of(&serde_json::from_slice(&line).unwrap()).unwrap();
        assert_eq!((stream, heard.since_ns, heard.at_ns), (5, 8, 9));
        let of = |info: &TcpInfo| [info.rtt_us, info.bytes_acked, info.busy_time_us];
        assert_eq!(of(&heard.info), of(&info));
        // Shares are told by kernels only that keep the clocks.
        assert!(heard.info.len_bytes <= info.len_bytes);
        assert_eq!(connection_of(&(0, [0, 0], Vec::new())), None);
        assert!(connection_of(&(u16::MAX, [0, 1], vec![1; 99])).is_some());
    }

    #[test]
    fn a_job_of_an_older_version_is_read_and_one_of_a_newer_is_refused_with_both_versions() {
        let text = r#"{"version":3,"session":"00","key":"00","is_source":true,
            "meets":{"Listens":{"port":7}},"cipher":"aes-128-gcm","allowed":["aes-128-gcm"],
            "paths":[[97]],"is_one_file":false,"only":null,"keep":[true,true,true,true,true],
            "includes":[],"excludes":[],"streams":null,"block":null,"limits":null,
            "clock_minutes":0,"verify":false,"congestion":null,"delete":false,"dry":false,
            "fsync":true,"checksum":false,"null":false,"set_id":false,
            "identity":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}"#;
        let job = Job::read(text.as_bytes()).unwrap();
        // What it does not know of is as it was before.
        assert_eq!((job.transport, job.io), (Transport::Tcp, Io::Auto));
        let newer = text.replace("\"version\":3", "\"version\":6");
        let refused = Job::read(newer.as_bytes()).unwrap_err();
        assert_eq!(refused, NoJob::Version(6));
        assert!(refused.words().contains("versions 3 to 5"));
        let none = text.replace("\"fsync\":true,", "");
        assert_eq!(Job::read(none.as_bytes()).unwrap_err(), NoJob::None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_job_or_refused_in_words(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400)) {
            match Job::read(&bytes) {
                Ok(job) => proptest::prop_assert!(!job.session.is_empty()),
                Err(no) => proptest::prop_assert!(no.words().contains("goodput")),
            }
        }
    }
}
