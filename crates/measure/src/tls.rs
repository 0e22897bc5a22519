//! TLS 1.3 on data connections, to measure what a cipher costs.
//!
//! No authentication is claimed ([`::tls`]): what it measures is a cipher's work at both ends, in the threads that write
//! and read. Early data, resumption and tickets are off.
//!
//! The cryptography is ring's, for TLS and for QUIC ([`crate::quic`]) alike.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::crypto::ring::cipher_suite as suites;
use rustls::pki_types::ServerName;
use rustls::{
    ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection,
    SupportedCipherSuite,
};
use serde::{Deserialize, Serialize};
use sys::clock;
use units::Instant;

use crate::Stop;
use crate::wait::TICK;
use crate::wait::is_timeout;

/// What TLS encrypts with (RFC 8446, section B.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cipher {
    /// AES with a key of 128 bits in Galois/counter mode.
    #[default]
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm,
    /// AES with a key of 256 bits in Galois/counter mode.
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm,
    /// ChaCha20 with Poly1305.
    #[serde(rename = "chacha20-poly1305")]
    Chacha20Poly1305,
}

impl Cipher {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Aes128Gcm, Self::Aes256Gcm, Self::Chacha20Poly1305];

    /// Its name in flags and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "aes-128-gcm",
            Self::Aes256Gcm => "aes-256-gcm",
            Self::Chacha20Poly1305 => "chacha20-poly1305",
        }
    }

    fn suite(self) -> SupportedCipherSuite {
        match self {
            Self::Aes128Gcm => suites::TLS13_AES_128_GCM_SHA256,
            Self::Aes256Gcm => suites::TLS13_AES_256_GCM_SHA384,
            Self::Chacha20Poly1305 => suites::TLS13_CHACHA20_POLY1305_SHA256,
        }
    }
}

/// Which side of the handshake this is; either may send the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// One stream's encryption.
pub(crate) struct Sealed(Connection);

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealed")
    }
}

/// Shakes hands within the time that is left.
///
/// # Errors
/// `TimedOut` and `Interrupted` when that takes until then or is stopped; `InvalidData` when it fails.
pub(crate) fn shake_hands(
    mut socket: &TcpStream,
    side: Side,
    cipher: Cipher,
    until: Instant,
    stop: &Stop,
) -> io::Result<Sealed> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(TICK.to_std()))?;
    socket.set_write_timeout(Some(TICK.to_std()))?;
    let mut connection = connection(side, cipher).map_err(invalid)?;
    while connection.is_handshaking() || connection.wants_write() {
        match connection.complete_io(&mut socket) {
            Ok(_) => {}
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
        if stop.is_stopped() {
            return Err(ErrorKind::Interrupted.into());
        }
        if clock::monotonic() >= until {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    connection.set_buffer_limit(Some(BUFFER_BYTES));
    Ok(Sealed(connection))
}

fn connection(side: Side, cipher: Cipher) -> Result<Connection, rustls::Error> {
    match side {
        Side::Client => {
            let name = ServerName::try_from(::tls::NAME)
                .map_err(|_| rustls::Error::General("a name that is none".to_owned()))?;
            Ok(ClientConnection::new(Arc::new(client_config(cipher)?), name)?.into())
        }
        Side::Server => Ok(ServerConnection::new(Arc::new(server_config(cipher)?))?.into()),
    }
}

/// A client that encrypts with this cipher only, and takes any certificate.
pub(crate) fn client_config(cipher: Cipher) -> Result<ClientConfig, rustls::Error> {
    ::tls::client_config(cipher.suite())
}

/// A server that encrypts with this cipher only, and has the certificate that everybody has.
pub(crate) fn server_config(cipher: Cipher) -> Result<ServerConfig, rustls::Error> {
    ::tls::server_config(cipher.suite())
}

impl Sealed {
    /// Encrypts and sends as much of `block` as there is room for; what the kernel does not take now
    /// goes before the next.
    ///
    /// # Errors
    /// As write(2).
    pub(crate) fn write(&mut self, socket: &TcpStream, block: &[u8]) -> io::Result<usize> {
        self.flush(socket)?;
        let taken = self.0.writer().write(block)?;
        match self.flush(socket) {
            Err(error) if !is_timeout(&error) => Err(error),
            _ => Ok(taken),
        }
    }

    /// Sends what is left and the end, unless `give_up`.
    pub(crate) fn close(&mut self, socket: &TcpStream, give_up: impl Fn() -> bool) {
        self.0.send_close_notify();
        while !give_up() {
            match self.flush(socket) {
                Err(error) if is_timeout(&error) => {}
                // A peer that is gone tells so itself.
                _ => return,
            }
        }
    }

    /// Decrypted bytes; 0 at the end.
    ///
    /// # Errors
    /// As read(2); `InvalidData` for what does not decrypt.
    pub(crate) fn read(&mut self, mut socket: &TcpStream, block: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.reader().read(block) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Closed without the word for it, as an interrupted sender does.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            self.0.read_tls(&mut socket)?;
            self.0.process_new_packets().map_err(invalid)?;
        }
    }

    fn flush(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        while self.0.wants_write() {
            self.0.write_tls(&mut socket)?;
        }
        Ok(())
    }
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

/// What waits for the kernel in user space, some 16 records.
const BUFFER_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use std::thread;

    use units::Duration;

    use super::*;

    /// Both ends after a handshake with a cipher each.
    fn pair(client: Cipher, server: Cipher) -> io::Result<[(TcpStream, Sealed); 2]> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        let until = clock::monotonic() + Duration::from_s(20);
        let stop = Stop::new();
        thread::scope(|scope| {
            let theirs =
                scope.spawn(|| shake_hands(&far, Side::Server, server, until, &Stop::new()));
            let ours = shake_hands(&near, Side::Client, client, until, &stop);
            let theirs = theirs.join().unwrap();
            let (ours, theirs) = (ours?, theirs?);
            Ok([
                (near.try_clone().unwrap(), ours),
                (far.try_clone().unwrap(), theirs),
            ])
        })
    }

    #[test]
    fn both_ends_agree_on_the_cipher_that_was_named_or_on_nothing() {
        let all = [
            Cipher::Aes128Gcm,
            Cipher::Aes256Gcm,
            Cipher::Chacha20Poly1305,
        ];
        for client in all {
            for server in all {
                let Ok(ends) = pair(client, server) else {
                    assert_ne!(client, server);
                    continue;
                };
                assert_eq!(client, server);
                for (_, sealed) in &ends {
                    assert_eq!(sealed.0.negotiated_cipher_suite(), Some(client.suite()));
                }
            }
        }
    }

    #[test]
    fn what_was_changed_on_the_way_does_not_decrypt() {
        let [(near, mut ours), (far, mut theirs)] =
            pair(Cipher::default(), Cipher::default()).unwrap();
        assert_eq!(ours.write(&near, b"some bytes").unwrap(), 10);
        let mut block = [0; 100];
        assert_eq!(theirs.read(&far, &mut block).unwrap(), 10);
        assert_eq!(&block[..10], b"some bytes");
        // A record of a record's look (RFC 8446, section 5.2), but nobody sealed it.
        let forged = [&[23, 3, 3, 0, 32][..], &[0; 32]].concat();
        (&near).write_all(&forged).unwrap();
        let error = theirs.read(&far, &mut block).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn the_end_is_told_inside() {
        let [(near, mut ours), (far, mut theirs)] =
            pair(Cipher::default(), Cipher::default()).unwrap();
        ours.close(&near, || false);
        assert_eq!(theirs.read(&far, &mut [0; 8]).unwrap(), 0);
    }
}
