//! Programs started for a benchmark: none outlives it, none is waited for without end.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

/// The program to be measured: target/release/goodput, or the one that GOODPUT names.
pub(crate) fn program() -> anyhow::Result<PathBuf> {
    let built = super::workspace().join("target/release/goodput");
    let program = std::env::var_os("GOODPUT").map_or(built, PathBuf::from);
    ensure!(
        program.exists(),
        "there is no {}: build it first (cargo build --release) or name one in GOODPUT",
        program.display()
    );
    Ok(program)
}

/// What a command prints until it ends, without input; what it says on its other output is nobody's.
pub(crate) fn output_of(command: &mut Command, limit: Duration) -> anyhow::Result<Vec<u8>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    output_within(command.stderr(Stdio::null()).spawn()?, limit)
}

/// The same, of one that prints JSON.
pub(crate) fn json_of(command: &mut Command, limit: Duration) -> anyhow::Result<Value> {
    serde_json::from_slice(&output_of(command, limit)?).context("what measure said")
}

/// The numbers that a command prints; nothing else.
pub(crate) fn numbers(command: &mut Command, limit: Duration) -> anyhow::Result<Vec<f64>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let text = String::from_utf8(output_within(command.spawn()?, limit)?)?;
    let words = text.split_whitespace();
    words
        .map(|word| word.parse().with_context(|| format!("a number: {text}")))
        .collect()
}

/// The most memory that this process has had at a time.
pub(crate) fn peak_bytes() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB"));
    Ok(kib.context("no VmHWM")?.parse::<u64>()? * 1_024)
}

/// What a child prints until it ends; a child that does not is killed.
pub(crate) fn output_within(child: Child, limit: Duration) -> anyhow::Result<Vec<u8>> {
    let mut child = Ended(child);
    let mut pipe = child.0.stdout.take().context("the child has no pipe")?;
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        pipe.read_to_end(&mut text).map(|_| text)
    });
    let ended = child.wait_at_most(limit);
    drop(child);
    let text = reader
        .join()
        .ok()
        .context("the reading thread panicked")??;
    if !ended {
        bail!("it did not end within {} s", limit.as_secs());
    }
    Ok(text)
}

/// A child that is ended and waited for when it goes out of scope.
#[derive(Debug)]
pub(crate) struct Ended(Child);

impl Ended {
    pub(crate) const fn of(child: Child) -> Self {
        Self(child)
    }

    /// Gives the child a moment to end by itself.
    pub(crate) fn end(mut self) {
        self.wait_at_most(Duration::from_millis(500));
    }

    /// True when the child ended.
    fn wait_at_most(&mut self, limit: Duration) -> bool {
        let steps = limit.as_millis().div_ceil(POLL.as_millis());
        (0..steps).any(|_| {
            thread::sleep(POLL);
            matches!(self.0.try_wait(), Ok(Some(_)))
        })
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // Both fail on a child that has ended, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const POLL: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_all_that_a_child_may_print() {
        let limit = Duration::from_secs(10);
        let mut echo = Command::new("echo");
        assert_eq!(
            numbers(echo.args(["1.5", "-2"]), limit).unwrap(),
            [1.5, -2.0]
        );
        assert!(numbers(Command::new("echo").arg("many"), limit).is_err());
        assert_eq!(
            json_of(Command::new("echo").arg("[7]"), limit).unwrap()[0],
            7
        );
        assert!(peak_bytes().unwrap() > 1 << 16);
    }

    #[test]
    fn a_child_that_hangs_is_killed() {
        let mut sleeper = Command::new("sleep");
        let child = sleeper.arg("60").stdout(Stdio::piped()).spawn().unwrap();
        assert!(output_within(child, Duration::from_millis(50)).is_err());
    }
}
