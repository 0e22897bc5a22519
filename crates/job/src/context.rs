//! Circumstances of one invocation: what was typed, when, and whether the user asked to stop.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use measure::Stop;
use sys::signal;
use sys::threads;

/// Circumstances of this invocation.
#[derive(Clone, Debug)]
pub struct Context {
    /// Set when the user asked to stop.
    pub stop: Stop,
    interrupted_by: Arc<AtomicU8>,
    /// What was typed.
    pub command_line: Vec<String>,
    /// When that was.
    pub started_utc: String,
}

impl Context {
    /// Blocks the signals and starts the thread that waits for them. Before any other thread. `asked_twice` runs before a second
    /// signal ends the process.
    pub fn start(asked_twice: fn()) -> io::Result<Self> {
        signal::block_interrupts()?;
        let stop = Stop::new();
        let interrupted_by = Arc::new(AtomicU8::new(0));
        let (flag, code) = (stop.clone(), Arc::clone(&interrupted_by));
        threads::spawn("signals", move || {
            let mut seen = false;
            while let Ok(interrupt) = signal::wait_for_interrupt() {
                if seen {
                    // Asked twice: the user does not want to wait. The kernel cleans the lab up.
                    asked_twice();
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
    pub fn interrupted(&self) -> Option<u8> {
        match self.interrupted_by.load(Ordering::Relaxed) {
            0 => None,
            code => Some(code),
        }
    }
}
