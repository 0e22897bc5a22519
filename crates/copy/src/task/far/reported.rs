//! Addresses that the other host of a copy reports: which of them this host connects to.
//!
//! A link proves both ends before it carries anything, but its first bytes go to whatever listens there. A hostile host
//! could name a service of this host, or one that only this host reaches, and see by its answers what is open. So only
//! addresses that the user named, and ordinary ones of another host, are connected to, at one port. A name that resolves
//! to no address is an alias of ssh's: then what the host reports is all there is.

use std::net::IpAddr;

/// What the user named, and what this host is.
#[derive(Debug, Default)]
pub(super) struct Reported {
    /// Addresses of the host's name, and of `--addresses`.
    pub(super) named: Vec<IpAddr>,
    /// Those of this host.
    pub(super) own: Vec<IpAddr>,
    /// What `--port` says; 0 for any.
    pub(super) port: u16,
}

impl Reported {
    /// Why this host connects to that port at no address.
    pub(super) fn wrong_port(&self, port: u16) -> Option<String> {
        let is_asked = match self.port {
            0 => port >= UNPRIVILEGED,
            asked => port == asked,
        };
        (!is_asked).then(|| format!("it reports port {port}, which it was not asked to listen on"))
    }

    /// Why this host does not connect to that address; `None` where it may.
    pub(super) fn wrong_address(&self, ip: IpAddr) -> Option<String> {
        let ip = ip.to_canonical();
        let named: Vec<IpAddr> = self.named.iter().map(IpAddr::to_canonical).collect();
        if named.contains(&ip) {
            return None;
        }
        if !is_of_one_host(ip) {
            return Some(format!(
                "it reports {ip}, which is link-local or no host's address"
            ));
        }
        // Named otherwise where the copy is from this host to itself.
        let is_itself = named.iter().any(|named| is_own(*named, &self.own));
        let is_own = is_own(ip, &self.own) && !is_itself;
        is_own.then(|| format!("it reports {ip}, an address of this host"))
    }
}

/// Of the addresses that a name resolved to, those that are believed. Whoever owns a name's zone can have it mean this host
/// or a link's (DNS rebinding), so that only an address, this host's own name, a name without a dot and `localhost` (RFC 6761)
/// may mean this host, and only these and names of the link (`.local`, RFC 6762) link-local addresses.
pub(super) fn believed(name: &str, this_host: &str, own: &[IpAddr], ip: IpAddr) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let this_host = this_host.to_ascii_lowercase();
    let is_of_this_host = name.strip_prefix(&this_host);
    if name.parse::<IpAddr>().is_ok()
        || name.contains(':')
        || !name.contains('.')
        || name.ends_with(".localhost")
        || is_of_this_host.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    {
        return true;
    }
    let ip = ip.to_canonical();
    let is_of_link = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !is_own(ip, own) && (is_of_one_host(ip) || (is_of_link && name.ends_with(".local")))
}

fn is_own(ip: IpAddr, own: &[IpAddr]) -> bool {
    ip.is_loopback() || own.contains(&ip)
}

/// One that other hosts than those of a link may reach, or that of a host itself.
fn is_of_one_host(ip: IpAddr) -> bool {
    match ip {
        // 0.0.0.0/8 is "this network" (RFC 6890).
        IpAddr::V4(v4) => {
            v4.octets()[0] != 0 && !v4.is_link_local() && !v4.is_multicast() && !v4.is_broadcast()
        }
        IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_unicast_link_local() && !v6.is_multicast(),
    }
}

/// Ports below are those of services (RFC 6335, system ports); no kernel gives them to a listener that takes any port.
const UNPRIVILEGED: u16 = 1024;

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn refuses(named: &[&str], port: u16, at: &str) -> bool {
        let ips = |all: &[&str]| all.iter().map(|ip| ip.parse().unwrap()).collect();
        let reported = Reported {
            named: ips(named),
            own: ips(&["127.0.0.1", "::1", "192.0.2.1", "2001:db8::1"]),
            port,
        };
        let at: SocketAddr = at.parse().unwrap();
        reported.wrong_port(at.port()).is_some() || reported.wrong_address(at.ip()).is_some()
    }

    #[test]
    fn an_address_of_another_host_is_connected_to_and_no_special_one() {
        for named in [&[][..], &["198.51.100.7"]] {
            for at in [
                "198.51.100.7:40000",
                "10.0.0.5:40000",
                "[2001:db8::7]:40000",
            ] {
                assert!(!refuses(named, 0, at), "{at}");
            }
            for ip in [
                "127.0.0.1",
                "127.9.9.9",
                "[::1]",
                "[::ffff:127.0.0.1]",
                "192.0.2.1",
                "[::ffff:192.0.2.1]",
                "[2001:db8::1]",
                "0.0.0.0",
                "0.1.2.3",
                "[::]",
                "[::ffff:0.0.0.0]",
                "169.254.169.254",
                "[fe80::1]",
                "224.0.0.1",
                "[ff02::1]",
                "255.255.255.255",
            ] {
                assert!(refuses(named, 0, &format!("{ip}:40000")), "{ip}");
            }
        }
    }

    #[test]
    fn what_the_user_named_is_connected_to() {
        for (named, at) in [
            ("127.0.0.1", "127.0.0.1:40000"),
            ("127.0.0.1", "[::ffff:127.0.0.1]:40000"),
            ("fe80::7", "[fe80::7]:40000"),
            ("169.254.0.7", "169.254.0.7:40000"),
            // This host by another of its addresses.
            ("127.0.1.1", "127.0.0.1:40000"),
            ("::1", "192.0.2.1:40000"),
            ("192.0.2.1", "127.0.0.1:40000"),
        ] {
            assert!(!refuses(&[named], 0, at), "{named} {at}");
        }
        assert!(refuses(&["127.0.0.1"], 0, "169.254.169.254:40000"));
    }

    #[test]
    fn a_name_of_another_zone_does_not_mean_this_host() {
        let own = ["192.0.2.1".parse().unwrap()];
        let believes = |name: &str, ip: &str| believed(name, "myhost", &own, ip.parse().unwrap());
        for ip in [
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "192.0.2.1",
            "169.254.169.254",
            "fe80::1",
            "0.0.0.0",
        ] {
            assert!(!believes("rebinds.example.org", ip), "{ip}");
            assert!(!believes("myhostile.example.org.", ip), "{ip}");
            for name in ["localhost", "alias", "myhost", "MyHost.example.org", ip] {
                assert!(believes(name, ip), "{name} {ip}");
            }
        }
        assert!(believes("dtn.example.org", "198.51.100.7"));
        assert!(believes("dgx.local", "169.254.3.4") && believes("dgx.local", "fe80::7"));
        assert!(!believes("dgx.local", "127.0.0.1"));
    }

    #[test]
    fn the_port_is_the_one_that_was_asked_for_or_no_services() {
        let other = &["198.51.100.7"][..];
        for (asked, port, is_refused) in [
            (0, 22, true),
            (0, 1023, true),
            (0, 0, true),
            (0, 1024, false),
            (443, 443, false),
            (5220, 6379, true),
        ] {
            let at = format!("198.51.100.7:{port}");
            assert_eq!(refuses(other, asked, &at), is_refused, "{asked} {port}");
        }
    }
}
