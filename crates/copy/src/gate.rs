//! The door of a daemon that serves copies: TLS 1.3, and who is there is known before a word of a job is read.
//!
//! Whoever connects proves that it holds the daemon's token, by HMAC-SHA-256 over its role and the connection's exported
//! secret (RFC 8446, section 7.5; the label of RFC 9266), or shows a certificate that the daemon's authority signed, or
//! both, as the daemon demands. Then the daemon proves itself by the same. Somebody between the two has two connections
//! with two secrets.
//!
//! Every connection that is not let in looks alike and lasts equally long: nothing is said, no alert either, and it ends
//! [`PATIENCE`] after it began, whatever was wrong and whenever that was known; or earlier, where too many are at the door.

use std::fmt;
use std::io::{self, BufRead as _, ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit as _, Mac as _};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use sha2::Sha256;

use crate::key::Key;
use crate::link::Socket;

/// How long somebody may take to say who it is, and how long every failure takes.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// How soon it is noticed that a connection was cut.
const STEP: Duration = Duration::from_millis(100);
/// The version of what is said at the door.
const VERSION: u8 = 1;
/// Version and proof.
const WORD_BYTES: usize = 1 + 32;

/// What a daemon lets in by.
#[derive(Clone)]
pub struct Gate {
    config: Arc<ServerConfig>,
    token: Option<Key>,
    patience: Duration,
}

/// What somebody who comes to a daemon has.
#[derive(Clone)]
pub struct Visitor {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    token: Option<Key>,
    patience: Duration,
}

/// A connection to somebody who is known.
pub struct Line {
    tls: Connection,
    socket: Socket,
    /// What is not read by then is not waited for.
    until: Option<Instant>,
    /// Nor, where there is such a time, any silence that is longer.
    patience: Duration,
}

impl Gate {
    /// Lets in who passes the TLS of `config` and, where there is a token, holds it.
    pub fn new(config: ServerConfig, token: Option<Key>) -> Self {
        Self {
            config: Arc::new(config),
            token,
            patience: PATIENCE,
        }
    }

    /// With another patience than [`PATIENCE`].
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Finds out who is there, who connected at `since`. Ends when the gate's patience after that is over at the latest, and
    /// exactly then where it refuses.
    ///
    /// # Errors
    /// `PermissionDenied`, with what was wrong for the daemon's own log; the other side was told nothing.
    pub fn admit(&self, socket: Socket, since: Instant) -> io::Result<Line> {
        self.admit_unless(socket, since, &AtomicBool::new(false))
    }

    /// As [`Gate::admit`], until `cut`: whoever shuts the socket from elsewhere sets it before, and then nothing is waited
    /// for.
    ///
    /// # Errors
    /// As [`Gate::admit`].
    pub fn admit_unless(
        &self,
        socket: Socket,
        since: Instant,
        cut: &AtomicBool,
    ) -> io::Result<Line> {
        let until = since + self.patience;
        match self.known(&socket, until) {
            Ok(tls) => {
                socket.set_patience(None)?;
                Ok(Line::new(tls, socket, self.patience))
            }
            Err(error) => {
                refuse(&socket, until, cut);
                Err(io::Error::new(
                    ErrorKind::PermissionDenied,
                    error.to_string(),
                ))
            }
        }
    }

    fn known(&self, socket: &Socket, until: Instant) -> io::Result<Connection> {
        let tls = ServerConnection::new(Arc::clone(&self.config)).map_err(invalid)?;
        let mut tls = Connection::from(tls);
        while tls.is_handshaking() {
            while tls.wants_write() {
                tls.write_tls(&mut &*socket)?;
            }
            if tls.is_handshaking() {
                take(&mut tls, socket, Some(until))?;
            }
        }
        let mut word = [0; WORD_BYTES];
        read_exact(&mut tls, socket, &mut word, Some(until))?;
        let proof = proof(&tls, self.token.as_ref(), b"client")?;
        if self.token.is_some() && proof.verify_slice(&word[1..]).is_err() {
            return Err(io::Error::other("no token, or another"));
        }
        let mine = self.proof(&tls)?;
        tls.writer().write_all(&mine)?;
        flush(&mut tls, socket)?;
        Ok(tls)
    }

    fn proof(&self, tls: &Connection) -> io::Result<Vec<u8>> {
        word(tls, self.token.as_ref(), b"daemon")
    }
}

impl Visitor {
    /// Comes to a daemon called `name`, which a certificate has to say where `config` looks at certificates.
    ///
    /// # Errors
    /// `InvalidInput` for what is no name of a host.
    pub fn new(config: ClientConfig, name: &str, token: Option<Key>) -> io::Result<Self> {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        Ok(Self {
            config: Arc::new(config),
            name,
            token,
            patience: PATIENCE,
        })
    }

    /// Comes to a gate of another patience than [`PATIENCE`].
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Shows who this is, and finds out whether it is the daemon.
    ///
    /// # Errors
    /// `PermissionDenied` where one of the two is not satisfied; `Unsupported` where it speaks another version; as the
    /// socket.
    pub fn enter(&self, socket: Socket) -> io::Result<Line> {
        // Longer than a refusal takes.
        let until = Instant::now() + self.patience * 3;
        let tls = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        let mut tls = Connection::from(tls.map_err(invalid)?);
        let refused = |error: io::Error| match error.kind() {
            // The daemon's certificate is not what it should be: this side's own finding.
            ErrorKind::InvalidData => io::Error::new(ErrorKind::PermissionDenied, error),
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                io::Error::new(
                    ErrorKind::PermissionDenied,
                    "the daemon let nobody in: it has another token than this side, or does not know \
                     its certificate, or is none",
                )
            }
            _ => error,
        };
        while tls.is_handshaking() {
            flush(&mut tls, &socket).map_err(refused)?;
            if tls.is_handshaking() {
                take(&mut tls, &socket, Some(until)).map_err(refused)?;
            }
        }
        let mine = word(&tls, self.token.as_ref(), b"client")?;
        tls.writer().write_all(&mine)?;
        flush(&mut tls, &socket).map_err(refused)?;
        let mut word = [0; WORD_BYTES];
        read_exact(&mut tls, &socket, &mut word, Some(until)).map_err(refused)?;
        let proof = proof(&tls, self.token.as_ref(), b"daemon")?;
        if self.token.is_some() && proof.verify_slice(&word[1..]).is_err() {
            return Err(io::Error::new(
                ErrorKind::PermissionDenied,
                "the daemon does not hold this side's token",
            ));
        }
        if word[0] != VERSION {
            return Err(io::Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the daemon speaks version {} at its door, this side {VERSION}: bring the older \
                     one up to date",
                    word[0]
                ),
            ));
        }
        socket.set_patience(None)?;
        Ok(Line::new(tls, socket, self.patience))
    }
}

impl Line {
    const fn new(tls: Connection, socket: Socket, patience: Duration) -> Self {
        Self {
            tls,
            socket,
            until: None,
            patience,
        }
    }

    /// The socket under it.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Until when is read what comes next, and of it no silence longer than the patience of whoever
    /// made it; `None` for ever.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn set_deadline(&mut self, until: Option<Instant>) -> io::Result<()> {
        self.until = until;
        self.socket.set_patience(until.map(|_| self.patience))
    }
}

impl Read for Line {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let until = self
            .until
            .map(|until| until.min(Instant::now() + self.patience));
        read(&mut self.tls, &self.socket, bytes, until)
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.tls.writer().write(bytes)?;
        flush(&mut self.tls, &self.socket)?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        flush(&mut self.tls, &self.socket)
    }
}

/// Reads what comes until the time is over and forgets it, then ends the connection: what becomes of everybody who is not let
/// in. At once where `cut` is set, by whoever shut the socket.
pub fn refuse(socket: &Socket, until: Instant, cut: &AtomicBool) {
    let mut bytes = [0; 4096];
    let mut hears = true;
    while let Some(left) = left(until)
        && !cut.load(Ordering::Acquire)
    {
        let step = left.min(STEP);
        if !hears {
            // It has said all it wants to, or is gone.
            std::thread::sleep(step);
            continue;
        }
        let mut from = socket;
        hears = socket.set_patience(Some(step)).is_ok()
            && match from.read(&mut bytes) {
                Ok(heard) => heard > 0,
                Err(error) => matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ),
            };
    }
    socket.shut();
}

fn left(until: Instant) -> Option<Duration> {
    let left = until.checked_duration_since(Instant::now());
    left.filter(|left| *left >= Duration::from_millis(1))
}

/// Takes what the other side sends into TLS. Writes nothing, no alert either.
fn take(tls: &mut Connection, socket: &Socket, until: Option<Instant>) -> io::Result<()> {
    if let Some(until) = until {
        let left = left(until).ok_or_else(|| io::Error::from(ErrorKind::TimedOut))?;
        socket.set_patience(Some(left))?;
    }
    let taken = match tls.read_tls(&mut &*socket) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            return Err(ErrorKind::TimedOut.into());
        }
        other => other?,
    };
    tls.process_new_packets().map_err(invalid)?;
    match taken {
        0 if tls.is_handshaking() => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

fn read(
    tls: &mut Connection,
    socket: &Socket,
    bytes: &mut [u8],
    until: Option<Instant>,
) -> io::Result<usize> {
    loop {
        match tls.reader().fill_buf() {
            Ok(ready) => {
                let taken = ready.len().min(bytes.len());
                bytes[..taken].copy_from_slice(&ready[..taken]);
                tls.reader().consume(taken);
                return Ok(taken);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        take(tls, socket, until)?;
    }
}

fn read_exact(
    tls: &mut Connection,
    socket: &Socket,
    mut bytes: &mut [u8],
    until: Option<Instant>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match read(tls, socket, bytes, until)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            taken => bytes = &mut bytes[taken..],
        }
    }
    Ok(())
}

fn flush(tls: &mut Connection, mut socket: &Socket) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(&mut socket)?;
    }
    Ok(())
}

/// What a side that has a token, or none, proves with.
fn proof(tls: &Connection, token: Option<&Key>, role: &[u8]) -> io::Result<Hmac<Sha256>> {
    let secret = tls
        .export_keying_material([0; 32], b"EXPORTER-Channel-Binding", Some(&[]))
        .map_err(invalid)?;
    let none = [0; 32];
    let key = token.map_or(&none, Key::bytes);
    let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(io::Error::other)?;
    mac.update(b"goodput gate: ");
    mac.update(role);
    mac.update(&secret);
    Ok(mac)
}

fn word(tls: &Connection, token: Option<&Key>, role: &[u8]) -> io::Result<Vec<u8>> {
    let mut word = vec![VERSION];
    word.extend_from_slice(&proof(tls, token, role)?.finalize().into_bytes());
    Ok(word)
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

impl fmt::Debug for Visitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visitor")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line")
            .field("socket", &self.socket)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    const SHORT: Duration = Duration::from_millis(300);

    fn gate(token: Option<u8>) -> Gate {
        Gate::new(tls::gate_server(None, None).unwrap(), key(token)).with_patience(SHORT)
    }

    fn visitor(token: Option<u8>) -> Visitor {
        Visitor::new(
            tls::gate_client(None, None).unwrap(),
            "localhost",
            key(token),
        )
        .unwrap()
    }

    fn key(digit: Option<u8>) -> Option<Key> {
        digit.and_then(|digit| Key::from_hex(&format!("{digit:02x}").repeat(32)))
    }

    /// What both sides say, and how long the gate took.
    fn meet(gate: &Gate, visitor: &Visitor) -> (io::Result<Line>, io::Result<Line>, Duration) {
        let (near, far) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            let since = Instant::now();
            let entered = scope.spawn(|| visitor.enter(Socket::Unix(near)));
            let admitted = gate.admit(Socket::Unix(far), since);
            let took = since.elapsed();
            (admitted, entered.join().unwrap(), took)
        })
    }

    #[test]
    fn who_has_the_token_is_let_in_and_heard() {
        let (admitted, entered, _) = meet(&gate(Some(1)), &visitor(Some(1)));
        let (mut admitted, mut entered) = (admitted.unwrap(), entered.unwrap());
        entered.write_all(b"a job").unwrap();
        let mut heard = [0; 5];
        admitted.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"a job");
        admitted.write_all(b"yes").unwrap();
        drop(admitted);
        let mut answer = Vec::new();
        let _ = entered.read_to_end(&mut answer);
        assert_eq!(answer, b"yes");
    }

    #[test]
    fn every_failure_looks_and_lasts_alike() {
        for token in [None, Some(2)] {
            let (admitted, entered, took) = meet(&gate(Some(1)), &visitor(token));
            assert_eq!(admitted.unwrap_err().kind(), ErrorKind::PermissionDenied);
            let error = entered.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("let nobody in"), "{error}");
            assert!(took >= SHORT - Duration::from_millis(2), "{took:?}");
        }
        // Nothing that is TLS, nothing at all, and somebody who leaves.
        for said in [&b"GET / HTTP/1.0\r\n\r\n"[..], &[0x16, 3, 1, 255, 255], b""] {
            let (near, far) = UnixStream::pair().unwrap();
            let since = Instant::now();
            let gate = gate(Some(1));
            let admitted = thread::spawn(move || gate.admit(Socket::Unix(far), since));
            (&near).write_all(said).unwrap();
            let mut heard = Vec::new();
            (&near).read_to_end(&mut heard).unwrap();
            assert!(heard.is_empty(), "{heard:?}");
            assert!(since.elapsed() >= SHORT - Duration::from_millis(2));
            assert_eq!(
                admitted.join().unwrap().unwrap_err().kind(),
                ErrorKind::PermissionDenied
            );
        }
    }

    #[test]
    fn who_is_cut_is_not_waited_for() {
        let (near, far) = UnixStream::pair().unwrap();
        let patience = Duration::from_secs(60);
        let gate = gate(Some(1)).with_patience(patience);
        let cut = AtomicBool::new(false);
        let since = Instant::now();
        thread::scope(|scope| {
            let socket = Socket::Unix(far.try_clone().unwrap());
            let admitted = scope.spawn(|| gate.admit_unless(socket, since, &cut));
            // It is no TLS, and nothing more: all that is left is to wait.
            (&near).write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
            near.shutdown(std::net::Shutdown::Write).unwrap();
            cut.store(true, Ordering::Release);
            Socket::Unix(far).shut();
            let error = admitted.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert!(since.elapsed() < patience);
        });
    }

    #[test]
    fn a_deadline_is_for_all_that_is_read() {
        let (admitted, entered, _) = meet(&gate(Some(1)), &visitor(Some(1)));
        let (mut admitted, mut entered) = (admitted.unwrap(), entered.unwrap());
        thread::scope(|scope| {
            // Somebody who is never silent for long.
            scope.spawn(move || {
                for _ in 0..100 {
                    if entered.write_all(b" ").is_err() {
                        break;
                    }
                    thread::sleep(SHORT / 10);
                }
            });
            admitted.set_deadline(Some(Instant::now() + SHORT)).unwrap();
            let mut bytes = Vec::new();
            let error = admitted.read_to_end(&mut bytes).unwrap_err();
            admitted.socket().shut();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
        });
    }

    #[test]
    fn a_daemon_without_the_token_is_found_out() {
        for token in [None, Some(2)] {
            // It lets in whoever comes.
            let open = Gate {
                token: None,
                ..gate(None)
            };
            let pretends = Gate {
                token: key(token),
                ..open
            };
            let (_, entered, _) = meet(&pretends, &visitor(Some(1)));
            assert_eq!(
                entered.unwrap_err().kind(),
                ErrorKind::PermissionDenied,
                "{token:?}"
            );
        }
    }
}
