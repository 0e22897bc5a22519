//! What every verb shares: the request to stop, how to talk to the terminal, how the run began.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use measure::Stop;
use sys::signal;

use crate::failure::Failure;

/// Circumstances of this invocation.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    /// Set when the user asked to stop.
    pub(crate) stop: Stop,
    interrupted_by: Arc<AtomicU8>,
    /// What was typed.
    pub(crate) command_line: Vec<String>,
    /// When that was.
    pub(crate) started_utc: String,
}

impl Context {
    /// Blocks the signals and starts the thread that waits for them. Before any other thread.
    pub(crate) fn start() -> io::Result<Self> {
        signal::block_interrupts()?;
        let stop = Stop::new();
        let interrupted_by = Arc::new(AtomicU8::new(0));
        let (flag, code) = (stop.clone(), Arc::clone(&interrupted_by));
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                let mut seen = false;
                while let Ok(interrupt) = signal::wait_for_interrupt() {
                    if seen {
                        // Asked twice: the user does not want to wait. The kernel cleans the lab up.
                        crate::live::leave_screen();
                        std::process::exit(i32::from(interrupt.exit_code()));
                    }
                    seen = true;
                    code.store(interrupt.exit_code(), Ordering::Relaxed);
                    flag.stop();
                }
            })?;
        Ok(Self {
            stop,
            interrupted_by,
            command_line: std::env::args().collect(),
            started_utc: crate::record::now_utc(),
        })
    }

    /// Exit code of the signal that asked to stop, if one did.
    pub(crate) fn interrupted(&self) -> Option<u8> {
        match self.interrupted_by.load(Ordering::Relaxed) {
            0 => None,
            code => Some(code),
        }
    }
}

/// Writes results to stdout. A reader that has seen enough (`| head`) is no failure; a full disk is.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(Failure::here(anyhow::anyhow!(
            "cannot write to stdout: {e}; make room there or send it elsewhere"
        ))),
        _ => Ok(()),
    }
}

/// Says something beside the results. Where stderr is closed there is nobody to tell.
pub(crate) fn note(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// True when stdout is a terminal that wants colour.
pub(crate) fn color() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// Columns to write to.
pub(crate) fn width() -> usize {
    sys::terminal::columns(io::stdout())
        .unwrap_or(100)
        .clamp(40, 120)
}
