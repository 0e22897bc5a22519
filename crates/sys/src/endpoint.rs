//! Hosts, addresses and ports as people type them: `host`, `host:port`, `::1`, `[::1]:port`, and IPv6 addresses of one
//! link with their interface, `fe80::1%eth0` (RFC 4007, section 11). One reader for every verb, so that what one accepts
//! all accept, in the same words.
//!
//! Left out: user names, paths and schemes. Who takes those cuts them off first.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice};

use crate::host;

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    zone: Option<String>,
    port: Option<u16>,
}

impl Endpoint {
    /// Reads `host`, `host:port`, an address, `[IPv6]` or `[IPv6]:port`; an IPv6 address may name its zone. Asks nobody: names
    /// are not resolved, nor interfaces looked for.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in words for whoever typed it.
    pub fn parse(typed: &str) -> Result<Self, String> {
        let read = Self::read(typed)?;
        match read.port {
            Some(0) => Err(port_problem("0")),
            _ => Ok(read),
        }
    }

    /// The same with port 0, which listeners may have.
    fn read(typed: &str) -> Result<Self, String> {
        if let Some((scheme, _)) = typed.split_once("://") {
            return Err(format!("'{scheme}://' is not accepted here"));
        }
        if let Some(rest) = typed.strip_prefix('[') {
            return bracketed(rest);
        }
        if typed.matches(':').count() > 1 {
            return bare_v6(typed);
        }
        let (host, port) = match typed.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (typed, None),
        };
        check_name(host)?;
        Ok(Self {
            host: host.to_owned(),
            zone: None,
            port: port.map(read_port).transpose()?,
        })
    }

    /// The name or address, without zone and brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The same host, with no port.
    #[must_use]
    pub fn without_port(&self) -> Self {
        Self {
            port: None,
            ..self.clone()
        }
    }

    /// The same host, at this port.
    #[must_use]
    pub fn with_port(&self, port: u16) -> Self {
        Self {
            port: Some(port),
            ..self.clone()
        }
    }

    /// The port, if one was typed.
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// The address, if it is no name.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Where that is; with `port` where none was typed. Only names ask the resolver.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a zone that is no interface of this host, otherwise the resolver's answer.
    pub fn resolve(&self, port: u16) -> io::Result<Vec<SocketAddr>> {
        let port = self.port.unwrap_or(port);
        match self.ip() {
            Some(ip) => Ok(vec![self.at(ip, port)?]),
            None => Ok((self.host.as_str(), port).to_socket_addrs()?.collect()),
        }
    }

    fn at(&self, ip: IpAddr, port: u16) -> io::Result<SocketAddr> {
        let scope = self.zone.as_deref().map_or(Ok(0), interface_number)?;
        Ok(match ip {
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
            IpAddr::V4(_) => SocketAddr::new(ip, port),
        })
    }

    /// Where that is, as an address of this host: one of a link without a zone gets the interface that has it.
    fn own(&self, port: u16) -> Result<SocketAddr, String> {
        let Some(ip) = self.ip() else {
            return Err("expected an address, not a name".to_owned());
        };
        let at = self
            .at(ip, self.port.unwrap_or(port))
            .map_err(|error| error.to_string())?;
        own(at)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zone = self.zone.as_ref().map(|zone| format!("%{zone}"));
        let zone = zone.unwrap_or_default();
        match (self.port, self.host.contains(':')) {
            (Some(port), true) => write!(f, "[{}{zone}]:{port}", self.host),
            (Some(port), false) => write!(f, "{}:{port}", self.host),
            (None, _) => write!(f, "{}{zone}", self.host),
        }
    }
}

/// Reads an address to listen on, with `port` where none was typed; 0 lets the kernel choose.
///
/// # Errors
///
/// What is wrong with it; names are refused.
pub fn listening(typed: &str, port: u16) -> Result<SocketAddr, String> {
    Endpoint::read(typed)?.own(port)
}

/// Reads an address with its port, which may be 0.
///
/// # Errors
///
/// What is wrong with it; names are refused.
pub fn with_port(typed: &str) -> Result<SocketAddr, String> {
    let read = Endpoint::read(typed)?;
    let address = read.own(0)?;
    match read.port {
        Some(_) => Ok(address),
        None => Err("expected a port after the address".to_owned()),
    }
}

/// Reads an address of this host that connections leave from; the port is 0.
///
/// # Errors
///
/// What is wrong with it; names and ports are refused.
pub fn source(typed: &str) -> Result<SocketAddr, String> {
    let read = Endpoint::read(typed)?;
    match read.port {
        Some(port) => Err(format!("expected an address without the port {port}")),
        None => read.own(0),
    }
}

/// An address of this host, with the interface that has it where it is good on one link only and names none.
///
/// # Errors
///
/// Says so where no interface has it, or several do.
pub fn own(at: SocketAddr) -> Result<SocketAddr, String> {
    let Some(problem) = without_interface(at) else {
        return Ok(at);
    };
    let all = host::addresses();
    let mut names = all.iter().filter(|(_, ip)| *ip == at.ip());
    match (names.next(), names.next()) {
        (Some((name, _)), None) => {
            let scope = interface_number(name).map_err(|error| error.to_string())?;
            Ok(scoped(at, scope))
        }
        _ => Err(problem),
    }
}

/// What is missing to reach an address: the interface, where it is good on one link only. `None` where nothing is.
pub fn without_interface(at: SocketAddr) -> Option<String> {
    let SocketAddr::V6(v6) = at else { return None };
    if !v6.ip().is_unicast_link_local() || v6.scope_id() != 0 {
        return None;
    }
    let ip = v6.ip();
    // One that such an address can be reached over, if there is any.
    let is_of_link = |ip: &IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let some = host::addresses()
        .into_iter()
        .find(|(_, ip)| is_of_link(ip))
        .map_or_else(|| "eth0".to_owned(), |(name, _)| name);
    Some(format!(
        "{ip} is link-local: name the interface, such as {ip}%{some}"
    ))
}

/// An address as it is seen over an interface of this host, by number: one that is good on one link only was typed with, or
/// comes with, the number that another host has for its own.
pub fn scoped(mut to: SocketAddr, scope: u32) -> SocketAddr {
    if let SocketAddr::V6(v6) = &mut to
        && v6.ip().is_unicast_link_local()
    {
        v6.set_scope_id(scope);
    }
    to
}

/// `address]`, `address%zone]`, or either with `:port`.
fn bracketed(rest: &str) -> Result<Endpoint, String> {
    let (inner, after) = rest.split_once(']').ok_or("the ']' is missing")?;
    let (host, zone) = zoned(inner)?;
    if host.parse::<Ipv6Addr>().is_err() {
        return Err(format!("'{inner}' in brackets is not an IPv6 address"));
    }
    let port = match after {
        "" => None,
        _ => Some(read_port(after.strip_prefix(':').ok_or_else(|| {
            format!("'{after}' follows the bracket; a port follows a colon")
        })?)?),
    };
    Ok(Endpoint {
        host: host.to_owned(),
        zone,
        port,
    })
}

/// An IPv6 address without brackets: no port can follow it.
fn bare_v6(typed: &str) -> Result<Endpoint, String> {
    let (host, zone) = zoned(typed)?;
    if host.parse::<Ipv6Addr>().is_err() {
        return Err("an IPv6 address is wrong, or a second colon is too much".to_owned());
    }
    if zone.as_ref().is_some_and(|zone| zone.contains(':')) {
        return Err(
            "with a port, an IPv6 address stands in brackets, such as [fe80::1%eth0]:5210"
                .to_owned(),
        );
    }
    Ok(Endpoint {
        host: host.to_owned(),
        zone,
        port: None,
    })
}

/// What stands before and after a percent sign.
fn zoned(typed: &str) -> Result<(&str, Option<String>), String> {
    match typed.split_once('%') {
        None => Ok((typed, None)),
        Some((_, zone)) if !is_interface(zone) => Err(format!(
            "'%{zone}' names no interface; expected one such as %eth0 (see ip link)"
        )),
        Some((host, zone)) => Ok((host, Some(zone.to_owned()))),
    }
}

/// IFNAMSIZ is 16 with the zero byte; a colon is legal, and typed before a port by mistake.
fn is_interface(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | '%' | '[' | ']');
    let name = name.split_once(':').map_or(name, |(name, _)| name);
    !name.is_empty() && name.len() <= 15 && name.chars().all(legal)
}

fn check_name(host: &str) -> Result<(), String> {
    if host.contains('%') {
        return Err("'%' names the interface of an IPv6 address, and that is none".to_owned());
    }
    if let Some((user, _)) = host.split_once('@') {
        return Err(format!("a user name ('{user}@') is not accepted here"));
    }
    if let Some((_, path)) = host.split_once('/') {
        return Err(format!("a path ('/{path}') is not accepted here"));
    }
    let legal = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '[' | ']');
    if host.is_empty() || host.len() > 253 || host.starts_with('-') || !host.chars().all(legal) {
        return Err("there is no host name in it".to_owned());
    }
    Ok(())
}

fn read_port(text: &str) -> Result<u16, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(port) if digits => Ok(port),
        _ => Err(port_problem(text)),
    }
}

fn port_problem(text: &str) -> String {
    match text.split_once('/') {
        Some((_, path)) => format!("a path ('/{path}') is not accepted here"),
        None => format!("its port '{text}' is not a number from 1 to 65535"),
    }
}

/// The number of an interface by its name, or as it was typed.
fn interface_number(zone: &str) -> io::Result<u32> {
    if let Ok(number) = zone.parse() {
        return Ok(number);
    }
    let flags = SocketFlags::CLOEXEC;
    // Any socket will do: the interfaces are those of this thread's namespace.
    let any = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    netdevice::name_to_index(any, zone).map_err(|_| {
        let text = format!("this host has no interface '{zone}' (see ip link)");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Host, zone and port of what was typed.
    fn parts(typed: &str) -> (String, Option<String>, Option<u16>) {
        let read = Endpoint::parse(typed).unwrap_or_else(|e| panic!("{typed}: {e}"));
        (read.host, read.zone, read.port)
    }

    fn problem(typed: &str) -> String {
        Endpoint::parse(typed).unwrap_err()
    }

    #[test]
    fn hosts_addresses_zones_and_ports_are_read() {
        let is = |typed: &str, host: &str, zone: Option<&str>, port: Option<u16>| {
            let read = (host.to_owned(), zone.map(str::to_owned), port);
            assert_eq!(parts(typed), read, "{typed}");
        };
        is("dtn.example.org", "dtn.example.org", None, None);
        is("dtn:99", "dtn", None, Some(99));
        is("10.0.0.1:99", "10.0.0.1", None, Some(99));
        is("::1", "::1", None, None);
        is("[::1]", "::1", None, None);
        is("[::1]:99", "::1", None, Some(99));
        is("fe80::1%eth0", "fe80::1", Some("eth0"), None);
        is("fe80::1%3", "fe80::1", Some("3"), None);
        is("[fe80::1%eth0]", "fe80::1", Some("eth0"), None);
        is(
            "[fe80::1%br-0.7]:5210",
            "fe80::1",
            Some("br-0.7"),
            Some(5210),
        );
        is("ff02::1%eth0", "ff02::1", Some("eth0"), None);
    }

    #[test]
    fn a_refusal_says_what_is_not_accepted() {
        for (typed, said) in [
            ("", "no host name"),
            (":99", "no host name"),
            ("a b", "no host name"),
            ("-o", "no host name"),
            ("h:0", "port '0'"),
            ("h:70000", "port '70000'"),
            ("h:x", "port 'x'"),
            ("h:+1", "port '+1'"),
            ("h:", "port ''"),
            ("h:1/x", "a path ('/x')"),
            ("h/x", "a path ('/x')"),
            ("u@h", "a user name ('u@')"),
            ("http://h", "'http://' is not accepted"),
            ("[::1", "']' is missing"),
            ("[::1]99", "'99' follows the bracket"),
            ("[x]:1", "'x' in brackets"),
            ("[10.0.0.1]:1", "not an IPv6 address"),
            ("fe80::1%eth0:5210", "[fe80::1%eth0]:5210"),
            ("fe80::g", "IPv6 address is wrong"),
            ("h:1:2", "second colon"),
            ("fe80::1%", "names no interface"),
            ("fe80::1%a234567890bcdefg", "names no interface"),
            ("fe80::1%a/b", "names no interface"),
            ("h%eth0", "interface of an IPv6 address"),
            ("10.0.0.1%eth0", "interface of an IPv6 address"),
        ] {
            let told = problem(typed);
            assert!(told.contains(said), "{typed}: {told}");
        }
    }

    #[test]
    fn what_was_read_is_printed_as_it_can_be_read_again() {
        for typed in [
            "dtn",
            "dtn:99",
            "::1",
            "[::1]:9",
            "fe80::1%lo",
            "[fe80::1%lo]:9",
        ] {
            assert_eq!(Endpoint::parse(typed).unwrap().to_string(), typed);
        }
    }

    #[test]
    fn a_zone_is_an_interface_of_this_host() {
        let at = |typed: &str| Endpoint::parse(typed).unwrap().resolve(7);
        // The first interface of every namespace.
        for (typed, port) in [("fe80::1%lo", 7), ("[fe80::1%lo]:9", 9), ("fe80::1%1", 7)] {
            let wanted = SocketAddrV6::new("fe80::1".parse().unwrap(), port, 0, 1);
            assert_eq!(at(typed).unwrap(), [wanted.into()], "{typed}");
        }
        let error = at("fe80::1%no-such").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("no interface 'no-such'"));
    }

    #[test]
    fn only_addresses_of_one_link_want_an_interface() {
        let said = |text: &str| without_interface(text.parse().unwrap());
        let told = said("[fe80::1]:1").unwrap();
        assert!(told.starts_with("fe80::1 is link-local: name the interface, such as fe80::1%"));
        for fine in ["[fe80::1%2]:1", "[fd00::1]:1", "169.254.0.1:1", "[::]:1"] {
            assert_eq!(said(fine), None, "{fine}");
        }
    }

    #[test]
    fn addresses_of_this_host_take_no_name_and_say_whether_a_port_goes_with_them() {
        let listens = |typed: &str| listening(typed, 5).map(|at| at.to_string());
        assert_eq!(listens("127.0.0.1").as_deref(), Ok("127.0.0.1:5"));
        assert_eq!(listens("[::]:0").as_deref(), Ok("[::]:0"));
        assert_eq!(listens("[fe80::1%lo]:6").as_deref(), Ok("[fe80::1%1]:6"));
        for wrong in ["far.example.org", "1.2.3.4:99999", "fe80::1:2:3:4:5:6:7:8"] {
            assert!(listens(wrong).is_err(), "{wrong}");
        }
        // No interface has it, so which one was meant cannot be known.
        assert!(listens("fe80::dead").unwrap_err().contains("link-local"));
        let from = |typed: &str| source(typed).map(|at| at.to_string());
        assert_eq!(from("fe80::1%lo").as_deref(), Ok("[fe80::1%1]:0"));
        assert!(
            from("127.0.0.1:7")
                .unwrap_err()
                .contains("without the port 7")
        );
        assert!(with_port("127.0.0.1").unwrap_err().contains("a port after"));
        assert!(with_port("far:9").unwrap_err().contains("not a name"));
        assert!(with_port("[::1]:9").is_ok());
    }
}
