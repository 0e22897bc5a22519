//! What an iperf3 client asks for: the JSON of the parameter exchange, with bounds.
//!
//! Left out: files, CPU affinity, SCTP, flow labels, authentication. What an unknown or unsupported
//! key asks for is ignored, as iperf3's own older servers do; SCTP alone is refused, since nothing
//! could be measured.

use serde_json::{Map, Value, json};

use super::message::{count, integer};
use crate::STREAMS_MAX;

/// A test as the client describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// UDP instead of TCP.
    pub udp: bool,
    /// Seconds at the start that are not counted, 0..=600. They come before `time_s`.
    pub omit_s: u32,
    /// Seconds that are counted, 0..=86400; 0 where bytes or blocks end the test.
    pub time_s: u32,
    /// Bytes to send in all streams, 0 for no limit.
    pub bytes: u64,
    /// Blocks to send in all streams, 0 for no limit.
    pub blocks: u64,
    /// Streams in each direction, 1..=128.
    pub streams: u16,
    /// The server sends.
    pub reverse: bool,
    /// Both send, each over streams of its own.
    pub bidirectional: bool,
    /// Socket buffers of both ends, 0 for the kernel's choice; at most 512 MiB.
    pub window_bytes: u32,
    /// Bytes of a write, or of a datagram.
    pub block_bytes: u32,
    /// Bits per second of each stream, 0 for no limit.
    pub rate: u64,
    /// Bits per second of the kernel's pacing of each stream, 0 for none.
    pub pacing: u64,
    /// TCP_MAXSEG, 0 for none.
    pub mss_bytes: u32,
    /// TCP_NODELAY.
    pub no_delay: bool,
    /// The TOS byte of the data.
    pub tos: u8,
    /// TCP congestion control of both ends.
    pub congestion: Option<String>,
    /// The server's own report is wanted with its results.
    pub server_output: bool,
    /// Datagrams are counted with 64 bits instead of 32.
    pub counters_64bit: bool,
}

/// Why parameters are refused: iperf3's number for it, and words for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// iperf3's error number (`IE…`).
    pub number: i32,
    /// What was asked for.
    pub text: String,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            udp: false,
            omit_s: 0,
            time_s: 10,
            bytes: 0,
            blocks: 0,
            streams: 1,
            reverse: false,
            bidirectional: false,
            window_bytes: 0,
            block_bytes: TCP_BLOCK_BYTES,
            rate: 0,
            pacing: 0,
            mss_bytes: 0,
            no_delay: false,
            tos: 0,
            congestion: None,
            server_output: false,
            counters_64bit: false,
        }
    }
}

impl Params {
    /// Reads and checks what a client sent.
    ///
    /// # Errors
    ///
    /// What is out of bounds or cannot be done.
    pub fn parse(json: &Value) -> Result<Self, Refused> {
        if !json.is_object() {
            return Err(refused(IE_RECV_PARAMS, "parameters that are no object"));
        }
        let flag = |key: &str| json.get(key).and_then(Value::as_bool) == Some(true);
        if flag("sctp") {
            return Err(refused(IE_UNIMPLEMENTED, "SCTP"));
        }
        let within = |key: &str, default: i64, low: i64, high: i64, number: i32| {
            let asked = integer(json, key).unwrap_or(default);
            let fits = (low..=high).contains(&asked).then_some(asked);
            fits.and_then(|n| u32::try_from(n).ok())
                .ok_or_else(|| refused(number, &format!("{key} {asked}, {low} to {high} work")))
        };
        let udp = flag("udp");
        let default_block = if udp {
            UDP_BLOCK_BYTES
        } else {
            TCP_BLOCK_BYTES
        };
        let asked = Some(count(json, "len")).filter(|&n| n > 0);
        let block_bytes = asked.unwrap_or_else(|| default_block.into());
        let (low, high) = if udp { UDP_BLOCKS } else { TCP_BLOCKS };
        if !(low..=high).contains(&block_bytes) {
            return Err(refused(
                IE_BLOCK_SIZE,
                &format!("blocks of {block_bytes} bytes"),
            ));
        }
        let streams = within("parallel", 1, 1, STREAMS_MAX.into(), IE_STREAMS)?;
        if u64::from(streams) * block_bytes > BLOCKS_BYTES_MAX {
            return Err(refused(
                IE_BLOCK_SIZE,
                "blocks of all streams above 256 MiB",
            ));
        }
        let congestion = json.get("congestion").and_then(Value::as_str);
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if congestion.is_some_and(|n| n.is_empty() || n.len() > 15 || !n.chars().all(legal)) {
            return Err(refused(
                IE_CONGESTION,
                "a congestion control without such a name",
            ));
        }
        let tos = within("TOS", 0, 0, 255, IE_TOS)?;
        Ok(Self {
            udp,
            omit_s: within("omit", 0, 0, 600, IE_OMIT)?,
            time_s: within("time", 10, 0, 86_400, IE_DURATION)?,
            bytes: count(json, "num"),
            blocks: count(json, "blockcount"),
            streams: u16::try_from(streams).unwrap_or(STREAMS_MAX),
            reverse: flag("reverse"),
            bidirectional: flag("bidirectional"),
            window_bytes: within("window", 0, 0, 512 << 20, IE_BUFFER)?,
            block_bytes: u32::try_from(block_bytes).unwrap_or(default_block),
            rate: count(json, "bandwidth"),
            pacing: count(json, "fqrate"),
            mss_bytes: within("MSS", 0, 0, 32 * 1024 - 1, IE_MSS)?,
            no_delay: flag("nodelay"),
            tos: u8::try_from(tos).unwrap_or(0),
            congestion: congestion.map(str::to_owned),
            server_output: count(json, "get_server_output") > 0,
            counters_64bit: count(json, "udp_counters_64bit") > 0,
        })
    }

    /// The same as JSON, in the order and with the omissions that iperf3 has.
    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        let mut put = |key: &str, value: Value, needed: bool| {
            if needed {
                map.insert(key.to_owned(), value);
            }
        };
        put(if self.udp { "udp" } else { "tcp" }, json!(true), true);
        put("omit", json!(self.omit_s), true);
        put("time", json!(self.time_s), true);
        put("num", json!(self.bytes), true);
        put("blockcount", json!(self.blocks), true);
        put("MSS", json!(self.mss_bytes), self.mss_bytes > 0);
        put("nodelay", json!(true), self.no_delay);
        put("parallel", json!(self.streams), true);
        put("reverse", json!(true), self.reverse);
        put("bidirectional", json!(true), self.bidirectional);
        put("window", json!(self.window_bytes), self.window_bytes > 0);
        put("len", json!(self.block_bytes), true);
        put("bandwidth", json!(self.rate), self.rate > 0);
        put("fqrate", json!(self.pacing), self.pacing > 0);
        put("pacing_timer", json!(1000), true);
        put("TOS", json!(self.tos), self.tos > 0);
        put(
            "congestion",
            json!(self.congestion),
            self.congestion.is_some(),
        );
        put("get_server_output", json!(1), self.server_output);
        put("udp_counters_64bit", json!(1), self.counters_64bit);
        put("client_version", json!(SPOKEN), true);
        Value::Object(map)
    }

    /// Bytes that end the test, over all streams; `None` where the time does.
    pub fn budget(&self) -> Option<u64> {
        let blocks = self.blocks.saturating_mul(self.block_bytes.into());
        [self.bytes, blocks].into_iter().filter(|&n| n > 0).min()
    }
}

fn refused(number: i32, what: &str) -> Refused {
    Refused {
        number,
        text: format!("{what} asked for"),
    }
}

/// What iperf3's error numbers say, in our words; those that a server sends.
pub(super) fn error_text(number: i32) -> &'static str {
    match number {
        IE_DURATION => "it does not take so long a test",
        IE_STREAMS => "it does not take so many streams",
        IE_BLOCK_SIZE => "it does not take blocks of that size",
        IE_BUFFER | 124 | 130 => "it cannot have socket buffers of that size",
        IE_MSS | 123 => "it cannot have that segment size",
        IE_OMIT => "it does not leave out so much",
        IE_UNIMPLEMENTED => "it cannot do that",
        27 => "it limits the rate, and this is more",
        37 => "it limits the time, and this is more",
        IE_RECV_PARAMS => "it did not understand the parameters",
        IE_CONGESTION => "it does not have that congestion control",
        IE_AUTHORIZATION => {
            "it wants a user and a password, or a token, which iperf3's protocol cannot give"
        }
        144 => "it received no data",
        IE_EXPIRED => "it gave up since the test lasted longer than asked for",
        200..=208 => "it could not open or use a data stream",
        _ => "see iperf3's list of errors",
    }
}

/// iperf3's numbers (`iperf_api.h`).
pub(super) const IE_DURATION: i32 = 5;
pub(super) const IE_STREAMS: i32 = 6;
const IE_BLOCK_SIZE: i32 = 7;
const IE_BUFFER: i32 = 8;
const IE_MSS: i32 = 10;
const IE_OMIT: i32 = 12;
const IE_UNIMPLEMENTED: i32 = 13;
const IE_TOS: i32 = 21;
const IE_RECV_PARAMS: i32 = 114;
pub(super) const IE_CONGESTION: i32 = 134;
pub(super) const IE_AUTHORIZATION: i32 = 142;
pub(super) const IE_NO_DATA: i32 = 144;
pub(super) const IE_EXPIRED: i32 = 160;
pub(super) const IE_STREAM: i32 = 204;

/// The version whose protocol we speak; servers show it, none decides by it.
pub(super) const SPOKEN: &str = "3.12";

const TCP_BLOCK_BYTES: u32 = 128 * 1024;
/// What iperf3 falls back to where the control connection's segment size is not known.
pub(super) const UDP_BLOCK_BYTES: u32 = 1460;
const TCP_BLOCKS: (u64, u64) = (1, 16 << 20);
/// The header with a counter of 64 bits; the largest IPv4 payload.
pub(super) const UDP_BLOCKS: (u64, u64) = (16, 65_507);
const BLOCKS_BYTES_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_iperf_3_12_read_and_are_written_the_same() {
        let told = r#"{"udp":true,"omit":0,"time":1,"num":0,"blockcount":0,"parallel":1,"bidirectional":true,"len":32768,"bandwidth":10000000,"pacing_timer":1000,"get_server_output":1,"client_version":"3.12"}"#;
        let json: Value = serde_json::from_str(told).unwrap();
        let params = Params::parse(&json).unwrap();
        assert_eq!(
            params,
            Params {
                udp: true,
                time_s: 1,
                bidirectional: true,
                block_bytes: 32_768,
                rate: 10_000_000,
                server_output: true,
                ..Params::default()
            }
        );
        assert_eq!(params.to_json(), json);
    }

    #[test]
    fn values_out_of_bounds_are_refused_with_iperf3s_number() {
        let number = |json: Value| Params::parse(&json).map_err(|r| r.number);
        assert!(number(json!({"parallel": 128, "tcp": true})).is_ok());
        assert_eq!(number(json!({"parallel": 129})), Err(IE_STREAMS));
        assert_eq!(number(json!({"parallel": 0})), Err(IE_STREAMS));
        assert_eq!(number(json!({"parallel": -1})), Err(IE_STREAMS));
        assert!(number(json!({"time": 86_400})).is_ok());
        assert_eq!(number(json!({"time": 86_401})), Err(IE_DURATION));
        assert!(number(json!({"omit": 600})).is_ok());
        assert_eq!(number(json!({"omit": 601})), Err(IE_OMIT));
        assert!(number(json!({"len": 16 << 20})).is_ok());
        assert_eq!(number(json!({"len": (16 << 20) + 1})), Err(IE_BLOCK_SIZE));
        assert_eq!(
            number(json!({"len": 16 << 20, "parallel": 17})),
            Err(IE_BLOCK_SIZE)
        );
        assert!(number(json!({"udp": true, "len": 16})).is_ok());
        assert_eq!(number(json!({"udp": true, "len": 15})), Err(IE_BLOCK_SIZE));
        assert_eq!(
            number(json!({"udp": true, "len": 65_508})),
            Err(IE_BLOCK_SIZE)
        );
        assert!(number(json!({"window": 512 << 20})).is_ok());
        assert_eq!(
            number(json!({"window": (512_u64 << 20) + 1})),
            Err(IE_BUFFER)
        );
        assert_eq!(number(json!({"congestion": "../x"})), Err(IE_CONGESTION));
        assert_eq!(number(json!({"sctp": true})), Err(IE_UNIMPLEMENTED));
        assert_eq!(number(json!([1])), Err(IE_RECV_PARAMS));
    }

    #[test]
    fn wrong_types_read_as_absent() {
        let json = json!({"tcp": 1, "parallel": "many", "reverse": 1, "len": [], "num": {}});
        assert_eq!(Params::parse(&json), Ok(Params::default()));
    }

    #[test]
    fn bytes_and_blocks_end_a_test_whichever_comes_first() {
        let params = |bytes, blocks| Params {
            bytes,
            blocks,
            block_bytes: 10,
            ..Params::default()
        };
        assert_eq!(params(0, 0).budget(), None);
        assert_eq!(params(7, 0).budget(), Some(7));
        assert_eq!(params(0, 7).budget(), Some(70));
        assert_eq!(params(80, 7).budget(), Some(70));
        assert_eq!(params(0, u64::MAX).budget(), Some(u64::MAX));
    }
}
