//! Connections inside ssh: what they cost, before and after.
//!
//! Of ssh's own work only what its processes on this host spend is looked at; the other host's do about as much.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Between two looks at what processes spend.
const LOOK: Duration = Duration::from_millis(100);

/// What it costs that ssh carries connections, before it is known how much.
pub(super) fn costs(streams: u16) -> String {
    let connections = match streams {
        1 => "blocks go through one ssh connection".to_owned(),
        n => format!("blocks go through {n} ssh connections"),
    };
    format!(
        "inside ssh: {connections}, each encrypted once more by ssh on both hosts, with 2 MiB at most under way (OpenSSH's \
         window); where a port is open, --port or --reverse cost none of that"
    )
}

/// What processes spend that carry connections.
#[derive(Debug, Default)]
pub(super) struct Inside(Mutex<Spending>);

#[derive(Debug, Default)]
struct Spending {
    /// Processes, and CPU time of each as it was seen last.
    all: Vec<(u32, u64)>,
    looked: Option<Instant>,
}

impl Inside {
    /// One more does.
    pub(super) fn begins(&self, process: u32) {
        let mut spending = self.lock();
        // Connections that die at once are made again without end.
        if spending.all.len() < PROCESSES_MOST {
            spending.all.push((process, 0));
        }
    }

    /// Looks what each has spent, some times a second.
    pub(super) fn look(&self) {
        let mut spending = self.lock();
        if spending
            .looked
            .is_some_and(|looked| looked.elapsed() < LOOK)
        {
            return;
        }
        spending.looked = Some(Instant::now());
        for (process, cpu_ns) in &mut spending.all {
            let stat = fs::read_to_string(format!("/proc/{process}/stat"));
            let now = stat.ok().and_then(|stat| cpu_of(&stat));
            *cpu_ns = now.unwrap_or(0).max(*cpu_ns);
        }
    }

    /// What all have spent, as they were seen last.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.lock().all.iter().map(|(_, cpu_ns)| cpu_ns).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Spending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Processes that are looked at.
const PROCESSES_MOST: usize = 512;
/// A tick of `/proc/PID/stat` (USER_HZ, 100 a second on all that Linux runs on).
const TICK_NS: u64 = 10_000_000;

/// CPU time of a process and of its children that have ended (proc(5), `utime` to `cstime`).
fn cpu_of(stat: &str) -> Option<u64> {
    // Its name, which may have anything, ends with the last bracket.
    let (_, rest) = stat.rsplit_once(')')?;
    let times = rest.split_ascii_whitespace().skip(11).take(4);
    let times = times.map(|word| word.parse::<u64>().ok());
    let ticks = times.sum::<Option<u64>>()?;
    Some(ticks.saturating_mul(TICK_NS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_carries_connections_is_seen_spending() {
        let stat = "7 (a) b) S 1 1 1 0 -1 4194560 1 1 0 0 12 30 5 3 20 0 1 0 100 1 1";
        assert_eq!(cpu_of(stat), Some(50 * TICK_NS));
        assert_eq!(cpu_of("7 (a"), None);
        assert_eq!(cpu_of("7 (a) S 1"), Some(0));
        // A process that is there, and one that is not.
        let inside = Inside::default();
        inside.begins(std::process::id());
        inside.begins(u32::MAX);
        let since = sys::clock::process_cpu().as_ns();
        inside.look();
        assert!(inside.cpu_ns() + 2 * TICK_NS > since);
        assert!(costs(1).contains("one ssh connection") && costs(3).contains("3 ssh"));
    }
}
