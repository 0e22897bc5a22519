//! What a worker does for the kernel's memory for TCP to suffice, and while it runs short.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};

use sys::{host, tcp};
use units::{Bytes, Duration, Instant};

use super::{Carrying, State, Worker};
use crate::relay::Side;
use crate::window::{Limits, Next, Window};

/// Windows that begin small and grow.
#[derive(Debug)]
pub(super) struct Growing {
    /// Nothing where they are not known.
    limits: Option<Limits>,
    is_any: bool,
    looked: Instant,
}

impl Growing {
    pub(super) fn of_this_machine() -> Self {
        Self {
            limits: limits(),
            is_any: false,
            looked: Instant::ZERO,
        }
    }
}

fn limits() -> Option<Limits> {
    let [_, _, tuned] = host::tcp_mem_triplet("tcp_rmem")?;
    let socket = tcp::unconnected((Ipv4Addr::UNSPECIFIED, 0).into()).ok()?;
    let any = tcp::receive_buffer(socket.as_fd()).ok()?;
    let settable = match tcp::force_receive_buffer(socket.as_fd(), any) {
        Ok(()) => u64::MAX,
        Err(_) => host::read_sysctl("net.core.rmem_max").ok()?.parse().ok()?,
    };
    Some(Limits {
        pressure: host::tcp_memory()?.pressure,
        tuned: Bytes::new(tuned),
        settable: Bytes::new(settable),
    })
}

/// Sets a buffer, of which the kernel takes twice as much, and lets the window have all of that: from half to nearly all
/// it takes by itself, as segments are (`tcp_measure_rcv_mss`, net/ipv4/tcp_input.c).
fn offer(fd: BorrowedFd<'_>, size: Bytes) -> io::Result<()> {
    tcp::force_receive_buffer(fd, size).or_else(|_| tcp::set_receive_buffer(fd, size))?;
    tcp::set_window_clamp(fd, Bytes::new(2 * size.as_u64()))
}

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

/// The kernel's tuning goes on from twice of what was offered.
fn free(fd: BorrowedFd<'_>, window: Window) -> io::Result<()> {
    offer(fd, Bytes::new(2 * window.size().as_u64()))?;
    tcp::free_receive_buffer(fd)
}

impl Worker {
    /// Where all that stand could fill the kernel's memory, this one begins with a small window.
    pub(super) fn begin_small(&mut self, carrying: &mut Carrying) {
        let live = self.live();
        let limits = self.growing.limits.as_ref();
        let Some(first) = limits.and_then(|limits| Window::first(live, limits)) else {
            return;
        };
        for (window, socket) in carrying.windows.iter_mut().zip(&carrying.sockets) {
            let (fd, size) = (socket.as_fd(), first.size());
            // Whose buffer was set has what it is to have.
            if !tcp::hold_receive_buffer(fd, size).is_ok_and(|held| held) {
                continue;
            }
            if offer(fd, size).is_ok() {
                *window = Some(first);
                self.growing.is_any = true;
            } else {
                let _ = tcp::free_receive_buffer(fd);
            }
        }
    }

    /// Lets those grow that their windows hold; nobody while memory is short.
    pub(super) fn look_at_windows(&mut self, now: Instant) {
        let time = now.saturating_since(self.growing.looked);
        self.growing.looked = now;
        if !std::mem::take(&mut self.growing.is_any) {
            return;
        }
        let Some(limits) = self.growing.limits else {
            return;
        };
        let is_short = self.memory.window().is_some();
        for slot in &mut self.slots {
            if let State::Carrying(carrying) = &mut slot.state {
                self.growing.is_any |= carrying.look_at_windows(time, &limits, is_short);
            }
        }
    }

    /// The kernel tunes all windows from now on.
    pub(super) fn let_all_grow(&mut self) {
        for slot in &mut self.slots {
            if let State::Carrying(carrying) = &mut slot.state {
                for (window, socket) in carrying.windows.iter_mut().zip(&carrying.sockets) {
                    if let Some(window) = window.take() {
                        let _ = free(socket.as_fd(), window);
                    }
                }
            }
        }
    }
}

impl Carrying {
    /// Whether one of its windows is small still.
    fn look_at_windows(&mut self, time: Duration, limits: &Limits, is_short: bool) -> bool {
        for side in Side::BOTH {
            let carried = self.relay.carried(side);
            let Some(window) = &mut self.windows[side.index()] else {
                continue;
            };
            // Nor where the other side takes no more.
            let waits = self.relay.is_blocked(side.other()) && self.relay.in_pipe(side) > 0;
            if !window.is_worth_a_look(carried) || is_short || waits {
                continue;
            }
            let fd = self.sockets[side.index()].as_fd();
            // Before the first is measured it may be any.
            let us = tcp::tcp_info(fd).map_or(0, |info| info.min_rtt_us);
            let round_trip = (1..u64::from(u32::MAX))
                .contains(&us)
                .then(|| Duration::from_us(us));
            match window.look(carried, time, round_trip.unwrap_or(time), limits) {
                Next::Stays => {}
                Next::Grows(size) => {
                    let _ = offer(fd, size);
                }
                Next::Free => {
                    let _ = free(fd, *window);
                    self.windows[side.index()] = None;
                }
            }
        }
        self.windows.iter().any(Option::is_some)
    }

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
