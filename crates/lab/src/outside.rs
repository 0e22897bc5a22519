//! `--outside`: this machine's own network behind the path.
//!
//! The far end of the path is one end of a veth pair; the other end is an interface of this machine,
//! the near host's gateway. The machine forwards for it and puts its own address in the place of the
//! near host's (masquerading, by a table of its own in nftables). IPv4 only.
//!
//! Where the machine forwarded nothing before, it forwards for labs alone: the table drops what
//! would be forwarded between others. Where it forwarded, its own rules decide as before.
//!
//! These are the only changes that a lab makes to the machine. Each is printed before it is made.
//! They are written down first, in a file that the running process holds locked, in a place that
//! does not hang on the environment: where nobody holds the lock any more, the next `goodput lab`
//! of root in this network namespace undoes what is left. Whoever writes such a file or undoes what
//! it says holds the lock of the directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use sys::interface;
use sys::netlink::{Mac, Netlink, VethEnd};
use sys::netns::NetNs;

use fault::Failure;

use crate::lab::Lab;
use crate::path::PathFile;
use crate::place;

/// What was or is to be changed.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
struct Changes {
    /// Of the process: names are made of it.
    number: u32,
    /// The network namespace that is changed: its inode.
    namespace: u64,
    /// net.ipv4.ip_forward was 0 before.
    forwarding_was_off: bool,
}

/// The machine behind the path, until this is dropped.
#[derive(Debug)]
pub(crate) struct Outside {
    changes: Changes,
    /// Where the record is.
    directory: PathBuf,
    record: PathBuf,
    /// Held for as long as the changes are in use.
    lock: File,
    note: Note,
}

/// Is told, in a line, what is about to be done to the machine.
pub type Note = fn(&str);

impl Outside {
    /// Makes the changes, each of which is `note`d, and the interface the far end of `path`.
    pub(crate) fn put_behind(path: &mut PathFile, note: Note) -> Result<Self, Failure> {
        if path.network.hosts.len() != 2 || !path.network.routers.is_empty() {
            return Err(Failure::usage(
                "--outside: expected a path of two hosts without routers",
            ));
        }
        nft(&["list", "tables"], "").map_err(|e| {
            Failure::here(format!(
                "--outside needs the nft program and nftables in the kernel: {e}; install nftables"
            ))
        })?;
        let outside = Self::recorded(note)?;
        outside.make()?;
        outside.join(path);
        Ok(outside)
    }

    /// Gives near and machine each other's hardware address: no question crosses the path.
    pub(crate) fn introduce(&self, lab: &Lab, path: &PathFile) -> Result<(), Failure> {
        let near = &path.network.hosts[path.transfer.from];
        let (changes, failed) = (&self.changes, |e| failed("adding a neighbour", &e));
        lab.near()
            .run(|| Netlink::open()?.add_neighbour("eth0", changes.gateway(), changes.mac()))?
            .map_err(failed)?;
        Netlink::open()
            .and_then(|mut n| n.add_neighbour(&changes.interface(), near.address4, near.mac.0))
            .map_err(failed)
    }

    /// The address by which the near host reaches this machine.
    pub(crate) fn gateway(&self) -> Ipv4Addr {
        self.changes.gateway()
    }

    /// Writes down what is to be changed.
    fn recorded(note: Note) -> Result<Self, Failure> {
        let number = std::process::id();
        let namespace = namespace().map_err(|e| failed("asking for the network namespace", &e))?;
        let directory = place::for_records()?;
        let record = directory.join(format!("{RECORD}{namespace}-{number}"));
        let _lock = place::lock(&directory)?;
        // Another one may have found it off and will put it off again.
        let others = records(&directory, namespace);
        let others = others.iter().any(|(_, c)| c.forwarding_was_off);
        let now = sys::host::read_sysctl("net.ipv4.ip_forward").map_err(Failure::here)?;
        let changes = Changes {
            number,
            namespace,
            forwarding_was_off: now.trim() == "0" || others,
        };
        let write = || -> io::Result<File> {
            let mut options = OpenOptions::new();
            let mut file = options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&record)?;
            file.lock()?;
            serde_json::to_writer(&mut file, &changes)?;
            file.flush()?;
            Ok(file)
        };
        let lock = write().map_err(|e| failed(&record.display().to_string(), &e))?;
        Ok(Self {
            changes,
            directory,
            record,
            lock,
            note,
        })
    }

    fn make(&self) -> Result<(), Failure> {
        let c = &self.changes;
        let (interface, port) = (c.interface(), c.port());
        let say = |text: String| (self.note)(&format!("outside: {text}"));
        say(format!(
            "adding the veth pair {interface}, {port}; {interface} gets {}/{SUBNET_BITS}",
            c.gateway()
        ));
        let pair = || -> io::Result<()> {
            let here = NetNs::current()?;
            let end = |name, mac| VethEnd {
                name,
                mac,
                netns: here.as_fd(),
            };
            let mut netlink = Netlink::open()?;
            let mut port_mac = c.mac();
            port_mac[2] ^= 1;
            netlink.add_veth(end(&interface, c.mac()), end(&port, port_mac))?;
            for name in [&interface, &port] {
                // Nothing is to cross the path that nobody sent.
                let quiet = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
                let _ = fs::write(quiet, "1");
                netlink.set_up(name, None)?;
            }
            netlink.add_address(&interface, c.gateway(), SUBNET_BITS)
        };
        pair().map_err(|e| failed("adding a veth pair", &e))?;
        say(format!(
            "adding the nftables table 'ip {}': masquerade what comes from {}",
            c.table(),
            c.near()
        ));
        // Before forwarding begins.
        nft(&["-f", "-"], &c.rules()).map_err(|e| failed("adding a table with nft", &e))?;
        if c.forwarding_was_off {
            say(
                "setting net.ipv4.ip_forward = 1 (it was 0), for labs alone: the table drops what \
                 would be forwarded between others"
                    .to_owned(),
            );
            fs::write(FORWARDING, "1").map_err(|e| failed("setting net.ipv4.ip_forward", &e))?;
        }
        if has_local_resolver_only() {
            say(
                "names will not resolve: /etc/resolv.conf names a resolver on this machine's own \
                 loopback; use addresses"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// The near host is a neighbour of the machine, and sends it everything.
    fn join(&self, path: &mut PathFile) {
        let c = &self.changes;
        let network = &mut path.network;
        network.hosts[path.transfer.to].interface = Some(c.port());
        let near = &mut network.hosts[path.transfer.from];
        (near.address4, near.prefix4) = (c.near(), SUBNET_BITS);
        near.gateway4 = Some(c.gateway());
        near.routes.clear();
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        (self.note)("outside: taking all of that back");
        let lock = place::lock(&self.directory);
        if let Err(failure) = &lock {
            // Better than to leave it.
            tracing::warn!("{failure}; taken back without the lock");
        }
        undo(&self.changes, &self.directory, &self.record);
        // Until here nobody else may.
        let _ = self.lock.unlock();
    }
}

impl Changes {
    fn interface(&self) -> String {
        format!("{PREFIX}{}", self.number)
    }

    fn port(&self) -> String {
        format!("{PREFIX}{}p", self.number)
    }

    fn table(&self) -> String {
        format!("gp_{}", self.number)
    }

    /// The table. Every lab's drops let the packets of all labs pass: a drop is final, and of several
    /// labs each has such a table.
    fn rules(&self) -> String {
        let (table, interface, near) = (self.table(), self.interface(), self.near());
        let own = if self.forwarding_was_off {
            format!(
                " chain forward {{\n type filter hook forward priority 0; policy drop;\n \
                 iifname \"{PREFIX}*\" accept\n \
                 oifname \"{PREFIX}*\" ct state established,related accept\n }}\n"
            )
        } else {
            String::new()
        };
        format!(
            "table ip {table} {{\n chain out {{\n type nat hook postrouting priority 100; policy \
             accept;\n ip saddr {near} oifname != \"{interface}\" masquerade\n }}\n{own}}}\n"
        )
    }

    /// One of 16,384 subnets of four addresses in the upper half of RFC 2544's block.
    fn subnet(&self) -> u32 {
        let number = self.number % (1 << 14);
        u32::from(Ipv4Addr::new(198, 19, 0, 0)) + 4 * number
    }

    fn near(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.subnet() + 1)
    }

    fn gateway(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.subnet() + 2)
    }

    /// Not one that a lab gives a host, which begin with 02:67:70.
    fn mac(&self) -> Mac {
        let [_, a, b, c] = self.number.to_be_bytes();
        [0x02, 0x67, 0x6e, a, b, c]
    }
}

/// Whether this process may change the machine. Before it enters a namespace.
pub fn check() -> Result<(), Failure> {
    if std::env::var_os("GOODPUT_LAB").is_some() {
        return Err(Failure::usage(
            "--outside: inside a lab its far hosts are behind the path already; leave the flag out",
        ));
    }
    if sys::userns::user_id() != 0 || !sys::netns::can_create_namespaces() {
        return Err(Failure::here(
            "--outside changes this machine's network (a veth pair, forwarding, a masquerading \
             rule) and needs root",
        ));
    }
    Ok(())
}

/// Undoes what processes left that were killed, and notes each.
pub fn sweep(note: Note) {
    let Ok(namespace) = namespace() else { return };
    if sys::userns::user_id() != 0 {
        return;
    }
    for directory in place::existing_for_records() {
        if records(&directory, namespace).is_empty() {
            continue;
        }
        match place::lock(&directory) {
            Ok(_lock) => sweep_locked(&directory, namespace, note),
            Err(failure) => tracing::warn!("{failure}"),
        }
    }
}

fn sweep_locked(directory: &Path, namespace: u64, note: Note) {
    for (record, changes) in records(directory, namespace) {
        let Ok(file) = File::open(&record) else {
            continue;
        };
        if file.try_lock().is_ok() {
            note(&format!(
                "undoing what process {} left: {}, table 'ip {}'",
                changes.number,
                changes.interface(),
                changes.table()
            ));
            undo(&changes, directory, &record);
        }
    }
}

/// As far as it is still there. The record goes last: whoever is killed meanwhile leaves it.
fn undo(changes: &Changes, directory: &Path, record: &Path) {
    let others = records(directory, changes.namespace);
    let is_last = others.iter().all(|(other, _)| other == record);
    // The last one that needs it puts it off, before what restrains it goes.
    if changes.forwarding_was_off && is_last {
        let _ = fs::write(FORWARDING, "0");
    }
    let _ = interface::remove(&changes.interface());
    let _ = nft(&["delete", "table", "ip", &changes.table()], "");
    let _ = fs::remove_file(record);
}

/// What is written down for a network namespace, by whomever.
fn records(directory: &Path, namespace: u64) -> Vec<(PathBuf, Changes)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_record = |name: &str| name.starts_with(RECORD);
        if !entry.file_name().to_str().is_some_and(is_record) {
            continue;
        }
        let file = entry.path();
        let text = fs::read_to_string(&file).unwrap_or_default();
        if let Ok(changes) = serde_json::from_str::<Changes>(&text)
            && changes.namespace == namespace
        {
            found.push((file, changes));
        }
    }
    found
}

/// The calling thread's network namespace: the inode that nsfs gives it (namespaces(7)).
fn namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/thread-self/ns/net")?.ino())
}

/// Runs nft with something to read.
fn nft(arguments: &[&str], input: &str) -> io::Result<()> {
    let mut child = Command::new("nft")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        pipe.write_all(input.as_bytes())?;
    }
    let ended = child.wait_with_output()?;
    if ended.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    Err(io::Error::other(said.trim().to_owned()))
}

/// True when every resolver listens on an address that means another machine inside the lab.
fn has_local_resolver_only() -> bool {
    let text = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let servers = text
        .lines()
        .filter_map(|line| line.strip_prefix("nameserver"));
    let mut servers = servers.map(str::trim).peekable();
    servers.peek().is_some() && servers.all(|s| s.starts_with("127.") || s == "::1")
}

fn failed(step: &str, error: &io::Error) -> Failure {
    Failure::here(format!("--outside: {step}: {error}"))
}

const RECORD: &str = "outside-";
/// Names of interfaces begin so.
const PREFIX: &str = "gp-";
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
const SUBNET_BITS: u8 = 30;

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(number: u32, forwarding_was_off: bool) -> Changes {
        Changes {
            number,
            namespace: 7,
            forwarding_was_off,
        }
    }

    #[test]
    fn a_machine_that_forwarded_is_left_to_its_own_rules() {
        let [left, restrained] = [false, true].map(|off| changes(1, off).rules());
        assert!(left.contains("masquerade") && restrained.contains("masquerade"));
        assert!(!left.contains("hook forward"), "{left}");
        assert!(restrained.contains("hook forward priority 0; policy drop"));
    }

    #[test]
    fn records_are_those_of_this_namespace() {
        let directory = std::env::temp_dir().join(format!("goodput-rec-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let json = |namespace| {
            serde_json::to_string(&Changes {
                namespace,
                ..changes(1, true)
            })
        };
        for (name, text) in [
            ("outside-7-1", json(7).unwrap()),
            ("outside-8-1", json(8).unwrap()),
            ("outside-7-2", "{".to_owned()),
            ("a.sock", json(7).unwrap()),
        ] {
            fs::write(directory.join(name), text).unwrap();
        }
        let found = records(&directory, 7);
        assert_eq!(found, [(directory.join("outside-7-1"), changes(1, true))]);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn names_and_addresses_fit_whatever_the_process() {
        for number in [1, 16_383, 16_384, 4_194_304, u32::MAX] {
            let changes = changes(number, true);
            // IFNAMSIZ, the final zero left out.
            assert!(changes.port().len() <= 15, "{}", changes.port());
            let [near, gateway] = [changes.near(), changes.gateway()].map(|a| a.octets());
            assert_eq!(near[..2], [198, 19]);
            assert_eq!(near[3] % 4, 1);
            assert_eq!(gateway[3], near[3] + 1);
            assert_eq!(changes.mac()[0] & 3, 2, "local and not a group's");
        }
    }
}
