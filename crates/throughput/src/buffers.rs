//! How large a socket buffer becomes a window, and how large a buffer a path needs.

use units::{Bytes, Duration, Rate};

use crate::models;

/// How a Linux buffer, whose size counts kernel memory (truesize), becomes payload in flight.
///
/// The two fractions are the only kernel facts in the predictions, and stand here alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BufferModel {
    /// Window that a receiver advertises, as a fraction of its receive buffer.
    pub receive_window_fraction: f64,
    /// Payload in flight that a send buffer holds on average, as a fraction of its size.
    pub send_payload_fraction: f64,
}

impl BufferModel {
    /// Linux, calibrated on transfers over a lab path (kernel 6.18, veth, 85 ms). Receive buffers of
    /// 64 KiB to 4 MiB gave a window of 0.58 to 0.62 of the buffer at an MTU of 1500, 0.47 to 0.67 at
    /// 9000. Send buffers of 256 KiB and 1 MiB held 0.88 to 0.96; one of 64 KiB, which a single GSO
    /// packet fills, 0.9 to 3.6, since the kernel lets a writer past it by whole packets.
    ///
    /// * Receive: the kernel starts from one half (include/net/tcp.h, `TCP_DEFAULT_SCALING_RATIO` =
    ///   128 of 256, since 6.6; before that `tcp_adv_win_scale` = 1) and then measures payload over
    ///   memory of the segments that arrive (`tcp_measure_rcv_mss`): 1448 bytes in an skb of 2304
    ///   make 0.625, rounded down to whole segments. Drivers that put segments into larger buffers
    ///   leave less.
    /// * Send: `sk_wmem_queued` counts truesize, and payload in page fragments is nearly all of it.
    ///   A blocked writer is woken when a third of its buffer is free (include/net/sock.h,
    ///   `sk_stream_min_wspace`), which on a long path is when a window's ACKs have come.
    pub const LINUX: Self = Self {
        receive_window_fraction: 0.6,
        send_payload_fraction: 0.9,
    };

    /// Window that a receive buffer of that size lets a receiver advertise.
    pub fn receive_window(&self, buffer: Bytes) -> Bytes {
        models::scale(buffer, self.receive_window_fraction).min(models::LARGEST_WINDOW)
    }

    /// Payload in flight that a send buffer of that size holds.
    pub fn send_payload(&self, buffer: Bytes) -> Bytes {
        models::scale(buffer, self.send_payload_fraction)
    }

    /// What a receive buffer has to grow to (net.ipv4.tcp_rmem, the last) for one connection of that rate, with room for
    /// what arrives while a loss is repaired; as remedies say it.
    pub fn receive_buffer_for(&self, rate: Rate, idle_rtt: Duration) -> Bytes {
        models::buffer_for(rate, idle_rtt, self.receive_window_fraction)
    }

    /// The same of a send buffer (net.ipv4.tcp_wmem).
    pub fn send_buffer_for(&self, rate: Rate, idle_rtt: Duration) -> Bytes {
        models::buffer_for(rate, idle_rtt, self.send_payload_fraction)
    }
}

impl Default for BufferModel {
    fn default() -> Self {
        Self::LINUX
    }
}
