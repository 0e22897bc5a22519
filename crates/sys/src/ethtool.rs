//! Offloads and interrupt moderation of a network interface, through the ethtool ioctl.
//!
//! Switched is only what a comparison "as with a card that helps with nothing" or a host's tuning needs: each offload
//! has been one number to set since the first ethtool, and every kernel still takes them. A device may
//! refuse one (`EOPNOTSUPP`) or hold it fixed. Read is what a report shows, without privileges; what a
//! driver does not tell is absent. Of moderation only the receiving side is read, and only whether it adapts is set.
//!
//! Sources: ethtool(8), netdevice(7), Linux Documentation/networking/timestamping.rst, Linux include/uapi/linux/ethtool.h (struct ethtool_value, struct
//! ethtool_coalesce), net/ethtool/ioctl.c (ethtool_set_one_feature; dev_ethtool: what needs no
//! privilege).

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Work that an interface can take off the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// TCP segmentation.
    Tso,
    /// Segmentation of anything, late in software.
    Gso,
    /// Merging of received segments.
    Gro,
    /// Sending from scattered memory; segmentation needs it.
    ScatterGather,
    /// Checksums of what is sent; scatter-gather needs it.
    TransmitChecksum,
}

impl Offload {
    /// All of them, in the order in which they can be switched off.
    pub const ALL: [Self; 5] = [
        Self::Tso,
        Self::Gso,
        Self::Gro,
        Self::ScatterGather,
        Self::TransmitChecksum,
    ];

    /// include/uapi/linux/ethtool.h: ETHTOOL_STSO and so on.
    const fn set_command(self) -> u32 {
        match self {
            Self::TransmitChecksum => 0x17,
            Self::ScatterGather => 0x19,
            Self::Tso => 0x1f,
            Self::Gso => 0x24,
            Self::Gro => 0x2c,
        }
    }

    /// The command before it reads what it sets: ETHTOOL_GTSO and so on.
    const fn get_command(self) -> u32 {
        self.set_command() - 1
    }
}

/// Switches an offload of the interface `name` in the calling thread's network namespace.
///
/// # Errors
/// `ENODEV` when there is no such interface, `EPERM` without CAP_NET_ADMIN over the namespace,
/// `EOPNOTSUPP` when the device holds the offload fixed the other way.
pub fn set_offload(name: &str, offload: Offload, on: bool) -> io::Result<()> {
    exchange(name, offload.set_command(), u32::from(on)).map(drop)
}

/// True when the offload is on.
///
/// # Errors
/// `ENODEV` when there is no such interface.
pub fn offload(name: &str, offload: Offload) -> io::Result<bool> {
    Ok(exchange(name, offload.get_command(), 0)? != 0)
}

/// What an interface takes off the kernel, and how long it holds interrupts back; `None` where the
/// driver does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicWork {
    /// TCP segmentation.
    pub tso: Option<bool>,
    /// Segmentation of anything, late in software.
    pub gso: Option<bool>,
    /// Merging of received segments in software.
    pub gro: Option<bool>,
    /// Merging of received segments by the card.
    pub lro: Option<bool>,
    /// Checksums of what is sent.
    pub transmit_checksum: Option<bool>,
    /// Checksums of what is received.
    pub receive_checksum: Option<bool>,
    /// Longest wait from a received frame to its interrupt, in microseconds; 0: none.
    pub receive_hold_off_us: Option<u32>,
    /// Frames after which the interrupt comes at once; 0: no such limit.
    pub receive_hold_off_frames: Option<u32>,
    /// Whether the driver adapts the wait to the load, and what stands here is its start.
    pub receive_hold_off_adapts: Option<bool>,
}

/// Reads offloads and moderation of the interface `name` in the calling thread's network namespace.
pub fn nic_work(name: &str) -> NicWork {
    let value = |command| exchange(name, command, 0).ok();
    let coalesce = coalesce(name).ok();
    NicWork {
        tso: offload(name, Offload::Tso).ok(),
        gso: offload(name, Offload::Gso).ok(),
        gro: offload(name, Offload::Gro).ok(),
        lro: value(ETHTOOL_GFLAGS).map(|flags| flags & ETH_FLAG_LRO != 0),
        transmit_checksum: offload(name, Offload::TransmitChecksum).ok(),
        receive_checksum: value(ETHTOOL_GRXCSUM).map(|on| on != 0),
        receive_hold_off_us: coalesce.map(|c| c[1]),
        receive_hold_off_frames: coalesce.map(|c| c[2]),
        receive_hold_off_adapts: coalesce.map(|c| c[10] != 0),
    }
}

/// struct ethtool_coalesce: the command, `rx_coalesce_usecs`, `rx_max_coalesced_frames`, …,
/// `use_adaptive_rx_coalesce` at 10.
fn coalesce(name: &str) -> io::Result<[u32; COALESCE_WORDS]> {
    let mut words = [0; COALESCE_WORDS];
    words[0] = ETHTOOL_GCOALESCE;
    ask(name, &mut words)?;
    Ok(words)
}

/// Has the driver adapt the receiving side's interrupts to the load, or not.
///
/// # Errors
/// As [`set_offload`]; `EOPNOTSUPP` where the driver has no such setting.
pub fn set_adaptive_rx(name: &str, on: bool) -> io::Result<()> {
    let mut words = coalesce(name)?;
    words[0] = ETHTOOL_SCOALESCE;
    words[10] = u32::from(on);
    ask(name, &mut words)
}

/// Switches merging of received segments by the card.
///
/// # Errors
/// As [`set_offload`].
pub fn set_lro(name: &str, on: bool) -> io::Result<()> {
    let flags = exchange(name, ETHTOOL_GFLAGS, 0)?;
    let wanted = if on {
        flags | ETH_FLAG_LRO
    } else {
        flags & !ETH_FLAG_LRO
    };
    exchange(name, ETHTOOL_SFLAGS, wanted).map(drop)
}

/// Descriptors of a device's two rings, now and at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// Receive, now.
    pub rx: u32,
    /// Receive, the hardware's maximum.
    pub rx_max: u32,
    /// Transmit, now.
    pub tx: u32,
    /// Transmit, the hardware's maximum.
    pub tx_max: u32,
}

/// Reads the rings of the interface `name`. Needs no privilege.
///
/// # Errors
/// `EOPNOTSUPP` where the driver has none that it tells of.
pub fn rings(name: &str) -> io::Result<Rings> {
    let words = ring_words(name)?;
    Ok(Rings {
        rx_max: words[1],
        tx_max: words[4],
        rx: words[5],
        tx: words[8],
    })
}

/// Sets the descriptors of the rings that are given. Many drivers take the link down for it.
///
/// # Errors
/// As [`set_offload`]; `EINVAL` for more than the hardware has.
pub fn set_rings(name: &str, rx: Option<u32>, tx: Option<u32>) -> io::Result<()> {
    let mut words = ring_words(name)?;
    words[0] = ETHTOOL_SRINGPARAM;
    words[5] = rx.unwrap_or(words[5]);
    words[8] = tx.unwrap_or(words[8]);
    ask(name, &mut words)
}

/// struct ethtool_ringparam: the command; maxima of rx, rx_mini, rx_jumbo, tx; then the same four as they are.
fn ring_words(name: &str) -> io::Result<[u32; RING_WORDS]> {
    let mut words = [0; RING_WORDS];
    words[0] = ETHTOOL_GRINGPARAM;
    ask(name, &mut words)?;
    Ok(words)
}

fn exchange(name: &str, command: u32, data: u32) -> io::Result<u32> {
    // struct ethtool_value: command and data.
    let mut value = [command, data];
    ask(name, &mut value)?;
    Ok(value[1])
}

/// Receive stamps of an interface's own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardwareStamps {
    /// The interface can make them.
    pub has: bool,
    /// It makes them for every frame that comes in. Who wants that sets it for the whole interface
    /// (`hwstamp_ctl -r 1`), here it is only read.
    pub is_on: bool,
}

/// What receive stamps the interface `name` makes; none where the driver does not tell.
pub fn hardware_stamps(name: &str) -> HardwareStamps {
    // struct ethtool_ts_info: the command, `so_timestamping`, `phc_index`, ….
    let mut info = [0; TS_INFO_WORDS];
    info[0] = ETHTOOL_GET_TS_INFO;
    let both = libc::SOF_TIMESTAMPING_RX_HARDWARE | libc::SOF_TIMESTAMPING_RAW_HARDWARE;
    let has = ask(name, &mut info).is_ok() && info[1] & both == both;
    // struct hwtstamp_config: `flags`, `tx_type`, `rx_filter`.
    let mut config = [0; 3];
    let is_on = has
        && ask_by(libc::SIOCGHWTSTAMP as libc::Ioctl, name, &mut config).is_ok()
        && config[2] == HWTSTAMP_FILTER_ALL;
    HardwareStamps { has, is_on }
}

/// Hands `words` to the driver, which answers in place. The first word is the command; the array must
/// be the whole struct that this command reads and writes, which is what the callers above see to.
fn ask<const N: usize>(name: &str, words: &mut [u32; N]) -> io::Result<()> {
    ask_by(libc::SIOCETHTOOL as libc::Ioctl, name, words)
}

/// The same by another request than SIOCETHTOOL.
fn ask_by<const N: usize>(
    request_code: libc::Ioctl,
    name: &str,
    words: &mut [u32; N],
) -> io::Result<()> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // The ioctl acts in the socket's namespace, which is the thread's.
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: ifreq is plain old data, for which all zeroes is a value; zeroes also end the name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = libc::c_char::from_ne_bytes([byte]);
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: request is an ifreq whose name ends in a zero (checked above) and whose data points to
    // `words`, which outlives the call and is as large as the command's struct: two words of struct
    // ethtool_value, 23 of struct ethtool_coalesce, 9 of struct ethtool_ringparam, 11 of struct ethtool_ts_info, 3 of struct
    // hwtstamp_config (SIOCGHWTSTAMP); the kernel reads and writes no more than that
    // (net/ethtool/ioctl.c, net/core/dev_ioctl.c). The socket is open for the length of the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), request_code, &raw mut request) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// include/uapi/linux/ethtool.h.
const ETHTOOL_GCOALESCE: u32 = 0x0e;
const ETHTOOL_SCOALESCE: u32 = 0x0f;
const ETHTOOL_GRINGPARAM: u32 = 0x10;
const ETHTOOL_SRINGPARAM: u32 = 0x11;
const ETHTOOL_GRXCSUM: u32 = 0x14;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
/// struct ethtool_ringparam holds 9 words of 32 bits.
const RING_WORDS: usize = 9;
const ETH_FLAG_LRO: u32 = 1 << 15;
const ETHTOOL_GET_TS_INFO: u32 = 0x41;
/// struct ethtool_ts_info holds 11 words of 32 bits.
const TS_INFO_WORDS: usize = 11;
/// include/uapi/linux/net_tstamp.h: every frame is stamped.
const HWTSTAMP_FILTER_ALL: u32 = 1;
/// struct ethtool_coalesce holds 23 words of 32 bits.
const COALESCE_WORDS: usize = 23;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::netlink::{Netlink, VethEnd};
    use crate::netns::NetNs;

    #[test]
    fn offloads_of_a_veth_go_off_one_by_one_and_on_again() {
        let Ok(ns) = NetNs::create() else {
            testing::skipped("no privilege to make namespaces");
            return;
        };
        let end = |name, mac| VethEnd {
            name,
            mac: [2, 0, 0, 0, 0, mac],
            netns: ns.as_fd(),
        };
        let states = ns.run(|| -> io::Result<Vec<bool>> {
            Netlink::open()?.add_veth(end("left", 1), end("right", 2))?;
            let mut states = Vec::new();
            for on in [false, true] {
                for one in Offload::ALL {
                    set_offload("left", one, on)?;
                    states.push(offload("left", one)?);
                }
            }
            // Scatter-gather needs checksums: on only after they are.
            set_offload("left", Offload::ScatterGather, true)?;
            states.push(offload("left", Offload::ScatterGather)?);
            Ok(states)
        });
        let states = states.unwrap().unwrap();
        assert_eq!(states[..5], [false; 5]);
        assert!(states[9] && states[10], "{states:?}");
    }

    #[test]
    fn what_a_veth_does_is_read_and_what_it_lacks_is_absent() {
        let Ok(ns) = NetNs::create() else {
            testing::skipped("no privilege to make namespaces");
            return;
        };
        let end = |name, mac| VethEnd {
            name,
            mac: [2, 0, 0, 0, 0, mac],
            netns: ns.as_fd(),
        };
        let read = ns.run(|| -> io::Result<[NicWork; 3]> {
            Netlink::open()?.add_veth(end("left", 1), end("right", 2))?;
            let before = nic_work("left");
            set_offload("left", Offload::Tso, false)?;
            Ok([before, nic_work("left"), nic_work("no-such-if")])
        });
        let [before, after, none] = read.unwrap().unwrap();
        assert_eq!((before.tso, after.tso), (Some(true), Some(false)));
        assert_eq!((before.gso, before.lro), (Some(true), Some(false)));
        assert!(before.transmit_checksum.is_some() && before.receive_checksum.is_some());
        // A veth has no interrupts to hold back.
        assert_eq!(before.receive_hold_off_us, None);
        assert_eq!(none, NicWork::default());
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        for name in ["", "a-name-of-16-char", "a\0b"] {
            let error = set_offload(name, Offload::Tso, true).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        let error = set_offload("no-such-if", Offload::Tso, true).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
