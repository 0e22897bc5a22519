//! A measurement as `iperf3 -J` prints it: the same keys and types, so that what reads iperf3's
//! output reads ours. Of iperf 3.12, with what later versions add where we know it.
//!
//! Left out: the title and the extra data. Keys stand in alphabetical order. Socket numbers are made
//! up: a number for each stream, that is all that readers use them for.

use serde_json::{Map, Value, json};
use units::{Bytes, Duration};
use wire::tcp_info::TcpInfo;

use super::client::Tested;
use super::results::{StreamResult, stream_id};
use crate::outcome::{EndResult, Outcome, Sample};
use crate::udp::UdpSample;
use crate::{Direction, HostFacts};

/// What the document says of the test's surroundings.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// The far end, as it was named.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// When it began: `Sun, 22 Nov 2026 04:25:09 GMT`.
    pub time: String,
    /// The same in milliseconds since 1970.
    pub time_ms: i64,
    /// This host.
    pub near: HostFacts,
}

/// What is the same in both protocols, of one direction.
struct View<'a> {
    near_sends: bool,
    ramp: Duration,
    near: &'a EndResult,
    near_streams: Vec<StreamResult>,
    far_streams: Vec<StreamResult>,
    udp: Option<&'a [UdpSample]>,
}

/// What is said once of a test.
struct Test {
    udp: bool,
    bidirectional: bool,
    streams: u16,
    block_bytes: u32,
    omit_s: u64,
    time_s: u64,
    bytes: u64,
    tos: u8,
    rate: u64,
    window: u64,
    cookie: String,
    cpu: [[f64; 3]; 2],
    /// Near, far.
    congestion: [Option<String>; 2],
}

/// A test with an iperf3 server.
pub fn document(tested: &Tested, about: &Circumstances) -> Value {
    let params = &tested.params;
    let view = |half: &super::Half| half.near.clone();
    let views: Vec<View<'_>> = tested
        .halves
        .iter()
        .map(|half| {
            let near_sends = half.outcome.config.direction == Direction::Up;
            View {
                near_sends,
                ramp: params.omit(),
                near: if near_sends {
                    &half.outcome.sender
                } else {
                    &half.outcome.receiver
                },
                near_streams: view(half),
                far_streams: half.far.clone(),
                udp: half.udp.as_deref(),
            }
        })
        .collect();
    let test = Test {
        udp: params.udp,
        bidirectional: params.bidirectional,
        streams: params.streams,
        block_bytes: params.block_bytes,
        omit_s: params.omit_s.into(),
        time_s: params.time_s.into(),
        bytes: params.bytes,
        tos: params.tos,
        rate: params.rate,
        window: params.window_bytes.into(),
        cookie: tested.cookie.clone(),
        cpu: [tested.near.cpu_percent, tested.far.cpu_percent],
        congestion: [
            tested.near.congestion.clone(),
            tested.far.congestion.clone(),
        ],
    };
    let mut whole = build(&test, &views, about);
    match tested.server_output() {
        Some(Value::String(text)) => whole["server_output_text"] = json!(text),
        Some(other) => whole["server_output_json"] = other.clone(),
        None => {}
    }
    whole
}

/// A transfer of our own protocol.
pub fn document_of(outcome: &Outcome, about: &Circumstances) -> Value {
    let config = &outcome.config;
    let near_sends = config.direction == Direction::Up;
    let (near, far) = match config.direction {
        Direction::Up => (&outcome.sender, &outcome.receiver),
        Direction::Down => (&outcome.receiver, &outcome.sender),
    };
    let streams = |end: &EndResult, sends| {
        (0..config.streams)
            .map(|s| {
                let track = Track::of(&end.samples, s);
                track.total(s, config.ramp, end.duration, sends)
            })
            .collect()
    };
    let view = View {
        near_sends,
        ramp: config.ramp,
        near,
        near_streams: streams(near, near_sends),
        far_streams: streams(far, !near_sends),
        udp: None,
    };
    let seconds = |time: Duration| time.as_ns() / 1_000_000_000;
    let cpu = |end: &EndResult| {
        let share = |t: Duration| 100.0 * t.as_s_f64() / end.duration.as_s_f64().max(1e-9);
        let system = end.cpu.as_ns().saturating_sub(end.cpu_user.as_ns());
        [
            share(end.cpu),
            share(end.cpu_user),
            share(Duration::from_ns(system)),
        ]
    };
    let named = |end: &EndResult| Some(end.congestion.clone()).filter(|name| !name.is_empty());
    let window = config.send_buffer.or(config.receive_buffer);
    let test = Test {
        udp: false,
        bidirectional: false,
        streams: config.streams,
        block_bytes: config.block_bytes,
        omit_s: seconds(config.ramp),
        time_s: seconds(config.duration) - seconds(config.ramp),
        bytes: 0,
        tos: 0,
        rate: 0,
        window: window.map_or(0, Bytes::as_u64),
        cookie: String::new(),
        cpu: [cpu(near), cpu(far)],
        congestion: [named(near), named(far)],
    };
    build(&test, &[view], about)
}

fn build(test: &Test, views: &[View<'_>], about: &Circumstances) -> Value {
    json!({
        "start": start(test, views, about),
        "intervals": intervals(views),
        "end": end(test, views),
    })
}

fn start(test: &Test, views: &[View<'_>], about: &Circumstances) -> Value {
    let mut connected = Vec::new();
    for view in views {
        let ids = view.near_streams.iter().map(|s| s.id);
        for (id, (here, there)) in ids.zip(&view.near.addresses) {
            connected.push(json!({
                "socket": socket(id),
                "local_host": here.ip().to_string(),
                "local_port": here.port(),
                "remote_host": there.ip().to_string(),
                "remote_port": there.port(),
            }));
        }
    }
    let near = views.first().map(|v| v.near);
    let sends = views.first().is_some_and(|v| v.near_sends);
    let segment = near
        .and_then(|n| n.samples.first())
        .map_or(0, |s| s.info.snd_mss_bytes);
    let mut start = json!({
        "connected": connected,
        "version": format!("goodput {}", env!("CARGO_PKG_VERSION")),
        "system_info": format!("Linux {} {}", about.near.hostname, about.near.kernel),
        "timestamp": {
            "time": about.time,
            "timesecs": about.time_ms.div_euclid(1000),
            "timemillisecs": about.time_ms,
        },
        "connecting_to": { "host": about.host, "port": about.port },
        "cookie": test.cookie,
        "target_bitrate": test.rate,
        "fq_rate": 0,
        "sock_bufsize": test.window,
        "sndbuf_actual": near.map_or(0, |n| n.send_buffer.as_u64()),
        "rcvbuf_actual": near.map_or(0, |n| n.receive_buffer.as_u64()),
        "test_start": {
            "protocol": if test.udp { "UDP" } else { "TCP" },
            "num_streams": test.streams,
            "blksize": test.block_bytes,
            "omit": test.omit_s,
            "duration": test.time_s,
            "bytes": test.bytes,
            "blocks": 0,
            "reverse": i32::from(!sends && !test.bidirectional),
            "tos": test.tos,
            "target_bitrate": test.rate,
            "bidir": i32::from(test.bidirectional),
            "fqrate": 0,
            "interval": 1,
            "gso": 0,
            "gro": 0,
        },
    });
    if !test.udp {
        start["tcp_mss_default"] = json!(segment);
    }
    start
}

/// The first half's sums have iperf3's plain names.
fn name(base: &str, index: usize) -> String {
    let suffix = if index == 0 { "" } else { "_bidir_reverse" };
    format!("{base}{suffix}")
}

fn intervals(views: &[View<'_>]) -> Vec<Value> {
    let Some(first) = views.first() else {
        return Vec::new();
    };
    let (ramp, whole) = (first.ramp, first.near.duration);
    let tracks: Vec<Vec<Track<'_>>> = views.iter().map(View::tracks).collect();
    let mut rows = Vec::new();
    for (omitted, from, to) in cuts(ramp, whole) {
        let mut row = Map::new();
        let mut streams = Vec::new();
        for (index, (view, tracks)) in views.iter().zip(&tracks).enumerate() {
            let base = if omitted { Duration::ZERO } else { ramp };
            let span = Span {
                omitted,
                from,
                to,
                base,
                near_sends: view.near_sends,
            };
            let ids = view.near_streams.iter().map(|s| s.id);
            let parts: Vec<Part> = tracks.iter().map(|track| track.part(from, to)).collect();
            streams.extend(ids.zip(&parts).map(|(id, part)| span.stream(id, part)));
            row.insert(name("sum", index), span.sum(&parts));
        }
        row.insert("streams".to_owned(), Value::Array(streams));
        rows.push(Value::Object(row));
    }
    rows
}

/// Seconds of the omitted time, then those that count, the last one as long as it was; a rest below
/// a tenth belongs to its predecessor, as iperf3's last one mostly ends a little late.
fn cuts(ramp: Duration, whole: Duration) -> Vec<(bool, Duration, Duration)> {
    let mut cuts = Vec::new();
    for (omitted, begin, end) in [(true, Duration::ZERO, ramp), (false, ramp, whole)] {
        let mut at = begin;
        while at < end {
            let next = at + Duration::from_s(1);
            let next = if next + Duration::from_ms(100) >= end {
                end
            } else {
                next
            };
            cuts.push((omitted, at, next));
            at = next;
        }
    }
    cuts
}

/// One interval of one direction.
struct Span {
    omitted: bool,
    from: Duration,
    to: Duration,
    /// iperf3 counts from zero again after the omitted time.
    base: Duration,
    near_sends: bool,
}

impl Span {
    fn frame(&self, bytes: u64) -> Map<String, Value> {
        let (start, end) = (self.from - self.base, self.to - self.base);
        let mut map = rated(
            start.as_s_f64(),
            end.as_s_f64(),
            (end - start).as_s_f64(),
            bytes,
        );
        map.insert("omitted".to_owned(), json!(self.omitted));
        map.insert("sender".to_owned(), json!(self.near_sends));
        map
    }

    fn stream(&self, id: u32, part: &Part) -> Value {
        let mut map = self.frame(part.bytes);
        map.insert("socket".to_owned(), json!(socket(id)));
        match (&part.udp, self.near_sends) {
            (Some(udp), sends) => udp.add_to(&mut map, sends),
            (None, true) => part.add_tcp(&mut map),
            (None, false) => {}
        }
        Value::Object(map)
    }

    fn sum(&self, parts: &[Part]) -> Value {
        let mut map = self.frame(parts.iter().map(|p| p.bytes).sum());
        let udp: Vec<&UdpPart> = parts.iter().filter_map(|p| p.udp.as_ref()).collect();
        if !udp.is_empty() {
            UdpPart::sum(&udp).add_to(&mut map, self.near_sends);
        } else if self.near_sends {
            let again: u64 = parts.iter().map(|p| p.retransmits).sum();
            map.insert("retransmits".to_owned(), json!(again));
        }
        Value::Object(map)
    }
}

/// What one stream did in an interval.
struct Part {
    bytes: u64,
    retransmits: u64,
    info: TcpInfo,
    udp: Option<UdpPart>,
}

#[derive(Default)]
struct UdpPart {
    packets: u64,
    lost: i64,
    jitter_ms: f64,
}

impl Part {
    fn add_tcp(&self, map: &mut Map<String, Value>) {
        let info = &self.info;
        let window = info.snd_cwnd_segments.saturating_mul(info.snd_mss_bytes);
        for (key, value) in [
            ("retransmits", self.retransmits),
            ("snd_cwnd", window),
            ("snd_wnd", info.snd_wnd_bytes),
            ("rtt", info.rtt_us),
            ("rttvar", info.rttvar_us),
            ("pmtu", info.pmtu_bytes),
            ("reorder", info.reord_seen),
        ] {
            map.insert(key.to_owned(), json!(value));
        }
    }
}

impl UdpPart {
    /// Jitter is averaged over the streams, as iperf3 does.
    fn sum(parts: &[&Self]) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "128 at most")]
        let count = parts.len().max(1) as f64;
        Self {
            packets: parts.iter().map(|p| p.packets).sum(),
            lost: parts.iter().map(|p| p.lost).sum(),
            jitter_ms: parts.iter().map(|p| p.jitter_ms).sum::<f64>() / count,
        }
    }

    fn add_to(&self, map: &mut Map<String, Value>, sends: bool) {
        map.insert("packets".to_owned(), json!(self.packets));
        if !sends {
            map.insert("jitter_ms".to_owned(), json!(self.jitter_ms));
            map.insert("lost_packets".to_owned(), json!(self.lost));
            map.insert("lost_percent".to_owned(), json!(self.lost_percent()));
        }
    }

    fn lost_percent(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a percentage")]
        let (lost, packets) = (self.lost as f64, self.packets as f64);
        if self.packets > 0 {
            100.0 * lost / packets
        } else {
            0.0
        }
    }
}

/// The readings of one stream in the order of time.
struct Track<'a> {
    samples: Vec<&'a Sample>,
    udp: Option<Vec<&'a UdpSample>>,
}

impl View<'_> {
    fn tracks(&self) -> Vec<Track<'_>> {
        let streams = u16::try_from(self.near_streams.len()).unwrap_or(u16::MAX);
        let track = |stream| Track {
            udp: self
                .udp
                .map(|all| all.iter().filter(|s| s.stream == stream).collect()),
            ..Track::of(&self.near.samples, stream)
        };
        (0..streams).map(track).collect()
    }
}

impl<'a> Track<'a> {
    fn of(samples: &'a [Sample], stream: u16) -> Self {
        Self {
            samples: samples.iter().filter(|s| s.stream == stream).collect(),
            udp: None,
        }
    }

    /// Bytes and the last reading at a time, bytes interpolated.
    fn at(&self, t: Duration) -> (u64, TcpInfo) {
        let next = self.samples.partition_point(|s| s.t <= t);
        let Some(before) = next.checked_sub(1).and_then(|i| self.samples.get(i)) else {
            return (0, TcpInfo::default());
        };
        let bytes = match self.samples.get(next) {
            None => before.app_bytes,
            Some(after) => {
                let span = u128::from((after.t - before.t).as_ns()).max(1);
                let fresh = u128::from(after.app_bytes.saturating_sub(before.app_bytes));
                let part = fresh * u128::from((t - before.t).as_ns()) / span;
                before.app_bytes + u64::try_from(part).unwrap_or(0)
            }
        };
        (bytes, before.info)
    }

    fn part(&self, from: Duration, to: Duration) -> Part {
        let ((b0, i0), (b1, i1)) = (self.at(from), self.at(to));
        let again = |info: &TcpInfo| info.total_retrans_segments;
        Part {
            bytes: b1.saturating_sub(b0),
            retransmits: again(&i1).saturating_sub(again(&i0)),
            info: i1,
            udp: self.udp.as_ref().map(|samples| udp_part(samples, from, to)),
        }
    }

    /// What the stream came to after the ramp.
    fn total(&self, stream: u16, ramp: Duration, whole: Duration, sends: bool) -> StreamResult {
        let (before, info) = self.at(ramp);
        let last = self.samples.last().map(|s| (s.app_bytes, s.info));
        let (bytes, end) = last.unwrap_or_default();
        let again = |info: &TcpInfo| info.total_retrans_segments;
        StreamResult {
            id: stream_id(stream.into()),
            bytes: bytes.saturating_sub(before),
            retransmits: sends.then(|| again(&end).saturating_sub(again(&info))),
            seconds: (whole.as_s_f64() - ramp.as_s_f64()).max(0.0),
            ..StreamResult::default()
        }
    }
}

fn udp_part(samples: &[&UdpSample], from: Duration, to: Duration) -> UdpPart {
    let at = |t: Duration| {
        let next = samples.partition_point(|s| s.t <= t);
        next.checked_sub(1)
            .map_or_else(UdpSample::default, |i| *samples[i])
    };
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let (before, after) = (at(from), at(to));
    UdpPart {
        packets: after.packets.saturating_sub(before.packets),
        lost: signed(after.lost) - signed(before.lost),
        jitter_ms: after.jitter_ns / 1e6,
    }
}

fn end(test: &Test, views: &[View<'_>]) -> Value {
    let mut end = Map::new();
    let mut streams = Vec::new();
    for (index, view) in views.iter().enumerate() {
        let (sent, received) = match view.near_sends {
            true => (&view.near_streams, &view.far_streams),
            false => (&view.far_streams, &view.near_streams),
        };
        let tracks = view.tracks();
        for ((sender, receiver), track) in sent.iter().zip(received).zip(&tracks) {
            streams.push(if test.udp {
                json!({ "udp": udp_end(view, sender, receiver, track) })
            } else {
                json!({
                    "sender": sender_end(view, sender, track),
                    "receiver": total(view, receiver),
                })
            });
        }
        if test.udp {
            udp_sums(&mut end, index, view.near_sends, sent, received);
        } else {
            let again: Option<Vec<u64>> = sent.iter().map(|s| s.retransmits).collect();
            let mut all = sums(view.near_sends, sent);
            if let Some(again) = again {
                all.insert("retransmits".to_owned(), json!(again.iter().sum::<u64>()));
            }
            end.insert(name("sum_sent", index), Value::Object(all));
            let all = sums(view.near_sends, received);
            end.insert(name("sum_received", index), Value::Object(all));
        }
    }
    end.insert("streams".to_owned(), Value::Array(streams));
    let [near, far] = test.cpu;
    let cpu = json!({
        "host_total": near[0], "host_user": near[1], "host_system": near[2],
        "remote_total": far[0], "remote_user": far[1], "remote_system": far[2],
    });
    end.insert("cpu_utilization_percent".to_owned(), cpu);
    let sends = views.first().is_some_and(|v| v.near_sends);
    let [near, far] = &test.congestion;
    let (sender, receiver) = if sends { (near, far) } else { (far, near) };
    if let Some(sender) = sender.as_ref().filter(|_| !test.udp) {
        end.insert("sender_tcp_congestion".to_owned(), json!(sender));
    }
    if let Some(receiver) = receiver.as_ref().filter(|_| !test.udp) {
        end.insert("receiver_tcp_congestion".to_owned(), json!(receiver));
    }
    Value::Object(end)
}

fn total(view: &View<'_>, stream: &StreamResult) -> Map<String, Value> {
    let mut map = rated(0.0, stream.seconds, stream.seconds, stream.bytes);
    map.insert("socket".to_owned(), json!(socket(stream.id)));
    map.insert("sender".to_owned(), json!(view.near_sends));
    map
}

fn sender_end(view: &View<'_>, stream: &StreamResult, track: &Track<'_>) -> Value {
    let mut map = total(view, stream);
    let Some(again) = stream.retransmits else {
        return Value::Object(map);
    };
    // Only of a near sender is more known than the totals.
    let infos: Vec<&TcpInfo> = match view.near_sends {
        true => track
            .samples
            .iter()
            .map(|s| &s.info)
            .filter(|i| i.rtt_us > 0)
            .collect(),
        false => Vec::new(),
    };
    let rtts = || infos.iter().map(|i| i.rtt_us);
    let most = |value: fn(&TcpInfo) -> u64| infos.iter().map(|i| value(i)).max().unwrap_or(0);
    let mean = rtts().sum::<u64>() / (infos.len() as u64).max(1);
    for (key, value) in [
        ("retransmits", again),
        (
            "max_snd_cwnd",
            most(|i| i.snd_cwnd_segments.saturating_mul(i.snd_mss_bytes)),
        ),
        ("max_snd_wnd", most(|i| i.snd_wnd_bytes)),
        ("max_rtt", most(|i| i.rtt_us)),
        ("min_rtt", rtts().min().unwrap_or(0)),
        ("mean_rtt", mean),
        ("reorder", most(|i| i.reord_seen)),
    ] {
        map.insert(key.to_owned(), json!(value));
    }
    Value::Object(map)
}

fn sums(near_sends: bool, streams: &[StreamResult]) -> Map<String, Value> {
    let seconds = streams.iter().map(|s| s.seconds).fold(0.0, f64::max);
    let bytes = streams.iter().map(|s| s.bytes).sum();
    let mut map = rated(0.0, seconds, seconds, bytes);
    map.insert("sender".to_owned(), json!(near_sends));
    map
}

/// Losses and jitter are the receiver's, packets the sender's where it told them.
fn udp_of(sender: &StreamResult, receiver: &StreamResult) -> UdpPart {
    let counted = |s: &StreamResult| s.packets.saturating_sub(s.packets_omitted);
    UdpPart {
        packets: counted(sender).max(counted(receiver)),
        lost: receiver.lost.saturating_sub(receiver.lost_omitted),
        jitter_ms: receiver.jitter_s * 1000.0,
    }
}

fn udp_end(
    view: &View<'_>,
    sender: &StreamResult,
    receiver: &StreamResult,
    track: &Track<'_>,
) -> Value {
    let mut map = total(view, sender);
    udp_of(sender, receiver).add_to(&mut map, false);
    // The far end tells losses, not what came late.
    let last = track
        .udp
        .as_ref()
        .and_then(|samples| samples.last().copied());
    let late = last.filter(|_| !view.near_sends).map_or(0, |s| s.late);
    map.insert("out_of_order".to_owned(), json!(late));
    Value::Object(map)
}

fn udp_sums(
    end: &mut Map<String, Value>,
    index: usize,
    near_sends: bool,
    sent: &[StreamResult],
    received: &[StreamResult],
) {
    let parts: Vec<UdpPart> = sent
        .iter()
        .zip(received)
        .map(|(s, r)| udp_of(s, r))
        .collect();
    let whole = UdpPart::sum(&parts.iter().collect::<Vec<_>>());
    let clean = UdpPart {
        packets: whole.packets,
        ..UdpPart::default()
    };
    for (base, streams, sender, part) in [
        ("sum", sent, near_sends, &whole),
        ("sum_sent", sent, true, &clean),
        ("sum_received", received, false, &whole),
    ] {
        let mut map = sums(sender, streams);
        part.add_to(&mut map, false);
        end.insert(name(base, index), Value::Object(map));
    }
}

fn rated(start: f64, end: f64, seconds: f64, bytes: u64) -> Map<String, Value> {
    #[allow(clippy::cast_precision_loss, reason = "a rate, as iperf3 computes it")]
    let bits = bytes as f64 * 8.0;
    let rate = if seconds > 0.0 { bits / seconds } else { 0.0 };
    let mut map = Map::new();
    for (key, value) in [
        ("start", json!(start)),
        ("end", json!(end)),
        ("seconds", json!(seconds)),
        ("bytes", json!(bytes)),
        ("bits_per_second", json!(rate)),
    ] {
        map.insert(key.to_owned(), value);
    }
    map
}

/// iperf3's first stream has descriptor 5.
fn socket(id: u32) -> u32 {
    id.saturating_add(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(cuts: &[(bool, Duration, Duration)]) -> Vec<(bool, u64, u64)> {
        let ms = |d: Duration| d.as_ns() / 1_000_000;
        cuts.iter().map(|&(o, a, b)| (o, ms(a), ms(b))).collect()
    }

    #[test]
    fn intervals_are_seconds_and_a_short_rest_joins_its_predecessor() {
        let cut = |ramp, whole| seconds(&cuts(Duration::from_ms(ramp), Duration::from_ms(whole)));
        assert_eq!(cut(0, 1_000), [(false, 0, 1_000)]);
        assert_eq!(cut(0, 1_100), [(false, 0, 1_100)]);
        assert_eq!(cut(0, 1_101), [(false, 0, 1_000), (false, 1_000, 1_101)]);
        assert_eq!(cut(1_000, 2_000), [(true, 0, 1_000), (false, 1_000, 2_000)]);
        assert_eq!(cut(0, 0), []);
    }

    #[test]
    fn a_transfer_of_ours_has_iperf3s_keys() {
        let end = |step: u64| EndResult {
            bytes: 20 * step,
            duration: Duration::from_s(2),
            cpu: Duration::from_ms(500),
            congestion: "cubic".to_owned(),
            samples: (0..=20)
                .map(|i| Sample {
                    t: Duration::from_ms(100 * i),
                    app_bytes: i * step,
                    ..Sample::default()
                })
                .collect(),
            ..EndResult::default()
        };
        let outcome = Outcome {
            config: crate::Config {
                duration: Duration::from_s(2),
                ramp: Duration::from_s(1),
                ..crate::Config::default()
            },
            idle_rtt: crate::IdleRtt::default(),
            sender: end(1_000),
            receiver: end(900),
            interrupted: false,
            complete: true,
        };
        let json = document_of(&outcome, &Circumstances::default());
        assert_eq!(json["intervals"][0]["sum"]["omitted"], json!(true));
        assert_eq!(json["intervals"][1]["sum"]["start"], json!(0.0));
        assert_eq!(json["intervals"][1]["streams"][0]["bytes"], json!(10_000));
        assert_eq!(json["end"]["sum_sent"]["bytes"], json!(10_000));
        assert_eq!(json["end"]["sum_received"]["bytes"], json!(9_000));
        assert_eq!(
            json["end"]["sum_received"]["bits_per_second"],
            json!(72_000.0)
        );
        assert_eq!(json["end"]["sender_tcp_congestion"], json!("cubic"));
        assert_eq!(
            json["end"]["cpu_utilization_percent"]["host_total"],
            json!(25.0)
        );
        assert_eq!(json["start"]["test_start"]["omit"], json!(1));
    }
}
