//! What the kernel of a lab's gateways counted.

use std::collections::BTreeMap;

use fault::Failure;
use lab::Lab;
use serde_json::{Value, json};

/// What the gateways' kernels counted: by link, side and bytes sent and received.
pub(super) fn counters(lab: &Lab) -> Result<Counters, Failure> {
    let mut all = BTreeMap::new();
    for gateway in lab.gateways() {
        for link in gateway.links()? {
            let c = link.counters;
            all.insert(link.link, (link.zone.name(), c.tx_bytes, c.rx_bytes));
        }
    }
    Ok(all)
}

/// Side, bytes sent and received, by link.
pub(super) type Counters = BTreeMap<String, (&'static str, u64, u64)>;

/// What the links carried from one look to another.
pub(super) fn passed(before: &Counters, after: &Counters) -> Vec<Value> {
    let links = after.iter().map(|(name, (side, tx, rx))| {
        let (_, tx_before, rx_before) = before.get(name).copied().unwrap_or_default();
        json!({
            "link": name,
            "side": side,
            "sent_bytes": tx - tx_before,
            "received_bytes": rx - rx_before,
        })
    });
    links.collect()
}

/// The least or largest part that a link outside has of what all of them sent.
pub(super) fn share(links: &[Value], which: fn(f64, f64) -> f64) -> Option<f64> {
    let outside = links.iter().filter(|l| l["side"] == "outside");
    let sent: Vec<f64> = outside.filter_map(|l| l["sent_bytes"].as_f64()).collect();
    let sum: f64 = sent.iter().sum();
    let found = sent.into_iter().reduce(which)?;
    (sum > 0.0).then_some(found / sum)
}
