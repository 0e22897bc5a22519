//! How a client comes to the far end: from which address, by which device, marked how, with which
//! token.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::str::FromStr;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use sys::{endpoint, tcp};
use units::Duration;

use crate::error::connect_error;
use crate::{MeasureError, Secret, Stop, target};

/// How a client comes to the far end. The default leaves all to the kernel.
#[derive(Clone, Debug, Default)]
pub struct Approach {
    /// Source address of control and data connections, with the interface of one that is good on one link only; the port is 0.
    pub bind: Option<SocketAddr>,
    /// Interface that they leave and come by (SO_BINDTODEVICE), up to 15 bytes.
    pub device: Option<String>,
    /// Mark of the control connection; the streams' is [`crate::Config::dscp`].
    pub dscp: Option<Dscp>,
    /// What to prove to the far end, and to demand from it.
    pub secret: Option<Secret>,
}

/// A differentiated services code point, 0 to 63 (RFC 2474).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dscp(u8);

impl Dscp {
    /// A code point by its number; `None` above 63.
    pub fn new(number: u8) -> Option<Self> {
        (number < 64).then_some(Self(number))
    }

    /// The number, 0 to 63.
    pub fn number(self) -> u8 {
        self.0
    }

    /// The TOS byte or traffic class: the code point above two bits of ECN (RFC 3168).
    pub(crate) fn class(self) -> u8 {
        self.0 << 2
    }
}

impl FromStr for Dscp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.to_ascii_lowercase();
        let named = NAMES.iter().find(|(known, _)| *known == name);
        let number = named
            .map(|(_, number)| *number)
            .or_else(|| name.parse().ok());
        number.and_then(Self::new).ok_or_else(|| {
            format!("'{text}' is no code point; expected 0 to 63, or ef, cs0 to cs7, af11 to af43, le, va")
        })
    }
}

impl Approach {
    /// Says what is impossible about it, if anything.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Config`] with what to change.
    pub fn check(&self) -> Result<(), MeasureError> {
        let legal = |c: char| c.is_ascii_graphic() && c != '/';
        let name = self.device.as_deref();
        // IFNAMSIZ is 16 with the zero byte.
        if name.is_some_and(|n| n.is_empty() || n.len() > 15 || !n.chars().all(legal)) {
            let text = "a device is named by up to 15 characters, such as eth0 (see ip link)";
            return Err(MeasureError::Config(text.to_owned()));
        }
        Ok(())
    }

    /// Says what is wrong with a target that is to be reached so, as far as the name service need not be asked.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Target`] or [`MeasureError::Config`] with what to change.
    pub fn check_target(&self, target: &str) -> Result<(), MeasureError> {
        if target::endpoint(target)?.ip().is_some() {
            self.reachable(target::resolve(target, 0)?)?;
        }
        Ok(())
    }

    /// Those of a target's addresses that can be reached from the source address. Refuses one of a link where nothing says
    /// which interface leads there.
    pub(crate) fn reachable(
        &self,
        addrs: Vec<SocketAddr>,
    ) -> Result<Vec<SocketAddr>, MeasureError> {
        let scope = match self.bind {
            Some(SocketAddr::V6(bind)) => bind.scope_id(),
            _ => 0,
        };
        if scope == 0 && self.device.is_none() {
            let missing = addrs.iter().copied().find_map(endpoint::without_interface);
            if let Some(problem) = missing {
                return Err(MeasureError::Config(problem));
            }
        }
        let Some(bind) = self.bind else {
            return Ok(addrs);
        };
        let over = |addr: SocketAddr| match endpoint::without_interface(addr) {
            Some(_) => endpoint::scoped(addr, scope),
            None => addr,
        };
        let none = addrs.is_empty();
        let fit = |addr: &SocketAddr| addr.is_ipv4() == bind.is_ipv4();
        let fitting: Vec<SocketAddr> = addrs.into_iter().filter(fit).map(over).collect();
        if fitting.is_empty() && !none {
            let family = if bind.is_ipv4() { "IPv4" } else { "IPv6" };
            return Err(MeasureError::Config(format!(
                "the target has no {family} address, which the source address {} asks for",
                bind.ip()
            )));
        }
        Ok(fitting)
    }

    /// Opens connections this way; `set` sets further options before the SYN.
    pub(crate) fn connect(
        &self,
        addr: SocketAddr,
        count: usize,
        timeout: Duration,
        set: impl Fn(BorrowedFd<'_>) -> io::Result<()>,
        stop: &Stop,
    ) -> Result<Vec<TcpStream>, MeasureError> {
        self.connect_of(tcp::unconnected, addr, count, timeout, set, stop)
    }

    /// As [`Self::connect`], with sockets that `make` makes.
    pub(crate) fn connect_of(
        &self,
        make: fn(SocketAddr) -> io::Result<TcpStream>,
        addr: SocketAddr,
        count: usize,
        timeout: Duration,
        set: impl Fn(BorrowedFd<'_>) -> io::Result<()>,
        stop: &Stop,
    ) -> Result<Vec<TcpStream>, MeasureError> {
        // Told apart from what the connect itself meets, which is the network's.
        let mut ours = None;
        let prepare = |fd: BorrowedFd<'_>| {
            if let Err((what, error)) = self.prepare(fd) {
                ours = Some((what, error));
                return Err(ErrorKind::Other.into());
            }
            set(fd)
        };
        let opened =
            tcp::connect_many_of(make, addr, count, timeout, prepare, || stop.is_stopped());
        match (opened, ours) {
            (Ok(sockets), _) => Ok(sockets),
            (Err(_), Some((what, source))) => Err(MeasureError::Local { what, source }),
            (Err(error), None) => Err(connect_error(addr, timeout, error)),
        }
    }

    /// A UDP socket from an address of this host to `to`, which does not block.
    pub(crate) fn datagrams(&self, from: SocketAddr, to: SocketAddr) -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind(from)?;
        if let Some(device) = &self.device {
            tcp::set_device(socket.as_fd(), device)?;
        }
        socket.connect(to)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// A UDP socket to `to`, prepared in every way; what failed stands beside the error.
    pub(crate) fn prepared_datagrams(
        &self,
        to: SocketAddr,
    ) -> Result<UdpSocket, (&'static str, io::Error)> {
        let family = match to {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let made = socket_with(family, SocketType::DGRAM, flags, None);
        let socket = UdpSocket::from(made.map_err(|e| ("open a socket", e.into()))?);
        self.prepare(socket.as_fd())?;
        socket.connect(to).map_err(|e| ("send probes", e))?;
        Ok(socket)
    }

    fn prepare(&self, fd: BorrowedFd<'_>) -> Result<(), (&'static str, io::Error)> {
        if let Some(device) = &self.device {
            tcp::set_device(fd, device).map_err(|e| ("use that device (see ip link)", e))?;
        }
        if let Some(bind) = self.bind {
            let bound = tcp::set_source(fd, bind);
            bound.map_err(|e| ("use that source address (see ip addr)", e))?;
        }
        if let Some(dscp) = self.dscp {
            tcp::set_tos(fd, dscp.class()).map_err(|e| ("mark packets with that DSCP", e))?;
        }
        Ok(())
    }
}

/// Marks what an open connection sends from now on.
pub(crate) fn mark(stream: &TcpStream, dscp: Dscp) -> io::Result<()> {
    tcp::set_tos(stream.as_fd(), dscp.class())
}

/// RFC 2474 (cs), 2597 (af), 3246 (ef), 5865 (va), 8622 (le).
const NAMES: [(&str, u8); 25] = [
    ("be", 0),
    ("default", 0),
    ("le", 1),
    ("cs0", 0),
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("va", 44),
    ("ef", 46),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_points_have_names_and_numbers_up_to_63() {
        let number = |text: &str| text.parse::<Dscp>().map(Dscp::number);
        assert_eq!(number("EF"), Ok(46));
        assert_eq!(number("cs6"), Ok(48));
        assert_eq!(number("af43"), Ok(38));
        assert_eq!((number("0"), number("63")), (Ok(0), Ok(63)));
        for wrong in ["64", "-1", "256", "af44", "cs8", ""] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
        assert_eq!("ef".parse::<Dscp>().unwrap().class(), 184);
    }

    #[test]
    fn a_source_address_leaves_out_the_other_family() {
        let approach = Approach {
            bind: Some("[::1]:0".parse().unwrap()),
            ..Approach::default()
        };
        let addrs: Vec<SocketAddr> = ["192.0.2.1:1", "[2001:db8::1]:1"]
            .map(|a| a.parse().unwrap())
            .to_vec();
        assert_eq!(approach.reachable(addrs.clone()).unwrap(), addrs[1..]);
        assert!(approach.reachable(addrs[..1].to_vec()).is_err());
        assert_eq!(Approach::default().reachable(addrs.clone()).unwrap(), addrs);
    }

    #[test]
    fn an_address_of_a_link_wants_its_interface_from_target_source_or_device() {
        let bare: SocketAddr = "[fe80::1]:1".parse().unwrap();
        let refused = Approach::default().reachable(vec![bare]).unwrap_err();
        let said = "fe80::1 is link-local: name the interface, such as fe80::1%";
        assert!(refused.to_string().starts_with(said), "{refused}");
        let scoped: SocketAddr = "[fe80::1%1]:1".parse().unwrap();
        assert_eq!(
            Approach::default().reachable(vec![scoped]).unwrap(),
            [scoped]
        );
        let by_device = Approach {
            device: Some("eth0".to_owned()),
            ..Approach::default()
        };
        assert_eq!(by_device.reachable(vec![bare]).unwrap(), [bare]);
        let by_source = Approach {
            bind: Some("[fe80::2%1]:0".parse().unwrap()),
            ..Approach::default()
        };
        assert_eq!(by_source.reachable(vec![bare]).unwrap(), [scoped]);
    }

    #[test]
    fn a_device_has_a_name_of_up_to_15_characters() {
        let named = |name: &str| Approach {
            device: Some(name.to_owned()),
            ..Approach::default()
        };
        assert!(named("eth0").check().is_ok());
        assert!(named("a234567890bcdef").check().is_ok());
        for wrong in ["", "a234567890bcdefg", "a/b", "a b", "a\0"] {
            assert!(named(wrong).check().is_err(), "{wrong}");
        }
    }
}
