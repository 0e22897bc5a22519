//! How a sender's thread hands blocks to the kernel: written, lent without copying, or sent from a
//! file.
//!
//! Lent pages must stay as they are until the kernel says that it is done with them. All blocks are
//! one block that never changes, so any number may be lent at once; what is waited for at the end
//! is that nobody else's bytes come to lie where the kernel still reads.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use rustix::event::PollFlags;
use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};
use sys::zerocopy;

use crate::Config;
use crate::tls::Sealed;
use crate::transport::Sending;
use crate::wait::{TICK, wait_for};

/// What became of blocks that were lent to the kernel, all streams of an end together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ZeroCopyCounts {
    /// Sends without copying.
    pub sends: u64,
    /// Of these, done with by the kernel's word.
    pub notified: u64,
    /// Of these, copied by the kernel after all.
    pub copied: u64,
    /// Sends that the kernel would not take without copying, so that they were written.
    pub written: u64,
}

impl ZeroCopyCounts {
    /// Adds another stream's.
    pub(crate) fn add(&mut self, other: Self) {
        self.sends += other.sends;
        self.notified += other.notified;
        self.copied += other.copied;
        self.written += other.written;
    }

    fn outstanding(&self) -> u64 {
        self.sends.saturating_sub(self.notified)
    }
}

/// What all streams of an end send with.
#[derive(Clone, Debug)]
pub(crate) enum Supply {
    Write,
    ZeroCopy,
    Sendfile(Arc<Source>),
}

/// A file to send from.
#[derive(Debug)]
pub(crate) struct Source {
    file: File,
    len: u64,
}

/// What one stream sends with.
#[derive(Debug)]
pub(crate) enum Outlet {
    Write,
    ZeroCopy(Lent),
    Sealed(Box<Sealed>),
    Sendfile { source: Arc<Source>, at: u64 },
}

/// Blocks lent to the kernel.
#[derive(Debug)]
pub(crate) struct Lent {
    block: Arc<[u8]>,
    counts: ZeroCopyCounts,
}

impl Supply {
    /// What `config` asks for; `block` is what a file in memory is filled with.
    ///
    /// # Errors
    /// When the file cannot be opened, is empty or no regular file.
    pub(crate) fn new(config: &Config, block: &[u8]) -> io::Result<Self> {
        match (config.sending, &config.file) {
            (Sending::Write, _) => Ok(Self::Write),
            (Sending::ZeroCopy, _) => Ok(Self::ZeroCopy),
            (Sending::Sendfile, Some(path)) => Ok(Self::Sendfile(Arc::new(Source::open(path)?))),
            (Sending::Sendfile, None) => Ok(Self::Sendfile(Arc::new(Source::generate(block)?))),
        }
    }

    /// One stream's share of it.
    ///
    /// # Errors
    /// Where the kernel cannot send without copying.
    pub(crate) fn outlet(&self, socket: &TcpStream, block: &Arc<[u8]>) -> io::Result<Outlet> {
        Ok(match self {
            Self::Write => Outlet::Write,
            Self::ZeroCopy => {
                zerocopy::enable(socket.as_fd())?;
                Outlet::ZeroCopy(Lent {
                    block: Arc::clone(block),
                    counts: ZeroCopyCounts::default(),
                })
            }
            Self::Sendfile(source) => Outlet::Sendfile {
                source: Arc::clone(source),
                at: 0,
            },
        })
    }
}

impl Source {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let facts = file.metadata()?;
        if !facts.is_file() || facts.len() == 0 {
            let text = format!("{} is no file with bytes in it", path.display());
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        let len = facts.len();
        Ok(Self { file, len })
    }

    /// A file in memory (memfd_create(2)) that holds `block`.
    fn generate(block: &[u8]) -> io::Result<Self> {
        let fd = rustix::fs::memfd_create("goodput-payload", MemfdFlags::CLOEXEC)?;
        let mut file = File::from(fd);
        file.write_all(block)?;
        let len = block.len() as u64;
        Ok(Self { file, len })
    }
}

impl Outlet {
    /// Sends as much of `block` as the kernel takes; of a file as many bytes from where it is.
    ///
    /// # Errors
    /// As write(2); `WouldBlock` also where the kernel has to let go of lent blocks first.
    pub(crate) fn hand_over(&mut self, mut socket: &TcpStream, block: &[u8]) -> io::Result<usize> {
        match self {
            Self::Write => socket.write(block),
            Self::ZeroCopy(lent) => lent.hand_over(socket, block),
            Self::Sealed(sealed) => sealed.write(socket, block),
            Self::Sendfile { source, at } => source.send(socket, at, block.len()),
        }
    }

    /// Sends what an encrypted stream still holds, and its end.
    pub(crate) fn close(&mut self, socket: &TcpStream, give_up: impl Fn() -> bool) {
        if let Self::Sealed(sealed) = self {
            sealed.close(socket, give_up);
        }
    }

    /// Waits until the kernel has let go of everything, or `give_up`.
    pub(crate) fn settle(self, socket: &TcpStream, give_up: impl Fn() -> bool) -> ZeroCopyCounts {
        let Self::ZeroCopy(mut lent) = self else {
            return ZeroCopyCounts::default();
        };
        lent.take_notices(socket);
        while lent.counts.outstanding() > 0 && !give_up() {
            std::thread::sleep(SETTLE_STEP);
            lent.take_notices(socket);
        }
        if lent.counts.outstanding() > 0 {
            // Never freed, so that nothing else comes to lie in pages that may still be sent.
            std::mem::forget(Arc::clone(&lent.block));
        }
        lent.counts
    }
}

impl Source {
    fn send(&self, socket: &TcpStream, at: &mut u64, want: usize) -> io::Result<usize> {
        let left = self.len.saturating_sub(*at);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(want);
        let sent = rustix::fs::sendfile(socket, &self.file, Some(at), count)?;
        if sent == 0 && count > 0 {
            let text = "the file became shorter while it was sent";
            return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
        }
        if *at >= self.len {
            *at = 0;
        }
        Ok(sent)
    }
}

impl Lent {
    fn hand_over(&mut self, mut socket: &TcpStream, block: &[u8]) -> io::Result<usize> {
        if self.counts.sends.is_multiple_of(NOTICES_EVERY)
            || self.counts.outstanding() >= OUTSTANDING_MAX
        {
            self.take_notices(socket);
        }
        if self.counts.outstanding() >= OUTSTANDING_MAX {
            return Err(Self::wait(socket));
        }
        match zerocopy::send(socket.as_fd(), block) {
            Ok(sent) => {
                self.counts.sends += u64::from(sent > 0);
                Ok(sent)
            }
            Err(error) if error.raw_os_error() == Some(ENOBUFS) => {
                self.take_notices(socket);
                if self.counts.outstanding() > 0 {
                    return Err(Self::wait(socket));
                }
                // Not even one block may be locked in memory here.
                self.counts.written += 1;
                socket.write(block)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits for a notification, for a tick at most.
    fn wait(socket: &TcpStream) -> io::Error {
        // POLLERR is reported unasked.
        match wait_for(socket, PollFlags::empty(), TICK) {
            Ok(()) => ErrorKind::WouldBlock.into(),
            Err(error) => error,
        }
    }

    fn take_notices(&mut self, socket: &TcpStream) {
        // An error means that the socket is gone, which the next send tells.
        while let Ok(Some(done)) = zerocopy::completion(socket.as_fd()) {
            self.counts.notified += done.count();
            if done.copied {
                self.counts.copied += done.count();
            }
        }
    }
}

/// Sends lent at once. The kernel's own limits come first: some 200 notifications in a socket's
/// option memory (128 KiB), and RLIMIT_MEMLOCK of an unprivileged user (8 MiB).
const OUTSTANDING_MAX: u64 = 4_096;
/// Each look costs a system call; notifications merge while nobody looks.
const NOTICES_EVERY: u64 = 16;
const SETTLE_STEP: std::time::Duration = std::time::Duration::from_millis(1);
const ENOBUFS: i32 = rustix::io::Errno::NOBUFS.raw_os_error();

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn sent(sending: Sending, file: Option<&Path>, sizes: &[usize]) -> (Vec<u8>, ZeroCopyCounts) {
        let config = Config {
            sending,
            file: file.map(Path::to_owned),
            ..Config::default()
        };
        let block: Arc<[u8]> = (0..=99).collect();
        let (near, mut far) = pair();
        let supply = Supply::new(&config, &block).unwrap();
        let mut outlet = supply.outlet(&near, &block).unwrap();
        let mut total = 0;
        for &size in sizes {
            total += outlet.hand_over(&near, &block[..size]).unwrap();
        }
        let mut got = vec![0; total];
        far.read_exact(&mut got).unwrap();
        let begun = std::time::Instant::now();
        let counts = outlet.settle(&near, || begun.elapsed().as_secs() > 20);
        (got, counts)
    }

    #[test]
    fn lent_blocks_arrive_and_every_send_is_notified() {
        let (got, counts) = sent(Sending::ZeroCopy, None, &[100, 1, 50]);
        let wanted: Vec<u8> = (0..100).chain(0..1).chain(0..50).collect();
        assert_eq!(got, wanted);
        // Loopback copies for the receiver.
        let all = ZeroCopyCounts {
            sends: 3,
            notified: 3,
            copied: 3,
            written: 0,
        };
        assert_eq!(counts, all);
    }

    #[test]
    fn a_file_is_sent_over_and_over() {
        let (got, _) = sent(Sending::Sendfile, None, &[60, 60, 100]);
        // The end of the file ends a send; the next begins again.
        let wanted: Vec<u8> = (0..100).chain(0..100).collect();
        assert_eq!(got, wanted);
        let path = std::env::temp_dir().join(format!("goodput-outlet-{}", std::process::id()));
        std::fs::write(&path, b"abc").unwrap();
        let (got, _) = sent(Sending::Sendfile, Some(&path), &[2, 2, 2]);
        std::fs::write(&path, b"").unwrap();
        let config = Config {
            sending: Sending::Sendfile,
            file: Some(path.clone()),
            ..Config::default()
        };
        let refused = Supply::new(&config, &[]).is_err();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(got, b"abcab");
        assert!(refused);
    }
}
