//! Why a segment was sent once more, and whether it had to be.
//!
//! The kind follows RFC 6298 (timeout), RFC 5681 and 6675 (fast), RFC 8985 (early by SACK; tail loss
//! probe). A silence is the time since the sender's last data and since the last ACK of something
//! new, whichever is shorter: what the sender's timer sees. A retransmission within a recovery is of
//! the kind that began it. Not needed was one whose ACK echoes a time before any of the
//! retransmissions that it covers (RFC 3522), or that a DSACK names (RFC 2883).

use crate::trace::number::later;

/// What made the sender do so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Fast,
    Timeout,
    TailProbe,
    Other,
}

/// What is known when it passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// Kind of the recovery that it belongs to.
    pub(crate) recovery: Option<Kind>,
    /// Duplicate ACKs in a row.
    pub(crate) duplicate_acks: u32,
    /// The peer has SACKed later data.
    pub(crate) sacked_above: bool,
    /// It is the last segment sent.
    pub(crate) last: bool,
    /// It is the first one that is not acknowledged.
    pub(crate) first: bool,
    pub(crate) silence: u64,
    /// Both halves, smoothed, and four times the variation; zero when unknown.
    pub(crate) rtt: (u64, u64),
}

/// The last retransmissions, until it is known whether they had to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judged {
    list: Vec<Resend>,
    next: usize,
    /// Some are not acknowledged.
    waiting: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Resend {
    start: u64,
    /// Zero when it is known that it was not needed.
    end: u64,
    value: Option<u32>,
    acked: bool,
}

impl Case {
    pub(crate) fn kind(&self) -> Kind {
        let (smoothed, variation) = self.rtt;
        let timeout = TIMEOUT_NS_MIN.max(smoothed.saturating_add(variation));
        let silent = self.silence >= timeout;
        match self.recovery {
            Some(_) if silent => Kind::Timeout,
            Some(kind) => kind,
            // A probe may come as late as a timeout; but a timeout resends the first.
            None if silent && (self.first || !self.last) => Kind::Timeout,
            None if self.duplicate_acks >= 3 || self.sacked_above => Kind::Fast,
            None if self.last && self.silence >= smoothed / 2 * 3 && smoothed > 0 => {
                Kind::TailProbe
            }
            None if silent => Kind::Timeout,
            None if self.duplicate_acks > 0 => Kind::Fast,
            None => Kind::Other,
        }
    }
}

impl Judged {
    pub(crate) fn push(&mut self, start: u64, end: u64, value: Option<u32>) {
        let resend = Resend {
            start,
            end,
            value,
            acked: false,
        };
        match self.list.get_mut(self.next) {
            Some(oldest) => *oldest = resend,
            None => self.list.push(resend),
        }
        self.next = (self.next + 1) % RESENDS;
        self.waiting = true;
    }

    /// An ACK of something new with this echo; returns how many were not needed.
    #[inline]
    pub(crate) fn on_ack(&mut self, ack: u64, echo: Option<u32>) -> u64 {
        if self.waiting {
            self.judge(ack, echo)
        } else {
            0
        }
    }

    /// A DSACK of this range; returns how many it names. Each is named once.
    pub(crate) fn on_dsack(&mut self, start: u64, end: u64) -> u64 {
        let mut count = 0;
        for resend in self
            .list
            .iter_mut()
            .filter(|r| r.start < end && start < r.end)
        {
            *resend = Resend::default();
            count += 1;
        }
        count
    }

    #[cold]
    fn judge(&mut self, ack: u64, echo: Option<u32>) -> u64 {
        let covered = |r: &Resend| !r.acked && r.end != 0 && r.end <= ack;
        let values = self
            .list
            .iter()
            .filter(|r| covered(r))
            .filter_map(|r| r.value);
        let oldest = values.reduce(|a, b| if later(a, b) { b } else { a });
        let needless = matches!((oldest, echo), (Some(o), Some(e)) if later(o, e));
        let mut count = 0;
        for resend in self.list.iter_mut().filter(|r| covered(r)) {
            if needless && resend.value.is_some() {
                *resend = Resend::default();
                count += 1;
            }
            resend.acked = true;
        }
        self.waiting = self.list.iter().any(|r| !r.acked && r.end != 0);
        count
    }
}

/// Retransmissions that are remembered.
const RESENDS: usize = 64;
const TIMEOUT_NS_MIN: u64 = 200_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const CASE: Case = Case {
        recovery: None,
        duplicate_acks: 0,
        sacked_above: false,
        last: false,
        first: true,
        silence: 0,
        rtt: (40_000_000, 4_000_000),
    };

    #[test]
    fn three_duplicate_acks_or_sack_make_it_fast() {
        assert_eq!(
            Case {
                duplicate_acks: 3,
                ..CASE
            }
            .kind(),
            Kind::Fast
        );
        assert_eq!(
            Case {
                sacked_above: true,
                ..CASE
            }
            .kind(),
            Kind::Fast
        );
        assert_eq!(CASE.kind(), Kind::Other);
    }

    #[test]
    fn a_silence_of_the_timeout_makes_it_one() {
        let silent = |silence, rtt| {
            Case {
                silence,
                rtt,
                ..CASE
            }
            .kind()
        };
        assert_eq!(silent(200_000_000, (40_000_000, 4_000_000)), Kind::Timeout);
        assert_eq!(silent(199_999_999, (40_000_000, 4_000_000)), Kind::Other);
        assert_eq!(silent(299_999_999, (200_000_000, 100_000_000)), Kind::Other);
        assert_eq!(
            silent(300_000_000, (200_000_000, 100_000_000)),
            Kind::Timeout
        );
    }

    #[test]
    fn the_last_segment_after_two_round_trips_is_a_probe_and_the_first_after_a_timeout_is_not() {
        let last = Case {
            last: true,
            first: false,
            silence: 82_000_000,
            ..CASE
        };
        assert_eq!(last.kind(), Kind::TailProbe);
        assert_eq!(
            Case {
                silence: 59_000_000,
                ..last
            }
            .kind(),
            Kind::Other
        );
        assert_eq!(
            Case {
                silence: 250_000_000,
                ..last
            }
            .kind(),
            Kind::TailProbe
        );
        assert_eq!(
            Case {
                silence: 250_000_000,
                first: true,
                ..last
            }
            .kind(),
            Kind::Timeout
        );
    }

    #[test]
    fn a_recovery_goes_on_as_it_began_until_the_next_timeout() {
        let going = Case {
            recovery: Some(Kind::Fast),
            ..CASE
        };
        assert_eq!(going.kind(), Kind::Fast);
        assert_eq!(
            Case {
                silence: 200_000_000,
                ..going
            }
            .kind(),
            Kind::Timeout
        );
    }

    #[test]
    fn an_earlier_echo_says_that_it_was_not_needed_and_a_dsack_adds_nothing() {
        let mut judged = Judged::default();
        judged.push(0, 10, Some(100));
        assert_eq!(judged.on_ack(10, Some(99)), 1);
        assert_eq!(judged.on_dsack(0, 10), 0);
        judged.push(10, 20, Some(100));
        assert_eq!(judged.on_ack(20, Some(100)), 0);
        assert_eq!(judged.on_dsack(10, 20), 1);
        assert_eq!(judged.on_dsack(10, 20), 0);
    }

    #[test]
    fn a_delayed_echo_of_the_first_of_two_absolves_neither() {
        let mut judged = Judged::default();
        judged.push(0, 10, Some(100));
        judged.push(10, 20, Some(105));
        assert_eq!(judged.on_ack(20, Some(100)), 0);
        assert_eq!(judged.on_ack(20, Some(1)), 0);
    }
}
