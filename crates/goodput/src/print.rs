//! How to talk to the terminal.

pub(crate) mod balance;
pub(crate) mod capture;
pub(crate) mod copy;
pub(crate) mod explain;
pub(crate) mod fabric;
pub(crate) mod gateway;
pub(crate) mod lab;
pub(crate) mod live;
pub(crate) mod measure;
pub(crate) mod reproduce;
pub(crate) mod rotate;
pub(crate) mod serve;
pub(crate) mod sim;
pub(crate) mod stamp;
pub(crate) mod watch;

/// Compares a text at 80 and 120 columns, without colour, with `snapshots/*_80.snap` and `*_120.snap`, and checks that
/// no line is longer.
#[cfg(test)]
macro_rules! golden {
    ($name:literal, $text:expr) => {{
        let text = $text;
        for width in [80_usize, 120] {
            let drawn: String = text(width);
            for line in drawn.lines() {
                assert!(line.chars().count() <= width, "over {width}: {line}");
            }
            insta::assert_snapshot!(format!("{}_{width}", $name), drawn);
        }
    }};
}
#[cfg(test)]
pub(crate) use golden;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use fault::Failure;
use report::machine::Machine;
use serde::Serialize;
use units::text::{plain, plain_colored, plain_json, plain_lines};

/// Writes results to stdout, as far as [`plain_lines`] lets them through. A reader that has seen enough (`| head`) is no
/// failure; a full disk is.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match QUIET.load(Ordering::Relaxed) {
        true => Ok(()),
        false => write_out(&plain_lines(text)),
    }
}

/// [`print`] of text that has colours of ours where [`color`] says so. Parts from outside are [plain](units::text::plain)
/// before they get into it.
pub(crate) fn print_colored(text: &str) -> Result<(), Failure> {
    match color() && !QUIET.load(Ordering::Relaxed) {
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
    DOCUMENT.store(true, Ordering::Relaxed);
    write_out(&(plain_json(json) + "\n"))
}

/// Says on stdout that the command failed, unless a whole document is there already. A reader that has gone, or a full disk, changes
/// nothing: the exit code is the failure's.
pub(crate) fn fail(machine: Machine, error: &str, exit_code: u8) {
    if machine == Machine::Lines || !DOCUMENT.load(Ordering::Relaxed) {
        let _ = print_json_text(&machine.text(error, exit_code));
    }
}

/// `--quiet`: nothing is printed but errors and results for programs.
pub(crate) static QUIET: AtomicBool = AtomicBool::new(false);

/// A JSON document was printed.
static DOCUMENT: AtomicBool = AtomicBool::new(false);

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

/// Writes a message to stderr, as far as [`indented`] lets it through. Where stderr is closed, nobody reads it.
pub(crate) fn note(text: impl std::fmt::Display) {
    if !QUIET.load(Ordering::Relaxed) {
        let _ = writeln!(io::stderr(), "{}", indented(&text.to_string()));
    }
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

/// `words` behind a label: [`wrapped`], with later lines below the first one's words.
pub(crate) fn labelled(label: &str, words: &str, width: usize) -> String {
    let indent = label.chars().count();
    let body = wrapped(words, 0, width.saturating_sub(indent));
    let blank = " ".repeat(indent);
    let leads = std::iter::once(label).chain(std::iter::repeat(blank.as_str()));
    let lines = leads.zip(body.lines());
    lines
        .map(|(lead, line)| format!("{lead}{line}\n"))
        .collect()
}

/// True when stdout is a terminal that wants colour.
pub(crate) fn color() -> bool {
    let set = |name: &str| std::env::var_os(name);
    io::stdout().is_terminal()
        && set("NO_COLOR").is_none_or(|v| v.is_empty())
        && set("TERM").is_none_or(|term| term != "dumb")
}

/// Words as lines of at most `width` columns: the first begins with the blanks of `words`, others with `indent`.
/// A longer word has a line of its own.
pub(crate) fn wrapped(words: &str, indent: usize, width: usize) -> String {
    let first = words.len() - words.trim_start_matches(' ').len();
    let mut out = " ".repeat(first);
    let mut columns = first;
    let mut begun = false;
    for word in words.split_whitespace() {
        let length = word.chars().count();
        if begun && columns + 1 + length > width {
            out += &format!("\n{:indent$}{word}", "");
            columns = indent + length;
        } else {
            let gap = usize::from(begun);
            out += &format!("{:gap$}{word}", "");
            columns += gap + length;
        }
        begun = true;
    }
    out + "\n"
}

/// Columns to write to.
pub(crate) fn width() -> usize {
    sys::terminal::columns(io::stdout())
        .unwrap_or(100)
        .clamp(40, 120)
}
