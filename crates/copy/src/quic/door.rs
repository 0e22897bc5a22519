//! One socket at which the datagrams of many sessions arrive: a daemon's.
//!
//! Strangers get no answer here either: first packets are known by the names of the sessions that are expected at that
//! moment, and there is none before somebody was let in over TCP.

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use super::{Names, Quic, Roll};
use crate::key::{Key, SessionId};
use crate::link::{Cipher, Socket};

/// A socket for many sessions. Dropping it ends all of their connections.
#[derive(Debug)]
pub struct Door {
    quic: Quic,
    roll: Roll,
}

/// A session whose connections are taken, until this is dropped; those that stand then stay.
#[derive(Debug)]
pub struct Expected {
    roll: Roll,
    session: SessionId,
}

impl Door {
    /// At this socket, with all ciphers that QUIC has: whoever connects has one of them, and what a session allows is seen to by its greeting.
    ///
    /// # Errors
    /// What the kernel says of the socket and of threads.
    pub fn open(socket: UdpSocket) -> io::Result<Self> {
        let roll = Roll::default();
        let quic = Quic::listening_for(
            socket,
            roll.clone(),
            &[
                Cipher::Aes128Gcm,
                Cipher::Aes256Gcm,
                Cipher::Chacha20Poly1305,
            ],
        )?;
        Ok(Self { quic, roll })
    }

    /// Takes connections of a session from now on.
    pub fn expect(&self, session: SessionId, key: &Key) -> Expected {
        let key = key.clone();
        self.roll.lock().push(Names { session, key });
        Expected {
            roll: self.roll.clone(),
            session,
        }
    }

    /// The next connection that somebody opened who is expected, if one comes in time: a link's greeting follows on it.
    pub fn next(&self, patience: Duration) -> Option<Socket> {
        self.quic.next(patience).map(Socket::Quic)
    }

    /// Whether it takes nothing any more.
    pub fn is_over(&self) -> bool {
        self.quic.is_over()
    }

    /// Ends all connections.
    pub fn close(&self) {
        self.quic.close();
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.roll.forget(self.session);
    }
}
