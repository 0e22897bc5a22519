//! Measuring datagrams: their header, and what a receiver concludes from the headers that come.
//!
//! The header is iperf3's: seconds and microseconds of the sender's clock, then a counter from 1, of
//! 32 or 64 bits, all in network order. Differences between clocks cancel out, since only changes of
//! the transit time count.
//!
//! Source for the jitter: RFC 3550, 6.4.1 and A.8 (RFC 1889's formula).

/// A datagram's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Sender's time at which it left, of any clock; whole microseconds travel.
    pub sent_ns: u64,
    /// Its number, from 1.
    pub number: u64,
}

/// Bytes of a header with a counter of 64 bits; one of 32 bits takes four fewer.
pub const HEADER_BYTES_MAX: usize = 16;

/// Bytes of a secret that both ends of our own protocol know, behind the header: who has not heard it
/// cannot add datagrams to a stream.
pub const KEY_BYTES: usize = 8;

/// Bytes of a header with a wide counter and a key.
pub const KEYED_BYTES: usize = HEADER_BYTES_MAX + KEY_BYTES;

/// Writes the key behind the header's place; a shorter datagram stays as it is.
pub fn write_key(key: [u8; KEY_BYTES], datagram: &mut [u8]) {
    if let Some(place) = datagram.get_mut(HEADER_BYTES_MAX..KEYED_BYTES) {
        place.copy_from_slice(&key);
    }
}

/// True when a datagram has the key in its place.
pub fn has_key(key: [u8; KEY_BYTES], datagram: &[u8]) -> bool {
    datagram.get(HEADER_BYTES_MAX..KEYED_BYTES) == Some(&key[..])
}

impl Header {
    /// Writes the header at the front of `datagram`, which has [`HEADER_BYTES_MAX`] bytes at least;
    /// a shorter one stays as it is.
    pub fn write(self, wide: bool, datagram: &mut [u8]) {
        let Some(front) = datagram.first_chunk_mut::<HEADER_BYTES_MAX>() else {
            return;
        };
        // Seconds of CLOCK_MONOTONIC or since 1970: 32 bits until 2106.
        let seconds = low32(self.sent_ns / 1_000_000_000);
        let micros = low32(self.sent_ns % 1_000_000_000 / 1000);
        front[0..4].copy_from_slice(&seconds.to_be_bytes());
        front[4..8].copy_from_slice(&micros.to_be_bytes());
        if wide {
            front[8..16].copy_from_slice(&self.number.to_be_bytes());
        } else {
            front[8..12].copy_from_slice(&low32(self.number).to_be_bytes());
        }
    }

    /// Reads the header of a datagram; `None` when it is too short for one.
    pub fn read(wide: bool, datagram: &[u8]) -> Option<Self> {
        let (head, rest) = datagram.split_first_chunk::<8>()?;
        let half =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let number = if wide {
            u64::from_be_bytes(*rest.first_chunk()?)
        } else {
            u32::from_be_bytes(*rest.first_chunk()?).into()
        };
        let sent_ns = u64::from(half(0)) * 1_000_000_000 + u64::from(half(4)) * 1000;
        Some(Self { sent_ns, number })
    }
}

/// What a receiver knows of one stream.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Highest number that came.
    pub highest: u64,
    /// Numbers below it that did not come.
    pub lost: u64,
    /// Datagrams that came after a higher number.
    pub late: u64,
    /// Datagrams that came once more.
    pub duplicates: u64,
    /// RFC 3550 jitter in nanoseconds.
    pub jitter_ns: f64,
    transit_ns: Option<i128>,
    /// Which of the last numbers came; bit n mod 1024.
    seen: [u64; WINDOW / 64],
}

impl Tally {
    /// Takes a datagram in. A number of 0 or one that jumps ahead by more than [`JUMP_MAX`] is
    /// nonsense and changes nothing but the jitter.
    pub fn on_datagram(&mut self, header: Header, arrived_ns: u64) {
        let number = header.number;
        if number > self.highest && number - self.highest <= JUMP_MAX {
            self.advance(number);
        } else if number > 0 && number <= self.highest {
            self.on_late(number);
        }
        let transit = i128::from(arrived_ns) - i128::from(header.sent_ns);
        if let Some(before) = self.transit_ns.replace(transit) {
            #[allow(clippy::cast_precision_loss, reason = "an estimate")]
            let change = (transit - before).unsigned_abs() as f64;
            self.jitter_ns += (change - self.jitter_ns) / 16.0;
        }
    }

    fn advance(&mut self, number: u64) {
        let gap = number - self.highest - 1;
        self.lost += gap;
        for skipped in (self.highest + 1..number).rev().take(WINDOW) {
            self.mark(skipped, false);
        }
        self.mark(number, true);
        self.highest = number;
    }

    fn on_late(&mut self, number: u64) {
        let known = self.highest - number < WINDOW as u64;
        if known && self.has(number) {
            self.duplicates += 1;
            return;
        }
        // Older than the window counts as late: a duplicate so old is rarer than a detour.
        self.late += 1;
        self.lost = self.lost.saturating_sub(1);
        if known {
            self.mark(number, true);
        }
    }

    fn has(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.seen[word] >> bit & 1 == 1
    }

    fn mark(&mut self, number: u64, came: bool) {
        let (word, bit) = place(number);
        self.seen[word] = self.seen[word] & !(1 << bit) | u64::from(came) << bit;
    }
}

fn place(number: u64) -> (usize, u64) {
    let slot = number % WINDOW as u64;
    (usize::try_from(slot / 64).unwrap_or(0), slot % 64)
}

fn low32(n: u64) -> u32 {
    u32::try_from(n & u64::from(u32::MAX)).unwrap_or(0)
}

/// Numbers remembered: a reordering by more than 1024 datagrams is no longer told from a duplicate.
const WINDOW: usize = 1024;
/// A loss of so many in a row is some seconds at the highest packet rates; more is a damaged or
/// hostile counter.
pub const JUMP_MAX: u64 = 100_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tally(numbers: &[u64]) -> Tally {
        let mut tally = Tally::default();
        for &number in numbers {
            tally.on_datagram(Header { sent_ns: 0, number }, 0);
        }
        tally
    }

    fn counts(numbers: &[u64]) -> (u64, u64, u64, u64) {
        let t = tally(numbers);
        (t.highest, t.lost, t.late, t.duplicates)
    }

    #[test]
    fn headers_are_written_and_read_in_both_widths() {
        let header = Header {
            sent_ns: 1_795_321_511_123_456_000,
            number: 7,
        };
        for wide in [false, true] {
            let mut datagram = [0xaa_u8; 20];
            header.write(wide, &mut datagram);
            assert_eq!(Header::read(wide, &datagram), Some(header));
            assert_eq!(datagram[if wide { 16 } else { 12 }], 0xaa);
        }
        assert_eq!(Header::read(false, &[0; 11]), None);
        assert!(Header::read(false, &[0; 12]).is_some());
        assert_eq!(Header::read(true, &[0; 15]), None);
        assert!(Header::read(true, &[0; 16]).is_some());
    }

    #[test]
    fn only_a_datagram_with_the_key_in_its_place_has_it() {
        let key = [1, 2, 3, 4, 5, 6, 7, 8];
        let mut datagram = [0; KEYED_BYTES + 1];
        assert!(!has_key(key, &datagram));
        write_key(key, &mut datagram);
        Header::default().write(true, &mut datagram);
        assert!(has_key(key, &datagram));
        assert!(has_key(key, &datagram[..KEYED_BYTES]));
        assert!(!has_key(key, &datagram[..KEYED_BYTES - 1]));
        assert!(!has_key([1; 8], &datagram));
        assert!(!has_key(key, &datagram[1..]));
        write_key(key, &mut datagram[..KEYED_BYTES - 1]);
    }

    #[test]
    fn gaps_are_losses_until_the_missing_comes_late() {
        assert_eq!(counts(&[1, 2, 3]), (3, 0, 0, 0));
        assert_eq!(counts(&[1, 4]), (4, 2, 0, 0));
        assert_eq!(counts(&[1, 4, 2]), (4, 1, 1, 0));
        assert_eq!(counts(&[1, 4, 2, 3]), (4, 0, 2, 0));
    }

    #[test]
    fn a_duplicate_makes_up_for_no_loss() {
        assert_eq!(counts(&[1, 3, 3, 1]), (3, 1, 0, 2));
        assert_eq!(counts(&[1, 3, 2, 2]), (3, 0, 1, 1));
    }

    #[test]
    fn the_window_forgets_what_is_1024_back() {
        let mut numbers = vec![1];
        numbers.extend(3..=1025);
        // 2 is 1023 behind 1025, so known to be missing; 1 is just outside.
        let t = tally(&[&numbers[..], &[2, 2]].concat());
        assert_eq!((t.lost, t.late, t.duplicates), (0, 1, 1));
        let t = tally(&[&numbers[..], &[1]].concat());
        assert_eq!((t.late, t.duplicates), (1, 0));
    }

    #[test]
    fn nonsense_numbers_change_nothing() {
        assert_eq!(counts(&[1, 0]), (1, 0, 0, 0));
        assert_eq!(counts(&[1, u64::MAX]), (1, 0, 0, 0));
        assert_eq!(counts(&[1, 1 + JUMP_MAX]).0, 1 + JUMP_MAX);
        assert_eq!(counts(&[1, 2 + JUMP_MAX]).0, 1);
    }

    #[test]
    fn jitter_follows_rfc_3550() {
        let mut tally = Tally::default();
        // Transit 100, 116, 100: each change is 16, so 1, then 1 + 15/16.
        for (number, arrived) in [(1, 100), (2, 116), (3, 100)] {
            tally.on_datagram(Header { sent_ns: 0, number }, arrived);
        }
        assert!((tally.jitter_ns - 1.9375).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn every_order_of_all_numbers_loses_none(order in Just((1..=200_u64).collect::<Vec<_>>()).prop_shuffle()) {
            let t = tally(&order);
            prop_assert_eq!((t.highest, t.lost, t.duplicates), (200, 0, 0));
        }
    }
}
