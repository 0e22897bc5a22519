//! STAMP test packets, unauthenticated mode (RFC 8762), and how a reflector treats extensions that it
//! does not know (RFC 8972).
//!
//! A sender's packet and the reflector's answer are equally long, 44 bytes and whatever extensions
//! follow, so a reflector amplifies nothing. Left out: the authenticated mode, and every extension
//! but padding; they are sent back with the flag that says "not known".

use crate::Error;
use crate::bytes::{array_at, put, put_u16, put_u32, u8_at, u16_at, u32_at};

/// Bytes of a packet without extensions, either way (RFC 8762, 4.2.1 and 4.3.1).
pub const PACKET_BYTES: usize = 44;

/// How a time is written (RFC 8762, 4.1.1; the Z bit of the error estimate).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Seconds since 1900 and their 2^-32 parts (RFC 5905, section 6).
    #[default]
    Ntp,
    /// Seconds and nanoseconds, 32 bits each (IEEE 1588v2, truncated; RFC 8186).
    Ptp,
}

/// A time stamp as it travels: 64 bits that [`Format`] gives a meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamp(pub u64);

/// How good the clock is that made a stamp (RFC 4656, 4.1.2, with the Z bit of RFC 8186).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorEstimate(pub u16);

/// What a session-sender sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderPacket {
    /// Counts from 0.
    pub sequence: u32,
    /// When it was sent.
    pub timestamp: Timestamp,
    /// How good that is.
    pub error: ErrorEstimate,
    /// Names the session together with addresses and ports (RFC 8972, section 3); 0: unnamed.
    pub session: u16,
}

/// What a session-reflector sends back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReflectorPacket {
    /// The reflector's own count in this session, or the sender's where it keeps none.
    pub sequence: u32,
    /// When the answer was sent.
    pub timestamp: Timestamp,
    /// How good the reflector's clock is.
    pub error: ErrorEstimate,
    /// As the sender named the session.
    pub session: u16,
    /// When the sender's packet came.
    pub received: Timestamp,
    /// The sender's sequence number.
    pub sender_sequence: u32,
    /// The sender's stamp.
    pub sender_timestamp: Timestamp,
    /// The sender's error estimate.
    pub sender_error: ErrorEstimate,
    /// Hops that the sender's packet had left (TTL, hop limit); 255 of a reflector that cannot see it.
    pub sender_ttl: u8,
}

impl Timestamp {
    /// A time of day, nanoseconds since 1970, as it travels. Seconds beyond 32 bits wrap.
    pub fn from_unix_ns(ns: u64, format: Format) -> Self {
        let (seconds, rest) = (ns / NS_PER_S, ns % NS_PER_S);
        let (seconds, fraction) = match format {
            Format::Ntp => (
                seconds.wrapping_add(UNIX_IN_NTP_S),
                // Rounded to the nearest, and never up to a whole second: 2^-32 s are 0.23 ns.
                ((rest << 32) + NS_PER_S / 2) / NS_PER_S,
            ),
            Format::Ptp => (seconds, rest),
        };
        Self((seconds & 0xffff_ffff) << 32 | fraction.min(0xffff_ffff))
    }

    /// The time of day, nanoseconds since 1970. Seconds are those of the 136 years around `near_ns`,
    /// since 32 bits wrap (NTP's do in 2036). `None` for more than a second of nanoseconds.
    pub fn to_unix_ns(self, format: Format, near_ns: u64) -> Option<u64> {
        let (seconds, fraction) = (self.0 >> 32, self.0 & 0xffff_ffff);
        let ns = match format {
            Format::Ntp => ((fraction * NS_PER_S) + (1 << 31)) >> 32,
            Format::Ptp if fraction >= NS_PER_S => return None,
            Format::Ptp => fraction,
        };
        let offset = if format == Format::Ntp {
            UNIX_IN_NTP_S
        } else {
            0
        };
        let near = near_ns / NS_PER_S;
        let low = seconds.wrapping_sub(offset) & 0xffff_ffff;
        // The distance to `near` in the ring of 2^32 seconds, as a signed number.
        let ahead = low.wrapping_sub(near) & 0xffff_ffff;
        let seconds = if ahead < 1 << 31 {
            near.checked_add(ahead)?
        } else {
            near.checked_sub((1 << 32) - ahead)?
        };
        seconds.checked_mul(NS_PER_S)?.checked_add(ns)
    }
}

impl ErrorEstimate {
    /// An estimate that covers `error_ns`: the least one not below it; the largest that fits if it is
    /// beyond all of them.
    pub fn new(error_ns: u64, synchronised: bool, format: Format) -> Self {
        // In parts of 2^-32 s, rounded up; the multiplier is never 0 (RFC 4656, 4.1.2).
        let parts = (u128::from(error_ns) << 32)
            .div_ceil(u128::from(NS_PER_S))
            .max(1);
        let bits = 128 - parts.leading_zeros();
        let mut scale = bits.saturating_sub(8);
        let mut multiplier = parts.div_ceil(1 << scale);
        if multiplier > 0xff {
            scale += 1;
            multiplier = parts.div_ceil(1 << scale);
        }
        let (scale, multiplier) = match (u16::try_from(scale), u16::try_from(multiplier)) {
            (Ok(scale), Ok(multiplier)) if scale < 64 => (scale, multiplier),
            _ => (63, 0xff),
        };
        let z = u16::from(format == Format::Ptp) << 14;
        Self(u16::from(synchronised) << 15 | z | scale << 8 | multiplier)
    }

    /// Whether the clock follows UTC by some outer source.
    pub const fn is_synchronised(self) -> bool {
        self.0 & 0x8000 != 0
    }

    /// How this end writes its times.
    pub const fn format(self) -> Format {
        if self.0 & 0x4000 != 0 {
            Format::Ptp
        } else {
            Format::Ntp
        }
    }

    /// The error; `None` where the multiplier is 0, which says nothing (RFC 4656, 4.1.2), or it is
    /// beyond 584 years.
    pub fn error_ns(self) -> Option<u64> {
        let (scale, multiplier) = (u32::from(self.0 >> 8 & 0x3f), u128::from(self.0 & 0xff));
        if multiplier == 0 {
            return None;
        }
        let parts = multiplier << scale;
        u64::try_from((parts * u128::from(NS_PER_S)).div_ceil(1 << 32)).ok()
    }
}

impl SenderPacket {
    /// Reads the front of a datagram; what must be zero is not looked at.
    ///
    /// # Errors
    /// [`Error::Truncated`] below 44 bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() < PACKET_BYTES {
            return Err(Error::Truncated);
        }
        Ok(Self {
            sequence: u32_at(bytes, 0),
            timestamp: timestamp_at(bytes, 4),
            error: ErrorEstimate(u16_at(bytes, 12)),
            session: u16_at(bytes, 14),
        })
    }

    /// Writes the first 44 bytes, unused ones as zero.
    ///
    /// # Errors
    /// [`Error::NoRoom`] below 44 bytes.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<(), Error> {
        let bytes = bytes.get_mut(..PACKET_BYTES).ok_or(Error::NoRoom)?;
        bytes.fill(0);
        put_u32(bytes, 0, self.sequence);
        put(bytes, 4, &self.timestamp.0.to_be_bytes());
        put_u16(bytes, 12, self.error.0);
        put_u16(bytes, 14, self.session);
        Ok(())
    }
}

impl ReflectorPacket {
    /// Reads the front of a datagram; what must be zero is not looked at.
    ///
    /// # Errors
    /// [`Error::Truncated`] below 44 bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() < PACKET_BYTES {
            return Err(Error::Truncated);
        }
        Ok(Self {
            sequence: u32_at(bytes, 0),
            timestamp: timestamp_at(bytes, 4),
            error: ErrorEstimate(u16_at(bytes, 12)),
            session: u16_at(bytes, 14),
            received: timestamp_at(bytes, 16),
            sender_sequence: u32_at(bytes, 24),
            sender_timestamp: timestamp_at(bytes, 28),
            sender_error: ErrorEstimate(u16_at(bytes, 36)),
            sender_ttl: u8_at(bytes, 40),
        })
    }

    /// Writes the first 44 bytes, unused ones as zero; what follows stays as it is.
    ///
    /// # Errors
    /// [`Error::NoRoom`] below 44 bytes.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<(), Error> {
        let bytes = bytes.get_mut(..PACKET_BYTES).ok_or(Error::NoRoom)?;
        bytes.fill(0);
        put_u32(bytes, 0, self.sequence);
        put(bytes, 4, &self.timestamp.0.to_be_bytes());
        put_u16(bytes, 12, self.error.0);
        put_u16(bytes, 14, self.session);
        put(bytes, 16, &self.received.0.to_be_bytes());
        put_u32(bytes, 24, self.sender_sequence);
        put(bytes, 28, &self.sender_timestamp.0.to_be_bytes());
        put_u16(bytes, 36, self.sender_error.0);
        put(bytes, 40, &[self.sender_ttl]);
        Ok(())
    }
}

/// Marks the extensions of a packet that is about to be reflected (RFC 8972, section 4): padding is
/// known, every other type is "not known", and where a length runs past the end, the extension is
/// "malformed" and the rest stays as it came. `extensions` is what follows the first 44 bytes.
pub fn mark_extensions(extensions: &mut [u8]) {
    let mut at = 0;
    while let Some([flags, kind, high, low]) = array_at::<4>(extensions, at) {
        let len = usize::from(u16::from_be_bytes([high, low]));
        let next = at + EXTENSION_HEADER_BYTES + len;
        let flags = flags & !(UNKNOWN | MALFORMED);
        let marked = if next > extensions.len() {
            flags | MALFORMED
        } else if kind == EXTRA_PADDING {
            flags
        } else {
            flags | UNKNOWN
        };
        put(extensions, at, &[marked]);
        if marked & MALFORMED != 0 {
            return;
        }
        at = next;
    }
}

fn timestamp_at(bytes: &[u8], at: usize) -> Timestamp {
    Timestamp(array_at(bytes, at).map_or(0, u64::from_be_bytes))
}

const NS_PER_S: u64 = 1_000_000_000;
/// From 1900 to 1970: RFC 5905, figure 4.
const UNIX_IN_NTP_S: u64 = 2_208_988_800;
/// Flags, type, length: RFC 8972, figure 4.
const EXTENSION_HEADER_BYTES: usize = 4;
/// U: the reflector does not know this extension (RFC 8972, section 4).
const UNKNOWN: u8 = 0x80;
/// M: it is malformed (the same).
const MALFORMED: u8 = 0x40;
/// RFC 8972, 4.1.
const EXTRA_PADDING: u8 = 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW_NS: u64 = 1_795_000_000_123_456_789;

    #[test]
    fn the_sender_packet_stands_as_in_rfc_8762_figure_3() {
        let packet = SenderPacket {
            sequence: 0x0102_0304,
            timestamp: Timestamp(0x1112_1314_1516_1718),
            error: ErrorEstimate(0x8001),
            session: 0x2122,
        };
        let mut bytes = [0xff; PACKET_BYTES + 1];
        packet.emit(&mut bytes).unwrap();
        let mut expected = vec![
            1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x80, 1, 0x21, 0x22,
        ];
        expected.resize(PACKET_BYTES, 0);
        assert_eq!(&bytes[..PACKET_BYTES], expected);
        assert_eq!(bytes[PACKET_BYTES], 0xff);
    }

    #[test]
    fn the_reflector_packet_stands_as_in_rfc_8762_figure_5() {
        let packet = ReflectorPacket {
            sequence: 0x0102_0304,
            timestamp: Timestamp(5),
            error: ErrorEstimate(0x4006),
            session: 7,
            received: Timestamp(8),
            sender_sequence: 9,
            sender_timestamp: Timestamp(10),
            sender_error: ErrorEstimate(11),
            sender_ttl: 12,
        };
        let mut bytes = [0xff; PACKET_BYTES];
        packet.emit(&mut bytes).unwrap();
        let mut expected = [0_u8; PACKET_BYTES];
        expected[..4].copy_from_slice(&[1, 2, 3, 4]);
        for (at, value) in [(11, 5), (12, 0x40), (13, 6), (15, 7), (23, 8), (27, 9)] {
            expected[at] = value;
        }
        for (at, value) in [(35, 10), (37, 11), (40, 12)] {
            expected[at] = value;
        }
        assert_eq!(bytes, expected);
    }

    #[test]
    fn a_byte_less_is_too_short() {
        let bytes = [0; PACKET_BYTES];
        assert!(SenderPacket::parse(&bytes).is_ok());
        assert!(ReflectorPacket::parse(&bytes).is_ok());
        let short = &bytes[1..];
        assert_eq!(SenderPacket::parse(short), Err(Error::Truncated));
        assert_eq!(ReflectorPacket::parse(short), Err(Error::Truncated));
        let mut room = [0; PACKET_BYTES - 1];
        assert_eq!(SenderPacket::default().emit(&mut room), Err(Error::NoRoom));
        let packet = ReflectorPacket::default();
        assert_eq!(packet.emit(&mut room), Err(Error::NoRoom));
    }

    #[test]
    fn known_times_of_day() {
        // RFC 5905, figure 4: 1970 is 2,208,988,800; half a second is half of 2^32.
        let half = Timestamp::from_unix_ns(500_000_000, Format::Ntp);
        assert_eq!(half, Timestamp(2_208_988_800 << 32 | 1 << 31));
        assert_eq!(half.to_unix_ns(Format::Ntp, 0), Some(500_000_000));
        let ptp = Timestamp::from_unix_ns(3_000_000_004, Format::Ptp);
        assert_eq!(ptp, Timestamp(3 << 32 | 4));
        assert_eq!(Timestamp(1_000_000_000).to_unix_ns(Format::Ptp, 0), None);
        let last = Timestamp(999_999_999).to_unix_ns(Format::Ptp, 0);
        assert_eq!(last, Some(999_999_999));
    }

    #[test]
    fn stamps_wrap_in_2036_without_a_jump() {
        // NTP's first era ends on 2036-02-07 at 06:28:16 UTC.
        let end_ns = ((1_u64 << 32) - UNIX_IN_NTP_S) * NS_PER_S;
        for ns in [end_ns - 1, end_ns, end_ns + 1] {
            let stamp = Timestamp::from_unix_ns(ns, Format::Ntp);
            let near = end_ns - 60 * NS_PER_S;
            assert_eq!(stamp.to_unix_ns(Format::Ntp, near), Some(ns));
        }
    }

    #[test]
    fn an_error_estimate_without_multiplier_says_nothing() {
        assert_eq!(ErrorEstimate(0x8000).error_ns(), None);
        assert_eq!(ErrorEstimate(0x8001).error_ns(), Some(1));
        assert!(ErrorEstimate(0x8001).is_synchronised());
        assert!(!ErrorEstimate(0x7fff).is_synchronised());
        assert_eq!(ErrorEstimate(0x4001).format(), Format::Ptp);
        // One second is 2^32 parts: 128 << 25.
        assert_eq!(
            ErrorEstimate::new(NS_PER_S, false, Format::Ntp).0,
            25 << 8 | 128
        );
    }

    #[test]
    fn unknown_extensions_are_marked_and_padding_is_not() {
        // Padding of 2 bytes, an unknown one of none, one that runs past the end.
        let mut bytes = [0x80, 1, 0, 2, 9, 9, 0x00, 7, 0, 0, 0x80, 3, 0, 1];
        mark_extensions(&mut bytes);
        assert_eq!(bytes, [0x00, 1, 0, 2, 9, 9, 0x80, 7, 0, 0, 0x40, 3, 0, 1]);
    }

    proptest! {
        #[test]
        fn packets_read_back(sequence: u32, time: u64, error: u16, session: u16, received: u64,
                             sender_sequence: u32, sender_ttl: u8) {
            let mut bytes = [0; PACKET_BYTES];
            let sent = SenderPacket {
                sequence, timestamp: Timestamp(time), error: ErrorEstimate(error), session,
            };
            sent.emit(&mut bytes).unwrap();
            prop_assert_eq!(SenderPacket::parse(&bytes), Ok(sent));
            let answer = ReflectorPacket {
                sequence, timestamp: Timestamp(time), error: ErrorEstimate(error), session,
                received: Timestamp(received), sender_sequence, sender_timestamp: Timestamp(!time),
                sender_error: ErrorEstimate(!error), sender_ttl,
            };
            answer.emit(&mut bytes).unwrap();
            prop_assert_eq!(ReflectorPacket::parse(&bytes), Ok(answer));
        }

        #[test]
        fn any_bytes_are_read_and_marked_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = SenderPacket::parse(&bytes);
            let _ = ReflectorPacket::parse(&bytes);
            let before = bytes.clone();
            mark_extensions(&mut bytes);
            let changed = |(a, b): (&u8, &u8)| (a ^ b) & 0x3f != 0;
            prop_assert!(!before.iter().zip(&bytes).any(changed), "only the two flags change");
        }

        #[test]
        fn times_of_day_survive(off_s in -1_700_000_000_i64..2_000_000_000, ns in 0_u64..NS_PER_S) {
            let time = NOW_NS / NS_PER_S * NS_PER_S;
            let time = time.checked_add_signed(off_s * 1_000_000_000).unwrap() + ns;
            for format in [Format::Ntp, Format::Ptp] {
                let back = Timestamp::from_unix_ns(time, format).to_unix_ns(format, NOW_NS);
                prop_assert_eq!(back, Some(time));
            }
        }

        #[test]
        fn any_stamp_is_a_time_or_none(stamp: u64, near_ns: u64) {
            for format in [Format::Ntp, Format::Ptp] {
                let _ = Timestamp(stamp).to_unix_ns(format, near_ns);
            }
        }

        #[test]
        fn an_estimate_covers_the_error_and_little_more(error_ns in 0_u64..1 << 62) {
            let told = ErrorEstimate::new(error_ns, true, Format::Ntp).error_ns().unwrap();
            prop_assert!(told >= error_ns, "{told}");
            prop_assert!(told - error_ns <= error_ns / 64 + 2, "{told}");
        }

        #[test]
        fn any_estimate_has_an_error_or_none(bits: u16) {
            let _ = ErrorEstimate(bits).error_ns();
        }
    }
}
