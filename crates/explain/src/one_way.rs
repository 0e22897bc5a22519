//! Two-way probes with four time stamps each: which way packets were lost, overtaken or doubled, how
//! much the delay varied each way, and the delay of each way between clocks that do not agree.
//!
//! A probe leaves at `t1` by the sender's clock, arrives at `t2` by the reflector's, its answer leaves
//! there at `t3` and arrives at `t4`. `((t2 - t1) + (t3 - t4)) / 2` is how far the reflector's clock is
//! ahead, if both ways take the same time; since neither takes less than none, it is wrong by half the
//! round trip at most (RFC 5905, section 8). So the probes with the shortest round trips know it best:
//! the time is cut into windows, each window's best probe is a point, and through the better half of
//! the points goes a line by the median of all slopes between two of them (Theil and Sen), whose slope
//! is the drift. No measurement of this kind can see how unequal the two ways are: a constant
//! difference looks like an offset of the clocks, and that is why the uncertainty is never below half
//! of the shortest round trip. A drift that changes during the probes is not modelled.

use units::Duration;

/// A probe that was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The sender's number, from 0.
    pub sender_sequence: u32,
    /// The reflector's number for its answer.
    pub reflector_sequence: u32,
    /// Departure, by the sender's clock, nanoseconds.
    pub t1_ns: u64,
    /// Arrival at the reflector, by its clock.
    pub t2_ns: u64,
    /// Departure of the answer, by its clock.
    pub t3_ns: u64,
    /// Arrival of the answer, by the sender's clock.
    pub t4_ns: u64,
    /// Error estimates of both clocks' stamps, added up.
    pub error_ns: u64,
}

/// What became of the probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    /// Probes sent.
    pub sent: u64,
    /// Probes that were answered, each counted once.
    pub answered: u64,
    /// Lost on the way there.
    pub forward_lost: u64,
    /// Answers lost on the way back.
    pub backward_lost: u64,
    /// Lost, and nothing tells where: after the last answer, or the reflector does not count.
    pub lost_somewhere: u64,
    /// Probes that arrived once more than they were sent, as far as answers show it.
    pub forward_duplicates: u64,
    /// Answers that arrived once more.
    pub backward_duplicates: u64,
    /// Probes that arrived after one that was sent later (RFC 4737).
    pub forward_reordered: u64,
    /// Answers that arrived after one that was sent later.
    pub backward_reordered: u64,
    /// False when the reflector's numbers cannot be its own count of what came.
    pub directions_known: bool,
}

/// A number and how far it may be off, either way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Within {
    /// The number.
    pub value: f64,
    /// The true one is at most this far away.
    pub uncertainty: f64,
}

/// How the reflector's clock runs against the sender's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClockLine {
    /// How far the reflector's clock is ahead in the middle of the probes, nanoseconds.
    pub offset_ns: Within,
    /// Parts in a million by which it runs faster; `None` of less than a second or fewer than three
    /// windows. Its uncertainty holds if the difference of the two ways is the same throughout.
    pub drift_ppm: Option<Within>,
    /// The middle: since the first probe, by the sender's clock.
    pub middle: Duration,
    /// Windows whose best probe the line goes by.
    pub points: u32,
}

/// Delay of one direction after the clocks' difference was taken out. A constant difference of the
/// two ways is in the clocks' line, not here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Least, nanoseconds; below zero by the stamps' errors at most.
    pub min_ns: i64,
    /// Median.
    pub median_ns: i64,
    /// 99th percentile.
    pub p99_ns: i64,
    /// Largest.
    pub max_ns: i64,
}

/// What probes with four stamps tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OneWay {
    /// What became of the probes.
    pub fates: Fates,
    /// Round trips without the time in the reflector; `None` without a plausible answer.
    pub round_trip: Option<Delays>,
    /// The clocks.
    pub clocks: Option<ClockLine>,
    /// There.
    pub forward: Option<Delays>,
    /// Back.
    pub backward: Option<Delays>,
    /// Answers whose stamps contradict each other: they came before their question, or stayed in
    /// the reflector longer than the whole round trip by more than the stamps' errors.
    pub implausible: u64,
}

impl Delays {
    /// How much longer than the shortest the median and the 99th percentile took (RFC 5481, PDV).
    pub const fn variation_ns(&self) -> (i64, i64) {
        (
            self.median_ns.saturating_sub(self.min_ns),
            self.p99_ns.saturating_sub(self.min_ns),
        )
    }

    pub(crate) fn of(mut delays_ns: Vec<i64>) -> Option<Self> {
        delays_ns.sort_unstable();
        let at = |permille: usize| {
            let rank = (delays_ns.len() * permille).div_ceil(1000).max(1);
            delays_ns.get(rank - 1).copied()
        };
        Some(Self {
            min_ns: at(0)?,
            median_ns: at(500)?,
            p99_ns: at(990)?,
            max_ns: at(1000)?,
        })
    }
}

/// What `replies`, in the order of their arrival, tell of `sent` probes.
pub fn one_way(sent: u64, replies: &[Reply]) -> OneWay {
    let fates = fates(sent, replies);
    let mut seen = std::collections::HashSet::new();
    let firsts = replies.iter().filter(|r| seen.insert(r.sender_sequence));
    let answers: Vec<Reply> = firsts.copied().collect();
    let probes: Vec<Probe> = answers.iter().filter_map(Probe::of).collect();
    let implausible = (answers.len() - probes.len()) as u64;
    let line = Line::through(&probes);
    let delays = |of: fn(&Probe, i64) -> i64| {
        let line = line.as_ref()?;
        Delays::of(probes.iter().map(|p| of(p, line.at(p))).collect())
    };
    OneWay {
        fates,
        round_trip: Delays::of(probes.iter().map(|p| p.rtt_ns).collect()),
        clocks: line.as_ref().map(|l| l.told),
        forward: delays(|p, ahead| p.forward_ns.saturating_sub(ahead)),
        backward: delays(|p, ahead| p.backward_ns.saturating_add(ahead)),
        implausible,
    }
}

fn fates(sent: u64, replies: &[Reply]) -> Fates {
    let mut by_reflector = std::collections::HashSet::new();
    let mut by_sender = std::collections::HashSet::new();
    let mut fates = Fates {
        sent,
        ..Fates::default()
    };
    let mut last = None;
    for reply in replies {
        if !by_reflector.insert((reply.reflector_sequence, reply.sender_sequence)) {
            fates.backward_duplicates += 1;
            continue;
        }
        if !by_sender.insert(reply.sender_sequence) {
            fates.forward_duplicates += 1;
        }
        fates.backward_reordered += u64::from(last.is_some_and(|l| reply.reflector_sequence < l));
        last = last.max(Some(reply.reflector_sequence));
    }
    fates.answered = by_sender.len() as u64;
    let mut arrivals: Vec<(u32, u32)> = by_reflector.into_iter().collect();
    arrivals.sort_unstable();
    let mut last = None;
    for &(_, sequence) in &arrivals {
        fates.forward_reordered += u64::from(last.is_some_and(|l| sequence < l));
        last = last.max(Some(sequence));
    }
    let lost = sent.saturating_sub(fates.answered);
    fates.lost_somewhere = lost;
    let (Some(last_sent), Some(&(last_count, _))) = (last, arrivals.last()) else {
        return fates;
    };
    // What the reflector had counted when it sent its last answer that came, and what had been sent
    // until then: what is missing in between was lost there, or its answer on the way back.
    let reached = u64::from(last_sent) + 1;
    let counted = u64::from(last_count) + 1;
    let fresh = counted.saturating_sub(fates.forward_duplicates);
    let answers = arrivals.len() as u64;
    if fresh > reached || counted < answers || reached > sent {
        return fates;
    }
    fates.forward_lost = reached - fresh;
    fates.backward_lost = counted - answers;
    fates.lost_somewhere = lost.saturating_sub(fates.forward_lost + fates.backward_lost);
    // One that only repeats the sender's numbers looks as if nothing was ever lost on the way there.
    let repeats = arrivals.iter().all(|&(count, sequence)| count == sequence);
    fates.directions_known = !repeats || fates.backward_lost == 0;
    if !fates.directions_known {
        fates.lost_somewhere += fates.backward_lost;
        fates.backward_lost = 0;
    }
    fates
}

/// A plausible answer in differences.
#[derive(Clone, Copy, Debug)]
struct Probe {
    t1_ns: u64,
    /// t2 - t1: the way there, and the reflector's clock ahead.
    forward_ns: i64,
    /// t4 - t3: the way back, less that.
    backward_ns: i64,
    rtt_ns: i64,
    error_ns: u64,
}

impl Probe {
    fn of(reply: &Reply) -> Option<Self> {
        let minus = |a: u64, b: u64| i64::try_from(i128::from(a) - i128::from(b)).ok();
        let forward_ns = minus(reply.t2_ns, reply.t1_ns)?;
        let backward_ns = minus(reply.t4_ns, reply.t3_ns)?;
        let rtt_ns = forward_ns.checked_add(backward_ns)?;
        // A round trip shorter than none by the stamps' errors still is one.
        let slack = i64::try_from(reply.error_ns.saturating_mul(2)).unwrap_or(i64::MAX);
        let plausible = reply.t4_ns >= reply.t1_ns && rtt_ns >= slack.saturating_neg();
        plausible.then_some(Self {
            t1_ns: reply.t1_ns,
            forward_ns,
            backward_ns,
            rtt_ns: rtt_ns.max(0),
            error_ns: reply.error_ns,
        })
    }

    /// How far the reflector's clock looks ahead.
    fn ahead_ns(&self) -> i128 {
        (i128::from(self.forward_ns) - i128::from(self.backward_ns)) / 2
    }
}

/// A window's best probe, against the first probe's time and offset, so that floats hold it exactly.
#[derive(Clone, Copy, Debug)]
struct Point {
    t_s: f64,
    ahead_ns: f64,
    rtt_ns: f64,
    error_ns: f64,
}

/// The clocks' line.
#[derive(Clone, Copy, Debug)]
struct Line {
    told: ClockLine,
    start_ns: u64,
    /// Where `at_middle_ns` counts from.
    base_ns: i128,
    at_middle_ns: f64,
    middle_s: f64,
    slope_ns_per_s: f64,
}

impl Line {
    /// `None` of no probes.
    fn through(probes: &[Probe]) -> Option<Self> {
        let start_ns = probes.iter().map(|p| p.t1_ns).min()?;
        let end_ns = probes.iter().map(|p| p.t1_ns).max()?;
        let base_ns = probes.first()?.ahead_ns();
        let points = points(probes, start_ns, end_ns, base_ns);
        let points = better_half(&points);
        let (first, last) = (points.first()?, points.last()?);
        let span_s = last.t_s - first.t_s;
        let with_drift = points.len() >= POINTS_MIN && span_s >= SPAN_S_MIN;
        let slope = if with_drift {
            median_slope(&points)
        } else {
            0.0
        };
        let middle_s = f64::midpoint(first.t_s, last.t_s);
        let at_middle: Vec<f64> = points
            .iter()
            .map(|p| p.ahead_ns - slope * (p.t_s - middle_s))
            .collect();
        let at_middle_ns = median(at_middle);
        let residual =
            |p: &Point| (p.ahead_ns - at_middle_ns - slope * (p.t_s - middle_s)).abs() + p.error_ns;
        // At its own time a point bounds the line's error by this much; between two points the error,
        // as a difference of two lines, is at most the larger one's.
        let bound = |p: &Point| residual(p) + p.rtt_ns / 2.0;
        let best = |side: &dyn Fn(&Point) -> bool| {
            let bounds = points.iter().filter(|p| side(p)).map(bound);
            bounds.min_by(f64::total_cmp).unwrap_or(0.0)
        };
        let uncertainty = best(&|p| p.t_s <= middle_s).max(best(&|p| p.t_s >= middle_s));
        let shortest = points.iter().map(|p| p.rtt_ns).min_by(f64::total_cmp)?;
        let queue = |p: &Point| p.rtt_ns - shortest;
        let longest_queue = points.iter().map(queue).max_by(f64::total_cmp)?;
        // Without the constant part of the round trips: what the ends of the line may be off against
        // each other. The shortest may have queued too: less, we take it, than the shortest is below
        // the median.
        let spread = median(probes.iter().map(|p| p.rtt_ns as f64).collect()) - shortest;
        let ends = residual(first) + residual(last) + longest_queue + spread.max(0.0);
        let offset = base_ns as f64 + at_middle_ns;
        Some(Self {
            told: ClockLine {
                offset_ns: Within {
                    value: offset,
                    uncertainty,
                },
                drift_ppm: with_drift.then(|| Within {
                    value: slope / NS_PER_S_PER_PPM,
                    uncertainty: ends / span_s / NS_PER_S_PER_PPM,
                }),
                middle: duration_of(middle_s),
                points: u32::try_from(points.len()).unwrap_or(u32::MAX),
            },
            start_ns,
            base_ns,
            at_middle_ns,
            middle_s,
            slope_ns_per_s: slope,
        })
    }

    /// How far the reflector's clock is ahead at a probe's time.
    fn at(&self, probe: &Probe) -> i64 {
        let t_s = seconds(probe.t1_ns - self.start_ns);
        let ahead = self.at_middle_ns + self.slope_ns_per_s * (t_s - self.middle_s);
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a float cast saturates; the sum is checked"
        )]
        let ahead = self.base_ns + ahead.round() as i128;
        i64::try_from(ahead).unwrap_or(if ahead < 0 { i64::MIN } else { i64::MAX })
    }
}

/// The best probe of each window, in the order of time.
fn points(probes: &[Probe], start_ns: u64, end_ns: u64, base_ns: i128) -> Vec<Point> {
    let windows = (probes.len() / PROBES_PER_WINDOW).clamp(1, WINDOWS_MAX);
    let length_ns = (end_ns - start_ns) / windows as u64 + 1;
    let mut best: Vec<Option<Probe>> = vec![None; windows];
    for probe in probes {
        let window = usize::try_from((probe.t1_ns - start_ns) / length_ns).unwrap_or(usize::MAX);
        let Some(slot) = best.get_mut(window) else {
            continue;
        };
        if slot.is_none_or(|b| probe.rtt_ns < b.rtt_ns) {
            *slot = Some(*probe);
        }
    }
    let found = best.into_iter().flatten();
    let point = |p: Probe| Point {
        t_s: seconds(p.t1_ns - start_ns),
        ahead_ns: (p.ahead_ns() - base_ns) as f64,
        rtt_ns: p.rtt_ns as f64,
        error_ns: p.error_ns as f64,
    };
    found.map(point).collect()
}

/// The better half by round trips of the first half of the time, and that of the second: all from one
/// end would tell little of the drift.
fn better_half(points: &[Point]) -> Vec<Point> {
    let (early, late) = points.split_at(points.len() / 2);
    let mut kept = not_above_the_median(early);
    kept.extend(not_above_the_median(late));
    kept
}

fn not_above_the_median(points: &[Point]) -> Vec<Point> {
    let mut round_trips: Vec<f64> = points.iter().map(|p| p.rtt_ns).collect();
    round_trips.sort_by(f64::total_cmp);
    let Some(&limit) = round_trips.get(round_trips.len() / 2) else {
        return Vec::new();
    };
    let better = points.iter().filter(|p| p.rtt_ns <= limit);
    better.copied().collect()
}

fn median_slope(points: &[Point]) -> f64 {
    let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
    for (i, a) in points.iter().enumerate() {
        let later = points.iter().skip(i + 1).filter(|b| b.t_s > a.t_s);
        slopes.extend(later.map(|b| (b.ahead_ns - a.ahead_ns) / (b.t_s - a.t_s)));
    }
    median(slopes)
}

/// The middle value, or the mean of the two in the middle; 0 of none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), middle.checked_sub(1)) {
        (None, _) => 0.0,
        (Some(&upper), Some(lower)) if values.len().is_multiple_of(2) => {
            f64::midpoint(values[lower], upper)
        }
        (Some(&upper), _) => upper,
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, and the time is not negative"
)]
fn duration_of(s: f64) -> Duration {
    Duration::from_ns((s * 1e9) as u64)
}

/// Enough that one of them met no queue, few enough for windows.
const PROBES_PER_WINDOW: usize = 8;
/// 64 points are 2016 slopes.
const WINDOWS_MAX: usize = 64;
const POINTS_MIN: usize = 3;
/// Below a second the stamps' errors are a drift of tens of ppm by themselves.
const SPAN_S_MIN: f64 = 1.0;
const NS_PER_S_PER_PPM: f64 = 1_000.0;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use units::Rng;

    use super::*;

    /// A path and two clocks whose truth is known.
    #[derive(Clone, Copy, Debug)]
    struct World {
        seed: u64,
        offset_ns: i64,
        drift_ppb: i64,
        forward_ns: u64,
        backward_ns: u64,
        /// Mean of the exponential queueing each way.
        jitter_ns: u64,
        /// Of 1000.
        loss: u64,
        probes: u32,
        interval_ns: u64,
    }

    const START_NS: u64 = 1_795_000_000_000_000_000;

    impl World {
        /// The reflector's clock at the sender's time.
        fn reflector(&self, at_ns: u64) -> u64 {
            let run = i128::from(at_ns - START_NS);
            let drift = run * i128::from(self.drift_ppb) / 1_000_000_000;
            u64::try_from(i128::from(at_ns) + i128::from(self.offset_ns) + drift).unwrap()
        }

        fn ahead_at(&self, since: Duration) -> f64 {
            let at = START_NS + since.as_ns();
            (i128::from(self.reflector(at)) - i128::from(at)) as f64
        }

        fn replies(&self) -> Vec<Reply> {
            let mut rng = Rng::new(self.seed);
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a float cast saturates, and the logarithm is of 0..=1"
            )]
            let mut queue = || (-(1.0 - rng.next_f64()).ln() * self.jitter_ns as f64) as u64;
            let mut count = 0;
            let mut replies = Vec::new();
            let mut dice = Rng::new(!self.seed);
            for sequence in 0..self.probes {
                let t1 = START_NS + u64::from(sequence) * self.interval_ns;
                let arrival = t1 + self.forward_ns + queue();
                let departure = arrival + 20_000;
                let t4 = departure + self.backward_ns + queue();
                if dice.next_u64() % 1000 < self.loss {
                    continue;
                }
                count += 1;
                if dice.next_u64() % 1000 < self.loss {
                    continue;
                }
                replies.push(Reply {
                    sender_sequence: sequence,
                    reflector_sequence: count - 1,
                    t1_ns: t1,
                    t2_ns: self.reflector(arrival),
                    t3_ns: self.reflector(departure),
                    t4_ns: t4,
                    error_ns: 1_000,
                });
            }
            replies
        }
    }

    const QUIET: World = World {
        seed: 1,
        offset_ns: 1_500_000_000,
        drift_ppb: 20_000,
        forward_ns: 10_000_000,
        backward_ns: 10_000_000,
        jitter_ns: 0,
        loss: 0,
        probes: 1_000,
        interval_ns: 10_000_000,
    };

    #[test]
    fn equal_ways_without_queues_give_the_clocks_exactly() {
        let told = one_way(1_000, &QUIET.replies());
        let clocks = told.clocks.unwrap();
        let truth = QUIET.ahead_at(clocks.middle);
        // 20 ppm of the 20 us in the reflector and of the way are below a microsecond.
        assert!(
            (clocks.offset_ns.value - truth).abs() < 1_000.0,
            "{clocks:?}"
        );
        let drift = clocks.drift_ppm.unwrap();
        assert!((drift.value - 20.0).abs() < 0.01, "{drift:?}");
        let forward = told.forward.unwrap();
        assert!(
            (forward.median_ns - 10_000_000).abs() < 2_000,
            "{forward:?}"
        );
        // Half of the round trip, and what the stamps may be off.
        assert!(clocks.offset_ns.uncertainty >= 10_000_000.0);
        assert!(clocks.offset_ns.uncertainty < 10_010_000.0, "{clocks:?}");
    }

    #[test]
    fn unequal_ways_look_like_an_offset_and_the_uncertainty_covers_it() {
        let world = World {
            forward_ns: 10_000_000,
            backward_ns: 60_000_000,
            ..QUIET
        };
        let clocks = one_way(1_000, &world.replies()).clocks.unwrap();
        let error = clocks.offset_ns.value - world.ahead_at(clocks.middle);
        assert!((error + 25_000_000.0).abs() < 2_000.0, "{error}");
        assert!(error.abs() <= clocks.offset_ns.uncertainty);
    }

    #[test]
    fn nothing_tells_nothing() {
        let told = one_way(5, &[]);
        assert_eq!(told.fates.lost_somewhere, 5);
        assert!(!told.fates.directions_known);
        assert_eq!((told.clocks, told.forward), (None, None));
    }

    #[test]
    fn one_answer_gives_an_offset_and_no_drift() {
        let told = one_way(1, &QUIET.replies()[..1]);
        let clocks = told.clocks.unwrap();
        assert_eq!((clocks.points, clocks.drift_ppm), (1, None));
        assert!((clocks.offset_ns.value - 1_500_000_000.0).abs() < 1_000.0);
    }

    fn numbered(pairs: &[(u32, u32)]) -> Vec<Reply> {
        let reply = |&(sender_sequence, reflector_sequence)| Reply {
            sender_sequence,
            reflector_sequence,
            ..Reply::default()
        };
        pairs.iter().map(reply).collect()
    }

    #[test]
    fn each_loss_is_booked_on_its_way() {
        // Of 0..=5: 1 lost there, the answers to 3 lost on the way back, 5 after the last answer.
        let fates = one_way(6, &numbered(&[(0, 0), (2, 1), (4, 3)])).fates;
        assert_eq!((fates.forward_lost, fates.backward_lost), (1, 1));
        assert_eq!((fates.lost_somewhere, fates.answered), (1, 3));
        assert!(fates.directions_known);
    }

    #[test]
    fn doubles_and_overtaking_are_told_apart_by_way() {
        // 1 arrived twice there; the answer to 2 came twice back.
        let fates = one_way(3, &numbered(&[(0, 0), (1, 1), (1, 2), (2, 3), (2, 3)])).fates;
        assert_eq!(
            (fates.forward_duplicates, fates.backward_duplicates),
            (1, 1)
        );
        assert_eq!((fates.forward_lost, fates.backward_lost), (0, 0));
        // There: 0 2 1. Back: the answer to 1 overtook nothing, but 3's came before 2's.
        let fates = one_way(4, &numbered(&[(0, 0), (2, 1), (1, 2), (3, 3)])).fates;
        assert_eq!((fates.forward_reordered, fates.backward_reordered), (1, 0));
        let fates = one_way(4, &numbered(&[(0, 0), (1, 1), (3, 3), (2, 2)])).fates;
        assert_eq!((fates.forward_reordered, fates.backward_reordered), (0, 1));
    }

    #[test]
    fn a_reflector_that_repeats_our_numbers_does_not_tell_where() {
        let fates = one_way(4, &numbered(&[(0, 0), (1, 1), (3, 3)])).fates;
        assert!(!fates.directions_known);
        assert_eq!((fates.lost_somewhere, fates.backward_lost), (1, 0));
        assert!(
            one_way(2, &numbered(&[(0, 0), (1, 1)]))
                .fates
                .directions_known
        );
    }

    #[test]
    fn stamps_that_contradict_each_other_are_left_out() {
        let mut replies = QUIET.replies();
        replies[0].t4_ns = replies[0].t1_ns - 1;
        replies[1].t3_ns = replies[1].t2_ns + 10_000_000_000;
        let told = one_way(1_000, &replies);
        assert_eq!(told.implausible, 2);
        assert!(told.round_trip.unwrap().min_ns > 19_000_000);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn the_truth_is_within_the_stated_uncertainty(
            seed: u64, offset_ns in -3_600_000_000_000_i64..3_600_000_000_000,
            drift_ppb in -50_000_i64..=50_000, forward_ns in 0_u64..100_000_000,
            backward_ns in 0_u64..100_000_000, jitter_ns in 0_u64..20_000_000, loss in 0_u64..300,
            probes in 40_u32..1_000, interval_ns in 1_000_000_u64..50_000_000,
        ) {
            let world = World {
                seed, offset_ns, drift_ppb, forward_ns, backward_ns, jitter_ns, loss, probes, interval_ns,
            };
            let replies = world.replies();
            prop_assume!(!replies.is_empty());
            let told = one_way(probes.into(), &replies);
            let clocks = told.clocks.unwrap();
            let error = (clocks.offset_ns.value - world.ahead_at(clocks.middle)).abs();
            prop_assert!(error <= clocks.offset_ns.uncertainty, "{error} in {clocks:?}");
            if let Some(drift) = clocks.drift_ppm {
                let error = (drift.value - drift_ppb as f64 / 1e3).abs();
                prop_assert!(error <= drift.uncertainty, "{error} in {drift:?}");
            }
            let fates = told.fates;
            let lost = fates.forward_lost + fates.backward_lost + fates.lost_somewhere;
            prop_assert_eq!(lost + fates.answered, u64::from(probes));
        }

        #[test]
        fn any_stamps_are_taken_without_panic(
            numbers in prop::collection::vec(any::<(u32, u32, u64, u64, u64, u64, u64)>(), 0..50), sent: u64,
        ) {
            let reply = |(a, b, t1_ns, t2_ns, t3_ns, t4_ns, error_ns)| Reply {
                sender_sequence: a, reflector_sequence: b, t1_ns, t2_ns, t3_ns, t4_ns, error_ns,
            };
            let replies: Vec<Reply> = numbers.into_iter().map(reply).collect();
            let _ = one_way(sent, &replies);
        }
    }
}
