//! The short way to use this crate: a tree from one end to another, over connections that the caller makes.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::destination::Destination;
use crate::engine::receive::{ReceiveOptions, receive};
use crate::engine::send::{SendOptions, send};
use crate::engine::tune::Streams;
use crate::engine::{CopyError, Watch};
use crate::filter::Filter;
use crate::key::{Key, SessionId};
use crate::link::Cipher;
use crate::meeting::{Dial, Meeting};
use crate::message::Account;
use crate::source::{Keep, Source};
use crate::ways::Way;

/// What two ends share before a copy: a number, a key that is used once, and the cipher, AES-128-GCM unless another is set.
///
/// One end makes it and hands [`Session::secret`] to the other by a channel that nobody else reads, such as the standard
/// input of a process that ssh started. Its `Debug` hides the key.
#[derive(Clone)]
pub struct Session {
    id: SessionId,
    key: Key,
    cipher: Cipher,
}

impl Session {
    /// A new one.
    ///
    /// # Errors
    /// As [`sys::random::fill`].
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            id: SessionId::random()?,
            key: Key::random()?,
            cipher: Cipher::Aes128Gcm,
        })
    }

    /// Number and key as 96 hexadecimal digits.
    pub fn secret(&self) -> String {
        format!("{}{}", self.id, self.key.to_hex())
    }

    /// From [`Session::secret`]; `None` for what is none.
    ///
    /// ```
    /// let near = copy::Session::new()?;
    /// let far = copy::Session::of_secret(&near.secret()).ok_or("no secret")?;
    /// assert_eq!(near.secret(), far.secret());
    /// assert!(copy::Session::of_secret("guessed").is_none());
    /// assert!(!format!("{near:?}").contains(&near.secret()[32..]));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn of_secret(secret: &str) -> Option<Self> {
        let (id, key) = secret.split_at_checked(32)?;
        Some(Self {
            id: SessionId::from_hex(id)?,
            key: Key::from_hex(key)?,
            cipher: Cipher::Aes128Gcm,
        })
    }

    /// With another cipher; both ends have to say the same one.
    #[must_use]
    pub fn with_cipher(self, cipher: Cipher) -> Self {
        Self { cipher, ..self }
    }

    /// This end makes connections, each by calling `dial`, from several threads, and again after one was cut.
    pub fn connects(&self, dial: Dial) -> Meeting {
        Meeting::connecting(dial, self.id, self.key.clone(), self.cipher)
    }

    /// This end makes connections by several ways at once, such as addresses of the other end.
    pub fn connects_over(&self, ways: Vec<Way>) -> Meeting {
        Meeting::connecting_over(ways, self.id, self.key.clone(), self.cipher)
    }

    /// This end takes connections: give each that arrives to [`Meeting::take`], or a listener to
    /// [`meeting::listen`](crate::meeting::listen).
    pub fn listens(&self) -> Meeting {
        Meeting::listening(self.id, self.key.clone(), vec![self.cipher])
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id)
            .field("cipher", &self.cipher)
            .finish_non_exhaustive()
    }
}

/// Sends `from` as rsync(1) reads it, `dir` with its name and `dir/` without, keeping all that can be kept; ends when the
/// other end has all of it, and closes `meeting`.
///
/// # Errors
/// As [`CopyError`] tells. What arrived stays for the next attempt at the same.
pub fn send_tree(meeting: &Meeting, from: &Path, watch: &Watch) -> Result<Account, CopyError> {
    let (all, options) = (Filter::new(), SendOptions::default());
    let sent = match Source::open(&[from]) {
        Ok(source) => send(meeting, &source, &all, &options, watch),
        Err(error) => Err(CopyError::Here(error.to_string())),
    };
    meeting.close();
    sent
}

/// Writes what the other end sends into the folder `to`, which is made if its parent is there, and nothing anywhere else;
/// files get their names when they are whole and checked, those longer than 256 KiB when they are on the disk too; the others
/// are there when this returns. Closes `meeting`.
///
/// # Errors
/// As [`CopyError`] tells.
pub fn receive_tree(meeting: &Meeting, to: &Path, watch: &Watch) -> Result<Account, CopyError> {
    let options = ReceiveOptions {
        fsync: true,
        ..ReceiveOptions::default()
    };
    let received = match Destination::resolve(to, false, false) {
        Ok((destination, _)) => receive(meeting, &destination, &options, watch),
        Err(error) => Err(CopyError::Here(format!("{}: {error}", to.display()))),
    };
    meeting.close();
    received
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Names that the source told so far, of all kinds.
    pub names: u64,
    /// Bytes to be sent, as far as known; of a source.
    pub wanted_bytes: u64,
    /// Bytes of them that the destination confirmed; of a destination, that arrived.
    pub confirmed_bytes: u64,
    /// Files that stand under their names.
    pub placed: u64,
    /// Connections that carry bytes.
    pub streams: u64,
}

impl Watch {
    /// How far it is now; may be asked at any time, from any thread.
    pub fn progress(&self) -> Progress {
        let now = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Progress {
            names: now(&self.names),
            wanted_bytes: now(&self.wanted_bytes),
            confirmed_bytes: now(&self.confirmed_bytes),
            placed: now(&self.placed),
            streams: now(&self.streams),
        }
    }
}

impl Default for SendOptions {
    /// All is kept, as many streams as help, up to 32.
    fn default() -> Self {
        Self {
            keep: Keep::default(),
            streams: Streams::Chosen { most: 32 },
            block: None,
            limit: None,
            null: false,
            congestion: None,
            pacing: crate::engine::gaps::Pacing::default(),
            has_helpers: false,
            io: crate::engine::disk::Io::default(),
            tells_all_attributes: false,
            leaves_out_zeros: false,
            unasked: false,
        }
    }
}
