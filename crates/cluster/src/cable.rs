//! What a cable of some length needs at its far end, and how far a buffer reaches.

use fabric::formula::{self, CableNeeds};
use fabric::link::{Cable, CableKind, Speed};
use units::{Bytes, Duration};

use crate::numbers::bits;

/// A cable, and what is at its far end.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Signalling of a lane.
    pub speed: Speed,
    /// Lanes of signalling.
    pub width: u8,
    /// How long it is.
    pub length_mm: u64,
    /// What it is made of.
    pub kind: CableKind,
    /// Virtual lanes for data that share the port's buffer.
    pub lanes: u8,
    /// The port's buffer, where it is known.
    pub buffer: Option<Bytes>,
    /// Payload of a packet.
    pub mtu: u32,
    /// What the far end takes from a packet's end until its credit leaves.
    pub fix: Duration,
}

/// What follows from a plan.
#[derive(Clone, Debug)]
pub struct Answer {
    /// By the closed formula.
    pub needs: CableNeeds,
    /// Room of a lane that one packet takes.
    pub packet_bytes: u64,
    /// Packets that a lane has room for, where the buffer is known.
    pub lane_packets: Option<u32>,
    /// What the cable carries with so many.
    pub goodput_bytes_per_second: Option<f64>,
    /// By signalling.
    pub speeds: Vec<BySpeed>,
}

/// The same cable at another signalling.
#[derive(Clone, Copy, Debug)]
pub struct BySpeed {
    /// The signalling.
    pub speed: Speed,
    /// Room that a lane needs.
    pub lane_buffer_bytes: u64,
    /// How far the buffer lasts, where it is known.
    pub reach_mm: Option<u64>,
}

impl Plan {
    /// What the cable needs.
    ///
    /// ```
    /// let plan = cluster::cable::Plan {
    ///     speed: fabric::link::Speed::Ddr,
    ///     width: 4,
    ///     length_mm: 100_000,
    ///     kind: fabric::link::CableKind::Fibre,
    ///     lanes: 8,
    ///     buffer: None,
    ///     mtu: 2048,
    ///     fix: units::Duration::from_ns(600),
    /// };
    /// assert!(plan.answer().needs.packets > 1);
    /// ```
    pub fn answer(&self) -> Answer {
        let fix_ps = self.fix.as_ns().saturating_mul(1_000);
        let cable = Cable {
            kind: self.kind,
            length_mm: self.length_mm,
            rated: None,
            electronics_ps: 0,
        };
        let needs = |speed| formula::cable_needs(speed, self.width, &cable, self.mtu, fix_ps);
        let own = needs(self.speed);
        // Counted in whole packets of whole blocks.
        let packet = own.lane_bytes / u64::from(own.packets.max(1));
        let share = |b: Bytes| b.as_u64() / u64::from(self.lanes) / packet.max(1);
        let has = self
            .buffer
            .map(|b| u32::try_from(share(b)).unwrap_or(u32::MAX));
        let reach = |speed, n| formula::reach_mm(speed, self.width, self.kind, self.mtu, fix_ps, n);
        let of = |speed| BySpeed {
            speed,
            lane_buffer_bytes: u64::from(needs(speed).packets) * packet,
            reach_mm: has.and_then(|n| reach(speed, n)),
        };
        Answer {
            needs: own,
            packet_bytes: packet,
            lane_packets: has,
            goodput_bytes_per_second: has.map(|n| formula::with_packets(&own, self.mtu, n)),
            speeds: Speed::ALL.into_iter().map(of).collect(),
        }
    }
}

impl Answer {
    /// The most virtual lanes with which a buffer is enough, and the subnet manager's code for so many.
    pub fn lanes_enough(&self, buffer: Bytes) -> Option<(u8, u8)> {
        let needed = u64::from(self.needs.packets);
        let enough = |n: u8| buffer.as_u64() / u64::from(n) / self.packet_bytes.max(1) >= needed;
        let codes = [(8, 4), (4, 3), (2, 2), (1, 1)];
        codes.into_iter().find(|(n, _)| enough(*n))
    }

    /// Payload that the cable carries, and what it carries with the buffer where that is known; bits a second.
    pub fn rates(&self) -> (u64, Option<u64>) {
        let payload = bits(self.needs.payload_bytes_per_second);
        (payload, self.goodput_bytes_per_second.map(bits))
    }
}
