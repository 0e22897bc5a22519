//! How blocks come from a disk and go to it: through the kernel's page cache or past it ([`Direct`]), as asked for or as it
//! shows.
//!
//! The cache reads ahead and takes what is written before the disk has it, and for what is read again soon it is all. Of more
//! than the memory that is free it keeps nothing of use, and puts out what other programs read; writers are held until the
//! disk has caught up, all at once. So what is left open begins with the cache, and goes past it for a look where more is to
//! come than half of the memory that is free, or where streams spend most of their time at the disk. It stays so where the
//! disk keeps up, or does better than by the cache; where it does not and much is to come, pages are let go behind
//! (posix_fadvise(2)), of a destination once they are on the disk. Nothing is tried twice. What counts is what a stream's
//! thread gets done in its time at the disk, which the path has no part in.
//!
//! Left out: files that travel whole in a frame; blocks that helping hosts read and write ([`super::help`],
//! [`super::fetch`]); what an earlier attempt left, which is read again through the cache.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};

use super::basics::nanoseconds;
use super::{Note, Watch};
use crate::direct::Direct;
use crate::room::{self, PAGE};

/// How blocks come from a disk, or go to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Io {
    /// Through the cache, until much is to come or the disk holds streams; then past it where that is as good.
    #[default]
    Auto,
    /// Through the kernel's page cache.
    Buffered,
    /// Past it, where the file system has such a way.
    Direct,
}

/// The shortest file for which it is chosen, in bytes: what is gained by it is of long ones.
const LEAST: u64 = 4 << 20;
/// A look at a disk.
const LOOK: Duration = Duration::from_secs(2);
/// Looks in a row at which a disk must hold streams.
const LOOKS: u32 = 2;
/// Share of its time that a stream spends at the disk, from which on that holds it.
const HELD: f64 = 0.5;
/// What of its speed by the cache is given up for keeping the cache.
const AS_GOOD: f64 = 0.9;
/// What it must bring where it was tried for its speed.
const GAIN: f64 = 1.1;

/// A file's way past the cache, once it was asked for; none where it has none.
pub(super) type Handle = OnceLock<Option<Direct>>;

/// One end's disk.
pub(super) struct Disk<'a> {
    wish: Io,
    /// For the user: `source` or `destination`.
    end: &'static str,
    watch: &'a Watch,
    is_direct: AtomicBool,
    is_refused: AtomicBool,
    is_told: AtomicBool,
    lets_go: AtomicBool,
    /// Of blocks only.
    ns: AtomicU64,
    bytes: AtomicU64,
}

/// What was seen of a disk in one look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Seen {
    /// Bytes a second of a thread's time there.
    speed: f64,
    /// Share of all streams' time that was spent there, 0..=1.
    share: f64,
}

impl<'a> Disk<'a> {
    pub(super) fn new(wish: Io, end: &'static str, watch: &'a Watch) -> Self {
        Self {
            wish,
            end,
            watch,
            is_direct: AtomicBool::new(wish == Io::Direct),
            is_refused: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
            lets_go: AtomicBool::new(false),
            ns: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// A file's way past the cache, if blocks go that way now; `open` opens it once.
    pub(super) fn past<'h>(
        &self,
        handle: &'h Handle,
        size: u64,
        open: impl FnOnce() -> rustix::io::Result<OwnedFd>,
    ) -> Option<&'h Direct> {
        let is_long = size >= LEAST || self.wish == Io::Direct;
        if !is_long || !self.is_direct.load(Ordering::Relaxed) {
            return None;
        }
        let opened = handle.get_or_init(|| match Direct::new(open()) {
            Ok(direct) => {
                if self.wish == Io::Direct && !self.is_told.swap(true, Ordering::Relaxed) {
                    self.chosen("past the page cache (O_DIRECT), as was asked for");
                }
                Some(direct)
            }
            Err(error) => {
                if error.kind() == ErrorKind::Unsupported {
                    self.refused(&error);
                }
                None
            }
        });
        opened.as_ref()
    }

    /// The same to read a file back, which is to prove what the disk has; no word is lost where there is no such way.
    pub(super) fn to_prove<'h>(
        &self,
        handle: &'h Handle,
        open: impl FnOnce() -> rustix::io::Result<OwnedFd>,
    ) -> Option<&'h Direct> {
        match self.wish {
            Io::Buffered => None,
            Io::Auto | Io::Direct => handle.get_or_init(|| Direct::new(open()).ok()).as_ref(),
        }
    }

    /// Reads `len` bytes of a block into `room`; where they lie there.
    ///
    /// # Errors
    /// As pread(2).
    pub(super) fn read(
        &self,
        (file, direct): (&File, Option<&Direct>),
        room: &mut Vec<u8>,
        len: usize,
        at: u64,
    ) -> io::Result<Range<usize>> {
        let since = Instant::now();
        let read = direct.map(|direct| direct.read_at(room, len, at));
        let read = match read {
            Some(Err(error)) if error.kind() == ErrorKind::InvalidInput => {
                self.is_direct.store(false, Ordering::Relaxed);
                self.refused(&error);
                None
            }
            Some(Ok(place)) => {
                Watch::add(&self.watch.direct_bytes, len as u64);
                Some(Ok(place))
            }
            other => other,
        };
        let read = read.unwrap_or_else(|| {
            let place = room::place(room, len, PAGE);
            file.read_exact_at(&mut room[place.clone()], at)?;
            if self.lets_go.load(Ordering::Relaxed) {
                // What cannot be let go costs memory only.
                let _ = fadvise(
                    file,
                    at,
                    std::num::NonZeroU64::new(len as u64),
                    Advice::DontNeed,
                );
            }
            Ok(place)
        });
        self.took(since, read.as_ref().map_or(0, |_| len));
        read
    }

    /// Reads back what was written: `len` bytes at `at` into `room`; where they lie there.
    ///
    /// # Errors
    /// As pread(2).
    pub(super) fn prove(
        (file, direct): (&File, Option<&Direct>),
        room: &mut Vec<u8>,
        len: usize,
        at: u64,
    ) -> io::Result<Range<usize>> {
        match direct.map(|direct| direct.read_at(room, len, at)) {
            Some(Err(error)) if error.kind() == ErrorKind::InvalidInput => {}
            Some(read) => return read,
            None => {}
        }
        let place = room::place(room, len, PAGE);
        file.read_exact_at(&mut room[place.clone()], at)?;
        Ok(place)
    }

    /// Writes a block; `room` is of use to the next one.
    ///
    /// # Errors
    /// As pwrite(2).
    pub(super) fn write(
        &self,
        (file, direct): (&File, Option<&Direct>),
        bytes: &[u8],
        at: u64,
        room: &mut Vec<u8>,
    ) -> io::Result<()> {
        let since = Instant::now();
        let wrote = direct.map(|direct| direct.write_all_at(file, bytes, at, room));
        let wrote = match wrote {
            // It opened, and takes nothing: so will the next.
            Some(Err(error)) if error.kind() == ErrorKind::InvalidInput => {
                self.is_direct.store(false, Ordering::Relaxed);
                self.refused(&error);
                file.write_all_at(bytes, at)
            }
            Some(Ok(())) => {
                Watch::add(&self.watch.direct_bytes, bytes.len() as u64);
                Ok(())
            }
            Some(failed) => failed,
            None => file.write_all_at(bytes, at),
        };
        // A full disk is tried again and again.
        self.took(since, wrote.as_ref().map_or(0, |()| bytes.len()));
        wrote
    }

    /// Lets go of a file's pages that are on the disk, where much is to come.
    pub(super) fn let_go(&self, file: &File) {
        if self.lets_go.load(Ordering::Relaxed) {
            let _ = fadvise(file, 0, None, Advice::DontNeed);
        }
    }

    /// Chooses until it is over, where that was left open; `to_come` says how many bytes are still to come here.
    pub(super) fn choose(&self, is_over: &dyn Fn() -> bool, to_come: &dyn Fn() -> u64) {
        if self.wish != Io::Auto {
            return;
        }
        let mut held = 0;
        loop {
            let Some(by_cache) = self.look(is_over) else {
                return;
            };
            held = match by_cache.share > HELD {
                true => held + 1,
                false => 0,
            };
            let (much, free) = (to_come(), sys::host::memory_available());
            let free = free.map_or(u64::MAX, units::Bytes::as_u64);
            let (why, is_much) = match much > free / 2 {
                true => (
                    format!(
                        "{} come and {} of memory are free",
                        amount(much as f64),
                        amount(free as f64)
                    ),
                    true,
                ),
                false if held >= LOOKS => (
                    format!(
                        "its streams spent {:.0} % of their time there",
                        by_cache.share * 100.0
                    ),
                    false,
                ),
                false => {
                    if by_cache.speed > 0.0 && !self.is_told.swap(true, Ordering::Relaxed) {
                        self.chosen(&format!(
                            "through the page cache: {} are still to come and {} of memory are free",
                            amount(much as f64),
                            amount(free as f64)
                        ));
                    }
                    continue;
                }
            };
            // Nothing was carried yet by which to know what is as good.
            if by_cache.speed > 0.0 {
                self.attempt(by_cache, &why, is_much, is_over);
                return;
            }
        }
    }

    /// Tries the way past the cache, and keeps the better.
    fn attempt(&self, by_cache: Seen, why: &str, is_much: bool, is_over: &dyn Fn() -> bool) {
        self.is_direct.store(true, Ordering::Relaxed);
        // The first holds what was on its way by the cache.
        let before = self.watch.direct_bytes.load(Ordering::Relaxed);
        let (Some(_), Some(past)) = (self.look(is_over), self.look(is_over)) else {
            return;
        };
        let is_used = self.watch.direct_bytes.load(Ordering::Relaxed) > before;
        let speeds = format!(
            "{} a second and stream past it, {} by it",
            amount(past.speed),
            amount(by_cache.speed)
        );
        let is_kept = is_used && is_better(by_cache, past, is_much);
        if is_kept {
            return self.chosen(&format!("past the page cache (O_DIRECT): {why}; {speeds}"));
        }
        self.is_direct.store(false, Ordering::Relaxed);
        self.lets_go.store(is_much, Ordering::Relaxed);
        let what = match is_much {
            true => "through the page cache, which is let go behind",
            false => "through the page cache",
        };
        match is_used {
            true => self.chosen(&format!("{what}: {why}; {speeds}")),
            false => self.chosen(&format!(
                "{what}: {why}, and no file was read or written past it"
            )),
        }
    }

    /// Looks on for a while; `None` once it is over.
    fn look(&self, is_over: &dyn Fn() -> bool) -> Option<Seen> {
        let now = || {
            (
                self.ns.load(Ordering::Relaxed),
                self.bytes.load(Ordering::Relaxed),
            )
        };
        let ((ns, bytes), since) = (now(), Instant::now());
        while since.elapsed() < LOOK {
            if is_over() {
                return None;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let (later_ns, later_bytes) = now();
        let seconds = later_ns.saturating_sub(ns) as f64 / 1e9;
        let streams = self.watch.streams.load(Ordering::Relaxed).max(1) as f64;
        Some(Seen {
            speed: match seconds > 0.0 {
                true => later_bytes.saturating_sub(bytes) as f64 / seconds,
                false => 0.0,
            },
            share: seconds / (since.elapsed().as_secs_f64() * streams),
        })
    }

    fn took(&self, since: Instant, bytes: usize) {
        let ns = nanoseconds(since);
        Watch::add(&self.ns, ns);
        Watch::add(&self.watch.disk_ns, ns);
        Watch::add(&self.bytes, bytes as u64);
    }

    /// A file has no such way; others may be on other file systems.
    fn refused(&self, error: &io::Error) {
        if !self.is_refused.swap(true, Ordering::Relaxed) && self.wish == Io::Direct {
            self.chosen(&format!("through the page cache, not past it: {error}"));
        }
    }

    fn chosen(&self, how: &str) {
        let text = format!("blocks of the {}'s files go {how}", self.end);
        self.watch.note(Note::Chosen(text));
    }
}

/// Whether the way past the cache is to be kept.
fn is_better(by_cache: Seen, past: Seen, is_much: bool) -> bool {
    match is_much {
        true => past.share <= HELD || past.speed >= by_cache.speed * AS_GOOD,
        false => past.speed >= by_cache.speed * GAIN,
    }
}

/// In powers of ten.
fn amount(bytes: f64) -> String {
    match bytes < 1e10 {
        true => format!("{:.0} MB", bytes / 1e6),
        false => format!("{:.1} GB", bytes / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_passed_by_where_the_disk_keeps_up_or_does_better() {
        let seen = |speed, share| Seen { speed, share };
        for (by_cache, past, much, held) in [
            // The disk is slower than memory, as it always is, and holds nobody.
            (seen(2e9, 0.05), seen(0.5e9, 0.3), true, false),
            // It holds streams, and by the cache they did better: pages are let go instead.
            (seen(2e9, 0.2), seen(0.5e9, 0.8), false, false),
            (seen(0.5e9, 0.8), seen(0.46e9, 0.8), true, false),
            (seen(0.5e9, 0.8), seen(0.53e9, 0.8), true, false),
            (seen(0.5e9, 0.8), seen(0.56e9, 0.7), true, true),
        ] {
            assert_eq!(
                is_better(by_cache, past, true),
                much,
                "{by_cache:?} {past:?}"
            );
            assert_eq!(
                is_better(by_cache, past, false),
                held,
                "{by_cache:?} {past:?}"
            );
        }
    }

    #[test]
    fn a_file_without_such_a_way_is_told_once_and_goes_through_the_cache() {
        let watch = Watch::default();
        let disk = Disk::new(Io::Direct, "source", &watch);
        let refuse = || Err(rustix::io::Errno::INVAL);
        for _ in 0..3 {
            assert!(disk.past(&Handle::new(), 1 << 30, refuse).is_none());
        }
        let (notes, _) = watch.notes(0);
        assert!(
            matches!(&notes[..], [Note::Chosen(text)] if text.contains("through the page cache, not past it")),
            "{notes:?}"
        );
        // What was left open has nothing to say.
        let watch = Watch::default();
        let disk = Disk::new(Io::Auto, "source", &watch);
        disk.is_direct.store(true, Ordering::Relaxed);
        assert!(disk.past(&Handle::new(), 1 << 30, refuse).is_none());
        assert!(watch.notes(0).0.is_empty());
    }

    #[test]
    fn a_choice_that_has_no_time_changes_nothing() {
        let watch = Watch::default();
        let disk = Disk::new(Io::Auto, "destination", &watch);
        disk.choose(&|| true, &|| u64::MAX);
        assert!(!disk.is_direct.load(Ordering::Relaxed) && watch.notes(0).0.is_empty());
    }
}
