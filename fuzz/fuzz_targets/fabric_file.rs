//! Any text as a fabric file: refused with a line of the file, or cases that can run.

#![no_main]

use std::path::Path;

use cluster::{FabricFile, FileError};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    // What a file names is what follows its text.
    let (text, beside) = text.split_once("\n----\n").unwrap_or((text, ""));
    let read = |_: &str| Ok(beside.to_owned());
    match FabricFile::parse_with(Path::new("fuzz.toml"), text, None, &read) {
        Ok(file) => {
            assert!(file.cases.len() + file.studies.len() > 0);
            if let Some(study) = file.studies.first() {
                return first_step(study);
            }
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
        Err(FileError::Refused { line, problem, .. }) => {
            assert!(problem.chars().all(units::text::is_plain));
            assert!(line >= 1 && line <= text.lines().count().max(1) + 1);
        }
        Err(other) => panic!("{other}"),
    }
});

/// A step of what was checked ends, short messages and all.
fn first_step(study: &cluster::Study) {
    let built = study.build(0);
    let nodes = study.traffic.nodes[0];
    let Some(step) = study.traffic.steps(nodes, 0).first().copied() else {
        return;
    };
    let mut flows = study.sends(&built, nodes, step, 0).flows;
    flows.truncate(64);
    for flow in &mut flows {
        flow.messages = 2;
        flow.message_bytes = flow.message_bytes.min(1 << 14);
    }
    let mut world = fabric::World::new(&built.spec, &flows).unwrap();
    let _ = world.run();
}
