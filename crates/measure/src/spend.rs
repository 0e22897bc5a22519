//! What a slower machine's kernel would spend on each write, spent by the clock.
//!
//! A sender that is to be like another machine waits before each write until that machine would be
//! done with the call: so much for the call, for each full packet that its bytes make, for each byte,
//! for each page that they lie in. What the real write takes on this machine, times without a CPU
//! included, and what a wait came too late, is taken off the next wait, so that the declared cost is what
//! a call costs and not what is added to it. Of a write that sleeps, for a full socket buffer, only its
//! CPU time is taken off.
//!
//! Left out: costs of receiving, of acknowledgements and interrupts, and caches. Bytes begin at the
//! start of a page in every write, as those of a program that writes one aligned buffer again and again.

use std::sync::atomic::{AtomicBool, Ordering};

use sys::clock;
use units::{Bytes, Duration, Instant, Rate};

use crate::wait::TICK;

/// What each write of a sender costs the machine that it stands for. The default costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCosts {
    /// Each call.
    pub call: Duration,
    /// Each full packet of the stream, at the segment size that the connection has.
    pub packet: Duration,
    /// Copying bytes; none: it takes no time.
    pub copy: Option<Rate>,
    /// Each page that a write's bytes lie in, wholly or in part.
    pub page: Duration,
    /// Size of a page; no pages where it is 0.
    pub page_size: Bytes,
}

impl WriteCosts {
    /// True where nothing costs anything.
    pub fn is_none(&self) -> bool {
        let pages = self.page > Duration::ZERO && self.page_size.as_u64() > 0;
        self.call == Duration::ZERO
            && self.packet == Duration::ZERO
            && self.copy.is_none()
            && !pages
    }

    /// Time of one write of `bytes` that completes `packets` packets.
    pub fn of_write(&self, bytes: u64, packets: u64) -> Duration {
        let copy = self.copy.map_or(Duration::ZERO, |rate| {
            let rate = u128::from(rate.as_bits_per_second().max(1));
            let ns = u128::from(bytes) * 8_000_000_000 / rate;
            Duration::from_ns(u64::try_from(ns).unwrap_or(u64::MAX))
        });
        let pages = match self.page_size.as_u64() {
            0 => 0,
            size => bytes.div_ceil(size),
        };
        let packets = self.packet.saturating_mul(packets);
        self.call + packets + copy + self.page.saturating_mul(pages)
    }
}

/// What is owed, write by write. Reads no clock.
#[derive(Debug)]
struct Ledger {
    costs: WriteCosts,
    segment_bytes: u64,
    /// Bytes that do not fill a packet yet.
    begun: u64,
    /// Time that was spent beyond what was owed.
    credit: Duration,
}

impl Ledger {
    /// How long the caller of a write of `bytes` has to wait.
    fn owed(&mut self, bytes: u64) -> Duration {
        let all = self.begun.saturating_add(bytes);
        self.begun = all % self.segment_bytes;
        let cost = self.costs.of_write(bytes, all / self.segment_bytes);
        let paid = cost.min(self.credit);
        self.credit -= paid;
        cost - paid
    }

    /// Time spent that was not owed; no more of it than [`CREDIT_MAX`] is remembered.
    fn spent(&mut self, time: Duration) {
        self.credit = (self.credit + time).min(CREDIT_MAX);
    }
}

/// Spends the costs of one stream's writes.
#[derive(Debug)]
pub(crate) struct Spender {
    ledger: Ledger,
    /// When the last write returned.
    free: Instant,
    /// As the write began: the time, the thread's CPU time, and how often it had waited.
    began: (Instant, Duration, u64),
}

impl Spender {
    /// For a stream that begins now, with segments of that size. The calling thread is preferred, as the
    /// lab's is: what it waits for a CPU beyond its time the machine that it stands for would not wait.
    pub(crate) fn new(costs: WriteCosts, segment_bytes: u32) -> Self {
        sys::sched::prefer_this_thread();
        Self {
            ledger: Ledger {
                costs,
                segment_bytes: u64::from(segment_bytes.max(1)),
                begun: 0,
                credit: Duration::ZERO,
            },
            free: clock::monotonic(),
            began: (Instant::ZERO, Duration::ZERO, 0),
        }
    }

    /// Waits until a write of `bytes` may be made; false when `done` was raised meanwhile. A wait that is
    /// shorter than waking takes too long, and the next writes go without: never too early, and right
    /// in the mean over some tens of microseconds. Keeping the CPU instead would be right for each
    /// write while nobody else wants it; where somebody does, the scheduler takes it away for
    /// longer than is made up for.
    pub(crate) fn before(&mut self, bytes: usize, done: &AtomicBool) -> bool {
        let due = self.free + self.ledger.owed(bytes as u64);
        loop {
            let now = clock::monotonic();
            let left = due.saturating_since(now);
            if left == Duration::ZERO {
                self.ledger.spent(now.saturating_since(due));
                break;
            }
            if done.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::sleep(left.min(TICK).to_std());
        }
        self.began = (
            clock::monotonic(),
            clock::thread_cpu(),
            clock::thread_waits(),
        );
        true
    }

    /// The write returned this.
    pub(crate) fn after<T>(&mut self, written: T) -> T {
        let (at, cpu, waits) = self.began;
        self.free = clock::monotonic();
        self.ledger.spent(match clock::thread_waits() == waits {
            true => self.free.saturating_since(at),
            false => clock::thread_cpu() - cpu,
        });
        written
    }
}

/// This machine's scheduler takes the CPU away for some slices of a few milliseconds, which the machine that
/// is stood for would not have lost. What is longer is not made up for.
const CREDIT_MAX: Duration = Duration::from_ms(10);

#[cfg(test)]
mod tests {
    use super::*;

    const US: fn(u64) -> Duration = Duration::from_us;

    #[test]
    fn a_write_costs_its_call_its_bytes_its_packets_and_its_pages() {
        let costs = WriteCosts {
            call: US(12),
            packet: US(3),
            copy: Some(Rate::from_bits_per_second(2_000_000_000)),
            page: US(49),
            page_size: Bytes::new(8192),
        };
        // 4 ns a byte.
        assert_eq!(costs.of_write(1000, 0), US(12 + 4 + 49));
        assert_eq!(costs.of_write(1000, 2), US(12 + 4 + 49 + 6));
        let full = costs.of_write(8192, 0);
        assert_eq!(full, Duration::from_ns(12_000 + 8192 * 4 + 49_000));
        // One byte more is one page more.
        assert_eq!(
            costs.of_write(8193, 0),
            full + US(49) + Duration::from_ns(4)
        );
    }

    #[test]
    fn nothing_costs_nothing_and_a_page_without_a_size_is_none() {
        assert!(WriteCosts::default().is_none());
        let page = WriteCosts {
            page: US(1),
            ..WriteCosts::default()
        };
        assert!(page.is_none());
        assert_eq!(page.of_write(u64::MAX, 0), Duration::ZERO);
        let page_size = Bytes::new(4096);
        assert!(!WriteCosts { page_size, ..page }.is_none());
        // The longest write at the slowest copy does not wrap.
        let copy = Some(Rate::from_bits_per_second(1));
        let slow = WriteCosts { copy, ..page };
        assert_eq!(slow.of_write(u64::MAX, 0).as_ns(), u64::MAX);
    }

    fn ledger(costs: WriteCosts) -> Ledger {
        Ledger {
            costs,
            segment_bytes: 1000,
            begun: 0,
            credit: Duration::ZERO,
        }
    }

    #[test]
    fn packets_are_those_of_the_stream_not_of_the_write() {
        let mut ledger = ledger(WriteCosts {
            packet: US(10),
            ..WriteCosts::default()
        });
        let owed: Vec<u64> = [999, 1, 400, 600, 2500]
            .map(|bytes| ledger.owed(bytes).as_ns() / 1000)
            .into();
        assert_eq!(owed, [0, 10, 0, 10, 20]);
        assert_eq!(ledger.begun, 500);
    }

    #[test]
    fn what_was_spent_already_is_taken_off_once_and_not_without_end() {
        let mut ledger = ledger(WriteCosts {
            call: US(100),
            ..WriteCosts::default()
        });
        ledger.spent(US(30));
        assert_eq!(ledger.owed(1), US(70));
        assert_eq!(ledger.owed(1), US(100));
        ledger.spent(US(250));
        let owed: Vec<u64> = (0..4).map(|_| ledger.owed(1).as_ns() / 1000).collect();
        assert_eq!(owed, [0, 0, 50, 100]);
        ledger.spent(Duration::from_s(9));
        assert_eq!(ledger.credit, CREDIT_MAX);
    }
}
