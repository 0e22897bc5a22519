//! The socket by which a running gateway is asked and told. One line each way.
//!
//! Only its own user and root reach it: by the file's mode, and by who the kernel says is there.

use std::fs;
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
        // Of one that was killed. Where somebody listens, it stays and we have none.
        if Connection::open(&file).is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
        {
            let _ = fs::remove_file(&file);
        }
        match Listener::bind(&file) {
            Ok(listener) => Some(Self { listener, file }),
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
        let _ = fs::remove_file(&self.file);
    }
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
    use std::os::unix::fs::MetadataExt;
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
