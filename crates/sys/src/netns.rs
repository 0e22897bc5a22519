//! Network namespaces held by file descriptors alone, and user namespaces for running without root.
//!
//! A namespace made here has no name and no mount: it lives as long as a descriptor or a thread in
//! it does. When the process ends, however it ends, the kernel takes the namespace and every link
//! in it away. That is the whole clean-up.
//!
//! Sources: namespaces(7), network_namespaces(7), user_namespaces(7).

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::thread;

use crate::threads;
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

/// A network namespace.
#[derive(Debug)]
pub struct NetNs {
    fd: OwnedFd,
}

impl NetNs {
    /// Another handle of the same namespace.
    ///
    /// # Errors
    /// As dup(2).
    pub fn duplicate(&self) -> io::Result<Self> {
        Ok(Self {
            fd: self.fd.try_clone()?,
        })
    }

    /// Makes a new, empty namespace (a loopback interface that is down).
    ///
    /// # Errors
    /// `EPERM` without CAP_SYS_ADMIN in the current user namespace.
    pub fn create() -> io::Result<Self> {
        let made = threads::spawn("netns", || {
            // SAFETY: CLONE_NEWNET changes only the calling thread's network namespace; the thread
            // ends right after and shares no descriptor state that depends on it.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET)? };
            Ok(Self {
                fd: fs::File::open("/proc/thread-self/ns/net")?.into(),
            })
        })?;
        made.join()
            .map_err(|_| io::Error::other("the namespace thread panicked"))?
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// When procfs is not mounted.
    pub fn current() -> io::Result<Self> {
        Ok(Self {
            fd: fs::File::open("/proc/thread-self/ns/net")?.into(),
        })
    }

    /// A number that the kernel gives to no other namespace until it is booted again; 1 is the machine's first
    /// (SO_NETNS_COOKIE, net/core/net_namespace.c). `None` before Linux 5.14.
    pub fn cookie() -> Option<u64> {
        let socket = rustix::net::socket_with(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::DGRAM,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .ok()?;
        let mut cookie = 0_u64;
        let mut length: libc::socklen_t = 8;
        // SAFETY: the option writes at most `length` bytes, 8, to `cookie`, which outlives the call; the socket is open.
        let done = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                SO_NETNS_COOKIE,
                (&raw mut cookie).cast(),
                &raw mut length,
            )
        };
        (done == 0 && length == 8).then_some(cookie)
    }

    /// Moves the calling thread into the namespace. Sockets it opens from then on, and threads it
    /// starts, belong there.
    ///
    /// # Errors
    /// `EPERM` without CAP_SYS_ADMIN over the namespace.
    pub fn enter(&self) -> io::Result<()> {
        let kind = Some(LinkNameSpaceType::Network);
        Ok(rustix::thread::move_into_link_name_space(
            self.fd.as_fd(),
            kind,
        )?)
    }

    /// Runs `work` on a thread of its own inside the namespace and waits for it.
    ///
    /// # Errors
    /// When the thread cannot start or enter.
    ///
    /// # Panics
    /// When `work` does.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let worker = threads::scoped(scope, "gp-host", || {
                self.enter()?;
                Ok(work())
            })?;
            worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Writes `value` to a file of sysfs as the namespace sees it, such as
    /// `class/net/eth0/queues/rx-0/rps_cpus`.
    ///
    /// # Errors
    /// `EPERM` without CAP_SYS_ADMIN, or where the machine hides parts of sysfs from a user
    /// namespace; what the file's owner says.
    pub fn write_sysfs(&self, file: &str, value: &str) -> io::Result<()> {
        self.run(|| {
            // SAFETY: a mount namespace of its own (with the working directory that it implies) for
            // this thread, which ends right after.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS)? };
            let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
            rustix::mount::mount_change("/", private)?;
            // sysfs shows the network namespace of the thread that mounts it.
            rustix::mount::mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None)?;
            fs::write(format!("/sys/{file}"), value)
        })?
    }

    /// Makes `command` run inside the namespace and die with the thread that starts it.
    pub fn place<'c>(&self, command: &'c mut Command) -> io::Result<&'c mut Command> {
        let fd = self.fd.try_clone()?;
        let parent = rustix::process::getpid();
        let no_signals = crate::signal::none();
        // SAFETY: the closure runs between fork and exec and makes only the async-signal-safe
        // system calls sigprocmask, setns, prctl and getppid; it owns its descriptor and allocates nothing.
        unsafe {
            Ok(command.pre_exec(move || {
                // Ours are blocked so that one thread can wait for them; a program is to heed them.
                if libc::sigprocmask(libc::SIG_SETMASK, &raw const no_signals, ptr::null_mut()) != 0
                {
                    return Err(io::Error::last_os_error());
                }
                if libc::setns(fd.as_raw_fd(), libc::CLONE_NEWNET) != 0 {
                    return Err(io::Error::last_os_error());
                }
                // prctl(2): the child is killed when the thread that forked it ends.
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                // The parent may have died before the prctl took effect.
                if libc::getppid() != parent.as_raw_nonzero().get() {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
                Ok(())
            }))
        }
    }
}

/// include/uapi/asm-generic/socket.h.
const SO_NETNS_COOKIE: libc::c_int = 71;

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<OwnedFd> for NetNs {
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

/// Moves the process into a user namespace of its own, in which it may make network namespaces.
/// Must be called before any thread is started.
///
/// # Errors
/// `EPERM`/`EACCES` or `ENOSPC` where the host forbids or limits user namespaces
/// (`user.max_user_namespaces`, `kernel.apparmor_restrict_unprivileged_userns`), `EINVAL` when the
/// process has several threads.
pub fn become_root_in_user_namespace() -> io::Result<()> {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    // SAFETY: NEWUSER fails with EINVAL unless the process has a single thread (unshare(2)), so no
    // other thread can observe a half-changed set of credentials.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// True when the process may make network namespaces as it stands.
pub fn can_create_namespaces() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| {
        sets.effective
            .contains(rustix::thread::CapabilitySet::SYS_ADMIN)
    })
}
