//! Numbers between units: shares, and what runs and people count in.

pub(crate) fn share(part: u64, whole: u64) -> f64 {
    float(part) / float(whole.max(1))
}

pub(crate) fn megabytes(bits_per_second: u64) -> f64 {
    float(bits_per_second) / 8e6
}

pub(crate) fn ns(ps: u64) -> f64 {
    float(ps) / 1e3
}

#[allow(
    clippy::cast_precision_loss,
    reason = "for people, and shares of rates"
)]
pub(crate) const fn float(n: u64) -> f64 {
    n as f64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate, positive and far below 2^63"
)]
pub(crate) fn bits(bytes_per_second: f64) -> u64 {
    (bytes_per_second * 8.0).round() as u64
}

/// Metres as a person writes them.
pub fn length(mm: u64) -> String {
    match mm % 1_000 {
        0 => format!("{} m", mm / 1_000),
        rest => format!("{}.{:03} m", mm / 1_000, rest),
    }
}
