//! A lab inside a host of another: its path is put in front of the outer one.
//!
//! The outer host's interface becomes the far end. What it was configured with (addresses, hardware
//! address, MTU, routes, neighbours) is the near host's for as long as the lab is up, so that the far
//! hosts of the outer lab are reached by the same addresses and delays add up. The outer host itself
//! has no network meanwhile. At the end, also that by SIGTERM, everything is put back; after kill -9
//! it is not, and the outer lab must be started again.

use fault::Failure;
use sys::interface::Configuration;
use sys::netlink::Netlink;

use crate::lab::Lab;
use crate::outside::Note;
use crate::path::{HostSpec, PathFile};

/// The interface of the host that this process is in.
#[derive(Debug)]
pub struct Outer {
    configuration: Configuration,
    /// Once the configuration was taken off: who is told if it cannot be put back.
    taken: Option<Note>,
}

impl Outer {
    /// `None` outside of labs.
    pub fn here() -> Result<Option<Self>, Failure> {
        let in_lab = std::env::var_os("GOODPUT_LAB").is_some();
        let has_interface = || {
            Netlink::open()
                .and_then(|mut n| n.index_of(INTERFACE))
                .is_ok()
        };
        if !in_lab || !has_interface() {
            return Ok(None);
        }
        let configuration = Configuration::read(INTERFACE).map_err(Failure::here)?;
        if configuration.address4().is_none() {
            return Err(Failure::usage(format!(
                "{INTERFACE} of this host has no address: another `goodput lab shell` has put its \
                 path in front of it; start this one inside that"
            )));
        }
        Ok(Some(Self {
            configuration,
            taken: None,
        }))
    }

    /// The interface's MTU, which both ends of a path in front of it must have.
    pub fn mtu_bytes(&self) -> u32 {
        self.configuration.mtu_bytes()
    }

    /// Makes the interface the far end of `path`, and the near host what this host has been. A path
    /// that comes of flags says nothing of the near host's TCP, which is then this host's.
    pub fn put_behind(&self, path: &mut PathFile, by_flags: bool) -> Result<(), Failure> {
        let network = &mut path.network;
        if network.hosts.len() != 2 || !network.routers.is_empty() {
            return Err(Failure::usage(
                "inside a lab only a path of two hosts without routers can be put in front of it",
            ));
        }
        let mtu_bytes = self.configuration.mtu_bytes();
        network.hosts[path.transfer.to].interface = Some(INTERFACE.to_owned());
        let near = &mut network.hosts[path.transfer.from];
        if near.interface.is_some() || by_flags && near.mtu_bytes != mtu_bytes {
            return Err(Failure::usage(format!(
                "inside a lab the near host has the MTU of this one, {mtu_bytes} bytes"
            )));
        }
        near.mtu_bytes = mtu_bytes;
        near.mac.0 = self.configuration.mac();
        if let Some((address, bits)) = self.configuration.address4() {
            (near.address4, near.prefix4) = (address, bits);
        }
        if let Some((address, bits)) = self.configuration.address6() {
            (near.address6, near.prefix6) = (address, bits);
        }
        if by_flags {
            inherit_tcp(near);
        }
        Ok(())
    }

    /// Takes the configuration off the interface. It is put back when this is dropped;
    /// where that fails, `note` is told.
    pub(crate) fn take(mut self, note: Note) -> Result<Self, Failure> {
        self.taken = Some(note);
        self.configuration
            .take_off(INTERFACE)
            .map_err(|e| Failure::here(format!("taking the addresses off {INTERFACE}: {e}")))?;
        Ok(self)
    }

    /// Gives the lab's near host what the interface had beyond addresses.
    pub(crate) fn give_to(&self, lab: &Lab) -> Result<(), Failure> {
        lab.near()
            .run(|| self.configuration.put_on(INTERFACE))?
            .map_err(|e| Failure::here(format!("giving the near host this host's routes: {e}")))
    }
}

impl Drop for Outer {
    fn drop(&mut self) {
        let Some(note) = self.taken else { return };
        if let Err(e) = self.configuration.put_on(INTERFACE) {
            note(&format!(
                "warning: {INTERFACE} of this host could not be given back all it had: {e}"
            ));
        }
    }
}

/// The near host's TCP is to be that of the host it stands for, as far as a lab sets it.
fn inherit_tcp(near: &mut HostSpec) {
    for (name, own) in [
        ("tcp_rmem", &mut near.tcp_rmem_bytes),
        ("tcp_wmem", &mut near.tcp_wmem_bytes),
    ] {
        if let Some(triplet) = sys::host::tcp_mem_triplet(name) {
            *own = triplet;
        }
    }
}

/// As labs name the interface of each host.
const INTERFACE: &str = "eth0";
