//! Any bytes in a journal's place: what is read of them is possible, and what is written after them is read again.

#![no_main]

use std::collections::HashMap;
use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};

use copy::digest::Cut;
use copy::journal::{Journal, Unfinished};
use copy::{RelPath, Stamp};
use libfuzzer_sys::fuzz_target;

/// Records with right sums around bytes of any kind, so that what they say is reached.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut journal = b"GPCJRNL1".to_vec();
    for record in bytes.split(|byte| *byte == 0xa5) {
        journal.extend_from_slice(&(record.len() as u32).to_le_bytes());
        journal.extend_from_slice(&copy::digest::sum_of(record)[..8]);
        journal.extend_from_slice(record);
    }
    journal
}

fn check(bytes: &[u8]) {
    let path = std::env::temp_dir().join(format!("goodput-fuzz-journal-{}", std::process::id()));
    let mut options = File::options();
    let mut file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    file.write_all(bytes).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let again = file.try_clone().unwrap();
    let (mut journal, before, next) = Journal::open(file).unwrap();
    for unfinished in before.values() {
        assert!(unfinished.number < next);
        assert!(unfinished.sums.keys().all(|index| *index < unfinished.cut.blocks()));
    }
    let new = Unfinished {
        number: next.min(u64::MAX - 1),
        cut: Cut::new(10 << 20, 1 << 20).unwrap(),
        modified: Stamp { seconds: 1, nanoseconds: 2 },
        sums: HashMap::new(),
    };
    let name = RelPath::new(b"a name that is its own").unwrap();
    journal.begin(&name, &new).unwrap();
    journal.blocks(new.number, &[(3, [7; 32])]).unwrap();
    let (_, after, _) = Journal::open(again).unwrap();
    assert_eq!(after[&name].sums.len(), 1);
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    check(&sealed(bytes));
});
