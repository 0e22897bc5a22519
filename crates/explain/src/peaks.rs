//! Whether packets are lost where most arrive, as at a limit of any kind, or well below what came through
//! at another time without a loss.
//!
//! Time is cut into sections of a second, or three round trips where those are longer, all connections
//! together. What arrives around a loss is the larger of its section's rate and the one's before, since a
//! sender has slowed down by the time that it knows. Left out: bursts within a section.

use throughput::Sample;
use throughput::shares::delta_u32;
use units::Duration;

/// Share of the sections with a loss in which, and before which, less than [`BELOW`] of the fastest
/// section's packets arrived; `None` where fewer than [`LOSSY_MIN`] sections had a loss.
pub(crate) fn lost_below_peak(streams: &[&[Sample]], idle_rtt: Duration) -> Option<f64> {
    let section = Duration::from_s(1).max(idle_rtt.saturating_mul(3)).as_ns();
    let start = streams
        .iter()
        .filter_map(|s| s.first())
        .map(|s| s.t)
        .min()?;
    let end = streams.iter().filter_map(|s| s.last()).map(|s| s.t).max()?;
    // What is left over at the end is no section.
    let count = (end - start).as_ns() / section;
    let mut sections = vec![(0_u64, 0_u64); usize::try_from(count.min(SECTIONS_MAX)).ok()?];
    for pair in streams.iter().flat_map(|s| s.windows(2)) {
        let number = (pair[1].t - start).as_ns().saturating_sub(1) / section;
        let place = usize::try_from(number).ok();
        let Some((arrived, lost)) = place.and_then(|n| sections.get_mut(n)) else {
            continue;
        };
        let (from, to) = (&pair[0].info, &pair[1].info);
        let again = delta_u32(from.total_retrans_segments, to.total_retrans_segments);
        let sent = delta_u32(from.data_segs_out, to.data_segs_out);
        *arrived = arrived.saturating_add(sent.saturating_sub(again));
        *lost = lost.saturating_add(again);
    }
    let peak = sections.iter().map(|s| s.0).max().filter(|&p| p > 0)? as f64;
    let around = |n: usize| sections[n].0.max(sections[n.saturating_sub(1)].0) as f64;
    let lossy: Vec<usize> = (0..sections.len()).filter(|&n| sections[n].1 > 0).collect();
    let below = lossy.iter().filter(|&&n| around(n) < BELOW * peak).count();
    (lossy.len() >= LOSSY_MIN).then(|| below as f64 / lossy.len() as f64)
}

/// After a loss CUBIC sends 0.7 of what it did (RFC 9438, 4.6), and a limit loses nothing there.
const BELOW: f64 = 0.75;
/// Fewer say nothing; chosen.
const LOSSY_MIN: usize = 3;
/// A day of seconds.
const SECTIONS_MAX: u64 = 86_400;

#[cfg(test)]
mod tests {
    use units::Bytes;
    use wire::tcp_info::TcpInfo;

    use super::*;

    /// Readings at the ends of sections of a second: packets sent in each and how many of them again.
    fn readings(sections: &[(u64, u64)]) -> Vec<Sample> {
        let mut info = TcpInfo::default();
        let mut samples = Vec::new();
        for (n, &(sent, again)) in [(0, 0)].iter().chain(sections).enumerate() {
            info.data_segs_out += sent;
            info.total_retrans_segments += again;
            samples.push(Sample {
                t: Duration::from_s(10 + n as u64),
                info,
                app_bytes: Bytes::default(),
            });
        }
        samples
    }

    fn share(sections: &[(u64, u64)]) -> Option<f64> {
        let samples = readings(sections);
        lost_below_peak(&[&samples], Duration::from_ms(20))
    }

    #[test]
    fn a_sawtooth_below_a_limit_loses_at_its_peaks() {
        // The loss is known in the section after, when the sender has slowed down.
        let tooth = [(80, 0), (90, 0), (100, 0), (70, 5)];
        assert_eq!(share(&tooth.repeat(3)), Some(0.0));
        assert_eq!(share(&[(100, 1); 5]), Some(0.0));
    }

    #[test]
    fn losses_far_below_what_comes_through_later_are_at_no_limit() {
        let growing = [
            (40, 1),
            (50, 9),
            (55, 1),
            (74, 3),
            (90, 0),
            (99, 1),
            (100, 0),
        ];
        assert_eq!(share(&growing), Some(0.8));
        // Of those sent one did not arrive: 74 are below three quarters, 75 are not.
        let edge = [(75, 1), (75, 1), (75, 1), (100, 0)];
        assert_eq!(share(&edge), Some(1.0));
        let edge = [(76, 1), (76, 1), (76, 1), (100, 0)];
        assert_eq!(share(&edge), Some(0.0));
    }

    #[test]
    fn few_losses_and_no_time_say_nothing() {
        assert_eq!(share(&[(10, 1), (10, 1), (100, 0)]), None);
        assert_eq!(share(&[(10, 1), (10, 1), (10, 1)]), Some(0.0));
        assert_eq!(share(&[]), None);
        assert_eq!(lost_below_peak(&[], Duration::ZERO), None);
        assert_eq!(share(&[(0, 0); 5]), None);
    }

    #[test]
    fn connections_count_together_and_sections_last_three_round_trips() {
        let (falls, grows) = ([(90, 1), (60, 1), (30, 1)], [(10, 1), (40, 1), (70, 1)]);
        let both = [readings(&falls), readings(&grows)];
        let both: Vec<&[Sample]> = both.iter().map(Vec::as_slice).collect();
        assert_eq!(lost_below_peak(&both, Duration::from_ms(20)), Some(0.0));
        // One section of 3 s.
        assert_eq!(lost_below_peak(&both, Duration::from_s(1)), None);
    }
}
