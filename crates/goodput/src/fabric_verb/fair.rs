//! What sharing alone would do: flows as fluids over their routes, each link divided fairly among those that can use it.
//!
//! Rates are max-min fair and change whenever a flow ends. Nothing waits behind anything else here, so what the packets
//! of the engine lose beside this is blocking, not sharing.

/// A volume on its way.
#[derive(Clone, Debug)]
pub(super) struct Fluid {
    /// Payload.
    pub(super) bytes: f64,
    /// What it gets alone, bytes a second.
    pub(super) alone: f64,
    /// Parts that it shares with others, by number.
    pub(super) over: Vec<u32>,
}

/// When each has arrived, in seconds; `capacity` of each part in bytes a second.
pub(super) fn finish(flows: &[Fluid], capacity: &[f64]) -> Vec<f64> {
    let mut left: Vec<f64> = flows.iter().map(|f| f.bytes).collect();
    let mut done = vec![0.0; flows.len()];
    let mut active: Vec<usize> = (0..flows.len()).collect();
    let mut now = 0.0;
    while !active.is_empty() {
        let rates = rates(flows, &active, capacity);
        let next = active
            .iter()
            .zip(&rates)
            .map(|(n, rate)| left[*n] / rate.max(RATE_MIN))
            .fold(f64::INFINITY, f64::min);
        now += next;
        let mut still = Vec::new();
        for (n, rate) in active.iter().zip(&rates) {
            left[*n] -= rate * next;
            if left[*n] <= flows[*n].bytes * DONE {
                done[*n] = now;
            } else {
                still.push(*n);
            }
        }
        if still.len() == active.len() {
            // Rounding: whoever is nearest is done.
            for n in still.drain(..) {
                done[n] = now;
            }
        }
        active = still;
    }
    done
}

/// Max-min fair rates of the active flows: the part with the least share for each of its flows is filled first.
fn rates(flows: &[Fluid], active: &[usize], capacity: &[f64]) -> Vec<f64> {
    let mut room = capacity.to_vec();
    let mut users = vec![0_u32; capacity.len()];
    for n in active {
        for part in &flows[*n].over {
            users[*part as usize] += 1;
        }
    }
    let mut found = vec![0.0; active.len()];
    let mut open: Vec<usize> = (0..active.len()).collect();
    while !open.is_empty() {
        let share = |part: u32| room[part as usize] / f64::from(users[part as usize].max(1));
        let of = |place: usize| {
            let flow = &flows[active[place]];
            let shares = flow.over.iter().map(|part| share(*part));
            shares.fold(flow.alone, f64::min)
        };
        let shares: Vec<f64> = open.iter().map(|place| of(*place)).collect();
        let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
        let mut still = Vec::new();
        for (place, share) in open.iter().zip(&shares) {
            if *share > least * (1.0 + SAME) {
                still.push(*place);
                continue;
            }
            found[*place] = least;
            for part in &flows[active[*place]].over {
                room[*part as usize] = (room[*part as usize] - least).max(0.0);
                users[*part as usize] -= 1;
            }
        }
        open = still;
    }
    found
}

/// No flow stands still.
const RATE_MIN: f64 = 1.0;
/// A flow with less of its volume left is done.
const DONE: f64 = 1e-9;
/// Shares that differ by less are the same.
const SAME: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;

    fn fluid(bytes: f64, over: &[u32]) -> Fluid {
        Fluid {
            bytes,
            alone: 10.0,
            over: over.to_vec(),
        }
    }

    #[test]
    fn flows_share_and_take_what_others_leave() {
        // Two on part 0, one of them on the narrow part 1 too.
        let flows = [fluid(10.0, &[0]), fluid(10.0, &[0, 1])];
        let done = finish(&flows, &[10.0, 2.0]);
        assert!((done[0] - 10.0 / 8.0).abs() < 1e-9, "{done:?}");
        assert!((done[1] - 5.0).abs() < 1e-9, "{done:?}");
        // Equal ones end together; alone each is held by itself.
        let done = finish(&[fluid(10.0, &[0]), fluid(10.0, &[0])], &[10.0]);
        assert!(done.iter().all(|d| (d - 2.0).abs() < 1e-9), "{done:?}");
        let done = finish(&[fluid(10.0, &[0]), fluid(20.0, &[0])], &[10.0]);
        assert!((done[1] - 3.0).abs() < 1e-9, "{done:?}");
    }
}
