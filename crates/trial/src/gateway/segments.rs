//! How large segments are at either end, as tshark says.

use std::process::{Command, Stdio};

use fault::Cause;
use lab::Host;
use serde_json::{Value, json};

use crate::lab_check::Capture;

/// Largest TCP payloads that tshark finds at either end, each way.
pub(super) fn segments(
    captures: Vec<(&Host, Capture)>,
    near: &Host,
    far: &Host,
) -> Result<Value, Cause> {
    let mut found = json!({});
    let mut dropped = 0;
    let (from, to) = (near.address().to_string(), far.address().to_string());
    for ((host, capture), end) in captures.into_iter().zip(["near", "far"]) {
        let (file, lost) = capture.finish()?;
        dropped += lost;
        let output = Command::new("tshark")
            .args([
                "-n",
                "-Y",
                "tcp.len > 0",
                "-T",
                "fields",
                "-E",
                "separator=,",
            ])
            .args(["-e", "ip.src", "-e", "ip.dst", "-e", "tcp.len", "-r"])
            .arg(&file)
            .stderr(Stdio::null())
            .output()
            .map_err(|_| "tshark cannot be started; install it (Debian: apt-get install tshark)")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (mut there, mut back, mut count) = (0_u64, 0_u64, 0_u64);
        for line in text.lines() {
            let fields: Vec<&str> = line.split(',').collect();
            let [src, dst, len] = fields.as_slice() else {
                continue;
            };
            let Ok(len) = len.parse::<u64>() else {
                continue;
            };
            if *src == from && *dst == to {
                there = there.max(len);
            } else if *src == to && *dst == from {
                back = back.max(len);
            }
            count += 1;
        }
        found[end] = json!({
            "host": host.name(),
            "segments": count,
            "there_max_bytes": there,
            "back_max_bytes": back,
        });
    }
    found["tool"] = "tshark".into();
    found["captures_dropped"] = dropped.into();
    Ok(found)
}
