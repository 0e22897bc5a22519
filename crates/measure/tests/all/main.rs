//! The integration tests of this crate, in one binary.

mod common;
mod doors;
mod forged;
#[path = "../../../units/tests/hostile/mod.rs"]
mod hostile;
mod hostile_texts;
mod iperf3;
mod loopback;
mod marks;
mod messages;
mod quic;
mod ranks;
mod stamp;
mod transports;
#[path = "../../../units/tests/hostile/values.rs"]
mod values;
mod zones;
