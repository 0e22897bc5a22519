//! A result in messages: a head, then samples as rows of numbers, each row holding only the
//! `tcp_info` fields that changed since the stream's row before (some 100 B a sample instead of
//! 1 KiB).
//!
//! A row is `[stream, kind, t_ns, app_bytes, field, value, field, value, …]`; a field is its
//! position in the head's list of names, so that kernels with other fields than ours read too.

use units::{Bytes, Duration, Instant};
use wire::tcp_info::TcpInfo;

use crate::HostCost;
use crate::config::SAMPLES_MAX;
use crate::facts::clean;
use crate::message::{Message, ResultHead};
use crate::outcome::{EndResult, Sample, SampleKind};
use crate::quic::QuicInfo;

/// Rows of one message: some 30 KB, at worst 400 KB.
const ROWS_PER_MESSAGE: usize = 256;
/// Above every kernel's number of `tcp_info` fields.
const FIELDS_MAX: usize = 512;
/// Before the names of QUIC's own fields.
const QUIC: &str = "quic_";

/// The messages that carry a result, made one after the other.
pub(crate) fn messages_of(result: &EndResult) -> impl Iterator<Item = Message> {
    let longest = result
        .samples
        .iter()
        .map(|s| s.info)
        .max_by_key(|info| info.len_bytes);
    let quic = result.samples.iter().any(|s| s.quic.is_some());
    let fields: Vec<String> = match quic {
        true => QuicInfo::default()
            .fields()
            .map(|(name, _)| format!("{QUIC}{name}"))
            .collect(),
        false => longest
            .unwrap_or_default()
            .fields()
            .map(|(name, _)| name.to_owned())
            .collect(),
    };
    let head = ResultHead {
        cpu_ns: result.cpu.as_ns(),
        bytes: result.bytes,
        duration_ns: result.duration.as_ns(),
        start_ns: result.start.as_ns(),
        congestion: result.congestion.clone(),
        send_buffer_bytes: result.send_buffer.as_u64(),
        receive_buffer_bytes: result.receive_buffer.as_u64(),
        error: result.error.clone(),
        cost: result.cost.clone(),
        zero_copy: result.zero_copy,
        udp: result.udp.clone(),
        socket_dropped: result.socket_dropped,
        fields,
    };
    let streams = result
        .samples
        .iter()
        .map(|s| usize::from(s.stream) + 1)
        .max()
        .unwrap_or(0);
    let mut last = vec![Last::default(); streams];
    let samples = result
        .samples
        .chunks(ROWS_PER_MESSAGE)
        .map(move |chunk| Message::Samples(chunk.iter().map(|s| row_of(s, &mut last)).collect()));
    std::iter::once(Message::Result(head))
        .chain(samples)
        .chain([Message::ResultEnd])
}

fn row_of(sample: &Sample, last: &mut [Last]) -> Vec<u64> {
    let mut row = vec![
        sample.stream.into(),
        sample.kind.number(),
        sample.t.as_ns(),
        sample.app_bytes,
    ];
    let last = &mut last[usize::from(sample.stream)];
    let mut add = |index: usize, old: Option<u64>, value: u64| {
        if old != Some(value) {
            row.extend([index as u64, value]);
        }
    };
    if let Some(quic) = sample.quic {
        let before = last.quic.replace(quic);
        let mut old = before.iter().flat_map(QuicInfo::fields);
        for (index, (_, value)) in quic.fields().enumerate() {
            add(index, old.next().map(|(_, value)| value), value);
        }
        return row;
    }
    let before = last.info.replace(sample.info);
    let mut old = before.iter().flat_map(TcpInfo::fields);
    for (index, (_, value)) in sample.info.fields().enumerate() {
        add(index, old.next().map(|(_, value)| value), value);
    }
    row
}

/// A stream's row before.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    info: Option<TcpInfo>,
    quic: Option<QuicInfo>,
}

/// Puts a result together from its messages.
#[derive(Debug)]
pub(crate) struct Decoder {
    result: EndResult,
    fields: Vec<String>,
    last: Vec<Last>,
}

impl Decoder {
    /// Begins with the head; `streams` bounds what rows may name.
    pub(crate) fn new(head: ResultHead, streams: u16) -> Result<Self, String> {
        if head.fields.len() > FIELDS_MAX {
            return Err(format!("{} tcp_info fields", head.fields.len()));
        }
        if head.udp.len() > usize::from(streams) {
            return Err(format!("datagrams of {} streams", head.udp.len()));
        }
        let result = EndResult {
            cpu: Duration::from_ns(head.cpu_ns),
            bytes: head.bytes,
            duration: Duration::from_ns(head.duration_ns),
            start: Instant::from_ns(head.start_ns),
            congestion: clean(&head.congestion),
            send_buffer: Bytes::new(head.send_buffer_bytes),
            receive_buffer: Bytes::new(head.receive_buffer_bytes),
            error: head.error.as_deref().map(clean),
            cost: head.cost.map(HostCost::cleaned),
            zero_copy: head.zero_copy,
            udp: head.udp,
            socket_dropped: head.socket_dropped,
            samples: Vec::new(),
            ..EndResult::default()
        };
        let last = vec![Last::default(); streams.into()];
        Ok(Self {
            result,
            fields: head.fields,
            last,
        })
    }

    /// Adds the rows of one message.
    pub(crate) fn add(&mut self, rows: &[Vec<u64>]) -> Result<(), String> {
        if self.result.samples.len() + rows.len() > SAMPLES_MAX + 4 * self.last.len() {
            return Err("more samples than the protocol allows".to_owned());
        }
        for row in rows {
            let sample = self.sample_of(row).ok_or("a sample that makes no sense")?;
            self.result.samples.push(sample);
        }
        Ok(())
    }

    /// The whole result.
    pub(crate) fn finish(self) -> EndResult {
        self.result
    }

    fn sample_of(&mut self, row: &[u64]) -> Option<Sample> {
        let (head, pairs) = row.split_first_chunk::<4>()?;
        let [stream, kind, t_ns, app_bytes] = *head;
        let last = self.last.get_mut(usize::try_from(stream).ok()?)?;
        if pairs.len() % 2 != 0 {
            return None;
        }
        for pair in pairs.chunks_exact(2) {
            let name = self.fields.get(usize::try_from(pair[0]).ok()?)?;
            // A field that we do not know is newer than us: skipped.
            match name.strip_prefix(QUIC) {
                Some(name) => last.quic.get_or_insert_default().set(name, pair[1]),
                None => last.info.get_or_insert_default().set(name, pair[1]),
            };
        }
        Some(Sample {
            stream: u16::try_from(stream).ok()?,
            kind: SampleKind::of_number(kind)?,
            t: Duration::from_ns(t_ns),
            app_bytes,
            info: last.info.unwrap_or_default(),
            quic: last.quic,
        })
    }
}

impl SampleKind {
    const fn number(self) -> u64 {
        match self {
            Self::Start => 0,
            Self::Periodic => 1,
            Self::End => 2,
            Self::Drained => 3,
        }
    }

    const fn of_number(number: u64) -> Option<Self> {
        Some(match number {
            0 => Self::Start,
            1 => Self::Periodic,
            2 => Self::End,
            3 => Self::Drained,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::CpuUse;

    fn decode_all(
        messages: impl Iterator<Item = Message>,
        streams: u16,
    ) -> Result<EndResult, String> {
        let mut decoder = None;
        for message in messages {
            match message {
                Message::Result(head) => decoder = Some(Decoder::new(head, streams)?),
                Message::Samples(rows) => decoder.as_mut().ok_or("no head")?.add(&rows)?,
                _ => {}
            }
        }
        decoder
            .map(Decoder::finish)
            .ok_or_else(|| "no head".to_owned())
    }

    fn info(seed: u64) -> TcpInfo {
        let byte = |i: u64| u8::try_from((i * 7 + seed * (i % 3)) % 251).unwrap();
        TcpInfo::parse(&(0..280).map(byte).collect::<Vec<u8>>()).unwrap()
    }

    #[test]
    fn a_result_survives_its_messages() {
        let samples = (0..1000_u64)
            .map(|i| Sample {
                stream: u16::try_from(i % 3).unwrap(),
                kind: SampleKind::of_number(i % 4).unwrap(),
                t: Duration::from_ms(i),
                app_bytes: i * 1_000_000_007,
                info: info(i / 5),
                quic: None,
            })
            .collect();
        let result = EndResult {
            cpu: Duration::from_ms(3),
            bytes: 5,
            duration: Duration::from_s(1),
            start: Instant::from_ns(77),
            congestion: "cubic".to_owned(),
            error: Some("x".to_owned()),
            cost: Some(HostCost {
                boot: "ab-1".to_owned(),
                user_ns: 7,
                cpus: vec![CpuUse::default(); 3],
                ..HostCost::default()
            }),
            samples,
            ..EndResult::default()
        };
        assert_eq!(decode_all(messages_of(&result), 3).unwrap(), result);
        assert!(
            decode_all(messages_of(&result), 2).is_err(),
            "stream 2 does not exist"
        );
    }

    #[test]
    fn quics_own_fields_survive_and_newer_ones_are_skipped() {
        let samples = (0..20_u64)
            .map(|i| Sample {
                stream: u16::try_from(i % 2).unwrap(),
                quic: Some(QuicInfo {
                    rtt_us: 7 + i / 6,
                    packets_sent: i,
                    ..QuicInfo::default()
                }),
                ..Sample::default()
            })
            .collect();
        let result = EndResult {
            samples,
            socket_dropped: Some(u64::MAX),
            ..EndResult::default()
        };
        assert_eq!(decode_all(messages_of(&result), 2).unwrap(), result);
        let head = ResultHead {
            fields: vec!["quic_of_the_future".to_owned(), "quic_rtt_us".to_owned()],
            ..ResultHead::default()
        };
        let mut decoder = Decoder::new(head, 1).unwrap();
        decoder.add(&[vec![0, 1, 5, 6, 0, 1, 1, 99]]).unwrap();
        assert_eq!(decoder.finish().samples[0].quic.unwrap().rtt_us, 99);
    }

    #[test]
    fn an_empty_result_survives() {
        let result = EndResult::default();
        assert_eq!(decode_all(messages_of(&result), 1).unwrap(), result);
    }

    #[test]
    fn an_end_that_does_not_tell_its_cost_reads_without() {
        let head: ResultHead = serde_json::from_str(r#"{"cpu_ns":5,"bytes":9}"#).unwrap();
        let result = Decoder::new(head, 1).unwrap().finish();
        assert_eq!((result.cpu, result.cost), (Duration::from_ns(5), None));
        assert_eq!(result.socket_dropped, None);
        let silent = serde_json::to_string(&ResultHead::default()).unwrap();
        assert!(!silent.contains("cost"), "{silent}");
        assert!(!silent.contains("dropped"), "{silent}");
    }

    #[test]
    fn fields_of_a_newer_kernel_are_skipped() {
        let head = ResultHead {
            fields: vec!["state".to_owned(), "of_the_future".to_owned()],
            ..ResultHead::default()
        };
        let mut decoder = Decoder::new(head, 1).unwrap();
        decoder.add(&[vec![0, 1, 5, 6, 0, 1, 1, 99]]).unwrap();
        assert_eq!(decoder.finish().samples[0].info.state, 1);
    }

    proptest! {
        #[test]
        fn any_rows_are_samples_or_an_error(rows in prop::collection::vec(prop::collection::vec(0..9_u64, 0..9), 0..9)) {
            let head = ResultHead { fields: vec!["state".to_owned()], ..ResultHead::default() };
            let _ = Decoder::new(head, 2).unwrap().add(&rows);
        }
    }
}
