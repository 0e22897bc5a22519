//! Any bytes from an iperf3 peer: cookies, messages, parameters within bounds, results, datagrams.

#![no_main]

use libfuzzer_sys::fuzz_target;
use measure::datagram::{Header, Tally};
use measure::iperf3::message::{PARAMS_BYTES_MAX, decode, encode, hear_cookie};
use measure::iperf3::params::Params;
use measure::iperf3::results::Results;

fuzz_target!(|bytes: &[u8]| {
    let _ = hear_cookie(bytes);
    let mut tally = Tally::default();
    for (datagram, arrived) in bytes.chunks(16).zip(0..) {
        if let Some(header) = Header::read(arrived % 2 == 0, datagram) {
            tally.on_datagram(header, arrived);
        }
    }
    assert!(tally.lost <= tally.highest && tally.jitter_ns.is_finite());
    let Ok(Some((json, taken))) = decode(bytes, PARAMS_BYTES_MAX) else {
        return;
    };
    assert!(taken <= bytes.len());
    if let Ok(params) = Params::parse(&json) {
        assert!((1..=128).contains(&params.streams));
        assert!(u64::from(params.streams) * u64::from(params.block_bytes) <= 256 << 20);
        let again = encode(&params.to_json());
        let (json, _) = decode(&again, PARAMS_BYTES_MAX).unwrap().unwrap();
        assert_eq!(Params::parse(&json), Ok(params));
    }
    if let Ok(results) = Results::parse(&json) {
        assert!(results.streams.len() <= 256);
        assert!(results.streams.iter().all(|s| s.seconds >= 0.0));
        let _ = Results::parse(&results.to_json()).unwrap();
    }
});
