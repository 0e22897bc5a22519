//! What parts are called in messages.

use crate::spec::{FabricSpec, Node};

/// Names of parts, and numbers of ports as they are printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    hosts: Vec<String>,
    switches: Vec<String>,
    /// Of each link's ends.
    ports: Vec<[u32; 2]>,
}

impl Names {
    /// By number of host, switch and link.
    pub const fn new(hosts: Vec<String>, switches: Vec<String>, ports: Vec<[u32; 2]>) -> Self {
        Self {
            hosts,
            switches,
            ports,
        }
    }

    /// Of hosts.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Of switches.
    pub fn switches(&self) -> &[String] {
        &self.switches
    }

    /// A part: `leaf 3`. Its number, where it has no name.
    pub fn node(&self, node: Node) -> String {
        let (of, n, what) = match node {
            Node::Host(n) => (&self.hosts, n, "host"),
            Node::Switch(n) => (&self.switches, n, "switch"),
        };
        let named = of.get(n as usize).cloned();
        named.unwrap_or_else(|| format!("{what} {n}"))
    }

    /// An end of a link, 0 or 1: `leaf 3 port 14`; a host has one port.
    ///
    /// # Panics
    /// When there is no such link; so do the others.
    pub fn end(&self, spec: &FabricSpec, link: u32, end: usize) -> String {
        let node = spec.links[link as usize].ends[end];
        let name = self.node(node);
        match (node, self.ports.get(link as usize)) {
            (Node::Switch(_), Some(ports)) => format!("{name} port {}", ports[end]),
            _ => name,
        }
    }

    /// Port numbers of a link's ends, as they are printed.
    pub(crate) fn ports(&self, link: usize) -> Option<[u32; 2]> {
        self.ports.get(link).copied()
    }

    /// A link's direction, `link * 2 + way`: `leaf 3 port 14 -> spine 1 port 4`.
    pub fn channel(&self, spec: &FabricSpec, channel: u32) -> String {
        let (link, way) = (channel / 2, channel as usize % 2);
        let [from, to] = [way, 1 - way].map(|end| self.end(spec, link, end));
        format!("{from} -> {to}")
    }

    /// A cycle of waits, a line each, and what it means.
    pub fn cycle(&self, spec: &FabricSpec, cycle: &crate::route::Cycle) -> String {
        let mut text = format!(
            "{} buffers can wait for each other for ever:",
            cycle.waits.len()
        );
        for wait in &cycle.waits {
            let channel = self.channel(spec, wait.channel);
            text.push_str(&format!("\n  {channel}, lane {}", wait.lane));
        }
        text
    }
}
