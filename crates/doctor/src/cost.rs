//! What a transfer cost its hosts: put into the rules' terms and the schema's.

use explain::{CpuLoad, HostLoad};
use measure::{CpuUse, EndResult, HostCost, Outcome};
use report::model;
use units::Rate;

/// One end's load as the rules compare it; `None` where the end did not tell.
pub(crate) fn load(end: &EndResult) -> Option<HostLoad> {
    let cost = end.cost.as_ref()?;
    let machine = machine(cost);
    let mean = machine.mean();
    let cpu = |c: &model::CpuShares| CpuLoad {
        number: c.cpu,
        busy: c.busy(),
        softirq: c.softirq_share + c.irq_share,
    };
    Some(HostLoad {
        busiest_thread: Some(busiest_thread(end, cost)),
        thread_waited: share(cost.busiest_thread_wait_ns, end.duration.as_ns()),
        threads: share(end.cpu.as_ns(), end.duration.as_ns()),
        cpus: u32::try_from(machine.cpus.len()).unwrap_or(u32::MAX),
        busy: if machine.cpus.is_empty() {
            0.0
        } else {
            mean.busy()
        },
        softirq: mean.softirq_share + mean.irq_share,
        steal: mean.steal_share,
        fullest_cpu: machine.fullest().map(cpu),
        softirq_cpu: machine.most_softirq().map(cpu),
        memory_copy: cost
            .memory_copy_bytes_per_second
            .and_then(|rate| rate.checked_mul(8))
            .map(Rate::from_bits_per_second),
    })
}

/// Both ends' cost as run.json has it; `None` where neither told.
pub(crate) fn record(outcome: &Outcome) -> Option<model::HostCost> {
    let ends = [("sender", &outcome.sender), ("receiver", &outcome.receiver)];
    let told = || {
        ends.into_iter()
            .filter_map(|(name, end)| Some((name, end, end.cost.as_ref()?)))
    };
    let mut machines: Vec<model::MachineCost> = told()
        .map(|(name, _, cost)| model::MachineCost {
            ends: vec![name.to_owned()],
            ..machine(cost)
        })
        .collect();
    if outcome.on_one_machine() {
        machines.truncate(1);
        for machine in &mut machines {
            machine.ends = ends.map(|(name, _)| name.to_owned()).to_vec();
        }
    }
    let ends: Vec<model::EndCost> = told()
        .map(|(name, end, cost)| of_end(name, end, cost))
        .collect();
    (!ends.is_empty()).then_some(model::HostCost { ends, machines })
}

fn of_end(name: &str, end: &EndResult, cost: &HostCost) -> model::EndCost {
    let whole = u128::from(cost.user_ns) + u128::from(cost.system_ns);
    let per_gigabyte = whole * 1_000_000_000 / u128::from(end.bytes.max(1));
    model::EndCost {
        end: name.to_owned(),
        cpu_user_ns: cost.user_ns,
        cpu_system_ns: cost.system_ns,
        cpu_ns_per_gigabyte: u64::try_from(per_gigabyte).unwrap_or(u64::MAX),
        busiest_thread_share: busiest_thread(end, cost),
        busiest_thread_wait_share: share(cost.busiest_thread_wait_ns, end.duration.as_ns()),
        memory_copy_bytes_per_second: cost.memory_copy_bytes_per_second,
    }
}

fn busiest_thread(end: &EndResult, cost: &HostCost) -> f64 {
    share(cost.busiest_thread_ns, end.duration.as_ns())
}

fn machine(cost: &HostCost) -> model::MachineCost {
    model::MachineCost {
        ends: Vec::new(),
        over_ns: cost.over_ns,
        // One that did not tick in so short a time tells nothing.
        cpus: cost
            .cpus
            .iter()
            .filter(|c| c.whole_ns() > 0)
            .map(cpu)
            .collect(),
    }
}

fn cpu(c: &CpuUse) -> model::CpuShares {
    let of = |part: u64| share(part, c.whole_ns());
    model::CpuShares {
        cpu: c.cpu,
        user_share: of(c.user_ns),
        system_share: of(c.system_ns),
        irq_share: of(c.irq_ns),
        softirq_share: of(c.softirq_ns),
        steal_share: of(c.steal_ns),
        idle_share: of(c.idle_ns),
    }
}

/// A ratio of times, to a thousandth of a percent: the counters know no more.
#[allow(
    clippy::cast_precision_loss,
    reason = "a share to be compared and shown"
)]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    (part as f64 / whole as f64 * 1e5).round() / 1e5
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::Duration;

    fn end(boot: &str) -> EndResult {
        let cpu = |cpu, user: u64, softirq: u64, idle: u64| CpuUse {
            cpu,
            user_ns: user * 1_000_000,
            softirq_ns: softirq * 1_000_000,
            idle_ns: idle * 1_000_000,
            ..CpuUse::default()
        };
        EndResult {
            cpu: Duration::from_ms(600),
            bytes: 2_000_000_000,
            duration: Duration::from_s(1),
            cost: Some(HostCost {
                boot: boot.to_owned(),
                user_ns: 100_000_000,
                system_ns: 500_000_000,
                busiest_thread_ns: 450_000_000,
                busiest_thread_wait_ns: 120_000_000,
                memory_copy_bytes_per_second: Some(10_000_000_000),
                over_ns: 1_000_000_000,
                cpus: vec![cpu(0, 0, 0, 0), cpu(1, 300, 670, 30), cpu(2, 200, 0, 800)],
            }),
            ..EndResult::default()
        }
    }

    fn outcome(sender: &str, receiver: &str) -> Outcome {
        Outcome {
            config: measure::Config::default(),
            idle_rtt: measure::IdleRtt::default(),
            sender: end(sender),
            receiver: end(receiver),
            interrupted: false,
            complete: true,
        }
    }

    #[test]
    fn one_machine_is_accounted_once_and_two_twice() {
        let once = record(&outcome("a", "a")).unwrap();
        assert_eq!(once.machines.len(), 1);
        assert_eq!(once.machines[0].ends, ["sender", "receiver"]);
        let twice = record(&outcome("a", "b")).unwrap();
        assert_eq!((twice.machines.len(), twice.ends.len()), (2, 2));
    }

    #[test]
    fn an_end_that_did_not_tell_is_left_out() {
        let mut old = outcome("a", "b");
        old.receiver.cost = None;
        let cost = record(&old).unwrap();
        assert_eq!((cost.ends.len(), cost.machines.len()), (1, 1));
        assert_eq!(cost.machines[0].ends, ["sender"]);
        old.sender.cost = None;
        assert_eq!(record(&old), None);
        assert_eq!(load(&old.sender), None);
    }

    #[test]
    fn shares_and_cost_per_gigabyte_are_those_of_the_counters() {
        let cost = record(&outcome("a", "b")).unwrap();
        assert_eq!(cost.ends[0].cpu_ns_per_gigabyte, 300_000_000);
        assert_eq!(cost.ends[0].busiest_thread_share, 0.45);
        assert_eq!(cost.ends[0].busiest_thread_wait_share, 0.12);
        // CPU 0 did not tick.
        assert_eq!(cost.machines[0].cpus.len(), 2);
        let load = load(&end("a")).unwrap();
        assert_eq!((load.threads, load.cpus), (0.6, 2));
        assert_eq!(load.memory_copy, Some("80Gb/s".parse().unwrap()));
        let fullest = load.fullest_cpu.unwrap();
        assert_eq!(
            (fullest.number, fullest.busy, fullest.softirq),
            (1, 0.97, 0.67)
        );
        assert_eq!(load.busy, 0.585);
    }
}
