//! What the lab's gateways are seen to do during a trial.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gateway::recorded::{BUSIEST, Record};
use lab::Lab;
use report::model::{GatewayRun, SampleRecord};

/// What the lab's gateways are seen to do during a trial.
pub(super) struct Watching(Mutex<Watched>);

struct Watched {
    records: Vec<Record>,
    readings: Vec<SampleRecord>,
}

impl Watching {
    /// Of all gateways of a lab, from now on.
    pub(super) fn start(lab: &Lab) -> Self {
        let now = sys::clock::monotonic();
        let gateways = lab.gateways().iter().enumerate();
        let records = gateways.map(|(number, gateway)| {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            Record::new(number, now, gateway.counts())
        });
        Self(Mutex::new(Watched {
            records: records.collect(),
            readings: Vec::new(),
        }))
    }

    /// Looks once.
    fn look(&self, lab: &Lab) {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Watched { records, readings } = &mut *watched;
        for (gateway, record) in lab.gateways().iter().zip(records) {
            let (counts, seen) = (gateway.counts(), gateway.look(BUSIEST));
            record.look(sys::clock::monotonic(), counts, &seen, gateway.placed());
            record.set_others(gateway.buffers(), gateway.sampled());
            readings.extend(record.readings());
        }
    }

    /// Looks each second while `going` holds.
    pub(super) fn look_on(&self, lab: &Lab, going: &AtomicBool) {
        let mut next = Instant::now();
        while going.load(Ordering::Relaxed) {
            if Instant::now() >= next {
                next += Duration::from_secs(1);
                self.look(lab);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// What they did, and the readings of it.
    pub(super) fn end(self, lab: &Lab) -> (Vec<GatewayRun>, Vec<SampleRecord>) {
        self.look(lab);
        let watched = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let gateways = lab.gateways().iter().zip(&watched.records);
        let runs = gateways.map(|(g, record)| record.result(g.host().name(), g.config()));
        (runs.collect(), watched.readings)
    }
}
