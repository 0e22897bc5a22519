//! How large a window a connection offers first where so many stand that all could fill the kernel's memory for TCP, and
//! when it may offer more.
//!
//! The kernel lets a receive buffer grow with what is read from it in a round trip, and measures that with the queue in it:
//! whoever is read from more slowly than he sends comes to `net.ipv4.tcp_rmem`'s last, 32 MB for a path of microseconds, full
//! of what waits for its turn. Some dozens of those are what all of TCP may take, from where on what arrives is dropped
//! (`net.ipv4.tcp_mem`), and a window that was offered cannot be taken back. So each begins with a small one, and gets twice
//! as much as long as what it brings in its shortest round trip is three quarters of that: then the window holds it, and
//! nothing else. A buffer is asked for, and the window has from one to nearly two times as much.
//!
//! Pure: what was carried comes in, a window goes out.

use units::{Bytes, Duration};

/// A window that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    size: Bytes,
    carried: u64,
}

/// What a machine sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From where on the kernel drops what arrives (`net.ipv4.tcp_mem`).
    pub pressure: Bytes,
    /// How far it tunes a receive buffer (`net.ipv4.tcp_rmem`).
    pub tuned: Bytes,
    /// The largest that may be asked for (`net.core.rmem_max`, where that bounds this process).
    pub settable: Bytes,
}

impl Limits {
    /// From where on a window is the kernel's to tune. It goes on from twice as much: what was read in a round trip so far is
    /// no reason to enlarge (`tcp_rcv_space_adjust`, net/ipv4/tcp_input.c).
    fn enough(&self) -> Bytes {
        ENOUGH.min(Bytes::new(self.settable.as_u64() / 2))
    }
}

/// What becomes of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is as large as it needs to be.
    Stays,
    /// It is to be so large.
    Grows(Bytes),
    /// The kernel may tune it, from twice the size on.
    Free,
}

impl Window {
    /// What each of `live` connections offers first; `None` where the kernel may tune them all.
    pub fn first(live: u64, limits: &Limits) -> Option<Self> {
        let pressure = limits.pressure.as_u64();
        let could = live.saturating_mul(limits.tuned.as_u64());
        (could > pressure).then(|| Self {
            size: Bytes::new(pressure / PART / live.max(1))
                .clamp(LEAST, FIRST)
                .min(limits.enough()),
            carried: 0,
        })
    }

    /// The buffer to ask for.
    pub const fn size(&self) -> Bytes {
        self.size
    }

    /// Whether it carried so much since the last look that its round trip is worth a question.
    pub fn is_worth_a_look(&mut self, carried: u64) -> bool {
        let more = carried.saturating_sub(self.carried);
        let is_worth = more >= self.size.as_u64() / 8;
        if !is_worth {
            self.carried = carried;
        }
        is_worth
    }

    /// So much is carried by now, `time` after the last look.
    pub fn look(
        &mut self,
        carried: u64,
        time: Duration,
        round_trip: Duration,
        limits: &Limits,
    ) -> Next {
        let more = carried.saturating_sub(self.carried);
        self.carried = carried;
        let size = self.size.as_u64();
        // In a round trip of `time` all of it.
        let brought =
            u128::from(more) * u128::from(round_trip.as_ns()) / u128::from(time.as_ns().max(1));
        if brought < u128::from(size / 4 * 3) {
            return Next::Stays;
        }
        if self.size >= limits.enough() {
            return Next::Free;
        }
        self.size = Bytes::new(size * 2);
        Next::Grows(self.size)
    }
}

/// All first windows together are this part of what makes the kernel drop: it counts a buffer's memory, twice the bytes in it
/// or more, and both halves have one.
const PART: u64 = 8;
/// As TCP had before it could scale windows.
const LEAST: Bytes = Bytes::new(64 << 10);
/// Some ten times what a connection begins with (RFC 6928), so that it holds nobody before a round trip or four.
const FIRST: Bytes = Bytes::new(256 << 10);
/// Who needs as much has a path to fill.
const ENOUGH: Bytes = Bytes::new(4 << 20);

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        pressure: Bytes::new(1 << 30),
        tuned: Bytes::new(32 << 20),
        settable: Bytes::new(u64::MAX),
    };

    #[test]
    fn few_are_the_kernels_and_many_begin_with_a_share() {
        assert_eq!(Window::first(32, &LIMITS), None);
        for (live, size) in [
            (33, FIRST),
            (512, FIRST),
            (1024, Bytes::new(128 << 10)),
            (1 << 30, LEAST),
        ] {
            let window = Window::first(live, &LIMITS).unwrap();
            assert_eq!(window.size(), size, "{live}");
        }
        // With a distribution's own limits.
        let tuned = Bytes::new(6 << 20);
        assert_eq!(Window::first(170, &Limits { tuned, ..LIMITS }), None);
        // Half of what may be set, so that it can be doubled once more.
        let settable = Bytes::new(212_992);
        let narrow = Limits { settable, ..LIMITS };
        let window = Window::first(33, &narrow).unwrap();
        assert_eq!(window.size(), Bytes::new(106_496));
    }

    #[test]
    fn a_window_grows_while_it_holds_its_sender_and_no_further() {
        let (tick, path) = (Duration::from_ms(100), Duration::from_ms(20));
        let mut window = Window::first(1000, &LIMITS).unwrap();
        let first = window.size().as_u64();
        let mut carried = 0;
        // A window in each round trip.
        for step in 1..=4 {
            carried += window.size().as_u64() * 5;
            let next = window.look(carried, tick, path, &LIMITS);
            assert_eq!(next, Next::Grows(Bytes::new(first << step)));
        }
        // Somewhat less is what there is to send.
        carried += window.size().as_u64() * 15 / 4 - 5;
        assert_eq!(window.look(carried, tick, path, &LIMITS), Next::Stays);
        // In no time, however much it carries: it waits for its turn.
        carried += 100 << 20;
        assert_eq!(
            window.look(carried, tick, Duration::from_us(50), &LIMITS),
            Next::Stays
        );
    }

    #[test]
    fn who_has_a_path_to_fill_is_the_kernels_at_last() {
        let (tick, path) = (Duration::from_ms(100), Duration::from_ms(300));
        let mut window = Window::first(1000, &LIMITS).unwrap();
        let mut carried = 0;
        let steps = (0..20).map_while(|_| {
            carried += window.size().as_u64() / 4 + 1;
            assert!(window.is_worth_a_look(carried));
            match window.look(carried, tick, path, &LIMITS) {
                Next::Grows(size) => Some(size),
                next => {
                    assert_eq!(next, Next::Free);
                    None
                }
            }
        });
        let last = steps.last().unwrap();
        assert!(
            last >= ENOUGH && last.as_u64() < 2 * ENOUGH.as_u64(),
            "{last}"
        );
    }

    #[test]
    fn who_is_idle_is_not_asked_about() {
        let mut window = Window::first(1000, &LIMITS).unwrap();
        let part = window.size().as_u64() / 8;
        assert!(!window.is_worth_a_look(part - 1));
        assert!(!window.is_worth_a_look(part - 1));
        assert!(window.is_worth_a_look(2 * part - 1));
    }
}
