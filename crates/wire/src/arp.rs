//! Address resolution for IPv4 over Ethernet (RFC 826).
//!
//! Left out: other address families, RARP and InARP, a cache. Whose addresses are answered for is
//! the caller's decision.

use std::net::Ipv4Addr;

use crate::Error;
use crate::bytes::{array_at, put, put_u16, u16_at};
use crate::classify::Mac;
use crate::ethernet;

/// What an ARP packet asks or says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// Question or answer.
    pub operation: Operation,
    /// Ethernet address of the sender.
    pub sender_mac: Mac,
    /// Its IP address; zero in a probe (RFC 5227 section 2.1.1).
    pub sender_ip: Ipv4Addr,
    /// Ethernet address of the target; means nothing in a question.
    pub target_mac: Mac,
    /// IP address that is asked for, or that of the answer's receiver.
    pub target_ip: Ipv4Addr,
}

/// Question or answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Who has the target's IP address?
    Request,
    /// The sender's IP address is at the sender's Ethernet address.
    Reply,
}

/// Reads the ARP packet of a frame, behind any VLAN tags; `None` for every other frame, for other
/// kinds of addresses and for other operations.
pub fn parse(frame: &[u8]) -> Option<Arp> {
    let network = ethernet::network(frame)?;
    let bytes: [u8; PACKET_BYTES] = array_at(frame, network.offset)?;
    if network.ethertype != ethernet::TYPE_ARP || bytes[..field::OPERATION] != ETHERNET_AND_IPV4 {
        return None;
    }
    let operation = match u16_at(&bytes, field::OPERATION) {
        REQUEST => Operation::Request,
        REPLY => Operation::Reply,
        _ => return None,
    };
    let mac = |at| array_at(&bytes, at).map(Mac);
    let ip = |at| array_at::<4>(&bytes, at).map(Ipv4Addr::from);
    Some(Arp {
        operation,
        sender_mac: mac(field::SENDER_MAC)?,
        sender_ip: ip(field::SENDER_IP)?,
        target_mac: mac(field::TARGET_MAC)?,
        target_ip: ip(field::TARGET_IP)?,
    })
}

/// Writes the answer that the address which `request_frame` asks for is at `own_mac`, and returns
/// its length: 42 bytes, and four for each VLAN tag of the request, which are repeated.
///
/// `None` for what is no request, for a sender whose Ethernet address no station can have (RFC 1812
/// section 3.3.2), and when `out` is too short.
pub fn reply(request_frame: &[u8], own_mac: Mac, out: &mut [u8]) -> Option<usize> {
    let request = parse(request_frame)?;
    if request.operation != Operation::Request || !request.sender_mac.is_station() {
        return None;
    }
    let header = copy_link(request_frame, request.sender_mac, own_mac, out)?;
    let answer = Arp {
        operation: Operation::Reply,
        sender_mac: own_mac,
        sender_ip: request.target_ip,
        target_mac: request.sender_mac,
        target_ip: request.sender_ip,
    };
    answer.emit_packet(out.get_mut(header..)?)?;
    Some(header + PACKET_BYTES)
}

impl Arp {
    /// The question who has `target_ip`; goes to [`Mac::BROADCAST`].
    pub fn request(sender_mac: Mac, sender_ip: Ipv4Addr, target_ip: Ipv4Addr) -> Self {
        Self {
            operation: Operation::Request,
            sender_mac,
            sender_ip,
            target_mac: Mac::default(),
            target_ip,
        }
    }

    /// Writes the packet as an untagged frame from its sender to `destination` and returns its
    /// length, 42 bytes.
    ///
    /// # Errors
    /// [`Error::NoRoom`] when `out` is shorter.
    pub fn emit(&self, destination: Mac, out: &mut [u8]) -> Result<usize, Error> {
        let link = ethernet::Repr {
            destination: destination.0,
            source: self.sender_mac.0,
            ethertype: ethernet::TYPE_ARP,
        };
        let out = out.get_mut(..FRAME_BYTES).ok_or(Error::NoRoom)?;
        let header = link.emit(&[], out)?;
        self.emit_packet(out.get_mut(header..).ok_or(Error::NoRoom)?)
            .ok_or(Error::NoRoom)?;
        Ok(FRAME_BYTES)
    }

    fn emit_packet(&self, out: &mut [u8]) -> Option<()> {
        let packet = out.get_mut(..PACKET_BYTES)?;
        let operation = match self.operation {
            Operation::Request => REQUEST,
            Operation::Reply => REPLY,
        };
        put(packet, 0, &ETHERNET_AND_IPV4);
        put_u16(packet, field::OPERATION, operation);
        put(packet, field::SENDER_MAC, &self.sender_mac.0);
        put(packet, field::SENDER_IP, &self.sender_ip.octets());
        put(packet, field::TARGET_MAC, &self.target_mac.0);
        put(packet, field::TARGET_IP, &self.target_ip.octets());
        Some(())
    }
}

/// Writes the Ethernet header of an answer to `frame`: its tags and type, other addresses. Returns
/// the header's length.
pub(crate) fn copy_link(
    frame: &[u8],
    destination: Mac,
    source: Mac,
    out: &mut [u8],
) -> Option<usize> {
    let header = frame.get(..ethernet::network(frame)?.offset)?;
    out.get_mut(..header.len())?.copy_from_slice(header);
    put(out, 0, &destination.0);
    put(out, 6, &source.0);
    Some(header.len())
}

/// Bytes of an ARP packet.
pub const PACKET_BYTES: usize = 28;
/// Bytes of an ARP packet as a frame without tags, before padding.
pub const FRAME_BYTES: usize = ethernet::HEADER_BYTES + PACKET_BYTES;

/// Hardware type 1, protocol type of IPv4, and how long their addresses are.
const ETHERNET_AND_IPV4: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];
/// Operations (RFC 826, "Definitions").
const REQUEST: u16 = 1;
const REPLY: u16 = 2;

/// Where the fields stand (RFC 826, "Packet format").
mod field {
    pub(super) const OPERATION: usize = 6;
    pub(super) const SENDER_MAC: usize = 8;
    pub(super) const SENDER_IP: usize = 14;
    pub(super) const TARGET_MAC: usize = 18;
    pub(super) const TARGET_IP: usize = 24;
}
