//! The PCI Express link between a device and its host: how it was trained, and what the device can.
//!
//! Read from sysfs (Documentation/ABI/testing/sysfs-bus-pci) and from the device's configuration space, of which the
//! PCI Express capability (PCI Express Base Specification 5.0, 7.5.3; registers as in Linux'
//! include/uapi/linux/pci_regs.h) lies beyond the 64 bytes that everybody may read: without rights there are speeds and
//! widths and no sizes.
//!
//! Left out: conventional PCI and PCI-X, which have no such link; functions of an SR-IOV device (their link is the physical
//! function's).

use std::fs;
use std::path::{Path, PathBuf};

/// A device's link, as trained and as far as the device goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PciLink {
    /// Address of the device, such as `0000:3b:00.0`.
    pub address: String,
    /// Transfers a second of a lane, in millions: 2500 to 64000.
    pub megatransfers: u32,
    /// Lanes in use.
    pub lanes: u32,
    /// Transfers a second of a lane, in millions, that the device can.
    pub megatransfers_max: u32,
    /// Lanes that the device has.
    pub lanes_max: u32,
    /// Largest payload of a packet, in bytes: set, and possible.
    pub payload_bytes: Option<(u32, u32)>,
    /// Largest read that the device asks for, in bytes.
    pub read_request_bytes: Option<u32>,
    /// The slowest link between the device and the root: its bits a second after line coding.
    pub bits_per_second: u64,
    /// Where that is another link than the device's: the address of the bridge it leads to.
    pub slower_above: Option<String>,
}

/// What the PCI Express capability of a configuration space says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Registers {
    payload: (u32, u32),
    read_request: u32,
}

/// The link of an interface's device; `None` where it has none that the kernel tells of.
pub fn of_interface(name: &str) -> Option<PciLink> {
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return None;
    }
    of_device(&Path::new("/sys/class/net").join(name).join("device"))
}

/// The link of the PCI function at, or next above, a place in sysfs.
pub fn of_device(place: &Path) -> Option<PciLink> {
    let place = place.canonicalize().ok()?;
    // A virtio device's parent is the function.
    let mut functions = place.ancestors().filter(|place| is_function(place));
    let mut function = functions.next()?.to_path_buf();
    if let Ok(physical) = function.join("physfn").canonicalize() {
        function = physical;
    }
    let (megatransfers, lanes) = trained(&function)?;
    let mut link = PciLink {
        address: name_of(&function),
        megatransfers,
        lanes,
        megatransfers_max: speed(&read(&function, "max_link_speed")?)?,
        lanes_max: read(&function, "max_link_width")?.parse().ok()?,
        bits_per_second: bits_per_second(megatransfers, lanes),
        ..PciLink::default()
    };
    for above in function
        .ancestors()
        .skip(1)
        .filter(|place| is_function(place))
    {
        if let Some((megatransfers, lanes)) = trained(above) {
            let rate = bits_per_second(megatransfers, lanes);
            if rate < link.bits_per_second {
                link.bits_per_second = rate;
                link.slower_above = Some(name_of(above));
            }
        }
    }
    if let Ok(config) = fs::read(function.join("config"))
        && let Some(registers) = registers(&config)
    {
        link.payload_bytes = Some(registers.payload);
        link.read_request_bytes = Some(registers.read_request);
    }
    Some(link)
}

/// Speed and lanes in use; `None` of a function without a link, or whose link is down.
fn trained(function: &Path) -> Option<(u32, u32)> {
    let speed = speed(&read(function, "current_link_speed")?)?;
    let lanes = read(function, "current_link_width")?.parse().ok()?;
    (1..=LANES_MOST).contains(&lanes).then_some((speed, lanes))
}

fn is_function(place: &Path) -> bool {
    place.join("config").exists() && place.join("vendor").exists()
}

fn name_of(function: &Path) -> String {
    let name = function.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn read(function: &Path, name: &str) -> Option<String> {
    let path: PathBuf = function.join(name);
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// `8.0 GT/s PCIe` in millions of transfers a second.
fn speed(text: &str) -> Option<u32> {
    let (number, _) = text.split_once(" GT/s")?;
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u32 = whole.parse().ok()?;
    let tenths: u32 = tenths.get(..1)?.parse().ok()?;
    let megatransfers = whole.checked_mul(1000)?.checked_add(tenths * 100)?;
    (1..=MEGATRANSFERS_MOST)
        .contains(&megatransfers)
        .then_some(megatransfers)
}

/// After line coding: 8b/10b up to 5 GT/s, 128b/130b up to 32, none beyond (Linux, drivers/pci/pci.h,
/// `PCIE_SPEED2MBS_ENC`).
fn bits_per_second(megatransfers: u32, lanes: u32) -> u64 {
    let raw = u64::from(megatransfers) * 1_000_000 * u64::from(lanes);
    match megatransfers {
        0..=5_000 => raw / 10 * 8,
        5_001..=32_000 => raw / 130 * 128,
        _ => raw,
    }
}

/// Follows the list of capabilities; a space that was cut short, or whose list is a circle, has none.
fn registers(config: &[u8]) -> Option<Registers> {
    let byte = |at: usize| config.get(at).copied();
    let word = |at: usize| Some(u16::from_le_bytes([byte(at)?, byte(at + 1)?]));
    // Status: whether there is a list.
    if word(0x06)? & 0x10 == 0 {
        return None;
    }
    let mut at = usize::from(byte(0x34)? & !3);
    for _ in 0..CAPABILITIES_MOST {
        if at < 0x40 {
            return None;
        }
        if byte(at)? != CAPABILITY_EXPRESS {
            at = usize::from(byte(at + 1)? & !3);
            continue;
        }
        let (can, set) = (word(at + 0x04)?, word(at + 0x08)?);
        // Codes 6 and 7 are reserved.
        let size = |code: u16| (code <= 5).then(|| 128 << code);
        return Some(Registers {
            payload: (size(set >> 5 & 7)?, size(can & 7)?),
            read_request: size(set >> 12 & 7)?,
        });
    }
    None
}

const CAPABILITY_EXPRESS: u8 = 0x10;
/// As many as 192 bytes can hold.
const CAPABILITIES_MOST: usize = 48;
const LANES_MOST: u32 = 32;
const MEGATRANSFERS_MOST: u32 = 128_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_as_the_kernel_writes_them() {
        assert_eq!(speed("2.5 GT/s PCIe"), Some(2_500));
        assert_eq!(speed("32.0 GT/s PCIe"), Some(32_000));
        assert_eq!(speed("8 GT/s"), Some(8_000));
        for text in [
            "Unknown",
            "",
            "8.0",
            ". GT/s",
            "-1.0 GT/s",
            "4294967.0 GT/s",
        ] {
            assert_eq!(speed(text), None, "{text}");
        }
    }

    #[test]
    fn bits_are_those_of_the_specification() {
        // 4 and 8 lanes of the second generation, 16 of the third and fifth.
        assert_eq!(bits_per_second(2_500, 1), 2_000_000_000);
        assert_eq!(bits_per_second(5_000, 8), 32_000_000_000);
        assert_eq!(bits_per_second(8_000, 16) / 1_000_000, 126_030);
        assert_eq!(bits_per_second(32_000, 16) / 1_000_000, 504_123);
        assert_eq!(bits_per_second(64_000, 16), 1_024_000_000_000);
    }

    /// A space with power management at 0x50 and the PCI Express capability at 0xe0.
    fn space(can: u16, set: u16) -> Vec<u8> {
        let mut config = vec![0; 256];
        config[0x06] = 0x10;
        config[0x34] = 0x50;
        (config[0x50], config[0x51]) = (0x01, 0xe0);
        config[0xe0] = 0x10;
        config[0xe4..0xe6].copy_from_slice(&can.to_le_bytes());
        config[0xe8..0xea].copy_from_slice(&set.to_le_bytes());
        config
    }

    #[test]
    fn sizes_are_read_where_the_capability_is() {
        let found = registers(&space(0x8002, 0x2810 | 1 << 5)).expect("sizes");
        assert_eq!(found.payload, (256, 512));
        assert_eq!(found.read_request, 512);
        assert_eq!(registers(&space(6, 0)), None);
    }

    #[test]
    fn a_space_cut_short_or_in_a_circle_has_none() {
        let whole = space(1, 0);
        for length in 0..0xea {
            assert_eq!(registers(&whole[..length]), None, "{length}");
        }
        let mut circle = space(1, 0);
        circle[0x51] = 0x50;
        assert_eq!(registers(&circle), None);
        let mut without = space(1, 0);
        without[0x06] = 0;
        assert_eq!(registers(&without), None);
    }

    #[test]
    fn interfaces_without_a_link_have_none() {
        for name in ["lo", "", "../..", "nosuchif0"] {
            assert_eq!(of_interface(name), None, "{name}");
        }
    }

    /// A folder as sysfs has them: a slow root port, above it nothing, below it a faster device.
    #[test]
    fn the_slowest_link_up_to_the_root_counts() {
        let root = std::env::temp_dir().join(format!("goodput-pci-{}", std::process::id()));
        let port = root.join("0000:00:1c.0");
        let device = port.join("0000:3b:00.0");
        fs::create_dir_all(&device).expect("folders");
        let put = |place: &Path, speed: &str, lanes: &str, most: &str| {
            for (name, text) in [
                ("vendor", "0x15b3"),
                ("current_link_speed", speed),
                ("current_link_width", lanes),
                ("max_link_speed", "8.0 GT/s PCIe"),
                ("max_link_width", most),
            ] {
                fs::write(place.join(name), format!("{text}\n")).expect("a file");
            }
            fs::write(place.join("config"), space(2, 0)).expect("a file");
        };
        put(&port, "5.0 GT/s PCIe", "4", "16");
        put(&device, "8.0 GT/s PCIe", "8", "16");
        let link = of_device(&device).expect("a link");
        assert_eq!((link.megatransfers, link.lanes), (8_000, 8));
        assert_eq!((link.megatransfers_max, link.lanes_max), (8_000, 16));
        assert_eq!(link.payload_bytes, Some((128, 512)));
        assert_eq!(link.bits_per_second, 16_000_000_000);
        assert_eq!(link.slower_above.as_deref(), Some("0000:00:1c.0"));
        put(&device, "5.0 GT/s PCIe", "0", "16");
        assert_eq!(of_device(&device), None);
        fs::remove_dir_all(&root).expect("removed");
    }
}
