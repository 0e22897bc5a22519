//! Whether a connection through a gateway is what TCP says it is: every byte once and in order, each end's
//! end and reset the other's.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use fault::Cause;
use lab::Host;
use serde_json::{Value, json};
use sys::threads;
use units::Rng;

/// Tries all of it between two hosts.
pub(super) fn of(near: &Host, far: &Host) -> Result<Value, Cause> {
    let mut bytes = 0;
    let mut whole = true;
    // Who says first that he has no more: half-close in either order.
    for near_ends_first in [true, false] {
        let (a, b) = pair(near, far, PORT)?;
        let (there, back) = (Pattern::new(1), Pattern::new(2));
        let (first, second) = match near_ends_first {
            true => ((a, there, back), (b, back, there)),
            false => ((b, back, there), (a, there, back)),
        };
        let ends = thread::scope(|scope| {
            let first = threads::scoped(scope, "gp-speaks", || {
                speak(first.0, first.1, first.2, false)
            });
            let second = threads::scoped(scope, "gp-speaks", || {
                speak(second.0, second.1, second.2, true)
            });
            [first, second].map(|end| end.map(ScopedJoinHandle::join))
        });
        for end in ends {
            let got = end?.map_err(|_| "a thread panicked")??;
            whole &= got == Some(LENGTH);
            bytes += got.unwrap_or(0);
        }
    }
    let mut resets = true;
    for near_resets in [true, false] {
        let (a, b) = pair(near, far, PORT)?;
        let (resets_it, hears) = if near_resets { (a, b) } else { (b, a) };
        sys::tcp::set_reset_on_close(resets_it.as_fd())?;
        drop(resets_it);
        let heard = (&hears).read(&mut [0; 16]);
        resets &= heard.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset);
    }
    Ok(json!({
        "bytes": bytes,
        "bytes_wanted": 4 * LENGTH,
        "whole": whole,
        "resets_pass": resets,
    }))
}

/// One short connection that says a word each way.
pub(super) fn greet(near: &Host, far: &Host, port: usize) -> Result<(), Cause> {
    let (mut a, mut b) = pair(near, far, u16::try_from(port)?)?;
    let mut word = [0; 5];
    a.write_all(b"there")?;
    b.read_exact(&mut word)?;
    b.write_all(b"back!")?;
    a.read_exact(&mut word)?;
    Ok(())
}

pub(super) fn pair(near: &Host, far: &Host, port: u16) -> Result<(TcpStream, TcpStream), Cause> {
    let address = SocketAddr::from((far.address(), port));
    let listener = far
        .run(|| TcpListener::bind(address))?
        .map_err(|_| "listening on the far host")?;
    let connect = || TcpStream::connect_timeout(&address, PATIENCE);
    let a = near.run(connect)?.map_err(|_| "connecting")?;
    let (b, _) = listener.accept()?;
    for end in [&a, &b] {
        end.set_read_timeout(Some(PATIENCE))?;
        end.set_write_timeout(Some(PATIENCE))?;
    }
    Ok((a, b))
}

/// Sends one pattern in pieces of random size, and reads the other meanwhile. Who ends `last` does so when
/// the other's end has come.
fn speak(
    socket: TcpStream,
    own: Pattern,
    others: Pattern,
    last: bool,
) -> Result<Option<u64>, Cause> {
    let reader = socket.try_clone()?;
    let reading = threads::spawn("gp-reads", move || listen(reader, others))?;
    let mut rng = Rng::new(own.seed);
    let (mut at, mut buffer) = (0, vec![0; 200_000]);
    while at < LENGTH {
        let piece = 1 + rng.next_u64() % buffer.len() as u64;
        let piece = piece.min(LENGTH - at);
        let part = &mut buffer[..usize::try_from(piece)?];
        own.fill(at, part);
        (&socket).write_all(part)?;
        at += piece;
        if rng.next_u64().is_multiple_of(8) {
            thread::sleep(Duration::from_millis(rng.next_u64() % 5));
        }
    }
    if !last {
        socket.shutdown(Shutdown::Write)?;
    }
    let got = reading.join().map_err(|_| "a thread panicked")??;
    if last {
        socket.shutdown(Shutdown::Write)?;
    }
    Ok(got)
}

/// How much came until the end; `None` where it is not what was sent.
fn listen(mut socket: TcpStream, pattern: Pattern) -> Result<Option<u64>, Cause> {
    let (mut at, mut right) = (0, true);
    let (mut buffer, mut expected) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        let read = socket.read(&mut buffer)?;
        if read == 0 {
            return Ok(right.then_some(at));
        }
        pattern.fill(at, &mut expected[..read]);
        right &= buffer[..read] == expected[..read];
        at += read as u64;
        // What is right so far: a wrong stream need not be read to its end, but it has one.
    }
}

/// Bytes that are known by their place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    seed: u64,
}

impl Pattern {
    pub(super) const fn new(seed: u64) -> Self {
        Self { seed }
    }

    pub(super) fn fill(self, from: u64, into: &mut [u8]) {
        for (place, byte) in (from..).zip(into) {
            // The upper byte of a product with an odd number (Knuth's multiplicative hash).
            let mixed = (place ^ self.seed << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *byte = mixed.to_be_bytes()[0];
        }
    }
}

const PORT: u16 = 5208;
const LENGTH: u64 = 8 << 20;
const PATIENCE: Duration = Duration::from_secs(20);
