//! What else the machine does: its load, its CPU time, and the gaps it tears into a running thread.
//!
//! Simplification: one spinning thread sees the gaps of the CPU that it is on. That is enough to tell
//! a machine that stalls from a lab that does.

use std::fs;

use sys::clock;
use units::Duration;

/// Load average over a minute; 0 where the kernel will not say.
pub(crate) fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next();
    first.and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// CPU time of the whole machine while it lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineMeter {
    at: units::Instant,
    busy: Option<CpuTimes>,
}

/// Seconds of all CPUs since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct CpuTimes {
    busy_s: f64,
    stolen_s: f64,
}

/// What the meter read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct MachineUse {
    /// Wall time.
    pub(crate) wall_s: f64,
    /// CPU seconds of everybody: programs, kernel, interrupts.
    pub(crate) busy_s: f64,
    /// CPU seconds that the hypervisor gave to others while this machine had work.
    pub(crate) stolen_s: f64,
}

impl MachineMeter {
    pub(crate) fn start() -> Self {
        Self {
            at: clock::monotonic(),
            busy: read_cpu_times(),
        }
    }

    /// Since the start.
    pub(crate) fn read(&self) -> MachineUse {
        let wall_s = clock::monotonic().saturating_since(self.at).as_s_f64();
        let (Some(before), Some(after)) = (self.busy, read_cpu_times()) else {
            return MachineUse {
                wall_s,
                ..MachineUse::default()
            };
        };
        MachineUse {
            wall_s,
            busy_s: (after.busy_s - before.busy_s).max(0.0),
            stolen_s: (after.stolen_s - before.stolen_s).max(0.0),
        }
    }
}

/// Gaps in a thread that does nothing but look at the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Noise {
    /// Gaps longer than [`GAP`].
    pub(crate) gaps: u32,
    /// Their sum.
    pub(crate) lost: Duration,
    /// CPU seconds that others used meanwhile.
    pub(crate) others_cpu_s: f64,
    /// CPU seconds stolen by the hypervisor.
    pub(crate) stolen_s: f64,
    /// How long this looked.
    pub(crate) wall_s: f64,
}

impl Noise {
    /// Spins for `time`.
    pub(crate) fn listen(time: Duration) -> Self {
        let meter = MachineMeter::start();
        let own = clock::thread_cpu();
        let start = clock::monotonic();
        let (mut last, mut noise) = (start, Self::default());
        while last.saturating_since(start) < time {
            let now = clock::monotonic();
            let gap = now.saturating_since(last);
            if gap > GAP {
                noise.gaps += 1;
                noise.lost = noise.lost + gap;
            }
            last = now;
        }
        let machine = meter.read();
        let own_s = (clock::thread_cpu() - own).as_s_f64();
        noise.others_cpu_s = (machine.busy_s - own_s).max(0.0);
        noise.stolen_s = machine.stolen_s;
        noise.wall_s = machine.wall_s;
        noise
    }
}

/// As long as what the lab calls late.
pub(crate) const GAP: Duration = lab::LATE;

fn read_cpu_times() -> Option<CpuTimes> {
    cpu_times_of(&fs::read_to_string("/proc/stat").ok()?)
}

/// proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal in ticks of 1/100 s.
fn cpu_times_of(text: &str) -> Option<CpuTimes> {
    let line = text.lines().find(|l| l.starts_with("cpu "))?;
    let words = line.split_ascii_whitespace().skip(1);
    let ticks: Vec<f64> = words.map_while(|w| w.parse().ok()).collect();
    let sum = |range: &[usize]| range.iter().filter_map(|&i| ticks.get(i)).sum::<f64>();
    (ticks.len() >= 4).then(|| CpuTimes {
        busy_s: sum(&[0, 1, 2, 5, 6]) / TICKS_PER_S,
        stolen_s: sum(&[7]) / TICKS_PER_S,
    })
}

/// USER_HZ, include/asm-generic/param.h: the same on every architecture that counts.
const TICKS_PER_S: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_are_not_busy() {
        let text = "cpu  100 200 300 9000 8000 10 20 50 0 0\ncpu0 1 2 3 4\n";
        let times = cpu_times_of(text).unwrap();
        assert!((times.busy_s - 6.3).abs() < 1e-9);
        assert!((times.stolen_s - 0.5).abs() < 1e-9);
        assert_eq!(cpu_times_of("cpu  1 2\n"), None);
        assert_eq!(cpu_times_of(""), None);
    }

    #[test]
    fn listening_takes_its_time() {
        let noise = Noise::listen(Duration::from_ms(20));
        assert!(noise.wall_s >= 0.02, "{noise:?}");
        assert!(noise.lost >= GAP || noise.gaps == 0);
    }
}
