//! A session of watching: the kernel's sources or a recording on one side, the table on the other.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::sync::Arc;

use fault::Failure;
use sys::clock;
use sys::owners::{self, Process, Walk};
use tracing::{info, warn};
use units::{Duration, Instant};
use wire::inet_diag::{Socket, state};

use crate::cgroups::{self, Cgroups};
use crate::record::{self, Entry, Reader, Recorder};
use crate::source::Source;
use crate::table::{Change, Id, Table};

/// What is watched.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Every network namespace that a process of this machine is in; takes CAP_SYS_ADMIN.
    pub all_namespaces: bool,
    /// Keep what comes in this file.
    pub record: Option<PathBuf>,
    /// Play this recording instead of asking the kernel.
    pub replay: Option<PathBuf>,
    /// Look for the processes of sockets.
    pub processes: bool,
}

/// What comes in, and where it lands.
#[derive(Debug)]
pub struct Session {
    sources: Vec<Source>,
    replay: Option<Replay>,
    recorder: Option<Recorder>,
    table: Table,
    cgroups: Cgroups,
    owners: Owners,
    all_namespaces: bool,
    /// Time of day of the last dump, since 1970.
    utc_ns: u64,
    keyframe: Option<Instant>,
    next_number: u16,
}

#[derive(Debug)]
struct Replay {
    reader: Reader<BufReader<File>>,
    /// Frames that belong to the next dump.
    frame: Option<Vec<u8>>,
}

/// Whose sockets are, and what is still to be found out.
#[derive(Debug, Default)]
struct Owners {
    wanted_by: bool,
    walk: Walk,
    wanted: HashSet<u32>,
    /// Sockets that a whole walk did not find.
    hopeless: HashSet<u32>,
    /// Listeners' ports by inode.
    listeners: HashMap<u32, (u16, u16)>,
}

impl Session {
    /// Opens the sources.
    ///
    /// # Errors
    /// Files that cannot be made or read; a kernel without socket diagnosis; missing privileges.
    pub fn open(options: &Options) -> Result<Self, Failure> {
        let named = |path: &PathBuf, e: io::Error| format!("{}: {e}", path.display());
        let recorder = match &options.record {
            Some(path) => Some(Recorder::create(path).map_err(|e| Failure::here(named(path, e)))?),
            None => None,
        };
        let replay = match &options.replay {
            Some(path) => Some(Replay {
                reader: Reader::open(path).map_err(|e| Failure::usage(named(path, e)))?,
                frame: None,
            }),
            None => None,
        };
        let mut session = Self {
            sources: Vec::new(),
            recorder,
            table: Table::default(),
            cgroups: Cgroups::default(),
            owners: Owners {
                wanted_by: options.processes && replay.is_none(),
                ..Owners::default()
            },
            all_namespaces: options.all_namespaces,
            utc_ns: 0,
            keyframe: None,
            next_number: 1,
            replay,
        };
        if session.replay.is_none() {
            session.sources.push(Source::open(0, None).map_err(|e| {
                Failure::here(format!(
                    "the kernel's socket diagnosis: {e} (INET_DIAG is needed)"
                ))
            })?);
            session.find_namespaces()?;
        }
        Ok(session)
    }

    /// Opens sources in namespaces that are new.
    fn find_namespaces(&mut self) -> Result<(), Failure> {
        if !self.all_namespaces {
            return Ok(());
        }
        let others = owners::other_namespaces(NAMESPACES_MAX).map_err(Failure::here)?;
        // One that nobody is in any more is held by our sockets alone.
        self.sources.retain(|s| {
            s.inode
                .is_none_or(|inode| others.iter().any(|(other, _)| *other == inode))
        });
        for (inode, namespace) in others {
            if self.sources.iter().any(|s| s.inode == Some(inode)) {
                continue;
            }
            match Source::open(self.next_number, Some((inode, &namespace))) {
                Ok(source) => {
                    info!(inode, number = self.next_number, "a network namespace");
                    self.sources.push(source);
                    self.next_number = self.next_number.saturating_add(1);
                }
                Err(e) if self.table.counts().dumps == 0 => {
                    return Err(Failure::here(format!(
                        "cannot look into other network namespaces: {e}; --all-namespaces takes root (CAP_SYS_ADMIN)"
                    )));
                }
                Err(error) => warn!(inode, %error, "a namespace that cannot be looked into"),
            }
        }
        Ok(())
    }

    /// Takes a dump, and what closed by then; false when a recording has ended.
    ///
    /// # Errors
    /// What the kernel answers; a recording that cannot be written or read.
    pub fn tick(&mut self) -> Result<bool, Failure> {
        if self.replay.is_some() {
            return self.play();
        }
        if self.table.counts().dumps % NAMESPACE_DUMPS == 1 {
            self.find_namespaces()?;
        }
        self.drain()?;
        let now = clock::monotonic();
        self.utc_ns = clock::realtime_ns();
        let all = self
            .keyframe
            .is_none_or(|last| now.saturating_since(last) >= KEYFRAMES);
        if all {
            self.keyframe = Some(now);
        }
        self.table.begin(now);
        let mut whole = true;
        // Listeners come first, so that it is known which side of a connection serves.
        for states in [1 << state::LISTEN, CONNECTION_STATES] {
            for source in &mut self.sources {
                let number = source.number;
                let (table, owners) = (&mut self.table, &mut self.owners);
                let mut recorder = self.recorder.as_mut();
                let mut written = Ok(());
                let asked = source.dumper.dump(states, &mut |body| {
                    let Some(socket) = Socket::parse(body) else {
                        return;
                    };
                    let record = socket.record();
                    let change = table.observe(number, &record);
                    owners.see(number, &record, change);
                    let keep = all || matches!(change, Change::New | Change::Changed);
                    if keep && let Some(recorder) = recorder.as_mut() {
                        let put = recorder.put(&Entry::Socket(number, socket.bytes()));
                        written = std::mem::replace(&mut written, Ok(())).and(put);
                    }
                });
                whole &= asked.map_err(|e| Failure::here(format!("socket diagnosis: {e}")))?;
                written.map_err(cannot_record)?;
            }
        }
        self.end_dump(now, all, whole)?;
        self.drain()?;
        self.find_owners(FILES_A_DUMP)?;
        let cgroups = self.table.connections().filter_map(|c| c.cgroup);
        self.cgroups.look(cgroups);
        self.flush(all)?;
        Ok(true)
    }

    fn end_dump(&mut self, now: Instant, all: bool, whole: bool) -> Result<(), Failure> {
        let gone = self.table.finish(whole);
        let Some(recorder) = &mut self.recorder else {
            return Ok(());
        };
        let dump = Entry::Dump {
            at: now,
            utc_ns: self.utc_ns,
            all,
            whole,
        };
        let mut put = recorder.put(&dump);
        for id in gone {
            put = put.and_then(|()| recorder.put(&Entry::Vanished(id.namespace, id.cookie)));
        }
        put.map_err(cannot_record)
    }

    fn flush(&mut self, all: bool) -> Result<(), Failure> {
        let Some(recorder) = &mut self.recorder else {
            return Ok(());
        };
        let mut put = Ok(());
        if all {
            for (id, path) in self.cgroups.all() {
                put = put.and_then(|()| recorder.put(&Entry::Cgroup(id, path)));
            }
            for known in self.table.connections() {
                if let Some(process) = &known.process {
                    let owner =
                        Entry::Owner(known.id.namespace, known.inode, process.pid, &process.name);
                    put = put.and_then(|()| recorder.put(&owner));
                }
            }
        }
        put.and_then(|()| recorder.flush()).map_err(cannot_record)
    }

    /// Takes in what has closed since; to be called some times a second, so that little has to wait.
    ///
    /// # Errors
    /// A recording that cannot be written.
    pub fn drain(&mut self) -> Result<(), Failure> {
        let mut written = Ok(());
        for source in &self.sources {
            let number = source.number;
            let (table, recorder) = (&mut self.table, &mut self.recorder);
            let lost = source.drain(&mut |body| {
                let Some(socket) = Socket::parse(body) else {
                    return;
                };
                table.close(number, &socket.record());
                if let Some(recorder) = recorder {
                    let put = recorder.put(&Entry::Closed(number, body));
                    written = std::mem::replace(&mut written, Ok(())).and(put);
                }
            });
            if lost > 0 {
                self.table.lost();
                if let Some(recorder) = &mut self.recorder {
                    let put = recorder.put(&Entry::Gap);
                    written = written.and(put);
                }
            }
        }
        written.map_err(cannot_record)
    }

    /// Looks for processes of sockets that have none yet, within a budget of files; what was found goes into the recording.
    ///
    /// # Errors
    /// A recording that cannot be written.
    pub fn find_owners(&mut self, files_max: usize) -> Result<(), Failure> {
        let found = self.owners.step(files_max);
        if found.is_empty() {
            return Ok(());
        }
        for source in &self.sources {
            self.table.owned(source.number, &found);
        }
        let mut put = Ok(());
        for (inode, process) in &found {
            let place = self.owners.listeners.remove(inode);
            if let Some((namespace, port)) = place {
                self.table.listens(namespace, port, process);
            }
            if let Some(recorder) = &mut self.recorder {
                // Inodes of sockets are unique over all namespaces (net/socket.c, sockfs has one superblock).
                let owner = Entry::Owner(0, *inode, process.pid, &process.name);
                put = put.and_then(|()| recorder.put(&owner));
            }
        }
        put.map_err(cannot_record)
    }

    /// Plays the recording up to its next dump.
    fn play(&mut self) -> Result<bool, Failure> {
        let Some(replay) = &mut self.replay else {
            return Ok(false);
        };
        let broken = |e: io::Error| Failure::here(format!("the recording: {e}"));
        // A frame may hold the end of one dump and the beginning of the next: entries up to a dump's mark belong to it.
        let mut gathered = replay.frame.take().unwrap_or_default();
        loop {
            let mark = record::entries(&gathered).any(|e| matches!(e, Entry::Dump { .. }));
            if mark {
                break;
            }
            match replay.reader.next_frame().map_err(broken)? {
                Some(frame) if gathered.len() + frame.len() <= GATHERED_MAX_BYTES => {
                    gathered.extend(frame)
                }
                Some(_) => return Err(Failure::here("the recording: a dump without an end")),
                None => {
                    if replay.reader.skipped() > 0 {
                        let bytes = replay.reader.skipped();
                        warn!(bytes, "the recording has bytes that make no whole frame");
                    }
                    return Ok(false);
                }
            }
        }
        self.apply(&gathered);
        Ok(true)
    }

    /// Puts the entries of one tick into the table: its sockets before its closings, as they came.
    fn apply(&mut self, frame: &[u8]) {
        let dump = record::entries(frame).find_map(|entry| match entry {
            Entry::Dump {
                at,
                utc_ns,
                all,
                whole,
            } => Some((at, utc_ns, all, whole)),
            _ => None,
        });
        let Some((at, utc_ns, all, whole)) = dump else {
            return;
        };
        self.utc_ns = utc_ns;
        let mut begun = false;
        let mut owners: HashMap<u32, Arc<Process>> = HashMap::new();
        for entry in record::entries(frame) {
            match entry {
                Entry::Socket(namespace, body) => {
                    if !begun {
                        self.table.begin(at);
                        begun = true;
                    }
                    if let Some(socket) = Socket::parse(body) {
                        self.table.observe(namespace, &socket.record());
                    }
                }
                Entry::Dump { .. } => {
                    if !begun {
                        self.table.begin(at);
                        begun = true;
                    }
                    if !all {
                        self.table.unchanged();
                    }
                    self.table.finish(whole);
                }
                Entry::Closed(namespace, body) => {
                    if let Some(socket) = Socket::parse(body) {
                        self.table.close(namespace, &socket.record());
                    }
                }
                Entry::Vanished(namespace, cookie) => self.table.vanish(Id { namespace, cookie }),
                Entry::Gap => self.table.lost(),
                Entry::Owner(_, inode, pid, name) => {
                    let name = name.to_owned();
                    owners.insert(inode, Arc::new(Process { pid, name }));
                }
                Entry::Cgroup(id, path) => self.cgroups.insert(id, path.to_owned()),
            }
        }
        let namespaces: HashSet<u16> = self.table.connections().map(|c| c.id.namespace).collect();
        for namespace in namespaces {
            self.table.owned(namespace, &owners);
        }
    }

    /// The connections.
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// Keeps the readings of these connections ([`Table::follow`]).
    pub fn follow(&mut self, ids: impl Iterator<Item = Id>) {
        self.table.follow(ids);
    }

    /// Time of day of the last dump, nanoseconds since 1970.
    pub const fn utc_ns(&self) -> u64 {
        self.utc_ns
    }

    /// Whether a recording is played.
    pub const fn is_replay(&self) -> bool {
        self.replay.is_some()
    }

    /// Bytes of the recording that make no whole frame.
    pub fn skipped_bytes(&self) -> u64 {
        self.replay.as_ref().map_or(0, |r| r.reader.skipped())
    }

    /// Path of a cgroup.
    pub fn cgroup(&self, id: u64) -> Option<&str> {
        self.cgroups.path(id)
    }

    /// Container that a cgroup belongs to.
    pub fn container(&self, id: u64) -> Option<String> {
        self.cgroups.path(id).and_then(cgroups::container)
    }
}

impl Owners {
    /// Takes note of a socket whose process is not known.
    fn see(&mut self, namespace: u16, record: &wire::inet_diag::Record, change: Change) {
        if !self.wanted_by || record.inode == 0 {
            return;
        }
        let inode = record.inode;
        match change {
            Change::New => {
                self.wanted.insert(inode);
            }
            Change::Other if record.state == state::LISTEN => {
                let place = (namespace, record.local.port());
                if self.listeners.len() < LISTENERS_MAX
                    && !self.hopeless.contains(&inode)
                    && self.listeners.insert(inode, place).is_none()
                {
                    self.wanted.insert(inode);
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, files_max: usize) -> HashMap<u32, Arc<Process>> {
        if self.wanted.is_empty() {
            return HashMap::new();
        }
        if self.walk.is_done() {
            self.walk.begin();
        }
        let found = self.walk.step(&mut self.wanted, files_max);
        if self.walk.is_done() && !self.wanted.is_empty() {
            // Others' processes, or gone: asking again would cost as much each time.
            if self.hopeless.len() > HOPELESS_MAX {
                self.hopeless.clear();
            }
            self.hopeless.extend(self.wanted.drain());
        }
        let mut processes: HashMap<Process, Arc<Process>> = HashMap::new();
        let each = found.into_iter();
        each.map(|(inode, process)| {
            let shared = processes.entry(process.clone());
            (
                inode,
                Arc::clone(shared.or_insert_with(|| Arc::new(process))),
            )
        })
        .collect()
    }
}

fn cannot_record(error: io::Error) -> Failure {
    Failure::here(format!("the recording cannot be written: {error}"))
}

/// All but those without counters: TIME-WAIT and SYN-RECV are no full sockets, CLOSE is none that a peer has.
const CONNECTION_STATES: u32 = !(1 << state::TIME_WAIT
    | 1 << state::SYN_RECV
    | 1 << state::NEW_SYN_RECV
    | 1 << state::CLOSE
    | 1 << state::LISTEN);
/// Open files of processes that one tick looks at: some 20 ms.
const FILES_A_DUMP: usize = 10_000;
/// A thread and two sockets each.
const NAMESPACES_MAX: usize = 256;
/// New namespaces are looked for once in so many dumps.
const NAMESPACE_DUMPS: u64 = 10;
const LISTENERS_MAX: usize = 100_000;
const HOPELESS_MAX: usize = 100_000;
/// A recording has all sockets so often.
const KEYFRAMES: Duration = Duration::from_s(60);
/// What one dump of a recording may hold: some 500,000 sockets.
const GATHERED_MAX_BYTES: usize = 256 << 20;
