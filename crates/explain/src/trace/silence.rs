//! Times without a word from the peer though data were waiting for its ACK.
//!
//! A peer acknowledges data within half a second whatever its application does (RFC 1122 section
//! 4.2.3.2). So where none of its packets comes for longer, though its window is open, either the path
//! lost data or ACKs, or the peer was gone. The silence lasts from its last packet, or from the first
//! data after it, to its next one; data and FINs of the peer that acknowledge nothing new do not end it.
//!
//! The other end sees the same as an *absence*: the sender is silent though all that came was
//! acknowledged. It was not idle where its last data had no PSH, which a TCP sets when it has nothing more to send
//! (RFC 9293 section 3.9.1), where the IP identification, if it counts up, shows that it sent what did not
//! come here, and where it repeats what was acknowledged.

use units::{Duration, Instant};
use wire::segment::Segment;
use wire::tcp::Flags;

use crate::trace::facts::Mark;
use crate::trace::limits::Mark2;

/// A time without a packet from the peer, with data unacknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The peer's last packet, or the first data after it where that came later.
    pub from: Mark,
    /// Its next packet; where there is none, the last packet of the connection.
    pub to: Mark,
    /// Whether it came back.
    pub ended: bool,
    /// Packets that were sent meanwhile: of an absence those that did not come, as far as the IP
    /// identification tells.
    pub attempts: u64,
    /// Seen where the sender's packets did not come.
    pub is_absence: bool,
}

/// What is known of one side's peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Silence {
    since: Mark2,
    attempts: u64,
    waiting: bool,
    longest: Vec<Outage>,
    count: u64,
    total: u64,
    absent: u64,
    last: Last,
}

/// The side's own last packet.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    at: Mark2,
    ip_id: u16,
    /// How far the identification goes up by it.
    segments: u16,
    /// Its data, or those of the last packet with any, were not the last that were to be sent.
    more: bool,
    /// The identification went up by a little before.
    counts: bool,
}

/// All of one side's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Silences {
    /// The longest, in their order of time.
    pub longest: Vec<Outage>,
    /// How many there were.
    pub count: u64,
    /// How long in all, absences included.
    pub total: Duration,
    /// Absences.
    pub absent: Duration,
    /// From this side's last packet to the end, where all was acknowledged and it could have sent and had not closed.
    pub at_end: Duration,
}

impl Last {
    /// Identifications that were used between this packet and one with `ip_id`; `None` where packets have none.
    fn step_to(&self, ip_id: u16) -> Option<u16> {
        let step = ip_id.wrapping_sub(self.ip_id).wrapping_sub(self.segments);
        (ip_id != 0 && self.ip_id != 0).then_some(step)
    }
}

impl Outage {
    /// How long it lasted.
    pub fn time(&self) -> Duration {
        self.to.time.saturating_since(self.from.time)
    }
}

impl Silence {
    /// This side sends data.
    #[inline]
    pub(crate) fn on_data(&mut self, now: Mark2) {
        if self.waiting {
            self.attempts += 1;
        } else {
            self.waiting = true;
            self.since = now;
            self.attempts = 1;
        }
    }

    /// A packet of the peer comes; `rtt` is the smoothed round trip with four times its variation, and
    /// `waits` says that some of this side's is still unacknowledged, and the peer's window open.
    #[inline]
    pub(crate) fn on_peer(&mut self, now: Mark2, rtt: impl FnOnce() -> u64, waits: bool) {
        if self.waiting {
            if now.0.saturating_sub(self.since.0) >= SILENT_NS_MIN {
                self.end(now, rtt(), true);
            }
            self.waiting = waits;
            self.since = now;
            self.attempts = 0;
        }
    }

    /// The peer waits for this side's ACK.
    #[inline]
    pub(crate) const fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Its last data were not the last that were to be sent.
    #[inline]
    pub(crate) const fn had_more(&self) -> bool {
        self.last.more
    }

    /// A packet of this side, cut to `segments` by it.
    #[inline]
    pub(crate) fn on_own(&mut self, now: Mark2, segment: &Segment, segments: u32) {
        let more = match segment.payload_bytes {
            0 => self.last.more,
            _ => !segment.flags.contains(Flags::PSH),
        };
        let step = self.last.step_to(segment.ip_id);
        self.last = Last {
            counts: step.is_some_and(|step| step < IP_ID_NEAR),
            at: now,
            ip_id: segment.ip_id,
            segments: u16::try_from(segments).unwrap_or(1),
            more,
        };
    }

    /// This side was heard last at `time` or later.
    pub(crate) const fn was_seen_after(&self, time: u64) -> bool {
        time <= self.last.at.0
    }

    /// This side has been silent for long.
    #[inline]
    pub(crate) fn is_long(&self, now: u64) -> bool {
        now.saturating_sub(self.last.at.0) >= SILENT_NS_MIN && self.last.at.1 > 0
    }

    /// Data of this side come after a long silence, in which nothing of the peer's waited for an ACK and its window was open; how long that was
    /// where this side was not idle, zero where it may have been. `pushes` says that it sets PSH at all, `repeats` that the data
    /// were acknowledged before: their ACK was lost.
    #[cold]
    pub(crate) fn absence(
        &mut self,
        now: Mark2,
        ip_id: u16,
        rtt: u64,
        (pushes, repeats): (bool, bool),
    ) -> u64 {
        let Last { at, more, .. } = self.last;
        let lost = self.last.step_to(ip_id).filter(|_| self.last.counts);
        let lost = lost.filter(|lost| (1..=IP_IDS_MAX).contains(lost));
        let ns = now.0.saturating_sub(at.0);
        let was_idle = lost.is_none() && !repeats && !(more && pushes);
        if ns < SILENT_NS_MIN.max(rtt.saturating_mul(4)) || was_idle {
            return 0;
        }
        self.absent = self.absent.saturating_add(ns);
        self.keep(Outage {
            from: mark(at),
            to: mark(now),
            ended: true,
            attempts: lost.map_or(0, u64::from),
            is_absence: true,
        });
        ns
    }

    /// The connection ends at `now`; `open` says that this side could have sent, and has not closed, `pushes` that it sets PSH
    /// at all.
    pub(crate) fn finish(
        &mut self,
        now: Mark2,
        rtt: u64,
        (open, pushes): (bool, bool),
    ) -> Silences {
        let at_end = match open {
            true => now.0.saturating_sub(self.last.at.0),
            false => 0,
        };
        let is_long = at_end >= SILENT_NS_MIN.max(rtt.saturating_mul(4));
        if self.waiting && self.attempts >= ATTEMPTS_MIN {
            self.end(now, rtt, false);
        } else if !self.waiting && pushes && self.last.more && is_long {
            self.absent = self.absent.saturating_add(at_end);
            self.keep(Outage {
                from: mark(self.last.at),
                to: mark(now),
                ended: false,
                attempts: 0,
                is_absence: true,
            });
        }
        let mut longest = std::mem::take(&mut self.longest);
        longest.sort_by_key(|o| o.from.time);
        Silences {
            longest,
            count: self.count,
            total: Duration::from_ns(self.total),
            absent: Duration::from_ns(self.absent),
            at_end: Duration::from_ns(at_end),
        }
    }

    #[cold]
    fn end(&mut self, now: Mark2, rtt: u64, ended: bool) {
        let ns = now.0.saturating_sub(self.since.0);
        if ns < SILENT_NS_MIN.max(rtt.saturating_mul(4)) {
            return;
        }
        self.keep(Outage {
            from: mark(self.since),
            to: mark(now),
            ended,
            attempts: self.attempts,
            is_absence: false,
        });
    }

    fn keep(&mut self, outage: Outage) {
        self.count += 1;
        self.total = self.total.saturating_add(outage.time().as_ns());
        self.longest.push(outage);
        if self.longest.len() > OUTAGES {
            // The longest stay, of those as long the earliest.
            self.longest.sort_by_key(|o| std::cmp::Reverse(o.time()));
            self.longest.truncate(OUTAGES);
        }
    }
}

fn mark(m: Mark2) -> Mark {
    Mark {
        time: Instant::from_ns(m.0),
        frame: m.1,
    }
}

/// Twice the longest delay of an ACK.
const SILENT_NS_MIN: u64 = 1_000_000_000;
/// Packets without an answer at the end that are more than a capture that ends.
const ATTEMPTS_MIN: u64 = 3;
const OUTAGES: usize = 4;
/// So little goes an identification up between packets that follow each other.
const IP_ID_NEAR: u16 = 64;
/// More packets than a window has, and timeouts that double, are not lost in a silence.
const IP_IDS_MAX: u16 = 4_096;
