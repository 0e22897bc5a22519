//! Offloads of a network interface, switched through the ethtool ioctl.
//!
//! Only what a comparison "as with a card that helps with nothing" needs: each of these has been one
//! number to set since the first ethtool, and every kernel still takes them. A device may refuse one
//! (`EOPNOTSUPP`) or hold it fixed.
//!
//! Sources: ethtool(8), netdevice(7), Linux include/uapi/linux/ethtool.h (struct ethtool_value),
//! net/ethtool/ioctl.c (ethtool_set_one_feature).

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

/// struct ethtool_value.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

fn exchange(name: &str, command: u32, data: u32) -> io::Result<u32> {
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
    let mut value = Value { command, data };
    // SAFETY: ifreq is plain old data, for which all zeroes is a value; zeroes also end the name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = libc::c_char::from_ne_bytes([byte]);
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: request is an ifreq whose name ends in a zero (checked above) and whose data points to
    // `value`, a struct ethtool_value that outlives the call; these commands read and write no more
    // than that (net/ethtool/ioctl.c). The socket is open for the length of the call.
    let done = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCETHTOOL as libc::Ioctl,
            &raw mut request,
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    // `value` was written through the pointer in `request`.
    Ok(value.data)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::netlink::{Netlink, VethEnd};
    use crate::netns::NetNs;

    #[test]
    fn offloads_of_a_veth_go_off_one_by_one_and_on_again() {
        let Ok(ns) = NetNs::create() else {
            eprintln!("skipped: no privilege to make namespaces");
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
    fn a_name_that_is_none_is_refused() {
        for name in ["", "a-name-of-16-char", "a\0b"] {
            let error = set_offload(name, Offload::Tso, true).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        let error = set_offload("no-such-if", Offload::Tso, true).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
