//! A session's name and its key.

use std::fmt;
use std::io;

/// The number that names a session; no secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

impl SessionId {
    /// A new one.
    ///
    /// # Errors
    /// As [`sys::random::fill`].
    pub fn random() -> io::Result<Self> {
        let mut id = [0; 16];
        id.copy_from_slice(&nonce()?[..16]);
        Ok(Self(id))
    }

    /// From 32 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        Some(Self(bytes_of(text)?))
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What both sides of a session share, 256 bits. Never shown: its `Debug` hides it.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// A new one.
    ///
    /// # Errors
    /// As [`sys::random::fill`].
    pub fn random() -> io::Result<Self> {
        Ok(Self(nonce()?))
    }

    /// From 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        Some(Self(bytes_of(text)?))
    }

    /// As 64 hexadecimal digits, for the one place it is told: the far side's standard input.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A key for one purpose and one connection.
    pub(crate) fn derived(&self, purpose: &str, said: &[u8]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key(purpose);
        hasher.update(&self.0);
        hasher.update(said);
        *hasher.finalize().as_bytes()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Random bytes that are used once.
pub(crate) fn nonce() -> io::Result<[u8; 32]> {
    sys::random::bytes()
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn bytes_of<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}
