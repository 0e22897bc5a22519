//! A transfer over UDP, at the server.
//!
//! Datagrams come to the UDP port with the number of the TCP port that the client reached. A stream
//! opens with the datagram that a data connection would open with; the socket that receives it is
//! connected to its source and becomes the stream's, and the next listens in its place. So
//! one port serves all, and a stream's datagrams pass whatever let its opening pass, in both
//! directions. `Ready` over TCP says that all have come, and the client repeats them until then.
//!
//! **A source address can be forged, and what `down` sends goes there.** So an opening counts only from the
//! address of the control connection, which TCP's handshake has proved, and from the port there that
//! repeats a nonce sent to it: the server answers an opening without the nonce with a challenge, which is
//! shorter than the opening. An opening without the transfer's token, or from elsewhere, gets no answer.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use rustix::event::PollFlags;
use sys::clock;
use tracing::debug;
use units::Duration;

use super::{GATHER_TICK, Leave, Place, Session};
use crate::control::{Control, Trouble};
use crate::crew::Role;
use crate::lobby::source_of;
use crate::message::{self, ADDRESS_CHALLENGE_BYTES, ADDRESS_NONCE_BYTES, Message, Refusal};
use crate::transfer::{in_time, unexpected};
use crate::transfer_udp::{OPENING_BYTES_MAX, accompany, framing, opened, set_options};
use crate::turns::Turn;
use crate::udp::{self, UdpEngine};
use crate::wait::{TICK, wait_for};
use crate::{Config, STREAMS_MAX};

impl Session {
    /// From the token to the result.
    pub(super) fn transfer_datagrams(
        &self,
        control: &mut Control,
        config: &Config,
        role: Role,
        place: &Place<'_>,
    ) -> Result<(), Leave> {
        let Some(sockets) = self.gather_datagrams(control, config, role, place)? else {
            return Ok(());
        };
        let key = framing(place.token);
        let engine = UdpEngine::prepare(role, config, sockets, self.shape(config), key)
            .map_err(|error| Leave::Host(format!("cannot prepare the streams: {error}")))?;
        if !self.may_go(control, role)? {
            return self.tell(control, &engine.finish().0);
        }
        engine.go();
        let patience = self.patience(config);
        let ending = accompany(control, &engine, patience, &self.house.stop, &mut |_, _| {})?;
        if self.house.stop.is_stopped() {
            return Err(Trouble::Stopped.into());
        }
        let (result, _) = engine.finish();
        let how = format!("{ending:?}").to_lowercase();
        self.account(config, role, result.bytes, result.duration, &how);
        self.tell(control, &result)
    }

    /// Waits until every stream's opening has come; `None`, after a refusal, where not all do.
    pub(super) fn gather_datagrams(
        &self,
        control: &mut Control,
        config: &Config,
        role: Role,
        place: &Place<'_>,
    ) -> Result<Option<Vec<UdpSocket>>, Leave> {
        let host = |error: io::Error| Leave::Host(format!("cannot open a UDP port: {error}"));
        let turn = self.udp_turn(control)?;
        let here = control.stream().local_addr().map_err(host)?;
        // There before the client knows that it may send.
        // With the transfer's options before it answers: its answers are marked too.
        let listen = || -> io::Result<UdpSocket> {
            let desk = udp::beside(here)?;
            set_options(desk.as_fd(), role, config)?;
            Ok(desk)
        };
        let mut desk = listen().map_err(host)?;
        let token = message::token_to_hex(place.token);
        self.send(control, &Message::Accept { token })?;
        let deadline = in_time(self.house.limits.silence.min(OPENING_MAX));
        let mut slots: Vec<Slot> = (0..config.streams).map(|_| Slot::Missing).collect();
        let (mut missing, mut elsewhere) = (slots.len(), 0_u64);
        let mut queued = VecDeque::new();
        while missing > 0 {
            if clock::monotonic() >= deadline {
                let text = self.not_opened(missing, config.streams, here.port(), elsewhere);
                let refusal = Message::Refused(Refusal::Host { text });
                // Others need not wait for a client that is slow to take it.
                drop(turn);
                return self.send(control, &refusal).map(|()| None);
            }
            let Some((datagram, from)) = queued.pop_front().or_else(|| take(&desk)) else {
                self.expect_silence(control, Duration::ZERO)?;
                wait_for(&desk, PollFlags::IN, TICK).map_err(Trouble::Io)?;
                continue;
            };
            let Some((stream, nonce)) = opened(&datagram, place.token) else {
                debug!(%from, "dropped: a datagram that opens no stream");
                continue;
            };
            if !is_same_host(from, self.peer) {
                debug!(%from, peer = %self.peer, "dropped: an opening from another address");
                elsewhere += 1;
                continue;
            }
            let Some(slot) = slots.get_mut(usize::from(stream)) else {
                continue;
            };
            match slot.judge(from, nonce).map_err(host)? {
                Judged::Open => {}
                Judged::Challenge(challenge) => drop(desk.send_to(&challenge, from)),
                Judged::Proved => {
                    // What comes from now on goes to the next socket; what is queued in this one may open other
                    // streams.
                    let next = listen().map_err(host)?;
                    while queued.len() < QUEUED_MAX
                        && let Some(other) = take(&desk)
                    {
                        queued.push_back(other);
                    }
                    desk.connect(from).map_err(host)?;
                    *slot = Slot::Open(std::mem::replace(&mut desk, next));
                    missing -= 1;
                }
            }
        }
        Ok(Some(slots.into_iter().filter_map(Slot::socket).collect()))
    }

    /// Why streams are missing, for the client.
    fn not_opened(&self, missing: usize, streams: u16, port: u16, elsewhere: u64) -> String {
        let mut text = format!("{missing} of {streams} streams did not reach its UDP port {port}");
        if elsewhere > 0 {
            let peer = self.peer.ip().to_canonical();
            text += &format!(
                " from {peer}, where the control connection comes from ({elsewhere} datagrams came from another \
                 address: a NAT with several addresses does that)"
            );
        }
        text
    }

    /// Waits for the turn to open UDP streams.
    fn udp_turn(&self, control: &mut Control) -> Result<Turn<'_>, Leave> {
        let deadline = in_time(self.house.limits.silence);
        let waits = self.house.cookies.udp.wait(source_of(self.peer));
        loop {
            if let Some(turn) = waits.try_take() {
                return Ok(turn);
            }
            if clock::monotonic() >= deadline {
                let text = "other clients have been opening UDP streams all the time";
                return Err(Leave::Host(text.to_owned()));
            }
            self.expect_silence(control, GATHER_TICK)?;
        }
    }

    /// Looks whether the client has left; it has nothing to say now.
    fn expect_silence(&self, control: &mut Control, wait: Duration) -> Result<(), Leave> {
        if self.house.stop.is_stopped() {
            return Err(Trouble::Stopped.into());
        }
        match control.try_receive(wait)? {
            None => Ok(()),
            Some(other) => Err(unexpected(&other).into()),
        }
    }
}

/// A stream on its way to its socket.
#[derive(Debug)]
enum Slot {
    /// No opening from the client's address.
    Missing,
    /// Sent a nonce, to where the last opening came from.
    Challenged(SocketAddr, [u8; ADDRESS_NONCE_BYTES]),
    /// Has its socket.
    Open(UdpSocket),
}

/// What an opening asks of its stream.
#[derive(Debug)]
enum Judged {
    /// The stream is open already.
    Open,
    /// Its source is to prove itself by this.
    Challenge([u8; ADDRESS_CHALLENGE_BYTES]),
    /// Its source received the nonce.
    Proved,
}

impl Slot {
    /// Judges an opening from `from`. The same source gets the same nonce until it has proved itself:
    /// openings cross answers on a long path.
    fn judge(
        &mut self,
        from: SocketAddr,
        nonce: Option<[u8; ADDRESS_NONCE_BYTES]>,
    ) -> io::Result<Judged> {
        let sent = match self {
            Self::Open(_) => return Ok(Judged::Open),
            Self::Challenged(at, sent) if *at == from => *sent,
            _ => {
                let fresh = sys::random::bytes()?;
                *self = Self::Challenged(from, fresh);
                fresh
            }
        };
        Ok(match nonce {
            Some(nonce) if nonce == sent => Judged::Proved,
            _ => Judged::Challenge(message::address_challenge(sent)),
        })
    }

    fn socket(self) -> Option<UdpSocket> {
        match self {
            Self::Open(socket) => Some(socket),
            _ => None,
        }
    }
}

/// The next datagram, as far as it can be an opening, and its source.
fn take(desk: &UdpSocket) -> Option<(Vec<u8>, SocketAddr)> {
    // One byte more than an opening has, to tell what is longer.
    let mut words = [0; OPENING_BYTES_MAX + 1];
    let (len, from) = desk.recv_from(&mut words).ok()?;
    Some((words[..len].to_vec(), from))
}

/// Whether two addresses are one host's, ports aside; an IPv4 address mapped into IPv6 is itself.
pub(crate) fn is_same_host(a: SocketAddr, b: SocketAddr) -> bool {
    a.ip().to_canonical() == b.ip().to_canonical()
}

/// Openings of all streams, twice.
const QUEUED_MAX: usize = 2 * STREAMS_MAX as usize;
/// Openings are repeated every 100 ms; while they are waited for, no other client's can be.
pub(crate) const OPENING_MAX: Duration = Duration::from_s(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn challenged(slot: &mut Slot, from: &str) -> [u8; ADDRESS_NONCE_BYTES] {
        match slot.judge(at(from), None).unwrap() {
            Judged::Challenge(datagram) => message::parse_address_challenge(&datagram).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_the_source_that_received_the_nonce_is_proved() {
        let mut slot = Slot::Missing;
        let nonce = challenged(&mut slot, "192.0.2.1:7");
        assert_eq!(challenged(&mut slot, "192.0.2.1:7"), nonce);
        let judge = |slot: &mut Slot, from, nonce| slot.judge(at(from), Some(nonce)).unwrap();
        let wrong = judge(&mut slot, "192.0.2.1:7", [0; ADDRESS_NONCE_BYTES]);
        assert!(matches!(wrong, Judged::Challenge(_)));
        let right = judge(&mut slot, "192.0.2.1:7", nonce);
        assert!(matches!(right, Judged::Proved));
        // Of another port the nonce is another.
        let stolen = judge(&mut slot, "192.0.2.1:8", nonce);
        assert!(matches!(stolen, Judged::Challenge(_)));
        assert_ne!(challenged(&mut slot, "192.0.2.1:8"), nonce);
    }

    #[test]
    fn an_address_mapped_into_ipv6_is_the_same_host() {
        assert!(is_same_host(at("192.0.2.1:1"), at("[::ffff:192.0.2.1]:2")));
        assert!(is_same_host(at("[2001:db8::1]:1"), at("[2001:db8::1]:1")));
        assert!(!is_same_host(at("192.0.2.1:1"), at("192.0.2.2:1")));
        assert!(!is_same_host(at("[::1]:1"), at("127.0.0.1:1")));
    }
}
