//! What bytes mean: views and representations of frames, of virtio_net_hdr and of the kernel's
//! tcp_info.

#![forbid(unsafe_code)]

pub mod tcp_info;
