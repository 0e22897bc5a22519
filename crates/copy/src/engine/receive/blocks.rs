//! What one stream brings: frames of blocks, checked and written; small files whole, others block by block.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::destination::{Partial, clear};
use crate::digest::Cut;
use crate::direct::Direct;
use crate::entry::{Meta, RelPath};
use crate::link::{Socket, Which};
use crate::meeting::{LONG, tcp_info};
use crate::message::{BlockHead, NameId};
use crate::reason::reason;
use crate::room::{self, PAGE};

use super::super::basics::{BLOCKS, nanoseconds};
use super::super::help::{ASK, WRITTEN};
use super::super::{CopyError, Note, Watch, zeros};
use super::{Body, Files, Incoming, Receiver, is_full};

/// What a stream of a long path may have under way from its beginning: kernels begin with 64 KiB and give more once that was
/// full, which costs each stream some round trips.
const ROOM: units::Bytes = units::Bytes::new(4 << 20);

/// Frames in a row on one stream that are not as their sums say, at most: no cable does that.
const BAD_MOST: u32 = 16;

impl Receiver<'_> {
    /// One stream, connection after connection.
    pub(super) fn stream(&self, n: u16) {
        let (mut buffer, mut room) = (Vec::new(), Vec::new());
        let mut handled = 0_u64;
        let mut bad = 0;
        loop {
            let mut link = match self.meeting.to_read(Which::Blocks(n), handled) {
                Ok(link) => link,
                Err(error) => {
                    if error.kind() != ErrorKind::ConnectionAborted {
                        self.link_ended(Err(error));
                    }
                    return;
                }
            };
            make_room(link.socket());
            loop {
                let since = Instant::now();
                let head = link.receive(&mut buffer);
                Watch::add(&self.watch.link_ns, nanoseconds(since));
                let Ok(head) = head else { break };
                let (about, data) = buffer.split_at(head.about);
                if head.kind == ASK && self.options.has_helpers {
                    match self.answer(&mut link, about) {
                        Ok(()) => continue,
                        Err(_) => break,
                    }
                }
                let is_written = head.kind == WRITTEN && self.options.has_helpers;
                let heads = match BlockHead::read_all(about, head.data) {
                    Ok(heads) if head.kind == BLOCKS || is_written => heads,
                    _ => {
                        self.end(CopyError::Protocol("a frame that is none of blocks".into()));
                        return;
                    }
                };
                let is_taken = match is_written {
                    true => self.written(&heads),
                    false => self.blocks(&heads, &data[..head.data], &mut room),
                };
                if !is_taken {
                    bad += 1;
                    if bad > BAD_MOST {
                        let text = "blocks again and again that are not as their sums say";
                        self.end(CopyError::Protocol(text.into()));
                        return;
                    }
                    break;
                }
                bad = 0;
                self.meeting.has_carried(Which::Blocks(n), head.data as u64);
                self.watch.mark();
                handled += 1;
                self.counts
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(n, handled);
            }
            link.socket().shut();
        }
    }

    /// Waits until names up to one are decided upon: a source that was told that nothing stands here sends small files before
    /// it is asked for them. `None` where that does not come to be.
    fn when_decided(&self, last: Option<NameId>) -> Option<MutexGuard<'_, Files>> {
        let mut files = self.lock();
        let mut since = Instant::now();
        while last.is_some_and(|last| last >= files.decided) {
            if self.is_over() {
                return None;
            }
            // A disk may be full, and a folder slow.
            if files.is_busy || !files.queue.is_empty() {
                since = Instant::now();
            }
            // Later than the connection that brings names would have been made again.
            if since.elapsed() > self.meeting.patience().mul_f64(1.25) {
                drop(files);
                self.end(CopyError::Protocol("a block of what was not told".into()));
                return None;
            }
            let waited = self.decided.wait_timeout(files, Duration::from_millis(100));
            files = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(files)
    }

    /// Writes the blocks of a frame; `false` where it has to come again.
    fn blocks(&self, heads: &[BlockHead], data: &[u8], room: &mut Vec<u8>) -> bool {
        // What all streams share is locked for a frame, not for each of its small files.
        let files: Vec<_> = {
            let last = heads.iter().map(|head| head.id).max();
            let Some(files) = self.when_decided(last) else {
                return false;
            };
            // Of what is given up the rest counts as it comes. What is placed was counted when it came first.
            let lost = heads
                .iter()
                .filter(|head| files.given_up.contains(&head.id));
            self.watch
                .confirm_some(lost.map(|head| u64::from(head.len)).sum());
            let of = |head: &BlockHead| files.wanted.get(&head.id).cloned();
            heads.iter().map(of).collect()
        };
        let mut placed = Vec::new();
        let is_taken = self.blocks_of(heads.iter().zip(&files), data, room, &mut placed);
        self.smalls_placed(&placed);
        is_taken
    }

    /// The same, of files that are known; `placed` are the small ones of them that are there then.
    fn blocks_of<'f>(
        &self,
        blocks: impl Iterator<Item = (&'f BlockHead, &'f Option<Arc<Incoming>>)>,
        mut data: &[u8],
        room: &mut Vec<u8>,
        placed: &mut Vec<&'f Incoming>,
    ) -> bool {
        for (head, file) in blocks {
            let (bytes, rest) = data.split_at(head.len as usize);
            data = rest;
            let arrived = bytes.len() as u64;
            let Some(file) = file else { continue };
            Watch::add(&self.watch.confirmed_bytes, arrived);
            let taken = match file.is_small {
                true => self.small(file, head, bytes),
                false => self.block(file, head, bytes, room),
            };
            match taken {
                Ok(true) if file.is_small => placed.push(file),
                Ok(true) => {}
                Ok(false) => Watch::less(&self.watch.confirmed_bytes, arrived),
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    self.watch
                        .note(Note::Skipped(format!("{}: {error}: sent again", file.path)));
                    return false;
                }
                Err(error) => {
                    if is_full(&error) {
                        self.end(CopyError::Here(format!(
                            "{}: {}",
                            file.path,
                            reason(&error)
                        )));
                        return false;
                    }
                    self.problem(&file.path, "cannot be written", &error);
                    self.give_up(file);
                }
            }
        }
        true
    }

    /// Takes a file that came in one piece; `false` where another connection brought it.
    fn small(&self, file: &Incoming, head: &BlockHead, bytes: &[u8]) -> io::Result<bool> {
        let since = Instant::now();
        let sum = *blake3::hash(bytes).as_bytes();
        Watch::add(&self.watch.sum_ns, nanoseconds(since));
        if head.index != 0 || bytes.len() as u64 != file.size || sum != head.sum {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "a block that is not as it was",
            ));
        }
        // Whoever comes second would find a file where none stood.
        if matches!(std::mem::replace(&mut *file.lock(), Body::Gone), Body::Gone) {
            return Ok(false);
        }
        let since = Instant::now();
        self.patiently(|| self.put(file.is_new, &file.path, bytes, &file.meta))?;
        Watch::add(&self.watch.disk_ns, nanoseconds(since));
        Ok(true)
    }

    /// Small files are at their paths.
    fn smalls_placed(&self, files: &[&Incoming]) {
        if files.is_empty() {
            return;
        }
        let bytes = files.iter().map(|file| file.size).sum();
        // In this order: what is settled may end the session, with the account as it is then.
        self.account().received_bytes += bytes;
        self.placed(files.len() as u64, bytes);
        self.settled(files);
    }

    /// Puts a small file at its path, where anything is written.
    pub(super) fn put(
        &self,
        is_new: bool,
        path: &RelPath,
        bytes: &[u8],
        meta: &Meta,
    ) -> io::Result<()> {
        match (self.staging, is_new) {
            (Some(staging), true) => self.destination.put_new(staging, path, bytes, meta),
            (Some(staging), false) => self.destination.put_small(staging, path, bytes, meta),
            (None, _) => Ok(()),
        }
    }

    /// Waits for word of how a file is cut, which comes by another connection.
    pub(super) fn laid_out<'a>(&self, file: &'a Incoming) -> io::Result<MutexGuard<'a, Body>> {
        let invalid = |text: &str| Err(io::Error::new(ErrorKind::InvalidData, text));
        let since = Instant::now();
        let mut body = file.lock();
        while matches!(*body, Body::Unknown(_)) {
            if self.is_over() {
                return invalid("not waited for");
            }
            // Later than the other connection would have been made again, and than a full disk is waited for.
            if since.elapsed() > self.meeting.patience().mul_f64(1.25) {
                let text = "a block of a file of which it was not told how it is cut";
                self.end(CopyError::Protocol(text.into()));
                return invalid(text);
            }
            let waited = file.changed.wait_timeout(body, Duration::from_millis(100));
            body = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(body)
    }

    /// Takes a block of a file; `false` where another connection brought it.
    fn block(
        &self,
        file: &Incoming,
        head: &BlockHead,
        bytes: &[u8],
        room: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let mut body = self.laid_out(file)?;
        let Body::Open(growing) = &mut *body else {
            return Ok(false);
        };
        let (cut, index) = (growing.cut, head.index);
        if growing.sums.contains_key(&index) {
            return Ok(false);
        }
        growing.may_have(index)?;
        let direct = Arc::clone(&growing.direct);
        let ways = match &growing.partial {
            Some(partial) => {
                let open = || partial.past_cache();
                let direct = self.disk.past(&direct, cut.size(), open);
                Some((partial.file().try_clone()?, direct))
            }
            None => None,
        };
        let ways = ways.as_ref().map(|(handle, direct)| (handle, *direct));
        growing.writing += 1;
        // An earlier attempt may have left something where this block has nothing.
        let is_left = growing.partial.as_ref().is_some_and(Partial::resumed);
        drop(body);
        let cleared = match ways {
            Some((handle, _)) if head.has_gaps && is_left => {
                let place = cut.span((index, index + 1));
                self.patiently(|| clear(handle, place.clone()))
            }
            _ => Ok(()),
        };
        let wrote = cleared.and_then(|()| self.write_block(file, ways, cut, (head, bytes), room));
        let mut body = file.lock();
        if let Body::Open(growing) = &mut *body {
            growing.writing -= 1;
        }
        let bytes = match wrote {
            Ok(bytes) => bytes,
            Err(error) => {
                // The other of two that wrote the last block may have left it to this one to place the file.
                self.place_if_whole(file, body);
                return Err(error);
            }
        };
        let is_new = matches!(&*body, Body::Open(growing) if !growing.sums.contains_key(&index));
        self.arrived(file, body, head, bytes);
        Ok(is_new)
    }

    /// Checks a block, or what is there of it, and writes it where there is a way to; how many bytes it has.
    fn write_block(
        &self,
        file: &Incoming,
        ways: Option<(&std::fs::File, Option<&Direct>)>,
        cut: Cut,
        (head, bytes): (&BlockHead, &[u8]),
        room: &mut Vec<u8>,
    ) -> io::Result<u64> {
        let (index, len) = (head.index, cut.len(head.index) as usize);
        let (mut there, mut data) = (Vec::new(), None);
        let bytes = match (head.same, head.has_gaps) {
            (false, false) => bytes,
            (false, true) => {
                let (block, ranges) = zeros::put_back(bytes, len)?;
                (there, data) = (block, Some(ranges));
                &there
            }
            (true, _) => {
                let place = room::place(&mut there, len, PAGE);
                let old = self.destination.open_existing(&file.path)?;
                old.read_exact_at(&mut there[place.clone()], cut.start(index))?;
                &there[place]
            }
        };
        let since = Instant::now();
        let is_right = bytes.len() == len && cut.sum(index, bytes) == head.sum;
        Watch::add(&self.watch.sum_ns, nanoseconds(since));
        if head.same && !is_right {
            return Err(io::Error::other("the older copy changed meanwhile"));
        }
        if !is_right {
            let text = "a block that is not as it was";
            return Err(io::Error::new(ErrorKind::InvalidData, text));
        }
        let start = cut.start(index);
        match (ways, data) {
            (None, _) => {}
            (Some(ways), None) => self.patiently(|| self.disk.write(ways, bytes, start, room))?,
            // Pages in a row are too short for the way past the cache.
            (Some((handle, _)), Some(data)) => {
                for range in data {
                    let (at, bytes) = (start + range.start as u64, &bytes[range]);
                    self.patiently(|| self.disk.write((handle, None), bytes, at, room))?;
                }
            }
        }
        Ok(len as u64)
    }

    /// A block is in its file.
    pub(super) fn arrived(
        &self,
        file: &Incoming,
        mut body: MutexGuard<'_, Body>,
        head: &BlockHead,
        bytes: u64,
    ) {
        if let Body::Open(growing) = &mut *body
            && growing.sums.insert(head.index, head.sum).is_none()
        {
            growing.fresh.push((head.index, head.sum));
            let mut account = self.account();
            match head.same {
                true => {
                    account.resumed_bytes += bytes;
                    self.watch.comes_not(bytes);
                }
                false if head.has_gaps => {
                    account.received_bytes += u64::from(head.len);
                    self.watch.comes_not(bytes.saturating_sub(head.len.into()));
                }
                false => account.received_bytes += bytes,
            }
        }
        self.place_if_whole(file, body);
    }
}

/// Makes room for what comes over a long path.
fn make_room(socket: &Socket) {
    let Socket::Tcp(tcp) = socket else { return };
    let round_trip = tcp_info(socket).map(|info| Duration::from_micros(info.rtt_us));
    let is_long = round_trip.is_some_and(|time| time >= LONG);
    if is_long {
        // Without it, it takes longer.
        let _ = sys::tcp::make_receive_room(tcp.as_fd(), ROOM);
    }
}
