//! A plan as the files of those who keep settings over a restart.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::str::FromStr;

use crate::key::{Key, Side};
use crate::plan::Plan;

/// Whose file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// sysctl.d(5).
    Sysctl,
    /// Tasks of Ansible's collection ansible.posix.
    Ansible,
    /// A NetworkManager keyfile, `nm-settings-keyfile(5)`.
    NmConnection,
    /// systemd.link(5).
    Link,
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "sysctl" => Ok(Self::Sysctl),
            "ansible" => Ok(Self::Ansible),
            "nmconnection" => Ok(Self::NmConnection),
            "link" => Ok(Self::Link),
            _ => Err(format!(
                "'{text}' is no layout; expected sysctl, ansible, nmconnection or link"
            )),
        }
    }
}

impl Layout {
    /// The plan's steps as far as this file can hold them; the others are named in comments.
    pub fn render(self, plan: &Plan) -> String {
        let steps = plan.steps.iter().map(|s| (&s.key, s.new.as_str()));
        let (text, left): (String, Vec<&Key>) = match self {
            Self::Sysctl => {
                let left = plan.steps.iter().map(|s| &s.key);
                let left = left.filter(|k| k.as_sysctl().is_none()).collect();
                (drop_in(steps, &for_what(plan)), left)
            }
            Self::Ansible => ansible(plan),
            Self::NmConnection => {
                keyfile(plan, "[ethtool]\n", "=true\n", "=false\n", nm_key, "ring-")
            }
            Self::Link => link(plan),
        };
        let mut text = text;
        if !left.is_empty() {
            let left: Vec<String> = left.iter().map(ToString::to_string).collect();
            let _ = writeln!(text, "# not in this layout: {}", left.join(", "));
        }
        text
    }
}

fn for_what(plan: &Plan) -> String {
    let request = &plan.request;
    format!(
        "for {} at {}, {} connection(s), {}",
        request.rate,
        request.rtt,
        request.connections,
        request.role.what()
    )
}

/// The sysctls of the steps as a file of /etc/sysctl.d. The file is the same for the same steps.
pub fn drop_in<'a>(steps: impl Iterator<Item = (&'a Key, &'a str)>, what: &str) -> String {
    let mut text = format!("# goodput tune, {what}; take it back with: goodput tune undo\n");
    for (key, new) in steps {
        if let Some(name) = key.as_sysctl() {
            // Dots within a part, as in interface names, are written as the kernel's path has them.
            let _ = writeln!(text, "{name} = {new}");
        }
    }
    text
}

fn ansible(plan: &Plan) -> (String, Vec<&Key>) {
    let mut text = format!("# goodput tune, {}\n", for_what(plan));
    let mut left = Vec::new();
    for step in &plan.steps {
        let Some(name) = step.key.as_sysctl() else {
            left.push(&step.key);
            continue;
        };
        let _ = write!(
            text,
            "- name: {name}\n  ansible.posix.sysctl:\n    name: {name}\n    value: \"{}\"\n    \
             sysctl_file: /etc/sysctl.d/99-zz-goodput.conf\n",
            step.new
        );
    }
    (text, left)
}

/// Names of NetworkManager's `ethtool` section.
fn nm_key(what: &str) -> String {
    match what {
        "tx" => "feature-tx-checksum-ip-generic".to_owned(),
        other => format!("feature-{other}"),
    }
}

fn keyfile<'p>(
    plan: &'p Plan,
    head: &str,
    on: &str,
    off: &str,
    feature: impl Fn(&str) -> String,
    ring: &str,
) -> (String, Vec<&'p Key>) {
    let mut text = format!("# goodput tune, {}\n{head}", for_what(plan));
    let mut left = Vec::new();
    for step in &plan.steps {
        match &step.key {
            Key::Ring(_, side) => {
                let side = if *side == Side::Rx { "rx" } else { "tx" };
                let _ = writeln!(text, "{ring}{side}={}", step.new);
            }
            Key::Offload(_, what) => {
                let state = if step.new == "on" { on } else { off };
                let _ = write!(text, "{}{state}", feature(what));
            }
            Key::AdaptiveRx(_) => {
                let state = if step.new == "on" { "1" } else { "0" };
                let _ = writeln!(text, "coalesce-adaptive-rx={state}");
            }
            key => left.push(key),
        }
    }
    (text, left)
}

fn link(plan: &Plan) -> (String, Vec<&Key>) {
    let names: BTreeMap<&str, &str> = BTreeMap::from([
        ("tso", "TCPSegmentationOffload"),
        ("gso", "GenericSegmentationOffload"),
        ("gro", "GenericReceiveOffload"),
        ("lro", "LargeReceiveOffload"),
        ("tx", "TransmitChecksumOffload"),
    ]);
    let mut device = None;
    let mut body = String::new();
    let mut left = Vec::new();
    for step in &plan.steps {
        let line = match &step.key {
            Key::Ring(name, side) => {
                device = Some(name);
                let side = if *side == Side::Rx { "Rx" } else { "Tx" };
                format!("{side}BufferSize={}", step.new)
            }
            Key::Offload(name, what) if names.contains_key(what.as_str()) => {
                device = Some(name);
                let state = if step.new == "on" { "yes" } else { "no" };
                format!("{}={state}", names[what.as_str()])
            }
            Key::AdaptiveRx(name) => {
                device = Some(name);
                let state = if step.new == "on" { "yes" } else { "no" };
                format!("UseAdaptiveRxCoalesce={state}")
            }
            key => {
                left.push(key);
                continue;
            }
        };
        let _ = writeln!(body, "{line}");
    }
    let mut text = format!("# goodput tune, {}\n", for_what(plan));
    if let Some(device) = device {
        let _ = write!(text, "[Match]\nOriginalName={device}\n\n[Link]\n{body}");
    }
    (text, left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Facts, Request, Ring, Role, derive};

    #[test]
    fn every_step_is_in_a_layout_or_named_as_left_out() {
        let mut facts = Facts::default();
        facts.set("net.ipv4.tcp_rmem", "4096 131072 6291456");
        facts.set("net.ipv4.tcp_mtu_probing", "0");
        facts.put(Key::Ring("eth0".to_owned(), Side::Rx), "256", true);
        facts.put(
            Key::Offload("eth0".to_owned(), "tso".to_owned()),
            "off",
            true,
        );
        facts.device = Some(Device {
            name: "eth0".to_owned(),
            driver: Some("ixgbe".to_owned()),
            rx_ring: Some(Ring {
                now: 256,
                max: 4096,
            }),
            ..Device::default()
        });
        let request = Request::new(
            "10Gb/s".parse().unwrap(),
            "85ms".parse().unwrap(),
            Role::Dtn,
        );
        let plan = derive(&request, &facts);
        let sysctl = Layout::Sysctl.render(&plan);
        assert_eq!(
            sysctl,
            "# goodput tune, for 10 Gb/s at 85 ms, 1 connection(s), data-transfer node; take it back with: goodput tune undo\n\
             net.ipv4.tcp_rmem = 4096 131072 356515840\nnet.ipv4.tcp_mtu_probing = 1\n\
             # not in this layout: offload:eth0/tso, ring:eth0/rx\n"
        );
        let link = Layout::Link.render(&plan);
        assert!(link.contains(
            "[Match]\nOriginalName=eth0\n\n[Link]\nTCPSegmentationOffload=yes\nRxBufferSize=4096\n"
        ));
        assert!(
            link.contains("# not in this layout: net.ipv4.tcp_rmem, net.ipv4.tcp_mtu_probing\n")
        );
        let nm = Layout::NmConnection.render(&plan);
        assert!(
            nm.contains("[ethtool]\nfeature-tso=true\nring-rx=4096\n"),
            "{nm}"
        );
        let ansible = Layout::Ansible.render(&plan);
        assert!(ansible.contains("    value: \"4096 131072 356515840\"\n"));
    }
}
