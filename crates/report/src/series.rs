//! Samples of one phase as series over time: goodput, shares of the sender's time, RTT, windows.
//!
//! The kernel's counters only ever grow, so a rate is a difference. Connections are sampled at
//! their own instants; each difference is spread evenly over the bins of one common time grid.
//! Bins are as wide as the samples are apart, or wider: the kernel keeps the limits' times in
//! jiffies (1..10 ms), so a finer grid would show the clock and not the transfer.

use std::collections::BTreeMap;

use wire::tcp_info::TcpInfo;

use crate::model::{Phase, SampleRecord};

/// What one phase's samples say.
#[derive(Clone, Debug, Default)]
pub(crate) struct PhaseSeries {
    /// Last sample's time.
    pub(crate) end_ns: u64,
    /// Width of a bin.
    pub(crate) bin_ns: f64,
    /// Payload bits per second in each bin, all connections together.
    pub(crate) goodput: Vec<f64>,
    /// Which counter `goodput` comes from, for the picture's legend.
    pub(crate) goodput_source: &'static str,
    /// Shares of the senders' time in each bin, in the order of [`crate::text::PARTS`]; empty when
    /// the kernel did not say.
    pub(crate) shares: Vec<[f64; 4]>,
    /// The senders' readings, connection by connection.
    pub(crate) streams: Vec<Stream>,
}

/// What is known of the program that fills the send buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    Always,
    Pauses,
    /// Nothing, nor what waits to be sent.
    Untold,
}

/// Gauges of one sender over time: seconds and value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    pub(crate) number: u32,
    /// Readings that are farther apart have nothing known between them.
    gap_s: f64,
    pub(crate) srtt_ns: Vec<(f64, f64)>,
    pub(crate) min_rtt_ns: Vec<(f64, f64)>,
    pub(crate) cwnd_bytes: Vec<(f64, f64)>,
    pub(crate) peer_window_bytes: Vec<(f64, f64)>,
    pub(crate) flight_bytes: Vec<(f64, f64)>,
}

impl PhaseSeries {
    /// The series of a phase's samples.
    pub(crate) fn of(phase: &Phase, samples: &[SampleRecord]) -> Self {
        let writer = match phase.application_bits_per_second {
            0 => Writer::Always,
            _ => Writer::Pauses,
        };
        Self::gathered(&phase.name, writer, samples)
    }

    /// The series of the samples whose phase is `phase`, of an application that always writes.
    pub(crate) fn new(phase: &str, samples: &[SampleRecord]) -> Self {
        Self::gathered(phase, Writer::Always, samples)
    }

    /// The same with the senders' time by the kernel's clocks and nothing else: of samples that do not tell what waits
    /// to be sent, as a copy's.
    pub(crate) fn counted(phase: &str, samples: &[SampleRecord]) -> Self {
        Self::gathered(phase, Writer::Untold, samples)
    }

    fn gathered(phase: &str, writer: Writer, samples: &[SampleRecord]) -> Self {
        let mut senders: BTreeMap<u32, Vec<&SampleRecord>> = BTreeMap::new();
        let mut receivers: BTreeMap<u32, Vec<&SampleRecord>> = BTreeMap::new();
        for sample in samples.iter().filter(|s| s.phase == phase) {
            let ends = if sample.end == "receiver" {
                &mut receivers
            } else {
                &mut senders
            };
            ends.entry(sample.stream).or_default().push(sample);
        }
        for stream in senders.values_mut().chain(receivers.values_mut()) {
            stream.sort_by_key(|s| s.t_ns);
        }
        let all = || senders.values().chain(receivers.values());
        let end_ns = all()
            .filter_map(|s| s.last())
            .map(|s| s.t_ns)
            .max()
            .unwrap_or(0);
        let bins = bin_count(end_ns, all().flat_map(|s| s.windows(2)));
        let grid = Grid {
            bins,
            bin_ns: end_ns as f64 / bins.max(1) as f64,
        };
        let (goodput, goodput_source) = goodput(&grid, &senders, &receivers);
        Self {
            end_ns,
            bin_ns: grid.bin_ns,
            goodput,
            goodput_source,
            shares: shares(&grid, &senders, writer),
            streams: senders
                .iter()
                .map(|(&number, s)| Stream::new(number, s))
                .collect(),
        }
    }

    /// Middle of bin `i` in seconds.
    pub(crate) fn bin_middle_s(&self, i: usize) -> f64 {
        (i as f64 + 0.5) * self.bin_ns / 1e9
    }
}

impl Stream {
    fn new(number: u32, samples: &[&SampleRecord]) -> Self {
        let gauge = |value: &dyn Fn(&SampleRecord) -> Option<f64>| -> Vec<(f64, f64)> {
            samples
                .iter()
                .filter_map(|s| Some((s.t_ns as f64 / 1e9, value(s)?)))
                .collect()
        };
        let mss = |s: &SampleRecord| field(s, "snd_mss_bytes");
        let above_zero = |v: f64| (v > 0.0).then_some(v);
        Self {
            number,
            gap_s: gap_ns(samples) as f64 / 1e9,
            srtt_ns: gauge(&|s| Some(above_zero(either(s, "rtt_us", "quic_rtt_us")?)? * 1e3)),
            // All ones: no round trip measured yet.
            min_rtt_ns: gauge(&|s| {
                either(s, "min_rtt_us", "quic_min_rtt_us")
                    .filter(|&v| v > 0.0 && v < 4.29e9)
                    .map(|us| us * 1e3)
            }),
            cwnd_bytes: gauge(&|s| {
                let tcp = field(s, "snd_cwnd_segments").zip(mss(s));
                tcp.map(|(segments, bytes)| segments * bytes)
                    .or_else(|| field(s, "quic_congestion_window_bytes"))
            }),
            peer_window_bytes: gauge(&|s| field(s, "snd_wnd_bytes")),
            flight_bytes: gauge(&|s| Some(field(s, "unacked_segments")? * mss(s)?)),
        }
    }
}

impl Stream {
    /// The parts of a gauge between which nothing is known.
    pub(crate) fn parts<'a>(
        &self,
        gauge: &'a [(f64, f64)],
    ) -> impl Iterator<Item = &'a [(f64, f64)]> + use<'a> {
        let most = self.gap_s;
        gauge.chunk_by(move |a, b| b.0 - a.0 <= most)
    }
}

/// How far apart a stream's readings are at most, if nothing is missing between them.
fn gap_ns(samples: &[&SampleRecord]) -> u64 {
    let apart = samples.windows(2).map(|p| p[1].t_ns - p[0].t_ns);
    let mut apart: Vec<u64> = apart.filter(|&ns| ns > 0).take(GAPS_MAX).collect();
    if apart.is_empty() {
        return GAP_NS_MIN;
    }
    let middle = apart.len() / 2;
    let median = *apart.select_nth_unstable(middle).1;
    median.saturating_mul(GAP_TIMES).max(GAP_NS_MIN)
}

/// The common time axis: `bins` of equal width from zero.
struct Grid {
    bins: usize,
    bin_ns: f64,
}

impl Grid {
    /// Spreads `amount`, gathered from `from_ns` to `to_ns`, evenly over the bins between.
    fn spread(&self, sums: &mut [f64], from_ns: u64, to_ns: u64, amount: f64) {
        if to_ns <= from_ns || self.bin_ns <= 0.0 {
            return;
        }
        let (from, to) = (from_ns as f64 / self.bin_ns, to_ns as f64 / self.bin_ns);
        let per_bin = amount / (to - from);
        let last = index(to.ceil()).min(self.bins);
        for (i, sum) in sums.iter_mut().enumerate().take(last).skip(index(from)) {
            let covered = to.min(i as f64 + 1.0) - from.max(i as f64);
            *sum += per_bin * covered.max(0.0);
        }
    }
}

type Streams<'a> = BTreeMap<u32, Vec<&'a SampleRecord>>;

/// Payload rate in each bin: what receivers' applications took, else what senders saw acknowledged.
fn goodput(
    grid: &Grid,
    senders: &Streams<'_>,
    receivers: &Streams<'_>,
) -> (Vec<f64>, &'static str) {
    let received = receivers
        .values()
        .any(|s| s.iter().any(|r| r.app_bytes > 0));
    let acked = |s: &SampleRecord| s.tcp_info.get("bytes_acked").copied();
    if received {
        (
            rates(grid, receivers, &|s| Some(s.app_bytes)),
            "taken by the receiver",
        )
    } else if senders
        .values()
        .flatten()
        .any(|s| acked(s).is_some_and(|bytes| bytes > 0))
    {
        (rates(grid, senders, &acked), "acknowledged to the sender")
    } else {
        (Vec::new(), "")
    }
}

fn rates(
    grid: &Grid,
    streams: &Streams<'_>,
    counter: &dyn Fn(&SampleRecord) -> Option<u64>,
) -> Vec<f64> {
    let mut bytes = vec![0.0; grid.bins];
    for samples in streams.values() {
        // Counters start at zero with the transfer.
        let mut previous = (0, 0);
        for sample in samples {
            let Some(now) = counter(sample) else { continue };
            let grown = now.saturating_sub(previous.1) as f64;
            grid.spread(&mut bytes, previous.0, sample.t_ns, grown);
            previous = (sample.t_ns, now);
        }
    }
    bytes
        .iter()
        .map(|b| b * 8.0 / (grid.bin_ns / 1e9))
        .collect()
}

fn tcp_info(sample: &SampleRecord) -> TcpInfo {
    let mut info = TcpInfo::default();
    for (name, &value) in &sample.tcp_info {
        info.set(name, value);
    }
    info
}

/// Shares of the senders' time in each bin. `busy_time` includes the two limited times (Linux
/// net/ipv4/tcp.c, tcp_get_info_chrono_stats), so the network's part is what they leave of it. Where readings are missing,
/// there are none.
fn shares(grid: &Grid, senders: &Streams<'_>, writer: Writer) -> Vec<[f64; 4]> {
    let mut sums = [const { Vec::new() }; 4];
    sums.iter_mut()
        .for_each(|s: &mut Vec<f64>| s.resize(grid.bins, 0.0));
    let mut any = false;
    let pairs = senders.values().flat_map(|s| {
        let most = gap_ns(s);
        s.windows(2).filter(move |p| p[1].t_ns - p[0].t_ns <= most)
    });
    for pair in pairs {
        let (a, b) = (pair[0], pair[1]);
        let grown = |name: &str| Some((field(b, name)? - field(a, name)?).max(0.0) * 1e3);
        let Some(busy) = grown("busy_time_us") else {
            continue;
        };
        let elapsed = (b.t_ns - a.t_ns) as f64;
        let (receive_window, send_buffer, network) = match writer {
            Writer::Untold => {
                let receive_window = grown("rwnd_limited_us").unwrap_or(0.0);
                let send_buffer = grown("sndbuf_limited_us").unwrap_or(0.0);
                let network = (busy - receive_window - send_buffer).max(0.0);
                (receive_window, send_buffer, network)
            }
            Writer::Always | Writer::Pauses => {
                let receive_window = grown("rwnd_limited_us").unwrap_or(0.0).min(elapsed);
                let send_buffer = grown("sndbuf_limited_us")
                    .unwrap_or(0.0)
                    .min(elapsed - receive_window);
                let rest = (busy.min(elapsed) - receive_window - send_buffer).max(0.0);
                // A starved reading is the send buffer's of who always has data to write, else the application's
                // (see there).
                let writes_always = writer == Writer::Always;
                match (
                    throughput::is_starved(&tcp_info(b), writes_always),
                    writes_always,
                ) {
                    (true, true) => (receive_window, send_buffer + rest, 0.0),
                    (true, false) => (receive_window, send_buffer, 0.0),
                    (false, _) => (receive_window, send_buffer, rest),
                }
            }
        };
        // Less than nothing where a clock's step ran ahead, which its next one lacks.
        let application = elapsed - receive_window - send_buffer - network;
        any = true;
        let parts = [application, receive_window, send_buffer, network];
        for (sums, part) in sums.iter_mut().zip(parts) {
            grid.spread(sums, a.t_ns, b.t_ns, part);
        }
    }
    if !any {
        return Vec::new();
    }
    // Dividing by the sum and not by the bin's width averages over streams and leaves out the
    // time before a stream's first sample and after its last.
    let parts = |i: usize| [sums[0][i], sums[1][i], sums[2][i], sums[3][i]];
    let normalised = |p: [f64; 4]| {
        let p = p.map(|part| part.max(0.0));
        let whole: f64 = p.iter().sum();
        if whole > 0.0 {
            p.map(|v| v / whole)
        } else {
            [0.0; 4]
        }
    };
    (0..grid.bins).map(|i| normalised(parts(i))).collect()
}

/// As many bins as there are samples of one stream, within bounds that a picture can show.
fn bin_count<'a>(end_ns: u64, pairs: impl Iterator<Item = &'a [&'a SampleRecord]>) -> usize {
    let mut gaps: Vec<u64> = pairs
        .map(|p| p[1].t_ns - p[0].t_ns)
        .filter(|&gap| gap > 0)
        .take(GAPS_MAX)
        .collect();
    if gaps.is_empty() {
        return usize::from(end_ns > 0);
    }
    let middle = gaps.len() / 2;
    let median = *gaps.select_nth_unstable(middle).1;
    let width_ns = median.max(BIN_NS_MIN) as f64;
    index((end_ns as f64 / width_ns).round()).clamp(1, BINS_MAX)
}

fn field(sample: &SampleRecord, name: &str) -> Option<f64> {
    sample.tcp_info.get(name).map(|&v| v as f64)
}

/// A field of the kernel's, else of QUIC's.
fn either(sample: &SampleRecord, tcp: &str, quic: &str) -> Option<f64> {
    field(sample, tcp).or_else(|| field(sample, quic))
}

/// A non-negative number as an index; saturates.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates and callers bound the result by the number of bins"
)]
fn index(v: f64) -> usize {
    v as usize
}

/// Bins of a picture: a bin is then at least 2 px wide in a half-width chart.
const BINS_MAX: usize = 240;
/// Narrowest bin: ten jiffies at 250 Hz.
const BIN_NS_MIN: u64 = 40_000_000;
/// Readings so many times as far apart as usual, and so far at least, have others missing between them.
const GAP_TIMES: u64 = 4;
const GAP_NS_MIN: u64 = 1_000_000_000;
/// Sample distances that the median is taken of.
const GAPS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(end: &str, stream: u32, t_ms: u64, app_bytes: u64) -> SampleRecord {
        SampleRecord {
            phase: "before".to_owned(),
            end: end.to_owned(),
            stream,
            t_ns: t_ms * 1_000_000,
            app_bytes,
            ..SampleRecord::default()
        }
    }

    fn with(mut sample: SampleRecord, fields: &[(&str, u64)]) -> SampleRecord {
        sample
            .tcp_info
            .extend(fields.iter().map(|&(name, value)| (name.to_owned(), value)));
        sample
    }

    #[test]
    fn goodput_is_the_growth_of_what_receivers_took_summed_over_streams() {
        let samples = [
            sample("receiver", 0, 0, 0),
            sample("receiver", 0, 100, 1_000),
            sample("receiver", 0, 200, 1_000),
            sample("receiver", 1, 50, 500),
            sample("receiver", 1, 150, 1_500),
        ];
        let series = PhaseSeries::new("before", &samples);
        assert_eq!(series.goodput.len(), 2);
        // Stream 0: 1000 B in the first bin; stream 1: 500 B, then 1000 B over both halves.
        assert!((series.goodput[0] - 2_000.0 * 8.0 / 0.1).abs() < 1e-6);
        assert!((series.goodput[1] - 500.0 * 8.0 / 0.1).abs() < 1e-6);
        assert_eq!(series.goodput_source, "taken by the receiver");
    }

    #[test]
    fn without_a_receiver_the_acknowledged_bytes_count() {
        let samples = [
            with(sample("sender", 0, 0, 9_999), &[("bytes_acked", 0)]),
            with(sample("sender", 0, 100, 99_999), &[("bytes_acked", 12_500)]),
        ];
        let series = PhaseSeries::new("before", &samples);
        assert_eq!(series.goodput, [1_000_000.0]);
    }

    #[test]
    fn shares_split_the_elapsed_time_and_sum_to_one() {
        let limits = |busy, rwnd| [("busy_time_us", busy), ("rwnd_limited_us", rwnd)];
        let samples = [
            with(sample("sender", 0, 0, 0), &limits(0, 0)),
            with(sample("sender", 0, 100, 0), &limits(80_000, 60_000)),
            // A jiffy too many: clamped to the time that passed.
            with(sample("sender", 0, 200, 0), &limits(184_000, 164_000)),
        ];
        let series = PhaseSeries::new("before", &samples);
        let close = |a: [f64; 4], b: [f64; 4]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(
            close(series.shares[0], [0.2, 0.6, 0.0, 0.2]),
            "{:?}",
            series.shares
        );
        assert!(
            close(series.shares[1], [0.0, 1.0, 0.0, 0.0]),
            "{:?}",
            series.shares
        );
    }

    #[test]
    fn a_starved_sender_is_held_by_its_buffer_or_by_an_application_that_keeps_a_rate() {
        let at = |t_ms: u64| {
            let fields = [
                ("busy_time_us", t_ms * 600),
                ("snd_mss_bytes", 1_448),
                ("unacked_segments", 5),
                ("snd_cwnd_segments", 10),
                // Bit 0: the kernel found nothing to send (tcpi_delivery_rate_app_limited).
                ("delivery_flags", 1),
            ];
            with(sample("sender", 0, t_ms, 0), &fields)
        };
        let shares = |application_bits_per_second| {
            let phase = Phase {
                name: "before".to_owned(),
                application_bits_per_second,
                ..Phase::default()
            };
            PhaseSeries::of(&phase, &[at(0), at(100)]).shares[0]
        };
        let close = |a: [f64; 4], b: [f64; 4]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(close(shares(0), [0.4, 0.0, 0.6, 0.0]), "{:?}", shares(0));
        let paced = shares(50_000_000);
        assert!(close(paced, [1.0, 0.0, 0.0, 0.0]), "{paced:?}");
    }

    /// Cumulative clocks in ms: time, busy, receive window, send buffer.
    fn clocks(stream: u32, [t, busy, rwnd, sndbuf]: [u64; 4]) -> SampleRecord {
        let us = |name, ms| (name, ms * 1_000);
        let fields = [
            us("busy_time_us", busy),
            us("rwnd_limited_us", rwnd),
            us("sndbuf_limited_us", sndbuf),
            // As a starved connection: nothing is said of what waits to be sent.
            ("snd_mss_bytes", 1_448),
            ("unacked_segments", 5),
            ("snd_cwnd_segments", 10),
            ("rtt_us", 300_000),
        ];
        with(sample("sender", stream, t, 0), &fields)
    }

    #[test]
    fn what_is_counted_is_the_growth_of_the_kernels_clocks_and_nothing_else() {
        // A step of 4 ms too many, and one too few.
        let samples = [
            clocks(0, [0, 0, 0, 0]),
            clocks(0, [200, 204, 0, 10]),
            clocks(0, [400, 400, 100, 10]),
            clocks(0, [600, 500, 100, 110]),
        ];
        let shares = PhaseSeries::counted("before", &samples).shares;
        assert_eq!(shares.len(), 3);
        let mean: Vec<f64> = (0..4)
            .map(|k| shares.iter().map(|s| s[k]).sum::<f64>() / 3.0)
            .collect();
        // 600 ms: 500 busy, of which 100 by the receive window, 110 by the send buffer.
        for (found, told) in mean.iter().zip([100.0, 100.0, 110.0, 290.0]) {
            assert!((found - told / 600.0).abs() < 0.01, "{mean:?}");
        }
        // The same readings of a program that always writes: the buffer is to blame.
        let blamed = PhaseSeries::new("before", &samples).shares;
        assert!(blamed[0][2] > 0.99 && shares[0][2] < 0.06, "{blamed:?}");
    }

    #[test]
    fn where_readings_are_missing_there_is_a_gap() {
        let at = |n: u64| clocks(3, [n * 200, n * 200, 0, 0]);
        let samples: Vec<_> = (0..=10).chain(60..=70).map(at).collect();
        let series = PhaseSeries::counted("before", &samples);
        let is_blank = |t_s: f64| {
            let i = index(t_s / (series.bin_ns / 1e9));
            series.shares[i].iter().sum::<f64>() <= 0.0
        };
        assert!(!is_blank(1.0) && is_blank(7.0) && !is_blank(13.0));
        let stream = &series.streams[0];
        let parts: Vec<_> = stream.parts(&stream.srtt_ns).map(<[_]>::len).collect();
        assert_eq!(parts, [11, 11]);
        // Readings that are all as far apart are none that miss some.
        let thinned: Vec<_> = (0..10).map(|n| at(n * 50)).collect();
        let series = PhaseSeries::counted("before", &thinned);
        let stream = &series.streams[0];
        assert_eq!(stream.parts(&stream.srtt_ns).count(), 1);
        assert!(series.shares.iter().all(|s| s.iter().sum::<f64>() > 0.99));
    }

    #[test]
    fn hostile_samples_give_bounded_series() {
        let mut samples: Vec<SampleRecord> = (0..1_000)
            .map(|i| sample("sender", i % 7, u64::from(i) * 7_919 % 101, 5))
            .collect();
        samples.push(sample("receiver", 0, 0, u64::MAX));
        samples.push(SampleRecord {
            t_ns: u64::MAX,
            ..sample("receiver", 0, 0, u64::MAX)
        });
        samples.push(SampleRecord {
            t_ns: u64::MAX,
            ..sample("receiver", 0, 0, 1)
        });
        samples.push(with(
            sample("sender", 0, 1, 1),
            &[("busy_time_us", u64::MAX)],
        ));
        let series = PhaseSeries::new("before", &samples);
        assert!(series.goodput.len() <= BINS_MAX);
        assert!(series.goodput.iter().all(|v| v.is_finite()));
        assert!(series.shares.iter().flatten().all(|v| v.is_finite()));
        let nothing = PhaseSeries::new("no such phase", &samples);
        assert_eq!((nothing.goodput.len(), nothing.end_ns), (0, 0));
    }
}
