//! Programs started for a benchmark: none outlives it, none is waited for without end.

use std::io::Read;
use std::process::Child;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};

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
    use std::process::Stdio;

    #[test]
    fn a_child_that_hangs_is_killed() {
        let mut sleeper = std::process::Command::new("sleep");
        let child = sleeper.arg("60").stdout(Stdio::piped()).spawn().unwrap();
        assert!(output_within(child, Duration::from_millis(50)).is_err());
    }
}
