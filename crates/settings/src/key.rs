//! What can be set, by a name that a journal can hold.

use std::fmt;
use std::str::FromStr;

/// One value of a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A sysctl by its name, such as `net.ipv4.tcp_rmem`.
    Sysctl(String),
    /// A file below /sys or /proc/irq, by its path.
    File(String),
    /// Descriptors of a device's ring.
    Ring(String, Side),
    /// An offload of a device: `tso`, `gso`, `gro`, `sg`, `tx` or `lro`; `on` or `off`.
    Offload(String, String),
    /// Whether a device adapts its interrupt rate to the load; `on` or `off`.
    AdaptiveRx(String),
    /// The root queueing discipline of a device; `default` is what the kernel gives it.
    Qdisc(String),
}

/// A direction of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// Receive.
    Rx,
    /// Transmit.
    Tx,
}

/// Offloads by ethtool's short names.
pub(crate) const OFFLOADS: [&str; 6] = ["sg", "tx", "tso", "gso", "gro", "lro"];

impl Key {
    /// A sysctl.
    pub fn sysctl(name: &str) -> Self {
        Self::Sysctl(name.to_owned())
    }

    /// The name, where it is a sysctl.
    pub fn as_sysctl(&self) -> Option<&str> {
        match self {
            Self::Sysctl(name) => Some(name),
            _ => None,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sysctl(name) | Self::File(name) => f.write_str(name),
            Self::Ring(device, Side::Rx) => write!(f, "ring:{device}/rx"),
            Self::Ring(device, Side::Tx) => write!(f, "ring:{device}/tx"),
            Self::Offload(device, what) => write!(f, "offload:{device}/{what}"),
            Self::AdaptiveRx(device) => write!(f, "coalesce:{device}/adaptive-rx"),
            Self::Qdisc(device) => write!(f, "qdisc:{device}"),
        }
    }
}

impl FromStr for Key {
    type Err = String;

    /// Reads what [`Display`](fmt::Display) writes; a journal may have been written by anybody who may write there, so names and
    /// paths are checked here.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || format!("'{text}' names nothing that can be set");
        let found = match text.split_once(':') {
            Some(("ring", rest)) => match rest.rsplit_once('/') {
                Some((device, "rx")) => Self::Ring(device.to_owned(), Side::Rx),
                Some((device, "tx")) => Self::Ring(device.to_owned(), Side::Tx),
                _ => return Err(refused()),
            },
            Some(("offload", rest)) => match rest.rsplit_once('/') {
                Some((device, what)) if OFFLOADS.contains(&what) => {
                    Self::Offload(device.to_owned(), what.to_owned())
                }
                _ => return Err(refused()),
            },
            Some(("coalesce", rest)) => match rest.rsplit_once('/') {
                Some((device, "adaptive-rx")) => Self::AdaptiveRx(device.to_owned()),
                _ => return Err(refused()),
            },
            Some(("qdisc", device)) => Self::Qdisc(device.to_owned()),
            _ if text.starts_with('/') => Self::File(text.to_owned()),
            _ => Self::Sysctl(text.to_owned()),
        };
        let fine = match &found {
            Self::Sysctl(name) => is_sysctl(name),
            Self::File(path) => is_path(path),
            Self::Ring(device, _)
            | Self::Offload(device, _)
            | Self::AdaptiveRx(device)
            | Self::Qdisc(device) => is_device(device),
        };
        if fine { Ok(found) } else { Err(refused()) }
    }
}

/// Below /proc/sys and nowhere else.
fn is_sysctl(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "._-/@:".contains(c);
    name.contains('.') && name.len() <= 200 && name.chars().all(legal) && !climbs(name)
}

fn is_path(path: &str) -> bool {
    let below = ["/sys/", "/proc/irq/"]
        .iter()
        .any(|at| path.starts_with(at));
    below && path.len() <= 300 && path.chars().all(|c| c.is_ascii_graphic()) && !climbs(path)
}

fn climbs(path: &str) -> bool {
    path.split('/').any(|part| part == "." || part == "..")
}

/// net/core/dev.c, `dev_valid_name`: 1 to 15 bytes, no slash, no blank, not `.` or `..`.
fn is_device(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_graphic() && c != '/' && c != ':';
    (1..=15).contains(&name.len()) && name.chars().all(legal) && !climbs(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_journal_holds_reads_back_and_nothing_else_does() {
        for text in [
            "net.ipv4.tcp_rmem",
            "net.ipv4.conf.eth0/100.rp_filter",
            "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "/proc/irq/24/smp_affinity_list",
            "ring:eth0/rx",
            "ring:eth0/tx",
            "offload:eth0/gro",
            "coalesce:eth0/adaptive-rx",
            "qdisc:eth0",
        ] {
            assert_eq!(text.parse::<Key>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "rmem",
            "/etc/passwd",
            "/sys/../etc/passwd",
            "/proc/irq/../../etc/passwd",
            "net.ipv4/../../../etc/passwd",
            "ring:eth0",
            "ring:eth0/up",
            "offload:eth0/magic",
            "qdisc:",
            "qdisc:a-name-of-16-char",
            "qdisc:..",
            "coalesce:eth0/rx",
            "net.ipv4.tcp rmem",
        ] {
            assert!(text.parse::<Key>().is_err(), "{text}");
        }
    }
}
