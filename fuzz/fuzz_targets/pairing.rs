//! A byte that cuts, then any bytes as two captures of one path: matched to their end, each packet at most
//! once, also where addresses were translated between them.

#![no_main]

use explain::pairing::{Anchors, Limits, Names, Pairing, Point};
use libfuzzer_sys::fuzz_target;

#[path = "../packets.rs"]
mod packets;

fuzz_target!(|bytes: &[u8]| {
    let Some((&cut, bytes)) = bytes.split_first() else {
        return;
    };
    let (near, far) = bytes.split_at(bytes.len() * usize::from(cut) / 256);
    let [near, far] = [packets::of(near), packets::of(far)];
    let look = |packets: &[packets::Packet]| {
        let (mut anchors, mut names) = (Anchors::default(), Names::default());
        for (time, segment) in packets {
            anchors.take(*time, segment);
            names.take(*time, segment);
        }
        (anchors, names)
    };
    let ((near_anchors, near_names), (far_anchors, far_names)) = (look(&near), look(&far));
    let translations = near_names.translations(&far_names);
    let common = near_anchors.common(&far_anchors);
    let ahead_ns = common.map_or_else(|| translations.ahead_ns(), |c| c.ahead_ns);
    let limits = Limits {
        copies_max: 64,
        connections_max: 4,
        lines_max: 16,
    };
    let mut pairing = Pairing::new(limits, ahead_ns, 1);
    let mut places = [0; 2];
    while let Some(point) = pairing.next() {
        let at = usize::from(point == Point::Far);
        let all = if at == 0 { &near } else { &far };
        let Some((time, segment)) = all.get(places[at]) else {
            pairing.end(point);
            continue;
        };
        places[at] += 1;
        let mut segment = *segment;
        if at == 1 {
            translations.apply(&mut segment);
        }
        pairing.take(point, *time, places[at] as u64, &segment);
    }
    let paired = pairing.finish();
    for at in 0..2 {
        assert!(paired.matched[at] <= paired.packets[at]);
        assert_eq!(paired.packets[at], places[at] as u64);
    }
});
