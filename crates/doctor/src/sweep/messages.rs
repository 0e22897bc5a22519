//! A sweep over the size of messages: rates one way and both ways at once, latency to and fro.
//!
//! Each size has three points, one for each of these, which are measured in one random order with
//! all others: what drifts does so for rates and latencies alike. Over UDP the size is that of
//! datagrams, and the sweep is one of transfers like any other.
//!
//! With verbs messages go by RDMA instead of TCP, in the same columns. Left out:
//! verbs and TCP in one sweep, and messages over TLS or multipath TCP.

use explain::sweep::{self as curve, Estimate};
use lab::Lab;
use measure::{
    Client, Config, Direction, MeasureError, MessageOutcome, MessageSpec, Overhead, Pattern, Stop,
    Transport, Verbs,
};
use report::model::{Observer, Sweep, SweepLatency, SweepMessages, SweepRate};
use units::{Bytes, Duration, Histogram};

use super::{Axis, Kind, Made, Plan, Point, Task, Work, two_digits, whole};
use crate::messages::{lost, port_name, window};
use crate::{observer, session};

/// Whether messages are exchanged instead of making transfers.
pub(super) fn wanted(axes: &[Axis], base: &Config) -> bool {
    let size = axes.iter().any(|axis| axis.kind == Kind::MessageSize);
    size && base.transport != Transport::Udp
}

/// What messages are exchanged, but for their size and times; `None` where none are.
pub(super) fn spec(
    plan: &Plan,
    axes: &[Axis],
    base: &Config,
) -> Result<Option<MessageSpec>, String> {
    if !wanted(axes, base) {
        return match plan.verbs {
            Some(verbs) => Err(format!(
                "--transport {} carries messages: it goes with --sweep message-size",
                verbs.name()
            )),
            None => Ok(None),
        };
    }
    if axes.len() > 1 {
        return Err(
            "--sweep message-size goes alone: it has three curves of its own (with --udp it goes with \
             another)"
                .to_owned(),
        );
    }
    if base.transport != Transport::Tcp {
        return Err(format!(
            "--sweep message-size exchanges messages over TCP, or datagrams with --udp, not over {}",
            base.transport.name()
        ));
    }
    if let Some(flag) = plan.of_transfers.first() {
        return Err(format!("{flag} does not hold for --sweep message-size"));
    }
    Ok(Some(MessageSpec {
        window: plan.outstanding.unwrap_or_else(|| window(plan.verbs)),
        spin: plan.spin || plan.verbs.is_some(),
        verbs: plan.verbs,
        rdma: plan.rdma.clone(),
        ..MessageSpec::default()
    }))
}

/// A way with messages, as it is spoken of.
pub(super) const fn spoken(way: Task) -> Option<&'static str> {
    match way {
        Task::OneWay => Some("one way"),
        Task::BothWays => Some("both ways"),
        Task::ToAndFro => Some("to and fro"),
        Task::Transfer => None,
    }
}

impl Work<'_> {
    /// Sets times and points. Of sizes that nobody asked for by name those are left out of which a
    /// single message takes too long here.
    pub(super) fn prepare_messages(
        &mut self,
        client: &mut Client,
        stop: &Stop,
    ) -> Result<(), MeasureError> {
        let base = &self.base;
        if let Some(spec) = &mut self.messages {
            spec.duration_ns = base.duration.as_ns();
            spec.ramp_ns = base.ramp.as_ns();
        }
        let verbs = self.messages.as_ref().and_then(|spec| spec.verbs);
        if !self.axes[0].typed {
            let bytes = match verbs {
                Some(Verbs::Ud) => TRIAL_DATAGRAM_BYTES,
                _ => TRIAL_BYTES,
            };
            let trial = self.outcome(client, bytes, Task::OneWay, stop)?;
            let rate = self.rate(&trial, bytes.into());
            let sizes = &self.axes[0].values;
            let (kept, left_out) = match (verbs, &trial.verbs) {
                (Some(Verbs::Ud), Some(port)) => packets(sizes, port.mtu_bytes),
                _ => bearable(sizes, rate),
            };
            if let Some(sentence) = &left_out {
                self.watcher.note(sentence);
            }
            self.sweep.messages.get_or_insert_default().left_out = left_out;
            self.axes[0].values = kept;
        }
        let sizes = self.axes[0].values.iter();
        let of_size = |&size: &u64| {
            let ways = [Task::OneWay, Task::BothWays, Task::ToAndFro];
            ways.map(|way| Point::new(vec![size], way))
        };
        self.points = sizes.flat_map(of_size).collect();
        // One curve after the other.
        self.points.sort_by_key(|p| p.task as u8);
        Ok(())
    }

    /// One measurement with messages; `None` when the user ended it.
    pub(super) fn exchange(
        &mut self,
        client: &mut Client,
        n: usize,
        way: Task,
        stop: &Stop,
    ) -> Result<Option<Made>, MeasureError> {
        let size = self.points[n].settings[0];
        let bytes = u32::try_from(size).unwrap_or(u32::MAX);
        let outcome = self.outcome(client, bytes, way, stop)?;
        if outcome.interrupted {
            return Ok(None);
        }
        let seconds = Duration::from_ns(outcome.spec.duration_ns).as_s_f64();
        let cpus = |ns: u64| Duration::from_ns(ns).as_s_f64() / seconds;
        let (near, far) = (cpus(outcome.near.cpu_ns), cpus(outcome.far.cpu_ns));
        let near_sends = way != Task::OneWay || self.base.direction == Direction::Up;
        let (cpu_sender, cpu_receiver) = match near_sends {
            true => (near, far),
            false => (far, near),
        };
        let made = Made {
            cpu_sender,
            cpu_receiver,
            ..Made::default()
        };
        if way == Task::ToAndFro {
            let times = &outcome.round_trips;
            let median = times.quantile(500).ok_or_else(|| {
                MeasureError::StreamBroken("no message came back in time".to_owned())
            })?;
            let all = self.points[n].round_trips.get_or_insert_default();
            all.merge(times);
            match (&mut self.points[n].stamped, outcome.stamped) {
                (Some(all), Some(stamped)) => all.merge(&stamped),
                (all, stamped) => *all = all.take().or(stamped),
            }
            return Ok(Some(Made {
                value: median.as_ns() / 2,
                messages: times.count(),
                ..made
            }));
        }
        let unreliable = outcome.spec.verbs != Some(Verbs::Rc);
        let loss = lost(&outcome).filter(|_| unreliable).map(|[up, down]| {
            let sent = outcome.near.sent.saturating_add(outcome.far.sent).max(1);
            up.saturating_add(down) as f64 / sent as f64
        });
        let made = Made { loss, ..made };
        let counted = match way {
            Task::BothWays => outcome.near.bytes.saturating_add(outcome.far.bytes),
            _ if near_sends => outcome.far.bytes,
            _ => outcome.near.bytes,
        };
        Ok(Some(Made {
            value: self.rate(&outcome, size),
            messages: counted / size.max(1),
            ..made
        }))
    }

    fn outcome(
        &mut self,
        client: &mut Client,
        bytes: u32,
        way: Task,
        stop: &Stop,
    ) -> Result<MessageOutcome, MeasureError> {
        let mut base = self.messages.clone().unwrap_or_default();
        // To and fro there is one message at a time, and so no slow start to leave out.
        if way == Task::ToAndFro {
            (base.duration_ns, base.ramp_ns) = (base.duration_ns - base.ramp_ns, 0);
            base.stamped = if bytes <= STAMPED_UP_TO { STAMPED } else { 0 };
        }
        let spec = MessageSpec {
            pattern: match (way, self.base.direction) {
                (Task::ToAndFro, _) => Pattern::PingPong,
                (Task::BothWays, _) => Pattern::Both,
                (_, Direction::Up) => Pattern::Up,
                (_, Direction::Down) => Pattern::Down,
            },
            bytes,
            ..base
        };
        let outcome = client.messages(&spec, stop)?;
        if let (Some(verbs), Some(port)) = (outcome.spec.verbs, &outcome.verbs) {
            let shared = self.sweep.messages.get_or_insert_default();
            shared.verbs = format!("{} through {}", verbs.name(), port_name(port));
        }
        Ok(outcome)
    }

    /// Payload a second, of both directions added up where both sent.
    fn rate(&self, outcome: &MessageOutcome, bytes: u64) -> u64 {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let [near, far] = [&outcome.near, &outcome.far].map(|c| c.rate(bytes).as_bits_per_second());
        match outcome.spec.pattern {
            Pattern::Up => far,
            Pattern::Down => near,
            _ => near.saturating_add(far),
        }
    }
}

/// The sizes of which a message takes no longer than [`MESSAGE_TIME_MAX`] at a rate, and what to say
/// of the others. A path too slow for any keeps the smallest.
fn bearable(sizes: &[u64], bits_per_second: u64) -> (Vec<u64>, Option<String>) {
    let seconds = MESSAGE_TIME_MAX.as_s_f64();
    let most = whole(bits_per_second as f64 / 8.0 * seconds);
    let kept = sizes.iter().take_while(|&&size| size <= most).count();
    let (kept, left) = sizes.split_at(kept.max(1).min(sizes.len()));
    let said = left.first().map(|&first| {
        format!(
            "messages from {} on were left out: one would take more than {MESSAGE_TIME_MAX} here",
            Bytes::new(first)
        )
    });
    (kept.to_vec(), said)
}

/// The sizes of which a message is one packet, and what to say of the others.
fn packets(sizes: &[u64], mtu_bytes: u32) -> (Vec<u64>, Option<String>) {
    let most = u64::from(mtu_bytes);
    let (kept, left): (Vec<u64>, Vec<u64>) = sizes.iter().partition(|&&size| size <= most);
    let said = left.first().map(|&first| {
        format!(
            "messages from {} on were left out: over verbs-ud they are packets, of up to {} here",
            Bytes::new(first),
            Bytes::new(most)
        )
    });
    (kept, said)
}

/// The same size written by iperf3, where it is one at which the rate is the path's and not the
/// calls'.
pub(super) fn observed(lab: &Lab, base: &Config, size: u64, stop: &Stop) -> Option<Observer> {
    if size <= OBSERVED_ABOVE || stop.is_stopped() {
        return None;
    }
    let config = Config {
        streams: 1,
        duration: Duration::from_s(3),
        ramp: Duration::from_s(1),
        ..base.clone()
    };
    let length = Some(size.min(observer::LENGTH_MAX));
    session::told(observer::iperf3(lab, &config, length, stop), stop)
}

/// A rate point in numbers.
pub(super) fn rate(point: &Point) -> Option<SweepRate> {
    point.task.name()?;
    let values = || point.made.iter().map(|m| m.value);
    let count = u64::try_from(point.made.len()).ok().filter(|&n| n > 0)?;
    let sum = values().map(u128::from).sum::<u128>() / u128::from(count);
    let average = u64::try_from(sum).unwrap_or(u64::MAX);
    let bits = point.settings.first()?.saturating_mul(8).max(1);
    Some(SweepRate {
        // What the far end tells is not believed to be small.
        iterations: point
            .made
            .iter()
            .fold(0, |sum, m| sum.saturating_add(m.messages)),
        peak_bits_per_second: values().max().unwrap_or(0),
        average_bits_per_second: average,
        messages_per_second: average / bits,
    })
}

/// Latencies, and what all points share.
pub(super) fn record(sweep: &mut Sweep, points: &[Point], spec: &MessageSpec) {
    let to_and_fro = || points.iter().filter(|p| p.task == Task::ToAndFro);
    sweep.latencies = to_and_fro().filter_map(latency).collect();
    let known: Vec<Estimate> = to_and_fro().filter_map(Point::estimate).collect();
    for place in curve::anomalies(&known) {
        if let Some(found) = sweep.latencies.get_mut(place) {
            found.anomaly = true;
        }
    }
    let shared = sweep.messages.take().unwrap_or_default();
    sweep.messages = Some(SweepMessages {
        transport: spec.verbs.map_or("tcp", Verbs::name).to_owned(),
        window: spec.window,
        spin: spec.spin,
        to_and_fro_ns: spec.duration_ns - spec.ramp_ns,
        tool_ns: Overhead::measure().round_ns,
        sentence: latency_sentence(&sweep.latencies),
        left_out: shared.left_out,
        verbs: match spec.verbs {
            Some(_) => shared.verbs,
            None => verbs(measure::rdma_devices().first().map(String::as_str)),
        },
    });
}

fn latency(point: &Point) -> Option<SweepLatency> {
    let (estimate, times) = (point.estimate()?, point.round_trips.as_ref()?);
    let half = |time: Option<Duration>| time.map_or(0, |t| t.as_ns() / 2);
    let stamped = point.stamped.as_ref();
    let at = |permille| half(Histogram::quantile(times, permille));
    Some(SweepLatency {
        message_bytes: *point.settings.first()?,
        round_trips: times.count(),
        min_ns: half(times.min()),
        median_ns: at(500),
        mean_ns: half(times.mean()),
        p99_ns: at(990),
        p999_ns: at(999),
        max_ns: half(times.max()),
        kernel_round_trips: stamped.map(|s| s.kernel.count()),
        kernel_median_ns: stamped.map(|s| half(s.kernel.quantile(500))),
        stamped_median_ns: stamped.map(|s| half(s.ours.quantile(500))),
        each_median_ns: point.made.iter().map(|m| m.value).collect(),
        each_round: point.made.iter().map(|m| m.round).collect(),
        error: Some(estimate.error).filter(|e| e.is_finite()),
        anomaly: false,
    })
}

/// What the smallest message takes, and up to which size that holds.
fn latency_sentence(latencies: &[SweepLatency]) -> String {
    let Some(first) = latencies.first() else {
        return "no message came back".to_owned();
    };
    let line: Vec<(f64, f64)> = latencies
        .iter()
        .map(|l| (l.message_bytes as f64, l.median_ns as f64))
        .collect();
    let size = |bytes: u64| Bytes::new(bytes);
    let takes = format!(
        "a {} message takes {}",
        size(first.message_bytes),
        Duration::from_ns(first.median_ns)
    );
    let to = curve::hardly_grows_to(&line).map_or(0, whole);
    match latencies.last() {
        Some(last) if to == last.message_bytes && latencies.len() > 1 => {
            format!("{takes}, and so does any up to {}", size(to))
        }
        _ if to > first.message_bytes => {
            format!("{takes}; up to {} that hardly grows", size(to))
        }
        _ => takes,
    }
}

/// The sweep in a line or two: where the knees lie, and the latency.
pub(super) fn sentence(sweep: &Sweep) -> String {
    let Some(axis) = sweep.axes.first() else {
        return String::new();
    };
    let knee = |curve: &report::model::SweepCurve| {
        let at = match curve.knee {
            Some(at) => report::setting(axis, whole(two_digits(at as f64))),
            None => format!("none ({})", curve.shape),
        };
        let way = match curve.pattern.as_deref() {
            Some("both_ways") => "both ways",
            _ => "one way",
        };
        format!("{at} {way}")
    };
    let knees: Vec<String> = sweep.curves.iter().map(knee).collect();
    let latency = sweep.messages.as_ref().map_or("", |m| m.sentence.as_str());
    format!(
        "Knee of {}: {}. {}",
        axis.name,
        knees.join(", "),
        super::capitalised(latency)
    )
}

/// What became of verbs in a sweep over TCP.
fn verbs(device: Option<&str>) -> String {
    match device {
        None => "not measured: there is no RDMA device on this host".to_owned(),
        Some(name) => format!("not measured: --transport verbs-rc measures {name}"),
    }
}

/// Large enough that calls do not limit most paths, and quickly through on slow ones.
const TRIAL_BYTES: u32 = 64 << 10;
/// The smallest MTU.
const TRIAL_DATAGRAM_BYTES: u32 = 256;
/// Round trips that the kernel stamps at each measurement, of messages that are a segment on any path.
const STAMPED: u32 = 200;
const STAMPED_UP_TO: u32 = 1 << 10;
/// To and fro and half a window of such messages still end within a client's patience.
const MESSAGE_TIME_MAX: Duration = Duration::from_s(1);
/// Below this the number of calls limits, which iperf3 makes otherwise.
const OBSERVED_ABOVE: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use report::model::SweepCurve;

    fn latencies(medians: &[(u64, u64)]) -> Vec<SweepLatency> {
        let made = medians
            .iter()
            .map(|&(message_bytes, median_ns)| SweepLatency {
                message_bytes,
                median_ns,
                ..SweepLatency::default()
            });
        made.collect()
    }

    #[test]
    fn latency_is_said_with_the_size_up_to_which_it_hardly_grows() {
        let said = |medians: &[(u64, u64)]| latency_sentence(&latencies(medians));
        assert_eq!(
            said(&[(2, 7_000), (1024, 8_750), (4096, 8_751)]),
            "a 2 B message takes 7 us; up to 1 KiB that hardly grows"
        );
        assert_eq!(
            said(&[(2, 7_000), (64, 7_100)]),
            "a 2 B message takes 7 us, and so does any up to 64 B"
        );
        assert_eq!(said(&[(2, 7_000)]), "a 2 B message takes 7 us");
        assert_eq!(said(&[(2, 7_000), (4, 9_000)]), "a 2 B message takes 7 us");
        assert_eq!(said(&[]), "no message came back");
    }

    #[test]
    fn sizes_that_take_more_than_a_second_are_left_out_and_named() {
        let sizes = [2, 1 << 20, 1 << 23];
        // 8 MiB a second, and a bit less.
        assert_eq!(bearable(&sizes, 1 << 26), (sizes.to_vec(), None));
        let (kept, said) = bearable(&sizes, (1 << 26) - 8);
        assert_eq!(kept, [2, 1 << 20]);
        assert!(said.unwrap().contains("from 8 MiB on"));
        assert_eq!(bearable(&sizes, 0).0, [2]);
        assert_eq!(bearable(&[], 0), (Vec::new(), None));
    }

    #[test]
    fn a_rate_point_has_the_columns_of_ib_send_bw() {
        let made = |value, messages| Made {
            value,
            messages,
            ..Made::default()
        };
        let mut point = Point::new(vec![1_000], Task::OneWay);
        assert_eq!(rate(&point), None);
        point.made = vec![made(8_000_000, 300), made(16_000_000, 600)];
        let told = rate(&point).unwrap();
        assert_eq!(told.iterations, 900);
        assert_eq!(told.peak_bits_per_second, 16_000_000);
        assert_eq!(told.average_bits_per_second, 12_000_000);
        assert_eq!(told.messages_per_second, 1_500);
        point.task = Task::Transfer;
        assert_eq!(rate(&point), None);
    }

    #[test]
    fn the_sweep_is_said_by_its_knees_and_its_latency() {
        let curve = |pattern: &str, knee, shape: &str| SweepCurve {
            pattern: Some(pattern.to_owned()),
            knee,
            shape: shape.to_owned(),
            ..SweepCurve::default()
        };
        let sweep = Sweep {
            axes: vec![Axis::parse("message-size=2").unwrap().record()],
            curves: vec![
                curve("one_way", Some(39_321), "knee"),
                curve("both_ways", None, "rising"),
            ],
            messages: Some(SweepMessages {
                sentence: "a 2 B message takes 7 us".to_owned(),
                ..SweepMessages::default()
            }),
            ..Sweep::default()
        };
        assert_eq!(
            sentence(&sweep),
            "Knee of message-size: 39 kB one way, none (rising) both ways. A 2 B message takes 7 us."
        );
    }

    #[test]
    fn verbs_are_named_as_not_measured_whether_there_is_a_device_or_not() {
        let none = "not measured: there is no RDMA device on this host";
        assert_eq!(verbs(None), none);
        assert!(verbs(Some("mlx5_0")).contains("--transport verbs-rc measures mlx5_0"));
    }

    #[test]
    fn datagrams_larger_than_a_packet_are_left_out_and_named() {
        let sizes = [1024, 1025, 1 << 23];
        let (kept, said) = packets(&sizes, 1024);
        assert_eq!(kept, [1024]);
        assert!(said.unwrap().contains("up to 1 KiB"));
        assert_eq!(packets(&sizes[..1], 1024), (vec![1024], None));
    }
}
