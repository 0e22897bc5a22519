//! What a trial is to do.

use std::path::PathBuf;

use serde_json::Value;
use units::Duration;

/// A trial of a lab's gateway.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A path with a gateway among its nodes, such as lab:cray-cns.
    pub path: String,
    /// Connections of iperf3 at a time.
    pub connections: usize,
    /// Hosts that they go to by turns; the far end of the path's transfer where there is none.
    pub to: Vec<String>,
    /// How long they send.
    pub time: Duration,
    /// The hosts that they go to send instead.
    pub down: bool,
    /// Capture at both ends, with all off-loads off, and have tshark say how large segments are.
    pub capture: bool,
    /// See whether bytes, half-closes and resets pass whole.
    pub exact: bool,
    /// Send with one connection alone first, to hold the others against.
    pub alone: bool,
    /// Cut this link after a third of the time.
    pub cut: Option<String>,
    /// Have another gateway go on for the one that runs, after a third of the time.
    pub renew: bool,
    /// Have it read wrong files and then a right one, after a third of the time.
    pub reload: bool,
    /// Have a systemd of its own run the gateway by its unit, and kill it.
    pub systemd: bool,
    /// Where run folders are kept.
    pub runs: PathBuf,
}

/// Something that happened during a trial.
#[derive(Clone, Debug)]
pub enum Event {
    /// The lab fell behind, for these reasons, and is tried once more.
    FellBehind(Value),
}
