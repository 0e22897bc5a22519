//! Choice among several paths, beyond the static table: by flow, by packet, by what queues look like.
//!
//! A chip may send a packet by any port on a shortest path to its destination's edge switch (the chip that its host is
//! at). Reading: C. Hopps, RFC 2992 (hashing flows); S. Ghorbani et al., "DRILL", SIGCOMM 2017; E. Vanini et al.,
//! "Let It Flow", NSDI 2017 (flowlets); L. Valiant, "A scheme for fast parallel communication", SIAM J. Comput. 11(2),
//! 1982; A. Singh, "Load-balanced routing in interconnection networks", Stanford 2005 (UGAL).

/// Which of the shortest paths a packet takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Selection {
    /// That of the table.
    #[default]
    Static,
    /// By a hash of the flow and of the chip: a flow keeps its path.
    Ecmp,
    /// Each packet by a port drawn at random.
    Spray,
    /// Each packet by the next port, going round.
    RoundRobin,
    /// Each packet by the port with the shortest queue of some drawn at random and the best of last time.
    Drill {
        /// Ports drawn.
        draws: u8,
        /// Ports remembered for a destination: 0 or 1.
        memory: u8,
    },
    /// A flow draws a new port at each chip when it has paused there.
    Flowlet {
        /// Pause that is long enough.
        gap_ps: u64,
    },
    /// Each packet goes to an edge switch drawn at random first, and on the next higher lane from there on.
    Valiant,
    /// As Valiant if the shortest path's queue times hops is longer than that path's by more than `bias_bytes` a hop,
    /// else the shortest; judged by the queues of the source's edge switch (UGAL-L).
    Ugal {
        /// Preference for the shortest path.
        bias_bytes: u32,
    },
    /// Edge switches measure paths with probes and move single flows to faster ones.
    Dca(Dca),
}

/// Dynamic congestion avoidance: what edge switches measure, and when they move a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dca {
    /// Between two probes of a path. Each pair of edges has its own phase.
    pub period_ps: u64,
    /// A flow moves to a path that is faster by more than this, one way.
    pub threshold_ps: u64,
    /// Paths between two edges that are sampled and used, 1 to 64; drawn if there are more.
    pub paths: u8,
    /// A flow moves at most once in this time.
    pub hold_ps: u64,
    /// A path's latency is the mean of so many last probes, 1 to 8.
    pub mean_of: u8,
    /// A path is idle if it is slower by at most this than the fastest ever seen between its edges. A link that one
    /// flow fills has no queue, and differs from an idle one only by what is left of the packet on the wire.
    pub idle_ps: u64,
    /// Chances in 256 of a period to change places with another flow, or, where there is none to change with, to move to a
    /// path that is faster by more than the threshold and yet not idle, where the flow is likely to slow another one.
    pub venture: u8,
    /// A probe without an answer for so long means that its path has failed.
    pub lost_after_ps: u64,
    /// Clocks of edges are off by up to this, either way.
    pub clock_offset_max_ps: u64,
}

impl Default for Dca {
    /// Probes every 200 us on up to 12 paths; 20 us faster, at most one move in 400 us; clocks off by up to 1 s.
    fn default() -> Self {
        Self {
            period_ps: 200_000_000,
            threshold_ps: 20_000_000,
            paths: 12,
            hold_ps: 400_000_000,
            mean_of: 1,
            idle_ps: 100_000,
            venture: 12,
            lost_after_ps: 10_000_000_000,
            clock_offset_max_ps: 1_000_000_000_000,
        }
    }
}

impl Dca {
    pub(crate) const SAMPLES: usize = 8;

    fn check(&self) -> Result<(), String> {
        if self.period_ps == 0 || self.period_ps > 1_000_000_000_000 {
            return Err("the period of probes must be 1 ps to 1 s".to_owned());
        }
        if self.paths == 0 || self.paths > 64 {
            return Err(format!("{} sampled paths; expected 1 to 64", self.paths));
        }
        if self.mean_of == 0 || usize::from(self.mean_of) > Self::SAMPLES {
            let found = self.mean_of;
            return Err(format!("the mean of {found} probes; expected 1 to 8"));
        }
        if self.clock_offset_max_ps > CLOCK_MAX_PS {
            return Err("clocks may be off by 1000 s at most".to_owned());
        }
        let times = [
            self.threshold_ps,
            self.hold_ps,
            self.idle_ps,
            self.lost_after_ps,
        ];
        if times.iter().any(|ps| *ps > CLOCK_MAX_PS) {
            return Err("its times may be 1000 s at most".to_owned());
        }
        if self.lost_after_ps < self.period_ps {
            return Err("a probe is not lost before the next one is due".to_owned());
        }
        Ok(())
    }
}

pub(crate) const CLOCK_MAX_PS: u64 = 1_000_000_000_000_000;

impl Selection {
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Self::Drill { draws: 0, .. } => Err("DRILL must draw at least one port".to_owned()),
            Self::Drill { memory: 2.., .. } => Err("DRILL remembers 0 or 1 ports".to_owned()),
            Self::Dca(rule) => rule.check(),
            Self::Flowlet { gap_ps } if *gap_ps == 0 || *gap_ps > CLOCK_MAX_PS => {
                Err("a flowlet's gap must be above 0 and 1000 s at most".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Lanes that it needs above those of its flows.
    pub const fn lanes_above(&self) -> u8 {
        match self {
            Self::Valiant | Self::Ugal { .. } => 1,
            _ => 0,
        }
    }

    /// Looks at queues or the time: it has to decide when the packet is there, not when it leaves the chip before.
    pub(crate) const fn looks(&self) -> bool {
        matches!(
            self,
            Self::Drill { .. } | Self::Flowlet { .. } | Self::Ugal { .. }
        )
    }

    /// Packets of a flow may overtake each other.
    pub const fn reorders(&self) -> bool {
        !matches!(self, Self::Static | Self::Ecmp)
    }
}
