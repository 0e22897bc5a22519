//! What a copy came to: the key `copy` of `run.json`.

use serde::{Deserialize, Serialize};

use super::{Certificate, Shares};

/// The phase of a copy's samples.
pub const COPIED: &str = "copied";

/// Files and folders that were copied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Copy {
    /// Where from, as typed.
    pub from: Vec<String>,
    /// Where to, as typed.
    pub to: String,
    /// Whether nothing was changed, only told.
    pub dry_run: bool,
    /// Whether what arrived was checked and not written (`--null-sink`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub null_sink: bool,
    /// What the connections were encrypted with.
    pub cipher: String,
    /// What carried blocks at the end: `tcp` or `quic`.
    pub transport: String,
    /// Connections that carried blocks.
    pub streams: u64,
    /// Connections that were made again after they were cut.
    pub reconnects: u64,
    /// Names that the source told: files, folders, links.
    pub names: u64,
    /// Files that were there already.
    pub same: u64,
    /// Files and links placed, or given the mode, owner or attributes that alone were other.
    pub placed: u64,
    /// Names that could not be copied.
    pub failed: u64,
    /// Sockets, named pipes and devices at the source, which no copy has.
    pub skipped: u64,
    /// Names removed at the destination.
    pub deleted: u64,
    /// Bytes of the files placed, holes included.
    pub placed_bytes: u64,
    /// Bytes of them that came over the network.
    pub received_bytes: u64,
    /// Bytes of them that were there from an interrupted attempt or an older copy.
    pub resumed_bytes: u64,
    /// Bytes of blocks that were sent, those sent again included.
    pub sent_bytes: u64,
    /// From the first word to the last.
    pub duration_ns: u64,
    /// Bytes received in that time.
    pub goodput_bits_per_second: u64,
    /// The same between the first fifth of the bytes and the last fifth, as they were confirmed; none where that took
    /// less than 0.5 s.
    pub steady_bits_per_second: Option<u64>,
    /// TCP payload that the path can carry, where it is known.
    pub achievable_bits_per_second: Option<u64>,
    /// What each side told of itself: the source, the destination; none of a side that told nothing.
    pub ends: Vec<CopyEnd>,
    /// What the sending side's kernel says of the connections that carried blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<CopyKernel>,
    /// The same one by one, over the time of the copy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<CopyConnection>,
    /// The connections that carried blocks over QUIC one by one, as the sending side counts them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quic: Vec<CopyQuic>,
    /// What each way between the two sides carried, where this side connected by several addresses or to several hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<CopyWay>,
    /// How fast ciphers are here, where `--observer openssl` asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ciphers: Vec<CopyCipher>,
    /// Whether openssl finds the same cipher fastest as this program does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranking_agrees: Option<bool>,
    /// Whether the connections were encrypted with the one that openssl finds fastest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice_agrees: Option<bool>,
    /// What another tool says of the files at both ends, where `--observer sha256sum` asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_observed: Option<CopyFiles>,
    /// What one stream of another tool had on the same path meanwhile, where `--observer iperf3` asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<CopyBeside>,
    /// What the destination was beside a manifest, where `--repair` asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<CopyRepair>,
    /// CPU time of this process, which is both sides of a copy through a lab or on one host.
    pub cpu_ns: u64,
    /// Why it was no faster, in a sentence.
    pub why: String,
    /// What was chosen, and why.
    pub chosen: Vec<String>,
    /// What was not copied, or not as it is; the first thousand.
    pub notes: Vec<String>,
    /// How many more there were.
    pub notes_more: u64,
    /// The lab's accuracy, where one was copied through.
    pub certificate: Option<Certificate>,
}

/// One side of a copy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyEnd {
    /// `source` or `destination`.
    pub end: String,
    /// Shares of the time of its threads that carry blocks: reading or writing files, sums, the connection
    /// (encryption, window, path), nothing to do. They add up to 1 where anything was carried.
    pub time: CopyTime,
    /// CPU time of its process, where that is another than the one which wrote this.
    pub cpu_ns: Option<u64>,
    /// Bytes of blocks that it read or wrote past the kernel's page cache.
    pub direct_bytes: u64,
    /// CPU time of its thread that moves QUIC's packets, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quic_cpu_ns: Option<u64>,
}

/// A stream's connection over QUIC, as the sending side counts; of connections that took each other's place together. Over
/// the copy, or over a second of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyQuic {
    /// Its number, from 0.
    pub stream: u64,
    /// UDP payload sent since it was made, in an interval's line as well; all other counts there are the interval's.
    pub sent_bytes: u64,
    /// UDP payload sent a second, since it was made or in the interval.
    pub sent_bits_per_second: u64,
    /// Packets sent, acknowledgments and probes of the path's MTU included.
    pub packets_sent: u64,
    /// Of these, thought lost.
    pub packets_lost: u64,
    /// Their payload.
    pub lost_bytes: u64,
    /// Times that losses or marks (ECN) were taken for congestion.
    pub congestion_events: u64,
    /// Smoothed round trip at its end.
    pub rtt_ns: u64,
    /// The shortest.
    pub rtt_min_ns: u64,
    /// Congestion window at its end.
    pub congestion_window_bytes: u64,
    /// Largest packet at its end, as UDP's payload.
    pub packet_bytes: u64,
}

/// A way between the two sides: an address, a pair of them, or a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyWay {
    /// The address, the two of them, or the host.
    pub name: String,
    /// Bytes of blocks, those sent again included.
    pub carried_bytes: u64,
    /// How often a connection could not be made by it.
    pub failures: u64,
}

/// The connections that carried blocks, as the kernel has them at the end (`tcp_info`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyKernel {
    /// How many.
    pub connections: u64,
    /// Bytes that the far kernel confirmed, encryption and heads included.
    pub acked_bytes: u64,
    /// Segments that were sent again.
    pub retransmitted_segments: u64,
    /// The shortest round trip of any.
    pub rtt_min_ns: u64,
}

/// A connection that carried blocks, as the sending side's kernel has it (`tcp_info`): over the copy, or over a second of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyConnection {
    /// Its number, from 0.
    pub stream: u64,
    /// Bytes that the far kernel confirmed since it was made, encryption and heads included.
    pub acked_bytes: u64,
    /// The same a second, in the time that this is about.
    pub acked_bits_per_second: u64,
    /// Segments that were sent again in that time.
    pub retransmitted_segments: u64,
    /// Smoothed round trip at its end.
    pub rtt_ns: u64,
    /// The shortest so far.
    pub rtt_min_ns: u64,
    /// Congestion window at its end.
    pub congestion_window_bytes: u64,
    /// What the peer allows to be under way, at its end.
    pub peer_window_bytes: u64,
    /// Where its sender's time went; none before Linux 4.10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares: Option<Shares>,
    /// Where most of it went: `network`, `receive window`, `send buffer` or `application`; empty where that is not known.
    pub held_by: String,
}

/// One line of `copy --format jsonl` while it runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyInterval {
    /// `interval`.
    pub event: String,
    /// Time since the start.
    pub t_ns: u64,
    /// Time that this line is about: it ends at `t_ns`.
    pub interval_ns: u64,
    /// Bytes of data that the destination confirmed.
    pub confirmed_bytes: u64,
    /// Bytes of data that the destination wants, as far as it knows.
    pub wanted_bytes: u64,
    /// Names that the source told.
    pub names: u64,
    /// Whether it has told all.
    pub is_walked: bool,
    /// Files that stand under their names.
    pub placed: u64,
    /// Data confirmed a second in the interval.
    pub goodput_bits_per_second: u64,
    /// The same since the start.
    pub goodput_average_bits_per_second: u64,
    /// How long the rest takes at the interval's rate; none while the source looks, and where nothing came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_ns: Option<u64>,
    /// Connections that carry blocks.
    pub streams: u64,
    /// Each of them, where the sending side's kernel tells.
    pub connections: Vec<CopyConnection>,
    /// Each of those over QUIC.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub quic: Vec<CopyQuic>,
}

/// What the user is to know, as a line of `copy --format jsonl`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyNote {
    /// `note`.
    pub event: String,
    /// Time since the start.
    pub t_ns: u64,
    /// `chosen`: something was chosen, with its reason; `skipped`: something was not copied, or not as it is; `limit`.
    pub kind: String,
    /// In words.
    pub text: String,
}

/// How fast a cipher is on one core.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyCipher {
    /// Its name.
    pub name: String,
    /// Encrypted and decrypted one after the other by this program.
    pub bytes_per_second: u64,
    /// Encrypted by openssl.
    pub observer_bytes_per_second: Option<u64>,
}

/// A destination beside its manifest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyRepair {
    /// Files that the manifest has.
    pub files: u64,
    /// Those of them that were there, and otherwise.
    pub different: u64,
    /// Those that were not there.
    pub missing: u64,
    /// Those that are not as it says, also after the copy.
    pub left: u64,
}

/// A stream of another tool on the same path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyBeside {
    /// Which.
    pub tool: String,
    /// As it was started.
    pub command: String,
    /// What it had after its first two seconds.
    pub goodput_bits_per_second: u64,
    /// What it would have if it and all connections of the copy had the same.
    pub fair_bits_per_second: u64,
}

/// What another tool says of the files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyFiles {
    /// Which.
    pub tool: String,
    /// Files at the source.
    pub files: u64,
    /// Those of them that are not the same at the destination.
    pub different: u64,
}

/// Where threads that carry blocks spent their time: shares, 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyTime {
    /// Reading or writing files.
    pub disk: f64,
    /// Sums of blocks.
    pub sums: f64,
    /// The connections.
    pub link: f64,
    /// Waiting for something to carry.
    pub idle: f64,
}
