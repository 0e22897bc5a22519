//! Facts about this machine: kernel, CPU, load, TCP settings, interfaces.
//!
//! Everything is tolerant: what a container, an old kernel or a strange CPU does not tell comes
//! back empty, never as a failure, since facts only accompany a measurement.
//!
//! Network facts are those of the calling *thread's* network namespace: /proc/sys/net answers for
//! the task that opens it (net/sysctl_net.c), /proc/thread-self/net for the thread (/proc/net would
//! be the process leader's), and ioctls for the socket's namespace. /sys/class/net shows the
//! namespace of whoever mounted it and is not used.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use units::Bytes;

/// One network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Name, such as `eth0`.
    pub name: String,
    /// MTU; zero when the kernel would not say.
    pub mtu_bytes: u32,
    /// Driver, such as `mlx5_core` or `veth`.
    pub driver: Option<String>,
    /// Link speed as the driver gives it. Virtual interfaces have none (veth claims 10 Gb/s always;
    /// that is left out).
    pub speed_bits_per_second: Option<u64>,
}

/// Raises the limit of open descriptors to what this process may have (RLIMIT_NOFILE); the limit
/// then. Best effort: where it cannot be raised it stays.
pub fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    let _ = setrlimit(Resource::Nofile, raised);
    descriptor_limit()
}

/// How many descriptors this process may have open (the soft RLIMIT_NOFILE).
pub fn descriptor_limit() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current.unwrap_or(u64::MAX)
}

/// Kernel release, such as `6.18.44`.
pub fn kernel_release() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

/// Host name.
pub fn hostname() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// CPU model as the kernel names it; empty where it names none.
pub fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    cpu_model_of(&text)
        .or_else(|| fs::read_to_string("/proc/device-tree/model").ok())
        .map(|model| model.trim_matches(['\0', ' ', '\n']).to_owned())
        .unwrap_or_default()
}

/// CPUs that are online, whatever this process may use of them; at least 1.
pub fn cpus_online() -> u32 {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    cpu_list_count(text.trim())
        .or_else(|| {
            std::thread::available_parallelism()
                .ok()?
                .get()
                .try_into()
                .ok()
        })
        .unwrap_or(1)
}

/// Memory that programs can still have (MemAvailable of proc_meminfo(5)).
pub fn memory_available() -> Option<Bytes> {
    memory("MemAvailable:")
}

fn memory(name: &str) -> Option<Bytes> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(Bytes::new(kib.saturating_mul(1024)))
}

/// What the buffers of all TCP sockets of the machine take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpMemory {
    /// Now (`mem` of /proc/net/sockstat; of all network namespaces).
    pub used: Bytes,
    /// From where on the kernel empties receive queues and drops what arrives (the second of `net.ipv4.tcp_mem`).
    pub pressure: Bytes,
}

/// Reads it; `None` where /proc says nothing.
pub fn tcp_memory() -> Option<TcpMemory> {
    let used = tcp_memory_of(&fs::read_to_string("/proc/net/sockstat").ok()?)?;
    let page = page_bytes()?;
    // Other network namespaces than the first do not show it; then the kernel's own choice, a sixteenth of the memory
    // (tcp_init_mem, net/ipv4/tcp.c).
    let pressure = match tcp_mem_triplet("tcp_mem") {
        Some([_, pressure, _]) => pressure.saturating_mul(page),
        None => memory("MemTotal:")?.as_u64() / 16,
    };
    Some(TcpMemory {
        used: Bytes::new(used.saturating_mul(page)),
        pressure: Bytes::new(pressure),
    })
}

pub(crate) fn page_bytes() -> Option<u64> {
    // SAFETY: sysconf(3) takes a number and touches no memory of ours.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(page).ok()
}

/// In pages.
fn tcp_memory_of(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("TCP:"))?;
    let mut words = line.split_ascii_whitespace();
    words.find(|word| *word == "mem")?;
    words.next()?.parse().ok()
}

/// Threads of all programs that run or could run now (the fourth field of /proc/loadavg, proc_loadavg(5)).
pub fn runnable() -> Option<u32> {
    runnable_of(&fs::read_to_string("/proc/loadavg").ok()?)
}

fn runnable_of(text: &str) -> Option<u32> {
    let field = text.split_ascii_whitespace().nth(3)?;
    field.split_once('/')?.0.parse().ok()
}

/// Load average over one minute, times 100.
pub fn load_1min_percent() -> Option<u32> {
    load_percent_of(&fs::read_to_string("/proc/loadavg").ok()?)
}

/// A kernel setting by its sysctl name, such as `net.ipv4.tcp_rmem`, as the calling thread's
/// network namespace has it. White space at the ends is cut.
///
/// # Errors
///
/// `InvalidInput` for a name that is none, `NotFound` where this kernel or namespace lacks it.
pub fn read_sysctl(name: &str) -> io::Result<String> {
    let path = sysctl_path(name)?;
    Ok(fs::read_to_string(path)?.trim().to_owned())
}

/// `net.ipv4.tcp_rmem` or `tcp_wmem`: minimum, default and maximum in bytes.
pub fn tcp_mem_triplet(name: &str) -> Option<[u64; 3]> {
    triplet_of(&read_sysctl(&format!("net.ipv4.{name}")).ok()?)
}

/// Congestion controls that the kernel has loaded or built in.
pub fn congestion_available() -> Vec<String> {
    words_of("net.ipv4.tcp_available_congestion_control")
}

/// Congestion controls that a socket of this process may choose: all that the kernel has with
/// CAP_NET_ADMIN, else those allowed to everyone (tcp(7), TCP_CONGESTION).
pub fn congestion_choosable() -> Vec<String> {
    let privileged = rustix::thread::capabilities(None).is_ok_and(|sets| {
        sets.effective
            .contains(rustix::thread::CapabilitySet::NET_ADMIN)
    });
    if privileged {
        congestion_available()
    } else {
        congestion_allowed()
    }
}

/// Congestion controls that need no privilege.
pub fn congestion_allowed() -> Vec<String> {
    words_of("net.ipv4.tcp_allowed_congestion_control")
}

/// The congestion control of new connections.
pub fn congestion_default() -> Option<String> {
    read_sysctl("net.ipv4.tcp_congestion_control")
        .ok()
        .filter(|name| !name.is_empty())
}

/// The interfaces of the calling thread's network namespace, in the kernel's order.
pub fn interfaces() -> Vec<Interface> {
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    names_of(&text).map(interface).collect()
}

/// The interface that has the address `addr`, in the calling thread's network namespace.
pub fn interface_with(addr: IpAddr) -> Option<Interface> {
    let addr = addr.to_canonical();
    let found = interface_addresses()
        .into_iter()
        .find(|(_, own)| *own == addr);
    found.map(|(name, _)| interface(&name))
}

/// Interfaces of the calling thread's network namespace and their addresses, in the kernel's order (getifaddrs(3)).
pub fn addresses() -> Vec<(String, IpAddr)> {
    interface_addresses()
}

/// Asks the kernel about one interface; what it does not tell stays empty.
fn interface(name: &str) -> Interface {
    let mut facts = Interface {
        name: name.to_owned(),
        ..Interface::default()
    };
    let Ok(socket) = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    ) else {
        return facts;
    };
    facts.mtu_bytes = mtu(&socket, name).unwrap_or(0);
    facts.driver = driver(&socket, name);
    if facts.driver.as_deref() != Some("veth") {
        facts.speed_bits_per_second = speed(&socket, name);
    }
    facts
}

/// SIOCGIFMTU, netdevice(7).
fn mtu(socket: &OwnedFd, name: &str) -> Option<u32> {
    let mut request = interface_request(name)?;
    // SAFETY: `request` is a valid, NUL-terminated ifreq that outlives the call; SIOCGIFMTU reads
    // its name and writes its `ifru_mtu` only.
    let result = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCGIFMTU as libc::Ioctl,
            &raw mut request,
        )
    };
    if result != 0 {
        return None;
    }
    // SAFETY: the kernel has just written this field; every bit pattern is a valid int.
    u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()
}

/// ETHTOOL_GDRVINFO: bytes 4..36 of `struct ethtool_drvinfo` are the driver's name
/// (include/uapi/linux/ethtool.h). Needs no privilege.
fn driver(socket: &OwnedFd, name: &str) -> Option<String> {
    let answer = ethtool(socket, name, 0x0000_0003)?;
    let field = answer[4..36].split(|&b| b == 0).next()?;
    let text = String::from_utf8_lossy(field).into_owned();
    Some(text).filter(|t| !t.is_empty())
}

/// ETHTOOL_GSET: `struct ethtool_cmd` has the speed in Mb/s in two halves at bytes 12 and 28; all
/// ones when unknown. Needs no privilege.
fn speed(socket: &OwnedFd, name: &str) -> Option<u64> {
    let answer = ethtool(socket, name, 0x0000_0001)?;
    let half = |at: usize| u32::from(u16::from_ne_bytes([answer[at], answer[at + 1]]));
    let megabits = (half(28) << 16) | half(12);
    let known = megabits != 0 && megabits != u32::MAX && megabits != 0xffff;
    known.then(|| u64::from(megabits) * 1_000_000)
}

/// One SIOCETHTOOL call whose answer fits 256 bytes.
fn ethtool(socket: &OwnedFd, name: &str, command: u32) -> Option<[u8; ETHTOOL_BYTES]> {
    let mut request = interface_request(name)?;
    let mut answer = EthtoolBuffer([0; ETHTOOL_BYTES]);
    answer.0[..4].copy_from_slice(&command.to_ne_bytes());
    request.ifr_ifru.ifru_data = (&raw mut answer).cast();
    // SAFETY: `request` is a valid ifreq whose data pointer leads to `answer`, which is writable,
    // aligned for u32 and longer than the structs of the two commands used here (196 and 44 bytes);
    // both outlive the call and the kernel keeps no pointer.
    let result = unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            SIOCETHTOOL as libc::Ioctl,
            &raw mut request,
        )
    };
    (result == 0).then_some(answer.0)
}

/// An ifreq with nothing but the name, which must leave room for its NUL.
fn interface_request(name: &str) -> Option<libc::ifreq> {
    // SAFETY: ifreq is plain integers, arrays and pointers: all zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    Some(request)
}

/// Name and address pairs of all interfaces, getifaddrs(3).
fn interface_addresses() -> Vec<(String, IpAddr)> {
    let mut head: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: getifaddrs stores a list in `head` or fails; the list is freed exactly once below.
    if unsafe { libc::getifaddrs(&raw mut head) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = head;
    // SAFETY: `next` is null or an entry of the list, which stays whole until freeifaddrs.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: every entry has a NUL-terminated name that lives as long as the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        // SAFETY: `ifa_addr` is null or points at a socket address of its family's size.
        if let Some(addr) = unsafe { address_at(entry.ifa_addr) } {
            found.push((name.to_string_lossy().into_owned(), addr));
        }
        next = entry.ifa_next;
    }
    // SAFETY: `head` came from getifaddrs and nothing borrowed from the list is left.
    unsafe { libc::freeifaddrs(head) };
    found
}

/// The IP address in a socket address; `None` for other families.
///
/// # Safety
///
/// `addr` is null or points at a socket address as long as its family says.
unsafe fn address_at(addr: *const libc::sockaddr) -> Option<IpAddr> {
    if addr.is_null() {
        return None;
    }
    // SAFETY: not null, and every socket address begins with its family (caller's promise).
    let family = unsafe { (*addr).sa_family };
    match libc::c_int::from(family) {
        libc::AF_INET => {
            // SAFETY: the family says that a sockaddr_in is here; read without assuming alignment.
            let v4 = unsafe { addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that a sockaddr_in6 is here; no alignment is assumed.
            let v6 = unsafe { addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

/// x86 says `model name`, others `Processor`, `cpu model` or `cpu`.
fn cpu_model_of(cpuinfo: &str) -> Option<String> {
    ["model name", "Processor", "cpu model", "cpu", "Model"]
        .iter()
        .find_map(|key| {
            let line = cpuinfo.lines().find(|line| {
                line.strip_prefix(key)
                    .is_some_and(|rest| rest.trim_start().starts_with(':'))
            })?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
}

/// Counts `0-3,8,10-11`.
fn cpu_list_count(list: &str) -> Option<u32> {
    let mut count = 0_u32;
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

/// `1.25 0.80 …` is 125.
fn load_percent_of(loadavg: &str) -> Option<u32> {
    let (whole, fraction) = loadavg.split_whitespace().next()?.split_once('.')?;
    let (whole, fraction): (u32, u32) = (whole.parse().ok()?, fraction.get(..2)?.parse().ok()?);
    whole.checked_mul(100)?.checked_add(fraction)
}

/// `net.ipv4.tcp_rmem` lies in /proc/sys/net/ipv4/tcp_rmem; a `/` is taken as it stands, for
/// interface names with dots.
pub(crate) fn sysctl_path(name: &str) -> io::Result<String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "._-/@:".contains(c);
    let sane = !name.is_empty() && name.len() <= 200 && name.chars().all(legal);
    let path = if name.contains('/') {
        name.to_owned()
    } else {
        name.replace('.', "/")
    };
    if !sane
        || path
            .split('/')
            .any(|part| part.is_empty() || part == "." || part == "..")
    {
        let problem = format!("'{name}' is not a sysctl name such as net.ipv4.tcp_rmem");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    Ok(format!("/proc/sys/{path}"))
}

fn triplet_of(text: &str) -> Option<[u64; 3]> {
    let numbers: Option<Vec<u64>> = text.split_whitespace().map(|n| n.parse().ok()).collect();
    numbers?.try_into().ok()
}

fn words_of(sysctl: &str) -> Vec<String> {
    read_sysctl(sysctl)
        .unwrap_or_default()
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

/// Interface names of /proc/net/dev: two head lines, then `name: counters`.
fn names_of(proc_net_dev: &str) -> impl Iterator<Item = &str> {
    proc_net_dev
        .lines()
        .skip(2)
        .filter_map(|line| Some(line.rsplit_once(':')?.0.trim()))
        .take(INTERFACES_MAX)
}

/// Room for the ethtool structs, aligned as they are.
#[repr(align(8))]
struct EthtoolBuffer([u8; ETHTOOL_BYTES]);

/// Above the larger of the two structs used (196 bytes).
const ETHTOOL_BYTES: usize = 256;
/// include/uapi/linux/sockios.h.
const SIOCETHTOOL: u32 = 0x8946;
/// A host of containers has thousands of veths; more than these nobody reads.
const INTERFACES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fourth_field_has_what_could_run() {
        assert_eq!(runnable_of("0.52 0.58 0.59 3/467 12345\n"), Some(3));
        assert_eq!(runnable_of("0.52 0.58 0.59\n"), None);
        assert!(runnable().is_some_and(|n| n >= 1));
    }

    #[test]
    fn this_machine_has_a_kernel_a_cpu_and_a_loopback() {
        assert!(!kernel_release().is_empty());
        assert!(!hostname().is_empty());
        assert!(cpus_online() >= 1);
        let found = interfaces();
        let lo = found
            .iter()
            .find(|i| i.name == "lo")
            .expect("every namespace has lo");
        assert!(lo.mtu_bytes >= 1280, "{lo:?}");
        assert_eq!(
            interface_with(IpAddr::from([127, 0, 0, 1])).unwrap().name,
            "lo"
        );
        assert!(interface_with(IpAddr::from([192, 0, 2, 77])).is_none());
    }

    #[test]
    fn tcp_settings_read_as_min_default_max() {
        let [min, default, max] = tcp_mem_triplet("tcp_rmem").unwrap();
        assert!(min <= default && default <= max);
        assert!(congestion_available().iter().any(|name| name == "reno"));
        assert!(congestion_default().is_some());
    }

    #[test]
    fn what_tcp_takes_is_the_number_behind_its_word() {
        let text =
            "sockets: used 9\nTCP: inuse 1 orphan 2 tw 3 alloc 4 mem 56\nUDP: inuse 7 mem 8\n";
        assert_eq!(tcp_memory_of(text), Some(56));
        assert_eq!(tcp_memory_of("UDP: inuse 7 mem 8\n"), None);
        assert_eq!(tcp_memory_of("TCP: inuse 7 mem\n"), None);
        let now = tcp_memory().unwrap();
        assert!(now.pressure > Bytes::new(0), "{now:?}");
    }

    #[test]
    fn names_that_leave_proc_sys_are_refused() {
        for name in [
            "",
            "..",
            "net/../../passwd",
            "net..ipv4",
            "/etc/passwd",
            "a b",
            "net/",
        ] {
            let error = read_sysctl(name).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
        }
        assert_eq!(
            sysctl_path("net/ipv4/conf/eth0.5/mtu").unwrap(),
            "/proc/sys/net/ipv4/conf/eth0.5/mtu"
        );
    }

    #[test]
    fn an_interface_that_does_not_exist_is_empty_not_fatal() {
        assert_eq!(interface("nosuchif0").mtu_bytes, 0);
        assert_eq!(interface(&"x".repeat(100)).driver, None);
    }

    #[test]
    fn procfs_texts_parse() {
        assert_eq!(cpu_list_count("0-3,8,10-11"), Some(7));
        assert_eq!(cpu_list_count("3-1"), None);
        assert_eq!(cpu_list_count("0-4294967295"), None);
        assert_eq!(load_percent_of("1.25 0.80 0.70 1/200 99"), Some(125));
        assert_eq!(load_percent_of("junk"), None);
        assert_eq!(
            triplet_of("4096\t131072\t6291456"),
            Some([4096, 131_072, 6_291_456])
        );
        assert_eq!(triplet_of("4096 131072"), None);
        let x86 = "processor\t: 0\nmodel name\t: AMD EPYC 9654\n";
        assert_eq!(cpu_model_of(x86).as_deref(), Some("AMD EPYC 9654"));
        assert_eq!(cpu_model_of("processor : 0\n"), None);
        let dev = "Inter-|\n face |\n    lo: 1 2\n eth0:1: 3 4\n";
        assert_eq!(names_of(dev).collect::<Vec<_>>(), ["lo", "eth0:1"]);
    }
}
