//! The kernel's `struct tcp_info`, read by length so that old and new kernels both parse.
//!
//! The struct only ever grows at its end; a kernel hands over as many bytes as it knows. Every
//! field is widened to u64 and carries its unit in its name. A field the kernel did not send reads
//! zero and is left out of [`TcpInfo::fields`].
//!
//! Source: Linux include/uapi/linux/tcp.h (6.18: 280 bytes, AccECN counters last); times that the
//! kernel keeps in jiffies (`busy_time`, `rwnd_limited`, `sndbuf_limited`, `last_*`) are converted
//! by it and step by 1..10 ms. `busy_time` is the sum of busy, rwnd-limited and sndbuf-limited
//! (net/ipv4/tcp.c, tcp_get_info_chrono_stats).

/// How wide a field is in the kernel's struct.
#[derive(Clone, Copy, Debug)]
enum Width {
    U8,
    U16,
    U32,
    U64,
}

macro_rules! tcp_info {
    ($($(#[$doc:meta])* $name:ident: $width:ident @ $offset:literal),+ $(,)?) => {
        /// One reading of a socket's `tcp_info`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct TcpInfo {
            /// Bytes that the kernel filled in.
            pub len_bytes: usize,
            $($(#[$doc])* pub $name: u64,)+
        }

        impl TcpInfo {
            /// Reads what the kernel wrote. Bytes past the newest known field are ignored.
            ///
            /// Returns `None` below 104 bytes, the struct as of Linux 2.6.
            pub fn parse(bytes: &[u8]) -> Option<Self> {
                if bytes.len() < MIN_LEN_BYTES {
                    return None;
                }
                Some(Self {
                    len_bytes: bytes.len(),
                    $($name: field(bytes, $offset, Width::$width).unwrap_or(0),)+
                })
            }

            /// Name and value of every field that this kernel knows, in the struct's order.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name, $offset + Width::$width.bytes()),)+]
                    .into_iter()
                    .filter(|&(_, _, end)| end <= self.len_bytes)
                    .map(|(name, value, _)| (name, value))
            }

            /// Sets a field by name, as when a sample is read back from a file; false when there is
            /// no such field. `len_bytes` grows to cover it.
            pub fn set(&mut self, name: &str, value: u64) -> bool {
                match name {
                    $(stringify!($name) => {
                        self.$name = value;
                        self.len_bytes = self.len_bytes.max($offset + Width::$width.bytes());
                    })+
                    _ => return false,
                }
                true
            }
        }
    };
}

tcp_info! {
    /// TCP_ESTABLISHED is 1.
    state: U8 @ 0,
    /// 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    ca_state: U8 @ 1,
    /// Timeouts of the segment at the head, in a row.
    retransmits: U8 @ 2,
    /// TCPI_OPT_*: 1 timestamps, 2 SACK, 4 window scale, 8 ECN, 16 ECN seen.
    options: U8 @ 5,
    /// Window scales: low four bits the peer's (snd), as it came in its SYN, high four our own (rcv).
    wscales: U8 @ 6,
    /// Bit 0: the last delivery rate was limited by the application.
    delivery_flags: U8 @ 7,
    /// Retransmission timeout.
    rto_us: U32 @ 8,
    /// Segment size in use, without options.
    snd_mss_bytes: U32 @ 16,
    /// Estimate of the peer's segment size.
    rcv_mss_bytes: U32 @ 20,
    /// Segments in flight.
    unacked_segments: U32 @ 24,
    /// Segments reported by SACK.
    sacked_segments: U32 @ 28,
    /// Segments thought lost.
    lost_segments: U32 @ 32,
    /// Retransmitted segments in flight.
    retrans_segments: U32 @ 36,
    /// Time since data was sent.
    last_data_sent_ms: U32 @ 44,
    /// Time since data came.
    last_data_recv_ms: U32 @ 52,
    /// Time since an ACK came.
    last_ack_recv_ms: U32 @ 56,
    /// Path MTU in use.
    pmtu_bytes: U32 @ 60,
    /// Receive window clamp of slow start.
    rcv_ssthresh_bytes: U32 @ 64,
    /// Smoothed round trip.
    rtt_us: U32 @ 68,
    /// Mean deviation of the round trip.
    rttvar_us: U32 @ 72,
    /// Slow-start threshold; 2^31-1 or 2^32-1 before the first loss.
    snd_ssthresh_segments: U32 @ 76,
    /// Congestion window.
    snd_cwnd_segments: U32 @ 80,
    /// MSS that we advertised.
    advmss_bytes: U32 @ 84,
    /// Reordering that the stack tolerates.
    reordering_segments: U32 @ 88,
    /// Receiver's estimate of the round trip.
    rcv_rtt_us: U32 @ 92,
    /// Bytes the receiver's application took per round trip (autotuning).
    rcv_space_bytes: U32 @ 96,
    /// Segments retransmitted since the start.
    total_retrans_segments: U32 @ 100,
    /// Rate at which the stack paces, bytes per second; all ones: not paced.
    pacing_rate_bytes_per_second: U64 @ 104,
    /// Limit set by SO_MAX_PACING_RATE, bytes per second; all ones: none.
    max_pacing_rate_bytes_per_second: U64 @ 112,
    /// Bytes acknowledged by the peer.
    bytes_acked: U64 @ 120,
    /// Bytes received in order.
    bytes_received: U64 @ 128,
    /// Segments sent, ACKs included.
    segs_out: U32 @ 136,
    /// Segments received, ACKs included.
    segs_in: U32 @ 140,
    /// Bytes in the send buffer not yet sent.
    notsent_bytes: U32 @ 144,
    /// Smallest round trip seen.
    min_rtt_us: U32 @ 148,
    /// Segments with data received.
    data_segs_in: U32 @ 152,
    /// Segments with data sent, retransmissions included.
    data_segs_out: U32 @ 156,
    /// Newest delivery rate sample, bytes per second.
    delivery_rate_bytes_per_second: U64 @ 160,
    /// Time with data outstanding, whatever held it back.
    busy_time_us: U64 @ 168,
    /// Part of it held back by the peer's window.
    rwnd_limited_us: U64 @ 176,
    /// Part of it held back by our send buffer.
    sndbuf_limited_us: U64 @ 184,
    /// Segments delivered, retransmissions included.
    delivered_segments: U32 @ 192,
    /// Of these, marked CE.
    delivered_ce_segments: U32 @ 196,
    /// Data bytes sent, retransmissions included.
    bytes_sent: U64 @ 200,
    /// Data bytes retransmitted.
    bytes_retrans: U64 @ 208,
    /// Duplicates that the peer reported: spurious retransmissions.
    dsack_dups: U32 @ 216,
    /// Reordering events.
    reord_seen: U32 @ 220,
    /// Segments received out of order.
    rcv_ooopack: U32 @ 224,
    /// The peer's window after scaling.
    snd_wnd_bytes: U32 @ 228,
    /// Our own window as last advertised.
    rcv_wnd_bytes: U32 @ 232,
    /// Times the flow changed its path (txhash).
    rehash: U32 @ 236,
    /// Retransmission timeouts.
    total_rto: U16 @ 240,
    /// Recoveries that timeouts began.
    total_rto_recoveries: U16 @ 242,
    /// Time spent in them.
    total_rto_time_ms: U32 @ 244,
    /// CE marks received.
    received_ce_segments: U32 @ 248,
    /// AccECN: bytes delivered with ECT(1).
    delivered_e1_bytes: U32 @ 252,
    /// AccECN: bytes delivered with ECT(0).
    delivered_e0_bytes: U32 @ 256,
    /// AccECN: bytes delivered with CE.
    delivered_ce_bytes: U32 @ 260,
    /// AccECN: bytes received with ECT(1).
    received_e1_bytes: U32 @ 264,
    /// AccECN: bytes received with ECT(0).
    received_e0_bytes: U32 @ 268,
    /// AccECN: bytes received with CE.
    received_ce_bytes: U32 @ 272,
    /// AccECN failure mode.
    accecn_fail_mode: U16 @ 276,
    /// AccECN options seen.
    accecn_opt_seen: U16 @ 278,
}

impl TcpInfo {
    /// True when the kernel measured the last delivery rate while the application had no data.
    pub const fn delivery_rate_app_limited(&self) -> bool {
        self.delivery_flags & 1 == 1
    }

    /// True when both ends agreed on window scaling (TCPI_OPT_WSCALE).
    pub const fn window_scaling(&self) -> bool {
        self.options & 4 != 0
    }

    /// Shift of the windows that come from the peer, as its SYN told (`rx_opt.snd_wscale`).
    pub const fn peer_window_shift(&self) -> u64 {
        self.wscales & 0xf
    }

    /// Shift of the windows that this end sends, as its own SYN told (`rx_opt.rcv_wscale`).
    pub const fn own_window_shift(&self) -> u64 {
        self.wscales >> 4
    }
}

impl Width {
    const fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::U32 => 4,
            Self::U64 => 8,
        }
    }
}

/// The field at `offset` in the machine's own byte order, if `bytes` reach that far.
fn field(bytes: &[u8], offset: usize, width: Width) -> Option<u64> {
    let slice = bytes.get(offset..offset + width.bytes())?;
    Some(match width {
        Width::U8 => u64::from(slice[0]),
        Width::U16 => u64::from(u16::from_ne_bytes(slice.try_into().ok()?)),
        Width::U32 => u64::from(u32::from_ne_bytes(slice.try_into().ok()?)),
        Width::U64 => u64::from_ne_bytes(slice.try_into().ok()?),
    })
}

/// Bytes up to and including `tcpi_total_retrans`, which every kernel since 2.6 fills in.
const MIN_LEN_BYTES: usize = 104;

/// Bytes to offer the kernel: above its newest struct, so that none is cut off.
pub const BUFFER_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_old_struct_parses_and_names_only_its_own_fields() {
        let mut bytes = [0_u8; 104];
        bytes[68..72].copy_from_slice(&85_020_u32.to_ne_bytes());
        let info = TcpInfo::parse(&bytes).unwrap();
        assert_eq!(info.rtt_us, 85_020);
        assert_eq!(info.fields().last().unwrap().0, "total_retrans_segments");
        assert!(TcpInfo::parse(&bytes[..103]).is_none());
    }

    #[test]
    fn a_field_cut_in_half_is_not_read() {
        let bytes = [0xff_u8; 235];
        let info = TcpInfo::parse(&bytes).unwrap();
        assert_eq!(info.snd_wnd_bytes, u64::from(u32::MAX));
        assert_eq!(info.rcv_wnd_bytes, 0);
        assert!(info.fields().all(|(name, _)| name != "rcv_wnd_bytes"));
    }

    #[test]
    fn a_longer_future_struct_parses() {
        let mut bytes = [0_u8; BUFFER_BYTES];
        bytes[278..280].copy_from_slice(&3_u16.to_ne_bytes());
        assert_eq!(TcpInfo::parse(&bytes).unwrap().accecn_opt_seen, 3);
    }

    #[test]
    fn fields_written_out_and_set_back_are_the_same_reading() {
        let bytes: Vec<u8> = (0..280).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let info = TcpInfo::parse(&bytes).unwrap();
        let mut back = TcpInfo::default();
        for (name, value) in info.fields() {
            assert!(back.set(name, value), "{name}");
        }
        assert_eq!(back, info);
        assert!(!back.set("no_such_field", 1));
    }
}
