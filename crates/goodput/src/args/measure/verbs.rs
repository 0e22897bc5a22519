//! What `--transport verbs-…` asks for: which queue pairs carry messages, and by which RDMA port.

use measure::{RdmaChoice, Verbs};

use super::{ApproachArgs, MeasureArgs, TestArgs, TransportArg};
use fault::Failure;
use job::target::Target;

/// Verbs that are asked for, and what remains of the flags without them.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    /// `None` where messages go over TCP.
    pub(super) verbs: Option<Verbs>,
    pub(super) rdma: RdmaChoice,
    /// Without the device, where it is none that connections can leave by.
    pub(super) approach: ApproachArgs,
    /// Without the transport, where it is one of these.
    pub(super) test: TestArgs,
}

impl Wish {
    /// What the flags say; `devices` are the names of this host's RDMA devices.
    pub(super) fn of(
        args: &MeasureArgs,
        target: &Target,
        devices: &[String],
    ) -> Result<Self, Failure> {
        let mut wish = Self {
            verbs: args.test.transport.and_then(TransportArg::verbs),
            rdma: RdmaChoice::default(),
            approach: args.transfer.approach.clone(),
            test: args.test.clone(),
        };
        let Some(verbs) = wish.verbs else {
            return Ok(wish);
        };
        let name = verbs.name();
        let refuse = |text: String| Err(Failure::usage(text));
        if !matches!(target, Target::Host(_)) {
            return refuse(format!(
                "--transport {name} wants `goodput serve` on a far host: a lab has no RDMA device, and \
                 iperf3 no verbs"
            ));
        }
        if wish.test.udp.is_some() {
            return refuse("--udp goes with --transport udp only".to_owned());
        }
        wish.test.transport = None;
        if let Some(typed) = wish.approach.device.clone() {
            match device(&typed, devices) {
                Some(choice) => {
                    wish.rdma = choice;
                    wish.approach.device = None;
                }
                None => wish.rdma.interface = Some(typed),
            }
        }
        Ok(wish)
    }
}

impl TransportArg {
    /// The queue pairs that it stands for.
    const fn verbs(self) -> Option<Verbs> {
        match self {
            Self::VerbsRc => Some(Verbs::Rc),
            Self::VerbsUc => Some(Verbs::Uc),
            Self::VerbsUd => Some(Verbs::Ud),
            _ => None,
        }
    }
}

/// `mlx5_0`, `mlx5_0:1` or `mlx5_0:1:3`, if it is a device, with its port and GID index.
fn device(typed: &str, devices: &[String]) -> Option<RdmaChoice> {
    let mut parts = typed.split(':');
    let name = parts.next()?.to_owned();
    let mut number = || parts.next().map(str::parse::<u8>).transpose().ok();
    let (port, gid_index) = (number()?, number()?);
    let whole = parts.next().is_none() && (devices.contains(&name) || port.is_some());
    whole.then_some(RdmaChoice {
        device: Some(name),
        port,
        gid_index,
        interface: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_with_its_port_and_gid() {
        let devices = ["mlx5_0".to_owned()];
        let read = |typed| device(typed, &devices);
        let choice = |port, gid_index| {
            Some(RdmaChoice {
                device: Some("mlx5_0".to_owned()),
                port,
                gid_index,
                interface: None,
            })
        };
        assert_eq!(read("mlx5_0"), choice(None, None));
        assert_eq!(read("mlx5_0:2"), choice(Some(2), None));
        assert_eq!(read("mlx5_0:1:3"), choice(Some(1), Some(3)));
        for interface in ["eth0", "mlx5_0:x", "mlx5_0:1:2:3", "mlx5_0:256", ""] {
            assert_eq!(read(interface), None, "{interface}");
        }
        // Nothing but an RDMA device has ports, so that a wrong name is told by whoever looks for it.
        assert!(read("mlx5_9:1").is_some());
    }
}
