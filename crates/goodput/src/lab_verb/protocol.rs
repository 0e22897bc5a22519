//! What is said on a lab's control socket: one line of JSON each way, then the connection closes.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use lab::{Certificate, DirectionCounts};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sys::control::Connection;

use super::place::Found;
use crate::context;
use crate::failure::Failure;

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Request {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Direction {
    Forward,
    Backward,
}

/// What comes back.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    Status(Status),
    Entrance(Entrance),
    Rules(Vec<RuleState>),
    Lines(Vec<String>),
    /// The exit code and the message.
    Error(u8, String),
}

/// A lab that is up.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Status {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) pid: u32,
    /// RFC 3339, UTC.
    pub(super) up_since: String,
    pub(super) hosts: Vec<HostState>,
    /// Routers that are gateways; by their first address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) gateways: Vec<HostState>,
    pub(super) links: Vec<LinkState>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct HostState {
    pub(super) name: String,
    pub(super) address: String,
    pub(super) address6: String,
    /// The machine's interface that stands in its place.
    pub(super) interface: Option<String>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct LinkState {
    pub(super) name: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) forward: Counts,
    pub(super) backward: Counts,
}

/// Frames as the wire would carry them, since the lab came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Counts {
    /// That the link let through.
    pub(super) frames: u64,
    /// Dropped at a queue.
    pub(super) dropped_queue: u64,
    /// Lost as the path file has it.
    pub(super) lost: u64,
    /// More than 1 ms late by the lab's fault.
    pub(super) late: u64,
    /// Lost by the lab's fault.
    pub(super) lost_by_lab: u64,
    /// Attempts to send that collided on a shared medium.
    #[serde(default)]
    pub(super) collisions: u64,
    /// Of `lost`: collided after the slot time.
    #[serde(default)]
    pub(super) late_collisions: u64,
    /// Of `lost`: collided at every attempt.
    #[serde(default)]
    pub(super) excessive_collisions: u64,
    /// Of `lost`: damaged since their receiver was sending.
    #[serde(default)]
    pub(super) collision_fcs: u64,
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
pub(super) struct Entrance {
    pub(super) environment: BTreeMap<String, String>,
}

/// A rule with what it has met.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct RuleState {
    /// As in a path file.
    pub(super) rule: String,
    /// Segments.
    pub(super) hits: u64,
}

impl Answer {
    pub(super) fn error(failure: &Failure) -> Self {
        Self::Error(failure.code, failure.to_string())
    }

    /// The line that is sent.
    pub(super) fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// Asks a lab, and waits at most `patience`.
pub(super) fn ask(
    found: &Found,
    request: &Request,
    patience: Duration,
) -> Result<(Answer, Vec<OwnedFd>, Connection), Failure> {
    let name = &found.name;
    let broken = |e: io::Error| match e.kind() {
        io::ErrorKind::TimedOut => {
            Failure::here(anyhow::anyhow!("the lab '{name}' does not answer"))
        }
        io::ErrorKind::UnexpectedEof => {
            Failure::here(anyhow::anyhow!("the lab '{name}' ended without an answer"))
        }
        _ => Failure::here(anyhow::anyhow!("the lab '{name}': {e}")),
    };
    let deadline = Instant::now() + patience;
    let mut connection = Connection::open(&found.socket).map_err(broken)?;
    let mut line = serde_json::to_vec(request).map_err(|e| broken(e.into()))?;
    if line.len() > REQUEST_BYTES_MAX {
        return Err(Failure::usage(anyhow::anyhow!(
            "that is more than a lab takes in one request ({} KiB)",
            REQUEST_BYTES_MAX / 1024
        )));
    }
    line.push(b'\n');
    connection.send(&line, &[], deadline).map_err(broken)?;
    let (line, fds) = connection
        .receive(ANSWER_BYTES_MAX, deadline)
        .map_err(broken)?;
    match context::from_json(&line) {
        Ok(Answer::Error(code, message)) => Err(told(code, message)),
        Ok(answer) => Ok((answer, fds, connection)),
        Err(_) => Err(Failure::here(anyhow::anyhow!(
            "the lab '{name}' answers in another version's words; end it with that version"
        ))),
    }
}

/// A failure that another process had.
pub(super) fn told(code: u8, message: String) -> Failure {
    let mut failure = Failure::check(message);
    failure.code = code;
    failure
}

/// A certificate as it is written to files.
pub(crate) fn certificate_json(c: &Certificate) -> Value {
    let counts = |d: &DirectionCounts| serde_json::to_value(Counts::from(d)).unwrap_or(Value::Null);
    json!({
        "trusted": c.trusted(),
        "problems": c.problems,
        "probes": c.probes,
        "probes_lost": c.probes_lost,
        "delay_error_p50_ns": c.delay_error_p50_ns,
        "delay_error_p99_ns": c.delay_error_p99_ns,
        "delay_error_p999_ns": c.delay_error_p999_ns,
        "delay_error_max_ns": c.delay_error_max_ns,
        "frames": c.frames(),
        "frames_late": c.frames_late(),
        "frames_together": c.frames_together(),
        "frames_lost_by_lab": c.frames_lost_by_lab(),
        "forward": counts(&c.forward),
        "backward": counts(&c.backward),
        "cpu_forwarder_ns": c.cpu.as_ns(),
        "memory_bytes": c.memory_bytes,
        "kernel": c.kernel.as_ref().map(crate::record::kernel_run),
    })
}

/// A request is one line of at most so many bytes.
pub(super) const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// The status of a lab of hundreds of links.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// How long a lab may take to answer what it can answer at once.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

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
