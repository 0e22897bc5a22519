//! What a checksum costs a byte, beside reading and copying the same bytes:
//! `checksum_bench [OFFSET]`.
//!
//! Four sizes: a full frame and a jumbo frame (which the first-level cache holds), the largest
//! train (the second level), and 256 MiB (memory). Each number is the median of five rounds, every
//! round measuring each way, one after the other. OFFSET moves the bytes from the start of a cache
//! line; the transport header of a frame over IPv4 stands at 34. Reading means all bytes, OR-ed
//! together in registers as wide as those of the sum and with as many steps at once.

#![allow(
    unsafe_code,
    reason = "reading in vector registers is unsafe, and is measured here alone"
)]

use std::hint::black_box;
use std::time::Instant;

use sys::simd::{self, Level};
use units::Rng;

/// One way over the bytes: source, destination, and some number that depends on all of them.
type Way = Box<dyn Fn(&[u8], &mut [u8]) -> u64>;

fn main() {
    let offset = std::env::args().nth(1).map_or(0, |arg| {
        let offset: usize = arg.parse().expect("OFFSET is a number of bytes");
        offset.min(63)
    });
    let from = Aligned::new(offset);
    // Half a page further: a load that shares its low 12 bits with a store under way waits for it.
    let mut to = Aligned::new(offset + PAGE_BYTES / 2);
    let ways = ways();
    let mut picoseconds = vec![vec![Vec::new(); ways.len()]; SIZES.len()];
    for _ in 0..ROUNDS {
        for (size, of_size) in SIZES.iter().zip(&mut picoseconds) {
            let to = &mut to.bytes_mut()[..*size];
            for ((_, way), of_way) in ways.iter().zip(of_size) {
                of_way.push(picoseconds_per_byte(way, &from.bytes()[..*size], to));
            }
        }
    }
    println!("best here: {}, offset {offset}", Level::best());
    println!("picoseconds a byte, median of {ROUNDS} rounds");
    print!("{:24}", "bytes");
    SIZES.iter().for_each(|size| print!("{size:>12}"));
    println!();
    for (index, (name, _)) in ways.iter().enumerate() {
        print!("{name:24}");
        for of_size in &mut picoseconds {
            of_size[index].sort_by(f64::total_cmp);
            print!("{:12.2}", of_size[index][ROUNDS / 2]);
        }
        println!();
    }
}

fn ways() -> Vec<(String, Way)> {
    let mut ways: Vec<(String, Way)> = vec![
        (
            "16 bits at a time".into(),
            Box::new(|from, _| plain(from).into()),
        ),
        (
            "wire::checksum::sum".into(),
            Box::new(|from, _| wire::checksum::sum(from).into()),
        ),
        (
            "simd::checksum".into(),
            Box::new(|from, _| simd::checksum(from).into()),
        ),
    ];
    for level in Level::available() {
        let way: Way = Box::new(move |from, _| level.sum(from).into());
        ways.push((format!("sum, {level}"), way));
    }
    #[cfg(target_arch = "x86_64")]
    ways.extend(x86::read_all());
    ways.push((
        "copy".into(),
        Box::new(|from, to| {
            to.copy_from_slice(from);
            to[0].into()
        }),
    ));
    for level in Level::available() {
        let way: Way = Box::new(move |from, to| level.copy_and_sum(to, from).into());
        ways.push((format!("copy and sum, {level}"), way));
    }
    ways
}

/// Runs one way over 16 MiB, or once, and divides; the fastest of four tries, because programs
/// beside this one can only slow it down.
fn picoseconds_per_byte(way: &Way, from: &[u8], to: &mut [u8]) -> f64 {
    let times = (16_usize << 20).div_ceil(from.len());
    let mut fastest = f64::INFINITY;
    for _ in 0..4 {
        let began = Instant::now();
        for _ in 0..times {
            black_box(way(black_box(from), black_box(to)));
        }
        fastest = fastest.min(began.elapsed().as_secs_f64());
    }
    fastest * 1e12 / (times * from.len()) as f64
}

/// RFC 1071 section 1 as it is written, for even lengths.
fn plain(bytes: &[u8]) -> u32 {
    let (words, _) = bytes.as_chunks::<2>();
    words.iter().fold(0, |sum: u32, word| {
        let sum = sum + u32::from(u16::from_be_bytes(*word));
        (sum & 0xffff) + (sum >> 16)
    })
}

/// Random bytes that begin `offset` bytes into a page.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
}

impl Aligned {
    fn new(offset: usize) -> Self {
        let bytes = SIZES.into_iter().max().unwrap_or_default();
        let mut rng = Rng::new(1);
        let mut memory = vec![0; bytes + 2 * PAGE_BYTES];
        for word in memory.as_chunks_mut::<8>().0 {
            *word = rng.next_u64().to_ne_bytes();
        }
        let start = memory.as_ptr().align_offset(PAGE_BYTES) + offset;
        Self { memory, start }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..]
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Way;

    pub(crate) fn read_all() -> Vec<(String, Way)> {
        let mut ways: Vec<(String, Way)> = Vec::new();
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the instructions.
            let way: Way = Box::new(|from, _| unsafe { read_256(from) });
            ways.push(("read, avx2".into(), way));
        }
        if is_x86_feature_detected!("avx512bw") {
            // SAFETY: as above.
            let way: Way = Box::new(|from, _| unsafe { read_512(from) });
            ways.push(("read, avx512".into(), way));
        }
        ways
    }

    #[target_feature(enable = "avx2")]
    fn read_256(bytes: &[u8]) -> u64 {
        let mut all = [_mm256_setzero_si256(); 4];
        let (steps, rest) = bytes.as_chunks::<128>();
        for step in steps {
            let from: *const __m256i = step.as_ptr().cast();
            for (i, all) in all.iter_mut().enumerate() {
                // SAFETY: a step holds four vectors.
                *all = _mm256_or_si256(*all, unsafe { _mm256_loadu_si256(from.add(i)) });
            }
        }
        let (parts, tail) = rest.as_chunks::<32>();
        for (part, all) in parts.iter().zip(&mut all) {
            // SAFETY: a part holds one vector.
            *all = _mm256_or_si256(*all, unsafe { _mm256_loadu_si256(part.as_ptr().cast()) });
        }
        let all = _mm256_or_si256(
            _mm256_or_si256(all[0], all[1]),
            _mm256_or_si256(all[2], all[3]),
        );
        let (words, tail) = tail.as_chunks::<4>();
        let tail = tail.iter().fold(0, |all, byte| all | u32::from(*byte));
        let tail = words
            .iter()
            .fold(tail, |all, word| all | u32::from_ne_bytes(*word));
        lanes(all) | u64::from(tail)
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    fn read_512(bytes: &[u8]) -> u64 {
        let mut all = [_mm512_setzero_si512(); 4];
        let (steps, rest) = bytes.as_chunks::<256>();
        for step in steps {
            let from: *const __m512i = step.as_ptr().cast();
            for (i, all) in all.iter_mut().enumerate() {
                // SAFETY: a step holds four vectors.
                *all = _mm512_or_si512(*all, unsafe { _mm512_loadu_si512(from.add(i)) });
            }
        }
        let (parts, tail) = rest.as_chunks::<64>();
        for (part, all) in parts.iter().zip(&mut all) {
            // SAFETY: a part holds one vector.
            *all = _mm512_or_si512(*all, unsafe { _mm512_loadu_si512(part.as_ptr().cast()) });
        }
        let mask = (1 << tail.len()) - 1;
        // SAFETY: the mask admits the bytes of the tail and no other.
        let x = unsafe { _mm512_maskz_loadu_epi8(mask, tail.as_ptr().cast()) };
        all[3] = _mm512_or_si512(all[3], x);
        let all = _mm512_or_si512(
            _mm512_or_si512(all[0], all[1]),
            _mm512_or_si512(all[2], all[3]),
        );
        lanes(_mm256_or_si256(
            _mm512_castsi512_si256(all),
            _mm512_extracti64x4_epi64(all, 1),
        ))
    }

    #[target_feature(enable = "avx2")]
    fn lanes(all: __m256i) -> u64 {
        let two = _mm_or_si128(
            _mm256_castsi256_si128(all),
            _mm256_extracti128_si256(all, 1),
        );
        let low = _mm_cvtsi128_si64(two);
        (low | _mm_extract_epi64(two, 1)).cast_unsigned()
    }
}

const PAGE_BYTES: usize = 4096;
const ROUNDS: usize = 5;
const SIZES: [usize; 4] = [1500, 9000, 65_536, 256 << 20];
