//! The interface: queueing discipline, rings, offloads, interrupts and the CPUs that serve them.

use units::Rate;

use crate::facts::{Device, Facts, Ring};
use crate::key::{Key, OFFLOADS, Side};
use crate::plan::{AT_ONCE, Plan, Request, Role, Scope, Wanted};

/// Rates from which on rings, governors and the spread of interrupts show.
const FAST: Rate = Rate::from_bits_per_second(5_000_000_000);
/// Larger rings than that no longer fit a CPU's cache (ESnet's value for 100 Gb/s).
const RING: u32 = 8192;
/// What a backlog has to hold: arrivals during two scheduler ticks at 250 Hz.
const BACKLOG_NS: u64 = 8_000_000;

pub(crate) fn derive(plan: &mut Plan, request: &Request, facts: &Facts) {
    let Some(device) = &facts.device else {
        return;
    };
    let is_virtual = device.driver.as_deref().is_none_or(is_virtual);
    qdisc(plan, request, facts, device, is_virtual);
    offloads(plan, request, facts, device);
    if request.rate >= FAST {
        rings(plan, facts, device);
        coalescing(plan, facts, device);
        governors(plan, facts);
    }
    let spread = spread(plan, request, facts, device, is_virtual);
    interrupts(plan, request, facts, device);
    backlog(plan, request, facts, spread);
    jumbo(plan, request, device);
}

/// Whether a driver has no hardware of its own, and so neither rings nor a queue that counts.
pub fn is_virtual(driver: &str) -> bool {
    ["veth", "bridge", "tun", "dummy", "ifb", "macvlan"].contains(&driver)
}

fn device_step(key: Key, new: impl Into<String>, why: impl Into<String>) -> Wanted {
    Wanted {
        key,
        scope: Scope::Device,
        from: AT_ONCE,
        ..Wanted::sysctl("", new, why)
    }
}

/// fq paces each connection; it belongs on the physical port.
fn qdisc(plan: &mut Plan, request: &Request, facts: &Facts, device: &Device, is_virtual: bool) {
    let key = Key::Qdisc(device.name.clone());
    let now = device.qdisc.as_deref().unwrap_or("unknown");
    if request.role == Role::Gateway {
        plan.advise(
            "net.core.default_qdisc",
            "not changed: fq paces a host's own connections; a router's queue wants fq_codel or its vendor's",
        );
        return;
    }
    if is_virtual {
        let name = &device.name;
        let text = format!(
            "not changed: {name} ({now}) is virtual and has no queue of its own; fq belongs on the physical port, in the host"
        );
        plan.advise("net.core.default_qdisc", text);
        return;
    }
    if now == "fq" || now == "mq" && facts.sysctl("net.core.default_qdisc") == Some("fq") {
        plan.enough(key, now, "paces each connection");
        return;
    }
    if facts.has_fq != Some(true) {
        plan.cannot(
            key,
            "this kernel has no fq (CONFIG_NET_SCH_FQ); TCP paces by its own timers where asked",
        );
        return;
    }
    let why = "fq paces each connection, so that bursts do not overflow shallow queues on the path";
    if facts.sysctl("net.core.default_qdisc") != Some("fq") {
        let wanted = Wanted {
            scope: Scope::Host,
            from: "devices made later",
            ..Wanted::sysctl("net.core.default_qdisc", "fq", why)
        };
        plan.change(facts, wanted);
    }
    if !device.qdisc_is_default {
        let why = format!(
            "somebody configured {now} on it, and that is left; replace it with: tc qdisc replace dev {} root fq",
            device.name
        );
        plan.cannot(key, why);
    } else if now == "mq" {
        let why = format!(
            "{now} has a queue for each ring: a new default_qdisc reaches them at the next boot, or with: tc qdisc replace dev {} root mq",
            device.name
        );
        plan.cannot(key, why);
    } else {
        plan.change(facts, device_step(key, "fq", why));
    }
}

fn offloads(plan: &mut Plan, request: &Request, facts: &Facts, device: &Device) {
    for what in OFFLOADS {
        let key = Key::Offload(device.name.clone(), what.to_owned());
        let Some(now) = facts.values.get(&key).map(|v| v.text.clone()) else {
            continue;
        };
        let wanted = match (what, request.role, now.as_str()) {
            ("lro", Role::Gateway, "on") => Some(("off", "merged packets cannot be forwarded")),
            ("lro", ..) => None,
            (_, _, "off") => Some((
                "on",
                "the CPU handles one packet of 64 KiB in place of 45 of 1500 B",
            )),
            _ => None,
        };
        match wanted {
            Some((new, why)) => plan.change(facts, device_step(key, new, why)),
            None if what != "lro" => plan.enough(key, now, "on"),
            None => {}
        }
    }
}

fn rings(plan: &mut Plan, facts: &Facts, device: &Device) {
    for (side, ring) in [(Side::Rx, device.rx_ring), (Side::Tx, device.tx_ring)] {
        let key = Key::Ring(device.name.clone(), side);
        let Some(Ring { now, max }) = ring else {
            continue;
        };
        let wanted = max.min(RING);
        if now >= wanted {
            plan.enough(key, now.to_string(), format!("the hardware has {max}"));
            continue;
        }
        let why = format!(
            "room for a burst while the CPU is busy: min(hardware's {max}, {RING} that fit its cache)"
        );
        let step = device_step(key, wanted.to_string(), why);
        plan.change(
            facts,
            Wanted {
                cost: format!(
                    "about {} of memory a queue; the link may drop for seconds",
                    units::Bytes::new(u64::from(wanted) * 2048)
                ),
                ..step
            },
        );
    }
}

fn coalescing(plan: &mut Plan, facts: &Facts, device: &Device) {
    let key = Key::AdaptiveRx(device.name.clone());
    match facts.values.get(&key).map(|v| v.text.as_str()) {
        Some("off") => {
            let why = "fewer interrupts at a high rate, low delay at a low one";
            plan.change(facts, device_step(key, "on", why));
        }
        Some(now) => {
            let now = now.to_owned();
            plan.enough(key, now, "adapts to the load");
        }
        None => {}
    }
}

fn governors(plan: &mut Plan, facts: &Facts) {
    let found: Vec<(Key, String)> = facts
        .values
        .iter()
        .filter(|(key, _)| {
            matches!(key, Key::File(path) if path.ends_with("/cpufreq/scaling_governor"))
        })
        .map(|(key, value)| (key.clone(), value.text.clone()))
        .collect();
    for (key, now) in found {
        if now == "performance" {
            plan.enough(key, now, "the clock stays up");
            continue;
        }
        let why = "one connection is one CPU's work: its clock stays up between bursts";
        let step = Wanted {
            cost: "more power when idle".to_owned(),
            scope: Scope::Host,
            ..device_step(key, "performance", why)
        };
        plan.change(facts, step);
    }
}

/// RPS where the hardware has one queue for many CPUs; true when it is on afterwards.
fn spread(
    plan: &mut Plan,
    request: &Request,
    facts: &Facts,
    device: &Device,
    is_virtual: bool,
) -> bool {
    let on = device
        .rx_queues
        .iter()
        .any(|queue| queue.rps_cpus.chars().any(|c| !"0,".contains(c)));
    let [queue] = device.rx_queues.as_slice() else {
        if device.rx_queues.len() > 1 && !on {
            plan.advise(
                "RPS",
                format!(
                    "not needed: {} receive queues already spread to CPUs",
                    device.rx_queues.len()
                ),
            );
        }
        return on;
    };
    if on || is_virtual || facts.cpus < 2 || request.rate < FAST {
        return on;
    }
    let path = format!(
        "/sys/class/net/{}/queues/{}/rps_cpus",
        device.name, queue.name
    );
    let why = format!(
        "one receive queue for {} CPUs: RPS spreads connections over all of them",
        facts.cpus
    );
    let wanted = Wanted {
        cost: "an interrupt between CPUs for each batch of packets".to_owned(),
        ..device_step(Key::File(path), mask(facts.cpus), why)
    };
    plan.change(facts, wanted);
    true
}

/// CPUs 0 to `cpus` - 1 as the kernel prints a mask: words of 32 bits, highest first.
fn mask(cpus: u32) -> String {
    let words = cpus.div_ceil(32);
    let mut text = String::new();
    for word in (0..words).rev() {
        let bits = (cpus - word * 32).min(32);
        let value = u32::MAX >> (32 - bits);
        if text.is_empty() {
            text = format!("{value:x}");
        } else {
            text.push_str(&format!(",{value:08x}"));
        }
    }
    text
}

/// Interrupts of several queues that all go to one CPU.
fn interrupts(plan: &mut Plan, request: &Request, facts: &Facts, device: &Device) {
    let places: Vec<(&u32, &String)> = device.interrupts.iter().collect();
    let [(_, first), .., _] = places.as_slice() else {
        return;
    };
    let one = first.parse::<u32>().is_ok() && places.iter().all(|(_, cpus)| cpus == first);
    if !one || facts.cpus < 2 || request.rate < FAST {
        return;
    }
    for (at, (number, _)) in places.iter().enumerate() {
        let cpu = u32::try_from(at).unwrap_or(0) % facts.cpus;
        if cpu.to_string() == **first {
            continue;
        }
        let key = Key::File(format!("/proc/irq/{number}/smp_affinity_list"));
        let why = format!(
            "all {} interrupts go to CPU {first}; one CPU each",
            places.len()
        );
        plan.change(facts, device_step(key, cpu.to_string(), why));
    }
}

/// netdev_max_backlog counts only where packets wait for another CPU.
fn backlog(plan: &mut Plan, request: &Request, facts: &Facts, spread: bool) {
    const NAME: &str = "net.core.netdev_max_backlog";
    if !spread {
        plan.advise(
            NAME,
            "not raised: drivers with NAPI do not use it; it counts for RPS, loopback and veth, and this host has no RPS",
        );
        return;
    }
    let packets = request
        .rate
        .bytes_in(units::Duration::from_ns(BACKLOG_NS))
        .as_u64()
        / 1500;
    let wanted = packets.clamp(1000, 250_000);
    let Some(now) = facts.number(NAME).and_then(|n| u64::try_from(n).ok()) else {
        plan.cannot(
            Key::sysctl(NAME),
            "absent here: it is the machine's; run tune on the host",
        );
        return;
    };
    let why = format!(
        "{} x 8 ms / 1500 B = {wanted} packets while a CPU waits for its turn (RPS)",
        request.rate
    );
    if now >= wanted {
        plan.enough(Key::sysctl(NAME), now.to_string(), why);
        return;
    }
    let wanted = Wanted {
        scope: Scope::Host,
        from: AT_ONCE,
        ..Wanted::sysctl(NAME, wanted.to_string(), why)
    };
    plan.change(facts, wanted);
}

fn jumbo(plan: &mut Plan, request: &Request, device: &Device) {
    if device.mtu_bytes == 1500 && request.rate >= FAST && request.role == Role::Dtn {
        let text = "not changed: 9000 helps only where every hop has it, and a mismatch stalls connections; try it with: goodput doctor HOST";
        plan.advise("MTU", text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> (Request, Facts) {
        let mut facts = Facts {
            cpus: 8,
            has_fq: Some(true),
            device: Some(Device {
                name: "eth0".to_owned(),
                driver: Some("mlx5_core".to_owned()),
                mtu_bytes: 1500,
                rx_ring: Some(Ring {
                    now: 512,
                    max: 8192,
                }),
                qdisc: Some("pfifo_fast".to_owned()),
                qdisc_is_default: true,
                ..Device::default()
            }),
            ..Facts::default()
        };
        facts.set("net.core.default_qdisc", "pfifo_fast");
        facts.set("net.core.netdev_max_backlog", "1000");
        facts.put(Key::Qdisc("eth0".to_owned()), "default", true);
        facts.put(Key::Ring("eth0".to_owned(), Side::Rx), "512", true);
        let rate = "10Gb/s".parse().unwrap();
        let rtt = "85ms".parse().unwrap();
        (Request::new(rate, rtt, Role::Dtn), facts)
    }

    fn new(request: &Request, facts: &Facts, key: &str) -> Option<String> {
        let plan = crate::derive(request, facts);
        let step = plan.steps.iter().find(|s| s.key.to_string() == key)?;
        Some(step.new.clone())
    }

    #[test]
    fn masks_are_in_the_kernels_words() {
        for (cpus, text) in [
            (1, "1"),
            (8, "ff"),
            (32, "ffffffff"),
            (33, "1,ffffffff"),
            (96, "ffffffff,ffffffff,ffffffff"),
        ] {
            assert_eq!(mask(cpus), text);
        }
    }

    #[test]
    fn a_discipline_is_replaced_only_where_the_kernel_chose_it_and_has_fq() {
        let (request, mut facts) = host();
        assert_eq!(new(&request, &facts, "qdisc:eth0").as_deref(), Some("fq"));
        facts.device.as_mut().unwrap().qdisc_is_default = false;
        assert_eq!(new(&request, &facts, "qdisc:eth0"), None);
        facts.device.as_mut().unwrap().qdisc_is_default = true;
        facts.has_fq = None;
        assert_eq!(new(&request, &facts, "qdisc:eth0"), None);
        assert_eq!(new(&request, &facts, "net.core.default_qdisc"), None);
    }

    #[test]
    fn one_queue_is_spread_and_only_then_the_backlog_counts() {
        let (request, mut facts) = host();
        let rps = "/sys/class/net/eth0/queues/rx-0/rps_cpus";
        let backlog = "net.core.netdev_max_backlog";
        assert_eq!(new(&request, &facts, backlog), None);
        let queue = |number: u32, cpus: &str| crate::RxQueue {
            name: format!("rx-{number}"),
            rps_cpus: cpus.to_owned(),
        };
        facts.put(Key::File(rps.to_owned()), "00", true);
        facts.device.as_mut().unwrap().rx_queues = vec![queue(0, "00")];
        assert_eq!(new(&request, &facts, rps).as_deref(), Some("ff"));
        assert_eq!(new(&request, &facts, backlog).as_deref(), Some("6666"));
        facts.device.as_mut().unwrap().rx_queues = vec![queue(0, "00"), queue(1, "00")];
        assert_eq!(new(&request, &facts, rps), None);
        assert_eq!(new(&request, &facts, backlog), None);
    }

    #[test]
    fn rings_grow_to_the_hardwares_or_the_caches_size() {
        let (request, mut facts) = host();
        for (now, max, wanted) in [
            (512, 8192, Some("8192")),
            (512, 16384, Some("8192")),
            (512, 4096, Some("4096")),
            (8192, 16384, None),
            (9000, 16384, None),
        ] {
            facts.device.as_mut().unwrap().rx_ring = Some(Ring { now, max });
            assert_eq!(
                new(&request, &facts, "ring:eth0/rx").as_deref(),
                wanted,
                "{now} of {max}"
            );
        }
    }

    #[test]
    fn interrupts_are_spread_where_all_go_to_one_cpu() {
        let (request, mut facts) = host();
        let device = facts.device.as_mut().unwrap();
        for number in 24..27 {
            device.interrupts.insert(number, "0".to_owned());
        }
        for number in 24..27 {
            let key = Key::File(format!("/proc/irq/{number}/smp_affinity_list"));
            facts.put(key, "0", true);
        }
        assert_eq!(
            new(&request, &facts, "/proc/irq/24/smp_affinity_list"),
            None
        );
        assert_eq!(
            new(&request, &facts, "/proc/irq/26/smp_affinity_list").as_deref(),
            Some("2")
        );
    }
}
