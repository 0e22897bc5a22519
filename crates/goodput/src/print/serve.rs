//! What `goodput serve` prints while it starts.

use std::net::IpAddr;

use doctor::serve::Event;

use crate::print::note;

/// The notes about a server and its clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Says {
    /// Clients need no token.
    pub(crate) is_open: bool,
    /// Clients may have the host connect to others.
    pub(crate) ranks: bool,
}

impl Says {
    /// Prints what happened, and once the server is ready, which clients it serves.
    pub(crate) fn say(self, event: Event) {
        self.lines(event).iter().for_each(note);
    }

    /// The notes on an event, one each.
    fn lines(self, event: Event) -> Vec<String> {
        match event {
            Event::Listens(local) => {
                vec![format!("serving on {local}; stop with Ctrl-C or SIGTERM")]
            }
            Event::ListensToo(also) => vec![format!("also serving iperf3 clients on {also}")],
            Event::Publishes(address) => vec![format!("metrics on http://{address}/metrics")],
            Event::Starts(local) => {
                let clients = if local.ip().is_loopback() {
                    "only this machine can connect: use --listen 0.0.0.0 for other machines"
                        .to_owned()
                } else if self.is_open {
                    format!(
                        "any host that reaches TCP port {} can measure: use --token-file to require \
                         a token",
                        local.port()
                    )
                } else {
                    "only clients with the token can measure; the traffic is not encrypted"
                        .to_owned()
                };
                let ranks = self.ranks.then(|| ranks_note(local.ip(), self.is_open));
                [clients].into_iter().chain(ranks).collect()
            }
            Event::Reflects(local) => vec![format!("reflecting STAMP probes on UDP {local}")],
        }
    }
}

/// What `--ranks` lets clients do, with a warning where any host can be one.
fn ranks_note(listening: IpAddr, open: bool) -> String {
    let may = "clients can make this host connect to other hosts, and send data to those that \
               serve with --ranks";
    match open && may_be_public(listening) {
        true => format!(
            "warning: {may}; without a token, any host that reaches the port is such a client: \
             use --token-file, or --listen with an address that only the cluster reaches"
        ),
        false => may.to_owned(),
    }
}

/// Whether hosts outside the site may reach it: not where it is loopback's, link-local or private (RFC 1918, RFC 4193).
fn may_be_public(ip: IpAddr) -> bool {
    !match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn ranks_without_a_token_on_a_public_address_print_a_warning() {
        let warned =
            |ip: &str, open| ranks_note(ip.parse().unwrap(), open).contains("--token-file");
        for public in [
            "0.0.0.0",
            "::",
            "203.0.113.1",
            "2001:db8::1",
            "::ffff:203.0.113.1",
        ] {
            assert!(warned(public, true) && !warned(public, false), "{public}");
        }
        for own in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.1",
            "169.254.1.1",
            "::1",
            "fd00::1",
            "fe80::1",
        ] {
            assert!(!warned(own, true), "{own}");
        }
        assert!(ranks_note([127, 0, 0, 1].into(), true).contains("other hosts"));
    }

    #[test]
    fn the_notes_of_a_server_as_text() {
        let all = |address: &str, is_open| {
            let local: SocketAddr = address.parse().unwrap();
            let says = Says {
                is_open,
                ranks: true,
            };
            let port = |port| SocketAddr::new(local.ip(), port);
            let events = [
                Event::Listens(local),
                Event::ListensToo(port(5201)),
                Event::Publishes(port(9100)),
                Event::Starts(local),
                Event::Reflects(port(862)),
            ];
            let lines = events.into_iter().flat_map(|event| says.lines(event));
            lines.collect::<Vec<_>>().join("\n")
        };
        // The notes are lines of a log: the terminal wraps them.
        let open = all("192.0.2.1:5210", true);
        let token = all("192.0.2.1:5210", false);
        let local = all("127.0.0.1:5210", true);
        insta::assert_snapshot!(format!(
            "open to all\n{open}\n\nwith a token\n{token}\n\non loopback\n{local}"
        ));
    }
}
