//! What the CPUs of this machine have done since it started, as the kernel books it.
//!
//! /proc/stat shows the whole machine, also inside containers and network namespaces (unless the
//! container's host puts its own file there), and needs no privilege. The kernel counts in ticks of
//! 10 ms, by sampling at the timer interrupt unless it was built with CONFIG_VIRT_CPU_ACCOUNTING_GEN
//! or CONFIG_IRQ_TIME_ACCOUNTING: short interrupts are then booked to whatever they interrupted, so
//! softirq time reads low rather than high.
//!
//! Source: proc_stat(5); Linux fs/proc/stat.c, `show_stat`.

use std::fs;

use units::Duration;

/// One CPU's time since the machine started. Time of guests is part of `user`, as in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// Its number.
    pub cpu: u32,
    /// Programs, niced ones too.
    pub user: Duration,
    /// The kernel on behalf of programs.
    pub system: Duration,
    /// Interrupts.
    pub irq: Duration,
    /// Work put off from interrupts: what the network stack does with packets.
    pub softirq: Duration,
    /// Taken by the hypervisor.
    pub steal: Duration,
    /// Nothing, or nothing but a wait for a disk.
    pub idle: Duration,
}

/// All CPUs that are online, in the kernel's order; empty where the kernel does not tell.
pub fn cpu_times() -> Vec<CpuTimes> {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    times_of(&text, tick())
}

/// Time that the calling thread could have run and had to wait for a CPU (Linux
/// Documentation/scheduler/sched-stats.rst, the second number); zero where the kernel does not tell.
pub fn thread_waited() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split_ascii_whitespace().nth(1);
    Duration::from_ns(ns.and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

/// A number drawn when the machine started: equal for all that runs on one machine. Empty where the
/// kernel does not tell.
pub fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

/// The unit of /proc/stat.
fn tick() -> Duration {
    // SAFETY: sysconf takes no pointer.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    let per_second = u64::try_from(per_second).unwrap_or(0).clamp(1, 1_000_000);
    Duration::from_ns(1_000_000_000 / per_second)
}

/// `cpu0 user nice system idle iowait irq softirq steal guest guest_nice`, a line for each CPU.
fn times_of(stat: &str, tick: Duration) -> Vec<CpuTimes> {
    let lines = stat.lines().take_while(|line| line.starts_with("cpu"));
    lines
        .filter_map(|line| time_of(line, tick))
        .take(CPUS_MAX)
        .collect()
}

fn time_of(line: &str, tick: Duration) -> Option<CpuTimes> {
    let mut words = line.split_ascii_whitespace();
    let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
    // Columns were added over time; one that this kernel lacks is zero.
    let mut next = || {
        let ticks: u64 = words.next().map_or(Some(0), |w| w.parse().ok())?;
        Some(tick.saturating_mul(ticks))
    };
    let (user, nice, system, idle, wait) = (next()?, next()?, next()?, next()?, next()?);
    let (irq, softirq, steal) = (next()?, next()?, next()?);
    Some(CpuTimes {
        cpu,
        user: user + nice,
        system,
        irq,
        softirq,
        steal,
        idle: idle + wait,
    })
}

/// More CPUs than Linux can be built for on most architectures (NR_CPUS is 8192).
const CPUS_MAX: usize = 8_192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cpu_has_a_line_and_the_sum_of_all_is_left_out() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 5 1 2 70 3 4 6 8 0 0\ncpu12 1 0 0 2\nintr 1 2\n";
        let times = times_of(stat, Duration::from_ms(10));
        let ms = Duration::from_ms;
        let first = CpuTimes {
            cpu: 0,
            user: ms(60),
            system: ms(20),
            irq: ms(40),
            softirq: ms(60),
            steal: ms(80),
            idle: ms(730),
        };
        assert_eq!(times[0], first);
        // A kernel before 2.5.41 has four columns.
        assert_eq!((times[1].cpu, times[1].idle), (12, ms(20)));
        assert_eq!(times.len(), 2);
    }

    #[test]
    fn what_is_no_number_is_no_cpu() {
        let tick = Duration::from_ms(10);
        for text in ["", "cpu", "cpu0 x", "cpux 1 2 3 4", "intr 5\ncpu0 1 2 3 4"] {
            assert!(times_of(text, tick).is_empty(), "{text}");
        }
        let huge = times_of("cpu0 18446744073709551615 1 0 0", tick);
        assert_eq!(huge.len(), 1, "saturates");
    }

    #[test]
    fn this_machine_tells_of_a_cpu_and_of_its_start() {
        assert!(!cpu_times().is_empty());
        assert_eq!(boot_id(), boot_id());
        assert!(tick() > Duration::ZERO);
        assert!(thread_waited() <= thread_waited());
    }
}
