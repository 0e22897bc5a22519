//! The same ping-pong as the kernel stamps it: from the request's departure to the answer's arrival.
//!
//! Stamps cost a system call a round trip and, while they are on, a clock reading a packet, so they are
//! turned on after the round trips that are measured, on the same connection, for a fifth of their time
//! at most. Both times are taken of each of these: what ours has more is the way through this host's
//! kernel, twice, and the wake-up; beside the round trips before them ours says whether stamps disturb.
//!
//! Left out: messages of several segments, of which only the last byte's departure is stamped; the
//! network card's own stamps; the far end, whose turn-around is in both.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use sys::clock;
use sys::stamp::StampedStream;
use units::{Duration, Histogram};

use super::{FILL, Line, MessageSpec, size};

/// Round trips of one message each, by two clocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// Between the kernel's stamps.
    pub kernel: Histogram,
    /// The same round trips as this program takes them.
    pub ours: Histogram,
}

impl Stamped {
    /// Counts what another one has counted.
    pub fn merge(&mut self, other: &Self) {
        self.kernel.merge(&other.kernel);
        self.ours.merge(&other.ours);
    }
}

impl Line {
    /// Takes as many round trips as were asked for, or as the time allows; `None` where the kernel stamped
    /// none of at least one. What breaks the connection here shows when it is closed.
    pub(super) fn stamped(&self, spec: &MessageSpec, done: &AtomicBool) -> Option<Stamped> {
        let segment = sys::tcp::segment_size(self.socket.as_fd()).ok()?;
        if spec.stamped == 0 || spec.bytes > segment {
            return None;
        }
        let stream = StampedStream::new(&self.socket).ok()?;
        let mut taken = Stamped {
            kernel: Histogram::new(),
            ours: Histogram::new(),
        };
        let (mut message, mut sent) = (vec![FILL; size(spec.bytes)], 0_u32);
        let time = Duration::from_ns(spec.duration_ns / TIME_PART);
        let mut end = clock::monotonic() + FIRST_WAIT.max(time);
        while taken.kernel.count() < u64::from(spec.stamped) {
            sent = sent.wrapping_add(spec.bytes);
            match self.round_trip(&stream, &mut message, sent.wrapping_sub(1)) {
                Ok(Some((kernel, ours))) => {
                    if taken.kernel.count() == 0 {
                        end = clock::monotonic() + time;
                    }
                    taken.kernel.record(kernel);
                    taken.ours.record(ours);
                }
                Ok(None) => {}
                Err(_) => break,
            }
            if done.load(Ordering::Relaxed) || clock::monotonic() >= end {
                break;
            }
        }
        (taken.kernel.count() > 0).then_some(taken)
    }

    /// One round trip by the kernel's stamps and by our clock; `None` without both stamps. `last` is
    /// the number of the message's last byte.
    fn round_trip(
        &self,
        stream: &StampedStream<'_>,
        message: &mut [u8],
        last: u32,
    ) -> io::Result<Option<(Duration, Duration)>> {
        let begun = clock::monotonic();
        self.write_all(message)?;
        let (mut have, mut arrived) = (0, None);
        while have < message.len() {
            match stream.receive(&mut message[have..]) {
                Ok((0, _)) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok((n, stamp)) => (have, arrived) = (have + n, stamp),
                Err(error) if self.again(&error) => std::hint::spin_loop(),
                Err(error) => return Err(error),
            }
        }
        let ours = clock::monotonic().saturating_since(begun);
        // The first departure counts: one that is lost and sent again departs twice.
        let mut departed = None;
        while let Some(departure) = stream.departure()? {
            if departure.id == last {
                departed.get_or_insert(departure.stamp_realtime_ns);
            }
        }
        // Set back between the two, the clock says nothing.
        let between = arrived.zip(departed).and_then(|(a, d)| a.checked_sub(d));
        Ok(between.map(|ns| (Duration::from_ns(ns), ours)))
    }
}

/// Of the time that was asked for, what this may take beyond it.
const TIME_PART: u64 = 5;
/// Where nobody else has arrivals stamped, the kernel begins to some time after it was told, from a work
/// queue (net/core/dev.c, `net_enable_timestamp`): some tens of milliseconds were seen.
const FIRST_WAIT: Duration = Duration::from_ms(500);
