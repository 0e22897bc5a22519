//! What a capture says of the interfaces that it was taken at.

use crate::bytes::array_at;
use crate::capture::LinkType;
use crate::capture::block::Order;
use crate::capture::clock::Clock;
use crate::capture::options::{self, Options};
use crate::pcapng::{INTERFACE_NAME, TIME_RESOLUTION};

/// An interface; a pcap file has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// What its packets begin with.
    pub link: LinkType,
    /// Bytes kept of each packet at most; zero: all.
    pub captured_bytes_max: u32,
    /// Its name on the machine that captured, its first 255 bytes; empty where the file has none.
    pub name: String,
    /// Nanoseconds between two neighbouring stamps, rounded up: two packets closer than this may
    /// have one stamp. What the stamps are worth beyond that is not in the file.
    pub tick_ns: u32,
    /// What was counted beside the packets, from the last statistics block.
    pub counters: Counters,
}

/// An interface's counters; none where the file does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that came to the interface (isb_ifrecv).
    pub received: Option<u64>,
    /// Packets that the interface dropped for lack of room (isb_ifdrop).
    pub dropped_by_interface: Option<u64>,
    /// Packets that the filter let through (isb_filteraccept).
    pub accepted: Option<u64>,
    /// Packets that the system dropped for lack of room (isb_osdrop).
    pub dropped_by_system: Option<u64>,
    /// Packets that were handed to the capturing program (isb_usrdeliv).
    pub delivered: Option<u64>,
}

/// What reading a packet needs of its interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) link: LinkType,
    pub(super) clock: Clock,
    pub(super) captured_bytes_max: u32,
}

/// Reads the body of an interface description; `None` where it is too short.
pub(super) fn describe(body: &[u8], order: Order) -> Option<(Interface, Source)> {
    let link = LinkType(order.u16(array_at(body, 0)?));
    let captured_bytes_max = order.u32(array_at(body, 4)?);
    let options = Options::new(body.get(8..).unwrap_or_default(), order);
    let resolution = options
        .find(TIME_RESOLUTION)
        .and_then(|value| value.first());
    let offset_s = options.find_u64(TIME_OFFSET).map_or(0, u64::cast_signed);
    let clock = Clock::new(resolution.copied().unwrap_or(MICROSECONDS), offset_s);
    let name = options.find(INTERFACE_NAME).unwrap_or_default();
    let name = options::text(name.get(..NAME_BYTES_MAX).unwrap_or(name)).to_owned();
    let interface = Interface {
        link,
        captured_bytes_max,
        name,
        tick_ns: clock.tick_ns(),
        counters: Counters::default(),
    };
    let source = Source {
        link,
        clock,
        captured_bytes_max,
    };
    Some((interface, source))
}

impl Counters {
    /// Takes what a statistics block says; what it does not say stays.
    pub(super) fn take(&mut self, options: Options<'_>) {
        for (code, counter) in [
            (RECEIVED, &mut self.received),
            (DROPPED_BY_INTERFACE, &mut self.dropped_by_interface),
            (ACCEPTED, &mut self.accepted),
            (DROPPED_BY_SYSTEM, &mut self.dropped_by_system),
            (DELIVERED, &mut self.delivered),
        ] {
            *counter = options.find_u64(code).or(*counter);
        }
    }
}

const NAME_BYTES_MAX: usize = 255;
/// if_tsresol where there is none.
const MICROSECONDS: u8 = 6;

// Options of interface descriptions (draft section 4.2) and statistics (section 4.6).
const TIME_OFFSET: u16 = 14;
const RECEIVED: u16 = 4;
const DROPPED_BY_INTERFACE: u16 = 5;
const ACCEPTED: u16 = 6;
const DROPPED_BY_SYSTEM: u16 = 7;
const DELIVERED: u16 = 8;
