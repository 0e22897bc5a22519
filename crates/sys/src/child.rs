//! A program that runs in our place on the terminal: waited for and signalled without a race.
//!
//! Sources: pidfd_open(2), pidfd_getfd(2), pidfd_send_signal(2), pthread_sigmask(3).

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::ptr;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{ipproto, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd};

use crate::netns::NetNs;
use crate::signal::Interrupt;

/// A child that is ended when it goes out of scope.
#[derive(Debug)]
pub struct Ended(Child);

impl Ended {
    /// Starts a program that nobody talks to.
    pub fn start(program: &mut Command) -> io::Result<Self> {
        let program = program.stdin(Stdio::null()).stderr(Stdio::null());
        program.spawn().map(Self)
    }

    /// Waits for its own end.
    pub fn wait(&mut self) -> io::Result<()> {
        self.0.wait().map(drop)
    }

    /// How it ended, if it has.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    /// What it prints, once, if that goes to a pipe.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.0.stdout.take()
    }

    /// A handle of it.
    ///
    /// # Errors
    /// `ENOSYS` before Linux 5.3.
    pub fn handle(&self) -> io::Result<ChildHandle> {
        ChildHandle::of(&self.0)
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A handle of a child that names it and nobody else, even after its end.
#[derive(Debug)]
pub struct ChildHandle {
    fd: OwnedFd,
    pid: Pid,
}

impl ChildHandle {
    /// The handle of a child that nobody has waited for yet.
    ///
    /// # Errors
    /// `ENOSYS` before Linux 5.3.
    pub fn of(child: &Child) -> io::Result<Self> {
        let pid = Pid::from_child(child);
        Ok(Self {
            fd: rustix::process::pidfd_open(pid, PidfdFlags::empty())?,
            pid,
        })
    }

    /// Has the TCP connections that the child has open send without delay (`TCP_NODELAY` in tcp(7)), whatever it asked for
    /// itself. True when it has any.
    ///
    /// # Errors
    /// As pidfd_getfd(2): `EPERM` for a program with rights that we have not, `ENOSYS` before Linux 5.6; `ESRCH` or `ENOENT`
    /// once it has ended.
    pub fn send_without_delay(&self) -> io::Result<bool> {
        let mut any = false;
        for entry in fs::read_dir(format!("/proc/{}/fd", self.pid.as_raw_nonzero()))? {
            let entry = entry?;
            let number = entry.file_name().to_str().map(str::parse);
            // A name that cannot be read is of what was closed since.
            let is_socket = fs::read_link(entry.path())
                .is_ok_and(|what| what.as_os_str().as_bytes().starts_with(b"socket:"));
            let (true, Some(Ok(number))) = (is_socket, number) else {
                continue;
            };
            let socket = match pidfd_getfd(&self.fd, number, PidfdGetfdFlags::empty()) {
                Err(Errno::BADF) => continue,
                other => other?,
            };
            if sockopt::socket_protocol(&socket) == Ok(Some(ipproto::TCP)) {
                sockopt::set_tcp_nodelay(&socket, true)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Waits for the child's end, at most `patience`. True when it has ended.
    ///
    /// # Errors
    /// As poll(2).
    pub fn wait(&self, patience: Duration) -> io::Result<bool> {
        let timeout = Timespec {
            tv_sec: i64::try_from(patience.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: patience.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&timeout)) {
            Ok(n) => Ok(n > 0),
            Err(Errno::INTR) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Passes a request to stop on; one that has ended already is left in peace.
    pub fn interrupt(&self, interrupt: Interrupt) {
        self.signal(match interrupt {
            Interrupt::Int => Signal::INT,
            Interrupt::Term => Signal::TERM,
            Interrupt::Hangup => Signal::HUP,
        });
    }

    /// Ends it at once.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        // Fails only when the process is gone.
        let _ = rustix::process::pidfd_send_signal(&self.fd, signal);
    }
}

/// Passes a request to stop on to everybody in a network namespace; `None` ends them at once. This
/// process is left out.
///
/// # Errors
/// When procfs is not mounted.
pub fn interrupt_all_in(ns: &NetNs, interrupt: Option<Interrupt>) -> io::Result<()> {
    let wanted = rustix::fs::fstat(ns.as_fd())?;
    let is_inside = |pid: Pid| {
        rustix::fs::stat(format!("/proc/{}/ns/net", pid.as_raw_nonzero()))
            .is_ok_and(|found| (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino))
    };
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        let Some(pid) = number.and_then(Pid::from_raw) else {
            continue;
        };
        if pid == rustix::process::getpid() || !is_inside(pid) {
            continue;
        }
        // Held before it is looked at again: the number may have passed to another meanwhile.
        if let Ok(fd) = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            && is_inside(pid)
        {
            let handle = ChildHandle { fd, pid };
            match interrupt {
                Some(interrupt) => handle.interrupt(interrupt),
                None => handle.kill(),
            }
        }
    }
    Ok(())
}

/// Blocks SIGQUIT in the calling thread and in those that it starts: Ctrl-\ is for the program on
/// the terminal, not for us. Call it before the first thread.
///
/// # Errors
/// As pthread_sigmask(3).
pub fn block_quit() -> io::Result<()> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set before it is used; the old mask is not asked for.
    let rc = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGQUIT);
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut())
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(rc))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn a_child_is_signalled_and_waited_for() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let handle = ChildHandle::of(&child).unwrap();
        assert!(!handle.wait(Duration::ZERO).unwrap());
        handle.interrupt(Interrupt::Term);
        assert!(handle.wait(SOON).unwrap());
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        // Nobody else is hit once its number is free.
        handle.kill();
    }

    #[test]
    fn a_childs_connections_send_without_delay_when_told_to() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let no_tcp = UnixStream::pair().unwrap().0;
        for (input, is_tcp) in [
            (OwnedFd::from(no_tcp), false),
            (stream.try_clone().unwrap().into(), true),
        ] {
            assert!(!stream.nodelay().unwrap());
            let mut child = Command::new("sleep")
                .arg("600")
                .stdin(input)
                .spawn()
                .unwrap();
            let handle = ChildHandle::of(&child).unwrap();
            assert_eq!(handle.send_without_delay().unwrap(), is_tcp);
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(handle.send_without_delay().is_err());
        }
        assert!(stream.nodelay().unwrap());
    }

    #[test]
    fn everybody_in_a_namespace_is_told_and_nobody_else() {
        let Ok(ns) = NetNs::create() else {
            testing::skipped("no privilege to make namespaces");
            return;
        };
        let outside = || Command::new("sleep").arg("600").spawn().unwrap();
        let inside = || ns.run(outside).unwrap();
        let (mut other, mut told, mut ended) = (outside(), inside(), inside());
        interrupt_all_in(&ns, Some(Interrupt::Term)).unwrap();
        assert_eq!(told.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert_eq!(ended.wait().unwrap().signal(), Some(libc::SIGTERM));
        let mut more = inside();
        interrupt_all_in(&ns, None).unwrap();
        assert_eq!(more.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
