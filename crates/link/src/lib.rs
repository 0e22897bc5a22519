//! What a link does to frames: loss, queue, shaper, delay line, and pipelines of them, in virtual time.

#![forbid(unsafe_code)]
