//! Round trips beside a transfer: pings on a control connection of their own, so that what they meet
//! is the path's queue and not the transfer's send buffer.
//!
//! It is TCP: a ping that is lost comes late, by a retransmission, instead of never. That is what a
//! user of the path would meet too. Takes one of the far end's sessions while it runs.

use std::net::SocketAddr;
use std::thread::{Builder, JoinHandle};

use sys::clock;
use units::{Duration, Instant};

use crate::client::{lost, open};
use crate::control::{Control, Trouble};
use crate::message::Message;
use crate::transfer::{in_time, unexpected};
use crate::{MeasureError, Stop};

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
    /// Connects and pings every `interval`, or as fast as answers come where they take longer; at
    /// most a million times.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Local`] when there is no thread to be had.
    pub fn start(
        addr: SocketAddr,
        interval: Duration,
        timeout: Duration,
    ) -> Result<Self, MeasureError> {
        let stop = Stop::new();
        let thread = Builder::new().name("gp-pinger".to_owned());
        let spawned = thread.spawn({
            let stop = stop.clone();
            move || ping(addr, interval, timeout, &stop)
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
    addr: SocketAddr,
    interval: Duration,
    timeout: Duration,
    stop: &Stop,
) -> Result<Vec<RoundTrip>, MeasureError> {
    let (mut control, _) = open(addr, timeout, stop)?;
    let mut answered = Vec::new();
    let mut due = clock::monotonic();
    for n in 0..PINGS_MAX {
        let sent = clock::monotonic();
        match ask(&mut control, n, timeout, stop) {
            Ok(()) => answered.push(RoundTrip {
                sent,
                took: clock::monotonic().saturating_since(sent),
            }),
            Err(Trouble::Stopped) => break,
            Err(trouble) => return Err(lost(trouble, "while it was pinged")),
        }
        due = (due + interval).max(clock::monotonic());
        while clock::monotonic() < due && !stop.is_stopped() {
            let left = due.saturating_since(clock::monotonic());
            std::thread::sleep(left.min(STEP).to_std());
        }
        if stop.is_stopped() {
            break;
        }
    }
    Ok(answered)
}

fn ask(control: &mut Control, n: u32, patience: Duration, stop: &Stop) -> Result<(), Trouble> {
    let deadline = in_time(patience);
    control.send(&Message::Ping { n }, deadline, stop)?;
    match control.receive(deadline, stop)? {
        Message::Pong { n: got } if got == n => Ok(()),
        other => Err(unexpected(&other)),
    }
}

const PINGS_MAX: u32 = 1_000_000;
/// How often a sleeper looks whether it is to stop.
const STEP: Duration = Duration::from_ms(50);
