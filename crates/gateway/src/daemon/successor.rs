//! The program's file, started again to go on for this process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::control::{Asker, START_PATIENCE};

/// One that has been started and has not asked for everything yet.
#[derive(Debug)]
pub(super) struct Successor {
    child: Child,
    asker: Asker,
    until: Instant,
}

impl Successor {
    /// Starts it with this process' arguments; who asked hears if that cannot be.
    pub(super) fn start(asker: Asker) -> Option<Self> {
        let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
        args.retain(|arg| arg != TAKE_OVER);
        args.push(TAKE_OVER.into());
        let started = program().and_then(|program| {
            let mut command = Command::new(program);
            command.args(args).stdin(Stdio::null());
            command.spawn()
        });
        match started {
            Ok(child) => Some(Self {
                child,
                asker,
                until: Instant::now() + START_PATIENCE,
            }),
            Err(e) => {
                asker.answer(Err(format!("cannot start it: {e}")));
                None
            }
        }
    }

    /// Itself while it still has time; who asked hears how it ended.
    ///
    /// # Errors
    /// Why it does not go on for this process.
    pub(super) fn look(mut self, handed_over: bool) -> Result<Option<Self>, String> {
        if handed_over {
            self.asker.answer(Ok(()));
            return Ok(None);
        }
        match self.child.try_wait() {
            Ok(None) if Instant::now() < self.until => Ok(Some(self)),
            Ok(Some(status)) => {
                self.fail(format!("the new one ended: {status}; the old one goes on"))
            }
            _ => {
                let _ = self.child.kill();
                let _ = self.child.wait();
                self.fail("the new one took too long; the old one goes on".to_owned())
            }
        }
    }

    fn fail(self, why: String) -> Result<Option<Self>, String> {
        self.asker.answer(Err(why.clone()));
        Err(why)
    }
}

/// The file that this process was started from, or what lies in its place by now.
fn program() -> std::io::Result<PathBuf> {
    let file = std::env::current_exe()?;
    let name = file.to_string_lossy();
    Ok(match name.strip_suffix(" (deleted)") {
        Some(replaced) if !file.exists() => Path::new(replaced).to_owned(),
        _ => file,
    })
}

const TAKE_OVER: &str = "--take-over";
