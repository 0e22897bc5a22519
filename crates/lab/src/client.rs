//! What can be asked of a lab in the background.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use fault::Failure;
use sys::netns::NetNs;
use sys::userns::UserNs;

use crate::direction::Direction;
use crate::place::Found;
use crate::protocol::{Answer, PATIENCE, REQUEST_BYTES_MAX, Request, RuleState, Status, ask};

/// ```no_run
/// for found in lab::place::sweep() {
///     let status = found.status()?;
///     println!("{}: {} links", status.name, status.links.len());
/// }
/// # Ok::<(), fault::Failure>(())
/// ```
impl Found {
    /// What it is and what its links have carried.
    pub fn status(&self) -> Result<Status, Failure> {
        match ask(self, &Request::Status, PATIENCE)? {
            (Answer::Status(status), ..) => Ok(status),
            _ => Err(self.unexpected()),
        }
    }

    /// Moves this process, which must have one thread, into a host; returns what a program there is to
    /// find in its environment.
    pub fn enter(&self, host: &str) -> Result<BTreeMap<String, String>, Failure> {
        let request = Request::Enter {
            host: host.to_owned(),
        };
        let (answer, fds, _) = ask(self, &request, PATIENCE)?;
        let Answer::Entrance(entrance) = answer else {
            return Err(self.unexpected());
        };
        enter(fds).map_err(|e| {
            Failure::here(format!(
                "cannot enter {host} of the lab '{}': {e}",
                self.name
            ))
        })?;
        Ok(entrance.environment)
    }

    /// Changes one direction of a link, or both; returns what the lab says of it.
    pub fn set(
        &self,
        link: &str,
        direction: Option<Direction>,
        settings: BTreeMap<String, String>,
    ) -> Result<Vec<String>, Failure> {
        let request = Request::Set {
            link: link.to_owned(),
            direction,
            settings,
        };
        self.told(&request)
    }

    /// The rules of a switch or router, each with what it has met.
    pub fn rules(&self, node: &str) -> Result<Vec<RuleState>, Failure> {
        let node = node.to_owned();
        match ask(self, &Request::Rules { node }, PATIENCE)? {
            (Answer::Rules(rules), ..) => Ok(rules),
            _ => Err(self.unexpected()),
        }
    }

    /// Gives a switch or router the rules of a text that [`read_rules`] read, or none; returns what the
    /// lab says of it.
    pub fn set_rules(&self, node: &str, toml: Option<String>) -> Result<Vec<String>, Failure> {
        let node = node.to_owned();
        self.told(&Request::SetRules { node, toml })
    }

    /// Ends it and waits until its process is gone; returns its last words.
    pub fn down(&self) -> Result<Vec<String>, Failure> {
        let (answer, _, connection) = ask(self, &Request::Down, DOWN_PATIENCE)?;
        let Answer::Lines(lines) = answer else {
            return Err(self.unexpected());
        };
        connection.wait_closed(Instant::now() + DOWN_PATIENCE);
        Ok(lines)
    }

    fn told(&self, request: &Request) -> Result<Vec<String>, Failure> {
        match ask(self, request, PATIENCE)? {
            (Answer::Lines(lines), ..) => Ok(lines),
            _ => Err(self.unexpected()),
        }
    }

    fn unexpected(&self) -> Failure {
        Failure::here(format!(
            "the lab '{}' answered something else than was asked",
            self.name
        ))
    }
}

/// Moves this process, which has one thread, to where the descriptors lead.
fn enter(fds: Vec<OwnedFd>) -> io::Result<()> {
    let mut fds = fds.into_iter();
    let (Some(net), user) = (fds.next(), fds.next()) else {
        return Err(io::Error::other("the lab sent no way in"));
    };
    if let Some(user) = user.map(UserNs::from)
        && !user.is_current()?
    {
        user.enter()?;
    }
    NetNs::from(net).enter()
}

/// The text of a file, as much as fits a request with room for its quotes.
pub fn read_rules(file: &Path) -> Result<String, Failure> {
    let wrong = |problem: String| {
        Failure::usage(format!(
            "cannot read rules from {}: {problem}",
            file.display()
        ))
    };
    let bytes_max = REQUEST_BYTES_MAX as u64;
    let mut text = String::new();
    let mut limited = File::open(file)
        .map_err(|e| wrong(e.to_string()))?
        .take(bytes_max);
    limited
        .read_to_string(&mut text)
        .map_err(|e| wrong(e.to_string()))?;
    if text.len() as u64 == bytes_max {
        return Err(wrong(format!("it is larger than {} KiB", bytes_max / 1024)));
    }
    Ok(text)
}

/// The last probes cross the path before the certificate, up to 20 s; a log is written to its end.
const DOWN_PATIENCE: Duration = Duration::from_secs(60);
