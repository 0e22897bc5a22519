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
}

impl Selection {
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Self::Drill { draws: 0, .. } => Err("DRILL must draw at least one port".to_owned()),
            Self::Drill { memory: 2.., .. } => Err("DRILL remembers 0 or 1 ports".to_owned()),
            Self::Flowlet { gap_ps: 0 } => Err("a flowlet's gap must be above 0".to_owned()),
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
