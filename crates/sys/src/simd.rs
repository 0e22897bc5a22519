//! The Internet checksum in vector registers: the sums of `wire::checksum`, about as fast as the
//! bytes can be read, alone or while they are copied.
//!
//! A *partial sum* here is a `u32` in the machine's own byte order, not yet folded: that is what
//! adds up cheaply (RFC 1071 section 2 B and C). [`fold`] makes of it the number that
//! `wire::checksum::sum` returns for the same bytes, [`append`] continues behind any number of
//! bytes, odd ones too. Bytes that are all zero sum to zero, all others never do.
//!
//! Three ways to the same sum: AVX-512 with VNNI, AVX2, and portable code that any compiler turns
//! into what the target guarantees. The processor is asked once. Left out: NEON by hand, which the
//! portable loop is close to, and stores past the caches, which only pay for copies that no cache
//! holds.
//!
//! How the vectors add: there is an instruction that multiplies 16-bit words and adds pairs of
//! products into 32 bits, but only for signed words. Flipping the top bit makes a word w the signed
//! number w - 2^15, so that multiplying by one adds up w - 2^15 exactly, and what was taken from
//! each word is given back at the end.
//!
//! Reading: RFC 1071 (sums, byte order, continuing); Intel 64 and IA-32 Architectures Software
//! Developer's Manual volume 2 (VPMADDWD, VPDPWSSD); Linux lib/checksum.c and
//! arch/x86/lib/csum-partial_64.c (the kernel's own, in scalar registers).

use std::fmt;
use std::sync::OnceLock;

/// Partial sum of `bytes`; an odd last byte is padded with zero (RFC 1071 section 4.1).
pub fn sum(bytes: &[u8]) -> u32 {
    Level::best().sum(bytes)
}

/// The checksum of `bytes`: what goes into a header whose checksum field was zero.
pub fn checksum(bytes: &[u8]) -> u16 {
    !fold(sum(bytes))
}

/// Copies `src` to `dst` and returns the partial sum of what was copied.
///
/// # Panics
///
/// When the two differ in length, as `copy_from_slice` does.
pub fn copy_and_sum(dst: &mut [u8], src: &[u8]) -> u32 {
    Level::best().copy_and_sum(dst, src)
}

/// The partial sum of `bytes_before` bytes, whose sum is `sum`, and of those after them, whose sum
/// is `next`. Behind an odd number of bytes the two halves of each word change places, and so do
/// those of its sum (RFC 1071 section 2 B).
pub const fn append(sum: u32, bytes_before: usize, next: u32) -> u32 {
    let next = if bytes_before % 2 == 1 {
        next.rotate_left(8)
    } else {
        next
    };
    narrow(sum as u64 + next as u64)
}

/// Folds a partial sum to the 16-bit number that `wire::checksum` calls a sum.
#[allow(
    clippy::cast_possible_truncation,
    reason = "two folds leave at most 2^16 - 1"
)]
pub const fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    u16::from_be(((once & 0xffff) + (once >> 16)) as u16)
}

/// A way to sum that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(Kind);

/// Private, so that a [`Level`] in hand is the proof that the processor has the instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// The fastest one here.
    pub fn best() -> Self {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(|| Self::available().last().unwrap_or(Self(Kind::Portable)))
    }

    /// All that there are here, the slowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        [
            Some(Kind::Portable),
            #[cfg(target_arch = "x86_64")]
            is_x86_feature_detected!("avx2").then_some(Kind::Avx2),
            #[cfg(target_arch = "x86_64")]
            (is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vnni"))
                .then_some(Kind::Avx512),
        ]
        .into_iter()
        .flatten()
        .map(Self)
    }

    /// As [`sum()`], in this way.
    pub fn sum(self, bytes: &[u8]) -> u32 {
        narrow(match self.0 {
            Kind::Portable => portable(bytes),
            // SAFETY: a `Level` of this kind is made only where the processor has the instructions
            // (`available`), and nothing is written without COPY.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => unsafe { x86::avx2::<false>(bytes, std::ptr::null_mut()) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { x86::avx512::<false>(bytes, std::ptr::null_mut()) },
        })
    }

    /// As [`copy_and_sum()`], in this way.
    ///
    /// # Panics
    ///
    /// When `dst` and `src` differ in length.
    pub fn copy_and_sum(self, dst: &mut [u8], src: &[u8]) -> u32 {
        assert_eq!(dst.len(), src.len(), "the two must be of one length");
        narrow(match self.0 {
            Kind::Portable => {
                dst.copy_from_slice(src);
                portable(dst)
            }
            // SAFETY: a `Level` of this kind is made only where the processor has the instructions
            // (`available`); `dst` is ours alone and as long as `src`.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => unsafe { x86::avx2::<true>(src, dst.as_mut_ptr()) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { x86::avx512::<true>(src, dst.as_mut_ptr()) },
        })
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "avx512",
        })
    }
}

/// Sum without vector instructions of our own. Four bytes a step into 64 bits need no carries, so
/// that a compiler may add several at once: with SSE2 this is more than twice as fast as 64 bits a
/// step with end-around carry. u64 holds 2^32 steps.
fn portable(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<4>();
    let mut padded = [0; 4];
    padded[..tail.len()].copy_from_slice(tail);
    let whole: u64 = words
        .iter()
        .map(|&w| u64::from(u32::from_ne_bytes(w)))
        .sum();
    whole + u64::from(u32::from_ne_bytes(padded))
}

/// Adds the carries of 64 bits back in until 32 are left.
#[allow(
    clippy::cast_possible_truncation,
    reason = "two folds leave at most 2^32 - 1"
)]
const fn narrow(total: u64) -> u32 {
    let once = (total & 0xffff_ffff) + (total >> 32);
    ((once & 0xffff_ffff) + (once >> 32)) as u32
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::*;

    use super::portable;

    /// What flipping the top bit takes from each 16-bit word.
    const BIAS: i64 = 1 << 15;

    /// Bytes after which the sums are emptied. Each word adds at most 2^15 in size, so that those
    /// of a block and of its padding fit into one lane of 32 bits, and lanes add up without
    /// widening.
    const BLOCK_BYTES: usize = 1 << 16;
    const _: () = assert!((BLOCK_BYTES as i64 + 64) / 2 * BIAS < 1 << 31);
    /// Only the last block ends within a step.
    const _: () = assert!(BLOCK_BYTES.is_multiple_of(256));

    /// Sum of `src`, 256 bytes a step; with COPY it is also written to `to`.
    ///
    /// # Safety
    ///
    /// With COPY `to` must be valid for writes of `src.len()` bytes and must not overlap `src`.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    pub(super) unsafe fn avx512<const COPY: bool>(src: &[u8], to: *mut u8) -> u64 {
        let zero = _mm512_setzero_si512();
        let flip = _mm512_set1_epi16(i16::MIN);
        // Kept in registers: otherwise each is loaded twice, which 1500 bytes notice.
        let [flip, one, ..] = at_once([flip, _mm512_set1_epi16(1), zero, zero]);
        let mut total = 0;
        let mut at = 0;
        for block in src.chunks(BLOCK_BYTES) {
            let (steps, rest) = block.as_chunks::<256>();
            if COPY {
                // Now, while no sum is in a register that the call would have to save.
                // SAFETY: `at` counts the bytes before this block, all copied; the caller vouches
                // for room for all of `src`, and that the two do not overlap.
                unsafe {
                    let to = to.add(at + steps.as_flattened().len());
                    to.copy_from_nonoverlapping(rest.as_ptr(), rest.len());
                }
            }
            let mut sums = [zero; 4];
            for step in steps {
                let from: *const __m512i = step.as_ptr().cast();
                // SAFETY: a step holds four vectors; these loads ask for no alignment.
                let mut x = unsafe {
                    [
                        _mm512_loadu_si512(from),
                        _mm512_loadu_si512(from.add(1)),
                        _mm512_loadu_si512(from.add(2)),
                        _mm512_loadu_si512(from.add(3)),
                    ]
                };
                if COPY {
                    // SAFETY: as above, `at` counting the steps of this block too.
                    unsafe {
                        let to: *mut __m512i = to.add(at).cast();
                        _mm512_storeu_si512(to, x[0]);
                        _mm512_storeu_si512(to.add(1), x[1]);
                        _mm512_storeu_si512(to.add(2), x[2]);
                        _mm512_storeu_si512(to.add(3), x[3]);
                    }
                    at += step.len();
                }
                for x in &mut x {
                    *x = _mm512_xor_si512(*x, flip);
                }
                for (sum, x) in sums.iter_mut().zip(at_once(x)) {
                    *sum = _mm512_dpwssd_epi32(*sum, x, one);
                }
            }
            let (parts, tail) = rest.as_chunks::<64>();
            for (part, sum) in parts.iter().zip(&mut sums) {
                // SAFETY: a part holds one vector.
                let x = unsafe { _mm512_loadu_si512(part.as_ptr().cast()) };
                *sum = _mm512_dpwssd_epi32(*sum, _mm512_xor_si512(x, flip), one);
            }
            let mask = (1 << tail.len()) - 1;
            // SAFETY: the mask admits the bytes of the tail and no other.
            let x = unsafe { _mm512_maskz_loadu_epi8(mask, tail.as_ptr().cast()) };
            sums[3] = _mm512_dpwssd_epi32(sums[3], _mm512_xor_si512(x, flip), one);
            let all = _mm512_add_epi32(
                _mm512_add_epi32(sums[0], sums[1]),
                _mm512_add_epi32(sums[2], sums[3]),
            );
            let half = _mm512_castsi512_si256(all);
            let half = _mm256_add_epi32(half, _mm512_extracti64x4_epi64(all, 1));
            let words = (block.len() / 64 + 1) * 32;
            total += unbiased(half, words);
        }
        total
    }

    /// The four as they are, all there before any of them is used; no instruction.
    ///
    /// Compilers like to mix flips and sums. On Zen 4 (in assembly, L1 cache) 64 bytes then take
    /// 1.3 cycles, and 1.06 with four flips before four sums, as long as reading them takes. Likely
    /// cause: instructions are dealt out to two schedulers in turn, and flip by sum leaves all the
    /// multiplications to one of them.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn at_once(x: [__m512i; 4]) -> [__m512i; 4] {
        let [mut a, mut b, mut c, mut d] = x;
        // SAFETY: the text is a comment.
        unsafe {
            asm!(
                "/* {a} {b} {c} {d} */",
                a = inout(zmm_reg) a,
                b = inout(zmm_reg) b,
                c = inout(zmm_reg) c,
                d = inout(zmm_reg) d,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        [a, b, c, d]
    }

    /// As [`avx512()`], 128 bytes a step and the last up to 31 bytes without vectors.
    ///
    /// # Safety
    ///
    /// With COPY `to` must be valid for writes of `src.len()` bytes and must not overlap `src`.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn avx2<const COPY: bool>(src: &[u8], to: *mut u8) -> u64 {
        let flip = _mm256_set1_epi16(i16::MIN);
        let one = _mm256_set1_epi16(1);
        let mut total = 0;
        let mut at = 0;
        for block in src.chunks(BLOCK_BYTES) {
            let (steps, rest) = block.as_chunks::<128>();
            if COPY {
                // Now, while no sum is in a register that the call would have to save.
                // SAFETY: `at` counts the bytes before this block, all copied; the caller vouches
                // for room for all of `src`, and that the two do not overlap.
                unsafe {
                    let to = to.add(at + steps.as_flattened().len());
                    to.copy_from_nonoverlapping(rest.as_ptr(), rest.len());
                }
            }
            let mut sums = [_mm256_setzero_si256(); 4];
            for step in steps {
                let from: *const __m256i = step.as_ptr().cast();
                // SAFETY: a step holds four vectors; these loads ask for no alignment.
                let mut x = unsafe {
                    [
                        _mm256_loadu_si256(from),
                        _mm256_loadu_si256(from.add(1)),
                        _mm256_loadu_si256(from.add(2)),
                        _mm256_loadu_si256(from.add(3)),
                    ]
                };
                if COPY {
                    // SAFETY: as above, `at` counting the steps of this block too.
                    unsafe {
                        let to: *mut __m256i = to.add(at).cast();
                        _mm256_storeu_si256(to, x[0]);
                        _mm256_storeu_si256(to.add(1), x[1]);
                        _mm256_storeu_si256(to.add(2), x[2]);
                        _mm256_storeu_si256(to.add(3), x[3]);
                    }
                    at += step.len();
                }
                for x in &mut x {
                    *x = _mm256_xor_si256(*x, flip);
                }
                for (sum, x) in sums.iter_mut().zip(x) {
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(x, one));
                }
            }
            let (parts, tail) = rest.as_chunks::<32>();
            for (part, sum) in parts.iter().zip(&mut sums) {
                // SAFETY: a part holds one vector.
                let x = unsafe { _mm256_loadu_si256(part.as_ptr().cast()) };
                let pairs = _mm256_madd_epi16(_mm256_xor_si256(x, flip), one);
                *sum = _mm256_add_epi32(*sum, pairs);
            }
            let all = _mm256_add_epi32(
                _mm256_add_epi32(sums[0], sums[1]),
                _mm256_add_epi32(sums[2], sums[3]),
            );
            total += unbiased(all, block.len() / 32 * 16) + portable(tail);
        }
        total
    }

    /// The sum of `words` words, from the eight lanes that hold their flipped ones.
    #[inline]
    #[target_feature(enable = "avx2")]
    #[allow(
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        reason = "a block's words are few, and with the bias given back their sum is not negative"
    )]
    fn unbiased(lanes: __m256i, words: usize) -> u64 {
        let four = _mm_add_epi32(
            _mm256_castsi256_si128(lanes),
            _mm256_extracti128_si256(lanes, 1),
        );
        let two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0b01_00_11_10));
        let one = _mm_add_epi32(two, _mm_shuffle_epi32(two, 0b10_11_00_01));
        (i64::from(_mm_cvtsi128_si32(one)) + words as i64 * BIAS) as u64
    }
}
