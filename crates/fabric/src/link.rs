//! Cables and what goes over them: lanes, signalling, encoding, propagation, and how far copper reaches.
//!
//! Sources: signalling rates and VL codes as rdma-core's `libibmad/dump.c` prints them; 8b/10b up to QDR and 64b/66b
//! from FDR on (InfiniBand Architecture Specification, volume 2). From HDR on the code is 256b/257b under
//! RS-FEC(544,514), which leaves 16 of 17 bits.

use std::fmt;
use std::str::FromStr;

use units::Rate;

/// Signalling of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Speed {
    /// 1.25 Gb/s: Gigabit Ethernet.
    Ge1,
    /// 2.5 Gb/s.
    Sdr,
    /// 3.125 Gb/s: four lanes are 10GBASE-CX4 and 10GBASE-LX4.
    Cx4,
    /// 5 Gb/s.
    Ddr,
    /// 10 Gb/s.
    Qdr,
    /// 10.3125 Gb/s: 10GBASE-R, and 40 Gigabit Ethernet of four lanes.
    Ge10,
    /// 14.0625 Gb/s.
    Fdr,
    /// 25.78125 Gb/s.
    Edr,
    /// 53.125 Gb/s.
    Hdr,
    /// 106.25 Gb/s.
    Ndr,
    /// 212.5 Gb/s.
    Xdr,
}

impl Speed {
    /// Those of InfiniBand, slowest first.
    pub const ALL: [Self; 8] = [
        Self::Sdr,
        Self::Ddr,
        Self::Qdr,
        Self::Fdr,
        Self::Edr,
        Self::Hdr,
        Self::Ndr,
        Self::Xdr,
    ];

    /// As it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ge1 => "1ge",
            Self::Cx4 => "cx4",
            Self::Ge10 => "10ge",
            Self::Sdr => "sdr",
            Self::Ddr => "ddr",
            Self::Qdr => "qdr",
            Self::Fdr => "fdr",
            Self::Edr => "edr",
            Self::Hdr => "hdr",
            Self::Ndr => "ndr",
            Self::Xdr => "xdr",
        }
    }

    /// Bits on a lane per second.
    pub const fn signalling(self) -> Rate {
        Rate::from_bits_per_second(match self {
            Self::Ge1 => 1_250_000_000,
            Self::Cx4 => 3_125_000_000,
            Self::Ge10 => 10_312_500_000,
            Self::Sdr => 2_500_000_000,
            Self::Ddr => 5_000_000_000,
            Self::Qdr => 10_000_000_000,
            Self::Fdr => 14_062_500_000,
            Self::Edr => 25_781_250_000,
            Self::Hdr => 53_125_000_000,
            Self::Ndr => 106_250_000_000,
            Self::Xdr => 212_500_000_000,
        })
    }

    /// Data bits of how many bits on the lane.
    pub const fn code(self) -> (u64, u64) {
        match self {
            Self::Ge1 | Self::Sdr | Self::Cx4 | Self::Ddr | Self::Qdr => (8, 10),
            Self::Ge10 | Self::Fdr | Self::Edr => (64, 66),
            Self::Hdr | Self::Ndr | Self::Xdr => (16, 17),
        }
    }

    /// How it is called: `8b/10b`.
    pub const fn code_name(self) -> &'static str {
        match self {
            Self::Ge1 | Self::Sdr | Self::Cx4 | Self::Ddr | Self::Qdr => "8b/10b",
            Self::Ge10 | Self::Fdr | Self::Edr => "64b/66b",
            Self::Hdr | Self::Ndr | Self::Xdr => "256b/257b and RS-FEC",
        }
    }

    /// Signalling and lanes of an Ethernet of so many gigabits a second: 1, 10, 25, 40, 50, 100, 200, 400 or 800
    /// (IEEE 802.3; from 50 Gb/s a lane on with RS-FEC).
    pub const fn ethernet(gigabits: u32) -> Option<(Self, u8)> {
        match gigabits {
            1 => Some((Self::Ge1, 1)),
            10 => Some((Self::Ge10, 1)),
            25 => Some((Self::Edr, 1)),
            40 => Some((Self::Ge10, 4)),
            50 => Some((Self::Hdr, 1)),
            100 => Some((Self::Edr, 4)),
            200 => Some((Self::Hdr, 4)),
            400 => Some((Self::Ndr, 4)),
            800 => Some((Self::Ndr, 8)),
            _ => None,
        }
    }

    /// Time of a byte on so many lanes.
    ///
    /// # Panics
    /// When there are none.
    pub const fn byte_time(self, lanes: u8) -> ByteTime {
        let (data, of) = self.code();
        ByteTime::new(
            8 * PS_PER_S * of,
            data * self.signalling().as_bits_per_second() * lanes as u64,
        )
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name().to_ascii_uppercase())
    }
}

impl FromStr for Speed {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|s| s.name() == lower)
            .ok_or_else(|| {
                format!(
                    "'{text}' is no link speed; expected sdr, ddr, qdr, fdr, edr, hdr, ndr or xdr"
                )
            })
    }
}

/// Picoseconds of a byte as a fraction in lowest terms, so that nothing is rounded but sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteTime {
    over: u64,
    under: u64,
}

impl ByteTime {
    /// `over / under` ps.
    ///
    /// # Panics
    /// When `under` is zero.
    pub const fn new(over: u64, under: u64) -> Self {
        assert!(under > 0, "a byte takes a finite time");
        let (mut a, mut b) = (over, under);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        Self {
            over: over / a,
            under: under / a,
        }
    }

    /// Of a rate above zero.
    ///
    /// # Panics
    /// When the rate is zero.
    pub const fn of_rate(rate: Rate) -> Self {
        Self::new(8 * PS_PER_S, rate.as_bits_per_second())
    }

    /// Time of `bytes`, rounded down; what is left is carried in `rest` to the next ones.
    pub const fn take(self, bytes: u32, rest: &mut u64) -> u64 {
        let sum = bytes as u64 * self.over + *rest;
        if self.under == 1 {
            return sum;
        }
        *rest = sum % self.under;
        sum / self.under
    }

    /// Time of `bytes` where a byte takes whole picoseconds.
    #[inline]
    pub const fn whole(self, bytes: u32) -> Option<u64> {
        match self.under {
            1 => Some(bytes as u64 * self.over),
            _ => None,
        }
    }

    /// Time of `bytes` alone, rounded down.
    pub const fn of(self, bytes: u32) -> u64 {
        bytes as u64 * self.over / self.under
    }

    /// Picoseconds of one byte, for formulas.
    #[allow(clippy::cast_precision_loss, reason = "for formulas")]
    pub fn as_f64(self) -> f64 {
        self.over as f64 / self.under as f64
    }

    /// True when a byte takes less time than in `other`.
    pub const fn is_shorter_than(self, other: Self) -> bool {
        (self.over as u128) * (other.under as u128) < (other.over as u128) * (self.under as u128)
    }
}

/// What a cable is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CableKind {
    /// Twin-axial copper.
    Copper,
    /// Multimode fibre: active cables, transceivers, media converters.
    Fibre,
}

impl CableKind {
    /// Delay of a metre.
    pub const fn ps_per_m(self) -> u64 {
        match self {
            // 0.7 of the speed of light, as the delay of 476 ns for 100 m in tables of PFC headroom.
            Self::Copper => 4_760,
            // Group index 1.482 of 50 um multimode fibre at 850 nm (data sheets of OM2 and OM3 fibre).
            Self::Fibre => 4_943,
        }
    }
}

/// A cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cable {
    /// Of what.
    pub kind: CableKind,
    /// Length.
    pub length_mm: u64,
    /// Fastest signalling that its electronics were made for: the link trains down to it.
    pub rated: Option<Speed>,
    /// Time in its electronics, in each direction.
    pub electronics_ps: u64,
}

impl Cable {
    /// From one end to the other.
    pub const fn delay_ps(&self) -> u64 {
        self.length_mm * self.kind.ps_per_m() / 1_000 + self.electronics_ps
    }
}

/// Longest passive copper by lanes and signalling: table 1 of M. Minich, "Infiniband Based Cable Comparison",
/// ORNL, 2007, after a white paper of Cisco. Nothing is known of what the table leaves out.
pub const COPPER_REACH_M: [(Speed, u8, u64); 5] = [
    (Speed::Sdr, 1, 20),
    (Speed::Sdr, 4, 15),
    (Speed::Sdr, 12, 10),
    (Speed::Ddr, 4, 10),
    (Speed::Ddr, 12, 7),
];

/// The table's entry.
pub fn copper_reach_m(speed: Speed, lanes: u8) -> Option<u64> {
    let entry = COPPER_REACH_M
        .iter()
        .find(|(s, l, _)| (*s, *l) == (speed, lanes));
    entry.map(|(_, _, reach)| *reach)
}

/// Picoseconds in a second.
pub const PS_PER_S: u64 = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_lanes_carry_the_data_rates_that_they_are_known_by() {
        for (speed, gigabits) in [
            (Speed::Sdr, 8.0),
            (Speed::Ddr, 16.0),
            (Speed::Qdr, 32.0),
            (Speed::Fdr, 54.545_454_545),
            (Speed::Edr, 100.0),
            (Speed::Hdr, 200.0),
            (Speed::Ndr, 400.0),
            (Speed::Xdr, 800.0),
        ] {
            let rate = 8_000.0 / speed.byte_time(4).as_f64();
            assert!((rate - gigabits).abs() < 1e-6, "{speed}: {rate}");
        }
    }

    #[test]
    fn ethernets_carry_what_they_are_called() {
        for gigabits in [1, 10, 25, 40, 50, 100, 200, 400, 800] {
            let (speed, lanes) = Speed::ethernet(gigabits).unwrap();
            let rate = 8_000.0 / speed.byte_time(lanes).as_f64();
            assert!((rate - f64::from(gigabits)).abs() < 1e-9, "{rate}");
        }
        assert_eq!(Speed::ethernet(11), None);
        let cx4 = 8_000.0 / Speed::Cx4.byte_time(4).as_f64();
        assert!((cx4 - 10.0).abs() < 1e-9, "{cx4}");
    }

    #[test]
    fn a_million_packets_at_an_odd_rate_do_not_drift() {
        let byte = Speed::Fdr.byte_time(4);
        let mut rest = 0;
        let total: u64 = (0..1_000_000).map(|_| byte.take(2076, &mut rest)).sum();
        // 440 / 3 ps a byte.
        assert_eq!(total, 1_000_000 * 2076 * 440 / 3);
    }

    #[test]
    fn names_read_back_and_others_are_refused() {
        for speed in Speed::ALL {
            assert_eq!(speed.name().parse(), Ok(speed));
        }
        assert!("fast".parse::<Speed>().unwrap_err().contains("sdr, ddr"));
    }

    #[test]
    fn a_hundred_metres_of_fibre_take_half_a_microsecond() {
        let cable = Cable {
            kind: CableKind::Fibre,
            length_mm: 100_000,
            rated: None,
            electronics_ps: 0,
        };
        assert_eq!(cable.delay_ps(), 494_300);
    }
}
