//! BBR's model of a path (version 3), for senders of other transports than TCP: what was sent, acknowledged and lost goes
//! in, a congestion window and a pacing rate come out.
//!
//! It forgives losses that come without a queue, up to 2 % a round ([`crate::SenderConfig::forgives`]): who takes another
//! transport than TCP does so for paths that lose by themselves. Packets count as segments, whatever they carry, and what a
//! transport tells only in sums (bytes lost) is counted in packets of the present size. Retransmission is the transport's.

use std::collections::VecDeque;

use units::{Duration, Instant};

use crate::cc::{Bbr3, Loss, Window};
use crate::sender::meter::{Meter, Stamp};

/// What is known of a path, and what follows for the sender.
#[derive(Clone, Debug)]
pub struct Model {
    bbr: Bbr3,
    window: Window,
    meter: Meter,
    packet_bytes: u64,
    initial_window: u64,
    /// What left when, oldest first: one for each moment.
    log: VecDeque<Sent>,
    /// Packets sent, delivered, lost and under way.
    sent: u64,
    delivered: u64,
    lost: u64,
    in_flight: u64,
    rtt_min: Option<Duration>,
    /// Delivered and the newest moment of sending, of acknowledgments that are not ended yet.
    fresh: (u64, Option<Instant>),
    /// A recovery ends when so many packets are delivered.
    recovered: u64,
    /// As TCP's: was the window what held the sender back, of late?
    cwnd_limited: bool,
    most_in_flight: u64,
    usage_end: u64,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    /// Packets sent before.
    first: u64,
    stamp: Stamp,
}

/// What left longer ago is not remembered: twice what an idle connection lives.
const LOG_TIME: Duration = Duration::from_s(30);
/// Moments that are remembered at most: some seconds of bursts.
const LOG_MOST: usize = 1 << 16;
/// Packets that a sender may have under way at least.
const WINDOW_MIN: u64 = 4;

impl Model {
    /// A path of which nothing is known, for packets of so many bytes; `seed` draws how long it waits between probes.
    pub fn new(packet_bytes: u32, initial_window: u64, seed: u64) -> Self {
        let initial_window = initial_window.max(WINDOW_MIN);
        Self {
            bbr: Bbr3::new(packet_bytes.max(1), initial_window, seed).forgiving(true),
            window: Window {
                cwnd: initial_window,
                ssthresh: u64::MAX,
                count: 0,
            },
            meter: Meter::default(),
            packet_bytes: packet_bytes.max(1).into(),
            initial_window,
            log: VecDeque::new(),
            sent: 0,
            delivered: 0,
            lost: 0,
            in_flight: 0,
            rtt_min: None,
            fresh: (0, None),
            recovered: 0,
            cwnd_limited: false,
            most_in_flight: 0,
            usage_end: 0,
        }
    }

    /// Bytes that may be under way.
    pub const fn window_bytes(&self) -> u64 {
        self.window.cwnd * self.packet_bytes
    }

    /// As it was at first.
    pub const fn initial_window_bytes(&self) -> u64 {
        self.initial_window * self.packet_bytes
    }

    /// Bytes a second; `None` until something was acknowledged.
    pub fn pacing_rate(&self) -> Option<u64> {
        self.rtt_min.map(|_| self.bbr.pacing_rate())
    }

    /// Where it stands: `startup`, `drain`, `down`, `cruise`, `refill`, `up`, `probe-rtt`.
    pub const fn phase(&self) -> &'static str {
        self.bbr.phase()
    }

    /// Packets have another size from now on.
    pub fn resize(&mut self, packet_bytes: u32) {
        self.packet_bytes = packet_bytes.max(1).into();
        self.bbr.resize(self.packet_bytes);
    }

    /// So many bytes left at once. Times never go back.
    pub fn on_sent(&mut self, now: Instant, bytes: u64) {
        let is_alone = self.in_flight == 0;
        if is_alone && self.meter.is_app_limited() && self.rtt_min.is_some() {
            self.bbr.on_restart(now, &mut self.window, self.delivered);
        }
        let first = self.sent;
        let packets = self.packets(bytes);
        self.sent += packets;
        self.in_flight += packets;
        let stamp = self.meter.stamp(now, is_alone, self.in_flight, self.lost);
        match self.log.back_mut() {
            Some(last) if last.at == now => last.stamp = stamp,
            _ => self.log.push_back(Sent {
                at: now,
                first,
                stamp,
            }),
        }
        let is_old = |sent: &Sent| now.saturating_since(sent.at) > LOG_TIME;
        while self.log.len() > LOG_MOST || self.log.front().is_some_and(is_old) {
            self.log.pop_front();
        }
        let is_full = self.in_flight + 1 >= self.window.cwnd;
        if is_full || self.delivered >= self.usage_end || self.in_flight > self.most_in_flight {
            self.cwnd_limited = is_full;
            self.most_in_flight = self.in_flight;
            self.usage_end = self.sent;
        }
    }

    /// One packet that left at `sent` has arrived.
    pub fn on_ack(&mut self, sent: Instant, bytes: u64) {
        let (packets, newest) = self.fresh;
        self.fresh = (packets + self.packets(bytes), newest.max(Some(sent)));
        if let Some(found) = self.found(sent) {
            self.meter.on_arrival(found.at, found.first, found.stamp);
        }
    }

    /// All that one acknowledgment told was told; so much is under way now, and where `is_app_limited` there is nothing more
    /// to send though there might be.
    pub fn on_acks_end(&mut self, now: Instant, in_flight_bytes: u64, is_app_limited: bool) {
        let (acked, newest) = std::mem::take(&mut self.fresh);
        let rtt = newest.map(|sent| now.saturating_since(sent));
        if let Some(rtt) = rtt {
            if self.rtt_min.is_none() {
                self.bbr.begin(now, rtt);
            }
            self.rtt_min = Some(self.rtt_min.map_or(rtt, |least| least.min(rtt)));
        }
        let before = self.in_flight;
        self.in_flight = in_flight_bytes.div_ceil(self.packet_bytes);
        self.delivered += acked;
        let rtt_min = self.rtt_min.unwrap_or(Duration::ZERO);
        let mut sample = self.meter.sample(now, acked, rtt_min, self.lost);
        sample.rtt = rtt;
        sample.in_flight = self.in_flight;
        sample.in_flight_before = before;
        sample.recovering = self.delivered < self.recovered;
        sample.burst = 2;
        sample.cwnd_limited = self.cwnd_limited;
        self.bbr.on_ack(&mut self.window, &sample);
        if is_app_limited || self.bbr.holds_back() {
            self.meter.on_nothing_to_send(self.in_flight);
        }
    }

    /// So many bytes were found lost, the newest of which left at `sent`.
    pub fn on_lost(&mut self, now: Instant, sent: Instant, bytes: u64) {
        self.on_mark();
        let packets = bytes.div_ceil(self.packet_bytes);
        self.in_flight = self.in_flight.saturating_sub(packets);
        let Some(found) = self.found(sent) else {
            self.lost += packets;
            return;
        };
        // Which ones is not told: those of one message count as neighbours, those of two do not.
        let first = found.first + self.lost;
        for n in 0..packets {
            self.lost += 1;
            let loss = Loss {
                now,
                segment: first + n,
                delivered: self.delivered,
                sent_in_flight: u64::from(found.stamp.in_flight).max(1),
                lost_since: found.stamp.lost_since(self.lost),
                app_limited: found.stamp.app_limited,
            };
            self.bbr.on_loss(&self.window, &loss);
        }
    }

    /// A queue on the path marked packets (RFC 3168).
    pub fn on_mark(&mut self) {
        if self.delivered >= self.recovered {
            self.recovered = self.delivered + self.in_flight;
            self.bbr.on_reduction(&self.window, self.delivered);
        }
    }

    /// Nothing arrived for several timeouts: persistent congestion (RFC 9002, section 7.6).
    pub const fn on_silence(&mut self) {
        self.window.cwnd = WINDOW_MIN;
    }

    fn found(&self, sent: Instant) -> Option<Sent> {
        let after = self.log.partition_point(|entry| entry.at <= sent);
        self.log.get(after.checked_sub(1)?).copied()
    }

    fn packets(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.packet_bytes).max(1)
    }
}
