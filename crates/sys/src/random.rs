//! Random bytes from the kernel's generator, by a call: no file of that name has to be there, or be the right one.
//!
//! Source: getrandom(2).

use std::io;

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes`; waits for a generator that is not seeded yet, soon after boot.
///
/// # Errors
/// As getrandom(2); a call that a signal interrupts is repeated.
pub fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// So many of them.
///
/// # Errors
/// As [`fill`].
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    fill(&mut bytes)?;
    Ok(bytes)
}

/// 64 bits as hexadecimal digits, for names that nobody can guess.
///
/// # Errors
/// As [`fill`].
pub fn digits() -> io::Result<String> {
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_are_filled_and_no_two_calls_agree() {
        // One call returns 256 bytes at most while a signal is pending.
        let mut long = vec![0; 100_000];
        fill(&mut long).unwrap();
        assert!(
            long.chunks(16)
                .all(|part| part.iter().any(|byte| *byte != 0))
        );
        fill(&mut []).unwrap();
        assert_ne!(bytes::<32>().unwrap(), bytes::<32>().unwrap());
        let (one, other) = (digits().unwrap(), digits().unwrap());
        assert_ne!(one, other);
        assert!(one.len() == 16 && one.bytes().all(|b| b.is_ascii_hexdigit()));
    }
}
