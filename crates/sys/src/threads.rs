//! Threads that may fail to start: the only place that starts one.
//!
//! `std::thread::spawn` and `Scope::spawn` panic where the kernel refuses (`EAGAIN` in pthread_create(3)). In a scope the other
//! threads are then waited for, for ever. Here a refusal is an error that names the limit, and [`Crew`] ends a job of which a
//! thread could not start or panicked.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use rustix::process::{Resource, getrlimit};

/// Starts a thread of its own.
///
/// # Errors
/// Where the kernel refuses; the text names the limit.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let thread = Builder::new().name(name.into());
    thread.spawn(work).map_err(|error| refused(&error))
}

/// Starts a thread that the scope waits for. Where it cannot start, whoever calls has the scope's other threads end.
///
/// # Errors
/// As [`spawn`].
pub fn scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    let thread = Builder::new().name(name.into());
    thread
        .spawn_scoped(scope, work)
        .map_err(|error| refused(&error))
}

/// The threads of one job, in a scope. The first that cannot start or that panics ends the job: `ends` is called with the
/// reason, and has the others end.
#[derive(Debug)]
pub struct Crew<F> {
    mishap: Mutex<Option<String>>,
    ends: F,
}

impl<F: Fn(&io::Error) + Sync> Crew<F> {
    /// Nobody yet.
    pub const fn new(ends: F) -> Self {
        Self {
            mishap: Mutex::new(None),
            ends,
        }
    }

    /// Starts a thread; `None` where it could not, and the job is ending. Its result is `None` where it panicked.
    pub fn start<'scope, T: Send + 'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        name: &str,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> Option<ScopedJoinHandle<'scope, Option<T>>> {
        let guarded = move || {
            let done = catch_unwind(AssertUnwindSafe(work));
            if done.is_err() {
                self.fail(&io::Error::other("a thread panicked"));
            }
            done.ok()
        };
        let started = scoped(scope, name, guarded);
        started.map_err(|error| self.fail(&error)).ok()
    }

    /// Why the job ended, where that was for want of a thread.
    ///
    /// # Errors
    /// What the first thread met that could not start, or that panicked.
    pub fn over(&self) -> io::Result<()> {
        match &*self.mishap.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(text) => Err(io::Error::other(text.clone())),
            None => Ok(()),
        }
    }

    fn fail(&self, error: &io::Error) {
        let mut mishap = self.mishap.lock().unwrap_or_else(PoisonError::into_inner);
        mishap.get_or_insert_with(|| error.to_string());
        drop(mishap);
        (self.ends)(error);
    }
}

/// The kernel's refusal to start a thread or a process, with the limit that was reached.
pub fn refused(error: &io::Error) -> io::Error {
    let limits = match error.raw_os_error() {
        Some(libc::EAGAIN) => limits(),
        // As the kernel says it: no memory, or a rule against it.
        _ => return io::Error::new(error.kind(), format!("no more threads: {error}")),
    };
    let text = match limits.as_slice() {
        [] => "no more threads can be started here (kernel.threads-max, or memory)".to_owned(),
        limits => format!(
            "no more threads can be started here ({})",
            limits.join(", or ")
        ),
    };
    io::Error::new(error.kind(), text)
}

/// The kernel's words for descriptors that ran out, with the limit that was reached, in a text for the user.
pub fn with_limits(text: &str) -> String {
    let [own, all] = [libc::EMFILE, libc::ENFILE].map(io::Error::from_raw_os_error);
    let limit = crate::host::descriptor_limit();
    text.replace(
        &own.to_string(),
        &format!("too many open files (ulimit -n {limit})"),
    )
    .replace(
        &all.to_string(),
        "too many open files on this host (fs.file-max)",
    )
}

/// The limits on threads that bind this process.
fn limits() -> Vec<String> {
    let mut limits = Vec::new();
    // The superuser is free of it (clone(2), EAGAIN); who is that in a user namespace only is not.
    let users = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let is_outside = users.split_whitespace().eq(["0", "0", "4294967295"]);
    if !(is_outside && rustix::process::geteuid().is_root())
        && let Some(limit) = getrlimit(Resource::Nproc).current
    {
        limits.push(format!("ulimit -u {limit}"));
    }
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if let Some(limit) = pids_max(&groups, Path::new("/sys/fs/cgroup")) {
        limits.push(format!("pids.max {limit} of the control group"));
    }
    limits
}

/// The smallest limit of the control groups of a process and of those above them (cgroups(7)); `groups` is its
/// `/proc/self/cgroup`.
fn pids_max(groups: &str, mounted: &Path) -> Option<u64> {
    let lines = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?, parts.next()?))
    });
    let mut least = None;
    for (controllers, path) in lines {
        let top = match controllers {
            "" => mounted.to_owned(),
            names if names.split(',').any(|name| name == "pids") => mounted.join("pids"),
            _ => continue,
        };
        let below = path.trim_start_matches('/');
        for group in Path::new(below).ancestors().take(GROUPS_MAX) {
            let limit = fs::read_to_string(top.join(group).join("pids.max"));
            let limit = limit.ok().and_then(|text| text.trim().parse::<u64>().ok());
            least = [least, limit].into_iter().flatten().min();
        }
    }
    least
}

/// Control groups are nested no deeper, for us.
const GROUPS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[test]
    fn a_refusal_says_that_there_are_no_more_threads() {
        let refused = refused(&io::Error::from_raw_os_error(libc::EAGAIN));
        let text = refused.to_string();
        assert!(
            text.starts_with("no more threads can be started here ("),
            "{text}"
        );
        assert!(!text.contains("os error"), "{text}");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn descriptors_that_ran_out_are_told_with_their_limit() {
        let of = |number| with_limits(&format!("x: {}; y", io::Error::from_raw_os_error(number)));
        let limit = crate::host::descriptor_limit();
        let own = format!("x: too many open files (ulimit -n {limit}); y");
        assert_eq!(of(libc::EMFILE), own);
        assert_eq!(
            of(libc::ENFILE),
            "x: too many open files on this host (fs.file-max); y"
        );
        assert_eq!(
            of(libc::EPERM),
            "x: Operation not permitted (os error 1); y"
        );
    }

    #[test]
    fn a_thread_that_panics_ends_its_crew_with_the_first_reason() {
        let ends = AtomicUsize::new(0);
        let crew = Crew::new(|_: &io::Error| {
            ends.fetch_add(1, Ordering::Relaxed);
        });
        assert!(crew.over().is_ok());
        thread::scope(|scope| {
            let well = crew.start(scope, "well", || 7).unwrap();
            assert_eq!(well.join().unwrap(), Some(7));
            assert!(crew.over().is_ok());
            let ill = crew.start(scope, "ill", || -> u8 { panic!("as this test wants") });
            assert_eq!(ill.unwrap().join().unwrap(), None);
        });
        assert_eq!(ends.load(Ordering::Relaxed), 1);
        assert_eq!(crew.over().unwrap_err().to_string(), "a thread panicked");
    }

    #[test]
    fn the_smallest_limit_of_the_groups_above_binds() {
        let top = std::env::temp_dir().join(format!("goodput-pids-{}", std::process::id()));
        let inner = top.join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::create_dir_all(top.join("pids/c")).unwrap();
        fs::write(inner.join("pids.max"), "max\n").unwrap();
        fs::write(top.join("a/pids.max"), "20\n").unwrap();
        fs::write(top.join("pids/c/pids.max"), "9\n").unwrap();
        for (groups, limit) in [
            ("0::/a/b\n", Some(20)),
            ("0::/a\n", Some(20)),
            ("0::/\n", None),
            ("", None),
            ("nonsense\n", None),
            ("5:cpu,pids:/c\n0::/\n", Some(9)),
            ("5:cpu:/c\n", None),
        ] {
            assert_eq!(pids_max(groups, &top), limit, "{groups:?}");
        }
        fs::remove_dir_all(top).unwrap();
    }
}
