//! What the kernel says: one network namespace each with its dumps and the thread that takes in close events.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sys::netns::NetNs;
use sys::sock_diag::{Closings, Dumper, Heard};
use tracing::{debug, warn};

/// A namespace that is watched.
#[derive(Debug)]
pub(crate) struct Source {
    /// Number in this session; 0 is our own.
    pub(crate) number: u16,
    /// Inode of the namespace; none for our own.
    pub(crate) inode: Option<u64>,
    pub(crate) dumper: Dumper,
    listener: Option<Listener>,
}

/// The thread that takes in close events, and what it has.
#[derive(Debug)]
struct Listener {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    queue: Mutex<Queue>,
}

/// Bodies of events, each behind its length.
#[derive(Debug, Default)]
struct Queue {
    bytes: Vec<u8>,
    lost: u64,
}

impl Source {
    /// Opens what is needed in the namespace: our own, or one that takes CAP_SYS_ADMIN to enter.
    pub(crate) fn open(number: u16, place: Option<(u64, &NetNs)>) -> io::Result<Self> {
        let open = || -> io::Result<_> { Ok((Dumper::open()?, Closings::open())) };
        let (dumper, closings) = match place {
            Some((_, namespace)) => namespace.run(open)??,
            None => open()?,
        };
        let listener = match closings.and_then(Listener::start) {
            Ok(listener) => Some(listener),
            Err(error) => {
                warn!(%error, "no word of connections that close: the last bytes of each will be missing");
                None
            }
        };
        Ok(Self {
            number,
            inode: place.map(|(inode, _)| inode),
            dumper,
            listener,
        })
    }

    /// Hands `each` the bodies of the events that have come; how many times some were lost.
    pub(crate) fn drain(&self, each: &mut dyn FnMut(&[u8])) -> u64 {
        let Some(listener) = &self.listener else {
            return 0;
        };
        let queue = std::mem::take(&mut *listener.shared.lock());
        let mut rest = &queue.bytes[..];
        while let Some((length, after)) = rest.split_at_checked(LENGTH_BYTES) {
            let length = length.try_into().map_or(0, u32::from_ne_bytes);
            let length = usize::try_from(length).unwrap_or(0).min(after.len());
            let (body, next) = after.split_at(length);
            each(body);
            rest = next;
        }
        queue.lost
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn push(&mut self, body: &[u8]) {
        if self.bytes.len() + body.len() > QUEUE_MAX_BYTES {
            self.lost += 1;
            return;
        }
        let length = u32::try_from(body.len()).unwrap_or(0);
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(body);
    }
}

impl Listener {
    fn start(mut closings: Closings) -> io::Result<Self> {
        debug!(bytes = closings.queue_bytes()?, "queue of close events");
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = sys::threads::spawn("gp-closings", move || {
            while !theirs.stop.load(Ordering::Relaxed) {
                if let Err(error) = take_in(&mut closings, &theirs) {
                    return warn!(%error, "no word of connections that close any more");
                }
            }
        })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }
}

/// Waits for events, and takes in those that come within a short while as one, which saves waking for each.
fn take_in(closings: &mut Closings, shared: &Shared) -> io::Result<()> {
    let mut fds = [PollFd::new(closings, PollFlags::IN)];
    match poll(&mut fds, Some(&PATIENCE)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(()),
        Ok(_) => std::thread::sleep(GATHER),
        Err(error) => return Err(error.into()),
    }
    loop {
        let mut queue = shared.lock();
        match closings.read(BATCH, &mut |body| queue.push(body))? {
            Heard::Lost => queue.lost += 1,
            Heard::Events(BATCH..) => {}
            Heard::Events(_) => return Ok(()),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const LENGTH_BYTES: usize = 4;
/// Some 40,000 events: four seconds of 10,000 a second, taken up four times a second.
const QUEUE_MAX_BYTES: usize = 16 << 20;
/// Events taken in while the lock is held.
const BATCH: usize = 256;
/// The kernel's queue holds at least 300 events (212,992 bytes, the least `rmem_max` of common kernels): 30 ms of 10,000 a second.
const GATHER: Duration = Duration::from_millis(3);
const PATIENCE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};
