//! Frames built field by field and sums made word by word: what the crate's own code is held
//! against shares nothing with it.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(unreachable_pub, reason = "a module shared by test crates")]
#![allow(
    clippy::cast_possible_truncation,
    reason = "plain arithmetic on test data"
)]

use proptest::prelude::*;
use wire::virtio::{self, VirtioNetHdr};

/// What a super-frame is made of.
#[derive(Clone, Debug)]
pub struct Spec {
    pub vlan_tags: usize,
    pub ipv6: bool,
    pub tcp: bool,
    /// Words of four bytes of IPv4 options.
    pub ip_option_words: usize,
    /// Destination-options headers of IPv6, each this many units of eight bytes.
    pub extensions: Vec<u8>,
    pub tcp_options: Vec<u8>,
    pub addresses: [u8; 32],
    pub ports: [u8; 4],
    pub identification: u16,
    pub sequence: u32,
    /// Low nine bits of the word with the data offset.
    pub flags: u16,
    pub payload: Vec<u8>,
    pub gso_size: u16,
    pub needs_csum: bool,
    pub ecn: bool,
}

/// A super-frame and where its parts are.
#[derive(Clone, Debug)]
pub struct Built {
    pub vnet: VirtioNetHdr,
    pub bytes: Vec<u8>,
    pub l3: usize,
    pub l4: usize,
    pub header_bytes: usize,
}

impl Spec {
    pub fn build(&self) -> Built {
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for i in 0..self.vlan_tags {
            let tpid = if i + 1 < self.vlan_tags {
                [0x88, 0xa8]
            } else {
                [0x81, 0x00]
            };
            bytes.extend(tpid);
            bytes.extend([0x60, i as u8]);
        }
        bytes.extend(if self.ipv6 {
            [0x86, 0xdd]
        } else {
            [0x08, 0x00]
        });
        let l3 = bytes.len();
        let l4_header = if self.tcp {
            20 + self.tcp_options.len()
        } else {
            8
        };
        let l4_bytes = l4_header + self.payload.len();
        if self.ipv6 {
            self.push_ipv6(&mut bytes, l4_bytes)
        } else {
            self.push_ipv4(&mut bytes, l4_bytes)
        }
        let l4 = bytes.len();
        self.push_l4(&mut bytes, l4_bytes);
        let header_bytes = bytes.len();
        bytes.extend(&self.payload);
        let mut built = Built {
            vnet: self.vnet(l4, header_bytes),
            bytes,
            l3,
            l4,
            header_bytes,
        };
        if self.needs_csum {
            let at = l4 + built.checksum_field();
            let pseudo = built.pseudo_sum();
            built.bytes[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
        }
        built
    }

    fn vnet(&self, l4: usize, header_bytes: usize) -> VirtioNetHdr {
        let kind = match (self.tcp, self.ipv6) {
            (true, false) => virtio::GSO_TCPV4,
            (true, true) => virtio::GSO_TCPV6,
            (false, _) => virtio::GSO_UDP_L4,
        };
        let ecn = if self.ecn && self.tcp {
            virtio::GSO_ECN
        } else {
            0
        };
        VirtioNetHdr {
            flags: u8::from(self.needs_csum),
            gso_type: kind | ecn,
            hdr_len: header_bytes as u16,
            gso_size: self.gso_size,
            csum_start: if self.needs_csum { l4 as u16 } else { 0 },
            csum_offset: match (self.needs_csum, self.tcp) {
                (false, _) => 0,
                (true, true) => 16,
                (true, false) => 6,
            },
        }
    }

    fn push_ipv4(&self, bytes: &mut Vec<u8>, l4_bytes: usize) {
        let at = bytes.len();
        let header = 20 + 4 * self.ip_option_words;
        bytes.extend([0x40 | (header / 4) as u8, 0x02]);
        bytes.extend(((header + l4_bytes) as u16).to_be_bytes());
        bytes.extend(self.identification.to_be_bytes());
        bytes.extend([0x40, 0, 64, if self.tcp { 6 } else { 17 }, 0, 0]);
        bytes.extend(&self.addresses[..8]);
        bytes.resize(at + header, 1);
        let check = !slow_sum(&[&bytes[at..]]);
        bytes[at + 10..at + 12].copy_from_slice(&check.to_be_bytes());
    }

    fn push_ipv6(&self, bytes: &mut Vec<u8>, l4_bytes: usize) {
        let upper = if self.tcp { 6 } else { 17 };
        let extension_bytes: usize = self
            .extensions
            .iter()
            .map(|&n| (usize::from(n) + 1) * 8)
            .sum();
        bytes.extend([0x60, 0x2a, 0xbc, 0xde]);
        bytes.extend(((extension_bytes + l4_bytes) as u16).to_be_bytes());
        bytes.extend([
            if self.extensions.is_empty() {
                upper
            } else {
                60
            },
            64,
        ]);
        bytes.extend(&self.addresses);
        for (i, &units) in self.extensions.iter().enumerate() {
            let end = bytes.len() + (usize::from(units) + 1) * 8;
            bytes.extend([
                if i + 1 < self.extensions.len() {
                    60
                } else {
                    upper
                },
                units,
            ]);
            bytes.resize(end, 0);
        }
    }

    fn push_l4(&self, bytes: &mut Vec<u8>, l4_bytes: usize) {
        bytes.extend(self.ports);
        if self.tcp {
            bytes.extend(self.sequence.to_be_bytes());
            bytes.extend(0x0102_0304_u32.to_be_bytes());
            let words = (20 + self.tcp_options.len()) / 4;
            bytes.extend(((words as u16) << 12 | self.flags).to_be_bytes());
            bytes.extend([0x12, 0x34, 0, 0, 0, 0]);
            bytes.extend(&self.tcp_options);
        } else {
            bytes.extend((l4_bytes as u16).to_be_bytes());
            bytes.extend([0, 0]);
        }
    }
}

impl Built {
    pub fn is_tcp(&self) -> bool {
        self.vnet.gso_kind() != virtio::GSO_UDP_L4
    }

    pub fn is_ipv6(&self) -> bool {
        self.bytes[self.l3] >> 4 == 6
    }

    pub fn checksum_field(&self) -> usize {
        if self.is_tcp() { 16 } else { 6 }
    }

    /// Sum of the pseudo-header of these bytes, read from its own fields.
    pub fn pseudo_sum(&self) -> u16 {
        pseudo_sum_of(&self.bytes, self.l3, self.l4, self.is_tcp())
    }
}

/// The sum of RFC 1071, word by word; each part but the last has an even length.
pub fn slow_sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for part in parts {
        for word in part.chunks(2) {
            sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
            if sum > 0xffff {
                sum -= 0xffff;
            }
        }
    }
    sum as u16
}

pub fn pseudo_sum_of(frame: &[u8], l3: usize, l4: usize, tcp: bool) -> u16 {
    let addresses = if frame[l3] >> 4 == 6 {
        l3 + 8..l3 + 40
    } else {
        l3 + 12..l3 + 20
    };
    let len = ((frame.len() - l4) as u32).to_be_bytes();
    slow_sum(&[&frame[addresses], &len, &[0, if tcp { 6 } else { 17 }]])
}

prop_compose! {
    /// Super-frames of at least two segments, of every kind that can be cut.
    pub fn spec()(
        vlan_tags in 0_usize..=4,
        (ipv6, tcp, needs_csum, ecn) in any::<(bool, bool, bool, bool)>(),
        ip_option_words in prop_oneof![3 => Just(0_usize), 1 => 1_usize..=10],
        extensions in prop_oneof![3 => Just(vec![]), 1 => prop::collection::vec(0_u8..=6, 1..=2)],
        tcp_options in (0_usize..=10).prop_flat_map(|n| prop::collection::vec(any::<u8>(), n * 4)),
        (addresses, ports, identification, sequence) in any::<([u8; 32], [u8; 4], u16, u32)>(),
        flags in 0_u16..0x200,
        (gso_size, payload) in (1_u16..=1500, 2_usize..=20).prop_flat_map(|(gso, n)| {
            let gso_usize = usize::from(gso);
            let sizes = gso_usize * (n - 1) + 1..=gso_usize * n;
            (Just(gso), prop::collection::vec(any::<u8>(), sizes))
        }),
    ) -> Spec {
        Spec {
            vlan_tags, ipv6, tcp, needs_csum, ecn, ip_option_words, extensions, tcp_options,
            addresses, ports, identification, sequence, flags, payload, gso_size,
        }
    }
}
