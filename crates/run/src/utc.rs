//! The time of day as run folders and logs have it: RFC 3339 in UTC.

/// A time of day in nanoseconds since 1970, RFC 3339 UTC.
pub fn utc_of_ns(ns: u64) -> String {
    let time = jiff::Timestamp::from_nanosecond(i128::from(ns));
    time.map_or_else(|_| String::new(), |t| t.to_string())
}

/// The time of day, RFC 3339 UTC.
pub fn now_utc() -> String {
    jiff::Timestamp::now().to_string()
}
