//! iperf3's control connection in bytes: cookies, states, JSON with its length. Pure functions that
//! take anything and never panic.
//!
//! A connection opens with a cookie of 36 characters and a zero byte; one cookie marks all
//! connections of a test. States are single bytes, signed. JSON follows a u32 in network order, its
//! length. There is no magic and no version before the parameters. Observed of iperf 3.12 on
//! loopback, and read in its later sources.

use serde_json::Value;

/// Bytes of a cookie, its zero byte included.
pub const COOKIE_BYTES: usize = 37;

/// What marks the connections of one test.
pub type Cookie = [u8; COOKIE_BYTES];

/// Largest parameters taken. iperf3 itself takes 8 KiB.
pub const PARAMS_BYTES_MAX: usize = 100 * 1024;

/// Largest results taken from a server that was asked for its own report, which has a row for each
/// stream and interval.
pub const REPORT_BYTES_MAX: usize = 16 << 20;

/// Largest results taken otherwise: some 300 bytes for a stream, two for both directions.
pub fn results_bytes_max(streams: u16) -> usize {
    64 * 1024 + 2 * 1024 * usize::from(streams)
}

/// What a control connection says between JSON messages. `→` clients, `←` servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// ← Streams are there: set timers.
    TestStart,
    /// ← Send.
    TestRunning,
    /// → The time is over or everything was sent.
    TestEnd,
    /// ← Say what is wanted.
    ParamExchange,
    /// ← Open the data connections.
    CreateStreams,
    /// ← The server is being stopped.
    ServerTerminate,
    /// → The client is being stopped.
    ClientTerminate,
    /// ← Say what was measured; the server answers with its own.
    ExchangeResults,
    /// ← Both ends know everything.
    DisplayResults,
    /// Neither sends it.
    IperfStart,
    /// → Goodbye.
    IperfDone,
    /// ← Another test is running.
    AccessDenied,
    /// ← Two i32 in network order follow: iperf3's error number and errno.
    ServerError,
}

const STATES: [(State, i8); 13] = [
    (State::TestStart, 1),
    (State::TestRunning, 2),
    (State::TestEnd, 4),
    (State::ParamExchange, 9),
    (State::CreateStreams, 10),
    (State::ServerTerminate, 11),
    (State::ClientTerminate, 12),
    (State::ExchangeResults, 13),
    (State::DisplayResults, 14),
    (State::IperfStart, 15),
    (State::IperfDone, 16),
    (State::AccessDenied, -1),
    (State::ServerError, -2),
];

impl State {
    /// The state of a byte, if it is one.
    pub fn of(byte: u8) -> Option<Self> {
        let found = STATES.iter().find(|(_, n)| n.to_ne_bytes() == [byte]);
        found.map(|&(state, _)| state)
    }

    /// Its byte.
    pub fn byte(self) -> u8 {
        let found = STATES.iter().find(|(state, _)| *state == self);
        found.map_or(0, |(_, n)| n.to_ne_bytes()[0])
    }
}

/// What the first bytes of a connection are to iperf3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeardCookie {
    /// So far a cookie, but not all of it.
    More,
    /// A cookie.
    Whole(Cookie),
    /// No cookie, whatever follows.
    Foreign,
}

/// Reads a cookie from the first bytes of a connection. iperf3's own have lower-case letters and 2
/// to 7; any letters and digits are taken.
pub fn hear_cookie(bytes: &[u8]) -> HeardCookie {
    let text = &bytes[..bytes.len().min(COOKIE_BYTES - 1)];
    if !text.iter().all(u8::is_ascii_alphanumeric) {
        return HeardCookie::Foreign;
    }
    match bytes.first_chunk::<COOKIE_BYTES>() {
        None => HeardCookie::More,
        Some(cookie) if cookie[COOKIE_BYTES - 1] == 0 => HeardCookie::Whole(*cookie),
        Some(_) => HeardCookie::Foreign,
    }
}

/// A cookie as iperf3 makes them, of random bytes.
pub fn cookie_of(random: [u8; COOKIE_BYTES - 1]) -> Cookie {
    let mut cookie = [0; COOKIE_BYTES];
    for (to, from) in cookie.iter_mut().zip(random) {
        *to = b"abcdefghijklmnopqrstuvwxyz234567"[usize::from(from % 32)];
    }
    cookie
}

/// JSON with its length before it.
pub fn encode(json: &Value) -> Vec<u8> {
    let text = json.to_string();
    // What we send are some hundred bytes a stream.
    let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let mut out = len.to_be_bytes().to_vec();
    out.extend_from_slice(text.as_bytes());
    out
}

/// Reads one JSON message from the front of `bytes`: it and how many bytes it took, or `None` when
/// more bytes are needed.
///
/// # Errors
///
/// A length of zero or above `max`, or bytes that are no JSON.
pub fn decode(bytes: &[u8], max: usize) -> Result<Option<(Value, usize)>, String> {
    let Some(prefix) = bytes.first_chunk::<4>() else {
        return Ok(None);
    };
    let len = usize::try_from(u32::from_be_bytes(*prefix)).unwrap_or(usize::MAX);
    if len == 0 || len > max {
        return Err(format!("a message of {len} bytes; 1 to {max} work"));
    }
    let Some(text) = bytes.get(4..4 + len) else {
        return Ok(None);
    };
    let value = serde_json::from_slice(text).map_err(|e| format!("no JSON: {e}"))?;
    Ok(Some((value, 4 + len)))
}

/// A whole number of a JSON object, none where it is absent, no number or not finite. iperf3 3.12
/// writes -1 as 2^64 - 1, which reads as -1 here; fractions are cut.
pub(super) fn integer(object: &Value, key: &str) -> Option<i64> {
    let value = object.get(key)?;
    if let Some(n) = value.as_i64() {
        return Some(n);
    }
    if let Some(n) = value.as_u64() {
        return Some(n.cast_signed());
    }
    let float = value.as_f64().filter(|n| n.is_finite())?;
    // 2^64 - 1 rounded to a float is 2^64.
    if float >= 18_446_744_073_709_551_615.0 {
        return Some(-1);
    }
    #[allow(clippy::cast_possible_truncation, reason = "a float cast saturates")]
    Some(float as i64)
}

/// A number that is not negative, zero where there is none.
pub(super) fn count(object: &Value, key: &str) -> u64 {
    integer(object, key).map_or(0, |n| u64::try_from(n).unwrap_or(0))
}

/// A number with a fraction, finite and not negative, else zero.
pub(super) fn float(object: &Value, key: &str) -> f64 {
    let number = object.get(key).and_then(Value::as_f64).unwrap_or(0.0);
    if number.is_finite() && number > 0.0 {
        number
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_state_is_its_byte_and_back() {
        for (state, n) in STATES {
            assert_eq!(State::of(n.to_ne_bytes()[0]), Some(state));
            assert_eq!(state.byte(), n.to_ne_bytes()[0]);
        }
        assert_eq!(State::AccessDenied.byte(), 0xff);
        assert_eq!(State::of(3), None);
        assert_eq!(State::of(17), None);
    }

    #[test]
    fn a_cookie_is_36_letters_and_a_zero() {
        let cookie = b"tub4wmuh2fvsz6tguqyaos4eshksgzoyjp2w\0";
        assert_eq!(hear_cookie(cookie), HeardCookie::Whole(*cookie));
        assert_eq!(hear_cookie(&cookie[..36]), HeardCookie::More);
        assert_eq!(hear_cookie(b""), HeardCookie::More);
        assert_eq!(
            hear_cookie(b"goodput-measure 001 ctl\n"),
            HeardCookie::Foreign
        );
        assert_eq!(hear_cookie(b"GET / HTTP/1.1"), HeardCookie::Foreign);
        let mut long = *cookie;
        long[36] = b'a';
        assert_eq!(hear_cookie(&long), HeardCookie::Foreign);
        let made = cookie_of([255; 36]);
        assert_eq!(hear_cookie(&made), HeardCookie::Whole(made));
    }

    #[test]
    fn a_message_waits_for_its_length_and_is_refused_above_the_limit() {
        let bytes = encode(&json!({"tcp": true}));
        assert_eq!(bytes[..4], [0, 0, 0, 12]);
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut], 12), Ok(None), "{cut}");
        }
        assert_eq!(decode(&bytes, 12), Ok(Some((json!({"tcp": true}), 16))));
        assert!(decode(&bytes, 11).is_err());
        assert!(decode(&[0, 0, 0, 0], 12).is_err(), "zero length");
        assert!(decode(&[255; 4], REPORT_BYTES_MAX).is_err());
        assert!(decode(&[0, 0, 0, 1, b'{'], 12).is_err(), "no JSON");
    }

    #[test]
    fn numbers_read_as_iperf3_writes_them() {
        let object = json!({"a": 18_446_744_073_709_551_615_u64, "b": 1e3, "c": "x", "d": -4, "e": 1.8446744073709552e19});
        assert_eq!(integer(&object, "a"), Some(-1));
        assert_eq!(integer(&object, "e"), Some(-1));
        assert_eq!(integer(&object, "b"), Some(1000));
        assert_eq!(integer(&object, "c"), None);
        assert_eq!(integer(&object, "nothing"), None);
        assert_eq!(count(&object, "d"), 0);
        assert!(float(&object, "d").abs() < f64::EPSILON);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_a_wait_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = hear_cookie(&bytes);
            if let Ok(Some((_, used))) = decode(&bytes, PARAMS_BYTES_MAX) {
                prop_assert!(used <= bytes.len());
            }
        }
    }
}
