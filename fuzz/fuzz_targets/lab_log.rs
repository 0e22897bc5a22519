//! Any bytes as a packet log: read, summarised, converted and explained without a panic.

#![no_main]

use std::ops::ControlFlow;

use lab::log::{Fate, Filter, Segments, Summary, convert};
use libfuzzer_sys::fuzz_target;
use link::record::{MAGIC, Reader};

fuzz_target!(|bytes: &[u8]| {
    let mut log = MAGIC.to_vec();
    log.extend_from_slice(bytes);
    for file in [bytes, &log] {
        let Ok(reader) = Reader::new(file) else {
            continue;
        };
        let _ = Summary::read(reader);
        let filter = Filter::default();
        if let Ok(reader) = Reader::new(file) {
            let _ = convert::csv(reader, std::io::sink(), &filter);
        }
        if let Ok(reader) = Reader::new(file) {
            let _ = convert::pcapng(reader, std::io::sink(), &filter);
        }
        if let Ok(reader) = Reader::new(file) {
            let _ = convert::parquet(reader, std::io::sink(), &filter);
        }
        if let Ok(reader) = Reader::new(file) {
            let segments = Segments::read(reader);
            segments.for_each(|seen| {
                if let Fate::Lost(reason) = seen.fate {
                    assert!(usize::from(reason) < segments.reasons().len());
                }
                ControlFlow::Continue(())
            });
        }
    }
});
