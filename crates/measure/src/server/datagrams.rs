//! A transfer over UDP, at the server.
//!
//! Datagrams come to the UDP port with the number of the TCP port that the client reached. A stream
//! opens with the datagram that a data connection would open with; the socket that hears it is
//! connected to where it came from and becomes the stream's, and the next listens in its place. So
//! one port serves all, and a stream's datagrams pass whatever let its opening pass, in both
//! directions. Openings are not answered: that all have come is said over TCP, and the client
//! repeats them until then. Who does not know the token gets no answer at all.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::MutexGuard;

use rustix::event::PollFlags;
use sys::clock;
use tracing::debug;
use units::Duration;

use super::{GATHER_TICK, Leave, Place, Session};
use crate::Config;
use crate::control::{Control, TICK, Trouble, wait_for};
use crate::engine::{Role, Shape};
use crate::message::{self, DATA_OPENING_BYTES, Message, Refusal};
use crate::transfer::{in_time, unexpected};
use crate::transfer_udp::{accompany, framing, opened, set_options};
use crate::udp::{self, UdpEngine};

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
        let engine = UdpEngine::prepare(role, config, sockets, Shape::of(config), key)
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
        let mut desk = udp::beside(here).map_err(host)?;
        let token = message::token_to_hex(place.token);
        self.send(control, &Message::Accept { token })?;
        let deadline = in_time(self.house.limits.silence.min(OPENING_MAX));
        let mut sockets: Vec<Option<UdpSocket>> = (0..config.streams).map(|_| None).collect();
        let mut missing = sockets.len();
        while missing > 0 {
            if clock::monotonic() >= deadline {
                let (streams, port) = (config.streams, here.port());
                let text =
                    format!("{missing} of {streams} streams did not reach its UDP port {port}");
                let refusal = Message::Refused(Refusal::Host { text });
                // Others need not wait for a client that takes its time to hear it.
                drop(turn);
                return self.send(control, &refusal).map(|()| None);
            }
            self.expect_silence(control, Duration::ZERO)?;
            wait_for(&desk, PollFlags::IN, TICK).map_err(Trouble::Io)?;
            // One byte more than an opening has, to tell what is longer.
            let mut words = [0; DATA_OPENING_BYTES + 1];
            let Ok((len, from)) = desk.recv_from(&mut words) else {
                continue;
            };
            let stream = opened(&words[..len], place.token);
            let slot = stream.and_then(|n| sockets.get_mut(usize::from(n)));
            let Some(slot @ None) = slot else {
                debug!(%from, "dropped: a datagram that opens no stream");
                continue;
            };
            desk.connect(from).map_err(host)?;
            set_options(desk.as_fd(), role, config).map_err(host)?;
            let next = udp::beside(here).map_err(host)?;
            *slot = Some(std::mem::replace(&mut desk, next));
            missing -= 1;
        }
        Ok(Some(sockets.into_iter().flatten().collect()))
    }

    /// Waits until no other transfer opens UDP streams.
    fn udp_turn(&self, control: &mut Control) -> Result<MutexGuard<'_, ()>, Leave> {
        let deadline = in_time(self.house.limits.silence);
        loop {
            if let Some(turn) = self.house.cookies.try_udp() {
                return Ok(turn);
            }
            if clock::monotonic() >= deadline {
                let text = "another client has been opening UDP streams all the time";
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

/// Openings are repeated every 100 ms; while they are waited for, no other client's can be.
const OPENING_MAX: Duration = Duration::from_s(5);
