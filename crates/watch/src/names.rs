//! Names of hosts and ports as this host's own files have them. No name server is asked: looking on sends nothing.
//!
//! Sources: hosts(5), services(5).

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};

/// Names by address and by port.
#[derive(Debug, Default)]
pub struct Names {
    hosts: HashMap<IpAddr, String>,
    ports: HashMap<u16, String>,
}

impl Names {
    /// Reads `/etc/hosts` and `/etc/services`; a file that is not there has no names.
    pub fn read() -> Self {
        let file = |path| fs::read_to_string(path).unwrap_or_default();
        Self::of(&file("/etc/hosts"), &file("/etc/services"))
    }

    fn of(hosts: &str, services: &str) -> Self {
        let lines = |text: &str| -> Vec<Vec<String>> {
            let plain = text
                .lines()
                .map(|l| l.split('#').next().unwrap_or_default());
            let words = plain.map(|l| l.split_whitespace().map(str::to_owned).collect());
            words.take(LINES_MAX).collect()
        };
        let mut names = Self::default();
        for words in lines(hosts) {
            if let [address, name, ..] = &words[..]
                && let Ok(address) = address.parse()
            {
                names.hosts.entry(address).or_insert_with(|| name.clone());
            }
        }
        for words in lines(services) {
            if let [name, port, ..] = &words[..]
                && let Some(port) = port.strip_suffix("/tcp").and_then(|p| p.parse().ok())
            {
                names.ports.entry(port).or_insert_with(|| name.clone());
            }
        }
        names
    }

    /// An end of a connection, with names where there are some.
    pub fn end(&self, end: SocketAddr) -> String {
        let port = self.port(end.port());
        match (self.hosts.get(&end.ip()), end.ip()) {
            (Some(name), _) => format!("{name}:{port}"),
            (None, IpAddr::V4(ip)) => format!("{ip}:{port}"),
            (None, IpAddr::V6(ip)) => format!("[{ip}]:{port}"),
        }
    }

    /// A port by its name, or its number.
    pub fn port(&self, port: u16) -> String {
        self.ports
            .get(&port)
            .cloned()
            .unwrap_or_else(|| port.to_string())
    }

    /// A host by its name, or its address.
    pub fn host(&self, host: IpAddr) -> String {
        self.hosts
            .get(&host)
            .cloned()
            .unwrap_or_else(|| host.to_string())
    }
}

const LINES_MAX: usize = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_of_a_host_and_of_a_tcp_port_counts() {
        let names = Names::of(
            "# comment\n10.0.0.1 far far.example.org\n10.0.0.1 other\n::1 localhost # own\nbroken",
            "ssh 22/tcp\nssh 22/udp\ndomain 53/udp\nx\n",
        );
        let end = |text: &str| names.end(text.parse().unwrap());
        assert_eq!(end("10.0.0.1:22"), "far:ssh");
        assert_eq!(end("[::1]:53"), "localhost:53");
        assert_eq!(end("10.0.0.2:22"), "10.0.0.2:ssh");
        assert_eq!(end("[::2]:1"), "[::2]:1");
        assert_eq!(
            Names::default().host("10.0.0.1".parse().unwrap()),
            "10.0.0.1"
        );
    }
}
