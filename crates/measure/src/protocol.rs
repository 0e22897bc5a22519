//! What both ends hold to in every message: the number of the protocol, and the size of a token.

/// The protocol that this code speaks. Raised whenever two ends could misunderstand each other.
pub const PROTOCOL: u16 = 1;

/// Bytes of a session token.
pub const TOKEN_BYTES: usize = 16;
