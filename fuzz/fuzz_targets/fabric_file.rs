//! Any text as a fabric file: refused with a line of the file, or cases that can run.

#![no_main]

use std::path::Path;

use cluster::{FabricFile, FileError};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match FabricFile::parse(Path::new("fuzz.toml"), text) {
        Ok(file) => {
            assert!(!file.cases.is_empty());
            let case = &file.cases[0];
            let Some(transport) = case.traffic.transports.first() else {
                return;
            };
            // A message of what was checked ends, whatever the parts.
            if let Some(size) = case.traffic.sizes_of(*transport).next() {
                let mut flow = case.traffic.flow(*transport, size.min(1 << 16));
                flow.messages = 2;
                let mut world = fabric::World::new(&case.spec, &[flow]).unwrap();
                let _ = world.run();
            }
        }
        Err(FileError::Refused { line, .. }) => {
            assert!(line >= 1 && line <= text.lines().count().max(1) + 1);
        }
        Err(other) => panic!("{other}"),
    }
});
