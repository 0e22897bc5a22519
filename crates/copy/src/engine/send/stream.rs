//! One stream of blocks: its connections, one after the other, how they are set, and what goes over them next.

use std::io::{self, ErrorKind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::under_way::{Due, Sent};
use super::{FILES_OPEN, LOOK, PACK_BYTES, PACK_FILES, Sender, Task, has_small_files};
use crate::engine::basics::{BLOCKS, nanoseconds};
use crate::engine::contents::Pieces;
use crate::engine::fetch::FETCH;
use crate::engine::options::Pacing;
use crate::engine::{Note, Watch, seen, tune};
use crate::link::{Link, Socket, Which};
use crate::meeting::LONG;
use crate::unpaced;

impl Sender<'_> {
    /// One stream, connection after connection.
    pub(super) fn stream(&self, n: u16) {
        let sent = Arc::clone(self.lock_streams().entry(n).or_default());
        let mut buffer = Vec::new();
        loop {
            let (mut link, (start, sees_files)) = match self.meeting.to_write_for(Which::Blocks(n))
            {
                Ok(met) => met,
                Err(error) => {
                    self.requeue(&sent);
                    if error.kind() != ErrorKind::ConnectionAborted {
                        self.link_ended(Err(error));
                    }
                    return;
                }
            };
            self.prepare(&link);
            if let Some(info) = crate::meeting::tcp_info(link.socket()) {
                seen::know(n, info, self.watch);
            }
            let confirmed = {
                let mut sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
                self.confirmed(&mut sent, start)
            };
            self.requeue(&sent);
            if let Err(error) = confirmed {
                self.link_ended(Err(error));
                return;
            }
            let fetches = sees_files && self.options.has_helpers && !self.options.null;
            let ended = self.send_on(&mut link, (n, fetches), &sent, &mut buffer);
            link.socket().shut();
            if ended.is_ok() {
                return;
            }
            sent.lock().unwrap_or_else(PoisonError::into_inner).cut();
            self.changed.notify_all();
        }
    }

    fn prepare(&self, link: &Link) {
        if let (Socket::Quic(pipe), Some(rate)) = (link.socket(), self.limit()) {
            let streams = self.lock_streams().len().max(1) as u64;
            let share = (rate.as_bits_per_second() / streams).max(8);
            pipe.set_limit(units::Rate::from_bits_per_second(share));
        }
        if let Socket::Tcp(socket) = link.socket() {
            let is_free = self.is_free();
            tune::prepare(socket, self.options, self.meeting.ways(), is_free);
            self.tell_congestion(socket);
            self.tell_unpaced(link.socket());
            if let Some(rate) = self.limit() {
                use std::os::fd::AsFd as _;
                // Before the first byte; what others come is seen to soon (`tune::limit`).
                let streams = self.lock_streams().len().max(1) as u64;
                let share =
                    units::Rate::from_bits_per_second((rate.as_bits_per_second() / streams).max(8));
                let _ = sys::tcp::set_max_pacing(socket.as_fd(), share);
            }
        }
    }

    /// Whether streams are not held below what they find together. They are not where files are small: what the two hosts do
    /// for each file holds them then, and a pace that is taken from that is no path's. It only has the kernel send shorter
    /// bursts, which cost both hosts more.
    pub(super) fn is_free(&self) -> bool {
        let is_free = self.is_free.load(Ordering::Relaxed);
        if is_free || self.options.pacing != Pacing::Chosen {
            return is_free;
        }
        let names = self.watch.names.load(Ordering::Relaxed);
        let bytes = self.watch.named_bytes.load(Ordering::Relaxed);
        let is_long = self.meeting.round_trip().is_some_and(|time| time >= LONG);
        let is_small = is_long && has_small_files(names, bytes);
        if is_small && !self.is_free.swap(true, Ordering::Relaxed) {
            self.watch.note(Note::Chosen(format!(
                "streams are not paced: files have {} KiB on average, and the work for each is what counts",
                bytes.div_ceil(names) >> 10
            )));
        }
        is_small
    }

    /// What all streams together may send now.
    pub(super) fn limit(&self) -> Option<units::Rate> {
        self.watch.limit().or(self.options.limit)
    }

    /// Says once that the congestion control that was asked for is not what a stream has.
    fn tell_congestion(&self, socket: &std::net::TcpStream) {
        use std::os::fd::AsFd as _;
        let Some(wanted) = &self.options.congestion else {
            return;
        };
        let has = sys::tcp::congestion(socket.as_fd()).unwrap_or_default();
        if has != *wanted && !self.is_congestion_told.swap(true, Ordering::Relaxed) {
            self.watch.note(Note::Chosen(format!(
                "the source's host does not give this user the congestion control {wanted}: {has} is used \
                 (net.ipv4.tcp_allowed_congestion_control)"
            )));
        }
    }

    /// Says once that streams do not have the host's own congestion control, and why.
    fn tell_unpaced(&self, socket: &Socket) {
        if self.options.congestion.is_some()
            || self.limit().is_some()
            || self.is_congestion_told.load(Ordering::Relaxed)
        {
            return;
        }
        if let Some((has, own)) = unpaced::kept_off(socket)
            && !self.is_congestion_told.swap(true, Ordering::Relaxed)
        {
            self.watch.note(Note::Chosen(format!(
                "streams have {has}, not the {own} of the source's host, whose timers take CPU: the far side is less than 0.5 ms away"
            )));
        }
    }

    /// Sends until there is nothing more and this is over (`Ok`), or the connection is gone.
    fn send_on(
        &self,
        link: &mut Link,
        (n, fetches): (u16, bool),
        sent: &Mutex<Sent>,
        buffer: &mut Vec<u8>,
    ) -> io::Result<()> {
        let mut about = Vec::new();
        let mut pieces = Pieces::default();
        loop {
            let waited = Instant::now();
            // What is under way on a connection that is gone would never be confirmed.
            let is_gone = || {
                let sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
                !sent.is_empty() && crate::meeting::is_gone(link.socket())
            };
            if fetches {
                self.wait_for_room(sent, &is_gone)?;
            }
            let Some(Due { task, twin }) = self.next_task(sent, &is_gone)? else {
                return Ok(());
            };
            Watch::add(&self.watch.idle_ns, nanoseconds(waited));
            about.clear();
            let mut kind = BLOCKS;
            let (task, bytes, end) = match task {
                // What was lost once is sent from here: whoever was to read it may not see it.
                Task::Block {
                    file,
                    index,
                    is_again: false,
                } if fetches && file.may_be_fetched(index) => {
                    kind = FETCH;
                    file.fetch(index).put(&mut about);
                    let bytes = file.cut.len(index) as usize;
                    let end = Some(Arc::clone(&file));
                    let is_again = false;
                    (
                        Task::Block {
                            file,
                            index,
                            is_again,
                        },
                        bytes,
                        end,
                    )
                }
                Task::Block {
                    file,
                    index,
                    is_again,
                } => {
                    let Some(place) = self.block(&file, index, is_again, &mut about, buffer) else {
                        if twin.is_alone() {
                            self.watch.comes_not(file.cut.len(index).into());
                        }
                        continue;
                    };
                    let bytes = place.len();
                    pieces.read(place);
                    let end = (!is_again).then(|| Arc::clone(&file));
                    (
                        Task::Block {
                            file,
                            index,
                            is_again,
                        },
                        bytes,
                        end,
                    )
                }
                Task::Pack(files) => {
                    let files = self.pack(files, &mut about, buffer, &mut pieces);
                    if files.is_empty() {
                        continue;
                    }
                    (Task::Pack(files), pieces.bytes(), None)
                }
            };
            {
                let mut sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
                sent.push(Due { task, twin }, bytes as u64, Instant::now());
            }
            // All of it was read, and a connection that takes nothing is not to hold word of that back.
            if let Some(file) = end {
                self.block_done(&file);
            }
            let since = Instant::now();
            let data = pieces.bytes();
            let wrote = link.send_gathered(kind, &about, &pieces.slices(buffer));
            pieces.clear();
            Watch::add(&self.watch.link_ns, nanoseconds(since));
            Watch::add(&self.watch.sent_bytes, data as u64);
            Watch::add(&self.watch.helped_bytes, (bytes - data) as u64);
            self.meeting.has_carried(Which::Blocks(n), bytes as u64);
            wrote?;
        }
    }

    /// Waits until a stream may be told of more ([`Ahead`]), unless `is_gone`.
    fn wait_for_room(&self, sent: &Mutex<Sent>, is_gone: &dyn Fn() -> bool) -> io::Result<()> {
        let has_room = || {
            let sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
            sent.ahead.has_room()
        };
        while !has_room() && !self.is_over() {
            if is_gone() {
                return Err(ErrorKind::ConnectionReset.into());
            }
            // Confirmations wake whoever waits; one that came just now is noticed soon.
            let _ = self
                .changed
                .wait_timeout(self.lock(), Duration::from_millis(20));
        }
        Ok(())
    }

    /// What a stream sends next; waits for it, unless `is_gone`. `None` once this is over.
    fn next_task(&self, sent: &Mutex<Sent>, is_gone: &dyn Fn() -> bool) -> io::Result<Option<Due>> {
        let mut looked = Instant::now();
        let mut work = self.lock();
        loop {
            if self.is_over() {
                return Ok(None);
            }
            if self.watch.is_held() {
                let waited = self.changed.wait_timeout(work, LOOK);
                work = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            if let Some(due) = work.redo.pop_front() {
                if due.twin.is_confirmed() {
                    continue;
                }
                return Ok(Some(due));
            }
            if let Some(first) = work.small.pop_front() {
                let mut bytes = first.1.fingerprint.size;
                let mut files = vec![first];
                while files.len() < PACK_FILES {
                    let Some((_, known)) = work.small.front() else {
                        break;
                    };
                    bytes += known.fingerprint.size;
                    if bytes > PACK_BYTES {
                        break;
                    }
                    files.extend(work.small.pop_front());
                }
                return Ok(Some(Task::Pack(files).into()));
            }
            if let Some(file) = work.active.front() {
                let file = Arc::clone(file);
                let mut todo = file.todo.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((from, to)) = todo.ranges.front_mut() {
                    let index = *from;
                    *from += 1;
                    if from == to {
                        todo.ranges.pop_front();
                    }
                    if todo.ranges.is_empty() {
                        work.active.pop_front();
                    }
                    drop(todo);
                    let is_again = false;
                    let task = Task::Block {
                        file,
                        index,
                        is_again,
                    };
                    return Ok(Some(task.into()));
                }
                drop(todo);
                work.active.pop_front();
                continue;
            }
            if Arc::strong_count(&self.held) <= FILES_OPEN
                && let Some((id, known, want)) = work.large.pop_front()
            {
                drop(work);
                self.open(id, known, want);
                work = self.lock();
                continue;
            }
            let waited = self.changed.wait_timeout(work, LOOK);
            work = waited.unwrap_or_else(PoisonError::into_inner).0;
            // Whatever wakes it meanwhile, which may be often.
            if looked.elapsed() >= LOOK {
                drop(work);
                if is_gone() {
                    return Err(ErrorKind::ConnectionReset.into());
                }
                if let Some(due) = self.take_over(sent) {
                    return Ok(Some(due));
                }
                looked = Instant::now();
                work = self.lock();
            }
        }
    }
}
