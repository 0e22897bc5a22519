//! Congestion control: how the window grows with what was acknowledged and shrinks at a loss.

mod bbr;
mod bbr3;
mod cubic;
mod fast;
mod reno;
mod scalable;

use units::{Duration, Instant};

use crate::config::{Algorithm, SenderConfig};

pub(crate) use bbr::{Bbr, Sample};
pub(crate) use bbr3::{Bbr3, Loss};
pub(crate) use cubic::Cubic;
pub(crate) use fast::Fast;

/// The congestion window in segments, and what Reno's arithmetic needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) cwnd: u64,
    pub(crate) ssthresh: u64,
    /// Segments acknowledged towards the next one.
    pub(crate) count: u64,
}

/// An acknowledgment as congestion control sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) now: Instant,
    /// Segments newly acknowledged or selectively acknowledged.
    pub(crate) acked: u64,
    /// Round trip that it gave, if it gave one.
    pub(crate) rtt: Option<Duration>,
    /// First segment not acknowledged and next new one.
    pub(crate) una: u64,
    pub(crate) next: u64,
    /// The window was what held the sender back.
    pub(crate) cwnd_limited: bool,
    /// Bursts are spread in time.
    pub(crate) paced: bool,
    /// In slow start, how long interfaces may gather segments (Linux, `hystart_ack_delay`).
    pub(crate) gathering: Duration,
}

/// One of the algorithms. An enum, so that a call costs no indirection.
#[derive(Clone, Debug)]
pub(crate) enum Control {
    Reno,
    Cubic(Cubic),
    Scalable,
    Bbr(Box<Bbr>),
    Bbr3(Box<Bbr3>),
    Fast(Fast),
}

impl Control {
    pub(crate) fn new(config: &SenderConfig) -> Self {
        let hystart = config.hystart;
        match config.algorithm {
            Algorithm::Reno => Self::Reno,
            Algorithm::Cubic => Self::Cubic(Cubic::new(hystart)),
            Algorithm::Scalable => Self::Scalable,
            Algorithm::Fast => Self::Fast(Fast::new(config.fast_alpha)),
            Algorithm::Bbr => Self::Bbr(Box::new(Bbr::new(
                config.segment_bytes,
                config.initial_window,
                config.seed,
            ))),
            Algorithm::Bbr3 => Self::Bbr3(Box::new(
                Bbr3::new(config.segment_bytes, config.initial_window, config.seed)
                    .forgiving(config.forgives),
            )),
        }
    }

    /// Told of each acknowledgment, whether or not the window may grow by it.
    pub(crate) fn on_round_trip(&mut self, window: &mut Window, progress: &Progress) {
        if let Self::Cubic(cubic) = self {
            cubic.on_round_trip(window, progress);
        }
    }

    /// Grows the window.
    pub(crate) fn on_ack(&mut self, window: &mut Window, progress: &Progress) {
        match self {
            Self::Reno => reno::on_ack(window, progress),
            Self::Cubic(cubic) => cubic.on_ack(window, progress),
            Self::Scalable => scalable::on_ack(window, progress),
            Self::Fast(fast) => fast.on_ack(window, progress),
            // They are told by rate samples.
            Self::Bbr(_) | Self::Bbr3(_) => {}
        }
    }

    /// The window to fall to at a loss, when so many segments have been delivered.
    pub(crate) fn threshold(&mut self, window: &Window, delivered: u64) -> u64 {
        match self {
            Self::Reno => reno::threshold(window),
            Self::Cubic(cubic) => cubic.threshold(window),
            Self::Scalable => scalable::threshold(window),
            Self::Fast(_) => fast::threshold(window),
            Self::Bbr(bbr) => {
                bbr.on_loss(window);
                window.ssthresh
            }
            Self::Bbr3(bbr) => {
                bbr.on_reduction(window, delivered);
                window.ssthresh
            }
        }
    }

    /// A retransmission timeout.
    pub(crate) fn on_timeout(&mut self) {
        match self {
            Self::Cubic(cubic) => cubic.reset(),
            Self::Bbr(bbr) => bbr.on_timeout(),
            Self::Reno | Self::Scalable | Self::Fast(_) | Self::Bbr3(_) => {}
        }
    }
}

impl Control {
    /// The rate that the algorithm sets itself, payload bytes a second.
    pub(crate) fn pacing_rate(&self) -> Option<u64> {
        match self {
            Self::Bbr(bbr) => Some(bbr.pacing_rate()),
            Self::Bbr3(bbr) => Some(bbr.pacing_rate()),
            _ => None,
        }
    }

    /// It sets window and pace from a model of the path; reductions are its own affair.
    pub(crate) const fn models(&self) -> bool {
        matches!(self, Self::Bbr(_) | Self::Bbr3(_))
    }

    /// Where a model stands.
    pub(crate) fn phase(&self) -> Option<&'static str> {
        match self {
            Self::Bbr(bbr) => Some(bbr.phase()),
            Self::Bbr3(bbr) => Some(bbr.phase()),
            _ => None,
        }
    }

    /// The handshake gave a round trip.
    pub(crate) fn begin(&mut self, now: Instant, round_trip: Duration) {
        match self {
            Self::Bbr(bbr) => bbr.begin(now, round_trip),
            Self::Bbr3(bbr) => bbr.begin(now, round_trip),
            _ => {}
        }
    }
}

impl Window {
    pub(crate) const fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// RFC 5681 3.1 with one segment for each acknowledged; what is left over beyond the threshold.
    pub(crate) fn slow_start(&mut self, acked: u64) -> u64 {
        let grown = (self.cwnd + acked).min(self.ssthresh);
        let left = acked - (grown - self.cwnd);
        self.cwnd = grown;
        left
    }

    /// One segment for each `per` that were acknowledged.
    pub(crate) fn add_one_per(&mut self, per: u64, acked: u64) {
        let per = per.max(1);
        if self.count >= per {
            // The pace rose: one step for what had been collected, not several.
            self.count = 0;
            self.cwnd += 1;
        }
        self.count += acked;
        if self.count >= per {
            self.cwnd += self.count / per;
            self.count %= per;
        }
    }
}
