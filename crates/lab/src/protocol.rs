//! What is said on a lab's control socket: one line of JSON each way, then the connection closes.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sys::control::Connection;

use crate::direction::Direction;
use crate::forward::DirectionCounts;
use crate::place::Found;
use fault::Failure;

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    /// A [`Status`].
    Status,
    /// An [`Entrance`], with the descriptors of the host's network namespace and of the lab's user
    /// namespace.
    Enter { host: String },
    /// Lines for the user.
    Set {
        link: String,
        direction: Option<Direction>,
        settings: BTreeMap<String, String>,
    },
    /// [`RuleState`]s.
    Rules { node: String },
    /// Lines for the user. `toml` has `rules`; without it there are to be none.
    SetRules { node: String, toml: Option<String> },
    /// Lines for the user, once the lab is gone.
    Down,
}

/// What comes back.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    Status(Status),
    Entrance(Entrance),
    Rules(Vec<RuleState>),
    Lines(Vec<String>),
    /// The exit code and the message.
    Error(u8, String),
}

/// A lab that is up.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// Its path's title.
    pub title: String,
    /// The process that holds it.
    pub pid: u32,
    /// RFC 3339, UTC.
    pub up_since: String,
    /// Its hosts, in the order of the path file.
    pub hosts: Vec<HostState>,
    /// Routers that are gateways; by their first address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<HostState>,
    /// Its links, in the order of the path file.
    pub links: Vec<LinkState>,
}

/// A host of a lab that is up.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct HostState {
    /// Its name in the path file.
    pub name: String,
    /// Its IPv4 address.
    pub address: String,
    /// Its IPv6 address.
    pub address6: String,
    /// The machine's interface that stands in its place.
    pub interface: Option<String>,
}

/// A link of a lab that is up.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LinkState {
    /// Its name in the path file.
    pub name: String,
    /// The node where its forward direction begins.
    pub from: String,
    /// The node where its forward direction ends.
    pub to: String,
    /// What its forward direction has carried and dropped.
    pub forward: Counts,
    /// What its backward direction has carried and dropped.
    pub backward: Counts,
}

/// Frames as the wire would carry them, since the lab came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Counts {
    /// That the link let through.
    pub frames: u64,
    /// Dropped at a queue.
    pub dropped_queue: u64,
    /// Lost as the path file has it.
    pub lost: u64,
    /// More than 1 ms late by the lab's fault.
    pub late: u64,
    /// Lost by the lab's fault.
    pub lost_by_lab: u64,
    /// Attempts to send that collided on a shared medium.
    #[serde(default)]
    pub collisions: u64,
    /// Of `lost`: collided after the slot time.
    #[serde(default)]
    pub late_collisions: u64,
    /// Of `lost`: collided at every attempt.
    #[serde(default)]
    pub excessive_collisions: u64,
    /// Of `lost`: damaged since their receiver was sending.
    #[serde(default)]
    pub collision_fcs: u64,
}

impl From<&DirectionCounts> for Counts {
    fn from(c: &DirectionCounts) -> Self {
        Self {
            frames: c.link.scheduled,
            dropped_queue: c.link.queue_full + c.link.early,
            lost: c.link.lost,
            late: c.segments_late,
            lost_by_lab: c.lost_memory + c.lost_receive + c.lost_send,
            collisions: c.link.collisions,
            late_collisions: c.link.late_collisions,
            excessive_collisions: c.link.excessive_collisions,
            collision_fcs: c.link.collision_fcs,
        }
    }
}

/// What a program in a host is told.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Entrance {
    pub(crate) environment: BTreeMap<String, String>,
}

/// A rule with what it has met.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RuleState {
    /// As in a path file.
    pub rule: String,
    /// Segments.
    pub hits: u64,
}

impl Answer {
    pub(crate) fn error(failure: &Failure) -> Self {
        Self::Error(failure.code, failure.to_string())
    }

    /// The line that is sent.
    pub(crate) fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// Asks a lab, and waits at most `patience`.
pub(crate) fn ask(
    found: &Found,
    request: &Request,
    patience: Duration,
) -> Result<(Answer, Vec<OwnedFd>, Connection), Failure> {
    let name = &found.name;
    let broken = |e: io::Error| match e.kind() {
        io::ErrorKind::TimedOut => Failure::here(format!("the lab '{name}' does not answer")),
        io::ErrorKind::UnexpectedEof => {
            Failure::here(format!("the lab '{name}' ended without an answer"))
        }
        _ => Failure::here(format!("the lab '{name}': {e}")),
    };
    let deadline = Instant::now() + patience;
    let mut connection = Connection::open(&found.socket).map_err(broken)?;
    let mut line = serde_json::to_vec(request).map_err(|e| broken(e.into()))?;
    if line.len() > REQUEST_BYTES_MAX {
        return Err(Failure::usage(format!(
            "that is more than a lab takes in one request ({} KiB)",
            REQUEST_BYTES_MAX / 1024
        )));
    }
    line.push(b'\n');
    connection.send(&line, &[], deadline).map_err(broken)?;
    let (line, fds) = connection
        .receive(ANSWER_BYTES_MAX, deadline)
        .map_err(broken)?;
    match run::from_json(&line) {
        Ok(Answer::Error(code, message)) => Err(Failure::with_code(code, message)),
        Ok(answer) => Ok((answer, fds, connection)),
        Err(_) => Err(Failure::here(format!(
            "the lab '{name}' answers in another version's words; end it with that version"
        ))),
    }
}

/// A request is one line of at most so many bytes.
pub(crate) const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// The status of a lab of hundreds of links.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// How long a lab may take to answer what it can answer at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_what_was_written_and_nothing_else_is_one() {
        let requests = [
            Request::Status,
            Request::Set {
                link: "wan".into(),
                direction: Some(Direction::Backward),
                settings: BTreeMap::from([("rate".into(), "1Gb/s".into())]),
            },
            Request::SetRules {
                node: "switch".into(),
                toml: None,
            },
        ];
        for request in requests {
            let line = serde_json::to_vec(&request).unwrap();
            assert_eq!(serde_json::from_slice::<Request>(&line).unwrap(), request);
        }
        let deep = "[".repeat(REQUEST_BYTES_MAX);
        for foreign in [
            "",
            "\0",
            "{}",
            "null",
            "{\"op\":\"halt\"}",
            "{\"op\":\"enter\"}",
            "{\"op\":\"enter\",\"host\":1}",
            "{\"op\":\"enter\",\"host\":\"a\",\"more\":1}",
            &deep,
        ] {
            assert!(
                serde_json::from_str::<Request>(foreign).is_err(),
                "{foreign}"
            );
        }
    }
}
