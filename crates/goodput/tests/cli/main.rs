//! The command as a user meets it: the built binary, its exit codes, what it says and what it leaves
//! behind.
//!
//! Grouped by the exit code that is at stake. Where a tool or a privilege is missing a test says
//! `skipped: why` and passes; as root with util-linux, iproute2 and iperf3 none is skipped. Timing
//! decides nothing here: a stage is waited for, and where the lab fell behind because the machine is
//! busy, the run has to say so instead of naming a cause.

mod capture;
mod copy;
mod copy_daemon;
mod copy_options;
mod copy_refused;
mod copy_several;
mod copy_shells;
mod exhausted;
mod explain;
mod fabric;
mod far_end;
mod fill;
mod gateway;
mod gateway_ecmp;
mod gateway_log;
mod hostile;
#[path = "../../../units/tests/hostile/mod.rs"]
mod hostile_texts;
mod interrupt;
mod lab;
mod latency;
mod machine;
#[cfg(feature = "mpi")]
mod mpi;
mod prepared;
mod quiet;
mod results;
mod rotate;
mod sim;
mod sim_grid;
mod support;
mod this_host;
mod tune;
mod usage;
