//! Any text as a packet filter: it is refused with a place in the text, or its programs are what the kernel
//! takes: jumps go forward and stay inside, every way ends in a return, and no word that is read has not
//! been written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::filter::{Filter, INSTRUCTIONS_MAX, Instruction, Way};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match Filter::parse(text) {
        Ok(filter) => {
            let ways = [Way::In, Way::Out, Way::Both].map(|way| filter.for_socket(96, way));
            for program in ways.into_iter().chain([filter.for_frames(96)]).flatten() {
                assert_valid(&program);
            }
        }
        Err(error) => {
            assert!(text.get(error.at()).is_some() || text.len() > 65_536);
            assert!(!error.to_string().is_empty());
        }
    }
});

fn assert_valid(program: &[Instruction]) {
    assert!((1..=INSTRUCTIONS_MAX).contains(&program.len()));
    // Scratch words that are written on every way to an instruction; all, where no way leads.
    let mut written = vec![u16::MAX; program.len()];
    written[0] = 0;
    for (at, i) in program.iter().enumerate() {
        let mut now = written[at];
        let next: &[usize] = match (i.code & 7, i.code) {
            (6, _) => &[],
            (5, 0x05) => &[i.k as usize],
            (5, _) => &[usize::from(i.jump_true), usize::from(i.jump_false)],
            _ => &[0],
        };
        match i.code {
            0x02 => now |= 1 << i.k,
            0x61 => assert!(now & 1 << i.k != 0, "word {} is not written at {at}", i.k),
            0x34 | 0x94 => assert_ne!(i.k, 0, "division by zero at {at}"),
            0x64 | 0x74 => assert!(i.k < 32, "shift by {} at {at}", i.k),
            _ => {}
        }
        for distance in next {
            let target = at + 1 + distance;
            assert!(target < program.len(), "jump from {at} to {target}");
            written[target] &= now;
        }
    }
    assert_eq!(program.last().map(|i| i.code), Some(6));
}
