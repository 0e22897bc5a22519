//! Whether both directions of a connection pass here, as far as this machine's routes tell.

use std::net::IpAddr;

use sys::host;
use sys::netlink::Netlink;

use super::{Checked, List};
use crate::config::{Config, Mode, Zone};

/// Looks which way packets take to a host inside and to one outside, in the network namespace of the calling
/// thread. Routes of other machines cannot be seen from here.
pub fn ways(config: &Config, inside: Option<IpAddr>, outside: Option<IpAddr>) -> Vec<Checked> {
    let mut list = List::default();
    if config.mode == Mode::Transparent {
        for (zone, host) in Zone::BOTH.into_iter().zip([inside, outside]) {
            if let Some(host) = host {
                way(&mut list, config, zone, host);
            }
        }
    }
    list.0
}

fn way(list: &mut List, config: &Config, zone: Zone, to: IpAddr) {
    let side = zone.name();
    let towards = Netlink::open().and_then(|mut n| {
        let index = n.interface_towards(to)?;
        let of = |zone: Zone, n: &mut Netlink| {
            let names = &config.zone(zone).interfaces;
            let mut names = names.iter();
            names
                .find(|name| n.index_of(name).is_ok_and(|i| i == index))
                .cloned()
        };
        Ok((of(zone, &mut n), of(zone.other(), &mut n)))
    });
    match towards {
        Err(e) => list.poor(
            &format!("there is no way to {to}: {e}"),
            "without one none of its connections can be split or passed on",
        ),
        Ok((Some(name), _)) => {
            list.fine(&format!("packets to {to} leave by {name}, which is {side}"));
            if to.is_ipv4() && strict(&name) {
                list.fine(&format!(
                    "{name} drops what comes from where it would not send to (rp_filter)"
                ));
            }
        }
        Ok((None, Some(name))) => list.poor(
            &format!("packets to {to} leave by {name}, which is not {side}"),
            &format!(
                "give it a way that is {side}, or pass its connections unsplit (action = \"bypass\"): \
                 what comes from there would be answered elsewhere"
            ),
        ),
        Ok((None, None)) => list.poor(
            &format!("packets to {to} leave by an interface of neither side"),
            &format!("name that interface as one that is {side}, or change the route"),
        ),
    }
}

/// The kernel goes by the larger of the two (ip-sysctl.rst).
fn strict(name: &str) -> bool {
    let filter = |scope: &str| -> u8 {
        let text = host::read_sysctl(&format!("net.ipv4.conf.{scope}.rp_filter"));
        text.ok().and_then(|t| t.parse().ok()).unwrap_or(0)
    };
    filter("all").max(filter(name)) == 1
}
