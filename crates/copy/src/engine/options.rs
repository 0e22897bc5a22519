//! What the user may set of a source: how many streams, whether they are paced, and the rest.

use crate::source::Keep;

use super::disk::Io;

/// What the user may set of a source.
#[derive(Clone, Debug)]
pub struct SendOptions {
    /// What is kept beside bytes.
    pub keep: Keep,
    /// How many streams of blocks.
    pub streams: Streams,
    /// Bytes in a block, a power of two from 64 KiB to 16 MiB; chosen by the file's size where none is set.
    pub block: Option<u32>,
    /// Bytes a second in all streams together, at most.
    pub limit: Option<units::Rate>,
    /// Sends as many bytes as the files have, and does not read them: to see what the rest can do.
    pub null: bool,
    /// Congestion control of the streams; chosen by the path where none is set.
    pub congestion: Option<String>,
    /// Whether streams are held just under what the path takes; a limit goes before it.
    pub pacing: Pacing,
    /// Other hosts see the same files, and may be told what to send ([`super::fetch`]).
    pub has_helpers: bool,
    /// How files are read.
    pub io: Io,
    /// The destination understands word of whether a name's attributes are all told.
    pub tells_all_attributes: bool,
    /// The destination understands blocks without their pages of zeros.
    pub leaves_out_zeros: bool,
    /// Small files are sent before they are asked for: nothing stands in their way at the destination, which takes them so.
    pub unasked: bool,
}

/// How many streams of blocks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// As many as help.
    Chosen {
        /// Never more.
        most: u16,
    },
    /// So many.
    Fixed(u16),
}

/// Whether streams are held just under what the path takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// Where the path is long, the streams' congestion control knows no rate, and neither it nor their number was asked for, or
    /// their number below what a long path is given. Where it was, many find the rate among themselves (16 of CUBIC carried no
    /// more over 100 ms when they were paced, 4 carried a tenth more).
    #[default]
    Chosen,
    /// Whatever the path and the congestion control.
    Even,
    /// Never.
    Off,
}
