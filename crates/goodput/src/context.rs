//! What every verb shares: the request to stop, how to talk to the terminal, how the run began.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use measure::Stop;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sys::signal;
use units::text::{plain, plain_colored, plain_json, plain_lines};

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

/// Writes results to stdout, as far as [`plain_lines`] lets them through. A reader that has seen enough (`| head`) is no
/// failure; a full disk is.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    write_out(&plain_lines(text))
}

/// [`print`] of text that has colours of ours where [`color`] says so. Parts from outside are [plain](units::text::plain)
/// before they get into it.
pub(crate) fn print_colored(text: &str) -> Result<(), Failure> {
    match color() {
        true => write_out(&plain_colored(text)),
        false => print(text),
    }
}

/// Says where a result is.
pub(crate) fn print_place(what: &str, file: &Path) -> Result<(), Failure> {
    print(&format!("{what}: {}\n", plain(&file.to_string_lossy())))
}

/// Writes a value to stdout as indented JSON. Its data is what it is; on a terminal it has no effect.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print_json_text(&serde_json::to_string_pretty(value).map_err(Failure::here)?)
}

/// [`print_json`] in one line.
pub(crate) fn print_json_line(value: &impl Serialize) -> Result<(), Failure> {
    print_json_text(&serde_json::to_string(value).map_err(Failure::here)?)
}

/// [`print_json`] of a value that is text already.
pub(crate) fn print_json_text(json: &str) -> Result<(), Failure> {
    write_out(&(plain_json(json) + "\n"))
}

/// Clears the screen where stdout is one, and writes `text` there as [`print`] does. Says whether somebody still reads it.
pub(crate) fn print_screen(text: &str) -> bool {
    // Home and clear to the end (ECMA-48: CUP, ED).
    let begin = match io::stdout().is_terminal() {
        true => "\x1b[H\x1b[J",
        false => "",
    };
    let mut out = io::stdout().lock();
    let text = format!("{begin}{}", plain_lines(text));
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .is_ok()
}

fn write_out(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(Failure::here(anyhow::anyhow!(
            "cannot write to stdout: {e}; make room there or send it elsewhere"
        ))),
        _ => Ok(()),
    }
}

/// A value that another process sent or somebody else's file has: its texts are plain from the start.
pub(crate) fn from_json<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    let mut value = serde_json::from_slice(json)?;
    report::plain_value(&mut value);
    serde_json::from_value(value)
}

/// Writes a message to stderr, as far as [`indented`] lets it through. Where stderr is closed, nobody reads it.
pub(crate) fn note(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{}", indented(&text.to_string()));
}

/// [`note`] of several lines of our own layout, such as a usage error.
pub(crate) fn note_lines(text: &str) {
    let _ = writeln!(io::stderr(), "{}", plain_lines(text));
}

/// [`plain_lines`] whose second and later lines begin with a blank: a name with a line feed in it, such as a file's, forges
/// no message.
fn indented(text: &str) -> String {
    let text = plain_lines(text);
    let mut lines = text.split('\n');
    let mut out = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        out.push('\n');
        out.push_str(if line.is_empty() || line.starts_with(' ') {
            ""
        } else {
            "  "
        });
        out.push_str(line);
    }
    out
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
