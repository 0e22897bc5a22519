//! Layouts and numbers of libibverbs' binary interface, as far as [`super`] uses it.
//!
//! They are those of IBVERBS_1.1 on 64-bit Linux, which the library's symbol version freezes. Checked
//! against the header of rdma-core 44.0 (`infiniband/verbs.h`) by a program that printed `sizeof` and
//! `offsetof`; the assertions below keep what it printed. Of structures that the library
//! allocates only the fields up to the last one read are declared, and they are only ever
//! behind a pointer. Names are the header's without `ibv_`.
//!
//! Sources: ibv_create_qp(3), ibv_modify_qp(3), ibv_post_send(3), ibv_post_recv(3), ibv_poll_cq(3),
//! ibv_query_port(3), ibv_create_ah(3).

use std::ffi::{c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};

/// A field that is not looked at.
type Opaque = *mut c_void;

/// `struct ibv_context`, its start.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Context {
    pub(super) device: Opaque,
    pub(super) ops: ContextOps,
}

/// `struct ibv_context_ops`, up to `post_recv`. What the header makes inline functions goes through
/// these; the others are old entries that nobody may call.
#[repr(C)]
#[derive(Debug)]
pub(super) struct ContextOps {
    before_poll: [Opaque; 11],
    pub(super) poll_cq: Option<unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int>,
    between: [Opaque; 13],
    pub(super) post_send:
        Option<unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int>,
    pub(super) post_recv:
        Option<unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int>,
}

/// `struct ibv_pd`, `ibv_cq`, `ibv_ah`: their start.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Cq {
    context: *mut Context,
}

/// `struct ibv_mr`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Mr {
    context: *mut Context,
    pd: Opaque,
    addr: Opaque,
    length: usize,
    handle: u32,
    pub(super) lkey: u32,
    rkey: u32,
}

/// `struct ibv_qp`, up to its number.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Qp {
    context: *mut Context,
    qp_context: Opaque,
    pd: Opaque,
    send_cq: Opaque,
    recv_cq: Opaque,
    srq: Opaque,
    handle: u32,
    pub(super) qp_num: u32,
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QpCap {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct QpInitAttr {
    pub(super) qp_context: Opaque,
    pub(super) send_cq: *mut Cq,
    pub(super) recv_cq: *mut Cq,
    pub(super) srq: Opaque,
    pub(super) cap: QpCap,
    pub(super) qp_type: c_uint,
    pub(super) sq_sig_all: c_int,
}

/// `struct ibv_global_route`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GlobalRoute {
    pub(super) dgid: [u8; 16],
    pub(super) flow_label: u32,
    pub(super) sgid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
}

/// `struct ibv_ah_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AhAttr {
    pub(super) grh: GlobalRoute,
    pub(super) dlid: u16,
    pub(super) sl: u8,
    pub(super) src_path_bits: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port_num: u8,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QpAttr {
    pub(super) qp_state: c_uint,
    pub(super) cur_qp_state: c_uint,
    pub(super) path_mtu: c_uint,
    pub(super) path_mig_state: c_uint,
    pub(super) qkey: u32,
    pub(super) rq_psn: u32,
    pub(super) sq_psn: u32,
    pub(super) dest_qp_num: u32,
    pub(super) qp_access_flags: c_uint,
    pub(super) cap: QpCap,
    pub(super) ah_attr: AhAttr,
    pub(super) alt_ah_attr: AhAttr,
    pub(super) pkey_index: u16,
    pub(super) alt_pkey_index: u16,
    pub(super) en_sqd_async_notify: u8,
    pub(super) sq_draining: u8,
    pub(super) max_rd_atomic: u8,
    pub(super) max_dest_rd_atomic: u8,
    pub(super) min_rnr_timer: u8,
    pub(super) port_num: u8,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) alt_port_num: u8,
    pub(super) alt_timeout: u8,
    pub(super) rate_limit: u32,
}

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Sge {
    pub(super) addr: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

/// `struct ibv_send_wr`, with the `ud` side of its union `wr`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct SendWr {
    pub(super) wr_id: u64,
    pub(super) next: *mut Self,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
    pub(super) opcode: c_uint,
    pub(super) send_flags: c_uint,
    pub(super) imm_data: u32,
    pub(super) ud_ah: Opaque,
    pub(super) ud_remote_qpn: u32,
    pub(super) ud_remote_qkey: u32,
    /// The rest of `wr`, `qp_type`, and the union of memory windows and segmentation.
    pub(super) rest: [u64; 9],
}

/// `struct ibv_recv_wr`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct RecvWr {
    pub(super) wr_id: u64,
    pub(super) next: *mut Self,
    pub(super) sg_list: *mut Sge,
    pub(super) num_sge: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wc {
    pub(super) wr_id: u64,
    pub(super) status: c_uint,
    pub(super) opcode: c_uint,
    pub(super) vendor_err: u32,
    pub(super) byte_len: u32,
    pub(super) imm_data: u32,
    pub(super) qp_num: u32,
    pub(super) src_qp: u32,
    pub(super) wc_flags: c_uint,
    pub(super) pkey_index: u16,
    pub(super) slid: u16,
    pub(super) sl: u8,
    pub(super) dlid_path_bits: u8,
}

/// `struct ibv_port_attr`. The library's `ibv_query_port` fills all but `port_cap_flags2`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PortAttr {
    pub(super) state: c_uint,
    pub(super) max_mtu: c_uint,
    pub(super) active_mtu: c_uint,
    pub(super) gid_tbl_len: c_int,
    pub(super) port_cap_flags: u32,
    pub(super) max_msg_sz: u32,
    pub(super) bad_pkey_cntr: u32,
    pub(super) qkey_viol_cntr: u32,
    pub(super) pkey_tbl_len: u16,
    pub(super) lid: u16,
    pub(super) sm_lid: u16,
    pub(super) lmc: u8,
    pub(super) max_vl_num: u8,
    pub(super) sm_sl: u8,
    pub(super) subnet_timeout: u8,
    pub(super) init_type_reply: u8,
    pub(super) active_width: u8,
    pub(super) active_speed: u8,
    pub(super) phys_state: u8,
    pub(super) link_layer: u8,
    pub(super) flags: u8,
    pub(super) port_cap_flags2: u16,
}

pub(super) const PORT_ACTIVE: c_uint = 4;
pub(super) const LINK_LAYER_INFINIBAND: u8 = 1;
pub(super) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(super) const WR_SEND: c_uint = 2;
pub(super) const SEND_SIGNALED: c_uint = 2;
pub(super) const SEND_INLINE: c_uint = 8;
/// `IBV_WC_WR_FLUSH_ERR`: the queue had failed before.
pub(super) const WC_FLUSHED: c_uint = 5;

pub(super) const QPT_RC: c_uint = 2;
pub(super) const QPT_UC: c_uint = 3;
pub(super) const QPT_UD: c_uint = 4;

pub(super) const QPS_INIT: c_uint = 1;
pub(super) const QPS_RTR: c_uint = 2;
pub(super) const QPS_RTS: c_uint = 3;

pub(super) const QP_STATE: c_int = 1;
pub(super) const QP_ACCESS_FLAGS: c_int = 1 << 3;
pub(super) const QP_PKEY_INDEX: c_int = 1 << 4;
pub(super) const QP_PORT: c_int = 1 << 5;
pub(super) const QP_QKEY: c_int = 1 << 6;
pub(super) const QP_AV: c_int = 1 << 7;
pub(super) const QP_PATH_MTU: c_int = 1 << 8;
pub(super) const QP_TIMEOUT: c_int = 1 << 9;
pub(super) const QP_RETRY_CNT: c_int = 1 << 10;
pub(super) const QP_RNR_RETRY: c_int = 1 << 11;
pub(super) const QP_RQ_PSN: c_int = 1 << 12;
pub(super) const QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
pub(super) const QP_MIN_RNR_TIMER: c_int = 1 << 15;
pub(super) const QP_SQ_PSN: c_int = 1 << 16;
pub(super) const QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
pub(super) const QP_DEST_QPN: c_int = 1 << 20;

// What rdma-core 44.0's header says on x86-64; any other 64-bit Linux lays these out the same way.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(offset_of!(Context, ops) == 8);
    assert!(offset_of!(ContextOps, poll_cq) == 88);
    assert!(offset_of!(ContextOps, post_send) == 200);
    assert!(offset_of!(ContextOps, post_recv) == 208);
    assert!(size_of::<Mr>() == 48 && offset_of!(Mr, lkey) == 36);
    assert!(offset_of!(Qp, qp_num) == 52);
    assert!(size_of::<QpCap>() == 20);
    assert!(size_of::<QpInitAttr>() == 64);
    assert!(offset_of!(QpInitAttr, send_cq) == 8 && offset_of!(QpInitAttr, recv_cq) == 16);
    assert!(offset_of!(QpInitAttr, cap) == 32 && offset_of!(QpInitAttr, qp_type) == 52);
    assert!(offset_of!(QpInitAttr, sq_sig_all) == 56);
    assert!(size_of::<GlobalRoute>() == 24 && offset_of!(GlobalRoute, sgid_index) == 20);
    assert!(offset_of!(GlobalRoute, traffic_class) == 22);
    assert!(size_of::<AhAttr>() == 32 && offset_of!(AhAttr, dlid) == 24);
    assert!(offset_of!(AhAttr, is_global) == 29 && offset_of!(AhAttr, port_num) == 30);
    assert!(size_of::<QpAttr>() == 144 && offset_of!(QpAttr, path_mtu) == 8);
    assert!(offset_of!(QpAttr, qkey) == 16 && offset_of!(QpAttr, dest_qp_num) == 28);
    assert!(offset_of!(QpAttr, ah_attr) == 56 && offset_of!(QpAttr, pkey_index) == 120);
    assert!(offset_of!(QpAttr, port_num) == 129 && offset_of!(QpAttr, rnr_retry) == 132);
    assert!(offset_of!(QpAttr, rate_limit) == 136);
    assert!(size_of::<Sge>() == 16 && offset_of!(Sge, lkey) == 12);
    assert!(size_of::<SendWr>() == 128 && offset_of!(SendWr, send_flags) == 32);
    assert!(offset_of!(SendWr, ud_ah) == 40 && offset_of!(SendWr, ud_remote_qkey) == 52);
    assert!(size_of::<RecvWr>() == 32 && offset_of!(RecvWr, num_sge) == 24);
    assert!(size_of::<Wc>() == 48 && offset_of!(Wc, byte_len) == 20);
    assert!(offset_of!(Wc, dlid_path_bits) == 45);
    assert!(size_of::<PortAttr>() == 52 && offset_of!(PortAttr, lid) == 34);
    assert!(offset_of!(PortAttr, link_layer) == 46);
};
