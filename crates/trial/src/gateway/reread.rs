//! A gateway of a lab reads its file again in the middle of a trial: wrong ones first, then a right one.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ::gateway::file::ConfigFile;
use fault::Failure;
use lab::{Host, Lab, LabGateway};
use serde_json::{Value, json};

use super::exact;
use super::steady::Steady;

/// Has the first gateway read files under load while so many connections stand, and says which were refused, in
/// what words, and what new connections met after each.
pub(super) fn reread(
    lab: &Lab,
    to: &[&Host],
    connections: usize,
    folder: &Path,
) -> Result<Value, Failure> {
    let (Some(gateway), Some(far)) = (lab.gateways().first(), to.first()) else {
        return Err(Failure::usage("the path has no gateway"));
    };
    let file = folder.join("gateway.toml");
    let steady = Steady::start(lab.near(), to, connections).map_err(Failure::here)?;
    let greet = |port: usize| exact::greet(lab.near(), far, port).map_err(Failure::here);
    let before = gateway.counts();
    let mut refused = Vec::new();
    for (text, line, expected) in WRONG {
        let said = read(gateway, &file, text).err().map(|e| e.to_string());
        let placed = said.as_ref().is_some_and(|said| {
            said.contains("gateway.toml") && said.contains(line) && said.contains(expected)
        });
        refused.push(json!({ "text": text, "said": said, "placed": placed }));
    }
    // Where the workers had a wrong rule, they would follow it by now: they look ten times a second.
    thread::sleep(FOLLOWED);
    greet(PORT)?;
    let between = gateway.counts();
    read(gateway, &file, RIGHT)?;
    let end = Instant::now() + PATIENCE;
    let mut tried = 0_usize;
    while gateway.counts().bypassed == between.bypassed && Instant::now() < end {
        tried += 1;
        // Never the client's port of the one before: that is another connection anyway.
        greet(PORT)?;
        thread::sleep(PAUSE);
    }
    let passed = gateway.counts();
    greet(OTHER_PORT)?;
    let after = gateway.counts();
    gateway
        .reload(gateway.config().clone())
        .map_err(Failure::here)?;
    let count = |key: &str, wanted: bool| {
        let all = refused.iter().filter(|r| match wanted {
            true => r[key] == true,
            false => !r[key].is_null(),
        });
        all.count()
    };
    Ok(json!({
        "wrong": WRONG.len(),
        "refused": count("said", false),
        "refused_with_place_and_remedy": count("placed", true),
        "files": refused,
        "unsplit_after_the_wrong_ones": between.bypassed - before.bypassed,
        "split_after_the_wrong_ones": between.split - before.split,
        "tried_until_the_right_one_was_followed": tried,
        "unsplit_by_the_right_one": passed.bypassed - between.bypassed,
        "split_beside_it": after.split - passed.split,
        "steady": steady.end(),
    }))
}

/// As `goodput gateway reload` does, but for what the path's file says: sides and limits.
fn read(gateway: &LabGateway, file: &Path, text: &str) -> Result<(), Failure> {
    sys::folder::replace(file, text)
        .map_err(|e| Failure::here(format!("{}: {e}", file.display())))?;
    let read = ConfigFile::open(file)?;
    let mut config = read.parse()?;
    let own = gateway.config();
    config.zones.clone_from(&own.zones);
    config.limits = own.limits;
    config.buffer_memory = own.buffer_memory;
    let followed = gateway.reload(config);
    followed.map_err(|e| Failure::usage(read.told(&e)))
}

/// What cannot be meant: a slip, a rule without sense, what was made at the start. Each with its line and what would
/// be right.
const WRONG: [(&str, &str, &str); 3] = [
    (
        "drain = \"5s\"\n[[rule]]\naction = \"pass\"\n",
        "line 3",
        "expected one of",
    ),
    (
        "[[rule]]\naction = \"bypass\"\nports = \"9-1\"\n",
        "gateway.toml:3: ",
        "write 80 or 5000-6000",
    ),
    (
        "# More of them.\nworkers = 4\n",
        "gateway.toml:2: ",
        "start it again",
    ),
];
const RIGHT: &str = "[[rule]]\naction = \"bypass\"\nports = \"5950\"\n";
const PORT: usize = 5950;
const OTHER_PORT: usize = 5951;
const FOLLOWED: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(10);
