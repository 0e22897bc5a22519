//! Trains as the lab cuts them, held against the kernel's own software segmentation.
//!
//! Two veth pairs and a bridge between them whose far port may not offload anything: what enters the
//! first pair whole comes out of the second the way the kernel cuts it, checksums included. The same
//! frame cut by the lab's code, in pieces of any length, has to come out alike, byte for byte.

use sys::netlink::Netlink;
use sys::netns::NetNs;
use sys::packet::{PacketSocket, SendBatch, VNET_HDR_BYTES};
use units::Rng;
use wire::train::{CutBuf, SuperFrame, finish_checksum};
use wire::virtio::{self, VirtioNetHdr};

use crate::support::{may_run, wait_until};

/// A pair that segments in software.
struct Wire {
    from: PacketSocket,
    to: PacketSocket,
    batch: SendBatch,
}

/// A super-frame of `segments` segments, the last one shorter.
#[derive(Clone, Copy, Debug)]
struct Shape {
    ipv6: bool,
    tcp: bool,
    segment_bytes: u16,
    segments: u16,
    /// Words of TCP options.
    option_words: u8,
    /// PSH and FIN, or CWR: bits that only one segment keeps.
    flags: u8,
}

/// A frame that a packet socket hands to the driver itself is never cut (dev_direct_xmit drops it
/// then): it is forwarded by the bridge, and cut on its way out. Discoveries of IPv6 would come
/// between the frames.
const BRIDGED_PAIRS: &str = "
    echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6
    ip link add name a mtu 9000 type veth peer name b mtu 9000
    ip link add name c mtu 9000 type veth peer name d mtu 9000
    ip link add name bridge type bridge mcast_snooping 0
    ip link set dev b master bridge
    ip link set dev c master bridge
    ethtool -K c tso off gso off tx off
    for link in a b c d bridge; do ip link set dev $link up; done";

#[test]
fn the_lab_cuts_as_the_kernel_does() {
    if !may_run() {
        return;
    }
    let Some(mut wire) = Wire::new() else { return };
    let mut rng = Rng::new(7);
    let mut compared = 0;
    for _ in 0..200 {
        let shape = Shape::random(&mut rng);
        let (vnet, frame) = shape.build(&mut rng);
        let parsed = SuperFrame::parse(vnet, &frame);
        assert_eq!(parsed.segments(), shape.segments, "{shape:?}");
        let Some(by_kernel) = wire.cross(&[(vnet, frame.clone())], shape.segments) else {
            testing::skipped(format_args!("this kernel does not take {shape:?}"));
            continue;
        };
        let cut = |run| pieces(&parsed, &frame, run);
        let segments: Vec<Vec<u8>> = cut(1).into_iter().map(finished).collect();
        assert_same(&segments, &by_kernel, shape);
        let run = u16::try_from(2 + rng.next_u64() % 6).unwrap();
        let by_both = wire.cross(&cut(run), shape.segments).unwrap();
        assert_same(&by_both, &by_kernel, shape);
        compared += 1;
    }
    assert!(compared > 50, "{compared}");
}

#[track_caller]
fn assert_same(ours: &[Vec<u8>], theirs: &[Vec<u8>], shape: Shape) {
    assert_eq!(ours.len(), theirs.len(), "{shape:?}");
    for (k, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        let differs = ours.iter().zip(theirs).position(|(a, b)| a != b);
        assert_eq!(differs, None, "segment {k}, {shape:?}");
        assert_eq!(ours.len(), theirs.len(), "segment {k}, {shape:?}");
    }
}

/// The frame in pieces of `run` segments.
fn pieces(parsed: &SuperFrame, frame: &[u8], run: u16) -> Vec<(VirtioNetHdr, Vec<u8>)> {
    let mut out = CutBuf::new();
    let mut pieces = Vec::new();
    let mut first = 0;
    while first < parsed.segments() {
        let count = run.min(parsed.segments() - first);
        parsed.cut(frame, first, count, &mut out).unwrap();
        let mut bytes = Vec::new();
        out.append_to(frame, &mut bytes);
        pieces.push((out.vnet(), bytes));
        first += count;
    }
    pieces
}

fn finished((vnet, mut bytes): (VirtioNetHdr, Vec<u8>)) -> Vec<u8> {
    finish_checksum(vnet, &mut bytes);
    bytes
}

impl Wire {
    fn new() -> Option<Self> {
        let ns = NetNs::create().unwrap();
        let mut shell = std::process::Command::new("sh");
        ns.place(shell.args(["-ec", BRIDGED_PAIRS])).unwrap();
        match shell.output() {
            Ok(output) if output.status.success() => {}
            other => {
                testing::skipped(format_args!("needs ip, ethtool and bridges: {other:?}"));
                return None;
            }
        }
        let open = |name| {
            let open = || PacketSocket::open(Netlink::open()?.index_of(name)?, 8 << 20);
            ns.run(open).unwrap().unwrap()
        };
        Some(Self {
            from: open("a"),
            to: open("d"),
            batch: SendBatch::new(1),
        })
    }

    /// Sends frames and takes what comes out at the other end; `None` when the kernel refuses one.
    fn cross(&mut self, frames: &[(VirtioNetHdr, Vec<u8>)], wanted: u16) -> Option<Vec<Vec<u8>>> {
        for (vnet, bytes) in frames {
            self.batch.push(vnet.to_bytes(), &[], 0, 0..bytes.len());
            if self.from.send(&mut self.batch, |_| bytes).unwrap() > 0 {
                return None;
            }
        }
        let mut buffer = vec![0; 1 << 17];
        let mut came = Vec::new();
        wait_until("all segments", || {
            while let Some(received) = self.to.receive(&mut buffer).unwrap() {
                let vnet = VirtioNetHdr::parse(&buffer).unwrap();
                let bytes = buffer[VNET_HDR_BYTES..received.len].to_vec();
                came.push(finished((vnet, bytes)));
            }
            came.len() >= usize::from(wanted)
        });
        Some(came)
    }
}

impl Shape {
    fn random(rng: &mut Rng) -> Self {
        let mut up_to = |n: u64| u16::try_from(rng.next_u64() % n).unwrap();
        let tcp = up_to(3) > 0;
        Self {
            ipv6: up_to(2) == 0,
            tcp,
            segment_bytes: 20 + up_to(1_400),
            segments: 2 + up_to(38),
            option_words: if tcp {
                [0, 3, 5, 10][usize::from(up_to(4))]
            } else {
                0
            },
            flags: 0x10 | [0, 0x01, 0x08, 0x09, 0x80, 0x89][usize::from(up_to(6))],
        }
    }

    fn build(self, rng: &mut Rng) -> (VirtioNetHdr, Vec<u8>) {
        let full = usize::from(self.segment_bytes);
        let payload_bytes = full * usize::from(self.segments) - full / 2;
        let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        bytes.extend(if self.ipv6 {
            [0x86, 0xdd]
        } else {
            [0x08, 0x00]
        });
        let l4_header = if self.tcp {
            20 + 4 * usize::from(self.option_words)
        } else {
            8
        };
        let l4_bytes = u16::try_from(l4_header + payload_bytes).unwrap();
        let pseudo = self.push_network(&mut bytes, l4_bytes);
        let l4 = bytes.len();
        self.push_transport(&mut bytes, l4_bytes, pseudo);
        let header_bytes = bytes.len();
        bytes.extend((0..payload_bytes).map(|_| rng.next_u64().to_le_bytes()[0]));
        let kind = match (self.tcp, self.ipv6) {
            (true, false) => virtio::GSO_TCPV4,
            (true, true) => virtio::GSO_TCPV6,
            (false, _) => virtio::GSO_UDP_L4,
        };
        let has_cwr = self.tcp && self.flags & 0x80 != 0;
        let vnet = VirtioNetHdr {
            flags: 1,
            gso_type: kind | if has_cwr { virtio::GSO_ECN } else { 0 },
            hdr_len: u16::try_from(header_bytes).unwrap(),
            gso_size: self.segment_bytes,
            csum_start: u16::try_from(l4).unwrap(),
            csum_offset: if self.tcp { 16 } else { 6 },
        };
        (vnet, bytes)
    }

    /// Appends the IP header; the sum of the pseudo-header.
    fn push_network(self, bytes: &mut Vec<u8>, l4_bytes: u16) -> u16 {
        let protocol = if self.tcp { 6 } else { 17 };
        let mut addresses = Vec::new();
        if self.ipv6 {
            addresses.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            addresses.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
            bytes.extend([0x60, 0x20, 0, 5]);
            bytes.extend(l4_bytes.to_be_bytes());
            bytes.extend([protocol, 64]);
            bytes.extend(&addresses);
        } else {
            addresses.extend([198, 18, 0, 1, 198, 18, 0, 2]);
            let at = bytes.len();
            bytes.extend([0x45, 2]);
            bytes.extend((20 + l4_bytes).to_be_bytes());
            bytes.extend([0xff, 0xf0, 0x40, 0, 64, protocol, 0, 0]);
            bytes.extend(&addresses);
            let check = !sum(&bytes[at..]);
            bytes[at + 10..at + 12].copy_from_slice(&check.to_be_bytes());
        }
        addresses.extend([0, protocol]);
        addresses.extend(l4_bytes.to_be_bytes());
        sum(&addresses)
    }

    /// Appends the TCP or UDP header with the pseudo-header's sum in place of the checksum.
    fn push_transport(self, bytes: &mut Vec<u8>, l4_bytes: u16, pseudo: u16) {
        bytes.extend([0x10, 0x00, 0x14, 0x5a]);
        let pseudo = pseudo.to_be_bytes();
        if !self.tcp {
            bytes.extend(l4_bytes.to_be_bytes());
            bytes.extend(pseudo);
            return;
        }
        // A sequence number that wraps on the way.
        bytes.extend([0xff, 0xff, 0xf0, 0x00, 0, 0, 0, 9]);
        bytes.extend([(5 + self.option_words) << 4, self.flags, 0x20, 0]);
        bytes.extend(pseudo);
        bytes.extend([0, 0]);
        bytes.extend(vec![1; 4 * usize::from(self.option_words)]);
    }
}

/// RFC 1071's sum of 16-bit words, folded and not inverted; `bytes` are even in number.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}
