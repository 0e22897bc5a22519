//! Boxes in the path that change or refuse what hosts agreed on: the faults that hurt people.

use std::collections::HashMap;

use wire::rewrite;
use wire::train::{Protocol, SuperFrame};

use crate::path::Middlebox;

/// The boxes of one direction in the order in which a frame meets them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Middleboxes {
    list: Vec<Middlebox>,
    /// End of the highest sequence number seen in each flow.
    highest: HashMap<u32, u32>,
}

impl Middleboxes {
    pub(crate) fn new(list: Vec<Middlebox>) -> Self {
        Self {
            list,
            highest: HashMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Changes the frame's headers; false when a box drops the segments from number `first` on.
    pub(crate) fn pass(
        &mut self,
        bytes: &mut [u8],
        frame: &SuperFrame,
        first: u16,
        partial: bool,
    ) -> bool {
        if frame.protocol() != Protocol::Tcp {
            return true;
        }
        let mut passes = true;
        for middlebox in &self.list {
            match *middlebox {
                Middlebox::StripWindowScale => {
                    rewrite::strip_window_scale(bytes, partial);
                }
                Middlebox::StripOptions => {
                    rewrite::strip_options(bytes, partial);
                }
                Middlebox::StripSack => {
                    rewrite::strip_sack(bytes, partial);
                }
                Middlebox::StripTimestamps => {
                    rewrite::strip_timestamps(bytes, partial);
                }
                Middlebox::MssClamp(most) => {
                    rewrite::clamp_mss(bytes, most, partial);
                }
                Middlebox::SeqCheck => {
                    passes &= check_sequence(&mut self.highest, bytes, frame, first);
                }
            }
        }
        passes
    }
}

/// As a box does that does not know the window's scale: data that begins more than 65,535 bytes
/// behind the highest seen in its flow is dropped. A hole that SACK reports far behind the head of a
/// large window is then never filled, and the connection hangs.
fn check_sequence(
    highest: &mut HashMap<u32, u32>,
    bytes: &[u8],
    frame: &SuperFrame,
    first: u16,
) -> bool {
    let at = frame.transport_offset();
    let Some(header) = bytes.get(at..at + 20) else {
        return true;
    };
    let word =
        |i: usize| u32::from_be_bytes([header[i], header[i + 1], header[i + 2], header[i + 3]]);
    let is_syn = header[13] & 0x02 != 0;
    let skipped = u32::from(first) * u32::from(frame.vnet().gso_size);
    let begin = word(4).wrapping_add(skipped);
    let end = begin.wrapping_add(frame.payload_len().saturating_sub(skipped));
    if highest.len() >= FLOWS_MAX && !highest.contains_key(&frame.flow()) {
        // A box that is full lets strangers pass, as those with a connection limit do not.
        return true;
    }
    let known = highest.entry(frame.flow()).or_insert(end);
    if is_syn {
        *known = end;
        return true;
    }
    // Sequence numbers wrap: the difference is signed (RFC 9293 section 3.4).
    let ahead = end.wrapping_sub(*known).cast_signed();
    if ahead > 0 {
        *known = end;
    }
    let behind = known.wrapping_sub(begin).cast_signed();
    frame.payload_len() == 0
        || behind <= UNSCALED_WINDOW + i32::from(u16::MAX)
            && (ahead > 0 || behind <= UNSCALED_WINDOW)
}

const UNSCALED_WINDOW: i32 = 65_535;
const FLOWS_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;
    use wire::virtio::VirtioNetHdr;

    /// A TCP/IPv4 frame with `payload` bytes from `sequence` on.
    fn frame(sequence: u32, payload: usize) -> (Vec<u8>, SuperFrame) {
        let mut bytes = vec![0_u8; 54 + payload];
        bytes[12..14].copy_from_slice(&[0x08, 0x00]);
        bytes[14] = 0x45;
        let total = u16::try_from(40 + payload).unwrap();
        bytes[16..18].copy_from_slice(&total.to_be_bytes());
        bytes[22] = 64;
        bytes[23] = 6;
        bytes[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        bytes[38..42].copy_from_slice(&sequence.to_be_bytes());
        bytes[46] = 0x50;
        bytes[47] = 0x10;
        let parsed = SuperFrame::parse(VirtioNetHdr::default(), &bytes);
        (bytes, parsed)
    }

    fn passes(boxes: &mut Middleboxes, sequence: u32) -> bool {
        let (mut bytes, parsed) = frame(sequence, 1000);
        boxes.pass(&mut bytes, &parsed, 0, false)
    }

    #[test]
    fn a_hole_within_64_kib_may_be_filled_and_one_further_behind_may_not() {
        let mut boxes = Middleboxes::new(vec![Middlebox::SeqCheck]);
        let start = u32::MAX - 20_000;
        for k in 0..100 {
            assert!(
                passes(&mut boxes, start.wrapping_add(k * 1000)),
                "in order, {k}"
            );
        }
        // The highest is 100,000 bytes from the start.
        assert!(passes(&mut boxes, start.wrapping_add(100_000 - 65_535)));
        assert!(!passes(&mut boxes, start.wrapping_add(100_000 - 65_536)));
    }
}
