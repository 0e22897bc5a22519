//! Fragmenting IPv4 packets as routers do (RFC 791 section 3.2, RFC 1812 section 4.2.2.7).
//!
//! A packet larger than the next link carries goes on as fragments: as many bytes in each as fit
//! and are a multiple of eight, the options that ask for it in all of them, the others in the first
//! alone. Fragments are cut further in the same way. The frame is not changed, and each fragment can
//! be written by itself.
//!
//! Left out: putting fragments together, which is the receiver's work, and IPv6, which routers never
//! fragment (RFC 8200 section 5). The transport checksum must be finished before: it covers the
//! whole packet.

use crate::bytes::{put, put_u16, u8_at, u16_at};
use crate::classify::{IpLayer, Version};
use crate::ipv4::{self, DONT_FRAGMENT, HEADER_BYTES_MIN, MORE_FRAGMENTS, Packet, field};

/// A packet seen as the fragments that fit an MTU.
#[derive(Clone, Copy, Debug)]
pub struct Fragments<'a> {
    /// Ethernet header and tags, which each fragment has.
    link: &'a [u8],
    header: &'a [u8],
    payload: &'a [u8],
    /// The header of all fragments but the first.
    later: [u8; HEADER_BYTES_MAX],
    later_bytes: usize,
    /// Payload of the first fragment and of each of the others but the last; multiples of eight.
    first_room: usize,
    later_room: usize,
}

impl<'a> Fragments<'a> {
    /// Cuts the IPv4 packet of `frame`, which begins at its Ethernet header, into fragments of at
    /// most `mtu` bytes of IP. `None` where there is nothing to cut or it must not be: a packet
    /// that fits, that says so (DF), of another protocol, or one that a router would discard: cut
    /// short, with a wrong header checksum or contradictory options, or reaching past the 65,535
    /// bytes that a packet can have.
    pub fn of(frame: &'a [u8], mtu: u32) -> Option<Self> {
        if !is_allowed(frame) {
            return None;
        }
        let ip = IpLayer::of(frame)?;
        let (link, bytes) = frame.split_at_checked(ip.l3)?;
        let packet = Packet::new_checked(bytes).ok()?;
        let (header_bytes, total) = (packet.header_len(), usize::from(packet.total_len()));
        let mtu = usize::try_from(mtu).unwrap_or(usize::MAX);
        let end = usize::from(packet.fragment_offset()) + total - header_bytes;
        if !packet.verify_checksum() || total <= mtu || end > usize::from(u16::MAX) {
            return None;
        }
        let header = bytes.get(..header_bytes)?;
        let (later, later_bytes) = later_header(header)?;
        let room = |header: usize| mtu.saturating_sub(header) / UNIT_BYTES * UNIT_BYTES;
        let (first_room, later_room) = (room(header_bytes), room(later_bytes));
        (first_room > 0 && later_room > 0).then_some(Self {
            link,
            header,
            payload: bytes.get(header_bytes..total)?,
            later,
            later_bytes,
            first_room,
            later_room,
        })
    }

    /// How many they are, two at least.
    pub fn count(&self) -> usize {
        let behind = self.payload.len().saturating_sub(self.first_room);
        1 + behind.div_ceil(self.later_room)
    }

    /// Writes fragment `k`, from 0, as a whole frame and returns its bytes. `None` past the last, or
    /// where `out` is too short.
    pub fn write(&self, k: usize, out: &mut [u8]) -> Option<usize> {
        let (header, start, room) = match k.checked_sub(1) {
            None => (self.header, 0, self.first_room),
            Some(before) => (
                self.later.get(..self.later_bytes)?,
                before
                    .checked_mul(self.later_room)?
                    .checked_add(self.first_room)?,
                self.later_room,
            ),
        };
        let rest = self
            .payload
            .get(start..)
            .filter(|r| !r.is_empty() || k == 0)?;
        let payload = rest.get(..room).unwrap_or(rest);
        let len = self.link.len() + header.len() + payload.len();
        let out = out.get_mut(..len)?;
        let (link, packet) = out.split_at_mut(self.link.len());
        link.copy_from_slice(self.link);
        let (to, data) = packet.split_at_mut(header.len());
        to.copy_from_slice(header);
        data.copy_from_slice(payload);
        let total = u16::try_from(header.len() + payload.len()).ok()?;
        put_u16(to, field::TOTAL_LEN, total);
        // A part of a fragment that was not the last is not the last either.
        let place = u16_at(self.header, field::FRAGMENT);
        let more = if payload.len() < rest.len() {
            MORE_FRAGMENTS
        } else {
            0
        };
        let units = u16::try_from(start / UNIT_BYTES).ok()?;
        put_u16(to, field::FRAGMENT, (place + units) | more);
        ipv4::fill_checksum(to);
        Some(len)
    }
}

/// True for an IPv4 packet without the bit that forbids routers to fragment it; its headers suffice.
pub fn is_allowed(frame: &[u8]) -> bool {
    let ip = IpLayer::of(frame).filter(|ip| ip.version == Version::V4);
    ip.is_some_and(|ip| u16_at(frame, ip.l3 + field::FRAGMENT) & DONT_FRAGMENT == 0)
}

/// The header of fragments other than the first: only options that are to be copied, padded with
/// zeros (RFC 791 section 3.1). `None` where the options contradict themselves.
fn later_header(header: &[u8]) -> Option<([u8; HEADER_BYTES_MAX], usize)> {
    let mut later = [0; HEADER_BYTES_MAX];
    let (fixed, mut options) = header.split_at_checked(HEADER_BYTES_MIN)?;
    put(&mut later, 0, fixed);
    let mut at = HEADER_BYTES_MIN;
    while let Some(&kind) = options.first() {
        let len = match kind {
            END_OF_OPTIONS => break,
            NO_OPERATION => 1,
            _ => usize::from(*options.get(1).filter(|&&len| len >= 2)?),
        };
        let (option, rest) = options.split_at_checked(len)?;
        if kind & COPIED != 0 {
            put(&mut later, at, option);
            at += len;
        }
        options = rest;
    }
    let bytes = at.next_multiple_of(4);
    let words = u8::try_from(bytes / 4).ok()?;
    let first = u8_at(&later, 0);
    put(&mut later, 0, &[(first & 0xf0) | words]);
    Some((later, bytes))
}

/// Fifteen words, as many as the length field can say.
const HEADER_BYTES_MAX: usize = 60;
/// Offsets are counted in these (RFC 791 section 3.1).
const UNIT_BYTES: usize = 8;
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
/// The bit of an option's type that asks for it in every fragment.
const COPIED: u8 = 0x80;
