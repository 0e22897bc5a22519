//! Round trips beside a transfer: pings on a control connection of their own, so that what they meet
//! is the path's queue and not the transfer's send buffer.
//!
//! It is TCP: a ping that is lost comes late, by a retransmission, instead of never. That is what a
//! user of the path would meet too. Takes one of the far end's sessions while it runs.

use std::net::SocketAddr;
use std::thread::JoinHandle;

use sys::clock;
use sys::threads;
use units::{Duration, Instant};

use crate::approach::{Approach, Dscp};
use crate::client::{lost, open};
use crate::control::{Control, Trouble};
use crate::message::Message;
use crate::transfer::{in_time, unexpected};
use crate::wait::TICK;
use crate::{Client, MeasureError, Stop};

/// Pings under way.
#[derive(Debug)]
pub struct Pinger {
    stop: Stop,
    thread: JoinHandle<Result<Vec<RoundTrip>, MeasureError>>,
}

/// One answered ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// When it was sent, CLOCK_MONOTONIC.
    pub sent: Instant,
    /// How long the answer took, as the program sees it.
    pub took: Duration,
}

impl Pinger {
    /// Connects as `client` did and pings every `interval`, more rarely where a round trip takes four times as long; at
    /// most a million times.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Local`] when there is no thread to be had.
    pub fn start(
        client: &Client,
        interval: Duration,
        timeout: Duration,
    ) -> Result<Self, MeasureError> {
        let stop = Stop::new();
        let (addr, approach) = (client.addr(), client.approach().clone());
        let spawned = threads::spawn("gp-pinger", {
            let stop = stop.clone();
            move || ping(&approach, addr, interval, timeout, &stop)
        });
        let thread = spawned.map_err(|source| MeasureError::Local {
            what: "start the pings",
            source,
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends the pings: those that were answered, in order.
    ///
    /// # Errors
    ///
    /// What ended them early: no session left, a far end that vanished.
    pub fn finish(self) -> Result<Vec<RoundTrip>, MeasureError> {
        self.stop.stop();
        let gone = || MeasureError::FarFailed("the thread that pings panicked".to_owned());
        self.thread.join().map_err(|_| gone())?
    }
}

fn ping(
    approach: &Approach,
    addr: SocketAddr,
    interval: Duration,
    timeout: Duration,
    stop: &Stop,
) -> Result<Vec<RoundTrip>, MeasureError> {
    let (control, _) = open(approach, addr, timeout, stop)?;
    let mut pings = Pings {
        control,
        dscp: approach.dscp.map(Dscp::number),
        sent: Vec::new(),
        answered: Vec::new(),
        timeout,
    };
    match pings.run(interval, stop) {
        Ok(()) | Err(Trouble::Stopped) => Ok(pings.answered),
        Err(trouble) => Err(lost(trouble, "while it was pinged")),
    }
}

/// Pings on their schedule, but few on their way at once: more than a connection's first window (ten
/// segments, RFC 6928) would wait in this host and be counted as the path's.
struct Pings {
    control: Control,
    dscp: Option<u8>,
    sent: Vec<Instant>,
    answered: Vec<RoundTrip>,
    timeout: Duration,
}

impl Pings {
    fn run(&mut self, interval: Duration, stop: &Stop) -> Result<(), Trouble> {
        let mut due = clock::monotonic();
        while !stop.is_stopped() && self.sent.len() < PINGS_MAX {
            let now = clock::monotonic();
            if now >= due && self.open() < OPEN_MAX {
                let n = u32::try_from(self.sent.len()).unwrap_or(u32::MAX);
                let deadline = in_time(self.timeout);
                let asked = Message::Ping { n, dscp: self.dscp };
                self.control.send(&asked, deadline, stop)?;
                self.sent.push(now);
                // Evenly over a long round trip, and one that is late makes no burst of the next.
                let last = self.answered.last().map_or(Duration::ZERO, |r| r.took);
                let share = Duration::from_ns(last.as_ns() / OPEN_MAX as u64);
                due = now.max(due + interval.max(share));
            }
            let wait = due.saturating_since(clock::monotonic());
            self.receive(wait.min(TICK).max(WAIT_MIN))?;
        }
        // The last answers are on their way: leaving them out would leave out the slow ones.
        let end = in_time(DRAIN_MAX);
        while self.open() > 0 && clock::monotonic() < end {
            self.receive(TICK)?;
        }
        Ok(())
    }

    /// Pings without an answer.
    fn open(&self) -> usize {
        self.sent.len() - self.answered.len()
    }

    /// Takes an answer that is there or comes within `wait`. They come in order.
    fn receive(&mut self, wait: Duration) -> Result<(), Trouble> {
        let oldest = self.sent.get(self.answered.len()).copied();
        match (self.control.try_receive(wait)?, oldest) {
            (None, Some(sent)) if clock::monotonic() >= sent + self.timeout => Err(Trouble::Silent),
            (None, _) => Ok(()),
            (Some(Message::Pong { n }), Some(sent))
                if usize::try_from(n) == Ok(self.answered.len()) =>
            {
                let took = clock::monotonic().saturating_since(sent);
                self.answered.push(RoundTrip { sent, took });
                Ok(())
            }
            (Some(other), _) => Err(unexpected(&other)),
        }
    }
}

const PINGS_MAX: usize = 1_000_000;
/// Well below the first window, which a loss may halve.
const OPEN_MAX: usize = 4;
/// Short of nothing, so that a full window of pings does not spin.
const WAIT_MIN: Duration = Duration::from_us(100);
/// A queue of seconds is drained by the transfer's own end before this begins.
const DRAIN_MAX: Duration = Duration::from_s(1);
