//! Congestion control of links over QUIC: [`tcp::model`], as quinn-proto asks for it.
//!
//! quinn-proto paces by the window alone, a quarter faster than one window a round trip, and the model's window is two
//! rounds; so the model's own rate is kept by whoever takes packets out ([`super::engine`]), who reads it off the metrics.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use tcp::model::Model;

/// Packets that a connection begins with (RFC 9002, section 7.2).
const INITIAL_PACKETS: u64 = 10;
/// Packets that may be under way at least (the same).
const WINDOW_PACKETS_MIN: u64 = 2;

/// Makes one for each connection.
#[derive(Debug, Default)]
pub(super) struct Factory {
    made: AtomicU64,
}

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let seed = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        Box::new(Control {
            model: Model::new(current_mtu.into(), INITIAL_PACKETS, seed),
            epoch: now,
            packet_bytes: current_mtu.into(),
        })
    }
}

#[derive(Clone, Debug)]
struct Control {
    model: Model,
    epoch: Instant,
    packet_bytes: u64,
}

impl Control {
    /// As the model counts time, which begins at 0: a second in, so that nothing is before it.
    fn at(&self, time: Instant) -> units::Instant {
        let since = time.saturating_duration_since(self.epoch).as_nanos();
        units::Instant::from_ns(1_000_000_000 + u64::try_from(since).unwrap_or(u64::MAX / 2))
    }
}

impl Controller for Control {
    fn on_sent(&mut self, now: Instant, bytes: u64, _last_packet_number: u64) {
        self.model.on_sent(self.at(now), bytes);
    }

    fn on_ack(
        &mut self,
        _now: Instant,
        sent: Instant,
        bytes: u64,
        _app_limited: bool,
        _rtt: &RttEstimator,
    ) {
        self.model.on_ack(self.at(sent), bytes);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        _largest_packet_num_acked: Option<u64>,
    ) {
        self.model.on_acks_end(self.at(now), in_flight, app_limited);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        match lost_bytes {
            0 => self.model.on_mark(),
            _ => self.model.on_lost(self.at(now), self.at(sent), lost_bytes),
        }
        if is_persistent_congestion {
            self.model.on_silence();
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.packet_bytes = new_mtu.into();
        self.model.resize(new_mtu.into());
    }

    fn window(&self) -> u64 {
        let least = WINDOW_PACKETS_MIN * self.packet_bytes;
        self.model.window_bytes().max(least)
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        metrics.pacing_rate = self.model.pacing_rate().map(|rate| rate.saturating_mul(8));
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.model.initial_window_bytes()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
