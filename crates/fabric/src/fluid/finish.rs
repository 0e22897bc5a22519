//! Volumes instead of rates: when each flow has arrived, as others end and leave their shares.

use super::Fluid;

/// What a flow carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Volume {
    /// Host that sends.
    pub from: u32,
    /// Host that receives.
    pub to: u32,
    /// Payload.
    pub bytes: f64,
    /// Most that it gets alone, B/s: see [`Alone`](super::Alone).
    pub alone: f64,
}

impl Fluid<'_> {
    /// When the last byte of each flow has arrived, in seconds after all begin together; 0 for one to itself and for
    /// one that never ends.
    ///
    /// Rates are max-min fair and found anew when flows have ended. Those that end within a twentieth of the time so far
    /// end at their own times, but what they leave is given out when the last of them has ended: a flow is off
    /// by less than that.
    ///
    /// # Panics
    /// When a flow has no way, which checked routes exclude.
    pub fn finish(&mut self, flows: &[Volume]) -> Vec<f64> {
        self.route(flows.iter().map(|f| (f.from, f.to)));
        self.cap(flows);
        let mut left: Vec<f64> = flows.iter().map(|f| f.bytes).collect();
        let mut done = vec![0.0; flows.len()];
        let mut now = 0.0;
        while !self.active.is_empty() {
            self.fill();
            let takes = |n: u32| match self.rates[n as usize] {
                rate if rate > 0.0 => left[n as usize] / rate,
                _ => f64::INFINITY,
            };
            let first = self.active.iter().map(|n| takes(*n));
            let first = first.fold(f64::INFINITY, f64::min);
            if !first.is_finite() {
                break;
            }
            let until = (now + first) * (1.0 + TOGETHER) - now;
            let mut ended = Vec::new();
            let mut last = first;
            for n in &self.active {
                let took = takes(*n);
                if took <= until {
                    done[*n as usize] = now + took;
                    last = last.max(took);
                    ended.push(*n);
                }
            }
            for n in &self.active {
                let rate = self.rates[*n as usize];
                left[*n as usize] = (left[*n as usize] - rate * last).max(0.0);
            }
            now += last;
            self.end(&ended);
        }
        done
    }

    /// What only some flows are held by.
    fn cap(&mut self, flows: &[Volume]) {
        self.caps.clear();
        for (n, flow) in (0..).zip(flows) {
            let way = self.way(n as usize);
            let carries = way.iter().map(|c| self.capacity[*c as usize]);
            let carries = carries.fold(f64::INFINITY, f64::min);
            if !way.is_empty() && flow.alone < carries {
                self.caps.push((flow.alone, n));
            }
        }
        self.caps
            .sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    }

    /// Takes flows, which are in order, from those under way.
    fn end(&mut self, ended: &[u32]) {
        let mut next = ended.iter().copied().peekable();
        let (ways, start, channels) = (&self.ways, &self.start, &mut self.channels);
        self.active.retain(|n| {
            if next.peek() != Some(n) {
                return true;
            }
            next.next();
            for channel in &ways[start[*n as usize] as usize..start[*n as usize + 1] as usize] {
                channels[*channel as usize].active -= 1;
            }
            false
        });
    }
}

/// Flows that end within this share of the time so far leave their shares together.
const TOGETHER: f64 = 0.05;
