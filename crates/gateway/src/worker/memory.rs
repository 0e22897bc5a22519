//! What a worker does while the kernel's memory for TCP runs short.

use std::os::fd::AsFd;

use sys::{host, tcp};
use units::Bytes;

use super::{Carrying, State, Worker};
use crate::relay::Side;

impl Worker {
    /// Looks how much there is. Where hardly anybody waits for a receiver, nobody asks.
    pub(super) fn look_at_memory(&mut self) {
        let pipes = self.counters.pipes.get();
        if pipes <= FEW && self.memory.window().is_none() {
            return;
        }
        let Some(now) = host::tcp_memory() else {
            return;
        };
        // A direction has a pipe while it waits; those in store wait for nobody.
        let waiting = pipes.saturating_sub(self.pipes.len() as u64);
        let waiting = waiting * u64::from(self.config.workers);
        if self.memory.look(now.used, now.pressure, waiting) {
            tracing::info!("the kernel has memory for TCP again");
            self.let_windows_go(None);
        }
    }

    /// Lets the windows go that are bounded to less than half of `share`, all where there is none.
    pub(super) fn let_windows_go(&mut self, share: Option<Bytes>) {
        for slot in &mut self.slots {
            if let State::Carrying(carrying) = &mut slot.state {
                carrying.let_window_go(share);
            }
        }
    }
}

impl Carrying {
    /// Bounds the windows of those who send faster than their receiver takes. What is in the receive buffer then waits
    /// for nothing but its turn, and a larger one would only hold more.
    pub(super) fn bound_windows(&mut self, window: Bytes) {
        for side in Side::BOTH {
            let waits = self.relay.is_blocked(side.other()) && self.relay.in_pipe(side) > 0;
            let index = side.index();
            if !waits || self.bounded[index].is_some_and(|b| b.as_u64() <= 2 * window.as_u64()) {
                continue;
            }
            let fd = self.sockets[index].as_fd();
            if self.bounded[index].is_some() {
                let _ = tcp::set_window_clamp(fd, window);
                self.bounded[index] = Some(window);
                continue;
            }
            // A buffer holds about half of its size; a smaller one may grow to its share.
            let large = tcp::receive_buffer(fd).is_ok_and(|b| b.as_u64() > 2 * window.as_u64());
            if large && tcp::hold_receive_buffer(fd, window).is_ok_and(|held| held) {
                self.bounded[index] = Some(window);
            }
        }
    }

    fn let_window_go(&mut self, share: Option<Bytes>) {
        for side in Side::BOTH {
            let index = side.index();
            let Some(bound) = self.bounded[index] else {
                continue;
            };
            if share.is_none_or(|share| share.as_u64() / 2 >= bound.as_u64()) {
                let _ = tcp::free_receive_buffer(self.sockets[index].as_fd());
                self.bounded[index] = None;
            }
        }
    }
}

/// Pipes of a worker up to which all that waits together is little.
const FEW: u64 = 16;
