//! Dynamic gap control of simulated flows: what `goodput measure --pacing auto` does to sockets.

use tcp::gap_control::{GapControl, Phase, Reading};
use units::{Duration, Instant, Rate, Rng};

use crate::world::World;

/// A reading is late by up to this, as a thread that sleeps is.
const LATE_MAX_NS: u64 = 150_000;

/// A controller for each flow of a world. The flows' pacing has to be [`tcp::Pacing::Rate`].
#[derive(Clone, Debug)]
pub struct Gaps {
    flows: Vec<Steered>,
    rng: Rng,
}

#[derive(Clone, Debug)]
struct Steered {
    control: GapControl,
    segment_bytes: u64,
    due: Instant,
    ceiling: Option<Rate>,
}

impl Gaps {
    /// Controllers that know nothing yet, of flows whose segments have so many payload bytes.
    pub fn new(seed: u64, segment_bytes: &[u32]) -> Self {
        let mut rng = Rng::new(seed ^ 0x9E37_79B9_7F4A_7C15);
        let flow = |&bytes: &u32| Steered {
            control: GapControl::new(rng.next_u64()),
            segment_bytes: bytes.into(),
            due: Instant::ZERO,
            ceiling: None,
        };
        Self {
            flows: segment_bytes.iter().map(flow).collect(),
            rng,
        }
    }

    /// The world's [`World::run_until`], with the controllers' readings in between.
    pub fn run_until(&mut self, world: &mut World, to: Instant) {
        while let Some(due) = self.flows.iter().map(|f| f.due).min()
            && due <= to
        {
            world.run_until(due);
            for number in 0..self.flows.len() {
                if self.flows[number].due <= due {
                    self.turn(world, number);
                }
            }
        }
        world.run_until(to);
    }

    /// What a flow is held to, payload; `None` before there is anything.
    pub fn ceiling(&self, number: usize) -> Option<Rate> {
        self.flows[number].ceiling
    }

    /// What a flow's controller has found, payload.
    pub fn found(&self, number: usize) -> Option<Rate> {
        self.flows[number].control.found()
    }

    /// Where a flow's search stands.
    pub fn phase(&self, number: usize) -> Phase {
        self.flows[number].control.phase()
    }

    fn turn(&mut self, world: &mut World, number: usize) {
        let now = world.now();
        let flow = &mut self.flows[number];
        let late = Duration::from_ns(self.rng.next_u64() % LATE_MAX_NS);
        flow.due = now + flow.control.interval() + late;
        let Some(info) = world.flow(number).sender else {
            return;
        };
        let reading = Reading {
            delivered: info.delivered * flow.segment_bytes,
            retransmitted: info.retransmitted * flow.segment_bytes,
            round_trip: info.rtt,
            // What the receiver's window does not let out says nothing of the path.
            held_up: info.window == 0,
        };
        if let Some(rate) = flow.control.on_reading(now, &reading) {
            world.set_pacing_rate(number, rate);
            flow.ceiling = Some(rate);
        }
    }
}
