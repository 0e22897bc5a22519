//! Any bytes as packets of a capture, some twenty bytes each: every connection comes out once, its sums hold,
//! it is judged, and its graph and its spacing are counted.

#![no_main]

use explain::passive;
use explain::spacing::{Acks, Bursts, Gaps, Sections, half_within};
use explain::timeline::Timeline;
use explain::trace::{Limits, Tracker};
use libfuzzer_sys::fuzz_target;
use units::{Duration, Instant};

#[path = "../packets.rs"]
mod packets;

fuzz_target!(|bytes: &[u8]| {
    let packets = packets::of(bytes);
    let limits = Limits {
        connections_max: 8,
        half_open_max: 4,
        large_max: 2,
        ..Limits::default()
    };
    let (mut seen, mut last) = (0, 0);
    let mut tracker = Tracker::new(limits, |connection| {
        seen += connection.sides.iter().map(|s| s.packets).sum::<u64>();
        for side in &connection.sides {
            assert!(side.unique_bytes <= side.payload_bytes);
        }
        if let Some(passive) = passive::judge(&connection) {
            let shares: f64 = passive.shares.iter().map(|(_, share)| share).sum();
            // Of one direction alone, or without times, nothing is told.
            assert!(passive.shares.is_empty() || (shares - 1.0).abs() < 1e-6, "{shares}");
            assert!(passive.best.is_none_or(|best| best >= passive.goodput));
        }
    });
    let begins = packets.first().map_or(Instant::ZERO, |p| p.0);
    let mut timeline = Timeline::new(0, begins, Duration::from_us(100), 50, Some(0));
    let (mut gaps, mut bursts, mut acks) = (Gaps::new(), Bursts::new(), Acks::new(1_448));
    let mut sections =
        Sections::new(begins, Duration::from_ms(100), Duration::from_ms(1), 1).unwrap();
    for (frame, (time, segment)) in (1..).zip(&packets) {
        tracker.take(*time, frame, 0, segment);
        timeline.take(*time, segment);
        gaps.take(*time, segment.ip_bytes);
        bursts.take(*time, segment.ip_bytes);
        acks.take(*time, segment);
        sections.data(*time, 0, segment.payload_bytes);
        last = frame;
    }
    tracker.finish();
    drop(tracker);
    assert!(seen <= last);
    let stamps = gaps.stamps(None);
    let _ = (gaps.modes(None), gaps.bins(stamps.finest(), None));
    bursts.within(Duration::from_us(10));
    assert!(acks.by_segments().iter().sum::<u64>() <= acks.packets());
    let phase = sections.phase(Duration::from_ms(10));
    assert!(half_within(&phase.data).is_none_or(|half| (0.0..=1.0).contains(&half)));
});
