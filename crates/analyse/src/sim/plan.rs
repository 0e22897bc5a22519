//! What is simulated.

use std::path::PathBuf;

use lab::PathFile;
use tcp::Hystart;
use units::{Bytes, Duration};

use lab::model::PacingWish;

/// What is simulated, and what of it is varied.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The path.
    pub path: Box<PathFile>,
    /// Virtual time that data is sent, in place of the path file's.
    pub time: Option<Duration>,
    /// Start of it that is left out of the headline number, in place of the path file's.
    pub ramp: Option<Duration>,
    /// Parallel connections, in place of the path file's.
    pub streams: Option<u16>,
    /// Time between the starts of two connections.
    pub apart: Duration,
    /// Names of congestion controls, one after the other; of none, the path file's.
    pub congestion: Vec<String>,
    /// What holds packets back, one after the other.
    pub pacing: Vec<PacingWish>,
    /// Room of the slowest link's queue, one after the other; of none, the path file's.
    pub queue: Vec<Bytes>,
    /// Keeps the packets on the sender's line for so long after the ramp.
    pub capture: Option<Duration>,
    /// Has tshark read that capture as well.
    pub tshark: bool,
    /// Name of the host that sends, in place of the path file's.
    pub from: Option<String>,
    /// Name of the host that receives, in place of the path file's.
    pub to: Option<String>,
    /// The window grows by acknowledgments, not by what they acknowledge.
    pub counts_acks: bool,
    /// Says what limits each, with short simulations that tell causes apart.
    pub explain: bool,
    /// How slow start may end before a loss.
    pub hystart: Hystart,
    /// MTU, at most the path's.
    pub mtu_bytes: Option<u32>,
    /// Most bytes that the sender's host hands over as one.
    pub burst: Bytes,
    /// Seed of the random stages of all links, in place of the path file's.
    pub seed: Option<u64>,
    /// Virtual time between samples.
    pub every: Duration,
    /// Folder that the run folder is made in.
    pub runs: PathBuf,
}

impl Plan {
    /// A path as its file says, with nothing varied.
    pub fn of(path: Box<PathFile>, runs: PathBuf) -> Self {
        Self {
            path,
            time: None,
            ramp: None,
            streams: None,
            apart: Duration::from_us(100),
            congestion: Vec::new(),
            pacing: vec![PacingWish::Off],
            queue: Vec::new(),
            capture: None,
            tshark: false,
            from: None,
            to: None,
            counts_acks: false,
            explain: false,
            hystart: Hystart::Linux,
            mtu_bytes: None,
            burst: Bytes::new(64 << 10),
            seed: None,
            every: Duration::from_ms(100),
            runs,
        }
    }
}
