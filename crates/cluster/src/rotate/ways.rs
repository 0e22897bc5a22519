//! Which links each pair crosses, where a path file says so.

use lab::PathFile;
use lab::path::Node;
use run::model::{Rotate, RotateRound};
use units::Rate;

use crate::pairs::{self, Crowd};

/// The ways of a lab between its ranks.
#[derive(Debug)]
pub(super) struct Ways {
    /// Each link's two directions, one after the other.
    pub(super) links: Vec<Directed>,
    /// By sender and receiver, links by number.
    routes: Vec<Vec<Vec<usize>>>,
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub(super) struct Directed {
    pub(super) name: String,
    pub(super) from: String,
    pub(super) to: String,
    /// Whether one of its ends is a host.
    pub(super) to_host: bool,
    pub(super) rate: Option<Rate>,
    /// TCP payload that it carries, bytes a second; `f64::INFINITY` without a rate.
    pub(super) capacity: f64,
}

impl Ways {
    /// Of ranks that are these hosts of the file.
    pub(super) fn of(path: &PathFile, hosts: &[usize]) -> Self {
        let network = &path.network;
        let directed = |link: &lab::path::LinkSpec, forward: bool| {
            let [first, second] = link.between;
            let (from, to) = if forward {
                (first, second)
            } else {
                (second, first)
            };
            let rate = link.rate(forward);
            let mtu = link.mtu_bytes;
            let wire = link
                .direction(forward)
                .medium
                .wire_bytes(mtu + ETHERNET_HEADER);
            let payload = f64::from(mtu.saturating_sub(TCP_IP_HEADERS)) / f64::from(wire.max(1));
            Directed {
                name: link.name.clone(),
                from: network.name(from).to_owned(),
                to: network.name(to).to_owned(),
                to_host: [from, to].iter().any(|node| matches!(node, Node::Host(_))),
                rate,
                capacity: rate.map_or(f64::INFINITY, |rate| {
                    rate.as_bits_per_second() as f64 / 8.0 * payload
                }),
            }
        };
        let links = network.links.iter();
        let links = links.flat_map(|link| [directed(link, true), directed(link, false)]);
        let route = |from: usize, to: usize| {
            let hops = if from == to {
                None
            } else {
                network.walk(from, to)
            };
            let hops = hops.unwrap_or_default().into_iter();
            hops.map(|hop| 2 * hop.link + usize::from(!hop.forward))
                .collect()
        };
        let from = |&from: &usize| hosts.iter().map(|&to| route(from, to)).collect();
        Self {
            links: links.collect(),
            routes: hosts.iter().map(from).collect(),
        }
    }

    /// Links from one rank to another.
    pub(super) fn route(&self, from: u32, to: u32) -> &[usize] {
        let at = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        let row = self.routes.get(at(from));
        row.and_then(|row| row.get(at(to)))
            .map_or(&[], Vec::as_slice)
    }

    fn capacities(&self) -> Vec<f64> {
        self.links.iter().map(|l| l.capacity).collect()
    }

    /// Fills in what each flow would get where all that share a link share it evenly.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, and a rate is not negative"
    )]
    pub(super) fn fair_shares(&self, rotate: &mut Rotate) {
        let capacity = self.capacities();
        for round in &mut rotate.rounds {
            let routes: Vec<Vec<usize>> = self.routes_of(round).collect();
            let shares = pairs::fair(&routes, &capacity);
            for (flow, share) in round.flows.iter_mut().zip(shares) {
                let known = share.is_finite() && flow.latency_ns.is_none();
                flow.fair_bits_per_second = known.then_some((share * 8.0).round() as u64);
            }
        }
    }

    fn routes_of<'a>(&'a self, round: &'a RotateRound) -> impl Iterator<Item = Vec<usize>> + 'a {
        let each = round.flows.iter();
        each.map(|f| self.route(f.from, f.to).to_vec())
    }

    /// Links that held flows of these rounds back since others crossed them too; `alone` in bytes a second.
    pub(super) fn crowds(&self, rounds: &[&RotateRound], alone: f64) -> Vec<Crowd> {
        let got = |f: &run::model::RotateFlow| f.bits_per_second.unwrap_or(0) as f64 / 8.0;
        let rows = rounds.iter().map(|round| {
            let routes = self.routes_of(round);
            routes.zip(round.flows.iter().map(got)).collect()
        });
        pairs::crowds(&rows.collect::<Vec<_>>(), &self.capacities(), alone)
    }

    /// Flows of a round on a link.
    pub(super) fn on(&self, round: &RotateRound, link: usize) -> Vec<(u32, u32)> {
        let flows = round.flows.iter().map(|f| (f.from, f.to));
        flows
            .filter(|&(from, to)| self.route(from, to).contains(&link))
            .collect()
    }

    /// Other ways out of the node that sends on a link, to what is no host.
    pub(super) fn beside(&self, link: usize) -> Vec<usize> {
        let own = &self.links[link];
        let other = |(n, l): (usize, &Directed)| {
            (n != link && l.from == own.from && !l.to_host && l.rate.is_some()).then_some(n)
        };
        self.links.iter().enumerate().filter_map(other).collect()
    }
}

const ETHERNET_HEADER: u32 = 14;
/// IPv4 and TCP with time stamps.
const TCP_IP_HEADERS: u32 = 52;
