//! A transfer over a path, and its packets as a capture point sees them: for tests.
//!
//! The sender is a plain one (RFC 5681 and 6675 in outline, a tail loss probe, a timeout of the round
//! trip and 200 ms), the receiver acknowledges each other segment and sends SACK, DSACK and
//! timestamps. The path has one bottleneck with a drop-tail queue in its middle.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use units::Instant;
use wire::segment::{FlowKey, Segment, SynOptions};
use wire::tcp::{Flags, SackBlocks};

use crate::trace::number::low32;
use crate::trace::{Connection, Limits, Tracker};

#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) one_way: u64,
    /// Where packets are seen: 0 at the sender, 1 at the receiver.
    pub(crate) capture: f64,
    /// Of the bottleneck, bytes a second; zero for none.
    pub(crate) bytes_per_s: u64,
    pub(crate) queue_bytes: u64,
    /// Data packets, counted as sent, that are lost, and where.
    pub(crate) lost: Vec<u64>,
    pub(crate) lost_at: f64,
    /// Data packets that take so much longer behind the sender.
    pub(crate) late: Vec<(u64, u64)>,
    pub(crate) window: u64,
    pub(crate) send_buffer: u64,
    pub(crate) congestion_window_first: u64,
    /// Time between segments; zero for none.
    pub(crate) pace: u64,
    /// The application writes this many bytes each so often, until there were as many.
    pub(crate) write_bytes: u64,
    pub(crate) write_every: u64,
    pub(crate) total_bytes: u64,
    pub(crate) sequence: u32,
    pub(crate) timestamps: bool,
    pub(crate) sack: bool,
}

/// 40 ms of round trip and no limit but slow start.
pub(crate) const PLAIN: Model = Model {
    one_way: 20 * MS,
    capture: 0.0,
    bytes_per_s: 0,
    queue_bytes: 1 << 40,
    lost: Vec::new(),
    lost_at: 0.75,
    late: Vec::new(),
    window: 1 << 28,
    send_buffer: 1 << 28,
    congestion_window_first: 10 * MSS,
    pace: 0,
    write_bytes: 1 << 40,
    write_every: 0,
    total_bytes: 2_000 * MSS,
    sequence: 0xffff_0000,
    timestamps: true,
    sack: true,
};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const MSS: u64 = 1_448;
const CLIENT: u8 = 0;
const SCALE: u8 = 13;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    ToReceiver {
        start: u64,
        len: u64,
        fin: bool,
        value: u32,
    },
    ToSender {
        ack: u64,
        sack: [(u64, u64); 3],
        value: u32,
    },
    Write,
    Pace,
    Timer {
        generation: u64,
        probe: bool,
    },
    DelayedAck {
        generation: u64,
    },
}

struct Run<'a> {
    model: &'a Model,
    now: u64,
    count: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    seen: Vec<(u64, Segment)>,
    // Sender.
    next: u64,
    una: u64,
    written: u64,
    cwnd: f64,
    ssthresh: f64,
    duplicates: u32,
    recover: u64,
    go_back: bool,
    resend_next: u64,
    sacked: BTreeMap<u64, u64>,
    timer: u64,
    probed: bool,
    paced_until: u64,
    packets: u64,
    ip_id: u16,
    fin_sent: bool,
    fin_received: u64,
    echo: u32,
    // Bottleneck.
    free_at: u64,
    // Receiver.
    received: u64,
    later: BTreeMap<u64, u64>,
    waiting: u32,
    delayed: u64,
    recent: u32,
}

/// The packets of a transfer as seen, with their times.
pub(crate) fn packets(model: &Model) -> Vec<(u64, Segment)> {
    let mut run = Run {
        model,
        now: SECOND + 2 * model.one_way,
        count: 0,
        events: BinaryHeap::new(),
        seen: Vec::new(),
        next: 0,
        una: 0,
        written: 0,
        cwnd: model.congestion_window_first as f64,
        ssthresh: f64::INFINITY,
        duplicates: 0,
        recover: 0,
        go_back: false,
        resend_next: 0,
        sacked: BTreeMap::new(),
        timer: 0,
        probed: false,
        paced_until: 0,
        packets: 0,
        ip_id: 1_000,
        fin_sent: false,
        fin_received: 0,
        echo: clock(SECOND + model.one_way),
        free_at: 0,
        received: 0,
        later: BTreeMap::new(),
        waiting: 0,
        delayed: 0,
        recent: clock(SECOND),
    };
    run.handshake();
    run.write();
    while let Some(Reverse((time, _, event))) = run.events.pop() {
        run.now = time;
        run.on(event);
        assert!(run.count < 20_000_000, "the model never ends");
    }
    let mut seen = run.seen;
    seen.sort_by_key(|p| p.0);
    seen
}

/// What the tracker says of these packets, as one connection.
pub(crate) fn track(packets: &[(u64, Segment)]) -> Connection {
    let mut all = connections(packets);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

pub(crate) fn connections(packets: &[(u64, Segment)]) -> Vec<Connection> {
    let mut ended = Vec::new();
    let mut tracker = Tracker::new(Limits::default(), |c| ended.push(c));
    for (frame, (time, segment)) in packets.iter().enumerate() {
        tracker.take(Instant::from_ns(*time), frame as u64 + 1, 0, segment);
    }
    tracker.finish();
    drop(tracker);
    ended
}

fn clock(now: u64) -> u32 {
    low32(now / MS).wrapping_add(7_000)
}

impl Run<'_> {
    fn handshake(&mut self) {
        let (m, start) = (self.model, SECOND);
        let syn = |window| SynOptions {
            mss: Some(1_460),
            window_scale: Some(window),
            sack_permitted: m.sack,
        };
        let there = low32(0).wrapping_add(m.sequence);
        let client = Segment {
            sequence: there,
            flags: Flags::SYN,
            window: 65_535,
            timestamps: m.timestamps.then_some((clock(start), 0)),
            syn: syn(SCALE),
            ..self.segment(CLIENT)
        };
        let server = Segment {
            sequence: 99,
            acknowledgment: there.wrapping_add(1),
            flags: Flags::SYN.with(Flags::ACK),
            window: 65_535,
            timestamps: m
                .timestamps
                .then_some((clock(start + m.one_way), clock(start))),
            syn: syn(SCALE),
            ..self.segment(1)
        };
        let ack = Segment {
            sequence: there.wrapping_add(1),
            acknowledgment: 100,
            flags: Flags::ACK,
            window: 512,
            timestamps: m
                .timestamps
                .then_some((clock(self.now), clock(start + m.one_way))),
            ..self.segment(CLIENT)
        };
        self.seen.push((start + self.part(m.capture), client));
        self.seen
            .push((start + m.one_way + self.part(1.0 - m.capture), server));
        self.seen.push((self.now + self.part(m.capture), ack));
    }

    fn on(&mut self, event: Event) {
        match event {
            Event::ToReceiver {
                start,
                len,
                fin,
                value,
            } => self.receive(start, len, fin, value),
            Event::ToSender { ack, sack, value } => {
                self.echo = value;
                self.on_ack(ack, sack);
            }
            Event::Write => self.write(),
            Event::Pace => self.send(),
            Event::Timer { generation, probe } if generation == self.timer => self.on_timer(probe),
            Event::DelayedAck { generation } if generation == self.delayed => {
                self.acknowledge(None)
            }
            Event::Timer { .. } | Event::DelayedAck { .. } => {}
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((time, self.count, event)));
    }

    fn part(&self, fraction: f64) -> u64 {
        crate::trace::number::whole(self.model.one_way as f64 * fraction)
    }

    fn segment(&self, from: u8) -> Segment {
        Segment {
            flow: FlowKey {
                addresses: [[1; 16], [2; 16]],
                ports: [40_000, 5_201],
            },
            from,
            ..Segment::default()
        }
    }

    fn write(&mut self) {
        let m = self.model;
        self.written = (self.written.saturating_add(m.write_bytes)).min(m.total_bytes);
        if self.written < m.total_bytes {
            self.at(self.now + m.write_every, Event::Write);
        }
        self.send();
    }

    fn in_flight(&self) -> u64 {
        let sacked: u64 = self.sacked.iter().map(|(a, b)| b - a).sum();
        (self.next - self.una).saturating_sub(sacked)
    }

    fn send(&mut self) {
        loop {
            let room = (self.una + self.model.window.min(self.model.send_buffer))
                .saturating_sub(self.next);
            let len = MSS.min(self.written - self.next);
            if len == 0 || room < len || (self.in_flight() + len) as f64 > self.cwnd {
                break;
            }
            if self.model.pace > 0 && self.now < self.paced_until {
                self.at(self.paced_until, Event::Pace);
                break;
            }
            self.paced_until = self.now + self.model.pace;
            let start = self.next;
            self.next += len;
            self.transmit(start, len);
        }
        if self.next == self.model.total_bytes && !self.fin_sent && self.una == self.next {
            self.fin_sent = true;
            self.transmit(self.next, 0);
        }
    }

    fn transmit(&mut self, start: u64, len: u64) {
        let m = self.model;
        self.packets += 1;
        self.ip_id = self.ip_id.wrapping_add(1);
        let fin = len == 0;
        let flags = if fin {
            Flags::ACK.with(Flags::FIN)
        } else {
            Flags::ACK
        };
        let value = clock(self.now);
        let segment = Segment {
            sequence: low32(start).wrapping_add(m.sequence).wrapping_add(1),
            acknowledgment: 100,
            flags,
            window: 512,
            payload_bytes: low32(len),
            ip_id: self.ip_id,
            timestamps: m.timestamps.then_some((value, self.echo)),
            ..self.segment(CLIENT)
        };
        let late = m
            .late
            .iter()
            .find(|l| l.0 == self.packets)
            .map_or(0, |l| l.1);
        let sent = self.now + late;
        let lost = m.lost.contains(&self.packets);
        // Half the path, the bottleneck, the other half.
        let mut reached = sent + self.part(0.5);
        let dropped = if m.bytes_per_s > 0 && !(lost && m.lost_at < 0.5) {
            let waiting = self.free_at.saturating_sub(reached);
            let queued = waiting * m.bytes_per_s / SECOND;
            if queued + len > m.queue_bytes {
                true
            } else {
                reached = reached.max(self.free_at) + (len + 66) * SECOND / m.bytes_per_s;
                self.free_at = reached;
                false
            }
        } else {
            false
        };
        let at = |fraction: f64| match fraction < 0.5 {
            true => sent + self.part(fraction),
            false => reached + self.part(fraction - 0.5),
        };
        let (captured, arrival) = (at(m.capture), at(1.0));
        let gone = if dropped {
            0.5
        } else if lost {
            m.lost_at
        } else {
            2.0
        };
        if m.capture < gone {
            self.seen.push((captured, segment));
        }
        if gone > 1.0 {
            self.at(
                arrival,
                Event::ToReceiver {
                    start,
                    len,
                    fin,
                    value,
                },
            );
        }
        self.set_timer();
    }

    fn set_timer(&mut self) {
        self.timer += 1;
        let probe = !self.probed && self.una >= self.recover;
        let rtt = 2 * self.model.one_way;
        let after = if probe {
            2 * rtt + 2 * MS
        } else {
            rtt + 200 * MS
        };
        let generation = self.timer;
        self.at(self.now + after, Event::Timer { generation, probe });
    }

    fn on_timer(&mut self, probe: bool) {
        if self.una >= self.next {
            return;
        }
        if probe {
            self.probed = true;
            let len = MSS.min(self.next - self.una);
            return self.transmit(self.next - len, len);
        }
        self.ssthresh = (self.in_flight() as f64 / 2.0).max(2.0 * MSS as f64);
        self.cwnd = MSS as f64;
        self.recover = self.next;
        self.resend_next = self.una;
        self.sacked.clear();
        self.go_back = true;
        self.resend();
    }

    /// Sends the next hole once more.
    fn resend(&mut self) {
        let mut start = self.resend_next.max(self.una);
        while let Some((_, &end)) = self
            .sacked
            .range(..=start)
            .next_back()
            .filter(|s| *s.1 > start)
        {
            start = end;
        }
        let top = match self.sacked.last_key_value() {
            _ if self.go_back => self.recover,
            Some(last) => *last.1,
            None if self.model.sack => self.una,
            None => self.una + 1,
        };
        if start >= top.min(self.recover) {
            return;
        }
        let len = MSS.min(self.next - start);
        self.resend_next = start + len;
        self.transmit(start, len);
    }

    fn on_ack(&mut self, ack: u64, sack: [(u64, u64); 3]) {
        for (a, b) in sack.into_iter().filter(|s| s.1 > s.0 && s.0 >= ack) {
            let end = self.sacked.get(&a).map_or(b, |&e| e.max(b));
            self.sacked
                .retain(|&l, r| !(a <= l && *r <= end || l < end && a < *r));
            self.sacked.insert(a, end);
        }
        if ack > self.una {
            let acked = (ack - self.una) as f64;
            self.una = ack;
            self.sacked.retain(|_, end| *end > ack);
            self.duplicates = 0;
            self.probed = false;
            if self.una < self.recover {
                self.resend();
                if self.cwnd < self.ssthresh {
                    self.cwnd += acked.min(2.0 * MSS as f64);
                }
            } else {
                self.recover = 0;
                self.go_back = false;
                if self.cwnd < self.ssthresh {
                    self.cwnd += acked;
                } else {
                    self.cwnd += MSS as f64 * acked / self.cwnd;
                }
            }
            self.set_timer();
        } else if self.next > self.una {
            self.duplicates += 1;
            if self.duplicates == 3 && self.una >= self.recover {
                self.ssthresh = (self.in_flight() as f64 * 0.7).max(2.0 * MSS as f64);
                self.cwnd = self.ssthresh;
                self.recover = self.next;
                self.resend_next = self.una;
                self.resend();
            } else if self.duplicates > 3 && self.una < self.recover {
                self.resend();
            }
        }
        self.send();
    }

    fn receive(&mut self, start: u64, len: u64, fin: bool, value: u32) {
        let end = start + len;
        if start <= self.received && end > self.received {
            self.recent = value;
        }
        if fin {
            self.fin_received = 1;
            return self.acknowledge(None);
        }
        if end <= self.received {
            return self.acknowledge(Some((start, end)));
        }
        if start > self.received {
            self.later.insert(start, end);
            return self.acknowledge(None);
        }
        self.received = end;
        let mut filled = false;
        while let Some((&a, &b)) = self
            .later
            .first_key_value()
            .filter(|l| *l.0 <= self.received)
        {
            self.later.remove(&a);
            self.received = self.received.max(b);
            filled = true;
        }
        self.waiting += 1;
        if self.waiting >= 2 || filled || !self.later.is_empty() {
            return self.acknowledge(None);
        }
        self.delayed += 1;
        let generation = self.delayed;
        self.at(self.now + 40 * MS, Event::DelayedAck { generation });
    }

    fn acknowledge(&mut self, again: Option<(u64, u64)>) {
        let m = self.model;
        self.waiting = 0;
        self.delayed += 1;
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (&a, &b) in &self.later {
            match ranges.last_mut() {
                Some(last) if last.1 == a => last.1 = b,
                _ => ranges.push((a, b)),
            }
        }
        let mut blocks = [(0, 0); 3];
        let list = again.into_iter().chain(ranges.into_iter().rev());
        for (to, from) in blocks.iter_mut().zip(list) {
            *to = from;
        }
        let number = |n: u64| low32(n).wrapping_add(m.sequence).wrapping_add(1);
        let sack: Vec<(u32, u32)> = blocks
            .iter()
            .filter(|b| b.1 > b.0 && m.sack)
            .map(|b| (number(b.0), number(b.1)))
            .collect();
        let segment = Segment {
            sequence: 100,
            acknowledgment: number(self.received + self.fin_received),
            flags: Flags::ACK,
            window: u16::try_from(m.window >> SCALE).unwrap_or(u16::MAX),
            timestamps: m.timestamps.then_some((clock(self.now), self.recent)),
            sack: SackBlocks::new(&sack),
            ..self.segment(1)
        };
        self.seen
            .push((self.now + self.part(1.0 - m.capture), segment));
        let (ack, value) = (self.received, clock(self.now));
        self.at(
            self.now + m.one_way,
            Event::ToSender {
                ack,
                sack: blocks,
                value,
            },
        );
    }
}

pub(crate) const SECOND: u64 = 1_000 * MS;
