//! The socket by which a running gateway is asked and told. One line each way.
//!
//! Only its own user and root reach it: by the file's mode, and by who the kernel says is there.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gateway::Gateway;
use gateway::config::Config;
use gateway::counters::Counts;
use serde::Deserialize;
use sys::control::{Connection, Listener};

use super::{Status, TellArgs, words};
use crate::context::{self, Context};
use crate::failure::{self, Failure, Verdict};

/// The gateway's end.
#[derive(Debug)]
pub(super) struct Control {
    listener: Listener,
    file: PathBuf,
    /// Device and inode of our socket, so that another's file of that name stays.
    made: Option<(u64, u64)>,
}

/// What somebody wants that the gateway's owner has to do.
#[derive(Debug)]
pub(super) enum Asked {
    /// Become this; who asked waits.
    Reload(Box<Config>, Asker),
    Drain,
}

/// Who waits for an answer.
#[derive(Debug)]
pub(super) struct Asker(Connection);

impl Asker {
    pub(super) fn answer(&self, result: Result<(), String>) {
        let line = match result {
            Ok(()) => "ok\n".to_owned(),
            Err(e) => format!("error {}\n", e.replace('\n', " ")),
        };
        let _ = self.0.send(line.as_bytes(), &[], Instant::now() + PATIENCE);
    }
}

impl Control {
    /// Makes the socket; without one the gateway runs all the same.
    pub(super) fn open(file: Option<&Path>) -> Option<Self> {
        let file = match file {
            Some(file) => file.to_owned(),
            None => default_file()?,
        };
        // Of one that was killed. Where somebody listens, it stays and we have none. connect(2) refuses
        // what is no socket by the same word as a dead one.
        let refused = |e: std::io::Error| e.kind() == std::io::ErrorKind::ConnectionRefused;
        if is_socket(&file) && Connection::open(&file).is_err_and(refused) {
            let _ = fs::remove_file(&file);
        }
        match Listener::bind(&file) {
            Ok(listener) => Some(Self {
                listener,
                made: identity(&file),
                file,
            }),
            Err(e) => {
                context::note(format_args!(
                    "gateway: no control socket, {}: {e}; status and reload will not find it",
                    file.display()
                ));
                None
            }
        }
    }

    /// Waits a moment for somebody and answers; what is left to do comes back.
    pub(super) fn serve(
        &self,
        gateway: &Gateway,
        context: &Context,
        read: impl FnOnce() -> Result<Config, Failure>,
    ) -> Option<Asked> {
        let _ = self.listener.wait(true, &[], LOOK);
        let mut connection = self.listener.accept().ok()??;
        let ours = sys::control::effective_user();
        let peer = connection.peer().ok()?;
        if peer.uid != ours && peer.uid != 0 {
            return None;
        }
        // Nobody can hold it up for longer.
        let deadline = Instant::now() + PATIENCE;
        let (line, _) = connection.receive(LINE_BYTES, deadline).ok()?;
        let asker = Asker(connection);
        match line.as_slice() {
            b"status" => {
                let mut line = serde_json::to_vec(&Status::of(gateway.counts())).ok()?;
                line.push(b'\n');
                let _ = asker.0.send(&line, &[], deadline);
                None
            }
            b"drain" => {
                asker.answer(Ok(()));
                Some(Asked::Drain)
            }
            b"reload" if context.stop.is_stopped() => {
                asker.answer(Err("it is ending".to_owned()));
                None
            }
            b"reload" => match read() {
                Ok(config) => Some(Asked::Reload(Box::new(config), asker)),
                Err(e) => {
                    asker.answer(Err(e.to_string()));
                    None
                }
            },
            _ => {
                asker.answer(Err("expected status, reload or drain".to_owned()));
                None
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.made.is_some() && identity(&self.file) == self.made {
            let _ = fs::remove_file(&self.file);
        }
    }
}

fn is_socket(file: &Path) -> bool {
    fs::symlink_metadata(file).is_ok_and(|m| m.file_type().is_socket())
}

/// Device and inode of what has this name, not of what it leads to.
fn identity(file: &Path) -> Option<(u64, u64)> {
    let found = fs::symlink_metadata(file).ok()?;
    Some((found.dev(), found.ino()))
}

/// Asks for counts and prints them.
pub(super) fn status(which: &TellArgs, json: bool) -> Verdict {
    let line = ask(which, "status")?;
    if json {
        context::print(&format!("{line}\n"))?;
    } else {
        let counts: Counted = serde_json::from_str(&line).map_err(Failure::far)?;
        context::print(&words(&counts.0))?;
    }
    Ok(failure::DONE)
}

/// Tells it something that it says yes or no to.
pub(super) fn tell(which: &TellArgs, what: &str) -> Verdict {
    let line = ask(which, what)?;
    match line.strip_prefix("error ") {
        None => Ok(failure::DONE),
        Some(why) => Err(Failure::usage(anyhow::anyhow!("{what}: {why}"))),
    }
}

/// Counts without the version of the layout beside them.
#[derive(Debug, Deserialize)]
struct Counted(Counts);

fn ask(which: &TellArgs, what: &str) -> Result<String, Failure> {
    let file = which.control.clone().or_else(default_file);
    let nobody = |why: String| {
        Failure::far(anyhow::anyhow!(
            "no gateway answers here: {why}; is one running in this network namespace, as this user?"
        ))
    };
    let Some(file) = file else {
        return Err(nobody(
            "there is no directory for its control socket".into(),
        ));
    };
    let name = file.display();
    let deadline = Instant::now() + PATIENCE;
    let mut connection = Connection::open(&file).map_err(|e| nobody(format!("{name}: {e}")))?;
    connection
        .send(format!("{what}\n").as_bytes(), &[], deadline)
        .and_then(|()| connection.receive(ANSWER_BYTES, deadline))
        .map(|(line, _)| String::from_utf8_lossy(&line).into_owned())
        .map_err(|e| nobody(format!("{name}: {e}")))
}

/// In /run for root, else in the user's own directory; by network namespace, since each may have one.
fn default_file() -> Option<PathBuf> {
    let namespace = fs::metadata("/proc/thread-self/ns/net").ok()?.ino();
    let name = format!("goodput-gateway-{namespace}.sock");
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let directory = match sys::control::effective_user() {
        0 => PathBuf::from("/run"),
        _ => own.filter(|d| d.is_absolute())?,
    };
    Some(directory.join(name))
}

/// How long the gateway waits for somebody before it looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);
/// For a line each way.
const PATIENCE: Duration = Duration::from_secs(2);
const LINE_BYTES: usize = 64;
const ANSWER_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_dead_socket_gives_way_and_only_our_own_is_taken_away() {
        let name = format!("goodput-control-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir(&directory).unwrap();
        let file = directory.join("notes");
        fs::write(&file, "kept").unwrap();
        assert!(Control::open(Some(&file)).is_none());
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");

        let socket = directory.join("socket");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let control = Control::open(Some(&socket)).unwrap();
        assert!(Control::open(Some(&socket)).is_none());
        // Somebody puts another file in its place.
        fs::remove_file(&socket).unwrap();
        fs::write(&socket, "kept").unwrap();
        drop(control);
        assert_eq!(fs::read_to_string(&socket).unwrap(), "kept");

        let own = directory.join("own");
        drop(Control::open(Some(&own)).unwrap());
        assert!(!own.exists());
        fs::remove_dir_all(&directory).unwrap();
    }
}
