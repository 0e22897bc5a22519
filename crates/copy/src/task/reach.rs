//! Whether the two sides come to each other: a word while they do not, and what to do where they never did.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::engine::{CopyError, Note, Watch};
use crate::meeting::Meeting;
use crate::reason::{reason, stays_unreachable};

use super::job::Meets;

/// After so long without a connection it is said that there is none yet: a SYN that was lost has been sent again by then.
const STILL: Duration = Duration::from_secs(5);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// What stands in what a far side says that could not connect.
pub(super) const UNREACHED: &str = "the far side cannot be reached";
/// How a far side ended of which nothing more is known.
pub(super) const WORDLESS: &str = "it ended without a word";

/// Who connects to whom.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// None where ssh carries connections.
    how: Option<How>,
    is_met: AtomicBool,
}

#[derive(Debug)]
enum How {
    /// This side, to a port there, which may be a daemon's.
    To {
        host: String,
        port: u16,
        is_daemon: bool,
    },
    /// The far side, to a port of this host.
    Back { host: String, port: u16 },
}

impl Reach {
    /// This side connects.
    pub(super) fn to(host: &str, port: u16, is_daemon: bool) -> Self {
        let host = host.to_owned();
        Self::by(How::To {
            host,
            port,
            is_daemon,
        })
    }

    /// The far side does.
    pub(super) fn back(host: &str, port: u16) -> Self {
        let host = host.to_owned();
        Self::by(How::Back { host, port })
    }

    /// Of a far side, where it connects.
    pub(super) fn of(meets: &Meets) -> Option<Self> {
        let at = match meets {
            Meets::Connects { to } => to.first(),
            Meets::ConnectsOver { ways } => ways.first()?.to.first(),
            _ => None,
        }?;
        Some(Self::to(&at.ip().to_string(), at.port(), false))
    }

    fn by(how: How) -> Self {
        Self {
            how: Some(how),
            is_met: AtomicBool::new(false),
        }
    }

    /// Looks whether a first connection comes, and says once where none has after a while; until then or the end.
    pub(super) fn look(&self, meeting: &Meeting, watch: &Watch) {
        let since = Instant::now();
        let mut is_said = false;
        while !meeting.is_over() {
            if !meeting.open_links().is_empty() {
                return self.is_met.store(true, Ordering::Relaxed);
            }
            if !is_said && since.elapsed() >= STILL {
                is_said = true;
                watch.note(Note::Chosen(self.still()));
            }
            meeting.sleep(LOOK);
        }
    }

    fn still(&self) -> String {
        match &self.how {
            Some(How::To { host, port, .. }) => {
                format!("still trying to reach {host}, port {port}")
            }
            Some(How::Back { host, port }) => {
                format!("still waiting for {host} to connect to port {port} of this host")
            }
            None => "still waiting for ssh's first connection".to_owned(),
        }
    }

    /// What to do where a copy failed since nobody was ever met; none where another reason is told, by this side or by how the
    /// far side ended.
    pub(super) fn advice(&self, error: &CopyError, told: Option<&CopyError>) -> Option<String> {
        use std::io::ErrorKind::{PermissionDenied, Unsupported};
        let is_otherwise = match error {
            CopyError::Link(error) => {
                // A rule of this host that forbids connections is the kernel's word, a refused proof the other side's.
                matches!(error.kind(), PermissionDenied | Unsupported) && !stays_unreachable(error)
            }
            CopyError::Far(why) => !why.contains(UNREACHED),
            _ => true,
        };
        let has_vanished = matches!(told, Some(CopyError::Far(why)) if why == WORDLESS);
        if self.is_met.load(Ordering::Relaxed) || is_otherwise || has_vanished {
            return None;
        }
        if let (Some(How::To { host, port, .. }), CopyError::Link(error)) = (&self.how, error)
            && stays_unreachable(error)
        {
            let why = reason(error);
            return Some(format!(
                "{host}, port {port}, cannot be reached from this host ({why}); nothing was copied"
            ));
        }
        let why = match error {
            CopyError::Link(error) => error.to_string(),
            other => other.to_string(),
        };
        Some(match self.how.as_ref()? {
            How::To {
                host,
                port,
                is_daemon: true,
            } => {
                format!("{host} took the job, and then could not be reached at port {port}: {why}")
            }
            How::To { host, port, .. } => format!(
                "{host}, port {port}, cannot be reached: {why}. A firewall may stand between: --port says which port is open \
                 there, --reverse has {host} connect to this host, --through-ssh needs no port"
            ),
            How::Back { host, port } => format!(
                "{host} does not reach port {port} of this host: {why}. A firewall may stand between: --port says which port \
                 is open here, without --reverse this host connects to {host}, --through-ssh needs no port"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    #[test]
    fn who_was_never_met_is_told_with_what_to_do() {
        let timed_out = || CopyError::Link(Error::new(ErrorKind::TimedOut, "connection timed out"));
        let advice = |reach: &Reach, told: Option<&CopyError>| reach.advice(&timed_out(), told);
        let to = Reach::to("node7", 5220, false);
        assert_eq!(to.still(), "still trying to reach node7, port 5220");
        let said = advice(&to, None).unwrap();
        for word in [
            "node7, port 5220",
            "connection timed out",
            "--port",
            "--reverse",
            "--through-ssh",
        ] {
            assert!(said.contains(word), "{said}");
        }
        let said = advice(&Reach::back("node7", 5220), None).unwrap();
        for word in [
            "port 5220 of this host",
            "--port",
            "without --reverse",
            "--through-ssh",
        ] {
            assert!(said.contains(word), "{said}");
        }
        let said = advice(&Reach::to("node7", 5212, true), None).unwrap();
        assert!(!said.contains("--reverse"), "{said}");
        // The far side gave up waiting, too; another reason is one of its own.
        let theirs = CopyError::Far(format!("{UNREACHED}: it did not connect in 60s"));
        assert!(advice(&to, Some(&theirs)).is_some() && to.advice(&theirs, None).is_some());
        assert_eq!(
            advice(&to, Some(&CopyError::Far(WORDLESS.to_owned()))),
            None
        );
        assert_eq!(
            to.advice(&CopyError::Far("no such file".to_owned()), None),
            None
        );
        let routeless = CopyError::Link(rustix::io::Errno::NETUNREACH.into());
        assert_eq!(
            to.advice(&routeless, None).unwrap(),
            "node7, port 5220, cannot be reached from this host (network is unreachable); nothing was copied"
        );
        let version = CopyError::Link(Error::new(ErrorKind::Unsupported, "versions"));
        assert_eq!(to.advice(&version, None), None);
        assert_eq!(advice(&Reach::default(), None), None);
        to.is_met.store(true, Ordering::Relaxed);
        assert_eq!(advice(&to, None), None);
    }
}
