//! The first packet of a connection, as the kernel hands it over.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use wire::{Error, ipv4, ipv6, tcp};

/// The ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ends {
    /// Who sent the SYN.
    pub client: SocketAddr,
    /// Who it is for.
    pub server: SocketAddr,
}

/// What a SYN says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syn {
    /// Between whom.
    pub ends: Ends,
    /// Differentiated services code point.
    pub dscp: u8,
    /// The largest segment that the client takes, without options; what stands for it where it says nothing
    /// (RFC 9293 section 3.7.1).
    pub mss: u16,
}

/// A reset without ACK, which says that the packet that it answers was expected by nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    /// Who sent it is the client.
    pub ends: Ends,
    /// What that packet acknowledged.
    pub sequence: u32,
}

/// A server's answer to a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whom it is for is the client.
    pub ends: Ends,
    /// Differentiated services code point.
    pub dscp: u8,
}

/// Any packet of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Who sent it.
    pub from: SocketAddr,
    /// Whom it is for.
    pub to: SocketAddr,
}

impl Packet {
    /// Reads its headers; what comes behind them need not be there.
    ///
    /// # Errors
    /// For what is not TCP.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let octets = |at: usize, length: usize| bytes.get(at..at + length).ok_or(Error::Truncated);
        let port = |at: usize| -> Result<u16, Error> {
            let two = octets(at, 2)?;
            Ok(u16::from_be_bytes([two[0], two[1]]))
        };
        let v6 = |at: usize| -> Result<IpAddr, Error> {
            let octets: [u8; 16] = octets(at, 16)?.try_into().map_err(|_| Error::Truncated)?;
            Ok(octets.into())
        };
        let v4 = |at: usize| -> Result<IpAddr, Error> {
            let octets: [u8; 4] = octets(at, 4)?.try_into().map_err(|_| Error::Truncated)?;
            Ok(octets.into())
        };
        let first = *bytes.first().ok_or(Error::Truncated)?;
        let (from, to, protocol, at) = match first >> 4 {
            4 => (
                v4(12)?,
                v4(16)?,
                octets(9, 1)?[0],
                usize::from(first & 15) * 4,
            ),
            // The kernel puts no extension headers before its own segments.
            6 => (v6(8)?, v6(24)?, octets(6, 1)?[0], 40),
            _ => return Err(Error::Malformed),
        };
        if protocol != TCP {
            return Err(Error::Malformed);
        }
        Ok(Self {
            from: (from, port(at)?).into(),
            to: (to, port(at + 2)?).into(),
        })
    }
}

impl Syn {
    /// Reads a packet from its IP header on.
    ///
    /// # Errors
    /// For what is no whole SYN of TCP.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let (ends, dscp, segment) = segment(bytes)?;
        let flags = segment.flags();
        if !flags.contains(tcp::Flags::SYN) || flags.contains(tcp::Flags::ACK) {
            return Err(Error::Malformed);
        }
        let said = segment.options().find_map(|option| match option {
            Ok(tcp::TcpOption::MaxSegmentSize(mss)) => Some(mss),
            _ => None,
        });
        let mss = said.unwrap_or(match ends.client {
            SocketAddr::V4(_) => MSS_UNSAID,
            SocketAddr::V6(_) => MSS_UNSAID_6,
        });
        Ok(Self { ends, dscp, mss })
    }
}

impl Reset {
    /// Reads a packet from its IP header on.
    ///
    /// # Errors
    /// For what is no whole reset of TCP, and for one with ACK.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let (ends, _, segment) = segment(bytes)?;
        let flags = segment.flags();
        if !flags.contains(tcp::Flags::RST) || flags.contains(tcp::Flags::ACK) {
            return Err(Error::Malformed);
        }
        Ok(Self {
            ends,
            sequence: segment.sequence(),
        })
    }
}

impl Answer {
    /// Reads a packet from its IP header on.
    ///
    /// # Errors
    /// For what is no whole SYN-ACK of TCP.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let (ends, dscp, segment) = segment(bytes)?;
        let flags = segment.flags();
        if !flags.contains(tcp::Flags::SYN) || !flags.contains(tcp::Flags::ACK) {
            return Err(Error::Malformed);
        }
        let ends = Ends {
            client: ends.server,
            server: ends.client,
        };
        Ok(Self { ends, dscp })
    }
}

/// A segment of TCP with its ends and its class of service.
fn segment(bytes: &[u8]) -> Result<(Ends, u8, tcp::Packet<&[u8]>), Error> {
    let (source, destination, dscp, segment): (IpAddr, IpAddr, u8, &[u8]) =
        match bytes.first().map(|b| b >> 4) {
            Some(4) => {
                let packet = ipv4::Packet::new_checked(bytes)?;
                if packet.protocol() != TCP || packet.fragment_offset() != 0 {
                    return Err(Error::Malformed);
                }
                let at = packet.header_len()..usize::from(packet.total_len());
                (
                    packet.source().into(),
                    packet.destination().into(),
                    packet.dscp(),
                    &bytes[at],
                )
            }
            Some(6) => {
                let packet = ipv6::Packet::new_checked(bytes)?;
                let upper = packet.upper_layer().ok_or(Error::Truncated)?;
                if upper.protocol != TCP {
                    return Err(Error::Malformed);
                }
                let segment = bytes
                    .get(upper.offset..packet.total_len())
                    .ok_or(Error::Truncated)?;
                (
                    packet.source().into(),
                    packet.destination().into(),
                    packet.dscp(),
                    segment,
                )
            }
            _ => return Err(Error::Malformed),
        };
    let segment = tcp::Packet::new_checked(segment)?;
    let ends = Ends {
        client: (source, segment.source_port()).into(),
        server: (destination, segment.destination_port()).into(),
    };
    Ok((ends, dscp, segment))
}

/// IP protocol number of TCP.
const TCP: u8 = 6;
const MSS_UNSAID: u16 = 536;
const MSS_UNSAID_6: u16 = 1220;

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(flags: u8) -> Vec<u8> {
        let mut bytes = vec![0x45, 0x28, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
        bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend([0x30, 0x39, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags]);
        bytes.extend([0, 0, 0, 0, 0, 0]);
        bytes
    }

    #[test]
    fn a_syn_tells_its_ends_and_its_class() {
        let syn = Syn::parse(&v4(2)).unwrap();
        assert_eq!(syn.ends.client, "10.0.0.1:12345".parse().unwrap());
        assert_eq!(syn.ends.server, "10.0.0.2:80".parse().unwrap());
        assert_eq!((syn.dscp, syn.mss), (10, 536));
        let mut bytes = vec![0x60, 0, 0, 0, 0, 20, 6, 64];
        bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        bytes.extend(&v4(2)[20..]);
        let syn = Syn::parse(&bytes).unwrap();
        assert_eq!(syn.ends.server, "[fd00::2]:80".parse().unwrap());
        assert_eq!(syn.mss, 1220);
    }

    #[test]
    fn a_syn_tells_the_largest_segment_that_its_sender_takes() {
        let mut bytes = v4(2);
        bytes[3] = 44;
        bytes[32] = 0x60;
        bytes.extend([2, 4, 0x05, 0xb4]);
        assert_eq!(Syn::parse(&bytes).unwrap().mss, 1460);
        // A length that cannot be: as if nothing were said.
        bytes[41] = 9;
        assert_eq!(Syn::parse(&bytes).unwrap().mss, 536);
    }

    #[test]
    fn a_packet_tells_its_ends_from_its_headers_alone() {
        let packet = Packet::parse(&v4(0x10)[..24]).unwrap();
        assert_eq!(packet.from, "10.0.0.1:12345".parse().unwrap());
        assert_eq!(packet.to, "10.0.0.2:80".parse().unwrap());
        for cut in 0..24 {
            assert!(Packet::parse(&v4(0x10)[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn a_reset_tells_what_it_answers() {
        let reset = Reset::parse(&v4(4)).unwrap();
        assert_eq!(reset.sequence, 1);
        assert_eq!(reset.ends, Syn::parse(&v4(2)).unwrap().ends);
        for other in [0x14, 2, 0x10] {
            assert!(Reset::parse(&v4(other)).is_err(), "{other:#x}");
        }
    }

    #[test]
    fn an_answer_tells_whose_it_is_and_its_class() {
        let answer = Answer::parse(&v4(0x12)).unwrap();
        assert_eq!(answer.ends.client, "10.0.0.2:80".parse().unwrap());
        assert_eq!(answer.ends.server, "10.0.0.1:12345".parse().unwrap());
        assert_eq!(answer.dscp, 10);
        for other in [2, 0x10, 4, 0x14] {
            assert!(Answer::parse(&v4(other)).is_err(), "{other:#x}");
        }
    }

    #[test]
    fn anything_else_is_none() {
        assert!(Syn::parse(&v4(0x12)).is_err());
        assert!(Syn::parse(&v4(0x10)).is_err());
        for cut in 0..40 {
            assert!(Syn::parse(&v4(2)[..cut]).is_err(), "{cut}");
        }
        let mut udp = v4(2);
        udp[9] = 17;
        assert!(Syn::parse(&udp).is_err());
    }
}
