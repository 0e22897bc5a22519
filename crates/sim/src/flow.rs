//! A connection: its two ends, its way there and back, and what of it travels.

use std::collections::VecDeque;

use link::Train;
use tcp::{AckRun, Receiver, ReceiverConfig, Sender, SenderConfig, SenderInfo};
use units::Instant;

use crate::world::Hop;

/// A connection that is to be simulated.
#[derive(Clone, Debug)]
pub struct FlowSpec {
    /// Links that data take, in their order; at least one.
    pub forward: Vec<Hop>,
    /// Links that acknowledgments take; at least one.
    pub backward: Vec<Hop>,
    /// The sending end.
    pub sender: SenderConfig,
    /// The receiving end.
    pub receiver: ReceiverConfig,
    /// When its SYN leaves.
    pub start: Instant,
    /// Bytes of IP and TCP headers with the options that every segment has: 52 for IPv4 with timestamps.
    pub header_bytes: u32,
    /// Segments that come together are taken as one (GRO and LRO).
    pub gathers: bool,
    /// The bus of the sending host, by its number.
    pub bus: Option<usize>,
}

/// How a flow stands.
#[derive(Clone, Copy, Debug)]
pub struct FlowInfo {
    /// The sender, once it is connected.
    pub sender: Option<SenderInfo>,
    /// Segments that the receiver has in order.
    pub received: u64,
    /// The same in payload bytes.
    pub received_bytes: u64,
    /// Segments that came twice.
    pub duplicates: u64,
    /// Data segments that were sent, copies included.
    pub data_packets: u64,
    /// Acknowledgments that were sent.
    pub ack_packets: u64,
    /// Acknowledgments that the sender took in.
    pub acks_in: u64,
    /// Bytes of the receive window.
    pub window_bytes: u64,
    /// Bytes of frames that the sender's host has and its bus has not moved yet.
    pub in_host_bytes: u64,
    /// When the last segment of a sized transfer was acknowledged.
    pub done_at: Option<Instant>,
}

/// What waits in the sender's host for its bus, or is on it.
#[derive(Debug, Default)]
pub(crate) struct HostQueue {
    /// When the bus begins with each.
    waiting: VecDeque<(Instant, Train)>,
    /// When the bus is through with each burst, and its bytes.
    moving: VecDeque<(Instant, u64)>,
    bytes: u64,
}

impl HostQueue {
    /// A burst of so many bytes is to be through at `done`.
    pub(crate) fn take(&mut self, done: Instant, bytes: u64) {
        self.moving.push_back((done, bytes));
        self.bytes += bytes;
    }

    /// A train with which the bus begins at its time.
    pub(crate) fn wait(&mut self, train: Train) {
        self.waiting.push_back((train.at, train));
    }

    /// The next train with which the bus has begun by `now`.
    pub(crate) fn begun(&mut self, now: Instant) -> Option<Train> {
        self.waiting.pop_front_if(|(at, _)| *at <= now).map(|w| w.1)
    }

    /// What the bus was through with by `now` is forgotten; what is left, bytes.
    pub(crate) fn settle(&mut self, now: Instant) -> u64 {
        while let Some((_, bytes)) = self.moving.pop_front_if(|(done, _)| *done <= now) {
            self.bytes -= bytes;
        }
        self.bytes
    }

    /// When the bus begins with the next train.
    pub(crate) fn next(&self) -> Instant {
        self.waiting.front().map_or(Instant::MAX, |w| w.0)
    }

    /// When no more than `limit` bytes will be left.
    pub(crate) fn down_to(&self, limit: u64) -> Instant {
        let mut left = self.bytes;
        let through = self.moving.iter().find(|(_, bytes)| {
            left -= bytes;
            left <= limit
        });
        through.map_or(Instant::MAX, |m| m.0)
    }
}

/// A connection in motion.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) spec: FlowSpec,
    pub(crate) sender: Option<Sender>,
    pub(crate) receiver: Receiver,
    /// Acknowledgments on their way; the first has number `first_ack`.
    acks: VecDeque<AckRun>,
    first_ack: u64,
    /// Segment that tells of a reduced window, while it is on its way.
    pub(crate) reduced_at: Option<u64>,
    pub(crate) data_packets: u64,
    pub(crate) ack_packets: u64,
    pub(crate) acks_in: u64,
    pub(crate) done_at: Option<Instant>,
    pub(crate) syn_at: Instant,
    pub(crate) host: HostQueue,
    /// When its host is to be looked at again.
    pub(crate) bus_at: Instant,
}

impl Flow {
    pub(crate) fn new(spec: FlowSpec) -> Self {
        Self {
            receiver: Receiver::new(&spec.receiver),
            sender: None,
            acks: VecDeque::with_capacity(1024),
            first_ack: 0,
            reduced_at: None,
            data_packets: 0,
            ack_packets: 0,
            acks_in: 0,
            done_at: None,
            syn_at: spec.start,
            host: HostQueue::default(),
            bus_at: Instant::MAX,
            spec,
        }
    }

    /// Keeps acknowledgments until they arrive; their number.
    pub(crate) fn keep(&mut self, run: AckRun) -> u64 {
        self.ack_packets += u64::from(run.count);
        self.acks.push_back(run);
        self.first_ack + self.acks.len() as u64 - 1
    }

    /// The acknowledgments of that number, of which one has arrived. Older ones may still be overtaken,
    /// but not by more than [`OVERTAKEN_MAX`] runs: those count as lost.
    pub(crate) fn arrived(&mut self, number: u64) -> Option<AckRun> {
        let keep = number.saturating_sub(OVERTAKEN_MAX);
        while self.first_ack < keep && self.acks.pop_front().is_some() {
            self.first_ack += 1;
        }
        let place = usize::try_from(number.checked_sub(self.first_ack)?).ok()?;
        self.acks.get(place).copied()
    }

    /// The acknowledgments of that number.
    pub(crate) fn kept(&self, number: u64) -> Option<&AckRun> {
        let place = number.checked_sub(self.first_ack)?;
        usize::try_from(place).ok().and_then(|p| self.acks.get(p))
    }

    /// Bytes of options of the acknowledgments of that number.
    pub(crate) fn option_bytes(&self, number: u64) -> u32 {
        self.kept(number).map_or(0, |r| r.first.option_bytes())
    }

    /// Network bytes of segment `n`.
    pub(crate) fn packet_bytes(&self, n: u64) -> u32 {
        let full = u64::from(self.spec.sender.segment_bytes);
        let payload = self
            .spec
            .sender
            .data_bytes
            .map_or(full, |all| all.saturating_sub(n * full).min(full));
        u32::try_from(payload).unwrap_or(0) + self.spec.header_bytes
    }

    /// Number of the last segment if it is smaller than the others.
    pub(crate) fn short_segment(&self) -> Option<u64> {
        let all = self.spec.sender.data_bytes?;
        let full = u64::from(self.spec.sender.segment_bytes);
        (!all.is_multiple_of(full)).then_some(all / full)
    }

    /// When its sender is to be called.
    pub(crate) fn sender_at(&self) -> Instant {
        let at = self
            .sender
            .as_ref()
            .map_or(Instant::MAX, Sender::next_timeout);
        at.min(self.bus_at)
    }

    pub(crate) fn info(&self) -> FlowInfo {
        let received = self.receiver.received();
        let bytes = received * u64::from(self.spec.sender.segment_bytes);
        FlowInfo {
            sender: self.sender.as_ref().map(Sender::info),
            received,
            received_bytes: self
                .spec
                .sender
                .data_bytes
                .map_or(bytes, |all| bytes.min(all)),
            duplicates: self.receiver.duplicates(),
            data_packets: self.data_packets,
            ack_packets: self.ack_packets,
            acks_in: self.acks_in,
            window_bytes: self.receiver.window_bytes(),
            in_host_bytes: self.host.bytes,
            done_at: self.done_at,
        }
    }
}

/// Runs of acknowledgments that one may overtake and that are still taken when they come.
const OVERTAKEN_MAX: u64 = 1024;
