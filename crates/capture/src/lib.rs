//! Captures out of files and standard input.
//!
//! `wire::capture` knows what the bytes mean; here they are brought in: read, decompressed, cut
//! into packets and those decoded.
//!
//! Left out: writing, capturing from interfaces, seeking, compression other than gzip and zstd.

mod compressed;
pub mod file;
