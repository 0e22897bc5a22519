//! Evidence in, findings and remedies out: what limits a TCP transfer and what to change.

#![forbid(unsafe_code)]
