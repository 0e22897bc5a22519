//! How large a window each connection may offer while the kernel's memory for TCP runs short.
//!
//! The kernel lets each receive buffer grow as far as `net.ipv4.tcp_rmem` says, whatever all take together. Beyond the
//! second of `net.ipv4.tcp_mem` it empties receive queues and drops what arrives: hundreds of connections whose
//! receivers are slower than their senders come to stand on retransmissions and timeouts. What waits before a
//! receiver that is slow is of no use, so long before that the windows of those that wait are bounded to a share.
//!
//! Pure: what is taken comes in, a window goes out.

use units::Bytes;

/// Whether there is enough, with some inertia.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Enough,
    Short,
    VeryShort,
}

/// What one worker knows of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    state: State,
    window: Option<Bytes>,
}

impl Memory {
    /// Takes in what all TCP sockets of the machine take, of as much as they may, and how many directions of
    /// all workers wait for their receivers. True when there is enough again.
    pub fn look(&mut self, used: Bytes, pressure: Bytes, waiting: u64) -> bool {
        let (used, pressure) = (used.as_u64(), pressure.as_u64());
        let before = self.state;
        self.state = match before {
            _ if used >= pressure / 2 => State::VeryShort,
            // Who has just been let go would grow at once.
            State::Enough if used < pressure / 4 => State::Enough,
            _ if used < pressure / 8 => State::Enough,
            State::VeryShort if used >= pressure / 4 => State::VeryShort,
            _ => State::Short,
        };
        let part = match self.state {
            State::Enough => None,
            State::Short => Some(4),
            State::VeryShort => Some(16),
        };
        self.window = part.map(|part| {
            let share = pressure / part / waiting.max(1);
            Bytes::new(share).max(LEAST)
        });
        before != State::Enough && self.state == State::Enough
    }

    /// What a connection that waits for its receiver may offer at most; `None` while there is enough.
    pub const fn window(&self) -> Option<Bytes> {
        self.window
    }
}

/// A window as TCP had before it could scale them.
const LEAST: Bytes = Bytes::new(64 << 10);

#[cfg(test)]
mod tests {
    use super::*;

    const PRESSURE: Bytes = Bytes::new(1 << 30);

    fn mib(n: u64) -> Bytes {
        Bytes::new(n << 20)
    }

    #[test]
    fn while_there_is_enough_nobody_is_bounded_and_then_each_gets_a_share() {
        let mut memory = Memory::default();
        assert!(!memory.look(mib(255), PRESSURE, 800));
        assert_eq!(memory.window(), None);
        assert!(!memory.look(mib(256), PRESSURE, 128));
        assert_eq!(memory.window(), Some(mib(2)));
        // Few that wait keep what a long path needs.
        assert!(!memory.look(mib(256), PRESSURE, 2));
        assert_eq!(memory.window(), Some(mib(128)));
        assert!(!memory.look(mib(512), PRESSURE, 128));
        assert_eq!(memory.window(), Some(Bytes::new(512 << 10)));
        assert!(!memory.look(mib(512), PRESSURE, 1 << 30));
        assert_eq!(memory.window(), Some(LEAST));
        assert!(!memory.look(mib(2_000), PRESSURE, 0));
        assert_eq!(memory.window(), Some(mib(64)));
    }

    #[test]
    fn it_is_enough_again_only_when_half_of_what_was_too_much_has_gone() {
        let mut memory = Memory::default();
        memory.look(mib(600), PRESSURE, 64);
        for (used, window) in [
            (300, Some(mib(1))),
            (255, Some(mib(4))),
            (300, Some(mib(4))),
            (128, Some(mib(4))),
        ] {
            assert!(!memory.look(mib(used), PRESSURE, 64));
            assert_eq!(memory.window(), window, "{used}");
        }
        assert!(memory.look(mib(127), PRESSURE, 64));
        assert_eq!(memory.window(), None);
        assert!(!memory.look(mib(127), PRESSURE, 64), "it is said once");
    }
}
