//! Whose turn it is: requests and answers, and who was waited for between them.
//!
//! A *message* is what one side sends until the other sends data that acknowledges all of it. Between
//! a message's last packet and the first one of the answer lies the path there and back, from the
//! capture point, and what is longer than the least that this took is the answering side's *thinking*:
//! its application's, its disk's, its peers'. Before the first message it counts from the handshake.
//!
//! Within a message time without anything in flight is a *pause*: the application that writes had
//! nothing. Unless it ends with a bare ACK after a delay, and a short segment follows at once, both with PSH: that
//! one waited for the ACK (RFC 896), and the peer delayed it (RFC 1122 section 4.2.3.2). Without PSH it was the
//! window that cut it short.
//!
//! Where both sides send at once nothing of this can be told: data that do not acknowledge all that
//! was sent begin no message.

use units::Duration;

use crate::trace::histogram::{Histogram, Spread};

/// What one side did when it was its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnFacts {
    /// Messages that it sent.
    pub messages: u64,
    /// Their payload.
    pub message_bytes: Spread,
    /// From each message's first packet to its last, in all.
    pub sending: Duration,
    /// Of this, all was acknowledged and nothing new came.
    pub pauses: Duration,
    /// Of this, a short segment waited for a delayed ACK, and how often.
    pub nagle: Duration,
    /// How often.
    pub nagle_times: u64,
    /// From what the other side sent last, or the handshake, to the message's first packet, the path
    /// left out, in all.
    pub thinking: Duration,
    /// The same, each.
    pub thinking_ns: Spread,
    /// Time on the path that is left out there.
    pub on_path: Duration,
    /// Data that came while the other side's were on their way.
    pub overlaps: u64,
    /// Most that it paused or thought at once: frame and time.
    pub longest: Option<(u64, Duration)>,
}

impl TurnFacts {
    /// Of a side that did nothing.
    pub(crate) const NONE: Self = Self {
        messages: 0,
        message_bytes: Spread::NONE,
        sending: Duration::ZERO,
        pauses: Duration::ZERO,
        nagle: Duration::ZERO,
        nagle_times: 0,
        thinking: Duration::ZERO,
        thinking_ns: Spread::NONE,
        on_path: Duration::ZERO,
        overlaps: 0,
        longest: None,
    };
}

/// Whose turn it is now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    mover: Option<u8>,
    /// Since when, and its last packet with data.
    begun: u64,
    last: u64,
    bytes: u64,
    /// The last bare ACK of the other side that left nothing in flight, how long after the data it
    /// came, and whether these were less than a segment.
    acked: Acked,
    /// From the first pause or turn on.
    sides: Option<Box<[Account; 2]>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Acked {
    at: u64,
    after: u64,
    short: bool,
}

#[derive(Clone, Debug)]
struct Account {
    facts: TurnFacts,
    bytes: Histogram,
    thinking: Histogram,
}

/// What else is to be known of data that pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moved {
    pub(crate) frame: u64,
    /// They acknowledge all that the other side has sent.
    pub(crate) answers: bool,
    /// When the handshake was over.
    pub(crate) made: u64,
    /// Least time from the capture point to this side and back.
    pub(crate) behind: u64,
    /// Less than a segment, and all that there was to send.
    pub(crate) is_short: bool,
    /// How long this side was silent though it had something to send.
    pub(crate) absent: u64,
    /// When the other side's window was closed last: since when and until when.
    pub(crate) closed: (u64, u64),
}

impl Default for Account {
    fn default() -> Self {
        Self {
            facts: TurnFacts::default(),
            bytes: Histogram::new(0),
            thinking: Histogram::new(THINKING_SHIFT),
        }
    }
}

impl Turns {
    /// A packet with payload of `side` passes, of which `fresh` was not seen before; `was_idle` says that
    /// nothing of this side's was in flight.
    #[inline]
    pub(crate) fn on_data(
        &mut self,
        side: usize,
        now: u64,
        fresh: u64,
        was_idle: bool,
        more: impl FnOnce() -> Moved,
    ) {
        if self.mover.map(usize::from) == Some(side) {
            if was_idle && fresh > 0 {
                self.pause(side, now, more());
            }
            self.last = now;
            self.bytes += fresh;
        } else {
            self.turn(side, now, fresh, more());
        }
    }

    /// A bare ACK leaves nothing of `side`'s in flight, of which the last, less than a segment or not,
    /// was sent at `sent`.
    #[inline]
    pub(crate) fn on_all_acked(&mut self, side: usize, now: u64, sent: u64, short: bool) {
        if self.mover.map(usize::from) == Some(side) {
            self.acked = Acked {
                at: now,
                after: now.saturating_sub(sent),
                short,
            };
        }
    }

    /// What each side did, up to now; `None` where nothing is to be said.
    pub(crate) fn finish(&mut self) -> Option<Box<[TurnFacts; 2]>> {
        self.sides.as_ref()?;
        self.end_message();
        Some(Box::new(std::array::from_fn(|s| {
            let account = &self.sides()[s];
            TurnFacts {
                message_bytes: account.bytes.spread(),
                thinking_ns: account.thinking.spread(),
                ..account.facts
            }
        })))
    }

    /// Memory that it takes beside itself.
    pub(crate) fn more_bytes(&self) -> usize {
        self.sides.as_deref().map_or(0, size_of_val)
    }

    fn sides(&mut self) -> &mut [Account; 2] {
        self.sides.get_or_insert_default()
    }

    /// The side whose turn it is sends on, after all it had sent was acknowledged.
    #[cold]
    fn pause(&mut self, side: usize, now: u64, moved: Moved) {
        let from = self.last.max(self.acked.at);
        let gap = now.saturating_sub(from);
        let Acked { at, after, short } = self.acked;
        let short = short && at > self.last && moved.is_short;
        let account = &mut self.sides()[side];
        // At once, as far as the capture point can tell.
        let late = (after / 8).min(AT_ONCE_NS) + moved.behind / 8;
        let at_once = gap.abs_diff(moved.behind) <= late;
        // The ACK's way to the sender and the segment's way back are part of it, where that is more than a host's time.
        let on_path = match moved.behind > AT_ONCE_NS {
            true => moved.behind,
            false => 0,
        };
        let waited = after.saturating_add(on_path);
        if short && at_once && waited >= DELAYED_NS_MIN && after <= DELAYED_NS_MAX {
            account.facts.nagle = account.facts.nagle + Duration::from_ns(waited);
            account.facts.nagle_times += 1;
            return;
        }
        // A closed window is no pause of the sender's.
        let (since, until) = moved.closed;
        let shut = until.min(now).saturating_sub(since.max(from));
        let gap = Duration::from_ns(
            gap.saturating_sub(
                moved
                    .behind
                    .saturating_add(shut)
                    .saturating_add(moved.absent),
            ),
        );
        account.facts.pauses = account.facts.pauses + gap;
        account.note(moved.frame, gap);
    }

    /// The other side sends data.
    #[cold]
    fn turn(&mut self, side: usize, now: u64, fresh: u64, moved: Moved) {
        let since = match self.mover {
            Some(_) if !moved.answers => {
                self.sides()[side].facts.overlaps += 1;
                return;
            }
            Some(_) => self.last,
            None => moved.made,
        };
        if fresh == 0 {
            return;
        }
        if self.mover.is_none() && now.saturating_sub(since) <= moved.behind.max(AT_ONCE_NS) {
            // Nobody was waited for: nothing is to be kept of the first message.
            return self.begin(side, now, fresh);
        }
        self.end_message();
        let waited = now.saturating_sub(since);
        let on_path = waited.min(moved.behind);
        let thought = (waited - on_path).saturating_sub(moved.absent);
        let thinking = Duration::from_ns(thought);
        let account = &mut self.sides()[side];
        account.facts.on_path = account.facts.on_path + Duration::from_ns(on_path);
        account.facts.thinking = account.facts.thinking + thinking;
        account.thinking.add(thought);
        account.note(moved.frame, thinking);
        self.begin(side, now, fresh);
    }

    fn begin(&mut self, side: usize, now: u64, fresh: u64) {
        self.mover = u8::try_from(side & 1).ok();
        self.begun = now;
        self.last = now;
        self.bytes = fresh;
        self.acked = Acked::default();
    }

    fn end_message(&mut self) {
        let Some(mover) = self.mover.take() else {
            return;
        };
        let sending = Duration::from_ns(self.last.saturating_sub(self.begun));
        let bytes = self.bytes;
        let account = &mut self.sides()[usize::from(mover & 1)];
        account.facts.messages += 1;
        account.facts.sending = account.facts.sending + sending;
        account.bytes.add(bytes);
    }
}

impl Account {
    fn note(&mut self, frame: u64, time: Duration) {
        if self.facts.longest.is_none_or(|(_, longest)| time > longest) {
            self.facts.longest = Some((frame, time));
        }
    }
}

/// Thinking below 16 us is one bucket.
const THINKING_SHIFT: u32 = 14;
/// A host's time from an ACK to the segment that waited for it.
const AT_ONCE_NS: u64 = 2_000_000;
/// A delayed ACK comes after 40 ms in Linux (net/ipv4/tcp.h, TCP_DELACK_MIN), 100 and 200 ms elsewhere,
/// at most after 500 ms (RFC 1122 section 4.2.3.2); one that is not delayed after a round trip. For less
/// it is not worth a word.
const DELAYED_NS_MIN: u64 = 10_000_000;
const DELAYED_NS_MAX: u64 = 520_000_000;
