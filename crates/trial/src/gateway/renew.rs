//! A gateway of a lab is replaced by another in the middle of a trial.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fault::{Cause, Failure};
use lab::{Host, Lab};
use serde_json::{Value, json};
use sys::threads;

use super::exact;
use super::steady::Steady;

/// Replaces the first gateway under load while so many connections stand and others come, and says what the ends'
/// kernels saw of it.
pub(super) fn renew(lab: &Lab, to: &[&Host], connections: usize) -> Result<Value, Failure> {
    let Some(gateway) = lab.gateways().first() else {
        return Err(Failure::usage("the path has no gateway"));
    };
    let steady = Steady::start(lab.near(), to, connections).map_err(Failure::here)?;
    let seen = || -> Result<[u64; 2], Cause> {
        let mut sum = [0; 2];
        for host in to.iter().copied().chain([lab.near()]) {
            let own = troubles(host)?;
            sum = [sum[0] + own[0], sum[1] + own[1]];
        }
        Ok(sum)
    };
    let before = seen().map_err(Failure::here)?;
    let over = AtomicBool::new(false);
    let (renewed, took, tried, failed) = thread::scope(|scope| {
        let greets = threads::scoped(scope, "gp-greets", || {
            let (mut tried, mut failed) = (0_u64, 0_u64);
            while !over.load(Ordering::Relaxed) {
                // Never the port of the one before: that rests at this end.
                let port = PORT + usize::try_from(tried % PORTS).unwrap_or(0);
                let far = to[usize::try_from(tried).unwrap_or(0) % to.len()];
                failed += u64::from(exact::greet(lab.near(), far, port).is_err());
                tried += 1;
            }
            (tried, failed)
        });
        thread::sleep(BESIDE);
        let begun = Instant::now();
        let renewed = gateway.renew();
        let took = begun.elapsed();
        thread::sleep(BESIDE);
        over.store(true, Ordering::Relaxed);
        let greeted = greets.map(|greets| greets.join().unwrap_or((0, 1)));
        let (tried, failed) = greeted.unwrap_or((0, 1));
        (renewed, took, tried, failed)
    });
    renewed?;
    let after = seen().map_err(Failure::here)?;
    Ok(json!({
        "took_ns": u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
        "new_connections": tried,
        "new_connections_failed": failed,
        "resets": after[0] - before[0],
        "refusals": after[1] - before[1],
        "steady": steady.end(),
    }))
}

/// Connections that a host's kernel saw reset, and connects that it saw fail.
pub(super) fn troubles(host: &Host) -> Result<[u64; 2], Cause> {
    let text = host.run(|| fs::read_to_string("/proc/thread-self/net/snmp"))??;
    let counts = ["EstabResets", "AttemptFails"].map(|name| tcp_count(&text, name));
    let [Some(resets), Some(refusals)] = counts else {
        return Err("/proc/net/snmp lacks counts of TCP".into());
    };
    Ok([resets, refusals])
}

/// A line of names, then a line of values (proc_net(5), snmp).
fn tcp_count(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|n| n == name)?;
    values.split(' ').nth(at)?.parse().ok()
}

/// Before and behind it.
const BESIDE: Duration = Duration::from_secs(1);
const PORT: usize = 5600;
const PORTS: u64 = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_found_by_its_name() {
        let text = "Ip: Forwarding\nIp: 1\nTcp: RtoMin MaxConn AttemptFails EstabResets\nTcp: 200 -1 7 12\n";
        assert_eq!(tcp_count(text, "EstabResets"), Some(12));
        assert_eq!(tcp_count(text, "AttemptFails"), Some(7));
        assert_eq!(tcp_count(text, "MaxConn"), None, "-1 is no count");
        assert_eq!(tcp_count("Ip: 1\n", "EstabResets"), None);
    }
}
