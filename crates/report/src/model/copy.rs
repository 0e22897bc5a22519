//! What a copy came to: the key `copy` of `run.json`.

use serde::{Deserialize, Serialize};

use super::Certificate;

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
    /// Files and hard links placed.
    pub placed: u64,
    /// Names that could not be copied.
    pub failed: u64,
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
    /// What the kernel says of the connections that carried blocks, where this side sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<CopyKernel>,
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
