//! A network filled in virtual time: what each port of a path file would carry if the machine were
//! fast enough. The same engine as in real time, with no kernel and no clock under it.
//!
//! Every host sends full frames without a break at its link's rate, to the other hosts in turn: at
//! any time no two send to the same. So a network whose ports have one rate can carry all of it, and
//! whatever is missing is the network's doing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use link::spec::{Medium, ServerSpec};
use units::{Bytes, Duration, Instant, Rate};
use wire::classify::Mac;
use wire::virtio;

use crate::engine::{Engine, Poll};
use crate::path::{HostSpec, Node, PathFile};
use crate::wiring;

/// What a port did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortTally {
    /// Host behind it.
    pub name: String,
    /// Frames that the host sent.
    pub frames_sent: u64,
    /// Frames that came for it.
    pub frames_received: u64,
    /// Bits on the wire a second, from the first to the last frame that came; 0 for fewer than two.
    pub received_bits_per_second: u64,
    /// Most bytes of this host's frames that were in the network at once.
    pub in_flight_bytes_max: u64,
}

/// Why a network cannot be filled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RehearsalError {
    /// "As fast as frames come" fills nothing.
    #[error("the link of host {0} has no rate: there is nothing to fill it to")]
    NoRate(String),
    /// Gateways are kernels' own TCP.
    #[error(
        "router {0} is a gateway, which takes kernels: leave it out by :routed behind the path's name"
    )]
    Gateway(String),
    /// One host has nobody to send to.
    #[error("the network has one host only")]
    OneHost,
    /// The frames do not fit.
    #[error("frames in flight need {needed} and the lab gives its networks {limit} at most")]
    Memory {
        /// For all ports together.
        needed: Bytes,
        /// What there is.
        limit: Bytes,
    },
}

/// Fills the network of a path file for `time` and then empties it.
///
/// # Errors
/// [`RehearsalError`].
pub fn fill(path: &PathFile, time: Duration) -> Result<Vec<PortTally>, RehearsalError> {
    let network = &path.network;
    let hosts = &network.hosts;
    if hosts.len() < 2 {
        return Err(RehearsalError::OneHost);
    }
    if let Some(gateway) = network.routers.iter().find(|r| r.gateway.is_some()) {
        return Err(RehearsalError::Gateway(gateway.name.clone()));
    }
    let mut sources = Vec::new();
    for (number, host) in hosts.iter().enumerate() {
        let link = &network.links[host.link];
        let spec = link.direction(link.between[0] == Node::Host(number));
        let Some(ServerSpec::Rate(rate)) = spec.rate.as_ref().map(|r| &r.server) else {
            return Err(RehearsalError::NoRate(host.name.clone()));
        };
        sources.push(Source::new(host, spec.medium, *rate));
    }
    let rings = wiring::ring_bytes(network, Bytes::new(u64::MAX));
    let needed = Bytes::new(rings.iter().sum());
    if needed > MEMORY_MAX {
        return Err(RehearsalError::Memory {
            needed,
            limit: MEMORY_MAX,
        });
    }
    let wiring = wiring::wiring(network, vec![path.transfer.from], &rings);
    let mut run = Run {
        engine: Engine::new(wiring, Instant::ZERO, None),
        now: Instant::ZERO,
        sources,
        macs: hosts.iter().map(|h| h.mac).collect(),
    };
    // Switches learn where everyone is before it counts.
    for host in 0..hosts.len() {
        run.send(host, 1);
    }
    run.until(run.now + SETTLE);
    run.forget();
    let (begin, others) = (run.now, hosts.len() as u64 - 1);
    // Whose next frame is due first; hosts may have links of several rates.
    let mut due: BinaryHeap<Reverse<(Instant, usize)>> =
        (0..hosts.len()).map(|h| Reverse((begin, h))).collect();
    while let Some(Reverse((at, host))) = due.pop()
        && at < begin + time
    {
        run.until(at);
        let n = run.sources[host].sent;
        #[allow(clippy::cast_possible_truncation, reason = "below the number of hosts")]
        run.send(host, 1 + (n % others) as usize);
        let next = begin + run.sources[host].after(n + 1);
        due.push(Reverse((next.max(at), host)));
    }
    run.until(run.now + SETTLE);
    let tallies = run.sources.iter().zip(hosts).map(|(s, host)| PortTally {
        name: host.name.clone(),
        frames_sent: s.sent,
        frames_received: s.received,
        received_bits_per_second: s.received_rate(),
        in_flight_bytes_max: s.in_flight_max,
    });
    Ok(tallies.collect())
}

/// A host as seen from the network.
#[derive(Debug)]
struct Source {
    /// Ten bytes of virtio header, then the frame.
    frame: Vec<u8>,
    wire_bytes: u64,
    rate: Rate,
    sent: u64,
    received: u64,
    received_wire_bytes: u64,
    /// When the first came, and what had come with it.
    first: Option<(Instant, u64)>,
    last: Instant,
    in_flight: u64,
    in_flight_max: u64,
}

impl Source {
    fn new(host: &HostSpec, medium: Medium, rate: Rate) -> Self {
        let frame = datagram(host);
        let network_bytes = u32::try_from(frame.len() - virtio::LEN_BYTES).unwrap_or(u32::MAX);
        Self {
            wire_bytes: medium.wire_bytes(network_bytes).into(),
            frame,
            rate,
            sent: 0,
            received: 0,
            received_wire_bytes: 0,
            first: None,
            last: Instant::ZERO,
            in_flight: 0,
            in_flight_max: 0,
        }
    }

    /// How long after its first frame the `n`-th is sent: the fraction of a nanosecond does not add up.
    fn after(&self, n: u64) -> Duration {
        let bits = 8 * u128::from(self.wire_bytes) * u128::from(n);
        let ns = bits * 1_000_000_000 / u128::from(self.rate.as_bits_per_second().max(1));
        Duration::from_ns(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    fn arrived(&mut self, at: Instant, wire_bytes: u64) {
        self.received += 1;
        self.received_wire_bytes += wire_bytes;
        self.first.get_or_insert((at, self.received_wire_bytes));
        self.last = at;
    }

    fn received_rate(&self) -> u64 {
        let Some((first, with_first)) = self.first else {
            return 0;
        };
        let ns = u128::from(self.last.saturating_since(first).as_ns());
        let bits = 8 * u128::from(self.received_wire_bytes - with_first);
        let rate = (bits * 1_000_000_000).checked_div(ns).unwrap_or(0);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

#[derive(Debug)]
struct Run {
    engine: Engine,
    now: Instant,
    sources: Vec<Source>,
    macs: Vec<Mac>,
}

impl Run {
    /// A frame from a host to the one `ahead` places on.
    fn send(&mut self, host: usize, ahead: usize) {
        let to = (host + ahead) % self.sources.len();
        let source = &mut self.sources[host];
        source.sent += 1;
        let Some(room) = self.engine.reserve(host) else {
            return;
        };
        let len = source.frame.len();
        room[..len].copy_from_slice(&source.frame);
        room[virtio::LEN_BYTES..][..6].copy_from_slice(&self.macs[to].0);
        self.engine.ingress(host, len, self.now);
        source.in_flight += source.wire_bytes;
        source.in_flight_max = source.in_flight_max.max(source.in_flight);
    }

    /// Lets time pass.
    fn until(&mut self, to: Instant) {
        loop {
            match self.engine.poll(self.now) {
                Poll::Flush(port) => self.flush(port),
                Poll::Wait(at) if at <= to => self.now = at.max(self.now),
                Poll::Wait(_) => break,
            }
        }
        self.now = self.now.max(to);
    }

    fn flush(&mut self, port: usize) {
        let (batch, stores) = self.engine.batch(port);
        let memory = |m: u16| stores[usize::from(m)].memory();
        let (sources, macs, now) = (&mut self.sources, &self.macs, self.now);
        batch.drain_into(memory, |frame| {
            let mut head = frame.iter().flat_map(|part| part.iter().copied());
            let mut mac = |skip: usize| {
                let mut bytes = head.by_ref().skip(skip);
                Some(Mac([
                    bytes.next()?,
                    bytes.next()?,
                    bytes.next()?,
                    bytes.next()?,
                    bytes.next()?,
                    bytes.next()?,
                ]))
            };
            let (Some(to), Some(from)) = (mac(virtio::LEN_BYTES), mac(0)) else {
                return;
            };
            // What a switch floods comes for nobody at most ports.
            if macs[port] != to {
                return;
            }
            if let Some(from) = macs.iter().position(|&mac| mac == from) {
                let bytes = sources[from].wire_bytes;
                sources[from].in_flight = sources[from].in_flight.saturating_sub(bytes);
                sources[port].arrived(now, bytes);
            }
        });
        self.engine.sent(port, 0, now);
    }

    fn forget(&mut self) {
        for source in &mut self.sources {
            (source.sent, source.received, source.received_wire_bytes) = (0, 0, 0);
            (source.first, source.in_flight, source.in_flight_max) = (None, 0, 0);
        }
    }
}

/// A full UDP datagram of a host, whose destination is put in later.
fn datagram(host: &HostSpec) -> Vec<u8> {
    let ip_bytes = u16::try_from(host.mtu_bytes).unwrap_or(u16::MAX);
    let mut frame = vec![0; virtio::LEN_BYTES + ETHERNET_BYTES + usize::from(ip_bytes)];
    let (ethernet, ip) = frame[virtio::LEN_BYTES..].split_at_mut(ETHERNET_BYTES);
    ethernet[6..12].copy_from_slice(&host.mac.0);
    ethernet[12..].copy_from_slice(&[0x08, 0x00]);
    // Version 4, five words, no options; time to live 64; UDP. Nobody looks at the checksums.
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&ip_bytes.to_be_bytes());
    (ip[8], ip[9]) = (64, 17);
    ip[12..16].copy_from_slice(&host.address4.octets());
    ip[16..20].copy_from_slice(&host.address4.octets());
    ip[24..26].copy_from_slice(&(ip_bytes - 20).to_be_bytes());
    frame
}

const ETHERNET_BYTES: usize = 14;
/// The lab's own limit for frames in flight in real time.
const MEMORY_MAX: Bytes = Bytes::new(8 << 30);
/// Longer than any path holds a frame.
const SETTLE: Duration = Duration::from_s(30);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn switch(rate: &str, extra: &str) -> PathFile {
        let mut text = "title = \"three\"\n[switches.s]\n".to_owned();
        for host in ["a", "b", "c"] {
            text += &format!(
                "[hosts.{host}]\n[links.{host}]\nbetween = [\"{host}\", \"s\"]\n{rate}delay = \"1ms\"\n{extra}"
            );
        }
        text += "[transfer]\nfrom = \"a\"\nto = \"b\"\n";
        PathFile::parse(Path::new("three.toml"), &text).unwrap()
    }

    #[test]
    fn every_port_of_a_switch_carries_its_rate_both_ways() {
        let ports = fill(&switch("rate = \"1Gb/s\"\n", ""), Duration::from_ms(100)).unwrap();
        for port in &ports {
            // 100 ms of frames of 1538 bytes, 12.304 us each; the last begins before the end.
            assert_eq!(port.frames_sent, 8128, "{port:?}");
            assert_eq!(port.frames_received, 8128, "{port:?}");
            let rate = port.received_bits_per_second;
            assert!(rate.abs_diff(1_000_000_000) < 10_000, "{port:?}");
            // Two links of 1 ms and a frame's time at each: some 2.02 ms of 125 MB/s.
            let frames = port.in_flight_bytes_max / 1538;
            assert!((163..=166).contains(&frames), "{port:?}");
        }
    }

    #[test]
    fn what_the_links_lose_is_missing() {
        let path = switch("rate = \"1Gb/s\"\n", "loss = 0.1\n");
        let ports = fill(&path, Duration::from_ms(100)).unwrap();
        let sent: u64 = ports.iter().map(|p| p.frames_sent).sum();
        let received: u64 = ports.iter().map(|p| p.frames_received).sum();
        // Two links, each with 10 %: 0.81 of 24,384, standard deviation 0.25 %.
        let share = received as f64 / sent as f64;
        assert!((share - 0.81).abs() < 0.0125, "{share}");
    }

    #[test]
    fn a_network_without_rates_cannot_be_filled() {
        let refused = fill(&switch("", ""), Duration::from_ms(1)).unwrap_err();
        assert_eq!(refused, RehearsalError::NoRate("a".to_owned()));
    }
}
