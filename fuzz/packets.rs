//! Bytes as packets of a few connections, for targets whose input are packets that were decoded.

use units::{Duration, Instant};
use wire::segment::{FlowKey, Segment, SynOptions};
use wire::tcp::{Flags, SackBlocks};

/// When it was seen, and what it is.
pub(crate) type Packet = (Instant, Segment);

/// A packet for every [`BYTES`] bytes; what is left over is nothing.
pub(crate) fn of(bytes: &[u8]) -> Vec<Packet> {
    let mut time = Instant::from_ns(1_000_000_000);
    let (packets, _) = bytes.as_chunks::<BYTES>();
    let each = packets.iter().map(|b| {
        let number = |at: usize| u16::from_be_bytes([b[at], b[at + 1]]);
        // Backwards now and then.
        let passed = Duration::from_ns(u64::from(number(0)) << (b[2] & 31));
        time = match b[2] >> 7 {
            0 => time + passed,
            _ => Instant::from_ns(time.as_ns().saturating_sub(passed.as_ns())),
        };
        let ends = ([[b[3] & 3; 16], [7; 16]], [1, 2]);
        let (flow, from) = match b[3] >> 7 {
            0 => FlowKey::of((ends.0[0], ends.1[0]), (ends.0[1], ends.1[1])),
            _ => FlowKey::of((ends.0[1], ends.1[1]), (ends.0[0], ends.1[0])),
        };
        // Near each other, and near where numbers wrap around.
        let sequence = u32::from(number(4)).wrapping_mul(u32::from(b[6]));
        let payload_bytes = u32::from(number(8)) >> (b[10] & 15);
        let segment = Segment {
            flow,
            from,
            sequence: sequence.wrapping_sub(1 << 16),
            acknowledgment: u32::from(number(11)).wrapping_sub(1 << 15),
            flags: Flags::from_bits(u16::from(b[13]) | 0x10 * u16::from(b[7] & 1)),
            window: number(14),
            payload_bytes,
            ip_bytes: payload_bytes + 40,
            ecn: b[7] >> 6,
            ttl: b[16],
            ip_id: number(17),
            timestamps: (b[7] & 2 != 0).then(|| (u32::from(number(16)), u32::from(b[18]))),
            sack: match b[7] & 4 {
                0 => SackBlocks::default(),
                _ => SackBlocks::new(&[(sequence, sequence.wrapping_add(u32::from(b[19])))]),
            },
            syn: SynOptions {
                mss: (b[7] & 8 != 0).then_some(number(18)),
                window_scale: (b[7] & 16 != 0).then_some(b[19]),
                sack_permitted: b[7] & 4 != 0,
            },
            options_cut: b[7] & 32 != 0,
        };
        (time, segment)
    });
    each.collect()
}

/// Bytes of a packet.
pub(crate) const BYTES: usize = 20;
