//! What the two ends say to each other: the greeting line and the control messages. Pure functions
//! over bytes; `decode` and `hear` take anything and never panic, so that both can be fuzzed.
//!
//! A greeting is 24 bytes: `goodput-measure `, three digits of protocol number, a blank, three
//! letters (`ctl`, `dat`, `srv`), a line feed. Numbers are compared, letters only within one
//! protocol. A message is a u32 in network order, the length of the JSON that follows; the length
//! is checked against the limit before anything is allocated.

use serde::{Deserialize, Serialize};

use crate::HostCost;
use crate::config::Spec;
use crate::facts::{FarFacts, clean};
use crate::messages::{MessageCount, MessageSpec, VerbsEnds};
use crate::outcome::UdpCounts;
use crate::outlet::ZeroCopyCounts;
pub use crate::protocol::{PROTOCOL, TOKEN_BYTES};
use crate::ranks::{RankSpec, RankStep, RankTest, RankTimes};

/// Bytes of a greeting line.
pub const GREETING_BYTES: usize = 24;

/// Bytes that open a data connection: greeting, token, stream number in network order.
pub const DATA_OPENING_BYTES: usize = GREETING_BYTES + TOKEN_BYTES + 2;

/// Bytes of the nonce by which a client proves where its datagrams come from.
pub const ADDRESS_NONCE_BYTES: usize = 16;

/// Bytes of the server's answer to an opening over UDP: greeting and nonce. Shorter than an opening, so
/// that a forged one is not amplified.
pub const ADDRESS_CHALLENGE_BYTES: usize = GREETING_BYTES + ADDRESS_NONCE_BYTES;
const _: () = assert!(ADDRESS_CHALLENGE_BYTES < DATA_OPENING_BYTES);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Control connection, from the client.
    Control,
    /// Data connection, from the client.
    Data,
    /// The server's answer to a control connection.
    Server,
}

/// What the first bytes of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// So far a greeting, but not all of it.
    More,
    /// A greeting of our protocol.
    Greeting(Kind),
    /// A greeting of another protocol.
    OtherVersion(u16),
    /// No greeting, whatever follows.
    Foreign,
}

/// One control message. `→` marks what clients send, `←` what servers send.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Message {
    /// ← After the greeting: the session is open.
    Welcome(Box<FarFacts>),
    /// ← After the greeting: no session left; the connection ends.
    Busy {
        /// How many there are.
        sessions: u32,
        /// How many one address may have, where that is what stands in the way.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        per_address: Option<u32>,
    },
    /// ← After the greeting, of a server with a token: prove that you have it. Then `Proof` and
    /// `Welcome`, or `Denied`.
    Challenge {
        /// 64 hexadecimal digits, random.
        nonce: String,
    },
    /// → The client's proof.
    Answer {
        /// 64 hexadecimal digits, random.
        nonce: String,
        /// 64 hexadecimal digits.
        proof: String,
    },
    /// ← The server's proof.
    Proof {
        /// 64 hexadecimal digits.
        proof: String,
    },
    /// ← That was no proof; the connection ends.
    Denied,
    /// → Answer at once.
    Ping {
        /// Comes back in the answer.
        n: u32,
        /// Mark of what the server sends from then on, 0 to 63 (RFC 2474). Servers from before it was
        /// there mark nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dscp: Option<u8>,
    },
    /// ← The answer.
    Pong {
        /// The number asked with.
        n: u32,
    },
    /// → Prepare this transfer.
    Start(Spec),
    /// → Prepare to exchange messages; answered like `Start`.
    StartMessages(MessageSpec),
    /// ← instead of `Accept` where messages go by RDMA verbs, and then → : where its queues are.
    VerbsEnds(VerbsEnds),
    /// → Be one of several hosts that send to each other; answered by `Accept`, whose token other ranks
    /// open their data connections with. Until `Stop` the session is a rank's.
    StartRank(RankSpec),
    /// → Connect to a rank, await another; answered by `Ready`.
    RankStep(RankStep),
    /// → Do this with them, now; answered by `RankTimes`.
    RankTest(RankTest),
    /// ← The test is over: how long it took.
    RankTimes(RankTimes),
    /// ← The messages are over: what the server received.
    MessagesDone(MessageCount),
    /// ← Open the data connections with this token.
    Accept {
        /// 32 hexadecimal digits.
        token: String,
    },
    /// ← This transfer cannot be had; the session goes on.
    Refused(Refusal),
    /// ← All data connections are there.
    Ready,
    /// → Begin. When the client sends, its payload follows.
    Go,
    /// ← When the server sends: its payload follows.
    Started,
    /// From the receiving end, every 200 ms.
    Progress {
        /// Payload that its application has taken.
        bytes: u64,
        /// Time since the start at that end.
        t_ns: u64,
    },
    /// From the sending end over UDP and verbs, where nothing else marks the end: all datagrams or
    /// messages are handed over.
    Sent {
        /// How many, of each stream.
        packets: Vec<u64>,
    },
    /// From the receiving end: all data connections have ended.
    Received {
        /// Payload that its application has taken.
        bytes: u64,
    },
    /// → End the transfer now; the result is still wanted.
    Stop,
    /// ← What the server's end counted.
    Result(ResultHead),
    /// ← Samples of it, any number of these messages.
    Samples(Vec<Vec<u64>>),
    /// ← That was all of it.
    ResultEnd,
    /// ← The session ends because of this.
    Failed {
        /// Why.
        text: String,
    },
}

/// Why a server refuses a transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// More than it allows, or nonsense.
    Limit {
        /// Which limit.
        text: String,
    },
    /// The congestion control cannot be had there.
    Congestion {
        /// False when the kernel has it, but not for this user.
        permitted: bool,
        /// What can be had.
        available: Vec<String>,
    },
    /// The host cannot.
    Host {
        /// What failed.
        text: String,
    },
}

/// The result of one end without its samples.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResultHead {
    /// CPU time of the data threads.
    pub cpu_ns: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// From the start to the last stream's end.
    pub duration_ns: u64,
    /// CLOCK_MONOTONIC of that machine at the start.
    pub start_ns: u64,
    /// Congestion control that the sockets used.
    pub congestion: String,
    /// SO_SNDBUF as granted, in the kernel's bookkeeping.
    pub send_buffer_bytes: u64,
    /// SO_RCVBUF as granted, in the kernel's bookkeeping.
    pub receive_buffer_bytes: u64,
    /// What broke a stream, if anything did.
    pub error: Option<String>,
    /// What the transfer cost that host; ends before it was told leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<HostCost>,
    /// What became of sends without copying.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zero_copy: Option<ZeroCopyCounts>,
    /// Datagrams of each stream, over UDP.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub udp: Vec<UdpCounts>,
    /// Datagrams that the kernel dropped for want of room, over QUIC; ends before it was told leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_dropped: Option<u64>,
    /// Names of the `tcp_info` fields that the samples' numbers refer to by position.
    pub fields: Vec<String>,
}

/// Why bytes are not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The length prefix exceeds the limit.
    #[error("a message of {len} bytes exceeds the limit of {max}")]
    TooLong {
        /// What the prefix says.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// The bytes are not a message of this protocol.
    #[error("not a message: {0}")]
    Malformed(String),
}

/// The greeting that opens a connection.
pub fn greeting(kind: Kind) -> [u8; GREETING_BYTES] {
    let mut line = [0; GREETING_BYTES];
    let text = format!("{MAGIC}{PROTOCOL:03} {}\n", kind.letters());
    line.copy_from_slice(text.as_bytes());
    line
}

/// Tells what the first bytes of a connection are, as early as possible.
pub fn hear(bytes: &[u8]) -> Heard {
    let seen = bytes.len().min(MAGIC.len());
    if bytes[..seen] != MAGIC.as_bytes()[..seen] {
        return Heard::Foreign;
    }
    let rest = &bytes[seen..];
    if rest.iter().take(3).any(|b| !b.is_ascii_digit()) {
        return Heard::Foreign;
    }
    if bytes.len() < GREETING_BYTES {
        return Heard::More;
    }
    let number = rest[..3]
        .iter()
        .fold(0, |n, digit| n * 10 + u16::from(digit - b'0'));
    if number != PROTOCOL {
        return Heard::OtherVersion(number);
    }
    let kinds = [Kind::Control, Kind::Data, Kind::Server];
    let line = &bytes[..GREETING_BYTES];
    kinds
        .into_iter()
        .find(|&k| greeting(k) == line)
        .map_or(Heard::Foreign, Heard::Greeting)
}

/// Appends a message in its framing.
pub fn encode(message: &Message, to: &mut Vec<u8>) {
    let at = to.len();
    to.extend_from_slice(&[0; 4]);
    serde_json::to_writer(&mut *to, message).expect("a message of integers and texts is JSON");
    let len = u32::try_from(to.len() - at - 4).expect("messages stay below MESSAGE_BYTES_MAX");
    to[at..at + 4].copy_from_slice(&len.to_be_bytes());
}

/// Reads one message from the front of `bytes`: the message and how many bytes it took, or `None`
/// when more bytes are needed.
///
/// # Errors
///
/// A length above `max`, or bytes that are no message.
pub fn decode(bytes: &[u8], max: usize) -> Result<Option<(Message, usize)>, MessageError> {
    let Some(prefix) = bytes.first_chunk::<4>() else {
        return Ok(None);
    };
    let len = usize::try_from(u32::from_be_bytes(*prefix)).unwrap_or(usize::MAX);
    if len > max {
        return Err(MessageError::TooLong { len, max });
    }
    let Some(body) = bytes.get(4..4 + len) else {
        return Ok(None);
    };
    match serde_json::from_slice(body) {
        Ok(message) => Ok(Some((message, 4 + len))),
        Err(error) => Err(MessageError::Malformed(clean(&error.to_string()))),
    }
}

/// The opening of a data connection.
pub fn data_opening(token: [u8; TOKEN_BYTES], stream: u16) -> [u8; DATA_OPENING_BYTES] {
    let mut bytes = [0; DATA_OPENING_BYTES];
    bytes[..GREETING_BYTES].copy_from_slice(&greeting(Kind::Data));
    bytes[GREETING_BYTES..DATA_OPENING_BYTES - 2].copy_from_slice(&token);
    bytes[DATA_OPENING_BYTES - 2..].copy_from_slice(&stream.to_be_bytes());
    bytes
}

/// Token and stream number of a whole opening.
pub fn parse_data_opening(bytes: &[u8; DATA_OPENING_BYTES]) -> ([u8; TOKEN_BYTES], u16) {
    let mut token = [0; TOKEN_BYTES];
    token.copy_from_slice(&bytes[GREETING_BYTES..DATA_OPENING_BYTES - 2]);
    (
        token,
        u16::from_be_bytes([bytes[DATA_OPENING_BYTES - 2], bytes[DATA_OPENING_BYTES - 1]]),
    )
}

/// The server's answer to an opening over UDP.
pub fn address_challenge(nonce: [u8; ADDRESS_NONCE_BYTES]) -> [u8; ADDRESS_CHALLENGE_BYTES] {
    let mut bytes = [0; ADDRESS_CHALLENGE_BYTES];
    bytes[..GREETING_BYTES].copy_from_slice(&greeting(Kind::Server));
    bytes[GREETING_BYTES..].copy_from_slice(&nonce);
    bytes
}

/// The nonce of a whole answer to an opening over UDP; `None` of any other datagram.
pub fn parse_address_challenge(datagram: &[u8]) -> Option<[u8; ADDRESS_NONCE_BYTES]> {
    let nonce = datagram.strip_prefix(&greeting(Kind::Server))?;
    nonce.try_into().ok()
}

/// A token as hexadecimal digits.
pub fn token_to_hex(token: [u8; TOKEN_BYTES]) -> String {
    token.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A token from 32 hexadecimal digits.
pub fn token_from_hex(hex: &str) -> Option<[u8; TOKEN_BYTES]> {
    if hex.len() != 2 * TOKEN_BYTES || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    Some(u128::from_str_radix(hex, 16).ok()?.to_be_bytes())
}

/// Says in words what a foreign peer is, from its first bytes.
pub fn describe_foreign(bytes: &[u8]) -> String {
    let shown: String = bytes
        .iter()
        .take(32)
        .map(|&b| b.escape_ascii().to_string())
        .collect();
    let begins = |texts: &[&str]| texts.iter().any(|t| bytes.starts_with(t.as_bytes()));
    let guess = if begins(&["HTTP/", "GET ", "POST ", "HEAD ", "PUT ", "OPTIONS "]) {
        "speaks HTTP"
    } else if begins(&["SSH-"]) {
        "speaks SSH"
    } else if bytes.starts_with(&[0x16, 3]) || bytes.starts_with(&[0x15, 3]) {
        "speaks TLS"
    } else if bytes.len() >= 36 && bytes[..36].iter().all(u8::is_ascii_alphanumeric) {
        "looks like iperf3"
    } else if bytes.is_empty() {
        return "closed the connection without a word".to_owned();
    } else {
        "speaks something else"
    };
    format!("{guess} (began with \"{shown}\")")
}

impl Kind {
    const fn letters(self) -> &'static str {
        match self {
            Self::Control => "ctl",
            Self::Data => "dat",
            Self::Server => "srv",
        }
    }
}

const MAGIC: &str = "goodput-measure ";
const _: () = assert!(MAGIC.len() + 3 + 1 + 3 + 1 == GREETING_BYTES && PROTOCOL < 1000);

/// Largest control message that this code sends or accepts.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_greeting_is_heard_byte_by_byte() {
        for kind in [Kind::Control, Kind::Data, Kind::Server] {
            let line = greeting(kind);
            for len in 0..GREETING_BYTES {
                assert_eq!(hear(&line[..len]), Heard::More, "{len}");
            }
            assert_eq!(hear(&line), Heard::Greeting(kind));
        }
    }

    #[test]
    fn other_versions_and_strangers_are_told_apart() {
        assert_eq!(hear(b"goodput-measure 002 ???\n"), Heard::OtherVersion(2));
        assert_eq!(hear(b"goodput-measure 001 xyz\n"), Heard::Foreign);
        assert_eq!(hear(b"goodput-measure x"), Heard::Foreign);
        assert_eq!(hear(b"GET / HTTP/1.1\r\n"), Heard::Foreign);
        assert!(describe_foreign(b"SSH-2.0-OpenSSH_9.9\r\n").starts_with("speaks SSH"));
        assert!(describe_foreign(&[b'a'; 37]).starts_with("looks like iperf3"));
        assert!(describe_foreign(b"\x1b[2J").contains("\\x1b"));
    }

    #[test]
    fn a_length_above_the_limit_is_refused_before_its_bytes_come() {
        let error = decode(&[0xff, 0xff, 0xff, 0xff], 1024).unwrap_err();
        assert_eq!(
            error,
            MessageError::TooLong {
                len: 0xffff_ffff,
                max: 1024
            }
        );
    }

    #[test]
    fn messages_survive_their_framing() {
        let messages = [
            Message::Ping { n: 7, dscp: None },
            Message::Ping {
                n: 8,
                dscp: Some(46),
            },
            Message::Ready,
            Message::Progress {
                bytes: u64::MAX,
                t_ns: 1,
            },
            Message::Samples(vec![vec![0, 1, u64::MAX], vec![]]),
            Message::Refused(Refusal::Limit {
                text: "too \u{fc}".to_owned(),
            }),
            Message::Welcome(Box::default()),
            Message::Sent {
                packets: vec![1, u64::MAX],
            },
            Message::Result(ResultHead::default()),
            Message::StartMessages(MessageSpec::default()),
            Message::MessagesDone(MessageCount::default()),
            Message::StartRank(RankSpec::default()),
            Message::RankStep(RankStep {
                send: Some(crate::ranks::RankPeer {
                    addr: "[::1]:5210".parse().unwrap(),
                    token: "0".repeat(32),
                }),
                receive: Some(7),
            }),
            Message::RankTest(RankTest::default()),
            Message::RankTimes(RankTimes {
                send_ns: Some(u64::MAX),
                receive_ns: None,
            }),
            Message::VerbsEnds(VerbsEnds::default()),
        ];
        let mut bytes = Vec::new();
        for message in &messages {
            encode(message, &mut bytes);
        }
        let mut at = 0;
        for message in &messages {
            assert_eq!(
                decode(&bytes[at..bytes.len().min(at + 3)], 1 << 20),
                Ok(None)
            );
            let (got, used) = decode(&bytes[at..], 1 << 20).unwrap().unwrap();
            assert_eq!(&got, message);
            at += used;
        }
        assert_eq!(at, bytes.len());
    }

    #[test]
    fn nested_json_does_not_exhaust_the_stack() {
        let deep = "[".repeat(200_000);
        let mut bytes = u32::try_from(deep.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend_from_slice(deep.as_bytes());
        assert!(matches!(
            decode(&bytes, 1 << 20),
            Err(MessageError::Malformed(_))
        ));
    }

    #[test]
    fn a_data_opening_reads_back() {
        let token = [0xab; TOKEN_BYTES];
        assert_eq!(parse_data_opening(&data_opening(token, 511)), (token, 511));
        assert_eq!(token_from_hex(&token_to_hex(token)), Some(token));
        assert_eq!(token_from_hex("xyz"), None);
        assert_eq!(token_from_hex(&"+".repeat(32)), None);
    }

    #[test]
    fn an_address_challenge_reads_back_whole_only() {
        let nonce = [0xc3; ADDRESS_NONCE_BYTES];
        let challenge = address_challenge(nonce);
        assert_eq!(parse_address_challenge(&challenge), Some(nonce));
        assert_eq!(parse_address_challenge(&challenge[..39]), None);
        assert_eq!(
            parse_address_challenge(&[&challenge[..], &[0]].concat()),
            None
        );
        assert_eq!(
            parse_address_challenge(&data_opening([0; TOKEN_BYTES], 0)),
            None
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_heard_and_decoded_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = hear(&bytes);
            let _ = decode(&bytes, 100);
            let _ = parse_address_challenge(&bytes);
            let _ = describe_foreign(&bytes);
        }

        #[test]
        fn any_text_in_a_frame_is_a_message_or_an_error(text in ".{0,200}") {
            let mut bytes = u32::try_from(text.len()).unwrap().to_be_bytes().to_vec();
            bytes.extend_from_slice(text.as_bytes());
            prop_assert!(!matches!(decode(&bytes, 1 << 20), Ok(None)));
        }
    }
}
