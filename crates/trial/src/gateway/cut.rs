//! A link of a lab is cut in the middle of a trial, and mended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use fault::{Cause, Failure};
use lab::{Host, Lab};
use serde_json::{Value, json};
use sys::netlink::Netlink;
use sys::nftables::{self, At, Chain, Expression, Owned, Table};
use sys::threads;

use super::counted::{counters, passed};
use super::exact;
use super::plan::Plan;
use super::steady::Steady;

/// Cuts a link in the middle of it all, begins others a second later, and says what the links carried before
/// and from then on, what each host got, and how those fared that stood before.
pub(super) fn cut(plan: &Plan, lab: &Lab, to: &[&Host], link: &str) -> Result<Value, Failure> {
    let third = plan.time.to_std() / 3;
    thread::sleep(third.saturating_sub(BEFORE));
    let steady = Steady::start(lab.near(), to, plan.connections).map_err(Failure::here)?;
    let (then, begun) = (counters(lab)?, Instant::now());
    thread::sleep(BEFORE);
    let first = counters(lab)?;
    let side = first.get(link).map_or("outside", |(side, ..)| *side);
    let before = rate(&passed(&then, &first), side, begun.elapsed());
    let on_it = connections_on(lab, link)?;
    lab.set(link, true, true, link::Change::Up(false))?;
    thread::sleep(Duration::from_secs(1));
    let (second, begun) = (counters(lab)?, Instant::now());
    let hosts_before = received(to)?;
    let on_link = TcpOn::count(lab, link)?;
    let connected = AtomicU64::new(0);
    let ended = thread::scope(|scope| {
        let all = (0..plan.connections).map(|n| {
            let (far, connected) = (to[n % to.len()], &connected);
            threads::scoped(scope, "gp-greets", move || -> Result<(), Cause> {
                exact::greet(lab.near(), far, NEW_PORT + n)?;
                connected.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
        });
        let all: Vec<_> = all.collect();
        all.into_iter()
            .map(|one| one.map(ScopedJoinHandle::join))
            .filter(|r| !matches!(r, Ok(Ok(Ok(())))))
            .count()
    });
    thread::sleep(third.saturating_sub(Duration::from_secs(1)));
    let third = counters(lab)?;
    let on_link = on_link.map(TcpOn::bytes).transpose()?;
    let after = passed(&second, &third);
    let rate_after = rate(&after, side, begun.elapsed());
    let hosts = received(to)?;
    let hosts: Vec<u64> = hosts.iter().zip(hosts_before).map(|(b, a)| b - a).collect();
    lab.set(link, true, true, link::Change::Up(true))?;
    // Mended, it is used again: they go back to it.
    thread::sleep(BEFORE);
    let steady = steady.end();
    Ok(json!({
        "link": link,
        "connections_on_it": on_it,
        "hosts_received_bytes": hosts,
        "host_share_least": hosts_share(&hosts),
        "steady": steady,
        "new_connections": connected.into_inner(),
        "new_connections_failed": ended,
        "in_the_first_second": passed(&first, &second),
        "after_a_second": after,
        "before_bits_per_second": before,
        "after_a_second_bits_per_second": rate_after,
        "after_to_before": rate_after / before.max(1.0),
        "tcp_on_the_link_after_a_second_bytes": on_link,
    }))
}

/// A counter of nftables for the TCP that a gateway sends by one link: an interface's own counts the lab's probes and
/// the gateway's questions to the next hop as well.
struct TcpOn<'a> {
    gateway: &'a Host,
    _table: Owned,
}

impl<'a> TcpOn<'a> {
    /// Counts from now on; `None` where no gateway has such a link.
    fn count(lab: &'a Lab, link: &str) -> Result<Option<Self>, Failure> {
        for gateway in lab.gateways() {
            let Some(interface) = gateway.interface(link) else {
                continue;
            };
            let (gateway, interface) = (gateway.host(), interface.to_owned());
            let table = Table {
                name: COUNTED.into(),
                chains: vec![Chain {
                    name: "output".into(),
                    at: At::Output,
                    priority: 0,
                    rules: vec![vec![
                        Expression::ToInterface(interface),
                        Expression::Tcp,
                        Expression::Count,
                    ]],
                }],
            };
            let installed = gateway.run(|| Owned::install(&table));
            let table = installed.map_err(Failure::here)?.map_err(Failure::here)?;
            return Ok(Some(Self {
                gateway,
                _table: table,
            }));
        }
        Ok(None)
    }

    fn bytes(self) -> Result<u64, Failure> {
        let counted = self.gateway.run(|| nftables::counted(COUNTED));
        let counted = counted.map_err(Failure::here)?.map_err(Failure::here)?;
        Ok(counted.iter().map(|c| c.bytes).sum())
    }
}

/// Connections that the gateway has on a link, where its side has several.
fn connections_on(lab: &Lab, link: &str) -> Result<u64, Failure> {
    for gateway in lab.gateways() {
        let interface = gateway.interface(link);
        let placed = gateway.placed();
        let found = placed
            .iter()
            .find(|l| Some(l.interface.as_str()) == interface);
        if let Some(found) = found {
            return Ok(found.connections);
        }
    }
    Ok(0)
}

/// Bytes that each host's kernel has received.
fn received(hosts: &[&Host]) -> Result<Vec<u64>, Failure> {
    let each = hosts.iter().map(|host| -> Result<u64, Cause> {
        let counters = host.run(|| Netlink::open()?.counters("eth0"))??;
        Ok(counters.rx_bytes)
    });
    let all: Result<Vec<u64>, Cause> = each.collect();
    all.map_err(Failure::here)
}

/// The part of all that the host got which got least.
#[allow(clippy::cast_precision_loss, reason = "a share of bytes")]
fn hosts_share(bytes: &[u64]) -> Option<f64> {
    let least = *bytes.iter().min()?;
    let sum: u64 = bytes.iter().sum();
    (sum > 0).then(|| least as f64 / sum as f64)
}

/// What all links of a side sent together, bits a second by the kernel's count.
fn rate(links: &[Value], side: &str, time: Duration) -> f64 {
    let outside = links.iter().filter(|l| l["side"] == *side);
    let bytes: f64 = outside.filter_map(|l| l["sent_bytes"].as_f64()).sum();
    8.0 * bytes / time.as_secs_f64().max(1e-9)
}

/// The trial's own table of nftables in a gateway's namespace.
const COUNTED: &str = "goodput-trial";
/// How long the rate before a cut is counted.
const BEFORE: Duration = Duration::from_secs(2);
const NEW_PORT: usize = 5400;
