//! What a host has, as far as settings follow from it.

use std::collections::BTreeMap;

use units::{Bytes, Rate};

use crate::key::Key;

/// A host as /proc, /sys and its drivers describe it. What is absent was not there or could not be read.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Kernel version, such as (6, 18).
    pub kernel: (u32, u32),
    /// MemTotal.
    pub memory: Option<Bytes>,
    /// Bytes of a page; `tcp_mem` counts in these.
    pub page_bytes: u64,
    /// CPUs that are online.
    pub cpus: u32,
    /// The network namespace is the machine's first, whose values new namespaces copy and which alone has some of them.
    pub first_namespace: bool,
    /// The kernel has the queueing discipline fq, where that is known.
    pub has_fq: Option<bool>,
    /// Values by key.
    pub values: BTreeMap<Key, Value>,
    /// The interface that the path leaves by.
    pub device: Option<Device>,
    /// Who else writes a key, in words.
    pub writers: BTreeMap<Key, Vec<String>>,
}

/// A value as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// As read, white space at the ends cut.
    pub text: String,
    /// This process, or root in its place, could write it.
    pub writable: bool,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Name.
    pub name: String,
    /// Driver, where it tells.
    pub driver: Option<String>,
    /// Link speed, where the driver tells.
    pub speed: Option<Rate>,
    /// MTU in bytes; 0 when unknown.
    pub mtu_bytes: u32,
    /// The receive ring.
    pub rx_ring: Option<Ring>,
    /// The transmit ring.
    pub tx_ring: Option<Ring>,
    /// Kind of the root queueing discipline.
    pub qdisc: Option<String>,
    /// The kernel chose it: nobody configured it.
    pub qdisc_is_default: bool,
    /// Receive queues.
    pub rx_queues: Vec<RxQueue>,
    /// CPUs of each of its interrupts, as `/proc/irq/N/smp_affinity_list`, by N.
    pub interrupts: BTreeMap<u32, String>,
}

/// Descriptors of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Now.
    pub now: u32,
    /// The hardware's maximum.
    pub max: u32,
}

/// One receive queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RxQueue {
    /// Such as `rx-0`.
    pub name: String,
    /// The CPUs that RPS spreads to, a mask in hexadecimal; zeroes are none.
    pub rps_cpus: String,
}

impl Default for Facts {
    /// A kernel of today with one CPU, 16 GiB and no values.
    fn default() -> Self {
        Self {
            kernel: (6, 18),
            memory: Some(Bytes::new(16 << 30)),
            page_bytes: 4096,
            cpus: 1,
            first_namespace: true,
            has_fq: None,
            values: BTreeMap::new(),
            device: None,
            writers: BTreeMap::new(),
        }
    }
}

impl Facts {
    /// Has a sysctl hold a value that can be written.
    pub fn set(&mut self, name: &str, text: &str) {
        self.put(Key::sysctl(name), text, true);
    }

    /// Has a key hold a value.
    pub fn put(&mut self, key: Key, text: &str, writable: bool) {
        let text = text.to_owned();
        self.values.insert(key, Value { text, writable });
    }

    /// A sysctl's value.
    pub fn sysctl(&self, name: &str) -> Option<&str> {
        let value = self.values.get(&Key::sysctl(name))?;
        Some(value.text.as_str())
    }

    /// A sysctl that is one number.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.sysctl(name)?.parse().ok()
    }

    /// A sysctl of three numbers, none below zero.
    pub fn triple(&self, name: &str) -> Option<[u64; 3]> {
        let words = self.sysctl(name)?.split_whitespace();
        let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
        numbers?.try_into().ok()
    }
}
