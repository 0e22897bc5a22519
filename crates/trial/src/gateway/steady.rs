//! Connections that send a little all the time, to see what a change of the way does to them: whether every byte
//! comes, and how long nothing did.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fault::Cause;
use lab::Host;
use serde_json::{Value, json};
use sys::threads;

use super::exact::{self, Pattern};

/// Such connections, until they are ended.
pub(super) struct Steady {
    over: Arc<AtomicBool>,
    ends: Vec<Ends>,
}

struct Ends {
    sends: JoinHandle<std::io::Result<u64>>,
    hears: JoinHandle<std::io::Result<Heard>>,
}

/// What came.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    bytes: u64,
    right: bool,
    longest_pause: Duration,
}

impl Steady {
    /// So many from `near` to each of `to` by turns.
    pub(super) fn start(near: &Host, to: &[&Host], count: usize) -> Result<Self, Cause> {
        let over = Arc::new(AtomicBool::new(false));
        let mut ends = Vec::new();
        for n in 0..count {
            let port = u16::try_from(PORT + n)?;
            let (a, b) = exact::pair(near, to[n % to.len()], port)?;
            let flag = Arc::clone(&over);
            ends.push(Ends {
                sends: threads::spawn("gp-sends", move || send(a, &flag))?,
                hears: threads::spawn("gp-hears", move || hear(b))?,
            });
        }
        Ok(Self { over, ends })
    }

    /// Ends them; what came of all that was sent.
    pub(super) fn end(self) -> Value {
        self.over.store(true, Ordering::Relaxed);
        let (mut bytes, mut whole, mut broken) = (0, 0_usize, 0_usize);
        let mut longest = Duration::ZERO;
        let all = self.ends.len();
        for Ends { sends, hears } in self.ends {
            let (sent, heard) = (sends.join(), hears.join());
            let (Ok(Ok(sent)), Ok(Ok(heard))) = (sent, heard) else {
                broken += 1;
                continue;
            };
            bytes += heard.bytes;
            whole += usize::from(heard.right && heard.bytes == sent);
            longest = longest.max(heard.longest_pause);
        }
        json!({
            "connections": all,
            "whole": whole,
            "broken": broken,
            "bytes": bytes,
            "longest_pause_ns": u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX),
        })
    }
}

/// A piece each [`EVERY`]; returns how much.
fn send(mut socket: TcpStream, over: &AtomicBool) -> std::io::Result<u64> {
    let mut sent = 0;
    let mut piece = vec![0; PIECE];
    while !over.load(Ordering::Relaxed) {
        PATTERN.fill(sent, &mut piece);
        socket.write_all(&piece)?;
        sent += piece.len() as u64;
        thread::sleep(EVERY);
    }
    socket.shutdown(Shutdown::Write)?;
    Ok(sent)
}

fn hear(mut socket: TcpStream) -> std::io::Result<Heard> {
    let mut heard = Heard {
        right: true,
        ..Heard::default()
    };
    let (mut buffer, mut expected) = (vec![0; 65_536], vec![0; 65_536]);
    let mut last = Instant::now();
    loop {
        let read = match socket.read(&mut buffer) {
            Ok(0) => return Ok(heard),
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        heard.longest_pause = heard.longest_pause.max(last.elapsed());
        last = Instant::now();
        PATTERN.fill(heard.bytes, &mut expected[..read]);
        heard.right &= buffer[..read] == expected[..read];
        heard.bytes += read as u64;
    }
}

const PATTERN: Pattern = Pattern::new(3);
const PORT: usize = 5500;
/// 0.4 Mb/s each: what it takes of the others' links is little.
const PIECE: usize = 1_000;
const EVERY: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn what_came_is_compared_byte_by_byte() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let mut right = vec![0; 3_000];
        PATTERN.fill(0, &mut right);
        let mut wrong = right.clone();
        wrong[2_999] ^= 1;
        for (bytes, is_right) in [(right, true), (wrong, false)] {
            let mut a = TcpStream::connect(to).unwrap();
            let (b, _) = listener.accept().unwrap();
            a.write_all(&bytes).unwrap();
            drop(a);
            let heard = hear(b).unwrap();
            assert_eq!((heard.bytes, heard.right), (3_000, is_right));
        }
    }
}
