//! A transfer over UDP, at the client.

use std::io;
use std::net::{TcpStream, UdpSocket};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use sys::clock;
use units::Duration;

use super::{Client, DURING, GRACE, GRACE_MAX, Progress, Waited, expect, lost, reporter};
use crate::config::{BLOCK_BYTES_DEFAULT, DATAGRAM_BYTES_MAX};
use crate::control::Control;
use crate::crew::Role;
use crate::engine::Shape;
use crate::facts::clean;
use crate::message::{self, ADDRESS_CHALLENGE_BYTES, ADDRESS_NONCE_BYTES, Message, Refusal};
use crate::outcome::{IdleRtt, Outcome};
use crate::protocol::TOKEN_BYTES;
use crate::transfer::{Ending, Patience, in_time, unexpected};
use crate::transfer_udp::{accompany, framing, opening, set_options};
use crate::udp::UdpEngine;
use crate::wait::{TICK, timespec};
use crate::{Config, Direction, MeasureError, Stop};

impl Client {
    /// Payload of the largest datagram that crosses the path whole, as far as both ends know it.
    pub fn datagram_bytes(&self) -> u32 {
        let told = [self.near.path_mtu_bytes, self.far.host.path_mtu_bytes];
        let mtu = told.into_iter().flatten().min().unwrap_or(MTU_DEFAULT);
        // UDP over IP without options (RFC 768, RFC 791, RFC 8200).
        let headers = if self.addr.is_ipv4() { 28 } else { 48 };
        mtu.saturating_sub(headers)
            .clamp(DATAGRAM_MIN, DATAGRAM_BYTES_MAX)
    }

    /// The wish with the size of its datagrams settled.
    pub(super) fn fitted(&self, config: &Config) -> Config {
        let block_bytes = match config.block_bytes {
            BLOCK_BYTES_DEFAULT => self.datagram_bytes(),
            bytes => bytes,
        };
        Config {
            block_bytes,
            ..config.clone()
        }
    }

    /// From the token to the outcome.
    pub(super) fn transfer_datagrams(
        &self,
        control: &mut Control,
        config: &Config,
        role: Role,
        token: [u8; TOKEN_BYTES],
        about: (IdleRtt, &Stop, &mut dyn FnMut(Progress)),
    ) -> Result<Outcome, MeasureError> {
        let (idle_rtt, stop, progress) = about;
        let sockets = self.open_datagrams(control, config, role, token, stop)?;
        let engine = UdpEngine::prepare(role, config, sockets, Shape::of(config), framing(token));
        let engine = engine.map_err(|source| MeasureError::Local {
            what: "start the data threads",
            source,
        })?;
        let before = |t| lost(t, "before the first byte");
        let deadline = in_time(self.patience());
        control.send(&Message::Go, deadline, stop).map_err(before)?;
        if config.direction == Direction::Down {
            let heard = control.receive(deadline, stop).map_err(before)?;
            expect(heard, &Message::Started)?;
        }
        engine.go();
        let patience = Patience {
            silence: self.patience(),
            duration: config.duration,
            drain: config.drain,
        };
        let mut report = reporter(config.duration, || None, progress);
        let ending = accompany(control, &engine, patience, stop, &mut report)
            .map_err(|t| lost(t, DURING))?;
        let mut waited = Waited {
            control,
            stop,
            limit: self.patience(),
        };
        let interrupted = ending == Ending::Interrupted;
        if interrupted {
            let asked = waited
                .control
                .send(&Message::Stop, in_time(GRACE), &Stop::new());
            asked.map_err(|_| MeasureError::Interrupted)?;
            waited.limit = GRACE.max(idle_rtt.min.saturating_mul(4)).min(GRACE_MAX);
        }
        let (ours, _) = engine.finish();
        let theirs = waited.result(config.streams, interrupted)?;
        let (sender, receiver) = match role {
            Role::Sender => (ours, theirs),
            Role::Receiver => (theirs, ours),
        };
        let broken = sender.error.as_ref().or(receiver.error.as_ref());
        if let Some(error) = broken.filter(|_| !interrupted) {
            return Err(MeasureError::StreamBroken(error.clone()));
        }
        Ok(Outcome {
            config: config.clone(),
            idle_rtt,
            complete: ending == Ending::Complete && sender.bytes == receiver.bytes,
            sender,
            receiver,
            interrupted,
        })
    }

    /// Opens a socket for each stream and sends its opening, with the server's nonce once it has come, until
    /// the server has them all.
    pub(super) fn open_datagrams(
        &self,
        control: &mut Control,
        config: &Config,
        role: Role,
        token: [u8; TOKEN_BYTES],
        stop: &Stop,
    ) -> Result<Vec<UdpSocket>, MeasureError> {
        let local = |source| MeasureError::Local {
            what: "open a UDP socket",
            source,
        };
        let mut from = control.stream().local_addr().map_err(local)?;
        from.set_port(0);
        let mut sockets = Vec::new();
        for _ in 0..config.streams {
            let socket = self.approach.datagrams(from, self.addr).map_err(local)?;
            set_options(socket.as_fd(), role, config).map_err(local)?;
            sockets.push(socket);
        }
        let deadline = in_time(self.patience());
        let mut nonces = vec![None; sockets.len()];
        let mut due = clock::monotonic();
        loop {
            let challenged = take_challenges(&sockets, &mut nonces);
            let all = clock::monotonic() >= due;
            if all {
                due = in_time(HELLO_EVERY);
            }
            for ((socket, &nonce), stream) in sockets.iter().zip(&nonces).zip(0..) {
                if all || challenged.contains(&stream) {
                    // A refusal by ICMP may come from a port that is about to open; the server says
                    // in the end what it missed.
                    drop(socket.send(&opening(token, (stream, nonce))));
                }
            }
            let heard = control.try_receive(Duration::ZERO);
            match heard.map_err(|t| lost(t, "while the streams opened"))? {
                Some(Message::Ready) => return Ok(sockets),
                Some(Message::Refused(Refusal::Host { text })) => {
                    return Err(MeasureError::NoDatagrams {
                        detail: clean(&text),
                        port: self.addr.port(),
                    });
                }
                Some(other) => return Err(lost(unexpected(&other), "while the streams opened")),
                None => {}
            }
            if stop.is_stopped() {
                return Err(MeasureError::Interrupted);
            }
            if clock::monotonic() >= deadline {
                let silent = crate::control::Trouble::Silent;
                return Err(lost(silent, "while the streams opened"));
            }
            let wait = due.saturating_since(clock::monotonic()).min(TICK);
            wait_for_any(control.stream(), &sockets, wait).map_err(local)?;
        }
    }
}

/// Takes the nonces that the server has sent, and says of which streams.
fn take_challenges(
    sockets: &[UdpSocket],
    nonces: &mut [Option<[u8; ADDRESS_NONCE_BYTES]>],
) -> Vec<u16> {
    let mut challenged = Vec::new();
    for ((socket, nonce), stream) in sockets.iter().zip(nonces).zip(0..) {
        // One byte more, to tell what is longer.
        let mut datagram = [0; ADDRESS_CHALLENGE_BYTES + 1];
        for _ in 0..CHALLENGES_MAX {
            let Ok(len) = socket.recv(&mut datagram) else {
                break;
            };
            let fresh = message::parse_address_challenge(&datagram[..len]);
            if fresh.is_some() && fresh != *nonce {
                *nonce = fresh;
                challenged.push(stream);
            }
        }
    }
    challenged
}

/// Waits until a word or a datagram has come, the time is over, or a signal came.
fn wait_for_any(control: &TcpStream, sockets: &[UdpSocket], wait: Duration) -> io::Result<()> {
    let mut polled = vec![PollFd::new(control, PollFlags::IN)];
    polled.extend(sockets.iter().map(|s| PollFd::new(s, PollFlags::IN)));
    match poll(&mut polled, Some(&timespec(wait))) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What every route carries where nobody knows better.
const MTU_DEFAULT: u32 = 1_500;
/// Header and key.
const DATAGRAM_MIN: u32 = 24;
const _: () = assert!(DATAGRAM_MIN as usize == crate::datagram::KEYED_BYTES);
const HELLO_EVERY: Duration = Duration::from_ms(100);
/// Datagrams of one socket looked at in a row while it opens: what forges them is not to hold it up.
const CHALLENGES_MAX: u32 = 16;
