//! Ethernet instead of InfiniBand: what frames add, and what keeps buffers from flowing over, or does not.
//!
//! Octets of a frame on the wire (IEEE 802.3, clauses 3 and 4): preamble and delimiter 8, header 14, check sequence 4, the
//! gap between frames 12; at least 64 from header to check sequence. `Rc`, `Uc` and `Ud` travel as RoCE version 2 (IBTA,
//! annex A17): IP 20, UDP 8, base transport header 12, invariant CRC 4. iWARP: IP 20, TCP 20, MPA length 2 and CRC 4
//! (RFC 5044), tagged header 14 (RFC 5041); no markers, no options.

use crate::spec::Transport;

/// An Ethernet: all links of a fabric are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// What holds senders back.
    pub control: FlowControl,
    /// A sender that hears nothing for so long sends again from what is acknowledged. For fabrics that lose.
    pub retry_ps: u64,
}

impl Default for Ethernet {
    /// Drop-tail; 10 ms.
    fn default() -> Self {
        Self {
            control: FlowControl::DropTail,
            retry_ps: 10_000_000_000,
        }
    }
}

/// What holds a sender back before a full buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowControl {
    /// Nothing: what does not fit is lost.
    #[default]
    DropTail,
    /// Priority flow control (IEEE 802.1Qbb), each lane a priority.
    Pfc(Pfc),
    /// Credits as InfiniBand's: a lossless fabric of its own kind.
    Credits,
}

/// When pause frames are sent. A buffer must hold `xoff_bytes` and the headroom of [`Pfc::headroom_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pfc {
    /// A lane of a port pauses its sender when it holds more.
    pub xoff_bytes: u32,
    /// It lets it go on when it holds this or less.
    pub xon_bytes: u32,
    /// From a pause frame's end at the sender until no new frame begins.
    pub respond_ps: u64,
}

impl Pfc {
    /// What may still come after more than `xoff_bytes` are held: a frame that had begun and the one that made it so, what
    /// is on the cable both ways, what is sent while the pause frame waits for a frame of the other direction, is on the
    /// wire and is acted on (the terms of IEEE 802.1Qbb, annex O). `byte_ps` is the time of a byte.
    pub fn headroom_bytes(&self, frame_bytes: u32, cable_ps: u64, byte_ps: u64) -> u32 {
        let waits = 2 * cable_ps + self.respond_ps;
        let sent = waits.div_ceil(byte_ps.max(1)) + u64::from(PAUSE_BYTES);
        let all = sent + 3 * u64::from(frame_bytes + WIRE_ONLY_BYTES);
        // Buffers are of blocks of 64 B: the worst frame has 65, and is 85 on the wire.
        u32::try_from((all * 128).div_ceil(85)).unwrap_or(u32::MAX)
    }
}

/// Octets from header to check sequence.
pub(crate) const fn frame_bytes(transport: Transport, payload_bytes: u32) -> u32 {
    let inner = match transport {
        Transport::Rc | Transport::Uc => 44,
        Transport::Ud => 52,
        Transport::Iwarp => 60,
    };
    least(payload_bytes + inner + 18)
}

/// An acknowledgment: RoCE's with its header of 4, TCP's without data.
pub(crate) const fn ack_frame_bytes(transport: Transport) -> u32 {
    match transport {
        Transport::Iwarp => least(40 + 18),
        _ => least(48 + 18),
    }
}

const fn least(bytes: u32) -> u32 {
    if bytes < 64 { 64 } else { bytes }
}

/// What a sender may take to act on a pause frame at 10 Gb/s: 30,720 bit times, and 8,192 of the interface
/// (IEEE 802.1Qbb, annex O).
pub const RESPOND_10G_PS: u64 = (30_720 + 8_192) * 100;
/// Preamble, delimiter, gap: on the wire, not in a buffer.
pub const WIRE_ONLY_BYTES: u32 = 20;
/// A pause frame on the wire.
pub const PAUSE_BYTES: u32 = 64 + WIRE_ONLY_BYTES;
/// Payload of iWARP in a frame of the usual largest size, 1500.
pub const IWARP_PAYLOAD_BYTES: u32 = 1_500 - 60;
/// The same with frames of 9000.
pub const IWARP_JUMBO_BYTES: u32 = 9_000 - 60;
