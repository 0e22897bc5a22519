//! Any text as a path file: refused with a line of the file, or a path whose memory is bounded.

#![no_main]

use std::path::Path;

use lab::path::{MEMORY_MAX, PathError, PathFile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    // Whatever trace the text names: nothing is read from the disk.
    let files = |_: &Path| Ok("1\n1\n20\n".to_owned());
    match PathFile::parse_with(Path::new("fuzz.toml"), text, &files) {
        Ok(path) => assert!(path.memory_bytes() <= MEMORY_MAX),
        Err(PathError::Refused { line, problem, .. }) => {
            assert!(problem.chars().all(units::text::is_plain));
            assert!(line >= 1 && line <= text.lines().count().max(1) + 1);
        }
        Err(other) => panic!("{other}"),
    }
});
