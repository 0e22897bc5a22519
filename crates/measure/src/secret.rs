//! The token that both ends share, and how each proves that it has it without saying it.
//!
//! The server sends a nonce, the client answers with one of its own and a proof over both; only then
//! the server proves itself the same way. A proof is HMAC-SHA-256 (RFC 2104, FIPS 180-4), with the
//! token as the key, over protocol, role and both nonces: the role keeps a proof from being sent back
//! to who made it, the nonces keep it from being used twice.
//!
//! What it does not do: nothing is encrypted, and who can change packets on the path may take an
//! authenticated connection over. Who listens can try tokens against a proof at leisure, so a token
//! is to be random, not a word; short ones are refused.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::MeasureError;
use crate::protocol::PROTOCOL;

/// A shared token. Never shown: its `Debug` hides it.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

/// Random bytes that are used once.
pub(crate) type Nonce = [u8; 32];

/// Who proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prover {
    Client,
    Server,
}

impl Secret {
    /// Takes a token of 16 to 4096 bytes; blanks and line ends at its end are not part of it.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in words that do not show it.
    pub fn new(bytes: &[u8]) -> Result<Self, String> {
        let bytes = bytes.trim_ascii_end();
        match bytes.len() {
            len if len < TOKEN_BYTES_MIN => Err(format!(
                "a token of {len} bytes is soon guessed; take at least {TOKEN_BYTES_MIN}, such as \
                 `head -c 24 /dev/urandom | base64` gives"
            )),
            len if len > TOKEN_BYTES_MAX => {
                Err(format!("a token has at most {TOKEN_BYTES_MAX} bytes"))
            }
            _ => Ok(Self(bytes.to_vec())),
        }
    }

    /// Reads a token from a file that only its owner can read or write.
    ///
    /// # Errors
    ///
    /// [`MeasureError::TokenFile`] when it cannot be read, others could read it, or what it holds is
    /// no token.
    pub fn read(path: &Path) -> Result<Self, MeasureError> {
        let fail = |problem: String| MeasureError::TokenFile {
            path: path.to_owned(),
            problem,
        };
        let read = || -> io::Result<(u32, Vec<u8>)> {
            let file = File::open(path)?;
            // Of what was opened, not of what may stand there by now.
            let mode = file.metadata()?.permissions().mode();
            let mut bytes = Vec::new();
            file.take(TOKEN_BYTES_MAX as u64 + 64)
                .read_to_end(&mut bytes)?;
            Ok((mode, bytes))
        };
        let (mode, bytes) = read().map_err(|error| fail(error.to_string()))?;
        if mode & 0o077 != 0 {
            let shown = mode & 0o777;
            return Err(fail(format!(
                "others can use it (mode {shown:03o}); say `chmod 600` to it"
            )));
        }
        Self::new(&bytes).map_err(fail)
    }

    /// A key for another purpose, as 64 hexadecimal digits: HMAC-SHA-256 of the purpose. Nothing that measurements prove is one.
    pub fn derived(&self, purpose: &str) -> String {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(format!("goodput-derived {purpose}\n").as_bytes());
        to_hex(&mac.finalize().into_bytes().into())
    }

    /// The proof of one end.
    pub(crate) fn proof(&self, prover: Prover, server: &Nonce, client: &Nonce) -> [u8; 32] {
        self.mac(prover, server, client)
            .finalize()
            .into_bytes()
            .into()
    }

    /// Checks a proof, in a time that does not tell how much of it is right.
    pub(crate) fn proves(
        &self,
        proof: &[u8; 32],
        prover: Prover,
        server: &Nonce,
        client: &Nonce,
    ) -> bool {
        self.mac(prover, server, client).verify_slice(proof).is_ok()
    }

    fn mac(&self, prover: Prover, server: &Nonce, client: &Nonce) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        let role = match prover {
            Prover::Client => "client",
            Prover::Server => "server",
        };
        // All parts have one length within a protocol number, so that none can pass for another.
        mac.update(format!("goodput-measure {PROTOCOL:03} {role}\n").as_bytes());
        mac.update(server);
        mac.update(client);
        mac
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A nonce from the kernel's generator.
pub(crate) fn nonce() -> io::Result<Nonce> {
    sys::random::bytes()
}

/// 32 bytes as hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// 32 bytes from 64 hexadecimal digits.
pub(crate) fn from_hex(hex: &str) -> Option<[u8; 32]> {
    if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&hex[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}

/// 96 bits of hexadecimal digits would have 24 bytes; of base64, 16.
const TOKEN_BYTES_MIN: usize = 16;
const TOKEN_BYTES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Secret {
        Secret::new(b"correct horse battery staple").unwrap()
    }

    /// Computed with Python's hmac module.
    #[test]
    fn a_proof_is_hmac_sha_256_over_protocol_role_and_both_nonces() {
        let proof = secret().proof(Prover::Client, &[1; 32], &[2; 32]);
        assert_eq!(to_hex(&proof), PROOF);
    }

    #[test]
    fn a_proof_holds_for_its_token_role_and_nonces_only() {
        let (server, client) = ([1; 32], [2; 32]);
        let proof = secret().proof(Prover::Client, &server, &client);
        let holds = |s: &Secret, prover, a: &Nonce, b: &Nonce| s.proves(&proof, prover, a, b);
        assert!(holds(&secret(), Prover::Client, &server, &client));
        let other = Secret::new(b"correct horse battery stapler").unwrap();
        assert!(!holds(&other, Prover::Client, &server, &client));
        assert!(!holds(&secret(), Prover::Server, &server, &client));
        assert!(!holds(&secret(), Prover::Client, &client, &server));
        assert!(!holds(&secret(), Prover::Client, &server, &[3; 32]));
        let mut bent = proof;
        bent[31] ^= 1;
        assert!(!secret().proves(&bent, Prover::Client, &server, &client));
    }

    #[test]
    fn a_token_is_neither_short_nor_endless_and_never_shown() {
        assert!(Secret::new(&[b'x'; 15]).is_err());
        assert!(Secret::new(&[b'x'; 16]).is_ok());
        assert!(Secret::new(b"fifteen bytes..\n\n").is_err());
        assert!(Secret::new(&[b'x'; 4096]).is_ok());
        assert!(Secret::new(&[b'x'; 4097]).is_err());
        assert_eq!(format!("{:?}", secret()), "Secret(..)");
    }

    #[test]
    fn a_token_file_that_others_can_use_is_refused() {
        let path = std::env::temp_dir().join(format!("goodput-token-{}", std::process::id()));
        std::fs::write(&path, b"correct horse battery staple\n").unwrap();
        for (mode, fine) in [(0o600, true), (0o400, true), (0o640, false), (0o602, false)] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let read = Secret::read(&path);
            assert_eq!(read.is_ok(), fine, "{mode:o}");
            if let Err(error) = read {
                let text = error.to_string();
                assert!(
                    text.contains("chmod 600") && !text.contains("horse"),
                    "{text}"
                );
            }
        }
        std::fs::remove_file(&path).unwrap();
        assert!(Secret::read(&path).is_err());
    }

    #[test]
    fn digits_read_back() {
        assert_eq!(from_hex(&to_hex(&[0xa5; 32])), Some([0xa5; 32]));
        assert_eq!(from_hex(&"+".repeat(64)), None);
        assert_eq!(from_hex(&"0".repeat(63)), None);
        assert_eq!(from_hex(&"\u{e4}".repeat(32)), None);
    }

    const PROOF: &str = "159c287baafb138bde10cb4fc3ef7eb7dc4e6a078e8a9e2503e350d28856196b";
}
