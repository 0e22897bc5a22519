//! Any bytes as frames through switch, routers, rules, boxes and every stage: no panic, and nothing
//! is left in the network's memory.

#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use lab::PathFile;
use lab::testing::Network;
use libfuzzer_sys::fuzz_target;
use units::Duration;

static PATH: LazyLock<PathFile> = LazyLock::new(|| {
    let text = include_str!("../everything.toml");
    PathFile::parse(Path::new("everything.toml"), text).expect("a good path file")
});

fuzz_target!(|frames: Vec<(u8, u16, Vec<u8>)>| {
    let mut network = Network::new(&PATH);
    for (port, after_us, bytes) in frames {
        network.receive(port.into(), Duration::from_us(after_us.into()), &bytes);
    }
    network.finish();
});
