//! Socket buffers and the memory behind them.
//!
//! Autotuning aims at twice what is read in a round trip, converted by the share of a buffer that becomes window
//! (net/ipv4/tcp_input.c, `tcp_rcv_space_adjust`), so 2 W / share never limits and W / share is the least.

use throughput::BufferModel;
use units::Bytes;

use crate::facts::Facts;
use crate::key::Key;
use crate::plan::{self, AT_ONCE, Memory, Plan, Request, Role, Scope, Wanted, divided};

/// The kernel's `int`: tcp_rmem, tcp_wmem, rmem_max and wmem_max end there.
const INT_MAX: u64 = 2_147_483_647;
const STEP: u64 = 4 << 20;
/// Share of the memory that `tcp_mem`'s last may be raised to: beyond it a host that only moves data would have none left for
/// files. Ours.
const MEMORY_SHARE: u64 = 2;

pub(crate) fn derive(plan: &mut Plan, request: &Request, facts: &Facts) {
    let room = Room::of(plan, request, facts);
    let model = BufferModel::LINUX;
    let receive = wanted_size(plan.window, model.receive_window_fraction).min(room.each);
    let send = wanted_size(plan.window, model.send_payload_fraction).min(room.each);
    let sizes = [
        ("net.ipv4.tcp_rmem", receive, model.receive_window_fraction),
        ("net.ipv4.tcp_wmem", send, model.send_payload_fraction),
    ];
    for (name, size, share) in sizes {
        let why = formula(request, size, share, &room);
        autotuned(plan, facts, name, size, why);
    }
    let after =
        |name: &str, plan: &Plan| third(plan.value_after(name, facts)?).filter(|max| *max > 0);
    let (rmem, wmem) = (
        after("net.ipv4.tcp_rmem", plan),
        after("net.ipv4.tcp_wmem", plan),
    );
    plan.rate_after = plan::rate_of(rmem, wmem, request);
    room.set(plan, facts);
    plan.memory = Memory {
        usual: Bytes::new(plan.window.as_u64().saturating_mul(2)),
        worst: Bytes::new(
            (rmem.unwrap_or(0) + wmem.unwrap_or(0)).saturating_mul(request.connections.into()),
        ),
        needed: Bytes::new(room.needed),
        limit: plan
            .value_after("net.ipv4.tcp_mem", facts)
            .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok())
            .map(|pages| Bytes::new(pages.saturating_mul(facts.page_bytes))),
    };
    fixed(plan, request, facts, receive, send);
}

/// What the memory allows.
struct Room {
    /// Largest buffer for each connection.
    each: u64,
    /// Connections x window / share.
    needed: u64,
    /// Pages that `tcp_mem` needs, where those of today are too few.
    pages: Option<[u64; 3]>,
    /// Buffers are smaller than the path wants, because memory is short.
    short: bool,
}

impl Room {
    fn of(plan: &mut Plan, request: &Request, facts: &Facts) -> Self {
        let connections = u64::from(request.connections.max(1));
        let needed = plan.receive_buffer_min.as_u64().saturating_mul(connections);
        let now = facts.triple("net.ipv4.tcp_mem");
        let page = facts.page_bytes.max(1);
        // Other namespaces than the first do not show it: then the kernel's own choice, a sixteenth of the memory
        // (net/ipv4/tcp.c, tcp_init_mem).
        let sixteenth = facts.memory.map(|all| all.as_u64() / 16);
        let limit = now.map(|pages| pages[1].saturating_mul(page)).or(sixteenth);
        let mut room = Self {
            each: INT_MAX,
            needed,
            pages: None,
            short: false,
        };
        let (Some(limit), Some(memory)) = (limit, facts.memory) else {
            return room;
        };
        if needed <= limit {
            return room;
        }
        // Low, pressure and high stand as 3 to 4 to 6, as the kernel's own.
        let most = (memory.as_u64() / MEMORY_SHARE / 3 * 2).max(limit);
        let pressure = needed.min(most);
        if needed > most {
            room.each = (most / connections).max(1);
            room.short = true;
            let fair = divided(plan.window.as_u64() / connections, 0.6);
            if room.each < fair.max(64 << 10) {
                let fits = most / fair.max(64 << 10);
                plan.refused = Some(format!(
                    "{connections} connections need {} of buffers each and this host has {} for all: \
                     at most {fits} connections, or more memory",
                    Bytes::new(fair.max(64 << 10)),
                    Bytes::new(most),
                ));
            }
        }
        let pages = pressure.div_ceil(page);
        room.pages = (pressure > limit).then(|| {
            let now = now.unwrap_or([0; 3]);
            let wanted = [pages / 4 * 3, pages, pages / 2 * 3];
            [0, 1, 2].map(|at| wanted[at].max(now[at]))
        });
        room
    }

    /// Raises `tcp_mem`, or says that it is enough.
    fn set(&self, plan: &mut Plan, facts: &Facts) {
        let key = Key::sysctl("net.ipv4.tcp_mem");
        let request = plan.request.clone();
        let sum = format!(
            "{} x {} of window / 0.6 = {}",
            request.connections,
            plan.window,
            Bytes::new(self.needed)
        );
        let Some([low, pressure, high]) = self.pages else {
            if let Some(now) = facts.triple("net.ipv4.tcp_mem") {
                let limit = Bytes::new(now[1].saturating_mul(facts.page_bytes));
                let text = facts.sysctl("net.ipv4.tcp_mem").unwrap_or_default();
                plan.enough(
                    key,
                    text,
                    format!("{sum}, below {limit} ({} pages)", now[1]),
                );
            }
            return;
        };
        let bytes = Bytes::new(pressure.saturating_mul(facts.page_bytes));
        plan.change(
            facts,
            Wanted {
                cost: format!("all TCP sockets of the machine together may take {bytes}"),
                scope: Scope::Host,
                from: AT_ONCE,
                ..Wanted::sysctl(
                    "net.ipv4.tcp_mem",
                    format!("{low} {pressure} {high}"),
                    format!(
                        "{sum}; above tcp_mem's second the kernel shrinks windows; pages of {} B",
                        facts.page_bytes
                    ),
                )
            },
        );
    }
}

/// tcp_rmem or tcp_wmem: only the last of the three follows from the path.
fn autotuned(plan: &mut Plan, facts: &Facts, name: &str, size: u64, why: String) {
    let key = Key::sysctl(name);
    let Some(text) = facts.sysctl(name) else {
        plan.cannot(key, "this kernel or namespace does not have it");
        return;
    };
    let Some([min, default, max]) = facts.triple(name) else {
        plan.cannot(
            key,
            format!("'{text}' is not three numbers; it is left as it is"),
        );
        return;
    };
    if max >= size {
        let than = if max > size { "more than" } else { "just" };
        plan.enough(key, text, format!("{than} {}: {why}", Bytes::new(size)));
        return;
    }
    let wanted = Wanted {
        cost: format!(
            "up to {} a connection, taken as it is needed",
            Bytes::new(size)
        ),
        ..Wanted::sysctl(name, format!("{min} {default} {size}"), why)
    };
    plan.change(facts, wanted);
}

/// rmem_max and wmem_max, which bound what applications ask for by SO_RCVBUF and SO_SNDBUF and nothing else.
fn fixed(plan: &mut Plan, request: &Request, facts: &Facts, receive: u64, send: u64) {
    let options = [
        ("net.core.rmem_max", "SO_RCVBUF", receive),
        ("net.core.wmem_max", "SO_SNDBUF", send),
    ];
    for (name, option, size) in options {
        // The kernel doubles what is asked for.
        let size = size.div_ceil(2);
        let key = Key::sysctl(name);
        let Some(now) = facts.number(name).and_then(|now| u64::try_from(now).ok()) else {
            plan.cannot(key, "this kernel or namespace does not have it");
            continue;
        };
        if now >= size {
            let why = format!("an application that asks for {option} gets up to twice that");
            plan.enough(key, now.to_string(), why);
        } else if request.role == Role::Dtn {
            let why = format!(
                "only for applications that set {option} (GridFTP, iperf3 -w): {} / 2, since the kernel doubles it; \
                 autotuning is not bound by it",
                Bytes::new(size * 2)
            );
            let wanted = Wanted {
                scope: Scope::Host,
                ..Wanted::sysctl(name, size.to_string(), why)
            };
            plan.change(facts, wanted);
        } else {
            plan.advise(
                name,
                format!("not raised: it bounds {option} only, which such hosts leave unset; autotuning does not heed it"),
            );
        }
    }
}

/// 2 W / share in steps, within an int.
fn wanted_size(window: Bytes, share: f64) -> u64 {
    let bytes = divided(window.as_u64().saturating_mul(2), share);
    bytes
        .max(1)
        .div_ceil(STEP)
        .saturating_mul(STEP)
        .min(INT_MAX)
}

fn formula(request: &Request, size: u64, share: f64, room: &Room) -> String {
    let (rate, rtt) = (request.rate, request.rtt);
    let mut why = format!("2 x {rate} x {rtt} / {share} = {}", Bytes::new(size));
    if size == INT_MAX {
        why = format!(
            "2 x {rate} x {rtt} / {share} is more than the kernel's int holds: its maximum"
        );
    } else if room.short && size == room.each {
        why = format!(
            "2 x {rate} x {rtt} / {share}, cut to {}: what memory allows each of {} connections",
            Bytes::new(size),
            request.connections
        );
    }
    why
}

fn third(text: &str) -> Option<u64> {
    text.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::derive as plan_of;

    fn host() -> Facts {
        let mut facts = Facts::default();
        facts.set("net.ipv4.tcp_rmem", "4096\t131072\t6291456");
        facts.set("net.ipv4.tcp_wmem", "4096\t16384\t4194304");
        facts.set("net.ipv4.tcp_mem", "188000 262144 393216");
        facts.set("net.core.rmem_max", "212992");
        facts.set("net.core.wmem_max", "212992");
        facts
    }

    fn request(rate: &str, rtt: &str) -> Request {
        Request::new(rate.parse().unwrap(), rtt.parse().unwrap(), Role::Dtn)
    }

    fn new(plan: &Plan, name: &str) -> Option<String> {
        let step = plan.steps.iter().find(|s| s.key == Key::sysctl(name));
        step.map(|s| s.new.clone())
    }

    #[test]
    fn sizes_are_what_the_doctor_proposes_for_the_path() {
        for (rate, rtt) in [("1Gb/s", "85ms"), ("10Gb/s", "85ms"), ("100Mb/s", "5ms")] {
            let request = request(rate, rtt);
            let plan = plan_of(&request, &host());
            let model = BufferModel::LINUX;
            let [receive, send] = [
                model.receive_buffer_for(request.rate, request.rtt),
                model.send_buffer_for(request.rate, request.rtt),
            ]
            .map(Bytes::as_u64);
            let now = host();
            for (name, size) in [("net.ipv4.tcp_rmem", receive), ("net.ipv4.tcp_wmem", send)] {
                let [min, default, max] = now.triple(name).unwrap();
                let expected = (size > max).then(|| format!("{min} {default} {size}"));
                assert_eq!(new(&plan, name), expected, "{rate} {rtt} {name}");
            }
        }
    }

    #[test]
    fn a_value_that_is_just_large_enough_is_kept_and_one_byte_less_is_raised() {
        let mut facts = host();
        for (max, raised) in [(356_515_840, false), (356_515_839, true)] {
            facts.set("net.ipv4.tcp_rmem", &format!("4096 131072 {max}"));
            let plan = plan_of(&request("10Gb/s", "85ms"), &facts);
            let step = new(&plan, "net.ipv4.tcp_rmem");
            assert_eq!(step.is_some(), raised, "{max}");
        }
    }

    #[test]
    fn sizes_end_at_the_kernels_int() {
        let plan = plan_of(&request("100Gb/s", "300ms"), &host());
        let sizes = new(&plan, "net.ipv4.tcp_rmem").unwrap();
        assert_eq!(sizes, "4096 131072 2147483647");
        let limit = new(&plan, "net.core.rmem_max").unwrap();
        assert_eq!(limit, "1073741824");
    }

    #[test]
    fn memory_for_all_connections_is_raised_in_the_same_plan_in_pages() {
        // 262,144 pages are 1 GiB; a window of 10 Gb/s x 85 ms takes 177,083,334 B.
        let mut six = request("10Gb/s", "85ms");
        six.connections = 6;
        assert_eq!(new(&plan_of(&six, &host()), "net.ipv4.tcp_mem"), None);
        let mut seven = six.clone();
        seven.connections = 7;
        let plan = plan_of(&seven, &host());
        let pages = (7 * 177_083_334_u64).div_ceil(4096);
        let expected = format!("{} {pages} {}", pages / 4 * 3, pages / 2 * 3);
        assert_eq!(new(&plan, "net.ipv4.tcp_mem"), Some(expected));
        assert_eq!(plan.refused, None);
        assert!(plan.memory.limit.unwrap() >= plan.memory.needed);
    }

    #[test]
    fn too_little_memory_cuts_the_buffers_and_then_refuses() {
        let mut many = request("10Gb/s", "85ms");
        many.connections = 200;
        let plan = plan_of(&many, &host());
        // Two thirds of 8 GiB for 200.
        let each = (16_u64 << 30) / 2 / 3 * 2 / 200;
        assert_eq!(
            new(&plan, "net.ipv4.tcp_rmem"),
            Some(format!("4096 131072 {each}"))
        );
        assert_eq!(plan.refused, None);
        many.connections = 10_000_000;
        let refused = plan_of(&many, &host()).refused.unwrap();
        assert!(refused.contains("at most 87381 connections"), "{refused}");
    }

    #[test]
    fn a_namespace_that_hides_the_machines_values_says_where_they_are() {
        let mut facts = host();
        facts.first_namespace = false;
        facts.values.remove(&Key::sysctl("net.ipv4.tcp_mem"));
        facts.put(Key::sysctl("net.core.rmem_max"), "212992", false);
        let mut seven = request("10Gb/s", "85ms");
        seven.connections = 7;
        let plan = plan_of(&seven, &facts);
        let why = |name: &str| {
            let found = plan.cannot.iter().find(|c| c.key == Key::sysctl(name));
            found.unwrap().why.clone()
        };
        assert!(why("net.ipv4.tcp_mem").contains("run tune on the host"));
        assert!(why("net.core.rmem_max").contains("read-only in this network namespace"));
        assert!(new(&plan, "net.ipv4.tcp_rmem").is_some());
    }

    proptest! {
        #[test]
        fn no_value_is_ever_lowered(
            rate in 1_000_u64..1_000_000_000_000, rtt in 1_000_u64..2_000_000_000, connections in 0_u32..1_000_000,
            values in prop::collection::vec(0_u64..5_000_000_000, 9), memory in 1_u64 << 20..1 << 50,
        ) {
            let mut facts = host();
            facts.memory = Some(Bytes::new(memory));
            for (name, at) in [("net.ipv4.tcp_rmem", 0), ("net.ipv4.tcp_wmem", 3), ("net.ipv4.tcp_mem", 6)] {
                facts.set(name, &format!("{} {} {}", values[at], values[at + 1], values[at + 2]));
            }
            let mut request = Request::new(
                units::Rate::from_bits_per_second(rate), units::Duration::from_ns(rtt), Role::Dtn,
            );
            request.connections = connections;
            for step in plan_of(&request, &facts).steps {
                let numbers = |text: &str| text.split_whitespace().map(|n| n.parse::<u64>().unwrap()).collect::<Vec<_>>();
                for (old, new) in numbers(&step.old).into_iter().zip(numbers(&step.new)) {
                    prop_assert!(new >= old, "{}: {} to {}", step.key, step.old, step.new);
                }
            }
        }
    }
}
