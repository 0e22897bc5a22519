//! What a transfer costs the host of one end: CPU time of its data threads, and what the machine's
//! CPUs did meanwhile.
//!
//! The machine's account is everybody's, not the transfer's alone, and in ticks of 10 ms. It is
//! there since much of a transfer's work belongs to no thread: softirqs run on whatever CPU the
//! interrupt came to.

use serde::{Deserialize, Serialize};
use sys::clock;
use sys::cpu::{self, CpuTimes};
use units::{Duration, Instant};

/// Cost of one end. `Default` where the end did not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostCost {
    /// `/proc/sys/kernel/random/boot_id`: ends with the same one are on one machine.
    pub boot: String,
    /// CPU time of the data threads in user space, as the kernel books it.
    pub user_ns: u64,
    /// The same in the kernel.
    pub system_ns: u64,
    /// CPU time of the data thread that used most, or waited longest to use it.
    pub busiest_thread_ns: u64,
    /// Time that this thread could have run and waited for a CPU, where the kernel tells.
    pub busiest_thread_wait_ns: u64,
    /// Bytes a second that one thread of this host copies from memory to memory; measured only where
    /// the busiest thread had hardly any time left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_copy_bytes_per_second: Option<u64>,
    /// Time that `cpus` accounts for: the sending time, at a receiver until the last byte.
    pub over_ns: u64,
    /// The machine's CPUs in that time.
    pub cpus: Vec<CpuUse>,
}

/// One CPU's time, all programs and the kernel together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuUse {
    /// Its number.
    pub cpu: u32,
    /// Programs.
    pub user_ns: u64,
    /// The kernel on behalf of programs.
    pub system_ns: u64,
    /// Interrupts.
    pub irq_ns: u64,
    /// Work put off from interrupts: most of what the network stack does with arriving packets.
    pub softirq_ns: u64,
    /// Taken by the hypervisor.
    pub steal_ns: u64,
    /// Nothing to do.
    pub idle_ns: u64,
}

/// The machine's account as it was at the start.
#[derive(Debug)]
pub(crate) struct Meter {
    at: Instant,
    cpus: Vec<CpuTimes>,
}

impl Meter {
    /// Starts here. Reads /proc/stat, which takes some 50 us on a small machine.
    pub(crate) fn start() -> Self {
        Self {
            at: clock::monotonic(),
            cpus: cpu::cpu_times(),
        }
    }

    /// What the machine did since the start; nothing yet of the threads.
    pub(crate) fn stop(&self) -> HostCost {
        let now = cpu::cpu_times();
        let found = |was: &CpuTimes| now.iter().find(|c| c.cpu == was.cpu).copied();
        HostCost {
            boot: cpu::boot_id(),
            over_ns: clock::monotonic().saturating_since(self.at).as_ns(),
            cpus: self
                .cpus
                .iter()
                .filter_map(|was| Some(between(was, &found(was)?)))
                .take(CPUS_MAX)
                .collect(),
            ..HostCost::default()
        }
    }
}

/// Counters of a CPU that came back from offline, or of idle time, may step back: that is nothing.
fn between(was: &CpuTimes, is: &CpuTimes) -> CpuUse {
    let grown =
        |part: fn(&CpuTimes) -> Duration| part(is).as_ns().saturating_sub(part(was).as_ns());
    CpuUse {
        cpu: is.cpu,
        user_ns: grown(|c| c.user),
        system_ns: grown(|c| c.system),
        irq_ns: grown(|c| c.irq),
        softirq_ns: grown(|c| c.softirq),
        steal_ns: grown(|c| c.steal),
        idle_ns: grown(|c| c.idle),
    }
}

impl HostCost {
    /// Measures how fast memory is copied, where the busiest thread had little of `time` left: then a
    /// copy more or less is what counts.
    pub(crate) fn weigh_memory(&mut self, time: Duration) {
        let taken = self
            .busiest_thread_ns
            .saturating_add(self.busiest_thread_wait_ns);
        if taken > time.as_ns() / 100 * NEAR_LIMIT_PERCENT {
            self.memory_copy_bytes_per_second = sys::memory::copy_rate();
        }
    }

    /// True when both ends were on one machine.
    pub fn same_machine(&self, other: &Self) -> bool {
        !self.boot.is_empty() && self.boot == other.boot
    }

    /// Makes what a stranger sent small and safe to print.
    pub(crate) fn cleaned(mut self) -> Self {
        self.boot.retain(|c| c.is_ascii_hexdigit() || c == '-');
        self.boot.truncate(BOOT_ID_CHARS);
        self.cpus.truncate(CPUS_MAX);
        self
    }
}

impl CpuUse {
    /// All of its time.
    pub fn whole_ns(&self) -> u64 {
        [self.busy_ns(), self.idle_ns]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// Time that was not idle. What the hypervisor took could not be used either.
    pub fn busy_ns(&self) -> u64 {
        let parts = [
            self.user_ns,
            self.system_ns,
            self.irq_ns,
            self.softirq_ns,
            self.steal_ns,
        ];
        parts.into_iter().fold(0, u64::saturating_add)
    }
}

/// As full as the rules take for a sign at the earliest.
const NEAR_LIMIT_PERCENT: u64 = 85;
/// 36 characters of a UUID.
const BOOT_ID_CHARS: usize = 36;
/// Beyond so many CPUs a result would grow past a message; the transfer's own are rarely the last.
const CPUS_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_steps_back_counts_as_nothing() {
        let times = |cpu, user, idle| CpuTimes {
            cpu,
            user: Duration::from_ms(user),
            idle: Duration::from_ms(idle),
            ..CpuTimes::default()
        };
        let used = between(&times(3, 50, 80), &times(3, 90, 70));
        assert_eq!((used.cpu, used.user_ns, used.idle_ns), (3, 40_000_000, 0));
        assert_eq!(used.whole_ns(), used.busy_ns());
    }

    #[test]
    fn one_machine_is_told_by_its_start_and_silence_is_no_machine() {
        let on = |boot: &str| HostCost {
            boot: boot.to_owned(),
            ..HostCost::default()
        };
        assert!(on("a").same_machine(&on("a")));
        assert!(!on("a").same_machine(&on("b")));
        assert!(!on("").same_machine(&on("")));
    }

    #[test]
    fn a_strangers_account_is_cut() {
        let hostile = HostCost {
            boot: "\x1b[2Jabc".repeat(100),
            cpus: vec![CpuUse::default(); 5_000],
            ..HostCost::default()
        };
        let cleaned = hostile.cleaned();
        assert_eq!((cleaned.boot.len(), cleaned.cpus.len()), (36, 1_024));
        assert!(cleaned.boot.chars().all(|c| c.is_ascii_hexdigit()));
    }

    #[test]
    fn the_account_of_a_moment_holds_every_cpu() {
        let meter = Meter::start();
        let cost = meter.stop();
        assert_eq!(cost.cpus.len(), meter.cpus.len());
        assert!(cost.user_ns == 0 && cost.busiest_thread_ns == 0);
    }
}
