//! A transparent split-TCP gateway: it ends a connection on one side and goes on with another one on
//! the other side, so that each half has the segments, windows and congestion control that suit it.

pub mod relay;
