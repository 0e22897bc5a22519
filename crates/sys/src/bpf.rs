//! A congestion control of our own in the kernel, by BPF struct_ops.
//!
//! **Reno that counts ACKs.** Until 3.12 Linux added one segment to the window for each ACK in slow start, whatever
//! it acknowledged; since then it adds what was acknowledged (commit 9f9843a751d0, 2013; RFC 3465). Behind receivers that
//! acknowledge every second segment, a window then grew by half of itself in a round trip instead of doubling. The
//! kernel's own Reno does all else.
//!
//! The kernel forgets the algorithm when the process ends or drops [`Registered`]; connections that run by it go
//! on. It is known in all network namespaces meanwhile. Needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, as root has.
//!
//! Sources: bpf(2); Linux kernel/bpf/bpf_struct_ops.c, net/ipv4/bpf_tcp_ca.c, net/ipv4/tcp_cong.c;
//! Documentation/bpf/kfuncs.rst, Documentation/bpf/standardization/instruction-set.rst.

mod btf;

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use btf::{MAGIC, Types};

/// Its name, as TCP_CONGESTION takes it.
pub const RENO_BY_ACKS: &str = "reno_acks";

/// As long as it lives, sockets may choose [`RENO_BY_ACKS`].
#[derive(Debug)]
pub struct Registered {
    link: OwnedFd,
}

impl Drop for Registered {
    /// Detaches it: closing the descriptor would leave it to the last copy of it, and a process that was
    /// forked meanwhile has one until its exec.
    fn drop(&mut self) {
        let request = LinkDetach {
            link: self.link.as_raw_fd().unsigned_abs(),
        };
        // Before Linux 6.11 it is refused, and the closing decides.
        // SAFETY: the request holds no pointer.
        let _ = unsafe { bpf_status(LINK_DETACH, &request) };
    }
}

/// Why the kernel does not take a congestion control.
#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    /// It does not tell its types.
    #[error(
        "this kernel does not tell its types (/sys/kernel/btf/vmlinux, CONFIG_DEBUG_INFO_BTF): {0}"
    )]
    NoTypes(io::Error),
    /// It lacks what the algorithm is made of.
    #[error("this kernel has no {0}; a congestion control by BPF takes Linux 6.4 (CONFIG_BPF_JIT)")]
    Lacks(&'static str),
    /// No privilege.
    #[error("a congestion control is loaded by root only (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON)")]
    NotPermitted,
    /// Another process has registered one of the same name.
    #[error("another run has '{RENO_BY_ACKS}' loaded; wait until it has ended")]
    Taken,
    /// Something else.
    #[error("{what}: {source}")]
    Refused {
        /// What was asked for.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Makes [`RENO_BY_ACKS`] known to the kernel.
///
/// # Errors
/// [`BpfError`].
pub fn register_reno_by_acks() -> Result<Registered, BpfError> {
    let block = fs::read(KERNEL_TYPES).map_err(BpfError::NoTypes)?;
    let types = Types::read(&block).ok_or(BpfError::Lacks("readable types"))?;
    let lacks = |what| move || BpfError::Lacks(what);
    let ops = types.structure("tcp_congestion_ops");
    let ops = ops.ok_or_else(lacks("tcp_congestion_ops"))?;
    let value = types.structure("bpf_struct_ops_tcp_congestion_ops");
    let value = value.ok_or_else(lacks("struct_ops for TCP"))?;
    let data = types.member(&value, "data");
    let data = data.ok_or_else(lacks("struct_ops for TCP"))?.offset_bytes;
    let attach = types.value("bpf_attach_type", "BPF_STRUCT_OPS");
    let attach = attach.ok_or_else(lacks("links of struct_ops"))?;

    let mut image = vec![0_u8; value.size as usize];
    let mut put = |at: usize, bytes: &[u8]| -> Result<(), BpfError> {
        let place = image.get_mut(data + at..data + at + bytes.len());
        place
            .ok_or(BpfError::Lacks("tcp_congestion_ops"))?
            .copy_from_slice(bytes);
        Ok(())
    };
    // Open until the kernel holds them itself.
    let mut programs = Vec::new();
    for (name, function, code) in [
        (
            "ssthresh",
            "tcp_reno_ssthresh",
            returns as fn(u32) -> Vec<Insn>,
        ),
        ("undo_cwnd", "tcp_reno_undo_cwnd", returns),
        ("cong_avoid", "tcp_reno_cong_avoid", by_acks),
    ] {
        let member = types.member(&ops, name).ok_or_else(lacks(name))?;
        let call = types.function(function).ok_or_else(lacks(function))?;
        let program = load(&code(call), ops.number, member.index)?;
        put(
            member.offset_bytes,
            &u64::from(program.as_raw_fd().unsigned_abs()).to_ne_bytes(),
        )?;
        programs.push(program);
    }
    let name = types.member(&ops, "name").ok_or_else(lacks("name"))?;
    put(name.offset_bytes, RENO_BY_ACKS.as_bytes())?;

    let map = map(value.number, value.size)?;
    update(&map, &image)?;
    Ok(Registered {
        link: link(&map, attach)?,
    })
}

/// An instruction (struct bpf_insn): operation, registers (their order in the byte is the machine's), offset, constant.
type Insn = [u8; 8];

const fn insn(operation: u8, to: u8, from: u8, offset: u8, constant: u32) -> Insn {
    let c = constant.to_ne_bytes();
    // The offsets here fit a byte; the field has two.
    let offset = (offset as u16).to_ne_bytes();
    let registers = match cfg!(target_endian = "little") {
        true => from << 4 | to,
        false => to << 4 | from,
    };
    [
        operation, registers, offset[0], offset[1], c[0], c[1], c[2], c[3],
    ]
}

/// A u64 argument of the operation: its arguments stand in an array at r1.
const fn argument(to: u8, number: u8) -> Insn {
    insn(LOAD_U64, to, 1, 8 * number, 0)
}

/// Returns what the kernel's function of the same argument, the socket, returns.
fn returns(function: u32) -> Vec<Insn> {
    vec![
        argument(1, 0),
        insn(CALL, 0, KERNEL_FUNCTION, 0, function),
        insn(EXIT, 0, 0, 0, 0),
    ]
}

/// Calls `function` (socket, acknowledged number, segments acknowledged) with one segment.
fn by_acks(function: u32) -> Vec<Insn> {
    vec![
        argument(2, 1),
        insn(SET, 3, 0, 0, 1),
        argument(1, 0),
        insn(CALL, 0, KERNEL_FUNCTION, 0, function),
        insn(SET, 0, 0, 0, 0),
        insn(EXIT, 0, 0, 0, 0),
    ]
}

fn load(code: &[Insn], ops: u32, member: u32) -> Result<OwnedFd, BpfError> {
    let count = u32::try_from(code.len()).unwrap_or(u32::MAX);
    let request = ProgramLoad {
        kind: PROGRAM_STRUCT_OPS,
        instructions: count,
        code: code.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        name: object_name(b"goodput"),
        member,
        attach_type_number: ops,
        ..ProgramLoad::default()
    };
    // SAFETY: `code` and LICENSE outlive the call, which reads as many instructions and up to the NUL.
    unsafe { bpf(PROG_LOAD, &request) }.map_err(refused("loading the congestion control"))
}

/// A map for one value of the kernel's type `value`.
fn map(value: u32, bytes: u32) -> Result<OwnedFd, BpfError> {
    // The kernel wants types of the program's own here and looks at none: an integer.
    let words = [
        u32::from(MAGIC) | 1 << 16,
        24,
        0,
        16,
        16,
        5,
        1,
        1 << 24,
        4,
        1 << 24 | 32,
    ];
    let mut own: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
    own.extend(b"\0int\0");
    let request = TypesLoad {
        block: own.as_ptr() as u64,
        bytes: u32::try_from(own.len()).unwrap_or(u32::MAX),
        ..TypesLoad::default()
    };
    // SAFETY: `own` outlives the call, which reads `bytes` of it.
    let own = unsafe { bpf(BTF_LOAD, &request) }.map_err(refused("loading types"))?;
    let request = MapCreate {
        kind: MAP_STRUCT_OPS,
        key_bytes: 4,
        value_bytes: bytes,
        entries: 1,
        flags: MAP_LINK,
        name: object_name(b"goodput"),
        types: own.as_raw_fd().unsigned_abs(),
        kernel_value_type: value,
        ..MapCreate::default()
    };
    // SAFETY: the request holds no pointer.
    unsafe { bpf(MAP_CREATE, &request) }.map_err(refused("making a struct_ops map"))
}

fn update(map: &OwnedFd, image: &[u8]) -> Result<(), BpfError> {
    let key = 0_u32;
    let request = MapUpdate {
        map: map.as_raw_fd().unsigned_abs(),
        key: (&raw const key) as u64,
        value: image.as_ptr() as u64,
        ..MapUpdate::default()
    };
    // SAFETY: key and image outlive the call, which reads 4 bytes and the map's value size, as long as `image`.
    let done = unsafe { bpf_status(MAP_UPDATE, &request) };
    done.map(|_| ())
        .map_err(refused("filling in the congestion control"))
}

fn link(map: &OwnedFd, attach: u32) -> Result<OwnedFd, BpfError> {
    let request = LinkCreate {
        map: map.as_raw_fd().unsigned_abs(),
        attach,
        ..LinkCreate::default()
    };
    // SAFETY: the request holds no pointer.
    unsafe { bpf(LINK_CREATE, &request) }.map_err(refused("registering the congestion control"))
}

fn refused(what: &'static str) -> impl FnOnce(io::Error) -> BpfError {
    // EACCES is the verifier's: it does not like the program.
    move |source| match source.raw_os_error() {
        Some(libc::EPERM) => BpfError::NotPermitted,
        Some(libc::EEXIST) => BpfError::Taken,
        _ => BpfError::Refused { what, source },
    }
}

fn object_name(name: &[u8]) -> [u8; 16] {
    std::array::from_fn(|i| name.get(i).copied().unwrap_or(0))
}

/// bpf(2) of a command that makes a descriptor.
///
/// # Safety
/// Pointers in `request` must be good for what the command does with them.
unsafe fn bpf<T>(command: libc::c_int, request: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's; and what these commands return is a new descriptor that nobody else has.
    unsafe {
        let fd = bpf_status(command, request)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// bpf(2).
///
/// # Safety
/// As [`bpf`].
unsafe fn bpf_status<T>(command: libc::c_int, request: &T) -> io::Result<libc::c_int> {
    // SAFETY: the kernel reads `size_of::<T>()` bytes of the request, a union bpf_attr cut short, whose rest
    // it takes for zero.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, request, size_of::<T>()) };
    match libc::c_int::try_from(done) {
        Ok(done) if done >= 0 => Ok(done),
        _ => Err(io::Error::last_os_error()),
    }
}

// Parts of union bpf_attr, include/uapi/linux/bpf.h.

#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    member: u32,
    own_types: u32,
    function_record_bytes: u32,
    functions: u64,
    function_count: u32,
    line_record_bytes: u32,
    lines: u64,
    line_count: u32,
    attach_type_number: u32,
}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
    interface: u32,
    types: u32,
    key_type: u32,
    value_type: u32,
    kernel_value_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct MapUpdate {
    map: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct TypesLoad {
    block: u64,
    log: u64,
    bytes: u32,
    log_bytes: u32,
    log_level: u32,
    _pad: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    map: u32,
    target: u32,
    attach: u32,
    flags: u32,
}

#[repr(C)]
struct LinkDetach {
    link: u32,
}

const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";
/// The kernel's functions for congestion control are for programs whose licence goes with its own.
const LICENSE: &[u8] = b"Dual MIT/GPL\0";
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const BTF_LOAD: libc::c_int = 18;
const LINK_CREATE: libc::c_int = 28;
const LINK_DETACH: libc::c_int = 34;
const PROGRAM_STRUCT_OPS: u32 = 27;
const MAP_STRUCT_OPS: u32 = 26;
/// Registered by a link, and only as long as that lives (BPF_F_LINK).
const MAP_LINK: u32 = 1 << 13;
/// BPF_LDX | BPF_MEM | BPF_DW.
const LOAD_U64: u8 = 0x79;
/// BPF_ALU64 | BPF_MOV | BPF_K.
const SET: u8 = 0xb7;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// BPF_PSEUDO_KFUNC_CALL.
const KERNEL_FUNCTION: u8 = 2;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;
    use crate::tcp;

    /// Sets up what the kernel is asked for; where it may not be asked, that this is said.
    #[test]
    fn sockets_can_choose_it_while_it_is_registered_and_no_longer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let root = rustix::process::geteuid().is_root();
        let registered = match register_reno_by_acks() {
            Ok(registered) => registered,
            Err(e @ BpfError::NotPermitted) if !root => return eprintln!("not here: {e}"),
            Err(e @ (BpfError::NoTypes(_) | BpfError::Lacks(_))) => {
                return eprintln!("not here: {e}");
            }
            Err(e) => panic!("{e}"),
        };
        assert!(matches!(register_reno_by_acks(), Err(BpfError::Taken)));
        tcp::set_congestion(socket.as_fd(), RENO_BY_ACKS).unwrap();
        assert_eq!(tcp::congestion(socket.as_fd()).unwrap(), RENO_BY_ACKS);
        // As a process that was forked meanwhile holds it.
        let copy = registered.link.try_clone().unwrap();
        drop(registered);
        let late = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(tcp::set_congestion(late.as_fd(), RENO_BY_ACKS).is_err());
        drop(copy);
        // The one that runs by it goes on.
        assert_eq!(tcp::congestion(socket.as_fd()).unwrap(), RENO_BY_ACKS);
    }
}
