//! The screen of `goodput watch`: keys are read and lines drawn here; what they mean is in crate `watch`.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};

use doctor::live::{self, Onlooker};
use fault::{Failure, Verdict};
use sys::clock;
use sys::terminal::{self, Keys};
use units::text::plain;
use units::{Duration, Instant};
use watch::names::Names;
use watch::row::View;
use watch::screen::{self, Line, Look, Screen};

use crate::args::watch::{Looks, diagnosis};
use crate::print;

/// Shows the session until somebody presses q or Ctrl-C.
pub(crate) fn screen(looks: &mut Looks<'_>, view: View) -> Verdict {
    let keys = io::stdin();
    let _mode = Keys::of(keys.as_fd()).map_err(|e| {
        Failure::usage(format!(
            "the screen takes keys from stdin: {e}; --once or --format text prints lines"
        ))
    })?;
    let _shown = Shown::begin();
    let mut screen = Screen::new(view, Names::read());
    let onlooker = Onlooker::of_this_host(None);
    let mut due = clock::monotonic();
    let mut more = true;
    while !looks.context.stop.is_stopped() {
        let now = clock::monotonic();
        if now >= due && !screen.is_paused() && more {
            looks.session.follow(screen.on_screen());
            more = looks.look()?;
            due =
                now + Duration::from_ns(u64::try_from(looks.every.as_nanos()).unwrap_or(u64::MAX));
        } else {
            looks.session.drain()?;
        }
        let known = screen
            .details_of()
            .and_then(|id| looks.session.table().get(id));
        let found = known.and_then(|known| diagnosis(&looks.session, known, &onlooker));
        let findings = found.as_ref().map(live::lines).unwrap_or_default();
        let width = terminal::columns(io::stdout()).unwrap_or(80);
        let height = terminal::rows(io::stdout()).unwrap_or(24);
        if draw(&screen.lines(&looks.session, &findings, width, height)).is_err() {
            break;
        }
        if !pressed(due)?.into_iter().all(|key| screen.handle_key(key)) {
            break;
        }
    }
    Ok(looks.context.interrupted().unwrap_or(fault::DONE))
}

/// Keys that were pressed by the time that something is due, a fifth of a second from now at most.
fn pressed(due: Instant) -> Result<Vec<screen::Key>, Failure> {
    let stdin = io::stdin();
    let left = due.saturating_since(clock::monotonic()).as_ns().min(NAP_NS);
    if !terminal::is_readable(stdin.as_fd(), left).map_err(Failure::here)? {
        return Ok(Vec::new());
    }
    let mut bytes = [0; 64];
    match stdin.lock().read(&mut bytes) {
        // The terminal is gone.
        Ok(0) => Ok(vec![screen::Key::Char('q')]),
        Ok(read) => Ok(screen::keys(&bytes[..read])),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(Vec::new()),
        Err(e) => Err(Failure::here(e)),
    }
}

/// Writes the lines over those of before, in one write so that nothing flickers (ECMA-48: CUP, EL, ED, SGR).
fn draw(lines: &[Line]) -> io::Result<()> {
    let color = print::color();
    let mut out = String::from("\x1b[H");
    for (n, (look, line)) in lines.iter().enumerate() {
        let (on, off) = match look {
            Look::Plain => ("", ""),
            Look::Bold if color => ("\x1b[1m", "\x1b[0m"),
            Look::Heading | Look::Selected => ("\x1b[7m", "\x1b[0m"),
            Look::Bold => ("", ""),
        };
        let end = if n == 0 { "" } else { "\r\n" };
        out += &format!("{end}{on}{}{off}\x1b[K", plain(line));
    }
    out += "\x1b[J";
    let mut stdout = io::stdout().lock();
    stdout.write_all(out.as_bytes())?;
    stdout.flush()
}

/// The terminal's second screen without a cursor; dropped, the first one is back.
struct Shown;

impl Shown {
    fn begin() -> Self {
        ON_SCREEN.store(true, Ordering::Relaxed);
        let _ = io::stdout().write_all(b"\x1b[?1049h\x1b[?25l\x1b[H\x1b[J");
        Self
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        leave();
    }
}

/// Goes back to the first screen, if the second is on.
pub(crate) fn leave() {
    if ON_SCREEN.swap(false, Ordering::Relaxed) {
        let mut stdout = io::stdout();
        let _ = stdout.write_all(b"\x1b[?25h\x1b[?1049l");
        let _ = stdout.flush();
    }
}

static ON_SCREEN: AtomicBool = AtomicBool::new(false);
const NAP_NS: u64 = 200_000_000;
