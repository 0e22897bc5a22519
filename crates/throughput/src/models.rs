//! What theory says a TCP connection can carry: response to loss, window limit, framing.
//!
//! Every function returns `None` where its formula sets no limit (no loss, no round trip), never
//! an infinity. All of them describe a long transfer in steady state; slow start is left out of
//! all but [`slow_start_time`], and retransmission timeouts of all, so that above some 5 % of loss
//! they promise too much (Padhye et al., SIGCOMM 1998, treat that range).
//!
//! Reading list:
//! * Mathis, Semke, Mahdavi, Ott: The macroscopic behavior of the TCP congestion avoidance
//!   algorithm. ACM CCR 27(3), 1997.
//! * RFC 9438, CUBIC, section 4.3 (Reno-friendly region) and section 5 (average window, tables).
//! * NPAD / pathdiag: the loss budget of a path (pathdiag.py, "target run length").

use units::{Bytes, Duration, Rate};

/// IP version of a connection; it decides the header's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IpVersion {
    /// 20 bytes of header.
    #[default]
    V4,
    /// 40 bytes of header.
    V6,
}

/// How often the receiver acknowledges, which sets the constant of [`mathis`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckPolicy {
    /// The window grows by one segment a round trip. Linux counts segments, not ACKs
    /// (net/ipv4/tcp_cong.c, `tcp_cong_avoid_ai`), so this holds for it with delayed ACKs too.
    #[default]
    EveryPacket,
    /// The window grows by half a segment a round trip: a sender that counts delayed ACKs.
    Delayed,
}

/// Loss that a path may have before it limits one Reno connection at the wanted rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossBudget {
    /// Packets that must pass between two losses.
    pub run_length_packets: f64,
    /// The same as a loss rate.
    pub loss_rate_max: f64,
    /// The same as a time between losses.
    pub time_between: Duration,
}

/// TCP payload of a full packet: the MTU less the IP header, 20 bytes of TCP and, with timestamps,
/// 12 bytes of option (RFC 7323, padded).
pub fn segment_payload_bytes(mtu_bytes: u32, ip: IpVersion, timestamps: bool) -> u32 {
    let ip_header = match ip {
        IpVersion::V4 => 20,
        IpVersion::V6 => 40,
    };
    mtu_bytes.saturating_sub(ip_header + 20 + if timestamps { 12 } else { 0 })
}

/// TCP payload per second that a wire rate carries in full Ethernet packets of that MTU.
///
/// Counted per packet: 8 bytes of preamble, 14 of header, 4 of FCS, 12 of gap. VLAN tags (4 bytes
/// each) and other encapsulations are left out.
pub fn achievable(rate: Rate, mtu_bytes: u32, ip: IpVersion, timestamps: bool) -> Rate {
    let payload = u128::from(segment_payload_bytes(mtu_bytes, ip, timestamps));
    let wire = u128::from(mtu_bytes) + ETHERNET_OVERHEAD_BYTES;
    let bits = u128::from(rate.as_bits_per_second()) * payload / wire;
    Rate::from_bits_per_second(u64::try_from(bits).unwrap_or(u64::MAX))
}

/// Rate of a window of bytes that is sent once a round trip; `None` without a round trip.
pub fn window_limit(window: Bytes, rtt: Duration) -> Option<Rate> {
    (rtt > Duration::ZERO).then(|| Rate::average(window, rtt))
}

/// Bandwidth-delay product: bytes in flight that keep a path full.
pub fn bdp(rate: Rate, rtt: Duration) -> Bytes {
    rate.bytes_in(rtt)
}

/// Average window of Reno in segments at loss rate `p`: sqrt(3/2)/sqrt(p), Mathis et al. 1997,
/// equation 3 and table 1; sqrt(3/4)/sqrt(p) for [`AckPolicy::Delayed`].
pub fn reno_window_segments(p: f64, acks: AckPolicy) -> Option<f64> {
    let p = loss_probability(p)?;
    let c_squared: f64 = match acks {
        AckPolicy::EveryPacket => 1.5,
        AckPolicy::Delayed => 0.75,
    };
    Some((c_squared / p).sqrt())
}

/// Rate of one Reno connection with segments of `mss_bytes` at loss rate `p` (Mathis et al. 1997).
pub fn mathis(mss_bytes: u64, rtt: Duration, p: f64, acks: AckPolicy) -> Option<Rate> {
    rate_of_segments(reno_window_segments(p, acks)?, mss_bytes, rtt)
}

/// Average window of CUBIC in segments at loss rate `p`.
///
/// The larger of two: AVG_W_cubic of RFC 9438, section 5,
/// (C(3+b)/(4(1-b)))^(1/4) * RTT^(3/4) / p^(3/4), and the window of its Reno-friendly region, an
/// AIMD with a = 3(1-b)/(1+b): sqrt(a(1+b)/(2(1-b)p))
/// (section 4.3), which is Reno's. Both assume a loss every 1/p packets; for independent losses at
/// the same rate Mathis et al. (table 1) give Reno 1.31 in place of 1.22, 7 % more.
pub fn cubic_window_segments(rtt: Duration, p: f64) -> Option<f64> {
    let p = loss_probability(p)?;
    let concave = cubic_factor(rtt) / p.powf(0.75);
    Some(concave.max(reno_friendly_window(p)))
}

/// Rate of one CUBIC connection with segments of `mss_bytes` at loss rate `p`.
pub fn cubic(mss_bytes: u64, rtt: Duration, p: f64) -> Option<Rate> {
    rate_of_segments(cubic_window_segments(rtt, p)?, mss_bytes, rtt)
}

/// The largest loss rate at which one CUBIC connection still carries `rate` of payload: the
/// inverse of [`cubic`].
pub fn cubic_loss_max(rate: Rate, rtt: Duration, mss_bytes: u64) -> Option<f64> {
    let window = window_segments(rate, rtt, mss_bytes)?;
    let concave = (cubic_factor(rtt) / window).powf(4.0 / 3.0);
    let friendly = 1.5 / (window * window);
    Some(concave.max(friendly).min(1.0))
}

/// NPAD's loss budget: with t = BDP / (0.7 MSS), a Reno connection keeps the path full when t^2
/// packets, or t round trips, pass between losses.
pub fn loss_budget(rate: Rate, rtt: Duration, mss_bytes: u64) -> Option<LossBudget> {
    let t = window_segments(rate, rtt, mss_bytes)? / 0.7;
    let run_length_packets = (t * t).max(1.0);
    Some(LossBudget {
        run_length_packets,
        loss_rate_max: 1.0 / run_length_packets,
        time_between: seconds(t * rtt.as_s_f64()),
    })
}

/// Time that slow start needs until one connection fills `rate`: a round trip for each doubling
/// from ten segments (RFC 6928), and one more to see the effect.
pub fn slow_start_time(rate: Rate, rtt: Duration, mss_bytes: u64) -> Option<Duration> {
    let window = window_segments(rate, rtt, mss_bytes)?;
    let doublings = (window / INITIAL_WINDOW_SEGMENTS).log2().max(0.0).ceil();
    Some(seconds((doublings + 1.0) * rtt.as_s_f64()))
}

/// CUBIC's K: seconds until the window is back at `window_segments` after a loss there
/// (RFC 9438, section 4.2: cubic root of W_max (1 - beta) / C).
pub fn cubic_recovery_time(window_segments: f64) -> Duration {
    seconds((window_segments.max(0.0) * (1.0 - CUBIC_BETA) / CUBIC_C).cbrt())
}

/// Queue that keeps the bottleneck busy while CUBIC recovers from a loss of one connection, as a
/// multiple of the BDP: from beta (BDP + queue) >= BDP follows queue >= (1-beta)/beta BDP = 0.43.
/// Reno's 1/2 gives the classic full BDP.
pub const CUBIC_QUEUE_PER_BDP: f64 = (1.0 - CUBIC_BETA) / CUBIC_BETA;

/// Segments in flight that `rate` of payload needs; `None` when any of the three is zero.
pub fn window_segments(rate: Rate, rtt: Duration, mss_bytes: u64) -> Option<f64> {
    let window = rate.as_bits_per_second() as f64 * rtt.as_s_f64() / 8.0 / mss_bytes as f64;
    (window.is_finite() && window > 0.0).then_some(window)
}

/// Size for a buffer's maximum by what one connection is to carry, of which that share is payload.
pub fn buffer_for(rate: Rate, idle_rtt: Duration, fraction: f64) -> Bytes {
    let bdp = bdp(rate, idle_rtt).as_u64();
    Bytes::new(round_up_to_step(
        bdp as f64 * RECOVERY_HEADROOM / fraction.max(0.01),
    ))
}

/// A fraction of a size.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates; a fraction of a size is never below zero"
)]
pub(crate) fn scale(size: Bytes, fraction: f64) -> Bytes {
    Bytes::new((size.as_u64() as f64 * fraction.max(0.0)) as u64)
}

/// A rate from a model's floating-point bits per second; saturates, and NaN reads zero.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates at both ends, which is what a model's rate should do"
)]
pub fn bits_per_second(value: f64) -> Rate {
    Rate::from_bits_per_second(value as u64)
}

/// A duration from a model's seconds; saturates, and NaN reads zero.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates at both ends, which is what a model's time should do"
)]
pub fn seconds(value: f64) -> Duration {
    Duration::from_ns((value * 1e9) as u64)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and the result is capped"
)]
fn round_up_to_step(bytes: f64) -> u64 {
    const MIB: u64 = 1 << 20;
    let mib = (bytes / MIB as f64).ceil() as u64;
    mib.clamp(1, LARGEST_BUFFER_BYTES / MIB)
        .next_multiple_of(STEP_MIB)
        * MIB
}

/// `p` as a probability above zero: none for no loss (and for NaN), 1 for anything above.
fn loss_probability(p: f64) -> Option<f64> {
    (p > 0.0).then(|| p.min(1.0))
}

/// The part of CUBIC's window that does not depend on the loss rate (RFC 9438, section 5).
fn cubic_factor(rtt: Duration) -> f64 {
    let c = CUBIC_C * (3.0 + CUBIC_BETA) / (4.0 * (1.0 - CUBIC_BETA));
    c.powf(0.25) * rtt.as_s_f64().powf(0.75)
}

/// Window of AIMD(a, beta) with the a that makes it as fair as Reno (RFC 9438, section 4.3).
fn reno_friendly_window(p: f64) -> f64 {
    let alpha = 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA);
    (alpha * (1.0 + CUBIC_BETA) / (2.0 * (1.0 - CUBIC_BETA) * p)).sqrt()
}

fn rate_of_segments(window_segments: f64, mss_bytes: u64, rtt: Duration) -> Option<Rate> {
    let rtt = rtt.as_s_f64();
    (rtt > 0.0).then(|| bits_per_second(window_segments * mss_bytes as f64 * 8.0 / rtt))
}

/// IEEE 802.3: preamble and SFD 8, header 14, FCS 4, interpacket gap 12.
const ETHERNET_OVERHEAD_BYTES: u128 = 38;

/// RFC 9438, section 5.1: C SHOULD be 0.4. Linux: 41 * 10 / 1024 (net/ipv4/tcp_cubic.c).
const CUBIC_C: f64 = 0.4;

/// RFC 9438, section 4.6. Linux: 717 / 1024.
const CUBIC_BETA: f64 = 0.7;

/// RFC 7323, section 2.3: the window field is 16 bits, the shift at most 14.
pub const LARGEST_WINDOW: Bytes = Bytes::new(1 << 30);

/// Sizes that a person can read and remember; chosen.
const STEP_MIB: u64 = 4;

/// A window for the data in flight and one for what arrives while a loss is repaired; the kernel
/// doubles the congestion window into a send buffer for the same reason (net/ipv4/tcp_input.c,
/// `tcp_sndbuf_expand`).
const RECOVERY_HEADROOM: f64 = 2.0;

/// The sysctls are 32-bit signed; 1 GiB is the largest power of two that fits.
pub const LARGEST_BUFFER_BYTES: u64 = 1 << 30;

/// RFC 6928.
const INITIAL_WINDOW_SEGMENTS: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn mbps(rate: Rate) -> f64 {
        rate.as_bits_per_second() as f64 / 1e6
    }

    #[test]
    fn achievable_rates_are_the_published_ones() {
        let gigabit: Rate = "1Gb/s".parse().unwrap();
        let wan_phy: Rate = "9.2857Gb/s".parse().unwrap();
        let of = |rate, mtu, ip, ts| format!("{:.2}", mbps(achievable(rate, mtu, ip, ts)));
        assert_eq!(of(gigabit, 1_500, IpVersion::V4, true), "941.48");
        assert_eq!(of(gigabit, 1_500, IpVersion::V4, false), "949.28");
        assert_eq!(of(gigabit, 1_500, IpVersion::V6, true), "928.48");
        assert_eq!(of(wan_phy, 9_000, IpVersion::V4, true), "9193.23");
        assert_eq!(of(wan_phy, 9_000, IpVersion::V6, true), "9172.69");
    }

    #[test]
    fn an_mtu_without_room_for_headers_carries_nothing() {
        let rate = Rate::from_bits_per_second(1_000_000_000);
        assert_eq!(achievable(rate, 40, IpVersion::V6, true), Rate::default());
        assert_eq!(achievable(rate, 0, IpVersion::V4, true), Rate::default());
    }

    /// RFC 9438, section 5.1, tables 1 and 2, columns Reno and CUBIC (C = 0.4). Their Reno figures
    /// use RFC 3649's 1.2/sqrt(p) in place of sqrt(3/2)/sqrt(p): 2.1 % less, hence the tolerance.
    #[test]
    fn average_windows_are_those_of_rfc_9438() {
        let table_1 = [12.0, 38.0, 187.0, 1_054.0, 5_926.0, 33_325.0, 187_400.0];
        let table_2 = [12.0, 38.0, 120.0, 379.0, 1_200.0, 5_926.0, 33_325.0];
        for (rtt_ms, table) in [(100, table_1), (10, table_2)] {
            for (exponent, expected) in (2..).zip(table) {
                let p = 10_f64.powi(-exponent);
                let window = cubic_window_segments(Duration::from_ms(rtt_ms), p).unwrap();
                assert!(
                    (window / expected - 1.0).abs() < 0.026,
                    "{rtt_ms} ms {p}: {window}"
                );
            }
        }
        let reno = [12.0, 38.0, 120.0, 379.0, 1_200.0, 3_795.0, 12_000.0];
        for (exponent, expected) in (2..).zip(reno) {
            let p = 10_f64.powi(-exponent);
            let window = reno_window_segments(p, AckPolicy::EveryPacket).unwrap();
            assert!((window / expected - 1.0_f64).abs() < 0.026, "{p}: {window}");
        }
    }

    /// RFC 9438, section 5.2, table 3: loss rate that lets CUBIC reach a throughput with packets of
    /// 1500 bytes.
    #[test]
    fn loss_rates_that_cubic_bears_are_those_of_rfc_9438() {
        let rtt = Duration::from_ms(100);
        let table = [
            ("10Mb/s", 2.9e-4),
            ("100Mb/s", 1.4e-5),
            ("1Gb/s", 6.3e-7),
            ("10Gb/s", 2.9e-8),
        ];
        for (rate, expected) in table {
            let p = cubic_loss_max(rate.parse().unwrap(), rtt, 1_500).unwrap();
            assert!((p / expected - 1.0).abs() < 0.05, "{rate}: {p}");
        }
    }

    #[test]
    fn inverse_of_cubic_leads_back() {
        let rtt = Duration::from_ms(85);
        for p in [1e-2, 1e-4, 1e-6, 1e-8] {
            let rate = cubic(1_448, rtt, p).unwrap();
            let back = cubic_loss_max(rate, rtt, 1_448).unwrap();
            assert!((back / p - 1.0).abs() < 1e-3, "{p}: {back}");
        }
    }

    #[test]
    fn mathis_gives_the_worked_figures() {
        // MSS 1448, 85 ms, p = 1e-3: 38.73 segments a round trip.
        let rate = mathis(1_448, Duration::from_ms(85), 1e-3, AckPolicy::EveryPacket).unwrap();
        assert_eq!(rate.to_string(), "5.278 Mb/s");
        // Delayed ACKs cost a factor of sqrt(2).
        let delayed = mathis(1_448, Duration::from_ms(85), 1e-3, AckPolicy::Delayed).unwrap();
        assert!((mbps(rate) / mbps(delayed) - 2_f64.sqrt()).abs() < 1e-3);
    }

    /// measurement-and-diagnosis.md, section 1: 10G x 300 ms with jumbo frames and 1G x 300 ms.
    #[test]
    fn loss_budgets_are_those_of_the_long_fat_network_table() {
        let rtt = Duration::from_ms(300);
        let jumbo = loss_budget("10Gb/s".parse().unwrap(), rtt, 8_948).unwrap();
        assert!((jumbo.run_length_packets / 3.6e9 - 1.0).abs() < 0.02);
        assert!((jumbo.time_between.as_s_f64() / 3_600.0 - 5.0).abs() < 0.05);
        let gigabit = loss_budget("1Gb/s".parse().unwrap(), rtt, 1_448).unwrap();
        assert!((gigabit.loss_rate_max * 1.4e9 - 1.0).abs() < 0.03);
    }

    #[test]
    fn slow_start_doubles_from_ten_segments() {
        // 1 Gb/s x 85 ms = 7338 segments of 1448: ten doublings, then a round trip.
        let time = slow_start_time("1Gb/s".parse().unwrap(), Duration::from_ms(85), 1_448).unwrap();
        assert_eq!(time, Duration::from_ms(85).saturating_mul(11));
        assert_eq!(cubic_recovery_time(7_338.0).to_string(), "17.66 s");
    }

    #[test]
    fn a_formula_without_its_inputs_sets_no_limit() {
        let rtt = Duration::from_ms(85);
        assert_eq!(mathis(1_448, rtt, 0.0, AckPolicy::EveryPacket), None);
        assert_eq!(
            mathis(1_448, Duration::ZERO, 0.1, AckPolicy::EveryPacket),
            None
        );
        assert_eq!(cubic(1_448, rtt, f64::NAN), None);
        assert_eq!(window_limit(Bytes::new(65_536), Duration::ZERO), None);
        assert_eq!(loss_budget(Rate::default(), rtt, 1_448), None);
        assert_eq!(loss_budget(Rate::from_bits_per_second(1), rtt, 0), None);
    }
}
