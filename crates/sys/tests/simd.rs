//! The vector checksum against RFC 1071 as it is written, and against `wire::checksum`.

#![allow(
    unsafe_code,
    reason = "a page that may not be touched is mapped behind the bytes"
)]

use std::ptr::null_mut;
use std::slice;

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use sys::simd::{self, Level, append, fold};
use units::Rng;

#[test]
fn every_length_at_every_alignment_sums_as_rfc_1071_says() {
    let content = random(2048);
    let mut memory = vec![0xa5; 2048 + 128];
    let start = memory.as_ptr().align_offset(64);
    for len in 0..=content.len() {
        let bytes = &content[..len];
        let want = plain(bytes);
        assert_eq!(wire::checksum::sum(bytes), want);
        for at in start..start + 64 {
            memory.fill(0xa5);
            memory[at..at + len].copy_from_slice(bytes);
            for level in Level::available() {
                let got = fold(level.sum(&memory[at..at + len]));
                assert_eq!(got, want, "{level}, {len} bytes at {at}");
            }
        }
    }
}

#[test]
fn copies_of_every_length_are_whole_and_nothing_is_written_behind_them() {
    let content = random(2048 + 64);
    let mut copy = vec![0; 2048 + 70];
    for len in 0..=2048 {
        let bytes = &content[len % 64..][..len];
        expect(bytes, &mut copy[len % 5..], plain(bytes));
    }
}

#[test]
fn extreme_words_carry_around_the_end_of_a_block() {
    // Sums are emptied every 65,536 bytes: just before, at and behind that, and behind several.
    let mut copy = vec![0; 300_000];
    for len in [65_535, 65_536, 65_537, 65_599, 65_600, 131_072, 262_145] {
        let bytes = random(len);
        expect(&bytes, &mut copy, plain(&bytes));
        expect(&vec![0; len], &mut copy, 0);
        let all_ones = if len % 2 == 0 { 0xffff } else { 0xff00 };
        expect(&vec![0xff; len], &mut copy, all_ones);
        // The top bit alone, and all but it: where signed and unsigned words differ most.
        for pair in [[0x80, 0x00], [0x00, 0x80], [0x7f, 0xff], [0xff, 0x7f]] {
            let bytes: Vec<u8> = pair.into_iter().cycle().take(len).collect();
            expect(&bytes, &mut copy, plain(&bytes));
        }
    }
}

#[test]
fn only_zeros_sum_to_zero() {
    let mut bytes = [0; 300];
    for at in 0..bytes.len() {
        bytes[at] = 1;
        let want = if at % 2 == 0 { 0x0100 } else { 0x0001 };
        for level in Level::available() {
            assert_eq!(fold(level.sum(&bytes)), want, "{level}, byte {at}");
        }
        bytes[at] = 0;
    }
    assert_eq!(fold(simd::sum(&[0xff, 0xfe, 0x00, 0x01])), 0xffff);
}

#[test]
fn parts_of_any_length_append_to_the_sum_of_the_whole() {
    let mut rng = Rng::new(11);
    for round in 0..500 {
        let bytes = random(round * 7);
        let (mut sum, mut at) = (0, 0);
        while at < bytes.len() {
            let most = u64::try_from(bytes.len() - at).unwrap().min(400);
            let part = 1 + usize::try_from(rng.next_u64() % most).unwrap();
            sum = append(sum, at, simd::sum(&bytes[at..at + part]));
            at += part;
        }
        assert_eq!(fold(sum), wire::checksum::sum(&bytes), "round {round}");
    }
}

#[test]
fn a_sum_that_wraps_32_bits_carries_around() {
    assert_eq!(append(u32::MAX, 0, 1), 1);
    assert_eq!(append(u32::MAX, 0, u32::MAX), u32::MAX);
    assert_eq!(append(5, 1, 0x1234_5678), 0x3456_7812 + 5);
    assert_eq!(fold(u32::MAX), 0xffff);
    assert_eq!(fold(0), 0);
}

#[test]
fn the_checksum_is_that_of_wire_and_verifies() {
    let mut bytes = random(1480);
    bytes[16..18].fill(0);
    let check = simd::checksum(&bytes);
    assert_eq!(check, wire::checksum::checksum(&bytes));
    bytes[16..18].copy_from_slice(&check.to_be_bytes());
    assert_eq!(simd::checksum(&bytes), 0);
}

#[test]
fn the_fastest_way_is_the_last_of_those_available() {
    assert_eq!(Level::available().last(), Some(Level::best()));
    assert_eq!(Level::available().next().unwrap().to_string(), "portable");
}

#[test]
#[should_panic(expected = "one length")]
fn copying_into_less_room_panics() {
    simd::copy_and_sum(&mut [0; 99], &[0; 100]);
}

#[test]
fn no_byte_behind_the_end_is_touched() {
    let (mut from, mut to) = (ClosedEnd::new(), ClosedEnd::new());
    from.page().copy_from_slice(&random(PAGE_BYTES));
    let src = &*from.page();
    for len in 0..=600 {
        let src = &src[PAGE_BYTES - len..];
        for level in Level::available() {
            let sum = level.copy_and_sum(&mut to.page()[PAGE_BYTES - len..], src);
            assert_eq!(sum, level.sum(src));
            assert_eq!(fold(sum), plain(src), "{level}, {len} bytes");
        }
    }
}

/// Sums `bytes` in every way that there is here, alone and while copying, and expects `want`.
fn expect(bytes: &[u8], copy: &mut [u8], want: u16) {
    for level in Level::available() {
        let len = bytes.len();
        assert_eq!(fold(level.sum(bytes)), want, "{level}, {len} bytes");
        copy.fill(0x5a);
        let (room, behind) = copy.split_at_mut(len);
        let sum = level.copy_and_sum(room, bytes);
        assert_eq!(fold(sum), want, "{level}, {len} bytes copied");
        assert!(room == bytes, "{level}, {len} bytes");
        let is_whole = behind.iter().all(|&byte| byte == 0x5a);
        assert!(is_whole, "{level} writes behind {len} bytes");
    }
}

/// RFC 1071 section 1, one 16-bit word at a time.
fn plain(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

fn random(bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(7);
    (0..bytes)
        .map(|_| rng.next_u64().to_le_bytes()[0])
        .collect()
}

/// A page with one behind it that may not be touched.
struct ClosedEnd(*mut u8);

impl ClosedEnd {
    fn new() -> Self {
        let open = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping of two pages that nothing else knows of.
        let pages =
            unsafe { mmap_anonymous(null_mut(), 2 * PAGE_BYTES, open, MapFlags::PRIVATE) }.unwrap();
        let pages = pages.cast::<u8>();
        // SAFETY: the second page lies within the mapping.
        unsafe {
            mprotect(
                pages.add(PAGE_BYTES).cast(),
                PAGE_BYTES,
                MprotectFlags::empty(),
            )
        }
        .unwrap();
        Self(pages)
    }

    fn page(&mut self) -> &mut [u8] {
        // SAFETY: the first page is mapped, initialised by the kernel, and ours.
        unsafe { slice::from_raw_parts_mut(self.0, PAGE_BYTES) }
    }
}

impl Drop for ClosedEnd {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and borrowed no more.
        unsafe { munmap(self.0.cast(), 2 * PAGE_BYTES) }.unwrap();
    }
}

const PAGE_BYTES: usize = 4096;
