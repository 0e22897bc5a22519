//! Local control sockets: one bounded line each way between processes of one user, with descriptors.
//!
//! A peer may send anything, slowly or never: every read has a limit in bytes and a deadline.
//!
//! Sources: unix(7) for SO_PEERCRED and SCM_RIGHTS, Linux net/unix/af_unix.c.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

/// A socket that its own user can reach.
#[derive(Debug)]
pub struct Listener {
    inner: UnixListener,
}

/// A connection; nothing on it waits beyond a deadline.
#[derive(Debug)]
pub struct Connection {
    inner: UnixStream,
    /// What has come of a line that is not complete.
    begun: Vec<u8>,
}

/// Who is at the other end, as this process's user namespace has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process, 0 where it cannot be seen from here.
    pub pid: i32,
    /// Effective user when it connected or listened; 65534 where it has no number here.
    pub uid: u32,
}

impl Listener {
    /// Makes the socket file, which must not exist, and listens. Mode 0600, from the moment when the file exists: it gets the
    /// mode of the socket (`unix_bind_bsd`, Linux net/unix/af_unix.c).
    ///
    /// # Errors
    /// `EADDRINUSE` when the file exists, `InvalidInput` when its path is too long.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let address = SocketAddrUnix::new(path).map_err(too_long)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
        rustix::net::bind(&fd, &address)?;
        rustix::net::listen(&fd, WAITING_MAX)?;
        Ok(Self { inner: fd.into() })
    }

    /// Waits until somebody wants to connect or one of `connections` has something to say, at most
    /// `patience`. Without `accepting` only the latter.
    ///
    /// # Errors
    /// As poll(2).
    pub fn wait(
        &self,
        accepting: bool,
        connections: &[&Connection],
        patience: Duration,
    ) -> io::Result<()> {
        let mut fds: Vec<_> = connections
            .iter()
            .map(|c| PollFd::new(&c.inner, PollFlags::IN))
            .collect();
        if accepting {
            fds.push(PollFd::new(&self.inner, PollFlags::IN));
        }
        match poll(&mut fds, Some(&timespec(patience))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// A listener that another process made and sent here.
    ///
    /// # Errors
    /// As fcntl(2).
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let inner = UnixListener::from(fd);
        inner.set_nonblocking(true)?;
        Ok(Self { inner })
    }

    /// Somebody who wants to connect, if anybody does.
    ///
    /// # Errors
    /// As accept(2); `EMFILE` may pass.
    pub fn accept(&self) -> io::Result<Option<Connection>> {
        match self.inner.accept() {
            Ok((inner, _)) => Connection::new(inner).map(Some),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl Connection {
    /// Connects without waiting.
    ///
    /// # Errors
    /// `ECONNREFUSED` when nobody listens any more, `EAGAIN` when the queue of connections is full.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)?;
        Self::new(fd.into())
    }

    /// Both ends of a connection that has no name, so that nobody else can have either.
    ///
    /// # Errors
    /// As socketpair(2).
    pub fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = UnixStream::pair()?;
        Ok((Self::new(a)?, Self::new(b)?))
    }

    fn new(inner: UnixStream) -> io::Result<Self> {
        inner.set_nonblocking(true)?;
        Ok(Self {
            inner,
            begun: Vec::new(),
        })
    }

    /// Who is at the other end.
    ///
    /// # Errors
    /// As getsockopt(2).
    pub fn peer(&self) -> io::Result<Peer> {
        let mut cred = libc::ucred {
            pid: 0,
            uid: u32::MAX,
            gid: u32::MAX,
        };
        let mut length = u32::try_from(size_of::<libc::ucred>()).unwrap_or(0);
        // SAFETY: `cred` is a live, writable ucred of the stated length.
        let rc = unsafe {
            libc::getsockopt(
                self.inner.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut cred).cast(),
                &raw mut length,
            )
        };
        if rc == 0 {
            Ok(Peer {
                pid: cred.pid,
                uid: cred.uid,
            })
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Sends all of `bytes`, and with the first of them `fds`.
    ///
    /// # Errors
    /// `TimedOut` at the deadline; `EPIPE` when the peer is gone.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>], deadline: Instant) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::other("too many descriptors for one message"));
        }
        let mut sent = 0;
        while sent < bytes.len() {
            if !ready(self.inner.as_fd(), PollFlags::OUT, deadline)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let rest = [IoSlice::new(&bytes[sent..])];
            match rustix::net::sendmsg(&self.inner, &rest, &mut control, SendFlags::NOSIGNAL) {
                Ok(n) => {
                    sent += n;
                    // What was sent once must not be sent with the rest again.
                    control.clear();
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// The first line, without its end, as soon as all of it has come; does not wait. What follows
    /// the line is dropped, and descriptors are closed.
    ///
    /// # Errors
    /// `UnexpectedEof` when the peer closed before the line's end, `InvalidData` for a line of more
    /// than `bytes_max`.
    pub fn poll_line(&mut self, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        match self.receive(bytes_max, Instant::now()) {
            Ok((line, _)) => Ok(Some(line)),
            Err(e) if e.kind() == io::ErrorKind::TimedOut => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Reads up to the first line's end, which is left out, and the descriptors that came with it.
    /// What follows the line is dropped.
    ///
    /// # Errors
    /// `TimedOut` at the deadline, `UnexpectedEof` when the peer closed before the line's end,
    /// `InvalidData` for a line of more than `bytes_max`.
    pub fn receive(
        &mut self,
        bytes_max: usize,
        deadline: Instant,
    ) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
        let mut fds = Vec::new();
        loop {
            let mut chunk = [0; CHUNK_BYTES];
            let read = self.receive_some(&mut chunk, &mut fds, deadline)?;
            let chunk = &chunk[..read];
            let end = chunk.iter().position(|&b| b == b'\n');
            self.begun.extend_from_slice(&chunk[..end.unwrap_or(read)]);
            if self.begun.len() > bytes_max {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("a line of more than {bytes_max} bytes"),
                ));
            }
            if end.is_some() {
                return Ok((mem::take(&mut self.begun), fds));
            }
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Waits until the peer has closed, or the deadline. True when it has.
    pub fn wait_closed(&self, deadline: Instant) -> bool {
        let mut chunk = [0; CHUNK_BYTES];
        let mut fds = Vec::new();
        loop {
            match self.receive_some(&mut chunk, &mut fds, deadline) {
                Ok(0) => return true,
                Ok(_) => fds.clear(),
                Err(e) => return e.kind() != io::ErrorKind::TimedOut,
            }
        }
    }

    fn receive_some(
        &self,
        chunk: &mut [u8],
        fds: &mut Vec<OwnedFd>,
        deadline: Instant,
    ) -> io::Result<usize> {
        loop {
            if !ready(self.inner.as_fd(), PollFlags::IN, deadline)? {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut into = [IoSliceMut::new(chunk)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            match rustix::net::recvmsg(&self.inner, &mut into, &mut control, flags) {
                Ok(message) => {
                    for ancillary in control.drain() {
                        if let RecvAncillaryMessage::ScmRights(received) = ancillary {
                            // More than were asked for are closed here.
                            fds.extend(received.take(FDS_MAX - fds.len().min(FDS_MAX)));
                        }
                    }
                    return Ok(message.bytes);
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// The user whose rights this process has.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Makes the process the leader of a session of its own, without a terminal.
///
/// # Errors
/// `EPERM` when it leads a process group already.
pub fn leave_terminal() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Joins stdin, stdout and stderr to /dev/null.
///
/// # Errors
/// When there is no /dev/null.
pub fn close_standard_streams() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    for stream in 0..=2 {
        // SAFETY: dup2 onto a standard stream; the old description is closed, and nothing but the
        // standard library's handles, which keep using the number, knows it.
        if unsafe { libc::dup2(null.as_raw_fd(), stream) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Waits for the socket, at most until the deadline. True when it is ready, or broken.
fn ready(fd: BorrowedFd<'_>, wanted: PollFlags, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match poll(
            &mut [PollFd::from_borrowed_fd(fd, wanted)],
            Some(&timespec(left)),
        ) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Descriptors in one message; more are closed on arrival. Linux takes 253 (SCM_MAX_FD).
pub const FDS_MAX: usize = 240;
const CHUNK_BYTES: usize = 4_096;
/// Connections that wait to be accepted, as std::os::unix::net has it.
const WAITING_MAX: i32 = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    const SOON: Duration = Duration::from_secs(20);

    fn pair() -> (Connection, Connection) {
        Connection::pair().unwrap()
    }

    #[test]
    fn a_socket_file_is_its_users_alone_whenever_it_is_seen() {
        use std::os::unix::fs::PermissionsExt as _;
        use std::sync::atomic::{AtomicBool, Ordering};
        let name = format!("goodput-sys-control-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let file = folder.join("socket");
        let over = AtomicBool::new(false);
        let (seen, others) = std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                let (mut seen, mut others) = (0, 0);
                while !over.load(Ordering::Relaxed) {
                    let Ok(about) = std::fs::metadata(&file) else {
                        continue;
                    };
                    seen += 1;
                    others += u32::from(about.permissions().mode() & 0o777 != 0o600);
                }
                (seen, others)
            });
            // Ends the other thread also where this one panics.
            let bound = std::panic::catch_unwind(|| {
                for _ in 0..2_000 {
                    drop(Listener::bind(&file).unwrap());
                    std::fs::remove_file(&file).unwrap();
                }
            });
            over.store(true, Ordering::Relaxed);
            bound.unwrap();
            looks.join().unwrap()
        });
        assert_eq!(others, 0, "of {seen}");
        let long = folder.join("x".repeat(200));
        let long = Listener::bind(&long).unwrap_err();
        assert_eq!(long.kind(), io::ErrorKind::InvalidInput);
        drop(Listener::bind(&file).unwrap());
        let again = Listener::bind(&file).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    fn soon() -> Instant {
        Instant::now() + SOON
    }

    #[test]
    fn a_line_arrives_with_its_descriptors() {
        let (a, mut b) = pair();
        let (kept, given) = UnixStream::pair().unwrap();
        a.send(b"take this\nrest", &[given.as_fd()], soon())
            .unwrap();
        drop(given);
        let (line, mut fds) = b.receive(100, soon()).unwrap();
        assert_eq!(line, b"take this");
        assert_eq!(fds.len(), 1);
        let mut taken = UnixStream::from(fds.remove(0));
        taken.write_all(b"x").unwrap();
        let mut byte = [0];
        (&kept).read_exact(&mut byte).unwrap();
        assert_eq!(byte, *b"x");
    }

    #[test]
    fn a_line_may_be_as_long_as_allowed_and_no_longer() {
        for (bytes, fits) in [(10_000, true), (10_001, false)] {
            let (a, mut b) = pair();
            let mut line = vec![b'a'; bytes];
            line.push(b'\n');
            a.send(&line, &[], soon()).unwrap();
            let received = b.receive(10_000, soon());
            assert_eq!(received.is_ok(), fits, "{bytes}");
        }
    }

    #[test]
    fn a_silent_or_lost_peer_is_given_up() {
        let (a, mut b) = pair();
        let now = Instant::now();
        assert_eq!(
            b.receive(10, now).unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        assert!(!b.wait_closed(now));
        a.send(b"half", &[], soon()).unwrap();
        assert_eq!(b.poll_line(10).unwrap(), None);
        a.send(b" done\n", &[], soon()).unwrap();
        assert_eq!(b.poll_line(9).unwrap().unwrap(), b"half done");
        a.send(b"half", &[], soon()).unwrap();
        drop(a);
        let lost = b.receive(10, soon()).unwrap_err();
        assert_eq!(lost.kind(), io::ErrorKind::UnexpectedEof);
        assert!(b.wait_closed(soon()));
    }

    #[test]
    fn the_peer_is_known_by_process_and_user() {
        let (a, _b) = pair();
        let peer = a.peer().unwrap();
        assert_eq!(peer.pid, i32::try_from(std::process::id()).unwrap());
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
    }
}
