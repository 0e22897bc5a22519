//! RDMA verbs through libibverbs, which is loaded when it is first wanted and need not be there.
//!
//! As much as messages by `send` take: a port of a device is opened ([`Port`]), and a queue pair of it
//! with memory of its own sends and receives messages of one size ([`Queue`]). Left out: reads and
//! writes of remote memory, atomics, completion events (queues are polled), shared receive queues,
//! partitions other than the first, and what becomes of registered memory in a forked child
//! (Linux 5.12 and later copy it).
//!
//! Sources: the man pages of rdma-core; ibv_get_device_list(3), ibv_open_device(3),
//! ibv_query_port(3); Linux Documentation/ABI/stable/sysfs-class-infiniband.

mod abi;
mod gid;
mod library;
mod queue;

use std::ffi::CStr;
use std::net::IpAddr;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::{fs, io};

use library::{Library, library};
pub use queue::{Done, MESSAGE_BYTES_MAX, POLLED, Queue, QueueSpec, Remote, WORK_MAX, Work};

/// What a queue pair promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection: in order, nothing lost, messages of up to 2^23 B here.
    Rc,
    /// Unreliable connection: what loses a packet is gone.
    Uc,
    /// Unreliable datagram: a message is a packet.
    Ud,
}

/// Which port to take; whatever is `None` is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// RDMA device, such as `mlx5_0` or `rxe0`.
    pub device: Option<String>,
    /// Port of it, from 1.
    pub port: Option<u8>,
    /// Index into the port's table of addresses (GIDs).
    pub gid_index: Option<u8>,
    /// Network interface that its addresses are to belong to.
    pub interface: Option<String>,
}

/// What messages by verbs want and a host lacks, and how to get it: at most 200 characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Missing {
    /// The library.
    #[error(
        "libibverbs cannot be loaded ({0}); apt-get install libibverbs1 ibverbs-providers, or dnf \
         install libibverbs"
    )]
    Library(String),
    /// A device.
    #[error(
        "no RDMA device (/sys/class/infiniband is empty); have the kernel make one of an interface: \
         modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0"
    )]
    Device,
    /// The kernel's door to user programs.
    #[error(
        "the RDMA device {0} is there, but nothing in /dev/infiniband that reaches it; modprobe \
         ib_uverbs, and let a container have /dev/infiniband"
    )]
    Uverbs(String),
    /// The library's driver for the device.
    #[error(
        "libibverbs has no driver for the RDMA device {0}; apt-get install ibverbs-providers, or dnf \
         install libibverbs"
    )]
    Driver(String),
    /// The device that was named.
    #[error("no RDMA device or port fits {wanted}; there is {there}")]
    Named {
        /// What was named.
        wanted: String,
        /// What is there.
        there: String,
    },
    /// An active port.
    #[error(
        "no port of the RDMA device {0} is active; see `rdma link show`, and bring its interface up \
         (ip link set eth0 up) or plug its cable in"
    )]
    ActivePort(String),
    /// An address to send from.
    #[error(
        "the RDMA device {0} has no address (GID) yet; give its interface one (ip address add), or \
         wait until it has its own"
    )]
    Address(String),
    /// The right to open it, or memory to lock, or whatever the kernel says.
    #[error("the RDMA device {device} cannot be opened: {}", io::Error::from_raw_os_error(*errno))]
    Opening {
        /// The device.
        device: String,
        /// The kernel's answer.
        errno: i32,
    },
}

/// An open port.
#[derive(Clone, Debug)]
pub struct Port {
    context: Arc<Context>,
    device: String,
    number: u8,
    gid: [u8; 16],
    gid_index: u8,
    gid_type: String,
    lid: u16,
    mtu_bytes: u32,
    infiniband: bool,
}

/// Names of the RDMA devices that the kernel has, sorted; needs no library.
pub fn devices() -> Vec<String> {
    gid::names(Path::new(CLASS))
}

impl Port {
    /// Opens the port that fits best: one that is active and has the address `local`, which is that of
    /// the connection beside which messages are to go; else one with an address of its family over
    /// RoCE v2; else the first that is active.
    ///
    /// # Errors
    ///
    /// [`Missing`], with how to get it.
    pub fn open(choice: &Choice, local: Option<IpAddr>) -> Result<Self, Missing> {
        let library = library().map_err(|why| Missing::Library(why.to_owned()))?;
        let there = devices();
        let Some(first) = there.first() else {
            return Err(Missing::Device);
        };
        if !has_uverbs(Path::new(UVERBS)) {
            return Err(Missing::Uverbs(first.clone()));
        }
        let list = List::load(library);
        let usable = list.names();
        if usable.is_empty() {
            return Err(Missing::Driver(first.clone()));
        }
        let mut fits = Fits::default();
        for (device, name) in usable {
            if choice.device.as_ref().is_none_or(|wanted| *wanted == name) {
                fits.look_at(library, device, &name, choice, local);
            }
        }
        match (fits.best, fits.trouble) {
            (Some((_, port)), _) => Ok(port),
            (None, Some(trouble)) => Err(trouble),
            (None, None) if *choice == Choice::default() => Err(Missing::ActivePort(first.clone())),
            (None, None) => Err(Missing::Named {
                wanted: choice.to_string(),
                there: there.join(", "),
            }),
        }
    }

    /// Name of its device.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Its number, from 1.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Address of its that is used.
    pub fn gid(&self) -> [u8; 16] {
        self.gid
    }

    /// The address' place in the port's table.
    pub fn gid_index(&self) -> u8 {
        self.gid_index
    }

    /// The kind of address, as the kernel names it, such as `RoCE v2`.
    pub fn gid_type(&self) -> &str {
        &self.gid_type
    }

    /// Its number in an InfiniBand subnet; 0 on Ethernet.
    pub fn lid(&self) -> u16 {
        self.lid
    }

    /// Largest payload of a packet: 256 to 4096.
    pub fn mtu_bytes(&self) -> u32 {
        self.mtu_bytes
    }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [
            self.device.clone(),
            self.interface
                .as_ref()
                .map(|name| format!("interface {name}")),
            self.port.map(|n| format!("port {n}")),
            self.gid_index.map(|n| format!("GID index {n}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join(", "))
    }
}

/// The best port so far, and what spoiled others.
#[derive(Debug, Default)]
struct Fits {
    best: Option<(gid::Score, Port)>,
    trouble: Option<Missing>,
}

impl Fits {
    fn look_at(
        &mut self,
        library: &'static Library,
        device: NonNull<std::ffi::c_void>,
        name: &str,
        choice: &Choice,
        local: Option<IpAddr>,
    ) {
        // SAFETY: the device is of a list that lives.
        let context = match NonNull::new(unsafe { (library.open_device)(device.as_ptr()) }) {
            Some(pointer) => Arc::new(Context { library, pointer }),
            None => {
                let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
                let device = name.to_owned();
                self.trouble = Some(Missing::Opening { device, errno });
                return;
            }
        };
        let folder = Path::new(CLASS).join(name);
        for number in gid::ports(&folder) {
            if choice.port.is_some_and(|wanted| wanted != number) {
                continue;
            }
            let Some(attr) = context.port(number) else {
                continue;
            };
            if attr.state != abi::PORT_ACTIVE {
                self.trouble = Some(Missing::ActivePort(name.to_owned()));
                continue;
            }
            let entries = gid::table(&folder, number);
            let Some((score, entry)) = gid::choose(&entries, choice, local) else {
                if choice.gid_index.is_none() && choice.interface.is_none() {
                    self.trouble = Some(Missing::Address(name.to_owned()));
                }
                continue;
            };
            if self.best.as_ref().is_none_or(|(best, _)| score > *best) {
                let port = Port {
                    context: Arc::clone(&context),
                    device: name.to_owned(),
                    number,
                    gid: entry.gid,
                    gid_index: entry.index,
                    gid_type: entry.kind.clone(),
                    lid: attr.lid,
                    mtu_bytes: mtu_bytes(attr.active_mtu),
                    infiniband: attr.link_layer == abi::LINK_LAYER_INFINIBAND,
                };
                self.best = Some((score, port));
            }
        }
    }
}

/// The devices that the library can drive.
#[derive(Debug)]
struct List {
    library: &'static Library,
    pointer: Option<NonNull<*mut std::ffi::c_void>>,
    count: usize,
}

impl List {
    fn load(library: &'static Library) -> Self {
        let mut count = 0;
        // SAFETY: the library writes one int.
        let pointer = NonNull::new(unsafe { (library.get_device_list)(&raw mut count) });
        Self {
            library,
            pointer,
            count: usize::try_from(count).unwrap_or(0),
        }
    }

    fn names(&self) -> Vec<(NonNull<std::ffi::c_void>, String)> {
        let Some(list) = self.pointer else {
            return Vec::new();
        };
        // SAFETY: the library's list has `count` entries and lives as long as `self`.
        let entries = unsafe { std::slice::from_raw_parts(list.as_ptr(), self.count) };
        let named = |&device: &*mut std::ffi::c_void| {
            let device = NonNull::new(device)?;
            // SAFETY: the device is of this list; its name is a text that lives as long.
            let name = unsafe {
                let name = (self.library.get_device_name)(device.as_ptr());
                (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
            };
            Some((device, name?))
        };
        entries.iter().filter_map(named).collect()
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if let Some(list) = self.pointer {
            // SAFETY: the list is the library's and freed once; open devices do not need it.
            unsafe { (self.library.free_device_list)(list.as_ptr()) };
        }
    }
}

/// An open device; closed when the last of what was made of it is gone.
#[derive(Debug)]
struct Context {
    library: &'static Library,
    pointer: NonNull<abi::Context>,
}

// SAFETY: the library's functions may be called from any thread (rdma-core: "libibverbs is fully
// thread safe"), and the structure is only read after it was made.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    fn port(&self, number: u8) -> Option<abi::PortAttr> {
        let mut attr = abi::PortAttr::default();
        // SAFETY: the context is open; the library writes at most the structure, less its last field.
        let code =
            unsafe { (self.library.query_port)(self.pointer.as_ptr(), number, &raw mut attr) };
        (code == 0).then_some(attr)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened once, closed once, after everything that holds a clone of its Arc.
        unsafe { (self.library.close_device)(self.pointer.as_ptr()) };
    }
}

/// Whether the kernel's door to user programs is open.
fn has_uverbs(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().starts_with("uverbs"))
}

/// IBTA's coding of packet sizes: 1 is 256 B, 5 is 4096 B. Anything else is taken for the smallest.
fn mtu_bytes(code: std::ffi::c_uint) -> u32 {
    match code {
        1..=5 => 128 << code,
        _ => 256,
    }
}

/// The other way round, downwards.
fn mtu_code(bytes: u32) -> std::ffi::c_uint {
    (1..=5)
        .rev()
        .find(|&code| 128 << code <= bytes)
        .unwrap_or(1)
}

const CLASS: &str = "/sys/class/infiniband";
const UVERBS: &str = "/dev/infiniband";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_missing_piece_has_its_remedy() {
        let named = |missing: &Missing, words: &[&str]| {
            let text = missing.to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
            // As much as one end lets the other say.
            assert!(text.len() <= 200, "{text}");
        };
        named(
            &Missing::Library(format!("{}: no such file", "x".repeat(70))),
            &["libibverbs", "no such file", "apt-get install libibverbs1"],
        );
        named(
            &Missing::Device,
            &["no RDMA device", "rdma link add rxe0 type rxe netdev eth0"],
        );
        named(
            &Missing::Uverbs("rxe0".to_owned()),
            &["rxe0", "/dev/infiniband", "modprobe ib_uverbs"],
        );
        named(
            &Missing::Driver("rxe0".to_owned()),
            &["rxe0", "ibverbs-providers"],
        );
        named(
            &Missing::ActivePort("rxe0".to_owned()),
            &["active", "ip link set"],
        );
        named(&Missing::Address("rxe0".to_owned()), &["GID"]);
        let opening = Missing::Opening {
            device: "rxe0".to_owned(),
            errno: libc::EACCES,
        };
        named(&opening, &["rxe0", "Permission denied"]);
        let choice = Choice {
            device: Some("mlx5_0".to_owned()),
            port: Some(2),
            ..Choice::default()
        };
        let missing = Missing::Named {
            wanted: choice.to_string(),
            there: "rxe0".to_owned(),
        };
        named(&missing, &["mlx5_0, port 2", "there is rxe0"]);
    }

    #[test]
    fn opening_a_port_here_gives_one_or_says_what_is_missing() {
        // Machines with and without a device run this; both answers are checked.
        match Port::open(&Choice::default(), None) {
            Ok(port) => {
                assert!(devices().contains(&port.device().to_owned()));
                assert!((256..=4096).contains(&port.mtu_bytes()));
            }
            Err(Missing::Device) => assert!(devices().is_empty()),
            Err(Missing::Library(why)) => assert!(why.contains("ibv"), "{why}"),
            Err(other) => assert!(!devices().is_empty(), "{other}"),
        }
    }

    #[test]
    fn packet_sizes_are_coded_both_ways() {
        for (code, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
            assert_eq!(mtu_bytes(code), bytes);
            assert_eq!(mtu_code(bytes), code);
        }
        assert_eq!((mtu_bytes(0), mtu_bytes(6)), (256, 256));
        assert_eq!((mtu_code(4095), mtu_code(0), mtu_code(u32::MAX)), (4, 1, 5));
    }

    #[test]
    fn a_folder_without_uverbs_is_a_shut_door() {
        assert!(!has_uverbs(Path::new("/proc/self/fd/none")));
        let folder = std::env::temp_dir().join(format!("goodput-uverbs-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("rdma_cm"), "").unwrap();
        assert!(!has_uverbs(&folder));
        fs::write(folder.join("uverbs0"), "").unwrap();
        assert!(has_uverbs(&folder));
        fs::remove_dir_all(&folder).unwrap();
    }
}
