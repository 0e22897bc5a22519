//! A queue pair with its memory: messages of one size are sent from one place and received into
//! another, and nobody looks at what is in them.
//!
//! All sends are from the same bytes and all receives go to the same bytes, as what is measured is the
//! way between. So the memory is one message each way, however many are under way, and no reference to
//! it ever exists: the device writes there whenever it likes.
//!
//! Sources: ibv_create_qp(3), ibv_modify_qp(3) with its tables of what each state needs, ibv_reg_mr(3),
//! ibv_post_send(3), ibv_poll_cq(3). Timers and retries are those of perftest's defaults.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use super::abi::{self, AhAttr, Cq, Mr, Qp, QpAttr, QpCap, QpInitAttr, RecvWr, SendWr, Sge, Wc};
use super::{Context, Port, Service, mtu_code};

/// What a queue is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSpec {
    /// What it promises.
    pub service: Service,
    /// Size of each message, 1 B to 2^23 B; of UD to the path's MTU.
    pub message_bytes: u32,
    /// Sends that may be under way, 1 to 8192.
    pub sends: u32,
    /// Receives that stand ready, 1 to 8192; fewer where the device has no more.
    pub receives: u32,
    /// Messages up to this size travel within the wish to send them, if the device can.
    pub inline_bytes: u32,
    /// What datagrams to it must know; the highest bit clear.
    pub key: u32,
}

/// The queue at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its number.
    pub number: u32,
    /// Number of its first packet.
    pub first_packet: u32,
    /// What datagrams to it must know.
    pub key: u32,
    /// Its port's number in the subnet.
    pub lid: u16,
    /// Its port's address.
    pub gid: [u8; 16],
    /// Largest payload of a packet on the way to it.
    pub mtu_bytes: u32,
}

/// What ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Work {
    /// A send, and with it all before.
    #[default]
    Sent,
    /// A receive.
    Received,
}

/// Something that ended well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// What it was.
    pub work: Work,
    /// Bytes received, headers left out; 0 for a send.
    pub bytes: u32,
}

/// A queue pair.
#[derive(Debug)]
pub struct Queue {
    // Dropped in this order: each is made of those below it.
    pair: Pair,
    route: Option<Route>,
    completions: Completions,
    memory: Memory,
    domain: Domain,
    port: Port,
    spec: QueueSpec,
    receives: u32,
    inline_bytes: u32,
    remote: Option<Remote>,
}

// SAFETY: all pointers are to what the library made, whose functions may be called from any thread,
// and to memory that this queue alone owns.
unsafe impl Send for Queue {}

impl Queue {
    /// Makes a queue and has it wait for messages.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for sizes out of range, and what the kernel says: `ENOMEM` where the limit of
    /// locked memory (`ulimit -l`) is too low.
    pub fn new(port: &Port, spec: QueueSpec) -> io::Result<Self> {
        let ud_max = port.mtu_bytes;
        let bytes_max = match spec.service {
            Service::Ud => ud_max,
            _ => MESSAGE_BYTES_MAX,
        };
        let all = 1..=WORK_MAX;
        if !(1..=bytes_max).contains(&spec.message_bytes)
            || !all.contains(&spec.sends)
            || !all.contains(&spec.receives)
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let domain = Domain::new(&port.context)?;
        let memory = Memory::new(&domain, spec.message_bytes)?;
        let completions = Completions::new(&port.context, spec.sends + spec.receives)?;
        let (pair, cap) = Pair::new(&domain, &completions, &spec)?;
        let mut queue = Self {
            pair,
            route: None,
            completions,
            memory,
            domain,
            port: port.clone(),
            spec,
            receives: cap.max_recv_wr.min(spec.receives).max(1),
            inline_bytes: cap.max_inline_data.min(spec.inline_bytes),
            remote: None,
        };
        queue.initialise()?;
        for _ in 0..queue.receives {
            queue.receive()?;
        }
        Ok(queue)
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        // SAFETY: the pair lives, and its number does not change.
        unsafe { (*self.pair.pointer.as_ptr()).qp_num }
    }

    /// Joins it with another, whose side must do the same before anything is sent.
    ///
    /// # Errors
    ///
    /// What the kernel says, such as `ETIMEDOUT` where the other's address cannot be resolved.
    pub fn connect(&mut self, first_packet: u32, remote: Remote) -> io::Result<()> {
        let route = self.route_to(&remote);
        let mut attr = QpAttr {
            qp_state: abi::QPS_RTR,
            path_mtu: mtu_code(remote.mtu_bytes.min(self.port.mtu_bytes)),
            rq_psn: remote.first_packet & PACKET_MASK,
            dest_qp_num: remote.number,
            ah_attr: route,
            max_dest_rd_atomic: 1,
            min_rnr_timer: RNR_TIMER,
            ..QpAttr::default()
        };
        let connected =
            abi::QP_STATE | abi::QP_AV | abi::QP_PATH_MTU | abi::QP_DEST_QPN | abi::QP_RQ_PSN;
        let ready_to_receive = match self.spec.service {
            Service::Rc => connected | abi::QP_MAX_DEST_RD_ATOMIC | abi::QP_MIN_RNR_TIMER,
            Service::Uc => connected,
            Service::Ud => abi::QP_STATE,
        };
        self.modify(&mut attr, ready_to_receive)?;
        let mut attr = QpAttr {
            qp_state: abi::QPS_RTS,
            sq_psn: first_packet & PACKET_MASK,
            timeout: ACK_TIMEOUT,
            retry_cnt: RETRIES,
            rnr_retry: RNR_FOR_EVER,
            max_rd_atomic: 1,
            ..QpAttr::default()
        };
        let plain = abi::QP_STATE | abi::QP_SQ_PSN;
        let ready_to_send = match self.spec.service {
            Service::Rc => {
                plain
                    | abi::QP_TIMEOUT
                    | abi::QP_RETRY_CNT
                    | abi::QP_RNR_RETRY
                    | abi::QP_MAX_QP_RD_ATOMIC
            }
            _ => plain,
        };
        self.modify(&mut attr, ready_to_send)?;
        if self.spec.service == Service::Ud {
            self.route = Some(Route::new(&self.domain, route)?);
        }
        self.remote = Some(remote);
        Ok(())
    }

    /// Hands one message over. Its end, and that of all before it, is told if it is `signalled`: at least
    /// one of each [`QueueSpec::sends`] has to be.
    ///
    /// # Errors
    ///
    /// `NotConnected` before [`Queue::connect`]; `ENOMEM` when too many are under way.
    pub fn send(&mut self, signalled: bool) -> io::Result<()> {
        let Some(remote) = self.remote else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let bytes = self.spec.message_bytes;
        let mut part = Sge {
            addr: self.memory.address(),
            length: bytes,
            lkey: self.memory.key(),
        };
        let mut flags = 0;
        if signalled {
            flags |= abi::SEND_SIGNALED;
        }
        if bytes <= self.inline_bytes {
            flags |= abi::SEND_INLINE;
        }
        let mut wish = SendWr {
            wr_id: ID_SEND,
            next: null_mut(),
            sg_list: &raw mut part,
            num_sge: 1,
            opcode: abi::WR_SEND,
            send_flags: flags,
            imm_data: 0,
            ud_ah: self
                .route
                .as_ref()
                .map_or(null_mut(), |r| r.pointer.as_ptr()),
            ud_remote_qpn: remote.number,
            ud_remote_qkey: remote.key,
            rest: [0; 9],
        };
        let post = self.ops().post_send.ok_or(io::ErrorKind::Unsupported)?;
        let mut bad = null_mut();
        // SAFETY: the pair lives; wish and part live until the call returns, which copies them; what
        // part names is registered, and of its length.
        check(unsafe { post(self.pair.pointer.as_ptr(), &raw mut wish, &raw mut bad) })
    }

    /// Has one more message wait for.
    ///
    /// # Errors
    ///
    /// `ENOMEM` when as many wait as the queue holds.
    pub fn receive(&mut self) -> io::Result<()> {
        let mut part = Sge {
            addr: self.memory.address() + self.memory.inbound_at,
            length: self.memory.inbound_bytes,
            lkey: self.memory.key(),
        };
        let mut wish = RecvWr {
            wr_id: ID_RECEIVE,
            next: null_mut(),
            sg_list: &raw mut part,
            num_sge: 1,
        };
        let post = self.ops().post_recv.ok_or(io::ErrorKind::Unsupported)?;
        let mut bad = null_mut();
        // SAFETY: as for `send`; the device writes to the part of the memory that nobody reads.
        check(unsafe { post(self.pair.pointer.as_ptr(), &raw mut wish, &raw mut bad) })
    }

    /// What has ended since the last call, without waiting; how many of `done` were filled.
    ///
    /// # Errors
    ///
    /// What ended badly, in the library's words; the queue is of no more use then.
    pub fn poll(&mut self, done: &mut [Done; POLLED]) -> io::Result<usize> {
        let mut ended = [Wc::default(); POLLED];
        let poll = self.ops().poll_cq.ok_or(io::ErrorKind::Unsupported)?;
        let room = c_int::try_from(POLLED).unwrap_or(1);
        // SAFETY: the completion queue lives, and there is room for as many.
        let count = unsafe { poll(self.completions.pointer.as_ptr(), room, ended.as_mut_ptr()) };
        let count = usize::try_from(count).map_err(|_| io::Error::other("polling failed"))?;
        for (slot, wc) in done.iter_mut().zip(ended.iter().take(count)) {
            *slot = self.done(wc)?;
        }
        Ok(count.min(POLLED))
    }

    fn done(&self, wc: &Wc) -> io::Result<Done> {
        let work = match wc.wr_id {
            ID_SEND => Work::Sent,
            _ => Work::Received,
        };
        if wc.status != 0 {
            return Err(self.failure(work, wc.status));
        }
        let header = match self.spec.service {
            Service::Ud => ROUTING_HEADER_BYTES,
            _ => 0,
        };
        let bytes = match work {
            Work::Sent => 0,
            Work::Received => wc.byte_len.saturating_sub(header),
        };
        Ok(Done { work, bytes })
    }

    fn failure(&self, work: Work, status: c_uint) -> io::Error {
        let library = self.port.context.library;
        // SAFETY: the library takes any number and answers with a text that lives for ever.
        let text = unsafe {
            let text = (library.wc_status_str)(status);
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        };
        let text = text.unwrap_or_else(|| format!("status {status}"));
        let what = match work {
            Work::Sent => "a send",
            Work::Received => "a receive",
        };
        let kind = match status {
            abi::WC_FLUSHED => io::ErrorKind::ConnectionAborted,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, format!("{what} failed: {text}"))
    }

    fn ops(&self) -> &abi::ContextOps {
        // SAFETY: the context is open as long as the port, and not written to after it was made.
        unsafe { &(*self.port.context.pointer.as_ptr()).ops }
    }

    fn initialise(&mut self) -> io::Result<()> {
        let mut attr = QpAttr {
            qp_state: abi::QPS_INIT,
            qkey: self.spec.key,
            port_num: self.port.number,
            ..QpAttr::default()
        };
        let last = match self.spec.service {
            Service::Ud => abi::QP_QKEY,
            _ => abi::QP_ACCESS_FLAGS,
        };
        self.modify(
            &mut attr,
            abi::QP_STATE | abi::QP_PKEY_INDEX | abi::QP_PORT | last,
        )
    }

    fn modify(&mut self, attr: &mut QpAttr, mask: c_int) -> io::Result<()> {
        let modify = self.port.context.library.modify_qp;
        // SAFETY: the pair and the attributes live; the library reads what the mask names.
        check(unsafe { modify(self.pair.pointer.as_ptr(), attr, mask) })
    }

    /// Over Ethernet by address, in an InfiniBand subnet by number.
    fn route_to(&self, remote: &Remote) -> AhAttr {
        let mut route = AhAttr {
            dlid: remote.lid,
            port_num: self.port.number,
            ..AhAttr::default()
        };
        if !self.port.infiniband || remote.lid == 0 {
            route.is_global = 1;
            route.grh.dgid = remote.gid;
            route.grh.sgid_index = self.port.gid_index;
            route.grh.hop_limit = HOPS;
        }
        route
    }
}

/// The message's bytes to send from, and behind them those to receive into.
#[derive(Debug)]
struct Memory {
    registration: NonNull<Mr>,
    start: NonNull<u8>,
    layout: Layout,
    inbound_at: u64,
    inbound_bytes: u32,
    context: Arc<Context>,
}

impl Memory {
    fn new(domain: &Domain, message_bytes: u32) -> io::Result<Self> {
        let outbound = u64::from(message_bytes).next_multiple_of(CACHE_LINE);
        let inbound_bytes = message_bytes + ROUTING_HEADER_BYTES;
        let all = usize::try_from(outbound + u64::from(inbound_bytes));
        let layout = Layout::from_size_align(all.unwrap_or(usize::MAX), PAGE);
        let layout = layout.map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the layout is not empty.
        let start =
            NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(io::ErrorKind::OutOfMemory)?;
        let register = domain.context.library.reg_mr;
        // SAFETY: the domain lives; the memory is of that size and stays until it is deregistered.
        let registration = unsafe {
            register(
                domain.pointer.as_ptr(),
                start.as_ptr().cast(),
                layout.size(),
                abi::ACCESS_LOCAL_WRITE,
            )
        };
        let Some(registration) = NonNull::new(registration) else {
            let error = io::Error::last_os_error();
            // SAFETY: allocated above with this layout, and known to nobody else.
            unsafe { dealloc(start.as_ptr(), layout) };
            return Err(error);
        };
        Ok(Self {
            registration,
            start,
            layout,
            inbound_at: outbound,
            inbound_bytes,
            context: Arc::clone(&domain.context),
        })
    }

    fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    fn key(&self) -> u32 {
        // SAFETY: the registration lives, and its key does not change.
        unsafe { (*self.registration.as_ptr()).lkey }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the pair that used it is gone, being dropped first, so that the device no longer
        // writes there. Should the kernel refuse to let go, the memory is left to it.
        unsafe {
            if (self.context.library.dereg_mr)(self.registration.as_ptr()) == 0 {
                dealloc(self.start.as_ptr(), self.layout);
            }
        }
    }
}

/// A protection domain.
#[derive(Debug)]
struct Domain {
    pointer: NonNull<c_void>,
    context: Arc<Context>,
}

impl Domain {
    fn new(context: &Arc<Context>) -> io::Result<Self> {
        // SAFETY: the context is open.
        let pointer = made(unsafe { (context.library.alloc_pd)(context.pointer.as_ptr()) })?;
        let context = Arc::clone(context);
        Ok(Self { pointer, context })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: made once; what was made of it is gone.
        unsafe { (self.context.library.dealloc_pd)(self.pointer.as_ptr()) };
    }
}

/// A completion queue.
#[derive(Debug)]
struct Completions {
    pointer: NonNull<Cq>,
    context: Arc<Context>,
}

impl Completions {
    fn new(context: &Arc<Context>, room: u32) -> io::Result<Self> {
        let room = c_int::try_from(room).map_err(|_| io::ErrorKind::InvalidInput)?;
        let create = context.library.create_cq;
        let none = null_mut();
        // SAFETY: the context is open; no channel and no context of ours are wanted.
        let pointer = made(unsafe { create(context.pointer.as_ptr(), room, none, none, 0) })?;
        let context = Arc::clone(context);
        Ok(Self { pointer, context })
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: made once; the pair that used it is gone.
        unsafe { (self.context.library.destroy_cq)(self.pointer.as_ptr()) };
    }
}

/// The pair itself.
#[derive(Debug)]
struct Pair {
    pointer: NonNull<Qp>,
    context: Arc<Context>,
}

impl Pair {
    /// A pair and what it can hold. Devices differ in how much; asked for less and less receives, and
    /// nothing inline, until one can.
    fn new(
        domain: &Domain,
        completions: &Completions,
        spec: &QueueSpec,
    ) -> io::Result<(Self, QpCap)> {
        let create = domain.context.library.create_qp;
        let mut cap = QpCap {
            max_send_wr: spec.sends,
            max_recv_wr: spec.receives,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: spec.inline_bytes,
        };
        loop {
            let mut wish = QpInitAttr {
                qp_context: null_mut(),
                send_cq: completions.pointer.as_ptr(),
                recv_cq: completions.pointer.as_ptr(),
                srq: null_mut(),
                cap,
                qp_type: match spec.service {
                    Service::Rc => abi::QPT_RC,
                    Service::Uc => abi::QPT_UC,
                    Service::Ud => abi::QPT_UD,
                },
                sq_sig_all: 0,
            };
            // SAFETY: domain and completion queue live; the library writes into the wish's caps.
            match made(unsafe { create(domain.pointer.as_ptr(), &raw mut wish) }) {
                Ok(pointer) => {
                    let context = Arc::clone(&domain.context);
                    return Ok((Self { pointer, context }, wish.cap));
                }
                Err(_) if cap.max_inline_data > 0 => cap.max_inline_data = 0,
                Err(_) if cap.max_recv_wr > 16 => cap.max_recv_wr /= 2,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: made once.
        unsafe { (self.context.library.destroy_qp)(self.pointer.as_ptr()) };
    }
}

/// Where datagrams go.
#[derive(Debug)]
struct Route {
    pointer: NonNull<c_void>,
    context: Arc<Context>,
}

impl Route {
    fn new(domain: &Domain, mut route: AhAttr) -> io::Result<Self> {
        let create = domain.context.library.create_ah;
        // SAFETY: the domain lives; the library reads the attributes.
        let pointer = made(unsafe { create(domain.pointer.as_ptr(), &raw mut route) })?;
        let context = Arc::clone(&domain.context);
        Ok(Self { pointer, context })
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        // SAFETY: made once; the pair that sent by it is gone.
        unsafe { (self.context.library.destroy_ah)(self.pointer.as_ptr()) };
    }
}

/// What the library made, or why not.
fn made<T>(pointer: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(io::Error::last_os_error)
}

/// The library's functions answer with 0 or an error number.
fn check(code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        // Some drivers answer with its negative.
        code => Err(io::Error::from_raw_os_error(code.saturating_abs())),
    }
}

/// What one poll tells at most.
pub const POLLED: usize = 16;
/// Largest message: 2^23 B.
pub const MESSAGE_BYTES_MAX: u32 = 1 << 23;
/// Most sends, and most receives, of a queue.
pub const WORK_MAX: u32 = 8192;
/// A global routing header (IBTA 8.3) stands before each datagram in its receiver's memory.
const ROUTING_HEADER_BYTES: u32 = 40;
/// 24 bits (IBTA 9.2).
const PACKET_MASK: u32 = 0xff_ffff;
/// 4.096 us * 2^14: 67 ms without an acknowledgement (IBTA 9.7.6.1.3).
const ACK_TIMEOUT: u8 = 14;
const RETRIES: u8 = 7;
/// 7 stands for no limit (IBTA 9.7.5.2.8): a receiver that has nothing ready is waited for.
const RNR_FOR_EVER: u8 = 7;
/// 12 stands for 0.64 ms (IBTA table 45).
const RNR_TIMER: u8 = 12;
const HOPS: u8 = 64;
const ID_SEND: u64 = 1;
const ID_RECEIVE: u64 = 2;
const CACHE_LINE: u64 = 64;
const PAGE: usize = 4096;
