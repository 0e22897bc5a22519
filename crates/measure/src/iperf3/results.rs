//! What the two ends of an iperf3 test tell each other afterwards.

use serde_json::{Value, json};

use super::message::{count, float, integer};
use crate::STREAMS_MAX;
use crate::facts::clean;

/// One end's results.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// CPU time in percent of the test's time: total, user, system.
    pub cpu_percent: [f64; 3],
    /// Whether its sending streams know what they sent again; `None` where it only receives.
    pub has_retransmits: Option<bool>,
    /// Congestion control of its sockets.
    pub congestion: Option<String>,
    /// Its streams.
    pub streams: Vec<StreamResult>,
    /// A server's own report, if it was asked for: JSON or lines of text.
    pub server_output: Option<Value>,
}

/// One stream at one end. What was omitted at the start is not in it, but for the packets and
/// errors of UDP, which iperf3 counts from the start and tells the omitted ones beside.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamResult {
    /// The stream's number: 1, 3, 4, 5, … in the order of the connections ([`stream_id`]).
    pub id: u32,
    /// Payload bytes that this end sent or received.
    pub bytes: u64,
    /// Segments sent again, where this end sends over TCP.
    pub retransmits: Option<u64>,
    /// RFC 1889 jitter, seconds, where this end receives over UDP.
    pub jitter_s: f64,
    /// Datagrams lost, net of late ones; may be below zero where datagrams were duplicated.
    pub lost: i64,
    /// Of these, omitted.
    pub lost_omitted: i64,
    /// Highest datagram number sent or received.
    pub packets: u64,
    /// Of these, omitted.
    pub packets_omitted: u64,
    /// Time that was counted.
    pub seconds: f64,
}

/// The number that iperf3 gives its n-th stream, counted from 0. It never gives 2.
pub fn stream_id(index: usize) -> u32 {
    let index = u32::try_from(index).unwrap_or(u32::MAX - 2);
    if index == 0 { 1 } else { index + 2 }
}

impl Results {
    /// Reads what the other end sent. What is missing reads as zero; hostile numbers stay numbers.
    ///
    /// # Errors
    ///
    /// No object, no streams, or more streams than a test can have.
    pub fn parse(json: &Value) -> Result<Self, String> {
        let streams = json.get("streams").and_then(Value::as_array);
        let streams = streams.ok_or("results without streams")?;
        if streams.len() > 2 * usize::from(STREAMS_MAX) {
            return Err(format!("results of {} streams", streams.len()));
        }
        let cpu = ["cpu_util_total", "cpu_util_user", "cpu_util_system"];
        let has = integer(json, "sender_has_retransmits");
        let text = json.get("server_output_text").and_then(Value::as_str);
        let output = json.get("server_output_json").cloned();
        let congestion = json.get("congestion_used").and_then(Value::as_str);
        Ok(Self {
            cpu_percent: cpu.map(|key| float(json, key)),
            has_retransmits: has.filter(|&n| n >= 0).map(|n| n > 0),
            congestion: congestion.map(clean),
            streams: streams.iter().map(StreamResult::parse).collect(),
            server_output: output.or_else(|| text.map(|t| json!(t))),
        })
    }

    /// The same as JSON.
    pub fn to_json(&self) -> Value {
        let streams: Vec<Value> = self.streams.iter().map(StreamResult::to_json).collect();
        let mut json = json!({
            "cpu_util_total": self.cpu_percent[0],
            "cpu_util_user": self.cpu_percent[1],
            "cpu_util_system": self.cpu_percent[2],
            "sender_has_retransmits": self.has_retransmits.map_or(-1, i64::from),
            "streams": streams,
        });
        if let Some(congestion) = &self.congestion {
            json["congestion_used"] = json!(congestion);
        }
        match &self.server_output {
            Some(Value::String(text)) => json["server_output_text"] = json!(text),
            Some(other) => json["server_output_json"] = other.clone(),
            None => {}
        }
        json
    }

    /// The stream of a number.
    pub fn stream(&self, id: u32) -> Option<&StreamResult> {
        self.streams.iter().find(|s| s.id == id)
    }
}

impl StreamResult {
    fn parse(json: &Value) -> Self {
        let retransmits = integer(json, "retransmits").and_then(|n| u64::try_from(n).ok());
        // An older end leaves the omitted ones out of neither, and does not say how many they are.
        Self {
            id: u32::try_from(count(json, "id")).unwrap_or(0),
            bytes: count(json, "bytes"),
            retransmits,
            jitter_s: float(json, "jitter"),
            lost: integer(json, "errors").unwrap_or(0),
            lost_omitted: integer(json, "omitted_errors").unwrap_or(0),
            packets: count(json, "packets"),
            packets_omitted: count(json, "omitted_packets"),
            seconds: (float(json, "end_time") - float(json, "start_time")).max(0.0),
        }
    }

    fn to_json(&self) -> Value {
        // Beyond 2^53 the other end's numbers, which are floats, would not hold it anyway.
        let retransmits = self.retransmits.and_then(|n| i64::try_from(n).ok());
        json!({
            "id": self.id,
            "bytes": self.bytes,
            "retransmits": retransmits.unwrap_or(-1),
            "jitter": self.jitter_s,
            "errors": self.lost,
            "omitted_errors": self.lost_omitted,
            "packets": self.packets,
            "omitted_packets": self.packets_omitted,
            "start_time": 0,
            "end_time": self.seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn results_of_iperf_3_12_read() {
        let told = r#"{"cpu_util_total":1.13,"cpu_util_user":0,"cpu_util_system":1.13,"sender_has_retransmits":18446744073709551615,"streams":[{"id":1,"bytes":205000,"retransmits":18446744073709551615,"jitter":1.0141677897341212e-05,"errors":0,"packets":205,"start_time":0,"end_time":0.544151}]}"#;
        let results = Results::parse(&serde_json::from_str(told).unwrap()).unwrap();
        assert_eq!(results.has_retransmits, None);
        assert_eq!(results.streams[0].retransmits, None);
        assert_eq!(results.streams[0].bytes, 205_000);
        assert_eq!(results.streams[0].packets, 205);
        assert!((results.streams[0].seconds - 0.544_151).abs() < 1e-9);
    }

    #[test]
    fn results_survive_the_wire() {
        let results = Results {
            cpu_percent: [3.0, 1.0, 2.0],
            has_retransmits: Some(true),
            congestion: Some("cubic".to_owned()),
            streams: vec![StreamResult {
                id: stream_id(1),
                bytes: 1 << 40,
                retransmits: Some(7),
                lost: -2,
                seconds: 1.5,
                ..StreamResult::default()
            }],
            server_output: Some(json!("line")),
        };
        assert_eq!(Results::parse(&results.to_json()).unwrap(), results);
    }

    #[test]
    fn streams_are_numbered_1_3_4_as_iperf3_does() {
        assert_eq!([0, 1, 2, 3].map(stream_id), [1, 3, 4, 5]);
    }

    #[test]
    fn too_many_streams_are_refused() {
        let streams = |n: usize| json!({"streams": vec![json!({}); n]});
        assert!(Results::parse(&streams(256)).is_ok());
        assert!(Results::parse(&streams(257)).is_err());
        assert!(Results::parse(&json!({"streams": 3})).is_err());
        assert!(Results::parse(&json!(null)).is_err());
    }

    proptest! {
        #[test]
        fn any_numbers_read(id in any::<f64>(), bytes in any::<i64>(), seconds in any::<f64>()) {
            let json = json!({"streams": [{"id": id, "bytes": bytes, "end_time": seconds}]});
            let read = Results::parse(&json).unwrap();
            prop_assert!(read.streams[0].seconds >= 0.0);
        }
    }
}
