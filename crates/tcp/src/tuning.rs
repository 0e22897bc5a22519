//! The receive window: how far a receiver lets the sender go, and how its buffer grows by itself.
//!
//! Linux's dynamic right-sizing (net/ipv4/tcp_input.c, `tcp_rcv_space_adjust`): once a round trip, what the
//! application took since is looked at; where it is more than ever, the buffer grows to twice that and the growth
//! over again, so that it stays ahead of slow start. Beside it the window itself may grow by two segments for
//! each that comes (`tcp_grow_window`). The application reads at once. The round trip is that of the handshake: Linux
//! takes the one that timestamps give, queues included, and so may grow a little sooner on full queues.

use units::{Duration, Instant};

use crate::config::ReceiverConfig;

/// Room for data at the receiver.
#[derive(Clone, Debug)]
pub(crate) struct Tuning {
    segment_bytes: u64,
    buffer_max: u64,
    /// Most that may be told, bytes.
    clamp: u64,
    /// What is told now.
    window: u64,
    /// Most of what was taken in a round trip.
    space: u64,
    round_trip: Duration,
    round_start: Instant,
    round_next: u64,
    scale: u32,
}

impl Tuning {
    pub(crate) fn new(config: &ReceiverConfig) -> Self {
        let segment_bytes = u64::from(config.segment_bytes);
        let largest = config.buffer_bytes_max.max(config.buffer_bytes);
        let scale = if config.scaling {
            scale_for(largest)
        } else {
            0
        };
        let limit = if config.scaling {
            u64::MAX
        } else {
            UNSCALED_MAX
        };
        let clamp = window_of(config.buffer_bytes, segment_bytes).min(limit);
        Self {
            segment_bytes,
            buffer_max: config.buffer_bytes_max,
            clamp,
            window: clamp.min(UNSCALED_MAX),
            // Linux, `tcp_init_buffer_space`.
            space: (10 * segment_bytes).min(clamp).min(UNSCALED_MAX),
            round_trip: Duration::from_ms(1),
            round_start: Instant::ZERO,
            round_next: 0,
            scale,
        }
    }

    pub(crate) const fn set_round_trip(&mut self, now: Instant, round_trip: Duration) {
        self.round_trip = round_trip;
        self.round_start = now;
    }

    /// True when nothing is to be done for segments that come until `last`.
    pub(crate) fn is_steady(&self, last: Instant) -> bool {
        self.window >= self.clamp && last.saturating_since(self.round_start) < self.round_trip
    }

    /// `segments` came, and `next` is what is waited for.
    pub(crate) fn on_data(&mut self, now: Instant, segments: u64, next: u64) {
        if self.window < self.clamp {
            let grown = self.window + 2 * self.segment_bytes * segments;
            self.window = grown.min(self.clamp);
        }
        if now.saturating_since(self.round_start) >= self.round_trip {
            self.next_round(now, next);
        }
    }

    fn next_round(&mut self, now: Instant, next: u64) {
        let copied = (next - self.round_next) * self.segment_bytes;
        self.round_start = now;
        self.round_next = next;
        if copied <= self.space {
            return;
        }
        let wanted = 2 * copied + 16 * self.segment_bytes;
        let growth = u128::from(wanted) * u128::from(copied - self.space) / u128::from(self.space);
        let growth = u64::try_from(growth).unwrap_or(u64::MAX);
        let wanted = wanted.saturating_add(growth.saturating_mul(2));
        self.space = copied;
        if self.scale > 0 {
            self.clamp = self
                .clamp
                .max(wanted.min(window_of(self.buffer_max, self.segment_bytes)));
        }
    }

    /// Segments that may be sent beyond what is acknowledged. A window is told in steps of its
    /// scale, rounded up as Linux does.
    pub(crate) fn segments(&self) -> u64 {
        // The segment that is answered still waits to be read.
        let free = self
            .window
            .saturating_sub(self.segment_bytes)
            .max(self.segment_bytes);
        let step = 1 << self.scale;
        let told = free.div_ceil(step) * step;
        told.min(UNSCALED_MAX << self.scale) / self.segment_bytes
    }

    /// Bytes of the window.
    pub(crate) const fn window_bytes(&self) -> u64 {
        self.window
    }
}

/// Of a buffer's bytes, what may be payload: the rest is the kernel's own book-keeping, which Linux
/// takes from the packets that come (`tcp_measure_rcv_mss`).
///
/// The memory of a packet is that of the lab's hosts, whose packets come from a packet socket: up to a page in one
/// piece of a power of two, above it headers and whole pages. Of 1448-byte segments that is 0.625; runs in the lab had
/// 26.9 of them in flight with 64 KiB of buffer and 111.3 with 256 KiB, this model 27 and 112.
const fn window_of(buffer: u64, segment_bytes: u64) -> u64 {
    let frame = segment_bytes + FRAME_HEADERS;
    let memory = if frame + SHARED_INFO <= PAGE {
        (frame + SHARED_INFO).next_power_of_two() + PACKET
    } else {
        frame.next_multiple_of(PAGE) + 4 * PACKET
    };
    let ratio = segment_bytes * 256 / memory;
    let ratio = if ratio == 0 { 1 } else { ratio };
    let part = (buffer / 256).saturating_mul(ratio);
    part + buffer % 256 * ratio / 256
}

const FRAME_HEADERS: u64 = 66;
const PAGE: u64 = 4096;
/// Linux, `struct sk_buff` and `struct skb_shared_info` of x86-64.
const PACKET: u64 = 256;
const SHARED_INFO: u64 = 320;

/// RFC 7323 2.3: as much as the largest window needs, at most 14.
const fn scale_for(largest: u64) -> u32 {
    let mut scale = 0;
    while scale < 14 && (UNSCALED_MAX << scale) < largest {
        scale += 1;
    }
    scale
}

const UNSCALED_MAX: u64 = 65_535;
