//! Senders that hear from their receivers: messages complete, windows grow, what was lost is sent again.
//!
//! **RC** over an Ethernet that loses goes back: the receiver drops what comes after a gap and asks once for the packet that
//! it expects (a NAK of sequence error, IBTA volume 1, section 9.7.5), and the sender goes on from there.
//!
//! **iWARP** is a TCP of packets (RFC 5681, RFC 6582): slow start from 10 packets (RFC 6928), one packet more each
//! round trip beyond, at most the receiver's window. Every second packet and each message's end is acknowledged,
//! and each packet that came early. With **strict** ordering three such acknowledgments count as a loss, whether one
//! happened or a packet took a longer path: what is missing is sent again and the window is halved. The receiver keeps
//! what came early, at most a window of it, and the sender knows of it (selective acknowledgments, RFC 6675; here at
//! once, not half a round trip later). With **relaxed** ordering early packets mean nothing for [`PATIENCE_PS`],
//! as RFC 8985 has it with a wide reordering window; then they do the same.
//!
//! A sender that hears nothing for `retry_ps` goes back to what is acknowledged; only where packets can be lost. Where links
//! fail, it gives up after some tries in a row.

use std::collections::VecDeque;

use super::{Flow, NONE, Packet, RETRY, World};
use crate::spec::{Ordering, Transport};

/// What a sender knows of its receiver.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard {
    /// All packets below have come.
    pub(super) acked: u32,
    /// Acknowledgments that told of early packets since then, and when the first came.
    early: u32,
    early_since_ps: u64,
    /// Packets to be sent again.
    pub(super) resend: VecDeque<u32>,
    /// Window, in 1/256 of a packet.
    window: u64,
    threshold: u64,
    /// What had been sent when the window was halved; until that is acknowledged it is not halved again.
    recover: u32,
    recovering: bool,
    /// Gaps below have been sent again.
    resent_to: u32,
    last_ps: u64,
    timed: bool,
    /// Timers that ran out in a row.
    tries: u32,
    /// When it last heard of something new; counted only where links fail.
    news_ps: u64,
}

impl Heard {
    pub(super) fn new(most: u64) -> Self {
        Self {
            window: INITIAL_PACKETS.min(most) * UNIT,
            threshold: most * UNIT,
            ..Self::default()
        }
    }
}

impl World {
    /// An acknowledgment is back at the sender.
    pub(super) fn acknowledged(&mut self, host: u32, p: Packet) {
        let now = self.now_ps;
        let fails = self.faults.is_some();
        let flow = &mut self.flows[p.flow as usize];
        if flow.info.broken {
            // Its sender has given up; what comes late moves nothing.
            return;
        }
        let more = p.number.wrapping_sub(flow.heard.acked);
        let early = p.payload_bytes == EARLY;
        let request = flow.request;
        let mut places = 0;
        if more > u32::MAX / 2 {
            return;
        }
        if more > 0 {
            flow.heard.acked = p.number;
            flow.heard.last_ps = now;
            flow.heard.tries = 0;
            if fails {
                flow.note_news(now);
            }
            let whole = u64::from(p.number / flow.packets_each());
            while flow.completed < whole {
                flow.complete(now);
                places += 1;
            }
        }
        match flow.spec.transport {
            Transport::Iwarp => flow.steer_window(more, early, now),
            _ if early => flow.go_back(),
            _ => {}
        }
        if request != NONE {
            // The next ones are asked for.
            let granted = &mut self.flows[request as usize].granted;
            granted.extend(std::iter::repeat_n(now, places));
        }
        self.pass(p.flow);
        self.look(host);
    }

    /// Starts the timer of a flow that has sent something.
    pub(super) fn time(&mut self, number: u32) {
        let Some(retry) = self.retry_ps() else {
            return;
        };
        let now = self.now_ps;
        let heard = &mut self.flows[number as usize].heard;
        if !heard.timed {
            heard.timed = true;
            heard.last_ps = heard.last_ps.max(now);
            self.post(now + retry, RETRY, number, 0);
        }
    }

    /// A sender's timer runs out; false if there is nothing to wait for.
    pub(super) fn retry(&mut self, number: u32) -> bool {
        let Some(retry) = self.retry_ps() else {
            return false;
        };
        let now = self.now_ps;
        let retries = self.retries();
        let flow = &mut self.flows[number as usize];
        flow.heard.timed = false;
        if flow.packets == flow.heard.acked {
            return false;
        }
        flow.heard.timed = true;
        let due = flow.heard.last_ps + retry;
        if now < due {
            self.post(due, RETRY, number, 0);
            return false;
        }
        flow.info.timeouts += 1;
        if flow.heard.tries >= retries {
            flow.give_up(now);
            self.pass(number);
            return true;
        }
        flow.heard.tries += 1;
        flow.heard.last_ps = now;
        flow.shrink();
        flow.heard.window = 2 * UNIT;
        flow.go_back();
        let host = flow.spec.from;
        self.post(now + retry, RETRY, number, 0);
        self.look(host);
        true
    }
}

impl Flow {
    /// Packets of a message.
    pub(super) fn packets_each(&self) -> u32 {
        self.spec.message_bytes.div_ceil(self.spec.mtu_bytes)
    }

    /// Payload of a packet by its number, and whether it is its message's last.
    pub(super) fn payload_of(&self, number: u32) -> (u32, bool) {
        let place = number % self.packets_each();
        let left = self.spec.message_bytes - place * self.spec.mtu_bytes;
        (
            left.min(self.spec.mtu_bytes),
            place + 1 == self.packets_each(),
        )
    }

    /// The window is full; packets that are to be sent again may go.
    pub(super) fn window_full(&self) -> bool {
        if self.spec.transport != Transport::Iwarp {
            return false;
        }
        let heard = &self.heard;
        // Each acknowledgment of an early packet says that one more has left the path.
        let flying = self.packets.wrapping_sub(heard.acked);
        let flying = flying.saturating_sub(heard.early);
        u64::from(flying) * UNIT + UNIT > heard.window
            || self.packets.wrapping_sub(heard.acked) >= self.most_packets()
    }

    /// Packets that the receiver's window holds.
    pub(super) fn most_packets(&self) -> u32 {
        (self.spec.window_bytes / self.spec.mtu_bytes).max(2)
    }

    fn steer_window(&mut self, more: u32, early: bool, now_ps: u64) {
        let most = u64::from(self.most_packets()) * UNIT;
        let heard = &mut self.heard;
        if more > 0 {
            let grown = match heard.window < heard.threshold {
                true => u64::from(more) * UNIT,
                false => u64::from(more) * UNIT * UNIT / heard.window,
            };
            if heard.recovering {
                let left = heard.recover.wrapping_sub(heard.acked);
                heard.recovering = left > 0 && left < u32::MAX / 2;
            } else {
                heard.window = (heard.window + grown).min(most);
            }
            heard.early = 0;
        }
        if !early {
            self.resend_gaps();
            return;
        }
        if heard.early == 0 {
            heard.early_since_ps = now_ps;
        }
        heard.early += 1;
        let lost = match self.spec.ordering {
            Ordering::Strict => heard.early >= 3,
            Ordering::Relaxed => now_ps - heard.early_since_ps >= PATIENCE_PS,
        };
        if lost && !heard.recovering {
            heard.recovering = true;
            heard.recover = self.packets;
            heard.resent_to = heard.acked;
            self.shrink();
        }
        self.resend_gaps();
    }

    /// Sends again what is missing below packets that came, three of them at least, once each.
    fn resend_gaps(&mut self) {
        if !self.heard.recovering {
            return;
        }
        let known = u32::try_from(self.early.len()).unwrap_or(0);
        for place in 0..known.saturating_sub(2) {
            // The first gap is what the receiver expects.
            let missing = match place {
                0 => true,
                _ => self.early[place as usize - 1].is_none(),
            };
            let number = self.expected.wrapping_add(place);
            if missing && number >= self.heard.resent_to {
                self.heard.resend.push_back(number);
                self.heard.resent_to = number + 1;
            }
        }
    }

    /// Halves the window.
    fn shrink(&mut self) {
        self.info.halvings += 1;
        let flying = u64::from(self.packets.wrapping_sub(self.heard.acked)) * UNIT;
        self.heard.threshold = (flying / 2).max(2 * UNIT);
        self.heard.window = self.heard.threshold;
    }

    fn note_news(&mut self, now_ps: u64) {
        let since = self.heard.news_ps.max(self.info.first_posted_ps);
        let silent = now_ps.saturating_sub(since);
        self.info.silence_max_ps = self.info.silence_max_ps.max(silent);
        self.heard.news_ps = now_ps;
    }

    /// Sends nothing any more.
    fn give_up(&mut self, now_ps: u64) {
        self.note_news(now_ps);
        self.info.broken = true;
        self.heard.resend.clear();
        self.heard.timed = false;
        self.left_bytes = 0;
        self.begun = self.spec.messages;
        self.packets = self.heard.acked;
    }

    /// Goes on from what is acknowledged.
    fn go_back(&mut self) {
        let to = self.heard.acked;
        self.heard.resend.clear();
        self.heard.recovering = false;
        self.packets = to;
        let each = self.packets_each();
        let place = to % each;
        self.begun = u64::from(to / each) + u64::from(place > 0);
        self.left_bytes = match place {
            0 => 0,
            _ => self.spec.message_bytes - place * self.spec.mtu_bytes,
        };
    }
}

/// In place of an acknowledgment's payload: a packet came early.
pub(super) const EARLY: u16 = 1;
const UNIT: u64 = 256;
const INITIAL_PACKETS: u64 = 10;
/// Early packets are no loss for so long with relaxed ordering; chosen: longer than any path's queue.
const PATIENCE_PS: u64 = 1_000_000_000;
