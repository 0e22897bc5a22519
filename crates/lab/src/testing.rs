//! A network without kernels under it: frames in, frames out, in virtual time. For tests and fuzzing.

use units::{Duration, Instant};
use wire::virtio;

use crate::engine::{Engine, FRAME_BYTES_MAX, Poll};
use crate::forward::DirectionCounts;
use crate::path::PathFile;
use crate::wiring;

/// A network in virtual time.
#[derive(Debug)]
pub struct Network {
    engine: Engine,
    now: Instant,
    ports: usize,
    sent: u64,
    /// Frames that left, with their ports; `None`: nobody asked.
    kept: Option<Vec<(usize, Vec<u8>)>>,
}

impl Network {
    /// The network of a path file.
    pub fn new(path: &PathFile) -> Self {
        // Small, to be made often, and to be full now and then.
        let rings = vec![RING_BYTES; path.network.hosts.len()];
        let path = &path.clone().routed();
        let mut wiring = wiring::wiring(&path.network, vec![path.transfer.from], &rings);
        wiring.made_bytes = wiring.made_bytes.min(MADE_BYTES);
        Self {
            engine: Engine::new(wiring, Instant::ZERO, None),
            now: Instant::ZERO,
            ports: path.network.hosts.len(),
            sent: 0,
            kept: None,
        }
    }

    /// Any bytes, ten of virtio header and a frame, come in at a port `after` the last.
    pub fn receive(&mut self, port: usize, after: Duration, bytes: &[u8]) {
        self.advance(self.now + after);
        let len = bytes.len().min(FRAME_BYTES_MAX);
        if len <= virtio::LEN_BYTES {
            return;
        }
        let port = port % self.ports;
        let Some(room) = self.engine.reserve(port) else {
            return;
        };
        room[..len].copy_from_slice(&bytes[..len]);
        self.engine.ingress(port, len, self.now);
    }

    /// Lets time pass until `to`.
    pub fn advance(&mut self, to: Instant) {
        loop {
            match self.engine.poll(self.now) {
                Poll::Flush(port) => {
                    let (batch, stores) = self.engine.batch(port);
                    let memory = |m: u16| stores[usize::from(m)].memory();
                    let kept = &mut self.kept;
                    let keep = |parts: &[&[u8]; 3]| {
                        if let Some(kept) = kept {
                            kept.push((port, parts.concat()));
                        }
                    };
                    self.sent += batch.drain_into(memory, keep) as u64;
                    self.engine.sent(port, 0, self.now);
                }
                Poll::Wait(at) if at <= to => self.now = at.max(self.now),
                Poll::Wait(_) => break,
            }
        }
        self.now = self.now.max(to);
    }

    /// From now on keeps the frames that leave, ten bytes of virtio header each.
    pub fn keep(&mut self) {
        self.kept = Some(Vec::new());
    }

    /// The frames that left since, with the ports by which they did.
    pub fn take_kept(&mut self) -> Vec<(usize, Vec<u8>)> {
        self.kept.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// What was counted in each direction: forward of each link, then backward.
    pub fn counts(&self) -> Vec<DirectionCounts> {
        self.engine.counts().copied().collect()
    }

    /// Lets time pass until nothing is on its way, or a day has passed: frames sent in all.
    ///
    /// # Panics
    /// When something is left behind in the network's memory.
    pub fn finish(mut self) -> u64 {
        self.advance(self.now + DAY);
        assert_eq!(
            self.engine.segments_waiting(),
            0,
            "segments that never leave"
        );
        assert!(self.engine.is_empty(), "memory that is never freed");
        self.sent
    }
}

const RING_BYTES: u64 = 512 << 10;
/// Where MTUs meet it would be 64 MiB, most of the time of a fuzzed run.
const MADE_BYTES: usize = 512 << 10;
const DAY: Duration = Duration::from_s(86_400);
