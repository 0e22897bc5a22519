//! How TCP behaves: congestion control, probing, idle connections; queues of connections; connection tracking.

use throughput::models;

use crate::facts::Facts;
use crate::key::Key;
use crate::plan::{AT_ONCE, Plan, Request, Role, Scope, Wanted};

/// Payload of a full packet of 1500 bytes with timestamps.
const SEGMENT_BYTES: u64 = 1448;
/// nf_conntrack: an entry with its extensions and its share of the table (sizeof struct nf_conn in 6.x, rounded up).
const CONNTRACK_BYTES: u64 = 400;

pub(crate) fn derive(plan: &mut Plan, request: &Request, facts: &Facts) {
    congestion_control(plan, request, facts);
    switches(plan, facts);
    idle_restart(plan, request, facts);
    metrics(plan, facts);
    unsent(plan, request, facts);
    listeners(plan, request, facts);
    conntrack(plan, request, facts);
}

fn congestion_control(plan: &mut Plan, request: &Request, facts: &Facts) {
    const NAME: &str = "net.ipv4.tcp_congestion_control";
    let Some(now) = facts.sysctl(NAME) else {
        plan.cannot(
            Key::sysctl(NAME),
            "this kernel or namespace does not have it",
        );
        return;
    };
    let available = facts
        .sysctl("net.ipv4.tcp_available_congestion_control")
        .unwrap_or_default();
    let has = |name: &str| available.split_whitespace().any(|one| one == name);
    let Some(budget) = models::cubic_loss_max(request.rate, request.rtt, SEGMENT_BYTES) else {
        return;
    };
    let carries = format!(
        "CUBIC fills {} at {} while fewer than 1 in {} packets is lost",
        request.rate,
        request.rtt,
        whole(1.0 / budget)
    );
    let lossy = request.loss_rate.filter(|loss| *loss > budget);
    match lossy {
        Some(loss) if now != "bbr" && has("bbr") => {
            let measured = whole(1.0 / loss);
            let why =
                format!("1 in {measured} packets was lost without a full queue, and {carries}");
            let wanted = Wanted {
                cost: "less for CUBIC connections at the same bottleneck".to_owned(),
                ..Wanted::sysctl(NAME, "bbr", why)
            };
            plan.change(facts, wanted);
        }
        Some(_) if now != "bbr" => plan.cannot(
            Key::sysctl(NAME),
            format!(
                "bbr would help, and this kernel offers {available} only: load tcp_bbr; {carries}"
            ),
        ),
        _ if now == "reno" && has("cubic") => {
            let reno = models::loss_budget(request.rate, request.rtt, SEGMENT_BYTES);
            let why = reno.map_or_else(String::new, |reno| {
                format!(
                    "Reno needs {} packets without loss for this path; {carries}",
                    whole(reno.run_length_packets)
                )
            });
            plan.change(facts, Wanted::sysctl(NAME, "cubic", why));
        }
        _ if now == "bbr" => {
            let why = "keeps its rate at random losses";
            plan.enough(Key::sysctl(NAME), now, why);
        }
        _ => plan.enough(Key::sysctl(NAME), now, carries),
    }
}

/// What TCP needs on any long path and somebody may have turned off.
fn switches(plan: &mut Plan, facts: &Facts) {
    let window = plan.window;
    let needed = [
        (
            "net.ipv4.tcp_window_scaling",
            format!("without it a window ends at 64 KiB; the path needs {window}"),
        ),
        (
            "net.ipv4.tcp_sack",
            "without it a round trip repairs one loss".to_owned(),
        ),
        (
            "net.ipv4.tcp_timestamps",
            "without it sequence numbers are safe for 4 GB only (RFC 7323, PAWS)".to_owned(),
        ),
        (
            "net.ipv4.tcp_moderate_rcvbuf",
            "without it receive buffers do not grow".to_owned(),
        ),
    ];
    for (name, why) in needed {
        match facts.number(name) {
            Some(0) => plan.change(facts, Wanted::sysctl(name, "1", why)),
            Some(now) => plan.enough(Key::sysctl(name), now.to_string(), "on"),
            None => {}
        }
    }
    const PROBING: &str = "net.ipv4.tcp_mtu_probing";
    match facts.number(PROBING) {
        Some(0) => {
            let why = "finds the path's MTU where ICMP is filtered; acts only after timeouts of full packets";
            plan.change(facts, Wanted::sysctl(PROBING, "1", why));
        }
        Some(now) => plan.enough(Key::sysctl(PROBING), now.to_string(), "on"),
        None => {}
    }
}

fn idle_restart(plan: &mut Plan, request: &Request, facts: &Facts) {
    const NAME: &str = "net.ipv4.tcp_slow_start_after_idle";
    let time = models::slow_start_time(request.rate, request.rtt, SEGMENT_BYTES);
    match (facts.number(NAME), time) {
        (Some(1), Some(time)) => {
            let why = format!(
                "after a pause a connection keeps its window: saves up to {time} of slow start a burst"
            );
            let wanted = Wanted {
                cost: "a burst of a whole window after a pause".to_owned(),
                from: AT_ONCE,
                ..Wanted::sysctl(NAME, "0", why)
            };
            plan.change(facts, wanted);
        }
        (Some(now), _) => plan.enough(Key::sysctl(NAME), now.to_string(), "off"),
        (None, _) => {}
    }
}

/// Caching of a path's slow-start threshold (off by default since Linux 5.6, commit 65e6d90168f3).
fn metrics(plan: &mut Plan, facts: &Facts) {
    const THRESHOLD: &str = "net.ipv4.tcp_no_ssthresh_metrics_save";
    const ALL: &str = "net.ipv4.tcp_no_metrics_save";
    let why = "a loss of an earlier connection no longer ends slow start early";
    match (facts.number(THRESHOLD), facts.number(ALL)) {
        (Some(0), _) => plan.change(facts, Wanted::sysctl(THRESHOLD, "1", why)),
        (Some(_), Some(0)) => plan.advise(
            ALL,
            "not set: since Linux 5.6 slow-start thresholds are not cached; only hints of the round trip would be lost",
        ),
        (None, Some(0)) => plan.change(facts, Wanted::sysctl(ALL, "1", why)),
        _ => {}
    }
}

/// How much may wait unsent in the kernel.
fn unsent(plan: &mut Plan, request: &Request, facts: &Facts) {
    const NAME: &str = "net.ipv4.tcp_notsent_lowat";
    const LOW: i64 = 131_072;
    match (request.role, facts.number(NAME)) {
        (Role::Web, Some(now)) if !(1..=LOW).contains(&now) => {
            let why =
                "a server decides late what it sends, and thousands of connections hold little memory";
            plan.change(
                facts,
                Wanted {
                    cost: "more wake-ups of the sender".to_owned(),
                    from: AT_ONCE,
                    ..Wanted::sysctl(NAME, LOW.to_string(), why)
                },
            );
        }
        (Role::Web, Some(now)) => plan.enough(Key::sysctl(NAME), now.to_string(), "low"),
        (Role::Dtn, Some(_)) => plan.advise(
            NAME,
            "not set: it saves memory and delay where many connections wait, and costs wake-ups in a bulk transfer",
        ),
        _ => {}
    }
}

/// Connections that wait for accept, and for their handshake.
fn listeners(plan: &mut Plan, request: &Request, facts: &Facts) {
    if request.role == Role::Dtn {
        return;
    }
    let wanted = u64::from(request.connections).clamp(4096, 65_535);
    for name in ["net.core.somaxconn", "net.ipv4.tcp_max_syn_backlog"] {
        let Some(now) = facts.number(name).and_then(|n| u64::try_from(n).ok()) else {
            continue;
        };
        if now >= wanted {
            let why = "a burst of new connections finds room";
            plan.enough(Key::sysctl(name), now.to_string(), why);
        } else {
            let why = format!(
                "a burst of {wanted} new connections finds room, without SYN cookies; applications ask by listen(2)"
            );
            plan.change(facts, Wanted::sysctl(name, wanted.to_string(), why));
        }
    }
}

fn conntrack(plan: &mut Plan, request: &Request, facts: &Facts) {
    const MAX: &str = "net.netfilter.nf_conntrack_max";
    let Some(now) = facts.number(MAX).and_then(|n| u64::try_from(n).ok()) else {
        return;
    };
    let wanted = u64::from(request.connections)
        .saturating_mul(2)
        .clamp(65_536, 1 << 26);
    if now >= wanted || request.role != Role::Gateway {
        let why = format!(
            "{} connections, and as many that are closing",
            request.connections
        );
        if request.role == Role::Gateway {
            plan.enough(Key::sysctl(MAX), now.to_string(), why);
        }
        return;
    }
    let bytes = units::Bytes::new(wanted * CONNTRACK_BYTES);
    let why = format!(
        "2 x {} connections: those that are open, and those that are closing (2 min in TIME_WAIT)",
        request.connections
    );
    let step = |name: &str, value: u64, why: String, cost: String| Wanted {
        cost,
        scope: Scope::Host,
        from: AT_ONCE,
        ..Wanted::sysctl(name, value.to_string(), why)
    };
    plan.change(
        facts,
        step(MAX, wanted, why, format!("up to {bytes} of memory")),
    );
    const BUCKETS: &str = "net.netfilter.nf_conntrack_buckets";
    let buckets = facts.number(BUCKETS).and_then(|n| u64::try_from(n).ok());
    if buckets.is_some_and(|now| now < wanted / 4) {
        let why = "at most 4 entries a bucket".to_owned();
        plan.change(facts, step(BUCKETS, wanted / 4, why, String::new()));
    }
    plan.advise(
        MAX,
        "at boot it is set before the module loads, and lost: put nf_conntrack into /etc/modules-load.d",
    );
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates; shown only"
)]
fn whole(number: f64) -> u64 {
    number.round().max(1.0) as u64
}
